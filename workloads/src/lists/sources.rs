//! Lists and their entries.

use std::io::{BufRead, Read as _};

use crate::lists::ListError;

/// The maximum size of one entry of a list of commands.
const LIST_ENTRY_BYTES_MAX: usize = 128 << 10;

/// The words after `--`: the command and its lists.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Split {
    pub command: Vec<String>,
    pub sources: Vec<Source>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    pub kind: SourceKind,
    /// Paired with the list before it, value by value.
    pub is_linked: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceKind {
    /// `::: a b c`
    Values(Vec<String>),
    /// `:::: FILE`; `-` is standard input.
    File(String),
}

/// Separates a command from its lists.
///
/// # Errors
/// There is no command, or the first list is linked.
pub fn split(words: &[String]) -> Result<Split, ListError> {
    let is_mark = |word: &String| matches!(word.as_str(), ":::" | ":::+" | "::::" | "::::+");
    let first = words.iter().position(is_mark).unwrap_or(words.len());
    let (command, lists) = words.split_at(first);
    let command = command.to_vec();
    if command.is_empty() {
        let hint = "write the command before its list: starling run -- gzip {} ::: *.log";
        return Err(ListError::new("there is no command", hint));
    }
    let mut sources: Vec<Source> = Vec::new();
    let mut rest = lists;
    while let Some((mark, after)) = rest.split_first() {
        let end = after.iter().position(is_mark).unwrap_or(after.len());
        let (values, next) = after.split_at(end);
        rest = next;
        let is_linked = mark.ends_with('+');
        if is_linked && sources.is_empty() {
            let text = format!("{mark}: there is no list before it");
            return Err(ListError::new(text, "begin with ::: or ::::"));
        }
        if mark.starts_with("::::") {
            if values.is_empty() {
                let hint = "name the file of the list: :::: list.txt";
                return Err(ListError::new(format!("{mark}: a file is missing"), hint));
            }
            for (at, file) in values.iter().enumerate() {
                let kind = SourceKind::File(file.clone());
                sources.push(Source { kind, is_linked: is_linked && at == 0 });
            }
        } else {
            sources.push(Source { kind: SourceKind::Values(values.to_vec()), is_linked });
        }
    }
    Ok(Split { command, sources })
}

/// An entry of all lists together, numbered from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub number: u64,
    pub values: Vec<String>,
}

/// The entries of a file, one a line, or separated by NUL bytes.
#[derive(Debug)]
pub struct Items<R> {
    from: R,
    name: String,
    separator: u8,
    number: u64,
    has_failed: bool,
}

impl<R: BufRead> Items<R> {
    /// `name` is for errors.
    pub fn new(from: R, name: &str, is_nul_separated: bool) -> Self {
        let separator = if is_nul_separated { 0 } else { b'\n' };
        Self { from, name: name.to_owned(), separator, number: 0, has_failed: false }
    }

    fn read(&mut self) -> Result<Option<String>, ListError> {
        self.number += 1;
        let (name, number) = (&self.name, self.number);
        let mut bytes = Vec::new();
        let mut limited = (&mut self.from).take(LIST_ENTRY_BYTES_MAX as u64 + 1);
        let read = limited.read_until(self.separator, &mut bytes).map_err(|error| {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or(&text).to_lowercase();
            ListError::new(format!("{name}: entry {number}: {text}"), "check the list")
        })?;
        if read == 0 {
            return Ok(None);
        }
        match bytes.last() {
            Some(last) if *last == self.separator => drop(bytes.pop()),
            _ if bytes.len() > LIST_ENTRY_BYTES_MAX => {
                let most = LIST_ENTRY_BYTES_MAX >> 10;
                return Err(ListError::new(
                    format!("{name}: entry {number} has more than {most} KiB"),
                    "put long texts into files, and list the files; lists that end with NUL bytes \
                     need -0",
                ));
            }
            _ => {}
        }
        if bytes.contains(&0) {
            return Err(ListError::new(
                format!("{name}: entry {number} has a NUL byte"),
                "use -0 for a list that is separated by NUL bytes",
            ));
        }
        String::from_utf8(bytes).map(Some).map_err(|_| {
            ListError::new(
                format!("{name}: entry {number} is not valid UTF-8"),
                "rename the file, or list its directory",
            )
        })
    }
}

impl<R: BufRead> Iterator for Items<R> {
    type Item = Result<String, ListError>;

    /// Nothing follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let read = self.read().transpose();
        self.has_failed = matches!(read, Some(Err(_)));
        read
    }
}

/// All combinations of lists; the last list varies fastest. The first one may be of any length.
#[derive(Debug)]
pub struct Product<I> {
    first: I,
    current: Option<Vec<String>>,
    rest: Vec<Vec<Vec<String>>>,
    /// The present value of each further list.
    at: Vec<usize>,
    number: u64,
}

impl<I> Product<I> {
    /// `rest` are the further lists. An element of a list is the values of its linked lists.
    pub fn new(first: I, rest: Vec<Vec<Vec<String>>>) -> Self {
        let at = vec![0; rest.len()];
        Self { first, current: None, rest, at, number: 0 }
    }

    /// Moves to the next combination of the further lists. False after the last one.
    fn advance(&mut self) -> bool {
        for (at, list) in self.at.iter_mut().zip(&self.rest).rev() {
            *at += 1;
            if *at < list.len() {
                return true;
            }
            *at = 0;
        }
        false
    }
}

impl<I: Iterator<Item = Result<Vec<String>, ListError>>> Iterator for Product<I> {
    type Item = Result<Entry, ListError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.iter().any(Vec::is_empty) {
            return None;
        }
        if self.current.is_none() {
            match self.first.next()? {
                Ok(values) => self.current = Some(values),
                Err(error) => return Some(Err(error)),
            }
        }
        let mut values = self.current.clone().unwrap_or_default();
        for (at, list) in self.at.iter().zip(&self.rest) {
            values.extend(list[*at].iter().cloned());
        }
        self.number += 1;
        if !self.advance() {
            self.current = None;
        }
        Some(Ok(Entry { number: self.number, values }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn values(kind: &Source) -> String {
        match &kind.kind {
            SourceKind::Values(values) => values.join(","),
            SourceKind::File(file) => format!("<{file}"),
        }
    }

    #[test]
    fn a_command_and_its_lists() {
        let split = |text: &str| split(&words(text));
        let found = split("cmd {} ::: a b :::+ c d :::: f g ::: ").unwrap();
        assert_eq!(found.command, ["cmd", "{}"]);
        let sources: Vec<String> = found.sources.iter().map(values).collect();
        assert_eq!(sources, ["a,b", "c,d", "<f", "<g", ""]);
        let linked: Vec<bool> = found.sources.iter().map(|source| source.is_linked).collect();
        assert_eq!(linked, [false, true, false, false, false]);
        assert_eq!(split("cmd").unwrap().sources, []);
        assert_eq!(split("::: a").unwrap_err().text, "there is no command");
        assert_eq!(split("x :::+ a").unwrap_err().text, ":::+: there is no list before it");
        assert_eq!(split("x ::::").unwrap_err().text, "::::: a file is missing");
    }

    fn items(bytes: &[u8], is_nul_separated: bool) -> Vec<Result<String, String>> {
        let items = Items::new(bytes, "list", is_nul_separated);
        items.map(|item| item.map_err(|error| error.text)).collect()
    }

    #[test]
    fn lines_and_nul_separated_entries() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(items(b"a b\n\n c", false), [ok("a b"), ok(""), ok(" c")]);
        assert_eq!(items(b"a\nb\0c\0", true), [ok("a\nb"), ok("c")]);
        assert_eq!(items(b"", false), []);
        let error = |text: &str| Err(text.to_owned());
        assert_eq!(
            items(b"a\n\xff\nb", false),
            [ok("a"), error("list: entry 2 is not valid UTF-8")]
        );
        assert_eq!(items(b"a\0b", false), [error("list: entry 1 has a NUL byte")]);
        let long = vec![b'x'; LIST_ENTRY_BYTES_MAX + 1];
        assert_eq!(items(&long, false), [error("list: entry 1 has more than 128 KiB")]);
        assert_eq!(items(&long[1..], false).len(), 1);
        assert!(items(&long[1..], false)[0].is_ok());
    }

    #[test]
    fn lists_make_their_product() {
        let list = |text: &str| -> Vec<Vec<String>> {
            text.split_whitespace().map(|word| vec![word.to_owned()]).collect()
        };
        let product = |first: &str, rest: &[&str]| -> Vec<String> {
            let first = list(first).into_iter().map(Ok);
            let rest = rest.iter().map(|text| list(text)).collect();
            let entries = Product::new(first, rest).map(Result::unwrap);
            entries.map(|entry| format!("{}:{}", entry.number, entry.values.concat())).collect()
        };
        assert_eq!(product("a b", &["1 2"]), ["1:a1", "2:a2", "3:b1", "4:b2"]);
        assert_eq!(product("a b", &[]), ["1:a", "2:b"]);
        assert_eq!(product("a", &["1 2", "x y"]).len(), 4);
        assert_eq!(product("a b", &["1", ""]), [""; 0]);
        assert_eq!(product("", &["1"]), [""; 0]);
    }

    /// The first list is read as its entries are wanted.
    #[test]
    fn a_long_list_is_not_read_ahead() {
        let mut read = 0_u64;
        let first = (0..1_000_000_u64).map(|number| {
            read = number + 1;
            Ok(vec![number.to_string()])
        });
        let mut product = Product::new(first, vec![vec![vec!["x".to_owned()]]]);
        assert_eq!(product.nth(2).unwrap().unwrap().values, ["2", "x"]);
        drop(product);
        assert_eq!(read, 3);
    }
}

//! Commands with replacement strings.
//!
//! `{}` is the entry, `{.}` the entry without its ending, `{/}` its last part as a path, `{//}` its
//! directory, `{/.}` its last part without ending. `{1}`, `{2.}` are the same of one list. `{#}`
//! and `{i}` are the number of the entry. Double braces stand for the text: `{{}}` is `{}`.
//!
//! In the script of a shell (`sh -c SCRIPT`) a value is quoted for its place, so a name with blanks
//! or quotes is one word.

use crate::lists::quoting::{Place, Script};
use crate::lists::{Entry, ListError};

/// The part of a value that replaces a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Whole,
    WithoutEnding,
    Base,
    Directory,
    BaseWithoutEnding,
}

impl Form {
    fn of(self, value: &str) -> &str {
        match self {
            Self::Whole => value,
            Self::WithoutEnding => without_ending(value),
            Self::Base => base(value),
            Self::BaseWithoutEnding => without_ending(base(value)),
            Self::Directory => match value.trim_end_matches('/').rfind('/') {
                None if value.starts_with('/') => "/",
                None => ".",
                Some(0) => "/",
                Some(at) => value[..at].trim_end_matches('/'),
            },
        }
    }
}

/// The last part of a path.
fn base(value: &str) -> &str {
    let trimmed = value.trim_end_matches('/');
    trimmed.rfind('/').map_or(trimmed, |at| &trimmed[at + 1..])
}

/// A path without the ending of its last part. A name that begins with its only dot has none.
fn without_ending(value: &str) -> &str {
    let start = value.rfind('/').map_or(0, |at| at + 1);
    match value[start..].rfind('.') {
        None | Some(0) => value,
        Some(at) => &value[..start + at],
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Number,
    /// The value of one list, or of all.
    Value(Option<usize>, Form),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    Replaced(What, Place),
}

/// A command with its replacement strings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    arguments: Vec<Vec<Part>>,
}

/// The replacement string between two braces; `None` if it is other text.
fn what(inner: &str) -> Option<What> {
    if matches!(inner, "#" | "i") {
        return Some(What::Number);
    }
    let digits = inner.len() - inner.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    let form = match &inner[digits..] {
        "" => Form::Whole,
        "." => Form::WithoutEnding,
        "/" => Form::Base,
        "//" => Form::Directory,
        "/." => Form::BaseWithoutEnding,
        _ => return None,
    };
    let source = match &inner[..digits] {
        "" => None,
        number => Some(number.parse::<usize>().ok()?.checked_sub(1)?),
    };
    Some(What::Value(source, form))
}

/// A replacement string at the beginning of `rest`: its length, and its meaning. `Err`: the length
/// of a text in double braces.
fn at_brace(rest: &str) -> Option<(usize, Result<What, String>)> {
    if let Some(inner) = rest.strip_prefix("{{")
        && let Some(close) = inner.find("}}")
        && what(&inner[..close]).is_some()
    {
        return Some((close + 4, Err(format!("{{{}}}", &inner[..close]))));
    }
    let close = rest.find('}')?;
    Some((close + 1, Ok(what(&rest[1..close])?)))
}

/// The place of the script in a command such as `nice sh -ec SCRIPT`.
fn script_of(argv: &[String]) -> Option<usize> {
    const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];
    let shell = argv.iter().position(|word| SHELLS.contains(&base(word)))?;
    let is_option = |word: &&String| word.starts_with(['-', '+']) && word.len() > 1;
    let options = argv[shell + 1..].iter().take_while(is_option);
    let (mut length, mut has_script) = (0, false);
    for option in options {
        length += 1;
        has_script |= option.starts_with('-') && !option.starts_with("--") && option.contains('c');
    }
    let at = shell + 1 + length;
    (has_script && at < argv.len()).then_some(at)
}

/// True if a command has a replacement string.
#[must_use]
pub fn has_replacement(argv: &[String]) -> bool {
    let script = script_of(argv);
    let parts = |(at, word): (usize, &String)| parse(word, script == Some(at));
    argv.iter().enumerate().map(parts).any(|parts| match parts {
        Ok(parts) => parts.iter().any(|part| matches!(part, Part::Replaced(..))),
        Err(_) => true,
    })
}

fn parse(text: &str, is_script: bool) -> Result<Vec<Part>, ListError> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut script = Script::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let of_shell = is_script && script.is_after_dollar();
        let found = (letter == '{' && !of_shell).then(|| at_brace(rest)).flatten();
        let taken = match found {
            Some((length, Ok(what))) => {
                let place = match is_script {
                    false => Place::Argument,
                    true => script.place().map_err(|place| {
                        let string = &rest[..length];
                        ListError::new(
                            format!("{string} is {place} in the script '{text}'"),
                            "give the script an argument: sh -c '... \"$1\" ...' sh {}",
                        )
                    })?,
                };
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                parts.push(Part::Replaced(what, place));
                script.value();
                length
            }
            Some((length, Err(inner))) => {
                literal.push_str(&inner);
                script.value();
                length
            }
            None => {
                let length = letter.len_utf8();
                script.letter(letter, &rest[length..]);
                literal.push(letter);
                length
            }
        };
        rest = &rest[taken..];
    }
    if !literal.is_empty() || parts.is_empty() {
        parts.push(Part::Text(literal));
    }
    Ok(parts)
}

impl Template {
    /// Reads a command for entries of `sources` lists. Without a replacement string, and with a
    /// list, the entry follows the command.
    ///
    /// # Errors
    /// A replacement string names a list that does not exist, or is at a place in a script where
    /// no value can be.
    pub fn parse(argv: &[String], sources: usize) -> Result<Self, ListError> {
        let script = script_of(argv);
        let parts = |(at, word): (usize, &String)| parse(word, script == Some(at));
        let mut arguments: Vec<Vec<Part>> =
            argv.iter().enumerate().map(parts).collect::<Result<_, _>>()?;
        let mut replaced = arguments.iter().flatten().filter_map(|part| match part {
            Part::Replaced(what, _) => Some(what),
            Part::Text(_) => None,
        });
        let beyond = replaced.clone().find_map(|what| match what {
            What::Value(Some(source), _) if *source >= sources => Some(source + 1),
            _ => None,
        });
        if let Some(number) = beyond {
            let lists = match sources {
                1 => "there is one list".to_owned(),
                sources => format!("there are {sources} lists"),
            };
            return Err(ListError::new(
                format!("{{{number}}}: {lists}"),
                format!("write {{{{{number}}}}} for the text {{{number}}}"),
            ));
        }
        if replaced.next().is_none() && sources > 0 {
            let all = What::Value(None, Form::Whole);
            arguments.push(vec![Part::Replaced(all, Place::Argument)]);
        }
        Ok(Self { arguments })
    }

    /// The command of an entry.
    #[must_use]
    pub fn argv(&self, entry: &Entry) -> Vec<String> {
        let mut argv = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            // An argument that is only `{}` is one argument for each list.
            if let [Part::Replaced(What::Value(None, form), Place::Argument)] = argument[..] {
                argv.extend(entry.values.iter().map(|value| form.of(value).to_owned()));
                continue;
            }
            let mut text = String::new();
            argument.iter().for_each(|part| put(part, entry, &mut text));
            argv.push(text);
        }
        argv
    }
}

fn put(part: &Part, entry: &Entry, text: &mut String) {
    match part {
        Part::Text(literal) => text.push_str(literal),
        Part::Replaced(What::Number, _) => text.push_str(&entry.number.to_string()),
        Part::Replaced(What::Value(Some(source), form), place) => {
            let value = entry.values.get(*source).map_or("", String::as_str);
            place.put(form.of(value), text);
        }
        Part::Replaced(What::Value(None, form), place) => {
            for (at, value) in entry.values.iter().enumerate() {
                if at > 0 {
                    text.push(' ');
                }
                place.put(form.of(value), text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn argv(template: &[&str], values: &[&str]) -> Vec<String> {
        let template = Template::parse(&words(template), values.len()).unwrap();
        template.argv(&Entry { number: 7, values: words(values) })
    }

    fn refused(template: &[&str], sources: usize) -> ListError {
        Template::parse(&words(template), sources).unwrap_err()
    }

    #[test]
    fn strings_are_replaced() {
        let path = "/a b/c.tar.gz";
        let template = ["x", "{}", "{.}", "{/}", "{//}", "{/.}", "{#}-{i}", "{1/.}!"];
        let expected = ["x", path, "/a b/c.tar", "c.tar.gz", "/a b", "c.tar", "7-7", "c.tar!"];
        assert_eq!(argv(&template, &[path]), expected);
        assert_eq!(argv(&["echo"], &["a b"]), ["echo", "a b"]);
        assert_eq!(argv(&["echo", "{2}{1}"], &["a", "b"]), ["echo", "ba"]);
        assert_eq!(argv(&["echo", "{}", "-{}"], &["a", "b"]), ["echo", "a", "b", "-a b"]);
        for (value, [whole, base, directory]) in [
            (".rc", [".rc", ".rc", "."]),
            ("/x", ["/x", "x", "/"]),
            ("d.e/x", ["d.e/x", "x", "d.e"]),
            ("d/", ["d/", "d", "."]),
            ("/", ["/", "", "/"]),
            ("", ["", "", "."]),
        ] {
            assert_eq!(argv(&["x", "{.}", "{/}", "{//}"], &[value])[1..], [whole, base, directory]);
        }
    }

    #[test]
    fn other_braces_stay() {
        let template = ["awk", "{print $1}", "{{}}", "{{1}}", "{a}", "{", "{0}", "{}"];
        let expected = ["awk", "{print $1}", "{}", "{1}", "{a}", "{", "{0}", "v{}"];
        assert_eq!(argv(&template, &["v{}"]), expected);
        assert!(!has_replacement(&words(&["awk", "{print}", "{{}}"])));
        assert!(has_replacement(&words(&["x", "-{#}"])));
        assert!(!has_replacement(&words(&["sh", "-c", "echo ${1} ${#}"])));
    }

    #[test]
    fn a_list_that_does_not_exist_is_named() {
        let error = refused(&["grep", "a{2}", "{}"], 1);
        assert_eq!(error.text, "{2}: there is one list");
        assert_eq!(error.hint, "write {{2}} for the text {2}");
        assert_eq!(refused(&["x", "{1}"], 0).text, "{1}: there are 0 lists");
    }

    /// Hostile names reach the program as they are, from any quotes of a script.
    #[test]
    fn values_in_scripts_are_words() {
        let hostile = "a  b'\"$(touch x)`id`;#\\\n&";
        for script in [
            "printf '%s|' {}",
            "printf '%s|' \"{}\"",
            "printf '%s|' '{}'",
            "printf '%s|' \"$(printf '%s' '{}')\"",
            "# don't\nprintf '%s|' {}",
            "case a in a) printf '%s|' {};; esac",
            "printf '%s|' \\\\{}",
        ] {
            let argv = argv(&["nice", "/bin/sh", "-uec", script], &[hostile]);
            let ran = std::process::Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            let text = text.strip_prefix('\\').unwrap_or(&text);
            assert_eq!(text, format!("{hostile}|"), "{script}");
        }
        assert_eq!(argv(&["sh", "-c", "echo ${1} {}", "x"], &["a b"])[2], "echo ${1} 'a b'");
        assert_eq!(argv(&["sh", "x.sh", "{}"], &["a b"]), ["sh", "x.sh", "a b"]);
    }

    #[test]
    fn places_without_a_quoting_are_refused() {
        for (script, place) in [
            ("x `echo {}`", "between backquotes"),
            ("cat <<E\n{}\nE", "in or after a here-document"),
            ("echo $'{}'", "between $' and '"),
            ("echo \\{}", "after a backslash"),
        ] {
            let error = refused(&["sh", "-c", script], 1);
            assert!(error.text.contains(place), "{error}");
            assert!(error.hint.contains("\"$1\""), "{}", error.hint);
        }
        assert_eq!(argv(&["sh", "-c", "cat <<<{}"], &["a b"])[2], "cat <<<'a b'");
        assert_eq!(argv(&["sh", "-c", "echo $((1 << 2)){}"], &["b"])[2], "echo $((1 << 2))b");
    }
}

//! Options of a submission that a script has in its first lines.
//!
//! `#STARLING --cpus 2` gives an option that the command line does not give. The lines are read up
//! to the first one that is neither empty nor a comment.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use clap::ValueEnum;
use clap::parser::ValueSource;

use crate::errors::Failure;

/// Where directives are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Directives {
    /// In a script with a name that ends with `.sh`.
    Auto,
    /// In the script, whatever its name is.
    File,
    /// Nowhere.
    Off,
}

/// The part of a script that is searched.
const SEARCHED_BYTES: u64 = 64 << 10;

/// The options in a script. Without a readable script there are none, except with `File`.
pub fn of_script(mode: Directives, marker: &str, script: &Path) -> Result<Vec<String>, Failure> {
    let is_read = match mode {
        Directives::Auto => script.extension().is_some_and(|ending| ending == "sh"),
        Directives::File => true,
        Directives::Off => false,
    };
    if !is_read {
        return Ok(Vec::new());
    }
    match File::open(script) {
        Ok(file) => {
            let mut head = Vec::new();
            let read = BufReader::new(file).take(SEARCHED_BYTES).read_to_end(&mut head);
            read.map_err(|error| Failure::file(script, &error))?;
            of_text(marker, &head)
                .map_err(|why| Failure::usage(format!("{}: {why}", script.display())))
        }
        Err(error) if mode == Directives::File => Err(Failure::file(script, &error)),
        Err(_) => Ok(Vec::new()),
    }
}

/// The options in the first lines of a text.
pub fn of_text(marker: &str, text: &[u8]) -> Result<Vec<String>, String> {
    let mut options = Vec::new();
    for line in text.lines().map_while(Result::ok) {
        let line = line.trim();
        match line.strip_prefix(marker) {
            Some(rest) if rest.starts_with([' ', '\t']) => options.extend(words(rest)?),
            Some("") => {}
            _ if line.is_empty() || line.starts_with('#') => {}
            _ => break,
        }
    }
    Ok(options)
}

/// Words as a shell separates them: by blanks, except in quotes and after a backslash.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', None | Some('"')) => {
                let next = letters.next().ok_or("a backslash ends the line")?;
                word.get_or_insert_default().push(next);
            }
            (end, Some(begin)) if end == begin => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (blank, None) if blank.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("a quote {quote} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

/// The command line with the options of directives before those of the user. An option that the
/// user gives is left out of the directives. `after`: the position of the word after which they
/// stand, the name of `verb`. `parse` reads a whole command line up to the matches of the verb.
pub fn merge(
    line: &[OsString],
    after: usize,
    directives: &[String],
    verb: &clap::Command,
    parse: impl Fn(&[OsString]) -> Result<clap::ArgMatches, clap::Error>,
) -> Result<Vec<OsString>, clap::Error> {
    let user = parse(line)?;
    let (head, tail) = line.split_at(after + 1);
    // A command is required.
    let own = directives.iter().map(OsString::from);
    let alone: Vec<OsString> =
        head.iter().cloned().chain(own).chain(["--", "x"].map(OsString::from)).collect();
    let given = parse(&alone)?;
    let is_given = |matches: &clap::ArgMatches, id: &str| {
        matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let mut merged = head.to_vec();
    for argument in verb.get_arguments() {
        let id = argument.get_id().as_str();
        let Some(name) = argument.get_long().filter(|_| is_given(&given, id)) else { continue };
        if is_given(&user, id) {
            continue;
        }
        let occurrences = given.get_raw_occurrences(id).into_iter().flatten();
        for values in occurrences {
            let mut values = values.peekable();
            if values.peek().is_none() {
                merged.push(OsString::from(format!("--{name}"))); // A flag has its default value.
            }
            // The command follows, so each value gets a name of its own.
            for value in values {
                let mut option = OsString::from(format!("--{name}="));
                option.push(value);
                merged.push(option);
            }
        }
    }
    merged.extend_from_slice(tail);
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        let all = |text: &str| words(text).unwrap();
        assert_eq!(all(" --a  b\t'c d' \"e'f\" g\\ h=\"\""), ["--a", "b", "c d", "e'f", "g h="]);
        assert!(words("a 'b").is_err() && words("a\\").is_err());
    }

    #[test]
    fn each_value_of_a_directive_gets_a_name_of_its_own() {
        use clap::{Arg, ArgAction, Command};
        let verb = Command::new("submit")
            .arg(Arg::new("in").long("in").num_args(1..).action(ArgAction::Append))
            .arg(Arg::new("command").num_args(1..).required(true).last(false));
        let line = ["submit", "./s.sh"].map(OsString::from);
        let directives = ["--in", "a", "b"].map(str::to_owned);
        let parse = |line: &[OsString]| verb.clone().try_get_matches_from(line);
        let merged = merge(&line, 0, &directives, &verb, parse).expect("it is right");
        assert_eq!(merged, ["submit", "--in=a", "--in=b", "./s.sh"].map(OsString::from));
    }

    #[test]
    fn directives_end_at_the_first_command() {
        let text = b"#! /bin/sh\n# text\n#JOB --a 1\n\n#JOB --b='x y'\n#JOBS no\nls\n#JOB --c\n";
        assert_eq!(of_text("#JOB", text).unwrap(), ["--a", "1", "--b=x y"]);
    }
}

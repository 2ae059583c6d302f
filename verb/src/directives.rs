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

/// The options of one line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    /// Counted from 1.
    number: usize,
    words: Vec<String>,
}

/// The options of a text, by line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// The name of the text in errors.
    name: String,
    lines: Vec<Line>,
}

/// Why a command line and a script have no merged options.
#[derive(Debug)]
pub enum MergeError {
    /// The command line is wrong, or contradicts the script.
    Line(clap::Error),
    Script(Failure),
}

impl From<clap::Error> for MergeError {
    fn from(error: clap::Error) -> Self {
        Self::Line(error)
    }
}

impl Script {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn words(&self) -> impl Iterator<Item = &String> {
        self.lines.iter().flat_map(|line| &line.words)
    }

    fn wrong(&self, number: usize, why: &str) -> Failure {
        Failure::usage(format!("{}:{number}: {why}", self.name))
    }

    /// Refuses lines that are no options of the verb. `parse` reads the words of a line.
    fn check(
        &self,
        verb: &clap::Command,
        parse: impl Fn(&[String]) -> Result<clap::ArgMatches, clap::Error>,
    ) -> Result<(), Failure> {
        let is_own = |word: &str| {
            let Some(name) = word.strip_prefix("--") else { return word.starts_with('-') };
            let name = name.split_once('=').map_or(name, |(name, _)| name);
            verb.get_arguments().any(|one| one.get_long() == Some(name))
        };
        for Line { number, words } in &self.lines {
            let refused = |word: &str| {
                let why = format!("'{word}' is no option of '{}'", verb.get_name());
                Err(self.wrong(*number, &why))
            };
            if let Some(first) = words.first().filter(|first| !is_own(first)) {
                return refused(first);
            }
            let matches = parse(words).map_err(|error| {
                let text = error.to_string();
                let text = text.lines().next().unwrap_or_default();
                self.wrong(*number, text.strip_prefix("error: ").unwrap_or(text))
            })?;
            // An option of the whole program, or a part of the command.
            let of_program = words.iter().find(|word| word.starts_with("--") && !is_own(word));
            let is_value =
                |word: &&String| verb.get_arguments().any(|one| has(&matches, one, word));
            if let Some(word) = of_program.filter(|word| !is_value(word)) {
                return refused(word);
            }
            if let Some(word) = beyond_options(verb, &matches) {
                return refused(&word);
            }
        }
        Ok(())
    }
}

/// Whether a word is a value of the option.
fn has(matches: &clap::ArgMatches, option: &clap::Arg, word: &str) -> bool {
    let values = matches.get_raw(option.get_id().as_str());
    !option.is_positional() && values.into_iter().flatten().any(|value| value == word)
}

/// The word that stands for the command when a line of options is parsed.
const COMMAND: &str = "x";

/// The first word of a line that became a part of the command.
fn beyond_options(verb: &clap::Command, matches: &clap::ArgMatches) -> Option<String> {
    let mut positionals = verb.get_positionals();
    let mut words = positionals
        .find_map(|one| matches.get_raw(one.get_id().as_str()))
        .into_iter()
        .flatten()
        .map(|word| word.to_string_lossy().into_owned());
    words.next().filter(|first| first != COMMAND || words.next().is_some())
}

/// The options in a script. Without a readable script there are none, except with `File`.
pub fn of_script(mode: Directives, marker: &str, script: &Path) -> Result<Script, Failure> {
    let is_read = match mode {
        Directives::Auto => script.extension().is_some_and(|ending| ending == "sh"),
        Directives::File => true,
        Directives::Off => false,
    };
    if !is_read {
        return Ok(Script::default());
    }
    match File::open(script) {
        Ok(file) => {
            let mut head = Vec::new();
            let read = BufReader::new(file).take(SEARCHED_BYTES).read_to_end(&mut head);
            read.map_err(|error| Failure::file(script, &error))?;
            of_text(marker, &script.display().to_string(), &head)
        }
        Err(error) if mode == Directives::File => Err(Failure::file(script, &error)),
        Err(_) => Ok(Script::default()),
    }
}

/// The options in the first lines of a text; `name` is its name in errors.
pub fn of_text(marker: &str, name: &str, text: &[u8]) -> Result<Script, Failure> {
    let mut script = Script { name: name.to_owned(), lines: Vec::new() };
    for (number, line) in (1..).zip(text.lines().map_while(Result::ok)) {
        let line = line.trim();
        match line.strip_prefix(marker) {
            Some(rest) if rest.starts_with([' ', '\t']) => {
                let words = words(rest).map_err(|why| script.wrong(number, &why))?;
                script.lines.push(Line { number, words });
            }
            Some("") => {}
            _ if line.is_empty() || line.starts_with('#') => {}
            _ => break,
        }
    }
    Ok(script)
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

/// The command line with the options of a script before those of the user. An option that the user
/// gives is left out of the script. `after`: the position of the word after which they stand, the
/// name of `verb`. `parse` reads a whole command line up to the matches of the verb.
pub fn merge(
    line: &[OsString],
    after: usize,
    script: &Script,
    verb: &clap::Command,
    parse: impl Fn(&[OsString]) -> Result<clap::ArgMatches, clap::Error>,
) -> Result<Vec<OsString>, MergeError> {
    let user = parse(line)?;
    let (head, tail) = line.split_at(after + 1);
    // A command is required.
    let with = |words: &mut dyn Iterator<Item = &String>| {
        let command = ["--", COMMAND].map(OsString::from);
        let words = words.map(OsString::from);
        parse(&head.iter().cloned().chain(words).chain(command).collect::<Vec<_>>())
    };
    script.check(verb, |words| with(&mut words.iter())).map_err(MergeError::Script)?;
    let given = with(&mut script.words())?;
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
        if !argument.get_action().takes_values() {
            merged.push(OsString::from(format!("--{name}")));
            continue;
        }
        let occurrences = given.get_raw_occurrences(id).into_iter().flatten();
        for values in occurrences {
            let mut values = values.peekable();
            if values.peek().is_none() {
                merged.push(OsString::from(format!("--{name}"))); // It has its default value.
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
    use clap::{Arg, ArgAction, Command};

    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        let all = |text: &str| words(text).unwrap();
        assert_eq!(all(" --a  b\t'c d' \"e'f\" g\\ h=\"\""), ["--a", "b", "c d", "e'f", "g h="]);
        assert!(words("a 'b").is_err() && words("a\\").is_err());
    }

    /// The merged options of a script, or the text of the error.
    fn merged(text: &str) -> Result<Vec<String>, String> {
        let submit = Command::new("submit")
            .arg(Arg::new("in").long("in").num_args(1..).action(ArgAction::Append))
            .arg(Arg::new("wait").long("wait").action(ArgAction::SetTrue))
            .arg(Arg::new("command").num_args(1..).trailing_var_arg(true).required(true));
        let dir = Arg::new("dir").long("dir").global(true);
        let program = Command::new("p").arg(dir).subcommand(submit.clone());
        let line = ["p", "submit", "./s.sh"].map(OsString::from);
        let parse = |line: &[OsString]| {
            let matches = program.clone().try_get_matches_from(line)?;
            Ok(matches.subcommand().map(|(_, verb)| verb.clone()).unwrap_or_default())
        };
        let script = of_text("#JOB", "s.sh", text.as_bytes()).map_err(|wrong| wrong.message)?;
        match merge(&line, 1, &script, &submit, parse) {
            Ok(merged) => {
                Ok(merged[2..].iter().map(|word| word.to_string_lossy().into_owned()).collect())
            }
            Err(MergeError::Script(failure)) => Err(failure.message),
            Err(MergeError::Line(error)) => Err(error.to_string()),
        }
    }

    #[test]
    fn each_value_of_a_directive_gets_a_name_of_its_own() {
        assert_eq!(merged("#JOB --in a b\n").unwrap(), ["--in=a", "--in=b", "./s.sh"]);
        assert_eq!(merged("#JOB --wait\n").unwrap(), ["--wait", "./s.sh"]);
    }

    #[test]
    fn what_is_no_option_is_refused_with_its_line() {
        let wrong = |text: &str| merged(text).unwrap_err();
        assert_eq!(wrong("#!/bin/sh\n#JOB wait\n"), "s.sh:2: 'wait' is no option of 'submit'");
        assert_eq!(wrong("#JOB --dir X\n"), "s.sh:1: '--dir' is no option of 'submit'");
        assert_eq!(wrong("#JOB -- rm x\n"), "s.sh:1: '--' is no option of 'submit'");
        assert_eq!(wrong("#JOB --wait\n#JOB --bad\n"), "s.sh:2: '--bad' is no option of 'submit'");
        assert_eq!(wrong("#JOB --wait ls\n"), "s.sh:1: 'ls' is no option of 'submit'");
        assert_eq!(wrong("#JOB --wait -- ls\n"), "s.sh:1: '--' is no option of 'submit'");
        assert_eq!(wrong("#JOB --wait --dir X\n"), "s.sh:1: '--dir' is no option of 'submit'");
        assert!(wrong("#JOB --wait --bad\n").starts_with("s.sh:1: unexpected argument '--bad'"));
        assert_eq!(wrong("#JOB --in 'a\n"), "s.sh:1: a quote ' is not closed");
    }

    #[test]
    fn directives_end_at_the_first_command() {
        let text = "#! /bin/sh\n# text\n#JOB --in 1\n\n#JOB --in='x y'\n#JOBS no\nls\n#JOB --c\n";
        assert_eq!(merged(text).unwrap(), ["--in=1", "--in=x y", "./s.sh"]);
    }
}

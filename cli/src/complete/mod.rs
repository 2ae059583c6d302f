/*!
`starling complete -- WORDS...`: the values that the last word may get, for completion scripts.

Only values that the program, the cluster or run records know are given: jobs, nodes, settings,
examples and queues of allocations. Verbs and flags are in the scripts. It starts nothing, writes
nothing to standard error and never fails: without an answer in time there are no values.
*/

mod scripts;
mod values;
mod wanted;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use verb::Context;
use verb::output::Output;
use verb::settings::Settings;

use wanted::{Place, Wanted};

pub(crate) use scripts::with_values;

const VERB: &str = "complete";

/// A value of a word, and what it means.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Value {
    text: String,
    about: String,
}

impl Value {
    fn new(text: impl Into<String>, about: impl Into<String>) -> Self {
        Self { text: text.into(), about: about.into() }
    }
}

/// Completes if the command line asks for it. It is hidden: only scripts use it. `command`: the
/// definition of the command line.
pub(crate) fn front(command: fn() -> clap::Command) -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let is_asked = words.next()? == VERB && words.next()? == "--";
    is_asked.then(|| {
        std::panic::set_hook(Box::new(|_| {}));
        let found = std::panic::catch_unwind(|| {
            let words: Vec<OsString> = words.collect();
            values(command(), &words)
        });
        let lines = lines(&found.unwrap_or_default());
        // A missing reader is no error.
        let _ = std::io::stdout().write_all(lines.as_bytes());
        ExitCode::SUCCESS
    })
}

/// The values of the last word that begin as it does.
fn values(command: clap::Command, words: &[OsString]) -> Vec<Value> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into()).collect();
    let Place { wanted, dir, from } = wanted::place(command, &words);
    if wanted == Wanted::Nothing {
        return Vec::new();
    }
    let Ok(settings) = Settings::load() else { return Vec::new() };
    let context = Context::new(Output::new(false, true, false), settings, dir.map(PathBuf::from));
    let found = values::of(&context, wanted, from.map(PathBuf::from));
    matching(found, words.last().map_or("", String::as_str))
}

fn matching(mut found: Vec<Value>, word: &str) -> Vec<Value> {
    found.retain(|value| value.text.starts_with(word));
    found
}

/// A line for each value: the value, a tab, and what it means.
fn lines(values: &[Value]) -> String {
    let plain = |text: &str| -> String { text.chars().filter(|it| !it.is_control()).collect() };
    let is_one_word = |value: &&Value| !value.text.contains(|it: char| it.is_control());
    let values = values.iter().filter(is_one_word);
    values.map(|value| format!("{}\t{}\n", value.text, plain(&value.about))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_that_begin_as_the_word_are_given() {
        let values = ["last", "12", "1"].map(|text| Value::new(text, ""));
        let texts = |word: &str| -> Vec<String> {
            matching(values.to_vec(), word).into_iter().map(|value| value.text).collect()
        };
        assert_eq!(texts(""), ["last", "12", "1"]);
        assert_eq!(texts("1"), ["12", "1"]);
        assert!(texts("x").is_empty());
    }

    #[test]
    fn foreign_names_stay_on_their_line() {
        let values = [Value::new("7", "a\tb\n\x1b[31mc"), Value::new("8\n9", "")];
        assert_eq!(lines(&values), "7\tab[31mc\n");
    }
}

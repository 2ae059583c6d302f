//! Hints for errors, which name the verb of the command line, and the errors of clap.

use clap::CommandFactory;
use verb::errors::{Exit, Failure, numbers_plain};

use crate::args::Cli;

/// Adds a hint if there is none: where to read more, or where to look.
pub(crate) fn or_hint(mut failure: Failure, words: &[String]) -> Failure {
    let general = || match failure.exit {
        Exit::Usage | Exit::Refused => Some(format!("see '{} --help'", verb_of(words))),
        // The cluster has ended with the run.
        Exit::Lost if verb_of(words) == "starling run" => {
            Some("start the run again; --joblog and --resume run the rest of a list".to_owned())
        }
        Exit::Lost => Some("'starling node list' shows which nodes answer".to_owned()),
        Exit::Ok | Exit::Failed | Exit::TimedOut | Exit::Interrupted => None,
    };
    if failure.hint.is_none() {
        failure.hint = general();
    }
    failure
}

/// A usage error of clap in our format: its first line, and where to read more.
pub(crate) fn usage_of_clap(error: &clap::Error, words: &[String]) -> Failure {
    let text = error.render().to_string();
    let mut parts = text.split("\n\n");
    let first = parts.next().unwrap_or_default();
    let message: Vec<&str> = first.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let message = message.join(" ");
    let message = numbers_plain(message.strip_prefix("error: ").unwrap_or(&message));
    if error.kind() == clap::error::ErrorKind::InvalidUtf8
        && let Some(word) = odd_word(words)
    {
        return Failure::usage(format!("'{word}' is not valid UTF-8"))
            .hint("rename the file, or let the command find it: sh -c 'cat *.txt'");
    }
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    let hint = match (tip, usage) {
        (Some(tip), _) => tip.to_owned(),
        (None, Some(usage)) => format!("usage: {usage}"),
        (None, None) => format!("see '{} --help'", verb_of(words)),
    };
    Failure::usage(message).hint(hint)
}

/// The last word that is no text: a directory may have any name.
fn odd_word(words: &[String]) -> Option<&String> {
    let is_dir = |at: usize| words[at].starts_with("--dir=") || at > 0 && words[at - 1] == "--dir";
    let is_odd = |at: &usize| words[*at].contains(char::REPLACEMENT_CHARACTER) && !is_dir(*at);
    (0..words.len()).rev().find(is_odd).map(|at| &words[at])
}

/// The verb that a command line begins with: `starling job list`.
fn verb_of(words: &[String]) -> String {
    let mut command = Cli::command();
    let mut verb = command.get_name().to_owned();
    for word in words {
        if let Some(found) = command.find_subcommand(word).cloned() {
            verb = format!("{verb} {word}");
            command = found;
        }
    }
    verb
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use client::ClientError;

    use super::*;

    #[test]
    fn the_word_that_is_no_text_is_named() {
        let words = ["--dir", "d\u{fffd}", "submit", "f\u{fffd}"].map(str::to_owned);
        assert_eq!(odd_word(&words), Some(&words[3]));
        assert_eq!(odd_word(&words[..3]), None);
    }

    #[test]
    fn every_error_has_a_hint() {
        let words = ["--dir", "d", "kv", "insert", "", "v"].map(str::to_owned);
        let empty = Failure::from(ClientError::Refused("the key is empty".to_owned()));
        let text = or_hint(empty, &words).render();
        assert_eq!(text, "error: the key is empty\nhint: see 'starling kv insert --help'\n");
        let own = or_hint(Failure::usage("no").hint("mine"), &words);
        assert_eq!(own.hint.as_deref(), Some("mine"));
        let lost = |verb: &str| {
            let failure = or_hint(Failure::lost("gone"), &[verb.to_owned()]);
            failure.hint.unwrap_or_default()
        };
        assert!(lost("submit").contains("starling node list"));
        assert!(lost("run").starts_with("start the run again"));
        let missing = std::io::Error::from_raw_os_error(2);
        let text = Failure::file(std::path::Path::new("a.json"), &missing).render();
        let expected = "error: a.json: no such file or directory\n\
                        hint: check the path\n";
        assert_eq!(text, expected);
    }

    /// Both lines of the error for a wrong command line.
    fn wrong(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let error = Cli::try_parse_from(&words).unwrap_err();
        let failure = usage_of_clap(&error, &words[1..]);
        assert_eq!(failure.exit, Exit::Usage);
        failure.render()
    }

    #[test]
    fn wrong_usage_is_one_line_and_a_hint() {
        assert_eq!(
            wrong("starling run bag:tasks=1 --nodes 0"),
            "error: invalid value '0' for '--nodes <NODES>': 0 is not in 1..=1048576\n\
             hint: see 'starling run --help'\n"
        );
        assert_eq!(
            wrong("starling job lst"),
            "error: unrecognized subcommand 'lst'\n\
             hint: a similar subcommand exists: 'list'\n"
        );
        assert_eq!(
            wrong("starling run"),
            "error: the following required arguments were not provided: <WORKFLOW>\n\
             hint: usage: starling run <WORKFLOW> [-- <COMMAND>...]\n"
        );
        assert_eq!(
            wrong("starling run bag:tasks=1 --timeout soon"),
            "error: invalid value 'soon' for '--timeout <DURATION>': 'soon' is not a duration \
             such as 90s, 1h 30m or 50ms\n\
             hint: see 'starling run --help'\n"
        );
    }
}

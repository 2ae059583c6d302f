//! Explains errors of a TOML text in the user's terms, with the correct form.
//!
//! The reader's own errors mention maps and sequences. This module converts them to errors that
//! name the key, and hints that show how it is written.

use crate::formats::error::Problem;
use crate::graph::error::nearest;

/// The page that explains all keys, for errors about unknown keys.
const PAGE: &str = "docs/workflow-file.md describes each key";

/// The correct form of each key.
const FORMS: &[(&str, &str)] = &[
    ("task", "write [[task]], with two brackets, before each task"),
    ("job", "write [job] once, for options of the whole job, and [[task]] before each task"),
    ("at_most", "write at_most = 10"),
    ("after_job", "write after_job = [7, \"any:8\"]"),
    ("var", "write [job.var] and below it best = \"max:0\""),
    ("name", "write name = \"count\""),
    ("array", "write array = \"1-10\" or array = \"1,3,7\""),
    ("kind", "write kind = \"align\""),
    ("command", "write the command as a list: command = [\"ls\", \"-l\"]"),
    ("function", "write function = \"module:name\""),
    ("args", "write the arguments as a list: args = [1, \"a\"]"),
    ("kwargs", "write kwargs = { scale = 2 }"),
    ("preload", "write preload = [\"numpy\"]"),
    ("python", "write python = \"python3.12\""),
    ("body", "write body = \"noop\", \"sleep\" or \"spin\""),
    ("duration", "write duration = \"1s\""),
    ("duration_estimate", "write duration_estimate = \"1s\""),
    ("inputs", "write inputs = { text = \"words.txt\" }; commands see it as {in:text}"),
    ("outputs", "write outputs = { n = \"n.txt\" }; commands write it as {out:n}"),
    ("after", "write after = [\"name\"]"),
    ("env", "write env = { COLOUR = \"blue\" }"),
    ("cwd", "write cwd = \"directory\""),
    ("stdin", "write stdin = \"words.txt\""),
    ("cpus", "write cpus = 2"),
    ("memory", "write memory = \"4GiB\""),
    ("gpus", "write gpus = 1 or gpus = 0.5"),
    ("resources", "write resources = { licences = 1 }"),
    ("labels", "write labels = [\"avx512\"]"),
    ("variants", "write variants = [\"cpus=1, gpus=1\", \"cpus=8\"]"),
    ("patience", "write patience = \"1s\""),
    ("priority", "write priority = 5"),
    ("rank", "write rank = 100"),
    ("nodes", "write nodes = 2"),
    ("time_request", "write time_request = \"60s\""),
    ("retries", "write retries = 2"),
    ("crash_limit", "write crash_limit = 5, \"never-restart\" or \"unlimited\""),
    ("time_limit", "write time_limit = \"60s\""),
    ("signal", "write signal = \"USR1@60s\""),
    ("pin", "write pin = \"taskset\" or \"omp\""),
    ("data_load", "write data_load = \"clocked\" or \"unclocked\""),
    ("file", "write file = \"name.txt\""),
    ("as", "write as = \"name.txt\""),
    ("keep", "write keep = true"),
    ("replicas", "write replicas = 2"),
    ("size", "write size = \"5MB\""),
    ("stage", "write stage = true"),
    ("upload", "write upload = true"),
];

/// The names that other systems use for a key.
const OTHER_WORDS: &[(&str, &[&str])] = &[
    ("task", &["tasks", "jobs", "step", "steps", "rule", "process"]),
    // Before the name: a whole file has a name and no labels.
    ("labels", &["label", "tags", "constraint", "constraints", "features"]),
    ("name", &["id", "title", "label"]),
    ("command", &["cmd", "argv", "script", "shell", "run", "exec", "executable"]),
    ("inputs", &["in", "files"]),
    ("outputs", &["out", "results"]),
    ("after", &["deps", "dependencies", "depends", "depends_on", "needs", "requires", "parents"]),
    ("at_most", &["throttle", "limit", "max_running", "parallel", "max_parallel"]),
    ("after_job", &["after_jobs", "dependency", "afterok", "wait_for"]),
    ("var", &["vars", "variable", "variables"]),
    ("env", &["environment", "envs", "variables"]),
    ("cwd", &["dir", "directory", "workdir", "working_dir", "working_directory", "chdir"]),
    ("cpus", &["cpu", "cores", "core", "threads", "slots", "ncpus", "cpus_per_task"]),
    ("memory", &["mem", "ram", "memory_mb", "mem_mb"]),
    ("gpus", &["gpu", "accelerators", "ngpus"]),
    ("resources", &["resource"]),
    ("priority", &["nice", "prio"]),
    ("retries", &["retry", "max_retries", "attempts"]),
    ("time_limit", &["time", "timeout", "walltime", "runtime", "max_time"]),
    ("duration", &["sleep", "seconds"]),
    ("array", &["entries", "range", "foreach", "matrix"]),
    ("file", &["path", "filename"]),
    ("size", &["bytes", "size_bytes"]),
];

/// Converts an error of the reader; `at` is its position in the text.
pub(super) fn problem(message: &str, text: &str, at: Option<usize>) -> Problem {
    let message = message.trim().replace('\n', "; ");
    let (reason, hint) = if let Some(key) = quoted_after(&message, "unknown field `") {
        unknown_key(key, &message)
    } else if let Some(key) = quoted_after(&message, "missing field `") {
        (format!("the key '{key}' is missing"), form_of(key))
    } else if let Some((found, expected)) = types(&message) {
        wrong_type(found, expected, text, at)
    } else {
        (message.clone(), None)
    };
    Problem::Mistake { reason, hint: Some(hint.unwrap_or_else(|| PAGE.to_owned())) }
}

/// The text after these words, up to the next backtick.
fn quoted_after<'m>(message: &'m str, words: &str) -> Option<&'m str> {
    let rest = &message[message.find(words)? + words.len()..];
    rest.split('`').next()
}

pub(super) fn form_of(key: &str) -> Option<String> {
    FORMS.iter().find(|(known, _)| *known == key).map(|(_, form)| (*form).to_owned())
}

fn unknown_key(key: &str, message: &str) -> (String, Option<String>) {
    let reason = format!("unknown key '{key}'");
    let expected = message.split_once("expected ").map_or("", |(_, expected)| expected);
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let lower = key.to_ascii_lowercase().replace('-', "_");
    let by_word = OTHER_WORDS
        .iter()
        .find(|(own, words)| known.contains(own) && words.contains(&lower.as_str()));
    let meant = by_word.map(|(own, _)| *own).or_else(|| nearest(&lower, &known));
    let hint = match meant {
        Some(own) => match form_of(own) {
            Some(form) => format!("'{own}' is meant? {form}"),
            None => format!("'{own}' is meant?"),
        },
        None => format!("known keys: {}", known.join(", ")),
    };
    (reason, Some(hint))
}

/// Splits `invalid type: FOUND, expected WANTED`, and the same for values.
fn types(message: &str) -> Option<(&str, &str)> {
    let after = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|words| message.strip_prefix(words))?;
    after.rsplit_once(", expected ")
}

fn wrong_type(
    found: &str,
    expected: &str,
    text: &str,
    at: Option<usize>,
) -> (String, Option<String>) {
    let key = at.and_then(|at| key_before(text, at));
    let expected = match expected {
        "a string" => "a text in quotes",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        other if other.starts_with("struct ") => "a table",
        "i64" | "u32" | "u64" => "a whole number",
        other => other,
    };
    let shown = match found {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        other => match other.split_once(' ') {
            Some(("string", value)) => format!("the text {value}"),
            Some(("integer" | "floating", value)) => {
                let value = value.trim_start_matches("point ").trim_matches('`');
                format!("the number {value}")
            }
            Some(("boolean", value)) => value.trim_matches('`').to_owned(),
            _ => other.to_owned(),
        },
    };
    let Some(key) = key else { return (format!("{shown} stands where {expected} belongs"), None) };
    let reason = format!("'{key}' is {expected}, not {shown}");
    let value = found.strip_prefix("string \"").and_then(|rest| rest.strip_suffix('"'));
    let hint = match (key, value) {
        ("command", Some(command)) => Some(command_form(command)),
        ("command", None) if found.starts_with("integer") || found.starts_with("floating") => {
            Some("write each argument in quotes: command = [\"sleep\", \"5\"]".to_owned())
        }
        (key, _) => form_of(key),
    };
    (reason, hint)
}

/// A command line that was written as one text, as a list.
fn command_form(command: &str) -> String {
    let needs_shell =
        command.contains(['>', '<', '|', '&', ';', '$', '*', '?', '`', '\\', '"', '\'']);
    let list = match needs_shell || command.trim().is_empty() {
        true => format!("[\"sh\", \"-c\", {command:?}]"),
        false => {
            let words = command.split_whitespace().map(|word| format!("{word:?}"));
            format!("[{}]", words.collect::<Vec<_>>().join(", "))
        }
    };
    format!("write the command as a list: command = {list}")
}

/// The key of the value at this position, also inside lists.
fn key_before(text: &str, at: usize) -> Option<&str> {
    let before = text.get(..at)?;
    // In a table header the header is the key.
    if text[at..].starts_with('[')
        && !before.trim_end_matches([' ', '\t']).ends_with(['=', ',', '['])
    {
        let header = text[at..].lines().next()?.trim();
        return Some(header.trim_matches(['[', ']', ' ']));
    }
    let (head, _) = before.rsplit_once('=')?;
    let key = head.trim_end();
    let start = key.rfind(|c: char| c.is_whitespace() || ",{".contains(c)).map_or(0, |at| at + 1);
    Some(key[start..].trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_one_text_is_shown_as_a_list() {
        assert!(command_form("ls -l x").ends_with("= [\"ls\", \"-l\", \"x\"]"));
        assert!(command_form("echo hi > x").ends_with("= [\"sh\", \"-c\", \"echo hi > x\"]"));
    }

    #[test]
    fn the_key_of_a_value_is_found() {
        let text = "[[task]]\ncommand = [\"a\", 5]\noutputs = { o = { keep = 1 } }";
        let key = |value: &str| key_before(text, text.find(value).unwrap());
        assert_eq!(
            (key("5"), key("1 }"), key("{ keep")),
            (Some("command"), Some("keep"), Some("o"))
        );
    }

    #[test]
    fn a_key_that_is_nearly_known_is_suggested() {
        let known = ["name", "command", "inputs", "outputs"];
        assert_eq!(nearest("input", &known), Some("inputs"));
        assert_eq!(nearest("comand", &known), Some("command"));
        assert_eq!(nearest("colour", &known), None);
    }
}

//! Changes a file of settings: one line, and all others stay as they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use proto::limits;
use resources::{Name, parse_coupling, parse_preferences};
use verb::errors::{Failure, meant, numbers_plain};
use verb::files;
use verb::flags::needs::check_pool;
use verb::flags::tuning::{Law, Neighbours, OrderName, PolicyName, TuningArgs};
use verb::flags::{DataKind, PlacementName, SubmitTo};
use verb::history::History;
use verb::settings::{self, KEYS, Settings};
use verb::units::{Bandwidth, Factor, Size, Timespan};

/// The user's file, or that of this directory.
pub(crate) fn path(here: bool) -> Result<PathBuf, Failure> {
    if here {
        return Ok(PathBuf::from("starling.toml"));
    }
    settings::user_file().ok_or_else(|| {
        Failure::refused("neither XDG_CONFIG_HOME nor HOME is set")
            .hint("set one of them, or write ./starling.toml with --here")
    })
}

/// Refuses an unknown setting.
pub(crate) fn check_key(key: &str) -> Result<(), Failure> {
    if KEYS.iter().any(|(known, _)| *known == key) {
        return Ok(());
    }
    let known: Vec<&str> = KEYS.iter().map(|(known, _)| *known).collect();
    let hint = meant(key, &known, "known settings");
    Err(Failure::usage(format!("unknown setting '{key}'")).hint(hint))
}

fn parses<T: FromStr<Err: std::fmt::Display>>(value: &str) -> Result<(), String> {
    value.parse::<T>().map(drop).map_err(|error| numbers_plain(&error.to_string()))
}

/// A number as the flags take it.
fn is_within(value: &str, least: u32, most: u32) -> Result<(), String> {
    match value.parse::<u32>().is_ok_and(|number| (least..=most).contains(&number)) {
        true => Ok(()),
        false => Err(format!("'{value}' is not a whole number from {least} to {most}")),
    }
}

/// Checks each part of a value.
fn each(
    value: &str,
    between: char,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<(), String> {
    value.split(between).map(str::trim).try_for_each(|part| match part {
        "" => Err(format!("'{value}' has an empty part")),
        part => check(part),
    })
}

/// The words that a setting takes; `None`: it takes others, too.
fn words(key: &str) -> Option<Vec<String>> {
    fn of<T: ValueEnum>() -> Option<Vec<String>> {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        Some(values.map(|value| value.get_name().to_owned()).collect())
    }
    match key {
        "policy" => of::<PolicyName>(),
        "order" => of::<OrderName>(),
        "data" => of::<DataKind>(),
        "placement" => of::<PlacementName>(),
        "slurm" => Some(["keep", "hide"].map(str::to_owned).to_vec()),
        _ => None,
    }
}

/// Refuses a word that an enumerated setting does not take.
fn check_word(key: &str, built_in: &str, value: &str) -> Result<(), Failure> {
    let Some(words) = words(key) else { return Ok(()) };
    let mut known: Vec<&str> = words.iter().map(String::as_str).collect();
    if !known.contains(&built_in) {
        known.insert(0, built_in);
    }
    if known.contains(&value) {
        return Ok(());
    }
    let hint = meant(value, &known, "known values");
    Err(Failure::usage(format!("{key}: unknown value '{value}'")).hint(hint))
}

/// Refuses a value that the flags of scheduling refuse. Other settings are as built in.
fn check_tuning(key: &str, value: &str) -> Result<(), String> {
    // The wait of a thief and its bound are checked together: neither is judged by a built-in one.
    let keys = match key {
        "steal_interval" | "steal_bound" => vec!["steal_interval", "steal_bound"],
        // Every bound that parses is possible.
        "history" => return Ok(()),
        key => vec![key],
    };
    let values: BTreeMap<String, String> =
        keys.into_iter().map(|key| (key.to_owned(), value.to_owned())).collect();
    let settings = Settings::none().over_built_in("config".to_owned(), values);
    TuningArgs::default().resolve(&settings).map(drop).map_err(|failure| failure.message)
}

/// Refuses a value that the verbs would refuse.
pub(crate) fn check_value(key: &str, value: &str) -> Result<(), Failure> {
    let built_in = KEYS.iter().find(|(known, _)| *known == key).map_or("", |(_, value)| value);
    if matches!(built_in, "auto" | "none") && matches!(value, "auto" | "none") {
        return Ok(());
    }
    check_word(key, built_in, value)?;
    let checked = check_text(key, value).and_then(|()| check_tuning(key, value));
    checked.map_err(|error| {
        let text = format!("'{value}'");
        let error = if error.contains(&text) { error } else { format!("{text}: {error}") };
        Failure::usage(format!("{key}: {error}"))
            .hint(format!("'starling config get {key}' shows the present value"))
    })
}

/// Refuses a value that does not parse.
fn check_text(key: &str, value: &str) -> Result<(), String> {
    match key {
        "nodes" => is_within(value, 1, limits::NODES_MAX),
        "slots" => is_within(value, 0, limits::SLOTS_MAX),
        "replicas" => is_within(value, 1, limits::COPIES_MAX),
        "resource" => each(value, ';', check_pool),
        "label" => each(value, ',', |label| {
            Name::label(label).map(drop).map_err(|error| error.to_string())
        }),
        "coupling" => each(value, ',', |pair| {
            parse_coupling(pair).map(drop).map_err(|error| error.to_string())
        }),
        "prefer" => parse_preferences(value).map(drop).map_err(|error| error.to_string()),
        "threshold" | "steal_share" | "scale" => parses::<Factor>(value),
        "bandwidth" => parses::<Bandwidth>(value),
        "cache" | "store_soft" | "store_hard" | "captured_limit" | "captured_store" => {
            parses::<Size>(value)
        }
        "history" => parses::<History>(value),
        "steal_interval" | "steal_bound" | "wait_max" | "timeout" | "scrub_every" => {
            parses::<Timespan>(value)
        }
        "submit" => parses::<SubmitTo>(value),
        "lengths" => parses::<Law>(value),
        "steal_neighbours" => parses::<Neighbours>(value),
        _ => Ok(()),
    }
}

/// Sets a key in a file, or removes it. The file must be well-formed before and after.
pub(crate) fn put(path: &Path, key: &str, value: Option<&str>) -> Result<(), Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::file(path, &error)),
    };
    let parse = |text: &str| text.parse::<toml::Table>();
    let name = path.display();
    let table = parse(&text).map_err(|error| {
        Failure::refused(format!("{name}: {}", error.message())).hint("mend the file first")
    })?;
    if table.contains_key("task") {
        return Err(Failure::refused(format!("{name}: it is a workflow, not a file of settings"))
            .hint("without --here the setting is written to the user's file"));
    }
    let changed = change(&text, key, value);
    let expected = value.map(str::to_owned);
    let found = parse(&changed).ok().map(|table| {
        table.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    });
    if found != Some(expected) {
        return Err(Failure::refused(format!("{name}: '{key}' cannot be changed in this file"))
            .hint(format!("edit the line of '{key}' by hand")));
    }
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).map_err(|error| Failure::file(dir, &error))?;
    }
    files::put(path, changed.as_bytes())
}

/// The text with the line of a key replaced, added or removed.
fn change(text: &str, key: &str, value: Option<&str>) -> String {
    let is_own = |line: &str| {
        line.trim_start().strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let mut out = String::with_capacity(text.len() + 64);
    let mut value_left = value;
    for own in text.split_inclusive('\n') {
        match is_own(own) {
            true => out.extend(value_left.take().map(|value| changed_line(own, value))),
            false => out.push_str(own),
        }
    }
    if let Some(value) = value_left {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&format!("{key} = {}\n", in_quotes(value)));
    }
    out
}

fn in_quotes(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

/// The line of a key with another value. Its comment stays, and a number stays a number.
fn changed_line(own: &str, value: &str) -> String {
    let (head, rest) = own.split_once('=').unwrap_or((own, ""));
    let (old, comment) = rest.split_at(comment_start(rest));
    let was_text = old.trim_start().starts_with(['"', '\'']);
    let (before, after) = match old.trim() {
        "" => (" ", old),
        _ => (&old[..old.len() - old.trim_start().len()], &old[old.trim_end().len()..]),
    };
    let new = match !was_text && is_number(value) {
        true => value.to_owned(),
        false => in_quotes(value),
    };
    format!("{head}={before}{new}{after}{comment}")
}

/// The position of the comment of a line, or the end of the line.
fn comment_start(rest: &str) -> usize {
    let (mut quote, mut is_escaped) = (None, false);
    for (at, letter) in rest.char_indices() {
        match (quote, letter) {
            (None, '#') => return at,
            (None, '"' | '\'') => quote = Some(letter),
            (Some('"'), '\\') if !is_escaped => {
                is_escaped = true;
                continue;
            }
            (Some(open), _) if open == letter && !is_escaped => quote = None,
            _ => {}
        }
        is_escaped = false;
    }
    rest.len()
}

/// True for a text that is the same as a number in TOML.
fn is_number(text: &str) -> bool {
    let table = format!("x = {text}").parse::<toml::Table>();
    let value = table.ok().and_then(|table| table.get("x").cloned());
    value.is_some_and(|it| (it.is_integer() || it.is_float()) && it.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_changes() {
        let text = "# mine\nnodes = 3 # three\nslots = 2";
        assert_eq!(change(text, "nodes", Some("4")), "# mine\nnodes = 4 # three\nslots = 2");
        let left = change(text, "slots", Some("4"));
        assert_eq!(left, "# mine\nnodes = 3 # three\nslots = 4");
        let word = change(text, "nodes", Some("auto"));
        assert_eq!(word, "# mine\nnodes = \"auto\" # three\nslots = 2");
        let text_before = "label = \"a#\\\"b\"  # two #\n";
        assert_eq!(change(text_before, "label", Some("1")), "label = \"1\"  # two #\n");
        assert_eq!(change("label = 'a#'\n", "label", Some("x")), "label = \"x\"\n");
        assert_eq!(change(text, "nodes", None), "# mine\nslots = 2");
        assert_eq!(change(text, "scale", Some("1")), format!("{text}\nscale = \"1\"\n"));
        assert_eq!(change("", "scale", Some("a\"b")), "scale = 'a\"b'\n");
    }

    #[test]
    fn a_file_stays_well_formed_or_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/config.toml");
        put(&path, "nodes", Some("3")).unwrap();
        put(&path, "policy", Some("flds")).unwrap();
        put(&path, "nodes", None).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "policy = \"flds\"\n");
        for (text, error) in [
            ("nodes = [", "mend the file first"),
            ("[[task]]\nname = 'x'", "without --here"),
            ("'nodes' = 1", "by hand"),
            ("[a]\nb = 1", "by hand"),
        ] {
            std::fs::write(&path, text).unwrap();
            let failure = put(&path, "nodes", Some("2")).unwrap_err();
            assert!(failure.hint.unwrap().contains(error), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn values_are_checked_as_the_verbs_do() {
        for (key, built_in) in KEYS {
            check_key(key).unwrap();
            if !built_in.is_empty() {
                check_value(key, built_in).unwrap_or_else(|failure| panic!("{key}: {failure:?}"));
            }
        }
        check_value("resource", "licences=2; gpus=[[0,1]]").unwrap();
        check_value("label", "avx512,ssd").unwrap();
        for (key, value) in [
            ("nodes", "many"),
            ("nodes", "0"),
            ("replicas", "0"),
            ("resource", "licences"),
            ("label", "a b"),
            ("coupling", "cpus:gpus"),
            ("prefer", "gpus:most"),
            ("policy", "best"),
            ("history", "5"),
            ("timeout", "soon"),
            ("label", ",,,"),
            ("label", ""),
            ("resource", "licences=2;;"),
            ("wait_max", "0s"),
            ("steal_share", "2"),
            ("steal_bound", "0s"),
        ] {
            assert!(check_value(key, value).unwrap_err().message.starts_with(key), "{key}");
        }
        check_value("history", "none").unwrap();
        // The other one of the pair may be set, too.
        check_value("steal_interval", "2s").unwrap();
        check_value("steal_bound", "1us").unwrap();
        let message = check_value("slots", "-1").unwrap_err().message;
        assert_eq!(message, "slots: '-1' is not a whole number from 0 to 65536");
        let failure = check_value("order", "urgent").unwrap_err();
        assert_eq!(failure.message, "order: unknown value 'urgent'");
        let hint = "'urgency' is meant? known values: auto, bytes, urgency, critical";
        assert_eq!(failure.hint.as_deref(), Some(hint));
        let hint = check_value("policy", "bset").unwrap_err().hint.unwrap();
        assert!(hint.starts_with("known values: mlb, mdl, ") && hint.contains("eft"), "{hint}");
        let failure = check_key("nods").unwrap_err();
        assert!(failure.hint.unwrap().starts_with("'nodes' is meant? known settings"));
    }
}

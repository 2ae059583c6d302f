//! What the last word of a command line is.

use std::any::TypeId;

use clap::{Arg, ArgAction, Command};
use proto::NodeId;

use crate::common::selector::Selector;

/// The values that a word may get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    Nothing,
    Job,
    Node,
    Setting,
    Example,
    /// A queue of allocations.
    Queue,
}

/// The last word, and the flags before it that say where values are read.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) wanted: Wanted,
    pub(super) dir: Option<String>,
    pub(super) from: Option<String>,
}

/// Flags that take a job, and that are no selectors.
const JOB_FLAGS: [&str; 2] = ["job", "after_job"];

/// Reads the words after the program's name. The last one is incomplete, and may be empty.
pub(super) fn place(mut root: Command, words: &[String]) -> Place {
    root.build();
    let mut place = Place { wanted: Wanted::Nothing, dir: None, from: None };
    let Some((last, before)) = words.split_last() else { return place };
    let (mut command, mut path) = (&root, Vec::new());
    let (mut positionals, mut needs_value, mut is_over) = (0, None::<&Arg>, false);
    for word in before {
        if let Some(arg) = needs_value.take() {
            place.note(arg, word);
        } else if !is_over && word == "--" {
            is_over = true;
        } else if !is_over && word.starts_with('-') && word != "-" {
            match (flag(command, word), word.split_once('=')) {
                (Some(arg), Some((_, value))) => place.note(arg, value),
                (arg, None) => needs_value = arg,
                (None, Some(_)) => {}
            }
        } else if let (0, Some(verb)) = (positionals, command.find_subcommand(word)) {
            path.push(verb.get_name());
            command = verb;
        } else {
            positionals += 1;
        }
    }
    let arg = match needs_value {
        Some(arg) => Some(arg),
        None if is_over || last.starts_with('-') => None,
        None => positional(command, positionals),
    };
    place.wanted = arg.map_or(Wanted::Nothing, |arg| wanted(&path, arg));
    place
}

impl Place {
    fn note(&mut self, arg: &Arg, value: &str) {
        match arg.get_id().as_str() {
            "dir" => self.dir = Some(value.to_owned()),
            "from" => self.from = Some(value.to_owned()),
            _ => {}
        }
    }
}

/// The flag of a word, if it takes a value.
fn flag<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let word = word.split_once('=').map_or(word, |(name, _)| name);
    let is = |arg: &&Arg| match word.strip_prefix("--") {
        Some(name) => arg.get_long() == Some(name),
        // The last of several short flags may take a value.
        None => arg.get_short().is_some_and(|short| word.ends_with(short)),
    };
    let takes_value = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    command.get_arguments().filter(|arg| !arg.is_positional()).find(is).filter(takes_value)
}

/// The argument at a position. The last one may take several words.
fn positional(command: &Command, at: usize) -> Option<&Arg> {
    let several = |arg: &&Arg| {
        let number = arg.get_num_args().map_or(1, |range| range.max_values());
        number > 1 || matches!(arg.get_action(), ArgAction::Append)
    };
    let at_place = command.get_positionals().nth(at);
    at_place.or_else(|| command.get_positionals().last().filter(several))
}

fn wanted(path: &[&str], arg: &Arg) -> Wanted {
    let kind = arg.get_value_parser().type_id();
    let id = arg.get_id().as_str();
    if kind == TypeId::of::<Selector>() || (arg.get_long().is_some() && JOB_FLAGS.contains(&id)) {
        return Wanted::Job;
    }
    if kind == TypeId::of::<NodeId>() {
        return Wanted::Node;
    }
    match (path, id) {
        (["config", ..], "key") => Wanted::Setting,
        (["example"], "name") => Wanted::Example,
        (["alloc", ..], "queue") => Wanted::Queue,
        _ => Wanted::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    fn at(line: &str) -> Place {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        place(Cli::command(), &words)
    }

    #[test]
    fn words_are_what_the_verbs_take() {
        for (line, wanted) in [
            ("job info ", Wanted::Job),
            ("job wait 1", Wanted::Job),
            ("job logs ", Wanted::Job),
            ("--dir d --json task explain ", Wanted::Job),
            ("trace ", Wanted::Job),
            ("trace -o t.json ", Wanted::Job),
            ("trace -o ", Wanted::Nothing),
            ("trace -", Wanted::Nothing),
            ("submit --job ", Wanted::Job),
            ("submit --after-job ", Wanted::Job),
            ("submit -- ", Wanted::Nothing),
            ("node info ", Wanted::Node),
            ("node drain n0 n", Wanted::Node),
            ("node info n0 ", Wanted::Nothing),
            ("config set ", Wanted::Setting),
            ("config get --json sl", Wanted::Setting),
            ("config set slots ", Wanted::Nothing),
            ("kv lookup ", Wanted::Nothing),
            ("example ", Wanted::Example),
            ("alloc info ", Wanted::Queue),
            ("alloc add --name ", Wanted::Nothing),
            ("job ", Wanted::Nothing),
            ("no such verb ", Wanted::Nothing),
            ("", Wanted::Nothing),
        ] {
            assert_eq!(at(line).wanted, wanted, "{line}");
        }
        assert_eq!(place(Cli::command(), &[]).wanted, Wanted::Nothing);
    }

    #[test]
    fn flags_say_where_values_are_read() {
        let found = at("--dir d report --from=runs ");
        assert_eq!((found.dir.as_deref(), found.from.as_deref()), (Some("d"), Some("runs")));
        let found = at("report --dir e --from r.srr ");
        assert_eq!((found.dir.as_deref(), found.from.as_deref()), (Some("e"), Some("r.srr")));
    }
}

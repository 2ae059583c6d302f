//! Shell completion and manual pages, generated from the command line's definition.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use verb::Context;
use verb::errors::{Done, Exit, Failure};

use crate::examples;

#[derive(Args, Debug)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// The verb, for example: job wait [default: the program itself]
    verb: Vec<String>,
    /// Write the pages of this verb and of all below it into this directory
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The help of all verbs as one page of Markdown, which is the reference of the site
    #[arg(long, hide = true, conflicts_with = "verb")]
    markdown: bool,
}

/// The width at which help is wrapped where no terminal sets it.
const WIDTH: usize = 100;

/// The exit codes in every page.
const EXITS: [(Exit, &str); 7] = [
    (Exit::Ok, "The verb has done its work. After a run or a wait: all tasks are done."),
    (Exit::Failed, "Not all tasks of a run or a wait are done, or a check has found something."),
    (Exit::Usage, "The command line or a setting is wrong."),
    (Exit::Lost, "The cluster, a node or data is lost or cannot be reached."),
    (Exit::Refused, "The input is refused, or a file cannot be used."),
    (Exit::TimedOut, "The time limit of the verb is over."),
    (Exit::Interrupted, "A signal has ended the verb."),
];

/// The variables in every page.
const VARIABLES: [(&str, &str); 8] = [
    ("STARLING_DIR", "The instance's directory, if --dir is not given."),
    (
        "STARLING_SLOTS, STARLING_POLICY, ...",
        "A setting, in capitals. Flags take precedence over it, and it does over files. 'starling \
         config show' lists the settings.",
    ),
    ("STARLING_CONFIG", "With the value none, no file of settings is read."),
    ("STARLING_TOKEN", "The token of 'starling node --join', if --token is not given."),
    (
        "STARLING_ENDS_AT",
        "The end of the batch job of a node, in seconds since 1970. Without it, the variables of \
         Slurm, OAR and PBS give it.",
    ),
    ("XDG_CONFIG_HOME, HOME", "The user's file of settings is below one of them."),
    (
        "XDG_RUNTIME_DIR, TMPDIR",
        "The instance's directory is below one of them, if it is not given. Temporary files are \
         below TMPDIR.",
    ),
    ("NO_COLOR", "If it has a value, text has no colours."),
];

pub(crate) fn completion(context: &Context, args: &CompletionArgs, mut command: Command) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "starling", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = crate::complete::with_values(args.shell, &script);
    context.output.bytes(script.as_bytes())?;
    Ok(Exit::Ok)
}

pub(crate) fn man(context: &Context, args: &ManArgs, mut command: Command) -> Done {
    if args.markdown {
        let command = examples::in_help(command, "");
        context.output.bytes(reference(command).as_bytes())?;
        return Ok(Exit::Ok);
    }
    command.build();
    let mut name = "starling".to_owned();
    for verb in &args.verb {
        let found = command.find_subcommand(verb).cloned();
        command = found.ok_or_else(|| Failure::usage(format!("no verb '{name} {verb}'")))?;
        name = format!("{name}-{verb}");
    }
    if let Some(directory) = &args.output {
        fs::create_dir_all(directory).map_err(|error| Failure::file(directory, &error))?;
        return write_pages(directory, &command, &name);
    }
    context.output.bytes(&page(&command, &name))?;
    Ok(Exit::Ok)
}

fn page(command: &Command, name: &str) -> Vec<u8> {
    let mut page = Vec::new();
    let page_of = clap_mangen::Man::new(command.clone()).title(name.to_uppercase());
    let page_of = page_of.source(concat!("starling ", env!("CARGO_PKG_VERSION")));
    page_of.render(&mut page).expect("memory takes every write");
    let exits = EXITS.iter().map(|(exit, text)| ((*exit as u8).to_string(), *text));
    let own = (name == "starling-rsh").then(|| ("N".to_owned(), "The exit code of the command."));
    page.extend(section("EXIT STATUS", exits.chain(own)).into_bytes());
    let variables = VARIABLES.iter().map(|(name, text)| ((*name).to_owned(), *text));
    page.extend(section("ENVIRONMENT", variables).into_bytes());
    let examples = examples::of_page(name);
    if !examples.is_empty() {
        // In a line that is copied, an apostrophe stays one.
        let literal = |line: &str| line.replace('\\', "\\e").replace('\'', "\\(aq");
        let rows = examples.iter().map(|(line, text)| (literal(line), *text));
        page.extend(section("EXAMPLES", rows).into_bytes());
    }
    page
}

/// A section of a page, with a paragraph for each name. No text begins with a control letter.
fn section<'t>(heading: &str, rows: impl Iterator<Item = (String, &'t str)>) -> String {
    let plain = |text: &str| text.replace('-', "\\-");
    rows.fold(format!(".SH \"{heading}\"\n"), |page, (name, text)| {
        format!("{page}.TP\n\\fB{}\\fR\n{}\n", plain(&name), plain(text))
    })
}

/// Writes `starling-job-wait.1` and the like, one file for each verb that `help` lists.
fn write_pages(directory: &Path, command: &Command, name: &str) -> Done {
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, page(command, name)).map_err(|error| Failure::file(&path, &error))?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        if verb.get_name() != "help" {
            write_pages(directory, verb, &format!("{name}-{}", verb.get_name()))?;
        }
    }
    Ok(Exit::Ok)
}

/// Each verb with its help, as `--help` prints it.
fn reference(command: Command) -> String {
    let mut command = command.term_width(WIDTH);
    command.build();
    let mut page = "# The command line\n\n\
        `starling man --markdown` writes this page; a test compares it with the program.\n"
        .to_owned();
    chapter(&mut page, &mut command, "starling");
    page
}

fn chapter(page: &mut String, command: &mut Command, name: &str) {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    page.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n")));
    for verb in command.get_subcommands_mut() {
        if verb.is_hide_set() || verb.get_name() == "help" {
            continue;
        }
        let name = format!("{name} {}", verb.get_name());
        chapter(page, verb, &name);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_page_has_the_exit_codes_and_the_variables() {
        let text = String::from_utf8(page(&Cli::command(), "starling")).unwrap();
        for part in [
            ".SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\nThe verb has done its work.",
            "\n.TP\n\\fB130\\fR\nA signal has ended the verb.\n.SH \"ENVIRONMENT\"\n",
            "\n.TP\n\\fBSTARLING_DIR\\fR\nThe instance's directory, if \\-\\-dir is not given.\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_page_has_its_examples_and_the_name_of_the_program() {
        let mut root = Cli::command();
        root.build();
        let set = root.find_subcommand("var").and_then(|var| var.find_subcommand("set"));
        let text = String::from_utf8(page(set.expect("it is there"), "starling-var-set")).unwrap();
        for part in [
            concat!("\"starling ", env!("CARGO_PKG_VERSION"), "\""),
            ".SH \"EXAMPLES\"\n.TP\n\\fBstarling var set best 42 ",
            " \\-\\-witness \\(aq3 1 2\\(aq\\fR\nSets a variable, with what proves it.\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let root = String::from_utf8(page(&root, "starling")).unwrap();
        assert!(!root.contains("EXAMPLES"), "{root}");
    }
}

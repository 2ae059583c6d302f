//! Shell completion and manual pages, generated from the command line's definition.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use verb::Context;
use verb::errors::{Done, Exit, Failure};

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

pub(crate) fn completion(context: &Context, args: &CompletionArgs, mut command: Command) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "starling", &mut script);
    context.output.bytes(&script)?;
    Ok(Exit::Ok)
}

pub(crate) fn man(context: &Context, args: &ManArgs, mut command: Command) -> Done {
    if args.markdown {
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
    page_of.render(&mut page).expect("memory takes every write");
    page
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

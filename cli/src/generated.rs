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
}

pub(crate) fn completion(context: &Context, args: &CompletionArgs, mut command: Command) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "starling", &mut script);
    context.output.bytes(&script)?;
    Ok(Exit::Ok)
}

pub(crate) fn man(context: &Context, args: &ManArgs, mut command: Command) -> Done {
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

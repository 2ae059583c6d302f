//! Shell completion and manual pages, generated from the command line's definition.

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
    let mut page = Vec::new();
    let page_of = clap_mangen::Man::new(command).title(name.to_uppercase());
    page_of.render(&mut page).expect("memory takes every write");
    context.output.bytes(&page)?;
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

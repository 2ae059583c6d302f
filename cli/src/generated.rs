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
    let mut page = Vec::new();
    let page_of = clap_mangen::Man::new(command).title(name.to_uppercase());
    page_of.render(&mut page).expect("memory takes every write");
    context.output.bytes(&page)?;
    Ok(Exit::Ok)
}

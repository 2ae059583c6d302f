//! `starling rsh`: a command on another node of a gang, for launchers of MPI programs.

use std::io;
use std::os::unix::ffi::OsStringExt as _;

use clap::Args;
use client::{OutputPiece, RemoteCommand};
use verb::errors::{Done, Failure};

use crate::inside::{door, failure};

#[derive(Args, Debug)]
pub(crate) struct RshArgs {
    /// The user on the host, as launchers give it: it must be the one of the cluster
    #[arg(short = 'l', value_name = "USER", hide = true)]
    user: Option<String>,
    /// Options of other remote shells without a meaning here
    #[arg(short = 'n', hide = true)]
    no_input: bool,
    #[arg(short = 'x', hide = true)]
    no_forwarding: bool,
    /// A node of the gang by its name, such as n1, the name of its host, or its address
    #[arg(value_name = "HOST")]
    host: String,
    /// The command: its words are joined by blanks and read by the shell of the node
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "COMMAND"
    )]
    command: Vec<String>,
}

/// Ends this process with the exit code of the command.
pub(crate) fn run(args: &RshArgs) -> Done {
    let door = door()?;
    let variables = std::env::vars_os();
    let variable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        [name.into_vec(), value.into_vec()].join(&b'=')
    };
    let directory = std::env::current_dir().unwrap_or_default();
    let call = RemoteCommand {
        host: args.host.clone(),
        command: args.command.join(" "),
        environment: variables.map(variable).collect(),
        directory: directory.into_os_string().into_vec(),
    };
    let input: Box<dyn io::Read + Send> =
        if args.no_input { Box::new(io::empty()) } else { Box::new(io::stdin()) };
    let ended = door.rsh(call, input, |piece| match piece {
        OutputPiece::Stdout(data) => write(io::stdout(), data),
        OutputPiece::Stderr(data) => write(io::stderr(), data),
    });
    let end = match ended {
        Ok(end) => end,
        Err(error) => return Err(failure(error)),
    };
    if !end.failure.is_empty() {
        let lost = Failure::lost(format!("the command on {}: {}", args.host, end.failure));
        verb::output::say_lines(lost.render().trim_end());
    }
    std::process::exit(end.code)
}

/// A launcher waits for each line.
fn write(mut stream: impl io::Write, data: &[u8]) -> io::Result<()> {
    stream.write_all(data)?;
    stream.flush()
}

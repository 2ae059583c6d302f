/*!
What a verb of the command line is made of.

- [`Context`]: its output, its settings, and the directory of its instance.
- [`errors`]: a [`Failure`](errors::Failure) is one line, a hint and an exit code.
- [`flags`]: the arguments that several verbs share.
- [`local`]: clusters on this machine, in this process or with a process for each node.
- [`cluster`]: what is read from a running cluster: event logs, kept outputs, losses survived.

The verbs are in `cli`, `bench` and `lab`.
No verb is here.
*/

pub mod cluster;
mod context;
pub mod directives;
pub mod errors;
pub mod files;
pub mod flags;
pub mod history;
mod interrupt;
pub mod local;
pub mod output;
pub mod path_templates;
pub mod settings;
pub mod units;

pub use context::{Context, block_on, interrupted};
pub use interrupt::{Interrupt, block_on_saving};
pub use lens::terminal_text;

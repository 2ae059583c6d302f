/*!
The laboratory: it judges Starling, and a user's run needs nothing of it.

- `starling check` is in module `check`: seeds of the simulator with faults and all checkers.
  `check --processes` is in module `campaign`: faults for real nodes.
- `starling eval` is in module `eval`: the paper's figures and the scaling study, from reports
  of runs.

Figures of single parts are in the crate `bench`.
*/

mod campaign;
mod check;
mod eval;

pub use check::{CheckArgs, run as check};
pub use eval::{EvalArgs, run as eval};

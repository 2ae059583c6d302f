//! Options of a whole job that its workflow file gives.

use proto::wire;

/// The maximum number in `at_most`.
pub(crate) const AT_MOST_MAX: u32 = 1_000_000;

/// The table `[job]` of a workflow file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct JobOptions {
    /// The most tasks that run at once; `None`: no limit.
    pub at_most: Option<u32>,
    /// Jobs that must end before a task starts.
    #[doc(hidden)]
    pub after: Vec<wire::AfterJob>,
    /// Variables that the tasks share.
    #[doc(hidden)]
    pub variables: Vec<wire::VarDeclared>,
}

/// Reads a limit.
pub(crate) fn at_most(number: i64) -> Result<u32, String> {
    let number = u32::try_from(number).ok().filter(|number| (1..=AT_MOST_MAX).contains(number));
    number.ok_or_else(|| format!("at_most is a number from 1 to {AT_MOST_MAX}"))
}

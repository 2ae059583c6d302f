//! *Moves*: a command gets its signal once in each attempt, and its exit after that is a move: it
//! is never committed as an end of the task.
//!
//! A task may still fail by such an attempt if the deaths of its nodes reach their limit.

use std::collections::BTreeSet;

use proto::event::End;
use proto::{Attempt, TaskId};

use super::{Verdict, Violation};

const NAME: &str = "moves";

/// The attempts whose commands got their signal.
pub(crate) type Told = BTreeSet<(TaskId, Attempt)>;

pub(crate) fn on_told(told: &mut Told, (task, attempt): (TaskId, Attempt)) -> Verdict {
    match told.insert((task, attempt)) {
        true => Ok(()),
        false => {
            let text = format!("{task} got its signal twice in attempt {attempt}");
            Err(Violation::new(NAME, text))
        }
    }
}

/// `by_crash`: the deaths of its nodes have reached their limit.
pub(crate) fn on_committed(
    told: &Told,
    (task, attempt): (TaskId, Attempt),
    end: End,
    by_crash: bool,
) -> Verdict {
    let counts = matches!(end, End::Done | End::Failed) && !by_crash;
    match counts && told.contains(&(task, attempt)) {
        true => {
            let text = format!("{task} was told in attempt {attempt}, and is {end:?} by it");
            Err(Violation::new(NAME, text))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_told_attempt_ends_no_task() {
        let (task, mut told) = (TaskId::new(1, 2), Told::new());
        let by = (task, Attempt(3));
        assert_eq!(on_committed(&told, by, End::Failed, false), Ok(()));
        assert_eq!(on_told(&mut told, by), Ok(()));
        assert!(on_told(&mut told, by).is_err());
        assert!(on_committed(&told, by, End::Failed, false).is_err());
        assert!(on_committed(&told, by, End::Done, false).is_err());
        assert_eq!(on_committed(&told, by, End::Cancelled, false), Ok(()));
        assert_eq!(on_committed(&told, by, End::Failed, true), Ok(()));
        assert_eq!(on_committed(&told, (task, Attempt(4)), End::Done, false), Ok(()));
    }
}

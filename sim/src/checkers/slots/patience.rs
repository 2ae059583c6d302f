//! *Patience*: where the preferred variant of a task is offered all the time, the task takes
//! another one only after tasks of its request have waited for their patience.
//!
//! A node measures the wait of its own queue, which begins at its first task of the request. So
//! some task of the request has waited in the cluster that long without a break.

use std::collections::{BTreeMap, BTreeSet};

use proto::{Span, TaskId, Time};
use resources::Request;

use crate::checkers::{Verdict, Violation};

/// The clocks of nodes differ in pace.
const SHARE_MIN: (u64, u64) = (4, 5);

/// The tasks of one request that are ready and have not started.
#[derive(Debug, Default)]
struct Waiting {
    tasks: BTreeSet<TaskId>,
    /// Since when there are any.
    since: Time,
}

/// The waiting tasks by their requests. Tasks that end without a start stay, which makes the check
/// weaker.
#[derive(Debug, Default)]
pub(crate) struct Patience(BTreeMap<Vec<u8>, Waiting>);

impl Patience {
    /// A task is in a queue, perhaps in another one than before.
    pub(crate) fn on_queued(&mut self, now: Time, task: TaskId, request: &[u8]) {
        let waiting = self.0.entry(request.to_vec()).or_default();
        if waiting.tasks.is_empty() {
            waiting.since = now;
        }
        waiting.tasks.insert(task);
    }

    /// A task starts by a variant of its request.
    pub(crate) fn on_launch(
        &mut self,
        now: Time,
        task: TaskId,
        (bytes, request): (&[u8], &Request),
        variant: usize,
    ) -> Verdict {
        let Some(waiting) = self.0.get_mut(bytes) else { return Ok(()) };
        let is_waiting = waiting.tasks.remove(&task);
        let patience = u64::try_from(request.patience().as_nanos()).unwrap_or(u64::MAX);
        let least = Span(patience / SHARE_MIN.1 * SHARE_MIN.0);
        let waited = now.since(waiting.since);
        if !is_waiting || request.preferred().first() == Some(&variant) || waited >= least {
            return Ok(());
        }
        let text = format!(
            "{task} takes variant {variant} of {request} after {waited:?}, and its patience is \
             {patience} ns"
        );
        Err(Violation::new("patience", text))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_later_variant_needs_a_wait_of_its_request() {
        let request: Request = "gpus=1 | cpus=2".parse().unwrap();
        let request = request.with_patience(Duration::from_secs(1));
        let bytes = request.encode();
        let at = |ms: u64| Time(ms * 1_000_000);
        let task = |number| TaskId::new(1, number);
        let mut patience = Patience::default();
        (1..=3).for_each(|number| patience.on_queued(at(100 * number), task(number), &bytes));
        let mut starts = |ms, number, variant| {
            patience.on_launch(at(ms), task(number), (&bytes, &request), variant).is_ok()
        };
        assert!(starts(300, 1, 0), "the preferred one");
        assert!(starts(1_100, 2, 1), "its request has waited for a second");
        assert!(starts(1_200, 3, 1));
        patience.on_queued(at(2_000), task(4), &bytes);
        let verdict = patience.on_launch(at(2_500), task(4), (&bytes, &request), 1);
        assert!(verdict.is_err(), "nothing waited before");
    }
}

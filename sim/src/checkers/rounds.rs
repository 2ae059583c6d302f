//! *Rounds*: a further round of a job runs again what was not done, and nothing else. That its
//! tasks end as their parents in this round say, *progress* demands.

use proto::TaskId;
use proto::event::{End, RetryReason};

use super::{Verdict, Violation};
use crate::expected::{Commit, ExpectedTask};

const NAME: &str = "rounds";

/// A home takes the end of a task back, as its job is retried.
pub(crate) fn on_retried(truth: &mut ExpectedTask, task: TaskId, before: Commit) -> Verdict {
    if before.end == End::Done && !truth.reopened {
        let text = format!("{task} is retried, and attempt {} of it is done", before.attempt);
        return Err(Violation::new(NAME, text));
    }
    truth.retried();
    Ok(())
}

/// Where nothing fails what was kept for retries is there: nothing is made again.
pub(crate) fn on_made_again(task: TaskId, why: RetryReason) -> Verdict {
    if why == RetryReason::Rebuilt {
        let text = format!("{task} is made again, and nothing was lost");
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

//! *Rounds*: a further round of a job runs exactly the tasks that were not done. Checker *progress*
//! demands that their ends follow from their parents in this round.

use proto::TaskId;
use proto::event::{End, RetryReason};

use super::{Verdict, Violation};
use crate::state::expected::{Commit, ExpectedTask};

const NAME: &str = "rounds";

/// A home undoes the end of a task because its job is retried.
pub(crate) fn on_retried(truth: &mut ExpectedTask, task: TaskId, before: Commit) -> Verdict {
    if before.end == End::Done && !truth.reopened {
        let text = format!("{task} is retried, and attempt {} of it is done", before.attempt);
        return Err(Violation::new(NAME, text));
    }
    truth.retried();
    Ok(())
}

/// Without faults all outputs kept for retries exist: nothing is rebuilt.
pub(crate) fn on_made_again(task: TaskId, why: RetryReason) -> Verdict {
    if why == RetryReason::Rebuilt {
        let text = format!("{task} is made again, and nothing was lost");
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

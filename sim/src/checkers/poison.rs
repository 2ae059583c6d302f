//! *Poison*: a task that kills its node takes at most so many incarnations with it as are allowed,
//! and then fails; who merely ran beside it does not.

use proto::limits::CRASHES_MAX;
use proto::{Attempt, NodeId, TaskId};

use super::{Jobs, Verdict, Violation, known};

const NAME: &str = "poison";

/// So many deaths by a task may escape its homes, each by a death of a home at that moment.
const UNRECORDED_MAX: usize = 2;

/// A task has killed the node that ran it. What a node other than its home starts is not written
/// down before there has been a death: if its home dies, too, before it has heard and that is
/// durable, the first death has no witness, nor the next one under the next home.
pub(crate) fn on_kill(
    jobs: &mut Jobs,
    (task, attempt): (TaskId, Attempt),
    (node, incarnation): (NodeId, u32),
    by_home: bool,
) -> Verdict {
    let truth = known(jobs, NAME, task)?;
    truth.kills.push(((attempt.0 >> 32) as u32, by_home));
    let pairs = || truth.kills.windows(2).map(|two| (two[0], two[1]));
    let unwitnessed =
        pairs().take_while(|&((first, by_home), (second, _))| !by_home && first != second);
    // Who had taken it just before a power cut of its home may start it after others have.
    let late = pairs().filter(|&((first, _), (second, _))| second < first);
    let more = unwitnessed.count() + late.count();
    let allowed = usize::from(CRASHES_MAX) + more.min(UNRECORDED_MAX);
    if truth.kills.len() > allowed {
        let text = format!(
            "{task} has killed {} incarnations, the last one {node}'s {incarnation}; {allowed} are \
             allowed",
            truth.kills.len()
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// A home fails a task because too many have died with it, this one the last. `counts`: whom it
/// takes for dead has died; a node that others have given up may go on for a while. The word that
/// the attempt has ended, or does not start after all, may have died with its node.
pub(crate) fn on_struck_out(
    jobs: &mut Jobs,
    (task, attempt): (TaskId, Attempt),
    (node, incarnation): (NodeId, u32),
    killer: Option<TaskId>,
    counts: bool,
) -> Verdict {
    let truth = known(jobs, NAME, task)?;
    truth.is_struck_out = true;
    let by_other = killer.filter(|&killer| killer != task);
    let is_unheard = truth.finished.contains_key(&attempt) || !truth.launched.contains(&attempt);
    if let Some(killer) = by_other.filter(|_| counts && !is_unheard) {
        let text = format!(
            "{task} fails for the death of {node}'s incarnation {incarnation}, which {killer} had \
             killed"
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

//! *Quiet*: the reconciler never finds anything, and a cluster without work falls silent.

use proto::{Span, TaskId};

use super::{Verdict, Violation};

const NAME: &str = "quiet";

/// Not even under faults: links and outboxes alone must lose no wake-up. Otherwise the reconciler
/// would hide their bugs. What it finds of a partition whose home has changed within ten seconds is
/// not told here; it leaves those out, unless they change for longer than three rounds.
pub(crate) fn on_missed_wakeup(task: TaskId) -> Verdict {
    Err(Violation::new(NAME, format!("{task}: the reconciler found a lost wake-up")))
}

/// `packets` were sent while nothing was to do.
pub(crate) fn on_idle(packets: u64, packets_max: u64, seconds: u64) -> Verdict {
    if packets > packets_max {
        let text = format!(
            "an idle cluster sent {packets} packets in {seconds} s; at most {packets_max} are right"
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// Each node probes one other in a second, which answers; the leader of the group tells each voter
/// that it leads, some four times a second, and is answered.
pub(crate) fn on_idle_members(packets: u64, nodes: u64, voters: u64, span: Span) -> Verdict {
    let seconds = span.0 / 1_000_000_000;
    let packets_max = (nodes * 2 + voters * 2 * 4 + 4) * (seconds + 1);
    if packets > packets_max {
        let text = format!(
            "an idle cluster sent {packets} packets about its members in {seconds} s; at most \
             {packets_max} are right"
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// A job whose client died before the commit left something behind.
pub(crate) fn left_behind(job: proto::JobId, node: usize, keys: usize) -> Violation {
    let text = format!("{job}: its client died uncommitted; n{node} still stores {keys} records");
    Violation::new(NAME, text)
}

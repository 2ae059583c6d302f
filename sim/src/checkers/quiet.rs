//! *Quiet*: the reconciler never finds anything, and an idle cluster sends almost nothing.

use proto::{Span, TaskId};

use super::{Verdict, Violation};

const NAME: &str = "quiet";

/// The reconciler found a lost wake-up. This must not happen even under faults: links and outboxes
/// alone must deliver every wake-up. Otherwise the reconciler would hide their bugs. It does not
/// report partitions with a home that changed within ten seconds, unless changes last for more than
/// three rounds.
pub(crate) fn on_missed_wakeup(task: TaskId) -> Verdict {
    Err(Violation::new(NAME, format!("{task}: the reconciler found a lost wake-up")))
}

/// `packets` were sent while the cluster was idle.
pub(crate) fn on_idle(packets: u64, packets_max: u64, seconds: u64) -> Verdict {
    if packets > packets_max {
        let text = format!(
            "an idle cluster sent {packets} packets in {seconds} s; at most {packets_max} are right"
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// Checks membership packets. Each node probes one other node a second and gets an answer. The
/// leader sends about four heartbeats a second to each voter and gets answers.
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

/// Records of a job remain although its client died before the commit.
pub(crate) fn left_behind(job: proto::JobId, node: usize, keys: usize) -> Violation {
    let text = format!("{job}: its client died uncommitted; n{node} still stores {keys} records");
    Violation::new(NAME, text)
}

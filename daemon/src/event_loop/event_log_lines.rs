//! Log lines for notable events.

use proto::{Event, JobId};

/// The line for an event that a reader of the node's log should see; each such event is rare.
/// `last_of` returns the last event of a job that is known on the node which reported the stall.
#[inline]
pub(crate) fn log_line_of<'a>(
    event: &Event,
    last_of: impl FnOnce(JobId) -> Option<&'a str>,
) -> Option<String> {
    match *event {
        Event::Stalled { task, stall, home, holder, quiet } => Some(format!(
            "{} got no further for {:.0} s: task {}: {} (home node {}, holder node {}); \
             last event: {}",
            task.job,
            quiet.as_secs_f64(),
            task.local,
            stall.text(),
            home.0,
            holder.0,
            last_of(task.job).filter(|last| !last.is_empty()).unwrap_or("not known")
        )),
        Event::CrashCounted { task, attempt, node, incarnation, count } if count > 1 => {
            Some(format!(
                "task {} of {}: node {} (incarnation {incarnation}) died with attempt {attempt}, \
             {count} such deaths by now",
                task.local, task.job, node.0
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proto::event::Stall;
    use proto::{LocalId, NodeId, PartitionId, Span, TaskId};

    use super::*;

    #[test]
    fn the_line_of_a_stall_has_the_last_event() {
        let task = TaskId { job: JobId(7), local: LocalId::new(PartitionId(3), 4) };
        let (home, holder, quiet) = (NodeId(1), NodeId(2), Span::from_secs(31));
        let event = Event::Stalled { task, stall: Stall::NotPlaced, home, holder, quiet };
        let last = |job| (job == JobId(7)).then_some("1 of its 1 dependencies are met");
        let line = log_line_of(&event, last).unwrap();
        assert!(line.contains("got no further for 31 s: task 3.4: "), "{line}");
        let end = "(home node 1, holder node 2); last event: 1 of its 1 dependencies are met";
        assert!(line.ends_with(end), "{line}");
        let line = log_line_of(&event, |_| Some("")).unwrap();
        assert!(line.ends_with("last event: not known"), "{line}");
    }
}

//! *Yield*: an attempt that gives its slot back is no failure, and the next attempt starts with the
//! state of the last committed turn, and with the children of all turns and their names.

use proto::event::End;
use proto::work::Launch;
use proto::{TaskId, wire};

use super::Turns;
use crate::checkers::{Verdict, Violation};

const NAME: &str = "yield";

/// An attempt starts.
pub(crate) fn on_launch(turns: &Turns, launch: &Launch) -> Verdict {
    let task = launch.task;
    let wrong = |text: String| Err(Violation::new(NAME, text));
    let (seq, state) = match &launch.resume {
        Some(resume) => (resume.seq, resume.state.clone()),
        None => (0, None),
    };
    let durable = turns.durable.get(&task).copied().unwrap_or(0);
    // A holder that was declared failed may start an earlier attempt late; its turns are fenced.
    let turn_of = |seq: u64| turns.committed.get(&task).and_then(|turns| turns.get(&seq));
    let is_late = |seq: u64| turn_of(seq).is_some_and(|turn| turn.attempt > launch.attempt);
    if is_late(durable) || is_late(seq) {
        return Ok(());
    }
    if seq < durable {
        return wrong(format!("{task} starts after turn {seq}, but turn {durable} is committed"));
    }
    match turn_of(seq) {
        // A launch that waited for its batch may follow the loss of the turn; it is ended soon.
        None => Ok(()),
        Some(turn) if turn.request.state != state => {
            wrong(format!("{task} starts after turn {seq} with another state"))
        }
        Some(_) => match &launch.resume {
            Some(resume) if !knows_children(turns, task, resume) => {
                wrong(format!("{task} starts after turn {seq} with other children: {resume:?}"))
            }
            _ => Ok(()),
        },
    }
}

fn knows_children(turns: &Turns, task: TaskId, resume: &wire::Resume) -> bool {
    let (count, names) = turns.children_at(task, resume.seq);
    let last = resume.children.last().map_or(0, |last| last.ordinal + u64::from(last.count));
    let known = resume.keys.iter().map(|named| (named.key.clone(), named.ordinal));
    last == count && known.eq(names)
}

/// A task has ended; its attempts never fail.
pub(crate) fn on_committed(task: TaskId, end: End) -> Verdict {
    if end == End::Failed {
        return Err(Violation::new(NAME, format!("{task} failed, but none of its attempts did")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proto::{Attempt, JobId, LocalId, PartitionId};

    use super::*;
    use crate::checkers::turns::{Committed, Request};

    #[test]
    fn the_next_attempt_knows_the_children_of_all_turns_and_their_names() {
        let task = TaskId { job: JobId(1), local: LocalId::new(PartitionId(0), 0) };
        let mut turns = Turns::default();
        let keys = vec![(1, "left".to_owned())];
        for (seq, keys) in [(1, Vec::new()), (2, keys)] {
            let request = Request { children: vec![7, 8], keys, ..Request::default() };
            let turn = Committed { attempt: Attempt(1), first: 2 * seq, request };
            turns.committed.entry(task).or_default().insert(seq, turn);
        }
        let resume = |seq, count, ordinal| wire::Resume {
            seq,
            children: vec![wire::ChildRange { ordinal: 0, first: 2, count }],
            keys: vec![wire::ChildKey { key: "left".to_owned(), ordinal }],
            ..wire::Resume::default()
        };
        assert!(knows_children(&turns, task, &resume(2, 4, 3)));
        assert!(!knows_children(&turns, task, &resume(2, 4, 1)), "the name of another child");
        assert!(!knows_children(&turns, task, &resume(2, 2, 3)), "two children are missing");
        assert!(!knows_children(&turns, task, &resume(1, 2, 3)), "the name came later");
    }
}

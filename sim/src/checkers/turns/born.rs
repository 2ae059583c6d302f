//! *Born*: the spawned tasks that run are those of committed turns, each of them once. No task of a
//! turn that was not committed ever runs.

use proto::work::Launch;
use proto::{LocalId, TaskId};

use super::Turns;
use crate::checkers::{Verdict, Violation};

const NAME: &str = "born";

/// A spawned task is launched; `entry` of its description is its own number.
pub(crate) fn on_launch(turns: &mut Turns, launch: &Launch) -> Verdict {
    let (task, child) = (launch.task, launch.entry);
    let wrong = |text: String| Err(Violation::new(NAME, text));
    let Some(&(parent, attempt, seq, at)) = turns.parents.get(&child) else {
        return wrong(format!("{task} runs, but no attempt has spawned it"));
    };
    let turn = turns.committed.get(&parent).and_then(|turns| turns.get(&seq));
    let Some(turn) = turn.filter(|turn| turn.attempt == attempt) else {
        return wrong(format!(
            "{task} runs, but turn {seq} of {parent} by attempt {attempt} is not committed"
        ));
    };
    let local = LocalId::new(parent.partition(), turn.first + at as u64);
    let known = turns.ran.insert(child, task).unwrap_or(task);
    if known != task || task != (TaskId { job: parent.job, local }) {
        return wrong(format!("one child of {parent} runs as {known} and as {task}, not {local}"));
    }
    Ok(())
}

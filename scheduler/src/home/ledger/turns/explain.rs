//! Sentences about turns for a reader: the wait of a task, its parent and its children.

use std::collections::BTreeSet;

use proto::wire::task_ref::Task as Named;
use proto::{LocalId, TaskId, wire};

use super::awaits::resolve;
use super::state::TaskTurns;
use crate::home::ledger::Ledger;

/// Children that an explanation names, and tasks that are searched for the children of a done task.
const CHILDREN_NAMED_MAX: usize = 16;
const CHILDREN_SCAN_MAX: usize = 1 << 16;

impl Ledger {
    /// The tasks that have not ended and that the task awaits since its last turn.
    pub(crate) fn open_awaited(&self, task: TaskId) -> impl Iterator<Item = LocalId> + '_ {
        self.turns_of(task).into_iter().flat_map(|turns| turns.pending.iter().copied())
    }

    /// How many of the awaited tasks are still open, if the task waits for some.
    pub(crate) fn explain_wait(&self, task: TaskId) -> Option<String> {
        let turns = self.turns_of(task).filter(|turns| !turns.pending.is_empty())?;
        let is_child = |named: &wire::TaskRef| matches!(named.task, Some(Named::Child(_)));
        let what = if turns.awaits.iter().all(is_child) { "children" } else { "tasks" };
        let all = turns.awaits.iter().filter_map(|named| Some(resolve(task, turns, named)?.0));
        let (open, all) = (turns.pending.len(), all.collect::<BTreeSet<_>>().len());
        let named = listed(turns.pending.iter().copied());
        Some(format!("it waits for {open} of {all} {what}: {named}"))
    }

    /// The parent that has spawned the task, and its own children.
    pub(crate) fn explain_family(&self, task: TaskId) -> Vec<String> {
        self.explain_spawner(task).into_iter().chain(self.explain_children(task)).collect()
    }

    fn explain_spawner(&self, task: TaskId) -> Option<String> {
        let index = self.part(task)?.spawner(task.local.index())?;
        let local = LocalId::new(task.partition(), index);
        let parent = TaskId { job: task.job, local };
        let which = match self.turns_of(parent).and_then(|turns| named_child(turns, task)) {
            Some((ordinal, Some(key))) => format!("child {ordinal} ('{key}')"),
            Some((ordinal, None)) => format!("child {ordinal}"),
            None => "a child".to_owned(),
        };
        Some(format!("it is {which} of task '{}' ({local})", self.name(parent)))
    }

    /// The record of a done task has no children. Then the tasks of its part are searched.
    fn explain_children(&self, task: TaskId) -> Option<String> {
        let place = |index| LocalId::new(task.partition(), index);
        if let Some(turns) = self.turns_of(task) {
            let ranges = turns.children.iter();
            let all = ranges.flat_map(|range| range.first..range.first + u64::from(range.count));
            let count = turns.ordinals();
            return (count > 0)
                .then(|| format!("it has spawned {count} tasks: {}", listed(all.map(place))));
        }
        let (index, part) = (task.local.index(), self.part(task)?);
        part.turns.as_ref().filter(|turns| turns.sealed.contains(&index))?;
        let after = part.indices().skip_while(|&other| other <= index).take(CHILDREN_SCAN_MAX);
        let own: Vec<u64> = after.filter(|&other| part.spawner(other) == Some(index)).collect();
        (!own.is_empty()).then(|| format!("it has spawned {}", listed(own.into_iter().map(place))))
    }
}

/// The ordinal of a child, and its name.
fn named_child(turns: &TaskTurns, child: TaskId) -> Option<(u64, Option<&str>)> {
    let index = child.local.index();
    let holds = |range: &&wire::ChildRange| {
        (range.first..range.first + u64::from(range.count)).contains(&index)
    };
    let range = turns.children.iter().find(holds)?;
    let ordinal = range.ordinal + index - range.first;
    let key = turns.keys.iter().find(|(_, named)| **named == ordinal);
    Some((ordinal, key.map(|(key, _)| key.as_str())))
}

/// The first of these ids as text.
fn listed(ids: impl Iterator<Item = LocalId>) -> String {
    let mut texts: Vec<String> =
        ids.take(CHILDREN_NAMED_MAX + 1).map(|id| id.to_string()).collect();
    if texts.len() > CHILDREN_NAMED_MAX {
        texts[CHILDREN_NAMED_MAX] = "...".to_owned();
    }
    texts.join(", ")
}

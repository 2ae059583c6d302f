//! The turns of the tasks of one part, in memory.

use std::collections::{BTreeMap, BTreeSet};

use proto::{Attempt, LocalId, NodeId, Span, Time, wire};

use super::Suspended;
use crate::home::ledger::records::{EdgeOut, edges_of};

/// The turns of the tasks of one job in one partition.
#[derive(Debug, Default)]
pub(crate) struct PartTurns {
    /// Tasks that have committed a turn and are not done, by index.
    pub(super) tasks: BTreeMap<u64, TaskTurns>,
    /// Done tasks that had committed turns: they never run again.
    pub(super) sealed: BTreeSet<u64>,
    /// The tasks that await a task of this part, each with the turn that waits, by index.
    pub(super) waiters: BTreeMap<u64, BTreeMap<LocalId, u64>>,
    /// Edges from children of earlier turns to later ones, by the index of the former.
    late: BTreeMap<u64, Vec<EdgeOut>>,
    /// The same for chunks that are not synced yet, by number.
    pub(super) unborn: BTreeMap<u32, Vec<wire::Children>>,
}

impl PartTurns {
    pub(crate) fn late_edges(&self, index: u64) -> Option<&[EdgeOut]> {
        self.late.get(&index).map(Vec::as_slice)
    }
    pub(crate) fn add_late(&mut self, late: &[wire::Children]) {
        for piece in late {
            self.late.entry(piece.index).or_default().extend(edges_of(piece));
        }
    }
}

/// The last committed turn of a task, and the state that earlier turns left.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskTurns {
    pub(super) seq: u64,
    pub(super) attempt: Attempt,
    /// The number of the turn within its attempt.
    pub(super) number: u64,
    pub(super) verdict: wire::TurnVerdict,
    /// The number of children that the last turn has spawned.
    pub(super) spawned: u32,
    pub(super) state: Option<Vec<u8>>,
    /// In the order of ordinals.
    pub(super) children: Vec<wire::ChildRange>,
    pub(super) keys: BTreeMap<String, u64>,
    /// The tasks of the last wait, as the task named them.
    pub(super) awaits: Vec<wire::TaskRef>,
    /// Those that have not ended, as far as this home knows.
    pub(super) pending: BTreeSet<LocalId>,
    /// When other homes are asked again, and the pause after that.
    pub(super) asks: Option<(Time, Span)>,
    /// Awaited tasks of other partitions that have ended.
    pub(super) known: BTreeMap<LocalId, wire::Awaited>,
    /// The node where the command of the last attempt waits, as far as this home knows. It is not
    /// recorded: on any other node the task runs from its beginning.
    pub(super) waits_at: Option<NodeId>,
    /// Added to sums of the job by all turns.
    pub(super) sums: Vec<wire::VarSum>,
    /// The last turn waits for a letter.
    pub(super) mail_wait: Option<wire::MailWait>,
    /// The task waits for a letter at present.
    pub(super) suspended: Option<Suspended>,
}

impl TaskTurns {
    /// The number of children: the ordinal of the next one.
    pub(super) fn ordinals(&self) -> u64 {
        self.children.last().map_or(0, |last| last.ordinal + u64::from(last.count))
    }
    /// The index of a child.
    pub(super) fn child(&self, ordinal: u64) -> Option<u64> {
        let after = self.children.partition_point(|range| range.ordinal <= ordinal);
        let range = self.children.get(after.checked_sub(1)?)?;
        let at = ordinal - range.ordinal;
        (at < u64::from(range.count)).then_some(range.first + at)
    }
    /// Adds children with consecutive indices. Returns the ordinal of the first.
    pub(super) fn add_children(&mut self, first: u64, count: u32) -> u64 {
        let ordinal = self.ordinals();
        match self.children.last_mut() {
            _ if count == 0 => {}
            Some(last) if last.first + u64::from(last.count) == first => last.count += count,
            _ => self.children.push(wire::ChildRange { ordinal, first, count }),
        }
        ordinal
    }
    /// Keeps the ends of tasks that the last turn awaits.
    pub(super) fn forget_other_ends(&mut self) {
        let named = self.awaits.iter().filter_map(|it| match it.task? {
            wire::task_ref::Task::Local(local) => Some(LocalId(local)),
            wire::task_ref::Task::Child(_) => None,
        });
        let named: BTreeSet<LocalId> = named.collect();
        self.known.retain(|local, _| named.contains(local));
    }
    /// The record of the turn. A done task keeps only its number and sums.
    pub(super) fn record(&self, index: u64, is_done: bool) -> wire::TurnRecord {
        let bare = wire::TurnRecord {
            index,
            attempt: self.attempt.0,
            seq: self.seq,
            verdict: self.verdict as i32,
            spawned: self.spawned,
            number: self.number,
            sums: self.sums.clone(),
            ..wire::TurnRecord::default()
        };
        if is_done {
            return bare;
        }
        let key = |(key, &ordinal): (&String, &u64)| wire::ChildKey { key: key.clone(), ordinal };
        wire::TurnRecord {
            state: self.state.clone(),
            children: self.children.clone(),
            keys: self.keys.iter().map(key).collect(),
            awaits: self.awaits.clone(),
            known: self.known.values().copied().collect(),
            mail_wait: self.mail_wait,
            ..bare
        }
    }
    pub(super) fn of_record(record: wire::TurnRecord) -> Self {
        let keys = record.keys.iter().map(|it| (it.key.clone(), it.ordinal)).collect();
        let known = record.known.iter().map(|it| (LocalId(it.local), *it)).collect();
        Self {
            seq: record.seq,
            attempt: Attempt(record.attempt),
            number: record.number,
            verdict: record.verdict(),
            spawned: record.spawned,
            state: record.state,
            children: record.children,
            keys,
            awaits: record.awaits,
            pending: BTreeSet::new(),
            asks: None,
            known,
            waits_at: None,
            sums: record.sums,
            mail_wait: record.mail_wait,
            suspended: None,
        }
    }
}

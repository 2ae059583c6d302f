//! *Mail*: each event of a committed turn is consumed at most once, and those of one task to
//! another in order and without a gap. No event of another turn is ever read, and none is read
//! again once a committed turn has consumed it.
//!
//! That no event is lost at the end follows from *progress*: parents wait for the last events of
//! their children without a limit of time.

use std::collections::{BTreeMap, BTreeSet};

use proto::wire::mail_name::Task as Named;
use proto::{Attempt, LocalId, TaskId, wire};

use super::Turns;
use crate::checkers::{Verdict, Violation};

const NAME: &str = "mail";

/// An event that an attempt has requested to send.
#[derive(Clone, Debug)]
struct Sent {
    by: (TaskId, Attempt, u64),
    /// Its place among the events of its turn.
    at: usize,
    to: wire::MailName,
}

/// The events of all jobs, by their own numbers.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    sent: BTreeMap<u64, Sent>,
    /// Events that some attempt has read.
    read: BTreeSet<u64>,
    /// The committed turn that has consumed each event.
    consumed: BTreeMap<u64, (TaskId, u64)>,
}

/// The number of an event, which is all that it has.
pub(crate) fn number_of(data: &[u8]) -> u64 {
    data.get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
}

/// Whether the event is the last one of a child to its parent.
pub(crate) fn is_report(number: u64) -> bool {
    number & 1 == 1
}

fn wrong(text: String) -> Verdict {
    Err(Violation::new(NAME, text))
}

impl Mail {
    pub(super) fn on_request(
        &mut self,
        by: (TaskId, Attempt, u64),
        events: &[(wire::MailName, u64)],
    ) {
        for (at, (to, number)) in events.iter().enumerate() {
            self.sent.insert(*number, Sent { by, at, to: *to });
        }
    }

    /// A turn is undone: so are its events, and what it has consumed.
    pub(super) fn on_undone(
        &mut self,
        task: TaskId,
        seq: u64,
        request: &super::Request,
    ) -> Verdict {
        for number in &request.consumed {
            if self.consumed.get(number) == Some(&(task, seq)) {
                self.consumed.remove(number);
            }
        }
        match request.events.iter().find(|(_, number)| self.read.contains(number)) {
            Some((_, number)) => wrong(format!(
                "{task}: its turn {seq} is undone, but its event {number:x} was read"
            )),
            None => Ok(()),
        }
    }
}

impl Turns {
    /// The tasks that the task has spawned up to now, in order.
    fn children_of(&self, task: TaskId) -> Vec<LocalId> {
        let turns = self.committed.get(&task).into_iter().flat_map(|turns| turns.values());
        let places = turns.flat_map(|turn| {
            let count = turn.request.children.len() as u64;
            (turn.first..turn.first + count).map(|index| LocalId::new(task.partition(), index))
        });
        places.collect()
    }

    /// The task to which a task has sent an event.
    fn receiver(&self, sent: &Sent) -> Option<LocalId> {
        let sender = sent.by.0;
        match sent.to.task? {
            Named::Local(local) => Some(LocalId(local)),
            Named::Child(ordinal) => self.children_of(sender).get(ordinal as usize).copied(),
            Named::Parent(_) => {
                let is_it = |(_, task): &(&u64, &TaskId)| **task == sender;
                let (child, _) = self.ran.iter().find(is_it)?;
                Some(self.parents.get(child)?.0.local)
            }
        }
    }

    fn is_committed(&self, (task, attempt, seq): (TaskId, Attempt, u64)) -> bool {
        let turn = self.committed.get(&task).and_then(|turns| turns.get(&seq));
        turn.is_some_and(|turn| turn.attempt == attempt)
    }

    /// An attempt that follows turn `seq` of its task reads these letters.
    pub(crate) fn on_letters(
        &mut self,
        task: TaskId,
        seq: u64,
        letters: &[wire::Letter],
    ) -> Verdict {
        let mut fresh = BTreeSet::new();
        for letter in letters {
            let number = number_of(&letter.data);
            let Some(sent) = self.mail.sent.get(&number) else {
                return wrong(format!("{task} reads an event that no task has sent: {letter:?}"));
            };
            let (sender, attempt, turn) = sent.by;
            if !self.is_committed(sent.by) {
                return wrong(format!(
                    "{task} reads event {number:x} of turn {turn} of {sender} by attempt \
                     {attempt}, which is not committed"
                ));
            }
            if sender.local.0 != letter.from || self.receiver(sent) != Some(task.local) {
                return wrong(format!(
                    "{task} reads event {number:x} of {sender} to {:?}",
                    sent.to
                ));
            }
            if !fresh.insert(number) {
                return wrong(format!("{task} reads event {number:x} of {sender} twice"));
            }
            if let Some(&(by, at)) = self.mail.consumed.get(&number)
                && at <= seq
            {
                return wrong(format!(
                    "{task} reads event {number:x} of {sender} after turn {seq}, but turn {at} of \
                     {by} has consumed it"
                ));
            }
        }
        self.mail.read.extend(fresh);
        Ok(())
    }

    /// A committed turn has consumed these events, in this order.
    pub(super) fn on_consumed(&mut self, task: TaskId, seq: u64, events: &[u64]) -> Verdict {
        for &number in events {
            let Some(sent) = self.mail.sent.get(&number).cloned() else { continue };
            if let Some((by, at)) = self.mail.consumed.insert(number, (task, seq)) {
                return wrong(format!(
                    "turn {seq} of {task} consumes event {number:x}, as turn {at} of {by} did"
                ));
            }
            let sender = sent.by.0;
            let before = |other: &Sent| (other.by.2, other.at) < (sent.by.2, sent.at);
            let same_pair = |(id, other): &(&u64, &Sent)| {
                other.by.0 == sender
                    && before(other)
                    && !self.mail.consumed.contains_key(id)
                    && self.is_committed(other.by)
                    && self.receiver(other) == Some(task.local)
            };
            if let Some((missed, _)) = self.mail.sent.iter().find(same_pair) {
                return wrong(format!(
                    "turn {seq} of {task} consumes event {number:x} of {sender} before {missed:x}"
                ));
            }
        }
        Ok(())
    }

    /// How many children of the task send a last event that it has not consumed.
    pub(crate) fn reports_due(&self, task: TaskId, reports: impl Fn(u64) -> bool) -> usize {
        let turns = self.committed.get(&task).into_iter().flat_map(|turns| turns.values());
        let (mut due, mut consumed) = (0, 0);
        for turn in turns {
            due += turn.request.children.iter().filter(|&&child| reports(child)).count();
            consumed += turn.request.consumed.iter().filter(|&&it| is_report(it)).count();
        }
        due.saturating_sub(consumed)
    }
}

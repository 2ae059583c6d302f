//! Mailboxes: the events that tasks of a job send each other.
//!
//! A turn sends events and consumes others, in its own batch. An event to a task of the same part
//! is a letter in its mailbox at once. An event to another partition waits in the outbox of the
//! part until the home there has stored it (`outbox.rs`). A receiver reads a letter once it is
//! synced: a power cut must not undo an event that a task has seen.
//!
//! `state.rs` has the letters in memory, `waits.rs` the tasks that wait for some, `recovery.rs` the
//! stored records.

mod outbox;
mod recovery;
mod state;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use proto::limits::{EVENT_BYTES_MAX, TURN_EVENT_BYTES_MAX, TURN_EVENTS_MAX};
use proto::wire::mail_name::Task as Named;
use proto::wire::message::Body;
use proto::{JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::home::ledger::{End, Ledger, State};
use crate::output::Out;
use crate::routing::partition_owners::Homes;
use crate::{Mutant, Scheduler};
pub(crate) use state::PartMail;

type PartKey = (JobId, PartitionId);

/// What is due for letters.
#[derive(Debug, Default)]
pub(crate) struct MailWork {
    /// The last letters of this step in mailboxes.
    stored: BTreeMap<PartKey, u64>,
    /// When letters are sent to other partitions.
    sends: BTreeSet<(Time, JobId, PartitionId, PartitionId)>,
    /// When waits end without a letter.
    timeouts: BTreeSet<(Time, TaskId)>,
}

impl MailWork {
    /// Adds what is due in a partition that comes to this home.
    pub(crate) fn take(&mut self, other: Self) {
        self.sends.extend(other.sends);
        self.timeouts.extend(other.timeouts);
    }
}

/// Refuses a turn with events that exceed a limit.
pub(crate) fn check_events(turn: &wire::Turn) -> Result<(), String> {
    if turn.events.len() > TURN_EVENTS_MAX {
        return Err(format!(
            "a turn may send at most {TURN_EVENTS_MAX} events; hint: commit between them"
        ));
    }
    if let Some(large) = turn.events.iter().find(|event| event.data.len() > EVENT_BYTES_MAX) {
        let bytes = large.data.len();
        return Err(format!("an event has {bytes} bytes, more than {EVENT_BYTES_MAX}"));
    }
    if turn.events.iter().map(|event| event.data.len()).sum::<usize>() > TURN_EVENT_BYTES_MAX {
        return Err(format!(
            "the events of a turn may have at most {TURN_EVENT_BYTES_MAX} bytes; hint: commit \
             between them"
        ));
    }
    if turn.mail_wait.is_some()
        && (turn.verdict() != wire::TurnVerdict::TurnWait || !turn.awaits.is_empty())
    {
        return Err("only a turn that waits for nothing else waits for an event".to_owned());
    }
    Ok(())
}

impl Ledger {
    /// The task that a task of the same job names.
    fn named(&self, by: TaskId, name: Option<&wire::MailName>) -> Result<LocalId, String> {
        let here = |index| LocalId::new(by.partition(), index);
        match name.and_then(|name| name.task) {
            Some(Named::Local(local)) => Ok(LocalId(local)),
            Some(Named::Child(ordinal)) => match self.child_of(by, ordinal) {
                Some(index) => Ok(here(index)),
                None => Err(format!("there is no child {ordinal}")),
            },
            Some(Named::Parent(_)) => {
                let part = self.part(by);
                let spawner = part.and_then(|part| part.spawner(by.local.index()));
                let none = "the task has no parent: no task has spawned it";
                spawner.map(here).ok_or_else(|| none.to_owned())
            }
            None => Err("the other task is not named".to_owned()),
        }
    }

    /// Refuses events to tasks that do not exist, and to mailboxes that take nothing more.
    /// `fresh`: the number of tasks that the turn spawns.
    pub(crate) fn check_mail(
        &self,
        task: TaskId,
        turn: &wire::Turn,
        fresh: u64,
        homes: &Homes,
    ) -> Result<(), String> {
        let ordinals = self.children_of(task);
        let waits = turn.mail_wait.iter().filter_map(|wait| wait.from.as_ref());
        let names = turn.events.iter().map(|event| event.to.as_ref()).chain(waits.map(Some));
        for name in names {
            if let Some(Named::Child(ordinal)) = name.and_then(|name| name.task)
                && (ordinals..ordinals + fresh).contains(&ordinal)
            {
                continue;
            }
            let local = self.named(task, name)?;
            let is_here = local.partition() == task.partition();
            let other = TaskId { job: task.job, local };
            if is_here && self.state(other).is_none() || local.partition().0 >= homes.partitions() {
                return Err(format!("the job has no task {local}"));
            }
        }
        let mail = self.part(task).and_then(|part| part.mail.as_deref());
        let Some(mail) = mail else { return Ok(()) };
        for event in &turn.events {
            let Ok(to) = self.named(task, event.to.as_ref()) else { continue };
            let is_full = match to.partition() == task.partition() {
                true => mail.boxes.get(&to.index()).is_some_and(state::Mailbox::is_overfull),
                false => mail.outboxes.get(&to.partition()).is_some_and(state::Outbox::is_full),
            };
            if is_full {
                return Err(format!("too many events wait for task {to}; hint: commit later"));
            }
        }
        Ok(())
    }

    /// A turn takes letters out of the task's mailbox, and sends its events.
    pub(crate) fn turn_mail(
        &mut self,
        now: Time,
        task: TaskId,
        turn: &mut wire::Turn,
        out: &mut Out,
    ) {
        self.consume_letters(task, &turn.consumed, out);
        let events = std::mem::take(&mut turn.events);
        if events.is_empty() {
            return;
        }
        for event in events {
            let Ok(to) = self.named(task, event.to.as_ref()) else { continue };
            let (from, data) = (task.local.0, event.data);
            let letter = wire::Letter { number: 0, from, to: to.0, data };
            match to.partition() == task.partition() {
                true => self.put_letter(task.job, letter, out),
                false => self.send_letter(now, task, letter, out),
            }
        }
        self.record_mail_head((task.job, task.partition()), out);
        self.report_part(now, task);
    }

    fn consume_letters(&mut self, task: TaskId, numbers: &[u64], out: &mut Out) {
        let (place, index) = ((task.partition(), task.job), task.local.index());
        let mail = self.part_mut(task).and_then(|part| part.mail.as_deref_mut());
        let Some(own) = mail.and_then(|mail| mail.boxes.get_mut(&index)) else { return };
        for &number in numbers {
            if own.remove(number) {
                out.facts.mail.get_or_insert_default().insert((place, number), None);
            }
        }
    }

    /// Puts a letter into the mailbox of a task of this part. A done task never runs again.
    fn put_letter(&mut self, job: JobId, mut letter: wire::Letter, out: &mut Out) {
        let to = TaskId { job, local: LocalId(letter.to) };
        let is_open = self.state(to).is_some_and(|state| state != State::Ended(End::Done));
        let Some(part) = self.part_mut(to) else { return };
        let mail = part.mail.get_or_insert_default();
        if !is_open {
            mail.dropped += 1;
            part.count.events_dropped = mail.dropped;
            return;
        }
        mail.last += 1;
        mail.events += 1;
        part.count.events = mail.events;
        letter.number = mail.last;
        let (number, place) = (letter.number, (to.partition(), job));
        let record = wire::MailRecord { letter: Some(letter.clone()), ..Default::default() };
        out.facts.mail.get_or_insert_default().insert((place, number), Some(record));
        mail.boxes.entry(to.local.index()).or_default().insert(letter);
        mail.fresh.insert(number, to.local.index());
        self.mail_work.get_or_insert_default().stored.insert((job, to.partition()), number);
    }

    fn record_mail_head(&mut self, (job, partition): PartKey, out: &mut Out) {
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        let Some(mail) = part.and_then(|part| part.mail.as_deref()) else { return };
        let facts = out.facts.mail.get_or_insert_default();
        facts.insert(((partition, job), 0), Some(mail.head()));
    }

    /// A done task reads no letters any more.
    pub(crate) fn drop_mailbox(&mut self, task: TaskId, out: &mut Out) {
        let (place, index) = ((task.partition(), task.job), task.local.index());
        let mail = self.part_mut(task).and_then(|part| part.mail.as_deref_mut());
        let Some(own) = mail.and_then(|mail| mail.boxes.remove(&index)) else { return };
        let facts = out.facts.mail.get_or_insert_default();
        facts.extend(own.letters.into_keys().map(|number| ((place, number), None)));
    }

    /// Letters up to this number are synced: tasks that wait for them go on.
    fn letters_synced(&mut self, job: JobId, partition: PartitionId, last: u64) {
        let part = self.jobs.get_mut(&job).and_then(|job| job.parts.get_mut(partition));
        let Some(mail) = part.and_then(|part| part.mail.as_deref_mut()) else { return };
        mail.synced = mail.synced.max(last);
        let rest = mail.fresh.split_off(&last.saturating_add(1));
        let receivers: BTreeSet<u64> =
            std::mem::replace(&mut mail.fresh, rest).into_values().collect();
        for index in receivers {
            self.wake_by_letter(TaskId { job, local: LocalId::new(partition, index) });
        }
    }

    /// The first letters for the next attempt of a task: those that its last turn waits for, if it
    /// waits for letters of one sender.
    pub(crate) fn letters_of(&self, task: TaskId) -> Vec<wire::Letter> {
        let mail = self.part(task).and_then(|part| part.mail.as_deref());
        let from = self.awaited_sender(task);
        mail.map_or_else(Vec::new, |mail| mail.readable(task.local.index(), from))
    }

    /// Why the mailbox of the named task takes no event of this size; `None`: it takes it.
    fn refuses_event(&self, query: &wire::MailQuery) -> Option<String> {
        let sender = TaskId::new(query.job, query.sender);
        let to = match self.named(sender, query.to.as_ref()) {
            Ok(local) => TaskId { job: sender.job, local },
            Err(text) => return Some(text),
        };
        match self.state(to) {
            None => Some(format!("the job has no task {}", to.local)),
            Some(State::Ended(end)) => {
                let name = self.name(to);
                Some(format!("task '{name}' ({}) has ended: it is {}", to.local, end_text(end)))
            }
            Some(_) => {
                let mail = self.part(to).and_then(|part| part.mail.as_deref());
                let own = mail.and_then(|mail| mail.boxes.get(&to.local.index()))?;
                own.is_full(query.bytes as usize).then(|| {
                    let letters = own.letters.len();
                    format!(
                        "the mailbox of task {} is full: {letters} events wait in it; hint: send \
                         again when the task has received some",
                        to.local
                    )
                })
            }
        }
    }
}

fn end_text(end: End) -> &'static str {
    match end {
        End::Done => "done",
        End::Failed => "failed",
        End::Cancelled => "cancelled",
        End::Skipped => "skipped",
    }
}

impl Scheduler {
    /// Asks for a notice when the letters of this step are synced.
    pub(crate) fn await_letters(&mut self, out: &mut Out) {
        let Some(work) = self.home.ledger.mail_work.as_mut() else { return };
        for ((job, partition), last) in std::mem::take(&mut work.stored) {
            if self.options.mutant == Some(Mutant::EventBeforeSync) {
                self.home.ledger.letters_synced(job, partition, last);
                continue;
            }
            let term = self.term(partition);
            let synced = wire::LettersSynced { job: job.0, partition: partition.0, last, term };
            out.reliable.push((self.options.me, Body::LettersSynced(synced)));
        }
    }

    pub(crate) fn on_letters_synced(&mut self, from: NodeId, synced: &wire::LettersSynced) {
        let (job, partition) = (JobId(synced.job), PartitionId(synced.partition));
        let is_mine = self.routing.homes().is_mine(partition);
        if from == self.options.me && is_mine && self.term(partition) == synced.term {
            self.home.ledger.letters_synced(job, partition, synced.last);
        }
    }

    /// A node asks whether the mailbox of a task takes an event.
    pub(crate) fn on_mail_query(&mut self, from: NodeId, query: &wire::MailQuery, out: &mut Out) {
        let refused = self.home.ledger.refuses_event(query).unwrap_or_default();
        let reply = wire::MailReply { ticket: query.ticket, refused };
        out.reliable.push((from, Body::MailReply(reply)));
    }
}

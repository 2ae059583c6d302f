//! Letters to other partitions. The home of the senders sends those that are not stored there,
//! oldest first, and sends more once the other home has stored them. So the letters of each pair of
//! partitions arrive in order, and a number tells those that were taken before.

use proto::wire::message::Body;
use proto::{JobId, LocalId, PartitionId, Span, TaskId, Time, wire};

use super::{PartKey, state};
use crate::home::ledger::Ledger;
use crate::limits::{REPEAT_MAX, TURN_AGAIN};
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// The letters of one message, and their bytes if there are several.
const LETTERS_PER_MESSAGE_MAX: usize = 256;
const LETTER_BYTES_PER_MESSAGE_MAX: usize = 512 << 10;

impl Ledger {
    /// An event to a task of another partition.
    pub(super) fn send_letter(
        &mut self,
        now: Time,
        sender: TaskId,
        letter: wire::Letter,
        out: &mut Out,
    ) {
        let (job, here) = (sender.job, sender.partition());
        let there = LocalId(letter.to).partition();
        let Some(part) = self.part_mut(sender) else { return };
        let mail = part.mail.get_or_insert_default();
        mail.last += 1;
        let number = mail.last;
        let outbox = mail.outboxes.entry(there).or_default();
        let sequence = outbox.sent + 1;
        outbox.insert(sequence, number, letter.clone());
        let record = wire::MailRecord { letter: Some(letter), sequence, ..Default::default() };
        out.facts.mail.get_or_insert_default().insert(((here, job), number), Some(record));
        if outbox.due.is_none() {
            self.plan_letters(now, (job, here), there);
        }
    }

    /// The letters to this partition are sent next.
    pub(super) fn plan_letters(&mut self, at: Time, (job, from): PartKey, to: PartitionId) {
        let part = self.jobs.get_mut(&job).and_then(|job| job.parts.get_mut(from));
        let mail = part.and_then(|part| part.mail.as_deref_mut());
        let Some(outbox) = mail.and_then(|mail| mail.outboxes.get_mut(&to)) else { return };
        outbox.due = Some((at, TURN_AGAIN));
        self.mail_work.get_or_insert_default().sends.insert((at, job, from, to));
    }

    /// The next message to this partition, if it is due at this time, and plans its repetition.
    fn due_letters(
        &mut self,
        now: Time,
        (at, job, from, to): (Time, JobId, PartitionId, PartitionId),
    ) -> Option<wire::Letters> {
        let part = self.jobs.get_mut(&job)?.parts.get_mut(from)?;
        let outbox = part.mail.as_deref_mut()?.outboxes.get_mut(&to)?;
        let (_, pause) = outbox.due.filter(|&(due, _)| due == at)?;
        let Some((&first, _)) = outbox.letters.first_key_value() else {
            outbox.due = None;
            return None;
        };
        let (mut letters, mut bytes) = (Vec::new(), 0);
        for (_, letter) in outbox.letters.values() {
            bytes += letter.data.len();
            let is_too_much = bytes > LETTER_BYTES_PER_MESSAGE_MAX && !letters.is_empty();
            if letters.len() == LETTERS_PER_MESSAGE_MAX || is_too_much {
                break;
            }
            letters.push(letter.clone());
        }
        let again = now + pause;
        outbox.due = Some((again, pause.doubled().min(REPEAT_MAX)));
        self.mail_work.get_or_insert_default().sends.insert((again, job, from, to));
        Some(wire::Letters { job: job.0, from: from.0, to: to.0, first, letters })
    }

    /// The other home has stored letters. Those after them are sent now.
    pub(crate) fn on_letters_kept(&mut self, now: Time, kept: &wire::LettersKept, out: &mut Out) {
        let (job, from, to) = (JobId(kept.job), PartitionId(kept.from), PartitionId(kept.to));
        let part = self.jobs.get_mut(&job).and_then(|job| job.parts.get_mut(from));
        let mail = part.and_then(|part| part.mail.as_deref_mut());
        let Some(outbox) = mail.and_then(|mail| mail.outboxes.get_mut(&to)) else { return };
        let numbers = outbox.remove_up_to(kept.last);
        if numbers.is_empty() {
            return;
        }
        let has_more = !outbox.letters.is_empty();
        outbox.due = None;
        let facts = out.facts.mail.get_or_insert_default();
        facts.extend(numbers.into_iter().map(|number| (((from, job), number), None)));
        if has_more {
            self.plan_letters(now, (job, from), to);
        }
    }

    /// Stores letters of another partition, each once. Returns the last one that is stored; `None`:
    /// the sender repeats them.
    fn take_letters(&mut self, now: Time, letters: wire::Letters, out: &mut Out) -> Option<u64> {
        let (job, to) = (JobId(letters.job), PartitionId(letters.to));
        let sender = PartitionId(letters.from);
        // Letters are numbered from 1 on. Without numbers for all of them the message is garbage.
        let beyond = letters.first.checked_add(letters.letters.len() as u64)?;
        let last = beyond.checked_sub(1)?;
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(to));
        // All tasks of a job were stored before the sender ran.
        let Some(part) = part else { return Some(last) };
        if !part.visible {
            return self.has_ended(job).then_some(last);
        }
        let taken = |mail: &state::PartMail| mail.taken.get(&sender).copied();
        let mut cursor = part.mail.as_deref().and_then(taken).unwrap_or(0);
        let forgets = self.mutant == Some(Mutant::EventTwice);
        let before = cursor;
        for (sequence, mut letter) in (letters.first..beyond).zip(letters.letters) {
            let is_for_here = LocalId(letter.to).partition() == to;
            if sequence <= cursor && !forgets || !is_for_here {
                continue;
            }
            if self.is_overfull(job, LocalId(letter.to)) {
                break;
            }
            letter.number = 0;
            self.put_letter(job, letter, out);
            cursor = cursor.max(sequence);
        }
        let part = self.jobs.get_mut(&job).and_then(|job| job.parts.get_mut(to));
        if cursor > before {
            let mail = part.expect("found above").mail.get_or_insert_default();
            mail.taken.insert(sender, cursor);
            self.record_mail_head((job, to), out);
            self.report_part(now, TaskId { job, local: LocalId::new(to, 0) });
        }
        (cursor >= letters.first).then_some(cursor)
    }

    fn is_overfull(&self, job: JobId, to: LocalId) -> bool {
        let mail = self.part(TaskId { job, local: to }).and_then(|part| part.mail.as_deref());
        let own = mail.and_then(|mail| mail.boxes.get(&to.index()));
        own.is_some_and(state::Mailbox::is_overfull)
    }

    /// Whether letters of the job are about to arrive in another partition. Those that its home
    /// does not take for long do not count.
    pub(crate) fn sends_letters_of(&self, job: JobId) -> bool {
        let parts = self.jobs.get(&job).into_iter().flat_map(|job| job.parts.values());
        let mut outboxes =
            parts.filter_map(|part| part.mail.as_deref()).flat_map(|mail| mail.outboxes.values());
        let is_soon = |(_, pause): (Time, Span)| pause < TURN_AGAIN.doubled_times(4);
        outboxes.any(|outbox| !outbox.letters.is_empty() && outbox.due.is_none_or(is_soon))
    }

    /// When something about letters is due.
    pub(crate) fn next_of_mail(&self) -> Option<Time> {
        let work = self.mail_work.as_ref()?;
        let send = work.sends.first().map(|it| it.0);
        let timeout = work.timeouts.first().map(|it| it.0);
        send.into_iter().chain(timeout).min()
    }
}

impl Scheduler {
    /// Letters of another partition for tasks that are homed here.
    pub(crate) fn on_letters(&mut self, now: Time, letters: wire::Letters, out: &mut Out) {
        let (job, from, to) = (letters.job, letters.from, letters.to);
        let is_sound = from < self.routing.homes().partitions() && letters.first > 0;
        if !is_sound || letters.letters.is_empty() {
            return;
        }
        let Some(last) = self.home.ledger.take_letters(now, letters, out) else { return };
        let kept = Body::LettersKept(wire::LettersKept { job, from, to, last });
        if let Some(home) = self.routing.homes().owner(PartitionId(from)) {
            out.reliable.push((home, kept));
        }
    }

    pub(super) fn send_letters(&mut self, now: Time, out: &mut Out) {
        let Some(work) = self.home.ledger.mail_work.as_mut() else { return };
        let end = (Time(now.0 + 1), JobId(0), PartitionId(0), PartitionId(0));
        let later = work.sends.split_off(&end);
        for due in std::mem::replace(&mut work.sends, later) {
            let Some(letters) = self.home.ledger.due_letters(now, due) else { continue };
            // While the other partition has no active home, they wait here.
            if let Some(home) = self.routing.homes().active_owner(due.3) {
                out.reliable.push((home, Body::Letters(letters)));
            }
        }
    }
}

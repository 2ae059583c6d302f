//! Letters of stored records.

use proto::{JobId, LocalId, PartitionId, TaskId, Time, wire};

use super::PartMail;
use crate::Mutant;
use crate::home::ledger::{End, Ledger, State};

impl Ledger {
    /// Loads a record of letters. The turns of the part are loaded before, and record 0 first.
    pub(crate) fn load_mail(
        &mut self,
        now: Time,
        (job, partition): (JobId, PartitionId),
        record: wire::MailRecord,
        number: u64,
    ) {
        let part = self.jobs.get_mut(&job).and_then(|job| job.parts.get_mut(partition));
        let Some(part) = part else { return };
        let mail = part.mail.get_or_insert_default();
        let Some(mut letter) = record.letter else {
            load_head(mail, &record);
            (part.count.events, part.count.events_dropped) = (mail.events, mail.dropped);
            return;
        };
        mail.last = mail.last.max(number);
        mail.synced = mail.last;
        if record.sequence > 0 {
            let to = LocalId(letter.to).partition();
            mail.outboxes.entry(to).or_default().insert(record.sequence, number, letter);
            return self.plan_letters(now, (job, partition), to);
        }
        let task = TaskId { job, local: LocalId(letter.to) };
        if self.mutant == Some(Mutant::MailForgottenOnTakeover)
            || self.state(task).is_none_or(|state| state == State::Ended(End::Done))
        {
            return;
        }
        letter.number = number;
        let part = self.part_mut(task).expect("it has the task");
        let mail = part.mail.get_or_insert_default();
        mail.boxes.entry(task.local.index()).or_default().insert(letter);
        if self.has_awaited_letter(task) {
            self.end_suspension(task); // It is examined with its chunk.
        }
    }
}

fn load_head(mail: &mut PartMail, record: &wire::MailRecord) {
    mail.last = mail.last.max(record.last);
    mail.synced = mail.last;
    (mail.events, mail.dropped) = (record.events, record.dropped);
    let taken = record.taken.iter().map(|it| (PartitionId(it.partition), it.number));
    mail.taken.extend(taken);
    for it in &record.sent {
        let outbox = mail.outboxes.entry(PartitionId(it.partition)).or_default();
        outbox.sent = outbox.sent.max(it.number);
    }
}

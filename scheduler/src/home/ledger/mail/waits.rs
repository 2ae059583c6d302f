//! Tasks that wait for a letter. Such a task misses one more slot, until a letter that counts is
//! there or the time of the wait is over.

use proto::{LocalId, Span, TaskId, Time, wire};

use crate::home::ledger::turns::Suspended;
use crate::home::ledger::{Ledger, State};
use crate::output::Out;
use crate::{Mutant, Scheduler};

impl Ledger {
    /// The last turn of the task waits for a letter of this sender.
    pub(super) fn awaited_sender(&self, task: TaskId) -> Option<LocalId> {
        let wait = self.mail_wait_of(task)?;
        self.named(task, Some(wait.from.as_ref()?)).ok()
    }

    /// The letters for which a turn waits, if it need not wait.
    pub(crate) fn letters_for(
        &self,
        task: TaskId,
        wait: &wire::MailWait,
    ) -> Option<Vec<wire::Letter>> {
        let mail = self.part(task).and_then(|part| part.mail.as_deref());
        let from = self.awaited_sender(task);
        let letters = mail.map_or_else(Vec::new, |it| it.readable(task.local.index(), from));
        let forgets = self.mutant == Some(Mutant::EventLostOnSuspend);
        let has_some = !letters.is_empty() && !forgets;
        (has_some || wait.timeout_ns == Some(0)).then_some(letters)
    }

    /// The task waits for a letter from now on.
    pub(crate) fn suspend(&mut self, now: Time, task: TaskId) {
        let Some(wait) = self.mail_wait_of(task) else { return };
        let until = wait.timeout_ns.map(|timeout| now + Span(timeout));
        let from = self.awaited_sender(task);
        self.set_suspended(task, Some(Suspended { from, until }));
        if let Some(cell) = self.cell_mut(task) {
            cell.missing += 1;
        }
        if let Some(until) = until {
            self.mail_work.get_or_insert_default().timeouts.insert((until, task));
        }
    }

    /// The task waits no longer. Returns whether it did.
    pub(crate) fn end_suspension(&mut self, task: TaskId) -> bool {
        if self.set_suspended(task, None).is_none() {
            return false;
        }
        if let Some(cell) = self.cell_mut(task) {
            cell.missing = cell.missing.saturating_sub(1);
        }
        true
    }

    /// A letter of the task has become readable.
    pub(super) fn wake_by_letter(&mut self, task: TaskId) {
        if self.has_awaited_letter(task) {
            self.wake_suspended(task);
        }
    }

    /// Whether the task waits for a letter, and such a letter is there.
    pub(super) fn has_awaited_letter(&self, task: TaskId) -> bool {
        let Some(suspended) = self.suspended(task) else { return false };
        let mail = self.part(task).and_then(|part| part.mail.as_deref());
        mail.is_some_and(|mail| mail.has_letter(task.local.index(), suspended.from))
    }

    fn wake_suspended(&mut self, task: TaskId) {
        if self.end_suspension(task)
            && self.cell(task).is_some_and(|it| it.missing == 0 && it.state == State::Waiting)
        {
            self.ready.push_back(task);
        }
    }

    /// Ends the waits that have lasted as long as they may.
    pub(super) fn end_waits(&mut self, now: Time) {
        let Some(work) = self.mail_work.as_mut() else { return };
        let later = work.timeouts.split_off(&(Time(now.0 + 1), TaskId::new(0, 0)));
        for (at, task) in std::mem::replace(&mut work.timeouts, later) {
            if self.suspended(task).is_some_and(|it| it.until == Some(at)) {
                self.wake_suspended(task);
            }
        }
    }

    /// When the next wait of a task of this job ends without a letter.
    pub(crate) fn next_timeout_of(&self, job: proto::JobId) -> Option<Time> {
        let work = self.mail_work.as_ref()?;
        let own = work.timeouts.iter().filter(|(_, task)| task.job == job);
        own.map(|&(at, _)| at).next()
    }

    /// What the task waits for, as a part of a sentence.
    pub(crate) fn explain_mail_wait(&self, task: TaskId) -> Option<String> {
        let suspended = self.suspended(task)?;
        let from = suspended.from.map(|from| format!(" from task {from}")).unwrap_or_default();
        let until = if suspended.until.is_some() { ", for a limited time" } else { "" };
        Some(format!("it waits for an event{from}{until}"))
    }
}

impl Scheduler {
    /// Sends letters and ends waits, where that is due.
    pub(crate) fn tend_mail(&mut self, now: Time, out: &mut Out) {
        self.home.ledger.end_waits(now);
        self.send_letters(now, out);
    }
}

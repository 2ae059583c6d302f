//! Questions of attempts that run here: whether the mailbox of another task takes an event. So a
//! command learns at once that the other task has ended, or that its mailbox is full. A question is
//! repeated until the other task's home answers.

use std::collections::BTreeMap;

use proto::wire::mail_name::Task as Named;
use proto::wire::message::Body;
use proto::{Attempt, LocalId, PartitionId, Span, TaskId, Time, wire};

use crate::Scheduler;
use crate::holder::Holder;
use crate::limits::{REPEAT_MAX, TURN_AGAIN};
use crate::output::Out;

/// The questions without an answer, by ticket.
pub(crate) type MailQuestions = BTreeMap<u64, Question>;

#[derive(Debug)]
pub(crate) struct Question {
    by: (TaskId, Attempt),
    query: wire::MailQuery,
    /// When it is asked again, and the pause after that.
    due: Time,
    pause: Span,
}

impl Holder {
    /// When a question is asked again.
    pub(crate) fn next_mail_question(&self) -> Option<Time> {
        self.mail_questions.as_ref()?.values().map(|question| question.due).min()
    }
}

fn answer(ticket: u64, refused: String, out: &mut Out) {
    out.mailboxes.get_or_insert_default().push((ticket, refused));
}

impl Scheduler {
    /// An attempt asks whether the mailbox of a task takes an event of this size. The answer
    /// repeats the ticket.
    pub fn on_mail_asked(
        &mut self,
        now: Time,
        (task, attempt): (TaskId, Attempt),
        (to, bytes): (wire::MailName, u32),
        ticket: u64,
        out: &mut Out,
    ) {
        let PartitionId(partition) = match to.task {
            Some(Named::Local(local)) => LocalId(local).partition(),
            // A task is born in the partition of its parent.
            Some(Named::Child(_) | Named::Parent(_)) | None => task.partition(),
        };
        if partition >= self.routing.homes().partitions() {
            return answer(ticket, "the job has no such task".to_owned(), out);
        }
        let (job, sender) = (task.job.0, task.local.0);
        let query = wire::MailQuery { job, partition, sender, to: Some(to), bytes, ticket };
        let (due, pause) = (now, TURN_AGAIN);
        let question = Question { by: (task, attempt), query, due, pause };
        self.holder.mail_questions.get_or_insert_default().insert(ticket, question);
    }

    pub(crate) fn on_mail_reply(&mut self, reply: wire::MailReply, out: &mut Out) {
        let Some(questions) = &mut self.holder.mail_questions else { return };
        if questions.remove(&reply.ticket).is_some() {
            answer(reply.ticket, reply.refused, out);
        }
        if questions.is_empty() {
            self.holder.mail_questions = None;
        }
    }

    /// Asks what is due. The question of an attempt that has ended is dropped.
    pub(crate) fn ask_mailboxes(&mut self, now: Time, out: &mut Out) {
        let Some(mut questions) = self.holder.mail_questions.take() else { return };
        questions.retain(|&ticket, question| {
            let (task, attempt) = question.by;
            let running = self.holder.running.get(&task);
            if running.is_none_or(|running| running.attempt != attempt) {
                answer(ticket, "the attempt has ended".to_owned(), out);
                return false;
            }
            if question.due <= now {
                question.due = now + question.pause;
                question.pause = question.pause.doubled().min(REPEAT_MAX);
                let partition = PartitionId(question.query.partition);
                if let Some(home) = self.routing.homes().active_owner(partition) {
                    out.reliable.push((home, Body::MailQuery(question.query)));
                }
            }
            true
        });
        self.holder.mail_questions = Some(questions).filter(|questions| !questions.is_empty());
    }
}

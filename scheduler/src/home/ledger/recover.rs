//! Recovery: loads stored records into the ledger, and resumes the work of the home.

use std::collections::BTreeMap;

use proto::work::{Captured, Used};
use proto::{Attempt, Incarnation, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use super::records::{End, State};
use super::{Ending, Ledger, Times, check_chunk};
use crate::Mutant;
use crate::output::Out;

/// The number of failures that a partition reports of a job.
const FAILURES_KEPT_PER_PARTITION: usize = 4;

/// One stored record. Those of one job and partition come in the order of the variants.
#[derive(Debug)]
pub enum LedgerRecord {
    Chunk(wire::Chunk),
    Visible(wire::VisibleRecord),
    Credit(wire::CreditRecord),
    End(wire::EndRecord),
    Holder(wire::HolderRecord),
    Start(wire::StartRecord),
    Turn(wire::TurnRecord),
    /// With the number of the record.
    Mail(u64, wire::MailRecord),
}

/// A record that contradicts the records before it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(pub String);

impl Ledger {
    pub(crate) fn load(
        &mut self,
        now: Time,
        partition: PartitionId,
        job: JobId,
        record: LedgerRecord,
    ) -> Result<(), RecordError> {
        let forgets = self.mutant == Some(Mutant::CancelForgottenOnRestart);
        let place = |index: u64| TaskId { job, local: LocalId::new(partition, index) };
        match record {
            LedgerRecord::Chunk(chunk) => {
                check_chunk(&chunk).map_err(|error| RecordError(error.to_string()))?;
                self.load_chunk(now, &chunk);
            }
            LedgerRecord::Visible(visible) => {
                let forgets_release = self.mutant == Some(Mutant::ReleaseForgottenOnRestart);
                let job = self.open_job(now, job);
                job.visible = true;
                // As when it was made visible: a clock that is behind the writer's clock, as
                // another home's may be, must not delay release times.
                let submitted = Time(visible.submitted_ns).min(now);
                job.submitted = if forgets_release { Time::ZERO } else { submitted };
                let settings = visible.settings.unwrap_or_default();
                job.enter(settings);
                if settings.round == job.round() {
                    job.ended |= visible.ended;
                    job.cancelled |= visible.cancelled && !forgets;
                }
                // Chunks are loaded before; a part that lacks some reports that again.
                let part = job.parts.get_or_default(partition);
                part.set_openness(visible.openness());
                part.demand(partition, visible.chunks);
                (part.visible, part.round) = (true, settings.round);
                part.keeps = visible.kept;
            }
            LedgerRecord::Credit(record) => {
                record.late.iter().for_each(|late| self.load_late_edges(late));
                let released = record.released.iter();
                released.for_each(|&index| self.load_released(job, partition, index));
                for credit in record.credits.iter().filter(|credit| credit.verdict == 0) {
                    if !credit.recalled.is_empty() {
                        let recalled = credit.child.iter().zip(&credit.slot).zip(&credit.recalled);
                        recalled.for_each(|((&index, &slot), &void)| {
                            self.load_recall(place(index), slot, credit.attempt, void);
                        });
                        continue;
                    }
                    let columns = credit.child.iter().zip(&credit.slot).zip(&credit.output);
                    for ((&index, &slot), &output) in columns {
                        self.apply_credit(place(index), credit, slot, output);
                    }
                }
            }
            LedgerRecord::End(record) => self.load_ends(record, place)?,
            LedgerRecord::Holder(record) => {
                for at in 0..record.index.len() {
                    self.load_holder(place(record.index[at]), &record, at)?;
                }
                self.load_moved_outputs(&record, place);
            }
            LedgerRecord::Start(record) => self.load_starts(&record, place)?,
            LedgerRecord::Turn(record) => {
                let task = place(record.index);
                self.load_turn(now, task, record)?;
            }
            LedgerRecord::Mail(number, record) => {
                self.load_mail(now, (job, partition), record, number);
            }
        }
        Ok(())
    }

    fn load_ends(
        &mut self,
        record: wire::EndRecord,
        place: impl Fn(u64) -> TaskId,
    ) -> Result<(), RecordError> {
        for &index in &record.reopened {
            if self.cell(place(index)).is_none() {
                let text = format!("task {} waits again but is not stored", place(index));
                return Err(RecordError(text));
            }
            // If an input was deleted meanwhile, the holder reports that, and it is made again.
            self.wait_again(place(index), true);
        }
        if let Some(&index) = record.reopened.first()
            && let Some(part) = self.part_mut(place(index))
        {
            part.forget_old_failures();
        }
        let mut details: BTreeMap<u64, wire::EndDetail> =
            record.details.into_iter().map(|detail| (detail.index, detail)).collect();
        let columns = record.index.iter().zip(&record.attempt).zip(&record.verdict);
        let times = |at: usize| record.times.get(at).copied().unwrap_or(0);
        for ((((&index, &attempt), &verdict), &node), at) in columns.zip(&record.node).zip(0..) {
            let times = Times { start: times(2 * at), took: times(2 * at + 1) };
            let task = place(index);
            let end = match verdict {
                0 => End::Done,
                1 => End::Failed,
                2 => End::Cancelled,
                3 => End::Skipped,
                _ => return Err(RecordError(format!("task {task} has the verdict {verdict}"))),
            };
            match self.cell(task).map(|cell| cell.state) {
                None => return Err(RecordError(format!("task {task} ended but is not stored"))),
                // Its outputs were lost and it ran again; or it was given up before it began.
                Some(State::Ended(End::Done)) if self.is_later(task, Attempt(attempt), end) => {
                    self.reopen(task);
                }
                Some(State::Ended(_)) => {
                    return Err(RecordError(format!("task {task} is stored as ended twice")));
                }
                Some(_) => {}
            }
            let detail = details.remove(&index).unwrap_or_default();
            if end == End::Failed {
                self.keep_failure(task, Attempt(attempt), NodeId(node), &detail);
            }
            let by = if end == End::Cancelled { detail.error.clone() } else { String::new() };
            let ending = Ending {
                output_sizes: detail.output_sizes,
                output_sums: detail.output_sums,
                changed: false,
                exit_code: detail.exit_code,
                error: detail.error,
                stderr_tail: detail.stderr_tail,
                captured: match self.mutant == Some(Mutant::CapturedForgotten) {
                    true => Captured::default(),
                    false => Captured {
                        stdout_bytes: detail.stdout_bytes,
                        stderr_bytes: detail.stderr_bytes,
                    },
                },
                used: Used { cpu_us: detail.cpu_us, max_rss_kib: detail.max_rss_kib },
                ..Ending::default()
            };
            self.apply_end(task, Attempt(attempt), end, NodeId(node), (ending, times));
            self.keep_canceller(task, &by);
            if end == End::Done && self.recalls.is_void(task, Attempt(attempt)) {
                self.take_end_back(task); // Its inputs follow from the recorded credits.
            }
        }
        Ok(())
    }

    /// Whether the attempt is of an earlier round of its job; then only its end counts.
    pub(super) fn is_earlier(&self, task: TaskId, attempt: Attempt) -> bool {
        let index = task.local.index();
        let segment = self.part(task).and_then(|part| part.segment(index));
        segment.is_some_and(|segment| segment.is_earlier(index, attempt))
    }

    fn is_later(&self, task: TaskId, attempt: Attempt, end: End) -> bool {
        let same_attempt_may_end = end != End::Done;
        self.cell(task).is_some_and(|cell| {
            cell.attempt < attempt || (cell.attempt == attempt && same_attempt_may_end)
        })
    }

    /// Adds a failure to the report of its part, which keeps only the first few.
    pub(crate) fn keep_failure(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        node: NodeId,
        detail: &wire::EndDetail,
    ) {
        if self.has_earlier_end(task) {
            return; // It stays done.
        }
        let name = self.name(task);
        let Some(part) = self.part_mut(task) else { return };
        if part.count.failures.len() < FAILURES_KEPT_PER_PARTITION {
            part.count.failures.push(wire::Failure {
                local: task.local.0,
                name,
                node: node.0,
                attempt: attempt.0,
                exit_code: detail.exit_code,
                error: detail.error.clone(),
                stderr_tail: detail.stderr_tail.clone(),
            });
        }
    }

    fn load_holder(
        &mut self,
        task: TaskId,
        record: &wire::HolderRecord,
        at: usize,
    ) -> Result<(), RecordError> {
        let (me, this, homes_move) = (self.me, (self.me, self.incarnation), self.homes_move);
        let attempt = Attempt(record.attempt[at]);
        if self.is_earlier(task, attempt) || self.recalls.is_void(task, attempt) {
            return Ok(());
        }
        let cell = self
            .cell_mut(task)
            .ok_or_else(|| RecordError(format!("task {task} is held but not stored")))?;
        if matches!(cell.state, State::Ended(_)) {
            return Ok(());
        }
        let holder = NodeId(record.node[at]);
        let was_waiting = cell.state == State::Waiting;
        let before = cell.holder;
        let incarnation = Incarnation(record.incarnation[at]);
        // The node that gave it away may not have known this incarnation yet; then it is examined
        // later.
        let is_known = incarnation != Incarnation(0) || !homes_move;
        if holder == me && (holder, incarnation) != this && is_known {
            // Tasks that an earlier incarnation of this node held died with it.
            cell.state = State::Waiting;
            cell.attempt = Attempt(record.attempt[at]);
            cell.died_here = true;
        } else {
            // If the holder is this very process, it took the task for an earlier home. Whether the
            // task is still here is examined later.
            cell.state = State::Ready;
            cell.attempt = Attempt(record.attempt[at]);
            cell.died_here = false;
        }
        cell.holder = holder;
        cell.holder_incarnation = incarnation;
        let is_waiting = cell.state == State::Waiting;
        self.waiting = self.waiting + u64::from(is_waiting) - u64::from(was_waiting);
        self.forget_held_remotely(before, task);
        if holder != me {
            self.held_remotely.entry(holder).or_default().insert(task);
        }
        Ok(())
    }

    /// After the last record: repeats the credits of ended tasks, asks the holders what they hold,
    /// and examines every task that may be ready.
    pub(crate) fn resume(&mut self, now: Time, out: &mut Out) {
        self.recalls.loaded();
        let mut parts = Vec::new();
        let mut cancelled = Vec::new();
        for (&job_id, job) in &mut self.jobs {
            cancelled.extend((job.cancelled && job.open > 0).then_some(job_id));
            if job.ended {
                job.share_keeps();
                self.live.remove(&job_id);
            } else if job.visible {
                job.report_everything(now);
            }
            parts.extend(job.parts.partitions().iter().map(|&partition| (job_id, partition)));
        }
        cancelled.into_iter().for_each(|job_id| self.go_on_removing(job_id));
        for (job_id, partition) in parts {
            self.resume_part(job_id, partition);
        }
        let away = self.held_remotely.iter();
        self.ask_holders(away.map(|(&holder, tasks)| (holder, tasks.iter().collect())), out);
    }
}

//! The properties of every message between nodes, in one table.
//!
//! [`traits`] has one row for each message and no default: without its row a message does not
//! compile.

use proto::wire::TallyStage;
use proto::wire::message::Body;
use proto::{Attempt, JobId, LocalId, PartitionId, wire};

use crate::routing::partition_owners::Homes;

/// The properties of one message between nodes.
#[derive(Clone, Copy, Debug)]
pub struct MessageTraits<'a> {
    /// The receiver: a node as such, or the owners of partitions, which the message follows.
    pub addressed_to: AddressedTo<'a>,
    /// The message is irrevocable at the receiver: the sender's batch is synced on all replicas
    /// first.
    pub durable_before_send: bool,
    /// The message still has a meaning for the next incarnation of the receiver.
    pub survives_restart: bool,
    /// The receiver deletes objects or records. A message to the sender itself waits for the sync
    /// too.
    pub frees_data: bool,
    /// The message returns one that was not accepted. Until the receiver has the returned message,
    /// the sender acknowledges nothing to the receiver.
    pub gives_back: bool,
    /// The link that carries the message, and whether the message may be lost there.
    pub channel: Channel,
}

/// The receiver of a message, with the part of the message that names it.
#[derive(Clone, Copy, Debug)]
pub enum AddressedTo<'a> {
    /// The node as such. The message has no meaning for any other node.
    Node,
    /// The owner of this partition.
    Partition(PartitionId),
    /// The owner of this job.
    Job(JobId),
    /// The owners of the partitions of a commit. One message for each.
    Commit(&'a wire::Visible),
    /// The owners of the tasks that ended. One message for each.
    Ended(&'a [wire::Completion]),
    /// The owners of the children that are credited. One message for each.
    Children(&'a wire::Credits),
    /// The owners of the parents that are asked for. One message for each.
    Parents(&'a [wire::CreditRequest]),
    /// The owners of the tasks that are not held. One message for each.
    TasksNotHeld(&'a wire::TasksNotHeld),
    /// The owners of the tasks that made these outputs. One message for each.
    Makers(&'a [wire::OutputReaders]),
    /// The owner of the task that took this turn.
    Turn(&'a wire::Turn),
    /// The owner of all these tasks. Never split, since one answer is about all of them.
    TasksMoved(&'a wire::TasksMoved),
}

/// The link that carries a message, and whether it may be lost there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// In order and at least once, whatever happens to the receiver.
    Reliable,
    /// At most once. The sender repeats the message, or does not need it.
    BestEffort,
    /// The sender chooses, depending on the content.
    Either,
    /// The link that carries replicas of partitions. The scheduler never sees it.
    Replication,
    /// Links exchange such messages among themselves.
    Transport,
}

impl Channel {
    /// Whether the scheduler may send such a message in [`crate::Out::reliable`].
    #[must_use]
    pub fn is_reliable(self) -> bool {
        match self {
            Self::Reliable | Self::Either => true,
            Self::BestEffort | Self::Replication | Self::Transport => false,
        }
    }
    /// Whether the scheduler may send such a message in [`crate::Out::best_effort`].
    #[must_use]
    pub fn is_best_effort(self) -> bool {
        match self {
            Self::BestEffort | Self::Either => true,
            Self::Reliable | Self::Replication | Self::Transport => false,
        }
    }
}

const YES: bool = true;
const NO: bool = false;

/// The row of a message.
#[must_use]
#[rustfmt::skip] // One row a message.
#[expect(clippy::too_many_lines, reason = "a table with one row a message")]
pub fn traits(body: &Body) -> MessageTraits<'_> {
    use AddressedTo::{Children, Commit, Ended, Job, Makers};
    use AddressedTo::{Node, Parents, Partition, TasksMoved, TasksNotHeld, Turn};
    use Channel::{BestEffort, Either, Reliable, Replication, Transport};
    let row = |addressed_to, durable, survives_restart, frees_data, gives_back, channel| {
        let durable_before_send = durable;
        MessageTraits {
            addressed_to, durable_before_send, survives_restart, frees_data, gives_back, channel,
        }
    };
    match body {
        //                        addressed to       durable  survives  frees  gives  channel
        //                                           before   restart   data   back
        // Tasks between owners, holders and thieves. Owners place again what a restarted node held.
        Body::Push(_)             => row(Node,                NO,  NO,  NO,  NO,   Reliable),
        Body::StealProbe(_)       => row(Node,                NO,  NO,  NO,  NO,   BestEffort),
        Body::StealLoad(_)        => row(Node,                NO,  NO,  NO,  NO,   BestEffort),
        Body::StealHint(_)        => row(Node,                NO,  NO,  NO,  NO,   BestEffort),
        Body::StealRequest(_)     => row(Node,                NO,  NO,  NO,  NO,   BestEffort),
        // Best effort only where the grant has no tasks.
        Body::StealGrant(_)       => row(Node,                NO,  NO,  NO,  NO,   Either),
        Body::StealDone(_)        => row(Node,                NO,  NO,  NO,  NO,   Reliable),
        // The thief repeats the report itself, in its own order.
        Body::TasksMoved(it)      => row(TasksMoved(it),      NO,  NO,  NO,  NO,   Reliable),
        // The victim forgets tasks after their owner has confirmed them.
        Body::TasksMovedAck(_)    => row(Node,                YES, NO,  NO,  NO,   Reliable),
        Body::RevokeAttempts(_)   => row(Node,                NO,  NO,  NO,  NO,   Reliable),
        Body::HeldTasksQuery(_)   => row(Node,                NO,  NO,  NO,  NO,   Reliable),
        Body::TasksNotHeld(it)    => row(TasksNotHeld(it),    NO,  YES, NO,  NO,   Reliable),

        // Ends and credits. A skipped child never runs.
        Body::Finished(it)        => row(Ended(&it.completions), NO, YES, NO, NO,   Reliable),
        Body::Credits(it)         => row(Children(it), are_final(it), YES, NO,  NO,   Reliable),
        Body::CreditQuery(it)     => row(Parents(&it.requests), NO,  YES, NO,  NO,   Either),
        // A recall follows the credits of the earlier attempt.
        Body::Recall(it)          => row(readers_of(it),       YES, YES, NO,  NO,   Reliable),
        // This answer follows the counts. The parent's new end must not outlive the ends that it
        // revoked.
        Body::Recalled(it)        => row(answered(it),        YES, YES, NO,  NO,   Reliable),

        // Turns. A process may act on the answer, which cannot be undone. Spawned tasks wait too.
        Body::Turn(it)            => row(Turn(it),            NO,  YES, NO,  NO,   Reliable),
        Body::TurnReply(_)        => row(Node,                YES, NO,  YES, NO,   Reliable),
        Body::ChunksBorn(_)       => row(Node,                YES, NO,  YES, NO,   Reliable),
        // The waiting task's home asks again. A verdict that a task has seen does not change.
        Body::AwaitQuery(it)      => row(Partition(PartitionId(it.partition)),
                                                              NO,  NO,  NO,  NO,   Reliable),
        Body::AwaitReply(it)      => row(of_task(it.waiter),  YES, NO,  NO,  NO,   Reliable),

        // Events. The sender repeats letters and questions. A task that has read a letter cannot
        // forget it.
        Body::Letters(it)         => row(Partition(PartitionId(it.to)),
                                                              YES, NO,  NO,  NO,   Reliable),
        Body::LettersKept(it)     => row(Partition(PartitionId(it.from)),
                                                              YES, NO,  NO,  NO,   Reliable),
        Body::LettersSynced(_)    => row(Node,                YES, NO,  YES, NO,   Reliable),
        Body::MailQuery(it)       => row(Partition(PartitionId(it.partition)),
                                                              NO,  NO,  NO,  NO,   Reliable),
        Body::MailReply(_)        => row(Node,                NO,  NO,  NO,  NO,   Reliable),

        // Open jobs. The home of the children asks again until all homes of parents have answered.
        Body::Join(it)            => row(Job(JobId(it.job)),  NO,  NO,  NO,  NO,   Reliable),
        Body::JoinRefused(it)     => row(Partition(PartitionId(it.partition)),
                                                              YES, NO,  NO,  NO,   Reliable),
        Body::LateEdges(it)       => row(Partition(PartitionId(it.partition)),
                                                              YES, NO,  NO,  NO,   Reliable),
        Body::LateEdgesKept(it)   => row(Partition(PartitionId(it.child_partition)),
                                                              YES, NO,  NO,  NO,   Reliable),

        // Variables. A synced value waits for the sync at its home too: turns rest on it.
        Body::VarSet(it)          => row(Job(JobId(it.job)),  NO,  YES, NO,  NO,   Reliable),
        Body::VarPush(it)         => row(Node,         it.synced, NO, it.synced, NO, Reliable),

        // Jobs. Clients see counts and ends. A job that is visible or cancelled elsewhere stays so.
        Body::Gang(_)             => row(Node,                NO,  NO,  NO,  NO,   Reliable),
        Body::Visible(it)         => row(Commit(it),          YES, YES, NO,  NO,   Reliable),
        Body::JobCounts(it)       => row(Job(JobId(it.job)),  YES, YES, NO,  NO,   Reliable),
        Body::Cancel(_)           => row(Node,                YES, YES, NO,  NO,   Reliable),
        // "Unknown job" must not arrive after a later commit of that job has taken effect.
        Body::JobEnd(it)          => row(Node,    !it.unknown, YES, !it.unknown, NO,   Reliable),
        // If the commit is lost, a member would never learn of the job's end. The owner asks again.
        Body::TallyQuery(it)      => row(Node,      YES, NO, deletes_records(it), NO, Reliable),
        // A member drops its own counts once the summary is durable.
        Body::TallyReport(it)     => row(Job(JobId(it.job)),  it.forgotten, NO, NO, NO,   Reliable),
        Body::ProgressQuery(_)    => row(Node,                NO,  NO,  NO,  NO,   BestEffort),
        Body::ProgressReport(_)   => row(Node,                NO,  NO,  NO,  NO,   BestEffort),
        Body::DeathQuery(_)       => row(Node,                NO,  NO,  NO,  NO,   BestEffort),
        Body::DeathReport(_)      => row(Node,                NO,  NO,  NO,  NO,   BestEffort),

        // Objects. A power cut may undo the end of a reader, which then needs its inputs again.
        Body::Copies(_)           => row(Node,                NO,  YES, NO,  NO,   BestEffort),
        Body::Locate(_)           => row(Node,                NO,  NO,  NO,  NO,   BestEffort),
        Body::Located(_)          => row(Node,                NO,  NO,  NO,  NO,   BestEffort),
        Body::ReadersFinished(it) => row(Makers(&it.outputs), YES, YES, YES, NO,   Reliable),
        Body::FreeObjects(_)      => row(Node,                YES, YES, YES, NO,   Reliable),
        // The leaving node asks again.
        Body::OutputTransfer(_)   => row(Node,                NO,  NO,  NO,  NO,   Either),

        // The next incarnation of its sender repeats the bounced message from its records.
        Body::WrongOwner(_)       => row(Node,                NO,  NO,  NO,  YES,  Reliable),
        // Each fragment has the properties of the message that it is part of.
        Body::Fragment(_)         => row(Node,                NO,  NO,  NO,  NO,   Transport),

        // Replicas of partitions. The next incarnation is another replica, which the map lists.
        Body::Replicate(_)        => row(Node,                NO,  NO,  NO,  NO,   Replication),
        Body::Replicated(it)      => row(Node,      NO,  NO,  NO,  refuses(it),    Replication),
        Body::ReplicaQueries(_)   => row(Node,                NO,  NO,  NO,  NO,   Replication),
        Body::ReplicaAnswers(_)   => row(Node,                NO,  NO,  NO,  NO,   Replication),
        Body::LeaseRequest(_)     => row(Node,                NO,  NO,  NO,  NO,   Replication),
        Body::LeaseGrant(_)       => row(Node,                NO,  NO,  NO,  NO,   Replication),
        Body::SlowProbe(_)        => row(Node,                NO,  NO,  NO,  NO,   Replication),
        Body::SlowProbeReply(_)   => row(Node,                NO,  NO,  NO,  NO,   Replication),
    }
}

/// A recall is sent to the owner of the readers.
fn readers_of(recall: &wire::Recall) -> AddressedTo<'_> {
    AddressedTo::Partition(PartitionId(recall.partition))
}

/// A message to the owner of one task.
fn of_task(local: u64) -> AddressedTo<'static> {
    AddressedTo::Partition(LocalId(local).partition())
}

/// The answer to a recall is sent to the job's owner, and from there to the parent's owner.
fn answered(answer: &wire::Recalled) -> AddressedTo<'_> {
    if answer.counted {
        AddressedTo::Partition(LocalId(answer.parent).partition())
    } else {
        AddressedTo::Job(JobId(answer.job))
    }
}

/// Whether a replica refused a part of the primary's message.
fn refuses(told: &wire::Replicated) -> bool {
    !told.refused.is_empty()
}

fn are_final(credits: &wire::Credits) -> bool {
    credits.credits.iter().any(is_final)
}

/// Whether a parent failed, or other nodes read bytes with a checksum, which must not change.
pub(crate) fn is_final(credit: &wire::Credit) -> bool {
    credit.verdict != wire::Verdict::Done as i32 || credit.checked
}

/// Whether the member removes records. A power cut may undo the mark of a job that is to be
/// forgotten or thinned.
fn deletes_records(ask: &wire::TallyQuery) -> bool {
    match ask.stage() {
        TallyStage::Forget | TallyStage::Thin => true,
        TallyStage::Begins | TallyStage::Ends | TallyStage::Recorded => false,
    }
}

impl AddressedTo<'_> {
    /// Visits every partition that the message is about; none for a message to a node as such.
    /// Partitions of a whole job or commit that do not exist are left out.
    pub(crate) fn each_partition(&self, homes: &Homes, mut visit: impl FnMut(PartitionId)) {
        let of = |local: u64| LocalId(local).partition();
        let exists = |partition: &PartitionId| partition.0 < homes.partitions();
        match *self {
            Self::Node => {}
            Self::Partition(partition) => {
                Some(partition).filter(exists).into_iter().for_each(visit)
            }
            Self::Job(job) => {
                Some(homes.job_partition(job)).filter(exists).into_iter().for_each(visit);
            }
            Self::Commit(visible) => {
                let totals = visible.commit.iter().flat_map(|commit| &commit.partitions);
                let partitions = totals.map(|total| PartitionId(total.partition));
                partitions.filter(exists).for_each(visit);
            }
            Self::Ended(ends) => ends.iter().for_each(|end| visit(of(end.local))),
            Self::Children(credits) => {
                let children = credits.credits.iter().flat_map(|credit| &credit.child);
                children.for_each(|&child| visit(of(child)));
            }
            Self::Parents(asks) => asks.iter().for_each(|ask| visit(of(ask.parent))),
            Self::TasksNotHeld(it) => it.tasks.iter().for_each(|task| visit(of(task.local))),
            Self::Makers(outputs) => outputs.iter().for_each(|output| visit(of(output.task))),
            Self::TasksMoved(moved) => moved.tasks.iter().for_each(|task| visit(of(task.local))),
            Self::Turn(turn) => {
                Some(of(turn.local)).filter(exists).into_iter().for_each(visit);
            }
        }
    }

    /// Visits every attempt that the addressed owner itself has started, by task.
    pub(crate) fn each_attempt(&self, mut visit: impl FnMut(LocalId, Attempt)) {
        match *self {
            Self::Ended(ends) => {
                ends.iter().for_each(|end| visit(LocalId(end.local), Attempt(end.attempt)));
            }
            Self::TasksNotHeld(told) => {
                told.tasks.iter().for_each(|it| visit(LocalId(it.local), Attempt(it.attempt)))
            }
            Self::TasksMoved(moved) => {
                moved.tasks.iter().for_each(|it| visit(LocalId(it.local), Attempt(it.attempt)));
            }
            Self::Turn(turn) => visit(LocalId(turn.local), Attempt(turn.attempt)),
            Self::Node
            | Self::Partition(_)
            | Self::Job(_)
            | Self::Commit(_)
            | Self::Children(_)
            | Self::Parents(_)
            | Self::Makers(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_durable(body: &Body) -> bool {
        traits(body).durable_before_send
    }
    fn frees(body: &Body) -> bool {
        traits(body).frees_data
    }

    /// The answer must not wait for a sync. Meanwhile the client may commit the job again, and the
    /// node that asked may get tasks of it: a late answer would delete their outputs.
    #[test]
    fn an_unknown_job_is_reported_at_once() {
        let end = |unknown| {
            Body::JobEnd(wire::JobEnd { job: 1, unknown, question: 1, ..Default::default() })
        };
        assert!(is_durable(&end(false)) && frees(&end(false)));
        assert!(!is_durable(&end(true)) && !frees(&end(true)));
    }

    /// On a cluster without replicas a power cut may undo the mark of a forgotten job, but not the
    /// deletion.
    #[test]
    fn what_removes_records_of_ended_jobs_waits_for_the_sync_of_their_mark() {
        let ask = |stage: TallyStage| {
            Body::TallyQuery(wire::TallyQuery { job: 1, stage: stage as i32, ..Default::default() })
        };
        for stage in [TallyStage::Forget, TallyStage::Thin] {
            assert!(is_durable(&ask(stage)) && frees(&ask(stage)), "{stage:?}");
        }
        for stage in [TallyStage::Begins, TallyStage::Ends, TallyStage::Recorded] {
            assert!(!frees(&ask(stage)), "{stage:?}");
        }
    }

    /// A power cut may undo the end of a task after a reader on another node has ended; the next
    /// attempt may make other bytes.
    #[test]
    fn a_completion_with_readable_outputs_is_synced_first() {
        let credits = |checked| {
            let credits = vec![wire::Credit { checked, ..Default::default() }];
            Body::Credits(wire::Credits { credits, reconciled: false })
        };
        assert!(is_durable(&credits(true)));
        assert!(!is_durable(&credits(false)), "no-ops do not wait");
    }
}

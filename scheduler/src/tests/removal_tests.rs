//! The end of a cancelled job: its home waits until each part knows of the cancellation.

use proto::wire::message::Body;
use proto::{Attempt, ClientId, JobId, NodeId, PartitionId, Time, wire};

use crate::output::Out;
use crate::tests::test_nodes;
use crate::{LedgerRecord, Policy, Request, Scheduler, Tuning};

/// Node 0 in a cluster of two: home of the first partition and of all jobs.
fn home(out: &mut Out) -> Scheduler {
    let members = (0..2).map(test_nodes::member).collect();
    let homes = test_nodes::homes(0, members, &[0, 1]).moving();
    let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    home.serve(Time(0), PartitionId(0), 2, out);
    home
}

/// A job that is homed on node 0. All its tasks are in the partition of node 1.
fn job(home: &Scheduler) -> JobId {
    let is_mine = |&job: &u64| home.routing.homes().job_home(JobId(job)) == NodeId(0);
    JobId((1..100).find(is_mine).expect("half of all ids"))
}

fn counts(job: JobId, version: u64, ends: (u64, u64), removing: bool) -> Body {
    let (done, cancelled) = ends;
    let count =
        wire::PartitionCount { partition: 1, version, done, cancelled, ..Default::default() };
    Body::JobCounts(wire::JobCounts { job: job.0, partitions: vec![count], removing, question: 0 })
}

/// Node 1 counted both tasks as done. Then one of them ran again, and the job was cancelled.
#[test]
fn a_cancelled_job_ends_when_each_part_knows_that_it_is_cancelled() {
    let mut out = Out::default();
    let mut home = home(&mut out);
    let job = job(&home);
    let total = wire::PartitionTotal { partition: 1, chunks: 1, tasks: 3 };
    let commit = wire::JobCommit { job: job.0, partitions: vec![total], ..Default::default() };
    home.on_request(Time(1), ClientId(1), 1, Request::Commit(commit), &mut out);
    home.on_message(Time(2), NodeId(1), counts(job, 1, (2, 0), false), &mut out);
    let cancel = wire::Cancel { job: job.0, ..Default::default() };
    home.on_request(Time(3), ClientId(1), 2, Request::Cancel(cancel), &mut out);
    let ends = |out: &mut Out| {
        let sent = std::mem::take(&mut out.reliable);
        sent.into_iter().filter(|(_, body)| matches!(body, Body::JobEnd(_))).count()
    };
    ends(&mut out);
    home.on_message(Time(4), NodeId(1), counts(job, 2, (3, 0), false), &mut out);
    assert_eq!(ends(&mut out), 0, "node 1 did not know of the cancellation");
    home.on_message(Time(5), NodeId(1), counts(job, 3, (2, 1), true), &mut out);
    assert_ne!(ends(&mut out), 0);
    let sum = home.home.jobs.summaries().next().and_then(|state| state.sum).unwrap_or_default();
    assert_eq!((sum.done, sum.cancelled), (2, 1));
}

/// All tasks of the part have ended, so no further end causes a report.
#[test]
fn a_part_reports_when_it_learns_of_the_cancellation() {
    let mut out = Out::default();
    let members = (0..2).map(test_nodes::member).collect();
    let homes = test_nodes::homes(0, members, &[0, 1]).moving();
    let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let chunk = wire::Chunk {
        job: 1,
        specs: vec![wire::Spec::default()],
        tasks: vec![wire::Task::default()],
        ..Default::default()
    };
    let end = wire::EndRecord {
        index: vec![0],
        attempt: vec![Attempt(1 << 32 | 1).0],
        verdict: vec![wire::Verdict::Done as u32],
        node: vec![0],
        ..Default::default()
    };
    let visible = wire::VisibleRecord { chunks: 1, ..Default::default() };
    let records =
        [LedgerRecord::Chunk(chunk), LedgerRecord::Visible(visible), LedgerRecord::End(end)];
    for record in records {
        home.adopt(Time(0), PartitionId(0), JobId(1), record).expect("records fit one another");
    }
    home.serve(Time(0), PartitionId(0), 2, &mut out);
    home.settle(Time(0), &mut out);
    home.act(Time(0), &mut out);
    out.reliable.clear();
    let cancel = Body::Cancel(wire::Cancel { job: 1, ..Default::default() });
    home.on_message(Time(1), NodeId(1), cancel, &mut out);
    home.settle(Time(1), &mut out);
    home.act(Time(1), &mut out);
    let knows = out.reliable.iter().filter_map(|(_, body)| match body {
        Body::JobCounts(counts) => Some((counts.removing, counts.partitions.len())),
        _ => None,
    });
    assert_eq!(knows.collect::<Vec<_>>(), [(true, 1)]);
}

//! What a node holds of a job goes when the job is over, and not because it was unknown once.

use proto::wire::message::Body;
use proto::work::Outcome;
use proto::{Attempt, JobId, NodeId, PartitionId, TaskId, Time, wire};

use crate::out::Out;
use crate::staging_tests::{placed, push};
use crate::{Homes, Policy, Scheduler, Tuning, test_nodes};

/// Who is home of the job.
fn homes(of_job: u32) -> Homes {
    test_nodes::homes(0, (0..3).map(test_nodes::member).collect(), &[of_job, 1]).moving()
}

fn task(index: u64) -> TaskId {
    TaskId::new(1, placed(index, vec![], 0).local)
}

/// Has made an output for a task of node 1, and asks the job's new home, node 2, whether the job
/// has ended.
fn asking() -> (Scheduler, Out) {
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(1));
    let mut out = Out::default();
    push(&mut node, vec![placed(0, vec![], 5_000)], &mut out);
    node.act(Time(0), &mut out);
    assert_eq!(out.launches.len(), 1);
    let outcome = Outcome { output_sizes: vec![5_000], ..Outcome::default() };
    node.on_finished(Time(0), task(0), Attempt(1), outcome, &mut out);
    node.act(Time(0), &mut out);
    node.set_homes(Time(0), homes(2), &mut out);
    assert_eq!(asked(&mut out), [NodeId(2)]);
    (node, out)
}

fn asked(out: &mut Out) -> Vec<NodeId> {
    let is_ask = |body: &Body| matches!(body, Body::Counts(it) if it.partitions.is_empty());
    let asks = std::mem::take(&mut out.reliable).into_iter().filter(|(_, body)| is_ask(body));
    asks.map(|(to, _)| to).collect()
}

fn hear(node: &mut Scheduler, unknown: bool, out: &mut Out) {
    let end = Body::JobEnd(wire::JobEnd { job: 1, unknown });
    node.on_message(Time(0), NodeId(2), end, out);
}

fn holds_something(node: &Scheduler) -> bool {
    node.data.objects.firm_bytes() > 0
}

#[test]
fn what_was_made_for_a_job_that_nobody_knows_goes() {
    for unknown in [false, true] {
        let (mut node, mut out) = asking();
        assert!(holds_something(&node));
        hear(&mut node, unknown, &mut out);
        assert!(!holds_something(&node) && asked(&mut out).is_empty());
    }
}

/// The answer was on its way, again and again, when the client committed the job once more.
#[test]
fn where_something_has_come_since_its_home_is_asked_once_more() {
    let (mut node, mut out) = asking();
    push(&mut node, vec![placed(1, vec![], 0)], &mut out);
    hear(&mut node, true, &mut out);
    assert!(holds_something(&node), "it may be of use");
    assert_eq!(asked(&mut out), [NodeId(2)]);
    hear(&mut node, true, &mut out);
    assert!(!holds_something(&node), "nothing has come since");
    let (mut node, mut out) = asking();
    push(&mut node, vec![placed(1, vec![], 0)], &mut out);
    hear(&mut node, false, &mut out);
    assert!(!holds_something(&node), "what is over is over");
}

/// An earlier home of the job may be heard of later than the one that has taken the commit.
#[test]
fn a_job_that_is_visible_here_is_known() {
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(1));
    let mut out = Out::default();
    node.on_message(Time(0), NodeId(1), visible(), &mut out);
    assert_eq!(node.has_ended(JobId(1)), Some(false));
    hear(&mut node, true, &mut out);
    assert_eq!(node.has_ended(JobId(1)), Some(false));
    hear(&mut node, false, &mut out);
    assert_eq!(node.has_ended(JobId(1)), Some(true));
}

fn visible() -> Body {
    let total = wire::PartitionTotal { partition: PartitionId(2).0, ..Default::default() };
    let commit = wire::JobCommit { job: 1, partitions: vec![total], ..Default::default() };
    Body::Visible(wire::Visible { commit: Some(commit) })
}

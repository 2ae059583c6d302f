//! Decisions by earliest finish: the deciding figures, and properties for all inputs.

use proto::{NodeId, Span, Time, wire};

use crate::holder::task::Work;
use crate::tests::test_nodes;
use crate::{Decision, Policy, Scheduler, Tuning};

const SECOND: Span = Span::from_secs(1);
const MB: u64 = 1_000_000;

pub(crate) fn work(inputs: Vec<wire::InputAt>, cpus: u32) -> Work {
    Work {
        spec: wire::Spec { cpus, ..Default::default() }.into(),
        settings: Default::default(),
        entry: 0,
        duration: SECOND,
        urgency: 0,
        output_sizes: Vec::new(),
        name: Box::default(),
        payload: Default::default(),
        inputs,
        deaths: 0,
        alone: false,
        again: false,
        depth: 0,
        resume: None,
    }
}

fn input(node: u32, size_bytes: u64, copies: &[u32]) -> wire::InputAt {
    let copies = copies.to_vec();
    wire::InputAt { node, size_bytes, consumers: 1, copies, ..Default::default() }
}

/// Node 0 of four; the last one has a single slot.
fn home(tuning: Tuning) -> Scheduler {
    let member =
        |node| wire::Member { slots: if node == 3 { 1 } else { 4 }, ..test_nodes::member(node) };
    let homes = test_nodes::homes(0, (0..4).map(member).collect(), &[0, 1, 2, 3]);
    test_nodes::scheduler(0, 4, tuning, homes)
}

#[test]
fn what_was_measured_of_a_source_decides_whether_its_data_comes_here() {
    // Node 1 has a bit more than node 2; most of the bytes are divided between them.
    let task = work(vec![input(1, 110 * MB, &[]), input(2, 100 * MB, &[])], 1);
    let tuning = Tuning { bandwidth_bytes_per_s: 1e8, threshold: 0.01, ..Tuning::of(Policy::Eft) };
    let mut home = home(tuning);
    assert_eq!(home.decide_earliest(Time(0), &task), Decision::Push(NodeId(1)), "as assumed");
    // Both deliver at 1 GB/s to this node, and others so slowly that the mean stays as it was.
    for _ in 0..8 {
        home.policy.note_transfer(NodeId(1), 1_000 * MB, SECOND);
        home.policy.note_transfer(NodeId(2), 1_000 * MB, SECOND);
    }
    for _ in 0..200 {
        home.policy.note_transfer(NodeId(3), 100 * MB, SECOND);
    }
    let mean = home.policy.estimates().bandwidth(1.0);
    assert!((0.9e8..1.2e8).contains(&mean), "{mean}");
    let decided = home.decide_earliest(Time(0), &task);
    assert!(!matches!(decided, Decision::Push(_)), "0.21 s to bring both here: {decided:?}");
    // A copy at a slow node makes the source no slower; a copy at a fast node makes it faster.
    let slow = work(vec![input(3, 200 * MB, &[])], 1);
    let copied = work(vec![input(3, 200 * MB, &[1])], 1);
    assert!(home.moving_here_s(&slow) > 1.9, "{}", home.moving_here_s(&slow));
    assert!(home.moving_here_s(&copied) < 0.3, "{}", home.moving_here_s(&copied));
    let here = work(vec![input(3, 200 * MB, &[0]), input(0, MB, &[])], 1);
    assert_eq!(home.moving_here_s(&here), 0.0);
}

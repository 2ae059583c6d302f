//! Variants of a request: how long tasks wait for the preferred one.

use std::time::Duration;

use proto::wire::message::Body;
use proto::{Attempt, LocalId, NodeId, Time, wire};
use resources::{Offer, Request as Needs, Totals};

use crate::Scheduler;
use crate::output::Out;
use crate::tests::resources_tests::{
    SLOTS, bytes, explained, node, offer, push_shared, push_with, spec, with_gpus,
};
use crate::tests::test_nodes;

const PATIENCE: Duration = Duration::from_secs(1);
/// The last instant at which tasks that came at 0 wait.
const BEFORE: Time = Time(999_999_999);
const AFTER: Time = Time(1_000_000_000);
const EITHER: &str = "cpus=1, gpus=1 | cpus=2";

fn with_cpus() -> Offer {
    offer(&["cpus=4"], &[])
}

fn patient(needs: &str) -> wire::Spec {
    let request = needs.parse::<Needs>().expect("it is a request").with_patience(PATIENCE);
    wire::Spec { request: request.encode(), ..spec(needs, 0) }
}

fn push(node: &mut Scheduler, number: u64, out: &mut Out) {
    push_with(node, number, patient(EITHER), out);
}

/// `waited`: places of tasks with a patience that was over.
pub(super) fn push_granted(
    node: &mut Scheduler,
    number: u64,
    spec: wire::Spec,
    waited: Vec<u32>,
    out: &mut Out,
) {
    let local = LocalId::new(proto::PartitionId(1), number).0;
    let task = wire::Placed { job: 1, local, attempt: 1, ..Default::default() };
    let settings = vec![wire::JobSettings { real_data: true, ..Default::default() }];
    let bundle = Some(wire::Bundle { specs: vec![spec], settings, tasks: vec![task] });
    let grant = wire::StealGrant { steal: number, bundle, waited, ..Default::default() };
    node.on_message(Time(0), NodeId(1), Body::StealGrant(grant), out);
}

/// The tasks that start, each with its variant.
fn starts(node: &mut Scheduler, now: Time, out: &mut Out) -> Vec<(u64, u8)> {
    node.act(now, out);
    let launches = out.launches.drain(..);
    let variant = |granted: Option<Box<proto::work::Granted>>| granted.map_or(0, |it| it.variant);
    launches.map(|it| (it.task.local.index(), variant(it.granted))).collect()
}

/// Installs a map of node 0 and others, each with its offer and its phase.
fn install(node: &mut Scheduler, now: Time, members: &[(&Offer, wire::MemberPhase)]) {
    let member = |(number, &(offer, phase)): (u32, &(&Offer, wire::MemberPhase))| wire::Member {
        slots: SLOTS,
        phase: phase as i32,
        offer: Totals::from(offer).encode(),
        ..test_nodes::member(number)
    };
    let members = (0..).zip(members).map(member).collect();
    node.set_homes(now, test_nodes::homes(0, members, &[0, 1]), &mut Out::default());
}

/// The number of tasks that a thief with these free amounts gets.
fn stolen(node: &mut Scheduler, now: Time, steal: u64, thief: u32, free: &[u64]) -> usize {
    let (mut out, free_amounts) = (Out::default(), free.to_vec());
    let request = wire::StealRequest { steal, slots: SLOTS, free: SLOTS, held: 0, free_amounts };
    node.on_message(now, NodeId(thief), Body::StealRequest(request), &mut out);
    let bundles = out.reliable.iter().filter_map(|(_, body)| match body {
        Body::StealGrant(grant) => grant.bundle.as_ref(),
        _ => None,
    });
    bundles.map(|bundle| bundle.tasks.len()).sum()
}

#[test]
fn a_task_waits_for_the_variant_that_another_node_offers() {
    let (mut node, mut out) = (node(&with_cpus(), &[&with_gpus()]), Out::default());
    push(&mut node, 1, &mut out);
    assert!(starts(&mut node, Time(0), &mut out).is_empty());
    let explained = explained(&mut node, 1);
    assert!(explained.contains("waits for cpus=1, gpus=1, as node n1 offers it"), "{explained}");
    assert!(node.deadline(Time(0)).is_some_and(|at| at <= AFTER));
    assert!(starts(&mut node, BEFORE, &mut out).is_empty());
    assert_eq!(starts(&mut node, AFTER, &mut out), [(1, 1)]);
}

#[test]
fn a_variant_that_no_other_node_can_better_is_open_at_once() {
    let (mut node, mut out) = (node(&with_cpus(), &[&with_cpus()]), Out::default());
    push(&mut node, 1, &mut out);
    assert_eq!(starts(&mut node, Time(0), &mut out), [(1, 1)]);
}

#[test]
fn without_patience_any_variant_that_fits_is_taken() {
    let (mut node, mut out) = (node(&with_cpus(), &[&with_gpus()]), Out::default());
    push_with(&mut node, 1, spec(EITHER, 0), &mut out);
    assert_eq!(starts(&mut node, Time(0), &mut out), [(1, 1)]);
}

#[test]
fn the_largest_weight_is_preferred() {
    let (mut node, mut out) = (node(&with_cpus(), &[&with_gpus()]), Out::default());
    push_with(&mut node, 1, patient("cpus=1, gpus=1 | cpus=2, weight=2"), &mut out);
    assert_eq!(starts(&mut node, Time(0), &mut out), [(1, 1)]);
}

#[test]
fn the_cpus_of_a_node_wait_for_its_gpus() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_cpus()]), Out::default());
    (1..=3).for_each(|number| push(&mut node, number, &mut out));
    assert_eq!(starts(&mut node, Time(0), &mut out), [(1, 0), (2, 0)]);
    let explained = explained(&mut node, 3);
    assert!(explained.contains("waits for gpus: 1 of 2 nodes offer enough"), "{explained}");
    assert!(explained.contains("another variant is open in 1s"), "{explained}");
    assert!(starts(&mut node, BEFORE, &mut out).is_empty());
    assert_eq!(starts(&mut node, AFTER, &mut out), [(3, 1)]);
}

#[test]
fn a_thief_without_the_preferred_variant_gets_nothing_meanwhile() {
    let own = with_cpus();
    let (mut node, mut out) = (node(&own, &[&with_cpus(), &with_gpus()]), Out::default());
    (1..=9).for_each(|number| push(&mut node, number, &mut out));
    assert!(starts(&mut node, Time(0), &mut out).is_empty());
    let gpus = [4 * 10_000, 2 * 10_000, 0];
    assert_eq!(stolen(&mut node, Time(0), 1, 1, &[40_000]), 0);
    assert_eq!(stolen(&mut node, Time(0), 1, 2, &gpus), 2, "two GPUs are free there");
    assert_eq!(starts(&mut node, AFTER, &mut out).len(), 2, "all of its cpus");
    assert_eq!(stolen(&mut node, AFTER, 2, 1, &[40_000]), 2, "as many as fit its cpus");
}

#[test]
fn a_stolen_task_has_waited_at_the_victim() {
    let (mut node, mut out) = (node(&with_cpus(), &[&with_gpus()]), Out::default());
    push_shared(&mut node, 1, patient(EITHER), &mut out);
    assert_eq!(starts(&mut node, Time(0), &mut out), [(1, 1)]);
}

/// A node with the preferred variant, which is not free there, gets a task that has waited.
#[test]
fn a_stolen_task_that_has_waited_takes_another_variant() {
    for (waited, starts_at_once) in [(vec![0], true), (Vec::new(), false)] {
        let (mut node, mut out) = (node(&with_gpus(), &[&with_cpus()]), Out::default());
        let both = wire::Spec { request: bytes("gpus=2"), ..spec("gpus=2", 0) };
        push_with(&mut node, 1, both, &mut out);
        assert_eq!(starts(&mut node, Time(0), &mut out), [(1, 0)]);
        push_granted(&mut node, 2, patient(EITHER), waited, &mut out);
        assert_eq!(!starts(&mut node, Time(0), &mut out).is_empty(), starts_at_once);
    }
}

#[test]
fn the_offers_of_the_nodes_decide_what_is_preferred() {
    use wire::MemberPhase::{Down, Up};
    let (cpus, gpus) = (with_cpus(), with_gpus());
    let (mut node, mut out) = (node(&cpus, &[&gpus]), Out::default());
    push(&mut node, 1, &mut out);
    assert!(starts(&mut node, Time(0), &mut out).is_empty());
    install(&mut node, Time(1), &[(&cpus, Up), (&gpus, Down)]);
    assert_eq!(starts(&mut node, Time(1), &mut out), [(1, 1)], "no other node is left");
    push(&mut node, 2, &mut out);
    push(&mut node, 3, &mut out);
    assert_eq!(starts(&mut node, Time(1), &mut out), [(2, 1)]);
    install(&mut node, Time(2), &[(&cpus, Up), (&gpus, Up)]);
    let task =
        proto::TaskId { job: proto::JobId(1), local: LocalId::new(proto::PartitionId(1), 1) };
    node.on_finished(Time(2), task, Attempt(1), Box::default(), &mut out);
    assert!(starts(&mut node, Time(3), &mut out).is_empty(), "it waits for the node that is back");
    assert_eq!(starts(&mut node, Time(3 + AFTER.0), &mut out), [(3, 1)]);
}

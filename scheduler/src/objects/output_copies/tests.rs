//! The nodes that are asked to take a replica, and the times.

use proto::wire::message::Body;
use proto::work::Stored;
use proto::{Attempt, TaskId};

use super::*;
use crate::limits::COPIES_FIRST_MAX;
use crate::objects::limits::LOCATE_TIMEOUT;
use crate::tests::test_nodes;
use crate::{Policy, Tuning};

const NOW: Time = Time(1_000_000_000);
const MADE: AttemptKey = (TaskId { job: JobId(1), local: proto::LocalId(0) }, Attempt(7));

/// One of three nodes with fixed homes; kept outputs are to be on two nodes.
fn maker() -> (Scheduler, wire::Spec) {
    let homes = test_nodes::homes(0, (0..3).map(test_nodes::member).collect(), &[0]);
    let output = wire::Output { keep: true, replicas: 2, ..wire::Output::default() };
    let spec = wire::Spec { outputs: vec![output], ..wire::Spec::default() };
    (test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes), spec)
}
fn ends(maker: &mut Scheduler, spec: &wire::Spec, out: &mut Out) -> bool {
    let (task, attempt) = MADE;
    maker.objects.table.made(ObjectId { task, attempt, output: 0 }, 10, true, true);
    let outcome = Outcome { output_sizes: vec![10], ..Outcome::default() };
    let ended =
        UnreportedEnd { at: NOW, started: NOW, reads: Reads::default(), outcome: outcome.into() };
    maker.share_first(NOW, MADE, (spec, true), ended, out).is_some()
}
fn asked(out: &mut Out) -> Vec<u32> {
    let said = std::mem::take(&mut out.best_effort).into_iter();
    let to_copy = |body: &Body| match body {
        Body::OutputTransfer(said) => said.stage() == TransferStage::Replicate,
        _ => false,
    };
    said.filter(|(_, body)| to_copy(body)).map(|(node, _)| node.0).collect()
}
fn answers(maker: &mut Scheduler, from: u32, stage: TransferStage, out: &mut Out) {
    let (task, attempt) = (MADE.0.local.0, MADE.1.0);
    let transferred =
        wire::AttemptOutputs { job: 1, task, attempt, ..wire::AttemptOutputs::default() };
    maker.on_replication_answer(NOW, (NodeId(from), stage), &[transferred], out);
}

#[test]
fn a_completion_is_reported_when_another_node_has_the_output() {
    let ((mut maker, spec), mut out) = (maker(), Out::default());
    assert!(!ends(&mut maker, &spec, &mut out));
    assert_eq!(asked(&mut out), [1]);
    assert!(maker.objects.output_copies.holds_back(&MADE));
    answers(&mut maker, 1, TransferStage::NoSpaceToReplicate, &mut out);
    assert_eq!(asked(&mut out), [2], "the next one");
    answers(&mut maker, 2, TransferStage::Replicated, &mut out);
    assert!(!maker.objects.output_copies.holds_back(&MADE));
    assert_eq!((maker.lacking_copies(), maker.objects.output_copies.deadline()), (0, None));
}

/// The home has lost the record of the attempt's end in a power cut.
#[test]
fn a_node_with_a_copy_of_the_same_attempt_is_not_asked_again() {
    let ((mut maker, spec), mut out) = (maker(), Out::default());
    assert!(!ends(&mut maker, &spec, &mut out));
    assert!(!ends(&mut maker, &spec, &mut out), "no node has it yet");
    answers(&mut maker, 1, TransferStage::Replicated, &mut out);
    assert!(ends(&mut maker, &spec, &mut out));
    assert_eq!(maker.objects.output_copies.deadline(), None);
}

#[test]
fn without_room_elsewhere_the_completion_is_reported_and_a_copy_is_lacking() {
    let ((mut maker, spec), mut out) = (maker(), Out::default());
    assert!(!ends(&mut maker, &spec, &mut out));
    answers(&mut maker, 1, TransferStage::NoSpaceToReplicate, &mut out);
    answers(&mut maker, 2, TransferStage::NoSpaceToReplicate, &mut out);
    assert!(!maker.objects.output_copies.holds_back(&MADE));
    assert_eq!(maker.lacking_copies(), 1);
    out.best_effort.clear();
    maker.copy_outputs(NOW + COPY_RETURN_TIMEOUT, &mut out);
    assert_eq!(asked(&mut out), [1], "there may be room now");
    answers(&mut maker, 1, TransferStage::Replicated, &mut out);
    assert_eq!(maker.lacking_copies(), 0);
}

#[test]
fn a_new_node_is_asked_at_once() {
    let ((mut maker, spec), mut out) = (maker(), Out::default());
    assert!(!ends(&mut maker, &spec, &mut out));
    answers(&mut maker, 1, TransferStage::NoSpaceToReplicate, &mut out);
    answers(&mut maker, 2, TransferStage::NoSpaceToReplicate, &mut out);
    let same = maker.routing.homes().clone();
    maker.look_for_takers(NOW, &same);
    assert_eq!(maker.objects.output_copies.deadline(), Some(NOW + COPY_RETURN_TIMEOUT));
    let smaller = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0]);
    maker.look_for_takers(NOW, &smaller);
    assert_eq!(maker.objects.output_copies.deadline(), Some(NOW));
}

#[test]
fn a_silent_node_is_not_waited_for_without_failover() {
    let ((mut maker, spec), mut out) = (maker(), Out::default());
    assert!(!ends(&mut maker, &spec, &mut out));
    let (mut now, mut tries) = (NOW, asked(&mut out));
    while maker.objects.output_copies.holds_back(&MADE) {
        now = now + LOCATE_TIMEOUT + LOCATE_TIMEOUT;
        maker.copy_outputs(now, &mut out);
        tries.extend(asked(&mut out));
    }
    assert_eq!(tries, [1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(maker.lacking_copies(), 1);
}

/// An output that a task of another job has left here.
fn stored(local: u64, keep: bool) -> Stored {
    let task = TaskId { job: JobId(2), local: proto::LocalId(local) };
    let object = ObjectId { task, attempt: Attempt(7), output: 0 };
    Stored { object, size_bytes: 10, stay: keep.into(), copy: false }
}

#[test]
fn what_was_found_leaves_room_for_what_ends() {
    let ((mut maker, spec), mut out) = (maker(), Out::default());
    let many = (0..2 * COPIES_FIRST_MAX as u64).map(|local| stored(local, true));
    let many: Vec<Stored> = many.collect();
    maker.on_stored(NOW, &many);
    maker.copy_outputs(NOW + COPY_RETURN_TIMEOUT + COPY_RETURN_TIMEOUT, &mut out);
    assert_eq!(asked(&mut out).len(), COPIES_FIRST_MAX / 2);
    assert!(!ends(&mut maker, &spec, &mut out));
    assert_eq!(asked(&mut out), [1]);
}

/// For outputs on its disk, a node that was asked for a replica waits longer than the node that
/// asked.
#[test]
fn a_restarted_node_asks_for_the_copies_of_its_kept_outputs() {
    let homes = test_nodes::homes(0, (0..3).map(test_nodes::member).collect(), &[0]);
    let mut starts = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    // For the fourth task, this node is the first one asked.
    starts.on_stored(NOW, &[stored(3, true), stored(4, true), stored(5, false)]);
    assert_eq!(starts.lacking_copies(), 2);
    let mut out = Out::default();
    starts.copy_outputs(NOW + COPY_RETURN_TIMEOUT, &mut out);
    assert_eq!(asked(&mut out), [1], "of the fifth; the sixth is not to be kept");
    starts.copy_outputs(NOW + COPY_RETURN_TIMEOUT + COPY_RETURN_TIMEOUT, &mut out);
    assert_eq!(asked(&mut out), [1, 1], "the fifth again, and no node about the fourth");
}

/// The client has put it on the replicas of its task's partition, which need not fetch it.
#[test]
fn an_upload_goes_first_to_those_that_have_the_file() {
    let homes = test_nodes::homes_with_copies(0, 4, &[&[0, 3]]);
    let mut maker = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let body = Some(wire::spec::Body::Upload(wire::Upload {}));
    let outputs = vec![wire::Output::default()];
    let spec = wire::Spec { outputs, body, ..wire::Spec::default() };
    let mut out = Out::default();
    assert!(!ends(&mut maker, &spec, &mut out), "no node could make it again");
    assert_eq!(asked(&mut out), [3]);
    answers(&mut maker, 3, TransferStage::NoSpaceToReplicate, &mut out);
    assert_eq!(asked(&mut out), [1], "and then to any");
}

/// The upload is not a kept output, and yet it stays while its job runs.
#[test]
fn a_restarted_node_asks_for_the_job_of_an_uploaded_file() {
    let homes = test_nodes::homes(0, (0..3).map(test_nodes::member).collect(), &[0]);
    let mut starts = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    starts.on_stored(NOW, &[stored(1, false), stored(4, false)]);
    let without = TaskId { job: JobId(2), local: proto::LocalId(9) };
    starts.on_files(NOW, &[stored(4, false).object.task, without]);
    let mut out = Out::default();
    starts.copy_outputs(NOW + COPY_RETURN_TIMEOUT, &mut out);
    assert_eq!(asked(&mut out), [1]);
    assert_eq!(starts.lacking_copies(), 1);
}

fn of_two_copies(me: u32, nodes: u32, gone: &[u32]) -> Homes {
    let phase = |node| match gone.contains(&node) {
        true => wire::MemberPhase::Down,
        false => wire::MemberPhase::Up,
    };
    let member = |node| wire::Member { phase: phase(node) as i32, ..test_nodes::member(node) };
    test_nodes::homes(me, (0..nodes).map(member).collect(), &[0])
}

#[test]
fn a_node_that_is_alone_asks_when_another_one_comes() {
    let ((_, spec), mut out) = (maker(), Out::default());
    let tuning = Tuning::of(Policy::Mlb);
    let mut alone = test_nodes::scheduler(0, 1, tuning, of_two_copies(0, 1, &[]));
    assert!(ends(&mut alone, &spec, &mut out), "its end is told at once");
    assert_eq!((alone.lacking_copies(), alone.objects.output_copies.deadline()), (0, None));
    let before = alone.routing.replace_homes(of_two_copies(0, 2, &[]));
    assert_eq!(alone.lacking_copies(), 1, "by the newer map");
    alone.look_for_takers(NOW, &before);
    alone.copy_outputs(NOW, &mut out);
    assert_eq!(asked(&mut out), [1]);
    answers(&mut alone, 1, TransferStage::Replicated, &mut out);
    assert_eq!(alone.lacking_copies(), 0);
}

/// All nodes start at the same time, and each asks the others: none of them may stop at that.
#[test]
fn two_that_ask_each_other_go_on_until_there_are_three() {
    let mut out = Out::default();
    let mut map = of_two_copies(0, 3, &[]);
    map.want(3);
    let mut starts = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), map);
    starts.on_stored(NOW, &[stored(4, true)]);
    assert_eq!(starts.lacking_copies(), 1);
    let output =
        wire::TransferredOutput { size_bytes: 10, keep: true, real: true, ..Default::default() };
    let outputs = vec![output];
    let transferred = wire::AttemptOutputs { job: 2, task: 4, attempt: 7, outputs, replicas: 3 };
    starts.add_copy_for(NodeId(1), transferred, &mut out);
    assert_eq!(starts.lacking_copies(), 1, "one of two others has it");
    out.best_effort.clear();
    starts.copy_outputs(NOW + COPY_RETURN_TIMEOUT, &mut out);
    assert_eq!(asked(&mut out), [2]);
}

/// Three were wanted, and the maker was lost while there were two nodes.
#[test]
fn a_copy_makes_up_for_those_that_its_maker_could_not_have_made() {
    let mut out = Out::default();
    let tuning = Tuning::of(Policy::Mlb);
    let mut holder = test_nodes::scheduler(1, 1, tuning, of_two_copies(1, 2, &[]));
    let (task, attempt) = MADE;
    holder.objects.table.made(ObjectId { task, attempt, output: 0 }, 10, true, true);
    let output =
        wire::TransferredOutput { size_bytes: 10, keep: true, real: true, ..Default::default() };
    let transferred = wire::AttemptOutputs {
        job: task.job.0,
        task: task.local.0,
        attempt: attempt.0,
        outputs: vec![output],
        replicas: 3,
    };
    holder.add_copy_for(NodeId(0), transferred, &mut out);
    holder.routing.replace_homes(of_two_copies(1, 4, &[0]));
    holder.objects.output_copies.forget_node(NOW, NodeId(0));
    assert_eq!(holder.lacking_copies(), 1);
    out.best_effort.clear();
    holder.copy_outputs(NOW + COPY_RETURN_TIMEOUT, &mut out);
    assert_eq!(asked(&mut out), [2, 3]);
}

fn starts_with(nodes: u32, found: &[(u64, Stay)]) -> Scheduler {
    let homes = of_two_copies(0, nodes, &[]);
    let mut starts = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let found = found.iter().map(|&(local, stay)| Stored { stay, ..stored(local, false) });
    starts.on_stored(NOW, &found.collect::<Vec<_>>());
    starts
}

/// The stored figures: three replicas of one kept output, two of one that is not kept, one of a
/// kept output that stays here alone.
#[test]
fn a_restarted_holder_asks_for_the_number_of_copies_that_the_maker_wanted() {
    let stay = |keep, share| Stay { keep, share };
    let mut out = Out::default();
    let found = [(4, stay(true, Some(3))), (4 + 4, stay(true, Some(1)))];
    let mut starts = starts_with(4, &found);
    assert_eq!(starts.lacking_copies(), 1, "one of the two is to lie here alone");
    starts.copy_outputs(NOW + COPY_RETURN_TIMEOUT + COPY_RETURN_TIMEOUT, &mut out);
    assert_eq!(asked(&mut out), [1, 2], "three nodes are to have it");
    let mut starts = starts_with(4, &[(4, stay(false, Some(2))), (8, stay(false, None))]);
    assert_eq!(starts.lacking_copies(), 1, "nothing was said of the other");
    starts.copy_outputs(NOW + COPY_RETURN_TIMEOUT + COPY_RETURN_TIMEOUT, &mut out);
    assert_eq!(asked(&mut out), [1]);
}

/// The copy was made from a node with the client's file. This node has no file; all nodes have
/// restarted.
#[test]
fn a_copy_of_an_upload_asks_for_another_after_a_restart() {
    let uploaded = Stay { keep: false, share: Some(0) };
    let mut starts = starts_with(3, &[(4, uploaded)]);
    assert_eq!(starts.lacking_copies(), 1);
    let mut out = Out::default();
    starts.copy_outputs(NOW + COPY_RETURN_TIMEOUT + COPY_RETURN_TIMEOUT, &mut out);
    assert_eq!(asked(&mut out).len(), 1);
}

/// A node that left the cluster had the upload.
#[test]
fn a_new_home_of_an_upload_makes_its_copies() {
    let uploaded = Stay { keep: false, share: Some(0) };
    let homes = of_two_copies(0, 3, &[]);
    let mut taker = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let (task, attempt) = MADE;
    taker.objects.table.take(ObjectId { task, attempt, output: 0 }, 10, true, uploaded);
    taker.share_taken(MADE);
    assert_eq!(taker.lacking_copies(), 1);
    let outputs = taker.objects.table.outputs_of(MADE);
    assert_eq!(outputs[0].share, Some(0), "the message says that no node can make it again");
    let mut out = Out::default();
    taker.copy_outputs(NOW, &mut out);
    assert_eq!(asked(&mut out).len(), 1);
}

/// The client's file lies here, and so does what was made of it: one node of it was asked for.
#[test]
fn an_output_of_an_upload_lies_here_alone_where_its_file_says_so() {
    for (share, lacking) in [(Some(1), 0), (Some(2), 1), (None, 1)] {
        let mut starts = starts_with(3, &[(4, Stay { keep: false, share })]);
        starts.on_files(NOW, &[stored(4, false).object.task]);
        assert_eq!(starts.lacking_copies(), lacking, "{share:?}");
    }
}

/// The map of node 3.
fn leaving_of_four(leaving: &[u32]) -> Homes {
    map_of_four(leaving, &[], &[])
}

fn map_of_four(leaving: &[u32], down: &[u32], slow: &[u32]) -> Homes {
    let phase = |node| match (leaving.contains(&node), down.contains(&node)) {
        (true, _) => wire::MemberPhase::Leaving,
        (_, true) => wire::MemberPhase::Down,
        _ => wire::MemberPhase::Up,
    };
    let member = |node| wire::Member {
        phase: phase(node) as i32,
        slow: slow.contains(&node),
        ..test_nodes::member(node)
    };
    test_nodes::homes(3, (0..4).map(member).collect(), &[0])
}

/// The node gets a newer map, and does a step.
fn follow(holder: &mut Scheduler, map: Homes, now: Time, out: &mut Out) {
    let older = holder.routing.replace_homes(map);
    holder.follow_drain(now, out);
    holder.look_for_takers(now, &older);
    holder.act(now, out);
}

/// One of four nodes with a copy of another node's output.
fn holder_that_leaves() -> Scheduler {
    let mut out = Out::default();
    let mut holder = test_nodes::scheduler(3, 1, Tuning::of(Policy::Mlb), of_two_copies(3, 4, &[]));
    let (task, attempt) = MADE;
    holder.objects.table.made(ObjectId { task, attempt, output: 0 }, 10, true, true);
    let output =
        wire::TransferredOutput { size_bytes: 10, keep: true, real: true, ..Default::default() };
    let (job, task, attempt) = (task.job.0, task.local.0, attempt.0);
    let outputs = vec![output];
    let transferred = wire::AttemptOutputs { job, task, attempt, outputs, replicas: 2 };
    holder.add_copy_for(NodeId(0), transferred, &mut out);
    let homes = leaving_of_four(&[3]);
    holder.routing.replace_homes(homes);
    holder.follow_drain(NOW, &mut out);
    holder
}

/// The nodes that are to take over the output.
fn offered(out: &mut Out) -> Vec<u32> {
    let said = std::mem::take(&mut out.best_effort).into_iter();
    let to = |body: Body| match body {
        Body::OutputTransfer(said) if said.stage() == TransferStage::Offered => Some(said.to),
        _ => None,
    };
    said.filter_map(|(_, body)| to(body)).collect()
}

#[test]
fn a_leaving_node_hands_over_when_enough_others_have_a_copy() {
    let (mut holder, mut out) = (holder_that_leaves(), Out::default());
    holder.act(NOW, &mut out);
    assert_eq!(asked(&mut out), [1], "the maker has it");
    assert!(!holder.is_drained() && !holder.is_drain_blocked());
    answers(&mut holder, 1, TransferStage::NoSpaceToReplicate, &mut out);
    assert_eq!(asked(&mut out), [2]);
    answers(&mut holder, 2, TransferStage::Replicated, &mut out);
    holder.act(NOW, &mut out);
    assert_eq!(offered(&mut out), [0], "to a node that has it");
}

#[test]
fn a_leaving_node_stays_while_no_other_has_space_for_a_copy() {
    let (mut holder, mut out) = (holder_that_leaves(), Out::default());
    holder.act(NOW, &mut out);
    answers(&mut holder, 1, TransferStage::NoSpaceToReplicate, &mut out);
    answers(&mut holder, 2, TransferStage::NoSpaceToReplicate, &mut out);
    holder.act(NOW, &mut out);
    assert_eq!(offered(&mut out), Vec::<u32>::new());
    assert!(!holder.is_drained() && holder.is_drain_blocked());
    holder.act(NOW + HANDOVER_PAUSE, &mut out);
    assert_eq!(asked(&mut out), [1], "there may be space now");
    answers(&mut holder, 1, TransferStage::Replicated, &mut out);
    assert!(!holder.is_drain_blocked());
    holder.act(NOW + HANDOVER_PAUSE, &mut out);
    assert_eq!(offered(&mut out).len(), 1);
}

/// The maker leaves as well. Then it does not count, until the map shows it as a node that stays.
#[test]
fn a_leaving_node_looks_at_each_map_for_nodes_that_stay() {
    let (mut holder, mut out) = (holder_that_leaves(), Out::default());
    holder.act(NOW, &mut out);
    answers(&mut holder, 1, TransferStage::Replicated, &mut out);
    out.best_effort.clear();
    follow(&mut holder, leaving_of_four(&[0, 3]), NOW, &mut out);
    assert_eq!(asked(&mut out), [2]);
    follow(&mut holder, leaving_of_four(&[3]), NOW, &mut out);
    assert_eq!(offered(&mut out), [0], "the maker and node 1 have it");
}

#[test]
fn a_node_asked_before_the_drain_is_asked_again() {
    let ((mut maker, spec), mut out) = (maker(), Out::default());
    assert!(!ends(&mut maker, &spec, &mut out));
    assert_eq!(asked(&mut out), [1]);
    maker.leave_copies(NOW);
    let mut now = NOW;
    for _ in 0..3 {
        now = now + LOCATE_TIMEOUT + LOCATE_TIMEOUT;
        maker.copy_outputs(now, &mut out);
    }
    assert_eq!(asked(&mut out), [1, 1, 1], "it was silent");
}

/// The maker is lost while all others leave; then one of these stays.
#[test]
fn a_leaving_node_asks_another_node_than_the_lost_one() {
    let (mut holder, mut out) = (holder_that_leaves(), Out::default());
    follow(&mut holder, map_of_four(&[1, 2, 3], &[0], &[]), NOW, &mut out);
    holder.objects.output_copies.forget_node(NOW, NodeId(0));
    let later = NOW + COPY_RETURN_TIMEOUT;
    holder.act(later, &mut out);
    assert_eq!(asked(&mut out), Vec::<u32>::new(), "no node stays");
    follow(&mut holder, map_of_four(&[2, 3], &[0], &[]), later, &mut out);
    assert_eq!(asked(&mut out), [1]);
}

/// No work is given to a slow node, and it may be lost as well as others.
#[test]
fn a_slow_node_with_a_copy_is_one_of_two() {
    let (mut holder, mut out) = (holder_that_leaves(), Out::default());
    follow(&mut holder, map_of_four(&[2, 3], &[], &[0]), NOW, &mut out);
    assert_eq!(asked(&mut out), [1]);
}

#[test]
fn each_answer_lets_the_next_attempt_begin() {
    let ((mut maker, _), mut out) = (maker(), Out::default());
    let many: Vec<Stored> = (0..COPIES_FIRST_MAX as u64).map(|local| stored(local, true)).collect();
    maker.on_stored(NOW, &many);
    let now = NOW + COPY_RETURN_TIMEOUT + COPY_RETURN_TIMEOUT;
    maker.copy_outputs(now, &mut out);
    let (to, Body::OutputTransfer(said)) = out.best_effort[0].clone() else { panic!("it asks") };
    assert_eq!(asked(&mut out).len(), COPIES_FIRST_MAX / 2);
    let bare = wire::AttemptOutputs { outputs: Vec::new(), ..said.attempts[0].clone() };
    maker.on_replication_answer(now, (to, TransferStage::Replicated), &[bare], &mut out);
    assert_eq!(maker.objects.output_copies.deadline(), Some(Time::ZERO), "at once");
    maker.copy_outputs(now, &mut out);
    assert_eq!(asked(&mut out).len(), 1);
}

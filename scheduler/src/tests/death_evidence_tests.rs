//! Which nodes have lived through a death, and how the death of a single node counts.

use proto::wire::message::Body;
use proto::wire::{LifeEnd, MemberPhase};
use proto::{Incarnation, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::limits::WITNESSES_ASKED_AFTER;
use crate::output::Out;
use crate::tests::test_nodes;
use crate::{Homes, LedgerRecord, Options, Policy, Scheduler, Tuning};

const JOB: JobId = JobId(1);
const MINE: PartitionId = PartitionId(0);

fn homes(dead: &[u32], nodes: u32) -> Homes {
    homes_without(dead, MemberPhase::Down, nodes)
}

fn homes_without(gone: &[u32], gone_as: MemberPhase, nodes: u32) -> Homes {
    let member = |node| {
        let phase = if gone.contains(&node) { gone_as } else { MemberPhase::Up };
        wire::Member { phase: phase as i32, ..test_nodes::member(node) }
    };
    test_nodes::homes(0, (0..nodes).map(member).collect(), &[0]).moving()
}

/// Node 0 in its third incarnation.
fn node(homes: Homes) -> Scheduler {
    let (me, incarnation) = (NodeId(0), Incarnation(3));
    let former = (Incarnation(2), LifeEnd::LifeDied);
    let tuning = Tuning::of(Policy::Mlb);
    Scheduler::new(
        Options {
            me,
            incarnation,
            slots: 1,
            offer: None,
            end: None,
            tuning,
            seed: 1,
            former,
            mutant: None,
        },
        homes,
    )
}

/// The node becomes home of a command that its earlier incarnation had started, alone on its node.
fn serve_what_was_started(home: &mut Scheduler, by: u32, out: &mut Out) {
    serve_started(home, by, Vec::new(), &[wire::StartFact::Started], out);
}

/// As above: attempt 7 has these facts of starts, and the other records are loaded before them.
fn serve_started(
    home: &mut Scheduler,
    by: u32,
    before: Vec<LedgerRecord>,
    facts: &[wire::StartFact],
    out: &mut Out,
) {
    let body = Some(wire::spec::Body::Command(wire::Command::default()));
    let chunk = wire::Chunk {
        job: JOB.0,
        specs: vec![wire::Spec { body, ..Default::default() }],
        tasks: vec![wire::Task::default()],
        ..Default::default()
    };
    let settings = Some(wire::JobSettings::default());
    let visible = wire::VisibleRecord { settings, chunks: 1, ..Default::default() };
    let started = wire::StartRecord {
        index: vec![0; facts.len()],
        attempt: vec![7; facts.len()],
        node: vec![0; facts.len()],
        incarnation: vec![by; facts.len()],
        fact: facts.iter().map(|&fact| fact as i32).collect(),
    };
    let mut records = vec![LedgerRecord::Chunk(chunk), LedgerRecord::Visible(visible)];
    records.extend(before);
    records.push(LedgerRecord::Start(started));
    for record in records {
        home.adopt(Time(1), MINE, JOB, record).expect("records fit one another");
    }
    home.serve(Time(1), MINE, 9, out);
    for _ in 0..3 {
        home.settle(Time(1), out);
    }
}

fn crash_count(home: &Scheduler) -> u8 {
    home.home.ledger.crash_count(TaskId { job: JOB, local: LocalId::new(MINE, 0) })
}

/// A recall came while a home asked for witnesses of a death, and then this home died, too. The
/// next home asks again. Nothing is asked about an attempt that had ended or still ran.
#[test]
fn a_recall_does_not_hide_a_death_that_was_not_judged() {
    use wire::StartFact::{StartOver, Started};
    let recall = |void: u64| {
        let (parent, attempt) = (1 << 40, 9);
        let (child, slot, output, recalled) = (vec![0], vec![0], vec![0], vec![void]);
        let credit = wire::Credit {
            job: JOB.0,
            parent,
            attempt,
            child,
            slot,
            output,
            recalled,
            ..Default::default()
        };
        let credits = vec![credit];
        LedgerRecord::Credit(wire::CreditRecord { credits, ..Default::default() })
    };
    let end = || {
        let (index, attempt) = (vec![0], vec![7]);
        let verdict = vec![wire::Verdict::Done as u32];
        LedgerRecord::End(wire::EndRecord {
            index,
            attempt,
            verdict,
            node: vec![0],
            ..Default::default()
        })
    };
    for (before, facts, expected) in [
        (vec![recall(7)], &[Started][..], 1),
        (vec![recall(7), end()], &[Started], 0),
        (vec![recall(7)], &[Started, StartOver], 0),
        (vec![recall(8)], &[Started], 0),
    ] {
        let mut home = node(homes(&[], 1));
        serve_started(&mut home, 2, before, facts, &mut Out::default());
        assert_eq!(crash_count(&home), expected, "{facts:?}");
    }
}

#[test]
fn a_node_that_was_alone_before_it_died_is_its_own_witness() {
    for (nodes, began_alone, by, expected) in [
        (1, true, 2, 1),
        (1, true, 1, 1), // There was never another node.
        (2, true, 2, 1),
        (2, false, 2, 0), // The other node has died since.
        (2, true, 1, 0),  // Or in the incarnation between.
    ] {
        let mut home = node(homes(&[1], nodes));
        if began_alone {
            home.note_began_alone();
        }
        let mut out = Out::default();
        serve_what_was_started(&mut home, by, &mut out);
        assert_eq!(crash_count(&home), expected, "{nodes} {began_alone} {by}");
    }
}

/// The second of three nodes died at the same time; the map shows it once the first lives again.
#[test]
fn a_node_that_the_map_has_lost_since_may_have_lived() {
    for (saw, expected) in [(false, 1), (true, 0)] {
        let mut home = node(homes(&[1], 3));
        let mut out = Out::default();
        if saw {
            home.note_peer_death(Time(1), NodeId(1));
        }
        serve_what_was_started(&mut home, 2, &mut out);
        let later = Time(1) + WITNESSES_ASKED_AFTER;
        home.settle(later, &mut out);
        assert!(out.best_effort.iter().any(|(_, body)| matches!(body, Body::DeathQuery(_))));
        let end = LifeEnd::LifeDied as i32;
        let report = wire::DeathReport { node: 0, incarnation: 2, heard: true, end };
        home.on_message(later, NodeId(2), Body::DeathReport(report), &mut out);
        home.settle(later, &mut out);
        assert_eq!(crash_count(&home), expected, "{saw}");
    }
}

/// As above, but the second one has handed over all that it had and was removed, perhaps after an
/// earlier death (seeds 31053184, 31056715).
#[test]
fn a_node_that_has_left_in_order_is_not_waited_for() {
    let left = MemberPhase::Removed;
    for (gone_as, died_before, expected) in
        [(MemberPhase::Down, false, 0), (left, false, 1), (left, true, 1)]
    {
        let mut home = node(homes_without(&[1], gone_as, 3));
        let mut out = Out::default();
        if died_before {
            home.note_peer_death(Time(1), NodeId(1));
        }
        home.note_life(NodeId(1), Incarnation(1));
        home.on_peer_gone(Time(1), NodeId(1), Incarnation(1), &mut out);
        serve_what_was_started(&mut home, 2, &mut out);
        let later = Time(1) + WITNESSES_ASKED_AFTER;
        home.settle(later, &mut out);
        let end = LifeEnd::LifeDied as i32;
        let report = wire::DeathReport { node: 0, incarnation: 2, heard: true, end };
        home.on_message(later, NodeId(2), Body::DeathReport(report), &mut out);
        home.settle(later, &mut out);
        assert_eq!(crash_count(&home), expected, "{gone_as:?} {died_before}");
    }
}

/// A node that was let in and never started can be no witness.
#[test]
fn a_node_that_never_started_is_not_waited_for() {
    let never = wire::Member { incarnation: 0, ..test_nodes::member(1) };
    let of = |others: Vec<wire::Member>| {
        let members = std::iter::once(test_nodes::member(0)).chain(others).collect();
        let mut home = node(test_nodes::homes(0, members, &[0]).moving());
        let mut out = Out::default();
        serve_what_was_started(&mut home, 2, &mut out);
        (home, out)
    };
    assert_eq!(crash_count(&of(vec![never.clone()]).0), 1, "it has always been alone");
    let (mut home, mut out) = of(vec![never, test_nodes::member(2)]);
    let later = Time(1) + WITNESSES_ASKED_AFTER;
    home.settle(later, &mut out);
    let end = LifeEnd::LifeDied as i32;
    let report = wire::DeathReport { node: 0, incarnation: 2, heard: true, end };
    home.on_message(later, NodeId(2), Body::DeathReport(report), &mut out);
    home.settle(later, &mut out);
    assert_eq!(crash_count(&home), 1);
}

/// A packet may have been sent before this incarnation began. Only one that names this incarnation
/// proves that both have lived together (seeds 22041511, 22047046, 22047997).
#[test]
fn a_packet_for_no_incarnation_makes_no_witness() {
    let heard = |witness: &mut Scheduler, incarnation| {
        let (mut out, ask) = (Out::default(), wire::DeathQuery { node: 1, incarnation });
        witness.on_message(Time(2), NodeId(1), Body::DeathQuery(ask), &mut out);
        match out.best_effort.pop() {
            Some((_, Body::DeathReport(report))) => report.heard,
            other => panic!("{other:?}"),
        }
    };
    let stays = || test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0]);
    for homes in [homes(&[], 2), stays()] {
        let mut witness = node(homes);
        witness.on_peer_incarnation(Time(1), NodeId(1), Incarnation(4), &mut Out::default());
        assert!(!heard(&mut witness, 4));
        witness.on_peer_incarnation(Time(1), NodeId(1), Incarnation(5), &mut Out::default());
        assert!(!heard(&mut witness, 4), "nor does that another one has come");
        witness.note_life(NodeId(1), Incarnation(4));
        assert!(heard(&mut witness, 4));
    }
    // Nothing is older than a first incarnation.
    let mut first = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), stays());
    for incarnation in [4, 5] {
        let life = Incarnation(incarnation);
        first.on_peer_incarnation(Time(1), NodeId(1), life, &mut Out::default());
        assert!(heard(&mut first, incarnation) && heard(&mut first, 4));
    }
}

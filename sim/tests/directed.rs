//! Directed scenarios: a node dies at one exact point, and the job must end all the same.

use std::collections::BTreeSet;

use node::Effect;
use prost::Message as _;
use proto::{Event, JobId, NodeId, PartitionId, Span, wire};
use sim::{Action, ClientPlan, Death, Draft, SimRng, World, WorldOptions};

const JOB: u64 = 0x5eed_0000_0000;

fn world(seed: u64, nodes: u32, slots: u32) -> World {
    let mut options = WorldOptions::healthy(seed, nodes, slots);
    // Nodes die here: clients repeat unanswered requests.
    options.faultless = false;
    World::new(options)
}

fn submit(world: &mut World, draft: &Draft, homes: &[usize]) -> usize {
    submit_as(world, draft, homes, ClientPlan::simple())
}

fn submit_as(world: &mut World, draft: &Draft, homes: &[usize], plan: ClientPlan) -> usize {
    let held: Vec<PartitionId> =
        homes.iter().flat_map(|&node| world.partitions_of(node).into_iter().take(2)).collect();
    let submission = draft.submission(&mut SimRng::new(7), JobId(JOB), &held);
    world.add_job(submission, plan)
}

fn messages(effect: &Effect) -> Vec<wire::message::Body> {
    let Effect::Send { packet, .. } = effect else { return Vec::new() };
    let reliable = packet.reliable.iter();
    let reliable =
        reliable.map(|bytes| wire::Message::decode(bytes.clone()).expect("nodes encode"));
    reliable.chain(packet.best_effort.iter().cloned()).filter_map(|message| message.body).collect()
}

/// Runs to the end, with a death of `victim` before its `k`-th effect that `counts`. False if there
/// was no such effect.
fn dies_at(
    k: usize,
    victim: NodeId,
    death: Action,
    draft: &Draft,
    counts: impl Fn(&Effect) -> bool + Send + 'static,
) -> bool {
    let mut world = world(k as u64, 3, 1);
    let client = submit(&mut world, draft, &[0, 1, 2]);
    let (seen, died) = (std::sync::Arc::new(std::sync::Mutex::new(0)), k);
    let counter = std::sync::Arc::clone(&seen);
    world.on_effect(Box::new(move |_, node, effect| {
        if node != victim || !counts(effect) {
            return Action::Carry;
        }
        let mut seen = counter.lock().expect("one thread");
        *seen += 1;
        if *seen == died + 1 { death } else { Action::Carry }
    }));
    world.must_end().unwrap_or_else(|violation| panic!("death {k}: {violation}"));
    assert!(world.told(client).is_some());
    world.must_remember().expect("what was told stays so");
    world.must_leave_nothing().expect("all work has ended");
    let seen = *seen.lock().expect("one thread");
    seen > k
}

#[test]
fn a_home_dies_before_any_of_its_sends() {
    let draft = Draft::fan_in(24, Span::from_millis(3), 1000);
    for death in [Action::Crash, Action::PowerCut] {
        let is_send = |effect: &Effect| matches!(effect, Effect::Send { .. });
        let deaths = (0..60).take_while(|&k| dies_at(k, NodeId(0), death, &draft, is_send)).count();
        assert!(deaths > 5, "{deaths} points of death are too few to tell anything");
    }
}

#[test]
fn a_node_dies_before_any_of_its_writes() {
    let draft = Draft::chain(12, Span::from_millis(2), 1000);
    for death in [Action::Crash, Action::PowerCut] {
        let is_write = |effect: &Effect| matches!(effect, Effect::Persist(_));
        let deaths =
            (0..60).take_while(|&k| dies_at(k, NodeId(1), death, &draft, is_write)).count();
        assert!(deaths > 3, "{deaths} points of death are too few to tell anything");
    }
}

/// A bag on n0, and n1 steals from it. One of the two dies at its k-th effect after the first
/// steal.
fn steal_and_die(k: usize, victim_dies: bool) -> bool {
    let mut world = world(100 + k as u64, 2, 2);
    submit(&mut world, &Draft::bag(40, Span::from_millis(20)), &[0]);
    let stolen = std::sync::Arc::new(std::sync::Mutex::new(None::<usize>));
    let seen = std::sync::Arc::clone(&stolen);
    world.on_effect(Box::new(move |_, node, effect| {
        let mut stolen = seen.lock().expect("one thread");
        if matches!(effect, Effect::Trace(Event::Stolen { .. })) && stolen.is_none() {
            *stolen = Some(0);
        }
        let dying = if victim_dies { NodeId(0) } else { NodeId(1) };
        match stolen.as_mut() {
            Some(n) if node == dying => {
                *n += 1;
                if *n == k + 1 { Action::Crash } else { Action::Carry }
            }
            _ => Action::Carry,
        }
    }));
    world.must_end().unwrap_or_else(|violation| panic!("death {k}: {violation}"));
    world.must_leave_nothing().expect("all work has ended");
    stolen.lock().expect("one thread").is_some_and(|n| n > k)
}

#[test]
fn a_thief_dies_after_its_steal() {
    let deaths = (0..40).take_while(|&k| steal_and_die(k, false)).count();
    assert!(deaths > 10, "{deaths} points of death are too few to tell anything");
}

#[test]
fn the_victim_of_a_steal_dies_after_it() {
    let deaths = (0..40).take_while(|&k| steal_and_die(k, true)).count();
    assert!(deaths > 10, "{deaths} points of death are too few to tell anything");
}

#[test]
fn a_home_dies_while_finished_is_in_flight() {
    let mut world = world(3, 2, 1);
    submit(&mut world, &Draft::bag(30, Span::from_millis(20)), &[0]);
    let deaths = std::sync::Arc::new(std::sync::Mutex::new(0));
    let counter = std::sync::Arc::clone(&deaths);
    world.on_effect(Box::new(move |_, node, effect| {
        let finished =
            messages(effect).iter().any(|body| matches!(body, wire::message::Body::Finished(_)));
        let mut deaths = counter.lock().expect("one thread");
        if node == NodeId(1) && finished && *deaths < 3 {
            *deaths += 1;
            return Action::CrashOther(NodeId(0));
        }
        Action::Carry
    }));
    world.must_end().unwrap();
    world.must_leave_nothing().expect("all work has ended");
    assert_eq!(
        *deaths.lock().expect("one thread"),
        3,
        "n1 should have stolen and finished more than that"
    );
}

#[test]
fn work_spreads_although_all_first_hints_are_lost() {
    let mut world = World::new(WorldOptions::healthy(4, 4, 1));
    // Long enough for every thief to reach its bound and become dormant.
    world.run_for(Span::from_secs(20));
    let mut hinted = BTreeSet::new();
    world.on_effect(Box::new(move |_, node, effect| {
        let Effect::Send { to, .. } = effect else { return Action::Carry };
        let hint =
            messages(effect).iter().any(|body| matches!(body, wire::message::Body::StealHint(_)));
        if hint && hinted.insert((node, *to)) { Action::Drop } else { Action::Carry }
    }));
    submit(&mut world, &Draft::bag(100, Span::from_millis(200)), &[2]);
    world.must_end().unwrap();
    assert!(world.launches().iter().all(|&n| n > 0), "{:?}", world.launches());
}

#[test]
fn a_thousand_idle_nodes_find_one_loaded_node_and_stay_calm() {
    let nodes = 1_024;
    let mut world = World::new(WorldOptions::healthy(5, nodes, 1));
    world.run_for(Span::from_secs(20));
    let quiet_from = world.packets();
    world.run_for(Span::from_secs(10));
    let idle = world.packets() - quiet_from;
    assert!(idle <= u64::from(nodes), "{idle} packets from {nodes} idle nodes in 10 s");
    let before = world.packets();
    let client = submit(&mut world, &Draft::bag(8 * nodes as usize, Span::from_secs(1)), &[17]);
    world.must_end().unwrap();
    let makespan = world.makespan(client).unwrap();
    let packets = world.packets() - before;
    let idle_nodes = world.launches().iter().filter(|&&n| n == 0).count();
    println!("makespan {makespan:?}, {packets} packets, {idle_nodes} nodes ran nothing");
    // Eight rounds are the optimum; one node alone would take 8,192 s.
    assert!(makespan < Span::from_secs(80), "{makespan:?}");
    assert!(idle_nodes < nodes as usize / 20, "{idle_nodes} nodes ran nothing");
    let per_node_second = packets as f64 / f64::from(nodes) / makespan.as_secs_f64();
    // A round of probes is 32 questions and answers; back-off allows at most 6 rounds a second.
    assert!(per_node_second < 180.0, "{per_node_second} packets per node and second");
}

#[test]
fn a_client_that_dies_half_way_leaves_nothing() {
    for accepted in 0..4 {
        let mut world = world(accepted as u64, 3, 2);
        let plan = ClientPlan { death: Death::AfterChunks(accepted), ..ClientPlan::simple() };
        submit_as(&mut world, &Draft::bag(300, Span::from_millis(1)), &[0, 1, 2], plan);
        world.must_end().unwrap();
        world.must_leave_nothing().expect("all work has ended");
        assert_eq!(world.launches().iter().sum::<u64>(), 0, "nothing of it may have run");
    }
}

#[test]
fn scenarios_without_a_mutant_end_well() {
    for scenario in sim::SCENARIOS {
        scenario.run(None).unwrap_or_else(|violation| panic!("{}: {violation}", scenario.name));
    }
}

#[test]
fn a_commit_after_the_expiry_of_its_chunks_reports_a_lost_job() {
    let mut world = world(9, 3, 2);
    let think = Span(proto::limits::STAGED_JOB_TTL.0 * 3 / 2);
    let plan = ClientPlan { think, ..ClientPlan::simple() };
    submit_as(&mut world, &Draft::bag(30, Span::from_millis(1)), &[0, 1, 2], plan);
    world.run_for(think);
    let lost = world.must_end().unwrap_err();
    assert_eq!(lost.checker, "durable", "{lost}");
    assert!(lost.message.contains("reported as lost"), "{lost}");
}

/// A node with a queue of only tasks that are too wide for its free slots offers them to others,
/// and steals narrower ones.
#[test]
fn a_narrow_task_is_stolen_by_a_node_with_tasks_that_are_too_wide() {
    let mut options = WorldOptions::healthy(6, 2, 1);
    options.slots = vec![4, 1];
    let mut world = World::new(options);
    let bag = |cpus: u32, seconds: [u64; 2]| {
        let mut draft = Draft::bag(2, Span::ZERO);
        for (task, seconds) in draft.tasks.iter_mut().zip(seconds) {
            (task.cpus, task.duration) = (cpus, Span::from_secs(seconds));
        }
        draft
    };
    for (number, (node, draft)) in (0..).zip([(0, bag(3, [60, 60])), (1, bag(1, [60, 60]))]) {
        let held: Vec<PartitionId> = world.partitions_of(node).into_iter().take(1).collect();
        let job = JobId(JOB + number);
        world.add_job(draft.submission(&mut SimRng::new(7), job, &held), ClientPlan::simple());
        world.run_for(Span::from_secs(1));
    }
    world.must_end().unwrap_or_else(|violation| panic!("{violation}"));
}

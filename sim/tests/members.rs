//! Permanent losses, and a group without a majority: work must continue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use node::Effect;
use proto::event::RetryReason;
use proto::wire::map_command;
use proto::wire::membership_message::Body;
use proto::wire::message::Body as Said;
use proto::{Event, JobId, NodeId, PartitionId, Span, limits, wire};
use sim::{Action, ClientPlan, Draft, FaultOptions, SimRng, World, WorldOptions};

const JOB: u64 = 0x5eed_0000_0000;

fn world(seed: u64, nodes: u32, copies: u32) -> World {
    let mut options = WorldOptions::healthy(seed, nodes, 2);
    options.copies = copies;
    // Nodes die here: clients repeat unanswered requests.
    options.faultless = false;
    let mut world = World::new(options);
    if std::env::var("SIM_STORY").is_ok() {
        world.keep_story();
    }
    world.must_be_whole().expect("nodes find each other");
    world
}

/// A job with homes of its tasks everywhere.
fn submit(world: &mut World, number: u64, draft: &Draft) -> usize {
    let nodes = world.launches().len();
    let held: Vec<PartitionId> =
        (0..nodes).flat_map(|node| world.partitions_of(node).into_iter().take(2)).collect();
    let submission = draft.submission(&mut SimRng::new(7), JobId(JOB + (number << 8)), &held);
    world.add_job(submission, ClientPlan::simple())
}

fn ends_well(world: &mut World) {
    world.must_end().unwrap_or_else(|violation| {
        #[expect(clippy::print_stdout, reason = "for a human, when asked for")]
        world.take_story().iter().for_each(|line| println!("{line}"));
        panic!("{violation}")
    });
    world.must_remember().unwrap_or_else(|violation| panic!("{violation}"));
}

/// The node to which a job was submitted, and another one: any two of five.
#[test]
fn two_of_five_are_lost_permanently_with_three_copies() {
    for (seed, (a, b)) in (1..).zip([(0, 1), (1, 4), (3, 2), (4, 0), (2, 0)]) {
        let mut world = world(seed, 5, 3);
        world.add_kv_client(4, 60, Span::from_millis(20));
        let client = submit(&mut world, 0, &Draft::fan_in(200, Span::from_millis(20), 1_000));
        world.run_for(Span::from_millis(300));
        world.lose(a);
        world.lose(b);
        ends_well(&mut world);
        assert!(world.told(client).is_some(), "seed {seed}");
        world.must_be_whole().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        world.must_leave_nothing().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

/// One after another, as soon as all replicas exist again. The last two still serve everything.
#[test]
fn of_five_nodes_three_go_one_after_another() {
    let mut world = world(9, 5, 2);
    let client = submit(&mut world, 0, &Draft::fan_in(300, Span::from_millis(150), 1_000));
    world.run_for(Span::from_millis(300));
    for node in [0, 3, 1] {
        world.lose(node);
        world.must_be_whole().unwrap_or_else(|violation| panic!("n{node}: {violation}"));
    }
    ends_well(&mut world);
    assert!(world.told(client).is_some());
}

/// With two replicas, the primary is lost permanently while its only backup restarts. No node has
/// detected the loss when the backup is back.
#[test]
fn a_backup_restarts_while_its_primary_is_lost() {
    for seed in 1..20 {
        let mut world = world(seed, 4, 2);
        world.add_kv_client(4, 40, Span::from_millis(10));
        submit(&mut world, 0, &Draft::fan_in(100, Span::from_millis(20), 1_000));
        world.run_for(Span::from_millis(150));
        world.lose(3);
        // It is back at once.
        world.crash((seed % 3) as usize);
        ends_well(&mut world);
        world.must_be_whole().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

fn is_of_group(effect: &Effect) -> bool {
    let Effect::Send { packet, .. } = effect else { return false };
    packet.membership.iter().any(|message| matches!(message.body, Some(Body::Group(_))))
}

/// No task depends on the group: for ten minutes it cannot commit anything.
#[test]
fn work_goes_on_without_the_group() {
    let mut world = world(3, 5, 3);
    let is_away = Arc::new(AtomicBool::new(true));
    let failed = Arc::new(Mutex::new(0));
    let (away, failures) = (Arc::clone(&is_away), Arc::clone(&failed));
    world.on_effect(Box::new(move |_, _, effect| {
        if let Effect::Trace(Event::Committed { end, .. }) = effect
            && *end != proto::event::End::Done
        {
            *failures.lock().expect("one thread") += 1;
        }
        if away.load(Ordering::Relaxed) && is_of_group(effect) {
            Action::Drop
        } else {
            Action::Carry
        }
    }));
    let epoch = world.map_epoch();
    for number in 0..10 {
        let client = submit(&mut world, number, &Draft::fan_in(60, Span::from_millis(400), 1_000));
        world.run_for(Span::from_secs(60));
        assert!(world.told(client).is_some(), "job {number} waits for something");
    }
    assert_eq!(world.map_epoch(), epoch, "no majority could change the map");
    // A node dies meanwhile: its tasks wait and do not fail.
    let client = submit(&mut world, 10, &Draft::fan_in(60, Span::from_millis(400), 1_000));
    world.lose(4);
    world.run_for(Span::from_secs(60));
    assert_eq!(world.map_epoch(), epoch);
    is_away.store(false, Ordering::Relaxed);
    ends_well(&mut world);
    assert!(world.told(client).is_some());
    assert_eq!(*failed.lock().expect("one thread"), 0);
}

/// Counts tasks that run again because their outputs were lost.
fn count_rebuilt(world: &mut World) -> Arc<Mutex<u32>> {
    let rebuilt = Arc::new(Mutex::new(0));
    let count = Arc::clone(&rebuilt);
    world.on_effect(Box::new(move |_, _, effect| {
        if let Effect::Trace(Event::Replaced { why: RetryReason::Rebuilt, .. }) = effect {
            *count.lock().expect("one thread") += 1;
        }
        Action::Carry
    }));
    rebuilt
}

/// The children wait for a last long parent. Meanwhile nodes with their inputs leave one after
/// another, including nodes that took inputs over.
#[test]
fn a_drained_node_hands_over_needed_objects() {
    for seed in 1..=12 {
        let mut world = world(seed, 5, 2);
        let rebuilt = count_rebuilt(&mut world);
        let client = submit(&mut world, 0, &Draft::fan_in(600, Span::from_millis(100), 300_000));
        world.run_for(Span::from_millis(400 + 37 * seed));
        for node in [4, 1] {
            world.leave(node);
            assert!(world.run_until_gone(node), "seed {seed}: n{node} does not leave");
        }
        ends_well(&mut world);
        assert!(world.told(client).is_some(), "seed {seed}");
        assert_eq!(*rebuilt.lock().expect("one thread"), 0, "seed {seed}: done again");
        world.must_be_whole().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        world.must_leave_nothing().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

/// Counts the committed changes of members and of voters.
fn count_changes(world: &mut World) -> Arc<Mutex<(u32, u32)>> {
    let changes = Arc::new(Mutex::new((0, 0)));
    let count = Arc::clone(&changes);
    world.on_agreed(Box::new(move |command| {
        let mut count = count.lock().expect("one thread");
        match command.body {
            Some(map_command::Body::Up(_) | map_command::Body::Down(_)) => count.0 += 1,
            Some(map_command::Body::SetVoters(_)) => count.1 += 1,
            _ => {}
        }
    }));
    changes
}

/// A node is up for two seconds and down for two seconds, for ten minutes. The cluster soon works
/// without it. When it stays up it gets its share again.
#[test]
fn a_node_that_flaps_is_left_alone_until_it_stays() {
    for (seed, flapper) in [(1, 4), (2, 0), (3, 2)] {
        let mut world = world(seed, 5, 2);
        let changes = count_changes(&mut world);
        let (up, down) = (Span::from_secs(2), Span::from_secs(2));
        for round in 0..150 {
            if round % 15 == 0 {
                let draft = Draft::fan_in(40, Span::from_millis(400), 1_000);
                submit(&mut world, round / 15, &draft);
            }
            world.lose(flapper);
            world.run_for(down);
            world.bring_back(flapper);
            world.run_for(up);
        }
        let (lives, votes) = *changes.lock().expect("one thread");
        assert!((3..=10).contains(&lives), "seed {seed}: {lives} deaths and returns");
        println!("{lives} deaths and returns, {votes} changes of votes");
        // Of four nodes three vote, of five all: four changes for each death and return.
        assert!(votes <= 2 * lives, "seed {seed}: {votes} changes of votes");
        let open = (0..10).filter(|&job| world.told(job).is_none()).count();
        assert!(open <= 1, "seed {seed}: {open} jobs wait for something");
        let since = world.now();
        world.must_be_whole().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        let took = world.now().since(since);
        let most = Span(limits::FLAP_WAIT_MAX.0 + Span::from_secs(10).0);
        assert!(took < most, "seed {seed}: a member again after {took:?}");
        world.run_for(Span::from_secs(20));
        assert!(!world.partitions_of(flapper).is_empty(), "seed {seed}: it has its share");
        ends_well(&mut world);
    }
}

/// Ten levels; each task waits for two tasks of the previous level. Every minute a node dies, for
/// half an hour. Few tasks may run again.
#[test]
fn steady_deaths_do_not_multiply_work() {
    const LEVELS: usize = 10;
    const WIDTH: usize = 600;
    for (seed, copies) in [(1, 2), (2, 3)] {
        let mut world = world(seed, 5, copies);
        let tasks = LEVELS * WIDTH;
        // Twenty minutes of work for ten slots that never fail.
        let mut draft = Draft::chain(tasks, Span::from_secs(2), 2_000_000);
        let parents = |at: usize| {
            let (level, place) = (at / WIDTH, at % WIDTH);
            let before = (level - 1) * WIDTH;
            [before + place, before + (place * 7 + 3) % WIDTH]
        };
        draft.edges =
            (WIDTH..tasks).flat_map(|at| parents(at).map(|parent| (parent, at, 1))).collect();
        let client = submit(&mut world, 0, &draft);
        world.break_things(FaultOptions::none(), Span::from_secs(1_800));
        for minute in 0..30_usize {
            world.run_for(Span::from_secs(60));
            world.crash((minute * 3 + seed as usize) % 5);
        }
        world.heal();
        ends_well(&mut world);
        assert!(world.told(client).is_some(), "seed {seed}");
        let launches: u64 = world.launches().iter().sum();
        println!("{copies} copies: {launches} executions of {tasks} tasks");
        assert!(launches <= 3 * tasks as u64, "seed {seed}: {launches} executions");
        assert!(launches > tasks as u64, "seed {seed}: nodes died with work");
    }
}

/// Clients start with the first map, which is more than forty changes old. A node with the newest
/// map redirects each request at most once, and once more for each change meanwhile
/// (`sim/src/faults/clients/stale_map_client.rs`).
#[test]
fn clients_with_old_maps_find_the_homes() {
    for seed in 1..=6 {
        let mut options = WorldOptions::healthy(seed, 5, 2);
        (options.copies, options.faultless, options.clients_learn) = (3, false, true);
        let mut world = World::new(options);
        world.must_be_whole().expect("nodes find each other");
        for node in [0, 3] {
            world.lose(node);
            world.must_be_whole().expect("three of five go on");
            world.bring_back(node);
            world.must_be_whole().expect("it comes back");
        }
        assert!(world.map_epoch() > 40, "seed {seed}: {} changes", world.map_epoch());
        for _ in 0..3 {
            world.add_kv_client(40, 80, Span::from_millis(20));
        }
        let draft = Draft::fan_in(200, Span::from_millis(20), 1_000);
        submit(&mut world, 0, &draft);
        world.run_for(Span::from_millis(200));
        world.declare_dead(1);
        ends_well(&mut world);
        let (hops, most) = world.hops();
        assert!(hops > 5, "seed {seed}: {hops} hops");
        assert!(most <= 3, "seed {seed}: {most} hops of one request");
    }
}

/// Kept outputs are on a draining node, and its messages about them are lost.
#[test]
fn a_drain_that_does_not_end_is_found() {
    let verdict = |is_mute: bool| {
        let mut world = world(1, 5, 2);
        let nodes = world.launches().len();
        let held: Vec<PartitionId> =
            (0..nodes).flat_map(|node| world.partitions_of(node).into_iter().take(2)).collect();
        let draft = Draft::fan_in(60, Span::from_millis(20), 1_000);
        let mut submission = draft.submission(&mut SimRng::new(7), JobId(JOB), &held);
        let specs = submission.chunks.iter_mut().flat_map(|chunk| &mut chunk.specs);
        specs.flat_map(|spec| &mut spec.outputs).for_each(|output| output.keep = true);
        world.add_job(submission, ClientPlan::simple());
        ends_well(&mut world);
        let is_said =
            |message: &wire::Message| matches!(message.body, Some(Said::OutputTransfer(_)));
        world.on_effect(Box::new(move |_, from, effect| match effect {
            Effect::Send { packet, .. }
                if is_mute && from == NodeId(4) && packet.best_effort.iter().any(is_said) =>
            {
                Action::Drop
            }
            _ => Action::Carry,
        }));
        world.leave(4);
        world.run_for(Span::from_secs(1));
        world.must_have_left().map_err(|violation| violation.message)
    };
    assert_eq!(verdict(false), Ok(()));
    let found = verdict(true).expect_err("it cannot leave");
    assert!(found.contains("n4 was to leave") && found.contains("outputs"), "{found}");
}

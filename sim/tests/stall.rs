//! The nodes themselves detect a stalled job and name the blocking task.

use proto::event::Stall;
use proto::{JobId, LocalId, NodeId, PartitionId, Span};
use sim::{Action, ClientPlan, Draft, Mutant, SimRng, World, WorldOptions};

const JOB: JobId = JobId(0x5eed_0000_0000);

fn world(seed: u64, nodes: u32, mutant: Option<Mutant>) -> World {
    let mut options = WorldOptions::healthy(seed, nodes, 2);
    (options.stalls, options.faultless, options.mutant) = (true, false, mutant);
    World::new(options)
}

/// The job's own home is n2.
fn submit(world: &mut World, draft: &Draft, homes: &[usize]) -> usize {
    let home = |job: &JobId| world.home(kvs::job_partition(*job, world.partitions()).0);
    let job = (JOB.0..).map(JobId).find(|job| home(job) == 2 % world.nodes()).expect("some is");
    let held = homes.iter().flat_map(|&node| world.partitions_of(node).into_iter().take(1));
    let held: Vec<PartitionId> = held.collect();
    let submission = draft.submission(&mut SimRng::new(1), job, &held);
    world.add_job(submission, ClientPlan::simple())
}

#[test]
fn a_lost_wake_up_is_found_and_named() {
    for seed in 1..=10 {
        let mut world = world(seed, 3, Some(scheduler::Mutant::WakeUpLost.into()));
        let draft = Draft::chain(24, Span::from_millis(5), 0);
        let client = submit(&mut world, &draft, &[0]);
        world.run_for(Span::from_secs(60));
        assert!(world.told(client).is_none_or(|state| state.ended_ns == 0));
        let said = world.stalled().first().expect("it is said");
        assert_eq!(said.stall, Stall::NotPlaced, "{said:?}");
        assert_eq!(said.task.local.index(), 7, "{said:?}");
        assert_eq!((said.home, world.stalled().len()), (NodeId(0), 1), "said once: {said:?}");
        let stall = world.stall_reported().expect("its client hears of it");
        assert_eq!(LocalId(stall.local), said.task.local);
        assert!(stall.event.contains("1 of its 1 dependencies"), "{stall:?}");
    }
}

#[test]
fn a_task_that_runs_for_long_is_no_stall() {
    for homes in [[0, 0], [0, 2], [1, 2]] {
        let mut world = world(3, 3, None);
        let draft = Draft::bag(4, Span::from_secs(600));
        let client = submit(&mut world, &draft, &homes);
        world.run_for(Span::from_secs(500));
        assert_eq!(world.stalled(), [], "everything runs");
        world.run_for(Span::from_secs(1_000));
        let state = world.told(client).expect("it is told");
        assert!(state.ended_ns > 0 && state.stall.is_none(), "{state:?}");
    }
}

/// A node that holds tasks, or is their home, is down for a long time.
#[test]
fn a_silent_node_is_named_and_its_return_ends_the_stall() {
    for (victim, named) in [(1, Stall::HolderSilent), (0, Stall::HomeSilent)] {
        let mut world = world(5, 3, None);
        // Longer than everything else, so that tasks stolen by n1 are the last ones.
        let draft = Draft::bag(40, Span::from_secs(4));
        let homes: &[usize] = if victim == 1 { &[0] } else { &[0, 1] };
        let client = submit(&mut world, &draft, homes);
        world.run_for(Span::from_secs(5));
        world.lose(victim);
        world.run_for(Span::from_secs(200));
        let said = *world.stalled().first().expect("it is said");
        assert_eq!((said.stall, said.holder), (named, NodeId(victim as u32)), "{said:?}");
        assert!(world.stall_reported().is_some(), "its client hears of it");
        world.bring_back(victim);
        world.run_for(Span::from_secs(300));
        let state = world.told(client).expect("it is told");
        assert!(state.ended_ns > 0 && state.stall.is_none(), "{state:?}");
    }
}

/// Grants of n0 never arrive, however often they are sent.
#[test]
fn a_task_that_its_holder_never_got_is_found() {
    use node::Effect;
    use prost::Message as _;
    use proto::wire::message::Body;
    let mut world = world(8, 2, None);
    world.on_effect(Box::new(|_, node, effect| {
        let Effect::Send { packet, .. } = effect else { return Action::Carry };
        let is_grant = |bytes: &bytes::Bytes| {
            let message = proto::wire::Message::decode(bytes.clone()).expect("nodes encode");
            matches!(message.body, Some(Body::StealGrant(_)))
        };
        let lost = node == NodeId(0) && packet.reliable.iter().any(is_grant);
        if lost { Action::Drop } else { Action::Carry }
    }));
    let draft = Draft::bag(30, Span::from_millis(50));
    let client = submit(&mut world, &draft, &[0]);
    world.run_for(Span::from_secs(100));
    assert!(world.told(client).is_none_or(|state| state.ended_ns == 0));
    let said = world.stalled().first().expect("it is said");
    assert_eq!((said.stall, said.holder), (Stall::NotHere, NodeId(1)), "{said:?}");
}

//! Scenarios about copies of objects.

use std::sync::{Arc, Mutex};

use crate::Mutant;
use crate::{Action, ClientPlan, Draft, GrowthPlan, SimRng, Violation, World, WorldOptions};
use node::Effect;
use proto::event::RetryReason;
use proto::{Event, JobId, PartitionId, Span, wire};

/// Copies are evicted as soon as no task uses them, while other nodes are still directed to them.
pub(crate) fn copies_are_gone_when_they_are_asked_for(
    mutant: Option<Mutant>,
) -> Result<(), Violation> {
    let mut options = WorldOptions::healthy(11, 5, 1);
    options.mutant = mutant;
    options.tuning.policy = scheduler::Policy::Mlb;
    options.tuning.cache_bytes = 0;
    let mut world = World::new(options);
    let homes: Vec<PartitionId> = world.partitions_of(0).into_iter().take(2).collect();
    let draft = Draft::fan_out(200, Span::from_millis(20), 1_000_000);
    let submission = draft.submission(&mut SimRng::new(7), JobId(0x5eed_0000_0000), &homes);
    world.add_job(submission, ClientPlan::simple());
    world.must_end()?;
    world.must_fall_silent()?;
    world.must_leave_nothing()
}

/// Only node 3 is wide enough for task 0. All nodes read its output, and node 3 dies. Then all
/// nodes read two other objects that do not fit beside the copies of the first. The last tasks read
/// the first output again, and no remaining node could rebuild it.
pub(crate) fn the_maker_dies_and_copies_are_pushed_out(
    mutant: Option<Mutant>,
) -> Result<(), Violation> {
    const MAKER: usize = 3;
    const BYTES: u64 = 1_000_000;
    let mut options = WorldOptions::healthy(11, 4, 1);
    options.faultless = false;
    options.mutant = mutant;
    options.copies = 3;
    options.slots = vec![1, 1, 1, 2];
    options.tuning.policy = scheduler::Policy::Mlb;
    options.tuning.cache_bytes = BYTES + BYTES / 2;
    let mut world = World::new(options);
    world.must_be_whole()?;
    let rebuilt = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&rebuilt);
    world.on_effect(Box::new(move |_, _, effect| {
        if let Effect::Trace(Event::Replaced { why: RetryReason::Rebuilt, .. }) = effect {
            *counter.lock().expect("one thread") += 1;
        }
        Action::Carry
    }));
    let mut draft = Draft::bag(35, Span::from_millis(500));
    (draft.tasks[0].cpus, draft.tasks[0].output_sizes) = (2, vec![BYTES]);
    // These two run until the death of the first maker is known.
    for long in [1, 2] {
        draft.tasks[long].duration = Span::from_secs(60);
        draft.tasks[long].output_sizes = vec![BYTES];
    }
    draft.edges.extend((3..13).map(|early| (0, early, 1)));
    draft.edges.extend((13..23).flat_map(|second| [(1, second, 1), (2, second, 1)]));
    draft.edges.extend((23..35).flat_map(|last| [(0, last, 1), (last - 10, last, 0)]));
    let homes: Vec<PartitionId> =
        (0..MAKER).flat_map(|node| world.partitions_of(node).into_iter().take(1)).collect();
    let submission = draft.submission(&mut SimRng::new(7), JobId(0x5eed_0000_0000), &homes);
    world.add_job(submission, ClientPlan::simple());
    world.run_for(Span::from_secs(20));
    world.lose(MAKER);
    world.must_end()?;
    let rebuilt = *rebuilt.lock().expect("one thread");
    assert_eq!(rebuilt, 0, "there were copies of what is made again");
    world.must_leave_nothing()
}

/// Two of three nodes run tasks of a minute. The inputs of short tasks that are homed there are
/// staged meanwhile, and the third node is idle.
pub(crate) fn short_tasks_are_staged_behind_long_ones(
    mutant: Option<Mutant>,
) -> Result<(), Violation> {
    let mut options = WorldOptions::healthy(11, 3, 1);
    options.mutant = mutant;
    options.tuning.policy = scheduler::Policy::Mlb;
    let mut world = World::new(options);
    let mut draft = Draft::bag(18, Span::from_millis(500));
    draft.tasks[0].output_sizes = vec![1_000_000];
    for long in [1, 2] {
        draft.tasks[long].duration = Span::from_secs(60);
    }
    draft.edges.extend((3..18).map(|short| (0, short, 1)));
    let homes: Vec<PartitionId> =
        (0..3).flat_map(|node| world.partitions_of(node).into_iter().take(1)).collect();
    let submission = draft.submission(&mut SimRng::new(7), JobId(0x5eed_0000_0000), &homes);
    world.add_job(submission, ClientPlan::simple());
    world.must_end()?;
    world.must_leave_nothing()
}

/// Of five nodes with two copies of everything, two with outputs are lost permanently. The second
/// is lost when everything has two copies again.
pub(crate) fn makers_die_one_after_another(mutant: Option<Mutant>) -> Result<(), Violation> {
    makers_die(mutant, |_| {})
}

/// As above, but all nodes restart before, so that their knowledge of each other is lost.
pub(crate) fn makers_die_after_all_have_restarted(mutant: Option<Mutant>) -> Result<(), Violation> {
    makers_die(mutant, |world| (0..5).for_each(|node| world.crash(node)))
}

/// A single node has all results. It is lost after others have joined and the nodes report that one
/// loss is survivable.
pub(crate) fn one_node_gets_company(mutant: Option<Mutant>) -> Result<(), Violation> {
    for slots in [1, 0] {
        let mut options = WorldOptions::healthy(11, 1, 2);
        (options.copies, options.faultless, options.mutant) = (2, false, mutant);
        options.grows = Some(GrowthPlan { joins_max: 0, kills_permille: 0 });
        options.census_steps = 16;
        let mut world = World::new(options);
        world.must_be_whole()?;
        keep_results(&mut world);
        world.must_end()?;
        for slots in [1, slots] {
            let node = world.join(slots);
            assert!(node.is_some(), "nothing keeps it from joining");
        }
        world.must_be_whole()?;
        world.must_say_that_it_has_grown()?;
        world.lose(0);
        world.must_keep()?;
        world.must_be_whole()?;
        world.must_say_that_it_has_grown()?;
        world.must_remember()?;
        world.must_fall_silent()?;
    }
    Ok(())
}

/// A node is drained. As soon as it has left, another one is lost.
pub(crate) fn a_node_dies_when_another_has_left(mutant: Option<Mutant>) -> Result<(), Violation> {
    for lost in [0, 2, 3] {
        let mut options = WorldOptions::healthy(11, 4, 1);
        (options.copies, options.faultless, options.mutant) = (2, false, mutant);
        let mut world = World::new(options);
        world.must_be_whole()?;
        keep_results(&mut world);
        world.must_end()?;
        world.leave(1);
        assert!(world.run_until_gone(1), "no other node is full");
        world.lose(lost);
        world.must_keep()?;
        world.must_be_whole()?;
        world.must_remember()?;
    }
    Ok(())
}

fn makers_die(mutant: Option<Mutant>, before: fn(&mut World)) -> Result<(), Violation> {
    let mut options = WorldOptions::healthy(11, 5, 1);
    (options.copies, options.faultless, options.mutant) = (2, false, mutant);
    let mut world = World::new(options);
    world.must_be_whole()?;
    keep_results(&mut world);
    world.must_end()?;
    assert!(world.launches()[1] > 0 && world.launches()[3] > 0, "they made nothing");
    before(&mut world);
    world.run_for(Span::from_secs(30));
    for lost in [3, 1] {
        world.lose(lost);
        world.must_keep()?;
        world.must_be_whole()?;
        world.run_for(Span::from_secs(30));
        world.must_keep()?;
    }
    world.must_remember()
}

/// A job with two kept files for each task.
fn keep_results(world: &mut World) {
    let mut draft = Draft::bag(40, Span::from_millis(200));
    for task in &mut draft.tasks {
        (task.output_sizes, task.keep) = (vec![1_000_000, 1_000], true);
    }
    let homes: Vec<PartitionId> = (0..world.partitions()).map(PartitionId).collect();
    let mut submission = draft.submission(&mut SimRng::new(7), JobId(0x5eed_0000_0000), &homes);
    submission.commit.settings =
        Some(wire::JobSettings { real_data: true, ..wire::JobSettings::default() });
    world.add_job(submission, ClientPlan::simple());
}

//! Tasks that make other bytes in each attempt, while nodes are lost with what they have made.

use proto::{JobId, PartitionId, Span, wire};
use scheduler::Mutant;

use crate::{ClientPlan, Draft, SimRng, Violation, World, WorldOptions};

const NODES: u32 = 6;
const LAYERS: usize = 12;
const WIDTH: usize = 6;
const SEEDS: u64 = 24;

/// Readers far down the graph want outputs whose other readers have long ended.
fn draft(dice: &mut SimRng) -> Draft {
    let mut draft = Draft::bag(LAYERS * WIDTH, Span::ZERO);
    for task in &mut draft.tasks {
        task.duration = dice.span(Span::from_millis(100), Span::from_secs(4));
        task.output_sizes = vec![1_000; 2];
        task.keep = dice.chance(200);
    }
    for child in WIDTH..draft.tasks.len() {
        for _ in 0..3 {
            let parent = dice.index(child / WIDTH * WIDTH);
            let output = dice.between(1, 2) as u32;
            if !draft.edges.iter().any(|&(p, c, _)| (p, c) == (parent, child)) {
                draft.edges.push((parent, child, output));
            }
        }
    }
    draft
}

/// One seed: two nodes are lost with their disks, and any others die and come back.
///
/// # Errors
/// The demand that did not hold.
pub fn made_again(seed: u64, mutant: Option<Mutant>) -> Result<World, Violation> {
    let mut dice = SimRng::new(seed);
    let mut options = WorldOptions::healthy(seed, NODES, 2);
    (options.copies, options.faultless, options.mutant) = (3, false, mutant);
    options.varies_permille = dice.pick(&[200, 500, 1_000]);
    let mut world = World::new(options);
    if std::env::var("SIM_STORY").is_ok() {
        world.keep_story();
    }
    world.must_be_whole()?;
    let homes: Vec<PartitionId> = (0..world.partitions()).map(PartitionId).collect();
    let job = JobId(0x5eed_0000_0000);
    let mut submission = draft(&mut dice).submission(&mut dice, job, &homes);
    submission.commit.settings =
        Some(wire::JobSettings { real_data: true, ..wire::JobSettings::default() });
    world.add_job(submission, ClientPlan::simple());
    let lost = [dice.index(3), 3 + dice.index(3)];
    for lost in lost {
        world.run_for(dice.span(Span::from_secs(1), Span::from_secs(8)));
        world.lose(lost);
        // While copies are made again no second one goes.
        world.must_be_whole()?;
        for _ in 0..dice.below(5) {
            world.run_for(dice.span(Span::ZERO, Span::from_secs(2)));
            let other = dice.index(NODES as usize);
            if !world.is_lost(other) {
                world.crash(other);
            }
        }
        world.must_be_whole()?;
    }
    world.must_end().inspect_err(|_| {
        #[expect(clippy::print_stdout, reason = "for a human, when asked for")]
        world.take_story().iter().for_each(|line| println!("{line}"));
    })?;
    world.must_remember()?;
    Ok(world)
}

/// As many seeds as show each bug.
pub(crate) fn outputs_are_made_again(mutant: Option<Mutant>) -> Result<(), Violation> {
    (1..=SEEDS).try_for_each(|seed| made_again(seed, mutant).map(drop))
}

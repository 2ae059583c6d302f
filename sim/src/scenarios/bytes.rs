//! Tasks that make other bytes in each attempt, while nodes are lost with their outputs.

use crate::Mutant;
use proto::{JobId, PartitionId, Span, wire};

use crate::{ClientPlan, Draft, SimRng, Violation, World, WorldOptions};

const NODES: u32 = 6;
const LAYERS: usize = 12;
const WIDTH: usize = 6;
const SEEDS: u64 = 24;
/// One in some hundred repeats a recall just before the partition of a reader moves.
const REPEATED_SEEDS: u64 = 600;
/// A few of them recall an input after the partition of its maker has moved.
const LATE_SEEDS: u64 = 80;

/// Readers far down the graph need outputs with other readers that ended long before.
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

/// One seed: two nodes are lost with their disks, and others die and restart.
///
/// # Errors
/// The violation.
pub fn made_again(seed: u64, mutant: Option<Mutant>) -> Result<World, Violation> {
    let options = WorldOptions::healthy(seed, NODES, 2);
    let crashes = Crashes { below: 5, apart: Span::from_secs(2) };
    made_again_in(options, &crashes, ClientPlan::simple(), mutant)
}

/// As before, and the client fetches results at once: no reader may run again, and what was done
/// stays done.
///
/// # Errors
/// The violation.
pub fn fetched_and_made_again(seed: u64, mutant: Option<Mutant>) -> Result<World, Violation> {
    let options = WorldOptions::healthy(seed, NODES, 2);
    let crashes = Crashes { below: 5, apart: Span::from_secs(2) };
    let plan = ClientPlan { fetches: true, ..ClientPlan::simple() };
    made_again_in(options, &crashes, plan, mutant)
}

/// Syncs take long and nodes crash often, so a home repeats recalls that are not answered yet. An
/// earlier home may recall inputs after the next home has sent their credits.
fn recalled_again(seed: u64, mutant: Option<Mutant>) -> Result<World, Violation> {
    let mut options = WorldOptions::healthy(seed, NODES, 2);
    (options.sync_min, options.sync_max) = (Span::from_millis(50), Span::from_millis(600));
    let crashes = Crashes { below: 16, apart: Span::from_millis(900) };
    made_again_in(options, &crashes, ClientPlan::simple(), mutant)
}

/// Crashes after each loss of a node.
struct Crashes {
    /// Fewer than this.
    below: u64,
    /// At most this from one to the next.
    apart: Span,
}

fn made_again_in(
    mut options: WorldOptions,
    crashes: &Crashes,
    plan: ClientPlan,
    mutant: Option<Mutant>,
) -> Result<World, Violation> {
    let mut dice = SimRng::new(options.seed);
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
    world.add_job(submission, plan);
    let lost = [dice.index(3), 3 + dice.index(3)];
    for lost in lost {
        world.run_for(dice.span(Span::from_secs(1), Span::from_secs(8)));
        world.lose(lost);
        // No second node is lost while replicas are recreated.
        world.must_be_whole()?;
        for _ in 0..dice.below(crashes.below) {
            world.run_for(dice.span(Span::ZERO, crashes.apart));
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

/// See [`recalled_again`].
pub(crate) fn recalls_are_repeated(mutant: Option<Mutant>) -> Result<(), Violation> {
    (1..=REPEATED_SEEDS).try_for_each(|seed| recalled_again(seed, mutant).map(drop))
}

/// See [`recalled_again`].
pub(crate) fn recalls_are_late(mutant: Option<Mutant>) -> Result<(), Violation> {
    (1..=LATE_SEEDS).try_for_each(|seed| recalled_again(seed, mutant).map(drop))
}

/// Tasks that were done run again without a result.
pub(crate) fn fetched_outputs_are_made_again(mutant: Option<Mutant>) -> Result<(), Violation> {
    (1..=SEEDS).try_for_each(|seed| fetched_and_made_again(seed, mutant).map(drop))
}

/// The number of seeds that suffices for each bug.
pub(crate) fn outputs_are_made_again(mutant: Option<Mutant>) -> Result<(), Violation> {
    (1..=SEEDS).try_for_each(|seed| made_again(seed, mutant).map(drop))
}

//! Stories about copies of objects.

use proto::{JobId, PartitionId, Span};
use scheduler::Mutant;
use sim::{ClientPlan, Dice, Draft, Violation, World, WorldOptions};

/// Copies go as soon as nobody uses them, and other nodes are sent to where they were.
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
    let submission = draft.submission(&mut Dice::new(7), JobId(0x5eed_0000_0000), &homes);
    world.add_job(submission, ClientPlan::simple());
    world.must_end()?;
    world.must_fall_silent()?;
    world.must_leave_nothing()
}

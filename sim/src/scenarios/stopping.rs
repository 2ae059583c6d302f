//! Nodes that are stopped in order and restarted.

use super::{HOME, JOB, SECOND};
use crate::Mutant;
use crate::{ClientPlan, Draft, SimRng, Violation, World, WorldOptions};
use proto::{JobId, PartitionId, Span};

/// The home and a thief are stopped repeatedly while they run commands. The stops are no strikes,
/// and the commands end.
pub(crate) fn nodes_are_stopped_again_and_again(mutant: Option<Mutant>) -> Result<(), Violation> {
    for copies in [1, 2] {
        let mut options = WorldOptions::healthy(11, 3, 1);
        (options.faultless, options.copies, options.mutant) = (false, copies, mutant);
        let mut world = World::new(options);
        if copies > 1 {
            world.must_be_whole()?;
        }
        let held: Vec<PartitionId> =
            world.partitions_of(HOME.0 as usize).into_iter().take(2).collect();
        let draft = Draft::bag(6, Span::from_secs(3)).commands();
        world.add_job(
            draft.submission(&mut SimRng::new(7), JobId(JOB), &held),
            ClientPlan::simple(),
        );
        for _ in 0..4 {
            for node in [HOME, SECOND] {
                world.run_for(Span::from_secs(1));
                world.stop_in_order(node.0 as usize);
            }
        }
        world.must_end()?;
    }
    Ok(())
}

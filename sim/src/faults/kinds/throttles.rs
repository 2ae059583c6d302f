//! Jobs that run a limited number of their tasks at once.

use proto::work::Launch;
use proto::{PartitionId, wire};
use scheduler::Mutant;

use crate::checkers::{Verdict, throttle};
use crate::faults::options::WorldOptions;
use crate::faults::world::World;
use crate::rng::SimRng;

/// A separate random stream, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x7468_726f_7474_6c65;
/// The share of seeds with such jobs.
const THROTTLED_PERMILLE: u64 = 150;

/// The limits of the jobs of a seed.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    dice: Option<SimRng>,
}

impl Limits {
    pub(crate) fn draw(world: &WorldOptions) -> Self {
        let mut dice = SimRng::new(world.seed ^ STREAM);
        let is_own = world.mutant.is_some_and(|it| it.is_among(&Mutant::OF_THROTTLES));
        let share = if is_own { 1000 } else { THROTTLED_PERMILLE };
        let is_drawn = dice.chance(share);
        Self { dice: is_drawn.then_some(dice) }
    }

    /// The limit of the next job, if it has one. Such a job keeps one of its partitions.
    pub(crate) fn next(&mut self, partitions: &mut Vec<PartitionId>) -> u32 {
        let Some(dice) = self.dice.as_mut().filter(|_| !partitions.is_empty()) else { return 0 };
        if !dice.chance(600) {
            return 0;
        }
        let kept = dice.index(partitions.len());
        *partitions = vec![partitions[kept]];
        dice.pick(&[1, 1, 2, 3, 8])
    }
}

/// Sets the limit of a job that is drawn.
pub(crate) fn set(commit: &mut wire::JobCommit, at_most: u32) {
    if at_most > 0 {
        commit.settings.get_or_insert_default().at_most = at_most;
    }
}

impl World {
    pub(crate) fn check_throttle(&self, launch: &Launch) -> Verdict {
        let Some(job) = self.jobs.get(&launch.task.job) else { return Ok(()) };
        if job.at_most.is_none() || !self.options.faultless {
            return Ok(());
        }
        let running = self.machines.iter().flat_map(|machine| &machine.running);
        let running = running.filter(|(_, running)| {
            running.script.as_ref().is_none_or(|script| !script.gives_slot_back())
        });
        let own = running.map(|((task, _), _)| *task).filter(|task| task.job == launch.task.job);
        throttle::on_launch(job, own.chain([launch.task]))
    }
}

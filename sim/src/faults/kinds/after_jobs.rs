//! Jobs that wait for the ends of earlier jobs.

use proto::work::Launch;
use proto::{JobId, wire};
use scheduler::Mutant;

use crate::checkers::{Verdict, after_jobs};
use crate::faults::options::WorldOptions;
use crate::faults::world::World;
use crate::rng::SimRng;

/// A separate random stream, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x6166_7465_726a_6f62;
/// The share of seeds with such jobs.
const AFTER_PERMILLE: u64 = 150;

/// The jobs of a seed that later jobs may wait for.
#[derive(Debug, Default)]
pub(crate) struct Afters {
    dice: Option<SimRng>,
    earlier: Vec<JobId>,
}

impl Afters {
    pub(crate) fn draw(world: &WorldOptions) -> Self {
        let mut dice = SimRng::new(world.seed ^ STREAM);
        let is_own = world.mutant.is_some_and(|it| it.is_among(&Mutant::OF_AFTER));
        let share = if is_own { 1000 } else { AFTER_PERMILLE };
        let is_drawn = dice.chance(share);
        Self { dice: is_drawn.then_some(dice), earlier: Vec::new() }
    }

    /// The jobs that the next job waits for. An open job may never end, so no other job
    /// waits for one.
    pub(crate) fn next(&mut self, job: JobId, is_open: bool) -> Vec<wire::AfterJob> {
        let Some(dice) = self.dice.as_mut().filter(|_| !is_open) else { return Vec::new() };
        let waits = dice.chance(700);
        let (all, any) = (dice.chance(200), dice.chance(250));
        let from = if all { 0 } else { self.earlier.len().saturating_sub(1) };
        let after = |job: &JobId| wire::AfterJob { job: job.0, any, end: 0 };
        let list = self.earlier[from..].iter().filter(|_| waits).map(after).collect();
        self.earlier.push(job);
        list
    }
}

impl World {
    pub(crate) fn check_after_jobs(&self, launch: &Launch) -> Verdict {
        let Some(job) = self.jobs.get(&launch.task.job) else { return Ok(()) };
        let others = job.after.iter().filter_map(|other| self.jobs.get(other));
        after_jobs::on_launch(job, launch.settings.round, others)
    }

    /// A job is about to be committed: notes its limit of running tasks, for which jobs it waits,
    /// and whether these were committed before.
    pub(crate) fn note_commit(&mut self, commit: &wire::JobCommit) {
        let strict = commit.after.iter().filter(|after| !after.any);
        let strict: Vec<JobId> = strict.map(|after| JobId(after.job)).collect();
        let mut others = strict.iter().filter_map(|other| self.jobs.get(other));
        let knows = others.all(after_jobs::is_surely_known);
        if let Some(truth) = self.jobs.get_mut(&JobId(commit.job)) {
            (truth.after, truth.knows_after) = (strict, knows);
            let at_most = commit.settings.map_or(0, |settings| settings.at_most);
            truth.at_most = (at_most > 0).then_some(at_most);
        }
    }

    pub(crate) fn check_skipped_job(&self, job: JobId) -> Verdict {
        let Some(job) = self.jobs.get(&job) else { return Ok(()) };
        let others = job.after.iter().filter_map(|other| self.jobs.get(other));
        after_jobs::on_end(job, others)
    }
}

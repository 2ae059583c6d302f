//! The limits of a job: of its tasks, with those that tasks spawn, of failed tasks, and of tasks
//! that run at once.

use proto::{JobId, wire};

use super::Job;
use crate::output::Out;
use crate::routing::partition_owners::Homes;

impl Job {
    /// The number of tasks: the submitted ones, and those that tasks have spawned.
    pub(super) fn total(&self) -> u64 {
        self.state.total + self.state.sum.as_ref().map_or(0, |sum| sum.spawned)
    }

    /// Cancels a job with more tasks than it may have.
    pub(super) fn end_if_spawning_too_much(&mut self, homes: &Homes, out: &mut Out) {
        let limit = self.state.settings.unwrap_or_default().tasks_max();
        let chain = self.state.sum.as_ref().map(|sum| sum.spawn_chain.clone()).unwrap_or_default();
        let submitted = if self.is_of_open_job() { 0 } else { self.state.total };
        let is_over = !chain.is_empty() || self.total() > limit.max(submitted);
        if !is_over {
            return;
        }
        let chain = if chain.is_empty() { String::new() } else { format!(", spawned by {chain}") };
        self.cancel_by(format!("the limit of {limit} tasks (--max-tasks){chain}"), homes, out);
    }

    /// Cancels a job with more failed tasks than its submitter wants.
    pub(super) fn end_if_failing_too_much(&mut self, homes: &Homes, out: &mut Out) {
        let limit = self.state.settings.as_ref().map_or(0, |settings| settings.fails_limit);
        let failed = self.state.sum.as_ref().map_or(0, |sum| sum.failed);
        if limit == 0 || failed < limit {
            return;
        }
        let most = limit - 1;
        self.cancel_by(format!("the limit of {most} failed tasks (--max-fails)"), homes, out);
    }

    fn cancel_by(&mut self, by: String, homes: &Homes, out: &mut Out) {
        if self.state.phase() != wire::JobPhase::Running {
            return;
        }
        self.state.set_phase(wire::JobPhase::JobCancelled);
        self.state.cancelled_by = by;
        if self.state.openness() == wire::Openness::Open {
            self.begin_closing(homes, out);
        }
        out.facts.jobs.insert(JobId(self.state.job), self.state.clone());
        self.cancel_everywhere(homes, out);
    }
}

/// Refuses a commit that limits the running tasks of more than one home: no home could count them.
pub(super) fn check_limit(commit: &wire::JobCommit) -> Result<(), String> {
    let at_most = commit.settings.map_or(0, |settings| settings.at_most);
    let is_whole = commit.openness() == wire::Openness::ClosedGraph;
    match at_most == 0 || (commit.partitions.len() == 1 && is_whole) {
        true => Ok(()),
        false => {
            let text = "runs a limited number of tasks at once, so all its tasks are in one \
                        partition from the start";
            Err(format!("job {} {text}", commit.job))
        }
    }
}

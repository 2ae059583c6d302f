//! Clients that retry their jobs.

use proto::wire;

use super::{Ask, Stage};
use crate::checkers::Violation;
use crate::faults::world::World;
use crate::state::expected::SubmissionStage;

impl World {
    /// Retries this client's job if the client has retries left and some tasks are not done.
    pub(super) fn retry(&mut self, index: usize, state: &wire::JobState) -> bool {
        let job = self.clients.jobs[index].job;
        let sum = state.sum.clone().unwrap_or_default();
        let is_done = sum.failed + sum.skipped + sum.cancelled == 0;
        if self.clients.jobs[index].plan.retries == 0
            || is_done
            || !self.jobs[&job].may_be_retried()
        {
            return false;
        }
        let round = state.round() + 1;
        self.tell(|| format!("client {index} retries {job}: round {round}"));
        let client = &mut self.clients.jobs[index];
        client.plan.retries -= 1;
        (client.stage, client.round, client.ended) = (Stage::Watching, round, None);
        let truth = self.truth(index);
        (truth.promise, truth.told) = (SubmissionStage::Accepted, None);
        truth.heard.clear(); // All tasks may have been skipped.
        self.ask(index, Ask::Retry(round));
        if self.dice.chance(self.clients.jobs[index].plan.repeats_permille) {
            self.ask(index, Ask::Retry(round));
        }
        true
    }

    /// True if the request is for an earlier round than the client's current one.
    pub(super) fn is_old_retry(&self, index: usize, ask: &Ask) -> bool {
        matches!(ask, Ask::Retry(round) if *round < self.clients.jobs[index].round)
    }

    pub(super) fn retried(&mut self, index: usize, round: u32, state: &wire::JobState) {
        let told = state.round();
        if told != round {
            let text = format!("{}: round {round} was asked for, and {told} begins", state.job);
            return self.judge(Err(Violation::new("rounds", text)));
        }
        let client = &self.clients.jobs[index];
        let watches = client.asks.values().any(|ask| *ask == Ask::Watch);
        if client.stage == Stage::Watching && client.round == round && !watches {
            self.ask(index, Ask::Watch);
        }
    }
}

//! The round of a job, and texts about ended jobs.

use crate::{Time, wire};

impl wire::JobState {
    /// The number of times that unfinished tasks of the job were run again.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.settings.map_or(0, |settings| settings.round)
    }

    /// True if submitted or spawned tasks of the job have kept outputs.
    #[must_use]
    pub fn keeps_results(&self) -> bool {
        let spawned = self.sum.as_ref().is_some_and(|sum| sum.keeps);
        spawned || self.settings.is_some_and(|settings| settings.keeps_results)
    }

    /// A text about the records of the job that retention has removed, if any.
    #[must_use]
    pub fn thinned_text(&self) -> Option<String> {
        (self.thinned_ns > 0).then(|| {
            let day = &Time(self.thinned_ns).utc()[..10];
            let what = match self.keeps_results() {
                true => "task records without results",
                false => "the task records",
            };
            format!("{what} of job {} were removed by retention on {day}", self.job)
        })
    }

    /// Why no round of it can have all tasks: it was cancelled before its commit, or its
    /// submission is incomplete.
    #[must_use]
    pub fn incomplete_text(&self) -> Option<String> {
        if self.total == 0 {
            return Some(format!("job {} was cancelled before its commit", self.job));
        }
        (self.phase() == wire::JobPhase::Lost).then(|| {
            let why = self.sum.as_ref().map(|sum| &sum.lost).filter(|why| !why.is_empty());
            let why = why.map_or_else(String::new, |why| format!(" ({why})"));
            let job = self.job;
            format!("job {job} was not submitted completely{why}: some of its tasks are missing")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_by_retention_is_reported_with_its_day() {
        let mut state = wire::JobState { job: 3, ..Default::default() };
        assert_eq!(state.thinned_text(), None);
        state.thinned_ns = 1;
        let text = "the task records of job 3 were removed by retention on 1970-01-01";
        assert_eq!(state.thinned_text().as_deref(), Some(text));
        state.settings = Some(wire::JobSettings { keeps_results: true, ..Default::default() });
        let text = "task records without results of job 3 were removed by retention on 1970-01-01";
        assert_eq!(state.thinned_text().as_deref(), Some(text));
    }

    #[test]
    fn a_job_that_was_cancelled_before_its_commit_is_reported_as_such() {
        let state = wire::JobState { job: 3, ..Default::default() };
        let text = "job 3 was cancelled before its commit";
        assert_eq!(state.incomplete_text().as_deref(), Some(text));
    }

    #[test]
    fn an_incomplete_submission_is_reported_with_its_reason() {
        let mut state = wire::JobState { job: 3, total: 2, ..Default::default() };
        assert_eq!(state.incomplete_text(), None);
        state.set_phase(wire::JobPhase::Lost);
        let text = "job 3 was not submitted completely: some of its tasks are missing";
        assert_eq!(state.incomplete_text().as_deref(), Some(text));
        let lost = "1 of 2 chunks".to_owned();
        state.sum = Some(wire::PartitionCount { lost, ..Default::default() });
        let text = "job 3 was not submitted completely (1 of 2 chunks): some of its tasks are \
                    missing";
        assert_eq!(state.incomplete_text().as_deref(), Some(text));
    }
}

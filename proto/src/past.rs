//! What is said of ended jobs.

use crate::{Time, wire};

impl wire::JobState {
    /// What retention has removed of the job, if it has removed something, in words.
    #[must_use]
    pub fn thinned_text(&self) -> Option<String> {
        (self.thinned_ns > 0).then(|| {
            let day = &Time(self.thinned_ns).utc()[..10];
            let keeps_results = self.settings.is_some_and(|settings| settings.keeps_results);
            let what = match keeps_results {
                true => "task records without results",
                false => "the task records",
            };
            format!("{what} of job {} were removed by retention on {day}", self.job)
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
}

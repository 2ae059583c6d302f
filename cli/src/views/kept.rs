//! What a verb that has waited for a job says about its kept results.

use std::time::Duration;

use client::Client;
use proto::wire::JobState;
use proto::{JobId, LocalId};
use serde::Serialize;
use verb::Context;
use verb::cluster::kept_outputs::{self, KeptOutput};
use verb::cluster::made::Made;
use verb::units::{count, number_of};

use crate::views::jobs;

/// The maximum of names in a line.
const NAMES_TOLD_MAX: usize = 5;
/// The maximum of names in JSON.
const NAMES_LISTED_MAX: usize = 1_000;
/// The time for the list of a job's kept results.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// The kept results of a job.
#[derive(Serialize)]
pub(crate) struct KeptRow {
    #[serde(skip)]
    job: u64,
    /// Those of done tasks.
    outputs: u64,
    /// Those of all tasks.
    declared: u64,
    /// More than these are declared, and were not counted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
    /// Some homes did not answer: more of the declared ones may be there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
    files: Vec<String>,
    /// The command that copies them.
    fetch: String,
}

impl KeptRow {
    /// `None`: the job keeps nothing, or its list cannot be read now.
    pub(crate) async fn of(client: &Client, state: &JobState) -> Option<Self> {
        let job = JobId(state.job);
        let listed = kept_outputs::recall_first(client, job);
        let (mut kept, mut more) = tokio::time::timeout(LIST_TIMEOUT, listed).await.ok()?.ok()?;
        let has_spawned = state.sum.as_ref().is_some_and(|sum| sum.keeps);
        if has_spawned && !more {
            let spawned = kept_outputs::of_spawned(client, state).await.ok()?;
            more = spawned.is_partial;
            kept.extend(spawned.kept);
        }
        if kept.is_empty() {
            return None;
        }
        if !has_spawned && jobs::counts(state).done == state.total {
            return Some(Self::new(state.job, &kept, (more, false), |_| true));
        }
        // Of no output the checksum counts here.
        let tasks = kept.iter().map(|output| (output.task(), 0)).collect();
        let made = Made::read(client, job, &tasks).await;
        let partly = (more, !made.is_complete);
        Some(Self::new(state.job, &kept, partly, |task| made.is_done(task)))
    }

    /// True if no declared result is there, and all homes have answered.
    pub(crate) fn are_none_there(&self) -> bool {
        self.outputs == 0 && !self.more && !self.incomplete
    }

    fn new(
        job: u64,
        kept: &[KeptOutput],
        (more, incomplete): (bool, bool),
        is_done: impl Fn(LocalId) -> bool,
    ) -> Self {
        let there: Vec<_> = kept.iter().filter(|output| is_done(output.task())).collect();
        let names = there.iter().take(NAMES_LISTED_MAX).map(|output| output.2.clone());
        Self {
            job,
            outputs: there.len() as u64,
            declared: kept.len() as u64,
            more,
            incomplete,
            files: names.collect(),
            fetch: format!("starling job fetch {job} --output DIR"),
        }
    }

    /// Where the results are, and the verb that fetches them, in a line.
    fn line(&self) -> String {
        let Self { job, outputs, declared, fetch, .. } = self;
        if *outputs == 0 {
            let results = number_of(*declared, "result");
            if self.incomplete {
                return format!(
                    "job {job} has {results}, but the homes of their tasks did not answer; \
                     '{fetch}' copies those that are there"
                );
            }
            return format!("job {job} kept none of its {results}: their tasks are not done");
        }
        let is_partial = self.more || self.incomplete;
        let mut names: Vec<String> = self.files.iter().take(NAMES_TOLD_MAX).cloned().collect();
        let unnamed = outputs - names.len() as u64;
        match (unnamed, is_partial) {
            (0, false) => {}
            (0, true) => names.push("and more".to_owned()),
            (unnamed, false) => names.push(format!("and {} more", count(unnamed))),
            (unnamed, true) => names.push(format!("and at least {} more", count(unnamed))),
        }
        let at_least = if is_partial { "at least " } else { "" };
        let of = match outputs == declared {
            true => number_of(*outputs, "result"),
            false => format!("{} of {}", count(*outputs), number_of(*declared, "result")),
        };
        format!(
            "job {job} keeps {at_least}{of} in the cluster: {}; '{fetch}' copies them",
            names.join(", ")
        )
    }

    /// Prints the line, unless the output is for programs.
    pub(crate) fn tell(this: Option<&Self>, context: &Context) {
        if let Some(row) = this.filter(|_| !context.output.json) {
            context.output.note(&row.line());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_results_and_the_verb_that_fetches_them() {
        let text = r#"[[0,0,"a"],[1,0,"b"],[1,1,"c"]]"#;
        let kept: Vec<KeptOutput> = serde_json::from_str(text).unwrap();
        let partly = |partly: (bool, bool), done: &[u64]| {
            KeptRow::new(7, &kept, partly, |task| done.contains(&task.0))
        };
        let row = |more, done: &[u64]| partly((more, false), done);
        let fetch = "'starling job fetch 7 --output DIR' copies them";
        let line = row(false, &[0, 1]).line();
        assert_eq!(line, format!("job 7 keeps 3 results in the cluster: a, b, c; {fetch}"));
        let line = row(false, &[1]).line();
        assert_eq!(line, format!("job 7 keeps 2 of 3 results in the cluster: b, c; {fetch}"));
        let line = row(true, &[0, 1]).line();
        let expected = "job 7 keeps at least 3 results in the cluster: a, b, c, and more";
        assert_eq!(line, format!("{expected}; {fetch}"));
        let line = row(false, &[]).line();
        assert_eq!(line, "job 7 kept none of its 3 results: their tasks are not done");
        let line = partly((false, true), &[]).line();
        let unknown = "job 7 has 3 results, but the homes of their tasks did not answer";
        assert!(line.starts_with(unknown), "{line}");
        let line = partly((false, true), &[1]).line();
        let expected = "job 7 keeps at least 2 of 3 results in the cluster: b, c, and more";
        assert_eq!(line, format!("{expected}; {fetch}"));
    }

    #[test]
    fn many_names_are_counted() {
        let text: Vec<String> = (0..8).map(|n| format!("[{n},0,\"f{n}\"]")).collect();
        let kept: Vec<KeptOutput> = serde_json::from_str(&format!("[{}]", text.join(","))).unwrap();
        let line = KeptRow::new(1, &kept, (false, false), |_| true).line();
        assert!(line.contains("keeps 8 results in the cluster: f0, f1, f2, f3, f4, and 3 more;"));
    }
}

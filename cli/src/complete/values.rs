//! The values, from the program, a cluster, or run records.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use allocation::keys;
use client::Client;
use lens::Record;
use verb::Context;
use verb::errors::Failure;
use verb::settings::KEYS;

use super::Value;
use super::wanted::Wanted;
use crate::local::example;
use crate::report::offline;
use crate::views::jobs::state_word;

/// The time in which a cluster answers, or there are no values.
const PATIENCE: Duration = Duration::from_millis(250);
/// The newest jobs are given.
const JOBS_MAX: usize = 200;

pub(super) fn of(context: &Context, wanted: Wanted, from: Option<PathBuf>) -> Vec<Value> {
    match (wanted, from) {
        (Wanted::Nothing, _) => Vec::new(),
        (Wanted::Setting, _) => {
            let about = |built_in: &str| match built_in {
                "" => String::new(),
                built_in => format!("built in: {built_in}"),
            };
            KEYS.iter().map(|(key, built_in)| Value::new(*key, about(built_in))).collect()
        }
        (Wanted::Example, _) => {
            example::names().map(|(name, about)| Value::new(name, about)).collect()
        }
        (Wanted::Job, Some(from)) => recorded_jobs(&from),
        (wanted, _) => of_cluster(context, wanted),
    }
}

fn of_cluster(context: &Context, wanted: Wanted) -> Vec<Value> {
    let found = verb::block_on(async {
        let asked = async {
            let client = context.connect_to_read(PATIENCE).await?;
            match wanted {
                Wanted::Node => Ok(nodes(&client)),
                Wanted::Queue => queues(&client).await,
                _ => jobs(&client).await,
            }
        };
        // Without an answer in time there are no values.
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Ok(Vec::new()))
    });
    found.unwrap_or_default()
}

async fn jobs(client: &Client) -> Result<Vec<Value>, Failure> {
    let list = client.raw().jobs(PATIENCE).await?;
    let job = |state: &proto::wire::JobState| (state.job, state_word(state), state.name.clone());
    Ok(of_jobs(list.states.iter().map(job).collect()))
}

/// The newest jobs first, of which `last` is one.
fn of_jobs(mut jobs: Vec<(u64, &str, String)>) -> Vec<Value> {
    jobs.sort_unstable_by_key(|(job, ..)| std::cmp::Reverse(*job));
    jobs.dedup_by_key(|(job, ..)| *job);
    let about = |state: &str, name: &str| match name {
        "" => state.to_owned(),
        name => format!("{name}, {state}"),
    };
    let last = jobs
        .first()
        .map(|(job, state, name)| Value::new("last", format!("job {job}: {}", about(state, name))));
    let jobs = jobs.iter().take(JOBS_MAX);
    let jobs = jobs.map(|(job, state, name)| Value::new(job.to_string(), about(state, name)));
    last.into_iter().chain(jobs).collect()
}

fn nodes(client: &Client) -> Vec<Value> {
    client.nodes().into_iter().map(|node| Value::new(format!("n{}", node.0), "")).collect()
}

async fn queues(client: &Client) -> Result<Vec<Value>, Failure> {
    let Some(value) = client.kv().lookup(keys::QUEUES.as_bytes()).await? else {
        return Ok(Vec::new());
    };
    let names: Vec<String> = serde_json::from_slice(&value.bytes).unwrap_or_default();
    Ok(names.into_iter().map(|name| Value::new(name, "")).collect())
}

/// The jobs of run records, as many as are read in time.
fn recorded_jobs(from: &Path) -> Vec<Value> {
    let begin = Instant::now();
    let paths = offline::paths(from).unwrap_or_default();
    let paths = paths.iter().rev().take(JOBS_MAX).take_while(|_| begin.elapsed() < PATIENCE);
    let metas = paths.filter_map(|path| Record::read_meta(&std::fs::read(path).ok()?).ok());
    let metas: Vec<_> = metas.collect();
    let job = |meta: &lens::Meta| meta.job.trim_start_matches('j').parse::<u64>().ok();
    let jobs = metas.iter().filter_map(|meta| Some((job(meta)?, &*meta.state, meta.name.clone())));
    of_jobs(jobs.collect())
}

#[cfg(test)]
mod tests {
    use verb::output::Output;
    use verb::settings::Settings;

    use super::*;

    fn context(dir: &Path) -> Context {
        let output = Output::new(false, true, false);
        Context::new(output, Settings::none(), Some(dir.to_owned()))
    }

    fn texts(values: &[Value]) -> Vec<&str> {
        values.iter().map(|value| &*value.text).collect()
    }

    #[test]
    fn settings_and_examples_need_no_cluster() {
        let context = context(Path::new("/nonexistent/instance"));
        let settings = of(&context, Wanted::Setting, None);
        assert!(texts(&settings).contains(&"slots") && settings.len() == KEYS.len());
        let examples = of(&context, Wanted::Example, None);
        assert!(texts(&examples).contains(&"word-count"));
    }

    #[test]
    fn without_a_cluster_there_are_no_jobs_and_nothing_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let instance = dir.path().join("instance");
        for wanted in [Wanted::Job, Wanted::Node, Wanted::Queue] {
            assert!(of(&context(&instance), wanted, None).is_empty());
        }
        assert!(!instance.exists());
        let none = of(&context(&instance), Wanted::Job, Some(instance.clone()));
        assert!(none.is_empty());
    }

    #[test]
    fn the_newest_jobs_are_first() {
        let jobs = (1..=300).map(|job| (job, "done", format!("n{job}"))).collect();
        let values = of_jobs(jobs);
        assert_eq!(texts(&values)[..3], ["last", "300", "299"]);
        assert_eq!((values.len(), &*values[0].about), (JOBS_MAX + 1, "job 300: n300, done"));
        assert!(of_jobs(Vec::new()).is_empty());
    }

    #[test]
    fn run_records_have_their_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::default();
        (record.meta.job, record.meta.state) = ("12".to_owned(), "finished".to_owned());
        std::fs::write(dir.path().join("a.srr"), record.write().unwrap()).unwrap();
        std::fs::write(dir.path().join("b.srr"), "no record").unwrap();
        let context = context(Path::new("/nonexistent/instance"));
        let values = of(&context, Wanted::Job, Some(dir.path().to_owned()));
        assert_eq!(texts(&values), ["last", "12"]);
    }
}

//! `hq job`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use client::raw::is_ended;
use client::{Client, JobPhase, JobSettings, OpenOptions, Openness, now_ns};
use proto::{JobId, LocalId, wire};
use verb::errors::Failure;

use crate::args::{Form, JobVerb, Stream};
use crate::cluster::Front;
use crate::records::{self, JobRecord};
use crate::submit::JOB_NAME_BYTES_MAX;
use crate::tasks::{self, TaskRow};
use crate::words::{Ids, Selector, span};
use crate::{ids, json, submit, table};

const LIST_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause between two looks at an open job.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// A job as the front shows it.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) openness: Openness,
    pub(crate) record: wire::JobState,
    has_running: bool,
}

impl Job {
    pub(crate) fn counts(&self) -> wire::PartitionCount {
        self.record.sum.clone().unwrap_or_default()
    }

    fn is_stopped_by_failures(&self) -> bool {
        self.record.cancelled_by.contains("--max-fails")
    }

    pub(crate) fn is_ended(&self) -> bool {
        is_ended(&self.record)
    }

    fn phase(&self) -> JobPhase {
        match self.record.phase() {
            wire::JobPhase::JobCancelled => JobPhase::Cancelled,
            wire::JobPhase::Lost => JobPhase::Lost,
            wire::JobPhase::Finished => JobPhase::Finished,
            wire::JobPhase::Staged => JobPhase::Staged,
            wire::JobPhase::Running => JobPhase::Running,
        }
    }

    pub(crate) fn state(&self) -> &'static str {
        let counts = self.counts();
        let ended = counts.done + counts.failed + counts.cancelled + counts.skipped;
        match self.phase() {
            JobPhase::Cancelled if self.is_stopped_by_failures() => "FAILED",
            JobPhase::Cancelled => "CANCELED",
            JobPhase::Lost => "FAILED",
            JobPhase::Finished if counts.failed > 0 => "FAILED",
            JobPhase::Finished if counts.cancelled > 0 => "CANCELED",
            JobPhase::Finished => "FINISHED",
            _ if self.has_running => "RUNNING",
            _ if ended >= self.record.total && self.openness == Openness::Open => "OPENED",
            _ => "WAITING",
        }
    }

    /// The word for tasks that were cancelled.
    pub(crate) fn cancelled_word(&self) -> &'static str {
        if self.is_stopped_by_failures() { "ABORTED" } else { "CANCELED" }
    }
}

/// All jobs, by number.
pub(crate) async fn states(client: &Client) -> Result<Vec<Job>, Failure> {
    let list = client.raw().jobs(LIST_TIMEOUT).await?;
    if !list.missing.is_empty() {
        let nodes: Vec<String> = list.missing.iter().map(ToString::to_string).collect();
        let text = format!("the jobs of {} are not known: no answer", nodes.join(", "));
        return Err(Failure::lost(text));
    }
    let records = list.states.into_iter().filter(|record| record.forgotten_ns == 0);
    let job = |record: wire::JobState| Job {
        id: JobId(record.job),
        openness: match record.openness() {
            wire::Openness::ClosedGraph => Openness::Graph,
            wire::Openness::Open => Openness::Open,
            wire::Openness::Closing => Openness::Closed,
        },
        record,
        has_running: false,
    };
    let mut jobs: Vec<Job> = records.map(job).collect();
    for job in jobs.iter_mut().filter(|job| !job.is_ended() && job.record.total > 0) {
        job.has_running = client.raw().runs_some(job.id).await?;
    }
    Ok(jobs)
}

pub(crate) fn run(front: &Front, verb: JobVerb) -> Result<ExitCode, Failure> {
    match &verb {
        JobVerb::Submit(args) => return submit::run(front, args),
        JobVerb::SubmitFile { path, job } => return submit::run_file(front, path, job.as_ref()),
        _ => {}
    }
    verb::block_on(async {
        let client = front.connect().await?;
        match verb {
            JobVerb::Submit(_) | JobVerb::SubmitFile { .. } => {}
            JobVerb::List { all, filter, verbose } => {
                list(front, &client, all, &filter, verbose).await?;
            }
            JobVerb::Summary => summary(front, &client).await?,
            JobVerb::Info { jobs } => info(front, &client, &jobs).await?,
            JobVerb::Cancel { jobs, reason } => {
                cancel(front, &client, &jobs, reason.as_deref()).await?;
            }
            JobVerb::Wait { jobs, without_close } => {
                let present = numbers(&states(&client).await?);
                for job in jobs.pick(&present) {
                    match without_close {
                        true => client.raw().wait_submitted(JobId(job)).await.map(drop)?,
                        false => wait(&client, JobId(job)).await?,
                    }
                }
            }
            JobVerb::Open { name, max_fails } => {
                let settings = JobSettings { real_data: true, max_fails, ..Default::default() };
                let name = name.unwrap_or_else(|| "job".to_owned());
                let job = client
                    .open_job(OpenOptions { name, settings, ..OpenOptions::default() })
                    .await?
                    .id();
                match front.form {
                    Form::Quiet => front.context.output.line(&job.0.to_string())?,
                    _ => front.context.output.line(&format!("Job {} is open.", job.0))?,
                }
            }
            JobVerb::Close { jobs } => close(front, &client, &jobs).await?,
            JobVerb::Forget { jobs, filter } => forget(front, &client, &jobs, &filter).await?,
            JobVerb::Cat { jobs, stream, tasks, task_status, print_task_header } => {
                let what = Cat { stream, tasks, task_status, print_task_header };
                cat(front, &client, &jobs, &what).await?;
            }
            JobVerb::TaskIds { jobs, filter } => {
                for job in selected(front, &states(&client).await?, &jobs)? {
                    let rows = tasks::rows(&client, &job).await?;
                    let wanted = rows.iter().filter(|row| is_wanted(&filter, row.state));
                    front.context.output.line(&ids::text(wanted.map(|row| row.id)))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) async fn wait(client: &Client, job: JobId) -> Result<(), Failure> {
    loop {
        let state = client.raw().wait_job(job, |_| ()).await?;
        if is_ended(&state) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

pub(crate) fn numbers(jobs: &[Job]) -> Vec<u64> {
    jobs.iter().map(|job| job.id.0).collect()
}

fn is_wanted(filter: &[String], state: &str) -> bool {
    filter.is_empty() || filter.iter().any(|word| word.eq_ignore_ascii_case(state))
}

/// The selected jobs; the others are named.
pub(crate) fn selected(
    front: &Front,
    jobs: &[Job],
    selector: &Selector,
) -> Result<Vec<Job>, Failure> {
    let picked = selector.pick(&numbers(jobs));
    if picked.is_empty() {
        front.context.output.line("No jobs were found")?;
    }
    let mut found = Vec::new();
    for id in picked {
        match jobs.iter().find(|job| job.id.0 == id) {
            Some(job) => found.push(job.clone()),
            None => front.context.output.line(&format!("ERROR Job {id} not found"))?,
        }
    }
    Ok(found)
}

/// With the middle left out.
fn short_name(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= JOB_NAME_BYTES_MAX + 10 {
        return name.to_owned();
    }
    let text = |letters: &[char]| letters.iter().collect::<String>();
    format!("{}...{}", text(&letters[..24]), text(&letters[letters.len() - 23..]))
}

async fn list(
    front: &Front,
    client: &Client,
    all: bool,
    filter: &[String],
    verbose: bool,
) -> Result<(), Failure> {
    let jobs = states(client).await?;
    let total = jobs.len();
    let is_shown = |job: &&Job| match filter.is_empty() {
        _ if all || front.form == Form::Json => true,
        true => !job.is_ended() || job.openness == Openness::Open,
        false => is_wanted(filter, job.state()),
    };
    let shown: Vec<&Job> = jobs.iter().filter(is_shown).collect();
    match front.form {
        Form::Quiet => {
            for job in shown {
                front.context.output.line(&format!("{} {}", job.id.0, job.state()))?;
            }
        }
        Form::Json => {
            let mut rows: Vec<serde_json::Value> = Vec::new();
            for job in shown {
                rows.push(json::job(job, tasks::running(client, job).await?));
            }
            front.context.output.raw_line(&serde_json::Value::from(rows).to_string())?;
        }
        Form::Cli => {
            let mut header = vec!["ID", "Name", "State", "Tasks"];
            if verbose {
                header.push("Cancel Reason");
            }
            let mut rows = Vec::new();
            for job in &shown {
                let mark = if job.openness == Openness::Open { "*" } else { "" };
                let mut row = vec![
                    format!("{mark}{}", job.id.0),
                    short_name(&job.record.name),
                    job.state().to_owned(),
                    job.record.total.to_string(),
                ];
                if verbose {
                    row.push(records::job(client, job.id).await?.cancel_reason);
                }
                rows.push(row);
            }
            front.context.output.text(&table::horizontal(&header, &rows))?;
            if !all && filter.is_empty() {
                let text = match total {
                    1 => "There is 1 job in total.".to_owned(),
                    n => format!("There are {n} jobs in total."),
                };
                front.context.output.line(&format!("{text} Use `--all` to display all jobs."))?;
            }
        }
    }
    Ok(())
}

async fn summary(front: &Front, client: &Client) -> Result<(), Failure> {
    let jobs = states(client).await?;
    let words = ["RUNNING", "WAITING", "FINISHED", "FAILED", "ABORTED", "CANCELED"];
    let count = |word: &str| jobs.iter().filter(|job| job.state() == word).count();
    if front.form == Form::Json {
        let name = |word: &str| format!("{}{}", &word[..1], word[1..].to_lowercase());
        let counts: serde_json::Map<String, serde_json::Value> =
            words.iter().map(|word| (name(word), count(word).into())).collect();
        return front.context.output.raw_line(&serde_json::Value::from(counts).to_string());
    }
    let rows: Vec<Vec<String>> =
        words.iter().map(|word| vec![(*word).to_owned(), count(word).to_string()]).collect();
    front.context.output.text(&table::horizontal(&["Status", "Count"], &rows))
}

async fn info(front: &Front, client: &Client, selector: &Selector) -> Result<(), Failure> {
    let mut all_json = Vec::new();
    for job in selected(front, &states(client).await?, selector)? {
        let record = records::job(client, job.id).await?;
        let rows = tasks::rows_with_workers(client, &job, &record).await?;
        if front.form == Form::Json {
            all_json.push(json::job_detail(&job, &record, &rows));
            continue;
        }
        let mut text = table::vertical(&info_rows(&job, &record, &rows));
        let failed: Vec<Vec<String>> = rows
            .iter()
            .filter(|row| row.state == "FAILED")
            .map(|row| vec![row.id.to_string(), row.worker.clone(), row.error.clone()])
            .collect();
        if !failed.is_empty() {
            text += &table::horizontal(&["Task ID", "Worker", "Error"], &failed);
        }
        front.context.output.text(&text)?;
    }
    match front.form {
        Form::Json => front.context.output.raw_line(&serde_json::Value::from(all_json).to_string()),
        _ => Ok(()),
    }
}

fn info_rows(job: &Job, record: &JobRecord, rows: &[TaskRow]) -> Vec<(&'static str, String)> {
    let of = record.submissions.first().cloned().unwrap_or_default();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.state).or_default() += 1;
    }
    let order = ["RUNNING", "WAITING", "FAILED", "CANCELED", "ABORTED", "FINISHED"];
    let lines = order.iter().filter_map(|word| Some(format!("{word} ({})", counts.get(word)?)));
    let state = match rows.len() == 1 && job.openness == Openness::Graph {
        true => job.state().to_owned(),
        false => {
            let lines: Vec<String> = std::iter::once(job.state().to_owned()).chain(lines).collect();
            lines.join("\n")
        }
    };
    let mut numbers: Vec<u64> = rows.iter().map(|row| row.id).collect();
    numbers.sort_unstable();
    let mut workers: Vec<&str> = rows.iter().map(|row| row.worker.as_str()).collect();
    workers.sort_unstable();
    workers.dedup();
    workers.retain(|worker| !worker.is_empty());
    let end_ns = if job.record.ended_ns > 0 { job.record.ended_ns } else { now_ns() };
    let first = rows.iter().map(|row| row.started_ns).filter(|&at| at > 0).min();
    let last = rows.iter().map(|row| row.ended_ns).max().filter(|&at| at > 0 && job.is_ended());
    let start_ns = first.unwrap_or(job.record.submitted_ns);
    let session = if job.openness == Openness::Open { "open" } else { "closed" };
    let limit = match of.time_limit_ns {
        0 => "None".to_owned(),
        ns => span(ns),
    };
    let path = |path: &Option<String>| path.clone().unwrap_or_else(|| "<None>".to_owned());
    vec![
        ("ID", job.id.0.to_string()),
        ("Name", job.record.name.clone()),
        ("State", state),
        ("Session", session.to_owned()),
        ("Tasks", format!("{}; Ids: {}", rows.len(), ids::text(numbers))),
        ("Workers", workers.join(", ")),
        ("Resources", tasks::resources(&of)),
        ("Priority", of.priority.to_string()),
        ("Command", of.command.join("\n")),
        ("Stdout", path(&of.stdout)),
        ("Stderr", path(&of.stderr)),
        ("Environment", tasks::environment(&of)),
        ("Working directory", of.cwd.clone()),
        ("Pin", tasks::pin(&of)),
        ("Task time limit", limit),
        ("Crash limit", of.crash_limit.clone()),
        ("Submission directory", of.submit_dir.clone()),
        ("Makespan", span(last.unwrap_or(end_ns).saturating_sub(start_ns))),
    ]
}

async fn cancel(
    front: &Front,
    client: &Client,
    selector: &Selector,
    reason: Option<&str>,
) -> Result<(), Failure> {
    let jobs = states(client).await?;
    for id in selector.pick(&numbers(&jobs)) {
        let failed = |why: &str| format!("Canceling job {id} failed; {why}");
        let job = jobs.iter().find(|job| job.id.0 == id);
        let ended = job.is_some_and(Job::is_ended);
        if ended && *selector == Selector::All {
            continue;
        }
        let text = match job {
            None => failed("job not found"),
            Some(_) if ended => failed("job is already finished"),
            Some(job) => {
                let count = cancel_tasks(client, job).await?;
                if let Some(reason) = reason {
                    let set = |record: &mut JobRecord| reason.clone_into(&mut record.cancel_reason);
                    records::change_job(client, job.id, set).await?;
                }
                format!("Job {id} canceled ({count} tasks canceled)")
            }
        };
        front.context.output.line(&text)?;
    }
    Ok(())
}

/// Cancels the tasks of a job; one that is open gets further tasks afterwards.
async fn cancel_tasks(client: &Client, job: &Job) -> Result<u64, Failure> {
    let mut tasks: Vec<LocalId> = Vec::new();
    if job.openness == Openness::Open {
        let mut see = |task: wire::TaskState| tasks.push(LocalId(task.local));
        client.raw().tasks(job.id, &mut see).await?;
        if tasks.is_empty() {
            return Ok(0);
        }
    }
    Ok(client.cancel(job.id, &tasks).await?.cancelled)
}

async fn close(front: &Front, client: &Client, selector: &Selector) -> Result<(), Failure> {
    let jobs = states(client).await?;
    for id in selector.pick(&numbers(&jobs)) {
        let text = match jobs.iter().find(|job| job.id.0 == id) {
            None => format!("Closing job {id} failed; job not found"),
            Some(job) if job.openness != Openness::Open => {
                format!("Closing job {id} failed; job is already closed")
            }
            Some(job) => {
                client.close_job(job.id).await?;
                format!("Job {id} closed")
            }
        };
        front.context.output.line(&text)?;
    }
    Ok(())
}

async fn forget(
    front: &Front,
    client: &Client,
    selector: &Selector,
    filter: &[String],
) -> Result<(), Failure> {
    let jobs = states(client).await?;
    let (mut forgotten, mut ignored) = (0, 0);
    for id in selector.pick(&numbers(&jobs)) {
        match jobs.iter().find(|job| job.id.0 == id) {
            Some(job) if job.is_ended() && is_wanted(filter, job.state()) => {
                client.forget(job.id, true).await?;
                records::forget_job(client, job.id).await?;
                forgotten += 1;
            }
            _ => ignored += 1,
        }
    }
    let word = if forgotten == 1 { "job" } else { "jobs" };
    let mut text = format!("{forgotten} {word} were forgotten");
    if ignored > 0 {
        text += &format!(", {ignored} were ignored due to wrong state or invalid ID");
    }
    front.context.output.line(&text)
}

struct Cat {
    stream: Stream,
    tasks: Option<Ids>,
    task_status: Vec<String>,
    print_task_header: bool,
}

async fn cat(
    front: &Front,
    client: &Client,
    selector: &Selector,
    what: &Cat,
) -> Result<(), Failure> {
    let output = &front.context.output;
    for job in selected(front, &states(client).await?, selector)? {
        let record = records::job(client, job.id).await?;
        let rows = tasks::rows(client, &job).await?;
        let all: Vec<u64> = rows.iter().map(|row| row.id).collect();
        for id in what.tasks.as_ref().map_or(all, |ids| ids.0.clone()) {
            let Some(row) = rows.iter().find(|row| row.id == id) else {
                output.line(&format!("WARN Task {id} of job {} not found", job.id.0))?;
                continue;
            };
            if !is_wanted(&what.task_status, row.state) {
                continue;
            }
            let (word, template) = match what.stream {
                Stream::Stdout => ("stdout", record.of_task(id).and_then(|it| it.stdout.clone())),
                Stream::Stderr => ("stderr", record.of_task(id).and_then(|it| it.stderr.clone())),
            };
            let Some(template) = template else {
                let text = format!("WARN Task {id} has no `{word}` stream associated with it");
                output.line(&text)?;
                continue;
            };
            if what.print_task_header {
                output.line(&format!("# Job {}, task {id}", job.id.0))?;
            }
            let path = row.path(&template);
            match std::fs::read(&path) {
                Ok(bytes) => {
                    let _ = std::io::stdout().lock().write_all(&bytes);
                }
                Err(error) => output.line(&format!("WARN Cannot read `{path}`: {error}"))?,
            }
        }
    }
    Ok(())
}

//! The answers of a running cluster. Nodes are only asked while a page asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::raw::is_ended;
use client::{Client, ClientError, StreamFilter, now_ns};
use proto::wire::{ClusterMap, JobState, NodeState, TaskState};
use proto::{JobId, LocalId, NodeId};
use serde::Serialize;
use tokio::sync::Mutex;
use verb::Context;
use verb::cluster::logs::Logs;
use verb::errors::{Exit, Failure};
use verb::units;
use web::{Answer, Body, Problem, ProblemKind, Question, Source};

use super::changes::{Change, Changes};
use super::record_rows::Shown;
use super::{REQUEST_TIMEOUT, metric_facts, requested, task_rows};
use crate::cluster::node::{NodeInfo, NodeList};
use crate::cluster::task;
use crate::report::collect;
use crate::views::job_info;
use crate::views::jobs::{self, JobRow};

/// Several pages that ask within this time get the same answer.
const FRESH: Duration = Duration::from_millis(500);
/// The time that all nodes have to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// A running job is summed up again after this long, and after this many times the time it took.
const SUMMED_UP_FOR: Duration = Duration::from_secs(3);
const COST_SHARE: u32 = 20;
/// Larger jobs have no summary on the page.
const TASKS_MAX: u64 = 4_000_000;
/// The summed-up jobs that are kept.
const SHOWN_MAX: usize = 4;
/// The part of a captured output that is shown: its end.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

type States = Vec<(NodeId, Result<NodeState, ClientError>)>;

/// Nodes and jobs at one moment.
#[derive(Serialize)]
pub(crate) struct Overview {
    schema: u32,
    source: &'static str,
    instance: String,
    pub(crate) now_s: f64,
    /// The time since which changes were looked for, while a page was open.
    since_s: f64,
    pub(crate) map_epoch: u64,
    pub(crate) jobs: Vec<JobRow>,
    /// The reason why some jobs are missing or are of an earlier look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jobs_missing: Option<String>,
    #[serde(flatten)]
    pub(crate) list: NodeList,
    /// Of the nodes that answer.
    figures: Vec<NodeInfo>,
    pub(crate) changes: Vec<Change>,
    /// The page may change jobs and nodes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allows_changes: bool,
}

impl Overview {
    /// Of run records: without nodes, and without changes.
    pub(crate) fn of_records(instance: String, jobs: Vec<JobRow>) -> Self {
        let now_s = seconds_now();
        Self {
            schema: 1,
            source: "records",
            instance,
            now_s,
            since_s: now_s,
            map_epoch: 0,
            jobs,
            jobs_missing: None,
            list: NodeList::default(),
            figures: Vec::new(),
            changes: Vec::new(),
            allows_changes: false,
        }
    }

    /// The number and the place of the records, if it is of records.
    pub(crate) fn records_text(&self) -> Option<String> {
        let number = units::number_of(self.jobs.len() as u64, "run record");
        (self.source == "records").then(|| format!("{number} of {}", self.instance))
    }
}

struct Look {
    at: Instant,
    overview: Arc<Overview>,
    json: Arc<String>,
}

/// A job that was summed up.
struct Detail {
    job: JobId,
    made: Instant,
    took: Duration,
    /// The round, the end and the presence of the summary: if they are the same, an ended job is.
    of: (u32, u64, bool),
    is_last: bool,
    shown: Arc<Shown>,
}

struct Inner {
    client: Client,
    /// With the rights of a client, if changes are allowed.
    changer: Option<Client>,
    instance: String,
    since_s: f64,
    look: Mutex<(Option<Look>, Changes)>,
    /// One job at a time is summed up.
    details: Mutex<Vec<Detail>>,
}

/// The source of a cluster.
#[derive(Clone)]
pub(crate) struct Live(Arc<Inner>);

impl Source for Live {
    fn answer(&self, question: Question) -> Answer {
        let live = self.clone();
        Box::pin(async move { live.answer_to(question).await.map_err(problem) })
    }

    fn change(&self, change: web::Change) -> Answer {
        let live = self.clone();
        Box::pin(async move {
            let client = live.0.changer.as_ref().expect("the server allows no changes without it");
            let changed = requested::make(client, &change).await.map_err(refusal)?;
            // The next look shows it.
            live.0.look.lock().await.0 = None;
            Ok(json(&changed))
        })
    }
}

/// The failure of a change. That of a thing that is there is no absence.
fn refusal(failure: Failure) -> Problem {
    let problem = problem(failure);
    match problem.kind {
        ProblemKind::Absent => Problem { kind: ProblemKind::Refused, ..problem },
        _ => problem,
    }
}

/// A failure of a verb as the answer to a page.
pub(super) fn problem(failure: Failure) -> Problem {
    let kind = match failure.exit {
        Exit::Lost | Exit::TimedOut => ProblemKind::Away,
        Exit::Usage => ProblemKind::Refused,
        _ => ProblemKind::Absent,
    };
    Problem { kind, text: failure.message, hint: failure.hint }
}

fn json(value: &impl Serialize) -> Body {
    Body::Json(serde_json::to_string(value).expect("numbers and strings always serialise"))
}

fn seconds_now() -> f64 {
    now_ns() as f64 / 1e9
}

pub(super) fn job_id(text: &str) -> Result<JobId, Failure> {
    let wrong = || Failure::usage(format!("'{text}' is not the number of a job"));
    text.parse().map(JobId).map_err(|_| wrong())
}

fn task_id(text: &str) -> Result<LocalId, Failure> {
    text.parse().map_err(|_| Failure::usage(format!("'{text}' is not the id of a task")))
}

impl Live {
    /// `allow_changes`: with a further connection that has the rights of a client.
    pub(crate) async fn connect(context: &Context, allow_changes: bool) -> Result<Self, Failure> {
        let client = context.connect_to_read(REQUEST_TIMEOUT).await?;
        let instance = context.dir()?.display().to_string();
        Ok(Self(Arc::new(Inner {
            client,
            changer: if allow_changes { Some(context.connect().await?) } else { None },
            instance,
            since_s: seconds_now(),
            look: Mutex::default(),
            details: Mutex::default(),
        })))
    }

    async fn answer_to(&self, question: Question) -> Result<Body, Failure> {
        match question {
            Question::Overview => {
                let (_, json) = self.look().await?;
                Ok(Body::Json(json.to_string()))
            }
            Question::Store => {
                let (overview, _) = self.look().await?;
                Ok(json(&task_rows::StoreRows::of(&self.0.client.raw().map(), &overview.list)))
            }
            Question::Report { job } => {
                Ok(Body::Json(self.detail(job_id(&job)?).await?.report_json()))
            }
            Question::Record { job } => Ok(Body::Bytes(self.detail(job_id(&job)?).await?.bytes()?)),
            Question::Tasks { job, filter } => {
                Ok(json(&self.detail(job_id(&job)?).await?.tasks(&filter)))
            }
            Question::Task { job, task } => self.task(job_id(&job)?, task_id(&task)?).await,
            Question::Output { job, task, stderr } => {
                self.output(job_id(&job)?, task_id(&task)?, stderr).await
            }
            Question::Metrics => {
                let (map, states, jobs) = self.ask().await;
                let jobs = jobs.ok().filter(|jobs| jobs.missing.is_empty());
                let jobs = jobs.map(|jobs| jobs.states);
                let facts = metric_facts::facts(&map, states, jobs.as_deref());
                Ok(Body::Metrics(web::metrics::text(&facts)))
            }
        }
    }

    /// The state of all nodes and jobs.
    async fn ask(&self) -> (Arc<ClusterMap>, States, Result<client::raw::JobRecordList, Failure>) {
        let client = &self.0.client;
        let jobs = async {
            // Homes that move meanwhile may take longer: the page shows the last look.
            match tokio::time::timeout(PATIENCE, client.raw().jobs(PATIENCE / 2)).await {
                Ok(jobs) => jobs.map_err(Failure::from),
                Err(_) => Err(Failure::lost("the jobs are not listed in time")),
            }
        };
        tokio::join!(client.raw().newest_map(PATIENCE), client.raw().node_states(PATIENCE), jobs)
    }

    /// Looks at the cluster, unless another page has just done so.
    pub(crate) async fn look(&self) -> Result<(Arc<Overview>, Arc<String>), Failure> {
        let mut guard = self.0.look.lock().await;
        let (last, changes) = &mut *guard;
        if let Some(look) = last.as_ref().filter(|look| look.at.elapsed() < FRESH) {
            return Ok((Arc::clone(&look.overview), Arc::clone(&look.json)));
        }
        let (map, states, jobs) = self.ask().await;
        if states.iter().all(|(_, state)| state.is_err()) {
            let text = format!("no node of {} answers", self.0.instance);
            return Err(Failure::lost(text).hint("'starling up' starts its nodes"));
        }
        let list = NodeList::of(&map, &states);
        let are_all = jobs.as_ref().is_ok_and(|jobs| jobs.missing.is_empty());
        let (jobs, jobs_missing): (Vec<JobRow>, _) = match (jobs, last.as_ref()) {
            (Ok(jobs), _) => {
                let missing = (!jobs.missing.is_empty()).then(|| jobs::missing_text(&jobs));
                (jobs.states.iter().map(JobRow::new).collect(), missing)
            }
            (Err(failure), Some(look)) => {
                let text = format!("{}: these are of an earlier look", failure.message);
                (look.overview.jobs.clone(), Some(text))
            }
            (Err(failure), None) => (Vec::new(), Some(failure.message)),
        };
        let now_s = seconds_now();
        changes.look(now_s, &list.nodes, are_all.then_some(&jobs[..]));
        let figures = list.nodes.iter().zip(&states).filter_map(|(row, (_, state))| {
            state.as_ref().ok().map(|state| NodeInfo::of(row.clone(), state))
        });
        let overview = Arc::new(Overview {
            schema: 1,
            source: "cluster",
            instance: self.0.instance.clone(),
            now_s,
            since_s: self.0.since_s,
            map_epoch: map.epoch,
            jobs,
            jobs_missing,
            figures: figures.collect(),
            list,
            changes: changes.seen.iter().cloned().collect(),
            allows_changes: self.0.changer.is_some(),
        });
        let text = serde_json::to_string(&*overview).expect("numbers and strings always serialise");
        let json = Arc::new(text);
        let (shown, text) = (Arc::clone(&overview), Arc::clone(&json));
        *last = Some(Look { at: Instant::now(), overview, json });
        Ok((shown, text))
    }

    /// Sums a job up from its homes and the event logs, unless that was done lately.
    pub(crate) async fn detail(&self, job: JobId) -> Result<Arc<Shown>, Failure> {
        let client = &self.0.client;
        let state = job_info::recorded(client, job, None).await?;
        if state.total > TASKS_MAX {
            let text = format!("job {} has more than {TASKS_MAX} tasks", job.0);
            let hint = format!("'starling report {} -o report.html' sums it up", job.0);
            return Err(Failure::refused(text).hint(hint));
        }
        let of = (state.round(), state.ended_ns, state.summary.is_some());
        let mut details = self.0.details.lock().await;
        let known = details.iter().find(|detail| detail.job == job);
        if let Some(detail) = known.filter(|detail| detail.of == of) {
            let lasts = SUMMED_UP_FOR.max(detail.took * COST_SHARE);
            if detail.is_last || detail.made.elapsed() < lasts {
                return Ok(Arc::clone(&detail.shown));
            }
        }
        let begun = Instant::now();
        let shown = Arc::new(self.sum_up(&state).await?);
        details.retain(|detail| detail.job != job);
        if details.len() == SHOWN_MAX {
            details.remove(0);
        }
        let (made, took) = (Instant::now(), begun.elapsed());
        // A summary without some nodes is made again: they may return.
        let is_last = is_ended(&state) && shown.record.meta.missing.is_empty();
        details.push(Detail { job, made, took, of, is_last, shown: Arc::clone(&shown) });
        Ok(shown)
    }

    async fn sum_up(&self, state: &JobState) -> Result<Shown, Failure> {
        let logs = Logs::read_quietly(&self.0.client, JobId(state.job), None).await?;
        let record = collect::of_logs(&self.0.client, state, logs).await?;
        let thinned = state.thinned_text();
        // Sorting the attempts of a large job takes seconds.
        let shown = tokio::task::spawn_blocking(move || Shown::new(record, thinned)).await;
        shown.map_err(|_| Failure::lost("the job could not be summed up"))
    }

    async fn task_state(&self, job: JobId, task: LocalId) -> Result<TaskState, Failure> {
        let explanation = self.0.client.raw().explain(job, task).await?;
        explanation.task.ok_or_else(|| {
            Failure::refused(format!("job {}: no task '{task}'", job.0))
                .hint("its records may be gone by retention")
        })
    }

    async fn task(&self, job: JobId, local: LocalId) -> Result<Body, Failure> {
        let client = &self.0.client;
        let state = self.task_state(job, local).await?;
        let logs = Logs::read_quietly(client, job, Some(local)).await?;
        let entries = task::entries_of(&logs, job, local)?;
        let explained = task::explained(client, job, &state, &entries).await?;
        let missing = logs.missing.iter().map(|(node, _)| node.0).collect();
        Ok(json(&task_rows::TaskPage::new(explained, &state, missing)))
    }

    /// The end of the captured output of a task's last attempt.
    async fn output(&self, job: JobId, local: LocalId, stderr: bool) -> Result<Body, Failure> {
        let state = self.task_state(job, local).await?;
        let written = if stderr { state.stderr_bytes } else { state.stdout_bytes };
        let mut found = task_rows::OutputPage { written, ..Default::default() };
        if !state.placed {
            return Ok(json(&found));
        }
        let home = NodeId(state.node);
        let mut nodes = vec![(home, None)];
        nodes.extend(self.0.client.nodes().into_iter().filter(|&it| it != home).map(|it| {
            // Other nodes may have a copy.
            (it, Some(home))
        }));
        for (node, copies_of) in nodes {
            let filter =
                StreamFilter { tasks: vec![local], stderr, copies_of, ..StreamFilter::default() };
            let asked = self.stream(node, job, &filter, state.attempt, &mut found);
            let answered = tokio::time::timeout(PATIENCE, asked).await;
            found.is_away |= !matches!(answered, Ok(Ok(())));
            if found.bytes > 0 || written == 0 {
                break;
            }
        }
        Ok(json(&found))
    }

    async fn stream(
        &self,
        node: NodeId,
        job: JobId,
        filter: &StreamFilter,
        attempt: u64,
        found: &mut task_rows::OutputPage,
    ) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        let streams = self.0.client.streams(node, job, filter, |piece| {
            if piece.attempt.0 == attempt {
                found.damaged |= piece.damaged;
                found.bytes += piece.data.len() as u64;
                bytes.extend_from_slice(&piece.data);
                let over = bytes.len().saturating_sub(OUTPUT_BYTES_MAX);
                bytes.drain(..over);
            }
            Ok::<(), ClientError>(())
        });
        let answered = streams.await;
        if !bytes.is_empty() {
            found.text = String::from_utf8_lossy(&bytes).into_owned();
            found.node = Some(node.0);
        }
        answered
    }
}

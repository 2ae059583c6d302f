//! The event logs of a job's nodes, merged, and what can be read from them.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use analysis::{Edges, Entry, Fold, Kinds, Label, Merged, TraceWriter};
use client::{Client, ClientError};
use proto::event::{End, Event, RetryReason};
use proto::wire::NodeState;
use proto::{Attempt, JobId, LocalId, NodeId, TaskId, Time};
use workloads::{Graph, Plan};

use crate::errors::Failure;
use crate::output::say;

/// The time that a node has to send its state.
pub const STATE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// The event logs of all nodes that answer.
#[derive(Debug, Default)]
pub struct Logs {
    logs: Vec<(NodeId, Vec<u8>)>,
    /// Later events are skipped.
    until: Option<Time>,
    pub states: Vec<NodeState>,
    /// The nodes without events here, and the reasons.
    pub missing: Vec<(NodeId, String)>,
}

async fn events_of(
    client: &Client,
    node: NodeId,
    job: JobId,
    task: Option<LocalId>,
) -> Result<Vec<u8>, ClientError> {
    let mut events = client.events(node, job, task).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = events.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

impl Logs {
    /// Reads the logs of a job, or of one of its tasks. Unreachable nodes are named on stderr.
    pub async fn read(client: &Client, job: JobId, task: Option<LocalId>) -> Result<Self, Failure> {
        let read = Self::read_quietly(client, job, task).await?;
        for (node, why) in &read.missing {
            say(&format!("warning: without the events of {node}: {why}"));
        }
        Ok(read)
    }

    /// As [`Self::read`], without a warning.
    pub async fn read_quietly(
        client: &Client,
        job: JobId,
        task: Option<LocalId>,
    ) -> Result<Self, Failure> {
        let mut read = Self::default();
        for (node, state) in client.raw().node_states(STATE_TIMEOUT).await {
            let events = match state {
                Ok(_) => events_of(client, node, job, task).await,
                Err(ref error) => Err(ClientError::ClusterUnreachable(error.to_string())),
            };
            match events {
                Ok(bytes) => {
                    read.states.extend(state);
                    read.logs.push((node, bytes));
                }
                // The node may also stop, or fail, during the read.
                Err(ClientError::ClusterUnreachable(why)) => {
                    read.missing.push((node, why));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(read)
    }

    /// Skips the events after the end of a job; 0: it has not ended.
    pub fn end(&mut self, ended_ns: u64) {
        self.until = (ended_ns > 0).then_some(Time(ended_ns));
    }

    /// All events by time. Unreadable parts are named on stderr at the end.
    pub fn for_each(
        &self,
        mut see: impl FnMut(&Entry) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let logs = self.logs.iter().map(|(node, bytes)| (*node, &bytes[..]));
        let mut merged = Merged::new(logs);
        for entry in merged.by_ref() {
            if self.until.is_none_or(|until| entry.time <= until) {
                see(&entry)?;
            }
        }
        for error in merged.errors() {
            say(&format!("warning: {error}"));
        }
        Ok(())
    }

    /// Sums up the events. The plan, if there is one, gives the width and kind of tasks.
    pub fn fold(&self, job: JobId, plan: Option<(&Graph, &Plan<'_>)>) -> Result<Fold, Failure> {
        let kinds = plan.map(|(graph, _)| Kinds::of(graph)).unwrap_or_default();
        let unclocked = plan.is_some_and(|(graph, _)| graph.clock_starts_after_loads());
        let mut fold = Fold::of_job(job).before_the_clock(kinds.loads().filter(|_| unclocked));
        self.for_each(|entry| {
            let known = plan.zip(entry.event.task());
            let task = known.and_then(|((graph, plan), task)| {
                plan.task_of(task.local).map(|number| (graph, number))
            });
            let slots = task.map_or(1, |(graph, number)| graph.cpus(number));
            let kind = task.map(|(graph, number)| kinds.of_task(graph, number));
            fold.push_task(entry, slots, kind);
            Ok(())
        })?;
        Ok(fold)
    }

    /// The end of each task of a job. Of several attempts the highest number counts, not the last.
    /// A home that slept while another took its place may commit an end after it wakes. Such an end
    /// does not count, and the numbers of its successor are higher.
    pub fn committed(&self, job: JobId) -> Result<HashMap<LocalId, Committed>, Failure> {
        let (mut committed, mut recalled) = (HashMap::new(), HashMap::new());
        self.for_each(|entry| {
            match entry.event {
                Event::Committed { task, attempt, end, node, .. } if task.job == job => {
                    let ended = Committed { node, attempt, end };
                    let known = committed.entry(task.local).or_insert(ended);
                    if known.attempt <= attempt {
                        *known = ended;
                    }
                }
                Event::Replaced {
                    task,
                    attempt,
                    why: RetryReason::Recalled | RetryReason::Rebuilt | RetryReason::Round,
                } if task.job == job => {
                    let latest = recalled.entry(task.local).or_insert(attempt);
                    *latest = attempt.max(*latest);
                }
                _ => {}
            }
            Ok(())
        })?;
        // The outputs of these attempts do not count any more.
        committed.retain(|local, end: &mut Committed| {
            recalled.get(local).is_none_or(|&recalled| recalled < end.attempt)
        });
        Ok(committed)
    }

    /// Further nodes with the outputs of tasks: those that took them over from a leaving node, or
    /// have replicas of them. In the order of time.
    pub fn taken_over(
        &self,
        job: JobId,
    ) -> Result<HashMap<LocalId, Vec<(Attempt, NodeId)>>, Failure> {
        let mut taken: HashMap<LocalId, Vec<(Attempt, NodeId)>> = HashMap::new();
        self.for_each(|entry| {
            if let Event::TakenOver { task, attempt, .. } = entry.event
                && task.job == job
            {
                taken.entry(task.local).or_default().push((attempt, entry.node));
            }
            Ok(())
        })?;
        Ok(taken)
    }

    /// True if this node's log was read.
    pub fn has(&self, node: NodeId) -> bool {
        self.logs.iter().any(|(read, _)| *read == node)
    }

    /// Writes a Chrome trace. Flows that are left out are counted on stderr.
    pub fn write_trace(
        &self,
        to: TraceFile,
        origin: Option<Time>,
        labels: impl FnMut(TaskId) -> Option<Label>,
        edges: Edges,
    ) -> Result<(), Failure> {
        let TraceFile { path, file } = to;
        let failed = |error: std::io::Error| Failure::file(&path, &error);
        if file.metadata().map_err(failed)?.is_file() {
            file.set_len(0).map_err(failed)?;
        }
        let writer = TraceWriter::new(BufWriter::new(file), origin, labels).map_err(failed)?;
        let mut writer = writer.with_edges(edges);
        self.for_each(|entry| writer.push(entry).map_err(failed))?;
        let left_out = writer.flow_counts().left_out;
        writer.finish().map_err(failed)?;
        if left_out > 0 {
            let most = analysis::trace::FLOWS_MAX;
            say(&format!(
                "warning: {left_out} flows are left out of the trace, which has at most {most} of \
                 data and {most} of moves"
            ));
        }
        Ok(())
    }
}

/// The destination of a trace. It is opened before the work begins, so that an unwritable path is
/// detected early. An existing file stays until the trace is written.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    file: File,
}

impl TraceFile {
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::options().create(true).truncate(false).write(true).open(path);
        let file = file.map_err(|error| Failure::file(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }
}

/// The attempt of a task that counted, and the node where it ran.
#[derive(Clone, Copy, Debug)]
pub struct Committed {
    pub node: NodeId,
    pub attempt: Attempt,
    pub end: End,
}

//! Kept outputs of tasks: copied out of the cluster after a run, or on request.
//!
//! A submitted workflow leaves the list of its kept outputs in the cluster's own store, because the
//! workflow file may be gone when they are fetched. The homes of spawned tasks know those of the
//! latter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use client::{Client, ClientError, SubmitOptions};
use proto::event::End;
use proto::wire::{self, OutputForm, spec::Body};
use proto::{Attempt, JobId, LocalId, NodeId, ObjectId, TaskId};
use serde::{Deserialize, Serialize};
use workloads::{Graph, Plan};

use super::logs::{Committed, Logs};
use super::made::Made;
use super::unpack;
use crate::errors::{Failure, plain};
use crate::output::say;
use crate::units::number_of;

/// The maximum of outputs in one key of the store, far below the limit of a value.
const LISTED_MAX: usize = 10_000;
/// The time that the homes of spawned tasks have to list kept outputs.
const LISTED_WITHIN: Duration = Duration::from_secs(10);
/// The maximum of lost outputs that an error names.
const LOST_SHOWN_MAX: usize = 5;

/// One kept output: task, number of the output, file, and form of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptOutput(u64, u32, pub String, #[serde(default)] i32);

impl KeptOutput {
    /// The task that makes it.
    #[must_use]
    pub fn task(&self) -> LocalId {
        LocalId(self.0)
    }
}

fn key(job: JobId, part: usize) -> Vec<u8> {
    format!("starling/kept/{}/{part}", job.0).into_bytes()
}

/// True if an output of this task is kept and has bytes.
fn keeps(spec: &wire::Spec, real_data: bool) -> bool {
    let has_bytes = real_data || matches!(spec.body, Some(Body::Command(_) | Body::Call(_)));
    has_bytes && spec.outputs.iter().any(|output| output.keep)
}

/// True if a command has a kept output.
pub fn has_commands_that_keep(graph: &Graph) -> bool {
    graph.specs().iter().any(|spec| keeps(spec, false))
}

/// The kept outputs of a workflow.
pub fn of_graph(graph: &Graph, plan: &Plan<'_>, real_data: bool) -> Vec<KeptOutput> {
    if !graph.specs().iter().any(|spec| keeps(spec, real_data)) {
        return Vec::new();
    }
    let mut kept = Vec::new();
    for task in graph.tasks().filter(|task| keeps(task.spec, real_data)) {
        let local = plan.local_id(task.index);
        for (output, declared) in (0..).zip(&task.spec.outputs).filter(|(_, o)| o.keep) {
            let file = workloads::expand(&declared.file, task.entry);
            kept.push(KeptOutput(local.0, output, file, declared.form));
        }
    }
    kept
}

/// Stores the list of a job's kept outputs, before the job is committed. So every job has its list.
pub async fn remember(client: &Client, job: JobId, kept: &[KeptOutput]) -> Result<(), Failure> {
    for (part, listed) in kept.chunks(LISTED_MAX).enumerate() {
        let text = serde_json::to_vec(listed).expect("numbers and strings always serialise");
        client.kv().insert(&key(job, part), &text).await?;
    }
    Ok(())
}

/// Stores the list of a workflow's kept outputs, and submits it.
pub async fn send<'g>(
    client: &Client,
    graph: &'g Graph,
    options: &SubmitOptions,
) -> Result<Plan<'g>, Failure> {
    let plan = client.plan(graph, options).await?;
    let kept = of_graph(graph, &plan, options.settings.real_data);
    remember(client, plan.job(), &kept).await?;
    client.submit_plan(&plan, options).await?;
    Ok(plan)
}

/// True if there is a list of the job's kept outputs.
pub async fn is_listed(client: &Client, job: JobId) -> Result<bool, Failure> {
    Ok(client.kv().lookup(&key(job, 0)).await?.is_some())
}

/// Removes the list of a job's kept outputs. The last part goes first, so that after an
/// interruption the rest is found again.
pub async fn forget(client: &Client, job: JobId) -> Result<(), Failure> {
    let mut parts = 0;
    while client.kv().lookup(&key(job, parts)).await?.is_some() {
        parts += 1;
    }
    for part in (0..parts).rev() {
        client.kv().remove(&key(job, part)).await?;
    }
    Ok(())
}

/// The list of a job's kept outputs.
pub async fn recall(client: &Client, job: JobId) -> Result<Vec<KeptOutput>, Failure> {
    let mut kept = Vec::new();
    for part in 0.. {
        let Some(listed) = recall_part(client, job, part).await? else { break };
        kept.extend(listed);
    }
    Ok(kept)
}

/// The first kept outputs of a job, and whether there are more.
pub async fn recall_first(client: &Client, job: JobId) -> Result<(Vec<KeptOutput>, bool), Failure> {
    let kept = recall_part(client, job, 0).await?.unwrap_or_default();
    let has_more = kept.len() >= LISTED_MAX && client.kv().lookup(&key(job, 1)).await?.is_some();
    Ok((kept, has_more))
}

/// The kept outputs of spawned tasks.
#[derive(Debug, Default)]
pub struct OfSpawned {
    pub kept: Vec<KeptOutput>,
    /// Some homes of spawned tasks did not answer.
    pub is_partial: bool,
}

impl OfSpawned {
    /// Fails if some are not known.
    pub fn check(&self, job: JobId) -> Result<(), Failure> {
        if !self.is_partial {
            return Ok(());
        }
        let text = format!("homes of spawned tasks of job {} do not answer", job.0);
        Err(Failure::lost(text).hint("their kept outputs were not copied: repeat it later"))
    }
}

/// Asks the homes for the kept outputs of spawned tasks. No client has listed these. Few jobs have
/// any, and only these are asked for.
pub async fn of_spawned(client: &Client, state: &wire::JobState) -> Result<OfSpawned, Failure> {
    let mut found = OfSpawned::default();
    if !state.sum.as_ref().is_some_and(|sum| sum.keeps) {
        return Ok(found);
    }
    let see = |task: wire::TaskState| {
        let one = |it: wire::KeptFile| KeptOutput(task.local, it.output, it.file, it.form);
        found.kept.extend(task.kept.into_iter().map(one));
    };
    let is_complete = client.raw().kept_tasks(JobId(state.job), LISTED_WITHIN, see).await?;
    found.is_partial = !is_complete;
    found.kept.sort_unstable_by_key(|kept| (kept.0, kept.1));
    Ok(found)
}

async fn recall_part(
    client: &Client,
    job: JobId,
    part: usize,
) -> Result<Option<Vec<KeptOutput>>, Failure> {
    let Some(value) = client.kv().lookup(&key(job, part)).await? else { return Ok(None) };
    let listed = serde_json::from_slice(&value.bytes).map_err(|error| {
        let key = String::from_utf8(key(job, part)).expect("made of text");
        Failure::refused(format!("key {key} does not list what the job keeps: {error}"))
    })?;
    Ok(Some(listed))
}

/// A file that was copied.
#[derive(Debug, Serialize)]
pub struct CopiedFile {
    task: String,
    pub file: String,
    pub path: String,
    bytes: u64,
    #[serde(skip)]
    pub object: ObjectId,
}

/// The result of a copy.
#[derive(Default, Debug)]
pub struct Outcome {
    pub copied: Vec<CopiedFile>,
    /// Outputs of tasks that are not done.
    pub undone: u64,
    /// Unreachable nodes that may have objects, or records of finished tasks.
    pub away: BTreeSet<NodeId>,
    /// Outputs that could not be written here, with the reason; the cluster still has them.
    pub unwritten: Vec<(KeptOutput, String)>,
    /// Outputs that no node has: file and reason.
    lost: Vec<(String, String)>,
}

impl Outcome {
    /// Fails with the names of lost outputs.
    pub fn check_lost(&self) -> Result<(), Failure> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let shown = self.lost.iter().take(LOST_SHOWN_MAX);
        let mut texts: Vec<String> = shown.map(|(file, why)| format!("'{file}': {why}")).collect();
        if self.lost.len() > texts.len() {
            texts.push(format!("and {} more", self.lost.len() - texts.len()));
        }
        let number = number_of(self.lost.len() as u64, "kept output");
        let failure = Failure::lost(format!("{number} lost: {}", texts.join("; ")));
        Err(failure.hint("all others were copied; submit the workflow again for these"))
    }

    /// Fails with the name of an unwritten output.
    pub fn check_written(&self, job: JobId, dir: &Path) -> Result<(), Failure> {
        let Some((first, _)) = self.unwritten.first() else { return Ok(()) };
        let shown = self.unwritten.iter().take(LOST_SHOWN_MAX);
        let mut texts: Vec<String> =
            shown.map(|(it, why)| format!("'{}' of task {}: {why}", it.2, it.task())).collect();
        if self.unwritten.len() > texts.len() {
            texts.push(format!("and {} more", self.unwritten.len() - texts.len()));
        }
        let number = number_of(self.unwritten.len() as u64, "kept output");
        let text = format!("{}: {number} not written, {}", dir.display(), texts.join("; "));
        Err(Failure::refused(text).hint(format!(
            "the cluster still has them: 'starling job fetch {} {} -o DIRECTORY' copies those of \
             that task",
            job.0,
            first.task()
        )))
    }
}

/// Copies every kept output of finished tasks into `dir`.
pub async fn copy(
    client: &Client,
    logs: &Logs,
    job: JobId,
    kept: &[KeptOutput],
    dir: &Path,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    if kept.is_empty() {
        return Ok(outcome);
    }
    let (ran, taken) = (logs.committed(job)?, logs.taken_over(job)?);
    let mut silent: BTreeSet<NodeId> =
        client.nodes().into_iter().filter(|node| !logs.has(*node)).collect();
    let mut last_outputs = BTreeMap::new();
    for KeptOutput(task, output, ..) in kept {
        let last: &mut u32 = last_outputs.entry(LocalId(*task)).or_default();
        *last = (*output).max(*last);
    }
    let made = Made::read(client, job, &last_outputs).await;
    if !made.is_complete {
        say("warning: without the records of some tasks, copies are not compared with checksums");
    }
    let mut written = Written::new();
    for wanted in kept {
        let KeptOutput(task, output, file, form) = wanted;
        let form = OutputForm::try_from(*form).unwrap_or_default();
        let local = LocalId(*task);
        let taken = taken.get(&local).map(Vec::as_slice).unwrap_or_default();
        let known = match ran.get(&local) {
            Some(known) => Some(*known),
            // The log of its home may be lost with a node that has left.
            None => ask_home(client, job, local).await.or_else(|| {
                taken.last().map(|&(attempt, node)| Committed { node, attempt, end: End::Done })
            }),
        };
        let Some(known @ Committed { attempt, end: End::Done, .. }) = known else {
            outcome.undone += 1;
            outcome.away.extend(&silent); // One of them may have the record that it is done.
            continue;
        };
        let to = inside(dir, file)?;
        let object = ObjectId { task: TaskId { job, local }, attempt, output: *output };
        let sources = sources(&known, taken);
        let checksum = made.checksum(object);
        let target = Target { dir, to: &to, form, written: &written, checksum };
        match fetch_from(client, &sources, object, target, &mut silent).await {
            Ok(fetched) => {
                for note in &fetched.notes {
                    say(&format!("warning: output '{file}': {note}"));
                }
                if let Some(why) = fetched.why_left_out(dir, &written) {
                    outcome.unwritten.push((wanted.clone(), why));
                }
                let one = |(path, bytes): (PathBuf, u64)| CopiedFile {
                    task: local.to_string(),
                    file: match form {
                        OutputForm::Files => name_below(dir, &path),
                        OutputForm::File | OutputForm::Directory => file.clone(),
                    },
                    path: path.display().to_string(),
                    bytes,
                    object,
                };
                outcome.copied.extend(fetched.shown.into_iter().map(one));
                written.extend(fetched.placed.into_iter().map(|path| (path, local)));
            }
            Err(CopyFailure::Silent(node)) => _ = outcome.away.insert(node),
            Err(CopyFailure::Unwritten(why)) => outcome.unwritten.push((wanted.clone(), why)),
            Err(CopyFailure::Lost(why)) => outcome.lost.push((file.clone(), why)),
        }
    }
    Ok(outcome)
}

/// The nodes that may have the outputs of an attempt. The last one that took them over comes first,
/// because the others may have left.
fn sources(known: &Committed, taken: &[(Attempt, NodeId)]) -> Vec<NodeId> {
    let of_attempt = taken.iter().rev().filter(|(attempt, _)| *attempt == known.attempt);
    let mut sources: Vec<NodeId> = of_attempt.map(|&(_, node)| node).collect();
    sources.push(known.node);
    sources
}

/// The reason why an output was not copied.
enum CopyFailure {
    /// This node may have it, and does not answer.
    Silent(NodeId),
    /// The output could not be written here.
    Unwritten(String),
    /// The nodes that had it do not have it any more.
    Lost(String),
}

/// The files that this copy has written, and the task of each.
type Written = HashMap<PathBuf, LocalId>;

/// The destination of an output.
#[derive(Clone, Copy)]
struct Target<'t> {
    dir: &'t Path,
    to: &'t Path,
    form: OutputForm,
    written: &'t Written,
    /// That of the object's bytes, if its task's home has told it.
    checksum: Option<u64>,
}

/// A copied output.
#[derive(Default)]
struct Fetched {
    /// The files, or the directory, with their sizes.
    shown: Vec<(PathBuf, u64)>,
    placed: Vec<PathBuf>,
    /// Places that another output has taken in this copy.
    left_out: Vec<PathBuf>,
    /// What is odd about the output.
    notes: Vec<String>,
}

impl Fetched {
    /// The reason why files were left out.
    fn why_left_out(&self, dir: &Path, written: &Written) -> Option<String> {
        let first = self.left_out.first()?;
        let of = written.get(first).map_or_else(String::new, |task| format!(" by task {task}"));
        let name = name_below(dir, first);
        Some(match self.left_out.len() - 1 {
            0 => format!("'{name}' was already written{of}"),
            more => format!("'{name}' was already written{of}, and {more} more were so"),
        })
    }
}

impl Target<'_> {
    /// Copies it from a node; returns the files and their sizes.
    async fn fetch(
        self,
        client: &Client,
        node: NodeId,
        object: ObjectId,
    ) -> Result<Fetched, ClientError> {
        let Self { dir, to, form, written, checksum } = self;
        let broken = |error: std::io::Error| ClientError::File {
            path: to.to_owned(),
            reason: plain(&error),
        };
        unpack::make_parent(dir, to, form).map_err(broken)?;
        if form == OutputForm::File && written.contains_key(to) {
            return Ok(Fetched { left_out: vec![to.to_owned()], ..Fetched::default() });
        }
        if form == OutputForm::File {
            let bytes = client.fetch_object_with(node, object, checksum, to).await?;
            let (shown, placed) = (vec![(to.to_owned(), bytes)], vec![to.to_owned()]);
            return Ok(Fetched { shown, placed, ..Fetched::default() });
        }
        let scratch = tempfile::Builder::new().prefix(".starling-part-").tempdir_in(dir);
        let scratch = scratch.map_err(broken)?;
        let archive = scratch.path().join("archive");
        let bytes = client.fetch_object_with(node, object, checksum, &archive).await?;
        let is_taken = |path: &Path| written.contains_key(path);
        let files = unpack::place(&archive, form, dir, to, is_taken).map_err(broken)?;
        let size = |path: PathBuf| match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => (path, metadata.len()),
            _ => (path, bytes),
        };
        let shown = match form {
            OutputForm::Directory => vec![to.to_owned()],
            OutputForm::File | OutputForm::Files => files.placed.clone(),
        };
        let shown = shown.into_iter().map(size).collect();
        let unpack::Unpacked { placed, left_out, notes } = files;
        Ok(Fetched { shown, placed, left_out, notes })
    }
}

/// The name of a pattern's file below the directory.
fn name_below(dir: &Path, path: &Path) -> String {
    path.strip_prefix(dir).unwrap_or(path).display().to_string()
}

/// Copies from the first node that has it.
async fn fetch_from(
    client: &Client,
    sources: &[NodeId],
    object: ObjectId,
    target: Target<'_>,
    silent: &mut BTreeSet<NodeId>,
) -> Result<Fetched, CopyFailure> {
    let (mut lost, mut refused) = (None, None);
    for &node in sources {
        if silent.contains(&node) {
            lost = Some(node);
            continue;
        }
        match target.fetch(client, node, object).await {
            Ok(files) => return Ok(files),
            Err(ClientError::File { reason, .. }) => return Err(CopyFailure::Unwritten(reason)),
            Err(error @ ClientError::ClusterUnreachable(_)) => {
                say(&format!("warning: without the objects of {node}: {error}"));
                lost = Some(node);
                silent.insert(node);
            }
            Err(error) => refused = Some(error),
        }
    }
    match (lost, refused) {
        (Some(node), _) => Err(CopyFailure::Silent(node)),
        (None, Some(error)) => Err(CopyFailure::Lost(error.to_string())),
        (None, None) => unreachable!("a task has made it"),
    }
}

/// Asks the task's home for its end if no log has it, because the log of the committing node may be
/// gone.
async fn ask_home(client: &Client, job: JobId, task: LocalId) -> Option<Committed> {
    let state = client.raw().explain(job, task).await.ok()?.task?;
    let is_done = state.phase() == wire::TaskPhase::TaskDone && state.placed;
    let (node, attempt) = (NodeId(state.node), Attempt(state.attempt));
    is_done.then_some(Committed { node, attempt, end: End::Done })
}

/// The place of a file in `dir`; refuses a path outside of it.
fn inside(dir: &Path, file: &str) -> Result<PathBuf, Failure> {
    match Path::new(file).components().all(|part| matches!(part, Component::Normal(_))) {
        true => Ok(dir.join(file)),
        false => {
            let text = format!("output '{file}' leads out of {}", dir.display());
            Err(Failure::refused(text).hint("name outputs by relative paths without '..'"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_inside_the_directory() {
        let dir = Path::new("/out");
        assert_eq!(inside(dir, "a/b.txt").unwrap(), Path::new("/out/a/b.txt"));
        for file in ["../b", "/etc/passwd", "a/../../b"] {
            assert!(inside(dir, file).unwrap_err().message.contains("leads out of /out"), "{file}");
        }
    }
}

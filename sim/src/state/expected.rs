//! The simulator's own knowledge of a job: its graph, decoded from the client's chunks, and its
//! events.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::End;
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire};

/// Spec kinds that the executor model understands.
pub const KIND_PLAIN: &str = "plain";
/// Every attempt exits with 3.
pub const KIND_FAILING: &str = "failing";
/// Every other attempt exits with 3.
pub const KIND_FLAKY: &str = "flaky";
/// Every attempt in the first round of its job exits with 3. Later ones succeed.
pub const KIND_MENDED: &str = "mended";
/// Every attempt kills the node that runs it.
pub const KIND_POISON: &str = "poison";

/// Attempts commit turns and spawn tasks; none fails.
pub(crate) const KIND_SPAWNING: &str = "spawning";

/// How long before an end the command of a task gets its signal, if it gets one.
pub(crate) fn notice_ns(spec: &wire::Spec) -> Option<u64> {
    match &spec.body {
        Some(wire::spec::Body::Command(command)) => command.notice.as_ref().map(|it| it.before_ns),
        _ => None,
    }
}

/// The time for which nodes match a task with the rest of their lives.
fn time_request(spec: &wire::Spec) -> Span {
    let notice_ns = notice_ns(spec).map_or(0, |before_ns| before_ns.max(1));
    Span(spec.time_request_ns.max(notice_ns))
}

/// One commit of a task's end, as its home wrote it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub attempt: Attempt,
    pub end: End,
    pub node: NodeId,
    /// A power cut undid it, a lost input made it void, or the task was rebuilt.
    pub undone: bool,
    /// The attempt that was committed after the rebuild. A power cut that undoes this commit may
    /// also undo the decision to rebuild.
    pub made_again_by: Option<Attempt>,
    pub at: Time,
}

/// One dependency slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub parent: LocalId,
    /// 0: order only. k+1: the parent's output k is an input.
    pub output: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ExpectedTask {
    pub slots: Vec<Option<Slot>>,
    pub kind: String,
    pub cpus: u32,
    /// Empty: cpus alone.
    pub request: Vec<u8>,
    /// The time for which it is matched with the rest of a node's life.
    pub time_request: Span,
    pub duration: Span,
    pub retries: u32,
    /// Its command gets a signal before an end.
    pub has_notice: bool,
    /// Outputs to keep, if they have contents that can be lost.
    pub kept: Vec<u32>,
    /// It stands for an uploaded file.
    pub upload: bool,
    /// A task of its job has spawned it.
    pub spawned: bool,
    pub commits: Vec<Commit>,
    /// Its outputs were lost and it runs again. A home that takes over meanwhile knows only the
    /// first end, which holds until there is another.
    pub reopened: bool,
    pub launched: BTreeSet<Attempt>,
    /// Attempts that ended in some executor, and whether they succeeded.
    pub finished: BTreeMap<Attempt, bool>,
    /// Its kills: the term of the home, and whether the task ran on the home itself.
    pub kills: Vec<(u32, bool)>,
    /// Deaths that a home has counted apart.
    pub spared: BTreeSet<(NodeId, u32)>,
    /// It failed because of its strikes.
    pub failed_by_crashes: bool,
    /// Two of its attempts have made different bytes.
    pub differs: bool,
    /// It was done in an earlier round of its job.
    pub was_done: bool,
    /// Its end in an earlier round of its job was undone, and `commits` lack it.
    pub was_retried: bool,
}

impl ExpectedTask {
    pub(crate) fn current(&self) -> Option<Commit> {
        self.commits.iter().rev().find(|commit| !commit.undone).copied()
    }
    /// Resets an unfinished task for a further round of its job.
    pub(crate) fn retried(&mut self) {
        self.was_done |= self.ever_done();
        self.was_retried = true;
        self.commits.clear();
        self.kills.clear();
        self.reopened = false;
    }
    pub(crate) fn ever_done(&self) -> bool {
        self.commits.iter().any(|commit| commit.end == End::Done)
    }
    pub(crate) fn is_undone(&self, attempt: Attempt) -> bool {
        self.commits.iter().any(|commit| commit.undone && commit.attempt == attempt)
    }
    pub(crate) fn ever_done_by(&self, attempt: Attempt) -> bool {
        let done = |commit: &Commit| commit.end == End::Done && commit.attempt == attempt;
        self.commits.iter().any(done)
    }
}

/// The progress of the client, which decides the demands on the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SubmissionStage {
    /// No commit was sent: no task may run.
    Staged,
    /// A commit was sent, and may have arrived.
    CommitSent,
    /// The commit was accepted: the job must end.
    Accepted,
    /// The client received the end of the job.
    Ended,
}

#[derive(Clone, Debug)]
pub(crate) struct ExpectedJob {
    pub job: JobId,
    pub tasks: BTreeMap<LocalId, ExpectedTask>,
    /// Its tasks make files, though maybe empty ones.
    pub real_data: bool,
    /// Its client adds tasks while it runs.
    pub is_open: bool,
    /// The most tasks that run at once.
    pub at_most: Option<u32>,
    /// The jobs that must end without failures before a task starts.
    pub after: Vec<JobId>,
    /// These were committed before this one.
    pub knows_after: bool,
    pub promise: SubmissionStage,
    /// Its client cancels all of it.
    pub cancelled: bool,
    /// The client did so before it sent the commit.
    pub forbidden: bool,
    /// Tasks that its client cancels.
    pub named: BTreeSet<LocalId>,
    /// Nodes that know that the whole job is cancelled.
    pub heard: BTreeSet<usize>,
    /// Its client died before the commit: the job must be deleted.
    pub abandoned: bool,
    pub told: Option<wire::JobState>,
    /// By round: the first summary that a client received, and the number of its next request.
    pub summaries: BTreeMap<u32, (wire::JobSummary, u64)>,
    /// Its client requested that it is forgotten, and received the confirmation.
    pub may_be_forgotten: bool,
    /// Its client fetches results while it runs: no reader may run again.
    pub fetched: bool,
    pub is_forgotten: bool,
}

impl ExpectedJob {
    /// The round in which its client received the end.
    pub(crate) fn announced_round(&self) -> u32 {
        self.told.as_ref().map_or(0, wire::JobState::round)
    }

    /// True if all its tasks were skipped, because of a job that it waited for.
    pub(crate) fn is_skipped(&self) -> bool {
        let settings = self.told.as_ref().and_then(|state| state.settings);
        settings.is_some_and(|settings| settings.skipped_for != 0)
    }

    /// True if none of its tasks was cancelled or kills its node.
    pub(crate) fn may_be_retried(&self) -> bool {
        let kills = |task: &ExpectedTask| task.kind == KIND_POISON || task.failed_by_crashes;
        !self.cancelled && self.named.is_empty() && !self.tasks.values().any(kills)
    }

    /// # Panics
    /// When the chunks contradict each other: the workload is wrong, not the cluster.
    pub(crate) fn new(job: JobId, chunks: &[wire::Chunk], real_data: bool) -> Self {
        let mut tasks: BTreeMap<LocalId, ExpectedTask> = BTreeMap::new();
        for chunk in chunks {
            let partition = PartitionId(chunk.partition);
            for (offset, task) in chunk.tasks.iter().enumerate() {
                let spec = &chunk.specs[task.spec as usize];
                let sizes = (0..).zip(&spec.outputs).zip(&task.output_sizes);
                let kept = sizes.filter(|((_, declared), size_bytes)| {
                    declared.keep && (**size_bytes > 0 || real_data)
                });
                let truth = ExpectedTask {
                    slots: vec![None; task.slots as usize],
                    kind: spec.kind.clone(),
                    cpus: spec.cpus.max(1),
                    request: spec.request.clone(),
                    time_request: time_request(spec),
                    duration: Span(task.duration_ns),
                    retries: spec.retries,
                    has_notice: notice_ns(spec).is_some(),
                    kept: kept.map(|((output, _), _)| output).collect(),
                    upload: matches!(spec.body, Some(wire::spec::Body::Upload(_))),
                    ..ExpectedTask::default()
                };
                tasks.insert(LocalId::new(partition, chunk.first + offset as u64), truth);
            }
        }
        for chunk in chunks {
            for list in &chunk.children {
                let parent = LocalId::new(PartitionId(chunk.partition), list.index);
                assert!(tasks.contains_key(&parent), "children of {parent}, which is no task");
                for ((child, &slot), &output) in list.child.iter().zip(&list.slot).zip(&list.output)
                {
                    let child = tasks.get_mut(&LocalId(*child)).expect("a child is a task");
                    let old = child.slots[slot as usize].replace(Slot { parent, output });
                    assert!(old.is_none(), "one parent per slot");
                }
            }
        }
        assert!(tasks.values().all(|task| task.slots.iter().all(Option::is_some)));
        Self {
            job,
            tasks,
            real_data,
            is_open: false,
            at_most: None,
            after: Vec::new(),
            knows_after: false,
            promise: SubmissionStage::Staged,
            cancelled: false,
            forbidden: false,
            named: BTreeSet::new(),
            heard: BTreeSet::new(),
            abandoned: false,
            told: None,
            summaries: BTreeMap::new(),
            may_be_forgotten: false,
            fetched: false,
            is_forgotten: false,
        }
    }

    pub(crate) fn task_id(&self, local: LocalId) -> TaskId {
        TaskId { job: self.job, local }
    }
    /// The sum of durations times slots.
    pub(crate) fn work(&self) -> Span {
        Span(self.tasks.values().map(|task| task.duration.0 * u64::from(task.cpus)).sum())
    }
    /// The longest path in durations, by repeated relaxation in topological order.
    pub(crate) fn critical_path(&self) -> Span {
        let mut finish: BTreeMap<LocalId, u64> = BTreeMap::new();
        let mut missing: BTreeMap<LocalId, usize> = BTreeMap::new();
        let mut children: BTreeMap<LocalId, Vec<LocalId>> = BTreeMap::new();
        for (&local, task) in &self.tasks {
            missing.insert(local, task.slots.len());
            for slot in task.slots.iter().flatten() {
                children.entry(slot.parent).or_default().push(local);
            }
        }
        let mut ready: Vec<LocalId> =
            missing.iter().filter(|(_, n)| **n == 0).map(|(&local, _)| local).collect();
        let mut longest = 0;
        while let Some(local) = ready.pop() {
            let task = &self.tasks[&local];
            let start = task.slots.iter().flatten().map(|slot| finish[&slot.parent]).max();
            let end = start.unwrap_or(0) + task.duration.0;
            finish.insert(local, end);
            longest = longest.max(end);
            for child in children.get(&local).into_iter().flatten() {
                let left = missing.get_mut(child).expect("every child is a task");
                *left -= 1;
                if *left == 0 {
                    ready.push(*child);
                }
            }
        }
        Span(longest)
    }
}

//! Open jobs: tasks are added while the job runs.
//!
//! A handle gives out the ids of tasks itself, from a range that the job's home has reserved for
//! it. So an append needs no round trip, and a later task may name it as a parent at once. Appended
//! tasks are sent in chunks, each to one home. A chunk that is sent again changes nothing.

mod life_signs;
mod sending;

pub use self::life_signs::{Silence, SilenceAction};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use proto::wire::open_request::What;
use proto::wire::{self, Openness, request, response};
use proto::{JobId, LocalId, PartitionId, limits};
use tokio::sync::{Notify, watch};

use crate::call::name_unknown;
use crate::limits::{
    OPEN_CHUNK_BYTES, OPEN_CHUNK_SPECS_MAX, OPEN_CHUNK_TASKS, OPEN_UNSENT_MAX, RELEASED_TASKS_MAX,
    RESERVED_CHUNKS, RESERVED_TASKS,
};
use crate::records::is_ended;
use crate::{Client, ClientError, DeclaredVariable, JobSettings, TaskSpec, now_ns};

/// The maximum number of parents of a task that is added to a job.
const PARENTS_MAX: usize = 1 << 17;
/// The first and the longest pause of a client that waits until no task is open.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(200);

/// The settings of a job that is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The name in lists.
    pub name: String,
    /// The settings of the job. Tasks are not known yet, so [`JobSettings::real_data`] is to be set
    /// for commands that read outputs.
    pub settings: JobSettings,
    /// `None`: the next free number of the cluster.
    pub job: Option<JobId>,
    /// Values that the tasks share.
    pub variables: Vec<DeclaredVariable>,
    /// `None`: the job stays open if its client dies.
    pub silence: Option<Silence>,
}

/// An edge from a parent. `output`: the number of the output that the child reads; `None`: order
/// only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// The parent.
    pub task: LocalId,
    /// The number of its output; `None`: order only.
    pub output: Option<u32>,
}

/// A task to be added to an open job.
#[derive(Clone, Debug, Default)]
pub struct NewTask {
    /// The `{i}` of templates.
    pub entry: u64,
    /// Overrides the name of the spec, unless it is empty.
    pub name: String,
    /// Of a sleep or spin.
    pub duration_ns: u64,
    /// The sizes of outputs of a synthetic task.
    pub output_sizes: Vec<u64>,
    /// The arguments of a call, unless they are those of the spec.
    #[doc(hidden)]
    pub payload: Bytes,
    /// By input slot: first the parents with data, one for each input of the spec, then the others.
    pub parents: Vec<Parent>,
}

/// A handle to an open job. All clones share its ids and its queue.
///
/// Tasks that are not stored yet are lost with the process: [`Self::flush`] waits for them.
#[derive(Clone, Debug)]
pub struct OpenJob {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    job: JobId,
    state: Mutex<State>,
    /// Something is to be sent, or the handle is dropped.
    wake: Arc<Notify>,
    /// Of its life signs.
    attachment: u32,
    /// The client of the job is silent after this time without a life sign; `None`: never.
    silence: Option<Duration>,
    /// Changes when chunks are stored or the handle fails.
    progress: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    ids: Ids,
    /// Further ranges are reserved. A handle for a known number of tasks needs none.
    refills: bool,
    /// The next range, reserved before the present one ends.
    spare: Option<Ids>,
    /// A partition of each home, in turn.
    places: Vec<PartitionId>,
    next_place: usize,
    filling: Option<Filling>,
    full: VecDeque<(u64, wire::Chunk)>,
    /// Chunks that are not stored yet, by order; and the number of their tasks.
    unstored: BTreeMap<u64, usize>,
    last_order: u64,
    unstored_tasks: usize,
    failed: Option<ClientError>,
}

/// A range of ids that only this handle gives out.
#[derive(Clone, Copy, Debug, Default)]
struct Ids {
    next: u64,
    end: u64,
    chunk: u32,
    chunks_end: u32,
}

#[derive(Debug)]
struct Filling {
    chunk: wire::Chunk,
    specs: Vec<Arc<wire::Spec>>,
    bytes: usize,
}

impl Client {
    /// Opens a job that has no tasks yet. It is durable when this returns.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: another job has this number. Otherwise its home does not answer.
    pub async fn open_job(&self, options: OpenOptions) -> Result<OpenJob, ClientError> {
        let job = if let Some(job) = options.job { job } else { self.next_job().await? };
        let commit = wire::JobCommit {
            job: job.0,
            name: options.name,
            submitted_ns: now_ns(),
            settings: Some(wire::JobSettings {
                silence: options.silence.map(Silence::to_record),
                ..options.settings.to_record()
            }),
            openness: Openness::Open as i32,
            variables: DeclaredVariable::records(&options.variables),
            ..Default::default()
        };
        self.commit(&commit).await?;
        Box::pin(self.attach_job(job)).await
    }

    /// A further handle to a job that is open.
    ///
    /// # Errors
    /// [`ClientError::UnknownJob`], or [`ClientError::Refused`]: the job is not open.
    pub async fn join_job(&self, job: JobId) -> Result<OpenJob, ClientError> {
        let range = self.reserve(job, RESERVED_TASKS, RESERVED_CHUNKS).await?;
        Ok(OpenJob::new(self.clone(), job, range, true))
    }

    /// As [`Self::join_job`], for at most this number of tasks.
    pub async fn join_job_for(&self, job: JobId, tasks: u64) -> Result<OpenJob, ClientError> {
        let chunks = u32::try_from(tasks).unwrap_or(u32::MAX).clamp(1, RESERVED_CHUNKS);
        let range = self.reserve(job, tasks.max(1), chunks).await?;
        Ok(OpenJob::new(self.clone(), job, range, false))
    }

    async fn reserve(
        &self,
        job: JobId,
        tasks: u64,
        chunks: u32,
    ) -> Result<wire::Reserved, ClientError> {
        let what = What::Reserve(wire::ReserveIds { tasks, chunks });
        match self.ask_open(job, self.partition_of(job), what).await? {
            (_, Some(response::Body::Reserved(range))) => Ok(range),
            (node, _) => Err(ClientError::Protocol { node, what: "no reserved ids" }),
        }
    }

    /// No more tasks are added to the job, which ends when all its tasks have ended. Durable when
    /// this returns; a repetition changes nothing.
    pub async fn close_job(&self, job: JobId) -> Result<(), ClientError> {
        let what = What::Close(wire::CloseJob::default());
        self.ask_open(job, self.partition_of(job), what).await.map(drop)
    }

    /// The outputs of these tasks are not held any longer: each is freed when its last reader has
    /// ended. A repetition changes nothing.
    pub async fn release(&self, job: JobId, tasks: &[LocalId]) -> Result<(), ClientError> {
        let mut by_partition: BTreeMap<PartitionId, Vec<u64>> = BTreeMap::new();
        for task in tasks {
            if task.partition().0 >= self.partitions() {
                return Err(ClientError::UnknownTask { job, task: *task });
            }
            by_partition.entry(task.partition()).or_default().push(task.0);
        }
        for (partition, locals) in by_partition {
            for piece in locals.chunks(RELEASED_TASKS_MAX) {
                let locals = piece.to_vec();
                let what = wire::ReleaseOutputs { partition: partition.0, locals };
                self.ask_open(job, partition, What::Release(what)).await?;
            }
        }
        Ok(())
    }

    /// Waits until no task of the job is open, and its state counts the ends of all tasks that were
    /// stored before this call, with all that they spawned. The job may stay open. It looks again
    /// and again: a watch would stay at the job's home until the job ends.
    pub(crate) async fn wait_submitted_record(
        &self,
        job: JobId,
    ) -> Result<wire::JobState, ClientError> {
        let (mut pause, mut needed): (_, Option<u64>) = (LOOK_PAUSE, None);
        loop {
            let state = self.job_record(job).await?;
            let sum = state.sum.clone().unwrap_or_default();
            let ended = sum.done + sum.failed + sum.cancelled + sum.skipped;
            if is_ended(&state) || needed.is_some_and(|needed| ended >= needed) {
                return Ok(state);
            }
            // The reports may be older than the last tasks, so the homes are asked.
            if needed.is_none() && ended >= state.total {
                needed = self.tasks_if_none_is_open(job, &state).await?;
                if needed.is_some() {
                    continue;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_PAUSE_MAX);
        }
    }

    /// The number of all tasks of the job; `None` if some are open.
    async fn tasks_if_none_is_open(
        &self,
        job: JobId,
        state: &wire::JobState,
    ) -> Result<Option<u64>, ClientError> {
        let mut all = 0;
        for &wire::PartitionTotal { partition, .. } in &state.partitions {
            let what = What::CountOpen(wire::CountOpen { partition });
            match self.ask_open(job, PartitionId(partition), what).await? {
                (_, Some(response::Body::OpenTasks(open))) if open.tasks == 0 => all += open.all,
                (_, Some(response::Body::OpenTasks(_))) => return Ok(None),
                (node, _) => {
                    return Err(ClientError::Protocol { node, what: "no number of open tasks" });
                }
            }
        }
        Ok(Some(all))
    }

    fn partition_of(&self, job: JobId) -> PartitionId {
        kvs::job_partition(job, self.partitions())
    }

    async fn ask_open(
        &self,
        job: JobId,
        at: PartitionId,
        what: What,
    ) -> Result<(u32, Option<response::Body>), ClientError> {
        let request = wire::OpenRequest { job: job.0, what: Some(what) };
        let answer = self.ask_home(at, request::Body::Open(request)).await;
        let (node, answer) = answer.map_err(|error| name_unknown(error, job, None))?;
        Ok((node, answer.body))
    }
}

impl OpenJob {
    fn new(client: Client, job: JobId, range: wire::Reserved, refills: bool) -> Self {
        let ids = Ids::of_record(&range);
        let mut seen = BTreeSet::new();
        let all = (0..client.partitions()).map(PartitionId);
        // A partition of each home, another one for each job.
        let first = (job.0 % u64::from(client.partitions().max(1))) as u32;
        let turned = all.map(|it| PartitionId((it.0 + first) % client.partitions()));
        let places = turned.filter(|&it| seen.insert(client.home(it))).collect();
        let next_place = ids.chunk as usize % seen.len().max(1);
        let state = State { ids, refills, places, next_place, ..State::default() };
        let shared = Arc::new(Shared {
            client,
            job,
            state: Mutex::new(state),
            wake: Arc::default(),
            attachment: range.attachment,
            silence: (range.silence_ns > 0).then(|| Duration::from_nanos(range.silence_ns)),
            progress: watch::Sender::new(0),
        });
        tokio::spawn(sending::send(Arc::downgrade(&shared)));
        Self { shared }
    }

    /// The job.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.shared.job
    }

    /// Adds a task and returns its id, which later tasks may name as a parent. Sends it together
    /// with others, soon. An error is final for this handle, except for a malformed task, and
    /// [`ClientError::Busy`]: wait with [`Self::room`]. An open job keeps no outputs after its end.
    pub fn append(&self, spec: &TaskSpec, task: NewTask) -> Result<LocalId, ClientError> {
        check(&self.shared.client, &task)?;
        let mut state = self.shared.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let local = state.add(self.shared.job, &spec.spec, task)?;
        drop(state);
        self.shared.wake.notify_one();
        Ok(local)
    }

    /// Waits while too many tasks are not stored yet.
    pub async fn room(&self) -> Result<(), ClientError> {
        self.wait(|state| state.unstored_tasks < OPEN_UNSENT_MAX).await
    }

    /// Waits until all tasks that were added before are stored, and the homes of their parents know
    /// the edges.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let last = {
            let mut state = self.shared.lock();
            state.finish_chunk();
            state.last_order
        };
        self.shared.wake.notify_one();
        self.wait(|state| state.unstored.first_key_value().is_none_or(|(&first, _)| first > last))
            .await
    }

    /// [`Self::flush`], then [`Client::release`]: tasks that were added before still read the
    /// outputs.
    pub async fn release(&self, tasks: &[LocalId]) -> Result<(), ClientError> {
        self.flush().await?;
        self.shared.client.release(self.shared.job, tasks).await
    }

    /// [`Self::flush`], then [`Client::close_job`].
    pub async fn close(&self) -> Result<(), ClientError> {
        self.flush().await?;
        self.shared.client.close_job(self.shared.job).await
    }

    /// Waits until the handle fails: some task cannot be stored.
    pub async fn failure(&self) -> ClientError {
        loop {
            if let Err(failed) = self.wait(|_| false).await {
                return failed;
            }
        }
    }

    async fn wait(&self, is_done: impl Fn(&State) -> bool) -> Result<(), ClientError> {
        let mut progress = self.shared.progress.subscribe();
        loop {
            {
                let state = self.shared.lock();
                if let Some(failed) = &state.failed {
                    return Err(failed.clone());
                }
                if is_done(&state) {
                    return Ok(());
                }
            }
            // The sender lives as long as this handle.
            if progress.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stored(&self, order: u64, result: Result<(), ClientError>) {
        let mut state = self.lock();
        let tasks = state.unstored.remove(&order).unwrap_or(0);
        state.unstored_tasks -= tasks;
        if let Err(error) = result {
            state.failed.get_or_insert(error);
        }
        drop(state);
        self.progress.send_modify(|version| *version += 1);
        self.wake.notify_one();
    }

    async fn reserve_more(&self) {
        let (tasks, chunks) = (RESERVED_TASKS, RESERVED_CHUNKS);
        let reserved = self.client.reserve(self.job, tasks, chunks).await;
        match reserved {
            Ok(range) => self.lock().spare = Some(Ids::of_record(&range)),
            Err(error) => {
                self.lock().failed.get_or_insert(error);
                self.progress.send_modify(|version| *version += 1);
            }
        }
    }
}

impl Ids {
    fn of_record(range: &wire::Reserved) -> Self {
        Self {
            next: range.first,
            end: range.first + range.tasks,
            chunk: range.chunk,
            chunks_end: range.chunk + range.chunks,
        }
    }
}

impl State {
    fn add(
        &mut self,
        job: JobId,
        spec: &Arc<wire::Spec>,
        task: NewTask,
    ) -> Result<LocalId, ClientError> {
        let bytes = 48
            + task.payload.len()
            + task.name.len()
            + 24 * task.parents.len()
            + 8 * task.output_sizes.len();
        let is_full = |filling: &Filling| {
            filling.chunk.tasks.len() >= OPEN_CHUNK_TASKS
                || filling.bytes + bytes > OPEN_CHUNK_BYTES
                || filling.specs.len() >= OPEN_CHUNK_SPECS_MAX
        };
        if self.filling.as_ref().is_some_and(is_full) {
            self.finish_chunk();
        }
        if self.ids.next >= self.ids.end || self.ids.chunk >= self.ids.chunks_end {
            self.finish_chunk();
            let text = "the ids of this handle are used up".to_owned();
            self.ids = self.spare.take().ok_or(ClientError::Busy { node: 0, text })?;
        }
        if self.filling.is_none() {
            self.begin_chunk(job);
        }
        let Some(filling) = &mut self.filling else { unreachable!("begun above") };
        let index = self.ids.next;
        self.ids.next += 1;
        self.unstored_tasks += 1;
        filling.add(index, spec, task, bytes);
        Ok(LocalId::new(PartitionId(filling.chunk.partition), index))
    }

    fn begin_chunk(&mut self, job: JobId) {
        let partition = self.places.get(self.next_place).copied().unwrap_or(PartitionId(0));
        self.next_place = (self.next_place + 1) % self.places.len().max(1);
        let chunk = wire::Chunk {
            job: job.0,
            partition: partition.0,
            number: self.ids.chunk,
            first: self.ids.next,
            open: true,
            ..Default::default()
        };
        self.ids.chunk += 1;
        self.last_order += 1;
        self.unstored.insert(self.last_order, 0);
        self.filling = Some(Filling { chunk, specs: Vec::new(), bytes: 0 });
    }

    fn finish_chunk(&mut self) {
        let Some(Filling { mut chunk, specs, .. }) = self.filling.take() else { return };
        chunk.specs = specs.iter().map(|spec| spec.as_ref().clone()).collect();
        // An open job keeps no outputs after its end.
        chunk.specs.iter_mut().flat_map(|spec| &mut spec.outputs).for_each(|it| it.keep = false);
        self.unstored.insert(self.last_order, chunk.tasks.len());
        self.full.push_back((self.last_order, chunk));
    }

    fn needs_ids(&self) -> bool {
        let left = |now: u64, end: u64, all: u64| (end - now) < all / 4;
        let Ids { next, end, chunk, chunks_end } = self.ids;
        let few = left(next, end, RESERVED_TASKS)
            || left(chunk.into(), chunks_end.into(), RESERVED_CHUNKS.into());
        few && self.refills && self.spare.is_none() && self.failed.is_none()
    }
}

impl Filling {
    fn add(&mut self, index: u64, spec: &Arc<wire::Spec>, task: NewTask, bytes: usize) {
        let known = self.specs.iter().rposition(|other| Arc::ptr_eq(other, spec));
        let number = known.unwrap_or_else(|| {
            self.bytes += spec.encoded_len();
            self.specs.push(Arc::clone(spec));
            self.specs.len() - 1
        });
        let slots = task.parents.len() as u32;
        let pieces = task.parents.chunks(limits::CHUNK_EDGES_MAX);
        for (at, piece) in pieces.enumerate() {
            self.chunk.parents.push(wire::Parents {
                index,
                first_slot: (at * limits::CHUNK_EDGES_MAX) as u32,
                parent: piece.iter().map(|parent| parent.task.0).collect(),
                output: piece.iter().map(|it| it.output.map_or(0, |output| output + 1)).collect(),
            });
        }
        self.chunk.tasks.push(wire::Task {
            spec: number as u32,
            entry: task.entry,
            duration_ns: task.duration_ns,
            slots,
            output_sizes: task.output_sizes,
            name: task.name,
            payload: task.payload.into(),
            ..Default::default()
        });
        self.bytes += bytes;
    }
}

fn check(client: &Client, task: &NewTask) -> Result<(), ClientError> {
    if task.parents.len() > PARENTS_MAX {
        let given = task.parents.len();
        let text = format!("a task has {given} parents, and at most {PARENTS_MAX} are possible");
        return Err(ClientError::Refused(text));
    }
    let outside = |parent: &&Parent| parent.task.partition().0 >= client.partitions();
    match task.parents.iter().find(outside) {
        None => Ok(()),
        Some(parent) => Err(ClientError::Refused(format!("there is no task {}", parent.task))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_appended_task_keeps_no_output() {
        let ids = Ids { next: 1, end: 2, chunk: 0, chunks_end: 1 };
        let mut state = State { ids, ..State::default() };
        let spec = TaskSpec::noop().kept_output("o", "o").spec;
        state.add(JobId(1), &spec, NewTask::default()).unwrap();
        state.finish_chunk();
        assert!(!state.full[0].1.specs[0].outputs[0].keep);
    }

    #[test]
    fn a_handle_for_a_known_number_of_tasks_reserves_no_more() {
        let ids = Ids { next: 1 << 27, end: (1 << 27) + 5, chunk: 0, chunks_end: 5 };
        let mut state = State { ids, ..State::default() };
        assert!(!state.needs_ids());
        state.refills = true;
        assert!(state.needs_ids());
        state.spare = Some(ids);
        assert!(!state.needs_ids());
    }
}

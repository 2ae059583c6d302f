//! The executor of one node: what the shell talks to.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use std::{fs, io};

use proto::work::{Launch, Outcome};
use proto::{Attempt, NodeId, Span, TaskId, limits, wire};

use crate::captured::{OutputLoss, no_room};
use crate::commands::Commands;
use crate::deliver::DeliveryMethods;
use crate::dir_pool::DirPool;
use crate::error::{ExecutorError, reason};
use crate::objects::ObjectStore;
use crate::pool::Pool;
use crate::shared_files::{SharedFile, SharedFiles};
use crate::streams::{CopiedRecords, Piece, Streams};
use crate::table::{Key, Phase, Table};
use crate::timer::Timer;
use crate::uploads::Uploads;
use crate::{orphan_processes, private, stage, synthetic};

/// What an executor is told when it starts.
#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// `objects/`, `streams/` and `tasks/` lie in it. One executor at a time may use it.
    pub state_dir: PathBuf,
    pub node: NodeId,
    /// Executing threads: also the largest number of spinning or copying threads.
    pub slots: u32,
    /// The program whose `__spawner` verb calls [`crate::spawner::main`]; none: this very program.
    pub spawner_program: Option<PathBuf>,
    pub max_object_bytes: u64,
    /// Copies of files that tasks want staged; more of them stay only while they are in use.
    pub max_staged_bytes: u64,
    /// A task that prints more is killed, and has failed.
    pub captured_task_bytes: u64,
    /// Between SIGTERM and SIGKILL.
    pub kill_grace: Span,
    /// Names cluster and store of the node in the environment of each command: what a command left
    /// behind is found by it. Empty: nothing is looked for by name.
    pub mark: String,
    /// The directory of the instance, by which commands find the cluster; `None`: they are not
    /// told.
    pub instance_dir: Option<PathBuf>,
    /// Commands see nothing of the Slurm allocation that the node is in.
    pub hides_slurm: bool,
    /// How long a spawner that is asked may be silent before another takes its place.
    pub spawner_silence: Span,
    /// Takes messages for the operator of the node, one line each.
    pub say: fn(&str),
}

impl ExecutorConfig {
    /// The defaults for a node.
    #[must_use]
    pub fn new(state_dir: impl Into<PathBuf>, node: NodeId, slots: u32) -> Self {
        Self {
            state_dir: state_dir.into(),
            node,
            slots,
            spawner_program: None,
            max_object_bytes: limits::OBJECT_BYTES_MAX_DEFAULT,
            max_staged_bytes: limits::STAGED_BYTES_DEFAULT,
            captured_task_bytes: limits::CAPTURED_TASK_BYTES_DEFAULT,
            kill_grace: limits::KILL_GRACE,
            mark: String::new(),
            instance_dir: None,
            hides_slurm: false,
            spawner_silence: limits::SPAWNER_TIMEOUT,
            say: |_| {},
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub struct AttemptOutcome {
    pub task: TaskId,
    pub attempt: Attempt,
    pub outcome: Outcome,
    /// A batch system signals a node and its commands one after another: an end that it may have
    /// caused is not to be believed before so long has passed without a word to the node.
    pub doubt: Duration,
}

type Outcomes = Box<dyn Fn(Vec<AttemptOutcome>) + Send + Sync>;

/// What all threads of an executor share.
pub(crate) struct Shared {
    pub(crate) config: ExecutorConfig,
    pub(crate) tasks_dir: PathBuf,
    /// The list of inputs of each task that has none.
    pub(crate) empty_list: PathBuf,
    pub(crate) spare_dirs: DirPool,
    pub(crate) objects: ObjectStore,
    pub(crate) uploads: Uploads,
    pub(crate) staged: Arc<SharedFiles>,
    pub(crate) means: DeliveryMethods,
    /// The file system of the state directory.
    pub(crate) device: u64,
    /// The staged files of attempts that have not ended.
    in_use: Mutex<HashMap<Key, Vec<SharedFile>>>,
    pub(crate) streams: Streams,
    /// For what tasks print.
    captured_room_bytes: AtomicU64,
    pub(crate) table: Table,
    pub(crate) pool: Pool,
    pub(crate) timer: Timer,
    pub(crate) stopping: AtomicBool,
    outcomes: Outcomes,
}

impl Shared {
    /// Reports an outcome, unless the attempt was killed meanwhile: then its outputs go.
    pub(crate) fn finish(&self, key: Key, outcome: Outcome) {
        self.report(self.end(key, outcome).into_iter().collect());
    }

    /// The attempt has ended; its end is to be reported if it is still wanted.
    pub(crate) fn end(&self, key: Key, outcome: Outcome) -> Option<AttemptOutcome> {
        self.release(key);
        let (task, attempt) = key;
        if self.table.remove(key).is_none() {
            self.objects.discard(task, attempt);
            return None;
        }
        Some(AttemptOutcome { task, attempt, outcome, doubt: Duration::ZERO })
    }

    /// Tells of several ends at once: whoever hears them is woken once.
    pub(crate) fn report(&self, ended: Vec<AttemptOutcome>) {
        if !ended.is_empty() {
            (self.outcomes)(ended);
        }
    }

    /// What one task may print: never more than all of them.
    pub(crate) fn print_limit_bytes(&self) -> u64 {
        self.config.captured_task_bytes.min(self.captured_room_bytes.load(Ordering::Relaxed))
    }

    /// Packs pieces of what tasks print, as far as there is room.
    pub(crate) fn keep_pieces(&self, pieces: &[Piece<'_>]) -> Result<(), OutputLoss> {
        let room_bytes = self.captured_room_bytes.load(Ordering::Relaxed);
        let new_bytes: usize = pieces.iter().map(|piece| piece.data.len()).sum();
        let stored_bytes = self.streams.size_bytes();
        let is_full = stored_bytes.saturating_add(new_bytes as u64) > room_bytes;
        if new_bytes > 0 && is_full && !self.streams.make_room(new_bytes as u64, room_bytes) {
            return Err(OutputLoss::Full(no_room(self.config.node, stored_bytes, room_bytes)));
        }
        self.streams.append(pieces).map_err(|error| OutputLoss::Failed(reason(&error)))
    }

    /// The attempt needs its staged files no more; what it has of them are links.
    fn release(&self, key: Key) {
        let released = self.in_use().remove(&key);
        drop(released); // Outside the lock: it may remove files.
    }

    fn in_use(&self) -> MutexGuard<'_, HashMap<Key, Vec<SharedFile>>> {
        self.in_use.lock().expect("no holder of the staged files panics")
    }

    /// Whether an attempt is still to be carried out.
    pub(crate) fn is_wanted(&self, key: Key) -> bool {
        !self.is_stopping() && self.table.contains(key)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Runs the work of one node. Dropping it stops it.
#[derive(Debug)]
pub struct Executor {
    shared: Arc<Shared>,
    commands: Arc<Commands>,
}

impl Executor {
    /// Opens the state directory, clears what an earlier incarnation left half done, and starts.
    /// `outcomes` is called from threads of the executor and must not block for long.
    pub fn start(
        config: ExecutorConfig,
        outcomes: impl Fn(Vec<AttemptOutcome>) + Send + Sync + 'static,
    ) -> Result<Self, ExecutorError> {
        let state_dir = &config.state_dir;
        let wrong = |error: io::Error| ExecutorError::directory(state_dir, &error);
        private::make_dir(state_dir).map_err(wrong)?;
        let state_dir = state_dir.canonicalize().map_err(wrong)?;
        let tasks_dir = state_dir.join("tasks");
        clear_tasks(&tasks_dir, &config.mark)
            .map_err(|error| ExecutorError::directory(&tasks_dir, &error))?;
        let shared = Arc::new(Shared {
            spare_dirs: DirPool::new(&tasks_dir),
            empty_list: crate::environment::make_empty_list(&state_dir).map_err(wrong)?,
            tasks_dir,
            objects: ObjectStore::open(&state_dir.join("objects"), config.max_object_bytes)?,
            uploads: Uploads::open(&state_dir.join("uploads"), config.max_object_bytes)?,
            staged: Arc::new(SharedFiles::open(
                &state_dir.join("staged"),
                config.max_staged_bytes,
            )?),
            means: DeliveryMethods::open(&state_dir.join("held")).map_err(wrong)?,
            device: fs::metadata(&state_dir).map_err(wrong)?.dev(),
            in_use: Mutex::default(),
            streams: Streams::open(&state_dir.join("streams"))?,
            captured_room_bytes: AtomicU64::new(u64::MAX),
            table: Table::default(),
            pool: Pool::new(config.slots, &format!("{}-work", config.node)),
            timer: Timer::start(&format!("{}-timer", config.node))?,
            stopping: AtomicBool::new(false),
            outcomes: Box::new(outcomes),
            config,
        });
        let commands = Arc::new(Commands::new(shared.clone()));
        Ok(Self { shared, commands })
    }

    /// Answers at once when there is nothing to wait for: a no-op (or a sleep of no length) whose
    /// data is virtual. Cheap enough to be asked for every launch; the answer is not reported
    /// again.
    #[must_use]
    pub fn run_inline(launch: &Launch) -> Option<Outcome> {
        synthetic::run_inline(launch)
    }

    /// Starts an attempt. Never blocks; the outcome comes through the callback.
    pub fn launch(&self, launch: Launch) {
        let key = (launch.task, launch.attempt);
        if let Some(outcome) = Self::run_inline(&launch) {
            self.shared.table.insert(key, Phase::inside());
            self.shared.finish(key, outcome);
        } else if matches!(launch.spec.body, Some(wire::spec::Body::Command(_))) {
            if stage::brings_files(&launch) {
                self.launch_staged(launch);
            } else {
                self.commands.launch_all(vec![launch]);
            }
        } else {
            synthetic::launch(&self.shared, launch);
        }
    }

    /// Starts several attempts; their commands are handed over together.
    pub fn launch_all(&self, launches: impl Iterator<Item = Launch>) {
        let mut commands = Vec::new();
        for launch in launches {
            let is_command = matches!(launch.spec.body, Some(wire::spec::Body::Command(_)));
            if is_command && !stage::brings_files(&launch) {
                commands.push(launch);
            } else {
                self.launch(launch);
            }
        }
        self.commands.launch_all(commands);
    }

    /// First the files that it wants near, on a thread that may wait for them.
    fn launch_staged(&self, launch: Launch) {
        let key = (launch.task, launch.attempt);
        self.shared.table.insert(key, Phase::inside());
        let (shared, commands) = (self.shared.clone(), self.commands.clone());
        let started = self.shared.pool.run(move || match stage::stage_in(&shared, &launch) {
            Ok(files) => {
                // Before its phase changes: whoever kills it from then on lets go of them.
                shared.in_use().insert(key, files);
                let number = commands.number();
                if shared.table.advance(key, Phase::Command(number)) {
                    commands.start(vec![(number, Box::new(launch))]);
                } else {
                    shared.release(key); // It was killed meanwhile.
                }
            }
            Err(error) => shared.finish(key, failure(error)),
        });
        if let Err(error) = started {
            let text = format!("cannot start a thread: {}", reason(&error));
            self.shared.finish(key, failure(text));
        }
    }

    /// Stops an attempt, process group and all. It is not reported any more.
    pub fn kill(&self, task: TaskId, attempt: Attempt) {
        let key = (task, attempt);
        match self.shared.table.remove(key) {
            Some(Phase::Command(id)) => self.commands.kill(id),
            Some(Phase::Inside(cancelled)) => cancelled.store(true, Ordering::Release),
            None => {}
        }
        // Out of the table first: nobody comes by more of them from here on.
        self.shared.release(key);
    }

    /// Removes the objects of an attempt that will never be wanted.
    pub fn discard(&self, task: TaskId, attempt: Attempt) {
        self.shared.objects.discard(task, attempt);
    }

    /// The objects on this node. The handle may outlive the executor.
    #[must_use]
    pub fn objects(&self) -> &ObjectStore {
        &self.shared.objects
    }

    /// The files that submitters gave this node.
    #[must_use]
    pub fn uploads(&self) -> &Uploads {
        &self.shared.uploads
    }

    /// Files copied here for tasks may take so much from now on; what no task uses goes.
    pub fn set_staged_room(&self, room_bytes: u64) {
        if self.shared.staged.set_room(room_bytes) {
            let shared = self.shared.clone();
            // Without a thread for it they go with the next that is copied or let go of.
            let _ = self.shared.pool.run(move || shared.staged.trim());
        }
    }

    /// What tasks print may take so much from now on. The oldest packs go first; a task that prints
    /// more at once than there is room for is killed.
    pub fn set_captured_room(&self, room_bytes: u64) {
        self.shared.captured_room_bytes.store(room_bytes, Ordering::Relaxed);
        self.shared.streams.set_room(room_bytes);
    }

    /// Adds to the copy of another node's pack, as far as there is room. How much of it is here.
    ///
    /// # Errors
    /// There is no room, or it cannot be written.
    pub fn keep_copy(&self, records: &CopiedRecords<'_>) -> io::Result<u64> {
        let copies = self.shared.streams.copies();
        // Packs that the maker has no more make room first.
        let held_bytes = copies.keep(&CopiedRecords { data: &[], ..*records })?;
        if records.data.is_empty() {
            return Ok(held_bytes);
        }
        let room_bytes = self.shared.captured_room_bytes.load(Ordering::Relaxed);
        let new_bytes = records.data.len() as u64;
        if copies.size_bytes().saturating_add(new_bytes) > room_bytes {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "no room for more copies"));
        }
        copies.keep(records)
    }

    /// What tasks printed on this node.
    #[must_use]
    pub fn streams(&self) -> &Streams {
        &self.shared.streams
    }

    /// Attempts that were launched and have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.table.len()
    }

    /// Asks all that runs to end: commands get the signal that they may act on, and their time.
    /// Nothing of it is reported any more.
    pub fn ask_all_to_end(&self) {
        for number in self.shared.table.cancel_all() {
            self.commands.kill(number);
        }
    }

    /// Whether some command has not ended yet.
    #[must_use]
    pub fn runs_commands(&self) -> bool {
        self.commands.any_runs()
    }

    /// Kills everything and waits for the executor's threads. Nothing is reported any more.
    pub fn stop(&self) {
        if self.shared.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = self.shared.table.cancel_all();
        self.commands.stop();
        self.shared.timer.stop();
        self.shared.pool.stop();
        // Nothing runs any more. What cannot be removed is left to the next start.
        let _ = remove_entries(&self.shared.tasks_dir);
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop();
    }
}

fn failure(error: String) -> Outcome {
    Outcome { error, exit_code: 1, ..Outcome::default() }
}

/// Task directories are of no use to a new incarnation. Where there are any, the node before was
/// killed; so should its commands have been, but its spawner may have been killed as well.
fn clear_tasks(tasks_dir: &Path, mark: &str) -> io::Result<()> {
    private::own_dir(tasks_dir)?;
    if fs::read_dir(tasks_dir)?.next().is_none() {
        return Ok(());
    }
    orphan_processes::kill_by_task_dir(tasks_dir, mark, Duration::from_secs(5));
    remove_entries(tasks_dir)
}

fn remove_entries(tasks_dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(tasks_dir)? {
        let path = entry?.path();
        // A process that could not be killed may still write there: its directory stays.
        let _ = private::remove_tree(&path);
    }
    Ok(())
}

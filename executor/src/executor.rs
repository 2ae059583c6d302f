//! The executor of one node: the interface for the shell.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use std::{fs, io};

use proto::work::{Launch, Outcome};
use proto::{Attempt, NodeId, Span, TaskId, limits, wire};

use crate::commands::Commands;
use crate::commands::captured::{OutputLoss, no_room};
use crate::commands::dir_pool::DirPool;
use crate::commands::doorway::Doorway;
use crate::commands::{orphan_processes, stage};
use crate::error::{ExecutorError, reason};
use crate::inputs::Brought;
use crate::inputs::deliver::DeliveryMethods;
use crate::inputs::shared_files::SharedFiles;
use crate::inputs::shared_trees::SharedTrees;
use crate::inputs::uploads::Uploads;
use crate::limits::{TREE_COPIES_BYTES_MAX, TREE_COPIES_SHARE};
use crate::members::Members;
use crate::objects::ObjectStore;
use crate::pool::Pool;
use crate::private;
use crate::streams::{CopiedRecords, Piece, Streams};
use crate::synthetic;
use crate::table::{Key, Phase, Table};
use crate::timer::Timer;
use crate::workers::{CallHost, FunctionStore, Workers};

/// A spawner that answers no query for this long hangs, and the node replaces it.
const SPAWNER_TIMEOUT: Span = Span::from_secs(10);
/// The default size of all staged copies of files.
const STAGED_BYTES_DEFAULT: u64 = 6 << 30;

/// The configuration of an executor.
#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// The parent of `objects/`, `streams/` and `tasks/`. One executor at a time may use it.
    pub state_dir: PathBuf,
    pub node: NodeId,
    /// Executing threads: also the largest number of spinning or copying threads.
    pub slots: u32,
    /// The program with the `__spawner` verb, which calls [`crate::spawner::main`]; `None`: this
    /// program.
    pub spawner_program: Option<PathBuf>,
    pub max_object_bytes: u64,
    /// The limit for copies of staged files; above it copies stay only while they are in use.
    pub max_staged_bytes: u64,
    /// The output limit of one task. A task that prints more is killed and fails.
    pub captured_task_bytes: u64,
    /// The time between SIGTERM and SIGKILL.
    pub kill_grace: Span,
    /// Names cluster and store of the node in the environment of each command. Leftover processes
    /// of commands are found by it. Empty: nothing is searched by name.
    pub mark: String,
    /// The instance directory, by which commands find the cluster; `None`: it is not in their
    /// environment.
    pub instance_dir: Option<PathBuf>,
    /// By which commands reach their node; `None`: they cannot.
    pub doorway: Option<Arc<dyn Doorway>>,
    /// Has the functions that are not in the descriptions of their tasks; `None`: there are none.
    pub functions: Option<Arc<dyn FunctionStore>>,
    /// Serves calls that submit calls; `None`: they cannot.
    pub host: Option<Arc<dyn CallHost>>,
    /// Commands see nothing of the Slurm allocation that the node runs in.
    pub hides_slurm: bool,
    /// The pools of GPUs that the node offers: commands see only those that they were given.
    pub gpu_pools: Vec<String>,
    /// The reason why no command can be pinned to the cpus of its attempt, as a clause; `None`:
    /// commands can.
    pub pin_refusal: Option<String>,
    /// The time without an answer after which a spawner is replaced.
    pub spawner_silence: Span,
    /// Receives messages for the node's operator, one line each.
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
            gpu_pools: Vec::new(),
            pin_refusal: None,
            max_object_bytes: limits::OBJECT_BYTES_MAX_DEFAULT,
            max_staged_bytes: STAGED_BYTES_DEFAULT,
            captured_task_bytes: limits::CAPTURED_TASK_BYTES_DEFAULT,
            kill_grace: limits::KILL_GRACE,
            mark: String::new(),
            instance_dir: None,
            doorway: None,
            functions: None,
            host: None,
            hides_slurm: false,
            spawner_silence: SPAWNER_TIMEOUT,
            say: |_| {},
        }
    }
}

/// The end of an attempt.
#[derive(Clone, Debug)]
pub struct AttemptOutcome {
    pub task: TaskId,
    pub attempt: Attempt,
    pub outcome: Outcome,
    /// The state to commit before this end is reported.
    pub checkpoint: Option<Vec<u8>>,
    /// The time for which this end stays in doubt. A batch system signals a node and its commands
    /// one after another. An end that such a signal may have caused counts only if the node gets no
    /// signal within this time.
    pub doubt: Duration,
}

type Outcomes = Box<dyn Fn(Vec<AttemptOutcome>) + Send + Sync>;

/// The state that all threads of an executor share.
pub(crate) struct Shared {
    pub(crate) config: ExecutorConfig,
    pub(crate) tasks_dir: PathBuf,
    /// The shared list of inputs for tasks without inputs.
    pub(crate) empty_list: PathBuf,
    pub(crate) spare_dirs: DirPool,
    pub(crate) objects: ObjectStore,
    pub(crate) uploads: Uploads,
    pub(crate) staged: Arc<SharedFiles>,
    pub(crate) trees: SharedTrees,
    pub(crate) means: DeliveryMethods,
    /// The device of the state directory's file system.
    pub(crate) device: u64,
    /// The staged files of attempts that have not ended.
    in_use: Mutex<HashMap<Key, Vec<Brought>>>,
    /// Attempts that are to get their signal once their command has started.
    noticed: Mutex<HashSet<Key>>,
    pub(crate) streams: Streams,
    /// The limit for captured output.
    captured_room_bytes: AtomicU64,
    pub(crate) table: Table,
    pub(crate) pool: Pool,
    pub(crate) timer: Timer,
    pub(crate) stopping: AtomicBool,
    outcomes: Outcomes,
}

impl Shared {
    /// Reports an outcome, unless the attempt was killed meanwhile: then its outputs are deleted.
    pub(crate) fn finish(&self, key: Key, outcome: Outcome) {
        self.report(self.end(key, outcome).into_iter().collect());
    }

    /// Ends an attempt. Returns its end if it must be reported.
    pub(crate) fn end(&self, key: Key, outcome: Outcome) -> Option<AttemptOutcome> {
        self.release(key);
        let (task, attempt) = key;
        if self.table.remove(key).is_none() {
            self.objects.discard(task, attempt);
            self.leave(key);
            return None;
        }
        Some(AttemptOutcome { task, attempt, outcome, checkpoint: None, doubt: Duration::ZERO })
    }

    /// The command of a killed attempt has ended, or was never started.
    pub(crate) fn leave(&self, (task, attempt): Key) {
        if let Some(doorway) = &self.config.doorway {
            doorway.leave(task, attempt);
        }
    }

    /// Reports several ends at once, so that the receiver is woken once.
    pub(crate) fn report(&self, ended: Vec<AttemptOutcome>) {
        if !ended.is_empty() {
            (self.outcomes)(ended);
        }
    }

    /// The output limit of one task, which never exceeds that of all tasks.
    pub(crate) fn print_limit_bytes(&self) -> u64 {
        self.config.captured_task_bytes.min(self.captured_room_bytes.load(Ordering::Relaxed))
    }

    /// Packs pieces of output, as far as there is space.
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

    /// Drops the staged files of an attempt, which only has links to them.
    pub(crate) fn release(&self, key: Key) {
        let released = self.in_use().remove(&key);
        drop(released); // Outside the lock, because it may remove files.
    }

    /// The staged files of an attempt are those of another one from now on.
    pub(crate) fn hand_on_staged(&self, from: Key, to: Key) {
        let mut in_use = self.in_use();
        let files = in_use.remove(&from);
        in_use.extend(files.map(|files| (to, files)));
    }

    fn in_use(&self) -> MutexGuard<'_, HashMap<Key, Vec<Brought>>> {
        self.in_use.lock().expect("no holder of the staged files panics")
    }

    fn noticed(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.noticed.lock().expect("no holder of the notices panics")
    }
    /// Whether the command of the attempt is to get its signal; only once.
    fn take_notice(&self, key: Key) -> bool {
        self.noticed().remove(&key)
    }

    /// True if an attempt must still run.
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
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: Arc<Commands>,
    workers: Arc<Workers>,
    pub(crate) members: Members,
}

impl Executor {
    /// Opens the state directory, removes leftovers of an earlier incarnation, and starts.
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
        orphan_processes::clear_tasks(&tasks_dir, &config.mark)
            .map_err(|error| ExecutorError::directory(&tasks_dir, &error))?;
        let shared = Arc::new(Shared {
            spare_dirs: DirPool::new(&tasks_dir),
            empty_list: crate::commands::environment::make_empty_list(&state_dir).map_err(wrong)?,
            tasks_dir,
            objects: ObjectStore::open(&state_dir.join("objects"), config.max_object_bytes)?,
            uploads: Uploads::open(&state_dir.join("uploads"), config.max_object_bytes)?,
            staged: Arc::new(SharedFiles::open(
                &state_dir.join("staged"),
                config.max_staged_bytes,
            )?),
            trees: SharedTrees::open(&state_dir.join("trees"), config.max_staged_bytes)?,
            means: DeliveryMethods::open(&state_dir.join("held")).map_err(wrong)?,
            device: fs::metadata(&state_dir).map_err(wrong)?.dev(),
            in_use: Mutex::default(),
            noticed: Mutex::default(),
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
        let workers = Arc::new(Workers::new(shared.clone()));
        let members = Members::new(shared.clone());
        Ok(Self { shared, commands, workers, members })
    }

    /// Returns the outcome at once if there is nothing to wait for: a no-op (or a sleep of zero
    /// length) with virtual data. It is cheap enough to call for every launch. The outcome is not
    /// reported again.
    #[must_use]
    pub fn run_inline(launch: &Launch) -> Option<Outcome> {
        synthetic::run_inline(launch)
    }

    /// Starts an attempt. Never blocks; the callback receives the outcome.
    pub fn launch(&self, launch: Launch) {
        let key = (launch.task, launch.attempt);
        if let Some(outcome) = Self::run_inline(&launch) {
            self.shared.table.insert(key, Phase::inside());
            self.shared.finish(key, outcome);
        } else if matches!(launch.spec.body, Some(wire::spec::Body::Call(_))) {
            self.workers.launch_all(vec![launch]);
        } else if matches!(launch.spec.body, Some(wire::spec::Body::Command(_))) {
            self.workers.give_up(&launch);
            if stage::brings_files(&launch) {
                self.launch_staged(launch);
            } else {
                self.commands.launch_all(vec![launch]);
            }
        } else {
            synthetic::launch(&self.shared, launch);
        }
    }

    /// Starts several attempts; their commands are handed over together, and so are their calls.
    pub fn launch_all(&self, launches: impl Iterator<Item = Launch>) {
        let (mut commands, mut calls) = (Vec::new(), Vec::new());
        for launch in launches {
            if matches!(launch.spec.body, Some(wire::spec::Body::Call(_))) {
                calls.push(launch);
                continue;
            }
            let is_command = matches!(launch.spec.body, Some(wire::spec::Body::Command(_)));
            if is_command && !stage::brings_files(&launch) {
                self.workers.give_up(&launch);
                commands.push(launch);
            } else {
                self.launch(launch);
            }
        }
        self.commands.launch_all(commands);
        self.workers.launch_all(calls);
    }

    /// Stages the files of an attempt on a thread that may wait for them, and then starts it.
    fn launch_staged(&self, launch: Launch) {
        let key = (launch.task, launch.attempt);
        self.shared.table.insert(key, Phase::inside());
        let (shared, commands) = (self.shared.clone(), self.commands.clone());
        let started = self.shared.pool.run(move || match stage::stage_in(&shared, &launch) {
            Ok(files) => {
                // Before the phase changes: a kill from then on releases them.
                shared.in_use().insert(key, files);
                let number = commands.number();
                if shared.table.advance(key, Phase::Command(number)) {
                    commands.start(vec![(number, Box::new(launch))]);
                    if shared.take_notice(key) {
                        commands.give_notice(number);
                    }
                } else {
                    shared.release(key); // The attempt was killed meanwhile.
                }
            }
            Err(error) => {
                shared.take_notice(key);
                shared.finish(key, failure(error));
            }
        });
        if let Err(error) = started {
            let text = format!("cannot start a thread: {}", reason(&error));
            self.shared.finish(key, failure(text));
        }
    }

    /// Kills an attempt with its process group. Its end is not reported.
    pub fn kill(&self, task: TaskId, attempt: Attempt) {
        let key = (task, attempt);
        match self.shared.table.remove(key) {
            Some(Phase::Command(id)) => self.commands.kill(id),
            Some(Phase::Call(number)) => self.workers.kill(number),
            Some(Phase::Inside(cancelled)) => {
                cancelled.store(true, Ordering::Release);
                self.shared.take_notice(key);
            }
            None => {}
        }
        // Removed from the table first, so that it gets no further staged files.
        self.shared.release(key);
    }

    /// The command of an attempt gets the signal of its task, unless it has got it already.
    pub fn give_notice(&self, task: TaskId, attempt: Attempt) {
        let key = (task, attempt);
        self.shared.noticed().insert(key);
        match self.shared.table.phase(key) {
            Some(Phase::Inside(_)) => {} // Its files are staged: the command follows.
            Some(Phase::Command(number)) if self.shared.take_notice(key) => {
                self.commands.give_notice(number);
            }
            _ => {
                self.shared.take_notice(key);
            }
        }
    }

    /// The time limit of a command stands still while the command waits without a slot, and goes on
    /// afterwards.
    pub fn set_waiting(&self, task: TaskId, attempt: Attempt, waits: bool) {
        if let Some(Phase::Command(number)) = self.shared.table.phase((task, attempt)) {
            self.commands.set_waiting(number, waits);
        }
    }

    /// A call that waited has its slot again ([`CallHost::rests`]).
    pub fn go_on_call(&self, task: TaskId, attempt: Attempt) {
        self.workers.go_on((task, attempt));
    }

    /// The command of the attempt `parked` goes on as the attempt of `launch`, with the same task.
    /// `then` is called when that holds for everything it has printed too. False if the command has
    /// ended: then nothing changes, and `then` is not called.
    pub fn go_on(
        &self,
        parked: Attempt,
        launch: &Launch,
        then: impl FnOnce() + Send + 'static,
    ) -> bool {
        let (task, next) = (launch.task, launch.attempt);
        let Some(Phase::Command(number)) = self.shared.table.phase((task, parked)) else {
            return false;
        };
        let Some(has_printed) = self.commands.go_on(number, (task, parked), launch) else {
            return false;
        };
        self.commands.set_waiting(number, false);
        if !has_printed {
            then();
            return true;
        }
        let (shared, commands) = (self.shared.clone(), self.commands.clone());
        let run = move || {
            let keep = |piece: &Piece<'_>| shared.keep_pieces(std::slice::from_ref(piece));
            let copied = shared.streams.copy_attempt(task, parked, next, keep);
            let must_end = copied.is_err_and(|loss| commands.lose(number, loss));
            then();
            // After that, because its end is not that of a command that waits.
            if must_end {
                commands.kill(number);
            }
        };
        if let Err(error) = self.shared.pool.run(run) {
            self.commands.kill(number);
            let text = format!("cannot start a thread: {}", reason(&error));
            self.shared.finish((task, next), failure(text));
        }
        true
    }

    /// Removes the objects of an attempt that will never be needed.
    pub fn discard(&self, task: TaskId, attempt: Attempt) {
        self.shared.objects.discard(task, attempt);
    }

    /// The objects on this node. The handle may outlive the executor.
    #[must_use]
    pub fn objects(&self) -> &ObjectStore {
        &self.shared.objects
    }

    /// The files that submitters uploaded to this node.
    #[must_use]
    pub fn uploads(&self) -> &Uploads {
        &self.shared.uploads
    }

    /// Sets the limit for copies of staged files; removes unused ones above it.
    pub fn set_staged_room(&self, room_bytes: u64) {
        let trees_bytes = TREE_COPIES_BYTES_MAX.min(room_bytes / TREE_COPIES_SHARE);
        let files = self.shared.staged.set_room(room_bytes - trees_bytes);
        let trees = self.shared.trees.set_room(trees_bytes);
        if files || trees {
            let shared = self.shared.clone();
            // Without a thread they are removed when the next copy is made or released.
            let _ = self.shared.pool.run(move || {
                shared.staged.trim();
                shared.trees.trim();
            });
        }
    }

    /// Sets the limit for captured output. The oldest packs are removed first. A task that prints
    /// more at once than fits is killed.
    pub fn set_captured_room(&self, room_bytes: u64) {
        self.shared.captured_room_bytes.store(room_bytes, Ordering::Relaxed);
        self.shared.streams.set_room(room_bytes);
    }

    /// Appends to the copy of another node's pack, as far as there is space. Returns the number of
    /// its bytes here.
    ///
    /// # Errors
    /// There is no space, or it cannot be written.
    pub fn keep_copy(&self, records: &CopiedRecords<'_>) -> io::Result<u64> {
        let copies = self.shared.streams.copies();
        // Copies of packs that the maker has removed are dropped first.
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

    /// The captured output of tasks on this node.
    #[must_use]
    pub fn streams(&self) -> &Streams {
        &self.shared.streams
    }

    /// The number of attempts that were launched and have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.table.len()
    }

    /// Asks all running work to end: commands get SIGTERM and their grace period. Nothing is
    /// reported afterwards.
    pub fn ask_all_to_end(&self) {
        let (commands, calls) = self.shared.table.cancel_all();
        commands.into_iter().for_each(|number| self.commands.kill(number));
        calls.into_iter().for_each(|number| self.workers.kill(number));
    }

    /// True if some command or call has not ended yet.
    #[must_use]
    pub fn runs_commands(&self) -> bool {
        self.commands.any_runs() || self.workers.any_runs()
    }

    /// The reason why this node starts no command now: its spawner process has died or hangs.
    #[must_use]
    pub fn spawner_trouble(&self) -> Option<String> {
        self.commands.trouble()
    }

    /// Kills everything and waits for the executor's threads. Nothing is reported afterwards.
    pub fn stop(&self) {
        if self.shared.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = self.shared.table.cancel_all();
        self.commands.stop();
        self.workers.stop();
        self.members.stop();
        self.shared.timer.stop();
        self.shared.pool.stop();
        // Nothing runs any more. The next start removes the rest.
        let _ = orphan_processes::remove_entries(&self.shared.tasks_dir);
        self.shared.trees.set_room(0);
        self.shared.trees.trim();
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

//! The workers of a node: which call goes to which worker, and when workers start and end.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::codec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::binding::Binding;
use super::call::{Call, spec_of};
use super::files::{NUMBERS, WorkerFiles};
use super::nested::CallAnswer;
use super::runtime::{Runtime, Zygote, send_fork, socket_pair};
use super::wire::{FunctionId, INLINE_BYTES_MAX, Value};
use super::worker::{Stage, Why, Worker, WorkerType};
use crate::executor::{AttemptOutcome, Shared};
use crate::spawner::memory::Resident;
use crate::spawner::starter::{Program, Starter};
use proto::Span;

/// A worker process without calls, or the process that forks such workers, ends after this time.
const WORKER_IDLE_TIME: Span = Span::from_secs(60);

/// Workers and zygotes without work end after this time.
pub(super) const IDLE_MAX: Duration = Duration::from_nanos(WORKER_IDLE_TIME.0);
/// After this number of consecutive workers that ended before they were ready, calls fail.
const BAD_STARTS_MAX: u32 = 3;

/// The maximum of functions that a node keeps as bytes.
const FUNCTIONS_MAX: usize = 4096;
/// The maximum of their bytes.
const FUNCTION_BYTES_MAX: u64 = 1 << 30;

/// The source of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    Wake,
    Starter,
    Zygote(usize),
    Output(u64),
    Input(u64),
}

impl Token {
    pub(super) fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Wake => 0,
            Self::Starter => 1,
            Self::Zygote(runtime) => (runtime as u64) << 3 | 2,
            Self::Output(worker) => worker << 3 | 3,
            Self::Input(worker) => worker << 3 | 4,
        })
    }

    pub(super) fn of(data: EventData) -> Self {
        let data = data.u64();
        match data & 7 {
            0 => Self::Wake,
            1 => Self::Starter,
            2 => Self::Zygote((data >> 3) as usize),
            3 => Self::Output(data >> 3),
            _ => Self::Input(data >> 3),
        }
    }
}

/// The bytes of a function.
#[derive(Clone, Debug)]
pub(super) enum FunctionBytes {
    Inline {
        codec: u8,
        bytes: Arc<[u8]>,
    },
    /// A file, because it is too large for a record.
    File {
        codec: u8,
        path: String,
        size_bytes: u64,
    },
}

impl FunctionBytes {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Inline { bytes, .. } => bytes.len() as u64,
            Self::File { size_bytes, .. } => *size_bytes,
        }
    }

    /// Removes its file.
    fn discard(&self) {
        if let Self::File { path, .. } = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

type Answers = Arc<dyn Fn(u64, u64, CallAnswer) + Send + Sync>;

pub(super) struct Pool {
    pub(super) shared: Arc<Shared>,
    pub(super) epoll: Arc<std::os::fd::OwnedFd>,
    /// The directory for large results.
    pub(super) results: PathBuf,
    /// The Python worker of this node.
    pub(super) program: PathBuf,
    pub(super) starter: Option<Starter>,
    pub(super) runtimes: Vec<Runtime>,
    pub(super) workers: BTreeMap<u64, Worker>,
    next_worker: u64,
    /// Calls without a worker.
    pub(super) queue: VecDeque<Box<Call>>,
    pub(super) functions: HashMap<FunctionId, FunctionBytes>,
    /// The sum of their bytes.
    function_bytes: u64,
    /// Calls without the bytes of their function. They go through the inbox again.
    pub(super) unready: VecDeque<Box<Call>>,
    /// `watch` looks at nothing before.
    pub(super) look_at: Option<Instant>,
    /// The memory of workers with limited calls, with the processes below them, and a moment
    /// before it was measured.
    pub(super) trees: HashMap<u64, Resident>,
    pub(super) trees_at: Option<Instant>,
    /// All workers wait since then, and calls cannot start.
    pub(super) stuck: Option<Instant>,
    /// Takes answers for calls, with the numbers of the call and of its request.
    pub(super) answers: Answers,
    /// Ends to report, once the lock is free.
    pub(super) ended: Vec<AttemptOutcome>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(
        shared: Arc<Shared>,
        epoll: Arc<std::os::fd::OwnedFd>,
        results: PathBuf,
        program: PathBuf,
    ) -> Self {
        Self {
            shared,
            epoll,
            results,
            program,
            starter: None,
            runtimes: Vec::new(),
            workers: BTreeMap::new(),
            next_worker: 1,
            queue: VecDeque::new(),
            functions: HashMap::new(),
            function_bytes: 0,
            unready: VecDeque::new(),
            look_at: None,
            trees: HashMap::new(),
            trees_at: None,
            stuck: None,
            answers: Arc::new(|_, _, _| {}),
            ended: Vec::new(),
        }
    }

    /// Gives a call to an idle worker of its runtime, and writes it. `Err`: there is none.
    pub(super) fn give(&mut self, call: Box<Call>) -> Result<(), Box<Call>> {
        loop {
            let is_it = |worker: &Worker| worker.is_idle() && worker.is_for(&call);
            let mut idle = self.workers.iter().filter(|(_, worker)| is_it(worker));
            let Some((&id, worker)) = idle.next() else { return Err(call) };
            if !worker.is_too_large_for(&call) {
                self.hand_over(id, call);
                return Ok(());
            }
            self.stop_worker(id, Instant::now());
        }
    }

    pub(super) fn hand_over(&mut self, id: u64, mut call: Box<Call>) {
        self.leave_queue(&mut call);
        if let Some(binding) = call.binding.clone() {
            self.free_devices(&binding, Some(call.runtime), Instant::now());
        }
        let worker = self.workers.get_mut(&id).expect("found by the caller");
        let Some(function) = self.functions.get(&call.function) else {
            self.unready.push_back(call);
            return;
        };
        let value = match function {
            FunctionBytes::Inline { codec, bytes } => {
                Value { is_path: false, codec: *codec, slot: 0, bytes }
            }
            FunctionBytes::File { codec, path, .. } => {
                Value { is_path: true, codec: *codec, slot: 0, bytes: path.as_bytes() }
            }
        };
        worker.bring_function(&call.function, &value);
        call.encode(&mut worker.outgoing);
        let refusal = self.runtimes.get(call.runtime).map_or("", |it| it.refusal.as_str());
        if !refusal.is_empty() && !worker.told_direct {
            worker.told_direct = true;
            let text = format!("starling: this worker was not forked, but started: {refusal}\n");
            call.print(&self.shared, true, text.as_bytes());
        }
        call.sent = Some(Instant::now());
        // It runs before one that waits.
        worker.calls.push_front(call);
        self.write_more(id);
    }

    /// Writes to a worker what its pipe takes. An event tells when the pipe takes the rest.
    pub(super) fn write_more(&mut self, id: u64) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if worker.write() {
            let flags = EventFlags::OUT | EventFlags::ONESHOT;
            let input = &worker.files.to_worker;
            let token = Token::Input(id).data();
            // The epoll has the pipe only after it was full once.
            if epoll::modify(&self.epoll, input, token, flags).is_err() {
                let _ = epoll::add(&self.epoll, input, token, flags);
            }
        }
    }

    /// Gives queued calls to workers, and starts workers for the others. Only the pool's own thread
    /// calls this.
    pub(super) fn dispatch(&mut self, now: Instant) {
        let mut left = VecDeque::new();
        let is_awaited = self.is_awaited();
        let yields = |call: &Call| is_awaited && call.has_yielded();
        while let Some(call) = self.queue.pop_front() {
            if !self.shared.is_wanted(call.key) {
                continue;
            }
            if !self.functions.contains_key(&call.function) {
                self.unready.push_back(call);
            } else if yields(&call) {
                left.push_back(call);
            } else if let Err(call) = self.give(call)
                && let Err(call) = self.stack(call)
            {
                left.push_back(call);
            }
        }
        self.queue = left;
        if self.queue.is_empty() {
            self.stuck = None;
        }
        let mut wanted: BTreeMap<WorkerType, usize> = BTreeMap::new();
        for call in self.queue.iter().filter(|call| !yields(call)) {
            *wanted.entry((call.runtime, call.binding.clone())).or_default() += 1;
        }
        for (wanted, count) in wanted {
            let (runtime, binding) = (wanted.0, wanted.1.as_ref());
            if let Some(binding) = binding {
                self.free_devices(binding, Some(runtime), now);
            }
            let starting = self.workers.values().filter(|it| it.stage == Stage::Starting);
            for _ in starting.filter(|it| it.is_of(runtime, binding)).count()..count {
                if !self.has_room(now) {
                    return;
                }
                if let Err(error) = self.start_worker(&wanted, now) {
                    let text = format!("cannot start a worker on {}: {error}", self.node());
                    self.fail_queued(runtime, &text);
                    break;
                }
                if !self.is_loaded(runtime) {
                    break; // The zygote comes first.
                }
            }
        }
    }

    fn is_loaded(&self, runtime: usize) -> bool {
        let runtime = &self.runtimes[runtime];
        let is_ready = matches!(runtime.zygote, Zygote::Runs { is_ready: true, closed: None, .. });
        runtime.is_direct || is_ready
    }

    /// True if one more worker may start. Ends an idle one if that makes room.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.may_start_more(now) {
            return true;
        }
        let idle = self.workers.iter().filter(|(_, worker)| worker.is_idle());
        let oldest = idle.min_by_key(|(_, worker)| worker.since).map(|(id, _)| *id);
        oldest.is_some_and(|id| {
            self.stop_worker(id, now);
            true
        })
    }

    fn node(&self) -> proto::NodeId {
        self.shared.config.node
    }

    /// Starts a worker, or the zygote of its runtime.
    fn start_worker(&mut self, of: &WorkerType, now: Instant) -> Result<(), String> {
        self.start_starter()?;
        let number = of.0;
        let told = |error: std::io::Error| error.to_string();
        let runtime = &mut self.runtimes[number];
        let starter = self.starter.as_mut().expect("started above");
        let directory = match runtime.spec.directory.is_empty() {
            true => "/",
            false => runtime.spec.directory.as_str(),
        };
        let no_binding = Binding::none(&self.shared.config.gpu_pools);
        // A zygote has no devices: those of a worker come with its fork.
        let own = of.1.as_deref().filter(|_| runtime.is_direct).unwrap_or(&no_binding);
        let environment = runtime.environment(&self.shared, &self.results, own);
        if runtime.is_direct {
            let (files, theirs) = WorkerFiles::new().map_err(told)?;
            let fds: Vec<_> = theirs.fds().into_iter().zip(NUMBERS).collect();
            let argv = runtime.argv(&self.program, "worker");
            let program = Program { argv, environment, directory, fds: &fds, ..Program::default() };
            let started = starter.run(program).map_err(told)?;
            let mut worker = Worker::new(of.clone(), files, now);
            worker.number = Some(started);
            return self.add(worker);
        }
        let variables = of.1.as_ref().map_or(Vec::new(), |binding| binding.variables_in(runtime));
        match &mut runtime.zygote {
            Zygote::Runs { is_ready: false, .. } | Zygote::Runs { closed: Some(_), .. } => Ok(()),
            Zygote::Runs { socket, closed, .. } => {
                let (files, theirs) = WorkerFiles::new().map_err(told)?;
                if send_fork(socket, self.next_worker, &variables, &theirs).is_err() {
                    // It has just ended. The next one serves the call.
                    *closed = Some(now);
                    return Ok(());
                }
                self.add(Worker::new(of.clone(), files, now))
            }
            Zygote::None => {
                let (ours, theirs) = socket_pair().map_err(told)?;
                let argv = runtime.argv(&self.program, "zygote");
                let fds = [(theirs.as_fd(), 3)];
                let program =
                    Program { argv, environment, directory, fds: &fds, ..Program::default() };
                let started = starter.run(program).map_err(told)?;
                let token = Token::Zygote(number).data();
                epoll::add(&self.epoll, &ours, token, EventFlags::IN)
                    .map_err(|error| error.to_string())?;
                runtime.zygote = Zygote::Runs {
                    socket: ours,
                    number: started,
                    is_ready: false,
                    since: now,
                    closed: None,
                    stderr: Vec::new(),
                };
                Ok(())
            }
        }
    }

    /// Ends the idle workers that have one of these devices: they hold memory on it. Those of this
    /// runtime with exactly these resources stay.
    pub(super) fn free_devices(&mut self, binding: &Binding, runtime: Option<usize>, now: Instant) {
        let holds = |worker: &Worker| {
            let own = worker.binding.as_deref().filter(|own| own.shares_device(binding));
            own.is_some_and(|own| !(runtime == Some(worker.runtime) && own == binding))
        };
        let idle = self.workers.iter().filter(|(_, worker)| worker.is_idle() && holds(worker));
        for id in idle.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.stop_worker(id, now);
        }
    }

    fn start_starter(&mut self) -> Result<(), String> {
        if self.starter.is_none() {
            let starter = Starter::start(&self.shared.config, "calls")?;
            epoll::add(&self.epoll, starter.fd(), Token::Starter.data(), EventFlags::IN)
                .map_err(|error| error.to_string())?;
            self.starter = Some(starter);
        }
        Ok(())
    }

    fn add(&mut self, worker: Worker) -> Result<(), String> {
        let id = self.next_worker;
        self.next_worker += 1;
        epoll::add(
            &self.epoll,
            &worker.files.from_worker,
            Token::Output(id).data(),
            EventFlags::IN,
        )
        .map_err(|error| error.to_string())?;
        self.workers.insert(id, worker);
        Ok(())
    }

    /// Asks an idle worker to end.
    pub(super) fn stop_worker(&mut self, id: u64, now: Instant) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.outgoing.stop();
            worker.write();
            (worker.stage, worker.since) = (Stage::Ending, now);
        }
    }

    /// The worker's call must end: it is interrupted, and killed after the grace.
    pub(super) fn interrupt(&mut self, id: u64, why: Why, now: Instant) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if worker.interrupted.is_none() && worker.interrupt(why, now).is_err() {
            worker.kill(self.starter.as_mut());
        }
    }

    /// The worker is killed, and its call fails with this error.
    pub(super) fn kill_for(&mut self, id: u64, why: Why, now: Instant) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.interrupted = Some((now, why));
        worker.kill(self.starter.as_mut());
    }

    /// A worker or zygote of this runtime ended before it was ready.
    pub(super) fn bad_start(&mut self, runtime: usize, text: &str) {
        let state = &mut self.runtimes[runtime];
        state.failures += 1;
        if state.failures >= BAD_STARTS_MAX {
            state.failures = 0;
            let text = format!("no worker can start on {}: {text}", self.node());
            self.fail_queued(runtime, &text);
        }
    }

    /// Fails the queued calls of a runtime.
    pub(super) fn fail_queued(&mut self, runtime: usize, text: &str) {
        let (theirs, others): (VecDeque<_>, _) =
            std::mem::take(&mut self.queue).into_iter().partition(|call| call.runtime == runtime);
        self.queue = others;
        for call in theirs {
            let key = call.key;
            let outcome = call.outcome(&self.shared, text.to_owned(), 1);
            self.ended.extend(self.shared.end(key, outcome));
        }
    }

    /// The function of a call, if its bytes are in its description. Remembers it.
    pub(super) fn own_function(&mut self, call: &Call) -> Result<(), String> {
        if self.functions.contains_key(&call.function) {
            return Ok(());
        }
        let spec = spec_of(&call.launch);
        self.keep_function(call.function, spec.body_codec as u8, &spec.body)
    }

    pub(super) fn keep_function(
        &mut self,
        id: FunctionId,
        codec: u8,
        bytes: &[u8],
    ) -> Result<(), String> {
        let codec = codec.min(codec::TEXT);
        let kept = if bytes.len() <= INLINE_BYTES_MAX {
            FunctionBytes::Inline { codec, bytes: bytes.into() }
        } else {
            let name: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            let path = self.results.join(format!("function-{name}"));
            std::fs::write(&path, bytes).map_err(|error| error.to_string())?;
            let size_bytes = bytes.len() as u64;
            FunctionBytes::File { codec, path: crate::commands::stage::text_of(&path), size_bytes }
        };
        let sum_bytes = self.function_bytes + kept.size_bytes();
        if self.functions.len() >= FUNCTIONS_MAX || sum_bytes > FUNCTION_BYTES_MAX {
            self.evict_functions(id);
        }
        self.function_bytes += kept.size_bytes();
        if let Some(old) = self.functions.insert(id, kept) {
            self.function_bytes -= old.size_bytes();
        }
        Ok(())
    }

    /// Forgets the functions that no call of this pool needs, but for `new`.
    fn evict_functions(&mut self, new: FunctionId) {
        let held = self.workers.values().flat_map(|worker| worker.calls.iter());
        let needed: HashSet<FunctionId> =
            self.queue.iter().chain(held).map(|call| call.function).collect();
        let mut left_bytes = 0;
        self.functions.retain(|id, function| {
            let is_needed = *id == new || needed.contains(id);
            if is_needed {
                left_bytes += function.size_bytes();
            } else {
                function.discard();
            }
            is_needed
        });
        self.function_bytes = left_bytes;
    }
}

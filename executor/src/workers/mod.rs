/*!
Runs calls of functions in worker processes, one call at a time in each.

```text
launch ─▶ pipe of an idle worker ─▶ worker ─▶ pipe ─▶ [thread of the pool] ─▶ outcome
      └─▶ queue ─▶ [thread of the pool] ─▶ spawner ─▶ zygote ─▶ worker
```
The launching thread writes a call to an idle worker itself. All else is done by the pool's thread.

* [`wire`]: the bytes between node and worker. The node never decodes a function, an argument or a
  result.
* [`runtime`]: the program of workers. Its *zygote* loads all modules once, and forks the workers.
* [`worker`]: one worker. It has at most as many calls as were written to it, and runs the first.
* [`binding`]: the GPUs and other resources that a worker is started with.
* [`pool`]: at most as many workers as the node has slots, over all runtimes.
* [`events`]: records of workers, and their ends. The end of a worker fails the call that it ran;
  its other calls go to another worker.
* [`nested`]: calls that make calls, and wait for them without a slot.
* [`watch`]: time limits, memory limits, and idle workers.

The workers have a spawner of their own. When the node dies, it kills them.
*/

mod binding;
mod call;
mod events;
mod files;
mod nested;
mod pool;
mod runtime;
mod thread;
mod watch;
mod wire;
mod worker;

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use proto::wire as messages;
use proto::work::{Launch, Outcome};
use rustix::event::{EventfdFlags, eventfd};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use self::binding::Binding;
use self::call::Call;
use self::nested::Nested;
pub use self::nested::{CallAnswer, CallAnswers, CallHost, CallRequest};
use self::pool::Pool;
use self::runtime::{Runtime, RuntimeNumbers};
use self::wire::FunctionId;
use crate::commands::resources::memory_limit_bytes;
use crate::error::reason;
use crate::executor::Shared;
use crate::private;
use crate::table::{Key, Phase};

/// The Python worker and its libraries, as an archive that Python runs.
const WORKER_ZIP: &[u8] = include_bytes!("../../../python/worker.zip");

/// The functions that clients have stored, by their hashes.
pub trait FunctionStore: fmt::Debug + Send + Sync {
    /// Fetches the bytes of a function and passes them to `done`, or the reason why there are none.
    /// Must not block.
    fn fetch(&self, id: [u8; 16], done: Box<dyn FnOnce(Result<Vec<u8>, String>) + Send>);
}

struct Inner {
    shared: Arc<Shared>,
    wake: OwnedFd,
    pool: Mutex<Pool>,
    /// Apart from the pool, for threads that must not wait for it.
    numbers: Mutex<RuntimeNumbers>,
    /// Calls and kills for the pool's thread, from threads that must not wait for the pool.
    inbox: Mutex<Inbox>,
}

#[derive(Default)]
#[expect(clippy::vec_box, reason = "a call is large, and moves from queue to queue")]
struct Inbox {
    /// New runtimes, in the order of their numbers.
    runtimes: Vec<Runtime>,
    calls: Vec<Box<Call>>,
    kills: Vec<u64>,
    /// Calls that wait for the bytes of their function.
    awaiting: HashMap<FunctionId, Vec<Box<Call>>>,
    fetched: Vec<(FunctionId, Result<Vec<u8>, String>)>,
    /// Answers for calls, by the numbers of the call and of its request.
    answers: Vec<(u64, u64, CallAnswer)>,
    /// Calls that waited and have their slots again.
    go_on: Vec<Key>,
    /// Resources that commands have got: idle workers give them up.
    taken: Vec<Binding>,
}

type Started = Result<(Arc<Inner>, Mutex<Option<JoinHandle<()>>>), String>;

/// The workers of a node.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    started: OnceLock<Started>,
    numbers: AtomicU64,
    /// The last specs, with their runtime and function: neighbours are mostly alike.
    recent: Mutex<Vec<(Arc<messages::Spec>, usize, FunctionId)>>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

/// The number of specs that are remembered.
const RECENT_MAX: usize = 16;

impl Workers {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (numbers, recent) = (AtomicU64::new(1), Mutex::default());
        Self { shared, started: OnceLock::new(), numbers, recent }
    }

    pub(crate) fn launch_all(&self, launches: Vec<Launch>) {
        if launches.is_empty() {
            return;
        }
        for launch in &launches {
            self.shared.table.insert((launch.task, launch.attempt), Phase::inside());
        }
        let inner = match self.started.get_or_init(|| start(&self.shared)) {
            Ok((inner, _)) => inner,
            Err(error) => {
                return launches.iter().for_each(|launch| {
                    self.shared.finish((launch.task, launch.attempt), failure(error.clone()));
                });
            }
        };
        let mut ready = Vec::with_capacity(launches.len());
        for launch in launches {
            if call::needs_no_file(&self.shared, &launch) {
                ready.extend(self.prepare(inner, launch));
            } else {
                self.prepare_elsewhere(inner, launch);
            }
        }
        inner.place(ready);
    }

    /// Prepares a call with input files on a thread that may wait for them.
    fn prepare_elsewhere(&self, inner: &Arc<Inner>, launch: Launch) {
        let key = (launch.task, launch.attempt);
        let (runtime, function, number) = self.identify(inner, &launch);
        let theirs = inner.clone();
        let started = self.shared.pool.run(move || {
            theirs.place(theirs.prepare(launch, runtime, function, number).into_iter().collect());
        });
        if let Err(error) = started {
            let text = format!("cannot start a thread: {}", reason(&error));
            self.shared.finish(key, failure(text));
        }
    }

    fn prepare(&self, inner: &Inner, launch: Launch) -> Option<Box<Call>> {
        let (runtime, function, number) = self.identify(inner, &launch);
        inner.prepare(launch, runtime, function, number)
    }

    /// The runtime, the function and the number of a call.
    fn identify(&self, inner: &Inner, launch: &Launch) -> (usize, FunctionId, u64) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut recent = self.recent.lock().expect("no holder of the specs panics");
        let known = recent.iter().find(|(spec, ..)| Arc::ptr_eq(spec, &launch.spec));
        if let Some((_, runtime, function)) = known {
            return (*runtime, *function, number);
        }
        let spec = call::spec_of(launch);
        let none = messages::Runtime::default();
        let runtime = inner.runtime(spec.runtime.as_ref().unwrap_or(&none));
        let function = function_id(spec);
        if recent.len() >= RECENT_MAX {
            recent.remove(0);
        }
        recent.push((launch.spec.clone(), runtime, function));
        (runtime, function, number)
    }

    /// Ends a call; its attempt is removed from the table already.
    pub(crate) fn kill(&self, number: u64) {
        if let Some(Ok((inner, _))) = self.started.get() {
            inner.inbox().kills.push(number);
            inner.wake();
        }
    }

    /// A command gets resources: no idle worker holds memory on its devices.
    pub(crate) fn give_up(&self, launch: &Launch) {
        let Some(Ok((inner, _))) = self.started.get() else { return };
        let offered = &self.shared.config.gpu_pools;
        if let Some(taken) = Binding::of(offered, launch.granted.as_deref()) {
            inner.inbox().taken.push(taken);
            inner.wake();
        }
    }

    /// A call that waited has its slot again.
    pub(crate) fn go_on(&self, key: Key) {
        if let Some(Ok((inner, _))) = self.started.get() {
            inner.inbox().go_on.push(key);
            inner.wake();
        }
    }

    pub(crate) fn any_runs(&self) -> bool {
        let Some(Ok((inner, _))) = self.started.get() else { return false };
        inner.pool().workers.values().any(|worker| !worker.calls.is_empty())
    }

    /// Ends all workers, and waits for the thread.
    pub(crate) fn stop(&self) {
        let Some(Ok((inner, thread))) = self.started.get() else { return };
        inner.wake();
        let thread = thread.lock().expect("no holder of the handle panics").take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
        let starter = inner.pool().starter.take();
        if let Some(starter) = starter {
            starter.end();
        }
    }
}

/// The identity of a function: given by its client, or by its bytes.
fn function_id(spec: &messages::Call) -> FunctionId {
    if let (true, Ok(id)) = (spec.body.is_empty(), FunctionId::try_from(&spec.function[..])) {
        return id;
    }
    xxh3_128_with_seed(&spec.body, spec.body_codec.into()).to_le_bytes()
}

fn failure(error: String) -> Outcome {
    Outcome { error, exit_code: 1, ..Outcome::default() }
}

fn start(shared: &Arc<Shared>) -> Started {
    let node = shared.config.node;
    let failed =
        |error: std::io::Error| format!("cannot start the workers of {node}: {}", reason(&error));
    let state_dir = shared.tasks_dir.parent().expect("it is below the state directory");
    let results = state_dir.join("results");
    let _ = private::remove_tree(&results);
    private::own_dir(&results).map_err(failed)?;
    let program = results.join("worker.zip");
    std::fs::write(&program, WORKER_ZIP).map_err(failed)?;
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    let epoll = Arc::new(epoll.map_err(|error| failed(error.into()))?);
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let wake = wake.map_err(|error| failed(error.into()))?;
    let pool = Mutex::new(Pool::new(shared.clone(), epoll.clone(), results, program));
    let (numbers, inbox) = (Mutex::default(), Mutex::default());
    let inner = Arc::new(Inner { shared: shared.clone(), wake, pool, numbers, inbox });
    let theirs = Arc::downgrade(&inner);
    inner.pool().answers = Arc::new(move |call, seq, answer| {
        if let Some(inner) = theirs.upgrade() {
            inner.inbox().answers.push((call, seq, answer));
            inner.wake();
        }
    });
    let theirs = inner.clone();
    let thread = std::thread::Builder::new()
        .name(format!("{node}-calls"))
        .spawn(move || thread::run(&theirs, &epoll))
        .map_err(failed)?;
    Ok((inner, Mutex::new(Some(thread))))
}

impl Inner {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().expect("no holder of the pool panics")
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().expect("no holder of the inbox panics")
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_le_bytes());
    }

    fn runtime(&self, spec: &messages::Runtime) -> usize {
        let mut numbers = self.numbers.lock().expect("no holder of the numbers panics");
        let (number, is_new) = numbers.of(spec);
        if is_new {
            // With the numbers locked, so that the order is theirs.
            self.inbox().runtimes.push(Runtime::new(spec.clone(), Instant::now()));
        }
        number
    }

    /// Finds the inputs of a call. On an error the attempt has ended.
    fn prepare(
        &self,
        launch: Launch,
        runtime: usize,
        function: FunctionId,
        number: u64,
    ) -> Option<Box<Call>> {
        let key: Key = (launch.task, launch.attempt);
        let inputs = match call::inputs(&self.shared, &launch) {
            Ok(inputs) => inputs,
            Err(error) => {
                self.shared.finish(key, failure(error));
                return None;
            }
        };
        let is_wanted = self.shared.table.advance(key, Phase::Call(number));
        let launch = Box::new(launch);
        let (printed, restarts, sent) = (Default::default(), 0, None);
        let nested = Nested::default();
        let binding = Binding::of(&self.shared.config.gpu_pools, launch.granted.as_deref());
        let binding = binding.map(Arc::new);
        is_wanted.then(|| {
            Box::new(Call {
                number,
                key,
                launch,
                runtime,
                binding,
                function,
                inputs,
                printed,
                restarts,
                sent,
                nested,
            })
        })
    }

    /// Gives calls to idle workers, and the others to the pool's thread.
    #[expect(clippy::vec_box, reason = "a call is large, and moves from queue to queue")]
    fn place(&self, calls: Vec<Box<Call>>) {
        let (mut left, mut must_watch) = (Vec::new(), false);
        match self.pool.try_lock() {
            Ok(mut pool) if pool.queue.is_empty() => {
                for call in calls {
                    let spec = &call.launch.spec;
                    must_watch |= spec.time_limit_ns > 0 || memory_limit_bytes(&call.launch) > 0;
                    if !pool.functions.contains_key(&call.function) {
                        left.push(call);
                    } else if let Err(call) = pool.give(call) {
                        left.push(call);
                    }
                }
            }
            _ => left = calls,
        }
        must_watch |= !left.is_empty();
        self.inbox().calls.extend(left);
        if must_watch {
            self.wake();
        }
    }
}

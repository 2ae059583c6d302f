/*!
The requesting side of data connections: the objects wanted from each node, and the threads that
fetch them.

A *line* is one connection to one node, used by one thread at a time. A thread takes a line,
requests a batch of small objects or one large object, reads the answers in order, and returns the
line. When a line breaks, its missing objects are requested again.
*/

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::work::FetchError;
use proto::{NodeId, ObjectId, Span, limits};

use super::frame::{self, HEAD_BYTES, Head};
use super::receive::{Failure, receive};
use super::socket::DataStream;
use super::stream::{self, Known};
use crate::limits::{DATA_BATCH_BYTES, DATA_BATCH_OBJECTS};
use crate::rpc::service::Shared;

/// A fetch from an unreachable node fails after this, and the core repeats it there or elsewhere.
const FETCH_RETRY_FOR: Span = Span::from_secs(5);

/// The time allowed for a node that does not answer.
fn timeout_for() -> Duration {
    Duration::from_nanos(FETCH_RETRY_FOR.0)
}

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(5);

type Done = Box<dyn FnOnce(Result<(), FetchError>) + Send>;

/// An object that this node fetches.
pub(crate) struct Wanted {
    pub(crate) object: ObjectId,
    pub(crate) size_bytes: u64,
    /// The time of the first request. Time in the queue does not count as failure.
    since: Option<Instant>,
    wait: Span,
    done: Done,
}

impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wanted").field("object", &self.object).finish_non_exhaustive()
    }
}

impl Wanted {
    /// `done` is called once, from a fetching thread, and must not block.
    pub(crate) fn new(
        object: ObjectId,
        size_bytes: u64,
        done: impl FnOnce(Result<(), FetchError>) + Send + 'static,
    ) -> Self {
        let wait = limits::REDIAL_AFTER;
        Self { object, size_bytes, since: None, wait, done: Box::new(done) }
    }

    /// True if the fetch must be given up.
    fn is_overdue(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > timeout_for())
    }

    pub(crate) fn end(self, result: Result<(), FetchError>) {
        (self.done)(result);
    }
}

/// The wanted objects, and the threads that fetch them.
#[derive(Debug, Default)]
pub(crate) struct DataConnectionPool {
    state: Mutex<State>,
    changed: Condvar,
    registry: stream::Registry,
}

#[derive(Debug, Default)]
struct State {
    sources: BTreeMap<NodeId, Source>,
    /// The node of the last batch: the nodes take turns.
    last: Option<NodeId>,
    /// Objects that could not be fetched, with the time of the next try.
    later: Vec<(Instant, NodeId, Wanted)>,
    threads: usize,
    /// Of `threads`, those that have not begun yet.
    starting: usize,
    /// Of `threads`, those that sleep.
    idle: usize,
    /// Of the sleepers, those that were notified and have not woken yet.
    woken: usize,
    is_over: bool,
}

/// The action that is needed so that waiting objects are fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThreadDemand {
    /// None: enough threads are starting or waking, or their maximum is reached.
    Comes,
    Wake,
    Start,
}

#[derive(Debug, Default)]
struct Source {
    waiting: VecDeque<Wanted>,
    busy: usize,
    spare: Vec<DataConnection>,
}

#[derive(Debug)]
struct DataConnection {
    address: String,
    stream: DataStream,
    _known: Known,
}

impl DataConnectionPool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if nothing is being fetched from a node, and nothing waits for that.
    pub(crate) fn are_free(&self, from: NodeId) -> bool {
        let state = self.state();
        state.sources.get(&from).is_none_or(|source| source.busy == 0 && source.is_quiet())
    }

    /// Ends all fetches, including those in flight, and refuses new ones.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.later.clear();
        state.sources.clear();
        drop(state);
        self.registry.close();
        self.changed.notify_all();
    }
}

/// Fetches objects. Each [`Wanted`] is notified of its own end. Never blocks.
pub(crate) fn bring(shared: &Arc<Shared>, from: NodeId, wanted: impl IntoIterator<Item = Wanted>) {
    let lines = &shared.lines;
    let mut state = lines.state();
    if state.is_over {
        return;
    }
    // All are queued before a thread is called, so that the threads share them.
    state.sources.entry(from).or_default().waiting.extend(wanted);
    loop {
        match state.help(0) {
            ThreadDemand::Comes => return,
            ThreadDemand::Wake => lines.changed.notify_one(),
            ThreadDemand::Start => match start_thread(shared) {
                Ok(()) => {
                    state.threads += 1;
                    state.starting += 1;
                }
                // The running threads will take them.
                Err(_) if state.threads > 0 => return,
                Err(error) => {
                    let waiting = state.sources.remove(&from).unwrap_or_default().waiting;
                    drop(state);
                    for wanted in waiting {
                        let text = format!("cannot start a thread: {error}");
                        wanted.end(Err(FetchError::Unreachable(text)));
                    }
                    return;
                }
            },
        }
    }
}

fn start_thread(shared: &Arc<Shared>) -> std::io::Result<()> {
    let theirs = Arc::clone(shared);
    let thread = std::thread::Builder::new().name(format!("{}-fetch", shared.identity.node));
    thread.spawn(move || work(&theirs)).map(drop)
}

/// The loop of one thread.
fn work(shared: &Arc<Shared>) {
    let mut buffer = vec![0; limits::DATA_BUFFER_BYTES];
    shared.lines.state().starting -= 1;
    while let Some((from, line, batch)) = next(&shared.lines) {
        let line = fetch(shared, from, line, batch, &mut buffer);
        let mut state = shared.lines.state();
        if let Some(source) = state.sources.get_mut(&from) {
            source.busy -= 1;
            source.spare.extend(line);
        }
        // While all lines to this node were busy, its waiting objects could not be taken. This
        // thread takes a part of them now.
        if state.help(1) == ThreadDemand::Wake {
            shared.lines.changed.notify_one();
        }
    }
}

/// The next batch; `None` after [`IDLE`] without work, or when fetching has ended.
fn next(lines: &DataConnectionPool) -> Option<(NodeId, Option<DataConnection>, VecDeque<Wanted>)> {
    let mut state = lines.state();
    loop {
        if state.is_over {
            state.threads -= 1;
            return None;
        }
        let now = Instant::now();
        let wake = state.requeue(now);
        if let Some(turn) = state.take() {
            if state.help(0) == ThreadDemand::Wake {
                lines.changed.notify_one();
            }
            return Some(turn);
        }
        let timeout_for = wake.map_or(IDLE, |at| at.saturating_duration_since(now));
        state.idle += 1;
        let (back, slept) =
            lines.changed.wait_timeout(state, timeout_for).unwrap_or_else(PoisonError::into_inner);
        state = back;
        state.awake(!slept.timed_out());
        let nothing = state.later.is_empty() && state.sources.values().all(Source::is_quiet);
        if slept.timed_out() && wake.is_none() && nothing {
            // Under the lock, so that a later request sees that this thread has ended.
            state.threads -= 1;
            if state.threads == 0 {
                state.sources.clear(); // This drops the unused lines as well.
            }
            return None;
        }
    }
}

impl Source {
    fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of threads that could take objects from this source now.
    fn openings(&self) -> usize {
        let lines = limits::DATA_CONNECTIONS_PER_NODE_MAX.saturating_sub(self.busy);
        self.waiting.len().min(lines)
    }
}

impl State {
    /// Decides whether to wake or start a thread. `at_hand` threads are awake and look for work
    /// anyway. A returned `Wake` is counted in `woken`.
    fn help(&mut self, at_hand: usize) -> ThreadDemand {
        let openings: usize = self.sources.values().map(Source::openings).sum();
        if openings <= at_hand + self.woken + self.starting {
            ThreadDemand::Comes
        } else if self.idle > self.woken {
            self.woken += 1;
            ThreadDemand::Wake
        } else if self.threads < limits::FETCHES_IN_FLIGHT_MAX {
            ThreadDemand::Start
        } else {
            ThreadDemand::Comes
        }
    }

    /// Counts a thread that has woken. `woken` never exceeds the number of sleepers, even if the
    /// thread woke by itself.
    fn awake(&mut self, was_woken: bool) {
        self.idle -= 1;
        let woken = self.woken.saturating_sub(usize::from(was_woken));
        self.woken = woken.min(self.idle);
    }

    /// Queues the objects that are due again. Returns the next time at which one is due.
    fn requeue(&mut self, now: Instant) -> Option<Instant> {
        let mut kept = Vec::new();
        for (at, from, wanted) in self.later.drain(..) {
            if at <= now {
                self.sources.entry(from).or_default().waiting.push_back(wanted);
            } else {
                kept.push((at, from, wanted));
            }
        }
        self.later = kept;
        self.later.iter().map(|(at, _, _)| *at).min()
    }

    /// Takes a batch from the next node in turn.
    fn take(&mut self) -> Option<(NodeId, Option<DataConnection>, VecDeque<Wanted>)> {
        let can = |source: &Source| {
            !source.waiting.is_empty() && source.busy < limits::DATA_CONNECTIONS_PER_NODE_MAX
        };
        let after = self.last;
        let later = self.sources.iter().find(|(node, it)| Some(**node) > after && can(it));
        let found = later.or_else(|| self.sources.iter().find(|(_, it)| can(it)));
        let node = *found?.0;
        self.last = Some(node);
        let source = self.sources.get_mut(&node).expect("found above");
        source.busy += 1;
        // The lines share the waiting objects: a batch is at most the share of one line.
        let lines = limits::DATA_CONNECTIONS_PER_NODE_MAX;
        let share = source.waiting.len().div_ceil(lines).min(DATA_BATCH_OBJECTS);
        let mut batch = VecDeque::with_capacity(share);
        let mut bytes = 0_u64;
        while batch.len() < share
            && let Some(wanted) = source.waiting.front()
            && (batch.is_empty() || bytes + wanted.size_bytes <= DATA_BATCH_BYTES)
        {
            bytes += wanted.size_bytes;
            batch.extend(source.waiting.pop_front());
        }
        for wanted in &mut batch {
            wanted.since.get_or_insert_with(Instant::now);
        }
        Some((node, source.spare.pop(), batch))
    }
}

/// Fetches a batch over a line; opens one if `line` is `None`. Returns the line if it can be used
/// again.
fn fetch(
    shared: &Arc<Shared>,
    from: NodeId,
    line: Option<DataConnection>,
    mut batch: VecDeque<Wanted>,
    buffer: &mut [u8],
) -> Option<DataConnection> {
    let address = shared.addresses.read(from).map(|file| file.data).unwrap_or_default();
    if let Some(mut line) = line.filter(|line| line.address == address) {
        match fetch_over(shared, &mut line, &mut batch, buffer) {
            Ok(()) => return Some(line),
            // The line was closed while it was idle, or the node has another address now.
            Err(_) if batch.is_empty() => return None,
            Err(_) => {}
        }
    }
    let opened = open(shared, from, address);
    let fetched = opened.and_then(|mut line| {
        fetch_over(shared, &mut line, &mut batch, buffer)?;
        Ok(line)
    });
    match fetched {
        Ok(line) => Some(line),
        Err(reason) => {
            put_back(shared, from, batch, &reason);
            None
        }
    }
}

fn open(shared: &Arc<Shared>, from: NodeId, address: String) -> Result<DataConnection, String> {
    if address.is_empty() {
        return Err("it does not run".to_owned());
    }
    let stream = stream::open(shared, from, &address)?;
    // The beginning of an answer comes within the timeout or never. Within a large object longer
    // pauses are allowed.
    let socket = stream.socket();
    socket.set_read_timeout(Some(timeout_for())).map_err(|error| error.to_string())?;
    let known = shared.lines.registry.enter(socket).ok_or("this node stops")?;
    Ok(DataConnection { address, stream, _known: known })
}

/// Schedules another try for the objects that did not arrive, until they are overdue.
fn put_back(shared: &Arc<Shared>, from: NodeId, batch: VecDeque<Wanted>, reason: &str) {
    shared.log.refusal(&format!("cannot fetch from node {from}: {reason}"));
    for mut wanted in batch {
        if wanted.is_overdue() {
            let text = format!("from node {from}: cannot be reached: {reason}");
            wanted.end(Err(FetchError::Unreachable(text)));
            continue;
        }
        let at = Instant::now() + Duration::from_nanos(wanted.wait.0);
        wanted.wait = Span(wanted.wait.doubled().0.min(limits::REDIAL_AFTER_MAX.0));
        let mut state = shared.lines.state();
        if !state.is_over {
            state.later.push((at, from, wanted));
        }
    }
}

/// Requests a whole batch and reads the answers in order. Removes each answered object from the
/// batch, whether it arrived or was refused. After an error the line is unusable.
fn fetch_over(
    shared: &Arc<Shared>,
    line: &mut DataConnection,
    batch: &mut VecDeque<Wanted>,
    buffer: &mut [u8],
) -> Result<(), String> {
    let (store, stream) = (shared.executor.objects(), &mut line.stream);
    let broke = |error: std::io::Error| error.to_string();
    let requests: Vec<u8> =
        batch.iter().flat_map(|wanted| frame::request_to_bytes(wanted.object)).collect();
    stream.write_all(&requests).map_err(broke)?;
    while let Some(wanted) = batch.front() {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).map_err(broke)?;
        let is_large = wanted.size_bytes > DATA_BATCH_BYTES;
        if is_large {
            stream::fit_for_data(stream.socket()).map_err(broke)?;
        }
        let head = Head::from_bytes(head).ok_or("it answers nonsense")?;
        let result = match head {
            Head::Object(_) | Head::Program(_) => {
                match receive(store, stream, wanted, head, buffer) {
                    Ok(()) => Ok(()),
                    Err(Failure::Line(reason)) => return Err(reason),
                    Err(Failure::Object(reason)) => {
                        if let Some(wanted) = batch.pop_front() {
                            wanted.end(Err(FetchError::Disk(reason)));
                        }
                        return Err("an object could not be kept".to_owned());
                    }
                }
            }
            Head::Refusal(text_bytes) => {
                let text = &mut buffer[..text_bytes as usize];
                stream.read_exact(text).map_err(broke)?;
                Err(FetchError::Disk(String::from_utf8_lossy(text).into_owned()))
            }
            Head::Absent => Err(FetchError::NotThere),
        };
        if is_large {
            stream.socket().set_read_timeout(Some(timeout_for())).map_err(broke)?;
        }
        if let Some(wanted) = batch.pop_front() {
            wanted.end(result);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proto::{Attempt, TaskId};

    use super::*;

    fn want(state: &mut State, from: u32, count: u64) {
        for number in 0..count {
            let task = TaskId::new(1, number);
            let object = ObjectId { task, attempt: Attempt(1), output: 0 };
            let source = state.sources.entry(NodeId(from)).or_default();
            source.waiting.push_back(Wanted::new(object, 1, |_| {}));
        }
    }

    #[test]
    fn a_burst_is_taken_by_as_many_threads_as_there_are_lines() {
        let mut state = State { threads: 1, idle: 1, ..State::default() };
        let mut helped = Vec::new();
        for _ in 0..10 {
            want(&mut state, 3, 1);
            helped.push(state.help(0));
            if helped.last() == Some(&ThreadDemand::Start) {
                state.threads += 1;
                state.starting += 1;
            }
        }
        let lines = limits::DATA_CONNECTIONS_PER_NODE_MAX;
        assert_eq!(helped[0], ThreadDemand::Wake, "the one that sleeps");
        assert!(helped[1..lines].iter().all(|&it| it == ThreadDemand::Start), "{helped:?}");
        assert!(helped[lines..].iter().all(|&it| it == ThreadDemand::Comes), "{helped:?}");
        // All threads wake and take their part.
        state.awake(true);
        for left in (0..lines).rev() {
            assert!(state.take().is_some());
            state.starting = state.starting.min(left);
        }
        assert!(state.take().is_none(), "each line is in use");
        assert_eq!((state.idle, state.woken, state.help(0)), (0, 0, ThreadDemand::Comes));
        // Another node has its own lines.
        want(&mut state, 5, 1);
        assert_eq!(state.help(0), ThreadDemand::Start);
    }

    #[test]
    fn lines_are_free_while_nothing_waits_or_comes() {
        let (lines, from) = (DataConnectionPool::default(), NodeId(3));
        assert!(lines.are_free(from));
        want(&mut lines.state(), from.0, 1);
        assert!(!lines.are_free(from), "something waits");
        assert!(lines.are_free(NodeId(4)), "at another node");
        let batch = lines.state().take();
        assert!(batch.is_some() && !lines.are_free(from), "something comes");
        lines.state().sources.get_mut(&from).unwrap().busy -= 1;
        assert!(lines.are_free(from));
    }

    #[test]
    fn a_thread_that_wakes_by_itself_does_not_count_as_woken() {
        let mut state = State { threads: 2, idle: 2, ..State::default() };
        want(&mut state, 3, 1);
        assert_eq!((state.help(0), state.help(0)), (ThreadDemand::Wake, ThreadDemand::Comes));
        state.awake(false);
        assert_eq!((state.idle, state.woken), (1, 1), "the other one is still being opened");
        state.awake(true);
        assert_eq!((state.idle, state.woken), (0, 0));
    }

    #[test]
    fn patience_begins_with_the_first_question() {
        let mut state = State::default();
        want(&mut state, 3, 1);
        assert!(state.sources[&NodeId(3)].waiting[0].since.is_none(), "it waits for its turn");
        let (from, _, mut batch) = state.take().unwrap();
        let asked = batch[0].since;
        assert!(asked.is_some() && !batch[0].is_overdue());
        state.sources.entry(from).or_default().waiting.append(&mut batch);
        let (_, _, mut batch) = state.take().unwrap();
        assert_eq!(batch[0].since, asked, "asked again, it is no younger");
        batch[0].since = Instant::now().checked_sub(timeout_for() * 2);
        assert!(batch[0].is_overdue());
    }
}

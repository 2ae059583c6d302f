//! One thread that calls back at given times; 10^5 sleepers cost a heap entry each.

use std::collections::BinaryHeap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::ExecutorError;

type Callback = Box<dyn FnOnce() + Send>;

struct Entry {
    at: Instant,
    number: u64,
    callback: Callback,
}

// The heap returns the largest entry first, so the order is reversed.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Entry {}

#[derive(Default)]
struct State {
    entries: BinaryHeap<Entry>,
    numbers: u64,
    stopping: bool,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

/// Calls back later. Callbacks run on the timer's thread and must be short.
pub(crate) struct Timer {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

impl Timer {
    pub(crate) fn start(name: &str) -> Result<Self, ExecutorError> {
        let inner = Arc::new(Inner::default());
        let theirs = inner.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&theirs))
            .map_err(|error| ExecutorError::thread(&error))?;
        Ok(Self { inner, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn after(&self, delay: Duration, callback: impl FnOnce() + Send + 'static) {
        let at = Instant::now() + delay;
        let mut state = self.inner.state.lock().expect("no holder of the timer panics");
        if state.stopping {
            return;
        }
        state.numbers += 1;
        let number = state.numbers;
        let first = state.entries.peek().is_none_or(|entry| at < entry.at);
        state.entries.push(Entry { at, number, callback: Box::new(callback) });
        drop(state);
        if first {
            self.inner.changed.notify_one();
        }
    }

    /// Drops all callbacks and ends the thread.
    pub(crate) fn stop(&self) {
        let mut state = self.inner.state.lock().expect("no holder of the timer panics");
        state.stopping = true;
        let forgotten = std::mem::take(&mut state.entries);
        drop(state);
        drop(forgotten);
        self.inner.changed.notify_one();
        let thread = self.thread.lock().expect("no holder of the handle panics").take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

fn run(inner: &Inner) {
    let mut due = Vec::new();
    let mut state = inner.state.lock().expect("no holder of the timer panics");
    while !state.stopping {
        let now = Instant::now();
        while state.entries.peek().is_some_and(|entry| entry.at <= now) {
            due.extend(state.entries.pop());
        }
        if !due.is_empty() {
            drop(state);
            for entry in due.drain(..) {
                (entry.callback)();
            }
            state = inner.state.lock().expect("no holder of the timer panics");
            continue;
        }
        let wait = state.entries.peek().map(|entry| entry.at - now);
        state = match wait {
            Some(wait) => {
                let answer = inner.changed.wait_timeout(state, wait);
                answer.expect("no holder of the timer panics").0
            }
            None => inner.changed.wait(state).expect("no holder of the timer panics"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn callbacks_come_in_order_of_their_times() {
        let timer = Timer::start("test").unwrap();
        let (sender, receiver) = mpsc::channel();
        for delay_ms in [60, 20, 40, 0] {
            let sender = sender.clone();
            timer.after(Duration::from_millis(delay_ms), move || sender.send(delay_ms).unwrap());
        }
        drop(sender);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [0, 20, 40, 60]);
        timer.after(Duration::from_secs(3600), || panic!("forgotten by stop"));
        timer.stop();
    }
}

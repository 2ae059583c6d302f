//! Threads for work that uses a CPU or a disk. They start when there is work for them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    stopping: bool,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

/// At most `size` threads.
pub(crate) struct Pool {
    inner: Arc<Inner>,
    size: usize,
    name: String,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(size: u32, name: &str) -> Self {
        let size = usize::try_from(size.max(1)).expect("u32 fits usize here");
        Self { inner: Arc::default(), size, name: name.to_owned() }
    }

    /// Runs a job on some thread; fails if there is no thread and none can be started.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = self.state();
        if state.stopping {
            return Ok(());
        }
        if state.idle <= state.jobs.len() && state.threads.len() < self.size {
            let inner = self.inner.clone();
            let started =
                std::thread::Builder::new().name(self.name.clone()).spawn(move || work(&inner));
            match started {
                Ok(thread) => state.threads.push(thread),
                Err(error) if state.threads.is_empty() => return Err(error),
                // The other threads will take the job.
                Err(_) => {}
            }
        }
        state.jobs.push_back(Box::new(job));
        drop(state);
        self.inner.changed.notify_one();
        Ok(())
    }

    /// Drops queued jobs and waits for running ones.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        let jobs = std::mem::take(&mut state.jobs);
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        drop(jobs);
        self.inner.changed.notify_all();
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().expect("jobs run outside the lock")
    }
}

fn work(inner: &Inner) {
    let mut state = inner.state.lock().expect("jobs run outside the lock");
    while !state.stopping {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            job();
            state = inner.state.lock().expect("jobs run outside the lock");
            continue;
        }
        state.idle += 1;
        state = inner.changed.wait(state).expect("jobs run outside the lock");
        state.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};

    use super::*;

    #[test]
    fn as_many_jobs_at_once_as_there_are_threads() {
        let pool = Pool::new(3, "test");
        let barrier = Arc::new(Barrier::new(3));
        let (sender, receiver) = mpsc::channel();
        for number in 0..6 {
            let (barrier, sender) = (barrier.clone(), sender.clone());
            pool.run(move || {
                // Passes only when three run together.
                barrier.wait();
                sender.send(number).unwrap();
            })
            .unwrap();
        }
        drop(sender);
        let mut numbers: Vec<_> = receiver.iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
        assert_eq!(pool.state().threads.len(), 3);
        pool.stop();
    }
}

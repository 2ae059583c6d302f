//! Time limits, memory limits, printed bytes of calls that run, and workers without work.

use std::time::{Duration, Instant};

use super::pool::{IDLE_MAX, Pool};
use super::runtime::Zygote;
use super::worker::{Stage, Why, Worker};
use crate::commands::captured::too_much;
use crate::commands::resources::too_much_memory;
use crate::spawner::memory::MEASURED_EVERY;

/// The interval of looks at calls that run.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A worker or zygote must be ready after this time: it may import from a slow file system.
const START_MAX: Duration = Duration::from_secs(300);
/// A worker that has closed its pipe, or was asked to end, must be gone after this time.
const END_MAX: Duration = Duration::from_secs(2);

impl Pool {
    /// Handles all that depends on time, at most every [`LOOK_EVERY`] unless a limit ends earlier.
    /// Returns the time until the next look.
    pub(super) fn watch(&mut self, now: Instant) -> Option<Duration> {
        if let Some(at) = self.look_at
            && now < at
        {
            return Some(at.saturating_duration_since(now));
        }
        let ids: Vec<u64> = self.workers.keys().copied().collect();
        let mut next: Option<Duration> = None;
        for id in ids {
            let wait = self.watch_worker(id, now);
            next = next.into_iter().chain(wait).min();
        }
        for runtime in 0..self.runtimes.len() {
            let wait = self.watch_zygote(runtime, now);
            next = next.into_iter().chain(wait).min();
        }
        self.look_at = Some(now + next.map_or(LOOK_EVERY, |next| next.min(LOOK_EVERY)));
        next
    }

    /// The workers with limited calls, with their processes, at most every [`MEASURED_EVERY`]:
    /// the processes below them are to be measured, without the lock of the pool.
    pub(super) fn due_for_measure(&mut self, now: Instant) -> Vec<(u64, i32)> {
        if self.trees_at.is_some_and(|at| now < at + MEASURED_EVERY) {
            return Vec::new();
        }
        self.trees.clear();
        let limited = self.workers.iter().filter(|(_, worker)| worker.memory_limit_bytes() > 0);
        let process = |worker: &Worker| Some(worker.pid?.as_raw_nonzero().get());
        limited.filter_map(|(id, worker)| Some((*id, process(worker)?))).collect()
    }

    fn watch_worker(&mut self, id: u64, now: Instant) -> Option<Duration> {
        let grace = Duration::from_nanos(self.shared.config.kill_grace.0);
        let worker = self.workers.get_mut(&id)?;
        if let Some(closed) = worker.closed {
            if now >= closed + END_MAX {
                self.bury(id, now);
                return None;
            }
            return Some(END_MAX);
        }
        if let Some((since, _)) = &worker.interrupted {
            let until = *since + grace;
            if now >= until && worker.stage != Stage::Ending {
                worker.kill(self.starter.as_mut());
            }
            return Some(until.saturating_duration_since(now).max(LOOK_EVERY));
        }
        match worker.stage {
            Stage::Starting if now >= worker.since + START_MAX => {
                self.kill_for(id, Why::Failure("the worker was not ready in time".into()), now);
                Some(END_MAX)
            }
            Stage::Ending if now >= worker.since + END_MAX => {
                worker.kill(self.starter.as_mut());
                Some(END_MAX)
            }
            Stage::Starting | Stage::Ending => Some(END_MAX),
            Stage::Ready if worker.calls.is_empty() => {
                let left = (worker.since + IDLE_MAX).saturating_duration_since(now);
                if left.is_zero() {
                    self.stop_worker(id, now);
                    return Some(END_MAX);
                }
                Some(left)
            }
            Stage::Ready => self.watch_call(id, now),
        }
    }

    /// Looks at a call that runs.
    fn watch_call(&mut self, id: u64, now: Instant) -> Option<Duration> {
        let worker = &self.workers[&id];
        let call = worker.calls.front()?;
        if call.nested.rests.is_some() {
            return Some(LOOK_EVERY); // Its time stands still.
        }
        let began = call.sent.unwrap_or(now);
        let limit = Duration::from_nanos(call.launch.spec.time_limit_ns);
        if !limit.is_zero() && now >= began + limit {
            self.interrupt(id, Why::Time, now);
            return Some(LOOK_EVERY);
        }
        if now < began + LOOK_EVERY {
            // A short limit ends before the first look.
            return Some(if limit.is_zero() { LOOK_EVERY } else { limit.min(LOOK_EVERY) });
        }
        let most_bytes = worker.memory_limit_bytes();
        if most_bytes > 0 {
            // An earlier figure is that of another call.
            let is_own = self.trees_at.is_some_and(|at| at >= began.max(worker.since));
            let tree = self.trees.get(&id).filter(|_| is_own);
            let of_tree = tree.map_or(0, |tree| tree.bytes);
            let used_bytes = worker.private_bytes().unwrap_or(0).max(of_tree);
            if used_bytes > most_bytes {
                let text = too_much_memory(used_bytes, &call.launch);
                tree.iter().for_each(|tree| tree.kill_outside());
                self.kill_for(id, Why::Failure(text), now);
                return Some(END_MAX);
            }
        }
        let printed_bytes = worker.files.printed_bytes() + call.printed.captured.total_bytes();
        let limit_bytes = self.shared.print_limit_bytes();
        if printed_bytes > limit_bytes {
            self.kill_for(id, Why::Failure(too_much(printed_bytes, limit_bytes)), now);
        }
        Some(LOOK_EVERY)
    }

    fn watch_zygote(&mut self, runtime: usize, now: Instant) -> Option<Duration> {
        if matches!(self.runtimes[runtime].zygote, Zygote::None) {
            return None;
        }
        let is_used = self.workers.values().any(|worker| worker.runtime == runtime)
            || self.queue.iter().any(|call| call.runtime == runtime);
        let state = &mut self.runtimes[runtime];
        let Zygote::Runs { is_ready, since, closed, .. } = &state.zygote else { return None };
        if let Some(closed) = closed {
            if now >= *closed + END_MAX {
                self.zygote_ended(runtime, "it closed its socket", now);
                return None;
            }
            return Some(END_MAX);
        }
        if is_used {
            state.idle_since = now;
        }
        if !is_ready && now >= *since + START_MAX {
            self.zygote_ended(runtime, "it was not ready in time", now);
            return None;
        }
        if is_used {
            return None;
        }
        let left = (state.idle_since + IDLE_MAX).saturating_duration_since(now);
        if left.is_zero() {
            // It ends when its socket closes.
            state.zygote = Zygote::None;
            return None;
        }
        Some(left)
    }

    /// A killed call: it is interrupted if it runs.
    pub(super) fn cancel(&mut self, number: u64, now: Instant) {
        let is_it = |call: &super::call::Call| call.number == number;
        self.queue.retain(|call| !is_it(call));
        let holder = self
            .workers
            .iter()
            .find_map(|(id, worker)| Some((*id, worker.calls.iter().position(|it| is_it(it))?)));
        match holder {
            None => {}
            // Calls on top of it are its own.
            Some((id, place)) => self.unwind(id, place, now),
        }
    }
}

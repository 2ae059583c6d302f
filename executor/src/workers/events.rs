//! The records of workers and zygotes, and the ends of their processes.

use std::path::Path;
use std::time::{Duration, Instant};

use proto::limits;
use proto::work::Outcome;
use rustix::event::epoll;

use super::call::{Call, one_line};
use super::pool::Pool;
use super::runtime::{Runtime, Zygote, read_packet};
use super::wire::{FromWorker, FromZygote, Malformed, records, zygote_packet};
use super::worker::{Stage, Why, Worker};
use crate::commands::collect::signal_name;
use crate::executor::AttemptOutcome;
use crate::limits::STOP_WAIT_MAX;
use crate::spawner::wire::Report;

/// A call counts as the cause if its workers end that often before it begins. After that number of
/// ends under its own calls, a call gets no more of them on top.
pub(super) const RESTARTS_MAX: u8 = 3;
/// The bytes of a dead worker's last printed text that are kept.
const LAST_PRINTED_BYTES: usize = 1 << 20;

impl Pool {
    /// Handles the records of a worker.
    pub(super) fn hear_worker(&mut self, id: u64, now: Instant, buffer: &mut [u8]) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let is_open = worker.read(buffer);
        loop {
            let Some(worker) = self.workers.get_mut(&id) else { return };
            let heard = match worker.incoming.frame() {
                Ok(None) => break,
                Ok(Some(frame)) => self.hear_frame(id, &frame, now),
                Err(malformed) => Err(malformed),
            };
            if let Err(Malformed(reason)) = heard {
                let text = format!("the worker broke its protocol: {reason}");
                self.kill_for(id, Why::Failure(text), now);
                break;
            }
        }
        if !is_open && let Some(worker) = self.workers.get_mut(&id) {
            let _ = epoll::delete(&self.epoll, &worker.files.from_worker);
            worker.closed = Some(now);
            if worker.stage != Stage::Ending {
                // A worker may close its pipe and run on.
                worker.kill(self.starter.as_mut());
            }
            self.bury_if_gone(id, now);
        }
    }

    fn hear_frame(&mut self, id: u64, frame: &[u8], now: Instant) -> Result<(), Malformed> {
        for record in records(frame) {
            let worker = self.workers.get_mut(&id).expect("it is heard");
            match record? {
                FromWorker::Hello(json) => self.hear_hello(id, json, now)?,
                FromWorker::Print { call, stderr, lost, data } => {
                    let call = worker.calls.iter_mut().find(|other| other.number == call);
                    let call = call.ok_or(Malformed("output of a call that it does not have"))?;
                    let shared = self.shared.clone();
                    let note = format!("[{lost} bytes are left out]\n");
                    let is_cut = lost > 0 && call.print(&shared, stderr, note.as_bytes());
                    if call.print(&shared, stderr, data) || is_cut {
                        self.kill_for(id, Why::Failure("printed too much".to_owned()), now);
                    }
                }
                FromWorker::Note { call, text } => {
                    // A thread of the function may outlive its call.
                    let call = worker.calls.iter_mut().find(|other| other.number == call);
                    let note = format!("{}\n", one_line(&String::from_utf8_lossy(text)));
                    if call.is_some_and(|call| call.print(&self.shared, true, note.as_bytes())) {
                        self.kill_for(id, Why::Failure("printed too much".to_owned()), now);
                    }
                }
                FromWorker::Ask { call, seq, json, data } => {
                    self.hear_ask(id, (call, seq), (json, data))?;
                }
                FromWorker::Rest { call, rests } => self.hear_rest(id, call, rests, now)?,
                FromWorker::Result(result) => {
                    let number = worker.calls.front().map(|call| call.number);
                    if number != Some(result.call) {
                        return Err(Malformed("a result of a call that it does not run"));
                    }
                    let mut call = worker.calls.pop_front().expect("looked at above");
                    let interrupted = worker.interrupted.take();
                    worker.since = now;
                    self.leave_nested(&mut call, false);
                    let key = call.key;
                    let outcome = match interrupted {
                        Some((_, Why::Time)) => {
                            let error = call.over_time();
                            call.outcome(&self.shared, error, 1)
                        }
                        Some((_, Why::Failure(text))) => call.outcome(&self.shared, text, 1),
                        Some((_, Why::Cancelled)) | None => {
                            call.ended(&self.shared, &result, &self.results)
                        }
                    };
                    self.ended.extend(self.shared.end(key, outcome));
                    let below = self.workers.get(&id).and_then(|worker| worker.calls.front());
                    if below.is_some_and(|call| call.nested.ends) {
                        self.interrupt(id, Why::Cancelled, now);
                    }
                }
            }
        }
        Ok(())
    }

    fn hear_hello(&mut self, id: u64, json: &[u8], now: Instant) -> Result<(), Malformed> {
        let hello: serde_json::Value =
            serde_json::from_slice(json).map_err(|_| Malformed("a HELLO that is no JSON"))?;
        let worker = self.workers.get_mut(&id).expect("it is heard");
        if let Some(error) = hello["error"].as_str() {
            let (runtime, text) = (worker.runtime, one_line(error));
            worker.kill(self.starter.as_mut());
            self.fail_queued(runtime, &text);
            return Ok(());
        }
        if hello["protocol"].as_u64() != Some(1) {
            return Err(Malformed("another version than 1"));
        }
        let pid = hello["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.filter(|pid| *pid > 1).ok_or(Malformed("a HELLO without a process id"))?;
        worker.name(pid);
        if worker.stage == Stage::Starting {
            (worker.stage, worker.since, worker.was_ready) = (Stage::Ready, now, true);
            worker.ready_bytes = worker.private_bytes().unwrap_or(0);
            self.runtimes[worker.runtime].failures = 0;
        }
        Ok(())
    }

    /// Handles the packets of a zygote.
    pub(super) fn hear_zygote(&mut self, runtime: usize, now: Instant, buffer: &mut [u8]) {
        loop {
            let Zygote::Runs { socket, .. } = &self.runtimes[runtime].zygote else { return };
            let count = match read_packet(socket, buffer) {
                Ok(None) => return,
                Ok(Some(count)) => count,
                Err(_) => 0,
            };
            if count == 0 {
                return self.zygote_closed(runtime, now);
            }
            match zygote_packet(&buffer[..count]) {
                Ok(packet) => self.hear_packet(runtime, &packet, now),
                Err(Malformed(reason)) => {
                    let text = format!("it broke its protocol: {reason}");
                    return self.zygote_ended(runtime, &text, now);
                }
            }
        }
    }

    fn hear_packet(&mut self, runtime: usize, packet: &FromZygote<'_>, now: Instant) {
        match packet {
            FromZygote::Hello(json) => {
                let hello: serde_json::Value = serde_json::from_slice(json).unwrap_or_default();
                if let Some(error) = hello["error"].as_str() {
                    let text = format!("the runtime cannot be loaded: {}", one_line(error));
                    self.fail_queued(runtime, &text);
                } else if let Zygote::Runs { is_ready, .. } = &mut self.runtimes[runtime].zygote {
                    *is_ready = true;
                }
            }
            FromZygote::Forked { seq, pid } => {
                if let Some(worker) = self.workers.get_mut(seq) {
                    worker.name(*pid);
                }
            }
            FromZygote::Refused { seq, text } => {
                let refusal: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
                if let Some(worker) = self.workers.remove(seq) {
                    let _ = epoll::delete(&self.epoll, &worker.files.from_worker);
                }
                match refusal["reason"].as_str() {
                    Some("threads" | "gpu") => {
                        let runtime = &mut self.runtimes[runtime];
                        runtime.is_direct = true;
                        runtime.refusal = one_line(refusal["text"].as_str().unwrap_or_default());
                    }
                    _ => {
                        let text = refusal["text"].as_str().unwrap_or("it refuses to fork");
                        self.bad_start(runtime, &one_line(text));
                    }
                }
            }
            FromZygote::Exited { pid, status } => {
                let found = self.workers.iter().find(|(_, worker)| {
                    worker.pid.is_some_and(|it| it.as_raw_nonzero().get() == *pid)
                });
                if let Some(id) = found.map(|(id, _)| *id) {
                    self.exited(id, *status, now);
                }
            }
        }
    }

    /// A zygote has closed its socket. The spawner reports its end.
    fn zygote_closed(&mut self, runtime: usize, now: Instant) {
        let Zygote::Runs { socket, number, closed, .. } = &mut self.runtimes[runtime].zygote else {
            return;
        };
        let _ = epoll::delete(&self.epoll, socket);
        closed.get_or_insert(now);
        if let Some(starter) = &mut self.starter {
            starter.kill(*number);
        }
    }

    fn exited(&mut self, id: u64, status: i32, now: Instant) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        // Its children may hold its pipe open.
        worker.kill(self.starter.as_mut());
        worker.status = Some(status);
        if worker.closed.is_some() {
            self.bury(id, now);
        } else {
            // Results may be left in its pipe. Without an end of the pipe, `watch` buries it.
            worker.closed = Some(now);
        }
    }

    /// The zygote of a runtime has ended. The workers that it forked are killed.
    pub(super) fn zygote_ended(&mut self, runtime: usize, why: &str, now: Instant) {
        let state = &mut self.runtimes[runtime];
        let Zygote::Runs { socket, number, is_ready, stderr, .. } =
            std::mem::replace(&mut state.zygote, Zygote::None)
        else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &socket);
        if let Some(starter) = &mut self.starter {
            starter.kill(number);
        }
        let forked = self
            .workers
            .values_mut()
            .filter(|worker| worker.runtime == runtime && worker.number.is_none());
        forked.for_each(|worker| {
            worker.kill(self.starter.as_mut());
            // No process reports the ends of these workers.
            worker.closed.get_or_insert(now);
        });
        if !is_ready {
            let printed = String::from_utf8_lossy(&stderr);
            let last = printed.trim().lines().last().unwrap_or(why).to_owned();
            self.bad_start(runtime, &last);
        }
    }

    /// Handles the reports of the spawner. False: it is gone.
    pub(super) fn hear_starter(&mut self, now: Instant) -> bool {
        let mut reports: Vec<Report> = Vec::new();
        let Some(starter) = &mut self.starter else { return true };
        let is_there = starter.read(&mut reports).unwrap_or(false);
        for report in reports {
            if let Some(output) = &report.output {
                self.keep_stderr(output.number, output.stderr, &output.data);
            }
            let Some(exit) = report.exit else { continue };
            self.keep_stderr(exit.number, true, &exit.stderr);
            let direct = self.workers.iter().find(|(_, it)| it.number == Some(exit.number));
            let direct = direct.map(|(id, worker)| (*id, worker.runtime));
            let text = match (exit.failure.is_empty(), exit.signal) {
                (false, _) => format!("'{}' cannot start: {}", exit.program, exit.failure),
                (_, 0) => format!("it exited with code {}", exit.code),
                (_, signal) => format!("it was killed by signal {signal}{}", signal_name(signal)),
            };
            if let Some((id, runtime)) = direct {
                if !exit.failure.is_empty() {
                    self.fail_queued(runtime, &format!("no worker can start: {text}"));
                }
                let status = if exit.signal == 0 { exit.code << 8 } else { exit.signal };
                self.exited(id, status, now);
            }
            let is_it = |runtime: &Runtime| match &runtime.zygote {
                Zygote::Runs { number, .. } => *number == exit.number,
                Zygote::None => false,
            };
            if let Some(runtime) = self.runtimes.iter().position(is_it) {
                if !exit.failure.is_empty() {
                    self.fail_queued(runtime, &format!("no worker can start: {text}"));
                }
                self.zygote_ended(runtime, &text, now);
            }
        }
        is_there
    }

    /// Keeps the last text that a zygote printed.
    fn keep_stderr(&mut self, of: u64, is_stderr: bool, data: &[u8]) {
        for runtime in &mut self.runtimes {
            if let Zygote::Runs { number, stderr, .. } = &mut runtime.zygote
                && *number == of
                && is_stderr
            {
                stderr.extend_from_slice(data);
                let surplus = stderr.len().saturating_sub(limits::STDERR_TAIL_BYTES);
                stderr.drain(..surplus);
            }
        }
    }

    /// Ends a worker's record once its pipe is closed and its status is known.
    fn bury_if_gone(&mut self, id: u64, now: Instant) {
        let worker = &self.workers[&id];
        if worker.closed.is_some() && worker.status.is_some() {
            self.bury(id, now);
        }
    }

    /// Handles the end of a worker. Only the call that it ran is charged.
    pub(super) fn bury(&mut self, id: u64, now: Instant) {
        let Some(mut worker) = self.workers.remove(&id) else { return };
        let _ = epoll::delete(&self.epoll, &worker.files.from_worker);
        if let Some(pid) = worker.pid {
            remove_results(&self.results, pid.as_raw_nonzero().get());
        }
        self.runtimes[worker.runtime].idle_since = now;
        if !worker.was_ready && worker.interrupted.is_none() {
            self.note_bad_start(&worker);
        }
        let charged = charged(&worker).and_then(|place| worker.calls.remove(place));
        // In their order, before all calls that came later.
        while let Some(mut call) = worker.calls.pop_back() {
            self.leave_nested(&mut call, true);
            (call.restarts, call.sent) = (call.restarts.saturating_add(1), None);
            self.queue.push_front(call);
        }
        if let Some(mut call) = charged {
            self.leave_nested(&mut call, false);
            let [stdout, stderr] = worker.files.printed(LAST_PRINTED_BYTES);
            call.print(&self.shared, false, &stdout);
            call.print(&self.shared, true, &stderr);
            let end = self.end_of_crashed(call, &worker);
            self.ended.extend(end);
        }
    }

    fn note_bad_start(&mut self, worker: &Worker) {
        let [_, stderr] = worker.files.printed(limits::STDERR_TAIL_BYTES);
        let text = String::from_utf8_lossy(&stderr);
        let last = text.trim().lines().last().unwrap_or("the worker ended before it was ready");
        self.bad_start(worker.runtime, last);
    }

    /// The end of the call that a dead worker ran.
    fn end_of_crashed(&self, call: Box<Call>, worker: &Worker) -> Option<AttemptOutcome> {
        let key = call.key;
        let status = worker.status.unwrap_or(9);
        let (signal, code) = (status & 0x7f, status >> 8 & 0xff);
        let over_time = call.over_time();
        let outcome = match &worker.interrupted {
            Some((_, Why::Time)) => {
                call.outcome(&self.shared, format!("{over_time}, then killed"), 137)
            }
            Some((_, Why::Failure(text))) => call.outcome(&self.shared, text.clone(), 1),
            Some((_, Why::Cancelled)) => call.outcome(&self.shared, "cancelled".to_owned(), 1),
            None if signal != 0 => {
                let text =
                    format!("its worker was killed by signal {signal}{}", signal_name(signal));
                let outcome = call.outcome(&self.shared, text, 128 + signal);
                // No function ends itself like that; the task is not at fault at once.
                Outcome { lost: signal == 9, ..outcome }
            }
            None => {
                let text = format!("its worker exited with code {code} during the call");
                call.outcome(&self.shared, text, code.max(1))
            }
        };
        let ended = self.shared.end(key, outcome)?;
        // SIGHUP, SIGINT and SIGTERM may be part of the stop of the whole node.
        let is_doubtful = worker.interrupted.is_none() && matches!(signal, 1 | 2 | 15);
        let most = Duration::from_nanos(STOP_WAIT_MAX.0);
        Some(AttemptOutcome { doubt: if is_doubtful { most } else { ended.doubt }, ..ended })
    }
}

/// The place of the call that has ended a worker with itself; `None`: no call has.
fn charged(worker: &Worker) -> Option<usize> {
    let was_interrupted = worker.interrupted.is_some();
    let of_running = match worker.files.running() {
        // A worker that names no call runs the first.
        None => Some(0),
        Some(0) => was_interrupted.then_some(0),
        // The calls before it were sent to its worker, and have not begun. An interrupt is for the
        // first call.
        Some(running) => worker
            .calls
            .iter()
            .position(|call| call.number == running)
            .filter(|place| *place == 0 || !was_interrupted),
    };
    let is_suspect = worker.calls.front().is_some_and(|call| call.restarts >= RESTARTS_MAX);
    of_running.or_else(|| is_suspect.then_some(0))
}

/// Removes the large results of a worker that has ended, and what it has written for its node.
fn remove_results(results: &Path, pid: i32) {
    let starts = [format!("{pid}."), format!("ask-{pid}.")];
    let Ok(entries) = std::fs::read_dir(results) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if starts.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_results_of_the_worker_are_removed() {
        let name = format!("starling-results-{}", std::process::id());
        let results = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&results).unwrap();
        for name in ["12.1.0", "12.2.0", "123.1.0", "function-12.1", "ask-12.1", "ask-123.1"] {
            std::fs::write(results.join(name), b"x").unwrap();
        }
        remove_results(&results, 12);
        let entries = std::fs::read_dir(&results).unwrap();
        let mut left: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        std::fs::remove_dir_all(&results).unwrap();
        assert_eq!(left, ["123.1.0", "ask-123.1", "function-12.1"]);
    }
}

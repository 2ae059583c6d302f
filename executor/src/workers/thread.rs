//! The thread of the pool.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use super::call::spec_of;
use super::pool::{Pool, Token};
use super::{Inner, failure};
use crate::spawner::memory::of_workers;

/// The bytes that one read takes.
const READ_BYTES: usize = 256 << 10;

pub(super) fn run(inner: &std::sync::Arc<Inner>, epoll: &OwnedFd) {
    let mut events = Vec::with_capacity(256);
    let mut buffer = vec![0; READ_BYTES];
    let _ = epoll::add(epoll, &inner.wake, Token::Wake.data(), epoll::EventFlags::IN);
    let mut timeout: Option<Duration> = None;
    while !inner.shared.is_stopping() {
        events.clear();
        let wait = timeout.map(|wait| Timespec {
            tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
        let now = Instant::now();
        let mut pool = inner.pool();
        for event in &events {
            match Token::of(event.data) {
                Token::Wake => {
                    let _ = rustix::io::read(&inner.wake, &mut [0; 8]);
                }
                Token::Starter => {
                    if !pool.hear_starter(now) {
                        pool.lose_starter(now);
                    }
                }
                Token::Zygote(runtime) => pool.hear_zygote(runtime, now, &mut buffer),
                Token::Output(id) => pool.hear_worker(id, now, &mut buffer),
                Token::Input(id) => pool.write_more(id),
            }
        }
        take_inbox(inner, &mut pool, now);
        pool.dispatch(now);
        if !pool.unready.is_empty() {
            inner.inbox().calls.extend(pool.unready.drain(..));
            inner.wake();
        }
        timeout = pool.watch(now);
        // Calls come without notice, and may print without bound.
        let most = match (pool.queue.is_empty(), pool.workers.is_empty()) {
            (false, _) => Duration::from_millis(100),
            (true, false) => Duration::from_secs(1),
            (true, true) => Duration::MAX,
        };
        timeout =
            timeout.map(|wait| wait.min(most)).or_else(|| (most < Duration::MAX).then_some(most));
        let ended = std::mem::take(&mut pool.ended);
        let measured = pool.due_for_measure(now);
        drop(pool);
        inner.shared.report(ended);
        if !measured.is_empty() {
            let trees = of_workers(&measured);
            let mut pool = inner.pool();
            (pool.trees, pool.trees_at) = (trees, Some(now));
        }
    }
}

/// Takes what other threads have left for this one.
fn take_inbox(inner: &std::sync::Arc<Inner>, pool: &mut Pool, now: Instant) {
    let mut inbox = inner.inbox();
    pool.runtimes.append(&mut inbox.runtimes);
    let (calls, kills) = (std::mem::take(&mut inbox.calls), std::mem::take(&mut inbox.kills));
    let fetched = std::mem::take(&mut inbox.fetched);
    let answers = std::mem::take(&mut inbox.answers);
    let go_on = std::mem::take(&mut inbox.go_on);
    let taken = std::mem::take(&mut inbox.taken);
    let mut wanted = Vec::new();
    for call in calls {
        let spec = spec_of(&call.launch);
        if !spec.body.is_empty() || pool.functions.contains_key(&call.function) {
            match pool.own_function(&call) {
                Ok(()) => pool.queue.push_back(call),
                Err(error) => {
                    let end = inner.shared.end(call.key, failure(error));
                    pool.ended.extend(end);
                }
            }
            continue;
        }
        let waiting = inbox.awaiting.entry(call.function).or_default();
        if waiting.is_empty() {
            wanted.push(call.function);
        }
        waiting.push(call);
    }
    for (id, bytes) in fetched {
        let calls = inbox.awaiting.remove(&id).unwrap_or_default();
        let kept = bytes.and_then(|bytes| pool.keep_function(id, 0, &bytes));
        for call in calls {
            match &kept {
                Ok(()) => pool.queue.push_back(call),
                Err(error) => {
                    let end = inner.shared.end(call.key, failure(error.clone()));
                    pool.ended.extend(end);
                }
            }
        }
    }
    drop(inbox);
    for (call, seq, answer) in answers {
        pool.answer(call, seq, &answer);
    }
    for key in go_on {
        pool.go_on(key, now);
    }
    for binding in taken {
        pool.free_devices(&binding, None, now);
    }
    for number in kills {
        pool.cancel(number, now);
    }
    for id in wanted {
        fetch(inner, id);
    }
}

/// Asks the store for a function.
fn fetch(inner: &std::sync::Arc<Inner>, id: [u8; 16]) {
    let theirs = std::sync::Arc::downgrade(inner);
    let done = move |bytes: Result<Vec<u8>, String>| {
        if let Some(inner) = theirs.upgrade() {
            inner.inbox().fetched.push((id, bytes));
            inner.wake();
        }
    };
    match &inner.shared.config.functions {
        Some(functions) => functions.fetch(id, Box::new(done)),
        None => done(Err("this node has no store of functions".to_owned())),
    }
}

impl Pool {
    /// The spawner is gone, and with it all workers.
    fn lose_starter(&mut self, now: Instant) {
        let Some(starter) = self.starter.take() else { return };
        let _ = epoll::delete(&self.epoll, starter.fd());
        starter.end();
        for runtime in 0..self.runtimes.len() {
            self.zygote_ended(runtime, "the spawner of workers ended", now);
        }
        for id in self.workers.keys().copied().collect::<Vec<_>>() {
            self.bury(id, now);
        }
    }
}

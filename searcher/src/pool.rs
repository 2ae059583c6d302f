//! The slots of one search: which are idle, which are asked for a piece, and the end.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use search::{Bag, Tally, Vars};

use crate::slot::{self, Counts};

/// A flag of the word: another slot is idle.
pub(crate) const SPLIT: u32 = 1;
/// A flag of the word: the search ends.
pub(crate) const STOP: u32 = 2;

/// The facts about a search while it runs.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub wall: Duration,
    pub tally: Tally,
    /// The part of the slots' time in which they searched, 0 to 1.
    pub efficiency: f64,
    pub splits: u64,
    /// An optimistic bound of all solutions that are not found yet; None without bounds.
    pub bound: Option<i64>,
}

/// The decision of the caller after a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Continue,
    Stop,
}

/// The facts about a search that has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub last: Snapshot,
    /// The whole tree was searched, or the search is decided.
    pub is_complete: bool,
    /// The bags that ran, with the first one.
    pub pieces: u64,
}

/// The state that the slots share.
pub(crate) struct Pool<'v, B, V> {
    pub(crate) vars: &'v V,
    pub(crate) goal: search::Goal,
    pub(crate) slots: Vec<Shared>,
    queue: Mutex<Queue<B>>,
    /// A piece waits, or the search has ended.
    changed: Condvar,
    /// The search has ended.
    ended: Condvar,
}

/// The part of a slot that others see. Slots write often: each has its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shared {
    /// The flag word.
    pub(crate) word: AtomicU32,
    /// The weight of the bag. 0: none, or an empty one.
    pub(crate) weight: AtomicU64,
    counts: Mutex<Counts>,
}

impl Shared {
    /// The counts, as published last.
    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Queue<B> {
    /// Pieces that no slot has taken yet.
    pieces: VecDeque<B>,
    /// Slots without a bag.
    idle: usize,
    /// The whole tree is searched.
    is_complete: bool,
    /// The slots end.
    has_ended: bool,
}

impl<B: Bag, V: Vars> Pool<'_, B, V> {
    fn queue(&self) -> MutexGuard<'_, Queue<B>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a bag. None: the search has ended.
    pub(crate) fn next_bag(&self, slot: usize) -> Option<B> {
        let mut queue = self.queue();
        queue.idle += 1;
        self.slots[slot].weight.store(0, Ordering::Relaxed);
        self.slots[slot].word.fetch_and(!SPLIT, Ordering::Relaxed);
        loop {
            if queue.has_ended {
                return None;
            }
            if let Some(piece) = queue.pieces.pop_front() {
                queue.idle -= 1;
                let shared = &self.slots[slot];
                shared.weight.store(piece.weight().max(1), Ordering::Relaxed);
                // A snapshot sees the bound of a piece here or in the queue.
                shared.counts().bound = piece.bound();
                // The request of another idle slot may have found no bag to split.
                self.ask(&queue);
                return Some(piece);
            }
            if queue.idle == self.slots.len() {
                queue.is_complete = true;
                self.end(&mut queue);
                return None;
            }
            self.ask(&queue);
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Asks the slots with the heaviest bags: one for each idle slot that no piece waits for.
    fn ask(&self, queue: &Queue<B>) {
        for _ in queue.pieces.len()..queue.idle {
            let not_asked = self.slots.iter().filter(|slot| {
                slot.weight.load(Ordering::Relaxed) > 0
                    && slot.word.load(Ordering::Relaxed) & SPLIT == 0
            });
            let Some(heaviest) = not_asked.max_by_key(|slot| slot.weight.load(Ordering::Relaxed))
            else {
                break;
            };
            heaviest.word.fetch_or(SPLIT, Ordering::Relaxed);
        }
    }

    /// The slot was asked for a piece. True: it has split its bag.
    pub(crate) fn serve(&self, slot: usize, bag: &mut B) -> bool {
        let mut queue = self.queue();
        let is_wanted = |queue: &Queue<B>| queue.idle > queue.pieces.len();
        let piece = if is_wanted(&queue) { bag.split() } else { None };
        let has_split = piece.is_some();
        if let Some(piece) = piece {
            queue.pieces.push_back(piece);
        }
        if is_wanted(&queue) {
            // The request stays here as well: the bag may grow.
            self.ask(&queue);
        } else {
            self.slots[slot].word.fetch_and(!SPLIT, Ordering::Relaxed);
        }
        drop(queue);
        if has_split {
            self.changed.notify_one();
        }
        has_split
    }

    /// Ends all slots. `is_complete`: nothing that is left can change the result.
    pub(crate) fn stop(&self, is_complete: bool) {
        let mut queue = self.queue();
        queue.is_complete |= is_complete;
        self.end(&mut queue);
    }

    fn end(&self, queue: &mut Queue<B>) {
        queue.has_ended = true;
        for slot in &self.slots {
            slot.word.fetch_or(STOP, Ordering::Relaxed);
        }
        self.changed.notify_all();
        self.ended.notify_all();
    }

    fn snapshot(&self, began: Instant) -> Snapshot {
        let wall = began.elapsed();
        let (mut tally, mut searched, mut splits) = (Tally::default(), Duration::ZERO, 0);
        let queue = self.queue();
        let mut bounds: Vec<i64> = queue.pieces.iter().filter_map(Bag::bound).collect();
        for slot in &self.slots {
            let counts = slot.counts();
            tally.add(&counts.tally);
            searched += counts.searched;
            splits += counts.splits;
            bounds.extend(counts.bound);
        }
        drop(queue);
        let capacity = wall.as_secs_f64() * self.slots.len() as f64;
        let bound = bounds.into_iter().reduce(|one, other| self.goal.better(one, other));
        Snapshot {
            wall,
            tally,
            efficiency: (searched.as_secs_f64() / capacity.max(1e-9)).min(1.0),
            splits,
            bound,
        }
    }

    /// Calls `watch` until the search has ended.
    fn watch(&self, began: Instant, every: Duration, watch: &mut impl FnMut(&Snapshot) -> Next) {
        let mut queue = self.queue();
        while !queue.has_ended {
            let waited = self.ended.wait_timeout(queue, every);
            let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = after;
            if queue.has_ended || !timeout.timed_out() {
                continue;
            }
            drop(queue);
            if watch(&self.snapshot(began)) == Next::Stop {
                self.stop(false);
            }
            queue = self.queue();
        }
    }
}

/// Ends the search when a slot or the caller panics, so that the others do not wait for it.
struct StopOnPanic<'p, 'v, B: Bag, V: Vars>(&'p Pool<'v, B, V>);

impl<B: Bag, V: Vars> Drop for StopOnPanic<'_, '_, B, V> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(false);
        }
    }
}

/// Searches `bag` on `slots` threads, and calls `watch` every `every`.
///
/// # Errors
///
/// If a thread cannot start.
///
/// # Panics
///
/// If the code of the problem does.
pub fn run<B: Bag, V: Vars + Sync>(
    bag: B,
    slots: usize,
    goal: search::Goal,
    vars: &V,
    every: Duration,
    mut watch: impl FnMut(&Snapshot) -> Next,
) -> io::Result<Outcome> {
    let began = Instant::now();
    let queue =
        Queue { pieces: VecDeque::from([bag]), idle: 0, is_complete: false, has_ended: false };
    let slots = slots.max(1);
    let pool = Pool {
        vars,
        goal,
        slots: (0..slots).map(|_| Shared::default()).collect(),
        queue: Mutex::new(queue),
        changed: Condvar::new(),
        ended: Condvar::new(),
    };
    let mut pieces = 0;
    std::thread::scope(|scope| -> io::Result<()> {
        let pool = &pool;
        let _stop = StopOnPanic(pool);
        let start = |slot| {
            std::thread::Builder::new().spawn_scoped(scope, move || {
                let _stop = StopOnPanic(pool);
                slot::run(pool, slot)
            })
        };
        let threads: io::Result<Vec<_>> = (0..slots).map(start).collect();
        // The threads that have started wait for pieces, or search: they end.
        let threads = threads.inspect_err(|_| pool.stop(false))?;
        pool.watch(began, every, &mut watch);
        for thread in threads {
            match thread.join() {
                Ok(ran) => pieces += ran,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })?;
    let is_complete = pool.queue().is_complete;
    Ok(Outcome { last: pool.snapshot(began), is_complete, pieces })
}

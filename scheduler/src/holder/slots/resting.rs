//! Attempts that rest: they run, wait for other tasks, and have given their seats back.
//!
//! An attempt that wants to go on takes a seat again before any other task starts here. So it does
//! not wait for tasks that came later. Its process still uses the devices that it had, so it waits
//! for the same ones; other tasks start meanwhile.

use std::collections::VecDeque;

use proto::{Attempt, TaskId};
use resources::Request;

use crate::Scheduler;
use crate::holder::Holder;
use crate::holder::slots::{Need, Seat};
use crate::objects::drain::AttemptKey;
use crate::output::Out;

impl Holder {
    /// Whether attempts that rested wait for a seat, so that no other task starts. One that waits
    /// for its own devices holds no others back: their holder may need the slots.
    pub(crate) fn wants_seats(&self) -> bool {
        let Some(waiting) = &self.returning else { return false };
        waiting.iter().any(|(task, _)| !self.waits_for_devices(*task))
    }

    fn waits_for_devices(&self, task: TaskId) -> bool {
        let rested = self.running.get(&task).and_then(|running| running.rested());
        rested.is_some_and(|rested| self.slots.waits_for_devices(rested))
    }

    /// The seat of an attempt that rested; `None`: it is not free yet.
    fn seat_again(&mut self, task: TaskId) -> Option<Seat> {
        let running = self.running.get(&task)?;
        if let Some(rested) = running.rested() {
            return self.slots.claim_again(rested);
        }
        let spec = running.spec();
        if spec.request.is_empty() {
            return self.slots.take_again(Need::Cpus(spec.cpus.max(1)));
        }
        let fit = self.slots.resolve(&Request::decode(&spec.request).ok()?)?;
        self.slots.take_again(Need::Fit(&fit))
    }
}

impl Scheduler {
    /// An attempt that runs here waits for other tasks, or wants to go on. One that does not run
    /// here is ignored: its shell hears of its end. A repetition changes nothing.
    pub fn on_rests(&mut self, task: TaskId, attempt: Attempt, rests: bool, out: &mut Out) {
        let running = self.holder.running.get_mut(&task);
        let running = running.filter(|it| it.attempt == attempt && !it.is_gang());
        let Some(running) = running else { return };
        if !rests {
            if running.rests() {
                let waiting = self.holder.returning.get_or_insert_default();
                if !waiting.contains(&(task, attempt)) {
                    waiting.push_back((task, attempt));
                }
            } else {
                out.goes_on.get_or_insert_default().push((task, attempt)); // It has its seat.
            }
            return;
        }
        let seat = running.rest();
        let rested = seat.and_then(|seat| self.holder.slots.rest(seat));
        if let Some(rested) = rested {
            running.keep_rested(rested);
        }
        if let Some(waiting) = &mut self.holder.returning {
            waiting.retain(|other| *other != (task, attempt));
        }
        // Beside a task that runs alone nothing starts, which would be true for its own calls.
        self.holder.start_requests.ended(task);
    }

    /// Gives seats to attempts that want to go on, in their order.
    pub(crate) fn seat_returning(&mut self, out: &mut Out) {
        let Some(waiting) = self.holder.returning.take() else { return };
        let (mut left, mut blocked): (VecDeque<AttemptKey>, bool) = (VecDeque::new(), false);
        for (task, attempt) in *waiting {
            let running = self.holder.running.get(&task);
            if running.is_none_or(|it| it.attempt != attempt || !it.rests()) {
                continue; // It has ended.
            }
            match if blocked { None } else { self.holder.seat_again(task) } {
                Some(seat) => {
                    let running = self.holder.running.get_mut(&task).expect("looked at above");
                    running.go_on(seat);
                    out.goes_on.get_or_insert_default().push((task, attempt));
                }
                None => {
                    blocked |= !self.holder.waits_for_devices(task);
                    left.push_back((task, attempt));
                }
            }
        }
        if !left.is_empty() {
            self.holder.returning = Some(Box::new(left));
        }
    }
}

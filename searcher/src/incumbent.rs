//! The best solution that all slots of a search share.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use search::{Goal, Solution, Vars};

/// A solution, and its value in a cell that a slot reads in a nanosecond.
#[derive(Debug)]
pub struct Incumbent {
    goal: Goal,
    value: AtomicI64,
    solution: Mutex<Option<Solution>>,
}

impl Incumbent {
    pub fn new(goal: Goal, start: Option<Solution>) -> Self {
        let value = start.as_ref().map_or_else(|| goal.worst(), |solution| solution.value);
        Self { goal, value: AtomicI64::new(value), solution: Mutex::new(start) }
    }

    pub fn goal(&self) -> Goal {
        self.goal
    }

    pub fn solution(&self) -> Option<Solution> {
        self.solution.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Vars for Incumbent {
    #[inline]
    fn best(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    fn improve(&self, solution: Solution) {
        let mut current = self.solution.lock().unwrap_or_else(PoisonError::into_inner);
        // Any solution is better than none, whatever its value.
        let is_better = current
            .as_ref()
            .is_none_or(|current| self.goal.is_better(solution.value, current.value));
        if is_better {
            self.value.store(solution.value, Ordering::Relaxed);
            *current = Some(solution);
        }
    }
}

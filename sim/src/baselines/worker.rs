/*!
One worker: its objects, its next fetch, and its next task.

The rules are those of the workers of Estee (Beránek, Böhm, et al., 2022). A worker fetches a
limited number of objects at a time, in all and from one source. Inputs of ready tasks are fetched
first, then by priority. A task with all inputs waits for cores. While it waits, a task may start
before it only if its priority reaches the *block* of the waiting task.
*/

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The fetch priority that tasks with ended parents have over all others. It exceeds any b-level in
/// ns (10^5 s, as in Estee).
const READY_FIRST: f64 = 1e14;

/// The limits on a worker's simultaneous fetches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Downloads {
    pub at_once: u32,
    pub per_source: u32,
}

impl Downloads {
    /// No limits.
    pub const UNLIMITED: Self = Self { at_once: u32::MAX, per_source: u32::MAX };
    /// Estee's default.
    pub const FEW: Self = Self { at_once: 4, per_source: 2 };
}

/// First by falling priority, then by age.
type Turn = (u64, u64);

#[derive(Clone, Copy, Debug)]
struct Fetch {
    turn: Turn,
    /// The number of tasks here that wait for it.
    readers: u32,
    /// The task that requested it first.
    first_for: u32,
    under_way: bool,
}

#[derive(Clone, Debug)]
pub(super) struct WorkerState {
    pub free_cores: u32,
    pub has: Vec<bool>,
    fetches: BTreeMap<u32, Fetch>,
    waiting: BTreeMap<Turn, u32>,
    /// The sources of the current fetches.
    sources: Vec<u32>,
    /// Tasks with all inputs here: the task, and its block.
    prepared: BTreeMap<Turn, (u32, f64)>,
    /// Tasks planned for certain cores, and cores that run one of them.
    pub lanes: Vec<VecDeque<u32>>,
    pub busy_lanes: BTreeSet<u32>,
    age: u64,
}

/// A number that falls as the priority rises.
fn falling(priority: f64) -> u64 {
    let bits = (priority + 0.0).to_bits();
    let rising = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    !rising
}

impl WorkerState {
    pub(super) fn new(cores: u32, objects: usize) -> Self {
        Self {
            free_cores: cores,
            has: vec![false; objects],
            fetches: BTreeMap::new(),
            waiting: BTreeMap::new(),
            sources: Vec::new(),
            prepared: BTreeMap::new(),
            lanes: vec![VecDeque::new(); cores as usize],
            busy_lanes: BTreeSet::new(),
            age: 0,
        }
    }

    fn turn(&mut self, priority: f64) -> Turn {
        self.age += 1;
        (falling(priority), self.age)
    }

    /// A task here needs an object that exists elsewhere.
    pub(super) fn want(&mut self, object: u32, task: u32, priority: f64, ready: bool) {
        let boost = if ready { READY_FIRST } else { 0.0 };
        let turn = self.turn(priority + boost);
        if let Some(fetch) = self.fetches.get_mut(&object) {
            fetch.readers += 1;
            if !fetch.under_way && turn.0 < fetch.turn.0 {
                self.waiting.remove(&fetch.turn);
                fetch.turn.0 = turn.0;
                self.waiting.insert(fetch.turn, object);
            }
            return;
        }
        self.fetches.insert(object, Fetch { turn, readers: 1, first_for: task, under_way: false });
        self.waiting.insert(turn, object);
    }

    /// A task that needed the object moves to another worker.
    pub(super) fn unwant(&mut self, object: u32) {
        let Some(fetch) = self.fetches.get_mut(&object) else { return };
        fetch.readers = fetch.readers.saturating_sub(1);
        if fetch.readers == 0 && !fetch.under_way {
            self.waiting.remove(&fetch.turn);
            self.fetches.remove(&object);
        }
    }

    /// The next object to fetch, within the limits. `source` is the place of an object.
    pub(super) fn next_fetch(
        &mut self,
        limits: Downloads,
        source: impl Fn(u32) -> u32,
    ) -> Option<(u32, u32)> {
        if self.sources.len() >= limits.at_once as usize {
            return None;
        }
        let fits = |from: u32| {
            let same = self.sources.iter().filter(|&&other| other == from).count();
            same < limits.per_source as usize
        };
        let (&turn, &object) = self.waiting.iter().find(|(_, object)| fits(source(**object)))?;
        self.waiting.remove(&turn);
        let from = source(object);
        self.sources.push(from);
        self.fetches.get_mut(&object).expect("it waits for its turn").under_way = true;
        Some((object, from))
    }

    /// An object has arrived. Returns the task that requested it first.
    pub(super) fn fetched(&mut self, object: u32, from: u32) -> u32 {
        let at = self.sources.iter().position(|&source| source == from);
        self.sources.swap_remove(at.expect("it was under way"));
        self.fetches.remove(&object).expect("it was under way").first_for
    }

    pub(super) fn prepare(&mut self, task: u32, priority: f64, block: f64) {
        let turn = self.turn(priority);
        self.prepared.insert(turn, (task, block));
    }

    pub(super) fn unprepare(&mut self, task: u32) {
        self.prepared.retain(|_, (other, _)| *other != task);
    }

    /// The next task that may start on any cores.
    pub(super) fn next_start(&mut self, cores: impl Fn(u32) -> u32) -> Option<u32> {
        let mut block = u64::MAX;
        for (&turn, &(task, task_block)) in &self.prepared {
            if self.free_cores == 0 || turn.0 > block {
                return None;
            }
            if cores(task) <= self.free_cores {
                self.prepared.remove(&turn);
                return Some(task);
            }
            block = block.min(falling(task_block));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_priorities_come_first_and_equal_ones_by_age() {
        let mut numbers = [-1e300, -2.5, -1.0, 0.0, 1e-9, 1.0, 7.0, 1e300];
        numbers.sort_by_key(|&number| falling(number));
        assert_eq!(numbers, [1e300, 7.0, 1.0, 1e-9, 0.0, -1.0, -2.5, -1e300]);
        assert_eq!(falling(-0.0), falling(0.0));
        let mut worker = WorkerState::new(1, 0);
        for (task, priority) in [(1, 5.0), (2, 9.0), (3, 5.0)] {
            worker.prepare(task, priority, 0.0);
        }
        let order: Vec<_> = std::iter::from_fn(|| worker.next_start(|_| 1)).collect();
        assert_eq!(order, [2, 1, 3]);
    }

    #[test]
    fn a_task_without_cores_lets_only_those_pass_that_reach_its_block() {
        let mut worker = WorkerState::new(2, 0);
        worker.free_cores = 1;
        worker.prepare(1, 10.0, 6.0);
        worker.prepare(2, 5.0, 0.0);
        let cores = |task: u32| if task == 1 { 2 } else { 1 };
        assert_eq!(worker.next_start(cores), None);
        worker.prepare(3, 6.0, 0.0);
        assert_eq!(worker.next_start(cores), Some(3));
    }

    #[test]
    fn fetches_keep_to_their_limits_and_go_to_ready_tasks_first() {
        let mut worker = WorkerState::new(1, 9);
        for object in 0..4 {
            worker.want(object, 7, f64::from(object), false);
        }
        worker.want(4, 8, 0.0, true);
        let source = |object: u32| object / 2;
        let few = Downloads { at_once: 3, per_source: 1 };
        let begun: Vec<_> = std::iter::from_fn(|| worker.next_fetch(few, source)).collect();
        assert_eq!(begun, [(4, 2), (3, 1), (1, 0)]);
        assert_eq!(worker.fetched(3, 1), 7);
        assert_eq!(worker.next_fetch(few, source), Some((2, 1)));
        worker.unwant(0);
        assert_eq!(worker.fetched(1, 0), 7);
        assert_eq!(worker.next_fetch(few, source), None);
    }
}

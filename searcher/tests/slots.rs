//! Searches on several slots end with the same result as on one.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use search::problems::queens::Queens;
use search::problems::uts::{Shape, Uts};
use search::{Decide, Enumerate, Goal, Optimise, Problem, Tally, TreeBag, Vars};
use searcher::{Incumbent, Next, run};

/// The subset of numbers with the largest sum that fits into a capacity.
#[derive(Clone, Debug)]
struct Subset {
    numbers: Vec<i64>,
    capacity: i64,
}

#[derive(Clone, Debug)]
struct Chosen {
    level: usize,
    sum: i64,
    numbers: Vec<i64>,
}

impl Problem for Subset {
    type Node = Chosen;
    type Children = (Chosen, u32);

    const GOAL: Goal = Goal::Maximise;

    fn root(&self) -> Chosen {
        Chosen { level: 0, sum: 0, numbers: Vec::new() }
    }

    fn children(&self, node: Chosen) -> Self::Children {
        let count = if node.level < self.numbers.len() { 2 } else { 0 };
        (node, count)
    }

    fn next(&self, (parent, left): &mut Self::Children) -> Option<Chosen> {
        *left = left.checked_sub(1)?;
        let mut node = parent.clone();
        if *left == 1 {
            node.numbers.push(self.numbers[node.level]);
            node.sum += self.numbers[node.level];
        }
        node.level += 1;
        Some(node)
    }

    fn left(&self, children: &Self::Children) -> u32 {
        children.1
    }

    fn value(&self, node: &Chosen) -> Option<i64> {
        (node.sum <= self.capacity).then_some(node.sum)
    }

    fn bound(&self, node: &Chosen, _best: i64) -> i64 {
        let rest: i64 = self.numbers[node.level..].iter().sum();
        if node.sum > self.capacity { i64::MIN } else { (node.sum + rest).min(self.capacity) }
    }

    fn witness(&self, node: &Chosen) -> Vec<i64> {
        node.numbers.clone()
    }
}

/// A tree that grows, slowly, until a second thread makes a child. Without a split it ends after
/// [`LEVELS`] levels, which take a minute.
struct UntilShared {
    threads: Mutex<HashSet<ThreadId>>,
}

const LEVELS: u32 = 60_000;

/// The level and the number of children that are not made yet.
type Growing = (u32, u32);

impl Problem for UntilShared {
    type Node = u32;
    type Children = Growing;

    fn root(&self) -> u32 {
        0
    }

    fn children(&self, level: u32) -> Growing {
        let is_shared = self.threads.lock().expect("no thread panics").len() > 1;
        (level, if is_shared || level == LEVELS { 0 } else { 2 })
    }

    fn next(&self, (level, left): &mut Growing) -> Option<u32> {
        *left = left.checked_sub(1)?;
        thread::sleep(Duration::from_millis(1));
        self.threads.lock().expect("no thread panics").insert(thread::current().id());
        Some(*level + 1)
    }

    fn left(&self, children: &Growing) -> u32 {
        children.1
    }
}

fn subset() -> Subset {
    Subset { numbers: (1..=16).map(|n| n * n * 37 % 1001 + 10).collect(), capacity: 2000 }
}

/// The largest sum, over all subsets.
fn largest(problem: &Subset) -> i64 {
    let sum = |subset: u32| -> i64 {
        let is_in = |at: &usize| subset & (1 << at) != 0;
        (0..problem.numbers.len()).filter(is_in).map(|at| problem.numbers[at]).sum()
    };
    let sums = (0..1 << problem.numbers.len()).map(sum);
    sums.filter(|sum| *sum <= problem.capacity).max().expect("the empty subset fits")
}

fn enumerate<P: Problem>(problem: P, slots: usize) -> (Tally, u64, u64) {
    let bag = TreeBag::new(Arc::new(problem), Enumerate);
    let vars = Incumbent::new(Goal::Minimise, None);
    let every = Duration::from_secs(10);
    let outcome =
        run(bag, slots, Goal::Minimise, &vars, every, |_| Next::Continue).expect("threads start");
    assert!(outcome.is_complete);
    assert_eq!(outcome.pieces, outcome.last.splits + 1, "each piece runs once");
    (outcome.last.tally, outcome.last.splits, outcome.pieces)
}

#[test]
fn slots_count_each_node_once() {
    let tree = || Uts::new(Shape::Binomial { root: 500, children: 4, q: 0.22 }, 1);
    let (expected, splits, pieces) = enumerate(tree(), 1);
    assert_eq!((splits, pieces), (0, 1));
    for slots in [2, 3, 8] {
        let (tally, ..) = enumerate(tree(), slots);
        assert_eq!(tally, expected, "{slots} slots");
    }
    for slots in [1, 2, 4] {
        assert_eq!(enumerate(Queens::new(8), slots).0.sum, 92);
    }
}

#[test]
fn an_idle_slot_gets_a_piece() {
    let (_, splits, pieces) = enumerate(UntilShared { threads: Mutex::default() }, 2);
    assert!(splits > 0 && pieces > 1, "{splits} splits, {pieces} pieces");
}

#[test]
fn pruning_on_two_slots_finds_the_same_optimum() {
    let best = largest(&subset());
    for (slots, prune) in [(1, true), (2, true), (4, true), (2, false)] {
        let bag = TreeBag::new(Arc::new(subset()), Optimise { prune });
        let vars = Incumbent::new(Goal::Maximise, None);
        let every = Duration::from_secs(10);
        let outcome = run(bag, slots, Goal::Maximise, &vars, every, |_| Next::Continue).unwrap();
        let solution = vars.solution().expect("the empty subset is a solution");
        assert!(outcome.is_complete);
        assert_eq!((solution.value, vars.best()), (best, best), "{slots} slots, prune {prune}");
        assert_eq!(solution.witness.iter().sum::<i64>(), best);
        assert_eq!(outcome.last.bound, None, "nothing is left");
    }
}

#[test]
fn a_decision_ends_all_slots() {
    let best = largest(&subset());
    for (target, is_found) in [(best, true), (best + 1, false), (best - 100, true)] {
        let bag = TreeBag::new(Arc::new(subset()), Decide { target });
        let vars = Incumbent::new(Goal::Maximise, None);
        let every = Duration::from_secs(10);
        let outcome = run(bag, 3, Goal::Maximise, &vars, every, |_| Next::Continue).unwrap();
        assert!(outcome.is_complete);
        assert_eq!(vars.solution().is_some_and(|it| it.value >= target), is_found);
    }
}

#[test]
fn a_stop_ends_a_search_that_would_take_years() {
    let bag = TreeBag::new(Arc::new(Queens::new(20)), Enumerate);
    let vars = Incumbent::new(Goal::Minimise, None);
    let mut snapshots = 0;
    let outcome = run(bag, 2, Goal::Minimise, &vars, Duration::from_millis(5), |snapshot| {
        snapshots += 1;
        if snapshot.tally.nodes > 0 { Next::Stop } else { Next::Continue }
    });
    let outcome = outcome.unwrap();
    assert!(!outcome.is_complete);
    assert!(snapshots > 0 && outcome.last.tally.nodes > 0);
}

/// A problem with code that fails.
struct Broken;

impl Problem for Broken {
    type Node = ();
    type Children = u32;

    fn root(&self) {}

    fn children(&self, (): ()) -> u32 {
        2
    }

    fn next(&self, left: &mut u32) -> Option<()> {
        *left = left.checked_sub(1)?;
        Some(())
    }

    fn left(&self, left: &u32) -> u32 {
        *left
    }

    fn value(&self, (): &()) -> Option<i64> {
        panic!("the code of the problem fails")
    }
}

#[test]
#[should_panic(expected = "the code of the problem fails")]
fn a_panic_of_the_problem_reaches_the_caller() {
    enumerate(Broken, 3);
}

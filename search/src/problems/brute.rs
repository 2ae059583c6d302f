//! All permutations, and a whole search in one call, for tests that compare both.

use std::cell::RefCell;
use std::sync::Arc;

use crate::{Bag, Optimise, Problem, Solution, Status, Tally, TreeBag, Vars};

/// All permutations of the numbers below `size`.
pub(crate) fn permutations(size: usize) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    extend(size, &mut Vec::new(), &mut all);
    all
}

fn extend(size: usize, row: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
    if row.len() == size {
        all.push(row.clone());
        return;
    }
    for next in 0..size {
        if !row.contains(&next) {
            row.push(next);
            extend(size, row, all);
            row.pop();
        }
    }
}

/// The incumbent of a search in one bag.
struct Incumbent {
    solution: RefCell<Solution>,
}

impl Vars for Incumbent {
    fn best(&self) -> i64 {
        self.solution.borrow().value
    }

    fn improve(&self, solution: Solution) {
        *self.solution.borrow_mut() = solution;
    }
}

/// The best solution that the search proves, in bags that are split, saved and loaded again.
pub(crate) fn search<P: Problem>(problem: P) -> Solution {
    let start = problem.start().expect("each problem of a file has a start");
    let incumbent = Incumbent { solution: RefCell::new(start) };
    let source = (Arc::new(problem), Optimise { prune: true });
    let mut bags = vec![TreeBag::new(Arc::clone(&source.0), source.1)];
    let (mut tally, mut bytes) = (Tally::default(), Vec::new());
    let mut steps = 0_u64;
    while let Some(mut bag) = bags.pop() {
        if bag.step(7, &incumbent, &mut tally) != Status::Ran {
            continue;
        }
        let piece = bag.split();
        steps += 1;
        // Another process that loads the bag makes the same nodes again.
        if steps.is_power_of_two() {
            bytes.clear();
            bag.save(&mut bytes);
            bag = TreeBag::load(&source, &bytes).expect("a saved bag can be loaded");
        }
        bags.push(bag);
        bags.extend(piece);
    }
    incumbent.solution.into_inner()
}

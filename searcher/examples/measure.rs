//! Measures bags against plain loops over the same tree, in pairs that alternate.
//!
//! ```text
//! cargo run --release -p starling-searcher --example measure -- overhead T1 10
//! cargo run --release -p starling-searcher --example measure -- efficiency T3L 5
//! ```

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use search::problems::uts::Uts;
use search::{Bag, Enumerate, Goal, Problem, Status, Tally, TreeBag};
use searcher::{Incumbent, Next, Outcome, Snapshot, run};

const USAGE: &str = "usage: measure overhead|efficiency TREE ROUNDS";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, tree, rounds] = words.as_slice() else { panic!("{USAGE}") };
    let tree = Uts::named(tree).expect("a tree such as T1");
    let rounds = rounds.parse().expect("a number of rounds");
    match kind.as_str() {
        "overhead" => overhead(&tree, rounds),
        "efficiency" => efficiency(&tree, rounds),
        _ => panic!("{USAGE}"),
    }
}

/// The plain loop: a stack of nodes with the number of the next child.
fn plain(tree: &Uts) -> Tally {
    let mut tally = Tally { nodes: 1, ..Tally::default() };
    let root = tree.root();
    let mut stack = vec![(root, 0, tree.count(&root))];
    while let Some((node, next, end)) = stack.last_mut() {
        if next == end {
            stack.pop();
            continue;
        }
        let child = Uts::child(node, *next);
        *next += 1;
        let count = tree.count(&child);
        tally.nodes += 1;
        tally.depth = tally.depth.max(stack.len() as u32);
        if count == 0 {
            tally.leaves += 1;
        } else {
            stack.push((child, 0, count));
        }
    }
    tally
}

/// Plain recursion, as a user would write it first.
fn recursive(tree: &Uts, node: &<Uts as Problem>::Node, level: u32, tally: &mut Tally) {
    tally.nodes += 1;
    tally.depth = tally.depth.max(level);
    let count = tree.count(node);
    tally.leaves += u64::from(count == 0);
    for index in 0..count {
        recursive(tree, &Uts::child(node, index), level + 1, tally);
    }
}

fn bag(tree: &Uts) -> Tally {
    let vars = Incumbent::new(Goal::Minimise, None);
    let mut bag = TreeBag::new(Arc::new(tree.clone()), Enumerate);
    let mut tally = Tally::default();
    while bag.step(300, &vars, &mut tally) == Status::Ran {}
    tally
}

fn slots(tree: &Uts, slots: usize) -> Outcome {
    let vars = Incumbent::new(Goal::Minimise, None);
    let bag = TreeBag::new(Arc::new(tree.clone()), Enumerate);
    run(bag, slots, Goal::Minimise, &vars, Duration::from_secs(1), |_| Next::Continue)
        .expect("the threads start")
}

/// Calls `work`; returns its result, and the CPU time of all threads in seconds, which does not
/// have that of other programs.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let before = cpu();
    let done = work();
    (done, cpu() - before)
}

fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn overhead(tree: &Uts, rounds: u32) {
    let (mut by_loop, mut by_recursion, mut by_slot) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (expected, plain) = timed(|| plain(tree));
        let (bagged, bag) = timed(|| bag(tree));
        let (in_slot, slot) = timed(|| slots(tree, 1));
        let (_, recursion) = timed(|| recursive(tree, &tree.root(), 0, &mut Tally::default()));
        assert_eq!((bagged, in_slot.last.tally), (expected, expected));
        let [a, b, c, d] = [plain, recursion, bag, slot].map(|it| it * 1e9 / expected.nodes as f64);
        println!("ns/node: loop {a:.2}, recursion {b:.2}, bag {c:.2}, slot {d:.2}");
        by_loop.push(bag / plain);
        by_recursion.push(bag / recursion);
        by_slot.push(slot / plain);
    }
    spread("bag / loop", &mut by_loop);
    spread("bag / recursion", &mut by_recursion);
    spread("slot / loop", &mut by_slot);
}

/// Two plain loops side by side do the work of two trees, two slots that of one.
fn efficiency(tree: &Uts, rounds: u32) {
    let (mut wall, mut cpu, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = Instant::now();
        let ((), loops_cpu) = timed(|| {
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| plain(tree));
                }
            });
        });
        let loops = began.elapsed().as_secs_f64() / 2.0;
        let (outcome, slots_cpu) = timed(|| slots(tree, 2));
        let bags = outcome.last.wall.as_secs_f64();
        let Snapshot { splits, efficiency, .. } = outcome.last;
        println!(
            "one tree: loops {loops:.3} s (CPU {:.3}), slots {bags:.3} s (CPU {slots_cpu:.3}), \
             {splits} splits, busy {efficiency:.4}",
            loops_cpu / 2.0,
        );
        wall.push(loops / bags);
        cpu.push(loops_cpu / 2.0 / slots_cpu);
        own.push(efficiency);
    }
    spread("efficiency against two loops, by wall time", &mut wall);
    spread("efficiency against two loops, by CPU time", &mut cpu);
    spread("part of the time in which the slots searched", &mut own);
}

fn spread(name: &str, values: &mut [f64]) {
    values.sort_by(f64::total_cmp);
    let (first, last) = (values[0], values[values.len() - 1]);
    println!("{name}: median {:.4}, {first:.4} to {last:.4}", values[values.len() / 2]);
}

//! Measures bags against plain loops over the same tree, in pairs that alternate.
//!
//! ```text
//! cargo run --release -p searcher --example measure -- overhead T1 10
//! cargo run --release -p searcher --example measure -- efficiency T3L 5
//! cargo run --release -p searcher --example measure -- delay T3 10
//! ```

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use search::problems::uts::Uts;
use search::{Bag, Enumerate, Goal, Problem, Status, Tally, TreeBag};
use searcher::{Incumbent, Next, Outcome, run};

const USAGE: &str = "usage: measure overhead|efficiency|delay TREE ROUNDS";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, tree, rounds] = words.as_slice() else { panic!("{USAGE}") };
    let tree = Uts::named(tree).expect("a tree such as T1");
    let rounds = rounds.parse().expect("a number of rounds");
    match kind.as_str() {
        "overhead" => overhead(&tree, rounds),
        "efficiency" => efficiency(&tree, rounds),
        "delay" => delay(&tree, rounds),
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
}

/// Calls `work`; returns its result and the CPU time of this thread.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let before = cpu();
    let done = work();
    (done, cpu() - before)
}

/// Seconds on a CPU of the calling thread, without those of other programs.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.expect("a number") / 1e9
}

fn overhead(tree: &Uts, rounds: u32) {
    let mut ratios = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let (expected, plain) = timed(|| plain(tree));
        let (bagged, bag) = timed(|| bag(tree));
        let (in_slot, slot) = timed(|| {
            let tree = tree.clone();
            std::thread::spawn(move || timed(|| slots(&tree, 1))).join().expect("it runs")
        });
        // The slot is a thread of its own: its time is the wall time of an idle machine.
        let slot_wall = in_slot.0.last.wall.as_secs_f64();
        let (_, recursion) = timed(|| recursive(tree, &tree.root(), 0, &mut Tally::default()));
        assert_eq!((bagged, in_slot.0.last.tally), (expected, expected));
        let nanoseconds = |seconds: f64| seconds * 1e9 / expected.nodes as f64;
        println!(
            "ns/node: loop {:.2}, recursion {:.2}, bag {:.2}, slot (wall) {:.2}; {slot:.4}",
            nanoseconds(plain),
            nanoseconds(recursion),
            nanoseconds(bag),
            nanoseconds(slot_wall),
        );
        ratios[0].push(bag / plain);
        ratios[1].push(bag / recursion);
        ratios[2].push(slot_wall / plain);
    }
    spread("bag / loop", &mut ratios[0]);
    spread("bag / recursion", &mut ratios[1]);
    spread("slot (wall) / loop", &mut ratios[2]);
}

/// Two plain loops side by side do the work of two trees, two slots that of one.
fn efficiency(tree: &Uts, rounds: u32) {
    let (mut wall, mut own) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| plain(tree));
            }
        });
        let loops = began.elapsed().as_secs_f64() / 2.0;
        let outcome = slots(tree, 2);
        let bags = outcome.last.wall.as_secs_f64();
        println!(
            "wall for one tree: loops {loops:.3} s, slots {bags:.3} s, {} splits, own {:.4}",
            outcome.last.splits, outcome.last.efficiency
        );
        wall.push(loops / bags);
        own.push(outcome.last.efficiency);
    }
    spread("efficiency against two loops", &mut wall);
    spread("efficiency as reported", &mut own);
}

fn delay(tree: &Uts, rounds: u32) {
    let mut delays: Vec<f64> = Vec::new();
    for _ in 0..rounds {
        delays.extend(slots(tree, 2).delays.iter().map(Duration::as_secs_f64));
    }
    delays.sort_by(f64::total_cmp);
    let at = |part: f64| delays[((delays.len() - 1) as f64 * part) as usize] * 1e6;
    println!(
        "split until the piece runs, {} splits: p50 {:.1} us, p90 {:.1} us, p99 {:.1} us",
        delays.len(),
        at(0.5),
        at(0.9),
        at(0.99)
    );
}

fn spread(name: &str, values: &mut [f64]) {
    values.sort_by(f64::total_cmp);
    let (first, last) = (values[0], values[values.len() - 1]);
    println!("{name}: median {:.4}, {first:.4} to {last:.4}", values[values.len() / 2]);
}

//! The counts of published trees.

#![expect(clippy::print_stdout, reason = "a skipped test prints the reason")]

use std::path::PathBuf;
use std::sync::Arc;

use search::problems::queens::Queens;
use search::problems::uts::{Shape, Uts};
use search::{Bag, Enumerate, Problem, Solution, Status, Tally, TreeBag, Vars};

struct NoVars;

impl Vars for NoVars {
    fn best(&self) -> i64 {
        0
    }

    fn improve(&self, _solution: Solution) {}
}

fn counts<P: Problem>(problem: P) -> Tally {
    let mut bag = TreeBag::new(Arc::new(problem), Enumerate);
    let mut tally = Tally::default();
    while bag.step(10_000, &NoVars, &mut tally) == Status::Ran {}
    tally
}

/// The rows of a table of the shared data, without its header.
fn rows(name: &str) -> Vec<Vec<String>> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")).join(name);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: {} is not there", path.display());
        return Vec::new();
    };
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// Counts by plain recursion over the same children.
fn recursive(tree: &Uts, node: &<Uts as Problem>::Node, level: u32, tally: &mut Tally) {
    tally.nodes += 1;
    tally.depth = tally.depth.max(level);
    let count = tree.count(node);
    tally.leaves += u64::from(count == 0);
    for index in 0..count {
        recursive(tree, &Uts::child(node, index), level + 1, tally);
    }
}

#[test]
fn a_bag_counts_like_a_recursion() {
    let shapes = [
        Shape::Fixed { mean: 3.0, depth: 6 },
        Shape::Linear { mean: 4.0, depth: 8 },
        Shape::Binomial { root: 200, children: 4, q: 0.2 },
    ];
    for (shape, seed) in shapes.into_iter().flat_map(|shape| [1, 2, 3].map(|seed| (shape, seed))) {
        let tree = Uts::new(shape, seed);
        let mut expected = Tally::default();
        recursive(&tree, &tree.root(), 0, &mut expected);
        assert_eq!(counts(tree), expected, "{shape:?} {seed}");
    }
}

/// The published count of the smallest tree: it also checks the hash and the geometric numbers.
#[test]
fn the_tiny_tree_has_its_published_counts() {
    let tally = counts(Uts::named("tiny").unwrap());
    assert_eq!((tally.nodes, tally.leaves, tally.depth), (1732, 1050, 6));
}

/// Without optimisation only the small trees are counted. `cargo test --release` counts T1, T3
/// and T5 as well; the large ones are left to `starling search`.
#[test]
fn trees_have_their_published_counts() {
    let largest = if cfg!(debug_assertions) { 10_000 } else { 5_000_000 };
    for row in rows("uts/trees.csv") {
        let [name, published @ ..] = row.as_slice() else { panic!("{row:?}") };
        let [leaves, depth, nodes] = [1, 2, 3]
            .map(|back| published[published.len() - 1 - back].parse::<u64>().expect("a number"));
        if nodes > largest {
            continue;
        }
        let tally = counts(Uts::named(name).unwrap());
        assert_eq!((tally.nodes, tally.leaves, u64::from(tally.depth)), (nodes, leaves, depth));
    }
}

#[test]
fn boards_have_their_known_number_of_solutions() {
    let largest = if cfg!(debug_assertions) { 9 } else { 12 };
    let known = [1, 0, 0, 2, 10, 4, 40, 92].map(|count: i64| count.to_string());
    let mut table = rows("nqueens/counts.csv");
    if table.is_empty() {
        table =
            (1..).zip(known).map(|(size, count): (u32, _)| vec![size.to_string(), count]).collect();
    }
    for row in table {
        let (size, count) = (row[0].parse().unwrap(), row[1].parse::<i64>().unwrap());
        if size <= largest {
            assert_eq!(counts(Queens::new(size)).sum, count, "{size}");
        }
    }
}

/// A deep bag takes a few bytes for each level.
#[test]
fn a_deep_bag_is_small() {
    let tree = Arc::new(Uts::named("T3").unwrap());
    let mut bag = TreeBag::new(Arc::clone(&tree), Enumerate);
    let mut tally = Tally::default();
    let (mut deepest, mut longest) = (0, 0);
    for _ in 0..300 {
        let mut step = Tally::default();
        bag.step(500, &NoVars, &mut step);
        if step.depth > deepest {
            deepest = step.depth;
            let mut bytes = Vec::new();
            bag.save(&mut bytes);
            longest = bytes.len();
            let loaded = TreeBag::load(&(Arc::clone(&tree), Enumerate), &bytes).expect("loads");
            assert_eq!(loaded.weight(), bag.weight());
        }
        tally.add(&step);
    }
    assert!(deepest > 100, "{deepest}");
    assert!(longest < 3 * deepest as usize + 20, "{longest} bytes for {deepest} levels");
}

/// In a deep tree a piece takes children of many levels: few splits share the work.
#[test]
fn a_split_of_a_deep_bag_is_large() {
    let tree = Arc::new(Uts::named("T3").unwrap());
    let mut bag = TreeBag::new(Arc::clone(&tree), Enumerate);
    let mut tally = Tally::default();
    let mut largest = 0;
    for _ in 0..200 {
        bag.step(500, &NoVars, &mut tally);
        let before = bag.weight();
        let Some(piece) = bag.split() else { break };
        assert_eq!(piece.weight() + bag.weight(), before);
        assert!(piece.weight() * 130 >= before, "{} of {before}", piece.weight());
        let mut bytes = Vec::new();
        piece.save(&mut bytes);
        let loaded = TreeBag::load(&(Arc::clone(&tree), Enumerate), &bytes).expect("loads");
        assert_eq!(loaded.weight(), piece.weight());
        largest = largest.max(piece.weight());
        bag = if piece.weight() > bag.weight() { piece } else { bag };
    }
    assert!(largest > 100, "{largest}");
}

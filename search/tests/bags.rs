//! Bags that are split, saved and loaded at any moment still search each node once.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use proptest::prelude::*;
use search::{
    Bag, Decide, Enumerate, Goal, LoadError, Optimise, Problem, Skeleton, Solution, Status, Tally,
    TreeBag, Vars,
};

/// A small tree that its seed decides. Its values and bounds are real: the bound of a node is the
/// least value below it, or less.
#[derive(Clone, Debug)]
struct Random {
    seed: u64,
    depth: u32,
    slack: i64,
    /// The first children form a long path, and the subtrees beside it are small.
    is_narrow: bool,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    hash: u64,
    level: u32,
    cost: i64,
    /// The node is the first child of its parent, and so are all nodes above.
    is_first: bool,
}

#[derive(Clone, Debug)]
struct Children {
    parent: Node,
    next: u32,
    end: u32,
}

fn mix(seed: u64) -> u64 {
    let mut hash = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl Random {
    fn count(&self, node: &Node) -> u32 {
        let is_last = node.level >= self.depth;
        if is_last {
            0
        } else if self.is_narrow {
            if node.is_first { 3 } else { (node.hash % 2) as u32 }
        } else {
            (node.hash % 5) as u32 + u32::from(node.level == 0)
        }
    }

    fn child(parent: &Node, index: u32) -> Node {
        let hash = mix(parent.hash ^ u64::from(index + 1));
        let cost = parent.cost + (hash >> 32) as i64 % 100;
        let is_first = parent.is_first && index == 0;
        Node { hash, level: parent.level + 1, cost, is_first }
    }

    /// The same counts by plain recursion, which shares nothing with the bags.
    fn recursive(&self, node: &Node, tally: &mut Tally, best: &mut i64) {
        tally.nodes += 1;
        tally.depth = tally.depth.max(node.level);
        let count = self.count(node);
        if count == 0 {
            tally.leaves += 1;
            tally.sum += node.cost;
            *best = (*best).min(node.cost);
        }
        for index in 0..count {
            self.recursive(&Self::child(node, index), tally, best);
        }
    }

    fn truth(&self) -> (Tally, i64) {
        let (mut tally, mut best) = (Tally::default(), i64::MAX);
        self.recursive(&self.root(), &mut tally, &mut best);
        (tally, best)
    }
}

impl Problem for Random {
    type Node = Node;
    type Children = Children;

    fn root(&self) -> Node {
        Node { hash: mix(self.seed), level: 0, cost: 0, is_first: true }
    }

    fn children(&self, node: Node) -> Children {
        Children { end: self.count(&node), parent: node, next: 0 }
    }

    fn next(&self, children: &mut Children) -> Option<Node> {
        let index = children.next;
        (index < children.end).then(|| {
            children.next += 1;
            Self::child(&children.parent, index)
        })
    }

    fn left(&self, children: &Children) -> u32 {
        children.end - children.next
    }

    fn value(&self, node: &Node) -> Option<i64> {
        (self.count(node) == 0).then_some(node.cost)
    }

    fn bound(&self, node: &Node, _best: i64) -> i64 {
        node.cost - self.slack
    }

    fn witness(&self, node: &Node) -> Vec<i64> {
        vec![node.cost, i64::from(node.level)]
    }
}

/// The variables of bags that run in turn on one thread.
struct Alone {
    best: Cell<i64>,
    solution: RefCell<Option<Solution>>,
}

impl Alone {
    fn new(goal: Goal) -> Self {
        Self { best: Cell::new(goal.worst()), solution: RefCell::new(None) }
    }
}

impl Vars for Alone {
    fn best(&self) -> i64 {
        self.best.get()
    }

    fn improve(&self, solution: Solution) {
        if solution.value < self.best.get() {
            self.best.set(solution.value);
            *self.solution.borrow_mut() = Some(solution);
        }
    }
}

/// One decision about the bags.
#[derive(Clone, Copy, Debug)]
enum Act {
    Step { bag: usize, budget: u64 },
    Split { bag: usize },
    Reload { bag: usize },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (any::<usize>(), 0..40_u64).prop_map(|(bag, budget)| Act::Step { bag, budget }),
        any::<usize>().prop_map(|bag| Act::Split { bag }),
        any::<usize>().prop_map(|bag| Act::Reload { bag }),
    ];
    prop::collection::vec(act, 0..200)
}

fn problems() -> impl Strategy<Value = Random> {
    let shape = prop_oneof![(1..8_u32, Just(false)), (1..300_u32, Just(true))];
    (any::<u64>(), shape, 0..50_i64).prop_map(|(seed, (depth, is_narrow), slack)| Random {
        seed,
        depth,
        slack,
        is_narrow,
    })
}

/// Runs the bags as the acts demand, then to their end.
fn search<S: Skeleton>(problem: &Random, skeleton: S, acts: &[Act], vars: &Alone) -> Tally {
    let source = (Arc::new(problem.clone()), skeleton);
    let mut bags = vec![TreeBag::new(Arc::clone(&source.0), skeleton)];
    let mut tally = Tally::default();
    for act in acts {
        let count = bags.len();
        match *act {
            Act::Step { bag, budget } => {
                bags[bag % count].step(budget, vars, &mut tally);
            }
            Act::Split { bag } => {
                let before = bags[bag % count].weight();
                let piece = bags[bag % count].split();
                let after = bags[bag % count].weight();
                let given = piece.as_ref().map_or(0, Bag::weight);
                assert_eq!(before, after + given, "a split keeps all children");
                assert!(piece.is_none() || after > 0 && given > 0, "both have work");
                bags.extend(piece);
            }
            Act::Reload { bag } => {
                let mut bytes = Vec::new();
                bags[bag % count].save(&mut bytes);
                let bag = &mut bags[bag % count];
                let loaded = TreeBag::load(&source, &bytes);
                let loaded = loaded.expect("a saved bag can be loaded");
                assert_eq!(loaded.weight(), bag.weight());
                *bag = loaded;
            }
        }
    }
    for mut bag in bags {
        while bag.step(7, vars, &mut tally) == Status::Ran {}
    }
    tally
}

proptest! {
    #[test]
    fn splits_and_reloads_keep_each_node(problem in problems(), acts in acts()) {
        let vars = Alone::new(Goal::Minimise);
        let (truth, _) = problem.truth();
        prop_assert_eq!(search(&problem, Enumerate, &acts, &vars), truth);
    }

    #[test]
    fn without_pruning_each_node_is_seen(problem in problems(), acts in acts()) {
        let vars = Alone::new(Goal::Minimise);
        let (truth, best) = problem.truth();
        let tally = search(&problem, Optimise { prune: false }, &acts, &vars);
        prop_assert_eq!(tally, Tally { sum: 0, ..truth });
        prop_assert_eq!(vars.best(), best);
    }

    #[test]
    fn pruning_finds_the_same_optimum(problem in problems(), acts in acts()) {
        let vars = Alone::new(Goal::Minimise);
        let (truth, best) = problem.truth();
        let tally = search(&problem, Optimise { prune: true }, &acts, &vars);
        prop_assert_eq!(vars.best(), best);
        prop_assert_eq!(vars.solution.borrow().as_ref().map(|it| it.witness[0]), Some(best));
        prop_assert!(tally.nodes <= truth.nodes);
    }

    #[test]
    fn a_target_is_decided(problem in problems(), above in -2..3_i64) {
        let (_, best) = problem.truth();
        let vars = Alone::new(Goal::Minimise);
        let target = best + above;
        let mut bag = TreeBag::new(Arc::new(problem), Decide { target });
        let mut tally = Tally::default();
        let status = loop {
            match bag.step(10, &vars, &mut tally) {
                Status::Ran => {}
                status => break status,
            }
        };
        prop_assert_eq!(status == Status::Decided, above >= 0);
        prop_assert_eq!(vars.best() <= target, above >= 0);
    }

    /// A damaged bag is an error or a bag, never a panic.
    #[test]
    fn damage_is_no_panic(problem in problems(), at in any::<usize>(), byte in any::<u8>()) {
        let source = (Arc::new(problem), Enumerate);
        let mut bag = TreeBag::new(Arc::clone(&source.0), Enumerate);
        bag.step(20, &Alone::new(Goal::Minimise), &mut Tally::default());
        let mut bytes = Vec::new();
        bag.save(&mut bytes);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = TreeBag::load(&source, &bytes);
        let cut = TreeBag::load(&source, &bytes[..at]);
        prop_assert!(cut.is_err());
    }
}

#[test]
fn a_bag_of_another_format_is_refused() {
    let source = (Arc::new(Random { seed: 1, depth: 3, slack: 0, is_narrow: false }), Enumerate);
    let load = |bytes: &[u8]| TreeBag::load(&source, bytes).err();
    assert_eq!(load(&[2, 0, 0, 0]), Some(LoadError::Format(2)));
    assert_eq!(load(&[1, 0, 0, 0, 9]), Some(LoadError::Trailing));
    assert_eq!(load(&[1, 0, 1, 99, 0]), Some(LoadError::NoNode { level: 0 }));
    assert_eq!(load(&[1, 0, 0]), Some(LoadError::Truncated));
    assert_eq!(load(&[1, 0, 0, 0]), None);
}

#[test]
fn the_bound_of_a_bag_is_below_all_that_is_left() {
    let problem = Arc::new(Random { seed: 5, depth: 7, slack: 3, is_narrow: false });
    let (_, best) = problem.truth();
    let vars = Alone::new(Goal::Minimise);
    let mut bag = TreeBag::new(problem, Optimise { prune: true });
    while bag.step(3, &vars, &mut Tally::default()) == Status::Ran {
        let bound = bag.bound().expect("work is left");
        assert!(bound.min(vars.best()) <= best, "{bound} {best}");
    }
    assert_eq!(bag.bound(), None);
}

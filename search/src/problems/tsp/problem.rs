//! Branch and bound on edges: a node is a set of decisions about edges.

use std::sync::Arc;

use crate::problems::tsp::edges::{Edge, Edges, Infeasible};
use crate::problems::tsp::one_tree::{Ascent, OneTree, no_prices, quick, thorough};
use crate::problems::tsp::{Instance, start, witness};
use crate::{Problem, Solution};

/// The rounds of ascent and decisions at a node after which it gets children.
const ROUNDS_MAX: usize = 4;

/// The travelling salesman, with the bound of Held and Karp.
///
/// The length of the start tour decides edges at each node: only shorter tours are searched.
#[derive(Debug)]
pub struct Tsp {
    instance: Instance,
    start: Vec<usize>,
    /// The length of the start tour.
    cutoff: i64,
}

/// Decisions about edges, and the bound that follows from them.
#[derive(Clone, Debug)]
pub struct TspNode {
    edges: Edges,
    prices: Vec<i64>,
    bound: i64,
    /// The tour of the node with the least length, if the 1-tree is one.
    tour: Option<Vec<usize>>,
    branch: Branch,
}

/// The decisions that make the children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Branch {
    /// There are no children.
    Leaf,
    /// The edge is required, then forbidden.
    One((usize, usize)),
    /// Both edges are required, then only the first one, then it is forbidden.
    Two((usize, usize), (usize, usize)),
}

impl Branch {
    fn children(self) -> u32 {
        match self {
            Self::Leaf => 0,
            Self::One(_) => 2,
            Self::Two(..) => 3,
        }
    }
}

/// The children of a node that are not made yet.
#[derive(Clone, Debug)]
pub struct TspChildren {
    node: Arc<TspNode>,
    next: u32,
}

impl Tsp {
    #[must_use]
    pub fn new(instance: Instance) -> Self {
        let start = start::tour(&instance);
        Self::with_start(instance, start)
    }

    pub(crate) fn with_start(instance: Instance, start: Vec<usize>) -> Self {
        let cutoff = instance.length(&start);
        Self { instance, start, cutoff }
    }

    /// The node of some decisions. `prices` are those of its parent, none at the root.
    fn node(&self, mut edges: Edges, prices: Option<&[i64]>) -> Result<TspNode, Infeasible> {
        let cities = self.instance.cities();
        edges.propagate()?;
        let effort = if prices.is_some() { quick(cities) } else { thorough(cities) };
        let mut prices = prices.map_or_else(|| no_prices(&self.instance), <[i64]>::to_vec);
        let mut round = 0;
        loop {
            let ascent = Ascent::new(&self.instance, &edges, self.cutoff);
            let best = ascent.climb(&prices, effort)?;
            let bound = best.length();
            if bound >= self.cutoff {
                return Err(Infeasible);
            }
            if best.tree.is_tour() {
                let tour = Some(best.tree.tour());
                let branch = Branch::Leaf;
                return Ok(TspNode { edges, prices: best.prices, bound, tour, branch });
            }
            let replacement = ascent.fix(&best, &mut edges)?;
            edges.propagate()?;
            round += 1;
            let has = |state| best.tree.edges().any(|(one, other)| edges.get(one, other) == state);
            // Without a free edge there are no children: the next round finds the tour, if any.
            let is_last = round >= ROUNDS_MAX && any(&edges, cities) != Branch::Leaf;
            if is_last || !has(Edge::Forbidden) {
                let branch = choose(&best.tree, &edges, &replacement);
                return Ok(TspNode { edges, prices: best.prices, bound, tour: None, branch });
            }
            prices = best.prices;
        }
    }

    fn child(&self, parent: &TspNode, index: u32) -> Result<TspNode, Infeasible> {
        let mut edges = parent.edges.clone();
        let mut decide = |(one, other), state| edges.decide(one, other, state);
        match (parent.branch, index) {
            (Branch::One(edge), 0) => decide(edge, Edge::Required)?,
            (Branch::One(edge) | Branch::Two(edge, _), 1 | 2) if index == parent.last() => {
                decide(edge, Edge::Forbidden)?;
            }
            (Branch::Two(edge, other), _) => {
                let state = if index == 0 { Edge::Required } else { Edge::Forbidden };
                decide(edge, Edge::Required)?;
                decide(other, state)?;
            }
            _ => return Err(Infeasible),
        }
        self.node(edges, Some(&parent.prices))
    }

    /// A node without solutions below the cutoff.
    fn closed(&self) -> TspNode {
        TspNode {
            edges: Edges::new(0),
            prices: Vec::new(),
            bound: i64::MAX,
            tour: None,
            branch: Branch::Leaf,
        }
    }
}

impl TspNode {
    fn last(&self) -> u32 {
        self.branch.children().saturating_sub(1)
    }
}

/// Chooses the edges for the next decisions: at a city with too many edges of the tree, those that
/// are most expensive to replace.
fn choose(tree: &OneTree, edges: &Edges, replacement: &[i64]) -> Branch {
    let cities = replacement.len();
    let mut beside: Vec<Vec<(i64, usize)>> = vec![Vec::new(); cities];
    for (one, other) in tree.edges().filter(|&(one, other)| edges.get(one, other) == Edge::Free) {
        let price = if one == 0 { 0 } else { replacement[one] };
        beside[one].push((price, other));
        beside[other].push((price, one));
    }
    for ends in &mut beside {
        ends.sort_unstable_by(|a, b| b.cmp(a));
    }
    let city = (0..cities)
        .filter(|&city| tree.degree(city) > 2 && !beside[city].is_empty())
        .max_by_key(|&city| (beside[city][0].0, std::cmp::Reverse(city)));
    let Some(city) = city else { return any(edges, cities) };
    let first = (city, beside[city][0].1);
    match beside[city].get(1) {
        Some(&(_, other)) if edges.ends(city, Edge::Required).next().is_none() => {
            Branch::Two(first, (city, other))
        }
        _ => Branch::One(first),
    }
}

/// Some free edge.
fn any(edges: &Edges, cities: usize) -> Branch {
    let mut ends = (0..cities).flat_map(|one| edges.ends(one, Edge::Free).map(move |to| (one, to)));
    ends.next().map_or(Branch::Leaf, Branch::One)
}

impl Problem for Tsp {
    type Node = TspNode;
    type Children = TspChildren;

    fn root(&self) -> TspNode {
        self.node(Edges::new(self.instance.cities()), None).unwrap_or_else(|_| self.closed())
    }

    fn children(&self, node: TspNode) -> TspChildren {
        TspChildren { node: Arc::new(node), next: 0 }
    }

    fn next(&self, children: &mut TspChildren) -> Option<TspNode> {
        if self.left(children) == 0 {
            return None;
        }
        children.next += 1;
        let child = self.child(&children.node, children.next - 1);
        Some(child.unwrap_or_else(|_| self.closed()))
    }

    fn left(&self, children: &TspChildren) -> u32 {
        children.node.branch.children().saturating_sub(children.next)
    }

    fn skip(&self, children: &mut TspChildren, count: u32) {
        children.next += count.min(self.left(children));
    }

    fn value(&self, node: &TspNode) -> Option<i64> {
        node.tour.as_ref().map(|tour| self.instance.length(tour))
    }

    fn bound(&self, node: &TspNode, _best: i64) -> i64 {
        node.bound
    }

    fn witness(&self, node: &TspNode) -> Vec<i64> {
        node.tour.as_ref().map_or_else(Vec::new, |tour| witness(tour))
    }

    fn start(&self) -> Option<Solution> {
        Some(Solution { value: self.cutoff, witness: witness(&self.start) })
    }
}

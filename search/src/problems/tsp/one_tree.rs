//! The bound of Held and Karp: the shortest 1-tree under prices of the cities, by subgradient
//! ascent, and the edges that it decides.
//!
//! A 1-tree is a spanning tree of all cities but city 0, and two edges at city 0. Each tour is a
//! 1-tree. A price is paid for each edge at its city, and each tour pays it twice: prices change
//! the shortest 1-tree, but not the order of tours. All numbers are whole, so each bound is exact.

use crate::problems::tsp::Instance;
use crate::problems::tsp::edges::{Edge, Edges, Infeasible};

/// Prices and costs are in units of 1 / SCALE.
const SCALE: i64 = 1_000;
/// Separates required, free and forbidden edges; the cost of an edge with its prices is below.
const FAR: i64 = 1 << 50;
/// The greatest price.
const PRICE_MAX: i64 = 1 << 43;

/// An effort of the ascent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) steps: usize,
    /// The first step length, in thousandths of the step that closes the gap.
    pub(crate) length: i64,
    /// Steps without a better bound before the length is halved.
    pub(crate) patience: usize,
}

/// A 1-tree. Vertex 0 has the edges to `ends`; all others form a tree with the root 1.
#[derive(Clone, Debug)]
pub(crate) struct OneTree {
    /// The vertices but 0, in the order in which they joined the tree.
    order: Vec<usize>,
    /// By vertex: its neighbour on the way to vertex 1.
    parent: Vec<usize>,
    /// By vertex: the cost of the edge to its parent, with prices.
    key: Vec<i64>,
    ends: [usize; 2],
    degree: Vec<i64>,
}

/// The best 1-tree of an ascent.
#[derive(Clone, Debug)]
pub(crate) struct Bounded {
    /// No tour that satisfies the decisions is shorter. In units of 1 / SCALE.
    scaled: i64,
    pub(crate) tree: OneTree,
    pub(crate) prices: Vec<i64>,
}

impl Bounded {
    /// The bound as a length, rounded up.
    pub(crate) fn length(&self) -> i64 {
        -((-self.scaled).div_euclid(SCALE))
    }
}

impl OneTree {
    /// All edges.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let inner = self.order.iter().skip(1).map(|&vertex| (vertex, self.parent[vertex]));
        inner.chain(self.ends.iter().map(|&end| (0, end)))
    }

    pub(crate) fn degree(&self, vertex: usize) -> i64 {
        self.degree[vertex]
    }

    pub(crate) fn is_tour(&self) -> bool {
        self.degree.iter().all(|&degree| degree == 2)
    }

    /// The cities of a tree that is a tour.
    pub(crate) fn tour(&self) -> Vec<usize> {
        let mut beside = vec![Vec::with_capacity(2); self.degree.len()];
        for (one, other) in self.edges() {
            beside[one].push(other);
            beside[other].push(one);
        }
        let (mut tour, mut before, mut here) = (vec![0], 0, self.ends[0]);
        while here != 0 {
            tour.push(here);
            let next = beside[here].iter().copied().find(|&next| next != before).unwrap_or(0);
            (before, here) = (here, next);
        }
        tour
    }
}

/// The ascent at one node of the search.
pub(crate) struct Ascent<'a> {
    pub(crate) instance: &'a Instance,
    /// Only shorter tours are of interest.
    pub(crate) cutoff: i64,
    costs: Vec<i64>,
}

impl<'a> Ascent<'a> {
    pub(crate) fn new(instance: &'a Instance, edges: &Edges, cutoff: i64) -> Self {
        Self { instance, cutoff, costs: edges.costs(instance, SCALE, FAR) }
    }

    /// Improves the prices, and returns the best bound that was found. It stops as soon as no
    /// tour below the cutoff is left, or the tree is a tour.
    pub(crate) fn climb(&self, prices: &[i64], effort: Effort) -> Result<Bounded, Infeasible> {
        let mut prices = prices.to_vec();
        let mut drift = vec![0; prices.len()];
        let mut best: Option<Bounded> = None;
        let (mut length, mut without) = (effort.length, 0);
        for _ in 0..effort.steps.max(1) {
            let tree = self.tree(&prices);
            let scaled = self.bound(&tree, &prices)?;
            if best.as_ref().is_none_or(|known| scaled > known.scaled) {
                best = Some(Bounded { scaled, tree: tree.clone(), prices: prices.clone() });
                without = 0;
            } else {
                without += 1;
            }
            let gap = self.cutoff.saturating_mul(SCALE).saturating_sub(scaled);
            if tree.is_tour() || gap < SCALE {
                break;
            }
            if without >= effort.patience {
                (length, without) = (length / 2, 0);
            }
            let norm: i64 = tree.degree.iter().map(|&degree| (degree - 2) * (degree - 2)).sum();
            let step = step_length(gap, length, norm);
            if step == 0 {
                break;
            }
            for ((price, drift), degree) in prices.iter_mut().zip(&mut drift).zip(&tree.degree) {
                let now = (degree - 2) * step;
                *price = (*price + (7 * now + 3 * *drift) / 10).clamp(-PRICE_MAX, PRICE_MAX);
                *drift = now;
            }
        }
        best.ok_or(Infeasible)
    }

    /// The cost of an edge with the prices of its cities.
    fn cost(&self, one: usize, other: usize, prices: &[i64]) -> i64 {
        self.costs[one * prices.len() + other] + prices[one] + prices[other]
    }

    /// The shortest 1-tree, by Prim's algorithm.
    fn tree(&self, prices: &[i64]) -> OneTree {
        let cities = prices.len();
        let mut left: Vec<usize> = (2..cities).collect();
        let mut key = vec![i64::MAX; cities];
        let mut parent = vec![1; cities];
        let mut degree = vec![0; cities];
        let mut order = Vec::with_capacity(cities - 1);
        let mut joined = 1;
        order.push(1);
        while !left.is_empty() {
            let row = &self.costs[joined * cities..][..cities];
            let (mut least, mut place) = (i64::MAX, 0);
            for (at, &vertex) in left.iter().enumerate() {
                let cost = row[vertex] + prices[joined] + prices[vertex];
                if cost < key[vertex] {
                    (key[vertex], parent[vertex]) = (cost, joined);
                }
                if key[vertex] < least {
                    (least, place) = (key[vertex], at);
                }
            }
            joined = left.swap_remove(place);
            degree[joined] += 1;
            degree[parent[joined]] += 1;
            order.push(joined);
        }
        let ends = self.two_nearest(prices);
        degree[0] = 2;
        for end in ends {
            degree[end] += 1;
        }
        OneTree { order, parent, key, ends, degree }
    }

    /// The ends of the two cheapest edges at vertex 0, the cheapest first.
    fn two_nearest(&self, prices: &[i64]) -> [usize; 2] {
        let (mut first, mut second) = ((i64::MAX, 0), (i64::MAX, 0));
        for vertex in 1..prices.len() {
            let cost = self.cost(0, vertex, prices);
            if cost < first.0 {
                (first, second) = ((cost, vertex), first);
            } else if cost < second.0 {
                second = (cost, vertex);
            }
        }
        [first.1, second.1]
    }

    fn bound(&self, tree: &OneTree, prices: &[i64]) -> Result<i64, Infeasible> {
        let mut sum = 0;
        for (one, other) in tree.edges() {
            if self.costs[one * prices.len() + other] >= FAR {
                return Err(Infeasible);
            }
            sum += self.instance.distance(one, other) * SCALE;
        }
        let paid = tree.degree.iter().zip(prices).map(|(degree, price)| (degree - 2) * price);
        Ok(sum + paid.sum::<i64>())
    }

    /// Decides the free edges that each tour below the cutoff must have or cannot have.
    ///
    /// An edge beside the tree replaces the longest edge of the cycle that it closes; if that is
    /// too expensive, the edge is forbidden. If nothing can replace an edge of the tree, it is
    /// required. Returns for each vertex the price of replacing the edge to its parent.
    pub(crate) fn fix(&self, best: &Bounded, edges: &mut Edges) -> Result<Vec<i64>, Infeasible> {
        let Bounded { scaled, tree, prices } = best;
        let slack = (self.cutoff - 1).saturating_mul(SCALE).saturating_sub(*scaled);
        let mut replacement = vec![i64::MAX; prices.len()];
        let longest = longest_on_paths(tree);
        for (at, &one) in tree.order.iter().enumerate() {
            for &other in &tree.order[..at] {
                if edges.get(one, other) != Edge::Free || tree.parent[one] == other {
                    continue;
                }
                let cost = self.cost(one, other, prices);
                if cost - longest[one * prices.len() + other] > slack {
                    edges.decide(one, other, Edge::Forbidden)?;
                } else {
                    tree.offer(one, other, cost, &mut replacement);
                }
            }
        }
        self.fix_at_zero(best, slack, edges)?;
        for &vertex in tree.order.iter().skip(1) {
            replacement[vertex] = replacement[vertex].saturating_sub(tree.key[vertex]);
            let is_free = edges.get(vertex, tree.parent[vertex]) == Edge::Free;
            if is_free && replacement[vertex] > slack {
                edges.decide(vertex, tree.parent[vertex], Edge::Required)?;
            }
        }
        Ok(replacement)
    }

    /// The same at vertex 0: an edge there is replaced by another one there.
    fn fix_at_zero(&self, best: &Bounded, slack: i64, edges: &mut Edges) -> Result<(), Infeasible> {
        let [near, far] = best.tree.ends;
        let longest = self.cost(0, far, &best.prices);
        let mut third = i64::MAX;
        let free: Vec<usize> = edges.ends(0, Edge::Free).collect();
        for other in free.into_iter().filter(|&other| other != near && other != far) {
            let cost = self.cost(0, other, &best.prices);
            if cost - longest > slack {
                edges.decide(0, other, Edge::Forbidden)?;
            } else {
                third = third.min(cost);
            }
        }
        for end in [near, far] {
            let price = third.saturating_sub(self.cost(0, end, &best.prices));
            if edges.get(0, end) == Edge::Free && price > slack {
                edges.decide(0, end, Edge::Required)?;
            }
        }
        Ok(())
    }
}

/// A part of the step with which the gap would be closed if the bound were linear.
fn step_length(gap: i64, length: i64, norm: i64) -> i64 {
    let step = i128::from(gap) * i128::from(length) / (1_000 * i128::from(norm.max(1)));
    i64::try_from(step).unwrap_or(PRICE_MAX).min(PRICE_MAX >> 10)
}

/// By vertex and vertex but 0: the longest edge on their path in the tree.
fn longest_on_paths(tree: &OneTree) -> Vec<i64> {
    let cities = tree.degree.len();
    let mut longest = vec![i64::MIN; cities * cities];
    for (at, &vertex) in tree.order.iter().enumerate().skip(1) {
        let parent = tree.parent[vertex];
        for &other in &tree.order[..at] {
            let most = longest[parent * cities + other].max(tree.key[vertex]);
            longest[vertex * cities + other] = most;
            longest[other * cities + vertex] = most;
        }
    }
    longest
}

impl OneTree {
    /// Offers an edge of this cost as the replacement of each edge on the path of its ends.
    fn offer(&self, one: usize, other: usize, cost: i64, replacement: &mut [i64]) {
        let (mut marks, mut vertex) = (vec![false; self.degree.len()], one);
        while vertex != 1 {
            marks[vertex] = true;
            vertex = self.parent[vertex];
        }
        let mut vertex = other;
        while vertex != 1 && !marks[vertex] {
            replacement[vertex] = replacement[vertex].min(cost);
            vertex = self.parent[vertex];
        }
        let meeting = vertex;
        let mut vertex = one;
        while vertex != meeting {
            replacement[vertex] = replacement[vertex].min(cost);
            vertex = self.parent[vertex];
        }
    }
}

/// Prices of nothing.
pub(crate) fn no_prices(instance: &Instance) -> Vec<i64> {
    vec![0; instance.cities()]
}

/// The effort at the root of a search.
pub(crate) fn thorough(cities: usize) -> Effort {
    Effort { steps: 500 + 20 * cities, length: 1_500, patience: 5 + cities / 4 }
}

/// The effort at each other node.
pub(crate) fn quick(cities: usize) -> Effort {
    Effort { steps: 12 + cities / 2, length: 700, patience: 5 }
}

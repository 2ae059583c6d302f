//! Branch and bound on placements: a node has some facilities placed.

use std::sync::Arc;

use crate::problems::qap::gilmore_lawler::{Bounded, Partial, Sorted};
use crate::problems::qap::{Instance, start, symmetry};
use crate::problems::text::to_i64;
use crate::{Problem, Solution};

/// The quadratic assignment problem.
///
/// The cost of the start assignment limits the children of each node: only cheaper assignments are
/// searched.
#[derive(Debug)]
pub struct Qap {
    instance: Instance,
    sorted: Sorted,
    symmetries: Vec<Vec<u8>>,
    is_even: bool,
    start: Vec<usize>,
    /// The cost of the start assignment.
    cutoff: i64,
}

/// A partial assignment, with its bound and the children that are left after it.
#[derive(Clone, Debug)]
pub struct QapNode {
    partial: Partial,
    bound: i64,
    /// The cheapest completion as the bound sees it, and its true cost.
    completion: (i64, Vec<usize>),
    /// The facility that is placed next.
    facility: usize,
    /// Its possible locations, the most promising last.
    sites: Vec<u8>,
}

/// A facility that may be placed next. The one with the least key is chosen.
struct Candidate {
    key: (usize, i64),
    facility: usize,
    /// Its possible locations, each with the least cost that it adds to the bound.
    sites: Vec<(i64, u8)>,
}

/// The locations of the next facility that are not tried yet.
#[derive(Clone, Debug)]
pub struct QapChildren {
    node: Arc<QapNode>,
    left: u32,
}

impl Qap {
    #[must_use]
    pub fn new(instance: Instance) -> Self {
        let start = start::assignment(&instance);
        Self::with_start(instance, start)
    }

    pub(crate) fn with_start(instance: Instance, start: Vec<usize>) -> Self {
        Self {
            sorted: Sorted::new(&instance),
            symmetries: symmetry::group(&instance),
            is_even: instance.is_even(),
            cutoff: instance.cost(&start),
            start,
            instance,
        }
    }

    fn node(&self, partial: Partial) -> QapNode {
        let bounded = self.sorted.bound(&self.instance, &partial);
        let completion = bounded.complete(&partial);
        let completion = (self.instance.cost(&completion), completion);
        let bound = self.rounded(bounded.bound);
        let (facility, sites) = if completion.0 <= bound || bound >= self.cutoff {
            (0, Vec::new())
        } else {
            self.branch(&partial, &bounded)
        };
        QapNode { partial, bound, completion, facility, sites }
    }

    /// If all costs are even, an odd bound is one more.
    fn rounded(&self, bound: i64) -> i64 {
        if self.is_even { bound + (bound & 1) } else { bound }
    }

    /// The facility with the fewest promising locations, then the one with the highest bounds.
    fn branch(&self, partial: &Partial, bounded: &Bounded) -> (usize, Vec<u8>) {
        let used: Vec<u8> = partial.locations.iter().flatten().copied().collect();
        let least = symmetry::representatives(&self.symmetries, &used, partial.free);
        let size = bounded.facilities.len();
        let mut best: Option<Candidate> = None;
        for (row, &facility) in bounded.facilities.iter().enumerate() {
            let (mut sum, mut sites) = (0, Vec::with_capacity(size));
            for (column, &site) in bounded.sites.iter().enumerate() {
                let more = bounded.rest.reduced[row * size + column];
                let is_least = least >> site & 1 == 1;
                if is_least && self.rounded(bounded.bound + more) < self.cutoff {
                    sum += more;
                    sites.extend(u8::try_from(site).map(|site| (more, site)));
                }
            }
            let key = (sites.len(), -sum);
            if best.as_ref().is_none_or(|known| key < known.key) {
                best = Some(Candidate { key, facility, sites });
            }
        }
        let Some(Candidate { facility, mut sites, .. }) = best else { return (0, Vec::new()) };
        sites.sort_by(|a, b| b.cmp(a));
        (facility, sites.into_iter().map(|(_, site)| site).collect())
    }
}

impl Problem for Qap {
    type Node = QapNode;
    type Children = QapChildren;

    fn root(&self) -> QapNode {
        self.node(Partial::new(self.instance.size))
    }

    fn children(&self, node: QapNode) -> QapChildren {
        let left = u32::try_from(node.sites.len()).unwrap_or(u32::MAX);
        QapChildren { node: Arc::new(node), left }
    }

    fn next(&self, children: &mut QapChildren) -> Option<QapNode> {
        children.left = children.left.checked_sub(1)?;
        let node = &children.node;
        let site = *node.sites.get(usize::try_from(children.left).ok()?)?;
        let mut partial = node.partial.clone();
        partial.place(&self.instance, node.facility, site);
        Some(self.node(partial))
    }

    fn left(&self, children: &QapChildren) -> u32 {
        children.left
    }

    fn skip(&self, children: &mut QapChildren, count: u32) {
        children.left = children.left.saturating_sub(count);
    }

    fn value(&self, node: &QapNode) -> Option<i64> {
        Some(node.completion.0)
    }

    fn bound(&self, node: &QapNode, _best: i64) -> i64 {
        node.bound
    }

    fn witness(&self, node: &QapNode) -> Vec<i64> {
        node.completion.1.iter().map(|&location| to_i64(location)).collect()
    }

    fn start(&self) -> Option<Solution> {
        let witness = self.start.iter().map(|&location| to_i64(location)).collect();
        Some(Solution { value: self.cutoff, witness })
    }
}

//! Branch and bound away from the break solution.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::problems::knapsack::{Instance, Item};
use crate::problems::text::to_i64;
use crate::{Goal, Problem, Solution};

/// The knapsack problem, with Dantzig's bound.
#[derive(Debug)]
pub struct Knapsack {
    /// By decreasing profit per weight.
    items: Vec<Item>,
    /// By place in `items`: the number of the item in the file.
    numbers: Vec<i64>,
    /// Sums of the first items; one more than there are items.
    profits: Vec<i64>,
    weights: Vec<i64>,
    capacity: i64,
    /// The number of items of the break solution.
    split: usize,
    start: Solution,
}

/// A set of items: those of the break solution but for some changes. It may be too heavy.
#[derive(Clone, Debug)]
pub struct KnapsackNode {
    /// Items below this place may still be removed; all of them are taken.
    low: u32,
    /// Items from this place on may still be added; none of them is taken.
    high: u32,
    profit: i64,
    weight: i64,
    /// The last of the changes.
    changes: Option<Arc<Change>>,
}

/// A place that differs from the break solution, and the changes before it. Nodes share them.
#[derive(Debug)]
struct Change {
    place: u32,
    before: Option<Arc<Self>>,
}

/// A long row of changes is dropped in a loop, because recursion would need a deep stack.
impl Drop for Change {
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(mut change) = next.and_then(Arc::into_inner) {
            next = change.before.take();
        }
    }
}

/// The two children of a node: the next item is changed, or it stays.
#[derive(Clone, Debug)]
pub struct KnapsackChildren {
    node: KnapsackNode,
    next: u32,
    count: u32,
}

impl Knapsack {
    #[must_use]
    pub fn new(instance: &Instance) -> Self {
        let mut sorted: Vec<(Item, i64)> =
            instance.items.iter().copied().zip((0..instance.items.len()).map(to_i64)).collect();
        sorted.retain(|(item, _)| item.profit > 0 && item.weight <= instance.capacity);
        sorted.sort_by(|(a, _), (b, _)| {
            let (left, right) = (product(a.profit, b.weight), product(b.profit, a.weight));
            right.cmp(&left).then(Reverse(a.weight).cmp(&Reverse(b.weight)))
        });
        let (items, numbers): (Vec<Item>, Vec<i64>) = sorted.into_iter().unzip();
        let profits = sums(items.iter().map(|item| item.profit));
        let weights = sums(items.iter().map(|item| item.weight));
        let split = weights.partition_point(|&weight| weight <= instance.capacity) - 1;
        let capacity = instance.capacity;
        let start = Solution { value: 0, witness: Vec::new() };
        let mut made = Self { items, numbers, profits, weights, capacity, split, start };
        made.start = made.greedy();
        made
    }

    #[cfg(test)]
    pub(crate) fn without_start(instance: &Instance) -> Self {
        let start = Solution { value: 0, witness: Vec::new() };
        Self { start, ..Self::new(instance) }
    }

    /// The best of some greedy solutions, each with another change at the first item.
    fn greedy(&self) -> Solution {
        let mut best = self.filled(None);
        for index in 0..self.items.len().min(GREEDY_MAX) {
            let changed = self.filled(Some(self.around(index)));
            if changed.value > best.value {
                best = changed;
            }
        }
        best
    }

    /// Takes items from the best one on if they fit. If the item at `changed` is in the break
    /// solution, it is left out; else it is taken first.
    fn filled(&self, changed: Option<usize>) -> Solution {
        let (mut left, mut value, mut witness) = (self.capacity, 0, Vec::new());
        let mut take = |place: usize| {
            let item = self.items[place];
            if item.weight <= left {
                left -= item.weight;
                value += item.profit;
                witness.push(self.numbers[place]);
            }
        };
        if let Some(first) = changed.filter(|&place| place >= self.split) {
            take(first);
        }
        for place in (0..self.items.len()).filter(|&place| Some(place) != changed) {
            take(place);
        }
        witness.sort_unstable();
        Solution { value, witness }
    }

    /// Counts places from the split outwards: 0 is the split, then one after and one before it.
    fn around(&self, index: usize) -> usize {
        let last = self.items.len() - 1;
        let distance = index.div_ceil(2);
        if index % 2 == 1 {
            self.split.saturating_sub(distance)
        } else {
            (self.split + distance).min(last)
        }
    }

    /// Dantzig's bound: the greatest profit if a part of an item may be added or removed.
    fn dantzig(&self, node: &KnapsackNode) -> i64 {
        let (low, high) = (place(node.low), place(node.high));
        let free = self.capacity - node.weight;
        if free >= 0 {
            // Add items from `high` on while they fit.
            let limit = self.weights[high] + free;
            let end = self.weights.partition_point(|&weight| weight <= limit) - 1;
            let whole = node.profit + self.profits[end] - self.profits[high];
            let Some(item) = self.items.get(end) else { return whole };
            return whole + part(item.profit, limit - self.weights[end], item.weight);
        }
        // Remove items below `low`, the worst first, until the rest fits.
        let limit = self.weights[low] + free;
        if limit < 0 {
            return i64::MIN;
        }
        let end = self.weights.partition_point(|&weight| weight <= limit) - 1;
        let whole = node.profit + self.profits[end] - self.profits[low];
        let Some(item) = self.items.get(end) else { return whole };
        whole + part(item.profit, limit - self.weights[end], item.weight)
    }

    fn is_feasible(&self, node: &KnapsackNode) -> bool {
        node.weight <= self.capacity
    }
}

/// The most changes of the greedy solution that are tried.
const GREEDY_MAX: usize = 400;

fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn product(one: i64, other: i64) -> i128 {
    i128::from(one) * i128::from(other)
}

/// `profit * weight / of`, rounded down.
fn part(profit: i64, weight: i64, of: i64) -> i64 {
    i64::try_from(product(profit, weight) / i128::from(of.max(1))).unwrap_or(i64::MAX)
}

/// The sums of the first 0, 1, .. numbers.
fn sums(numbers: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut sum = 0;
    let rest = numbers.map(|number| {
        sum += number;
        sum
    });
    std::iter::once(0).chain(rest).collect()
}

impl Problem for Knapsack {
    type Node = KnapsackNode;
    type Children = KnapsackChildren;

    const GOAL: Goal = Goal::Maximise;

    fn root(&self) -> KnapsackNode {
        KnapsackNode {
            low: number(self.split),
            high: number(self.split),
            profit: self.profits[self.split],
            weight: self.weights[self.split],
            changes: None,
        }
    }

    fn children(&self, node: KnapsackNode) -> KnapsackChildren {
        let more = if self.is_feasible(&node) {
            place(node.high) < self.items.len()
        } else {
            node.low > 0
        };
        KnapsackChildren { node, next: 0, count: if more { 2 } else { 0 } }
    }

    fn next(&self, children: &mut KnapsackChildren) -> Option<KnapsackNode> {
        if self.left(children) == 0 {
            return None;
        }
        let is_changed = children.next == 0;
        children.next += 1;
        let mut node = children.node.clone();
        let sign = if self.is_feasible(&node) { 1 } else { -1 };
        let at = if sign == 1 { node.high } else { node.low - 1 };
        if sign == 1 {
            node.high += 1;
        } else {
            node.low -= 1;
        }
        if is_changed {
            let item = self.items[place(at)];
            node.profit += sign * item.profit;
            node.weight += sign * item.weight;
            let before = node.changes.take();
            node.changes = Some(Arc::new(Change { place: at, before }));
        }
        Some(node)
    }

    fn left(&self, children: &KnapsackChildren) -> u32 {
        children.count - children.next
    }

    fn skip(&self, children: &mut KnapsackChildren, count: u32) {
        children.next += count.min(self.left(children));
    }

    fn value(&self, node: &KnapsackNode) -> Option<i64> {
        self.is_feasible(node).then_some(node.profit)
    }

    fn bound(&self, node: &KnapsackNode, _best: i64) -> i64 {
        self.dantzig(node)
    }

    fn witness(&self, node: &KnapsackNode) -> Vec<i64> {
        let mut taken: Vec<bool> = (0..self.items.len()).map(|place| place < self.split).collect();
        let mut next = node.changes.as_deref();
        while let Some(change) = next {
            taken[place(change.place)] ^= true;
            next = change.before.as_deref();
        }
        let numbers = taken.iter().zip(&self.numbers);
        let mut witness: Vec<i64> =
            numbers.filter_map(|(taken, number)| taken.then_some(*number)).collect();
        witness.sort_unstable();
        witness
    }

    fn start(&self) -> Option<Solution> {
        Some(self.start.clone())
    }
}

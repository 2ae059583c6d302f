//! The decision of Algorithm 1 (Wang et al., section 2.2.3).

use proto::event::Reason;
use proto::{NodeId, Span, Time, wire};

use crate::Scheduler;
use crate::holder::task::Work;

/// Where a ready task goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The shared queue of the deciding node: any node may steal it.
    Shared(Reason),
    /// The dedicated local queue of the deciding node.
    Local,
    /// The dedicated local queue of this other node, which has most of the bytes.
    Push(NodeId),
}

/// One input of a ready task: its bytes and the node that has them (`data_size[i]`,
/// `parent_list[i]`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    pub bytes: u64,
    pub node: NodeId,
}

/// The assumptions of Algorithm 1.
#[derive(Clone, Copy, Debug)]
pub struct Assumptions {
    /// `net_band`, bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// `est_task_length`.
    pub task_length: Span,
}

/// Algorithm 1, line by line. `inputs` are in the order of the task's slots; of equal largest ones
/// the first counts. A task without input bytes is shared before anything is divided.
#[must_use]
pub fn decide(
    threshold: f64,
    assumed: Assumptions,
    here: NodeId,
    inputs: impl Iterator<Item = Located> + Clone,
) -> Decision {
    let all_bytes = inputs.clone().fold(0, |sum: u64, input| sum.saturating_add(input.bytes));
    if all_bytes == 0 {
        return Decision::Shared(Reason::NoInput);
    }
    let ratio = |bytes: u64| {
        bytes as f64 / assumed.bandwidth_bytes_per_s / assumed.task_length.as_secs_f64()
    };
    if ratio(all_bytes) <= threshold {
        return Decision::Shared(Reason::SmallInputs);
    }
    let mut largest = Located { bytes: 0, node: here };
    for input in inputs {
        if input.bytes > largest.bytes {
            largest = input;
        }
    }
    if ratio(largest.bytes) <= threshold {
        Decision::Shared(Reason::SmallLargest)
    } else if largest.node == here {
        Decision::Local
    } else {
        Decision::Push(largest.node)
    }
}

impl Scheduler {
    /// Applies Algorithm 1 to a ready task of this home.
    pub(super) fn decide_by_algorithm_1(&self, _: Time, work: &Work) -> Decision {
        let tuning = &self.options.tuning;
        let me = self.options.me;
        // The first of equal ones. The place of any other input does not matter.
        let largest = work.inputs.iter().rev().max_by_key(|input| input.size_bytes);
        let can_run = |node: NodeId| self.fits_node(node, work);
        let from = largest.map_or(me, |largest| parent_of(me, largest, &work.inputs, can_run));
        let located = |input: &wire::InputAt| {
            let is_largest = largest.is_some_and(|largest| std::ptr::eq(largest, input));
            let node = if is_largest { from } else { NodeId(input.node) };
            Located { bytes: input.size_bytes, node }
        };
        let inputs = work.inputs.iter().map(located);
        let assumed = Assumptions {
            bandwidth_bytes_per_s: self
                .policy
                .estimates
                .bandwidth_from(from, tuning.bandwidth_bytes_per_s),
            task_length: self.length_of(work),
        };
        let threshold = self.rules().threshold.unwrap_or(tuning.threshold);
        decide(threshold, assumed, me, inputs)
    }
}

/// The node that counts as the parent of an input: each known copy counts like the maker. If this
/// node has a copy, it is this node. Otherwise it is the node with most of the bytes of all
/// `inputs`, among those that can run the task. Among equal nodes the maker is first, then
/// copies in order.
#[must_use]
fn parent_of(
    here: NodeId,
    input: &wire::InputAt,
    inputs: &[wire::InputAt],
    can_run: impl Fn(NodeId) -> bool,
) -> NodeId {
    if holds(input, here) {
        return here;
    }
    if input.copies.is_empty() {
        return NodeId(input.node);
    }
    let bytes_at = |node: NodeId| {
        let there = inputs.iter().filter(|input| holds(input, node));
        there.fold(0, |sum: u64, input| sum.saturating_add(input.size_bytes))
    };
    let maker_and_copies = [input.node].into_iter().chain(input.copies.iter().copied());
    let parents = maker_and_copies.map(NodeId).filter(|&node| can_run(node));
    let best = parents
        .map(|node| (bytes_at(node), node))
        .reduce(|best, other| if other.0 > best.0 { other } else { best });
    best.map_or(NodeId(input.node), |(_, node)| node)
}

/// Whether the input was made on the node, or a copy of it is known to be there.
fn holds(input: &wire::InputAt, node: NodeId) -> bool {
    input.node == node.0 || input.copies.contains(&node.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: NodeId = NodeId(0);
    const THERE: NodeId = NodeId(1);
    /// 100 MB/s and tasks of one second: the ratio is bytes / 10^8.
    const ASSUMED: Assumptions =
        Assumptions { bandwidth_bytes_per_s: 1e8, task_length: Span::from_secs(1) };
    const HALF: f64 = 0.5;
    const MLB: f64 = f64::INFINITY;
    const MDL: f64 = 0.0;

    fn check(threshold: f64, inputs: &[(u64, NodeId)], expected: Decision) {
        let inputs = inputs.iter().map(|&(bytes, node)| Located { bytes, node });
        assert_eq!(decide(threshold, ASSUMED, HERE, inputs), expected);
    }

    #[test]
    fn algorithm_1_line_by_line() {
        let shared = Decision::Shared;
        check(MDL, &[], shared(Reason::NoInput));
        check(MDL, &[(0, THERE)], shared(Reason::NoInput));
        check(HALF, &[(50_000_000, THERE)], shared(Reason::SmallInputs)); // exactly t
        check(HALF, &[(30_000_000, THERE), (30_000_000, HERE)], shared(Reason::SmallLargest));
        check(HALF, &[(60_000_000, HERE), (1, THERE)], Decision::Local);
        check(HALF, &[(1, HERE), (60_000_000, THERE)], Decision::Push(THERE));
        // Of equal largest inputs the first counts.
        check(HALF, &[(60_000_000, THERE), (60_000_000, HERE)], Decision::Push(THERE));
    }

    #[test]
    fn mlb_and_mdl_are_the_ends_of_the_scale() {
        check(MLB, &[(u64::MAX / 2, THERE)], Decision::Shared(Reason::SmallInputs));
        check(MDL, &[(1, THERE)], Decision::Push(THERE));
        check(MDL, &[(1, HERE)], Decision::Local);
    }

    /// Inputs of all sizes on any nodes, with lengths and bandwidths from zero to very large.
    #[test]
    fn the_ends_hold_for_whatever_a_task_reads() {
        let mut seed = 1_u64;
        let mut draw = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            let inputs: Vec<Located> = (0..draw(6))
                .map(|_| {
                    let bytes = (draw(3) * draw(1 << 31)) << draw(30);
                    Located { bytes, node: NodeId(draw(4) as u32) }
                })
                .collect();
            let bandwidth_bytes_per_s = 1.0 + draw(1 << 31) as f64;
            let task_length = Span(draw(3) * draw(1 << 31));
            let assumed = Assumptions { bandwidth_bytes_per_s, task_length };
            let decided = |threshold| decide(threshold, assumed, HERE, inputs.iter().copied());
            assert!(matches!(decided(MLB), Decision::Shared(_)), "{inputs:?} {assumed:?}");
            let largest = inputs.iter().rev().max_by_key(|input| input.bytes);
            let expected = match largest.filter(|largest| largest.bytes > 0) {
                None => Decision::Shared(Reason::NoInput),
                Some(largest) if largest.node == HERE => Decision::Local,
                Some(largest) => Decision::Push(largest.node),
            };
            assert_eq!(decided(MDL), expected, "{inputs:?} {assumed:?}");
            // In between, a higher threshold never binds a task that a lower one shares.
            let shared = [0.0, 0.01, 0.5, 100.0].map(|t| matches!(decided(t), Decision::Shared(_)));
            assert!(shared.is_sorted(), "{inputs:?} {assumed:?}");
        }
    }

    #[test]
    fn a_task_of_no_length_stays_with_its_data() {
        let none = Assumptions { task_length: Span::ZERO, ..ASSUMED };
        let inputs = [Located { bytes: 1, node: THERE }].into_iter();
        assert_eq!(decide(HALF, none, HERE, inputs.clone()), Decision::Push(THERE));
        assert_eq!(decide(MLB, none, HERE, inputs), Decision::Shared(Reason::SmallInputs));
    }
}

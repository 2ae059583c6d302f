//! The numbers of queued and running attempts by node, in a bounded number of samples.

use std::collections::BTreeMap;

use proto::{NodeId, Span, Time};

/// After this many samples of a node, the least time between two of them is doubled.
const SAMPLES_PER_STEP: u32 = 4096;
/// The least time between two samples after the first step.
const STEP_MIN: Span = Span(100_000);

/// The state of an attempt that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    None,
    Queued,
    Running,
}

/// The numbers of a node from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sample {
    pub(super) node: NodeId,
    pub(super) time: Time,
    pub(super) running: u32,
    pub(super) queued: u32,
}

#[derive(Debug, Default)]
struct OfNode {
    running: u32,
    queued: u32,
    /// The time of the last sample.
    sampled: Option<Time>,
    /// The last change, if no sample has it.
    changed: Option<Time>,
    step: Span,
    samples: u32,
}

impl OfNode {
    fn add(&mut self, stage: Stage, by: i32) {
        match stage {
            Stage::None => {}
            Stage::Queued => self.queued = self.queued.saturating_add_signed(by),
            Stage::Running => self.running = self.running.saturating_add_signed(by),
        }
    }

    fn is_due(&self, time: Time) -> bool {
        self.sampled.is_none_or(|last| time.since(last) >= self.step)
    }

    fn sample(&mut self, node: NodeId, time: Time) -> Sample {
        (self.sampled, self.changed) = (Some(time), None);
        self.samples += 1;
        if self.samples.is_multiple_of(SAMPLES_PER_STEP) {
            self.step = Span((self.step.0 * 2).max(STEP_MIN.0));
        }
        Sample { node, time, running: self.running, queued: self.queued }
    }
}

/// Counts, and thins out the samples of long runs.
#[derive(Debug, Default)]
pub(super) struct Counters {
    nodes: BTreeMap<NodeId, OfNode>,
}

impl Counters {
    /// An attempt changes its state on a node. Returns the samples that are due.
    pub(super) fn change(
        &mut self,
        node: NodeId,
        time: Time,
        before: Stage,
        after: Stage,
    ) -> impl Iterator<Item = Sample> + use<> {
        let of_node = self.nodes.entry(node).or_default();
        let (mut rest, mut due) = (None, None);
        if before != after {
            // The numbers of a long pause are those before it.
            let is_pause = |at: &Time| time.since(*at) >= of_node.step;
            if let Some(at) = of_node.changed.filter(is_pause) {
                rest = Some(of_node.sample(node, at));
            }
            of_node.add(before, -1);
            of_node.add(after, 1);
            match of_node.is_due(time) {
                true => due = Some(of_node.sample(node, time)),
                false => of_node.changed = Some(time),
            }
        }
        rest.into_iter().chain(due)
    }

    /// The numbers that no sample has.
    pub(super) fn finish(&mut self) -> Vec<Sample> {
        let nodes = self.nodes.iter_mut();
        nodes.filter_map(|(&node, it)| Some(it.sample(node, it.changed?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    #[test]
    fn samples_are_bounded_and_the_last_numbers_are_told() {
        let mut counters = Counters::default();
        let mut samples = Vec::new();
        for at in 0..200_000u64 {
            let time = Time(at * 10_000);
            let (before, after) = match at % 2 {
                0 => (Stage::None, Stage::Running),
                _ => (Stage::Running, Stage::None),
            };
            samples.extend(counters.change(NODE, time, before, after));
        }
        samples.extend(counters.finish());
        assert!(samples.len() < 8 * SAMPLES_PER_STEP as usize, "{}", samples.len());
        assert!(samples.is_sorted_by_key(|sample| sample.time));
        assert!(samples.iter().all(|sample| sample.running <= 1 && sample.queued == 0));
        assert_eq!(samples.last().map(|sample| sample.running), Some(0));
    }

    #[test]
    fn a_pause_shows_the_numbers_before_it() {
        let mut counters = Counters::default();
        let of_node = counters.nodes.entry(NODE).or_default();
        (of_node.step, of_node.sampled) = (Span(100), Some(Time(0)));
        let mut at = |time, before, after| {
            let samples = counters.change(NODE, Time(time), before, after);
            samples.map(|it| (it.time.0, it.running)).collect::<Vec<_>>()
        };
        assert_eq!(at(50, Stage::None, Stage::Running), []);
        assert_eq!(at(60, Stage::Running, Stage::None), []);
        assert_eq!(at(900, Stage::None, Stage::Running), [(60, 0), (900, 1)]);
    }
}

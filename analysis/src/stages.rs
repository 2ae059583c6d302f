//! The figures of a run by kind of task: first start, last end and busy time.

use std::collections::BTreeMap;

use proto::{Span, Time};
use serde::Serialize;
use workloads::Graph;

use crate::fold::Fold;

/// The maximum number of separate kinds, since a graph may name one for every task. The others are
/// added together.
const KINDS_MAX: usize = 64;
const OTHERS: &str = "others";
/// Tasks of this kind only load data onto the nodes before the run.
pub const KIND_LOAD: &str = "load";

/// The kinds of a graph's tasks, numbered in the order of first appearance.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kinds {
    names: Vec<String>,
    of_spec: Vec<u32>,
}

impl Kinds {
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        let mut kinds = Self::default();
        let mut known: BTreeMap<&str, u32> = BTreeMap::new();
        for spec in graph.specs() {
            let next = kinds.names.len() as u32;
            let number = match known.get(spec.kind.as_str()) {
                Some(&number) => number,
                None if known.len() < KINDS_MAX => {
                    kinds.names.push(spec.kind.clone());
                    known.insert(&spec.kind, next);
                    next
                }
                None => KINDS_MAX as u32,
            };
            kinds.of_spec.push(number);
        }
        if kinds.of_spec.contains(&(KINDS_MAX as u32)) {
            kinds.names.push(OTHERS.to_owned());
        }
        kinds
    }

    /// The number of a task's kind.
    #[must_use]
    pub fn of_task(&self, graph: &Graph, task: u32) -> u32 {
        self.of_spec[graph.task(task).spec_index as usize]
    }

    /// The number of the kind that loads data.
    #[must_use]
    pub fn loads(&self) -> Option<u32> {
        let at = self.names.iter().position(|name| name == KIND_LOAD)?;
        u32::try_from(at).ok()
    }

    #[must_use]
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }
}

/// The sums of the tasks of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    executions: u64,
    first_start: Option<Time>,
    pub(crate) last_end: Option<Time>,
    busy: Span,
}

impl Tally {
    /// A further part of a gang, which is no attempt.
    pub(crate) fn add_part(&mut self, held: Span) {
        self.busy.0 += held.0;
    }

    pub(crate) fn add(&mut self, started: Time, ended: Time, slots: u32) {
        self.executions += 1;
        self.first_start = Some(self.first_start.map_or(started, |known| known.min(started)));
        self.last_end = self.last_end.max(Some(ended));
        self.busy.0 += ended.since(started).0 * u64::from(slots);
    }
}

/// One kind of a run. Times are from the start of the run's clock.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct StageRow {
    pub kind: String,
    pub executions: u64,
    pub first_start_s: f64,
    pub last_end_s: f64,
    pub busy_s: f64,
}

/// The rows of a report, in the order of the kinds.
pub(crate) fn rows(fold: &Fold, kinds: &Kinds, begin: Time) -> Vec<StageRow> {
    let seconds = |time: Option<Time>| time.map_or(0.0, |at| at.since(begin).as_secs_f64());
    let row = |(&number, tally): (&u32, &Tally)| StageRow {
        kind: kinds.name(number).to_owned(),
        executions: tally.executions,
        first_start_s: seconds(tally.first_start),
        last_end_s: seconds(tally.last_end),
        busy_s: tally.busy.as_secs_f64(),
    };
    fold.kinds.iter().map(row).collect()
}

/// The end of a run's loads, if it had some: the last load ended, or the first task of another kind
/// started. Work beside the loads counts.
pub(crate) fn loaded(fold: &Fold, kinds: &Kinds) -> Option<Time> {
    let load = kinds.loads()?;
    let ended = fold.kinds.get(&load)?.last_end?;
    let others = fold.kinds.iter().filter(|(kind, _)| **kind != load);
    let first = others.filter_map(|(_, tally)| tally.first_start).min();
    Some(first.map_or(ended, |first| first.min(ended)))
}

#[cfg(test)]
mod tests {
    use proto::wire;
    use workloads::{GraphBuilder, TaskInit};

    use super::*;

    #[test]
    fn kinds_are_numbered_and_bounded() {
        let mut builder = GraphBuilder::new("kinds");
        for number in 0..70 {
            let kind = format!("k{}", number % 66);
            let name = number.to_string();
            let spec = builder.spec(wire::Spec { kind, name, ..wire::Spec::default() });
            builder.task(TaskInit::of(spec));
        }
        let graph = builder.finish().unwrap();
        let kinds = Kinds::of(&graph);
        let name = |task| kinds.name(kinds.of_task(&graph, task)).to_owned();
        assert_eq!(
            (name(0), name(63), name(64), name(66)),
            ("k0".to_owned(), "k63".to_owned(), OTHERS.to_owned(), "k0".to_owned(),)
        );
    }
}

//! The demand of this node for further nodes: its ready tasks that have not started, by class.

use std::collections::BTreeMap;

use proto::{TaskId, wire};

use crate::Scheduler;
use crate::holder::queues::Queues;
use crate::holder::queues::classes::class_of;
use crate::holder::task::Work;

/// The number of tasks of one queue that are looked at for the demand of a node.
const DEMAND_SAMPLES_MAX: usize = 256;
/// The number of classes in the demand of a node.
const DEMAND_CLASSES_MAX: usize = 64;

/// Tasks of one class that were looked at.
#[derive(Debug)]
struct Sampled {
    row: wire::ClassDemand,
    samples: u64,
}

/// The sampled tasks of one group, such as a queue.
#[derive(Debug, Default)]
struct Sample {
    classes: BTreeMap<u64, Sampled>,
    /// All tasks that were looked at, also those that need no further node.
    looked_at: u64,
}

impl Scheduler {
    /// The ready tasks that this node holds or homes and that no node has started, by class. Of
    /// long queues some tasks are looked at, and the others are taken to be alike.
    #[must_use]
    pub fn demand(&self) -> wire::Demand {
        let mut all: BTreeMap<u64, wire::ClassDemand> = BTreeMap::new();
        for queues in [self.holder.local(), self.holder.shared()] {
            self.demand_of(queues, &mut all);
        }
        let staging = self.holder.staging();
        let staged = staging.iter().filter(|(task, _)| !self.holder.running().contains_key(task));
        let mut sample = Sample::default();
        staged.for_each(|(_, staged)| self.sample(&staged.work, &mut sample));
        let count = sample.looked_at;
        merge(sample, count, &mut all);
        self.demand_of_waiting(&mut all);
        let further = all.values().skip(DEMAND_CLASSES_MAX).map(|row| row.tasks).sum();
        wire::Demand {
            classes: all.into_values().take(DEMAND_CLASSES_MAX).collect(),
            further,
            free_cpus: self.holder.slots().free(),
            free_units: self.holder.slots().free_units(),
        }
    }

    fn demand_of(&self, queues: &Queues, all: &mut BTreeMap<u64, wire::ClassDemand>) {
        for (tasks, count) in queues.first_of_each(DEMAND_SAMPLES_MAX) {
            let mut sample = Sample::default();
            let works = tasks.into_iter().filter_map(|task| self.work_here(task));
            works.for_each(|work| self.sample(&work, &mut sample));
            merge(sample, count as u64, all);
        }
    }

    /// The tasks homed here that no present node can run.
    fn demand_of_waiting(&self, all: &mut BTreeMap<u64, wire::ClassDemand>) {
        let waiting = self.home.awaiting_wide_node();
        let step = waiting.len().div_ceil(DEMAND_SAMPLES_MAX).max(1);
        let is_live = |task: &TaskId| {
            self.home.ledger.placeable(*task).is_some() && !self.home.ledger.is_removed(task.job)
        };
        let tasks = waiting.iter().step_by(step).copied().filter(is_live);
        let mut sample = Sample::default();
        let works = tasks.filter_map(|task| self.home.ledger.work(task));
        works.for_each(|work| self.sample(&work, &mut sample));
        let count = sample.looked_at * step as u64;
        merge(sample, count.min(waiting.len() as u64), all);
    }

    fn sample(&self, work: &Work, sample: &mut Sample) {
        sample.looked_at += 1;
        if work.is_instant() || work.is_bound() {
            return; // It needs no slot, or no other node may run it.
        }
        let fresh = || Sampled {
            row: wire::ClassDemand {
                request: work.spec.request.clone(),
                cpus: work.cpus(),
                time_request_ns: work.time_request().0,
                nodes: if work.is_gang() { work.spec.nodes } else { 0 },
                ..Default::default()
            },
            samples: 0,
        };
        let sampled = sample.classes.entry(class_of(&work.spec)).or_insert_with(fresh);
        sampled.samples += 1;
        // The time of a signal before an end is no work.
        let length = self.length_of(work).0.max(work.spec.time_request_ns);
        sampled.row.work_ns = sampled.row.work_ns.saturating_add(length);
    }
}

/// Adds a sample of a group of `count` tasks, as if the others were alike.
fn merge(sample: Sample, count: u64, all: &mut BTreeMap<u64, wire::ClassDemand>) {
    let Sample { classes, looked_at } = sample;
    for (class, Sampled { row, samples }) in classes {
        let share = |part: u64, of: u64| {
            u64::try_from(u128::from(part) * u128::from(count) / u128::from(of.max(1)))
                .unwrap_or(u64::MAX)
        };
        let (tasks, work_ns) = (share(samples, looked_at), share(row.work_ns, looked_at));
        let known =
            all.entry(class).or_insert_with(|| wire::ClassDemand { tasks: 0, work_ns: 0, ..row });
        known.tasks = known.tasks.saturating_add(tasks.max(1));
        known.work_ns = known.work_ns.saturating_add(work_ns);
    }
}

//! The run record of a list of commands: its entries as the tasks of one job.
//!
//! Batches leave the nodes while the list runs, so the record is made of the ends that the driver
//! hears of. It has the last attempt of each entry, and of each task that an entry has spawned.

use std::collections::{BTreeMap, HashMap};

use client::now_ns;
use lens::attempt::{Outcome, SLOT_UNKNOWN};
use lens::failures::kind_of_name;
use lens::record::{MetaNode, PrintedReport, Tasks};
use lens::{AttemptRow, KindNumbers, Meta, Record, TaskRow};
use proto::wire::{self, TaskPhase, TaskState};
use proto::{LocalId, PartitionId};
use verb::Context;

use crate::cluster::job::results::Results;
use crate::report::files;
use crate::views::alike;

/// A longer list leaves no record: its rows are in memory until its end.
const LIST_RECORD_ENTRIES_MAX: u64 = 262_144;
/// The failures with a reason that the record has.
const LIST_FAILURES_MAX: usize = 32;

/// The entries are the tasks of the first partition, by their numbers.
const ENTRIES: PartitionId = PartitionId(0);
/// Spawned tasks have numbers in the order of their ends.
const SPAWNED: PartitionId = PartitionId(1);

/// What the record has beside the entries.
pub(super) struct RunFacts {
    pub(super) program: String,
    pub(super) policy: &'static str,
    pub(super) nodes: u32,
    pub(super) slots: u32,
    pub(super) tasks: Tasks,
    pub(super) has_failed: bool,
    /// The report, as `run --json` prints it.
    pub(super) json: String,
}

#[derive(Debug)]
pub(super) struct ListRecord {
    begun_ns: u64,
    /// The slots of one entry.
    width: u32,
    /// Ended tasks, and those of them that entries have spawned.
    seen: u64,
    spawned: u64,
    /// The first is the program of the list.
    kinds: KindNumbers,
    tasks: Vec<TaskRow>,
    attempts: Vec<AttemptRow>,
    failures: Vec<wire::Failure>,
}

impl ListRecord {
    pub(super) fn new(width: u32, program: &str) -> Self {
        let mut kinds = KindNumbers::default();
        kinds.number(program);
        let (begun_ns, width) = (now_ns(), width.max(1));
        let (tasks, attempts, failures) = (Vec::new(), Vec::new(), Vec::new());
        Self { begun_ns, width, seen: 0, spawned: 0, kinds, tasks, attempts, failures }
    }

    /// The entry of this number has ended.
    pub(super) fn add(&mut self, number: u64, task: &TaskState, error: Option<&str>) {
        self.put((LocalId::new(ENTRIES, number), 0), task, error);
    }

    /// A task has ended that an entry has spawned.
    pub(super) fn add_spawned(&mut self, task: &TaskState, error: Option<&str>) {
        let kind = self.kinds.number(&kind_of_name(&task.name));
        self.put((LocalId::new(SPAWNED, self.spawned), kind), task, error);
        self.spawned += 1;
    }

    fn put(&mut self, (local, kind): (LocalId, u32), task: &TaskState, error: Option<&str>) {
        self.seen += 1;
        if self.seen > LIST_RECORD_ENTRIES_MAX {
            (self.tasks, self.attempts) = (Vec::new(), Vec::new());
            return;
        }
        self.tasks.push(TaskRow { task: local, ..alike::row(task) });
        if let Some(error) = error.filter(|_| self.failures.len() < LIST_FAILURES_MAX) {
            self.failures.push(wire::Failure {
                local: local.0,
                name: task.name.clone(),
                node: task.node,
                exit_code: task.exit_code,
                error: error.to_owned(),
                ..wire::Failure::default()
            });
        }
        let outcome = match task.phase() {
            TaskPhase::TaskDone => Outcome::Done,
            TaskPhase::TaskFailed => Outcome::Failed,
            _ => Outcome::Cancelled,
        };
        if task.started_ns > 0 {
            self.attempts.push(AttemptRow {
                node: task.node,
                start_us: task.started_ns.saturating_sub(self.begun_ns) / 1000,
                ran_us: task.ended_ns.saturating_sub(task.started_ns) / 1000,
                task: local,
                number: 1,
                kind,
                outcome,
                ..AttemptRow::default()
            });
        }
    }

    fn record(mut self, facts: RunFacts) -> Record {
        let each = (facts.slots / facts.nodes.max(1)).max(1);
        place(&mut self.attempts, each, self.width);
        let node = |node| MetaNode { node, slots: each, ..MetaNode::default() };
        let spawned = self.tasks.iter().filter(|task| task.task.partition() == SPAWNED);
        let spawned: HashMap<LocalId, String> =
            spawned.map(|task| (task.task, kind_of_name(&task.name))).collect();
        let kind = |task: LocalId| spawned.get(&task).unwrap_or(&facts.program).clone();
        let meta = Meta {
            program: format!("starling {}", env!("CARGO_PKG_VERSION")),
            source: "run".to_owned(),
            job: "1".to_owned(),
            name: facts.program.clone(),
            state: if facts.has_failed { "failed" } else { "finished" }.to_owned(),
            policy: facts.policy.to_owned(),
            origin_ns: self.begun_ns,
            ended_us: Some(now_ns().saturating_sub(self.begun_ns) / 1000),
            tasks: facts.tasks,
            nodes: (0..facts.nodes).map(node).collect(),
            failures: alike::failures(&self.tasks, &self.failures, kind),
            kinds: self.kinds.names,
            report: PrintedReport::of(facts.json),
            ..Meta::default()
        };
        let mut record =
            Record { meta, tasks: self.tasks, attempts: self.attempts, ..Record::default() };
        record.sort();
        record
    }

    /// Writes the record into a new directory below `starling-runs`. A run has not failed because
    /// that is not possible.
    pub(super) fn leave(self, context: &Context, facts: RunFacts) {
        if self.seen > LIST_RECORD_ENTRIES_MAX {
            return context.output.note(&format!(
                "note: no run record: more than {LIST_RECORD_ENTRIES_MAX} tasks have ended"
            ));
        }
        if self.seen == 0 {
            return;
        }
        let written = Results::fresh(&facts.program).and_then(|results| {
            let dir = results.run_dir().expect("a new one has its own directory");
            files::put_into_run(dir, &self.record(facts))
        });
        match written {
            Ok(path) => {
                let path = path.display();
                let shows = format!("'starling report --from {path}' shows it");
                context.output.note(&format!("run record in {path}; {shows}"));
            }
            Err(failure) => {
                let text = format!("warning: without a run record: {}", failure.message);
                context.output.note(&text);
            }
        }
    }
}

/// Gives each attempt the lowest slots of its node that are free at its start: the slots that it
/// had are not known. Attempts that overlap by the inexactness of clocks have none.
fn place(attempts: &mut [AttemptRow], slots: u32, width: u32) {
    attempts.sort_unstable_by_key(|row| (row.start_us, row.task.0));
    let mut free_from: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for row in attempts {
        // The width of a spawned task is not known.
        let width = if row.task.partition() == SPAWNED { 1 } else { width };
        let ends = free_from.entry(row.node).or_insert_with(|| vec![0; slots as usize]);
        let free = (0..slots).filter(|&slot| ends[slot as usize] <= row.start_us);
        let taken: Vec<u32> = free.take(width as usize).collect();
        for &slot in &taken {
            ends[slot as usize] = row.end_us();
        }
        (row.slot, row.more) = match taken.split_first() {
            Some((&first, more)) => (first, more.into()),
            None => (SLOT_UNKNOWN, Box::default()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(node: u32, started_us: u64, ran_us: u64, phase: TaskPhase) -> TaskState {
        let (started_ns, ended_ns) = (started_us * 1000, (started_us + ran_us) * 1000);
        let phase = phase as i32;
        let exit_code = if phase == TaskPhase::TaskFailed as i32 { 3 } else { 0 };
        let name = "gzip-1".to_owned();
        TaskState { name, node, phase, exit_code, started_ns, ended_ns, ..TaskState::default() }
    }

    fn facts() -> RunFacts {
        RunFacts {
            program: "gzip".to_owned(),
            policy: "p",
            nodes: 2,
            slots: 4,
            tasks: Tasks { total: 4, done: 3, failed: 1, ..Tasks::default() },
            has_failed: true,
            json: r#"{"schema":1,"makespan_s":2.0}"#.to_owned(),
        }
    }

    #[test]
    fn the_record_has_each_entry_once_and_slots_of_its_node() {
        let mut record = ListRecord { begun_ns: 1000, ..ListRecord::new(0, "gzip") };
        record.add(4, &ended(0, 11, 5, TaskPhase::TaskDone), None);
        record.add(1, &ended(0, 1, 10, TaskPhase::TaskDone), None);
        record.add(2, &ended(0, 2, 20, TaskPhase::TaskFailed), Some("no space"));
        record.add(3, &ended(1, 3, 1, TaskPhase::TaskDone), None);
        let record = record.record(facts());
        let read = Record::read(&record.write().unwrap()).unwrap();
        assert_eq!(read, record);
        let slots: Vec<_> = read.attempts.iter().map(|row| (row.task.0, row.slot)).collect();
        assert_eq!(slots, [(1, 0), (2, 1), (4, 0), (3, 0)]);
        assert_eq!(read.meta.failures[0].0.text, "no space");
        assert_eq!((read.meta.nodes.len(), read.meta.nodes[1].slots), (2, 2));
    }

    #[test]
    fn spawned_tasks_are_tasks_of_the_record() {
        let mut record = ListRecord { begun_ns: 1000, ..ListRecord::new(2, "gzip") };
        record.add(1, &ended(0, 1, 10, TaskPhase::TaskDone), None);
        let child = TaskState { name: "sum".to_owned(), ..ended(0, 12, 2, TaskPhase::TaskFailed) };
        // The first tasks of two batches have one id.
        record.add_spawned(&child, Some("no space"));
        record.add_spawned(&child, None);
        let record = record.record(facts());
        let read = Record::read(&record.write().unwrap()).unwrap();
        let tasks: Vec<String> = read.tasks.iter().map(|row| row.task.to_string()).collect();
        assert_eq!(tasks, ["0.1", "1.0", "1.1"]);
        assert_eq!(read.meta.kinds, ["gzip", "sum"]);
        assert_eq!(read.meta.failures[0].0.kind, "sum");
        let wide = read.attempts.iter().find(|row| row.task.partition() == ENTRIES).unwrap();
        let narrow = read.attempts.iter().find(|row| row.task.partition() == SPAWNED).unwrap();
        assert_eq!((wide.kind, wide.width(), narrow.kind, narrow.width()), (0, 2, 1, 1));
    }

    #[test]
    fn a_list_without_bound_takes_no_memory_without_bound() {
        let mut record = ListRecord::new(1, "gzip");
        record.seen = LIST_RECORD_ENTRIES_MAX - 1;
        record.add(1, &ended(0, 1, 1, TaskPhase::TaskDone), None);
        assert_eq!(record.tasks.len(), 1);
        record.add(2, &ended(0, 1, 1, TaskPhase::TaskDone), None);
        assert_eq!((record.tasks.len(), record.attempts.len()), (0, 0));
    }

    #[test]
    fn a_wide_entry_has_several_slots() {
        let row = |start_us| AttemptRow { start_us, ran_us: 5, ..AttemptRow::default() };
        let mut rows = [row(1), row(2), row(3)];
        place(&mut rows, 4, 2);
        assert_eq!((rows[0].slot, &*rows[0].more), (0, &[1][..]));
        assert_eq!((rows[1].slot, &*rows[1].more), (2, &[3][..]));
        assert_eq!((rows[2].slot, rows[2].more.len()), (SLOT_UNKNOWN, 0));
    }
}

//! The run record of a simulation.

use std::path::Path;

use ::sim::{Collected, SimulationOptions};
use analysis::RunReport;
use lens::record::{MetaNode, PrintedReport, Tasks};
use lens::{Meta, Record, TaskRow};
use proto::wire::TaskPhase;
use proto::{LocalId, Time};
use verb::errors::Failure;
use workloads::Graph;

use crate::report::{collect, files};

pub(super) fn write(
    path: &Path,
    collected: Collected,
    (graph, options): (&Graph, &SimulationOptions),
    ended: Option<Time>,
    report: &RunReport,
) -> Result<(), Failure> {
    let (of_kind, kinds) = collect::kinds(graph);
    // A simulation ends when all tasks are done.
    let row = |task: u32| TaskRow {
        task: collected.ids[task as usize],
        name: graph.task_name(task),
        state: TaskPhase::TaskDone as u8,
        ..TaskRow::default()
    };
    let slots = options.slots;
    let nodes = (0..options.nodes).map(|node| MetaNode { node, slots, ..MetaNode::default() });
    let meta = Meta {
        program: format!("starling {}", env!("CARGO_PKG_VERSION")),
        source: "sim".to_owned(),
        job: "1".to_owned(),
        name: graph.name().to_owned(),
        state: "finished".to_owned(),
        policy: report.policy.clone(),
        tasks: Tasks { total: report.tasks.total, done: report.tasks.done, ..Tasks::default() },
        nodes: nodes.collect(),
        kinds,
        report: PrintedReport::of(report.to_json()),
        ..Meta::default()
    };
    let tasks = graph.indices().map(row).collect();
    let mut record = Record { meta, tasks, ..Record::default() };
    let of_task = |task: u32| of_kind[graph.task(task).spec_index as usize];
    let mut by_id: Vec<(LocalId, u32)> =
        graph.indices().map(|task| (collected.ids[task as usize], of_task(task))).collect();
    by_id.sort_unstable();
    let kind_of = |local: LocalId| {
        let at = by_id.binary_search_by_key(&local, |known| known.0);
        at.map_or(0, |at| by_id[at].1)
    };
    collected.attempts.finish(ended, ended.unwrap_or_default(), &mut record, kind_of);
    verb::files::put(path, &files::bytes(&record)?)
}

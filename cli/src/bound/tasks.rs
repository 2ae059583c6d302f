//! A row for each task.

use std::path::Path;

use analysis::bounds::{Ends, Form, Place, Windows};
use analysis::chart::Table;
use verb::errors::Failure;
use workloads::Graph;

use super::figures::Assumed;

const HEADER: [&str; 11] = [
    "task",
    "name",
    "level",
    "slots",
    "duration_s",
    "earliest_start_s",
    "after_end_s",
    "slack_s",
    "paper_ready_s",
    "paper_end_s",
    "paper_node",
];

/// Writes for each task its earliest start, the time that must follow it, and its slack with
/// respect to the longest path. Adds the node and time of the paper's form (as printed).
pub(super) fn write(path: &Path, graph: &Graph, assumed: &Assumed) -> Result<(), Failure> {
    let windows = Windows::of(graph, &assumed.cluster);
    let path_ns = windows.path_ns(graph);
    let ends = Ends::of(graph, &assumed.model(Form::Printed));
    let levels = graph.levels();
    let seconds = |ns: u64| format!("{:.9}", ns as f64 / 1e9);
    let mut table = Table::new(&HEADER);
    for task in graph.tasks() {
        let at = task.index as usize;
        let (head_ns, tail_ns) = (windows.head_ns[at], windows.tail_ns[at]);
        table = table.row(&[
            task.index.to_string(),
            graph.task_name(task.index),
            levels[at].to_string(),
            graph.cpus(task.index).to_string(),
            seconds(task.duration_ns),
            seconds(head_ns),
            seconds(tail_ns),
            seconds(path_ns - head_ns - task.duration_ns - tail_ns),
            format!("{:.9}", ends.ready_s[at]),
            format!("{:.9}", ends.end_s[at]),
            match ends.place[at] {
                Place::Root | Place::New => "new".to_owned(),
                Place::Parent(parent) => format!("of {parent}"),
            },
        ]);
    }
    super::write(path, &table.csv())
}

//! Workloads of the field: a bag with a heavy tail, staged applications, recorded workflows.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::point::{Point, SEED};
use super::policies::{Choice, DEFAULT, FLDS, MDL, MLB};
use super::results::{Results, number};
use super::scale::{SLOTS, Scale};
use super::section::{Cell, Grid, Section, Unit};

const WAIT_MAX: &str = "10s";
const CHOICES: [Choice; 4] = [FLDS, MDL, MLB, DEFAULT];
/// Nodes for graphs that are too small for the whole cluster.
const FEW_NODES: u32 = 10;
/// Deeper folders are not searched.
const DEPTH_MAX: u32 = 4;

/// The workloads, each with its number of nodes.
pub(super) fn works(scale: &Scale) -> Vec<(&'static str, String, u32)> {
    let heavy = match scale.heavy_tail_tasks {
        Some(tasks) => format!("heavy-tail:tasks={tasks},seed={SEED}"),
        None => format!("heavy-tail:tasks=20000,seed={SEED}"),
    };
    vec![
        ("heavy-tailed bag", heavy, scale.nodes),
        ("MolDyn-shaped", format!("moldyn:seed={SEED}"), scale.nodes.min(FEW_NODES)),
        ("fMRI-shaped", format!("fmri:seed={SEED}"), scale.nodes.min(FEW_NODES)),
    ]
}

pub(super) fn point(choice: Choice, workload: &str, nodes: u32) -> Point {
    choice.on(Point::simulated(workload, nodes, SLOTS), WAIT_MAX)
}

pub(super) fn points(scale: &Scale) -> Vec<(Point, u32)> {
    let all = |(_, workload, nodes): (_, String, u32)| {
        CHOICES.map(|choice| (point(choice, &workload, nodes), scale.seeds_of_curves))
    };
    works(scale).into_iter().flat_map(all).collect()
}

fn columns(first: &'static str) -> [(&'static str, Option<Unit>); 7] {
    [
        (first, None),
        ("slots", None),
        ("policy", None),
        ("makespan", Some(Unit::Seconds)),
        ("of the true lower bound", Some(Unit::Percent)),
        ("efficiency", Some(Unit::Percent)),
        ("moved", Some(Unit::Gigabytes)),
    ]
}

fn row(results: &Results, name: &str, choice: Choice, point: &Point, nodes: u32) -> Vec<Cell> {
    vec![
        name.into(),
        (nodes * SLOTS).into(),
        choice.label.into(),
        results.at(point, "/makespan_s").into(),
        results.spread(point, of_lower).into(),
        results.at(point, "/efficiency").into(),
        results.at(point, "/data/bytes_moved").into(),
    ]
}

fn of_lower(report: &Value) -> Option<f64> {
    Some(number(report, "/bound/lower_s")? / number(report, "/makespan_s")?)
}

pub(super) fn tell(scale: &Scale, results: &Results) -> Section {
    let mut section = Section::new("field", "Workloads of the field");
    section.text(
        "The bag has the moments that the paper quotes of a trace: minimum 0, median 30 s, mean \
         95.2 s, maximum 1,469.62 s, standard deviation 188.08 s. MolDyn: eight stages of fan-out \
         and fan-in; fMRI: a pipeline of twelve for each volume. The paper prints no results of \
         these.",
    );
    let mut grid = Grid::new("field", &columns("workload"));
    let mut points = Vec::new();
    for (name, workload, nodes) in works(scale) {
        for choice in CHOICES {
            let point = point(choice, &workload, nodes);
            grid.row(row(results, name, choice, &point, nodes));
            points.push(point);
        }
    }
    section.grid(grid);
    section.missing(results, &points);
    section
}

/// Recorded workflows below a folder, by name.
pub(super) fn recorded(dir: &Path, at_most: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![(dir.to_path_buf(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() && depth < DEPTH_MAX {
                folders.push((path, depth + 1));
            } else if (name.ends_with(".json") || name.ends_with(".json.gz"))
                && !name.contains("schema")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found.truncate(at_most);
    found
}

pub(super) fn recorded_point(choice: Choice, file: &Path) -> Point {
    point(choice, &file.display().to_string(), FEW_NODES)
}

pub(super) fn recorded_points(scale: &Scale, files: &[PathBuf]) -> Vec<(Point, u32)> {
    let all = |file: &PathBuf| {
        [FLDS, DEFAULT].map(|choice| (recorded_point(choice, file), scale.seeds_of_curves))
    };
    files.iter().flat_map(all).collect()
}

pub(super) fn tell_recorded(results: &Results, files: &[PathBuf]) -> Section {
    let mut section = Section::new("recorded", "Recorded workflows");
    if files.is_empty() {
        section.note(
            "Not to be had: no recorded workflows were found; name a folder with --workflows.",
        );
        return section;
    }
    section.text(
        "Workflows of WfCommons: tasks sleep for their recorded durations on one slot and move \
         files of their recorded sizes; files from outside are on every node.",
    );
    let mut grid = Grid::new("recorded", &columns("workflow"));
    let mut points = Vec::new();
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        for choice in [FLDS, DEFAULT] {
            let point = recorded_point(choice, file);
            grid.row(row(results, &name, choice, &point, FEW_NODES));
            points.push(point);
        }
    }
    section.grid(grid);
    section.missing(results, &points);
    section
}

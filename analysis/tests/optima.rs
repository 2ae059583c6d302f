//! Lower bounds of graphs with known shortest schedules: the Standard Task Graph Set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use analysis::{Cluster, LowerBounds, Network};
use proto::{Span, wire};
use serde_json::Value;
use workloads::{Graph, GraphBuilder, TaskInit};

/// Times in these files are whole numbers; here each unit is a second.
const UNIT_NS: u64 = 1_000_000_000;

/// A number of tasks, then a row for each: number, duration, number of parents, parents.
fn standard_task_graph(text: &str) -> Graph {
    let mut builder = GraphBuilder::new("stg");
    let spec = builder.spec(wire::Spec::default());
    let lines = text.lines().map(str::trim).skip(1);
    let mut known = BTreeMap::new();
    for line in lines.take_while(|line| !line.starts_with('#')).filter(|line| !line.is_empty()) {
        let mut numbers = line.split_whitespace().map(|number| number.parse().expect("a number"));
        let mut next = || -> u64 { numbers.next().expect("a row has three numbers") };
        let (task, duration, _parents) = (next(), next(), next());
        let added =
            builder.task(TaskInit { duration_ns: duration * UNIT_NS, ..TaskInit::of(spec) });
        known.insert(task, added);
        for parent in numbers {
            builder.edge(known[&parent], added, 0);
        }
    }
    builder.finish().expect("the graphs have no cycles")
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data")
}

#[test]
fn no_lower_bound_is_above_a_known_optimum() {
    let data = data();
    let Ok(optima) = std::fs::read_to_string(data.join("stg/optimal.csv")) else {
        println!("skipped: {} is not there", data.join("stg/optimal.csv").display());
        return;
    };
    let mut by_graph: BTreeMap<&str, Vec<(u32, u64, u64)>> = BTreeMap::new();
    for row in optima.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let number = |at: usize| cells[at].parse::<u64>().unwrap();
        by_graph.entry(cells[0]).or_default().push((number(1) as u32, number(2), number(3)));
    }
    let (mut checked, mut met, mut shares) = (0, 0, 0.0);
    for (file, rows) in by_graph {
        let graph =
            standard_task_graph(&std::fs::read_to_string(data.join("stg").join(file)).unwrap());
        for (slots, lowest, best) in rows {
            let bounds = LowerBounds::of(&graph, &Cluster::new(1, slots, Network::Free));
            for (name, bound) in bounds.named() {
                assert!(bound <= Span(best * UNIT_NS), "{file} on {slots}: {name} {bound:?}");
            }
            // All times are whole, so a schedule takes at least the next whole number.
            let whole = bounds.lower().0.div_ceil(UNIT_NS);
            assert!(whole <= best, "{file} on {slots}: {whole} above {best}");
            checked += 1;
            met += u32::from(whole == lowest);
            shares += whole as f64 / best as f64;
        }
    }
    println!(
        "{checked} optima: {met} met by a bound, mean share {:.4}",
        shares / f64::from(checked)
    );
    assert_eq!(checked, 720);
    assert!(met >= 500, "only {met} of {checked} are met");
}

#[test]
fn work_inside_intervals_agrees_with_figures_worked_out_independently() {
    let data = data();
    let Ok(expected) = std::fs::read_to_string(data.join("expected.jsonl")) else {
        println!("skipped: {} is not there", data.join("expected.jsonl").display());
        return;
    };
    let mut checked = 0;
    for line in expected.lines().filter(|line| line.contains("\"file\": \"stg/")) {
        let row: Value = serde_json::from_str(line).unwrap();
        let file = row["file"].as_str().unwrap();
        let graph = standard_task_graph(&std::fs::read_to_string(data.join(file)).unwrap());
        for (slots, figures) in row["P"].as_object().unwrap() {
            let Some(theirs_s) = figures["fb"].as_f64() else { continue };
            let cluster = Cluster::new(1, slots.parse().unwrap(), Network::Free);
            let ours_s = LowerBounds::of(&graph, &cluster).density.as_secs_f64();
            assert!(
                (ours_s - theirs_s).abs() < 1e-3,
                "{file} on {slots}: {ours_s}, not {theirs_s}"
            );
            checked += 1;
        }
    }
    println!("{checked} figures agree");
    assert!(checked > 1000, "only {checked} figures");
}

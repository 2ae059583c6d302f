//! All-pairs: figures 6a, 6b, 7 and 8.

use analysis::chart::{Axis, Bars, Chart};

use super::paper;
use super::point::{Point, SEED};
use super::policies::{ALL, Choice, DEFAULT, FLDS, MDL, MLB};
use super::results::{Results, number};
use super::scale::{SLOTS, Scale};
use super::section::{Cell, Claim, Grid, Section, Unit, Verdict};

/// The paper's tt. The paper sets it when 80 % of the work is done; this sets it from the start.
const WAIT_MAX: &str = "20s";
const EFFICIENCY: &str = "/efficiency";
const HIT_RATE: &str = "/data/cache_hit_rate";
const HIT_RATE_STRICT: &str = "/data/cache_hit_rate_strict";
const LOCALITY: &str = "/data/locality_hit_rate";
const MOVED: &str = "/data/bytes_moved";

fn workload(scale: &Scale) -> String {
    format!("all-pairs:files={},seed={SEED}", scale.files)
}

pub(super) fn point(scale: &Scale, choice: Choice, nodes: u32) -> Point {
    choice.on(Point::simulated(&workload(scale), nodes, SLOTS), WAIT_MAX)
}

fn without_cache(scale: &Scale, choice: Choice, nodes: u32) -> Point {
    point(scale, choice, nodes).with(&["--cache", "0"])
}

/// Scarce data: a node has space for five times its part of the files and reads more than that.
/// Tasks are placed by number, not beside their files.
const SCARCE: [&str; 4] = ["--cache", "600MB", "--placement", "hash"];
const SCARCE_CHOICES: [Choice; 4] = [FLDS, MDL, MLB, DEFAULT];

fn scarce(scale: &Scale, choice: Choice) -> Point {
    point(scale, choice, scale.nodes).with(&SCARCE)
}

/// A network that is never the bottleneck.
fn without_network(scale: &Scale) -> Point {
    let network = ["--network", "maxmin", "--bandwidth", "1000Gbit", "--latency", "100us"];
    Point::simulated_over(&network, &workload(scale), scale.nodes, SLOTS)
}

fn set_up(scale: &Scale) -> String {
    format!(
        "Two sets of {files} files of 12 MB lie on the nodes before the clock starts, spread evenly \
         by the seed; {tasks} tasks of 100 ms read one file of each set. Strong scaling up to \
         {slots} slots on {nodes} nodes. Simulated: 1 GbE full duplex per node with max-min fair \
         sharing, 100 us latency (assumed), 6 GiB of cache a node, service times of this machine's \
         calibration. Efficiency is task time over slot time: transfers are not work.",
        files = scale.files,
        tasks = u64::from(scale.files) * u64::from(scale.files),
        slots = scale.slots(),
        nodes = scale.nodes,
    )
}

pub(super) fn points_6a(scale: &Scale) -> Vec<(Point, u32)> {
    vec![
        (point(scale, FLDS, scale.nodes), scale.seeds),
        (point(scale, DEFAULT, scale.nodes), scale.seeds),
        (without_network(scale), scale.seeds_of_curves),
    ]
}

pub(super) fn tell_6a(scale: &Scale, results: &Results) -> Section {
    let mut section = Section::new("fig6a", "Figure 6a: all-pairs against other systems");
    section.text(set_up(scale));
    let mut grid = Grid::new(
        "fig6a",
        &[
            ("system", None),
            ("efficiency", Some(Unit::Percent)),
            ("makespan", Some(Unit::Seconds)),
            ("source", None),
        ],
    );
    let ours = [
        ("Starling, FLDS", point(scale, FLDS, scale.nodes)),
        ("Starling, default", point(scale, DEFAULT, scale.nodes)),
        ("Starling, network never in the way", without_network(scale)),
    ];
    let mut bars: Vec<(&str, Option<f64>)> = Vec::new();
    for (name, point) in &ours {
        let efficiency = results.at(point, EFFICIENCY);
        bars.push((name, efficiency.map(|spread| spread.median * 100.0)));
        let makespan = results.at(point, "/makespan_s");
        grid.row(vec![(*name).into(), efficiency.into(), makespan.into(), "simulated".into()]);
    }
    for (name, percent, source) in [
        ("MATRIX DAWS (FLDS)", paper::DAWS_PERCENT, "paper, 200 cores"),
        ("Falkon data diffusion", paper::DATA_DIFFUSION_PERCENT, "paper, 200 cores"),
        ("active storage", paper::ACTIVE_STORAGE_PERCENT, "paper, 200 cores"),
        (
            "best-case parallel file system",
            paper::PARALLEL_FILE_SYSTEM_PERCENT,
            "paper: \"less than 20 %\"",
        ),
    ] {
        bars.push((name, Some(percent)));
        grid.row(vec![
            name.into(),
            Some(percent / 100.0).into(),
            None::<f64>.into(),
            source.into(),
        ]);
    }
    let axis = Axis::new("efficiency, percent").from(0.0).to(100.0);
    let chart = bars.iter().enumerate().fold(
        Bars::new("All-pairs: efficiency", axis, &["all-pairs"]),
        |chart, (_, (name, value))| chart.series(name, &[*value]),
    );
    section.bars(
        "fig6a",
        &chart,
        "Efficiency of all-pairs; the last four as the paper quotes them.",
    );
    section.grid(grid);
    let first = &ours[0].1;
    section.claim(Claim::at_least(
        "all-pairs efficiency, FLDS, caching on",
        "85.9 % (Falkon 75 %, active storage 91 %)",
        paper::ASKED_ALL_PAIRS_PERCENT,
        results.at(first, EFFICIENCY),
        &results.why(first),
    ));
    section.missing(results, &ours.map(|(_, point)| point));
    section
}

pub(super) fn points_6b(scale: &Scale) -> Vec<(Point, u32)> {
    let curve = [FLDS, MDL, MLB, DEFAULT].into_iter().flat_map(|choice| {
        let at = move |&nodes: &u32| (point(scale, choice, nodes), scale.seeds_of_curves);
        scale.strong_ladder.iter().map(at)
    });
    let top = ALL.into_iter().map(|choice| {
        let claimed = [FLDS, MDL, MLB, DEFAULT].contains(&choice);
        let repeats = if claimed { scale.seeds } else { scale.seeds_of_curves };
        (point(scale, choice, scale.nodes), repeats)
    });
    let scarce = SCARCE_CHOICES.map(|choice| (scarce(scale, choice), scale.seeds));
    curve.chain(top).chain(scarce).collect()
}

pub(super) fn tell_6b(scale: &Scale, results: &Results) -> Section {
    let mut section = Section::new("fig6b", "Figure 6b: policies on all-pairs");
    section.text(
        "The paper gives curves without numbers, and their order: FLDS above MDL above MLB. The \
         same graphs, network and seeds for every policy.",
    );
    let axis = Axis::new("efficiency, percent").from(0.0).to(100.0);
    let mut chart = Chart::new("All-pairs by policy", Axis::new("slots"), axis);
    for choice in [FLDS, MDL, MLB, DEFAULT] {
        let at = |&nodes: &u32| {
            let efficiency = results.median(&point(scale, choice, nodes), EFFICIENCY)?;
            Some((f64::from(nodes * SLOTS), efficiency * 100.0))
        };
        let line: Vec<(f64, f64)> = scale.strong_ladder.iter().filter_map(at).collect();
        chart = chart.line(choice.label, &line);
    }
    chart = chart.points("FLDS in the paper", &[(200.0, paper::DAWS_PERCENT)]);
    section.chart("fig6b", &chart, "Efficiency against slots, strong scaling.");
    let mut grid = Grid::new(
        "fig6b",
        &[
            ("policy", None),
            ("slots", None),
            ("efficiency", Some(Unit::Percent)),
            ("utilization", Some(Unit::Percent)),
            ("makespan", Some(Unit::Seconds)),
            ("reads without a transfer", Some(Unit::Percent)),
            ("moved", Some(Unit::Gigabytes)),
            ("tasks stolen", Some(Unit::Count)),
            ("tasks pushed", Some(Unit::Count)),
        ],
    );
    let mut rows: Vec<(Choice, u32)> = Vec::new();
    for choice in ALL {
        let curve: &[u32] = match [FLDS, MDL, MLB, DEFAULT].contains(&choice) {
            true => scale.strong_ladder,
            false => &[],
        };
        rows.extend(curve.iter().filter(|&&nodes| nodes != scale.nodes).map(|&n| (choice, n)));
        rows.push((choice, scale.nodes));
    }
    let of = |(choice, nodes): (Choice, u32)| point(scale, choice, nodes);
    for row in &rows {
        let point = of(*row);
        let at = |path: &str| Cell::from(results.at(&point, path));
        grid.row(vec![
            row.0.label.into(),
            (row.1 * SLOTS).into(),
            at(EFFICIENCY),
            at("/utilization"),
            at("/makespan_s"),
            at(HIT_RATE),
            at(MOVED),
            at("/steals/tasks"),
            at("/pushes"),
        ]);
    }
    section.grid(grid);
    tell_scarce(scale, results, &mut section);
    section.claim(default_claim(scale, results));
    section.claim(order_claim(scale, results));
    let mut points: Vec<Point> = rows.into_iter().map(of).collect();
    points.extend(SCARCE_CHOICES.map(|choice| scarce(scale, choice)));
    section.missing(results, &points);
    section
}

fn tell_scarce(scale: &Scale, results: &Results, section: &mut Section) {
    section.text(
        "With 6 GiB of cache and tasks placed beside their files no policy waits for data, and \
         nothing is left of the paper's order. The same with 600 MB of cache a node, five times \
         its part of the files, and tasks placed by number:",
    );
    let columns = [
        ("policy", None),
        ("efficiency", Some(Unit::Percent)),
        ("makespan", Some(Unit::Seconds)),
        ("reads without a transfer", Some(Unit::Percent)),
        ("moved", Some(Unit::Gigabytes)),
    ];
    let mut grid = Grid::new("fig6b-scarce", &columns);
    for choice in SCARCE_CHOICES {
        let point = scarce(scale, choice);
        let at = |path: &str| Cell::from(results.at(&point, path));
        let cells = [EFFICIENCY, "/makespan_s", HIT_RATE, MOVED].map(at);
        grid.row([Cell::from(choice.label)].into_iter().chain(cells).collect());
    }
    section.grid(grid);
}

/// A round of tasks of 100 ms, as a share of the 125 s of all: finer differences are of whole
/// slots.
const ROUND: f64 = 0.001;

/// The efficiencies of these choices, and a text with them.
fn told(choices: &[Choice], of: impl Fn(Choice) -> Option<f64>) -> Option<(Vec<f64>, String)> {
    let values: Vec<f64> = choices.iter().map(|&choice| of(choice)).collect::<Option<_>>()?;
    let words = choices.iter().zip(&values);
    let words = words.map(|(choice, value)| format!("{} {:.2}", choice.label, value * 100.0));
    let text = words.collect::<Vec<_>>().join(", ") + " %";
    Some((values, text))
}

fn default_claim(scale: &Scale, results: &Results) -> Claim {
    let of = |choice| results.median(&point(scale, choice, scale.nodes), EFFICIENCY);
    let told = told(&[FLDS, MDL, MLB, DEFAULT], of);
    let (ours, verdict) = match told {
        Some((values, text)) => (text, Verdict::of(values[3] + ROUND >= values[0])),
        None => ("not all policies ended".to_owned(), Verdict::Absent),
    };
    Claim {
        what: "the default on all-pairs".to_owned(),
        paper: "-".to_owned(),
        asked: "at least as good as FLDS; less than a round of tasks (0.1 %) counts as equal"
            .to_owned(),
        ours,
        verdict,
    }
}

fn order_claim(scale: &Scale, results: &Results) -> Claim {
    let of = |choice| results.median(&scarce(scale, choice), EFFICIENCY);
    let (ours, verdict) = match told(&[FLDS, MDL, MLB], of) {
        Some((values, text)) => {
            let (flds, mdl, mlb) = (values[0], values[1], values[2]);
            (text, Verdict::of(flds + ROUND >= mdl && mdl > mlb + ROUND))
        }
        None => ("not all policies ended".to_owned(), Verdict::Absent),
    };
    Claim {
        what: "order of policies on all-pairs, where data are in the way (600 MB of cache, tasks \
               placed by number)"
            .to_owned(),
        paper: "FLDS > MDL > MLB".to_owned(),
        asked: "reproduced; less than a round of tasks (0.1 %) counts as equal, as FLDS and MDL do"
            .to_owned(),
        ours,
        verdict,
    }
}

pub(super) fn points_7(scale: &Scale) -> Vec<(Point, u32)> {
    let both = |choice: Choice, nodes: u32, repeats: u32| {
        [(point(scale, choice, nodes), repeats), (without_cache(scale, choice, nodes), repeats)]
    };
    let curve = scale.strong_ladder.iter();
    let curve = curve.flat_map(|&nodes| both(FLDS, nodes, scale.seeds_of_curves));
    let claimed = [FLDS, DEFAULT].into_iter();
    let claimed = claimed.flat_map(|choice| both(choice, scale.nodes, scale.seeds));
    curve.chain(claimed).collect()
}

pub(super) fn tell_7(scale: &Scale, results: &Results) -> Section {
    let mut section = Section::new("fig7", "Figure 7: all-pairs with and without caching");
    section.text(
        "Without caching (a budget of 0 bytes) a node forgets what it fetched as soon as no task \
         of its own uses it. A read is one object read by one task. \"Without a transfer\": made \
         here, copied here before, or it joined a transfer that an earlier task had asked for. \
         The strict rate looks only at reads of objects made elsewhere. The paper does not say \
         which of the two it recorded.",
    );
    let mut grid = Grid::new(
        "fig7",
        &[
            ("policy", None),
            ("slots", None),
            ("caching", None),
            ("efficiency", Some(Unit::Percent)),
            ("reads without a transfer", Some(Unit::Percent)),
            ("strict hit rate", Some(Unit::Percent)),
            ("bytes read where they were", Some(Unit::Percent)),
            ("moved", Some(Unit::Gigabytes)),
        ],
    );
    let mut rows: Vec<(Choice, u32)> = scale.strong_ladder.iter().map(|&n| (FLDS, n)).collect();
    rows.push((DEFAULT, scale.nodes));
    let mut points = Vec::new();
    for (choice, nodes) in rows {
        for (word, point) in
            [("on", point(scale, choice, nodes)), ("off", without_cache(scale, choice, nodes))]
        {
            let at = |path: &str| Cell::from(results.at(&point, path));
            grid.row(vec![
                choice.label.into(),
                (nodes * SLOTS).into(),
                word.into(),
                at(EFFICIENCY),
                at(HIT_RATE),
                at(HIT_RATE_STRICT),
                at(LOCALITY),
                at(MOVED),
            ]);
            points.push(point);
        }
    }
    let line = |of: fn(&Scale, Choice, u32) -> Point, path: &str| -> Vec<(f64, f64)> {
        let at = |&nodes: &u32| {
            let value = results.median(&of(scale, FLDS, nodes), path)?;
            Some((f64::from(nodes * SLOTS), value * 100.0))
        };
        scale.strong_ladder.iter().filter_map(at).collect()
    };
    let chart = Chart::new(
        "All-pairs with and without caching, FLDS",
        Axis::new("slots"),
        Axis::new("percent").from(0.0).to(100.0),
    )
    .line("efficiency, caching on", &line(point, EFFICIENCY))
    .line("efficiency, caching off", &line(without_cache, EFFICIENCY))
    .line("reads without a transfer, caching on", &line(point, HIT_RATE))
    .rule("paper: caching off, less than", paper::WITHOUT_CACHING_PERCENT)
    .rule("paper: hit rate, above", paper::HIT_RATE_PERCENT);
    section.chart("fig7", &chart, "The paper's curves have no numbers but the two rules.");
    section.grid(grid);
    claims_7(scale, results, &mut section);
    section.missing(results, &points);
    section
}

fn claims_7(scale: &Scale, results: &Results, section: &mut Section) {
    let off = without_cache(scale, FLDS, scale.nodes);
    let efficiency = results.at(&off, EFFICIENCY);
    section.claim(Claim {
        what: "all-pairs efficiency without caching".to_owned(),
        paper: "< 50 %".to_owned(),
        asked: "shown".to_owned(),
        ours: match efficiency {
            Some(spread) => format!("{} %", Unit::Percent.spread(spread)),
            None => results.why(&off),
        },
        verdict: if efficiency.is_some() { Verdict::Shown } else { Verdict::Absent },
    });
    let on = point(scale, FLDS, scale.nodes);
    let strict = results.spread(&on, |report| number(report, HIT_RATE_STRICT));
    let strict = strict.map_or_else(|| "-".to_owned(), |spread| Unit::Percent.spread(spread));
    let mut claim = Claim::at_least(
        "cache hit rate, all-pairs",
        "> 80 %",
        paper::ASKED_HIT_RATE_PERCENT,
        results.at(&on, HIT_RATE),
        &results.why(&on),
    );
    claim.ours.push_str(&format!("; of objects made elsewhere {strict} %"));
    section.claim(claim);
}

pub(super) fn points_8(scale: &Scale) -> Vec<(Point, u32)> {
    [FLDS, MDL, DEFAULT].map(|choice| (point(scale, choice, scale.nodes), scale.seeds)).to_vec()
}

pub(super) fn tell_8(scale: &Scale, results: &Results) -> Section {
    let mut section = Section::new("fig8", "Figure 8: utilization of FLDS and MDL over time");
    section.text(
        "Busy slots over all slots. The paper quotes no number for either graph; it tells of a \
         ramp-up while files move, and of a long tail under MDL that FLDS has not.",
    );
    let mut grid = Grid::new(
        "fig8",
        &[
            ("policy", None),
            ("utilization", Some(Unit::Percent)),
            ("makespan", Some(Unit::Seconds)),
            ("below one half in the last tenth", Some(Unit::Percent)),
        ],
    );
    let choices = [FLDS, MDL, DEFAULT];
    for choice in choices {
        let point = point(scale, choice, scale.nodes);
        let series = results.utilization(&point);
        if let Some(series) = &series {
            section.chart(
                &format!("fig8-{}", choice.label.to_lowercase()),
                &over_time(choice.label, series),
                &format!("{} at {} slots.", choice.label, scale.slots()),
            );
        }
        grid.row(vec![
            choice.label.into(),
            results.at(&point, "/utilization").into(),
            results.at(&point, "/makespan_s").into(),
            series.as_deref().and_then(tail).into(),
        ]);
    }
    section.grid(grid);
    section.missing(results, &choices.map(|choice| point(scale, choice, scale.nodes)));
    section
}

/// Utilization as an area.
pub(super) fn over_time(name: &str, series: &[(f64, f64)]) -> Chart {
    Chart::new(
        &format!("Utilization over time: {name}"),
        Axis::new("seconds").from(0.0),
        Axis::new("busy slots, percent").from(0.0).to(100.0),
    )
    .steps(name, series)
}

/// The share of the last tenth of a run in which fewer than half of the slots were busy.
fn tail(series: &[(f64, f64)]) -> Option<f64> {
    let last = &series[series.len() * 9 / 10..];
    let low = last.iter().filter(|(_, percent)| *percent < 50.0).count();
    (!last.is_empty()).then(|| low as f64 / last.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_tenth() {
        let busy = |percent: [f64; 20]| -> Vec<(f64, f64)> {
            percent.into_iter().enumerate().map(|(at, value)| (at as f64, value)).collect()
        };
        let mut percent = [0.0; 20];
        percent[18] = 80.0;
        assert_eq!(tail(&busy(percent)), Some(0.5));
        assert_eq!(tail(&[]), None);
    }
}

//! All policies on all workloads: the choice of the default policy, and its reason.

use std::path::PathBuf;

use super::paper::{DAGS, Dag};
use super::point::Point;
use super::policies::{ALL, Choice, DEFAULT};
use super::results::Results;
use super::scale::Scale;
use super::section::{Cell, Claim, Grid, Section, Unit, Verdict};
use super::{all_pairs, dags, field, stacking};

const MAKESPAN: &str = "/makespan_s";
/// Smaller differences do not count: they are below a round of tasks.
const ALIKE: f64 = 0.001;

/// Workloads that count as one.
struct Family {
    name: String,
    /// For each workload its point under each choice.
    works: Vec<[Point; ALL.len()]>,
    repeats: u32,
}

fn families(scale: &Scale, recorded: &[PathBuf]) -> Vec<Family> {
    let alone = |name: &str, repeats: u32, point: &dyn Fn(Choice) -> Point| Family {
        name: name.to_owned(),
        works: vec![ALL.map(point)],
        repeats,
    };
    let once = scale.seeds_of_curves;
    let dag =
        |dag: &Dag| alone(dag.name, once, &|choice| dags::point(scale, dag, choice, scale.nodes));
    let mut all: Vec<Family> = DAGS.iter().map(dag).collect();
    all.push(alone("all-pairs", once, &|choice| all_pairs::point(scale, choice, scale.nodes)));
    all.push(alone("image stacking", once, &|choice| stacking::point_5b(scale, choice)));
    for (name, workload, nodes) in field::works(scale) {
        all.push(alone(name, once, &|choice| field::point(choice, &workload, nodes)));
    }
    if !recorded.is_empty() {
        let of = |file: &PathBuf| ALL.map(|choice| field::recorded_point(choice, file));
        let works = recorded.iter().map(of).collect();
        let name = format!("{} recorded workflows", recorded.len());
        all.push(Family { name, works, repeats: scale.seeds });
    }
    all
}

pub(super) fn points(scale: &Scale, recorded: &[PathBuf]) -> Vec<(Point, u32)> {
    let of = |family: Family| {
        let repeats = family.repeats;
        family.works.into_iter().flatten().map(move |point| (point, repeats))
    };
    families(scale, recorded).into_iter().flat_map(of).collect()
}

/// The shortest makespan over that of each choice; `None` if a choice has none.
fn scores(makespans: [Option<f64>; ALL.len()]) -> [Option<f64>; ALL.len()] {
    let best = makespans.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    makespans.map(|makespan| makespan.map(|makespan| best / makespan))
}

/// The geometric mean; `None` if a score is missing or there is none.
fn mean(scores: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let logarithms: Vec<f64> = scores.map(|score| score.map(f64::ln)).collect::<Option<_>>()?;
    let count = logarithms.len() as f64;
    (count > 0.0).then(|| (logarithms.iter().sum::<f64>() / count).exp())
}

/// The score of each choice for a family.
fn score(family: &Family, results: &Results) -> [Option<f64>; ALL.len()] {
    let of = |work: &[Point; ALL.len()]| {
        scores(std::array::from_fn(|at| results.median(&work[at], MAKESPAN)))
    };
    let works: Vec<_> = family.works.iter().map(of).collect();
    std::array::from_fn(|at| mean(works.iter().map(|scores| scores[at])))
}

pub(super) fn tell(scale: &Scale, results: &Results, recorded: &[PathBuf]) -> Section {
    let mut section = Section::new("ranking", "All policies on all workloads");
    section.text(
        "The shortest makespan of all these over that of each, for the paper's parameters and \
         scale as in the figures above; of several workloads in a row the geometric mean. Each row \
         counts once. The paper's policies order their ready queues by bytes, as it says; \
         earliest finish (EFT) is shown by bytes, by the longest path to the end of the graph, and \
         by such paths where they may decide when the job ends, which is the default.",
    );
    if recorded.is_empty() {
        section.note("Without recorded workflows: none were found.");
    }
    let families = families(scale, recorded);
    let table: Vec<_> = families.iter().map(|family| score(family, results)).collect();
    let mut columns = vec![("workload", None)];
    columns.extend(ALL.map(|choice| (choice.label, Some(Unit::Percent))));
    let mut grid = Grid::new("ranking", &columns);
    let mut row = |name: &str, cells: [Option<f64>; ALL.len()]| {
        grid.row([Cell::from(name)].into_iter().chain(cells.map(Cell::from)).collect());
    };
    for (family, scores) in families.iter().zip(&table) {
        row(&family.name, *scores);
    }
    let of_all = |at: usize| table.iter().map(move |scores| scores[at]);
    let means: [_; ALL.len()] = std::array::from_fn(|at| mean(of_all(at)));
    row("geometric mean", means);
    let worst = |at| of_all(at).flatten().reduce(f64::min);
    row("the worst", std::array::from_fn(worst));
    section.grid(grid);
    section.claim(claim(means));
    let points: Vec<Point> = families.into_iter().flat_map(|it| it.works).flatten().collect();
    section.missing(results, &points);
    section
}

/// The claim that the default is first.
fn claim(means: [Option<f64>; ALL.len()]) -> Claim {
    let default = ALL.iter().zip(means).find(|(choice, _)| **choice == DEFAULT);
    let default = default.and_then(|(_, mean)| mean);
    let others = ALL.iter().zip(means).filter(|(choice, _)| **choice != DEFAULT);
    let next = others
        .filter_map(|(choice, mean)| Some((choice.label, mean?)))
        .max_by(|one, other| one.1.total_cmp(&other.1));
    let (ours, verdict) = match (default, next) {
        (Some(own), Some((label, next))) => (
            format!(
                "{:.1} % of the best of all; the next, {label}: {:.1} %",
                100.0 * own,
                100.0 * next
            ),
            Verdict::of(own >= next - ALIKE),
        ),
        _ => ("not all was run".to_owned(), Verdict::Absent),
    };
    Claim {
        what: "the default against all policies, over all workloads".to_owned(),
        paper: "-".to_owned(),
        asked: "the default is what wins the comparison".to_owned(),
        ours,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: [Option<f64>; ALL.len()] = [None; ALL.len()];

    fn made(of: impl Fn(usize) -> f64) -> [Option<f64>; ALL.len()] {
        std::array::from_fn(|at| Some(of(at)))
    }

    #[test]
    fn the_best_has_all_and_the_others_their_share() {
        let last = ALL.len() - 1;
        let makespans = made(|at| if at == last { 10.0 } else { 20.0 });
        assert_eq!(scores(makespans), made(|at| if at == last { 1.0 } else { 0.5 }));
        assert_eq!(scores(NOTHING), NOTHING);
        let two = mean([Some(0.25), Some(1.0)].into_iter()).unwrap();
        assert!((two - 0.5).abs() < 1e-12);
        assert_eq!((mean([Some(1.0), None].into_iter()), mean([].into_iter())), (None, None));
    }

    #[test]
    fn the_default_has_to_be_first() {
        let default = ALL.iter().position(|choice| *choice == DEFAULT).unwrap();
        let verdict = |own: f64| claim(made(|at| if at == default { own } else { 0.9 })).verdict;
        assert_eq!(verdict(0.95), Verdict::Met);
        assert_eq!(verdict(0.85), Verdict::Missed);
        assert_eq!(claim(NOTHING).verdict, Verdict::Absent);
    }
}

//! Tests on instances with known optima, where this machine has them.

use std::path::PathBuf;

use crate::problems::brute::search;
use crate::problems::{jobshop, knapsack, qap, tsp};
use crate::{Goal, Problem};

/// The texts and optima of a folder's table; none, and a printed reason, if it is absent.
fn instances(folder: &str, ending: &str) -> Vec<(String, String, i64)> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
    let folder = root.join(folder);
    let Ok(table) = std::fs::read_to_string(folder.join("optimal.csv")) else {
        println!("skipped: {} is absent", folder.display());
        return Vec::new();
    };
    let mut rows = table.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let header = rows.next().expect("the table has a header");
    let column = header.iter().position(|name| *name == "optimal").expect("it has optima");
    let row = |row: Vec<&str>| {
        let file = folder.join(format!("{}{ending}", row[0]));
        let text = std::fs::read_to_string(&file).expect("the table names files that exist");
        (row[0].to_owned(), text, row[column].parse().expect("an optimum is a number"))
    };
    rows.map(row).collect()
}

/// The start is not better than the optimum, and no bound excludes it.
fn check_root<P: Problem>(name: &str, problem: &P, optimum: i64) {
    let start = problem.start().expect("each problem of a file has a start");
    assert!(!P::GOAL.is_better(start.value, optimum), "the start of {name} is {}", start.value);
    // With the optimum as the start, the root may exclude all other solutions.
    if start.value != optimum {
        let bound = problem.bound(&problem.root(), P::GOAL.worst());
        assert!(!P::GOAL.is_better(optimum, bound), "{name} has the bound {bound}");
    }
    println!("{name}: start {}, optimum {optimum}", start.value);
}

#[test]
fn bounds_and_starts_enclose_known_optima() {
    for (name, text, optimum) in instances("tsplib", ".tsp") {
        let instance = tsp::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        check_root(&name, &tsp::Tsp::new(instance.clone()), optimum);
        if let Ok(paths) = tsp::Paths::new(instance) {
            check_root(&name, &paths, optimum);
        }
    }
    for (name, text, optimum) in instances("knapsack", "") {
        let instance = knapsack::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(knapsack::Knapsack::GOAL, Goal::Maximise);
        check_root(&name, &knapsack::Knapsack::new(&instance), optimum);
    }
    for (name, text, optimum) in instances("qaplib", ".dat") {
        let instance = qap::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        check_root(&name, &qap::Qap::new(instance), optimum);
    }
    for (name, text, optimum) in instances("jobshop", "") {
        let instance = jobshop::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        check_root(&name, &jobshop::JobShop::new(instance), optimum);
    }
}

#[test]
fn tours_are_proved_from_a_bad_start() {
    for (name, text, optimum) in instances("tsplib", ".tsp") {
        let instance = tsp::parse(&text).expect("it is read");
        if instance.cities() > 48 {
            continue;
        }
        // Exchanging some cities makes the start longer by a few percent.
        let mut tour: Vec<usize> = (0..instance.cities()).collect();
        tsp::improve(&instance, &mut tour);
        tour.swap(1, 2);
        let found = search(tsp::Tsp::with_start(instance, tour));
        assert_eq!(found.value, optimum, "{name}");
    }
}

#[test]
fn items_are_proved_without_a_start() {
    for (name, text, optimum) in instances("knapsack", "") {
        if name.starts_with("f8") || name.starts_with("knapPI_3") || name.starts_with("jooken") {
            continue;
        }
        let instance = knapsack::parse(&text).expect("it is read");
        let found = search(knapsack::Knapsack::without_start(&instance));
        assert_eq!(found.value, optimum, "{name}");
    }
}

#[test]
fn assignments_are_proved_from_a_bad_start() {
    for (name, text, optimum) in instances("qaplib", ".dat") {
        let instance = qap::parse(&text).expect("it is read");
        if instance.size() > 10 {
            continue;
        }
        let identity = (0..instance.size()).collect();
        let found = search(qap::Qap::with_start(instance, identity));
        assert_eq!(found.value, optimum, "{name}");
    }
}

#[test]
fn schedules_are_proved_below_several_limits() {
    for (name, text, optimum) in instances("jobshop", "") {
        let instance = jobshop::parse(&text).expect("it is read");
        if instance.jobs().len() * instance.machines() > 50 {
            continue;
        }
        for more in [1, 2, 5, 10, 20] {
            let starts = vec![0; instance.jobs().len() * instance.machines()];
            let problem = jobshop::JobShop::with_start(instance.clone(), optimum + more, starts);
            let found = search(problem);
            assert_eq!(found.value, optimum, "{name} below {}", optimum + more);
        }
    }
}

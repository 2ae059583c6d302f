//! Tests of the parser, and of the search against all orders on all machines.

use proptest::prelude::*;

use crate::Problem;
use crate::problems::brute::{permutations, search};
use crate::problems::jobshop::{Instance, JobShop, Operation, parse};

/// Up to three jobs on up to three machines.
fn instances() -> impl Strategy<Value = Instance> {
    (1_usize..=3, 1_usize..=3, prop_oneof![Just(3_i64), Just(20)]).prop_flat_map(
        |(jobs, machines, most)| {
            let machine_orders = Just((0..machines).collect::<Vec<usize>>()).prop_shuffle();
            let job = (machine_orders, proptest::collection::vec(0..most, machines)).prop_map(
                |(order, durations)| {
                    let operations = order.into_iter().zip(durations);
                    operations.map(|(machine, duration)| Operation { machine, duration }).collect()
                },
            );
            let jobs = proptest::collection::vec(job, jobs);
            jobs.prop_map(move |jobs| Instance { machines, jobs })
        },
    )
}

/// The length of the schedule of some orders, by relaxation; none if they contradict.
fn length(instance: &Instance, orders: &[&Vec<usize>]) -> Option<i64> {
    let jobs = instance.jobs.len();
    let duration = instance.durations();
    let mut starts = vec![0; duration.len()];
    for _ in 0..=duration.len() {
        let before = starts.clone();
        let mut after = |one: usize, other: usize| {
            starts[other] = starts[other].max(starts[one] + duration[one]);
        };
        for (job, operations) in instance.jobs.iter().enumerate() {
            for pair in operations.windows(2) {
                after(pair[0].machine * jobs + job, pair[1].machine * jobs + job);
            }
        }
        for (machine, order) in orders.iter().enumerate() {
            for pair in order.windows(2) {
                after(machine * jobs + pair[0], machine * jobs + pair[1]);
            }
        }
        if before == starts {
            return starts.iter().zip(&duration).map(|(start, duration)| start + duration).max();
        }
    }
    None
}

fn shortest(instance: &Instance) -> i64 {
    let all = permutations(instance.jobs.len());
    let mut chosen: Vec<Vec<&Vec<usize>>> = vec![Vec::new()];
    for _ in 0..instance.machines {
        let with = |orders: Vec<_>| all.iter().map(move |order| [&orders[..], &[order]].concat());
        chosen = chosen.into_iter().flat_map(with).collect();
    }
    chosen.iter().filter_map(|orders| length(instance, orders)).min().unwrap()
}

/// Whether the starts are a schedule of this length.
fn is_right(instance: &Instance, witness: &[i64], value: i64) -> bool {
    let mut spans = vec![Vec::new(); instance.machines];
    let mut starts = witness.iter();
    let mut last = 0;
    for operations in &instance.jobs {
        let mut free = 0;
        for operation in operations {
            let start = *starts.next().expect("each operation has a start");
            if start < free {
                return false;
            }
            free = start + operation.duration;
            spans[operation.machine].push((start, free));
        }
        last = last.max(free);
    }
    let overlaps = |spans: &mut Vec<(i64, i64)>| {
        spans.retain(|(start, end)| start < end);
        spans.sort_unstable();
        spans.windows(2).any(|pair| pair[1].0 < pair[0].1)
    };
    last == value && !spans.iter_mut().any(overlaps)
}

proptest! {
    #[test]
    fn the_search_finds_the_shortest_of_all_schedules(instance in instances()) {
        let least = shortest(&instance);
        let problem = JobShop::new(instance.clone());
        let start = problem.start().unwrap();
        prop_assert!(is_right(&instance, &start.witness, start.value));
        // A long start: then the search itself must find the shortest schedule.
        let long = JobShop::with_start(instance.clone(), least + 7, Vec::new());
        let root = long.root();
        prop_assert!(long.bound(&root, i64::MAX) <= least);
        let near = JobShop::with_start(instance.clone(), least + 1, vec![0; 9]);
        for problem in [near, problem] {
            let found = search(problem);
            prop_assert_eq!(found.value, least);
            prop_assert!(is_right(&instance, &found.witness, least));
        }
    }
}

#[test]
fn errors_name_the_line() {
    for (text, error) in [
        ("# x\n", "line 1: the text ends before the number of jobs"),
        ("1 65\n", "line 1: the number of machines is 65, but it must be from 1 to 64"),
        ("1 2\n0 5 0 6", "line 2: job 1 visits machine 0 twice"),
        (
            "1 2\n0 5 2 6",
            "line 2: the machine of operation 2 of job 1 is 2, but it must be from 0 to 1",
        ),
        ("1 2\n0 5 1", "line 2: the text ends before the duration of operation 2 of job 1"),
        ("1 1\n0 5\n6", "line 3: `6` follows the last of 1 jobs"),
    ] {
        assert_eq!(parse(text).expect_err(error).to_string(), error);
    }
}

//! Tests of the parser, and of the search against all sets of items.

use proptest::prelude::*;

use crate::problems::brute::search;
use crate::problems::knapsack::{Instance, Item, Knapsack, parse};

fn instances() -> impl Strategy<Value = Instance> {
    let amounts = prop_oneof![Just((30_i64, 30_i64)), Just((5, 1_000_000_000_000))];
    amounts.prop_flat_map(|(low, high)| {
        let item = (0..high, prop_oneof![0..low, 0..high])
            .prop_map(|(profit, weight)| Item { profit, weight });
        (proptest::collection::vec(item, 1..10), 0..3 * high)
            .prop_map(|(items, capacity)| Instance { items, capacity })
    })
}

fn sum(items: impl Iterator<Item = Item>) -> (i64, i64) {
    items.fold((0, 0), |sum, item| (sum.0 + item.profit, sum.1 + item.weight))
}

fn best_of_all(instance: &Instance) -> i64 {
    let set = |bits: u32| {
        let items = instance.items.iter().enumerate();
        sum(items.filter(move |(at, _)| bits >> at & 1 == 1).map(|(_, item)| *item))
    };
    let sets = (0..1 << instance.items.len()).map(set);
    sets.filter(|set| set.1 <= instance.capacity).map(|set| set.0).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn the_search_finds_the_best_of_all_sets(instance in instances()) {
        let best = best_of_all(&instance);
        for problem in [Knapsack::new(&instance), Knapsack::without_start(&instance)] {
            let found = search(problem);
            let item = |at: &i64| instance.items[usize::try_from(*at).unwrap()];
            let taken = found.witness.iter().map(item);
            let (profit, weight) = sum(taken);
            prop_assert_eq!((found.value, profit), (best, best));
            prop_assert!(weight <= instance.capacity);
            prop_assert!(found.witness.is_sorted_by(|a, b| a < b));
        }
    }
}

#[test]
fn a_file_with_and_without_a_solution_is_read() {
    let items = vec![Item { profit: 6, weight: 2 }, Item { profit: 10, weight: 4 }];
    let instance = Instance { items, capacity: 5 };
    assert_eq!(parse("2 5\n6 2\n10 4\n"), Ok(instance.clone()));
    assert_eq!(parse("2 5\n6 2\n10 4\n0 1\n"), Ok(instance));
}

#[test]
fn errors_name_the_line() {
    for (text, error) in [
        ("", "line 1: the text ends before the number of items"),
        ("0 5", "line 1: the number of items is 0, but it must be from 1 to 100000"),
        ("2 5\n6 2\n10", "line 3: the text ends before the weight of item 2"),
        ("2 5\n6 2.5\n10 4", "line 2: the weight of item 1: `2.5` is no whole number"),
        ("2 5\n6 2\n10 4\n7", "line 4: `7` follows the last of 2 items"),
        ("2 5\n6 2\n10 4\n1", "line 4: the solution has 1 marks for 2 items"),
        ("2 -5\n6 2\n10 4\n", "line 1: the capacity is -5, but it must be from 0 to"),
    ] {
        let found = parse(text).expect_err(error).to_string();
        assert!(found.starts_with(error), "{found} instead of {error}");
    }
}

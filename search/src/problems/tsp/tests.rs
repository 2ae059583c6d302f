//! Tests of the parser, and of both searches against all permutations.

use proptest::prelude::*;

use crate::problems::brute::{permutations, search};
use crate::problems::tsp::{Instance, Paths, Tsp, parse};
use crate::{Problem, Solution};

/// Symmetric distances of `cities` cities.
fn symmetric(cities: usize, numbers: &[i64]) -> Instance {
    let mut numbers = numbers.iter();
    let mut distances = vec![0; cities * cities];
    for one in 0..cities {
        for other in 0..one {
            let distance = *numbers.next().expect("there is one for each pair");
            distances[one * cities + other] = distance;
            distances[other * cities + one] = distance;
        }
    }
    Instance::new(cities, distances)
}

fn instances() -> impl Strategy<Value = Instance> {
    let few = prop_oneof![Just(3_i64), Just(50), Just(100_000)];
    (3_usize..=7, few).prop_flat_map(|(cities, most)| {
        proptest::collection::vec(0..most, cities * (cities - 1) / 2)
            .prop_map(move |numbers| symmetric(cities, &numbers))
    })
}

fn is_right(instance: &Instance, found: &Solution) -> bool {
    let tour: Vec<usize> =
        found.witness.iter().map(|&city| usize::try_from(city).unwrap()).collect();
    let mut sorted = tour.clone();
    sorted.sort_unstable();
    sorted == (0..instance.cities()).collect::<Vec<_>>() && instance.length(&tour) == found.value
}

proptest! {
    #[test]
    fn both_searches_find_the_shortest_of_all_tours(instance in instances()) {
        let tours = permutations(instance.cities());
        let least = tours.iter().map(|tour| instance.length(tour)).min().unwrap();
        // The identity is a bad start: then the search itself must find the best tour.
        let identity: Vec<usize> = (0..instance.cities()).collect();
        for found in [
            search(Tsp::with_start(instance.clone(), identity.clone())),
            search(Tsp::new(instance.clone())),
            search(Paths::with_start(instance.clone(), identity)),
        ] {
            prop_assert_eq!(found.value, least);
            prop_assert!(is_right(&instance, &found));
        }
    }

    #[test]
    fn the_bound_of_the_root_is_not_above_the_shortest_tour(instance in instances()) {
        let tours = permutations(instance.cities());
        let longest = tours.iter().max_by_key(|tour| instance.length(tour)).unwrap().clone();
        let least = tours.iter().map(|tour| instance.length(tour)).min().unwrap();
        if least < instance.length(&longest) {
            let problem = Tsp::with_start(instance.clone(), longest);
            let root = problem.root();
            prop_assert!(problem.bound(&root, i64::MAX) <= least);
        }
    }
}

const SQUARE: &str = "NAME: square\nTYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EUC_2D\n\
    NODE_COORD_SECTION\n1 0 0\n2 10 10\n3 10 0\n4 0 10.4\nEOF\n";

#[test]
fn a_path_has_at_most_64_cities() {
    let many = Paths::new(symmetric(65, &[1; 65 * 32])).map(|_| ()).unwrap_err();
    assert_eq!(many.to_string(), "a path may have 64 cities, but there are 65");
    assert_eq!(search(Paths::new(symmetric(64, &[1; 63 * 32])).unwrap()).value, 64);
}

#[test]
fn a_square_is_read_and_solved() {
    let instance = parse(SQUARE).unwrap();
    assert_eq!(instance.distance(0, 3), 10);
    assert_eq!(instance.distance(0, 1), 14);
    assert_eq!(search(Tsp::new(instance)).value, 40);
}

/// A file of three cities with explicit weights.
fn explicit(form: &str, body: &str) -> String {
    format!(
        "TYPE: TSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: {form}\n\
         EDGE_WEIGHT_SECTION\n{body}\nEOF\n"
    )
}

#[test]
fn all_forms_of_a_matrix_are_the_same() {
    for (form, body) in [
        ("FULL_MATRIX", "0 1 2\n1 0 3\n2 3 0"),
        ("UPPER_ROW", "1 2\n3"),
        ("LOWER_ROW", "1\n2 3"),
        ("UPPER_DIAG_ROW", "0 1 2 0\n3 0"),
        ("LOWER_DIAG_ROW", " 0\n 1 0 2\n 3 0 "),
    ] {
        let instance = parse(&explicit(form, body)).unwrap();
        assert_eq!(instance, Instance::new(3, vec![0, 1, 2, 1, 0, 3, 2, 3, 0]), "{form}");
    }
}

#[test]
fn metrics_are_those_of_tsplib() {
    let distance = |metric: &str, from: &str, to: &str| {
        let text = SQUARE.replace("EUC_2D", metric);
        let text = text.replace("1 0 0", &format!("1 {from}"));
        parse(&text.replace("2 10 10", &format!("2 {to}"))).unwrap().distance(0, 1)
    };
    assert_eq!(distance("CEIL_2D", "0 0", "1 1"), 2);
    assert_eq!(distance("EUC_2D", "0 0", "1 1"), 1);
    // The first two cities of att48 and of burma14.
    assert_eq!(distance("ATT", "6734 1453", "2233 10"), 1_495);
    assert_eq!(distance("GEO", "16.47 96.10", "16.47 94.44"), 153);
}

#[test]
fn errors_name_the_line() {
    let square = |from: &str, to: &str| SQUARE.replace(from, to);
    for (text, error) in [
        (square("TYPE: TSP", "TYPE: ATSP"), "line 2: TYPE is ATSP, only TSP is supported"),
        (square("DIMENSION: 4", "DIMENSION: 2"), "line 3: DIMENSION is `2`, but it must be"),
        (square("TYPE: TSP", "DIMENSION: 5"), "line 3: DIMENSION is there twice"),
        (square("EUC_2D", "XRAY1"), "line 4: EDGE_WEIGHT_TYPE is XRAY1, "),
        (square("3 10 0", "3 10"), "line 8: a city has 3 words, here are 2"),
        (square("3 10 0", "3 10 x"), "line 8: `x` is no coordinate"),
        (square("3 10 0", "7 10 0"), "line 8: `7` is no city from 1 to 4"),
        (square("3 10 0", "2 10 0"), "line 8: city 2 is there twice"),
        (square("3 10 0\n", ""), "line 8: city 3 has no coordinates"),
        (square("DIMENSION: 4\n", ""), "line 4: NODE_COORD_SECTION comes before DIMENSION"),
        (square("TYPE: TSP", "TIPE: TSP"), "line 2: `TIPE` is no keyword of TSPLIB"),
        (explicit("UPPER_ROW", "1 2\nx"), "line 7: the distance of 2 and 3: `x` is no"),
        (explicit("UPPER_ROW", "1 2\n3 4"), "line 7: `4` follows the last distance of 3 cities"),
        (explicit("UPPER_ROW", "1 2"), "line 6: the text ends before the distance of 2 and 3"),
        (explicit("FULL_MATRIX", "0 1 2\n1 0 3\n2 4 0"), "line 8: the distance of 3 and 2 differs"),
        (explicit("SPARSE", "1"), "line 4: EDGE_WEIGHT_FORMAT SPARSE is not supported"),
        ("TYPE: TSP\nDIMENSION: 3\n".to_owned(), "line 2: there are neither coordinates nor"),
        (String::new(), "line 1: there is no DIMENSION"),
    ] {
        let found = parse(&text).expect_err(error).to_string();
        assert!(found.starts_with(error), "{found} instead of {error}");
    }
}

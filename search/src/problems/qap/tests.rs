//! Tests of the parser, and of the search against all permutations.

use proptest::prelude::*;

use crate::Problem;
use crate::problems::brute::{permutations, search};
use crate::problems::qap::{Instance, Qap, parse, symmetry};

/// Matrices of few and of many different numbers, symmetric or not.
fn instances() -> impl Strategy<Value = Instance> {
    let most = prop_oneof![Just(2_i64), Just(6), Just(1_000)];
    (1_usize..=6, most, any::<bool>()).prop_flat_map(|(size, most, is_symmetric)| {
        let matrix = proptest::collection::vec(0..most, size * size).prop_map(move |mut matrix| {
            for row in 0..size {
                for column in 0..row {
                    if is_symmetric {
                        matrix[row * size + column] = matrix[column * size + row];
                        matrix[row * size + row] = 0;
                        matrix[0] = 0;
                    }
                }
            }
            matrix
        });
        (matrix.clone(), matrix).prop_map(move |(flows, distances)| Instance {
            size,
            flows,
            distances,
        })
    })
}

fn locations(witness: &[i64]) -> Vec<usize> {
    witness.iter().map(|&location| usize::try_from(location).unwrap()).collect()
}

proptest! {
    #[test]
    fn the_search_finds_the_cheapest_of_all_assignments(instance in instances()) {
        let all = permutations(instance.size);
        let least = all.iter().map(|locations| instance.cost(locations)).min().unwrap();
        let worst = all.iter().max_by_key(|locations| instance.cost(locations)).unwrap();
        let starts = [Qap::new(instance.clone()), Qap::with_start(instance.clone(), worst.clone())];
        for problem in starts {
            let root = problem.root();
            prop_assert!(problem.bound(&root, i64::MAX) <= least);
            let found = search(problem);
            prop_assert_eq!(found.value, least);
            prop_assert!(all.contains(&locations(&found.witness)));
            prop_assert_eq!(instance.cost(&locations(&found.witness)), least);
        }
    }

    #[test]
    fn symmetries_keep_the_cost_of_each_assignment(instance in instances()) {
        for symmetry in symmetry::group(&instance) {
            for locations in permutations(instance.size) {
                let moved: Vec<usize> =
                    locations.iter().map(|&location| usize::from(symmetry[location])).collect();
                prop_assert_eq!(instance.cost(&locations), instance.cost(&moved));
            }
        }
    }
}

#[test]
fn a_ring_has_eight_symmetries_and_one_representative() {
    let instance = parse("4  0 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6  0 1 2 1 1 0 1 2 2 1 0 1 1 2 1 0");
    let group = symmetry::group(&instance.unwrap());
    assert_eq!(group.len(), 8);
    assert_eq!(symmetry::representatives(&group, &[], 0b1111), 0b0001);
    // With location 0 in place, its neighbours 1 and 3 are the same.
    assert_eq!(symmetry::representatives(&group, &[0], 0b1110), 0b0110);
    assert_eq!(symmetry::representatives(&group, &[0, 1], 0b1100), 0b1100);
}

#[test]
fn errors_name_the_line() {
    for (text, error) in [
        ("", "line 1: the text ends before the size"),
        ("65", "line 1: the size is 65, but it must be from 1 to 64"),
        ("2\n0 1\n1 0\n0 2\n2", "line 5: the text ends before the distance of 2 and 2"),
        ("2\n0 x\n1 0\n0 2\n2 0", "line 2: the flow of 1 and 2: `x` is no whole number"),
        ("1\n0\n-1", "line 3: the distance of 1 and 1 is -1, but it must be from 0 to 10000000"),
        ("1\n0\n1\n2", "line 4: `2` follows two matrices of 1 rows"),
    ] {
        assert_eq!(parse(text).expect_err(error).to_string(), error);
    }
}

//! The linear assignment problem, by shortest augmenting paths with dual prices (Hungarian method).

/// The cheapest assignment of rows to columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Assignment {
    pub(crate) cost: i64,
    /// By row: its column.
    pub(crate) columns: Vec<usize>,
    /// By row and column: the cost above the prices of both. It is never negative, and another
    /// assignment that uses the pair costs at least that much more.
    pub(crate) reduced: Vec<i64>,
}

/// Solves a square matrix of `size` rows. Each row is added by one augmenting path.
pub(crate) fn solve(costs: &[i64], size: usize) -> Assignment {
    debug_assert_eq!(costs.len(), size * size, "the matrix is square");
    // Column `size` stands for no column: it holds the row that is added.
    let mut row_price = vec![0; size];
    let mut column_price = vec![0; size + 1];
    let mut row_of: Vec<Option<usize>> = vec![None; size + 1];
    let mut before = vec![size; size + 1];
    for added in 0..size {
        row_of[size] = Some(added);
        let mut least = vec![i64::MAX; size + 1];
        let mut is_done = vec![false; size + 1];
        let mut column = size;
        while let Some(row) = row_of[column] {
            is_done[column] = true;
            let (mut delta, mut next) = (i64::MAX, size);
            for other in (0..size).filter(|&other| !is_done[other]) {
                let reduced = costs[row * size + other] - row_price[row] - column_price[other];
                if reduced < least[other] {
                    (least[other], before[other]) = (reduced, column);
                }
                if least[other] < delta {
                    (delta, next) = (least[other], other);
                }
            }
            for other in 0..=size {
                if is_done[other] {
                    if let Some(row) = row_of[other] {
                        row_price[row] += delta;
                    }
                    column_price[other] -= delta;
                } else {
                    least[other] = least[other].saturating_sub(delta);
                }
            }
            column = next;
        }
        while column != size {
            row_of[column] = row_of[before[column]];
            column = before[column];
        }
    }
    let mut columns = vec![0; size];
    for (column, row) in row_of.iter().take(size).enumerate() {
        if let Some(row) = row {
            columns[*row] = column;
        }
    }
    let cost = columns.iter().enumerate().map(|(row, column)| costs[row * size + column]).sum();
    let cell = |at: usize| costs[at] - row_price[at / size] - column_price[at % size];
    Assignment { cost, columns, reduced: (0..size * size).map(cell).collect() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::problems::brute::permutations;

    proptest! {
        #[test]
        fn the_cost_is_the_least_of_all_permutations(
            costs in proptest::collection::vec(-20_i64..20, 25),
            size in 1_usize..=5,
        ) {
            let costs = &costs[..size * size];
            let found = solve(costs, size);
            let cost = |columns: &[usize]| -> i64 {
                columns.iter().enumerate().map(|(row, column)| costs[row * size + column]).sum()
            };
            let least = permutations(size).iter().map(|columns| cost(columns)).min();
            prop_assert_eq!(Some(found.cost), least);
            prop_assert_eq!(cost(&found.columns), found.cost);
            prop_assert!(found.reduced.iter().all(|&reduced| reduced >= 0));
            for columns in permutations(size) {
                let more: i64 = columns
                    .iter()
                    .enumerate()
                    .map(|(row, column)| found.reduced[row * size + column])
                    .sum();
                prop_assert_eq!(cost(&columns), found.cost + more);
            }
        }
    }
}

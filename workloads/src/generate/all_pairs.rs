//! All-pairs: every file of one set is compared with every file of another.
//!
//! Pairs are generated in *tiles*, squares of the table of pairs, so that consecutive pairs read
//! few files. A tile of 50 x 50 pairs reads 100 files; 2,500 random pairs read nearly all.

use std::ops::Range;

use proto::wire;

use super::keys::Keys;
use super::{Data, KIND_LOAD, STREAM_ORDER, STREAM_SIZE};
use super::{body_and_duration, output_of, spec_of};
use crate::generate::random::Shuffle;
use crate::graph::Graph;
use crate::graph::builder::{GraphBuilder, TaskInit};
use crate::graph::error::GeneratorError;
use crate::graph::quantity::parse_size_bytes;
use crate::limits::GRAPH_TASKS_MAX;

/// The default number of tiles along each side: 100 tiles, one for each node of the paper.
const TILES_DEFAULT: u32 = 10;

#[derive(Clone, Copy, Debug)]
enum Order {
    Tiles { side: u32 },
    Rows,
    Random,
}

pub(super) fn build(keys: &mut Keys<'_>) -> Result<Graph, GeneratorError> {
    let files = keys.positive("files")?;
    let count = u64::from(files) * u64::from(files) + 2 * u64::from(files);
    if count > GRAPH_TASKS_MAX as u64 {
        let reason = format!("that makes more than {} tasks", GRAPH_TASKS_MAX);
        return Err(keys.bad("files", reason));
    }
    let order = order(keys, files)?;
    let seed = keys.number("seed")?;
    let (body, duration) = body_and_duration(keys)?;
    let size = keys.draw("size", parse_size_bytes)?.expect("it has a default");
    let output = keys.draw("output", parse_size_bytes)?;
    let mut builder = GraphBuilder::new(keys.text);
    let pairs = u64::from(files) * u64::from(files);
    builder.reserve(count as usize, 2 * pairs as usize);
    keys.data_load(&mut builder)?;
    for (at, set) in ["a{i}", "b{i}"].into_iter().enumerate() {
        let noop = wire::spec::Body::Noop(wire::Noop {});
        let load = spec_of(KIND_LOAD, set, noop, [output_of("out", set, size)]);
        let load = builder.spec(load);
        for entry in 0..u64::from(files) {
            let number = at as u64 * u64::from(files) + entry;
            let bytes = size.fixed().is_none().then(|| size.at(seed, STREAM_SIZE, number));
            builder.task(TaskInit { entry, output_sizes: bytes.as_slice(), ..TaskInit::of(load) });
        }
    }
    let result = output.map(|draw| output_of("out", "p{i}.out", draw));
    let pair = builder.spec(spec_of("pair", "p{i}", body, result));
    let data = Data { seed };
    let mut add = |row: u32, column: u32| {
        let entry = u64::from(row) * u64::from(files) + u64::from(column);
        let draw = output.filter(|draw| draw.fixed().is_none());
        let bytes = draw.map(|draw| data.size(draw, entry));
        let task = builder.task(TaskInit {
            entry,
            duration_ns: duration.map_or(0, |draw| data.duration_ns(draw, entry)),
            output_sizes: bytes.as_slice(),
            ..TaskInit::of(pair)
        });
        builder.edge(row, task, 1);
        builder.edge(files + column, task, 1);
    };
    visit(files, order, seed, &mut add);
    keys.finish(builder)
}

fn order(keys: &Keys<'_>, files: u32) -> Result<Order, GeneratorError> {
    let order = match keys.value("order") {
        Some("tiles") if keys.is_given("tile") => Order::Tiles { side: keys.positive("tile")? },
        Some("tiles") => Order::Tiles { side: files.div_ceil(TILES_DEFAULT) },
        Some("rows") => Order::Rows,
        Some("random") => Order::Random,
        _ => return Err(keys.bad("order", "known orders are tiles, rows and random".to_owned())),
    };
    if keys.is_given("tile") && !matches!(order, Order::Tiles { .. }) {
        return Err(keys.bad("tile", "it goes with order=tiles".to_owned()));
    }
    Ok(order)
}

/// Calls `add` once for each pair.
fn visit(files: u32, order: Order, seed: u64, add: &mut impl FnMut(u32, u32)) {
    match order {
        Order::Rows => {
            for row in 0..files {
                (0..files).for_each(|column| add(row, column));
            }
        }
        Order::Random => {
            let width = u64::from(files);
            let shuffle = Shuffle::new(seed, STREAM_ORDER, width * width);
            for at in 0..width * width {
                let pair = shuffle.at(at);
                add((pair / width) as u32, (pair % width) as u32);
            }
        }
        Order::Tiles { side } => {
            let tiles = files.div_ceil(side);
            let range = |tile: u32| tile * side..((tile + 1) * side).min(files);
            for band in 0..tiles {
                for step in 0..tiles {
                    // In alternating directions, so that neighbours in the order share a band of
                    // files.
                    let across = if band % 2 == 0 { step } else { tiles - 1 - step };
                    visit_block(range(band), range(across), add);
                }
            }
        }
    }
}

/// Visits a block by halves of its longer side, so that any run of its pairs is nearly square too.
fn visit_block(rows: Range<u32>, columns: Range<u32>, add: &mut impl FnMut(u32, u32)) {
    let mut stack = vec![(rows, columns)];
    while let Some((rows, columns)) = stack.pop() {
        if rows.len() <= 1 && columns.len() <= 1 {
            add(rows.start, columns.start);
        } else if rows.len() >= columns.len() {
            let middle = rows.start + rows.len() as u32 / 2;
            stack.push((middle..rows.end, columns.clone()));
            stack.push((rows.start..middle, columns));
        } else {
            let middle = columns.start + columns.len() as u32 / 2;
            stack.push((rows.clone(), middle..columns.end));
            stack.push((rows, columns.start..middle));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(files: u32, order: Order) -> Vec<(u32, u32)> {
        let mut met = Vec::new();
        visit(files, order, 1, &mut |row, column| met.push((row, column)));
        met
    }

    #[test]
    fn every_pair_once_in_every_order() {
        for files in [1, 2, 7, 12, 31] {
            for order in [Order::Rows, Order::Random, Order::Tiles { side: 5 }] {
                let mut met = pairs(files, order);
                met.sort_unstable();
                assert_eq!(met, pairs(files, Order::Rows), "{files} {order:?}");
            }
        }
    }

    /// The mean number of distinct files that a run of pairs reads.
    fn files_read(order: Order, run: usize) -> f64 {
        let met = pairs(100, order);
        let read = |run: &[(u32, u32)]| {
            let mut files: Vec<u32> =
                run.iter().flat_map(|(row, column)| [*row, 100 + *column]).collect();
            files.sort_unstable();
            files.dedup();
            files.len()
        };
        let runs = met.chunks(run);
        let count = runs.len();
        runs.map(read).sum::<usize>() as f64 / count as f64
    }

    #[test]
    fn runs_of_pairs_read_few_files() {
        let tiles = Order::Tiles { side: 10 };
        assert_eq!(files_read(tiles, 100), 20.0, "a tile is a run");
        assert_eq!(files_read(tiles, 50), 15.0, "and its half is a block");
        assert!(files_read(tiles, 170) < 38.0, "and what is no whole number of tiles");
        assert!(files_read(Order::Random, 100) > 120.0);
    }
}

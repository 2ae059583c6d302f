//! Times of claims. `cargo test -p resources --release -- --ignored --nocapture times`

use super::{pools, request};
use crate::{Claim, Pools};

/// Mean nanoseconds of a claim and its return.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn nanoseconds(node: &mut Pools, text: &str, rounds: u32) -> f64 {
    let fit = node.resolve(&request(text)).unwrap();
    let held: Vec<Claim> = (0..3).filter_map(|_| node.claim(&fit)).collect();
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        let claim = std::hint::black_box(&mut *node).claim(std::hint::black_box(&fit));
        node.free(claim.expect("there is room for one more"));
    }
    let mean = start.elapsed().as_nanos() as f64 / f64::from(rounds);
    held.into_iter().for_each(|claim| node.free(claim));
    mean
}

#[test]
#[ignore = "a measurement"]
fn times_of_claims() {
    let couplings: Vec<String> = (0..8).map(|at| format!("cpus[{at}]:gpus[{at}]")).collect();
    let couplings: Vec<&str> = couplings.iter().map(String::as_str).collect();
    let mut small = pools(&["cpus=8"], &[]);
    let mut large = pools(&["cpus=8x16", "gpus=8x1", "memory=sum(1TiB)"], &couplings);
    let cases = [
        ("one cpu, 1 group of 8", nanoseconds(&mut small, "", 10_000_000)),
        ("one cpu, 8 groups of 16", nanoseconds(&mut large, "", 10_000_000)),
        ("4 cpus", nanoseconds(&mut large, "cpus=4", 100_000)),
        ("half a cpu", nanoseconds(&mut large, "cpus=0.5", 100_000)),
        ("4 cpus, memory", nanoseconds(&mut large, "cpus=4,memory=1GiB", 100_000)),
        ("4 cpus, 1 gpu, coupled", nanoseconds(&mut large, "cpus=4,gpus=1", 10_000)),
        ("64 cpus, 2 gpus, coupled", nanoseconds(&mut large, "cpus=32 compact!,gpus=2", 1_000)),
    ];
    for (case, mean) in cases {
        println!("{case}: {mean:.1} ns");
    }
}

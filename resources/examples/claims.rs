//! Times of a claim and its return: `cargo run --release -p starling-resources --example claims`

#![expect(clippy::print_stdout, reason = "its output is what it is for")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use resources::{Claim, Offer, Pools, Request, parse_coupling, parse_pool};

fn node(pools: &[&str], couplings: &[String]) -> Result<Pools, Box<dyn Error>> {
    let pools = pools.iter().map(|text| parse_pool(text)).collect::<Result<_, _>>()?;
    let couplings = couplings.iter().map(|text| parse_coupling(text)).collect::<Result<_, _>>()?;
    Ok(Pools::new(Offer::new(pools, couplings)?))
}

/// Prints the mean of some rounds on a node with three such claims.
fn measure(node: &mut Pools, case: &str, text: &str, rounds: u32) -> Result<(), Box<dyn Error>> {
    let fit = node.resolve(&text.parse::<Request>()?).map_err(|why| why.to_string())?;
    let held: Vec<Claim> = (0..3).filter_map(|_| node.claim(&fit)).collect();
    let start = Instant::now();
    for _ in 0..rounds {
        let claim = black_box(&mut *node).claim(black_box(&fit));
        node.free(claim.ok_or("there is no room for a fourth claim")?);
    }
    let mean = start.elapsed().as_nanos() as f64 / f64::from(rounds);
    held.into_iter().for_each(|claim| node.free(claim));
    println!("{case}: {mean:.1} ns");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let couplings: Vec<String> = (0..8).map(|at| format!("cpus[{at}]:gpus[{at}]")).collect();
    let mut small = node(&["cpus=8"], &[])?;
    let mut large = node(&["cpus=8x16", "gpus=8x1", "memory=sum(1TiB)"], &couplings)?;
    measure(&mut small, "one cpu, 1 group of 8", "", 10_000_000)?;
    measure(&mut large, "one cpu, 8 groups of 16", "", 10_000_000)?;
    for (text, rounds) in [
        ("cpus=4", 100_000),
        ("cpus=0.5", 100_000),
        ("cpus=4,memory=1GiB", 100_000),
        ("cpus=4,gpus=1", 10_000),
        ("cpus=32 compact!,gpus=2", 1_000),
    ] {
        measure(&mut large, text, text, rounds)?;
    }
    Ok(())
}

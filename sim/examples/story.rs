//! Tells what happened under one seed: `cargo run -p sim --example story -- SEED [MUTANT]`.

use std::io::{BufWriter, Write};

use scheduler::Mutant;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seed = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let name = arguments.next();
    let mutant = Mutant::ALL.into_iter().find(|mutant| Some(mutant.name()) == name.as_deref());
    let report = sim::run_seed(seed, mutant, true);
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in &report.story {
        writeln!(out, "{line}")?;
    }
    match &report.failure {
        Some(failure) => writeln!(out, "{}: {}", failure.checker, failure.message)?,
        None => writeln!(out, "no demand was broken")?,
    }
    writeln!(out, "trace {:016x}", report.trace_hash)
}

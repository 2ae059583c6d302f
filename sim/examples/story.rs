//! Prints the events of one seed: `cargo run -p sim --example story -- SEED [MUTANT]`.

use std::io::{BufWriter, Write};

use scheduler::Mutant;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seed = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let name = arguments.next();
    let mutant = name.map(|name| {
        let mut all = Mutant::every();
        all.find(|mutant| mutant.name() == name).unwrap_or_else(|| {
            let names: Vec<&str> = Mutant::every().map(Mutant::name).collect();
            panic!("no mutant is called {name}; there are {}", names.join(", "))
        })
    });
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

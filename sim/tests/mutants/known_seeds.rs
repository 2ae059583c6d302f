//! The seed at which each mutant was found last. The search tries it first, and then all seeds.
//!
//! `STARLING_BLESS=1 cargo test -p starling-sim --test mutants` writes the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

/// Tests of one program run side by side, and each may write the file.
static FILE: Mutex<()> = Mutex::new(());

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mutants/known_seeds.txt")
}

/// A line is the name of a mutant, a blank and a seed.
fn read() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(path()).unwrap_or_default();
    let line = |line: &str| {
        let (name, seed) = line.split_once(' ')?;
        Some((name.to_owned(), seed.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// The seed to try first.
pub(crate) fn seed_of(mutant: &str) -> Option<u64> {
    let _file = FILE.lock();
    read().remove(mutant)
}

/// Writes another seed of a mutant into the file if `STARLING_BLESS` is set.
pub(crate) fn found_at(mutant: &str, seed: u64) {
    if std::env::var_os("STARLING_BLESS").is_none() {
        return;
    }
    let _file = FILE.lock();
    let mut seeds = read();
    seeds.insert(mutant.to_owned(), seed);
    let lines: String = seeds.iter().map(|(name, seed)| format!("{name} {seed}\n")).collect();
    fs::write(path(), lines).expect("the source folder can be written");
}

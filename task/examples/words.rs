//! A map-reduce over files: the most frequent words.
//!
//! A call counts the words of each file. Further calls merge the counts, eight at a time, where
//! they are: only the last list comes to this program.
//!
//! ```sh
//! cargo run -p starling-task --example words -- docs/*.md
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use starling_task::{Cluster, Result, task};

/// The counts that one call merges.
const FAN_IN: usize = 8;

type Counts = BTreeMap<String, u64>;

#[task]
fn count(path: PathBuf) -> io::Result<Counts> {
    let text = std::fs::read_to_string(&path)
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    let mut counts = Counts::new();
    for word in text.split(|letter: char| !letter.is_alphabetic()).filter(|word| word.len() > 3) {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    Ok(counts)
}

#[task]
fn merge(parts: Vec<Counts>) -> Counts {
    let mut all = Counts::new();
    for (word, count) in parts.into_iter().flatten() {
        *all.entry(word).or_default() += count;
    }
    all
}

#[task]
fn most_frequent(counts: Counts, most: usize) -> Vec<(u64, String)> {
    let mut all: Vec<(u64, String)> =
        counts.into_iter().map(|(word, count)| (count, word)).collect();
    all.sort_by(|one, two| two.0.cmp(&one.0).then_with(|| one.1.cmp(&two.1)));
    all.truncate(most);
    all
}

fn main() -> ExitCode {
    starling_task::main(|cluster| {
        // Nodes have other working directories.
        let files = std::env::args_os().skip(1).map(std::path::absolute);
        run(cluster, files.collect::<io::Result<_>>()?, &mut io::stdout())
    })
}

/// Writes the ten most frequent words of the files to `out`.
pub(crate) fn run(
    cluster: &Cluster,
    files: Vec<PathBuf>,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let counts = files.into_iter().map(|file| cluster.submit(count(file)));
    let mut counts = counts.collect::<Result<Vec<_>>>()?;
    while counts.len() != 1 {
        let groups = counts.chunks(FAN_IN).map(|group| cluster.submit(merge(group)));
        let merged = groups.collect::<Result<Vec<_>>>()?;
        counts = if merged.is_empty() {
            vec![cluster.submit(merge(Vec::<Counts>::new()))?]
        } else {
            merged
        };
    }
    for (count, word) in cluster.run(most_frequent(&counts[0], 10))? {
        writeln!(out, "{count} {word}")?;
    }
    Ok(())
}

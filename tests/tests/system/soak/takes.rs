//! The resources of a node: memory, open files, threads, and the disk space and files of each state
//! folder.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use starling_tests::files_below;

/// A quantity of a node over time: seconds since the start, and its value.
type Series = Vec<(f64, f64)>;

/// The resources of a process, from the system.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Takes {
    pub(super) files: u64,
    pub(super) threads: u64,
    pub(super) resident_bytes: u64,
}

pub(super) fn takes(pid: u32) -> Takes {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let number = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).expect("linux tells it");
        line.split_whitespace().nth(1).and_then(|it| it.parse().ok()).expect("a number")
    };
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("it is ours").count() as u64;
    Takes { files, threads: number("Threads:"), resident_bytes: number("VmRSS:") << 10 }
}

/// The store has buffers of fixed size; all other folders grow with their contents.
const STORE: &str = "db";

/// All measurements of one node.
#[derive(Default, Debug)]
pub(super) struct Measured(BTreeMap<String, Series>);

impl Measured {
    /// Adds the current resources of the process and its directory, and returns them as text.
    pub(super) fn add(&mut self, after: Duration, pid: u32, state: &Path) -> String {
        let now = takes(pid);
        let mut all: BTreeMap<String, f64> = BTreeMap::from([
            ("memory".to_owned(), now.resident_bytes as f64),
            ("open".to_owned(), now.files as f64),
            ("threads".to_owned(), now.threads as f64),
        ]);
        for file in files_below(state) {
            let inside = file.strip_prefix(state).expect("it is below");
            let folder = inside.components().next().expect("a file has a name");
            let folder = folder.as_os_str().to_string_lossy().into_owned();
            let Ok(metadata) = fs::metadata(&file) else { continue };
            let kind = if folder == STORE { "store" } else { "rest" };
            let bytes = (metadata.blocks() * 512) as f64;
            *all.entry(format!("{kind} bytes")).or_default() += bytes;
            *all.entry(format!("{kind} files")).or_default() += 1.0;
            *all.entry(format!("disk {folder}")).or_default() += bytes;
        }
        let words: Vec<String> =
            all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        for (name, value) in all {
            self.0.entry(name).or_default().push((after.as_secs_f64(), value));
        }
        words.join(" ")
    }

    /// For each quantity, the rise of a fitted line through the second half of the time.
    pub(super) fn growth(&self) -> BTreeMap<String, f64> {
        let rises = self.0.iter().map(|(name, series)| {
            let end = series.last().map_or(0.0, |last| last.0);
            let half: Series = series.iter().copied().filter(|at| at.0 >= end / 2.0).collect();
            (name.clone(), slope(&half) * end / 2.0)
        });
        rises.collect()
    }
}

/// The slope of the least-squares line.
fn slope(series: &Series) -> f64 {
    let count = series.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| series.iter().map(of).sum::<f64>() / count;
    let (time, value) = (mean(|it| it.0), mean(|it| it.1));
    let spread: f64 = series.iter().map(|it| (it.0 - time).powi(2)).sum();
    let rise: f64 = series.iter().map(|it| (it.0 - time) * (it.1 - value)).sum();
    if spread == 0.0 { 0.0 } else { rise / spread }
}

#[test]
fn a_line_through_the_second_half_tells_what_grows() {
    let mut measured = Measured::default();
    let all = |of: fn(u32) -> f64| (0..100).map(|at| (f64::from(at), of(at))).collect();
    measured.0.insert("grows".to_owned(), all(|at| f64::from(7 + 2 * at)));
    measured.0.insert("saw".to_owned(), all(|at| f64::from(at % 5)));
    measured.0.insert("settles".to_owned(), all(|at| f64::from(at.min(40))));
    let growth = measured.growth();
    assert!((growth["grows"] - 99.0).abs() < 0.01, "{growth:?}");
    assert!(growth["saw"].abs() < 1.0 && growth["settles"].abs() < 0.01, "{growth:?}");
}

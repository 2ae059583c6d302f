//! The kept files of each run, compared with those of an undisturbed run.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};

use client::Client;
use proto::limits;
use verb::cluster::kept_outputs::{self, CopiedFile};
use verb::cluster::logs::Logs;
use verb::errors::Failure;
use verb::output::say;
use workloads::{Graph, Plan};

use super::readings::Readings;

/// The maximum of differing files per run that are named.
const NAMED_MAX: usize = 3;

/// One kept file. The bytes of a synthetic task depend on the object's id, which contains job and
/// attempt. A command with reported checksums may write other bytes each time. So all correct files
/// of these kinds compare as equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    bytes: u64,
    sum: u64,
}

const AS_IT_MUST_BE: u64 = 0;

#[derive(Debug, Default)]
pub(super) struct Answers {
    by_file: BTreeMap<String, Answer>,
    /// Lines with checksums of consumers, compared with the kept files.
    pub(super) readings: u64,
}

/// The differences between the answers of a run and the expected ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Differences {
    pub(super) wrong: u64,
    pub(super) missing: u64,
}

impl Answers {
    /// Copies the kept files of a run here, as `job fetch` does, and removes the copies again.
    pub(super) async fn fetch(
        client: &Client,
        graph: &Graph,
        plan: &Plan<'_>,
        dir: &Path,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::file(dir, &error);
        std::fs::create_dir_all(dir).map_err(failed)?;
        let logs = Logs::read(client, plan.job(), None).await?;
        let kept = kept_outputs::recall(client, plan.job()).await?;
        let outcome = kept_outputs::copy(client, &logs, plan.job(), &kept, dir).await?;
        if let Err(lost) = outcome.check_lost() {
            say(&format!("error: job {}: {}", plan.job().0, lost.message));
        }
        let path = |copied: &CopiedFile| (copied.file.clone(), PathBuf::from(&copied.path));
        let readings = Readings::compare(&outcome.copied.iter().map(path).collect())?;
        let mut answers = Self { readings: readings.compared, ..Self::default() };
        for copied in &outcome.copied {
            let agrees = readings.agrees.get(&copied.file).copied();
            answers.by_file.insert(copied.file.clone(), answer(graph, plan, copied, agrees)?);
        }
        std::fs::remove_dir_all(dir).map_err(failed)?;
        Ok(answers)
    }

    pub(super) fn len(&self) -> usize {
        self.by_file.len()
    }

    /// Checks that all files are correct, as far as one run shows that.
    pub(super) fn expect_whole(&self, wanted: usize) -> Result<(), Failure> {
        match self.len() == wanted {
            true => Ok(()),
            false => {
                let text = format!("an undisturbed run kept {} of {wanted} files", self.len());
                Err(Failure::lost(text))
            }
        }
    }

    /// Counts the differences of a later run's answers, and names some.
    pub(super) fn compare(&self, run: u64, found: &Self) -> Differences {
        let mut differences = Differences::default();
        for (file, expected) in &self.by_file {
            let what = match found.by_file.get(file) {
                Some(answer) if answer == expected => continue,
                Some(_) => {
                    differences.wrong += 1;
                    "differs from that of an undisturbed run"
                }
                None => {
                    differences.missing += 1;
                    "is missing"
                }
            };
            if differences.wrong + differences.missing <= NAMED_MAX as u64 {
                say(&format!("error: run {run}: kept file {file} {what}"));
            }
        }
        differences
    }
}

/// `agrees`: whether it has the bytes that consumers report, if they do.
fn answer(
    graph: &Graph,
    plan: &Plan<'_>,
    copied: &CopiedFile,
    agrees: Option<bool>,
) -> Result<Answer, Failure> {
    let path = Path::new(&copied.path);
    let found = std::fs::read(path).map_err(|error| Failure::file(path, &error))?;
    let task = plan.task_of(copied.object.task.local);
    let is_command = task.is_some_and(|task| graph.is_command(task));
    let is_right = agrees.unwrap_or_else(|| !is_command && is_pattern(copied, &found));
    let sum = if is_right { AS_IT_MUST_BE } else { checksum(&found) };
    Ok(Answer { bytes: found.len() as u64, sum })
}

/// True if these are the bytes that a synthetic task writes.
fn is_pattern(copied: &CopiedFile, found: &[u8]) -> bool {
    let mut expected = vec![0; limits::PIECE_BYTES];
    found.chunks(limits::PIECE_BYTES).zip(0_u64..).all(|(piece, number)| {
        let expected = &mut expected[..piece.len()];
        executor::pattern(copied.object, number * limits::PIECE_BYTES as u64, expected);
        expected == piece
    })
}

/// Never [`AS_IT_MUST_BE`].
fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish().max(AS_IT_MUST_BE + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_differ_or_are_missing_are_counted() {
        let answers = |sums: &[(&str, u64)]| {
            let answer =
                |(file, sum): &(&str, u64)| ((*file).to_owned(), Answer { bytes: 8, sum: *sum });
            Answers { by_file: sums.iter().map(answer).collect(), readings: 0 }
        };
        let expected = answers(&[("a", 0), ("b", 5), ("c", 0)]);
        let same = expected.compare(1, &answers(&[("a", 0), ("b", 5), ("c", 0)]));
        assert_eq!(same, Differences::default());
        let other = expected.compare(2, &answers(&[("a", 0), ("b", 6)]));
        assert_eq!(other, Differences { wrong: 1, missing: 1 });
        assert!(expected.expect_whole(4).is_err());
    }
}

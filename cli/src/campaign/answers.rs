//! What each run keeps, beside what a run kept that nobody disturbed.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};

use client::Client;
use proto::limits;
use proto::wire::spec::Body;
use workloads::{Graph, Plan};

use super::readings::Readings;
use crate::errors::Failure;
use crate::kept_outputs::{self, CopiedFile};
use crate::output::say;
use crate::reports::Logs;

/// Of the kept files of a run that differ this many are named.
const NAMED_MAX: usize = 3;

/// One kept file. What a synthetic task writes follows from the id of the object, which has the
/// number of job and attempt in it; what a command writes that consumers say the sum of may be
/// other bytes each time. Of these all are equal that are as they must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    bytes: u64,
    sum: u64,
}

const AS_IT_MUST_BE: u64 = 0;

#[derive(Debug, Default)]
pub(super) struct Answers {
    by_file: BTreeMap<String, Answer>,
    /// Lines in which consumers say what they have read, held against what is kept.
    pub(super) readings: u64,
}

/// How the answers of a run differ from those expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Differences {
    pub(super) wrong: u64,
    pub(super) missing: u64,
}

impl Answers {
    /// Brings what a run has kept here, as `job fetch` does, and lets the files go again.
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

    /// All are as they must be, as far as a run can tell by itself.
    pub(super) fn expect_whole(&self, wanted: usize) -> Result<(), Failure> {
        match self.len() == wanted {
            true => Ok(()),
            false => {
                let text = format!("an undisturbed run kept {} of {wanted} files", self.len());
                Err(Failure::lost(text))
            }
        }
    }

    /// Counts what a later run's answers have different, and names some.
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

/// `agrees`: with what consumers say that they have read, where they say it.
fn answer(
    graph: &Graph,
    plan: &Plan<'_>,
    copied: &CopiedFile,
    agrees: Option<bool>,
) -> Result<Answer, Failure> {
    let path = Path::new(&copied.path);
    let found = std::fs::read(path).map_err(|error| Failure::file(path, &error))?;
    let task = plan.task_of(copied.object.task.local);
    let is_command =
        task.is_some_and(|task| matches!(graph.task(task).spec.body, Some(Body::Command(_))));
    let is_right = agrees.unwrap_or_else(|| !is_command && is_pattern(copied, &found));
    let sum = if is_right { AS_IT_MUST_BE } else { checksum(&found) };
    Ok(Answer { bytes: found.len() as u64, sum })
}

/// Whether these are the bytes that a synthetic task writes.
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

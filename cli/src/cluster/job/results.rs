//! The destination of a run's kept outputs: chosen and tested before it begins, and filled at its
//! end.

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};

use client::Client;
use proto::JobId;
use time::OffsetDateTime;
use verb::cluster::kept_outputs::{self, KeptOutput, Outcome};
use verb::cluster::logs::Logs;
use verb::errors::{Exit, Failure};
use verb::local::embed::Cluster;
use verb::output::say;
use verb::units::number_of;

use crate::cluster::job::output;

/// Runs without `--output` put their results below this directory, in the current one.
const RUNS: &str = "starling-runs";
/// The maximum of characters of a workflow's name in a directory's name.
const NAME_CHARS_MAX: usize = 64;
/// The maximum of runs of one name that begin in the same second.
const NAMES_MAX: u32 = 1000;

/// A writable directory for results.
#[derive(Debug)]
pub(crate) struct Results {
    dir: PathBuf,
    /// The directories made for this run. They are removed again, the innermost first, if they are
    /// still empty.
    made: Vec<PathBuf>,
}

impl Drop for Results {
    fn drop(&mut self) {
        for dir in &self.made {
            if std::fs::remove_dir(dir).is_err() {
                return; // The directory is not empty.
            }
        }
    }
}

impl Results {
    /// The directory that the user names.
    pub(crate) fn named(dir: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::file(dir, &error);
        std::fs::create_dir_all(dir).map_err(failed)?;
        probe(dir).map_err(failed)?;
        Ok(Self { dir: dir.to_owned(), made: Vec::new() })
    }

    /// A new one below the current directory; `None`: nothing can be written there.
    pub(crate) fn here(name: &str) -> Option<Self> {
        Self::below(Path::new(""), OffsetDateTime::now_utc(), name).ok()
    }

    /// A new one: in the current directory or, if that is not writable, below `TMPDIR`.
    pub(crate) fn fresh(name: &str) -> Result<Self, Failure> {
        let now = OffsetDateTime::now_utc();
        Self::below(Path::new(""), now, name).or_else(|error| {
            let temporary = temporary("starling-runs-").map_err(|failure| {
                let (first, plain) = (RUNS, verb::errors::plain(&error));
                let message = format!("{first}: {plain}, and {}", failure.message);
                Failure { message, ..failure }
            })?;
            let made = Self::below(&temporary, now, name);
            made.map_err(|error| Failure::file(&temporary, &error))
        })
    }

    /// For outputs that did not fit into the chosen directory.
    fn fallback() -> Result<Self, Failure> {
        let dir = temporary("starling-results-")?;
        Ok(Self { made: vec![dir.clone()], dir })
    }

    fn below(root: &Path, now: OffsetDateTime, name: &str) -> std::io::Result<Self> {
        let runs = root.join(RUNS);
        std::fs::create_dir_all(&runs)?;
        let first = directory_name(now, name);
        let mut names =
            (1..=NAMES_MAX).map(|n| if n == 1 { first.clone() } else { format!("{first}-{n}") });
        let run = loop {
            let name = names.next().ok_or_else(|| {
                std::io::Error::other(format!("{NAMES_MAX} runs have the name {first}"))
            })?;
            let run = runs.join(name);
            match std::fs::create_dir(&run) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => break made.map(|()| run)?,
            }
        };
        let dir = run.join("results");
        let results = Self { dir: dir.clone(), made: vec![dir.clone(), run, runs] };
        std::fs::create_dir(&dir)?;
        probe(&dir)?;
        Ok(results)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory that was made for this run alone, if there is one.
    pub(crate) fn run_dir(&self) -> Option<&Path> {
        self.made.get(1).map(PathBuf::as_path)
    }
}

fn temporary(prefix: &str) -> Result<PathBuf, Failure> {
    let made = tempfile::Builder::new().prefix(prefix).tempdir();
    made.map(tempfile::TempDir::keep).map_err(|error| {
        let (below, plain) = (std::env::temp_dir(), verb::errors::plain(&error));
        let text = format!("cannot make a directory for results in {}: {plain}", below.display());
        Failure::refused(text)
            .hint("name one that can be written with --output, or set TMPDIR to one")
    })
}

/// Writes a file there, and removes it.
fn probe(dir: &Path) -> std::io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".starling-probe-").tempfile_in(dir)?;
    file.write_all(b"starling")?;
    file.close()
}

/// `2026-11-25T21-04-07-name`.
fn directory_name(now: OffsetDateTime, name: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "._-+".contains(letter);
    let plain = name.chars().map(|letter| if is_plain(letter) { letter } else { '_' });
    let name: String = plain.take(NAME_CHARS_MAX).collect();
    let (year, month, day) = (now.year(), u8::from(now.month()), now.day());
    let (hour, minute, second) = (now.hour(), now.minute(), now.second());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}-{name}")
}

/// The copy at the end of a run, and the place of the files until then.
#[derive(Debug)]
pub(crate) struct Delivery<'r> {
    pub(crate) results: &'r Results,
    pub(crate) source: Source<'r>,
}

/// The directory of the run's own cluster, and whether it must stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'r> {
    pub(crate) cluster_dir: &'r Path,
    pub(crate) keep_cluster: &'r Cell<bool>,
}

/// A directory for a run that has none: its tasks have spawned others with kept outputs.
pub(crate) fn of_spawned(
    delivery: &Option<Delivery<'_>>,
    source: Source<'_>,
    name: &str,
    kept: &[KeptOutput],
) -> Result<Option<Results>, Failure> {
    if delivery.is_some() || kept.is_empty() {
        return Ok(None);
    }
    Results::fresh(name).map(Some).map_err(|failure| source.keep_all(failure))
}

impl Delivery<'_> {
    /// Copies the kept outputs of a job. Outputs that cannot be written there are written below
    /// `TMPDIR`. If that fails too, they stay in the cluster's own directory.
    pub(crate) async fn copy(
        &self,
        client: &Client,
        job: JobId,
        kept: &[KeptOutput],
    ) -> Result<(), Failure> {
        let dir = self.results.dir();
        let copied = async {
            client.job_to_fetch(job).await?;
            let logs = Logs::read(client, job, None).await?;
            let outcome = kept_outputs::copy(client, &logs, job, kept, dir).await?;
            Ok::<_, Failure>((logs, outcome))
        };
        let (logs, outcome) = copied.await.map_err(|failure| self.source.keep_all(failure))?;
        let unwritten = self.rescue(client, &logs, job, &outcome).await;
        let away: Vec<_> = outcome.away.iter().copied().collect();
        unwritten
            .and_then(|()| outcome.check_lost())
            .and_then(|()| output::missing("the files that lie there were not copied", &away))
            .map(drop)
    }

    async fn rescue(
        &self,
        client: &Client,
        logs: &Logs,
        job: JobId,
        outcome: &Outcome,
    ) -> Result<(), Failure> {
        let Some((first, why)) = outcome.unwritten.first() else { return Ok(()) };
        let dir = self.results.dir().display();
        let number = number_of(outcome.unwritten.len() as u64, "kept output");
        let text = format!("{dir}: {number} could not be written, '{}': {why}", first.2);
        let failure = Failure::refused(text);
        let Ok(fallback) = Results::fallback() else { return Err(self.source.keep_all(failure)) };
        let rest: Vec<KeptOutput> =
            outcome.unwritten.iter().map(|(kept, _)| kept.clone()).collect();
        match kept_outputs::copy(client, logs, job, &rest, fallback.dir()).await {
            Ok(again) if again.unwritten.is_empty() && again.away.is_empty() => {
                again.check_lost()?;
                let place = fallback.dir().display();
                Err(failure.hint(format!("the results that were not written are in {place}")))
            }
            Ok(_) => Err(self.source.keep_all(failure)),
            Err(other) => {
                say(&format!("warning: {}", other.message));
                Err(self.source.keep_all(failure))
            }
        }
    }
}

impl Source<'_> {
    /// The only copies stay where they are.
    fn keep_all(&self, failure: Failure) -> Failure {
        self.keep_cluster.set(true);
        let dir = self.cluster_dir.display();
        let hint = format!(
            "all results stay in {dir}: 'starling --dir {dir} up', then 'starling --dir {dir} job \
             fetch 1 -o DIRECTORY'"
        );
        failure.hint(hint)
    }
}

/// Copies the existing outputs of a run that ended at its time limit, or by an interrupt.
pub(crate) async fn save(
    delivery: &Delivery<'_>,
    client: &Client,
    job: JobId,
    kept: &[KeptOutput],
    failure: Failure,
) -> Failure {
    let more = match failure.exit {
        Exit::TimedOut => "; give a longer --timeout",
        Exit::Interrupted => "",
        _ => return failure,
    };
    let mut kept = kept.to_vec();
    if let Ok(state) = client.raw().job(job).await
        && let Ok(spawned) = kept_outputs::of_spawned(client, &state).await
    {
        kept.extend(spawned.kept);
    }
    if kept.is_empty() {
        return failure;
    }
    match delivery.copy(client, job, &kept).await {
        Ok(()) => {
            let dir = delivery.results.dir().display();
            failure.hint(format!("the results kept so far are in {dir}{more}"))
        }
        Err(other) => {
            say(&format!("warning: {}", other.message));
            match other.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
    }
}

/// Ends a cluster; its directory stays if results are nowhere else.
pub(crate) async fn stop(mut cluster: Cluster, keep: bool) {
    if keep {
        cluster.keep();
    }
    cluster.stop().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_a_directory_of_its_own_which_goes_if_it_stays_empty() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::UNIX_EPOCH;
        let first = Results::below(dir.path(), now, "my/flow").unwrap();
        let runs = dir.path().join(RUNS);
        assert_eq!(first.dir(), runs.join("1970-01-01T00-00-00-my_flow/results"));
        std::fs::write(first.dir().join("kept"), "x").unwrap();
        let second = Results::below(dir.path(), now, "my/flow").unwrap();
        assert_eq!(second.dir(), runs.join("1970-01-01T00-00-00-my_flow-2/results"));
        let gone = second.dir().to_owned();
        drop(second);
        assert!(!gone.parent().unwrap().exists());
        drop(first);
        assert!(runs.join("1970-01-01T00-00-00-my_flow/results/kept").exists());
        assert!(Results::below(&dir.path().join("none/\0"), now, "x").is_err());
        let named = Results::named(&dir.path().join("a/b")).unwrap();
        assert_eq!(std::fs::read_dir(named.dir()).unwrap().count(), 0, "the probe goes");
    }
}

//! The job log of a run: opening, checking, writing.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use executor::locks::{self, Taken};
use verb::errors::Failure;
use verb::output::say;
use verb::units::number_of;
use workloads::lists::{Again, HEADER, JobLog, Row, SeenCommands};

/// An open job log, locked against other runs.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

fn parse(path: &Path, file: &File) -> Result<JobLog, Failure> {
    let log = JobLog::read(BufReader::new(file), &path.display().to_string());
    log.map_err(|error| Failure::refused(error.text).hint(error.hint))
}

/// The rows of a log that is not written to.
pub(super) fn read(path: &Path, again: Option<Again>) -> Result<Option<SeenCommands>, Failure> {
    match (File::open(path), again) {
        (_, None) => Ok(None),
        (Err(error), Some(_)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        (Err(error), Some(_)) => Err(Failure::file(path, &error)),
        (Ok(file), Some(again)) => Ok(Some(parse(path, &file)?.seen(again))),
    }
}

impl Journal {
    /// `again`: go on with a log that has rows. Returns these rows.
    pub(super) fn open(
        path: &Path,
        again: Option<Again>,
    ) -> Result<(Self, Option<SeenCommands>), Failure> {
        let failed = |error: std::io::Error| Failure::file(path, &error);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(failed)?;
        let name = path.display();
        if matches!(locks::take(&file).map_err(failed)?, Taken::Held) {
            return Err(Failure::refused(format!("{name}: another run writes this job log"))
                .hint("wait for its end, or use another --joblog"));
        }
        let seen = if file.metadata().map_err(failed)?.is_file() {
            let log = parse(path, &File::open(path).map_err(failed)?)?;
            if again.is_none() && !log.is_empty() {
                let rows = number_of(log.len() as u64, "command");
                return Err(Failure::refused(format!("{name}: the job log has {rows}"))
                    .hint("--resume goes on with it, --resume-failed runs failed ones again"));
            }
            if log.is_cut {
                say(&format!("warning: {name}: the last row is cut; its entry runs again"));
                file.set_len(log.length).map_err(failed)?;
            }
            file.seek(SeekFrom::Start(log.length)).map_err(failed)?;
            if log.length == 0 {
                writeln!(file, "{HEADER}").map_err(failed)?;
            }
            again.map(|again| log.seen(again))
        } else {
            writeln!(file, "{HEADER}").map_err(failed)?;
            None
        };
        Ok((Self { path: path.to_owned(), file }, seen))
    }

    /// Writes a row whole.
    pub(super) fn push(&mut self, row: &Row) -> Result<(), Failure> {
        let line = format!("{row}\n");
        self.file.write_all(line.as_bytes()).map_err(|error| Failure::file(&self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64, exit_code: i32) -> Row {
        let (host, command) = ("n0".to_owned(), format!("echo {number}"));
        Row { number, host, started_s: 1.0, took_s: 0.5, received_bytes: 2, exit_code, command }
    }

    #[test]
    fn a_log_is_gone_on_with_and_never_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut journal, seen) = Journal::open(&path, None).unwrap();
        assert!(seen.is_none());
        journal.push(&row(1, 0)).unwrap();
        let held = Journal::open(&path, Some(Again::None)).unwrap_err();
        assert!(held.message.contains("another run writes"), "{}", held.message);
        drop(journal);
        let has_rows = Journal::open(&path, None).unwrap_err();
        assert!(has_rows.message.contains("has 1 command"), "{}", has_rows.message);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], b"2\tn0\t1."].concat()).unwrap();
        let (mut journal, seen) = Journal::open(&path, Some(Again::None)).unwrap();
        let mut seen = seen.unwrap();
        assert_eq!(seen.may_skip(1, "echo 1"), Ok(true));
        assert_eq!(seen.may_skip(2, "echo 2"), Ok(false));
        journal.push(&row(2, 1)).unwrap();
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{HEADER}\n{}\n{}\n", row(1, 0), row(2, 1)));
    }

    #[test]
    fn another_file_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        std::fs::write(&path, "my notes").unwrap();
        for again in [None, Some(Again::None), Some(Again::Failed)] {
            assert!(Journal::open(&path, again).unwrap_err().message.contains("not a job log"));
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes");
    }
}

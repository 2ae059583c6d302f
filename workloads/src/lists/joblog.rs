//! The log of ended entries, in the nine columns of GNU parallel's `--joblog`.
//!
//! A row is written when an entry has ended and its output is printed. After an interruption the
//! log names the entries that need not run again.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io::{BufRead, Read as _};

use crate::lists::ListError;

/// The maximum size of a line of a job log, and its maximum number of rows.
const JOBLOG_LINE_BYTES_MAX: usize = 8 << 20;
const JOBLOG_ROWS_MAX: usize = 1 << 26;

/// The first line.
pub const HEADER: &str =
    "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand";

/// One ended entry.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub number: u64,
    /// The node that ran it.
    pub host: String,
    /// Seconds since 1970.
    pub started_s: f64,
    pub took_s: f64,
    /// Bytes of standard output.
    pub received_bytes: u64,
    /// 128 + the signal for a command that a signal has ended.
    pub exit_code: i32,
    /// As one line.
    pub command: String,
}

impl Row {
    fn signal(&self) -> i32 {
        if (129..=192).contains(&self.exit_code) { self.exit_code - 128 } else { 0 }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\t{}\t{:.3}\t{:10.3}\t0\t{}\t{}\t{}\t{}",
            self.number,
            self.host,
            self.started_s,
            self.took_s,
            self.received_bytes,
            self.exit_code,
            self.signal(),
            self.command
        )
    }
}

/// The entries that run although the log has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    /// `--resume`: none.
    None,
    /// `--resume-failed`: those that failed.
    Failed,
}

/// An entry of the log. The command is kept as a hash, so that 10^6 rows take 24 MB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ended {
    number: u64,
    command: u64,
    is_done: bool,
}

fn hash(command: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    command.hash(&mut hasher);
    hasher.finish()
}

/// The rows of an earlier run.
#[derive(Clone, Default, Debug)]
pub struct JobLog {
    ended: Vec<Ended>,
    /// The length of the complete rows.
    pub length: u64,
    /// The last row was cut; it begins after `length`.
    pub is_cut: bool,
}

impl JobLog {
    /// Reads a log; an empty file is an empty log. `name` is for errors.
    ///
    /// # Errors
    /// This is no job log, or a row of it is wrong. Only the last row may be cut.
    pub fn read(mut from: impl BufRead, name: &str) -> Result<Self, ListError> {
        let mut log = Self::default();
        let mut line = Vec::new();
        let mut number = 0_u64;
        loop {
            line.clear();
            let mut limited = (&mut from).take(JOBLOG_LINE_BYTES_MAX as u64);
            let read = limited.read_until(b'\n', &mut line).map_err(|error| {
                ListError::new(format!("{name}: {error}"), "check the file, or name another")
            })?;
            number += 1;
            if read == 0 {
                break;
            }
            if line.last() != Some(&b'\n') {
                if read == JOBLOG_LINE_BYTES_MAX
                    || number == 1 && !HEADER.as_bytes().starts_with(&line)
                {
                    return Err(no_log(name));
                }
                log.is_cut = true;
                break;
            }
            line.pop();
            if number == 1 {
                if line != HEADER.as_bytes() {
                    return Err(no_log(name));
                }
            } else {
                log.ended.push(row(&line).map_err(|what| {
                    let text = format!("{name}: line {number}: {what}");
                    ListError::new(text, "mend or remove this line; its entry then runs again")
                })?);
            }
            if log.ended.len() > JOBLOG_ROWS_MAX {
                let text = format!("{name}: more than {JOBLOG_ROWS_MAX} rows");
                return Err(ListError::new(text, "use another --joblog"));
            }
            log.length += read as u64;
        }
        log.keep_last_rows();
        Ok(log)
    }

    /// Of several rows of an entry the last counts.
    fn keep_last_rows(&mut self) {
        self.ended.reverse();
        self.ended.sort_by_key(|ended| ended.number);
        self.ended.dedup_by_key(|ended| ended.number);
    }

    /// True without any row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// The number of entries with a row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ended.len()
    }

    /// For the entries in their order.
    #[must_use]
    pub fn seen(self, again: Again) -> SeenCommands {
        SeenCommands { ended: self.ended, next: 0, again }
    }
}

/// The rows of a log beside the entries of a list, in ascending order.
#[derive(Clone, Debug)]
pub struct SeenCommands {
    ended: Vec<Ended>,
    next: usize,
    again: Again,
}

impl SeenCommands {
    /// True if this entry need not run. Entries are asked for in ascending order.
    ///
    /// # Errors
    /// The log has this entry with another command.
    pub fn may_skip(&mut self, number: u64, command: &str) -> Result<bool, ListError> {
        while self.ended.get(self.next).is_some_and(|ended| ended.number < number) {
            self.next += 1;
        }
        let Some(ended) = self.ended.get(self.next).filter(|ended| ended.number == number) else {
            return Ok(false);
        };
        self.next += 1;
        if ended.command != hash(command) {
            return Err(ListError::new(
                format!("entry {number} has another command in the job log; here it is: {command}"),
                "resume with the same command and list, or use another --joblog",
            ));
        }
        Ok(ended.is_done || self.again == Again::None)
    }

    /// The number of rows without an entry, at the end of the list.
    #[must_use]
    pub fn rest(&self) -> usize {
        self.ended.len() - self.next
    }
}

fn no_log(name: &str) -> ListError {
    ListError::new(format!("{name} is not a job log"), "name a new file, or one of an earlier run")
}

fn row(line: &[u8]) -> Result<Ended, &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not valid UTF-8")?;
    let columns: Vec<&str> = line.splitn(9, '\t').collect();
    let [number, _, started, took, _, _, exit, signal, command] = columns[..] else {
        return Err("it does not have nine columns");
    };
    let is_number = |text: &str| text.trim().parse::<f64>().is_ok();
    let number: u64 = number.parse().map_err(|_| "Seq is not a number")?;
    if number == 0 {
        return Err("Seq begins with 1");
    }
    if !is_number(started) || !is_number(took) {
        return Err("a time is not a number");
    }
    let exit: i64 = exit.parse().map_err(|_| "Exitval is not a number")?;
    let signal: i64 = signal.parse().map_err(|_| "Signal is not a number")?;
    Ok(Ended { number, command: hash(command), is_done: exit == 0 && signal == 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64, exit_code: i32, command: &str) -> Row {
        let (host, command) = ("n1".to_owned(), command.to_owned());
        let (started_s, took_s) = (1_700_000_000.25, 1.5);
        Row { number, host, started_s, took_s, received_bytes: 7, exit_code, command }
    }

    fn log(rows: &[Row]) -> String {
        rows.iter().fold(format!("{HEADER}\n"), |text, row| format!("{text}{row}\n"))
    }

    #[test]
    fn rows_have_nine_columns() {
        let text = row(3, 137, "sh -c 'kill -9 $$'").to_string();
        assert_eq!(text, "3\tn1\t1700000000.250\t     1.500\t0\t7\t137\t9\tsh -c 'kill -9 $$'");
        assert_eq!(HEADER.split('\t').count(), 9);
    }

    #[test]
    fn ended_entries_are_skipped() {
        let text = log(&[row(1, 0, "a"), row(4, 1, "d"), row(3, 1, "c"), row(3, 0, "c")]);
        let read = JobLog::read(text.as_bytes(), "log").unwrap();
        assert_eq!((read.len(), read.length, read.is_cut), (3, text.len() as u64, false));
        let skipped = |again| {
            let mut seen = read.clone().seen(again);
            let commands = ["a", "b", "c", "d"].into_iter().zip(1..);
            let skipped: Vec<bool> =
                commands.map(|(command, number)| seen.may_skip(number, command).unwrap()).collect();
            (skipped, seen.rest())
        };
        assert_eq!(skipped(Again::None), (vec![true, false, true, true], 0));
        assert_eq!(skipped(Again::Failed), (vec![true, false, true, false], 0));
        let mut seen = read.seen(Again::None);
        assert!(seen.may_skip(1, "b").unwrap_err().text.contains("entry 1 has another command"));
        assert_eq!(seen.rest(), 2);
    }

    #[test]
    fn a_cut_row_is_found_at_any_byte() {
        let text = log(&[row(1, 0, "a"), row(2, 0, "b c")]);
        let first = log(&[row(1, 0, "a")]).len();
        for cut in 0..text.len() {
            let read = JobLog::read(&text.as_bytes()[..cut], "log").unwrap();
            let (rows, length) = match cut {
                _ if cut <= HEADER.len() => (0, 0),
                _ if cut < first => (0, HEADER.len() + 1),
                _ => (1, first),
            };
            assert_eq!((read.len(), read.length), (rows, length as u64), "{cut}");
            assert_eq!(read.is_cut, cut as u64 != read.length, "{cut}");
        }
    }

    #[test]
    fn other_files_and_wrong_rows_are_refused() {
        let error = |text: String| JobLog::read(text.as_bytes(), "f").unwrap_err().text;
        assert_eq!(error("my notes\n".to_owned()), "f is not a job log");
        assert_eq!(error("my notes".to_owned()), "f is not a job log");
        let with = |line: &str| format!("{HEADER}\n{line}\n{}\n", row(2, 0, "b"));
        assert_eq!(error(with("1\tn1")), "f: line 2: it does not have nine columns");
        let text = error(with(&row(1, 0, "a").to_string().replace("1.500", "x")));
        assert_eq!(text, "f: line 2: a time is not a number");
        let text = error(with(&row(1, 0, "a").to_string().replacen('1', "-1", 1)));
        assert_eq!(text, "f: line 2: Seq is not a number");
        assert!(error(with("0\t:\t0\t0\t0\t0\t0\t0\tx")).contains("Seq begins with 1"));
        // A row of GNU parallel itself.
        let gnu = format!("{HEADER}\n1\t:\t1700000000.123\t     0.003\t0\t2\t0\t0\techo a\n");
        let mut seen = JobLog::read(gnu.as_bytes(), "f").unwrap().seen(Again::None);
        assert_eq!(seen.may_skip(1, "echo a"), Ok(true));
    }
}

//! Prints the output of ended entries, each as one piece, and logs them.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;

use client::{Client, StreamFilter, StreamPiece};
use proto::wire::{TaskPhase, TaskState};
use proto::{Attempt, JobId, LocalId, NodeId};
use serde::Serialize;
use verb::Context;
use verb::errors::{Exit, Failure};
use verb::output::say;
use verb::terminal_text::shown;
use verb::units::{count, number_of};
use workloads::lists::{Row, Tally};

use super::feed::Work;
use super::journal::Journal;
use crate::cluster::job::output::{Gathered, cannot_gather};

/// The maximum of entries in one fetch of output.
const FETCHED_AT_ONCE: usize = 1024;
/// Failed entries that are named for each exit code.
const EXAMPLES_MAX: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Style {
    pub(super) has_tags: bool,
    pub(super) keeps_order: bool,
}

/// An entry that has ended.
#[derive(Debug)]
pub(super) struct EndedEntry {
    pub(super) work: Work,
    pub(super) job: JobId,
    pub(super) task: TaskState,
    /// The reason of a failure other than the exit code.
    pub(super) error: Option<String>,
}

impl EndedEntry {
    fn key(&self) -> (LocalId, Attempt) {
        (LocalId(self.task.local), Attempt(self.task.attempt))
    }

    /// The bytes that it printed to a stream, by its record.
    fn printed_bytes(&self, is_stderr: bool) -> u64 {
        if is_stderr { self.task.stderr_bytes } else { self.task.stdout_bytes }
    }

    /// True if a part of a stream did not come.
    fn is_short(&self, is_stderr: bool, fetched: &Fetched) -> bool {
        let (local, attempt) = self.key();
        let came = fetched.streams.get(&(self.job, is_stderr));
        came.map_or(0, |it| it.came_bytes(local, Some(attempt))) < self.printed_bytes(is_stderr)
    }

    fn exit_code(&self) -> i32 {
        match self.task.phase() {
            // A task may fail without an exit code of its own.
            TaskPhase::TaskFailed if self.task.exit_code == 0 => 1,
            _ => self.task.exit_code,
        }
    }

    fn row(&self) -> Row {
        let task = &self.task;
        Row {
            number: self.work.number,
            host: NodeId(task.node).to_string(),
            started_s: task.started_ns as f64 / 1e9,
            took_s: task.ended_ns.saturating_sub(task.started_ns) as f64 / 1e9,
            received_bytes: task.stdout_bytes,
            exit_code: self.exit_code(),
            command: self.work.command.clone(),
        }
    }
}

/// An entry of a dry run as JSON.
#[derive(Serialize)]
pub(super) struct Planned<'w> {
    seq: u64,
    values: &'w [String],
    command: &'w [String],
}

impl<'w> Planned<'w> {
    pub(super) fn of(work: &'w Work) -> Self {
        Self { seq: work.number, values: &work.values, command: &work.argv }
    }
}

/// An ended entry as JSON.
#[derive(Serialize)]
struct EntryRow<'e> {
    #[serde(flatten)]
    planned: Planned<'e>,
    node: u32,
    exit_code: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'e str>,
    started_s: f64,
    took_s: f64,
    stdout: String,
    stderr: String,
}

/// The output of some entries; true is standard error.
#[derive(Default)]
struct Fetched {
    /// From the nodes that ran the entries.
    streams: HashMap<(JobId, bool), Gathered>,
    /// Whole output of entries, from other nodes.
    copies: HashMap<(JobId, bool), Gathered>,
}

impl Fetched {
    /// The most complete output of an entry.
    fn of(&mut self, ended: &EndedEntry, is_stderr: bool) -> Option<&mut Gathered> {
        let (local, attempt) = ended.key();
        let copies = self.copies.get_mut(&(ended.job, is_stderr));
        let copies = copies.filter(|copies| copies.came_bytes(local, Some(attempt)) > 0);
        copies.or_else(|| self.streams.get_mut(&(ended.job, is_stderr)))
    }

    /// Takes the whole output of an entry over.
    fn add(
        &mut self,
        ended: &EndedEntry,
        is_stderr: bool,
        copy: &mut Gathered,
    ) -> Result<(), Failure> {
        let (local, attempt) = ended.key();
        let copies = match self.copies.entry((ended.job, is_stderr)) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(Gathered::new().map_err(|error| cannot_gather(&error))?)
            }
        };
        copy.read(local, attempt, |bytes| {
            let (task, data) = (local, bytes.to_vec().into());
            let piece = StreamPiece { task, attempt, data, ..StreamPiece::default() };
            copies.push(&piece).map_err(|error| cannot_gather(&error))
        })
    }
}

/// Prints ended entries in the order of their ends, or of the list.
pub(super) struct Printer<'c> {
    context: &'c Context,
    client: &'c Client,
    style: Style,
    journal: Option<Journal>,
    /// Entries that are not printed, by their number.
    waiting: BTreeMap<u64, EndedEntry>,
    /// The numbers of entries that are submitted and not printed; with order only.
    open: std::collections::VecDeque<u64>,
    failures: BTreeMap<i32, (u64, Vec<u64>)>,
    pub(super) tally: Tally,
}

impl<'c> Printer<'c> {
    pub(super) fn new(
        context: &'c Context,
        client: &'c Client,
        style: Style,
        journal: Option<Journal>,
    ) -> Self {
        Self {
            context,
            client,
            style,
            journal,
            waiting: BTreeMap::new(),
            open: std::collections::VecDeque::new(),
            failures: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    /// Ended entries that wait for the output of an earlier one.
    pub(super) fn held(&self) -> usize {
        self.waiting.len()
    }

    /// An entry is submitted. Its output precedes that of later ones, if the order is kept.
    pub(super) fn expect(&mut self, number: u64) {
        if self.style.keeps_order {
            self.open.push_back(number);
        }
    }

    /// An entry will not run.
    pub(super) fn give_up(&mut self, number: u64) {
        self.open.retain(|&open| open != number);
    }

    pub(super) fn push(&mut self, ended: EndedEntry) {
        match ended.exit_code() {
            0 => self.tally.done += 1,
            code => {
                self.tally.failed += 1;
                let (number, examples) = self.failures.entry(code).or_default();
                *number += 1;
                if examples.len() < EXAMPLES_MAX {
                    examples.push(ended.work.number);
                }
            }
        }
        self.waiting.insert(ended.work.number, ended);
    }

    /// Prints all entries that may be printed now. Returns how many of each job were printed.
    pub(super) async fn print(&mut self) -> Result<Vec<(JobId, usize)>, Failure> {
        let mut printed: BTreeMap<JobId, usize> = BTreeMap::new();
        loop {
            let turn = self.turn();
            if turn.is_empty() {
                return Ok(printed.into_iter().collect());
            }
            let mut fetched = self.fetch(&turn).await?;
            for ended in turn {
                self.print_one(&ended, &mut fetched)?;
                *printed.entry(ended.job).or_default() += 1;
            }
        }
    }

    fn turn(&mut self) -> Vec<EndedEntry> {
        let mut turn = Vec::new();
        while turn.len() < FETCHED_AT_ONCE {
            let next = match self.style.keeps_order {
                true => self.open.front().and_then(|number| self.waiting.remove(number)),
                false => self.waiting.pop_first().map(|(_, ended)| ended),
            };
            let Some(next) = next else { break };
            if self.style.keeps_order {
                self.open.pop_front();
            }
            turn.push(next);
        }
        turn
    }

    /// Fetches both streams of these entries from the nodes that ran them.
    async fn fetch(&self, turn: &[EndedEntry]) -> Result<Fetched, Failure> {
        let mut wanted: BTreeMap<(JobId, u32, bool), Vec<LocalId>> = BTreeMap::new();
        for EndedEntry { job, task, .. } in turn {
            for (is_stderr, bytes) in [(false, task.stdout_bytes), (true, task.stderr_bytes)] {
                if bytes > 0 {
                    let of_node = wanted.entry((*job, task.node, is_stderr)).or_default();
                    of_node.push(LocalId(task.local));
                }
            }
        }
        let mut fetched = Fetched::default();
        for ((job, node, stderr), tasks) in wanted {
            let gathered = match fetched.streams.entry((job, stderr)) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(new) => {
                    new.insert(Gathered::new().map_err(|error| cannot_gather(&error))?)
                }
            };
            let filter = StreamFilter { tasks, stderr, ..StreamFilter::default() };
            let see = |piece| gathered.push(&piece).map_err(|error| cannot_gather(&error));
            match self.client.streams(NodeId(node), job, &filter, see).await {
                Err(failure) if failure.exit == Exit::Lost => {
                    say(&format!("warning: without output of n{node}: {}", failure.message));
                }
                streamed => streamed?,
            }
        }
        self.fetch_copies(turn, &mut fetched).await?;
        Ok(fetched)
    }

    /// Asks other nodes for copies of the output that did not come.
    async fn fetch_copies(&self, turn: &[EndedEntry], all: &mut Fetched) -> Result<(), Failure> {
        let mut silent = std::collections::HashSet::new();
        for ended in turn {
            for is_stderr in [false, true] {
                if !ended.is_short(is_stderr, all) {
                    continue;
                }
                let maker = NodeId(ended.task.node);
                for keeper in self.client.nodes() {
                    if keeper == maker || silent.contains(&keeper) {
                        continue;
                    }
                    let Some(mut copy) = self.copy(ended, is_stderr, keeper).await? else {
                        silent.insert(keeper);
                        continue;
                    };
                    let key = ended.key();
                    if copy.came_bytes(key.0, Some(key.1)) >= ended.printed_bytes(is_stderr) {
                        all.add(ended, is_stderr, &mut copy)?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// The copy of an entry's output on a node; `None` if the node is silent.
    async fn copy(
        &self,
        ended: &EndedEntry,
        stderr: bool,
        keeper: NodeId,
    ) -> Result<Option<Gathered>, Failure> {
        let mut copy = Gathered::new().map_err(|error| cannot_gather(&error))?;
        let (tasks, copies_of) = (vec![ended.key().0], Some(NodeId(ended.task.node)));
        let filter = StreamFilter { tasks, stderr, copies_of, ..StreamFilter::default() };
        let see = |piece| copy.push(&piece).map_err(|error| cannot_gather(&error));
        match self.client.streams(keeper, ended.job, &filter, see).await {
            Err(failure) if failure.exit == Exit::Lost => Ok(None),
            Err(failure) => Err(failure),
            Ok(()) => Ok(Some(copy)),
        }
    }

    fn print_one(&mut self, ended: &EndedEntry, fetched: &mut Fetched) -> Result<(), Failure> {
        let key = ended.key();
        let tag = match self.style.has_tags {
            true => format!("{}\t", shown(&ended.work.values.join(" "))),
            false => String::new(),
        };
        let mut texts = [Vec::new(), Vec::new()];
        let mut came = [0; 2];
        for (at, is_stderr) in [(0, false), (1, true)] {
            let Some(gathered) = fetched.of(ended, is_stderr) else { continue };
            came[at] = gathered.came_bytes(key.0, Some(key.1));
            if self.context.output.json {
                let text = &mut texts[at];
                gathered.read(key.0, key.1, |bytes| {
                    text.extend_from_slice(bytes);
                    Ok(())
                })?;
                continue;
            }
            let mut tagged = Tagged::new(tag.as_bytes());
            gathered.read(key.0, key.1, |bytes| self.write(is_stderr, &tagged.put(bytes)))?;
            self.write(is_stderr, tagged.end())?;
        }
        let is_short = came[0] < ended.printed_bytes(false) || came[1] < ended.printed_bytes(true);
        if is_short {
            self.count_short(ended);
        }
        if self.context.output.json {
            let [stdout, stderr] = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
            self.context.output.json(&json_row(ended, stdout, stderr))?;
        }
        if let Some(error) = &ended.error {
            say(&format!("error: entry {}: {error}", ended.work.number));
        }
        match &mut self.journal {
            // Without a row --resume runs the entry again.
            Some(journal) if !is_short => journal.push(&ended.row()),
            _ => Ok(()),
        }
    }

    /// An entry with missing output has failed, also with exit code 0.
    fn count_short(&mut self, ended: &EndedEntry) {
        let number = ended.work.number;
        say(&format!("error: entry {number}: a part of its output is lost"));
        if ended.exit_code() == 0 {
            self.tally.done = self.tally.done.saturating_sub(1);
            self.tally.failed += 1;
            let (entries, examples) = self.failures.entry(0).or_default();
            *entries += 1;
            if examples.len() < EXAMPLES_MAX {
                examples.push(number);
            }
        }
    }

    fn write(&self, is_stderr: bool, bytes: &[u8]) -> Result<(), Failure> {
        match is_stderr {
            false if bytes.is_empty() => Ok(()),
            false => self.context.output.bytes(bytes),
            true => {
                // A missing reader of messages is no error.
                let _ = std::io::stderr().lock().write_all(bytes);
                Ok(())
            }
        }
    }

    /// The failed entries by their exit codes, as one line.
    pub(super) fn failures(&self) -> Option<String> {
        let codes = self.failures.iter().map(|(code, (number, examples))| {
            let rest = if *number > examples.len() as u64 { ", ..." } else { "" };
            let examples: Vec<String> = examples.iter().map(u64::to_string).collect();
            let entries = if *number == 1 { "entry" } else { "entries" };
            let examples = examples.join(", ");
            let why = match code {
                0 => "without a part of the output".to_owned(),
                code => format!("with exit code {code}"),
            };
            format!("{} {why} ({entries} {examples}{rest})", count(*number))
        });
        let codes: Vec<String> = codes.collect();
        let ended = number_of(self.tally.done + self.tally.failed, "ended entry");
        let ended = ended.replace("entrys", "entries");
        let failed = count(self.tally.failed);
        (self.tally.failed > 0).then(|| format!("{failed} of {ended} failed: {}", codes.join(", ")))
    }
}

fn json_row(ended: &EndedEntry, stdout: String, stderr: String) -> EntryRow<'_> {
    let row = ended.row();
    EntryRow {
        planned: Planned::of(&ended.work),
        node: ended.task.node,
        exit_code: row.exit_code,
        error: ended.error.as_deref(),
        started_s: row.started_s,
        took_s: row.took_s,
        stdout,
        stderr,
    }
}

/// Begins each line with a tag, and ends the last one.
struct Tagged<'t> {
    tag: &'t [u8],
    is_in_line: bool,
}

impl<'t> Tagged<'t> {
    fn new(tag: &'t [u8]) -> Self {
        Self { tag, is_in_line: false }
    }

    fn put<'b>(&mut self, bytes: &'b [u8]) -> std::borrow::Cow<'b, [u8]> {
        if self.tag.is_empty() {
            return bytes.into();
        }
        let mut out = Vec::with_capacity(bytes.len() * 2);
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            if !self.is_in_line {
                out.extend_from_slice(self.tag);
            }
            out.extend_from_slice(line);
            self.is_in_line = line.last() != Some(&b'\n');
        }
        out.into()
    }

    fn end(self) -> &'static [u8] {
        if self.is_in_line { b"\n" } else { b"" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_tag() {
        let mut tagged = Tagged::new(b"a\t");
        let mut out = Vec::new();
        for piece in ["x\ny", "z\n", "", "\nend"] {
            out.extend_from_slice(&tagged.put(piece.as_bytes()));
        }
        out.extend_from_slice(tagged.end());
        assert_eq!(String::from_utf8(out).unwrap(), "a\tx\na\tyz\na\t\na\tend\n");
        let mut plain = Tagged::new(b"");
        assert_eq!((&*plain.put(b"x"), plain.end()), (&b"x"[..], &b""[..]));
    }
}

//! `starling job output`: the printed output of tasks, grouped by task.
//!
//! Nodes keep the streams of many tasks in one file, in order of arrival. Here they are grouped by
//! task in a temporary file before the first byte is printed. Missing output, by the records of the
//! tasks, is named after that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use clap::Args;
use client::{Client, StreamFilter, StreamPiece};
use proto::event::End;
use proto::{Attempt, JobId, LocalId, NodeId};
use serde::Serialize;
use verb::Context;
use verb::cluster::logs::{Committed, Logs};
use verb::errors::{Done, Exit, Failure, heard, plain};
use verb::output::say;
use verb::units;

use crate::cluster::job::captured::{self, IncompleteOutput, MissingReason, Records};
use crate::cluster::task;
use crate::common::selector::Selector;
use crate::views::jobs;

/// Read back and printed at once.
const PIECE_BYTES: usize = 64 << 10;
/// The maximum of tasks in one request.
const TASKS_NAMED_MAX: usize = 1 << 16;

#[derive(Args, Debug)]
pub(crate) struct OutputArgs {
    /// all, last, 5 or 1-3,7
    jobs: Selector,
    /// Only of these tasks: names or ids, separated by commas
    tasks: Option<String>,
    /// Print standard error instead
    #[arg(long)]
    stderr: bool,
}

#[derive(Serialize)]
struct StreamRow<'t> {
    task: String,
    attempt: String,
    text: &'t str,
}

pub(crate) async fn run(context: &Context, client: &Client, args: &OutputArgs) -> Done {
    let mut lacks = MissingOutput::default();
    for job in jobs::select(client, &args.jobs).await? {
        of_job(context, client, job, args, &mut lacks).await?;
    }
    lacks.end()
}

/// The missing output of all jobs.
#[derive(Default)]
struct MissingOutput {
    tasks: u64,
    /// Some of these tasks may run again.
    some_are_away: bool,
    /// Some records of tasks are unknown; and the nodes that may have more output.
    is_uncertain: bool,
    unknown: BTreeSet<NodeId>,
}

impl MissingOutput {
    fn end(self) -> Done {
        if self.tasks > 0 {
            let tasks = units::number_of(self.tasks, "task");
            let hint = match self.some_are_away {
                true => "'starling up' starts the nodes that are missing",
                false => "what must not be lost a task declares as an output: --out",
            };
            return Err(Failure::lost(format!("output of {tasks} is missing")).hint(hint));
        }
        let unknown: Vec<NodeId> = self.unknown.into_iter().collect();
        if self.is_uncertain && unknown.is_empty() {
            return Err(Failure::lost(
                "whether this is all is not known: homes of tasks are silent",
            )
            .hint("try again, or look at 'starling node list'"));
        }
        missing("the output of tasks that ran there is missing", &unknown)
    }
}

/// Ends a verb that went on without some nodes.
pub(crate) fn missing(what: &str, away: &[NodeId]) -> Done {
    if away.is_empty() {
        return Ok(Exit::Ok);
    }
    let away: Vec<String> = away.iter().map(ToString::to_string).collect();
    let text = format!("without node {}: {what}", away.join(", "));
    Err(Failure::lost(text).hint("'starling up' starts the nodes that are missing"))
}

/// Prints one job's output, and names its missing parts.
async fn of_job(
    context: &Context,
    client: &Client,
    job: JobId,
    args: &OutputArgs,
    lacks: &mut MissingOutput,
) -> Result<(), Failure> {
    let named = match &args.tasks {
        Some(text) => Some(task::find(client, job, Some(text)).await?),
        None => None,
    };
    let tasks: Vec<LocalId> = named.iter().flatten().map(|task| LocalId(task.local)).collect();
    let one = match tasks[..] {
        [task] => Some(task),
        _ => None,
    };
    // This shows unreachable nodes before each is waited for.
    let logs = Logs::read(client, job, one).await?;
    jobs::must_exist(client, job, &logs).await?;
    let some_are_away = client.nodes().into_iter().any(|node| !logs.has(node));
    if let Some(text) = client.raw().job(job).await?.thinned_text() {
        return Err(Failure::refused(format!("{text}, and what they printed"))
            .hint(format!("'starling job info {}' still sums it up", job.0)));
    }
    let mut records = Records::read(client, job, named, args.stderr, some_are_away).await?;
    let committed = logs.committed(job)?;
    records.complete(&committed);
    let filter = StreamFilter { tasks, stderr: args.stderr, ..StreamFilter::default() };
    let mut gathered = Gathered::new().map_err(|error| cannot_gather(&error))?;
    let (mut away, mut damaged) = (BTreeSet::new(), BTreeSet::new());
    for node in client.nodes() {
        if !logs.has(node) {
            away.insert(node);
            continue;
        }
        let see = |piece: StreamPiece| {
            if piece.damaged {
                damaged.insert(node);
            }
            gathered.push(&piece).map_err(|error| cannot_gather(&error))
        };
        if let Err(failure) = client.streams(node, job, &filter, see).await {
            if failure.exit != Exit::Lost {
                return Err(failure);
            }
            say(&format!("warning: without the output of {node}: {}", failure.message));
            away.insert(node);
        }
    }
    let nodes = client.nodes();
    let why = |node: Option<NodeId>| match node {
        None => MissingReason::Unknown,
        Some(node) if away.contains(&node) => MissingReason::Away,
        Some(node) if damaged.contains(&node) => MissingReason::Damaged,
        Some(node) if nodes.contains(&node) => MissingReason::Gone,
        Some(_) => MissingReason::Left,
    };
    let mut sources = Sources(vec![gathered]);
    let short = records.short(|task, attempt| sources.came_bytes(task, attempt), why);
    if client.raw().map().copies > 1 {
        sources.add_copies(client, job, args.stderr, &short, &away).await?;
    }
    if !sources.print(context, &records, &committed)? {
        tell_file(client, job, &records, args.stderr).await?;
    }
    let short = records.short(|task, attempt| sources.came_bytes(task, attempt), why);
    tell_missing(context, job, args.stderr, &short)?;
    lacks.tasks += short.len() as u64;
    lacks.some_are_away |= short.iter().any(|one| one.why == MissingReason::Away);
    if !records.are_all {
        lacks.is_uncertain = true;
        lacks.unknown.extend(away);
    }
    Ok(())
}

/// Names the file of the first task, if nodes have no output because commands print to files.
async fn tell_file(
    client: &Client,
    job: JobId,
    records: &Records,
    stderr: bool,
) -> Result<(), Failure> {
    let Some(task) = records.first() else { return Ok(()) };
    let files = client.raw().explain(job, task).await?.stream_files;
    let file = files.get(usize::from(stderr)).filter(|file| !file.is_empty());
    match file.map(String::as_str) {
        None => {}
        Some("none") => say(&format!("note: job {}: what task {task} printed was dropped", job.0)),
        Some(file) => say(&printed_to(job, task, file, records.others_of_array())),
    }
    Ok(())
}

/// `others`: the number of further tasks of the array, which have files of their own.
fn printed_to(job: JobId, task: LocalId, file: &str, others: u64) -> String {
    let more = match others {
        0 => String::new(),
        others => format!(", and {others} more to files of their own"),
    };
    format!("note: job {}: task {task} has printed to {file}{more}", job.0)
}

fn tell_missing(
    context: &Context,
    job: JobId,
    stderr: bool,
    short: &[IncompleteOutput],
) -> Result<(), Failure> {
    for line in captured::lines(job, stderr, short) {
        say(&line);
    }
    match context.output.json && !short.is_empty() {
        true => heard(context.output.json(&captured::Missing::new(job, stderr, short))),
        false => Ok(()),
    }
}

pub(crate) fn cannot_gather(error: &std::io::Error) -> Failure {
    Failure::refused(format!("cannot write to a temporary file: {}", plain(error)))
        .hint("set TMPDIR to a directory with space")
}

/// The received output: first from the nodes that ran the tasks, then from those with copies.
struct Sources(Vec<Gathered>);

impl Sources {
    /// Asks the other nodes for copies of missing output.
    async fn add_copies(
        &mut self,
        client: &Client,
        job: JobId,
        stderr: bool,
        short: &[IncompleteOutput],
        away: &BTreeSet<NodeId>,
    ) -> Result<(), Failure> {
        let makers: BTreeSet<NodeId> = short.iter().filter_map(|one| one.node).collect();
        for maker in makers {
            let of_maker = short.iter().filter(|one| one.node == Some(maker));
            let mut tasks: Vec<LocalId> = of_maker.map(|one| one.task).collect();
            if tasks.len() > TASKS_NAMED_MAX {
                tasks.clear(); // All tasks of the job.
            }
            let filter =
                StreamFilter { tasks, stderr, copies_of: Some(maker), ..StreamFilter::default() };
            for keeper in client.nodes() {
                if keeper == maker || away.contains(&keeper) {
                    continue;
                }
                let mut copy = Gathered::new().map_err(|error| cannot_gather(&error))?;
                let see =
                    |piece: StreamPiece| copy.push(&piece).map_err(|error| cannot_gather(&error));
                match client.streams(keeper, job, &filter, see).await {
                    Err(failure) if failure.exit != Exit::Lost => return Err(failure),
                    // Its copies may be on other nodes as well; missing output is named.
                    _ if copy.pieces.is_empty() => {}
                    _ => self.0.push(copy),
                }
            }
        }
        Ok(())
    }

    fn came_bytes(&self, task: LocalId, attempt: Option<Attempt>) -> u64 {
        self.0.iter().map(|source| source.came_bytes(task, attempt)).max().unwrap_or(0)
    }

    /// The attempt of each task that counts: the one that ended it, else the latest.
    fn counting(
        &self,
        records: &Records,
        committed: &HashMap<LocalId, Committed>,
    ) -> Vec<(LocalId, Attempt)> {
        let mut latest = BTreeMap::new();
        for (task, attempt) in self.0.iter().flat_map(|source| source.pieces.keys()) {
            let known = latest.entry(*task).or_insert(*attempt);
            *known = (*known).max(*attempt);
        }
        let counts = |(task, latest): (LocalId, Attempt)| {
            let logged = match committed.get(&task) {
                Some(Committed { attempt, end: End::Done | End::Failed, .. }) => Some(*attempt),
                _ => None,
            };
            (task, records.attempt(task).or(logged).unwrap_or(latest))
        };
        let came = |key: &(LocalId, Attempt)| self.came_bytes(key.0, Some(key.1)) > 0;
        latest.into_iter().map(counts).filter(came).collect()
    }

    /// Prints the output of all attempts that count. False: there is none.
    fn print(
        &mut self,
        context: &Context,
        records: &Records,
        committed: &HashMap<LocalId, Committed>,
    ) -> Result<bool, Failure> {
        let counting = self.counting(records, committed);
        for &(task, attempt) in &counting {
            self.best(task, attempt).print(context, task, attempt)?;
        }
        Ok(!counting.is_empty())
    }

    /// The source with most of it; of equal ones the earlier.
    fn best(&mut self, task: LocalId, attempt: Attempt) -> &mut Gathered {
        let sources = self.0.iter_mut().rev();
        let best = sources.max_by_key(|source| source.came_bytes(task, Some(attempt)));
        best.expect("the first is always there")
    }
}

/// Pieces of streams on disk, by task and attempt.
pub(crate) struct Gathered {
    file: File,
    length: u64,
    /// Pieces behind this place are kept apart from those before it.
    marked: u64,
    /// The pieces in their order.
    pieces: BTreeMap<(LocalId, Attempt), Vec<GatheredPiece>>,
}

/// The place of a piece, its length, and whether an earlier attempt has it too.
type GatheredPiece = (u64, usize, bool);

impl Gathered {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { file: tempfile::tempfile()?, length: 0, marked: 0, pieces: BTreeMap::new() })
    }

    pub(crate) fn push(&mut self, piece: &StreamPiece) -> std::io::Result<()> {
        if piece.data.is_empty() {
            return Ok(());
        }
        self.file.write_all(&piece.data)?;
        let of_task = self.pieces.entry((piece.task, piece.attempt)).or_default();
        let is_next = of_task.last().is_some_and(|&(at, size, carried)| {
            let ends_here = at + size as u64 == self.length && self.length > self.marked;
            ends_here && carried == piece.carried
        });
        match of_task.last_mut() {
            Some((_, size, _)) if is_next => *size += piece.data.len(),
            _ => of_task.push((self.length, piece.data.len(), piece.carried)),
        }
        self.length += piece.data.len() as u64;
        Ok(())
    }

    /// The place behind all pieces so far.
    pub(crate) fn mark(&mut self) -> u64 {
        self.marked = self.length;
        self.length
    }

    /// Drops the pieces behind a place.
    pub(crate) fn drop_behind(&mut self, mark: u64) {
        self.pieces.values_mut().for_each(|pieces| pieces.retain(|&(at, ..)| at < mark));
        self.pieces.retain(|_, pieces| !pieces.is_empty());
    }

    /// Takes over the attempts of which another source has more.
    pub(crate) fn take_over(&mut self, other: &mut Self) -> Result<(), Failure> {
        for (task, attempt) in other.keys() {
            let own_bytes = self.came_bytes(task, Some(attempt));
            if other.came_bytes(task, Some(attempt)) <= own_bytes {
                continue;
            }
            self.pieces.remove(&(task, attempt));
            other.read_pieces(task, attempt, |bytes, carried| {
                let data = bytes.to_vec().into();
                let piece = StreamPiece { task, attempt, data, carried, ..StreamPiece::default() };
                self.push(&piece).map_err(|error| cannot_gather(&error))
            })?;
        }
        Ok(())
    }

    /// The attempts with output, by task.
    pub(crate) fn keys(&self) -> Vec<(LocalId, Attempt)> {
        self.pieces.keys().copied().collect()
    }

    /// The received bytes of an attempt; of the latest one if the attempt that counted is unknown.
    pub(crate) fn came_bytes(&self, task: LocalId, attempt: Option<Attempt>) -> u64 {
        let pieces = match attempt {
            Some(attempt) => self.pieces.get(&(task, attempt)),
            None => {
                let all = self.pieces.range((task, Attempt(0))..=(task, Attempt(u64::MAX)));
                all.last().map(|(_, pieces)| pieces)
            }
        };
        pieces.into_iter().flatten().map(|&(_, size, _)| size as u64).sum()
    }

    /// The received bytes of an attempt that an earlier one has too.
    pub(crate) fn carried_bytes(&self, task: LocalId, attempt: Attempt) -> u64 {
        let pieces = self.pieces.get(&(task, attempt)).into_iter().flatten();
        pieces.filter(|(.., carried)| *carried).map(|&(_, size, _)| size as u64).sum()
    }

    /// Calls `see` with the bytes of one attempt, in pieces of bounded size.
    pub(crate) fn read(
        &mut self,
        task: LocalId,
        attempt: Attempt,
        mut see: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.read_pieces(task, attempt, |bytes, _| see(bytes))
    }

    /// As [`Self::read`]. The flag of a piece is true if an earlier attempt has the piece too.
    pub(crate) fn read_pieces(
        &mut self,
        task: LocalId,
        attempt: Attempt,
        mut see: impl FnMut(&[u8], bool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let failed = |error: std::io::Error| cannot_gather(&error);
        let mut buffer = vec![0; PIECE_BYTES];
        for &(at, size, carried) in self.pieces.get(&(task, attempt)).into_iter().flatten() {
            self.file.seek(SeekFrom::Start(at)).map_err(failed)?;
            let mut left = size;
            while left > 0 {
                let part = &mut buffer[..left.min(PIECE_BYTES)];
                self.file.read_exact(part).map_err(failed)?;
                left -= part.len();
                see(part, carried)?;
            }
        }
        Ok(())
    }

    fn print(&mut self, context: &Context, task: LocalId, attempt: Attempt) -> Result<(), Failure> {
        if !context.output.json {
            return self.read(task, attempt, |bytes| context.output.bytes(bytes));
        }
        let row = |text: &str| {
            let (task, attempt) = (task.to_string(), attempt.to_string());
            context.output.json(&StreamRow { task, attempt, text })
        };
        let mut begun = Vec::new();
        self.read(task, attempt, |bytes| {
            begun.extend_from_slice(bytes);
            let whole = begun.len() - unfinished_bytes(&begun);
            let rest = begun.split_off(whole);
            let text = std::mem::replace(&mut begun, rest);
            row(&String::from_utf8_lossy(&text))
        })?;
        match begun.is_empty() {
            true => Ok(()),
            false => row(&String::from_utf8_lossy(&begun)),
        }
    }
}

/// The number of bytes at the end that begin a UTF-8 character and do not complete it.
fn unfinished_bytes(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let size = match bytes[bytes.len() - back] {
            0b1100_0000..=0b1101_1111 => 2,
            0b1110_0000..=0b1110_1111 => 3,
            0b1111_0000..=0b1111_0111 => 4,
            0b1000_0000..=0b1011_1111 => continue,
            _ => return 0,
        };
        return if size > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(task: u64, attempt: u64, data: &str) -> StreamPiece {
        let (task, attempt) = (LocalId(task), Attempt(attempt));
        let data = data.as_bytes().to_vec().into();
        StreamPiece { task, attempt, data, ..StreamPiece::default() }
    }

    #[test]
    fn files_of_an_array_are_counted() {
        let line = |others| printed_to(JobId(7), LocalId(1), "/d/oo-1.txt", others);
        let task = LocalId(1);
        assert_eq!(line(0), format!("note: job 7: task {task} has printed to /d/oo-1.txt"));
        assert!(line(2).ends_with("/d/oo-1.txt, and 2 more to files of their own"));
    }

    #[test]
    fn pieces_come_together_by_task_and_only_the_attempt_that_counts() {
        let mut gathered = Gathered::new().unwrap();
        for (task, attempt, data) in
            [(2, 1, "lost "), (1, 5, "a"), (2, 3, "x"), (1, 5, "b"), (2, 3, "y"), (2, 3, "z")]
        {
            gathered.push(&piece(task, attempt, data)).unwrap();
        }
        gathered.push(&piece(3, 1, "stale")).unwrap();
        gathered.push(&piece(4, 1, "killed")).unwrap();
        gathered.push(&piece(4, 2, "again")).unwrap();
        let ended = |attempt, end| Committed { node: NodeId(0), attempt: Attempt(attempt), end };
        let committed = HashMap::from([
            (LocalId(2), ended(3, End::Done)),
            (LocalId(3), ended(2, End::Failed)),
            (LocalId(4), ended(0, End::Cancelled)),
        ]);
        assert_eq!(gathered.came_bytes(LocalId(2), Some(Attempt(3))), 3);
        assert_eq!(gathered.came_bytes(LocalId(4), None), 5, "the latest");
        assert_eq!(gathered.came_bytes(LocalId(9), None), 0);
        let mut printed = String::new();
        let mut copy = Gathered::new().unwrap();
        copy.push(&piece(2, 3, "xy")).unwrap();
        copy.push(&piece(5, 1, "copied")).unwrap();
        let mut sources = Sources(vec![gathered, copy]);
        for (task, attempt) in sources.counting(&Records::default(), &committed) {
            let see = |bytes: &[u8]| {
                printed.push_str(std::str::from_utf8(bytes).unwrap());
                Ok(())
            };
            sources.best(task, attempt).read(task, attempt, see).unwrap();
            printed.push('|');
        }
        assert_eq!(printed, "ab|xyz|again|copied|");
    }

    #[test]
    fn pieces_of_a_cut_answer_go_and_a_longer_copy_counts() {
        let (mut gathered, mut copy) = (Gathered::new().unwrap(), Gathered::new().unwrap());
        gathered.push(&piece(1, 1, "ab")).unwrap();
        let mark = gathered.mark();
        gathered.push(&piece(1, 1, "c")).unwrap();
        gathered.push(&piece(2, 1, "x")).unwrap();
        gathered.drop_behind(mark);
        assert_eq!(gathered.keys(), [(LocalId(1), Attempt(1))]);
        assert_eq!(gathered.came_bytes(LocalId(1), None), 2);
        copy.push(&piece(1, 1, "a")).unwrap();
        copy.push(&StreamPiece { carried: true, ..piece(1, 2, "abc") }).unwrap();
        copy.push(&piece(1, 2, "d")).unwrap();
        gathered.take_over(&mut copy).unwrap();
        let mut pieces = Vec::new();
        for attempt in [1, 2].map(Attempt) {
            let see = |bytes: &[u8], carried| {
                pieces.push((String::from_utf8(bytes.to_vec()).unwrap(), carried));
                Ok(())
            };
            gathered.read_pieces(LocalId(1), attempt, see).unwrap();
        }
        let expected = [("ab", false), ("abc", true), ("d", false)];
        assert_eq!(pieces, expected.map(|(text, carried)| (text.to_owned(), carried)));
    }

    #[test]
    fn characters_are_not_cut() {
        let text = "aé€😀".as_bytes();
        let unfinished: Vec<usize> =
            (0..=text.len()).map(|n| unfinished_bytes(&text[..n])).collect();
        assert_eq!(unfinished, [0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 0]);
        assert_eq!(unfinished_bytes(b"\x80\x80\x80\x80"), 0, "no text at all");
        assert_eq!(unfinished_bytes(b"\xff"), 0);
    }
}

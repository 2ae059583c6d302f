//! `starling job logs`: the output of tasks as it is printed, also of running ones.
//!
//! Each node is asked for the output behind the last place that was read. Commands that run give
//! their output to the node at least once a second.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use clap::Args;
use client::{Client, ClientError, StreamFilter, StreamPiece, StreamPlace};
use proto::wire::TaskPhase;
use proto::{Attempt, JobId, LocalId, NodeId, wire};
use serde::Serialize;
use tokio::time::Instant;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::output::say;
use verb::terminal_text::shown;
use verb::units;

use crate::cluster::job::output;
use crate::cluster::task;
use crate::common::selector::Selector;
use crate::views::jobs;

/// The interval of reading.
const READ_EVERY: Duration = Duration::from_millis(500);
/// Bytes of unfinished lines in memory; beyond them the longest are printed as they are.
const UNFINISHED_BYTES_MAX: usize = 16 << 20;
const UNFINISHED_LINE_BYTES_MAX: usize = 64 << 10;
/// Names of tasks in memory.
const NAMES_MAX: usize = 1 << 16;

#[derive(Args, Debug)]
pub(crate) struct LogsArgs {
    /// The job: last, or its number
    job: Selector,
    /// Only of these tasks: names, ids or entries of an array, separated by commas
    tasks: Option<String>,
    /// Follow the output until the job has ended
    #[arg(short, long)]
    follow: bool,
    /// Only standard error
    #[arg(long, conflicts_with = "stdout")]
    stderr: bool,
    /// Only standard output
    #[arg(long)]
    stdout: bool,
    /// Do not begin each line with the name of its task [default: with names, unless one task is
    /// named]
    #[arg(long)]
    no_prefix: bool,
}

#[derive(Serialize)]
struct LineRow<'l> {
    task: String,
    name: &'l str,
    attempt: String,
    stream: &'static str,
    text: &'l str,
}

/// An attempt's stream.
type Stream = (LocalId, Attempt, bool);

/// The output of a job, as far as it is printed.
struct Follower<'c> {
    context: &'c Context,
    client: &'c Client,
    job: JobId,
    tasks: Vec<LocalId>,
    /// Of the streams that are wanted: true for standard error.
    kinds: Vec<bool>,
    has_prefix: bool,
    /// By lines; else bytes as they come.
    by_lines: bool,
    places: BTreeMap<(NodeId, bool), StreamPlace>,
    /// The last line of each stream, without its end, and the name of its task.
    unfinished: HashMap<Stream, (String, Vec<u8>)>,
    unfinished_bytes: usize,
    names: HashMap<LocalId, String>,
    /// The latest attempt of each task that is printed.
    latest: HashMap<LocalId, Attempt>,
    /// Nodes that did not answer at the last reading.
    away: HashSet<NodeId>,
    /// Nodes that answered at the last reading.
    answered: HashSet<NodeId>,
    /// The job had ended before the last reading.
    has_ended: bool,
    /// Bytes of each stream that were read.
    came_bytes: BTreeMap<Stream, u64>,
}

pub(crate) async fn run(context: &Context, client: &Client, args: &LogsArgs) -> Done {
    let job = match jobs::select(client, &args.job).await?[..] {
        [job] => job,
        _ => return Err(Failure::usage("logs are of one job: name one")),
    };
    let mut state = client.raw().job(job).await?;
    if let Some(text) = state.thinned_text() {
        return Err(Failure::refused(format!("{text}, and what they printed"))
            .hint(format!("'starling job info {}' still sums it up", job.0)));
    }
    let tasks: Vec<LocalId> = match &args.tasks {
        Some(text) => {
            let found = task::find(client, job, Some(text)).await?;
            found.iter().map(|task| LocalId(task.local)).collect()
        }
        None => Vec::new(),
    };
    let kinds = match (args.stdout, args.stderr) {
        (true, _) => vec![false],
        (_, true) => vec![true],
        _ => vec![false, true],
    };
    let has_prefix = tasks.len() != 1 && !args.no_prefix;
    let mut follower = Follower {
        context,
        client,
        job,
        by_lines: has_prefix || tasks.len() != 1 || context.output.json,
        tasks,
        kinds,
        has_prefix,
        places: BTreeMap::new(),
        unfinished: HashMap::new(),
        unfinished_bytes: 0,
        names: HashMap::new(),
        latest: HashMap::new(),
        away: HashSet::new(),
        answered: HashSet::new(),
        has_ended: false,
        came_bytes: BTreeMap::new(),
    };
    let mut watch = client.raw().watch_job(job);
    while args.follow && !client::raw::is_ended(&state) {
        follower.read(false).await?;
        let next = Instant::now() + READ_EVERY;
        while let Ok(changed) = tokio::time::timeout_at(next, watch.next()).await {
            match changed? {
                Some(changed) => state = changed,
                None => break,
            }
            if client::raw::is_ended(&state) {
                break;
            }
        }
    }
    follower.has_ended = client::raw::is_ended(&state);
    // What was printed before the end is on the nodes now.
    follower.read(true).await?;
    let lacking = follower.read_copies().await?;
    follower.finish()?;
    if lacking > 0 {
        let tasks = units::number_of(lacking, "task");
        let hint = match follower.away.is_empty() {
            true => "'starling job output' names the reason for each task",
            false => "'starling up' starts the nodes that are missing",
        };
        return Err(Failure::lost(format!("output of {tasks} is missing")).hint(hint));
    }
    Ok(Exit::Ok)
}

impl Follower<'_> {
    /// Prints all output that is new, the attempts of a task in their order. A node that does not
    /// answer is asked again the next time. With `copies` the output of nodes that are gone is read
    /// from the copies on other nodes.
    async fn read(&mut self, copies: bool) -> Result<(), Failure> {
        self.answered.clear();
        let mut fresh = Vec::new();
        for _ in &self.kinds {
            fresh.push(output::Gathered::new().map_err(|e| output::cannot_gather(&e))?);
        }
        for node in self.client.nodes() {
            for (nth, stderr) in self.kinds.clone().into_iter().enumerate() {
                match self.read_one(node, stderr, &mut fresh[nth]).await {
                    Ok(()) => {
                        self.away.remove(&node);
                        self.answered.insert(node);
                    }
                    Err(failure) if failure.exit == Exit::Lost => {
                        self.answered.remove(&node);
                        if self.away.insert(node) {
                            say(&format!("warning: {node} does not answer: {}", failure.message));
                        }
                        break;
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
        let mut copied = Vec::new();
        for stderr in self.kinds.clone() {
            copied.push(match copies {
                true => self.copies_of_gone(stderr).await?,
                false => output::Gathered::new().map_err(|e| output::cannot_gather(&e))?,
            });
        }
        self.print_all(&mut fresh, &mut copied).await
    }

    /// The copies of what was printed on nodes that are not there any more.
    async fn copies_of_gone(&self, stderr: bool) -> Result<output::Gathered, Failure> {
        let mut all = output::Gathered::new().map_err(|e| output::cannot_gather(&e))?;
        let map = self.client.raw().map();
        let members = map.members.iter().filter(|member| member.incarnation > 0);
        let gone = members.map(|member| NodeId(member.node));
        for maker in gone.filter(|maker| !self.answered.contains(maker)) {
            for &keeper in &self.answered {
                let mut copies = output::Gathered::new().map_err(|e| output::cannot_gather(&e))?;
                let (tasks, copies_of) = (self.tasks.clone(), Some(maker));
                let filter = StreamFilter { tasks, stderr, copies_of, ..StreamFilter::default() };
                let see = |piece: StreamPiece| {
                    copies.push(&piece).map_err(|error| output::cannot_gather(&error))
                };
                match self.client.streams(keeper, self.job, &filter, see).await {
                    Err(failure) if failure.exit != Exit::Lost => return Err(failure),
                    // The rest may be on other nodes.
                    _ => all.take_over(&mut copies)?,
                }
            }
        }
        Ok(all)
    }

    /// Prints gathered output: the new one, and of copies what was not printed before.
    async fn print_all(
        &mut self,
        fresh: &mut [output::Gathered],
        copied: &mut [output::Gathered],
    ) -> Result<(), Failure> {
        let all = fresh.iter().chain(copied.iter());
        let attempts: BTreeSet<(LocalId, Attempt)> = all.flat_map(|it| it.keys()).collect();
        for (task, attempt) in attempts {
            let mut all = fresh.iter().chain(copied.iter());
            let goes_on = all.any(|it| it.carried_bytes(task, attempt) > 0);
            self.begin(task, attempt, goes_on).await?;
            for (nth, stderr) in self.kinds.clone().into_iter().enumerate() {
                let stream = (task, attempt, stderr);
                self.print_pieces(stream, &mut fresh[nth], 0)?;
                let known = self.came_bytes.get(&stream).copied().unwrap_or(0);
                self.print_pieces(stream, &mut copied[nth], known)?;
            }
        }
        Ok(())
    }

    /// Prints a stream without its first `known` bytes. What an earlier attempt of the same command
    /// has printed is not printed again.
    fn print_pieces(
        &mut self,
        stream: Stream,
        gathered: &mut output::Gathered,
        mut known: u64,
    ) -> Result<(), Failure> {
        let (task, attempt, stderr) = stream;
        let mut before = self.came_bytes.range((task, Attempt(0), false)..(task, attempt, false));
        let before = before.rfind(|((.., kind), _)| *kind == stderr);
        let before = before.map(|(stream, bytes)| (*stream, *bytes));
        let earlier = before.map_or(0, |(_, bytes)| bytes);
        if gathered.carried_bytes(task, attempt) > 0
            && let Some(line) = before.and_then(|(stream, _)| self.unfinished.remove(&stream))
        {
            self.unfinished.insert(stream, line);
        }
        gathered.read_pieces(task, attempt, |bytes, carried| {
            let skip = known.min(bytes.len() as u64);
            known -= skip;
            let bytes = &bytes[skip as usize..];
            let came = self.came_bytes.entry(stream).or_default();
            // What is carried over comes first in the stream of an attempt.
            let repeated = match carried {
                true => earlier.saturating_sub(*came).min(bytes.len() as u64),
                false => 0,
            };
            *came += bytes.len() as u64;
            self.print(stream, &bytes[repeated as usize..])
        })
    }

    /// The streams of ended tasks that were not read whole: their nodes are away or removed, or a
    /// piece is damaged.
    async fn lacking(&self) -> Result<Vec<(NodeId, Stream)>, Failure> {
        let mut lacking = Vec::new();
        let see = |task: wire::TaskState| {
            let local = LocalId(task.local);
            let is_wanted = self.tasks.is_empty() || self.tasks.contains(&local);
            let has_ended = self.has_ended
                && matches!(task.phase(), TaskPhase::TaskDone | TaskPhase::TaskFailed);
            let is_away = self.away.contains(&NodeId(task.node));
            // A task may have printed more since the reading, if the job had not ended before.
            if !is_wanted || !(has_ended || is_away) {
                return;
            }
            for &stderr in &self.kinds {
                let printed = if stderr { task.stderr_bytes } else { task.stdout_bytes };
                let stream = (local, Attempt(task.attempt), stderr);
                if printed > self.came_bytes.get(&stream).copied().unwrap_or(0) {
                    lacking.push((NodeId(task.node), stream));
                }
            }
        };
        self.client.raw().tasks(self.job, see).await?;
        Ok(lacking)
    }

    /// Reads the output that is missing from the copies on other nodes. Returns the number of
    /// streams that lack a part.
    async fn read_copies(&mut self) -> Result<u64, Failure> {
        let lacking = self.lacking().await?;
        if lacking.is_empty() {
            return Ok(0);
        }
        let makers: BTreeSet<(NodeId, bool)> =
            lacking.iter().map(|(maker, stream)| (*maker, stream.2)).collect();
        for (maker, stderr) in makers {
            for keeper in self.client.nodes() {
                if keeper == maker || self.away.contains(&keeper) {
                    continue;
                }
                let mut copies = output::Gathered::new().map_err(|e| output::cannot_gather(&e))?;
                let copies_of = Some(maker);
                let tasks = self.tasks.clone();
                let filter = StreamFilter { tasks, stderr, copies_of, ..StreamFilter::default() };
                let see = |piece: StreamPiece| {
                    copies.push(&piece).map_err(|error| output::cannot_gather(&error))
                };
                match self.client.streams(keeper, self.job, &filter, see).await {
                    Err(failure) if failure.exit != Exit::Lost => return Err(failure),
                    // The rest may be on other nodes; missing output is counted.
                    _ => self.print_rest(&mut copies, &lacking, stderr).await?,
                }
            }
        }
        Ok(self.lacking().await?.len() as u64)
    }

    /// Prints the parts of copies that were not read before.
    async fn print_rest(
        &mut self,
        copies: &mut output::Gathered,
        lacking: &[(NodeId, Stream)],
        stderr: bool,
    ) -> Result<(), Failure> {
        for &(maker, stream) in lacking.iter().filter(|(_, stream)| stream.2 == stderr) {
            let (task, attempt, _) = stream;
            let known = self.came_bytes.get(&stream).copied().unwrap_or(0);
            // Of a node that has answered, a damaged part may be before the printed end.
            let is_damaged = known > 0 && self.answered.contains(&maker);
            if is_damaged || copies.came_bytes(task, Some(attempt)) <= known {
                continue;
            }
            let goes_on = copies.carried_bytes(task, attempt) > 0;
            self.begin(task, attempt, goes_on).await?;
            self.print_pieces(stream, copies, known)?;
        }
        Ok(())
    }

    /// Gathers what is new on a node. Of an answer without its end nothing counts.
    async fn read_one(
        &mut self,
        node: NodeId,
        stderr: bool,
        gathered: &mut output::Gathered,
    ) -> Result<(), Failure> {
        let after = self.places.get(&(node, stderr)).copied().unwrap_or_default();
        let tasks = self.tasks.clone();
        let filter = StreamFilter { tasks, stderr, after, ..StreamFilter::default() };
        let mark = gathered.mark();
        let (mut place, mut is_damaged) = (None, false);
        let see = |piece: StreamPiece| {
            is_damaged |= piece.damaged;
            if piece.end {
                place = Some(piece.place);
            }
            gathered.push(&piece).map_err(|error| output::cannot_gather(&error))
        };
        let answer = self.client.streams(node, self.job, &filter, see).await;
        // An answer without its end is asked for again as a whole.
        let cut = || Failure::lost("the answer was cut");
        let place = match answer.and_then(|()| place.ok_or_else(cut)) {
            Ok(place) => place,
            Err(failure) => {
                gathered.drop_behind(mark);
                return Err(failure);
            }
        };
        self.places.insert((node, stderr), place);
        if is_damaged {
            say(&format!("warning: {node}: a part of the output is damaged"));
        }
        Ok(())
    }

    /// Looks up the name of a task, and names a repetition. An attempt that `goes_on` is the same
    /// command as the one before.
    async fn begin(
        &mut self,
        task: LocalId,
        attempt: Attempt,
        goes_on: bool,
    ) -> Result<(), Failure> {
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        let is_named = self.has_prefix || self.context.output.json;
        if is_named && !self.names.contains_key(&task) {
            let name = match self.client.raw().explain(self.job, task).await {
                Ok(explained) => explained.task.map(|task| task.name).unwrap_or_default(),
                // The output does not wait for the home of its task.
                Err(ClientError::ClusterUnreachable(_)) => String::new(),
                Err(error) => return Err(error.into()),
            };
            self.names.insert(task, if name.is_empty() { task.to_string() } else { name });
        }
        if self.latest.len() >= NAMES_MAX {
            self.latest.clear();
        }
        let latest = self.latest.entry(task).or_insert(attempt);
        if *latest < attempt {
            *latest = attempt;
            if goes_on {
                return Ok(());
            }
            let name = self.names.get(&task).cloned().unwrap_or_else(|| task.to_string());
            self.context.output.note(&format!("note: task '{name}' runs again: attempt {attempt}"));
        }
        Ok(())
    }

    fn print(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), Failure> {
        if !self.by_lines {
            return self.context.output.bytes(bytes);
        }
        let known = self.unfinished.remove(&stream);
        let (name, mut line) = known.unwrap_or_else(|| {
            let name = self.names.get(&stream.0).cloned();
            (name.unwrap_or_else(|| stream.0.to_string()), Vec::new())
        });
        self.unfinished_bytes -= line.len();
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            line.extend_from_slice(part);
            if part.ends_with(b"\n") || line.len() >= UNFINISHED_LINE_BYTES_MAX {
                self.print_line(stream, &name, &line)?;
                line.clear();
            }
        }
        if !line.is_empty() {
            self.unfinished_bytes += line.len();
            self.unfinished.insert(stream, (name, line));
        }
        match self.unfinished_bytes > UNFINISHED_BYTES_MAX {
            true => self.finish(),
            false => Ok(()),
        }
    }

    fn print_line(&self, stream: Stream, name: &str, line: &[u8]) -> Result<(), Failure> {
        let (task, attempt, stderr) = stream;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if self.context.output.json {
            return self.context.output.json(&LineRow {
                task: task.to_string(),
                name,
                attempt: attempt.to_string(),
                stream: if stderr { "stderr" } else { "stdout" },
                text: &String::from_utf8_lossy(line),
            });
        }
        let mut text = Vec::with_capacity(line.len() + name.len() + 4);
        if self.has_prefix {
            text.extend_from_slice(shown(name).as_bytes());
            text.extend_from_slice(if stderr { b" ! " } else { b" | " });
        }
        text.extend_from_slice(line);
        text.push(b'\n');
        self.context.output.bytes(&text)
    }

    /// Prints the lines without an end.
    fn finish(&mut self) -> Result<(), Failure> {
        let mut unfinished: Vec<_> = self.unfinished.drain().collect();
        self.unfinished_bytes = 0;
        unfinished.sort_by_key(|(stream, _)| *stream);
        let print = |(stream, (name, line)): &(Stream, (String, Vec<u8>))| {
            self.print_line(*stream, name, line)
        };
        unfinished.iter().try_for_each(print)
    }
}

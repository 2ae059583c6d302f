/*!
Writes a run as Chrome trace JSON for Perfetto and chrome://tracing. `starling trace` uses it.

A process is a node, and a thread is a slot. Each attempt is one complete event on each of its
slots. Steals, pushes, further attempts and stale completions are instants. Fetches are asynchronous
spans beside the slots. Flows lead from a parent to the tasks that read its outputs, and from the
node that a task has left to its start. Each node has counters of queued and running attempts.

The trace is written while the log is read. In memory are queued and running attempts, and a bounded
number of flows.
*/

mod counters;
mod flows;
mod words;

pub use flows::{Edges, FLOWS_MAX, FlowCounts};
pub(crate) use words::{end_word, reason_word, retry_reason};

use std::io::{self, Write};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use proto::event::{End, Event, Reason};
use proto::{Attempt, NodeId, Policy, Span, TaskId, Time};
use serde_json::{Value, json};

use self::counters::{Counters, Stage};
use self::flows::{Flow, Flows, Place};
use crate::events::Entry;

/// The thread of an attempt without a start in the log.
const SLOT_UNKNOWN: u32 = 1 << 20;
/// The thread of a node with the moves of tasks to other nodes.
const SLOT_MOVES: u32 = SLOT_UNKNOWN + 1;

/// An attempt on a node that has not ended.
#[derive(Clone, Debug, Default)]
struct Pending {
    slot: Option<u32>,
    /// The further slots of a wide task.
    more: Vec<u32>,
    reason: Option<Reason>,
    queued: Option<Time>,
    /// The node that it left for this one, and the time.
    left: Option<(Left, NodeId, Time)>,
}

/// The way of a task to another node.
#[derive(Clone, Copy, Debug)]
enum Left {
    Pushed,
    Stolen,
}

impl Pending {
    fn stage(&self) -> Stage {
        match (self.slot, self.queued) {
            (Some(_), _) => Stage::Running,
            (None, Some(_)) => Stage::Queued,
            (None, None) => Stage::None,
        }
    }
}

/// What the trace calls a task. Tasks of one kind have one category and colour.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Label {
    pub name: String,
    /// Empty: not known.
    pub kind: String,
}

/// Reads events in order of time and writes JSON to `out`.
#[derive(Debug)]
pub struct TraceWriter<W, N> {
    out: W,
    /// Returns the name and the kind of a task, if it has a name.
    labels: N,
    /// Time 0 of the trace.
    origin: Option<Time>,
    written: u64,
    fetches: u64,
    flows: Flows,
    counters: Counters,
    pending: HashMap<(NodeId, TaskId, Attempt), Pending, FixedState>,
    threads: HashSet<(NodeId, u32), FixedState>,
    /// The latest incarnation of each node in the log.
    started: HashMap<NodeId, u32, FixedState>,
}

impl<W: Write, N: FnMut(TaskId) -> Option<Label>> TraceWriter<W, N> {
    /// Time 0 is `origin`, or the time of the first event.
    pub fn new(mut out: W, origin: Option<Time>, labels: N) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Self {
            out,
            labels,
            origin,
            written: 0,
            fetches: 0,
            flows: Flows::default(),
            counters: Counters::default(),
            pending: HashMap::default(),
            threads: HashSet::default(),
            started: HashMap::default(),
        })
    }

    /// Draws the flows of data along these edges.
    #[must_use]
    pub fn with_edges(mut self, edges: Edges) -> Self {
        self.flows = Flows::new(edges);
        self
    }

    /// The numbers of flows so far.
    #[must_use]
    pub fn flow_counts(&self) -> FlowCounts {
        self.flows.counts
    }

    pub fn push(&mut self, entry: &Entry) -> io::Result<()> {
        let Entry { node, time, event } = *entry;
        self.origin.get_or_insert(time);
        match event {
            Event::NodeStarted { node, incarnation, slots } => {
                self.node_started(node, incarnation, slots, time)
            }
            Event::Queued { .. }
            | Event::Pushed { .. }
            | Event::Stolen { .. }
            | Event::Started { .. }
            | Event::Widened { .. }
            | Event::Dismissed { .. } => self.before_the_end(entry),
            Event::Fetched { task, attempt, from, bytes, took } => {
                self.fetched(node, time, (task, attempt), from, bytes, took)
            }
            Event::PartBegan { .. } | Event::PartEnded { .. } => self.part_of_gang(entry),
            Event::Ended { .. } => self.ended(entry),
            Event::Replaced { task, attempt, why } => {
                let args = json!({"why": retry_reason(why)});
                self.instant(node, time, "again", task, attempt, args)
            }
            Event::Stale { task, attempt } => {
                self.instant(node, time, "stale", task, attempt, json!({}))
            }
            Event::TakenOver { task, attempt, from } => {
                self.instant(node, time, "taken over", task, attempt, json!({"from": from.0}))
            }
            Event::Moved { task, attempt, from } => {
                self.instant(node, time, "moved", task, attempt, json!({"from": from.0}))
            }
            Event::MissedWakeupRepaired { task } => {
                self.instant(node, time, "woken", task, Attempt::default(), json!({}))
            }
            Event::CrashCounted { task, attempt, node: died, incarnation, count } => {
                let args = json!({"died": died.0, "incarnation": incarnation, "strikes": count});
                self.instant(node, time, "struck", task, attempt, args)
            }
            Event::Spared { task, attempt, node: gone, incarnation, why } => {
                let args = json!({"gone": gone.0, "incarnation": incarnation, "why": why.text()});
                self.instant(node, time, "spared", task, attempt, args)
            }
            Event::Stalled { task, stall, holder, quiet, .. } => {
                let args = json!({
                    "why": stall.text(), "holder": holder.0, "quiet_s": quiet.as_secs_f64()
                });
                self.instant(node, time, "stalled", task, Attempt::default(), args)
            }
            Event::Shifted { .. } | Event::PolicyChanged { .. } | Event::Retuned { .. } => {
                self.scheduling(entry)
            }
            Event::Staged { .. } | Event::Visible { .. } | Event::Removing { .. } => Ok(()),
            Event::Committed { .. } | Event::Turned { .. } | Event::JobEnded { .. } => Ok(()),
        }
    }

    /// An attempt enters a queue, moves, starts, or is revoked.
    fn before_the_end(&mut self, entry: &Entry) -> io::Result<()> {
        let Entry { node, time, event } = *entry;
        match event {
            Event::Queued { task, attempt, reason, .. } => {
                self.change(node, time, (task, attempt), |pending| {
                    // A stolen or pushed task keeps the reason of its move.
                    pending.reason = pending.reason.or(Some(reason));
                    pending.queued = pending.queued.or(Some(time));
                })
            }
            Event::Pushed { task, attempt, to, reason, input_bytes } => {
                self.leaves((node, to), time, (task, attempt), Left::Pushed)?;
                let args = json!({"to": to.0, "reason": reason_word(reason), "bytes": input_bytes});
                self.instant(node, time, "push", task, attempt, args)
            }
            Event::Stolen { task, attempt, from } => {
                self.leaves((from, node), time, (task, attempt), Left::Stolen)?;
                self.instant(node, time, "steal", task, attempt, json!({"from": from.0}))
            }
            Event::Started { task, attempt, slot } | Event::Widened { task, attempt, slot } => self
                .change(node, time, (task, attempt), |pending| match pending.slot {
                    None => pending.slot = Some(slot),
                    Some(_) => pending.more.push(slot),
                }),
            Event::Dismissed { task, attempt } => {
                let known = self.pending.get(&(node, task, attempt));
                if known.is_some_and(|pending| pending.slot.is_none()) {
                    self.forget(node, time, (task, attempt))?;
                }
                self.instant(node, time, "dismissed", task, attempt, json!({}))
            }
            _ => Ok(()),
        }
    }

    /// Changes a pending attempt, and counts it.
    fn change(
        &mut self,
        node: NodeId,
        time: Time,
        (task, attempt): (TaskId, Attempt),
        change: impl FnOnce(&mut Pending),
    ) -> io::Result<()> {
        let pending = self.pending.entry((node, task, attempt)).or_default();
        let before = pending.stage();
        change(pending);
        let after = pending.stage();
        self.count(node, time, before, after)
    }

    /// An attempt is not pending on this node any more.
    fn forget(
        &mut self,
        node: NodeId,
        time: Time,
        (task, attempt): (TaskId, Attempt),
    ) -> io::Result<Pending> {
        let Some(pending) = self.pending.remove(&(node, task, attempt)) else {
            return Ok(Pending::default());
        };
        self.count(node, time, pending.stage(), Stage::None)?;
        Ok(pending)
    }

    /// A task leaves a node for another one.
    fn leaves(
        &mut self,
        (from, to): (NodeId, NodeId),
        time: Time,
        (task, attempt): (TaskId, Attempt),
        how: Left,
    ) -> io::Result<()> {
        self.forget(from, time, (task, attempt))?;
        let left = Some((how, from, time));
        self.change(to, time, (task, attempt), |pending| pending.left = left)
    }

    fn count(&mut self, node: NodeId, time: Time, before: Stage, after: Stage) -> io::Result<()> {
        for sample in self.counters.change(node, time, before, after) {
            self.sample(&sample)?;
        }
        Ok(())
    }

    fn sample(&mut self, sample: &counters::Sample) -> io::Result<()> {
        let args = json!({"running": sample.running, "queued": sample.queued});
        self.write(&json!({
            "ph": "C", "name": "attempts", "pid": sample.node.0, "tid": 0,
            "ts": self.micros(sample.time), "args": args,
        }))
    }

    /// A node other than the first one of a gang gives it a slot, or has its slots back.
    fn part_of_gang(&mut self, entry: &Entry) -> io::Result<()> {
        let Entry { node, time, event } = *entry;
        match event {
            Event::PartBegan { task, attempt, slot } => {
                self.instant(node, time, "gang has slot", task, attempt, json!({"slot": slot}))
            }
            Event::PartEnded { task, attempt } => {
                self.instant(node, time, "gang leaves", task, attempt, json!({}))
            }
            _ => Ok(()),
        }
    }

    /// A change of a node's scheduling.
    fn scheduling(&mut self, entry: &Entry) -> io::Result<()> {
        let Entry { node, time, event } = *entry;
        let name = |number: u8| Policy::numbered(number).map(Policy::name);
        match event {
            Event::Shifted { tasks, wait_max } => {
                let args = json!({"tasks": tasks, "longest_wait_s": wait_max.as_secs_f64()});
                self.of_node(node, time, "shifted", args)
            }
            Event::PolicyChanged { from, to } => {
                self.of_node(node, time, "policy", json!({"from": name(from), "to": name(to)}))
            }
            Event::Retuned { from, to, threshold, wait_max, steal: [start, bound] } => {
                let args = json!({
                    "from": name(from), "to": name(to), "threshold": threshold,
                    "longest_wait_s": wait_max.as_secs_f64(),
                    "steal_start_s": start.as_secs_f64(),
                    "steal_bound_s": bound.as_secs_f64(),
                });
                self.of_node(node, time, "set", args)
            }
            _ => Ok(()),
        }
    }

    /// Closes the JSON. Most viewers read an unclosed file too, but it is not valid JSON.
    pub fn finish(mut self) -> io::Result<W> {
        for sample in self.counters.finish() {
            self.sample(&sample)?;
        }
        let FlowCounts { data, moves, left_out, unmatched } = self.flows.counts;
        let other = json!({
            "data_flows": data, "move_flows": moves, "flows_left_out": left_out,
            "flows_without_a_slice": unmatched,
        });
        write!(self.out, "\n],\"otherData\":{other}}}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn node_started(
        &mut self,
        node: NodeId,
        incarnation: u32,
        slots: u32,
        time: Time,
    ) -> io::Result<()> {
        let earlier = self.started.insert(node, incarnation);
        if earlier == Some(incarnation) {
            return Ok(());
        }
        if earlier.is_none() {
            let name = json!({"name": format!("node {}", node.0)});
            self.metadata("process_name", node, 0, name)?;
            self.metadata("process_sort_index", node, 0, json!({"sort_index": node.0}))?;
        }
        // A new incarnation runs nothing of the earlier one.
        let gone = self.pending.extract_if(|(of, ..), _| *of == node && earlier.is_some());
        let stages: Vec<Stage> = gone.map(|(_, pending)| pending.stage()).collect();
        for stage in stages {
            self.count(node, time, stage, Stage::None)?;
        }
        let args = json!({"incarnation": incarnation, "slots": slots});
        self.of_node(node, time, "node started", args)
    }

    /// An instant of a whole node. One from before the submission is at its time: a viewer would
    /// show the days of an old cluster.
    fn of_node(&mut self, node: NodeId, time: Time, what: &str, args: Value) -> io::Result<()> {
        let time = self.origin.map_or(time, |origin| time.max(origin));
        self.write(&json!({
            "ph": "i", "s": "p", "name": what, "cat": "node", "pid": node.0, "tid": 0,
            "ts": self.micros(time), "args": args,
        }))
    }

    fn ended(&mut self, entry: &Entry) -> io::Result<()> {
        let Event::Ended { task, attempt, end, started, moved_bytes, local_bytes } = entry.event
        else {
            unreachable!("called for Ended only");
        };
        let node = entry.node;
        let pending = self.forget(node, entry.time, (task, attempt))?;
        let slot = pending.slot.unwrap_or(SLOT_UNKNOWN);
        self.name_thread(node, slot)?;
        let Label { name, kind } = (self.labels)(task)
            .unwrap_or_else(|| Label { name: task.local.to_string(), kind: String::new() });
        let waited = pending.queued.map_or(Span::ZERO, |queued| started.since(queued));
        let mut event = json!({
            "ph": "X", "name": name, "cat": if kind.is_empty() { "task" } else { &kind },
            "cname": words::colour(&kind, end), "pid": node.0, "tid": slot,
            "ts": self.micros(started), "dur": micros_of(entry.time.since(started)),
            "args": {
                "job": task.job.0,
                "task": task.local.to_string(),
                "attempt": attempt.to_string(),
                "end": end_word(end),
                "reason": pending.reason.map(reason_word),
                "queued_us": micros_of(waited),
                "moved_bytes": moved_bytes,
                "local_bytes": local_bytes,
            },
        });
        if !pending.more.is_empty() {
            event["args"]["slots"] = (pending.more.len() + 1).into();
        }
        for slot in pending.more {
            self.name_thread(node, slot)?;
            event["tid"] = slot.into();
            self.write(&event)?;
        }
        event["tid"] = slot.into();
        self.write(&event)?;
        let place = Place { node, slot, started, ended: entry.time.max(started) };
        self.flows_into(task, place, pending.left)?;
        if end == End::Done {
            self.flows.ended(task.local, place);
        }
        Ok(())
    }

    /// The flows to an attempt with a written slice.
    fn flows_into(
        &mut self,
        task: TaskId,
        place: Place,
        left: Option<(Left, NodeId, Time)>,
    ) -> io::Result<()> {
        for flow in self.flows.of_data(task.local, place) {
            self.flow("data", &flow)?;
        }
        let Some((how, from, time)) = left else { return Ok(()) };
        let Some((flow, is_first)) = self.flows.of_move((from, time), place) else { return Ok(()) };
        let name = match how {
            Left::Pushed => "pushes",
            Left::Stolen => "is stolen from",
        };
        if is_first {
            self.name_thread(from, SLOT_MOVES)?;
            // A flow begins in a slice only.
            self.write(&json!({
                "ph": "X", "name": name, "cat": "move", "pid": from.0, "tid": SLOT_MOVES,
                "ts": self.micros(time), "dur": 0.001,
            }))?;
        }
        self.flow("move", &flow)
    }

    fn flow(&mut self, kind: &str, flow: &Flow) -> io::Result<()> {
        let (from, to) = (flow.from, flow.to);
        self.write(&json!({
            "ph": "s", "bp": "e", "cat": kind, "name": kind, "id": flow.id,
            "pid": from.node.0, "tid": from.slot, "ts": self.micros(flow.leaves),
        }))?;
        self.write(&json!({
            "ph": "f", "bp": "e", "cat": kind, "name": kind, "id": flow.id,
            "pid": to.node.0, "tid": to.slot, "ts": self.micros(to.started),
        }))
    }

    fn name_thread(&mut self, node: NodeId, slot: u32) -> io::Result<()> {
        if !self.threads.insert((node, slot)) {
            return Ok(());
        }
        let name = match slot {
            SLOT_UNKNOWN => "slot unknown".into(),
            SLOT_MOVES => "moves to other nodes".into(),
            slot => format!("slot {slot}"),
        };
        self.metadata("thread_name", node, slot, json!({"name": name}))
    }

    fn fetched(
        &mut self,
        node: NodeId,
        time: Time,
        (task, attempt): (TaskId, Attempt),
        from: NodeId,
        bytes: u64,
        took: Span,
    ) -> io::Result<()> {
        self.fetches += 1;
        let id = self.fetches;
        let start = Time(time.0.saturating_sub(took.0));
        let name = format!("fetch from node {}", from.0);
        let args = json!({
            "task": task.local.to_string(), "attempt": attempt.to_string(), "bytes": bytes,
        });
        self.write(&json!({
            "ph": "b", "cat": "fetch", "name": name, "id": id, "pid": node.0, "tid": 0,
            "ts": self.micros(start), "args": args,
        }))?;
        self.write(&json!({
            "ph": "e", "cat": "fetch", "name": name, "id": id, "pid": node.0, "tid": 0,
            "ts": self.micros(time),
        }))
    }

    fn instant(
        &mut self,
        node: NodeId,
        time: Time,
        name: &str,
        task: TaskId,
        attempt: Attempt,
        mut args: Value,
    ) -> io::Result<()> {
        args["task"] = task.local.to_string().into();
        args["attempt"] = attempt.to_string().into();
        self.write(&json!({
            "ph": "i", "s": "p", "name": name, "cat": "move", "pid": node.0, "tid": 0,
            "ts": self.micros(time), "args": args,
        }))
    }

    fn metadata(&mut self, kind: &str, node: NodeId, tid: u32, args: Value) -> io::Result<()> {
        self.write(&json!({"ph": "M", "name": kind, "pid": node.0, "tid": tid, "args": args}))
    }

    fn write(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if self.written == 0 { b"\n" } else { b",\n" })?;
        self.written += 1;
        lens::trace::write_event(event, &mut self.out)
    }

    /// Microseconds since the origin; negative if a node's clock is behind it.
    fn micros(&self, time: Time) -> f64 {
        let origin = self.origin.unwrap_or_default();
        match time >= origin {
            true => micros_of(time.since(origin)),
            false => -micros_of(origin.since(time)),
        }
    }
}

fn micros_of(span: Span) -> f64 {
    span.0 as f64 / 1e3
}

#[cfg(test)]
mod tests;

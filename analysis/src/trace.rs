/*!
Writes a run as Chrome trace JSON for Perfetto and chrome://tracing. `starling trace` uses it.

A process is a node, and a thread is a slot. Each attempt is one complete event on each of its
slots. Steals, pushes, further attempts and stale completions are instants. Fetches are asynchronous
spans beside the slots. The trace is written while the log is read; only queued and running attempts
are in memory.
*/

use std::io::{self, Write};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use proto::event::{End, Event, Reason, RetryReason};
use proto::{Attempt, NodeId, Policy, Span, TaskId, Time};
use serde_json::{Value, json};

use crate::events::Entry;

/// The thread of an attempt without a start in the log.
const SLOT_UNKNOWN: u32 = 1 << 20;

/// An attempt on a node that has not ended.
#[derive(Clone, Debug, Default)]
struct Pending {
    slot: Option<u32>,
    /// The further slots of a wide task.
    more: Vec<u32>,
    reason: Option<Reason>,
    queued: Option<Time>,
}

/// Reads events in order of time and writes JSON to `out`.
#[derive(Debug)]
pub struct TraceWriter<W, N> {
    out: W,
    /// Returns the name of a task, if it has one.
    names: N,
    /// Time 0 of the trace.
    origin: Option<Time>,
    written: u64,
    fetches: u64,
    pending: HashMap<(NodeId, TaskId, Attempt), Pending, FixedState>,
    threads: HashSet<(NodeId, u32), FixedState>,
    /// The latest incarnation of each node in the log.
    started: HashMap<NodeId, u32, FixedState>,
}

impl<W: Write, N: FnMut(TaskId) -> Option<String>> TraceWriter<W, N> {
    /// Time 0 is `origin`, or the time of the first event.
    pub fn new(mut out: W, origin: Option<Time>, names: N) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Self {
            out,
            names,
            origin,
            written: 0,
            fetches: 0,
            pending: HashMap::default(),
            threads: HashSet::default(),
            started: HashMap::default(),
        })
    }

    pub fn push(&mut self, entry: &Entry) -> io::Result<()> {
        let Entry { node, time, event } = *entry;
        self.origin.get_or_insert(time);
        match event {
            Event::NodeStarted { node, incarnation, slots } => {
                self.node_started(node, incarnation, slots, time)
            }
            Event::Queued { task, attempt, reason, .. } => {
                let pending = self.pending.entry((node, task, attempt)).or_default();
                // A stolen or pushed task keeps the reason of its move.
                pending.reason = pending.reason.or(Some(reason));
                pending.queued = pending.queued.or(Some(time));
                Ok(())
            }
            Event::Pushed { task, attempt, to, reason, input_bytes } => {
                self.pending.remove(&(node, task, attempt));
                let args = json!({"to": to.0, "reason": reason_word(reason), "bytes": input_bytes});
                self.instant(node, time, "push", task, attempt, args)
            }
            Event::Stolen { task, attempt, from } => {
                self.pending.remove(&(from, task, attempt));
                self.instant(node, time, "steal", task, attempt, json!({"from": from.0}))
            }
            Event::Fetched { task, attempt, from, bytes, took } => {
                self.fetched(node, time, (task, attempt), from, bytes, took)
            }
            Event::Started { task, attempt, slot } | Event::Widened { task, attempt, slot } => {
                let pending = self.pending.entry((node, task, attempt)).or_default();
                match pending.slot {
                    None => pending.slot = Some(slot),
                    Some(_) => pending.more.push(slot),
                }
                Ok(())
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
            Event::Dismissed { task, attempt } => {
                self.instant(node, time, "dismissed", task, attempt, json!({}))
            }
            Event::TakenOver { task, attempt, from } => {
                self.instant(node, time, "taken over", task, attempt, json!({"from": from.0}))
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
        self.out.write_all(b"\n]}\n")?;
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
        let args = json!({"incarnation": incarnation, "slots": slots});
        self.of_node(node, time, "node started", args)
    }

    /// An instant of a whole node. One from before the submission is at its time: a viewer would
    /// show the days of an old cluster.
    fn of_node(&mut self, node: NodeId, time: Time, what: &str, args: Value) -> io::Result<()> {
        let time = self.origin.map_or(time, |origin| time.max(origin));
        self.write(json!({
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
        let pending = self.pending.remove(&(node, task, attempt)).unwrap_or_default();
        let slot = pending.slot.unwrap_or(SLOT_UNKNOWN);
        self.name_thread(node, slot)?;
        let name = (self.names)(task).unwrap_or_else(|| task.local.to_string());
        let waited = pending.queued.map_or(Span::ZERO, |queued| started.since(queued));
        let mut event = json!({
            "ph": "X", "name": name, "cat": "task", "pid": node.0, "tid": slot,
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
            self.write(event.clone())?;
        }
        event["tid"] = slot.into();
        self.write(event)
    }

    fn name_thread(&mut self, node: NodeId, slot: u32) -> io::Result<()> {
        if !self.threads.insert((node, slot)) {
            return Ok(());
        }
        let name = match slot {
            SLOT_UNKNOWN => "slot unknown".into(),
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
        self.write(json!({
            "ph": "b", "cat": "fetch", "name": name, "id": id, "pid": node.0, "tid": 0,
            "ts": self.micros(start), "args": args,
        }))?;
        self.write(json!({
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
        self.write(json!({
            "ph": "i", "s": "p", "name": name, "cat": "move", "pid": node.0, "tid": 0,
            "ts": self.micros(time), "args": args,
        }))
    }

    fn metadata(&mut self, kind: &str, node: NodeId, tid: u32, args: Value) -> io::Result<()> {
        self.write(json!({"ph": "M", "name": kind, "pid": node.0, "tid": tid, "args": args}))
    }

    fn write(&mut self, event: Value) -> io::Result<()> {
        self.out.write_all(if self.written == 0 { b"\n" } else { b",\n" })?;
        self.written += 1;
        serde_json::to_writer(&mut self.out, &event)?;
        Ok(())
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

pub(crate) fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::NoInput => "no input",
        Reason::SmallInputs => "small inputs",
        Reason::SmallLargest => "small largest input",
        Reason::BigHere => "big input here",
        Reason::BigElsewhere => "big input elsewhere",
        Reason::Pushed => "pushed",
        Reason::Stolen => "stolen",
        Reason::GivenBack => "given back",
        Reason::TooWide => "too wide for its home",
        Reason::Shifted => "waited too long",
        Reason::EarliestHere => "ends first here",
        Reason::EarliestElsewhere => "ends first there",
        Reason::OfferedAgain => "offered again",
        Reason::NotOffered => "not offered by its home",
        Reason::GangLed => "led by another node",
    }
}

pub(crate) fn end_word(end: End) -> &'static str {
    match end {
        End::Done => "done",
        End::Failed => "failed",
        End::Cancelled => "cancelled",
        End::Skipped => "skipped",
    }
}

pub(crate) fn retry_reason(why: RetryReason) -> &'static str {
    match why {
        RetryReason::HolderRestarted => "the node that held it restarted",
        RetryReason::NotHeld => "the node that should hold it did not know it",
        RetryReason::HomeRestarted => "its home restarted",
        RetryReason::Retry => "it failed and has retries left",
        RetryReason::InputReplaced => "one of its inputs was replaced",
        RetryReason::Lost => "the process that ran it died",
        RetryReason::HolderGone => "the node that held it died",
        RetryReason::Rebuilt => "what it had made was lost and still wanted",
        RetryReason::InputLost => "one of its inputs was lost and is made again",
        RetryReason::Recalled => "one of its inputs was made again with other bytes",
        RetryReason::Round => "its job is retried",
        RetryReason::Moved => "it was moved: its node ends or is drained",
        RetryReason::MemberGone => "another node of its gang died",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn entry(node: u32, at_ms: u64, event: Event) -> Entry {
        Entry { node: NodeId(node), time: Time(at_ms * MS), event }
    }

    fn story() -> Vec<Entry> {
        let (task, attempt) = (TaskId::new(1, 7), Attempt::new(1, 2));
        let reason = Reason::Stolen;
        vec![
            entry(3, 1, Event::NodeStarted { node: NodeId(3), incarnation: 1, slots: 2 }),
            entry(3, 4, Event::Stolen { task, attempt, from: NodeId(0) }),
            entry(
                3,
                5,
                Event::Queued { task, attempt, local_queue: false, reason, input_bytes: 9 },
            ),
            entry(
                3,
                8,
                Event::Fetched {
                    task,
                    attempt,
                    from: NodeId(1),
                    bytes: 9,
                    took: Span::from_millis(2),
                },
            ),
            entry(3, 9, Event::Started { task, attempt, slot: 1 }),
            entry(
                3,
                12,
                Event::Ended {
                    task,
                    attempt,
                    end: End::Done,
                    started: Time(9 * MS),
                    moved_bytes: 9,
                    local_bytes: 0,
                },
            ),
        ]
    }

    fn trace(entries: &[Entry]) -> Value {
        let names = |task: TaskId| Some(format!("na\"me {}", task.local.0));
        let mut writer = TraceWriter::new(Vec::new(), None, names).unwrap();
        entries.iter().for_each(|entry| writer.push(entry).unwrap());
        serde_json::from_slice(&writer.finish().unwrap()).expect("valid JSON")
    }

    #[test]
    fn an_attempt_is_one_complete_event_in_its_slot() {
        let trace = trace(&story());
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |phase: &str| -> Vec<&Value> {
            events.iter().filter(|event| event["ph"] == phase).collect()
        };
        let expected = json!({
            "ph": "X", "name": "na\"me 7", "cat": "task", "pid": 3, "tid": 1,
            "ts": 8000.0, "dur": 3000.0,
            "args": {
                "job": 1, "task": "0.7", "attempt": "1.2", "end": "done", "reason": "stolen",
                "queued_us": 4000.0, "moved_bytes": 9, "local_bytes": 0,
            },
        });
        assert_eq!(of("X"), [&expected]);
        let instants: Vec<_> = of("i").iter().map(|event| event["name"].clone()).collect();
        assert_eq!(instants, ["node started", "steal"]);
        assert_eq!((&of("b")[0]["ts"], &of("e")[0]["ts"]), (&json!(5000.0), &json!(7000.0)));
        let names: Vec<_> = of("M").iter().map(|event| event["args"].clone()).collect();
        let expected =
            [json!({"name": "node 3"}), json!({"sort_index": 3}), json!({"name": "slot 1"})];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_wide_task_is_drawn_on_all_its_slots() {
        let mut story = story();
        let (task, attempt) = (TaskId::new(1, 7), Attempt::new(1, 2));
        story.insert(5, entry(3, 9, Event::Widened { task, attempt, slot: 4 }));
        let trace = trace(&story);
        let events = trace["traceEvents"].as_array().unwrap();
        let drawn = events.iter().filter(|event| event["ph"] == "X");
        let drawn: Vec<_> = drawn.map(|it| (&it["tid"], &it["args"]["slots"])).collect();
        assert_eq!(drawn, [(&json!(4), &json!(2)), (&json!(1), &json!(2))]);
    }

    #[test]
    fn a_node_is_named_once_and_each_start_of_it_told_once() {
        let started = |incarnation| {
            entry(3, 1, Event::NodeStarted { node: NodeId(3), incarnation, slots: 2 })
        };
        let trace = trace(&[started(1), started(1), started(2)]);
        let events = trace["traceEvents"].as_array().unwrap();
        let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
        assert_eq!((count("process_name"), count("node started")), (1, 2));
    }

    #[test]
    fn a_start_before_the_submission_is_at_its_time() {
        let mut writer = TraceWriter::new(Vec::new(), Some(Time(9 * MS)), |_| None).unwrap();
        let event = Event::NodeStarted { node: NodeId(3), incarnation: 1, slots: 2 };
        writer.push(&entry(3, 1, event)).unwrap();
        let trace: Value = serde_json::from_slice(&writer.finish().unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let start = events.iter().find(|event| event["name"] == "node started").unwrap();
        assert_eq!(start["ts"], 0.0);
    }

    #[test]
    fn an_empty_run_is_valid_json() {
        assert_eq!(trace(&[])["traceEvents"], json!([]));
    }

    #[test]
    fn nothing_is_kept_of_what_has_ended() {
        let mut writer = TraceWriter::new(Vec::new(), None, |_| None).unwrap();
        story().iter().for_each(|entry| writer.push(entry).unwrap());
        assert!(writer.pending.is_empty());
    }
}

/*!
Explains in sentences why a task is not running, or where and why it ran. `starling task explain`
prints them.

The live answer of the task's home comes first. The events of the task follow in order of time.
*/

use proto::event::{End, Event, Reason, Turned};
use proto::{LocalId, NodeId, Policy, Span, Time, wire};

use crate::events::Entry;
use crate::trace::{end_word, retry_reason};

/// The number of parents that are listed by name; the others are only counted.
const PARENTS_NAMED_MAX: usize = 5;

/// The known inputs of Algorithm 1, used for the figures in explanations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    pub bandwidth_bytes_per_s: Option<f64>,
    pub threshold: Option<f64>,
    /// The origin of the printed times; the first event if absent.
    pub origin: Option<Time>,
}

/// Sentences about one task. `entries` are its events from all nodes, by time.
#[must_use]
pub fn explain(entries: &[Entry], live: Option<&wire::Explanation>, rules: &Rules) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(live) = live {
        lines.extend(live.lines.iter().cloned());
        if live.lines.is_empty() {
            lines.extend(live.task.as_ref().map(state_sentence));
        }
        if !live.missing_parents.is_empty() {
            lines.push(missing_sentence(&live.missing_parents));
        }
    }
    let origin =
        rules.origin.or_else(|| entries.first().map(|entry| entry.time)).unwrap_or_default();
    let mut past = Past { origin, rules: *rules, queued: None, lines: Vec::new() };
    entries.iter().for_each(|entry| past.tell(entry));
    lines.extend(past.lines);
    if lines.is_empty() {
        lines.push("nothing is known of it: no node has an event or a record of it".into());
    }
    lines
}

struct Past {
    origin: Time,
    rules: Rules,
    /// The time when it entered its present queue.
    queued: Option<Time>,
    lines: Vec<String>,
}

/// A running attempt, or its gang, has a further slot, or leaves a node.
fn more_slots(entry: &Entry) -> String {
    let node = name(entry.node);
    match entry.event {
        Event::PartBegan { slot, .. } => format!("its gang has slot {slot} of {node} as well"),
        Event::Widened { slot, .. } => format!("it takes slot {slot} as well"),
        _ => format!("its gang leaves {node}"),
    }
}

impl Past {
    fn tell(&mut self, entry: &Entry) {
        let Entry { node, time, event } = *entry;
        let text = match event {
            Event::Queued { attempt, local_queue, reason, input_bytes, .. } => {
                self.queued = Some(time);
                let queue = match local_queue {
                    true => "its local queue, from which no node steals",
                    false => "its shared queue, from which idle nodes steal",
                };
                let why = self.reason(reason, input_bytes);
                format!("{} put attempt {attempt} into {queue}, because {why}", name(node))
            }
            Event::Pushed { attempt, to, reason, input_bytes, .. } => {
                let (from, to, why) = (name(node), name(to), self.reason(reason, input_bytes));
                format!("{from} sent attempt {attempt} to {to}, because {why}")
            }
            Event::Stolen { attempt, from, .. } => {
                let (thief, from) = (name(node), name(from));
                format!("{thief}, which was idle, stole attempt {attempt} from {from}")
            }
            Event::Fetched { from, bytes, took, .. } => {
                let (bytes, took) = (bytes_text(bytes), span_text(took));
                format!("{} fetched {bytes} of input from {} in {took}", name(node), name(from))
            }
            Event::Started { attempt, slot, .. } => {
                let waited = match self.queued.take() {
                    Some(queued) => {
                        format!(" after {} in the queue", span_text(time.since(queued)))
                    }
                    None => String::new(),
                };
                format!("attempt {attempt} started on {}, slot {slot}{waited}", name(node))
            }
            Event::Widened { .. } | Event::PartBegan { .. } | Event::PartEnded { .. } => {
                more_slots(entry)
            }
            Event::Ended { .. } => ended(entry),
            Event::Committed { end, output_bytes, .. } => {
                let made = match output_bytes {
                    0 => String::new(),
                    bytes => format!(", having made {}", bytes_text(bytes)),
                };
                format!("its home, {}, recorded it as {}{made}", name(node), end_word(end))
            }
            Event::Replaced { attempt, why, .. } => {
                let why = retry_reason(why);
                format!("after attempt {attempt} its home gave it a further one, because {why}")
            }
            Event::Turned { .. } => turned(&event),
            Event::TakenOver { from, .. } => {
                format!("{} took over what it had made from {}", name(node), name(from))
            }
            Event::Dismissed { attempt, .. } => {
                format!("{} heard that attempt {attempt} is not wanted any more", name(node))
            }
            Event::PolicyChanged { from, to } => {
                let (node, from, to) = (name(node), policy_name(from), policy_name(to));
                format!("{node} turned from {from} to {to}")
            }
            Event::Retuned { .. } => retuned(name(node), &event),
            Event::NodeStarted { .. }
            | Event::Staged { .. }
            | Event::Visible { .. }
            | Event::Removing { .. }
            | Event::Shifted { .. }
            | Event::JobEnded { .. } => return,
            _ => trouble(&event),
        };
        self.lines.push(format!("{}: {text}", self.at(time)));
    }

    fn at(&self, time: Time) -> String {
        format!("{:.6} s", time.since(self.origin).as_secs_f64())
    }

    /// The line of Algorithm 1 that applied, with its known figures.
    fn reason(&self, reason: Reason, bytes: u64) -> String {
        let input = bytes_text(bytes);
        let cost = match self.rules.bandwidth_bytes_per_s {
            Some(rate) if rate > 0.0 && bytes > 0 => {
                let took = Span((bytes as f64 / rate * 1e9) as u64);
                format!("{input} of input ({} to move at {}/s)", span_text(took), rate_text(rate))
            }
            _ => format!("{input} of input"),
        };
        let limit = match self.rules.threshold {
            Some(threshold) if threshold.is_finite() => {
                format!("{threshold} of the time it is expected to run")
            }
            _ => "the threshold's share of the time it is expected to run".into(),
        };
        match reason {
            Reason::NoInput => "it reads no input, so any node will do".into(),
            Reason::SmallInputs => format!("moving its {cost} costs at most {limit}"),
            Reason::SmallLargest => {
                format!("it has {cost}, but moving even the largest piece costs at most {limit}")
            }
            Reason::BigHere => {
                format!("moving its {cost} would cost more than {limit}, and the most lies here")
            }
            Reason::BigElsewhere => {
                format!("moving its {cost} would cost more than {limit}, and the most lies there")
            }
            Reason::Pushed if bytes == 0 => "its home sent it there".into(),
            Reason::Pushed => format!("its home sent it to where the most of its {cost} lies"),
            Reason::Stolen => "it was stolen".into(),
            Reason::GivenBack => "the node that was stealing it did not complete the steal".into(),
            Reason::TooWide => "it needs more slots than its home has".into(),
            Reason::Shifted => "it had waited too long for the node that has its data".into(),
            Reason::EarliestHere => format!("with its {input} of input it should end first here"),
            Reason::EarliestElsewhere => {
                format!("with its {input} of input it should end first there")
            }
            Reason::OfferedAgain => {
                "it had waited for a slot for long, and others may have it".into()
            }
            Reason::NotOffered => "its home does not offer what it asks for".into(),
            Reason::GangLed => "it is a gang, and another node leads it".into(),
        }
    }
}

/// A user's change of a node's settings.
fn retuned(node: String, event: &Event) -> String {
    let Event::Retuned { from, to, threshold, wait_max, steal: [start, bound] } = *event else {
        unreachable!("called for this only")
    };
    let policy = match from == to {
        true => format!("{} as before", policy_name(to)),
        false => format!("{} instead of {}", policy_name(to), policy_name(from)),
    };
    format!(
        "{node} was set to {policy}, a threshold of {threshold}, a longest wait of {}, stealing \
         every {} to {}",
        span_text(wait_max),
        span_text(start),
        span_text(bound)
    )
}

fn policy_name(number: u8) -> &'static str {
    Policy::numbered(number).map_or("another policy", Policy::name)
}

fn ended(entry: &Entry) -> String {
    let Event::Ended { attempt, end, started, moved_bytes, local_bytes, .. } = entry.event else {
        unreachable!("called for Ended only");
    };
    let ran = span_text(entry.time.since(started));
    let data = match moved_bytes + local_bytes {
        0 => String::new(),
        _ => format!(
            "; of its input {} came from other nodes and {} lay here",
            bytes_text(moved_bytes),
            bytes_text(local_bytes)
        ),
    };
    format!("attempt {attempt} {} on {} after {ran}{data}", attempt_end(end), name(entry.node))
}

fn state_sentence(task: &wire::TaskState) -> String {
    use wire::TaskPhase as Phase;
    let place = |text: &str| match task.placed {
        true => format!("{text} on {}", name(NodeId(task.node))),
        false => text.to_string(),
    };
    match task.phase() {
        Phase::Waiting => "it waits for its parents".into(),
        Phase::Ready => place("it is ready and waits for a free slot"),
        Phase::RunningTask => place("it runs"),
        Phase::TaskDone => place("it is done; it ran"),
        Phase::TaskFailed => format!("{} with exit code {}", place("it failed"), task.exit_code),
        Phase::TaskCancelled => "it was cancelled".into(),
        Phase::TaskSkipped => "it was skipped, because a task it depends on failed".into(),
    }
}

fn missing_sentence(parents: &[u64]) -> String {
    let named: Vec<String> =
        parents.iter().take(PARENTS_NAMED_MAX).map(|&id| LocalId(id).to_string()).collect();
    let more = match parents.len() - named.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let these = if parents.len() == 1 { "this parent" } else { "these parents" };
    format!("still missing, {these}: {}{more}", named.join(", "))
}

/// The events of faults and of moves.
fn trouble(event: &Event) -> String {
    match *event {
        Event::Moved { attempt, from, .. } => {
            format!("attempt {attempt} was moved from {}, which is drained or ends", name(from))
        }
        Event::MissedWakeupRepaired { .. } => {
            "the reconciler found that a parent's completion had not reached it".into()
        }
        Event::Stale { attempt, .. } => {
            format!("the completion of attempt {attempt} did not count: another attempt does")
        }
        Event::CrashCounted { attempt, node, incarnation, count, .. } => format!(
            "attempt {attempt} died with incarnation {incarnation} of {}, or with the process that \
             starts its commands: counted crash {count}",
            name(node)
        ),
        Event::Spared { attempt, node, incarnation, why, .. } => format!(
            "attempt {attempt} ended with incarnation {incarnation} of {}, or with the process \
             that starts its commands, which is not counted: {}",
            name(node),
            why.text()
        ),
        Event::Stalled { stall, holder, quiet, .. } => format!(
            "its job got no further for {:.0} s because of it: {}; it was with {}",
            quiet.as_secs_f64(),
            stall.text(),
            name(holder)
        ),
        _ => unreachable!("called for these only"),
    }
}

fn name(node: NodeId) -> String {
    format!("node {}", node.0)
}

fn attempt_end(end: End) -> &'static str {
    match end {
        End::Done => "succeeded",
        End::Failed => "failed",
        End::Cancelled => "was stopped",
        End::Skipped => "was skipped",
    }
}

fn bytes_text(bytes: u64) -> String {
    rate_text(bytes as f64)
}

fn rate_text(bytes: f64) -> String {
    let steps = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match steps.into_iter().find(|&(unit, _)| bytes >= unit) {
        Some((unit, word)) => format!("{:.1} {word}", bytes / unit),
        None => format!("{bytes:.0} B"),
    }
}

fn span_text(span: Span) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.0} us", s * 1e6),
    }
}

fn turned(event: &Event) -> String {
    let Event::Turned { attempt, seq, turn, spawned, .. } = *event else { return String::new() };
    let then = match turn {
        Turned::Done => "and is done",
        Turned::Wait => "and waits for other tasks",
        Turned::More => "and goes on",
        Turned::Yield => "and gave its slot back",
    };
    format!("attempt {attempt} committed turn {seq} with {spawned} new tasks, {then}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{Attempt, TaskId};

    const MS: u64 = 1_000_000;

    fn entry(node: u32, at_ms: u64, event: Event) -> Entry {
        Entry { node: NodeId(node), time: Time(at_ms * MS), event }
    }

    #[test]
    fn a_pushed_task_tells_where_it_ran_and_why() {
        let (task, attempt) = (TaskId::new(1, 7), Attempt::new(1, 1));
        let (reason, to, input_bytes) = (Reason::BigElsewhere, NodeId(2), 12_000_000);
        let queued =
            Event::Queued { task, attempt, local_queue: true, reason: Reason::Pushed, input_bytes };
        let ended = Event::Ended {
            task,
            attempt,
            end: End::Done,
            started: Time(14 * MS),
            moved_bytes: 0,
            local_bytes: input_bytes,
        };
        let committed =
            Event::Committed { task, attempt, end: End::Done, node: to, output_bytes: 10 };
        let entries = [
            entry(0, 10, Event::Pushed { task, attempt, to, reason, input_bytes }),
            entry(2, 11, queued),
            entry(2, 14, Event::Started { task, attempt, slot: 3 }),
            entry(2, 114, ended),
            entry(0, 115, committed),
        ];
        let rules = Rules {
            bandwidth_bytes_per_s: Some(125e6),
            threshold: Some(0.5),
            origin: Some(Time(0)),
        };
        let expected = [
            "0.010000 s: node 0 sent attempt 1.1 to node 2, because moving its 12.0 MB of input \
             (96.00 ms to move at 125.0 MB/s) would cost more than 0.5 of the time it is expected \
             to run, and the most lies there",
            "0.011000 s: node 2 put attempt 1.1 into its local queue, from which no node steals, \
             because its home sent it to where the most of its 12.0 MB of input (96.00 ms to move \
             at 125.0 MB/s) lies",
            "0.014000 s: attempt 1.1 started on node 2, slot 3 after 3.00 ms in the queue",
            "0.114000 s: attempt 1.1 succeeded on node 2 after 100.00 ms; of its input 0 B came \
             from other nodes and 12.0 MB lay here",
            "0.115000 s: its home, node 0, recorded it as done, having made 10 B",
        ];
        assert_eq!(explain(&entries, None, &rules), expected);
    }

    #[test]
    fn a_moved_task_tells_from_where() {
        let (task, attempt) = (TaskId::new(1, 7), Attempt::new(7, 2));
        let (reason, input_bytes) = (Reason::Pushed, 0);
        let queued = Event::Queued { task, attempt, local_queue: false, reason, input_bytes };
        let moved = Event::Moved { task, attempt, from: NodeId(2) };
        let told = explain(&[entry(0, 10, moved), entry(0, 10, queued)], None, &Rules::default());
        let expected = [
            "0.000000 s: attempt 7.2 was moved from node 2, which is drained or ends",
            "0.000000 s: node 0 put attempt 7.2 into its shared queue, from which idle nodes \
             steal, because its home sent it there",
        ];
        assert_eq!(told, expected);
    }

    /// The number of an attempt counts the attempts of all tasks at a home.
    #[test]
    fn a_task_with_one_attempt_of_a_high_number_has_no_earlier_ones() {
        let queued = Event::Queued {
            task: TaskId::new(1, 7),
            attempt: Attempt::new(1, 8),
            local_queue: false,
            reason: Reason::NoInput,
            input_bytes: 0,
        };
        let told = explain(&[entry(0, 10, queued)], None, &Rules::default());
        assert_eq!(told.len(), 1, "{told:?}");
    }

    #[test]
    fn what_was_set_on_a_node_is_told() {
        let set = |from, to| Event::Retuned {
            from,
            to,
            threshold: 0.5,
            wait_max: Span(2 * 1_000 * MS),
            steal: [Span(MS), Span(50 * MS)],
        };
        let rules = Rules { origin: Some(Time(0)), ..Rules::default() };
        let rest =
            "a threshold of 0.5, a longest wait of 2.00 s, stealing every 1.00 ms to 50.00 ms";
        let expected = [
            format!("0.010000 s: node 3 was set to mlb instead of flds, {rest}"),
            format!("0.020000 s: node 3 was set to mlb as before, {rest}"),
        ];
        assert_eq!(
            explain(&[entry(3, 10, set(3, 0)), entry(3, 20, set(0, 0))], None, &rules),
            expected
        );
    }

    #[test]
    fn a_waiting_task_names_its_missing_parents() {
        let task = wire::TaskState { local: 9, ..wire::TaskState::default() };
        let live = wire::Explanation {
            task: Some(task),
            lines: Vec::new(),
            missing_parents: (0..7).collect(),
            ..wire::Explanation::default()
        };
        let expected = [
            "it waits for its parents",
            "still missing, these parents: 0.0, 0.1, 0.2, 0.3, 0.4 and 2 more",
        ];
        assert_eq!(explain(&[], Some(&live), &Rules::default()), expected);
    }

    #[test]
    fn an_unknown_task_says_so() {
        let expected = ["nothing is known of it: no node has an event or a record of it"];
        assert_eq!(explain(&[], None, &Rules::default()), expected);
    }
}

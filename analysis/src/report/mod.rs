/*!
The report of one run, which `run --json` prints.

Most fields are folded from the event log. [`RunFacts`] contains the facts outside the log: the
times of the client and the costs of the processes.
*/

use std::collections::BTreeMap;

use proto::event::End;
use proto::{NodeId, Span, Time, wire};
use serde::Serialize;

use crate::fold::{Fold, NodeTally};
use crate::stages::{self, Kinds, StageRow};
use crate::waits::Waits;

/// Facts that the log does not contain.
#[derive(Clone, Debug, Default)]
pub struct RunFacts {
    pub job: String,
    /// "finished", "failed", "cancelled", "timed out", ...
    pub state: String,
    pub policy: String,
    /// Nodes and their total slots; 0: the numbers in the log.
    pub nodes: u32,
    pub slots: u32,
    /// Tasks and edges of the graph; 0 tasks: the number that the homes have stored.
    pub tasks: u64,
    pub edges: u64,
    /// First byte of the submission, acceptance of the commit, last completion known to the client.
    pub submitted: Option<Time>,
    pub accepted: Option<Time>,
    pub ended: Option<Time>,
    /// The state that each node reported after the run.
    pub node_states: Vec<wire::NodeState>,
    /// Of the client's process, if that is not also a node's.
    pub client_cpu: Span,
    pub client_peak_rss_bytes: u64,
    /// All nodes share one process, so their CPU time and memory count once.
    pub one_process: bool,
    /// Bytes read from objects made elsewhere ([`Fold::remote_bytes`]), if the graph is known.
    pub remote_bytes: Option<u64>,
    /// The reads of the job's tasks. `None`: the reads of the nodes' tasks since the nodes started.
    pub reads: Option<Reads>,
    pub bound_lower_s: f64,
    pub bound_paper_s: f64,
    /// The names of the kind numbers given to [`Fold::push_task`].
    pub kinds: Kinds,
    /// The clock starts when the last task of kind `load` ends or the first of another kind starts,
    /// not at submission.
    pub clock_starts_after_loads: bool,
}

/// Reads of objects by tasks: an object that two tasks read counts twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    pub inputs: u64,
    /// Of objects made on the node that read them.
    pub local: u64,
    /// Of objects that an earlier task's transfer had brought, or was bringing.
    pub copied: u64,
}

impl Reads {
    pub(crate) fn hit_rate(&self) -> f64 {
        ratio((self.local + self.copied) as f64, self.inputs as f64)
    }
    pub(crate) fn hit_rate_strict(&self) -> f64 {
        ratio(self.copied as f64, self.inputs.saturating_sub(self.local) as f64)
    }
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RunReport {
    pub schema: u32,
    pub job: String,
    pub state: String,
    pub nodes: u32,
    pub slots: u32,
    pub policy: String,
    pub tasks: TaskCounts,
    /// From the first byte of the submission to the last completion known to the client. Without
    /// the loads it starts at their end.
    pub makespan_s: f64,
    /// From the first byte of the submission to its acceptance.
    pub submit_s: f64,
    /// From the first byte of the submission to the first attempt.
    pub first_start_s: f64,
    pub throughput_per_s: f64,
    /// Slot time of the attempts that succeeded.
    pub work_s: f64,
    /// `work_s / (slots * makespan_s)`: transfers and failed attempts are not work.
    pub efficiency: f64,
    /// Busy slots over slots, mean over the run: failed attempts are busy too.
    pub utilization: f64,
    pub data: DataCounts,
    pub steals: StealCounts,
    pub pushes: u64,
    pub messages: u64,
    pub reconciler_wakeups: u64,
    pub cpu_s: f64,
    pub peak_rss_bytes: u64,
    pub bound: Bound,
    pub attempts: AttemptCounts,
    pub utilization_series: Series,
    pub per_node: Vec<NodeRow>,
    /// From the first byte of the submission to the start of the clock, if loads come before.
    pub load_s: f64,
    /// By kind of task, if the graph is known.
    pub stages: Vec<StageRow>,
    /// The slot time without work.
    pub waits: Waits,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TaskCounts {
    pub total: u64,
    pub edges: u64,
    pub done: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub skipped: u64,
    pub executions: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct DataCounts {
    pub bytes_produced: u64,
    pub bytes_moved: u64,
    pub bytes_read_local: u64,
    /// Input bytes found on the node that read them, made or copied there, over all input bytes.
    pub locality_hit_rate: f64,
    /// The share of all reads without a transfer of their own: the object was made on the node,
    /// copied there before, or being fetched for an earlier task.
    pub cache_hit_rate: f64,
    /// The same for reads of objects made elsewhere only.
    pub cache_hit_rate_strict: f64,
    pub reads: u64,
    /// Bytes that tasks read of objects made elsewhere, transferred for them or not.
    pub bytes_read_remote: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct StealCounts {
    pub tried: u64,
    pub won: u64,
    pub tasks: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Bound {
    /// A true bound: no schedule is shorter.
    pub lower_s: f64,
    /// The form of the paper's section 3, as printed: an estimate, no true bound.
    pub paper_s: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct AttemptCounts {
    /// Further attempts that the homes issued.
    pub replaced: u64,
    /// Completions that did not count.
    pub stale: u64,
}

/// Utilization over time, in equal steps from the start of the run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Series {
    pub step_s: f64,
    pub values: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct NodeRow {
    pub node: u32,
    pub slots: u32,
    pub executions: u64,
    pub busy_s: f64,
    pub utilization: f64,
    pub bytes_moved: u64,
    pub bytes_read_local: u64,
    pub fetches: u64,
    pub stolen: u64,
    pub pushed: u64,
    /// As in [`DataCounts`], for this node.
    pub locality_hit_rate: f64,
    /// Over all reads of the node since it started, of all jobs, because no log shows which read
    /// needed no transfer. 0 if the node did not report it.
    pub cache_hit_rate: f64,
    pub cache_hit_rate_strict: f64,
}

impl RunReport {
    #[must_use]
    pub fn new(fold: &Fold, facts: &RunFacts) -> Self {
        let logged_slots = fold.nodes.values().map(|node| node.slots).sum();
        let slots = if facts.slots > 0 { facts.slots } else { logged_slots };
        let logged_nodes = u32::try_from(fold.nodes.len()).expect("at most 2^20 nodes");
        let nodes = if facts.nodes > 0 { facts.nodes } else { logged_nodes };
        let submitted = facts.submitted.or(fold.first_event).unwrap_or_default();
        let loaded = stages::loaded(fold, &facts.kinds).filter(|_| facts.clock_starts_after_loads);
        let begin = loaded.unwrap_or(submitted);
        let end = facts.ended.or(fold.last_end).unwrap_or(begin);
        let seconds_to = |time: Option<Time>| time.map_or(0.0, |at| at.since(begin).as_secs_f64());
        let makespan_s = seconds_to(Some(end));
        let tasks = task_counts(fold, facts);
        let states = &facts.node_states;
        let sum = |of: fn(&wire::NodeState) -> u64| states.iter().map(of).sum::<u64>();
        Self {
            schema: 1,
            job: facts.job.clone(),
            state: facts.state.clone(),
            nodes,
            slots,
            policy: facts.policy.clone(),
            tasks,
            makespan_s,
            submit_s: seconds_to(facts.accepted),
            first_start_s: seconds_to(fold.first_start),
            throughput_per_s: ratio(tasks.done as f64, makespan_s),
            work_s: fold.work.as_secs_f64(),
            efficiency: share(fold.work, slots, makespan_s),
            utilization: share(fold.busy_total, slots, makespan_s),
            data: data_counts(fold, facts),
            steals: StealCounts {
                tried: sum(|state| state.steals_tried),
                won: sum(|state| state.steals_won),
                tasks: fold.total(|node| node.stolen),
            },
            pushes: fold.total(|node| node.pushed),
            messages: sum(|state| state.messages),
            reconciler_wakeups: fold.wakeups.max(sum(|state| state.reconciler_wakeups)),
            cpu_s: cpu(facts).as_secs_f64(),
            peak_rss_bytes: peak_rss_bytes(facts),
            bound: Bound { lower_s: facts.bound_lower_s, paper_s: facts.bound_paper_s },
            attempts: AttemptCounts { replaced: fold.replaced, stale: fold.stale },
            utilization_series: Series {
                step_s: fold.busy.width().as_secs_f64(),
                values: fold.busy.shares(begin, end, slots),
            },
            per_node: node_rows(fold, facts, makespan_s),
            load_s: begin.since(submitted).as_secs_f64(),
            stages: stages::rows(fold, &facts.kinds, begin),
            waits: fold.slots.waits(begin, end),
        }
    }

    /// One line, `schema` first.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings always serialise")
    }
}

fn task_counts(fold: &Fold, facts: &RunFacts) -> TaskCounts {
    TaskCounts {
        total: if facts.tasks > 0 { facts.tasks } else { fold.staged() },
        edges: facts.edges,
        done: fold.ended(End::Done),
        failed: fold.ended(End::Failed),
        cancelled: fold.ended(End::Cancelled),
        skipped: fold.ended(End::Skipped),
        executions: fold.total(|node| node.executions),
    }
}

fn data_counts(fold: &Fold, facts: &RunFacts) -> DataCounts {
    let moved = fold.total(|node| node.moved_bytes);
    let local = fold.total(|node| node.local_bytes);
    let reads = facts.reads.unwrap_or_else(|| reads_of(&facts.node_states));
    DataCounts {
        bytes_produced: fold.produced_bytes,
        bytes_moved: moved,
        bytes_read_local: local,
        locality_hit_rate: ratio(local as f64, (local + moved) as f64),
        cache_hit_rate: reads.hit_rate(),
        cache_hit_rate_strict: reads.hit_rate_strict(),
        reads: reads.inputs,
        bytes_read_remote: facts.remote_bytes.unwrap_or(0),
    }
}

fn reads_of(states: &[wire::NodeState]) -> Reads {
    let sum = |of: fn(&wire::NodeState) -> u64| states.iter().map(of).sum();
    Reads {
        inputs: sum(|state| state.inputs),
        local: sum(|state| state.inputs_local),
        copied: sum(|state| state.inputs_copied),
    }
}

fn node_rows(fold: &Fold, facts: &RunFacts, makespan_s: f64) -> Vec<NodeRow> {
    let told = |state: &wire::NodeState| {
        let node = state.member.as_ref()?.node;
        Some((node, reads_of(std::slice::from_ref(state))))
    };
    let reads: BTreeMap<u32, Reads> = facts.node_states.iter().filter_map(told).collect();
    let of = |node: u32| reads.get(&node).copied().unwrap_or_default();
    let all = |tally: &NodeTally| (tally.local_bytes + tally.moved_bytes) as f64;
    let row = |(node, tally): (&NodeId, &NodeTally)| NodeRow {
        node: node.0,
        slots: tally.slots,
        executions: tally.executions,
        busy_s: tally.busy.as_secs_f64(),
        utilization: share(tally.busy, tally.slots, makespan_s),
        bytes_moved: tally.moved_bytes,
        bytes_read_local: tally.local_bytes,
        fetches: tally.fetches,
        stolen: tally.stolen,
        pushed: tally.pushed,
        locality_hit_rate: ratio(tally.local_bytes as f64, all(tally)),
        cache_hit_rate: of(node.0).hit_rate(),
        cache_hit_rate_strict: of(node.0).hit_rate_strict(),
    };
    fold.nodes.iter().map(row).collect()
}

/// Counts each process once: each node of a shared process reports the CPU time of the whole
/// process.
pub(crate) fn cpu(facts: &RunFacts) -> Span {
    let nodes = facts.node_states.iter().map(|state| state.cpu_ns);
    match facts.one_process {
        true => Span(nodes.max().unwrap_or(0).max(facts.client_cpu.0)),
        false => Span(nodes.sum::<u64>() + facts.client_cpu.0),
    }
}

pub(crate) fn peak_rss_bytes(facts: &RunFacts) -> u64 {
    let nodes = facts.node_states.iter().map(|state| state.peak_rss_bytes);
    match facts.one_process {
        true => nodes.max().unwrap_or(0).max(facts.client_peak_rss_bytes),
        false => nodes.sum::<u64>() + facts.client_peak_rss_bytes,
    }
}

/// Returns zero for a zero divisor, because JSON has no NaN.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Clamps the share to 1, because the clocks of several processes differ slightly.
pub(crate) fn share(part: Span, slots: u32, makespan_s: f64) -> f64 {
    ratio(part.as_secs_f64(), f64::from(slots) * makespan_s).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests;

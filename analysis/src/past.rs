//! The report of an ended job, from its stored summary. It never changes.

use proto::busy::BusySeries;
use proto::tally;
use proto::wire::{JobState, JobSummary, NodeState, NodeTally};
use proto::{Span, Time};

use crate::report::{
    AttemptCounts, Bound, DataCounts, NodeRow, Reads, RunFacts, RunReport, Series, StealCounts,
    TaskCounts, cpu, peak_rss_bytes, ratio, share as slot_share,
};
use crate::waits::Waits;

/// The tolerated clock difference between processes; larger values are shown.
const CLOCKS_DIFFER: f64 = 1.02;

/// The begin of the present round: the submission of the job, or the retry.
#[must_use]
pub fn begin(state: &JobState) -> Time {
    Time(if state.round() > 0 { state.opened_ns } else { state.submitted_ns })
}

/// `None` if the round has no summary (yet). `word`: its state.
#[must_use]
pub fn report(state: &JobState, word: &str) -> Option<RunReport> {
    let summary = state.summary.as_ref()?;
    let mut all = NodeTally::default();
    summary.parts.iter().for_each(|part| tally::merge(&mut all, part));
    let (round, begin) = (state.round(), begin(state));
    let end = Time(state.ended_ns);
    let makespan_s = end.since(begin).as_secs_f64();
    let share = |ns: u64, slots: u32| {
        let share = ratio(Span(ns).as_secs_f64(), f64::from(slots) * makespan_s);
        if share <= CLOCKS_DIFFER { share.min(1.0) } else { share }
    };
    let tasks = task_counts(state, &all, round);
    let first_start = Time(all.first_start_ns);
    let busy = summary.busy.as_ref().and_then(BusySeries::from_wire).unwrap_or_default();
    Some(RunReport {
        schema: 1,
        job: state.job.to_string(),
        state: word.to_owned(),
        nodes: nodes(summary),
        slots: all.slots,
        policy: policies(summary),
        tasks,
        makespan_s,
        first_start_s: first_start.since(begin).as_secs_f64(),
        throughput_per_s: ratio(tasks.done as f64, makespan_s),
        work_s: Span(all.work_ns).as_secs_f64(),
        efficiency: share(all.work_ns, all.slots),
        utilization: share(all.busy_ns, all.slots),
        data: data_counts(state, &all),
        steals: StealCounts { tried: all.steals_tried, won: all.steals_won, tasks: all.stolen },
        pushes: all.pushed,
        messages: all.messages,
        reconciler_wakeups: all.wakeups_repaired,
        cpu_s: Span(all.cpu_ns).as_secs_f64(),
        peak_rss_bytes: all.peak_rss_bytes,
        attempts: AttemptCounts { replaced: all.replaced, stale: all.stale },
        utilization_series: Series {
            step_s: busy.width().as_secs_f64(),
            values: busy.shares(begin, end, all.slots),
        },
        per_node: summary
            .parts
            .iter()
            .filter(|part| part.merged == 0)
            .map(|part| NodeRow {
                node: part.node,
                slots: part.slots,
                executions: part.executions,
                busy_s: Span(part.busy_ns).as_secs_f64(),
                utilization: share(part.busy_ns, part.slots),
                bytes_moved: part.moved_bytes,
                bytes_read_local: part.local_bytes,
                fetches: part.fetches,
                stolen: part.stolen,
                pushed: part.pushed,
                locality_hit_rate: locality(part),
                ..NodeRow::default()
            })
            .collect(),
        waits: waits(&all, begin, end),
        ..RunReport::default()
    })
}

/// The report of a run on a cluster of its own, from its stored summary. Times, costs and the graph
/// are those of `facts`; figures by kind and by edge are only in the logs. `None` if the summary
/// lacks something: a part of a node, or the end of the loads at which the clock starts.
#[must_use]
pub fn report_of_run(state: &JobState, facts: &RunFacts) -> Option<RunReport> {
    let JobSummary { parts, missing, .. } = state.summary.as_ref()?;
    if !missing.is_empty() || facts.clock_starts_after_loads {
        return None;
    }
    let past = report(state, &facts.state)?;
    let stored = begin(state);
    let begin = facts.submitted.unwrap_or(stored);
    let end = facts.ended.unwrap_or(Time(state.ended_ns));
    let makespan_s = end.since(begin).as_secs_f64();
    let share = |of: fn(&NodeTally) -> u64| {
        let slot_time = parts.iter().map(of).fold(0, u64::saturating_add);
        slot_share(Span(slot_time), facts.slots, makespan_s)
    };
    let states = &facts.node_states;
    let sum = |of: fn(&NodeState) -> u64| states.iter().map(of).sum::<u64>();
    Some(RunReport {
        nodes: facts.nodes,
        slots: facts.slots,
        policy: facts.policy.clone(),
        tasks: TaskCounts { total: facts.tasks, edges: facts.edges, ..past.tasks },
        makespan_s,
        submit_s: facts.accepted.map_or(0.0, |at| at.since(begin).as_secs_f64()),
        first_start_s: past.first_start_s + stored.since(begin).as_secs_f64(),
        throughput_per_s: ratio(past.tasks.done as f64, makespan_s),
        efficiency: share(|part| part.work_ns),
        utilization: share(|part| part.busy_ns),
        steals: StealCounts {
            tried: sum(|state| state.steals_tried),
            won: sum(|state| state.steals_won),
            ..past.steals
        },
        messages: sum(|state| state.messages),
        cpu_s: cpu(facts).as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(facts),
        bound: Bound { lower_s: facts.bound_lower_s, paper_s: facts.bound_paper_s },
        ..past
    })
}

/// Counts the nodes with separate figures, those added together, and those that reported nothing.
fn nodes(summary: &JobSummary) -> u32 {
    let told = |node: &&u32| summary.parts.iter().any(|it| it.merged == 0 && it.node == **node);
    let silent = summary.missing.iter().filter(|node| !told(node)).count() as u32;
    silent + summary.parts.iter().map(|part| part.merged.max(1)).sum::<u32>()
}

fn policies(summary: &JobSummary) -> String {
    let mut policies: Vec<&str> = summary.parts.iter().map(|part| part.policy.as_str()).collect();
    policies.retain(|policy| !policy.is_empty());
    policies.sort_unstable();
    policies.dedup();
    policies.join(", ")
}

/// The homes count executions over all rounds, so a later round uses the nodes' counts.
fn task_counts(state: &JobState, all: &NodeTally, round: u32) -> TaskCounts {
    let sum = state.sum.clone().unwrap_or_default();
    let counted = if round > 0 { 0 } else { sum.executions };
    TaskCounts {
        total: state.total,
        edges: state.edges,
        done: sum.done,
        failed: sum.failed,
        cancelled: sum.cancelled,
        skipped: sum.skipped,
        executions: all.executions.max(counted),
    }
}

fn data_counts(state: &JobState, all: &NodeTally) -> DataCounts {
    let sum = state.sum.clone().unwrap_or_default();
    let reads = Reads { inputs: sum.inputs, local: sum.inputs_local, copied: sum.inputs_copied };
    DataCounts {
        bytes_produced: all.produced_bytes,
        bytes_moved: all.moved_bytes,
        bytes_read_local: all.local_bytes,
        locality_hit_rate: locality(all),
        cache_hit_rate: reads.hit_rate(),
        cache_hit_rate_strict: reads.hit_rate_strict(),
        reads: reads.inputs,
        bytes_read_remote: 0,
    }
}

fn locality(part: &NodeTally) -> f64 {
    ratio(part.local_bytes as f64, part.local_bytes as f64 + part.moved_bytes as f64)
}

fn waits(all: &NodeTally, begin: Time, end: Time) -> Waits {
    let (slots, attempts) = (all.used_slots, all.slot_attempts);
    let mean = |ns: u64, over: u64| Span(ns).as_secs_f64() / over.max(1) as f64;
    let until_first = Time(all.first_start_ns).since(begin).as_secs_f64();
    Waits {
        slots,
        fill_s: if slots > 0 { until_first + mean(all.fill_ns, slots) } else { 0.0 },
        busy_s: mean(all.busy_ns, slots),
        paused_s: mean(all.paused_ns, slots),
        drain_s: mean(all.drain_ns, slots),
        told_s: if slots > 0 { end.since(Time(all.last_end_ns)).as_secs_f64() } else { 0.0 },
        launch_lag_s: mean(all.paused_ns, attempts.saturating_sub(slots)),
        attempt_s: mean(all.busy_ns, attempts),
        fetches: all.fetches,
        fetch_s: mean(all.fetch_ns, all.fetches),
    }
}

#[cfg(test)]
mod tests {
    use proto::event::{End, Event};
    use proto::tally::Tally;
    use proto::{Attempt, JobId, NodeId, TaskId, wire};

    use super::*;
    use crate::events::Entry;
    use crate::fold::Fold;

    const S: u64 = 1_000_000_000;

    /// On two nodes of two slots: wide tasks one after another, and narrow ones on one slot.
    fn story() -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut add = |node, at: u64, event| {
            entries.push(Entry { node: NodeId(node), time: Time(at * S), event });
        };
        for (number, node, slots, from, to) in [
            (1, 0, &[0, 1][..], 11, 14),
            (2, 0, &[0, 1], 15, 18),
            (3, 1, &[0], 12, 13),
            (4, 1, &[0], 13, 19),
        ] {
            let (task, attempt) = (TaskId::new(1, number), Attempt(1));
            add(node, from, Event::Started { task, attempt, slot: slots[0] });
            for &slot in &slots[1..] {
                add(node, from, Event::Widened { task, attempt, slot });
            }
            let (end, started) = (End::Done, Time(from * S));
            let ended =
                Event::Ended { task, attempt, end, started, moved_bytes: 2, local_bytes: 6 };
            add(node, to, ended);
            let committed =
                Event::Committed { task, attempt, end, node: NodeId(node), output_bytes: 5 };
            add(node, to, committed);
        }
        entries
    }

    fn state(entries: &[Entry]) -> JobState {
        let mut busy = BusySeries::default();
        let parts = (0..2).map(|node| {
            let mut tally = Tally::default();
            let of_node = entries.iter().filter(|entry| entry.node == NodeId(node));
            of_node.for_each(|entry| tally.push(entry.time, &entry.event));
            let mut part = NodeTally { node, slots: 2, policy: "mdl".to_owned(), ..tally.part() };
            busy.merge(BusySeries::from_wire(&part.busy.take().unwrap()).unwrap());
            part
        });
        let parts = parts.collect();
        JobState {
            job: 1,
            total: 4,
            submitted_ns: 10 * S,
            ended_ns: 20 * S,
            sum: Some(wire::PartitionCount { done: 4, executions: 4, ..Default::default() }),
            summary: Some(JobSummary {
                recorded_ns: 1,
                parts,
                missing: Vec::new(),
                busy: busy.to_wire(64),
            }),
            ..JobState::default()
        }
    }

    #[test]
    fn what_was_stored_says_what_the_log_said() {
        let entries = story();
        let state = state(&entries);
        let past = report(&state, "finished").unwrap();
        let mut fold = Fold::of_job(JobId(1));
        entries.iter().for_each(|entry| fold.push(entry));
        let facts = RunFacts {
            slots: 4,
            submitted: Some(Time(10 * S)),
            ended: Some(Time(20 * S)),
            ..RunFacts::default()
        };
        let logged = RunReport::new(&fold, &facts);
        assert_eq!((past.work_s, past.utilization), (19.0, 0.475));
        assert_eq!((past.work_s, past.utilization), (logged.work_s, logged.utilization));
        assert_eq!(past.waits, logged.waits);
        assert_eq!(past.waits.slots, 3);
        assert_eq!(past.data, logged.data);
        assert_eq!(past.first_start_s, logged.first_start_s);
        assert_eq!((past.nodes, past.policy.as_str()), (2, "mdl"));
        let series = &past.utilization_series;
        let busy_s: f64 = series.values.iter().map(|share| share * series.step_s * 4.0).sum();
        assert!((busy_s - 19.0).abs() < 0.1, "{busy_s}");
    }

    #[test]
    fn a_run_is_summed_up_as_from_its_log() {
        let entries = story();
        let mut fold = Fold::of_job(JobId(1));
        entries.iter().for_each(|entry| fold.push(entry));
        let member = |node| wire::Member { node, slots: 2, ..Default::default() };
        let node_states = [0, 1].map(|node| NodeState {
            member: Some(member(node)),
            cpu_ns: S,
            peak_rss_bytes: 7,
            messages: 3,
            steals_tried: 2,
            steals_won: 1,
            ..NodeState::default()
        });
        let facts = RunFacts {
            job: "1".to_owned(),
            state: "finished".to_owned(),
            policy: "mdl".to_owned(),
            nodes: 2,
            slots: 4,
            tasks: 4,
            edges: 5,
            submitted: Some(Time(9 * S)),
            accepted: Some(Time(10 * S)),
            ended: Some(Time(21 * S)),
            node_states: node_states.to_vec(),
            reads: Some(Reads::default()),
            client_cpu: Span(S),
            bound_lower_s: 3.0,
            ..RunFacts::default()
        };
        let logged = RunReport::new(&fold, &facts);
        let mut past = report_of_run(&state(&entries), &facts).unwrap();
        // The summary has fewer buckets, and its nodes' reads are not asked for.
        past.utilization_series = logged.utilization_series.clone();
        past.waits = logged.waits;
        for (past, logged) in past.per_node.iter_mut().zip(&logged.per_node) {
            (past.utilization, past.slots) = (logged.utilization, logged.slots);
        }
        assert_eq!(past, logged);
        let mut without = state(&entries);
        without.summary.as_mut().unwrap().missing = vec![1];
        assert_eq!(report_of_run(&without, &facts), None);
        let loads = RunFacts { clock_starts_after_loads: true, ..facts };
        assert_eq!(report_of_run(&state(&entries), &loads), None);
    }

    #[test]
    fn a_later_round_begins_with_the_retry() {
        let mut state = JobState { submitted_ns: 1, opened_ns: 5, ..JobState::default() };
        assert_eq!(begin(&state), Time(1));
        state.settings = Some(wire::JobSettings { round: 1, ..Default::default() });
        assert_eq!(begin(&state), Time(5));
    }

    #[test]
    fn nothing_hides_more_work_than_the_slots_could_do() {
        let mut state = state(&story());
        state.ended_ns = 12 * S;
        assert!((report(&state, "finished").unwrap().utilization - 2.375).abs() < 1e-9);
        state.summary = None;
        assert!(report(&state, "finished").is_none());
    }
}

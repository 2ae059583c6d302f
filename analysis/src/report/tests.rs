use proptest::prelude::*;
use proto::event::{Event, Reason};
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, TaskId};

use super::*;
use crate::events::Entry;

const S: u64 = 1_000_000_000;
const JOB: JobId = JobId(5);

fn task(partition: u32, index: u64) -> TaskId {
    TaskId { job: JOB, local: LocalId::new(PartitionId(partition), index) }
}

fn attempt(number: u32) -> Attempt {
    Attempt::new(1, number)
}

fn entry(node: u32, at_s: u64, event: Event) -> Entry {
    Entry { node: NodeId(node), time: Time(at_s * S), event }
}

fn ended(task: TaskId, number: u32, end: End, started_s: u64, moved: u64, local: u64) -> Event {
    Event::Ended {
        task,
        attempt: attempt(number),
        end,
        started: Time(started_s * S),
        moved_bytes: moved,
        local_bytes: local,
    }
}

fn committed(task: TaskId, end: End, node: u32, output_bytes: u64) -> Event {
    Event::Committed { task, attempt: attempt(1), end, node: NodeId(node), output_bytes }
}

/// Two nodes with one slot each; a fails once and then makes 100 bytes for b on the other node;
/// c never runs.
fn story() -> Vec<Entry> {
    let (a, b, c) = (task(0, 0), task(1, 0), task(1, 1));
    let queued = Event::Queued {
        task: a,
        attempt: attempt(1),
        local_queue: false,
        reason: Reason::NoInput,
        input_bytes: 0,
    };
    let staged = |partition, tasks| Event::Staged { job: JOB, partition, first: 0, tasks };
    vec![
        entry(0, 1, Event::NodeStarted { node: NodeId(0), incarnation: 1, slots: 1 }),
        entry(1, 1, Event::NodeStarted { node: NodeId(1), incarnation: 1, slots: 1 }),
        entry(0, 10, staged(PartitionId(0), 1)),
        entry(1, 10, staged(PartitionId(1), 2)),
        entry(1, 10, staged(PartitionId(1), 2)),
        entry(0, 11, queued),
        entry(0, 12, Event::Started { task: a, attempt: attempt(1), slot: 0 }),
        entry(0, 13, ended(a, 1, End::Failed, 12, 0, 0)),
        entry(
            0,
            13,
            Event::Replaced { task: a, attempt: attempt(2), why: proto::event::RetryReason::Retry },
        ),
        entry(0, 15, ended(a, 2, End::Done, 13, 0, 0)),
        entry(0, 15, committed(a, End::Done, 0, 100)),
        entry(1, 15, Event::Stolen { task: b, attempt: attempt(1), from: NodeId(0) }),
        entry(1, 16, ended(b, 1, End::Done, 15, 60, 40)),
        entry(1, 16, committed(b, End::Done, 1, 7)),
        entry(1, 16, committed(b, End::Done, 1, 7)),
        entry(1, 17, committed(c, End::Skipped, 1, 0)),
        entry(1, 17, Event::JobEnded { job: JobId(6), end: End::Done }),
    ]
}

fn fold(entries: &[Entry]) -> Fold {
    let mut fold = Fold::of_job(JOB);
    entries.iter().for_each(|entry| fold.push(entry));
    fold
}

#[test]
fn a_run_is_told_in_figures() {
    let fold = fold(&story());
    let edges = [(task(0, 0).local, task(1, 0).local, 100)];
    let facts = RunFacts {
        submitted: Some(Time(8 * S)),
        accepted: Some(Time(9 * S)),
        ended: Some(Time(18 * S)),
        remote_bytes: Some(fold.remote_bytes(JOB, edges.into_iter())),
        reads: Some(Reads { inputs: 10, local: 2, copied: 6 }),
        ..RunFacts::default()
    };
    let report = RunReport::new(&fold, &facts);
    let tasks = TaskCounts { total: 3, done: 2, skipped: 1, executions: 3, ..report.tasks };
    assert_eq!(report.tasks, tasks);
    assert_eq!((report.tasks.failed, report.tasks.cancelled), (0, 0));
    assert_eq!((report.nodes, report.slots), (2, 2));
    assert_eq!((report.makespan_s, report.submit_s, report.first_start_s), (10.0, 1.0, 4.0));
    assert_eq!((report.work_s, report.efficiency, report.utilization), (3.0, 0.15, 0.2));
    assert_eq!(report.throughput_per_s, 0.2);
    let data = DataCounts {
        bytes_produced: 107,
        bytes_moved: 60,
        bytes_read_local: 40,
        locality_hit_rate: 0.4,
        cache_hit_rate: 0.8,
        cache_hit_rate_strict: 0.75,
        reads: 10,
        bytes_read_remote: 100,
    };
    assert_eq!(report.data, data);
    assert_eq!(report.steals, StealCounts { tasks: 1, ..StealCounts::default() });
    assert_eq!(report.attempts, AttemptCounts { replaced: 1, stale: 0 });
    assert_eq!(fold.committed_twice(), 1);
    assert_eq!(fold.ended_at(task(1, 1)), Some((NodeId(1), End::Skipped)));
    assert_eq!(fold.ended_at(task(1, 2)), None);
    let busy: Vec<f64> = report.per_node.iter().map(|row| row.busy_s).collect();
    assert_eq!(busy, [3.0, 1.0]);
}

#[test]
fn each_node_tells_its_own_rates() {
    let state = |node, inputs, inputs_local, inputs_copied| wire::NodeState {
        member: Some(wire::Member { node, ..wire::Member::default() }),
        inputs,
        inputs_local,
        inputs_copied,
        ..wire::NodeState::default()
    };
    let node_states = vec![state(1, 8, 2, 3)];
    let report = RunReport::new(&fold(&story()), &RunFacts { node_states, ..RunFacts::default() });
    let rates = |row: &NodeRow| {
        (row.node, row.locality_hit_rate, row.cache_hit_rate, row.cache_hit_rate_strict)
    };
    let rows: Vec<_> = report.per_node.iter().map(rates).collect();
    assert_eq!(rows, [(0, 0.0, 0.0, 0.0), (1, 0.4, 0.625, 0.5)]);
}

#[test]
fn wide_attempts_keep_several_slots_busy() {
    let mut fold = Fold::default();
    fold.push_sized(&entry(0, 3, ended(task(0, 0), 1, End::Done, 1, 0, 0)), 4);
    let facts = RunFacts {
        slots: 8,
        submitted: Some(Time(S)),
        ended: Some(Time(3 * S)),
        ..RunFacts::default()
    };
    let report = RunReport::new(&fold, &facts);
    assert_eq!((report.work_s, report.utilization), (8.0, 0.5));
}

#[test]
fn processes_are_counted_once() {
    let state = |cpu_ns, peak_rss_bytes| wire::NodeState {
        cpu_ns,
        peak_rss_bytes,
        steals_tried: 3,
        steals_won: 1,
        messages: 10,
        ..wire::NodeState::default()
    };
    let mut facts = RunFacts {
        node_states: vec![state(2 * S, 100), state(3 * S, 200)],
        client_cpu: Span(S),
        client_peak_rss_bytes: 50,
        ..RunFacts::default()
    };
    let apart = RunReport::new(&Fold::default(), &facts);
    assert_eq!((apart.cpu_s, apart.peak_rss_bytes, apart.messages), (6.0, 350, 20));
    assert_eq!(apart.steals, StealCounts { tried: 6, won: 2, tasks: 0 });
    facts.one_process = true;
    let together = RunReport::new(&Fold::default(), &facts);
    assert_eq!((together.cpu_s, together.peak_rss_bytes), (3.0, 200));
}

#[test]
fn the_json_has_the_promised_fields_in_order() {
    let json = RunReport { schema: 1, ..RunReport::default() }.to_json();
    let promised = concat!(
        r#"{"schema":1,"job":"","state":"","nodes":0,"slots":0,"policy":"","#,
        r#""tasks":{"total":0,"edges":0,"done":0,"failed":0,"cancelled":0,"skipped":0,"#,
        r#""executions":0},"makespan_s":0.0,"submit_s":0.0,"first_start_s":0.0,"#,
        r#""throughput_per_s":0.0,"work_s":0.0,"efficiency":0.0,"utilization":0.0,"#,
        r#""data":{"bytes_produced":0,"bytes_moved":0,"bytes_read_local":0,"#,
        r#""locality_hit_rate":0.0,"cache_hit_rate":0.0,"cache_hit_rate_strict":0.0,"#,
        r#""reads":0,"bytes_read_remote":0},"#,
        r#""steals":{"tried":0,"won":0,"tasks":0},"pushes":0,"messages":0,"#,
        r#""reconciler_wakeups":0,"cpu_s":0.0,"peak_rss_bytes":0,"#,
        r#""bound":{"lower_s":0.0,"paper_s":0.0}"#,
    );
    assert!(json.starts_with(promised), "{json}");
}

proptest! {
    #[test]
    fn shares_stay_shares_and_order_does_not_matter(
        runs in prop::collection::vec((0u32..4, 0u64..100, 0u64..50, 1u32..5), 0..60)
    ) {
        let entries: Vec<(Entry, u32)> = runs
            .iter()
            .zip(0..)
            .map(|(&(node, start, length, slots), index)| {
                let event = ended(task(node, index), 1, End::Done, start, 3, 4);
                (entry(node, start + length, event), slots)
            })
            .collect();
        let (mut forward, mut backward) = (Fold::default(), Fold::default());
        entries.iter().for_each(|(entry, slots)| forward.push_sized(entry, *slots));
        entries.iter().rev().for_each(|(entry, slots)| backward.push_sized(entry, *slots));
        let facts = RunFacts { slots: 3, ended: Some(Time(90 * S)), ..RunFacts::default() };
        let report = RunReport::new(&forward, &facts);
        for share in [report.utilization, report.efficiency, report.data.locality_hit_rate] {
            prop_assert!((0.0..=1.0).contains(&share));
        }
        prop_assert!(report.utilization_series.values.iter().all(|v| (0.0..=1.0).contains(v)));
        prop_assert_eq!(report.tasks, RunReport::new(&backward, &facts).tasks);
        prop_assert_eq!(report.work_s, RunReport::new(&backward, &facts).work_s);
        prop_assert_eq!(report.data, RunReport::new(&backward, &facts).data);
    }
}

#[test]
fn loads_may_come_before_the_clock_and_kinds_are_told_apart() {
    use workloads::{GraphBuilder, TaskInit};
    let mut builder = GraphBuilder::new("loads");
    for kind in ["load", "pair"] {
        let kind = kind.to_owned();
        let spec = builder.spec(wire::Spec { kind, ..wire::Spec::default() });
        builder.task(TaskInit::of(spec));
    }
    let graph = builder.finish().unwrap();
    let mut facts = RunFacts {
        kinds: Kinds::of(&graph),
        submitted: Some(Time(S)),
        ended: Some(Time(14 * S)),
        slots: 2,
        ..RunFacts::default()
    };
    let mut fold = Fold::default();
    fold.push_task(&entry(0, 4, ended(task(0, 0), 1, End::Done, 2, 0, 0)), 1, Some(0));
    fold.push_task(&entry(0, 9, ended(task(0, 1), 1, End::Done, 5, 0, 0)), 1, Some(1));
    fold.push_task(&entry(0, 12, ended(task(0, 2), 1, End::Done, 9, 0, 0)), 1, Some(1));
    let clocked = RunReport::new(&fold, &facts);
    assert_eq!((clocked.makespan_s, clocked.load_s), (13.0, 0.0));
    facts.clock_starts_after_loads = true;
    let report = RunReport::new(&fold, &facts);
    assert_eq!((report.makespan_s, report.load_s), (10.0, 3.0));
    let pairs = StageRow {
        kind: "pair".to_owned(),
        executions: 2,
        first_start_s: 1.0,
        last_end_s: 8.0,
        busy_s: 7.0,
    };
    assert_eq!(report.stages[1], pairs);
    // A pair that ran beside the loads is not for nothing.
    fold.push_task(&entry(0, 4, ended(task(0, 3), 1, End::Done, 3, 0, 0)), 1, Some(1));
    let early = RunReport::new(&fold, &facts);
    assert_eq!((early.makespan_s, early.load_s), (11.0, 2.0));
}

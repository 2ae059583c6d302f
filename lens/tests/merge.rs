//! The views of parts, merged in any order and grouping, are the view of all.

use lens::failures::{Example, FailureGroup, FailureKey};
use lens::{AttemptRow, Lens, Outcome, Sampling, View};
use proptest::prelude::*;
use proto::event::{End, Reason};
use proto::{Attempt, Event, JobId, LocalId, NodeId, Span, TaskId, Time};

const JOB: JobId = JobId(7);
const NODES: u32 = 5;

/// One task: its node, slot, times in microseconds, end, bytes.
#[derive(Clone, Debug)]
struct Story {
    task: u64,
    node: u32,
    slot: u32,
    is_wide: bool,
    times: [u64; 3],
    end: Option<End>,
    bytes: u64,
    from: Option<u32>,
}

fn story() -> impl Strategy<Value = Story> {
    let times = (0u64..1 << 30, 0u64..1 << 24, 0u64..1 << 26);
    let ends = prop_oneof![Just(Some(End::Done)), Just(Some(End::Failed)), Just(None)];
    let place = (0..NODES, 0u32..300, any::<bool>());
    (any::<u16>(), place, times, ends, 0u64..1 << 40, prop::option::of(0..NODES)).prop_map(
        |(task, (node, slot, is_wide), (queued, wait, ran), end, bytes, from)| Story {
            task: task.into(),
            node,
            slot,
            is_wide,
            times: [queued, queued + wait, queued + wait + ran],
            end,
            bytes,
            from,
        },
    )
}

/// The events of each node, in its order.
fn logs(stories: &[Story]) -> Vec<Vec<(Time, Event)>> {
    let mut logs: Vec<Vec<(Time, Event)>> = (0..NODES)
        .map(|node| {
            vec![(Time(0), Event::NodeStarted { node: NodeId(node), incarnation: 1, slots: 300 })]
        })
        .collect();
    for (number, story) in stories.iter().enumerate() {
        let task = TaskId { job: JOB, local: LocalId(story.task) };
        let attempt = Attempt::new(1, number as u32);
        let [queued, started, ended] = story.times.map(|us| Time(us * 1_000));
        let (bytes, reason) = (story.bytes, Reason::NoInput);
        let mut add = |time, event| logs[story.node as usize].push((time, event));
        let input_bytes = bytes;
        add(queued, Event::Queued { task, attempt, local_queue: false, reason, input_bytes });
        if let Some(from) = story.from {
            let (from, took) = (NodeId(from), Span((started.0 - queued.0) / 2));
            add(started, Event::Fetched { task, attempt, from, bytes, took });
        }
        add(started, Event::Started { task, attempt, slot: story.slot });
        if story.is_wide {
            add(started, Event::Widened { task, attempt, slot: story.slot + 1 });
        }
        let Some(end) = story.end else { continue };
        let node = NodeId(story.node);
        add(
            ended,
            Event::Ended { task, attempt, end, started, moved_bytes: bytes, local_bytes: 3 },
        );
        let home = &mut logs[(story.task % u64::from(NODES)) as usize];
        home.push((ended, Event::Committed { task, attempt, end, node, output_bytes: bytes }));
    }
    logs.iter_mut().for_each(|log| log.sort_by_key(|(time, _)| *time));
    logs
}

fn lens(level: u32) -> Lens<impl FnMut(LocalId) -> u32> {
    let names = vec!["even".to_owned(), "third".to_owned()];
    Lens::new(JOB, Time(0), Sampling { level }, names, |task| (task.0 % 3) as u32)
}

/// The view of the logs of some nodes, one after another.
fn view(logs: &[Vec<(Time, Event)>], nodes: &[u32], level: u32) -> View {
    let mut lens = lens(level);
    for &node in nodes {
        for (time, event) in &logs[node as usize] {
            lens.push(NodeId(node), *time, event);
        }
    }
    lens.finish(None)
}

/// The events of all nodes by time.
fn mixed(logs: &[Vec<(Time, Event)>], level: u32) -> View {
    let mut all: Vec<(Time, u32, usize)> = Vec::new();
    for (node, log) in (0..).zip(logs) {
        all.extend(log.iter().enumerate().map(|(at, (time, _))| (*time, node, at)));
    }
    all.sort_unstable();
    let mut lens = lens(level);
    for (time, node, at) in all {
        lens.push(NodeId(node), time, &logs[node as usize][at].1);
    }
    lens.finish(None)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn views_of_nodes_are_the_view_of_all(
        stories in prop::collection::vec(story(), 0..60),
        order in Just((0..NODES).collect::<Vec<u32>>()).prop_shuffle(),
        cut in 0usize..NODES as usize,
        level in 0u32..4,
    ) {
        let logs = logs(&stories);
        let all = mixed(&logs, level);
        // Two groups of parts, then the groups.
        let group = |nodes: &[u32]| {
            let mut sum = View::default();
            nodes.iter().for_each(|&node| sum.merge(&view(&logs, &[node], level)));
            sum
        };
        let (left, right) = order.split_at(cut);
        let mut merged = group(right);
        merged.merge(&group(left));
        prop_assert_eq!(&merged, &all);
        prop_assert_eq!(&view(&logs, &order, level), &all);
    }

    #[test]
    fn totals_are_exact_at_any_sampling(
        stories in prop::collection::vec(story(), 0..80), level in 1u32..70
    ) {
        let logs = logs(&stories);
        let (all, sampled) = (mixed(&logs, 0), mixed(&logs, level));
        prop_assert_eq!(all.exact(), sampled.exact());
        prop_assert_eq!(all.detailed, all.attempts());
        prop_assert!(sampled.detailed <= all.detailed);
        let busy: u64 = stories.iter().filter(|it| it.end.is_some())
            .map(|it| (it.times[2] - it.times[1]) * if it.is_wide { 2 } else { 1 }).sum();
        prop_assert!(all.work.busy_us >= busy);
        let committed = stories.iter().filter(|it| it.end == Some(End::Failed)).count() as u64;
        prop_assert_eq!(sampled.work.committed[End::Failed as usize], committed);
    }
}

#[test]
fn a_sampled_view_has_its_share_of_the_tasks() {
    let sampled = (0..100_000).filter(|&task| Sampling { level: 3 }.has(LocalId(task))).count();
    assert!((10_000..15_000).contains(&sampled), "{sampled} of 12,500");
    assert!(Sampling::default().has(LocalId(5)));
}

/// Many nodes, slots, kinds and lengths: the view of a million attempts stays small.
#[test]
fn a_million_attempts_take_bounded_memory() {
    let names: Vec<String> = (0..200).map(|kind| format!("k{kind}")).collect();
    let part = |part: u64| {
        let mut lens = Lens::new(JOB, Time(0), Sampling::default(), names.clone(), |_| 0);
        for number in 0..250_000u64 {
            let number = number * 4 + part;
            lens.add(&AttemptRow {
                node: (number % 2_000) as u32,
                slot: (number % 7) as u32,
                start_us: number * 17,
                ran_us: number % 1_009 * 1_000,
                task: LocalId(number),
                kind: (number % 200) as u32,
                outcome: Outcome::Done,
                ..AttemptRow::default()
            });
        }
        lens.finish(None)
    };
    let mut all = View::default();
    for number in [2, 0, 3, 1] {
        let mut view = part(number);
        let key = FailureKey { text: format!("e{number}"), ..FailureKey::default() };
        view.failures.add(key, &FailureGroup::of(Example::default(), None));
        all.merge(&view);
    }
    assert_eq!((all.attempts(), all.detailed), (1_000_000, 1_000_000));
    assert!(all.nodes.sums.len() <= lens::view::VIEW_NODES_MAX);
    assert_eq!(all.kinds.kept.len(), lens::view::VIEW_KINDS_MAX);
    let kept: u64 = all.kinds.kept.values().map(|kind| kind.work.ran.number).sum();
    let rest = all.kinds.rest.as_ref().map_or(0, |kind| kind.work.ran.number);
    assert_eq!((kept + rest, rest > 0), (1_000_000, true));
    let busy: u64 = all.nodes.sums.values().map(|node| node.busy.totals()[0]).sum();
    assert_eq!(busy, all.work.busy_us, "no time of a node is lost");
}

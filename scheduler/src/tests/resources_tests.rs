//! Requests of tasks: dispatch, reservation, stealing and refusal.

use std::sync::Arc;

use proto::event::Reason;
use proto::wire::message::Body;
use proto::wire::response;
use proto::{Attempt, ClientId, LocalId, NodeId, PartitionId, TaskId, Time, wire};
use resources::{Name, Offer, Pool, Request as Needs, Totals, parse_pool};

use crate::holder::queues::classes::class_of;
use crate::holder::task::{Work, unpack};
use crate::output::Out;
use crate::tests::patience_tests::push_granted;
use crate::tests::test_nodes;
use crate::{Options, Policy, Request, Scheduler, Tuning};

pub(super) const SLOTS: u32 = 4;

pub(super) fn offer(pools: &[&str], labels: &[&str]) -> Offer {
    let pools = pools.iter().map(|text| parse_pool(text).expect("it is a pool"));
    let labels = labels.iter().map(|name| Pool::label(Name::label(name).expect("a label")));
    Offer::new(pools.chain(labels).collect(), Vec::new()).expect("it makes sense")
}

/// Two GPUs and some memory on four slots.
pub(super) fn with_gpus() -> Offer {
    offer(&["cpus=4", "gpus=2", "memory=8GiB"], &[])
}

/// Node 0 with an offer, among nodes with these offers.
pub(super) fn node(own: &Offer, others: &[&Offer]) -> Scheduler {
    node_with_slots(own, others, SLOTS)
}
/// Node 0 with this number of slots, beside one like it.
fn node_of(own: &Offer, slots: u32) -> Scheduler {
    node_with_slots(own, &[own], slots)
}
fn node_with_slots(own: &Offer, others: &[&Offer], slots: u32) -> Scheduler {
    let member = |(node, offer): (u32, &&Offer)| wire::Member {
        slots,
        phase: wire::MemberPhase::Up as i32,
        offer: Totals::from(*offer).encode(),
        ..test_nodes::member(node)
    };
    let all = [&[own], others].concat();
    let members: Vec<wire::Member> = (0..).zip(&all).map(member).collect();
    let homes_of: Vec<u32> = (0..members.len().next_power_of_two() as u32)
        .map(|partition| partition % members.len() as u32)
        .collect();
    let homes = test_nodes::homes(0, members, &homes_of);
    let former = (proto::Incarnation(0), wire::LifeEnd::LifeDied);
    let options = Options {
        me: NodeId(0),
        incarnation: proto::Incarnation(1),
        slots,
        offer: Some(Arc::new(own.clone())),
        end: None,
        tuning: Tuning::of(Policy::Mlb),
        seed: 1,
        former,
        mutant: None,
    };
    Scheduler::new(options, homes)
}

pub(super) fn bytes(needs: &str) -> Vec<u8> {
    needs.parse::<Needs>().expect("it is a request").encode()
}

pub(super) fn spec(needs: &str, priority: i32) -> wire::Spec {
    wire::Spec {
        body: Some(wire::spec::Body::Sleep(Default::default())),
        request: bytes(needs),
        priority,
        ..Default::default()
    }
}

/// Node 1 pushes a task with these needs.
fn push(node: &mut Scheduler, number: u64, needs: &str, out: &mut Out) -> TaskId {
    push_with(node, number, spec(needs, 0), out)
}
pub(super) fn push_with(
    node: &mut Scheduler,
    number: u64,
    spec: wire::Spec,
    out: &mut Out,
) -> TaskId {
    let local = LocalId::new(PartitionId(1), number);
    push_placed(node, local, wire::Placed::default(), spec, out)
}
fn push_placed(
    node: &mut Scheduler,
    local: LocalId,
    placed: wire::Placed,
    spec: wire::Spec,
    out: &mut Out,
) -> TaskId {
    let placed = wire::Placed { job: 1, local: local.0, attempt: 1, ..placed };
    let settings = vec![wire::JobSettings { real_data: true, ..Default::default() }];
    let bundle = wire::Bundle { specs: vec![spec], settings, tasks: vec![placed] };
    let body = Body::Push(wire::Push { bundle: Some(bundle), ..Default::default() });
    node.on_message(Time(0), NodeId(1), body, out);
    TaskId { job: proto::JobId(1), local }
}

/// The home of the task lets this node have it from its shared queue.
pub(super) fn push_shared(node: &mut Scheduler, number: u64, spec: wire::Spec, out: &mut Out) {
    push_granted(node, number, spec, Vec::new(), out);
}

/// What `task explain` says of a task.
pub(super) fn explained(node: &mut Scheduler, number: u64) -> String {
    let (mut out, local) = (Out::default(), LocalId::new(PartitionId(1), number).0);
    let query = wire::TaskQuery { job: 1, local, ..Default::default() };
    node.on_request(Time(0), ClientId(1), 1, Request::Explain(query), &mut out);
    let body = out.answers.pop().and_then(|answer| answer.response.body);
    let Some(response::Body::Explanation(it)) = body else { panic!("{body:?}") };
    it.lines.join("\n")
}

/// The tasks that start now.
fn starts(node: &mut Scheduler, out: &mut Out) -> Vec<u64> {
    node.act(Time(0), out);
    out.launches.drain(..).map(|launch| launch.task.local.index()).collect()
}
fn end(node: &mut Scheduler, task: TaskId, out: &mut Out) {
    node.on_finished(Time(0), task, Attempt(1), Box::default(), out);
}

#[test]
fn tasks_start_while_their_resources_are_free_and_others_go_on() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    let first = push(&mut node, 1, "gpus=1", &mut out);
    push(&mut node, 2, "gpus=1", &mut out);
    push(&mut node, 3, "gpus=1", &mut out);
    push(&mut node, 4, "memory=6GiB", &mut out);
    push(&mut node, 5, "memory=6GiB", &mut out);
    push(&mut node, 6, "", &mut out);
    let mut started = starts(&mut node, &mut out);
    started.sort_unstable();
    assert_eq!(started, [1, 2, 4, 6], "a GPU and memory are short");
    end(&mut node, first, &mut out);
    assert_eq!(starts(&mut node, &mut out), [3]);
}

#[test]
fn launches_name_what_they_were_given() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    push(&mut node, 1, "gpus=1.5, memory=1GiB", &mut out);
    node.act(Time(0), &mut out);
    let granted = out.launches[0].granted.as_deref().expect("it has a claim");
    let pools: Vec<(&str, u64, usize)> =
        granted.pools.iter().map(|it| (&*it.name, it.units, it.indices.len())).collect();
    assert_eq!(
        pools,
        [("cpus", 10_000, 1), ("gpus", 15_000, 2), ("memory", (1 << 30) * 10_000, 0)]
    );
}

#[test]
fn the_highest_priority_starts_first() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    for (number, needs, priority) in
        [(1, "gpus=2", -1), (2, "", 0), (3, "gpus=2", 7), (4, "memory=1GiB", 3), (5, "", 5)]
    {
        push_with(&mut node, number, spec(needs, priority), &mut out);
    }
    assert_eq!(starts(&mut node, &mut out), [3, 5, 4, 2]);
}

#[test]
fn what_a_task_lacks_is_kept_for_it_after_a_number_of_starts() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    let mut running = vec![push(&mut node, 0, "gpus=1", &mut out)];
    assert_eq!(starts(&mut node, &mut out), [0]);
    push(&mut node, 1, "gpus=2", &mut out);
    for number in 2..100 {
        push(&mut node, number, "gpus=1", &mut out);
    }
    push(&mut node, 100, "", &mut out);
    let mut passed = 0;
    for _ in 0..100 {
        let started = starts(&mut node, &mut out);
        if started.contains(&1) {
            assert!((1..=2 * u64::from(SLOTS)).contains(&passed), "{passed} starts passed it");
            return;
        }
        passed += started.iter().filter(|&&number| number != 100).count() as u64;
        let task = |&number: &u64| TaskId::new(1, LocalId::new(PartitionId(1), number).0);
        running.extend(started.iter().filter(|&&number| number != 100).map(task));
        // One ends at a time, so that both GPUs are never free by chance.
        let ended = running.remove(0);
        end(&mut node, ended, &mut out);
    }
    panic!("the large task never starts");
}

#[test]
fn a_task_that_waits_for_a_gpu_keeps_no_cpus() {
    let own = offer(&["cpus=4", "gpus=1"], &[]);
    let (mut node, mut out) = (node(&own, &[&own]), Out::default());
    push(&mut node, 0, "gpus=1", &mut out);
    assert_eq!(starts(&mut node, &mut out), [0]);
    push(&mut node, 1, "gpus=1", &mut out);
    assert!(starts(&mut node, &mut out).is_empty());
    for number in 2..52 {
        push(&mut node, number, "", &mut out);
    }
    let mut done = 0;
    while done < 50 {
        let started = starts(&mut node, &mut out);
        assert!(!started.is_empty(), "{done} of 50 tasks without a request have run");
        assert!(starts(&mut node, &mut out).is_empty(), "all slots are busy");
        for number in started {
            assert_ne!(number, 1, "its GPU is busy");
            let task = TaskId::new(1, LocalId::new(PartitionId(1), number).0);
            end(&mut node, task, &mut out);
            done += 1;
        }
    }
}

#[test]
fn a_reserved_task_starts_although_others_wait_in_line() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    let first = push(&mut node, 0, "gpus=1", &mut out);
    push(&mut node, 9, "", &mut out);
    let mut started = starts(&mut node, &mut out);
    started.sort_unstable();
    assert_eq!(started, [0, 9]);
    push(&mut node, 1, "gpus=2", &mut out);
    assert!(starts(&mut node, &mut out).is_empty());
    for number in 2..8 {
        push_with(&mut node, number, wire::Spec { cpus: 4, ..spec("", 0) }, &mut out);
    }
    assert!(starts(&mut node, &mut out).is_empty());
    end(&mut node, first, &mut out);
    assert_eq!(starts(&mut node, &mut out), [1], "the wide tasks wait for the slot of 9");
}

#[test]
fn a_wide_task_at_the_front_keeps_no_slot_idle() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    push(&mut node, 0, "", &mut out);
    assert_eq!(starts(&mut node, &mut out), [0]);
    push_with(&mut node, 1, wire::Spec { cpus: 4, ..spec("", 0) }, &mut out);
    push(&mut node, 2, "", &mut out);
    assert_eq!(starts(&mut node, &mut out), [2]);
}

#[test]
fn a_thief_gets_what_fits_it() {
    let plain = offer(&["cpus=4"], &[]);
    let mut node = node(&with_gpus(), &[&with_gpus(), &plain]);
    let mut out = Out::default();
    for number in 0..6 {
        push(&mut node, number, "gpus=1", &mut out);
    }
    assert_eq!(starts(&mut node, &mut out), [0, 1]);
    let probe = |node: &mut Scheduler, thief: u32, free: &[u64]| {
        let mut out = Out::default();
        let probe = wire::StealProbe { probe: 1, ahead: false, free: free.to_vec() };
        node.on_message(Time(0), NodeId(thief), Body::StealProbe(probe), &mut out);
        match out.best_effort.pop() {
            Some((_, Body::StealLoad(load))) => load.shared,
            other => panic!("{other:?}"),
        }
    };
    let all = [4 * 10_000, 2 * 10_000, (8 << 30) * 10_000];
    assert_eq!(probe(&mut node, 1, &all), 2, "two GPUs are free there");
    assert_eq!(probe(&mut node, 1, &[40_000, 10_000, 0]), 1);
    assert_eq!(probe(&mut node, 1, &[40_000, 0, 0]), 0);
    assert_eq!(probe(&mut node, 2, &[40_000]), 0, "it has no GPU");
    let request =
        wire::StealRequest { steal: 1, slots: 4, free: 4, held: 0, free_amounts: all.to_vec() };
    let mut out = Out::default();
    node.on_message(Time(0), NodeId(1), Body::StealRequest(request), &mut out);
    let granted = out.reliable.iter().find_map(|(_, body)| match body {
        Body::StealGrant(grant) => grant.bundle.as_ref().map(|bundle| bundle.tasks.len()),
        _ => None,
    });
    assert_eq!(granted, Some(2));
}

/// The numbers of the tasks that a thief with these free slots gets from the node.
fn stolen(node: &mut Scheduler, now: Time, steal: u64, free: u32) -> Vec<u64> {
    let (mut out, free_amounts) = (Out::default(), vec![u64::from(free) * 10_000]);
    let probe = wire::StealProbe { probe: steal, ahead: false, free: free_amounts.clone() };
    node.on_message(now, NodeId(1), Body::StealProbe(probe), &mut out);
    let Some((_, Body::StealLoad(load))) = out.best_effort.pop() else { panic!("an answer") };
    let request = wire::StealRequest { steal, slots: SLOTS, free, held: 0, free_amounts };
    node.on_message(now, NodeId(1), Body::StealRequest(request), &mut out);
    let sent = out.reliable.into_iter().chain(out.best_effort);
    let bundles = sent.filter_map(|(_, body)| match body {
        Body::StealGrant(grant) => grant.bundle,
        _ => None,
    });
    let tasks: Vec<u64> =
        bundles.flat_map(|it| it.tasks).map(|it| LocalId(it.local).index()).collect();
    assert_eq!(load.shared > 0, !tasks.is_empty(), "the answer promised {}", load.shared);
    tasks
}

/// It has fetched inputs or was next when it left its queue. It waits for slots, some are free.
#[test]
fn a_wide_task_in_line_is_stolen_while_some_slots_are_free() {
    let own = offer(&["cpus=4"], &[]);
    let (mut node, mut out) = (node(&own, &[&own]), Out::default());
    let narrow = push(&mut node, 0, "", &mut out);
    assert_eq!(starts(&mut node, &mut out), [0]);
    let wide = wire::Spec { cpus: 4, request: Vec::new(), ..spec("", 0) };
    push_shared(&mut node, 1, wide.clone(), &mut out);
    push_shared(&mut node, 2, wide, &mut out);
    assert!(starts(&mut node, &mut out).is_empty());
    let asks = "it asks for 4 cpus; 3 of 4 are free on node n0";
    assert_eq!(explained(&mut node, 1), format!("it is next on node n0; {asks}"));
    let late = node.next_requeue().expect("other nodes may run them");
    assert!(late > Time(0), "it waits for a short time");
    node.act(late, &mut out);
    node.act(late, &mut out);
    assert_eq!(node.next_requeue(), None, "none is taken out again");
    assert_eq!(explained(&mut node, 1), format!("it is queued on node n0; {asks}"));
    assert!(stolen(&mut node, late, 1, 3).is_empty(), "the thief has three of four free slots");
    assert_eq!(stolen(&mut node, late, 2, 4).len(), 1, "it has four");
    end(&mut node, narrow, &mut out);
    assert_eq!(starts(&mut node, &mut out).len(), 1, "the other one starts here");
}

/// Free slots are kept for a wide task: those that wait for it may run elsewhere meanwhile.
#[test]
fn narrow_tasks_behind_a_reserved_one_are_stolen() {
    let own = offer(&["cpus=4"], &[]);
    let (mut node, mut out) = (node(&own, &[&own]), Out::default());
    push(&mut node, 0, "", &mut out);
    assert_eq!(starts(&mut node, &mut out), [0]);
    let cpus = |cpus| wire::Spec { cpus, request: Vec::new(), ..spec("", 0) };
    push_shared(&mut node, 1, cpus(4), &mut out);
    for number in 2..20 {
        push_shared(&mut node, number, cpus(1), &mut out);
    }
    for _ in 0..20 {
        for number in starts(&mut node, &mut out) {
            let local = LocalId::new(PartitionId(1), number);
            end(&mut node, TaskId { job: proto::JobId(1), local }, &mut out);
        }
    }
    assert!(node.holder.keeps_cpus(), "enough have passed the wide task");
    let late = node.next_requeue().expect("other nodes may run it");
    node.act(late, &mut out);
    node.act(late, &mut out);
    let mut all = Vec::new();
    for steal in 1..20 {
        all.extend(stolen(&mut node, late, steal, 3));
    }
    all.sort_unstable();
    assert_eq!(all, (10..20).collect::<Vec<_>>(), "eight have passed it");
}

#[test]
fn under_eft_a_thief_gets_tasks_of_the_local_queue() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    node.options.tuning.policy = Policy::Eft;
    push(&mut node, 0, "gpus=2", &mut out);
    assert_eq!(starts(&mut node, &mut out), [0]);
    for number in 1..4 {
        let parent = LocalId::new(PartitionId(1), 99).0;
        let input = wire::InputAt { parent, attempt: 1, size_bytes: 8, ..Default::default() };
        let placed = wire::Placed { inputs: vec![input], ..Default::default() };
        let local = LocalId::new(PartitionId(1), number);
        push_placed(&mut node, local, placed, spec("gpus=1", 0), &mut out);
    }
    assert!(starts(&mut node, &mut out).is_empty());
    let free_amounts = vec![4 * 10_000, 2 * 10_000, (8 << 30) * 10_000];
    let request = wire::StealRequest { steal: 1, slots: 4, free: 4, held: 0, free_amounts };
    let mut out = Out::default();
    node.on_message(Time(0), NodeId(1), Body::StealRequest(request), &mut out);
    let granted = out.reliable.iter().find_map(|(_, body)| match body {
        Body::StealGrant(grant) => grant.bundle.as_ref().map(|bundle| bundle.tasks.len()),
        _ => None,
    });
    assert_eq!(granted, Some(2), "two GPUs are free there");
}

#[test]
fn a_request_that_no_node_offers_is_refused() {
    let labelled = offer(&["cpus=4"], &["fast"]);
    let mut node = node(&with_gpus(), &[&labelled]);
    let mut submit = |needs: &str| {
        let mut out = Out::default();
        let chunk = wire::Chunk {
            job: 1,
            specs: vec![wire::Spec { name: "train".into(), ..spec(needs, 0) }],
            tasks: vec![wire::Task::default()],
            ..Default::default()
        };
        node.on_request(Time(0), ClientId(1), 1, Request::Submit(chunk), &mut out);
        match out.answers.pop().and_then(|answer| answer.response.error) {
            Some(error) => Err(error.text),
            _ => Ok(()),
        }
    };
    let error = submit("gpus=3").unwrap_err();
    assert!(error.starts_with("task 'train': it asks for cpus=1, gpus=3"), "{error}");
    assert!(error.contains("n0 offers cpus=4, gpus=2, memory=8GiB"), "{error}");
    assert!(error.contains("n1 offers cpus=4, label=fast"), "{error}");
    assert!(submit("gpus=1, label=fast").is_err(), "no node has both");
    assert_eq!(submit("gpus=2 | label=fast"), Ok(()));
    assert!(submit("cpus=1.5, gpus=1").unwrap_err().contains("cpus are whole numbers"));
}

#[test]
fn a_home_refuses_wrong_numbers_of_nodes() {
    use proto::limits::GANG_NODES_MAX;
    let mut node = node(&with_gpus(), &[&with_gpus()]);
    let mut submit = |nodes: u32| {
        let mut out = Out::default();
        let spec = wire::Spec { name: "solve".into(), nodes, ..spec("cpus=all", 0) };
        let tasks = vec![wire::Task::default()];
        let chunk = wire::Chunk { job: 1, specs: vec![spec], tasks, ..Default::default() };
        node.on_request(Time(0), ClientId(1), 1, Request::Submit(chunk), &mut out);
        out.answers.pop().and_then(|answer| answer.response.error).map(|error| error.text)
    };
    let most = format!("task 'solve' needs {} nodes at once", GANG_NODES_MAX + 1);
    assert!(submit(GANG_NODES_MAX + 1).is_some_and(|text| text.starts_with(&most)));
    // More than the cluster has: it waits for more to join.
    assert_eq!(submit(GANG_NODES_MAX), None);
    assert_eq!((submit(0), submit(1)), (None, None));
}

#[test]
fn a_task_that_this_node_does_not_offer_goes_back() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    push(&mut node, 1, "label=fast", &mut out);
    assert!(starts(&mut node, &mut out).is_empty());
    assert!(out.reliable.iter().any(goes_back), "{:?}", out.reliable);
}

fn goes_back((to, body): &(NodeId, Body)) -> bool {
    *to == NodeId(1) && matches!(body, Body::TasksNotHeld(not_held) if not_held.tasks.len() == 1)
}

/// A peer of an earlier version does not check what its tasks ask for.
#[test]
fn a_pushed_task_that_asks_for_a_part_of_a_cpu_fits_nowhere() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    push(&mut node, 1, "cpus=0.5", &mut out);
    assert!(starts(&mut node, &mut out).is_empty());
    assert!(out.reliable.iter().any(goes_back), "{:?}", out.reliable);
    let class = node.holder.class(class_of(&spec("cpus=0.5", 0))).expect("the push noted it");
    let kinds = node.routing.homes().kinds().len();
    assert!(class.fit.is_none() && !(0..kinds).any(|kind| class.fits_kind(kind)));
}

#[test]
fn the_demand_of_a_node_has_its_tasks_that_have_not_started() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    for number in 1..=600 {
        push(&mut node, number, "gpus=1", &mut out);
    }
    push(&mut node, 601, "memory=6GiB", &mut out);
    push(&mut node, 602, "memory=6GiB", &mut out);
    let started = starts(&mut node, &mut out);
    let demand = node.demand();
    let of = |needs: &str| {
        let rows: Vec<_> = demand.classes.iter().filter(|it| it.request == bytes(needs)).collect();
        assert_eq!(rows.len(), 1, "{demand:?}");
        (rows[0].tasks, rows[0].work_ns > 0)
    };
    assert_eq!((of("gpus=1"), of("memory=6GiB")), ((598, true), (1, true)), "{started:?}");
    assert_eq!((demand.classes.len(), demand.free_cpus), (2, 1));
}

fn work(spec: wire::Spec) -> Work {
    let bundle = wire::Bundle {
        specs: vec![spec],
        settings: vec![wire::JobSettings::default()],
        tasks: vec![wire::Placed { job: 1, ..Default::default() }],
    };
    let (_, _, work) = unpack(bundle, 2).expect("it is whole").remove(0);
    work
}

#[test]
fn a_push_says_what_its_home_lacks() {
    let labelled = offer(&["cpus=8"], &["fast"]);
    let mut node = node(&offer(&["cpus=4"], &[]), &[&labelled]);
    let gang = wire::Spec { nodes: 2, ..spec("", 0) };
    let wide = wire::Spec { cpus: 8, request: Vec::new(), ..spec("", 0) };
    for (spec, expected) in [
        (spec("label=fast", 0), Reason::NotOffered),
        (gang, Reason::GangLed),
        (wire::Spec { nodes: 2, ..spec("label=fast", 0) }, Reason::NotOffered),
        (wide, Reason::TooWide),
    ] {
        let work = work(spec);
        node.note_class(&work);
        assert_eq!(node.reason_to_leave(&work), expected);
    }
}

#[test]
fn a_task_that_outlives_the_nodes_with_its_label_hears_what_the_others_lack() {
    let (own, labelled) = (offer(&["cpus=4"], &[]), offer(&["cpus=4"], &["short"]));
    let end = resources::EndOfLife::from_parts(31_000_000_000, 0);
    let ends = Totals::from(&labelled).with_end(Some(end));
    let member = |(node, offer): (u32, Totals)| wire::Member {
        slots: SLOTS,
        phase: wire::MemberPhase::Up as i32,
        offer: offer.encode(),
        ..test_nodes::member(node)
    };
    let members = (0..).zip([Totals::from(&own), ends]).map(member).collect();
    let homes = test_nodes::homes(0, members, &[0, 1]);
    let mut node = Scheduler::new(node(&own, &[&labelled]).options, homes);
    let timed = |needs| wire::Spec { time_request_ns: 60_000_000_000, ..spec(needs, 0) };
    let work = work(timed("label=short"));
    node.note_class(&work);
    let why = node.explain_end(&work).expect("no node fits");
    assert!(why.contains("label=short: no node that offers the rest lives that long"), "{why}");
    assert!(why.contains("the longest has 31 s left; n0 offers cpus=4"), "{why}");
}

/// Pushes a task with this rank.
fn push_ranked(node: &mut Scheduler, number: u64, needs: &str, rank: u64, out: &mut Out) {
    let placed = wire::Placed { urgency: rank, ..Default::default() };
    push_placed(node, LocalId::new(PartitionId(1), number), placed, spec(needs, 0), out);
}

/// The order in which a node with this list starts tasks, one at a time. Of each: its needs and its
/// rank; they are numbered from 0.
fn order_of(list: &str, tasks: &[(&str, u64)]) -> Vec<u64> {
    let own = offer(&["cpus=1", "gpus=1"], &["fast"]);
    let own = match list {
        "" => own,
        list => own.with_preferences(resources::parse_preferences(list).unwrap()).unwrap(),
    };
    let (mut node, mut out) = (node_of(&own, 1), Out::default());
    node.options.tuning.order = crate::Order::Urgency;
    for (number, &(needs, rank)) in (0..).zip(tasks) {
        push_ranked(&mut node, number, needs, rank, &mut out);
    }
    let mut order = Vec::new();
    while order.len() < tasks.len() {
        let started = starts(&mut node, &mut out);
        assert_eq!(started.len(), 1, "{order:?}");
        order.push(started[0]);
        let task = TaskId::new(1, LocalId::new(PartitionId(1), started[0]).0);
        end(&mut node, task, &mut out);
    }
    order
}

#[test]
fn a_node_takes_first_what_it_prefers() {
    let tasks = [("", 5), ("gpus=1", 3), ("", 1), ("gpus=1", 7), ("label=fast", 2), ("", 0)];
    // Tasks without a request are in the local queue here, and the others in the shared one: the
    // ordinary order takes the local queue first.
    assert_eq!(order_of("", &tasks), [0, 2, 5, 3, 1, 4]);
    assert_eq!(order_of("gpus:biggest,cpus:smallest", &tasks), [3, 1, 5, 2, 4, 0]);
    assert_eq!(order_of("gpus:smallest,any", &tasks), [1, 3, 0, 2, 5, 4]);
    assert_eq!(order_of("fast:any", &tasks), [4, 0, 2, 5, 3, 1]);
    assert_eq!(order_of("cpus:1..3,cpus:smallest", &tasks), [2, 1, 4, 5, 0, 3]);
}

#[test]
fn priority_comes_before_a_preference() {
    let list = resources::parse_preferences("gpus:biggest").unwrap();
    let own = with_gpus().with_preferences(list).unwrap();
    let (mut node, mut out) = (node(&own, &[&own]), Out::default());
    push_with(&mut node, 1, spec("gpus=1", 0), &mut out);
    push_with(&mut node, 2, spec("", 3), &mut out);
    assert_eq!(starts(&mut node, &mut out), [2, 1]);
}

#[test]
fn an_attempt_that_rested_gets_its_own_gpu_again() {
    let (mut node, mut out) = (node(&with_gpus(), &[&with_gpus()]), Out::default());
    let first = push(&mut node, 1, "gpus=1", &mut out);
    assert_eq!(starts(&mut node, &mut out), [1]);
    node.on_rests(first, Attempt(1), true, &mut out);
    let second = push(&mut node, 2, "gpus=1", &mut out);
    assert_eq!(starts(&mut node, &mut out), [2], "it has the GPU of the first");
    node.on_rests(first, Attempt(1), false, &mut out);
    assert_eq!(starts(&mut node, &mut out), [] as [u64; 0]);
    assert!(out.goes_on.is_none(), "the other GPU is free, and is not its own");
    push(&mut node, 3, "", &mut out);
    assert_eq!(starts(&mut node, &mut out), [3], "it holds no other task back");
    end(&mut node, second, &mut out);
    starts(&mut node, &mut out);
    assert_eq!(out.goes_on.as_deref(), Some(&vec![(first, Attempt(1))]));
}

//! From queue to slot when makers fail, disks are full, and one step cannot do all.

use proto::wire::MemberPhase;
use proto::wire::message::Body;
use proto::work::{Fetch, FetchError};
use proto::{Attempt, ClientId, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire};

use crate::limits::{
    GATHER_MAX, LOCATE_TIMEOUT_MAX, OBJECTS_PER_MESSAGE_MAX, STAGING_MIN, STAGING_PER_SLOT,
    STEP_POPS_MAX, STORE_BYPASS_TIME, STORE_BYPASSES_MIN, STORE_FULL_TIMEOUT, WAITING_PER_SLOT_MAX,
};
use crate::objects::fetch::FetchRequest;
use crate::output::Out;
use crate::tests::test_nodes;
use crate::{Policy, Request, Scheduler, Tuning};

const SLOTS: u32 = 1;

pub(crate) fn scheduler(tuning: Tuning) -> Scheduler {
    scheduler_where(tuning, &[])
}

/// A scheduler with a map on which the first incarnations of these nodes are declared failed.
pub(crate) fn scheduler_where(tuning: Tuning, down: &[u32]) -> Scheduler {
    let member = |node| {
        let phase = if down.contains(&node) { MemberPhase::Down } else { MemberPhase::Up };
        wire::Member { phase: phase as i32, slots: SLOTS, ..test_nodes::member(node) }
    };
    let homes = test_nodes::homes(0, (0..4).map(member).collect(), &[0, 1, 2, 3]);
    test_nodes::scheduler(0, SLOTS, tuning, homes)
}

/// An input that the task of this number in partition 1 made on `node`.
pub(crate) fn input(parent: u64, node: u32, size_bytes: u64) -> wire::InputAt {
    let parent = LocalId::new(PartitionId(1), parent).0;
    wire::InputAt { parent, attempt: 1, node, size_bytes, ..Default::default() }
}

pub(crate) fn push(scheduler: &mut Scheduler, tasks: Vec<wire::Placed>, out: &mut Out) {
    let spec = wire::Spec {
        body: Some(wire::spec::Body::Sleep(Default::default())),
        ..Default::default()
    };
    let settings = wire::JobSettings { real_data: true, ..Default::default() };
    let bundle = wire::Bundle { specs: vec![spec], settings: vec![settings], tasks };
    let body = Body::Push(wire::Push { bundle: Some(bundle), ..Default::default() });
    scheduler.on_message(Time(0), NodeId(1), body, out);
}

pub(crate) fn unreachable() -> FetchError {
    FetchError::Unreachable(String::from("no answer"))
}

pub(crate) fn placed(index: u64, inputs: Vec<wire::InputAt>, output_bytes: u64) -> wire::Placed {
    wire::Placed {
        job: 1,
        local: LocalId::new(PartitionId(1), 1_000_000 + index).0,
        attempt: 1,
        inputs,
        output_sizes: vec![output_bytes],
        ..Default::default()
    }
}

/// A job of one task that this node is home of.
pub(crate) fn run_here(scheduler: &mut Scheduler, task: TaskId, out: &mut Out) {
    let spec = wire::Spec {
        body: Some(wire::spec::Body::Sleep(Default::default())),
        ..Default::default()
    };
    let job = task.job.0;
    let chunk = wire::Chunk {
        job,
        specs: vec![spec],
        tasks: vec![wire::Task { output_sizes: vec![1 << 20], ..Default::default() }],
        ..Default::default()
    };
    let total = wire::PartitionTotal { partition: 0, chunks: 1, tasks: 1 };
    let commit = wire::JobCommit { job, partitions: vec![total], ..Default::default() };
    for request in [Request::Submit(chunk), Request::Commit(commit)] {
        scheduler.on_request(Time(0), ClientId(1), 1, request, out);
        scheduler.settle(Time(0), out);
        for (_, body) in std::mem::take(&mut out.reliable) {
            scheduler.on_message(Time(0), NodeId(0), body, out);
        }
        scheduler.settle(Time(0), out);
    }
    scheduler.act(Time(0), out);
    assert_eq!(out.launches.len(), 1, "it runs");
}

fn with_marks(soft: u64, hard: u64) -> Scheduler {
    let tuning =
        Tuning { store_soft_bytes: soft, store_hard_bytes: hard, ..Tuning::of(Policy::Mlb) };
    scheduler(tuning)
}

#[test]
fn a_task_without_room_is_offered_once_then_refused() {
    let mut scheduler = with_marks(8_000, 10_000);
    // Under this policy other nodes may also take tasks of the local queue that are worth the
    // transfer.
    scheduler.options.tuning.policy = Policy::Eft;
    let mut out = Out::default();
    push(&mut scheduler, vec![placed(0, vec![], 20_000)], &mut out);
    scheduler.act(Time(0), &mut out);
    assert_eq!(
        (scheduler.holder.local().len(), scheduler.holder.shared().len()),
        (0, 1),
        "others may have it"
    );
    assert_eq!(scheduler.stats.steals_tried, 0, "a full node is not hungry");
    let request =
        wire::StealRequest { steal: 1, slots: 1, free: 1, held: 0, free_amounts: Vec::new() };
    scheduler.on_message(Time(0), NodeId(2), Body::StealRequest(request.clone()), &mut out);
    let granted = out.reliable.pop().expect("a grant").1;
    let Body::StealGrant(grant) = granted else { panic!("{granted:?}") };
    assert!(scheduler.holder.shared().is_empty());
    // The other node returns the task: it had no space either.
    scheduler.on_message(Time(0), NodeId(2), Body::StealGrant(grant), &mut out);
    scheduler.act(Time(0), &mut out);
    assert_eq!(
        (scheduler.holder.local().len(), scheduler.holder.shared().len()),
        (1, 0),
        "it would wander"
    );
    let again = Body::StealRequest(wire::StealRequest { steal: 2, ..request });
    scheduler.on_message(Time(0), NodeId(2), again, &mut out);
    assert_eq!(
        (scheduler.stealable(), scheduler.holder.local().len()),
        (0, 1),
        "no thief may have it"
    );
    scheduler.act(Time(0) + STORE_FULL_TIMEOUT, &mut out);
    assert_eq!(out.completions[&NodeId(1)].len(), 1);
    assert!(out.completions[&NodeId(1)][0].error.contains("needs 20000 bytes"));
    assert!(scheduler.holder.no_space().is_empty());
}

#[test]
fn a_stolen_task_without_room_is_passed_on_once() {
    let mut victim = with_marks(8_000, 10_000);
    let mut out = Out::default();
    push(&mut victim, vec![placed(0, vec![], 20_000)], &mut out);
    victim.act(Time(0), &mut out);
    let mut grant_of = |scheduler: &mut Scheduler, steal: u64| {
        let request =
            wire::StealRequest { steal, slots: 1, free: 1, held: 0, free_amounts: Vec::new() };
        scheduler.on_message(Time(0), NodeId(2), Body::StealRequest(request), &mut out);
        let granted = out.reliable.pop().expect("a grant").1;
        let Body::StealGrant(grant) = granted else { panic!("{granted:?}") };
        // As if the tasks' home had sent them.
        wire::StealGrant { untold: Vec::new(), ..grant }
    };
    let grant = grant_of(&mut victim, 1);
    let mut thief = with_marks(8_000, 10_000);
    let mut own = Out::default();
    // The grant is from the task's home, which so knows of the move.
    thief.on_message(Time(0), NodeId(1), Body::StealGrant(grant), &mut own);
    thief.act(Time(0), &mut own);
    assert_eq!(
        (thief.holder.local().len(), thief.holder.shared().len()),
        (0, 1),
        "others may have it"
    );
    let grant = grant_of(&mut thief, 2);
    thief.on_message(Time(0), NodeId(2), Body::StealGrant(grant), &mut own);
    thief.act(Time(0), &mut own);
    assert_eq!(
        (thief.holder.local().len(), thief.holder.shared().len()),
        (1, 0),
        "it would wander"
    );
}

/// A node with a free slot and a disk that is half reserved for a fetch.
fn half_full() -> (Scheduler, Out, Fetch) {
    let mut scheduler = with_marks(8_000, 8_000);
    let mut out = Out::default();
    push(&mut scheduler, vec![placed(0, vec![input(0, 2, 5_000)], 0)], &mut out);
    scheduler.act(Time(0), &mut out);
    let fetch = out.fetches.pop().expect("it is fetched");
    (scheduler, out, fetch)
}

/// Its slot and its resources are free, and yet it waits.
#[test]
fn a_task_with_a_request_that_has_no_room_is_offered() {
    let (mut scheduler, mut out, _fetch) = half_full();
    let body = Some(wire::spec::Body::Sleep(wire::Sleep::default()));
    let spec = wire::Spec { body, time_request_ns: 1_000_000_000, ..Default::default() };
    let settings = vec![wire::JobSettings { real_data: true, ..Default::default() }];
    let tasks = vec![placed(1, vec![], 6_000)];
    let bundle = Some(wire::Bundle { specs: vec![spec], settings, tasks });
    scheduler.on_message(
        Time(0),
        NodeId(1),
        Body::Push(wire::Push { bundle, ..Default::default() }),
        &mut out,
    );
    scheduler.act(Time(0), &mut out);
    assert!(out.launches.is_empty() && scheduler.holder.slots().free() == 1, "the disk is full");
    out.best_effort.clear();
    let probe = wire::StealProbe { probe: 1, ..Default::default() };
    scheduler.on_message(Time(0), NodeId(2), Body::StealProbe(probe), &mut out);
    let Some((_, Body::StealLoad(load))) = out.best_effort.pop() else { panic!("an answer") };
    assert_eq!(load.shared, 1);
    scheduler.act(Time(0) + Span::from_millis(5), &mut out);
    assert!(out.best_effort.iter().any(|(_, body)| matches!(body, Body::StealHint(_))));
}

#[test]
fn a_task_with_room_overtakes_a_task_without() {
    let (mut scheduler, mut out, fetch) = half_full();
    let tasks = vec![placed(1, vec![], 6_000), placed(2, vec![], 4_000), placed(3, vec![], 1_000)];
    push(&mut scheduler, tasks, &mut out);
    scheduler.act(Time(0), &mut out);
    let launched = |out: &mut Out| {
        std::mem::take(&mut out.launches).into_iter().map(|it| it.task).collect::<Vec<_>>()
    };
    let number = |index| TaskId { job: JobId(1), local: LocalId(placed(index, vec![], 0).local) };
    assert_eq!(launched(&mut out), [number(3)], "at once, though two are before it");
    let attempt = Attempt(1);
    scheduler.on_finished(Time(0), number(3), attempt, Default::default(), &mut out);
    scheduler.on_fetched(Time(0), fetch.object, fetch.number, Ok(()), &mut out);
    scheduler.act(Time(0), &mut out);
    assert_eq!(launched(&mut out), [number(0)]);
    scheduler.on_finished(Time(0), number(0), attempt, Default::default(), &mut out);
    scheduler.act(Time(0), &mut out);
    assert_eq!(launched(&mut out), [number(1)], "those that were passed keep their order");
    assert!(scheduler.holder.passes_none());
}

#[test]
fn a_task_without_room_is_overtaken_for_a_limited_time() {
    let (mut scheduler, mut out, fetch) = half_full();
    push(&mut scheduler, vec![placed(1, vec![], 6_000)], &mut out);
    scheduler.act(Time(0), &mut out);
    let mut now = Time(0);
    let mut passed = 0;
    for index in 2.. {
        push(&mut scheduler, vec![placed(index, vec![], 100)], &mut out);
        scheduler.act(now, &mut out);
        let Some(launch) = out.launches.pop() else { break };
        passed += 1;
        assert!(passed < 1_000, "it would wait without end");
        now = now + Span::from_millis(500);
        scheduler.on_finished(now, launch.task, launch.attempt, Default::default(), &mut out);
    }
    assert_eq!(now, Time(0) + STORE_BYPASS_TIME, "for so long others went before it");
    assert!(passed >= STORE_BYPASSES_MIN);
    // The space for which the task waits.
    scheduler.on_fetched(now, fetch.object, fetch.number, Ok(()), &mut out);
    let mut ran = Vec::new();
    for _ in 0..3 {
        scheduler.act(now, &mut out);
        let launch = out.launches.pop().expect("a slot is free");
        ran.push(launch.output_sizes);
        scheduler.on_finished(now, launch.task, launch.attempt, Default::default(), &mut out);
    }
    assert_eq!(ran, [[0], [6_000], [100]], "then it is next");
}

#[test]
fn each_that_fits_nowhere_is_refused_in_its_turn() {
    let mut scheduler = with_marks(8_000, 10_000);
    let mut out = Out::default();
    let tasks = (0..3).map(|index| placed(index, vec![], 20_000 + index)).collect();
    push(&mut scheduler, tasks, &mut out);
    // Events come more often than the timeout ends.
    for second in 0..60 {
        scheduler.act(Time(0) + Span::from_secs(second), &mut out);
    }
    let refused = out.completions.get(&NodeId(1)).map_or(0, Vec::len);
    assert_eq!(refused, 3, "they would take turns at being next, and none would ever be refused");
}

/// As [`push`], of commands that want this file copied here.
fn push_wanting(scheduler: &mut Scheduler, file_bytes: u64, tasks: Vec<wire::Placed>) -> Out {
    let (path, staged) = ("/shared/file".to_owned(), true);
    let file = wire::External { path, staged, size_bytes: file_bytes, ..Default::default() };
    let body = Some(wire::spec::Body::Command(Default::default()));
    let spec = wire::Spec { body, externals: vec![file], ..Default::default() };
    let settings = wire::JobSettings { real_data: true, ..Default::default() };
    let bundle = wire::Bundle { specs: vec![spec], settings: vec![settings], tasks };
    let mut out = Out::default();
    let body = Body::Push(wire::Push { bundle: Some(bundle), ..Default::default() });
    scheduler.on_message(Time(0), NodeId(1), body, &mut out);
    scheduler.act(Time(0), &mut out);
    out
}

#[test]
fn a_file_copied_here_takes_room_once_and_only_while_it_is_used() {
    let mut scheduler = with_marks(8_000, 8_000);
    let mut out = push_wanting(&mut scheduler, 2_000, vec![placed(0, vec![], 100)]);
    let first = out.launches.pop().expect("there is room");
    assert_eq!(scheduler.objects.taken_bytes(), 2_100);
    assert_eq!(scheduler.shared_files_bytes_max(), 7_900, "the rest of the space");
    // The slot is taken: the next task waits for it.
    push(&mut scheduler, vec![placed(1, vec![], 4_000)], &mut out);
    let coming = placed(2, vec![input(2, 2, 4_500)], 500);
    let fetch = push_wanting(&mut scheduler, 2_000, vec![coming]).fetches.pop();
    assert_eq!(scheduler.objects.taken_bytes(), 2_100 + 4_500 + 500, "one file");
    let done = Default::default;
    scheduler.on_finished(Time(0), first.task, first.attempt, done(), &mut out);
    scheduler.act(Time(0), &mut out);
    assert!(out.launches.is_empty(), "the file is in use still: 4,000 have no room");
    let fetch = fetch.expect("it is fetched");
    scheduler.on_fetched(Time(0), fetch.object, fetch.number, Ok(()), &mut out);
    scheduler.act(Time(0), &mut out);
    let second = out.launches.pop().expect("its input has come");
    scheduler.on_finished(Time(0), second.task, second.attempt, done(), &mut out);
    scheduler.act(Time(0), &mut out);
    assert_eq!(out.launches.len(), 1, "no task uses the file: it is deleted");
    assert_eq!(scheduler.objects.taken_bytes(), 4_000);
}

#[test]
fn a_file_that_the_store_has_no_room_for_fails_its_task() {
    let mut scheduler = with_marks(8_000, 10_000);
    push_wanting(&mut scheduler, 10_001, vec![placed(0, vec![], 0)]);
    let mut out = Out::default();
    (1..30).for_each(|second| scheduler.act(Time(0) + Span::from_secs(second), &mut out));
    assert!(out.completions[&NodeId(1)][0].error.contains("needs 10001 bytes"));
    assert_eq!(scheduler.objects.taken_bytes(), 0);
}

#[test]
fn an_object_read_twice_takes_room_once_and_idle_copies_count() {
    let mut scheduler = with_marks(8_000, 8_000);
    let mut out = Out::default();
    push(
        &mut scheduler,
        vec![placed(0, vec![input(0, 2, 6_000), input(0, 2, 6_000)], 0)],
        &mut out,
    );
    scheduler.act(Time(0), &mut out);
    let fetch = out.fetches.pop().expect("it is fetched");
    scheduler.on_fetched(Time(0), fetch.object, fetch.number, Ok(()), &mut out);
    scheduler.act(Time(0), &mut out);
    let launch = out.launches.pop().expect("it runs");
    scheduler.on_finished(Time(0), launch.task, launch.attempt, Default::default(), &mut out);
    // The copy is idle. It could be evicted for a task, but not for one that reads it.
    push(&mut scheduler, vec![placed(1, vec![input(0, 2, 6_000)], 3_000)], &mut out);
    scheduler.act(Time(0), &mut out);
    assert!(out.launches.is_empty(), "it would write beyond the hard mark");
    push(&mut scheduler, vec![placed(2, vec![], 8_000)], &mut out);
    scheduler.act(Time(0) + STORE_FULL_TIMEOUT, &mut out);
    assert_eq!(out.launches.len(), 1, "it makes room for another");
    assert_eq!(scheduler.objects.stored_bytes(), 0);
}

#[test]
fn entries_that_are_out_of_date_are_taken_out_over_several_steps() {
    let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
    let mut out = Out::default();
    let many = 2 * STEP_POPS_MAX as u64;
    let tasks: Vec<_> = (0..many).map(|index| placed(index, vec![], 0)).collect();
    let attempts = tasks.iter().map(|task| wire::TaskAttempt {
        job: task.job,
        local: task.local,
        attempt: task.attempt,
    });
    let stale = Body::RevokeAttempts(wire::RevokeAttempts { tasks: attempts.collect() });
    push(&mut scheduler, tasks, &mut out);
    scheduler.on_message(Time(0), NodeId(1), stale, &mut out);
    scheduler.act(Time(0), &mut out);
    assert_eq!(scheduler.holder.local().len(), STEP_POPS_MAX);
    assert_eq!(scheduler.deadline(Time(0)), Some(Time(0)), "the rest is for the next step");
    (0..3).for_each(|_| scheduler.act(Time(0), &mut out));
    assert!(scheduler.holder.local().is_empty());
    assert_ne!(scheduler.deadline(Time(0)), Some(Time(0)));
}

#[test]
fn reports_about_objects_are_split() {
    let mut out = Out::default();
    let many = || vec![wire::Object::default(); OBJECTS_PER_MESSAGE_MAX + 1];
    let small = wire::Copies { added: vec![wire::Object::default()], removed: Vec::new() };
    out.copies.insert(NodeId(1), small);
    out.copies.insert(NodeId(2), wire::Copies { added: many(), removed: many() });
    out.locate
        .insert(NodeId(1), wire::Locate { objects: many(), copies_only: many(), held: many() });
    out.gather();
    let size = |body: &Body| match body {
        Body::Copies(copies) => copies.added.len() + copies.removed.len(),
        Body::Locate(locate) => locate.objects.len() + locate.copies_only.len() + locate.held.len(),
        _ => panic!("nothing else was to be told"),
    };
    let sizes: Vec<usize> = out.best_effort.iter().map(|(_, body)| size(body)).collect();
    let two = [OBJECTS_PER_MESSAGE_MAX, 1];
    assert_eq!(sizes, [&[1][..], &two, &two, &two, &two, &two].concat());
}

#[test]
fn a_wait_for_a_busy_source_does_not_block_other_fetches() {
    let mut scheduler = scheduler(Tuning::of(Policy::Eft));
    let mut out = Out::default();
    let (first, most) = (STAGING_MIN, SLOTS as usize * (STAGING_PER_SLOT + WAITING_PER_SLOT_MAX));
    let tasks = (0..100).map(|index| placed(index, vec![input(index, 2, 12_000_000)], 0));
    push(&mut scheduler, tasks.collect(), &mut out);
    // An idle node lets more tasks become ready before it fetches for long.
    let now = Time(0) + GATHER_MAX;
    scheduler.act(Time(0), &mut out);
    scheduler.act(now, &mut out);
    let asked = |out: &mut Out| std::mem::take(&mut out.locate)[&NodeId(1)].objects.clone();
    let answer = |scheduler: &mut Scheduler, object, later, out: &mut Out| {
        let nodes = if later { vec![] } else { vec![3] };
        let at = wire::ObjectAt { object: Some(object), nodes, later };
        let body = Body::Located(wire::Located { objects: vec![at] });
        scheduler.on_message(now, NodeId(1), body, out);
    };
    let wanted = asked(&mut out);
    assert_eq!(wanted.len(), first, "few at a time share the line");
    scheduler.act(now, &mut out);
    assert!(out.locate.is_empty(), "before an answer no more are asked for");
    for &object in &wanted {
        answer(&mut scheduler, object, true, &mut out);
    }
    scheduler.act(now, &mut out);
    assert_eq!(asked(&mut out).len(), most - first, "all of these wait: others may be free");
    assert!(out.fetches.is_empty());
    answer(&mut scheduler, wanted[0], false, &mut out);
    assert_eq!(out.fetches.len(), 1);
    assert_eq!(
        (out.fetches[0].from, scheduler.objects.fetches_without_source()),
        (NodeId(3), first - 1)
    );
    // An asker without further answers fetches from the maker in the end.
    out.fetches.clear();
    scheduler.act(now + LOCATE_TIMEOUT_MAX, &mut out);
    assert!(out.fetches.iter().all(|fetch| fetch.from == NodeId(2)));
    assert_eq!(scheduler.objects.fetches_without_source(), 0);
}

/// Puts this number of tasks without inputs into the shared queue.
fn share(scheduler: &mut Scheduler, tasks: u64) {
    for task in 0..tasks {
        let task = TaskId::new(1, task);
        scheduler.holder.enqueue(
            false,
            crate::holder::queues::ready_queue::Ready {
                task,
                attempt: Attempt(1),
                rank: 0,
                priority: 0,
                class: 0,
            },
            &[],
        );
    }
}

/// The number of tasks that a node offers to a thief.
fn told(victim: &mut Scheduler, ahead: bool) -> u32 {
    let mut out = Out::default();
    let probe = Body::StealProbe(wire::StealProbe { probe: 1, ahead, free: Vec::new() });
    victim.on_message(Time(0), NodeId(2), probe, &mut out);
    let (_, load) = out.best_effort.pop().expect("an answer");
    let Body::StealLoad(load) = load else { panic!("{load:?}") };
    load.shared
}

/// Tasks that it is about to start itself, it offers only to thieves with a free slot. The task for
/// its own free slot it offers to none.
#[test]
fn a_thief_hears_what_it_may_have() {
    for (tasks, spare) in [(1, 0), (2, 0), (3, 1), (4, 2)] {
        let mut victim = scheduler(Tuning::of(Policy::Mlb));
        share(&mut victim, tasks);
        assert_eq!(told(&mut victim, false), tasks as u32 - 1, "its slot is free");
        victim.holder.slots_mut().take_cpus(1);
        assert_eq!((told(&mut victim, false), told(&mut victim, true)), (tasks as u32, spare));
    }
}

#[test]
fn a_thief_that_has_tasks_gets_what_makes_both_alike() {
    let mut victim = scheduler(Tuning::of(Policy::Mlb));
    share(&mut victim, 9);
    victim.holder.slots_mut().take_cpus(1);
    let wanted = |held| {
        let request =
            wire::StealRequest { steal: 1, slots: 1, free: 1, held, free_amounts: Vec::new() };
        victim.wanted_by(&request)
    };
    assert_eq!([0, 1, 2, 5, 8, 9, 100].map(wanted), [5, 4, 3, 2, 0, 0, 0]);
}

/// Tasks of four slots on a node of eight: two run at once, and two more are about to.
#[test]
fn wide_tasks_count_by_the_slots_that_they_take() {
    let mut victim = scheduler(Tuning::of(Policy::Mlb));
    *victim.holder.slots_mut() = crate::holder::slots::Slots::new(8, None, None);
    share(&mut victim, 9);
    assert_eq!(told(&mut victim, false), 1, "all but one for each slot");
    victim.policy.note_placed(0, 4);
    assert_eq!((told(&mut victim, false), told(&mut victim, true)), (7, 5));
    victim.holder.slots_mut().take_cpus(3);
    assert_eq!(victim.free_lanes(), 2, "narrower ones may come");
}

#[test]
fn all_may_be_stolen_where_tasks_take_longer_than_their_inputs() {
    let surplus = |length| {
        let mut victim = scheduler(Tuning::of(Policy::Eft));
        victim.policy.note_placed(1 << 20, 1);
        victim.policy.note_length("", length);
        for task in 0..3 {
            let task = TaskId::new(1, task);
            victim.holder.enqueue(
                true,
                crate::holder::queues::ready_queue::Ready {
                    task,
                    attempt: Attempt(1),
                    rank: 0,
                    priority: 0,
                    class: 0,
                },
                &[],
            );
        }
        victim.surplus()
    };
    assert_eq!((surplus(Span::from_millis(5)), surplus(Span::from_secs(1))), (0, 3));
}

/// An idle node with a stalled fetch, and a task queued behind it, does not gather without end. It
/// leaves that task to other nodes.
#[test]
fn what_is_queued_behind_a_stalled_fetch_makes_no_haste() {
    let mut node = scheduler(Tuning::of(Policy::Mlb));
    let mut out = Out::default();
    let reader = |index| placed(index, vec![input(0, 2, 50_000_000)], 0);
    push(&mut node, vec![reader(0)], &mut out);
    node.act(Time(0), &mut out);
    node.home.ledger.pretend_waiting(10);
    let asked = out.locate.remove(&NodeId(1)).map(|asked| asked.objects[0]);
    if let Some(object) = asked {
        let at = wire::ObjectAt { object: Some(object), nodes: vec![2], later: false };
        let located = Body::Located(wire::Located { objects: vec![at] });
        node.on_message(Time(0), NodeId(1), located, &mut out);
    }
    let fetch = out.fetches.pop().expect("it is fetched");
    node.on_fetched(Time(0), fetch.object, fetch.number, Err(unreachable()), &mut out);
    let task = TaskId::new(1, 7);
    let missing = [(fetch.object, crate::holder::queues::ready_queue::Presence::Coming)];
    node.holder.enqueue(
        false,
        crate::holder::queues::ready_queue::Ready {
            task,
            attempt: Attempt(1),
            rank: 0,
            priority: 0,
            class: 0,
        },
        &missing,
    );
    node.act(Time(0), &mut out);
    let until = node.holder.gathers_until().expect("it gathers");
    node.act(until, &mut out);
    assert_eq!((node.underway(), node.holder.shared().len()), (0, 1), "it goes nowhere");
    let due = [node.objects.deadline(Time(0)), node.holder.deadline(Time(0))];
    assert!(due.into_iter().flatten().all(|due| due > until), "{due:?}");
    assert_eq!(told(&mut node, false), 1);
}

/// A fetch that began before its task was ready is no fetch that a task waits for.
#[test]
fn an_early_fetch_that_waits_for_a_source_is_counted_once() {
    let mut scheduler = scheduler(Tuning::of(Policy::Eft));
    let mut out = Out::default();
    let asked = wire::Object { job: 1, task: 7, attempt: 1, output: 0, size_bytes: 12_000_000 };
    let object = crate::objects::data::object_id(&asked);
    let settings = wire::JobSettings { real_data: true, ..Default::default() }.into();
    let (maker, size_bytes, readers) = (NodeId(2), asked.size_bytes, 9);
    let taken = None;
    let request = FetchRequest { object, maker, size_bytes, readers, settings: &settings, taken };
    scheduler.start_inflight_fetch(Time(0), &request, None, &mut out);
    let counts = |scheduler: &Scheduler| {
        (scheduler.objects.fetches_without_source(), scheduler.objects.sourced_fetches())
    };
    for (later, nodes) in [(true, vec![]), (true, vec![]), (false, vec![3])] {
        let at = wire::ObjectAt { object: Some(asked), nodes, later };
        let located = wire::Located { objects: vec![at] };
        scheduler.on_message(Time(0), NodeId(1), Body::Located(located), &mut out);
        assert_eq!(counts(&scheduler), (0, 0));
    }
    scheduler.end_inflight_fetch(&object);
    assert_eq!(counts(&scheduler), (0, 0));
}

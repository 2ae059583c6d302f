//! The answers that end the wait of a held-back end, and the requests for recalled inputs.

use std::collections::BTreeMap;

use proto::wire::message::Body;
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::home::ledger::{End, State};
use crate::output::Out;
use crate::tests::staging_tests::scheduler;
use crate::tests::test_nodes;
use crate::{LedgerRecord, Policy, Scheduler, Tuning};

const OWN: PartitionId = PartitionId(3);
const READERS: PartitionId = PartitionId(4);

fn task() -> TaskId {
    TaskId { job: JobId(1), local: LocalId::new(OWN, 0) }
}

/// The second attempt of a task waits for the job's home, then for readers of both partitions.
fn waiting() -> Scheduler {
    let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
    let attempt = Attempt(2);
    let recall = |partition: PartitionId| wire::Recall {
        child: vec![LocalId::new(partition, 1).0],
        slot: vec![0],
        job: task().job.0,
        parent: task().local.0,
        attempt: attempt.0,
        partition: partition.0,
    };
    let later: BTreeMap<_, _> = [OWN, READERS].map(|place| (place, recall(place))).into();
    let completion = wire::Completion {
        job: task().job.0,
        local: task().local.0,
        attempt: attempt.0,
        ..wire::Completion::default()
    };
    scheduler.home.ledger.pretend_held_end(completion, later);
    scheduler
}

/// Answers, and returns the partitions with readers that have not answered.
fn answer(scheduler: &mut Scheduler, partition: PartitionId, readers: bool) -> Vec<PartitionId> {
    let answer = wire::Recalled {
        job: task().job.0,
        parent: task().local.0,
        attempt: 2,
        partition: partition.0,
        used: false,
        counted: true,
        readers,
    };
    scheduler.on_recalled(Time(0), answer, &mut Out::default());
    scheduler.home.ledger.unanswered_recalls(task()).unwrap_or_default()
}

#[test]
fn a_repeated_answer_of_the_jobs_home_is_no_answer_of_readers() {
    let mut scheduler = waiting();
    assert_eq!(answer(&mut scheduler, OWN, false), [OWN, READERS]);
    assert_eq!(answer(&mut scheduler, OWN, false), [OWN, READERS], "it is the first once more");
    assert_eq!(answer(&mut scheduler, READERS, true), [OWN]);
    assert_eq!(answer(&mut scheduler, OWN, false), [OWN]);
    assert!(answer(&mut scheduler, OWN, true).is_empty());
    assert!(scheduler.home.ledger.unanswered_recalls(task()).is_none());
}

#[test]
fn an_answer_of_readers_does_not_stand_for_the_jobs_home() {
    let mut scheduler = waiting();
    assert_eq!(answer(&mut scheduler, OWN, true), [OWN], "of an earlier recall");
    assert_eq!(answer(&mut scheduler, OWN, false), [OWN, READERS]);
}

const FIRST: Attempt = Attempt(1 << 32 | 1);
const SECOND: Attempt = Attempt(1 << 32 | 2);
/// The home of the parent now, and before.
const PARENTS: [NodeId; 2] = [NodeId(2), NodeId(1)];

fn child() -> TaskId {
    TaskId { job: JobId(1), local: LocalId::new(PartitionId(1), 0) }
}
fn parent() -> TaskId {
    TaskId { job: JobId(1), local: LocalId::new(PartitionId(0), 0) }
}

/// A task with one output of ten bytes, which the child reads.
fn chunk(task: TaskId) -> wire::Chunk {
    let outputs = vec![wire::Output::default()];
    let body = Some(wire::spec::Body::Sleep(wire::Sleep::default()));
    let slots = u32::from(task == child());
    let parents = wire::Parents { parent: vec![parent().local.0], ..Default::default() };
    let children =
        wire::Children { index: 0, child: vec![child().local.0], slot: vec![0], output: vec![1] };
    wire::Chunk {
        job: task.job.0,
        partition: task.partition().0,
        specs: vec![wire::Spec { body, outputs, ..Default::default() }],
        tasks: vec![wire::Task { slots, ..Default::default() }],
        parents: if task == child() { vec![parents] } else { Vec::new() },
        children: if task == child() { Vec::new() } else { vec![children] },
        ..Default::default()
    }
}

fn credit(attempt: Attempt) -> wire::Credit {
    wire::Credit {
        job: 1,
        parent: parent().local.0,
        attempt: attempt.0,
        node: 2,
        output_sizes: vec![10],
        consumers: vec![1],
        child: vec![child().local.0],
        slot: vec![0],
        output: vec![1],
        ..Default::default()
    }
}

/// Node 0 as home of the task, with these records of it; the other task is homed on node 2.
fn home_of(task: TaskId, records: Vec<LedgerRecord>, out: &mut Out) -> Scheduler {
    let members = (0..3).map(test_nodes::member).collect();
    let homes = if task == child() { [2, 0] } else { [0, 2] };
    let homes = test_nodes::homes(0, members, &homes).moving();
    let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let visible = wire::VisibleRecord { chunks: 1, ..Default::default() };
    let first = [LedgerRecord::Chunk(chunk(task)), LedgerRecord::Visible(visible)];
    for record in first.into_iter().chain(records) {
        home.adopt(Time(0), task.partition(), task.job, record).expect("records fit one another");
    }
    home.serve(Time(0), task.partition(), 2, out);
    home.settle(Time(0), out);
    home
}

/// The requests for recalled inputs, by the node to which they are sent.
fn requests(out: &mut Out) -> Vec<(NodeId, u64, u64)> {
    let mut requests = Vec::new();
    for (to, body) in std::mem::take(&mut out.reliable) {
        let Body::CreditQuery(query) = body else { continue };
        let recalled = query.requests.iter().filter(|ask| ask.recalled);
        requests.extend(recalled.map(|ask| (to, ask.parent, ask.child)));
    }
    requests
}

/// The parent's home has moved: the next home knows only the first end and has sent its credit. The
/// recall of the earlier home arrives after that, and the end for which it was sent never counts.
#[test]
fn an_input_that_an_earlier_home_recalls_is_requested_from_the_present_home() {
    let mut out = Out::default();
    let mut home = home_of(child(), Vec::new(), &mut out);
    let credits =
        || Body::Credits(wire::Credits { credits: vec![credit(FIRST)], reconciled: false });
    home.on_message(Time(1), PARENTS[0], credits(), &mut out);
    home.settle(Time(1), &mut out);
    assert_eq!(home.home.ledger.state(child()), Some(State::Ready));
    assert_eq!(requests(&mut out), []);
    let recall = wire::Recall {
        child: vec![child().local.0],
        slot: vec![0],
        job: parent().job.0,
        parent: parent().local.0,
        attempt: SECOND.0,
        partition: child().partition().0,
    };
    home.on_message(Time(2), PARENTS[1], Body::Recall(recall), &mut out);
    home.settle(Time(2), &mut out);
    assert_eq!(home.home.ledger.state(child()), Some(State::Waiting));
    assert_eq!(requests(&mut out), [(PARENTS[0], parent().local.0, child().local.0)]);
    home.on_message(Time(3), PARENTS[0], credits(), &mut out);
    home.settle(Time(3), &mut out);
    assert_eq!(home.home.ledger.state(child()), Some(State::Ready));
}

/// The child's home failed after the recall, perhaps before it sent the request.
#[test]
fn the_next_home_of_the_child_requests_a_recalled_input_again() {
    let stored = |credit| wire::Credit { child: vec![child().local.index()], ..credit };
    let [first, second] = [FIRST, SECOND].map(|attempt| stored(credit(attempt)));
    let recalled = wire::Credit { recalled: vec![0], ..second.clone() };
    let record =
        |credits| LedgerRecord::Credit(wire::CreditRecord { credits, ..Default::default() });
    let requested = |credits| {
        let mut out = Out::default();
        home_of(child(), vec![record(credits)], &mut out);
        requests(&mut out)
    };
    let request = (PARENTS[0], parent().local.0, child().local.0);
    assert_eq!(requested(vec![first.clone(), recalled.clone()]), [request]);
    assert_eq!(requested(vec![first, recalled, second]), []);
}

/// Its credits may still be unacknowledged, and the child has lost one by the recall.
#[test]
fn a_done_parent_answers_a_request_for_a_recalled_input() {
    let end = wire::EndRecord {
        index: vec![0],
        attempt: vec![FIRST.0],
        verdict: vec![wire::Verdict::Done as u32],
        node: vec![0],
        ..Default::default()
    };
    let ask = wire::CreditRequest {
        job: 1,
        parent: parent().local.0,
        child: child().local.0,
        recalled: true,
        ..Default::default()
    };
    let answers = |records| {
        let mut out = Out::default();
        let mut home = home_of(parent(), records, &mut out);
        out.reliable.clear();
        let query = wire::CreditQuery { requests: vec![ask] };
        home.on_message(Time(1), NodeId(1), Body::CreditQuery(query), &mut out);
        let credits = out.reliable.into_iter().filter_map(|(to, body)| match body {
            Body::Credits(credits) => Some((to, credits.reconciled, credits.credits[0].attempt)),
            _ => None,
        });
        credits.collect::<Vec<_>>()
    };
    assert_eq!(answers(vec![LedgerRecord::End(end)]), [(NodeId(1), false, FIRST.0)]);
    assert_eq!(answers(Vec::new()), [], "its credit is sent when it ends");
}

/// The parent was done by the first attempt, and its output is lost: it runs again.
fn running_again(out: &mut Out) -> (Scheduler, Attempt) {
    let detail = wire::EndDetail {
        index: 0,
        output_sizes: vec![10],
        output_sums: vec![1],
        ..Default::default()
    };
    let end = wire::EndRecord {
        index: vec![0],
        attempt: vec![FIRST.0],
        verdict: vec![wire::Verdict::Done as u32],
        node: vec![0],
        details: vec![detail],
        ..Default::default()
    };
    let mut home = home_of(parent(), vec![LedgerRecord::End(end)], out);
    let ask = wire::CreditRequest {
        job: 1,
        parent: parent().local.0,
        child: child().local.0,
        lost_attempt: FIRST.0,
        ..Default::default()
    };
    let query = Body::CreditQuery(wire::CreditQuery { requests: vec![ask] });
    home.on_message(Time(1), PARENTS[0], query, out);
    home.settle(Time(1), out);
    let cell = home.home.ledger.cell(parent()).expect("it is in memory");
    assert_eq!(cell.state(), State::Ready, "it runs again");
    let attempt = cell.attempt();
    *out = Out::default();
    (home, attempt)
}

fn ends_again(home: &mut Scheduler, completion: wire::Completion, out: &mut Out) {
    let (job, local) = (parent().job.0, parent().local.0);
    let mut completion = wire::Completion { job, local, ..completion };
    home.complete(Time(2), NodeId(0), &mut completion, out);
    home.settle(Time(2), out);
}

fn refusals(out: &Out) -> Vec<(NodeId, u64, String)> {
    let credits = out.reliable.iter().filter_map(|(to, body)| match body {
        Body::Credits(credits) => Some((*to, &credits.credits[0])),
        _ => None,
    });
    let refusing = credits.filter(|(_, credit)| credit.refuses);
    refusing.map(|(to, credit)| (to, credit.attempt, credit.error.clone())).collect()
}

/// A client has fetched results, and the second attempt made other bytes.
#[test]
fn a_task_with_used_results_stays_done_and_only_its_waiting_readers_fail() {
    let mut out = Out::default();
    let (mut home, attempt) = running_again(&mut out);
    let completion = wire::Completion {
        attempt: attempt.0,
        output_sizes: vec![10],
        output_sums: vec![2],
        ..Default::default()
    };
    ends_again(&mut home, completion, &mut out);
    assert_eq!(home.home.ledger.state(parent()), Some(State::Ready), "its end is held back");
    let answer = wire::Recalled {
        job: 1,
        parent: parent().local.0,
        attempt: attempt.0,
        partition: parent().partition().0,
        used: true,
        counted: true,
        readers: false,
    };
    home.on_recalled(Time(3), answer, &mut out);
    home.settle(Time(3), &mut out);
    assert_eq!(home.home.ledger.state(parent()), Some(State::Ended(End::Done)));
    assert_eq!(home.home.ledger.cell(parent()).expect("in memory").attempt(), FIRST);
    assert!(out.facts.ends.is_empty(), "the log has its end");
    let refusals = refusals(&out);
    assert_eq!(refusals.len(), 1);
    assert_eq!((refusals[0].0, refusals[0].1), (PARENTS[0], FIRST.0));
    assert!(refusals[0].2.contains("is not deterministic"), "{refusals:?}");
}

#[test]
fn a_done_task_stays_done_if_its_further_run_fails_or_is_cancelled() {
    let mut out = Out::default();
    let (mut home, attempt) = running_again(&mut out);
    let failed = wire::Completion {
        attempt: attempt.0,
        verdict: wire::Verdict::Failed as i32,
        exit_code: 7,
        ..Default::default()
    };
    ends_again(&mut home, failed, &mut out);
    assert_eq!(home.home.ledger.state(parent()), Some(State::Ended(End::Done)));
    assert!(refusals(&out)[0].2.ends_with("and failed: exit code 7"), "{:?}", refusals(&out));

    let mut out = Out::default();
    let (mut home, _) = running_again(&mut out);
    let cancel = wire::Cancel { job: 1, locals: vec![parent().local.0], ..Default::default() };
    let answer = home.on_cancel(Time(2), &cancel, &mut out);
    home.settle(Time(2), &mut out);
    assert_eq!((answer.ended, answer.cancelled), (1, 0));
    assert_eq!(home.home.ledger.state(parent()), Some(State::Ended(End::Done)));
    assert_eq!(refusals(&out).len(), 1, "its waiting reader is cancelled");
}

/// The end of an earlier attempt of the parent counts again.
fn refusal() -> Body {
    let credit = wire::Credit {
        verdict: wire::Verdict::Failed as i32,
        refuses: true,
        error: "other bytes".to_owned(),
        ..credit(FIRST)
    };
    Body::Credits(wire::Credits { credits: vec![credit], reconciled: false })
}

/// An attempt of the child ends without the output of the parent's first attempt.
fn loses_its_input(home: &mut Scheduler, now: Time, out: &mut Out) {
    let attempt = home.home.ledger.cell(child()).expect("in memory").attempt();
    let lost = wire::Object {
        job: 1,
        task: parent().local.0,
        attempt: FIRST.0,
        output: 0,
        size_bytes: 10,
    };
    let mut completion = wire::Completion {
        job: 1,
        local: child().local.0,
        attempt: attempt.0,
        verdict: wire::Verdict::Failed as i32,
        lost_inputs: vec![lost],
        ..Default::default()
    };
    home.complete(now, NodeId(0), &mut completion, out);
    home.settle(now, out);
    assert_eq!(home.home.ledger.state(child()), Some(State::Waiting), "it waits for the output");
}

/// One reader has lost the output, and one has not received it yet.
#[test]
fn only_readers_that_lack_the_output_fail() {
    let mut out = Out::default();
    let mut home = home_of(child(), Vec::new(), &mut out);
    home.on_message(Time(1), PARENTS[0], refusal(), &mut out);
    home.settle(Time(1), &mut out);
    assert_eq!(home.home.ledger.state(child()), Some(State::Ready), "the output exists");

    home.on_message(Time(2), PARENTS[0], refusal(), &mut out);
    home.settle(Time(2), &mut out);
    assert_eq!(home.home.ledger.state(child()), Some(State::Ready), "it has the input");

    loses_its_input(&mut home, Time(3), &mut out);
    home.on_message(Time(4), PARENTS[0], refusal(), &mut out);
    home.settle(Time(4), &mut out);
    assert_eq!(home.home.ledger.state(child()), Some(State::Ended(End::Failed)));
    let record = out.facts.ends.values().next().expect("its end is written");
    assert_eq!(record.details[0].error, "other bytes");
}

/// The parent runs again for a lost output, makes other bytes, and recalls the lost input first.
#[test]
fn a_reader_that_has_lost_the_output_knows_it_after_a_recall() {
    let credits = |attempt| {
        Body::Credits(wire::Credits { credits: vec![credit(attempt)], reconciled: false })
    };
    let recalled = |out: &mut Out| {
        let mut home = home_of(child(), Vec::new(), out);
        home.on_message(Time(1), PARENTS[0], credits(FIRST), out);
        home.settle(Time(1), out);
        loses_its_input(&mut home, Time(2), out);
        let recall = wire::Recall {
            job: 1,
            parent: parent().local.0,
            attempt: SECOND.0,
            partition: child().partition().0,
            child: vec![child().local.0],
            slot: vec![0],
        };
        home.on_message(Time(3), PARENTS[0], Body::Recall(recall), out);
        home.settle(Time(3), out);
        assert_eq!(home.home.ledger.state(child()), Some(State::Waiting));
        assert!(!out.facts.credits.is_empty(), "a later home knows of the recall");
        home
    };
    let state_after = |home: &mut Scheduler, body: Body, out: &mut Out| {
        home.on_message(Time(4), PARENTS[0], body, out);
        home.settle(Time(4), out);
        home.home.ledger.state(child())
    };
    let mut out = Out::default();
    let mut home = recalled(&mut out);
    let refused = state_after(&mut home, refusal(), &mut out);
    assert_eq!(refused, Some(State::Ended(End::Failed)), "the lost output counts again");
    let mut out = Out::default();
    let mut home = recalled(&mut out);
    let repeated = state_after(&mut home, credits(FIRST), &mut out);
    assert_eq!(repeated, Some(State::Waiting), "it is lost all the same");
    assert_eq!(state_after(&mut home, credits(SECOND), &mut out), Some(State::Ready));
}

//! An ended job is retried: the requests of its home, and messages of earlier rounds that have no
//! effect.

use proto::wire::message::Body;
use proto::wire::{JobPhase, response};
use proto::{Attempt, ClientId, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::home::ledger::{End, Job, State};
use crate::output::Out;
use crate::tests::test_nodes;
use crate::{LedgerRecord, Policy, Request, Scheduler, Tuning};

const MINE: PartitionId = PartitionId(0);
const THEIRS: PartitionId = PartitionId(1);

fn parent() -> u64 {
    LocalId::new(THEIRS, 0).0
}

/// Two tasks here that wait for one on node 1.
fn task(index: u64) -> TaskId {
    TaskId { job: JobId(1), local: LocalId::new(MINE, index) }
}

fn chunk() -> wire::Chunk {
    let body = Some(wire::spec::Body::Command(wire::Command::default()));
    let task = wire::Task { slots: 1, ..Default::default() };
    let parents = |index| wire::Parents { index, parent: vec![parent()], ..Default::default() };
    wire::Chunk {
        job: 1,
        specs: vec![wire::Spec { body, ..Default::default() }],
        tasks: vec![task; 2],
        parents: vec![parents(0), parents(1)],
        ..Default::default()
    }
}

fn settings(round: u32) -> wire::JobSettings {
    wire::JobSettings { round, ..Default::default() }
}

fn visible_record(round: u32, ended: bool) -> LedgerRecord {
    let settings = Some(settings(round));
    LedgerRecord::Visible(wire::VisibleRecord {
        settings,
        chunks: 1,
        ended,
        kept: ended,
        ..Default::default()
    })
}

fn ends(reopened: &[u64], ends: &[(u64, u64, wire::Verdict)]) -> LedgerRecord {
    LedgerRecord::End(wire::EndRecord {
        index: ends.iter().map(|it| it.0).collect(),
        attempt: ends.iter().map(|it| it.1).collect(),
        verdict: ends.iter().map(|it| it.2 as u32).collect(),
        node: vec![0; ends.len()],
        reopened: reopened.to_vec(),
        ..Default::default()
    })
}

/// A home with these records, in this order after the chunk.
fn home_of(records: Vec<LedgerRecord>) -> (Scheduler, Out) {
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    for record in [LedgerRecord::Chunk(chunk())].into_iter().chain(records) {
        home.load(Time(1), MINE, JobId(1), record).expect("records fit one another");
    }
    let mut out = Out::default();
    home.resume(Time(1), &mut out);
    (home, out)
}

/// Task 0 has failed by attempt 7, task 1 was skipped; the job has ended.
fn ended() -> (Scheduler, Out) {
    let failed = (0, 7, wire::Verdict::Failed);
    let skipped = (1, 0, wire::Verdict::Skipped);
    home_of(vec![visible_record(0, true), ends(&[], &[failed, skipped])])
}

#[test]
fn parents_are_listed_for_those_that_ask() {
    let (home, _) = ended();
    let query = wire::TasksQuery { job: 1, from_start: true, ..Default::default() };
    let list = |query| home.home.ledger.list(&query).tasks.into_iter().map(|it| it.parents);
    assert!(list(query).all(|parents| parents.is_empty()));
    let asked = list(wire::TasksQuery { parents: true, ..query });
    assert_eq!(asked.collect::<Vec<_>>(), [[parent()], [parent()]]);
}

fn tell_round(home: &mut Scheduler, round: u32, retried: Vec<u64>, out: &mut Out) {
    let total = wire::PartitionTotal { partition: MINE.0, chunks: 1, tasks: 2 };
    let settings = Some(settings(round));
    let commit =
        wire::JobCommit { job: 1, partitions: vec![total], settings, ..Default::default() };
    let visible = wire::Visible { commit: Some(commit), retried };
    home.on_message(Time(2), NodeId(1), Body::Visible(visible), out);
}

fn credit(verdict: wire::Verdict, round: u32) -> Body {
    let credit = wire::Credit {
        job: 1,
        parent: parent(),
        attempt: 3,
        node: 1,
        verdict: verdict as i32,
        child: vec![task(0).local.0, task(1).local.0],
        slot: vec![0, 0],
        output: vec![0, 0],
        round,
        ..Default::default()
    };
    Body::Credits(wire::Credits { credits: vec![credit], reconciled: false })
}

fn asks(out: &Out) -> Vec<(u64, u32)> {
    let asks = out.reliable.iter().filter_map(|(_, body)| match body {
        Body::CreditQuery(query) => Some(&query.requests),
        _ => None,
    });
    asks.flatten().map(|ask| (ask.child, ask.round)).collect()
}

#[test]
fn a_skip_of_the_round_before_is_late() {
    let (mut home, mut out) = ended();
    tell_round(&mut home, 1, Vec::new(), &mut out);
    assert_eq!(asks(&out), [(task(0).local.0, 1), (task(1).local.0, 1)]);
    home.on_message(Time(3), NodeId(1), credit(wire::Verdict::Failed, 0), &mut out);
    assert_eq!(home.home.ledger.state(task(0)), Some(State::Waiting));
    home.on_message(Time(3), NodeId(1), credit(wire::Verdict::Done, 0), &mut out);
    home.settle(Time(3), &mut out);
    assert_eq!(home.home.ledger.state(task(0)), Some(State::Ready), "done is done in each round");
    // A failure in this round counts.
    let (mut home, mut out) = ended();
    tell_round(&mut home, 1, Vec::new(), &mut out);
    home.on_message(Time(3), NodeId(1), credit(wire::Verdict::Failed, 1), &mut out);
    assert_eq!(home.home.ledger.state(task(0)), Some(State::Ended(End::Skipped)));
}

/// The parent was done, its output was lost, and it failed when it ran again. Its children wait for
/// it in the next round, whether they had ended before it failed or not.
#[test]
fn a_parent_that_was_done_and_failed_is_awaited_again() {
    let (mut home, mut out) = home_of(vec![visible_record(0, false)]);
    home.on_message(Time(2), NodeId(1), credit(wire::Verdict::Done, 0), &mut out);
    home.settle(Time(2), &mut out);
    let cancelled = vec![task(0).local.0];
    let cancel = wire::Cancel { job: 1, locals: cancelled, ..Default::default() };
    home.on_message(Time(2), NodeId(1), Body::Cancel(cancel), &mut out);
    assert_eq!(home.home.ledger.state(task(0)), Some(State::Ended(End::Cancelled)));
    assert_eq!(home.home.ledger.state(task(1)), Some(State::Ready));
    home.on_message(Time(2), NodeId(1), credit(wire::Verdict::Failed, 0), &mut out);
    assert_eq!(home.home.ledger.state(task(1)), Some(State::Ended(End::Skipped)));

    let end = wire::JobEnd { job: 1, kept: true, ..Default::default() };
    home.on_message(Time(2), NodeId(1), Body::JobEnd(end), &mut out);
    let mut out = Out::default();
    tell_round(&mut home, 1, Vec::new(), &mut out);
    assert_eq!(asks(&out), [(task(0).local.0, 1), (task(1).local.0, 1)]);
    home.settle(Time(3), &mut out);
    for index in 0..2 {
        assert_eq!(home.home.ledger.state(task(index)), Some(State::Waiting), "{index}");
    }
    home.on_message(Time(3), NodeId(1), credit(wire::Verdict::Done, 1), &mut out);
    home.settle(Time(3), &mut out);
    assert_eq!(home.home.ledger.state(task(1)), Some(State::Ready));
}

#[test]
fn a_restarted_home_continues_the_round() {
    let failed = (0, 7, wire::Verdict::Failed);
    let skipped = (1, 0, wire::Verdict::Skipped);
    let held = |attempt| {
        LedgerRecord::Holder(wire::HolderRecord {
            index: vec![0],
            attempt: vec![attempt],
            node: vec![1],
            incarnation: vec![1],
            ..Default::default()
        })
    };
    let died = |attempt| {
        LedgerRecord::Start(wire::StartRecord {
            index: vec![0],
            attempt: vec![attempt],
            node: vec![1],
            incarnation: vec![1],
            fact: vec![wire::StartFact::DiedRunning as i32],
        })
    };
    let round = || vec![visible_record(1, false), ends(&[], &[failed, skipped])];
    let mut records = round();
    records.extend([ends(&[0, 1], &[]), held(7), died(7)]);
    let (home, out) = home_of(records);
    let cell = home.home.ledger.cell(task(0)).expect("it is homed here");
    assert_eq!((cell.state(), cell.attempt()), (State::Waiting, Attempt(7)));
    assert_eq!(home.home.ledger.crash_count(task(0)), 0);
    assert_eq!(asks(&out).len(), 2, "what it asked may be lost");
    assert_eq!(home.home.ledger.job(JobId(1)).map(Job::open_tasks), Some(2));
    // A recorded later attempt counts.
    let mut records = round();
    records.extend([ends(&[0, 1], &[(1, 0, wire::Verdict::Skipped)]), held(8), died(8)]);
    let (home, _) = home_of(records);
    let cell = home.home.ledger.cell(task(0)).expect("it is homed here");
    assert_eq!((cell.state(), cell.attempt()), (State::Ready, Attempt(8)));
    assert_eq!(home.home.ledger.crash_count(task(0)), 1);
    assert_eq!(home.home.ledger.state(task(1)), Some(State::Ended(End::Skipped)));
}

#[test]
fn only_what_is_named_runs_again() {
    let (mut home, mut out) = ended();
    tell_round(&mut home, 1, vec![task(0).local.0], &mut out);
    assert_eq!(asks(&out), [(task(0).local.0, 1)]);
    assert_eq!(home.home.ledger.state(task(1)), Some(State::Ended(End::Skipped)));
    let record = out.facts.ends.values().next().expect("it is written");
    assert_eq!(record.reopened, [0]);
    // A repeated commit changes nothing.
    let mut out = Out::default();
    tell_round(&mut home, 1, Vec::new(), &mut out);
    assert!(asks(&out).is_empty() && out.facts.is_empty());
}

#[test]
fn orders_of_an_earlier_round_are_not_obeyed() {
    let (mut home, mut out) = ended();
    tell_round(&mut home, 1, Vec::new(), &mut out);
    let end = |round| Body::JobEnd(wire::JobEnd { job: 1, round, ..Default::default() });
    home.on_message(Time(3), NodeId(1), end(0), &mut out);
    assert_eq!(home.has_ended(JobId(1)), Some(false));
    let cancel = |round| Body::Cancel(wire::Cancel { job: 1, round, ..Default::default() });
    home.on_message(Time(3), NodeId(1), cancel(0), &mut out);
    assert!(!home.home.ledger.is_removed(JobId(1)));
    home.on_message(Time(3), NodeId(1), cancel(1), &mut out);
    assert!(home.home.ledger.is_removed(JobId(1)));
    home.on_message(Time(3), NodeId(1), end(1), &mut out);
    assert_eq!(home.has_ended(JobId(1)), Some(true));
}

#[test]
fn what_is_kept_goes_when_its_job_says_so() {
    let (mut home, mut out) = ended();
    assert_eq!(home.is_over(JobId(1)), Some(false), "it may be retried");
    let end = |kept| Body::JobEnd(wire::JobEnd { job: 1, kept, ..Default::default() });
    home.on_message(Time(3), NodeId(1), end(true), &mut out);
    assert!(out.facts.is_empty() && home.is_over(JobId(1)) == Some(false));
    home.on_message(Time(3), NodeId(1), end(false), &mut out);
    assert_eq!(home.is_over(JobId(1)), Some(true));
    assert!(out.facts.visible.values().all(|record| record.ended && !record.kept));
    assert_eq!(out.facts.visible.len(), 1);
}

/// A child in round 1 asks for a parent that has failed in round 0.
#[test]
fn a_question_of_a_later_round_waits_for_it() {
    let (mut home, mut out) = ended();
    let child = LocalId::new(THEIRS, 9).0;
    let parent = task(0).local.0;
    let ask = |round| {
        let ask = wire::CreditRequest {
            job: 1,
            parent,
            child,
            runs_again: true,
            round,
            ..Default::default()
        };
        Body::CreditQuery(wire::CreditQuery { requests: vec![ask] })
    };
    let said = |out: &Out| {
        let credits = out.reliable.iter().filter_map(|(_, body)| match body {
            Body::Credits(credits) => Some(credits.credits[0].round),
            _ => None,
        });
        credits.collect::<Vec<_>>()
    };
    home.on_message(Time(2), NodeId(1), ask(1), &mut out);
    assert!(said(&out).is_empty());
    // The parent does not run again: the child gets its failure.
    tell_round(&mut home, 1, vec![task(1).local.0], &mut out);
    assert_eq!(said(&out), [1]);
}

/// The answer of a job's home to a retry.
fn retry(home: &mut Scheduler, round: u32, out: &mut Out) -> Result<wire::JobState, String> {
    let retry = wire::JobRetry { job: 1, round, ..Default::default() };
    home.on_request(Time(9), ClientId(1), 1, Request::Retry(retry), out);
    let response = out.answers.pop().expect("it answers at once").response;
    match (response.body, response.error) {
        (Some(response::Body::Job(state)), None) => Ok(state),
        (_, error) => Err(error.unwrap_or_default().text),
    }
}

#[test]
fn a_job_is_retried_once_for_each_round_and_only_when_it_has_ended() {
    let (mut home, mut out) = ended();
    let total = wire::PartitionTotal { partition: MINE.0, chunks: 1, tasks: 2 };
    let sum = wire::PartitionCount { failed: 1, skipped: 1, ..Default::default() };
    let state = wire::JobState {
        job: 1,
        total: 2,
        phase: JobPhase::Finished as i32,
        sum: Some(sum.clone()),
        ended_ns: 5,
        partitions: vec![total],
        ..Default::default()
    };
    home.load_job(state);
    assert!(retry(&mut home, 2, &mut out).unwrap_err().contains("in round 0"));
    let state = retry(&mut home, 1, &mut out).expect("it has ended");
    assert_eq!((state.ended_ns, state.phase()), (0, JobPhase::Running));
    assert_eq!(out.facts.jobs.len(), 1, "the answer waits for this");
    out.facts.jobs.clear();
    retry(&mut home, 1, &mut out).expect("it is repeated");
    assert!(out.facts.jobs.is_empty());
    let other = wire::JobRetry { job: 1, round: 1, locals: vec![1], ..Default::default() };
    let refused =
        home.home.jobs.retry(Time(9), &other, home.routing.homes(), &mut out).expect("it is known");
    assert!(refused.unwrap_err().contains("has not ended"), "another user wants other tasks");
    assert!(retry(&mut home, 2, &mut out).unwrap_err().contains("has not ended"));
    let query = |past_round| wire::JobQuery { job: 1, past_round, ..Default::default() };
    let past = home.home.jobs.state(query(1)).expect("known").expect("it has ended");
    assert_eq!((past.ended_ns, past.sum), (5, Some(sum)));
    assert!(home.home.jobs.state(query(3)).expect("known").is_err());
    // Counts of the round before have no effect.
    let counts = |round| {
        let count =
            wire::PartitionCount { version: 9, done: 1, failed: 1, round, ..Default::default() };
        wire::JobCounts { job: 1, partitions: vec![count], ..Default::default() }
    };
    home.on_message(Time(9), NodeId(0), Body::JobCounts(counts(0)), &mut out);
    assert_eq!(home.home.jobs.state(query(0)).expect("known").expect("it is").ended_ns, 0);
    home.on_message(Time(9), NodeId(0), Body::JobCounts(counts(1)), &mut out);
    assert_eq!(home.home.jobs.state(query(0)).expect("known").expect("it is").ended_ns, 9);
    let kept = out.reliable.iter().any(|(_, body)| matches!(body, Body::JobEnd(end) if end.kept));
    assert!(kept, "one of its tasks may be run again");
}

/// A lost input may be made again after its reader was skipped because of another parent: then the
/// reader gets no credit.
#[test]
fn what_was_lost_in_the_round_before_is_asked_for() {
    let (mut home, mut out) = home_of(vec![visible_record(0, false)]);
    let Body::Credits(mut credits) = credit(wire::Verdict::Done, 0) else { unreachable!() };
    credits.credits[0].output = vec![1, 1];
    credits.credits[0].output_sizes = vec![10];
    home.on_message(Time(2), NodeId(1), Body::Credits(credits), &mut out);
    home.settle(Time(2), &mut out);
    let homes = home.routing.homes().clone();
    let lost = wire::Object { job: 1, task: parent(), attempt: 3, output: 0, size_bytes: 10 };
    assert!(home.home.ledger.inputs_lost(task(0), &[lost], &homes, &mut out));
    home.on_message(Time(2), NodeId(1), credit(wire::Verdict::Failed, 0), &mut out);
    assert_eq!(home.home.ledger.state(task(0)), Some(State::Ended(End::Skipped)));
    let end = wire::JobEnd { job: 1, kept: true, ..Default::default() };
    home.on_message(Time(2), NodeId(1), Body::JobEnd(end), &mut out);
    let mut out = Out::default();
    tell_round(&mut home, 1, vec![task(0).local.0], &mut out);
    let asked = out.reliable.iter().filter_map(|(_, body)| match body {
        Body::CreditQuery(query) => Some(&query.requests),
        _ => None,
    });
    let asked: Vec<_> = asked.flatten().map(|ask| (ask.child, ask.lost_attempt)).collect();
    assert_eq!(asked, [(task(0).local.0, 3)]);
}

/// The credits may have reached the child before it opened the round, and are not sent again.
#[test]
fn a_credit_query_is_answered_while_credits_are_unacknowledged() {
    let (mut home, mut out) = ended();
    tell_round(&mut home, 1, vec![task(1).local.0], &mut out);
    home.home.ledger.deliver(task(0), false);
    let mut out = Out::default();
    let child = LocalId::new(THEIRS, 9).0;
    let parent = task(0).local.0;
    let ask = |runs_again| wire::CreditRequest {
        job: 1,
        parent,
        child,
        runs_again,
        round: 1,
        ..Default::default()
    };
    for (runs_again, answers) in [(false, 0), (true, 1)] {
        let query = wire::CreditQuery { requests: vec![ask(runs_again)] };
        home.on_message(Time(3), NodeId(1), Body::CreditQuery(query), &mut out);
        let credits = out.reliable.iter().filter(|(_, body)| matches!(body, Body::Credits(_)));
        assert_eq!(credits.count(), answers, "the reconciler asks for what was lost");
    }
}

/// The task was done, its output was lost, and the task failed when it ran again. Readers of the
/// first bytes may be done and do not run again. So the outputs of a later round are compared with
/// these bytes.
#[test]
fn a_task_that_was_done_once_is_compared_with_that_in_a_later_round() {
    let detail = wire::EndDetail { index: 0, output_sums: vec![5], ..Default::default() };
    let done = LedgerRecord::End(wire::EndRecord {
        index: vec![0],
        attempt: vec![7],
        verdict: vec![wire::Verdict::Done as u32],
        node: vec![0],
        details: vec![detail],
        ..Default::default()
    });
    let others = [(0, 8, wire::Verdict::Failed), (1, 0, wire::Verdict::Skipped)];
    let (mut home, mut out) = home_of(vec![visible_record(0, true), done, ends(&[], &others)]);
    tell_round(&mut home, 1, Vec::new(), &mut out);
    assert_eq!(home.home.ledger.state(task(0)), Some(State::Waiting));
    assert!(home.home.ledger.changed_outputs(task(0), &[5]).is_empty());
    assert_eq!(home.home.ledger.changed_outputs(task(0), &[6]), [0]);
}

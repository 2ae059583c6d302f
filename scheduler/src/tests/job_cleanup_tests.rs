//! A node frees what it holds of a job when the job is over, and not because the job was once
//! unknown.

use proto::limits::STAGED_JOB_TTL;
use proto::wire::message::Body;
use proto::work::Outcome;
use proto::{Attempt, Incarnation, JobId, NodeId, PartitionId, TaskId, Time, wire};

use crate::limits::{STEP_EVICTIONS_MAX, UPLOADS_QUERIED_AFTER};
use crate::output::Out;
use crate::tests::staging_tests::{placed, push};
use crate::tests::test_nodes;
use crate::{Homes, LedgerRecord, Policy, Scheduler, Tuning};

/// The homes, with this home of the job.
fn homes(of_job: u32) -> Homes {
    homes_since(1, of_job)
}

fn homes_since(epoch: u64, of_job: u32) -> Homes {
    let members = (0..3).map(test_nodes::member).collect();
    test_nodes::homes_since(epoch, 0, members, &[of_job, 1]).moving()
}

fn task(index: u64) -> TaskId {
    TaskId::new(1, placed(index, vec![], 0).local)
}

/// The node has made an output for a task of node 1. It asks the job's new home, node 2, whether
/// the job has ended. Returns the number of that question.
fn asking() -> (Scheduler, Out, u64) {
    let (mut node, mut out) = (made(1), Out::default());
    let question = moved(&mut node, 2, 2, &mut out);
    (node, out, question)
}

/// The node has made this number of outputs.
fn made(outputs: usize) -> Scheduler {
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(1));
    let mut out = Out::default();
    push(&mut node, vec![placed(0, vec![], 5_000)], &mut out);
    node.act(Time(0), &mut out);
    assert_eq!(out.launches.len(), 1);
    let outcome = Outcome { output_sizes: vec![5_000; outputs], ..Outcome::default() };
    node.on_finished(Time(0), task(0), Attempt(1), outcome.into(), &mut out);
    node.act(Time(0), &mut out);
    node
}

/// The job has this home since that epoch, and the home is asked. Returns the number of the
/// question.
fn moved(node: &mut Scheduler, epoch: u64, home: u32, out: &mut Out) -> u64 {
    node.set_homes(Time(0), homes_since(epoch, home), out);
    asked_once(home, out)
}

fn asked_once(home: u32, out: &mut Out) -> u64 {
    let asked = asked(out);
    let &[(to, question)] = asked.as_slice() else { panic!("not once: {asked:?}") };
    assert_eq!(to, NodeId(home));
    question
}

fn asked(out: &mut Out) -> Vec<(NodeId, u64)> {
    let asks = std::mem::take(&mut out.reliable).into_iter().filter_map(|(to, body)| match body {
        Body::JobCounts(it) if it.partitions.is_empty() => Some((to, it.question)),
        _ => None,
    });
    asks.collect()
}

/// That node answers that the job is unknown.
fn hear_unknown(node: &mut Scheduler, from: u32, question: u64, out: &mut Out) {
    let end = Body::JobEnd(wire::JobEnd { job: 1, unknown: true, question, ..Default::default() });
    node.on_message(Time(0), NodeId(from), end, out);
}

fn hear_of_end(node: &mut Scheduler, out: &mut Out) {
    let end = Body::JobEnd(wire::JobEnd { job: 1, ..Default::default() });
    node.on_message(Time(0), NodeId(2), end, out);
}

fn holds_something(node: &Scheduler) -> bool {
    node.objects.firm_bytes() > 0
}

#[test]
fn outputs_of_an_unknown_job_are_deleted() {
    let (mut node, mut out, question) = asking();
    assert!(question > 0 && holds_something(&node));
    hear_unknown(&mut node, 2, question, &mut out);
    assert!(!holds_something(&node) && asked(&mut out).is_empty());
    let (mut node, mut out, _) = asking();
    hear_of_end(&mut node, &mut out);
    assert!(!holds_something(&node) && asked(&mut out).is_empty());
    // A peer that does not repeat the number of the question.
    let (mut node, mut out, _) = asking();
    hear_unknown(&mut node, 2, 0, &mut out);
    assert!(!holds_something(&node) && asked(&mut out).is_empty());
}

/// A home that changes is asked under its new epoch, and again when it is active. The client
/// commits the job once more when both questions are answered and neither answer has arrived.
#[test]
fn where_something_has_come_since_only_a_later_question_counts() {
    let (mut node, mut out, first) = asking();
    let second = moved(&mut node, 3, 2, &mut out);
    push(&mut node, vec![placed(1, vec![], 0)], &mut out);
    hear_unknown(&mut node, 2, first, &mut out);
    assert!(holds_something(&node), "it may be of use");
    let third = asked_once(2, &mut out);
    hear_unknown(&mut node, 2, second, &mut out);
    assert!(holds_something(&node), "that was said before it came");
    assert!(asked(&mut out).is_empty(), "an answer is under way");
    hear_unknown(&mut node, 2, third, &mut out);
    assert!(!holds_something(&node), "nothing has come since");
    let (mut node, mut out, _) = asking();
    push(&mut node, vec![placed(1, vec![], 0)], &mut out);
    hear_of_end(&mut node, &mut out);
    assert!(!holds_something(&node), "what is over is over");
}

#[test]
fn an_earlier_home_of_the_job_is_not_obeyed() {
    let (mut node, mut out, first) = asking();
    let second = moved(&mut node, 3, 1, &mut out);
    hear_unknown(&mut node, 2, first, &mut out);
    hear_unknown(&mut node, 2, 0, &mut out);
    assert!(holds_something(&node));
    assert!(asked(&mut out).is_empty(), "the present home is asked already");
    hear_unknown(&mut node, 1, second, &mut out);
    assert!(!holds_something(&node));
}

/// A question of an earlier incarnation may be answered to the next one.
#[test]
fn each_incarnation_has_its_own_questions() {
    let question = |life: u32| {
        let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(1));
        node.options.incarnation = Incarnation(life);
        let mut out = Out::default();
        node.ask_for_job_end(JobId(1), &mut out);
        asked_once(1, &mut out)
    };
    assert_ne!(question(1), question(2));
}

/// Chunks are staged at node 0 and their client is silent: the job's home is asked.
fn expiring() -> (Scheduler, Out, u64) {
    let homes = test_nodes::homes(0, (0..3).map(test_nodes::member).collect(), &[1, 0]);
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let mut out = Out::default();
    stage(&mut node, Time(0), 0, &mut out);
    let question = waited_ttls(&mut node, 1, &mut out);
    (node, out, question)
}

fn waited_ttls(node: &mut Scheduler, times: u64, out: &mut Out) -> u64 {
    node.act(Time(STAGED_JOB_TTL.0 * times), out);
    asked_once(1, out)
}

fn stage(node: &mut Scheduler, now: Time, number: u32, out: &mut Out) {
    let chunk = wire::Chunk {
        job: 1,
        partition: 1,
        number,
        first: u64::from(number),
        specs: vec![wire::Spec {
            body: Some(wire::spec::Body::Sleep(wire::Sleep::default())),
            ..Default::default()
        }],
        tasks: vec![wire::Task::default()],
        ..Default::default()
    };
    node.home.ledger.accept_chunk(now, chunk, out).expect("it is a right chunk");
}

#[test]
fn an_uncommitted_job_expires_when_its_home_does_not_know_it() {
    for question_is_told in [true, false] {
        let (mut node, mut out, question) = expiring();
        let question = if question_is_told { question } else { 0 };
        hear_unknown(&mut node, 1, question, &mut out);
        assert_eq!(out.facts.dropped_chunks.len(), 1);
    }
}

/// A repeated chunk counts as much as a new one.
#[test]
fn an_uncommitted_job_stays_when_its_client_wrote_after_the_query() {
    for number in [0, 1] {
        let (mut node, mut out, question) = expiring();
        stage(&mut node, Time(STAGED_JOB_TTL.0), number, &mut out);
        hear_unknown(&mut node, 1, question, &mut out);
        hear_unknown(&mut node, 1, 0, &mut out);
        assert_eq!(out.facts.dropped_chunks, []);
        assert_eq!(node.has_ended(JobId(1)), Some(false));
        let question = waited_ttls(&mut node, 2, &mut out);
        hear_unknown(&mut node, 1, question, &mut out);
        assert_eq!(out.facts.dropped_chunks.len(), 1 + number as usize);
    }
}

/// One home's chunks move to another home that has asked about the job already.
#[test]
fn an_uncommitted_job_stays_when_more_of_it_was_taken_over_after_the_query() {
    let members = (0..3).map(test_nodes::member).collect();
    let homes = test_nodes::homes(0, members, &[1, 0, 0, 1]).moving();
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let mut out = Out::default();
    node.serve(Time(0), PartitionId(1), 2, &mut out);
    stage(&mut node, Time(0), 0, &mut out);
    let question = waited_ttls(&mut node, 1, &mut out);
    let chunk = wire::Chunk { job: 1, partition: 2, ..out.facts.chunks[0].clone() };
    let taken = LedgerRecord::Chunk(chunk);
    node.adopt(Time(0), PartitionId(2), JobId(1), taken).expect("it is the first");
    node.serve(Time(STAGED_JOB_TTL.0), PartitionId(2), 2, &mut out);
    hear_unknown(&mut node, 1, question, &mut out);
    assert_eq!(out.facts.dropped_chunks, []);
}

/// The job's objects are deleted in portions; activity in between is recorded, and stays.
#[test]
fn the_shell_keeps_the_data_of_a_job_that_reappeared() {
    for comes_again in [false, true] {
        let (mut node, mut out) = (made(STEP_EVICTIONS_MAX + 1), Out::default());
        let question = moved(&mut node, 2, 2, &mut out);
        hear_unknown(&mut node, 2, question, &mut out);
        if comes_again {
            push(&mut node, vec![placed(1, vec![], 5_000)], &mut out);
        }
        node.act(Time(0), &mut out);
        assert_eq!((out.evicted.len(), out.forgotten.len()), (STEP_EVICTIONS_MAX, 0));
        node.act(Time(0), &mut out);
        assert_eq!(out.evicted.len(), STEP_EVICTIONS_MAX + 1);
        assert_eq!(out.forgotten.len(), usize::from(!comes_again));
        if comes_again {
            hear_of_end(&mut node, &mut out);
            node.act(Time(0), &mut out);
            assert_eq!(out.forgotten, [JobId(1)]);
        }
    }
}

/// The same on a node that is home of some of the job and gets it again.
#[test]
fn the_shell_keeps_what_was_uploaded_for_what_is_staged_again() {
    let (mut node, mut out, question) = expiring();
    hear_unknown(&mut node, 1, question, &mut out);
    stage(&mut node, Time(STAGED_JOB_TTL.0), 0, &mut out);
    node.act(Time(STAGED_JOB_TTL.0), &mut out);
    assert_eq!(out.forgotten, []);
    let question = waited_ttls(&mut node, 2, &mut out);
    hear_unknown(&mut node, 1, question, &mut out);
    node.act(Time(STAGED_JOB_TTL.0 * 2), &mut out);
    assert_eq!(out.forgotten, [JobId(1)]);
}

/// The home of a job knows the jobs that were committed.
#[test]
fn a_home_tells_what_it_does_not_know_from_what_has_ended() {
    let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(0));
    let mut out = Out::default();
    let state = wire::JobState { job: 2, ended_ns: 1, ..Default::default() };
    home.adopt_job(PartitionId(0), state);
    home.serve(Time(0), PartitionId(0), 2, &mut out);
    let (none, bad) = (wire::JobOutcome::NotEnded as i32, wire::JobOutcome::Failures as i32);
    for (job, question, unknown, outcome) in [(1, 7, true, none), (2, 8, false, bad)] {
        let ask = Body::JobCounts(wire::JobCounts { job, question, ..Default::default() });
        home.on_message(Time(0), NodeId(1), ask, &mut out);
        let end = wire::JobEnd { job, unknown, question, outcome, ..Default::default() };
        let end = Body::JobEnd(end);
        assert_eq!(std::mem::take(&mut out.reliable), [(NodeId(1), end)]);
    }
}

/// The answer of an earlier home of the job may arrive after the commit by the present home.
#[test]
fn a_job_that_is_visible_here_is_known() {
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(1));
    let mut out = Out::default();
    node.on_message(Time(0), NodeId(1), visible(), &mut out);
    assert_eq!(node.has_ended(JobId(1)), Some(false));
    for question in [0, 1] {
        hear_unknown(&mut node, 1, question, &mut out);
        assert_eq!(node.has_ended(JobId(1)), Some(false));
    }
    hear_of_end(&mut node, &mut out);
    assert_eq!(node.has_ended(JobId(1)), Some(true));
}

fn visible() -> Body {
    let total = wire::PartitionTotal { partition: PartitionId(2).0, ..Default::default() };
    let commit = wire::JobCommit { job: 1, partitions: vec![total], ..Default::default() };
    Body::Visible(wire::Visible { commit: Some(commit), ..Default::default() })
}

/// The node that asks may not know that the job was cancelled.
#[test]
fn nothing_of_a_cancelled_job_is_made_again() {
    let homes = test_nodes::homes(0, (0..3).map(test_nodes::member).collect(), &[1, 0]);
    let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let mut out = Out::default();
    stage(&mut home, Time(0), 0, &mut out);
    let total = wire::PartitionTotal { partition: 1, tasks: 1, chunks: 1 };
    let commit = wire::JobCommit { job: 1, partitions: vec![total], ..Default::default() };
    let visible = Body::Visible(wire::Visible { commit: Some(commit), ..Default::default() });
    home.on_message(Time(0), NodeId(1), visible, &mut out);
    home.settle(Time(0), &mut out);
    home.act(Time(0), &mut out);
    let launch = out.launches.pop().expect("it is ready");
    home.on_finished(Time(0), launch.task, launch.attempt, Box::default(), &mut out);
    let ask = wire::CreditRequest {
        job: 1,
        parent: launch.task.local.0,
        lost_attempt: launch.attempt.0,
        ..Default::default()
    };
    let query = || Body::CreditQuery(wire::CreditQuery { requests: vec![ask] });
    let state = |home: &Scheduler| home.home.ledger.state(launch.task);
    let before = state(&home);
    let cancel = Body::Cancel(wire::Cancel { job: 1, ..Default::default() });
    home.on_message(Time(0), NodeId(1), cancel, &mut out);
    home.on_message(Time(0), NodeId(2), query(), &mut out);
    assert!(before.is_some() && state(&home) == before);
}

/// A home may move while a client still submits: then the job does not exist yet.
#[test]
fn a_file_waits_for_its_commit_and_is_asked_about_in_time() {
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(1));
    let mut out = Out::default();
    node.on_files(Time(0), &[task(0)]);
    node.set_homes(Time(0), homes_since(2, 2), &mut out);
    assert_eq!(asked(&mut out), []);
    let first = Time(0) + UPLOADS_QUERIED_AFTER;
    assert_eq!(node.holder.local_jobs().deadline(), Some(first));
    node.on_files(Time(7), &[task(1)]);
    node.act(first, &mut out);
    assert_eq!(asked(&mut out), [], "another file has come since");
    let last = Time(7) + UPLOADS_QUERIED_AFTER;
    node.act(last, &mut out);
    let question = asked_once(2, &mut out);
    hear_unknown(&mut node, 2, question, &mut out);
    node.act(last, &mut out);
    assert_eq!(out.forgotten, [JobId(1)]);
    node.act(last + UPLOADS_QUERIED_AFTER, &mut out);
    assert_eq!((asked(&mut out), node.holder.local_jobs().deadline()), (vec![], None));
}

#[test]
fn once_tasks_of_its_job_have_come_a_file_goes_like_all_else() {
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(1));
    let mut out = Out::default();
    node.on_files(Time(0), &[task(0)]);
    push(&mut node, vec![placed(0, vec![], 0)], &mut out);
    node.act(Time(0), &mut out);
    node.on_files(Time(0), &[task(1)]);
    let question = moved(&mut node, 2, 2, &mut out);
    assert!(question > 0, "no node may know its end");
}

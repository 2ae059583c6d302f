//! The home of a job that waits for another one: its questions, and the answers that count.

use proto::wire::message::Body;
use proto::wire::{JobOutcome, response};
use proto::{ClientId, JobId, NodeId, Time, wire};

use crate::limits::{AFTER_ASK_INTERVAL, AFTER_ASKED_PER_ROUND_MAX};
use crate::output::Out;
use crate::tests::test_nodes;
use crate::{Policy, Request, Scheduler, Tuning};

const WAITER: u64 = 2;
const ME: NodeId = NodeId(0);

fn home() -> Scheduler {
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes)
}

/// A job with a task on node 1, which waits for these jobs.
fn commit(after: &[(u64, bool)]) -> wire::JobCommit {
    let after = after.iter().map(|&(job, any)| wire::AfterJob { job, any, end: 0 }).collect();
    wire::JobCommit {
        job: WAITER,
        partitions: vec![wire::PartitionTotal { partition: 1, chunks: 1, tasks: 1 }],
        after,
        ..Default::default()
    }
}

fn committed(after: &[(u64, bool)]) -> (Scheduler, Out) {
    let (mut home, mut out) = (home(), Out::default());
    assert_eq!(ask(&mut home, Request::Commit(commit(after)), &mut out).error, None);
    (home, out)
}

fn ask(home: &mut Scheduler, request: Request, out: &mut Out) -> wire::Response {
    home.on_request(Time(1), ClientId(1), 9, request, out);
    out.answers.pop().expect("each request is answered").response
}

fn state(home: &mut Scheduler) -> wire::JobState {
    let query = wire::JobQuery { job: WAITER, ..Default::default() };
    match ask(home, Request::Job(query), &mut Out::default()).body {
        Some(response::Body::Job(state)) => state,
        other => panic!("no state: {other:?}"),
    }
}

/// The questions about other jobs that the home asks now.
fn questions(home: &mut Scheduler, now: Time) -> Vec<(u64, u64)> {
    let mut out = Out::default();
    home.act(now, &mut out);
    let asked = out.reliable.iter().filter_map(|(_, body)| match body {
        Body::JobCounts(counts) => Some((counts.job, counts.question)),
        _ => None,
    });
    asked.collect()
}

fn end(job: u64, question: u64, outcome: JobOutcome) -> wire::JobEnd {
    wire::JobEnd { job, question, outcome: outcome as i32, ..Default::default() }
}

fn hear(home: &mut Scheduler, from: NodeId, end: wire::JobEnd) -> Out {
    let mut out = Out::default();
    home.on_message(Time(5), from, Body::JobEnd(end), &mut out);
    out
}

/// The settings of a commit that is sent to the home of the task.
fn begun(out: &Out) -> Option<wire::JobSettings> {
    out.reliable.iter().find_map(|(to, body)| match body {
        Body::Visible(visible) if *to == NodeId(1) => {
            Some(visible.commit.as_ref().and_then(|commit| commit.settings).unwrap_or_default())
        }
        _ => None,
    })
}

#[test]
fn the_commit_is_sent_when_all_awaited_jobs_have_ended_well() {
    let (mut home, out) = committed(&[(7, false), (8, true)]);
    assert_eq!(begun(&out), None);
    let asked = questions(&mut home, Time(2));
    assert_eq!(asked.iter().map(|it| it.0).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(questions(&mut home, Time(3)), [], "once");
    let out = hear(&mut home, ME, end(8, asked[1].1, JobOutcome::Failures));
    assert_eq!(begun(&out), None);
    assert_eq!(state(&mut home).waits_for().collect::<Vec<_>>(), [7]);
    assert!(out.facts.jobs.contains_key(&JobId(WAITER)), "the answer is stored");
    let out = hear(&mut home, ME, end(7, asked[0].1, JobOutcome::Clean));
    assert_eq!(begun(&out).map(|settings| settings.skipped_for), Some(0));
    assert_eq!(home.home.jobs.next_ask_for_ends(Time(6)), None, "nothing is asked any more");
}

#[test]
fn a_job_that_ended_badly_has_all_tasks_skipped() {
    for outcome in [JobOutcome::Failures, JobOutcome::WasCancelled, JobOutcome::Gone] {
        let (mut home, _) = committed(&[(7, false), (8, false)]);
        let asked = questions(&mut home, Time(2));
        let out = hear(&mut home, ME, end(7, asked[0].1, outcome));
        assert_eq!(begun(&out).map(|settings| settings.skipped_for), Some(7));
        assert!(state(&mut home).skipped_text().is_some_and(|text| text.starts_with("job 7 ")));
    }
}

#[test]
fn only_answers_to_own_questions_count() {
    let (mut home, _) = committed(&[(7, false)]);
    let announced = hear(&mut home, ME, end(7, 0, JobOutcome::Clean));
    assert_eq!(begun(&announced), None, "it may be of an earlier round");
    let [(7, question)] = questions(&mut home, Time(2))[..] else { panic!("one question") };
    let older = hear(&mut home, ME, end(7, question - 1, JobOutcome::Clean));
    assert_eq!(begun(&older), None, "another part of this node has asked it before");
    let unknown = wire::JobEnd { job: 7, question, unknown: true, ..Default::default() };
    let out = hear(&mut home, NodeId(1), unknown);
    assert_eq!(begun(&out), None, "node 1 is not its home");
    let open = hear(&mut home, ME, end(7, question, JobOutcome::NotEnded));
    assert_eq!(begun(&open), None, "a home of an older version does not say how it ended");
    let out = hear(&mut home, ME, unknown);
    assert_eq!(begun(&out).map(|settings| settings.skipped_for), Some(7));
}

#[test]
fn an_announced_end_makes_the_home_ask_again_and_so_does_time() {
    let (mut home, _) = committed(&[(7, false)]);
    assert_eq!(questions(&mut home, Time(2)).len(), 1);
    hear(&mut home, ME, end(7, 0, JobOutcome::Clean));
    assert_eq!(questions(&mut home, Time(6)).len(), 1);
    assert_eq!(questions(&mut home, Time(7)).len(), 0);
    let later = Time(7) + AFTER_ASK_INTERVAL;
    assert!(home.deadline(Time(7)).is_some_and(|at| at <= later));
    assert_eq!(questions(&mut home, later).len(), 1);
}

/// An announced end of a job beyond the portion must not make the others of the round wait longer.
#[test]
fn a_round_asks_about_each_awaited_job_in_portions() {
    let (mut home, mut out) = (home(), Out::default());
    let most = AFTER_ASKED_PER_ROUND_MAX as u64;
    for waiter in 0..most + 10 {
        let after = vec![wire::AfterJob { job: 1000 + waiter, ..Default::default() }];
        let commit = wire::JobCommit { job: 2 + waiter, after, ..commit(&[]) };
        assert_eq!(ask(&mut home, Request::Commit(commit), &mut out).error, None);
    }
    questions(&mut home, Time(2));
    hear(&mut home, ME, end(1000 + most + 9, 0, JobOutcome::Clean));
    let (first, second) =
        (Time(3) + AFTER_ASK_INTERVAL, Time(4) + AFTER_ASK_INTERVAL + AFTER_ASK_INTERVAL);
    assert_eq!(questions(&mut home, first).len() as u64, most + 1);
    let asked: Vec<u64> = questions(&mut home, second).iter().map(|it| it.0).collect();
    assert_eq!(asked, (1000 + most..1000 + most + 10).collect::<Vec<_>>());
}

#[test]
fn a_loaded_job_waits_on_and_a_cancelled_one_does_not() {
    let (mut first, _) = committed(&[(7, false)]);
    let record = state(&mut first);
    let (mut home, mut out) = (home(), Out::default());
    home.load_job(record);
    home.resume(Time(2), &mut out);
    assert_eq!(begun(&out), None);
    assert_eq!(questions(&mut home, Time(3)).len(), 1);
    let cancel = wire::Cancel { job: WAITER, ..Default::default() };
    let mut out = Out::default();
    assert_eq!(ask(&mut home, Request::Cancel(cancel), &mut out).error, None);
    let sent: Vec<&str> =
        out.reliable.iter().filter(|(to, _)| *to == NodeId(1)).map(kind).collect();
    assert_eq!(sent, ["begins", "visible", "cancel"]);
    let later = Time(4) + AFTER_ASK_INTERVAL;
    assert_eq!(questions(&mut home, later), []);
}

fn kind((_, body): &(NodeId, Body)) -> &'static str {
    match body {
        Body::Visible(_) => "visible",
        Body::Cancel(_) => "cancel",
        Body::TallyQuery(_) => "begins",
        _ => "other",
    }
}

#[test]
fn wrong_commits_are_refused() {
    let refused = |commit: wire::JobCommit| {
        let answer = ask(&mut home(), Request::Commit(commit), &mut Out::default());
        answer.error.expect("it is refused").text
    };
    assert!(refused(commit(&[(WAITER, false)])).contains("cannot wait"));
    assert!(refused(commit(&[(7, false), (7, true)])).contains("twice"));
    let openness = wire::Openness::Open as i32;
    let open = wire::JobCommit { openness, partitions: Vec::new(), ..commit(&[(7, false)]) };
    assert!(refused(open).contains("an open job waits for no other job"));
}

//! The history of ended jobs, kept or removed: the requests and answers of a job's home.

use proto::wire::message::Body;
use proto::wire::{JobPhase, TallyStage, response};
use proto::{ClientId, JobId, NodeId, PartitionId, Time, wire};

use crate::limits::{FORGOTTEN_PER_BATCH, HISTORY_MORE_INTERVAL};
use crate::output::Out;
use crate::tests::test_nodes;
use crate::{LedgerRecord, Policy, Request, Scheduler, Tuning, Usage};

const MINE: PartitionId = PartitionId(0);
const S: u64 = 1_000_000_000;

/// Node 0 of two, home of job 1, which has ended at 5 s and has no summary.
fn home(tuning: Tuning) -> (Scheduler, Out) {
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut home = test_nodes::scheduler(0, 1, tuning, homes);
    home.load_job(state());
    let spec = wire::Spec::default();
    let (specs, tasks) = (vec![spec], vec![wire::Task::default()]);
    let chunk = wire::Chunk { job: 1, specs, tasks, ..Default::default() };
    let ended =
        wire::VisibleRecord { chunks: 1, ended: true, settings: settings(), ..Default::default() };
    let end = wire::EndRecord {
        index: vec![0],
        attempt: vec![7],
        verdict: vec![0],
        node: vec![1],
        ..Default::default()
    };
    for record in [LedgerRecord::Chunk(chunk), LedgerRecord::Visible(ended), LedgerRecord::End(end)]
    {
        home.load(Time(6 * S), MINE, JobId(1), record).expect("records fit one another");
    }
    let mut out = Out::default();
    home.resume(Time(6 * S), &mut out);
    (home, out)
}

fn settings() -> Option<wire::JobSettings> {
    Some(wire::JobSettings::default())
}

fn state() -> wire::JobState {
    let sum = wire::PartitionCount { done: 1, ..Default::default() };
    let mut state = wire::JobState {
        job: 1,
        total: 1,
        submitted_ns: 2 * S,
        ended_ns: 5 * S,
        settings: settings(),
        sum: Some(sum),
        members: vec![0, 1],
        ..Default::default()
    };
    state.set_phase(JobPhase::Finished);
    state
}

fn asked(out: &Out, stage: TallyStage) -> Vec<u32> {
    let asked = out.reliable.iter().filter_map(|(to, body)| match body {
        Body::TallyQuery(ask) if ask.stage() == stage => Some(to.0),
        _ => None,
    });
    asked.collect()
}

fn report(node: u32, began_late: bool) -> Body {
    let part = wire::NodeTally { node, busy_ns: 10, slots: 1, began_late, ..Default::default() };
    Body::TallyReport(wire::TallyReport { job: 1, part: Some(part.into()), ..Default::default() })
}

fn ask(home: &mut Scheduler, request: Request, out: &mut Out) -> wire::Response {
    home.on_request(Time(30 * S), ClientId(1), 9, request, out);
    out.answers.pop().expect("each request is answered").response
}

fn query() -> Request {
    Request::Job(wire::JobQuery { job: 1, ..Default::default() })
}

fn told(home: &mut Scheduler) -> wire::JobState {
    match ask(home, query(), &mut Out::default()).body {
        Some(response::Body::Job(state)) => state,
        other => panic!("no state: {other:?}"),
    }
}

/// Both members have reported.
fn recorded(tuning: Tuning) -> Scheduler {
    let (mut home, mut out) = home(tuning);
    for node in 0..2 {
        home.on_message(Time(7 * S), NodeId(node), report(node, false), &mut out);
    }
    home
}

#[test]
fn a_round_without_a_summary_is_asked_for_and_recorded_once_all_have_told() {
    let (mut home, mut out) = home(Tuning::of(Policy::Mlb));
    assert_eq!(asked(&out, TallyStage::Ends), [0, 1]);
    home.on_message(Time(7 * S), NodeId(1), report(1, false), &mut out);
    assert!(told(&mut home).summary.is_none() && out.facts.jobs.is_empty());
    home.on_message(Time(7 * S), NodeId(0), report(0, false), &mut out);
    let summary = told(&mut home).summary.expect("all have told");
    assert_eq!(out.facts.jobs[&JobId(1)].summary.as_ref(), Some(&summary), "it is stored");
    assert_eq!(summary.parts.iter().map(|part| part.busy_ns).sum::<u64>(), 20);
    assert!(summary.missing.is_empty());
    assert_eq!(asked(&out, TallyStage::Recorded), [0, 1]);
    home.on_message(Time(8 * S), NodeId(0), report(0, true), &mut out);
    assert_eq!(told(&mut home).summary, Some(summary), "it never changes");
}

#[test]
fn a_member_that_does_not_tell_or_started_late_is_named() {
    let (mut home, mut out) = home(Tuning::of(Policy::Mlb));
    home.on_message(Time(7 * S), NodeId(0), report(0, true), &mut out);
    let due = home.deadline(Time(7 * S)).expect("it waits for the other");
    home.act(due, &mut out);
    let summary = told(&mut home).summary;
    let mut at = due;
    // The first deadline may have another cause.
    while at < Time(20 * S) && told(&mut home).summary.is_none() {
        at = Time(at.0 + S);
        home.act(at, &mut out);
    }
    let summary =
        summary.or_else(|| told(&mut home).summary).expect("a home waits for a bounded time");
    assert_eq!(summary.missing, [0, 1]);
    assert_eq!(summary.parts.len(), 1);
}

#[test]
fn a_member_tells_what_it_did_since_the_beginning() {
    let homes = test_nodes::homes(1, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut member = test_nodes::scheduler(1, 3, Tuning::of(Policy::Mdl), homes);
    let mut out = Out::default();
    member.resume(Time(S), &mut out);
    let ask = |stage: TallyStage| {
        Body::TallyQuery(wire::TallyQuery {
            job: 1,
            stage: stage as i32,
            since_ns: 2,
            ..Default::default()
        })
    };
    let usage = |cpu_ns| Usage { cpu_ns, peak_rss_bytes: 7, messages: cpu_ns / 10 };
    member.on_message(Time(2 * S), NodeId(0), ask(TallyStage::Begins), &mut out);
    assert!(std::mem::take(&mut out.measure));
    member.on_measured(Time(2 * S), usage(1_000), &mut out);
    member.on_message(Time(9 * S), NodeId(0), ask(TallyStage::Ends), &mut out);
    member.on_measured(Time(9 * S), usage(1_500), &mut out);
    let Some((NodeId(0), Body::TallyReport(report))) = out.reliable.pop() else {
        panic!("no part")
    };
    let part = report.part.expect("it has one");
    assert_eq!((part.cpu_ns, part.messages, part.slots), (500, 50, 3));
    assert!(part.policy == "mdl" && !part.began_late && !part.unmeasured && !part.others_ran);
}

fn tally_query(stage: TallyStage) -> Body {
    let stage = stage as i32;
    Body::TallyQuery(wire::TallyQuery { job: 1, stage, since_ns: 2, ..Default::default() })
}

/// The report of a member at the end of job 1.
fn told_part(member: &mut Scheduler) -> wire::NodeTally {
    let mut out = Out::default();
    member.on_message(Time(9 * S), NodeId(0), tally_query(TallyStage::Ends), &mut out);
    member.on_measured(Time(9 * S), Usage::default(), &mut out);
    let Some((_, Body::TallyReport(report))) = out.reliable.pop() else { panic!("no part") };
    *report.part.expect("it has one")
}

#[test]
fn nothing_is_counted_of_a_job_that_has_ended_or_is_not_known() {
    let (mut home, _) = home(Tuning::of(Policy::Mlb));
    let task = proto::TaskId::new(1, 0);
    let stale = proto::Event::Stale { task, attempt: proto::Attempt(7) };
    home.count_events(Time(8 * S), std::slice::from_ref(&stale));
    assert_eq!(told_part(&mut home).stale, 0, "it has ended");
    let homes = test_nodes::homes(1, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut member = test_nodes::scheduler(1, 3, Tuning::of(Policy::Mdl), homes);
    member.count_events(Time(8 * S), std::slice::from_ref(&stale));
    assert_eq!(told_part(&mut member).stale, 0, "it is not known");
    let mut out = Out::default();
    member.on_message(Time(8 * S), NodeId(0), tally_query(TallyStage::Begins), &mut out);
    member.on_measured(Time(8 * S), Usage::default(), &mut out);
    member.count_events(Time(8 * S), &[stale]);
    assert_eq!(told_part(&mut member).stale, 1, "its beginning was told");
}

/// Both members confirm that they have nothing of the job any more, as asked under that map.
fn confirm_under(map_epoch: u64, keeps: bool, home: &mut Scheduler, out: &mut Out) {
    for node in 0..2 {
        let part = Some(wire::NodeTally { node, ..Default::default() }.into());
        let report =
            wire::TallyReport { job: 1, part, forgotten: true, map_epoch, keeps, round: 0 };
        home.on_message(Time(32 * S), NodeId(node), Body::TallyReport(report), out);
    }
}

fn confirm(home: &mut Scheduler, out: &mut Out) {
    confirm_under(home.homes().map_epoch(), false, home, out);
}

fn forget(results: bool) -> Request {
    Request::Forget(wire::JobForget { job: 1, results })
}

/// The map of two nodes, the other one down.
fn without_the_other(down: bool, epoch: u64) -> crate::routing::partition_owners::Homes {
    let mut members: Vec<_> = (0..2).map(test_nodes::member).collect();
    if down {
        members[1].set_phase(wire::MemberPhase::Down);
    }
    let mut homes = test_nodes::homes(0, members, &[0, 1]);
    homes.under(epoch);
    homes
}

#[test]
fn a_member_that_was_down_gets_the_demand_after_its_return() {
    let mut home = recorded(Tuning::of(Policy::Mlb));
    let mut out = Out::default();
    home.set_homes(Time(20 * S), without_the_other(true, 5), &mut out);
    assert!(ask(&mut home, forget(false), &mut out).error.is_none());
    assert_eq!(asked(&out, TallyStage::Forget), [0]);
    assert_eq!(out.facts.jobs[&JobId(1)].members, [0, 1]);
    out = Out::default();
    home.set_homes(Time(40 * S), without_the_other(false, 6), &mut out);
    assert_eq!(asked(&out, TallyStage::Forget), [0, 1]);
    confirm_under(5, false, &mut home, &mut out);
    assert!(out.facts.jobs.is_empty(), "what was confirmed before the map changed is not enough");
    confirm_under(6, false, &mut home, &mut out);
    assert!(out.facts.jobs[&JobId(1)].members.is_empty());
}

/// Job 1, which keeps results, or does not know that yet.
fn keeper(keeps_results: bool) -> Scheduler {
    let history_age = proto::Span(10 * S);
    let mut home = recorded(Tuning { history_age, ..Tuning::default() });
    let mut state = told(&mut home);
    state.settings.get_or_insert_default().keeps_results = keeps_results;
    home.load_job(state);
    home
}

#[test]
fn a_job_that_keeps_results_is_not_forgotten_without_them() {
    let mut home = keeper(true);
    let mut out = Out::default();
    let error = ask(&mut home, forget(false), &mut out).error.expect("refused");
    assert_eq!(error.text, "job 1 keeps results: it is forgotten with them, or not at all");
    assert!(told(&mut home).summary.is_some() && out.facts.jobs.is_empty());
    assert!(ask(&mut home, forget(true), &mut out).error.is_none());
    assert!(ask(&mut home, forget(true), &mut out).error.is_none(), "it may be asked again");
}

#[test]
fn retention_never_drops_a_job_that_keeps_results() {
    // Members report this about an older job when they have removed the rest.
    for (known, told_keeps) in [(true, false), (false, true), (false, false)] {
        let mut home = keeper(known);
        let mut out = Out::default();
        home.act(Time(20 * S), &mut out);
        assert_eq!(asked(&out, TallyStage::Thin), [0, 1]);
        let epoch = home.homes().map_epoch();
        confirm_under(epoch, told_keeps, &mut home, &mut out);
        home.act(Time(1_000 * S), &mut out);
        let dropped = !out.facts.dropped_jobs.is_empty();
        assert_eq!(dropped, !known && !told_keeps, "{known}, {told_keeps}");
    }
}

#[test]
fn a_job_that_ended_before_there_were_summaries_is_thinned_as_well() {
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let history_age = proto::Span(10 * S);
    let tuning = Tuning { history_age, ..Tuning::default() };
    let mut home = test_nodes::scheduler(0, 1, tuning, homes);
    home.load_job(wire::JobState { members: Vec::new(), ..state() });
    let mut out = Out::default();
    home.resume(Time(6 * S), &mut out);
    home.act(Time(20 * S), &mut out);
    assert_eq!(asked(&out, TallyStage::Thin), [0, 1]);
    assert!(asked(&out, TallyStage::Ends).is_empty());
    // Another home takes over before all have confirmed: this is no round to be summarised.
    let thinned = out.facts.jobs[&JobId(1)].clone();
    home.load_job(thinned);
    home.resume(Time(21 * S), &mut out);
    assert!(asked(&out, TallyStage::Ends).is_empty());
    assert_eq!(told(&mut home).summary, None);
}

#[test]
fn no_event_goes_before_a_node_can_know_which_jobs_are_open() {
    let (home, _) = home(Tuning::of(Policy::Mlb));
    assert_eq!(home.history_floor(Time(65 * S)), Time::ZERO);
    assert!(recorded(Tuning::of(Policy::Mlb)).history_floor(Time(66 * S)) > Time(50 * S));
    let members = || (0..2).map(test_nodes::member).collect();
    let other = test_nodes::homes(0, members(), &[1, 1]).moving();
    let mut node = test_nodes::scheduler(0, 1, Tuning::default(), other);
    let mut out = Out::default();
    node.resume(Time(S), &mut out);
    assert!(node.history_floor(Time(100 * S)) > Time(80 * S));
    node.set_homes(Time(100 * S), test_nodes::homes_since(2, 0, members(), &[0, 1]), &mut out);
    assert_eq!(node.history_floor(Time(100 * S)), Time::ZERO, "it does not serve partition 0 yet");
}

#[test]
fn the_clock_of_a_client_does_not_say_which_events_go() {
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut home = test_nodes::scheduler(0, 1, Tuning::default(), homes);
    let open =
        wire::JobState { submitted_ns: 900 * S, committed_ns: 40 * S, ended_ns: 0, ..state() };
    home.load_job(open);
    home.resume(Time(50 * S), &mut Out::default());
    assert_eq!(home.history_floor(Time(200 * S)), Time(30 * S));
}

#[test]
fn a_forgotten_job_leaves_a_mark_and_nothing_else() {
    let mut home = recorded(Tuning::of(Policy::Mlb));
    let mut out = Out::default();
    assert!(ask(&mut home, forget(false), &mut out).error.is_none());
    assert_eq!(asked(&out, TallyStage::Forget), [0, 1]);
    let error = ask(&mut home, query(), &mut out).error.expect("it is forgotten");
    assert_eq!(error.text, "job 1 was forgotten on 1970-01-01");
    let stored = out.facts.jobs[&JobId(1)].clone();
    assert_eq!((stored.total, stored.summary, stored.members), (0, None, vec![0, 1]));
    // Its own request returns to it as to any member.
    let own = out.reliable.iter().find(|(to, _)| to.0 == 0).expect("asked above").1.clone();
    home.on_message(Time(31 * S), NodeId(0), own, &mut out);
    assert_eq!(out.facts.forgotten, [(MINE, JobId(1))]);
    assert_eq!((home.has_ended(JobId(1)), &out.erased[..]), (None, &[(JobId(1), 1)][..]));
    confirm(&mut home, &mut out);
    assert!(out.facts.jobs[&JobId(1)].members.is_empty(), "no member is asked again");
    assert!(ask(&mut home, forget(false), &mut out).error.is_none(), "it is forgotten already");
}

fn confirmed(out: &Out) -> usize {
    let reports = out.reliable.iter().filter(|(_, body)| matches!(body, Body::TallyReport(_)));
    reports.count()
}

#[test]
fn a_member_confirms_when_its_shell_has_removed_what_it_has() {
    let mut home = recorded(Tuning::of(Policy::Mlb));
    let mut out = Out::default();
    assert!(ask(&mut home, forget(false), &mut out).error.is_none());
    let own = out.reliable.iter().find(|(to, _)| to.0 == 0).expect("asked above").1.clone();
    home.on_message(Time(31 * S), NodeId(0), own.clone(), &mut out);
    assert_eq!((&out.erased[..], confirmed(&out)), (&[(JobId(1), 1)][..], 0));
    // Asked again, since more of the job had come: the first removal does not cover that.
    home.on_message(Time(32 * S), NodeId(0), own, &mut out);
    home.on_erased(JobId(1), 1, &mut out);
    assert_eq!(confirmed(&out), 0);
    home.on_erased(JobId(1), 2, &mut out);
    assert_eq!(confirmed(&out), 1);
    home.on_erased(JobId(1), 2, &mut out);
    assert_eq!(confirmed(&out), 1, "once");
}

#[test]
fn very_many_demands_are_made_again_in_portions() {
    let mut home = recorded(Tuning::of(Policy::Mlb));
    let jobs = 1 + 2 * FORGOTTEN_PER_BATCH as u64;
    let forgotten = |job| wire::JobState { job, forgotten_ns: 9, members: vec![1], ..state() };
    (1..=jobs).for_each(|job| home.load_job(forgotten(job)));
    home.resume(Time(31 * S), &mut Out::default());
    let mut out = Out::default();
    home.set_homes(Time(32 * S), without_the_other(false, 5), &mut out);
    let (mut now, mut all) = (Time(32 * S), Vec::new());
    for _ in 0..3 {
        let portion = asked(&std::mem::take(&mut out), TallyStage::Forget);
        assert!((1..=2 * FORGOTTEN_PER_BATCH).contains(&portion.len()));
        all.extend(portion);
        now = now + HISTORY_MORE_INTERVAL;
        home.act(now, &mut out);
    }
    assert_eq!(all.len() as u64, 2 * jobs, "both members hear of each");
    assert!(asked(&out, TallyStage::Forget).is_empty());
}

/// Attempt 7 of the only task of a job that was submitted at 2 s.
fn with_times(times: Vec<u32>) -> wire::TaskState {
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut home = test_nodes::scheduler(0, 1, Tuning::default(), homes);
    home.load_job(state());
    let (specs, tasks) = (vec![wire::Spec::default()], vec![wire::Task::default()]);
    let chunk = wire::Chunk { job: 1, specs, tasks, ..Default::default() };
    let visible = wire::VisibleRecord {
        chunks: 1,
        ended: true,
        settings: settings(),
        submitted_ns: 2 * S,
        ..Default::default()
    };
    let (index, attempt, verdict, node) = (vec![0], vec![7], vec![0], vec![1]);
    let end = wire::EndRecord { index, attempt, verdict, node, times, ..Default::default() };
    let records =
        [LedgerRecord::Chunk(chunk), LedgerRecord::Visible(visible), LedgerRecord::End(end)];
    for record in records {
        home.load(Time(6 * S), MINE, JobId(1), record).expect("records fit one another");
    }
    let list = Request::Tasks(wire::TasksQuery { job: 1, from_start: true, ..Default::default() });
    match ask(&mut home, list, &mut Out::default()).body {
        Some(response::Body::Tasks(mut states)) => states.tasks.remove(0),
        other => panic!("no tasks: {other:?}"),
    }
}

#[test]
fn start_and_end_of_a_task_are_stored_with_its_end() {
    let task = with_times(vec![1 + 1_500, 250_000]);
    assert_eq!((task.started_ns, task.ended_ns), (3_500_000_000, 3_750_000_000));
    let of_an_older_version = with_times(Vec::new());
    assert_eq!((of_an_older_version.started_ns, of_an_older_version.ended_ns), (0, 0));
}

#[test]
fn retention_leaves_the_record_of_a_job_and_refuses_to_retry_it() {
    let history_age = proto::Span(10 * S);
    let mut home = recorded(Tuning { history_age, ..Tuning::default() });
    let summary = told(&mut home).summary;
    let mut out = Out::default();
    home.act(Time(14 * S), &mut out);
    assert!(asked(&out, TallyStage::Thin).is_empty());
    home.act(Time(20 * S), &mut out);
    assert_eq!(asked(&out, TallyStage::Thin), [0, 1]);
    let state = told(&mut home);
    assert_eq!((state.thinned_ns, state.summary), (20 * S, summary));
    let retry = wire::JobRetry { job: 1, round: 1, ..Default::default() };
    let error = ask(&mut home, Request::Retry(retry), &mut out).error.expect("refused");
    assert!(error.text.contains("removed by retention on 1970-01-01"), "{}", error.text);
    confirm(&mut home, &mut out);
    home.act(Time(40 * S), &mut out);
    assert!(out.facts.dropped_jobs.is_empty());
    home.act(Time(105 * S), &mut out);
    assert_eq!(out.facts.dropped_jobs, [JobId(1)], "its record stays ten times as long");
}

/// A former home of a job may still have the commit parked for a home that moves. A home that
/// received it after the job was forgotten would have the job again.
#[test]
fn an_undelivered_commit_is_dropped_when_its_job_is_forgotten() {
    use prost::Message as _;
    let homes = test_nodes::homes(1, (0..2).map(test_nodes::member).collect(), &[0, 1]).moving();
    let mut node = test_nodes::scheduler(1, 1, Tuning::of(Policy::Mlb), homes);
    let mut out = Out::default();
    let total = wire::PartitionTotal { partition: MINE.0, chunks: 1, tasks: 1 };
    let commit = wire::JobCommit { job: 1, partitions: vec![total], ..Default::default() };
    let visible = Body::Visible(wire::Visible { commit: Some(commit), ..Default::default() });
    let message = wire::Message { body: Some(visible) }.encode_to_vec();
    let wrong_owner = Body::WrongOwner(wire::WrongOwner { message });
    node.on_message(Time(S), NodeId(0), wrong_owner, &mut out);
    assert!(!node.routing.undelivered().is_empty(), "it is told again");
    for (job, left) in [(2, true), (1, false)] {
        let stage = TallyStage::Forget as i32;
        let ask = Body::TallyQuery(wire::TallyQuery { job, stage, ..Default::default() });
        node.on_message(Time(S), NodeId(0), ask, &mut out);
        assert_eq!(!node.routing.undelivered().is_empty(), left, "job {job} is forgotten");
    }
}

/// A member that has confirmed receives the commit again, late, and counts its tasks.
#[test]
fn a_node_that_tells_of_a_forgotten_job_is_to_forget_it_again() {
    let mut home = recorded(Tuning::of(Policy::Mlb));
    let mut out = Out::default();
    assert!(ask(&mut home, forget(false), &mut out).error.is_none());
    let epoch = home.homes().map_epoch();
    confirm_under(epoch, false, &mut home, &mut out);
    assert!(out.facts.jobs[&JobId(1)].members.is_empty());
    out = Out::default();
    let count = wire::PartitionCount { partition: 1, version: 9, ..Default::default() };
    let counts = wire::JobCounts { job: 1, partitions: vec![count], ..Default::default() };
    home.on_message(Time(50 * S), NodeId(1), Body::JobCounts(counts), &mut out);
    assert_eq!(asked(&out, TallyStage::Forget), [1]);
    assert_eq!(out.facts.jobs[&JobId(1)].members, [1], "until it has confirmed once more");
}

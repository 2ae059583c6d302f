//! Variables at the home of a job, at a node that runs its tasks, and sums of turns.

use proto::variable::parse_declared;
use proto::wire::message::Body;
use proto::wire::{TurnVerdict, VarValue};
use proto::work::Turn;
use proto::{JobId, NodeId, Time, wire};

use crate::output::Out;
use crate::tests::failover_tests::task;
use crate::tests::test_nodes::{homes, member, scheduler};
use crate::tests::turns_tests::{Home, ME, OTHER};
use crate::{Mutant, Scheduler, Tuning, traits};

const JOB: JobId = JobId(7);

fn variable(index: u32, number: i64) -> wire::Variable {
    let value = VarValue { number, witness: number.to_string().into_bytes(), ..Default::default() };
    wire::Variable { index, value: Some(value), ..wire::Variable::default() }
}

fn declared() -> wire::VarDeclared {
    parse_declared("best=min").expect("it is well formed")
}

/// The home of all jobs.
fn node() -> Scheduler {
    let members = vec![member(0), member(1)];
    scheduler(0, 1, Tuning::default(), homes(0, members, &[0, 1]))
}

/// The home of a job with one variable.
fn home() -> (Scheduler, Out) {
    let (mut home, mut out) = (node(), Out::default());
    let commit = wire::JobCommit {
        job: JOB.0,
        variables: vec![declared()],
        openness: wire::Openness::Open as i32,
        ..wire::JobCommit::default()
    };
    let homes = home.routing.homes();
    home.home.jobs.commit(Time(1), commit, homes, &mut out).expect("it is well formed");
    (home, out)
}

fn set(home: &mut Scheduler, from: NodeId, number: i64, out: &mut Out) -> Vec<wire::VarPush> {
    out.reliable.clear();
    let set = wire::VarSet { job: JOB.0, values: vec![variable(0, number)] };
    home.on_message(Time(1), from, Body::VarSet(set), out);
    home.send_changed_variables(out);
    let pushes = out.reliable.iter().filter(|(to, _)| *to == OTHER).filter_map(|(_, body)| {
        let Body::VarPush(push) = body else { return None };
        assert_eq!(traits(body).durable_before_send, push.synced);
        assert_eq!(traits(body).frees_data, push.synced, "it waits at the home itself too");
        Some(push.clone())
    });
    pushes.collect()
}

fn value(scheduler: &Scheduler) -> Option<i64> {
    Some(scheduler.variables_of(JOB)?[0].value.as_ref()?.number)
}

#[test]
fn a_home_writes_and_announces_only_better_values() {
    let (mut home, mut out) = home();
    let pushes = set(&mut home, OTHER, 5, &mut out);
    let synced: Vec<_> = pushes.iter().map(|it| it.synced).collect();
    assert_eq!(synced, [false, false, true], "all at once, then the better one twice");
    let written = out.facts.variables.take().expect("the value is written");
    let record = written.changed.into_values().next().expect("the value is written");
    assert_eq!(record.value.as_ref().map(|it| it.number), Some(5));
    for worse in [5, 9] {
        let pushes = set(&mut home, OTHER, worse, &mut out);
        assert!(out.facts.variables.is_none(), "{worse} is not better");
        let [push] = &pushes[..] else { panic!("one answer: {pushes:?}") };
        assert!(push.synced, "the answer waits for the sync");
        assert_eq!(push.variables[0].value, record.value);
    }
    assert_eq!(value(&home), Some(5));
}

#[test]
fn a_new_home_reads_the_values_and_asks_the_nodes() {
    let (mut home, mut out) = home();
    set(&mut home, OTHER, 5, &mut out);
    let state = out.facts.jobs[&JOB].clone();
    let record = out.facts.variables.take().expect("it is written").changed;
    let (mut next, mut out) = (node(), Out::default());
    next.load_job(state);
    for ((job, _), variable) in record {
        next.load_variable(job, variable);
    }
    next.resume(Time(1), &mut out);
    assert_eq!(value(&next), Some(5));
    let asked = |(to, body): &(NodeId, Body)| {
        *to == OTHER && matches!(body, Body::VarPush(push) if push.asks && push.synced)
    };
    assert!(out.reliable.iter().any(asked));
}

/// A home of tasks of a job, the home of which announces this value.
fn push(home: &mut Home, number: i64, synced: bool) {
    let mut push = wire::VarPush { job: task().job.0, synced, ..wire::VarPush::default() };
    push.variables = vec![wire::Variable { declared: Some(declared()), ..variable(0, number) }];
    home.scheduler.on_message(Time(1), OTHER, Body::VarPush(push), &mut home.out);
}

fn answers(home: &mut Home) -> usize {
    home.step();
    home.sync();
    std::mem::take(&mut home.out.turn_answers).len()
}

/// Whether a turn is held back while its node knows a value that is not synced.
pub(super) fn a_turn_waits_for_a_value(mutant: Option<Mutant>) -> bool {
    let mut home = Home::with(mutant);
    home.scheduler.holder.variables_mut().insert(task().job, Default::default());
    push(&mut home, 5, false);
    home.turn(Turn { verdict: TurnVerdict::TurnMore, ..Turn::default() });
    answers(&mut home) == 0
}

#[test]
fn a_turn_waits_until_the_values_before_it_are_synced() {
    let mut home = Home::with(None);
    let jobs = home.scheduler.holder.variables_mut();
    jobs.insert(task().job, Default::default());
    push(&mut home, 5, false);
    let more = || Turn { verdict: TurnVerdict::TurnMore, ..Turn::default() };
    home.turn(more());
    assert_eq!(answers(&mut home), 0, "5 may be lost");
    push(&mut home, 3, false);
    push(&mut home, 4, true);
    assert_eq!(answers(&mut home), 1, "4 is synced, and the turn began before 3 was known");
    home.turn(more());
    assert_eq!(answers(&mut home), 0, "3 may be lost");
    push(&mut home, 3, true);
    assert_eq!(answers(&mut home), 1);
}

/// A turn that is repeated counts once, a fenced one not at all; also for the next home.
pub(super) fn sums_of_turns_count_once(mutant: Option<Mutant>) -> bool {
    let mut home = Home::with(mutant);
    let sum = |home: &Home| {
        let (count, _) = home.scheduler.home.ledger.counts(task());
        count.sums.iter().map(|it| it.sum()).sum::<i128>()
    };
    let turn = |seq, number| wire::Turn {
        job: task().job.0,
        local: task().local.0,
        attempt: home.attempt().0,
        seq,
        number,
        verdict: TurnVerdict::TurnMore as i32,
        sums: vec![wire::VarSum::new(0, 4)],
        ..wire::Turn::default()
    };
    let (first, gap) = (turn(1, 1), turn(3, 2));
    for turn in [&first, &first, &gap] {
        let body = Body::Turn(Box::new(turn.clone()));
        home.scheduler.on_message(Time(1), ME, body, &mut home.out);
        home.step();
    }
    sum(&home) == 4 && sum(&home.next()) == 4
}

#[test]
fn sums_of_turns_count_once_also_for_the_next_home() {
    assert!(sums_of_turns_count_once(None));
}

#[test]
fn a_new_reader_gets_all_values_at_once_and_again_when_they_are_synced() {
    let (mut home, mut out) = home();
    let ask = wire::VarSet { job: JOB.0, values: Vec::new() };
    home.on_message(Time(1), OTHER, Body::VarSet(ask), &mut out);
    let synced = |(to, body): &(NodeId, Body)| match body {
        Body::VarPush(push) if *to == OTHER => {
            assert_eq!(push.variables.len(), 1, "all variables");
            Some(push.synced)
        }
        _ => None,
    };
    let synced: Vec<bool> = out.reliable.iter().filter_map(synced).collect();
    assert_eq!(synced, [false, true]);
}

#[test]
fn a_home_announces_only_the_best_value_of_a_step() {
    let (mut home, mut out) = home();
    set(&mut home, OTHER, 9, &mut out);
    out.reliable.clear();
    for number in [8, 5, 7] {
        let set = wire::VarSet { job: JOB.0, values: vec![variable(0, number)] };
        home.on_message(Time(1), ME, Body::VarSet(set), &mut out);
    }
    home.send_changed_variables(&mut out);
    let pushed = out.reliable.iter().filter_map(|(to, body)| match body {
        Body::VarPush(push) if *to == OTHER => {
            Some((push.variables[0].value.as_ref()?.number, push.synced))
        }
        _ => None,
    });
    assert_eq!(pushed.collect::<Vec<_>>(), [(5, false), (5, true)]);
}

#[test]
fn a_list_of_jobs_has_no_values_and_a_watch_no_witnesses() {
    let (mut home, mut out) = home();
    let client = proto::ClientId(3);
    home.home.jobs.watch(JOB, client, 1, &mut out);
    out.answers.clear();
    set(&mut home, OTHER, 5, &mut out);
    let told = out.answers.pop().and_then(|answer| match answer.response.body {
        Some(wire::response::Body::Job(state)) => state.variables[0].value.clone(),
        _ => None,
    });
    assert_eq!(told, Some(VarValue { number: 5, ..VarValue::default() }));
    assert!(home.home.jobs.summaries().all(|state| state.variables.is_empty()));
}

#[test]
fn the_end_of_an_attempt_waits_without_its_slot() {
    let mut home = Home::with(None);
    home.scheduler.holder.variables_mut().insert(task().job, Default::default());
    push(&mut home, 5, false);
    let is_done = |home: &mut Home| {
        home.step();
        home.sync();
        home.scheduler.holder.running().is_empty()
    };
    let seat = |home: &Home| home.scheduler.holder.running()[&task()].has_seat();
    assert!(seat(&home));
    for _ in 0..2 {
        home.finish(task());
        assert!(!is_done(&mut home), "its end waits for the sync of 5");
        assert!(!seat(&home));
    }
    push(&mut home, 5, true);
    assert!(is_done(&mut home));
}

#[test]
fn the_end_of_a_round_drops_the_values_here() {
    let mut home = Home::with(None);
    home.scheduler.holder.variables_mut().insert(task().job, Default::default());
    push(&mut home, 5, true);
    home.out.variables = None;
    home.scheduler.forget_data(task().job, true, &mut home.out);
    let news = home.out.variables.take().expect("the shell drops them as well");
    assert_eq!(news.changed, [(task().job, None)]);
}

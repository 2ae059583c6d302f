//! Children that name children of earlier turns of their parent.

use proto::wire::TurnVerdict;
use proto::work::{Outcome, Turn, TurnAnswer};
use proto::{TaskId, Time, wire};

use crate::tests::failover_tests::task;
use crate::tests::turns_tests::{Home, child, spawned, turn, wait};

/// A turn with one child that has these outputs, and waits for it.
fn makes(outputs: &[(&str, bool)]) -> Turn {
    let mut made = wait(1, &[0]);
    let output = |&(file, keep): &(&str, bool)| wire::Output {
        file: file.to_owned(),
        keep,
        ..wire::Output::default()
    };
    made.spawned.specs[0].outputs = outputs.iter().map(output).collect();
    made.spawned.tasks[0].entry = 7;
    made
}

/// A turn with one child that names child `parent`, and waits for it.
fn reads(parent: u64, file: &str) -> Turn {
    let mut reader = wait(1, &[1]);
    reader.spawned = names(parent, file, 0);
    reader
}

fn names(parent: u64, file: &str, form: i32) -> wire::Spawned {
    let mut spawned = spawned(1);
    spawned.tasks[0].slots = 1;
    let (child, slot, output) = (vec![0], vec![0], 0);
    spawned.inputs =
        vec![wire::SpawnInput { parent, file: file.to_owned(), output, child, slot, form }];
    spawned
}

fn fail(home: &mut Home, task: TaskId) {
    let attempt = home.scheduler.home.ledger.cell(task).expect("it is homed here").attempt();
    let failed = Outcome { error: "no".to_owned(), exit_code: 1, ..Outcome::default() };
    home.scheduler.on_finished(Time(1), task, attempt, Box::new(failed), &mut home.out);
    home.step();
    home.sync();
}

#[test]
fn an_ended_child_is_read_once_the_turn_of_its_reader_is_synced() {
    let mut home = Home::with(None);
    home.launched();
    home.turn(makes(&[("other", true), ("part-{i}", true)]));
    home.sync();
    assert_eq!(home.launched(), [child(1)]);
    home.finish(child(1));
    assert_eq!(home.launched(), [task()]);
    home.turn(reads(0, "part-7"));
    assert_eq!(home.launched(), [], "the slot is free, and nothing is synced");
    home.sync();
    let reader = home.out.launches.pop().expect("its input is there");
    assert_eq!(reader.task, child(2));
    let inputs: Vec<_> = reader.inputs.iter().map(|it| (it.slot, it.object.output)).collect();
    assert_eq!(inputs, [(0, 1)]);
    home.finish(child(2));
    assert_eq!(home.launched(), [task()]);
}

#[test]
fn each_later_home_knows_the_reader_of_an_earlier_child() {
    let mut home = Home::with(None);
    home.launched();
    // The first child is still open when its reader is made.
    home.turn(Turn { verdict: TurnVerdict::TurnMore, awaits: vec![], ..makes(&[("part", true)]) });
    home.sync();
    home.turn(reads(0, "part"));
    let mut home = home.next();
    home.sync();
    assert_eq!(home.launched(), [child(1)], "the reader waits for it");
    home.finish(child(1));
    assert_eq!(home.launched(), [child(2)]);
    let mut home = home.next();
    assert_eq!(home.launched(), [child(2)], "it was held by the last home");
    home.finish(child(2));
    assert_eq!(home.launched(), [task()]);
}

#[test]
fn a_reader_of_a_failed_child_is_skipped() {
    let mut home = Home::with(None);
    home.launched();
    home.turn(makes(&[("part", true)]));
    home.sync();
    assert_eq!(home.launched(), [child(1)]);
    fail(&mut home, child(1));
    assert_eq!(home.launched(), [task()]);
    home.turn(reads(0, "part"));
    home.sync();
    home.sync();
    let state = home.scheduler.home.ledger.task_state(child(2)).expect("it exists");
    assert_eq!(state.phase(), wire::TaskPhase::TaskSkipped);
    assert_eq!(home.launched(), [task()], "its wait is over");
}

#[test]
fn what_a_child_does_not_have_is_refused() {
    let mut home = Home::with(None);
    home.launched();
    home.turn(makes(&[("part", true), ("log", false)]));
    home.sync();
    home.finish(child(1));
    home.launched();
    for (parent, file, form, why) in [
        (1, "part", 0, "earlier turns have spawned no child 1"),
        (0, "none", 0, "no output 'none'; hint: its outputs are: part, log"),
        (0, "log", 0, "does not keep its output 'log'"),
        (0, "part", 1, "is a file; hint: write 0:part"),
    ] {
        let bad = Turn { spawned: names(parent, file, form), ..turn(TurnVerdict::TurnMore, 0) };
        home.turn(bad);
        home.sync();
        let answer = home.out.turn_answers.pop().map(|(_, _, answer)| answer);
        let Some(TurnAnswer::Refused(error)) = answer else { panic!("{answer:?}") };
        assert!(error.contains(why), "{error}");
    }
    let mut twice = turn(TurnVerdict::TurnMore, 0);
    twice.spawned = names(0, "part", 0);
    twice.spawned.inputs.push(twice.spawned.inputs[0].clone());
    home.turn(twice);
    home.sync();
    let answer = home.out.turn_answers.pop().map(|(_, _, answer)| answer);
    assert!(matches!(answer, Some(TurnAnswer::Refused(_))), "{answer:?}");
}

#[test]
fn kept_outputs_of_spawned_tasks_are_listed_and_counted() {
    let mut home = Home::with(None);
    home.launched();
    assert!(!home.scheduler.home.ledger.counts(task()).0.keeps);
    home.turn(makes(&[("log", false), ("part-{i}", true)]));
    home.sync();
    let home = home.next();
    let ledger = &home.scheduler.home.ledger;
    assert!(ledger.counts(task()).0.keeps);
    let query = wire::TasksQuery { job: 1, from_start: true, kept: true, ..Default::default() };
    let listed = ledger.list(&query).tasks;
    let kept: Vec<_> = listed.iter().map(|it| (it.local, it.kept.as_slice())).collect();
    let part = wire::KeptFile { output: 1, file: "part-7".to_owned(), form: 0 };
    assert_eq!(kept, [(task().local.0, &[][..]), (child(1).local.0, &[part])]);
    let unasked = ledger.list(&wire::TasksQuery { kept: false, ..query }).tasks;
    assert!(unasked.iter().all(|it| it.parents.is_empty()));
    assert!(unasked.iter().all(|it| it.kept.is_empty()));
}

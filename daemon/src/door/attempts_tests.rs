//! Tests of tokens and turns.

use proto::wire::spec;
use proto::work::TurnCommit;
use proto::{JobId, PartitionId};
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::limits::WAITING_COMMANDS_MAX;

const TASK: TaskId = TaskId { job: JobId(7), local: LocalId(3) };
const KEY: Key = (TASK, Attempt(1));
const NEXT: Key = (TASK, Attempt(2));

fn token() -> Token {
    Token::draw().unwrap()
}

/// An attempt that runs.
fn running() -> (Attempts, Token) {
    let (mut attempts, token) = (Attempts::default(), token());
    attempts.enter(KEY, token, 0, None);
    (attempts, token)
}

fn call(key: &str) -> wire::DoorSpawn {
    let argv = vec!["true".to_owned()];
    let body = spec::Body::Command(wire::Command { argv, ..wire::Command::default() });
    wire::DoorSpawn {
        key: key.to_owned(),
        spec: Some(wire::Spec { body: Some(body), ..wire::Spec::default() }),
        entries: vec![wire::EntryRange { first: 0, last: 0 }],
        after: vec![],
        inputs: vec![],
    }
}

fn child(ordinal: u64) -> wire::TaskRef {
    wire::TaskRef { task: Some(task_ref::Task::Child(ordinal)) }
}

fn commit(bytes: usize) -> wire::DoorCommit {
    wire::DoorCommit { state: Some(vec![1; bytes]), ..wire::DoorCommit::default() }
}

fn committed(seq: u64) -> TurnAnswer {
    TurnAnswer::Committed(TurnCommit { seq, ..TurnCommit::default() })
}

fn ended(children: &[u64]) -> Vec<wire::Awaited> {
    let one = |&child| wire::Awaited { local: 40 + child, child: child + 1, ..Default::default() };
    children.iter().map(one).collect()
}

fn failed(exit_code: i32) -> Outcome {
    Outcome { error: "e".to_owned(), exit_code, ..Outcome::default() }
}

/// An attempt with two children that waits for them without a slot.
fn parked() -> (Attempts, Token, oneshot::Receiver<Answer>) {
    let (mut attempts, token) = running();
    attempts.spawn(token, call("")).unwrap();
    attempts.spawn(token, call("")).unwrap();
    let (turn, answer) = attempts.wait(token, vec![child(1), child(0)]).unwrap();
    assert_eq!((turn.turn.verdict, turn.turn.spawned.tasks.len()), (TurnVerdict::TurnWait, 2));
    assert_eq!(attempts.answered(KEY, committed(1)), Order::Park);
    assert!(attempts.is_parked(KEY) && !attempts.is_parked(NEXT));
    (attempts, token, answer)
}

#[test]
fn tokens_are_of_one_attempt_and_end_with_it() {
    let (mut attempts, token) = running();
    assert_eq!(attempts.spawn(token, call("")).unwrap().first, 0);
    let other = self::token();
    assert_ne!(token, other);
    assert_eq!(attempts.spawn(other, call("")).unwrap_err(), Refusal::no_token());
    // Another attempt of the task has another token.
    attempts.remove(KEY);
    attempts.enter(NEXT, other, 0, None);
    assert_eq!(attempts.spawn(token, call("")).unwrap_err(), Refusal::no_token());
    assert_eq!(attempts.commit(token, commit(1)).unwrap_err(), Refusal::no_token());
    assert_eq!(attempts.spawn(other, call("")).unwrap().first, 0);
    attempts.ended(NEXT, &mut Outcome::default());
    assert_eq!(attempts.spawn(other, call("")).unwrap_err(), Refusal::no_token());
    assert_eq!(attempts.len(), [0, 0, 0]);
    assert_eq!(format!("{token:?}"), "Token(..)");
}

#[test]
fn children_leave_in_the_next_turn() {
    let (mut attempts, token) = running();
    attempts.spawn(token, call("a")).unwrap();
    let (turn, mut answer) = attempts.commit(token, commit(5)).unwrap();
    let Turn { verdict, spawned, state, .. } = *turn.turn;
    assert_eq!((verdict, spawned.tasks.len()), (TurnVerdict::TurnMore, 1));
    assert_eq!(state, Some(vec![1; 5]));
    // One turn at a time.
    assert!(attempts.commit(token, commit(1)).is_err());
    assert!(attempts.spawn(token, call("b")).is_err());
    assert_eq!(attempts.answered(KEY, committed(1)), Order::Nothing);
    assert_eq!(answer.try_recv().unwrap(), Ok(Accepted::Committed(1)));
    attempts.spawn(token, call("b")).unwrap();
    // A good end takes the rest along.
    let mut outcome = Outcome::default();
    assert_eq!(attempts.ended(KEY, &mut outcome), End::Reported);
    let turn = outcome.turn.unwrap();
    assert_eq!((turn.verdict, &*turn.spawned.keys[0].key), (TurnVerdict::TurnDone, "b"));
}

#[test]
fn sums_leave_once_in_the_next_turn() {
    let (mut attempts, token) = running();
    let sums = |turn: &Turn| turn.sums.iter().map(wire::VarSum::sum).collect::<Vec<_>>();
    attempts.add(token, wire::VarSum::new(2, 3)).unwrap();
    attempts.add(token, wire::VarSum::new(2, 4)).unwrap();
    let (turn, _answer) = attempts.commit(token, commit(1)).unwrap();
    assert_eq!(sums(&turn.turn), [7]);
    assert!(attempts.add(token, wire::VarSum::new(2, 1)).is_err(), "a turn is under way");
    attempts.answered(KEY, TurnAnswer::Refused("no".to_owned()));
    let (turn, _answer) = attempts.commit(token, commit(1)).unwrap();
    assert_eq!(sums(&turn.turn), [7], "the refused turn did not count");
    attempts.answered(KEY, committed(1));
    attempts.add(token, wire::VarSum::new(2, -1)).unwrap();
    // A good end takes the rest along, also without children.
    let mut outcome = Outcome::default();
    attempts.ended(KEY, &mut outcome);
    assert_eq!(sums(&outcome.turn.unwrap()), [-1]);
}

#[test]
fn a_failed_attempt_leaves_no_children() {
    let (mut attempts, token) = running();
    attempts.spawn(token, call("")).unwrap();
    let mut outcome = failed(1);
    attempts.ended(KEY, &mut outcome);
    assert_eq!((outcome.turn, attempts.len()), (None, [0, 0, 0]));
    // Without children the end is as that of any task.
    let (mut attempts, _) = running();
    let mut outcome = Outcome::default();
    assert_eq!(attempts.ended(KEY, &mut outcome), End::Reported);
    assert_eq!(outcome, Outcome::default());
}

#[test]
fn a_command_waits_until_the_next_attempt_of_its_task() {
    let (mut attempts, token, mut answer) = parked();
    assert!(answer.try_recv().is_err(), "it waits");
    for refused in [
        attempts.spawn(token, call("")).map(|_| ()),
        attempts.wait(token, vec![]).map(|_| ()),
        attempts.commit(token, commit(1)).map(|_| ()),
    ] {
        assert!(refused.unwrap_err().text().contains("no slot"));
    }
    let resume = wire::Resume { seq: 1, awaited: ended(&[0, 1]), ..Default::default() };
    assert_eq!(attempts.parked(TASK, &resume), Some((Attempt(1), true)));
    assert!(attempts.adopt(KEY, Attempt(2), &resume));
    assert!(attempts.has(NEXT) && !attempts.has(KEY));
    assert!(answer.try_recv().is_err() && attempts.spawn(token, call("")).is_err());
    attempts.release(NEXT);
    assert_eq!(answer.try_recv().unwrap(), Ok(Accepted::Awaited(ended(&[1, 0]))));
    // It has its token and its children still, as another attempt.
    assert_eq!(attempts.spawn(token, call("")).unwrap().first, 2);
    assert_eq!(attempts.len(), [1, 1, 0]);
    let mut outcome = Outcome::default();
    assert_eq!(attempts.ended(NEXT, &mut outcome), End::Reported);
    assert!(outcome.turn.is_some());
}

#[test]
fn a_wait_for_ended_tasks_does_not_park() {
    let (mut attempts, token) = running();
    attempts.spawn(token, call("")).unwrap();
    let (_, mut answer) = attempts.wait(token, vec![]).unwrap();
    let commit = TurnCommit { seq: 1, awaited: Some(ended(&[0])), ..TurnCommit::default() };
    assert_eq!(attempts.answered(KEY, TurnAnswer::Committed(commit)), Order::Nothing);
    assert_eq!(answer.try_recv().unwrap(), Ok(Accepted::Awaited(ended(&[0]))));
    assert!(attempts.spawn(token, call("")).is_ok());
}

#[test]
fn a_wait_for_a_task_that_the_job_does_not_have_is_an_error() {
    let (mut attempts, token) = running();
    let nowhere = LocalId::new(PartitionId(17), 3).0;
    let named = wire::TaskRef { task: Some(task_ref::Task::Local(nowhere)) };
    let (_, mut answer) = attempts.wait(token, vec![named]).unwrap();
    let end = wire::Awaited { local: nowhere, unknown: true, ..wire::Awaited::default() };
    let commit = TurnCommit { seq: 1, awaited: Some(vec![end]), ..TurnCommit::default() };
    assert_eq!(attempts.answered(KEY, TurnAnswer::Committed(commit)), Order::Nothing);
    let refused = answer.try_recv().unwrap().unwrap_err();
    assert_eq!(refused.text(), "the job has no task 17.3");
}

#[test]
fn a_parked_command_of_an_earlier_turn_is_replaced() {
    let (mut attempts, token, mut answer) = parked();
    // The task has run elsewhere meanwhile.
    let resume = wire::Resume { seq: 3, ..Default::default() };
    assert_eq!(attempts.parked(TASK, &resume), Some((Attempt(1), false)));
    assert_eq!(attempts.parked_of(JobId(7)), [KEY]);
    assert_eq!(attempts.parked_of(JobId(8)), []);
    attempts.remove(KEY);
    assert_eq!(attempts.parked(TASK, &resume), None);
    assert!(answer.try_recv().is_err());
    assert_eq!(attempts.spawn(token, call("")).unwrap_err(), Refusal::no_token());
}

#[test]
fn a_process_that_dies_while_it_waits_runs_again() {
    // Parked, the attempt is over already.
    let (mut attempts, ..) = parked();
    assert_eq!(attempts.ended(KEY, &mut failed(137)), End::Over);
    assert_eq!(attempts.len(), [0, 0, 0]);
    // While the turn is under way it is not.
    let end = |mut outcome: Outcome| {
        let (mut attempts, token) = running();
        attempts.spawn(token, call("")).unwrap();
        let _answer = attempts.wait(token, vec![]).unwrap();
        assert_eq!(attempts.ended(KEY, &mut outcome), End::Reported);
        assert_eq!(outcome.turn, None);
        outcome
    };
    assert!(end(failed(137)).lost);
    for outcome in [end(Outcome::default()), end(failed(1))] {
        assert!(!outcome.lost && outcome.error.contains("ended while"), "{outcome:?}");
    }
}

#[test]
fn a_command_that_cannot_go_on_keeps_the_reason() {
    let end = |mut outcome: Outcome| {
        let (mut attempts, _, _answer) = parked();
        assert!(attempts.adopt(KEY, Attempt(2), &wire::Resume::default()));
        assert_eq!(attempts.ended(NEXT, &mut outcome), End::Reported);
        assert_eq!((outcome.turn.as_ref(), attempts.len()), (None, [0, 0, 0]));
        outcome
    };
    assert_eq!(end(failed(1)), failed(1));
    assert!(end(failed(137)).lost);
    assert!(end(Outcome::default()).error.contains("ended while"));
}

#[test]
fn an_attempt_ends_if_its_waiting_command_has_gone() {
    let (mut attempts, token, answer) = parked();
    assert_eq!(attempts.abandon(token), None);
    drop(answer);
    assert_eq!(attempts.abandon(token), Some((KEY, End::Over)));
    assert_eq!(attempts.abandon(token), None);
    assert_eq!(attempts.len(), [0, 0, 0]);
    assert!(!attempts.adopt(KEY, Attempt(2), &wire::Resume::default()));
    // As the next attempt already, before its slot lets it go on.
    let (mut attempts, token, answer) = parked();
    assert!(attempts.adopt(KEY, Attempt(2), &wire::Resume::default()));
    drop(answer);
    assert_eq!(attempts.abandon(token), Some((NEXT, End::Reported)));
    assert!(!attempts.has(NEXT));
    let (mut attempts, token) = running();
    attempts.spawn(token, call("")).unwrap();
    drop(attempts.wait(token, vec![]).unwrap());
    assert_eq!(attempts.abandon(token), Some((KEY, End::Reported)));
}

#[test]
fn refused_turns_leave_the_attempt_as_it_was() {
    let (mut attempts, token) = running();
    attempts.spawn(token, call("a")).unwrap();
    let (_, mut answer) = attempts.commit(token, commit(1)).unwrap();
    assert_eq!(attempts.answered(KEY, TurnAnswer::Refused("no".to_owned())), Order::Nothing);
    assert!(answer.try_recv().unwrap().unwrap_err().text().contains("no"));
    attempts.spawn(token, call("b")).unwrap();
    let large = attempts.commit(token, commit(limits::TURN_STATE_BYTES_MAX + 1)).unwrap_err();
    assert!(large.text().contains("at most 65536"), "{large:?}");
    let (turn, mut answer) = attempts.commit(token, commit(1)).unwrap();
    assert_eq!(turn.turn.spawned.tasks.len(), 2);
    assert_eq!(attempts.answered(KEY, TurnAnswer::Fenced), Order::Kill);
    let fenced = answer.try_recv().unwrap().unwrap_err();
    assert_eq!(fenced.why(), wire::DoorRefusal::Fenced);
    assert_eq!(attempts.len(), [0, 0, 0]);
}

#[test]
fn a_yield_ends_the_attempt() {
    let (mut attempts, token) = running();
    let commit = wire::DoorCommit { r#yield: true, ..commit(1) };
    let (turn, mut answer) = attempts.commit(token, commit).unwrap();
    assert_eq!(turn.turn.verdict, TurnVerdict::TurnYield);
    assert_eq!(attempts.answered(KEY, committed(1)), Order::Kill);
    assert_eq!(answer.try_recv(), Err(TryRecvError::Closed), "no answer");
    assert_eq!(attempts.len(), [0, 0, 0]);
}

#[test]
fn waiting_commands_are_bounded() {
    let mut attempts = Attempts::default();
    for task in 0..WAITING_COMMANDS_MAX as u64 {
        let key = (TaskId::new(7, task), Attempt(1));
        let token = token();
        attempts.enter(key, token, 0, None);
        attempts.spawn(token, call("")).unwrap();
        let _answer = attempts.wait(token, vec![]).unwrap();
        assert_eq!(attempts.answered(key, committed(1)), Order::Park);
    }
    let token = token();
    attempts.enter((TaskId::new(8, 0), Attempt(1)), token, 0, None);
    attempts.spawn(token, call("")).unwrap();
    assert!(attempts.wait(token, vec![]).unwrap_err().text().contains("2048 commands"));
}

fn letter(number: u64) -> wire::Letter {
    wire::Letter { number, from: 40, to: TASK.local.0, data: vec![number as u8] }
}

fn receive() -> wire::DoorReceive {
    wire::DoorReceive::default()
}

/// The letter that the node had; the begun wait otherwise.
fn received(receipt: Receipt) -> Result<u64, (Box<Turn>, oneshot::Receiver<Answer>)> {
    match receipt {
        Receipt::Letter(letter) => Ok(letter.number),
        Receipt::Waits(AttemptTurn { turn, .. }, answer) => Err((turn, answer)),
    }
}

#[test]
fn events_of_the_launch_are_received_without_a_turn_and_consumed_by_the_next() {
    let (mut attempts, token) = (Attempts::default(), token());
    let resume = wire::Resume { letters: vec![letter(3), letter(4)], ..wire::Resume::default() };
    attempts.enter(KEY, token, 0, Some(&resume));
    assert_eq!(received(attempts.receive(token, receive()).unwrap()).unwrap(), 3);
    let named = wire::MailName { task: Some(wire::mail_name::Task::Local(99)) };
    attempts.send(token, named, vec![1]).unwrap();
    let from = wire::DoorReceive { from: Some(named), ..receive() };
    let (turn, mut answer) = received(attempts.receive(token, from).unwrap()).unwrap_err();
    assert_eq!((turn.verdict, &turn.consumed[..]), (TurnVerdict::TurnWait, &[3][..]));
    assert_eq!((turn.events.len(), turn.mail_wait.is_some()), (1, true));
    let refused = TurnAnswer::Refused("no".to_owned());
    assert_eq!(attempts.answered(KEY, refused), Order::Nothing);
    assert!(answer.try_recv().unwrap().is_err());
    // The refused turn has consumed and sent nothing.
    let (turn, _) = attempts.commit(token, commit(1)).unwrap();
    assert_eq!((&turn.turn.consumed[..], turn.turn.events.len()), (&[3][..], 1));
}

#[test]
fn a_command_that_waits_for_an_event_gets_it_in_the_next_attempt() {
    let (mut attempts, token) = running();
    let with_state = wire::DoorReceive { state: Some(vec![1]), ..receive() };
    let (turn, mut answer) = received(attempts.receive(token, with_state).unwrap()).unwrap_err();
    assert_eq!(turn.state, Some(vec![1]));
    assert_eq!(attempts.answered(KEY, committed(1)), Order::Park);
    let resume =
        wire::Resume { seq: 1, letters: vec![letter(5), letter(6)], ..wire::Resume::default() };
    assert!(attempts.adopt(KEY, NEXT.1, &resume));
    attempts.release(NEXT);
    assert_eq!(answer.try_recv().unwrap(), Ok(Accepted::Received(Some(letter(5)))));
    assert_eq!(received(attempts.receive(token, receive()).unwrap()).unwrap(), 6);
    // The time of the next wait is over before an event comes.
    let (turn, mut answer) = received(attempts.receive(token, receive()).unwrap()).unwrap_err();
    assert_eq!(turn.consumed, [5, 6]);
    let nothing = TurnCommit { seq: 2, awaited: Some(Vec::new()), ..TurnCommit::default() };
    assert_eq!(attempts.answered(NEXT, TurnAnswer::Committed(nothing)), Order::Nothing);
    assert_eq!(answer.try_recv().unwrap(), Ok(Accepted::Received(None)));
}

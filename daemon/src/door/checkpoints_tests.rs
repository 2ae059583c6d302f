//! Tests of checkpoints of ended commands.

use std::time::Duration;

use proto::work::{Outcome, TurnCommit};
use proto::{Attempt, TaskId, wire};

use super::*;
use crate::door::attempts::{End, Order};
use crate::door::token::Token;

const KEY: Key = (TaskId { job: proto::JobId(7), local: proto::LocalId(3) }, Attempt(1));

fn running() -> (Attempts, Token) {
    let (mut attempts, token) = (Attempts::default(), Token::draw().unwrap());
    attempts.enter(KEY, token, 0, None);
    (attempts, token)
}

fn ended(error: &str) -> AttemptOutcome {
    AttemptOutcome {
        task: KEY.0,
        attempt: KEY.1,
        outcome: Outcome { error: error.to_owned(), exit_code: 75, ..Outcome::default() },
        checkpoint: Some(b"files".to_vec()),
        doubt: Duration::ZERO,
    }
}

fn committed(seq: u64) -> TurnAnswer {
    TurnAnswer::Committed(TurnCommit { seq, ..TurnCommit::default() })
}

#[test]
fn the_end_is_reported_after_the_checkpoint() {
    let (mut attempts, _) = running();
    let mut end = ended("exited with code 75");
    let turn = attempts.commit_checkpoint(&mut end).unwrap().unwrap();
    assert_eq!(
        (turn.turn.verdict, turn.turn.state),
        (TurnVerdict::TurnMore, Some(b"files".into()))
    );
    let Some(Next::Report(mut end)) = attempts.checkpoint_answered(KEY, &committed(1)) else {
        panic!()
    };
    assert_eq!(end.outcome.error, "exited with code 75");
    assert_eq!(attempts.ended(KEY, &mut end.outcome), End::Reported);
    assert_eq!(attempts.len(), [0, 0, 0]);
    // An attempt without a checkpoint, or one that the door does not know, is reported at once.
    assert!(attempts.commit_checkpoint(&mut ended("e")).is_none());
    let (mut attempts, _) = running();
    assert!(
        attempts
            .commit_checkpoint(&mut AttemptOutcome { checkpoint: None, ..ended("e") })
            .is_none()
    );
}

#[test]
fn children_of_a_failed_attempt_do_not_leave_with_its_checkpoint() {
    let (mut attempts, token) = running();
    let spec = wire::Spec {
        body: Some(wire::spec::Body::Command(wire::Command {
            argv: vec!["true".to_owned()],
            ..wire::Command::default()
        })),
        ..wire::Spec::default()
    };
    let entries = vec![wire::EntryRange { first: 0, last: 0 }];
    let call = wire::DoorSpawn { spec: Some(spec), entries, ..wire::DoorSpawn::default() };
    attempts.spawn(token, call).unwrap();
    let turn = attempts.commit_checkpoint(&mut ended("e")).unwrap().unwrap();
    assert!(turn.turn.spawned.tasks.is_empty());
}

#[test]
fn a_checkpoint_waits_for_the_turn_under_way() {
    let (mut attempts, token) = running();
    let commit = wire::DoorCommit { state: Some(vec![1]), ..wire::DoorCommit::default() };
    let (_, _answer) = attempts.commit(token, commit).unwrap();
    assert!(attempts.commit_checkpoint(&mut ended("e")).unwrap().is_none());
    let Some(Next::Turn(turn)) = attempts.checkpoint_answered(KEY, &committed(1)) else { panic!() };
    assert_eq!(turn.turn.state, Some(b"files".into()));
    let refused = TurnAnswer::Refused("no room".to_owned());
    let Some(Next::Report(end)) = attempts.checkpoint_answered(KEY, &refused) else { panic!() };
    assert_eq!(end.outcome.error, "e; its checkpoint was refused: no room");
}

#[test]
fn an_attempt_that_is_over_reports_nothing() {
    let (mut attempts, token) = running();
    attempts.commit_checkpoint(&mut ended("e")).unwrap();
    assert!(attempts.commit(token, wire::DoorCommit::default()).is_err(), "its command is gone");
    assert!(matches!(attempts.checkpoint_answered(KEY, &TurnAnswer::Fenced), Some(Next::Nothing)));
    assert_eq!(attempts.len(), [0, 0, 0]);
    let (mut attempts, _) = running();
    attempts.commit_checkpoint(&mut ended("e")).unwrap();
    attempts.remove(KEY);
    assert!(attempts.checkpoint_answered(KEY, &committed(1)).is_none());
    assert_eq!(attempts.answered(KEY, committed(1)), Order::Nothing);
}

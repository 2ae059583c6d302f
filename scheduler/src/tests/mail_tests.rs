//! Events between tasks at one home: what a mailbox has, when it is read, and what a later
//! home knows.

use proto::limits::{EVENT_BYTES_MAX, MAILBOX_EVENTS_MAX, TURN_EVENTS_MAX};
use proto::wire::mail_name::Task as Named;
use proto::wire::message::Body;
use proto::wire::{MailName, MailWait, TurnVerdict};
use proto::work::{Turn, TurnAnswer};
use proto::{LocalId, NodeId, PartitionId, TaskId, Time, wire};

use super::turns_tests::{Home, ME, OTHER, child, turn};
use crate::Mutant;
use crate::tests::failover_tests::{MOVES, task};

/// The partition of another home.
const AWAY: PartitionId = PartitionId(0);

fn to(task: Named) -> Option<MailName> {
    Some(MailName { task: Some(task) })
}

fn event(receiver: Named, byte: u8) -> wire::TurnEvent {
    wire::TurnEvent { to: to(receiver), data: vec![byte] }
}

fn own(byte: u8) -> wire::TurnEvent {
    event(Named::Local(task().local.0), byte)
}

fn sends(verdict: TurnVerdict, events: Vec<wire::TurnEvent>) -> Turn {
    Turn { events, ..turn(verdict, 0) }
}

fn waits(from: Option<Named>, timeout_ns: Option<u64>) -> Turn {
    let from = from.and_then(to);
    let mail_wait = Some(MailWait { from, timeout_ns });
    Turn { mail_wait, ..turn(TurnVerdict::TurnWait, 0) }
}

fn bytes(letters: &[wire::Letter]) -> Vec<u8> {
    letters.iter().map(|letter| letter.data[0]).collect()
}

/// The bytes of the letters of the last launch; `None`: nothing was launched.
fn launched(home: &mut Home) -> Option<Vec<u8>> {
    let launch = std::mem::take(&mut home.out.launches).pop()?;
    Some(launch.resume.map_or_else(Vec::new, |resume| bytes(&resume.letters)))
}

/// The last answer to a turn of an attempt here.
fn answer(home: &mut Home) -> TurnAnswer {
    home.sync();
    std::mem::take(&mut home.out.turn_answers).pop().expect("the turn is answered").2
}

fn letters_of(home: &mut Home) -> Vec<u8> {
    match answer(home) {
        TurnAnswer::Committed(commit) if commit.awaited.is_some() => bytes(&commit.letters),
        answer => panic!("the attempt does not go on: {answer:?}"),
    }
}

fn refusal(home: &mut Home) -> String {
    match answer(home) {
        TurnAnswer::Refused(text) => text,
        answer => panic!("it is not refused: {answer:?}"),
    }
}

#[test]
fn a_task_reads_an_event_once_it_is_synced_and_starts_with_it() {
    let mut home = Home::with(None);
    home.launched();
    let first = Turn { events: vec![event(Named::Child(0), 1)], ..turn(TurnVerdict::TurnYield, 1) };
    home.turn(first);
    assert_eq!(home.launched(), [task()], "the child is not synced");
    home.turn(waits(None, None));
    home.sync();
    assert_eq!(launched(&mut home), Some(vec![1]), "the child has its event");
}

#[test]
fn a_task_that_waits_is_woken_by_an_event_that_counts() {
    let mut home = Home::with(None);
    home.turn(turn(TurnVerdict::TurnMore, 1));
    home.sync();
    home.launched();
    home.turn(waits(Some(Named::Child(0)), None));
    home.sync();
    assert_eq!(home.launched(), [child(1)], "the slot is free");
    let text = home.scheduler.home.ledger.explain_mail_wait(task());
    assert_eq!(text.as_deref(), Some("it waits for an event from task 1.1"));
    let event = wire::TurnEvent { to: to(Named::Parent(true)), data: vec![9] };
    let more = Turn { events: vec![event], ..turn(TurnVerdict::TurnMore, 0) };
    home.turn_of(child(1), more);
    home.finish(child(1));
    assert_eq!(launched(&mut home), Some(vec![9]));
    assert_eq!(home.scheduler.home.ledger.explain_mail_wait(task()), None);
}

#[test]
fn an_event_that_came_before_the_wait_is_not_overlooked() {
    let mut home = Home::with(None);
    home.turn(sends(TurnVerdict::TurnMore, vec![own(1), own(2)]));
    home.sync();
    home.turn(waits(None, None));
    assert_eq!(letters_of(&mut home), [1, 2]);
    home.turn(Turn { consumed: vec![1], ..waits(None, None) });
    assert_eq!(letters_of(&mut home), [2], "the first one is consumed");
    home.turn(Turn { consumed: vec![2], ..waits(None, Some(0)) });
    assert_eq!(letters_of(&mut home), [], "a wait without time does not wait");
}

#[test]
fn a_wait_ends_with_its_time() {
    let mut home = Home::with(None);
    home.launched();
    home.turn(waits(None, Some(1_000)));
    home.sync();
    assert_eq!(launched(&mut home), None);
    let due = home.scheduler.home.ledger.next_of_mail().expect("the wait has a limit");
    home.at(Time(due.0 - 1));
    assert_eq!(launched(&mut home), None);
    home.at(due);
    assert_eq!(launched(&mut home), Some(vec![]));
}

#[test]
fn a_later_home_has_the_letters_that_were_not_consumed() {
    let mut home = Home::with(None);
    home.turn(sends(TurnVerdict::TurnMore, vec![own(1), own(2), own(3)]));
    home.sync();
    home.turn(Turn { consumed: vec![1], ..turn(TurnVerdict::TurnYield, 0) });
    let mut home = home.next();
    assert_eq!(launched(&mut home), Some(vec![2, 3]));
    home.turn(Turn { consumed: vec![2, 3], ..waits(None, None) });
    let mut home = home.next();
    assert_eq!(launched(&mut home), None, "it still waits");
    home.letters_from_away(1, &[7]);
    home.sync();
    assert_eq!(launched(&mut home), Some(vec![7]));
    home.finish(task());
    assert!(home.mail.keys().all(|&number| number == 0), "a done task has no mailbox");
}

#[test]
fn an_attempt_that_fails_sends_and_consumes_nothing() {
    let mut home = Home::with(None);
    home.turn(sends(TurnVerdict::TurnMore, vec![own(1)]));
    home.sync();
    let attempt = home.attempt();
    let lost = proto::work::Outcome {
        error: "killed".to_owned(),
        lost: true,
        turn: Some(Box::new(Turn {
            consumed: vec![1],
            ..sends(TurnVerdict::TurnDone, vec![own(2)])
        })),
        ..Default::default()
    };
    home.launched();
    home.scheduler.on_finished(Time(1), task(), attempt, Box::new(lost), &mut home.out);
    home.step();
    home.sync();
    assert_eq!(launched(&mut home), Some(vec![1]));
}

#[test]
fn letters_of_another_home_are_taken_once_and_in_order() {
    let mut home = Home::with(None);
    home.launched();
    home.turn(waits(None, None));
    home.sync();
    assert_eq!(home.letters_from_away(1, &[1, 2]), Some(2));
    assert_eq!(home.letters_from_away(1, &[1, 2, 3]), Some(3), "two are known");
    home.sync();
    assert_eq!(launched(&mut home), Some(vec![1, 2, 3]));
    home.turn(Turn { consumed: vec![1, 2, 3], ..turn(TurnVerdict::TurnYield, 0) });
    let mut home = home.next();
    assert_eq!(launched(&mut home), Some(vec![]));
    assert_eq!(home.letters_from_away(1, &[1, 2, 3, 4]), Some(4), "the cursor is durable");
    home.sync();
    home.turn(waits(None, Some(0)));
    assert_eq!(letters_of(&mut home), [4]);
}

#[test]
fn letters_to_another_home_are_kept_until_it_has_stored_them() {
    let mut home = Home::with(None);
    let away = |byte| event(Named::Local(LocalId::new(AWAY, 5).0), byte);
    home.turn(sends(TurnVerdict::TurnYield, vec![away(1), away(2)]));
    let outgoing = |home: &Home| home.mail.values().filter(|record| record.sequence > 0).count();
    assert_eq!(outgoing(&home), 2);
    let mut home = home.next();
    assert_eq!(outgoing(&home), 2);
    let kept = |last| wire::LettersKept { job: 1, from: MOVES.0, to: AWAY.0, last };
    home.scheduler.on_message(Time(1), OTHER, Body::LettersKept(kept(1)), &mut home.out);
    home.step();
    assert_eq!(outgoing(&home), 1);
    home.scheduler.on_message(Time(1), OTHER, Body::LettersKept(kept(1)), &mut home.out);
    let mut home = home.next();
    home.turn(sends(TurnVerdict::TurnMore, vec![away(3)]));
    let sequences: Vec<u64> = home.mail.values().map(|record| record.sequence).collect();
    assert_eq!(sequences, [0, 2, 3], "numbers are not given twice");
}

#[test]
fn bad_events_are_refused_and_leave_nothing() {
    let mut home = Home::with(None);
    let large = wire::TurnEvent { data: vec![0; EVENT_BYTES_MAX + 1], ..own(0) };
    let nowhere = LocalId::new(MOVES, 77).0;
    for (events, error) in [
        (vec![large], "more than 65536"),
        (vec![own(0); TURN_EVENTS_MAX + 1], "at most 1024 events"),
        (vec![event(Named::Child(0), 0)], "there is no child 0"),
        (vec![event(Named::Local(nowhere), 0)], "the job has no task 1.77"),
        (vec![event(Named::Local(LocalId::new(PartitionId(9), 0).0), 0)], "has no task 9.0"),
        (vec![event(Named::Parent(true), 0)], "has no parent"),
        (vec![wire::TurnEvent::default()], "is not named"),
    ] {
        home.turn(sends(TurnVerdict::TurnMore, [vec![own(1)], events].concat()));
        let text = refusal(&mut home);
        assert!(text.contains(error), "{text}");
    }
    home.turn(Turn { verdict: TurnVerdict::TurnMore, ..waits(None, None) });
    assert!(refusal(&mut home).contains("waits for nothing else"));
    assert!(home.mail.is_empty());
}

/// Asks whether the mailbox of a task takes an event. Returns the refusal.
fn asked(home: &mut Home, sender: TaskId, receiver: Named) -> String {
    let attempt = home.scheduler.home.ledger.cell(sender).expect("it is homed here").attempt();
    let name = to(receiver).expect("it is named");
    let by = (sender, attempt);
    home.scheduler.on_mail_asked(Time(1), by, (name, 1), 5, &mut home.out);
    home.step();
    // The map names another home of the partition, which this node has taken over.
    for (_, body) in std::mem::take(&mut home.out.reliable) {
        if let Body::MailQuery(query) = body {
            home.scheduler.on_mail_query(ME, &query, &mut home.out);
        }
    }
    home.sync();
    let answers = home.out.mailboxes.take().expect("it is answered");
    let [(5, refused)] = &answers[..] else { panic!("{answers:?}") };
    refused.clone()
}

#[test]
fn a_sender_learns_that_a_task_has_ended_or_that_its_mailbox_is_full() {
    let mut home = Home::with(None);
    home.turn(turn(TurnVerdict::TurnMore, 1));
    home.sync();
    let local = Named::Local(task().local.0);
    assert_eq!(asked(&mut home, task(), local), "");
    assert_eq!(asked(&mut home, task(), Named::Child(0)), "");
    assert_eq!(asked(&mut home, task(), Named::Child(1)), "there is no child 1");
    for turns in 0..MAILBOX_EVENTS_MAX.div_ceil(TURN_EVENTS_MAX) {
        let events = vec![own(turns as u8); TURN_EVENTS_MAX];
        home.turn(sends(TurnVerdict::TurnMore, events));
        home.sync();
    }
    assert!(asked(&mut home, task(), local).contains("is full: 10240 events wait"));
    home.turn(turn(TurnVerdict::TurnYield, 0));
    home.sync();
    home.launched();
    home.finish(child(1));
    assert!(asked(&mut home, task(), Named::Child(0)).contains("has ended: it is done"));
}

#[test]
fn an_event_to_a_done_task_is_counted_and_dropped() {
    let mut home = Home::with(None);
    home.turn(turn(TurnVerdict::TurnYield, 1));
    home.sync();
    home.finish(task());
    assert_eq!(home.letters_from_away(1, &[1]), Some(1));
    let count = home.scheduler.home.ledger.counts(task()).0;
    assert_eq!((count.events, count.events_dropped), (0, 1));
}

/// A power cut may undo the turn that has sent the event.
pub(super) fn an_event_is_read_after_its_sync(mutant: Option<Mutant>) -> bool {
    let mut home = Home::with(mutant);
    home.turn(sends(TurnVerdict::TurnMore, vec![own(1)]));
    let early = home.scheduler.home.ledger.letters_of(task());
    home.sync();
    early.is_empty() && home.scheduler.home.ledger.letters_of(task()).len() == 1
}

#[test]
fn nothing_is_known_of_letters_before_they_are_synced() {
    let mut home = Home::with(None);
    home.turn(sends(TurnVerdict::TurnMore, vec![own(1)]));
    let from = NodeId(7);
    let synced = wire::LettersSynced { job: 1, partition: MOVES.0, last: 9, term: 2 };
    home.scheduler.on_message(Time(1), from, Body::LettersSynced(synced), &mut home.out);
    let early = wire::LettersSynced { term: 1, ..synced };
    home.scheduler.on_message(Time(1), ME, Body::LettersSynced(early), &mut home.out);
    assert_eq!(home.scheduler.home.ledger.letters_of(task()), []);
    home.sync();
    assert_eq!(home.scheduler.home.ledger.letters_of(task()).len(), 1);
}

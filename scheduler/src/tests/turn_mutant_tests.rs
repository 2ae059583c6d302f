//! Mutants of turns: each is wrong in one order of events at one home.

use proto::wire::message::Body;
use proto::wire::{TurnResult, TurnVerdict};
use proto::work::TurnAnswer;
use proto::{Time, wire};

use super::turns_tests::{Home, ME, OTHER, a_reader_gets_a_copy_that_the_home_did_not_know, turn};
use crate::Mutant;
use crate::tests::failover_tests::task;
use crate::tests::mail_tests::an_event_is_read_after_its_sync;
use crate::tests::variables_tests::{a_turn_waits_for_a_value, sums_of_turns_count_once};

/// A scenario that returns whether it ends well.
type ScenarioRun = fn(Option<Mutant>) -> bool;

const SCENARIOS: [(Mutant, ScenarioRun); Mutant::OF_ONE_HOME.len()] = [
    (Mutant::YieldKeepsAttempt, an_attempt_that_gave_its_slot_back_is_over),
    (Mutant::ReplacedUnreported, a_dropped_attempt_is_replaced),
    (Mutant::TurnNumberIgnored, a_second_refusal_is_not_that_of_the_next_turn),
    (Mutant::EndBeforeBound, a_turn_waits_for_a_value),
    (Mutant::UsedBeforeSynced, a_turn_waits_for_a_value),
    (Mutant::SumBeforeCommit, sums_of_turns_count_once),
    (Mutant::EventBeforeSync, an_event_is_read_after_its_sync),
    (Mutant::CopiesNotAskedFor, a_reader_gets_a_copy_that_the_home_did_not_know),
];

#[test]
fn every_mutant_of_one_home_is_found() {
    for (mutant, ends_well) in SCENARIOS {
        assert!(Mutant::OF_ONE_HOME.contains(&mutant));
        assert!(ends_well(None), "{} is wrong without the bug", mutant.name());
        assert!(!ends_well(Some(mutant)), "{} is not found", mutant.name());
    }
}

/// The answer to the last turn is lost, and the home changes. The next home places the task itself.
fn an_attempt_that_gave_its_slot_back_is_over(mutant: Option<Mutant>) -> bool {
    let mut home = Home::with(mutant);
    let attempt = home.attempt();
    home.holders.push(wire::HolderRecord {
        index: vec![task().local.index()],
        attempt: vec![attempt.0],
        node: vec![OTHER.0],
        incarnation: vec![1],
        ..wire::HolderRecord::default()
    });
    home.turn(turn(TurnVerdict::TurnYield, 0));
    home.next().launched() == [task()]
}

fn reply(home: &Home, number: u64, result: TurnResult) -> Body {
    let attempt = home.attempt().0;
    let (job, local) = (1, task().local.0);
    let reply = wire::TurnReply { job, local, attempt, seq: 1, number, ..Default::default() };
    Body::TurnReply(wire::TurnReply { result: result as i32, ..reply })
}

/// The home counts on the attempt that its holder dropped: it places the task again.
fn a_dropped_attempt_is_replaced(mutant: Option<Mutant>) -> bool {
    let mut home = Home::with(mutant);
    home.turn(turn(TurnVerdict::TurnMore, 0));
    let (dropped, fenced) = (home.attempt(), reply(&home, 1, TurnResult::Fenced));
    home.scheduler.on_message(Time(1), ME, fenced, &mut home.out);
    home.sync();
    home.attempt() > dropped
}

/// The second answer to a refused turn arrives after the next turn was sent.
fn a_second_refusal_is_not_that_of_the_next_turn(mutant: Option<Mutant>) -> bool {
    let mut home = Home::with(mutant);
    home.turn(turn(TurnVerdict::TurnMore, 1));
    let late = reply(&home, 7, TurnResult::TurnRefused);
    home.scheduler.on_message(Time(1), ME, late, &mut home.out);
    home.sync();
    let answers = std::mem::take(&mut home.out.turn_answers);
    matches!(&answers[..], [(_, _, TurnAnswer::Committed(_))])
}

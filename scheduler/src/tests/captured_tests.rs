//! The bytes that an attempt printed, and what its command used, are part of its end: at its home,
//! and at each later home.

use proto::limits::{OUTPUT_SUMS_PER_ANSWER_MAX, TASK_SIZES_REPORTED_MAX};
use proto::work::{Captured, Outcome, Used};
use proto::{JobId, Time, wire};

use crate::output::Out;
use crate::tests::failover_tests::{MOVES, heir, task, until_visible};
use crate::{LedgerRecord, Scheduler};

const LITTLE: Captured = Captured { stdout_bytes: 5, stderr_bytes: 70_000_000_000 };
const MUCH: Captured = Captured { stdout_bytes: 1_000, stderr_bytes: 0 };

/// A home with a task that is about to run under a further attempt.
fn home(out: &mut Out) -> Scheduler {
    let mut home = heir();
    for record in records() {
        home.adopt(Time(0), MOVES, JobId(1), record).expect("records fit one another");
    }
    home.serve(Time(0), MOVES, 2, out);
    home.holder.slots_mut().give_back(Some(crate::holder::slots::Seat { first: 0, claim: None }));
    home.settle(Time(0), out);
    home.act(Time(0), out);
    home
}

fn records() -> [LedgerRecord; 2] {
    let [chunk, visible] = until_visible();
    let LedgerRecord::Chunk(mut chunk) = chunk else { unreachable!("the chunk is first") };
    chunk.specs[0].retries = 1;
    [LedgerRecord::Chunk(chunk), visible]
}

/// The running attempt ends with this result.
fn end(home: &mut Scheduler, error: &str, captured: Captured, out: &mut Out) {
    let outcome = Outcome { error: error.to_owned(), captured, ..Outcome::default() };
    end_with(home, outcome, out);
}

fn end_with(home: &mut Scheduler, outcome: Outcome, out: &mut Out) {
    let attempt = home.home.ledger.cell(task()).expect("it is homed here").attempt();
    assert_eq!(out.launches.pop().map(|launch| launch.attempt), Some(attempt), "it runs");
    home.on_finished(Time(1), task(), attempt, outcome.into(), out);
    home.settle(Time(1), out);
    home.act(Time(1), out);
}

fn told(home: &Scheduler) -> (u64, u64) {
    let state = home.home.ledger.task_state(task()).expect("it is homed here");
    (state.stdout_bytes, state.stderr_bytes)
}

fn end_record(out: &Out) -> wire::EndRecord {
    out.facts.ends[&(MOVES, JobId(1))].clone()
}

#[test]
fn only_the_attempt_that_counts_is_counted_here_and_at_the_next_home() {
    let mut out = Out::default();
    let mut home = home(&mut out);
    end(&mut home, "exited with code 1", MUCH, &mut out);
    assert_eq!(told(&home), (0, 0), "it runs again");
    end(&mut home, "", LITTLE, &mut out);
    assert_eq!(told(&home), (5, 70_000_000_000));
    let record = end_record(&out);
    assert_eq!(record.details.len(), 1);

    let mut next = heir();
    for record in records().into_iter().chain([LedgerRecord::End(record)]) {
        next.adopt(Time(0), MOVES, JobId(1), record).expect("records fit one another");
    }
    next.serve(Time(0), MOVES, 2, &mut Out::default());
    assert_eq!(told(&next), (5, 70_000_000_000));
    next.home.ledger.free_chunk(task(), 0);
    assert_eq!(told(&next), (5, 70_000_000_000), "when all else of it has left memory");
}

#[test]
fn what_a_command_used_is_known_here_and_at_the_next_home() {
    let used_by = |home: &Scheduler| {
        let state = home.home.ledger.task_state(task()).expect("it is homed here");
        Used { cpu_us: state.cpu_us, max_rss_kib: state.max_rss_kib }
    };
    let mut out = Out::default();
    let mut home = home(&mut out);
    let used = Used { cpu_us: 7_000_000_000, max_rss_kib: 4_096 };
    let failed = Outcome { error: "e".into(), used, ..Outcome::default() };
    end_with(&mut home, failed, &mut out);
    assert_eq!(used_by(&home), Used::default(), "it runs again");
    let used = Used { cpu_us: 0, max_rss_kib: 3_000 };
    end_with(&mut home, Outcome { used, ..Outcome::default() }, &mut out);
    assert_eq!(used_by(&home), used);
    let record = end_record(&out);

    let mut next = heir();
    for record in records().into_iter().chain([LedgerRecord::End(record)]) {
        next.adopt(Time(0), MOVES, JobId(1), record).expect("records fit one another");
    }
    next.serve(Time(0), MOVES, 2, &mut Out::default());
    assert_eq!(used_by(&next), used);
    next.home.ledger.free_chunk(task(), 0);
    assert_eq!(used_by(&next), used, "when all else of it has left memory");
}

#[test]
fn what_prints_nothing_costs_nothing() {
    let mut out = Out::default();
    let mut home = home(&mut out);
    end(&mut home, "", Captured::default(), &mut out);
    assert_eq!(told(&home), (0, 0));
    assert_eq!(end_record(&out).details, []);
}

/// The state of a task has the first checksums. A client that needs more asks for pages.
#[test]
fn the_checksums_of_many_outputs_come_in_pages() {
    let mut out = Out::default();
    let mut home = home(&mut out);
    let attempt = home.home.ledger.cell(task()).expect("it is homed here").attempt();
    let page = |home: &Scheduler, after| {
        let state = home.home.ledger.output_sums(task(), after).expect("it is homed here");
        assert_eq!(state.sums_after, after);
        state.output_sums
    };
    assert_eq!(page(&home, 1), [0; 0], "it is not done");
    let sums: Vec<u64> = (0..5_000).collect();
    let outcome = Outcome { output_sums: sums.clone(), ..Outcome::default() };
    home.on_finished(Time(1), task(), attempt, outcome.into(), &mut out);
    home.settle(Time(1), &mut out);
    home.act(Time(1), &mut out);
    let mut told = home.home.ledger.task_state(task()).expect("it is homed here").output_sums;
    assert_eq!(told.len(), TASK_SIZES_REPORTED_MAX);
    for expected in [OUTPUT_SUMS_PER_ANSWER_MAX, 840, 0] {
        let more = page(&home, told.len() as u32);
        assert_eq!(more.len(), expected);
        told.extend(more);
    }
    assert_eq!(told, sums);
    assert!(page(&home, u32::MAX).is_empty());
}

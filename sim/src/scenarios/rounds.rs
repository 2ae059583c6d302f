//! A job is retried while a credit of its first round is still in transit.

use std::sync::{Arc, Mutex};

use crate::Mutant;
use crate::{Action, ClientPlan, Draft, SimRng, Violation, World};
use node::Effect;
use proto::event::RetryReason;
use proto::wire::message::Body;
use proto::{Event, PartitionId, Span};

use super::{THIRD, any, away, options};

/// The number of placements. In some of them the home of the child gets a skip late.
const PLACEMENTS: u64 = 8;

pub(super) fn a_skip_comes_in_the_next_round(mutant: Option<Mutant>) -> Result<(), Violation> {
    (1..=PLACEMENTS).try_for_each(|placement| comes_late(placement, mutant))
}

/// Parents on three nodes fail, and their child is skipped. The third node's credit arrives when
/// the child waits again.
fn comes_late(placement: u64, mutant: Option<Mutant>) -> Result<(), Violation> {
    let mut world = World::new(options(4, 2, mutant));
    let is_open = Arc::new(Mutex::new(false));
    world.on_effect(Box::new(move |_, from, effect| {
        let mut is_open = is_open.lock().expect("one thread");
        let begins =
            matches!(effect, Effect::Trace(Event::Replaced { why: RetryReason::Round, .. }));
        *is_open |= begins && from != THIRD;
        let skips = from == THIRD && any(effect, |body| matches!(body, Body::Credits(_)));
        if skips && !*is_open { Action::Drop } else { Action::Carry }
    }));
    let (job, _) = away(&world);
    let homes: Vec<PartitionId> = [0, 2, 3].map(|node| world.partitions_of(node)[0]).to_vec();
    let mut dice = SimRng::new(placement);
    let mut draft = Draft::fan_in(10, Span::from_millis(5), 100).mended_later(&mut dice, 1_000);
    draft.tasks[9].kind = crate::state::expected::KIND_PLAIN;
    let submission = draft.submission(&mut dice, job, &homes);
    world.add_job(submission, ClientPlan { retries: 1, ..ClientPlan::simple() });
    super::ended(&mut world)
}

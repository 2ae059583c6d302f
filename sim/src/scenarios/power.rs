//! A home loses power after each of its first messages, while its disk syncs slowly. It must still
//! have everything that it had acknowledged.

use std::sync::{Arc, Mutex};

use crate::Mutant;
use crate::{Action, ClientPlan, Draft, SimRng, Violation, World};
use node::Effect;
use proto::{JobId, NodeId, PartitionId, Span};

const WORDS: u32 = 120;

pub(super) fn a_home_loses_power(mutant: Option<Mutant>) -> Result<(), Violation> {
    for victim in 0..3 {
        (1..WORDS).try_for_each(|word| loses_power_after(word, NodeId(victim), mutant))?;
    }
    Ok(())
}

fn loses_power_after(word: u32, victim: NodeId, mutant: Option<Mutant>) -> Result<(), Violation> {
    let mut options = super::options(3, 1, mutant);
    (options.sync_min, options.sync_max) = (Span::from_millis(20), Span::from_millis(40));
    let mut world = World::new(options);
    let of = |world: &World, node: usize| world.partitions_of(node)[0];
    let homes: Vec<PartitionId> = [0, 1, 2].map(|node| of(&world, node)).to_vec();
    let draft = Draft::fan_in(24, Span::from_millis(30), 1000);
    let submission = draft.submission(&mut SimRng::new(7), JobId(super::JOB), &homes);
    world.add_job(submission, ClientPlan::simple());
    let said = Arc::new(Mutex::new(0));
    world.on_effect(Box::new(move |_, from, effect| {
        if from != victim || !matches!(effect, Effect::Send { .. }) {
            return Action::Carry;
        }
        let mut said = said.lock().expect("one thread");
        *said += 1;
        if *said == word { Action::PowerCut } else { Action::Carry }
    }));
    world.must_end()?;
    world.must_remember()?;
    world.must_leave_nothing()
}

//! A home loses power when it starts a child, and its disk has not synced the turn of its parent.

use std::sync::{Arc, Mutex};

use super::{HOME, JOB, options};
use crate::Mutant;
use crate::{Action, ClientPlan, Draft, SimRng, Violation, World};
use node::Effect;
use proto::{JobId, PartitionId, Span};

/// The home loses power at one of its first starts of children.
const STARTS: u32 = 40;

pub(super) fn a_home_loses_power_at_a_birth(mutant: Option<Mutant>) -> Result<(), Violation> {
    (1..=STARTS).try_for_each(|start| loses_power_at(start, mutant))
}

fn loses_power_at(start: u32, mutant: Option<Mutant>) -> Result<(), Violation> {
    let mut options = options(3, 4, mutant);
    (options.sync_min, options.sync_max) = (Span::from_millis(20), Span::from_millis(40));
    let mut world = World::new(options);
    let started = Arc::new(Mutex::new(0));
    world.on_effect(Box::new(move |_, from, effect| {
        let Effect::Launch(launch) = effect else { return Action::Carry };
        if from != HOME || launch.spec.name != "child" {
            return Action::Carry;
        }
        let mut started = started.lock().expect("one thread");
        *started += 1;
        if *started == start { Action::PowerCut } else { Action::Carry }
    }));
    let mut dice = SimRng::new(7);
    let draft = Draft::bag(12, Span::from_millis(5)).with_spawning(&mut dice, 1_000);
    let held: Vec<PartitionId> = world.partitions_of(HOME.0 as usize).into_iter().take(1).collect();
    world.add_job(draft.submission(&mut dice, JobId(JOB), &held), ClientPlan::simple());
    super::ended(&mut world)
}

//! A primary is cut off from all other nodes, which take its partitions over. Its clients still
//! reach it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Mutant;
use crate::{Action, HotKeyPlan, Violation, World, WorldOptions};
use node::Effect;
use proto::{NodeId, Span};

const PRIMARY: NodeId = NodeId(0);

fn world(seed: u64, mutant: Option<Mutant>) -> World {
    let mut options = WorldOptions::healthy(seed, 3, 1);
    (options.copies, options.faultless, options.mutant) = (2, false, mutant);
    World::new(options)
}

/// While this is set, no message reaches or leaves the primary.
fn cut_off(world: &mut World) -> Arc<AtomicBool> {
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut = Arc::clone(&is_cut);
    world.on_effect(Box::new(move |_, from, effect| match effect {
        Effect::Send { to, .. }
            if (from == PRIMARY || *to == PRIMARY) && cut.load(Ordering::Relaxed) =>
        {
            Action::Drop
        }
        _ => Action::Carry,
    }));
    is_cut
}

fn hot_key_client(world: &mut World, span: Span) {
    let plan = HotKeyPlan { keys: 8, pace: Span::from_millis(1), appends_permille: 100 };
    (0..3).for_each(|_| world.add_hot_key_client(plan, span));
}

fn ends_well(world: &mut World) -> Result<(), Violation> {
    world.must_end()?;
    world.must_remember()
}

/// Cuts the primary off for `span`, while clients continue for one more second. `replaced`: it is
/// declared failed at once and does not learn it.
fn is_cut_off(mutant: Option<Mutant>, span: Span, replaced: bool) -> Result<(), Violation> {
    for seed in 1..=8 {
        let mut world = world(seed, mutant);
        world.must_be_whole()?;
        let is_cut = cut_off(&mut world);
        hot_key_client(&mut world, Span(span.0 + Span::from_secs(1).0));
        world.run_for(Span::from_millis(500));
        is_cut.store(true, Ordering::Relaxed);
        if replaced {
            world.declare_dead(PRIMARY.0);
        }
        world.run_for(span);
        is_cut.store(false, Ordering::Relaxed);
        ends_well(&mut world)?;
    }
    Ok(())
}

/// The primary is silent until the other nodes declare it failed.
pub(super) fn a_primary_is_silent(mutant: Option<Mutant>) -> Result<(), Violation> {
    is_cut_off(mutant, Span::from_secs(8), false)
}

pub(super) fn a_primary_is_replaced_at_once(mutant: Option<Mutant>) -> Result<(), Violation> {
    is_cut_off(mutant, Span::from_secs(1), true)
}

/// The primary's machine is suspended, and it is replaced meanwhile. When it resumes, its inbox has
/// recent requests of clients, but no message of the other nodes.
pub(super) fn a_primary_is_suspended(mutant: Option<Mutant>) -> Result<(), Violation> {
    for seed in 1..=8 {
        let mut world = world(seed, mutant);
        world.must_be_whole()?;
        let is_cut = cut_off(&mut world);
        let asleep = Span::from_secs(10);
        hot_key_client(&mut world, Span(asleep.0 + Span::from_secs(3).0));
        world.run_for(Span::from_millis(500));
        is_cut.store(true, Ordering::Relaxed);
        world.suspend(PRIMARY.0 as usize, asleep);
        world.run_for(Span(asleep.0 + Span::from_millis(200).0));
        is_cut.store(false, Ordering::Relaxed);
        ends_well(&mut world)?;
    }
    Ok(())
}

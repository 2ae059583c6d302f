//! A voter loses its disk while others rely on its promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Mutant;
use crate::{Action, Violation, World, WorldOptions};
use node::Effect;
use proto::{NodeId, Span};

type Switch = Arc<AtomicBool>;

fn world(mutant: Option<Mutant>) -> World {
    let mut options = WorldOptions::healthy(7, 3, 1);
    (options.copies, options.faultless, options.mutant) = (2, false, mutant);
    World::new(options)
}

/// Two of three voters commit an entry. Then one of them loses its disk and the other is cut off.
/// The third lacks the entry and must not form a majority with the empty disk.
pub(super) fn a_voter_loses_its_disk(mutant: Option<Mutant>) -> Result<(), Violation> {
    for (stays, empty, behind) in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    {
        let mut world = world(mutant);
        world.must_be_whole()?;
        // First the voter that will be behind is cut off, then the one that stays.
        let apart = [behind, stays].map(NodeId);
        let switches = [Switch::default(), Switch::default()];
        let cuts = switches.clone();
        world.on_effect(Box::new(move |_, from, effect| {
            let Effect::Send { to, .. } = effect else { return Action::Carry };
            let is_cut = |(node, cut): (NodeId, &Switch)| {
                (from == node || *to == node) && cut.load(Ordering::Relaxed)
            };
            let is_cut = apart.into_iter().zip(&cuts).any(is_cut);
            if is_cut { Action::Drop } else { Action::Carry }
        }));
        switches[0].store(true, Ordering::Relaxed);
        world.run_for(Span::from_millis(20));
        world.declare_dead(behind);
        world.run_for(Span::from_secs(1));
        switches[1].store(true, Ordering::Relaxed);
        world.reformat(empty as usize);
        world.bring_back(empty as usize);
        switches[0].store(false, Ordering::Relaxed);
        world.run_for(Span::from_secs(20));
        switches[1].store(false, Ordering::Relaxed);
        world.must_end()?;
        world.must_remember()?;
    }
    Ok(())
}

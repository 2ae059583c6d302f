//! The steps of the part of the children.

use crate::settings::{Mutant, Options};
use crate::state::{State, Turn};

impl State {
    /// `Adopt` leaves when the turn is synced. One within the receiver's synced cursor is forgotten
    /// here: its repeats change nothing.
    pub(crate) fn send_adopts(&mut self, options: &Options) {
        self.adopts.extend(&self.home.disk.outbox);
        let repeats = [Some(Mutant::AdoptTwice), Some(Mutant::AdoptAfterMerge)];
        if !repeats.contains(&options.mutant) {
            let taken = self.disk.taken;
            self.adopts.retain(|&(number, _)| number > taken);
        }
    }

    /// The chunk becomes visible. The number decides whether it was taken before.
    pub(crate) fn adopt(&mut self, options: &Options, chunk: Turn) -> Option<()> {
        let mut sent = self.adopts.iter().filter(|&&(_, it)| it == chunk);
        let children = &mut self.live;
        let &(number, _) = sent.find(|&&(number, _)| match options.mutant {
            Some(Mutant::AdoptTwice) => number <= children.taken + 1,
            Some(Mutant::AdoptAfterMerge) => !children.visible.contains(&chunk),
            _ => number == children.taken + 1,
        })?;
        children.taken = children.taken.max(number);
        if !children.prepared.remove(&chunk) && !chunk.is_carried() {
            return Some(());
        }
        self.adopted_twice |= children.merged.contains(&chunk) || !children.visible.insert(chunk);
        Some(())
    }

    /// The part of the children acknowledges what it has synced.
    pub(crate) fn acknowledge(&mut self) -> Option<()> {
        let taken = self.disk.taken;
        self.home.live.outbox.retain(|&(number, _)| number > taken);
        Some(())
    }

    pub(crate) fn drop_chunk(&mut self, chunk: Turn) -> Option<()> {
        self.drops.contains(&chunk).then_some(())?;
        self.live.prepared.remove(&chunk);
        Some(())
    }

    /// All tasks of the chunk have ended. Its records are replaced by a run of ids.
    pub(crate) fn merge(&mut self, options: &Options, chunk: Turn) -> Option<()> {
        options.merges.then_some(())?;
        self.live.visible.remove(&chunk);
        self.live.merged.insert(chunk);
        Some(())
    }

    /// The part loses what it has not synced. A node that has not sent its turn stages it again.
    pub(crate) fn cut_children(&mut self, options: &Options) -> Option<()> {
        if self.child_cuts >= options.child_cuts || self.live == self.disk {
            return None;
        }
        self.child_cuts += 1;
        self.live = self.disk.clone();
        for runner in self.runners.iter_mut().flatten() {
            runner.staged &= self.live.prepared.contains(&runner.next());
        }
        Some(())
    }
}

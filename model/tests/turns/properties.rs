//! What must hold in every state.

use crate::settings::Options;
use crate::state::{Placement, State};

impl State {
    /// Each turn is made from the state after the one before, and applied once.
    pub(crate) fn turns_apply_once(&self) -> bool {
        let in_order = (1..).zip(&self.home.live.committed).all(|(seq, turn)| turn.seq == seq);
        in_order && !self.forked
    }

    pub(crate) fn children_are_of_committed_turns(&self) -> bool {
        let mut born = self.live.visible.union(&self.live.merged);
        born.all(|chunk| self.home.disk.committed.contains(chunk))
    }

    /// Each child of a committed turn exists, or will.
    pub(crate) fn no_child_is_lost(&self) -> bool {
        let (parent, children) = (&self.home.disk, &self.disk);
        parent.committed.iter().all(|&chunk| {
            let is_stored = chunk.is_carried() || children.prepared.contains(&chunk);
            let is_born = children.visible.contains(&chunk) || children.merged.contains(&chunk);
            is_born || parent.owes(chunk) && is_stored
        })
    }

    pub(crate) fn turns_of_several_attempts(&self) -> bool {
        let [first, second] = self.home.disk.committed[..] else { return false };
        first.attempt != second.attempt
    }

    /// Where nothing further comes by itself, the parent has ended, its children exist, and no
    /// prepared chunk is left; or the home may issue no further attempt.
    pub(crate) fn ends_well(&self, options: &Options) -> bool {
        let home = &self.home;
        let is_settled = self.disk.prepared.is_empty() && home.disk.outbox.is_empty();
        let ran_out = home.placement == Placement::Ready && home.issued >= options.attempts;
        let mut steps = Vec::new();
        self.steps(&mut steps);
        let by_itself = steps.into_iter().filter(|step| step.comes_by_itself());
        home.disk.has_ended() && is_settled && self.runners.iter().all(Option::is_none)
            || ran_out
            || by_itself.into_iter().any(|step| self.after(options, step).is_some())
    }
}

//! The restart of a node with unreadable records: it gives them up and is filled again.

use proto::limits;

use crate::error::StartError;
use crate::incarnations::NodeContext;
use crate::instance::StateDir;
use crate::store::StoreError;

impl NodeContext {
    /// True if the node may go on without its records, because others have replicas of them. The
    /// voters keep the map, so a single voter must not. With fewer than three nodes there is one
    /// voter.
    pub(crate) fn may_replace_store(&self, error: &StoreError) -> bool {
        let Some(voters) = self.known_voters() else { return false };
        let is_alone = voters == [self.options.node.0];
        self.moves()
            && error.is_loss()
            && !is_alone
            && self.store_replacements < limits::STORE_REPLACEMENTS_MAX
    }

    /// The voters, as far as the directory shows. If others have joined or left since the cluster
    /// began, they differ from the founding ones. `None`: the file is damaged.
    pub(crate) fn known_voters(&self) -> Option<Vec<u32>> {
        match self.instance.read_members() {
            Some(file) => Some(file.voters),
            None if self.instance.has_members() => None,
            None => Some(self.map_at_first().voters),
        }
    }

    /// Gives up this node's replicas, with a message to the operator. The records are kept aside.
    pub(crate) fn replace_store(&mut self, why: &str) -> Result<(), StartError> {
        self.store_replacements += 1;
        let state = StateDir::open(&self.options.state_path())?;
        // The node's promises to the others are lost too, so it starts like a node that joins
        // later. That is noted first: after a crash in between, the node must not vote as if it had
        // promised nothing.
        state.set_late()?;
        state.set_formed()?;
        let given_up = state.give_up_records()?;
        (self.options.say)(&format!(
            "node {} gives its copies up: {why}; {}, and it is filled again from the other nodes",
            self.options.node,
            given_up.told()
        ));
        Ok(())
    }
}

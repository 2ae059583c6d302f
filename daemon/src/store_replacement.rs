//! What a node does whose records cannot be read any more.

use proto::limits;

use crate::error::StartError;
use crate::incarnations::NodeContext;
use crate::instance::StateDir;
use crate::store::StoreError;

impl NodeContext {
    /// Whether the node goes on without its records: others have copies of them. The map is kept
    /// by the voters; of fewer than three nodes that is one alone.
    pub(crate) fn may_replace_store(&self, error: &StoreError) -> bool {
        let Some(voters) = self.known_voters() else { return false };
        let is_alone = voters == [self.options.node.0];
        self.moves()
            && error.is_loss()
            && !is_alone
            && self.store_replacements < limits::STORE_REPLACEMENTS_MAX
    }

    /// The nodes that vote, as far as the directory tells: where others have come or left since the
    /// cluster began, these are others than at first. `None`: its file is damaged.
    pub(crate) fn known_voters(&self) -> Option<Vec<u32>> {
        match self.instance.read_members() {
            Some(file) => Some(file.voters),
            None if self.instance.has_members() => None,
            None => Some(self.map_at_first().voters),
        }
    }

    /// Gives this node's copies up. Loudly, and nothing is thrown away.
    pub(crate) fn replace_store(&mut self, why: &str) -> Result<(), StartError> {
        self.store_replacements += 1;
        let state = StateDir::open(&self.options.state_path())?;
        // What it promised to the others goes too: it begins like one that comes later. That is
        // noted first: a node that dies in between must not vote as if it had promised nothing.
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

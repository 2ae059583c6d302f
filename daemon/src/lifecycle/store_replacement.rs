//! The restart of a node with unreadable records: it gives them up and is filled again.

use proto::limits;

use crate::error::StartError;
use crate::lifecycle::incarnations::NodeContext;
use crate::lifecycle::instance::{MissingRecords, StateDir};
use crate::store::StoreError;

impl NodeContext {
    /// Whether the node goes on without its records: others have copies of them.
    pub(crate) fn may_replace_store(&self, error: &StoreError) -> bool {
        self.is_filled()
            && error.is_loss()
            && self.store_replacements < limits::STORE_REPLACEMENTS_MAX
    }

    /// Whether other nodes fill this one when it has no records. The map is kept by the voters; of
    /// fewer than three nodes that is one alone.
    pub(crate) fn is_filled(&self) -> bool {
        let is_alone = |voters: Vec<u32>| voters == [self.options.node.0];
        self.moves() && self.known_voters().is_some_and(|voters| !is_alone(voters))
    }

    /// What follows where this node has no records.
    pub(crate) fn missing_records(&self) -> MissingRecords {
        match (self.is_filled(), self.moves(), self.instance.has_begun()) {
            (true, ..) => MissingRecords::Filled,
            (false, false, true) => MissingRecords::Lost,
            // Where homes move a node without state looks for others that have the map.
            (false, ..) => MissingRecords::New,
        }
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

    /// Gives up this node's replicas, with a message to the operator. The records are set aside.
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

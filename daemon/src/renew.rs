//! What a node does whose records cannot be read any more.

use proto::limits;

use crate::error::StartError;
use crate::instance::StateDir;
use crate::life::Place;
use crate::store::StoreError;

impl Place {
    /// Whether the node goes on without its records: others have copies of them. The map is kept
    /// by the voters; of fewer than three nodes that is one alone.
    pub(crate) fn may_renew(&self, error: &StoreError) -> bool {
        // Where others have come or left since, other nodes agree on the map.
        let voters = match self.instance.read_members() {
            Some(file) => file.voters,
            None if self.instance.has_members() => return false, // It is damaged, too.
            None => self.map_at_first().voters,
        };
        let is_alone = voters == [self.options.node.0];
        self.moves() && error.is_loss() && !is_alone && self.renewals < limits::RECORDS_RENEWED_MAX
    }

    /// Gives this node's copies up. Loudly, and nothing is thrown away.
    pub(crate) fn renew(&mut self, why: &str) -> Result<(), StartError> {
        self.renewals += 1;
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

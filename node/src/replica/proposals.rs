//! The changes of the map that this node wants for the replicas that concern it.

use std::collections::BTreeSet;

use kvs::membership::{command, member, would_change};
use proto::wire;
use proto::wire::map_command::Body;

use super::Replica;
use super::activation::Stage;

impl Replica {
    /// All changes that it wants now, if they may differ from the last ones.
    pub(crate) fn wanted(&mut self) -> Option<Vec<wire::MapCommand>> {
        if !std::mem::take(&mut self.wants_anew) {
            return None;
        }
        self.sum_up_served();
        let mut open = self.proposals();
        open.retain(|command| would_change(&self.map, command));
        Some(open)
    }

    fn proposals(&self) -> Vec<wire::MapCommand> {
        let (node, incarnation) = (self.me.0, self.incarnation.0);
        let known = member(&self.map, self.me).map(|member| member.incarnation);
        if known != Some(incarnation) {
            return Vec::new();
        }
        let mut commands = Vec::new();
        let awaited = if self.activations.is_empty() {
            BTreeSet::new()
        } else {
            self.shipping.awaited_elsewhere(self.me)
        };
        let ready = self.activations.iter().filter_map(|(partition, activation)| {
            let is_ready =
                matches!(activation.stage, Stage::Ready { .. }) && !awaited.contains(partition);
            let epoch = activation.epoch;
            is_ready.then_some(wire::PartitionEpoch { partition: partition.0, epoch })
        });
        let alone = self.served.iter().filter(|(_, served)| served.must_register);
        let alone = alone.map(|(partition, served)| wire::PartitionEpoch {
            partition: partition.0,
            epoch: served.epoch,
        });
        let partitions: Vec<_> = ready.chain(alone).collect();
        if !partitions.is_empty() {
            let activated = wire::Activated { node, incarnation, partitions };
            commands.push(command(Body::Activated(activated)));
        }
        for (&partition, served) in &self.served {
            let (partition, epoch) = (partition.0, served.epoch);
            for (&learner, state) in &served.learners {
                if !state.may_be_counted() || served.refusing.contains(&learner) {
                    continue;
                }
                let incarnation = self.links.incarnation_of(learner);
                let learner = learner.0;
                let caught_up = wire::CaughtUp { partition, epoch, learner, incarnation };
                commands.push(command(Body::CaughtUp(caught_up)));
            }
            for &member in &served.refusing {
                let drop = wire::DropReplica { partition, epoch, node: member.0 };
                commands.push(command(Body::DropReplica(drop)));
            }
        }
        commands
    }
}

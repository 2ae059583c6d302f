//! What this node wants the map to say, again and again until it does.

use kvs::membership::{command, member, would_change};
use proto::wire::map_command::Body;
use proto::{Time, limits, wire};

use super::Replica;
use super::activation::Stage;
use super::primary::Learner;
use crate::Effect;

impl Replica {
    pub(super) fn propose(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let due = self.propose_at.is_some_and(|at| at <= now);
        if !due && !self.propose_now {
            return;
        }
        self.propose_now = false;
        let mut open = self.proposals();
        open.retain(|command| would_change(&self.map, command));
        self.propose_at = (!open.is_empty()).then(|| now + limits::PROPOSE_AGAIN);
        effects.extend(open.into_iter().map(|command| Effect::ProposeMap(Box::new(command))));
    }

    fn proposals(&self) -> Vec<wire::MapCommand> {
        let (node, incarnation) = (self.me.0, self.incarnation.0);
        let known = member(&self.map, self.me).map(|member| member.incarnation);
        if known != Some(incarnation) {
            let (store, slots) = (self.store, self.slots);
            let up = wire::MemberUp { node, incarnation, store, slots, ..Default::default() };
            return vec![command(Body::Up(up))];
        }
        let mut commands = Vec::new();
        let ready = self.activations.iter().filter_map(|(partition, activation)| {
            let is_ready = matches!(activation.stage, Stage::Ready { .. });
            let epoch = activation.epoch;
            is_ready.then_some(wire::PartitionEpoch { partition: partition.0, epoch })
        });
        let partitions: Vec<_> = ready.collect();
        if !partitions.is_empty() {
            let activated = wire::Activated { node, incarnation, partitions };
            commands.push(command(Body::Activated(activated)));
        }
        for (&partition, served) in &self.served {
            let (partition, epoch) = (partition.0, served.epoch);
            for (&learner, state) in &served.learners {
                let Learner::CaughtUp { ready: true, .. } = state else { continue };
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

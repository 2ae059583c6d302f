//! The parts of gangs, as the shells of their nodes know them: from the start of a gang to its end,
//! further commands of its task may run on each of its nodes.

use std::collections::BTreeMap;

use proto::work::{GangNode, Granted, Part, PartChange};
use proto::{Attempt, Event, NodeId, TaskId};
use resources::{Name, Quantity, Variant};

use crate::holder::slots::Seat;
use crate::holder::task::Work;
use crate::output::Out;
use crate::{Mutant, Scheduler};

impl Scheduler {
    /// The nodes of a gang that starts here, this node first.
    pub(crate) fn gang_of(
        &self,
        task: TaskId,
        work: &Work,
        granted: Option<&Granted>,
    ) -> Vec<GangNode> {
        let variant = granted.map_or(0, |granted| usize::from(granted.variant));
        let request = work.request();
        let variant = request.as_ref().and_then(|request| request.variants().get(variant));
        let node = |node: NodeId| GangNode {
            cpus: cpus_of(variant, self.routing.homes().slots_of(node)),
            ..self.routing.homes().gang_node(node)
        };
        self.holder.gang_nodes(task).into_iter().map(node).collect()
    }

    /// The parts of gangs that run here, without those of tasks that run here themselves.
    pub(crate) fn parts_of_others(&self) -> usize {
        let parts = self.holder.gangs.iter().flat_map(|gangs| &gangs.told);
        parts.filter(|((task, _), _)| !self.holder.running().contains_key(task)).count()
    }

    /// Tells the shell which parts have begun and which have ended since the last call.
    pub(crate) fn tell_parts(&mut self, out: &mut Out) {
        let Some(gangs) = &mut self.holder.gangs else { return };
        let joined = gangs.line.parts().filter(|(_, part)| part.is_joined());
        let joined: BTreeMap<_, _> =
            joined.map(|(stamp, part)| ((stamp.task, part.attempt), part.leader.0)).collect();
        if joined == gangs.told {
            return;
        }
        // The part of the leader belongs to the attempt, which has events of its own.
        let me = self.options.me;
        let told = std::mem::replace(&mut gangs.told, joined.clone());
        // An end first: the next attempt of a task may begin in the same step.
        let is_silent = self.holder.mutant == Some(Mutant::PartEndUntold);
        let ended = told.iter().filter(|(key, _)| !joined.contains_key(key) && !is_silent);
        for (&(task, attempt), &leader) in ended {
            out.parts.push(PartChange::Ends(task, attempt));
            out.events.extend((leader != me).then_some(Event::PartEnded { task, attempt }));
        }
        let begun = joined.iter().filter(|(key, _)| !told.contains_key(key));
        for (&(task, attempt), &leader) in begun {
            let seat = self.seat_of_part(task, attempt);
            let part = Part {
                task,
                attempt,
                cpus: seat.map_or(1, |seat| 1 + self.holder.slots.more(seat.first).len() as u32),
                granted: seat.and_then(|seat| self.holder.slots.granted(seat)),
            };
            if let Some(seat) = seat.filter(|_| leader != me) {
                let more = self.holder.slots.more(seat.first).iter().copied();
                let slots = std::iter::once(seat.first).chain(more);
                out.events.extend(slots.map(|slot| Event::PartBegan { task, attempt, slot }));
            }
            out.parts.push(PartChange::Begins(Box::new(part)));
        }
    }

    /// The seat of a joined part; that of the first part belongs to the attempt.
    fn seat_of_part(&self, task: TaskId, attempt: Attempt) -> Option<&Seat> {
        let mut parts = self.holder.gangs.as_ref()?.line.parts();
        let part = parts.find(|(stamp, part)| stamp.task == task && part.attempt == attempt);
        let staged = || self.holder.staging.get(&task).and_then(|staged| staged.seat.as_ref());
        let running = || self.holder.running.get(&task).and_then(|running| running.seat());
        part.and_then(|(_, part)| part.seat()).or_else(staged).or_else(running)
    }
}

/// The cpus of one node that a variant asks for; `all`: those that the node has.
fn cpus_of(variant: Option<&Variant>, all: u32) -> u32 {
    let wants = variant.map_or(&[][..], Variant::wants);
    let cpus = wants.iter().find(|want| want.pool == Name::cpus());
    match cpus.map(|want| want.quantity) {
        Some(Quantity::All) => all,
        Some(Quantity::Amount(amount)) => amount.whole_part() as u32,
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use resources::parse_variant;

    use super::*;

    #[test]
    fn a_gang_has_the_cpus_that_it_asks_for_on_each_node() {
        let cpus = |text: &str| cpus_of(Some(&parse_variant(text).unwrap()), 8);
        assert_eq!((cpus("cpus=all"), cpus("cpus=3"), cpus("gpus=1")), (8, 3, 1));
        assert_eq!(cpus_of(None, 8), 1);
    }
}

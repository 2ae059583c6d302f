//! The last copy of a wanted object stays. Copies go when there is little room, as their maker has
//! the object; when the maker is dead or has lost it, the home has one of those who have a copy
//! keep it as if it had been made there.
//!
//! Of what is kept so nothing is written down: who keeps it and restarts takes it for a copy again,
//! and a home that restarts does not know of copies. Then it is made again (`ledger/lineage.rs`).

use std::collections::BTreeMap;

use proto::limits::OBJECTS_PER_MESSAGE_MAX;
use proto::wire::TransferStage;
use proto::wire::message::Body;
use proto::{NodeId, ObjectId, wire};

use crate::data::object_id;
use crate::output::Out;
use crate::{Mutant, Scheduler};

impl Scheduler {
    /// A node is dead, and what it had made or kept for others is gone.
    pub(crate) fn pin_last_copies_of(&mut self, gone: NodeId, out: &mut Out) {
        let orphans = self.ledger.readers.made_on(gone);
        self.pin_last_copies(orphans, out);
    }

    /// Of each of these, which somebody reads and whose maker has them no more, one copy is to
    /// stay: if any is known.
    pub(crate) fn pin_last_copies(&mut self, orphans: Vec<ObjectId>, out: &mut Out) {
        if self.options.mutant == Some(Mutant::LastCopyGoes) {
            return;
        }
        let mut kept: BTreeMap<NodeId, Vec<wire::AttemptOutputs>> = BTreeMap::new();
        for object in orphans {
            let Some(maker) = self.ledger.readers.maker_of(&object) else { continue };
            // Its home may know of a maker that has just said that it has it no more.
            let holder = self.ledger.cell(object.task).map(|cell| cell.holder);
            let goes = |node: NodeId| self.is_dead(node) || self.homes.is_leaving(node);
            let stays = |node: &NodeId| *node != maker && Some(*node) != holder && !goes(*node);
            let Some(keeper) = self.data.directory.nodes(&object).find(stays) else { continue };
            self.ledger.readers.moved(&object, keeper);
            let output = wire::TransferredOutput { output: object.output, ..Default::default() };
            kept.entry(keeper).or_default().push(wire::AttemptOutputs {
                job: object.task.job.0,
                task: object.task.local.0,
                attempt: object.attempt.0,
                outputs: vec![output],
                replicas: 0,
            });
        }
        for (keeper, made) in kept {
            for piece in made.chunks(OBJECTS_PER_MESSAGE_MAX) {
                let (stage, to) = (TransferStage::PinLastCopy as i32, keeper.0);
                let from = self.options.me.0;
                let said = wire::OutputTransfer { stage, from, to, attempts: piece.to_vec() };
                out.reliable.push((keeper, Body::OutputTransfer(said)));
            }
        }
    }

    /// A node has a copy more. It may be the only one of an object whose maker is dead.
    pub(crate) fn on_copy_added(&mut self, object: ObjectId, out: &mut Out) {
        let maker = self.ledger.readers.maker_of(&object);
        if maker.is_some_and(|maker| self.is_dead(maker)) {
            self.pin_last_copies(vec![object], out);
        }
    }

    /// A node has it no more: it cannot be the one that keeps it. Another one is.
    pub(crate) fn on_copy_removed(&mut self, object: ObjectId, from: NodeId, out: &mut Out) {
        if self.ledger.readers.maker_of(&object) == Some(from) {
            self.pin_last_copies(vec![object], out);
        }
    }

    /// Copies here are to stay, as long as there is room for them: if there is none they go in
    /// their turn, and their home hears of it and turns to another one.
    pub(crate) fn on_pin_last_copy(&mut self, made: &[wire::AttemptOutputs]) {
        for transferred in made {
            for output in &transferred.outputs {
                let object = object_id(&wire::Object {
                    job: transferred.job,
                    task: transferred.task,
                    attempt: transferred.attempt,
                    output: output.output,
                    size_bytes: 0,
                });
                let firm_bytes = self.data.objects.idle_bytes_of(&object);
                let taken_bytes = self.data.taken_bytes().saturating_add(firm_bytes);
                if taken_bytes <= self.options.tuning.store_soft_bytes {
                    self.data.objects.keep(object, false);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::MemberPhase;
    use proto::{Attempt, Incarnation, TaskId, Time};

    use super::*;
    use crate::{Homes, Policy, Tuning, test_nodes};

    fn object(number: u64) -> ObjectId {
        ObjectId { task: TaskId::new(1, number), attempt: Attempt(7), output: 0 }
    }

    /// What the map says of four nodes.
    fn homes(dead: &[u32]) -> Homes {
        let member = |node| {
            let phase = if dead.contains(&node) { MemberPhase::Down } else { MemberPhase::Up };
            wire::Member { phase: phase as i32, ..test_nodes::member(node) }
        };
        test_nodes::homes(0, (0..4).map(member).collect(), &[0, 1, 2, 3])
    }
    /// Node 0, home of what node 1 has made, which others read.
    fn home() -> Scheduler {
        let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Eft), homes(&[]));
        home.ledger.readers.expect(object(1), 3, NodeId(1));
        home.ledger.readers.expect(object(2), 3, NodeId(1));
        home
    }
    fn copied(home: &mut Scheduler, number: u64, node: u32) {
        let kept = home.locate_timeout(1);
        home.data.directory.add((Time(0), kept), object(number), NodeId(node));
    }
    /// Who is told to keep which of the tasks' outputs.
    fn told(out: &mut Out) -> Vec<(u32, u64)> {
        let each = std::mem::take(&mut out.reliable).into_iter().flat_map(|(node, body)| {
            let Body::OutputTransfer(said) = body else { return Vec::new() };
            assert_eq!(said.stage(), TransferStage::PinLastCopy);
            said.attempts.iter().map(|transferred| (node.0, transferred.task)).collect()
        });
        each.collect()
    }

    #[test]
    fn one_holder_of_a_copy_pins_it_when_the_maker_is_dead() {
        let (mut home, mut out) = (home(), Out::default());
        copied(&mut home, 1, 2);
        copied(&mut home, 1, 3);
        home.homes = homes(&[1]);
        home.on_peer_gone(Time(0), NodeId(1), Incarnation(1), &mut out);
        assert_eq!(told(&mut out), [(2, 1)], "one of them, and nobody has the other object");
        assert_eq!(home.ledger.readers.maker_of(&object(1)), Some(NodeId(2)));
        // The keeper has no room, and it goes all the same.
        home.data.directory.remove(object(1), NodeId(2));
        home.on_copy_removed(object(1), NodeId(2), &mut out);
        assert_eq!(told(&mut out), [(3, 1)]);
        home.on_copy_removed(object(1), NodeId(2), &mut out);
        assert_eq!(told(&mut out), [], "it does not keep it any more");
        // The keeper dies as well.
        copied(&mut home, 1, 2);
        home.homes = homes(&[1, 3]);
        home.on_peer_gone(Time(0), NodeId(3), Incarnation(1), &mut out);
        assert_eq!(told(&mut out), [(2, 1)]);
    }

    #[test]
    fn what_is_kept_is_no_copy_any_more_where_there_is_room_for_it() {
        let transferred = |number: u64| wire::AttemptOutputs {
            job: 1,
            task: number,
            attempt: 7,
            outputs: vec![wire::TransferredOutput::default()],
            replicas: 0,
        };
        let mut keeper = home();
        keeper.options.tuning.cache_bytes = 0;
        keeper.options.tuning.store_soft_bytes = 15;
        for number in 1..=3 {
            keeper.data.objects.copied(object(number), 10, true, (false, false));
        }
        keeper.on_pin_last_copy(&[transferred(1), transferred(2), transferred(9)]);
        keeper.evict(u64::MAX, &mut Out::default());
        let here = |number| keeper.data.objects.contains(&object(number));
        assert_eq!([here(1), here(2), here(3), here(9)], [true, false, false, false]);
        assert!(keeper.data.objects.mark_deleted(object(1)), "it goes when nobody reads it");
    }
}

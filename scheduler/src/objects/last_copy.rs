//! The last copy of an object that is still read stays. Copies may be evicted, since the maker has
//! the object. Once the maker has failed or lost it, the home asks one node with a copy to keep it,
//! as if it had been made there.
//!
//! This is not recorded. After a restart that node counts the object as a copy again, and a
//! restarted home does not know of copies. Then the object is made again
//! (`ledger/losses/lineage.rs`).

use std::collections::BTreeMap;

use proto::wire::TransferStage;
use proto::wire::message::Body;
use proto::{NodeId, ObjectId, wire};

use crate::home::ledger::Cell;
use crate::limits::OBJECTS_PER_MESSAGE_MAX;
use crate::objects::data::object_id;
use crate::output::Out;
use crate::{Mutant, Scheduler};

impl Scheduler {
    /// A node has failed: objects that it had made, or kept for other nodes, are gone.
    pub(crate) fn pin_last_copies_of(&mut self, gone: NodeId, out: &mut Out) {
        let orphans = self.home.ledger.readers().made_on(gone);
        self.pin_last_copies(orphans, out);
    }

    /// One known copy of each of these objects is to stay: tasks still read them, and their maker
    /// has lost them.
    pub(crate) fn pin_last_copies(&mut self, orphans: Vec<ObjectId>, out: &mut Out) {
        if self.options.mutant == Some(Mutant::LastCopyGoes) {
            return;
        }
        let mut kept: BTreeMap<NodeId, Vec<wire::AttemptOutputs>> = BTreeMap::new();
        for object in orphans {
            let Some(maker) = self.home.ledger.readers().maker_of(&object) else { continue };
            // The holder according to the task's record may be the node that has just reported the
            // loss.
            let holder = self.home.ledger.cell(object.task).map(Cell::holder);
            let goes = |node: NodeId| self.is_dead(node) || self.routing.homes().is_leaving(node);
            let stays = |node: &NodeId| *node != maker && Some(*node) != holder && !goes(*node);
            let Some(keeper) = self.objects.directory.nodes(&object).find(stays) else { continue };
            self.home.ledger.output_moved(&object, keeper);
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

    /// A node has gained a copy. It may be the only one of an object with a failed maker.
    pub(crate) fn on_copy_added(&mut self, object: ObjectId, out: &mut Out) {
        let maker = self.home.ledger.readers().maker_of(&object);
        if maker.is_some_and(|maker| self.is_dead(maker)) {
            self.pin_last_copies(vec![object], out);
        }
    }

    /// A node has lost its copy. If it was to keep the object, another node is chosen.
    pub(crate) fn on_copy_removed(&mut self, object: ObjectId, from: NodeId, out: &mut Out) {
        if self.home.ledger.readers().maker_of(&object) == Some(from) {
            self.pin_last_copies(vec![object], out);
        }
    }

    /// Copies here are to stay while there is space for them. Otherwise they are evicted in their
    /// turn, and their home learns that and chooses another node.
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
                let firm_bytes = self.objects.table.idle_bytes_of(&object);
                let taken_bytes = self.objects.taken_bytes().saturating_add(firm_bytes);
                if taken_bytes <= self.options.tuning.store_soft_bytes {
                    self.objects.table.keep(object, false);
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
    use crate::tests::test_nodes;
    use crate::{Homes, Policy, Tuning};

    fn object(number: u64) -> ObjectId {
        ObjectId { task: TaskId::new(1, number), attempt: Attempt(7), output: 0 }
    }

    /// The map of four nodes, some of them down.
    fn homes(dead: &[u32]) -> Homes {
        let member = |node| {
            let phase = if dead.contains(&node) { MemberPhase::Down } else { MemberPhase::Up };
            wire::Member { phase: phase as i32, ..test_nodes::member(node) }
        };
        test_nodes::homes(0, (0..4).map(member).collect(), &[0, 1, 2, 3])
    }
    /// Node 0, home of outputs that node 1 made and other nodes read.
    fn home() -> Scheduler {
        let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Eft), homes(&[]));
        home.home.ledger.pretend_readers(object(1), 3, NodeId(1));
        home.home.ledger.pretend_readers(object(2), 3, NodeId(1));
        home
    }
    fn copied(home: &mut Scheduler, number: u64, node: u32) {
        let kept = home.locate_timeout(1);
        home.objects.directory.add((Time(0), kept), object(number), NodeId(node));
    }
    /// Which node is asked to keep the output of which task.
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
        home.routing.replace_homes(homes(&[1]));
        home.on_peer_gone(Time(0), NodeId(1), Incarnation(1), &mut out);
        assert_eq!(told(&mut out), [(2, 1)], "one of them, and no node has the other object");
        assert_eq!(home.home.ledger.readers().maker_of(&object(1)), Some(NodeId(2)));
        // The chosen node has no space, and its copy is evicted.
        home.objects.directory.remove(object(1), NodeId(2));
        home.on_copy_removed(object(1), NodeId(2), &mut out);
        assert_eq!(told(&mut out), [(3, 1)]);
        home.on_copy_removed(object(1), NodeId(2), &mut out);
        assert_eq!(told(&mut out), [], "it does not keep it any more");
        // The chosen node fails too.
        copied(&mut home, 1, 2);
        home.routing.replace_homes(homes(&[1, 3]));
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
            keeper.objects.table.copied(object(number), 10, true, (false, false));
        }
        keeper.on_pin_last_copy(&[transferred(1), transferred(2), transferred(9)]);
        keeper.evict(u64::MAX, &mut Out::default());
        let here = |number| keeper.objects.table.contains(&object(number));
        assert_eq!([here(1), here(2), here(3), here(9)], [true, false, false, false]);
        assert!(
            keeper.objects.table.mark_deleted(object(1)),
            "it is deleted when no task reads it"
        );
    }
}

//! Disks that fail to write or read, and values that change on disk. A node that detects such a
//! fault discards all its records. It restarts with a new store, which the other members fill.
//!
//! The shell checks record checksums. The simulation knows a changed value by its place.

use kvs::{PageRequest, keys};
use proto::PartitionId;
use proto::limits::STORE_REPLACEMENTS_MAX;

use crate::faults::strikes::injection::Fault;
use crate::faults::world::World;
use crate::state::disk::FlippedRecord;
use crate::state::machine::PendingCrash;

/// The failure rates of disks, per thousand operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFaults {
    pub writes_permille: u64,
    pub reads_permille: u64,
}

impl World {
    /// True if this disk may fail now without more losses than the cluster survives. One disk fails
    /// at a time, and other live nodes must have all its records. The rest of the cluster need not
    /// be whole: pages are also read where replicas are missing.
    fn may_fail(&self, index: usize) -> bool {
        self.injection.strikes_at(self.now)
            && self.machines[index].renewals < STORE_REPLACEMENTS_MAX
            && self.homes_move()
            && !self.is_unsettled()
            && !self.a_loss_is_unnoticed()
            && !self.has_hidden_damage()
            && self.can_do_without(index, Fault::Reformat)
            && self.is_known_by_disk(index)
            && self.voters_know_of_a_map()
            && self.all_vote_but(index)
            && self.others_have_all_of(index)
    }

    /// True if the map lists the node's disk. Founding nodes are in the map before their disks are;
    /// for them a second disk would look like the first one.
    fn is_known_by_disk(&self, index: usize) -> bool {
        let known = kvs::membership::member(&self.map, proto::NodeId(index as u32));
        known.is_some_and(|member| member.store == self.machines[index].store)
    }

    /// True if all other voters are live and no voter is added or removed. A small group survives
    /// one loss.
    fn all_vote_but(&self, index: usize) -> bool {
        let voters = &self.map.voters;
        let nodes = voters.iter().filter_map(|&node| self.machines[node as usize].node.as_ref());
        let told = nodes.filter_map(|node| node.voters());
        kvs::membership::wanted_voters(&self.map).is_none()
            && voters.iter().all(|&node| node as usize == index || self.is_live(node))
            && told.filter(|told| !told.is_empty()).all(|told| told == voters.as_slice())
    }

    fn others_have_all_of(&self, index: usize) -> bool {
        let index = index as u32;
        (0..).map(PartitionId).zip(&self.map.partitions).all(|(partition, entry)| {
            let mut others = entry.replicas.iter().filter(|&&node| node != index);
            !entry.replicas.contains(&index)
                || others.any(|&node| self.is_live(node) && self.is_complete(node, partition))
        })
    }

    /// True if this write or its sync fails. Then the process ends at once.
    pub(crate) fn write_fails(&mut self, index: usize) -> bool {
        let permille = self.injection.options().disks.writes_permille;
        let fails = self.dice.chance(permille) && self.may_fail(index);
        if fails {
            self.count_fault("failed-write");
            self.give_records_up(index, "a write failed");
        }
        fails
    }

    /// True if a page cannot be read or contains a changed record.
    pub(crate) fn read_fails(&mut self, index: usize, request: &PageRequest) -> bool {
        self.spare_the_last_copy(index);
        if self.is_damaged_in(index, request) {
            self.count_fault("flip-found");
            self.give_records_up(index, "a record does not fit its checksum");
            return true;
        }
        let permille = self.injection.options().disks.reads_permille;
        let fails = self.dice.chance(permille) && self.may_fail(index);
        if fails {
            self.count_fault("failed-read");
            self.give_records_up(index, "a read failed");
        }
        fails
    }

    /// Changes one value on a disk, unnoticed.
    pub(crate) fn flip(&mut self, index: usize) {
        if !self.may_fail(index) {
            return;
        }
        let of_partitions = |record: &kvs::Record| record.partition != keys::META_PARTITION;
        let count = self.machines[index].disk.records().filter(of_partitions).count();
        if count == 0 {
            return;
        }
        let at = self.dice.index(count);
        let machine = &mut self.machines[index];
        let record = machine.disk.records().filter(of_partitions).nth(at);
        machine.flipped = record.map(|record| FlippedRecord {
            partition: record.partition,
            key: record.key,
            value: record.value,
        });
        self.count_fault("flipped");
        self.tell(|| format!("n{index}: a value is another one"));
    }

    /// Ends the disk faults. A change that no node has detected yet is undone.
    pub(crate) fn mend_disks(&mut self) {
        self.injection.mend_disks();
        for machine in &mut self.machines {
            machine.flipped = None;
        }
    }

    /// Undoes an undetected change that would now be one loss too many. This is so if the nodes
    /// with the other replicas were declared failed since, or if the group needs this node now.
    pub(crate) fn spare_the_last_copy(&mut self, index: usize) {
        let is_last = |entry: &proto::wire::PartitionEntry| entry.replicas == [index as u32];
        let is_needed = self.map.partitions.iter().any(is_last) || !self.can_agree_without(index);
        if self.homes_move() && is_needed {
            self.machines[index].flipped = None;
        }
    }

    fn is_damaged_in(&self, index: usize, request: &PageRequest) -> bool {
        let Some(flipped) = &self.machines[index].flipped else { return false };
        self.is_damaged(index)
            && flipped.partition == request.partition
            && request.after.as_ref().is_none_or(|after| *after < flipped.key)
    }

    /// True if the changed value is still on the disk.
    pub(crate) fn is_damaged(&self, index: usize) -> bool {
        let machine = &self.machines[index];
        machine.flipped.as_ref().is_some_and(|flipped| {
            let value = machine.disk.value(flipped.partition, &flipped.key);
            value == Some(flipped.value.as_slice())
        })
    }

    /// True if some disk has an undetected change, or a power cut could restore one because its
    /// repair is not synced.
    pub(crate) fn has_hidden_damage(&self) -> bool {
        (0..self.machines.len()).any(|index| {
            let machine = &self.machines[index];
            let is_mended = machine.disk.unsynced() == 0 && !self.is_damaged(index);
            machine.flipped.is_some() && !is_mended
        })
    }

    /// Moves the node's directory aside. Its next disk has another store number.
    pub(crate) fn give_records_up(&mut self, index: usize, why: &str) {
        self.count_fault("records-given-up");
        self.tell(|| format!("n{index} gives its records up: {why}"));
        if self.machines[index].is_up() {
            self.machines[index].pending_crash = Some(PendingCrash::Crash);
            self.die(index);
        }
        let store = self.dice.number() | 1;
        let machine = &mut self.machines[index];
        machine.renewals += 1;
        machine.is_late = true;
        machine.change_disk(store);
    }
}

//! The checks of *copies* and *map*: they look at the whole world, so they are here.
//! [`checkers::copies`](crate::checkers::copies) has their rules and what was seen.

use std::collections::VecDeque;

use kvs::membership::{member, min_in_sync};
use kvs::replica::{CopyState, Position};
use proto::wire::map_command::Body;
use proto::{Incarnation, NodeId, PartitionId, wire};

use crate::checkers::copies::{Last, Written};
use crate::checkers::{Verdict, Violation};
use crate::faults::world::World;
use crate::state::disk::BatchState;
use crate::state::machine::Machine;

impl World {
    /// A batch is in the log of a node. Records its replicas' positions, and the changes that the
    /// node orders as primary.
    pub(crate) fn note_written(&mut self, index: usize, batch: u64, stands: &[BatchState]) {
        if !self.homes_move() {
            return;
        }
        for stand in stands {
            let verdict = self.acked.histories.on_stand(index, stand);
            self.judge(verdict);
        }
        let Some(node) = &self.machines[index].node else { return };
        let served = stands.iter().filter(|stand| node.serves(stand.partition).is_some());
        let moved = served.filter(|stand| stand.before.position != stand.state.position);
        let written = moved.map(|stand| {
            let (partition, position) = (stand.partition, stand.state.position);
            Written { batch, partition, position }
        });
        let written: Vec<Written> = written.collect();
        self.acked.written.entry(index).or_default().extend(&written);
        self.acked.unsettled.entry(index).or_default().extend(written);
    }

    /// Checks the batches that the node has acknowledged or settled since the last call.
    pub(crate) fn note_acknowledged(&mut self, index: usize) {
        let Some(node) = &self.machines[index].node else { return };
        let bounds = (node.acknowledged(), node.settled());
        let incarnation = Incarnation(self.machines[index].incarnation);
        let by = (NodeId(index as u32), incarnation);
        let take = |queue: Option<&mut VecDeque<Written>>, bound: u64| {
            let mut done = Vec::new();
            if let Some(queue) = queue {
                while let Some(first) = queue.pop_front_if(|first| first.batch <= bound) {
                    done.push(first);
                }
            }
            done
        };
        let done = take(self.acked.written.get_mut(&index), bounds.0);
        let settled = take(self.acked.unsettled.get_mut(&index), bounds.1);
        for written in done {
            if let Err(violation) = self.acknowledge(written, by) {
                return self.judge(Err(violation));
            }
        }
        for written in settled {
            if let Err(violation) = self.settle(written, by) {
                return self.judge(Err(violation));
            }
        }
    }

    /// A node reads all records of a replica for a take-over. All other members must refuse changes
    /// of earlier primaries by now.
    pub(crate) fn note_read(&mut self, index: usize, partition: PartitionId) {
        let Some(node) = &self.machines[index].node else { return };
        if node.serves(partition).is_some() {
            return; // A learner is filled with them.
        }
        let own = self.machines[index].disk.copy(partition);
        self.acked.read.insert((index, partition), own.position);
        let entry = &self.map.partitions[partition.0 as usize];
        if entry.epoch != own.promised || entry.active || entry.replicas[0] as usize != index {
            return; // The node does not have the newest map yet.
        }
        for &node in &entry.replicas {
            let promised = self.machines[node as usize].disk.durable_copy(partition).promised;
            if self.is_of_map(node) && promised < entry.epoch {
                let text = format!(
                    "{partition}: n{index} goes on under epoch {}, and n{node} has promised \
                     nothing after {promised} permanently",
                    entry.epoch
                );
                return self.judge(Err(Violation::new("copies", text)));
            }
        }
    }

    /// A partition has a primary again. Returns the position at which it starts.
    pub(crate) fn note_begun(
        &mut self,
        partition: PartitionId,
        epoch: u64,
        home: usize,
    ) -> Position {
        // Its disk may have failed since it registered.
        let store = member(&self.map, NodeId(home as u32)).map_or(0, |member| member.store);
        let position = self.machines[home].disk_of(store).copy(partition).position;
        // Its first changes may be in the log already.
        let position = self.acked.histories.before(partition, position, epoch);
        let verdict = self.acked.begins(home, partition, epoch, position);
        self.judge(verdict);
        position
    }

    /// The map makes a learner a member: it must have everything.
    pub(crate) fn note_counted(&mut self, command: &wire::MapCommand) {
        let Some(Body::CaughtUp(caught_up)) = &command.body else { return };
        let (node, partition) = (caught_up.learner, PartitionId(caught_up.partition));
        if self.is_of_map(node) {
            let state = self.machines[node as usize].disk.durable_copy(partition);
            let verdict = self.has_all("counted from now on,", node, partition, state);
            self.judge(verdict);
        }
    }

    /// True if the node has all settled changes durably.
    pub(crate) fn is_complete(&self, node: u32, partition: PartitionId) -> bool {
        let state = self.machines[node as usize].disk.durable_copy(partition);
        self.has_all("looked at,", node, partition, state).is_ok()
    }

    fn has_all(&self, how: &str, node: u32, partition: PartitionId, state: CopyState) -> Verdict {
        let who = format!("n{node}, {how}");
        if !state.is_whole {
            let text = format!("{partition}: {who} has not all records");
            return Err(Violation::new("copies", text));
        }
        self.acked.histories.has_settled(&who, partition, state.position)
    }

    /// True if the map lists this process, or if the process is down and the map lists its disk.
    fn is_of_map(&self, node: u32) -> bool {
        let machine = &self.machines[node as usize];
        let known = member(&self.map, NodeId(node));
        let same_store = known.is_some_and(|it| it.store == 0 || it.store == machine.store);
        let incarnation = known.map_or(0, |member| member.incarnation);
        // The map does not know the disk of another incarnation yet.
        same_store && incarnation.max(1) == machine.incarnation
    }

    /// The cluster is at rest: no learner may still wait to be filled.
    pub(crate) fn no_copy_is_forgotten(&self) -> Verdict {
        for (partition, entry) in (0..).map(PartitionId).zip(&self.map.partitions) {
            if let Some(node) = entry.learners.iter().find(|node| self.is_live(**node)) {
                let text =
                    format!("{partition}: n{node} waits without end to be filled: {entry:?}");
                return Err(Violation::new("copies", text));
            }
        }
        Ok(())
    }

    /// At rest, every member must be at the primary's position on its disk, with all settled
    /// changes.
    pub(crate) fn copies_are_equal(&self) -> Verdict {
        for (partition, entry) in (0..).map(PartitionId).zip(&self.map.partitions) {
            let first = self.machines[entry.replicas[0] as usize].disk.copy(partition);
            for &node in entry.replicas.iter().filter(|&&node| self.is_live(node)) {
                let state = self.machines[node as usize].disk.durable_copy(partition);
                self.has_all("at rest,", node, partition, state)?;
                if state.position != first.position {
                    let text = format!(
                        "{partition}: at rest n{node} is at {:?}, its primary at {:?}: {entry:?}",
                        state.position, first.position
                    );
                    return Err(Violation::new("copies", text));
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self, written: Written, by: (NodeId, Incarnation)) -> Verdict {
        let Written { partition, position, .. } = written;
        let entry = &self.map.partitions[partition.0 as usize];
        for &node in &entry.replicas {
            let state = self.machines[node as usize].disk.durable_copy(partition);
            if self.is_of_map(node) && (state.position < position || !state.is_whole) {
                let text = format!(
                    "{partition}: {by:?} may tell of {position:?}, but after a power cut n{node} \
                     would be at {state:?}"
                );
                return Err(Violation::new("copies", text));
            }
        }
        self.is_on_enough(written)?;
        self.acked.histories.settle(partition, position)
    }

    /// A replica is removed: it was whole up to here.
    pub(crate) fn note_emptied(&mut self, index: usize, partition: PartitionId) {
        let state = self.machines[index].disk.durable_copy(partition);
        if state.is_whole {
            self.acked.removed_at.insert((index, partition), state.position);
        }
    }

    /// Checks that a settled change survives the required number of losses. A node that has since
    /// lost its disk or removed its replica may have acknowledged it before.
    fn is_on_enough(&self, written: Written) -> Verdict {
        let Written { partition, position, .. } = written;
        let has = |&(index, machine): &(usize, &Machine)| {
            let state = machine.disk.durable_copy(partition);
            let had = self.acked.removed_at.get(&(index, partition));
            (state.position >= position && state.is_whole)
                || had.is_some_and(|had| *had >= position)
        };
        let holders = (0..).zip(&self.machines).filter(has).count();
        let gone = ["reformat", "records-given-up"];
        let may_be_fewer = gone.iter().any(|fault| self.injection.counts().contains_key(fault));
        if holders < min_in_sync(self.map.copies) && !may_be_fewer {
            let entry = &self.map.partitions[partition.0 as usize];
            let text = format!(
                "{partition}: {position:?} is settled, and on {holders} disks; now {entry:?}"
            );
            return Err(Violation::new("copies", text));
        }
        Ok(())
    }

    fn acknowledge(
        &mut self,
        written: Written,
        by: (NodeId, Incarnation),
    ) -> Result<(), Violation> {
        let Written { partition, position, .. } = written;
        if let Some(next) = self.acked.is_left_out(partition, position) {
            let text = format!(
                "{partition}: {by:?} acknowledges {position:?}, but its successor began with \
                 {next:?}"
            );
            return Err(Violation::new("map", text));
        }
        let last = self.acked.last.get(&partition);
        if let Some(last) = last.filter(|last| position.epoch >= last.position.epoch) {
            let backward = position <= last.position;
            let two = position.epoch == last.position.epoch && by != last.by;
            if backward || two {
                let text = format!(
                    "{partition}: {by:?} acknowledges {position:?} after {:?} did {:?}",
                    last.by, last.position
                );
                return Err(Violation::new("map", text));
            }
        }
        if last.is_none_or(|last| position > last.position) {
            self.acked.last.insert(partition, Last { position, by });
        }
        let entry = &self.map.partitions[partition.0 as usize];
        for &node in &entry.replicas {
            let machine = &self.machines[node as usize];
            if !machine.is_up() || !self.is_of_map(node) {
                continue;
            }
            let state = machine.disk.copy(partition);
            if state.position < position || !state.is_whole {
                let text = format!(
                    "{partition}: {by:?} acknowledges {position:?}, but n{node} is at {state:?}"
                );
                return Err(Violation::new("copies", text));
            }
        }
        Ok(())
    }
}

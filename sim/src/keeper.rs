//! Who keeps the map where homes move: one that sees the whole world, takes the place of the group
//! and of the nodes' failure detectors, and tells each node of changes in its own time.

use std::sync::Arc;

use kvs::Batch;
use kvs::membership::{apply, command, member, plan};
use kvs::replica::{Position, copy_record};
use node::Input;
use proto::wire::map_command::Body;
use proto::{Attempt, JobId, NodeId, PartitionId, Span, TaskId, wire};

use crate::checkers::{durable, once};
use crate::queue::Happening;
use crate::world::World;

/// How long a proposal travels, and how long until what the planner says is agreed on.
const PROPOSAL_MAX: Span = Span::from_millis(20);
const PLANNING_MAX: Span = Span::from_millis(300);
/// Who has not heard of the newest map is told again about this often.
const GOSSIP: Span = Span::from_millis(400);
/// While there are faults: proposals and announcements that get lost, out of a thousand.
const LOST_PERMILLE: u64 = 200;

impl World {
    pub(crate) fn homes_move(&self) -> bool {
        self.options.copies > 1
    }

    /// A node proposes; the way to the keeper is as bad as the network.
    pub(crate) fn propose(&mut self, command: wire::MapCommand) {
        if self.is_troubled() && self.dice.chance(LOST_PERMILLE) {
            return;
        }
        let at = self.now + self.dice.span(Span::ZERO, PROPOSAL_MAX);
        self.schedule(at, Happening::Agreed { command: Box::new(command) });
    }

    fn is_troubled(&self) -> bool {
        self.now < self.faults_until
    }

    /// A command takes effect: the keeper's map is the truth from now on.
    pub(crate) fn agreed(&mut self, command: &wire::MapCommand) {
        if let Some(Body::Up(up)) = &command.body {
            let machine = &self.machines[up.node as usize];
            // A word of an earlier life; or a slow one of a process that has ended since.
            if machine.incarnation != up.incarnation {
                return;
            }
        }
        let mut map = self.map.as_ref().clone();
        if !apply(&mut map, command) {
            return;
        }
        self.tell(|| format!("map {}: {:?}", map.epoch, command.body));
        self.mix(map.epoch);
        let before = std::mem::replace(&mut self.map, Arc::new(map));
        self.map_changed(&before);
        for node in 0..self.machines.len() {
            self.announce_map(node);
        }
        if !self.planning {
            self.planning = true;
            let at = self.now + self.dice.span(Span::ZERO, PLANNING_MAX);
            self.schedule(at, Happening::Plan);
        }
    }

    /// The planner looks at the map.
    pub(crate) fn plan_map(&mut self) {
        self.planning = false;
        for command in plan(&self.map) {
            self.agreed(&command);
        }
    }

    /// This node hears of the map; it may be that it does not.
    fn announce_map(&mut self, node: usize) {
        if !self.machines[node].is_up() {
            return;
        }
        if !self.is_troubled() || !self.dice.chance(LOST_PERMILLE) {
            let late = self.is_troubled() && self.dice.chance(100);
            let latest = Span::from_millis(if late { 1_500 } else { 20 });
            let at = self.now + self.dice.span(Span::ZERO, latest);
            let input = Box::new(Input::MapCommitted { map: Box::new(self.map.as_ref().clone()) });
            let incarnation = self.machines[node].incarnation;
            self.schedule(at, Happening::Input { node, incarnation, input });
        }
        if !std::mem::replace(&mut self.machines[node].gossip_due, true) {
            let at = self.now + self.dice.around(GOSSIP);
            self.schedule(at, Happening::Gossip { node });
        }
    }

    pub(crate) fn gossip(&mut self, index: usize) {
        self.machines[index].gossip_due = false;
        let behind = |node: &node::Node| node.map_epoch() < self.map.epoch;
        if self.machines[index].node.as_ref().is_some_and(behind) {
            self.announce_map(index);
        }
    }

    /// Somebody notices, after a while, that a process is not there any more, or thinks so.
    pub(crate) fn suspect(&mut self, index: usize, after: Span) {
        if self.homes_move() {
            let incarnation = self.machines[index].incarnation;
            self.schedule(self.now + after, Happening::Suspected { node: index, incarnation });
        }
    }

    pub(crate) fn suspected(&mut self, index: usize, incarnation: u32) {
        let node = index as u32;
        let down = wire::MemberDown { node, incarnation };
        let known = member(&self.map, NodeId(node)).map_or(0, |member| member.incarnation);
        // Who has started again and is about to say so is not dead.
        if incarnation >= known {
            self.agreed(&command(Body::Down(down)));
        }
    }

    /// This incarnation is dead to the others: its process ends all it does and starts anew.
    pub(crate) fn fenced(&mut self, index: usize) {
        self.count_fault("fenced");
        self.machines[index].doom = Some(crate::machine::Doom::Fenced);
        self.die(index);
    }

    /// It runs, and the map knows.
    pub(crate) fn is_live(&self, node: u32) -> bool {
        let machine = &self.machines[node as usize];
        let member = member(&self.map, NodeId(node));
        let current = member.is_some_and(|member| member.incarnation == machine.incarnation);
        machine.is_up() && machine.doom.is_none() && current
    }

    /// The map has as many copies of everything as are wanted, on machines that run.
    pub(crate) fn is_whole(&self) -> bool {
        self.map.partitions.iter().all(|entry| {
            let copies = entry.replicas.iter().filter(|node| self.is_live(**node)).count();
            entry.active && copies >= self.options.copies as usize
        })
    }
}

/// A fact that a primary has written; void if the partition goes on without it.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub position: Position,
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Committed(TaskId, Attempt),
    Ended(JobId),
}

impl World {
    /// Whether what this node writes to a partition may be the truth.
    pub(crate) fn speaks_for(&self, index: usize, partition: PartitionId) -> bool {
        let entry = &self.map.partitions[partition.0 as usize];
        if !self.homes_move() || !entry.active {
            return true;
        }
        let known = member(&self.map, NodeId(index as u32)).map_or(0, |m| m.incarnation);
        let current = known == 0 || known == self.machines[index].incarnation;
        entry.replicas[0] as usize == index && current
    }

    /// Notes what a batch says of partitions that may yet go on without it.
    pub(crate) fn note_facts(
        &mut self,
        batch: &Batch,
        commits: &[(TaskId, Attempt)],
        ended: &[JobId],
    ) {
        if !self.homes_move() {
            return;
        }
        let at = |partition: PartitionId| {
            let mut writes = batch.writes.iter().filter(|write| write.partition == partition);
            writes.find_map(copy_record).map(|(position, _)| position)
        };
        let partitions = self.map.partitions.len() as u32;
        let commits = commits
            .iter()
            .map(|&(task, attempt)| (task.partition(), What::Committed(task, attempt)));
        let ended =
            ended.iter().map(|&job| (kvs::job_partition(job, partitions), What::Ended(job)));
        for (partition, what) in commits.chain(ended).collect::<Vec<_>>() {
            let position = at(partition).unwrap_or_default();
            self.facts.entry(partition).or_default().push(Fact { position, what });
        }
    }

    /// Partitions have new primaries: what those did not get never was.
    fn map_changed(&mut self, before: &wire::ClusterMap) {
        let map = Arc::clone(&self.map);
        for (at, entry) in (0..).zip(&map.partitions) {
            let partition = PartitionId(at);
            if !entry.active || before.partitions[at as usize].active {
                continue;
            }
            let primary = &self.machines[entry.replicas[0] as usize];
            let (position, _) = primary.disk.copy(partition);
            self.acked.begins(partition, entry.epoch, position);
            let facts = self.facts.entry(partition).or_default();
            let (kept, void): (Vec<_>, Vec<_>) =
                facts.drain(..).partition(|fact| fact.position <= position);
            *facts = kept;
            for fact in void {
                match fact.what {
                    What::Committed(task, attempt) => {
                        self.judge(durable::on_task_undone(&self.jobs, task, attempt));
                        once::undo(&mut self.jobs, task, attempt);
                    }
                    What::Ended(job) => self.judge(durable::on_end_undone(&self.jobs, job)),
                }
            }
        }
    }
}

//! The latest map that any node knows: the members and the homes of all partitions. Checkers use
//! it, and faults use it to stay within the losses that the cluster must survive.
//!
//! The leader of the group knows each command first. The map of every node must be one version of
//! this history.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvs::membership::{apply, command, is_fully_replicated, member};
use kvs::replica::Position;
use node::Input;
use prost::Message as _;
use proto::wire::MemberPhase;
use proto::wire::map_command::Body;
use proto::{Attempt, JobId, NodeId, PartitionId, Span, TaskId, Time, wire};

use crate::checkers::{Violation, durable, once};
use crate::faults::event_queue::SimEvent;
use crate::faults::options::AgreedHook;
use crate::faults::strikes::injection::Fault;
use crate::faults::world::World;
use crate::state::disk::BatchState;
use crate::state::machine::{Machine, PendingCrash};

/// Longest time until other nodes see the transports of a dead process break.
const RESET_MAX: Span = Span::from_millis(5);
/// Longest time until a proposed command takes effect.
const CHANGE_MAX: Span = Span::from_secs(5);
/// The share of the other nodes that see transports break when a process dies, and when a machine
/// dies.
const RESET_SEEN_PERMILLE: u64 = 800;
const RESET_SEEN_OF_MACHINE_PERMILLE: u64 = 200;

/// What the voters have agreed on, and the facts that depend on it.
pub(crate) struct Agreed {
    first_map: Arc<wire::ClusterMap>,
    /// The checksum of each map, by epoch.
    maps: BTreeMap<u64, u64>,
    hook: Option<AgreedHook>,
    /// A proposed change that may leave too few healthy nodes. It counts until the map shows it, or
    /// until this time.
    unsettled: Option<(wire::MapCommand, Time)>,
    /// Where homes move: the facts written to each partition.
    facts: BTreeMap<PartitionId, Vec<Fact>>,
    /// The last homes of inactive partitions, and until when nodes served partitions that others
    /// have now.
    last_homes: BTreeMap<PartitionId, u32>,
    homes_until: BTreeMap<(PartitionId, u32), Time>,
}

impl Agreed {
    pub(crate) fn new(first_map: Arc<wire::ClusterMap>) -> Self {
        Self {
            first_map,
            maps: BTreeMap::new(),
            hook: None,
            unsettled: None,
            facts: BTreeMap::new(),
            last_homes: BTreeMap::new(),
            homes_until: BTreeMap::new(),
        }
    }
    pub(crate) fn first_map(&self) -> &Arc<wire::ClusterMap> {
        &self.first_map
    }
    /// Until when the node served the partition, if another one does now.
    pub(crate) fn served_until(&self, partition: PartitionId, node: usize) -> Option<Time> {
        self.homes_until.get(&(partition, node as u32)).copied()
    }
}

impl World {
    /// Sets the hook for changes of the map.
    pub fn on_agreed(&mut self, hook: AgreedHook) {
        self.agreed.hook = Some(hook);
    }

    pub(crate) fn homes_move(&self) -> bool {
        self.options.copies > 1
    }

    /// Takes over the map of a node if it is newer than the latest known one.
    pub(crate) fn map_came(&mut self, index: usize, map: &wire::ClusterMap) {
        if map.epoch > self.map.epoch {
            let node = self.machines[index].node.as_ref();
            let commands = node.and_then(|node| node.map_commands_since(self.map.epoch));
            let Some(commands) = commands else {
                let text = format!("n{index} has a map of epoch {} out of nothing", map.epoch);
                return self.judge(Err(Violation::new("map", text)));
            };
            commands.iter().for_each(|command| self.agreed(command));
        }
        let sum = checksum(map);
        if self.agreed.maps.get(&map.epoch) != Some(&sum) {
            let text = format!("n{index} has another map of epoch {} than others had", map.epoch);
            self.judge(Err(Violation::new("map", text)));
        }
    }

    /// Applies a committed command to the latest known map.
    fn agreed(&mut self, command: &wire::MapCommand) {
        let mut map = self.map.as_ref().clone();
        if !apply(&mut map, command) {
            let text = format!("{command:?} was agreed on, and changes nothing");
            return self.judge(Err(Violation::new("map", text)));
        }
        self.tell(|| format!("map {}: {:?}", map.epoch, command.body));
        if let Some(hook) = &mut self.agreed.hook {
            hook(command);
        }
        self.mix(map.epoch);
        self.agreed.maps.insert(map.epoch, checksum(&map));
        let before = std::mem::replace(&mut self.map, Arc::new(map));
        self.map_changed(&before);
        self.note_counted(command);
        match &command.body {
            Some(Body::Up(up)) => {
                self.lives.comes(up.node as usize, self.now);
                self.note_shown(up.node as usize);
            }
            Some(Body::Down(down)) => {
                self.lives.goes(down.node as usize, self.now);
                self.note_shown(down.node as usize);
            }
            Some(Body::Remove(remove)) => self.lives.leaves(remove.node as usize, self.now),
            Some(Body::Join(join)) => self.has_joined(join),
            _ => {}
        }
        if let Some(Body::Leave(leave)) = &command.body {
            self.starve.leaves(self.now, leave.node as usize);
        }
        self.note_slow();
        self.strike_growth(command);
        if let Some(Body::Down(down)) = &command.body
            && self.options.faultless
        {
            let text = format!("n{} was declared failed, and no fault was injected", down.node);
            self.judge(Err(Violation::new("map", text)));
        }
    }

    /// Reports to the *starve* checker whether a node can take work. A process that is down in the
    /// map takes none.
    pub(crate) fn note_shown(&mut self, index: usize) {
        if self.machines.get(index).is_some_and(Machine::is_up) {
            let member = member(&self.map, NodeId(index as u32));
            let is_dead = |member: &wire::Member| member.phase() == MemberPhase::Down;
            let is_alive = !self.homes_move() || !member.is_some_and(is_dead);
            self.starve.shows(self.now, index, is_alive);
        }
    }

    /// Reports slow nodes to the *starve* checker. A slow node gets no tasks, so its free slots do
    /// not count.
    fn note_slow(&mut self) {
        let map = Arc::clone(&self.map);
        for member in &map.members {
            let node = member.node as usize;
            let is_up = self.machines.get(node).is_some_and(Machine::is_up);
            self.starve.is_slow(self.now, node, member.slow, is_up);
        }
    }

    /// The nodes that are slow in the map.
    #[must_use]
    pub fn slow_nodes(&self) -> Vec<usize> {
        let slow = self.map.members.iter().filter(|member| member.slow);
        slow.map(|member| member.node as usize).collect()
    }

    /// Proposes a change at some running node.
    pub(crate) fn propose(&mut self, body: Body) {
        let up: Vec<usize> =
            (0..self.machines.len()).filter(|&node| self.machines[node].is_up()).collect();
        if !up.is_empty() {
            let node = self.dice.pick(&up);
            self.deliver(node, Input::Propose(Box::new(command(body))));
        }
    }

    /// Declares this process failed after the given time, even if it runs.
    pub(crate) fn evict_after(&mut self, index: usize, after: Span) {
        if self.homes_move() {
            let incarnation = self.machines[index].incarnation;
            self.schedule(self.now + after, SimEvent::Evict { node: index, incarnation });
        }
    }
    /// Declares this node failed, even if it runs.
    pub fn declare_dead(&mut self, node: u32) {
        let incarnation = self.machines[node as usize].incarnation;
        let up = (0..self.machines.len() as u32).rev();
        let by = up.into_iter().find(|&other| other != node && self.is_live(other));
        let down = Body::Down(wire::MemberDown { node, incarnation });
        if let Some(by) = by {
            self.deliver(by as usize, Input::Propose(Box::new(command(down))));
        }
    }
    pub(crate) fn evict(&mut self, index: usize, incarnation: u32) {
        let down = wire::MemberDown { node: index as u32, incarnation };
        let would_change = kvs::membership::would_change(&self.map, &command(Body::Down(down)));
        if would_change && !self.is_unbearable(Fault::Evict) {
            self.propose_unsettling(Body::Down(down));
        }
    }

    /// Proposes a change that may leave too few nodes for a further loss. Such losses wait until
    /// the map shows the change.
    pub(crate) fn propose_unsettling(&mut self, body: Body) {
        self.agreed.unsettled = Some((command(body.clone()), self.now + CHANGE_MAX));
        self.propose(body);
    }
    pub(crate) fn is_unsettled(&self) -> bool {
        self.agreed.unsettled.as_ref().is_some_and(|(command, until)| {
            self.now < *until && kvs::membership::would_change(&self.map, command)
        })
    }

    /// A process has ended: other nodes may see their transports to it break.
    pub(crate) fn break_transports(&mut self, index: usize, pending_crash: PendingCrash) {
        if !self.homes_move() {
            return;
        }
        let permille = match pending_crash {
            PendingCrash::PowerCut => RESET_SEEN_OF_MACHINE_PERMILLE,
            PendingCrash::Crash | PendingCrash::Fenced | PendingCrash::Stopped => {
                RESET_SEEN_PERMILLE
            }
        };
        for node in 0..self.machines.len() {
            if self.machines[node].is_up() && self.dice.chance(permille) {
                self.lose_transport(node, index);
            }
        }
    }

    pub(crate) fn lose_transport(&mut self, node: usize, peer: usize) {
        let at = self.now + self.dice.span(Span::ZERO, RESET_MAX);
        let input = Box::new(Input::PeerLost { peer: NodeId(peer as u32) });
        let life = self.machines[node].life;
        self.schedule(at, SimEvent::Input { node, life, input });
    }

    /// The cluster declared this incarnation failed: its process ends, and the node restarts under
    /// the next incarnation.
    pub(crate) fn fenced(&mut self, index: usize, restart: Option<proto::Incarnation>) {
        self.count_fault("fenced");
        let machine = &mut self.machines[index];
        machine.pending_crash = Some(PendingCrash::Fenced);
        match restart {
            Some(least) => machine.incarnation = machine.incarnation.max(least.0 - 1),
            None => machine.has_left = true,
        }
        self.die(index);
    }

    /// True if the node runs and the map lists its incarnation and its store.
    pub(crate) fn is_live(&self, node: u32) -> bool {
        let machine = &self.machines[node as usize];
        let member = member(&self.map, NodeId(node));
        let current = member.is_some_and(|member| {
            member.phase() != MemberPhase::Down
                && member.incarnation == machine.incarnation
                && member.store == machine.store
        });
        machine.is_up() && machine.pending_crash.is_none() && current
    }

    /// True if the cluster is whole. Every partition has all its wanted replicas, or as many as
    /// there are nodes for, on live nodes. Every remaining node is live in the map.
    pub(crate) fn is_whole(&self) -> bool {
        let on_live = |entry: &wire::PartitionEntry| {
            entry.learners.is_empty() && entry.replicas.iter().all(|&node| self.is_live(node))
        };
        let there = (0..).zip(&self.machines).filter(|(_, machine)| machine.may_run());
        is_fully_replicated(&self.map)
            && self.map.partitions.iter().all(on_live)
            && there.into_iter().all(|(node, _)| self.is_live(node))
    }

    /// The node is home of the partition and can ask the others. While a replica is filled, what a
    /// node sends waits for many syncs.
    pub(crate) fn can_ask(&self, index: usize, partition: PartitionId) -> bool {
        self.speaks_for(index, partition) && (!self.homes_move() || self.is_whole())
    }

    /// The group can still agree when this node is not there for long: by the map, and by what some
    /// node takes for its voters while these change.
    pub(crate) fn can_agree_without(&self, index: usize) -> bool {
        let there = |&&node: &&u32| node as usize != index && self.is_live(node);
        let is_enough = |voters: &[u32]| voters.iter().filter(there).count() * 2 > voters.len();
        let nodes = self.machines.iter().filter_map(|machine| machine.node.as_ref());
        let mut told = nodes.filter_map(node::Node::voters).filter(|told| !told.is_empty());
        is_enough(&self.map.voters) && told.all(is_enough)
    }
}

/// A checksum of a whole map.
fn checksum(map: &wire::ClusterMap) -> u64 {
    let mix = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    map.encode_to_vec().iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// A fact that a primary has written. It is void if the partition continues without it.
#[derive(Clone, Debug)]
struct Fact {
    pub position: Position,
    pub what: FactKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum FactKind {
    Committed(TaskId, Attempt),
    Ended(JobId),
    /// A task, an attempt and the number of its turn.
    Turned((TaskId, Attempt, u64)),
}

impl World {
    /// True if this node may be the home of the partition, so that its facts may count.
    pub(crate) fn speaks_for(&self, index: usize, partition: PartitionId) -> bool {
        let entry = &self.map.partitions[partition.0 as usize];
        if !self.homes_move() {
            return true;
        }
        if !entry.active {
            // Only the last active home and the next primary may write.
            let last = self.agreed.last_homes.get(&partition).map(|&last| last as usize);
            return last.is_none_or(|last| last == index || entry.replicas[0] as usize == index);
        }
        let known = member(&self.map, NodeId(index as u32)).map_or(0, |m| m.incarnation);
        let current = known == 0 || known == self.machines[index].incarnation;
        entry.replicas[0] as usize == index && current
    }

    /// Records the facts of a batch. They become void if the partition continues without the batch.
    pub(crate) fn note_facts(
        &mut self,
        stands: &[BatchState],
        commits: &[(TaskId, Attempt)],
        turns: &[(TaskId, Attempt, u64)],
        ended: &[JobId],
    ) {
        if !self.homes_move() {
            return;
        }
        let at = |partition: PartitionId| {
            let stand = stands.iter().find(|stand| stand.partition == partition);
            stand.map(|stand| stand.state.position)
        };
        let partitions = self.map.partitions.len() as u32;
        let commits = commits
            .iter()
            .map(|&(task, attempt)| (task.partition(), FactKind::Committed(task, attempt)));
        let ended =
            ended.iter().map(|&job| (kvs::job_partition(job, partitions), FactKind::Ended(job)));
        let turns = turns.iter().map(|&by| (by.0.partition(), FactKind::Turned(by)));
        for (partition, what) in turns.chain(commits).chain(ended).collect::<Vec<_>>() {
            let position = at(partition).unwrap_or_default();
            self.agreed.facts.entry(partition).or_default().push(Fact { position, what });
        }
    }

    /// Handles changes of primaries: facts that did not reach the new primaries become void.
    fn map_changed(&mut self, before: &wire::ClusterMap) {
        let map = Arc::clone(&self.map);
        for (at, (entry, before)) in (0..).zip(map.partitions.iter().zip(&before.partitions)) {
            let partition = PartitionId(at);
            if before.active != entry.active {
                self.starve.serves(self.now, partition, entry.active);
            }
            if before.active && !entry.active {
                self.agreed.last_homes.insert(partition, before.replicas[0]);
            }
            if !entry.active || before.active {
                continue;
            }
            let home = entry.replicas[0] as usize;
            if let Some(before) = self.agreed.last_homes.remove(&partition) {
                self.agreed.homes_until.insert((partition, before), self.now);
            }
            let position = self.note_begun(partition, entry.epoch, home);
            let is_part = |fact: &Fact| {
                // A new primary may have written under its epoch already.
                fact.position <= position || fact.position.epoch >= entry.epoch
            };
            let facts = self.agreed.facts.entry(partition).or_default();
            let (kept, void): (Vec<_>, Vec<_>) = facts.drain(..).partition(is_part);
            *facts = kept;
            for fact in void {
                match fact.what {
                    FactKind::Committed(task, attempt) => {
                        self.judge(durable::on_task_undone(&self.jobs, task, attempt));
                        once::undo(&mut self.jobs, task, attempt);
                    }
                    FactKind::Turned(by) => {
                        let verdict = self.turns.on_undone(&mut self.jobs, by);
                        self.judge(verdict);
                    }
                    FactKind::Ended(job) => self.judge(durable::on_end_undone(&self.jobs, job)),
                }
            }
        }
    }
}

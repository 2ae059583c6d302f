//! The scheduler's view of the partition table: which node is home of which partition.
//!
//! Each partition has a primary. The partition is *active* once that primary has registered; only
//! then other nodes may send to it. The partitions that this node serves are not read from the map.
//! It serves a partition from the loading of its records until it gives the partition up. Where
//! homes never move, it serves what the map names.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use proto::work::GangNode;
use proto::{Incarnation, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use resources::Totals;

use crate::holder::queues::classes::Kinds;

/// The partitions that this node serves, each with its term. Never iterated.
type Terms = HashMap<PartitionId, u32, foldhash::fast::FixedState>;

#[derive(Clone, Debug)]
pub struct Homes {
    pub me: NodeId,
    /// Shared: all nodes of a simulated cluster have one map. Members are indexed by node number.
    map: Arc<wire::ClusterMap>,
    /// Shared, as the map.
    kinds: Arc<Kinds>,
    slots_max: u32,
    slots_all: u64,
    any_unknown: bool,
    /// The number of members that are gone.
    gone: usize,
    /// Members that are gone according to the map, although messages of later incarnations have
    /// arrived.
    back: BTreeSet<NodeId>,
    /// Whether every partition is active.
    all_active: bool,
    /// `None` where homes never move.
    served: Option<Terms>,
    /// The function that places the record of a job in a partition.
    job_partition: fn(JobId, u32) -> PartitionId,
}

impl Homes {
    /// # Panics
    /// When the table is not a power of two or the members are not indexed by their number.
    #[must_use]
    pub fn new(
        me: NodeId,
        map: &Arc<wire::ClusterMap>,
        job_partition: fn(JobId, u32) -> PartitionId,
    ) -> Self {
        assert!(map.partitions.len().is_power_of_two(), "partitions are a power of two");
        let in_order = (0..).zip(&map.members).all(|(number, member)| member.node == number);
        assert!(in_order, "members stand by their number");
        let slots = || map.members.iter().map(|member| member.slots);
        Self {
            me,
            kinds: Arc::new(Kinds::of(map)),
            slots_max: slots().max().unwrap_or(0),
            slots_all: slots().map(u64::from).sum(),
            any_unknown: map.members.iter().any(|member| member.slots == 0 && !member.keeper),
            gone: map.members.iter().filter(|member| member.is_gone()).count(),
            back: BTreeSet::new(),
            all_active: map.partitions.iter().all(is_active),
            served: None,
            map: Arc::clone(map),
            job_partition,
        }
    }

    /// Homes may move: this node serves the partitions that it loads, and none yet.
    #[must_use]
    pub fn moving(self) -> Self {
        Self { served: Some(Terms::with_hasher(foldhash::fast::FixedState::with_seed(0))), ..self }
    }
    #[must_use]
    pub(crate) fn moves(&self) -> bool {
        self.served.is_some()
    }
    /// Installs a newer map and returns the older one; the served partitions stay.
    pub(crate) fn succeed(&mut self, newer: Self) -> Self {
        let served = self.served.take();
        std::mem::replace(self, Self { served: served.or_else(|| newer.served.clone()), ..newer })
    }
    pub(crate) fn serve(&mut self, partition: PartitionId, term: u32) {
        let served = self.served.as_mut().expect("only homes that move are taken over");
        served.insert(partition, term);
    }
    pub(crate) fn give_up(&mut self, partition: PartitionId) {
        if let Some(served) = &mut self.served {
            served.remove(&partition);
        }
    }

    /// The same table from another node's view: nodes of one process scan it only once.
    #[must_use]
    pub fn seen_by(&self, me: NodeId) -> Self {
        Self { me, ..self.clone() }
    }

    #[must_use]
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.map.partitions.len()).expect("partitions are bounded")
    }
    /// The partition's primary, active or not; `None` if the cluster has no such partition.
    #[must_use]
    pub fn owner(&self, partition: PartitionId) -> Option<NodeId> {
        let entry = self.map.partitions.get(partition.0 as usize)?;
        Some(NodeId(*entry.replicas.first().expect("every partition has a primary")))
    }
    /// The epoch of the partition's configuration.
    pub(crate) fn epoch(&self, partition: PartitionId) -> u64 {
        self.map.partitions.get(partition.0 as usize).map_or(0, |entry| entry.epoch)
    }
    /// # Panics
    /// When the partition does not exist; ids from outside are checked when they arrive.
    #[must_use]
    pub fn home(&self, local: LocalId) -> NodeId {
        self.owner(local.partition()).expect("ids are checked when they arrive")
    }
    #[must_use]
    pub fn home_of(&self, task: TaskId) -> NodeId {
        self.home(task.local)
    }
    /// The home of the job's own record.
    #[must_use]
    pub fn job_home(&self, job: JobId) -> NodeId {
        self.owner(self.job_partition(job)).expect("jobs are placed in existing partitions")
    }
    /// The partition of the job's own record.
    #[must_use]
    pub fn job_partition(&self, job: JobId) -> PartitionId {
        (self.job_partition)(job, self.partitions())
    }
    /// Whether this node serves the partition now.
    #[must_use]
    pub fn is_mine(&self, partition: PartitionId) -> bool {
        match &self.served {
            Some(served) => served.contains_key(&partition),
            None => self.owner(partition) == Some(self.me),
        }
    }
    #[must_use]
    pub fn is_home_of(&self, task: TaskId) -> bool {
        self.is_mine(task.partition())
    }
    /// The epoch under which this node became home of a partition that it serves. Numbers that must
    /// be unique over all homes of a partition contain this epoch in their high half. `None` where
    /// homes never move: there such numbers contain the incarnation.
    #[must_use]
    pub(crate) fn term(&self, partition: PartitionId) -> Option<u32> {
        self.served.as_ref()?.get(&partition).copied()
    }
    /// The node to send to about a partition; `None` while no node serves it.
    #[must_use]
    pub fn active_owner(&self, partition: PartitionId) -> Option<NodeId> {
        let entry = self.map.partitions.get(partition.0 as usize).filter(|e| is_active(e))?;
        let owner = NodeId(*entry.replicas.first()?);
        (owner != self.me || self.is_mine(partition)).then_some(owner)
    }
    /// Whether every home can be reached at any time.
    #[must_use]
    pub(crate) fn is_settled(&self) -> bool {
        self.all_active && self.served.is_none()
    }
    /// Partitions that have become active or have another configuration since the older map.
    pub(crate) fn changed_since<'a>(
        &'a self,
        older: &'a Self,
    ) -> impl Iterator<Item = PartitionId> + 'a {
        let same = Arc::ptr_eq(&self.map, &older.map);
        let entries = (0..).zip(&self.map.partitions).filter(move |_| !same);
        entries.filter_map(move |(partition, entry)| {
            let before = older.map.partitions.get(partition as usize);
            let changed = before.is_none_or(|before| {
                before.epoch != entry.epoch
                    || before.replicas.first() != entry.replicas.first()
                    || is_active(before) != is_active(entry)
            });
            changed.then_some(PartitionId(partition))
        })
    }
    /// Whether the cluster has declared the node failed, or it is not a member any more.
    #[must_use]
    pub fn is_gone(&self, node: NodeId) -> bool {
        self.map.members.get(node.0 as usize).is_none_or(wire::Member::is_gone)
    }
    /// The incarnation that the map lists for a member.
    #[must_use]
    pub fn incarnation_of(&self, node: NodeId) -> Incarnation {
        Incarnation(self.map.members.get(node.0 as usize).map_or(0, |member| member.incarnation))
    }
    pub fn members(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.map.members.len())
            .map(|node| NodeId(u32::try_from(node).expect("nodes are bounded")))
    }
    pub(crate) fn map_epoch(&self) -> u64 {
        self.map.epoch
    }
    /// Whether the map names this node as home of a partition that it does not serve yet.
    pub(crate) fn is_to_serve_more(&self) -> bool {
        let mut all = (0..self.partitions()).map(PartitionId).zip(&self.map.partitions);
        self.moves()
            && all.any(|(at, it)| it.replicas.first() == Some(&self.me.0) && !self.is_mine(at))
    }
    /// Members that are up or may return.
    pub(crate) fn not_removed(&self) -> impl Iterator<Item = NodeId> + '_ {
        let removed = wire::MemberPhase::Removed as i32;
        let there = self.map.members.iter().zip(self.members());
        there.filter(move |(member, _)| member.phase != removed).map(|(_, node)| node)
    }
    /// Whether the node is draining: it hands its outputs over.
    #[must_use]
    pub(crate) fn is_leaving(&self, node: NodeId) -> bool {
        let member = self.map.members.get(node.0 as usize);
        member.is_some_and(|member| member.phase() == wire::MemberPhase::Leaving)
    }
    /// When a leaving node moves what still runs, by the clock.
    pub(crate) fn leaves_by(&self, node: NodeId) -> Option<Time> {
        let member = self.map.members.get(node.0 as usize)?;
        (member.leaves_by_ns > 0).then_some(Time(member.leaves_by_ns))
    }
    /// Whether the map marks the node as slow. Other nodes wait for it longer and give it no new
    /// work.
    #[must_use]
    pub(crate) fn is_slow(&self, node: NodeId) -> bool {
        self.map.members.get(node.0 as usize).is_some_and(|member| member.slow)
    }
    /// Whether the map marks the node as paused. No gang chooses it.
    #[must_use]
    pub fn is_paused(&self, node: NodeId) -> bool {
        self.map.members.get(node.0 as usize).is_some_and(|member| member.paused)
    }
    /// Whether no member runs tasks, as far as is known: all are keepers or removed.
    #[must_use]
    pub(crate) fn all_keep(&self) -> bool {
        let members = self.map.members.iter();
        let mut stay = members.filter(|it| it.phase() != wire::MemberPhase::Removed);
        stay.all(|member| member.keeper)
    }
    /// Members that receive new work: neither gone nor leaving nor slow.
    pub(crate) fn staying(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.living().filter(|&node| !self.is_leaving(node) && !self.is_slow(node))
    }
    /// A message arrived from an incarnation that the map may not list yet.
    pub(crate) fn note_incarnation(&mut self, node: NodeId, incarnation: Incarnation) {
        if self.gone > 0 && self.is_gone(node) && incarnation > self.incarnation_of(node) {
            self.back.insert(node);
        }
    }
    /// Members that are not gone, and members that are back.
    pub(crate) fn living_or_back(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.living().chain(self.back.iter().copied())
    }
    /// Whether the node has a replica of the partition's records.
    pub(crate) fn has_replica(&self, node: NodeId, partition: PartitionId) -> bool {
        let entry = self.map.partitions.get(partition.0 as usize);
        entry.is_some_and(|entry| entry.replicas.contains(&node.0))
    }
    #[cfg(test)]
    pub(crate) fn under(&mut self, epoch: u64) {
        Arc::make_mut(&mut self.map).epoch = epoch;
    }
    #[cfg(test)]
    pub(crate) fn want(&mut self, copies: u32) {
        Arc::make_mut(&mut self.map).wanted = copies;
    }
    /// The number of replicas that each partition is to have once there are nodes for them.
    pub(crate) fn copies(&self) -> u32 {
        self.map.wanted.max(self.map.copies)
    }
    /// Members that are not gone.
    pub(crate) fn living(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members().filter(|&node| !self.is_gone(node))
    }
    #[must_use]
    pub(crate) fn living_others(&self) -> usize {
        let me_gone = usize::from(self.is_gone(self.me));
        (self.map.members.len() - self.gone + me_gone).saturating_sub(1)
    }
    /// Whether a task that takes `cpus` slots can be sent to the node.
    #[must_use]
    pub(crate) fn fits(&self, node: NodeId, cpus: u32) -> bool {
        let member = self.map.members.get(node.0 as usize);
        cpus <= self.slots_of(node).max(1) && member.is_some_and(takes_work)
    }
    /// The places of a node of a gang.
    pub(crate) fn gang_node(&self, node: NodeId) -> GangNode {
        let member = self.map.members.get(node.0 as usize);
        let (host, address) =
            member.map_or_else(Default::default, |it| (it.host.clone(), it.address.clone()));
        GangNode { node, host, address, cpus: 0 }
    }
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.map.members.len()
    }
    #[must_use]
    pub fn slots_of(&self, node: NodeId) -> u32 {
        self.map.members.get(node.0 as usize).map_or(0, |member| member.slots)
    }
    /// The offers of the members, each once.
    pub(crate) fn kinds(&self) -> &[Totals] {
        self.kinds.all()
    }
    /// Whether some node of a kind takes work.
    pub(crate) fn is_kind_present(&self, kind: usize) -> bool {
        self.kinds.is_present(kind)
    }
    /// The position of a member's offer in [`Self::kinds`].
    pub(crate) fn kind_of(&self, node: NodeId) -> usize {
        self.kinds.of_node(node)
    }
    pub(crate) fn offer_of(&self, node: NodeId) -> Option<&Totals> {
        self.kinds.offer_of(node)
    }
    pub(crate) fn has_same_offers(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.kinds, &other.kinds) || self.kinds == other.kinds
    }
    /// Whether the slots of some member are not known yet.
    #[must_use]
    pub fn any_unknown(&self) -> bool {
        self.any_unknown
    }
    /// The slots of all members together, as far as they are known.
    #[must_use]
    pub(crate) fn slots_all(&self) -> u64 {
        self.slots_all
    }
    /// The slots of the widest member; 0 while no slots are known.
    #[must_use]
    pub fn slots_max(&self) -> u32 {
        self.slots_max
    }
}

/// Whether other nodes give work to a member.
pub(crate) fn takes_work(member: &wire::Member) -> bool {
    let leaves = member.phase() == wire::MemberPhase::Leaving;
    !(member.is_gone() || leaves || member.slow || member.keeper)
}

fn is_active(entry: &wire::PartitionEntry) -> bool {
    entry.active
}

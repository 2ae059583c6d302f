//! Who is home of what: the scheduler's view of the partition table.

use proto::{JobId, LocalId, NodeId, PartitionId, TaskId, wire};

#[derive(Clone, Debug)]
pub struct Homes {
    pub me: NodeId,
    /// Primary of each partition.
    owners: Vec<NodeId>,
    /// Slots of each member, by node.
    slots: Vec<u32>,
    /// The store's placement of a job's own record.
    job_partition: fn(JobId, u32) -> PartitionId,
}

impl Homes {
    /// # Panics
    /// When the table is not a power of two or names a partition without a primary.
    #[must_use]
    pub fn new(
        me: NodeId,
        map: &wire::ClusterMap,
        job_partition: fn(JobId, u32) -> PartitionId,
    ) -> Self {
        assert!(map.partitions.len().is_power_of_two(), "partitions are a power of two");
        let primary = |entry: &wire::PartitionEntry| {
            NodeId(*entry.replicas.first().expect("every partition has a primary"))
        };
        let owners = map.partitions.iter().map(primary).collect();
        let members = map.members.iter().map(|member| member.node + 1).max().unwrap_or(0);
        let mut slots = vec![0; members as usize];
        for member in &map.members {
            slots[member.node as usize] = member.slots;
        }
        Self { me, owners, slots, job_partition }
    }

    /// A place holder without partitions.
    #[must_use]
    pub(crate) fn empty() -> Self {
        let job_partition = |_: JobId, _: u32| PartitionId(0);
        Self { me: NodeId(0), owners: Vec::new(), slots: Vec::new(), job_partition }
    }
    #[must_use]
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.owners.len()).expect("partitions are bounded")
    }
    /// `None` for a partition the cluster does not have.
    #[must_use]
    pub fn owner(&self, partition: PartitionId) -> Option<NodeId> {
        self.owners.get(partition.0 as usize).copied()
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
    /// The home of a job's own record.
    #[must_use]
    pub fn job_home(&self, job: JobId) -> NodeId {
        let partition = (self.job_partition)(job, self.partitions());
        self.owner(partition).expect("jobs are placed in existing partitions")
    }
    #[must_use]
    pub fn is_mine(&self, partition: PartitionId) -> bool {
        self.owner(partition) == Some(self.me)
    }
    pub fn members(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.slots.len()).map(|node| NodeId(u32::try_from(node).expect("nodes are bounded")))
    }
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.slots.len()
    }
    #[must_use]
    pub fn slots_of(&self, node: NodeId) -> u32 {
        self.slots.get(node.0 as usize).copied().unwrap_or(0)
    }
    /// Some member has not said yet how many slots it has.
    #[must_use]
    pub fn any_unknown(&self) -> bool {
        self.slots.contains(&0)
    }
    /// The widest member; 0 while no slots are known.
    #[must_use]
    pub fn slots_max(&self) -> u32 {
        self.slots.iter().copied().max().unwrap_or(0)
    }
}

//! Who is home of what: the scheduler's view of the partition table.

use std::sync::Arc;

use proto::{JobId, LocalId, NodeId, PartitionId, TaskId, wire};

#[derive(Clone, Debug)]
pub struct Homes {
    pub me: NodeId,
    /// Shared: a simulated cluster has one map for all its nodes. Members stand by their number.
    map: Arc<wire::ClusterMap>,
    slots_max: u32,
    any_unknown: bool,
    /// The store's placement of a job's own record.
    job_partition: fn(JobId, u32) -> PartitionId,
}

impl Homes {
    /// # Panics
    /// When the table is not a power of two or the members do not stand by their number.
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
            slots_max: slots().max().unwrap_or(0),
            any_unknown: slots().any(|slots| slots == 0),
            map: Arc::clone(map),
            job_partition,
        }
    }

    /// A place holder without partitions.
    #[must_use]
    pub(crate) fn empty() -> Self {
        let job_partition = |_: JobId, _: u32| PartitionId(0);
        let map = Arc::default();
        Self { me: NodeId(0), map, slots_max: 0, any_unknown: false, job_partition }
    }
    #[must_use]
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.map.partitions.len()).expect("partitions are bounded")
    }
    /// `None` for a partition the cluster does not have.
    #[must_use]
    pub fn owner(&self, partition: PartitionId) -> Option<NodeId> {
        let entry = self.map.partitions.get(partition.0 as usize)?;
        Some(NodeId(*entry.replicas.first().expect("every partition has a primary")))
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
        (0..self.map.members.len())
            .map(|node| NodeId(u32::try_from(node).expect("nodes are bounded")))
    }
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.map.members.len()
    }
    #[must_use]
    pub fn slots_of(&self, node: NodeId) -> u32 {
        self.map.members.get(node.0 as usize).map_or(0, |member| member.slots)
    }
    /// Some member has not said yet how many slots it has.
    #[must_use]
    pub fn any_unknown(&self) -> bool {
        self.any_unknown
    }
    /// The widest member; 0 while no slots are known.
    #[must_use]
    pub fn slots_max(&self) -> u32 {
        self.slots_max
    }
}

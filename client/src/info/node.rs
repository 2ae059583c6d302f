//! The state of a node.

use proto::{NodeId, wire};

/// A node, as the map of the cluster has it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Member {
    /// Its number in the cluster.
    pub node: NodeId,
    /// Whether it takes part.
    pub phase: MemberPhase,
    /// The number of starts of the node; 0: it has not registered yet.
    pub incarnation: u32,
    /// `ip:port`; several addresses are separated by commas.
    pub address: String,
    /// The name of its machine, for people.
    pub host: String,
    /// Its process on its machine.
    pub pid: u32,
    /// Tasks of one cpu that it runs at once; 0 for a keeper.
    pub slots: u32,
    /// It keeps replicas and votes, and runs no tasks.
    pub is_keeper: bool,
    /// It acknowledges far later than the others, so it receives no new work.
    pub is_slow: bool,
    /// It finishes what runs and starts nothing.
    pub is_paused: bool,
}

/// The phase of a node in the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberPhase {
    /// It has asked to join and was not up yet.
    Joining,
    /// It takes part.
    Up,
    /// It does not answer the others.
    Down,
    /// It gives its data and its partitions away before it is removed.
    Leaving,
    /// It has left.
    Removed,
}

/// The state of a node, from the node itself.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct NodeInfo {
    /// `None` if the node is not in its own map yet.
    pub member: Option<Member>,
    /// The name of its scheduling policy.
    pub policy: String,
    /// Ready tasks in its queues.
    pub ready: u64,
    /// Tasks that run on it.
    pub running: u64,
    /// Tasks homed here that wait for parents.
    pub waiting: u64,
    /// Tasks that ended here recently in each second while there was work; `None`: unknown.
    pub tasks_per_s: Option<f64>,
    /// CPU time of its process, in nanoseconds.
    pub cpu_ns: u64,
    /// The largest resident memory of its process.
    pub peak_rss_bytes: u64,
    /// Bytes of outputs on its disk, with copies of those of other nodes.
    pub stored_bytes: u64,
    /// The copies of these.
    pub copied_bytes: u64,
    /// Bytes that it has fetched from other nodes since its start.
    pub moved_bytes: u64,
}

impl Member {
    pub(crate) fn of_record(member: &wire::Member) -> Self {
        Self {
            node: NodeId(member.node),
            phase: MemberPhase::of_record(member.phase()),
            incarnation: member.incarnation,
            address: member.address.clone(),
            host: member.host.clone(),
            pid: member.pid,
            slots: member.slots,
            is_keeper: member.keeper,
            is_slow: member.slow,
            is_paused: member.paused,
        }
    }
}

impl MemberPhase {
    pub(crate) fn of_record(phase: wire::MemberPhase) -> Self {
        match phase {
            wire::MemberPhase::Joining => Self::Joining,
            wire::MemberPhase::Up => Self::Up,
            wire::MemberPhase::Down => Self::Down,
            wire::MemberPhase::Leaving => Self::Leaving,
            wire::MemberPhase::Removed => Self::Removed,
        }
    }
}

impl NodeInfo {
    pub(crate) fn of_record(state: wire::NodeState) -> Self {
        Self {
            member: state.member.as_ref().map(Member::of_record),
            policy: state.policy,
            ready: state.ready_local + state.ready_shared,
            running: state.running,
            waiting: state.waiting,
            tasks_per_s: (state.tasks_per_s > 0.0).then_some(state.tasks_per_s),
            cpu_ns: state.cpu_ns,
            peak_rss_bytes: state.peak_rss_bytes,
            stored_bytes: state.stored_bytes,
            copied_bytes: state.copied_bytes,
            moved_bytes: state.bytes_moved,
        }
    }
}

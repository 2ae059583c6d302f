//! The rules of each policy: one row per policy.
//!
//! The rest of the crate asks for a rule and never for a policy by name. A policy without a row, or
//! a row without a rule, does not compile.

use proto::event::Reason;
use proto::{Policy, Time};

use super::{Decision, Order};
use crate::Scheduler;
use crate::holder::task::Work;

/// The rules of one policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The node and queue on which a ready task is placed.
    pub(crate) decide: fn(&Scheduler, Time, &Work) -> Decision,
    /// The reason in events of a task that stays in the local queue of its owner.
    pub(crate) stays: Reason,
    /// The reason in events of a task that is sent to another node.
    pub(crate) goes: Reason,
    /// The `t` of Algorithm 1; `None`: the user's setting.
    pub(crate) threshold: Option<f64>,
    /// The order of ready queues unless the user names one.
    pub(crate) order: Order,
    /// Nodes report their load to their peers.
    pub(crate) sends_load: bool,
    /// Tasks of the local queue may be stolen, and go back to it from staging, where that is worth
    /// their transfer.
    pub(crate) shares_local_queue: bool,
    /// A thief that fetches more slowly than it runs gets less.
    pub(crate) steals_proportionally: bool,
    /// A monitor moves tasks that wait too long from the local queue to the shared queue.
    pub(crate) monitors_queue: bool,
    /// The local queue is emptied when the policy begins.
    pub(crate) empties_local_queue: bool,
    /// The policy applies the rules of another one, which it chooses by the bytes that move.
    pub(crate) adapts: bool,
}

impl Rules {
    #[must_use]
    pub(crate) fn of(policy: Policy) -> Self {
        match policy {
            Policy::Mlb => MLB,
            Policy::Mdl => MDL,
            Policy::Rlds => RLDS,
            Policy::Flds => FLDS,
            Policy::Adaptive => ADAPTIVE,
            Policy::Eft => EFT,
        }
    }
}

/// Maximised load balancing: t = ∞, every ready task may be stolen (section 2.2.4 of the paper, as
/// the next four).
const MLB: Rules = Rules {
    decide: Scheduler::decide_by_algorithm_1,
    stays: Reason::BigHere,
    goes: Reason::BigElsewhere,
    threshold: Some(f64::INFINITY),
    order: Order::Bytes,
    sends_load: false,
    shares_local_queue: false,
    steals_proportionally: false,
    monitors_queue: false,
    empties_local_queue: true,
    adapts: false,
};

/// Maximised data locality: t = 0, every task with input bytes stays with its data.
const MDL: Rules = Rules {
    decide: Scheduler::decide_by_algorithm_1,
    stays: Reason::BigHere,
    goes: Reason::BigElsewhere,
    threshold: Some(0.0),
    order: Order::Bytes,
    sends_load: false,
    shares_local_queue: false,
    steals_proportionally: false,
    monitors_queue: false,
    empties_local_queue: false,
    adapts: false,
};

/// Rigid load-balancing and data-locality segregation: `t` between the two.
const RLDS: Rules = Rules {
    decide: Scheduler::decide_by_algorithm_1,
    stays: Reason::BigHere,
    goes: Reason::BigElsewhere,
    threshold: None,
    order: Order::Bytes,
    sends_load: false,
    shares_local_queue: false,
    steals_proportionally: false,
    monitors_queue: false,
    empties_local_queue: false,
    adapts: false,
};

/// Flexible: as RLDS, and a monitor moves tasks that wait too long to the shared queue.
const FLDS: Rules = Rules {
    decide: Scheduler::decide_by_algorithm_1,
    stays: Reason::BigHere,
    goes: Reason::BigElsewhere,
    threshold: None,
    order: Order::Bytes,
    sends_load: false,
    shares_local_queue: false,
    steals_proportionally: false,
    monitors_queue: true,
    empties_local_queue: false,
    adapts: false,
};

/// Starts as FLDS; changes to MDL when much data moves, to MLB when little does.
const ADAPTIVE: Rules = Rules {
    decide: Scheduler::decide_by_algorithm_1,
    stays: Reason::BigHere,
    goes: Reason::BigElsewhere,
    threshold: None,
    order: Order::Bytes,
    sends_load: false,
    shares_local_queue: false,
    steals_proportionally: false,
    monitors_queue: false,
    empties_local_queue: false,
    adapts: true,
};

/// Earliest finish: a task is placed on the node where it should end first, according to the queue
/// there and to the transfer of missing inputs.
const EFT: Rules = Rules {
    decide: Scheduler::decide_earliest,
    stays: Reason::EarliestHere,
    goes: Reason::EarliestElsewhere,
    threshold: None,
    order: Order::Critical,
    sends_load: true,
    shares_local_queue: true,
    steals_proportionally: true,
    monitors_queue: false,
    empties_local_queue: false,
    adapts: false,
};

//! What each policy does: one row of rules a policy.
//!
//! The rest of the crate asks for a rule and never for a policy by name. A policy without a row,
//! or a row without a rule, does not compile.

use proto::event::Reason;
use proto::{Policy, Time};

use super::{Decision, Order};
use crate::Scheduler;
use crate::task::Work;

/// The answers of one policy to all that the scheduler asks of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Where a ready task goes.
    pub(crate) decide: fn(&Scheduler, Time, &Work) -> Decision,
    /// What events say of a task that stays in the local queue of its owner.
    pub(crate) stays: Reason,
    /// What events say of a task that goes to another node.
    pub(crate) goes: Reason,
    /// The `t` of Algorithm 1; `None`: as the user has set it.
    pub(crate) threshold: Option<f64>,
    /// How ready queues are ordered unless the user names an order.
    pub(crate) order: Order,
    /// Nodes tell their peers how busy they are.
    pub(crate) sends_load: bool,
    /// Tasks of LReadyQ may be stolen, and offered again, where that is worth their transfer.
    pub(crate) shares_local_queue: bool,
    /// A thief that fetches more slowly than it runs gets less.
    pub(crate) steals_proportionally: bool,
    /// A monitor moves what waits too long from LReadyQ to SReadyQ.
    pub(crate) monitors_queue: bool,
    /// LReadyQ is emptied when the policy begins.
    pub(crate) empties_local_queue: bool,
    /// It decides by the rules of another policy, which it chooses by the bytes that move.
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

/// Flexible: as RLDS, and a monitor moves what waits too long from LReadyQ to SReadyQ.
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

/// Starts as FLDS; turns to MDL when too much data moves, to MLB when little does.
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

/// Where the task is expected to end first: queue in front, and transfer of what is missing.
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

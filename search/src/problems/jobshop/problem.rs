//! Branch and bound on the order of two jobs on a machine.

use std::sync::Arc;

use crate::problems::jobshop::machine::jackson;
use crate::problems::jobshop::orders::{Infeasible, Orders};
use crate::problems::jobshop::{Instance, start};
use crate::{Problem, Solution};

/// The job shop problem.
///
/// The length of the start schedule decides orders at each node: only shorter schedules are
/// searched.
#[derive(Debug)]
pub struct JobShop {
    instance: Instance,
    /// By machine and job: the start.
    start: Vec<i64>,
    /// The length of the start schedule.
    cutoff: i64,
}

/// Decisions about the order of jobs, and the bound that follows from them.
#[derive(Clone, Debug)]
pub struct JobShopNode {
    /// None: no schedule is shorter than the cutoff.
    orders: Option<Orders>,
    bound: i64,
    branch: Option<Branch>,
}

/// The pair that is decided next. The first child has `one` before `other`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Branch {
    machine: usize,
    one: usize,
    other: usize,
}

/// The children of a node that are not made yet.
#[derive(Clone, Debug)]
pub struct JobShopChildren {
    node: Arc<JobShopNode>,
    next: u32,
}

impl JobShop {
    #[must_use]
    pub fn new(instance: Instance) -> Self {
        let (cutoff, start) = start::schedule(&instance);
        Self::with_start(instance, cutoff, start)
    }

    pub(crate) fn with_start(instance: Instance, cutoff: i64, start: Vec<i64>) -> Self {
        Self { instance, start, cutoff }
    }

    fn node(&self, mut orders: Orders) -> Result<JobShopNode, Infeasible> {
        orders.propagate(&self.instance, self.cutoff)?;
        let bound = orders.bound();
        if bound >= self.cutoff {
            return Err(Infeasible);
        }
        let branch = self.choose(&orders);
        Ok(JobShopNode { orders: Some(orders), bound, branch })
    }

    /// On the machine with the highest bound, the pair with the most to lose either way.
    fn choose(&self, orders: &Orders) -> Option<Branch> {
        let jobs = self.instance.jobs.len();
        let mut best: Option<((i64, i64, i64), Branch)> = None;
        for machine in 0..self.instance.machines {
            let windows = orders.machine(machine);
            let bound = jackson(windows);
            for one in 0..jobs {
                for other in (0..one).filter(|&other| !orders.is_decided(machine, one, other)) {
                    let (a, b) = (windows[one], windows[other]);
                    let durations = a.duration + b.duration;
                    let forth = a.head + durations + b.tail;
                    let back = b.head + durations + a.tail;
                    let key = (bound, forth.min(back), forth.max(back));
                    if best.as_ref().is_none_or(|(known, _)| key > *known) {
                        let branch = if forth <= back {
                            Branch { machine, one, other }
                        } else {
                            Branch { machine, one: other, other: one }
                        };
                        best = Some((key, branch));
                    }
                }
            }
        }
        best.map(|(_, branch)| branch)
    }

    fn child(&self, parent: &JobShopNode, index: u32) -> Result<JobShopNode, Infeasible> {
        let Branch { machine, one, other } = parent.branch.ok_or(Infeasible)?;
        let mut orders = parent.orders.clone().ok_or(Infeasible)?;
        let (first, second) = if index == 0 { (one, other) } else { (other, one) };
        orders.decide(machine, first, second)?;
        self.node(orders)
    }
}

/// A node without schedules below the cutoff.
fn closed() -> JobShopNode {
    JobShopNode { orders: None, bound: i64::MAX, branch: None }
}

impl JobShopNode {
    /// If all orders are decided, all operations start at their heads.
    fn schedule(&self) -> Option<&Orders> {
        self.orders.as_ref().filter(|_| self.branch.is_none())
    }
}

impl Problem for JobShop {
    type Node = JobShopNode;
    type Children = JobShopChildren;

    fn root(&self) -> JobShopNode {
        self.node(Orders::new(&self.instance)).unwrap_or_else(|_| closed())
    }

    fn children(&self, node: JobShopNode) -> JobShopChildren {
        JobShopChildren { node: Arc::new(node), next: 0 }
    }

    fn next(&self, children: &mut JobShopChildren) -> Option<JobShopNode> {
        if self.left(children) == 0 {
            return None;
        }
        children.next += 1;
        Some(self.child(&children.node, children.next - 1).unwrap_or_else(|_| closed()))
    }

    fn left(&self, children: &JobShopChildren) -> u32 {
        if children.node.branch.is_some() { 2 - children.next } else { 0 }
    }

    fn skip(&self, children: &mut JobShopChildren, count: u32) {
        children.next += count.min(self.left(children));
    }

    fn value(&self, node: &JobShopNode) -> Option<i64> {
        // With all orders decided the bound of a machine is the length of its schedule.
        node.schedule().map(|_| node.bound)
    }

    fn bound(&self, node: &JobShopNode, _best: i64) -> i64 {
        node.bound
    }

    fn witness(&self, node: &JobShopNode) -> Vec<i64> {
        let schedule = node.schedule();
        schedule.map_or_else(Vec::new, |orders| self.instance.witness(&orders.starts()))
    }

    fn start(&self) -> Option<Solution> {
        Some(Solution { value: self.cutoff, witness: self.instance.witness(&self.start) })
    }
}

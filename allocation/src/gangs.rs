//! Allocations for tasks that hold several nodes at once. Allocations of one node each never start
//! a task of four: each asks for one allocation of at least its nodes.

use resources::{Request, Totals};

use crate::demand::Offering;

/// Takes the needs of a gang from as many nodes as it holds at once. False: too few have them.
pub(crate) fn take(free: &mut [Totals], request: &Request, nodes: u32) -> bool {
    let mut after: Vec<(usize, Totals)> = Vec::new();
    for (at, node) in free.iter().enumerate() {
        let mut rest = node.clone();
        if after.len() < nodes as usize && rest.take(request) {
            after.push((at, rest));
        }
    }
    let is_enough = after.len() >= nodes as usize;
    if is_enough {
        after.into_iter().for_each(|(at, rest)| free[at] = rest);
    }
    is_enough
}

/// What a queue may still ask for, and the queued allocations that nothing counts on.
#[derive(Debug)]
pub(crate) struct Room {
    /// The sizes of queued allocations.
    queued: Vec<u32>,
    /// Nodes, queued ones included.
    pub(crate) nodes: u32,
    /// Further allocations.
    pub(crate) backlog: u32,
}

impl Room {
    pub(crate) fn of(queue: &Offering<'_>) -> Self {
        let most = queue.config.max_nodes.unwrap_or(u32::MAX);
        let queued = queue.queued.len() as u32;
        Self {
            queued: queue.queued.clone(),
            nodes: most.saturating_sub(queue.running_nodes),
            backlog: queue.config.backlog.saturating_sub(queued),
        }
    }

    /// Nodes of queued allocations that no gang waits for.
    pub(crate) fn queued_nodes(&self) -> u32 {
        self.queued.iter().fold(0, |sum, nodes| sum.saturating_add(*nodes))
    }

    /// Grants up to `count` allocations of at least `nodes` nodes. A queued one serves, the
    /// smallest first. Returns the number of granted ones.
    pub(crate) fn grant(&mut self, nodes: u32, count: u32, asked: &mut Vec<u32>) -> u32 {
        for granted in 0..count {
            let queued = self.queued.iter().enumerate().filter(|(_, size)| **size >= nodes);
            match queued.min_by_key(|(_, size)| **size).map(|(at, _)| at) {
                Some(at) => {
                    let size = self.queued.swap_remove(at);
                    self.nodes = self.nodes.saturating_sub(size);
                }
                None if self.backlog > 0 && self.nodes >= nodes + self.queued_nodes() => {
                    asked.push(nodes);
                    self.backlog -= 1;
                    self.nodes -= nodes;
                }
                None => return granted,
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gang_takes_from_several_nodes_or_from_none() {
        let request: Request = "cpus=2".parse().expect("a request");
        let mut free = vec![Totals::cpus(3), Totals::cpus(1), Totals::cpus(2)];
        assert!(!take(&mut free, &request, 3));
        assert_eq!(free, [Totals::cpus(3), Totals::cpus(1), Totals::cpus(2)]);
        assert!(take(&mut free, &request, 2));
        assert!(!take(&mut free, &request, 1), "{free:?}");
    }
}

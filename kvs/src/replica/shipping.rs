//! Tracks which of a node's batches every replica is known to have. The node holds dependent
//! messages back until then.
//!
//! A batch is *everywhere* when each replica that it was sent to has logged (or synced) it and all
//! earlier ones. Then messages that depend on it may be sent, in the order of the decisions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proto::{NodeId, PartitionId, wire};

/// A batch that was sent to one peer.
#[derive(Debug)]
struct Shipped {
    /// The number of the message.
    number: u64,
    batch: u64,
    /// The partitions of the batch for which this peer counts.
    partitions: Vec<PartitionId>,
    /// The partitions of the batch that the peer has refused. It will never take them, so only a
    /// new map helps. The peer's answers to the message concern the other partitions.
    refused: Vec<PartitionId>,
    logged: bool,
    synced: bool,
    /// The message will never be answered, as if the peer had refused all partitions.
    lost: bool,
}

impl Shipped {
    fn new(number: u64, batch: u64, partitions: Vec<PartitionId>) -> Self {
        let (logged, synced, lost) = (false, false, false);
        Self { number, batch, partitions, refused: Vec::new(), logged, synced, lost }
    }

    fn is_logged(&self) -> bool {
        self.logged && self.refused.is_empty()
    }
    fn is_synced(&self) -> bool {
        self.synced && self.is_logged()
    }

    fn is_open(&self, partition: PartitionId) -> bool {
        let is_answered = self.logged && self.synced && !self.refused.contains(&partition);
        self.partitions.contains(&partition) && !is_answered
    }
    /// As [`Self::is_open`], and an answer may still arrive.
    fn is_awaited(&self, partition: PartitionId) -> bool {
        self.is_open(partition) && !self.lost && !self.refused.contains(&partition)
    }
}

/// The progress of the replicas of this node's partitions.
#[derive(Debug, Default)]
pub struct Shipping {
    peers: BTreeMap<NodeId, VecDeque<Shipped>>,
}

impl Shipping {
    /// Records that a batch was sent to a peer that counts for these partitions.
    pub fn sent(&mut self, peer: NodeId, number: u64, batch: u64, partitions: Vec<PartitionId>) {
        let shipped = Shipped::new(number, batch, partitions);
        self.peers.entry(peer).or_default().push_back(shipped);
    }

    /// Handles a peer's acknowledgement.
    pub fn answered(&mut self, peer: NodeId, answer: &wire::Replicated) {
        let Some(queue) = self.peers.get_mut(&peer) else { return };
        for refusal in &answer.refused {
            let refused = PartitionId(refusal.partition);
            let mut all = queue.iter_mut();
            if let Some(shipped) = all.find(|shipped| shipped.number == refusal.number)
                && shipped.partitions.contains(&refused)
            {
                shipped.refused.push(refused);
            }
        }
        for shipped in queue.iter_mut().filter(|shipped| !shipped.lost) {
            shipped.logged |= shipped.number <= answer.logged;
            shipped.synced |= shipped.number <= answer.synced;
        }
        self.settle();
    }

    /// Another incarnation of the peer is running; earlier messages will not be answered.
    pub fn peer_restarted(&mut self, peer: NodeId) {
        for shipped in self.peers.get_mut(&peer).into_iter().flatten() {
            shipped.lost = true;
        }
    }

    /// This peer no longer counts for this partition, or starts from the beginning.
    pub fn forget(&mut self, peer: NodeId, partition: PartitionId) {
        self.retain(|other, of| (other, of) != (peer, partition));
    }

    /// These peers have left the configuration of a partition. Batches sent to them that are not
    /// everywhere wait until the map shows the configuration without them. They wait under the peer
    /// `me`, which never answers.
    pub fn wait_for_map(&mut self, me: NodeId, left: &[NodeId], partition: PartitionId) {
        let queues = left.iter().filter_map(|peer| self.peers.get(peer));
        let concerns = |shipped: &&Shipped| shipped.is_open(partition);
        let open = queues.flatten().filter(concerns).map(|shipped| shipped.batch);
        let open: BTreeSet<u64> = open.collect();
        let queue = self.peers.entry(me).or_default();
        for batch in open {
            let at = queue.partition_point(|shipped| shipped.batch < batch);
            match queue.get_mut(at).filter(|shipped| shipped.batch == batch) {
                Some(shipped) if shipped.partitions.contains(&partition) => {}
                Some(shipped) => shipped.partitions.push(partition),
                None => {
                    let shipped = Shipped::new(u64::MAX, batch, vec![partition]);
                    queue.insert(at, Shipped { lost: true, ..shipped });
                }
            }
        }
        self.settle();
    }

    /// Only these pairs of peer and partition count from now on.
    pub fn retain(&mut self, counts: impl Fn(NodeId, PartitionId) -> bool) {
        for (&peer, queue) in &mut self.peers {
            for shipped in queue.iter_mut() {
                shipped.partitions.retain(|&partition| counts(peer, partition));
                shipped.refused.retain(|&partition| counts(peer, partition));
            }
            queue.retain(|shipped| !shipped.partitions.is_empty());
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.peers.retain(|_, queue| {
            while queue.front().is_some_and(Shipped::is_synced) {
                queue.pop_front();
            }
            !queue.is_empty()
        });
    }

    /// The last batch up to which all replicas have logged everything; `last` if nothing is open.
    #[must_use]
    pub fn logged(&self, last: u64) -> u64 {
        self.bound(last, Shipped::is_logged)
    }
    /// As [`Self::logged`], but synced.
    #[must_use]
    pub fn synced(&self, last: u64) -> u64 {
        self.bound(last, Shipped::is_synced)
    }

    fn bound(&self, last: u64, done: impl Fn(&Shipped) -> bool) -> u64 {
        let open = |queue: &VecDeque<Shipped>| {
            // A new primary may send missing changes before its first batch.
            queue.iter().find(|shipped| !done(shipped)).map(|open| open.batch.saturating_sub(1))
        };
        self.peers.values().filter_map(open).min().map_or(last, |open| open.min(last))
    }

    /// True if a replica still has to answer for this partition.
    #[must_use]
    pub fn is_open(&self, partition: PartitionId) -> bool {
        self.peers.values().flatten().any(|shipped| shipped.is_open(partition))
    }
    /// The same for replicas on other nodes that may still answer. A refused change waits for a new
    /// map, and must not delay that map.
    #[must_use]
    pub fn is_open_elsewhere(&self, me: NodeId, partition: PartitionId) -> bool {
        let others = self.peers.iter().filter(|(peer, _)| **peer != me);
        others.flat_map(|(_, queue)| queue).any(|shipped| shipped.is_awaited(partition))
    }
    /// All partitions for which [`Self::is_open_elsewhere`] holds.
    #[must_use]
    pub fn awaited_elsewhere(&self, me: NodeId) -> BTreeSet<PartitionId> {
        let others = self.peers.iter().filter(|(peer, _)| **peer != me);
        select(others.flat_map(|(_, queue)| queue), Shipped::is_awaited)
    }
    /// All partitions of which a replica has refused a change that still counts.
    #[must_use]
    pub fn refused_partitions(&self) -> BTreeSet<PartitionId> {
        let all = self.peers.values().flatten();
        all.flat_map(|shipped| &shipped.refused).copied().collect()
    }
    /// All partitions for which a replica's answer, or a new map, is still missing.
    #[must_use]
    pub fn open_partitions(&self) -> BTreeSet<PartitionId> {
        select(self.peers.values().flatten(), Shipped::is_open)
    }
}

fn select<'a>(
    shipped: impl Iterator<Item = &'a Shipped>,
    is_wanted: impl Fn(&Shipped, PartitionId) -> bool,
) -> BTreeSet<PartitionId> {
    let mut selected = BTreeSet::new();
    for shipped in shipped {
        let partitions = shipped.partitions.iter().copied();
        selected.extend(partitions.filter(|&partition| is_wanted(shipped, partition)));
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);
    const X: PartitionId = PartitionId(5);
    const Y: PartitionId = PartitionId(6);

    fn told(logged: u64, synced: u64) -> wire::Replicated {
        wire::Replicated { logged, synced, refused: Vec::new() }
    }
    fn bounds(shipping: &Shipping) -> (u64, u64) {
        (shipping.logged(9), shipping.synced(9))
    }

    #[test]
    fn a_batch_is_everywhere_when_the_slowest_copy_has_it_and_all_before() {
        let mut shipping = Shipping::default();
        assert_eq!(bounds(&shipping), (9, 9));
        shipping.sent(B, 10 + 3, 3, vec![X]);
        shipping.sent(C, 10 + 3, 3, vec![X]);
        shipping.sent(C, 10 + 7, 7, vec![Y]);
        assert_eq!(bounds(&shipping), (2, 2));
        shipping.answered(B, &told(13, 13));
        assert_eq!(bounds(&shipping), (2, 2));
        shipping.answered(C, &told(16, 10));
        assert_eq!(bounds(&shipping), (6, 2));
        shipping.answered(C, &told(17, 16));
        assert_eq!(bounds(&shipping), (9, 6));
        assert!(shipping.is_open(Y) && !shipping.is_open(X));
    }

    #[test]
    fn what_is_sent_before_the_first_batch_holds_nothing_back() {
        let mut shipping = Shipping::default();
        shipping.sent(B, 1, 0, vec![X]);
        assert_eq!((shipping.logged(0), shipping.synced(0)), (0, 0));
        assert!(shipping.is_open_elsewhere(C, X));
    }

    #[test]
    fn changes_sent_to_a_node_that_left_wait_for_the_map() {
        const ME: NodeId = NodeId(0);
        let mut shipping = Shipping::default();
        shipping.sent(ME, 14, 4, vec![Y]);
        shipping.sent(B, 12, 2, vec![X]);
        shipping.sent(B, 13, 3, vec![X, Y]);
        shipping.wait_for_map(ME, &[B, C], X);
        shipping.peer_restarted(B);
        shipping.retain(|peer, partition| (peer, partition) != (B, X));
        assert_eq!(bounds(&shipping), (1, 1));
        shipping.retain(|peer, partition| peer != ME || partition != X);
        assert_eq!(bounds(&shipping), (2, 2), "B has not answered for the other partition");
        shipping.retain(|peer, _| peer == ME);
        assert_eq!(bounds(&shipping), (3, 3));
    }

    #[test]
    fn what_is_refused_of_a_message_keeps_nothing_else_of_it_waiting() {
        let mut shipping = Shipping::default();
        shipping.sent(B, 10 + 1, 1, vec![X, Y]);
        shipping.sent(B, 10 + 2, 2, vec![X, Y]);
        let refusal = |number| wire::Refusal { number, partition: X.0 };
        let refused = vec![refusal(11), refusal(12)];
        shipping.answered(B, &wire::Replicated { logged: 12, synced: 11, refused });
        assert_eq!(bounds(&shipping), (0, 0));
        assert!(!shipping.is_open_elsewhere(C, X), "no answer comes any more");
        assert!(shipping.is_open_elsewhere(C, Y), "the second message is not synced");
        shipping.forget(B, X);
        assert_eq!(bounds(&shipping), (9, 1), "Y has been taken");
        shipping.answered(B, &told(12, 12));
        assert_eq!(bounds(&shipping), (9, 9));
    }

    #[test]
    fn what_is_refused_or_lost_waits_for_another_map() {
        let mut shipping = Shipping::default();
        shipping.sent(B, 10 + 1, 1, vec![X, Y]);
        shipping.sent(B, 10 + 2, 2, vec![X]);
        let refused = vec![wire::Refusal { number: 12, partition: X.0 }];
        shipping.answered(B, &wire::Replicated { logged: 12, synced: 12, refused });
        assert_eq!(bounds(&shipping), (1, 1));
        shipping.sent(B, 10 + 3, 3, vec![Y]);
        shipping.peer_restarted(B);
        shipping.answered(B, &told(19, 19));
        assert_eq!(bounds(&shipping), (1, 1));
        shipping.retain(|peer, partition| (peer, partition) != (B, X));
        assert_eq!(bounds(&shipping), (2, 2), "only the lost change of the other one is left");
        shipping.retain(|_, _| false);
        assert_eq!(bounds(&shipping), (9, 9));
    }
}

//! Copies of the output that tasks print: a node sends the growth of its output packs to other
//! nodes. The receivers are the next nodes by number, one for each backup of a partition. With one
//! replica nothing is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use executor::CopiedRecords;
use proto::{NodeId, limits, wire};
use security::dial::explain;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tonic::Status;

use crate::clock::duration;
use crate::rpc::peers;
use crate::rpc::service::Shared;
use proto::Span;

/// Copies of captured output on other nodes: the interval between transfers, and the delay after a
/// failure. `CAPTURED_COPY_CHECK_INTERVAL` is the interval of searches for nodes while nothing is
/// printed. `CAPTURED_COPY_TIMEOUT` is the timeout of an answer.
const CAPTURED_COPY_GAP: Span = Span::from_millis(250);
const CAPTURED_COPY_RETRY: Span = Span::from_secs(2);
const CAPTURED_COPY_CHECK_INTERVAL: Span = Span::from_secs(10);
const CAPTURED_COPY_TIMEOUT: Span = Span::from_secs(5);
/// The time of a node that has left for the last transfer.
const CAPTURED_HAND_OVER_TIMEOUT: Span = Span::from_secs(10);

/// The state of a node that keeps copies of this node's packs.
#[derive(Default)]
struct CopyHolder {
    /// The node's incarnation; another one may have lost the copies.
    incarnation: u32,
    client: Option<peers::Client>,
    /// By pack: the number of bytes that the node has.
    has: BTreeMap<u32, u64>,
    /// The node knows that packs with lower numbers are deleted.
    first: u32,
}

struct Sender {
    shared: Arc<Shared>,
    /// The number of this node's store.
    store: u64,
    keepers: BTreeMap<NodeId, CopyHolder>,
    /// The nodes that the map shows as down, and since when.
    down: BTreeMap<NodeId, Instant>,
}

/// Sends new output to the other nodes until this node stops.
pub(crate) async fn keep_on(shared: Arc<Shared>, store: u64) {
    let grown = Arc::new(Notify::new());
    let told = Arc::clone(&grown);
    shared.executor.streams().notify_when_grown(move || told.notify_one());
    let (keepers, down) = (BTreeMap::new(), BTreeMap::new());
    let mut sender = Sender { shared, store, keepers, down };
    loop {
        let all_is_there = sender.round().await;
        // Output that is printed within the gap is sent together.
        sleep(duration(CAPTURED_COPY_GAP)).await;
        let patience = match all_is_there {
            true => CAPTURED_COPY_CHECK_INTERVAL,
            false => CAPTURED_COPY_RETRY,
        };
        let _ = timeout(duration(patience), grown.notified()).await;
    }
}

/// Sends the output that has no copy yet: this node has left the cluster, and ends.
pub(crate) async fn hand_over(shared: Arc<Shared>, store: u64) {
    let (keepers, down) = (BTreeMap::new(), BTreeMap::new());
    let mut sender = Sender { shared, store, keepers, down };
    let sent = timeout(duration(CAPTURED_HAND_OVER_TIMEOUT), sender.round()).await;
    if sent != Ok(true) {
        sender.shared.log.line("it leaves, and some of what was printed here has no copy");
    }
}

impl Sender {
    /// Brings all copies up to date. False if some could not be.
    async fn round(&mut self) -> bool {
        let nodes = self.nodes(Instant::now());
        self.keepers.retain(|node, _| nodes.contains(node));
        if nodes.is_empty() {
            return true;
        }
        let packs = self.shared.executor.streams().packs();
        let mut all_is_there = true;
        for node in nodes {
            let mut keeper = self.keepers.remove(&node).unwrap_or_default();
            if let Err(reason) = self.send_all(node, &mut keeper, &packs).await {
                let line = format!("node {node} has no copy of what was printed here: {reason}");
                self.shared.log.refusal(&line);
                keeper.client = None;
                all_is_there = false;
            }
            self.keepers.insert(node, keeper);
        }
        all_is_there
    }

    /// The nodes that must have copies. A node that failed may return with its copies. After
    /// `COPY_RETURN_TIMEOUT` another node takes its place.
    fn nodes(&mut self, now: Instant) -> Vec<NodeId> {
        let (own, others) = (self.shared.identity.node, self.shared.others.all());
        let copies = self.shared.copies.load(Ordering::Relaxed).saturating_sub(1) as usize;
        let is_down = |node: &NodeId| self.shared.others.is_down(*node);
        self.down.retain(|node, _| is_down(node));
        for node in others.iter().copied().filter(is_down) {
            self.down.entry(node).or_insert(now);
        }
        let is_gone = |node: &NodeId| {
            let since = self.down.get(node).map(|&since| now.duration_since(since));
            since.is_some_and(|down| down > duration(limits::COPY_RETURN_TIMEOUT))
        };
        next_nodes(own, &others, copies, is_gone).into_iter().filter(|it| !is_down(it)).collect()
    }

    async fn send_all(
        &self,
        node: NodeId,
        keeper: &mut CopyHolder,
        packs: &[(u32, u64)],
    ) -> Result<(), String> {
        let file = self.shared.addresses.read(node).ok_or("it does not run")?;
        if keeper.incarnation != file.incarnation {
            *keeper = CopyHolder { incarnation: file.incarnation, ..CopyHolder::default() };
        }
        let first = self.shared.executor.streams().first_pack();
        keeper.has.retain(|pack, _| *pack >= first);
        if keeper.first < first {
            let part = self.part(first, first, 0, Vec::new());
            self.send(node, &file.address, &mut keeper.client, part).await?;
            keeper.first = first;
        }
        for &(pack, length) in packs {
            while keeper.has.get(&pack).is_none_or(|&has| has < length) {
                let offset = keeper.has.get(&pack).copied();
                let read = match offset {
                    Some(offset) => self.records_from(pack, offset).await,
                    None => Ok(Vec::new()), // Asks the node how much it has.
                };
                let data = match read {
                    Ok(data) => data,
                    Err(reason) => {
                        let line = format!("pack {pack} has no whole copy: {reason}");
                        self.shared.log.refusal(&line);
                        keeper.has.insert(pack, u64::MAX); // The packs after it can still be sent.
                        break;
                    }
                };
                let begun = Instant::now();
                let asks = data.is_empty();
                let part = self.part(first, pack, offset.unwrap_or(0), data);
                let has = self.send(node, &file.address, &mut keeper.client, part).await?;
                if !asks && Some(has) <= offset {
                    return Err("it does not take what follows".to_owned());
                }
                keeper.has.insert(pack, has);
                // Leaves half of the time to other work of the node and the network.
                if !asks {
                    sleep(begun.elapsed()).await;
                }
            }
        }
        Ok(())
    }

    fn part(&self, first: u32, pack: u32, offset: u64, data: Vec<u8>) -> wire::PackPart {
        let identity = &self.shared.identity;
        let (cluster, node) = (identity.cluster, identity.node.0);
        wire::PackPart { cluster, node, store: self.store, first, pack, offset, data }
    }

    async fn records_from(&self, pack: u32, offset: u64) -> Result<Vec<u8>, String> {
        let executor = Arc::clone(&self.shared.executor);
        let read = spawn_blocking(move || executor.streams().records_from(pack, offset)).await;
        read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    async fn send(
        &self,
        to: NodeId,
        address: &str,
        client: &mut Option<peers::Client>,
        part: wire::PackPart,
    ) -> Result<u64, String> {
        let client = match client {
            Some(client) => client,
            None => {
                let dialer = self.shared.tls.dialer();
                client.insert(peers::connect(Some(to), address, &dialer).await?)
            }
        };
        let kept = timeout(duration(CAPTURED_COPY_TIMEOUT), client.keep(part)).await;
        let kept = kept.map_err(|_| "it does not answer")?;
        Ok(kept.map_err(|status| explain(&status))?.into_inner().length)
    }
}

/// The `count` nodes that follow this one in the ring of node numbers.
fn next_nodes(
    own: NodeId,
    others: &[NodeId],
    count: usize,
    is_gone: impl Fn(&NodeId) -> bool,
) -> Vec<NodeId> {
    let mut others: Vec<NodeId> =
        others.iter().copied().filter(|node| *node != own && !is_gone(node)).collect();
    others.sort_unstable_by_key(|node| (*node < own, *node));
    others.truncate(count);
    others
}

/// Stores a part of another node's pack.
pub(crate) async fn keep(
    shared: &Arc<Shared>,
    part: wire::PackPart,
) -> Result<wire::PackKept, Status> {
    let identity = &shared.identity;
    if part.cluster != identity.cluster || part.node == identity.node.0 {
        return Err(Status::failed_precondition("it is meant for another node"));
    }
    let executor = Arc::clone(&shared.executor);
    let keep = move || {
        let records = CopiedRecords {
            maker: NodeId(part.node),
            store: part.store,
            first: part.first,
            pack: part.pack,
            offset: part.offset,
            data: &part.data,
        };
        executor.keep_copy(&records)
    };
    let kept = spawn_blocking(keep).await.map_err(|error| Status::internal(error.to_string()))?;
    Ok(wire::PackKept { length: kept.map_err(Status::from)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_lie_on_the_nodes_that_come_next() {
        let others: Vec<NodeId> = [0, 1, 3, 4].map(NodeId).into();
        let next = |count, gone: u32| next_nodes(NodeId(2), &others, count, |it| it.0 == gone);
        assert_eq!(next(0, 9), []);
        assert_eq!(next(1, 9), [NodeId(3)]);
        assert_eq!(next(3, 9), [3, 4, 0].map(NodeId));
        assert_eq!(next(3, 4), [3, 0, 1].map(NodeId), "another one takes its place");
        assert_eq!(next(9, 9).len(), 4);
    }
}

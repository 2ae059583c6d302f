//! Searches other nodes for an uploaded file that is missing here because the task's home has
//! moved. Earlier homes, and nodes with a replica of the partition, were given the file too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use executor::UploadError;
use proto::{NodeId, TaskId, wire};
use security::dial::explain;
use tokio::task::JoinSet;
use tonic::Streaming;

use crate::clock::duration;
use crate::event_loop::inbox::Incoming;
use crate::limits::{DATA_STALL_TIMEOUT, UPLOAD_SEARCH_NODES_MAX};
use crate::rpc::peers;
use crate::rpc::service::Shared;
use proto::Span;

/// Search for a missing uploaded file. `UPLOAD_SEARCH_PAUSE` separates its rounds.
/// `UPLOAD_SEARCH_DOWN_TIMEOUT` bounds the wait for nodes that are down and may be restarting.
/// `UPLOAD_SEARCH_TIMEOUT` bounds the wait for silent nodes that are up.
const UPLOAD_SEARCH_PAUSE: Span = Span::from_millis(200);
const UPLOAD_SEARCH_DOWN_TIMEOUT: Span = Span::from_secs(60);
const UPLOAD_SEARCH_TIMEOUT: Span = Span::from_secs(600);
/// If a node that has the file breaks the transfer off, the waits start again, at most this many
/// times.
const UPLOAD_SEARCH_RESTARTS_MAX: u32 = 8;

/// The interval at which a search checks whether the file is still wanted.
const WANTED_LOOK: Duration = Duration::from_millis(50);

const NOWHERE: &str = "what the client had put here is gone with the nodes that had it, and only \
                       the client has it: submit the job again";

/// Asks other nodes for files, on threads of the executor. These threads have runtimes of their
/// own. The node's runtime does not run while the node ends its executor, and it is busy after a
/// failover.
pub(crate) fn finder(shared: &Arc<Shared>) -> executor::UploadFinder {
    let shared = Arc::downgrade(shared);
    Box::new(move |task, size_bytes, cancelled| {
        let runtime = loop {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => break runtime,
                // Too many files are open at present.
                Err(_) if !cancelled.load(Ordering::Acquire) => {
                    std::thread::sleep(duration(UPLOAD_SEARCH_PAUSE));
                }
                Err(error) => return Err(format!("cannot look for its file: {error}")),
            }
        };
        runtime.block_on(async {
            tokio::select! {
                found = find(&shared, task, size_bytes) => found,
                () = is_set(cancelled) => Err("it is not wanted any more".to_owned()),
            }
        })
    })
}

async fn is_set(cancelled: &AtomicBool) {
    while !cancelled.load(Ordering::Acquire) {
        tokio::time::sleep(WANTED_LOOK).await;
    }
}

/// The reason why a file did not arrive.
enum Failure {
    /// The file cannot be stored here, whichever node sends it.
    Here(UploadError),
    There(String),
}

/// Searches until all other nodes have answered that they do not have the file. A node that the map
/// shows as down may be restarting, and a silent node may answer later. The wait for either is
/// limited.
async fn find(shared: &Weak<Shared>, task: TaskId, size_bytes: u64) -> Result<(), String> {
    let (without, since) = (BTreeSet::new(), BTreeMap::new());
    let mut hunt = UploadSearch { task, size_bytes, without, since, begun: 0 };
    loop {
        let shared = shared.upgrade().ok_or("this node stops")?;
        // The semaphore is never closed. It limits the number of searches, because a home may have
        // taken over very many files.
        let permit = shared.hunting.acquire().await.map_err(|_| "this node stops")?;
        let failed = match hunt.ask_all(&shared).await {
            Ok(true) => return Ok(()),
            Ok(false) => return Err(NOWHERE.to_owned()),
            Err(Failure::Here(error)) => return Err(error.to_string()),
            Err(Failure::There(reason)) => reason,
        };
        drop(permit);
        if !hunt.goes_on(&shared.others, Instant::now()) {
            return Err(format!("{NOWHERE} ({failed})"));
        }
        drop(shared);
        tokio::time::sleep(duration(UPLOAD_SEARCH_PAUSE)).await;
    }
}

struct UploadSearch {
    task: TaskId,
    size_bytes: u64,
    /// The nodes that do not have the file.
    without: BTreeSet<NodeId>,
    /// For each other node: whether the map shows it as down, and since when the search waits for
    /// it.
    since: BTreeMap<NodeId, (bool, Instant)>,
    /// The number of transfers that have begun.
    begun: u32,
}

impl UploadSearch {
    /// True if the search still waits for some node.
    fn goes_on(&mut self, others: &peers::PeerTable, now: Instant) -> bool {
        let mut goes_on = false;
        for node in others.all().into_iter().filter(|node| !self.without.contains(node)) {
            let is_down = others.is_down(node);
            let since = self.since.entry(node).or_insert((is_down, now));
            if since.0 != is_down {
                *since = (is_down, now);
            }
            let patience = match is_down {
                true => UPLOAD_SEARCH_DOWN_TIMEOUT,
                false => UPLOAD_SEARCH_TIMEOUT,
            };
            goes_on |= now.duration_since(since.1) < duration(patience);
        }
        goes_on
    }

    /// Asks the remaining nodes; the first that has the file sends it. True if one did; false if no
    /// node has it. An error is that of a node that has not answered.
    async fn ask_all(&mut self, shared: &Arc<Shared>) -> Result<bool, Failure> {
        let mut left = shared.others.all();
        left.retain(|node| !self.without.contains(node));
        let (mut asked, mut failure) = (JoinSet::new(), None);
        loop {
            while asked.len() < UPLOAD_SEARCH_NODES_MAX
                && let Some(node) = left.pop()
            {
                let (shared, task) = (Arc::clone(shared), self.task);
                asked.spawn(async move { (node, ask(&shared, node, task).await) });
            }
            let Some(answer) = asked.join_next().await else { break };
            let (node, answer) = answer.expect("asking does not panic");
            let told = match answer {
                Ok(Some(pieces)) => {
                    // Other answers are dropped. If this transfer breaks off the nodes are asked
                    // again.
                    asked = JoinSet::new();
                    left.clear();
                    self.begun += 1;
                    if self.begun <= UPLOAD_SEARCH_RESTARTS_MAX {
                        self.since.clear();
                    }
                    match receive(shared, self.task, self.size_bytes, pieces).await {
                        Ok(true) => return Ok(true),
                        Ok(false) => {
                            self.without.insert(node);
                            Err(Failure::There("what it has is of another size".to_owned()))
                        }
                        Err(failure) => Err(failure),
                    }
                }
                // The process at the address of a failed node need not be that node.
                Ok(None) if shared.others.is_down(node) => {
                    Err(Failure::There("it is dead by the map".to_owned()))
                }
                Ok(None) => {
                    self.without.insert(node);
                    Ok(())
                }
                Err(reason) => Err(Failure::There(reason)),
            };
            match told {
                Ok(()) => {}
                Err(Failure::Here(error)) => return Err(Failure::Here(error)),
                Err(Failure::There(reason)) => {
                    let text = format!("no file of task {} from {node}: {reason}", self.task);
                    shared.log.refusal(&text);
                    failure = Some(Failure::There(format!("{node}: {reason}")));
                }
            }
        }
        failure.map_or(Ok(false), Err)
    }
}

/// Opens the node's stream of the file; `None` if it does not have the file.
async fn ask(
    shared: &Shared,
    node: NodeId,
    task: TaskId,
) -> Result<Option<Streaming<wire::Piece>>, String> {
    let address = shared.addresses.read(node).ok_or("it has not said where it listens")?;
    let mut peer = peers::connect(Some(node), &address.address, &shared.tls.dialer()).await?;
    let (job, local) = (task.job.0, task.local.0);
    let wanted = wire::ObjectRequest { job, task: local, attempt: 0, output: 0 };
    match in_time(peer.fetch(wanted)).await? {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
        Err(status) => Err(explain(&status)),
    }
}

/// False: the file has another size, because a power failure damaged that copy.
async fn receive(
    shared: &Shared,
    task: TaskId,
    size_bytes: u64,
    mut pieces: Streaming<wire::Piece>,
) -> Result<bool, Failure> {
    let broke_off = || Failure::There("it broke off".to_owned());
    let mut incoming = None;
    loop {
        let piece = in_time(pieces.message()).await.map_err(Failure::There)?;
        let piece = piece.map_err(|status| Failure::There(explain(&status)))?;
        let Some(piece) = piece else { break };
        if piece.total_bytes != size_bytes {
            return Ok(false);
        }
        let file = match incoming.take() {
            Some(file) => Ok(file),
            None => shared.executor.uploads().begin(task, size_bytes),
        };
        let mut file = file.map_err(Failure::Here)?;
        file.set_executable(piece.executable).map_err(Failure::Here)?;
        // This thread may block on the disk.
        file.write(&piece.data).map_err(Failure::Here)?;
        incoming = Some(file);
    }
    let file = incoming.ok_or_else(broke_off)?;
    // Sent before the commit: if the job is over by now, the file is removed before it is complete.
    let _ = shared.inbox.send(Incoming::Kept { task }).await; // Fails if this node stops.
    match file.commit() {
        Err(UploadError::Size { .. }) => Err(broke_off()),
        done => done.map(|()| true).map_err(Failure::Here),
    }
}

async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T, String> {
    let patience = duration(DATA_STALL_TIMEOUT);
    tokio::time::timeout(patience, answer).await.map_err(|_| "no answer in time".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_waited_for_its_time_from_when_it_was_last_alive() {
        let others = peers::PeerTable::new([1, 2].map(NodeId).into_iter());
        let (without, since) = (BTreeSet::new(), BTreeMap::new());
        let mut hunt =
            UploadSearch { task: TaskId::new(1, 1), size_bytes: 1, without, since, begun: 0 };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(hunt.goes_on(&others, start));
        hunt.without.insert(NodeId(1));
        assert!(hunt.goes_on(&others, at(599)) && !hunt.goes_on(&others, at(600)));
        others.set_down(NodeId(2), true);
        assert!(hunt.goes_on(&others, at(700)), "it may return");
        assert!(hunt.goes_on(&others, at(759)) && !hunt.goes_on(&others, at(760)));
        others.set_down(NodeId(2), false);
        assert!(hunt.goes_on(&others, at(800)), "it is back");
        hunt.without.insert(NodeId(2));
        assert!(!hunt.goes_on(&others, at(801)), "no node is left");
    }
}

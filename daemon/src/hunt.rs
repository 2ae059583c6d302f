//! The file of a submitter is not where its task runs: the task's home has moved. Whoever was its
//! home, or had a copy of its partition, was given the file, too.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use proto::{NodeId, TaskId, limits, wire};
use security::dial::explain;
use tokio::runtime::Handle;

use crate::links::duration;
use crate::peers;
use crate::service::Shared;

/// Who looks for it looks so often whether that is still wanted.
const WANTED_LOOK: Duration = Duration::from_millis(50);

/// Asks other nodes for files, on threads of the executor.
pub(crate) fn finder(shared: &Arc<Shared>) -> executor::Finder {
    let (shared, runtime) = (Arc::downgrade(shared), Handle::current());
    Box::new(move |task, cancelled| {
        runtime.block_on(async {
            tokio::select! {
                found = find(&shared, task) => found,
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

/// Until all others have said that they do not have it, or have long been dead.
async fn find(shared: &Weak<Shared>, task: TaskId) -> Result<(), String> {
    let begun = Instant::now();
    let mut without: BTreeSet<NodeId> = BTreeSet::new();
    loop {
        let shared = shared.upgrade().ok_or("this node stops")?;
        let is_over = begun.elapsed() > duration(limits::HUNT_PATIENCE);
        let mut is_awaited = false;
        for node in shared.others.all() {
            if without.contains(&node) {
                continue;
            }
            match bring(&shared, node, task).await {
                Ok(true) => return Ok(()),
                Ok(false) => _ = without.insert(node),
                Err(reason) => {
                    is_awaited |= !(is_over && shared.others.is_down(node));
                    let text = format!("no file of task {task} from node {}: {reason}", node.0);
                    shared.log.refusal(&text);
                }
            }
        }
        if !is_awaited {
            return Err("what the client had put here is gone with the nodes that had it, and \
                        only the client has it: submit the job again"
                .to_owned());
        }
        drop(shared);
        tokio::time::sleep(duration(limits::HUNT_PAUSE)).await;
    }
}

/// Whether that node had it.
async fn bring(shared: &Shared, node: NodeId, task: TaskId) -> Result<bool, String> {
    let address = shared.addresses.read(node).ok_or("it has not said where it listens")?;
    let mut peer = peers::connect(&address.address, &shared.doors.dialer()).await?;
    let (job, task_number) = (task.job.0, task.local.0);
    let wanted = wire::ObjectRequest { job, task: task_number, attempt: 0, output: 0 };
    let mut pieces = match in_time(peer.fetch(wanted)).await? {
        Ok(answer) => answer.into_inner(),
        Err(status) if status.code() == tonic::Code::NotFound => return Ok(false),
        Err(status) => return Err(explain(&status)),
    };
    let mut incoming = None;
    while let Some(piece) = in_time(pieces.message()).await?.map_err(|status| explain(&status))? {
        let mut file = match incoming.take() {
            Some(file) => file,
            None => shared
                .executor
                .uploads()
                .begin(task, piece.total_bytes)
                .map_err(|error| error.to_string())?,
        };
        // This is a thread that may wait for its disk.
        file.write(&piece.data).map_err(|error| error.to_string())?;
        incoming = Some(file);
    }
    let file = incoming.ok_or("it broke off")?;
    file.commit().map_err(|error| error.to_string())?;
    Ok(true)
}

async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T, String> {
    let patience = duration(limits::DATA_SILENCE);
    tokio::time::timeout(patience, answer).await.map_err(|_| "no answer in time".to_owned())
}

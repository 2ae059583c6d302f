//! The file of a submitter is not where its task runs: the task's home has moved. Whoever was its
//! home, or had a copy of its partition, was given the file, too.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use executor::UploadError;
use proto::{NodeId, Span, TaskId, limits, wire};
use security::dial::explain;
use tokio::task::JoinSet;
use tonic::Streaming;

use crate::inbox::Incoming;
use crate::links::duration;
use crate::peers;
use crate::service::Shared;

/// Who looks for it looks so often whether that is still wanted.
const WANTED_LOOK: Duration = Duration::from_millis(50);

const NOWHERE: &str = "what the client had put here is gone with the nodes that had it, and only \
                       the client has it: submit the job again";

/// Asks other nodes for files, on threads of the executor. These have runtimes of their own: that of
/// the node does nothing while it ends its executor, and has better to do after a fail-over.
pub(crate) fn finder(shared: &Arc<Shared>) -> executor::Finder {
    let shared = Arc::downgrade(shared);
    Box::new(move |task, cancelled| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot look for its file: {error}"))?;
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

/// Why a file has not come.
enum Failure {
    /// It cannot be kept here, wherever it comes from.
    Here(UploadError),
    There(String),
}

/// Until all others have said that they do not have it. Who is dead by the map may be on its way
/// back, and who is not may be reached in time: neither is waited for for ever.
async fn find(shared: &Weak<Shared>, task: TaskId) -> Result<(), String> {
    let begun = Instant::now();
    let mut without: BTreeSet<NodeId> = BTreeSet::new();
    loop {
        let shared = shared.upgrade().ok_or("this node stops")?;
        let failed = match ask_all(&shared, task, &mut without).await {
            Ok(true) => return Ok(()),
            Ok(false) => return Err(NOWHERE.to_owned()),
            Err(Failure::Here(error)) => return Err(error.to_string()),
            Err(Failure::There(reason)) => reason,
        };
        let left = shared.others.all().into_iter().filter(|node| !without.contains(node));
        let is_over = |span: Span| begun.elapsed() > duration(span);
        let may_come = |node: NodeId| match shared.others.is_down(node) {
            true => !is_over(limits::HUNT_PATIENCE_DEAD),
            false => !is_over(limits::HUNT_PATIENCE),
        };
        if !left.into_iter().any(may_come) {
            return Err(format!("{NOWHERE} ({failed})"));
        }
        drop(shared);
        tokio::time::sleep(duration(limits::HUNT_PAUSE)).await;
    }
}

/// All at once, and the first that has it gives it. Whether anybody did; false: nobody has it. The
/// failure is that of one of those who have said nothing.
async fn ask_all(
    shared: &Arc<Shared>,
    task: TaskId,
    without: &mut BTreeSet<NodeId>,
) -> Result<bool, Failure> {
    let mut asked = JoinSet::new();
    for node in shared.others.all().into_iter().filter(|node| !without.contains(node)) {
        let shared = Arc::clone(shared);
        asked.spawn(async move { (node, ask(&shared, node, task).await) });
    }
    let mut failure = None;
    while let Some(answer) = asked.join_next().await {
        let (node, answer) = answer.expect("asking does not panic");
        let told = match answer {
            Ok(Some(pieces)) => {
                asked.abort_all(); // They are asked again if this one breaks off.
                let received = receive(shared, task, pieces).await;
                if received.is_ok() {
                    return Ok(true);
                }
                received
            }
            // What answers at the address of a dead node need not be that one.
            Ok(None) if shared.others.is_down(node) => {
                Err(Failure::There("it is dead by the map".to_owned()))
            }
            Ok(None) => {
                without.insert(node);
                Ok(())
            }
            Err(reason) => Err(Failure::There(reason)),
        };
        match told {
            Ok(()) => {}
            Err(Failure::Here(error)) => return Err(Failure::Here(error)),
            Err(Failure::There(reason)) => {
                shared.log.refusal(&format!("no file of task {task} from {node}: {reason}"));
                failure = Some(Failure::There(format!("{node}: {reason}")));
            }
        }
    }
    failure.map_or(Ok(false), Err)
}

/// What that node has of it; `None`: nothing.
async fn ask(
    shared: &Shared,
    node: NodeId,
    task: TaskId,
) -> Result<Option<Streaming<wire::Piece>>, String> {
    let address = shared.addresses.read(node).ok_or("it has not said where it listens")?;
    let mut peer = peers::connect(&address.address, &shared.doors.dialer()).await?;
    let (job, local) = (task.job.0, task.local.0);
    let wanted = wire::ObjectRequest { job, task: local, attempt: 0, output: 0 };
    match in_time(peer.fetch(wanted)).await? {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
        Err(status) => Err(explain(&status)),
    }
}

async fn receive(
    shared: &Shared,
    task: TaskId,
    mut pieces: Streaming<wire::Piece>,
) -> Result<(), Failure> {
    let broke_off = || Failure::There("it broke off".to_owned());
    // Never closed. As many come at a time as from clients, however many are looked for.
    let _permit = shared.uploading.acquire().await.map_err(|_| broke_off())?;
    let mut incoming = None;
    loop {
        let piece = in_time(pieces.message()).await.map_err(Failure::There)?;
        let piece = piece.map_err(|status| Failure::There(explain(&status)))?;
        let Some(piece) = piece else { break };
        let file = match incoming.take() {
            Some(file) => Ok(file),
            None => shared.executor.uploads().begin(task, piece.total_bytes),
        };
        let mut file = file.map_err(Failure::Here)?;
        // This is a thread that may wait for its disk.
        file.write(&piece.data).map_err(Failure::Here)?;
        incoming = Some(file);
    }
    let file = incoming.ok_or_else(broke_off)?;
    match file.commit() {
        Err(UploadError::Size { .. }) => return Err(broke_off()),
        done => done.map_err(Failure::Here)?,
    }
    // It goes with its job, which may be over by now.
    let _ = shared.inbox.send(Incoming::Kept { task }).await; // Unless this node stops.
    Ok(())
}

async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T, String> {
    let patience = duration(limits::DATA_SILENCE);
    tokio::time::timeout(patience, answer).await.map_err(|_| "no answer in time".to_owned())
}

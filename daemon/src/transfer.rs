/*!
Bringing objects here, and giving them out.

Real bytes go straight from the node that has them, in pieces, over a connection of their own, so
that a large object never stands in front of a packet. Virtual data is only waited for: its size
times the modelled cost of a byte, one transfer after another for each pair of nodes.
*/

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use executor::{Executor, ObjectError};
use node::Input;
use proto::work::Fetch;
use proto::{JobId, LocalId, NodeId, ObjectId, Span, Time, limits, wire};
use tokio::sync::{Semaphore, mpsc};
use tonic::{Code, Status};

use crate::background::in_background;
use crate::connections::Connections;
use crate::inbox::Local;
use crate::service::Shared;

/// Objects up to here are read and written in the loop's own thread: cheaper than to change it.
const INLINE_BYTES: u64 = 64 << 10;

/// What all transfers of a node share.
#[derive(Debug)]
struct Lines {
    connections: Connections,
    /// A task may have any number of inputs, a process only so many open files.
    permits: Semaphore,
}

/// The objects that are on their way to this node.
#[derive(Debug)]
pub(crate) struct Transfers {
    shared: Arc<Shared>,
    local: mpsc::UnboundedSender<Local>,
    lines: Arc<Lines>,
    /// When each modelled transfer ends.
    modelled: BinaryHeap<Reverse<(Time, ObjectId)>>,
    /// Until when the modelled link from a node is taken.
    busy_until: BTreeMap<NodeId, Time>,
}

impl Transfers {
    pub(crate) fn new(shared: Arc<Shared>, local: mpsc::UnboundedSender<Local>) -> Self {
        Self {
            shared,
            local,
            lines: Arc::new(Lines {
                connections: Connections::default(),
                permits: Semaphore::new(limits::FETCHES_IN_FLIGHT_MAX),
            }),
            modelled: BinaryHeap::new(),
            busy_until: BTreeMap::new(),
        }
    }

    /// Whether a transfer costs nothing: virtual data that nobody waits for.
    pub(crate) fn is_free(fetch: &Fetch) -> bool {
        !fetch.settings.real_data && modelled_span(fetch) == Span::ZERO
    }

    pub(crate) fn begin(&mut self, now: Time, fetch: Fetch) {
        if !fetch.settings.real_data {
            let busy_until = self.busy_until.entry(fetch.from).or_default();
            *busy_until = (*busy_until).max(now) + modelled_span(&fetch);
            self.modelled.push(Reverse((*busy_until, fetch.object)));
            return;
        }
        let (shared, local) = (Arc::clone(&self.shared), self.local.clone());
        let lines = Arc::clone(&self.lines);
        tokio::spawn(async move {
            let result = bring(&shared, &lines, &fetch).await;
            let _ = local.send(Local::Input(Input::Fetched { object: fetch.object, result }));
        });
    }

    /// When the next modelled transfer ends.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.modelled.peek().map(|Reverse((time, _))| *time)
    }

    /// Takes the modelled transfers that have ended.
    pub(crate) fn take_due(&mut self, now: Time, inputs: &mut Vec<Input>) {
        while self.deadline().is_some_and(|time| time <= now) {
            if let Some(Reverse((_, object))) = self.modelled.pop() {
                inputs.push(Input::Fetched { object, result: Ok(()) });
            }
        }
    }
}

fn modelled_span(fetch: &Fetch) -> Span {
    // Saturates; a negative or absent cost is none.
    Span((fetch.size_bytes as f64 * fetch.settings.transfer_ns_per_byte) as u64)
}

enum Failure {
    /// The other node may come back: try again.
    Unreachable(String),
    Final(String),
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Self {
        Self::Final(error.to_string())
    }
}

async fn bring(shared: &Arc<Shared>, lines: &Lines, fetch: &Fetch) -> Result<(), String> {
    if shared.executor.objects().contains(fetch.object) {
        return Ok(());
    }
    let from = fetch.from.0;
    let start = Instant::now();
    let mut wait = limits::REDIAL_AFTER;
    loop {
        // Not kept while it waits to try again: other nodes may answer meanwhile.
        let permit = lines.permits.acquire().await.map_err(|error| error.to_string())?;
        let result = bring_once(shared, &lines.connections, fetch).await;
        drop(permit);
        let reason = match result {
            Ok(()) => return Ok(()),
            Err(Failure::Final(reason)) => return Err(format!("from node {from}: {reason}")),
            Err(Failure::Unreachable(reason)) => reason,
        };
        shared.log.refusal(&format!("cannot fetch from node {from}: {reason}"));
        if start.elapsed() > Duration::from_nanos(limits::FETCH_RETRY_FOR.0) {
            return Err(format!("from node {from}: cannot be reached: {reason}"));
        }
        tokio::time::sleep(Duration::from_nanos(wait.0)).await;
        wait = Span(wait.doubled().0.min(limits::REDIAL_AFTER_MAX.0));
    }
}

async fn bring_once(
    shared: &Arc<Shared>,
    connections: &Connections,
    fetch: &Fetch,
) -> Result<(), Failure> {
    let unreachable = |reason: &str| Failure::Unreachable(reason.to_owned());
    let file = shared.addresses.read(fetch.from).ok_or_else(|| unreachable("it does not run"))?;
    let (number, mut client) = connections
        .get(fetch.from, &file.address, &shared.identity.credentials)
        .await
        .map_err(Failure::Unreachable)?;
    let failed = |status: Status| {
        connections.after(fetch.from, number, &status);
        let text = status.message().to_owned();
        match status.code() {
            Code::NotFound | Code::Unauthenticated | Code::FailedPrecondition => {
                Failure::Final(text)
            }
            _ => Failure::Unreachable(text),
        }
    };
    let request = wire::ObjectRequest {
        job: fetch.object.task.job.0,
        task: fetch.object.task.local.0,
        attempt: fetch.object.attempt.0,
        output: fetch.object.output,
    };
    let mut pieces = client.fetch(request).await.map_err(failed)?.into_inner();
    let mut incoming = shared.executor.objects().create_incoming(fetch.object)?;
    let mut total_bytes = 0;
    while let Some(piece) = pieces.message().await.map_err(failed)? {
        total_bytes = piece.total_bytes;
        if piece.data.len() as u64 <= INLINE_BYTES {
            incoming.write(&piece.data)?;
            continue;
        }
        let written = tokio::task::spawn_blocking(move || {
            let result = incoming.write(&piece.data);
            (incoming, result)
        });
        let (back, result) = written.await.map_err(|e| Failure::Final(e.to_string()))?;
        incoming = back;
        result?;
    }
    if incoming.size_bytes() != total_bytes {
        let text = format!("{} of {total_bytes} bytes came", incoming.size_bytes());
        return Err(Failure::Unreachable(text));
    }
    incoming.commit()?;
    Ok(())
}

/// Begins to read an object of this node for somebody else.
pub(crate) fn read(
    executor: &Executor,
    object: ObjectId,
) -> Result<mpsc::Receiver<Result<wire::Piece, Status>>, Status> {
    let (mut file, total_bytes) =
        executor.objects().open_object(object).map_err(|error| match error {
            ObjectError::Absent(_) => Status::not_found(error.to_string()),
            _ => Status::internal(error.to_string()),
        })?;
    if total_bytes <= INLINE_BYTES {
        let (sender, receiver) = mpsc::channel(1);
        let piece = next_piece(&mut file, total_bytes).map_err(Status::from);
        sender.try_send(piece).expect("a new queue has room for one");
        return Ok(receiver);
    }
    let mut failed = false;
    let pieces = std::iter::from_fn(move || {
        if failed {
            return None; // The error was told.
        }
        let piece = next_piece(&mut file, total_bytes);
        failed = piece.is_err();
        let end = piece.as_ref().is_ok_and(|piece| piece.data.is_empty());
        (!end).then(|| piece.map_err(Status::from))
    });
    Ok(in_background(pieces))
}

/// Empty at the end.
fn next_piece(file: &mut File, total_bytes: u64) -> std::io::Result<wire::Piece> {
    let mut data = Vec::with_capacity(total_bytes.min(limits::PIECE_BYTES as u64) as usize);
    file.take(limits::PIECE_BYTES as u64).read_to_end(&mut data)?;
    Ok(wire::Piece { data: data.into(), total_bytes })
}

/// What tasks that ran here have printed, then a last record that says there is no more.
pub(crate) fn streams(
    executor: &Executor,
    request: &wire::StreamsRequest,
) -> impl Iterator<Item = Result<wire::TaskStream, Status>> + use<> {
    let tasks: Vec<LocalId> = request.tasks.iter().copied().map(LocalId).collect();
    let stderr = request.stderr;
    let pieces = executor.streams().read(JobId(request.job), &tasks, stderr);
    let end = wire::TaskStream { end: true, stderr, ..Default::default() };
    pieces
        .map(move |piece| {
            let piece = piece.map_err(Status::from)?;
            Ok(wire::TaskStream {
                task: piece.task.local.0,
                attempt: piece.attempt.0,
                stderr,
                data: piece.data.into(),
                end: false,
            })
        })
        .chain(std::iter::once(Ok(end)))
}

/*!
Fetches objects, and sends objects to clients.

Real bytes come directly from the node that has them (see [`super::data`]). Virtual data only takes
time: its size times the modelled cost of a byte, one transfer after another for each pair of nodes.
*/

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use executor::objects::ObjectName;
use executor::{Executor, ObjectError, ObjectReader, Place};
use node::Input;
use proto::work::{Fetch, FetchError};
use proto::{Attempt, JobId, LocalId, NodeId, ObjectId, Span, TaskId, Time, limits, wire};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use crate::event_loop::background::in_background;
use crate::event_loop::inbox::{Incoming, Local};
use crate::limits::{SMALL_OBJECTS_FRAME_BYTES, SMALL_OBJECTS_PER_FRAME_MAX};
use crate::objects::data::{self, Wanted};
use crate::rpc::service::{self, Shared};

/// Objects up to this size are read in the run loop's own thread, which is cheaper than a change of
/// threads.
const INLINE_BYTES: u64 = 64 << 10;

/// The objects that this node is fetching.
#[derive(Debug)]
pub(crate) struct Transfers {
    shared: Arc<Shared>,
    local: mpsc::UnboundedSender<Local>,
    /// Small objects to request at the end of the step.
    asks: BTreeMap<NodeId, Vec<Wanted>>,
    /// The end of each modelled transfer.
    modelled: BinaryHeap<Reverse<(Time, ObjectId, u64)>>,
    /// The time until which the modelled link from a node is busy.
    busy_until: BTreeMap<NodeId, Time>,
}

impl Transfers {
    pub(crate) fn new(shared: Arc<Shared>, local: mpsc::UnboundedSender<Local>) -> Self {
        Self {
            shared,
            local,
            asks: BTreeMap::new(),
            modelled: BinaryHeap::new(),
            busy_until: BTreeMap::new(),
        }
    }

    /// True if a transfer costs nothing: virtual data without a modelled delay.
    pub(crate) fn is_free(fetch: &Fetch) -> bool {
        !fetch.settings.real_data && modelled_span(fetch) == Span::ZERO
    }

    pub(crate) fn begin(&mut self, now: Time, fetch: &Fetch) {
        if !fetch.settings.real_data {
            let busy_until = self.busy_until.entry(fetch.from).or_default();
            *busy_until = (*busy_until).max(now) + modelled_span(fetch);
            self.modelled.push(Reverse((*busy_until, fetch.object, fetch.number)));
            return;
        }
        let (object, number, local) = (fetch.object, fetch.number, self.local.clone());
        let (taken, store) = (fetch.taken, self.shared.executor.objects().clone());
        let may_be_uploaded = taken.is_some() && !store.contains(object);
        let uploads = self.shared.executor.uploads();
        let is_here = may_be_uploaded && uploads.stands_in(&store, object, fetch.size_bytes);
        let wanted = Wanted::new(object, fetch.size_bytes, move |result| {
            let result = match taken {
                Some(stay) => result.and_then(|()| {
                    let taken = store.take_over(object, stay);
                    taken.map_err(|error| FetchError::Disk(error.to_string()))
                }),
                None => result,
            };
            // Fails only if the run loop has ended.
            let _ = local.send(Local::Input(Input::Fetched { object, number, result }));
        });
        match is_here {
            true => wanted.end(Ok(())),
            false => self.want(fetch.from, wanted),
        }
    }

    /// Fetches real bytes.
    pub(crate) fn want(&mut self, from: NodeId, wanted: Wanted) {
        if self.shared.executor.objects().contains(wanted.object) {
            wanted.end(Ok(()));
        } else if wanted.size_bytes <= limits::SMALL_OBJECT_BYTES {
            self.asks.entry(from).or_default().push(wanted);
        } else {
            data::bring(&self.shared, from, [wanted]);
        }
    }

    /// The small objects to request, one entry for each frame. If they exceed
    /// `SMALL_OBJECTS_FRAME_BYTES`, data connections share them, unless these are busy: small
    /// objects never wait behind large ones.
    pub(crate) fn take_asks(&mut self) -> Vec<(NodeId, Vec<Wanted>)> {
        let mut frames = Vec::new();
        for (from, mut wanted) in std::mem::take(&mut self.asks) {
            let bytes: u64 = wanted.iter().map(|wanted| wanted.size_bytes).sum();
            if bytes > SMALL_OBJECTS_FRAME_BYTES as u64 && self.shared.lines.are_free(from) {
                data::bring(&self.shared, from, wanted);
                continue;
            }
            while wanted.len() > SMALL_OBJECTS_PER_FRAME_MAX {
                let rest = wanted.split_off(SMALL_OBJECTS_PER_FRAME_MAX);
                frames.push((from, std::mem::replace(&mut wanted, rest)));
            }
            frames.push((from, wanted));
        }
        frames
    }

    /// The end of the next modelled transfer.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.modelled.peek().map(|Reverse((time, ..))| *time)
    }

    /// Takes the modelled transfers that have ended.
    pub(crate) fn take_due(&mut self, now: Time, inputs: &mut Vec<Input>) {
        while self.deadline().is_some_and(|time| time <= now) {
            if let Some(Reverse((_, object, number))) = self.modelled.pop() {
                inputs.push(Input::Fetched { object, number, result: Ok(()) });
            }
        }
    }
}

fn modelled_span(fetch: &Fetch) -> Span {
    // Saturates; a negative or missing cost counts as none.
    Span((fetch.size_bytes as f64 * fetch.settings.transfer_ns_per_byte) as u64)
}

/// Fetches objects as tasks that need them would, reports the time, and deletes them.
pub(crate) async fn bring(
    shared: &Arc<Shared>,
    request: &wire::BringRequest,
) -> Result<wire::BringReply, Status> {
    let store = shared.executor.objects();
    let (mut wanted, mut ends) = (Vec::new(), Vec::new());
    for told in &request.objects {
        let object = ObjectId {
            task: TaskId { job: JobId(told.job), local: LocalId(told.task) },
            attempt: Attempt(told.attempt),
            output: told.output,
        };
        if store.contains(object) {
            let name = ObjectName(object);
            return Err(Status::failed_precondition(format!("object {name} is here already")));
        }
        let (end, ended) = oneshot::channel();
        wanted.push(Wanted::new(object, told.size_bytes, move |result| {
            let _ = end.send(result); // The requester may be gone.
        }));
        ends.push((object, ended));
    }
    let start = Instant::now();
    let wants = Incoming::Wants { from: NodeId(request.from), wanted };
    shared.inbox.send(wants).await.map_err(|_| service::stopping())?;
    let mut failure = None;
    let mut came = Vec::with_capacity(ends.len());
    for (object, ended) in ends {
        match ended.await.map_err(|_| service::stopping())? {
            Ok(()) => came.push(object),
            Err(reason) => failure = Some(reason),
        }
    }
    let took_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    came.into_iter().for_each(|object| store.discard_object(object));
    match failure {
        Some(reason) => Err(Status::aborted(reason.to_string())),
        None => Ok(wire::BringReply { took_ns }),
    }
}

/// True for attempt 0. Attempts are numbered from 1: attempt 0 stands for a file that a client
/// uploaded for a task, or for the output of any attempt.
pub(crate) fn is_file(object: ObjectId) -> bool {
    object.attempt == Attempt(0)
}

fn open(executor: &Executor, object: ObjectId) -> Result<(ObjectReader, u64), Status> {
    let ObjectId { task, output, .. } = object;
    let mut found = object;
    if is_file(object) {
        match executor.uploads().read(task) {
            Ok(Some(opened)) => return Ok(opened),
            Ok(None) => {}
            Err(error) => return Err(Status::internal(error.to_string())),
        }
        found = executor.objects().any_attempt(task, output).unwrap_or(object);
    }
    executor.objects().open_object(found).map_err(|error| match error {
        ObjectError::Absent(_) => Status::not_found(error.to_string()),
        // Other objects of this node may be sound.
        _ => Status::data_loss(error.to_string()),
    })
}

/// Begins to read an object of this node for a client.
pub(crate) fn read(
    executor: &Executor,
    object: ObjectId,
) -> Result<mpsc::Receiver<Result<wire::Piece, Status>>, Status> {
    let (mut reader, total_bytes) = open(executor, object)?;
    if total_bytes <= INLINE_BYTES {
        let (sender, receiver) = mpsc::channel(1);
        let piece = next_piece(&mut reader, total_bytes).map_err(Status::from);
        sender.try_send(piece).expect("a new queue has room for one");
        return Ok(receiver);
    }
    let mut failed = false;
    let pieces = std::iter::from_fn(move || {
        if failed {
            return None; // The error was returned.
        }
        let piece = next_piece(&mut reader, total_bytes);
        failed = piece.is_err();
        let end = piece.as_ref().is_ok_and(|piece| piece.data.is_empty());
        (!end).then(|| piece.map_err(Status::from))
    });
    Ok(in_background(pieces))
}

/// Reads the next piece; it is empty at the end.
fn next_piece(reader: &mut ObjectReader, total_bytes: u64) -> std::io::Result<wire::Piece> {
    let mut data = Vec::with_capacity(total_bytes.min(limits::PIECE_BYTES as u64) as usize);
    reader.by_ref().take(limits::PIECE_BYTES as u64).read_to_end(&mut data)?;
    Ok(wire::Piece { data: data.into(), total_bytes, executable: reader.is_executable() })
}

/// The captured output of this node's tasks, or that of the node in `copies_of`. A last record
/// marks the end. An unreadable record ends only the reading of its pack.
pub(crate) fn streams(
    executor: &Executor,
    request: &wire::StreamsRequest,
) -> impl Iterator<Item = Result<wire::TaskStream, Status>> + use<> {
    let tasks: Vec<LocalId> = request.tasks.iter().copied().map(LocalId).collect();
    let stderr = request.stderr;
    let (streams, job) = (executor.streams(), JobId(request.job));
    let after = Place { pack: request.after_pack, offset: request.after_offset };
    let (pieces, Place { pack, offset }) = match request.copies_of {
        Some(maker) => (streams.copies().read(NodeId(maker), job, &tasks, stderr), after),
        None => streams.read_after(job, &tasks, stderr, after),
    };
    let end = wire::TaskStream { end: true, stderr, pack, offset, ..Default::default() };
    pieces
        .map(move |piece| {
            Ok(match piece {
                Ok(piece) => wire::TaskStream {
                    task: piece.task.local.0,
                    attempt: piece.attempt.0,
                    stderr,
                    carried: piece.carried,
                    data: piece.data.into(),
                    ..Default::default()
                },
                Err(_) => wire::TaskStream { stderr, damaged: true, ..Default::default() },
            })
        })
        .chain(std::iter::once(Ok(end)))
}

//! Small objects: requested and sent in frames of the link, as many in one frame as possible.
//!
//! A link may break, and a full queue drops frames, so no code relies on an answer. An object that
//! does not arrive within `SMALL_OBJECT_TIMEOUT` is fetched over a line.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use executor::ObjectStore;
use proto::work::FetchError;
use proto::{NodeId, ObjectId, limits, wire};
use xxhash_rust::xxh3::xxh3_64;

use super::{Wanted, bring, not_given, object_of, request_of};
use crate::limits::{SMALL_OBJECTS_FRAME_BYTES, SMALL_OBJECTS_PER_FRAME_MAX};
use crate::rpc::service::Shared;
use proto::Span;

/// A small object that has not arrived within this time is fetched over a data connection.
const SMALL_OBJECT_TIMEOUT: Span = Span::from_secs(5);

/// The small objects that were requested and have not arrived.
#[derive(Debug, Default)]
pub(crate) struct SmallObjectChannel {
    asked: Mutex<BTreeMap<ObjectId, (NodeId, Wanted)>>,
}

impl SmallObjectChannel {
    fn asked(&self) -> MutexGuard<'_, BTreeMap<ObjectId, (NodeId, Wanted)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the wanted objects and returns the request for them.
    pub(crate) fn ask(&self, from: NodeId, wanted: Vec<Wanted>) -> wire::SmallObjectRequests {
        let objects = wanted.iter().map(|wanted| request_of(wanted.object)).collect();
        let mut asked = self.asked();
        for wanted in wanted {
            asked.insert(wanted.object, (from, wanted));
        }
        wire::SmallObjectRequests { objects }
    }

    /// Fetches over lines the objects that no frame will bring.
    pub(crate) fn give_up(shared: &Arc<Shared>, from: NodeId, objects: &[wire::ObjectRequest]) {
        for request in objects {
            let object = object_of(request);
            let mut asked = shared.small_objects.asked();
            if asked.get(&object).is_some_and(|(node, _)| *node == from)
                && let Some((from, wanted)) = asked.remove(&object)
            {
                drop(asked);
                bring(shared, from, [wanted]);
            }
        }
    }

    /// Gives up on the frames after `SMALL_OBJECT_TIMEOUT`.
    pub(crate) fn watch(shared: &Arc<Shared>, from: NodeId, asks: wire::SmallObjectRequests) {
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_nanos(SMALL_OBJECT_TIMEOUT.0)).await;
            Self::give_up(&shared, from, &asks.objects);
        });
    }

    /// Handles the loss of the link to a node, and with it of the requests sent there.
    pub(crate) fn lost(shared: &Arc<Shared>, from: NodeId) {
        let asked = shared.small_objects.asked();
        let objects: Vec<_> = asked
            .iter()
            .filter(|(_, (node, _))| *node == from)
            .map(|(object, _)| request_of(*object))
            .collect();
        drop(asked);
        Self::give_up(shared, from, &objects);
    }
}

/// Answers a peer's request, in as many frames as needed.
pub(crate) fn give(
    store: &ObjectStore,
    asks: &wire::SmallObjectRequests,
) -> Vec<wire::SmallObjects> {
    let mut frames = Vec::new();
    let mut open = wire::SmallObjects::default();
    let mut bytes = 0;
    // Nodes of this version never request more than this limit.
    for request in asks.objects.iter().take(SMALL_OBJECTS_PER_FRAME_MAX) {
        let given = read(store, object_of(request));
        bytes += given.as_ref().map_or(0, |(data, ..)| data.len());
        let object = Some(*request);
        open.objects.push(match given {
            Ok((data, checksum, executable)) => {
                let data = data.into();
                wire::SmallObject {
                    object,
                    data,
                    checksum,
                    executable,
                    ..wire::SmallObject::default()
                }
            }
            Err(error) => {
                let absent = error == FetchError::NotThere;
                wire::SmallObject {
                    object,
                    error: error.to_string(),
                    absent,
                    ..wire::SmallObject::default()
                }
            }
        });
        if bytes >= SMALL_OBJECTS_FRAME_BYTES {
            frames.push(std::mem::take(&mut open));
            bytes = 0;
        }
    }
    frames.extend((!open.objects.is_empty()).then_some(open));
    frames
}

fn read(store: &ObjectStore, object: ObjectId) -> Result<(Vec<u8>, u64, bool), FetchError> {
    use std::io::Read;
    let wrong = FetchError::Disk;
    let (mut reader, size_bytes) = store.open_object(object).map_err(|error| not_given(&error))?;
    if size_bytes > limits::SMALL_OBJECT_BYTES {
        return Err(wrong(format!("it has {size_bytes} bytes: too many for a frame")));
    }
    let mut data = vec![0; size_bytes as usize];
    reader.read_exact(&mut data).map_err(|error| wrong(error.to_string()))?;
    let checksum = store.checksum(object).unwrap_or_else(|| xxh3_64(&data));
    Ok((data, checksum, reader.is_executable()))
}

/// Stores the objects that a peer sent. A damaged object is fetched over a line.
pub(crate) fn take(shared: &Arc<Shared>, from: NodeId, gives: wire::SmallObjects) {
    for give in gives.objects {
        let Some(object) = give.object.as_ref().map(object_of) else { continue };
        let mut asked = shared.small_objects.asked();
        // Ignores an object that was not requested from this node.
        if asked.get(&object).is_none_or(|(node, _)| *node != from) {
            continue;
        }
        let Some((_, wanted)) = asked.remove(&object) else { continue };
        drop(asked);
        let whole = give.data.len() as u64 == wanted.size_bytes;
        if give.absent {
            wanted.end(Err(FetchError::NotThere));
        } else if !give.error.is_empty() {
            wanted.end(Err(FetchError::Disk(format!("from node {from}: {}", give.error))));
        } else if whole && xxh3_64(&give.data) == give.checksum {
            let store = shared.executor.objects();
            let kept = store.keep_copy_as(object, &give.data, give.checksum, give.executable);
            wanted.end(kept.map_err(|error| FetchError::Disk(error.to_string())));
        } else {
            bring(shared, from, [wanted]);
        }
    }
}

#[cfg(test)]
mod tests {
    use executor::{Executor, ExecutorConfig};
    use proto::{Attempt, TaskId};

    use super::*;

    #[test]
    fn frames_stay_small_and_missing_objects_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let config = ExecutorConfig::new(dir.path(), NodeId(0), 1);
        let executor = Executor::start(config, |_| {}).unwrap();
        let store = executor.objects();
        let object = |n: u64| ObjectId { task: TaskId::new(1, n), attempt: Attempt(1), output: 0 };
        let big = vec![7; limits::SMALL_OBJECT_BYTES as usize];
        for number in 0..40 {
            store.keep_copy(object(number), &big, xxh3_64(&big)).unwrap();
        }
        store.keep_copy(object(40), &vec![0; big.len() + 1], 0).unwrap();
        let asks =
            wire::SmallObjectRequests { objects: (0..42).map(|n| request_of(object(n))).collect() };
        let frames = give(store, &asks);
        assert_eq!(frames.len(), 3, "40 times 64 KiB, a mebibyte a frame");
        let all: Vec<_> = frames.into_iter().flat_map(|frame| frame.objects).collect();
        assert_eq!(all.len(), 42);
        assert!(all[..40].iter().all(|give| give.data == big && give.error.is_empty()));
        assert!(all[40].error.contains("too many") && all[40].data.is_empty(), "{:?}", all[40]);
        assert!(!all[40].absent && all[41].absent && !all[41].error.is_empty(), "{:?}", all[41]);
    }
}

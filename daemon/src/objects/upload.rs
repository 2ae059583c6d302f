//! Receives the files of submitters: complete, checked and on stable storage, or not stored at all.

use std::sync::Arc;
use std::time::Duration;

use executor::{IncomingUpload, UploadError};
use proto::{JobId, LocalId, TaskId, wire};
use tokio::sync::oneshot;
use tonic::{Status, Streaming};
use xxhash_rust::xxh3::Xxh3;

use crate::event_loop::inbox::Incoming;
use crate::limits::DATA_STALL_TIMEOUT;
use crate::rpc::service::Shared;

fn refused(error: &UploadError) -> Status {
    match error {
        UploadError::Size { .. } => Status::invalid_argument(error.to_string()),
        UploadError::TooLarge { .. } => Status::out_of_range(error.to_string()),
        UploadError::Io { .. } => Status::resource_exhausted(error.to_string()),
    }
}

/// Receives one file. A stream that breaks off or stalls leaves nothing behind.
pub(crate) async fn take(
    shared: &Arc<Shared>,
    mut parts: Streaming<wire::UploadPart>,
) -> Result<(), Status> {
    let _permit = shared.uploading.acquire().await.map_err(|_| crate::rpc::service::stopping())?;
    let first = next(&mut parts).await?;
    let task = TaskId { job: JobId(first.job), local: LocalId(first.task) };
    check_awaited(shared, task, first.copy).await?;
    let size_bytes = first.size_bytes;
    let mut incoming = begin(shared, task, size_bytes).await?;
    incoming.set_executable(first.executable).map_err(|error| refused(&error))?;
    let mut hash = Xxh3::new();
    let mut part = first;
    loop {
        hash.update(&part.data);
        let (is_last, checksum) = (part.last, part.checksum);
        incoming = write(incoming, part.data, is_last).await?;
        if is_last {
            if hash.digest() != checksum {
                return Err(Status::data_loss(format!("the file of task {task} came damaged")));
            }
            // Sent before the commit: the sender may be gone before the file is complete, and it
            // completes anyway.
            let kept = Incoming::Kept { task };
            shared.inbox.send(kept).await.map_err(|_| crate::rpc::service::stopping())?;
            return commit(incoming).await;
        }
        part = next(&mut parts).await?;
    }
}

/// Accepts a file only for a task that is staged here, because a file without a job would stay
/// forever. For a copy that is unknown; this node later asks about the end of its job.
async fn check_awaited(shared: &Shared, task: TaskId, copy: bool) -> Result<(), Status> {
    let (awaited, answer) = oneshot::channel();
    let file = Incoming::File { task, copy, awaited };
    shared.inbox.send(file).await.map_err(|_| crate::rpc::service::stopping())?;
    match answer.await.map_err(|_| crate::rpc::service::stopping())? {
        Some(true) => Ok(()),
        Some(false) => Err(Status::failed_precondition(format!(
            "no task {task} that stands for a file is staged here: submit its job first"
        ))),
        None if copy => Err(Status::unavailable(format!(
            "this node has no copy of the partition of task {task}"
        ))),
        None => Err(Status::unavailable(format!("this node is not the home of task {task}"))),
    }
}

async fn next(parts: &mut Streaming<wire::UploadPart>) -> Result<wire::UploadPart, Status> {
    let patience = Duration::from_nanos(DATA_STALL_TIMEOUT.0);
    let part = tokio::time::timeout(patience, parts.message()).await;
    let part = part.map_err(|_| Status::deadline_exceeded("the upload stalled"))??;
    part.ok_or_else(|| Status::invalid_argument("the file broke off"))
}

/// On another thread: reserving space for a large file may take long.
async fn begin(shared: &Shared, task: TaskId, size_bytes: u64) -> Result<IncomingUpload, Status> {
    let uploads = shared.executor.uploads().clone();
    let begun = tokio::task::spawn_blocking(move || uploads.begin(task, size_bytes)).await;
    begun.map_err(|e| Status::internal(e.to_string()))?.map_err(|error| refused(&error))
}

async fn write(
    mut incoming: IncomingUpload,
    data: bytes::Bytes,
    is_last: bool,
) -> Result<IncomingUpload, Status> {
    let write = move || incoming.write(&data).map(|()| incoming);
    let written = if is_last {
        write()
    } else {
        tokio::task::spawn_blocking(write).await.map_err(|e| Status::internal(e.to_string()))?
    };
    written.map_err(|error| refused(&error))
}

async fn commit(incoming: IncomingUpload) -> Result<(), Status> {
    let committed = tokio::task::spawn_blocking(move || incoming.commit()).await;
    committed.map_err(|e| Status::internal(e.to_string()))?.map_err(|error| refused(&error))
}

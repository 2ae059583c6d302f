//! Byte streams from nodes: the event log, the printed output of tasks, the objects.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use proto::{Attempt, JobId, LocalId, NodeId, ObjectId, TaskId, limits, wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::transport::Channel;
use xxhash_rust::xxh3::Xxh3;

use crate::link::{LinkError, call, explain};
use crate::retry::{Retry, Target};
use crate::{Client, ClientError};

mod stub {
    #![expect(unreachable_pub, unused_qualifications, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/starling.v1.rs"));
}
/// Parts of a file that wait to be sent.
const PARTS_AHEAD: usize = 2;

type PeerClient = stub::peer_client::PeerClient<Channel>;

/// The raw event log of one node, piece by piece (`analysis` decodes it).
#[derive(Debug)]
pub struct NodeEvents {
    /// The node of the log.
    pub node: NodeId,
    pieces: tonic::Streaming<wire::Piece>,
}

impl NodeEvents {
    /// The next bytes of the log; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let piece = self.pieces.message().await.map_err(|status| lost(self.node, &status))?;
        Ok(piece.map(|piece| piece.data))
    }
}

/// A selection of streams.
#[derive(Clone, Debug, Default)]
pub struct StreamFilter {
    /// Empty: all tasks of the job.
    pub tasks: Vec<LocalId>,
    /// Standard error instead of standard output.
    pub stderr: bool,
    /// The output of tasks on this other node, as far as the asked node has copies of it.
    pub copies_of: Option<NodeId>,
    /// Only output behind this place, which the end of an earlier answer has.
    pub after: StreamPlace,
}

/// A place in the captured output of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamPlace {
    /// The number of a file of captured output.
    pub pack: u32,
    /// A place in that file, in bytes.
    pub offset: u64,
}

/// A piece of the captured output of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamPiece {
    /// The task that printed it.
    pub task: LocalId,
    /// A task that ran several times has the output of each attempt.
    pub attempt: Attempt,
    /// Standard error, not standard output.
    pub stderr: bool,
    /// The bytes; a piece ends anywhere.
    pub data: Bytes,
    /// The last piece, which has no data.
    pub end: bool,
    /// Some captured output of the node is damaged and was left out.
    pub damaged: bool,
    /// The command has printed it as an earlier attempt of its task, and went on as this one. An
    /// attempt has all output of its command, so that of the attempt that counts is complete.
    pub carried: bool,
    /// Of the last piece: the place behind it.
    pub place: StreamPlace,
}

impl StreamPiece {
    fn of_record(piece: wire::TaskStream) -> Self {
        Self {
            task: LocalId(piece.task),
            attempt: Attempt(piece.attempt),
            stderr: piece.stderr,
            data: piece.data,
            end: piece.end,
            damaged: piece.damaged,
            carried: piece.carried,
            place: StreamPlace { pack: piece.pack, offset: piece.offset },
        }
    }
}

fn lost(node: NodeId, status: &tonic::Status) -> ClientError {
    let text = explain(status);
    match status.code() {
        tonic::Code::NotFound
        | tonic::Code::ResourceExhausted
        | tonic::Code::InvalidArgument
        | tonic::Code::FailedPrecondition
        | tonic::Code::PermissionDenied
        // A file that stalled or was damaged in transfer: the node works.
        | tonic::Code::DeadlineExceeded
        | tonic::Code::DataLoss
        | tonic::Code::OutOfRange => ClientError::Refused(format!("node {node}: {text}")),
        _ => ClientError::ClusterUnreachable(format!("node {node}: {text}")),
    }
}

/// The content of a file: its size in bytes and its xxh3.
type Contents = (u64, u64);

/// An incomplete file, which is removed on drop unless it was renamed.
struct Part {
    path: PathBuf,
    to: PathBuf,
    is_named: bool,
}

impl Part {
    fn new(to: &Path) -> Self {
        let mut path = to.as_os_str().to_owned();
        path.push(".part");
        Self { path: path.into(), to: to.to_owned(), is_named: false }
    }

    async fn give_name(mut self) -> std::io::Result<()> {
        tokio::fs::rename(&self.path, &self.to).await?;
        self.is_named = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_named {
            // The file may not have been created.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Creates a file for the pieces of an object. The file is the user's: its mode follows the user's
/// umask.
async fn create(path: &Path, executable: bool) -> std::io::Result<tokio::fs::File> {
    let mode = if executable { 0o777 } else { 0o666 };
    tokio::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)
        .await
}

async fn write_whole(
    node: NodeId,
    mut pieces: impl tokio_stream::Stream<Item = Result<wire::Piece, tonic::Status>> + Unpin,
    to: &Path,
    checksum: Option<u64>,
) -> Result<u64, ClientError> {
    use tokio_stream::StreamExt;
    let broken = |error: std::io::Error| ClientError::file(to, &error);
    let part = Part::new(to);
    let (mut size_bytes, mut total_bytes) = (0, 0);
    let mut hash = checksum.map(|_| Xxh3::new());
    let mut open = None;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|status| lost(node, &status))?;
        let file = match &mut open {
            Some(file) => file,
            None => open.insert(create(&part.path, piece.executable).await.map_err(broken)?),
        };
        file.write_all(&piece.data).await.map_err(broken)?;
        if let Some(hash) = &mut hash {
            hash.update(&piece.data);
        }
        size_bytes += piece.data.len() as u64;
        total_bytes = piece.total_bytes;
    }
    let broke_off = || ClientError::ClusterUnreachable(format!("node {node}: no bytes came"));
    let mut file = open.ok_or_else(broke_off)?;
    file.flush().await.map_err(broken)?;
    drop(file);
    if size_bytes != total_bytes {
        let text = format!("node {node}: {size_bytes} of {total_bytes} bytes came");
        return Err(ClientError::Refused(text));
    }
    if hash.map(|hash| hash.digest()) != checksum {
        let text = format!("node {node}: its copy differs from what the task made (checksum)");
        return Err(ClientError::Refused(text));
    }
    part.give_name().await.map_err(broken)?;
    Ok(size_bytes)
}

impl Client {
    async fn peer(&self, node: NodeId) -> Result<PeerClient, ClientError> {
        let link = self.long_timeout_link(node.0).await?;
        Ok(PeerClient::new(link.channel).max_decoding_message_size(limits::FRAME_BYTES_MAX))
    }

    /// One node's events of a job; `JobId(0)` means all jobs. `task` limits them to one task.
    pub async fn events(
        &self,
        node: NodeId,
        job: JobId,
        task: Option<LocalId>,
    ) -> Result<NodeEvents, ClientError> {
        let request = wire::EventsRequest {
            job: job.0,
            task: task.unwrap_or_default().0,
            one_task: task.is_some(),
        };
        let mut peer = self.peer(node).await?;
        let answer = peer.events(call(Some(node), request)).await;
        let pieces = answer.map_err(|status| lost(node, &status))?.into_inner();
        Ok(NodeEvents { node, pieces })
    }

    /// The stdout or stderr of a job's tasks that ran on one node. `see` receives the pieces in the
    /// order of each task's output; it returns an error to stop.
    pub async fn streams<E: From<ClientError>>(
        &self,
        node: NodeId,
        job: JobId,
        filter: &StreamFilter,
        mut see: impl FnMut(StreamPiece) -> Result<(), E>,
    ) -> Result<(), E> {
        let request = wire::StreamsRequest {
            job: job.0,
            tasks: filter.tasks.iter().map(|task| task.0).collect(),
            stderr: filter.stderr,
            copies_of: filter.copies_of.map(|node| node.0),
            after_pack: filter.after.pack,
            after_offset: filter.after.offset,
        };
        let mut peer = self.peer(node).await?;
        let answer = peer.streams(call(Some(node), request)).await;
        let mut pieces = answer.map_err(|status| lost(node, &status))?.into_inner();
        while let Some(piece) = pieces.message().await.map_err(|status| lost(node, &status))? {
            see(StreamPiece::of_record(piece))?;
        }
        Ok(())
    }

    /// Copies an object from its node into a file; returns its size. The file gets its name only
    /// when it is complete; otherwise nothing of it stays.
    pub async fn fetch_object(
        &self,
        node: NodeId,
        object: ObjectId,
        to: &Path,
    ) -> Result<u64, ClientError> {
        write_whole(node, self.object_pieces(node, object).await?, to, None).await
    }

    /// As [`Self::fetch_object`]. Refuses bytes with another checksum (xxh3) than this one.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: the node's copy was changed on its disk, for example.
    pub async fn fetch_object_with(
        &self,
        node: NodeId,
        object: ObjectId,
        checksum: Option<u64>,
        to: &Path,
    ) -> Result<u64, ClientError> {
        write_whole(node, self.object_pieces(node, object).await?, to, checksum).await
    }

    async fn object_pieces(
        &self,
        node: NodeId,
        object: ObjectId,
    ) -> Result<tonic::Streaming<wire::Piece>, ClientError> {
        let request = wire::ObjectRequest {
            job: object.task.job.0,
            task: object.task.local.0,
            attempt: object.attempt.0,
            output: object.output,
        };
        let mut peer = self.peer(node).await?;
        let answer = peer.fetch(call(Some(node), request)).await;
        Ok(answer.map_err(|status| lost(node, &status))?.into_inner())
    }

    /// The bytes of an object, from a node that has it.
    pub async fn read_object(&self, node: NodeId, object: ObjectId) -> Result<Bytes, ClientError> {
        let mut pieces = self.object_pieces(node, object).await?;
        let (mut bytes, mut total_bytes) = (Vec::new(), 0);
        while let Some(piece) = pieces.message().await.map_err(|status| lost(node, &status))? {
            bytes.extend_from_slice(&piece.data);
            total_bytes = piece.total_bytes;
        }
        if bytes.len() as u64 != total_bytes {
            let text = format!("node {node}: {} of {total_bytes} bytes came", bytes.len());
            return Err(ClientError::ClusterUnreachable(text));
        }
        Ok(bytes.into())
    }

    /// Uploads a file to every node with a replica of its task's records, before its job is
    /// committed. The first of them is the task's home, which will use the file. A later home then
    /// has it as well.
    pub async fn put_file(
        &self,
        task: TaskId,
        file: &Path,
        size_bytes: u64,
    ) -> Result<(), ClientError> {
        let home = task.local.partition();
        let mut retry = Retry::new(self.request_timeout());
        let (mut have, mut first) = (BTreeSet::new(), None);
        loop {
            let map = self.map();
            let copies = &map.partitions[home.0 as usize].replicas;
            let Some(&node) = copies.iter().find(|node| !have.contains(*node)) else {
                return Ok(());
            };
            let is_home = copies.first() == Some(&node);
            match self.put_at(NodeId(node), task, file, !is_home).await {
                // All copies must be identical, and have the size that is in the graph.
                Ok(contents)
                    if contents.0 != size_bytes || *first.get_or_insert(contents) != contents =>
                {
                    let text = format!("{} has changed while it was uploaded", file.display());
                    return Err(ClientError::Refused(text));
                }
                Ok(_) => {
                    have.insert(node);
                    retry = Retry::new(self.request_timeout());
                }
                Err(ClientError::ClusterUnreachable(text)) => {
                    let paused = retry.pause(Target::Home(home), node, &LinkError(text)).await;
                    self.or_away(paused).await?;
                    self.refresh(&map).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn put_at(
        &self,
        node: NodeId,
        task: TaskId,
        file: &Path,
        copy: bool,
    ) -> Result<Contents, ClientError> {
        let broken = |error: &std::io::Error| ClientError::file(file, error);
        let mut opened = tokio::fs::File::open(file).await.map_err(|error| broken(&error))?;
        let metadata = opened.metadata().await.map_err(|error| broken(&error))?;
        let size_bytes = metadata.len();
        let executable = metadata.permissions().mode() & 0o111 != 0;
        let mut peer = self.peer(node).await?;
        let (parts, queue) = tokio::sync::mpsc::channel(PARTS_AHEAD);
        let read = async move {
            let mut hash = Xxh3::new();
            let mut rest = size_bytes;
            loop {
                let mut data = vec![0; rest.min(limits::PIECE_BYTES as u64) as usize];
                opened.read_exact(&mut data).await?;
                hash.update(&data);
                rest -= data.len() as u64;
                let last = rest == 0;
                let part = wire::UploadPart {
                    job: task.job.0,
                    task: task.local.0,
                    size_bytes,
                    data: data.into(),
                    checksum: if last { hash.digest() } else { 0 },
                    last,
                    copy,
                    executable,
                };
                // A receiver that refuses further parts reports the reason itself.
                if parts.send(part).await.is_err() || last {
                    return Ok(hash.digest());
                }
            }
        };
        let stream = tokio_stream::wrappers::ReceiverStream::new(queue);
        let (read, answer): (std::io::Result<u64>, _) =
            tokio::join!(read, peer.put(call(Some(node), stream)));
        let checksum = read.map_err(|error| broken(&error))?;
        answer.map_err(|status| lost(node, &status))?;
        Ok((size_bytes, checksum))
    }

    /// Makes a node fetch objects from another and delete them again; returns the time of the
    /// fetch. For measurements only: the inputs of tasks are fetched automatically.
    pub async fn bring(
        &self,
        node: NodeId,
        from: NodeId,
        objects: &[(ObjectId, u64)],
    ) -> Result<Duration, ClientError> {
        let object = |&(object, size_bytes): &(ObjectId, u64)| wire::Object {
            job: object.task.job.0,
            task: object.task.local.0,
            attempt: object.attempt.0,
            output: object.output,
            size_bytes,
        };
        let objects = objects.iter().map(object).collect();
        let request = wire::BringRequest { from: from.0, objects };
        let mut peer = self.peer(node).await?;
        let answer = peer.bring(call(Some(node), request)).await;
        let reply = answer.map_err(|status| lost(node, &status))?.into_inner();
        Ok(Duration::from_nanos(reply.took_ns))
    }

    /// Sends a stop request to a node; with `all` the node stops all others as well. Success
    /// includes a node that ends before it has answered.
    pub async fn stop_node(&self, node: NodeId, all: bool) -> Result<(), ClientError> {
        let Ok(link) = self.link(node.0).await else { return Ok(()) };
        let mut peer = PeerClient::new(link.channel);
        match peer.stop(call(Some(node), wire::StopRequest { all, told: false })).await {
            Ok(_) => Ok(()),
            Err(status)
                if matches!(status.code(), tonic::Code::Unavailable | tonic::Code::Unknown) =>
            {
                Ok(())
            }
            Err(status) => Err(lost(node, &status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn write(pieces: Vec<Result<wire::Piece, tonic::Status>>, to: &Path) -> Option<u64> {
        write_whole(NodeId(0), tokio_stream::iter(pieces), to, None).await.ok()
    }

    #[tokio::test]
    async fn an_object_is_whole_or_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("object");
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        let piece = |data: &'static [u8]| {
            Ok(wire::Piece { data: data.into(), total_bytes: 4, executable: false })
        };

        assert_eq!(write(vec![piece(b"ab")], &to).await, None, "half of it");
        let broken = Err(tonic::Status::unavailable("gone"));
        assert_eq!(write(vec![piece(b"ab"), broken], &to).await, None);
        assert_eq!(files(), 0, "nothing stays of what failed");

        assert_eq!(write(vec![piece(b"ab"), piece(b"cd")], &to).await, Some(4));
        assert_eq!((std::fs::read(&to).unwrap(), files()), (b"abcd".to_vec(), 1));
    }

    #[tokio::test]
    async fn bytes_with_another_checksum_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("object");
        let sum = Some(xxhash_rust::xxh3::xxh3_64(b"abcd"));
        for (data, came) in [(&b"abcd"[..], true), (b"abce", false)] {
            let piece = wire::Piece { data: data.into(), total_bytes: 4, executable: false };
            let pieces = tokio_stream::iter([Ok(piece)]);
            let written = write_whole(NodeId(0), pieces, &to, sum).await;
            assert_eq!(written.is_ok(), came, "{written:?}");
        }
        let files = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!((std::fs::read(&to).unwrap(), files), (b"abcd".to_vec(), 1));
    }
}

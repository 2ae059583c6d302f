//! The ends of tasks of an open job, as they happen.
//!
//! Each home sends the ends of its tasks in their order. A position names the next end of each
//! partition. A home that restarts or moves begins again, so an end may come more than once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::wire::{self, request, response};
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::call::{Checked, MOVED, name_unknown};
use crate::info::Verdict;
use crate::link::LinkError;
use crate::records::is_ended;
use crate::retry::{Retry, Target};
use crate::watch_stream::WatchStream;
use crate::{Client, ClientError, link};

/// The maximum number of batches that wait for a slow reader.
const BATCHES_MAX: usize = 64;

/// The end of a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskEnd {
    /// The task that ended.
    pub task: LocalId,
    /// The attempt that counted.
    pub attempt: Attempt,
    /// How it ended.
    pub verdict: Verdict,
    /// 0 if the end has no exit code.
    pub exit_code: i32,
    /// Empty if the task is done, or if its home keeps the reason only in the task's record.
    pub error: String,
    /// Bytes by output.
    pub output_sizes: Vec<u64>,
    /// The node that ran it, and has its outputs.
    pub node: NodeId,
    /// The value of a call that is done, or the exception of one that has failed. Empty: unknown.
    pub inline: Vec<u8>,
}

/// The ends that a reader has seen: by partition the term of its home and the next end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EndsPosition {
    partitions: BTreeMap<u32, (u64, u64)>,
}

/// The ends of tasks of a job. Each comes at least once for each attempt that counted.
#[derive(Debug)]
pub struct EndsWatch {
    batches: mpsc::Receiver<Result<wire::Ends, ClientError>>,
    position: EndsPosition,
    _follower: JoinSet<()>,
}

impl Client {
    /// The ends of all tasks of an open job from this position on, until the job has ended.
    #[must_use]
    pub fn watch_ends(&self, job: JobId, after: EndsPosition) -> EndsWatch {
        let (sender, batches) = mpsc::channel(BATCHES_MAX);
        let (client, from) = (self.clone(), after.clone());
        let mut follower = JoinSet::new();
        follower.spawn(async move {
            if let Err(error) = follow_job(&client, job, &from, &sender).await {
                // The reader may be gone.
                let _ = sender.send(Err(error)).await;
            }
        });
        EndsWatch { batches, position: after, _follower: follower }
    }
}

impl EndsWatch {
    /// The next ends; `None` after the last ends of a job that has ended.
    pub async fn next(&mut self) -> Result<Option<Vec<TaskEnd>>, ClientError> {
        while let Some(batch) = self.batches.recv().await {
            let batch = batch?;
            let place = (batch.term, batch.next);
            self.position.partitions.insert(batch.partition, place);
            if !batch.ends.is_empty() {
                return Ok(Some(batch.ends.into_iter().map(TaskEnd::of_record).collect()));
            }
        }
        Ok(None)
    }

    /// Where another watch may begin, so that it repeats nothing that this one has returned.
    #[must_use]
    pub fn position(&self) -> &EndsPosition {
        &self.position
    }
}

impl TaskEnd {
    fn of_record(end: wire::TaskEnd) -> Self {
        Self {
            task: LocalId(end.local),
            attempt: Attempt(end.attempt),
            verdict: Verdict::of_record(end.verdict()),
            exit_code: end.exit_code,
            error: end.error,
            output_sizes: end.output_sizes,
            node: NodeId(end.node),
            inline: end.inline,
        }
    }
}

type Batches = mpsc::Sender<Result<wire::Ends, ClientError>>;

/// Follows all partitions of the job, those that join later as well.
async fn follow_job(
    client: &Client,
    job: JobId,
    from: &EndsPosition,
    batches: &Batches,
) -> Result<(), ClientError> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let mut known = BTreeMap::new();
    let mut followers = JoinSet::new();
    let mut watch = client.watch_records(job);
    while let Some(state) = watch.next().await? {
        if state.openness() == wire::Openness::ClosedGraph {
            let text = format!("job {} is not an open job: its ends are not watched", job.0);
            return Err(ClientError::Refused(text));
        }
        for &wire::PartitionTotal { partition, .. } in &state.partitions {
            if known.insert(partition, ()).is_some() {
                continue;
            }
            let place = from.partitions.get(&partition).copied().unwrap_or_default();
            let (client, batches) = (client.clone(), batches.clone());
            let has_ended = Arc::clone(&has_ended);
            followers.spawn(async move {
                let of = (job, PartitionId(partition));
                if let Err(error) = follow(&client, of, place, &has_ended, &batches).await {
                    let _ = batches.send(Err(error)).await;
                }
            });
        }
        if is_ended(&state) {
            has_ended.store(true, Ordering::Relaxed);
        }
    }
    followers.join_all().await;
    Ok(())
}

/// Follows the ends in one partition until the job has ended there.
async fn follow(
    client: &Client,
    (job, partition): (JobId, PartitionId),
    (mut term, mut after): (u64, u64),
    has_ended: &AtomicBool,
    batches: &Batches,
) -> Result<(), ClientError> {
    let mut retry = Retry::new(client.request_timeout());
    loop {
        let (map, node) = (client.map(), client.home(partition).0);
        let id = client.next_id();
        let query = wire::EndsQuery { job: job.0, partition: partition.0, term, after };
        let bytes = link::encode(id, request::Body::WatchEnds(query));
        let opened = async { WatchStream::open(node, &client.link(node).await?, id, bytes).await };
        let lost = match opened.await {
            Err(lost) => lost,
            Ok(mut stream) => {
                let lost = loop {
                    let response = match stream.next(&retry).await {
                        Ok(response) => response,
                        Err(lost) => break lost,
                    };
                    let checked = client.check(response);
                    match checked.map_err(|error| name_unknown(error, job, None)) {
                        // The partition's home may not have heard yet that it is one of the job's.
                        Err(ClientError::UnknownJob(_)) if has_ended.load(Ordering::Relaxed) => {
                            return Ok(());
                        }
                        Err(ClientError::UnknownJob(_)) => {
                            break LinkError("it does not know the job yet".to_owned());
                        }
                        Err(error) => return Err(error),
                        Ok(Checked::Busy { .. }) => break LinkError("it is busy".to_owned()),
                        Ok(Checked::Moved) => break LinkError(MOVED.to_owned()),
                        Ok(Checked::Forgotten { .. }) => {
                            return Err(ClientError::Protocol { node, what: "this has no number" });
                        }
                        Ok(Checked::Answer(response)) => {
                            let Some(response::Body::Ends(ends)) = response.body else {
                                return Err(ClientError::Protocol {
                                    node,
                                    what: "no ends of tasks",
                                });
                            };
                            stream.note_answer();
                            (term, after) = (ends.term, ends.next);
                            if batches.send(Ok(ends)).await.is_err() || !response.more {
                                return Ok(());
                            }
                        }
                    }
                };
                stream.rearm(&mut retry);
                lost
            }
        };
        let paused = retry.pause(Target::Home(partition), node, &lost).await;
        client.or_away(paused).await?;
        client.refresh(&map).await;
    }
}

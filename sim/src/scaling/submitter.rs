//! The client of a study. It sends the chunks of a plan with a window for each node, commits, and
//! waits for the end.

use proto::wire::{ErrorCode, request, response};
use proto::{JobId, NodeId, PartitionId, Span, Time, limits, wire};
use workloads::{Chunks, Plan};

use super::SimulationOptions;
use crate::checkers::{Verdict, Violation, durable};

const COMMIT: u64 = 1 << 62;
const WATCH: u64 = COMMIT + 1;

/// The time, the target node and the request.
pub(super) type Sent = (Time, u32, Box<wire::Request>);

#[derive(Debug)]
pub(super) struct Submitter<'p> {
    chunks: Chunks<'p>,
    /// A chunk for a node with a full window.
    held: Option<(u32, wire::Chunk)>,
    all_sent: bool,
    commit: Option<wire::JobCommit>,
    job: JobId,
    job_home: u32,
    owners: Vec<u32>,
    /// Unanswered chunks by node, and the target node of each request.
    windows: Vec<usize>,
    asked: Vec<u32>,
    unanswered: u64,
    task_cost_ns: f64,
    /// The client prepares sent chunks until `free_at`. `wakes_at` is the time at which it
    /// continues.
    free_at: Time,
    wakes_at: Option<Time>,
    pub(super) accepted: Option<Time>,
    pub(super) ended: Option<Time>,
    pub(super) told: wire::JobState,
}

impl<'p> Submitter<'p> {
    pub(super) fn new(
        plan: &'p Plan<'_>,
        name: &str,
        map: &wire::ClusterMap,
        now: Time,
        options: &SimulationOptions,
    ) -> Self {
        let owners: Vec<u32> = map.partitions.iter().map(|entry| entry.replicas[0]).collect();
        let PartitionId(job_partition) = kvs::job_partition(plan.job(), owners.len() as u32);
        let real_data = options.real_data;
        let settings = wire::JobSettings { real_data, ..wire::JobSettings::default() };
        Self {
            chunks: plan.chunks(),
            held: None,
            all_sent: false,
            commit: Some(plan.commit(name, now.0, settings)),
            job: plan.job(),
            job_home: owners[job_partition as usize],
            owners,
            windows: vec![0; map.members.len()],
            asked: Vec::new(),
            unanswered: 0,
            task_cost_ns: options.service.client_task_ns,
            free_at: now,
            wakes_at: None,
            accepted: None,
            ended: None,
            told: wire::JobState::default(),
        }
    }

    /// The time at which it will prepare further chunks. Each time is returned once.
    pub(super) fn wakes_at(&mut self, now: Time) -> Option<Time> {
        if self.all_sent || self.free_at <= now || self.wakes_at == Some(self.free_at) {
            return None;
        }
        self.wakes_at = Some(self.free_at);
        self.wakes_at
    }

    /// Sends chunks within the windows. A chunk is created just before it is sent: all of them
    /// together would take more memory than the cluster.
    pub(super) fn pump(&mut self, now: Time, sent: &mut Vec<Sent>) {
        while !self.all_sent && self.free_at <= now {
            let next = self.held.take().or_else(|| {
                let chunk = self.chunks.next()?;
                Some((self.owners[chunk.partition as usize], chunk))
            });
            let Some((node, chunk)) = next else {
                self.all_sent = true;
                break;
            };
            if self.windows[node as usize] == limits::CHUNKS_IN_FLIGHT_MAX {
                self.held = Some((node, chunk));
                return;
            }
            self.windows[node as usize] += 1;
            self.unanswered += 1;
            let cost_ns = chunk.tasks.len() as f64 * self.task_cost_ns;
            self.free_at = self.free_at.max(now) + Span(cost_ns as u64);
            self.asked.push(node);
            let id = self.asked.len() as u64;
            let body = Some(request::Body::Submit(chunk));
            sent.push((self.free_at, node, Box::new(wire::Request { id, body })));
        }
        if self.all_sent
            && self.unanswered == 0
            && let Some(commit) = self.commit.take()
        {
            let body = Some(request::Body::Commit(commit));
            let at = self.free_at.max(now);
            sent.push((at, self.job_home, Box::new(wire::Request { id: COMMIT, body })));
        }
    }

    /// The node restarted: a client that watches its job there sends the request again.
    pub(super) fn watch_again(&self, now: Time, node: u32, sent: &mut Vec<Sent>) {
        if node == self.job_home && self.accepted.is_some() && self.ended.is_none() {
            sent.push((now, self.job_home, self.watch()));
        }
    }

    pub(super) fn job_home(&self) -> NodeId {
        NodeId(self.job_home)
    }

    fn watch(&self) -> Box<wire::Request> {
        let body =
            Some(request::Body::WatchJob(wire::JobQuery { job: self.job.0, ..Default::default() }));
        Box::new(wire::Request { id: WATCH, body })
    }

    pub(super) fn on_response(
        &mut self,
        now: Time,
        response: wire::Response,
        sent: &mut Vec<Sent>,
    ) -> Verdict {
        if let Some(error) = &response.error
            && error.code != ErrorCode::None as i32
        {
            let text = format!("request {} was refused: {}", response.id, error.text);
            return Err(Violation::new("durable", text));
        }
        match (response.id, response.body) {
            (COMMIT, Some(response::Body::Accepted(_))) => {
                self.accepted = Some(now);
                sent.push((now, self.job_home, self.watch()));
            }
            (WATCH, Some(response::Body::Job(state))) => {
                if durable::is_over(&state) {
                    self.ended = Some(now);
                } else if !response.more {
                    sent.push((now, self.job_home, self.watch()));
                }
                self.told = state;
            }
            (id, Some(response::Body::Accepted(_))) => {
                let node = self.asked[id as usize - 1];
                self.windows[node as usize] -= 1;
                self.unanswered -= 1;
                self.pump(now, sent);
            }
            (id, body) => {
                let text = format!("request {id} was answered {body:?}");
                return Err(Violation::new("durable", text));
            }
        }
        Ok(())
    }
}

//! Clients of open jobs. Each opens its job, adds chunks at its pace, releases outputs once all
//! their readers are stored, and closes the job.

use std::collections::BTreeMap;

use proto::wire::open_request::What;
use proto::wire::{Openness, request};
use proto::{JobId, LocalId, PartitionId, Span, wire};

use super::{Ask, Death, JobClient, Stage};
use crate::faults::event_queue::{ExternalClient, SimEvent};
use crate::faults::kinds::silence::{DETACHED_FOR, SIGN_INTERVAL, SignsEnd, SilencePlan};
use crate::faults::world::World;
use crate::state::expected::SubmissionStage;

/// The maximum duration of all pauses of one client.
const PAUSES_MAX: Span = Span::from_secs(4);

/// The behavior of a client that adds tasks while its job runs.
#[derive(Clone, Debug)]
pub struct OpenPlan {
    /// The pause before each further chunk.
    pub pace: Span,
    /// The share of stored chunks after which it releases outputs.
    pub releases_permille: u64,
    /// Present if it sends life signs.
    pub silence: Option<SilencePlan>,
}

impl OpenPlan {
    /// All pauses together are bounded, however many chunks there are.
    pub(super) fn bounded(self, chunks: usize) -> Self {
        let most = Span(PAUSES_MAX.0 / chunks.max(1) as u64);
        Self { pace: self.pace.min(most), ..self }
    }

    /// A job that its client leaves open would never end. So another client goes on.
    pub(super) fn survivable(death: Death) -> Death {
        match death {
            Death::Never => Death::Never,
            Death::AfterChunks(_) | Death::AtCommit | Death::Watching => Death::Watching,
        }
    }
}

/// The chunks of a job as a client of an open job sends them: all edges are at the children.
pub(super) fn open_chunks(chunks: Vec<wire::Chunk>) -> Vec<wire::Chunk> {
    let mut outputs: BTreeMap<(u64, u32), u32> = BTreeMap::new();
    let mut parents: BTreeMap<(u32, u64), BTreeMap<u32, u64>> = BTreeMap::new();
    for chunk in &chunks {
        for list in &chunk.children {
            for ((&child, &slot), &output) in list.child.iter().zip(&list.slot).zip(&list.output) {
                outputs.insert((child, slot), output);
            }
        }
        for list in &chunk.parents {
            let of_child = parents.entry((chunk.partition, list.index)).or_default();
            of_child.extend((list.first_slot..).zip(list.parent.iter().copied()));
        }
    }
    let open = |chunk: wire::Chunk| {
        let indices = chunk.first..chunk.first + chunk.tasks.len() as u64;
        let lists = indices.filter_map(|index| {
            let by_slot = parents.get(&(chunk.partition, index))?;
            let child = LocalId::new(PartitionId(chunk.partition), index).0;
            let output = |slot: &u32| outputs.get(&(child, *slot)).copied().unwrap_or(0);
            Some(wire::Parents {
                index,
                first_slot: 0,
                parent: by_slot.values().copied().collect(),
                output: by_slot.keys().map(output).collect(),
            })
        });
        let parents = lists.collect();
        wire::Chunk { open: true, children: Vec::new(), parents, ..chunk }
    };
    let mut chunks: Vec<_> =
        chunks.into_iter().filter(|chunk| !chunk.tasks.is_empty()).map(open).collect();
    // Roughly in the order of the graph, so that many parents have ended before children come.
    chunks.sort_by_key(|chunk| chunk.tasks[0].entry);
    chunks
}

/// The commit that opens a job.
pub(super) fn opening(commit: &wire::JobCommit) -> wire::JobCommit {
    let openness = Openness::Open as i32;
    wire::JobCommit { partitions: Vec::new(), edges: 0, openness, ..commit.clone() }
}

pub(super) fn close(job: JobId) -> request::Body {
    let what = Some(What::Close(wire::CloseJob::default()));
    request::Body::Open(wire::OpenRequest { job: job.0, what })
}

pub(super) fn release(job: JobId, tasks: &[LocalId]) -> request::Body {
    let partition = tasks.first().map_or(0, |task| task.partition().0);
    let locals = tasks.iter().map(|task| task.0).collect();
    let what = Some(What::Release(wire::ReleaseOutputs { partition, locals }));
    request::Body::Open(wire::OpenRequest { job: job.0, what })
}

impl JobClient {
    /// A repeated request may arrive after the close.
    pub(super) fn is_late_of_open(&self, ask: &Ask) -> bool {
        let is_closed = matches!(self.stage, Stage::Watching | Stage::Ended | Stage::Dead);
        let is_late = match ask {
            Ask::Chunk(_) | Ask::Commit | Ask::Close | Ask::Release(_) => is_closed,
            Ask::Sign | Ask::Detach => is_closed || self.stage == Stage::Committing,
            _ => false,
        };
        self.plan.open.is_some() && is_late
    }

    /// Tasks of one partition that are stored, with all their readers.
    fn releasable(&self, at: usize) -> Vec<LocalId> {
        let mut readers_stored: BTreeMap<u64, bool> = BTreeMap::new();
        for (chunk, &stored) in self.submission.chunks.iter().zip(&self.accepted) {
            for &parent in chunk.parents.iter().flat_map(|list| &list.parent) {
                *readers_stored.entry(parent).or_insert(true) &= stored;
            }
        }
        let partition = self.submission.chunks[at].partition;
        let chunks = self.submission.chunks.iter().zip(&self.accepted);
        let stored = chunks.filter(|(chunk, stored)| **stored && chunk.partition == partition);
        let tasks = stored.flat_map(|(chunk, _)| {
            let indices = chunk.first..chunk.first + chunk.tasks.len() as u64;
            indices.map(|index| LocalId::new(PartitionId(partition), index))
        });
        tasks.filter(|task| readers_stored.get(&task.0).copied().unwrap_or(true)).collect()
    }
}

impl World {
    pub(super) fn open_wake(&mut self, index: usize) {
        let client = &mut self.clients.jobs[index];
        if client.started.is_none() {
            client.started = Some(self.now);
            self.truth(index).promise = SubmissionStage::CommitSent;
            self.ask(index, Ask::Commit);
        } else if client.next_chunk < client.accepted.len() {
            self.next_chunk(index);
        } else if client.accepted.iter().all(|stored| *stored) && !self.stops_signs(index) {
            let client = &mut self.clients.jobs[index];
            client.stage = Stage::Committing;
            let repeats = client.plan.repeats_permille;
            self.ask(index, Ask::Close);
            if self.dice.chance(repeats) {
                self.ask(index, Ask::Close);
            }
        }
    }

    /// The job is open: the first chunks are sent.
    pub(super) fn opened(&mut self, index: usize) {
        let client = &mut self.clients.jobs[index];
        if std::mem::replace(&mut client.is_open, true) {
            return;
        }
        let sends_signs = client.plan.open.as_ref().is_some_and(|open| open.silence.is_some());
        for _ in 0..client.plan.window {
            self.next_chunk(index);
        }
        if sends_signs {
            self.ask(index, Ask::Sign);
        }
    }

    /// All tasks are stored. True if the client does not close the job now.
    fn stops_signs(&mut self, index: usize) -> bool {
        let client = &mut self.clients.jobs[index];
        let silence = client.plan.open.as_mut().and_then(|open| open.silence.as_mut());
        let Some(silence) = silence else { return false };
        let cancels = silence.cancels;
        match std::mem::replace(&mut silence.end, SignsEnd::Closes) {
            SignsEnd::Closes => return false,
            SignsEnd::Detaches => {
                client.stage = Stage::Detaching;
                self.ask(index, Ask::Detach);
            }
            SignsEnd::FallsSilent => {
                client.stage = Stage::Committing;
                self.truth(index).cancelled |= cancels;
                let id = self.clients.next_request;
                self.commit_accepted(index, id);
            }
        }
        true
    }

    /// The home has heard a life sign.
    pub(super) fn sign_heard(&mut self, index: usize) {
        if self.clients.jobs[index].stage == Stage::Submitting {
            self.ask_later(index, Ask::Sign, SIGN_INTERVAL);
        }
    }

    /// The job is detached: the client closes it later.
    pub(super) fn detached(&mut self, index: usize) {
        let client = &mut self.clients.jobs[index];
        if client.stage == Stage::Detaching {
            client.stage = Stage::Submitting;
            let who = ExternalClient::Job(index);
            self.schedule(self.now + DETACHED_FOR, SimEvent::Wake { who });
        }
    }

    /// A chunk is stored, with its edges.
    pub(super) fn open_chunk_stored(&mut self, index: usize, at: usize) {
        let client = &self.clients.jobs[index];
        let Some(plan) = client.plan.open.clone() else { return };
        if self.dice.chance(plan.releases_permille) {
            let mut tasks = self.clients.jobs[index].releasable(at);
            let keep = self.dice.index(tasks.len() + 1);
            tasks.rotate_left(keep);
            tasks.truncate(tasks.len().div_ceil(2));
            if !tasks.is_empty() {
                self.ask(index, Ask::Release(tasks));
            }
        }
        let client = &self.clients.jobs[index];
        let all = client.accepted.iter().all(|stored| *stored);
        let pause = if all { client.plan.think } else { plan.pace };
        let who = ExternalClient::Job(index);
        self.schedule(self.now + pause, SimEvent::Wake { who });
    }
}

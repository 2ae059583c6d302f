//! Clients in the fault world, and the random jobs that they submit.

pub(crate) mod hot_key_client;
pub(crate) mod job_client;
pub(crate) mod kv_client;
mod query_client;
pub(crate) mod random_jobs;
pub(crate) mod stale_map_client;

use std::collections::BTreeMap;

use proto::{ClientId, JobId, Span, Time, wire};

use crate::checkers::{Verdict, linear, lists};
use crate::faults::clients::hot_key_client::HotKeyClient;
use crate::faults::clients::job_client::JobClient;
use crate::faults::clients::kv_client::{KvClient, KvWait};
use crate::faults::clients::stale_map_client::StaleMaps;
use crate::faults::event_queue::{Connection, ExternalClient};

/// The clients of a world, their connections, and what they have been told.
#[derive(Debug)]
pub(crate) struct Clients {
    jobs: Vec<JobClient>,
    kv: Vec<KvClient>,
    kv_waits: Vec<KvWait>,
    hot_keys: Vec<HotKeyClient>,
    connections: BTreeMap<ClientId, Connection>,
    links: BTreeMap<(ExternalClient, usize), ClientId>,
    next_request: u64,
    history: linear::History,
    searched: linear::Searched,
    lists: Vec<lists::List>,
    /// Until when nodes and jobs are observed, and how often.
    curious_until: Time,
    curious_pace: Span,
    node_states: BTreeMap<usize, wire::NodeState>,
    stale: StaleMaps,
    /// The stall of the job in the last answer to any client.
    stall_reported: Option<wire::Stall>,
}

impl Clients {
    pub(crate) fn new(begin: Time) -> Self {
        Self {
            jobs: Vec::new(),
            kv: Vec::new(),
            kv_waits: Vec::new(),
            hot_keys: Vec::new(),
            connections: BTreeMap::new(),
            links: BTreeMap::new(),
            next_request: 1,
            history: linear::History::default(),
            searched: linear::Searched::default(),
            lists: Vec::new(),
            curious_until: begin,
            curious_pace: Span::ZERO,
            node_states: BTreeMap::new(),
            stale: StaleMaps::default(),
            stall_reported: None,
        }
    }

    /// Whether every client of a job has its last answer.
    pub(crate) fn jobs_are_over(&self) -> bool {
        self.jobs.iter().all(JobClient::is_over)
    }
    /// Whether no client of the key-value store has more to ask.
    pub(crate) fn kv_is_over(&self) -> bool {
        self.kv.iter().all(KvClient::is_over) && self.hot_keys.iter().all(HotKeyClient::is_over)
    }
    /// The jobs of clients that still wait.
    pub(crate) fn open_jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.iter().filter(|client| !client.is_over()).map(|client| client.job)
    }
    /// Judges all answers of the key-value store.
    ///
    /// # Errors
    /// Answers that no order of the calls explains.
    pub(crate) fn judge_kv(&mut self) -> Verdict {
        for (number, list) in self.lists.iter().enumerate() {
            list.check(&format!("list-{number}"))?;
        }
        self.history.judge(&mut self.searched)
    }
    pub(crate) fn searched(&self) -> linear::Searched {
        self.searched
    }
    /// The nodes that have answered since the last observation began.
    pub(crate) fn node_states(&self) -> &BTreeMap<usize, wire::NodeState> {
        &self.node_states
    }
    pub(crate) fn stall_reported(&self) -> Option<&wire::Stall> {
        self.stall_reported.as_ref()
    }
}

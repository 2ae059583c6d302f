//! Clients with old maps, as real clients have. They know the first map. A node that does not serve
//! a partition redirects them to its home. If a request times out, they fetch the map of some node.
//!
//! A redirect by a node with the newest map leads to the right home unless the map changes again.
//! So an operation is redirected once, and once more for each change. No node may carry out a
//! request that was sent under the epoch of an already replaced home.

use std::collections::BTreeMap;

use proto::wire::open_request::What;
use proto::wire::{request, response};
use proto::{JobId, LocalId, PartitionId, wire};

use crate::checkers::{Verdict, Violation};
use crate::faults::event_queue::ExternalClient;
use crate::faults::world::World;

/// By partition: the epoch and the home.
#[derive(Debug)]
struct View {
    epoch: u64,
    homes: Vec<(u64, u32)>,
}

impl View {
    fn of(map: &wire::ClusterMap) -> Self {
        let homes = map.partitions.iter().map(|entry| (entry.epoch, entry.replicas[0]));
        Self { epoch: map.epoch, homes: homes.collect() }
    }
    /// Like `client::Client::learn`: an entry from a redirect may be newer than the fetched map.
    fn merge(&mut self, fetched: Self) {
        self.epoch = fetched.epoch;
        for (known, entry) in self.homes.iter_mut().zip(fetched.homes) {
            if entry.0 >= known.0 {
                *known = entry;
            }
        }
    }

    /// Like `client::Client::learn_of`.
    fn learn_of(&mut self, redirect: &wire::Redirect) -> bool {
        let Some(entry) = redirect.entry.as_ref().filter(|it| !it.replicas.is_empty()) else {
            return false;
        };
        let Some(known) = self.homes.get_mut(redirect.partition as usize) else { return false };
        let is_news = entry.epoch > known.0;
        if is_news {
            *known = (entry.epoch, entry.replicas[0]);
        }
        is_news
    }
}

/// The redirects of one operation so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRoute {
    partition: PartitionId,
    /// The partition's epoch when the operation began.
    epoch: u64,
    hops: u64,
}

/// An open request to the key-value store.
#[derive(Clone, Copy, Debug)]
struct Sent {
    partition: PartitionId,
    node: usize,
    epoch: u64,
    /// Another node served the partition under a later epoch when the request was sent.
    is_replaced: bool,
}

#[derive(Debug, Default)]
pub(crate) struct StaleMaps {
    views: BTreeMap<ExternalClient, View>,
    sent: BTreeMap<u64, Sent>,
    /// Redirects by nodes with the newest map.
    pub hops: u64,
    pub hops_most: u64,
}

impl World {
    fn learns(&self, who: ExternalClient) -> bool {
        self.options.clients_learn && matches!(who, ExternalClient::Job(_) | ExternalClient::Kv(_))
    }

    fn view(&mut self, who: ExternalClient) -> &mut View {
        let first = self.agreed.first_map();
        self.clients.stale.views.entry(who).or_insert_with(|| View::of(first))
    }

    /// The home that this client knows for a partition, and its epoch.
    pub(crate) fn home_known_to(
        &mut self,
        who: ExternalClient,
        partition: PartitionId,
    ) -> (usize, u64) {
        if !self.learns(who) {
            let epoch = self.map.partitions[partition.0 as usize].epoch;
            return (self.home(partition.0), epoch);
        }
        let (epoch, home) = self.view(who).homes[partition.0 as usize];
        (home as usize, epoch)
    }

    /// A request timed out: fetches the map of any running node.
    pub(crate) fn ask_for_newer_map(&mut self, who: ExternalClient) {
        if !self.learns(who) {
            return;
        }
        let machines = self.machines.iter().enumerate();
        let up: Vec<usize> = machines.filter(|(_, it)| it.is_up()).map(|(node, _)| node).collect();
        if up.is_empty() {
            return;
        }
        let told = self.dice.pick(&up);
        let map = self.machines[told].node.as_ref().map(|node| View::of(node.map()));
        let view = self.view(who);
        if let Some(newer) = map.filter(|newer| newer.epoch >= view.epoch) {
            view.merge(newer);
        }
    }

    /// A client sends a request.
    pub(crate) fn note_sent(&mut self, id: u64, node: usize, body: &request::Body) {
        let request::Body::Kv(batch) = body else { return };
        if !self.homes_move() {
            return;
        }
        let (partition, epoch) = (PartitionId(batch.partition), batch.epoch);
        let entry = &self.map.partitions[batch.partition as usize];
        let is_replaced = entry.active && entry.epoch > epoch && entry.replicas[0] as usize != node;
        self.clients.stale.sent.insert(id, Sent { partition, node, epoch, is_replaced });
    }

    /// A node sends an answer. It must not have carried out a request for a replaced home.
    pub(crate) fn note_answer(&mut self, response: &wire::Response) -> Verdict {
        let Some(sent) = self.clients.stale.sent.remove(&response.id) else { return Ok(()) };
        let is_done = matches!(response.body, Some(response::Body::Kv(_)));
        if !(is_done && sent.is_replaced) {
            return Ok(());
        }
        let Sent { partition, node, epoch, .. } = sent;
        let text = format!(
            "n{node} carries out what it was asked for under epoch {epoch} of {partition}, when \
             another one had replaced it"
        );
        Err(Violation::new("linear", text))
    }

    pub(crate) fn journey(&self, partition: PartitionId) -> RequestRoute {
        let epoch = self.map.partitions[partition.0 as usize].epoch;
        RequestRoute { partition, epoch, hops: 0 }
    }

    /// A node redirects this client. Returns true if the client repeats the request at once.
    pub(crate) fn sent_on(
        &mut self,
        who: ExternalClient,
        node: usize,
        response: &wire::Response,
        journey: Option<&mut RequestRoute>,
    ) -> bool {
        let Some(response::Body::Redirect(redirect)) = &response.body else { return false };
        if !self.learns(who) {
            return false;
        }
        let is_news = self.view(who).learn_of(redirect);
        if !is_news {
            self.ask_for_newer_map(who);
        }
        let knows_newest = redirect.map_epoch == self.map.epoch;
        let is_other = redirect.home.as_ref().is_some_and(|home| home.node as usize != node);
        let Some(journey) = journey.filter(|_| knows_newest && is_other) else { return is_news };
        journey.hops += 1;
        let changes = self.map.partitions[journey.partition.0 as usize].epoch - journey.epoch;
        self.clients.stale.hops += 1;
        self.clients.stale.hops_most = self.clients.stale.hops_most.max(journey.hops);
        if journey.hops > 1 + changes {
            let RequestRoute { partition, hops, .. } = *journey;
            let text = format!(
                "a request for {partition} was sent on {hops} times, and it changed {changes} times"
            );
            self.judge(Err(Violation::new("progress", text)));
        }
        is_news
    }

    /// The number of redirects by nodes with the newest map, and the most of one operation.
    #[must_use]
    pub fn hops(&self) -> (u64, u64) {
        (self.clients.stale.hops, self.clients.stale.hops_most)
    }
}

/// The partition that decides whether a node can answer a request.
pub(crate) fn partition_of(body: &request::Body, partitions: u32) -> Option<PartitionId> {
    let of_job = |job: u64| Some(kvs::job_partition(JobId(job), partitions));
    match body {
        request::Body::Submit(chunk) => Some(PartitionId(chunk.partition)),
        request::Body::Commit(commit) => of_job(commit.job),
        request::Body::WatchJob(query) | request::Body::Job(query) => of_job(query.job),
        request::Body::Retry(retry) => of_job(retry.job),
        request::Body::Forget(forget) => of_job(forget.job),
        request::Body::Open(open) => match &open.what {
            Some(What::Release(release)) => Some(PartitionId(release.partition)),
            _ => of_job(open.job),
        },
        request::Body::Cancel(cancel) => match cancel.locals.first() {
            Some(&local) => Some(LocalId(local).partition()),
            None => of_job(cancel.job),
        },
        request::Body::Kv(batch) => Some(PartitionId(batch.partition)),
        _ => None,
    }
}

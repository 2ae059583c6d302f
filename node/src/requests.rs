//! Requests of clients: which part of the node answers each.

use proto::wire::{ErrorCode, request, response};
use proto::{ClientId, PartitionId, Time, wire};
use scheduler::Request as SchedulerRequest;

use crate::kv;
use crate::limits::STEPS_HELD_RETRY;
use crate::node::{Node, busy, refused};

/// The part of a node that answers a request.
enum Owner {
    Scheduler(SchedulerRequest),
    Store(StoreRequest),
    Node(NodeRequest),
}

/// A request to the key-value store.
enum StoreRequest {
    Batch(wire::KvBatch),
    Batches(wire::KvBatches),
    Watch(wire::KvWatch),
}

/// A request about this node, or about the map.
enum NodeRequest {
    State(wire::NodeQuery),
    Map,
    Propose(wire::MapCommand),
}

fn owner_of(body: request::Body) -> Owner {
    use request::Body;
    match body {
        Body::Submit(chunk) => Owner::Scheduler(SchedulerRequest::Submit(chunk)),
        Body::Commit(commit) => Owner::Scheduler(SchedulerRequest::Commit(commit)),
        Body::Job(query) => Owner::Scheduler(SchedulerRequest::Job(query)),
        Body::WatchJob(query) => Owner::Scheduler(SchedulerRequest::WatchJob(query)),
        Body::Jobs(wire::JobsQuery {}) => Owner::Scheduler(SchedulerRequest::Jobs),
        Body::Tasks(query) => Owner::Scheduler(SchedulerRequest::Tasks(query)),
        Body::Explain(query) => Owner::Scheduler(SchedulerRequest::Explain(query)),
        Body::Cancel(cancel) => Owner::Scheduler(SchedulerRequest::Cancel(cancel)),
        Body::Tune(change) => Owner::Scheduler(SchedulerRequest::Tune(change)),
        Body::Retry(retry) => Owner::Scheduler(SchedulerRequest::Retry(retry)),
        Body::Forget(forget) => Owner::Scheduler(SchedulerRequest::Forget(forget)),
        Body::Open(request) => Owner::Scheduler(SchedulerRequest::Open(request)),
        Body::WatchEnds(query) => Owner::Scheduler(SchedulerRequest::WatchEnds(query)),
        Body::SetVariable(write) => Owner::Scheduler(SchedulerRequest::SetVariable(write)),
        Body::Kv(batch) => Owner::Store(StoreRequest::Batch(batch)),
        Body::KvMany(batches) => Owner::Store(StoreRequest::Batches(batches)),
        Body::WatchKey(watch) => Owner::Store(StoreRequest::Watch(watch)),
        Body::Node(query) => Owner::Node(NodeRequest::State(query)),
        Body::Map(wire::MapQuery {}) => Owner::Node(NodeRequest::Map),
        Body::Propose(command) => Owner::Node(NodeRequest::Propose(command)),
    }
}

impl Node {
    /// The values of the variables of a job that is homed here, by index.
    #[must_use]
    pub fn variables_of(&self, job: proto::JobId) -> Option<&[wire::Variable]> {
        self.scheduler.variables_of(job)
    }

    pub(crate) fn on_request(&mut self, now: Time, client: ClientId, request: wire::Request) {
        let id = request.id;
        let Some(body) = request.body else {
            let error = refused("the request is of a kind this node does not know");
            return self.answer(client, id, Err(error));
        };
        match owner_of(body) {
            Owner::Scheduler(request) => match self.not_here(&request) {
                Some(partition) => self.redirect(client, id, partition),
                None => self.scheduler.on_request(now, client, id, request, &mut self.out),
            },
            Owner::Store(request) => self.on_store_request(client, id, request),
            Owner::Node(request) => self.on_node_request(now, client, id, request),
        }
    }

    fn redirect(&mut self, client: ClientId, id: u64, partition: PartitionId) {
        let text = format!("{partition} is not served here: take the newer map and ask again");
        let code = ErrorCode::WrongEpoch as i32;
        let error = wire::Error { code, text, retry_after_ns: STEPS_HELD_RETRY.0, ticket: 0 };
        // The answer promises nothing, so it waits for nothing.
        let body = Some(response::Body::Redirect(self.redirect_for(partition)));
        let response = wire::Response { id, error: Some(error), body, ..Default::default() };
        self.immediate_replies.push((client, response));
    }

    fn on_store_request(&mut self, client: ClientId, id: u64, request: StoreRequest) {
        match request {
            StoreRequest::Batch(_) | StoreRequest::Batches(_) if self.is_overloaded() => {
                self.answer(client, id, Err(busy("too much waits for replicas of partitions")));
            }
            StoreRequest::Batch(mut batch) => {
                if self.own.mutant == Some(crate::Mutant::NumberIgnored) {
                    batch.number = None;
                }
                let result = kv::apply(&mut self.store, &batch, &mut self.writes);
                self.answer_kv(client, id, result, &[batch]);
                self.notify_watchers();
            }
            StoreRequest::Batches(many) => {
                let result = kv::apply_many(&mut self.store, &many, &mut self.writes);
                self.answer_kv(client, id, result, &many.batches);
                self.notify_watchers();
            }
            StoreRequest::Watch(watch) => {
                let partition = PartitionId(watch.partition);
                match self.watches.add(client, id, watch, &self.store) {
                    Ok(()) => self.notify_watchers(),
                    Err(error) => self.refuse(client, id, error, partition),
                }
            }
        }
    }

    fn on_node_request(&mut self, now: Time, client: ClientId, id: u64, request: NodeRequest) {
        match request {
            NodeRequest::State(query) => {
                let mut state = self.state(now);
                state.demand = query.demand.then(|| self.scheduler.demand());
                self.reply(client, id, response::Body::Node(state));
            }
            NodeRequest::Map => {
                let map = self.map.as_ref().clone();
                self.reply(client, id, response::Body::Map(map));
            }
            NodeRequest::Propose(command) => {
                let result = self.on_proposal(now, command);
                self.answer(client, id, result);
            }
        }
    }
}

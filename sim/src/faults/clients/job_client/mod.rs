//! Simulated clients. Each submits one job by chunks and commit, and watches it; requests may be
//! lost or repeated, and clients may die.

mod asks;
mod cancels;
mod deaths;
mod forgets;
mod open;
mod rounds;

use std::collections::BTreeMap;

use node::Input;
use proto::wire::{ErrorCode, request, response};
use proto::{ClientId, JobId, LocalId, Span, Time, wire};

pub use self::open::OpenPlan;
use crate::checkers::{Violation, bound, durable, one_attempt, past, progress, removal};
use crate::faults::clients::random_jobs::Submission;
use crate::faults::clients::stale_map_client::partition_of;
use crate::faults::event_queue::{Connection, ExternalClient, SimEvent};
use crate::faults::story_lines::request_line;
use crate::faults::world::World;
use crate::state::expected::{ExpectedJob, SubmissionStage};

/// The point at which a client dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    Never,
    /// After this number of accepted chunks, before the commit.
    AfterChunks(usize),
    /// Right after the client sent the commit, without an answer.
    AtCommit,
    /// After its commit was accepted. Another client then attaches by the job's id.
    Watching,
}

/// The behavior of a client.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    pub start: Span,
    /// The pause between the last accepted chunk and the commit.
    pub think: Span,
    pub window: usize,
    pub death: Death,
    /// The share of chunks and commits that are sent twice.
    pub repeats_permille: u64,
    pub cancel_after: Option<Span>,
    /// The share of accepted chunks after which the client cancels something before the commit.
    pub cancels_early_permille: u64,
    /// The number of repeated queries after the client knows the end.
    pub asks_again: u32,
    /// The number of retries of its job while some tasks are not done.
    pub retries: u32,
    /// True if the client fetches results of its running job.
    pub fetches: bool,
    /// True if the client finally has its job forgotten.
    pub forgets: bool,
    /// Present if it opens its job and adds tasks while the job runs.
    pub open: Option<OpenPlan>,
}

impl ClientPlan {
    /// A client that submits at once and waits for the end.
    #[must_use]
    pub fn simple() -> Self {
        Self {
            start: Span::ZERO,
            think: Span::from_micros(100),
            window: 16,
            death: Death::Never,
            repeats_permille: 0,
            cancel_after: None,
            cancels_early_permille: 0,
            asks_again: 0,
            retries: 0,
            fetches: false,
            forgets: false,
            open: None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Ask {
    Chunk(usize),
    /// Of an open job: opens it.
    Commit,
    Close,
    /// Of an open job.
    Sign,
    Detach,
    /// Releases the outputs of tasks in one partition.
    Release(Vec<LocalId>),
    Watch,
    Query,
    /// A query before results are fetched.
    Fetch,
    Cancel,
    /// Cancels the job before its commit.
    Forbid,
    /// Cancels some tasks of one home.
    CancelTasks(Vec<LocalId>),
    /// Retries the job as this round.
    Retry(u32),
    Forget,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Submitting,
    /// From its open job.
    Detaching,
    Committing,
    Watching,
    Ended,
    Dead,
}

#[derive(Debug)]
pub(crate) struct JobClient {
    pub job: JobId,
    submission: Submission,
    plan: ClientPlan,
    stage: Stage,
    started: Option<Time>,
    pub ended: Option<Time>,
    next_chunk: usize,
    accepted: Vec<bool>,
    /// It knows that its job is open.
    is_open: bool,
    asks: BTreeMap<u64, Ask>,
    /// The commit request that the home confirmed.
    committed_by: Option<u64>,
    /// The newest round that the client knows or requested.
    round: u32,
    /// Answers to requests before this one may still show the job.
    forgotten_before: Option<u64>,
}

impl JobClient {
    /// True if the client has finished or died. It may still send a repeated query.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ended | Stage::Dead)
    }
    pub(crate) fn makespan(&self) -> Option<Span> {
        Some(self.ended?.since(self.started?))
    }
}

impl World {
    /// Adds a client that will submit this job. Returns the client's number.
    pub fn add_job(&mut self, mut submission: Submission, mut plan: ClientPlan) -> usize {
        let job = JobId(submission.commit.job);
        let real_data = submission.commit.settings.as_ref().is_some_and(|it| it.real_data);
        if let Some(number) = self.options.variables {
            submission.commit.variables = crate::checkers::variables::declared(number);
        }
        let mut truth = ExpectedJob::new(job, &submission.chunks, real_data);
        if plan.open.is_some() {
            truth.is_open = true;
            submission.chunks = open::open_chunks(submission.chunks);
            let chunks = submission.chunks.len();
            plan.open = plan.open.map(|open| open.bounded(chunks));
            plan.death = OpenPlan::survivable(plan.death);
            let silence = plan.open.as_ref().and_then(|open| open.silence);
            if let Some(silence) = silence {
                let settings = submission.commit.settings.get_or_insert_default();
                settings.silence = Some(silence.settings());
            }
        }
        self.jobs.insert(job, truth);
        let client = self.clients.jobs.len();
        let accepted = vec![false; submission.chunks.len()];
        let at = self.now + plan.start;
        self.clients.jobs.push(JobClient {
            job,
            submission,
            plan,
            stage: Stage::Submitting,
            started: None,
            ended: None,
            next_chunk: 0,
            accepted,
            is_open: false,
            asks: BTreeMap::new(),
            committed_by: None,
            round: 0,
            forgotten_before: None,
        });
        self.schedule(at, SimEvent::Wake { who: ExternalClient::Job(client) });
        client
    }

    /// The tasks of this client's job.
    #[must_use]
    pub fn tasks_of(&self, client: usize) -> Vec<LocalId> {
        self.jobs[&self.clients.jobs[client].job].tasks.keys().copied().collect()
    }

    /// Cancels this client's whole job now.
    pub fn cancel_job(&mut self, client: usize) {
        self.truth(client).cancelled = true;
        self.ask(client, Ask::Cancel);
    }

    /// The time from the start of the submission to the client's knowledge of the end.
    #[must_use]
    pub fn makespan(&self, client: usize) -> Option<Span> {
        self.clients.jobs[client].makespan()
    }
    /// The state of the job that the client received at its end.
    #[must_use]
    pub fn told(&self, client: usize) -> Option<&wire::JobState> {
        self.jobs[&self.clients.jobs[client].job].told.as_ref()
    }

    pub(crate) fn request(&mut self, who: ExternalClient, node: usize, body: request::Body) -> u64 {
        let id = self.clients.next_request;
        self.clients.next_request += 1;
        self.note_sent(id, node, &body);
        if !self.machines[node].is_up() || self.dice.chance(self.options.client_lost_permille) {
            return id;
        }
        let life = self.machines[node].life;
        let known = self.clients.links.get(&(who, node)).copied();
        let alive = |client: &ClientId| self.clients.connections[client].life == life;
        let client = known.filter(alive).unwrap_or_else(|| {
            let client = ClientId(self.clients.connections.len() as u64 + 1);
            self.clients.connections.insert(client, Connection { who, node, life });
            self.clients.links.insert((who, node), client);
            client
        });
        let at = self.now + self.dice.span(Span::from_micros(20), Span::from_micros(200));
        let request = Box::new(wire::Request { id, body: Some(body) });
        self.schedule(at, SimEvent::Request { node, client, request });
        id
    }

    pub(crate) fn request_came(
        &mut self,
        node: usize,
        client: ClientId,
        request: Box<wire::Request>,
    ) {
        self.tell(|| format!("{client} asks n{node}: {:?}", request_line(&request)));
        let machine = &self.machines[node];
        if machine.is_up() && machine.life == self.clients.connections[&client].life {
            self.deliver(node, Input::Request { client, request });
        }
    }

    pub(crate) fn reply(&mut self, node: usize, client: ClientId, response: Box<wire::Response>) {
        self.tell(|| format!("n{node} answers {client}: {:?}", response));
        self.note_pause(node, client, &response);
        let who = self.clients.connections.get(&client).map(|connection| connection.who);
        if who.is_some_and(|who| !self.is_still_home(node, who, &response)) {
            let text = format!("n{node} answers a read, and another node serves it: {response:?}");
            self.judge(Err(Violation::new("linear", text)));
        }
        let verdict = self.note_answer(&response);
        self.judge(verdict);
        if self.dice.chance(self.options.client_lost_permille) {
            return;
        }
        let at = self.now + self.dice.span(Span::from_micros(20), Span::from_micros(200));
        self.schedule(at, SimEvent::Response { client, response });
    }

    pub(crate) fn response_came(&mut self, client: ClientId, response: wire::Response) {
        let Some(connection) = self.clients.connections.get(&client).copied() else { return };
        match connection.who {
            ExternalClient::Job(index) => {
                self.sent_on(connection.who, connection.node, &response, None);
                self.job_response(index, response);
            }
            ExternalClient::Kv(index) => self.kv_response(index, connection.node, response),
            ExternalClient::HotKeyClient(index) => self.hot_key_response(index, response),
            ExternalClient::Observer => {
                if let Some(response::Body::Node(state)) = response.body {
                    self.clients.node_states.insert(connection.node, state);
                }
            }
        }
    }

    pub(crate) fn wake(&mut self, who: ExternalClient) {
        match who {
            ExternalClient::Job(index) => self.job_wake(index),
            ExternalClient::Kv(index) => self.kv_wake(index),
            ExternalClient::HotKeyClient(index) => self.hot_key_wake(index),
            ExternalClient::Observer => self.send_random_query(),
        }
    }

    pub(crate) fn timed_out(&mut self, who: ExternalClient, request: u64) {
        match who {
            ExternalClient::Job(index) => {
                if let Some(ask) = self.clients.jobs[index].asks.remove(&request) {
                    self.ask_for_newer_map(who);
                    self.ask(index, ask);
                }
            }
            ExternalClient::Kv(index) => self.kv_timed_out(index, request),
            ExternalClient::HotKeyClient(index) => self.hot_key_timed_out(index, request),
            ExternalClient::Observer => {}
        }
    }

    /// The node that keeps the job's own record.
    #[must_use]
    pub fn job_home(&self, job: JobId) -> usize {
        let partition = kvs::job_partition(job, self.map.partitions.len() as u32);
        self.home(partition.0)
    }

    fn ask(&mut self, index: usize, ask: Ask) {
        let client = &self.clients.jobs[index];
        let faultless = self.options.faultless;
        let body = client.body_of(&ask, index, self.now);
        let partition = partition_of(&body, self.map.partitions.len() as u32);
        let partition = partition.expect("each of these is about one");
        let (node, _) = self.home_known_to(ExternalClient::Job(index), partition);
        let id = self.request(ExternalClient::Job(index), node, body);
        let watches = ask == Ask::Watch;
        self.clients.jobs[index].asks.insert(id, ask);
        // Without faults no message is lost, and an answer that needs a second request is a bug.
        let patience = match (faultless, watches) {
            (true, _) => Span::from_secs(100_000),
            (false, true) => self.dice.span(Span::from_millis(300), Span::from_secs(3)),
            (false, false) => self.dice.span(Span::from_millis(20), Span::from_millis(600)),
        };
        let what = SimEvent::Timeout { who: ExternalClient::Job(index), request: id };
        self.schedule(self.now + patience, what);
    }

    fn ask_later(&mut self, index: usize, ask: Ask, pause: Span) {
        let id = self.clients.next_request;
        self.clients.next_request += 1;
        self.clients.jobs[index].asks.insert(id, ask);
        let what = SimEvent::Timeout { who: ExternalClient::Job(index), request: id };
        self.schedule(self.now + pause, what);
    }

    fn truth(&mut self, index: usize) -> &mut ExpectedJob {
        let job = self.clients.jobs[index].job;
        self.jobs.get_mut(&job).expect("every client has a job")
    }

    fn job_wake(&mut self, index: usize) {
        let client = &mut self.clients.jobs[index];
        match client.stage {
            Stage::Submitting if client.plan.open.is_some() => self.open_wake(index),
            Stage::Submitting if client.started.is_none() => {
                client.started = Some(self.now);
                let window = client.plan.window;
                if client.plan.death == Death::AfterChunks(0) {
                    return self.client_dies(index);
                }
                for _ in 0..window {
                    self.next_chunk(index);
                }
            }
            Stage::Submitting => {
                client.stage = Stage::Committing;
                let repeats = client.plan.repeats_permille;
                let dies = client.plan.death == Death::AtCommit;
                let commit = client.submission.commit.clone();
                self.note_commit(&commit);
                self.truth(index).promise = SubmissionStage::CommitSent;
                self.ask(index, Ask::Commit);
                if self.dice.chance(repeats) {
                    self.ask(index, Ask::Commit);
                }
                if dies {
                    self.client_dies(index);
                }
            }
            Stage::Detaching | Stage::Committing => {}
            Stage::Watching => {
                let cancels = client.plan.cancel_after.take().is_some();
                if cancels {
                    self.cancel(index);
                } else if !self.clients.jobs[index].asks.values().any(|ask| *ask == Ask::Watch) {
                    self.ask(index, Ask::Watch);
                }
            }
            Stage::Ended => self.look_back(index),
            Stage::Dead => {}
        }
    }

    fn next_chunk(&mut self, index: usize) {
        let client = &mut self.clients.jobs[index];
        let at = client.next_chunk;
        if client.stage != Stage::Submitting || at == client.accepted.len() {
            return;
        }
        client.next_chunk += 1;
        let repeats = client.plan.repeats_permille;
        self.ask(index, Ask::Chunk(at));
        if self.dice.chance(repeats) {
            self.ask(index, Ask::Chunk(at));
        }
    }

    fn job_response(&mut self, index: usize, response: wire::Response) {
        let id = response.id;
        let Some(ask) = self.clients.jobs[index].asks.get(&id).cloned() else { return };
        if !response.more {
            self.clients.jobs[index].asks.remove(&id);
        }
        if let Some(error) = &response.error
            && error.code != ErrorCode::None as i32
        {
            return self.job_error(index, id, ask, error);
        }
        match (ask, response.body) {
            (Ask::Chunk(at), Some(response::Body::Accepted(_))) => self.chunk_accepted(index, at),
            (Ask::Commit, Some(response::Body::Accepted(_)))
                if self.clients.jobs[index].plan.open.is_some() =>
            {
                self.opened(index);
            }
            (Ask::Commit | Ask::Close, Some(response::Body::Accepted(_))) => {
                self.commit_accepted(index, id);
            }
            (Ask::Release(_), Some(response::Body::Accepted(_))) => {}
            (Ask::Sign, Some(response::Body::Accepted(_))) => self.sign_heard(index),
            (Ask::Detach, Some(response::Body::Accepted(_))) => self.detached(index),
            (Ask::Cancel, Some(response::Body::Cancelled(_))) => {}
            (Ask::Forget, Some(response::Body::Accepted(_))) => self.forgotten(index),
            (Ask::Forbid, Some(response::Body::Cancelled(_))) => self.forbidden(index),
            (Ask::CancelTasks(named), Some(response::Body::Cancelled(answer))) => {
                let past = self.is_of_the_past(index, &Ask::CancelTasks(named.clone()));
                let verdict = removal::on_answered(self.truth(index), &named, &answer, past);
                self.judge(verdict);
            }
            // An answer may overtake answers about the previous round.
            (Ask::Watch | Ask::Query | Ask::Fetch, Some(response::Body::Job(state)))
                if state.round() < self.clients.jobs[index].round => {}
            (Ask::Retry(round), Some(response::Body::Job(state))) => {
                self.retried(index, round, &state);
            }
            (ask @ (Ask::Watch | Ask::Query | Ask::Fetch), Some(response::Body::Job(state))) => {
                let (asked_after, next) =
                    (self.is_asked_after(index, id), self.clients.next_request);
                let verdict = past::on_reported(self.truth(index), &state, (id, next), asked_after);
                self.judge(verdict);
                self.job_update(index, &state, &ask, response.more);
            }
            (ask, body) => {
                let text = format!("{:?} was answered {body:?}", ask);
                self.judge(Err(Violation::new("durable", text)));
            }
        }
    }

    fn job_error(&mut self, index: usize, id: u64, ask: Ask, error: &wire::Error) {
        let job = self.clients.jobs[index].job;
        match error.code() {
            ErrorCode::Busy => {
                self.ask_later(index, ask, Span(error.retry_after_ns.max(1_000_000)));
            }
            // The partition has moved or is about to move.
            ErrorCode::WrongEpoch if self.homes_move() => {
                self.ask_later(index, ask, Span::from_millis(20));
            }
            ErrorCode::Refused | ErrorCode::Unknown if self.is_of_the_past(index, &ask) => {}
            ErrorCode::Refused | ErrorCode::Unknown
                if self.clients.jobs[index].is_late_of_open(&ask) => {}
            // A request from before the commit may be answered after it.
            ErrorCode::Unknown if self.clients.jobs[index].committed_by.is_some_and(|c| id < c) => {
            }
            ErrorCode::Unknown => {
                let verdict = durable::on_unknown(&self.jobs[&job]);
                self.judge(verdict);
            }
            ErrorCode::Refused if ask == Ask::Commit && self.jobs[&job].forbidden => {
                self.clients.jobs[index].stage = Stage::Dead;
                let truth = self.truth(index);
                (truth.promise, truth.abandoned) = (SubmissionStage::Staged, true);
            }
            // An earlier request of this client retried that round already.
            ErrorCode::Refused if self.is_old_retry(index, &ask) => {}
            code => {
                let text = format!("{job}: {ask:?} was refused with {code:?}: {}", error.text);
                self.judge(Err(Violation::new("durable", text)));
            }
        }
    }

    fn chunk_accepted(&mut self, index: usize, at: usize) {
        let client = &mut self.clients.jobs[index];
        if std::mem::replace(&mut client.accepted[at], true) {
            return;
        }
        if client.plan.open.is_some() {
            return self.open_chunk_stored(index, at);
        }
        let accepted = client.accepted.iter().filter(|done| **done).count();
        let all = client.accepted.len();
        if client.plan.death == Death::AfterChunks(accepted) {
            return self.client_dies(index);
        }
        if self.dice.chance(client.plan.cancels_early_permille) {
            self.cancel(index);
        }
        let client = &mut self.clients.jobs[index];
        if accepted == all {
            let at = self.now + client.plan.think;
            self.schedule(at, SimEvent::Wake { who: ExternalClient::Job(index) });
        } else {
            self.next_chunk(index);
        }
    }

    fn commit_accepted(&mut self, index: usize, id: u64) {
        let client = &mut self.clients.jobs[index];
        if client.stage != Stage::Committing {
            return;
        }
        client.stage = Stage::Watching;
        client.committed_by = Some(id);
        let cancel = client.plan.cancel_after;
        let dies = client.plan.death == Death::Watching;
        self.truth(index).promise = SubmissionStage::Accepted;
        self.ask(index, Ask::Watch);
        if self.clients.jobs[index].plan.fetches {
            self.truth(index).fetched = true;
            self.ask(index, Ask::Fetch);
        }
        if let Some(after) = cancel {
            self.schedule(self.now + after, SimEvent::Wake { who: ExternalClient::Job(index) });
        }
        if dies {
            self.client_dies(index);
        }
    }

    fn job_update(&mut self, index: usize, state: &wire::JobState, ask: &Ask, more: bool) {
        self.clients.stall_reported.clone_from(&state.stall);
        let verdict = durable::on_reported(self.truth(index), state);
        self.judge(verdict);
        if durable::is_over(state) {
            let verdict = one_attempt::on_ended(&self.jobs[&JobId(state.job)], &self.bytes);
            self.judge(verdict);
        }
        if !durable::is_over(state) {
            // A poll, or a watch that ended before the job: watch again.
            if !more && self.clients.jobs[index].stage == Stage::Watching && *ask == Ask::Watch {
                self.ask(index, Ask::Watch);
            }
            return;
        }
        let client = &mut self.clients.jobs[index];
        if client.ended.is_none() {
            client.ended = Some(self.now);
            client.stage = Stage::Ended;
            client.asks.retain(|_, ask| *ask != Ask::Watch);
            let makespan = client.makespan().expect("it started and ended");
            let (job, again) = (client.job, client.plan.asks_again);
            let slots = self.machines.iter().map(|machine| u64::from(machine.slots)).sum();
            let truth = &self.jobs[&job];
            let verdict = progress::on_end(truth)
                .and_then(|()| self.check_skipped_job(job))
                .and_then(|()| removal::on_end(truth))
                .and_then(|()| bound::on_end(truth, makespan, slots));
            self.tell(|| format!("client {index} is told the end of {job}"));
            self.judge(verdict);
            if self.violation().is_none() && self.retry(index, state) {
                return;
            }
            for _ in 0..again {
                let after = self.dice.span(Span::ZERO, Span::from_secs(2));
                self.schedule(self.now + after, SimEvent::Wake { who: ExternalClient::Job(index) });
            }
            self.forgets_later(index);
        }
    }

    /// Queries all ended jobs once more.
    pub(crate) fn ask_again(&mut self) {
        for index in 0..self.clients.jobs.len() {
            if self.clients.jobs[index].stage == Stage::Ended {
                self.ask(index, Ask::Query);
            }
        }
    }
}

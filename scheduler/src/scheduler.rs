//! The scheduler of one node: a home for tasks (ledger, jobs) and a holder of ready tasks (queues,
//! slots, stealing). This file has the state and the dispatch; each concern has a file of its own.
//!
//! The methods of [`Scheduler`] are of five kinds, called in this order:
//!
//! 1. Recovery, once: [`Scheduler::new`], then [`Scheduler::load`] and [`Scheduler::load_job`] for
//!    each stored record, then [`Scheduler::resume`].
//! 2. Inputs, any number: `on_message`, `on_peer_incarnation`, `on_request`, `on_finished`,
//!    `on_fetched` and the other `on_` methods. Where homes move also `set_homes`, `on_peer_gone`,
//!    `reroute`; and for each partition `adopt` and `serve`, or `hand_over_partitions` and
//!    `give_up`.
//! 3. Decisions, in each step: [`Scheduler::settle`] until no message to this node itself is left,
//!    then [`Scheduler::act`] once; both again if that made such a message.
//! 4. Addressing: `address` before messages are taken out of [`Out`].
//! 5. Questions, at any time: [`Scheduler::deadline`], `node_state`, `census` and others. They
//!    change nothing.
//!
//! All results are noted in [`Out`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proto::event::Reason;
use proto::limits::{COUNTS_INTERVAL, COUNTS_NODES, STEP_EDGES_MAX, STEP_TASKS_MAX};
use proto::wire::message::Body;
use proto::{Event, Incarnation, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::holder::classes::Classes;
use crate::holder::execution::Running;
use crate::holder::job_tallies::JobTallies;
use crate::holder::matching::Reservation;
use crate::holder::queues::Queues;
use crate::holder::recent_completions::RecentCompletions;
use crate::holder::remote_tasks::RemoteTasks;
use crate::holder::slots::Slots;
use crate::holder::staging::Staged;
use crate::holder::start_permission::StartRequests;
use crate::holder::task::{BundleBuilder, Work};
use crate::holder::turns::TurnsOfAttempts;
use crate::home::death_evidence::DeathEvidence;
use crate::home::failover::Loading;
use crate::home::jobs::Jobs;
use crate::home::ledger::Ledger;
use crate::home::open::OpenJobs;
use crate::home::reconcile::Reconciler;
use crate::objects::data::Data;
use crate::objects::drain::Drain;
use crate::output::Out;
use crate::policy::{Decision, Estimates, Loads, Monitor};
use crate::routing::partition_owners::Homes;
use crate::routing::undelivered::Undelivered;
use crate::stealing::hints::Hints;
use crate::stealing::thief::{Move, Thief};
use crate::stealing::victim::UnackedGrant;
use crate::{LedgerRecord, Mutant, RecordError, Tuning};

/// The options of a scheduler at its start.
#[derive(Clone, Debug)]
pub struct Options {
    pub me: NodeId,
    pub incarnation: Incarnation,
    pub slots: u32,
    /// The resources of the node, with as many cpus as slots; `None`: cpus alone.
    pub offer: Option<Arc<resources::Offer>>,
    pub tuning: Tuning,
    pub seed: u64,
    /// The previous incarnation of this node, and how it ended.
    pub former: (Incarnation, wire::LifeEnd),
    pub mutant: Option<Mutant>,
}

/// How long a home collects counts before it reports them.
pub(crate) fn report_interval(homes: &Homes) -> Span {
    Span(COUNTS_INTERVAL.0 * homes.nodes().div_ceil(COUNTS_NODES).max(1) as u64)
}

/// Counters since the start of this incarnation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub steals_tried: u64,
    pub steals_won: u64,
    pub steals_tasks: u64,
    pub pushes: u64,
    /// Tasks that the monitor of FLDS moved to the shared queue.
    pub shifted: u64,
}

type FixedState = foldhash::fast::FixedState;
/// Never iterated: the order has no meaning.
pub(crate) type Peers = hashbrown::HashMap<NodeId, Incarnation, FixedState>;

#[derive(Debug)]
pub struct Scheduler {
    pub(crate) options: Options,
    pub(crate) homes: Homes,
    pub(crate) ledger: Ledger,
    pub(crate) jobs: Jobs,
    pub(crate) estimates: Estimates,
    pub(crate) monitor: Monitor,
    pub(crate) loads: Loads,
    /// Boxed: only thieves draw random numbers.
    pub(crate) rng: Box<ChaCha8Rng>,
    pub(crate) stats: Stats,
    /// LReadyQ and SReadyQ of the paper.
    pub(crate) local: Queues,
    pub(crate) shared: Queues,
    /// The requests of tasks here, prepared.
    pub(crate) classes: Classes,
    /// Boxed, because most nodes never have one.
    pub(crate) reservation: Option<Box<Reservation>>,
    /// Remote tasks that this node holds.
    pub(crate) remote_tasks: RemoteTasks,
    /// Boxed: most trees of a node are empty or nearly so, and keep room for more entries.
    pub(crate) running: BTreeMap<TaskId, Box<Running>>,
    pub(crate) slots: Slots,
    /// Tasks with inputs that are being fetched, and tasks that wait for a slot with all inputs
    /// here.
    pub(crate) staging: BTreeMap<TaskId, Box<Staged>>,
    pub(crate) awaiting_slot: VecDeque<TaskId>,
    /// Tasks that wait until their homes know that they start.
    pub(crate) start_requests: StartRequests,
    pub(crate) death_evidence: DeathEvidence,
    /// No more tasks start here.
    pub(crate) stopping: bool,
    pub(crate) data: Data,
    pub(crate) thief: Thief,
    pub(crate) hints: Hints,
    pub(crate) unacked_grants: BTreeMap<(NodeId, u64), UnackedGrant>,
    /// The last answered steal of each thief: a repeated request gets no second grant.
    pub(crate) granted: BTreeMap<NodeId, u64>,
    /// The number of unanswered reports about each steal, by victim and number; and the reports.
    pub(crate) pending_moves: BTreeMap<(NodeId, u64), usize>,
    pub(crate) moves: BTreeMap<u64, Move>,
    /// The latest incarnation known of each peer.
    pub(crate) peers: Peers,
    pub(crate) pushes: BTreeMap<NodeId, BundleBuilder>,
    /// Tasks that wait for a node that can run them.
    pub(crate) awaiting_wide_node: Vec<TaskId>,
    /// Messages for homes that move.
    pub(crate) undelivered: Undelivered,
    /// Partitions that this node is about to serve. Boxed, since the size of a node is bounded.
    #[expect(clippy::box_collection, reason = "most nodes never load any: it takes less room")]
    pub(crate) loading: Option<Box<BTreeMap<PartitionId, Loading>>>,
    pub(crate) reconciler: Reconciler,
    /// Present while this node leaves the cluster.
    pub(crate) drain: Option<Box<Drain>>,
    pub(crate) recent_completions: RecentCompletions,
    pub(crate) job_tallies: Box<JobTallies>,
    /// The turns of attempts here, answered or not. Boxed, because most nodes never have any.
    pub(crate) attempt_turns: Option<Box<TurnsOfAttempts>>,
    /// Requests about open jobs that are not answered yet. Boxed as well.
    pub(crate) open_jobs: Option<Box<OpenJobs>>,
}

impl Scheduler {
    #[must_use]
    pub fn new(options: Options, homes: Homes) -> Self {
        let seed = options.seed ^ u64::from(options.incarnation.0) << 32 ^ u64::from(options.me.0);
        let mut ledger = Ledger::new(options.me, options.incarnation, options.mutant);
        ledger.homes_move = homes.moves();
        let mut scheduler = Self {
            ledger,
            jobs: Jobs::new(options.mutant),
            estimates: Estimates::default(),
            monitor: Monitor::new(&options.tuning),
            loads: Loads::default(),
            rng: Box::new(ChaCha8Rng::seed_from_u64(seed)),
            stats: Stats::default(),
            local: Queues::new(options.me.0.into()),
            shared: Queues::new(options.me.0.into()),
            classes: Classes::default(),
            reservation: None,
            remote_tasks: RemoteTasks::default(),
            running: BTreeMap::new(),
            slots: Slots::new(options.slots, options.offer.as_deref(), options.mutant),
            staging: BTreeMap::new(),
            awaiting_slot: VecDeque::new(),
            start_requests: StartRequests::default(),
            death_evidence: DeathEvidence::default(),
            stopping: false,
            data: Data::new(options.mutant),
            thief: Thief::new(options.tuning.steal_interval_start),
            hints: Hints::default(),
            unacked_grants: BTreeMap::new(),
            granted: BTreeMap::new(),
            pending_moves: BTreeMap::new(),
            moves: BTreeMap::new(),
            peers: Peers::with_hasher(FixedState::with_seed(0)),
            pushes: BTreeMap::new(),
            awaiting_wide_node: Vec::new(),
            undelivered: Undelivered::default(),
            loading: None,
            reconciler: Reconciler::default(),
            drain: None,
            recent_completions: RecentCompletions::default(),
            job_tallies: Box::default(),
            attempt_turns: None,
            open_jobs: None,
            homes,
            options,
        };
        scheduler.ledger.report_interval = report_interval(&scheduler.homes);
        scheduler
    }

    /// Puts the scheduler into the state after a long time without work: it looks for work only
    /// after a sign of some.
    pub fn rest(&mut self) {
        self.thief.rest();
    }

    /// Loads one stored record of the ledger. Records come in the order of keys.
    pub fn load(
        &mut self,
        now: Time,
        partition: PartitionId,
        job: JobId,
        record: LedgerRecord,
    ) -> Result<(), RecordError> {
        self.ledger.load(now, partition, job, record)
    }
    pub fn load_job(&mut self, state: wire::JobState) {
        self.jobs.load(state);
    }
    /// Resumes all work that the loaded records imply; called after the last record.
    pub fn resume(&mut self, now: Time, out: &mut Out) {
        self.ledger.resume(now, out);
        self.ledger.ask_for_rounds(|_| true, &self.homes, out);
        self.job_tallies.started(now);
        self.jobs.resume(now, &self.homes, out);
    }

    #[must_use]
    pub fn homes(&self) -> &Homes {
        &self.homes
    }

    /// A peer's message, in order and once per incarnation of both sides (except for best-effort
    /// ones). Returns whether it may call for decisions, as all do except the probes, loads and
    /// hints of thieves.
    pub fn on_message(&mut self, now: Time, from: NodeId, body: Body, out: &mut Out) -> bool {
        match body {
            Body::StealProbe(probe) => {
                self.on_steal_probe(from, &probe, out);
                false
            }
            Body::StealLoad(load) => self.on_steal_load(now, from, &load, out),
            Body::StealHint(hint) => self.on_steal_hint(now, from, &hint, out),
            body => {
                self.on_weighty_message(now, from, body, out);
                true
            }
        }
    }

    fn on_weighty_message(&mut self, now: Time, from: NodeId, body: Body, out: &mut Out) {
        let Some(body) = self.keep_owned_bounce_rest(from, body, out) else { return };
        match body {
            Body::StealProbe(_) | Body::StealLoad(_) | Body::StealHint(_) => {
                unreachable!("these are steal probes")
            }
            Body::Push(push) => self.on_push(from, push, out),
            Body::StealRequest(request) => self.on_steal_request(from, &request, out),
            Body::StealGrant(grant) => self.on_steal_grant(now, from, grant, out),
            Body::StealDone(done) => self.on_steal_done(from, &done),
            Body::TasksMoved(moved) => self.on_tasks_moved(from, &moved, out),
            Body::TasksMovedAck(reply) => self.on_tasks_moved_ack(now, from, &reply, out),
            Body::Finished(finished) => {
                for mut completion in finished.completions {
                    self.complete(now, from, &mut completion, out);
                }
            }
            Body::Turn(turn) => self.on_turn_of(now, from, *turn, out),
            Body::TurnReply(reply) => self.on_turn_reply(now, reply, out),
            Body::AwaitQuery(query) => self.on_await_query(query, out),
            Body::AwaitReply(reply) => self.on_await_reply(&reply),
            Body::ChunksBorn(born) => self.on_chunks_born(from, &born),
            Body::RevokeAttempts(stale) => self.on_revoke_attempts(from, &stale.tasks, out),
            Body::Credits(credits) => self.on_credits(now, credits, out),
            Body::CreditQuery(query) => {
                let homes = &self.homes;
                let is_home = |child: LocalId| homes.active_owner(child.partition()) == Some(from);
                self.ledger.on_credit_query(from, &query, is_home, out);
                self.ledger.on_asks(now, from, &query.requests, &self.homes, out);
            }
            Body::Recall(recall) => self.on_recall(now, &recall, out),
            Body::Recalled(answer) => self.on_recalled(now, answer, out),
            Body::Visible(visible) => self.on_visible(now, &visible, out),
            Body::Join(join) => self.jobs.on_join(from, join, &self.homes, out),
            Body::JoinRefused(refusal) => self.on_join_refused(&refusal, out),
            Body::LateEdges(late) => self.on_late_edges(now, late, out),
            Body::LateEdgesKept(kept) => self.on_late_edges_kept(&kept, out),
            Body::JobCounts(counts) => self.jobs.on_job_counts(now, from, counts, &self.homes, out),
            Body::HeldTasksQuery(holding) => self.on_held_tasks_query(from, &holding.tasks, out),
            Body::TasksNotHeld(not_held) => self.on_tasks_not_held(from, &not_held.tasks, out),
            Body::Cancel(cancel) => {
                self.on_cancel(now, &cancel, out);
            }
            Body::JobEnd(end) => self.on_job_end(from, end, out),
            // Links have joined fragments before they come here. Messages about replicas of
            // partitions do not come to the scheduler.
            Body::Fragment(_)
            | Body::Replicate(_)
            | Body::Replicated(_)
            | Body::ReplicaQueries(_)
            | Body::ReplicaAnswers(_)
            | Body::LeaseRequest(_)
            | Body::LeaseGrant(_)
            | Body::SlowProbe(_)
            | Body::SlowProbeReply(_) => {}
            Body::Copies(copies) => self.on_copies(now, from, &copies, out),
            Body::Locate(asked) => self.on_locate(now, from, &asked, out),
            Body::Located(located) => self.on_located(now, &located, out),
            Body::ReadersFinished(consumed) => self.on_readers_finished(&consumed, out),
            Body::FreeObjects(unwanted) => self.on_free_objects(&unwanted, out),
            Body::OutputTransfer(said) => self.on_output_transfer(now, from, said, out),
            Body::ProgressQuery(ask) => self.on_progress_query(now, &ask, out),
            Body::DeathQuery(ask) => self.on_death_query(from, &ask, out),
            Body::DeathReport(report) => self.on_death_report(from, &report),
            Body::TallyQuery(ask) => self.on_tally_query(ask, out),
            Body::TallyReport(report) => self.jobs.on_part(now, report, &self.homes, out),
            Body::ProgressReport(report) => {
                self.jobs.on_progress_report(from, report, self.homes.nodes());
            }
            Body::WrongOwner(wrong_owner) => self.on_wrong_owner(now, from, &wrong_owner),
        }
    }

    /// A peer runs under this incarnation: the first one known, or a later one. Returns whether
    /// this may call for decisions.
    pub fn on_peer_incarnation(
        &mut self,
        now: Time,
        peer: NodeId,
        incarnation: Incarnation,
        out: &mut Out,
    ) -> bool {
        let before = self.peers.insert(peer, incarnation);
        self.homes.note_incarnation(peer, incarnation);
        // A restarted peer may have been forgotten here since its first incarnation.
        let restarted = before.unwrap_or(Incarnation::FIRST) < incarnation;
        if let Some(before) = before.filter(|&before| before < incarnation) {
            self.note_former_life(peer, before);
            self.note_death(now, (peer, before));
        }
        let has_tasks = self.ledger.held_remotely.contains_key(&peer);
        self.check_held_remotely(now, peer, before, incarnation, out);
        if restarted {
            self.granted.remove(&peer);
            self.take_back_unacked_grants(peer, before.unwrap_or(Incarnation::FIRST), out);
            self.repeat_moves(peer, out);
            self.thief.forget_peer(peer, now);
            self.loads.forget(peer);
            let homes = &self.homes;
            for (&job_id, job) in &mut self.ledger.jobs {
                if homes.job_home(job_id) == peer && job.visible && !job.ended {
                    job.report_everything(now);
                }
            }
            let of_peer = |local: LocalId| homes.owner(local.partition()) == Some(peer);
            self.ledger.ask_again(of_peer, homes, out);
            self.ledger.recall_again(homes, out);
            self.jobs.ask_parts_again(peer, out);
            self.jobs.forget_again_at(now, peer, homes, out);
            self.ask_directory_again(now, |_, inflight| inflight.home == Some(peer), out);
            let homes = &self.homes;
            // The job's home may have died before it announced the end.
            let of_peer = |job: &JobId| homes.job_home(*job) == peer;
            for job in self.data.local_jobs.committed().filter(of_peer).collect::<Vec<_>>() {
                self.ask_for_job_end(job, out);
            }
        }
        restarted || has_tasks
    }

    /// Only best-effort messages were exchanged with this peer, which has never restarted: its next
    /// message counts as the first.
    pub fn forget_peer(&mut self, peer: NodeId) {
        self.peers.remove(&peer);
        self.loads.forget(peer);
    }

    /// The known incarnation of a peer; 0 if none is known.
    pub(crate) fn incarnation_of(&self, peer: NodeId) -> Incarnation {
        if peer == self.options.me {
            return self.options.incarnation;
        }
        self.peers.get(&peer).copied().unwrap_or_default()
    }

    /// Decides until nothing is left to decide, or until the step's budget is used up. In that case
    /// [`Self::deadline`] is now.
    pub fn settle(&mut self, now: Time, out: &mut Out) {
        self.ledger.await_births(out);
        self.ledger.release_due(now, STEP_TASKS_MAX);
        self.activate(now, out);
        self.judge_deaths(now, out);
        self.ledger.remove_some(now, out);
        let homes = std::mem::replace(&mut self.homes, Homes::empty());
        self.ledger.pump(now, &homes, STEP_EDGES_MAX, out);
        self.homes = homes;
        for _ in 0..STEP_EDGES_MAX {
            let Some(task) = self.ledger.ready.pop_front() else { break };
            self.place(now, task, out);
        }
        if self.ledger.ready.is_empty() {
            self.ledger.ready = VecDeque::new();
        }
        for (node, bundle) in std::mem::take(&mut self.pushes) {
            let bundle = Some(bundle.finish());
            out.reliable.push((node, Body::Push(wire::Push { bundle })));
        }
        self.send_readers_finished(out);
    }

    fn activate(&mut self, now: Time, out: &mut Out) {
        let (me, homes, peers) = (&self.options, &self.homes, &self.peers);
        let died = |node: NodeId, incarnation: Incarnation| {
            let known = homes.incarnation_of(node);
            let heard = peers.get(&node).copied().unwrap_or_default();
            match node == me.me {
                true => incarnation < me.incarnation,
                false => incarnation < known.max(heard) || homes.is_gone(node),
            }
        };
        let slots_max = homes.slots_max();
        self.ledger.activate(now, STEP_TASKS_MAX, slots_max, died, out);
    }

    /// Acts after all is settled: fills slots, steals, sends hints and reports.
    pub fn act(&mut self, now: Time, out: &mut Out) {
        self.data.space_timeout.tick(now);
        self.retry_undelivered(now, out);
        self.ask_about_unresolved_jobs(out);
        self.ask_about_files(now, out);
        self.delete_some(out);
        self.offer_outputs(now, out);
        self.copy_outputs(now, out);
        self.retry_fetches(now, out);
        self.expire_start_requests(now, out);
        self.ask_for_awaited(now, out);
        self.tend_open_jobs(now, out);
        self.repeat_turns(now, out);
        self.return_tasks_if_keeper(out);
        self.dispatch(now, out);
        self.watch_queues(now, out);
        self.steal(now, out);
        self.hint(now, out);
        self.report(now, out);
        self.expire_uncommitted(now, out);
        self.reconcile(now, out);
        self.jobs.check_stalls(now, &self.homes, out);
        self.jobs.tend_collections(now, &self.homes, out);
        self.jobs.retain(now, &self.options.tuning, &self.homes, out);
        self.jobs.go_on_forgetting_again(now, &self.homes, out);
        self.send_readers_finished(out);
        self.give_room_back();
    }

    /// An emptied tree keeps room for several entries, and most nodes of a large cluster run
    /// nothing most of the time.
    fn give_room_back(&mut self) {
        if self.running.is_empty() {
            self.running = BTreeMap::new();
        }
        if self.staging.is_empty() {
            self.staging = BTreeMap::new();
        }
        self.awaiting_slot.shrink_to(self.slots.total() as usize);
    }

    fn expire_uncommitted(&mut self, now: Time, out: &mut Out) {
        let ttl = proto::limits::STAGED_JOB_TTL;
        let staged = self.ledger.live_jobs().filter(|(_, job)| job.may_expire());
        let silent = staged.filter(|(_, job)| job.touched + ttl <= now);
        let silent: Vec<JobId> = silent.map(|(job_id, _)| job_id).collect();
        for job_id in silent {
            // An empty report is a question to the job's home. The home repeats the commit, or
            // answers that there is no such job. Until then nothing is dropped; the home may have
            // promised the job.
            let question = self.ask_job_home(job_id, out);
            if let Some(job) = self.ledger.jobs.get_mut(&job_id) {
                (job.touched, job.question) = (now, question);
            }
        }
    }

    /// When the scheduler wants to act again; `now` or earlier when work is left over.
    #[must_use]
    pub fn deadline(&self, now: Time) -> Option<Time> {
        if self.ledger.has_work() {
            return Some(now);
        }
        let ttl = proto::limits::STAGED_JOB_TTL;
        let staged = self.ledger.live_jobs().filter(|(_, job)| job.may_expire());
        let expiry = staged.map(|(_, job)| job.touched + ttl).min();
        let retry = self.data.deadline(now);
        let due = [
            self.thief.deadline(),
            self.hints.deadline(),
            self.monitor.deadline(),
            self.ledger.next_report(),
            self.ledger.next_release(),
            self.reconciler.deadline(),
            self.jobs.next_stall_check(),
            self.jobs.next_collection(),
            self.jobs.next_retention(),
            self.jobs.next_forgetting(),
            self.start_requests.deadline(),
            self.death_evidence.deadline(),
            self.undelivered.deadline(),
            self.drain.as_ref().and_then(|drain| drain.deadline()),
            self.next_requeue(),
            self.next_ask_of_waits(),
            self.next_of_open_jobs(),
            self.next_repeated_turn(),
            expiry,
            retry,
        ];
        due.into_iter().flatten().min()
    }

    /// Places a ready task where the policy decides.
    fn place(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let Some(is_suspect) = self.ledger.placeable(task) else { return };
        if self.ledger.is_removed(task.job) || is_suspect && self.ledger.awaits_verdict(now, task) {
            return;
        }
        if self.ledger.awaits_release(now, task) {
            return;
        }
        let mut work = self.ledger.work(task).expect("a live task has its work");
        self.name_copies(task, &mut work.inputs);
        self.note_class(&work);
        let fits_nowhere = self.fits_nowhere(&work);
        let may_come = self.homes.any_unknown() || self.homes.all_keep();
        // An upload stays where its client has put it. If that home is a keeper, it waits until a
        // node with slots is home.
        let waits_for_home = work.is_bound() && self.options.slots == 0;
        if fits_nowhere && may_come || waits_for_home || self.waits_for_wide_node(&work) {
            self.awaiting_wide_node.push(task); // A wider node may be about to return.
            return;
        }
        let term = self.term(task.partition());
        let attempt = self.ledger.begin_attempt(task, term);
        let input_bytes = work.input_bytes();
        let ready = self.ready(task, attempt, &work);
        let rules = self.rules();
        let waiting = self.take_node_of_waiting(task, &work);
        if !work.is_bound() && !self.fits_here(&work) {
            match waiting {
                Some(Decision::Push(node)) => {
                    self.push(now, task, attempt, work, node, rules.goes, out);
                }
                _ => self.place_elsewhere(now, task, attempt, work, out),
            }
            return;
        }
        let (local_queue, reason) = match waiting.unwrap_or_else(|| self.decide(now, &work)) {
            Decision::Shared(reason) => (false, reason),
            Decision::Local => (true, rules.stays),
            Decision::Push(node) if self.fits_node(node, &work) => {
                self.push(now, task, attempt, work, node, rules.goes, out);
                return;
            }
            // The node that has its inputs may be gone.
            Decision::Push(_) => (false, Reason::TooWide),
        };
        self.enqueue(local_queue, ready);
        out.events.push(Event::Queued { task, attempt, local_queue, reason, input_bytes });
    }

    pub(crate) fn decide(&self, now: Time, work: &Work) -> Decision {
        if work.is_bound() {
            return Decision::Local;
        }
        (self.rules().decide)(self, now, work)
    }
}

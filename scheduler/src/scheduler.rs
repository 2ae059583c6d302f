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

use std::sync::Arc;

use proto::event::Reason;

use proto::wire::message::Body;
use proto::{Event, Incarnation, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire};

use crate::holder::Holder;
use crate::holder::task::Work;
use crate::home::Home;
use crate::limits::{COUNTS_INTERVAL, COUNTS_NODES};
use crate::objects::Objects;
use crate::output::Out;
use crate::policy::{Decision, PolicyState};
use crate::routing::Routing;
use crate::routing::partition_owners::Homes;
use crate::stealing::Stealing;
use crate::{LedgerRecord, Mutant, RecordError, Tuning};

/// The maximum numbers of edges credited, and of newly visible tasks handled, in one step of a
/// node.
const STEP_EDGES_MAX: usize = 65_536;
const STEP_TASKS_MAX: usize = 16_384;

/// The options of a scheduler at its start.
#[derive(Clone, Debug)]
pub struct Options {
    pub me: NodeId,
    pub incarnation: Incarnation,
    pub slots: u32,
    /// The resources of the node, with as many cpus as slots; `None`: cpus alone.
    pub offer: Option<Arc<resources::Offer>>,
    /// When the node ends, if that is known.
    pub end: Option<resources::EndOfLife>,
    pub tuning: Tuning,
    pub seed: u64,
    /// The previous incarnation of this node, and how it ended.
    pub former: (Incarnation, wire::LifeEnd),
    pub mutant: Option<Mutant>,
}

impl Options {
    /// The number of this incarnation as a writer of variables.
    pub(crate) fn writer(&self) -> u64 {
        u64::from(self.incarnation.0) << 32 | u64::from(self.me.0)
    }
    /// The number for clients that write here: tasks of this node are another writer.
    pub(crate) fn client_writer(&self) -> u64 {
        self.writer() | 1 << 63
    }
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
    /// Attempts that succeeded here, and that failed here.
    pub attempts_done: u64,
    pub attempts_failed: u64,
}

/// The rooms of a node. Each is the struct of one folder, and its folder says what it owns.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) options: Options,
    pub(crate) stats: Stats,
    pub(crate) policy: PolicyState,
    pub(crate) routing: Routing,
    pub(crate) objects: Objects,
    pub(crate) holder: Holder,
    pub(crate) home: Home,
    pub(crate) stealing: Stealing,
}

impl Scheduler {
    #[must_use]
    pub fn new(options: Options, homes: Homes) -> Self {
        Self {
            stats: Stats::default(),
            policy: PolicyState::new(&options),
            objects: Objects::new(options.mutant),
            holder: Holder::new(&options),
            home: Home::new(&options, &homes),
            stealing: Stealing::new(&options),
            routing: Routing::new(homes),
            options,
        }
    }

    /// Puts the scheduler into the state after a long time without work: it looks for work only
    /// after a sign of some.
    pub fn rest(&mut self) {
        self.stealing.rest();
    }

    /// Loads one stored record of the ledger. Records come in the order of keys.
    pub fn load(
        &mut self,
        now: Time,
        partition: PartitionId,
        job: JobId,
        record: LedgerRecord,
    ) -> Result<(), RecordError> {
        self.home.ledger.load(now, partition, job, record)
    }
    pub fn load_job(&mut self, state: wire::JobState) {
        self.home.jobs.load(state);
    }
    /// Loads the record of a variable, after that of its job.
    pub fn load_variable(&mut self, job: JobId, variable: wire::Variable) {
        self.home.jobs.load_variable(job, variable);
    }
    /// Resumes all work that the loaded records imply; called after the last record.
    pub fn resume(&mut self, now: Time, out: &mut Out) {
        self.home.ledger.resume(now, out);
        self.home.ledger.ask_for_rounds(|_| true, self.routing.homes(), out);
        self.holder.start_tallies(now);
        self.home.jobs.resume(now, self.routing.homes(), out);
    }

    /// The values of the variables of a job that is homed here, by index.
    #[must_use]
    pub fn variables_of(&self, job: JobId) -> Option<&[wire::Variable]> {
        self.home.jobs.variables_of(job)
    }

    /// Whether this node starts nothing until it is resumed.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.holder.slots().is_paused()
    }

    #[must_use]
    pub fn homes(&self) -> &Homes {
        self.routing.homes()
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
            Body::Gang(said) => {
                self.holder.set_now(now);
                self.on_gang(now, from, &said, out);
                true
            }
            body => {
                self.holder.set_now(now);
                self.on_weighty_message(now, from, body, out);
                true
            }
        }
    }

    fn on_weighty_message(&mut self, now: Time, from: NodeId, body: Body, out: &mut Out) {
        let Some(body) = self.routing.keep_owned_bounce_rest(from, body, out) else { return };
        match body {
            Body::StealProbe(_) | Body::StealLoad(_) | Body::StealHint(_) | Body::Gang(_) => {
                unreachable!("these are steal probes, and gangs")
            }
            Body::Push(push) => self.on_push(from, push, out),
            Body::StealRequest(request) => self.on_steal_request(from, &request, out),
            Body::StealGrant(grant) => self.on_steal_grant(now, from, grant, out),
            Body::StealDone(done) => self.stealing.on_steal_done(from, &done),
            Body::TasksMoved(moved) => self.on_tasks_moved(from, &moved, out),
            Body::TasksMovedAck(reply) => self.on_tasks_moved_ack(now, from, &reply, out),
            Body::Finished(finished) => self.on_ends(now, from, finished, out),
            Body::Turn(turn) => self.on_turn_of(now, from, *turn, out),
            Body::TurnReply(reply) => self.on_turn_reply(now, reply, out),
            Body::AwaitQuery(query) => self.on_await_query(query, out),
            Body::AwaitReply(reply) => self.home.on_await_reply(&reply),
            Body::ChunksBorn(born) => self.on_chunks_born(from, &born),
            Body::Letters(letters) => self.on_letters(now, letters, out),
            Body::LettersKept(kept) => self.home.ledger.on_letters_kept(now, &kept, out),
            Body::LettersSynced(synced) => self.on_letters_synced(from, &synced),
            Body::MailQuery(query) => self.on_mail_query(from, &query, out),
            Body::MailReply(reply) => self.on_mail_reply(reply, out),
            Body::RevokeAttempts(stale) => self.on_revoke_attempts(from, &stale.tasks, out),
            Body::Credits(credits) => self.home.on_credits(now, credits, out),
            Body::CreditQuery(query) => self.on_credit_query(now, from, &query, out),
            Body::Recall(recall) => self.on_recall(now, &recall, out),
            Body::Recalled(answer) => self.on_recalled(now, answer, out),
            Body::Visible(visible) => self.on_visible(now, &visible, out),
            Body::VarSet(set) => self.on_var_set(from, &set, out),
            Body::VarPush(push) => self.on_var_push(now, push, out),
            Body::Join(join) => self.home.jobs.on_join(from, join, self.routing.homes(), out),
            Body::JoinRefused(refusal) => self.on_join_refused(&refusal, out),
            Body::LateEdges(late) => self.on_late_edges(now, late, out),
            Body::LateEdgesKept(kept) => self.home.on_late_edges_kept(&kept, out),
            Body::JobCounts(counts) => self.on_job_counts(now, from, counts, out),
            Body::HeldTasksQuery(holding) => self.on_held_tasks_query(from, &holding.tasks, out),
            Body::TasksNotHeld(not_held) => self.on_tasks_not_held(from, &not_held, out),
            Body::Cancel(cancel) => _ = self.on_cancel(now, &cancel, out),
            Body::JobEnd(end) => {
                self.note_end(now, from, &end, out);
                self.on_job_end(from, end, out);
            }
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
            Body::TallyReport(report) => {
                self.home.jobs.on_part(now, report, self.routing.homes(), out)
            }
            Body::ProgressReport(report) => {
                self.home.jobs.on_progress_report(from, report, self.routing.homes().nodes());
            }
            Body::WrongOwner(wrong_owner) => self.on_wrong_owner(now, from, &wrong_owner),
        }
    }

    fn on_ends(&mut self, now: Time, from: NodeId, finished: wire::Finished, out: &mut Out) {
        for mut completion in finished.completions {
            self.complete(now, from, &mut completion, out);
        }
    }

    fn on_credit_query(
        &mut self,
        now: Time,
        from: NodeId,
        query: &wire::CreditQuery,
        out: &mut Out,
    ) {
        let homes = self.routing.homes();
        let is_home = |child: LocalId| homes.active_owner(child.partition()) == Some(from);
        self.home.ledger.on_credit_query(from, query, is_home, out);
        self.home.ledger.on_asks(now, from, &query.requests, homes, out);
    }

    fn on_var_set(&mut self, from: NodeId, set: &wire::VarSet, out: &mut Out) {
        self.home.jobs.on_var_set(from, set, out);
    }

    fn on_job_counts(&mut self, now: Time, from: NodeId, counts: wire::JobCounts, out: &mut Out) {
        self.home.jobs.on_job_counts(now, from, counts, self.routing.homes(), out);
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
        let before = self.routing.note_incarnation(peer, incarnation);
        // A restarted peer may have been forgotten here since its first incarnation.
        let restarted = before.unwrap_or(Incarnation::FIRST) < incarnation;
        if let Some(before) = before.filter(|&before| before < incarnation) {
            self.note_former_life(peer, before);
            self.note_death(now, (peer, before));
        }
        let has_tasks = self.home.ledger.has_given_to(peer);
        self.check_held_remotely(now, peer, before, incarnation, out);
        if restarted {
            self.take_back_unacked_grants(peer, before.unwrap_or(Incarnation::FIRST), out);
            self.stealing.repeat_moves(peer, out);
            self.stealing.forget_peer(peer, now);
            self.policy.forget_peer(peer);
            let homes = self.routing.homes();
            self.home.ledger.report_again(now, |job| homes.job_home(job) == peer);
            let of_peer = |local: LocalId| homes.owner(local.partition()) == Some(peer);
            self.home.ledger.ask_again(of_peer, homes, out);
            self.home.ledger.recall_again(homes, out);
            self.home.jobs.ask_parts_again(peer, out);
            self.home.jobs.forget_again_at(now, peer, homes, out);
            self.ask_directory_again(now, |_, inflight| inflight.home == Some(peer), out);
            let homes = self.routing.homes();
            // The job's home may have died before it announced the end.
            let of_peer = |job: &JobId| homes.job_home(*job) == peer;
            for job in self.holder.local_jobs().committed().filter(of_peer).collect::<Vec<_>>() {
                self.ask_for_job_end(job, out);
            }
        }
        restarted || has_tasks
    }

    /// Only best-effort messages were exchanged with this peer, which has never restarted: its next
    /// message counts as the first.
    pub fn forget_peer(&mut self, peer: NodeId) {
        self.routing.forget_peer(peer);
        self.policy.forget_peer(peer);
    }

    /// The known incarnation of a peer; 0 if none is known.
    pub(crate) fn incarnation_of(&self, peer: NodeId) -> Incarnation {
        if peer == self.options.me {
            return self.options.incarnation;
        }
        self.routing.last_incarnation_of(peer).unwrap_or_default()
    }

    /// Decides until nothing is left to decide, or until the step's budget is used up. In that case
    /// [`Self::deadline`] is now.
    pub fn settle(&mut self, now: Time, out: &mut Out) {
        self.holder.set_now(now);
        self.home.ledger.await_births(out);
        self.await_letters(out);
        self.home.ledger.release_due(now, STEP_TASKS_MAX);
        self.home.ledger.release_throttled();
        self.activate(now, out);
        self.judge_deaths(now, out);
        self.home.ledger.remove_some(now, out);
        self.home.ledger.pump(now, self.routing.homes(), STEP_EDGES_MAX, out);
        for _ in 0..STEP_EDGES_MAX {
            let Some(task) = self.home.ledger.next_ready() else { break };
            self.place(now, task, out);
        }
        self.home.ledger.give_room_back();
        self.holder.send_pushes(out);
        self.send_readers_finished(out);
    }

    fn activate(&mut self, now: Time, out: &mut Out) {
        let (me, routing) = (&self.options, &self.routing);
        let homes = routing.homes();
        let died = |node: NodeId, incarnation: Incarnation| {
            let known = homes.incarnation_of(node);
            let heard = routing.last_incarnation_of(node).unwrap_or_default();
            match node == me.me {
                true => incarnation < me.incarnation,
                false => incarnation < known.max(heard) || homes.is_gone(node),
            }
        };
        let slots_max = homes.slots_max();
        self.home.ledger.activate(now, STEP_TASKS_MAX, slots_max, died, out);
    }

    /// Acts after all is settled: fills slots, steals, sends hints and reports.
    pub fn act(&mut self, now: Time, out: &mut Out) {
        if self.holder.tick(now) {
            self.stealing.announce(now);
        }
        self.retry_undelivered(now, out);
        self.ask_about_unresolved_jobs(out);
        self.ask_about_files(now, out);
        self.delete_some(out);
        self.copy_outputs(now, out);
        self.offer_outputs(now, out);
        self.retry_fetches(now, out);
        self.expire_start_requests(now, out);
        self.ask_for_awaited(now, out);
        self.tend_mail(now, out);
        self.tend_open_jobs(now, out);
        self.repeat_turns(now, out);
        self.ask_mailboxes(now, out);
        self.repeat_variables(now, out);
        self.return_tasks_if_keeper(out);
        self.dispatch(now, out);
        self.tend_notices(now, out);
        self.watch_queues(now, out);
        self.steal(now, out);
        self.hint(now, out);
        self.report(now, out);
        self.expire_uncommitted(now, out);
        self.reconcile(now, out);
        self.ask_for_ends_of_awaited(now, out);
        self.home.jobs.check_stalls(now, self.routing.homes(), out);
        self.home.jobs.tend_silent(now, self.routing.homes(), out);
        self.home.jobs.tend_collections(now, self.routing.homes(), out);
        self.home.jobs.retain(now, &self.options.tuning, self.routing.homes(), out);
        self.home.jobs.go_on_forgetting_again(now, self.routing.homes(), out);
        self.send_changed_variables(out);
        self.send_readers_finished(out);
        self.holder.give_room_back();
    }

    fn expire_uncommitted(&mut self, now: Time, out: &mut Out) {
        let ttl = proto::limits::STAGED_JOB_TTL;
        for job_id in self.home.ledger.silent_jobs(now, ttl) {
            // An empty report is a question to the job's home. The home repeats the commit, or
            // answers that there is no such job. Until then nothing is dropped; the home may have
            // promised the job.
            let question = self.ask_job_home(job_id, out);
            self.home.ledger.note_question(now, job_id, question);
        }
    }

    /// When the scheduler wants to act again; `now` or earlier when work is left over.
    #[must_use]
    pub fn deadline(&self, now: Time) -> Option<Time> {
        if self.home.ledger.has_work() {
            return Some(now);
        }
        let ttl = proto::limits::STAGED_JOB_TTL;
        let expiry = self.home.ledger.next_silence(ttl);
        let retry = self.objects.deadline(now);
        let due = [
            self.stealing.deadline(),
            self.policy.deadline(),
            self.home.ledger.next_report(),
            self.home.ledger.next_release(),
            self.home.deadline(),
            self.home.jobs.next_stall_check(),
            self.home.jobs.next_silence(),
            self.home.jobs.next_ask_for_ends(now),
            self.home.jobs.next_collection(),
            self.home.jobs.next_retention(),
            self.home.jobs.next_forgetting(),
            self.holder.deadline(now),
            self.routing.undelivered().deadline(),
            self.objects.drain_deadline(),
            self.next_requeue(),
            self.next_notice(),
            expiry,
            retry,
        ];
        due.into_iter().flatten().min()
    }

    /// Places a ready task where the policy decides.
    fn place(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let Some(is_suspect) = self.home.ledger.placeable(task) else { return };
        if self.home.ledger.is_removed(task.job)
            || is_suspect && self.home.ledger.awaits_verdict(now, task)
        {
            return;
        }
        if self.home.ledger.awaits_release(now, task) {
            return;
        }
        let mut work = self.home.ledger.work(task).expect("a live task has its work");
        self.name_copies(task, &mut work.inputs);
        self.note_class(&work);
        let fits_nowhere = self.fits_nowhere(&work);
        let homes = self.routing.homes();
        // A submitted task was offered when it came: its nodes have other offers since.
        let was_offered = work.depth == 0;
        let may_come =
            was_offered || homes.any_unknown() || homes.all_keep() || work.spec.awaits_nodes;
        // An upload stays where its client has put it. If that home is a keeper, it waits until a
        // node with slots is home.
        let waits_for_home = work.is_bound() && self.options.slots == 0;
        if fits_nowhere && may_come
            || waits_for_home
            || self.waits_for_wide_node(&work)
            || self.lacks_nodes_for(&work)
        {
            self.home.await_wide_node(task); // A wider node may be about to return.
            return;
        }
        if self.home.ledger.is_throttled(task) {
            return;
        }
        let term = self.term(task.partition());
        let attempt = self.home.ledger.begin_attempt(task, term);
        let input_bytes = work.input_bytes();
        let ready = self.arriving(task, attempt, &work);
        let rules = self.rules();
        let waiting = self.take_node_of_waiting(task, &work);
        let goes = work.is_gang() && !self.leads_here(task, &work);
        if !work.is_bound() && (goes || !self.holder.fits_here(&work)) {
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
            // A thief that offers its preferred variant may have it.
            Decision::Local if self.holder.waits_for_others(ready.class) => (false, rules.stays),
            Decision::Local => (true, rules.stays),
            Decision::Push(node) if self.fits_node(node, &work) => {
                self.push(now, task, attempt, work, node, rules.goes, out);
                return;
            }
            // The node that has its inputs may be gone.
            Decision::Push(_) => (false, Reason::TooWide),
        };
        match work.inputs.is_empty() {
            true => self.holder.enqueue(local_queue, ready, &[]),
            false => self.enqueue(local_queue, ready),
        }
        out.events.push(Event::Queued { task, attempt, local_queue, reason, input_bytes });
    }

    pub(crate) fn decide(&self, now: Time, work: &Work) -> Decision {
        if work.is_bound() || work.is_gang() {
            return Decision::Local;
        }
        (self.rules().decide)(self, now, work)
    }
}

//! Adaptive work stealing, the thief's side (section 2.2.1 of the paper, with corrected end
//! states).
//!
//! A hungry node probes √n random neighbours for their load and takes half of the fullest one's
//! shared queue. After a failure it waits for an interval that doubles, with jitter, up to a bound;
//! then it probes half as many nodes. At the bound it becomes dormant, but not permanently: nodes
//! with more shared tasks than slots send hints to random peers, and a hint wakes it. Under FLDS it
//! also wakes by itself, once for each doubling of the longest wait, when that wait is down to the
//! bound.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::Reason;
use proto::limits::{STEAL_NEIGHBOURS_MAX, STEAL_NEIGHBOURS_MIN};
use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Attempt, Event, Incarnation, JobId, LocalId, NodeId, Span, TaskId, Time, wire};
use rand_chacha::rand_core::Rng;

use crate::holder::task::unpack;
use crate::limits::{COMMIT_WAIT, COUNTS_NODES, STEAL_TIMEOUT};
use crate::output::{Out, task_attempt};
use crate::stealing::Stealing;
use crate::{Mutant, Scheduler, Tuning};

/// The maximum number of tasks per slot that a thief requests while it still has tasks.
const STEAL_AHEAD_PER_SLOT: usize = 2;

#[derive(Debug)]
enum Phase {
    /// Not hungry, or about to probe.
    Idle,
    Probing {
        probe: u64,
        awaited: BTreeSet<NodeId>,
        fullest: Option<(u32, NodeId)>,
        until: Time,
    },
    Requesting {
        victim: NodeId,
        steal: u64,
        until: Time,
    },
    BackingOff {
        until: Time,
    },
    /// Dormant at the bound: a hint or own work wakes the thief, and FLDS may do so at `retry_at`.
    Dormant {
        retry_at: Option<Time>,
    },
}

#[derive(Debug)]
pub(crate) struct Thief {
    phase: Phase,
    interval: Span,
    /// FLDS may wake the thief again: it has not done so since the longest wait last doubled.
    rearms: bool,
    /// The last number of a probe or steal of this incarnation.
    number: u64,
    /// A submitted job with tasks here that is about to become visible, and the end of the wait for
    /// it.
    awaits: Option<(JobId, Time)>,
}

/// The report of a steal to one home.
#[derive(Debug)]
pub(crate) struct Move {
    /// The victim, and the number of the steal.
    steal: (NodeId, u64),
    /// The home that was informed; `None` while no node serves the partition.
    home: Option<NodeId>,
    message: wire::TasksMoved,
}

impl Thief {
    pub(crate) fn new(interval: Span) -> Self {
        Self { phase: Phase::Idle, interval, rearms: true, number: 0, awaits: None }
    }
    /// Puts the thief into the state after a long search without success.
    pub(crate) fn rest(&mut self) {
        self.rearms = false;
        self.phase = Phase::Dormant { retry_at: None };
    }
    /// The longest wait of FLDS has doubled: the thief may wake again when the wait is short again.
    pub(crate) fn rearm(&mut self, look_at: Time) {
        self.rearms = true;
        if let Phase::Dormant { retry_at } = &mut self.phase {
            retry_at.get_or_insert(look_at);
        }
    }
    /// Starts again with another interval; open probes and requests end as usual.
    pub(crate) fn restart(&mut self, interval: Span) {
        self.interval = interval;
        self.rearms = true;
        if matches!(self.phase, Phase::BackingOff { .. } | Phase::Dormant { .. }) {
            self.phase = Phase::Idle;
        }
    }
    /// The number of failures in a row: each has doubled the interval.
    fn failures(&self, tuning: &Tuning) -> u32 {
        (self.interval.0 / tuning.steal_interval_start.0.max(1)).max(1).ilog2()
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Dormant { retry_at } => *retry_at,
            Phase::Probing { until, .. }
            | Phase::Requesting { until, .. }
            | Phase::BackingOff { until } => Some(*until),
        }
    }
    /// A restarted peer does not answer questions to its earlier incarnation.
    pub(crate) fn forget_peer(&mut self, peer: NodeId, now: Time) {
        match &mut self.phase {
            Phase::Probing { awaited, until, .. } => {
                awaited.remove(&peer);
                if awaited.is_empty() {
                    *until = now;
                }
            }
            Phase::Requesting { victim, until, .. } if *victim == peer => *until = now,
            _ => {}
        }
    }
}

impl Stealing {
    /// A restarted home may have answered before it died, and the answer may be lost.
    pub(crate) fn repeat_moves(&mut self, home: NodeId, out: &mut Out) {
        for sent in self.moves.values().filter(|sent| sent.home == Some(home)) {
            out.reliable.push((home, Body::TasksMoved(sent.message.clone())));
        }
    }

    /// The node does not serve the partitions of the move.
    pub(crate) fn move_bounced(&mut self, from: NodeId, number: u64) {
        if let Some(sent) = self.moves.get_mut(&number).filter(|sent| sent.home == Some(from)) {
            sent.home = None;
        }
    }
}

impl Scheduler {
    /// Whether a slot is free and no task here fits.
    fn is_dry(&self) -> bool {
        self.holder.slots().free() > 0
            && self.holder.startable() == 0
            && !self.holder.line_may_start()
            && self.underway() < self.free_lanes()
    }
    /// Whether the node is dry, or will be before stolen tasks could be here with their inputs.
    fn is_hungry(&self) -> bool {
        if self.is_full() || self.holder.runs_exclusively() || self.objects.is_draining() {
            return false;
        }
        if self.holder.slots().is_paused() {
            return false;
        }
        // While the map lists this node as gone, no other node would notice its death with stolen
        // tasks. A slow node runs only the tasks that it has.
        if self.routing.homes().is_gone(self.options.me)
            || self.routing.homes().is_slow(self.options.me)
        {
            return false;
        }
        if self.holder.slots().total() == 0 || self.holder.keeps_cpus() {
            return false; // A keeper, or a wide task is next.
        }
        let ahead = STEAL_AHEAD_PER_SLOT * self.lanes();
        let here = self.here();
        // Tasks that have just become visible or ready are about to be placed.
        !self.home.ledger.places_more()
            && (self.is_dry() || here < self.started_meanwhile().min(ahead))
    }

    /// The number of tasks that are here, may run here, and do not run.
    fn here(&self) -> usize {
        self.holder.startable() + self.underway()
    }
    /// Of these, the number beyond those for the free slots.
    fn held(&self) -> u32 {
        let held = self.here().saturating_sub(self.free_lanes());
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// Advances the state of the thief.
    pub(crate) fn steal(&mut self, now: Time, out: &mut Out) {
        if self.routing.homes().living_others() == 0 {
            // The nodes that it asked are gone: no answer is awaited.
            self.stealing.thief.phase = Phase::Idle;
            return;
        }
        if !self.is_hungry() {
            if matches!(self.stealing.thief.phase, Phase::BackingOff { .. } | Phase::Dormant { .. })
            {
                self.stealing.thief.phase = Phase::Idle;
            }
            if matches!(self.stealing.thief.phase, Phase::Idle) {
                self.stealing.thief.interval = self.options.tuning.steal_interval_start;
            }
        }
        match &self.stealing.thief.phase {
            Phase::Idle if self.is_hungry() => self.probe(now, out),
            Phase::BackingOff { until } if *until <= now => self.probe(now, out),
            Phase::Probing { until, fullest, .. } if *until <= now => match *fullest {
                Some((_, victim)) => self.request(now, victim, out),
                None => self.steal_failed(now),
            },
            Phase::Requesting { until, .. } if *until <= now => self.steal_failed(now),
            Phase::Dormant { retry_at: Some(retry_at) } if *retry_at <= now => {
                self.retry_from_dormant(now, out)
            }
            _ => {}
        }
    }

    fn probe(&mut self, now: Time, out: &mut Out) {
        if let Some(until) = self.awaits_commit(now) {
            self.stealing.thief.phase = Phase::BackingOff { until };
            return;
        }
        let neighbours = self.neighbours();
        self.stealing.thief.number += 1;
        let (probe, ahead) = (self.stealing.thief.number, self.holder.slots().free() == 0);
        let message = wire::StealProbe { probe, ahead, free: self.holder.slots().free_units() };
        for &neighbour in &neighbours {
            out.best_effort.push((neighbour, Body::StealProbe(message.clone())));
        }
        self.stats.steals_tried += 1;
        self.stealing.thief.phase = Phase::Probing {
            probe,
            awaited: neighbours,
            fullest: None,
            until: now + STEAL_TIMEOUT,
        };
    }

    /// Random distinct other nodes: √n, at least one, at most the limit, and after each failure
    /// half as many; few if this node still has tasks. A configured number takes the place of this.
    fn neighbours(&mut self) -> BTreeSet<NodeId> {
        let failures = self.stealing.thief.failures(&self.options.tuning);
        let wanted = match self.options.tuning.steal_neighbours as usize {
            0 if self.is_dry() => neighbours_after(self.routing.homes().nodes(), failures),
            0 => neighbours_after(self.routing.homes().nodes(), failures).min(STEAL_NEIGHBOURS_MIN),
            number => number,
        };
        let wanted = wanted.min(self.routing.homes().living_others());
        let mut chosen = BTreeSet::new();
        while chosen.len() < wanted {
            let node = self.random_peer();
            chosen.insert(node);
        }
        chosen
    }

    /// A random other node that is not gone; there must be one.
    pub(crate) fn random_peer(&mut self) -> NodeId {
        let others = self.routing.homes().nodes() as u64 - 1;
        let me = self.options.me.0;
        loop {
            let drawn = (self.stealing.rng.next_u64() % others) as u32;
            let peer = NodeId(if drawn >= me { drawn + 1 } else { drawn });
            if !self.routing.homes().is_gone(peer) {
                return peer;
            }
        }
    }

    /// The answer to a probe. Returns true for the last one.
    pub(crate) fn on_steal_load(
        &mut self,
        now: Time,
        from: NodeId,
        load: &wire::StealLoad,
        out: &mut Out,
    ) -> bool {
        let held = self.held();
        let Phase::Probing { probe, awaited, fullest, .. } = &mut self.stealing.thief.phase else {
            return false;
        };
        if *probe != load.probe || !awaited.remove(&from) {
            return false;
        }
        if load.shared > fullest.map_or(held, |(shared, _)| shared) {
            *fullest = Some((load.shared, from));
        }
        let last = awaited.is_empty();
        if last {
            match *fullest {
                Some((_, victim)) => self.request(now, victim, out),
                None => self.steal_failed(now),
            }
        }
        last
    }

    fn request(&mut self, now: Time, victim: NodeId, out: &mut Out) {
        if !self.is_hungry() {
            self.stealing.thief.phase = Phase::Idle;
            return;
        }
        if let Some(until) = self.awaits_commit(now) {
            self.stealing.thief.phase = Phase::BackingOff { until };
            return;
        }
        self.stealing.thief.number += 1;
        let steal = u64::from(self.options.incarnation.0) << 32 | self.stealing.thief.number;
        let request = wire::StealRequest {
            steal,
            slots: self.holder.slots().total(),
            free: self.holder.slots().free(),
            held: self.held(),
            free_amounts: self.holder.slots().free_units(),
        };
        out.best_effort.push((victim, Body::StealRequest(request)));
        self.stealing.thief.phase = Phase::Requesting { victim, steal, until: now + STEAL_TIMEOUT };
    }

    /// Other nodes run a job with tasks here that are not visible yet: its commit will arrive soon.
    /// Tasks stolen meanwhile would tear data from the homes of their readers. One node sends the
    /// commit to all homes, so the wait grows with the number of nodes.
    fn awaits_commit(&mut self, now: Time) -> Option<Time> {
        let (job, _) = self.home.ledger.live_jobs().find(|(_, job)| job.awaits_commit())?;
        let known = self.stealing.thief.awaits.filter(|&(awaited, _)| awaited == job);
        let crowd = self.routing.homes().nodes().div_ceil(COUNTS_NODES).max(1) as u64;
        let awaits = known.unwrap_or((job, now + Span(COMMIT_WAIT.0 * crowd)));
        self.stealing.thief.awaits = Some(awaits);
        (now < awaits.1).then_some(awaits.1)
    }

    fn steal_failed(&mut self, now: Time) {
        self.steal_found_nothing();
        if self.stealing.thief.interval >= self.options.tuning.steal_interval_bound {
            self.go_dormant(now);
            return;
        }
        let interval = self.stealing.thief.interval;
        // Jitter of up to half the interval separates thieves that failed together.
        let jitter = self.stealing.rng.next_u64() % (interval.0 / 2 + 1);
        self.stealing.thief.phase = Phase::BackingOff { until: now + interval + Span(jitter) };
        self.stealing.thief.interval =
            interval.doubled().min(self.options.tuning.steal_interval_bound);
    }

    fn go_dormant(&mut self, now: Time) {
        let rearms = self.stealing.thief.rearms && self.rules().monitors_queue;
        let retry_at = rearms.then(|| now + self.options.tuning.steal_interval_bound);
        self.stealing.thief.phase = Phase::Dormant { retry_at };
    }

    /// The thief was dormant for `steal_interval_bound`, without work. It starts again if dedicated
    /// tasks may wait so little now that other nodes have probably shared some.
    fn retry_from_dormant(&mut self, now: Time, out: &mut Out) {
        self.steal_found_nothing();
        if !self.waits_little() {
            self.go_dormant(now);
            return;
        }
        self.stealing.thief.rearms = false;
        self.stealing.thief.interval = self.options.tuning.steal_interval_start;
        self.probe(now, out);
    }

    /// A node announces a surplus: steals from it now, whatever the interval. Returns whether it
    /// does.
    pub(crate) fn on_steal_hint(
        &mut self,
        now: Time,
        from: NodeId,
        hint: &wire::StealHint,
        out: &mut Out,
    ) -> bool {
        if self.options.mutant == Some(Mutant::StealingRetires) || hint.shared <= self.held() {
            return false;
        }
        let busy =
            matches!(self.stealing.thief.phase, Phase::Probing { .. } | Phase::Requesting { .. });
        let steals = self.is_hungry() && !busy;
        if steals {
            self.stealing.thief.interval = self.options.tuning.steal_interval_start;
            self.request(now, from, out);
        }
        steals
    }

    /// Stolen tasks arrive. Their homes are informed before anything is launched; the victim may
    /// forget the tasks once every home knows.
    pub(crate) fn on_steal_grant(
        &mut self,
        now: Time,
        from: NodeId,
        grant: wire::StealGrant,
        out: &mut Out,
    ) {
        let partitions = self.routing.homes().partitions();
        let tasks = grant.bundle.and_then(|bundle| unpack(bundle, partitions)).unwrap_or_default();
        let requested = matches!(self.stealing.thief.phase,
            Phase::Requesting { victim, steal, .. } if victim == from && steal == grant.steal);
        if requested && tasks.is_empty() {
            self.steal_failed(now);
            return;
        }
        if tasks.is_empty() {
            return;
        }
        if requested {
            self.stealing.thief.phase = Phase::Idle;
        }
        self.stealing.forget_unacked_grants_of(&tasks);
        self.stealing.thief.interval = self.options.tuning.steal_interval_start;
        self.stealing.hints.at_once(now);
        self.stats.steals_won += 1;
        self.stats.steals_tasks += tasks.len() as u64;
        let untold: BTreeSet<u32> = grant.untold.into_iter().collect();
        let waited: BTreeSet<u32> = grant.waited.into_iter().collect();
        let mut sent = Vec::new();
        for (place, (task, attempt, work)) in (0..).zip(tasks) {
            let mine = self.routing.homes().is_home_of(task);
            let input_bytes = work.input_bytes();
            let ready = self.arriving(task, attempt, &work);
            self.holder.note_stolen_here(ready.class, waited.contains(&place));
            if !self.take_in(task, attempt, work, out) {
                continue;
            }
            let tells = self.options.mutant != Some(Mutant::ThiefReportsToNoOwner);
            // Their home when they were granted may not have informed the present home.
            let moved =
                !mine && !untold.contains(&place) && self.routing.homes().home_of(task) != from;
            if moved {
                mark(Mark::VictimNotHome);
            }
            if !mine && (moved || untold.contains(&place)) && tells {
                self.holder.home_must_hear(&task);
                sent.push(task_attempt(task, attempt));
            }
            // A task that did not fit here before is not passed on again.
            let local_queue = self.holder.note_return(task);
            self.enqueue(local_queue, ready);
            out.events.push(Event::Stolen { task, attempt, from });
            let reason = Reason::Stolen;
            let event = Event::Queued { task, attempt, local_queue, reason, input_bytes };
            out.events.push(event);
        }
        if sent.is_empty() {
            let done = wire::StealDone { steal: grant.steal };
            out.reliable.push((from, Body::StealDone(done)));
        } else {
            let moved = wire::TasksMoved { tasks: sent, ..Default::default() };
            self.send_moves((from, grant.steal), moved, out);
        }
    }

    /// Reports tasks that this node holds again to their homes, though it did not steal them: a
    /// thief has died.
    pub(crate) fn notify_homes(
        &mut self,
        tasks: Vec<wire::TaskAttempt>,
        (NodeId(gone_node), Incarnation(gone_incarnation)): (NodeId, Incarnation),
        out: &mut Out,
    ) {
        let moved = wire::TasksMoved { tasks, gone_node, gone_incarnation, ..Default::default() };
        self.send_moves_to_homes(moved, out);
    }

    /// Reports to the home of a task that it is about to start here.
    pub(crate) fn report_start(&mut self, task: wire::TaskAttempt, out: &mut Out) {
        self.send_moves_to_homes(
            wire::TasksMoved { tasks: vec![task], starts: true, ..Default::default() },
            out,
        );
    }

    /// Withdraws the start of a task. A home that got the start gets this after it; a home that has
    /// not got the start yet gets this alone.
    pub(crate) fn withdraw_start(&mut self, task: wire::TaskAttempt, out: &mut Out) {
        let start = |message: &wire::TasksMoved| message.starts || message.start_withdrawn;
        let is_of = |sent: &Move| start(&sent.message) && sent.message.tasks.contains(&task);
        let sent = self.stealing.moves.iter().filter(|(_, sent)| is_of(sent));
        let sent: Vec<u64> = sent.map(|(&number, _)| number).collect();
        for number in sent {
            let sent = self.stealing.moves.remove(&number).expect("listed above");
            self.finish_steal(sent.steal, out);
        }
        self.send_moves_to_homes(
            wire::TasksMoved { tasks: vec![task], start_withdrawn: true, ..Default::default() },
            out,
        );
    }

    fn send_moves_to_homes(&mut self, moved: wire::TasksMoved, out: &mut Out) {
        if !moved.tasks.is_empty() {
            let number = self.next_number();
            self.send_moves((self.options.me, number), moved, out);
        }
    }

    /// A number that this node never uses twice.
    fn next_number(&mut self) -> u64 {
        self.stealing.thief.number += 1;
        u64::from(self.options.incarnation.0) << 32 | self.stealing.thief.number
    }

    fn send_moves(&mut self, steal: (NodeId, u64), moved: wire::TasksMoved, out: &mut Out) {
        let bare = wire::TasksMoved { tasks: Vec::new(), ..moved };
        let mut homes: BTreeMap<Option<NodeId>, Vec<wire::TaskAttempt>> = BTreeMap::new();
        for held in moved.tasks {
            let home = self.routing.homes().active_owner(LocalId(held.local).partition());
            homes.entry(home).or_default().push(held);
        }
        for (home, tasks) in homes {
            let number = self.next_number();
            let message = wire::TasksMoved { steal: number, tasks, ..bare.clone() };
            if let Some(home) = home {
                out.reliable.push((home, Body::TasksMoved(message.clone())));
            }
            *self.stealing.pending_moves.entry(steal).or_default() += 1;
            self.stealing.moves.insert(number, Move { steal, home, message });
        }
    }

    /// A home knows of the move; it revokes some of the tasks.
    pub(crate) fn on_tasks_moved_ack(
        &mut self,
        now: Time,
        from: NodeId,
        reply: &wire::TasksMovedAck,
        out: &mut Out,
    ) {
        self.on_revoke_attempts(from, &reply.stale, out);
        if self.stealing.moves.get(&reply.steal).is_none_or(|sent| sent.home != Some(from)) {
            return; // It was sent again since, perhaps to another home.
        }
        let sent = self.stealing.moves.remove(&reply.steal).expect("looked at above");
        for held in &sent.message.tasks {
            let task = TaskId::new(held.job, held.local);
            if sent.message.starts {
                // Revoked tasks were dropped above.
                self.on_start_permitted(now, task, Attempt(held.attempt), out);
            }
            if sent.message.start_withdrawn {
                self.holder.on_start_withdrawn(task, Attempt(held.attempt));
            }
            self.holder.home_has_heard(&task, Attempt(held.attempt));
        }
        self.finish_steal(sent.steal, out);
    }

    /// One report about a steal needs no answer any more; after the last the victim may forget.
    fn finish_steal(&mut self, (victim, steal): (NodeId, u64), out: &mut Out) {
        let Some(pending) = self.stealing.pending_moves.get_mut(&(victim, steal)) else { return };
        *pending -= 1;
        if *pending == 0 {
            self.stealing.pending_moves.remove(&(victim, steal));
            if victim != self.options.me {
                out.reliable.push((victim, Body::StealDone(wire::StealDone { steal })));
            }
        }
    }

    /// Homes have moved: reports the tasks that this node holds to homes that do not know.
    pub(crate) fn resend_moves(&mut self, out: &mut Out) {
        let active_owner = |held: &wire::TaskAttempt| {
            self.routing.homes().active_owner(LocalId(held.local).partition())
        };
        let moved = |sent: &Move| {
            sent.message
                .tasks
                .iter()
                .any(|held| active_owner(held).is_some_and(|home| sent.home != Some(home)))
        };
        let again = self.stealing.moves.iter().filter(|(_, sent)| moved(sent));
        let again: Vec<u64> = again.map(|(&number, _)| number).collect();
        for number in again {
            let Move { steal, message, .. } =
                self.stealing.moves.remove(&number).expect("listed above");
            self.send_moves(steal, message, out);
            self.finish_steal(steal, out);
        }
    }
}

/// The number of nodes that a thief probes after this number of failures. The first probes find
/// work if there is any. If there is hardly any, its holders find the thieves. To probe many nodes
/// again and again would be most of the traffic of an idle cluster.
pub(crate) fn neighbours_after(nodes: usize, failures: u32) -> usize {
    let all = ((nodes as f64).sqrt().round() as usize).clamp(1, STEAL_NEIGHBOURS_MAX);
    let least = all.min(STEAL_NEIGHBOURS_MIN);
    all.checked_shr(failures).unwrap_or(0).max(least)
}

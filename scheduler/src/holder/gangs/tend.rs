//! Gangs in the scheduler: messages, the choice of nodes, the start and the end.

use std::collections::BTreeSet;

use proto::event::RetryReason;
use proto::wire::message::Body;
use proto::{Attempt, Incarnation, NodeId, TaskId, Time, wire};
use resources::Request;

use crate::holder::gangs::lead::{Ask, Asks, Grip, Phase, Verdict};
use crate::holder::gangs::line::{Answer, Stamp, Told};
use crate::holder::gangs::turns::{Led, Place, place_for};
use crate::holder::gangs::{GangPart, NodeRoom};
use crate::holder::limits::GANGS_LED_MAX;
use crate::holder::queues::matching::QueuedGang;
use crate::holder::slots::Slots;
use crate::holder::staging::{StageOutcome, Staged};
use crate::holder::start_permission::StartPermission;
use crate::holder::task::Work;
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// A life of a node.
type Life = (NodeId, Incarnation);

impl Scheduler {
    /// The parts of gangs that hold this node or wait for it. For checkers only.
    pub fn gang_parts(&self) -> impl Iterator<Item = GangPart> + '_ {
        self.holder.gang_parts()
    }

    /// The latest known life of a node.
    pub(super) fn life_of(&self, node: NodeId) -> Life {
        let listed = self.routing.homes().incarnation_of(node);
        let heard = match node == self.options.me {
            true => self.options.incarnation,
            false => self.incarnation_of(node),
        };
        (node, heard.max(listed).max(Incarnation::FIRST))
    }
    fn is_life_over(&self, (node, incarnation): Life) -> bool {
        node != self.options.me
            && (self.routing.homes().is_gone(node) || self.life_of(node).1 > incarnation)
    }

    pub(crate) fn on_gang(&mut self, now: Time, from: NodeId, said: &wire::Gang, out: &mut Out) {
        use wire::GangStep as Step;
        let (task, attempt) = (TaskId::new(said.job, said.local), Attempt(said.attempt));
        let answer = match said.step() {
            Step::GangReserve => return self.on_reserve(now, from, said),
            Step::GangLock if !self.holder.has_gangs() => Answer::Refused(said.round),
            Step::GangJoin if !self.holder.has_gangs() => Answer::Refused(0),
            Step::GangLock => self.holder.gangs_mut().line.lock(now, task, attempt, said.round),
            Step::GangJoin => self.holder.gangs_mut().line.join(task, attempt),
            Step::GangUnlock | Step::GangRelease => {
                let Some(gangs) = &mut self.holder.gangs else { return };
                if said.step() == Step::GangUnlock {
                    return gangs.line.unlock(now, task, attempt);
                }
                let seat = gangs.line.release(task, attempt);
                return self.holder.slots.give_back(seat);
            }
            Step::GangHeld => return self.on_answer(now, from, (task, attempt), Answer::Held, out),
            Step::GangRevoked => {
                return self.on_answer(now, from, (task, attempt), Answer::Revoked, out);
            }
            Step::GangLocked => {
                let answer = Answer::Locked(said.round);
                return self.on_answer(now, from, (task, attempt), answer, out);
            }
            Step::GangRefused => {
                let answer = Answer::Refused(said.round);
                return self.on_answer(now, from, (task, attempt), answer, out);
            }
            Step::GangJoined => {
                return self.on_answer(now, from, (task, attempt), Answer::Joined, out);
            }
        };
        send_answers([(from, (task, attempt), answer)], out);
    }

    /// A leader asks for this node, or renews that.
    fn on_reserve(&mut self, now: Time, from: NodeId, said: &wire::Gang) {
        let (task, attempt) = (TaskId::new(said.job, said.local), Attempt(said.attempt));
        // The leader sees in the map that this node leaves or is paused, and chooses another one.
        let is_paused = self.holder.slots.is_paused();
        if self.holder.stopping || self.objects.is_draining() || is_paused {
            return;
        }
        let Ok(request) = Request::decode(&said.request) else { return };
        let Some(need) = self.holder.slots.resolve(&request) else { return };
        let leader = (attempt, self.life_of(from));
        let stamp = Stamp::new(said.priority, task);
        let seat = self.holder.gangs_mut().line.reserve(now, stamp, leader, need);
        self.holder.slots.give_back(seat);
    }

    fn on_answer(
        &mut self,
        now: Time,
        from: NodeId,
        (task, attempt): (TaskId, Attempt),
        answer: Answer,
        out: &mut Out,
    ) {
        let life = self.life_of(from);
        let Some(gangs) = &mut self.holder.gangs else { return };
        let lead = gangs.leads.get_mut(&task).filter(|lead| lead.attempt == attempt);
        let Some(lead) = lead else { return };
        let mut asks = Asks::new();
        let verdict = lead.on_answer(life, answer, &mut asks);
        self.send_asks((task, attempt), asks, out);
        match verdict {
            Verdict::Waits => {}
            Verdict::Starts => self.start_gang(now, task, out),
            Verdict::Fails => self.fail_gang(task, attempt, out),
        }
    }

    fn send_asks(&self, (task, attempt): (TaskId, Attempt), asks: Asks, out: &mut Out) {
        use wire::GangStep as Step;
        if asks.is_empty() {
            return;
        }
        let work = self.holder.staging.get(&task).map(|staged| &staged.work);
        let bare = wire::Gang {
            job: task.job.0,
            local: task.local.0,
            attempt: attempt.0,
            ..<_>::default()
        };
        for (node, ask) in asks {
            let (step, round) = match ask {
                Ask::Reserve => (Step::GangReserve, 0),
                Ask::Lock(round) => (Step::GangLock, round),
                Ask::Unlock => (Step::GangUnlock, 0),
                Ask::Join => (Step::GangJoin, 0),
                Ask::Release => (Step::GangRelease, 0),
            };
            let mut gang = wire::Gang { step: step as i32, round, ..bare.clone() };
            if let Some(work) = work.filter(|_| ask == Ask::Reserve) {
                gang.priority = work.spec.priority;
                gang.request = work.request().map(|it| it.encode()).unwrap_or_default();
            }
            out.reliable.push((node, Body::Gang(gang)));
        }
    }

    /// All parts have joined: the task starts with the seat of the first part.
    fn start_gang(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let lead = &self.holder.gangs_mut().leads[&task];
        let (attempt, no_lock) = (lead.attempt, lead.starts_without_lock);
        if self.holder.staging.get(&task).is_none_or(|staged| staged.attempt != attempt) {
            // It was revoked meanwhile. Its part here keeps the seat until it is released.
            return self.fail_gang(task, attempt, out);
        }
        let line = &mut self.holder.gangs_mut().line;
        if no_lock {
            line.lock(now, task, attempt, 0);
            line.join(task, attempt);
        }
        let Some(seat) = line.take_seat(task, attempt) else {
            return self.fail_gang(task, attempt, out);
        };
        self.holder.staging.get_mut(&task).expect("looked at above").seat = Some(seat);
        let life_fits = {
            let staged = &self.holder.staging[&task];
            self.holder.life_fits(&staged.work)
        };
        if self.holder.stopping || !life_fits || self.holder.slots.is_paused() {
            return self.fail_gang(task, attempt, out);
        }
        self.start_whole(now, task, out);
    }

    /// Starts the first part of a gang that has all its nodes. A suspect of crashes waits until
    /// nothing else runs here, and nothing else starts meanwhile.
    fn start_whole(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let Some(staged) = self.holder.staging.get(&task) else { return };
        let is_ready =
            staged.seat.is_some() && staged.start_permission == StartPermission::NotNeeded;
        if !is_ready {
            return;
        }
        if staged.work.alone && !self.is_alone(task) {
            if !self.holder.start_requests.any_exclusive() {
                self.holder.start_requests.set_exclusive(task);
            }
            return;
        }
        match self.needs_start_permission(task) {
            true => self.request_start(now, task, out),
            false => self.start_staged(now, task, out),
        }
    }

    /// Whether nothing but this task runs here or is about to. Another gang that waits to run alone
    /// is not: one of them has to be the first.
    fn is_alone(&self, task: TaskId) -> bool {
        let waits = |other: TaskId, staged: &Staged| {
            let may_start = staged.start_permission == StartPermission::NotNeeded;
            staged.work.alone && may_start && self.holder.gathers_gang(other)
        };
        let mut staged = self.holder.staging.iter();
        self.holder.running.is_empty()
            && !staged.any(|(&other, it)| other != task && it.seat.is_some() && !waits(other, it))
    }

    /// The attempt ends without a strike, and its home begins the next one.
    fn fail_gang(&mut self, task: TaskId, attempt: Attempt, out: &mut Out) {
        self.release_gang(task, out);
        self.drop_task(task, attempt, out);
        self.report_dropped(task, attempt, out);
    }
    /// The node of another part is gone: the same, and the home learns why.
    fn lose_gang(&mut self, task: TaskId, attempt: Attempt, out: &mut Out) {
        self.release_gang(task, out);
        self.drop_task(task, attempt, out);
        self.report_not_held(task, attempt, RetryReason::MemberGone, out);
    }

    /// Frees all nodes of a gang.
    fn release_gang(&mut self, task: TaskId, out: &mut Out) {
        let Some(gangs) = &mut self.holder.gangs else { return };
        gangs.chosen_by.remove(&task);
        let Some(lead) = gangs.leads.remove(&task) else { return };
        if self.options.mutant == Some(Mutant::ReleaseForgotten) {
            return;
        }
        let asks = lead.members().map(|(node, ..)| (node, Ask::Release)).collect();
        self.send_asks((task, lead.attempt), asks, out);
    }

    /// Lets gangs out of the queues, chooses nodes, and gives this node to the oldest part.
    pub(crate) fn tend_gangs(&mut self, now: Time, out: &mut Out) {
        self.release_ended(out); // Before the next attempt of such a task gathers nodes.
        self.lead_more(now, out);
        if !self.holder.has_gangs() {
            return;
        }
        for task in self.led_tasks() {
            self.tend_lead(now, task, out);
        }
        self.settle_line(now, out);
        self.tell_parts(out);
        if self.holder.gangs_mut().is_empty() {
            self.holder.gangs = None;
        }
    }

    /// Takes gangs out of the queues.
    fn lead_more(&mut self, now: Time, out: &mut Out) {
        while !self.holder.stopping
            && (self.holder.local.has_requests() || self.holder.shared.has_requests())
        {
            let Some(next) = self.next_gang() else { return };
            let other = match place_for(next.stamp, &self.led(), GANGS_LED_MAX) {
                Place::Free => None,
                Place::OfLacking(task) => Some(task),
                Place::OfYounger(task) if self.has_room_for(next.stamp.task) => Some(task),
                Place::OfYounger(_) | Place::None => return,
            };
            if let Some(task) = other {
                self.fail_gang(task, self.holder.staging[&task].attempt, out);
            }
            let Some(ready) = self.holder.pop_gang(&next) else { return };
            let stage = (next.local, next.here);
            if self.take_and_stage(now, stage, ready, out) == StageOutcome::Stop {
                return;
            }
        }
    }

    /// The gangs that this node gathers nodes for.
    fn led(&self) -> Vec<Led> {
        let gangs = self.holder.gangs.as_ref();
        let staged = self.holder.staging.iter().filter(|(_, it)| it.work.is_gang());
        let led = staged.map(|(task, staged)| {
            let lead = gangs.and_then(|gangs| gangs.leads.get(task));
            let has_chosen = gangs.is_some_and(|gangs| gangs.chosen_by.contains_key(task));
            Led {
                stamp: Stamp::new(staged.work.spec.priority, *task),
                is_bound: lead.is_some_and(|lead| lead.phase != Phase::Gathering),
                lacks_nodes: has_chosen && lead.is_some_and(|it| it.members().next().is_none()),
            }
        });
        led.collect()
    }

    /// The first gang of the queues for which the cluster has enough nodes at present.
    fn next_gang(&mut self) -> Option<QueuedGang> {
        let epoch = self.routing.homes().map_epoch();
        let mut queued = self.holder.queued_gangs();
        queued.sort_unstable_by_key(|gang| gang.stamp);
        for gang in queued {
            let lacking = &self.holder.gangs_lacking;
            if lacking.as_ref().is_some_and(|it| it.0 == epoch && it.1.contains(&gang.class)) {
                continue;
            }
            let work = self.work_here(gang.stamp.task);
            let is_enough =
                work.is_none_or(|work| self.nodes_for(&work).len() >= work.spec.nodes as usize);
            if is_enough {
                return Some(gang);
            }
            let lacking = self.holder.gangs_lacking.get_or_insert_default();
            if lacking.0 != epoch {
                **lacking = (epoch, BTreeSet::new());
            }
            lacking.1.insert(gang.class);
        }
        None
    }

    fn led_tasks(&self) -> Vec<TaskId> {
        let gangs = self.holder.gangs.iter();
        gangs.flat_map(|gangs| gangs.leads.keys().copied()).collect()
    }

    /// Frees the nodes of gangs with attempts that neither wait here nor run.
    fn release_ended(&mut self, out: &mut Out) {
        for task in self.led_tasks() {
            let attempt = self.holder.gangs_mut().leads[&task].attempt;
            let running = self.holder.running.get(&task).filter(|it| it.attempt == attempt);
            let runs = running.is_some() && !self.objects.holds_end_back(&(task, attempt));
            if !runs && !self.is_staged(task, attempt) {
                self.release_gang(task, out);
            }
        }
    }

    fn is_staged(&self, task: TaskId, attempt: Attempt) -> bool {
        let staged = self.holder.staging.get(&task).filter(|it| it.attempt == attempt);
        staged.is_some_and(|it| it.start_permission != StartPermission::Overdue)
    }

    fn tend_lead(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let lead = &self.holder.gangs_mut().leads[&task];
        let (attempt, has_joined) = (lead.attempt, lead.has_joined());
        let lives: Vec<Life> = lead.members().map(|(node, life, _)| (node, life)).collect();
        if has_joined {
            let is_paused = self.holder.slots.is_paused() && self.is_staged(task, attempt);
            if lives.iter().any(|&life| self.is_life_over(life)) {
                self.lose_gang(task, attempt, out);
            } else if is_paused {
                self.fail_gang(task, attempt, out);
            } else {
                self.start_whole(now, task, out);
            }
            return;
        }
        self.choose_nodes(now, task, &lives, out);
    }

    /// Chooses nodes for a gang that has not joined, if something has changed.
    fn choose_nodes(&mut self, now: Time, task: TaskId, lives: &[Life], out: &mut Out) {
        let epoch = self.routing.homes().map_epoch();
        let gangs = self.holder.gangs_mut();
        let lead = &gangs.leads[&task];
        let attempt = lead.attempt;
        let is_due = lead.deadline().is_some_and(|at| at <= now);
        let same_map = gangs.chosen_by.get(&task) == Some(&epoch);
        if same_map && !is_due && !lives.iter().any(|&life| self.is_life_over(life)) {
            return;
        }
        let me = self.options.me;
        let nodes = self.nodes_for(&self.holder.staging[&task].work);
        let is_out = !nodes.contains(&me);
        let stopping = self.holder.stopping || is_out;
        if is_out && self.is_listed(me) && !self.holder.stopping && !nodes.is_empty() {
            // This node leaves, is paused or slow: another one leads. A node that the map does not
            // show yet waits: its home may have a newer map, and would choose it once more.
            return self.fail_gang(task, attempt, out);
        }
        // This node first, then those of its group that follow it.
        let nodes = self.of_own_group(nodes);
        let after = nodes.iter().filter(|&&node| node >= me);
        let fits = after.chain(nodes.iter().filter(|&&node| node < me));
        let fits: Vec<Life> = fits.filter(|_| !stopping).map(|&node| self.life_of(node)).collect();
        let mut asks = Asks::new();
        let gangs = self.holder.gangs_mut();
        gangs.chosen_by.insert(task, epoch);
        let lead = gangs.leads.get_mut(&task).expect("it is led here");
        lead.choose(now, &fits, &mut asks);
        self.send_asks((task, attempt), asks, out);
    }

    /// Gives this node to the oldest parts.
    fn settle_line(&mut self, now: Time, out: &mut Out) {
        let first_to_wait = self.holder.first_to_wait();
        let waiting_priority = self.holder.waiting_priority();
        let returns = self.holder.wants_seats();
        let closed = returns || self.holder.start_requests.any_exclusive();
        let frees = returns || self.holder.slots.is_paused();
        let Some(mut gangs) = self.holder.gangs.take() else { return };
        let mut slots = std::mem::replace(&mut self.holder.slots, Slots::new(0, None, None));
        let mut room = NodeRoom {
            slots: &mut slots,
            closed,
            frees,
            first_to_wait,
            waiting_priority,
            kept: gangs.kept,
            keeps: None,
        };
        let told = gangs.line.settle(now, &mut room, |life| self.is_life_over(life));
        gangs.kept = room.keeps;
        self.holder.slots = slots;
        self.holder.gangs = Some(gangs);
        send_answers(told, out);
    }

    /// Why there are too few nodes for a gang: too few fit, or some of these do not work now.
    pub(crate) fn explain_lack(&self, work: &Work) -> Option<String> {
        if !work.is_gang() {
            return None;
        }
        let homes = self.routing.homes();
        let all = homes.not_removed().count();
        let (group, fitting) = self.fitting_group(work);
        let has_groups = homes.not_removed().any(|node| self.group_of(node).is_some());
        let (at_once, in_group) = match (has_groups, group) {
            (false, _) => ("at once", String::new()),
            (true, None) => ("of one node group at once", " and have no group".to_owned()),
            (true, Some(group)) => {
                ("of one node group at once", format!(" in the largest group, {group}"))
            }
        };
        let (nodes, fit) = (work.spec.nodes as usize, fitting.len());
        let of = |is: &dyn Fn(NodeId) -> bool| -> Vec<NodeId> {
            fitting.iter().copied().filter(|&node| is(node)).collect()
        };
        let down = of(&|node| homes.is_gone(node));
        if fit < nodes {
            let these = if down.is_empty() { String::new() } else { named(&down, "down") + "; " };
            return (fit > 0).then(|| {
                format!(
                    "it needs {nodes} nodes {at_once}, and {fit} of the {all} nodes of the cluster \
                     fit{in_group}: {these}it waits for more to join"
                )
            });
        }
        let drained = of(&|node| !homes.is_gone(node) && homes.is_leaving(node));
        let slow = of(&|node| !homes.is_gone(node) && homes.is_slow(node));
        let paused = of(&|node| !homes.is_gone(node) && homes.is_paused(node));
        let lacking = |away: &[NodeId]| !away.is_empty() && fit - away.len() < nodes;
        if lacking(&paused) && down.is_empty() {
            let paused = paused.len();
            return Some(format!(
                "it needs {nodes} nodes {at_once}, and {paused} of the {fit} nodes that fit are \
                 paused: 'starling node resume' lets them work"
            ));
        }
        let away: BTreeSet<NodeId> =
            [&down, &drained, &slow, &paused].into_iter().flatten().copied().collect();
        let away: Vec<NodeId> = away.into_iter().collect();
        let states = [(&down, "down"), (&drained, "drained"), (&slow, "slow"), (&paused, "paused")];
        let states = states.into_iter().filter(|(nodes, _)| !nodes.is_empty());
        let states: Vec<String> = states.map(|(nodes, state)| named(nodes, state)).collect();
        lacking(&away).then(|| {
            let states = states.join(", ");
            format!("it needs {nodes} nodes {at_once}, and of the {fit} nodes that fit {states}")
        })
    }

    /// The reason why a gang waits here.
    pub(crate) fn explain_gang(&self, task: TaskId) -> Option<String> {
        let lead = self.holder.gangs.as_ref()?.leads.get(&task)?;
        if self.holder.is_whole(task) {
            return None;
        }
        let named = |of: fn(Grip) -> bool| {
            let nodes = lead.members().filter(|&(_, _, grip)| of(grip));
            nodes.map(|(node, ..)| node.to_string()).collect::<Vec<_>>().join(", ")
        };
        let held = named(|grip| grip != Grip::Asked);
        let asked = named(|grip| grip == Grip::Asked);
        let size = lead.size;
        let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
        match lead.members().next().is_none() {
            true => {
                let work = &self.holder.staging.get(&task)?.work;
                let fitting = self.nodes_for(work).len();
                let few =
                    || format!("it needs {size} nodes at once, and {fitting} that fit are there");
                Some(self.explain_lack(work).unwrap_or_else(few))
            }
            false => Some(format!(
                "it needs {size} nodes at once: it holds {}, and waits for {}",
                or_none(held),
                or_none(asked)
            )),
        }
    }
}

/// A list of nodes with their state.
fn named(nodes: &[NodeId], state: &str) -> String {
    const NAMED_MAX: usize = 8;
    let names: Vec<String> = nodes.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = match nodes.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let verb = if nodes.len() == 1 { "is" } else { "are" };
    format!("{}{more} {verb} {state}", names.join(", "))
}

fn send_answers(told: impl IntoIterator<Item = Told>, out: &mut Out) {
    use wire::GangStep as Step;
    for (leader, (task, attempt), answer) in told {
        let (step, round) = match answer {
            Answer::Held => (Step::GangHeld, 0),
            Answer::Revoked => (Step::GangRevoked, 0),
            Answer::Locked(round) => (Step::GangLocked, round),
            Answer::Refused(round) => (Step::GangRefused, round),
            Answer::Joined => (Step::GangJoined, 0),
        };
        let gang = wire::Gang {
            job: task.job.0,
            local: task.local.0,
            attempt: attempt.0,
            step: step as i32,
            round,
            ..Default::default()
        };
        out.reliable.push((leader, Body::Gang(gang)));
    }
}

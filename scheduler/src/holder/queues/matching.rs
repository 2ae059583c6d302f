//! Matching: which tasks may start with the free resources of this node, and the reservation for a
//! task that waits for more.
//!
//! The first task that does not fit reserves the pools that are short. Up to a number of starts,
//! others may still take of these pools; then nothing does until a task of the reserved class has
//! started. A pool stays reserved once it was short, so the wait is bounded: for each pool, by the
//! longest running task.

use std::cmp::Reverse;

use proto::{Attempt, NodeId, TaskId, wire};
use resources::{PoolSet, Request};

use crate::holder::Holder;
use crate::holder::gangs::line::Stamp;
use crate::holder::life::Life;
use crate::holder::queues::Precedence;
use crate::holder::queues::classes::{Class, Classes, class_of, is_gang_class, queue_class_of};
use crate::holder::queues::ready_queue::{Level, PLAIN, Ready};
use crate::holder::slots::{Need, Seat};
use crate::holder::staging::Staged;
use crate::holder::task::Work;
use crate::policy::rank;
use crate::{Mutant, Scheduler};

/// The number of tasks in line for a slot that are compared with the free resources.
pub(crate) const LINE_SCAN_MAX: usize = 256;
/// The number of tasks in line that wait for more free slots. Further tasks stay in their queue.
const LINE_BLOCKED_MAX: usize = 4;
/// The number of tasks per slot that may start before a reserved one and take the resources that it
/// lacks.
const PASSES_PER_SLOT: u32 = 2;
/// The number of offers that a refusal lists.
const OFFERS_SHOWN_MAX: usize = 4;

/// The reservation of a node: there is at most one.
#[derive(Debug)]
pub(crate) struct Reservation {
    class: u64,
    /// The place of the task for which it was made, among all that hold resources back.
    stamp: Stamp,
    /// The pools that were short since it was made.
    short: PoolSet,
    /// The starts since then that took something of these pools.
    passes: u32,
}

/// The first gang of a class in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedGang {
    pub(crate) stamp: Stamp,
    pub(crate) class: u64,
    /// It is in the local queue.
    pub(crate) local: bool,
    /// All its larger inputs are here.
    pub(crate) here: bool,
}

/// The next task of the line for slots.
pub(crate) enum InLine {
    Starts(TaskId),
    /// The first task runs alone: nothing else starts before it.
    Drains,
    /// No task of the line fits.
    NoneFits,
}

/// The needs of a task by its class.
fn need_of<'a>(
    classes: &'a Classes,
    life: Life,
    work: &Work,
    class: u64,
    mutant: Option<Mutant>,
) -> Need<'a> {
    if work.is_instant() {
        return Need::Nothing;
    }
    if !work.has_request() {
        return Need::Cpus(work.cpus());
    }
    let need = classes.get(class).map_or(Need::Never, |it| it.need(life));
    match need {
        Need::Never if mutant == Some(Mutant::ClassIgnored) => Need::Cpus(work.cpus()),
        need => need,
    }
}

impl Holder {
    /// The pools that a class may not take, because another one has reserved them.
    pub(crate) fn kept_from(&self, class: u64) -> PoolSet {
        let by_gang = self.kept_by_gang();
        match &self.reservation {
            Some(other) if other.class != class && other.passes >= self.passes_max() => {
                other.short.with(by_gang)
            }
            _ => by_gang,
        }
    }

    /// The place of a task that waits here for more than one cpu, among all that hold resources
    /// back: by the reservation, or because it runs alone.
    pub(crate) fn first_to_wait(&self) -> Option<Stamp> {
        let reserved = self.reservation.as_ref().filter(|own| own.class > 1).map(|own| own.stamp);
        let first = self.awaiting_slot.front();
        let alone = first.and_then(|&task| {
            let work = &self.staging.get(&task)?.work;
            work.alone.then(|| Stamp::new(work.spec.priority, task))
        });
        reserved.into_iter().chain(alone).min()
    }

    /// The highest priority of the tasks that could start here if no gang held this node.
    pub(crate) fn waiting_priority(&self) -> Option<i32> {
        let may = |class| !is_gang_class(class);
        let queued = [self.local.first_here(may), self.shared.first_here(may)];
        let queued = queued.into_iter().flatten().map(|((Reverse((priority, _)), _), _)| priority);
        let in_line = self.awaiting_slot.iter().take(LINE_SCAN_MAX);
        let in_line = in_line.filter_map(|task| Some(self.staging.get(task)?.work.spec.priority));
        queued.chain(in_line).max()
    }

    fn passes_max(&self) -> u32 {
        PASSES_PER_SLOT * self.slots.total()
    }

    /// Whether the reservation lets no task of one cpu start.
    pub(crate) fn keeps_cpus(&self) -> bool {
        (self.reservation.is_some() || self.has_gangs())
            && self.kept_from(PLAIN).meets(self.slots.cpus_set())
    }

    /// Whether the resources of a queued class are free. Of tasks without a request those of one
    /// cpu count.
    pub(crate) fn may_start_class(&self, class: u64) -> bool {
        if class == PLAIN {
            return !self.keeps_cpus();
        }
        self.slots.fits(self.need_of_class(class), self.kept_from(class))
    }

    pub(crate) fn need_of_class(&self, class: u64) -> Need<'_> {
        match u32::try_from(class) {
            Ok(cpus) => Need::Cpus(cpus.max(1)),
            Err(_) => self.classes.get(class).map_or(Need::Never, |it| it.need(self.life)),
        }
    }

    /// The first gang of each class in the queues.
    pub(crate) fn queued_gangs(&self) -> Vec<QueuedGang> {
        let mut all = Vec::new();
        for (local, queue) in [(true, &self.local), (false, &self.shared)] {
            let firsts = queue.firsts().filter(|(class, ..)| is_gang_class(*class));
            all.extend(firsts.map(|(class, here, (priority, task))| {
                let stamp = Stamp::new(priority, task);
                QueuedGang { stamp, class, local, here }
            }));
        }
        all
    }

    /// Takes a gang out of its queue.
    pub(crate) fn pop_gang(&mut self, gang: &QueuedGang) -> Option<Ready> {
        let queue = if gang.local { &mut self.local } else { &mut self.shared };
        match gang.here {
            true => queue.pop_here_of(gang.class),
            false => queue.pop_absent_of(gang.class),
        }
    }

    /// Whether a task of a class with a request is queued here with all larger inputs.
    fn has_here(&self, class: u64) -> bool {
        self.local.has_here(class) || self.shared.has_here(class)
    }

    /// Whether the resources of the reserved class are free, and a task of it is queued with all
    /// larger inputs here: the tasks in line do not keep it in its queue.
    pub(crate) fn reserved_may_start(&self) -> bool {
        let class = self.reservation.as_ref().map(|own| own.class);
        class.is_some_and(|class| self.has_here(class) && self.may_start_class(class))
    }

    /// A task of a class does not fit on the disk: nothing is reserved for it meanwhile.
    pub(crate) fn end_reservation_of(&mut self, class: u64) {
        if self.reservation.as_ref().is_some_and(|own| own.class == class) {
            self.reservation = None;
        }
    }

    /// The number of queued tasks of classes that may start.
    pub(crate) fn startable(&self) -> usize {
        let plain = self.local.plain() + self.shared.plain();
        if !self.local.has_requests() && !self.shared.has_requests() {
            return plain;
        }
        let classes = self.local.classes().chain(self.shared.classes());
        let startable =
            classes.filter(|&(class, _)| !is_gang_class(class) && self.may_start_class(class));
        plain + startable.map(|(_, tasks)| tasks).sum::<usize>()
    }

    /// Whether one more task of a class may be staged. Beyond those that fit the free resources,
    /// one is: the others stay in the queue, where thieves find them.
    fn may_stage(&self, class: u64, fits: bool) -> bool {
        if class == PLAIN {
            return true;
        }
        let staged = self.staging.values().filter(|it| it.class == class).count();
        let fit = |it: &Class| self.slots.fits_times(it.open_request(), it.need(self.life), staged);
        if self.waits_for_others(class) {
            return false; // A thief that offers its preferred variant may have it meanwhile.
        }
        staged == 0 || (fits && self.classes.get(class).is_some_and(fit))
    }

    /// The next task of the queues with an input to be fetched. True if it is local.
    pub(crate) fn pop_absent(&mut self) -> Option<(bool, Ready)> {
        let may = |class| {
            !is_gang_class(class)
                && self.may_stage(class, class == PLAIN || self.may_start_class(class))
        };
        let first = earlier(self.local.first_absent(may), self.shared.first_absent(may));
        let (local, (_, class)) = first?;
        let queue = if local { &mut self.local } else { &mut self.shared };
        queue.pop_absent_of(class).map(|ready| (local, ready))
    }

    pub(crate) fn need(&self, work: &Work) -> Need<'_> {
        need_of(&self.classes, self.life, work, class_of(&work.spec), self.mutant)
    }

    /// Whether the resources of a staged task are free.
    pub(crate) fn may_start(&self, staged: &Staged) -> bool {
        let need = need_of(&self.classes, self.life, &staged.work, staged.class, self.mutant);
        self.slots.fits(need, self.kept_from(staged.class))
    }

    /// Takes the resources of a task that may start.
    pub(crate) fn take_seat(&mut self, work: &Work, class: u64) -> Option<Seat> {
        let kept = self.kept_from(class);
        let need = need_of(&self.classes, self.life, work, class, self.mutant);
        let seat = self.slots.take(need, kept)?;
        match &mut self.reservation {
            Some(own) if own.class == class => self.reservation = None,
            Some(other) if self.slots.meets(&seat, other.short) => other.passes += 1,
            _ => {}
        }
        Some(seat)
    }

    /// A class is next and does not fit: unless another class has reserved, the short pools are
    /// reserved for it. Further pools are reserved once none of these is short: a task of one cpu
    /// that waits for a GPU keeps no cpu meanwhile.
    fn reserve(&mut self, class: u64, stamp: Stamp) {
        if self.reservation.as_ref().is_some_and(|other| other.class != class)
            || self.mutant == Some(Mutant::ReservationForgotten)
        {
            return;
        }
        let short = self.slots.short(self.need_of_class(class));
        if short.is_empty() {
            return;
        }
        match &mut self.reservation {
            Some(own) if short.meets(own.short) => {}
            Some(own) => own.short = own.short.with(short),
            None => {
                let passes = 0;
                self.reservation = Some(Box::new(Reservation { class, stamp, short, passes }));
            }
        }
    }

    /// Ends the reservation of a class if no task of it has its inputs here; notes further short
    /// pools.
    pub(crate) fn check_reservation(&mut self) {
        let Some((class, stamp)) = self.reservation.as_ref().map(|own| (own.class, own.stamp))
        else {
            return;
        };
        let in_line =
            |task: &TaskId| self.staging.get(task).is_some_and(|staged| staged.class == class);
        let is_here = self.has_here(class) || self.awaiting_slot.iter().any(in_line);
        match is_here && !self.waits_for_others(class) {
            true => self.reserve(class, stamp),
            false => self.reservation = None,
        }
    }

    /// The first task of the line that fits. The first that does not fit reserves.
    pub(crate) fn next_in_line(&mut self) -> InLine {
        while let Some(task) = self.awaiting_slot.front() {
            if self.staging.contains_key(task) {
                break;
            }
            self.awaiting_slot.pop_front();
        }
        let busy = self.slots.free() < self.slots.total();
        let (mut starts, mut blocked) = (None, None);
        for (at, task) in self.awaiting_slot.iter().take(LINE_SCAN_MAX).enumerate() {
            let Some(staged) = self.staging.get(task) else { continue };
            if busy && staged.work.alone {
                if at == 0 {
                    return InLine::Drains;
                }
                continue;
            }
            if self.may_start(staged) {
                starts = Some(at);
                break;
            }
            let stamp = || Stamp::new(staged.work.spec.priority, *task);
            blocked.get_or_insert_with(|| (staged.class, stamp()));
        }
        if let Some((class, stamp)) = blocked {
            self.reserve(class, stamp);
        }
        match starts.and_then(|at| self.awaiting_slot.remove(at)) {
            Some(task) => InLine::Starts(task),
            None => InLine::NoneFits,
        }
    }

    /// Whether the line is long enough, although none of its tasks fits.
    pub(crate) fn waits_in_line(&self) -> bool {
        self.awaiting_slot.len().saturating_sub(self.parked()) >= LINE_BLOCKED_MAX
    }

    /// Whether some task of the line fits.
    pub(crate) fn line_may_start(&self) -> bool {
        let fits = |task| self.staging.get(task).is_some_and(|it| self.may_start(it));
        self.awaiting_slot.iter().take(LINE_SCAN_MAX).any(fits)
    }

    /// Whether some task of the line is about to start.
    pub(crate) fn line_starts(&self) -> bool {
        let first = self.awaiting_slot.front().and_then(|task| self.staging.get(task));
        let drains = first.is_some_and(|it| it.work.alone) && self.slots.busy() > 0;
        self.slots.free() > 0 && !drains && self.line_may_start()
    }

    /// The number of tasks in line that wait for resources of their request: no other task waits
    /// for these.
    pub(crate) fn parked(&self) -> usize {
        if self.reservation.is_none() && self.classes.next_opening().is_none() {
            return 0;
        }
        let is_parked = |task: &&TaskId| {
            let staged = self.staging.get(task);
            staged.is_some_and(|it| it.work.has_request() && !self.may_start(it))
        };
        self.awaiting_slot.iter().take(LINE_SCAN_MAX).filter(is_parked).count()
    }

    /// The next task of the queues with all inputs here, of those that fit; `reserved`: of those of
    /// the reserved class. True if it is local.
    pub(crate) fn pop_here(&mut self, reserved: bool) -> Option<(bool, Ready)> {
        // On most nodes no task has a request, and only one queue has tasks.
        let is_plain = self.reservation.is_none() && !reserved && !self.prefers();
        if is_plain && self.local.is_empty() && !self.shared.has_requests() {
            return self.shared.pop_here_of(PLAIN).map(|ready| (false, ready));
        }
        if is_plain && self.shared.is_empty() && !self.local.has_requests() {
            return self.local.pop_here_of(PLAIN).map(|ready| (true, ready));
        }
        if self.local.has_requests() || self.shared.has_requests() {
            let may = |class| !is_gang_class(class);
            let first = earlier(self.local.first_here(may), self.shared.first_here(may));
            if let Some((local, (_, class))) = first.filter(|(_, it)| !self.may_start_class(it.1)) {
                let queue = if local { &self.local } else { &self.shared };
                if let Some((priority, task)) = queue.next_here_of(class) {
                    self.reserve(class, Stamp::new(priority, task));
                }
            }
        }
        let own = self.reservation.as_ref().map(|own| own.class);
        let may = |class| match reserved {
            true => own == Some(class) && self.may_take(class, false),
            false => self.may_take(class, true),
        };
        let (local, (place, class)) =
            earlier(self.local.first_here(may), self.shared.first_here(may))?;
        if self.prefers() && !reserved && !self.reserved_may_start() {
            return self.pop_preferred(Level::of(place.0));
        }
        let queue = if local { &mut self.local } else { &mut self.shared };
        queue.pop_here_of(class).map(|ready| (local, ready))
    }

    /// Whether a task of a class is taken from the queues. `never`: also one that never fits, which
    /// staging reports to its home.
    pub(crate) fn may_take(&self, class: u64, never: bool) -> bool {
        let is_never =
            || never && class != PLAIN && matches!(self.need_of_class(class), Need::Never);
        let starts = || self.may_start_class(class) && self.may_stage(class, true);
        !is_gang_class(class) && (is_never() || starts())
    }

    /// Whether an empty node with the resources of this one could run the task.
    pub(crate) fn fits_here(&self, work: &Work) -> bool {
        if !work.has_request() {
            return work.cpus() <= self.slots.total();
        }
        self.slots.total() > 0 && !matches!(self.need(work), Need::Never)
    }
}

impl Scheduler {
    /// The entry of a task for a ready queue.
    pub(crate) fn ready(&mut self, task: TaskId, attempt: Attempt, work: &Work) -> Ready {
        self.note_class(work);
        let input_bytes = work.input_bytes();
        self.policy.note_placed(input_bytes, work.cpus());
        // Gangs take their turns by the age of their jobs, also one that was here before.
        let rank = match work.is_gang() {
            true => u64::MAX - task.job.0,
            false => rank(self.options.tuning.order, work, self.routing.homes().slots_all()),
        };
        let priority = work.spec.priority;
        Ready { task, attempt, rank, priority, class: queue_class_of(&work.spec) }
    }

    /// As [`Self::ready`], for a task that was not here before: the first one of its class here
    /// begins to wait for its preferred variant.
    pub(crate) fn arriving(&mut self, task: TaskId, attempt: Attempt, work: &Work) -> Ready {
        let ready = self.ready(task, attempt, work);
        self.holder.note_arrival(ready.class);
        ready
    }

    /// As [`Self::ready`], for a task that did not fit: several cpus have a queue of their own,
    /// which it leaves when it fits here or a thief that it fits.
    pub(crate) fn ready_apart(&mut self, task: TaskId, attempt: Attempt, work: &Work) -> Ready {
        let ready = self.ready(task, attempt, work);
        if ready.class != PLAIN || work.cpus() == 1 || work.is_instant() {
            return ready;
        }
        self.prepare_class(work);
        Ready { class: class_of(&work.spec), ..ready }
    }

    /// The input bytes of a task in a queue of this node.
    pub(crate) fn queued_input_bytes(&self, task: TaskId) -> u64 {
        let sum = |bytes: u64, input: &wire::InputAt| bytes.saturating_add(input.size_bytes);
        match self.holder.remote_tasks.get(&task) {
            Some(remote) => remote.work.inputs.iter().fold(0, sum),
            None => self.home.ledger.inputs(task).fold(0, sum),
        }
    }

    /// Prepares the request of a task that arrives here.
    pub(crate) fn note_class(&mut self, work: &Work) {
        if work.has_request() {
            self.prepare_class(work);
        }
    }
    fn prepare_class(&mut self, work: &Work) {
        let (local, shared, staging) =
            (&self.holder.local, &self.holder.shared, &self.holder.staging);
        let is_staged = |class| staging.values().any(|it| it.class == class);
        let keep = |class| local.has_class(class) || shared.has_class(class) || is_staged(class);
        let at = (self.holder.life.now(), &self.holder.slots, self.routing.homes());
        self.holder.classes.note(work, at, keep);
    }

    /// Whether the offer of a member is enough for the task, and its life long enough. A drained
    /// node starts no task that it would have to move.
    pub(crate) fn offers_enough(&self, node: NodeId, work: &Work) -> bool {
        self.offers_ever(node, work)
            && self.outlives(node, work.time_request())
            && !self.would_move(node, work)
    }
    /// Whether the offer of a member is enough for the task, however long the member lives.
    pub(crate) fn offers_ever(&self, node: NodeId, work: &Work) -> bool {
        match work.has_request() {
            false => self.routing.homes().slots_of(node) >= work.cpus(),
            true => {
                let class = self.holder.classes.get(class_of(&work.spec));
                let kind = self.routing.homes().kind_of(node);
                self.routing.homes().slots_of(node) > 0
                    && class.is_some_and(|class| class.fits_kind(kind))
            }
        }
    }
    /// Whether the task can be sent to the node.
    pub(crate) fn fits_node(&self, node: NodeId, work: &Work) -> bool {
        match work.has_request() {
            false => self.routing.homes().fits(node, work.cpus()),
            true => self.routing.homes().fits(node, 1) && self.offers_enough(node, work),
        }
    }
    /// Whether no member offers enough, away or not.
    pub(crate) fn fits_nowhere(&self, work: &Work) -> bool {
        if !work.has_request() {
            return work.cpus() > self.options.slots.max(self.routing.homes().slots_max());
        }
        let mut members = self.routing.homes().not_removed();
        !self.holder.fits_here(work) && !members.any(|node| self.offers_ever(node, work))
    }

    /// The reason why no member runs a request, with the offers of the members.
    pub(crate) fn no_offer(&self, request: &Request) -> String {
        let all: Vec<NodeId> = self.routing.homes().not_removed().collect();
        let offers = self.offers_of(&all);
        format!("it asks for {request}, and no node offers that: {offers}")
    }

    /// The offers of these members: equal ones once.
    pub(crate) fn offers_of(&self, members: &[NodeId]) -> String {
        let mut offers: Vec<String> = Vec::new();
        let mut further = 0;
        for (kind, offer) in self.routing.homes().kinds().iter().enumerate() {
            let of_kind = |&&node: &&NodeId| self.routing.homes().kind_of(node) == kind;
            let nodes = members.iter().filter(of_kind);
            let nodes: Vec<String> = nodes.map(|node| node.to_string()).collect();
            if nodes.is_empty() {
                continue;
            }
            if offers.len() == OFFERS_SHOWN_MAX {
                further += nodes.len();
                continue;
            }
            let shown = nodes.iter().take(OFFERS_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
            let more = nodes.len().saturating_sub(OFFERS_SHOWN_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let verb = if nodes.len() > 1 { "offer" } else { "offers" };
            offers.push(format!("{shown}{more} {verb} {offer}"));
        }
        if further > 0 {
            offers.push(format!("{further} further nodes"));
        }
        offers.join("; ")
    }

    /// The resources for which a task waits here, if it asks for more than one cpu.
    pub(crate) fn explain_short(&self, work: &Work) -> Option<String> {
        if work.has_request() {
            return self.explain_request(work);
        }
        let (cpus, slots) = (work.cpus(), self.holder.slots());
        let (me, free, total) = (self.options.me, slots.free(), slots.total());
        let verb = if free == 1 { "is" } else { "are" };
        (cpus > 1 && cpus > free)
            .then(|| format!("it asks for {cpus} cpus; {free} of {total} {verb} free on node {me}"))
    }

    /// The reason why a queued task with a request waits here.
    pub(crate) fn explain_request(&self, work: &Work) -> Option<String> {
        if let Some(ends) = self.explain_end(work) {
            return Some(ends);
        }
        let number = class_of(&work.spec);
        let class = self.holder.classes.get(number)?;
        if let Some(waits) = self.explain_patience(class) {
            return Some(waits);
        }
        let homes = self.routing.homes();
        let fitting = |node: &NodeId| {
            self.offers_enough(*node, work) && class.fits_kind_now(homes.kind_of(*node))
        };
        let all = homes.living().count();
        let fit = homes.living().filter(fitting).count();
        let short = self.holder.slots.names(self.holder.slots.short(class.need(self.holder.life)));
        if short.is_empty() {
            let kept = self.holder.kept_from(number);
            if kept.is_empty() {
                return None;
            }
            let kept: Vec<String> =
                self.holder.slots.names(kept).iter().map(ToString::to_string).collect();
            let kept = kept.join(", ");
            return Some(format!("it waits for {kept}: reserved for a task that waits longer"));
        }
        let short: Vec<String> = short.iter().map(ToString::to_string).collect();
        let refusal = self.holder.slots.refusal(class.open_request());
        let here = refusal.map_or(String::new(), |refusal| format!("; here {refusal}"));
        let short = short.join(", ");
        let opens = self.explain_opening(class).map_or(String::new(), |opens| format!("; {opens}"));
        Some(format!("it waits for {short}: {fit} of {all} nodes offer enough{here}{opens}"))
    }
}

/// The first of two queues' heads: the local one, unless the shared one has a higher priority.
fn earlier(
    local: Option<(Precedence, u64)>,
    shared: Option<(Precedence, u64)>,
) -> Option<(bool, (Precedence, u64))> {
    let priority = |&((Reverse((priority, _)), _), _): &(Precedence, u64)| priority;
    match (local, shared) {
        (Some(local), Some(shared)) if priority(&shared) > priority(&local) => {
            Some((false, shared))
        }
        (Some(local), _) => Some((true, local)),
        (None, shared) => shared.map(|shared| (false, shared)),
    }
}

//! Fetches objects to this node, from their maker or from a copy, once each for all their readers.

use std::sync::Arc;

use proto::work::{Fetch, FetchError, Outcome, Stay};
use proto::{Event, NodeId, ObjectId, Span, TaskId, Time, wire};

use crate::holder::staging::inputs::InputArrived;
use crate::home::ledger::Job;
use crate::limits::{
    COPY_REPORTED_BYTES_MIN, FETCH_ABSENCES_MAX, FETCH_RETRY_MAX, FETCH_RETRY_START,
    FETCH_TRIES_MAX, FETCH_TRIES_REBUILT_MAX, FETCHES_AHEAD_IN_FLIGHT_MAX,
    FETCHES_AHEAD_WAITING_MAX, LOCATE_TIMEOUT_MAX, LOCATE_WAITS, STEP_POPS_MAX,
};
use crate::objects::Objects;
use crate::objects::data::{Reads, Settings, wire_object};
use crate::objects::limits::LOCATE_TIMEOUT;
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// The number of tries while a copy is known that may become available.
const FETCH_TRIES_COPY_KNOWN_MAX: u32 = 256;

/// The timeout of a query for copies grows with the transfer time of the object by this factor, up
/// to `LOCATE_TIMEOUT_MAX`, because readers queue for a source.
const LOCATE_MOVES: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The home of the object is asked for a source.
    Locating,
    /// All sources are busy; the home reports when one is free.
    Waiting,
    Moving,
    /// A fetch failed; the next try follows after a pause.
    Pausing,
}

/// An object that is being fetched.
#[derive(Debug)]
pub(crate) struct InflightFetch {
    /// Staged tasks that wait for the object.
    pub(crate) tasks: Vec<TaskId>,
    /// The task for which the fetch began; `None` if it began early.
    pub(crate) first: Option<TaskId>,
    pub(crate) maker: NodeId,
    pub(crate) from: NodeId,
    pub(crate) size_bytes: u64,
    /// The number of the last fetch begun for the object, and all fetches that have not ended.
    number: u64,
    attempts: Vec<FetchAttempt>,
    settings: Settings,
    real: bool,
    /// Only one task reads the object.
    single: bool,
    /// Set if the object is stored as if made here; the value tells whether it outlives its job.
    taken: Option<Stay>,
    pub(crate) phase: Phase,
    pub(crate) tries: u32,
    /// How often the object's home was asked again while all sources were busy.
    waits: u32,
    /// Whether the maker has answered that it does not have the object. How often it did so after
    /// the home had named no copy. Whether the home has named none since the last time.
    was_absent: bool,
    absences: u32,
    home_answered: bool,
    /// The maker could not deliver the object. Until it arrives it does not delay other tasks.
    pub(crate) has_failed: bool,
    /// The node that is asked for copies, and whether it named one at its last answer.
    pub(crate) home: Option<NodeId>,
    pub(crate) copy_known: bool,
    /// When the object was requested.
    asked: Time,
    timer: Option<Time>,
}

/// A fetch that has not ended, as far as is known.
#[derive(Debug)]
struct FetchAttempt {
    number: u64,
    from: NodeId,
    at: Time,
}

/// An input of a wide fan-in that may be fetched before the task is ready.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) object: ObjectId,
    pub(crate) child: TaskId,
    pub(crate) maker: NodeId,
    pub(crate) size_bytes: u64,
    /// The number of tasks that read the object; 0: not known.
    pub(crate) readers: u32,
}

/// A request for an object.
#[derive(Debug)]
pub(crate) struct FetchRequest<'a> {
    pub(crate) object: ObjectId,
    pub(crate) maker: NodeId,
    pub(crate) size_bytes: u64,
    /// The number of tasks that read the object; 0: not known.
    pub(crate) readers: u32,
    pub(crate) settings: &'a Settings,
    /// See [`Fetch::taken`].
    pub(crate) taken: Option<Stay>,
}

impl InflightFetch {
    /// Whether a task waits with it for a free source. Fetches that began before their tasks were
    /// ready are counted apart.
    pub(crate) fn lacks_source(&self) -> bool {
        self.phase == Phase::Waiting && self.first.is_some()
    }
    /// See [`InflightFetch::taken`].
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }
}

impl Objects {
    pub(crate) fn set_timer(&mut self, object: ObjectId, at: Option<Time>) {
        let Some(inflight) = self.inflight_fetches.get_mut(&object) else { return };
        if let Some(old) = std::mem::replace(&mut inflight.timer, at) {
            self.timers.remove(&(old, object));
        }
        self.timers.extend(at.map(|at| (at, object)));
    }

    pub(crate) fn fetch_from(&mut self, now: Time, object: ObjectId, from: NodeId, out: &mut Out) {
        self.set_timer(object, None);
        let Some(inflight) = self.inflight_fetches.get_mut(&object) else { return };
        self.waiting -= usize::from(inflight.lacks_source());
        self.fetches += 1;
        inflight.phase = Phase::Moving;
        inflight.from = from;
        inflight.number = self.fetches;
        inflight.attempts.push(FetchAttempt { number: inflight.number, from, at: now });
        let (settings, taken) = (Arc::clone(&inflight.settings), inflight.taken);
        let (number, size_bytes) = (inflight.number, inflight.size_bytes);
        out.fetches.push(Fetch { object, number, from, size_bytes, settings, taken });
    }

    /// Schedules a retry; the delay doubles with each failure.
    fn try_later(&mut self, now: Time, object: ObjectId) {
        let Some(inflight) = self.inflight_fetches.get_mut(&object) else { return };
        self.waiting -= usize::from(inflight.lacks_source());
        inflight.phase = Phase::Pausing;
        let pause = FETCH_RETRY_START.doubled_times(inflight.tries.min(16)).min(FETCH_RETRY_MAX);
        self.set_timer(object, Some(now + pause));
    }
}

impl Scheduler {
    /// Begins to fetch an object.
    pub(crate) fn start_inflight_fetch(
        &mut self,
        now: Time,
        request: &FetchRequest<'_>,
        first: Option<TaskId>,
        out: &mut Out,
    ) {
        let &FetchRequest { object, maker, size_bytes, .. } = request;
        let me = self.options.me;
        let home = self.home_of_object(&object);
        // Other nodes may have a copy of an object that several tasks read.
        let shared = size_bytes >= COPY_REPORTED_BYTES_MIN && request.readers != 1 && maker != me;
        let orphan = self.is_dead(maker);
        let asked = home.filter(|_| orphan || (shared && self.routing.homes().nodes() > 2));
        let inflight = InflightFetch {
            tasks: first.into_iter().collect(),
            first,
            maker,
            from: maker,
            size_bytes,
            number: 0,
            attempts: Vec::new(),
            settings: request.settings.clone(),
            real: request.settings.real_data,
            single: request.readers == 1,
            taken: request.taken,
            phase: if asked.is_some() { Phase::Locating } else { Phase::Moving },
            tries: 0,
            waits: 0,
            was_absent: false,
            absences: 0,
            home_answered: false,
            has_failed: false,
            home: asked,
            copy_known: false,
            asked: now,
            timer: None,
        };
        self.objects.ahead_in_flight += usize::from(first.is_none());
        self.objects.reserved_bytes += size_bytes;
        self.objects.coming_bytes += size_bytes;
        self.holder.note_job(object.task.job, 0);
        self.objects.inflight_fetches.insert(object, inflight);
        match asked {
            Some(_) if orphan => self.look_for_copies(now, object, out),
            Some(home) => self.ask_directory(now, object, home, out),
            None => self.objects.fetch_from(now, object, maker, out),
        }
        self.object_changed(&object);
    }

    /// Asks the home of the object for a source.
    pub(crate) fn ask_directory(
        &mut self,
        now: Time,
        object: ObjectId,
        home: NodeId,
        out: &mut Out,
    ) {
        let Some(inflight) = self.objects.inflight_fetches.get_mut(&object) else { return };
        self.objects.waiting -= usize::from(inflight.lacks_source());
        (inflight.phase, inflight.home) = (Phase::Locating, Some(home));
        let size_bytes = inflight.size_bytes;
        let objects = &mut out.locate.entry(home).or_default().objects;
        objects.push(wire_object(object, size_bytes));
        self.objects.set_timer(object, Some(now + self.locate_timeout(size_bytes)));
    }

    /// Removes a fetch from the list, whatever its result.
    pub(crate) fn end_inflight_fetch(&mut self, object: &ObjectId) -> Option<InflightFetch> {
        self.objects.set_timer(*object, None);
        let inflight = self.objects.inflight_fetches.remove(object)?;
        self.objects.ahead_in_flight -= usize::from(inflight.first.is_none());
        self.objects.waiting -= usize::from(inflight.lacks_source());
        self.objects.reserved_bytes -= inflight.size_bytes;
        self.objects.coming_bytes -= inflight.size_bytes;
        if inflight.has_failed {
            self.objects.failed_fetch_bytes -= inflight.size_bytes;
            for task in &inflight.tasks {
                self.unstall(*task, object);
            }
        }
        Some(inflight)
    }

    /// How long an asker waits for a source, and how long the home counts it as a node that
    /// fetches.
    pub(crate) fn locate_timeout(&self, size_bytes: u64) -> Span {
        let bandwidth =
            self.policy.estimates().bandwidth(self.options.tuning.bandwidth_bytes_per_s);
        let moving_ns = (size_bytes as f64 / bandwidth * 1e9) as u64;
        let waits = LOCATE_TIMEOUT.0.saturating_add(moving_ns.saturating_mul(LOCATE_MOVES));
        Span(waits).min(LOCATE_TIMEOUT_MAX)
    }

    /// A home names sources of objects.
    pub(crate) fn on_located(&mut self, now: Time, located: &wire::Located, out: &mut Out) {
        for at in &located.objects {
            let Some(object) = at.object.as_ref().map(crate::objects::data::object_id) else {
                continue;
            };
            let Some(inflight) = self.objects.inflight_fetches.get(&object) else { continue };
            let (me, members, maker) =
                (self.options.me, self.routing.homes().nodes(), inflight.maker);
            let sources = at.nodes.iter().map(|&node| NodeId(node));
            let mut sources = sources.filter(|&node| node != me && (node.0 as usize) < members);
            let first = sources.next();
            // A source that has failed according to the map here may soon have failed according to
            // the home's map too, or be back: then the home names it again.
            let may_be_back = inflight.tries > 1;
            let source = first.filter(|&source| may_be_back || !self.is_dead(source));
            // A late answer is useful if it names a copy.
            let names_a_copy = source.is_some_and(|source| source != maker);
            let is_late = inflight.phase == Phase::Pausing && !at.later && names_a_copy;
            if !matches!(inflight.phase, Phase::Locating | Phase::Waiting) && !is_late {
                continue;
            }
            if at.later {
                let until = now + self.locate_timeout(inflight.size_bytes);
                if let Some(inflight) = self.objects.inflight_fetches.get_mut(&object) {
                    let lacked = inflight.lacks_source();
                    inflight.phase = Phase::Waiting;
                    let lacks = inflight.lacks_source() && !lacked;
                    self.objects.waiting += usize::from(lacks);
                }
                self.objects.set_timer(object, Some(until));
                continue;
            }
            if source.is_none() && first.is_some() {
                self.objects.try_later(now, object);
                continue;
            }
            if source.is_none() && self.is_dead(maker) {
                self.input_gone(now, object, out);
                continue;
            }
            let source = source.unwrap_or(maker);
            if let Some(inflight) = self.objects.inflight_fetches.get_mut(&object) {
                inflight.copy_known = source != maker;
                inflight.home_answered = source == maker;
            }
            self.objects.fetch_from(now, object, source, out);
        }
    }

    /// Handles the fetches with due timers.
    pub(crate) fn retry_fetches(&mut self, now: Time, out: &mut Out) {
        self.objects.assign_free_sources(now, out);
        while let Some(&(at, object)) = self.objects.timers.first()
            && at <= now
        {
            self.objects.timers.remove(&(at, object));
            let home = self.home_of_object(&object);
            let Some(inflight) = self.objects.inflight_fetches.get_mut(&object) else { continue };
            inflight.timer = None;
            // The partition may have moved since the home was asked last.
            inflight.home = inflight.home.map(|known| home.unwrap_or(known));
            let (maker, size_bytes) = (inflight.maker, inflight.size_bytes);
            if self.is_dead(maker) {
                self.look_for_copies(now, object, out);
                continue;
            }
            let Some(inflight) = self.objects.inflight_fetches.get_mut(&object) else { continue };
            // The home's report may get lost: it is asked again, and this node keeps its place.
            if inflight.phase == Phase::Waiting
                && inflight.waits < LOCATE_WAITS
                && let Some(home) = inflight.home
            {
                inflight.waits += 1;
                self.ask_directory(now, object, home, out);
                continue;
            }
            // Copies and the maker are tried by turns: either of them may never return.
            if inflight.phase == Phase::Pausing
                && (inflight.was_absent || !inflight.tries.is_multiple_of(2))
                && let Some(home) = inflight.home
            {
                inflight.phase = Phase::Locating;
                let copies = &mut out.locate.entry(home).or_default().copies_only;
                copies.push(wire_object(object, size_bytes));
                self.objects.set_timer(object, Some(now + self.locate_timeout(size_bytes)));
                continue;
            }
            self.objects.fetch_from(now, object, maker, out);
        }
        self.fetch_ahead(now, out);
    }

    /// The fetch with this number has ended.
    pub fn on_fetched(
        &mut self,
        now: Time,
        object: ObjectId,
        number: u64,
        result: Result<(), FetchError>,
        out: &mut Out,
    ) {
        let Some(inflight) = self.objects.inflight_fetches.get_mut(&object) else {
            // No task waits for the object any more.
            if result.is_ok()
                && self.objects.presence(&object)
                    == crate::holder::queues::ready_queue::Presence::Absent
            {
                out.evicted.push(object);
            }
            return;
        };
        // A copy that a fetch of an earlier flight brought may be evicted before this flight's
        // fetch begins.
        let attempt = inflight.attempts.iter().position(|attempt| attempt.number == number);
        let Some(attempt) = attempt.map(|at| inflight.attempts.remove(at)) else { return };
        let is_last = inflight.number == number && inflight.phase == Phase::Moving;
        match result {
            // The object may have been requested from another node meanwhile: the first success
            // counts.
            Ok(()) => self.arrived(now, object, &attempt, out),
            Err(error) if is_last => self.fetch_failed(now, object, &error, out),
            Err(_) => {}
        }
    }

    fn arrived(&mut self, now: Time, object: ObjectId, attempt: &FetchAttempt, out: &mut Out) {
        let inflight = self.end_inflight_fetch(&object).expect("it was in transfer");
        let InflightFetch { maker, size_bytes, real, taken, .. } = inflight;
        let from = attempt.from;
        if maker == self.options.me && from == maker {
            // An earlier incarnation made it. Whether it must be kept is not known, so it is.
            self.objects.table.made(object, size_bytes, real, true);
        } else {
            let kind = (inflight.first.is_none(), inflight.single);
            match taken {
                Some(stay) => self.objects.table.take(object, size_bytes, real, stay),
                None => self.objects.table.copied(object, size_bytes, real, kind),
            }
            self.objects.totals.brought_bytes += size_bytes;
            // Some of the objects taken over need no transfer: an uploaded file is here already.
            if taken.is_none() {
                self.policy.note_transfer(from, size_bytes, now.since(attempt.at));
                self.objects.fetched(now.since(inflight.asked));
            }
            if size_bytes >= COPY_REPORTED_BYTES_MIN
                && taken.is_none()
                && let Some(home) = self.home_of_object(&object)
            {
                let copies = out.copies.entry(home).or_default();
                copies.added.push(wire_object(object, size_bytes));
            }
        }
        // Every task gets the object before one of them continues. That task may have lost another
        // input, and an object without a pin may be evicted.
        let mut waiting = inflight.tasks;
        waiting.retain(|&task| {
            let first = inflight.first == Some(task);
            self.take_input(now, task, object, first.then_some(from), out)
        });
        for task in waiting {
            self.inputs_settled(now, task, out);
        }
        self.object_changed(&object);
        self.evict(self.options.tuning.store_hard_bytes, out);
        self.check_transfer((object.task, object.attempt), out);
    }

    /// Returns false if the task does not wait for the object any more.
    fn take_input(
        &mut self,
        now: Time,
        task: TaskId,
        object: ObjectId,
        from: Option<NodeId>,
        out: &mut Out,
    ) -> bool {
        let pin = |object| self.objects.table.pin(object);
        let Some(arrived) = self.holder.input_arrived(task, object, pin) else { return false };
        let InputArrived { attempt, since, bytes } = arrived;
        if let Some(from) = from {
            let took = now.since(since);
            out.events.push(Event::Fetched { task, attempt, from, bytes, took });
        }
        true
    }

    fn fetch_failed(&mut self, now: Time, object: ObjectId, error: &FetchError, out: &mut Out) {
        let Some(inflight) = self.objects.inflight_fetches.get(&object) else { return };
        let (maker, from) = (inflight.maker, inflight.from);
        let waits = |task: &TaskId| {
            self.holder.staging().get(task).is_some_and(|staged| staged.misses(&object))
        };
        let wanted = inflight.tasks.iter().any(waits);
        let blind = self.options.mutant == Some(Mutant::NoFetchFallback);
        if !wanted {
            self.end_inflight_fetch(&object);
            self.object_changed(&object);
            return;
        }
        // The home may know before this node that the maker is back: then the maker is tried again.
        if self.is_dead(maker) && from != maker {
            self.look_for_copies(now, object, out);
            return;
        }
        if from != maker && !blind {
            // The copy may have been evicted meanwhile; the maker has the object.
            self.objects.fetch_from(now, object, maker, out);
            return;
        }
        let home = self.home_of_object(&object);
        let inflight = self.objects.inflight_fetches.get_mut(&object).expect("looked at above");
        inflight.tries += 1;
        if *error == FetchError::NotThere {
            // In between its home is asked for copies, whatever the size. The outputs of a leaving
            // node may lie elsewhere by now, and their home may be moving.
            let answered = std::mem::take(&mut inflight.home_answered);
            inflight.absences += u32::from(answered);
            inflight.was_absent = true;
            inflight.home = inflight.home.or(home);
        }
        let tries = inflight.tries;
        let is_there = inflight.absences < FETCH_ABSENCES_MAX
            || (inflight.copy_known && !self.routing.homes().moves());
        let tries_max = match inflight.copy_known {
            _ if self.routing.homes().moves() => FETCH_TRIES_REBUILT_MAX,
            true => FETCH_TRIES_COPY_KNOWN_MAX,
            false => FETCH_TRIES_MAX,
        };
        if tries < tries_max && is_there && !(blind && from != maker) {
            self.stall(object);
            self.objects.try_later(now, object);
            return;
        }
        if self.routing.homes().moves() {
            self.input_gone(now, object, out);
            return;
        }
        let tasks =
            self.end_inflight_fetch(&object).map(|inflight| inflight.tasks).unwrap_or_default();
        self.object_changed(&object);
        let error = format!("input {} of {} on node {from}: {error}", object.output, object.task);
        for task in tasks {
            let waits =
                self.holder.staging().get(&task).is_some_and(|staged| staged.misses(&object));
            if !waits {
                continue;
            }
            if let Some(staged) = self.unstage(task, out) {
                let outcome = Outcome { error: error.clone(), exit_code: 1, ..Default::default() };
                self.finish(now, task, staged.attempt(), now, Reads::default(), outcome, out);
            }
        }
    }

    /// Counts the tasks that wait for the object apart from those with fetches that make progress.
    fn stall(&mut self, object: ObjectId) {
        let inflight = self.objects.inflight_fetches.get_mut(&object).expect("it has just failed");
        if std::mem::replace(&mut inflight.has_failed, true) {
            return;
        }
        self.objects.failed_fetch_bytes += inflight.size_bytes;
        for task in &inflight.tasks {
            let is_first = self.holder.fetch_fails(*task, object);
            self.objects.failed_fetch_tasks += usize::from(is_first);
        }
    }
    fn unstall(&mut self, task: TaskId, object: &ObjectId) {
        if self.holder.fetch_resumes(task, object) {
            self.objects.failed_fetch_tasks -= 1;
        }
    }

    /// Fetches small inputs of wide fan-ins to the home of the reading task as soon as they are
    /// made.
    fn fetch_ahead(&mut self, now: Time, out: &mut Out) {
        let news = self.home.ledger.take_ahead();
        let ledger = &self.home.ledger;
        let room = FETCHES_AHEAD_WAITING_MAX.saturating_sub(self.objects.ahead.len());
        let news = news
            .into_iter()
            .filter(|ahead| ledger.job(ahead.child.job).is_some_and(Job::is_under_way));
        self.objects.ahead.extend(news.take(room));
        for _ in 0..STEP_POPS_MAX {
            if self.objects.ahead_in_flight >= FETCHES_AHEAD_IN_FLIGHT_MAX {
                return;
            }
            let Some(&Ahead { object, child, maker, size_bytes, readers }) =
                self.objects.ahead.front()
            else {
                return;
            };
            let waits = self.home.ledger.state(child) == Some(crate::home::ledger::State::Waiting);
            let absent = self.objects.presence(&object)
                == crate::holder::queues::ready_queue::Presence::Absent;
            let job = self.home.ledger.job(child.job).filter(|_| waits && absent);
            let Some(settings) = job.map(|job| job.settings().clone()) else {
                self.objects.ahead.pop_front();
                continue;
            };
            if !self.has_room_ahead(size_bytes) {
                return; // It stays the next.
            }
            self.objects.ahead.pop_front();
            let settings = &settings;
            let request =
                FetchRequest { object, maker, size_bytes, readers, settings, taken: None };
            self.start_inflight_fetch(now, &request, None, out);
        }
        self.objects.left_over = true;
    }
    /// Idle copies are evicted for objects that are fetched early.
    fn has_room_ahead(&self, size_bytes: u64) -> bool {
        let (objects, tuning) = (&self.objects, &self.options.tuning);
        let copies = objects.table.pinned_bytes().saturating_add(objects.coming_bytes);
        let taken = objects.table.firm_bytes().saturating_add(objects.reserved_bytes);
        copies.saturating_add(size_bytes) <= tuning.cache_bytes
            && taken.saturating_add(size_bytes) <= tuning.store_soft_bytes
    }
}

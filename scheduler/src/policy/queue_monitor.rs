//! Watches a node's own queues: the monitor of FLDS, and ADAPTIVE's choice between policies
//! (section 2.2.4 of the paper).

use proto::event::Reason;

use proto::{Event, Span, TaskId, Time};

use super::Rules;
use crate::holder::task::is_upload;
use crate::output::Out;
use crate::policy::limits::{
    ADAPT_DWELL_MAX, ADAPT_WINDOW, MONITOR_INTERVAL, STEP_SHIFTS_MAX, THROUGHPUT_WINDOW,
    TUNED_SPAN_MAX,
};
use crate::{Mutant, Policy, Scheduler, Tuning};

/// `tt` does not halve below this.
const WAIT_MIN: Span = Span::from_millis(1);
/// Limits for the ratio of transfer time to work time: above the first, much data moves; below the
/// second, little.
const MOVES_MUCH: f64 = 0.5;
const MOVES_LITTLE: f64 = 0.05;
/// The limits for a return to the other policy. They differ, so that only a clear change counts.
const MOVES_LESS: f64 = 0.25;
const MOVES_MORE: f64 = 0.1;

/// Tasks that ended per second, over a sliding window. A rate from before the data arrived, or with
/// other kinds of tasks, does not show how fast the queue empties now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throughput {
    since: Option<Time>,
    window: Time,
    before: u64,
    ended: u64,
}

impl Throughput {
    /// There is work from now on.
    pub(crate) fn busy(&mut self, now: Time) {
        if self.since.is_none() {
            *self = Self { since: Some(now), window: now, ..Self::default() };
        }
    }
    pub(crate) fn idle(&mut self) {
        self.since = None;
    }
    pub(crate) fn add(&mut self, now: Time, tasks: u64) {
        self.busy(now);
        self.roll(now);
        self.ended += tasks;
    }
    fn roll(&mut self, now: Time) {
        let windows = now.since(self.window).0 / THROUGHPUT_WINDOW.0;
        if windows > 0 {
            self.before = if windows == 1 { self.ended } else { 0 };
            self.ended = 0;
            self.window = self.window + Span(windows * THROUGHPUT_WINDOW.0);
        }
    }
    /// `None` before anything has ended.
    pub(crate) fn per_s(&mut self, now: Time) -> Option<f64> {
        let since = self.since?;
        self.roll(now);
        let elapsed = now.since(self.window);
        // The previous window counts by the part of it that the sliding window still covers.
        let left = 1.0 - elapsed.as_secs_f64() / THROUGHPUT_WINDOW.as_secs_f64();
        let ended = self.ended as f64 + self.before as f64 * left;
        let covered = now.since(since).min(THROUGHPUT_WINDOW);
        (ended > 0.0 && covered > Span::ZERO).then(|| ended / covered.as_secs_f64())
    }
}

/// How many tasks in the local queue wait longer than `wait_max` (`tt`), by the throughput.
#[must_use]
pub fn excess(tasks: usize, per_s: f64, wait_max: Span) -> usize {
    let wait_s = tasks as f64 / per_s;
    let over_s = wait_s - wait_max.as_secs_f64();
    if over_s > 0.0 { ((over_s / wait_s * tasks as f64) as usize).min(tasks) } else { 0 }
}

/// ADAPTIVE: the present policy, and the measurements that judge it.
#[derive(Debug)]
pub struct Adaptive {
    policy: Policy,
    /// The beginning of the sums below.
    window: Option<Time>,
    work: Span,
    moved_bytes: u64,
    /// The policy stays until then, and after the next change for `dwell`.
    until: Time,
    dwell: Span,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            policy: Policy::Flds,
            window: None,
            work: Span::ZERO,
            moved_bytes: 0,
            until: Time(0),
            dwell: ADAPT_WINDOW,
        }
    }
}

impl Adaptive {
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// A task has ended: its duration, and the bytes moved for it.
    pub fn ended(&mut self, now: Time, ran: Span, moved_bytes: u64) {
        self.window.get_or_insert(now);
        self.work = Span(self.work.0.saturating_add(ran.0));
        self.moved_bytes = self.moved_bytes.saturating_add(moved_bytes);
    }

    /// At the end of a window, the policy to change to, if another one fits better.
    pub fn judge(&mut self, now: Time, bandwidth_bytes_per_s: f64) -> Option<Policy> {
        let window = self.window?;
        if now.since(window) < ADAPT_WINDOW || self.work == Span::ZERO {
            return None;
        }
        let moving_s = self.moved_bytes as f64 / bandwidth_bytes_per_s;
        let ratio = moving_s / self.work.as_secs_f64();
        (self.window, self.work, self.moved_bytes) = (None, Span::ZERO, 0);
        let better = match self.policy {
            Policy::Mdl if ratio < MOVES_LESS => Policy::Flds,
            Policy::Mlb if ratio > MOVES_MORE => Policy::Flds,
            Policy::Flds if ratio > MOVES_MUCH => Policy::Mdl,
            Policy::Flds if ratio < MOVES_LITTLE => Policy::Mlb,
            same => same,
        };
        if better == self.policy || now < self.until {
            return None;
        }
        self.policy = better;
        self.until = now + self.dwell;
        self.dwell = self.dwell.doubled().min(ADAPT_DWELL_MAX);
        Some(better)
    }
}

#[derive(Debug)]
pub(crate) struct Monitor {
    /// `tt`: the longest wait of a dedicated task.
    pub(crate) wait_max: Span,
    pub(crate) throughput: Throughput,
    pub(crate) adaptive: Adaptive,
    /// The time of the next check of the queues; `None` while there is nothing to check.
    at: Option<Time>,
    /// MLB has just begun, and tasks are still in the local queue.
    empties: bool,
}

impl Monitor {
    pub(crate) fn new(tuning: &Tuning) -> Self {
        Self {
            wait_max: tuning.wait_max,
            throughput: Throughput::default(),
            adaptive: Adaptive::default(),
            at: None,
            empties: false,
        }
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.at
    }
}

impl Scheduler {
    /// The policy that applies now.
    pub(crate) fn policy(&self) -> Policy {
        let set = self.options.tuning.policy;
        if Rules::of(set).adapts { self.policy.monitor.adaptive.policy() } else { set }
    }
    /// The rules of the policy that applies now.
    pub(crate) fn rules(&self) -> Rules {
        Rules::of(self.policy())
    }
    fn adapts(&self) -> bool {
        Rules::of(self.options.tuning.policy).adapts
    }

    /// Applies new settings from now on.
    pub(crate) fn retune(&mut self, tuning: Tuning, out: &mut Out) {
        let before = self.options.tuning;
        if tuning.wait_max != before.wait_max {
            self.policy.monitor.wait_max = tuning.wait_max;
        }
        self.options.tuning = tuning;
        let is_forgotten = self.options.mutant == Some(Mutant::PauseForgotten);
        self.holder.set_paused(tuning.paused && !is_forgotten);
        self.stealing.restart(tuning.steal_interval_start);
        // Under MLB, tasks that the earlier policy bound to this node are free for all nodes.
        self.policy.monitor.empties = self.rules().empties_local_queue;
        out.events.push(Event::Retuned {
            from: before.policy as u8,
            to: tuning.policy as u8,
            threshold: tuning.threshold,
            wait_max: tuning.wait_max,
            steal: [tuning.steal_interval_start, tuning.steal_interval_bound],
        });
    }

    /// A task that ran here is done.
    pub(crate) fn note_length(&mut self, now: Time, kind: &str, ran: Span, moved_bytes: u64) {
        self.policy.estimates.completed(kind, ran);
        self.policy.monitor.throughput.add(now, 1);
        if self.adapts() {
            self.policy.monitor.adaptive.ended(now, ran, moved_bytes);
        }
    }

    /// Checks the queues every `MONITOR_INTERVAL` while there is work here.
    pub(crate) fn watch_queues(&mut self, now: Time, out: &mut Out) {
        let busy = !self.holder.local().is_empty() || !self.holder.running().is_empty();
        if busy {
            self.policy.monitor.throughput.busy(now);
        }
        let follows = self.adapts() || self.rules().monitors_queue;
        if !busy || !(follows || self.policy.monitor.empties) {
            self.policy.monitor.at = None;
            if !busy {
                self.policy.monitor.throughput.idle();
                self.policy.monitor.empties = false;
            }
            return;
        }
        let due = *self.policy.monitor.at.get_or_insert(now + MONITOR_INTERVAL);
        if now >= due {
            self.policy.monitor.at = Some(now + MONITOR_INTERVAL);
            if self.adapts() {
                self.adapt(now, out);
            }
            if self.rules().monitors_queue {
                self.shift_excess(now, out);
            }
        }
        if self.policy.monitor.empties {
            self.empty_local(out);
        }
    }

    /// Moves tasks of the local queue that other nodes may run to the shared queue,
    /// `STEP_SHIFTS_MAX` in a step.
    fn empty_local(&mut self, out: &mut Out) {
        let shifted = self.shift(STEP_SHIFTS_MAX, out);
        self.policy.monitor.empties =
            shifted > 0 && self.holder.local().len() > self.holder.no_space().pinned_here();
    }

    fn adapt(&mut self, now: Time, out: &mut Out) {
        let before = self.policy();
        let bandwidth = self.policy.estimates.bandwidth(self.options.tuning.bandwidth_bytes_per_s);
        let Some(after) = self.policy.monitor.adaptive.judge(now, bandwidth) else { return };
        self.policy.monitor.empties = Rules::of(after).empties_local_queue;
        out.events.push(Event::PolicyChanged { from: before as u8, to: after as u8 });
    }

    fn shift_excess(&mut self, now: Time, out: &mut Out) {
        let Some(per_s) = self.policy.monitor.throughput.per_s(now) else { return };
        let tasks = excess(self.holder.local().len(), per_s, self.policy.monitor.wait_max);
        if tasks == 0 {
            return;
        }
        self.shift(tasks.min(STEP_SHIFTS_MAX), out);
        let doubled = self.policy.monitor.wait_max.doubled();
        self.policy.monitor.wait_max = doubled.min(TUNED_SPAN_MAX);
        let wait_max = self.policy.monitor.wait_max;
        self.stealing.rearm(now + self.options.tuning.steal_interval_bound);
        out.events.push(Event::Shifted { tasks: tasks.min(STEP_SHIFTS_MAX) as u64, wait_max });
    }

    /// Moves tasks of the lowest rank from the local queue to the shared queue. Returns their
    /// number.
    fn shift(&mut self, tasks: usize, out: &mut Out) -> usize {
        let (mut staying, mut shifted) = (Vec::new(), 0);
        for _ in 0..tasks {
            let Some(ready) = self.holder.take_last_local(|_| true) else { break };
            if !self.is_current(ready) {
                continue;
            }
            if self.holder.no_space().is_pinned_here(ready.task) || self.is_bound(ready.task) {
                staying.push(ready);
                continue;
            }
            self.stats.shifted += 1;
            shifted += 1;
            let (task, attempt, reason) = (ready.task, ready.attempt, Reason::Shifted);
            let input_bytes = self.queued_input_bytes(task);
            self.enqueue(false, ready);
            let event = Event::Queued { task, attempt, local_queue: false, reason, input_bytes };
            out.events.push(event);
        }
        staying.into_iter().rev().for_each(|ready| self.enqueue(true, ready));
        shifted
    }

    /// Whether no other node can run it.
    fn is_bound(&self, task: TaskId) -> bool {
        match self.holder.remote_tasks().get(&task) {
            Some(remote) => remote.work.is_bound(),
            None => self.home.ledger.spec(task).is_some_and(|spec| is_upload(spec)),
        }
    }

    /// A steal of this node found nothing, or the thief was dormant for the bound of its interval:
    /// its own tasks may wait less.
    pub(crate) fn steal_found_nothing(&mut self) {
        if self.rules().monitors_queue {
            self.policy.monitor.wait_max = Span(self.policy.monitor.wait_max.0 / 2).max(WAIT_MIN);
        }
    }
    /// Whether the longest wait is within the bound of the stealing interval: then a dormant thief
    /// starts again.
    pub(crate) fn waits_little(&self) -> bool {
        self.rules().monitors_queue
            && self.policy.monitor.wait_max
                <= self.options.tuning.steal_interval_bound.max(WAIT_MIN)
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::message::Body;
    use proto::{LocalId, NodeId, PartitionId, wire};

    use super::*;
    use crate::tests::test_nodes;

    #[test]
    fn the_papers_example_of_shifting() {
        let mut throughput = Throughput::default();
        let start = Time(5_000_000_000);
        throughput.busy(start);
        throughput.add(start + Span::from_secs(4), 400);
        throughput.add(start + Span::from_millis(9_999), 600);
        let per_s = throughput.per_s(start + Span(9_999_999_999)).unwrap();
        assert!((per_s - 100.0).abs() < 0.01, "{per_s}");
        assert_eq!(excess(5_000, 100.0, Span::from_secs(30)), 2_000);
        assert_eq!(excess(3_000, 100.0, Span::from_secs(30)), 0, "exactly tt");
    }

    #[test]
    fn excess_never_exceeds_what_is_there() {
        for tasks in [0, 1, 7, 100_000] {
            for per_s in [1e-9, 0.5, 1e9] {
                for wait_max in [Span(1), Span::from_secs(1), TUNED_SPAN_MAX] {
                    let moved = excess(tasks, per_s, wait_max);
                    assert!(moved <= tasks);
                    let stay_s = (tasks - moved) as f64 / per_s;
                    let within = stay_s <= wait_max.as_secs_f64() + 1.0 / per_s;
                    assert!(within, "{tasks} {per_s} {wait_max:?} {moved}");
                }
            }
        }
    }

    /// Node 0 of two, with tasks of node 1 in its local queue.
    fn holder(policy: Policy, tasks: u64) -> (Scheduler, Out) {
        holder_of(policy, tasks, wire::Spec::default())
    }
    fn holder_of(policy: Policy, tasks: u64, spec: wire::Spec) -> (Scheduler, Out) {
        let slots = 2;
        let member = |node| wire::Member { node, slots, ..Default::default() };
        let homes = test_nodes::homes(0, vec![member(0), member(1)], &[0, 1]);
        let tuning = Tuning { wait_max: Span::from_secs(30), ..Tuning::of(policy) };
        let mut scheduler = test_nodes::scheduler(0, slots, tuning, homes);
        let mut out = Out::default();
        let placed = |index| wire::Placed {
            job: 1,
            local: LocalId::new(PartitionId(1), index).0,
            attempt: 1,
            inputs: vec![wire::InputAt { size_bytes: 1 + index % 7, ..Default::default() }],
            ..Default::default()
        };
        let (specs, settings) = (vec![spec], vec![wire::JobSettings::default()]);
        let bundle = wire::Bundle { specs, settings, tasks: (0..tasks).map(placed).collect() };
        let push = Body::Push(wire::Push { bundle: Some(bundle), ..Default::default() });
        scheduler.on_message(Time(0), NodeId(1), push, &mut out);
        assert_eq!(scheduler.holder.local().len() as u64, tasks);
        (scheduler, out)
    }

    #[test]
    fn shifting_keeps_every_task_and_doubles_the_wait() {
        let (mut scheduler, mut out) = holder(Policy::Flds, 5_000);
        scheduler.watch_queues(Time(0), &mut out);
        scheduler.policy.monitor.throughput.add(Time(0), 10);
        let later = Time(0) + MONITOR_INTERVAL;
        scheduler.watch_queues(later, &mut out);
        // 100 tasks a second: 50 s of work, of which 30 s may wait.
        assert_eq!(
            (scheduler.holder.local().len(), scheduler.holder.shared().len()),
            (3_000, 2_000)
        );
        assert_eq!(scheduler.policy.monitor.wait_max, Span::from_secs(60));
        let shifted = |event: &&Event| matches!(event, Event::Shifted { tasks: 2_000, .. });
        assert_eq!(out.events.iter().filter(shifted).count(), 1);
        let mut seen = std::collections::BTreeSet::new();
        while let Some(ready) = scheduler.holder.take_last_local(|_| true) {
            assert!(seen.insert(ready.task), "{} twice", ready.task);
            assert!(ready.rank >= 3, "the lowest went, not {}", ready.rank);
        }
        while let Some(ready) = scheduler.holder.take_last_shared() {
            assert!(seen.insert(ready.task), "{} twice", ready.task);
            assert!(ready.rank <= 3, "the lowest went, not {}", ready.rank);
        }
        assert_eq!(seen.len(), 5_000);
    }

    #[test]
    fn the_monitor_is_silent_when_idle_and_under_other_policies() {
        for (policy, tasks) in [(Policy::Flds, 0), (Policy::Mdl, 100), (Policy::Eft, 100)] {
            let (mut scheduler, mut out) = holder(policy, tasks);
            scheduler.watch_queues(Time(0), &mut out);
            assert_eq!(scheduler.policy.monitor.deadline(), None, "{policy:?}");
        }
        let (mut scheduler, mut out) = holder(Policy::Flds, 1);
        scheduler.watch_queues(Time(0), &mut out);
        assert!(scheduler.policy.monitor.deadline().is_some());
    }

    #[test]
    fn failed_steals_halve_the_wait_of_flds_alone() {
        let (mut scheduler, _) = holder(Policy::Flds, 1);
        scheduler.steal_found_nothing();
        assert_eq!(scheduler.policy.monitor.wait_max, Span::from_secs(15));
        (0..100).for_each(|_| scheduler.steal_found_nothing());
        assert_eq!(scheduler.policy.monitor.wait_max, WAIT_MIN);
        let (mut scheduler, _) = holder(Policy::Mdl, 1);
        scheduler.steal_found_nothing();
        assert_eq!(scheduler.policy.monitor.wait_max, Span::from_secs(30));
    }

    #[test]
    fn under_mlb_nothing_stays_bound_that_was_bound_before() {
        let tasks = STEP_SHIFTS_MAX + 10;
        for before in [Policy::Mdl, Policy::Rlds, Policy::Flds, Policy::Eft] {
            let (mut scheduler, mut out) = holder(before, tasks as u64);
            scheduler.watch_queues(Time(0), &mut out);
            scheduler.retune(Tuning::of(Policy::Mlb), &mut out);
            let told = |event: &Event| match *event {
                Event::Retuned { from, to, .. } => Some((from, to)),
                _ => None,
            };
            let told: Vec<_> = out.events.iter().filter_map(told).collect();
            assert_eq!(told, [(before as u8, Policy::Mlb as u8)]);
            scheduler.watch_queues(Time(0), &mut out);
            assert_eq!(
                (scheduler.holder.local().len(), scheduler.holder.shared().len()),
                (10, STEP_SHIFTS_MAX)
            );
            let next = scheduler.policy.monitor.deadline().expect("the rest goes too");
            scheduler.watch_queues(next, &mut out);
            assert_eq!(
                (scheduler.holder.local().len(), scheduler.holder.shared().len()),
                (0, tasks),
                "{before:?}"
            );
            scheduler.watch_queues(next, &mut out);
            assert_eq!(scheduler.policy.monitor.deadline(), None, "{before:?}");
        }
        let (mut scheduler, mut out) = holder(Policy::Mlb, 10);
        scheduler.retune(Tuning::of(Policy::Mdl), &mut out);
        scheduler.watch_queues(Time(0), &mut out);
        assert_eq!(scheduler.holder.local().len(), 10, "no other policy frees them");
    }

    /// The task's file is here: a thief would come again and again for a task that it cannot run.
    #[test]
    fn a_task_that_only_this_node_can_run_is_never_shifted() {
        let body = Some(wire::spec::Body::Upload(wire::Upload {}));
        let upload = wire::Spec { body, ..wire::Spec::default() };
        let (mut scheduler, mut out) = holder_of(Policy::Flds, 5_000, upload);
        scheduler.watch_queues(Time(0), &mut out);
        scheduler.policy.monitor.throughput.add(Time(0), 10);
        scheduler.watch_queues(Time(0) + MONITOR_INTERVAL, &mut out);
        assert_eq!((scheduler.holder.local().len(), scheduler.holder.shared().len()), (5_000, 0));
        scheduler.retune(Tuning::of(Policy::Mlb), &mut out);
        let mut now = Time(0) + MONITOR_INTERVAL;
        for _ in 0..3 {
            scheduler.watch_queues(now, &mut out);
            now = scheduler.policy.monitor.deadline().unwrap_or(now);
        }
        assert_eq!(
            (scheduler.holder.local().len(), scheduler.policy.monitor.deadline()),
            (5_000, None)
        );
    }

    #[test]
    fn adaptive_says_when_it_turns_and_what_was_bound_is_free_under_mlb() {
        let tasks = STEP_SHIFTS_MAX + 10;
        let (mut scheduler, _) = holder(Policy::Adaptive, tasks as u64);
        scheduler.policy.monitor.wait_max = TUNED_SPAN_MAX; // FLDS itself moves nothing.
        let mut now = Time(0);
        let mut turns = |scheduler: &mut Scheduler, ratio: f64| {
            let mut out = Out::default();
            let moved = (ratio * scheduler.options.tuning.bandwidth_bytes_per_s) as u64;
            for _ in 0..20 {
                scheduler.note_length(now, "", Span::from_secs(1), moved);
                for _ in 0..=ADAPT_WINDOW.0 / MONITOR_INTERVAL.0 {
                    now = now + MONITOR_INTERVAL;
                    scheduler.watch_queues(now, &mut out);
                }
            }
            let turn = |event: &Event| match *event {
                Event::PolicyChanged { from, to } => Some([from, to]),
                _ => None,
            };
            out.events.iter().filter_map(turn).collect::<Vec<_>>()
        };
        let [mlb, mdl, flds] = [Policy::Mlb, Policy::Mdl, Policy::Flds].map(|policy| policy as u8);
        assert_eq!(turns(&mut scheduler, 0.3), Vec::<[u8; 2]>::new(), "neither much nor little");
        assert_eq!(turns(&mut scheduler, 0.6), [[flds, mdl]]);
        assert_eq!(turns(&mut scheduler, 0.3), Vec::<[u8; 2]>::new(), "not at once: hysteresis");
        assert_eq!(turns(&mut scheduler, 0.2), [[mdl, flds]]);
        assert_eq!((scheduler.holder.local().len(), scheduler.holder.shared().len()), (tasks, 0));
        assert_eq!(turns(&mut scheduler, 0.01), [[flds, mlb]]);
        assert_eq!(
            (scheduler.holder.local().len(), scheduler.holder.shared().len()),
            (0, tasks),
            "all are free"
        );
        // For example a task that only its home may run.
        let bound = scheduler.holder.take_last_shared().expect("there are many");
        scheduler.enqueue(true, bound);
        assert_eq!(turns(&mut scheduler, 0.07), Vec::<[u8; 2]>::new(), "not at once");
        assert_eq!(turns(&mut scheduler, 0.2), [[mlb, flds]]);
    }

    #[test]
    fn throughput_forgets_what_is_long_past() {
        let mut throughput = Throughput::default();
        let second = |n: u64| Time(n * 1_000_000_000);
        assert_eq!(throughput.per_s(second(1)), None);
        throughput.add(second(1), 1_000);
        for n in 2..=40 {
            throughput.add(second(n), 1);
        }
        let per_s = throughput.per_s(second(41)).unwrap();
        assert!((0.8..=1.2).contains(&per_s), "{per_s}");
        throughput.idle();
        assert_eq!(throughput.per_s(second(42)), None);
    }

    /// Feeds windows with this ratio of transfer time to work time.
    fn feed(adaptive: &mut Adaptive, now: &mut Time, ratio: f64, windows: u32) -> Vec<Policy> {
        let mut turns = Vec::new();
        for _ in 0..windows {
            adaptive.ended(*now, Span::from_secs(1), (ratio * 1e8) as u64);
            *now = *now + ADAPT_WINDOW;
            turns.extend(adaptive.judge(*now, 1e8));
        }
        turns
    }

    #[test]
    fn adaptive_turns_at_the_ends_and_comes_back_in_the_middle() {
        let (mut adaptive, mut now) = (Adaptive::default(), Time(1));
        assert_eq!(feed(&mut adaptive, &mut now, 0.3, 20), [], "FLDS while it is neither");
        assert_eq!(feed(&mut adaptive, &mut now, 0.6, 20), [Policy::Mdl]);
        assert_eq!(feed(&mut adaptive, &mut now, 0.3, 20), [], "not at once: hysteresis");
        assert_eq!(feed(&mut adaptive, &mut now, 0.2, 20), [Policy::Flds]);
        assert_eq!(feed(&mut adaptive, &mut now, 0.01, 20), [Policy::Mlb]);
        assert_eq!(feed(&mut adaptive, &mut now, 0.07, 20), [], "not at once");
        assert_eq!(feed(&mut adaptive, &mut now, 0.2, 20), [Policy::Flds]);
    }

    #[test]
    fn adaptive_turns_ever_more_rarely() {
        let (mut adaptive, mut now) = (Adaptive::default(), Time(1));
        let mut turns = 0;
        // Data that moves little under one policy would move again under the other: the choice must
        // not oscillate without end.
        for window in 0..10_000 {
            let ratio = if window % 2 == 0 { 0.9 } else { 0.1 };
            turns += feed(&mut adaptive, &mut now, ratio, 1).len();
        }
        let most = 8 + 10_000 * ADAPT_WINDOW.0 / ADAPT_DWELL_MAX.0;
        assert!(turns > 2 && turns as u64 <= most, "{turns} of at most {most}");
    }
}

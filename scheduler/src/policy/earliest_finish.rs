/*!
Earliest finish: a further policy beside the paper's.

Algorithm 1 considers only the largest input, and no queue. Here the home computes how much would
have to be moved to itself, and to the nodes that have most of the inputs (makers and copies). All
readers of an object share its transfer. A long queue at the data counts against that node. A short
queue elsewhere does not attract the task: it is not known yet which node will run dry. When one
does, stealing corrects the placement.

A task that stays because its data is here goes to the local queue. Other nodes may still steal it,
if this node could not start it within the time that it takes to move its inputs.
*/

use std::collections::BTreeMap;

use proto::event::Reason;
use proto::{NodeId, Span, Time, wire};

use super::Decision;
use crate::Scheduler;
use crate::holder::task::Work;

/// A received load counts for this long.
const LOAD_KEPT: Span = Span::from_secs(10);
/// The number of remembered peer loads on a node that has not placed tasks with inputs yet.
const LOADS_KEPT_IDLE_MAX: usize = 7;
/// The maximum number of copies of one object that placement considers.
const PLACEMENT_COPIES_MAX: usize = 8;

/// One object is hardly ever read by more tasks of one home.
const READERS_MAX: u32 = 64;
/// The approximate number of transfers that share a line when many tasks have to move.
const LINE_SHARED_BY: usize = 4;

/// The load that a peer reported, with the work that was sent to it since.
#[derive(Clone, Copy, Debug)]
struct Known {
    slots: u32,
    work: Span,
    at: Time,
}

/// The loads of other nodes, as reported.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// Never iterated: the order of entries is arbitrary.
    peers: hashbrown::HashMap<NodeId, Known, foldhash::fast::FixedState>,
}

impl Loads {
    /// Records a reported load. `used`: tasks with inputs are placed here, for which loads matter.
    pub(crate) fn note_load(&mut self, now: Time, from: NodeId, load: &wire::Load, used: bool) {
        let told = Known { slots: load.slots.max(1), work: Span(load.work_ns), at: now };
        if let Some(known) = self.peers.get_mut(&from) {
            *known = told;
        } else if told.work > Span::ZERO && (used || self.peers.len() < LOADS_KEPT_IDLE_MAX) {
            // An idle node counts like an unknown one: most are idle, and need no memory.
            self.peers.insert(from, told);
        }
    }
    /// Until its next report, the peer's work grows by the tasks that are sent to it.
    pub(crate) fn sent(&mut self, now: Time, to: NodeId, slots: u32, length: Span) {
        let idle = || Known { slots: slots.max(1), work: Span::ZERO, at: now };
        let known = self.peers.entry(to).or_insert_with(idle);
        known.work = Span(known.work.0.saturating_add(length.0));
    }
    pub(crate) fn forget(&mut self, peer: NodeId) {
        self.peers.remove(&peer);
    }
    /// The wait of a task at that node; `None` if nothing recent is known.
    fn wait(&self, now: Time, node: NodeId) -> Option<Span> {
        let known = self.peers.get(&node)?;
        let age = now.since(known.at);
        let wait = Span(known.work.0 / u64::from(known.slots));
        (age < LOAD_KEPT).then(|| Span(wait.0.saturating_sub(age.0)))
    }
}

/// A node where a task could run: the wait in its queue, and the time to move missing inputs there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    pub node: NodeId,
    pub wait_s: f64,
    pub moving_s: f64,
}

/// The candidate where the task ends first. The own node (the first candidate) wins unless another
/// is better by more than `margin_s`; among equals the first wins.
///
/// # Panics
/// When there is no candidate.
#[must_use]
pub fn earliest(candidates: &[Candidate], margin_s: f64) -> Candidate {
    let own = candidates.first().expect("the own node is a candidate");
    let cost = |other: &Candidate| (other.wait_s - own.wait_s).max(0.0) + other.moving_s;
    let mut best = *own;
    let mut least = cost(own);
    for other in &candidates[1..] {
        let other_cost = cost(other) + margin_s;
        if other_cost < least {
            (best, least) = (*other, other_cost);
        }
    }
    best
}

impl Scheduler {
    /// Decides on which queue of which node a ready task of this home is placed.
    pub(crate) fn decide_earliest(&self, now: Time, work: &Work) -> Decision {
        let me = self.options.me;
        if work.input_bytes() == 0 {
            return Decision::Shared(Reason::NoInput);
        }
        let (all_bytes, places) = places(work);
        let bandwidth = self.policy.estimates.bandwidth(self.options.tuning.bandwidth_bytes_per_s);
        let length = self.length_of(work);
        let small_s = self.options.tuning.threshold * length.as_secs_f64();
        if all_bytes / bandwidth <= small_s {
            return Decision::Shared(Reason::SmallInputs);
        }
        let here =
            |node: NodeId| places.iter().find(|(other, _)| *other == node).map_or(0.0, |p| p.1);
        let own_wait = self.own_wait();
        let candidate = |node: NodeId| Candidate {
            node,
            wait_s: self.policy.loads.wait(now, node).unwrap_or(own_wait).as_secs_f64(),
            // A peer may name a copy twice.
            moving_s: (all_bytes - here(node)).max(0.0) / bandwidth,
        };
        // The rates between other nodes are not known here, but the rates to this node are.
        let (wait_s, moving_s) = (own_wait.as_secs_f64(), self.moving_here_s(work));
        let mut candidates = vec![Candidate { node: me, wait_s, moving_s }];
        let fits = |node: NodeId| self.fits_node(node, work);
        let others = places.iter().map(|(node, _)| *node).filter(|&node| node != me && fits(node));
        candidates.extend(others.map(candidate));
        let best = earliest(&candidates, small_s);
        if best.node != me {
            Decision::Push(best.node)
        } else if here(me) / bandwidth > small_s {
            Decision::Local
        } else {
            Decision::Shared(Reason::SmallInputs)
        }
    }

    /// The time to fetch the missing inputs to this node. Each object counts at the measured rate
    /// of its fastest source.
    pub(crate) fn moving_here_s(&self, work: &Work) -> f64 {
        let (me, assumed) = (self.options.me.0, self.options.tuning.bandwidth_bytes_per_s);
        let is_missing = |input: &&wire::InputAt| input.node != me && !input.copies.contains(&me);
        let moving_s = |input: &wire::InputAt| {
            let sources = input.copies.iter().chain([&input.node]);
            let rates =
                sources.map(|&node| self.policy.estimates.bandwidth_from(NodeId(node), assumed));
            own_share(input) / rates.fold(f64::MIN_POSITIVE, f64::max)
        };
        work.inputs.iter().filter(is_missing).map(moving_s).sum()
    }

    /// The wait of a further task in the local queue of this node, which precedes the shared queue.
    fn own_wait(&self) -> Span {
        Span(self.own_work().0 / u64::from(self.holder.slots().total().max(1)))
    }
    fn own_work(&self) -> Span {
        let assumed = self.options.tuning.lengths;
        let queued = (self.holder.local().len() + self.holder.staging().len()) as u64;
        let queued_ns = self.mean_length().0.saturating_mul(queued);
        let rest_ns = self
            .policy
            .estimates
            .rest(assumed)
            .0
            .saturating_mul(self.holder.running().len() as u64);
        let work_ns = queued_ns.saturating_add(rest_ns);
        Span((work_ns as f64 * self.policy.estimates.width()) as u64)
    }

    /// The load that is reported to peers; `None` if the policy does not use it.
    #[must_use]
    pub fn own_load(&self) -> Option<wire::Load> {
        let length = |queue: usize| u32::try_from(queue).unwrap_or(u32::MAX);
        self.rules().sends_load.then(|| wire::Load {
            slots: self.holder.slots().total(),
            shared: length(self.holder.shared().len()),
            local: length(self.holder.local().len()),
            work_ns: self.own_work().0,
        })
    }
    /// A peer reports its load.
    pub fn on_load(&mut self, now: Time, from: NodeId, load: &wire::Load) {
        if self.rules().sends_load {
            let used = self.policy.estimates.input_bytes() > 0.0;
            self.policy.loads.note_load(now, from, load, used);
        }
    }

    /// The expected duration of a task.
    pub(crate) fn length_of(&self, work: &Work) -> Span {
        self.policy.estimates.length(&work.spec, work.duration, self.options.tuning.lengths)
    }
    pub(crate) fn mean_length(&self) -> Span {
        self.policy.estimates.mean_length(self.options.tuning.lengths)
    }

    /// The mean time to move the inputs of a task here.
    pub(crate) fn moving_time(&self) -> Span {
        let bandwidth = self.policy.estimates.bandwidth(self.options.tuning.bandwidth_bytes_per_s);
        Span((self.policy.estimates.input_bytes() / bandwidth * 1e9) as u64)
    }
    /// The number of tasks that this node starts within the time to move the inputs of one.
    pub(crate) fn started_meanwhile(&self) -> usize {
        let length = self.mean_length().0.max(1);
        let rounds = usize::try_from(self.moving_time().0.div_ceil(length)).unwrap_or(usize::MAX);
        rounds.saturating_mul(self.lanes())
    }
    /// The number of tasks of mean width that run here at once.
    pub(crate) fn lanes(&self) -> usize {
        ((f64::from(self.holder.slots().total()) / self.policy.estimates.width()) as usize).max(1)
    }
    /// The number of tasks for the free slots; the last one may have to be narrower.
    pub(crate) fn free_lanes(&self) -> usize {
        (f64::from(self.holder.slots().free()) / self.policy.estimates.width()).ceil() as usize
    }
    /// The number of tasks without a request that other nodes may take: those of the shared queue,
    /// and those of the local queue that are worth the transfer.
    pub(crate) fn stealable(&self) -> usize {
        self.holder.shared().plain() + self.surplus()
    }
    /// The number of tasks in the local queue that this node would start only after a thief could
    /// have their inputs. If tasks take longer than that, these are all of them.
    pub(crate) fn surplus(&self) -> usize {
        if !self.rules().shares_local_queue {
            return 0;
        }
        let local =
            self.holder.local().plain().saturating_sub(self.holder.no_space().pinned_here());
        // Other inputs move too: one transfer seldom has the line for itself.
        let moving_ns = self.moving_time().0.saturating_mul(LINE_SHARED_BY as u64);
        if moving_ns <= self.mean_length().0 || self.holder.slots().is_paused() {
            // A thief has the inputs before a task that runs here ends, approximately.
            return local;
        }
        let kept = self.started_meanwhile().saturating_mul(LINE_SHARED_BY);
        let kept = kept.saturating_add(self.lanes());
        local.saturating_sub(kept)
    }
}

/// The bytes of an object for which one of its readers counts. With an unknown number of readers it
/// may be the only one.
fn own_share(input: &wire::InputAt) -> f64 {
    input.size_bytes as f64 / f64::from(input.consumers.clamp(1, READERS_MAX))
}

/// The bytes of a task's inputs, each by its share of the readers: in all, and by the nodes that
/// have most of them.
fn places(work: &Work) -> (f64, Vec<(NodeId, f64)>) {
    let mut all = 0.0;
    let mut by_node: BTreeMap<NodeId, f64> = BTreeMap::new();
    for input in &work.inputs {
        let bytes = own_share(input);
        all += bytes;
        *by_node.entry(NodeId(input.node)).or_default() += bytes;
        for &copy in input.copies.iter().filter(|&&copy| copy != input.node) {
            *by_node.entry(NodeId(copy)).or_default() += bytes;
        }
    }
    let mut places: Vec<(NodeId, f64)> = by_node.into_iter().collect();
    places.sort_by(|a, b| b.1.total_cmp(&a.1));
    places.truncate(PLACEMENT_COPIES_MAX);
    (all, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(node: u32, wait_s: f64, moving_s: f64) -> Candidate {
        Candidate { node: NodeId(node), wait_s, moving_s }
    }

    #[test]
    fn data_attracts_and_a_queue_deters() {
        let at = |candidates: &[Candidate]| earliest(candidates, 0.1).node.0;
        let own = candidate(0, 5.0, 1.0);
        assert_eq!(at(&[own, candidate(1, 5.0, 0.0)]), 1, "the data is there");
        assert_eq!(at(&[own, candidate(1, 5.0, 0.95)]), 0, "hardly better");
        assert_eq!(at(&[own, candidate(1, 7.0, 0.0)]), 0, "a queue in front of the data");
        assert_eq!(at(&[own, candidate(1, 0.0, 1.0)]), 0, "a short queue does not attract");
        let others = [own, candidate(1, 5.0, 0.5), candidate(2, 5.0, 0.2), candidate(3, 5.0, 0.2)];
        assert_eq!(at(&others), 2, "the best, of equals the first");
    }

    #[test]
    fn a_transfer_is_shared_by_its_readers_and_copies_are_places() {
        let input = |node, size_bytes, consumers, copies: &[u32]| wire::InputAt {
            node,
            size_bytes,
            consumers,
            copies: copies.to_vec(),
            ..Default::default()
        };
        let work = Work {
            spec: Default::default(),
            settings: Default::default(),
            entry: 0,
            duration: Span::ZERO,
            urgency: 0,
            output_sizes: Vec::new(),
            name: Box::default(),
            payload: Default::default(),
            inputs: vec![input(1, 100, 10, &[2, 1]), input(3, 50, 0, &[])],
            deaths: 0,
            alone: false,
            again: false,
            depth: 0,
            resume: None,
        };
        let (all, places) = places(&work);
        assert_eq!(all, 60.0);
        assert_eq!(places, [(NodeId(3), 50.0), (NodeId(1), 10.0), (NodeId(2), 10.0)]);
    }

    #[test]
    fn load_ages_and_grows_by_what_is_sent() {
        let mut loads = Loads::default();
        let (peer, start) = (NodeId(1), Time(0));
        assert_eq!(loads.wait(start, peer), None);
        let work_ns = Span::from_secs(10).0;
        loads.note_load(
            start,
            peer,
            &wire::Load { slots: 2, work_ns, ..Default::default() },
            false,
        );
        assert_eq!(loads.wait(start, peer), Some(Span::from_secs(5)));
        loads.sent(start, peer, 2, Span::from_secs(4));
        let later = start + Span::from_secs(3);
        assert_eq!(loads.wait(later, peer), Some(Span::from_secs(4)), "7 less 3");
        assert_eq!(loads.wait(start + LOAD_KEPT, peer), None, "too old to count");
        let stranger = NodeId(2);
        loads.note_load(start, stranger, &wire::Load { slots: 2, ..Default::default() }, true);
        assert_eq!(loads.wait(start, stranger), None, "an idle node does not deter");
        loads.sent(start, stranger, 2, Span::from_secs(6));
        assert_eq!(loads.wait(start, stranger), Some(Span::from_secs(3)));
    }

    #[test]
    fn few_loads_are_kept_where_nothing_is_weighed() {
        let mut loads = Loads::default();
        let busy = wire::Load { slots: 2, work_ns: 1_000, ..Default::default() };
        let known =
            |loads: &Loads| (0..100).filter(|&n| loads.wait(Time(0), NodeId(n)).is_some()).count();
        (0..50).for_each(|node| loads.note_load(Time(0), NodeId(node), &busy, false));
        assert_eq!(known(&loads), LOADS_KEPT_IDLE_MAX);
        (0..50).for_each(|node| loads.note_load(Time(0), NodeId(node), &busy, true));
        assert_eq!(known(&loads), 50);
    }
}

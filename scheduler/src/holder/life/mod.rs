//! The rest of a node's life: a task with a time request starts only where it can end.

pub(crate) mod notices;

use proto::{Attempt, NodeId, Span, TaskId, Time, wire};
use resources::EndOfLife;

use crate::Scheduler;
use crate::holder::Holder;
use crate::holder::life::notices::notice_of;
use crate::holder::queues::classes::Class;
use crate::holder::start_permission::StartPermission;
use crate::holder::task::Work;
use crate::output::Out;

/// How far the clocks of two nodes may differ, where one judges when the other ends.
const CLOCKS_APART_MAX: Span = Span::from_millis(1000);

/// The time of the last step, and the end of this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    now: Time,
    end: Option<EndOfLife>,
    /// This node is drained: tasks that would be moved at once do not start here.
    leaves: bool,
}

impl Life {
    pub(crate) fn new(end: Option<EndOfLife>) -> Self {
        Self { now: Time::ZERO, end, leaves: false }
    }
    /// Whether a task of this length that starts now ends before the margin.
    pub(crate) fn fits(self, length: Span) -> bool {
        length == Span::ZERO || self.end.is_none_or(|end| end.fits(self.now.0, length.0))
    }
    /// Whether a task may start. `moves`: it gets a signal and is moved when this node is drained.
    pub(crate) fn admits(self, length: Span, moves: bool) -> bool {
        !(moves && self.leaves) && self.fits(length)
    }
    pub(crate) fn now(self) -> Time {
        self.now
    }
    pub(crate) fn leaves(self) -> bool {
        self.leaves
    }
    /// When an attempt is told of the end of this node.
    pub(crate) fn notice_at(self, notice: &wire::Notice) -> Option<Time> {
        let stops_ns = self.end?.stops_at_ns();
        Some(Time(stops_ns.saturating_sub(notice.before_ns)))
    }
    pub(crate) fn has_end(self) -> bool {
        self.end.is_some()
    }
    /// The time from which on a task of this length does not start here any more.
    fn expiry(self, length: Span) -> Option<Time> {
        let latest = self.end.filter(|_| length > Span::ZERO)?.latest_start_ns(length.0)?;
        Some(Time(latest.saturating_add(1))).filter(|&at| at > self.now)
    }
}

/// The time request by which a task is matched: rounded up by at most 1/64, so that learned times
/// do not make a class of each task. A task with a signal starts only where the signal is not due.
pub(crate) fn time_request(spec: &wire::Spec) -> Span {
    const BITS: u32 = 7;
    let before_ns = notice_of(spec).map_or(0, |notice| notice.before_ns.max(1));
    let exact = spec.time_request_ns.max(before_ns);
    let low = (u64::BITS - exact.leading_zeros()).saturating_sub(BITS);
    let step = 1_u64 << low;
    Span(exact.checked_next_multiple_of(step).unwrap_or(u64::MAX))
}

impl Holder {
    /// A step or an input begins.
    pub(crate) fn set_now(&mut self, now: Time) {
        self.life.now = now;
    }
    /// Whether the task can still end here.
    pub(crate) fn life_fits(&self, work: &Work) -> bool {
        self.life.admits(work.time_request(), notice_of(&work.spec).is_some())
    }
    /// This node is drained.
    pub(crate) fn leave(&mut self) {
        self.life.leaves = true;
    }
    /// The node does not leave any more.
    pub(crate) fn stay(&mut self) {
        self.life.leaves = false;
    }
    pub(crate) fn life(&self) -> Life {
        self.life
    }
    /// The next time at which some class can no longer end here.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.life.end?;
        let is_staged = |class| self.staging.values().any(|staged| staged.class == class);
        let is_here =
            |class| self.local.has_class(class) || self.shared.has_class(class) || is_staged(class);
        let timed = self.classes.all().filter_map(|(class, it)| {
            let at = self.life.expiry(it.time)?;
            is_here(class).then_some(at)
        });
        timed.min()
    }
    /// Tasks in line that can no longer end here.
    fn expired(&self) -> Vec<(TaskId, Attempt)> {
        let late = |class: Option<&Class>| class.is_some_and(|it| !it.is_admitted(self.life));
        let waits = self.staging.iter().filter(|(_, staged)| {
            staged.start_permission == StartPermission::NotNeeded && staged.seat.is_none()
        });
        let late = waits.filter(|(_, staged)| late(self.classes.get(staged.class)));
        late.map(|(&task, staged)| (task, staged.attempt)).collect()
    }
}

impl Scheduler {
    /// Whether tasks run or wait on this node.
    #[must_use]
    pub fn has_work_here(&self) -> bool {
        !self.holder.running.is_empty()
            || !self.holder.staging.is_empty()
            || !self.holder.local.is_empty()
            || !self.holder.shared.is_empty()
            || self.holder.is_held_by_gang()
    }

    /// Tasks that can no longer end here go back to their homes.
    pub(crate) fn drop_expired(&mut self, out: &mut Out) {
        if self.holder.life.end.is_none() && !self.holder.life.leaves {
            return;
        }
        for (task, attempt) in self.holder.expired() {
            if self.unstage(task, out).is_some() {
                self.report_dropped(task, attempt, out);
            }
        }
    }

    /// Whether a node lives long enough for a task of this length. The clock of another node may
    /// differ.
    pub(crate) fn outlives(&self, node: NodeId, length: Span) -> bool {
        if length == Span::ZERO || node == self.options.me {
            return self.holder.life.fits(length);
        }
        let now = self.holder.life.now + CLOCKS_APART_MAX;
        let end = self.routing.homes().offer_of(node).and_then(resources::Totals::end);
        end.is_none_or(|end| end.fits(now.0, length.0))
    }

    /// The reason why a task waits, if the nodes that offer the rest end too early for it or are
    /// drained.
    pub(crate) fn explain_end(&self, work: &Work) -> Option<String> {
        let length = work.time_request();
        if length == Span::ZERO {
            return None;
        }
        let homes = self.routing.homes();
        let offering: Vec<NodeId> =
            homes.living().filter(|&node| self.offers_ever(node, work)).collect();
        if offering.is_empty() {
            return None;
        }
        if offering.iter().all(|&node| self.would_move(node, work)) {
            return Some("it has a signal, and each node that offers enough is drained".to_owned());
        }
        if offering.iter().any(|&node| self.outlives(node, length)) {
            return None;
        }
        let left = |&node: &NodeId| {
            let end = homes.offer_of(node).and_then(resources::Totals::end)?;
            let margin = end.at_ns().saturating_sub(end.margin_ns());
            Some(margin.saturating_sub(self.holder.life.now.0))
        };
        let longest = offering.iter().filter_map(left).max().unwrap_or(0);
        let seconds = |ns: u64| ns as f64 / 1e9;
        let before_ns = notice_of(&work.spec).map_or(0, |notice| notice.before_ns);
        let (asked_ns, asks) = match work.spec.time_request_ns {
            exact if exact >= before_ns => (exact, "it asks for"),
            _ => (before_ns, "it has a signal before its end, and asks for"),
        };
        let (asked, longest) = (seconds(asked_ns), seconds(longest));
        // Other nodes live long enough, and lack the rest.
        let others = homes.living().filter(|node| !offering.contains(node));
        let others: Vec<NodeId> = others.filter(|&node| self.outlives(node, length)).collect();
        let request = work.request().filter(|_| !others.is_empty());
        Some(match request {
            Some(request) => format!(
                "{asks} {asked:.0} s and {request}: no node that offers the rest lives that long, \
                 the longest has {longest:.0} s left; {}",
                self.offers_of(&others)
            ),
            None => format!(
                "{asks} {asked:.0} s, and no node that is there lives that long: the longest has \
                 {longest:.0} s left"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_rounded_up_a_little() {
        let of =
            |time_request_ns| time_request(&wire::Spec { time_request_ns, ..Default::default() }).0;
        for exact in [0, 1, 63, 127] {
            assert_eq!(of(exact), exact);
        }
        for exact in [129, 1_000_000_007, 60_000_000_000, u64::MAX / 3] {
            assert!(of(exact) >= exact && of(exact) - exact <= exact / 64, "{exact}");
        }
        assert_eq!(of(u64::MAX), u64::MAX);
        assert_eq!(of(of(1_000_000_007)), of(1_000_000_007));
    }

    #[test]
    fn a_life_has_an_expiry_for_each_length() {
        let end = EndOfLife::from_parts(1000, 100);
        let mut life = Life::new(Some(end));
        assert!(life.fits(Span(900)) && !life.fits(Span(901)));
        assert_eq!(life.expiry(Span(500)), Some(Time(401)));
        life.now = Time(401);
        assert!(!life.fits(Span(500)) && life.fits(Span::ZERO));
        assert_eq!((life.expiry(Span(500)), life.expiry(Span::ZERO)), (None, None));
        assert!(Life::new(None).fits(Span(u64::MAX)));
    }
}

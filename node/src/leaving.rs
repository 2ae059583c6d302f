//! A node that leaves its cluster by itself: before its known end, or after a time without work.

use kvs::membership::{command, member};
use proto::wire::MemberPhase::Up;
use proto::wire::map_command::Body;
use proto::{NodeId, Span, Time, wire};
use resources::{EndOfLife, Totals};

use crate::node::Node;
use crate::{Config, Departs};

/// The reasons of a node to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reasons {
    end: Option<EndOfLife>,
    departs: Departs,
    /// Since when the node has no work.
    idle_since: Option<Time>,
}

impl Reasons {
    pub(crate) fn of(config: &Config) -> Self {
        Self { end: config.end, departs: config.departs, idle_since: None }
    }
    fn leaves_at(&self) -> Option<Time> {
        self.end.filter(|_| self.departs.before_end).map(|end| Time(end.leaves_at_ns()))
    }
    fn idle_until(&self) -> Option<Time> {
        Some(self.idle_since? + self.departs.idle?)
    }
    fn note_work(&mut self, now: Time, has_work: bool) {
        self.idle_since = match has_work {
            true => None,
            false => self.idle_since.or(Some(now)),
        };
    }
    /// Whether the node is to leave now, and otherwise when to ask again.
    fn judge(&self, now: Time, map: &wire::ClusterMap, me: NodeId) -> Result<(), Option<Time>> {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        // Each step asks: the offers of the members are read only when the time has come.
        let ends = due(self.leaves_at()) && has_successor(map, me, self.end);
        let idles = due(self.idle_until()) && stayer(map, me, self.end) != Some(me);
        if (ends || idles) && keeps_majority(map, me) {
            return Ok(());
        }
        let later = [self.leaves_at(), self.idle_until()].into_iter().flatten();
        Err(later.filter(|&at| at > now).min())
    }
}

fn is_up(member: &wire::Member) -> bool {
    member.phase() == Up && member.incarnation > 0
}

fn end_of(member: &wire::Member) -> Option<EndOfLife> {
    Totals::decode(&member.offer).ok()?.end()
}

/// Whether a node is up that lives longer than this one.
fn has_successor(map: &wire::ClusterMap, me: NodeId, end: Option<EndOfLife>) -> bool {
    let Some(own) = end else { return false };
    let mut others = map.members.iter().filter(|it| it.node != me.0 && is_up(it));
    others.any(|it| end_of(it).is_none_or(|other| other.at_ns() > own.at_ns() + own.margin_ns()))
}

/// The node that never leaves because it is idle: one without a known end, else the one that lives
/// longest; of these a keeper, then the first. So the last nodes do not leave together.
fn stayer(map: &wire::ClusterMap, me: NodeId, end: Option<EndOfLife>) -> Option<NodeId> {
    let up = map.members.iter().filter(|it| is_up(it));
    let first = up.min_by_key(|it| {
        let end = if it.node == me.0 { end } else { end_of(it) };
        let lasts = std::cmp::Reverse(end.map_or(u64::MAX, EndOfLife::at_ns));
        (lasts, !it.keeper, it.node)
    });
    first.map(|it| NodeId(it.node))
}

/// Whether most of the other members are up: else their vote would wait for this node.
fn keeps_majority(map: &wire::ClusterMap, me: NodeId) -> bool {
    let others = map.members.iter().filter(|it| it.node != me.0);
    let (mut all, mut up) = (0, 0);
    for other in others.filter(|it| it.phase() != wire::MemberPhase::Removed) {
        all += 1;
        up += u32::from(is_up(other));
    }
    up * 2 > all
}

impl Node {
    /// Proposes that this node leaves, if it has a reason. The drain takes everything to the
    /// others, and the map removes no node that is needed.
    pub(crate) fn consider_leaving(&mut self, now: Time) {
        let Some(member) = &mut self.member else { return };
        if member.reasons.departs == Departs::default() {
            return;
        }
        member.reasons.note_work(now, self.scheduler.has_work_here());
        let me = self.own.node;
        let known = kvs::membership::member(&self.map, me);
        if known.is_none_or(|known| known.phase() != Up) {
            return;
        }
        match member.reasons.judge(now, &self.map, me) {
            Ok(()) => {
                member.propose(command(Body::Leave(wire::MemberLeave { node: me.0, by_ns: 0 })));
                member.wake_at(now + Span::from_secs(1));
            }
            Err(at) => at.into_iter().for_each(|at| member.wake_at(at)),
        }
    }

    /// Whether the map lists this node as a member that stays.
    #[must_use]
    pub fn is_staying(&self) -> bool {
        member(&self.map, self.own.node).is_some_and(is_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(members: &[(u64, bool, wire::MemberPhase)]) -> wire::ClusterMap {
        let member = |(node, &(end, keeper, phase)): (u32, &(u64, bool, wire::MemberPhase))| {
            let end = (end > 0).then(|| EndOfLife::from_parts(end, 10));
            wire::Member {
                node,
                incarnation: 1,
                phase: phase as i32,
                keeper,
                offer: crate::offer_bytes(None, 1, end),
                ..Default::default()
            }
        };
        let members = (0..).zip(members).map(member).collect();
        wire::ClusterMap { members, ..Default::default() }
    }

    fn reasons(end: u64, idle: Option<u64>, idle_since: Option<u64>) -> Reasons {
        Reasons {
            end: (end > 0).then(|| EndOfLife::from_parts(end, 10)),
            departs: Departs { before_end: true, idle: idle.map(Span) },
            idle_since: idle_since.map(Time),
        }
    }

    #[test]
    fn a_node_leaves_before_its_end_if_another_lives_longer() {
        let two = map(&[(1000, false, Up), (0, false, Up)]);
        let first = reasons(1000, None, None);
        assert_eq!(first.judge(Time(979), &two, NodeId(0)), Err(Some(Time(980))));
        assert_eq!(first.judge(Time(980), &two, NodeId(0)), Ok(()));
        let together = map(&[(1000, false, Up), (1005, false, Up)]);
        assert_eq!(first.judge(Time(980), &together, NodeId(0)), Err(None), "all end");
        let down = map(&[(1000, false, Up), (0, false, Up), (0, false, wire::MemberPhase::Down)]);
        assert_eq!(first.judge(Time(980), &down, NodeId(0)), Err(None), "no majority");
    }

    #[test]
    fn of_nodes_that_all_end_the_one_that_lives_longest_stays() {
        let all = map(&[(1000, true, Up), (5000, false, Up), (5000, true, Up)]);
        let own = |end| Some(EndOfLife::from_parts(end, 10));
        assert_eq!(stayer(&all, NodeId(0), own(1000)), Some(NodeId(2)));
        assert_eq!(stayer(&all, NodeId(1), own(9000)), Some(NodeId(1)));
    }

    #[test]
    fn an_idle_node_leaves_and_one_stays() {
        let idle = reasons(0, Some(100), Some(50));
        let pair = map(&[(0, false, Up), (0, false, Up)]);
        assert_eq!(idle.judge(Time(149), &pair, NodeId(1)), Err(Some(Time(150))));
        assert_eq!(idle.judge(Time(150), &pair, NodeId(1)), Ok(()));
        assert_eq!(idle.judge(Time(150), &pair, NodeId(0)), Err(None), "the first stays");
        let keeper = map(&[(0, false, Up), (0, true, Up)]);
        assert_eq!(idle.judge(Time(150), &keeper, NodeId(0)), Ok(()), "the keeper stays");
        let busy = reasons(0, Some(100), None);
        assert_eq!(busy.judge(Time(150), &pair, NodeId(1)), Err(None));
        let mut again = busy;
        again.note_work(Time(200), false);
        again.note_work(Time(250), false);
        assert_eq!(again.idle_until(), Some(Time(300)));
        again.note_work(Time(260), true);
        assert_eq!(again.idle_until(), None);
    }
}

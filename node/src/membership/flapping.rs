//! Nodes that die and return again and again. Each time their partitions move twice, and replicas
//! are made that do not live long. A node that has died several times recently, each time after a
//! short life, must wait before it counts as alive, and longer after each further death. It must be
//! up for the whole wait, so a node that is never up for long is not admitted at all.
//!
//! Only the leader does this, and nothing of it is agreed on: the leader passes over the proposals
//! of such a node until the wait is over. Every node sees in the map which nodes die and return. So
//! the next leader knows the same, by its own clock.

use std::collections::{BTreeMap, VecDeque};

use kvs::membership::{command, is_serving, member, min_in_sync};
use proto::limits::FLAP_WAIT_MAX;
use proto::marks::{Mark, mark};
use proto::wire::map_command::Body;
use proto::{NodeId, Span, Time, wire};

/// Incarnations shorter than this count when they end, within `FLAP_WINDOW`.
const FLAP_UPTIME_SHORT: Span = Span::from_secs(10);
const FLAP_WINDOW: Span = Span::from_secs(600);
/// After this number of them a node must be up for `FLAP_WAIT_MIN` before the map shows it as up.
/// The wait doubles with each further one, up to `FLAP_WAIT_MAX`.
const FLAP_DEATHS_FREE: usize = 3;
const FLAP_WAIT_MIN: Span = Span::from_secs(1);
/// The number of remembered deaths of one node.
const FLAP_DEATHS_KEPT: usize = 16;
/// Otherwise a node could flap forever.
const _: () = assert!(FLAP_WAIT_MAX.0 > FLAP_UPTIME_SHORT.0);

#[derive(Debug, Default)]
struct Lives {
    /// The incarnation that the map shows as alive, and since when.
    alive: Option<(u32, Time)>,
    /// The ends of short lives.
    deaths: VecDeque<Time>,
    /// The incarnation that asks to count as alive, and since when.
    asks: Option<(u32, Time)>,
}

/// The lives of all nodes that this node has seen.
#[derive(Debug, Default)]
pub(super) struct Flapping {
    nodes: BTreeMap<u32, Lives>,
}

impl super::Membership {
    /// Proposes the commands as the leader. Returns false if another node leads.
    pub(super) fn take_up(&mut self, now: Time, commands: Vec<wire::MapCommand>) -> bool {
        if !self.is_leader() {
            return false;
        }
        let admitted = self.flapping.admitted(now, &self.map, commands);
        self.group.propose(admitted)
    }
}

impl Flapping {
    /// The map has changed, or is the first.
    pub(super) fn look(&mut self, now: Time, map: &wire::ClusterMap) {
        for member in &map.members {
            let is_alive = is_serving(map, member.node) && member.incarnation > 0;
            let shown = is_alive.then_some(member.incarnation);
            let lives = self.nodes.entry(member.node).or_default();
            if lives.alive.map(|(incarnation, _)| incarnation) == shown {
                continue;
            }
            let before = lives.alive.take();
            lives.alive = shown.map(|incarnation| (incarnation, now));
            if before.is_some_and(|(_, since)| now.since(since) < FLAP_UPTIME_SHORT) {
                lives.deaths.push_back(now);
                let surplus = lives.deaths.len().saturating_sub(FLAP_DEATHS_KEPT);
                lives.deaths.drain(..surplus);
            }
        }
    }

    /// How long the node must be up before it counts as alive.
    fn wait(&self, now: Time, node: u32) -> Span {
        let deaths = self.nodes.get(&node).into_iter().flat_map(|lives| &lives.deaths);
        let lately = deaths.filter(|&&at| now.since(at) < FLAP_WINDOW).count();
        let Some(doublings) = lately.checked_sub(FLAP_DEATHS_FREE) else { return Span::ZERO };
        Span(FLAP_WAIT_MIN.0 << doublings.min(32)).min(FLAP_WAIT_MAX)
    }

    /// The commands that the leader accepts now. A new incarnation that has to wait still shows
    /// that the previous one is over.
    fn admitted(
        &mut self,
        now: Time,
        map: &wire::ClusterMap,
        commands: Vec<wire::MapCommand>,
    ) -> Vec<wire::MapCommand> {
        let mut admitted = Vec::with_capacity(commands.len());
        for proposed in commands {
            match &proposed.body {
                Some(Body::Up(up)) if !self.may_come(now, map, up) => {
                    mark(Mark::FlapperWaits);
                    admitted.extend(end_of_earlier(map, up));
                }
                _ => admitted.push(proposed),
            }
        }
        admitted
    }

    fn may_come(&mut self, now: Time, map: &wire::ClusterMap, up: &wire::MemberUp) -> bool {
        let wait = self.wait(now, up.node);
        let is_known = member(map, NodeId(up.node)).is_some();
        if wait == Span::ZERO || !is_known || is_needed(map, up.node) {
            return true;
        }
        let asks = &mut self.nodes.entry(up.node).or_default().asks;
        let (incarnation, since) = *asks.get_or_insert((up.incarnation, now));
        if incarnation != up.incarnation {
            *asks = Some((up.incarnation.max(incarnation), now));
            return false;
        }
        now.since(since) >= wait
    }
}

fn end_of_earlier(map: &wire::ClusterMap, up: &wire::MemberUp) -> Option<wire::MapCommand> {
    let known = member(map, NodeId(up.node))?;
    let is_over = is_serving(map, up.node) && known.incarnation < up.incarnation;
    let down = wire::MemberDown { node: up.node, incarnation: known.incarnation };
    is_over.then(|| command(Body::Down(down)))
}

/// Whether the node cannot wait. Either no other living node has records that this node may have,
/// or without it too few nodes live to acknowledge anything.
fn is_needed(map: &wire::ClusterMap, node: u32) -> bool {
    let others = map.members.iter().filter(|it| it.node != node && is_serving(map, it.node));
    if others.count() < min_in_sync(map.copies) {
        return true;
    }
    map.partitions.iter().filter(|entry| !entry.active && !entry.lost).any(|entry| {
        let holders = || entry.replicas.iter().chain(&entry.former);
        let has_other = holders().any(|&other| other != node && is_serving(map, other));
        !has_other && holders().any(|&holder| holder == node)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAPPER: u32 = 4;

    fn at_ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    struct Case {
        map: wire::ClusterMap,
        flapping: Flapping,
        incarnation: u32,
    }

    impl Case {
        fn new() -> Self {
            let mut map = kvs::make_replicated_map(1, 5, 16, 2);
            for member in &mut map.members {
                (member.incarnation, member.phase) = (1, wire::MemberPhase::Up as i32);
            }
            map.partitions.iter_mut().for_each(|entry| entry.active = true);
            let mut flapping = Flapping::default();
            flapping.look(at_ms(0), &map);
            Self { map, flapping, incarnation: 1 }
        }
        fn apply(&mut self, ms: u64, commands: &[wire::MapCommand]) {
            for command in commands {
                assert!(kvs::membership::apply(&mut self.map, command), "{command:?}");
            }
            self.map.partitions.iter_mut().for_each(|entry| entry.active = true);
            self.flapping.look(at_ms(ms), &self.map);
        }
        fn dies(&mut self, ms: u64) {
            if is_serving(&self.map, FLAPPER) {
                let incarnation = self.incarnation;
                let down = wire::MemberDown { node: FLAPPER, incarnation };
                self.apply(ms, &[command(Body::Down(down))]);
            }
            self.incarnation += 1;
        }
        fn asks(&mut self, ms: u64) -> Vec<wire::MapCommand> {
            let incarnation = self.incarnation;
            let up = wire::MemberUp { node: FLAPPER, incarnation, ..Default::default() };
            let map = self.map.clone();
            self.flapping.admitted(at_ms(ms), &map, vec![command(Body::Up(up))])
        }
        /// Up and down in turns. Returns how often the node was admitted.
        fn flaps(&mut self, up_ms: u64, down_ms: u64, until_ms: u64) -> usize {
            let (mut ms, mut taken) = (1_000, 0);
            while ms < until_ms {
                self.dies(ms);
                ms += down_ms;
                for asked in (ms..ms + up_ms).step_by(500) {
                    let admitted = self.asks(asked);
                    if !admitted.is_empty() {
                        self.apply(asked, &admitted);
                        taken += 1;
                        break;
                    }
                }
                ms += up_ms;
            }
            self.dies(ms);
            taken
        }
    }

    #[test]
    fn a_node_that_is_never_up_for_long_is_not_admitted() {
        for (up_ms, most) in [(500, 2), (2_000, 3), (5_000, 5), (9_000, 6)] {
            let mut case = Case::new();
            let taken = case.flaps(up_ms, 2_000, 580_000);
            assert!((2..=most).contains(&taken), "{up_ms} ms: {taken}");
        }
    }

    #[test]
    fn a_node_that_stays_up_is_admitted_after_a_while() {
        let mut case = Case::new();
        case.flaps(9_000, 2_000, 100_000);
        let begun = 120_000;
        assert!(case.asks(begun).is_empty());
        assert!(case.asks(begun + FLAP_WAIT_MAX.0 / 2_000_000).is_empty());
        let admitted = case.asks(begun + FLAP_WAIT_MAX.0 / 1_000_000);
        case.apply(begun + 16_000, &admitted);
        assert!(is_serving(&case.map, FLAPPER));
        // It has lived for long by now.
        let later = begun + FLAP_WINDOW.0 / 1_000_000;
        case.dies(later);
        assert_eq!(case.asks(later).len(), 1);
    }

    #[test]
    fn a_needed_node_does_not_wait() {
        let mut case = Case::new();
        case.flaps(2_000, 2_000, 60_000);
        assert!(case.asks(70_000).is_empty());
        case.map.partitions[3].active = false;
        case.map.partitions[3].replicas = vec![FLAPPER];
        assert_eq!(case.asks(70_500).len(), 1);
    }

    #[test]
    fn a_new_life_that_waits_ends_the_one_before() {
        let mut case = Case::new();
        // So fast that no node sees it dead.
        for ms in [1_000, 2_000, 3_000] {
            case.incarnation += 1;
            let admitted = case.asks(ms);
            case.apply(ms, &admitted);
        }
        case.incarnation += 1;
        let admitted = case.asks(4_000);
        assert!(matches!(admitted[0].body, Some(Body::Down(_))), "{admitted:?}");
        case.apply(4_000, &admitted);
        assert!(!is_serving(&case.map, FLAPPER));
        assert!(case.asks(4_500).is_empty());
    }
}

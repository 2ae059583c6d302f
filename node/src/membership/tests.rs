//! Nodes that only monitor one another, under virtual time: which nodes are declared failed, how
//! soon, and which are not.

use std::collections::{BTreeMap, BTreeSet};

use proto::Span;

use super::*;
use crate::membership::limits::TIMEOUT_STRETCH_MAX;

const MILLI: u64 = 1_000_000;

enum Event {
    Message { from: u32, incarnation: u32, to: u32, message: Box<wire::MembershipMessage> },
    Synced { node: u32, life: u32, number: u64 },
    Timer { node: u32, life: u32, at: Time },
    Lost { node: u32, peer: u32 },
}

#[derive(Default)]
struct Machine {
    live: Option<Membership>,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    incarnation: u32,
    store: u64,
    paused_until: Time,
    fenced: Option<Option<Incarnation>>,
    sent: u64,
    armed: Option<Time>,
}

struct World {
    now: Time,
    first: Arc<wire::ClusterMap>,
    machines: Vec<Machine>,
    queue: BTreeMap<(Time, u64), Event>,
    number: u64,
    seed: u64,
    cut: BTreeSet<(u32, u32)>,
    /// One-way latency by node: a slow node is slow in all that it sends and receives.
    latency: BTreeMap<u32, u64>,
}

impl World {
    fn new(nodes: u32, seed: u64) -> Self {
        let first = Arc::new(kvs::make_replicated_map(7, nodes, 64, 2));
        let machines =
            (0..nodes).map(|node| Machine { store: 100 + u64::from(node), ..Default::default() });
        let mut world = Self {
            now: Time(1_000_000 * MILLI),
            first,
            machines: machines.collect(),
            queue: BTreeMap::new(),
            number: 0,
            seed,
            cut: BTreeSet::new(),
            latency: BTreeMap::new(),
        };
        (0..nodes).for_each(|node| world.start(node));
        world.run_for(5_000);
        assert!(world.live().all(|it| it.map.members.iter().all(|m| m.incarnation == 1)));
        world
    }

    fn live(&self) -> impl Iterator<Item = &Membership> {
        self.machines.iter().filter_map(|machine| machine.live.as_ref())
    }

    fn dice(&mut self, end: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
        (self.seed >> 33) % end.max(1)
    }

    fn start(&mut self, node: u32) {
        let seed = self.dice(1 << 30);
        let machine = &mut self.machines[node as usize];
        machine.incarnation += 1;
        machine.fenced = None;
        machine.armed = None;
        let own = Identity {
            node: NodeId(node),
            incarnation: Incarnation(machine.incarnation),
            store: machine.store,
            address: String::new(),
            data_address: String::new(),
            host: String::new(),
            slots: 1,
            offer: Vec::new(),
            pid: 1,
            seed,
            late: node as usize >= self.first.members.len(),
            mutant: None,
        };
        let partition = kvs::keys::META_PARTITION;
        let records = machine.records.iter().map(|(key, value)| Record {
            partition,
            key: key.clone(),
            value: value.clone(),
        });
        let records: Vec<Record> = records.collect();
        let live = Membership::recover(own, self.first.clone(), records, self.now).unwrap();
        machine.live = Some(live);
        self.step(node, |_, _| {});
    }

    /// Its process ends; other nodes see their transports break.
    fn kill(&mut self, node: u32) {
        self.silence(node);
        for peer in 0..self.machines.len() as u32 {
            let at = self.now + Span(self.dice(3 * MILLI));
            self.push(at, Event::Lost { node: peer, peer: node });
        }
    }

    /// Its machine is gone: no transport breaks.
    fn silence(&mut self, node: u32) {
        self.machines[node as usize].live = None;
    }

    fn push(&mut self, at: Time, event: Event) {
        self.number += 1;
        self.queue.insert((at, self.number), event);
    }

    fn step(&mut self, node: u32, act: impl FnOnce(&mut Membership, Time)) {
        let now = self.now;
        let machine = &mut self.machines[node as usize];
        let Some(live) = &mut machine.live else { return };
        act(live, now);
        let mut done = Done::default();
        live.flush(now, &mut done);
        let deadline = live.deadline(now);
        if done.fenced.is_some() {
            machine.fenced = done.fenced;
        }
        machine.sent += done.messages.len() as u64;
        let life = machine.incarnation;
        if !done.writes.is_empty() {
            for write in done.writes {
                match write.value {
                    Some(value) => machine.records.insert(write.key, value),
                    None => machine.records.remove(&write.key),
                };
            }
            let at = now + Span(2 * MILLI);
            self.push(at, Event::Synced { node, life, number: done.number });
        }
        for (to, message) in done.messages {
            self.send(node, life, to.0, message);
        }
        let at = deadline.max(now + Span(1000));
        if self.machines[node as usize].armed != Some(at) {
            self.machines[node as usize].armed = Some(at);
            self.push(at, Event::Timer { node, life, at });
        }
    }

    fn send(&mut self, from: u32, incarnation: u32, to: u32, message: wire::MembershipMessage) {
        if self.cut.contains(&(from, to)) {
            return;
        }
        let slow = |node| self.latency.get(&node).copied().unwrap_or(0);
        let latency = slow(from) + slow(to);
        let at = self.now + Span(MILLI / 4 + self.dice(MILLI) + latency);
        let message = Box::new(message);
        self.push(at, Event::Message { from, incarnation, to, message });
    }

    fn run_for(&mut self, millis: u64) {
        self.run_until(millis, |_| false);
    }

    /// The time until the condition holds; `None`: it did not hold within that time.
    fn run_until(&mut self, millis: u64, holds: impl Fn(&Self) -> bool) -> Option<Span> {
        let (begin, until) = (self.now, self.now + Span(millis * MILLI));
        while let Some(first) = self.queue.first_entry() {
            if first.key().0 > until {
                break;
            }
            let ((at, _), event) = first.remove_entry();
            self.now = self.now.max(at);
            self.happen(event);
            if holds(self) {
                return Some(self.now.since(begin));
            }
        }
        self.now = until;
        None
    }

    fn happen(&mut self, event: Event) {
        let node = match event {
            Event::Message { to, .. } => to,
            Event::Synced { node, .. } | Event::Timer { node, .. } | Event::Lost { node, .. } => {
                node
            }
        };
        let machine = &self.machines[node as usize];
        if machine.paused_until > self.now {
            let at = machine.paused_until;
            return self.push(at, event);
        }
        let life = machine.incarnation;
        match event {
            Event::Message { from, incarnation, message, .. } => self.step(node, |it, now| {
                it.handle(now, NodeId(from), Incarnation(incarnation), *message);
            }),
            Event::Synced { life: of, number, .. } if of == life => {
                self.step(node, |it, now| it.synced(now, number));
            }
            Event::Timer { life: of, at, .. } if of == life => {
                // Only the newest timer is the one that was requested.
                if self.machines[node as usize].armed == Some(at) {
                    self.machines[node as usize].armed = None;
                    self.step(node, Membership::on_time);
                }
            }
            Event::Lost { peer, .. } => {
                self.step(node, |it, now| it.peer_lost(now, NodeId(peer)));
            }
            Event::Synced { .. } | Event::Timer { .. } => {}
        }
    }

    fn phase_is(&self, node: u32, phase: wire::MemberPhase) -> bool {
        let mut maps = self.live().filter(|it| it.own.node.0 != node).map(|it| &it.map);
        maps.all(|map| map.members.get(node as usize).is_some_and(|it| it.phase() == phase))
    }

    fn leader(&self) -> u32 {
        let leader = self.live().find(|it| it.group.is_leader());
        leader.expect("there is a leader").own.node.0
    }

    fn no_node_is_down(&self) -> bool {
        self.live().all(|it| it.map.members.iter().all(|known| known.phase() != Down))
    }
}

#[test]
fn a_killed_process_is_seen_within_a_second_even_if_it_led() {
    for nodes in [3, 5, 7] {
        for seed in 0..20 {
            let mut world = World::new(nodes, seed);
            let node =
                if seed % 2 == 0 { world.leader() } else { (seed % u64::from(nodes)) as u32 };
            world.kill(node);
            let took = world.run_until(5_000, |world| world.phase_is(node, Down));
            let took = took.expect("its death is seen");
            assert!(took < Span::from_secs(1), "{nodes} nodes, seed {seed}: {took:?}");
        }
    }
}

#[test]
fn a_silent_node_is_seen_within_ten_seconds_even_if_it_led() {
    for nodes in [3, 5, 9] {
        for seed in 0..20 {
            let mut world = World::new(nodes, seed);
            let node =
                if seed % 2 == 0 { world.leader() } else { (seed % u64::from(nodes)) as u32 };
            world.silence(node);
            let took = world.run_until(20_000, |world| world.phase_is(node, Down));
            let took = took.expect("its silence is seen");
            assert!(took < Span::from_secs(10), "{nodes} nodes, seed {seed}: {took:?}");
        }
    }
}

#[test]
fn slow_is_not_dead() {
    for seed in 0..10 {
        let mut world = World::new(5, seed);
        world.latency.insert(3, 600 * MILLI);
        for _ in 0..40 {
            // The node stalls for more than a second from time to time, and its connections break.
            world.machines[3].paused_until = world.now + Span(world.dice(1_500) * MILLI);
            world.run_for(3_000);
            assert!(world.no_node_is_down(), "seed {seed}");
        }
    }
}

#[test]
fn a_transport_that_breaks_is_no_death() {
    let mut world = World::new(5, 3);
    for _ in 0..50 {
        let (node, peer) = (world.dice(5) as u32, world.dice(5) as u32);
        world.push(world.now, Event::Lost { node, peer });
        world.run_for(700);
    }
    assert!(world.no_node_is_down());
}

#[test]
fn a_cut_between_two_is_bridged_by_the_others() {
    for seed in 0..20 {
        let mut world = World::new(5, seed);
        let (a, b) = (world.dice(5) as u32, world.dice(5) as u32);
        world.cut.insert((a, b));
        if seed % 2 == 0 {
            world.cut.insert((b, a));
        }
        // A broken direction to the leader, or from it, is the worst.
        world.run_for(60_000);
        assert!(world.no_node_is_down(), "seed {seed}: {:?}", world.cut);
    }
}

#[test]
fn a_node_that_was_suspended_suspects_no_other() {
    for seed in 0..10 {
        let mut world = World::new(5, seed);
        let leader = world.leader();
        world.machines[leader as usize].paused_until = world.now + Span(2_500 * MILLI);
        world.run_for(20_000);
        assert!(world.no_node_is_down(), "seed {seed}");
    }
}

#[test]
fn a_zombie_learns_that_it_is_over_and_comes_back_as_another() {
    for seed in 0..10 {
        let mut world = World::new(3, seed);
        let node = (seed % 3) as u32;
        world.machines[node as usize].paused_until = world.now + Span(30_000 * MILLI);
        assert!(
            world
                .run_until(20_000, |world| {
                    let mut others = world.live().filter(|it| it.own.node.0 != node);
                    others.all(|it| it.map.members[node as usize].phase() == Down)
                })
                .is_some()
        );
        assert_eq!(world.machines[node as usize].fenced, None);
        world.run_for(30_000);
        assert_eq!(world.machines[node as usize].fenced, Some(Some(Incarnation(2))), "seed {seed}");
        world.start(node);
        let up = |world: &World| world.phase_is(node, wire::MemberPhase::Up);
        assert!(world.run_until(5_000, up).is_some(), "seed {seed}");
    }
}

#[test]
fn without_a_majority_the_map_stays_and_with_it_all_goes_on() {
    let mut world = World::new(3, 1);
    world.kill(0);
    world.kill(1);
    let before = world.live().map(|it| it.map.epoch).max();
    world.run_for(60_000);
    assert_eq!(world.live().map(|it| it.map.epoch).max(), before);
    world.start(0);
    world.start(1);
    let all = |world: &World| {
        (0..2).all(|node| world.live().all(|it| it.map.members[node].incarnation == 2))
    };
    assert!(world.run_until(10_000, all).is_some());
}

#[test]
fn of_five_that_die_one_after_another_the_last_two_still_agree() {
    for seed in 0..10 {
        let mut world = World::new(5, seed);
        for node in [0, 3, 1] {
            world.kill(node);
            let down = |world: &World| world.phase_is(node, Down);
            assert!(world.run_until(5_000, down).is_some(), "seed {seed}, n{node}");
            world.run_for(3_000); // The voters are replaced.
        }
        assert_eq!(world.live().count(), 2);
    }
}

/// A reformatted voter has lost its promises: it is declared failed, loses its vote, and returns.
#[test]
fn a_voter_that_lost_its_disk_comes_back_without_its_memory() {
    for seed in 0..10 {
        let mut world = World::new(3, seed);
        let node = (seed % 3) as u32;
        world.kill(node);
        let machine = &mut world.machines[node as usize];
        machine.records.clear();
        machine.store += 1000;
        machine.incarnation = 0;
        world.start(node);
        // The node learns that the map has a later incarnation of it, and starts as the next one.
        assert!(
            world
                .run_until(5_000, |world| world.machines[node as usize].fenced.is_some())
                .is_some()
        );
        world.machines[node as usize].incarnation = 1;
        world.start(node);
        let is_back = |world: &World| {
            world.live().all(|it| {
                let known = &it.map.members[node as usize];
                known.phase() == wire::MemberPhase::Up && known.store > 1000
            })
        };
        assert!(world.run_until(30_000, is_back).is_some(), "seed {seed}");
        world.run_for(20_000);
        assert!(world.live().all(|it| it.map.voters == [0, 1, 2]), "seed {seed}");
    }
}

#[test]
fn a_joining_node_gets_a_number_and_the_map() {
    let mut world = World::new(3, 5);
    let join = wire::MemberJoin { store: 555, ..Default::default() };
    let join = membership::command(map_command::Body::Join(join));
    world.step(2, |it, _| it.propose(join));
    let has_number = |world: &World| world.live().all(|it| it.map.members.len() == 4);
    assert!(world.run_until(3_000, has_number).is_some());
    world.machines.push(Machine { store: 555, ..Default::default() });
    let first = Arc::clone(&world.first);
    world.first = Arc::clone(&world.machines[1].live.as_ref().unwrap().map);
    world.start(3);
    world.first = first;
    let up = |world: &World| world.phase_is(3, wire::MemberPhase::Up);
    assert!(world.run_until(5_000, up).is_some());
    world.run_for(5_000);
    let epochs: BTreeSet<u64> = world.live().map(|it| it.map.epoch).collect();
    assert_eq!(epochs.len(), 1, "all have the same map: {epochs:?}");
}

#[test]
fn a_second_drain_with_a_later_deadline_is_proposed_no_more() {
    let mut world = World::new(3, 5);
    let leave =
        |by_ns| membership::command(map_command::Body::Leave(wire::MemberLeave { node: 2, by_ns }));
    for (by_ns, agreed) in [(2_000, 2_000), (3_000, 2_000), (1_000, 1_000)] {
        world.step(1, |it, _| it.propose(leave(by_ns)));
        world.run_for(3_000);
        for live in world.live() {
            let of_member = member(&live.map, NodeId(2)).map(|it| it.leaves_by_ns);
            assert_eq!((of_member, live.proposes()), (Some(agreed), false), "deadline {by_ns}");
        }
    }
}

/// The founder of a cluster of one has let two others in, and lost its vote while it was down. It
/// knows of an agreement that it lacks, so it does not stand for election (seed 31099576).
#[test]
fn a_founder_that_was_given_up_finds_those_that_it_let_in() {
    let mut world = World::new(1, 4);
    for node in 1..3 {
        let store = 555 + u64::from(node);
        let join = wire::MemberJoin { store, ..Default::default() };
        let join = membership::command(map_command::Body::Join(join));
        world.step(0, |it, _| it.propose(join));
        let has_number = |world: &World| world.live().all(|it| it.map.members.len() as u32 > node);
        assert!(world.run_until(3_000, has_number).is_some());
        world.machines.push(Machine { store, ..Default::default() });
        let map = Arc::clone(&world.machines[0].live.as_ref().unwrap().map);
        let first = std::mem::replace(&mut world.first, map);
        world.start(node);
        world.first = first;
    }
    let all_vote = |world: &World| world.live().all(|it| it.map.voters == [0, 1, 2]);
    assert!(world.run_until(20_000, all_vote).is_some());
    world.kill(0);
    let has_no_vote = |world: &World| world.live().all(|it| !it.map.voters.contains(&0));
    assert!(world.run_until(60_000, has_no_vote).is_some());
    world.cut.extend([(0, 1), (0, 2), (1, 0), (2, 0)]);
    world.start(0);
    let (prev_index, commit) = (1_000, 1_000);
    let append = wire::AppendEntries { prev_index, prev_term: 9, commit, ..Default::default() };
    let body = Some(wire::group_message::Body::AppendEntries(append));
    let message = wire::GroupMessage { term: 9, body };
    world.step(0, |it, now| it.group.handle(now, NodeId(1), message));
    world.run_for(100);
    world.silence(0);
    world.cut.clear();
    world.start(0);
    let is_up = |world: &World| world.phase_is(0, wire::MemberPhase::Up);
    assert!(world.run_until(5_000, is_up).is_some());
    world.run_for(5_000);
    let epochs: BTreeSet<u64> = world.live().map(|it| it.map.epoch).collect();
    assert_eq!(epochs.len(), 1, "all have the same map: {epochs:?}");
}

#[test]
fn an_idle_cluster_sends_little() {
    let mut world = World::new(5, 9);
    world.run_for(5_000);
    let before: u64 = world.machines.iter().map(|machine| machine.sent).sum();
    world.run_for(60_000);
    let after: u64 = world.machines.iter().map(|machine| machine.sent).sum();
    // A probe and its answer, and the heartbeats of the group.
    let per_second = (after - before) / 60;
    assert!(per_second <= 5 * 2 + 4 * 2 * 4 + 2, "{per_second} messages a second of five nodes");
}

/// The detector was late itself, so it waits longer than the probe period: for a silent node alone,
/// and for one of two nodes.
#[test]
fn a_long_timeout_still_declares_a_silent_node_failed() {
    for peers in [1..2, 1..3] {
        let mut detector = Detector::new(Time(0), 0);
        detector.watch(Time(0), peers.clone().map(|node| (node, 1)));
        let mut now = Time(0);
        for _ in 0..TIMEOUT_STRETCH_MAX {
            now = detector.deadline().max(now) + Span::from_secs(1);
            detector.on_time(now);
        }
        let awake = now;
        while detector.dead(now).next().is_none() {
            // The other one answers at once.
            detector.heard(now, 2, 1);
            now = detector.deadline().max(now);
            detector.on_time(now);
            assert!(now < awake + Span::from_secs(30), "node 1 never answers");
            now = detector.next_death(now).map_or(now, |at| at.min(detector.deadline()).max(now));
        }
        assert_eq!(detector.dead(now).next(), Some((1, 1)));
    }
}

/// Of two founders only node 0 has a vote. It returns without its disk. Before it has heard node 1
/// it leads no group, and then it knows that this is no first start.
#[test]
fn a_founder_that_votes_alone_does_not_start_a_second_group() {
    let leads = |is_wiped: bool| {
        let mut world = World::new(2, 4);
        assert!(world.machines[0].live.as_ref().is_some_and(Membership::is_leader));
        world.cut.extend([(0, 1), (1, 0)]);
        world.machines[0].live = None;
        if is_wiped {
            world.machines[0].records.clear();
            world.machines[0].store = 900;
        }
        world.start(0);
        world.run_for(1_000);
        let early = world.machines[0].live.as_ref().is_some_and(Membership::is_leader);
        world.cut.clear();
        world.run_for(20_000);
        (early, world.machines[0].live.as_ref().is_some_and(Membership::is_leader))
    };
    assert_eq!(leads(false), (true, true), "it has its records");
    assert_eq!(leads(true), (false, false));
}

//! Voters in a loop under virtual time: a network that loses, repeats, delays, reorders and cuts,
//! disks that lose what is not synced, pauses and deaths. Every run is a function of its seed.

mod checks;
mod disk;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::make_replicated_map;
use checks::Checks;
use disk::Disk;

const NODES: u32 = 6;
const PARTITIONS: u32 = 2;
/// A run with more turns in circles.
const EVENTS_MAX: u64 = 200_000;

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) seed: u64,
    pub(super) mutant: Option<Mutant>,
}

#[derive(Clone, Debug)]
enum Event {
    Message { to: u32, from: u32, message: Box<wire::GroupMessage> },
    Synced { node: u32, life: u32, number: u64 },
    Timer { node: u32, life: u32 },
    Start { node: u32 },
    Propose,
    ChangeVoters,
    Crash,
    Pause,
    Cut,
}

#[derive(Debug)]
struct Machine {
    group: Option<Group>,
    disk: Disk,
    life: u32,
    paused_until: Time,
    timer: Option<Time>,
}

/// Rates of this seed; 0 is never.
#[derive(Debug, Default)]
struct Faults {
    lost_permille: u64,
    repeated_permille: u64,
    late_max: u64,
    crash_every: u64,
    pause_every: u64,
    cut_every: u64,
    voters_every: u64,
    sync_least: u64,
    sync_max: u64,
    /// Deaths right after a vote, an election or a decision, when they hurt most.
    ill_timed_permille: u64,
    down_max: u64,
}

impl Faults {
    /// Nothing is wrong but the disks, which take so long for a sync that a vote takes longer than
    /// a leader is given to be heard of.
    fn of_slow_disks() -> Self {
        let (sync_least, sync_max) = (3_000 * MILLI, 5_000 * MILLI);
        Self { late_max: 2 * MILLI, down_max: 1, sync_least, sync_max, ..Self::default() }
    }

    /// Leaders die as soon as they lead or decide, and the voters stay: their logs come apart.
    fn of_leaders(others: Self) -> Self {
        Self {
            ill_timed_permille: 400,
            voters_every: 0,
            pause_every: 0,
            crash_every: 0,
            lost_permille: 300,
            late_max: 20 * MILLI,
            sync_max: others.sync_max.max(100 * MILLI),
            ..others
        }
    }
}

#[derive(Debug)]
pub(super) struct World {
    now: Time,
    dice: Dice,
    first: Arc<wire::ClusterMap>,
    machines: Vec<Machine>,
    queue: BTreeMap<(Time, u64), Event>,
    number: u64,
    cut: BTreeMap<(u32, u32), Time>,
    faults: Faults,
    mutant: Option<Mutant>,
    incarnation: u32,
    pub(super) checks: Checks,
}

const MILLI: u64 = 1_000_000;

impl World {
    pub(super) fn new(options: &Options) -> Self {
        let mut dice = Dice::new(options.seed);
        let voters = 3 + dice.below(3) as u32;
        let mut first = make_replicated_map(1, NODES, PARTITIONS, 1);
        first.voters = (0..voters).collect();
        let first = Arc::new(first);
        let mut pick = |from: &[u64]| from[dice.below(from.len() as u64) as usize];
        let faults = Faults {
            lost_permille: pick(&[0, 20, 100, 300]),
            repeated_permille: pick(&[0, 50, 300]),
            late_max: pick(&[2, 20, 200, 1500]) * MILLI,
            crash_every: pick(&[0, 400, 1500, 5000]) * MILLI,
            pause_every: pick(&[0, 1000, 4000]) * MILLI,
            cut_every: pick(&[0, 500, 2000]) * MILLI,
            voters_every: pick(&[0, 300, 1500]) * MILLI,
            sync_least: 0,
            sync_max: pick(&[1, 10, 100, 500]) * MILLI,
            ill_timed_permille: pick(&[0, 0, 50, 300]),
            down_max: pick(&[5, 300, 3000]) * MILLI,
        };
        let faults = if options.seed % 4 == 3 { Faults::of_leaders(faults) } else { faults };
        let machine = |_| Machine {
            group: None,
            disk: Disk::default(),
            life: 0,
            paused_until: Time::ZERO,
            timer: None,
        };
        let mut world = Self {
            now: Time(1_000 * MILLI),
            dice,
            first,
            machines: (0..NODES).map(machine).collect(),
            queue: BTreeMap::new(),
            number: 0,
            cut: BTreeMap::new(),
            faults,
            mutant: options.mutant,
            incarnation: 1,
            checks: Checks::default(),
        };
        (0..NODES).for_each(|node| world.start(node));
        for event in [Event::Propose, Event::ChangeVoters, Event::Crash, Event::Pause, Event::Cut] {
            world.again(event);
        }
        world
    }

    /// Trouble for a while, then peace; in the end all that vote must agree on something new.
    pub(super) fn live(&mut self) {
        self.run_for(Span::from_secs(20));
        self.heal();
        self.run_for(Span::from_secs(8));
        if self.checks.broken.is_some() {
            return;
        }
        let wanted = self.now;
        for _ in 0..20 {
            self.propose_everywhere();
            self.run_for(Span::from_millis(500));
            if self.all_agree() {
                break;
            }
        }
        self.check_logs();
        if !self.all_agree() {
            let all: Vec<String> = self
                .machines
                .iter()
                .filter_map(|m| m.group.as_ref())
                .map(Group::describe)
                .collect();
            self.checks.fail(format!("no progress since {wanted:?}:\n{}", all.join("\n")));
        }
    }

    /// On slow disks: what is proposed every few seconds is agreed on, and how many terms it takes.
    pub(super) fn live_with_slow_disks(options: &Options) -> Result<u64, String> {
        let mut world = Self::new(options);
        world.faults = Faults::of_slow_disks();
        world.queue.retain(|_, event| {
            matches!(event, Event::Message { .. } | Event::Synced { .. } | Event::Timer { .. })
        });
        world.run_for(Span::from_secs(60));
        for _ in 0..5 {
            world.propose_everywhere();
            world.run_for(Span::from_secs(20));
            if !world.all_agree() {
                let all = world.machines.iter().filter_map(|machine| machine.group.as_ref());
                let all: Vec<String> = all.map(Group::describe).collect();
                let text = format!("nothing agreed on by {:?}:\n{}", world.now, all.join("\n"));
                world.checks.fail(text);
            }
        }
        let terms = world.machines.iter().filter_map(|m| m.group.as_ref()).map(|g| g.term).max();
        world.checks.broken.map_or_else(|| Ok(terms.unwrap_or(0)), Err)
    }

    /// All voters have the last thing that was proposed.
    fn all_agree(&self) -> bool {
        let leader = self.machines.iter().filter_map(|m| m.group.as_ref()).find(|g| g.is_leader());
        leader.is_some_and(|leader| {
            let is_new = |group: &Group| group.map.members[0].incarnation == self.incarnation;
            let voters = leader.log.voters().iter();
            voters
                .filter_map(|&node| self.machines[node as usize].group.as_ref())
                .all(|group| is_new(group) && group.map == leader.map)
        })
    }

    fn run_for(&mut self, span: Span) {
        let until = self.now + span;
        while self.checks.broken.is_none() {
            let Some(entry) = self.queue.first_entry() else { break };
            if entry.key().0 > until {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.happen(event);
            if self.number > EVENTS_MAX {
                self.checks.fail(format!("{EVENTS_MAX} events: somebody talks in circles"));
            }
        }
        self.now = until;
    }

    fn push(&mut self, at: Time, event: Event) {
        self.number += 1;
        self.queue.insert((at.max(self.now), self.number), event);
    }

    fn again(&mut self, event: Event) {
        let every = match event {
            Event::Propose => 150 * MILLI,
            Event::ChangeVoters => self.faults.voters_every,
            Event::Crash => self.faults.crash_every,
            Event::Pause => self.faults.pause_every,
            Event::Cut => self.faults.cut_every,
            _ => 0,
        };
        if every > 0 {
            let at = self.now + Span(self.dice.below(2 * every));
            self.push(at, event);
        }
    }

    fn any(&mut self) -> u32 {
        self.dice.below(u64::from(NODES)) as u32
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Message { to, from, message } => {
                let paused = self.machines[to as usize].paused_until;
                if paused > self.now {
                    return self.push(paused, Event::Message { to, from, message });
                }
                self.step(to, |group, now| group.handle(now, NodeId(from), *message));
            }
            Event::Synced { node, life, number } => {
                let machine = &mut self.machines[node as usize];
                if machine.life == life && machine.group.is_some() {
                    machine.disk.sync(number);
                    if machine.paused_until > self.now {
                        let at = machine.paused_until;
                        return self.push(at, Event::Synced { node, life, number });
                    }
                    self.step(node, |group, now| group.synced(now, number));
                }
            }
            Event::Timer { node, life } => {
                let machine = &mut self.machines[node as usize];
                if machine.life == life {
                    machine.timer = None;
                    let at = machine.paused_until;
                    if at > self.now {
                        machine.timer = Some(at);
                        return self.push(at, Event::Timer { node, life });
                    }
                    self.step(node, |group, now| group.on_time(now));
                }
            }
            Event::Start { node } => self.start(node),
            Event::Propose => {
                self.incarnation += 1;
                let node = self.any();
                self.propose(node);
                self.again(Event::Propose);
            }
            Event::ChangeVoters => {
                let node = self.any();
                self.change_voters(node);
                self.again(Event::ChangeVoters);
            }
            Event::Crash => {
                let node = self.any();
                self.crash(node);
                self.again(Event::Crash);
            }
            Event::Pause => {
                let node = self.any();
                let span = Span(self.dice.below(4_000 * MILLI));
                self.machines[node as usize].paused_until = self.now + span;
                self.again(Event::Pause);
            }
            Event::Cut => {
                self.cut_something();
                self.again(Event::Cut);
            }
        }
    }

    /// One pair one way, one node from all, or one half from the other.
    fn cut_something(&mut self) {
        let until = self.now + Span(self.dice.below(4_000 * MILLI));
        let (kind, a, b) = (self.dice.below(3), self.any(), self.any());
        let half: Vec<bool> = (0..NODES).map(|_| self.dice.below(2) == 0).collect();
        for from in 0..NODES {
            for to in 0..NODES {
                let is_cut = match kind {
                    0 => (from, to) == (a, b),
                    1 => (from == a) != (to == a),
                    _ => half[from as usize] != half[to as usize],
                };
                if is_cut {
                    self.cut.insert((from, to), until);
                }
            }
        }
    }

    fn command(&self) -> wire::MapCommand {
        let incarnation = self.incarnation;
        let up = wire::MemberUp { node: 0, incarnation, store: 7, ..Default::default() };
        membership::command(wire::map_command::Body::Up(up))
    }

    /// Whoever leads, in its own eyes, takes it; as forwarding would.
    fn propose(&mut self, node: u32) {
        let command = self.command();
        let leader = self.machines[node as usize].group.as_ref().and_then(Group::leader);
        let to = leader.map_or(node, |leader| leader.0);
        self.step(to, |group, _| {
            group.propose([command]);
        });
    }

    fn propose_everywhere(&mut self) {
        self.incarnation += 1;
        for node in 0..NODES {
            self.propose(node);
        }
    }

    /// Adds or takes away a voter, at whoever leads.
    fn change_voters(&mut self, node: u32) {
        for leader in 0..NODES {
            self.step(leader, |group, _| {
                if !group.is_leader() {
                    return;
                }
                let mut voters = group.log.voters().to_vec();
                if voters.contains(&node) && voters.len() > 1 {
                    voters.retain(|&voter| voter != node);
                } else if !voters.contains(&node) && voters.len() < 5 {
                    voters.push(node);
                    voters.sort_unstable();
                }
                let set = wire::SetVoters { voters };
                group.propose([membership::command(wire::map_command::Body::SetVoters(set))]);
            });
        }
    }

    fn step(&mut self, node: u32, act: impl FnOnce(&mut Group, Time)) {
        let now = self.now;
        let machine = &mut self.machines[node as usize];
        if machine.paused_until > now {
            return;
        }
        let Some(group) = &mut machine.group else { return };
        let led = group.is_leader();
        act(group, now);
        let mut output = Output::default();
        group.flush(now, &mut output);
        self.checks.observe(group, &output.news);
        let won = group.is_leader() && !led;
        let life = machine.life;
        if !output.writes.is_empty() {
            machine.disk.write(output.number, output.writes);
            let Faults { sync_least, sync_max, .. } = self.faults;
            let at = now + Span(sync_least + self.dice.below(sync_max - sync_least));
            self.push(at, Event::Synced { node, life, number: output.number });
        }
        let is_vote = |message: &wire::GroupMessage| match &message.body {
            Some(Body::VoteReply(reply)) => reply.granted && !reply.pre_vote,
            _ => false,
        };
        let hurts = output.news != News::None
            || won
            || output.messages.iter().any(|(_, message)| is_vote(message));
        for (to, message) in output.messages {
            self.send(node, to.0, message);
        }
        self.arm(node);
        if hurts && self.dice.below(1000) < self.faults.ill_timed_permille {
            self.crash(node);
            if self.dice.below(2) == 0 {
                self.cut_something();
            }
        }
    }

    fn arm(&mut self, node: u32) {
        let machine = &mut self.machines[node as usize];
        let Some(at) = machine.group.as_ref().and_then(Group::deadline) else { return };
        if machine.timer.is_none_or(|armed| at < armed) {
            machine.timer = Some(at);
            let life = machine.life;
            self.push(at, Event::Timer { node, life });
        }
    }

    fn send(&mut self, from: u32, to: u32, message: wire::GroupMessage) {
        let is_cut = self.cut.get(&(from, to)).is_some_and(|&until| until > self.now);
        let copies = 1 + u64::from(self.dice.below(1000) < self.faults.repeated_permille);
        for _ in 0..copies {
            if is_cut || self.dice.below(1000) < self.faults.lost_permille {
                continue;
            }
            let at = self.now + Span(MILLI / 2 + self.dice.below(self.faults.late_max));
            let message = Box::new(message.clone());
            self.push(at, Event::Message { to, from, message });
        }
    }

    fn start(&mut self, node: u32) {
        let seed = self.dice.below(u64::MAX);
        let machine = &mut self.machines[node as usize];
        if machine.group.is_some() {
            return;
        }
        machine.life += 1;
        machine.timer = None;
        let blank = !self.first.voters.contains(&node);
        let start = Start { me: NodeId(node), seed, map: self.first.clone(), blank };
        let mut group = Group::recover(start, machine.disk.records(), self.now).unwrap();
        group.plans = false;
        group.mutant = self.mutant;
        group.log_entries_max = 1 + self.dice.below(40);
        group.append_entries_max = 1 + self.dice.below(4) as usize;
        self.checks.observe_start(&group);
        machine.group = Some(group);
        self.step(node, |_, _| {});
    }

    fn crash(&mut self, node: u32) {
        let machine = &mut self.machines[node as usize];
        if machine.group.take().is_some() {
            let kept = self.dice.below(4) as usize;
            machine.disk.lose(kept);
            let at = self.now + Span(self.dice.below(self.faults.down_max));
            self.push(at, Event::Start { node });
        }
    }

    fn heal(&mut self) {
        self.cut.clear();
        self.faults.lost_permille = 0;
        self.faults.repeated_permille = 0;
        self.faults.late_max = 2 * MILLI;
        self.faults.ill_timed_permille = 0;
        self.faults.sync_max = 10 * MILLI;
        self.queue.retain(|_, event| {
            !matches!(
                event,
                Event::Crash | Event::Pause | Event::Cut | Event::ChangeVoters | Event::Propose
            )
        });
        for node in 0..NODES {
            self.machines[node as usize].paused_until = Time::ZERO;
            self.start(node);
            self.arm(node);
        }
    }

    /// Logs that agree in one entry agree in all before it.
    fn check_logs(&mut self) {
        let groups: Vec<&Group> =
            self.machines.iter().filter_map(|machine| machine.group.as_ref()).collect();
        let mut at: BTreeMap<(u64, u64), (u64, &wire::GroupEntry)> = BTreeMap::new();
        let mut wrong = None;
        for group in groups {
            let mut before = group.log.term(group.log.snapshot_index()).unwrap_or(0);
            for entry in group.log.from(group.log.snapshot_index() + 1, usize::MAX) {
                let entry = group.log.entry(entry.index).expect("just listed");
                let known = *at.entry((entry.index, entry.term)).or_insert((before, entry));
                if known.1 != entry || (known.0 != before && known.0 != 0 && before != 0) {
                    wrong = Some(format!("logs differ at {} of term {}", entry.index, entry.term));
                }
                before = entry.term;
            }
        }
        if let Some(text) = wrong {
            self.checks.fail(text);
        }
    }
}

/// What a seed did, if anything was wrong.
pub(super) fn run(options: &Options) -> Result<BTreeSet<&'static str>, String> {
    let mut world = World::new(options);
    world.live();
    match world.checks.broken {
        Some(what) => Err(format!("seed {}: {what}", options.seed)),
        None => Ok(world.checks.seen),
    }
}

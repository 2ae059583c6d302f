//! Injected faults: their kinds, rates and targets. Each seed draws its own subset and rates.

use crate::Mutant;
use kvs::membership::min_in_sync;
use node::Input;
use proto::{ObjectId, Span, Time};

use crate::faults::event_queue::SimEvent;
use crate::faults::strikes::disk_faults::DiskFaults;
use crate::faults::world::World;
use crate::rng::SimRng;
use crate::state::machine::{Machine, PendingCrash};

/// The time that a node takes for an orderly stop.
const STOPS_WITHIN: Span = Span::from_millis(50);

/// A kind of fault that strikes repeatedly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A process dies; its writes remain.
    Crash,
    /// A machine loses power; unsynced writes are lost.
    PowerCut,
    /// A process freezes and continues later.
    Pause,
    /// One direction between two nodes loses all packets.
    Cut,
    /// Two nodes cannot reach each other, but all other nodes reach both.
    CutPair,
    /// A group of nodes is cut off from the rest.
    Partition,
    /// A pair of nodes delays its packets.
    Clog,
    /// A transport breaks and is opened again.
    Reconnect,
    /// All nodes lose power at once.
    Blackout,
    /// The map is announced again, unchanged.
    Map,
    /// A running node is declared failed.
    Evict,
    /// A machine is lost permanently, with its disk.
    Lose,
    /// A machine returns with an empty disk.
    Reformat,
    /// A machine becomes slow, or fast again.
    Slow,
    /// All processes die at once, and restart in any order.
    KillAll,
    /// A primary is handed over to another member of its configuration.
    Handover,
    /// A value on some disk changes.
    Flip,
    /// A machine joins the cluster.
    Join,
    /// A machine leaves the cluster in order.
    Leave,
    /// A whole machine becomes slow, with its disk and network, or fast again.
    Drag,
}

impl Fault {
    const ALL: [Self; 15] = [
        Self::Crash,
        Self::PowerCut,
        Self::Pause,
        Self::Cut,
        Self::Partition,
        Self::Clog,
        Self::Reconnect,
        Self::Blackout,
        Self::Map,
        Self::Evict,
        Self::Lose,
        Self::Reformat,
        Self::Slow,
        Self::KillAll,
        Self::Handover,
    ];
    fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::PowerCut => "power-cut",
            Self::Pause => "pause",
            Self::Cut => "one-way-cut",
            Self::CutPair => "two-way-cut",
            Self::Partition => "partition",
            Self::Clog => "clog",
            Self::Reconnect => "reconnect",
            Self::Blackout => "blackout",
            Self::Map => "map",
            Self::Evict => "evict",
            Self::Lose => "lose",
            Self::Reformat => "reformat",
            Self::Slow => "slow",
            Self::KillAll => "kill-all",
            Self::Handover => "handover",
            Self::Flip => "flip",
            Self::Join => "join",
            Self::Leave => "leave",
            Self::Drag => "drag",
        }
    }
}

/// The faults of a seed with their mean intervals.
#[derive(Clone, Debug)]
pub struct FaultOptions {
    pub means: Vec<(Fault, Span)>,
    pub restart_mean: Span,
    pub pause_mean: Span,
    pub cut_mean: Span,
    pub disks: DiskFaults,
    /// The largest number of machines that stay away after the faults.
    pub left_away: u32,
}

impl FaultOptions {
    #[must_use]
    pub fn none() -> Self {
        let restart_mean = Span::from_millis(200);
        Self {
            means: Vec::new(),
            restart_mean,
            pause_mean: restart_mean,
            cut_mean: restart_mean,
            disks: DiskFaults::default(),
            left_away: 0,
        }
    }

    /// Draws a swarm: each kind is included by chance, with its own rate within the time of
    /// trouble.
    #[must_use]
    pub fn random(dice: &mut SimRng, trouble: Span) -> Self {
        let part = |dice: &mut SimRng, parts: &[u64]| {
            Span(trouble.0 / dice.pick(parts)).max(Span::from_millis(2))
        };
        let mut means = Vec::new();
        for fault in Fault::ALL {
            let in_permille = match fault {
                Fault::Crash => 600,
                Fault::Blackout | Fault::KillAll => 150,
                Fault::Slow => 200,
                Fault::Lose | Fault::Reformat => 200,
                _ => 400,
            };
            if dice.chance(in_permille) {
                let mean = part(dice, &[1, 3, 10, 30]);
                means.push((fault, mean));
            }
        }
        Self {
            means,
            restart_mean: part(dice, &[10, 50, 300]),
            pause_mean: part(dice, &[3, 20]),
            cut_mean: part(dice, &[3, 20]),
            disks: DiskFaults::default(),
            left_away: 0,
        }
    }

    /// Adds faults of disks and of membership, for clusters where homes move.
    pub(crate) fn add_moving(&mut self, dice: &mut SimRng, trouble: Span) {
        for fault in [Fault::Flip, Fault::Join, Fault::Leave] {
            if dice.chance(300) {
                let mean = Span(trouble.0 / dice.pick(&[1, 3, 10])).max(Span::from_millis(2));
                self.means.push((fault, mean));
            }
        }
        if dice.chance(300) {
            let permille = |dice: &mut SimRng| dice.pick(&[0, 1, 10, 100]);
            let (writes_permille, reads_permille) = (permille(dice), permille(dice));
            self.disks = DiskFaults { writes_permille, reads_permille };
        }
    }

    /// Adds faults with random numbers of a separate stream, so that earlier draws stay as they
    /// are.
    pub(crate) fn add_later(&mut self, dice: &mut SimRng, trouble: Span, copies: u32) {
        if dice.chance(300) {
            let mean = Span(trouble.0 / dice.pick(&[1, 3, 10, 30])).max(Span::from_millis(2));
            self.means.push((Fault::CutPair, mean));
        }
        if copies > 1 && dice.chance(400) {
            self.left_away = dice.between(1, u64::from(copies) - 1) as u32;
        }
    }

    /// Adds slow machines, from random numbers on which no other draw depends.
    pub(crate) fn add_slow_disks(&mut self, dice: &mut SimRng, trouble: Span) {
        if dice.chance(DRAGGED_PERMILLE) {
            let mean = Span(trouble.0 / dice.pick(&[1, 3])).max(Span::from_millis(2));
            self.means.push((Fault::Drag, mean));
        }
    }

    /// Makes disks fail often and removes most other faults. If processes died all the time, the
    /// cluster could rarely spare a disk.
    pub(crate) fn wear_disks_out(&mut self, dice: &mut SimRng, trouble: Span) {
        let calm = [Fault::Slow, Fault::Join, Fault::Leave, Fault::Map, Fault::Handover];
        self.means.retain(|(fault, _)| calm.contains(fault));
        // No other disk may fail while a changed value is undetected.
        let often = if dice.chance(500) { Fault::Flip } else { Fault::Reformat };
        self.means.push((often, Span(trouble.0 / dice.pick(&[3, 10, 30]))));
        let mut permille = || dice.pick(&[0, 3, 10, 30, 100]);
        self.disks = DiskFaults { writes_permille: permille(), reads_permille: permille() };
    }
}

/// The share of seeds with slow machines, among seeds with faults in which homes move.
const DRAGGED_PERMILLE: u64 = 250;

impl World {
    /// Injects faults for `span` from now on.
    pub fn break_things(&mut self, options: FaultOptions, span: Span) {
        self.injection.until = self.now + span;
        self.starve.count_from(Time(u64::MAX));
        self.lives.calm_from(Time(u64::MAX));
        self.injection.options = options;
        self.plan_pauses(span);
        for (fault, mean) in self.injection.options.means.clone() {
            let at = self.now + self.dice.around(mean);
            self.schedule(at, SimEvent::Fault(fault));
        }
    }

    /// Makes everything on this machine take `times` as long: steps, launches, syncs, reads, and
    /// packets to it and from it.
    pub fn slow_down(&mut self, node: usize, times: u64) {
        let before = std::mem::replace(&mut self.machines[node].slow_down, times);
        if times < before && self.machines[node].syncing {
            self.begin_sync(node); // The current sync would still be slow.
        }
    }

    /// Proposes that the node is slow, or no longer slow, as if a node had measured it.
    pub fn declare_slow(&mut self, node: usize, slow: bool) {
        if let Some(member) = self.map.members.get(node).filter(|_| self.homes_move()) {
            let (node, incarnation) = (member.node, member.incarnation);
            let set = proto::wire::SetSlow { node, incarnation, slow };
            self.propose(proto::wire::map_command::Body::SetSlow(set));
        }
    }

    /// A delay on a slow machine, limited to `most`.
    pub(crate) fn slowed_down(&self, node: usize, takes: Span, most: Span) -> Span {
        Span(takes.0 * self.machines[node].slow_down).min(most.max(takes))
    }

    /// Ends all faults. The network is whole, clients lose no requests, and every node runs except
    /// those that are then taken away.
    pub fn heal(&mut self) {
        self.injection.until = self.now;
        self.resume_all();
        self.starve.count_from(self.now);
        self.lives.calm_from(self.now);
        for (kind, n) in [
            ("lost", self.network.lost),
            ("repeated", self.network.repeated),
            ("late", self.network.late),
        ] {
            if n > 0 {
                self.injection.count(kind, n);
            }
        }
        self.network.heal();
        self.mend_disks();
        self.options.client_lost_permille = 0;
        self.tell(|| "healed".to_string());
        for node in 0..self.machines.len() {
            self.machines[node].paused_until = Time::ZERO;
            self.slow_down(node, 1);
            self.machines[node].slowness =
                self.options.slowness[node % self.options.slowness.len()];
            if self.machines[node].pending_crash.is_some() {
                self.die(node);
            }
            self.start(node);
            // A step that waits for the end of a pause runs now.
            self.machines[node].step_scheduled = false;
            self.schedule_step(node);
        }
        for a in 0..self.machines.len() {
            for b in a + 1..self.machines.len() {
                self.connect(a, b);
            }
        }
        self.lose_some_permanently();
    }

    /// Ends the node's process at its next step, somewhere between two effects.
    pub fn crash(&mut self, node: usize) {
        self.schedule_crash(node, PendingCrash::Crash);
    }
    /// Like [`Self::crash`], but unsynced writes are lost.
    pub fn cut_power(&mut self, node: usize) {
        self.schedule_crash(node, PendingCrash::PowerCut);
    }

    /// Requests an orderly stop and lets the process end.
    pub fn stop_in_order(&mut self, node: usize) {
        if self.machines[node].is_up() {
            self.deliver(node, Input::Stop);
            self.run_for(STOPS_WITHIN);
            self.schedule_crash(node, PendingCrash::Stopped);
        }
    }

    /// Suspends the machine: nothing on it runs except its clock.
    pub fn suspend(&mut self, node: usize, span: Span) {
        let until = self.now + span;
        let stands_still = self.options.mutant == Some(Mutant::ClockStandsStill);
        let machine = &mut self.machines[node];
        machine.paused_until = until;
        if stands_still {
            machine.clock.stop(self.now, until);
        }
    }

    fn schedule_crash(&mut self, node: usize, pending_crash: PendingCrash) {
        let machine = &mut self.machines[node];
        if !machine.is_up() || machine.pending_crash.is_some() {
            return;
        }
        machine.pending_crash = Some(pending_crash);
        let life = machine.life;
        // It dies between two effects of its next step, or after this delay if that is earlier.
        let patience = Span::from_micros(self.dice.pick(&[0, 100, 1_000, 20_000]));
        self.schedule(self.now + patience, SimEvent::Die { node, life });
    }

    /// True if the fault would be more than the cluster survives. A second replica must not be lost
    /// while one is replaced. The remaining nodes must suffice to put a change on two of them.
    pub(crate) fn is_unbearable(&self, fault: Fault) -> bool {
        match fault {
            // Decided when it strikes, because the node matters.
            Fault::Lose | Fault::Reformat | Fault::Leave => {
                !self.homes_move()
                    || !self.is_whole()
                    || !self.voters_know_of_a_map()
                    || self.has_hidden_damage()
                    || self.is_unsettled()
            }
            // Another node declared failed could be one voter too many.
            Fault::Evict => !self.homes_move() || self.has_hidden_damage(),
            Fault::Handover | Fault::Join | Fault::Flip => !self.homes_move(),
            // A permanently lost node must not count as a live replica while another restarts.
            Fault::Crash
            | Fault::PowerCut
            | Fault::Blackout
            | Fault::KillAll
            | Fault::Pause
            | Fault::Drag => self.a_loss_is_unnoticed() || self.has_hidden_damage(),
            _ => false,
        }
    }

    /// True if every running voter knows a map after the first one. Before that, perhaps only the
    /// leader knows of any commit. A voter that lost its disk cannot tell that from a first start
    /// (docs/design/012).
    pub(crate) fn voters_know_of_a_map(&self) -> bool {
        let knows = |voter: &u32| {
            let node = self.machines[*voter as usize].node.as_ref();
            node.is_none_or(|node| node.map_epoch() > 1)
        };
        self.map.voters.iter().all(knows)
    }

    /// True if the other nodes have a majority of voters and suffice for every change.
    pub(crate) fn can_do_without(&self, node: usize, fault: Fault) -> bool {
        let stays = |other: usize| {
            other != node && self.machines[other].may_run() && !self.leaves_or_left(other)
        };
        let left = (0..self.machines.len()).filter(|&other| stays(other)).count();
        let enough = fault == Fault::Reformat || left >= min_in_sync(self.map.copies).max(1);
        // A task may need as many slots as this node has.
        let slots = self.machines[node].slots;
        let is_wide = |other: usize| stays(other) && self.machines[other].slots >= slots;
        let is_wide_enough = (0..self.machines.len()).any(is_wide);
        let enough = enough && (fault == Fault::Reformat || is_wide_enough);
        enough && left > 0 && self.can_agree_without(node)
    }

    pub(crate) fn a_loss_is_unnoticed(&self) -> bool {
        (0..).zip(&self.machines).any(|(node, machine)| {
            let member = kvs::membership::member(&self.map, proto::NodeId(node));
            let Some(member) = member.filter(|_| self.homes_move()) else { return false };
            let alive = !member.is_gone();
            let other = member.store != 0 && member.store != machine.store;
            (machine.is_lost || other) && alive
        })
    }

    /// Removes the machine permanently.
    pub fn lose(&mut self, node: usize) {
        self.machines[node].pending_crash = Some(PendingCrash::Crash);
        self.note_fairness();
        self.machines[node].is_lost = true;
        self.die(node);
        self.disk_goes(node);
    }

    #[must_use]
    pub fn is_lost(&self, node: usize) -> bool {
        self.machines[node].is_lost
    }

    /// Returns a lost machine with its disk.
    pub fn bring_back(&mut self, node: usize) {
        self.machines[node].is_lost = false;
        self.start(node);
    }

    /// Ends the process; the machine returns with an empty disk.
    pub fn reformat(&mut self, node: usize) {
        self.note_fairness();
        self.machines[node].pending_crash = Some(PendingCrash::Crash);
        self.die(node);
        self.disk_goes(node);
        let store = self.dice.number() | 1;
        let grown = self.grows();
        let (machine, jobs) = (&mut self.machines[node], &self.jobs);
        // The incarnation was on that disk, too.
        machine.incarnation = 0;
        machine.change_disk(store);
        // The shared directory lists all nodes that joined since, so the node contacts them.
        machine.is_late |= grown;
        // An empty object that is no file is on no disk.
        let is_real = |object: &ObjectId| jobs.get(&object.task.job).is_none_or(|it| it.real_data);
        machine.drop_objects(|object, bytes| bytes > 0 || is_real(object));
    }

    /// Notes the loss of a disk. In a growing cluster only the nodes know whether others have all
    /// its data.
    fn note_fairness(&mut self) {
        self.injection.lone_copy_went |= self.grows() && !self.reports_full_replication();
    }

    fn disk_goes(&mut self, node: usize) {
        self.injection.disks_gone += 1;
        self.injection.lone_copy_went |= self.machines[node].lacked_copies;
    }

    /// Hands one partition of this node over to another member of its configuration.
    fn hand_over(&mut self, node: usize) {
        let homes = self.partitions_of(node);
        if homes.is_empty() {
            return;
        }
        let partition = self.dice.pick(&homes).0;
        let entry = &self.map.partitions[partition as usize];
        let (epoch, others) = (entry.epoch, entry.replicas[1..].to_vec());
        if !others.is_empty() {
            let to = self.dice.pick(&others);
            let handover = proto::wire::Handover { partition, epoch, to };
            self.propose(proto::wire::map_command::Body::Handover(handover));
        }
    }

    /// Picks the target of a fault: mostly a node with work to lose, sometimes any node.
    fn target(&mut self, fault: Fault) -> usize {
        let hurts = |machine: &&Machine| match fault {
            Fault::Crash => machine.is_up() && !machine.running.is_empty(),
            Fault::PowerCut => machine.is_up() && !machine.unsynced.is_empty(),
            _ => machine.is_up(),
        };
        let anywhere = self.dice.index(self.machines.len());
        if self.dice.chance(300) {
            return anywhere;
        }
        let order = (0..self.machines.len()).map(|step| (anywhere + step) % self.machines.len());
        order.into_iter().find(|&node| hurts(&&self.machines[node])).unwrap_or(anywhere)
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        if self.now >= self.injection.until {
            return;
        }
        let mean = self.injection.options.means.iter().find(|(kind, _)| *kind == fault);
        let mean = mean.expect("only scheduled kinds strike").1;
        let next = self.now + self.dice.around(mean);
        self.schedule(next, SimEvent::Fault(fault));
        if self.is_unbearable(fault) {
            return;
        }
        let nodes = self.machines.len();
        let a = self.target(fault);
        if matches!(fault, Fault::Lose | Fault::Reformat) && !self.can_do_without(a, fault) {
            return;
        }
        self.count_fault(fault.name());
        self.tell(|| format!("fault {fault:?} near n{a}"));
        match fault {
            Fault::Crash => self.crash(a),
            Fault::PowerCut => self.cut_power(a),
            Fault::Blackout => (0..nodes).for_each(|node| self.cut_power(node)),
            Fault::KillAll => (0..nodes).for_each(|node| self.crash(node)),
            Fault::Evict => self.evict_after(a, Span::ZERO),
            Fault::Lose => self.lose(a),
            Fault::Reformat => self.reformat(a),
            Fault::Slow => {
                self.machines[a].slowness = self.dice.pick(&[1, 10, 100, 1_000]);
            }
            Fault::Drag => {
                let times = self.dice.pick(&[1, 10, 100, 1_000]);
                self.slow_down(a, times);
                if self.dice.chance(500) {
                    self.declare_slow(a, times > 1); // The faults end before nodes agree on it.
                }
            }
            Fault::Handover => self.hand_over(a),
            Fault::Flip => self.flip(a),
            Fault::Join => self.ask_to_join(),
            Fault::Leave => self.ask_to_leave(a),
            Fault::Pause => {
                let span = self.dice.around(self.injection.options.pause_mean);
                self.suspend(a, span);
                if self.dice.chance(300) {
                    // Other nodes declare it failed before it continues.
                    self.evict_after(a, Span(span.0 * 3 / 4));
                }
            }
            Fault::Map if self.machines[a].is_up() && !self.homes_move() => {
                let map = Box::new(self.map.as_ref().clone());
                self.deliver(a, Input::MapCommitted { map });
            }
            Fault::Map => {}
            Fault::Cut | Fault::CutPair | Fault::Clog | Fault::Reconnect => {
                self.come_between(fault, a);
            }
            Fault::Partition => self.part(),
        }
    }

    /// Disturbs the connection between this machine and another one.
    fn come_between(&mut self, fault: Fault, a: usize) {
        let nodes = self.machines.len();
        if nodes == 1 {
            return;
        }
        let b = (a + 1 + self.dice.index(nodes - 1)) % nodes;
        let until = self.now + self.dice.around(self.injection.options.cut_mean);
        match fault {
            Fault::Cut => self.network.cut(a, b, until),
            Fault::CutPair => {
                self.network.cut(a, b, until);
                self.network.cut(b, a, until);
            }
            Fault::Clog => self.network.clog(a, b, until),
            _ => {
                self.lose_transport(a, b);
                self.lose_transport(b, a);
                self.connect(a, b);
            }
        }
    }

    /// Cuts a random group of nodes off from the rest.
    fn part(&mut self) {
        let until = self.now + self.dice.around(self.injection.options.cut_mean);
        let nodes = self.machines.len();
        let group: Vec<bool> = (0..nodes).map(|_| self.dice.chance(500)).collect();
        for from in 0..nodes {
            for to in 0..nodes {
                if group[from] != group[to] {
                    self.network.cut(from, to, until);
                }
            }
        }
    }
}

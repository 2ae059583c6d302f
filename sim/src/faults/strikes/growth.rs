//! Clusters that begin with one node and grow while they work. Nodes die at every stage of the
//! growth.

use kvs::membership::{Said, has_all_copies, is_fit, is_fully_replicated, losses_survived_by};
use proto::Span;
use proto::wire::{self, map_command::Body};

use crate::checkers::{Verdict, Violation, growth};
use crate::faults::options::{GrowthPlan, WorldOptions};
use crate::faults::strikes::injection::{Fault, FaultOptions};
use crate::faults::world::World;
use crate::rng::SimRng;

/// A separate random stream, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x6772_6f77_7468_0000;
/// The share of one-node seeds with faults in which the cluster grows.
const GROWN_PERMILLE: u64 = 700;
/// The largest number of nodes that join such a cluster.
const JOINS_MAX: u64 = 4;
/// The share of joining nodes that are keepers.
const KEEPERS_PERMILLE: u64 = 300;
/// The number of draws in [`draw`]. Later draws continue after them.
const DRAWN: u32 = 4;
/// Longest time until outputs and uploads have all copies, after all partitions have.
const COPIED_WITHIN: Span = Span::from_secs(900);

/// The random stream of all growth.
fn dice(seed: u64) -> SimRng {
    SimRng::new(seed.rotate_left(40) ^ STREAM)
}

/// The growth of a world.
pub(crate) struct Growth {
    /// The random stream of growth.
    dice: SimRng,
    joins_asked: u32,
}

impl Growth {
    pub(crate) fn new(seed: u64) -> Self {
        Self { dice: dice(seed), joins_asked: 0 }
    }
    /// Whether a further machine may ask to join; if so, it counts as one that has asked.
    pub(crate) fn asks_to_join(&mut self, joins_max: u32) -> bool {
        let may = self.joins_asked < joins_max;
        self.joins_asked += u32::from(may);
        may
    }
}

/// Makes a one-node cluster grow in some seeds.
pub(crate) fn draw(world: &mut WorldOptions) {
    let mut dice = dice(world.seed);
    if world.faultless || world.nodes > 1 || !dice.chance(GROWN_PERMILLE) {
        return;
    }
    world.copies = dice.pick(&[2, 2, 3]);
    let kills_permille = dice.pick(&[0, 20, 60, 200]);
    world.grows = Some(GrowthPlan { joins_max: dice.between(1, JOINS_MAX) as u32, kills_permille });
}

/// Adds joins through the whole time of trouble.
pub(crate) fn add_joins(world: &WorldOptions, faults: &mut FaultOptions, trouble: Span) {
    if world.grows.is_none() {
        return;
    }
    let mut dice = dice(world.seed);
    (0..DRAWN).for_each(|_| _ = dice.number());
    faults.means.retain(|(fault, _)| *fault != Fault::Join);
    let mean = Span(trouble.0 / dice.pick(&[3, 10, 30])).max(Span::from_millis(2));
    faults.means.push((Fault::Join, mean));
}

impl World {
    /// True if more replicas are wanted than there were nodes at first.
    pub(crate) fn grows(&self) -> bool {
        self.options.grows.is_some()
    }

    pub(crate) fn joins_as_keeper(&mut self) -> bool {
        self.grows() && self.growth.dice.chance(KEEPERS_PERMILLE)
    }

    /// Checks that at rest no keeper is home of a partition that a working node could serve.
    ///
    /// # Errors
    /// A partition that a keeper serves.
    pub(crate) fn keepers_serve_nothing(&self) -> Verdict {
        let works = |node: u32| self.machines[node as usize].slots > 0;
        let all = (0..self.machines.len() as u32).filter(|&node| self.is_live(node));
        let any_works = all.clone().any(|node| works(node) && is_fit(&self.map, node));
        let homes = (0..).zip(&self.map.partitions).map(|(at, entry)| (at, entry.replicas[0]));
        match homes.into_iter().find(|&(_, home)| !works(home) && any_works) {
            Some((partition, home)) => {
                let text = format!("n{home} is a keeper, and home of partition {partition}");
                Err(Violation::new("keepers", text))
            }
            None => Ok(()),
        }
    }

    /// One step of the growth is committed: with some probability a node dies now or soon.
    pub(crate) fn strike_growth(&mut self, command: &wire::MapCommand) {
        let Some(grows) = self.options.grows.filter(|_| self.injection.strikes_at(self.now)) else {
            return;
        };
        let is_step = match &command.body {
            Some(Body::Down(_) | Body::SetSlow(_) | Body::SetPaused(_)) | None => false,
            Some(_) => true,
        };
        if !is_step || !self.growth.dice.chance(grows.kills_permille) {
            return;
        }
        let node = self.growth.dice.index(self.machines.len());
        let is_cut = self.growth.dice.chance(400);
        let fault = if is_cut { Fault::PowerCut } else { Fault::Crash };
        if self.machines[node].is_up() && !self.is_unbearable(fault) {
            self.count_fault("growth-kill");
            match is_cut {
                true => self.cut_power(node),
                false => self.crash(node),
            }
        }
    }

    /// The states that the nodes report to an operator now.
    fn said(&self) -> Vec<Said> {
        let up = (0..)
            .zip(&self.machines)
            .filter_map(|(node, machine)| machine.node.as_ref().map(|live| (node, machine, live)));
        let said = up.map(|(node, machine, live)| {
            let state = live.state(machine.local(self.now));
            let (map_epoch, lacking) = (state.map_epoch, state.lacking_copies);
            Said { node, incarnation: machine.incarnation, map_epoch, lacking }
        });
        said.collect()
    }

    /// True if the nodes report all copies of every partition, output and upload.
    pub(crate) fn reports_full_replication(&self) -> bool {
        has_all_copies(&self.map, &self.said())
    }

    /// Checks the survivable losses that the nodes report.
    pub(crate) fn check_reports(&mut self) {
        let may_say = self.homes_move() && is_fully_replicated(&self.map);
        // The report of a node may be from before its disk was replaced.
        if may_say && !self.a_loss_is_unnoticed() {
            let survived = losses_survived_by(&self.map, &self.said());
            let may_be_gone = !self.disks_went_fairly();
            let verdict = growth::on_reported(&self.jobs, &self.machines, survived, may_be_gone);
            self.judge(verdict);
        }
    }

    /// True if some node has a small store, from the start or by a change of its tuning.
    fn is_cramped(&self) -> bool {
        let mut nodes = 0..self.machines.len();
        self.options.tuning.store_soft_bytes != u64::MAX
            || nodes.any(|node| self.has_small_store(node))
    }

    fn has_small_store(&self, node: usize) -> bool {
        let node = self.machines[node].node.as_ref();
        let tuning = node.and_then(|node| node.state(self.now).tuning);
        tuning.and_then(|tuning| tuning.store_soft_bytes).is_some_and(|bytes| bytes < u64::MAX)
    }

    /// A node has started, or its tuning may have changed.
    pub(crate) fn note_small_store(&mut self, node: usize) {
        let is_small = self.has_small_store(node);
        self.starve.is_cramped(self.now, node, is_small);
    }

    /// Checks that the nodes of a grown cluster finally report all copies.
    ///
    /// # Errors
    /// The copies that the nodes report as missing.
    pub(crate) fn must_say_that_it_has_grown(&mut self) -> Verdict {
        if !self.grows() || self.is_cramped() || self.start_a_departure() {
            return Ok(());
        }
        if self.run_until(self.now + COPIED_WITHIN, Self::reports_full_replication) {
            return Ok(());
        }
        if let Some(violation) = self.violation() {
            return Err(violation.clone());
        }
        let text = format!("nodes still say that copies are lacking: {:?}", self.said());
        self.describe_nodes();
        Err(Violation::new("growth", text))
    }
}

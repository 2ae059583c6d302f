//! Tasks that hold several nodes at once.

use proto::NodeId;
use proto::work::{Launch, PartChange};
use resources::Request;

use crate::Mutant;
use crate::checkers::Verdict;
use crate::checkers::gang;
use crate::faults::clients::random_jobs::Draft;
use crate::faults::kinds::node_offers::{GROUPS, NodeOffers, group_of};
use crate::faults::options::WorldOptions;
use crate::faults::world::World;
use crate::rng::SimRng;

/// A separate random stream, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x6761_6e67_7300_0000;
/// The share of seeds with gangs.
const GANGS_PERMILLE: u64 = 200;
const GANGS_PERMILLE_OF_MUTANTS: u64 = 1000;
const GANG_NODES_MAX: u32 = 4;
/// A separate random stream for groups of nodes.
const GROUPS_STREAM: u64 = 0x6772_6f75_7073_0000;
/// The share of seeds with gangs in which each node is of one of several groups.
const GROUPED_PERMILLE: u64 = 300;
const GANG_ACROSS_GROUPS: Mutant = Mutant::of_scheduler(scheduler::Mutant::GangAcrossGroups);

/// Requests of gangs, on each node: the offer of [`NodeOffers::Equal`] is enough.
const REQUESTS: [&str; 4] = ["cpus=all", "cpus=all", "cpus=1", "gpus=1"];

/// Makes some tasks of some seeds gangs.
pub(crate) fn draw<'d>(world: &mut WorldOptions, drafts: impl Iterator<Item = &'d mut Draft>) {
    let mut dice = SimRng::new(world.seed ^ STREAM);
    let is_own = world.mutant.is_some_and(|mutant| mutant.is_among(&scheduler::Mutant::OF_GANGS));
    let share = if is_own { GANGS_PERMILLE_OF_MUTANTS } else { GANGS_PERMILLE };
    // Nodes may be lost permanently if their records have copies elsewhere.
    let lost = if world.faultless { 0 } else { world.copies.saturating_sub(1) };
    let left = world.nodes.saturating_sub(lost);
    let mut nodes_max = left.min(GANG_NODES_MAX);
    if nodes_max < 2 || !world.ends.is_empty() || !dice.chance(share) {
        return;
    }
    world.gangs = true;
    let grouped = if world.mutant == Some(GANG_ACROSS_GROUPS) {
        GANGS_PERMILLE_OF_MUTANTS
    } else {
        GROUPED_PERMILLE
    };
    // One of the groups keeps at least this number of nodes.
    let of_one_group = left.div_ceil(GROUPS as u32);
    if of_one_group >= 2 && SimRng::new(world.seed ^ GROUPS_STREAM).chance(grouped) {
        world.grouped = true;
        nodes_max = nodes_max.min(of_one_group);
    }
    // On mixed nodes only cpus are everywhere.
    let is_mixed = world.offers == NodeOffers::Mixed;
    if world.offers == NodeOffers::None {
        world.offers = NodeOffers::Equal;
    }
    let requests = if is_mixed { &REQUESTS[..3] } else { &REQUESTS[..] };
    let permille = dice.pick(&[50, 200, 800]);
    for task in drafts.flat_map(|draft| &mut draft.tasks) {
        if dice.chance(permille) && task.cpus == 1 && !task.upload && task.request.is_empty() {
            let request: Request = dice.pick(requests).parse().expect("it is a request");
            task.request = request.encode();
            task.nodes = dice.between(2, nodes_max.into()) as u32;
        }
    }
}

impl World {
    /// Checks that a gang that starts has all its nodes, and that nothing starts on a node that a
    /// gang holds.
    pub(crate) fn check_gang(&self, index: usize, launch: &Launch) -> Verdict {
        if !self.options.gangs {
            return Ok(());
        }
        let wanted = launch.spec.nodes.max(1) as usize;
        gang::has_nodes(launch, wanted, NodeId(index as u32))?;
        if self.options.grouped {
            gang::is_of_one_group(launch, |node| group_of(node.0 as usize))?;
        }
        // A step is carried out after it was decided, and where homes move much later.
        if self.homes_move() {
            return Ok(());
        }
        let machine = &self.machines[index];
        let Some(node) = &machine.node else { return Ok(()) };
        gang::fits_beside(launch, machine.slots, &machine.running, node.gang_parts())?;
        // A node that has died meanwhile has lost its part, and the first one may not know it yet.
        if !self.options.faultless {
            return Ok(());
        }
        for other in launch.gang.iter().skip(1).map(|it| it.node) {
            if let Some(node) = &self.machines[other.0 as usize].node {
                gang::is_held(launch, other, node.gang_parts())?;
                gang::is_told(launch, other, &self.machines[other.0 as usize].parts)?;
            }
        }
        Ok(())
    }

    /// Checks that the executors know the parts that their nodes have, and that all parts have
    /// ended, when all jobs have.
    pub(crate) fn check_parts(&self) -> Verdict {
        for (index, machine) in self.machines.iter().enumerate() {
            if let Some(node) = &machine.node {
                let index = NodeId(index as u32);
                gang::knows_its_parts(index, &machine.parts, node.gang_parts())?;
                gang::is_free(index, node.gang_parts())?;
            }
        }
        Ok(())
    }

    /// A part of a gang begins or ends on a machine.
    pub(crate) fn part_changed(&mut self, index: usize, change: PartChange) {
        let parts = &mut self.machines[index].parts;
        let (key, fits) = match change {
            PartChange::Begins(part) => {
                let key = (part.task, part.attempt);
                (key, parts.insert(key))
            }
            PartChange::Ends(task, attempt) => ((task, attempt), parts.remove(&(task, attempt))),
        };
        self.judge(gang::begins_once(NodeId(index as u32), key, fits));
    }
}

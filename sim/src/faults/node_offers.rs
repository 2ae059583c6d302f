//! Nodes with resources, and tasks that ask for them.

use std::sync::Arc;

use proto::work::Launch;
use proto::{Event, TaskId};
use resources::{Amount, Name, Offer, Pool, Request, Totals};
use scheduler::Mutant;

use crate::checkers::claims;
use crate::checkers::{Verdict, Violation};
use crate::faults::clients::random_jobs::Draft;
use crate::faults::options::WorldOptions;
use crate::faults::world::World;
use crate::rng::SimRng;

/// A separate random stream, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x6e65_6564_7300_0000;
/// The share of seeds in which tasks ask for resources.
const ASKING_PERMILLE: u64 = 300;
/// Mutants of resources show only in such seeds.
const ASKING_PERMILLE_OF_MUTANTS: u64 = 1000;

/// The requests of tasks: the offer of [`NodeOffers::Equal`] is enough for each.
const REQUESTS: [&str; 8] = [
    "gpus=1",
    "gpus=0.5",
    "gpus=2",
    "memory=3",
    "licences=1",
    "licences=2, gpus=1",
    "label=fast",
    "gpus=2, label=fast | licences=3",
];

/// The resources that the nodes of a world have besides their slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NodeOffers {
    #[default]
    None,
    /// Every node can run every task. With faults any node may be lost.
    Equal,
    /// The first node can run every task, and each of the others some.
    Mixed,
}

impl NodeOffers {
    /// The offer of a node with this number of slots.
    #[must_use]
    pub fn of(self, node: usize, slots: u32) -> Option<Arc<Offer>> {
        if self == Self::None || slots == 0 {
            return None;
        }
        let all = self == Self::Equal || node == 0;
        let indexed = |name: &str, count: u32| {
            let indices = (0..count).map(|index| format!("i{index}")).collect();
            Pool::indexed(Name::pool(name).ok()?, vec![indices]).ok()
        };
        let sum =
            |name: &str, amount| Pool::sum(Name::pool(name).ok()?, Amount::whole(amount)?).ok();
        let mut pools = vec![indexed("cpus", slots)];
        if all || node.is_multiple_of(2) {
            pools.push(indexed("gpus", 2));
        }
        if all || node % 3 == 1 {
            pools.push(sum("licences", 3));
        }
        if all || node % 2 == 1 {
            pools.push(sum("memory", 5));
        }
        if all || node % 3 == 2 {
            pools.push(Name::label("fast").ok().map(Pool::label));
        }
        Offer::new(pools.into_iter().flatten().collect(), Vec::new()).ok().map(Arc::new)
    }
    /// The offer in the form of the map.
    #[must_use]
    pub fn bytes(self, node: usize, slots: u32) -> Vec<u8> {
        let totals = self.of(node, slots).map(|offer| Totals::from(&*offer));
        totals.map_or_else(Vec::new, |totals| totals.encode())
    }
}

/// Gives the nodes of some seeds resources, and makes tasks ask for them.
pub(crate) fn draw<'d>(world: &mut WorldOptions, drafts: impl Iterator<Item = &'d mut Draft>) {
    let mut dice = SimRng::new(world.seed ^ STREAM);
    let is_own = world.mutant.is_some_and(|mutant| Mutant::OF_RESOURCES.contains(&mutant));
    let share = if is_own { ASKING_PERMILLE_OF_MUTANTS } else { ASKING_PERMILLE };
    if !dice.chance(share) {
        return;
    }
    world.offers = if world.faultless { NodeOffers::Mixed } else { NodeOffers::Equal };
    let (asking, ranked) = (dice.pick(&[100, 400, 900]), dice.pick(&[0, 0, 300]));
    for task in drafts.flat_map(|draft| &mut draft.tasks) {
        if dice.chance(ranked) {
            task.priority = dice.below(5) as i32 - 2;
        }
        if dice.chance(asking) && task.cpus == 1 && !task.upload {
            let request: Request = dice.pick(&REQUESTS).parse().expect("it is a request");
            task.request = request.encode();
        }
    }
}

fn request_of(text: &str) -> Option<Request> {
    text.parse().ok()
}

impl World {
    /// The place of a task's request in [`REQUESTS`], if it asks for more than cpus.
    pub(crate) fn class_of(&self, task: TaskId) -> Option<usize> {
        let job = self.jobs.get(&task.job)?;
        let request = &job.tasks.get(&task.local)?.request;
        let is_it = |text: &str| request_of(text).is_some_and(|it| it.encode() == *request);
        if request.is_empty() { None } else { REQUESTS.iter().position(|text| is_it(text)) }
    }

    /// Reports the request of a queued task to the *starve* checker.
    pub(crate) fn note_request(&mut self, event: &Event) {
        if let Event::Queued { task, .. } = *event
            && let Some(class) = self.class_of(task)
        {
            self.starve.asks(task, class);
        }
    }

    /// Reports the free resources of a machine to the *starve* checker.
    pub(crate) fn note_free_resources(&mut self, node: usize) {
        if self.options.offers == NodeOffers::None {
            return;
        }
        let machine = &self.machines[node];
        let Some(offer) = self.options.offers.of(node, machine.slots) else { return };
        let granted = || machine.running.values().filter_map(|running| running.granted.as_deref());
        let fits = |text: &str| {
            request_of(text).is_some_and(|it| claims::is_free_for(&it, &offer, granted()))
        };
        let fits = REQUESTS.iter().map(|text| fits(text)).collect();
        let is_up = machine.is_up();
        self.starve.set_fits(self.now, node, fits, is_up);
    }

    /// Checks that the resources of a launch were asked for, are there, and are free.
    pub(crate) fn check_claims(&self, node: usize, launch: &Launch) -> Verdict {
        let machine = &self.machines[node];
        let offer = self.options.offers.of(node, machine.slots);
        let others = machine.running.values().filter_map(|running| running.granted.as_deref());
        let request =
            match launch.spec.request.is_empty() {
                true => None,
                false => Some(Request::decode(&launch.spec.request).map_err(|error| {
                    Violation::new("match", format!("{}: {error}", launch.task))
                })?),
            };
        claims::matches(launch, request.as_ref(), offer.as_deref())?;
        claims::are_free(launch, offer.as_deref(), others)
    }
}

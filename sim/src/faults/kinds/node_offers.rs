//! Nodes with resources, and tasks that ask for them.

use std::sync::Arc;
use std::time::Duration;

use crate::Mutant;
use proto::work::Launch;
use proto::{Event, Span, TaskId};
use resources::{Amount, EndOfLife, Name, Offer, Pool, Request};

use crate::checkers::claims;
use crate::checkers::{Verdict, Violation};
use crate::faults::clients::random_jobs::Draft;
use crate::faults::options::WorldOptions;
use crate::faults::world::{BEGIN, World};
use crate::rng::SimRng;
use crate::state::expected::notice_ns;

/// A separate random stream, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x6e65_6564_7300_0000;
/// The share of seeds in which tasks ask for resources.
const ASKING_PERMILLE: u64 = 300;
/// The share of seeds without faults in which nodes end and tasks ask for time.
const ENDING_PERMILLE: u64 = 200;
/// Mutants of resources show only in such seeds.
const ASKING_PERMILLE_OF_MUTANTS: u64 = 1000;

/// The number of groups of nodes.
pub(crate) const GROUPS: usize = 2;

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

/// The patience of tasks with several variants.
const PATIENCES: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_secs(1)];

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
}

impl WorldOptions {
    /// The known end of a node.
    pub(crate) fn end_of(&self, node: usize) -> Option<EndOfLife> {
        let (_, after, margin) = *self.ends.iter().find(|(it, ..)| *it == node)?;
        Some(EndOfLife::from_parts((BEGIN + after).0, margin.0))
    }
    /// The offer of a node, with the label of its group.
    pub(crate) fn offer_of(&self, node: usize, slots: u32) -> Option<Arc<Offer>> {
        let offer = self.offers.of(node, slots)?;
        if !self.grouped {
            return Some(offer);
        }
        let label = Pool::label(Name::group(&group_of(node).to_string()));
        let pools = offer.pools().iter().cloned().chain([label]).collect();
        Offer::new(pools, Vec::new()).ok().map(Arc::new)
    }
    /// The offer of a node in the form of the map.
    pub(crate) fn offer_bytes(&self, node: usize, slots: u32) -> Vec<u8> {
        let offer = self.offer_of(node, slots);
        node::offer_bytes(offer.as_deref(), slots, self.end_of(node))
    }
}

/// The number of the group of a node, where the nodes of a world have groups.
pub(crate) fn group_of(node: usize) -> usize {
    node % GROUPS
}

/// Gives the nodes of some seeds resources, and makes tasks ask for them.
pub(crate) fn draw<'d>(world: &mut WorldOptions, drafts: impl Iterator<Item = &'d mut Draft>) {
    let mut dice = SimRng::new(world.seed ^ STREAM);
    let ends = dice.chance(ENDING_PERMILLE)
        || world.mutant == Some(Mutant::of_scheduler(scheduler::Mutant::StartsPastItsEnd));
    if world.faultless && world.nodes > 1 && ends {
        return draw_ends(world, &mut dice, drafts);
    }
    let is_own =
        world.mutant.is_some_and(|mutant| mutant.is_among(&scheduler::Mutant::OF_RESOURCES));
    let share = if is_own { ASKING_PERMILLE_OF_MUTANTS } else { ASKING_PERMILLE };
    if !dice.chance(share) {
        return;
    }
    world.offers = if world.faultless { NodeOffers::Mixed } else { NodeOffers::Equal };
    let (asking, ranked) = (dice.pick(&[100, 400, 900]), dice.pick(&[0, 0, 300]));
    let patience = dice.pick(&PATIENCES);
    for task in drafts.flat_map(|draft| &mut draft.tasks) {
        if dice.chance(ranked) {
            task.priority = dice.below(5) as i32 - 2;
        }
        if dice.chance(asking) && task.cpus == 1 && !task.upload {
            let request: Request = dice.pick(&REQUESTS).parse().expect("it is a request");
            task.request = request.with_patience(patience).encode();
        }
    }
}

/// Nodes that end, and tasks that need some time. The first node never ends.
fn draw_ends<'d>(
    world: &mut WorldOptions,
    dice: &mut SimRng,
    drafts: impl Iterator<Item = &'d mut Draft>,
) {
    for node in 1..world.nodes as usize {
        let after = Span::from_millis(dice.pick(&[50, 400, 2_000, 20_000]));
        world.ends.push((node, after, Span::from_millis(dice.pick(&[0, 10, 100]))));
    }
    for task in drafts.flat_map(|draft| &mut draft.tasks) {
        if dice.chance(500) && task.cpus == 1 && !task.upload {
            task.time_request = Span::from_millis(dice.pick(&[1, 30, 200, 1_000]));
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
        if request.is_empty() {
            return None;
        }
        let request = Request::decode(request).ok()?.with_patience(Duration::ZERO);
        REQUESTS.iter().position(|text| request_of(text).is_some_and(|it| it == request))
    }

    /// Whether the first node, which offers all requests, takes work all the time.
    fn is_always_offered(&self) -> bool {
        let options = &self.options;
        options.faultless && options.offers == NodeOffers::Mixed
    }

    /// *Patience* of a launch.
    pub(crate) fn check_patience(&mut self, launch: &Launch) -> Verdict {
        let bytes = &launch.spec.request;
        let Some(granted) = launch.granted.as_deref().filter(|_| self.is_always_offered()) else {
            return Ok(());
        };
        let Ok(request) = Request::decode(bytes) else { return Ok(()) };
        let variant = usize::from(granted.variant);
        self.patience.on_launch(self.now, launch.task, (bytes, &request), variant)
    }

    /// Reports the request of a queued task to the *starve* checker.
    pub(crate) fn note_request(&mut self, event: &Event) {
        let Event::Queued { task, .. } = *event else { return };
        if let Some(class) = self.class_of(task) {
            self.starve.asks(task, class);
        }
        let truth = self.jobs.get(&task.job).and_then(|job| job.tasks.get(&task.local));
        if let Some(truth) = truth.filter(|it| !it.request.is_empty()) {
            self.patience.on_queued(self.now, task, &truth.request);
        }
        if let Some(length) = truth.map(|it| it.time_request).filter(|it| *it > Span::ZERO) {
            self.starve.asks_for_time(task, length);
        }
    }

    /// Reports the free resources of a machine to the *starve* checker.
    pub(crate) fn note_free_resources(&mut self, node: usize) {
        if self.options.offers == NodeOffers::None {
            return;
        }
        let machine = &self.machines[node];
        let Some(offer) = self.options.offer_of(node, machine.slots) else { return };
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
        let offer = self.options.offer_of(node, machine.slots);
        let others = machine.running.values().filter_map(|running| running.granted.as_deref());
        let request =
            match launch.spec.request.is_empty() {
                true => None,
                false => Some(Request::decode(&launch.spec.request).map_err(|error| {
                    Violation::new("match", format!("{}: {error}", launch.task))
                })?),
            };
        // Where homes move, a launch waits for replicas, and the signal may be due meanwhile.
        let before_ns = notice_ns(&launch.spec).filter(|_| !self.homes_move()).unwrap_or(0);
        // The node has decided before it synced the start.
        let decided = machine.decided.get(&(launch.task, launch.attempt));
        let decided = machine.local(decided.copied().unwrap_or(self.now));
        claims::ends_in_time(launch, before_ns, decided, self.options.end_of(node))?;
        claims::matches(launch, request.as_ref(), offer.as_deref())?;
        claims::are_free(launch, offer.as_deref(), others)
    }
}

//! The demand of ready tasks, divided among the queues in their order.

use resources::{Reason, Refusal, Request, Totals};

use crate::gangs::{self, Room};
use crate::limits::{LINES_MAX, OPEN_MAX, TASKS_PER_NODE_MAX};
use crate::{Learned, QueueConfig};

/// The margin of a node's end: at most a minute, or a twentieth of a short life.
const MARGIN_MS_MAX: u64 = 60_000;
const MARGIN_PART: u64 = 20;

/// Ready tasks of one class that no node has started.
#[derive(Clone, Debug)]
pub struct ClassDemand {
    pub request: Request,
    /// The time request; 0: none.
    pub time_ms: u64,
    pub tasks: u64,
    /// The sum of their estimated lengths.
    pub work_ms: u64,
    /// The nodes that each task holds at once.
    pub nodes: u32,
}

/// The ready tasks of a cluster, and the free parts of its nodes.
#[derive(Clone, Default, Debug)]
pub struct Demand {
    pub classes: Vec<ClassDemand>,
    pub free: Vec<Totals>,
}

/// A queue, with what it has already.
#[derive(Clone, Debug)]
pub struct Offering<'a> {
    pub config: &'a QueueConfig,
    /// The offer of its first node.
    pub learned: Learned,
    /// The nodes of each queued allocation.
    pub queued: Vec<u32>,
    pub running_nodes: u32,
    /// After a failure.
    pub rests: bool,
}

/// What a queue asks for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Ask {
    /// The nodes of each further allocation.
    pub allocations: Vec<u32>,
    /// The nodes that its tasks need, with those that are queued.
    pub wanted_nodes: u32,
    /// The reasons, for people.
    pub lines: Vec<String>,
}

/// Tasks of a class that are left for further queues. A part of a task is possible.
#[derive(Debug)]
struct Left<'a> {
    class: &'a ClassDemand,
    tasks: f64,
}

/// Divides the demand among the queues. The free parts of nodes come first, then the first queue.
#[must_use]
pub fn plan(queues: &[Offering<'_>], demand: &Demand) -> Vec<Ask> {
    let mut left = after_free_nodes(demand);
    queues.iter().map(|queue| queue.ask(&mut left)).collect()
}

/// The tasks that do not fit into the free parts of the present nodes.
fn after_free_nodes(demand: &Demand) -> Vec<Left<'_>> {
    let mut free = demand.free.clone();
    let mut left = Vec::with_capacity(demand.classes.len());
    for class in &demand.classes {
        let mut tasks = class.tasks;
        if class.nodes > 1 {
            let most = TASKS_PER_NODE_MAX.min(tasks);
            let starts = |_: &u64| gangs::take(&mut free, &class.request, class.nodes);
            tasks -= (0..most).take_while(starts).count() as u64;
            left.push(Left { class, tasks: tasks as f64 });
            continue;
        }
        for node in &mut free {
            let most = TASKS_PER_NODE_MAX.min(tasks);
            tasks -= (0..most).take_while(|_| node.take(&class.request)).count() as u64;
        }
        left.push(Left { class, tasks: tasks as f64 });
    }
    left
}

/// The number of tasks of a class that an empty node starts at once.
fn tasks_per_node(offer: &Totals, request: &Request) -> u64 {
    let mut offer = offer.clone();
    (0..TASKS_PER_NODE_MAX).take_while(|_| offer.take(request)).count() as u64
}

/// The life of a node without the margin before its end.
fn usable_ms(config: &QueueConfig) -> u64 {
    let life = config.life_s().saturating_mul(1000);
    life - (life / MARGIN_PART).min(MARGIN_MS_MAX)
}

impl QueueConfig {
    /// Why no node of the queue can ever run tasks of the class; `None`: one can.
    /// `learned`: as in [`Offering`].
    #[must_use]
    pub fn refusal(&self, learned: &Learned, class: &ClassDemand) -> Option<String> {
        let Ok(offer) = self.offer(learned) else {
            return Some("its offer is not valid".to_owned());
        };
        let usable = usable_ms(self);
        if class.time_ms > usable {
            let asked = class.time_ms.div_ceil(1000);
            let text = "more time than its time limit without the margin";
            return Some(format!("they ask for {asked} s: {text} ({} s)", usable / 1000));
        }
        if let Some(refusal) = self.lack(&offer, learned, &class.request) {
            return Some(format!("{}: {refusal}", self.offer_text(&offer, learned)));
        }
        let most = self.max_nodes_per_alloc.max(1);
        (class.nodes > most).then(|| format!("its allocations have at most {most} nodes"))
    }

    /// What its nodes lack. Before the first node, each pool that the queue does not name may come.
    fn lack(&self, offer: &Totals, learned: &Learned, request: &Request) -> Option<Refusal> {
        let mut refusal = offer.refusal(request)?;
        if !learned.is_empty() {
            return Some(refusal);
        }
        let is_certain = |reason: &Reason| match reason {
            Reason::NoPool { pool, .. } => self.leaves_out(pool),
            _ => true,
        };
        for variant in &mut refusal.variants {
            variant.reasons.retain(is_certain);
        }
        refusal.variants.iter().all(|variant| !variant.reasons.is_empty()).then_some(refusal)
    }

    /// What its nodes offer, for people.
    fn offer_text(&self, offer: &Totals, learned: &Learned) -> String {
        let known = offer.to_string();
        match (learned.is_empty(), self.cpus) {
            (false, _) => format!("its nodes offer {known}"),
            (true, Some(_)) => format!("its nodes offer {known}; other pools are not known yet"),
            (true, None) if known.is_empty() => "its cpus and pools are not known yet".to_owned(),
            (true, None) => format!("its nodes offer {known}; their cpus are not known yet"),
        }
    }
}

impl Offering<'_> {
    fn ask(&self, left: &mut [Left<'_>]) -> Ask {
        let mut ask = Ask::default();
        let Ok(offer) = self.config.offer(&self.learned) else {
            ask.lines.push("its offer is not valid".to_owned());
            return ask;
        };
        // Nodes that start all tasks at once, and nodes that end them in half a walltime.
        let (mut at_once, mut need) = (0.0, 0.0);
        let (mut served, mut gangs) = (Vec::new(), Vec::new());
        for (at, left) in left.iter().enumerate().filter(|(_, left)| left.tasks > 0.0) {
            let class = left.class;
            let tasks = left.tasks.ceil();
            let line = match self.bins_of(&offer, left) {
                Ok((_, needed)) if class.nodes > 1 => {
                    let count = needed.ceil().clamp(1.0, OPEN_MAX as f64) as u32;
                    gangs.push((at, count));
                    format!("{}: {tasks} tasks, {count} allocations", class.text())
                }
                Ok((all, needed)) => {
                    (at_once, need) = (at_once + all, need + needed);
                    served.push(at);
                    format!("{}: {tasks} tasks, {needed:.2} nodes", class.text())
                }
                Err(why) => format!("{}: {why}", class.text()),
            };
            if ask.lines.len() < LINES_MAX {
                ask.lines.push(line);
            }
        }
        let wanted = self.wanted(need, at_once, &mut ask.lines);
        let of_gangs = gangs.iter().map(|&(at, count)| left[at].class.nodes.saturating_mul(count));
        ask.wanted_nodes = of_gangs.fold(wanted, u32::saturating_add);
        if self.config.paused || self.rests {
            let why = if self.config.paused { "it is paused" } else { "it rests after a failure" };
            ask.lines.push(format!("{why}: it asks for nothing"));
            return ask;
        }
        let mut room = Room::of(self);
        for (at, count) in gangs {
            let granted = room.grant(left[at].class.nodes, count, &mut ask.allocations);
            left[at].tasks *= 1.0 - f64::from(granted) / f64::from(count);
            if granted < count {
                let text = left[at].class.text();
                ask.lines.push(format!("{text}: {} allocations have to wait", count - granted));
            }
        }
        let granted = wanted.min(room.nodes);
        if granted < wanted {
            let (most, runs) = (self.config.max_nodes.unwrap_or(0), self.running_nodes);
            ask.lines.push(format!("it has at most {most} nodes, and {runs} run"));
        }
        let unserved = 1.0 - f64::from(granted) / f64::from(wanted.max(1));
        let unserved = if wanted == 0 { 1.0 } else { unserved };
        served.into_iter().for_each(|at| left[at].tasks *= unserved);
        self.divide(granted, room, &mut ask);
        ask
    }

    /// The nodes that start all tasks of a class at once, and those that the class needs.
    fn bins_of(&self, offer: &Totals, left: &Left<'_>) -> Result<(f64, f64), String> {
        let class = left.class;
        if let Some(why) = self.config.refusal(&self.learned, class) {
            return Err(why);
        }
        let per_node = tasks_per_node(offer, &class.request).max(1) as f64;
        let mean_ms = class.work_ms as f64 / class.tasks.max(1) as f64;
        let half_ms = self.config.life_s() as f64 * 500.0;
        let bins = left.tasks / per_node;
        // One task does not end sooner on two nodes. If the class asks for a pool that is not known
        // yet, one node shows whether there is one.
        let is_known = !self.learned.is_empty() || offer.refusal(&class.request).is_none();
        let most = if is_known { f64::INFINITY } else { 1.0 };
        Ok((bins, (bins * (mean_ms / half_ms).min(1.0)).min(most)))
    }

    fn wanted(&self, need: f64, at_once: f64, lines: &mut Vec<String>) -> u32 {
        let mut wanted = need.ceil().min(f64::from(u32::MAX)) as u32;
        if self.config.cpus.is_none() && self.learned.is_empty() && wanted > 1 {
            lines.push("the cpus of its nodes are not known yet: it asks for one node".to_owned());
            wanted = 1;
        }
        let full = wanted;
        while wanted > 0 && at_once / f64::from(wanted) < self.config.min_utilization {
            wanted -= 1;
        }
        if wanted < full {
            let least = self.config.min_utilization;
            lines.push(format!("{full} nodes would be filled less than {least}"));
        }
        wanted
    }

    /// Allocations for the nodes that are neither queued nor too many.
    fn divide(&self, granted: u32, mut room: Room, ask: &mut Ask) {
        let mut missing = granted.saturating_sub(room.queued_nodes());
        while missing > 0 && room.backlog > 0 {
            let nodes = missing.min(self.config.max_nodes_per_alloc.max(1));
            ask.allocations.push(nodes);
            missing -= nodes;
            room.backlog -= 1;
        }
        let text = match (ask.wanted_nodes, missing) {
            (0, _) => return,
            (_, 0) if ask.allocations.is_empty() => "enough nodes are queued".to_owned(),
            (_, 0) => format!("it asks for {} allocations", ask.allocations.len()),
            (..) => format!("{missing} nodes wait for the backlog of {}", self.config.backlog),
        };
        ask.lines.push(text);
    }
}

impl ClassDemand {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let nodes =
            if self.nodes > 1 { format!("{} nodes of ", self.nodes) } else { String::new() };
        match self.time_ms {
            0 => format!("{nodes}{}", self.request),
            time => format!("{nodes}{}, {} s", self.request, time.div_ceil(1000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learned::tests::learned;
    use crate::queue::tests::config;

    fn class(needs: &str, tasks: u64, each_ms: u64) -> ClassDemand {
        let request = needs.parse().expect("a request");
        ClassDemand { request, time_ms: 0, tasks, work_ms: tasks * each_ms, nodes: 1 }
    }
    fn queue(config: &QueueConfig) -> Offering<'_> {
        let (learned, queued) = (Learned::default(), Vec::new());
        Offering { config, learned, queued, running_nodes: 0, rests: false }
    }
    fn asks_of(queue: &Offering<'_>, class: ClassDemand) -> Vec<u32> {
        asks(std::slice::from_ref(queue), vec![class]).remove(0)
    }
    fn asks(queues: &[Offering<'_>], classes: Vec<ClassDemand>) -> Vec<Vec<u32>> {
        let demand = Demand { classes, free: Vec::new() };
        plan(queues, &demand).into_iter().map(|ask| ask.allocations).collect()
    }
    const HOUR: u64 = 3_600_000;

    #[test]
    fn short_work_needs_few_nodes_and_long_work_one_bin_a_node() {
        let config = QueueConfig { backlog: 10, max_nodes_per_alloc: 4, ..config("q", 4) };
        let queue = queue(&config);
        assert_eq!(asks_of(&queue, class("cpus=1", 50, 1000)), [1]);
        assert_eq!(asks_of(&queue, class("cpus=1", 50, HOUR)), [4, 4, 4, 1]);
        assert_eq!(asks_of(&queue, class("cpus=4", 3, HOUR)), [3]);
        assert_eq!(asks(&[queue], vec![class("cpus=5", 3, HOUR)]), [[0_u32; 0]]);
    }

    #[test]
    fn free_and_queued_nodes_are_subtracted() {
        let config = QueueConfig { backlog: 10, max_nodes: Some(5), ..config("q", 4) };
        let classes = vec![class("cpus=1", 40, HOUR)];
        let demand = Demand { classes, free: vec![Totals::cpus(8), Totals::cpus(8)] };
        let asked = |queue: &Offering<'_>| plan(std::slice::from_ref(queue), &demand).remove(0);
        assert_eq!(asked(&queue(&config)).allocations.len(), 5, "24 tasks need 6 nodes");
        let some = Offering { queued: vec![1; 3], ..queue(&config) };
        assert_eq!(asked(&some).allocations.len(), 2);
        let running = Offering { running_nodes: 4, ..queue(&config) };
        assert_eq!(asked(&running).allocations.len(), 1);
        let rests = Offering { rests: true, ..queue(&config) };
        assert_eq!(asked(&rests).allocations.len(), 0);
    }

    /// One node would end the work within half a time limit. Each node that has come and leaves
    /// tasks waiting makes the queue ask for one more.
    #[test]
    fn a_queue_grows_to_its_limit_while_tasks_wait() {
        let config = QueueConfig { backlog: 1, max_nodes: Some(4), ..config("q", 4) };
        let mut running = 0;
        let mut steps = Vec::new();
        for _ in 0..6 {
            let now = Offering { running_nodes: running, ..queue(&config) };
            let asked: u32 = asks_of(&now, class("cpus=1", 50, 30_000)).iter().sum();
            let coming = Offering { queued: vec![1], running_nodes: running, ..queue(&config) };
            assert_eq!(asks_of(&coming, class("cpus=1", 50, 30_000)), [0_u32; 0], "one is queued");
            running += asked;
            steps.push(running);
        }
        assert_eq!(steps, [1, 2, 3, 4, 4, 4]);
    }

    #[test]
    fn a_gang_asks_for_one_allocation_of_all_its_nodes() {
        let config = QueueConfig { backlog: 3, max_nodes_per_alloc: 4, ..config("q", 4) };
        let gang = |tasks| ClassDemand { nodes: 3, ..class("cpus=all", tasks, HOUR) };
        assert_eq!(asks_of(&queue(&config), gang(1)), [3]);
        assert_eq!(asks_of(&queue(&config), gang(5)), [3, 3, 3], "the backlog");
        let short = ClassDemand { nodes: 3, ..class("cpus=all", 5, 1000) };
        assert_eq!(asks_of(&queue(&config), short), [3], "they run one after another");
        // Queued allocations of fewer nodes do not serve, and those that do are counted once.
        let queued = |sizes: &[u32]| Offering { queued: sizes.to_vec(), ..queue(&config) };
        assert_eq!(asks_of(&queued(&[2, 2]), gang(1)), [3]);
        assert_eq!(asks_of(&queued(&[4, 1]), gang(1)), [0_u32; 0]);
        let both = || vec![gang(1), class("cpus=4", 5, HOUR)];
        assert_eq!(asks(&[queued(&[4])], both()), [[4, 1]]);
        // Free nodes serve if there are enough of them.
        let free = |count| {
            let demand = Demand { classes: vec![gang(1)], free: vec![Totals::cpus(4); count] };
            plan(&[queue(&config)], &demand).remove(0).allocations
        };
        assert_eq!((free(2), free(3)), (vec![3], vec![]));
    }

    #[test]
    fn a_gang_that_no_allocation_can_hold_says_so() {
        let config = QueueConfig { max_nodes_per_alloc: 2, ..config("q", 4) };
        let gang = ClassDemand { nodes: 3, ..class("cpus=all", 1, HOUR) };
        let ask = |config: &QueueConfig| {
            let demand = Demand { classes: vec![gang.clone()], free: Vec::new() };
            plan(&[queue(config)], &demand).remove(0)
        };
        let asked = ask(&config);
        assert!(asked.allocations.is_empty(), "{asked:?}");
        assert_eq!(asked.lines[0], "3 nodes of cpus=all: its allocations have at most 2 nodes");
        let few = QueueConfig { max_nodes_per_alloc: 4, max_nodes: Some(2), ..config };
        let asked = ask(&few);
        assert!(asked.allocations.is_empty() && asked.wanted_nodes == 3, "{asked:?}");
        assert_eq!(asked.lines[1], "3 nodes of cpus=all: 1 allocations have to wait");
    }

    #[test]
    fn what_one_queue_does_not_serve_goes_to_the_next() {
        let mut plain = QueueConfig { backlog: 10, max_nodes: Some(2), ..config("a", 4) };
        let gpus =
            QueueConfig { resources: vec!["gpus=[0,1]".into()], backlog: 10, ..config("b", 4) };
        let classes = || vec![class("cpus=1", 16, HOUR), class("gpus=1", 4, HOUR)];
        let lengths = |plain: &QueueConfig| {
            let asked = asks(&[queue(plain), queue(&gpus)], classes());
            asked.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&plain), [2, 4], "2 of 4 nodes, and 2 of them for GPUs");
        plain.paused = true;
        assert_eq!(lengths(&plain), [0, 6]);
    }

    #[test]
    fn long_requests_and_empty_nodes_ask_for_nothing() {
        let plain = config("q", 4);
        let mut long = class("cpus=1", 4, HOUR);
        long.time_ms = HOUR;
        let demand = Demand { classes: vec![long.clone()], free: Vec::new() };
        let ask = plan(&[queue(&plain)], &demand).remove(0);
        assert!(ask.allocations.is_empty() && ask.lines[0].contains("more time"), "{ask:?}");
        long.time_ms = HOUR / 4;
        let short = QueueConfig { node_time_limit_s: Some(600), ..config("q", 4) };
        for (config, allocations) in [(&plain, 1), (&short, 0)] {
            let demand = Demand { classes: vec![long.clone()], free: Vec::new() };
            let ask = plan(&[queue(config)], &demand).remove(0);
            assert_eq!(ask.allocations.len(), allocations, "{ask:?}");
        }
        let half = QueueConfig { min_utilization: 0.5, ..config("q", 4) };
        assert_eq!(asks(&[queue(&half)], vec![class("cpus=1", 1, HOUR)]), [[0_u32; 0]]);
        assert_eq!(asks(&[queue(&half)], vec![class("cpus=1", 2, HOUR)]), [[1]]);
        let unknown = QueueConfig { cpus: None, backlog: 9, ..config("q", 4) };
        assert_eq!(asks(&[queue(&unknown)], vec![class("cpus=1", 9, HOUR)]), [[1]]);
        let known = Offering { learned: learned(&["cpus=3"]), ..queue(&unknown) };
        assert_eq!(asks(&[known], vec![class("cpus=1", 9, HOUR)]), [[1, 1, 1]]);
    }

    #[test]
    fn what_a_queue_does_not_name_is_learned_from_its_first_node() {
        let resources = vec!["licences=sum(2)".to_owned(), "gpus=[]".to_owned()];
        let named = QueueConfig { resources, backlog: 9, ..config("q", 4) };
        let unnamed = QueueConfig { cpus: None, resources: Vec::new(), ..named.clone() };
        let refusal = |config: &QueueConfig, learned: &Learned, needs: &str| {
            config.refusal(learned, &class(needs, 1, HOUR))
        };
        let first = Learned::default();
        for needs in ["cpus=2", "cpus=2, memory=10MiB", "gpus=1", "fpgas=1 | cpus=1"] {
            assert_eq!(refusal(&unnamed, &first, needs), None);
        }
        assert_eq!(refusal(&named, &first, "memory=10MiB"), None);
        let told = |config: &QueueConfig, learned: &Learned, needs: &str| {
            refusal(config, learned, needs).expect("it is refused")
        };
        let text = "its nodes offer cpus=4, licences=2; other pools are not known yet: ";
        for (needs, why) in [
            ("cpus=5", "cpus=5: the node has 4 in all"),
            ("licences=3", "licences=3: the node has 2 in all"),
            ("gpus/nvidia=1", "the node has no gpus/nvidia"),
        ] {
            assert_eq!(told(&named, &first, needs), format!("{text}{why}"));
        }
        let unknown = told(&unnamed, &first, "label=slow");
        assert_eq!(unknown, "its cpus and pools are not known yet: the node lacks the label slow");
        let learned = learned(&["cpus=2", "memory=1GiB"]);
        assert_eq!(refusal(&unnamed, &learned, "cpus=2, memory=10MiB, label=fast"), None);
        let gpus = told(&unnamed, &learned, "gpus=1");
        let offer = "its nodes offer cpus=2, memory=1GiB, label=fast";
        assert_eq!(gpus, format!("{offer}: the node has no gpus"));
        // One node shows whether there is memory, however many tasks wait for it.
        let memory = || class("cpus=1, memory=500MiB", 9, HOUR);
        assert_eq!(asks_of(&queue(&named), memory()), [1]);
        let known = Offering { learned, ..queue(&named) };
        assert_eq!(asks_of(&known, memory()), [1; 5], "two a node");
    }

    #[test]
    fn a_refusal_names_the_time_that_is_asked_for() {
        let long = ClassDemand { time_ms: HOUR, ..class("cpus=1", 1, HOUR) };
        let refusal = config("q", 4).refusal(&Learned::default(), &long).expect("too long");
        let text = "they ask for 3600 s: more time than its time limit without the margin (3540 s)";
        assert_eq!((refusal.as_str(), long.text().as_str()), (text, "cpus=1, 3600 s"));
    }
}

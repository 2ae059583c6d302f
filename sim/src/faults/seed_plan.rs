//! The random plan of one seed: its cluster, faults and jobs. This is swarm testing: each seed
//! leaves most kinds of fault out, so that the others can go further.

use crate::Mutant;
use proto::{JobId, PartitionId, Span};
use scheduler::{Lengths, Order, Policy};
use workloads::{Graph, Placement, generate};

use crate::faults::clients::hot_key_client::HotKeyPlan;
use crate::faults::clients::job_client::{ClientPlan, Death, OpenPlan};
use crate::faults::clients::random_jobs::{Draft, JobMix, Submission};
use crate::faults::kinds::after_jobs::Afters;
use crate::faults::kinds::gangs;
use crate::faults::kinds::node_offers;
use crate::faults::kinds::notices;
use crate::faults::kinds::silence;
use crate::faults::kinds::spawning::{self, late};
use crate::faults::kinds::throttles::{self, Limits};
use crate::faults::network::NetworkOptions;
use crate::faults::options::WorldOptions;
use crate::faults::strikes::growth;
use crate::faults::strikes::injection::FaultOptions;
use crate::faults::world::World;
use crate::rng::SimRng;

/// The share of seeds without faults. The strict checkers apply to them.
const FAULTLESS_PERMILLE: u64 = 250;
/// The share of jobs that come from a generator with the real client's placement.
const GENERATED_PERMILLE: u64 = 250;
/// The share of jobs made of commands, where processes die. Half of these jobs have tasks that kill
/// their process.
const COMMANDS_PERMILLE: u64 = 300;
/// The share of seeds with tasks that spawn tasks.
const SPAWNING_PERMILLE: u64 = 250;
/// The share of these seeds with outputs, names and edges of such tasks and with refused turns.
const SPAWNING_MORE_PERMILLE: u64 = 500;
/// Seeds with spawning tasks in which jobs have variables.
const VARIABLES_PERMILLE: u64 = 500;
/// The share of seeds with open jobs, and of jobs in them.
const OPEN_SEEDS_PERMILLE: u64 = 250;
const OPEN_JOBS_PERMILLE: u64 = 700;
/// The share of jobs that are retried while some tasks are not done.
const RETRIED_PERMILLE: u64 = 400;
/// The share of jobs that are finally forgotten.
const FORGOTTEN_PERMILLE: u64 = 300;
/// The share of clusters that remove history early.
const AGED_PERMILLE: u64 = 300;
/// One in this many seeds takes a census of its tasks at every step.
const CENSUS_EACH_STEP_SEEDS: u64 = 40;
/// The share of seeds with replicas that have clients which read all the time.
const HAMMERED_PERMILLE: u64 = 400;
/// The share of seeds with worn disks, where homes move.
const WORN_DISKS_PERMILLE: u64 = 150;
/// The share of seeds with replicas in which clients know old maps.
const LEARNING_PERMILLE: u64 = 400;
/// The share of seeds with clocks that differ by up to an hour.
const HOURS_APART_PERMILLE: u64 = 150;
/// Constants of separate random streams of a seed.
const VARIES_STREAM: u64 = 0x6279_7465_7300_0000;
const TURNS_STREAM: u64 = 0x7475_726e_7300_0000;
const VARIABLES_STREAM: u64 = 0x7661_7269_6162_6c65;
const MORE_TURNS_STREAM: u64 = 0x6d6f_7265_7475_726e;
const NUMBERS_STREAM: u64 = 0x6e75_6d62_6572_7300;
const OPEN_STREAM: u64 = 0x6f70_656e_0000_0000;
/// The duration of faults.
const TROUBLE_MIN: Span = Span::from_millis(100);
const TROUBLE_MAX: Span = Span::from_secs(6);
/// The bag that must spread over a healthy cluster: tasks for each slot, and their duration.
const SPREAD_TASKS_PER_SLOT: u64 = 24;
const SPREAD_TASK: Span = Span::from_millis(250);

/// All decisions of a seed before virtual time begins.
#[derive(Debug)]
pub(crate) struct Plan {
    pub world: WorldOptions,
    pub faults: Option<FaultOptions>,
    pub faults_for: Span,
    /// Waits until all nodes have found each other.
    pub waits_for_start: bool,
    jobs: Vec<(Work, Homes, ClientPlan)>,
    /// A large even bag submitted to one node at the end. All nodes must take part.
    pub spread: Option<(Draft, ClientPlan)>,
    kv_clients: u64,
    kv_keys: u64,
    hot_key_clients: Vec<HotKeyPlan>,
    limits: Limits,
    afters: Afters,
    /// Decides which store clients number their batches, from a separate stream.
    numbers: SimRng,
    dice: SimRng,
}

/// The contents of a job.
#[derive(Debug)]
enum Work {
    Draft(Draft),
    /// From a generator, cut into chunks as the real client does it.
    Graph(Box<Graph>, Placement),
}

impl Work {
    fn random(dice: &mut SimRng, job_mix: &JobMix) -> Self {
        if !dice.chance(GENERATED_PERMILLE) {
            return Self::Draft(Draft::random(dice, job_mix));
        }
        let shape = match dice.below(5) {
            0 => "bag",
            1 => "pipeline",
            2 => "fan-out",
            3 => "fan-in",
            _ => "star-in",
        };
        let tasks = 2 + dice.below(job_mix.tasks_max);
        let duration_ms = job_mix.duration_max.0 / 1_000_000;
        let detail = match shape {
            "pipeline" => ",length=5",
            "fan-out" | "fan-in" => ",degree=3",
            _ => "",
        };
        let seed = dice.below(1_000);
        let text = format!(
            "{shape}:tasks={tasks}{detail},duration=uniform(0,{duration_ms}ms),\
             output=uniform(0,{}B),seed={seed}",
            job_mix.output_bytes_max
        );
        let graph = generate(&text).expect("the text is a generator's");
        let placement = if dice.chance(500) { Placement::Hash } else { Placement::Graph };
        Self::Graph(Box::new(graph), placement)
    }
    fn draft(&mut self) -> Option<&mut Draft> {
        match self {
            Self::Draft(draft) => Some(draft),
            Self::Graph(..) => None,
        }
    }
    fn run_commands(&mut self, dice: &mut SimRng) {
        let Self::Draft(draft) = self else { return };
        *draft = std::mem::take(draft).commands();
        if dice.chance(500) {
            let poison: Vec<usize> =
                (0..dice.between(1, 3)).map(|_| dice.index(draft.tasks.len())).collect();
            *draft = std::mem::take(draft).with_poison(&poison);
        }
    }

    fn fail_at_first(&mut self, dice: &mut SimRng) {
        let permille = dice.pick(&[0, 50, 300]);
        if let Self::Draft(draft) = self
            && dice.chance(700)
        {
            *draft = std::mem::take(draft).mended_later(dice, permille);
        }
    }

    fn work_ns(&self) -> u64 {
        match self {
            Self::Draft(draft) => {
                let tasks = draft.tasks.iter();
                tasks.map(|task| task.duration.0 * u64::from(task.cpus)).sum()
            }
            Self::Graph(graph, _) => graph.work_ns() as u64,
        }
    }
}

/// The homes of a submission.
#[derive(Clone, Copy, Debug)]
enum Homes {
    Everywhere,
    One(usize),
    /// A set of nodes, as bits.
    Group(u64),
}

impl Homes {
    fn random(dice: &mut SimRng, nodes: u32) -> Self {
        match dice.below(4) {
            0 => Self::One(dice.index(nodes as usize)),
            1 => Self::Group(dice.between(1, (1 << nodes) - 1)),
            _ => Self::Everywhere,
        }
    }
}

impl Plan {
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut dice = SimRng::new(seed);
        let faultless = dice.chance(FAULTLESS_PERMILLE);
        let nodes = dice.pick(&[1, 2, 2, 3, 3, 4, 5, 7]);
        let mut world = world_options(&mut dice, seed, nodes, faultless, mutant);
        let job_mix = job_mix(&mut dice, &world);
        let mut works = Vec::new();
        // A separate stream, so that other draws of a seed stay as they are.
        let mut nasty = SimRng::new(seed.rotate_left(32) ^ 0x0bad_ba5e);
        for _ in 0..dice.between(1, 4) {
            let homes = Homes::random(&mut dice, nodes);
            let mut work = Work::random(&mut dice, &job_mix);
            if !faultless && nasty.chance(COMMANDS_PERMILLE) {
                work.run_commands(&mut nasty);
            }
            works.push((work, homes));
        }
        let faults_for = trouble_span(&mut dice, &works, total_slots(&world));
        if dice.chance(500) {
            slow_syncs(&mut dice, &mut world, faults_for);
        }
        let plan = |(work, homes)| (work, homes, client_plan(&mut dice, faultless, faults_for));
        let mut jobs: Vec<_> = works.into_iter().map(plan).collect();
        spawn_some(seed, faultless, &mut world, &mut jobs);
        draw_kinds(&mut world, &mut jobs);
        retry_some(&mut SimRng::new(seed.rotate_left(24) ^ 0x0040_17d5), &mut jobs);
        let spreads = faultless && nodes > 1 && world.tuning.shares_every_task();
        let spread = spreads.then(|| {
            let tasks = (SPREAD_TASKS_PER_SLOT * total_slots(&world)) as usize;
            (Draft::bag(tasks, SPREAD_TASK), ClientPlan::simple())
        });
        let hot_key_clients = hot_key_clients(&mut nasty, &world);
        let mut later = SimRng::new(seed.rotate_left(16) ^ 0x001a_7e12);
        world.clients_learn = world.copies > 1 && later.chance(LEARNING_PERMILLE);
        if later.chance(HOURS_APART_PERMILLE) {
            world.skew_max = Span::from_secs(3_600);
        }
        forget_some(seed, &mut world, &mut jobs);
        open_some(&mut SimRng::new(seed ^ OPEN_STREAM), &world, &mut jobs);
        if !faultless {
            wear(&mut nasty, &mut world);
        }
        let faults = (!faultless).then(|| {
            let mut faults = FaultOptions::random(&mut dice, faults_for);
            if world.copies > 1 {
                faults.add_moving(&mut nasty, faults_for);
                if nasty.chance(WORN_DISKS_PERMILLE) {
                    faults.wear_disks_out(&mut nasty, faults_for);
                }
                let mut slow_down = SimRng::new(seed.rotate_left(16) ^ 0x0000_d4a6);
                faults.add_slow_disks(&mut slow_down, faults_for);
            }
            faults.add_later(&mut later, faults_for, world.copies);
            growth::add_joins(&world, &mut faults, faults_for);
            notices::calm(&world, &mut faults);
            faults
        });
        Self {
            faults,
            faults_for,
            limits: Limits::draw(&world),
            afters: Afters::draw(&world),
            waits_for_start: faultless || dice.chance(700),
            world,
            jobs,
            spread,
            kv_clients: dice.below(4),
            kv_keys: dice.between(1, 4),
            hot_key_clients,
            numbers: SimRng::new(seed ^ NUMBERS_STREAM),
            dice,
        }
    }

    pub(crate) fn populate(&mut self, world: &mut World) {
        for (number, (work, homes, plan)) in std::mem::take(&mut self.jobs).into_iter().enumerate()
        {
            self.add(world, number, &work, homes, plan);
        }
        if self.dice.chance(300) {
            let pace = Span::from_millis(self.dice.pick(&[2, 30]));
            world.start_queries(world.now() + self.faults_for, pace);
        }
        for _ in 0..self.kv_clients {
            let operations = self.dice.between(5, 25) as u32;
            let pace = Span::from_millis(self.dice.pick(&[1, 20, 80]));
            world.add_kv_client(self.kv_keys, operations, pace);
            if self.numbers.chance(500) {
                world.number_batches();
            }
        }
        for plan in self.hot_key_clients.clone() {
            world.add_hot_key_client(plan, self.faults_for);
        }
    }

    /// Submits the bag that must spread. Returns the client's number and the node that gets it.
    pub(crate) fn add_spread(&mut self, world: &mut World) -> Option<(usize, usize)> {
        let (draft, plan) = self.spread.take()?;
        (self.limits, self.afters) = Default::default(); // It must spread.
        // A joining or removed node may have no partitions.
        let drawn = self.dice.index(world.machines.len());
        let all = world.map.partitions.len() as u32;
        let has_homes = (0..all).any(|partition| world.home(partition) == drawn);
        let node = if has_homes { drawn } else { world.home(0) };
        Some((self.add(world, 100, &Work::Draft(draft), Homes::One(node), plan), node))
    }

    fn add(
        &mut self,
        world: &mut World,
        number: usize,
        work: &Work,
        homes: Homes,
        plan: ClientPlan,
    ) -> usize {
        // Far apart, so that a record's key identifies its job.
        let job = JobId(self.dice.number() << 8 | number as u64);
        let all = (0..world.map.partitions.len() as u32).map(PartitionId);
        let mut partitions: Vec<PartitionId> = match homes {
            Homes::Everywhere => all.collect(),
            Homes::One(node) => all.filter(|p| world.home(p.0) == node).collect(),
            Homes::Group(set) => all.filter(|p| set >> world.home(p.0) & 1 == 1).collect(),
        };
        let keep = self.dice.pick(&[1, 3, 8]);
        while partitions.len() > keep {
            let gone = self.dice.index(partitions.len());
            partitions.swap_remove(gone);
        }
        let at_most = match plan.open {
            Some(_) => 0,
            None => self.limits.next(&mut partitions),
        };
        let mut submission = match work {
            Work::Draft(draft) => draft.submission(&mut self.dice, job, &partitions),
            Work::Graph(graph, placement) => {
                let mut held = vec![Vec::new(); world.machines.len()];
                for partition in partitions {
                    held[world.home(partition.0)].push(partition);
                }
                held.retain(|partitions| !partitions.is_empty());
                Submission::of_graph(graph, job, *placement, &held)
            }
        };
        throttles::set(&mut submission.commit, at_most);
        submission.commit.after = self.afters.next(job, plan.open.is_some());
        world.add_job(submission, plan)
    }
}

/// Slow clocks, small pages and repeated packets.
fn wear(dice: &mut SimRng, world: &mut WorldOptions) {
    if dice.chance(300) {
        world.paces = (0..world.nodes).map(|_| dice.pick(&[900, 950, 1_000, 1_100])).collect();
    }
    if dice.chance(500) {
        world.page_bytes_max = dice.pick(&[1, 100, 2_000]);
    }
    if dice.chance(100) {
        world.network.repeated_permille = 500;
    }
}

/// Syncs as slow as the jobs, so that a power cut has much to undo.
fn slow_syncs(dice: &mut SimRng, world: &mut WorldOptions, faults_for: Span) {
    world.sync_max = Span(faults_for.0 / dice.pick(&[5, 20])).max(world.sync_min);
}

/// What tasks ask for, each kind from its own stream.
fn draw_kinds(world: &mut WorldOptions, jobs: &mut [(Work, Homes, ClientPlan)]) {
    node_offers::draw(world, jobs.iter_mut().filter_map(|(work, ..)| work.draft()));
    gangs::draw(world, jobs.iter_mut().filter_map(|(work, ..)| work.draft()));
    notices::draw(world, jobs.iter_mut().filter_map(|(work, ..)| work.draft()));
}

/// Makes some tasks of some jobs spawn others.
fn spawn_some(
    seed: u64,
    faultless: bool,
    world: &mut WorldOptions,
    jobs: &mut [(Work, Homes, ClientPlan)],
) {
    let mut dice = SimRng::new(seed ^ TURNS_STREAM);
    if !dice.chance(SPAWNING_PERMILLE) {
        return;
    }
    for (work, ..) in &mut *jobs {
        let share = dice.pick(&[0, 50, 300]);
        if let Work::Draft(draft) = work {
            *draft = std::mem::take(draft).with_spawning(&mut dice, share);
        }
    }
    // A separate stream, so that other draws of a seed stay as they are.
    let mut more = SimRng::new(seed.rotate_left(8) ^ MORE_TURNS_STREAM);
    world.more_turns = spawn_more(&mut more, faultless, jobs);
    world.late_inputs = world.more_turns.and_then(|_| late::of_seed(seed));
    let mut variables = SimRng::new(seed.rotate_left(16) ^ VARIABLES_STREAM);
    world.variables = variables.chance(VARIABLES_PERMILLE).then(|| variables.number());
    world.mail = spawning::draw_mail(seed);
}

/// Makes some tasks with outputs spawn others. Returns the number for names, edges and refusals.
/// A task that has spawned never runs again, so a lost output of it ends its job as lost. With
/// faults such tasks have no outputs.
fn spawn_more(
    dice: &mut SimRng,
    faultless: bool,
    jobs: &mut [(Work, Homes, ClientPlan)],
) -> Option<u64> {
    if !dice.chance(SPAWNING_MORE_PERMILLE) {
        return None;
    }
    for (work, ..) in jobs {
        let share = dice.pick(&[0, 50, 300]);
        if let Work::Draft(draft) = work
            && faultless
        {
            *draft = std::mem::take(draft).with_spawning_outputs(dice, share);
        }
    }
    Some(dice.number())
}

/// Makes some clients open their jobs, and add the tasks while these run. Tasks that wait for
/// named tasks of the job need all of them from the start, so such jobs stay as they are.
fn open_some(dice: &mut SimRng, world: &WorldOptions, jobs: &mut [(Work, Homes, ClientPlan)]) {
    if !dice.chance(OPEN_SEEDS_PERMILLE) {
        return;
    }
    for (work, _, plan) in &mut *jobs {
        let opens = dice.chance(OPEN_JOBS_PERMILLE);
        let pace = Span::from_millis(dice.pick(&[0, 1, 30, 200]));
        let releases_permille = dice.pick(&[0, 200, 700]);
        if let Work::Draft(draft) = work
            && opens
            && !(world.more_turns.is_some() && draft.spawns())
        {
            draft.tasks.iter_mut().for_each(|task| task.upload = false);
            (plan.cancels_early_permille, plan.retries) = (0, 0);
            plan.open = Some(OpenPlan { pace, releases_permille, silence: None });
        }
    }
    silence::draw(world, jobs.iter_mut().map(|(_, _, plan)| plan));
}

/// Makes some clients retry their jobs. In most of these jobs something fails at first.
fn retry_some(dice: &mut SimRng, jobs: &mut [(Work, Homes, ClientPlan)]) {
    for (work, _, plan) in jobs {
        if dice.chance(RETRIED_PERMILLE) {
            plan.retries = dice.between(1, 3) as u32;
            work.fail_at_first(dice);
        }
    }
}

/// Makes some nodes remove history early. Ages mean nothing if clocks are far apart.
fn age_history(dice: &mut SimRng, world: &mut WorldOptions) {
    let ages = [Span::from_secs(20), Span::from_secs(60)];
    if dice.chance(AGED_PERMILLE) && world.skew_max < Span::from_secs(2) {
        world.tuning.history_age = dice.pick(&ages);
    }
}

/// Makes some clients have their jobs forgotten, and some nodes remove history early.
fn forget_some(seed: u64, world: &mut WorldOptions, jobs: &mut [(Work, Homes, ClientPlan)]) {
    let mut dice = SimRng::new(seed.rotate_left(40) ^ 0x00f0_46e7);
    for (_, _, plan) in jobs {
        plan.forgets = dice.chance(FORGOTTEN_PERMILLE);
    }
    age_history(&mut SimRng::new(seed.rotate_left(48) ^ 0x0000_a6ed), world);
}

/// Where homes move, adds clients that read all the time.
fn hot_key_clients(dice: &mut SimRng, world: &WorldOptions) -> Vec<HotKeyPlan> {
    if world.copies < 2 || !dice.chance(HAMMERED_PERMILLE) {
        return Vec::new();
    }
    let keys = dice.between(1, 4);
    let plan = |dice: &mut SimRng| HotKeyPlan {
        keys,
        pace: Span::from_millis(dice.pick(&[1, 5, 20])),
        appends_permille: dice.pick(&[50, 200, 500]),
    };
    (0..dice.between(1, 4)).map(|_| plan(dice)).collect()
}

fn total_slots(world: &WorldOptions) -> u64 {
    (0..world.nodes as usize).map(|node| u64::from(world.slots[node % world.slots.len()])).sum()
}

/// Trouble lasts about as long as the jobs. Faults in an idle cluster find little.
fn trouble_span(dice: &mut SimRng, works: &[(Work, Homes)], slots: u64) -> Span {
    let work: u64 = works.iter().map(|(work, _)| work.work_ns()).sum();
    let estimate = work / slots * dice.pick(&[1, 2, 5]);
    Span(estimate.clamp(TROUBLE_MIN.0, TROUBLE_MAX.0))
}

/// Assumed durations: too long, too short, skewed, or measured ones.
fn lengths(seed: u64) -> Lengths {
    let low = Span::ZERO;
    match seed % 5 {
        0 => Lengths::Uniform { low, high: Span::from_secs(1_000) },
        1 => Lengths::Gaussian { mean: Span(1), deviation: Span::from_secs(3) },
        2 => Lengths::Gamma { shape: 0.5, mean: Span::from_millis(50) },
        _ => Lengths::Measured,
    }
}

fn world_options(
    dice: &mut SimRng,
    seed: u64,
    nodes: u32,
    faultless: bool,
    mutant: Option<Mutant>,
) -> WorldOptions {
    let mut options = WorldOptions::healthy(seed, nodes, 1);
    options.partitions = dice.pick(&[8, 16, 64]);
    options.slots = (0..nodes).map(|_| dice.pick(&[1, 2, 4])).collect();
    // The first policy is more likely: only it must spread stolen tasks.
    options.tuning.policy = match dice.below(8) {
        0 | 1 => Policy::Mlb,
        _ => dice.pick(&Policy::ALL[1..]),
    };
    options.tuning.threshold = dice.pick(&[0.01, 0.1, 1.0]);
    options.tuning.cache_bytes = dice.pick(&[u64::MAX, u64::MAX, 0, 2_000, 600_000]);
    // The hard limit stays high. Above the soft one work continues, one task at a time.
    options.tuning.store_soft_bytes = dice.pick(&[u64::MAX, u64::MAX, 3_000, 2_000_000]);
    options.tuning.wait_max = Span::from_millis(dice.pick(&[1, 100, 10_000]));
    options.tuning.lengths = lengths(seed);
    options.tuning.order = dice.pick(&[Order::Bytes, Order::Urgency, Order::Critical]);
    options.tuning.steal_share = dice.pick(&[0.5, 0.5, 0.1, 1.0]);
    options.tuning.steal_neighbours = dice.pick(&[0, 0, 1, 100]);
    options.mutant = mutant;
    options.network = network_options(dice, faultless);
    options.copies = dice.pick(&[1, 1, 2, 3]).min(nodes);
    options.sync_max = Span::from_micros(dice.pick(&[300, 10_000, 80_000, 400_000]));
    options.step_max = Span::from_micros(dice.pick(&[5, 50, 500]));
    options.batch_max = dice.pick(&[1, 3, 64]);
    options.launch_max = Span::from_micros(dice.pick(&[10, 1_000]));
    options.skew_max = Span::from_millis(dice.pick(&[0, 1, 5_000]));
    options.slowness = (0..nodes).map(|_| dice.pick(&[1, 1, 1, 20])).collect();
    if options.slowness.iter().any(|&slowness| slowness > 1) {
        // A single input a step would be less than arrives, because of lease messages alone.
        options.batch_max = options.batch_max.max(3);
    }
    options.faultless = faultless;
    options.census_steps = dice.pick(&[16, 64, 256]);
    if seed.is_multiple_of(CENSUS_EACH_STEP_SEEDS) {
        options.census_steps = 1;
    }
    if !faultless {
        options.client_lost_permille = dice.pick(&[0, 0, 50, 300]);
    }
    options.tuning.bandwidth_bytes_per_s = dice.pick(&[1e6, 1e8]);
    // A separate stream, so that other draws of a seed stay as they are.
    options.varies_permille = SimRng::new(seed ^ VARIES_STREAM).pick(&[0, 0, 0, 100, 500]);
    growth::draw(&mut options);
    options
}

fn network_options(dice: &mut SimRng, faultless: bool) -> NetworkOptions {
    let latency_min = Span::from_micros(dice.pick(&[10, 100, 1_000]));
    let mut options = NetworkOptions::flat(latency_min, dice.pick(&[0.0, 1e7, 1e9]));
    options.latency_max = Span(latency_min.0 * dice.pick(&[1, 3, 20]));
    if !faultless {
        options.lost_permille = dice.pick(&[0, 0, 20, 100, 300]);
        options.repeated_permille = dice.pick(&[0, 0, 50, 300]);
        options.late_permille = dice.pick(&[0, 0, 100, 500]);
        options.late_max = Span::from_millis(dice.pick(&[1, 30, 700]));
    }
    options
}

fn job_mix(dice: &mut SimRng, world: &WorldOptions) -> JobMix {
    let narrowest = world.slots.iter().copied().max().unwrap_or(1);
    JobMix {
        tasks_max: dice.pick(&[8, 30, 60, 60, 200, 400]),
        duration_max: Span::from_millis(dice.pick(&[0, 2, 20, 100, 300])),
        output_bytes_max: dice.pick(&[1_000, 1_000_000]),
        failing_permille: dice.pick(&[0, 0, 0, 30]),
        flaky_permille: dice.pick(&[0, 0, 100]),
        order_only_permille: dice.pick(&[0, 100, 1000]),
        // Not drawn, so that later draws of a seed stay as they are.
        kept_permille: [0, 0, 300, 1000][world.seed as usize % 4],
        cpus_max: if dice.chance(300) { narrowest } else { 1 },
    }
}

fn client_plan(dice: &mut SimRng, faultless: bool, faults_for: Span) -> ClientPlan {
    let death = match dice.below(10) {
        0 => Death::AfterChunks(dice.index(4)),
        1 => Death::AtCommit,
        2 => Death::Watching,
        _ => Death::Never,
    };
    ClientPlan {
        // Most start at the beginning, some in the middle of the trouble.
        start: if dice.chance(600) {
            dice.span(Span::ZERO, Span(faults_for.0 / 20))
        } else {
            dice.span(Span::ZERO, Span(faults_for.0 / 2))
        },
        think: Span::from_millis(dice.pick(&[0, 5, 300])),
        window: dice.pick(&[1, 4, 16]),
        death: if faultless { Death::Never } else { death },
        repeats_permille: if faultless { 0 } else { dice.pick(&[0, 200]) },
        cancel_after: dice.chance(120).then(|| Span::from_millis(dice.below(300))),
        cancels_early_permille: if faultless { 0 } else { 10 },
        asks_again: dice.below(3) as u32,
        retries: 0, // Drawn separately, so that later draws stay as they are.
        fetches: false,
        forgets: false,
        open: None,
    }
}

//! A cluster grows from one node, or from the least number for its replicas, to sixteen, and
//! shrinks to three. Meanwhile jobs run, keys are written, and nodes die during moves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use proto::wire::map_command::Body;
use proto::{JobId, PartitionId, Span, wire};
use sim::{ClientPlan, Draft, GrowthPlan, HotKeyPlan, SimRng, World, WorldOptions};

const JOB: u64 = 0x5eed_0000_0000;
const SEEDS: u64 = 20;
const MOST: usize = 16;
const LEAST: usize = 3;
const PARTITIONS: u32 = 64;
/// The time until everything that a move started is done.
const REST_BOUND: Span = Span::from_secs(120);
const LEAVES_WITHIN: Span = Span::from_secs(300);
/// The interval at which the progress of a move is checked.
const LOOK: Span = Span::from_millis(1);
/// The longest time between a committed step of a move and the death of a node.
const STRIKES_WITHIN_MS: u64 = 30;

/// The stage of a move at which one of the concerned nodes dies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    CatchesUp,
    Promoted,
    HandedOver,
    Activated,
    Dropped,
}

const STAGES: [Stage; 5] =
    [Stage::CatchesUp, Stage::Promoted, Stage::HandedOver, Stage::Activated, Stage::Dropped];

/// One step of a move, with its partition and node.
#[derive(Clone, Debug)]
struct Step {
    stage: Stage,
    partition: u32,
    node: u32,
}

/// The committed changes that concern moves.
#[derive(Debug, Default)]
struct Moves {
    /// The number of replicas started since the last reset. Each one transfers a whole partition.
    begun: u32,
    promoted: BTreeSet<(u32, u32)>,
    handed_over: BTreeSet<u32>,
    /// A node dies after this number of further steps of this stage.
    armed: Option<(Stage, u64)>,
    reached: Option<Step>,
}

impl Moves {
    fn note(&mut self, command: &wire::MapCommand) {
        match &command.body {
            Some(Body::AddLearner(it)) => {
                self.begun += 1;
                self.promoted.remove(&(it.partition, it.node));
                self.come(Stage::CatchesUp, it.partition, it.node);
            }
            Some(Body::CaughtUp(it)) => {
                self.promoted.insert((it.partition, it.learner));
                self.come(Stage::Promoted, it.partition, it.learner);
            }
            Some(Body::Handover(it)) => {
                self.handed_over.insert(it.partition);
                self.come(Stage::HandedOver, it.partition, it.to);
            }
            Some(Body::Activated(it)) => {
                for of in &it.partitions {
                    self.handed_over.remove(&of.partition);
                    self.come(Stage::Activated, of.partition, it.node);
                }
            }
            Some(Body::DropReplica(it)) => self.come(Stage::Dropped, it.partition, it.node),
            _ => {}
        }
    }

    fn come(&mut self, stage: Stage, partition: u32, node: u32) {
        match &mut self.armed {
            Some((armed, 0)) if *armed == stage => {
                self.reached = Some(Step { stage, partition, node });
                self.armed = None;
            }
            Some((armed, further)) if *armed == stage => *further -= 1,
            _ => {}
        }
    }

    /// True if the move is still at this step.
    fn is_still_at(&self, step: &Step) -> bool {
        match step.stage {
            Stage::CatchesUp => !self.promoted.contains(&(step.partition, step.node)),
            Stage::HandedOver => self.handed_over.contains(&step.partition),
            Stage::Promoted | Stage::Activated | Stage::Dropped => true,
        }
    }
}

/// A join without a death: the replicas started, and a newcomer's fair share.
#[derive(Debug)]
struct Join {
    begun: u32,
    share: f64,
}

/// One run, and its statistics.
struct Run {
    seed: u64,
    copies: u32,
    world: World,
    moves: Arc<Mutex<Moves>>,
    dice: SimRng,
    jobs: u64,
    /// Deaths by the stage of the move.
    deaths: BTreeMap<Stage, u32>,
    joins: Vec<Join>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let copies = 2 + (seed % 2) as u32;
        // Half of them begin with one node, and get their replicas as soon as there are nodes.
        let first = if seed % 4 < 2 { copies } else { 1 };
        let mut options = WorldOptions::healthy(seed, first, 2);
        options.grows = (first == 1).then_some(GrowthPlan { joins_max: 0, kills_permille: 0 });
        (options.copies, options.partitions) = (copies, PARTITIONS);
        // Nodes die here: clients repeat unanswered requests.
        options.faultless = false;
        options.sync_max = Span::from_millis(20);
        // The transfer of a replica takes many pages.
        (options.page_bytes_max, options.census_steps) = (300, 256);
        let mut world = World::new(options);
        if std::env::var("SIM_STORY").is_ok() {
            world.keep_story();
        }
        let moves = Arc::<Mutex<Moves>>::default();
        let noted = Arc::clone(&moves);
        world.on_agreed(Box::new(move |command| noted.lock().expect("one thread").note(command)));
        let (dice, deaths) = (SimRng::new(seed ^ 0xe1a5_71c0), BTreeMap::new());
        Self { seed, copies, world, moves, dice, jobs: 0, deaths, joins: Vec::new() }
    }

    /// Submits work for some seconds with homes everywhere. Some results are kept.
    fn submit(&mut self) {
        let (nodes, number) = (self.world.nodes(), self.jobs);
        self.jobs += 1;
        let held: Vec<PartitionId> = (0..nodes)
            .flat_map(|node| self.world.partitions_of(node).into_iter().take(2))
            .collect();
        let mut draft = Draft::fan_in(40, Span::from_millis(300), 20_000);
        draft.tasks.iter_mut().for_each(|task| task.keep = number.is_multiple_of(4));
        let job = JobId(JOB + (number << 8));
        let submission = draft.submission(&mut self.dice, job, &held);
        self.world.add_job(submission, ClientPlan::simple());
    }

    fn begin(&mut self) {
        self.must(World::must_be_whole);
        self.submit();
        for _ in 0..3 {
            self.world.add_kv_client(16, 400, Span::from_millis(100));
        }
        let plan = HotKeyPlan { keys: 3, pace: Span::from_millis(50), appends_permille: 200 };
        self.world.add_hot_key_client(plan, Span::from_secs(30));
    }

    fn must(&mut self, what: impl FnOnce(&mut World) -> Result<(), sim::Violation>) {
        let verdict = what(&mut self.world);
        if let Err(violation) = verdict {
            self.fail(&violation.to_string());
        }
    }

    #[expect(clippy::print_stdout, reason = "for a human, when asked for")]
    fn fail(&mut self, why: &str) -> ! {
        self.world.take_story().iter().for_each(|line| println!("{line}"));
        // An earlier violation may explain why nothing progresses.
        let violation = self.world.violation().map(ToString::to_string).unwrap_or_default();
        panic!("seed {}: {why} {violation}", self.seed);
    }

    fn run_for(&mut self, span: Span) {
        self.world.run_for(span);
        if self.world.violation().is_some() {
            self.fail("it goes on no more:");
        }
    }

    /// Checks at short intervals until `is_done`, and kills a node when a planned step is reached.
    fn watch(&mut self, bound: Span, what: &str, is_done: impl Fn(&World) -> bool) {
        let until = self.world.now() + bound;
        while !is_done(&self.world) {
            if self.world.now() >= until {
                self.fail(&format!("after {bound:?} this does not hold yet: {what}"));
            }
            self.run_for(LOOK);
            let reached = self.moves.lock().expect("one thread").reached.take();
            if let Some(step) = reached {
                self.strike(&step);
            }
        }
    }

    /// After a short delay, kills one of the nodes that a step concerns. It restarts.
    fn strike(&mut self, step: &Step) {
        let moment = Span::from_millis(self.dice.below(STRIKES_WITHIN_MS));
        self.run_for(moment);
        let holders = self.world.holders()[step.partition as usize].clone();
        let victim = match self.dice.below(3) {
            0 => step.node as usize,
            1 => self.world.home(step.partition),
            _ => self.dice.pick(&holders) as usize,
        };
        if self.moves.lock().expect("one thread").is_still_at(step) {
            *self.deaths.entry(step.stage).or_default() += 1;
        }
        match self.dice.below(3) {
            0 => self.world.cut_power(victim),
            _ => self.world.crash(victim),
        }
    }

    fn comes_to_rest(&mut self) {
        self.watch(REST_BOUND, "all is where it should be", World::is_at_rest);
    }

    /// Draws whether a node dies during the next move. If so, the following move may begin before
    /// the cluster is at rest.
    fn arms(&mut self) -> bool {
        let stage = self.dice.pick(&STAGES);
        let armed = self.dice.chance(500).then(|| (stage, self.dice.below(4)));
        let mut moves = self.moves.lock().expect("one thread");
        (moves.armed, moves.reached) = (armed, None);
        armed.is_some()
    }

    fn disarm(&mut self) {
        self.moves.lock().expect("one thread").armed = None;
    }

    fn grow(&mut self) {
        self.submit();
        let is_deadly = self.arms();
        if !is_deadly {
            self.comes_to_rest();
        }
        self.moves.lock().expect("one thread").begun = 0;
        let Some(node) = self.world.join(2) else { self.fail("no node may join") };
        if is_deadly && self.dice.chance(500) {
            let moment = Span::from_millis(self.dice.below(1_500));
            return self.run_for(moment);
        }
        self.watch(REST_BOUND, "the newcomer is home of something", |world| {
            !world.partitions_of(node).is_empty()
        });
        self.comes_to_rest();
        self.disarm();
        if !is_deadly {
            let (nodes, copies) = (node as u32 + 1, PARTITIONS * self.copies);
            let begun = self.moves.lock().expect("one thread").begun;
            self.joins.push(Join { begun, share: f64::from(copies) / f64::from(nodes) });
        }
    }

    fn shrink(&mut self, node: usize) {
        self.submit();
        let is_deadly = self.arms();
        let until = self.world.now() + LEAVES_WITHIN;
        while !self.world.is_gone(node) {
            if self.world.now() >= until {
                self.fail(&format!("n{node} does not leave"));
            }
            self.world.leave(node);
            let soon = self.world.now() + Span::from_secs(2);
            let is_over = |world: &World| world.now() >= soon || world.is_gone(node);
            self.watch(LEAVES_WITHIN, "time goes on", is_over);
        }
        if !is_deadly || self.dice.chance(500) {
            self.comes_to_rest();
        }
        self.disarm();
    }

    fn ends(&mut self) {
        self.comes_to_rest();
        self.must(World::must_end);
        self.must(World::must_remember);
        self.must(World::must_be_whole);
        self.must(World::must_fall_silent);
        self.must(World::must_leave_nothing);
    }
}

/// A newcomer causes little more transfer than its fair share.
fn move_little(joins: &[Join]) {
    assert!(joins.len() >= 50, "{} joins without a death", joins.len());
    for join in joins {
        assert!(f64::from(join.begun) <= 1.2 * join.share, "it moved too much: {join:?}");
    }
}

#[test]
fn one_grows_to_sixteen_and_shrinks_to_three_while_jobs_run() {
    let (mut deaths, mut joins) = (BTreeMap::<Stage, u32>::new(), Vec::new());
    for seed in 1..=SEEDS {
        let mut run = Run::new(seed);
        run.begin();
        while run.world.nodes() < MOST {
            run.grow();
        }
        let mut there: Vec<usize> = (0..MOST).collect();
        while there.len() > LEAST {
            let at = run.dice.index(there.len());
            run.shrink(there.swap_remove(at));
        }
        run.ends();
        run.deaths.iter().for_each(|(&stage, n)| *deaths.entry(stage).or_default() += n);
        joins.extend(run.joins);
    }
    println!("deaths by the stage of a move: {deaths:?}; {} joins without one", joins.len());
    assert!(STAGES.iter().all(|stage| deaths.get(stage) >= Some(&20)), "{deaths:?}");
    move_little(&joins);
}

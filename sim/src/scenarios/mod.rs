//! Scripted scenarios: orders of events that random seeds rarely reach. They pass on the correct
//! code, and fail with the mutant that they are about.

mod births;
pub mod bytes;
mod copies;
mod data;
mod leases;
mod power;
mod release;
mod resources;
mod rounds;
pub mod slow;
mod stopping;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::Mutant;
use crate::{Action, ClientPlan, Draft, SimRng, Submission, Violation, World, WorldOptions};
use node::Effect;
use prost::Message as _;
use proto::wire::message::Body;
use proto::{Event, JobId, NodeId, PartitionId, Span, wire};
use workloads::{Placement, generate};

const JOB: u64 = 0x5eed_0000_0000;

/// The home of the tasks, and a chain of thieves. Each steals from the node before it.
const HOME: NodeId = NodeId(0);
const FIRST: NodeId = NodeId(1);
const SECOND: NodeId = NodeId(2);
const THIRD: NodeId = NodeId(3);

type Run = fn(Option<Mutant>) -> Result<(), Violation>;

/// One exact order of events, and the mutant that it detects.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub about: Mutant,
    /// A short description of the events.
    pub name: &'static str,
    run: Run,
}

impl Scenario {
    const fn new(about: Mutant, name: &'static str, run: Run) -> Self {
        Self { about, name, run }
    }

    const fn of_node(about: node::Mutant, name: &'static str, run: Run) -> Self {
        Self::new(Mutant::Node(about), name, run)
    }

    const fn of_scheduler(about: scheduler::Mutant, name: &'static str, run: Run) -> Self {
        Self::new(Mutant::of_scheduler(about), name, run)
    }

    /// The scenario that detects this mutant, if seeds rarely do.
    #[must_use]
    pub fn about(mutant: Mutant) -> Option<Self> {
        SCENARIOS.into_iter().find(|scenario| scenario.about == mutant)
    }

    /// Runs it, with or without a mutant. A panic of a node counts as a violation.
    ///
    /// # Errors
    /// The violation.
    pub fn run(&self, mutant: Option<Mutant>) -> Result<(), Violation> {
        let ended = catch_unwind(AssertUnwindSafe(|| (self.run)(mutant)));
        ended.unwrap_or_else(|panic| Err(Violation::of_panic(&*panic)))
    }
}

/// All scenarios.
pub const SCENARIOS: [Scenario; 30] = [
    Scenario::of_scheduler(
        scheduler::Mutant::GrantTwice,
        "a request is heard twice",
        a_request_is_heard_twice,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::PassOnEarly,
        "moves are heard in the wrong order",
        moves_are_heard_in_the_wrong_order,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::CancelForgetsUnackedGrants,
        "a thief dies with what was cancelled",
        a_thief_dies_with_what_was_cancelled,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::CancelMissesHolder,
        "what a thief has is cancelled",
        what_a_thief_has_is_cancelled,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::CancelForgottenOnRestart,
        "a home dies in the middle of a removal",
        a_home_dies_in_the_middle_of_a_removal,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::ReleaseForgottenOnRestart,
        "homes die before the release",
        release::homes_die_before_the_release,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::NoFetchFallback,
        "copies are gone when they are asked for",
        data::copies_are_gone_when_they_are_asked_for,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::LastCopyGoes,
        "the maker dies and copies are pushed out",
        data::the_maker_dies_and_copies_are_pushed_out,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::StagedNeverRequeued,
        "short tasks are staged behind long ones",
        data::short_tasks_are_staged_behind_long_ones,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::EndReportedBeforeCopy,
        "makers die one after another",
        data::makers_die_one_after_another,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::FoundOutputsUnchecked,
        "makers die after all have started again",
        data::makers_die_after_all_have_restarted,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::NewNodesGetNoCopies,
        "one node gets company",
        data::one_node_gets_company,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::LeavesWithCopies,
        "a node dies when another has left",
        data::a_node_dies_when_another_has_left,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::RoundIgnored,
        "a skip comes in the next round",
        rounds::a_skip_comes_in_the_next_round,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::ReservationForgotten,
        "small requests pass a large one",
        resources::small_requests_pass_a_large_one,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::PatienceIgnored,
        "tasks wait for the variant of another node",
        resources::tasks_wait_for_the_variant_of_another_node,
    ),
    Scenario::of_node(
        node::Mutant::AckBeforeDurable,
        "a home loses power",
        power::a_home_loses_power,
    ),
    Scenario::of_node(
        node::Mutant::ReadsUnleased,
        "a primary is silent",
        leases::a_primary_is_silent,
    ),
    Scenario::new(
        Mutant::ClockStandsStill,
        "a primary is suspended",
        leases::a_primary_is_suspended,
    ),
    Scenario::of_node(
        node::Mutant::LeasesUnwaited,
        "a primary is replaced at once",
        leases::a_primary_is_replaced_at_once,
    ),
    Scenario::of_node(
        node::Mutant::ReplacedStoreUnnoticed,
        "a voter loses its disk",
        copies::a_voter_loses_its_disk,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::ChecksumIgnored,
        "outputs are made again",
        bytes::outputs_are_made_again,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::ReadersKept,
        "readers are recalled",
        bytes::outputs_are_made_again,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::EarlierEndLost,
        "fetched outputs are made again",
        bytes::fetched_outputs_are_made_again,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::RecallForgotten,
        "homes of readers die",
        bytes::outputs_are_made_again,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::RecallAnswerMistaken,
        "answers are repeated",
        bytes::recalls_are_repeated,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::RecalledUnrequested,
        "recalls are late",
        bytes::recalls_are_late,
    ),
    Scenario::of_node(
        node::Mutant::SlowNeverReported,
        "a machine is slow, and the rest waits no longer",
        slow::the_rest_waits_no_longer,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::StopCountsAsCrash,
        "nodes are stopped again and again",
        stopping::nodes_are_stopped_again_and_again,
    ),
    Scenario::of_scheduler(
        scheduler::Mutant::BornBeforeSync,
        "a home loses power at a birth",
        births::a_home_loses_power_at_a_birth,
    ),
];

fn messages(effect: &Effect) -> Vec<Body> {
    let Effect::Send { packet, .. } = effect else { return Vec::new() };
    let reliable = packet.reliable.iter();
    let reliable =
        reliable.map(|bytes| wire::Message::decode(bytes.clone()).expect("nodes encode"));
    reliable.chain(packet.best_effort.iter().cloned()).filter_map(|message| message.body).collect()
}

fn any(effect: &Effect, matches: impl Fn(&Body) -> bool) -> bool {
    messages(effect).iter().any(matches)
}

fn is_theft(body: &Body) -> bool {
    matches!(body, Body::StealProbe(_) | Body::StealHint(_) | Body::StealRequest(_))
}

fn options(nodes: u32, slots: u32, mutant: Option<Mutant>) -> WorldOptions {
    let mut options = WorldOptions::healthy(11, nodes, slots);
    options.faultless = false;
    options.census_steps = 16;
    options.mutant = mutant;
    options
}

fn world(nodes: u32, slots: u32, mutant: Option<Mutant>) -> World {
    World::new(options(nodes, slots, mutant))
}

/// A job with its record on the second node, and partitions of the first node for its tasks.
fn away(world: &World) -> (JobId, Vec<PartitionId>) {
    let mut all = (0..).map(|n| JobId(JOB + n));
    let job = all.find(|job| world.job_home(*job) == FIRST.0 as usize);
    let partitions = world.partitions_of(HOME.0 as usize).into_iter().take(2);
    (job.expect("jobs are spread over all nodes"), partitions.collect())
}

/// Submits a bag to the first node.
fn submit(world: &mut World, tasks: usize, duration: Span) -> usize {
    let (job, held) = away(world);
    let submission = Draft::bag(tasks, duration).submission(&mut SimRng::new(7), job, &held);
    world.add_job(submission, ClientPlan::simple())
}

/// The observations of a scenario so far.
#[derive(Debug, Default)]
struct Observed {
    stolen: bool,
    passed_on: bool,
    blocked: bool,
    crashed: bool,
    writes: u32,
}

fn ended(world: &mut World) -> Result<(), Violation> {
    world.must_end()?;
    world.must_fall_silent()?;
    world.must_leave_nothing()
}

/// True unless the nodes are neighbours in the chain. Only neighbours may steal from each other.
fn out_of_line(from: NodeId, to: NodeId) -> bool {
    from.0.abs_diff(to.0) != 1
}

/// A task moves from its home over two thieves to a third, and the home learns of the last move
/// first. Then the third thief dies: the home must know that it had the task.
fn moves_are_heard_in_the_wrong_order(mutant: Option<Mutant>) -> Result<(), Violation> {
    let mut world = world(4, 1, mutant);
    let seen = Arc::new(Mutex::new(Observed { blocked: true, ..Observed::default() }));
    let shared = Arc::clone(&seen);
    world.on_effect(Box::new(move |_, from, effect| {
        let Effect::Send { to, .. } = effect else { return Action::Carry };
        let mut seen = shared.lock().expect("one thread");
        if out_of_line(from, *to) && any(effect, is_theft) {
            return Action::Drop;
        }
        if (from, *to) == (SECOND, HOME) && seen.blocked && any(effect, is_moved) {
            return Action::Drop;
        }
        if (from, *to) == (THIRD, SECOND) && any(effect, |body| matches!(body, Body::StealDone(_)))
        {
            (seen.passed_on, seen.blocked) = (true, false);
        }
        let replied = any(effect, |body| matches!(body, Body::TasksMovedAck(_)));
        if (from, *to) == (HOME, SECOND) && replied && seen.passed_on && !seen.crashed {
            seen.crashed = true;
            return Action::CrashOther(THIRD);
        }
        Action::Carry
    }));
    submit(&mut world, 60, Span::from_secs(2));
    world.run_for(Span::from_secs(20));
    seen.lock().expect("one thread").blocked = false;
    ended(&mut world)
}

fn is_moved(body: &Body) -> bool {
    matches!(body, Body::TasksMoved(_))
}

/// The second thief's reports of its steals do not reach the home for some time.
fn silence_between_the_second_and_home(world: &mut World) -> Arc<Mutex<Observed>> {
    let seen = Arc::new(Mutex::new(Observed { blocked: true, ..Observed::default() }));
    let shared = Arc::clone(&seen);
    world.on_effect(Box::new(move |_, from, effect| {
        let mut seen = shared.lock().expect("one thread");
        let stolen = matches!(effect, Effect::Trace(Event::Stolen { from: FIRST, .. }));
        seen.stolen |= stolen && from == SECOND;
        let Effect::Send { to, .. } = effect else { return Action::Carry };
        let line = out_of_line(from, *to) && any(effect, is_theft);
        let silent = (from, *to) == (SECOND, HOME) && seen.blocked && any(effect, is_moved);
        if line || silent { Action::Drop } else { Action::Carry }
    }));
    seen
}

fn until_the_second_stole(world: &mut World, seen: &Mutex<Observed>) {
    for _ in 0..20_000 {
        world.run_for(Span::from_millis(1));
        if seen.lock().expect("one thread").stolen {
            return;
        }
    }
    panic!("the second should steal from the first");
}

/// Tasks are in transit between two thieves when they are cancelled. The second dies. Tasks that
/// the first takes back must not run.
fn a_thief_dies_with_what_was_cancelled(mutant: Option<Mutant>) -> Result<(), Violation> {
    let mut world = world(3, 1, mutant);
    let seen = silence_between_the_second_and_home(&mut world);
    let client = submit(&mut world, 40, Span::from_secs(8));
    until_the_second_stole(&mut world, &seen);
    // One task runs on at the home: the end of the job would free everything in transit.
    let named = world.tasks_of(client).split_off(1);
    world.cancel_tasks(client, named);
    world.run_for(Span::from_millis(1_500));
    world.crash(SECOND.0 as usize);
    seen.lock().expect("one thread").blocked = false;
    ended(&mut world)
}

/// A thief has long work. Its home cancels all but two tasks, so that the job continues.
fn what_a_thief_has_is_cancelled(mutant: Option<Mutant>) -> Result<(), Violation> {
    let mut world = world(2, 1, mutant);
    // The home does not steal its tasks back.
    world.on_effect(Box::new(|_, from, effect| match from {
        HOME if any(effect, is_theft) => Action::Drop,
        _ => Action::Carry,
    }));
    let client = submit(&mut world, 40, Span::from_secs(20));
    world.run_for(Span::from_secs(2));
    let launches = world.launches();
    assert!(launches[FIRST.0 as usize] > 0, "it should have stolen: {launches:?}");
    let named = world.tasks_of(client).split_off(2);
    world.cancel_tasks(client, named);
    ended(&mut world)
}

/// The network repeats a steal request, and the thief dies before homes know which tasks it got.
fn a_request_is_heard_twice(mutant: Option<Mutant>) -> Result<(), Violation> {
    let mut options = options(3, 1, mutant);
    options.network.repeated_permille = 1_000;
    let mut world = World::new(options);
    let seen = silence_between_the_second_and_home(&mut world);
    submit(&mut world, 60, Span::from_millis(150));
    until_the_second_stole(&mut world, &seen);
    world.run_for(Span::from_millis(100));
    world.crash(SECOND.0 as usize);
    world.run_for(Span::from_secs(1));
    seen.lock().expect("one thread").blocked = false;
    ended(&mut world)
}

/// A home ends thousands of tasks of a cancelled job step by step, and dies before the last one.
fn a_home_dies_in_the_middle_of_a_removal(mutant: Option<Mutant>) -> Result<(), Violation> {
    let mut options = options(2, 1, mutant);
    options.census_steps = 0;
    // The cancellation is acknowledged long before the last task has ended.
    (options.sync_min, options.sync_max) = (Span::ZERO, Span::from_micros(1));
    (options.step_min, options.step_max) = (Span::from_millis(1), Span::from_millis(2));
    let mut world = World::new(options);
    let seen = Arc::new(Mutex::new(Observed::default()));
    let shared = Arc::clone(&seen);
    world.on_effect(Box::new(move |_, node, effect| {
        let mut seen = shared.lock().expect("one thread");
        match effect {
            Effect::Trace(Event::Removing { .. }) if node == HOME => seen.blocked = true,
            Effect::Persist(_) if node == HOME && seen.blocked => {
                seen.writes += 1;
                if seen.writes == 4 {
                    return Action::Crash;
                }
            }
            _ => {}
        }
        Action::Carry
    }));
    let graph = generate("bag:tasks=30000,duration=100ms").expect("a generator's text");
    let (job, held) = away(&world);
    let submission = Submission::of_graph(&graph, job, Placement::Hash, &[held]);
    let client = world.add_job(submission, ClientPlan::simple());
    for _ in 0..600 {
        world.run_for(Span::from_millis(100));
        if world.launches().iter().sum::<u64>() > 0 {
            break;
        }
    }
    world.cancel_job(client);
    world.run_for(Span::from_secs(4));
    let writes = seen.lock().expect("one thread").writes;
    assert!(writes >= 4, "the removal should take several steps, not {writes}");
    if let Some(violation) = world.violation() {
        return Err(violation.clone());
    }
    ended(&mut world)
}

//! Commands that get a signal before an end, what they do then, and drains of their nodes.

use kvs::membership::member;
use node::Node;
use proto::event::End;
use proto::wire::map_command::Body;
use proto::work::{Launch, Outcome};
use proto::{Attempt, Event, NodeId, Span, TaskId, wire};
use scheduler::Mutant;

use crate::checkers::{Verdict, moves};
use crate::faults::clients::random_jobs::{Draft, DraftTask};
use crate::faults::event_queue::SimEvent;
use crate::faults::kinds::node_offers::NodeOffers;
use crate::faults::options::WorldOptions;
use crate::faults::strikes::injection::{Fault, FaultOptions};
use crate::faults::world::World;
use crate::rng::SimRng;
use crate::state::expected::notice_ns;
use crate::state::machine::Running;
use crate::state::script::{Script, mix};

/// Separate random streams, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x6e6f_7469_6365_7300;
const CALM_STREAM: u64 = 0x6361_6c6d_0000_0000;
/// The share of seeds with such commands.
const NOTICED_PERMILLE: u64 = 150;
const SIGNAL: u32 = 10;
/// How long such commands last at least. In a large job only some do.
const LASTS_MIN: Span = Span::from_millis(5);
const LASTS_MAX: Span = Span::from_millis(400);
const LARGE_JOB_TASKS: usize = 60;
/// One in this many starts of such commands leads to a drain.
const STARTS_PER_DRAIN: u64 = 4;
const DRAINS_WITHIN: Span = Span::from_millis(40);
const DRAINS_MAX: u64 = 3;
const DRAIN: &str = "drain";
/// The pause before a drain is tried again while the cluster could not bear it.
const DRAINS_AGAIN: Span = Span::from_millis(30);
/// The deadline of a drain that has had none.
const DEADLINE_LATER: Span = Span::from_millis(50);
/// When nodes end.
const ENDS_MIN: Span = Span::from_millis(100);
const ENDS_MAX: Span = Span::from_secs(3);
/// A command hangs only if the deadline of its node comes within this time.
const HANGS_MAX: Span = Span::from_secs(10);

/// What a command does after its signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reaction {
    /// It works until it is done.
    GoesOn,
    /// It works until it is killed.
    Hangs,
    /// It exits with an error after this time.
    Exits(Span),
    /// It is done after this time.
    Finishes(Span),
}

/// Makes some tasks of some seeds commands with a signal.
pub(crate) fn draw<'d>(world: &mut WorldOptions, drafts: impl Iterator<Item = &'d mut Draft>) {
    let mut dice = SimRng::new(world.seed ^ STREAM);
    let is_own = world.mutant.is_some_and(|mutant| mutant.is_among(&Mutant::OF_MOVES));
    // A gang may need all nodes that are not drained.
    if world.gangs || !dice.chance(if is_own { 1000 } else { NOTICED_PERMILLE }) {
        return;
    }
    world.noticed = true;
    if world.copies == 1 && world.ends.is_empty() {
        draw_ends(world, &mut dice);
    }
    let permille = dice.pick(&[100, 500, 1000]);
    let ends = !world.ends.is_empty();
    for draft in drafts {
        let longer = if draft.tasks.len() > LARGE_JOB_TASKS { 100 } else { 700 };
        for task in draft.tasks.iter_mut().filter(|task| may_move(task, ends)) {
            let before = Span::from_millis(dice.pick(&[0, 5, 50, 300]));
            let lasts = dice.span(LASTS_MIN, LASTS_MAX);
            if dice.chance(permille) {
                task.command = true;
                task.notice = Some(wire::Notice { signal: SIGNAL, before_ns: before.0 });
                let min = if dice.chance(longer) { lasts } else { Span::ZERO };
                task.duration = task.duration.max(min);
            }
        }
    }
}

/// Removes most faults from some seeds with such commands. A node is drained only while no other
/// one is away.
pub(crate) fn calm(world: &WorldOptions, faults: &mut FaultOptions) {
    use Fault::{Clog, Crash, Cut, Handover, Join, Leave, Map, Reconnect, Slow};
    let mut dice = SimRng::new(world.seed ^ CALM_STREAM);
    if world.noticed && world.copies > 1 && dice.chance(600) {
        let mild = [Clog, Crash, Cut, Handover, Join, Leave, Map, Reconnect, Slow];
        faults.means.retain(|(fault, _)| mild.contains(fault));
    }
}

/// `ends`: some nodes end. Then the first one, which does not, has to be wide enough.
fn may_move(task: &DraftTask, ends: bool) -> bool {
    let fits = !ends || task.cpus == 1;
    fits && !task.upload
}

/// Ends of all nodes but the first one, mostly by clocks that agree.
fn draw_ends(world: &mut WorldOptions, dice: &mut SimRng) {
    if world.offers != NodeOffers::None {
        return;
    }
    if dice.chance(700) {
        world.skew_max = world.skew_max.min(Span::from_millis(1));
    }
    for node in 1..world.nodes as usize {
        let after = dice.span(ENDS_MIN, ENDS_MAX);
        world.ends.push((node, after, Span::from_millis(dice.pick(&[0, 10, 100]))));
    }
}

/// Whether the node knows that it is drained.
pub(crate) fn is_drained(node: &Node, index: usize) -> bool {
    let member = member(node.map(), NodeId(index as u32));
    member.is_some_and(|member| member.phase() == wire::MemberPhase::Leaving)
}

impl World {
    /// A command with a signal starts. An operator may soon drain its node.
    pub(crate) fn plan_drain(&mut self, index: usize, launch: &Launch) {
        let may_drain = self.homes_move() && !self.options.faultless;
        let is_meant = may_drain && notice_ns(&launch.spec).is_some();
        let drawn = mix(launch.task.local.0, launch.attempt.0 ^ self.options.seed);
        if is_meant && drawn.is_multiple_of(STARTS_PER_DRAIN) {
            let at = self.now + Span((drawn >> 8) % DRAINS_WITHIN.0);
            self.schedule(at, SimEvent::Drain { node: index });
        }
    }

    /// An operator drains a node that runs commands with a signal: this one or a later one. If some
    /// node is drained already, that one gets an earlier deadline.
    pub(crate) fn drain(&mut self, from: usize) {
        let nodes = self.machines.len();
        let awaits = |&node: &usize| {
            self.machines[node].running.values().any(|running| running.awaits_signal)
        };
        let mut waiting = (0..nodes).map(|step| (from + step) % nodes).filter(awaits).peekable();
        let drains = self.injection.counts().get(DRAIN).copied().unwrap_or(0);
        if waiting.peek().is_none() || drains >= DRAINS_MAX {
            return;
        }
        if let Some(&NodeId(node)) = self.leavers().first() {
            let by = self.machines[node as usize].local(self.now) + DEADLINE_LATER;
            return self.propose(Body::Leave(wire::MemberLeave { node, by_ns: by.0 }));
        }
        let may_go = |&node: &usize| self.can_do_without(node, Fault::Leave);
        match waiting.find(may_go).filter(|_| !self.is_unbearable(Fault::Leave)) {
            Some(node) => {
                self.count_fault(DRAIN);
                self.ask_to_leave(node);
            }
            None => self.schedule(self.now + DRAINS_AGAIN, SimEvent::Drain { node: from }),
        }
    }

    /// The deadline of a drain that begins now, by the clock of the node; 0: none.
    pub(crate) fn moves_by_ns(&self, node: usize) -> u64 {
        if !self.options.noticed {
            return 0;
        }
        let after = match mix(self.now.0, node as u64) % 4 {
            0 => return 0,
            1 => Span::from_millis(20),
            2 => Span::from_millis(200),
            _ => Span::from_secs(2),
        };
        (self.machines[node].local(self.now) + after).0
    }

    /// A command gets its signal, unless it has just ended.
    pub(crate) fn command_told(&mut self, index: usize, task: TaskId, attempt: Attempt) {
        self.tell(|| format!("n{index} tells {task} attempt {attempt}"));
        let reaction = self.reaction(index, task, attempt);
        let machine = &mut self.machines[index];
        let Some(running) = machine.running.get_mut(&(task, attempt)) else { return };
        running.awaits_signal = false;
        let after = match reaction {
            Reaction::GoesOn => None,
            Reaction::Hangs => {
                running.hangs = true;
                self.count_fault("hung");
                None
            }
            Reaction::Exits(after) => {
                let error = "exited with code 75".to_owned();
                running.outcome = Outcome { error, exit_code: 75, ..Outcome::default() };
                (running.objects, running.stays) = (Vec::new(), Vec::new());
                running.script = None;
                Some(after)
            }
            Reaction::Finishes(after) => Some(after),
        };
        if let Some(after) = after {
            let life = self.machines[index].life;
            self.schedule(self.now + after, SimEvent::Ended { node: index, life, task, attempt });
        }
        self.count_fault("signal");
        let verdict = self.moves.on_told(task, attempt);
        self.judge(verdict);
    }

    fn reaction(&self, index: usize, task: TaskId, attempt: Attempt) -> Reaction {
        let running = self.machines[index].running.get(&(task, attempt));
        let awaits_turn = |script: &Script| script.pending.is_some();
        let is_bound = |running: &Running| {
            running.poison || running.script.as_deref().is_some_and(awaits_turn)
        };
        if running.is_none_or(is_bound) {
            return Reaction::GoesOn;
        }
        let drawn = mix(task.local.0, attempt.0);
        let after = Span::from_millis([0, 1, 3, 40][(drawn >> 8) as usize % 4]);
        match drawn % 8 {
            0 => Reaction::GoesOn,
            1 => Reaction::Finishes(after),
            2 | 3 if self.is_ended_soon(index) => Reaction::Hangs,
            _ => Reaction::Exits(after),
        }
    }

    /// Whether the deadline of the node's drain comes soon, by its clock.
    fn is_ended_soon(&self, index: usize) -> bool {
        let by_ns = member(&self.map, NodeId(index as u32)).map_or(0, |it| it.leaves_by_ns);
        by_ns > 0 && by_ns < (self.machines[index].local(self.now) + HANGS_MAX).0
    }

    /// Whether the command does not end by itself.
    pub(crate) fn command_hangs(&self, index: usize, task: TaskId, attempt: Attempt) -> bool {
        self.machines[index].running.get(&(task, attempt)).is_some_and(|running| running.hangs)
    }

    /// Checks that a command with a signal starts on no node that is drained.
    pub(crate) fn check_start(&self, index: usize, event: &Event) -> Verdict {
        let Event::Started { task, .. } = *event else { return Ok(()) };
        let knows = self.machines[index].knows_of_drain;
        let job = self.jobs.get(&task.job).filter(|_| knows);
        let truth = job.and_then(|job| job.tasks.get(&task.local));
        truth.map_or(Ok(()), |truth| moves::on_started(truth, task, NodeId(index as u32)))
    }

    /// Checks an end that is committed. `by_crashes`: because of the deaths of its nodes.
    pub(crate) fn check_moves(&self, by: (TaskId, Attempt), end: End, by_crashes: bool) -> Verdict {
        let job = self.jobs.get(&by.0.job).filter(|_| self.options.noticed && !by_crashes);
        let truth = job.and_then(|job| job.tasks.get(&by.0.local));
        truth.map_or(Ok(()), |truth| self.moves.on_committed(truth, by, end))
    }
}

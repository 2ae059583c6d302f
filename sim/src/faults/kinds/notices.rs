//! Commands that get a signal before an end, what they do then, and drains of their nodes.

use kvs::membership::member;
use proto::event::End;
use proto::wire::map_command::Body;
use proto::work::Outcome;
use proto::{Attempt, NodeId, Span, TaskId, wire};
use scheduler::Mutant;

use crate::checkers::Verdict;
use crate::faults::clients::random_jobs::{Draft, DraftTask};
use crate::faults::event_queue::SimEvent;
use crate::faults::kinds::node_offers::NodeOffers;
use crate::faults::options::WorldOptions;
use crate::faults::strikes::injection::Fault;
use crate::faults::world::World;
use crate::rng::SimRng;
use crate::state::expected::KIND_SPAWNING;
use crate::state::script::mix;

/// Separate random streams, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x6e6f_7469_6365_7300;
const DRAINS_STREAM: u64 = 0x6472_6169_6e73_0000;
/// The share of seeds with such commands.
const NOTICED_PERMILLE: u64 = 150;
const SIGNAL: u32 = 10;
const DRAINS_MAX: u64 = 3;
/// The pause before a drain is tried again while the cluster could not bear it.
const DRAINS_AGAIN: Span = Span::from_millis(30);
/// The deadline of a drain that has had none.
const DEADLINE_LATER: Span = Span::from_millis(50);
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
    if !dice.chance(if is_own { 1000 } else { NOTICED_PERMILLE }) {
        return;
    }
    world.noticed = true;
    if world.copies == 1 && world.ends.is_empty() && !world.gangs {
        draw_ends(world, &mut dice);
    }
    let permille = dice.pick(&[100, 500, 1000]);
    let ends = !world.ends.is_empty();
    for task in drafts.flat_map(|draft| &mut draft.tasks) {
        let before = Span::from_millis(dice.pick(&[0, 5, 50, 300]));
        if dice.chance(permille) && may_move(task, ends) {
            task.command = true;
            task.notice = Some(wire::Notice { signal: SIGNAL, before_ns: before.0 });
        }
    }
}

/// `ends`: some nodes end. Then the first one, which does not, has to be wide enough.
fn may_move(task: &DraftTask, ends: bool) -> bool {
    let fits = !ends || task.cpus == 1;
    fits && !task.upload && task.nodes <= 1 && task.kind != KIND_SPAWNING
}

/// Ends of all nodes but the first one.
fn draw_ends(world: &mut WorldOptions, dice: &mut SimRng) {
    if world.offers != NodeOffers::None {
        return;
    }
    for node in 1..world.nodes as usize {
        let after = Span::from_millis(dice.pick(&[50, 200, 800, 3_000]));
        world.ends.push((node, after, Span::from_millis(dice.pick(&[0, 10, 100]))));
    }
}

impl World {
    /// Draws drains within `span` from now on.
    pub(crate) fn plan_drains(&mut self, span: Span) {
        if !self.options.noticed || !self.homes_move() {
            return;
        }
        let mut dice = SimRng::new(self.options.seed ^ DRAINS_STREAM);
        for _ in 0..dice.between(1, DRAINS_MAX) {
            let node = dice.index(self.machines.len());
            let at = self.now + dice.span(Span::ZERO, span);
            self.schedule(at, SimEvent::Drain { node });
        }
    }

    /// An operator drains a node that runs commands with a signal: this one or a later one. If some
    /// node is drained already, that one gets an earlier deadline.
    pub(crate) fn drain(&mut self, from: usize) {
        if !self.injection.strikes_at(self.now) {
            return;
        }
        if let Some(&NodeId(node)) = self.leavers().first() {
            let by = self.machines[node as usize].local(self.now) + DEADLINE_LATER;
            return self.propose(Body::Leave(wire::MemberLeave { node, by_ns: by.0 }));
        }
        if self.is_unbearable(Fault::Leave) {
            return self.schedule(self.now + DRAINS_AGAIN, SimEvent::Drain { node: from });
        }
        let nodes = self.machines.len();
        let awaits = |&node: &usize| {
            self.machines[node].running.values().any(|running| running.awaits_signal)
        };
        let node = (0..nodes).map(|step| (from + step) % nodes).find(awaits).unwrap_or(from);
        self.count_fault("drain");
        self.ask_to_leave(node);
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
                None
            }
            Reaction::Exits(after) => {
                let error = "exited with code 75".to_owned();
                running.outcome = Outcome { error, exit_code: 75, ..Outcome::default() };
                (running.objects, running.stays) = (Vec::new(), Vec::new());
                Some(after)
            }
            Reaction::Finishes(after) => Some(after),
        };
        let life = machine.life;
        if let Some(after) = after {
            self.schedule(self.now + after, SimEvent::Ended { node: index, life, task, attempt });
        }
        self.count_fault("signal");
        let verdict = self.moves.on_told(task, attempt);
        self.judge(verdict);
    }

    fn reaction(&self, index: usize, task: TaskId, attempt: Attempt) -> Reaction {
        let running = self.machines[index].running.get(&(task, attempt));
        if running.is_none_or(|running| running.poison) {
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

    /// Checks an end that is committed. `by_crashes`: because of the deaths of its nodes.
    pub(crate) fn check_moves(&self, by: (TaskId, Attempt), end: End, by_crashes: bool) -> Verdict {
        let job = self.jobs.get(&by.0.job).filter(|_| self.options.noticed && !by_crashes);
        let truth = job.and_then(|job| job.tasks.get(&by.0.local));
        truth.map_or(Ok(()), |truth| self.moves.on_committed(truth, by, end))
    }
}

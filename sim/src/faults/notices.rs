//! Commands that get a signal before an end, and what they do then.

use proto::work::Outcome;
use proto::{Attempt, Span, TaskId, wire};
use scheduler::Mutant;

use crate::checkers::moves;
use crate::faults::clients::random_jobs::Draft;
use crate::faults::event_queue::SimEvent;
use crate::faults::options::WorldOptions;
use crate::faults::world::World;
use crate::rng::SimRng;
use crate::state::script::mix;

/// A separate random stream, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x6e6f_7469_6365_7300;
/// The share of seeds with such commands.
const NOTICED_PERMILLE: u64 = 100;
/// A command exits so long after its signal.
const EXITS_AFTER: Span = Span::from_millis(3);
/// The deadline of a drain.
const DEADLINE: Span = Span::from_millis(200);
const SIGNAL: u32 = 10;

/// Makes some tasks of some seeds commands with a signal.
pub(crate) fn draw<'d>(world: &mut WorldOptions, drafts: impl Iterator<Item = &'d mut Draft>) {
    let mut dice = SimRng::new(world.seed ^ STREAM);
    let is_own = world.mutant.is_some_and(|mutant| mutant.is_among(&Mutant::OF_MOVES));
    let share = if is_own { 1000 } else { NOTICED_PERMILLE };
    if world.gangs || !dice.chance(share) {
        return;
    }
    world.noticed = true;
    let permille = dice.pick(&[100, 500, 1000]);
    for task in drafts.flat_map(|draft| &mut draft.tasks) {
        if dice.chance(permille) && !task.upload {
            let before = Span::from_millis(dice.pick(&[0, 5, 50, 300]));
            task.command = true;
            task.notice = Some(wire::Notice { signal: SIGNAL, before_ns: before.0 });
        }
    }
}

impl World {
    /// When what can be moved is moved from a node that begins to leave now.
    pub(crate) fn moves_by_ns(&self, node: usize) -> u64 {
        let has_deadline = mix(self.now.0, node as u64).is_multiple_of(2);
        if self.options.noticed && has_deadline { (self.now + DEADLINE).0 } else { 0 }
    }

    /// A command gets its signal. Most exit soon, and some go on.
    pub(crate) fn command_told(&mut self, index: usize, task: TaskId, attempt: Attempt) {
        self.tell(|| format!("n{index} tells {task} attempt {attempt}"));
        let machine = &mut self.machines[index];
        let Some(running) = machine.running.get_mut(&(task, attempt)) else { return };
        let goes_on = running.poison || mix(task.local.0, attempt.0).is_multiple_of(4);
        if !goes_on {
            let error = "exited with code 75".to_owned();
            running.outcome = Outcome { error, exit_code: 75, ..Outcome::default() };
            (running.script, running.objects, running.stays) = (None, Vec::new(), Vec::new());
        }
        let life = machine.life;
        let verdict = moves::on_told(&mut self.told, (task, attempt));
        self.judge(verdict);
        if !goes_on {
            let at = self.now + EXITS_AFTER;
            self.schedule(at, SimEvent::Ended { node: index, life, task, attempt });
        }
    }
}

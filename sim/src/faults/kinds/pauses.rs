//! Nodes that a user pauses and resumes: they finish what runs and start nothing.

use node::Input;
use proto::work::Launch;
use proto::{ClientId, Span, wire};
use scheduler::Mutant;

use crate::checkers::{Verdict, Violation};
use crate::faults::event_queue::SimEvent;
use crate::faults::world::World;
use crate::rng::SimRng;
use crate::state::machine::Pause;

/// A separate random stream, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x7061_7573_6573_0000;
/// The share of seeds with pauses, among those with faults.
const PAUSES_PERMILLE: u64 = 150;
const PAUSES_MAX: u64 = 4;
/// The client that pauses nodes.
const USER: ClientId = ClientId(u64::MAX);
/// The numbers of the user's requests.
const PAUSE: u64 = 1;
const RESUME: u64 = 2;

impl World {
    /// Draws pauses within `span` from now on.
    pub(crate) fn plan_pauses(&mut self, span: Span) {
        let mut dice = SimRng::new(self.options.seed ^ STREAM);
        let is_own = self.options.mutant.is_some_and(|it| it.is_among(&Mutant::OF_PAUSES));
        let share = if is_own { 1000 } else { PAUSES_PERMILLE };
        if self.options.faultless || !dice.chance(share) {
            return;
        }
        for _ in 0..dice.between(1, PAUSES_MAX) {
            let node = dice.index(self.machines.len());
            let at = self.now + dice.span(Span::ZERO, span);
            let end = at + dice.span(Span::ZERO, span);
            self.schedule(at, SimEvent::Pause { node, paused: true });
            self.schedule(end, SimEvent::Pause { node, paused: false });
        }
    }

    /// The user pauses a node, or resumes it.
    pub(crate) fn pause(&mut self, index: usize, paused: bool) {
        let is_late = paused && !self.injection.strikes_at(self.now);
        let machine = &mut self.machines[index];
        if is_late || !machine.is_up() || machine.pause.is_asked == paused {
            return;
        }
        machine.pause = Pause { is_asked: paused, holds: false };
        self.tell(|| format!("n{index} is to be {}", if paused { "paused" } else { "resumed" }));
        if paused {
            self.count_fault("paused-by-user");
        }
        let tuning = wire::Tuning { paused: Some(paused), ..wire::Tuning::default() };
        let request = wire::Request {
            id: if paused { PAUSE } else { RESUME },
            body: Some(wire::request::Body::Tune(tuning)),
        };
        self.deliver(index, Input::Request { client: USER, request: Box::new(request) });
    }

    /// Ends all pauses.
    pub(crate) fn resume_all(&mut self) {
        (0..self.machines.len()).for_each(|index| self.pause(index, false));
    }

    /// A node has answered its user.
    pub(crate) fn note_pause(&mut self, index: usize, client: ClientId, response: &wire::Response) {
        let pause = &mut self.machines[index].pause;
        if client == USER && response.id == PAUSE && pause.is_asked {
            pause.holds = true;
        }
    }

    /// Checks that a paused node starts nothing. Where homes move, a start may have been decided
    /// before the pause, and waits for replicas.
    pub(crate) fn check_pause(&self, index: usize, launch: &Launch) -> Verdict {
        match self.machines[index].pause.holds && !self.homes_move() {
            true => {
                let text = format!("{} starts on n{index}, which is paused", launch.task);
                Err(Violation::new("pause", text))
            }
            false => Ok(()),
        }
    }
}

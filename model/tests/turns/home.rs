//! The steps of the parent's home.

use crate::settings::{Mutant, Options};
use crate::state::{Attempt, HOLDERS, Placement, Push, State, Turn};

impl State {
    /// The home issues the next attempt, without a record, from the last committed state.
    pub(crate) fn place(&mut self, options: &Options, holder: usize) -> Option<()> {
        let home = &mut self.home;
        let is_ready = home.placement == Placement::Ready && home.issued < options.attempts;
        if !is_ready || self.failed[holder] {
            return None;
        }
        home.issued += 1;
        let attempt = Attempt { term: home.term, number: home.issued };
        home.placement = Placement::Placed { attempt, holder };
        self.pushes.insert(Push { attempt, to: holder, view: home.live.committed.clone() });
        Some(())
    }

    /// The turn that a node has sent arrives.
    pub(crate) fn receive(&mut self, options: &Options, holder: usize) -> Option<()> {
        let runner = self.runners[holder].as_ref()?;
        let (turn, yields) = (runner.next(), runner.sent?);
        let any = options.mutant == Some(Mutant::TurnWithoutAttempt);
        let Placement::Placed { attempt: current, .. } = self.home.placement else {
            return None; // The node repeats it.
        };
        let is_repeat = self.home.live.committed.contains(&turn);
        if is_repeat || turn.attempt != current && !any {
            return None;
        }
        let parent = &self.home.live;
        if usize::from(turn.seq) != parent.committed.len() + 1 {
            // A gap: this home has lost a turn that it had not synced. The attempt ends.
            if options.mutant != Some(Mutant::GapKeepsAttempt) {
                self.home.placement = Placement::Ready;
            }
            return Some(());
        }
        self.forked |= runner.view != parent.committed;
        self.commit(options, turn);
        if self.home.live.has_ended() {
            self.home.placement = Placement::Ended;
        } else if yields {
            self.home.placement = Placement::Ready;
            // The record states that this attempt is over.
            if options.mutant != Some(Mutant::YieldKeepsAttempt) {
                let fence = &mut self.home.live.fence;
                *fence = turn.attempt.max(*fence);
            }
        }
        Some(())
    }

    /// One batch: the turn, its children's chunk in the outbox, and the verdict.
    fn commit(&mut self, options: &Options, turn: Turn) {
        let parent = &mut self.home.live;
        parent.committed.push(turn);
        parent.given += 1;
        if options.mutant == Some(Mutant::TurnForgetsOutbox) {
            parent.outbox.clear();
        }
        parent.outbox.insert((parent.given, turn));
        if options.mutant == Some(Mutant::EndForgetsOutbox) && parent.has_ended() {
            parent.outbox.clear();
        }
        if options.mutant == Some(Mutant::AdoptBeforeLog) {
            self.adopts.extend(&parent.outbox);
        }
    }

    pub(crate) fn receive_again(&mut self, options: &Options, holder: usize) -> Option<()> {
        let ignores = options.mutant == Some(Mutant::SeqIgnored);
        let last = *self.runners[holder].as_ref()?.view.last()?;
        let is_current = matches!(self.home.placement, Placement::Placed { attempt, .. }
            if attempt == last.attempt);
        if !ignores || !is_current || self.home.live.has_ended() {
            return None; // A repeat is answered as done.
        }
        self.commit(options, last);
        Some(())
    }

    /// The map declares the holder failed: the home places the task again.
    pub(crate) fn notice(&mut self, holder: usize) -> Option<()> {
        self.failed[holder].then_some(())?;
        match &mut self.home.placement {
            Placement::Placed { holder: at, .. } if *at == holder => {
                self.home.placement = Placement::Ready;
            }
            Placement::Asking { unheard } => {
                *unheard &= !(1 << holder);
                self.home.hears_no_more();
            }
            _ => return None,
        }
        Some(())
    }

    /// A node answers a new home whether it holds an attempt.
    pub(crate) fn hear(&mut self, holder: usize) -> Option<()> {
        let home = &mut self.home;
        let Placement::Asking { unheard } = &mut home.placement else { return None };
        if *unheard & 1 << holder == 0 || self.failed[holder] {
            return None;
        }
        *unheard &= !(1 << holder);
        let held = self.runners[holder].as_ref().map(|runner| runner.attempt);
        match held.filter(|&attempt| attempt > home.live.fence) {
            Some(attempt) => home.placement = Placement::Placed { attempt, holder },
            None => home.hears_no_more(),
        }
        Some(())
    }

    pub(crate) fn take_over(&mut self, options: &Options, loses: bool) -> Option<()> {
        if self.take_overs >= options.take_overs {
            return None;
        }
        self.take_overs += 1;
        let home = &mut self.home;
        if loses {
            self.cuts += 1;
            if self.cuts > options.cuts || home.live == home.disk {
                return None;
            }
            home.live = home.disk.clone();
        }
        (home.term, home.issued) = (home.term + 1, 0);
        let unheard = (0..HOLDERS).filter(|&holder| !self.failed[holder]);
        let unheard = unheard.fold(0, |bits, holder| bits | 1 << holder);
        home.placement = Placement::Asking { unheard };
        if home.live.has_ended() {
            home.placement = Placement::Ended;
        }
        home.hears_no_more();
        Some(())
    }

    /// The part of the children asks about a prepared chunk. No answer: it asks again.
    pub(crate) fn ask(&mut self, options: &Options, chunk: Turn) -> Option<()> {
        let home = &mut self.home;
        if home.live.owes(chunk) || home.live.decides(chunk.seq) {
            return None; // `Adopt`, or a decision that will be synced.
        }
        let is_later = home.term > 1 && chunk.attempt.term == home.term;
        if options.mutant == Some(Mutant::ReplacedHomeAnswers) && is_later {
            self.drops.insert(chunk); // The home of an earlier term does not know the attempt.
            return Some(());
        }
        let current = match home.placement {
            Placement::Placed { attempt, .. } => attempt,
            Placement::Asking { .. } if options.mutant == Some(Mutant::DropWhileAsking) => {
                self.drops.insert(chunk);
                return Some(());
            }
            _ => return None,
        };
        match options.mutant {
            Some(Mutant::DropWithoutFence) if chunk.attempt == current => {
                self.drops.insert(chunk);
            }
            Some(Mutant::AskFencesTheLiving) if chunk.attempt == current => {
                home.live.fence = current;
                home.placement = Placement::Ready;
                self.fenced_the_living = true;
            }
            Some(Mutant::DropNotLogged) if chunk.attempt != current => {
                self.drops.insert(chunk);
            }
            // An earlier attempt is fenced by a record. A later one is not known here: it waits.
            _ if chunk.attempt < current => {
                home.live.fence = home.live.fence.max(chunk.attempt);
            }
            _ => return None,
        }
        Some(())
    }

    /// `Drop` is a promise: the fence, or another turn of that number, is synced.
    pub(crate) fn answer_drop(&mut self, chunk: Turn) -> Option<()> {
        let home = &self.home;
        let is_owed = home.live.owes(chunk) || home.disk.owes(chunk);
        let is_fenced = chunk.attempt <= home.disk.fence;
        if is_owed || !is_fenced && !home.disk.decides(chunk.seq) {
            return None;
        }
        self.drops.insert(chunk);
        Some(())
    }
}

impl crate::state::Home {
    /// A node reports that an attempt has stopped without a turn.
    pub(crate) fn stops(&mut self, stopped: Attempt) {
        if matches!(self.placement, Placement::Placed { attempt, .. } if attempt == stopped) {
            self.placement = Placement::Ready;
        }
    }
    fn hears_no_more(&mut self) {
        if self.placement == (Placement::Asking { unheard: 0 }) {
            self.placement = Placement::Ready;
        }
    }
}

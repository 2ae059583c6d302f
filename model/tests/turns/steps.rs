//! The steps, and the effect of those at the nodes that run the parent.

use crate::settings::{Mutant, Options};
use crate::state::{HOLDERS, Placement, Push, Runner, State, Turn};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    // At the parent's home.
    Place {
        holder: usize,
    },
    Receive {
        holder: usize,
    },
    /// The last turn of the attempt arrives once more.
    ReceiveAgain {
        holder: usize,
    },
    Sync,
    Notice {
        holder: usize,
    },
    Hear {
        holder: usize,
    },
    // At a node that runs the parent.
    Start {
        holder: usize,
        late: bool,
    },
    Stage {
        holder: usize,
    },
    Send {
        holder: usize,
        yields: bool,
    },
    Answer {
        holder: usize,
    },
    // Between the part of the children and the home.
    Adopt {
        chunk: Turn,
    },
    Acknowledge,
    Ask {
        chunk: Turn,
    },
    AnswerDrop {
        chunk: Turn,
    },
    Drop {
        chunk: Turn,
    },
    SyncChildren,
    Merge {
        chunk: Turn,
    },
    // Faults.
    TakeOver {
        loses: bool,
    },
    CutChildren,
    Fails {
        holder: usize,
    },
}

impl Step {
    pub(crate) fn comes_by_itself(self) -> bool {
        !matches!(self, Self::TakeOver { .. } | Self::CutChildren | Self::Fails { .. })
    }
}

impl State {
    pub(crate) fn steps(&self, steps: &mut Vec<Step>) {
        for holder in 0..HOLDERS {
            steps.extend([Step::Place { holder }, Step::Receive { holder }]);
            steps.extend([Step::ReceiveAgain { holder }, Step::Notice { holder }]);
            steps.extend([Step::Hear { holder }, Step::Stage { holder }]);
            steps.extend([false, true].map(|late| Step::Start { holder, late }));
            steps.extend([false, true].map(|yields| Step::Send { holder, yields }));
            steps.extend([Step::Answer { holder }, Step::Fails { holder }]);
        }
        for &chunk in &self.live.prepared {
            steps.extend([Step::Ask { chunk }, Step::AnswerDrop { chunk }, Step::Drop { chunk }]);
        }
        steps.extend(self.adopts.iter().map(|&(_, chunk)| Step::Adopt { chunk }));
        steps.extend(self.live.visible.iter().map(|&chunk| Step::Merge { chunk }));
        steps.extend([Step::Sync, Step::Acknowledge, Step::SyncChildren]);
        steps.extend([false, true].map(|loses| Step::TakeOver { loses }));
        steps.push(Step::CutChildren);
    }

    /// The state after a step; `None` if it cannot happen, or changes nothing.
    pub(crate) fn after(&self, options: &Options, step: Step) -> Option<Self> {
        let mut next = self.clone();
        match step {
            Step::Place { holder } => next.place(options, holder),
            Step::Receive { holder } => next.receive(options, holder),
            Step::ReceiveAgain { holder } => next.receive_again(options, holder),
            Step::Sync => {
                next.home.disk = next.home.live.clone();
                next.send_adopts(options);
                Some(())
            }
            Step::Notice { holder } => next.notice(holder),
            Step::Hear { holder } => next.hear(holder),
            Step::Start { holder, late } => next.start(options, holder, late),
            Step::Stage { holder } => next.stage(holder),
            Step::Send { holder, yields } => next.send(options, holder, yields),
            Step::Answer { holder } => next.answer(options, holder),
            Step::Adopt { chunk } => next.adopt(options, chunk),
            Step::Acknowledge => next.acknowledge(),
            Step::Ask { chunk } => next.ask(options, chunk),
            Step::AnswerDrop { chunk } => next.answer_drop(chunk),
            Step::Drop { chunk } => next.drop_chunk(chunk),
            Step::SyncChildren => {
                next.disk = next.live.clone();
                next.send_adopts(options);
                Some(())
            }
            Step::Merge { chunk } => next.merge(options, chunk),
            Step::TakeOver { loses } => next.take_over(options, loses),
            Step::CutChildren => next.cut_children(options),
            Step::Fails { holder } => next.fails(options, holder),
        }?;
        (next != *self).then_some(next)
    }

    /// The first or the last push to a node arrives. A later attempt replaces an earlier one, and
    /// the node reports that the earlier one stops.
    fn start(&mut self, options: &Options, holder: usize, late: bool) -> Option<()> {
        let reports = options.mutant != Some(Mutant::ReplacedUnreported);
        let mut pushes = self.pushes.iter().filter(|push| push.to == holder);
        let push = if late { pushes.next_back() } else { pushes.next() }?.clone();
        self.pushes.remove(&push);
        let Push { attempt, view, .. } = push;
        let runner = &mut self.runners[holder];
        if runner.as_ref().is_none_or(|runner| runner.attempt < attempt) {
            let new = Runner { attempt, view, staged: false, sent: None };
            let former = runner.replace(new);
            if let Some(former) = former.filter(|_| reports) {
                self.home.stops(former.attempt);
            }
        }
        Some(())
    }

    /// The node stages the children of the next turn: prepared, and not visible.
    fn stage(&mut self, holder: usize) -> Option<()> {
        let runner = self.runners[holder].as_mut()?;
        let chunk = runner.next();
        if runner.staged || chunk.is_carried() || runner.sent.is_some() {
            return None;
        }
        runner.staged = true;
        self.live.prepared.insert(chunk);
        Some(())
    }

    fn send(&mut self, options: &Options, holder: usize, yields: bool) -> Option<()> {
        let early = options.mutant == Some(Mutant::TurnBeforePrepared);
        let runner = self.runners[holder].as_mut()?;
        let turn = runner.next();
        let is_stored = self.disk.prepared.contains(&turn) || early && runner.staged;
        let is_ready = turn.is_carried() || runner.staged && is_stored;
        if runner.sent.is_some() || !is_ready || yields && turn.is_carried() {
            return None;
        }
        runner.sent = Some(yields);
        Some(())
    }

    /// The answer to a turn: it is committed and synced, or the attempt is fenced.
    fn answer(&mut self, options: &Options, holder: usize) -> Option<()> {
        let runner = self.runners[holder].as_mut()?;
        let turn = runner.next();
        let home = &self.home;
        if runner.staged && runner.sent.is_none() && self.drops.contains(&turn) {
            // The part answers that it has dropped the chunk. The node reports that it stops.
            self.runners[holder] = None;
            if options.mutant != Some(Mutant::StopsUnreported) {
                self.home.stops(turn.attempt);
            }
            return Some(());
        }
        let yields = runner.sent?;
        let is_current = match home.placement {
            Placement::Asking { .. } => return None,
            Placement::Placed { attempt, .. } => attempt == turn.attempt,
            Placement::Ready | Placement::Ended => false,
        };
        let by_seq = options.mutant == Some(Mutant::RepeatBySeqAlone);
        let is_synced = home.disk.committed.contains(&turn);
        if is_synced || by_seq && home.disk.decides(turn.seq) {
            self.answered_wrongly |= !is_synced;
            runner.view.push(turn);
            (runner.staged, runner.sent) = (false, None);
            if yields || turn.is_carried() {
                self.runners[holder] = None;
            }
            return Some(());
        }
        if is_current || home.live.committed.contains(&turn) {
            return None;
        }
        self.runners[holder] = None; // It is fenced.
        Some(())
    }

    fn fails(&mut self, options: &Options, holder: usize) -> Option<()> {
        let before = self.failed.iter().filter(|&&failed| failed).count();
        if before >= usize::from(options.failures) {
            return None;
        }
        self.failed[holder] = true;
        Some(())
    }
}

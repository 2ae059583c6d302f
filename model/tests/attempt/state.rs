//! One task, its home in two terms, two nodes that may hold it, and all that can happen to them.

use std::collections::BTreeSet;

use crate::steps::output_name;

pub(crate) const HOLDERS: u8 = 2;
pub(crate) const TERMS: u8 = 2;

/// Bugs on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutant {
    CompletionWithoutAttempt,
    TermForgotten,
    AcknowledgedBeforeLogged,
    OutputsWithoutAttempt,
    GoneHolderKeeps,
    EarlierAttemptTaken,
    RepeatCountsAgain,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Of each node that may hold the task.
    pub(crate) lives: u8,
    /// Attempts that a home gives out in a term.
    pub(crate) attempts: u8,
    pub(crate) mutant: Option<Mutant>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    pub(crate) term: u8,
    pub(crate) number: u8,
}

/// A node in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Holder {
    pub(crate) node: u8,
    pub(crate) life: u8,
}

/// The task as its home knows it, in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Task {
    /// Bits of the nodes that have not said yet whether they hold it.
    Asking {
        unheard: u8,
    },
    Ready,
    Placed {
        attempt: Attempt,
        holder: Holder,
    },
    /// Ended, and the record on its way to the log.
    Ending {
        attempt: Attempt,
        holder: Holder,
    },
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Home {
    pub(crate) task: Task,
    /// How many attempts it has given out.
    pub(crate) given: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Node {
    pub(crate) life: u8,
    pub(crate) running: bool,
    /// What it runs; `true`: it has ended, and the home has not said that it knows.
    pub(crate) holds: Option<(Attempt, bool)>,
    /// Outputs that lie here, under the name of the attempt that they are found by, each with the
    /// attempt that made it.
    pub(crate) outputs: BTreeSet<(Attempt, Attempt)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Message {
    Push { attempt: Attempt, to: Holder },
    Finished { attempt: Attempt, from: Holder },
    Reply { attempt: Attempt, to: Holder, counted: bool },
    Ask { to: Holder },
    Holding { from: Holder, attempt: Option<Attempt> },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    /// By term, from 1: a home that was replaced may be awake.
    pub(crate) homes: [Option<Home>; TERMS as usize],
    pub(crate) term: u8,
    /// What the log says, on all its copies.
    pub(crate) record: Option<(Attempt, Holder)>,
    /// How many ends were written to the log, and whether one was of no current attempt.
    pub(crate) counted: u8,
    pub(crate) counted_another: bool,
    pub(crate) nodes: [Node; HOLDERS as usize],
    /// The last life of each node that the map takes for dead.
    pub(crate) dead: [u8; HOLDERS as usize],
    pub(crate) messages: BTreeSet<Message>,
    /// Who has started what.
    pub(crate) started: BTreeSet<(Attempt, Holder)>,
    /// What a holder was told that it counts.
    pub(crate) told: Option<Attempt>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    Deliver {
        message: Message,
        term: u8,
    },
    Place {
        term: u8,
        node: u8,
    },
    Log {
        term: u8,
    },
    Notice {
        term: u8,
        node: u8,
    },
    Finish {
        node: u8,
    },
    Tell {
        node: u8,
    },
    // What happens to them.
    FailOver,
    HomeDies,
    /// The map takes it for dead; it may be asleep.
    TakeForDead {
        node: u8,
    },
    Dies {
        node: u8,
    },
    Restart {
        node: u8,
    },
}

pub(crate) fn comes_by_itself(state: &State, step: Step) -> bool {
    match step {
        Step::HomeDies | Step::Restart { .. } => false,
        // Who is taken for dead ends when it hears of it.
        Step::Dies { node } => state.is_taken_for_dead(state.holder(node)),
        // Deaths are noticed.
        Step::FailOver => state.homes[usize::from(state.term) - 1].is_none(),
        Step::TakeForDead { node } => !state.nodes[usize::from(node)].running,
        _ => true,
    }
}

impl State {
    pub(crate) fn first() -> Self {
        let outputs = BTreeSet::new();
        let node = Node { life: 1, running: true, holds: None, outputs };
        let home = Home { task: Task::Ready, given: 0 };
        Self {
            homes: [Some(home), None],
            term: 1,
            record: None,
            counted: 0,
            counted_another: false,
            nodes: [node.clone(), node],
            dead: [0; HOLDERS as usize],
            messages: BTreeSet::new(),
            started: BTreeSet::new(),
            told: None,
        }
    }

    pub(crate) fn holder(&self, node: u8) -> Holder {
        Holder { node, life: self.nodes[usize::from(node)].life }
    }
    pub(crate) fn is_taken_for_dead(&self, holder: Holder) -> bool {
        holder.life <= self.dead[usize::from(holder.node)]
    }
    /// The node, if it is still in that life.
    pub(crate) fn in_life(&mut self, holder: Holder) -> Option<&mut Node> {
        let node = &mut self.nodes[usize::from(holder.node)];
        (node.running && node.life == holder.life).then_some(node)
    }

    pub(crate) fn counts_once(&self) -> bool {
        self.counted <= 1 && !self.counted_another
    }
    /// A holder lets go only of what is in the log.
    pub(crate) fn keeps_what_was_told(&self) -> bool {
        self.told.is_none_or(|told| self.record.is_some_and(|(attempt, _)| attempt == told))
    }
    /// No two nodes, nor two lives of one, start the same attempt.
    pub(crate) fn attempts_are_unique(&self) -> bool {
        let attempts: BTreeSet<Attempt> =
            self.started.iter().map(|&(attempt, _)| attempt).collect();
        attempts.len() == self.started.len()
    }
    /// Who looks for the output of the attempt that counts finds what that attempt has made.
    pub(crate) fn outputs_are_of_their_attempt(&self, options: &Options) -> bool {
        self.record.is_none_or(|(counted, holder)| {
            let outputs = &self.nodes[usize::from(holder.node)].outputs;
            let wanted = output_name(options, counted);
            let found = outputs.iter().filter(|&&(name, _)| name == wanted);
            let makers: Vec<Attempt> = found.map(|&(_, maker)| maker).collect();
            makers == [counted]
        })
    }
    pub(crate) fn has_ended(&self) -> bool {
        self.record.is_some()
    }
    /// A node that was taken for dead has finished what another does by now.
    pub(crate) fn a_zombie_finishes(&self) -> bool {
        self.messages.iter().any(|message| match message {
            Message::Finished { from, .. } => self.is_taken_for_dead(*from) && self.counted == 1,
            _ => false,
        })
    }
    pub(crate) fn a_successor_counts(&self) -> bool {
        self.term == 2 && self.record.is_some_and(|(attempt, _)| attempt.term == 1)
    }
}

impl State {
    /// Where nothing more comes by itself and somebody could run it, it has ended.
    pub(crate) fn ends_well(&self, options: &Options) -> bool {
        let mut steps = Vec::new();
        self.steps(&mut steps);
        let by_itself = |&&step: &&Step| comes_by_itself(self, step);
        let moves = steps.iter().filter(by_itself).any(|&step| self.after(options, step).is_some());
        let somebody_could = self.nodes.iter().any(|node| node.running);
        let home = self.homes[usize::from(self.term) - 1].as_ref();
        let ran_out = home.is_none_or(|home| home.given >= options.attempts);
        moves || self.has_ended() || !somebody_could || ran_out
    }
}

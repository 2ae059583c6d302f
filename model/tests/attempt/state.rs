//! The state: one task, its home in two terms, two possible holders, and the events.

use std::collections::BTreeSet;

use crate::steps::output_name;

pub(crate) const HOLDERS: u8 = 2;
pub(crate) const TERMS: u8 = 2;

/// Seeded bugs.
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
    /// The number of incarnations of each possible holder.
    pub(crate) lives: u8,
    /// The number of attempts that a home issues in a term.
    pub(crate) attempts: u8,
    pub(crate) mutant: Option<Mutant>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    pub(crate) term: u8,
    pub(crate) number: u8,
}

/// A node in one incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Holder {
    pub(crate) node: u8,
    pub(crate) life: u8,
}

/// The task in its home's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Task {
    /// Bits of the nodes that have not answered yet whether they hold it.
    Asking {
        unheard: u8,
    },
    Ready,
    Placed {
        attempt: Attempt,
        holder: Holder,
    },
    /// Ended, but the record is not in the log yet.
    Ending {
        attempt: Attempt,
        holder: Holder,
    },
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Home {
    pub(crate) task: Task,
    /// The number of attempts that it has issued.
    pub(crate) given: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Node {
    pub(crate) life: u8,
    pub(crate) running: bool,
    /// The attempt that it holds; `true`: it has ended, and the home has not acknowledged that.
    pub(crate) holds: Option<(Attempt, bool)>,
    /// Outputs on this node: the attempt in their name, and the attempt that made them.
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
    /// By term, from 1: a replaced home may still be running.
    pub(crate) homes: [Option<Home>; TERMS as usize],
    pub(crate) term: u8,
    /// The record in the log, on all its replicas.
    pub(crate) record: Option<(Attempt, Holder)>,
    /// The number of ends written to the log, and whether one was not of the current attempt.
    pub(crate) counted: u8,
    pub(crate) counted_another: bool,
    pub(crate) nodes: [Node; HOLDERS as usize],
    /// The last incarnation of each node that the map shows as down.
    pub(crate) dead: [u8; HOLDERS as usize],
    pub(crate) messages: BTreeSet<Message>,
    /// The started attempts with their holders.
    pub(crate) started: BTreeSet<(Attempt, Holder)>,
    /// The attempt that was acknowledged to a holder.
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
    // Faults.
    FailOver,
    HomeDies,
    /// The map declares the node failed; it may only be paused.
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
        // A node that was declared failed ends when it learns that.
        Step::Dies { node } => state.is_declared_failed(state.holder(node)),
        // Failures are detected.
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
    pub(crate) fn is_declared_failed(&self, holder: Holder) -> bool {
        holder.life <= self.dead[usize::from(holder.node)]
    }
    /// The node, if it is still in that incarnation.
    pub(crate) fn in_life(&mut self, holder: Holder) -> Option<&mut Node> {
        let node = &mut self.nodes[usize::from(holder.node)];
        (node.running && node.life == holder.life).then_some(node)
    }

    pub(crate) fn counts_once(&self) -> bool {
        self.counted <= 1 && !self.counted_another
    }
    /// A holder drops only an attempt that is in the log.
    pub(crate) fn keeps_what_was_told(&self) -> bool {
        self.told.is_none_or(|told| self.record.is_some_and(|(attempt, _)| attempt == told))
    }
    /// No two nodes, nor two incarnations of one, start the same attempt.
    pub(crate) fn attempts_are_unique(&self) -> bool {
        let attempts: BTreeSet<Attempt> =
            self.started.iter().map(|&(attempt, _)| attempt).collect();
        attempts.len() == self.started.len()
    }
    /// A look-up of the output of the counted attempt finds the output that this attempt made.
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
    /// A node that was declared failed finishes the task after another attempt has counted.
    pub(crate) fn a_zombie_finishes(&self) -> bool {
        self.messages.iter().any(|message| match message {
            Message::Finished { from, .. } => self.is_declared_failed(*from) && self.counted == 1,
            _ => false,
        })
    }
    pub(crate) fn a_successor_counts(&self) -> bool {
        self.term == 2 && self.record.is_some_and(|(attempt, _)| attempt.term == 1)
    }
}

impl State {
    /// If no further step happens by itself and a node could run the task, the task has ended.
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

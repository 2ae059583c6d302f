//! The steps of the parts. Each is one batch of records.

use crate::settings::{Mutant, Options};
use crate::state::{INNER, PARTS, Parcel, Records, State, WHOLE, What};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// An open task of a part makes a chunk of children in another part.
    Spawn {
        from: usize,
        to: usize,
    },
    /// An open task of a part asks for the output of the source, which is lost.
    Request {
        from: usize,
    },
    Finish {
        part: usize,
    },
    FinishSource,
    /// All records of a part are synced on all copies.
    Sync {
        part: usize,
    },
    Take {
        from: usize,
        to: usize,
    },
    Acknowledge {
        from: usize,
        to: usize,
    },
    Report {
        part: usize,
    },
    // The tree.
    Relay {
        inner: usize,
    },
    // An open job.
    ClientChunk {
        part: usize,
    },
    Grant {
        part: usize,
    },
    TakeGrant {
        part: usize,
    },
    Close,
    LearnClose {
        part: usize,
    },
    Refuse {
        part: usize,
    },
    // The job's home.
    SyncHome,
    End,
    Retry {
        part: usize,
    },
    // Faults: a power cut, or a take-over by a copy that has only what is synced.
    Cut {
        part: usize,
    },
    CutHome,
    Replace {
        inner: usize,
    },
    Moves {
        part: usize,
    },
}

impl Step {
    pub(crate) fn all() -> Vec<Self> {
        let mut steps = vec![Self::FinishSource, Self::Close, Self::SyncHome, Self::End];
        steps.push(Self::CutHome);
        for part in 0..PARTS {
            steps.extend([Self::Finish { part }, Self::Sync { part }, Self::Report { part }]);
            steps.extend([Self::ClientChunk { part }, Self::Grant { part }]);
            steps.extend([Self::TakeGrant { part }, Self::LearnClose { part }]);
            steps.extend([Self::Refuse { part }, Self::Retry { part }, Self::Cut { part }]);
            steps.extend([Self::Request { from: part }, Self::Moves { part }]);
            for to in (0..PARTS).filter(|&to| to != part) {
                let from = part;
                steps.extend([Self::Spawn { from, to }, Self::Take { from, to }]);
                steps.push(Self::Acknowledge { from, to });
            }
        }
        for inner in 0..INNER {
            steps.extend([Self::Relay { inner }, Self::Replace { inner }]);
        }
        steps
    }

    pub(crate) fn comes_by_itself(self) -> bool {
        let is_fault = matches!(
            self,
            Self::Cut { .. } | Self::CutHome | Self::Replace { .. } | Self::Moves { .. }
        );
        let is_choice = matches!(
            self,
            Self::Spawn { .. }
                | Self::Request { .. }
                | Self::ClientChunk { .. }
                | Self::Retry { .. }
        );
        !is_fault && !is_choice
    }
}

fn spend(budget: &mut u8) -> Option<()> {
    *budget = budget.checked_sub(1)?;
    Some(())
}

impl State {
    /// The state after a step; `None` if it cannot happen, or changes nothing.
    pub(crate) fn after(&self, options: &Options, step: Step) -> Option<Self> {
        let mut next = self.clone();
        match step {
            Step::Spawn { from, to } => next.spawn(options, from, to),
            Step::Request { from } => next.request(options, from),
            Step::Finish { part } => next.finish(options, part),
            Step::FinishSource => next.finish_source(options),
            Step::Sync { part } => next.sync(options, part),
            Step::Take { from, to } => next.take(options, from, to),
            Step::Acknowledge { from, to } => next.acknowledge(options, from, to),
            Step::Report { part } => next.report(options, part),
            Step::Relay { inner } => next.relay(options, inner),
            Step::ClientChunk { part } => next.client_chunk(options, part),
            Step::Grant { part } => next.grant(options, part),
            Step::TakeGrant { part } => next.take_grant(options, part),
            Step::Close => next.close(options),
            Step::LearnClose { part } => next.learn_close(options, part),
            Step::Refuse { part } => next.refuse(part),
            Step::SyncHome => {
                next.home.disk = next.home.live.clone();
                Some(())
            }
            Step::End => next.end(options),
            Step::Retry { part } => next.retry(options, part),
            Step::Cut { part } => next.cut(part),
            Step::CutHome => next.cut_home(),
            Step::Replace { inner } => next.replace(options, inner),
            Step::Moves { part } => next.moves(options, part),
        }?;
        (next != *self).then_some(next)
    }

    fn spawn(&mut self, options: &Options, from: usize, to: usize) -> Option<()> {
        spend(&mut self.chunks)?;
        let records = &mut self.parts[from].live;
        if options.mutant == Some(Mutant::EndBySums) {
            records.made += 1;
        }
        records.is_open().then_some(())?;
        let weight = records.halve(options);
        records.pack(from, to, weight, What::Chunk);
        if options.mutant == Some(Mutant::AdoptBeforeLog) {
            self.sent.extend(&self.parts[from].live.outbox);
        }
        Some(())
    }

    /// The asked attempt is the last that ended. The part may have asked before.
    fn request(&mut self, options: &Options, from: usize) -> Option<()> {
        spend(&mut self.requests)?;
        let source = &self.parts[0].disk;
        if source.source || from == 0 || self.parts[from].live.open == 0 {
            return None;
        }
        let attempt = source.attempt;
        let records = &mut self.parts[from].live;
        let has_none = options.mutant == Some(Mutant::ReopenWithoutWeight);
        let weight = if has_none { 0 } else { records.halve(options) };
        records.pack(from, 0, weight, What::Lost { attempt });
        Some(())
    }

    fn finish(&mut self, options: &Options, part: usize) -> Option<()> {
        let records = &mut self.parts[part].live;
        spend(&mut records.open)?;
        if options.mutant == Some(Mutant::EndBySums) {
            records.ended += 1;
        }
        records.settle(options);
        Some(())
    }

    fn finish_source(&mut self, options: &Options) -> Option<()> {
        let records = &mut self.parts[0].live;
        records.source = false;
        records.settle(options);
        Some(())
    }

    /// The records are synced, and the parcels leave. A parcel that is in the receiver's synced
    /// cursor is forgotten here: its repeats change nothing.
    fn sync(&mut self, options: &Options, part: usize) -> Option<()> {
        let this = &mut self.parts[part];
        this.disk = this.live.clone();
        self.sent.extend(&this.disk.outbox);
        if options.mutant != Some(Mutant::AdoptTwice) {
            let parts = &self.parts;
            self.sent.retain(|it| it.number > parts[it.to].disk.taken[it.from]);
        }
        Some(())
    }

    /// A part takes parcels of each other part in the order of their numbers, each once.
    fn take(&mut self, options: &Options, from: usize, to: usize) -> Option<()> {
        let twice = options.mutant == Some(Mutant::AdoptTwice);
        let records = &mut self.parts[to].live;
        let taken = records.taken[from];
        let expected = |number: u8| number == taken + 1 || twice && number == taken;
        let mut sent = self.sent.iter().filter(|it| (it.from, it.to) == (from, to));
        let parcel = *sent.rfind(|parcel| expected(parcel.number))?;
        if parcel.number == taken && records.held + parcel.weight > WHOLE {
            return None; // A repeated repetition shows nothing new.
        }
        records.taken[from] = parcel.number;
        records.open_parcel(options, parcel);
        records.settle(options);
        Some(())
    }

    fn acknowledge(&mut self, options: &Options, from: usize, to: usize) -> Option<()> {
        let early = options.mutant == Some(Mutant::AcknowledgedBeforeSync);
        let receiver = &self.parts[to];
        let taken = if early { receiver.live.taken } else { receiver.disk.taken }[from];
        let outbox = &mut self.parts[from].live.outbox;
        outbox.retain(|parcel| parcel.to != to || parcel.number > taken);
        Some(())
    }

    fn cut(&mut self, part: usize) -> Option<()> {
        let part = &mut self.parts[part];
        if part.live == part.disk && !part.waits {
            return None;
        }
        part.waits = false;
        part.live = part.disk.clone();
        spend(&mut self.cuts)
    }
}

impl Records {
    fn pack(&mut self, from: usize, to: usize, weight: u16, what: What) {
        self.given[to] += 1;
        let number = self.given[to];
        self.outbox.insert(Parcel { from, to, number, weight, what });
    }

    fn open_parcel(&mut self, options: &Options, parcel: Parcel) {
        if options.mutant == Some(Mutant::WeightTakenBack) {
            self.held += std::mem::take(&mut self.returned);
        }
        match parcel.what {
            What::Chunk => self.open += 1,
            What::Lost { attempt } => {
                let by_key = options.mutant == Some(Mutant::RequestByKey);
                if by_key && !self.keys.insert((parcel.from, attempt)) {
                    return;
                }
                if attempt == self.attempt && !self.source {
                    self.attempt += 1;
                    self.source = true;
                } else if options.mutant == Some(Mutant::RequestWeightDropped) {
                    return;
                }
            }
        }
        self.held += parcel.weight;
    }
}

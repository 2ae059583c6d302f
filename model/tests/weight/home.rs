//! The steps of the job's home: reports, the tree, open jobs, the end, and retries.

use crate::settings::{Mutant, Options};
use crate::state::{PARTS, State, WHOLE};

impl State {
    /// A report arrives. That it was sent long before makes no difference: then it arrived before.
    pub(crate) fn report(&mut self, options: &Options, part: usize) -> Option<()> {
        let records = &self.parts[part];
        let early = options.mutant == Some(Mutant::ReturnUnwritten);
        let records = if early { &records.live } else { &records.disk };
        if options.tree {
            self.inner[self.via[part]][part] = records.returned;
        } else {
            self.home.reported[part] = records.returned;
        }
        if options.mutant == Some(Mutant::EndBySums) {
            self.home.sums[part] = (records.made, records.ended);
        }
        Some(())
    }

    /// An inner node reports the sum of its range. The root keeps the latest of each range.
    pub(crate) fn relay(&mut self, options: &Options, inner: usize) -> Option<()> {
        options.tree.then_some(())?;
        self.home.reported[inner] = self.inner[inner].iter().sum();
        Some(())
    }

    /// Another node takes over a range. It knows no report.
    pub(crate) fn replace(&mut self, options: &Options, inner: usize) -> Option<()> {
        options.tree.then_some(())?;
        self.moves = self.moves.checked_sub(1)?;
        self.inner[inner] = [0; PARTS];
        Some(())
    }

    /// Mutant: a part that moves to another node reports to the inner node of that node.
    pub(crate) fn moves(&mut self, options: &Options, part: usize) -> Option<()> {
        (options.mutant == Some(Mutant::SumOfNodes)).then_some(())?;
        self.moves = self.moves.checked_sub(1)?;
        self.via[part] = 1 - self.via[part];
        Some(())
    }

    /// A client's chunk arrives. Where the part has weight, it is stored; else it waits in memory.
    pub(crate) fn client_chunk(&mut self, options: &Options, part: usize) -> Option<()> {
        self.client_chunks = self.client_chunks.checked_sub(1)?;
        let part = &mut self.parts[part];
        let has_weight = match options.mutant {
            Some(Mutant::ChunkWithoutWeight) => !part.live.closed,
            // It remembers that it got weight, and has returned it.
            Some(Mutant::ReturnsBeforeClose) => part.live.granted > 0 && !part.live.closed,
            _ => part.live.held > 0,
        };
        if has_weight {
            part.live.open += 1;
        } else if part.live.closed {
            self.refused_early |= !self.home.live.closed;
        } else if part.waits {
            return None;
        } else {
            part.waits = true;
        }
        Some(())
    }

    pub(crate) fn refuse(&mut self, part: usize) -> Option<()> {
        let part = &mut self.parts[part];
        if !part.waits || !part.live.closed {
            return None;
        }
        part.waits = false;
        self.refused_early |= !self.home.live.closed;
        Some(())
    }

    /// The job's home issues weight to a part with a waiting chunk, once.
    pub(crate) fn grant(&mut self, options: &Options, part: usize) -> Option<()> {
        let home = &mut self.home.live;
        let late = options.mutant == Some(Mutant::GrantAfterClose);
        if !self.parts[part].waits || home.granted[part] > 0 || home.closed && !late {
            return None;
        }
        home.granted[part] = 1;
        home.issued += WHOLE;
        Some(())
    }

    /// A part takes issued weight: for the chunk that waits, for a retried task, or for nothing,
    /// if it has lost the chunk.
    pub(crate) fn take_grant(&mut self, options: &Options, part: usize) -> Option<()> {
        let early = options.mutant == Some(Mutant::GrantBeforeLog);
        let home = if early { &self.home.live } else { &self.home.disk };
        let part_at = part;
        let part = &mut self.parts[part];
        let is_retry = home.round > 1;
        let awaited = part.waits || is_retry;
        let careless = options.mutant == Some(Mutant::GrantOnlyIfAwaited);
        if home.granted[part_at] <= part.live.granted || careless && !awaited {
            return None;
        }
        part.live.granted += 1;
        if options.mutant != Some(Mutant::RetryWithoutWeight) {
            part.live.held += WHOLE;
        }
        part.live.open += u8::from(awaited);
        part.waits = false;
        part.live.settle(options);
        Some(())
    }

    pub(crate) fn close(&mut self, options: &Options) -> Option<()> {
        options.is_open.then_some(())?;
        self.home.live.closed = true;
        Some(())
    }

    /// A part learns of the logged `close`.
    pub(crate) fn learn_close(&mut self, options: &Options, part: usize) -> Option<()> {
        let early = options.mutant == Some(Mutant::CloseBeforeLog);
        let home = if early { &self.home.live } else { &self.home.disk };
        home.closed.then_some(())?;
        let records = &mut self.parts[part].live;
        records.closed = true;
        records.settle(options);
        Some(())
    }

    pub(crate) fn end(&mut self, options: &Options) -> Option<()> {
        let home = &mut self.home.live;
        let returned: u16 = self.home.reported.iter().sum();
        let is_over = if options.mutant == Some(Mutant::EndBySums) {
            let made: u8 = self.home.sums.iter().map(|&(made, _)| made).sum();
            let ended: u8 = self.home.sums.iter().map(|&(_, ended)| ended).sum();
            made == ended && made > 0
        } else {
            // Never more, but for mutants.
            returned >= home.issued
        };
        if !is_over || !home.closed {
            return None;
        }
        home.ended = home.round;
        Some(())
    }

    /// The failed task of a part of an ended job runs again, in the next round.
    pub(crate) fn retry(&mut self, options: &Options, part: usize) -> Option<()> {
        let home = &mut self.home;
        if home.disk.ended != home.live.round {
            return None;
        }
        self.retries = self.retries.checked_sub(1)?;
        home.live.round += 1;
        home.live.granted[part] += 1;
        if options.mutant != Some(Mutant::RetryWithoutWeight) {
            home.live.issued += WHOLE;
        }
        Some(())
    }

    pub(crate) fn cut_home(&mut self) -> Option<()> {
        self.home_cuts = self.home_cuts.checked_sub(1)?;
        let home = &mut self.home;
        home.live = home.disk.clone();
        home.reported = [0; PARTS];
        home.sums = [(0, 0); PARTS];
        Some(())
    }
}

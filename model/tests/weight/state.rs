//! The state: three parts of one job, and the job's home.

use std::collections::BTreeSet;

use crate::settings::{Mutant, Options};

pub(crate) const PARTS: usize = 3;
/// The weight 1 of a job. All weights of the model are multiples of `1 / WHOLE`.
pub(crate) const WHOLE: u16 = 256;
pub(crate) const INNER: usize = 2;

/// Why weight goes from one part to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum What {
    /// A chunk of children.
    Chunk,
    /// The output of this attempt at the source is lost.
    Lost { attempt: u8 },
}

/// A message with weight, numbered per pair of parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Parcel {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) number: u8,
    pub(crate) weight: u16,
    pub(crate) what: What,
}

/// The records of a part.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Records {
    pub(crate) held: u16,
    pub(crate) returned: u16,
    pub(crate) open: u8,
    /// The source of an output is open. Only part 0 has one.
    pub(crate) source: bool,
    /// The number of attempts at the source.
    pub(crate) attempt: u8,
    /// Parcels that their receivers have not acknowledged.
    pub(crate) outbox: BTreeSet<Parcel>,
    /// The last number given to each part, and the last number taken from each part.
    pub(crate) given: [u8; PARTS],
    pub(crate) taken: [u8; PARTS],
    /// The number of grants of the job's home that it has taken.
    pub(crate) granted: u8,
    /// It has learnt that the job is closed.
    pub(crate) closed: bool,
    /// Requests already taken; only for `RequestByKey`.
    pub(crate) keys: BTreeSet<(usize, u8)>,
    /// Tasks made and ended; only for `EndBySums`.
    pub(crate) made: u8,
    pub(crate) ended: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Part {
    pub(crate) live: Records,
    /// What a power cut leaves: the records that are synced on all copies.
    pub(crate) disk: Records,
    /// A client's chunk waits in memory for weight.
    pub(crate) waits: bool,
}

/// The records of the job's home.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct HomeRecords {
    pub(crate) issued: u16,
    /// The number of grants to each part. A client's chunk needs one, a retry brings one.
    pub(crate) granted: [u8; PARTS],
    pub(crate) closed: bool,
    pub(crate) round: u8,
    pub(crate) ended: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Home {
    pub(crate) live: HomeRecords,
    pub(crate) disk: HomeRecords,
    /// The last reported `returned` by part, or by range of parts.
    pub(crate) reported: [u16; PARTS],
    /// The last reported counts by part; only for `EndBySums`.
    pub(crate) sums: [(u8, u8); PARTS],
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) parts: [Part; PARTS],
    pub(crate) home: Home,
    /// By inner node: the last report of each part.
    pub(crate) inner: [[u16; PARTS]; INNER],
    /// The inner node to which a part reports.
    pub(crate) via: [usize; PARTS],
    /// All parcels that were ever sent. Each may arrive late, repeatedly, or never.
    pub(crate) sent: BTreeSet<Parcel>,
    /// A part has refused a client's chunk of a job that was still open.
    pub(crate) refused_early: bool,
    // What may still happen.
    pub(crate) chunks: u8,
    pub(crate) requests: u8,
    pub(crate) client_chunks: u8,
    pub(crate) retries: u8,
    pub(crate) cuts: u8,
    pub(crate) home_cuts: u8,
    pub(crate) moves: u8,
}

impl State {
    pub(crate) fn first(options: &Options) -> Self {
        let has_source = |part| options.has_source && part == 0;
        let starts = |part: usize| options.tasks[part] > 0 || has_source(part);
        let starting = (0..PARTS).filter(|&part| starts(part)).count();
        // 1 is spread over the parts that start: all the same, and the rest to the last.
        let share = if starting > 2 { WHOLE / 4 } else { WHOLE / (starting.max(1) as u16) };
        let last = (0..PARTS).rev().find(|&part| starts(part));
        let parts = std::array::from_fn(|part| {
            let rest = WHOLE - share * (starting.max(1) as u16 - 1);
            let held = if last == Some(part) { rest } else { share };
            let records = Records {
                held: if starts(part) { held } else { 0 },
                open: options.tasks[part],
                source: has_source(part),
                attempt: u8::from(has_source(part)),
                closed: !options.is_open,
                made: options.tasks[part],
                ..Records::default()
            };
            Part { live: records.clone(), disk: records, waits: false }
        });
        let issued = if starting > 0 { WHOLE } else { 0 };
        let home =
            HomeRecords { issued, closed: !options.is_open, round: 1, ..HomeRecords::default() };
        Self {
            parts,
            home: Home { live: home.clone(), disk: home, ..Home::default() },
            inner: [[0; PARTS]; INNER],
            via: [0, 0, 1],
            sent: BTreeSet::new(),
            refused_early: false,
            chunks: options.chunks,
            requests: options.requests,
            client_chunks: options.client_chunks,
            retries: options.retries,
            cuts: options.cuts,
            home_cuts: options.home_cuts,
            moves: options.moves,
        }
    }
}

impl Records {
    pub(crate) fn is_open(&self) -> bool {
        self.open > 0 || self.source
    }

    /// Returns the weight of a part with nothing open, at the end of each batch.
    pub(crate) fn settle(&mut self, options: &Options) {
        let early = options.mutant == Some(Mutant::ReturnsBeforeClose);
        if !self.is_open() && (self.closed || early) {
            self.returned += std::mem::take(&mut self.held);
        }
    }

    /// Takes half of the weight of this part.
    pub(crate) fn halve(&mut self, options: &Options) -> u16 {
        let half = self.held / 2;
        debug_assert!(half * 2 == self.held, "a weight is too small for the model");
        if options.mutant != Some(Mutant::WeightNotHalved) {
            self.held -= half;
        }
        half
    }
}

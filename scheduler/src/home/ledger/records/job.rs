//! The state of one job at one home.

use std::sync::Arc;

use hashbrown::HashMap;
use proto::{LocalId, PartitionId, Span, Time, wire};

use super::{Part, Parts};

type FixedState = foldhash::fast::FixedState;

#[derive(Debug)]
pub(crate) struct Job {
    pub(in crate::home::ledger) settings: Arc<wire::JobSettings>,
    pub(in crate::home::ledger) visible: bool,
    /// The origin of release times, once the job is visible.
    pub(in crate::home::ledger) submitted: Time,
    pub(in crate::home::ledger) ended: bool,
    /// The whole job is cancelled, or its tasks are skipped: they do not run any more.
    pub(in crate::home::ledger) cancelled: bool,
    /// The last activity of the job's submitter; staged tasks expire.
    pub(in crate::home::ledger) touched: Time,
    /// The last question to its home whether there is such a job, without activity since; otherwise
    /// 0.
    pub(in crate::home::ledger) question: u64,
    pub(in crate::home::ledger) specs: Vec<Arc<wire::Spec>>,
    /// Spec numbers by hash of the encoded spec; equal specs of all chunks are stored once.
    spec_numbers: HashMap<u64, Vec<u32>, FixedState>,
    pub(in crate::home::ledger) parts: Parts,
    /// A report to the job's home is due at this time.
    pub(in crate::home::ledger) report_at: Option<Time>,
    pub(in crate::home::ledger) open: u64,
    /// Where the next search for the blocking task begins.
    pub(in crate::home::ledger) looked_to: LocalId,
}

impl Job {
    pub(in crate::home::ledger) fn new(now: Time) -> Self {
        Self {
            settings: Arc::new(wire::JobSettings::default()),
            visible: false,
            submitted: Time(0),
            ended: false,
            cancelled: false,
            touched: now,
            question: 0,
            specs: Vec::new(),
            spec_numbers: HashMap::with_hasher(FixedState::with_seed(0)),
            parts: Parts::default(),
            report_at: None,
            open: 0,
            looked_to: LocalId(0),
        }
    }

    /// Something of the job has arrived: its submitter is active, or was when an earlier home got
    /// it.
    pub(in crate::home::ledger) fn touch(&mut self, now: Time) {
        (self.touched, self.question) = (now, 0);
    }

    pub(crate) fn intern(&mut self, spec: &wire::Spec) -> u32 {
        use std::hash::BuildHasher;
        let hash = FixedState::with_seed(0).hash_one(prost::Message::encode_to_vec(spec));
        let numbers = self.spec_numbers.entry(hash).or_default();
        for &number in numbers.iter() {
            if *self.specs[number as usize] == *spec {
                return number;
            }
        }
        let number = self.specs.len() as u32;
        numbers.push(number);
        self.specs.push(Arc::new(spec.clone()));
        number
    }

    /// No more chunks arrive: equal specs need not be found any more.
    pub(in crate::home::ledger) fn forget_spec_numbers(&mut self) {
        self.spec_numbers = HashMap::with_hasher(FixedState::with_seed(0));
    }

    /// The record that is stored with each part of the job's round, once the job is visible.
    pub(crate) fn visible_record(&self, part: &Part) -> wire::VisibleRecord {
        wire::VisibleRecord {
            settings: Some(*self.settings),
            chunks: part.chunks(),
            ended: self.ended,
            cancelled: self.cancelled,
            submitted_ns: self.submitted.0,
            kept: part.keeps,
            openness: part.openness as i32,
            ..Default::default()
        }
    }
    /// The parts in the job's round, each with its record.
    pub(crate) fn visible_records(
        &self,
    ) -> impl Iterator<Item = (PartitionId, wire::VisibleRecord)> + '_ {
        // A part that has not entered the round gets the commit later: its record stays as it is.
        let parts = self.parts.iter().filter(|(_, part)| part.round == self.round());
        parts.map(|(partition, part)| (partition, self.visible_record(part)))
    }

    /// The end of the round, once it is known to one part, holds for all parts in the round.
    pub(in crate::home::ledger) fn share_keeps(&mut self) {
        let round = self.round();
        let keeps = self.parts.values().any(|part| part.round == round && part.keeps);
        let parts = self.parts.values_mut().filter(|part| part.round == round);
        parts.for_each(|part| part.keeps |= keeps);
    }

    /// The number of retries of the job.
    pub(crate) fn round(&self) -> u32 {
        self.settings.round
    }
    /// Takes the settings of this round or a later one. Returns true for a later one: then the end
    /// and the cancellation of the job no longer hold.
    pub(in crate::home::ledger) fn enter(&mut self, settings: wire::JobSettings) -> bool {
        let before = self.round();
        if settings.round < before {
            return false;
        }
        self.settings = Arc::new(settings);
        let later = settings.round > before;
        if later {
            (self.ended, self.cancelled) = (false, false);
        }
        self.cancelled |= settings.skipped_for != 0;
        later
    }

    /// Whether the job is staged and no task of it has ended. A task can end before the home gets
    /// the commit, if an ancestor failed on another home; that proves that there is a commit.
    pub(crate) fn may_expire(&self) -> bool {
        !self.visible && self.parts.values().all(|part| part.open == part.tasks)
    }

    /// Schedules a report within the interval, or at once if no task is open here any more.
    pub(crate) fn report_soon(&mut self, now: Time, interval: Span) {
        let due = if self.open == 0 { now } else { now + interval };
        self.report_at = Some(self.report_at.map_or(due, |at| at.min(due)));
    }
    pub(crate) fn report_everything(&mut self, now: Time) {
        self.parts.mark_all_changed();
        self.report_at = Some(now);
    }
}

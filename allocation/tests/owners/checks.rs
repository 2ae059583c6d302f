//! The invariants of a run.

use std::collections::BTreeMap;

use allocation::{Intent, Lease, Phase, Submission};

use crate::world::Faults;

/// The oldest intent that may be submitted: the memory of the batch system, and one lease.
const SUBMITTED_WITHIN_MS: u64 = 300_000 + 60_000;

#[derive(Default, Debug)]
pub(crate) struct Checks {
    /// The batch job that has worked for each intent.
    worked: BTreeMap<u64, u64>,
    /// The submissions of each intent.
    submissions: BTreeMap<u64, u32>,
    last_submission_ms: Option<u64>,
    last_listing_ms: Option<u64>,
}

impl Checks {
    /// An owner begins a submission.
    pub(crate) fn submits(
        &mut self,
        now_ms: u64,
        (owner, incarnation): (&str, u32),
        submission: &Submission,
        lease: &Lease,
        intent: Option<&Intent>,
        faults: Faults,
    ) -> Result<(), String> {
        let name = &submission.name;
        if !lease.is_of(owner, incarnation) || !lease.is_valid(now_ms) {
            return Err(format!("{owner} submits {name} with a lapsed lease"));
        }
        let Some(intent) = intent else {
            return Err(format!("{owner} submits {name}, and there is no intent"));
        };
        if now_ms > intent.made_ms + SUBMITTED_WITHIN_MS {
            return Err(format!("{name} may have run and been forgotten, and is submitted"));
        }
        let is_open = intent.phase == Phase::Intended && intent.job.is_empty();
        if !is_open && !faults.pauses && !faults.loses_answers {
            return Err(format!("{owner} submits {name}, which is {intent:?}"));
        }
        if !faults.pauses {
            let last = self.last_submission_ms.replace(now_ms);
            if last.is_some_and(|last| now_ms < last + 4_000) {
                return Err(format!("two submissions within 4 s at {now_ms}"));
            }
        }
        Ok(())
    }

    /// The batch system gets a submission.
    pub(crate) fn submitted(&mut self, number: u64, faults: Faults) -> Result<(), String> {
        let count = self.submissions.entry(number).or_default();
        *count += 1;
        match *count > 1 && !faults.pauses && !faults.loses_batch_jobs {
            true => Err(format!("intent {number} was submitted {count} times")),
            false => Ok(()),
        }
    }

    pub(crate) fn lists(&mut self, now_ms: u64, faults: Faults) -> Result<(), String> {
        let last = self.last_listing_ms.replace(now_ms);
        match last.is_some_and(|last| now_ms < last + 29_000) && !faults.pauses {
            true => Err(format!("two listings within 29 s at {now_ms}")),
            false => Ok(()),
        }
    }

    /// A batch job works.
    pub(crate) fn works(&mut self, number: u64, job: u64) -> Result<(), String> {
        let first = *self.worked.entry(number).or_insert(job);
        match first == job {
            true => Ok(()),
            false => Err(format!("job {job} works as well as {first} for intent {number}")),
        }
    }
}

//! Intents: one wanted allocation each, from before its submission to its end.

use serde::{Deserialize, Serialize};

use crate::batch::{BatchState, How, Row};
use crate::limits::{LISTED_AFTER_MS, MEMORY_MS};
use crate::{Learned, Mutant, System};

/// The phase of an intent. The first three are open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is written, and a submission may have been made.
    Intended,
    /// Its batch job waits in the batch system.
    Queued,
    /// Its batch job has claimed it, and its nodes work.
    Running,
    Ended,
    /// The batch system refused the submission.
    Refused,
    /// It has no job id and is older than the memory of the batch system.
    Unknown,
}

impl Phase {
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Intended | Self::Queued | Self::Running)
    }
    /// Whether its nodes are still to come.
    #[must_use]
    pub fn is_expected(self) -> bool {
        matches!(self, Self::Intended | Self::Queued)
    }
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// One wanted allocation. Times are milliseconds since 1970; 0: not yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Intent {
    pub number: u64,
    /// The name of its batch job.
    pub name: String,
    pub system: System,
    pub nodes: u32,
    pub phase: Phase,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// The owner that wrote it.
    #[serde(default)]
    pub by: String,
    pub made_ms: u64,
    #[serde(default)]
    pub queued_ms: u64,
    #[serde(default)]
    pub started_ms: u64,
    #[serde(default)]
    pub ended_ms: u64,
    /// The cpus that its first node offers, and all that it offers.
    #[serde(default)]
    pub cpus: u32,
    #[serde(default, skip_serializing_if = "Learned::is_empty")]
    pub offer: Learned,
    /// Batch jobs that found it taken and ended at once.
    #[serde(default)]
    pub duplicates: u32,
    /// Why it waits, or how it ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<How>,
    /// The owner has counted its end.
    #[serde(default)]
    pub is_judged: bool,
}

/// The answer to a batch job that starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It works, once this intent is written.
    Works(Intent),
    /// It ends at once. The intent counts it, once it is written.
    Ends(Intent, String),
}

/// What happened to an intent, for its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Nothing that counts.
    Quiet,
    Succeeded,
    Failed(String),
    Unknown,
}

impl Intent {
    /// A wish for that number of nodes, before its submission.
    pub(crate) fn new(
        number: u64,
        name: String,
        (system, nodes): (System, u32),
        by: &str,
        made_ms: u64,
    ) -> Self {
        Self {
            number,
            name,
            system,
            nodes,
            phase: Phase::Intended,
            job: String::new(),
            by: by.to_owned(),
            made_ms,
            queued_ms: 0,
            started_ms: 0,
            ended_ms: 0,
            cpus: 0,
            offer: Learned::default(),
            duplicates: 0,
            reason: String::new(),
            how: None,
            is_judged: false,
        }
    }

    /// A batch job starts and asks whether it may work.
    #[must_use]
    pub fn claim(&self, job: &str, cpus: u32, now_ms: u64, mutant: Option<Mutant>) -> Claim {
        let is_own = self.job.is_empty() || self.job == job;
        let refused = match self.phase {
            Phase::Intended | Phase::Queued | Phase::Running if is_own => None,
            Phase::Intended | Phase::Queued | Phase::Running => {
                Some(format!("batch job {} has it", self.job))
            }
            over => Some(format!("it is {}", over.word())),
        };
        match refused {
            Some(why) if mutant != Some(Mutant::ClaimUnchecked) => {
                let duplicates = self.duplicates.saturating_add(1);
                Claim::Ends(Self { duplicates, ..self.clone() }, why)
            }
            _ => Claim::Works(Self {
                phase: Phase::Running,
                job: job.to_owned(),
                started_ms: now_ms,
                cpus: if cpus > 0 { cpus } else { self.cpus },
                reason: String::new(),
                ..self.clone()
            }),
        }
    }

    /// A node of it says what it offers; `None`: another one has said so before.
    #[must_use]
    pub fn with_offer(&self, offer: &Learned) -> Option<Self> {
        let is_first = self.phase == Phase::Running && self.offer.is_empty();
        is_first.then(|| Self { cpus: offer.cpus(), offer: offer.clone(), ..self.clone() })
    }

    /// The batch job ends, and says how.
    #[must_use]
    pub fn ended(&self, job: &str, how: How, now_ms: u64) -> Option<Self> {
        let is_own = self.phase.is_open() && self.job == job;
        is_own.then(|| self.over(how, now_ms))
    }

    pub(crate) fn queued(&self, job: &str, now_ms: u64) -> Self {
        Self { phase: Phase::Queued, job: job.to_owned(), queued_ms: now_ms, ..self.clone() }
    }
    pub(crate) fn refused(&self, why: &str, now_ms: u64) -> Self {
        let reason = why.to_owned();
        Self { phase: Phase::Refused, reason, ended_ms: now_ms, ..self.clone() }
    }
    fn over(&self, how: How, now_ms: u64) -> Self {
        let reason = how.text().to_owned();
        Self { phase: Phase::Ended, reason, ended_ms: now_ms, how: Some(how), ..self.clone() }
    }

    /// Whether a listing of that time shows all its batch jobs.
    pub(crate) fn is_shown(&self, listed_ms: u64) -> bool {
        listed_ms >= self.made_ms.max(self.queued_ms).saturating_add(LISTED_AFTER_MS)
    }

    /// The intent after a listing, if the listing changes it.
    pub(crate) fn after(
        &self,
        rows: &[Row],
        listed_ms: u64,
        mutant: Option<Mutant>,
    ) -> Option<(Self, Outcome)> {
        if !self.phase.is_open() {
            return None;
        }
        let row = match self.job.is_empty() {
            true => rows.iter().find(|row| row.name == self.name),
            false => rows.iter().find(|row| row.job == self.job),
        };
        match row {
            None if !self.is_shown(listed_ms) => None,
            None if self.job.is_empty() => {
                let is_old = listed_ms.saturating_sub(self.made_ms) > MEMORY_MS;
                let is_closed = is_old && mutant != Some(Mutant::NeverUnknown);
                let reason = "its submission is not known to the batch system".to_owned();
                let over =
                    Self { phase: Phase::Unknown, reason, ended_ms: listed_ms, ..self.clone() };
                is_closed.then_some((over, Outcome::Unknown))
            }
            None => Some(self.closed(How::Unknown, listed_ms)),
            Some(row) => match row.state {
                BatchState::Ended(how) => {
                    let own = Self { job: row.job.clone(), ..self.clone() };
                    Some(own.closed(how, listed_ms))
                }
                BatchState::Waiting | BatchState::Running => {
                    let reason = match row.state {
                        BatchState::Waiting => row.reason.clone(),
                        _ => String::new(),
                    };
                    let queued = match self.phase {
                        Phase::Intended => self.queued(&row.job, listed_ms),
                        _ => self.clone(),
                    };
                    let known = Self { reason, ..queued };
                    (known != *self).then_some((known, Outcome::Quiet))
                }
            },
        }
    }

    fn closed(&self, how: How, now_ms: u64) -> (Self, Outcome) {
        let over = Self { is_judged: true, ..self.over(how, now_ms) };
        let outcome = over.outcome(how);
        (over, outcome)
    }

    /// The intent once its owner has counted an end that the batch job has reported.
    pub(crate) fn judged(&self) -> Option<(Self, Outcome)> {
        let how = self.how.filter(|_| self.phase == Phase::Ended && !self.is_judged)?;
        Some((Self { is_judged: true, ..self.clone() }, self.outcome(how)))
    }

    /// How the end of this intent counts for its queue.
    fn outcome(&self, how: How) -> Outcome {
        match how.is_failure(self.started_ms > 0) {
            true => Outcome::Failed(format!("batch job {}: {}", self.job, how.text())),
            false => Outcome::Succeeded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learned::tests::learned;

    fn intent() -> Intent {
        Intent::new(1, "st-c-q-1".into(), (System::Slurm, 1), "n0", 1000)
    }
    fn row(job: &str, state: BatchState) -> Row {
        Row { job: job.into(), name: "st-c-q-1".into(), state, reason: "Priority".into() }
    }

    #[test]
    fn the_first_batch_job_works_and_a_second_one_ends() {
        let Claim::Works(first) = intent().claim("7", 4, 2000, None) else { panic!("it is free") };
        assert_eq!((first.phase, &*first.job, first.cpus), (Phase::Running, "7", 4));
        let Claim::Ends(counted, why) = first.claim("8", 4, 2001, None) else { panic!("taken") };
        assert_eq!((counted.duplicates, &*why), (1, "batch job 7 has it"));
        assert!(matches!(first.claim("7", 4, 2002, None), Claim::Works(_)), "requeued");
        let over = first.ended("7", How::Failed, 3000).expect("its own end");
        let (judged, outcome) = over.judged().expect("its owner counts it once");
        assert!(matches!(outcome, Outcome::Failed(_)) && judged.judged().is_none());
        assert!(matches!(over.claim("7", 4, 3001, None), Claim::Ends(..)));
        assert_eq!(first.ended("8", How::Completed, 3000), None);
    }

    #[test]
    fn the_first_node_says_what_it_offers() {
        let offer = learned(&["cpus=2", "memory=1GiB"]);
        assert_eq!(intent().with_offer(&offer), None, "no batch job has it");
        let Claim::Works(claimed) = intent().claim("7", 0, 2000, None) else { panic!("free") };
        let noted = claimed.with_offer(&offer).expect("the first one");
        assert_eq!((noted.cpus, &noted.offer), (2, &offer));
        assert_eq!(noted.with_offer(&learned(&["cpus=4"])), None);
        let Claim::Works(again) = noted.claim("7", 0, 3000, None) else { panic!("requeued") };
        assert_eq!((again.cpus, &again.offer), (2, &offer));
    }

    #[test]
    fn a_listing_adopts_closes_and_forgets() {
        let waiting = [row("7", BatchState::Waiting)];
        let (queued, _) = intent().after(&waiting, 5000, None).expect("adopted");
        assert_eq!((queued.phase, &*queued.job, &*queued.reason), (Phase::Queued, "7", "Priority"));
        assert_eq!(queued.after(&waiting, 6000, None), None, "nothing new");
        let (over, outcome) = queued.after(&[], 40_000, None).expect("it is gone");
        assert_eq!((over.phase, &*over.reason), (Phase::Ended, "ended, how is not known"));
        assert!(matches!(outcome, Outcome::Failed(_)), "no node had started");
        assert_eq!(intent().after(&[], 40_000, None), None, "it is submitted again");
        let (unknown, _) = intent().after(&[], 400_000, None).expect("too old");
        assert_eq!(unknown.phase, Phase::Unknown);
        assert_eq!(queued.after(&[], 5001, None), None, "the listing may be too early");
    }
}

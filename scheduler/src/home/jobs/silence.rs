//! Silent clients of open jobs.
//!
//! A client may promise life signs when it opens a job. If none comes, the home of the job records
//! that the client is silent, or cancels the job. A life sign ends the silence, also that of
//! another client. A job with a client that stays silent is closed.
//!
//! The time since the last sign is in memory only. So a home that restarts, or takes the job over,
//! gives the client the whole time again. The time of a silence is in the record, by the clock of
//! the home that wrote it. A later home with a clock behind it counts from its own time.

use std::collections::BTreeMap;

use proto::wire::{Openness, response};
use proto::{JobId, Span, Time, wire};

use super::{Job, Jobs};
use crate::Mutant;
use crate::home::requests::{refused, unknown_job};
use crate::output::Out;
use crate::routing::partition_owners::Homes;

/// The open jobs homed here with clients that send life signs.
#[derive(Debug, Default)]
pub(super) struct Silences {
    /// When each was heard last; `None`: not yet by this home.
    heard: BTreeMap<JobId, Option<Time>>,
    /// No client falls silent and no job is closed before.
    next: Time,
}

/// The next event for a job if no life sign comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    FallsSilent(Time),
    Closes(Time),
}

impl Due {
    fn at(self) -> Time {
        match self {
            Self::FallsSilent(at) | Self::Closes(at) => at,
        }
    }
}

impl Jobs {
    /// Notes a job with a client that may fall silent.
    pub(super) fn listen_to(&mut self, state: &wire::JobState) {
        if silence_of(state).is_some() {
            let rounds = self.stall_rounds.get_or_insert_default();
            let silences = rounds.silences.get_or_insert_default();
            silences.heard.insert(JobId(state.job), None);
            silences.next = Time(0);
        }
    }

    pub(crate) fn next_silence(&self) -> Option<Time> {
        let silences = self.stall_rounds.as_ref()?.silences.as_ref()?;
        (!silences.heard.is_empty()).then_some(silences.next)
    }

    /// A life sign of the client.
    pub(crate) fn on_life_sign(
        &mut self,
        now: Time,
        job_id: JobId,
        sign: wire::LifeSign,
        out: &mut Out,
    ) -> Result<response::Body, wire::Error> {
        let job = self.jobs.get_mut(&job_id).ok_or_else(|| unknown_job(job_id.0))?;
        job.check_open().map_err(refused)?;
        let accepted = Ok(response::Body::Accepted(wire::Accepted {}));
        if sign.attachment < job.state.attachment {
            return accepted; // Its client has left the job since.
        }
        if job.state.detached || sign.detaches {
            job.state.detached = sign.detaches;
            job.state.attachment += u32::from(sign.detaches);
            let state = job.state.clone();
            out.facts.jobs.insert(job_id, state.clone());
            self.listen_to(&state);
        }
        self.heard(now, job_id, out);
        accepted
    }

    /// Some client is at work on the open job.
    pub(super) fn heard(&mut self, now: Time, job_id: JobId, out: &mut Out) {
        if self.mutant == Some(Mutant::LifeSignsUnheard) {
            return;
        }
        let rounds = self.stall_rounds.as_mut();
        let silences = rounds.and_then(|rounds| rounds.silences.as_mut());
        let (Some(silences), Some(job)) = (silences, self.jobs.get_mut(&job_id)) else { return };
        let Some(heard) = silences.heard.get_mut(&job_id) else { return };
        *heard = Some(now);
        if std::mem::take(&mut job.state.silent_ns) != 0 {
            silences.next = now;
            out.facts.jobs.insert(job_id, job.state.clone());
            job.notify(out);
        }
    }

    /// Acts on clients that have been silent for too long.
    pub(crate) fn tend_silent(&mut self, now: Time, homes: &Homes, out: &mut Out) {
        if self.next_silence().is_none_or(|next| now < next) {
            return;
        }
        let rounds = self.stall_rounds.as_mut();
        let Some(mut silences) = rounds.and_then(|rounds| rounds.silences.take()) else { return };
        let mut next = None;
        silences.heard.retain(|&job_id, heard| {
            if heard.is_none() {
                self.take_silence_over(now, job_id, out);
            }
            let heard = *heard.get_or_insert(now);
            let due = self.jobs.get(&job_id).and_then(|job| job.due(heard, self.mutant));
            let due = match due {
                Some(due) if due.at() <= now => self.act_on_silence(now, job_id, due, homes, out),
                due => due,
            };
            next = due.map(Due::at).into_iter().chain(next).min();
            due.is_some()
        });
        silences.next = next.unwrap_or(now);
        self.stall_rounds.get_or_insert_default().silences = Some(silences);
    }

    /// The clock of an earlier home, or of this one before a restart, may have been ahead.
    fn take_silence_over(&mut self, now: Time, job_id: JobId, out: &mut Out) {
        let job = self.jobs.get_mut(&job_id).filter(|job| job.state.silent_ns > now.0);
        if let Some(job) = job {
            job.state.silent_ns = now.0.max(1);
            out.facts.jobs.insert(job_id, job.state.clone());
        }
    }

    /// Returns what comes next, if anything does.
    fn act_on_silence(
        &mut self,
        now: Time,
        job_id: JobId,
        due: Due,
        homes: &Homes,
        out: &mut Out,
    ) -> Option<Due> {
        let job = self.jobs.get_mut(&job_id)?;
        let silence = silence_of(&job.state)?;
        match due {
            Due::FallsSilent(_) if silence.cancels => {
                let by = format!("home: client silent for {} s", silence.after_ns / 1_000_000_000);
                let cancel = wire::Cancel { job: job_id.0, by, ..Default::default() };
                self.cancel(now, &cancel, homes, out);
                None
            }
            Due::FallsSilent(_) => {
                job.state.silent_ns = now.0.max(1);
                out.facts.jobs.insert(job_id, job.state.clone());
                job.notify(out);
                Some(Due::Closes(now + Span(silence.close_ns)))
            }
            Due::Closes(_) => {
                // It is open, so the close is not refused.
                let _ = self.close(now, job_id.0, homes, out);
                None
            }
        }
    }
}

impl Job {
    /// What happens next to a job with a client that was heard last at this time.
    fn due(&self, heard: Time, mutant: Option<Mutant>) -> Option<Due> {
        let state = &self.state;
        let silence = silence_of(state)?;
        let is_alone = state.detached && mutant != Some(Mutant::SilenceEndsDetached);
        if state.ended_ns != 0 || state.openness() != Openness::Open || is_alone {
            return None;
        }
        Some(match state.silent_ns {
            0 => Due::FallsSilent(heard + Span(silence.after_ns)),
            since => Due::Closes(Time(since) + Span(silence.close_ns)),
        })
    }
}

/// The silence that the client of a job has named.
pub(super) fn silence_of(state: &wire::JobState) -> Option<wire::Silence> {
    state.settings.as_ref()?.silence.filter(|silence| silence.after_ns > 0)
}

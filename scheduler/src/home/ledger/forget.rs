//! Removes the records of a forgotten job, from the disk too.

use proto::JobId;

use super::Ledger;
use super::records::State;
use crate::output::Out;

impl Ledger {
    /// Whether tasks of the job homed here have kept outputs.
    pub(crate) fn has_results(&self, job_id: JobId) -> bool {
        let job = self.jobs.get(&job_id).filter(|job| job.settings.real_data);
        let specs = job.into_iter().flat_map(|job| &job.specs);
        specs.into_iter().any(|spec| spec.outputs.iter().any(|output| output.keep))
    }

    /// Removes all records of the job. The job has ended: nothing waits for its tasks.
    pub(crate) fn forget_job(&mut self, job_id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.remove(&job_id) else { return };
        self.live.remove(&job_id);
        for (partition, part) in job.parts.iter() {
            let waits = |index: &u64| part.state(*index) == Some(State::Waiting);
            self.waiting -= part.indices().filter(waits).count() as u64;
            out.facts.forgotten.push((partition, job_id));
        }
        for tasks in self.held_remotely.values_mut() {
            tasks.retain(|task| task.job != job_id);
        }
        self.held_remotely.retain(|_, tasks| !tasks.is_empty());
        self.deliveries.retain(|delivery| delivery.job() != job_id);
        self.activations.retain(|activation| activation.job != job_id);
        self.removals.retain(|removal| removal.job() != job_id);
        self.ready.retain(|task| task.job != job_id);
        self.unreleased.retain(|(_, task)| task.job != job_id);
        self.awaiting_lost_inputs.retain(|task| task.job != job_id);
        self.early.retain(|(_, ask)| ask.job != job_id.0);
        self.ahead.retain(|ahead| ahead.child.job != job_id);
        self.recalls.forget_job(job_id);
        self.recalls.earlier.forget_job(job_id);
        self.readers.forget_job(job_id);
    }
}

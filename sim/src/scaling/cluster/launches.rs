//! The attempts on the nodes of a study, and their ends.

use node::Input;
use proto::wire::spec::Body;
use proto::work::Launch;
use proto::{Attempt, Span, TaskId, Time};

use super::super::event_queue::{Load, ScalingEvent};
use super::super::machine::Attempting;
use super::{BEGIN, Cluster, NO_CPU_IS_FREE};
use crate::state::machine as model;
use crate::state::machine::cpus_of;

/// True if the attempt's bytes are written and read, not only counted.
pub(super) fn moves_bytes(launch: &Launch) -> bool {
    let has_data = !launch.inputs.is_empty() || !launch.spec.outputs.is_empty();
    launch.settings.real_data && has_data
}

impl Cluster<'_, '_> {
    /// True for an attempt that neither waits nor works. As in the executor, it ends at once.
    pub(super) fn runs_at_once(&self, launch: &Launch) -> bool {
        if moves_bytes(launch) || self.bytes_of_load(launch) > 0 {
            return false;
        }
        match launch.spec.body {
            Some(Body::Sleep(_) | Body::Spin(_)) => launch.duration.0 == 0,
            Some(Body::Noop(_)) | None => true,
            Some(Body::Command(_) | Body::Call(_) | Body::Upload(_)) => false,
        }
    }

    /// The bytes from outside of a load that takes time.
    fn bytes_of_load(&self, launch: &Launch) -> u64 {
        let is_load = matches!(launch.spec.body, Some(Body::Noop(_)))
            && launch.spec.kind == analysis::stages::KIND_LOAD;
        if !(self.loads_count && is_load) {
            return 0;
        }
        let declared = launch.spec.outputs.iter().map(|output| output.size_bytes);
        let given = launch.output_sizes.iter().copied();
        declared
            .zip(given.map(Some).chain(std::iter::repeat(None)))
            .map(|(it, own)| own.unwrap_or(it))
            .sum()
    }

    /// Checks the inputs and the release time of a task, and returns its outcome.
    pub(super) fn attempt(&mut self, index: usize, launch: &Launch) -> Attempting {
        let machine = &self.machines[index];
        let missing = launch.inputs.iter().find(|it| !machine.objects.contains_key(&it.object));
        if let Some(input) = missing {
            let text = format!("{} runs on n{index} without {:?}", launch.task, input.object);
            self.break_off("inputs", text);
        }
        if self.last_release.is_some() && self.is_early(launch.task) {
            let at = self.now.since(BEGIN).as_secs_f64();
            self.break_off("release", format!("{} starts at {at} s, too early", launch.task));
        }
        let run = model::run(launch, false);
        Attempting { cpus: cpus_of(launch), outcome: Box::new(run.outcome), objects: run.objects }
    }

    pub(super) fn count_launch(&mut self, index: usize, at: Time) {
        self.launches[index] += 1;
        let first = *self.first_launch.get_or_insert(at);
        if self.launches[index] == 1 {
            self.without_work -= 1;
            self.spread = (self.without_work == 0).then(|| at.since(first));
        }
    }

    fn is_early(&self, task: TaskId) -> bool {
        let task = self.plan.task_of(task.local);
        task.is_none_or(|task| self.now < BEGIN + Span(self.graph.release_ns(task)))
    }

    pub(super) fn launch(&mut self, index: usize, done: Time, launch: &Launch) {
        self.count_launch(index, done);
        let run = self.attempt(index, launch);
        let files = self.files(launch, &run);
        let machine = &mut self.machines[index];
        machine.busy_slots += run.cpus;
        let busy = machine.busy_slots;
        machine.running.insert((launch.task, launch.attempt), Box::new(run));
        if busy > self.slots {
            let text = format!("{} makes {busy} of {} slots busy", launch.task, self.slots);
            self.break_off("bound", text);
        }
        let at = done + launch.duration + self.run_delay + files;
        let key = (launch.task, launch.attempt);
        let what = match self.bytes_of_load(launch) {
            0 => ScalingEvent::Ended(index as u32, Box::new(key)),
            bytes => ScalingEvent::Load(Box::new(Load { node: index as u32, key, bytes })),
        };
        self.queue.push(at, what);
    }

    /// The slot time that an attempt needs for its files.
    fn files(&self, launch: &Launch, run: &Attempting) -> Span {
        if !moves_bytes(launch) {
            return Span::ZERO;
        }
        let reads = launch.inputs.iter().map(|input| self.bytes.reading(input.size_bytes));
        let writes = run.objects.iter().map(|(_, bytes)| self.bytes.writing(*bytes));
        Span(reads.chain(writes).map(|span| span.0).sum())
    }

    pub(super) fn attempt_ended(&mut self, index: usize, (task, attempt): (TaskId, Attempt)) {
        let machine = &mut self.machines[index];
        let Some(run) = machine.running.remove(&(task, attempt)) else { return };
        machine.busy_slots = machine.busy_slots.checked_sub(run.cpus).expect(NO_CPU_IS_FREE);
        if machine.running.is_empty() {
            machine.running.shrink_to_fit(); // Most nodes of a large cluster end up idle.
        }
        machine.keep(run.objects);
        self.deliver(index, Input::Finished { task, attempt, outcome: run.outcome });
    }
}

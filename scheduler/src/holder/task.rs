//! A ready task as it is queued, sent and run: its description, and where its inputs lie.

use std::sync::Arc;

use prost::bytes::Bytes;
use proto::limits::PACKET_BYTES_MAX;
use proto::work::{Launch, LaunchInput};
use proto::{Attempt, LocalId, ObjectId, Span, TaskId, wire};
use resources::Request;

use crate::holder::life::time_request;
use crate::limits::BUNDLE_TASKS_MAX;

#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) spec: Arc<wire::Spec>,
    pub(crate) settings: Arc<wire::JobSettings>,
    pub(crate) entry: u64,
    pub(crate) duration: Span,
    /// Longest path from here to an end of the graph; 0: not known.
    pub(crate) urgency: u64,
    pub(crate) output_sizes: Vec<u64>,
    pub(crate) name: Box<str>,
    /// The arguments of a call, if the task has its own.
    pub(crate) payload: Option<Box<Bytes>>,
    pub(crate) inputs: Vec<wire::InputAt>,
    /// The number of deaths of nodes that ran the task or may have run it.
    pub(crate) deaths: u8,
    /// No other task runs beside this one.
    pub(crate) alone: bool,
    /// The task was ready before, and its holder was lost.
    pub(crate) again: bool,
    /// The number of its ancestors: 0 for a submitted task.
    pub(crate) depth: u32,
    /// The turns that it has committed.
    pub(crate) resume: Option<Arc<wire::Resume>>,
}

/// Whether the task runs foreign code, which may do anything to its node.
#[must_use]
pub(crate) fn is_command(spec: &wire::Spec) -> bool {
    matches!(spec.body, Some(wire::spec::Body::Command(_) | wire::spec::Body::Call(_)))
}

/// Whether the task is a call of a function.
#[must_use]
pub(crate) fn is_call(spec: &wire::Spec) -> bool {
    matches!(spec.body, Some(wire::spec::Body::Call(_)))
}

impl Work {
    #[must_use]
    pub(crate) fn input_bytes(&self) -> u64 {
        self.inputs.iter().fold(0, |sum, input| sum.saturating_add(input.size_bytes))
    }
    /// The bytes that the task writes, as far as they are declared.
    #[must_use]
    pub(crate) fn declared_output_bytes(&self) -> u64 {
        let declared = |output: usize| {
            let own = self.output_sizes.get(output).copied();
            own.or_else(|| self.spec.outputs.get(output).map(|output| output.size_bytes))
        };
        let outputs = self.output_sizes.len().max(self.spec.outputs.len());
        (0..outputs).filter_map(declared).fold(0, u64::saturating_add)
    }
    #[must_use]
    pub(crate) fn cpus(&self) -> u32 {
        self.spec.cpus.max(1)
    }
    /// Whether the task asks for more than cpus, for time, or for a signal before an end.
    #[must_use]
    pub(crate) fn has_request(&self) -> bool {
        !self.spec.request.is_empty() || self.time_request() > Span::ZERO || self.is_gang()
    }
    /// Whether the task needs several nodes at once.
    #[must_use]
    pub(crate) fn is_gang(&self) -> bool {
        self.spec.nodes > 1
    }
    /// The request of the task, if it has one.
    #[must_use]
    pub(crate) fn request(&self) -> Option<Request> {
        match self.spec.request.is_empty() {
            true => self.has_request().then(|| Request::cpus(self.cpus())),
            false => Request::decode(&self.spec.request).ok(),
        }
    }
    /// The time request by which the task is matched; zero without one.
    #[must_use]
    pub(crate) fn time_request(&self) -> Span {
        time_request(&self.spec)
    }
    /// Whether only its home can run the task, since its files were uploaded there.
    #[must_use]
    pub(crate) fn is_bound(&self) -> bool {
        is_upload(&self.spec)
    }
    /// Whether the task is a no-op that writes nothing: it needs no thread and no slot, and many
    /// run in one step.
    #[must_use]
    pub(crate) fn is_instant(&self) -> bool {
        matches!(self.spec.body, Some(wire::spec::Body::Noop(_)))
            && !self.settings.real_data
            && !self.has_request()
    }
    #[must_use]
    pub(crate) fn launch(&self, task: TaskId, attempt: Attempt, slot: u32) -> Launch {
        let input = |input: &wire::InputAt| LaunchInput {
            slot: input.slot,
            object: object_of(task, input),
            size_bytes: input.size_bytes,
        };
        Launch {
            task,
            attempt,
            slot,
            spec: self.spec.clone(),
            settings: self.settings.clone(),
            entry: self.entry,
            duration: self.duration,
            output_sizes: self.output_sizes.clone(),
            name: self.name.clone().into_string(),
            payload: self.payload.as_deref().cloned().unwrap_or_default(),
            inputs: self.inputs.iter().map(input).collect(),
            resume: self.resume.clone(),
            granted: None,
            gang: Vec::new(),
        }
    }
}

/// The spec of an attempt that runs by this variant of its request: with the command of the
/// variant, if it has its own.
#[must_use]
pub(crate) fn of_variant(spec: &Arc<wire::Spec>, variant: u8) -> Arc<wire::Spec> {
    let Some(wire::spec::Body::Command(command)) = &spec.body else { return Arc::clone(spec) };
    let own = command.variants.iter().find(|own| own.variant == u32::from(variant));
    let Some(own) = own else { return Arc::clone(spec) };
    let mut spec = wire::Spec::clone(spec);
    if let Some(wire::spec::Body::Command(command)) = &mut spec.body {
        command.argv.clone_from(&own.argv);
    }
    Arc::new(spec)
}

/// Whether the task stands for a file that a client has uploaded to this node.
pub(crate) fn is_upload(spec: &wire::Spec) -> bool {
    matches!(spec.body, Some(wire::spec::Body::Upload(_)))
}

/// The object that an input of `task` names: an output of its parent's committed attempt.
#[must_use]
pub(crate) fn object_of(task: TaskId, input: &wire::InputAt) -> ObjectId {
    ObjectId {
        task: TaskId { job: task.job, local: LocalId(input.parent) },
        attempt: Attempt(input.attempt),
        output: input.output,
    }
}

/// Packs tasks for another node; equal specs are sent once.
#[derive(Debug, Default)]
pub(crate) struct BundleBuilder {
    bundle: wire::Bundle,
    /// The approximate size on the wire.
    bytes: usize,
    specs: Vec<Arc<wire::Spec>>,
    settings: Vec<Arc<wire::JobSettings>>,
}

impl BundleBuilder {
    pub(crate) fn push(&mut self, task: TaskId, attempt: Attempt, work: Work) {
        let known = self.specs.len();
        let spec = position(&mut self.specs, &work.spec, &mut self.bundle.specs);
        if self.specs.len() > known {
            self.bytes += prost::Message::encoded_len(work.spec.as_ref());
        }
        let resume = work.resume.as_deref().map_or(0, prost::Message::encoded_len);
        self.bytes += resume;
        self.bytes += work.payload.as_ref().map_or(0, |payload| payload.len());
        self.bytes += 64 + work.name.len() + 8 * work.output_sizes.len() + 40 * work.inputs.len();
        let settings = position(&mut self.settings, &work.settings, &mut self.bundle.settings);
        self.bundle.tasks.push(wire::Placed {
            job: task.job.0,
            local: task.local.0,
            attempt: attempt.0,
            spec,
            entry: work.entry,
            duration_ns: work.duration.0,
            output_sizes: work.output_sizes,
            name: work.name.into_string(),
            payload: work.payload.map(|payload| *payload).unwrap_or_default(),
            inputs: work.inputs,
            settings,
            urgency: work.urgency,
            crash_count: work.deaths.into(),
            alone: work.alone,
            again: work.again,
            depth: work.depth,
            resume: work.resume.map(|resume| Box::new(Arc::unwrap_or_clone(resume))),
        });
    }
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.bundle.tasks.len()
    }
    /// Whether no further task should go into this message.
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= BUNDLE_TASKS_MAX || self.bytes >= PACKET_BYTES_MAX
    }
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.bundle.tasks.is_empty()
    }
    #[must_use]
    pub(crate) fn finish(self) -> wire::Bundle {
        self.bundle
    }
}

/// Neighbours in a bundle are mostly alike, so the last entries are searched first.
fn position<T: Clone>(known: &mut Vec<Arc<T>>, item: &Arc<T>, out: &mut Vec<T>) -> u32 {
    const LOOK_BACK: usize = 16;
    let recent = known.iter().enumerate().rev().take(LOOK_BACK);
    if let Some((at, _)) = recent.into_iter().find(|(_, other)| Arc::ptr_eq(other, item)) {
        return at as u32;
    }
    known.push(item.clone());
    out.push(item.as_ref().clone());
    (known.len() - 1) as u32
}

/// The tasks of a bundle. `None` if it is malformed: it refers to something that is not in it, or
/// to a partition that the cluster does not have.
#[must_use]
pub(crate) fn unpack(
    bundle: wire::Bundle,
    partitions: u32,
) -> Option<Vec<(TaskId, Attempt, Work)>> {
    let specs: Vec<_> = bundle.specs.into_iter().map(Arc::new).collect();
    let settings: Vec<_> = bundle.settings.into_iter().map(Arc::new).collect();
    let mut tasks = Vec::with_capacity(bundle.tasks.len());
    for placed in bundle.tasks {
        let work = Work {
            spec: specs.get(placed.spec as usize)?.clone(),
            settings: settings.get(placed.settings as usize)?.clone(),
            entry: placed.entry,
            duration: Span(placed.duration_ns),
            urgency: placed.urgency,
            output_sizes: placed.output_sizes,
            name: placed.name.into_boxed_str(),
            payload: Some(placed.payload).filter(|it| !it.is_empty()).map(Box::new),
            inputs: placed.inputs,
            deaths: u8::try_from(placed.crash_count).unwrap_or(u8::MAX),
            alone: placed.alone,
            again: placed.again,
            depth: placed.depth,
            resume: placed.resume.map(|resume| Arc::new(*resume)),
        };
        let task = TaskId::new(placed.job, placed.local);
        if task.partition().0 >= partitions {
            return None;
        }
        tasks.push((task, Attempt(placed.attempt), work));
    }
    Some(tasks)
}

//! A task graph in memory: flat columns and two adjacency lists, suitable for 10^7 tasks.

pub(crate) mod builder;
pub(crate) mod crash_limit;
pub(crate) mod error;
pub(crate) mod info;
pub(crate) mod job_options;
pub(crate) mod layout;
pub(crate) mod needs;
pub(crate) mod notice;
pub(crate) mod pin;
pub mod quantity;
mod urgency;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use proto::{Span, wire};

use crate::graph::crash_limit::CrashLimit;
use crate::graph::job_options::JobOptions;

/// A finished, checked graph. [`crate::GraphBuilder::finish`] makes it; it is acyclic and not
/// empty.
///
/// Tasks are numbered from 0. A task's *slots* are its incoming edges, in order: edges that carry
/// an object first, then edges that only order.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) name: String,
    pub(crate) specs: Vec<wire::Spec>,
    pub(crate) task_spec: Vec<u32>,
    pub(crate) task_entry: Vec<u64>,
    pub(crate) task_duration_ns: Vec<u64>,
    /// Sizes that override the spec's; both are empty if no task has any.
    pub(crate) size_starts: Vec<u32>,
    pub(crate) sizes: Vec<u64>,
    /// Names that override the spec's; both are empty if no task has one.
    pub(crate) name_starts: Vec<u32>,
    pub(crate) name_text: String,
    /// Arguments of calls that override the spec's, by task.
    pub(crate) payloads: BTreeMap<u32, Box<[u8]>>,
    /// Empty if every task may start at once.
    pub(crate) release_ns: Vec<u64>,
    /// The users' estimates; [`NO_ESTIMATE`] for tasks without one. Empty if no task has one.
    pub(crate) estimate_ns: Vec<u64>,
    /// As long as `sizes`, or empty.
    pub(crate) size_estimates: Vec<u64>,
    /// By child: slot `s` of task `t` is edge `slot_starts[t] + s`.
    pub(crate) slot_starts: Vec<u32>,
    pub(crate) edge_parent: Vec<u32>,
    pub(crate) edge_output: Vec<u32>,
    /// By parent; children ascend.
    pub(crate) child_starts: Vec<u32>,
    pub(crate) child_task: Vec<u32>,
    pub(crate) child_slot: Vec<u32>,
    /// Parents before children; `None` if the task numbers are such an order.
    pub(crate) order: Option<Vec<u32>>,
    pub(crate) edge_pairs: u64,
    pub(crate) clocks_loads: bool,
    /// The durations of commands are measured, not estimated.
    pub(crate) commands_are_measured: bool,
    /// Determines the placement of loads.
    pub(crate) seed: u64,
    pub(crate) job: JobOptions,
    pub(crate) notes: Vec<String>,
    /// The warnings of its reader, each with its position.
    pub(crate) warnings: Vec<String>,
}

/// The value for a missing estimate of a duration.
pub(crate) const NO_ESTIMATE: u64 = u64::MAX;

/// The kind of tasks that only put data on the nodes before a run.
pub const KIND_LOAD: &str = "load";

/// One task without its edges.
#[derive(Clone, Copy, Debug)]
pub struct TaskView<'g> {
    pub index: u32,
    pub spec_index: u32,
    #[doc(hidden)]
    pub spec: &'g wire::Spec,
    pub entry: u64,
    pub duration_ns: u64,
    /// Overrides the sizes in `spec.outputs` unless empty.
    pub output_sizes: &'g [u64],
    /// Overrides `spec.name` unless empty.
    pub name: &'g str,
    /// The arguments of a call; overrides those of the spec unless empty.
    pub payload: &'g [u8],
}

/// An edge seen from one of its ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The task at the other end.
    pub task: u32,
    /// The child's input slot.
    pub slot: u32,
    /// 0: order only; k+1: the child reads the parent's output k.
    pub output: u32,
}

impl Graph {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its file says of the job as a whole.
    #[must_use]
    pub fn job_options(&self) -> &JobOptions {
        &self.job
    }

    /// The number of tasks; never 0.
    #[must_use]
    pub fn len(&self) -> usize {
        self.task_spec.len()
    }

    /// Always false: a workflow without tasks is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.task_spec.is_empty()
    }

    /// Task numbers, ascending.
    #[must_use]
    pub fn indices(&self) -> Range<u32> {
        0..self.task_spec.len() as u32
    }

    /// For crates of this workspace: the messages that describe the tasks.
    #[doc(hidden)]
    #[must_use]
    pub fn specs(&self) -> &[wire::Spec] {
        &self.specs
    }

    /// All tasks, ascending.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = TaskView<'_>> {
        self.indices().map(|task| self.task(task))
    }

    /// # Panics
    /// When `task` is not below [`Graph::len`].
    #[must_use]
    pub fn task(&self, task: u32) -> TaskView<'_> {
        let at = task as usize;
        let spec_index = self.task_spec[at];
        let name = match self.name_starts.get(at + 1) {
            Some(end) => &self.name_text[self.name_starts[at] as usize..*end as usize],
            None => "",
        };
        TaskView {
            index: task,
            spec_index,
            spec: &self.specs[spec_index as usize],
            entry: self.task_entry[at],
            duration_ns: self.task_duration_ns[at],
            output_sizes: self.sizes_of(at),
            name,
            payload: self.payloads.get(&task).map(AsRef::as_ref).unwrap_or_default(),
        }
    }

    fn sizes_of(&self, at: usize) -> &[u64] {
        match self.size_starts.get(at + 1) {
            Some(end) => &self.sizes[self.size_starts[at] as usize..*end as usize],
            None => &[],
        }
    }

    /// The task's name for users: its own, or its spec's with `{i}` replaced.
    #[must_use]
    pub fn task_name(&self, task: u32) -> String {
        let view = self.task(task);
        if !view.name.is_empty() {
            view.name.to_owned()
        } else if !view.spec.name.is_empty() {
            expand(&view.spec.name, view.entry)
        } else {
            format!("t{task}")
        }
    }

    /// The number of incoming edges, which is the number of input slots.
    #[must_use]
    pub fn slots(&self, task: u32) -> u32 {
        let at = task as usize;
        self.slot_starts[at + 1] - self.slot_starts[at]
    }

    /// The number of outgoing edges.
    #[must_use]
    pub fn fan_out(&self, task: u32) -> u32 {
        let at = task as usize;
        self.child_starts[at + 1] - self.child_starts[at]
    }

    /// Incoming edges by slot.
    pub fn parents(&self, task: u32) -> impl ExactSizeIterator<Item = Edge> + '_ {
        self.parents_from(task, 0)
    }

    /// Incoming edges from `first_slot` on.
    pub(crate) fn parents_from(
        &self,
        task: u32,
        first_slot: u32,
    ) -> impl ExactSizeIterator<Item = Edge> + '_ {
        let at = task as usize;
        let start = self.slot_starts[at];
        (start + first_slot..self.slot_starts[at + 1]).map(move |edge| Edge {
            task: self.edge_parent[edge as usize],
            slot: edge - start,
            output: self.edge_output[edge as usize],
        })
    }

    /// Outgoing edges, children ascending.
    pub fn children(&self, task: u32) -> impl ExactSizeIterator<Item = Edge> + '_ {
        self.children_from(task, 0)
    }

    /// Outgoing edges from the `first`-th on.
    pub(crate) fn children_from(
        &self,
        task: u32,
        first: u32,
    ) -> impl ExactSizeIterator<Item = Edge> + '_ {
        let at = task as usize;
        (self.child_starts[at] + first..self.child_starts[at + 1]).map(move |edge| {
            let child = self.child_task[edge as usize];
            let slot = self.child_slot[edge as usize];
            let output = self.edge_output[(self.slot_starts[child as usize] + slot) as usize];
            Edge { task: child, slot, output }
        })
    }

    /// The number of edges, with one for each object between two tasks.
    #[must_use]
    pub fn edges(&self) -> u64 {
        self.edge_parent.len() as u64
    }

    /// The number of distinct pairs of parent and child, which users call edges.
    #[must_use]
    pub fn edge_pairs(&self) -> u64 {
        self.edge_pairs
    }

    /// Tasks without parents.
    pub fn roots(&self) -> impl Iterator<Item = u32> + '_ {
        self.indices().filter(|&task| self.slots(task) == 0)
    }

    /// Tasks without children.
    pub fn sinks(&self) -> impl Iterator<Item = u32> + '_ {
        self.indices().filter(|&task| self.fan_out(task) == 0)
    }

    /// The executing slots that the task takes.
    #[must_use]
    pub fn cpus(&self, task: u32) -> u32 {
        self.specs[self.task_spec[task as usize] as usize].cpus.max(1)
    }

    /// The bytes of one output, as far as they are known before the run.
    #[must_use]
    pub fn output_bytes(&self, task: u32, output: usize) -> u64 {
        match self.sizes_of(task as usize).get(output) {
            Some(size) => *size,
            None => self.task(task).spec.outputs.get(output).map_or(0, |o| o.size_bytes),
        }
    }

    /// The bytes that flow along an edge from `parent`.
    #[must_use]
    pub fn edge_bytes(&self, parent: u32, output: u32) -> u64 {
        match output.checked_sub(1) {
            Some(output) => self.output_bytes(parent, output as usize),
            None => 0,
        }
    }

    /// The earliest start of the task, in nanoseconds from the beginning of the workflow.
    #[must_use]
    pub fn release_ns(&self, task: u32) -> u64 {
        self.release_ns.get(task as usize).copied().unwrap_or(0)
    }

    /// True if any task has a release time after the beginning of the workflow.
    #[must_use]
    pub fn has_releases(&self) -> bool {
        self.release_ns.iter().any(|release_ns| *release_ns > 0)
    }

    /// A user's estimate of the task's duration, if recorded.
    #[must_use]
    pub fn estimated_duration_ns(&self, task: u32) -> Option<u64> {
        self.estimate_ns.get(task as usize).copied().filter(|ns| *ns != NO_ESTIMATE)
    }

    /// A user's estimate of an output's size; the true size if there is no estimate.
    #[must_use]
    pub fn estimated_output_bytes(&self, task: u32, output: usize) -> u64 {
        let at = task as usize;
        if self.size_estimates.is_empty() || output >= self.sizes_of(at).len() {
            return self.output_bytes(task, output);
        }
        self.size_estimates[self.size_starts[at] as usize + output]
    }

    /// The tasks that represent files of the submitter, each with its file.
    pub fn uploads(&self) -> impl Iterator<Item = (u32, PathBuf)> + '_ {
        let is_upload =
            |task: &TaskView<'_>| matches!(task.spec.body, Some(wire::spec::Body::Upload(_)));
        self.tasks().filter(is_upload).map(|task| (task.index, PathBuf::from(task.name)))
    }

    /// True if the task runs a program or a function, of unknown duration.
    #[must_use]
    pub fn is_command(&self, task: u32) -> bool {
        let spec = &self.specs[self.task_spec[task as usize] as usize];
        matches!(spec.body, Some(wire::spec::Body::Command(_) | wire::spec::Body::Call(_)))
    }

    /// Sets the durations of commands to those measured in a run, by name. Returns the number of
    /// commands that did not run then; they get the duration 0.
    pub fn measure_commands(&mut self, took: impl Fn(&str) -> Option<Span>) -> u64 {
        let mut unknown = 0;
        for task in self.indices().filter(|&task| self.is_command(task)).collect::<Vec<u32>>() {
            let measured = took(&self.task_name(task));
            unknown += u64::from(measured.is_none());
            self.task_duration_ns[task as usize] = measured.unwrap_or_default().0;
        }
        self.commands_are_measured = true;
        unknown
    }

    /// Sets the crash limit of all tasks without one.
    pub fn set_crash_limit(&mut self, CrashLimit(limit): CrashLimit) {
        self.specs.iter_mut().filter(|spec| spec.crash_limit == 0).for_each(|spec| {
            spec.crash_limit = limit;
        });
    }

    /// Lets the tasks with these needs wait for nodes that offer them.
    #[doc(hidden)]
    pub fn await_nodes(&mut self, needs: impl Fn(&wire::Spec) -> bool) {
        self.specs.iter_mut().filter(|spec| needs(spec)).for_each(|spec| spec.awaits_nodes = true);
    }

    /// Marks the outputs without readers as kept. Returns their number.
    pub fn keep_results(&mut self) -> u64 {
        let mut is_read = vec![false; self.len()];
        let mut spec_is_read = vec![false; self.specs.len()];
        for child in self.indices() {
            for edge in self.parents(child).filter(|edge| edge.output > 0) {
                is_read[edge.task as usize] = true;
                spec_is_read[self.task_spec[edge.task as usize] as usize] = true;
            }
        }
        // Tasks with and without readers may share a spec: the latter get a spec of their own.
        let mut kept: BTreeMap<u32, u32> = BTreeMap::new();
        for task in self.indices().filter(|&task| !is_read[task as usize]) {
            let spec = self.task_spec[task as usize];
            let specs = &mut self.specs;
            self.task_spec[task as usize] = *kept.entry(spec).or_insert_with(|| {
                let mut of_its_own = spec as usize;
                if spec_is_read[spec as usize] {
                    of_its_own = specs.len();
                    specs.push(specs[spec as usize].clone());
                }
                specs[of_its_own].outputs.iter_mut().for_each(|output| output.keep = true);
                u32::try_from(of_its_own).expect("fewer specs than tasks")
            });
        }
        let keeps = |task| self.task(task).spec.outputs.iter().filter(|output| output.keep).count();
        self.indices().map(keeps).sum::<usize>() as u64
    }

    /// Sets the number of nodes that must have each of these outputs before its task counts as
    /// done. `is_meant` gets the file of an output, and whether it is kept. Returns the number of
    /// outputs in specs.
    pub fn set_replicas(&mut self, replicas: u32, is_meant: impl Fn(&str, bool) -> bool) -> usize {
        let outputs = self.specs.iter_mut().flat_map(|spec| &mut spec.outputs);
        let meant = outputs.filter(|output| is_meant(&output.file, output.keep));
        meant.map(|output| output.replicas = replicas).count()
    }

    /// True if the task only puts data on the nodes before a run.
    #[must_use]
    pub fn is_load(&self, task: u32) -> bool {
        self.specs[self.task_spec[task as usize] as usize].kind == KIND_LOAD
    }

    #[must_use]
    pub fn has_loads(&self) -> bool {
        self.specs.iter().any(|spec| spec.kind == KIND_LOAD)
    }

    /// True if the clock of a run starts at the end of its last load, not at its submission.
    #[must_use]
    pub fn clock_starts_after_loads(&self) -> bool {
        self.has_loads() && !self.clocks_loads
    }

    /// The warnings about passages that break the format: one line for each kind.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// True if the text specifies a duration for any task, or has only no-ops.
    #[must_use]
    pub fn has_durations(&self) -> bool {
        let is_noop = |spec: &wire::Spec| matches!(spec.body, Some(wire::spec::Body::Noop(_)));
        self.task_duration_ns.iter().any(|&duration_ns| duration_ns > 0)
            || self.specs.iter().all(is_noop)
    }

    /// Notes for users of the graph.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Multiplies durations and release times, rounded to whole nanoseconds; 0 sets them to 0.
    ///
    /// # Panics
    /// When `factor` is negative or not a number.
    pub fn scale_durations(&mut self, factor: f64) {
        assert!(factor >= 0.0, "durations are scaled by a number of at least 0, not {factor}");
        let known = |ns: &&mut u64| **ns != NO_ESTIMATE;
        let durations = self.task_duration_ns.iter_mut().chain(&mut self.estimate_ns);
        for duration_ns in durations.chain(&mut self.release_ns).filter(known) {
            *duration_ns = (*duration_ns as f64 * factor).round() as u64;
        }
    }

    /// Task numbers, parents before children.
    pub fn topological(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.indices().map(move |position| match &self.order {
            Some(order) => order[position as usize],
            None => position,
        })
    }
}

pub use proto::entry::expand;

//! A builder of graphs from specs.

use std::collections::BTreeMap;
use std::sync::Arc;

use workloads::{Graph, TaskInit};

use crate::{ClientError, TaskSpec};

/// Collects the tasks and the edges of a graph, which [`crate::Client::submit`] takes.
///
/// Tasks are numbered from 0 in the order of their addition.
///
/// ```
/// use starling_client::{GraphBuilder, GraphTask, TaskSpec};
///
/// let mut graph = GraphBuilder::new("two-steps");
/// let write = TaskSpec::command(["sh", "-c", "echo {i} > {out:n}"]).output("n", "n");
/// let add = TaskSpec::command(["sh", "-c", "cat a b | paste -sd+ | bc > {out:sum}"])
///     .input("a", "a")
///     .input("b", "b")
///     .kept_output("sum", "sum");
/// let one = graph.task(&write, GraphTask { entry: 1, ..GraphTask::default() });
/// let two = graph.task(&write, GraphTask { entry: 2, ..GraphTask::default() });
/// let sum = graph.task(&add, GraphTask::default());
/// graph.read(sum, one, 0);
/// graph.read(sum, two, 0);
/// let graph = graph.finish().expect("it has no cycle");
/// assert_eq!((graph.len(), graph.edges()), (3, 2));
/// ```
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    builder: workloads::GraphBuilder,
    specs: Vec<TaskSpec>,
    /// The numbers of the specs, by their address.
    spec_numbers: BTreeMap<usize, u32>,
    /// Of each task, the number of its spec and the number of outputs that it reads.
    tasks: Vec<(u32, u32)>,
    wrong: Option<String>,
}

/// One task of a graph, apart from its spec.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GraphTask {
    /// The `{i}` of templates.
    pub entry: u64,
    /// Overrides the name of the spec, unless it is empty.
    pub name: String,
    /// Of a sleep or spin, in nanoseconds.
    pub duration_ns: u64,
    /// Of a task that is no command: the bytes of its outputs.
    pub output_sizes: Vec<u64>,
    /// The earliest start, in nanoseconds from the submission of the job.
    pub release_ns: u64,
    /// Of a command: its variable STARLING_ENTRY. Default: the `entry`.
    pub value: Option<String>,
}

impl GraphBuilder {
    /// `name`: the name of the job in lists.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            builder: workloads::GraphBuilder::new(name),
            specs: Vec::new(),
            spec_numbers: BTreeMap::new(),
            tasks: Vec::new(),
            wrong: None,
        }
    }

    /// Adds a task and returns its number. Tasks with clones of one spec share it.
    pub fn task(&mut self, spec: &TaskSpec, task: GraphTask) -> u32 {
        let (builder, specs) = (&mut self.builder, &mut self.specs);
        let number =
            *self.spec_numbers.entry(Arc::as_ptr(&spec.spec).addr()).or_insert_with(|| {
                specs.push(spec.clone());
                builder.spec(spec.spec.as_ref().clone())
            });
        self.tasks.push((number, 0));
        let payload = task.value.map_or(Vec::new(), |value| format!("={value}").into_bytes());
        builder.task(TaskInit {
            payload: &payload,
            entry: task.entry,
            name: &task.name,
            duration_ns: task.duration_ns,
            output_sizes: &task.output_sizes,
            release_ns: task.release_ns,
            ..TaskInit::of(number)
        })
    }

    /// The next input of `child` is this output of `parent`. `child` starts when `parent` is done.
    pub fn read(&mut self, child: u32, parent: u32, output: u32) {
        let outputs = self.spec_of(parent).map(TaskSpec::outputs);
        let Some(outputs) = outputs.filter(|_| (child as usize) < self.tasks.len()) else {
            return self.refuse(format!("an edge from task {parent} to {child}: no such task"));
        };
        if output as usize >= outputs {
            return self.refuse(format!("task {parent} has {outputs} outputs, and no {output}"));
        }
        self.tasks[child as usize].1 += 1;
        self.builder.edge(parent, child, output + 1);
    }

    /// `child` starts when `parent` is done, and reads nothing of it.
    pub fn after(&mut self, child: u32, parent: u32) {
        if child.max(parent) as usize >= self.tasks.len() {
            return self.refuse(format!("an edge from task {parent} to {child}: no such task"));
        }
        self.builder.edge(parent, child, 0);
    }

    fn spec_of(&self, task: u32) -> Option<&TaskSpec> {
        let &(spec, _) = self.tasks.get(task as usize)?;
        self.specs.get(spec as usize)
    }

    fn refuse(&mut self, text: String) {
        self.wrong.get_or_insert(text);
    }

    /// Checks everything. Takes time linear in tasks and edges.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: there are no tasks, a cycle, an edge of an unknown task or output,
    /// a task that reads more or fewer outputs than its spec has inputs, a relative path of an
    /// external file, or too many of something.
    pub fn finish(self) -> Result<Graph, ClientError> {
        if let Some(text) = self.wrong {
            return Err(ClientError::Refused(text));
        }
        let mut externals = self.specs.iter().flat_map(|spec| &spec.spec.externals);
        if let Some(relative) = externals.find(|external| !external.path.starts_with('/')) {
            let text = format!("external file '{}' is no absolute path", relative.path);
            return Err(ClientError::Refused(text));
        }
        for (task, &(spec, read)) in self.tasks.iter().enumerate() {
            let inputs = self.specs[spec as usize].inputs();
            if read as usize != inputs {
                let text =
                    format!("task {task} reads {read} outputs, and its spec has {inputs} inputs");
                return Err(ClientError::Refused(text));
            }
        }
        self.builder.finish().map_err(|error| ClientError::Refused(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(build: impl FnOnce(&mut GraphBuilder)) -> String {
        let mut graph = GraphBuilder::new("g");
        build(&mut graph);
        graph.finish().unwrap_err().to_string()
    }

    #[test]
    fn mistakes_are_named_and_do_not_panic() {
        let writer = TaskSpec::noop().output("o", "o");
        let reader = TaskSpec::noop().input("i", "i");
        assert_eq!(refusal(|_| ()), "the workflow has no tasks");
        let text = refusal(|graph| {
            let parent = graph.task(&writer, GraphTask::default());
            let child = graph.task(&reader, GraphTask::default());
            graph.read(child, parent, 1);
        });
        assert_eq!(text, "task 0 has 1 outputs, and no 1");
        let text = refusal(|graph| {
            graph.task(&reader, GraphTask::default());
        });
        assert_eq!(text, "task 0 reads 0 outputs, and its spec has 1 inputs");
        let text = refusal(|graph| {
            let task = graph.task(&writer, GraphTask::default());
            graph.after(task, 7);
        });
        assert_eq!(text, "an edge from task 7 to 0: no such task");
        let text = refusal(|graph| {
            let task = graph.task(&writer, GraphTask::default());
            graph.after(task, task);
        });
        assert_eq!(text, "task 'noop' depends on itself");
        let text = refusal(|graph| {
            let spec = TaskSpec::command(["true"]).external("e", "data/e", "e");
            graph.task(&spec, GraphTask::default());
        });
        assert_eq!(text, "external file 'data/e' is no absolute path");
    }

    #[test]
    fn clones_of_a_spec_are_stored_once() {
        let spec = TaskSpec::sleep();
        let mut graph = GraphBuilder::new("g");
        for entry in 0..5 {
            graph.task(&spec.clone(), GraphTask { entry, ..GraphTask::default() });
        }
        graph.task(&spec.clone().name("other"), GraphTask::default());
        let graph = graph.finish().unwrap();
        assert_eq!((graph.len(), graph.specs().len()), (6, 2));
    }
}

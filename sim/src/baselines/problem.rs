//! A scheduling problem: a graph and a cluster, in the columns that global schedulers need. Times
//! are nanoseconds, sizes bytes.

use std::collections::BTreeMap;

use analysis::Kinds;
use workloads::{Graph, expand};

/// A workflow for a simulated global scheduler. Some of these compare all ready tasks at each step.
const GLOBAL_TASKS_MAX: usize = 1 << 20;

/// The maker of an object, or its place before the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maker {
    Task(u32),
    /// It is on this worker from the start.
    Worker(u32),
    /// It is outside the cluster, on a machine that runs nothing: [`Problem::origin`].
    Origin,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TaskSpec {
    /// Its number in its graph.
    pub name: u32,
    pub cores: u32,
    /// On a worker of speed 1.
    pub length_ns: u64,
    /// On each worker. Empty if lengths and speeds determine the cost.
    pub cost_ns: Vec<u64>,
    /// The task is unknown before this time.
    pub release_ns: u64,
    /// The user's estimate of its length.
    pub told_ns: Option<u64>,
    /// Objects, each once.
    pub inputs: Vec<u32>,
    pub outputs: Vec<u32>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ObjectSpec {
    pub bytes: u64,
    /// The user's estimate of its size.
    pub told_bytes: Option<u64>,
    pub maker: Maker,
    pub readers: Vec<u32>,
    /// False for the mere order of two tasks, which is known everywhere at once.
    pub travels: bool,
    /// True if a reader on its maker's worker also waits for a transfer.
    pub travels_at_home: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WorkerSpec {
    pub cores: u32,
    /// The speed relative to the machine of the given lengths.
    pub speed: f64,
}

/// The treatment of data that exists before the run: outputs of tasks that only load data, and
/// files that no task writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loads {
    /// The objects of load tasks are spread over the workers from the start. Other files are read
    /// in place without cost.
    #[default]
    OnWorkers,
    /// All are outside the cluster.
    AtOrigin,
}

/// A graph on a cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    pub tasks: Vec<TaskSpec>,
    pub objects: Vec<ObjectSpec>,
    pub workers: Vec<WorkerSpec>,
    /// If true, unread objects are transferred to the origin, and the run ends when they have
    /// arrived.
    pub returns_outputs: bool,
    /// The kind of each task, for schedulers that know the mean length of a kind.
    pub kinds: Vec<u32>,
    /// Tasks of the graph that only load data, and are no tasks here.
    pub loads: Vec<u32>,
}

/// The reason why a graph cannot be scheduled on a cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProblemError {
    #[error("task {task} needs {cores} cores, and no worker has more than {most}")]
    TooWide { task: u32, cores: u32, most: u32 },
    #[error("there are no workers")]
    NoWorkers,
    #[error("{tasks} tasks, and global schedulers take at most {most}: a node schedules more")]
    TooLarge { tasks: usize, most: usize },
}

impl TaskSpec {
    /// A task without inputs and outputs.
    #[must_use]
    pub fn new(name: u32, cores: u32, length_ns: u64) -> Self {
        let (cost_ns, inputs, outputs) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, cores, length_ns, cost_ns, release_ns: 0, told_ns: None, inputs, outputs }
    }
}

impl ObjectSpec {
    /// An object without readers.
    #[must_use]
    pub fn new(bytes: u64, maker: Maker) -> Self {
        let readers = Vec::new();
        Self { bytes, told_bytes: None, maker, readers, travels: true, travels_at_home: false }
    }
}

impl Problem {
    /// A problem of given tasks and objects. `outputs` of a task lists the objects that it makes,
    /// `inputs` those that it reads; the readers are computed.
    #[must_use]
    pub fn by_hand(
        tasks: Vec<TaskSpec>,
        mut objects: Vec<ObjectSpec>,
        workers: Vec<WorkerSpec>,
    ) -> Self {
        for (number, task) in tasks.iter().enumerate() {
            for &object in &task.inputs {
                objects[object as usize].readers.push(number as u32);
            }
        }
        let kinds = vec![0; tasks.len()];
        Self { tasks, objects, workers, returns_outputs: false, kinds, loads: Vec::new() }
    }

    /// Identical workers.
    #[must_use]
    pub fn alike(workers: u32, cores: u32) -> Vec<WorkerSpec> {
        vec![WorkerSpec { cores, speed: 1.0 }; workers as usize]
    }

    /// # Errors
    /// When the graph does not fit the workers.
    pub fn of(graph: &Graph, workers: Vec<WorkerSpec>, loads: Loads) -> Result<Self, ProblemError> {
        let most = GLOBAL_TASKS_MAX;
        if graph.len() > most {
            return Err(ProblemError::TooLarge { tasks: graph.len(), most });
        }
        let mut problem = Self {
            tasks: Vec::with_capacity(graph.len()),
            objects: Vec::new(),
            workers,
            returns_outputs: false,
            kinds: Vec::with_capacity(graph.len()),
            loads: graph.indices().filter(|&task| graph.is_load(task)).collect(),
        };
        let objects = problem.add_tasks_and_objects(graph, loads);
        problem.connect(graph, &objects);
        if loads == Loads::AtOrigin {
            problem.add_files(graph);
        }
        problem.check()?;
        Ok(problem)
    }

    /// Returns the first object of each task of the graph. The object for mere order follows the
    /// outputs.
    fn add_tasks_and_objects(&mut self, graph: &Graph, loads: Loads) -> Vec<u32> {
        let mut first_of = Vec::with_capacity(graph.len());
        let kinds = Kinds::of(graph);
        let has_told = graph.indices().any(|it| graph.estimated_duration_ns(it).is_some());
        let mut dealt = 0;
        for task in graph.tasks() {
            let first = self.objects.len() as u32;
            first_of.push(first);
            let maker = match loads {
                _ if !graph.is_load(task.index) => Maker::Task(self.tasks.len() as u32),
                Loads::AtOrigin => Maker::Origin,
                Loads::OnWorkers => {
                    dealt += 1;
                    Maker::Worker((dealt - 1) % self.workers.len().max(1) as u32)
                }
            };
            let outputs = task.spec.outputs.len();
            for output in 0..outputs {
                let bytes = graph.output_bytes(task.index, output);
                let told = graph.estimated_output_bytes(task.index, output);
                let told_bytes = has_told.then_some(told);
                self.objects.push(ObjectSpec { told_bytes, ..ObjectSpec::new(bytes, maker) });
            }
            self.objects.push(ObjectSpec { travels: false, ..ObjectSpec::new(0, maker) });
            if matches!(maker, Maker::Task(_)) {
                self.tasks.push(TaskSpec {
                    outputs: (first..=first + outputs as u32).collect(),
                    release_ns: graph.release_ns(task.index),
                    told_ns: graph.estimated_duration_ns(task.index),
                    ..TaskSpec::new(task.index, graph.cpus(task.index), task.duration_ns)
                });
                self.kinds.push(kinds.of_task(graph, task.index));
            }
        }
        first_of
    }

    fn connect(&mut self, graph: &Graph, first_of: &[u32]) {
        for number in 0..self.tasks.len() {
            let name = self.tasks[number].name;
            for edge in graph.parents(name) {
                let outputs = graph.task(edge.task).spec.outputs.len() as u32;
                let at = if edge.output > 0 { edge.output - 1 } else { outputs };
                let object = first_of[edge.task as usize] + at;
                if !self.tasks[number].inputs.contains(&object) {
                    self.tasks[number].inputs.push(object);
                    self.objects[object as usize].readers.push(number as u32);
                }
            }
        }
    }

    /// Adds each file that no task writes, once.
    fn add_files(&mut self, graph: &Graph) {
        let mut known: BTreeMap<String, u32> = BTreeMap::new();
        for number in 0..self.tasks.len() {
            let task = graph.task(self.tasks[number].name);
            for file in &task.spec.externals {
                let next = self.objects.len() as u32;
                let object = *known.entry(expand(&file.key, task.entry)).or_insert(next);
                if object == next {
                    self.objects.push(ObjectSpec::new(file.size_bytes, Maker::Origin));
                }
                self.tasks[number].inputs.push(object);
                self.objects[object as usize].readers.push(number as u32);
            }
        }
    }

    /// # Errors
    /// When a task fits no worker.
    pub fn check(&self) -> Result<(), ProblemError> {
        let most = self.workers.iter().map(|worker| worker.cores).max();
        let most = most.ok_or(ProblemError::NoWorkers)?;
        match self.tasks.iter().find(|task| task.cores > most) {
            Some(&TaskSpec { name, cores, .. }) => {
                Err(ProblemError::TooWide { task: name, cores, most })
            }
            None => Ok(()),
        }
    }

    /// The number of the machine outside the cluster in networks.
    #[must_use]
    pub fn origin(&self) -> usize {
        self.workers.len()
    }

    /// The time of a task on a worker.
    #[must_use]
    pub fn run_ns(&self, task: usize, worker: usize) -> u64 {
        let spec = &self.tasks[task];
        match spec.cost_ns.get(worker) {
            Some(&cost_ns) => cost_ns,
            None => (spec.length_ns as f64 / self.workers[worker].speed).round() as u64,
        }
    }

    /// The tasks that make an input of this one, each once.
    pub fn parents(&self, task: usize) -> impl Iterator<Item = usize> + '_ {
        let inputs = &self.tasks[task].inputs;
        let maker = |object: u32| match self.objects[object as usize].maker {
            Maker::Task(maker) => Some(maker as usize),
            Maker::Worker(_) | Maker::Origin => None,
        };
        let seen = move |at: usize, found: usize| {
            inputs[..at].iter().any(|&before| maker(before) == Some(found))
        };
        inputs
            .iter()
            .enumerate()
            .filter_map(move |(at, &object)| Some((at, maker(object)?)))
            .filter(move |&(at, found)| !seen(at, found))
            .map(|(_, found)| found)
    }

    /// The edges to readers of this task: the reader and the object. A reader of two objects occurs
    /// twice.
    pub fn reads(&self, task: usize) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.tasks[task].outputs.iter().flat_map(|&object| {
            let readers = &self.objects[object as usize].readers;
            readers.iter().map(move |&reader| (reader as usize, object))
        })
    }

    /// Task numbers with parents before children, then by number.
    #[must_use]
    pub fn topological(&self) -> Vec<usize> {
        let mut missing: Vec<usize> =
            (0..self.tasks.len()).map(|task| self.parents(task).count()).collect();
        let mut order: Vec<usize> =
            (0..self.tasks.len()).filter(|&task| missing[task] == 0).collect();
        let mut told = vec![usize::MAX; self.tasks.len()];
        let mut at = 0;
        while let Some(&task) = order.get(at) {
            for (reader, _) in self.reads(task) {
                if std::mem::replace(&mut told[reader], task) == task {
                    continue;
                }
                missing[reader] -= 1;
                if missing[reader] == 0 {
                    order.push(reader);
                }
            }
            at += 1;
        }
        order
    }
}

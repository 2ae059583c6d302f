//! What is to be scheduled, and on what: a graph and a cluster in the columns that global
//! schedulers need. Times are nanoseconds, sizes bytes.

use std::collections::BTreeMap;

use analysis::Kinds;
use workloads::{Graph, expand};

/// Where an object is before anything ran, or who makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maker {
    Task(u32),
    /// It lies on this worker from the start.
    Worker(u32),
    /// It lies outside the cluster, on a machine that runs nothing: [`Problem::origin`].
    Origin,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TaskSpec {
    /// Its number in the graph it came from.
    pub name: u32,
    pub cores: u32,
    /// On a worker of speed 1.
    pub length_ns: u64,
    /// On each worker, where lengths and speeds do not say it; empty where they do.
    pub cost_ns: Vec<u64>,
    /// It is not there before this.
    pub release_ns: u64,
    /// What the user says of its length.
    pub told_ns: Option<u64>,
    /// Objects, each once.
    pub inputs: Vec<u32>,
    pub outputs: Vec<u32>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ObjectSpec {
    pub bytes: u64,
    /// What the user says of its size.
    pub told_bytes: Option<u64>,
    pub maker: Maker,
    pub readers: Vec<u32>,
    /// False for the mere order of two tasks: it is known everywhere at once.
    pub travels: bool,
    /// A reader on its maker's worker has to wait for it too, as long as the network says.
    pub travels_at_home: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WorkerSpec {
    pub cores: u32,
    /// How much faster than the machine the lengths were told for.
    pub speed: f64,
}

/// What becomes of data that are there before the run: those of tasks that only put data where a
/// run shall find them, and files that no task writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loads {
    /// The objects of such tasks lie on the workers from the start, dealt out in turn; such files
    /// are read where they lie, for nothing.
    #[default]
    OnWorkers,
    /// All lie outside the cluster.
    AtOrigin,
}

/// A graph on a cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    pub tasks: Vec<TaskSpec>,
    pub objects: Vec<ObjectSpec>,
    pub workers: Vec<WorkerSpec>,
    /// Objects that nobody reads travel to the origin, and the run ends when they are there.
    pub returns_outputs: bool,
    /// Tasks of one number are of one kind: who knows kinds knows their mean length.
    pub kinds: Vec<u32>,
    /// Tasks of the graph that are none here: they only put data somewhere.
    pub loads: Vec<u32>,
}

/// Why a graph cannot be scheduled on a cluster.
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
    /// One that reads and writes nothing yet.
    #[must_use]
    pub fn new(name: u32, cores: u32, length_ns: u64) -> Self {
        let (cost_ns, inputs, outputs) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, cores, length_ns, cost_ns, release_ns: 0, told_ns: None, inputs, outputs }
    }
}

impl ObjectSpec {
    /// One that nobody reads yet.
    #[must_use]
    pub fn new(bytes: u64, maker: Maker) -> Self {
        let readers = Vec::new();
        Self { bytes, told_bytes: None, maker, readers, travels: true, travels_at_home: false }
    }
}

impl Problem {
    /// Tasks and objects by hand. Whoever makes an object has it among its outputs, whoever is to
    /// read it among its inputs; readers are found here.
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

    /// Alike workers.
    #[must_use]
    pub fn alike(workers: u32, cores: u32) -> Vec<WorkerSpec> {
        vec![WorkerSpec { cores, speed: 1.0 }; workers as usize]
    }

    /// # Errors
    /// When the graph does not fit the workers.
    pub fn of(graph: &Graph, workers: Vec<WorkerSpec>, loads: Loads) -> Result<Self, ProblemError> {
        let most = proto::limits::GLOBAL_TASKS_MAX;
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

    /// The first object of each task of the graph; its order comes after its outputs.
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

    /// Files that no task writes, each once.
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

    /// The machine outside the cluster, as networks number it.
    #[must_use]
    pub fn origin(&self) -> usize {
        self.workers.len()
    }

    /// How long a task takes on a worker.
    #[must_use]
    pub fn run_ns(&self, task: usize, worker: usize) -> u64 {
        let spec = &self.tasks[task];
        match spec.cost_ns.get(worker) {
            Some(&cost_ns) => cost_ns,
            None => (spec.length_ns as f64 / self.workers[worker].speed).round() as u64,
        }
    }

    /// Tasks that make an input of this one, each once.
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

    /// Edges to the tasks that read of this one: the reader, and the object. A reader of two
    /// objects comes twice.
    pub fn reads(&self, task: usize) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.tasks[task].outputs.iter().flat_map(|&object| {
            let readers = &self.objects[object as usize].readers;
            readers.iter().map(move |&reader| (reader as usize, object))
        })
    }

    /// Task numbers, parents before children; of equal ones the lower number first.
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

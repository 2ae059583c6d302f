//! A scheduler's advance knowledge of lengths and sizes (the *imode* of Beránek, Ada Böhm, et al.,
//! "Analysis of workflow schedulers in simulated distributed environments", 2022).

use std::collections::BTreeMap;

use super::problem::{ObjectSpec, Problem, TaskSpec};

/// The advance knowledge of a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Info {
    /// True lengths and sizes.
    #[default]
    Exact,
    /// One mean length and one mean size for everything.
    Mean,
    /// The user's estimate for each task, or the mean of its kind without one.
    User,
}

impl Info {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Mean => "mean",
            Self::User => "user",
        }
    }
}

/// Estimated lengths in ns on a worker of speed 1, and estimated sizes in bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct Estimates {
    info: Info,
    length_ns: Vec<f64>,
    bytes: Vec<f64>,
}

impl Estimates {
    #[must_use]
    pub fn new(problem: &Problem, info: Info) -> Self {
        let lengths = || problem.tasks.iter().map(|task| task.length_ns as f64);
        let sizes = || problem.objects.iter().map(|object| object.bytes as f64);
        let (length_ns, bytes) = match info {
            Info::Exact => (lengths().collect(), sizes().collect()),
            Info::Mean => {
                let real = |at: &usize| problem.objects[*at].travels;
                let known = (0..problem.objects.len()).filter(real);
                let mean_bytes = mean(known.map(|at| problem.objects[at].bytes as f64));
                let bytes = |at: usize| if real(&at) { mean_bytes } else { 0.0 };
                let mean_ns = mean(lengths());
                (
                    vec![mean_ns; problem.tasks.len()],
                    (0..problem.objects.len()).map(bytes).collect(),
                )
            }
            Info::User => (declared_lengths(problem), declared_sizes(problem)),
        };
        Self { info, length_ns, bytes }
    }

    /// On a worker of speed 1.
    #[must_use]
    pub fn length_ns(&self, task: usize) -> f64 {
        self.length_ns[task]
    }

    #[must_use]
    pub fn bytes(&self, object: u32) -> f64 {
        self.bytes[object as usize]
    }

    /// On a certain worker. With exact knowledge a cost table is used, otherwise the worker's
    /// speed.
    #[must_use]
    pub fn run_ns(&self, problem: &Problem, task: usize, worker: usize) -> f64 {
        match self.info {
            Info::Exact => problem.run_ns(task, worker) as f64,
            Info::Mean | Info::User => self.length_ns[task] / problem.workers[worker].speed,
        }
    }

    /// The mean over the workers with enough cores.
    #[must_use]
    pub fn mean_run_ns(&self, problem: &Problem, task: usize) -> f64 {
        let fits = |worker: &usize| problem.workers[*worker].cores >= problem.tasks[task].cores;
        let workers = (0..problem.workers.len()).filter(fits);
        mean(workers.map(|worker| self.run_ns(problem, task, worker)))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    if count > 0 { sum / f64::from(count) } else { 0.0 }
}

fn declared_lengths(problem: &Problem) -> Vec<f64> {
    let mut sums = BTreeMap::<u32, (f64, f64)>::new();
    for (task, &kind) in problem.tasks.iter().zip(&problem.kinds) {
        let sum = sums.entry(kind).or_default();
        *sum = (sum.0 + task.length_ns as f64, sum.1 + 1.0);
    }
    let told = |(task, kind): (&TaskSpec, &u32)| match task.told_ns {
        Some(told_ns) => told_ns as f64,
        None => sums[kind].0 / sums[kind].1,
    };
    problem.tasks.iter().zip(&problem.kinds).map(told).collect()
}

/// Without user estimates, the k-th outputs of all tasks of one kind have the same size.
fn declared_sizes(problem: &Problem) -> Vec<f64> {
    let mut sums = BTreeMap::<(u32, usize), (f64, f64)>::new();
    for (task, &kind) in problem.tasks.iter().zip(&problem.kinds) {
        for (at, &object) in task.outputs.iter().enumerate() {
            let sum = sums.entry((kind, at)).or_default();
            *sum = (sum.0 + problem.objects[object as usize].bytes as f64, sum.1 + 1.0);
        }
    }
    let known = |object: &ObjectSpec| object.told_bytes.unwrap_or(object.bytes) as f64;
    let mut bytes: Vec<f64> = problem.objects.iter().map(known).collect();
    for (task, &kind) in problem.tasks.iter().zip(&problem.kinds) {
        for (at, &object) in task.outputs.iter().enumerate() {
            let spec = &problem.objects[object as usize];
            if spec.told_bytes.is_none() && spec.travels {
                let (sum, count) = sums[&(kind, at)];
                bytes[object as usize] = sum / count;
            }
        }
    }
    bytes
}

//! Bounds of the benchmark shapes without their graphs, in one pass over the task numbers.
//!
//! Pipelines need one word of memory, trees one entry for each inner task. Children of a tree are
//! consecutive. So a fan-out reads its parents' entries in order, and a fan-in writes its
//! children's entries in the order in which they are read.

use proto::Span;
use workloads::generate::{Implicit, Shape};

use super::area;
use super::paper::{Gather, PaperBound, PaperModel};

/// The number of tasks with durations and sizes drawn at once.
const BLOCK: u64 = 4096;

/// The bounds that can be computed for a shape of any size.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamBounds {
    pub critical_path: Span,
    pub area: Span,
    pub mean_task: Span,
    /// One for each model, in their order.
    pub paper: Vec<PaperBound>,
}

impl StreamBounds {
    /// Takes linear time in the number of tasks.
    ///
    /// # Panics
    /// When there are no slots.
    #[must_use]
    pub fn of(implicit: &Implicit, slots: u32, models: &[PaperModel]) -> Self {
        assert!(slots > 0, "a graph needs at least one slot to run");
        let tasks = implicit.tasks();
        let mut work_ns = 0_u128;
        let mut longest_ns = 0;
        each_block(implicit, false, |_, durations_ns, _| {
            work_ns += durations_ns.iter().map(|ns| u128::from(*ns)).sum::<u128>();
            longest_ns = durations_ns.iter().copied().max().unwrap_or(0).max(longest_ns);
        });
        let mean_s = work_ns as f64 / 1e9 / tasks as f64;
        let levels = Levels::of(implicit);
        let mut path_ns = longest_ns;
        let paper = models
            .iter()
            .map(|model| {
                let wait_s = model.form.waits_s(&levels.tasks, model.slots, mean_s);
                let last = walk(implicit, model, &levels, &wait_s);
                path_ns = last.path_ns;
                PaperBound::new(tasks as f64, last.end_s)
            })
            .collect();
        if models.is_empty() && !levels.is_bag() {
            let wait_s = vec![0.0; levels.tasks.len()];
            path_ns = walk(implicit, &PaperModel::on(slots), &levels, &wait_s).path_ns;
        }
        let mean_task = Span((work_ns / u128::from(tasks)) as u64);
        Self { critical_path: Span(path_ns), area: area(work_ns, slots), mean_task, paper }
    }

    /// The larger of the two true bounds.
    #[must_use]
    pub fn lower(&self) -> Span {
        self.critical_path.max(self.area)
    }
}

/// Calls `see` for each block with the number of its first task, the durations and, if requested,
/// the sizes.
fn each_block(implicit: &Implicit, with_sizes: bool, mut see: impl FnMut(u64, &[u64], &[u64])) {
    let (mut durations_ns, mut sizes) = (Vec::new(), Vec::new());
    let mut start = 0;
    while start < implicit.tasks() {
        let end = (start + BLOCK).min(implicit.tasks());
        implicit.durations_ns(start..end, &mut durations_ns);
        if with_sizes {
            implicit.output_bytes(start..end, &mut sizes);
        }
        see(start, &durations_ns, &sizes);
        start = end;
    }
}

/// The end of a task: by the paper, and by the longest path to it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct End {
    end_s: f64,
    path_ns: u64,
}

impl End {
    fn or_later(&mut self, other: Self) {
        self.end_s = self.end_s.max(other.end_s);
        self.path_ns = self.path_ns.max(other.path_ns);
    }
}

/// The latest end of all tasks.
fn walk(implicit: &Implicit, model: &PaperModel, levels: &Levels, wait_s: &[f64]) -> End {
    let walk = Walk {
        levels,
        wait_s,
        per_byte_s: 1.0 / model.bandwidth_bytes_per_s,
        move_task_s: model.spec_bytes / model.bandwidth_bytes_per_s,
    };
    match levels.shape {
        Shape::Pipelines { length } => walk.pipelines(implicit, length),
        Shape::FanOut { degree } => walk.fan_out(implicit, degree),
        Shape::FanIn { degree } => walk.fan_in(implicit, degree),
    }
}

#[derive(Clone, Copy, Debug)]
struct Walk<'a> {
    levels: &'a Levels,
    wait_s: &'a [f64],
    per_byte_s: f64,
    move_task_s: f64,
}

impl Walk<'_> {
    #[inline]
    fn end(&self, ready: End, level: usize, duration_ns: u64) -> End {
        let ran_s = duration_ns as f64 / 1e9;
        End {
            end_s: ready.end_s + self.wait_s[level] + ran_s,
            path_ns: ready.path_ns.saturating_add(duration_ns),
        }
    }

    /// The time when the only input of a child of this task arrives.
    #[inline]
    fn alone(&self, parent: End, bytes: u64) -> End {
        let move_s = (bytes as f64 * self.per_byte_s).min(self.move_task_s);
        End { end_s: parent.end_s + move_s, ..parent }
    }

    fn pipelines(&self, implicit: &Implicit, length: u64) -> End {
        let (mut latest, mut ready) = (End::default(), End::default());
        let mut level = 0;
        each_block(implicit, true, |_, durations_ns, sizes| {
            for (duration_ns, bytes) in durations_ns.iter().zip(sizes) {
                if level == length {
                    (level, ready) = (0, End::default());
                }
                let end = self.end(ready, level as usize, *duration_ns);
                latest.or_later(end);
                ready = self.alone(end, *bytes);
                level += 1;
            }
        });
        latest
    }

    fn fan_out(&self, implicit: &Implicit, degree: u64) -> End {
        let inner = inner_tasks(implicit.tasks(), degree);
        // The earliest start of the children of each inner task.
        let mut ready: Vec<End> = Vec::with_capacity(inner as usize);
        let mut latest = End::default();
        let (mut level, mut level_left) = (0, 1);
        let (mut parent, mut parent_left) = (0, degree);
        each_block(implicit, true, |start, durations_ns, sizes| {
            for (task, (duration_ns, bytes)) in (start..).zip(durations_ns.iter().zip(sizes)) {
                if level_left == 0 {
                    level += 1;
                    level_left = self.levels.tasks[level];
                }
                level_left -= 1;
                let mut from = End::default();
                if task > 0 {
                    if parent_left == 0 {
                        (parent, parent_left) = (parent + 1, degree);
                    }
                    parent_left -= 1;
                    from = ready[parent];
                }
                let end = self.end(from, level, *duration_ns);
                latest.or_later(end);
                if task < inner {
                    ready.push(self.alone(end, *bytes));
                }
            }
        });
        latest
    }

    /// Numbers here run from the last task, which is the root of the tree, down to the first.
    fn fan_in(&self, implicit: &Implicit, degree: u64) -> End {
        let last = implicit.tasks() - 1;
        let inner = inner_tasks(implicit.tasks(), degree);
        // Tasks with parents, by falling number; the parents of one task are consecutive.
        let mut ready: Vec<End> = Vec::with_capacity(inner as usize);
        let mut read = 0;
        let (mut gather, mut path_ns) = (Gather::default(), 0);
        let mut depth = self.levels.depths.len() - 1;
        let mut latest = End::default();
        each_block(implicit, true, |start, durations_ns, sizes| {
            for (task, (duration_ns, bytes)) in (start..).zip(durations_ns.iter().zip(sizes)) {
                let number = last - task;
                let mut from = End::default();
                if number < inner {
                    from = ready[read];
                    read += 1;
                }
                if number < self.levels.depths[depth].first {
                    depth -= 1;
                }
                let end = self.end(from, self.levels.depths[depth].level(number), *duration_ns);
                latest.or_later(end);
                gather.add(0, end.end_s, *bytes as f64 * self.per_byte_s);
                path_ns = end.path_ns.max(path_ns);
                if number > 0 && (number - 1).is_multiple_of(degree) {
                    let end_s = gather.ready(self.move_task_s).0;
                    ready.push(End { end_s, path_ns });
                    (gather, path_ns) = (Gather::default(), 0);
                }
            }
        });
        latest
    }
}

/// The number of tasks of a tree that are not leaves.
fn inner_tasks(tasks: u64, degree: u64) -> u64 {
    (tasks - 1).div_ceil(degree)
}

/// The number of tasks on each level, which is the longest distance from a root.
#[derive(Clone, Debug)]
struct Levels {
    /// A tree of degree 1 is a chain here.
    shape: Shape,
    tasks: Vec<u64>,
    /// Of a fan-in, by distance from the last task.
    depths: Vec<Depth>,
}

/// The tasks of a tree at one distance from its root, with numbers counted from the root.
#[derive(Clone, Copy, Debug)]
struct Depth {
    first: u64,
    tasks: u64,
    /// This number of tasks, from the first on, have descendants on the deepest level.
    full: u64,
    /// The number of levels below those tasks.
    below: usize,
}

impl Depth {
    /// The longest distance of a task from a leaf below it.
    fn level(&self, number: u64) -> usize {
        if number - self.first < self.full { self.below } else { self.below - 1 }
    }
}

impl Levels {
    fn of(implicit: &Implicit) -> Self {
        let tasks = implicit.tasks();
        match implicit.shape() {
            Shape::FanOut { degree: 1 } | Shape::FanIn { degree: 1 } => Self::chains(tasks, tasks),
            Shape::Pipelines { length } => Self::chains(tasks, length),
            shape @ Shape::FanOut { degree } => {
                let tasks = depths(tasks, degree).iter().map(|depth| depth.tasks).collect();
                Self { shape, tasks, depths: Vec::new() }
            }
            shape @ Shape::FanIn { degree } => {
                let depths = depths(tasks, degree);
                let mut tasks = vec![0; depths.len()];
                for depth in &depths {
                    tasks[depth.below] += depth.full;
                    if depth.full < depth.tasks {
                        tasks[depth.below - 1] += depth.tasks - depth.full;
                    }
                }
                Self { shape, tasks, depths }
            }
        }
    }

    fn chains(tasks: u64, length: u64) -> Self {
        let longest = length.min(tasks);
        let (whole, rest) = (tasks / length, tasks % length);
        let level_tasks = (0..longest).map(|level| whole + u64::from(level < rest)).collect();
        Self { shape: Shape::Pipelines { length }, tasks: level_tasks, depths: Vec::new() }
    }

    fn is_bag(&self) -> bool {
        self.tasks.len() == 1
    }
}

/// The rows of a complete tree, the root's first.
fn depths(tasks: u64, degree: u64) -> Vec<Depth> {
    let mut depths = Vec::new();
    let (mut first, mut width) = (0, 1_u64);
    while first < tasks {
        let of_depth = width.min(tasks - first);
        depths.push(Depth { first, tasks: of_depth, full: 0, below: 0 });
        first += of_depth;
        width = width.saturating_mul(degree);
    }
    // Ancestors of the deepest row, upwards.
    let mut full = depths.last().map_or(0, |deepest| deepest.tasks);
    for (below, depth) in depths.iter_mut().rev().enumerate() {
        (depth.full, depth.below) = (full, below);
        full = full.div_ceil(degree);
    }
    depths
}

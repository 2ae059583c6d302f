//! Levels of tasks: the lengths of the paths before and behind them, in nanoseconds.

use super::problem::Problem;

/// The longest path from the start of each task to an end of the graph, including the task
/// (*b-level*). `run` is a task's length, `carry` the time of an object between two tasks.
#[must_use]
pub fn b_levels(
    problem: &Problem,
    run: impl Fn(usize) -> f64,
    carry: impl Fn(u32) -> f64,
) -> Vec<f64> {
    let mut levels = vec![0.0; problem.tasks.len()];
    for task in problem.topological().into_iter().rev() {
        let behind = problem.reads(task).map(|(reader, object)| levels[reader] + carry(object));
        levels[task] = run(task) + behind.fold(0.0, f64::max);
    }
    levels
}

/// The longest path from a start of the graph to the start of each task (*t-level*).
#[must_use]
pub fn t_levels(
    problem: &Problem,
    run: impl Fn(usize) -> f64,
    carry: impl Fn(u32) -> f64,
) -> Vec<f64> {
    let mut levels = vec![0.0_f64; problem.tasks.len()];
    for task in problem.topological() {
        for (reader, object) in problem.reads(task) {
            levels[reader] = levels[reader].max(levels[task] + run(task) + carry(object));
        }
    }
    levels
}

/// T-levels as Estee computes them. A reader of several objects of one parent is notified once, but
/// waits for one notification for each object. So this reader and all tasks behind it are never
/// finished. All tasks behind such edges keep a level of 0 or little more.
pub(super) fn estee_t_levels(problem: &Problem, run: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut levels = vec![0.0_f64; problem.tasks.len()];
    let mut untold: Vec<usize> = problem.tasks.iter().map(|task| task.inputs.len()).collect();
    let mut finished: Vec<usize> =
        (0..problem.tasks.len()).filter(|&task| untold[task] == 0).collect();
    let mut told_by = vec![usize::MAX; problem.tasks.len()];
    while let Some(task) = finished.pop() {
        for (reader, _) in problem.reads(task) {
            if std::mem::replace(&mut told_by[reader], task) == task {
                continue;
            }
            levels[reader] = levels[reader].max(levels[task] + run(task));
            untold[reader] -= 1;
            if untold[reader] == 0 {
                finished.push(reader);
            }
        }
    }
    levels
}

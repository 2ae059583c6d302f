//! `starling await`: waits inside a task, without a slot, for tasks of the job.

use clap::Args;
use client::{Awaited, Verdict};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard};

use crate::inside::handles::{self, Handles};
use crate::inside::{door, failure};

#[derive(Args, Debug)]
pub(crate) struct AwaitArgs {
    /// Children as 'starling spawn' prints them, such as 0 or 2-5; tasks of the job, such as 3.17
    /// [default: all children]
    #[arg(value_name = "ID")]
    tasks: Vec<Handles>,
}

#[derive(Serialize)]
struct AwaitedRow {
    handle: String,
    task: String,
    verdict: &'static str,
    exit_code: i32,
}

#[derive(Serialize)]
struct AwaitedTasks {
    tasks: Vec<AwaitedRow>,
}

pub(crate) fn run(context: &Context, args: &AwaitArgs) -> Done {
    let door = door()?;
    let job = std::env::var("STARLING_JOB_ID").ok();
    let (mut tasks, all) = handles::resolve(&args.tasks, job.as_deref()).map_err(|problem| {
        Failure::refused(problem).hint("a task awaits its children and tasks of its own job")
    })?;
    if all {
        tasks.clear();
    }
    let awaited = door.await_tasks(&tasks).map_err(failure)?;
    let all_done = awaited.iter().all(|task| task.verdict == Verdict::Done);
    let row = |awaited: &Awaited| AwaitedRow {
        handle: match awaited.child {
            Some(child) => child.to_string(),
            None => awaited.task.to_string(),
        },
        task: awaited.task.to_string(),
        verdict: word(awaited.verdict),
        exit_code: awaited.exit_code,
    };
    let tasks: Vec<AwaitedRow> = awaited.iter().map(row).collect();
    heard(match context.output.json {
        true => context.output.json(&AwaitedTasks { tasks }),
        false => {
            let cells = |row: AwaitedRow| vec![row.handle, row.verdict.to_owned()];
            let rows: Vec<Vec<String>> = tasks.into_iter().map(cells).collect();
            context.output.table(&["task", "verdict"], &rows)
        }
    })?;
    Ok(if all_done { Exit::Ok } else { Exit::Failed })
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Done => "done",
        Verdict::Failed => "failed",
        Verdict::Cancelled => "cancelled",
        Verdict::Skipped => "skipped",
    }
}

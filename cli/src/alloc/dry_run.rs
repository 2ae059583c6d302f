//! `starling alloc dry-run`: asks the batch system whether it would take a batch job.

use allocation::{Submission, System};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};

use crate::alloc::calls;
use crate::alloc::records::Records;
use crate::alloc::round::{cluster_name, place, program, write_scripts};

/// No allocation has this number.
const NUMBER: u64 = 0;

#[derive(Serialize)]
struct Checked {
    queue: String,
    command: String,
    answer: String,
}

pub(super) async fn run(context: &Context, name: &str) -> Done {
    let dir = context.dir()?;
    let client = context.connect().await?;
    let queue = Records::new(&client)?.config(name).await?;
    let (system, nodes) = (queue.system, queue.max_nodes_per_alloc);
    let job = format!("st-{}-{name}-{NUMBER}", cluster_name(&client));
    let submission = Submission { queue, number: NUMBER, name: job, nodes };
    let place = place(&program()?, &dir, name, NUMBER);
    let folder = std::path::PathBuf::from(&place.folder);
    let written = write_scripts(&submission, &place);
    let call = system.check(&submission, &place);
    let ran = match &written {
        Ok(()) => calls::run(&call).await.map_err(Failure::refused),
        Err(error) => Err(Failure::file(&folder, error)),
    };
    // Whatever the answer is, nothing stays.
    let _ = std::fs::remove_dir_all(&folder);
    let ran = ran?;
    let command = call.line();
    if !ran.is_ok {
        let text = format!("{system} refuses: {}", ran.why());
        let directives = allocation::backend::job_script(&submission, &place);
        let is_directive = |line: &&str| line.starts_with("#SBATCH") || line.starts_with("#PBS");
        let directives: Vec<_> = directives.lines().filter(is_directive).collect();
        let told = format!("the command was: {command}, with {}", directives.join(", "));
        return Err(Failure::refused(text).hint(told));
    }
    let answer = match system {
        System::Slurm => ran.why(),
        System::Pbs => held(system, &ran.stdout).await?,
    };
    match context.output.json {
        true => context.output.json(&Checked { queue: name.to_owned(), command, answer })?,
        false => context.output.line(&answer)?,
    }
    Ok(Exit::Ok)
}

/// Cancels the held batch job.
async fn held(system: System, output: &str) -> Result<String, Failure> {
    let job = system.job_id(output).map_err(Failure::refused)?;
    let cancelled = calls::run(&system.cancel(&job)).await;
    match cancelled.is_ok_and(|ran| ran.is_ok) {
        true => Ok(format!("{system} has taken batch job {job}, which was held and cancelled")),
        false => Err(Failure::refused(format!("batch job {job} is held and was not cancelled"))),
    }
}

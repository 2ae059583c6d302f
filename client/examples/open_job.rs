/*!
An adaptive loop over an open job: each round adds tasks that depend on the results of the round
before.

The loop searches the smallest number with a square of at least a goal. Each task tries one number,
and fails if it is too small. A last task reads the output of the task that found the number.

```sh
starling --dir /tmp/birds up --nodes 2
cargo run -p client --example open_job -- /tmp/birds
```
*/

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

use client::{
    Client, EndsPosition, EndsWatch, JobSettings, LocalId, NewTask, OpenJob, OpenOptions, Parent,
    TaskSpec, Verdict,
};

const GOAL: u64 = 2026;
const LARGEST: u64 = 10_000;
/// Tasks of one round.
const TRIES: u64 = 4;
const TRY: &str = r#"test $(({i} * {i})) -ge "$GOAL" && echo {i} > {out:number}"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("name the directory of a cluster")?.into();
    run(&dir, &mut std::io::stdout()).await
}

/// Runs the loop on the cluster in `dir`, and writes the progress and the result to `out`.
pub(crate) async fn run(dir: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(dir).await?;
    // Commands read and write real bytes.
    let settings = JobSettings { real_data: true, ..JobSettings::default() };
    let options =
        OpenOptions { name: "square-root".to_owned(), settings, ..OpenOptions::default() };
    let job = client.open_job(options).await?;
    let mut ends = client.watch_ends(job.id(), EndsPosition::default());

    let mut too_small = 0;
    let mut found = try_all(&job, &mut ends, &[LARGEST]).await?.pop_first();
    while let Some((number, (Verdict::Done, _))) = found
        && number - too_small > 1
    {
        let numbers = between(too_small, number);
        for (number, (verdict, task)) in try_all(&job, &mut ends, &numbers).await?.into_iter().rev()
        {
            match verdict {
                Verdict::Done => found = Some((number, (verdict, task))),
                _ => too_small = too_small.max(number),
            }
        }
        let largest = found.as_ref().map_or(LARGEST, |(number, _)| *number);
        writeln!(out, "it is above {too_small} and at most {largest}")?;
    }
    let Some((_, (Verdict::Done, task))) = found else {
        return Err(format!("the square of {LARGEST} is below {GOAL}").into());
    };

    // The answer is an input of a further task, which may run on another node.
    let report = TaskSpec::command(["sh", "-c", "echo the number is $(cat n) > {out:text}"])
        .name("report")
        .input("n", "n")
        .output("text", "text");
    let parents = vec![Parent { task, output: Some(0) }];
    let report = job.append(&report, NewTask { parents, ..NewTask::default() })?;
    while !ended(&mut ends).await?.contains_key(&report) {}
    out.write_all(&client.read_output(job.id(), report, 0).await?)?;

    // Outputs of an open job stay until they are released or the job is closed.
    job.release(&[task, report]).await?;
    job.close().await?;
    let end = client.wait_job(job.id(), |_| {}).await?;
    writeln!(out, "{} tasks were done, and {} failed", end.counts.done, end.counts.failed)?;
    Ok(())
}

/// Adds a task for each number, and waits for their ends.
async fn try_all(
    job: &OpenJob,
    ends: &mut EndsWatch,
    numbers: &[u64],
) -> Result<BTreeMap<u64, (Verdict, LocalId)>, Box<dyn Error>> {
    let spec = TaskSpec::command(["sh", "-c", TRY])
        .name("try-{i}")
        .env("GOAL", &GOAL.to_string())
        .output("number", "number");
    let mut open = BTreeMap::new();
    for &entry in numbers {
        open.insert(job.append(&spec, NewTask { entry, ..NewTask::default() })?, entry);
    }
    let mut tried = BTreeMap::new();
    while !open.is_empty() {
        for (task, verdict) in ended(ends).await? {
            // An end may come more than once.
            if let Some(number) = open.remove(&task) {
                tried.insert(number, (verdict, task));
            }
        }
    }
    Ok(tried)
}

/// The next ends of tasks.
async fn ended(ends: &mut EndsWatch) -> Result<BTreeMap<LocalId, Verdict>, Box<dyn Error>> {
    let ends = ends.next().await?.ok_or("the job has ended before its tasks")?;
    Ok(ends.into_iter().map(|end| (end.task, end.verdict)).collect())
}

/// At most [`TRIES`] numbers that divide the range between two numbers evenly.
fn between(below: u64, above: u64) -> Vec<u64> {
    let parts = (above - below).min(TRIES + 1);
    (1..parts).map(|part| below + (above - below) * part / parts).collect()
}

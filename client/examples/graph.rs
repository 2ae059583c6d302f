/*!
A map-reduce over commands with files: each map task counts the words of one text, and the reduce
task adds the counts.

```sh
starling --dir /tmp/birds up --nodes 2
cargo run -p starling-client --example graph -- /tmp/birds
```
*/

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

use starling_client::{Client, Graph, GraphBuilder, GraphTask, SubmitOptions, TaskSpec};

const TEXTS: [&str; 3] = [
    "a starling learns the songs of other birds",
    "a flock of starlings is a murmuration",
    "each bird of a murmuration follows seven other birds",
];

/// One line for each word and its number.
const COUNT: &str = r#"printf '%s\n' "$TEXT" | tr ' ' '\n' | sort | uniq -c > {out:counts}"#;
/// The arguments after the script are the files with the counts.
const ADD: &str = r#"cat "$@" | awk '{n[$2] += $1} END {for (w in n) print n[w], w}' \
    | LC_ALL=C sort -k1,1nr -k2 > {out:total}"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("name the directory of a cluster")?.into();
    run(&dir, &mut std::io::stdout()).await
}

/// Runs the graph on the cluster in `dir`, and writes the progress and the result to `out`.
pub(crate) async fn run(dir: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(dir).await?;
    let (graph, reduce) = word_count(&TEXTS)?;

    // A plan gives each task of the graph its id in the job.
    let options = SubmitOptions { name: "word-count".to_owned(), ..SubmitOptions::default() };
    let plan = client.plan(&graph, &options).await?;
    let job = client.submit_plan(&plan, &options).await?.job;

    let mut watch = client.watch_job(job);
    let mut last = None;
    while let Some(state) = watch.next().await? {
        writeln!(out, "{} of {} tasks have ended", state.counts.ended(), state.total)?;
        last = Some(state);
    }
    let end = last.ok_or("the job is not known")?;
    if !end.is_done() {
        let failure = end.failures.first();
        let why = failure.map_or_else(String::new, |it| format!("{}: {}", it.name, it.error));
        return Err(format!("the job is {}: {why}", end.phase).into());
    }

    let total = client.read_output(job, plan.local_id(reduce), 0).await?;
    out.write_all(&total)?;
    Ok(())
}

/// The graph, and the number of its reduce task.
fn word_count(texts: &[&str]) -> Result<(Graph, u32), Box<dyn Error>> {
    let mut graph = GraphBuilder::new("word-count");
    // One input for each map task; they share a name, and each has a file of its own.
    let mut add = TaskSpec::command(["sh", "-c", ADD, "add", "{in:counts}"]).name("add");
    for number in 0..texts.len() {
        add = add.input("counts", &format!("counts-{number}"));
    }
    let reduce = graph.task(&add.kept_output("total", "total"), GraphTask::default());
    for (entry, text) in (0..).zip(texts) {
        let count = TaskSpec::command(["sh", "-c", COUNT])
            .name("count-{i}")
            .env("TEXT", text)
            .output("counts", "counts");
        let map = graph.task(&count, GraphTask { entry, ..GraphTask::default() });
        graph.read(reduce, map, 0);
    }
    Ok((graph.finish()?, reduce))
}

//! Measures how fast tasks are added to an open job of a running cluster.
//!
//! ```text
//! starling up --nodes 1
//! cargo run --release -p starling-client --example append -- "$XDG_RUNTIME_DIR/starling/default" 1000000
//! ```

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::time::Instant;

use starling_client::{Client, NewTask, OpenOptions, TaskSpec};

const USAGE: &str = "usage: append DIR TASKS";

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dir, tasks] = words.as_slice() else { panic!("{USAGE}") };
    let tasks: u64 = tasks.parse().expect("a number of tasks");
    let client = Client::connect(dir.as_ref()).await.expect("a running cluster");
    let job = client.open_job(OpenOptions::default()).await.expect("an open job");
    let spec = TaskSpec::noop();
    let start = Instant::now();
    for entry in 0..tasks {
        let task = NewTask { entry, ..NewTask::default() };
        job.append(&spec, task).expect("the job is open");
        if entry % 256 == 0 {
            job.room().await.expect("the job is open");
        }
    }
    job.flush().await.expect("the job is open");
    let stored = start.elapsed().as_secs_f64();
    job.close().await.expect("the job is open");
    client.wait_job(job.id(), |_| {}).await.expect("it ends");
    let ended = start.elapsed().as_secs_f64();
    println!(
        "{tasks} tasks: stored {:.0}/s, ended {:.0}/s",
        tasks as f64 / stored,
        tasks as f64 / ended
    );

    let start = Instant::now();
    let job = client.open_job(OpenOptions::default()).await.expect("an open job");
    for _ in 0..100 {
        job.append(&spec, NewTask::default()).expect("the job is open");
        job.flush().await.expect("the job is open");
    }
    println!("one at a time: {:.2} ms each", start.elapsed().as_secs_f64() * 10.0);
    job.close().await.expect("the job is open");
}

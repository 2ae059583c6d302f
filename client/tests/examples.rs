//! The examples against real nodes in this process.

mod common;

#[path = "../examples/graph.rs"]
#[expect(dead_code, reason = "its main function")]
mod graph;
#[path = "../examples/open_job.rs"]
#[expect(dead_code, reason = "its main function")]
mod open_job;

use std::os::unix::fs::FileTypeExt;

use self::common::{cluster, stop};

/// Not a test of its own: the spawner of the nodes in the other tests. A node starts this program
/// with the argument `__spawner`, which the test harness takes for the name of a test.
#[test]
fn __spawner() {
    let input = std::fs::metadata("/proc/self/fd/0");
    if input.is_ok_and(|input| input.file_type().is_socket()) {
        executor::spawner::main();
    }
}

#[tokio::test]
async fn the_graph_counts_words_and_prints_them() {
    let (dir, nodes, _client) = cluster(2).await;
    let mut out = Vec::new();
    graph::run(dir.path(), &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    let counts: Vec<&str> = out.lines().filter(|line| !line.contains("tasks have ended")).collect();
    assert_eq!(counts[..4], ["4 a", "3 of", "2 birds", "2 murmuration"], "{out}");
    assert_eq!(counts.len(), 16, "{out}");
    assert!(out.contains("4 of 4 tasks have ended\n"), "{out}");
    stop(nodes);
}

#[tokio::test]
async fn the_open_job_finds_the_number() {
    let (dir, nodes, client) = cluster(2).await;
    let mut out = Vec::new();
    open_job::run(dir.path(), &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.starts_with("it is above 0 and at most 2000\n"), "{out}");
    assert!(out.contains("\nthe number is 46\n"), "{out}");
    let job = client.jobs(std::time::Duration::from_secs(30)).await.unwrap().jobs.remove(0);
    assert!(job.is_ended());
    assert_eq!(job.counts.skipped, 0);
    let end = format!("{} tasks were done, and {} failed\n", job.counts.done, job.counts.failed);
    assert!(out.ends_with(&end), "{out}");
    assert!(job.counts.failed > 0 && job.counts.done > 2, "{out}");
    stop(nodes);
}

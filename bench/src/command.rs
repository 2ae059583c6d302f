//! Commands: `true` through the system, compared with starting it directly.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context;
use proto::wire;
use workloads::{Graph, GraphBuilder, TaskInit};

use super::children::{cpu_us, tree_cpu_us};
use super::{Cluster, Report, Setting};

const PROGRAM: &str = "true";
/// The threads that start the program directly.
const BARE_THREADS: usize = 2;
/// A slot is idle while its last command is reported and its next one is handed over. A thread that
/// starts it directly does that itself. More slots than CPUs keep the CPUs busy.
const SLOTS: u32 = 16;

pub(super) async fn run(setting: &Setting) -> anyhow::Result<Report> {
    let resolved = setting.resolve(1, SLOTS, 2000);
    let mut report = Report::new("command", resolved);
    let graph = commands(resolved.tasks)?;
    let tasks = resolved.tasks as f64;
    let cluster = Cluster::start(resolved).await?;
    cluster.run(&commands(50)?, Default::default()).await?;
    bare(50)?;
    for _ in 0..resolved.rounds {
        let cpu_before = nodes_cpu_us(&cluster).await?;
        let start = Instant::now();
        cluster.run(&graph, Default::default()).await?;
        let ours = tasks / start.elapsed().as_secs_f64();
        let our_cpu_us = (nodes_cpu_us(&cluster).await? - cpu_before) / tasks;

        let own = std::process::id();
        let cpu_before = cpu_us(own)?;
        let bare = tasks / tokio::task::block_in_place(|| bare(resolved.tasks))?;
        let bare_cpu_us = (cpu_us(own)? - cpu_before) / tasks;
        report.add(vec![
            ("per_s", ours),
            ("cpu_us_per_task", our_cpu_us),
            ("bare_per_s", bare),
            ("bare_cpu_us_per_task", bare_cpu_us),
            ("over_bare", ours / bare),
            ("cpu_over_bare", our_cpu_us / bare_cpu_us),
        ]);
    }
    report.note("CPU time is that of the nodes, their helpers and the commands themselves");
    report.note(format!("bare: {BARE_THREADS} threads start '{PROGRAM}' and wait for it"));
    Ok(report)
}

/// The CPU time of all nodes with their descendants. The client does almost nothing here.
async fn nodes_cpu_us(cluster: &Cluster) -> anyhow::Result<f64> {
    cluster.pids().await?.into_iter().map(tree_cpu_us).sum()
}

fn commands(tasks: u64) -> anyhow::Result<Graph> {
    let mut builder = GraphBuilder::new("commands");
    let argv = vec![PROGRAM.to_owned()];
    let command = wire::Command { argv, ..wire::Command::default() };
    let spec = builder.spec(wire::Spec {
        kind: PROGRAM.to_owned(),
        name: format!("{PROGRAM}-{{i}}"),
        body: Some(wire::spec::Body::Command(command)),
        ..wire::Spec::default()
    });
    for entry in 0..tasks {
        builder.task(TaskInit { entry, ..TaskInit::of(spec) });
    }
    Ok(builder.finish()?)
}

/// The seconds for this number of starts.
fn bare(tasks: u64) -> anyhow::Result<f64> {
    let left = AtomicU64::new(tasks);
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    let start_all = || {
        while take().is_ok() {
            let status = Command::new(PROGRAM)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .with_context(|| format!("'{PROGRAM}' cannot be started"))?;
            anyhow::ensure!(status.success(), "'{PROGRAM}' failed: {status}");
        }
        Ok(())
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..BARE_THREADS).map(|_| scope.spawn(start_all)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    Ok(start.elapsed().as_secs_f64())
}

//! Memory of waiting tasks: the growth of the nodes when this many more tasks wait.

use std::time::Duration;

use client::SubmitOptions;

use super::{Cluster, Report, Resolved, Round, Setting, cluster};

pub(super) async fn run(setting: &Setting) -> anyhow::Result<Report> {
    let mut resolved = setting.resolve(4, 1, 1_000_000);
    // In one process the client's own graph would count.
    resolved.processes = true;
    let mut report = Report::new("memory", resolved);
    // One root that sleeps; all others wait for it.
    let text = format!("star-out:tasks={},duration=24h", resolved.tasks + 1);
    let graph = cluster::generate(&text)?;
    for _ in 0..resolved.rounds {
        // A new cluster each time: memory freed by one job would hide the growth by the next.
        report.add(round(resolved, &graph).await?);
    }
    report.note("resident memory of all nodes, their store's buffers included");
    Ok(report)
}

async fn round(resolved: Resolved, graph: &workloads::Graph) -> anyhow::Result<Round> {
    let cluster = Cluster::start(resolved).await?;
    cluster.run(&cluster::generate("bag:tasks=10000")?, Default::default()).await?;
    let before = cluster.resident_bytes().await?;
    let handle = cluster.client().submit(graph, SubmitOptions::default()).await?;
    wait_until_waiting(&cluster, resolved.tasks).await?;
    let after = settled(&cluster).await?;
    cluster.client().cancel(handle.job, &[]).await?;
    let grown = after.saturating_sub(before) as f64;
    Ok(vec![
        ("bytes_per_task", grown / resolved.tasks as f64),
        ("before_mib", before as f64 / f64::from(1 << 20)),
        ("after_mib", after as f64 / f64::from(1 << 20)),
    ])
}

/// Acceptance means stored; the homes load the tasks right after it.
async fn wait_until_waiting(cluster: &Cluster, tasks: u64) -> anyhow::Result<()> {
    while cluster.node_states().await?.iter().map(|state| state.waiting).sum::<u64>() < tasks {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Resident memory once it has stopped growing.
async fn settled(cluster: &Cluster) -> anyhow::Result<u64> {
    let mut last = cluster.resident_bytes().await?;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = cluster.resident_bytes().await?;
        if now <= last {
            return Ok(last);
        }
        last = now;
    }
}

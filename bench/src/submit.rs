//! Acceptance: from the first byte of the submission to the durable answer, before any task has
//! run.

use std::time::Instant;

use client::SubmitOptions;

use super::{Cluster, Report, Setting, cluster};

pub(super) async fn run(setting: &Setting) -> anyhow::Result<Report> {
    let resolved = setting.resolve(4, 1, 1_000_000);
    let mut report = Report::new("submit", resolved);
    // The tasks would sleep for a day: except for one per slot they never leave the queue.
    let graph = cluster::generate(&format!("bag:tasks={},duration=24h", resolved.tasks))?;
    let tasks = resolved.tasks as f64;
    let cluster = Cluster::start(resolved).await?;
    cluster.run(&cluster::generate("bag:tasks=10000")?, Default::default()).await?;
    for _ in 0..resolved.rounds {
        let cpu_before = cluster.cpu().await?;
        let start = Instant::now();
        let handle = cluster.client().submit(&graph, SubmitOptions::default()).await?;
        let wall_s = start.elapsed().as_secs_f64();
        let cpu_us = cluster.cpu().await?.since_us(&cpu_before);
        report.add(vec![
            ("per_s", tasks / wall_s),
            ("cpu_us_per_task", cpu_us / tasks),
            ("wall_s", wall_s),
        ]);
        cluster.client().cancel(handle.job, &[]).await?;
        cluster.client().raw().wait_job(handle.job, |_| {}).await?;
    }
    Ok(report)
}

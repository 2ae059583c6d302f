//! No-op tasks: the cost of the system itself.

use std::time::Instant;

use super::{Cluster, Report, Round, Setting, cluster};

pub(super) async fn run(setting: &Setting) -> anyhow::Result<Report> {
    let resolved = setting.resolve(4, 1, 1_000_000);
    let mut report = Report::new("noop", resolved);
    let graph = cluster::generate(&format!("bag:tasks={}", resolved.tasks))?;
    let cluster = Cluster::start(resolved).await?;
    // The first tasks open sessions and files, which is not measured.
    cluster.run(&cluster::generate("bag:tasks=10000")?, Default::default()).await?;
    for _ in 0..resolved.rounds {
        report.add(round(&cluster, &graph).await?);
    }
    Ok(report)
}

async fn round(cluster: &Cluster, graph: &workloads::Graph) -> anyhow::Result<Round> {
    let cpu_before = cluster.cpu().await?;
    let start = Instant::now();
    let ran = cluster.run(graph, Default::default()).await?;
    let wall_s = start.elapsed().as_secs_f64();
    let cpu_after = cluster.cpu().await?;
    let resident_mib = cluster.resident_bytes().await? as f64 / f64::from(1 << 20);
    let tasks = graph.len() as f64;
    Ok(vec![
        ("per_s", tasks / wall_s),
        ("cpu_us_per_task", cpu_after.since_us(&cpu_before) / tasks),
        ("client_cpu_us_per_task", cpu_after.client_since_us(&cpu_before) / tasks),
        ("accept_s", ran.accepted.duration_since(start).as_secs_f64()),
        ("wall_s", wall_s),
        // The growth of this figure over the rounds shows the memory that finished tasks leave
        // behind.
        ("resident_mib", resident_mib),
    ])
}

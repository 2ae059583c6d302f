//! Sleeping tasks: the idle time of the slots.

use std::time::Instant;

use super::{Cluster, Report, SleepArgs, cluster};

pub(super) async fn run(args: &SleepArgs) -> anyhow::Result<Report> {
    let resolved = args.setting.resolve(4, 8, 2000);
    let mut report = Report::new("sleep", resolved);
    let (tasks, duration_ms) = (resolved.tasks, args.duration_ms);
    let graph = cluster::generate(&format!("bag:tasks={tasks},duration={duration_ms}ms"))?;
    let slots = f64::from(resolved.nodes * resolved.slots);
    // Whole rounds of all slots: no scheduler can need fewer.
    let ideal_s = (tasks as f64 / slots).ceil() * f64::from(duration_ms) / 1e3;
    let cluster = Cluster::start(resolved).await?;
    cluster.run(&cluster::generate("bag:tasks=100")?, Default::default()).await?;
    for _ in 0..resolved.rounds {
        let cpu_before = cluster.cpu().await?;
        let start = Instant::now();
        cluster.run(&graph, Default::default()).await?;
        let wall_s = start.elapsed().as_secs_f64();
        let cpu_us = cluster.cpu().await?.since_us(&cpu_before);
        report.add(vec![
            ("per_s", tasks as f64 / wall_s),
            ("cpu_us_per_task", cpu_us / tasks as f64),
            ("wall_over_ideal", wall_s / ideal_s),
            ("wall_s", wall_s),
        ]);
    }
    report.note(format!("ideal: {ideal_s:.3} s"));
    Ok(report)
}

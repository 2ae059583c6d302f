//! A chain of no-ops: the time from a task's end to the end of the next.

use std::time::Instant;

use client::{Submit, SubmitOptions};
use proto::{JobId, PartitionId, wire};
use workloads::{Graph, GraphBuilder, Placement, Plan, TaskInit};

use super::{Cluster, Report, Setting, unary};

pub(super) async fn run(setting: &Setting) -> anyhow::Result<Report> {
    let resolved = setting.resolve(2, 1, 1000);
    anyhow::ensure!(resolved.nodes >= 2, "a chain across nodes needs at least 2 of them");
    let mut report = Report::new("chain", resolved);
    let cluster = Cluster::start(resolved).await?;
    let unary = unary::PingPong::start().await?;
    let hops = resolved.tasks as f64;
    cross(&cluster, 100).await?;
    home(&cluster, 100).await?;
    unary.round_trip_us(200).await?;
    for _ in 0..resolved.rounds {
        let unary_us = unary.round_trip_us(resolved.tasks).await?;
        let (cross_s, crossings) = cross(&cluster, resolved.tasks).await?;
        let home_s = home(&cluster, resolved.tasks).await?;
        let (cross_us, home_us) = (cross_s * 1e6 / hops, home_s * 1e6 / hops);
        report.add(vec![
            ("per_s", hops / cross_s),
            ("cross_us_per_hop", cross_us),
            ("home_us_per_hop", home_us),
            ("unary_us", unary_us),
            ("cross_over_unary", cross_us / unary_us),
            ("home_over_unary", home_us / unary_us),
            ("hops_between_nodes", crossings as f64),
        ]);
    }
    report.note("unary: a gRPC call of 100 bytes and its answer, two threads of one process");
    report.note("a chain's time includes its submission and the news of its end");
    Ok(report)
}

/// Each task's successor has its home on another node. Returns the seconds, and the hops between
/// nodes.
pub(super) async fn cross(cluster: &Cluster, tasks: u64) -> anyhow::Result<(f64, u64)> {
    let job = cluster.client().next_job().await?;
    let (graph, crossings) = alternating(cluster.client(), job, tasks)?;
    let start = Instant::now();
    let options = SubmitOptions { job: Some(job), ..SubmitOptions::default() };
    cluster.run(&graph, options).await?;
    Ok((start.elapsed().as_secs_f64(), crossings))
}

/// The whole chain on one node.
async fn home(cluster: &Cluster, tasks: u64) -> anyhow::Result<f64> {
    let order: Vec<u32> = (0..tasks as u32).collect();
    let graph = chain(&order)?;
    let start = Instant::now();
    cluster
        .run(&graph, SubmitOptions { submit: Submit::Worst, ..SubmitOptions::default() })
        .await?;
    Ok(start.elapsed().as_secs_f64())
}

/// A chain in this order of its tasks' numbers.
fn chain(order: &[u32]) -> anyhow::Result<Graph> {
    let mut builder = GraphBuilder::new("chain");
    let spec = builder.spec(wire::Spec {
        kind: "noop".to_owned(),
        body: Some(wire::spec::Body::Noop(wire::Noop {})),
        ..wire::Spec::default()
    });
    order.iter().for_each(|_| {
        builder.task(TaskInit::of(spec));
    });
    order.windows(2).for_each(|pair| builder.edge(pair[0], pair[1], 0));
    Ok(builder.finish()?)
}

/// The chain from node to node of a cluster.
pub(super) fn alternating(
    client: &client::Client,
    job: JobId,
    tasks: u64,
) -> anyhow::Result<(Graph, u64)> {
    let nodes = client.nodes();
    let mut homes: Vec<Vec<PartitionId>> = vec![Vec::new(); nodes.len()];
    let at = |partition| {
        let home = client.home(partition);
        nodes.iter().position(|node| *node == home).expect("one of them")
    };
    for partition in (0..client.partitions()).map(PartitionId) {
        homes[at(partition)].push(partition);
    }
    through(&homes, at, job, tasks)
}

/// Lays a chain alternately through these homes. Placement by number ignores edges, so the homes of
/// the tasks are known before the edges are made.
pub(super) fn through(
    homes: &[Vec<PartitionId>],
    at: impl Fn(PartitionId) -> usize,
    job: JobId,
    tasks: u64,
) -> anyhow::Result<(Graph, u64)> {
    let order: Vec<u32> = (0..tasks as u32).collect();
    let bag = chain(&order)?;
    let plan = Plan::new(&bag, job, Placement::Hash, homes);
    let home = |task: u32| at(plan.local_id(task).partition());
    let mut by_home: Vec<Vec<u32>> = vec![Vec::new(); homes.len()];
    for task in (0..tasks as u32).rev() {
        by_home[home(task)].push(task);
    }
    let mut order = Vec::with_capacity(tasks as usize);
    while by_home.iter().any(|left| !left.is_empty()) {
        order.extend(by_home.iter_mut().filter_map(Vec::pop));
    }
    let crossings = order.windows(2).filter(|pair| home(pair[0]) != home(pair[1])).count();
    Ok((chain(&order)?, crossings as u64))
}

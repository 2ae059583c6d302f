//! Calls of a function that does nothing, in Python workers.

use std::time::Instant;

use proto::{codec, wire};
use workloads::{Graph, GraphBuilder, TaskInit};

use super::children::tree_cpu_us;
use super::{Cluster, Report, Setting};

/// A function without arguments that costs next to nothing.
const FUNCTION: &str = "builtins:dict";

pub(super) async fn run(setting: &Setting) -> anyhow::Result<Report> {
    let resolved = setting.resolve(4, 2, 100_000);
    let mut report = Report::new("call", resolved);
    let graph = calls(resolved.tasks)?;
    let cluster = Cluster::start(resolved).await?;
    // The first calls start the workers, which is not measured.
    cluster.run(&calls(1000)?, Default::default()).await?;
    let calls = resolved.tasks as f64;
    for _ in 0..resolved.rounds {
        let cpu_before = nodes_cpu_us(&cluster).await?;
        let start = Instant::now();
        cluster.run(&graph, Default::default()).await?;
        let wall_s = start.elapsed().as_secs_f64();
        let cpu_us = nodes_cpu_us(&cluster).await? - cpu_before;
        report.add(vec![
            ("per_s", calls / wall_s),
            ("cpu_us_per_call", cpu_us / calls),
            ("wall_s", wall_s),
        ]);
    }
    report.note(format!("the function is {FUNCTION}, without arguments; python3 runs it"));
    report.note("CPU time is that of the nodes, their helpers and the workers");
    Ok(report)
}

/// The CPU time of all nodes with their descendants. The client does almost nothing here.
async fn nodes_cpu_us(cluster: &Cluster) -> anyhow::Result<f64> {
    cluster.pids().await?.into_iter().map(tree_cpu_us).sum()
}

fn calls(tasks: u64) -> anyhow::Result<Graph> {
    let mut builder = GraphBuilder::new("calls");
    let call = wire::Call {
        body: FUNCTION.as_bytes().to_vec().into(),
        body_codec: codec::TEXT.into(),
        payload: b"[]".to_vec().into(),
        codec: codec::JSON.into(),
        ..wire::Call::default()
    };
    let spec = builder.spec(wire::Spec {
        kind: FUNCTION.to_owned(),
        name: "call-{i}".to_owned(),
        body: Some(wire::spec::Body::Call(call)),
        ..wire::Spec::default()
    });
    for entry in 0..tasks {
        builder.task(TaskInit { entry, ..TaskInit::of(spec) });
    }
    Ok(builder.finish()?)
}

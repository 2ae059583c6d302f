//! `starling run`: a cluster for one workflow, from the first byte to the summary.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use analysis::{Bounds, PaperBound, PaperModel, RunReport};
use clap::Args;
use client::{Client, SubmitOptions, now_ns};
use proto::event::End;
use proto::wire::{self, JobState, spec::Body};
use proto::{JobId, NodeId, ObjectId, TaskId, Time};
use workloads::{Graph, Placement, Plan};

use crate::args::{ClusterArgs, DataKind, LoadArgs, PlaceArgs, PlacementName, TimeoutArgs};
use crate::embed::{Cluster, ClusterPlan};
use crate::errors::{Done, Exit, Failure};
use crate::progress::Progress;
use crate::story::{self, Committed, Logs};
use crate::units::{Bandwidth, Timespan};
use crate::workload::load;
use crate::{Context, jobs, summary};

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// A workflow file, or a generator such as bag:tasks=1000,duration=50ms
    workflow: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    timeout: TimeoutArgs,
    /// Each node is a process of its own
    #[arg(long)]
    processes: bool,
    /// Write a Chrome trace, which Perfetto opens
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Copy the objects that tasks keep into this directory
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// What a run submits, and how.
struct Work<'a> {
    graph: &'a Graph,
    options: SubmitOptions,
    timeout: Option<Timespan>,
}

pub(crate) fn run(context: &Context, args: &RunArgs) -> Done {
    let plan = ClusterPlan::resolve(context, &args.cluster, None)?;
    let timeout = context.settings.pick_optional(args.timeout.timeout, "timeout")?;
    let options = submit_options(context, &args.place, &args.load, plan.bandwidth)?;
    if let client::Submit::Nodes(nodes) = &options.submit
        && let Some(node) = nodes.iter().find(|node| node.0 >= plan.nodes)
    {
        return Err(Failure::usage(format!("--submit: no node {node} among {}", plan.nodes)));
    }
    let graph = load(context, &args.workflow, &args.load)?;
    check_fit(&graph, plan.slots)?;
    if let Some(dir) = &args.output {
        std::fs::create_dir_all(dir).map_err(|error| Failure::file(dir, &error))?;
    }
    crate::block_on(async {
        let mut cluster = Cluster::start(&plan, args.processes).await?;
        let client = Client::connect(cluster.dir()).await?;
        let work = Work { graph: &graph, options, timeout };
        let one_process = cluster.is_one_process();
        let done = tokio::select! {
            done = execute(context, args, &plan, one_process, &client, work) => done,
            failure = cluster.lost_node() => Err(failure),
        };
        drop(client);
        cluster.stop().await;
        done
    })
}

async fn execute(
    context: &Context,
    args: &RunArgs,
    cluster_plan: &ClusterPlan,
    one_process: bool,
    client: &Client,
    mut work: Work<'_>,
) -> Done {
    let submitted_ns = now_ns();
    work.options.submitted_ns = Some(submitted_ns);
    work.options.job = Some(JobId(1)); // The cluster is this run's own.
    let plan = client.plan(work.graph, &work.options).await?;
    let limit = work.timeout.map_or(Duration::MAX, |timeout| timeout.0);
    let followed = follow(context, client, &plan, &work);
    let (accepted, state) = match tokio::time::timeout(limit, followed).await {
        Ok(followed) => followed?,
        Err(_) => return Err(timed_out(limit)),
    };
    let ended = Time(now_ns());
    let job = plan.job();
    let logs = Logs::read(client, job, None).await?;
    let fold = logs.fold(job, Some((work.graph, &plan)))?;
    let bounds = Bounds::of(work.graph, cluster_plan.total_slots());
    let paper = PaperBound::of(work.graph, &PaperModel::on(cluster_plan.total_slots()));
    let facts = analysis::RunFacts {
        policy: cluster_plan.policy.name().to_owned(),
        nodes: cluster_plan.nodes,
        slots: cluster_plan.total_slots(),
        edges: work.graph.edge_pairs(),
        submitted: Some(Time(submitted_ns)),
        accepted: Some(accepted),
        ended: Some(ended),
        client_cpu: story::own_cpu(),
        client_peak_rss_bytes: story::own_peak_rss_bytes(),
        one_process,
        remote_bytes: Some(fold.remote_bytes(job, data_edges(work.graph, &plan))),
        bound_lower_s: bounds.lower().as_secs_f64(),
        bound_paper_s: paper.timespan_s,
        ..story::facts(&state, logs.states.clone())
    };
    let report = story::report(&fold, &facts, &state);
    if let Some(path) = &args.trace {
        let names = |task: TaskId| Some(work.graph.task_name(plan.task_of(task.local)?));
        logs.write_trace(path, Some(Time(submitted_ns)), names)?;
    }
    if let Some(dir) = &args.output {
        let real_data = work.options.settings.real_data;
        keep_outputs(client, &logs, work.graph, &plan, real_data, dir).await?;
    }
    print(context, &report, &state)
}

fn print(context: &Context, report: &RunReport, state: &JobState) -> Done {
    jobs::tell_failures(&context.output, state);
    match context.output.json {
        true => context.output.line(&story::json(report, state))?,
        false => context.output.bytes(summary::text(report).as_bytes())?,
    }
    Ok(jobs::exit_of(state))
}

/// Submits and waits. Returns when the job was accepted, and its last state.
async fn follow(
    context: &Context,
    client: &Client,
    plan: &Plan<'_>,
    work: &Work<'_>,
) -> Result<(Time, JobState), Failure> {
    let progress = Progress::start(&context.output, client, work.graph.len() as u64);
    client.submit_plan(plan, &work.options).await?;
    let accepted = Time(now_ns());
    let state = client.wait_job(plan.job(), |state| progress.show(state)).await?;
    progress.end();
    Ok((accepted, state))
}

pub(crate) fn timed_out(limit: Duration) -> Failure {
    let limit = workloads::quantity::format_duration_ns(limit.as_nanos() as u64);
    Failure::new(Exit::TimedOut, format!("not ended within {limit}"))
        .hint("give a longer --timeout")
}

/// How the flags and settings want a workflow submitted.
pub(crate) fn submit_options(
    context: &Context,
    place: &PlaceArgs,
    load: &LoadArgs,
    bandwidth: Bandwidth,
) -> Result<SubmitOptions, Failure> {
    let settings = &context.settings;
    let real_data = settings.pick(place.data, "data")? == DataKind::Real;
    let scale = settings.pick(load.scale, "scale")?.0;
    let placement = match settings.pick(place.placement, "placement")? {
        PlacementName::Hash => Placement::Hash,
        PlacementName::Graph => Placement::Graph,
    };
    // Real bytes take the time they take; sizes alone wait as long as the bytes would.
    let transfer_ns_per_byte = if real_data { 0.0 } else { scale * 1e9 / bandwidth.bytes_per_s };
    Ok(SubmitOptions {
        placement,
        submit: settings.pick(place.submit.clone(), "submit")?.0,
        settings: wire::JobSettings { real_data, transfer_ns_per_byte },
        ..SubmitOptions::default()
    })
}

/// Refuses a workflow with a task that is wider than every node.
pub(crate) fn check_fit(graph: &Graph, slots: u32) -> Result<(), Failure> {
    let is_wide = |spec: &wire::Spec| spec.cpus > slots;
    if !graph.specs().iter().any(is_wide) {
        return Ok(());
    }
    let Some(task) = graph.indices().find(|task| graph.cpus(*task) > slots) else {
        return Ok(());
    };
    let (name, cpus) = (graph.task_name(task), graph.cpus(task));
    let text = format!("task '{name}' needs {cpus} slots, no node has more than {slots}");
    Err(Failure::refused(text).hint("give the nodes more --slots, or the task fewer cpus"))
}

/// The edges along which bytes flow.
fn data_edges<'a>(
    graph: &'a Graph,
    plan: &'a Plan<'_>,
) -> impl Iterator<Item = (proto::LocalId, proto::LocalId, u64)> + 'a {
    graph.indices().flat_map(move |child| {
        graph.parents(child).filter(|edge| edge.output > 0).map(move |edge| {
            let bytes = graph.edge_bytes(edge.task, edge.output);
            (plan.local_id(edge.task), plan.local_id(child), bytes)
        })
    })
}

/// Copies every kept output of the tasks that are done into `dir`.
async fn keep_outputs(
    client: &Client,
    logs: &Logs,
    graph: &Graph,
    plan: &Plan<'_>,
    real_data: bool,
    dir: &Path,
) -> Result<(), Failure> {
    let keeps = |spec: &wire::Spec| {
        let has_bytes = real_data || matches!(spec.body, Some(Body::Command(_)));
        has_bytes && spec.outputs.iter().any(|output| output.keep)
    };
    if !graph.specs().iter().any(keeps) {
        return Ok(());
    }
    let job = plan.job();
    let ran = logs.committed(job)?;
    for task in graph.tasks().filter(|task| keeps(task.spec)) {
        let local = plan.local_id(task.index);
        let Some(&Committed { node, attempt, end: End::Done }) = ran.get(&local) else { continue };
        for (output, declared) in (0..).zip(&task.spec.outputs).filter(|(_, o)| o.keep) {
            let object = ObjectId { task: TaskId { job, local }, attempt, output };
            let file = workloads::expand(&declared.file, task.entry);
            if !Path::new(&file).components().all(|part| matches!(part, Component::Normal(_))) {
                let text = format!("output '{file}' leads out of {}", dir.display());
                return Err(Failure::refused(text));
            }
            let to = dir.join(file);
            keep(client, node, object, &to).await?;
        }
    }
    Ok(())
}

async fn keep(client: &Client, node: NodeId, object: ObjectId, to: &Path) -> Result<(), Failure> {
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Failure::file(parent, &error))?;
    }
    client.fetch_object(node, object, to).await?;
    Ok(())
}

/// A job of a cluster that stays: its number, or its end when that is waited for.
pub(crate) async fn wait(
    context: &Context,
    client: &Client,
    job: JobId,
    total: u64,
    timeout: Option<Timespan>,
) -> Result<JobState, Failure> {
    let progress = Progress::start(&context.output, client, total);
    let limit = timeout.map_or(Duration::MAX, |timeout| timeout.0);
    let wait = client.wait_job(job, |state| progress.show(state));
    let state = match tokio::time::timeout(limit, wait).await {
        Ok(state) => state?,
        Err(_) => return Err(timed_out(limit)),
    };
    progress.end();
    Ok(state)
}

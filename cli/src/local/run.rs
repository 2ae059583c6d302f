//! `starling run`: a cluster for one workflow, from the first byte to the summary.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use analysis::{
    Edges, Kinds, Label, LowerBounds, Network, PaperBound, PaperModel, RunFacts, RunReport,
};
use clap::Args;
use client::{Client, JobSettings, SubmitOptions, now_ns};
use proto::wire::{self, JobState, NodeState};
use proto::{JobId, Span, TaskId, Time};
use resources::EndOfLife;
use verb::cluster::kept_outputs;
use verb::cluster::logs::{Logs, TraceFile};
use verb::errors::{Done, Failure, heard};
use verb::flags::{ClusterArgs, LoadArgs, PlaceArgs, TimeoutArgs};
use verb::local::embed::Cluster;
use verb::local::plan::{ClusterLifetime, ClusterPlan};
use verb::units::{self, Timespan};
use verb::{Context, Interrupt};
use workloads::{Graph, Plan};

use crate::cluster::job::results::{self, Delivery, Results, Source};
use crate::common::summary;
use crate::local::instance::InstanceFile;
use crate::local::lists::{self, ListArgs};
use crate::report::{collect, files};
use crate::views::progress::Progress;
use crate::views::reports;
use crate::views::submission::{check_fit, submit_options};
use crate::views::waiting::Deadline;
use crate::views::{job_info, jobs};
use crate::workload::load;

/// The summary of an ended job is awaited this long; then the logs are read.
const SUMMARY_PATIENCE: Duration = Duration::from_millis(300);

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// A workflow file, or a generator such as bag:tasks=1000,duration=50ms
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    workflow: Option<String>,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) place: PlaceArgs,
    #[command(flatten)]
    pub(super) timeout: TimeoutArgs,
    /// Run each node as a separate process
    #[arg(long)]
    pub(super) processes: bool,
    /// Write a Chrome trace, which Perfetto opens
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    trace: Option<PathBuf>,
    /// Write the run as a WfFormat instance: real runtimes, machines and sizes
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    wfformat: Option<PathBuf>,
    /// Write the record of the run, which 'starling report --from FILE' shows [default, where a
    /// directory below starling-runs is made: in it]
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    record: Option<PathBuf>,
    /// Copy the kept outputs of tasks into this directory [default, for commands: a new one below
    /// starling-runs]
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    output: Option<PathBuf>,
    /// End the run when more than N tasks, or entries of a list, have failed [default: never]
    #[arg(long, value_name = "N", conflicts_with = "halt")]
    pub(super) max_fails: Option<u64>,
    // The last ones: their headings are for all arguments that follow.
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    #[command(flatten)]
    list: ListArgs,
}

/// The submission of a run, and its options.
struct RunRequest<'a> {
    graph: &'a Graph,
    options: SubmitOptions,
    timeout: Option<Timespan>,
    trace: Option<TraceFile>,
    instance: Option<InstanceFile>,
    /// The destination of kept outputs.
    delivery: Option<Delivery<'a>>,
    /// Where they are until then.
    source: Source<'a>,
    record: Option<&'a Path>,
}

impl RunRequest<'_> {
    /// Whether files about the run are written, from the logs.
    fn describes(&self) -> bool {
        let asked = self.trace.is_some() || self.instance.is_some() || self.record.is_some();
        let own = self.delivery.as_ref().is_some_and(|it| it.results.run_dir().is_some());
        asked || own || has_programs(self.graph)
    }
}

pub(crate) fn run(context: &Context, args: &RunArgs) -> Done {
    let Some(workflow) = &args.workflow else { return lists::run(context, args, &args.list) };
    args.list.check_unused()?;
    let (plan, mut options) = cluster_of(context, args)?;
    options.settings.max_fails = args.max_fails;
    let timeout = context.settings.pick_optional(args.timeout.timeout, "timeout")?;
    let mut graph = load(context, workflow, &args.load)?;
    if let Some(limit) = args.place.crash_limit {
        graph.set_crash_limit(limit);
    }
    check_fit(&graph, plan.slots)?;
    check_nodes(graph.specs(), plan.nodes)?;
    check_times(graph.specs(), plan.life.end)?;
    let results = match &args.output {
        Some(dir) => Some(Results::named(dir)?),
        // Generators and recorded workflows have no commands.
        None if kept_outputs::has_commands_that_keep(&graph) => Some(Results::fresh(graph.name())?),
        None => None,
    };
    let keep_cluster = Cell::new(false);
    let trace = args.trace.as_deref().map(TraceFile::open).transpose()?;
    let instance = args.wfformat.as_deref().map(InstanceFile::open).transpose()?;
    verb::block_on_saving(async |interrupt| {
        let mut cluster = Cluster::start(&plan, args.processes).await?;
        let client = Client::connect(cluster.dir()).await?;
        let cluster_dir = cluster.dir().to_owned();
        let source = Source { cluster_dir: &cluster_dir, keep_cluster: &keep_cluster };
        let delivery = results.as_ref().map(|results| Delivery { results, source });
        let (graph, record) = (&graph, args.record.as_deref());
        let work =
            RunRequest { graph, options, timeout, trace, instance, delivery, source, record };
        let one_process = cluster.is_one_process();
        let done = tokio::select! {
            done = execute(context, &plan, one_process, (&client, &interrupt), work) => done,
            failure = cluster.lost_node() => Err(failure),
        };
        drop(client);
        results::stop(cluster, keep_cluster.get()).await;
        done
    })
}

/// Refuses tasks that hold more nodes at once than the cluster of a run has: no node joins it.
pub(super) fn check_nodes<'s>(
    specs: impl IntoIterator<Item = &'s wire::Spec>,
    nodes: u32,
) -> Result<(), Failure> {
    match specs.into_iter().find(|spec| spec.nodes > nodes) {
        None => Ok(()),
        Some(spec) => {
            let text = format!(
                "task '{}' needs {} nodes at once, the cluster of this run has {nodes}",
                spec.name, spec.nodes
            );
            Err(Failure::refused(text).hint(format!("give the run --nodes {}", spec.nodes)))
        }
    }
}

/// Refuses tasks that ask for more time than the nodes of a run have: no other node joins.
pub(super) fn check_times<'s>(
    specs: impl IntoIterator<Item = &'s wire::Spec>,
    end: Option<EndOfLife>,
) -> Result<(), Failure> {
    let Some(end) = end else { return Ok(()) };
    let now_ns = now_ns();
    let is_long =
        |spec: &&wire::Spec| spec.time_request_ns > 0 && !end.fits(now_ns, spec.time_request_ns);
    let Some(spec) = specs.into_iter().find(is_long) else { return Ok(()) };
    let seconds = |ns: u64| units::seconds(ns as f64 / 1e9);
    let left_ns = end.latest_start_ns(0).unwrap_or(0).saturating_sub(now_ns);
    let text = format!(
        "task '{}' has a time request of {}, the nodes of this run end tasks within {}",
        spec.name,
        seconds(spec.time_request_ns),
        seconds(left_ns)
    );
    Err(Failure::refused(text).hint("give the run a longer --time-limit, or the task less time"))
}

/// The nodes of a run, and the options of its submission.
pub(super) fn cluster_of(
    context: &Context,
    args: &RunArgs,
) -> Result<(ClusterPlan, SubmitOptions), Failure> {
    let plan = ClusterPlan::resolve(&context.settings, &args.cluster, None, ClusterLifetime::Run)?;
    let options = submit_options(context, &args.place, &args.load, plan.bandwidth)?;
    if let client::Submit::Nodes(nodes) = &options.submit
        && let Some(node) = nodes.iter().find(|node| node.0 >= plan.nodes)
    {
        return Err(Failure::usage(format!("--submit: no node {node} among {}", plan.nodes))
            .hint("nodes are numbered from n0"));
    }
    Ok((plan, options))
}

async fn execute(
    context: &Context,
    cluster_plan: &ClusterPlan,
    one_process: bool,
    (client, interrupt): (&Client, &Interrupt),
    mut work: RunRequest<'_>,
) -> Done {
    let submitted_ns = now_ns();
    work.options.submitted_ns = Some(submitted_ns);
    work.options.job = Some(JobId(1)); // The cluster is this run's own.
    let plan = client.plan(work.graph, &work.options).await?;
    let deadline = Deadline::after(work.timeout);
    let job = plan.job();
    let mut kept = kept_of(&work, &plan);
    if !kept.is_empty() {
        // If the cluster's directory has to stay, they are fetched from there.
        kept_outputs::remember(client, job, &kept).await?;
    }
    interrupt.hold(!kept.is_empty());
    let follow = Box::pin(follow(context, client, &plan, &work));
    let followed = unless(interrupt, deadline.cut(follow)).await;
    let (accepted, state) = match (followed, &work.delivery) {
        (Err(failure), Some(delivery)) => {
            return Err(results::save(delivery, client, job, &kept, failure).await);
        }
        (followed, _) => followed??,
    };
    let ended = Time(now_ns());
    let times = Times { submitted: Time(submitted_ns), accepted, ended };
    let spawned = kept_outputs::of_spawned(client, &state).await?;
    let is_whole = spawned.check(job);
    kept.extend(spawned.kept);
    let made = results::of_spawned(&work.delivery, work.source, work.graph.name(), &kept)?;
    let mut work: RunRequest<'_> = work;
    if let Some(results) = &made {
        work.delivery = Some(Delivery { results, source: work.source });
    }
    let known = Known { cluster: cluster_plan, one_process, times };
    let is_json = context.output.json;
    let early = if is_json { None } else { summed_up(client, &state, &known, &work).await };
    let mut logged = match early {
        Some(_) => None,
        None => Some(Logged::read(client, &state, &known, (&work, &plan)).await?),
    };
    jobs::tell_failures(&context.output, client, &state).await;
    // First the unique report, then the files, which may be unwritable.
    let report = early.as_ref().or_else(|| logged.as_ref().map(|logged| &logged.report));
    let report = report.expect("one of them is there");
    let dir = work.delivery.as_ref().filter(|_| !kept.is_empty()).map(|it| it.results.dir());
    let printed = if is_json { Ok(()) } else { print(context, report, &state, dir) };
    let delivered = match &work.delivery {
        Some(delivery) => delivery.copy(client, job, &kept).await,
        None => Ok(()),
    };
    interrupt.hold(false);
    let printed = if is_json { print(context, report, &state, dir) } else { printed };
    let described = async {
        if logged.is_none() && work.describes() {
            logged = Some(Logged::read(client, &state, &known, (&work, &plan)).await?);
        }
        let Some(logged) = &logged else { return Ok(()) };
        let described = describe(client, &mut work, (&logged.logs, &plan), &known.times).await;
        let recorded = leave_record(context, client, &work, (logged, &plan), &state).await;
        described.and(recorded)
    };
    let described = described.await;
    delivered?;
    is_whole?;
    printed?;
    jobs::tell_more_of_run(&state);
    if !is_json && let Some(dir) = dir {
        heard(context.output.line(&format!("kept results in {}", dir.display())))?;
    }
    described?;
    Ok(jobs::exit_of(&state))
}

/// The times of a run that its client knows.
struct Times {
    submitted: Time,
    accepted: Time,
    ended: Time,
}

/// What a run knows of itself beside its graph.
struct Known<'k> {
    cluster: &'k ClusterPlan,
    one_process: bool,
    times: Times,
}

impl Known<'_> {
    fn facts(&self, work: &RunRequest<'_>, state: &JobState, nodes: Vec<NodeState>) -> RunFacts {
        let of_cluster = reports::facts(state, nodes);
        RunFacts {
            submitted: Some(self.times.submitted),
            accepted: Some(self.times.accepted),
            ended: Some(self.times.ended),
            one_process: self.one_process,
            ..planned_facts(self.cluster, work.graph, &work.options.settings, of_cluster)
        }
    }
}

/// The report from the summary that the home of the job stores: reading the logs of 10^6 tasks
/// takes a second. `None` if it is late, or lacks something.
async fn summed_up(
    client: &Client,
    state: &JobState,
    known: &Known<'_>,
    work: &RunRequest<'_>,
) -> Option<RunReport> {
    let recorded = job_info::recorded(client, JobId(state.job), None);
    let recorded = tokio::time::timeout(SUMMARY_PATIENCE, recorded).await.ok()?.ok()?;
    let nodes = client.raw().node_states(SUMMARY_PATIENCE).await.into_iter();
    let nodes: Vec<NodeState> = nodes.map(|(_, state)| state.ok()).collect::<Option<_>>()?;
    analysis::past::report_of_run(&recorded, &known.facts(work, state, nodes))
}

/// The event logs of a run, and the report from them.
struct Logged {
    logs: Logs,
    report: RunReport,
}

impl Logged {
    async fn read(
        client: &Client,
        state: &JobState,
        known: &Known<'_>,
        (work, plan): (&RunRequest<'_>, &Plan<'_>),
    ) -> Result<Self, Failure> {
        let job = plan.job();
        let logs = Logs::read(client, job, None).await?;
        let fold = logs.fold(job, Some((work.graph, plan)))?;
        let facts = RunFacts {
            remote_bytes: Some(fold.remote_bytes(job, data_edges(work.graph, plan))),
            ..known.facts(work, state, logs.states.clone())
        };
        Ok(Self { logs, report: reports::report(&fold, &facts, state) })
    }
}

/// Adds what the plan, the graph and this process tell of a run.
fn planned_facts(
    cluster_plan: &ClusterPlan,
    graph: &Graph,
    settings: &JobSettings,
    of_cluster: RunFacts,
) -> RunFacts {
    // Before the bounds, which are no part of the run.
    let (client_cpu, client_peak_rss_bytes) = (reports::own_cpu(), reports::own_peak_rss_bytes());
    let (nodes, slots) = (cluster_plan.nodes, cluster_plan.slots);
    let cluster = analysis::Cluster::new(nodes, slots, network(settings));
    RunFacts {
        policy: cluster_plan.policy.name().to_owned(),
        nodes,
        slots: cluster_plan.total_slots(),
        edges: graph.edge_pairs(),
        client_cpu,
        client_peak_rss_bytes,
        bound_lower_s: LowerBounds::of(graph, &cluster).lower().as_secs_f64(),
        bound_paper_s: PaperBound::of(graph, &PaperModel::on(cluster_plan.total_slots()))
            .timespan_s,
        kinds: Kinds::of(graph),
        clock_starts_after_loads: graph.clock_starts_after_loads(),
        ..of_cluster
    }
}

/// The result, unless an interrupt comes first.
async fn unless<T>(
    interrupt: &Interrupt,
    done: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = interrupt.comes() => Err(Failure::interrupted()),
        done = done => done,
    }
}

/// Writes the trace and the instance file, if asked for. One that cannot be written costs neither
/// the other nor the place of the results.
async fn describe(
    client: &Client,
    work: &mut RunRequest<'_>,
    (logs, plan): (&Logs, &Plan<'_>),
    times: &Times,
) -> Result<(), Failure> {
    let traced = work.trace.take().map_or(Ok(()), |file| {
        let labels = |task: TaskId| label(work.graph, plan.task_of(task.local)?);
        logs.write_trace(file, Some(times.submitted), labels, edges(work.graph, plan))
    });
    if let Some(file) = work.instance.take() {
        file.write(client, logs, (work.graph, plan), (times.submitted, times.ended)).await?;
    }
    traced
}

/// The name and the kind of a task in a trace.
fn label(graph: &Graph, task: u32) -> Option<Label> {
    let name = graph.task_name(task);
    let kind = match graph.specs().get(graph.task(task).spec_index as usize)?.kind.as_str() {
        "" => lens::failures::kind_of_name(&name),
        kind => kind.to_owned(),
    };
    Some(Label { name, kind })
}

/// The edges of a graph, as far as a trace draws them.
fn edges(graph: &Graph, plan: &Plan<'_>) -> Edges {
    let mut edges = Edges::default();
    for task in 0..graph.len() as u32 {
        let parents: BTreeSet<u32> = graph.parents(task).map(|edge| edge.task).collect();
        let parents = parents.into_iter().map(|parent| plan.local_id(parent));
        edges.add(plan.local_id(task), parents);
    }
    edges
}

/// Whether tasks are commands or calls, and not recorded runtimes alone.
fn has_programs(graph: &Graph) -> bool {
    use wire::spec::Body;
    let of = |spec: &wire::Spec| matches!(spec.body, Some(Body::Command(_) | Body::Call(_)));
    graph.specs().iter().any(of)
}

/// Writes the record of a run to the file that the user names, or into the run's own directory. A
/// run has not failed because the latter cannot be written.
async fn leave_record(
    context: &Context,
    client: &Client,
    work: &RunRequest<'_>,
    (logged, plan): (&Logged, &Plan<'_>),
    state: &JobState,
) -> Result<(), Failure> {
    let own = work.delivery.as_ref().and_then(|delivery| delivery.results.run_dir());
    // Results in a directory of the user, or none: the record has a directory of its own.
    let is_without = own.is_none() && work.record.is_none() && has_programs(work.graph);
    let made = is_without.then(|| Results::here(work.graph.name())).flatten();
    let dir = own.or_else(|| made.as_ref().and_then(Results::run_dir));
    let (Some(path), is_asked) = (work.record.or(dir), work.record.is_some()) else {
        return Ok(());
    };
    let written = async {
        let Logged { logs, report } = logged;
        let json = reports::json(report, state, None, false);
        let graph = (work.graph, plan);
        let record = collect::of_run(client, graph, logs, state, report, json).await?;
        match is_asked {
            true => verb::files::put(path, &files::bytes(&record)?).map(|()| path.to_owned()),
            false => files::put_into_run(path, &record),
        }
    };
    match written.await {
        Ok(path) => {
            let path = path.display();
            let text = format!("run record in {path}; 'starling report --from {path}' shows it");
            context.output.note(&text);
            Ok(())
        }
        Err(failure) if is_asked => Err(failure),
        Err(failure) => {
            context.output.note(&format!("warning: without a run record: {}", failure.message));
            Ok(())
        }
    }
}

/// The outputs that a run copies at its end: without `--output` only those of commands.
fn kept_of(work: &RunRequest<'_>, plan: &Plan<'_>) -> Vec<kept_outputs::KeptOutput> {
    match &work.delivery {
        Some(_) => kept_outputs::of_graph(work.graph, plan, work.options.settings.real_data),
        None => Vec::new(),
    }
}

fn print(
    context: &Context,
    report: &RunReport,
    state: &JobState,
    dir: Option<&Path>,
) -> Result<(), Failure> {
    heard(match context.output.json {
        true => context.output.raw_line(&reports::json(report, state, dir, false)),
        false => context.output.text(&summary::text(report)),
    })
}

/// Submits and waits. Returns the time of acceptance, and the last state of the job.
async fn follow(
    context: &Context,
    client: &Client,
    plan: &Plan<'_>,
    work: &RunRequest<'_>,
) -> Result<(Time, JobState), Failure> {
    let progress = Progress::start(&context.output, client, work.graph.len() as u64);
    client.submit_plan(plan, &work.options).await?;
    let accepted = Time(now_ns());
    let state = client.raw().wait_job(plan.job(), |state| progress.show(state)).await?;
    progress.end();
    Ok((accepted, state))
}

/// The minimum cost of transfers, for bounds. For real bytes it is unknown.
fn network(settings: &JobSettings) -> Network {
    let ns_per_byte = settings.transfer_ns_per_byte;
    match !settings.real_data && ns_per_byte > 0.0 {
        true => Network::Flat { bytes_per_s: 1e9 / ns_per_byte, latency: Span::ZERO },
        false => Network::Free,
    }
}

/// The edges with data.
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

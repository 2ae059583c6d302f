//! `starling alloc add`: makes a queue.

use allocation::{QueueConfig, QueueState, System, keys, limits};
use clap::Args;
use rustix::fs::Mode;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::units::Timespan;

use crate::alloc::calls;
use crate::alloc::records::Records;

const NS_PER_S: u128 = 1_000_000_000;

#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    /// The batch system: slurm or pbs
    system: System,
    /// The name of the queue [default: the batch system, with a number from the second one on]
    #[arg(long)]
    name: Option<String>,
    /// The time limit of each allocation
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    time_limit: Timespan,
    /// Its nodes end after this time [default: with the allocation]
    #[arg(long, value_name = "DURATION")]
    node_time_limit: Option<Timespan>,
    /// The cpus of each node [default: learned from the first node]
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// A pool of each node, as for 'starling node': 'licences=sum(10)'; may be repeated
    #[arg(long = "resource", value_name = "NAME=POOL")]
    resources: Vec<String>,
    /// A label of each node; may be repeated
    #[arg(long = "label", value_name = "NAME")]
    labels: Vec<String>,
    /// The most nodes of one allocation
    #[arg(long, value_name = "N", default_value_t = 1)]
    max_nodes_per_alloc: u32,
    /// The most nodes of all its allocations [default: no limit]
    #[arg(long, value_name = "N")]
    max_nodes: Option<u32>,
    /// The most allocations that wait in the batch system at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    backlog: u32,
    /// The part of new nodes that ready tasks must fill at once, from 0 to 1
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    min_utilization: f64,
    /// Its nodes leave after this time without work
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    idle_timeout: Timespan,
    /// A further argument of 'starling node'; may be repeated
    #[arg(long = "node-arg", value_name = "WORD", allow_hyphen_values = true)]
    node_arguments: Vec<String>,
    /// Commands of a shell on each node before its start
    #[arg(long, value_name = "COMMANDS", default_value = "", hide_default_value = true)]
    node_init: String,
    /// Commands of a shell on each node after its end
    #[arg(long, value_name = "COMMANDS", default_value = "", hide_default_value = true)]
    node_fini: String,
    /// Words before the program of each node, such as 'numactl --interleave=all'
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    wrap: String,
    /// Submit nothing for the queue before 'alloc resume'
    #[arg(long)]
    paused: bool,
    /// Further arguments of sbatch or qsub, as they are: -- --partition=main
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

#[derive(Serialize)]
struct Added {
    queue: String,
    /// This machine has the program that submits; else another node or 'alloc tick' must.
    submits_here: bool,
}

impl AddArgs {
    fn config(&self, name: String) -> QueueConfig {
        // It can be read only by setting it.
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        QueueConfig {
            name,
            system: self.system,
            time_limit_s: self.time_limit.0.as_secs(),
            node_time_limit_s: self.node_time_limit.map(|limit| limit.0.as_secs()),
            cpus: self.cpus,
            resources: self.resources.clone(),
            labels: self.labels.clone(),
            max_nodes_per_alloc: self.max_nodes_per_alloc,
            max_nodes: self.max_nodes,
            backlog: self.backlog,
            min_utilization: self.min_utilization,
            idle_timeout_s: self.idle_timeout.0.as_nanos().div_ceil(NS_PER_S) as u64,
            arguments: self.arguments.clone(),
            node_arguments: self.node_arguments.clone(),
            node_init: self.node_init.clone(),
            node_fini: self.node_fini.clone(),
            wrap: self.wrap.clone(),
            umask: umask.bits(),
            paused: self.paused,
        }
    }
}

/// The first free name after the batch system.
fn free_name(system: System, names: &[String]) -> String {
    let mut candidates =
        std::iter::once(system.to_string()).chain((2..).map(|number| format!("{system}-{number}")));
    let is_free = |name: &String| !names.contains(name);
    candidates.find(is_free).expect("there is always a further number")
}

pub(super) async fn run(context: &Context, args: AddArgs) -> Done {
    let checked = args.config(args.name.clone().unwrap_or_else(|| args.system.to_string()));
    checked.check().map_err(|error| Failure::usage(error.to_string()))?;
    let client = context.connect().await?;
    if client.raw().map().copies <= 1 && client.raw().map().wanted <= 1 {
        let text = "the cluster was made with --replicas 1: no node can join it";
        return Err(Failure::refused(text).hint("make it again with two replicas or more"));
    }
    let records = Records::new(&client)?;
    let names = records.names().await?;
    let name = args.name.clone().unwrap_or_else(|| free_name(args.system, &names));
    let config = args.config(name.clone());
    if names.contains(&name) {
        return Err(Failure::refused(format!("there is a queue '{name}' already"))
            .hint("choose another --name, or remove it: 'starling alloc remove'"));
    }
    // The queue counts once its name is listed.
    let write = |_: Option<&QueueConfig>| Ok(Some(config.clone()));
    records.change(&keys::queue(&name), write).await?;
    // Numbers of an earlier queue of that name are not used again.
    let first = first_number(&records, &name).await?;
    let fresh = |_: Option<&QueueState>| {
        Ok(Some(QueueState { first, settled: first, ..QueueState::default() }))
    };
    records.change(&keys::state(&name), fresh).await?;
    let listed = |names: Option<&Vec<String>>| {
        let mut names = names.cloned().unwrap_or_default();
        if names.len() >= limits::QUEUES_MAX {
            let most = limits::QUEUES_MAX;
            return Err(Failure::refused(format!("a cluster has at most {most} queues")));
        }
        if !names.contains(&name) {
            names.push(name.clone());
        }
        Ok(Some(names))
    };
    records.change(keys::QUEUES, listed).await?;
    let submits_here = calls::is_installed(args.system);
    if context.output.json {
        context.output.json(&Added { queue: name, submits_here })?;
        return Ok(Exit::Ok);
    }
    context.output.line(&name)?;
    if !submits_here {
        let system = args.system;
        context.output.note(&format!(
            "this machine cannot submit to {system}: a node on another one does, or 'alloc tick'"
        ));
    }
    Ok(Exit::Ok)
}

/// The first number of a queue that no batch job of an earlier queue of that name has.
async fn first_number(records: &Records, name: &str) -> Result<u64, Failure> {
    let state: Option<QueueState> = records.get(&keys::state(name)).await?;
    Ok(state.map_or(1, |state| state.settled()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_without_a_name_are_numbered() {
        let names = ["slurm", "slurm-2"].map(str::to_owned);
        assert_eq!(free_name(System::Slurm, &names), "slurm-3");
        assert_eq!(free_name(System::Pbs, &names), "pbs");
    }
}

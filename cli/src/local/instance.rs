//! A finished run as a WfFormat instance: the machine, duration and file sizes of each task.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use client::Client;
use proto::event::{End, Event};
use proto::{JobId, LocalId, NodeId, Time};
use verb::cluster::logs::Logs;
use verb::errors::Failure;
use workloads::wfformat::{Machine, Run, TaskRun};
use workloads::{Graph, Plan};

/// The destination of an instance. It is opened before the run, so that an unwritable path is
/// detected early.
#[derive(Debug)]
pub(crate) struct InstanceFile {
    path: PathBuf,
    file: File,
}

impl InstanceFile {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::options().create(true).truncate(false).write(true).open(path);
        let file = file.map_err(|error| Failure::file(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes the facts about the run from the logs and the tasks' homes.
    pub(crate) async fn write(
        self,
        client: &Client,
        logs: &Logs,
        (graph, plan): (&Graph, &Plan<'_>),
        (submitted, ended): (Time, Time),
    ) -> Result<(), Failure> {
        let machines = machines(logs);
        let mut tasks = tasks(logs, plan, graph.len(), &machines)?;
        let see = |state: proto::wire::TaskState| {
            let task = plan.task_of(LocalId(state.local)).map(|task| &mut tasks[task as usize]);
            if let Some(Some(ran)) = task {
                ran.output_sizes = state.output_sizes;
            }
        };
        client.raw().tasks(plan.job(), see).await?;
        let run = Run {
            started: submitted,
            makespan_s: ended.since(submitted).as_secs_f64(),
            system: ("Starling".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            machines: machines.into_iter().map(|(_, machine)| machine).collect(),
            tasks,
        };
        let failed = |error: std::io::Error| Failure::file(&self.path, &error);
        if self.file.metadata().map_err(failed)?.is_file() {
            self.file.set_len(0).map_err(failed)?;
        }
        let mut out = BufWriter::new(&self.file);
        workloads::write_run(graph, &run, &mut out).map_err(failed)?;
        out.flush().map_err(failed)
    }
}

/// The nodes that answered, all of which are on this machine, by their numbers.
fn machines(logs: &Logs) -> Vec<(NodeId, Machine)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim().to_owned();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|total| total.trim().trim_end_matches(" kB").parse().ok());
    let memory_bytes = kibibytes.unwrap_or(0_u64) * 1024;
    let members = logs.states.iter().filter_map(|state| state.member.as_ref());
    let machine = |member: &proto::wire::Member| {
        let machine = Machine {
            name: NodeId(member.node).to_string(),
            slots: member.slots,
            memory_bytes,
            architecture: std::env::consts::ARCH.to_owned(),
            release: release.clone(),
        };
        (NodeId(member.node), machine)
    };
    let mut machines: Vec<_> = members.map(machine).collect();
    machines.sort_unstable_by_key(|(node, _)| *node);
    machines
}

/// The committed attempt of each finished task, with the facts from its node.
fn tasks(
    logs: &Logs,
    plan: &Plan<'_>,
    count: usize,
    machines: &[(NodeId, Machine)],
) -> Result<Vec<Option<TaskRun>>, Failure> {
    let job: JobId = plan.job();
    let committed = logs.committed(job)?;
    let number: HashMap<NodeId, usize> =
        machines.iter().enumerate().map(|(number, (node, _))| (*node, number)).collect();
    let mut tasks: Vec<Option<TaskRun>> = vec![None; count];
    let mut written: HashMap<LocalId, u64> = HashMap::new();
    logs.for_each(|entry| {
        if let Event::Committed { task, output_bytes, .. } = entry.event
            && task.job == job
        {
            written.insert(task.local, output_bytes);
        }
        let Event::Ended { task, attempt, end: End::Done, started, moved_bytes, local_bytes } =
            entry.event
        else {
            return Ok(());
        };
        let counts = committed.get(&task.local).is_some_and(|last| last.attempt == attempt);
        let place = plan.task_of(task.local).filter(|_| counts && task.job == job);
        if let (Some(place), Some(&machine)) = (place, number.get(&entry.node)) {
            tasks[place as usize] = Some(TaskRun {
                started,
                runtime_s: entry.time.since(started).as_secs_f64(),
                machine,
                read_bytes: moved_bytes.saturating_add(local_bytes),
                ..TaskRun::default()
            });
        }
        Ok(())
    })?;
    for (local, bytes) in written {
        if let Some(Some(ran)) = plan.task_of(local).map(|task| &mut tasks[task as usize]) {
            ran.written_bytes = bytes;
        }
    }
    Ok(tasks)
}

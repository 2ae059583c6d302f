/*!
`starling check --processes`: real nodes are killed and stopped while trees of known size run.

With one copy of each partition a node that was killed comes back with its disk. What must hold:
each tree ends with exactly as many tasks done as it has, none failed, none committed twice, and
none is stuck. The seed draws the faults and when they come; what they meet is up to the machine.
*/

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use client::{Client, ClientOptions, SubmitOptions};
use proto::event::{End, Event};
use proto::{JobId, TaskId, wire};
use rustix::process::Signal;
use serde::Serialize;
use sim::Dice;
use workloads::Graph;

use crate::Context;
use crate::embed::ClusterPlan;
use crate::errors::{Done, Exit, Failure};
use crate::output::say;
use crate::processes::{self, Life, NodeProcess};
use crate::story::Logs;

/// A tree that has not ended by then is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(300);
/// How long the campaign's own client waits for nodes that are away.
const PATIENCE: Duration = Duration::from_secs(120);
/// From one fault to the next.
const CALM_MS: std::ops::Range<u64> = 50..1500;
/// How long a node that was killed stays away, and how long a stopped one sleeps.
const AWAY_MS: std::ops::Range<u64> = 0..500;
const ASLEEP_MS: std::ops::Range<u64> = 100..4000;

/// What to do to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CampaignArgs<'a> {
    pub(crate) seed: u64,
    /// At least so many nodes are killed.
    pub(crate) kills: u64,
    pub(crate) nodes: u32,
    /// The text of a generator.
    pub(crate) workload: &'a str,
}

#[derive(Default, Serialize)]
struct Campaign {
    seed: u64,
    nodes: u32,
    workload: String,
    tasks_each: u64,
    runs: u64,
    kills: u64,
    stops: u64,
    tasks_done: u64,
    /// Tasks that ended without being done, or of which too many or too few were.
    lost: u64,
    /// Tasks that were committed twice.
    twice: u64,
    /// Runs that did not end.
    stuck: u64,
    wall_s: f64,
}

fn pause(dice: &mut Dice, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(dice.between(range.start, range.end - 1))
}

/// The nodes; they end with this.
struct Victims<'a> {
    dir: &'a Path,
    plan: ClusterPlan,
    nodes: Vec<NodeProcess>,
}

impl Drop for Victims<'_> {
    fn drop(&mut self) {
        self.nodes.iter_mut().for_each(NodeProcess::abandon);
    }
}

impl<'a> Victims<'a> {
    async fn start(dir: &'a Path, plan: ClusterPlan) -> Result<Self, Failure> {
        let mut started = Self { dir, plan, nodes: Vec::new() };
        for node in 0..started.plan.nodes {
            started.nodes.push(processes::spawn(dir, node, &started.plan, Life::Ours)?);
        }
        processes::await_listening(dir, &mut started.nodes).await?;
        Ok(started)
    }

    /// Does one thing, and puts it right again.
    async fn hurt(&mut self, dice: &mut Dice, seen: &mut Campaign) -> Result<(), Failure> {
        let count = self.nodes.len() as u64;
        let first = dice.index(count as usize);
        let how = dice.below(100);
        if how < 30 {
            self.nodes[first].signal(Signal::STOP);
            tokio::time::sleep(pause(dice, ASLEEP_MS)).await;
            self.nodes[first].signal(Signal::CONT);
            seen.stops += 1;
            return Ok(());
        }
        let at_once = match how {
            30..=84 => 1,
            85..=94 => 2.min(count),
            _ => count,
        };
        let victims: Vec<usize> =
            (0..at_once as usize).map(|it| (first + it) % count as usize).collect();
        for &victim in &victims {
            self.nodes[victim].abandon();
        }
        seen.kills += at_once;
        for victim in victims {
            tokio::time::sleep(pause(dice, AWAY_MS)).await;
            let node = self.nodes[victim].node;
            self.nodes[victim] = processes::spawn(self.dir, node, &self.plan, Life::Ours)?;
        }
        processes::await_listening(self.dir, &mut self.nodes).await
    }
}

pub(crate) fn run(context: &Context, args: CampaignArgs<'_>) -> Done {
    let graph =
        workloads::generate(args.workload).map_err(|error| Failure::refused(error.to_string()))?;
    let began = Instant::now();
    let mut seen = Campaign {
        seed: args.seed,
        nodes: args.nodes,
        workload: args.workload.to_owned(),
        tasks_each: graph.len() as u64,
        ..Campaign::default()
    };
    let ended = crate::block_on(all(args, &graph, &mut seen));
    seen.wall_s = began.elapsed().as_secs_f64();
    // One that was cut short tells what it saw until then.
    if ended.is_ok() || seen.runs + seen.kills + seen.stops > 0 {
        if context.output.json {
            context.output.json(&seen)?;
        } else {
            context.output.bytes(text(&seen).as_bytes())?;
        }
    }
    ended?;
    let is_good = seen.lost + seen.twice + seen.stuck == 0;
    Ok(if is_good { Exit::Ok } else { Exit::Failed })
}

fn text(seen: &Campaign) -> String {
    format!(
        "{} runs of {} tasks, {} kills, {} stops in {:.0} s\n\
         tasks done   {}\nlost         {}\ntwice        {}\nstuck        {}\n",
        seen.runs,
        seen.tasks_each,
        seen.kills,
        seen.stops,
        seen.wall_s,
        seen.tasks_done,
        seen.lost,
        seen.twice,
        seen.stuck,
    )
}

async fn all(args: CampaignArgs<'_>, graph: &Graph, seen: &mut Campaign) -> Result<(), Failure> {
    let dir = tempfile::Builder::new().prefix("starling-check-").tempdir();
    let dir = dir.map_err(|error| Failure::refused(format!("no temporary directory: {error}")))?;
    let plan = ClusterPlan::new(args.nodes, 2, scheduler::Tuning::default());
    let mut victims = Victims::start(dir.path(), plan).await?;
    let client = Client::connect_with(dir.path(), ClientOptions { patience: PATIENCE }).await?;
    let mut dice = Dice::new(args.seed);
    // Runs may be shorter than the time between two faults.
    let mut fault_at = tokio::time::Instant::now() + pause(&mut dice, CALM_MS);
    while seen.kills < args.kills && seen.stuck == 0 {
        let job = client.submit(graph, SubmitOptions::default()).await?.job;
        let ended = {
            let end = tokio::time::timeout(STUCK_AFTER, client.wait_job(job, |_| {}));
            let mut end = std::pin::pin!(end);
            loop {
                tokio::select! {
                    ended = &mut end => break ended,
                    () = tokio::time::sleep_until(fault_at) => {}
                }
                // To its end, whatever the job does: nobody stays stopped or away.
                victims.hurt(&mut dice, seen).await?;
                fault_at = tokio::time::Instant::now() + pause(&mut dice, CALM_MS);
            }
        };
        seen.runs += 1;
        let Ok(end) = ended else {
            seen.stuck += 1;
            say(&format!("error: run {} ({}) is stuck", seen.runs, job.0));
            break;
        };
        judge(&client, job, &end?, graph, seen).await?;
    }
    Ok(())
}

/// Counts a run against what its tree is known to have.
async fn judge(
    client: &Client,
    job: JobId,
    end: &wire::JobState,
    graph: &Graph,
    seen: &mut Campaign,
) -> Result<(), Failure> {
    let done = end.sum.as_ref().map_or(0, |sum| sum.done);
    let lost = done.abs_diff(graph.len() as u64);
    seen.tasks_done += done;
    seen.lost += lost;
    if lost > 0 {
        say(&format!("error: run {}: {done} of {} tasks done", seen.runs, graph.len()));
    }
    // A log may lack its last moments before a kill, but what it has it has once.
    let mut commits: BTreeMap<TaskId, u32> = BTreeMap::new();
    Logs::read(client, job, None).await?.for_each(|entry| {
        if let Event::Committed { task, end: End::Done, .. } = entry.event {
            *commits.entry(task).or_default() += 1;
        }
        Ok(())
    })?;
    let twice = commits.values().filter(|times| **times > 1).count() as u64;
    seen.twice += twice;
    if twice > 0 {
        say(&format!("error: run {}: {twice} tasks were committed twice", seen.runs));
    }
    Ok(())
}

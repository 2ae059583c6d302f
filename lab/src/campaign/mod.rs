/*!
`starling check --processes`: kills and stops real nodes while trees of known size run.

With one replica of each partition a killed node returns with its disk. With R replicas up to R - 1
nodes at a time (and fewer than half) are killed. They stay away for long, lose their disks, or
sleep until they are declared failed. The other nodes go on, and before the next such fault the same
number may fail again. All nodes may be killed at once, and return in any order with their disks.

These properties are checked. Each tree ends with all of its tasks done, none failed, none committed
twice and none stuck. With real data each run keeps the files of an undisturbed run. They have the
same bytes, or those that their consumers report to have read (`readings`). One key is written after
each fault, and every key exists at the end. Meanwhile callers use the store, and their answers must
be linearizable for each key (`kv`). The seed determines the faults and their times; the state they
meet depends on the machine.
*/

mod answers;
mod kv;
mod readings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use client::{Client, ClientOptions, JobSettings, SubmitOptions};
use proto::event::{End, Event, RetryReason};
use proto::{JobId, NodeId, TaskId, wire};
use rustix::process::Signal;
use serde::Serialize;
use sim::SimRng;
use verb::Context;
use verb::cluster::logs::Logs;
use verb::cluster::{kept_outputs, survival};
use verb::errors::{Done, Exit, Failure};
use verb::local::plan::ClusterPlan;
use verb::local::processes::{self, NodeIdentity, NodeProcess, ProcessLifetime};
use verb::output::say;
use workloads::Graph;

use self::answers::Answers;

/// A tree that has not ended after this time is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(300);
/// The maximum wait of the campaign's own client for unreachable nodes.
const PATIENCE: Duration = Duration::from_secs(120);
/// From one fault to the next.
const CALM_MS: std::ops::Range<u64> = 50..1500;
/// The time that a killed node stays away, and that a stopped one sleeps.
const AWAY_MS: std::ops::Range<u64> = 0..500;
const ASLEEP_MS: std::ops::Range<u64> = 100..4000;
/// With several replicas: long enough to be declared failed.
const AWAY_LONG_MS: std::ops::Range<u64> = 500..5000;
const ASLEEP_LONG_MS: std::ops::Range<u64> = 4000..12_000;
/// The maximum of twice committed tasks per run for which all events are printed.
const STORIES_MAX: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Replicas that are not complete after this time never will be.
const WHOLE_WITHIN: Duration = Duration::from_secs(120);

/// The parameters of a campaign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CampaignArgs<'a> {
    pub(crate) seed: u64,
    /// The minimum number of kills.
    pub(crate) kills: u64,
    pub(crate) nodes: u32,
    pub(crate) replicas: u32,
    /// The text of a generator.
    pub(crate) workload: &'a str,
    /// Real bytes are written and moved, and the kept files of the runs are compared.
    pub(crate) real_data: bool,
}

#[derive(Default, Serialize)]
struct Campaign {
    seed: u64,
    nodes: u32,
    replicas: u32,
    workload: String,
    tasks_each: u64,
    runs: u64,
    kills: u64,
    stops: u64,
    /// Nodes that lost their disk.
    wiped: u64,
    /// Keys that were written, one after each fault.
    keys: u64,
    tasks_done: u64,
    /// The operations of callers on the store meanwhile, and those with an unknown result.
    kv_operations: u64,
    kv_unanswered: u64,
    /// Changes that watches received.
    kv_watched: u64,
    /// Answers that fit no order of the operations, and contradictions of watches.
    kv_wrong: u64,
    /// Tasks that ended without being done, missing or surplus tasks, and missing keys.
    lost: u64,
    /// Kept files compared with those of an undisturbed run; those that differ, or are missing
    /// although no disk was lost meanwhile; and those lost with a disk.
    answers: u64,
    answers_wrong: u64,
    answers_gone: u64,
    /// Inputs with a sha256 reported by a consumer, compared with the kept files.
    readings: u64,
    /// Tasks that were committed twice.
    twice: u64,
    /// Tasks that were run again because their outputs were lost with a node.
    made_again: u64,
    /// Runs that did not end, and replicas that did not become complete again.
    stuck: u64,
    wall_s: f64,
}

impl Campaign {
    fn is_good(&self) -> bool {
        self.lost + self.twice + self.stuck + self.kv_wrong + self.answers_wrong == 0
    }
}

fn pause(dice: &mut SimRng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(dice.between(range.start, range.end - 1))
}

/// The nodes; dropping this ends them.
struct CampaignNodes<'a> {
    dir: &'a Path,
    plan: ClusterPlan,
    nodes: Vec<NodeProcess>,
}

impl Drop for CampaignNodes<'_> {
    fn drop(&mut self) {
        self.nodes.iter_mut().for_each(NodeProcess::abandon);
    }
}

impl<'a> CampaignNodes<'a> {
    async fn start(dir: &'a Path, plan: ClusterPlan) -> Result<Self, Failure> {
        let mut started = Self { dir, plan, nodes: Vec::new() };
        for node in 0..started.plan.nodes {
            started.nodes.push(processes::spawn(
                dir,
                NodeIdentity::Member(node),
                &started.plan,
                ProcessLifetime::Ours,
            )?);
        }
        processes::await_listening(dir, &mut started.nodes).await?;
        Ok(started)
    }

    /// The number of nodes that may be away at once with their disks: the voters need a majority,
    /// too.
    fn spare(&self) -> usize {
        (self.plan.replicas as usize - 1).min((self.nodes.len() - 1) / 2)
    }

    /// Causes one fault, and repairs it.
    async fn hurt(&mut self, dice: &mut SimRng, seen: &mut Campaign) -> Result<(), Failure> {
        let count = self.nodes.len();
        let first = dice.index(count);
        let spare = self.spare();
        let how = dice.below(100);
        if how < 30 {
            let asleep = if spare > 0 && how < 10 { ASLEEP_LONG_MS } else { ASLEEP_MS };
            self.nodes[first].signal(Signal::STOP);
            tokio::time::sleep(pause(dice, asleep)).await;
            self.nodes[first].signal(Signal::CONT);
            seen.stops += 1;
            return Ok(());
        }
        let at_once = match how {
            30..=84 => 1,
            85..=94 => 2.min(count),
            _ => count,
        };
        let mut victims: Vec<usize> = (0..at_once).map(|it| (first + it) % count).collect();
        for &victim in &victims {
            self.nodes[victim].abandon();
        }
        seen.kills += at_once as u64;
        let is_spared = at_once <= spare;
        if is_spared && dice.below(100) < 25 {
            for &victim in &victims {
                let state = self.dir.join(format!("nodes/{}/state", self.nodes[victim].node));
                std::fs::remove_dir_all(&state).map_err(|error| Failure::file(&state, &error))?;
            }
            seen.wiped += at_once as u64;
        }
        if is_spared {
            tokio::time::sleep(pause(dice, AWAY_LONG_MS)).await;
        }
        while !victims.is_empty() {
            let victim = victims.swap_remove(dice.index(victims.len()));
            tokio::time::sleep(pause(dice, AWAY_MS)).await;
            let node = self.nodes[victim].node;
            self.nodes[victim] = processes::spawn(
                self.dir,
                NodeIdentity::Member(node),
                &self.plan,
                ProcessLifetime::Ours,
            )?;
        }
        processes::await_listening(self.dir, &mut self.nodes).await
    }

    /// Waits until as many nodes may fail as there are spare replicas. False: that does not happen
    /// in time.
    async fn are_whole(&self, client: &Client) -> bool {
        let deadline = Instant::now() + WHOLE_WITHIN;
        while survival::losses_survived(client).await < self.spare() {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        true
    }
}

pub(crate) fn run(context: &Context, args: CampaignArgs<'_>) -> Done {
    let mut graph = workloads::load(args.workload, None, &workloads::LoadOptions::default())?;
    if args.real_data && graph.keep_results() == 0 {
        let text = format!("'{}' makes no results to compare", args.workload);
        return Err(
            Failure::refused(text).hint("give its last tasks an output, such as output=10KB")
        );
    }
    let graph = graph;
    let began = Instant::now();
    let mut seen = Campaign {
        seed: args.seed,
        nodes: args.nodes,
        replicas: args.replicas,
        workload: args.workload.to_owned(),
        tasks_each: graph.len() as u64,
        ..Campaign::default()
    };
    let ended = verb::block_on(all(args, &graph, &mut seen));
    seen.wall_s = began.elapsed().as_secs_f64();
    // An interrupted campaign reports its results so far.
    if ended.is_ok() || seen.runs + seen.kills + seen.stops > 0 {
        if context.output.json {
            context.output.json(&seen)?;
        } else {
            context.output.bytes(text(&seen).as_bytes())?;
        }
    }
    ended?;
    Ok(if seen.is_good() { Exit::Ok } else { Exit::Failed })
}

fn text(seen: &Campaign) -> String {
    format!(
        "{} runs of {} tasks, {} kills ({} with the disk), {} stops in {:.0} s\n\
         tasks done   {}\nlost         {}\ntwice        {}\nmade again   {}\nstuck        {}\n\
         store        {} operations ({} without an answer), {} changes watched, {} wrong\n{}",
        seen.runs,
        seen.tasks_each,
        seen.kills,
        seen.wiped,
        seen.stops,
        seen.wall_s,
        seen.tasks_done,
        seen.lost,
        seen.twice,
        seen.made_again,
        seen.stuck,
        seen.kv_operations,
        seen.kv_unanswered,
        seen.kv_watched,
        seen.kv_wrong,
        compared(seen),
    )
}

fn compared(seen: &Campaign) -> String {
    match seen.answers {
        0 => String::new(),
        answers => format!(
            "answers      {answers} kept files compared, {} wrong, {} gone with a disk; {} inputs \
             as consumers read them\n",
            seen.answers_wrong, seen.answers_gone, seen.readings
        ),
    }
}

/// The files of the nodes are kept if something went wrong.
async fn all(args: CampaignArgs<'_>, graph: &Graph, seen: &mut Campaign) -> Result<(), Failure> {
    let dir = tempfile::Builder::new().prefix("starling-check-").tempdir();
    let mut dir =
        dir.map_err(|error| Failure::refused(format!("no temporary directory: {error}")))?;
    let ended = Box::pin(all_in(dir.path(), args, graph, seen)).await;
    if ended.is_err() || !seen.is_good() {
        dir.disable_cleanup(true);
        say(&format!("the files of the nodes are kept in {}", dir.path().display()));
    }
    ended
}

async fn all_in(
    dir: &Path,
    args: CampaignArgs<'_>,
    graph: &Graph,
    seen: &mut Campaign,
) -> Result<(), Failure> {
    let plan = ClusterPlan::new(args.nodes, 2, scheduler::Tuning::default());
    let plan = ClusterPlan { replicas: args.replicas, ..plan };
    let mut victims = CampaignNodes::start(dir, plan).await?;
    let client = Client::connect_with(dir, ClientOptions { request_timeout: PATIENCE }).await?;
    let mut dice = SimRng::new(args.seed);
    if !victims.are_whole(&client).await {
        return Err(Failure::lost("a new cluster does not complete its replicas"));
    }
    let expected = match args.real_data {
        true => Some(undisturbed(&client, graph, dir).await?),
        false => None,
    };
    let callers = kv::Callers::start(&client, &mut dice);
    // Runs may be shorter than the time between two faults.
    let mut fault_at = tokio::time::Instant::now() + pause(&mut dice, CALM_MS);
    while seen.kills < args.kills && seen.stuck == 0 {
        let wiped_before = seen.wiped;
        let options = submission(args.real_data);
        let plan = kept_outputs::send(&client, graph, &options).await?;
        let job = plan.job();
        let ended = {
            let end = tokio::time::timeout(STUCK_AFTER, client.raw().wait_job(job, |_| {}));
            let mut end = std::pin::pin!(end);
            loop {
                tokio::select! {
                    ended = &mut end => break ended,
                    () = tokio::time::sleep_until(fault_at) => {}
                }
                // Completed even if the job ends: no node stays stopped or away.
                victims.hurt(&mut dice, seen).await?;
                write_key(&client, seen).await?;
                if !victims.are_whole(&client).await {
                    seen.stuck += 1;
                    say("error: the replicas do not become complete again");
                    return Ok(());
                }
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
        if let Some(expected) = &expected {
            let found = Answers::fetch(&client, graph, &plan, &dir.join("answers")).await;
            compare(expected, found, seen.wiped > wiped_before, seen)?;
        }
    }
    let outcome = callers.end().await?;
    seen.kv_operations = outcome.operations;
    seen.kv_unanswered = outcome.unanswered;
    seen.kv_watched = outcome.changes_watched;
    seen.kv_wrong = outcome.wrong;
    judge_keys(&client, seen).await
}

/// Compares the kept files of a run with those of an undisturbed one.
fn compare(
    expected: &Answers,
    found: Result<Answers, Failure>,
    lost_disks: bool,
    seen: &mut Campaign,
) -> Result<(), Failure> {
    let found = match found {
        Err(error) if lost_disks => {
            say(&format!("run {}: {}", seen.runs, error.message));
            Answers::default()
        }
        found => found?,
    };
    let differ = expected.compare(seen.runs, &found);
    seen.answers += expected.len() as u64;
    seen.readings += found.readings;
    seen.answers_wrong += differ.wrong;
    // A disk may be lost when the job has just ended, with files that only that node kept.
    match lost_disks {
        true => seen.answers_gone += differ.missing,
        false => seen.answers_wrong += differ.missing,
    }
    Ok(())
}

fn submission(real_data: bool) -> SubmitOptions {
    let settings = JobSettings { real_data, ..JobSettings::default() };
    SubmitOptions { settings, ..SubmitOptions::default() }
}

/// The kept files of a run without faults.
async fn undisturbed(client: &Client, graph: &Graph, dir: &Path) -> Result<Answers, Failure> {
    let options = submission(true);
    let plan = kept_outputs::send(client, graph, &options).await?;
    let job = plan.job();
    let end = tokio::time::timeout(STUCK_AFTER, client.raw().wait_job(job, |_| {})).await;
    let end = end.map_err(|_| Failure::lost("a run without faults does not end"))??;
    let answers = Answers::fetch(client, graph, &plan, &dir.join("answers")).await?;
    let done = end.sum.as_ref().map_or(0, |sum| sum.done);
    if done != graph.len() as u64 {
        let text = format!("undisturbed, {done} of {} tasks are done", graph.len());
        return Err(Failure::lost(text));
    }
    answers.expect_whole(kept_outputs::of_graph(graph, &plan, true).len())?;
    Ok(answers)
}

fn key(number: u64) -> Vec<u8> {
    format!("campaign/{number}").into_bytes()
}

async fn write_key(client: &Client, seen: &mut Campaign) -> Result<(), Failure> {
    let key = key(seen.keys);
    client.kv().insert(&key, &key).await?;
    seen.keys += 1;
    Ok(())
}

async fn judge_keys(client: &Client, seen: &mut Campaign) -> Result<(), Failure> {
    for number in 0..seen.keys {
        let key = key(number);
        let found = client.kv().lookup(&key).await?;
        if found.is_none_or(|value| value.bytes != key) {
            seen.lost += 1;
            say(&format!("error: key {number} is lost"));
        }
    }
    Ok(())
}

/// Compares a run with the known size of its tree.
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
    // A log may lack the last moments before a kill, but has no event twice. With several replicas
    // a home may fail with a commit that no replica has. Then its successor commits again, and no
    // other node has seen the first commit. So commits count per incarnation of a home. An end that
    // was revoked because the task's outputs were lost with a node does not count.
    let mut lives: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut commits: BTreeMap<(TaskId, Option<(NodeId, u32)>), i64> = BTreeMap::new();
    Logs::read(client, job, None).await?.for_each(|entry| {
        let life = lives.get(&entry.node).copied().unwrap_or_default();
        let home = (seen.replicas > 1).then_some((entry.node, life));
        match entry.event {
            Event::NodeStarted { incarnation, .. } => {
                lives.insert(entry.node, incarnation);
            }
            Event::Committed { task, end: End::Done, .. } => {
                *commits.entry((task, home)).or_default() += 1;
            }
            Event::Replaced { task, why: RetryReason::Rebuilt | RetryReason::Recalled, .. } => {
                *commits.entry((task, home)).or_default() -= 1;
                seen.made_again += 1;
            }
            _ => {}
        }
        Ok(())
    })?;
    let twice = commits.iter().filter(|(_, times)| **times > 1).map(|((task, _), _)| *task);
    let twice: BTreeSet<TaskId> = twice.collect();
    seen.twice += twice.len() as u64;
    if !twice.is_empty() {
        say(&format!("error: run {}: {} tasks were committed twice", seen.runs, twice.len()));
    }
    for task in twice.into_iter().take(STORIES_MAX) {
        tell(client, job, task).await?;
    }
    Ok(())
}

/// Prints all events of a task.
async fn tell(client: &Client, job: JobId, task: TaskId) -> Result<(), Failure> {
    Logs::read(client, job, Some(task.local)).await?.for_each(|entry| {
        let is_start = matches!(entry.event, Event::NodeStarted { .. });
        if is_start || entry.event.task() == Some(task) {
            say(&format!("{} node {}: {:?}", entry.time.utc(), entry.node.0, entry.event));
        }
        Ok(())
    })
}

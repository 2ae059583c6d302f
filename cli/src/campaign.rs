/*!
`starling check --processes`: real nodes are killed and stopped while trees of known size run.

With one copy of each partition a node that was killed comes back with its disk. With R of them up
to R - 1 nodes at a time, fewer than half of all, are killed and stay away for long, lose their
disks, or sleep until they are taken for dead; then the others get on, and before the next such
fault as many may be lost again. All may be killed at once, and come back in any order, with their
disks.

What must hold: each tree ends with exactly as many tasks done as it has, none failed, none
committed twice, and none is stuck; with real data each keeps the files that an undisturbed run
keeps, with the same bytes, or with those that their consumers say that they have read (`readings`);
and every key is there that was written, one after each fault.
All the while callers use the store: what they were told must be linearizable for each key (`kv`).
The seed draws the faults and when they come; what they meet is up to the machine.
*/

mod answers;
mod kv;
mod readings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use client::{Client, ClientOptions, SubmitOptions};
use proto::event::{End, Event, RetryReason};
use proto::{JobId, NodeId, TaskId, wire};
use rustix::process::Signal;
use serde::Serialize;
use sim::SimRng;
use workloads::Graph;

use self::answers::Answers;
use crate::embed::ClusterPlan;
use crate::errors::{Done, Exit, Failure};
use crate::output::say;
use crate::processes::{self, NodeIdentity, NodeProcess, ProcessLifetime};
use crate::reports::Logs;
use crate::{Context, node_list, submit};

/// A tree that has not ended by then is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(300);
/// How long the campaign's own client waits for nodes that are away.
const PATIENCE: Duration = Duration::from_secs(120);
/// From one fault to the next.
const CALM_MS: std::ops::Range<u64> = 50..1500;
/// How long a node that was killed stays away, and how long a stopped one sleeps.
const AWAY_MS: std::ops::Range<u64> = 0..500;
const ASLEEP_MS: std::ops::Range<u64> = 100..4000;
/// Where others have copies: long enough to be taken for dead.
const AWAY_LONG_MS: std::ops::Range<u64> = 500..5000;
const ASLEEP_LONG_MS: std::ops::Range<u64> = 4000..12_000;
/// Of how many tasks of a run that were committed twice all is told.
const STORIES_MAX: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Copies that are not whole again by then never will be.
const WHOLE_WITHIN: Duration = Duration::from_secs(120);

/// What to do to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CampaignArgs<'a> {
    pub(crate) seed: u64,
    /// At least so many nodes are killed.
    pub(crate) kills: u64,
    pub(crate) nodes: u32,
    pub(crate) replicas: u32,
    /// The text of a generator.
    pub(crate) workload: &'a str,
    /// Bytes are written and moved, and what the runs keep is compared.
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
    /// What callers did with the store meanwhile, and what of it nobody knows the fate of.
    kv_operations: u64,
    kv_unanswered: u64,
    /// Changes of which watches told.
    kv_watched: u64,
    /// Answers that fit no order of the operations, and watches that told something else.
    kv_wrong: u64,
    /// Tasks that ended without being done, or of which too many or too few were; and keys.
    lost: u64,
    /// Kept files that were compared with those of a run that nobody disturbed; those that differ,
    /// or are missing though no disk was lost meanwhile; and those that went with a disk.
    answers: u64,
    answers_wrong: u64,
    answers_gone: u64,
    /// Inputs of which a consumer said the sha256 that it read, held against what is kept.
    readings: u64,
    /// Tasks that were committed twice.
    twice: u64,
    /// Tasks whose outputs were lost with a node, and made again.
    made_again: u64,
    /// Runs that did not end, and copies that did not become whole again.
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

/// The nodes; they end with this.
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

    /// How many may be away at once, with their disks: those who agree need a majority, too.
    fn spare(&self) -> usize {
        (self.plan.replicas as usize - 1).min((self.nodes.len() - 1) / 2)
    }

    /// Does one thing, and puts it right again.
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

    /// Until so many nodes may be lost again as there are copies to spare. False: never.
    async fn are_whole(&self, client: &Client) -> bool {
        let deadline = Instant::now() + WHOLE_WITHIN;
        while node_list::losses_survived(client).await < self.spare() {
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
        let text = format!("'{}' makes no results that could be compared", args.workload);
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

/// What the nodes wrote is kept where something went wrong.
async fn all(args: CampaignArgs<'_>, graph: &Graph, seen: &mut Campaign) -> Result<(), Failure> {
    let dir = tempfile::Builder::new().prefix("starling-check-").tempdir();
    let mut dir =
        dir.map_err(|error| Failure::refused(format!("no temporary directory: {error}")))?;
    let ended = all_in(dir.path(), args, graph, seen).await;
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
        return Err(Failure::lost("the copies of a new cluster do not become whole"));
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
        let plan = submit::send(&client, graph, &options).await?;
        let job = plan.job();
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
                write_key(&client, seen).await?;
                if !victims.are_whole(&client).await {
                    seen.stuck += 1;
                    say("error: copies do not become whole again");
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

/// Holds what a run left against what an undisturbed one did.
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
    // A disk may go when the job has just ended, and with it what only that node kept.
    match lost_disks {
        true => seen.answers_gone += differ.missing,
        false => seen.answers_wrong += differ.missing,
    }
    Ok(())
}

fn submission(real_data: bool) -> SubmitOptions {
    let settings = wire::JobSettings { real_data, ..wire::JobSettings::default() };
    SubmitOptions { settings, ..SubmitOptions::default() }
}

/// What a run keeps while nothing is broken.
async fn undisturbed(client: &Client, graph: &Graph, dir: &Path) -> Result<Answers, Failure> {
    let options = submission(true);
    let plan = submit::send(client, graph, &options).await?;
    let job = plan.job();
    let end = tokio::time::timeout(STUCK_AFTER, client.wait_job(job, |_| {})).await;
    let end = end.map_err(|_| Failure::lost("a run that nobody disturbed does not end"))??;
    let answers = Answers::fetch(client, graph, &plan, &dir.join("answers")).await?;
    let done = end.sum.as_ref().map_or(0, |sum| sum.done);
    if done != graph.len() as u64 {
        let text = format!("undisturbed, {done} of {} tasks are done", graph.len());
        return Err(Failure::lost(text));
    }
    answers.expect_whole(crate::kept_outputs::of_graph(graph, &plan, true).len())?;
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
    // A log may lack its last moments before a kill, but what it has it has once. Where there are
    // copies a home may die with a commit that no copy has: then its successor commits, and nobody
    // was told of the first. So each life of a home counts for itself. An end that was taken back,
    // because what the task had made was lost with a node, does not count.
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

/// Says all that the logs have of a task.
async fn tell(client: &Client, job: JobId, task: TaskId) -> Result<(), Failure> {
    Logs::read(client, job, Some(task.local)).await?.for_each(|entry| {
        let is_start = matches!(entry.event, Event::NodeStarted { .. });
        if is_start || analysis::task_of(&entry.event) == Some(task) {
            say(&format!("{} node {}: {:?}", entry.time.utc(), entry.node.0, entry.event));
        }
        Ok(())
    })
}

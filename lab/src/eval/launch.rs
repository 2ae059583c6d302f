//! Makes the runs. Each is a process of this program, so that a failed one ends alone, and its CPU
//! time and memory are its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use proto::Time;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use verb::Context;
use verb::errors::{Failure, plain};
use verb::{settings, units};

use super::point::{FigureSource, Point};
use super::results::{Outcome, Results};

/// The time for a run to end after a stop request.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The options of the runs of an evaluation.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The directory for reports of single runs.
    pub(super) dir: PathBuf,
    /// Existing reports are used.
    pub(super) reuse: bool,
    /// Run records are written beside the reports.
    pub(super) records: bool,
    pub(super) first_seed: u64,
    /// The time limit of a run.
    pub(super) patience: Duration,
    /// No run begins after this time; smaller clusters run first.
    pub(super) budget: Option<Duration>,
}

/// One run.
#[derive(Clone, Debug)]
struct Job {
    point: Point,
    round: u32,
    command: String,
    arguments: Vec<String>,
    /// The file of its report.
    file: PathBuf,
    /// The file of its run record, if it writes one.
    record: Option<PathBuf>,
}

/// Makes all runs. Those that need the whole machine run one after the other. Then simulations and
/// calculations run in parallel, one for each CPU.
pub(super) async fn run(
    context: &Context,
    plan: &Plan,
    points: &BTreeMap<Point, u32>,
) -> Result<Results, Failure> {
    let runs = plan.dir.join("runs");
    std::fs::create_dir_all(&runs).map_err(|error| Failure::file(&runs, &error))?;
    let jobs = points.iter().flat_map(|(point, repeats)| plan.jobs(point, *repeats, &runs));
    let (alone, mut together): (Vec<Job>, Vec<Job>) =
        jobs.partition(|job| job.point.arm == FigureSource::Real);
    if plan.budget.is_some() {
        together.sort_by_key(|job| job.point.nodes());
    }
    let began = Instant::now();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut told = LaunchProgress { context, done: 0, total: alone.len() + together.len() };
    let mut results = Results::default();
    for (jobs, at_once) in [(alone, 1), (together, cpus)] {
        let mut waiting = jobs.into_iter();
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < at_once
                && let Some(job) = waiting.next()
            {
                let late = plan.budget.is_some_and(|budget| began.elapsed() > budget);
                if late && !(plan.reuse && job.file.exists()) {
                    continue;
                }
                under_way.spawn(carry_out(job, plan.clone()));
            }
            let Some(ended) = under_way.join_next().await else { break };
            let (job, outcome) = ended.expect("carrying out does not panic");
            told.tell(&outcome);
            results.add(job.point, outcome);
        }
    }
    Ok(results)
}

impl Plan {
    fn jobs(&self, point: &Point, repeats: u32, runs: &Path) -> Vec<Job> {
        let job = |round: u32| {
            let seed = self.first_seed + u64::from(round);
            let command = point.command(seed);
            let name = xxhash(&format!("{command} {round}"));
            let file = runs.join(format!("{name:016x}.json"));
            let record = self.records && point.has_record();
            Job {
                point: point.clone(),
                round,
                arguments: point.arguments(seed),
                command,
                record: record.then(|| file.with_extension("srr")),
                file,
            }
        };
        (0..repeats).map(job).collect()
    }
}

/// A name for a command line that is stable over evaluations.
fn xxhash(text: &str) -> u64 {
    // FNV-1a is sufficient for file names.
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

async fn carry_out(job: Job, plan: Plan) -> (Job, Outcome) {
    let kept = plan.reuse.then(|| kept(&job)).flatten();
    let reused = kept.is_some();
    let began = Instant::now();
    let report = match kept {
        Some(report) => Ok(report),
        None => match tokio::time::timeout(plan.patience, measure(&job)).await {
            Ok(report) => report,
            Err(_) => Err(format!("not ended within {} s", plan.patience.as_secs())),
        },
    };
    let report = report.map(slim);
    if let (Ok(report), false) = (&report, reused) {
        // Only the next evaluation would need it.
        let _ = std::fs::write(&job.file, format!("{report}\n"));
    }
    let outcome = Outcome {
        arm: job.point.arm,
        command: job.command.clone(),
        round: job.round,
        wall_s: began.elapsed().as_secs_f64(),
        reused,
        // A report from before may have no record.
        record: job.record.clone().filter(|record| record.is_file()),
        report,
    };
    (job, outcome)
}

/// Drops the rows of single nodes, which no figure uses.
fn slim(mut report: Value) -> Value {
    if let Some(report) = report.as_object_mut() {
        report.remove("per_node");
    }
    report
}

fn kept(job: &Job) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(&job.file).ok()?).ok()
}

/// A child process of this program. Dropping it before its end sends SIGTERM, so that it can end
/// its own children.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let id = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let Some(id) = id else { return };
        // The process may have ended since.
        let _ = kill_process(id, Signal::TERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while let Ok(None) = self.0.try_wait() {
            if Instant::now() >= deadline {
                let _ = self.0.start_kill();
                return;
            }
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
    }
}

/// Runs a command line and reads its report.
async fn measure(job: &Job) -> Result<Value, String> {
    let told = |error: std::io::Error| plain(&error);
    let program = std::env::current_exe().map_err(told)?;
    let mut command = Command::new(program);
    command.args(&job.arguments).args(["--json", "--quiet"]);
    if let Some(record) = &job.record {
        command.arg("--record").arg(record);
    }
    // Settings of the user must not influence the experiment.
    let own = |name: &OsString| name.to_string_lossy().starts_with("STARLING_");
    for name in std::env::vars_os().map(|(name, _)| name).filter(own) {
        command.env_remove(name);
    }
    command.env(settings::CONFIG, settings::CONFIG_NONE);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process(command.spawn().map_err(told)?);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let stdout = process.0.stdout.take().expect("it is piped");
    let stderr = process.0.stderr.take().expect("it is piped");
    let (mut stdout, mut stderr) = (stdout, stderr);
    let both = tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err));
    both.0.and(both.1).map_err(told)?;
    let status = process.0.wait().await.map_err(told)?;
    if !status.success() {
        let text = String::from_utf8_lossy(&err);
        let said = text.lines().rev().find_map(|line| line.strip_prefix("error: "));
        return Err(said.map_or_else(|| format!("it ended with {status}"), str::to_owned));
    }
    serde_json::from_slice(&out).map_err(|error| format!("its report cannot be read: {error}"))
}

/// Prints the progress of the evaluation.
struct LaunchProgress<'c> {
    context: &'c Context,
    done: usize,
    total: usize,
}

impl LaunchProgress<'_> {
    fn tell(&mut self, outcome: &Outcome) {
        self.done += 1;
        let how = match &outcome.report {
            Ok(_) if outcome.reused => "kept".to_owned(),
            Ok(_) => units::seconds(outcome.wall_s),
            Err(why) => format!("failed: {why}"),
        };
        let (done, total) = (self.done, self.total);
        self.context.output.note(&format!("[{done}/{total}] {how}: {}", outcome.command));
    }
}

/// The day and time, for people.
pub(super) fn date() -> String {
    let utc = Time(client::now_ns()).utc();
    format!("{} {} UTC", &utc[..10], &utc[11..16])
}

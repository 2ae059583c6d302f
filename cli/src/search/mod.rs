//! `starling search`: search trees on the slots of this machine.

mod progress;
mod report;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::search::problems::{self, Counted, ErrorKind, ProblemError, Solver};
use ::search::{Bag, Enumerate, Goal, Optimise, Problem, TreeBag};
use clap::{Args, ValueEnum};
use progress::Progress;
use proto::limits::SLOTS_MAX;
use report::Report;
use searcher::{Incumbent, Next, Outcome};
use verb::Context;
use verb::errors::{self, Done, Exit, Failure};
use verb::flags::TimeoutArgs;

/// The largest file of a problem.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Args, Debug)]
pub(crate) struct SearchArgs {
    /// The problem, such as uts:T1 or queens:13
    problem: String,
    /// Threads that search [default: one for each CPU]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOTS_MAX)))]
    slots: Option<u32>,
    /// Whether a part of the tree is cut off when its bound is no better than the incumbent
    #[arg(long, value_enum, default_value_t = Prune::Yes)]
    prune: Prune,
    #[command(flatten)]
    timeout: TimeoutArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Prune {
    Yes,
    No,
}

/// Why a search ended before its tree was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Timeout,
    Interrupt,
}

pub(crate) fn run(context: &Context, args: &SearchArgs) -> Done {
    let slots = match args.slots {
        Some(slots) => slots as usize,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let local = Local {
        began: Instant::now(),
        slots,
        prune: args.prune == Prune::Yes,
        progress: Progress::new(&context.output, slots),
        timeout: args.timeout.timeout.map(|span| span.0),
        stop: Arc::clone(&stop),
    };
    let name = args.problem.clone();
    let search = move || problems::solve(&name, |path| Ok(read(Path::new(path))?), local);
    let mut report = until_interrupted(&stop, search)?.map_err(|SearchFailure(why)| why)??;
    report.problem.clone_from(&args.problem);
    report.print(&context.output)?;
    Ok(match report.ended {
        None => Exit::Ok,
        Some(Ended::Timeout) => Exit::TimedOut,
        Some(Ended::Interrupt) => Exit::Interrupted,
    })
}

/// Runs a search on another thread. An interrupt asks it to stop and to report; a second one ends
/// the program.
fn until_interrupted<T: Send + 'static>(
    stop: &AtomicBool,
    search: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failure::lost(format!("cannot start the runtime: {}", errors::plain(&error)))
        })?;
    let ended = runtime.block_on(async {
        let first = verb::interrupted();
        tokio::pin!(first);
        // It is polled after `first`: the handlers are installed before the search begins.
        let search = async { tokio::task::spawn_blocking(search).await };
        tokio::pin!(search);
        tokio::select! {
            biased;
            () = &mut first => stop.store(true, Ordering::Relaxed),
            ended = &mut search => return Some(ended),
        }
        tokio::select! {
            biased;
            () = verb::interrupted() => None,
            ended = &mut search => Some(ended),
        }
    });
    runtime.shutdown_background();
    match ended {
        Some(Ok(report)) => Ok(report),
        Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        None => Err(Failure::interrupted()),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    // Pipes and devices have no size: the bound counts what is read.
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Failure::refused(format!("{}: it is larger than 64 MiB", path.display()))
            .hint("give a file with one problem"));
    }
    String::from_utf8(bytes).map_err(|_| {
        let reason = "stream did not contain valid UTF-8";
        failed(std::io::Error::new(std::io::ErrorKind::InvalidData, reason))
    })
}

/// The reason why no search began. A local type, because `Failure` belongs to another crate.
struct SearchFailure(Failure);

impl From<Failure> for SearchFailure {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl From<ProblemError> for SearchFailure {
    fn from(error: ProblemError) -> Self {
        let exit = match error.kind {
            ErrorKind::Name => Exit::Usage,
            ErrorKind::Content => Exit::Refused,
        };
        Self(Failure::new(exit, error.message).hint(error.hint))
    }
}

/// The slots of this machine.
struct Local {
    /// Before the file of the problem is read.
    began: Instant,
    slots: usize,
    prune: bool,
    progress: Progress,
    timeout: Option<Duration>,
    stop: Arc<AtomicBool>,
}

impl Local {
    fn search<B: Bag>(
        mut self,
        bag: B,
        incumbent: &Incumbent,
        is_optimised: bool,
    ) -> Result<(Outcome, Option<Ended>), Failure> {
        let mut ended = None;
        let (began, slots) = (self.began, self.slots);
        let goal = incumbent.goal();
        let outcome = searcher::run(bag, slots, goal, incumbent, progress::EVERY, |snapshot| {
            let elapsed = began.elapsed();
            let best = incumbent.solution().map(|solution| solution.value);
            self.progress.show(snapshot, elapsed, is_optimised.then_some((goal, best)));
            if self.stop.load(Ordering::Relaxed) {
                ended = Some(Ended::Interrupt);
            } else if self.timeout.is_some_and(|timeout| elapsed >= timeout) {
                ended = Some(Ended::Timeout);
            }
            if ended.is_some() { Next::Stop } else { Next::Continue }
        });
        self.progress.end();
        let outcome = outcome.map_err(|error| {
            let reason = errors::plain(&error);
            Failure::lost(format!("cannot start {slots} threads: {reason}"))
                .hint("choose fewer with --slots")
        })?;
        Ok((outcome, ended))
    }
}

impl Solver for Local {
    type Output = Result<Report, Failure>;

    fn enumerate<P: Problem>(self, problem: P, counted: Counted) -> Self::Output {
        let (began, slots) = (self.began, self.slots);
        let bag = TreeBag::new(Arc::new(problem), Enumerate);
        let incumbent = Incumbent::new(Goal::Minimise, None);
        let (outcome, ended) = self.search(bag, &incumbent, false)?;
        let mut report = Report::new(&outcome, ended, slots, began.elapsed());
        report.result = Some(match counted {
            Counted::Nodes => i64::try_from(outcome.last.tally.nodes).unwrap_or(i64::MAX),
            Counted::Values => outcome.last.tally.sum,
        });
        Ok(report)
    }

    fn optimise<P: Problem>(self, problem: P) -> Self::Output {
        let (began, slots) = (self.began, self.slots);
        let skeleton = Optimise { prune: self.prune };
        let incumbent = Incumbent::new(P::GOAL, problem.start());
        let bag = TreeBag::new(Arc::new(problem), skeleton);
        let (outcome, ended) = self.search(bag, &incumbent, true)?;
        let mut report = Report::new(&outcome, ended, slots, began.elapsed());
        report.optimum(P::GOAL, incumbent.solution(), outcome.last.bound);
        Ok(report)
    }
}

//! `starling trace`: a run as a trace for viewers.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use analysis::{Edges, Label};
use clap::{Args, ValueEnum};
use lens::Record;
use lens::failures::kind_of_name;
use proto::{LocalId, TaskId, Time, wire};
use verb::Context;
use verb::cluster::logs::{Logs, TraceFile};
use verb::errors::{Done, Exit, Failure};
use verb::files;
use verb::output::say;

use super::{Source, collect};

/// The time in which homes answer, or the trace is without the names of their tasks.
const TASKS_TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes that are compressed at once.
const COMPRESSED_AT_ONCE: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum TraceFormat {
    /// JSON, which Chrome and Perfetto open
    Chrome,
    /// The smaller form of Perfetto, for runs of many tasks
    Perfetto,
}

#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    source: Source,
    /// The file; it is compressed if its name ends in .gz
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The form of the trace
    #[arg(long, value_name = "FORM", default_value = "chrome")]
    format: TraceFormat,
}

impl TraceArgs {
    /// Whether the trace is made of event logs. A record has no more than attempts.
    fn reads_logs(&self, is_compressed: bool) -> bool {
        self.source.from.is_none() && self.format == TraceFormat::Chrome && !is_compressed
    }
}

/// `starling trace JOB -o FILE`.
pub(crate) fn run(context: &Context, args: &TraceArgs) -> Done {
    let is_compressed = args.output.extension().is_some_and(|ending| ending == "gz");
    match &args.source.job {
        // With the events beside attempts, and no more memory than a trace needs.
        Some(job) if args.reads_logs(is_compressed) => from_logs(context, args, job),
        _ => {
            let record = super::read(context, &args.source)?;
            files::put(&args.output, &bytes(&record, args, is_compressed)?)?;
            Ok(Exit::Ok)
        }
    }
}

fn bytes(record: &Record, args: &TraceArgs, is_compressed: bool) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| Failure::file(&args.output, &error);
    let write = |out: &mut dyn Write| {
        let mut out = out;
        match args.format {
            TraceFormat::Chrome => lens::trace::chrome(record, &mut out),
            TraceFormat::Perfetto => lens::trace::perfetto(record, &mut out),
        }
    };
    if is_compressed {
        let level = flate2::Compression::default();
        let encoder = flate2::write::GzEncoder::new(Vec::new(), level);
        // A trace is written in small pieces.
        let mut buffered = std::io::BufWriter::with_capacity(COMPRESSED_AT_ONCE, encoder);
        write(&mut buffered).map_err(failed)?;
        let encoder = buffered.into_inner().map_err(|error| failed(error.into_error()))?;
        return encoder.finish().map_err(failed);
    }
    let mut bytes = Vec::new();
    write(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn from_logs(context: &Context, args: &TraceArgs, job: &crate::common::selector::Selector) -> Done {
    verb::block_on(async {
        let client = context.connect().await?;
        let job = collect::one(&client, job, "a trace is").await?;
        let state = client.raw().job(job).await?;
        let file = TraceFile::open(&args.output)?;
        let logs = Logs::read(&client, job, None).await?;
        let (mut names, mut edges) = (HashMap::new(), Edges::default());
        let see = |task: wire::TaskState| {
            edges.add(LocalId(task.local), task.parents.iter().copied().map(LocalId));
            names.insert(task.local, task.name);
        };
        if !client.raw().tasks_with_parents(job, TASKS_TIMEOUT, see).await? {
            say("warning: without the names and inputs of some tasks: their homes do not answer");
        }
        let label = |task: TaskId| {
            let name = names.get(&task.local.0)?.clone();
            let kind = kind_of_name(&name);
            Some(Label { name, kind })
        };
        logs.write_trace(file, Some(Time(state.submitted_ns)), label, edges)?;
        Ok(Exit::Ok)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        trace: TraceArgs,
    }

    #[test]
    fn a_record_is_not_left_for_a_cluster() {
        let reads_logs = |words: &[&str]| {
            let words = [&["trace", "-o", "t.json"], words].concat();
            Line::parse_from(words).trace.reads_logs(false)
        };
        assert!(reads_logs(&["1"]));
        assert!(!reads_logs(&["1", "--from", "runs"]));
        assert!(!reads_logs(&["1", "--format", "perfetto"]));
    }
}

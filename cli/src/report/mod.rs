//! `starling report`: a run as a page, text, JSON or CSV, from a cluster or from a run record.

pub(crate) mod collect;
pub(crate) mod files;
pub(crate) mod keep;
pub(crate) mod offline;
pub(crate) mod trace;

use std::path::{Path, PathBuf};

use clap::Args;
use lens::report::Comparison;
use lens::{Record, Report};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};

use crate::common::selector::Selector;

/// The run that a verb reads.
#[derive(Args, Debug)]
pub(crate) struct Source {
    /// The job: last, or its number
    #[arg(required_unless_present = "from")]
    job: Option<Selector>,
    /// Read a run record instead of a cluster: of a file, a run, a directory of runs, or the
    /// directory of an instance that was stopped [default of the job: last]
    #[arg(long, value_name = "DIR|FILE")]
    from: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    source: Source,
    /// The file; its ending selects the form: .html, .txt, .json, .csv, or .srr for a run record
    /// [default: text on standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Text for a terminal
    #[arg(long, conflicts_with = "csv")]
    text: bool,
    /// A table of all attempts
    #[arg(long)]
    csv: bool,
    /// Compare with another run: a job of the same cluster or of --from, a run record, or its
    /// directory
    #[arg(long, value_name = "JOB|DIR|FILE")]
    against: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Page,
    Text,
    Json,
    Csv,
    Record,
}

/// A report, beside another one if asked for.
#[derive(Serialize)]
struct Compared<'r> {
    #[serde(flatten)]
    report: &'r Report<'r>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'r Comparison>,
}

pub(crate) fn run(context: &Context, args: &ReportArgs) -> Done {
    let form = form(context, args)?;
    if args.against.is_some() && matches!(form, Form::Csv | Form::Record) {
        return Err(Failure::usage("a table of attempts and a run record have no comparison")
            .hint("use --text, --json or a page with --against"));
    }
    let record = read(context, &args.source)?;
    let from = args.source.from.as_deref();
    let against = args.against.as_deref().map(|it| other(context, from, it)).transpose()?;
    let report = Report::of(&record);
    let other = against.as_ref().map(Report::of);
    let comparison = other.as_ref().map(|other| Comparison::of(&report, other));
    let comparison = comparison.as_ref();
    let bytes = match form {
        Form::Page => report.to_page(&files::bytes(&record)?, comparison, &sha256).into_bytes(),
        Form::Text => text(&report, comparison).into_bytes(),
        Form::Json => {
            let json = serde_json::to_string(&Compared { report: &report, comparison });
            (json.expect("numbers and strings always serialise") + "\n").into_bytes()
        }
        Form::Csv => report.to_csv().into_bytes(),
        Form::Record => files::bytes(&record)?,
    };
    match &args.output {
        Some(path) => verb::files::put(path, &bytes)?,
        None => context.output.bytes(&bytes)?,
    }
    Ok(Exit::Ok)
}

fn text(report: &Report<'_>, comparison: Option<&Comparison>) -> String {
    let comparison = comparison.map(|it| format!("\n{}", it.to_text())).unwrap_or_default();
    report.to_text() + &comparison
}

/// The form by flag, else by the ending of the file.
fn form(context: &Context, args: &ReportArgs) -> Result<Form, Failure> {
    let ending = args.output.as_deref().and_then(Path::extension);
    let ending = ending.map(|ending| ending.to_string_lossy().to_lowercase());
    if context.output.json && (args.text || args.csv) {
        return Err(Failure::usage("--json, --text and --csv exclude each other"));
    }
    Ok(match ending.as_deref() {
        _ if context.output.json => Form::Json,
        _ if args.text => Form::Text,
        _ if args.csv => Form::Csv,
        Some("html" | "htm") => Form::Page,
        Some("txt") => Form::Text,
        Some("json") => Form::Json,
        Some("csv") => Form::Csv,
        Some(files::ENDING) => Form::Record,
        None if args.output.is_none() => Form::Text,
        _ => {
            return Err(Failure::usage("the ending of --output selects no form of report")
                .hint("use .html, .txt, .json, .csv or .srr, or one of --text, --json, --csv"));
        }
    })
}

/// The record of a source.
pub(crate) fn read(context: &Context, source: &Source) -> Result<Record, Failure> {
    match (&source.from, &source.job) {
        (Some(path), job) => offline::one(path, job.as_ref().unwrap_or(&Selector::Last)),
        (None, Some(job)) => collect::of_cluster(context, job),
        (None, None) => Err(Failure::usage("name a job, or a run record with --from")),
    }
}

/// The record of another run. The number of a job is one of the same source.
fn other(context: &Context, from: Option<&Path>, text: &str) -> Result<Record, Failure> {
    let path = Path::new(text);
    match (text.parse::<Selector>(), from) {
        (Ok(job), Some(from)) if !path.exists() => offline::one(from, &job),
        (Ok(job), None) if !path.exists() => collect::of_cluster(context, &job),
        _ => files::read(path),
    }
}

/// SHA-256 in base64.
fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    lens::report::base64_of(digest.as_ref())
}

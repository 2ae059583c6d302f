//! `hq output-log`: the output that Starling has kept of jobs with `--stream`. The directory is
//! only a name of the jobs.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use client::Client;
use serde_json::json;
use verb::errors::Failure;

use crate::args::{LogVerb, Stream};
use crate::cluster::Front;
use crate::jobs::{self, Job};
use crate::tasks::{self, TaskRow};
use crate::words::Ids;
use crate::{records, table};

/// The output of one task on one stream.
struct Piece {
    job: u64,
    row: TaskRow,
    bytes: Vec<u8>,
}

pub(crate) fn run(front: &Front, directory: &Path, verb: &LogVerb) -> Result<ExitCode, Failure> {
    let directory =
        std::path::absolute(directory).map_err(|error| Failure::file(directory, &error))?;
    verb::block_on(async {
        let client = front.connect().await?;
        let found = jobs_of(&client, &directory.display().to_string()).await?;
        match verb {
            LogVerb::Summary => summary(front, &client, &found).await?,
            LogVerb::Jobs => {
                found
                    .iter()
                    .try_for_each(|job| front.context.output.line(&job.id.0.to_string()))?;
            }
            LogVerb::Show { channel } => show(front, &client, &found, *channel).await?,
            LogVerb::Cat { job, stream, task } => {
                let (pieces, _) = read(&client, of(&found, *job)?, *stream, task.as_ref()).await?;
                let mut out = std::io::stdout().lock();
                pieces.iter().for_each(|piece| drop(out.write_all(&piece.bytes)));
            }
            LogVerb::Export { job, task } => {
                let (pieces, _) =
                    read(&client, of(&found, *job)?, Stream::Stdout, task.as_ref()).await?;
                let row = |piece: &Piece| {
                    let text = String::from_utf8_lossy(&piece.bytes);
                    let is_ended = piece.row.state != "RUNNING";
                    json!({ "id": piece.row.id, "finished": is_ended, "stdout": text })
                };
                let rows: Vec<serde_json::Value> = pieces.iter().map(row).collect();
                front.context.output.raw_line(&serde_json::Value::from(rows).to_string())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn jobs_of(client: &Client, directory: &str) -> Result<Vec<Job>, Failure> {
    let mut found = Vec::new();
    for job in jobs::states(client).await? {
        let submissions = records::job(client, job.id).await?.submissions;
        if submissions.iter().any(|it| it.stream.as_deref() == Some(directory)) {
            found.push(job);
        }
    }
    match found.is_empty() {
        true => Err(Failure::refused(format!("no job has --stream {directory}"))),
        false => Ok(found),
    }
}

fn of(found: &[Job], job: u64) -> Result<&Job, Failure> {
    let unknown = || Failure::refused(format!("Job {job} not found"));
    found.iter().find(|it| it.id.0 == job).ok_or_else(unknown)
}

/// The output of tasks: of all by number, or of these in their order. Then the bytes of each
/// earlier attempt.
async fn read(
    client: &Client,
    job: &Job,
    stream: Stream,
    ids: Option<&Ids>,
) -> Result<(Vec<Piece>, Vec<usize>), Failure> {
    let rows = tasks::rows(client, job).await?;
    let started: Vec<&TaskRow> = rows.iter().filter(|row| row.has_started).collect();
    let mut printed = tasks::printed(client, job.id, &started, stream == Stream::Stderr).await;
    if let Some(node) = printed.away.first() {
        return Err(Failure::lost(format!("node {node}, which has output, does not answer")));
    }
    let all: Vec<u64> = started.iter().map(|row| row.id).collect();
    let ids = ids.map_or(all, |ids| ids.0.clone());
    let rows = ids.iter().filter_map(|id| started.iter().find(|row| row.id == *id));
    let piece = |row: &&TaskRow| Piece {
        job: job.id.0,
        bytes: printed.last.remove(&row.local).unwrap_or_default(),
        row: (*row).clone(),
    };
    let pieces = rows.map(piece).collect();
    Ok((pieces, printed.superseded.into_values().collect()))
}

async fn show(
    front: &Front,
    client: &Client,
    found: &[Job],
    channel: Option<Stream>,
) -> Result<(), Failure> {
    let streams = channel.map_or_else(|| vec![Stream::Stdout, Stream::Stderr], |it| vec![it]);
    for job in found {
        for &stream in &streams {
            let (pieces, _) = read(client, job, stream, None).await?;
            let highest = pieces.iter().map(|piece| piece.row.id).max().unwrap_or(0);
            let width = highest.to_string().len();
            let number = u8::from(stream == Stream::Stderr);
            for Piece { job, row, bytes } in pieces {
                for line in String::from_utf8_lossy(&bytes).lines() {
                    let text = format!("{job}.{:0width$}:{number}> {line}", row.id);
                    front.context.output.line(&text)?;
                }
            }
        }
    }
    Ok(())
}

async fn summary(front: &Front, client: &Client, found: &[Job]) -> Result<(), Failure> {
    let (mut tasks, mut open, mut bytes) = (0, 0, [0, 0]);
    let (mut superseded, mut lost) = (0, [0, 0]);
    for job in found {
        for (at, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
            let (pieces, earlier) = read(client, job, stream, None).await?;
            superseded = superseded.max(earlier.len());
            lost[at] += earlier.iter().sum::<usize>();
            bytes[at] += pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>();
            if at == 0 {
                tasks += pieces.len();
                open += pieces.iter().filter(|piece| piece.row.state == "RUNNING").count();
            }
        }
    }
    front.context.output.text(&table::vertical(&[
        ("Jobs", found.len().to_string()),
        ("Tasks", tasks.to_string()),
        ("Opened streams", open.to_string()),
        ("Stdout/stderr size", format!("{} B / {} B", bytes[0], bytes[1])),
        ("Superseded streams", superseded.to_string()),
        ("Superseded stdout/stderr size", format!("{} B / {} B", lost[0], lost[1])),
    ]))
}

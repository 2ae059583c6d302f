//! PBS: OpenPBS and PBS Professional, which list as JSON.

use serde_json::Value;

use crate::Submission;
use crate::backend::{Call, Place};
use crate::batch::{BatchState, Row};
use crate::limits::ROWS_MAX;

pub(super) fn list() -> Call {
    Call::new("qstat", &["-f", "-F", "json", "-x"])
}

pub(super) fn rows(output: &str) -> Result<Vec<Row>, String> {
    let listing: Value = serde_json::from_str(output)
        .map_err(|error| format!("the output of qstat is no JSON: {error}"))?;
    // Without batch jobs the field is missing.
    let Some(jobs) = listing.get("Jobs") else { return Ok(Vec::new()) };
    let jobs = jobs.as_object().ok_or("the jobs of qstat are no object")?;
    Ok(jobs.iter().take(ROWS_MAX).map(|(id, job)| row(id, job)).collect())
}

fn row(id: &str, job: &Value) -> Row {
    let text = |name: &str| job[name].as_str().unwrap_or_default().to_owned();
    let exit_status = job["Exit_status"].as_i64();
    Row {
        job: id.to_owned(),
        name: text("Job_Name"),
        state: BatchState::of_pbs(&text("job_state"), exit_status),
        reason: text("comment"),
    }
}

pub(super) fn submit(submission: &Submission, place: &Place) -> Call {
    let mut call = Call::new("qsub", &[]);
    call.arguments.extend(submission.queue.arguments.iter().cloned());
    call.arguments.push(place.job_script());
    call
}

/// The options in the script. The user's own arguments are on the command line and win.
pub(super) fn directives(submission: &Submission, place: &Place) -> Vec<String> {
    let seconds = submission.queue.time_limit_s;
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let cpus = submission.queue.cpus.map_or_else(String::new, |cpus| format!(":ncpus={cpus}"));
    let lines = [
        format!("-N {}", submission.name),
        format!("-l select={}{cpus}", submission.nodes),
        format!("-l walltime={hours:02}:{minutes:02}:{rest:02}"),
        "-j oe".to_owned(),
        format!("-o {}", place.output()),
    ];
    lines.into_iter().map(|line| format!("#PBS {line}")).collect()
}

pub(super) const JOB: &str = "$PBS_JOBID";
/// PBS gives no end, and the script begins with the batch job.
pub(super) fn end(time_limit_s: u64) -> String {
    format!("$(($(date +%s) + {time_limit_s}))")
}
pub(super) const ON_EACH_NODE: &str = "pbsdsh --";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::How;

    #[test]
    fn listings_are_read() {
        let output = r#"{"timestamp": 1, "Jobs": {
            "7.s": {"Job_Name": "st-c-q-1", "job_state": "Q", "comment": "Not Running"},
            "8.s": {"Job_Name": "st-c-q-2", "job_state": "F", "Exit_status": -29}}}"#;
        let rows = rows(output).expect("two rows");
        assert_eq!((&*rows[0].job, &*rows[0].reason), ("7.s", "Not Running"));
        assert_eq!(rows[1].state, BatchState::Ended(How::TimeLimit));
        assert_eq!(super::rows("{\"timestamp\": 1}"), Ok(Vec::new()));
        assert!(super::rows("qstat: cannot connect").is_err());
    }
}

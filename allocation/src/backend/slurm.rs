//! Slurm, from version 20.11 on.

use crate::Submission;
use crate::backend::{Call, Place};
use crate::batch::{BatchState, Row};
use crate::limits::ROWS_MAX;

/// The columns of a listing. The name is the last one, since it may contain the separator.
const COLUMNS: &str = "%i|%T|%V|%S|%e|%L|%r|%N|%D|%j";
const COLUMN_COUNT: usize = 10;

pub(super) fn list() -> Call {
    Call::new("squeue", &["--me", "-h", "-t", "all", "-o", COLUMNS])
}

pub(super) fn rows(output: &str) -> Result<Vec<Row>, String> {
    let lines = output.lines().filter(|line| !line.trim().is_empty());
    lines.take(ROWS_MAX).map(row).collect()
}

fn row(line: &str) -> Result<Row, String> {
    let columns: Vec<&str> = line.splitn(COLUMN_COUNT, '|').map(str::trim).collect();
    let [job, state, _submitted, _start, _end, _left, reason, _hosts, _nodes, name] = columns[..]
    else {
        return Err(format!("'{line}' is no row of squeue"));
    };
    Ok(Row {
        job: job.to_owned(),
        name: name.to_owned(),
        state: BatchState::of_slurm(state),
        reason: if reason == "None" { String::new() } else { reason.to_owned() },
    })
}

pub(super) fn submit(submission: &Submission, place: &Place) -> Call {
    let mut call = Call::new("sbatch", &["--parsable"]);
    call.arguments.extend(submission.queue.arguments.iter().cloned());
    call.arguments.push(place.job_script());
    call
}

/// The options in the script. The user's own arguments are on the command line and win.
pub(super) fn directives(submission: &Submission, place: &Place) -> Vec<String> {
    let seconds = submission.queue.time_limit_s;
    let mut lines = vec![
        format!("--job-name={}", submission.name),
        format!("--nodes={}", submission.nodes),
        "--ntasks-per-node=1".to_owned(),
        format!("--time={}:{:02}", seconds / 60, seconds % 60),
        format!("--output={}", place.output().replace('%', "%%")),
    ];
    lines.extend(submission.queue.cpus.map(|cpus| format!("--cpus-per-task={cpus}")));
    lines.into_iter().map(|line| format!("#SBATCH {line}")).collect()
}

/// The id of the batch job, its end in seconds since 1970, and a command on each of its nodes.
pub(super) const JOB: &str = "$SLURM_JOB_ID";
pub(super) fn end() -> String {
    "$(date -d \"$(squeue -h -j \"$SLURM_JOB_ID\" -o %e)\" +%s)".to_owned()
}
/// One dead node must not end the others, and a step gets one cpu unless it asks for all.
pub(super) const ON_EACH_NODE: &str = "srun --overlap --no-kill --kill-on-bad-exit=0 --wait=0 \
    --mpi=none --cpu-bind=none -n \"$SLURM_NNODES\" -c \"$SLURM_CPUS_ON_NODE\"";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::How;

    #[test]
    fn listings_are_read() {
        let output = "12|PENDING|2026-11-27T10:00:00|N/A|N/A|1:00|Resources||1|st-c-q-1\n\
            13|CANCELLED by 0|2026-11-27T10:00:00|N/A|N/A|1:00|None|n1|1|a|b\n";
        let rows = rows(output).expect("two rows");
        assert_eq!(
            (&*rows[0].job, &*rows[0].name, &*rows[0].reason),
            ("12", "st-c-q-1", "Resources")
        );
        assert_eq!(rows[0].state, BatchState::Waiting);
        assert_eq!((&*rows[1].name, rows[1].state), ("a|b", BatchState::Ended(How::Cancelled)));
        assert!(super::rows("slurm_load_jobs error: Unable to contact").is_err());
    }
}

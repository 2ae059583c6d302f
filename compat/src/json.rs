//! Jobs and tasks as JSON, in the form of HyperQueue.

use serde_json::{Map, Value, json};

use crate::jobs::Job;
use crate::records::{JobRecord, Submission, Way};
use crate::tasks::TaskRow;
use crate::words::iso_time;

/// The amounts of HyperQueue are counted in these parts.
const PARTS: f64 = 10_000.0;

fn time(ns: u64) -> Value {
    if ns == 0 { Value::Null } else { iso_time(ns).into() }
}

/// A job in a list.
pub(crate) fn job(job: &Job, running: u64) -> Value {
    let counts = job.counts();
    let stopped = counts.cancelled + counts.skipped;
    let is_aborted = job.cancelled_word() == "ABORTED";
    let ended = counts.done + counts.failed + stopped;
    json!({
        "id": job.id.0,
        "name": job.record.name,
        "task_count": job.record.total,
        "task_stats": {
            "finished": counts.done,
            "failed": counts.failed,
            "canceled": if is_aborted { 0 } else { stopped },
            "aborted": if is_aborted { stopped } else { 0 },
            "running": running,
            "waiting": job.record.total.saturating_sub(ended + running),
        },
    })
}

pub(crate) fn job_detail(of: &Job, record: &JobRecord, rows: &[TaskRow]) -> Value {
    let running = rows.iter().filter(|row| row.state == "RUNNING").count() as u64;
    let mut info = job(of, running);
    info["is_open"] = (of.openness == client::Openness::Open).into();
    info["cancel_reason"] = match record.cancel_reason.as_str() {
        "" => Value::Null,
        reason => reason.into(),
    };
    let submits: Vec<Value> =
        record.submissions.iter().map(|it| json!({ "array": submission(it) })).collect();
    json!({
        "info": info,
        "submits": submits,
        "max_fails": record.max_fails,
        "started_at": time(of.record.submitted_ns),
        "finished_at": time(of.record.ended_ns),
        "tasks": tasks(rows, record),
    })
}

fn submission(of: &Submission) -> Value {
    let env: Map<String, Value> =
        of.env.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let crash_limit: Value =
        of.crash_limit.parse::<u64>().map_or_else(|_| of.crash_limit.as_str().into(), Value::from);
    let limit = of.time_limit_ns;
    json!({
        "resources": of.ways().iter().map(|it| way(it, of.nodes)).collect::<Vec<_>>(),
        "priority": of.priority,
        "program": {
            "args": of.command, "env": env, "cwd": of.cwd,
            "stdout": of.stdout, "stderr": of.stderr,
        },
        "pin_mode": of.pin,
        "crash_limit": crash_limit,
        "task_dir": of.task_dir,
        "time_limit": if limit == 0 { Value::Null } else { json!(limit as f64 / 1e9) },
    })
}

fn way(way: &Way, nodes: u32) -> Value {
    let amount = |(name, text): &(String, String)| {
        let (amount, policy) = text.split_once(' ').unwrap_or((text, ""));
        let units = amount.parse::<f64>().map(|amount| (amount * PARTS).round() as u64);
        let request = match units {
            Ok(units) => json!({ policy_name(policy): units }),
            Err(_) => "All".into(),
        };
        json!({ "resource": name, "request": request })
    };
    json!({
        "n_nodes": nodes,
        "min_time": way.time_request_ns as f64 / 1e9,
        "weight": way.weight.unwrap_or(1.0),
        "resources": way.amounts.iter().map(amount).collect::<Vec<_>>(),
    })
}

/// `compact!`: `ForceCompact`.
fn policy_name(policy: &str) -> String {
    let (word, force) = policy.strip_suffix('!').map_or((policy, ""), |word| (word, "Force"));
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    format!("{force}{}{}", first.map_or_else(String::new, String::from), letters.as_str())
}

pub(crate) fn tasks(rows: &[TaskRow], record: &JobRecord) -> Value {
    rows.iter().map(|row| task(row, record.of_task(row.id))).collect::<Vec<_>>().into()
}

/// A task; one that has not started has no paths.
pub(crate) fn task(row: &TaskRow, of: Option<&Submission>) -> Value {
    let mut value = json!({ "id": row.id, "state": row.state.to_lowercase() });
    let Some(of) = of.filter(|_| row.has_started) else { return value };
    let path = |path: &Option<String>| path.as_ref().map(|path| row.path(path));
    value["cwd"] = row.path(&of.cwd).into();
    value["stdout"] = path(&of.stdout).into();
    value["stderr"] = path(&of.stderr).into();
    value["worker"] = row.worker.as_str().into();
    value["started_at"] = time(row.started_ns);
    value["finished_at"] = time(row.ended_ns);
    if !row.error.is_empty() {
        value["error"] = row.error.as_str().into();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_policies_and_parts() {
        let amounts = [("a", "2 compact"), ("b", "0.5 tight!"), ("c", "all")];
        let amounts = amounts.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
        let of = Way { amounts, time_request_ns: 1_500_000_000, ..Way::default() };
        let value = way(&of, 0);
        assert_eq!(value["resources"][0]["request"], json!({ "Compact": 20_000 }));
        assert_eq!(value["resources"][1]["request"], json!({ "ForceTight": 5000 }));
        assert_eq!(value["resources"][2]["request"], json!("All"));
        assert_eq!(value["min_time"], 1.5);
    }
}

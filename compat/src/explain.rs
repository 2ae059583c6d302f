//! `hq task explain`: the workers on which a task can run, by the pools that they were started
//! with. `starling explain` has the reasons of Starling itself.

use std::process::ExitCode;

use client::{Client, now_ns};
use serde_json::{Value, json};
use verb::errors::Failure;

use crate::args::Form;
use crate::cluster::Front;
use crate::records::{self, Submission, Way, WorkerRecord};
use crate::words::{Selector, span};
use crate::{ids, jobs, table, tasks, workers};

/// The amounts of HyperQueue are counted in these parts.
const PARTS: f64 = 10_000.0;
const SECOND_NS: u64 = 1_000_000_000;

/// What a worker has of what a variant asks for.
#[derive(Clone, PartialEq, Debug)]
enum Need {
    /// Of the remaining life, if that has an end.
    Time {
        left_ns: u64,
        asked_ns: u64,
    },
    Pool {
        name: String,
        has: f64,
        asked: String,
    },
}

impl Need {
    fn fits(&self) -> bool {
        match self {
            Self::Time { left_ns, asked_ns } => left_ns >= asked_ns,
            Self::Pool { has, asked, .. } => match asked.parse::<f64>() {
                Ok(asked) => *has >= asked,
                Err(_) => *has > 0.0,
            },
        }
    }

    fn cells(&self) -> [String; 3] {
        match self {
            Self::Time { left_ns, asked_ns } => {
                ["time".to_owned(), span(left_ns / SECOND_NS * SECOND_NS), span(*asked_ns)]
            }
            Self::Pool { name, has, asked } => [name.clone(), has.to_string(), asked.clone()],
        }
    }

    fn json(&self) -> Value {
        let time = |ns: &u64| json!({ "secs": ns / SECOND_NS, "nanos": ns % SECOND_NS });
        let parts = |amount: f64| (amount * PARTS).round() as u64;
        match self {
            Self::Time { left_ns, asked_ns } => {
                json!({ "Time": { "min_time": time(asked_ns), "remaining_time": time(left_ns) } })
            }
            Self::Pool { name, has, asked } => {
                let asked =
                    asked.parse().map_or_else(|_| asked.as_str().into(), |it| json!(parts(it)));
                json!({ "Resources": {
                    "resource": name, "worker_amount": parts(*has), "request_amount": asked,
                } })
            }
        }
    }
}

fn needs(way: &Way, worker: &WorkerRecord, now_ns: u64) -> Vec<Need> {
    let mut needs = Vec::new();
    if way.time_request_ns > 0 && worker.time_limit_ns > 0 {
        let left_ns = (worker.started_ns + worker.time_limit_ns).saturating_sub(now_ns);
        needs.push(Need::Time { left_ns, asked_ns: way.time_request_ns });
    }
    for (name, text) in &way.amounts {
        let has = worker.pools.iter().find(|pool| pool.name == *name);
        let has = has.map_or(0.0, |pool| pool.amount);
        let asked = text.split(' ').next().unwrap_or_default().to_owned();
        needs.push(Need::Pool { name: name.clone(), has, asked });
    }
    needs
}

/// By worker and variant.
type Table = Vec<(u64, Vec<Vec<Need>>)>;

fn runnable(variants: &[Vec<Need>]) -> usize {
    variants.iter().filter(|needs| needs.iter().all(Need::fits)).count()
}

fn rows(table: &Table) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (worker, variants) in table {
        let word = match (runnable(variants), variants.len()) {
            (0, _) => "No".to_owned(),
            (_, 1) => "Yes".to_owned(),
            (fit, all) => format!("Yes ({fit}/{all})"),
        };
        let mut head = vec![worker.to_string(), word];
        for (variant, needs) in variants.iter().enumerate() {
            let mut number = variant.to_string();
            for need in needs {
                let mut row = std::mem::replace(&mut head, vec![String::new(); 2]);
                row.push(std::mem::take(&mut number));
                row.extend(need.cells());
                rows.push(row);
            }
        }
    }
    rows
}

/// The first lines of the answer.
fn lines(job: u64, task: u64, deps: (usize, usize), table: &Table) -> [String; 2] {
    let ready = match deps {
        (0, _) => "is ready to run because it has no dependencies.".to_owned(),
        (_, 0) => "is ready to run because all its dependencies are finished.".to_owned(),
        (all, open) => {
            format!("is not ready to run, because {open}/{all} dependencies are not finished.")
        }
    };
    let fit = table.iter().filter(|(_, variants)| runnable(variants) > 0);
    let fit: Vec<u64> = fit.map(|(worker, _)| *worker).collect();
    let word = if fit.len() == 1 { "worker" } else { "workers" };
    let place = match fit.len() {
        0 => "There is no worker where the task can run.".to_owned(),
        n => format!("The task can run on {n} {word}: {}", ids::text(fit)),
    };
    [format!("Task {job}@{task} {ready}"), place]
}

pub(crate) async fn run(
    front: &Front,
    client: &Client,
    selector: &Selector,
    task: u64,
) -> Result<ExitCode, Failure> {
    let Some(job) = jobs::selected(front, &jobs::states(client).await?, selector)?.pop() else {
        return Ok(ExitCode::FAILURE);
    };
    let record = records::job(client, job.id).await?;
    let states = tasks::rows(client, &job).await?;
    let Some(of) = record.of_task(task).cloned() else {
        return Err(Failure::refused(format!("Task {task} not found")));
    };
    let parents = of.deps.get(&task).cloned().unwrap_or_default();
    let is_open = |id: &&u64| states.iter().any(|it| it.id == **id && it.state != "FINISHED");
    let deps = (parents.len(), parents.iter().filter(is_open).count());
    let table = table_of(&of, &workers::running(client).await?);
    if front.form == Form::Json {
        let worker = |(id, variants): &(u64, Vec<Vec<Need>>)| {
            let variants = variants.iter().map(|needs| needs.iter().map(Need::json).collect());
            json!({ "worker_id": id, "variants": variants.collect::<Vec<Value>>() })
        };
        let value = json!({
            "task_id": { "job_id": job.id.0, "job_task_id": task },
            "explanation": {
                "n_task_deps": deps.0, "n_waiting_deps": deps.1,
                "workers": table.iter().map(worker).collect::<Vec<_>>(),
            },
        });
        front.context.output.raw_line(&value.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in lines(job.id.0, task, deps, &table) {
        front.context.output.line(&line)?;
    }
    let header = ["Worker Id", "Runnable", "Variant", "Type", "Provides", "Request"];
    front.context.output.text(&table::horizontal(&header, &rows(&table)))?;
    Ok(ExitCode::SUCCESS)
}

fn table_of(of: &Submission, workers: &[WorkerRecord]) -> Table {
    let (now_ns, ways) = (now_ns(), of.ways());
    let variants =
        |worker: &WorkerRecord| ways.iter().map(|way| needs(way, worker, now_ns)).collect();
    workers.iter().map(|worker| (worker.id, variants(worker))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Pool;

    fn way(amounts: &[(&str, &str)], time_request_ns: u64) -> Way {
        let amounts = amounts.iter().map(|(n, a)| ((*n).to_owned(), (*a).to_owned())).collect();
        Way { amounts, time_request_ns, ..Way::default() }
    }

    #[test]
    fn variants_are_compared_with_pools_and_life() {
        let cpus = Pool { name: "cpus".to_owned(), amount: 4.0, ..Pool::default() };
        let worker =
            WorkerRecord { pools: vec![cpus], time_limit_ns: 9 * SECOND_NS, ..Default::default() };
        let ways = [
            way(&[("cpus", "2 compact")], 5 * SECOND_NS),
            way(&[("cpus", "all"), ("gpus", "0.5 compact")], 0),
        ];
        let needs: Vec<Vec<Need>> =
            ways.iter().map(|way| needs(way, &worker, 3 * SECOND_NS)).collect();
        assert_eq!(runnable(&needs), 1);
        let table = vec![(7, needs)];
        let rows: Vec<String> = rows(&table).iter().map(|row| row.join("|")).collect();
        let expected =
            ["7|Yes (1/2)|0|time|6s|5s", "|||cpus|4|2", "||1|cpus|4|all", "|||gpus|0|0.5"];
        assert_eq!(rows, expected);
        let [ready, place] = lines(1, 2, (2, 1), &table);
        assert!(ready.ends_with("because 1/2 dependencies are not finished."));
        assert_eq!(place, "The task can run on 1 worker: 7");
    }
}

//! Job definition files: a TOML file with tasks, or with an array of tasks.

use std::collections::{BTreeMap, BTreeSet};

use proto::limits::GANG_NODES_MAX;
use serde::Deserialize;
use verb::errors::Failure;

use super::request::amount;
use super::{Task, Tasks};
use crate::args::{Pin, SubmitArgs};
use crate::ids;
use crate::records::Way;
use crate::times;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "job")]
    name: String,
    stream: Option<String>,
    max_fails: Option<u64>,
    #[serde(default, rename = "task")]
    tasks: Vec<toml::Table>,
    array: Option<toml::Table>,
}

fn job() -> String {
    "job".to_owned()
}

/// What a task says of itself, without its place in the job.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Config {
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    request: Vec<Request>,
    stdout: Option<Path>,
    stderr: Option<Path>,
    cwd: Option<String>,
    pin: Option<PinWord>,
    #[serde(default)]
    task_dir: bool,
    time_limit: Option<String>,
    #[serde(default)]
    priority: i32,
    crash_limit: Option<Scalar>,
    stdin: Option<String>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
enum PinWord {
    None,
    Taskset,
    Omp,
}

#[derive(Deserialize, Debug)]
#[serde(untagged)]
enum Path {
    Text(String),
    Full {
        path: String,
        #[serde(alias = "mode")]
        on_close: Option<String>,
    },
}

#[derive(Deserialize, Debug)]
#[serde(untagged)]
enum Scalar {
    Whole(i64),
    Part(f64),
    Text(String),
}

impl Scalar {
    fn text(&self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Part(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    n_nodes: u32,
    time_request: Option<String>,
    #[serde(default)]
    resources: BTreeMap<String, Scalar>,
    weight: Option<f64>,
}

fn wrong(why: impl std::fmt::Display) -> Failure {
    Failure::refused(format!("the job file: {why}"))
}

/// The tasks of a file. Numbers that it does not give begin at `first`.
pub(super) fn read(text: &str, first: u64) -> Result<Tasks, Failure> {
    let file: File = toml::from_str(text).map_err(|error| wrong(error.message()))?;
    let (batches, tasks) = match (file.array, file.tasks) {
        (Some(_), tasks) if !tasks.is_empty() => {
            return Err(wrong("Definition of array job and individual task cannot be mixed"));
        }
        (Some(array), _) => of_array(array, first)?,
        (None, tasks) => of_tasks(tasks, first)?,
    };
    if tasks.is_empty() {
        return Err(wrong("the job has no tasks"));
    }
    let mut batches = batches;
    batches.iter_mut().for_each(|args| args.stream.clone_from(&file.stream));
    Ok(Tasks { name: file.name, max_fails: file.max_fails, batches, tasks })
}

type Parsed = (Vec<SubmitArgs>, Vec<Task>);

/// Takes a value out of a table.
fn take<T: for<'de> Deserialize<'de>>(
    table: &mut toml::Table,
    key: &str,
) -> Result<Option<T>, Failure> {
    let value = table.remove(key).map(toml::Value::try_into);
    value.transpose().map_err(|error: toml::de::Error| wrong(format!("{key}: {}", error.message())))
}

fn of_array(mut table: toml::Table, first: u64) -> Result<Parsed, Failure> {
    let ids: Option<String> = take(&mut table, "ids")?;
    let entries: Option<Vec<String>> = take(&mut table, "entries")?;
    let ids = match (ids, &entries) {
        (Some(text), _) => ids::parse(&text).map_err(wrong)?,
        (None, Some(entries)) => (first..).take(entries.len()).collect(),
        (None, None) => return Err(wrong("the array has neither ids nor entries")),
    };
    if entries.as_ref().is_some_and(|entries| entries.len() != ids.len()) {
        return Err(wrong("the array has not as many ids as entries"));
    }
    let mut args = arguments(table)?;
    args.has_entries = entries.is_some();
    let value = |at: usize| entries.as_ref().map(|entries| entries[at].clone());
    let task = |(at, id)| Task { id, value: value(at), ..Task::default() };
    Ok((vec![args], ids.into_iter().enumerate().map(task).collect()))
}

fn of_tasks(tables: Vec<toml::Table>, first: u64) -> Result<Parsed, Failure> {
    let mut batches: Vec<SubmitArgs> = Vec::new();
    // Equal texts are one batch.
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut tasks = Vec::new();
    for mut table in tables {
        let id: Option<u64> = take(&mut table, "id")?;
        let after: Option<Vec<u64>> = take(&mut table, "deps")?;
        let text = table.to_string();
        let batch = match numbers.get(&text) {
            Some(&batch) => batch,
            None => {
                batches.push(arguments(table)?);
                numbers.insert(text, batches.len() - 1);
                batches.len() - 1
            }
        };
        tasks.push((id, Task { batch, after: after.unwrap_or_default(), ..Task::default() }));
    }
    let highest = tasks.iter().filter_map(|(id, _)| *id).max();
    let mut next = highest.map_or(Some(first), |highest| highest.checked_add(1));
    let mut all = Vec::new();
    for (id, mut task) in tasks {
        task.id = match id {
            Some(id) => id,
            None => {
                let id = next.ok_or_else(|| wrong("there is no number for a further task"))?;
                next = id.checked_add(1);
                id
            }
        };
        all.push(task);
    }
    Ok((batches, in_order(all)?))
}

/// Parents before children, else as in the file.
fn in_order(tasks: Vec<Task>) -> Result<Vec<Task>, Failure> {
    let mut children: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut waiting: BTreeMap<u64, (usize, Task)> = BTreeMap::new();
    let mut ready = Vec::new();
    for task in tasks {
        let parents: BTreeSet<u64> = task.after.iter().copied().collect();
        for parent in &parents {
            children.entry(*parent).or_default().push(task.id);
        }
        if parents.is_empty() {
            ready.push(task.id);
        }
        let id = task.id;
        if waiting.insert(id, (parents.len(), task)).is_some() {
            return Err(wrong(format!("Task {id} is defined multiple times")));
        }
    }
    let mut out: Vec<Task> = Vec::new();
    let mut next = 0;
    while let Some(&id) = ready.get(next) {
        next += 1;
        out.extend(waiting.remove(&id).map(|(_, task)| task));
        for child in children.get(&id).into_iter().flatten() {
            if let Some((left, _)) = waiting.get_mut(child) {
                *left -= 1;
                if *left == 0 {
                    ready.push(*child);
                }
            }
        }
    }
    match waiting.keys().next() {
        None => Ok(out),
        Some(id) => Err(wrong(format!(
            "task {id} is in a cycle of dependencies, or waits for a task that is not there"
        ))),
    }
}

/// The options of a submission with this configuration.
fn arguments(table: toml::Table) -> Result<SubmitArgs, Failure> {
    let config: Config = toml::Value::Table(table)
        .try_into()
        .map_err(|error: toml::de::Error| wrong(error.message()))?;
    let mut args = SubmitArgs::plain(&config.command)?;
    args.env = config.env.into_iter().collect();
    args.stdout = config.stdout.map(Path::flag);
    args.stderr = config.stderr.map(Path::flag);
    args.cwd = config.cwd;
    args.pin = match config.pin {
        Some(PinWord::Taskset) => Some(Pin::Taskset),
        Some(PinWord::Omp) => Some(Pin::Omp),
        Some(PinWord::None) | None => None,
    };
    args.task_dir = config.task_dir;
    args.time_limit =
        config.time_limit.map(|text| times::parse(&text)).transpose().map_err(wrong)?;
    args.priority = config.priority;
    args.crash_limit = config.crash_limit.map_or(args.crash_limit, |limit| limit.text());
    args.input = config.stdin.map(String::into_bytes);
    args.nodes = nodes_of(&config.request)?;
    args.ways = config.request.into_iter().map(Request::way).collect::<Result<_, _>>()?;
    Ok(args)
}

/// The workers that a task holds at once, if its request names a number.
fn nodes_of(requests: &[Request]) -> Result<Option<u32>, Failure> {
    let Some(first) = requests.iter().find(|request| request.n_nodes > 0) else { return Ok(None) };
    if requests.len() > 1 {
        return Err(wrong("n_nodes: a task on several nodes has one request"));
    }
    if !first.resources.is_empty() {
        return Err(wrong("n_nodes: a task on several nodes has whole nodes, so no resources"));
    }
    match first.n_nodes {
        nodes if nodes <= GANG_NODES_MAX => Ok(Some(nodes)),
        nodes => Err(wrong(format!("n_nodes: {nodes}; at most {GANG_NODES_MAX} are possible"))),
    }
}

impl Path {
    /// As the value of `--stdout`.
    fn flag(self) -> String {
        match self {
            Self::Text(path) | Self::Full { path, on_close: None } => path,
            Self::Full { path, on_close: Some(mode) } => format!("{path}:{mode}"),
        }
    }
}

impl Request {
    fn way(self) -> Result<Way, Failure> {
        let mut amounts: Vec<(String, String)> = Vec::new();
        for (name, wanted) in self.resources {
            amounts.push((name, amount(&wanted.text())?));
        }
        amounts.sort_by_key(|(name, _)| (name != "cpus", name.clone()));
        if amounts.is_empty() {
            // A task on several workers has whole ones.
            let cpus = if self.n_nodes > 0 { "all" } else { "1" };
            amounts.push(("cpus".to_owned(), amount(cpus)?));
        }
        let time = self.time_request.map(|text| times::parse(&text)).transpose();
        let time = time.map_err(wrong)?.map_or(0, |length| length.0.as_nanos() as u64);
        Ok(Way { amounts, weight: self.weight, time_request_ns: time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        read(text, 0).err().expect("it is refused").message
    }

    #[test]
    fn tasks_get_numbers_and_an_order() {
        let text = "[[task]]\ncommand = ['a']\ndeps = [3]\n[[task]]\nid = 3\ncommand = ['b']\n\
                    [[task]]\ncommand = ['a']\n";
        let read = read(text, 7).unwrap();
        let tasks: Vec<_> = read.tasks.iter().map(|task| (task.batch, task.id)).collect();
        assert_eq!(tasks, [(1, 3), (0, 5), (0, 4)]);
        assert_eq!((read.batches.len(), &read.tasks[2].after), (2, &vec![3]));
        let none = super::read("[[task]]\ncommand = ['a']\n", 7).unwrap();
        assert_eq!(none.tasks[0].id, 7);
    }

    #[test]
    fn arrays_have_entries() {
        let text = "name = 'n'\n[array]\nids = '2,10-11'\nentries = ['a', 'b', 'c']\n\
                    command = ['x']\n";
        let read = read(text, 0).unwrap();
        let values: Vec<_> =
            read.tasks.iter().map(|task| (task.id, task.value.as_deref().unwrap())).collect();
        assert_eq!(values, [(2, "a"), (10, "b"), (11, "c")]);
        assert!(read.batches[0].has_entries && read.name == "n");
    }

    #[test]
    fn options_are_those_of_a_submission() {
        let text = "[[task]]\ncommand = ['x', '-y']\nenv = {A = '1'}\npin = 'omp'\n\
                    stdout = {path = 'o', on_close = 'rm-if-finished'}\ntime_limit = '1m 10s'\n\
                    crash_limit = 'unlimited'\nstdin = 'in'\n[[task.request]]\n\
                    resources = {gpus = 1.5, cpus = '4 compact!'}\nweight = 11.2\n\
                    time_request = '10s'\n";
        let args = &read(text, 0).unwrap().batches[0];
        assert_eq!(args.command, ["x", "-y"]);
        assert_eq!(args.stdout.as_deref(), Some("o:rm-if-finished"));
        assert_eq!(args.time_limit.unwrap().0.as_secs(), 70);
        assert_eq!((args.pin, args.crash_limit.as_str()), (Some(Pin::Omp), "unlimited"));
        let way = &args.ways[0];
        let amounts: Vec<_> = way.amounts.iter().map(|(n, a)| format!("{n}={a}")).collect();
        assert_eq!(amounts, ["cpus=4 compact!", "gpus=1.5 compact"]);
        assert_eq!((way.weight, way.time_request_ns), (Some(11.2), 10_000_000_000));
    }

    #[test]
    fn a_task_may_have_several_nodes() {
        let text = |request: &str| {
            format!("[[task]]\ncommand = ['a']\n[[task]]\ncommand = ['b']\n{request}")
        };
        let asked =
            read(&text("[[task.request]]\nn_nodes = 2\ntime_request = '10s'\n"), 0).unwrap();
        assert_eq!(asked.batches.iter().map(|it| it.nodes).collect::<Vec<_>>(), [None, Some(2)]);
        let way = &asked.batches[1].ways[0];
        assert_eq!(way.amounts, [("cpus".to_owned(), "all".to_owned())]);
        assert_eq!(way.time_request_ns, 10_000_000_000);
        for (request, why) in [
            ("[[task.request]]\nn_nodes = 2\nresources = {cpus = 1}\n", "no resources"),
            ("[[task.request]]\nn_nodes = 2\n[[task.request]]\n", "one request"),
            ("[[task.request]]\nn_nodes = 1025\n", "at most 1024"),
        ] {
            assert!(refusal(&text(request)).contains(why), "{request}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let cycle = "[[task]]\nid = 1\ncommand = ['a']\ndeps = [2]\n[[task]]\nid = 2\n\
                     command = ['a']\ndeps = [1]\n";
        assert!(refusal(cycle).contains("cycle"));
        let twice = "[[task]]\nid = 1\ncommand = ['a']\n[[task]]\nid = 1\ncommand = ['a']\n";
        assert!(refusal(twice).contains("multiple times"));
        let mixed = "[array]\nids = '1'\ncommand = ['a']\n[[task]]\ncommand = ['a']\n";
        assert!(refusal(mixed).contains("cannot be mixed"));
        assert!(refusal("[[task]]\ncommand = ['a']\nwhat = 1\n").contains("what"));
        assert!(refusal("[[task]]\ncommand = []\n").contains("no command"));
        assert!(refusal("").contains("no tasks"));
    }
}

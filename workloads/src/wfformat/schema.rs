//! The JSON as it comes, in both shapes: tasks with their records (before 1.5), and a
//! specification beside an execution (from 1.5 on).

use hashbrown::{HashMap, HashSet};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, Visitor};

use crate::error::Problem;

/// Just enough to tell the version before the shape is insisted on.
#[derive(Deserialize, Debug)]
pub(super) struct Head {
    #[serde(rename = "schemaVersion")]
    version: Option<serde_json::Value>,
    #[expect(dead_code, reason = "its presence is what makes this a workflow")]
    workflow: IgnoredAny,
}

impl Head {
    pub(super) fn version(&self) -> Option<String> {
        match self.version.as_ref()? {
            serde_json::Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

#[derive(Deserialize, Debug)]
pub(super) struct Document {
    pub(super) name: Option<String>,
    workflow: Workflow,
}

#[derive(Deserialize, Debug)]
struct Workflow {
    specification: Option<Specification>,
    execution: Option<Execution>,
    #[serde(alias = "jobs")]
    tasks: Option<Vec<FlatTask>>,
}

#[derive(Deserialize, Debug)]
struct Specification {
    tasks: Vec<SpecifiedTask>,
    files: Option<Vec<SpecifiedFile>>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct SpecifiedTask {
    id: String,
    name: Option<String>,
    parents: Option<Vec<String>>,
    children: Option<Vec<String>>,
    input_files: Option<Vec<String>>,
    output_files: Option<Vec<String>>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct SpecifiedFile {
    id: String,
    #[serde(default)]
    size_in_bytes: Lenient,
}

#[derive(Deserialize, Debug)]
struct Execution {
    tasks: Option<Vec<ExecutedTask>>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct ExecutedTask {
    id: String,
    #[serde(default)]
    runtime_in_seconds: Lenient,
    #[serde(default)]
    core_count: Lenient,
    #[serde(default)]
    memory_in_bytes: Lenient,
    command: Option<Command>,
}

#[derive(Deserialize, Debug)]
struct Command {
    program: Option<String>,
}

#[derive(Deserialize, Debug)]
struct FlatTask {
    name: String,
    #[serde(default, alias = "runtimeInSeconds")]
    runtime: Lenient,
    #[serde(default)]
    cores: Lenient,
    /// Kilobytes until 1.3.
    #[serde(default)]
    memory: Lenient,
    #[serde(default, rename = "memoryInBytes")]
    memory_bytes: Lenient,
    category: Option<String>,
    command: Option<Command>,
    parents: Option<Vec<String>>,
    children: Option<Vec<String>>,
    files: Option<Vec<FlatFile>>,
}

#[derive(Deserialize, Debug)]
struct FlatFile {
    #[serde(alias = "id")]
    name: String,
    link: Link,
    #[serde(default, alias = "sizeInBytes")]
    size: Lenient,
}

#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Link {
    Input,
    Output,
}

/// A number that some writers put in quotes or leave null; 0 then.
#[derive(Clone, Copy, Debug, Default)]
struct Lenient(f64);

impl Lenient {
    fn whole(self) -> u64 {
        self.0.max(0.0).round() as u64
    }
}

impl<'de> Deserialize<'de> for Lenient {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl Visitor<'_> for Numbers {
            type Value = Lenient;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number")
            }
            fn visit_f64<E>(self, value: f64) -> Result<Lenient, E> {
                Ok(Lenient(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Lenient, E> {
                Ok(Lenient(value as f64))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Lenient, E> {
                Ok(Lenient(value as f64))
            }
            fn visit_unit<E>(self) -> Result<Lenient, E> {
                Ok(Lenient(0.0))
            }
            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Lenient, E> {
                let wrong = |_| E::invalid_value(serde::de::Unexpected::Str(value), &self);
                value.trim().parse().map(Lenient).map_err(wrong)
            }
        }
        deserializer.deserialize_any(Numbers)
    }
}

/// A task of either shape.
#[derive(Debug)]
pub(super) struct Record {
    /// What parents and children refer to.
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) runtime_s: f64,
    pub(super) cores: u32,
    pub(super) memory_bytes: u64,
    pub(super) parents: Vec<String>,
    pub(super) children: Vec<String>,
    pub(super) inputs: Vec<FileRecord>,
    pub(super) outputs: Vec<FileRecord>,
}

#[derive(Debug)]
pub(super) struct FileRecord {
    pub(super) name: String,
    pub(super) size_bytes: u64,
}

impl Document {
    pub(super) fn records(self) -> Result<Vec<Record>, Problem> {
        let Workflow { specification, execution, tasks } = self.workflow;
        if let Some(specification) = specification {
            let executed = execution.and_then(|execution| execution.tasks).unwrap_or_default();
            Ok(from_specification(specification, executed))
        } else if let Some(tasks) = tasks {
            Ok(tasks.into_iter().map(from_flat).collect())
        } else {
            let reason = "the workflow has neither a specification nor tasks".to_owned();
            Err(Problem::NotAWorkflow { reason })
        }
    }
}

fn from_specification(specification: Specification, executed: Vec<ExecutedTask>) -> Vec<Record> {
    let fixed = foldhash::fast::FixedState::default();
    let sizes: Vec<SpecifiedFile> = specification.files.unwrap_or_default();
    let mut size_of: HashMap<&str, u64, _> = HashMap::with_hasher(fixed.clone());
    size_of.extend(sizes.iter().map(|file| (file.id.as_str(), file.size_in_bytes.whole())));
    let mut execution_of: HashMap<&str, &ExecutedTask, _> = HashMap::with_hasher(fixed);
    execution_of.extend(executed.iter().map(|task| (task.id.as_str(), task)));
    let files = |names: Option<Vec<String>>| {
        let with_size = |name: String| {
            let size_bytes = size_of.get(name.as_str()).copied().unwrap_or(0);
            FileRecord { name, size_bytes }
        };
        distinct(names.unwrap_or_default().into_iter().map(with_size))
    };
    let record = |task: SpecifiedTask| {
        let execution = execution_of.get(task.id.as_str());
        let program = execution
            .and_then(|execution| execution.command.as_ref())
            .and_then(|command| command.program.as_deref());
        Record {
            kind: kind(program, task.name.as_deref().unwrap_or(&task.id)),
            runtime_s: execution.map_or(0.0, |execution| execution.runtime_in_seconds.0),
            cores: execution.map_or(1, |execution| cores(execution.core_count)),
            memory_bytes: execution.map_or(0, |execution| execution.memory_in_bytes.whole()),
            parents: task.parents.unwrap_or_default(),
            children: task.children.unwrap_or_default(),
            inputs: files(task.input_files),
            outputs: files(task.output_files),
            id: task.id,
        }
    };
    specification.tasks.into_iter().map(record).collect()
}

fn from_flat(task: FlatTask) -> Record {
    let program = task.command.as_ref().and_then(|command| command.program.as_deref());
    let kind = kind(program.or(task.category.as_deref()), &task.name);
    let (outputs, inputs): (Vec<_>, Vec<_>) =
        task.files.unwrap_or_default().into_iter().partition(|file| file.link == Link::Output);
    let files = |files: Vec<FlatFile>| {
        distinct(
            files
                .into_iter()
                .map(|file| FileRecord { name: file.name, size_bytes: file.size.whole() }),
        )
    };
    Record {
        id: task.name,
        kind,
        runtime_s: task.runtime.0,
        cores: cores(task.cores),
        memory_bytes: task.memory_bytes.whole().max(task.memory.whole().saturating_mul(1000)),
        parents: task.parents.unwrap_or_default(),
        children: task.children.unwrap_or_default(),
        inputs: files(inputs),
        outputs: files(outputs),
    }
}

/// A file listed twice counts once.
fn distinct(files: impl Iterator<Item = FileRecord>) -> Vec<FileRecord> {
    let mut seen: HashSet<String, foldhash::fast::FixedState> = HashSet::default();
    files.filter(|file| seen.insert(file.name.clone())).collect()
}

fn cores(number: Lenient) -> u32 {
    (number.whole().max(1)).min(u64::from(u32::MAX)) as u32
}

/// The program where it is recorded, else the name without its trailing number.
fn kind(program: Option<&str>, name: &str) -> String {
    if let Some(program) = program.filter(|program| !program.is_empty()) {
        return program.to_owned();
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = stem.strip_suffix("ID").unwrap_or(stem).trim_end_matches(['_', '-', '.', '#']);
    if stem.is_empty() { name.to_owned() } else { stem.to_owned() }
}

//! Reads the JSON task by task, in both structures: tasks with their records (before 1.5), and a
//! specification beside an execution (from 1.5 on).

use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess};
use serde::de::{Unexpected, Visitor};

use super::{VERSIONS, json_error};
use crate::formats::deviations::Deviations;
use crate::formats::error::Problem;
use crate::formats::file_graph::{FileGraph, kind_of};
use crate::formats::json_guard::{Element, guarded};
use crate::formats::recorded;
use crate::formats::text::{Misread, Source};

/// Returns all tasks, and the workflow's name.
pub(super) fn read(
    source: &mut Source<'_>,
    deviations: &Deviations,
) -> Result<(FileGraph, Option<String>), Misread> {
    let element = Element::default();
    let source = guarded(source, &element);
    let mut reader = Reader::new(&element);
    let mut json = serde_json::Deserializer::from_reader(source);
    let done = Object { reader: &mut reader, level: Level::Document }
        .deserialize(&mut json)
        .and_then(|()| json.end());
    if let Err(error) = done {
        let at = Some((error.line(), error.column()));
        return Err(match reader.problem {
            Some(problem) => Misread { at, problem },
            None => json_error(&error),
        });
    }
    let not_a_workflow = |reason: &str| Problem::NotAWorkflow { reason: reason.to_owned() };
    if !reader.has_tasks && !reader.has_version {
        return Err(not_a_workflow("the JSON has no schemaVersion").into());
    }
    if !reader.has_version {
        deviations
            .pass((1, 1), "the JSON has no schemaVersion; its keys are read as of any version")?;
    }
    if !reader.has_tasks {
        let reason = "the workflow has neither a specification nor tasks";
        return Err(not_a_workflow(reason).into());
    }
    let undefined = reader.executed.iter().filter(|&&task| !reader.graph.is_defined(task));
    for &task in undefined {
        let kind = "the specification has no such task; its execution is passed over";
        deviations.pass_named((0, 0), reader.graph.name_of(task), kind)?;
    }
    Ok((reader.graph, reader.name))
}

struct Reader<'e> {
    element: &'e Element,
    graph: FileGraph,
    name: Option<String>,
    /// Tasks with an execution; the specification may come after them.
    executed: Vec<u32>,
    has_version: bool,
    has_tasks: bool,
    /// An error that is not a JSON error.
    problem: Option<Problem>,
}

/// Objects that are read key by key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Document,
    Workflow,
    Specification,
    Execution,
}

struct Object<'r, 'e> {
    reader: &'r mut Reader<'e>,
    level: Level,
}

impl<'de> DeserializeSeed<'de> for Object<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.level {
            Level::Document | Level::Workflow => deserializer.deserialize_map(self),
            // They may be null.
            Level::Specification | Level::Execution => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Object<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.level {
            Level::Document => "a workflow",
            Level::Workflow => "an object",
            Level::Specification => "a specification",
            Level::Execution => "an execution",
        })
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { reader, level } = self;
        let mut has_workflow = false;
        while let Some(key) = map.next_key::<String>()? {
            match (level, key.as_str()) {
                (Level::Document, "name") => reader.name = map.next_value()?,
                (Level::Document, "schemaVersion") => {
                    let version = map.next_value()?;
                    if let Err(problem) = reader.version(version) {
                        reader.problem = Some(problem);
                        return Err(A::Error::custom("unknown schema version"));
                    }
                }
                (Level::Document, "workflow") => {
                    has_workflow = true;
                    map.next_value_seed(Object { reader, level: Level::Workflow })?;
                }
                (Level::Workflow, "specification") => {
                    map.next_value_seed(Object { reader, level: Level::Specification })?;
                }
                (Level::Workflow, "execution") => {
                    map.next_value_seed(Object { reader, level: Level::Execution })?;
                }
                (Level::Workflow, "tasks" | "jobs") => {
                    reader.has_tasks = true;
                    map.next_value_seed(Each::new(reader, Reader::flat))?;
                }
                (Level::Specification, "tasks") => {
                    reader.has_tasks = true;
                    map.next_value_seed(Each::new(reader, Reader::specified))?;
                }
                (Level::Specification, "files") => {
                    map.next_value_seed(Each::new(reader, Reader::file))?;
                }
                (Level::Execution, "tasks") => {
                    map.next_value_seed(Each::new(reader, Reader::executed))?;
                }
                _ => {
                    reader.element.pass_over();
                    map.next_value::<IgnoredAny>()?;
                    reader.element.begin();
                }
            }
        }
        match level == Level::Document && !has_workflow {
            true => Err(A::Error::missing_field("workflow")),
            false => Ok(()),
        }
    }
}

type Take<'e, T> = fn(&mut Reader<'e>, T) -> Result<(), Problem>;

/// Calls `take` for each element of a list; null is an empty list.
struct Each<'r, 'e, T> {
    reader: &'r mut Reader<'e>,
    take: Take<'e, T>,
    element: PhantomData<T>,
}

impl<'r, 'e, T> Each<'r, 'e, T> {
    fn new(reader: &'r mut Reader<'e>, take: Take<'e, T>) -> Self {
        Self { reader, take, element: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Each<'_, '_, T> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Each<'_, '_, T> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.reader.element.begin();
        while let Some(element) = list.next_element()? {
            self.reader.element.begin();
            if let Err(problem) = (self.take)(self.reader, element) {
                self.reader.problem = Some(problem);
                return Err(A::Error::custom("it cannot be"));
            }
        }
        Ok(())
    }
}

impl<'e> Reader<'e> {
    fn new(element: &'e Element) -> Self {
        Self {
            element,
            graph: FileGraph::new(),
            name: None,
            executed: Vec::new(),
            has_version: false,
            has_tasks: false,
            problem: None,
        }
    }

    fn version(&mut self, version: serde_json::Value) -> Result<(), Problem> {
        let version = match version {
            serde_json::Value::Null => return Ok(()),
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        if !VERSIONS.contains(&version.as_str()) {
            return Err(Problem::UnknownSchema { version });
        }
        self.has_version = true;
        Ok(())
    }

    fn relations(&mut self, task: u32, parents: Option<&[String]>, children: Option<&[String]>) {
        for parent in parents.unwrap_or_default() {
            let parent = self.graph.mention(parent, None);
            self.graph.declare(parent, task);
        }
        for child in children.unwrap_or_default() {
            let child = self.graph.mention(child, None);
            self.graph.declare(task, child);
        }
    }

    fn specified(&mut self, row: SpecifiedTask) -> Result<(), Problem> {
        let task = self.graph.mention(&row.id, None);
        self.graph.define(task)?;
        // The program takes precedence, and may have been read already.
        if self.graph.recorded(task).kind == 0 {
            let kind = kind_of(None, row.name.as_deref().unwrap_or(&row.id));
            self.graph.recorded(task).kind = self.graph.kind(kind);
        }
        self.relations(task, row.parents.as_deref(), row.children.as_deref());
        for file in row.input_files.unwrap_or_default() {
            self.graph.read(task, &file, None);
        }
        for file in row.output_files.unwrap_or_default() {
            self.graph.write(task, &file, None);
        }
        Ok(())
    }

    fn file(&mut self, row: SpecifiedFile) -> Result<(), Problem> {
        self.graph.size(&row.id, row.size_in_bytes.whole());
        Ok(())
    }

    fn executed(&mut self, row: ExecutedTask) -> Result<(), Problem> {
        let task = self.graph.mention(&row.id, None);
        if !self.graph.is_defined(task) {
            self.executed.push(task);
        }
        let program = row.command.as_ref().and_then(|command| command.program.as_deref());
        if let Some(program) = program.filter(|program| !program.is_empty()) {
            self.graph.recorded(task).kind = self.graph.kind(program);
        }
        let recorded = self.graph.recorded(task);
        recorded.duration_ns = duration_ns(&row.id, row.runtime_in_seconds)?;
        recorded.cores = recorded::slots(row.core_count.0);
        recorded.memory_bytes = row.memory_in_bytes.whole();
        Ok(())
    }

    fn flat(&mut self, row: FlatTask) -> Result<(), Problem> {
        let task = self.graph.mention(&row.name, None);
        self.graph.define(task)?;
        let program = row.command.as_ref().and_then(|command| command.program.as_deref());
        let kind = kind_of(program.or(row.category.as_deref()), &row.name);
        let kind = self.graph.kind(kind);
        let recorded = self.graph.recorded(task);
        recorded.kind = kind;
        recorded.duration_ns = duration_ns(&row.name, row.runtime)?;
        recorded.cores = recorded::slots(row.cores.0);
        recorded.memory_bytes =
            row.memory_bytes.whole().max(row.memory.whole().saturating_mul(1000));
        self.relations(task, row.parents.as_deref(), row.children.as_deref());
        for file in row.files.unwrap_or_default() {
            let size_bytes = Some(file.size.whole());
            match file.link {
                Link::Input => self.graph.read(task, &file.name, size_bytes),
                Link::Output => self.graph.write(task, &file.name, size_bytes),
            }
        }
        Ok(())
    }
}

fn duration_ns(task: &str, runtime: LenientNumber) -> Result<u64, Problem> {
    recorded::duration_ns(runtime.0).map_err(|reason| Problem::BadTask {
        task: task.to_owned(),
        reason,
        hint: None,
    })
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
    size_in_bytes: LenientNumber,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct ExecutedTask {
    id: String,
    #[serde(default)]
    runtime_in_seconds: LenientNumber,
    #[serde(default)]
    core_count: LenientNumber,
    #[serde(default)]
    memory_in_bytes: LenientNumber,
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
    runtime: LenientNumber,
    #[serde(default)]
    cores: LenientNumber,
    /// Kilobytes until 1.3.
    #[serde(default)]
    memory: LenientNumber,
    #[serde(default, rename = "memoryInBytes")]
    memory_bytes: LenientNumber,
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
    size: LenientNumber,
}

#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Link {
    Input,
    Output,
}

/// A number that some writers quote or leave null; null counts as 0.
#[derive(Clone, Copy, Debug, Default)]
struct LenientNumber(f64);

impl LenientNumber {
    fn whole(self) -> u64 {
        // Larger numbers are errors, and sums need space.
        self.0.clamp(0.0, 1e18).round() as u64
    }
}

impl<'de> Deserialize<'de> for LenientNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl Visitor<'_> for Numbers {
            type Value = LenientNumber;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number")
            }
            fn visit_f64<E>(self, value: f64) -> Result<LenientNumber, E> {
                Ok(LenientNumber(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<LenientNumber, E> {
                Ok(LenientNumber(value as f64))
            }
            fn visit_i64<E>(self, value: i64) -> Result<LenientNumber, E> {
                Ok(LenientNumber(value as f64))
            }
            fn visit_unit<E>(self) -> Result<LenientNumber, E> {
                Ok(LenientNumber(0.0))
            }
            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<LenientNumber, E> {
                let wrong = |_| E::invalid_value(Unexpected::Str(value), &self);
                value.trim().parse().map(LenientNumber).map_err(wrong)
            }
        }
        deserializer.deserialize_any(Numbers)
    }
}

//! Builds a graph from tables, and resolves names and files between tasks.

mod calls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proto::wire::OutputForm;
use proto::{entry, wire};

use super::Fault;
use super::array::Array;
use super::index::{Conflict, Found, Index, Owner};
use super::table::{Body, ExternalFileUse, InputFile, OutputFile, TaskTable};
use crate::formats::error::Problem;
use crate::graph::builder::{GraphBuilder, TaskInit};
use crate::graph::error::GraphError;
use crate::graph::{Graph, expand};
use crate::limits::{GRAPH_EDGES_MAX, GRAPH_TASKS_MAX};

/// Builds the graph; relative paths refer to `directory`.
pub(crate) fn assemble(
    name: &str,
    tables: &[TaskTable],
    directory: &Path,
    clocks_loads: bool,
) -> Result<Graph, Fault> {
    let arrays: Vec<Option<&Array>> = tables.iter().map(|table| table.array.as_ref()).collect();
    let mut first = Vec::with_capacity(tables.len());
    let mut total = 0_usize;
    for array in &arrays {
        first.push(total as u32);
        total += array.map_or(1, |array| array.count() as usize);
        if total > GRAPH_TASKS_MAX {
            return Err(GraphError::TooManyTasks.into());
        }
    }
    let mut assembly = Assembly {
        tables,
        arrays: &arrays,
        first: &first,
        directory,
        names: Index::new(&arrays),
        files: Index::new(&arrays),
        groups: BTreeMap::new(),
        uploads: Uploads { first: total as u32, ..Uploads::default() },
        builder: GraphBuilder::new(name),
    };
    assembly.builder.reserve(total, 0);
    if clocks_loads {
        assembly.builder.clock_loads();
    }
    assembly.index()?;
    for group in 0..tables.len() {
        assembly.add(group)?;
    }
    assembly.add_uploads()?;
    for group in 0..tables.len() {
        assembly.follow(group)?;
    }
    Ok(assembly.builder.finish()?)
}

struct Assembly<'t> {
    tables: &'t [TaskTable],
    arrays: &'t [Option<&'t Array>],
    /// The number of each table's first task.
    first: &'t [u32],
    directory: &'t Path,
    names: Index<'t>,
    files: Index<'t>,
    /// Arrays by their name as written and by its stem: `count-{i}` and `count`.
    groups: BTreeMap<&'t str, u32>,
    uploads: Uploads,
    builder: GraphBuilder,
}

/// The files of the submitter. Each is the output of one task of its own, for any number of
/// readers.
#[derive(Default)]
struct Uploads {
    /// The number of the first of these tasks.
    first: u32,
    /// Path and size.
    files: Vec<(PathBuf, u64)>,
    numbers: BTreeMap<PathBuf, u32>,
}

impl Uploads {
    /// The task that represents a file.
    fn task(&mut self, path: PathBuf, size_bytes: u64) -> u32 {
        let next = self.first + self.files.len() as u32;
        let Self { files, numbers, .. } = self;
        *numbers.entry(path).or_insert_with_key(|path| {
            files.push((path.clone(), size_bytes));
            next
        })
    }
}

/// The source of an input's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Task(Found),
    External,
    /// The task that represents a file of the submitter.
    Upload(u32),
    /// Depends on the element.
    Varies,
}

impl<'t> Assembly<'t> {
    fn index(&mut self) -> Result<(), Fault> {
        for (group, table) in self.tables.iter().enumerate() {
            let owner = |sub: usize| Owner { group: group as u32, sub: sub as u32 };
            self.names.insert(&table.name.value, owner(0));
            if table.array.is_some() {
                let name = table.name.value.as_str();
                self.groups.insert(name, group as u32);
                if let Some(split) = entry::split(name).filter(|split| split.after.is_empty()) {
                    let stem = split.before.trim_end_matches(['-', '_', '.']);
                    self.groups.entry(stem).or_insert(group as u32);
                }
            }
            for (sub, output) in table.outputs.iter().enumerate() {
                self.files.insert(&output.file.value, owner(sub));
            }
        }
        if let Some(Conflict { text, second, .. }) = self.names.conflict() {
            let at = self.tables[second.owner.group as usize].name.at;
            return Err(Fault { at, problem: Problem::DuplicateTask { task: text } });
        }
        if let Some(Conflict { text, first, second }) = self.files.conflict() {
            let later = &self.tables[second.owner.group as usize];
            let at = later.outputs[second.owner.sub as usize].file.at;
            let (first, second) = (self.told(first), self.told(second));
            let problem = Problem::FileTwice { file: text, first, second };
            return Err(Fault { at, problem });
        }
        Ok(())
    }

    /// The user's name of one task.
    fn told(&self, found: Found) -> String {
        let group = found.owner.group as usize;
        expand(&self.tables[group].name.value, self.element(group, found.position))
    }

    fn element(&self, group: usize, position: u32) -> u64 {
        self.arrays[group].map_or(0, |array| array.element(position))
    }

    fn number(&self, found: Found) -> u32 {
        self.first[found.owner.group as usize] + found.position
    }

    /// Adds the tasks of a table and the edges of their files.
    fn add(&mut self, group: usize) -> Result<(), Fault> {
        let table = &self.tables[group];
        let count = self.arrays[group].map_or(1, Array::count);
        let mut fixed: Vec<Source> =
            table.inputs.iter().map(|input| self.source(input, group)).collect();
        self.check_results(table, &fixed)?;
        let sizes: Vec<u64> = table
            .inputs
            .iter()
            .zip(&fixed)
            .map(|(input, source)| match source {
                Source::External => self.external_bytes(table, input, 0, group),
                _ => Ok(0),
            })
            .collect::<Result<_, _>>()?;
        for ((input, source), size_bytes) in table.inputs.iter().zip(&mut fixed).zip(&sizes) {
            if *source == Source::External {
                *source = self.outside(input, &input.file.value, *size_bytes);
            }
        }
        let each = fixed.iter().filter(|source| **source != Source::External).count();
        self.check_edges(each as u64 * u64::from(count))?;
        self.check_names(table, &fixed)?;
        // Elements with files from the same sources share a spec.
        let mut specs: BTreeMap<Vec<Option<(OutputForm, bool)>>, u32> = BTreeMap::new();
        let mut sources = fixed.clone();
        let mut varying: Vec<Option<(OutputForm, bool)>> = Vec::new();
        let mut edges: Vec<(u32, u32, u32)> = Vec::new();
        for position in 0..count {
            let element = self.element(group, position);
            let task = self.first[group] + position;
            varying.clear();
            for (at, input) in table.inputs.iter().enumerate() {
                if fixed[at] != Source::Varies {
                    continue;
                }
                let found = self.maker(table, input, (group, position))?;
                varying.push(found.map(|found| (self.made(found.owner).form, self.calls(found))));
                sources[at] = match found {
                    Some(found) => Source::Task(found),
                    None => {
                        let size_bytes = self.external_bytes(table, input, element, group)?;
                        self.outside(input, &expand(&input.file.value, element), size_bytes)
                    }
                };
            }
            edges.extend(sources.iter().filter_map(|source| self.edge_to(task, *source)));
            self.check_edges(edges.len() as u64)?;
            let spec = match specs.get(&varying) {
                Some(spec) => *spec,
                None => {
                    let spec = self.builder.spec(self.spec(table, &sources, &sizes)?);
                    specs.insert(varying.clone(), spec);
                    spec
                }
            };
            let duration_ns = table.duration_ns;
            let payload = match table.values.get(&element) {
                Some(value) => format!("={value}").into_bytes(),
                None => self.own_arguments(table, &sources, element),
            };
            let init = TaskInit { entry: element, duration_ns, ..TaskInit::of(spec) };
            self.builder.task(TaskInit { payload: &payload, ..init });
        }
        for (parent, child, output) in edges {
            self.builder.edge(parent, child, output);
        }
        Ok(())
    }

    /// The edge that an input makes: parent, child, and 1 + the number of the output.
    fn edge_to(&self, task: u32, source: Source) -> Option<(u32, u32, u32)> {
        match source {
            Source::Task(found) => Some((self.number(found), task, found.owner.sub + 1)),
            Source::Upload(upload) => Some((upload, task, 1)),
            Source::External | Source::Varies => None,
        }
    }

    /// Refuses too many further edges before they are made.
    fn check_edges(&self, further: u64) -> Result<(), Fault> {
        match further + self.builder.edges() as u64 > GRAPH_EDGES_MAX as u64 {
            true => Err(GraphError::TooManyEdges.into()),
            false => Ok(()),
        }
    }

    /// Two inputs with the same name in the task's directory must be the same file.
    fn check_names(&self, table: &TaskTable, sources: &[Source]) -> Result<(), Fault> {
        let mut seen: BTreeMap<String, (usize, PathBuf)> = BTreeMap::new();
        let files = table.inputs.iter().enumerate().filter(|(_, input)| !input.is_result);
        for (at, input) in files {
            let name = input.name.clone().unwrap_or_else(|| name_inside(&input.file.value));
            let path = self.directory.join(&input.file.value);
            let Some((first, other)) = seen.get(&name) else {
                seen.insert(name, (at, path));
                continue;
            };
            if *other == path && sources[*first] == sources[at] {
                continue;
            }
            let reason = format!(
                "the inputs '{}' and '{}' have one name in its directory: '{name}'",
                table.inputs[*first].file.value, input.file.value
            );
            let hint = format!(
                "give one of them another: {{ file = \"{}\", as = \"other-{name}\" }}",
                input.file.value
            );
            let fault = Fault::task(input.file.at, &table.name.value, reason);
            return Err(fault.with_hint(&hint));
        }
        Ok(())
    }

    fn outside(&mut self, input: &InputFile, file: &str, size_bytes: u64) -> Source {
        match input.bring {
            ExternalFileUse::Not | ExternalFileUse::Stage => Source::External,
            ExternalFileUse::Upload => {
                Source::Upload(self.uploads.task(self.directory.join(file), size_bytes))
            }
        }
    }

    /// Adds the tasks that represent files of the submitter, after all others.
    fn add_uploads(&mut self) -> Result<(), Fault> {
        let files = std::mem::take(&mut self.uploads.files);
        if files.is_empty() {
            return Ok(());
        }
        if self.uploads.first as usize + files.len() > GRAPH_TASKS_MAX {
            return Err(GraphError::TooManyTasks.into());
        }
        let (key, file) = ("file".to_owned(), "file".to_owned());
        let spec = self.builder.spec(wire::Spec {
            kind: "upload".to_owned(),
            name: "upload".to_owned(),
            cpus: 1,
            body: Some(wire::spec::Body::Upload(wire::Upload {})),
            outputs: vec![wire::Output { key, file, ..wire::Output::default() }],
            ..wire::Spec::default()
        });
        for (path, size_bytes) in files {
            let (name, sizes) = (path_text(&path), [size_bytes]);
            self.builder.task(TaskInit { name: &name, output_sizes: &sizes, ..TaskInit::of(spec) });
        }
        Ok(())
    }

    /// The output that an owner of a file refers to.
    fn made(&self, owner: Owner) -> &OutputFile {
        &self.tables[owner.group as usize].outputs[owner.sub as usize]
    }

    /// Whether this task writes a file over one of its own inputs: the file is there already.
    fn replaces(&self, found: Found, (group, position): (usize, u32), file: &str) -> bool {
        let is_own = found.owner.group as usize == group && found.position == position;
        is_own && self.directory.join(file).exists()
    }

    fn source(&self, input: &InputFile, group: usize) -> Source {
        if input.modelled_bytes.is_some() {
            Source::External
        } else if entry::is_template(&input.file.value) {
            Source::Varies
        } else if input.is_result {
            self.names.find(&input.file.value).map_or(Source::External, Source::Task)
        } else {
            let is_array = self.arrays[group].is_some();
            let found = self.files.find(&input.file.value);
            let found = found
                .filter(|found| is_array || !self.replaces(*found, (group, 0), &input.file.value));
            found.map_or(Source::External, Source::Task)
        }
    }

    /// The size of a file from outside; it must exist unless it is only modelled.
    fn external_bytes(
        &self,
        table: &TaskTable,
        input: &InputFile,
        element: u64,
        group: usize,
    ) -> Result<u64, Fault> {
        if let Some(size_bytes) = input.modelled_bytes {
            return Ok(size_bytes);
        }
        let file = expand(&input.file.value, element);
        let metadata = std::fs::metadata(self.directory.join(&file)).map_err(|error| {
            let position = self.arrays[group].and_then(|array| array.position(element));
            let element = self.element(group, position.unwrap_or(0));
            let task = expand(&table.name.value, element);
            input.file.fault(Problem::of_file(task, file.clone(), &error))
        })?;
        if !metadata.is_file() && input.bring != ExternalFileUse::Not {
            let reason = format!("'{file}' is not a file: only files are staged or uploaded");
            return Err(Fault::task(input.file.at, &table.name.value, reason));
        }
        Ok(if metadata.is_file() { metadata.len() } else { 0 })
    }

    fn spec(
        &self,
        table: &TaskTable,
        sources: &[Source],
        sizes: &[u64],
    ) -> Result<wire::Spec, Fault> {
        let body = match &table.body {
            Body::Noop => wire::spec::Body::Noop(wire::Noop {}),
            Body::Sleep => wire::spec::Body::Sleep(wire::Sleep {}),
            Body::Spin => wire::spec::Body::Spin(wire::Spin {}),
            Body::Command(argv) => wire::spec::Body::Command(self.command(table, argv)?),
            Body::Function(call) => wire::spec::Body::Call(self.call(table, call, sources)),
        };
        let mut spec = wire::Spec {
            kind: kind(table),
            name: table.name.value.clone(),
            cpus: table.requested.cpus,
            memory_bytes: table.requested.memory_bytes,
            request: table.requested.request.clone(),
            priority: table.priority,
            rank: table.rank,
            nodes: if table.nodes > 1 { table.nodes } else { 0 },
            time_request_ns: table.time_request_ns,
            retries: table.retries,
            crash_limit: table.crash_limit,
            time_limit_ns: table.time_limit_ns,
            body: Some(body),
            ..wire::Spec::default()
        };
        for output in &table.outputs {
            spec.outputs.push(wire::Output {
                key: output.key.clone(),
                file: output.file.value.clone(),
                size_bytes: output.size_bytes,
                keep: output.keep,
                replicas: output.replicas,
                form: output.form.into(),
                optional: output.optional,
            });
        }
        for ((input, source), size_bytes) in table.inputs.iter().zip(sources).zip(sizes) {
            let (key, file) = (input.key.clone(), input.file.value.clone());
            let name = || input.name.clone().unwrap_or_else(|| name_inside(&file));
            match source {
                Source::Task(found) => {
                    let form = self.made(found.owner).form.into();
                    let file = input.name.clone().unwrap_or(file);
                    let value = self.calls(*found);
                    spec.inputs.push(wire::Input { key, file, form, value });
                }
                Source::Upload(_) => {
                    let file = name();
                    spec.inputs.push(wire::Input { key, file, ..wire::Input::default() });
                }
                Source::External | Source::Varies => {
                    let path = match input.modelled_bytes {
                        Some(_) => String::new(),
                        None => {
                            let directory = entry::literal(&path_text(self.directory));
                            path_text(&Path::new(&directory).join(&file))
                        }
                    };
                    let (file, size_bytes) = (name(), *size_bytes);
                    spec.externals.push(wire::External {
                        place: spec.inputs.len() as u32 + 1,
                        key,
                        path,
                        file,
                        size_bytes,
                        staged: input.bring == ExternalFileUse::Stage,
                    });
                }
            }
        }
        Ok(spec)
    }

    fn command(&self, table: &TaskTable, argv: &[String]) -> Result<wire::Command, Fault> {
        let directory = path_text(self.directory);
        let directory = entry::literal_in_command(&directory, table.array.is_some());
        let directory = Path::new(&directory);
        let mut stdin = String::new();
        if let Some(text) = &table.stdin {
            // The name of an input in the task's directory, or a file beside the workflow.
            let is_input = table.inputs.iter().any(|input| input.file.value == text.value);
            stdin = text.value.clone();
            if is_input {
                stdin = name_inside(&stdin);
            } else {
                let path = self.directory.join(&stdin);
                if !stdin.contains('{')
                    && let Err(error) = path.metadata()
                {
                    let task = table.name.value.clone();
                    return Err(text.fault(Problem::of_file(task, stdin, &error)));
                }
                stdin = path_text(&directory.join(&stdin));
            }
        }
        let env = table.env.iter().map(|(name, value)| {
            let (name, value) = (name.clone(), value.clone());
            wire::Env { name, value }
        });
        let variants = table.variant_commands.iter().cloned();
        let variants = variants.map(|(variant, argv)| wire::VariantCommand { variant, argv });
        Ok(wire::Command {
            argv: argv.to_vec(),
            variants: variants.collect(),
            env: env.collect(),
            cwd: table.cwd.as_ref().map_or(String::new(), |cwd| path_text(&directory.join(cwd))),
            stdin,
            stdout: table.stdout.clone(),
            stderr: table.stderr.clone(),
            submit_dir: path_text(self.directory),
            notice: table.notice.map(|notice| Box::new(notice.to_wire())),
            pin: table.pin.map_or(0, |pin| pin.to_wire().into()),
        })
    }

    /// Adds the edges of `after`.
    fn follow(&mut self, group: usize) -> Result<(), Fault> {
        let table: &'t TaskTable = &self.tables[group];
        let count = self.arrays[group].map_or(1, Array::count);
        for parent in &table.after {
            let unknown = |element: u64, parent_name: String| {
                parent.fault(Problem::UnknownTask {
                    task: expand(&table.name.value, element),
                    parent: parent_name,
                    list: "after",
                })
            };
            let is_each = self.arrays[group].is_some() && entry::is_template(&parent.value);
            if is_each {
                for position in 0..count {
                    let element = self.element(group, position);
                    let name = expand(&parent.value, element);
                    let found = self.names.find(&name).ok_or_else(|| unknown(element, name))?;
                    let (parent, child) = (self.number(found), self.first[group] + position);
                    self.builder.edge(parent, child, 0);
                }
                continue;
            }
            let all = self.groups.get(parent.value.as_str()).map(|other| {
                let count = self.arrays[*other as usize].map_or(1, Array::count);
                (self.first[*other as usize], count)
            });
            let one = self.names.find(&parent.value).map(|found| (self.number(found), 1));
            let Some((from, parents)) = one.or(all) else {
                return Err(unknown(self.element(group, 0), parent.value.clone()));
            };
            let more = u64::from(parents) * u64::from(count);
            if self.builder.edges() as u64 + more > GRAPH_EDGES_MAX as u64 {
                return Err(GraphError::TooManyEdges.into());
            }
            for child in self.first[group]..self.first[group] + count {
                for parent in from..from + parents {
                    self.builder.edge(parent, child, 0);
                }
            }
        }
        Ok(())
    }
}

/// The kind of a table's tasks, for estimates.
fn kind(table: &TaskTable) -> String {
    if !table.kind.is_empty() {
        return table.kind.clone();
    }
    let stem = entry::strip(&table.name.value);
    let stem = stem.trim_end_matches(['-', '_', '.']);
    if stem.is_empty() { "task".to_owned() } else { stem.to_owned() }
}

/// The name of an input in the task's directory: its path if that stays inside, else its last part.
fn name_inside(file: &str) -> String {
    let is_plain = |part| matches!(part, std::path::Component::Normal(_));
    let path = PathBuf::from(file);
    if path.components().all(is_plain) {
        return file.to_owned();
    }
    let components = path.components();
    let inside = components
        .clone()
        .all(|part| is_plain(part) || matches!(part, std::path::Component::CurDir));
    let plain: PathBuf = if inside {
        components.filter(|part| is_plain(*part)).collect()
    } else {
        path.file_name().map(PathBuf::from).unwrap_or_default()
    };
    path_text(&plain)
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

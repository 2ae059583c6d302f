//! Graphs of tasks that read and write named files, as recorded workflows do. The readers of
//! WfFormat and DAX use it.
//!
//! A recorded task becomes a sleep of its runtime. Its output files become objects with their
//! recorded sizes. A file that another task writes is a data edge, even if that task is not listed
//! as a parent. A listed parent that shares no file only orders. Files without a writer exist
//! before the run.

use proto::wire;

use crate::formats::detect::LoadOptions;
use crate::formats::error::Problem;
use crate::formats::names::Names;
use crate::formats::text::Misread;
use crate::graph::Graph;
use crate::graph::builder::{GraphBuilder, TaskInit};

/// A task while its text is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) kind: u32,
    pub(crate) duration_ns: u64,
    pub(crate) cores: u32,
    pub(crate) memory_bytes: u64,
}

/// A task by its number, in the order of first mention.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    recorded: Recorded,
    /// The position of the first mention; 0 if unknown.
    line: u32,
    column: u32,
    is_defined: bool,
}

/// A file that a task reads or writes.
#[derive(Clone, Copy, Debug)]
struct FileUse {
    task: u32,
    file: u32,
    size_bytes: u64,
}

/// Means the size of the file.
const SIZE_OF_FILE: u64 = u64::MAX;
/// No write, no task.
const NONE: u32 = u32::MAX;

/// Collects recorded tasks in any order, each under the name by which others refer to it.
#[derive(Debug)]
pub(crate) struct FileGraph {
    tasks: Names,
    kinds: Names,
    files: Names,
    file_bytes: Vec<u64>,
    rows: Vec<Row>,
    /// Numbers of tasks in the order of their definition.
    order: Vec<u32>,
    reads: Vec<FileUse>,
    writes: Vec<FileUse>,
    /// Parent and child.
    declared: Vec<(u32, u32)>,
}

impl FileGraph {
    pub(crate) fn new() -> Self {
        let mut kinds = Names::default();
        // The kind of tasks without one, which is the default in a new task's record.
        kinds.number("");
        Self {
            kinds,
            tasks: Names::default(),
            files: Names::default(),
            file_bytes: Vec::new(),
            rows: Vec::new(),
            order: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            declared: Vec::new(),
        }
    }

    /// The number of a task, defined or not; `at` is the position of the mention.
    pub(crate) fn mention(&mut self, id: &str, at: Option<(usize, usize)>) -> u32 {
        let (number, is_new) = self.tasks.number(id);
        if is_new {
            let (line, column) = at.unwrap_or((0, 0));
            self.rows.push(Row { line: line as u32, column: column as u32, ..Row::default() });
        }
        number
    }

    /// Defines the task as one of the workflow.
    pub(crate) fn define(&mut self, task: u32) -> Result<(), Problem> {
        let row = &mut self.rows[task as usize];
        if row.is_defined {
            return Err(Problem::DuplicateTask { task: self.tasks.name(task).to_owned() });
        }
        row.is_defined = true;
        self.order.push(task);
        Ok(())
    }

    /// A task that is mentioned and not defined: it has only these records.
    pub(crate) fn is_defined(&self, task: u32) -> bool {
        self.rows[task as usize].is_defined
    }
    pub(crate) fn name_of(&self, task: u32) -> &str {
        self.tasks.name(task)
    }

    pub(crate) fn recorded(&mut self, task: u32) -> &mut Recorded {
        &mut self.rows[task as usize].recorded
    }

    pub(crate) fn kind(&mut self, kind: &str) -> u32 {
        self.kinds.number(kind).0
    }

    pub(crate) fn declare(&mut self, parent: u32, child: u32) {
        self.declared.push((parent, child));
    }

    /// Sets the size of a file.
    pub(crate) fn size(&mut self, file: &str, size_bytes: u64) {
        let file = self.file(file);
        self.file_bytes[file as usize] = size_bytes;
    }

    /// Records that the task reads a file. Without a size the file has that of [`FileGraph::size`].
    pub(crate) fn read(&mut self, task: u32, file: &str, size_bytes: Option<u64>) {
        let file = self.file(file);
        let size_bytes = size_bytes.unwrap_or(SIZE_OF_FILE);
        self.reads.push(FileUse { task, file, size_bytes });
    }

    /// Records that the task writes a file.
    pub(crate) fn write(&mut self, task: u32, file: &str, size_bytes: Option<u64>) {
        let file = self.file(file);
        let size_bytes = size_bytes.unwrap_or(SIZE_OF_FILE);
        self.writes.push(FileUse { task, file, size_bytes });
    }

    fn file(&mut self, file: &str) -> u32 {
        let (number, is_new) = self.files.number(file);
        if is_new {
            self.file_bytes.push(0);
        }
        number
    }

    pub(crate) fn finish(mut self, name: &str, options: &LoadOptions) -> Result<Graph, Misread> {
        self.check_mentions()?;
        let mut index_of = vec![NONE; self.rows.len()];
        for (index, task) in self.order.iter().enumerate() {
            index_of[*task as usize] = index as u32;
        }
        for edge in &mut self.declared {
            *edge = (index_of[edge.0 as usize], index_of[edge.1 as usize]);
        }
        self.declared.sort_unstable_by_key(|(parent, child)| (*child, *parent));
        self.declared.dedup();
        let reads = FileUses::new(std::mem::take(&mut self.reads), &index_of);
        let writes = FileUses::new(std::mem::take(&mut self.writes), &index_of);
        let writers = Writers::new(&writes, self.files.len());
        let mut builder = GraphBuilder::new(name);
        builder.reserve(self.order.len(), self.declared.len());
        let mut parents = Vec::new();
        for index in 0..self.order.len() as u32 {
            let mut spec = self.spec(index, writes.of(index), options);
            for read in reads.of(index) {
                let file = self.files.name(read.file);
                writers.parents(index, read.file, &self.declared, &mut parents);
                for &(parent, output) in &parents {
                    builder.edge(parent, index, output + 1);
                    let (key, file) = (file.to_owned(), inside(file));
                    spec.inputs.push(wire::Input { key, file, ..wire::Input::default() });
                }
                if parents.is_empty() {
                    spec.externals.push(wire::External {
                        key: file.to_owned(),
                        path: String::new(),
                        file: inside(file),
                        size_bytes: self.size_of(read),
                        staged: false,
                        place: 0,
                    });
                }
            }
            let spec = builder.spec(spec);
            let duration_ns = self.rows[self.order[index as usize] as usize].recorded.duration_ns;
            builder.task(TaskInit { duration_ns, ..TaskInit::of(spec) });
        }
        let declared = std::mem::take(&mut self.declared);
        drop((self, reads, writes, writers));
        for (parent, child) in declared {
            builder.edge(parent, child, 0);
        }
        Ok(builder.finish()?)
    }

    /// Refuses dependencies on undefined tasks.
    fn check_mentions(&self) -> Result<(), Misread> {
        let is_defined = |task: u32| self.rows[task as usize].is_defined;
        let unknown = |edge: &&(u32, u32)| !(is_defined(edge.0) && is_defined(edge.1));
        let Some(&(parent, child)) = self.declared.iter().find(unknown) else { return Ok(()) };
        let (task, unknown, list) = match is_defined(parent) {
            true => (parent, child, "children"),
            false => (child, parent, "parents"),
        };
        let name = |task: u32| self.tasks.name(task).to_owned();
        let row = &self.rows[unknown as usize];
        let at = (row.line > 0).then_some((row.line as usize, row.column as usize));
        let problem = Problem::UnknownTask { task: name(task), parent: name(unknown), list };
        Err(Misread { at, problem })
    }

    fn size_of(&self, used: &FileUse) -> u64 {
        match used.size_bytes {
            SIZE_OF_FILE => self.file_bytes[used.file as usize],
            own => own,
        }
    }

    fn spec(&self, index: u32, writes: &[FileUse], options: &LoadOptions) -> wire::Spec {
        let task = self.order[index as usize];
        let recorded = self.rows[task as usize].recorded;
        let outputs = writes.iter().map(|write| {
            let file = self.files.name(write.file);
            let (key, file) = (file.to_owned(), inside(file));
            let size_bytes = self.size_of(write);
            wire::Output { key, file, size_bytes, ..wire::Output::default() }
        });
        wire::Spec {
            kind: self.kinds.name(recorded.kind).to_owned(),
            name: self.tasks.name(task).to_owned(),
            cpus: if options.recorded_cores { recorded.cores.max(1) } else { 1 },
            memory_bytes: if options.recorded_cores { recorded.memory_bytes } else { 0 },
            body: Some(wire::spec::Body::Sleep(wire::Sleep {})),
            outputs: outputs.collect(),
            ..wire::Spec::default()
        }
    }
}

/// The files that tasks read, or write, by task; each once.
struct FileUses {
    starts: Vec<u32>,
    uses: Vec<FileUse>,
}

impl FileUses {
    fn new(mut uses: Vec<FileUse>, index_of: &[u32]) -> Self {
        for used in &mut uses {
            used.task = index_of[used.task as usize];
        }
        // The sort is stable: a task's files keep their order.
        if !uses.is_sorted_by_key(|used| used.task) {
            uses.sort_by_key(|used| used.task);
        }
        let tasks = index_of.len();
        let mut starts = vec![0; tasks + 1];
        let mut last_reader = hashbrown::HashSet::<u32, foldhash::fast::FixedState>::default();
        let mut current = NONE;
        uses.retain(|used| {
            if current != used.task {
                last_reader.clear();
                current = used.task;
            }
            let is_first = last_reader.insert(used.file);
            starts[used.task as usize + 1] += u32::from(is_first);
            is_first
        });
        for task in 0..tasks {
            starts[task + 1] += starts[task];
        }
        Self { starts, uses }
    }

    fn of(&self, task: u32) -> &[FileUse] {
        let at = task as usize;
        &self.uses[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// The writers of each file: usually one task, sometimes several.
struct Writers {
    /// By file; [`NONE`] for files from outside.
    first: Vec<u32>,
    /// By write, as (task, output, next write of the same file).
    writes: Vec<(u32, u32, u32)>,
}

impl Writers {
    fn new(uses: &FileUses, files: usize) -> Self {
        let mut first = vec![NONE; files];
        let mut writes = vec![(NONE, NONE, NONE); uses.uses.len()];
        // Backwards, so that the list of each file is in forward order.
        for (at, write) in uses.uses.iter().enumerate().rev() {
            let output = at as u32 - uses.starts[write.task as usize];
            writes[at] = (write.task, output, first[write.file as usize]);
            first[write.file as usize] = at as u32;
        }
        Self { first, writes }
    }

    /// The tasks that write the file, as (task, output). If there are several, only the declared
    /// parents among them. A task never waits for itself.
    fn parents(&self, task: u32, file: u32, declared: &[(u32, u32)], found: &mut Vec<(u32, u32)>) {
        found.clear();
        let mut at = self.first[file as usize];
        while at != NONE {
            let (writer, output, next) = self.writes[at as usize];
            if writer != task {
                found.push((writer, output));
            }
            at = next;
        }
        let is_parent = |writer: u32| {
            declared.binary_search_by_key(&(task, writer), |edge| (edge.1, edge.0)).is_ok()
        };
        if found.len() > 1 && found.iter().any(|(writer, _)| is_parent(*writer)) {
            found.retain(|(writer, _)| is_parent(*writer));
        }
    }
}

/// Converts a recorded path to one inside a task's directory.
fn inside(name: &str) -> String {
    let is_plain = |part: &&str| !matches!(*part, "" | "." | "..");
    let parts: Vec<&str> = name.split('/').filter(is_plain).collect();
    if parts.is_empty() { "file".to_owned() } else { parts.join("/") }
}

/// The recorded program, or else the name without its trailing number.
pub(crate) fn kind_of<'t>(program: Option<&'t str>, name: &'t str) -> &'t str {
    if let Some(program) = program.filter(|program| !program.is_empty()) {
        return program;
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = stem.strip_suffix("ID").unwrap_or(stem).trim_end_matches(['_', '-', '.', '#']);
    if stem.is_empty() { name } else { stem }
}

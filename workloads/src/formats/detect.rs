//! Loads a graph from a generator's text or a file, and detects a file's format from its content.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;

use crate::formats::deviations::Deviations;
use crate::formats::error::{LoadError, Problem};
use crate::formats::text::{Counted, Expanding, Limited, Misread, Source};
use crate::formats::unicode::{Order, Utf16};
use crate::formats::{alibaba, dax, dot, estee, stg, swf, toml_file, wfformat};
use crate::generate::{generate, is_generator};
use crate::graph::Graph;

/// The maximum size of a workflow file after decompression.
const WORKFLOW_BYTES_MAX: u64 = 8 << 30;
/// The maximum size of a TOML file. The reader needs several times the text in memory.
const WORKFLOW_TOML_BYTES_MAX: u64 = 256 << 20;

/// A format of workflow texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    WfFormat,
    Toml,
    Generator,
    Dot,
    Stg,
    Estee,
    Dax,
    Swf,
    Alibaba,
}

/// The names of formats; the first name of each comes before its aliases.
const FORMATS: &[(&str, Format)] = &[
    ("wfformat", Format::WfFormat),
    ("json", Format::WfFormat),
    ("toml", Format::Toml),
    ("generator", Format::Generator),
    ("dot", Format::Dot),
    ("stg", Format::Stg),
    ("estee", Format::Estee),
    ("dax", Format::Dax),
    ("swf", Format::Swf),
    ("alibaba", Format::Alibaba),
];

impl Format {
    /// The first name of every format.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|(name, _)| *name).filter(|name| *name != "json")
    }
}

impl std::str::FromStr for Format {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = FORMATS.iter().find(|(name, _)| *name == text);
        found.map(|(_, format)| *format).ok_or_else(|| {
            let known: Vec<&str> = Self::names().collect();
            format!("unknown format '{text}': known are {}", known.join(", "))
        })
    }
}

/// Options for the interpretation of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadOptions {
    /// Recorded tasks take the recorded slots and memory, instead of one slot.
    pub recorded_cores: bool,
    /// The speed of one slot, for formats that state work in flops.
    pub flops_per_s: f64,
    /// Selects one job of a trace of many jobs.
    pub job: Option<String>,
    /// Refuses a text that breaks its format, even if its meaning is clear.
    pub is_strict: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { recorded_cores: false, flops_per_s: 1e9, job: None, is_strict: false }
    }
}

/// Loads a workflow: a file, or a generator's text if no file has that name.
///
/// # Errors
/// The place and the reason why it could not be read, understood or run.
pub fn load(
    path: impl AsRef<Path>,
    format: Option<Format>,
    options: &LoadOptions,
) -> Result<Graph, LoadError> {
    let path = path.as_ref();
    let text = path.to_string_lossy();
    let is_generated = match format {
        Some(format) => format == Format::Generator,
        None => !path.exists() && looks_generated(&text),
    };
    if is_generated {
        return generate(&text).map_err(|error| LoadError::new("", error));
    }
    let describe = |error: std::io::Error| {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => "no such file".to_owned(),
            std::io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
            _ => error.to_string().to_lowercase(),
        };
        LoadError::new(&text, Problem::Unreadable { reason })
    };
    let file = std::fs::File::open(path).map_err(describe)?;
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        return Err(describe(std::io::ErrorKind::IsADirectory.into()));
    }
    read(file, path, format, options)
}

/// A generator's name, or a text of that form that is no path: `NAME:...`.
fn looks_generated(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    is_generator(text) || text.split_once(':').is_some_and(|(name, _)| is_name(name))
}

/// The number of bytes from which the format of a file is detected.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a workflow from its bytes, gzipped or not. `path` names it in errors. Relative paths in a
/// TOML file refer to its directory.
///
/// # Errors
/// The place and the reason why it could not be read, understood or run.
///
/// # Panics
/// When the format is [`Format::Generator`], which is no file.
pub fn read(
    bytes: impl Read,
    path: impl AsRef<Path>,
    format: Option<Format>,
    options: &LoadOptions,
) -> Result<Graph, LoadError> {
    let path = path.as_ref();
    let file = path.to_string_lossy();
    let read = || -> Result<Result<Graph, LoadError>, Misread> {
        let packed_bytes = Cell::new(0);
        let mut packed = BufReader::new(Counted { reader: bytes, bytes: &packed_bytes });
        let limit = WORKFLOW_BYTES_MAX;
        let is_packed = packed.fill_buf()?.starts_with(&GZIP_MAGIC);
        let plain: Box<dyn Read> = if is_packed {
            Box::new(Limited::new(Gzip(flate2::bufread::MultiGzDecoder::new(packed)), limit))
        } else {
            Box::new(Limited::new(packed, limit))
        };
        let deviations = Deviations::new(options.is_strict);
        let (head, mut source) = peek_header(plain, &deviations)?;
        let is_guessed = format.is_none();
        let format = match format {
            Some(format) => format,
            None => detect(&head)?,
        };
        if options.job.is_some() && format != Format::Alibaba {
            let reason = "it is no trace of jobs, of which one could be chosen".to_owned();
            return Err(Problem::NotAWorkflow { reason }.into());
        }
        let name = stem(&file);
        let formed = |misread: Misread| misread.in_format(format);
        let graph = match format {
            Format::WfFormat => {
                Ok(wfformat::read(&mut source, &name, options, &deviations).map_err(formed)?)
            }
            Format::Toml => {
                let mut bytes = Vec::new();
                let mut text = Limited::new(&mut source, WORKFLOW_TOML_BYTES_MAX);
                match is_packed {
                    true => Expanding { reader: text, packed: &packed_bytes, unpacked: 0 }
                        .read_to_end(&mut bytes)?,
                    false => text.read_to_end(&mut bytes)?,
                };
                let graph = toml_file::read(&bytes, path);
                let is_named = path.extension().is_some_and(|ending| ending == "toml");
                let has_tasks = head.windows(5).any(|word| word == b"[task");
                graph.map_err(|error| match is_guessed && !is_named && !has_tasks {
                    true => error.of_unknown_kind(),
                    false => error,
                })
            }
            Format::Dot => Ok(dot::read(&mut source, &name, options, &deviations).map_err(formed)?),
            Format::Stg => Ok(stg::read(&mut source, &name, options).map_err(formed)?),
            Format::Estee => Ok(estee::read(&mut source, &name, options).map_err(formed)?),
            Format::Dax => Ok(dax::read(&mut source, &name, options).map_err(formed)?),
            Format::Swf => Ok(swf::read(&mut source, &name, options, &deviations).map_err(formed)?),
            Format::Alibaba => {
                Ok(alibaba::read(&mut source, &name, options, &deviations).map_err(formed)?)
            }
            Format::Generator => unreachable!("a generator is no file"),
        };
        Ok(graph.map(|mut graph| {
            graph.warnings = deviations.into_warnings(&file);
            graph
        }))
    };
    read().unwrap_or_else(|misread| Err(misread.in_file(&file)))
}

/// Adds to read errors that the compression is broken.
struct Gzip<R>(R);

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0
            .read(buffer)
            .map_err(|error| std::io::Error::new(error.kind(), format!("broken gzip: {error}")))
    }
}

/// Returns the first bytes, and the whole text again without a byte order mark.
fn peek_header<'a>(
    plain: Box<dyn Read + 'a>,
    deviations: &Deviations,
) -> Result<(Vec<u8>, Source<'a>), Misread> {
    let mut buffered = BufReader::with_capacity(HEAD_BYTES, plain);
    let mut plain: Box<dyn Read + 'a> = match Order::of(buffered.fill_buf()?) {
        Some(order) => {
            deviations.pass((1, 1), "the text is UTF-16, not UTF-8")?;
            Box::new(Utf16::new(buffered, order))
        }
        None => Box::new(buffered),
    };
    let mut head = Vec::new();
    plain.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    if head.starts_with(BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    let whole: Box<dyn Read + 'a> = Box::new(std::io::Cursor::new(head.clone()).chain(plain));
    Ok((head, BufReader::with_capacity(HEAD_BYTES, whole)))
}

/// Detects the format of a text from its beginning.
fn detect(head: &[u8]) -> Result<Format, Problem> {
    // The head may end within a character.
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && head.len() >= HEAD_BYTES => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or("")
        }
        Err(_) if head.trim_ascii_start().starts_with(b";") => return Ok(Format::Swf),
        Err(_) => {
            return Err(Problem::NotAWorkflow { reason: "the file is not text".to_owned() });
        }
    };
    let Some(first) = text.chars().find(|c| !c.is_whitespace()) else {
        return Err(Problem::NotAWorkflow { reason: "the file is empty".to_owned() });
    };
    let second = || text.trim_start()[first.len_utf8()..].trim_start().chars().next();
    Ok(match first {
        '{' if is_trace(text) => Format::Alibaba,
        '{' => Format::WfFormat,
        '<' => Format::Dax,
        ';' => Format::Swf,
        // A TOML table header also begins with a bracket, but a list of objects is JSON.
        '[' if matches!(second(), Some('{' | ']')) => Format::Estee,
        _ if is_dot(text) => Format::Dot,
        _ if numbers(text).next() == Some(swf::FIELDS) => Format::Swf,
        _ if has_swf_header(text) => Format::Swf,
        _ if is_stg(text) => Format::Stg,
        _ if is_batch_task(text) => Format::Alibaba,
        _ if is_toml(text) => Format::Toml,
        _ => return Err(unknown_kind(text)),
    })
}

/// True if the first line begins a table or sets a key.
fn is_toml(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(line) = lines.find(|line| !line.starts_with('#')) else { return true };
    let is_key = |key: &str| {
        let is_bare = |c: char| c.is_alphanumeric() || "_-.\"' \t".contains(c);
        !key.trim().is_empty() && key.chars().all(is_bare)
    };
    line.starts_with('[') || line.split_once('=').is_some_and(|(key, _)| is_key(key))
}

/// The error for an unknown format. A row with many columns may be a log that `--format` can read.
fn unknown_kind(text: &str) -> Problem {
    let columns = lines(text).next().map_or(0, |line| line.split_whitespace().count());
    let numbers = lines(text).next().into_iter().flat_map(str::split_whitespace);
    let numbers = numbers.take_while(|word| word.parse::<f64>().is_ok()).count();
    let reason = match numbers >= swf::FIELDS && columns > swf::FIELDS {
        true => format!(
            "its rows have {columns} columns, those of SWF {}; --format swf reads the first {}",
            swf::FIELDS,
            swf::FIELDS
        ),
        false => "no known kind was recognised".to_owned(),
    };
    Problem::NotAWorkflow { reason }
}

/// A line of words, followed by rows of SWF.
fn has_swf_header(text: &str) -> bool {
    let mut lines = lines(text);
    let is_header = |line: &str| line.split_whitespace().any(|word| word.parse::<f64>().is_err());
    lines.next().is_some_and(is_header)
        && lines.next().is_some_and(|line| numbers(line).next() == Some(swf::FIELDS))
}

/// The first significant lines, without the comments of DOT, STG and TOML.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    text.lines().map(str::trim).filter_map(move |mut line| {
        loop {
            if is_inside {
                let (_, after) = line.split_once("*/")?;
                (is_inside, line) = (false, after.trim_start());
            }
            let Some(inner) = line.strip_prefix("/*") else { break };
            (is_inside, line) = (true, inner);
        }
        let is_comment = line.is_empty() || line.starts_with('#') || line.starts_with("//");
        (!is_comment).then_some(line)
    })
}

/// `digraph`, `graph` or `strict`, and neither a key nor a longer word.
fn is_dot(text: &str) -> bool {
    let Some(line) = lines(text).next() else { return false };
    let end = line.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(line.len());
    let word = line[..end].to_ascii_lowercase();
    let after = line[end..].trim_start();
    matches!(word.as_str(), "digraph" | "graph" | "strict") && !after.starts_with(['=', '.'])
}

/// The count of numbers on each of the first lines, up to a line with other content.
fn numbers(text: &str) -> impl Iterator<Item = usize> {
    lines(text).map_while(|line| {
        let line = line.split('#').next().unwrap_or("");
        let are_numbers = line.split_whitespace().all(|word| word.parse::<f64>().is_ok());
        are_numbers.then(|| line.split_whitespace().count())
    })
}

/// A line of one or two numbers, followed by a line of at least two.
fn is_stg(text: &str) -> bool {
    let mut numbers = numbers(text);
    matches!(numbers.next(), Some(1 | 2)) && matches!(numbers.next(), Some(2..))
}

/// An object with `job` as its first key.
fn is_trace(text: &str) -> bool {
    let after = text.trim_start().strip_prefix('{').map(str::trim_start);
    after.is_some_and(|after| after.starts_with("\"job\""))
}

/// A row with the columns of `batch_task.csv`, with a status in the fifth one.
fn is_batch_task(text: &str) -> bool {
    let Some(line) = lines(text).next() else { return false };
    let mut columns = line.split(',');
    let is_word =
        |word: &str| word == "status" || word.starts_with(|c: char| c.is_ascii_uppercase());
    line.split(',').count() >= alibaba::COLUMNS && columns.nth(4).is_some_and(is_word)
}

/// How tasks and their values are written in this kind of file.
fn form_of(format: Format) -> Option<&'static str> {
    Some(match format {
        Format::WfFormat => {
            "write a task as {\"id\": \"a\", \"parents\": [\"b\"]} in workflow.specification.tasks, \
             its time as {\"id\": \"a\", \"runtimeInSeconds\": 1.5} in workflow.execution.tasks"
        }
        Format::Dot => {
            "write a task as a [size=1e9]; an edge as a -> b [size=1e6]; all inside digraph { }"
        }
        Format::Stg => {
            "write the number of tasks, then a line for each: its number, its time, the number of \
             its parents, and their numbers"
        }
        Format::Estee => {
            "write a task as {\"d\": 1.5, \"e_time\": 1.5, \"cpus\": 1, \"outputs\": [{\"s\": 1}], \
             \"inputs\": [[0, 0]]}"
        }
        Format::Dax => {
            "write a task as <job id=\"a\" name=\"align\" runtime=\"1.5\"/>, a dependency as \
             <child ref=\"b\"><parent ref=\"a\"/></child>"
        }
        Format::Swf => {
            "write a job as a line of 18 numbers, -1 for a value that is not known; comments begin \
             with ;"
        }
        Format::Alibaba => "docs/formats.md describes the columns of the trace",
        Format::Toml | Format::Generator => return None,
    })
}

impl Misread {
    /// Gives an error in a file of this kind the right form as its hint, if it has no hint.
    pub(crate) fn in_format(mut self, format: Format) -> Self {
        let Some(form) = form_of(format) else { return self };
        let form = Some(form.to_owned());
        self.problem = match self.problem {
            Problem::Syntax { reason } => Problem::Mistake { reason, hint: form },
            // The kind is known: only this place is wrong.
            Problem::NotAWorkflow { reason } if self.at.is_some() => {
                Problem::Mistake { reason: format!("not a workflow: {reason}"), hint: form }
            }
            Problem::BadTask { task, reason, hint: None } => {
                Problem::BadTask { task, reason, hint: form }
            }
            problem => problem,
        };
        self
    }
}

/// A file's name without directory and extensions.
pub(crate) fn stem(file: &str) -> String {
    let name =
        Path::new(file).file_name().map_or_else(|| file.into(), |name| name.to_string_lossy());
    name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or("workflow").to_owned()
}

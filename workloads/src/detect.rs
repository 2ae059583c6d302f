//! From a name to a graph: generator text or a file, whose kind is told from its content.

use std::io::Read;
use std::path::Path;

use proto::limits;

use crate::error::{LoadError, Problem};
use crate::generate::{generate, is_generator};
use crate::graph::Graph;
use crate::{toml_file, wfformat};

/// A kind of workflow text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    WfFormat,
    Toml,
    Generator,
}

impl std::str::FromStr for Format {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wfformat" | "json" => Ok(Self::WfFormat),
            "toml" => Ok(Self::Toml),
            "generator" => Ok(Self::Generator),
            _ => Err(format!("unknown format '{text}': known are wfformat, toml, generator")),
        }
    }
}

/// How to understand what a file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadOptions {
    /// Recorded tasks take as many slots and as much memory as was recorded, not one slot.
    pub recorded_cores: bool,
}

/// Loads a workflow: a file, or a generator's text when no file has that name.
///
/// # Errors
/// Where and why it could not be read, understood or run.
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
    let bytes =
        read_file(path).map_err(|reason| LoadError::new(&text, Problem::Unreadable { reason }))?;
    let format = match format {
        Some(format) => format,
        None => detect(&bytes).map_err(|problem| LoadError::new(&text, problem))?,
    };
    match format {
        Format::WfFormat => wfformat::read(&bytes, &text, options),
        Format::Toml => toml_file::read(&bytes, path),
        Format::Generator => unreachable!("generators were handled before the file was read"),
    }
}

/// A generator's name, or something of that form that is no path: `NAME:...`.
fn looks_generated(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    is_generator(text) || text.split_once(':').is_some_and(|(name, _)| is_name(name))
}

/// The kind of a text: JSON begins with a brace; TOML is what else is text.
fn detect(bytes: &[u8]) -> Result<Format, Problem> {
    let start = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match start.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => Err(Problem::NotAWorkflow { reason: "the file is empty".to_owned() }),
        // A TOML table header also begins with a bracket, JSON's list never is a workflow.
        Some(b'{') => Ok(Format::WfFormat),
        Some(_) if std::str::from_utf8(bytes).is_ok() => Ok(Format::Toml),
        Some(_) => Err(Problem::NotAWorkflow { reason: "the file is not text".to_owned() }),
    }
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The file's bytes, decompressed when they are gzip.
fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let describe = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string().to_lowercase(),
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(describe)?;
    let limit = limits::WORKFLOW_BYTES_MAX;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(describe)?;
    if bytes.starts_with(&GZIP_MAGIC) {
        let packed = std::mem::take(&mut bytes);
        flate2::read::MultiGzDecoder::new(packed.as_slice())
            .take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("broken gzip: {error}"))?;
    }
    if bytes.len() as u64 > limit {
        return Err(format!("it is larger than {limit} bytes"));
    }
    Ok(bytes)
}

/// A file's name without directory and endings.
pub(crate) fn stem(file: &str) -> String {
    let name =
        Path::new(file).file_name().map_or_else(|| file.into(), |name| name.to_string_lossy());
    name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or("workflow").to_owned()
}

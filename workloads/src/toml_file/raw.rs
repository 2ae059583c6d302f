//! The TOML as it is: shapes only, every value with its place.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use super::{Fault, Located};
use crate::error::Problem;

pub(super) fn parse(text: &str) -> Result<RawFile, Fault> {
    toml::from_str(text).map_err(|error| {
        let reason = error.message().trim().replace('\n', "; ");
        Fault { at: error.span().map(|span| span.start), problem: Problem::Syntax { reason } }
    })
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFile {
    pub(super) name: Option<String>,
    pub(super) data_load: Option<Spanned<String>>,
    #[serde(default)]
    task: Vec<Spanned<RawTask>>,
}

impl RawFile {
    /// Whether the time that tasks of kind `load` take counts.
    pub(super) fn clocks_loads(&self) -> Result<bool, Fault> {
        match self.data_load.clone().map(located) {
            None => Ok(false),
            Some(text) if text.value == "unclocked" => Ok(false),
            Some(text) if text.value == "clocked" => Ok(true),
            Some(text) => {
                let reason = format!("data_load = '{}': it is clocked or unclocked", text.value);
                Err(text.fault(Problem::Syntax { reason }))
            }
        }
    }

    pub(super) fn tasks(self) -> Vec<Located<RawTask>> {
        self.task.into_iter().map(located).collect()
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTask {
    pub(super) name: Spanned<String>,
    pub(super) array: Option<Spanned<String>>,
    pub(super) kind: Option<String>,
    pub(super) command: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) body: Option<Spanned<String>>,
    pub(super) duration: Option<Spanned<String>>,
    pub(super) duration_estimate: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) inputs: Pairs<RawInput>,
    #[serde(default)]
    pub(super) outputs: Pairs<RawOutput>,
    #[serde(default)]
    pub(super) after: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) env: Pairs<String>,
    pub(super) cwd: Option<Spanned<String>>,
    pub(super) stdin: Option<Spanned<String>>,
    pub(super) cpus: Option<Spanned<i64>>,
    pub(super) memory: Option<Spanned<String>>,
    pub(super) retries: Option<Spanned<i64>>,
    pub(super) time_limit: Option<Spanned<String>>,
}

pub(super) fn located<T>(spanned: Spanned<T>) -> Located<T> {
    let at = Some(spanned.span().start);
    Located { value: spanned.into_inner(), at }
}

/// A table in the order in which it was written.
#[derive(Debug)]
pub(super) struct Pairs<T>(pub(super) Vec<(String, Located<T>)>);

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Table<T> {
            type Value = Pairs<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table of key = value")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Spanned<T>>()? {
                    pairs.push((key, located(value)));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Table(std::marker::PhantomData))
    }
}

/// `"file"`, `["file", ...]`, `{ file, size }` for a file that is only modelled, or one that is to
/// be brought near: `{ file, stage = true }`, `{ file, upload = true }`.
#[derive(Debug)]
pub(super) enum RawInput {
    One(String),
    Many(Vec<Located<String>>),
    Modelled { file: String, size: String },
    Brought { file: String, bring: Bring },
}

/// What becomes of a file that exists before the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Bring {
    /// Tasks read it where it lies.
    #[default]
    Not,
    /// It is on a file system that all nodes see: each node copies it to its own store, once.
    Stage,
    /// It is on the submitter's machine and travels with the job.
    Upload,
}

impl<'de> Deserialize<'de> for RawInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const FIELDS: [&str; 4] = ["file", "size", "stage", "upload"];
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = RawInput;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a file, a list of files, or { file } with size, stage or upload")
            }
            fn visit_str<E>(self, text: &str) -> Result<RawInput, E> {
                Ok(RawInput::One(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawInput, A::Error> {
                let mut files = Vec::new();
                while let Some(file) = seq.next_element::<Spanned<String>>()? {
                    files.push(located(file));
                }
                Ok(RawInput::Many(files))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawInput, A::Error> {
                let (mut file, mut size, mut stage, mut upload) = (None, None, false, false);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "file" => file = Some(map.next_value()?),
                        "size" => size = Some(map.next_value()?),
                        "stage" => stage = map.next_value()?,
                        "upload" => upload = map.next_value()?,
                        _ => return Err(A::Error::unknown_field(&key, &FIELDS)),
                    }
                }
                let file = file.ok_or_else(|| A::Error::missing_field("file"))?;
                Ok(match (size, stage, upload) {
                    (None, false, false) => RawInput::One(file),
                    (None, true, false) => RawInput::Brought { file, bring: Bring::Stage },
                    (None, false, true) => RawInput::Brought { file, bring: Bring::Upload },
                    (Some(size), false, false) => RawInput::Modelled { file, size },
                    _ => {
                        let text = "a file has a size, or is staged, or uploaded: one of them";
                        return Err(A::Error::custom(text));
                    }
                })
            }
        }
        deserializer.deserialize_any(Shapes)
    }
}

/// `"file"` or `{ file, keep, replicas, size }`.
#[derive(Debug)]
pub(super) struct RawOutput {
    pub(super) file: String,
    pub(super) keep: bool,
    pub(super) replicas: Option<u32>,
    pub(super) size: Option<String>,
}

impl<'de> Deserialize<'de> for RawOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = RawOutput;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a file or { file, keep, replicas, size }")
            }
            fn visit_str<E>(self, text: &str) -> Result<RawOutput, E> {
                Ok(RawOutput { file: text.to_owned(), keep: false, replicas: None, size: None })
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawOutput, A::Error> {
                let (mut file, mut keep, mut replicas, mut size) = (None, false, None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "file" => file = Some(map.next_value()?),
                        "keep" => keep = map.next_value()?,
                        "replicas" => replicas = Some(map.next_value()?),
                        "size" => size = Some(map.next_value()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            let known = &["file", "keep", "replicas", "size"];
                            return Err(A::Error::unknown_field(&key, known));
                        }
                    }
                }
                let file = file.ok_or_else(|| A::Error::missing_field("file"))?;
                Ok(RawOutput { file, keep, replicas, size })
            }
        }
        deserializer.deserialize_any(Shapes)
    }
}

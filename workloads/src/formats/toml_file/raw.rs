//! The structure of the TOML file, with the position of every value. [`super::table`] checks its
//! content.

use proto::variable;
use proto::wire::OutputForm;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use super::variants::RawVariant;
use super::{Fault, Located, diagnostics};
use crate::formats::error::Problem;
use crate::graph::crash_limit::CrashLimit;
use crate::graph::job_options::{self, JobOptions};
use crate::graph::notice::Notice;
use crate::graph::pin::CpuPin;

pub(super) fn parse(text: &str) -> Result<RawFile, Fault> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map(|span| span.start);
        Fault { at, problem: diagnostics::problem(error.message(), text, at) }
    })
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFile {
    pub(super) name: Option<String>,
    pub(super) data_load: Option<Spanned<String>>,
    job: Option<RawJob>,
    #[serde(default)]
    task: Vec<Spanned<RawTask>>,
}

/// Options of the whole job.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct RawJob {
    at_most: Option<Spanned<i64>>,
    #[serde(default)]
    after_job: Vec<Spanned<RawAfter>>,
    #[serde(default)]
    var: Pairs<String>,
}

/// A job to wait for: its number, or a text such as `any:7`.
#[derive(Clone, Deserialize, Debug)]
#[serde(untagged)]
enum RawAfter {
    Number(i64),
    Text(String),
}

impl RawAfter {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl RawJob {
    fn options(&self) -> Result<JobOptions, Fault> {
        let syntax = |reason| Problem::Syntax { reason };
        let mut options = JobOptions::default();
        if let Some(number) = self.at_most.clone().map(located) {
            let at_most = job_options::at_most(number.value);
            options.at_most = Some(at_most.map_err(|reason| number.fault(syntax(reason)))?);
        }
        for after in self.after_job.iter().cloned().map(located) {
            let read = proto::after::parse(&after.value.text());
            options.after.push(read.map_err(|reason| after.fault(syntax(reason)))?);
        }
        proto::after::check(u64::MAX, &options.after).map_err(syntax)?;
        for (name, rule) in &self.var.0 {
            let declared = variable::parse_declared(&format!("{name}={}", rule.value));
            options.variables.push(declared.map_err(|reason| rule.fault(syntax(reason)))?);
        }
        variable::check_all(&options.variables).map_err(syntax)?;
        Ok(options)
    }
}

impl RawFile {
    /// True if the time of tasks of kind `load` counts.
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

    /// The options of the whole job.
    pub(super) fn job(&self) -> Result<JobOptions, Fault> {
        self.job.as_ref().map_or_else(|| Ok(JobOptions::default()), RawJob::options)
    }

    /// The output files of all tasks, as written in the file.
    pub(super) fn outputs(&self) -> Vec<String> {
        let outputs = self.task.iter().flat_map(|task| &task.get_ref().outputs.0);
        outputs.map(|(_, output)| output.value.file.clone()).collect()
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
    pub(super) function: Option<Spanned<String>>,
    pub(super) args: Option<Spanned<Vec<toml::Value>>>,
    pub(super) kwargs: Option<Spanned<toml::Table>>,
    pub(super) preload: Option<Spanned<Vec<String>>>,
    pub(super) python: Option<Spanned<String>>,
    pub(super) command: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) body: Option<Spanned<String>>,
    pub(super) duration: Option<Spanned<String>>,
    pub(super) duration_estimate: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) inputs: Pairs<RawInputs>,
    #[serde(default)]
    pub(super) outputs: Pairs<RawOutput>,
    #[serde(default)]
    pub(super) after: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) env: Pairs<String>,
    pub(super) cwd: Option<Spanned<String>>,
    pub(super) stdin: Option<Spanned<String>>,
    pub(super) cpus: Option<Spanned<Cpus>>,
    pub(super) memory: Option<Spanned<String>>,
    pub(super) gpus: Option<Spanned<AmountText>>,
    #[serde(default)]
    pub(super) resources: Pairs<AmountText>,
    pub(super) labels: Option<Spanned<Vec<String>>>,
    pub(super) variants: Option<Spanned<Vec<RawVariant>>>,
    pub(super) patience: Option<Spanned<String>>,
    pub(super) priority: Option<Spanned<i64>>,
    pub(super) rank: Option<Spanned<i64>>,
    pub(super) nodes: Option<Spanned<i64>>,
    pub(super) time_request: Option<Spanned<String>>,
    pub(super) retries: Option<Spanned<i64>>,
    pub(super) crash_limit: Option<CrashLimit>,
    pub(super) time_limit: Option<Spanned<String>>,
    pub(super) signal: Option<Notice>,
    pub(super) pin: Option<CpuPin>,
}

/// An amount: a number or a text such as "2GiB" or "all".
#[derive(Debug)]
pub(super) struct AmountText(pub(super) String);

impl<'de> Deserialize<'de> for AmountText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Amount {
            Whole(i64),
            Part(f64),
            Text(String),
        }
        Ok(Self(match Amount::deserialize(deserializer)? {
            Amount::Whole(number) => number.to_string(),
            Amount::Part(number) => number.to_string(),
            Amount::Text(text) => text,
        }))
    }
}

/// Cpus: a number, or a text with a policy such as "4 tight!" or "all".
#[derive(Debug)]
pub(super) enum Cpus {
    Number(i64),
    Text(String),
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Cpus;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("i64")
            }
            fn visit_i64<E>(self, number: i64) -> Result<Cpus, E> {
                Ok(Cpus::Number(number))
            }
            fn visit_str<E>(self, text: &str) -> Result<Cpus, E> {
                Ok(Cpus::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

pub(super) fn located<T>(spanned: Spanned<T>) -> Located<T> {
    let at = Some(spanned.span().start);
    Located { value: spanned.into_inner(), at }
}

/// The entries of a table in the order of the file.
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

/// One file of an input: `"file"`, or `{ file }` with `as`. `size` is for a file that is only
/// modelled, `stage = true` or `upload = true` for one to be copied.
#[derive(Debug)]
pub(super) struct RawInput {
    pub(super) file: String,
    /// Its name in the task's directory.
    pub(super) name: Option<String>,
    pub(super) size: Option<String>,
    pub(super) bring: ExternalFileUse,
}

/// A file, or a list of files.
#[derive(Debug)]
pub(super) enum RawInputs {
    One(RawInput),
    Many(Vec<Located<RawInput>>),
}

/// The handling of a file that exists before the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ExternalFileUse {
    /// Tasks read the original.
    #[default]
    Not,
    /// On a file system that all nodes see: each node copies it to its own store once.
    Stage,
    /// On the submitter's machine: the client uploads it with the job.
    Upload,
}

impl<'de> Deserialize<'de> for RawInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match RawInputs::deserialize(deserializer)? {
            RawInputs::One(input) => Ok(input),
            RawInputs::Many(_) => Err(D::Error::custom("a list of files within a list of files")),
        }
    }
}

impl<'de> Deserialize<'de> for RawInputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const FIELDS: [&str; 5] = ["file", "as", "size", "stage", "upload"];
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = RawInputs;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a file, a list of files, or { file } with as, size, stage or upload")
            }
            fn visit_str<E>(self, text: &str) -> Result<RawInputs, E> {
                let file = text.to_owned();
                Ok(RawInputs::One(RawInput {
                    file,
                    name: None,
                    size: None,
                    bring: ExternalFileUse::Not,
                }))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawInputs, A::Error> {
                let mut files = Vec::new();
                while let Some(file) = seq.next_element::<Spanned<RawInput>>()? {
                    files.push(located(file));
                }
                Ok(RawInputs::Many(files))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawInputs, A::Error> {
                let (mut file, mut name, mut size) = (None, None, None);
                let (mut stage, mut upload) = (false, false);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "file" => file = Some(map.next_value()?),
                        "as" => name = Some(map.next_value()?),
                        "size" => size = Some(map.next_value()?),
                        "stage" => stage = map.next_value()?,
                        "upload" => upload = map.next_value()?,
                        _ => return Err(A::Error::unknown_field(&key, &FIELDS)),
                    }
                }
                let file = file.ok_or_else(|| A::Error::missing_field("file"))?;
                let bring = match (&size, stage, upload) {
                    (_, false, false) => ExternalFileUse::Not,
                    (None, true, false) => ExternalFileUse::Stage,
                    (None, false, true) => ExternalFileUse::Upload,
                    _ => {
                        let text = "a file has a size, or is staged, or uploaded: one of them";
                        return Err(A::Error::custom(text));
                    }
                };
                Ok(RawInputs::One(RawInput { file, name, size, bring }))
            }
        }
        deserializer.deserialize_any(Shapes)
    }
}

/// `"file"`, or a table of `file`, `dir` or `glob` with `keep`, `replicas`, `size`, `optional`.
#[derive(Debug)]
pub(super) struct RawOutput {
    pub(super) file: String,
    pub(super) form: OutputForm,
    pub(super) optional: bool,
    pub(super) keep: bool,
    pub(super) replicas: Option<u32>,
    pub(super) size: Option<String>,
}

impl<'de> Deserialize<'de> for RawOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const FIELDS: [&str; 7] = ["file", "dir", "glob", "optional", "keep", "replicas", "size"];
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = RawOutput;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a file, or a table with one of file, dir or glob")
            }
            fn visit_str<E>(self, text: &str) -> Result<RawOutput, E> {
                let form = OutputForm::File;
                let (file, keep, optional) = (text.to_owned(), false, false);
                Ok(RawOutput { file, form, optional, keep, replicas: None, size: None })
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawOutput, A::Error> {
                let (mut named, mut optional) = (Vec::new(), false);
                let (mut keep, mut replicas, mut size) = (false, None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "file" => named.push((OutputForm::File, map.next_value::<String>()?)),
                        "dir" => named.push((OutputForm::Directory, map.next_value()?)),
                        "glob" => named.push((OutputForm::Files, map.next_value()?)),
                        "optional" => optional = map.next_value()?,
                        "keep" => keep = map.next_value()?,
                        "replicas" => replicas = Some(map.next_value()?),
                        "size" => size = Some(map.next_value()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            return Err(A::Error::unknown_field(&key, &FIELDS));
                        }
                    }
                }
                let Some((form, file)) = named.pop() else {
                    return Err(A::Error::missing_field("file"));
                };
                if !named.is_empty() {
                    let text = "an output is a file, a dir or a glob: one of them";
                    return Err(A::Error::custom(text));
                }
                Ok(RawOutput { file, form, optional, keep, replicas, size })
            }
        }
        deserializer.deserialize_any(Shapes)
    }
}

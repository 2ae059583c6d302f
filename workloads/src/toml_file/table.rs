//! One task of a workflow file, or a whole array of them, checked as far as it goes by itself.

use proto::limits::{self, COPIES_MAX};

use super::array::{Array, expand_range};
pub(crate) use super::raw::Bring;
use super::raw::{RawInput, RawOutput, RawTask, located};
use super::{Fault, Located};
use crate::quantity::{parse_duration_ns, parse_size_bytes};

/// A task, or an array of tasks whose texts contain `{i}`.
#[derive(Clone, Debug)]
pub(crate) struct TaskTable {
    /// Contains `{i}` exactly when there is an array.
    pub(crate) name: Located<String>,
    pub(crate) array: Option<Array>,
    pub(crate) kind: String,
    pub(crate) body: Body,
    /// Of a command only an estimate.
    pub(crate) duration_ns: u64,
    pub(crate) inputs: Vec<InputFile>,
    pub(crate) outputs: Vec<OutputFile>,
    pub(crate) after: Vec<Located<String>>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: Option<String>,
    pub(crate) stdin: Option<Located<String>>,
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) retries: u32,
    pub(crate) time_limit_ns: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    Command(Vec<String>),
    Noop,
    Sleep,
    Spin,
}

#[derive(Clone, Debug)]
pub(crate) struct InputFile {
    pub(crate) key: String,
    pub(crate) file: Located<String>,
    /// Only modelled: it has this size and need not exist.
    pub(crate) modelled_bytes: Option<u64>,
    pub(crate) bring: Bring,
}

#[derive(Clone, Debug)]
pub(crate) struct OutputFile {
    pub(crate) key: String,
    pub(crate) file: Located<String>,
    pub(crate) keep: bool,
    /// 0: not said.
    pub(crate) replicas: u32,
    pub(crate) size_bytes: u64,
}

impl TaskTable {
    /// A task that has nothing but its name and body.
    pub(crate) fn bare(name: &str, body: Body) -> Self {
        Self {
            name: Located::nowhere(name.to_owned()),
            array: None,
            kind: String::new(),
            body,
            duration_ns: 0,
            inputs: Vec::new(),
            outputs: Vec::new(),
            after: Vec::new(),
            env: Vec::new(),
            cwd: None,
            stdin: None,
            cpus: 1,
            memory_bytes: 0,
            retries: 0,
            time_limit_ns: 0,
        }
    }

    pub(super) fn from_raw(raw: Located<RawTask>) -> Result<Self, Fault> {
        let Located { value: raw, at } = raw;
        let name = located(raw.name.clone());
        let told = name.value.clone();
        let wrong = |at: Option<usize>, reason: String| Fault::task(at, &told, reason);
        let (body, duration_ns) = body(&raw, at, &told)?;
        let parse = |text: Option<toml::Spanned<String>>, parse: Parse| {
            let Some(text) = text.map(located) else { return Ok(0) };
            parse(&text.value).map_err(|reason| wrong(text.at, reason))
        };
        let count = |number: Option<toml::Spanned<i64>>, key: &str, least: i64, most: u32| {
            let Some(number) = number.map(located) else { return Ok(least as u32) };
            let fits = (least..=i64::from(most)).contains(&number.value);
            let reason = || format!("{key} = {} is not from {least} to {most}", number.value);
            if fits { Ok(number.value as u32) } else { Err(wrong(number.at, reason())) }
        };
        let mut inputs = Vec::new();
        for (key, input) in raw.inputs.0 {
            push_input(&mut inputs, key, input).map_err(|(at, reason)| wrong(at, reason))?;
        }
        let outputs = raw.outputs.0.into_iter().map(output).collect::<Result<_, _>>();
        let mut table = Self {
            array: match raw.array.map(located) {
                Some(text) => {
                    Some(Array::parse(&text.value).map_err(|reason| wrong(text.at, reason))?)
                }
                None => None,
            },
            kind: raw.kind.unwrap_or_default(),
            body,
            duration_ns,
            inputs,
            outputs: outputs.map_err(|(at, reason)| wrong(at, reason))?,
            after: raw.after.into_iter().map(located).collect(),
            env: raw.env.0.into_iter().map(|(name, value)| (name, value.value)).collect(),
            cwd: raw.cwd.map(|cwd| cwd.into_inner()),
            stdin: raw.stdin.map(located),
            cpus: count(raw.cpus, "cpus", 1, limits::SLOTS_MAX)?,
            memory_bytes: parse(raw.memory, parse_size_bytes)?,
            retries: count(raw.retries, "retries", 0, u32::MAX)?,
            time_limit_ns: parse(raw.time_limit, parse_duration_ns)?,
            name,
        };
        table.check()?;
        Ok(table)
    }

    /// Checks what holds for tasks from anywhere, and gives an array's name its `{i}`.
    pub(crate) fn check(&mut self) -> Result<(), Fault> {
        let told = self.name.value.clone();
        if told.is_empty() {
            return Err(Fault::task(self.name.at, &told, "the name is empty"));
        }
        if self.array.is_some() && !told.contains("{i}") {
            self.name.value.push_str("-{i}");
        }
        let files = self.outputs.iter().map(|output| &output.file);
        for text in files.chain(self.inputs.iter().map(|input| &input.file)).chain([&self.name]) {
            if self.array.is_none() && text.value.contains("{i}") {
                let reason = format!("'{}' contains {{i}}, but the task has no array", text.value);
                let hint = "add array = \"1-10\", or write the number";
                return Err(Fault::task(text.at, &told, reason).with_hint(hint));
            }
        }
        for output in &self.outputs {
            let path = std::path::Path::new(&output.file.value);
            let is_plain = |part| matches!(part, std::path::Component::Normal(_));
            if output.file.value.is_empty() || !path.components().all(is_plain) {
                let reason =
                    format!("output '{}' is not a path inside its directory", output.file.value);
                let hint = "a task writes its outputs into its own directory";
                return Err(Fault::task(output.file.at, &told, reason).with_hint(hint));
            }
        }
        self.check_placeholders(&told)
    }

    fn check_placeholders(&self, told: &str) -> Result<(), Fault> {
        let Body::Command(argv) = &self.body else { return Ok(()) };
        for text in argv.iter().chain(self.env.iter().map(|(_, value)| value)) {
            let keys = |kind: &str| -> Vec<&str> {
                match kind {
                    "in" => self.inputs.iter().map(|input| input.key.as_str()).collect(),
                    _ => self.outputs.iter().map(|output| output.key.as_str()).collect(),
                }
            };
            for kind in ["in", "out"] {
                let opening = format!("{{{kind}:");
                for rest in text.split(opening.as_str()).skip(1) {
                    let Some((key, _)) = rest.split_once('}') else { continue };
                    if !keys(kind).contains(&key) {
                        let noun = if kind == "in" { "input" } else { "output" };
                        let reason = format!("{opening}{key}}} names no {noun}");
                        let mut known = keys(kind);
                        known.dedup();
                        let hint = match known.as_slice() {
                            [] => format!("the task declares no {noun}s"),
                            _ => format!("its {noun}s are {}", known.join(", ")),
                        };
                        return Err(Fault::task(self.name.at, told, reason).with_hint(&hint));
                    }
                }
            }
        }
        Ok(())
    }
}

type Parse = fn(&str) -> Result<u64, String>;
type Wrong = (Option<usize>, String);

fn body(raw: &RawTask, at: Option<usize>, told: &str) -> Result<(Body, u64), Fault> {
    let wrong = |at: Option<usize>, reason: &str| Fault::task(at, told, reason);
    let parse = |text: &Option<toml::Spanned<String>>| {
        let text = text.clone().map(located);
        let parsed =
            text.map(|text| parse_duration_ns(&text.value).map_err(|r| wrong(text.at, &r)));
        parsed.transpose()
    };
    let (duration_ns, estimate_ns) = (parse(&raw.duration)?, parse(&raw.duration_estimate)?);
    if let Some(command) = raw.command.clone().map(located) {
        if raw.body.is_some() || duration_ns.is_some() {
            return Err(wrong(command.at, "has a command beside a body or duration"));
        }
        if command.value.is_empty() {
            return Err(wrong(command.at, "the command is empty"));
        }
        let argv = command.value.into_iter().map(|argument| argument.into_inner()).collect();
        return Ok((Body::Command(argv), estimate_ns.unwrap_or(0)));
    }
    if let Some(text) = raw.duration_estimate.clone().map(located) {
        let hint = "write duration = \"...\": a task without a command lasts as long as it says";
        return Err(wrong(text.at, "an estimate goes with a command").with_hint(hint));
    }
    let body = match raw.body.clone().map(located) {
        Some(text) => match text.value.as_str() {
            "noop" => Body::Noop,
            "sleep" => Body::Sleep,
            "spin" => Body::Spin,
            _ => {
                let fault = wrong(text.at, &format!("unknown body '{}'", text.value));
                return Err(fault.with_hint("known bodies are noop, sleep and spin"));
            }
        },
        None if duration_ns.is_some() => Body::Sleep,
        None => {
            let hint = "add command = [\"program\", \"argument\"], or duration = \"1s\"";
            return Err(wrong(at, "has neither a command nor a body").with_hint(hint));
        }
    };
    Ok((body, duration_ns.unwrap_or(0)))
}

fn push_input(
    inputs: &mut Vec<InputFile>,
    key: String,
    input: Located<RawInput>,
) -> Result<(), Wrong> {
    let at = input.at;
    let one = |value: String| vec![Located { value, at }];
    let (files, modelled_bytes, bring) = match input.value {
        RawInput::One(file) => (one(file), None, Bring::Not),
        RawInput::Many(files) => (files, None, Bring::Not),
        RawInput::Brought { file, bring } => (one(file), None, bring),
        RawInput::Modelled { file, size } => {
            let size_bytes = parse_size_bytes(&size).map_err(|reason| (at, reason))?;
            (one(file), Some(size_bytes), Bring::Not)
        }
    };
    for file in files {
        for value in expand_range(&file.value).map_err(|reason| (file.at, reason))? {
            let file = Located { value, at: file.at };
            inputs.push(InputFile { key: key.clone(), file, modelled_bytes, bring });
        }
    }
    Ok(())
}

fn output((key, output): (String, Located<RawOutput>)) -> Result<OutputFile, Wrong> {
    let at = output.at;
    let RawOutput { file, keep, replicas, size } = output.value;
    let size_bytes =
        size.map_or(Ok(0), |size| parse_size_bytes(&size)).map_err(|reason| (at, reason))?;
    if replicas.is_some_and(|replicas| !(1..=COPIES_MAX).contains(&replicas)) {
        return Err((at, format!("replicas of an output are 1 to {COPIES_MAX}")));
    }
    let replicas = replicas.unwrap_or(0);
    Ok(OutputFile { key, file: Located { value: file, at }, keep, replicas, size_bytes })
}

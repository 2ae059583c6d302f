//! One task of a workflow file, or an array of them, with all checks that need no other task.

use std::collections::BTreeMap;
use std::mem::take;
use std::time::Duration;

use proto::entry;
use proto::limits::{self, COPIES_MAX};
use proto::wire::OutputForm;

use super::array::{Array, expand_range, find_range};
use super::diagnostics;
use super::function::{self, FunctionCall};
use super::needs::Places;
pub(crate) use super::raw::ExternalFileUse;
use super::raw::{AmountText, Cpus, Pairs, RawInput, RawInputs, RawOutput, RawTask, located};
use super::{Fault, Located, variants};
use crate::graph::crash_limit::CrashLimit;
use crate::graph::needs::{Needs, Requested, TIME_REQUEST_OF_0};
use crate::graph::notice::Notice;
use crate::graph::pin::CpuPin;
use crate::graph::quantity::{format_duration_ns, parse_duration_ns, parse_size_bytes};

/// A task, or an array of tasks with texts that contain `{i}`.
#[derive(Clone, Debug)]
pub(crate) struct TaskTable {
    /// Contains `{i}` exactly if there is an array.
    pub(crate) name: Located<String>,
    pub(crate) array: Option<Array>,
    pub(crate) kind: String,
    pub(crate) body: Body,
    /// For a command only an estimate.
    pub(crate) duration_ns: u64,
    pub(crate) inputs: Vec<InputFile>,
    pub(crate) outputs: Vec<OutputFile>,
    pub(crate) after: Vec<Located<String>>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: Option<String>,
    pub(crate) stdin: Option<Located<String>>,
    /// Files for the output of a command.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Of a command in an array: by element, the values of its variable STARLING_ENTRY.
    pub(crate) values: BTreeMap<u64, String>,
    pub(crate) requested: Requested,
    /// The commands of variants that have their own, by the position of the variant.
    pub(crate) variant_commands: Vec<(u32, Vec<String>)>,
    pub(crate) priority: i32,
    pub(crate) rank: u32,
    /// Nodes that the task holds at once; 0 and 1: one.
    pub(crate) nodes: u32,
    pub(crate) time_request_ns: u64,
    pub(crate) retries: u32,
    pub(crate) crash_limit: u32,
    pub(crate) time_limit_ns: u64,
    /// Of a command.
    pub(crate) notice: Option<Notice>,
    /// Of a command.
    pub(crate) pin: Option<CpuPin>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Body {
    Command(Vec<String>),
    Noop,
    Sleep,
    Spin,
    Function(FunctionCall),
}

#[derive(Clone, Debug)]
pub(crate) struct InputFile {
    pub(crate) key: String,
    pub(crate) file: Located<String>,
    /// Its name in the task's directory, if the user chose one.
    pub(crate) name: Option<String>,
    /// Only modelled: it has this size and need not exist.
    pub(crate) modelled_bytes: Option<u64>,
    pub(crate) bring: ExternalFileUse,
    /// The result of the task with the name `file`.
    pub(crate) is_result: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct OutputFile {
    pub(crate) key: String,
    pub(crate) file: Located<String>,
    pub(crate) keep: bool,
    /// 0: unspecified.
    pub(crate) replicas: u32,
    pub(crate) form: OutputForm,
    /// A pattern that may match no file.
    pub(crate) optional: bool,
    pub(crate) size_bytes: u64,
}

impl TaskTable {
    /// A task with only a name and a body.
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
            stdout: String::new(),
            stderr: String::new(),
            values: BTreeMap::new(),
            requested: Requested { cpus: 1, ..Requested::default() },
            variant_commands: Vec::new(),
            priority: 0,
            rank: 0,
            nodes: 0,
            time_request_ns: 0,
            retries: 0,
            crash_limit: 0,
            time_limit_ns: 0,
            notice: None,
            pin: None,
        }
    }

    /// `is_file` returns true if a file of this name exists or a task makes it.
    pub(super) fn from_raw(
        raw: Located<RawTask>,
        is_file: &dyn Fn(&str) -> bool,
    ) -> Result<Self, Fault> {
        let Located { value: mut raw, at } = raw;
        let (name, told) = (located(raw.name.clone()), raw.name.get_ref().clone());
        let wrong = |at: Option<usize>, reason: String| Fault::task(at, &told, reason);
        let parse = |text: Option<toml::Spanned<String>>, parse: Parse| {
            let Some(text) = text.map(located) else { return Ok(0) };
            parse(&text.value).map_err(|reason| wrong(text.at, reason))
        };
        let count = |number: Option<Located<i64>>, key: &str, least: i64, most: u32| {
            let Some(number) = number else { return Ok(least as u32) };
            let fits = (least..=i64::from(most)).contains(&number.value);
            let reason = || format!("{key} = {} is not from {least} to {most}", number.value);
            if fits { Ok(number.value as u32) } else { Err(wrong(number.at, reason())) }
        };
        let places = Places::of(&raw);
        let cpus = cpus_of(raw.cpus.take(), |number| count(number, "cpus", 1, limits::SLOTS_MAX))?;
        let memory = memory_of(raw.memory.take()).map_err(|(at, reason)| wrong(at, reason))?;
        let amounts = (raw.gpus.take().map(|it| it.into_inner()), take(&mut raw.resources));
        let labels = raw.labels.take().map(|it| it.into_inner()).unwrap_or_default();
        let (variants, commands) = variants::needs_and_commands(raw.variants.take());
        let nodes = count(raw.nodes.take().map(located), "nodes", 1, limits::GANG_NODES_MAX)?;
        let patience = raw.patience.take().map(|text| parse(Some(text), parse_duration_ns));
        let patience = patience.transpose()?.map(Duration::from_nanos);
        let needs = needs_of((cpus, memory), amounts.0, amounts.1, (labels, variants, patience));
        let requested = places.request(needs, nodes).map_err(|(place, reason)| {
            wrong(place.or(at), reason).with_hint("docs/resources.md describes requests")
        })?;
        let priority =
            priority_of(raw.priority.take()).map_err(|(at, reason)| wrong(at, reason))?;
        let mut inputs = Vec::new();
        for (key, input) in take(&mut raw.inputs.0) {
            push_input(&mut inputs, &key, input, is_file)
                .map_err(|(at, reason)| wrong(at, reason))?;
        }
        let (body, duration_ns) = body(&raw, at, &told, &mut inputs)?;
        let outputs = raw.outputs.0.into_iter().map(output).collect::<Result<_, _>>();
        let array = raw.array.map(located);
        let mut table = Self {
            array: array
                .map(|text| Array::parse(&text.value).map_err(|reason| wrong(text.at, reason)))
                .transpose()?,
            kind: raw.kind.unwrap_or_default(),
            body,
            duration_ns,
            inputs,
            outputs: outputs.map_err(|(at, reason)| wrong(at, reason))?,
            after: raw.after.into_iter().map(located).collect(),
            env: raw.env.0.into_iter().map(|(name, value)| (name, value.value)).collect(),
            cwd: raw.cwd.map(|cwd| cwd.into_inner()),
            stdin: raw.stdin.map(located),
            variant_commands: variants::commands(commands, requested.variants()),
            requested,
            priority,
            rank: count(raw.rank.map(located), "rank", 0, u32::MAX)?,
            nodes,
            time_request_ns: parse(raw.time_request, parse_time_request)?,
            retries: count(raw.retries.map(located), "retries", 0, u32::MAX)?,
            crash_limit: raw.crash_limit.map_or(0, |CrashLimit(limit)| limit),
            time_limit_ns: parse(raw.time_limit, parse_duration_ns)?,
            notice: raw.signal,
            pin: raw.pin,
            ..Self::bare(&name.value, Body::Noop)
        };
        table.name = name;
        if let Body::Function(call) = &table.body {
            call.check_size(&table.name)?;
            table.check_one_node()?;
            table.give_result()?;
        }
        table.check()?;
        Ok(table)
    }

    fn check_one_node(&self) -> Result<(), Fault> {
        match self.nodes {
            0 | 1 => Ok(()),
            _ => {
                let reason = "a function runs on one node; a command may have nodes";
                Err(Fault::task(self.name.at, &self.name.value, reason))
            }
        }
    }

    /// A function has one output, its result.
    pub(crate) fn give_result(&mut self) -> Result<(), Fault> {
        if self.outputs.is_empty() {
            self.outputs.push(function::own_output(&self.name));
        }
        let is_plain = |output: &OutputFile| output.form == OutputForm::File && !output.optional;
        match &self.outputs[..] {
            [one] if is_plain(one) => Ok(()),
            _ => {
                let reason = "a function has one output, its result, which is a file";
                let at = self.outputs[0].file.at;
                let fault = Fault::task(at, &self.name.value, reason);
                Err(fault.with_hint("write outputs = { result = \"name.json\" }"))
            }
        }
    }

    /// The checks for tasks from any source; also adds `{i}` to the name of an array.
    pub(crate) fn check(&mut self) -> Result<(), Fault> {
        let told = self.name.value.clone();
        if told.is_empty() {
            return Err(Fault::task(self.name.at, &told, "the name is empty"));
        }
        if self.array.is_some() && !entry::is_template(&told) {
            self.name.value.push_str("-{i}");
            let own = format!("{told}.result");
            let is_function = matches!(self.body, Body::Function(_));
            for output in self.outputs.iter_mut().filter(|it| is_function && it.file.value == own) {
                output.file.value = format!("{}.result", self.name.value);
            }
        }
        if let Some(width) = self.array.as_ref().and_then(Array::width) {
            self.pad(width);
        }
        for input in &self.inputs {
            let Some(name) = &input.name else { continue };
            if name.is_empty() || !is_inside(name) {
                let reason = format!("as = '{name}' is not a path inside its directory");
                return Err(Fault::task(input.file.at, &told, reason));
            }
        }
        let files = self.outputs.iter().map(|output| &output.file);
        for text in files.chain(self.inputs.iter().map(|input| &input.file)).chain([&self.name]) {
            if self.array.is_none() && entry::is_template(&text.value) {
                let reason = format!("'{}' contains {{i}}, but the task has no array", text.value);
                let hint = "add array = \"1-10\", or write the number";
                return Err(Fault::task(text.at, &told, reason).with_hint(hint));
            }
        }
        for output in &self.outputs {
            if output.file.value.is_empty() || !is_inside(&output.file.value) {
                let reason =
                    format!("output '{}' is not a path inside its directory", output.file.value);
                let hint = "a task writes its outputs into its own directory";
                return Err(Fault::task(output.file.at, &told, reason).with_hint(hint));
            }
        }
        self.check_variants(&told)?;
        self.check_times(&told)?;
        self.check_notice(&told)?;
        self.check_pin(&told)?;
        self.check_placeholders(&told)
    }

    /// Pads every `{i}`, because the numbers of the array have leading zeros.
    fn pad(&mut self, width: usize) {
        let pad = |text: &mut String| *text = entry::pad(text, width);
        pad(&mut self.name.value);
        self.inputs.iter_mut().for_each(|input| {
            pad(&mut input.file.value);
            input.name.iter_mut().for_each(pad);
        });
        self.outputs.iter_mut().for_each(|output| pad(&mut output.file.value));
        self.after.iter_mut().for_each(|after| pad(&mut after.value));
        self.env.iter_mut().for_each(|(_, value)| pad(value));
        self.cwd.iter_mut().for_each(pad);
        self.stdin.iter_mut().for_each(|stdin| pad(&mut stdin.value));
        [&mut self.stdout, &mut self.stderr].into_iter().for_each(pad);
        if let Body::Command(argv) = &mut self.body {
            argv.iter_mut().for_each(pad);
        }
        let commands = self.variant_commands.iter_mut();
        commands.flat_map(|(_, argv)| argv).for_each(pad);
    }

    /// Only a command has other commands.
    fn check_variants(&self, told: &str) -> Result<(), Fault> {
        match self.variant_commands.is_empty() || matches!(self.body, Body::Command(_)) {
            true => Ok(()),
            false => {
                let reason = "a variant has a command, and the task has none";
                let hint = "write the command of the other variants: command = [...]";
                Err(Fault::task(self.name.at, told, reason).with_hint(hint))
            }
        }
    }

    /// A task that takes as long as it says must not be killed before.
    fn check_times(&self, told: &str) -> Result<(), Fault> {
        match self.time_limit_ns > 0 && self.time_request_ns > self.time_limit_ns {
            true => {
                let [asked, limit] =
                    [self.time_request_ns, self.time_limit_ns].map(format_duration_ns);
                let reason = format!("the time request {asked} exceeds the time limit {limit}");
                let hint = "give a shorter time request, or a longer time limit";
                Err(Fault::task(self.name.at, told, reason).with_hint(hint))
            }
            false => Ok(()),
        }
    }

    /// Only a command can handle a signal, and it must have time for it.
    fn check_notice(&self, told: &str) -> Result<(), Fault> {
        let Some(notice) = self.notice else { return Ok(()) };
        let refused =
            |reason: &str, hint: &str| Err(Fault::task(self.name.at, told, reason).with_hint(hint));
        if !matches!(self.body, Body::Command(_)) {
            let hint = "leave out the signal, or write a command";
            return refused("only a command gets a signal", hint);
        }
        match self.time_limit_ns > 0 && notice.before_ns() >= self.time_limit_ns {
            true => {
                let hint = "write a shorter time after the @, or a longer time limit";
                refused("the signal would come when the command starts", hint)
            }
            false => Ok(()),
        }
    }

    /// Only a command is a process of its own.
    fn check_pin(&self, told: &str) -> Result<(), Fault> {
        match self.pin.is_some() && !matches!(self.body, Body::Command(_)) {
            true => Err(Fault::task(self.name.at, told, "only a command is pinned to its cpus")
                .with_hint("leave out the pin, or write a command")),
            false => Ok(()),
        }
    }

    fn check_placeholders(&self, told: &str) -> Result<(), Fault> {
        let Body::Command(argv) = &self.body else { return Ok(()) };
        let further = self.variant_commands.iter().flat_map(|(_, argv)| argv);
        for text in argv.iter().chain(further).chain(self.env.iter().map(|(_, value)| value)) {
            let keys = |kind: &str| -> Vec<&str> {
                match kind {
                    "in" => self.inputs.iter().map(|input| input.key.as_str()).collect(),
                    _ => self.outputs.iter().map(|output| output.key.as_str()).collect(),
                }
            };
            for kind in ["in", "out"] {
                let opening = format!("{{{kind}:");
                for (at, _) in text.match_indices(opening.as_str()) {
                    let rest = &text[at + opening.len()..];
                    let Some((key, after)) = rest.split_once('}') else { continue };
                    // Double braces are a literal text.
                    if text[..at].ends_with('{') && after.starts_with('}') {
                        continue;
                    }
                    if !keys(kind).contains(&key) {
                        let noun = if kind == "in" { "input" } else { "output" };
                        let reason = format!("{opening}{key}}} names no {noun}");
                        let mut known = keys(kind);
                        known.dedup();
                        let hint = match known.as_slice() {
                            [] => format!(
                                "the task declares no {noun}s; {{{opening}{key}}}}} is the text itself"
                            ),
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

fn priority_of(number: Option<toml::Spanned<i64>>) -> Result<i32, (Option<usize>, String)> {
    let Some(number) = number.map(located) else { return Ok(0) };
    let reason = || format!("priority = {} is too far from 0", number.value);
    i32::try_from(number.value).map_err(|_| (number.at, reason()))
}

fn parse_time_request(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text)? {
        0 => Err(TIME_REQUEST_OF_0.to_owned()),
        time_ns => Ok(time_ns),
    }
}

/// Empty: one cpu. `count` checks a number.
fn cpus_of(
    cpus: Option<toml::Spanned<Cpus>>,
    count: impl Fn(Option<Located<i64>>) -> Result<u32, Fault>,
) -> Result<String, Fault> {
    match cpus.map(located) {
        None => Ok(String::new()),
        Some(Located { value: Cpus::Text(text), .. }) => Ok(text),
        Some(Located { at, value: Cpus::Number(value) }) => {
            let cpus = count(Some(Located { at, value }))?;
            Ok(if cpus > 1 { cpus.to_string() } else { String::new() })
        }
    }
}

/// Bytes, with a unit if the text has one. Empty: none.
fn memory_of(text: Option<toml::Spanned<String>>) -> Result<String, (Option<usize>, String)> {
    let Some(Located { at, value: text }) = text.map(located) else { return Ok(String::new()) };
    let bytes = parse_size_bytes(&text).map_err(|reason| (at, reason))?;
    let has_unit = text.trim_end().ends_with(|letter: char| letter.is_ascii_alphabetic());
    Ok(match (bytes, has_unit) {
        (0, _) => String::new(),
        (bytes, true) => format!("{bytes}B"),
        (bytes, false) => bytes.to_string(),
    })
}

/// The needs of a task; empty texts are none.
fn needs_of(
    (cpus, memory): (String, String),
    gpus: Option<AmountText>,
    resources: Pairs<AmountText>,
    (labels, variants, patience): (Vec<String>, Vec<String>, Option<Duration>),
) -> Needs {
    let resources = resources.0.into_iter();
    Needs {
        cpus,
        gpus: gpus.map(|gpus| gpus.0).unwrap_or_default(),
        memory,
        resources: resources.map(|(name, it)| format!("{name}={}", it.value.0)).collect(),
        labels,
        variants,
        patience,
    }
}

fn is_inside(file: &str) -> bool {
    let is_plain = |part| matches!(part, std::path::Component::Normal(_));
    std::path::Path::new(file).components().all(is_plain)
}

type Parse = fn(&str) -> Result<u64, String>;
type PlaceholderError = (Option<usize>, String);

fn body(
    raw: &RawTask,
    at: Option<usize>,
    told: &str,
    inputs: &mut Vec<InputFile>,
) -> Result<(Body, u64), Fault> {
    let wrong = |at: Option<usize>, reason: &str| Fault::task(at, told, reason);
    let parse = |text: &Option<toml::Spanned<String>>| {
        let text = text.clone().map(located);
        let parsed =
            text.map(|text| parse_duration_ns(&text.value).map_err(|r| wrong(text.at, &r)));
        parsed.transpose()
    };
    let (duration_ns, estimate_ns) = (parse(&raw.duration)?, parse(&raw.duration_estimate)?);
    if let Some(call) = function::of_raw(raw, inputs, told)? {
        if raw.command.is_some() || raw.body.is_some() || duration_ns.is_some() {
            return Err(wrong(at, "has a function beside a command, a body or a duration"));
        }
        return Ok((Body::Function(call), estimate_ns.unwrap_or(0)));
    }
    if let Some(command) = raw.command.clone().map(located) {
        if raw.body.is_some() || duration_ns.is_some() {
            return Err(wrong(command.at, "has a command beside a body or duration"));
        }
        if command.value.is_empty() {
            let hint = diagnostics::form_of("command");
            let fault = wrong(command.at, "the command is empty");
            return Err(fault.with_hint(&hint.unwrap_or_default()));
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
            let hint = "add command = [\"program\", \"argument\"], function = \"module:name\", or duration = \"1s\"";
            return Err(wrong(at, "has neither a command nor a body").with_hint(hint));
        }
    };
    Ok((body, duration_ns.unwrap_or(0)))
}

fn push_input(
    inputs: &mut Vec<InputFile>,
    key: &str,
    input: Located<RawInputs>,
    is_file: &dyn Fn(&str) -> bool,
) -> Result<(), PlaceholderError> {
    let files = match input.value {
        RawInputs::One(file) => vec![Located { value: file, at: input.at }],
        RawInputs::Many(files) => files,
    };
    for Located { value: RawInput { file, name, size, bring }, at } in files {
        let size = size.map(|size| parse_size_bytes(&size)).transpose();
        let modelled_bytes = size.map_err(|reason| (at, reason))?;
        // A directory may end with a slash.
        let file = match file.trim_end_matches('/') {
            "" => file,
            plain => plain.to_owned(),
        };
        // If a file has exactly this name, the text is no range.
        let is_range = find_range(&file).is_some() && !is_file(&file);
        let names = match is_range {
            true => expand_range(&file).map_err(|reason| (at, reason))?,
            false => vec![file],
        };
        if names.len() > 1 && name.is_some() {
            return Err((at, "'as' names one file, not a range".to_owned()));
        }
        for value in names {
            let (key, file) = (key.to_owned(), Located { value, at });
            inputs.push(InputFile {
                key,
                file,
                name: name.clone(),
                modelled_bytes,
                bring,
                is_result: false,
            });
        }
    }
    Ok(())
}

fn output((key, output): (String, Located<RawOutput>)) -> Result<OutputFile, PlaceholderError> {
    let at = output.at;
    let RawOutput { file, form, optional, keep, replicas, size } = output.value;
    let size_bytes =
        size.map_or(Ok(0), |size| parse_size_bytes(&size)).map_err(|reason| (at, reason))?;
    if replicas.is_some_and(|replicas| !(1..=COPIES_MAX).contains(&replicas)) {
        return Err((at, format!("replicas of an output are 1 to {COPIES_MAX}")));
    }
    if optional && form != OutputForm::Files {
        return Err((at, "optional goes with a glob: other outputs must be there".to_owned()));
    }
    if form == OutputForm::Files
        && let Err(error) = glob::Pattern::new(&file)
    {
        return Err((at, format!("'{file}' is not a pattern: {}", error.msg.to_lowercase())));
    }
    let replicas = replicas.unwrap_or(0);
    let file = match form {
        OutputForm::Directory => file.trim_end_matches('/').to_owned(),
        OutputForm::File | OutputForm::Files => file,
    };
    let file = Located { value: file, at };
    Ok(OutputFile { key, file, form, optional, keep, replicas, size_bytes })
}

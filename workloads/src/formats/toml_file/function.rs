//! A task that calls a function: `function = "module:name"`, with arguments as JSON values.
//!
//! An argument `{ "$result" = "NAME" }` is the result of another task, and `"{in:KEY}"` the path of
//! an input file. Both become inputs of the task. In the arguments they are replaced by marks, and
//! by the slots of the inputs once these are known.

use proto::{codec, entry, wire};
use serde_json::{Map, Value, json};

use super::array::{expand_range, find_range};
use super::raw::{RawTask, located};
use super::table::{ExternalFileUse, InputFile, OutputFile};
use super::{Fault, Located};

/// The maximum size of the arguments of a call in its task.
const PAYLOAD_BYTES_MAX: usize = 16 << 10;

/// The key of a reference to another task's result.
pub(super) const RESULT: &str = "$result";
/// The mark of inputs in arguments, by their numbers in the task's list.
const INPUTS: &str = "$inputs";
/// The worker's name for an input slot.
pub(super) const SLOT: &str = "$slot";
/// The key of the output of a function.
const OUTPUT: &str = "result";

/// A function and its arguments.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FunctionCall {
    /// `module:name`.
    pub(crate) function: String,
    /// A list, or an object with `args` and `kwargs`.
    pub(crate) arguments: Value,
    pub(crate) runtime: wire::Runtime,
}

/// The place of an input in a call.
#[derive(Clone, Debug)]
pub(super) enum Passed {
    Slot(u32),
    Path(String),
}

/// Reads the function of a task. Adds the results that it reads to `inputs`.
pub(super) fn of_raw(
    raw: &RawTask,
    inputs: &mut Vec<InputFile>,
    told: &str,
) -> Result<Option<FunctionCall>, Fault> {
    let Some(function) = raw.function.clone().map(located) else {
        let stray = [
            ("args", raw.args.as_ref().map(|it| it.span().start)),
            ("kwargs", raw.kwargs.as_ref().map(|it| it.span().start)),
            ("preload", raw.preload.as_ref().map(|it| it.span().start)),
            ("python", raw.python.as_ref().map(|it| it.span().start)),
        ];
        return match stray.into_iter().find_map(|(key, at)| Some((key, at?))) {
            Some((key, at)) => {
                let fault = Fault::task(Some(at), told, format!("has {key} without a function"));
                Err(fault.with_hint("write function = \"module:name\""))
            }
            None => Ok(None),
        };
    };
    check_name(&function, told)?;
    let at = function.at;
    if let Some(stdin) = raw.stdin.clone().map(located) {
        return Err(Fault::task(stdin.at, told, "a function has no standard input")
            .with_hint("pass the name of the file as an argument: args = [\"words.txt\"]"));
    }
    let args = raw.args.clone().map(located);
    let args_at = args.as_ref().map_or(at, |args| args.at);
    let args = args.map_or_else(Vec::new, |args| args.value);
    let args = args.into_iter().map(|value| value_of(value, inputs));
    let args = args.collect::<Result<Vec<_>, _>>().map_err(|r| Fault::task(args_at, told, r))?;
    let mut call = FunctionCall {
        function: function.value,
        arguments: Value::Array(args),
        runtime: wire::Runtime::default(),
    };
    if let Some(kwargs) = raw.kwargs.clone().map(located) {
        let fault = |reason: String| Fault::task(kwargs.at, told, reason);
        let kwargs = value_of(toml::Value::Table(kwargs.value), inputs).map_err(fault)?;
        call.arguments = json!({"args": call.arguments, "kwargs": kwargs});
    }
    if let Some(python) = raw.python.clone().map(located) {
        call.runtime.argv = vec![python.value, "{worker}".to_owned()];
    }
    call.runtime.preload = raw.preload.clone().map(located).map_or_else(Vec::new, |it| it.value);
    Ok(Some(call))
}

/// The call of a command line: each argument is a JSON value.
pub(crate) fn of_arguments(function: &str, arguments: &[String]) -> Result<FunctionCall, Fault> {
    check_name(&Located::nowhere(function.to_owned()), function)?;
    let value = |text: &String| {
        serde_json::from_str::<Value>(text).map_err(|error| {
            let reason = format!("the argument '{text}' is not JSON: {error}");
            Fault::task(None, function, reason).with_hint(
                "write a text with its quotes: '\"text\"'; numbers and lists as they are",
            )
        })
    };
    let arguments = Value::Array(arguments.iter().map(value).collect::<Result<_, _>>()?);
    let (function, runtime) = (function.to_owned(), wire::Runtime::default());
    Ok(FunctionCall { function, arguments, runtime })
}

fn check_name(function: &Located<String>, told: &str) -> Result<(), Fault> {
    let is_name = |part: &str| {
        let mut letters = part.chars();
        letters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
            && letters.all(|c| c.is_alphanumeric() || c == '_')
    };
    let names = |text: &str| text.split('.').all(is_name);
    let halves = function.value.split_once(':');
    if halves.is_some_and(|(module, name)| names(module) && names(name)) {
        return Ok(());
    }
    let reason = format!("function = '{}' is not module:name", function.value);
    let hint = "write function = \"module:name\", for a function of module.py beside the file";
    Err(Fault::task(function.at, told, reason).with_hint(hint))
}

/// The task in the key of an input that is a result.
pub(super) fn result_of(key: &str) -> Option<&str> {
    key.strip_prefix(RESULT)?.strip_prefix(':')
}

/// The output of a function, if the task declares none.
pub(super) fn own_output(name: &Located<String>) -> OutputFile {
    let file = Located { value: format!("{}.result", name.value), at: name.at };
    OutputFile {
        key: OUTPUT.to_owned(),
        file,
        keep: false,
        replicas: 0,
        form: wire::OutputForm::File,
        optional: false,
        size_bytes: 0,
    }
}

/// A value of the file as JSON, with marks for the inputs that it names.
fn value_of(value: toml::Value, inputs: &mut Vec<InputFile>) -> Result<Value, String> {
    Ok(match value {
        toml::Value::String(text) => match in_key(&text) {
            Some(key) => {
                let numbers = (0..).zip(&*inputs).filter(|(_, input)| input.key == key);
                let numbers: Vec<usize> = numbers.map(|(number, _)| number).collect();
                if numbers.is_empty() {
                    return Err(format!("{{in:{key}}} names no input"));
                }
                mark(&numbers, numbers.len() > 1)
            }
            None => Value::String(text),
        },
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => serde_json::Number::from_f64(number)
            .map(Value::Number)
            .ok_or_else(|| format!("{number} is not a JSON value"))?,
        toml::Value::Boolean(is) => is.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(values) => {
            let values = values.into_iter().map(|value| value_of(value, inputs));
            Value::Array(values.collect::<Result<_, _>>()?)
        }
        toml::Value::Table(table) => match table.get(RESULT) {
            Some(names) if table.len() == 1 => results(names, inputs)?,
            Some(_) => return Err(format!("{RESULT} stands alone: {{ \"{RESULT}\" = \"name\" }}")),
            None => {
                let mut map = Map::new();
                for (key, value) in table {
                    map.insert(key, value_of(value, inputs)?);
                }
                Value::Object(map)
            }
        },
    })
}

/// `{in:KEY}` and nothing else.
fn in_key(text: &str) -> Option<&str> {
    let key = text.strip_prefix("{in:")?.strip_suffix('}')?;
    (!key.contains(['{', '}'])).then_some(key)
}

/// One name, or a list of names and ranges.
fn results(names: &toml::Value, inputs: &mut Vec<InputFile>) -> Result<Value, String> {
    let wrong = || format!("{RESULT} is the name of a task, or a list of names");
    let (names, is_list) = match names {
        toml::Value::String(name) => (vec![name.clone()], find_range(name).is_some()),
        toml::Value::Array(names) => {
            let text = |name: &toml::Value| name.as_str().map(str::to_owned).ok_or_else(wrong);
            (names.iter().map(text).collect::<Result<_, _>>()?, true)
        }
        _ => return Err(wrong()),
    };
    let first = inputs.len();
    for name in names {
        let names = match find_range(&name) {
            Some(_) => expand_range(&name)?,
            None => vec![name],
        };
        inputs.extend(names.into_iter().map(|name| InputFile {
            key: format!("{RESULT}:{name}"),
            file: Located::nowhere(name),
            name: None,
            modelled_bytes: None,
            bring: ExternalFileUse::Not,
            is_result: true,
        }));
    }
    let numbers: Vec<usize> = (first..inputs.len()).collect();
    Ok(mark(&numbers, is_list))
}

fn mark(numbers: &[usize], is_list: bool) -> Value {
    json!({INPUTS: numbers, "list": is_list})
}

impl FunctionCall {
    /// The description of the call. `passed`: each input of the task.
    pub(super) fn spec(&self, passed: &[Passed], directory: &str) -> wire::Call {
        let mut runtime = self.runtime.clone();
        if runtime.directory.is_empty() {
            directory.clone_into(&mut runtime.directory);
        }
        wire::Call {
            runtime: Some(runtime),
            body: self.function.clone().into_bytes().into(),
            body_codec: codec::TEXT.into(),
            payload: self.payload(passed).into(),
            codec: codec::JSON.into(),
            ..wire::Call::default()
        }
    }

    /// True if the arguments differ between the elements of an array.
    pub(super) fn is_template(&self) -> bool {
        fn is_one(value: &Value) -> bool {
            match value {
                Value::String(text) => entry::is_template(text),
                Value::Array(values) => values.iter().any(is_one),
                Value::Object(map) => map.values().any(is_one),
                _ => false,
            }
        }
        is_one(&self.arguments)
    }

    /// The arguments of one element, as bytes.
    pub(super) fn element(&self, passed: &[Passed], element: u64) -> Vec<u8> {
        let filled = fill(&self.arguments, passed, Some(element));
        filled.to_string().into_bytes()
    }

    fn payload(&self, passed: &[Passed]) -> Vec<u8> {
        fill(&self.arguments, passed, None).to_string().into_bytes()
    }

    /// The error of arguments that are too large.
    pub(crate) fn check_size(&self, told: &Located<String>) -> Result<(), Fault> {
        let bytes = self.arguments.to_string().len();
        if bytes <= PAYLOAD_BYTES_MAX {
            return Ok(());
        }
        let most = PAYLOAD_BYTES_MAX;
        let reason = format!("its arguments take {bytes} bytes, at most {most} are allowed");
        let fault = Fault::task(told.at, &told.value, reason);
        Err(fault.with_hint("write them to a file, and pass its name"))
    }
}

/// The arguments with inputs in place of marks, and `{i}` replaced.
fn fill(value: &Value, passed: &[Passed], element: Option<u64>) -> Value {
    match value {
        Value::String(text) => match element {
            Some(element) if text == "{i}" => element.into(),
            Some(element) => entry::expand(text, element).into(),
            None => value.clone(),
        },
        Value::Array(values) => values.iter().map(|value| fill(value, passed, element)).collect(),
        Value::Object(map) => match map.get(INPUTS) {
            Some(Value::Array(numbers)) => inputs_of(numbers, map, passed),
            _ => {
                let fill =
                    |(key, value): (&String, &Value)| (key.clone(), fill(value, passed, element));
                Value::Object(map.iter().map(fill).collect())
            }
        },
        _ => value.clone(),
    }
}

fn inputs_of(numbers: &[Value], map: &Map<String, Value>, passed: &[Passed]) -> Value {
    let one = |number: &Value| {
        let number = number.as_u64().and_then(|number| usize::try_from(number).ok());
        match number.and_then(|number| passed.get(number)) {
            Some(Passed::Slot(slot)) => json!({SLOT: slot}),
            Some(Passed::Path(path)) => json!(path),
            None => Value::Null,
        }
    };
    let mut values: Vec<Value> = numbers.iter().map(one).collect();
    match map.get("list") {
        Some(Value::Bool(true)) => Value::Array(values),
        _ => values.pop().unwrap_or_default(),
    }
}

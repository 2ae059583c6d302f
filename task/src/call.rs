//! A call before it is submitted: its function, its arguments and its options.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use proto::LocalId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::child::Child;
use crate::cx::Cx;
use crate::pending::Pending;
use crate::{Error, Result, json};

/// The bytes of the arguments of one call. Larger values are results of calls, or files.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16 << 10;
/// The values of other calls that one call takes.
pub(crate) const REFERENCES_MAX: usize = 4096;

/// A call of a task, to be submitted by [`crate::Cluster::submit`] or [`Cx::spawn`]. The function
/// of a task returns it.
#[must_use = "a call does nothing before it is submitted"]
pub struct Call<R> {
    pub(crate) entry: &'static Entry,
    pub(crate) arguments: Arguments,
    pub(crate) options: Options,
    value: PhantomData<fn() -> R>,
}

/// What the macro registers of a function.
pub struct Entry {
    pub(crate) name: &'static str,
    pub(crate) run: Run,
}

/// All functions of the program.
#[derive(Debug)]
pub struct Registered(pub &'static Entry);

inventory::collect!(Registered);

pub(crate) type Run = fn(&mut Cx, &mut Given) -> Outcome;
/// The JSON of the value.
pub type Outcome = std::result::Result<Vec<u8>, Failure>;

/// The reason why a call has no value, for its node.
#[derive(Debug)]
pub enum Failure {
    /// The function has returned an error.
    Returned(String),
    /// The call cannot be done.
    Refused {
        /// A word for its reason.
        kind: &'static str,
        /// The reason.
        text: String,
    },
}

/// What calls of one function with equal needs have in common.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Options {
    pub(crate) name: Option<String>,
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    /// What it asks for beside cpus and memory.
    pub(crate) needs: String,
    pub(crate) retries: u32,
    pub(crate) time_limit_ns: u64,
    pub(crate) priority: i32,
    pub(crate) copies: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            cpus: 1,
            memory_bytes: 0,
            needs: String::new(),
            retries: 0,
            time_limit_ns: 0,
            priority: 0,
            copies: 0,
        }
    }
}

impl Options {
    /// Whether nodes may lack what the call needs.
    pub(crate) fn may_be_refused(&self) -> bool {
        self.cpus > 1 || self.memory_bytes > 0 || !self.needs.is_empty()
    }
}

impl Entry {
    /// The function of this name.
    #[must_use]
    pub const fn new(name: &'static str, run: fn(&mut Cx, &mut Given) -> Outcome) -> Self {
        Self { name, run }
    }
    /// The name of its last part.
    pub(crate) fn short_name(&self) -> &'static str {
        self.name.rsplit("::").next().unwrap_or(self.name)
    }
    /// The task of this name in the program.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        inventory::iter::<Registered>.into_iter().map(|it| it.0).find(|it| it.name == name)
    }
    /// A name that two functions have.
    pub(crate) fn doubled() -> Option<&'static str> {
        let all = inventory::iter::<Registered>.into_iter();
        let mut names: Vec<_> = all.map(|it| it.0.name).collect();
        names.sort_unstable();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<R> fmt::Debug for Call<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("function", &self.entry.name).finish_non_exhaustive()
    }
}

impl<R> Call<R> {
    #[doc(hidden)]
    pub fn new(entry: &'static Entry, arguments: Arguments) -> Self {
        Self { entry, arguments, options: Options::default(), value: PhantomData }
    }

    /// The slots that the call takes. Default: 1.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.options.cpus = cpus.max(1);
        self
    }

    /// Memory that the call takes of its node, in bytes; a worker that uses more is killed.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.options.memory_bytes = bytes;
        self
    }

    /// What the call asks for beside cpus and memory: `gpus=1, licence=2, label=fast`. Its worker
    /// sees these GPUs alone. A text that is no request fails the call.
    pub fn needs(mut self, needs: &str) -> Self {
        needs.clone_into(&mut self.options.needs);
        self
    }

    /// Further attempts after a failed one. Default: 0.
    pub fn retries(mut self, retries: u32) -> Self {
        self.options.retries = retries;
        self
    }

    /// The longest time of one attempt. [`Cx::poll`] shows its end; then the worker is killed.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.options.time_limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// The call with the highest priority starts first. Default: 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.options.priority = priority;
        self
    }

    /// The nodes that have the value before the call counts as done. Default: 1.
    pub fn copies(mut self, copies: u32) -> Self {
        self.options.copies = copies;
        self
    }

    /// The name in lists, instead of that of the function.
    pub fn name(mut self, name: &str) -> Self {
        self.options.name = Some(name.to_owned());
        self
    }

    /// The name in errors.
    pub(crate) fn title(&self) -> String {
        match &self.options.name {
            Some(name) => format!("{} ({name})", self.entry.name),
            None => self.entry.name.to_owned(),
        }
    }
}

/// The source of a value that is not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    /// The job of the call.
    pub(crate) job: u64,
    pub(crate) local: LocalId,
}

/// The arguments of a call: JSON texts, and places of values of other calls.
#[derive(Debug, Default)]
pub struct Arguments {
    json: Vec<u8>,
    pub(crate) sources: Vec<Source>,
    error: Option<Error>,
}

impl Arguments {
    /// The next argument.
    pub fn add<T>(&mut self, argument: impl Arg<T>, name: &str) {
        if self.error.is_some() {
            return;
        }
        self.json.push(if self.json.is_empty() { b'[' } else { b',' });
        if let Err(text) = argument.give(self) {
            let what = format!("the argument {name}");
            self.error = Some(Error::Value { what, text });
        }
    }

    /// A value that is known.
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), String> {
        self.json.extend_from_slice(b"{\"v\":");
        json::write(&mut self.json, value)?;
        self.json.push(b'}');
        Ok(())
    }

    /// The value of a call.
    fn slot(&mut self, source: Source) {
        let slot = self.sources.len();
        self.json.extend_from_slice(format!("{{\"s\":{slot}}}").as_bytes());
        self.sources.push(source);
    }

    /// The values of calls, as a list.
    fn list(&mut self, sources: impl Iterator<Item = Source>) {
        let first = self.sources.len();
        self.sources.extend(sources);
        let count = self.sources.len() - first;
        self.json.extend_from_slice(format!("{{\"l\":[{first},{count}]}}").as_bytes());
    }

    /// The arguments as a whole. `job`: of the program that waits for the whole computation.
    pub(crate) fn payload(mut self, root: u64, title: &str) -> Result<(Vec<u8>, Vec<Source>)> {
        if let Some(error) = self.error {
            return Err(match error {
                Error::Value { what, text } => {
                    Error::Value { what: format!("{what} of {title}"), text }
                }
                error => error,
            });
        }
        if self.sources.len() > REFERENCES_MAX {
            let count = self.sources.len();
            return Err(Error::TooLarge(format!(
                "the call of {title} takes the values of {count} calls, at most {REFERENCES_MAX}; \
                 combine them in several calls"
            )));
        }
        if self.json.is_empty() {
            self.json.push(b'[');
        }
        let mut payload = format!("{{\"root\":{root},\"args\":").into_bytes();
        payload.append(&mut self.json);
        payload.extend_from_slice(b"]}");
        match payload.len() {
            0..=PAYLOAD_BYTES_MAX => Ok((payload, self.sources)),
            bytes => Err(Error::TooLarge(format!(
                "the arguments of {title} have {bytes} bytes, at most {PAYLOAD_BYTES_MAX}; \
                 let a call make the large value, or write it to a file that calls read"
            ))),
        }
    }
}

/// What can be given for a parameter of type `T`: a value, a call that will have it, or for a list
/// a list of such calls.
pub trait Arg<T> {
    #[doc(hidden)]
    fn give(self, to: &mut Arguments) -> Result<(), String>;
}

impl<T: Serialize> Arg<T> for T {
    fn give(self, to: &mut Arguments) -> Result<(), String> {
        to.value(&self)
    }
}

impl Arg<String> for &str {
    fn give(self, to: &mut Arguments) -> Result<(), String> {
        to.value(self)
    }
}

macro_rules! source {
    ($kind:ident) => {
        impl<T> Arg<T> for $kind<T> {
            fn give(self, to: &mut Arguments) -> Result<(), String> {
                Arg::<T>::give(&self, to)
            }
        }
        impl<T> Arg<T> for &$kind<T> {
            fn give(self, to: &mut Arguments) -> Result<(), String> {
                to.slot(self.source());
                Ok(())
            }
        }
        impl<T> Arg<Vec<T>> for Vec<$kind<T>> {
            fn give(self, to: &mut Arguments) -> Result<(), String> {
                Arg::<Vec<T>>::give(&self[..], to)
            }
        }
        impl<T> Arg<Vec<T>> for &Vec<$kind<T>> {
            fn give(self, to: &mut Arguments) -> Result<(), String> {
                Arg::<Vec<T>>::give(&self[..], to)
            }
        }
        impl<T> Arg<Vec<T>> for &[$kind<T>] {
            fn give(self, to: &mut Arguments) -> Result<(), String> {
                to.list(self.iter().map($kind::source));
                Ok(())
            }
        }
    };
}

source!(Pending);
source!(Child);

/// The form of the arguments in a CALL.
#[derive(serde::Deserialize)]
pub(crate) struct Payload<'a> {
    pub(crate) root: u64,
    #[serde(borrow)]
    args: Vec<Argument<'a>>,
}

#[derive(serde::Deserialize)]
enum Argument<'a> {
    #[serde(rename = "v", borrow)]
    Value(&'a RawValue),
    #[serde(rename = "s")]
    Slot(usize),
    #[serde(rename = "l")]
    List(usize, usize),
}

/// The arguments that a worker has received. The values of other calls are read when they are
/// taken.
pub struct Given {
    args: Vec<Result<Vec<u8>, (usize, usize, bool)>>,
    inputs: Vec<Input>,
}

/// The value of another call.
#[derive(Debug)]
pub(crate) enum Input {
    Bytes(Vec<u8>),
    File(std::path::PathBuf),
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").field("args", &self.args.len()).finish_non_exhaustive()
    }
}

impl Given {
    /// The arguments, and the job of the program that waits for the whole computation.
    pub(crate) fn new(payload: &[u8], inputs: Vec<Input>) -> Result<(Self, u64), String> {
        let payload: Payload<'_> =
            serde_json::from_slice(payload).map_err(|error| error.to_string())?;
        let owned = |argument| match argument {
            Argument::Value(raw) => Ok(RawValue::get(raw).as_bytes().to_vec()),
            Argument::Slot(slot) => Err((slot, 1, false)),
            Argument::List(first, count) => Err((first, count, true)),
        };
        let args = payload.args.into_iter().map(owned).collect();
        Ok((Self { args, inputs }, payload.root))
    }

    /// An argument, as a value of its type.
    pub fn take<T: DeserializeOwned>(&mut self, at: usize, name: &str) -> Result<T, Failure> {
        let text = match self.args.get(at) {
            None => Err("it is missing".to_owned()),
            Some(Ok(text)) => json::decode(text),
            Some(&Err((first, count, is_list))) => {
                self.text(first, count, is_list).and_then(|text| json::decode(&text))
            }
        };
        text.map_err(|text| Failure::Refused {
            kind: "WrongArgument",
            text: format!("the argument {name}: {text}"),
        })
    }

    fn text(&self, first: usize, count: usize, is_list: bool) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        for slot in first..first.saturating_add(count) {
            let input = self.inputs.get(slot).ok_or_else(|| format!("no value {slot} came"))?;
            if is_list {
                text.push(if text.is_empty() { b'[' } else { b',' });
            }
            match input {
                Input::Bytes(bytes) => text.extend_from_slice(bytes),
                Input::File(path) => {
                    let bytes = std::fs::read(path);
                    text.extend(bytes.map_err(|error| format!("{}: {error}", path.display()))?);
                }
            }
        }
        if is_list {
            text.extend_from_slice(if text.is_empty() { b"[]" } else { b"]" });
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(local: u64) -> Source {
        Source { job: 7, local: LocalId(local) }
    }

    #[test]
    fn arguments_and_values_of_calls_come_back_in_their_places() {
        let mut arguments = Arguments::default();
        arguments.add::<String>("a", "name");
        arguments.json.push(b',');
        arguments.slot(source(5));
        arguments.json.push(b',');
        arguments.list([source(6), source(7)].into_iter());
        arguments.json.push(b',');
        arguments.list(std::iter::empty());
        let (payload, sources) = arguments.payload(9, "f").unwrap();
        assert_eq!(sources, [source(5), source(6), source(7)]);
        let inputs = [&b"2.5"[..], b"[1]", b"[2,3]"].map(|it| Input::Bytes(it.to_vec()));
        let (mut given, root) = Given::new(&payload, inputs.into()).unwrap();
        assert_eq!(root, 9);
        assert_eq!(given.take::<String>(0, "name").unwrap(), "a");
        assert_eq!(given.take::<f64>(1, "x").unwrap(), 2.5);
        assert_eq!(given.take::<Vec<Vec<u8>>>(2, "all").unwrap(), [vec![1], vec![2, 3]]);
        assert!(given.take::<Vec<u8>>(3, "none").unwrap().is_empty());
        let Failure::Refused { text, .. } = given.take::<u64>(0, "name").unwrap_err() else {
            panic!("it is refused");
        };
        assert!(text.starts_with("the argument name: invalid type: string \"a\""), "{text}");
    }

    #[test]
    fn arguments_over_a_limit_are_refused_by_name() {
        let mut arguments = Arguments::default();
        arguments.add::<Vec<u8>>(vec![1_u8; PAYLOAD_BYTES_MAX], "bytes");
        let error = arguments.payload(1, "m::f").unwrap_err().to_string();
        assert!(error.starts_with("the arguments of m::f have 32"), "{error}");
        let mut arguments = Arguments::default();
        arguments.add::<f64>(f64::NAN, "x");
        let error = arguments.payload(1, "m::f").unwrap_err().to_string();
        assert_eq!(error, "the argument x of m::f: JSON has no number NaN");
    }
}

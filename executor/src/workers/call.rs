//! One call: its inputs before it is sent, and its outcome afterwards.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use proto::work::{Launch, LaunchInput, Outcome};
use proto::{ObjectId, Span, codec, limits, wire};
use xxhash_rust::xxh3::xxh3_64;

use super::binding::Binding;
use super::nested::Nested;
use super::wire::{
    ARGUMENTS, CallHead, FunctionId, INLINE_BYTES_MAX, Outgoing, ResultRecord, Status, Value,
    value_bytes,
};
use crate::commands::captured::{OutputLoss, Printed, too_much};
use crate::commands::collect;
use crate::commands::stage::text_of;
use crate::executor::Shared;
use crate::limits::INLINE_RESULT_BYTES_MAX;
use crate::objects::ObjectKind;
use crate::streams::Piece;
use crate::table::Key;

/// Inputs beyond this number of bytes in one call go as files.
const INLINE_TOTAL_BYTES_MAX: usize = 512 << 10;

/// An input of a call.
#[derive(Clone, Debug)]
pub(super) struct CallInput {
    slot: u16,
    codec: u8,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Bytes(Arc<[u8]>),
    Path(String),
}

/// A call that was launched and has not ended.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) key: Key,
    pub(super) launch: Box<Launch>,
    pub(super) runtime: usize,
    /// The resources that its worker must have.
    pub(super) binding: Option<Arc<Binding>>,
    pub(super) function: FunctionId,
    pub(super) inputs: Vec<CallInput>,
    pub(super) printed: Printed,
    /// How often its worker ended before the call began.
    pub(super) restarts: u8,
    pub(super) sent: Option<Instant>,
    pub(super) nested: Nested,
}

/// The description of a call in its task.
pub(super) fn spec_of(launch: &Launch) -> &wire::Call {
    match &launch.spec.body {
        Some(wire::spec::Body::Call(call)) => call,
        _ => unreachable!("only calls come here"),
    }
}

/// True if all inputs are in memory, so that [`inputs`] reads no file.
pub(super) fn needs_no_file(shared: &Shared, launch: &Launch) -> bool {
    launch
        .inputs
        .iter()
        .all(|input| is_value(launch, input) && shared.objects.held_bytes(input.object).is_some())
}

fn is_value(launch: &Launch, input: &LaunchInput) -> bool {
    launch.spec.inputs.get(input.slot as usize).is_some_and(|input| input.value)
}

/// The inputs of a call, by slot.
pub(super) fn inputs(shared: &Shared, launch: &Launch) -> Result<Vec<CallInput>, String> {
    let mut left_bytes = INLINE_TOTAL_BYTES_MAX;
    let mut inputs = Vec::with_capacity(launch.inputs.len());
    for input in &launch.inputs {
        let slot = u16::try_from(input.slot).ok().filter(|slot| *slot != ARGUMENTS);
        let slot = slot.ok_or_else(|| format!("input {} exceeds the last slot", input.slot))?;
        let failed = |error: crate::ObjectError| format!("input {slot}: {error}");
        let (store, object) = (&shared.objects, input.object);
        let file = || store.sound(object, || store.file(object));
        let opened = || store.sound(object, || store.open_object(object));
        if !is_value(launch, input) {
            let path = text_of(&file().map_err(failed)?);
            inputs.push(CallInput { slot, codec: codec::RAW, source: Source::Path(path) });
            continue;
        }
        let held = shared.objects.held_bytes(input.object);
        let held = held.filter(|bytes| bytes.len() <= INLINE_BYTES_MAX.min(left_bytes));
        let (codec, source) = match held {
            Some(bytes) => {
                left_bytes -= bytes.len();
                (codec_of(&bytes), Source::Bytes(bytes))
            }
            None => {
                let mut first = [0; 4];
                let (mut reader, _) = opened().map_err(failed)?;
                let count =
                    reader.read(&mut first).map_err(|error| format!("input {slot}: {error}"))?;
                let path = text_of(&file().map_err(failed)?);
                (codec_of(&first[..count]), Source::Path(path))
            }
        };
        inputs.push(CallInput { slot, codec, source });
    }
    Ok(inputs)
}

/// The codec of a stored result.
fn codec_of(bytes: &[u8]) -> u8 {
    match bytes {
        [b'S', b'P', b'B', b'1', ..] => codec::PICKLE_WITH_BUFFERS,
        [0x80, ..] => codec::PICKLE,
        [0xff, ..] => codec::ARROW,
        _ => codec::JSON,
    }
}

impl Call {
    /// Appends the call.
    pub(super) fn encode(&self, out: &mut Outgoing) {
        let call = spec_of(&self.launch);
        let own = &self.launch.payload;
        let payload = if own.is_empty() { &call.payload } else { own };
        let codec = if payload.is_empty() { codec::RAW } else { call.codec as u8 };
        let mut values = Vec::with_capacity(1 + self.inputs.len());
        values.push(Value { is_path: false, codec, slot: ARGUMENTS, bytes: payload });
        values.extend(self.inputs.iter().map(|input| match &input.source {
            Source::Bytes(bytes) => {
                Value { is_path: false, codec: input.codec, slot: input.slot, bytes }
            }
            Source::Path(path) => {
                let bytes = path.as_bytes();
                Value { is_path: true, codec: input.codec, slot: input.slot, bytes }
            }
        }));
        let Launch { task, attempt, spec, .. } = &*self.launch;
        let head = CallHead {
            number: self.number,
            function: self.function,
            attempt: attempt.0,
            job: task.job.0,
            local: task.local.0,
            limit_ns: spec.time_limit_ns,
            cpu_thousandths: spec.cpus.max(1).saturating_mul(1000),
            flags: 0,
        };
        debug_assert!(values.iter().map(value_bytes).sum::<usize>() < super::wire::FRAME_BYTES_MAX);
        out.call(&head, &values);
    }

    /// Keeps printed bytes. Returns whether the call must end because of them.
    pub(super) fn print(&mut self, shared: &Shared, stderr: bool, data: &[u8]) -> bool {
        if data.is_empty() {
            return false;
        }
        if stderr {
            self.printed.keep_tail(data);
        }
        let (task, attempt) = self.key;
        match shared.keep_pieces(&[Piece { task, attempt, stderr, carried: false, data }]) {
            Ok(()) => {
                self.printed.captured.add(stderr, data.len() as u64);
                self.printed.captured.total_bytes() > shared.print_limit_bytes()
            }
            Err(loss) => self.printed.lose(loss),
        }
    }

    /// The outcome of a call that has failed for this reason; empty: it has succeeded.
    pub(super) fn outcome(self, shared: &Shared, error: String, exit_code: i32) -> Outcome {
        let Printed { captured, stderr_tail, unkept } = self.printed;
        let limit_bytes = shared.print_limit_bytes();
        let error = match unkept {
            Some(OutputLoss::Full(text)) => text,
            Some(OutputLoss::Failed(reason)) if error.is_empty() => {
                format!("what it printed could not be kept on {}: {reason}", shared.config.node)
            }
            _ if captured.total_bytes() > limit_bytes => {
                too_much(captured.total_bytes(), limit_bytes)
            }
            _ => error,
        };
        let stderr_tail = if error.is_empty() { Vec::new() } else { stderr_tail };
        Outcome { error, exit_code, stderr_tail, captured, ..Outcome::default() }
    }

    /// The outcome of a call with this result.
    pub(super) fn ended(
        mut self: Box<Self>,
        shared: &Shared,
        result: &ResultRecord<'_>,
        results: &Path,
    ) -> Outcome {
        if result.status != Status::Ok {
            let (error, frames) = error_of(result);
            self.print(shared, true, frames.as_bytes());
            let inline = small(result, 1);
            return Outcome { inline, ..self.outcome(shared, error, 1) };
        }
        let inline = small(result, 0);
        let made = keep_results(shared, &self.launch, result, results);
        let (task, attempt) = self.key;
        match made {
            Ok(made) => {
                let outcome = self.outcome(shared, String::new(), 0);
                let (output_sizes, output_sums) = made.into_iter().unzip();
                Outcome { output_sizes, output_sums, inline, ..outcome }
            }
            Err(error) => {
                shared.objects.discard(task, attempt);
                self.outcome(shared, error, 1)
            }
        }
    }

    pub(super) fn over_time(&self) -> String {
        let limit_s = Span(self.launch.spec.time_limit_ns).as_secs_f64();
        format!("exceeded its time limit of {limit_s} s and was interrupted")
    }
}

/// The bytes of a value of a result, if it is there and small.
fn small(result: &ResultRecord<'_>, slot: u16) -> Vec<u8> {
    let is_small = |value: &&Value<'_>| {
        value.slot == slot && !value.is_path && value.bytes.len() <= INLINE_RESULT_BYTES_MAX
    };
    result.values.iter().find(is_small).map(|value| value.bytes.to_vec()).unwrap_or_default()
}

/// The error of a failed call in one line, and its traceback.
fn error_of(result: &ResultRecord<'_>) -> (String, String) {
    let value = result.values.first().map_or(&[][..], |value| value.bytes);
    let error: serde_json::Value = serde_json::from_slice(value).unwrap_or_default();
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    let (kind, mut told, mut frames) = (text("type"), text("text"), text("frames"));
    if result.status == Status::Died {
        let number = |key: &str| error[key].as_i64().and_then(|it| i32::try_from(it).ok());
        told = match (number("signal"), number("exit")) {
            (Some(signal), _) => {
                format!("its process was killed by signal {signal}{}", collect::signal_name(signal))
            }
            (_, Some(code)) => format!("its process exited with code {code}"),
            _ => told,
        };
    }
    if !frames.is_empty() && !frames.ends_with('\n') {
        frames.push('\n');
    }
    let line = match (kind.is_empty(), told.is_empty()) {
        (true, true) => "the function failed without a reason".to_owned(),
        (false, true) => kind,
        (true, false) => told,
        (false, false) => format!("{kind}: {told}"),
    };
    (one_line(&line), frames)
}

/// The first line of a text, cut to the limit of errors.
pub(super) fn one_line(text: &str) -> String {
    let mut line = text.trim().lines().next().unwrap_or_default().to_owned();
    line.truncate(line.floor_char_boundary(limits::ERROR_BYTES_MAX / 2));
    line
}

/// Stores the declared outputs. Returns the size and the checksum of each.
fn keep_results(
    shared: &Shared,
    launch: &Launch,
    result: &ResultRecord<'_>,
    results: &Path,
) -> Result<Vec<(u64, u64)>, String> {
    let mut made = Vec::with_capacity(launch.spec.outputs.len());
    for (index, declared) in (0u32..).zip(&launch.spec.outputs) {
        let value = result.values.iter().find(|value| u32::from(value.slot) == index);
        let value = value.ok_or_else(|| format!("the function returned no output {index}"))?;
        let (task, attempt) = (launch.task, launch.attempt);
        let object = ObjectId { task, attempt, output: index };
        let kind = ObjectKind::of_output(declared);
        if value.is_path {
            made.push(adopt(shared, value, object, kind, results)?);
            continue;
        }
        let sum = xxh3_64(value.bytes);
        let kept = shared.objects.keep_made(object, kind, value.bytes, sum);
        kept.map_err(|error| error.to_string())?;
        made.push((value.bytes.len() as u64, sum));
    }
    for value in result.values.iter().filter(|value| value.is_path) {
        // A result that is no declared output, if it is still there.
        if let Some(path) = result_path(value, results) {
            let _ = fs::remove_file(path);
        }
    }
    Ok(made)
}

/// The path of a large result, if it is in the directory for results.
fn result_path<'a>(value: &Value<'a>, results: &Path) -> Option<&'a Path> {
    let path = Path::new(std::str::from_utf8(value.bytes).ok()?);
    (path.parent() == Some(results) && path.file_name().is_some()).then_some(path)
}

fn adopt(
    shared: &Shared,
    value: &Value<'_>,
    object: ObjectId,
    kind: ObjectKind,
    results: &Path,
) -> Result<(u64, u64), String> {
    let path = result_path(value, results)
        .ok_or_else(|| "the worker put a result outside of the directory for results".to_owned())?;
    let metadata = fs::symlink_metadata(path);
    if !metadata.is_ok_and(|metadata| metadata.is_file()) {
        return Err(format!("the result file {} is not there", path.display()));
    }
    let size_bytes = shared.objects.adopt(path, object, kind).map_err(|error| error.to_string())?;
    Ok((size_bytes, collect::checksum(shared, object)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(status: Status, json: &str) -> (String, String) {
        let value = Value { is_path: false, codec: codec::JSON, slot: 0, bytes: json.as_bytes() };
        error_of(&ResultRecord { call: 1, status, values: vec![value] })
    }

    #[test]
    fn errors_are_one_line_with_the_type_first() {
        let json = r#"{"type": "ValueError", "text": "bad\nvery bad", "frames": "File x"}"#;
        let (line, frames) = failed(Status::Raised, json);
        assert_eq!((line.as_str(), frames.as_str()), ("ValueError: bad", "File x\n"));
        assert_eq!(failed(Status::Refused, r#"{"text": "no module"}"#).0, "no module");
        assert_eq!(
            failed(Status::Died, r#"{"signal": 11}"#).0,
            "its process was killed by signal 11 (SIGSEGV)"
        );
        assert_eq!(failed(Status::Raised, "garbage").0, "the function failed without a reason");
    }

    #[test]
    fn stored_results_are_recognised_by_their_first_bytes() {
        let found = [&b"SPB1..."[..], b"\x80\x05", b"\xff\xff\xff\xff", b"{}", b"", b"12"];
        assert_eq!(found.map(codec_of), [2, 1, 4, 3, 3, 3]);
    }

    #[test]
    fn only_files_in_the_directory_for_results_are_adopted() {
        let results = Path::new("/state/results");
        let path = |text: &'static str| {
            let value = Value { is_path: true, codec: 1, slot: 0, bytes: text.as_bytes() };
            result_path(&value, results).is_some()
        };
        assert!(path("/state/results/12.3.0"));
        assert!(!path("/state/results") && !path("/state/results/../x") && !path("/etc/passwd"));
        assert!(!path("/state/results/.."));
    }
}

//! One call: its function, its panic, its result.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::Shared;
use super::line::{Ended, Function, now_ns};
use super::wire::{self, CallRecord, Status, Value};
use crate::call::{Entry, Failure, Given, Input};
use crate::cx::Cx;
use crate::program::Body;

/// Texts of an error that a node gets.
const TEXT_BYTES_MAX: usize = 8 << 10;
const FRAMES_BYTES_MAX: usize = 24 << 10;

/// A panic of the thread that runs calls.
struct Panic {
    kind: String,
    text: String,
    frames: String,
}

thread_local! {
    /// The last panic of this thread; `None` also in threads that run no calls.
    static LAST_PANIC: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// How a call has ended.
struct End {
    status: Status,
    /// The JSON of the value, or of the error.
    json: Vec<u8>,
}

/// Panics of calls become their errors. Those of other threads are printed, as usual.
pub(super) fn keep_panics() {
    let calls = std::thread::current().id();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| match std::thread::current().id() == calls {
        true => LAST_PANIC.set(Some(panic_of(info))),
        false => usual(info),
    }));
}

fn panic_of(info: &PanicHookInfo<'_>) -> Panic {
    // Errors of tasks are one line, so the place comes before the message.
    let place = info.location().map(|place| format!(" at {place}")).unwrap_or_default();
    let kind = format!("panic{place}");
    let text = text_of(info.payload());
    let trace = Backtrace::capture();
    let frames = match trace.status() {
        BacktraceStatus::Captured => format!("{kind}: {text}\n{trace}"),
        _ => format!("{kind}: {text}\n"),
    };
    Panic { kind, text, frames }
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a value that is no text".to_owned(),
    }
}

/// The function that these bytes name, and the bytes.
pub(super) fn function(value: &Value) -> Function {
    let damaged =
        |error: String| ("WrongFunction", format!("no function of this library: {error}"));
    let read;
    let bytes = match value.is_path {
        true => {
            let path = PathBuf::from(std::ffi::OsString::from_vec(value.bytes.clone()));
            read = std::fs::read(path).map_err(|error| damaged(error.to_string()))?;
            &read
        }
        false => &value.bytes,
    };
    let body: Body = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    let entry = body.function()?;
    Ok((entry, Arc::new(body)))
}

/// Runs a call, and appends its result. It may be inside of the wait of another call.
pub(super) fn call(line: &Shared, record: CallRecord) -> Result<(), Ended> {
    let (number, start_ns) = (record.number, now_ns());
    {
        let mut line = line.borrow_mut();
        // If this call is long, the results before it must not wait for it.
        line.flush().map_err(|_| Ended::Stopped)?;
        line.name_call(number, start_ns);
    }
    let is_unwanted = line.borrow().is_unwanted(number);
    let mut end = match is_unwanted {
        true => cancelled(),
        false => outcome(line, record)?,
    };
    let mut line = line.borrow_mut();
    let is_path = end.json.len() > wire::INLINE_BYTES_MAX;
    if is_path {
        let path = line.objects.join(format!("{}.{number}.0", std::process::id()));
        end = match write_new(&path, &end.json) {
            Ok(()) => End { json: path.as_os_str().as_bytes().to_vec(), ..end },
            Err(error) => {
                let text = format!("the value of {} bytes: {error}", end.json.len());
                End { status: Status::Raised, json: error_json("", &text, "") }
            }
        };
    }
    let is_path = is_path && end.status == Status::Ok;
    line.printed(number);
    let end_ns = now_ns();
    let memory = line.memory_bytes(end_ns);
    let value = (is_path, &end.json[..]);
    line.append(&wire::result(number, (start_ns, end_ns), memory, end.status, value));
    line.forget_call(number);
    line.count_call();
    // The call below, if there is one, names itself again.
    line.name_call(0, start_ns);
    Ok(())
}

fn write_new(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(bytes);
    if written.is_err() {
        // The error of the write is the one to show.
        let _ = std::fs::remove_file(path);
    }
    written
}

fn cancelled() -> End {
    End { status: Status::Cancelled, json: error_json("Cancelled", "", "") }
}

fn outcome(line: &Shared, record: CallRecord) -> Result<End, Ended> {
    let refused = |kind: &str, text: &str| {
        Ok(End { status: Status::Refused, json: error_json(kind, text, "") })
    };
    let function = line.borrow().functions.get(&record.function).cloned();
    let (entry, body) = match function {
        Some(Ok(found)) => found,
        Some(Err((kind, text))) => return refused(kind, &text),
        None => return refused("UnknownFunction", "the function was not sent to this worker"),
    };
    let CallRecord { number, attempt, job, local, values, .. } = record;
    let mut values = values.into_iter();
    let payload = values.next().map(|value| value.bytes).unwrap_or_default();
    let input = |value: Value| match value.is_path {
        true => Input::File(PathBuf::from(std::ffi::OsString::from_vec(value.bytes))),
        false => Input::Bytes(value.bytes),
    };
    let mut inputs: Vec<Value> = values.collect();
    inputs.sort_by_key(|input| input.slot);
    let inputs = inputs.into_iter().map(input).collect();
    let (mut given, root) = match Given::new(&payload, inputs) {
        Ok(given) => given,
        Err(text) => return refused("WrongArgument", &format!("the arguments: {text}")),
    };
    let mut cx = Cx::new(line.clone(), number, (job, local, attempt), root, body);
    let end = guarded(&mut cx, entry, &mut given);
    cx.ended().map_or(Ok(end), Err)
}

/// Runs a function. A panic is its failure.
fn guarded(cx: &mut Cx, entry: &Entry, given: &mut Given) -> End {
    LAST_PANIC.take();
    let result = catch_unwind(AssertUnwindSafe(|| (entry.run)(cx, given)));
    let raised = |status, kind: &str, text: &str, frames: &str| End {
        status,
        json: error_json(kind, text, frames),
    };
    match result {
        Ok(Ok(json)) => End { status: Status::Ok, json },
        Ok(Err(_)) if cx.is_cancelled() => cancelled(),
        Ok(Err(Failure::Returned(text))) => raised(Status::Raised, "", &text, ""),
        Ok(Err(Failure::Refused { kind, text })) => raised(Status::Refused, kind, &text, ""),
        Err(payload) => {
            let Panic { kind, text, frames } = LAST_PANIC.take().unwrap_or_else(|| {
                // It was raised without the hook, by `resume_unwind`.
                let (kind, frames) = ("panic".to_owned(), String::new());
                Panic { kind, text: text_of(&*payload), frames }
            });
            raised(Status::Raised, &kind, &text, &frames)
        }
    }
}

/// Runs a call inside of another one: its value, or its error in one line.
pub(crate) fn inside(cx: &mut Cx, entry: &Entry, given: &mut Given) -> Result<Vec<u8>, String> {
    let End { status, json } = guarded(cx, entry, given);
    if status == Status::Ok {
        return Ok(json);
    }
    let error: serde_json::Value = serde_json::from_slice(&json).unwrap_or_default();
    let field = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let line = field("text").lines().next().unwrap_or_default().to_owned();
    Err(match field("type").as_str() {
        "" => line,
        kind => format!("{kind}: {line}"),
    })
}

fn error_json(kind: &str, text: &str, frames: &str) -> Vec<u8> {
    let cut = |text_bytes: usize, frames_bytes: usize| {
        let text = &text[..text.floor_char_boundary(text_bytes)];
        let frames = &frames[..frames.floor_char_boundary(frames_bytes)];
        json!({ "type": kind, "text": text, "frames": frames }).to_string().into_bytes()
    };
    let json = cut(TEXT_BYTES_MAX, FRAMES_BYTES_MAX);
    match json.len() <= wire::INLINE_BYTES_MAX {
        true => json,
        // A control character takes six bytes.
        false => cut(TEXT_BYTES_MAX / 2, TEXT_BYTES_MAX / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_stays_below_the_limit_of_inline_values() {
        for text in ["\u{1}", "ä\"", "a"].map(|text| text.repeat(1 << 16)) {
            let json = error_json("panic", &text, &text);
            assert!(json.len() <= wire::INLINE_BYTES_MAX && json.len() > 2 * TEXT_BYTES_MAX);
        }
    }
}

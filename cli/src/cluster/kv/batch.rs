//! `starling kv batch`: operations from standard input, many in one request.

use std::io::{BufRead, BufReader, Read as _};

use client::{ClientError, Kv, KvKind, KvOp, KvResult, KvStatus};
use proto::limits::KV_OPS_MAX;
use serde::Deserialize;
use tokio::sync::mpsc;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard, plain};

use crate::cluster::kv::KeyRow;
use proto::limits::KEY_BYTES_MAX;
use proto::limits::VALUE_BYTES_MAX;

/// The maximum size of a line of operations as JSON, where any byte of a key or value may be
/// escaped. `KV_LINES_AHEAD_BYTES` bounds such lines read ahead of their answers.
const KV_LINE_BYTES_MAX: usize = 6 * (2 * VALUE_BYTES_MAX + KEY_BYTES_MAX) + 1024;
const KV_LINES_AHEAD_BYTES: usize = 1 << 20;
/// The number of lookups sent ahead of their answers, which may be long.
const KV_LOOKUPS_AHEAD_MAX: usize = 64;

/// A line of the input. Values that are no text are in hexadecimal.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Line {
    op: Op,
    key: String,
    value: Option<String>,
    value_hex: Option<String>,
    /// For a swap: the expected value.
    expect: Option<String>,
    expect_hex: Option<String>,
    #[serde(default)]
    absent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
enum Op {
    Insert,
    Lookup,
    Remove,
    Append,
    Cas,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Lookup => "lookup",
            Self::Remove => "remove",
            Self::Append => "append",
            Self::Cas => "cas",
        }
    }
}

/// Lines that were available together.
#[derive(Default)]
struct Lines {
    /// The number of the first.
    first: usize,
    keys: Vec<String>,
    ops: Vec<KvOp>,
    bytes: usize,
    /// All are lookups; else none is.
    looks_up: bool,
}

/// The result of the reading thread: lines, and at last the reason for its end.
type ParsedLines = Result<Lines, Failure>;

/// Operations before an invalid line are done and answered.
pub(crate) async fn run(context: &Context, kv: &Kv) -> Done {
    // Reads may wait for long, and the connections must be served meanwhile.
    let (sender, mut found) = mpsc::channel(1);
    std::thread::spawn(move || read(&sender));
    let numbered = kv.clone().numbered()?;
    while let Some(lines) = found.recv().await {
        let lines = lines?;
        // Operations that must not happen twice get numbers.
        let once = |op: &KvOp| matches!(op.kind, KvKind::Append | KvKind::Cas);
        let kv = if lines.ops.iter().any(once) { &numbered } else { kv };
        answer(context, kv, lines).await?;
    }
    Ok(Exit::Ok)
}

async fn answer(context: &Context, kv: &Kv, lines: Lines) -> Result<(), Failure> {
    let kinds: Vec<KvKind> = lines.ops.iter().map(|op| op.kind).collect();
    let last = lines.first + kinds.len() - 1;
    let lookups = (lines.looks_up && kinds.len() > 1).then(|| lines.ops.clone());
    let results = match (kv.each(lines.ops).await, lookups) {
        // Several answers together may exceed the limit of one; each alone does not.
        (Err(ClientError::Refused(_)), Some(lookups)) => {
            for ((at, key), op) in (lines.first..).zip(lines.keys).zip(lookups) {
                let one = Lines { first: at, keys: vec![key], ops: vec![op], ..Lines::default() };
                Box::pin(answer(context, kv, one)).await?;
            }
            return Ok(());
        }
        (results, _) => results,
    };
    let results = results.map_err(|error| {
        let mut failure = Failure::from(error);
        failure.message = match lines.first == last {
            true => format!("line {last}: {}", failure.message),
            // Operations of other partitions may be done.
            false => format!("lines {} to {last}: {}", lines.first, failure.message),
        };
        failure
    })?;
    for ((key, kind), result) in lines.keys.iter().zip(kinds).zip(results) {
        heard(context.output.json(&shown(key, kind, result)))?;
    }
    Ok(())
}

fn shown(key: &str, kind: KvKind, result: KvResult) -> KeyRow {
    let (status, version) = (result.status, result.version);
    let value = |there: bool| there.then_some(client::Value { bytes: result.value, version });
    let is_there = status == KvStatus::Ok;
    match kind {
        KvKind::Insert | KvKind::Append => KeyRow { version: Some(version), ..KeyRow::new(key) },
        KvKind::Lookup => {
            KeyRow { found: Some(is_there), ..KeyRow::new(key).with(value(is_there)) }
        }
        KvKind::Remove => KeyRow { found: Some(is_there), ..KeyRow::new(key) },
        KvKind::Cas if is_there => {
            KeyRow { swapped: Some(true), version: Some(version), ..KeyRow::new(key) }
        }
        KvKind::Cas => KeyRow { swapped: Some(false), ..KeyRow::new(key).with(value(version > 0)) },
    }
}

/// Passes the lines on before a read would wait. A swap is passed on alone, because a conflict
/// would undo its whole batch. Lookups are separate from other operations, and few at a time,
/// because the length of their answers is unknown.
fn read(sender: &mpsc::Sender<ParsedLines>) {
    let mut input = BufReader::with_capacity(KV_LINES_AHEAD_BYTES, std::io::stdin().lock());
    let mut lines = Lines { first: 1, ..Lines::default() };
    loop {
        let (key, op) = match next(&mut input, lines.first + lines.ops.len()) {
            Ok(Some(found)) => found,
            Ok(None) => {
                hand_over(sender, &mut lines);
                return;
            }
            Err(failure) => {
                hand_over(sender, &mut lines);
                let _ = sender.blocking_send(Err(failure));
                return;
            }
        };
        let (is_swap, looks_up) = (op.kind == KvKind::Cas, op.kind == KvKind::Lookup);
        if (is_swap || looks_up != lines.looks_up) && !hand_over(sender, &mut lines) {
            return;
        }
        lines.looks_up = looks_up;
        let expected = op.expected.as_ref().map_or(0, |expected| expected.len());
        lines.bytes += op.key.len() + op.value.len() + expected;
        lines.keys.push(key);
        lines.ops.push(op);
        let ops_max = if looks_up { KV_LOOKUPS_AHEAD_MAX } else { KV_OPS_MAX };
        let is_full = lines.ops.len() == ops_max || lines.bytes >= KV_LINES_AHEAD_BYTES;
        let has_more = input.buffer().contains(&b'\n');
        if (is_swap || is_full || !has_more) && !hand_over(sender, &mut lines) {
            return;
        }
    }
}

/// False if no more lines are wanted, because an answer could not be printed.
fn hand_over(sender: &mpsc::Sender<ParsedLines>, lines: &mut Lines) -> bool {
    let first = lines.first + lines.ops.len();
    let looks_up = lines.looks_up;
    let gathered = std::mem::replace(lines, Lines { first, looks_up, ..Lines::default() });
    gathered.ops.is_empty() || sender.blocking_send(Ok(gathered)).is_ok()
}

/// The operation of the next line; `None` at the end.
fn next(input: &mut impl BufRead, number: usize) -> Result<Option<(String, KvOp)>, Failure> {
    let refuse = |what: String| Failure::refused(format!("line {number}: {what}"));
    let mut line = Vec::new();
    let read = input.take(KV_LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line);
    match read {
        Ok(0) => return Ok(None),
        Ok(bytes) if bytes > KV_LINE_BYTES_MAX => {
            return Err(refuse(format!("longer than {KV_LINE_BYTES_MAX} bytes")));
        }
        Ok(_) => {}
        Err(error) => return Err(refuse(plain(&error))),
    }
    if line.trim_ascii().is_empty() {
        return Err(refuse("it is empty".to_owned()));
    }
    let line: Line = serde_json::from_slice(&line).map_err(|error| {
        let hint = r#"a line looks like this: {"op":"insert","key":"bird","value":"starling"}"#;
        // The error's own position counts lines too; here there is one line.
        let text = error.to_string();
        let said = text.split(" at line ").next().unwrap_or_default();
        let place = format!("{said}, at column {}", error.column());
        Failure { hint: Some(hint.to_owned()), ..refuse(place) }
    })?;
    let named = |what| format!("{} of '{}': {what}", line.op.name(), line.key);
    operation_of(&line).map_err(|what| refuse(named(what))).map(|op| Some((line.key, op)))
}

fn operation_of(line: &Line) -> Result<KvOp, String> {
    let value = bytes(line.value.as_ref(), line.value_hex.as_ref(), "value")?;
    let expected = bytes(line.expect.as_ref(), line.expect_hex.as_ref(), "expect")?;
    let writes = matches!(line.op, Op::Insert | Op::Append | Op::Cas);
    if writes != value.is_some() {
        return Err(
            if writes { "it needs a value or value_hex" } else { "it takes no value" }.to_owned()
        );
    }
    if line.op != Op::Cas && (expected.is_some() || line.absent) {
        return Err("only cas expects something".to_owned());
    }
    if line.op == Op::Cas && expected.is_some() == line.absent {
        return Err(r#"it needs one of "expect" and "absent": true"#.to_owned());
    }
    let kind = match line.op {
        Op::Insert => KvKind::Insert,
        Op::Lookup => KvKind::Lookup,
        Op::Remove => KvKind::Remove,
        Op::Append => KvKind::Append,
        Op::Cas => KvKind::Cas,
    };
    let op = KvOp::new(kind, line.key.as_bytes(), &value.unwrap_or_default());
    let op = KvOp { expected: expected.map(Into::into), ..op };
    op.check().map_err(|error| error.to_string())?;
    Ok(op)
}

fn bytes(
    text: Option<&String>,
    hex: Option<&String>,
    name: &str,
) -> Result<Option<Vec<u8>>, String> {
    match (text, hex) {
        (Some(_), Some(_)) => Err(format!("both {name} and {name}_hex")),
        (Some(text), None) => Ok(Some(text.clone().into_bytes())),
        (None, Some(hex)) => {
            let digit = |digit: u8| (digit as char).to_digit(16);
            let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
            let bytes: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(pair).collect();
            bytes.map(Some).ok_or_else(|| format!("{name}_hex is not hexadecimal"))
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        for (line, said) in [
            (r#"{"op":"insert","key":"k"}"#, "line 7: insert of 'k': it needs a value or"),
            (
                r#"{"op":"lookup","key":"k","value":"v"}"#,
                "line 7: lookup of 'k': it takes no value",
            ),
            (r#"{"op":"insert","key":"","value":"v"}"#, "line 7: insert of '': the key is empty"),
            (r#"{"op":"cas","key":"k","value":"v"}"#, "line 7: cas of 'k': it needs one of"),
            (r#"{"op":"cas","key":"k","value":"v","expect":"a","absent":true}"#, "line 7: cas of"),
            (
                r#"{"op":"lookup","key":"k","absent":true}"#,
                "line 7: lookup of 'k': only cas expects",
            ),
            (
                r#"{"op":"insert","key":"k","value_hex":"0g"}"#,
                "line 7: insert of 'k': value_hex is not",
            ),
            (
                r#"{"op":"insert","key":"k","value_hex":"012"}"#,
                "line 7: insert of 'k': value_hex is not",
            ),
            (r#"{"op":"insert","key":"k","value":"v","ttl":1}"#, "line 7: unknown field `ttl`"),
            (r#"{"op":"drop","key":"k"}"#, "line 7: unknown variant `drop`"),
            ("\n", "line 7: it is empty"),
            (r#"{"op":"insert""#, "line 7: EOF while parsing an object, at column 14"),
        ] {
            let failure = next(&mut line.as_bytes(), 7).unwrap_err();
            assert!(failure.message.starts_with(said), "{line}: {}", failure.message);
            assert_eq!(failure.exit, Exit::Refused);
        }
        let (key, op) =
            next(&mut &br#"{"op":"cas","key":"k","value_hex":"00fF","expect":"a"}"#[..], 1)
                .unwrap()
                .unwrap();
        assert_eq!((&*key, &op.value[..]), ("k", &b"\0\xff"[..]));
        assert_eq!(op.expected.as_deref(), Some(&b"a"[..]));
        assert!(next(&mut &b""[..], 1).unwrap().is_none());
    }
}

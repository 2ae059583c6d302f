//! Attempts as a table, by RFC 4180.

use std::fmt::Write as _;

use super::units::shown;
use crate::record::Record;

const HEADER: &str = "task,name,kind,attempt,node,slot,slots,start_s,end_s,waited_s,fetched_s,end,bytes_moved,bytes_read_local";

/// Times are from the submission.
pub(super) fn attempts(record: &Record) -> String {
    let mut csv = format!("{HEADER}\r\n");
    let since = |us: u64| (us as f64 - record.meta.submitted_us as f64) / 1e6;
    for row in &record.attempts {
        let (name, kind) = (field(&record.task_name(row.task)), field(record.kind(row.kind)));
        // Writing to a string does not fail.
        let _ = write!(
            csv,
            "{},{name},{kind},{},n{},{},{},{:.6},{:.6},{:.6},{:.6},{},{},{}\r\n",
            row.task,
            row.number,
            row.node,
            row.slot,
            row.width(),
            since(row.start_us),
            since(row.end_us()),
            row.wait_us as f64 / 1e6,
            row.fetch_us as f64 / 1e6,
            row.outcome.word(),
            row.moved_bytes,
            row.local_bytes,
        );
    }
    csv
}

/// On one line, in quotes where needed. A leading quote keeps spreadsheets from running a name as a
/// formula.
fn field(text: &str) -> String {
    let text = shown(text);
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    let text = if is_formula { format!("'{text}") } else { text };
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_quoted() {
        assert_eq!(field("a-b"), "a-b");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(field("=1+1"), "'=1+1");
        assert_eq!(field("a\r\n=1"), "a\\r\\n=1");
    }
}

//! The report of a run, as it was printed.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One JSON value. Its keys keep their order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrintedReport(Box<RawValue>);

impl PrintedReport {
    /// The report of this text; none, if it is no JSON.
    #[must_use]
    pub fn of(json: String) -> Self {
        RawValue::from_string(json).map(Self).unwrap_or_default()
    }

    /// Its JSON on one line; `null` without a report.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// True if there is a report, and not an empty one.
    #[must_use]
    pub fn is_given(&self) -> bool {
        !matches!(self.text(), "null" | "{}")
    }

    /// A number of its first level.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<f64> {
        let value: serde_json::Value = serde_json::from_str(self.text()).ok()?;
        value[key].as_f64()
    }
}

impl Default for PrintedReport {
    fn default() -> Self {
        Self(RawValue::from_string("null".to_owned()).expect("it is JSON"))
    }
}

impl PartialEq for PrintedReport {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meta;

    #[test]
    fn the_keys_of_a_report_keep_their_order() {
        let text = r#"{"schema":1,"job":"7","a":{"z":1,"b":2},"makespan_s":2.5}"#;
        let meta = Meta { report: PrintedReport::of(text.to_owned()), ..Meta::default() };
        let bytes = serde_json::to_vec(&meta).unwrap();
        let read: Meta = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((read.report.text(), &read), (text, &meta));
        assert_eq!(
            (read.report.number("makespan_s"), read.report.number("job")),
            (Some(2.5), None)
        );
        assert!(read.report.is_given());
    }

    #[test]
    fn a_record_may_have_no_report() {
        for text in ["", "no JSON", "null", "{}"] {
            assert!(!PrintedReport::of(text.to_owned()).is_given(), "{text}");
        }
        assert_eq!(PrintedReport::default().text(), "null");
    }
}

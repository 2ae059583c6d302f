//! The part of `node info` about a node's records.

use proto::wire::NodeState;
use serde::Serialize;
use verb::units;

#[derive(Serialize)]
pub(crate) struct Records {
    /// The number of complete reads of all records since the start, and the bytes of the last one.
    scrub_passes: u64,
    scrubbed_bytes: u64,
    /// The directories of given-up records, the fullest first.
    records_aside: Vec<String>,
    /// True if the given-up records may be the last copies: the stores that replaced them are being
    /// filled.
    refilling: bool,
}

impl Records {
    pub(crate) fn of(state: &NodeState) -> Self {
        Self {
            scrub_passes: state.scrub_passes,
            scrubbed_bytes: state.scrubbed_bytes,
            records_aside: state.records_aside.clone(),
            refilling: state.refilling,
        }
    }

    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let row = |key: &str, value: String| vec![key.to_owned(), value];
        let mut rows = vec![row("scrubbed", self.scrubbed())];
        let needed = match self.refilling {
            true => "needed until all partitions have their copies again",
            false => "not needed any more",
        };
        let kept = self.records_aside.iter();
        rows.extend(kept.map(|path| row("old records", format!("{path}, {needed}"))));
        rows
    }

    fn scrubbed(&self) -> String {
        let (times, size) = (units::number_of, units::bytes);
        match self.scrub_passes {
            0 => "not since it started".to_owned(),
            passes => {
                format!("{}, {} the last time", times(passes, "time"), size(self.scrubbed_bytes))
            }
        }
    }
}

//! The output that a command prints: the captured bytes, its last part, and the reason if some was
//! not captured.

use proto::limits;
use proto::work::Captured;

/// The output of one command so far.
#[derive(Debug, Default)]
pub(crate) struct Printed {
    pub(crate) captured: Captured,
    pub(crate) stderr_tail: Vec<u8>,
    pub(crate) unkept: Option<OutputLoss>,
}

/// The reason why some output was not kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OutputLoss {
    /// The node could not write it.
    Failed(String),
    /// The node has no space for more: the command was killed.
    Full(String),
}

impl Printed {
    /// Some output was not kept. Returns whether the command must be killed now.
    pub(crate) fn lose(&mut self, loss: OutputLoss) -> bool {
        let is_full = matches!(loss, OutputLoss::Full(_));
        self.unkept.replace(loss).is_none() && is_full
    }

    pub(crate) fn keep_tail(&mut self, data: &[u8]) {
        let tail = &mut self.stderr_tail;
        let data = &data[data.len().saturating_sub(limits::STDERR_TAIL_BYTES)..];
        tail.extend_from_slice(data);
        let surplus = tail.len().saturating_sub(limits::STDERR_TAIL_BYTES);
        tail.drain(..surplus);
    }
}

/// The error of a task that has printed more than its limit.
pub(crate) fn too_much(printed_bytes: u64, limit_bytes: u64) -> String {
    format!(
        "wrote {} of captured output; the limit is {} (redirect it into a declared output, or raise \
         --captured-limit and --captured-store of the nodes)",
        size(printed_bytes),
        size(limit_bytes)
    )
}

/// The error of tasks on a node without space for their output.
pub(crate) fn no_room(node: proto::NodeId, stored_bytes: u64, room_bytes: u64) -> String {
    format!(
        "captured output of all tasks takes {} on {node}; the limit is {} (redirect it into a \
         declared output, or raise --captured-store of the node)",
        size(stored_bytes),
        size(room_bytes)
    )
}

/// `1 GiB`, `1.5 MiB`: whole numbers without a point.
fn size(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        None => format!("{bytes} B"),
        Some((unit, name)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_end_of_what_was_printed() {
        let mut printed = Printed::default();
        printed.keep_tail(b"abc");
        printed.keep_tail(&vec![b'x'; limits::STDERR_TAIL_BYTES - 1]);
        assert_eq!(printed.stderr_tail.len(), limits::STDERR_TAIL_BYTES);
        assert_eq!(printed.stderr_tail[..2], *b"cx");
        printed.keep_tail(&vec![b'y'; limits::STDERR_TAIL_BYTES * 3]);
        assert!(printed.stderr_tail.iter().all(|byte| *byte == b'y'));
        assert_eq!(printed.stderr_tail.len(), limits::STDERR_TAIL_BYTES);
    }

    #[test]
    fn a_command_is_killed_once_for_lost_output() {
        let full = || OutputLoss::Full("full".to_owned());
        let mut printed = Printed::default();
        assert!(printed.lose(full()) && !printed.lose(full()));
        assert_eq!(printed.unkept, Some(full()));
        assert!(!Printed::default().lose(OutputLoss::Failed("no".to_owned())));
    }

    #[test]
    fn both_figures_are_reported() {
        let text = too_much((1 << 30) + (1 << 27), 1 << 30);
        assert!(
            text.starts_with("wrote 1.1 GiB of captured output; the limit is 1 GiB ("),
            "{text}"
        );
        let text = no_room(proto::NodeId(3), 999, 1536);
        assert!(
            text.starts_with(
                "captured output of all tasks takes 999 B on n3; the limit is 1.5 KiB ("
            )
        );
    }
}

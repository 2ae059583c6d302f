/*!
What no schedule can beat, and the paper's own estimate beside it.

[`LowerBounds`] are true: each follows from what a cluster cannot do (run more work than it has
slots, start a task before its inputs are there, bring bytes in faster than its links). [`Bounds`]
are the two of them that need nothing but the graph and a number of slots. [`PaperBound`] is the
dynamic programme of the paper's section 3. As printed it adds a mean queue wait to every task and
lets as many tasks run at once as there are, so real schedules beat it and others never come near:
an estimate to compare with, no bound. [`Form`] names the readings of it that we know.

`docs/bounds.md` has the formulas and what each proves.
*/

mod cluster;
mod density;
mod heads;
mod lower;
mod paper;
mod published;
mod stream;
mod waits;

use proto::Span;
use workloads::Graph;

pub use cluster::{Cluster, Network};
pub use heads::Windows;
pub use lower::LowerBounds;
pub use paper::{Ends, PaperBound, PaperModel, Place, general};
pub use published::{PUBLISHED, PUBLISHED_SLOTS, Published};
pub use stream::StreamBounds;
pub use waits::Form;

/// True lower bounds of the makespan on so many slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The longest path by durations.
    pub critical_path: Span,
    /// Durations times the slots they take, over all slots.
    pub area: Span,
}

impl Bounds {
    /// Linear in tasks and edges.
    ///
    /// # Panics
    /// When there are no slots.
    #[must_use]
    pub fn of(graph: &Graph, slots: u32) -> Self {
        assert!(slots > 0, "a graph needs at least one slot to run");
        Self { critical_path: Span(graph.critical_path_ns()), area: area(graph.work_ns(), slots) }
    }

    /// The stronger of the two.
    #[must_use]
    pub fn lower(&self) -> Span {
        self.critical_path.max(self.area)
    }
}

fn area(work_ns: u128, slots: u32) -> Span {
    Span(u64::try_from(work_ns / u128::from(slots)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;

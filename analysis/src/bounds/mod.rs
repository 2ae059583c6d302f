/*!
Lower bounds of makespans, and the paper's own estimate. `starling bound` and the reports use them.

[`LowerBounds`] are true bounds. Each follows from the limits of a cluster: its slots, the times at
which inputs are available, and its link bandwidth. [`Bounds`] are the two of them that need only
the graph and a number of slots. [`PaperBound`] is the dynamic programme of the paper's section 3.
As printed it adds a mean queue wait to every task and does not limit the number of running tasks.
So some schedules are shorter, and others are far longer: it is an estimate, not a bound. [`Form`]
names its known interpretations.

`docs/bounds.md` has the formulas and their proofs.
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

/// True lower bounds of the makespan on a number of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The longest path by durations.
    pub critical_path: Span,
    /// Durations times the slots they take, over all slots.
    pub area: Span,
}

impl Bounds {
    /// Takes linear time in tasks and edges.
    ///
    /// # Panics
    /// When there are no slots.
    #[must_use]
    pub fn of(graph: &Graph, slots: u32) -> Self {
        assert!(slots > 0, "a graph needs at least one slot to run");
        Self { critical_path: Span(graph.critical_path_ns()), area: area(graph.work_ns(), slots) }
    }

    /// The larger of the two.
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

//! A node's measurements of tasks and transfers, on which its estimates rest.

use proto::wire::NodeState;
use serde::Serialize;
use verb::units;

/// Rates are `None`, and absent from the table, until there is a measurement.
#[derive(Serialize)]
pub(crate) struct Measured {
    /// The rate of tasks that ended there lately, while there was work.
    tasks_per_s: Option<f64>,
    /// The rate of transfers to it, from any node.
    bandwidth_bytes_per_s: Option<f64>,
    sources: Vec<Source>,
    kinds: Vec<Kind>,
}

/// A node that sent objects.
#[derive(Serialize)]
struct Source {
    node: u32,
    objects: u32,
    bytes_per_s: f64,
}

/// The durations of a kind's tasks.
#[derive(Serialize)]
struct Kind {
    kind: String,
    tasks: u64,
    mean_s: f64,
    deviation_s: f64,
    median_s: f64,
    /// The 95th percentile.
    q95_s: f64,
}

/// The maximum of kinds and sources in a table for people.
const ROWS_MAX: usize = 8;

impl Measured {
    pub(crate) fn of(state: &NodeState) -> Self {
        let known = |rate: f64| (rate > 0.0).then_some(rate);
        let seconds = |ns: u64| ns as f64 / 1e9;
        let source = |source: &proto::wire::SourceRate| Source {
            node: source.node,
            objects: source.objects,
            bytes_per_s: source.bytes_per_s,
        };
        let kind = |kind: &proto::wire::KindLength| Kind {
            kind: kind.kind.clone(),
            tasks: kind.tasks,
            mean_s: seconds(kind.mean_ns),
            deviation_s: seconds(kind.deviation_ns),
            median_s: seconds(kind.median_ns),
            q95_s: seconds(kind.high_ns),
        };
        Self {
            tasks_per_s: known(state.tasks_per_s),
            bandwidth_bytes_per_s: known(state.bandwidth_bytes_per_s),
            sources: state.sources.iter().map(source).collect(),
            kinds: state.kinds.iter().map(kind).collect(),
        }
    }

    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let row = |key: &str, value: String| vec![key.to_owned(), value];
        let rate = |bytes_per_s: f64| format!("{}/s", units::bytes(bytes_per_s as u64));
        let mut rows = Vec::new();
        let throughput = self.tasks_per_s.map(|rate| format!("{rate:.1} tasks/s"));
        rows.extend(throughput.map(|text| row("throughput", text)));
        let bandwidth = self.bandwidth_bytes_per_s.map(rate);
        rows.extend(bandwidth.map(|text| row("bandwidth", text)));
        rows.extend(self.sources.iter().take(ROWS_MAX).map(|source| {
            let objects = units::number_of(source.objects.into(), "object");
            row(
                &format!("from n{}", source.node),
                format!("{}, {objects}", rate(source.bytes_per_s)),
            )
        }));
        rows.extend(self.kinds.iter().take(ROWS_MAX).map(|kind| {
            let [mean, deviation, high] =
                [kind.mean_s, kind.deviation_s, kind.q95_s].map(units::seconds);
            let tasks = units::count(kind.tasks);
            row(
                &format!("kind '{}'", kind.kind),
                format!("{tasks} took {mean}, deviation {deviation}, 95 % at most {high}"),
            )
        }));
        rows
    }
}

#[cfg(test)]
mod tests {
    use proto::wire;

    use super::*;

    #[test]
    fn what_was_measured_is_shown_and_nothing_else() {
        assert!(Measured::of(&NodeState::default()).rows().is_empty());
        let state = NodeState {
            tasks_per_s: 12.5,
            bandwidth_bytes_per_s: 1e8,
            sources: vec![wire::SourceRate { node: 3, objects: 2, bytes_per_s: 5e7 }],
            kinds: vec![wire::KindLength {
                kind: "sort".into(),
                tasks: 7,
                mean_ns: 2_000_000_000,
                deviation_ns: 1_000_000_000,
                median_ns: 1_500_000_000,
                high_ns: 4_000_000_000,
            }],
            ..Default::default()
        };
        let measured = Measured::of(&state);
        let keys: Vec<String> = measured.rows().into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(keys, ["throughput", "bandwidth", "from n3", "kind 'sort'"]);
        let json = serde_json::to_value(&measured).unwrap();
        assert_eq!(json["kinds"][0]["q95_s"], 4.0);
        assert_eq!((&json["tasks_per_s"], &json["sources"][0]["node"]), (&12.5.into(), &3.into()));
    }
}

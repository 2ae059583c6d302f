//! Two runs side by side.

use serde::Serialize;

use super::Report;
use super::units::{bytes, count, percent, seconds, shown};

/// One figure of two runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Difference {
    pub figure: String,
    pub this: f64,
    pub against: f64,
    /// Of this run over the other one; absent if that is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    #[serde(skip)]
    unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Unit {
    Seconds,
    Share,
    Count,
    Bytes,
}

/// The figures of a run beside those of another one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// The other run.
    pub against: String,
    pub figures: Vec<Difference>,
}

impl Difference {
    fn new(figure: &str, unit: Unit, this: f64, against: f64) -> Self {
        let ratio = (against != 0.0).then(|| this / against);
        Self { figure: figure.to_owned(), this, against, ratio, unit }
    }

    /// Both values and the change for people.
    #[must_use]
    pub fn cells(&self) -> [String; 4] {
        let show = |value: f64| match self.unit {
            Unit::Seconds => seconds(value),
            Unit::Share => percent(value),
            Unit::Count => count(value as u64),
            Unit::Bytes => bytes(value as u64),
        };
        let change = match self.ratio {
            Some(ratio) => format!("{:+.1} %", (ratio - 1.0) * 100.0),
            None if self.this == 0.0 => "equal".to_owned(),
            None => "new".to_owned(),
        };
        [shown(&self.figure), show(self.this), show(self.against), change]
    }
}

impl Comparison {
    #[must_use]
    pub fn of(this: &Report<'_>, against: &Report<'_>) -> Self {
        use Unit::{Bytes, Count, Seconds, Share};
        type Figure = (&'static str, Unit, fn(&Report<'_>) -> f64);
        let figures: [Figure; 12] = [
            ("makespan", Seconds, |it| it.makespan_s),
            ("tasks", Count, |it| it.tasks.total as f64),
            ("failed tasks", Count, |it| it.tasks.failed as f64),
            ("attempts", Count, |it| it.attempts as f64),
            ("slots", Count, |it| it.slots as f64),
            ("utilization", Share, |it| it.utilization),
            ("busy slot time", Seconds, |it| it.busy_s),
            ("lost slot time", Seconds, |it| it.lost_s),
            ("bytes moved", Bytes, |it| it.bytes_moved as f64),
            ("bytes read locally", Bytes, |it| it.bytes_read_local as f64),
            ("steals", Count, |it| it.steals as f64),
            ("pushes", Count, |it| it.pushes as f64),
        ];
        let row = |(name, unit, of): &Figure| Difference::new(name, *unit, of(this), of(against));
        let mut rows: Vec<_> = figures.iter().map(row).collect();
        let all = |it: &Report<'_>| it.causes.seconds.all();
        let causes = all(this).into_iter().zip(all(against));
        for ((_, word), (mine, theirs)) in crate::causes::CAUSES.iter().zip(causes) {
            let whole = |it: &Report<'_>| it.slots as f64 * it.makespan_s;
            let share = |part: f64, it: &Report<'_>| super::ratio(part, whole(it));
            rows.push(Difference::new(word, Share, share(mine, this), share(theirs, against)));
        }
        for kind in &this.kinds {
            if let Some(other) = against.kinds.iter().find(|it| it.kind == kind.kind) {
                let name = format!("{}: median length", kind.kind);
                rows.push(Difference::new(&name, Seconds, kind.ran.p50_s, other.ran.p50_s));
            }
        }
        let against = format!("{} {}, {}", against.job, against.name, against.policy);
        Self { against, figures: rows }
    }
}

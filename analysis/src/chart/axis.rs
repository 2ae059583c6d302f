//! Axes of charts: the mapping of values to pixels, and the ticks.

use super::table::figure;

/// The title, range and scale of an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    pub(super) title: String,
    log: bool,
    low: Option<f64>,
    high: Option<f64>,
    ticks: Vec<f64>,
}

impl Axis {
    /// A linear axis around its data. The title names the unit: `time, s`.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), log: false, low: None, high: None, ticks: Vec::new() }
    }

    /// Makes the axis logarithmic.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// Sets the lower end, regardless of the data.
    #[must_use]
    pub fn from(mut self, low: f64) -> Self {
        self.low = Some(low);
        self
    }

    /// Sets the upper end, regardless of the data.
    #[must_use]
    pub fn to(mut self, high: f64) -> Self {
        self.high = Some(high);
        self
    }

    /// Sets the ticks to exactly these values.
    #[must_use]
    pub fn ticks(mut self, ticks: &[f64]) -> Self {
        self.ticks = ticks.to_vec();
        self
    }

    /// True if the value can be drawn on this axis.
    pub(super) fn takes(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }

    /// Fits the axis to its data, between two pixels. With `zero`, a linear axis with non-negative
    /// data begins at 0.
    pub(super) fn place(
        &self,
        values: impl Iterator<Item = f64>,
        zero: bool,
        start_px: f64,
        end_px: f64,
    ) -> Placed {
        let fold = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let (low, high) = values
            .chain(self.ticks.iter().copied())
            .filter(|value| self.takes(*value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), fold);
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        let low = if zero && !self.log && low > 0.0 { 0.0 } else { low };
        let given = |value: Option<f64>| value.filter(|value| self.takes(*value));
        let (low_given, high_given) = (given(self.low), given(self.high));
        let mut low = low_given.unwrap_or(low);
        let mut high = high_given.unwrap_or(high);
        if high <= low {
            // All values are equal: use a range around the value, so that a scale exists.
            high = if low > 0.0 { low * 2.0 } else { low + 1.0 };
        }
        if self.log {
            if high / low >= 10.0 {
                low = low_given.unwrap_or_else(|| 10_f64.powf(floor(low.log10())));
                high = high_given.unwrap_or_else(|| 10_f64.powf(-floor(-high.log10())));
            }
        } else {
            let step = step_of(low, high);
            if low_given.is_none() && zero {
                low = floor(low / step) * step;
            }
            if high_given.is_none() && zero {
                high = -floor(-high / step) * step;
            }
        }
        let ticks = match (&self.ticks[..], self.log) {
            ([], false) => linear_ticks(low, high),
            ([], true) => log_ticks(low, high),
            (own, _) => own.to_vec(),
        };
        Placed { log: self.log, low, high, start_px, end_px, ticks }
    }
}

/// Like `f64::floor`, but a value within rounding error of a whole number counts as that number.
fn floor(value: f64) -> f64 {
    let near = value.round();
    if (value - near).abs() < 1e-9 { near } else { value.floor() }
}

/// The approximate number of ticks on a linear axis.
const TICKS_AIM: f64 = 6.0;

/// 1, 2 or 5 times a power of ten.
fn step_of(low: f64, high: f64) -> f64 {
    let raw = (high - low) / TICKS_AIM;
    let power = 10_f64.powf(raw.log10().floor());
    // A step within rounding error of a round one counts as that one.
    let factor = match raw / power * (1.0 - 1e-9) {
        f if f <= 1.0 => 1.0,
        f if f <= 2.0 => 2.0,
        f if f <= 5.0 => 5.0,
        _ => 10.0,
    };
    factor * power
}

fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let step = step_of(low, high);
    let first = -floor(-low / step);
    let count = floor(high / step) - first;
    (0..=count.max(0.0) as u32).map(|at| (first + f64::from(at)) * step).collect()
}

/// Powers of ten; if there are few of them, twice and five times each as well.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (floor(low.log10()) as i32, -floor(-high.log10()) as i32);
    let factors: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = ((last - first) / 10 + 1) as usize;
    (first..=last)
        .step_by(every)
        .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
        .filter(|tick| *tick >= low * (1.0 - 1e-9) && *tick <= high * (1.0 + 1e-9))
        .collect()
}

/// An axis with its range and its pixels.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    log: bool,
    low: f64,
    high: f64,
    pub(super) start_px: f64,
    pub(super) end_px: f64,
    ticks: Vec<f64>,
}

impl Placed {
    /// The pixel of a value; values outside the range are drawn at its ends.
    pub(super) fn at(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.log10() } else { value };
        let (low, high) = (scale(self.low), scale(self.high));
        let share = (scale(value.clamp(self.low, self.high)) - low) / (high - low);
        self.start_px + share * (self.end_px - self.start_px)
    }

    /// The base pixel of areas and bars: 0 if it is in the range.
    pub(super) fn base(&self) -> f64 {
        if self.log { self.start_px } else { self.at(0.0) }
    }

    /// Pixels and labels.
    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        self.ticks.iter().map(|tick| (self.at(*tick), tick_label(*tick)))
    }
}

/// `250`, `0.5`, `20 M`.
fn tick_label(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M")];
    match units.iter().find(|(unit, _)| value.abs() >= *unit) {
        Some((unit, name)) => format!("{} {name}", figure(value / unit)),
        None => figure(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, data: &[f64], zero: bool) -> Vec<String> {
        let placed = axis.place(data.iter().copied(), zero, 0.0, 100.0);
        placed.ticks().map(|(_, label)| label).collect()
    }

    #[test]
    fn values_find_their_pixels() {
        let linear = Axis::new("x").place([0.0, 10.0].into_iter(), true, 50.0, 250.0);
        assert_eq!((linear.at(0.0), linear.at(5.0), linear.at(10.0)), (50.0, 150.0, 250.0));
        assert_eq!((linear.at(-4.0), linear.at(99.0)), (50.0, 250.0), "outside lies on the ends");
        let log = Axis::new("x").log().place([1.0, 100.0].into_iter(), false, 300.0, 100.0);
        assert_eq!((log.at(1.0), log.at(10.0), log.at(100.0)), (300.0, 200.0, 100.0));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            labels(&Axis::new("x"), &[0.0, 93.0], true),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            labels(&Axis::new("x"), &[0.0, 0.3], true),
            ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]
        );
        assert_eq!(
            labels(&Axis::new("x").log(), &[3.0, 2e6], false),
            ["1", "10", "100", "1,000", "10,000", "100,000", "1 M", "10 M"]
        );
        assert_eq!(labels(&Axis::new("x").log(), &[2.0, 6.0], false), ["2", "5"]);
        assert_eq!(labels(&Axis::new("x").ticks(&[1.0, 30.0]), &[5.0], false), ["1", "30"]);
    }

    #[test]
    fn no_data_and_one_value_have_a_range_too() {
        assert!(!labels(&Axis::new("x"), &[], true).is_empty());
        assert!(!labels(&Axis::new("x").log(), &[f64::NAN, -1.0], false).is_empty());
        assert!(!labels(&Axis::new("x"), &[7.0], false).is_empty());
        assert!(!labels(&Axis::new("x"), &[-7.0], true).is_empty());
    }
}

//! The options of policy, stealing and storage: the flags, the settings, and the wire message.

use std::str::FromStr;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use proto::{Span, wire};
use scheduler::{Lengths, Order, Policy, Tuning, UNLIMITED_BYTES};
use serde::Serialize;
use workloads::generate::Draw;
use workloads::quantity;

use crate::errors::Failure;
use crate::history::History;
use crate::settings::Settings;
use crate::units::{self, Bandwidth, Factor, Size, Timespan};

/// The scheduling flags.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Scheduling")]
pub struct TuningArgs {
    /// The rule for placing ready tasks [default: eft]
    #[arg(long)]
    pub policy: Option<PolicyName>,
    /// A transfer of at most this share of a task's length is small [default: 0.5]
    #[arg(long, value_name = "T")]
    pub threshold: Option<Factor>,
    /// With flds: the time after which others may take a waiting dedicated task [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub wait_max: Option<Timespan>,
    /// Assumed between any two nodes, and modelled for virtual data [default: 1Gbit]
    #[arg(long, value_name = "B")]
    pub bandwidth: Option<Bandwidth>,
    /// Assumed duration of tasks that declare none, until their kind was measured: uniform(a,b),
    /// gaussian(mean,deviation), gamma(shape,mean), or like those that ended [default: measured]
    #[arg(long, value_name = "LAW")]
    pub lengths: Option<Law>,
    /// The order of ready tasks: most input bytes; longest path to an end; or the latter if paths
    /// are long, else bytes [default: critical with eft, bytes with the others]
    #[arg(long)]
    pub order: Option<OrderName>,
    /// Share of a victim's shared queue that one steal takes [default: 0.5]
    #[arg(long, value_name = "SHARE")]
    pub steal_share: Option<Factor>,
    /// Nodes a thief asks for their load: a number, or sqrt of all, at most 32 [default: sqrt]
    #[arg(long, value_name = "N")]
    pub steal_neighbours: Option<Neighbours>,
    /// A thief's first wait after it found nothing; doubled each time [default: 1ms]
    #[arg(long, value_name = "DURATION")]
    pub steal_interval: Option<Timespan>,
    /// A thief's longest wait; then it is dormant until it gets a hint [default: 1024ms]
    #[arg(long, value_name = "DURATION")]
    pub steal_bound: Option<Timespan>,
    /// Bytes of copies of other nodes' objects that a node keeps [default: 6GiB]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<Size>,
    /// Bytes of objects on a node above which copies are evicted and work waits [default: 90 % of
    /// the file system]
    #[arg(long, value_name = "SIZE")]
    pub store_soft: Option<Size>,
    /// Bytes of objects on a node above which it accepts no more [default: 95 % of the file system]
    #[arg(long, value_name = "SIZE")]
    pub store_hard: Option<Size>,
    /// Events and records of ended jobs that a node keeps: a size, an age, or both (2GiB,30d), or
    /// none for no bound. The oldest are removed first, kept results never [default: 2GiB]
    #[arg(long, value_name = "BOUND")]
    pub history: Option<History>,
}

/// A scheduling policy by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyName(Policy);

impl ValueEnum for PolicyName {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [PolicyName; Policy::COUNT] = {
            let mut all = [PolicyName(Policy::ALL[0]); Policy::COUNT];
            let mut number = 0;
            while number < all.len() {
                all[number] = PolicyName(Policy::ALL[number]);
                number += 1;
            }
            all
        };
        &ALL
    }
    fn to_possible_value(&self) -> Option<PossibleValue> {
        let Self(policy) = self;
        Some(PossibleValue::new(policy.name()).help(policy.help()))
    }
}

/// Orders of the ready queues by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OrderName {
    /// Most input bytes first
    Bytes,
    /// Longest path to an end of the graph first
    Urgency,
    /// First tasks with a path to an end of the graph that is long for the remaining work, then as
    /// bytes
    Critical,
}

impl OrderName {
    fn order(self) -> Order {
        match self {
            Self::Bytes => Order::Bytes,
            Self::Urgency => Order::Urgency,
            Self::Critical => Order::Critical,
        }
    }
}

/// `sqrt`, or a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbours(u32);

impl FromStr for Neighbours {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "sqrt" => Ok(Self(0)),
            Ok(number) if number > 0 => Ok(Self(number)),
            _ => Err(format!("'{text}' is neither a number of at least 1 nor sqrt")),
        }
    }
}

/// The assumed durations of tasks: a distribution, or `measured`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Law(Lengths);

impl FromStr for Law {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "measured" {
            return Ok(Self(Lengths::Measured));
        }
        let span = |ns: f64| Span(ns.round() as u64);
        let lengths = match Draw::parse(text, quantity::parse_duration_ns)? {
            Draw::Fixed(length) => Lengths::Uniform { low: Span(length), high: Span(length) },
            Draw::Uniform { low, high } => Lengths::Uniform { low: Span(low), high: Span(high) },
            Draw::Gaussian { mean, deviation } => {
                Lengths::Gaussian { mean: span(mean), deviation: span(deviation) }
            }
            Draw::Gamma { shape, mean } => Lengths::Gamma { shape, mean: span(mean) },
            Draw::Exponential { mean } => Lengths::Gamma { shape: 1.0, mean: span(mean) },
        };
        Ok(Self(lengths))
    }
}

fn nanoseconds(span: Timespan) -> u64 {
    u64::try_from(span.0.as_nanos()).unwrap_or(u64::MAX)
}

impl TuningArgs {
    /// The change that the flags make, and nothing else.
    pub fn change(&self) -> wire::Tuning {
        wire::Tuning {
            policy: self.policy.map(|PolicyName(policy)| policy.name().to_owned()),
            threshold: self.threshold.map(|Factor(threshold)| threshold),
            wait_max_ns: self.wait_max.map(nanoseconds),
            bandwidth_bytes_per_s: self.bandwidth.map(|bandwidth| bandwidth.bytes_per_s),
            lengths: self.lengths.map(|Law(lengths)| lengths.to_wire()),
            steal_interval_ns: self.steal_interval.map(nanoseconds),
            steal_bound_ns: self.steal_bound.map(nanoseconds),
            steal_share: self.steal_share.map(|Factor(share)| share),
            steal_neighbours: self.steal_neighbours.map(|Neighbours(number)| number),
            order: self.order.map(|name| name.order().name().to_owned()),
            cache_bytes: self.cache.map(|Size(bytes)| bytes),
            store_soft_bytes: self.store_soft.map(|Size(bytes)| bytes),
            store_hard_bytes: self.store_hard.map(|Size(bytes)| bytes),
            history_bytes: self.history.map(|history| history.bytes),
            history_age_ns: self.history.map(|history| history.age.0),
            paused: None,
        }
    }

    /// The flags, else the settings, else the built-in values.
    pub fn resolve(&self, settings: &Settings) -> Result<Tuning, Failure> {
        let all = Self {
            policy: Some(settings.pick(self.policy, "policy")?),
            threshold: Some(settings.pick(self.threshold, "threshold")?),
            wait_max: settings.pick_optional(self.wait_max, "wait_max")?,
            bandwidth: Some(settings.pick(self.bandwidth, "bandwidth")?),
            lengths: settings.pick_optional(self.lengths, "lengths")?,
            order: settings.pick_optional(self.order, "order")?,
            steal_share: settings.pick_optional(self.steal_share, "steal_share")?,
            steal_neighbours: settings.pick_optional(self.steal_neighbours, "steal_neighbours")?,
            steal_interval: settings.pick_optional(self.steal_interval, "steal_interval")?,
            steal_bound: settings.pick_optional(self.steal_bound, "steal_bound")?,
            cache: settings.pick_optional(self.cache, "cache")?,
            store_soft: settings.pick_optional(self.store_soft, "store_soft")?,
            store_hard: settings.pick_optional(self.store_hard, "store_hard")?,
            history: Some(settings.pick(self.history, "history")?),
        };
        let tuned = Tuning::default().with(&all.change());
        tuned.map_err(|error| Failure::usage(error.to_string()))
    }
}

/// The flags with which another process gets this tuning.
pub fn flags(tuning: &Tuning) -> Vec<String> {
    let mut flags = Vec::new();
    let mut flag = |name: &str, value: String| flags.extend([format!("--{name}"), value]);
    let span = |Span(ns): Span| format!("{ns}ns");
    let neighbours = match tuning.steal_neighbours {
        0 => "sqrt".to_owned(),
        number => number.to_string(),
    };
    flag("policy", tuning.policy.name().to_owned());
    flag("threshold", tuning.threshold.to_string());
    flag("wait-max", span(tuning.wait_max));
    flag("bandwidth", format!("{}B", tuning.bandwidth_bytes_per_s.round()));
    flag("lengths", tuning.lengths.to_string());
    flag("order", tuning.order.name().to_owned());
    flag("steal-share", tuning.steal_share.to_string());
    flag("steal-neighbours", neighbours);
    flag("steal-interval", span(tuning.steal_interval_start));
    flag("steal-bound", span(tuning.steal_interval_bound));
    flag("cache", format!("{}B", tuning.cache_bytes));
    let history = History { bytes: tuning.history_bytes, age: tuning.history_age };
    flag("history", history.to_string());
    // A node without given limits derives them from its file system.
    let marks = [("store-soft", tuning.store_soft_bytes), ("store-hard", tuning.store_hard_bytes)];
    for (name, bytes) in marks.into_iter().filter(|(_, bytes)| *bytes != UNLIMITED_BYTES) {
        flag(name, format!("{bytes}B"));
    }
    flags
}

/// The tuning of a node, as JSON.
#[derive(Debug, Serialize)]
pub struct TuningReport {
    policy: Option<String>,
    threshold: Option<f64>,
    wait_max_s: Option<f64>,
    bandwidth_bytes_per_s: Option<f64>,
    /// In the format of `--lengths`.
    lengths: Option<String>,
    order: Option<String>,
    steal_share: Option<f64>,
    /// 0: the square root of the nodes.
    steal_neighbours: Option<u32>,
    steal_interval_s: Option<f64>,
    steal_bound_s: Option<f64>,
    cache_bytes: Option<u64>,
    store_soft_bytes: Option<u64>,
    store_hard_bytes: Option<u64>,
    /// Absent if there is no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    history_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_age_s: Option<f64>,
}

impl From<&wire::Tuning> for TuningReport {
    fn from(tuning: &wire::Tuning) -> Self {
        let seconds = |ns: u64| Span(ns).as_secs_f64();
        Self {
            policy: tuning.policy.clone(),
            threshold: tuning.threshold,
            wait_max_s: tuning.wait_max_ns.map(seconds),
            bandwidth_bytes_per_s: tuning.bandwidth_bytes_per_s,
            lengths: lengths(tuning),
            order: tuning.order.clone(),
            steal_share: tuning.steal_share,
            steal_neighbours: tuning.steal_neighbours,
            steal_interval_s: tuning.steal_interval_ns.map(seconds),
            steal_bound_s: tuning.steal_bound_ns.map(seconds),
            cache_bytes: tuning.cache_bytes,
            store_soft_bytes: tuning.store_soft_bytes,
            store_hard_bytes: tuning.store_hard_bytes,
            history_bytes: tuning.history_bytes.filter(|&bytes| bytes != UNLIMITED_BYTES),
            history_age_s: tuning.history_age_ns.filter(|&ns| ns != u64::MAX).map(seconds),
        }
    }
}

fn history(tuning: &wire::Tuning) -> Option<History> {
    let (bytes, age) = (tuning.history_bytes?, Span(tuning.history_age_ns?));
    Some(History { bytes, age })
}

fn lengths(tuning: &wire::Tuning) -> Option<String> {
    tuning.lengths.as_ref().map(|lengths| Lengths::from_wire(lengths).to_string())
}

/// The tuning of a node, as rows of a table.
pub fn rows(tuning: &wire::Tuning) -> Vec<Vec<String>> {
    let seconds = |ns: u64| units::seconds(ns as f64 / 1e9);
    let size = |bytes: u64| match bytes {
        UNLIMITED_BYTES => "unlimited".to_owned(),
        bytes => units::bytes(bytes),
    };
    let neighbours = |number: u32| match number {
        0 => "sqrt".to_owned(),
        number => number.to_string(),
    };
    let rate = |rate: f64| format!("{}/s", units::bytes(rate as u64));
    let rows = [
        ("threshold", tuning.threshold.map(|t| t.to_string())),
        ("longest wait", tuning.wait_max_ns.map(seconds)),
        ("bandwidth assumed", tuning.bandwidth_bytes_per_s.map(rate)),
        ("lengths assumed", lengths(tuning)),
        ("order", tuning.order.clone()),
        ("steal share", tuning.steal_share.map(|share| share.to_string())),
        ("steal neighbours", tuning.steal_neighbours.map(neighbours)),
        ("steal interval", tuning.steal_interval_ns.map(seconds)),
        ("steal bound", tuning.steal_bound_ns.map(seconds)),
        ("cache", tuning.cache_bytes.map(size)),
        ("store, soft mark", tuning.store_soft_bytes.map(size)),
        ("store, hard mark", tuning.store_hard_bytes.map(size)),
        ("history", history(tuning).map(History::shown)),
    ];
    let row = |(name, value): (&str, Option<String>)| Some(vec![name.to_owned(), value?]);
    rows.into_iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        tuning: TuningArgs,
    }

    #[test]
    fn flags_carry_a_tuning_to_another_process() {
        let tuning = Tuning {
            policy: Policy::Adaptive,
            threshold: 0.25,
            wait_max: Span::from_millis(1_500),
            bandwidth_bytes_per_s: 1e7,
            lengths: Lengths::Gamma { shape: 0.5, mean: Span::from_millis(1_500) },
            steal_interval_start: Span::from_millis(3),
            steal_interval_bound: Span::from_secs(50),
            steal_share: 0.3,
            steal_neighbours: 7,
            order: Order::Urgency,
            cache_bytes: 1,
            store_soft_bytes: 2,
            store_hard_bytes: 3,
            history_bytes: (1 << 20) + 77,
            history_age: Span::from_secs(9),
            paused: false,
        };
        for tuning in [tuning, Tuning::default()] {
            let words = std::iter::once("node".to_owned()).chain(flags(&tuning));
            let line = Line::try_parse_from(words).unwrap();
            // With another start value, so that a missing flag shows.
            let other = Tuning { policy: Policy::Mlb, steal_neighbours: 1, ..Tuning::default() };
            assert_eq!(other.with(&line.tuning.change()), Ok(tuning));
        }
    }

    #[test]
    fn defaults_hold_without_flags() {
        let tuning = |words: &[&str]| {
            let words = ["starling"].iter().chain(words);
            let args = Line::try_parse_from(words).unwrap().tuning;
            args.resolve(&Settings::none()).unwrap()
        };
        assert_eq!(tuning(&[]), Tuning::default());
        assert_eq!(tuning(&["--policy", "eft"]).order, Order::Critical);
        assert_eq!(tuning(&["--policy", "flds"]).order, Order::Bytes);
        assert_eq!(tuning(&["--policy", "flds", "--order", "urgency"]).order, Order::Urgency);
    }

    #[test]
    fn lengths_are_a_law_or_measured() {
        let (second, two) = (Span::from_secs(1), Span::from_secs(2));
        let uniform = |low, high| Lengths::Uniform { low, high };
        for (text, lengths) in [
            ("measured", Lengths::Measured),
            ("uniform(1s,2s)", uniform(second, two)),
            ("uniform(1s, 1s)", uniform(second, second)),
            ("2s", uniform(two, two)),
            ("gaussian(2s,1s)", Lengths::Gaussian { mean: two, deviation: second }),
            ("gamma(0.5,2s)", Lengths::Gamma { shape: 0.5, mean: two }),
            ("exponential(2s)", Lengths::Gamma { shape: 1.0, mean: two }),
        ] {
            assert_eq!(text.parse(), Ok(Law(lengths)), "{text}");
            assert_eq!(lengths.to_string().parse(), Ok(Law(lengths)), "{text}");
        }
        for wrong in ["", "long", "uniform(2s,1s)", "gamma(0,1s)", "gaussian(1s)", "pareto(1,2)"] {
            assert!(wrong.parse::<Law>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn neighbours_are_a_number_or_the_root() {
        assert_eq!("sqrt".parse(), Ok(Neighbours(0)));
        assert_eq!("12".parse(), Ok(Neighbours(12)));
        for wrong in ["0", "-1", "all", ""] {
            assert!(wrong.parse::<Neighbours>().is_err(), "{wrong}");
        }
    }
}

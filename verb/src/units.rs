//! Parses values of the command line, and formats figures for people.

use std::str::FromStr;
use std::time::Duration;

pub use lens::report::count;
use workloads::quantity;

/// `90s`, `1h 30m`, `50ms`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timespan(pub Duration);

impl FromStr for Timespan {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        quantity::parse_duration_ns(text).map(Duration::from_nanos).map(Self)
    }
}

/// The time of the day, in nanoseconds since 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the ends of nodes are times of the day")]
pub fn now_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
}
/// The time of the day, in seconds since 1970.
#[must_use]
pub fn now_s() -> u64 {
    now_ns() / 1_000_000_000
}

/// `1Gbit` (bits per second), `100MB`, `100MB/s` (bytes per second); kept in bytes per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bandwidth {
    pub bytes_per_s: f64,
}

impl Default for Bandwidth {
    fn default() -> Self {
        Self { bytes_per_s: 125e6 }
    }
}

impl FromStr for Bandwidth {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a bandwidth such as 1Gbit or 100MB/s");
        let rate = text.trim();
        let rate = rate.strip_suffix("/s").or_else(|| rate.strip_suffix("ps")).unwrap_or(rate);
        let bytes_per_s = match rate.strip_suffix("bit") {
            Some(bits) => {
                let bits = match bits.trim_end() {
                    bits if bits.ends_with(|c: char| c.is_ascii_digit()) => bits.to_owned(),
                    bits => format!("{bits}B"),
                };
                quantity::parse_size_bytes(&bits).map_err(|_| wrong())? as f64 / 8.0
            }
            None => quantity::parse_size_bytes(rate).map_err(|_| wrong())? as f64,
        };
        match bytes_per_s > 0.0 {
            true => Ok(Self { bytes_per_s }),
            false => Err(wrong()),
        }
    }
}

/// `6GiB`, `500MB`; in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        quantity::parse_size_bytes(text).map(Self)
    }
}

/// A factor of at least 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Factor(pub f64);

impl FromStr for Factor {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(number) if number >= 0.0 && number.is_finite() => Ok(Self(number)),
            _ => Err(format!("'{text}' is not a number of at least 0")),
        }
    }
}

/// `12.3 s`, `450 ms`, `1 h 5 min`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 3600.0 => format!("{} h {} min", (s / 3600.0) as u64, (s % 3600.0 / 60.0) as u64),
        s if s >= 60.0 => format!("{} min {:.0} s", (s / 60.0) as u64, (s % 60.0).floor()),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s if s > 0.0 => format!("{:.0} us", s * 1e6),
        _ => "0 s".to_owned(),
    }
}

/// `1.5 GB`: powers of 1000, as usual for networks and disks.
pub fn bytes(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let size = bytes as f64;
    units
        .iter()
        .find(|(unit, _)| size >= *unit)
        .map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{:.1} {name}", size / unit))
}

/// `1 node`, `4 nodes`.
pub fn number_of(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `83 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_count_bits_and_bytes() {
        let rate = |text: &str| text.parse::<Bandwidth>().map(|rate| rate.bytes_per_s);
        assert_eq!(rate("1Gbit"), Ok(125e6));
        assert_eq!(rate("1Gbit/s"), Ok(125e6));
        assert_eq!(rate("8bit"), Ok(1.0));
        assert_eq!(rate("100MB/s"), Ok(100e6));
        assert_eq!(rate("1MiB"), Ok(1048576.0));
        for wrong in ["", "0", "fast", "1Gbyte", "-5MB"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn factors_are_not_negative() {
        assert_eq!("0".parse(), Ok(Factor(0.0)));
        assert_eq!("0.25".parse(), Ok(Factor(0.25)));
        for wrong in ["-1", "nan", "inf", "x"] {
            assert!(wrong.parse::<Factor>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(seconds(3_905.0), "1 h 5 min");
        assert_eq!(seconds(61.9), "1 min 1 s");
        assert_eq!(seconds(12.345), "12.35 s");
        assert_eq!(seconds(0.0451), "45.1 ms");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500_000_000), "1.5 GB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(
            (number_of(1, "node"), number_of(0, "slot")),
            ("1 node".into(), "0 slots".into())
        );
        assert_eq!(percent(0.826), "83 %");
    }
}

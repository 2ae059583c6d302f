//! Durations and sizes that vary by task: a distribution, drawn by seed and index.

use crate::generate::math::{ln, pow};
use crate::generate::random::{Stream, random, uniform};

/// The distribution of a task's duration or size. Negative draws become 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Draw {
    Fixed(u64),
    Uniform { low: u64, high: u64 },
    Gaussian { mean: f64, deviation: f64 },
    Gamma { shape: f64, mean: f64 },
    Exponential { mean: f64 },
}

const FORMS: &str = "expected a value, uniform(low,high), gaussian(mean,deviation), \
                     gamma(shape,mean) or exponential(mean)";
/// Above it, sums of a few values no longer fit into 64 bits.
const VALUE_MAX: f64 = (1_u64 << 62) as f64;

impl Draw {
    /// `parse` reads one value with its unit.
    ///
    /// # Errors
    /// A description of the error if the text has none of the forms.
    pub fn parse(text: &str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<Self, String> {
        let Some(rest) = text.strip_suffix(')') else { return parse(text).map(Self::Fixed) };
        let (name, inner) = rest.split_once('(').ok_or(FORMS)?;
        let values: Vec<&str> = inner.split(',').map(str::trim).collect();
        let draw = match (name.trim(), values.as_slice()) {
            ("uniform", [low, high]) => {
                let (low, high) = (parse(low)?, parse(high)?);
                if low > high {
                    return Err("the lower end is above the upper end".to_owned());
                }
                if low == high { Self::Fixed(low) } else { Self::Uniform { low, high } }
            }
            ("gaussian", [mean, deviation]) => {
                let (mean, deviation) = (parse(mean)? as f64, parse(deviation)? as f64);
                Self::Gaussian { mean, deviation }
            }
            ("gamma", [shape, mean]) => {
                let shape: f64 =
                    shape.parse().map_err(|_| format!("'{shape}' is not a number: a shape"))?;
                if !(1e-3..=1e6).contains(&shape) {
                    return Err(format!("a shape is from 0.001 to 1000000, not {shape}"));
                }
                Self::Gamma { shape, mean: parse(mean)? as f64 }
            }
            ("exponential", [mean]) => Self::Exponential { mean: parse(mean)? as f64 },
            ("uniform", _) => return Err("expected uniform(low,high)".to_owned()),
            _ => return Err(FORMS.to_owned()),
        };
        Ok(draw)
    }

    /// The value of the `index`-th task.
    pub(crate) fn at(&self, seed: u64, stream: u64, index: u64) -> u64 {
        let number = random(seed, stream, index);
        let mut more = Stream::new(number);
        let value = match *self {
            Self::Fixed(value) => return value,
            Self::Uniform { low, high } => return uniform(low, high, number),
            Self::Gaussian { mean, deviation } => mean + deviation * normal(&mut more),
            Self::Gamma { shape, mean } => mean / shape * gamma(shape, &mut more),
            Self::Exponential { mean } => -mean * ln(more.unit()),
        };
        value.clamp(0.0, VALUE_MAX).round() as u64
    }

    pub(crate) fn fixed(&self) -> Option<u64> {
        match self {
            Self::Fixed(value) => Some(*value),
            _ => None,
        }
    }
}

/// Mean 0, deviation 1: the polar method.
fn normal(more: &mut Stream) -> f64 {
    loop {
        let (x, y) = (2.0 * more.unit() - 1.0, 2.0 * more.unit() - 1.0);
        let square = x * x + y * y;
        if square < 1.0 && square > f64::MIN_POSITIVE {
            return x * (-2.0 * ln(square) / square).sqrt();
        }
    }
}

/// Scale 1, mean `shape`: rejection from a cubed normal (Marsaglia and Tsang 2000).
fn gamma(shape: f64, more: &mut Stream) -> f64 {
    if shape < 1.0 {
        let boost = pow(more.unit(), 1.0 / shape);
        return boost * gamma(shape + 1.0, more);
    }
    let third = shape - 1.0 / 3.0;
    let width = 1.0 / (9.0 * third).sqrt();
    loop {
        let x = normal(more);
        let root = 1.0 + width * x;
        if root <= 0.0 {
            continue;
        }
        let cube = root * root * root;
        if ln(more.unit()) < 0.5 * x * x + third * (1.0 - cube + ln(cube)) {
            return third * cube;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::quantity::parse_duration_ns;

    /// Mean and deviation of many draws, in milliseconds.
    fn moments(text: &str) -> (f64, f64) {
        let draw = Draw::parse(text, parse_duration_ns).expect(text);
        let values: Vec<f64> = (0..100_000).map(|i| draw.at(3, 1, i) as f64 / 1e6).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 1e5;
        (mean, variance.sqrt())
    }

    #[test]
    fn moments_are_as_named() {
        let table = [
            ("50ms", 50.0, 0.0),
            ("uniform(0,100ms)", 50.0, 100.0 / 12_f64.sqrt()),
            ("gaussian(50ms,10ms)", 50.0, 10.0),
            ("gamma(4,50ms)", 50.0, 25.0),
            ("gamma(0.5,50ms)", 50.0, 50.0 * 2_f64.sqrt()),
            ("exponential(50ms)", 50.0, 50.0),
        ];
        for (text, mean, deviation) in table {
            let (found, spread) = moments(text);
            assert!((found / mean - 1.0).abs() < 0.01, "{text}: mean {found}");
            assert!((spread - deviation).abs() < 0.015 * mean, "{text}: deviation {spread}");
        }
    }

    #[test]
    fn never_below_nothing() {
        let draw = Draw::parse("gaussian(1ms,10ms)", parse_duration_ns).expect("it is one");
        let zeros = (0..1000).filter(|i| draw.at(1, 1, *i) == 0).count();
        assert!((400..520).contains(&zeros), "{zeros} of 1000 were cut at 0");
    }
}

//! The assumed durations of tasks before any of their kind has ended.

use std::fmt;

use proto::{Span, wire};

use super::TuningError;
use crate::policy::limits::TUNED_SPAN_MAX;

/// The shape parameters of the gamma distribution of assumed task durations.
const LENGTH_SHAPE_MIN: f64 = 1e-3;
const LENGTH_SHAPE_MAX: f64 = 1e6;

/// A distribution of task durations. Its mean and deviation are used.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Lengths {
    /// None: tasks are assumed to be like those that have ended, of any kind.
    #[default]
    Measured,
    Uniform {
        low: Span,
        high: Span,
    },
    Gaussian {
        mean: Span,
        deviation: Span,
    },
    Gamma {
        shape: f64,
        mean: Span,
    },
}

/// Mean and standard deviation, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Moments {
    pub(crate) mean_ns: f64,
    pub(crate) deviation_ns: f64,
}

impl Moments {
    pub(crate) fn mean(self) -> Span {
        Span(self.mean_ns.round() as u64)
    }
    /// The mean remaining time of a running task, seen at a random moment: longer tasks are seen
    /// more often (the mean residual life of renewal theory).
    pub(crate) fn rest(self) -> Span {
        if self.mean_ns <= 0.0 {
            return Span::ZERO;
        }
        let squares = self.mean_ns.powi(2) + self.deviation_ns.powi(2);
        Span((squares / (2.0 * self.mean_ns)).round() as u64)
    }
}

impl Lengths {
    /// `None` if nothing is assumed.
    pub(crate) fn moments(self) -> Option<Moments> {
        let (mean_ns, deviation_ns) = match self {
            Self::Measured => return None,
            Self::Uniform { low, high } => {
                let (low, high) = (low.0 as f64, high.0 as f64);
                (f64::midpoint(low, high), (high - low) / 12_f64.sqrt())
            }
            Self::Gaussian { mean, deviation } => (mean.0 as f64, deviation.0 as f64),
            Self::Gamma { shape, mean } => (mean.0 as f64, mean.0 as f64 / shape.sqrt()),
        };
        Some(Moments { mean_ns, deviation_ns })
    }

    /// Refuses impossible distributions.
    pub(crate) fn check(self) -> Result<(), TuningError> {
        let wrong = |why| Err(TuningError::Lengths { given: self, why });
        let too_long = "the longest that can be given is a day";
        match self {
            Self::Uniform { low, high } if low > high => {
                wrong("the lower end is above the upper one")
            }
            Self::Uniform { high: longest, .. } | Self::Gaussian { deviation: longest, .. }
                if longest > TUNED_SPAN_MAX =>
            {
                wrong(too_long)
            }
            Self::Gaussian { mean, .. } | Self::Gamma { mean, .. } if mean > TUNED_SPAN_MAX => {
                wrong(too_long)
            }
            Self::Gamma { shape, .. }
                if !(LENGTH_SHAPE_MIN..=LENGTH_SHAPE_MAX).contains(&shape) =>
            {
                wrong("the shape is from 0.001 to 1000000")
            }
            _ if self.moments().is_some_and(|moments| moments.mean_ns <= 0.0) => {
                wrong("their mean is to be above 0")
            }
            _ => Ok(()),
        }
    }

    #[must_use]
    pub fn from_wire(lengths: &wire::Lengths) -> Self {
        use wire::lengths::Law;
        match &lengths.law {
            None => Self::Measured,
            Some(Law::Uniform(law)) => {
                Self::Uniform { low: Span(law.low_ns), high: Span(law.high_ns) }
            }
            Some(Law::Gaussian(law)) => {
                Self::Gaussian { mean: Span(law.mean_ns), deviation: Span(law.deviation_ns) }
            }
            Some(Law::Gamma(law)) => Self::Gamma { shape: law.shape, mean: Span(law.mean_ns) },
        }
    }

    #[must_use]
    pub fn to_wire(self) -> wire::Lengths {
        use wire::lengths::{Gamma, Gaussian, Law, Uniform};
        let law = match self {
            Self::Measured => None,
            Self::Uniform { low, high } => {
                Some(Law::Uniform(Uniform { low_ns: low.0, high_ns: high.0 }))
            }
            Self::Gaussian { mean, deviation } => {
                Some(Law::Gaussian(Gaussian { mean_ns: mean.0, deviation_ns: deviation.0 }))
            }
            Self::Gamma { shape, mean } => Some(Law::Gamma(Gamma { shape, mean_ns: mean.0 })),
        };
        wire::Lengths { law }
    }
}

/// In the form that the command line takes.
impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured => f.write_str("measured"),
            Self::Uniform { low, high } => write!(f, "uniform({low:?},{high:?})"),
            Self::Gaussian { mean, deviation } => write!(f, "gaussian({mean:?},{deviation:?})"),
            Self::Gamma { shape, mean } => write!(f, "gamma({shape},{mean:?})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(moments: Moments) -> (f64, f64, f64) {
        let rest_ms = moments.rest().as_secs_f64() * 1e3;
        (moments.mean_ns / 1e6, moments.deviation_ns / 1e6, rest_ms)
    }

    #[test]
    fn laws_have_mean_deviation_and_rest() {
        let ms = Span::from_millis;
        let of = |lengths: Lengths| millis(lengths.moments().unwrap());
        assert_eq!(Lengths::Measured.moments(), None);
        let (mean, deviation, rest) = of(Lengths::Uniform { low: ms(0), high: ms(100) });
        assert!((mean - 50.0).abs() < 1e-9 && (deviation - 28.867_5).abs() < 1e-3);
        assert!((rest - 33.333_3).abs() < 1e-3, "two thirds of the mean, not half: {rest}");
        let equal = Lengths::Uniform { low: ms(80), high: ms(80) };
        assert_eq!(of(equal), (80.0, 0.0, 40.0), "half, where all are alike");
        let (_, _, rest) = of(Lengths::Gamma { shape: 1.0, mean: ms(50) });
        assert!((rest - 50.0).abs() < 1e-6, "an exponential law forgets: {rest}");
        let gamma = Lengths::Gamma { shape: 4.0, mean: ms(50) };
        assert_eq!((of(gamma).0, of(gamma).1), (50.0, 25.0));
        assert_eq!(of(Lengths::Gaussian { mean: ms(9), deviation: ms(0) }), (9.0, 0.0, 4.5));
    }

    #[test]
    fn impossible_laws_are_refused() {
        let (zero, one) = (Span::ZERO, Span::from_secs(1));
        let endless = Span(u64::MAX);
        for wrong in [
            Lengths::Uniform { low: one, high: zero },
            Lengths::Uniform { low: zero, high: zero },
            Lengths::Uniform { low: zero, high: endless },
            Lengths::Gaussian { mean: one, deviation: endless },
            Lengths::Gaussian { mean: endless, deviation: one },
            Lengths::Gamma { shape: 0.0, mean: one },
            Lengths::Gamma { shape: f64::NAN, mean: one },
            Lengths::Gamma { shape: 1.0, mean: zero },
        ] {
            assert!(wrong.check().is_err(), "{wrong}");
            let again = Lengths::from_wire(&wrong.to_wire());
            assert_eq!(again.to_string(), wrong.to_string(), "it travels as it is");
        }
        assert_eq!(Lengths::Measured.check(), Ok(()));
    }
}

//! Logarithm and exponential from the four basic operations. Platform functions differ in the last
//! digit, but a generator's text must yield the same graph everywhere.

use std::f64::consts::LN_2;

/// The natural logarithm of a positive, normal number.
pub(crate) fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0, "{x} has no logarithm here");
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut fraction = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if fraction > std::f64::consts::SQRT_2 {
        fraction /= 2.0;
        exponent += 1;
    }
    // ln f = 2 artanh ((f - 1) / (f + 1)). This series converges quickly near 1.
    let ratio = (fraction - 1.0) / (fraction + 1.0);
    let square = ratio * ratio;
    let series = (0..12).rev().fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    exponent as f64 * LN_2 + 2.0 * ratio * series
}

/// e to the `x`; infinite above the range of numbers, 0 below.
pub(crate) fn exp(x: f64) -> f64 {
    let whole = (x / LN_2).round();
    if whole > 1023.0 {
        return f64::INFINITY;
    }
    if whole < -1022.0 {
        return 0.0;
    }
    let rest = x - whole * LN_2;
    let series = (1..16).rev().fold(1.0, |sum, k| 1.0 + rest / f64::from(k) * sum);
    series * f64::from_bits(((whole as i64 + 1023) as u64) << 52)
}

/// A positive number to any power.
pub(crate) fn pow(base: f64, exponent: f64) -> f64 {
    exp(exponent * ln(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_to_the_platform() {
        for step in 1..2000 {
            let x = f64::from(step) * f64::from(step) / 777.0;
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0), "ln {x}");
            let y = f64::from(step - 1000) / 10.0;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-13, "exp {y}");
        }
        assert!((pow(2.0, 0.5) - std::f64::consts::SQRT_2).abs() < 1e-15);
        assert_eq!(exp(-1e9), 0.0);
        assert!(exp(1e9).is_infinite());
    }
}

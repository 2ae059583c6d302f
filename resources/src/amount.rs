//! Exact amounts in units of 1/10,000.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// An amount of a resource, exact to 1/10,000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Amount(u64);

#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum AmountError {
    #[error("'{0}' is not an amount such as 2, 0.25 or 2GiB")]
    NotAnAmount(String),
    #[error("'{0}' has more than four decimals; the smallest amount is 0.0001")]
    TooFine(String),
    #[error("'{0}' is too large an amount")]
    TooLarge(String),
}

/// Suffixes, the longest first, and their factors.
const SIZES: [(&str, u64); 13] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

impl Amount {
    pub const ZERO: Self = Self(0);
    pub const ONE: Self = Self(Self::PER_ONE);
    /// Units in the amount 1.
    pub const PER_ONE: u64 = 10_000;

    #[must_use]
    pub const fn from_units(units: u64) -> Self {
        Self(units)
    }

    /// The whole number `count`, or `None` if it is too large.
    #[must_use]
    pub const fn whole(count: u64) -> Option<Self> {
        match count.checked_mul(Self::PER_ONE) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// A count of indices, which is always small enough.
    #[must_use]
    pub(crate) const fn count(count: usize) -> Self {
        Self(count as u64 * Self::PER_ONE)
    }

    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }

    /// The whole part: 2 of 2.25.
    #[must_use]
    pub const fn whole_part(self) -> u64 {
        self.0 / Self::PER_ONE
    }

    /// The units of the fraction: 2,500 of 2.25.
    #[must_use]
    pub const fn fraction(self) -> u16 {
        (self.0 % Self::PER_ONE) as u16
    }

    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// Rounds up to an eighth of an octave: at most 12.5 % more, and eight amounts per doubling.
    /// For measured amounts, which would otherwise make one class each. An amount that a user wrote
    /// stays as it is, since a rounded one may fit no node.
    #[must_use]
    pub fn rounded_up(self) -> Self {
        let round = |number: u64| {
            let step = 1_u64 << number.checked_ilog2().unwrap_or(0).saturating_sub(3);
            number.checked_next_multiple_of(step)
        };
        // From 8 on the steps are whole numbers, so that sizes such as 2GiB stay.
        let units = match self.whole_part() {
            0..8 => round(self.0),
            whole => round(whole + u64::from(self.fraction() > 0))
                .and_then(|whole| whole.checked_mul(Self::PER_ONE)),
        };
        Self(units.unwrap_or(u64::MAX))
    }

    /// The text with a unit of size if the amount is a whole number of KiB, such as `2GiB`.
    #[must_use]
    pub fn as_size(self) -> String {
        let bytes = self.whole_part();
        let exact = |(_, factor): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*factor);
        match SIZES[..4].iter().rev().find(exact) {
            Some((unit, factor)) if self.fraction() == 0 => format!("{}{unit}", bytes / factor),
            _ => self.to_string(),
        }
    }
}

impl Amount {
    /// A size for people, with one decimal: `7.7GiB`.
    #[must_use]
    pub fn rounded_size(self) -> String {
        let bytes = self.whole_part();
        match SIZES[..4].iter().rev().find(|(_, factor)| bytes >= *factor) {
            Some((unit, factor)) if bytes.is_multiple_of(*factor) => {
                format!("{}{unit}", bytes / factor)
            }
            Some((unit, factor)) => {
                let tenths = u128::from(bytes) * 10 / u128::from(*factor);
                format!("{}.{}{unit}", tenths / 10, tenths % 10)
            }
            None => format!("{bytes} bytes"),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fraction() {
            0 => write!(f, "{}", self.whole_part()),
            fraction => {
                let digits = format!("{fraction:04}");
                write!(f, "{}.{}", self.whole_part(), digits.trim_end_matches('0'))
            }
        }
    }
}

impl FromStr for Amount {
    type Err = AmountError;

    /// `2`, `0.25`, `1_000`, `2GiB`, `1.5k`. The result is exact, or an error.
    fn from_str(text: &str) -> Result<Self, AmountError> {
        let wrong = || AmountError::NotAnAmount(text.to_owned());
        let trimmed = text.trim();
        let suffixed = SIZES.iter().find_map(|(unit, factor)| {
            Some((trimmed.strip_suffix(unit)?.trim_end(), *factor))
                .filter(|(n, _)| ends_in_digit(n))
        });
        let bytes = trimmed.strip_suffix('B').map(str::trim_end).filter(|n| ends_in_digit(n));
        let (number, factor) = suffixed.unwrap_or_else(|| (bytes.unwrap_or(trimmed), 1));
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let whole: u128 = digits(whole).ok_or_else(wrong)?;
        let places = decimals.len() as u32;
        if places > 18 {
            return Err(AmountError::TooFine(text.to_owned()));
        }
        let decimals = digits(decimals).ok_or_else(wrong)?;
        let scale = 10_u128.pow(places);
        let large = || AmountError::TooLarge(text.to_owned());
        let per_one = u128::from(factor) * u128::from(Self::PER_ONE);
        let fraction = decimals.checked_mul(per_one).ok_or_else(large)?;
        if !fraction.is_multiple_of(scale) {
            return Err(AmountError::TooFine(text.to_owned()));
        }
        let units =
            whole.checked_mul(per_one).and_then(|units| units.checked_add(fraction / scale));
        units.and_then(|units| u64::try_from(units).ok()).map(Self).ok_or_else(large)
    }
}

fn ends_in_digit(text: &str) -> bool {
    text.ends_with(|c: char| c.is_ascii_digit())
}

/// A number of at most 20 digits; `_` may separate them.
fn digits(text: &str) -> Option<u128> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && ends_in_digit(text) && is_plain;
    let text: String = text.chars().filter(|&c| c != '_').collect();
    (plain && text.len() <= 20).then(|| text.parse().ok())?
}

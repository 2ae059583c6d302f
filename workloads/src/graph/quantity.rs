//! Parses and formats durations and sizes: `90s`, `1h 30m`, `50ms`, `4GiB`, `5MB`.

/// Parses a duration in nanoseconds: one or more numbers with units, or a bare 0.
///
/// # Errors
/// A sentence that describes the error.
pub fn parse_duration_ns(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a duration such as 90s, 1h 30m or 50ms");
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total_ns = 0_f64;
    while !rest.is_empty() {
        let (number, after) = split_number(rest).ok_or_else(wrong)?;
        let unit_end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let unit_ns = match &after[..unit_end] {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" | "sec" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3_600e9,
            "d" => 86_400e9,
            _ => return Err(wrong()),
        };
        total_ns += number * unit_ns;
        rest = after[unit_end..].trim_start();
    }
    whole(total_ns).ok_or_else(|| format!("'{text}' is too long a duration"))
}

/// Parses a size in bytes: `MB` is 10^6, `MiB` is 2^20; a bare number is bytes.
///
/// # Errors
/// A sentence that describes the error.
pub fn parse_size_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size such as 5MB or 4GiB");
    let (number, unit) = split_number(text.trim()).ok_or_else(wrong)?;
    let unit_bytes = match unit.trim() {
        "" | "B" => 1.0,
        "k" | "kB" | "KB" => 1e3,
        "M" | "MB" => 1e6,
        "G" | "GB" => 1e9,
        "T" | "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    whole(number * unit_bytes).ok_or_else(|| format!("'{text}' is too large a size"))
}

/// Formats a duration in the largest unit that keeps it whole; the inverse of
/// [`parse_duration_ns`].
#[must_use]
pub fn format_duration_ns(duration_ns: u64) -> String {
    if duration_ns == 0 {
        return "0s".to_owned();
    }
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
    for (unit_ns, unit) in units {
        if duration_ns.is_multiple_of(unit_ns) {
            return format!("{}{unit}", duration_ns / unit_ns);
        }
    }
    unreachable!("every whole number is a multiple of 1")
}

fn split_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, &text[end..]))
}

/// Rounds to a whole number, small enough for arithmetic in 64 bits.
fn whole(number: f64) -> Option<u64> {
    (number <= (1_u64 << 62) as f64).then_some(number.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let ok = [
            ("90s", 90_000_000_000),
            ("1h 30m", 5_400_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("50ms", 50_000_000),
            ("1.5s", 1_500_000_000),
            ("0", 0),
            ("7ns", 7),
        ];
        for (text, duration_ns) in ok {
            assert_eq!(parse_duration_ns(text), Ok(duration_ns), "{text}");
            assert_eq!(parse_duration_ns(&format_duration_ns(duration_ns)), Ok(duration_ns));
        }
        for text in ["", "5", "s", "5 parsec", "1..2s", "-1s", "999999999999h"] {
            assert!(parse_duration_ns(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        let ok =
            [("5MB", 5_000_000), ("4GiB", 4 << 30), ("10", 10), ("1.5 kB", 1500), ("1KiB", 1024)];
        for (text, size_bytes) in ok {
            assert_eq!(parse_size_bytes(text), Ok(size_bytes), "{text}");
        }
        for text in ["", "MB", "5 furlongs", "-3", "99999999999TB"] {
            assert!(parse_size_bytes(text).is_err(), "{text}");
        }
    }
}

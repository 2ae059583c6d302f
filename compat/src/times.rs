//! Times as HyperQueue reads them: `HH:MM:SS`, or numbers with words for units.

use std::time::Duration;

use verb::units::Timespan;

/// The longest time, in nanoseconds: sums of two are still 64 bits.
const NS_MAX: u128 = 1 << 62;

/// The words of each unit, and its length in seconds.
const UNITS: [(&[&str], f64); 10] = [
    (&["nsec", "ns"], 1e-9),
    (&["usec", "us", "µs"], 1e-6),
    (&["msec", "ms"], 1e-3),
    (&["seconds", "second", "sec", "s"], 1.0),
    (&["minutes", "minute", "min", "m"], 60.0),
    (&["hours", "hour", "hr", "h"], 3_600.0),
    (&["days", "day", "d"], 86_400.0),
    (&["weeks", "week", "w"], 7.0 * 86_400.0),
    (&["months", "month", "M"], 30.44 * 86_400.0),
    (&["years", "year", "y"], 365.25 * 86_400.0),
];

/// `01:30:00`, `15days 2min 2s`, `1h30m`, `5 minutes`.
pub(crate) fn parse(text: &str) -> Result<Timespan, String> {
    let wrong = || format!("'{text}' is not a time such as 01:30:00 or '1day 2h 30min'");
    let time = match text.contains(':') {
        true => clock(text),
        false => words(text),
    };
    let time = time.ok_or_else(wrong)?;
    match time.as_nanos() <= NS_MAX {
        true => Ok(Timespan(time)),
        false => Err(format!("'{text}' is too long a time")),
    }
}

fn clock(text: &str) -> Option<Duration> {
    let parts: Vec<&str> = text.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else { return None };
    let number = |part: &str| part.parse::<u32>().ok().map(u64::from);
    let (hours, minutes, seconds) = (number(hours)?, number(minutes)?, number(seconds)?);
    (minutes < 60 && seconds < 60)
        .then(|| Duration::from_secs(hours * 3_600 + minutes * 60 + seconds))
}

/// The sum of all numbers. A bare 0 needs no unit.
fn words(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    match rest {
        "" => return None,
        "0" => return Some(Duration::ZERO),
        _ => {}
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest[..end].parse().ok()?;
        let after = rest[end..].trim_start();
        let word_end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let word = &after[..word_end];
        let (_, seconds) = UNITS.iter().find(|(words, _)| words.contains(&word))?;
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = after[word_end..].trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_a_clock_or_in_words() {
        let (minute, hour, day) = (60_000, 3_600_000, 86_400_000);
        for (text, ms) in [
            ("01:10:15", hour + 10 * minute + 15_000),
            ("100:00:00", 100 * hour),
            ("3h 15m 10s", 3 * hour + 15 * minute + 10_000),
            ("1h30m", hour + 30 * minute),
            ("15days 2min 2s", 15 * day + 2 * minute + 2_000),
            ("5 minutes", 5 * minute),
            ("1hour", hour),
            ("2hr 1 second", 2 * hour + 1_000),
            ("100msec", 100),
            ("1w", 7 * day),
            ("1M", 30 * day + day * 44 / 100),
            ("1year", 365 * day + day / 4),
            ("1.5s", 1_500),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Timespan(Duration::from_millis(ms))), "{text}");
        }
        assert_eq!(parse("7ns"), Ok(Timespan(Duration::from_nanos(7))));
        for wrong in
            ["01:60:00", "1:2", "a:b:c", "", "-1:00:00", "90", "5 parsec", "1..2s", "s", "-1s"]
        {
            assert!(parse(wrong).unwrap_err().contains("is not a time"), "{wrong}");
        }
        assert!(parse("999years").unwrap_err().contains("too long"));
    }
}

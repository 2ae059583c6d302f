//! Lists of numbers as texts: `1-10:2, 20, 1_000`.

use std::collections::BTreeSet;

/// The maximum of numbers in one text.
const NUMBERS_MAX: u64 = 10_000_000;

/// The numbers of a text, in its order; each once.
pub(crate) fn parse(text: &str) -> Result<Vec<u64>, String> {
    let wrong = || format!("'{text}' is not a list of numbers such as 1-10:2,20");
    let number = |part: &str| {
        let is_number = part.trim().starts_with(|first: char| first.is_ascii_digit());
        part.trim().replace('_', "").parse::<u64>().ok().filter(|_| is_number).ok_or_else(wrong)
    };
    let (mut out, mut seen) = (Vec::new(), BTreeSet::new());
    for part in text.split(',') {
        let (ends, step) = match part.split_once(':') {
            Some((ends, step)) => (ends, number(step)?),
            None => (part, 1),
        };
        let (first, last) = match ends.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(ends)?, number(ends)?),
        };
        if step == 0 || first > last || (last - first) / step >= NUMBERS_MAX - seen.len() as u64 {
            return Err(wrong());
        }
        out.extend((first..=last).step_by(step as usize).filter(|&id| seen.insert(id)));
    }
    Ok(out)
}

/// Numbers as ranges.
pub(crate) fn text(ids: impl IntoIterator<Item = u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == id => *last = id,
            _ => ranges.push((id, id)),
        }
    }
    let text = |&(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_written() {
        assert_eq!(parse("2-4, 6").unwrap(), [2, 3, 4, 6]);
        assert_eq!(parse("1-9:4,1_000,5").unwrap(), [1, 5, 9, 1000]);
        for wrong in ["", "a", "1-", "3-1", "1-2:0", "0-99999999999"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(text([2, 7, 9, 20, 21, 22]), "2,7,9,20-22");
    }
}

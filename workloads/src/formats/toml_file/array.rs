//! Sets of numbers: the elements of an array, `1-40` or `1,3,5-9`, and ranges in file names.
use crate::limits::GRAPH_TASKS_MAX;

/// Disjoint, ascending ranges; small for any number of elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Array {
    ranges: Vec<Range>,
    count: u32,
    /// The number of digits with leading zeros, if the text has any.
    width: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    first: u64,
    /// An element.
    last: u64,
    /// From one element to the next; at least 1.
    step: u64,
    /// The number of elements of earlier ranges.
    before: u32,
}

impl Range {
    /// `5`, `1-40` or `1-40:5`. Numbers may have `_` between digits.
    fn parse(part: &str, text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not an array such as 1-40, 1-40:5 or 1,3,5-9");
        let number = |number: &str| {
            let digits = number.trim().replace('_', "");
            let is_number = number.trim().starts_with(|first: char| first.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|_| is_number).ok_or_else(wrong)
        };
        let (ends, step) = part.split_once(':').map_or((part, None), |(e, s)| (e, Some(s)));
        let (first, last) = match ends.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None if step.is_none() => (number(ends)?, number(ends)?),
            None => return Err(wrong()),
        };
        let step = step.map_or(Ok(1), number)?;
        if step == 0 {
            return Err(format!("array '{text}': a step is at least 1"));
        }
        if first > last {
            return Err(format!("array '{text}': {first} is above {last}"));
        }
        Ok(Self { first, last: last - (last - first) % step, step, before: 0 })
    }

    fn count(&self) -> u64 {
        ((self.last - self.first) / self.step).saturating_add(1)
    }
}

impl Array {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(|part| Range::parse(part, text));
        let mut ranges = parts.collect::<Result<Vec<_>, _>>()?;
        let width = width(text)?;
        ranges.sort_unstable_by_key(|range| range.first);
        if let Some([early, late]) = ranges.windows(2).find_map(|pair| match pair {
            [early, late] if early.last >= late.first => Some([early, late]),
            _ => None,
        }) {
            let twice = late.first;
            return Err(match (twice - early.first).is_multiple_of(early.step) {
                true => format!("array '{text}': {twice} is there twice"),
                false => format!("array '{text}': its parts overlap at {twice}"),
            });
        }
        let mut count = 0_u64;
        for range in &mut ranges {
            range.before = count as u32;
            count = count.saturating_add(range.count());
            if count > GRAPH_TASKS_MAX as u64 {
                let most = GRAPH_TASKS_MAX;
                return Err(format!("array '{text}' has more than {most} elements"));
            }
        }
        Ok(Self { ranges, count: count as u32, width })
    }

    /// The array of these ascending numbers.
    pub(crate) fn of(numbers: &[u64]) -> Self {
        let mut ranges: Vec<Range> = Vec::new();
        for (before, &number) in numbers.iter().enumerate() {
            match ranges.last_mut() {
                Some(range) if range.last + 1 == number => range.last = number,
                _ => ranges.push(Range {
                    first: number,
                    last: number,
                    step: 1,
                    before: before as u32,
                }),
            }
        }
        Self { ranges, count: numbers.len() as u32, width: None }
    }

    /// The minimum number of digits, if the text has numbers with leading zeros.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn elements(&self) -> impl Iterator<Item = u64> + '_ {
        let each = |range: &Range| (range.first..=range.last).step_by(range.step as usize);
        self.ranges.iter().flat_map(each)
    }

    /// The position of an element; `None` if the array has no such element.
    pub(crate) fn position(&self, element: u64) -> Option<u32> {
        let after = self.ranges.partition_point(|range| range.first <= element);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        let is_there = element <= range.last && (element - range.first).is_multiple_of(range.step);
        is_there.then(|| range.before + ((element - range.first) / range.step) as u32)
    }

    /// The element at a position.
    pub(crate) fn element(&self, position: u32) -> u64 {
        assert!(position < self.count, "position {position} is not in the array");
        let after = self.ranges.partition_point(|range| range.before <= position);
        let range = &self.ranges[after - 1];
        range.first + u64::from(position - range.before) * range.step
    }
}

/// The number of digits of numbers with leading zeros. All numbers of the text must fit it.
fn width(text: &str) -> Result<Option<usize>, String> {
    let ends = |part: &'_ str| part.split(':').next().unwrap_or_default().to_owned();
    let parts: Vec<String> = text.split(',').map(ends).collect();
    let numbers = || parts.iter().flat_map(|part| part.split('-')).map(str::trim);
    let is_padded = |number: &&str| number.len() > 1 && number.starts_with('0');
    let Some(width) = numbers().find(is_padded).map(str::len) else { return Ok(None) };
    let fits = |number: &str| match is_padded(&number) {
        true => number.len() == width,
        false => number.len() >= width,
    };
    match numbers().find(|number| !fits(number)) {
        Some(other) => {
            let padded = numbers().find(is_padded).unwrap_or_default();
            Err(format!("array '{text}': '{padded}' and '{other}' differ in their zeros in front"))
        }
        None => Ok(Some(width)),
    }
}

/// The maximum number of names in one range of a list.
const RANGE_NAMES_MAX: u64 = 1 << 20;

/// Expands `n1..40` to `n1`, `n2` ... `n40`; a leading zero of the first number keeps the width. A
/// text without a range expands to itself.
pub(crate) fn expand_range(text: &str) -> Result<Vec<String>, String> {
    let Some((prefix, first, last, suffix)) = find_range(text) else {
        return Ok(vec![text.to_owned()]);
    };
    let width = if first.starts_with('0') { first.len() } else { 0 };
    let parse = |digits: &str| digits.parse::<u64>().map_err(|_| format!("'{text}' is too large"));
    let (first, last) = (parse(first)?, parse(last)?);
    if first > last {
        return Err(format!("range '{text}': {first} is above {last}"));
    }
    if last - first >= RANGE_NAMES_MAX {
        return Err(format!("range '{text}' stands for more than {RANGE_NAMES_MAX} names"));
    }
    Ok((first..=last).map(|number| format!("{prefix}{number:0width$}{suffix}")).collect())
}

/// Splits at the first `digits..digits`.
pub(crate) fn find_range(text: &str) -> Option<(&str, &str, &str, &str)> {
    let is_digit = |c: char| c.is_ascii_digit();
    let mut from = 0;
    while let Some(found) = text[from..].find("..") {
        let dots = from + found;
        let start = text[..dots].trim_end_matches(is_digit).len();
        let after = &text[dots + 2..];
        let end = after.len() - after.trim_start_matches(is_digit).len();
        if start < dots && end > 0 {
            return Some((&text[..start], &text[start..dots], &after[..end], &after[end..]));
        }
        from = dots + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_with_steps() {
        let array = Array::parse("1-10:4, 20-1_000:490,3_000").unwrap();
        let elements = [1, 5, 9, 20, 510, 1000, 3000];
        assert_eq!(array.elements().collect::<Vec<_>>(), elements);
        assert_eq!(array.count(), 7);
        for (position, &element) in elements.iter().enumerate() {
            assert_eq!(array.position(element), Some(position as u32));
            assert_eq!(array.element(position as u32), element);
        }
        assert_eq!(
            (array.position(6), array.position(10), array.position(1001)),
            (None, None, None)
        );
        let error = |text: &str| Array::parse(text).unwrap_err();
        assert!(error("1-9:0").contains("at least 1"));
        assert!(error("1-9:2,3-5").contains("3 is there twice"));
        assert!(error("1-9:2,4-5").contains("overlap at 4"));
        for wrong in ["1:2", "1-9:", "_1", "1-9:-1", "1--9"] {
            assert!(error(wrong).contains("is not an array"), "{wrong}");
        }
    }

    #[test]
    fn arrays() {
        let array = Array::parse("1,3,5-9").unwrap();
        assert_eq!(array.elements().collect::<Vec<_>>(), [1, 3, 5, 6, 7, 8, 9]);
        assert_eq!(array.count(), 7);
        for (position, element) in array.elements().enumerate() {
            assert_eq!(array.position(element), Some(position as u32));
            assert_eq!(array.element(position as u32), element);
        }
        assert_eq!((array.position(0), array.position(4), array.position(10)), (None, None, None));
        assert_eq!(Array::parse("0-999999").unwrap().count(), 1_000_000);
        for text in ["", "1-", "a", "3-1", "1,1", "1-5,5", "1-99999999999", "-3"] {
            assert!(Array::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn zeros_in_front_give_a_width() {
        let width = |text: &str| Array::parse(text).unwrap().width();
        assert_eq!((width("1-12"), width("0-3"), width("0,5")), (None, None, None));
        assert_eq!(
            (width("0001-0012"), width("08-12"), width("001-1000")),
            (Some(4), Some(2), Some(3))
        );
        assert_eq!(Array::parse("0001-0012").unwrap().elements().last(), Some(12));
        for text in ["01,2", "01,002", "001-12"] {
            assert!(Array::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges() {
        assert_eq!(expand_range("n9..11.txt").unwrap(), ["n9.txt", "n10.txt", "n11.txt"]);
        assert_eq!(expand_range("n08..10").unwrap(), ["n08", "n09", "n10"]);
        for text in ["../x", "a..b", "1..", "plain"] {
            assert_eq!(expand_range(text).unwrap(), [text]);
        }
        assert_eq!(expand_range("../d/n1..2").unwrap(), ["../d/n1", "../d/n2"]);
        assert!(expand_range("n5..1").is_err());
        assert!(expand_range("n1..99999999").is_err());
    }
}

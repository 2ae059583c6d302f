//! Sentences of a paragraph, and how long they are.

use std::ops::Range;

/// Abbreviations: the full stop after them ends no sentence.
const ABBREVIATIONS: [&str; 16] = [
    "e.g", "i.e", "cf", "vs", "etc", "al", "ca", "approx", "resp", "fig", "figs", "eq", "sec",
    "vol", "pp", "incl",
];
/// Marks that may follow the end of a sentence.
pub(super) const CLOSERS: &[char] = &['"', '\'', ')', ']', '*', '_', '”', '’'];
/// Marks that may stand before its beginning.
const OPENERS: &[char] = &['"', '\'', '(', '[', '*', '_', '“', '‘'];

/// The sentences of a text: where each begins and ends.
pub(super) fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut all = Vec::new();
    let mut start = 0;
    for (at, mark) in text.match_indices(['.', '!', '?']) {
        let rest = text[at + mark.len()..].trim_start_matches(CLOSERS);
        let next = rest.trim_start();
        if next.len() < rest.len() && is_start(next) && !is_abbreviated(&text[..at], mark, next) {
            all.push(start..text.len() - rest.len());
            start = text.len() - next.len();
        }
    }
    all.push(start..text.len());
    all.retain(|range| count(&text[range.clone()]) > 0);
    all
}

/// A sentence may begin so.
fn is_start(text: &str) -> bool {
    let first = text.trim_start_matches(OPENERS).chars().next();
    first.is_some_and(|c| c.is_uppercase() || c.is_ascii_digit() || c == '`')
}

/// The full stop after this text belongs to an abbreviation, to an initial, or to `...`.
fn is_abbreviated(before: &str, mark: &str, next: &str) -> bool {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or("");
    let word = word.trim_start_matches(OPENERS);
    let is_initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase);
    let is_number = word.eq_ignore_ascii_case("no") && next.starts_with(|c: char| c.is_numeric());
    let is_known = ABBREVIATIONS.contains(&word.to_lowercase().as_str());
    mark == "." && (is_initial || is_number || is_known || word.ends_with('.'))
}

/// The words of a sentence: those with a letter or a digit.
pub(super) fn count(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<&str> {
        sentences(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn sentences_end_at_full_stops_before_a_beginning() {
        assert_eq!(split("One. Two! Three? Four"), ["One.", "Two!", "Three?", "Four"]);
        assert_eq!(
            split("*One.* **Two.** (Three.) `f` is"),
            ["*One.*", "**Two.**", "(Three.)", "`f` is"]
        );
        assert_eq!(
            split("He said \"yes.\" Then 3 left. 4 came."),
            ["He said \"yes.\"", "Then 3 left.", "4 came."]
        );
    }

    #[test]
    fn abbreviations_numbers_and_names_of_files_end_none() {
        for text in [
            "A map, e.g. Alpha, i.e. `b`, cf. Beta, vs. Gamma, etc. Delta",
            "RocksDB 9.10.0 and version 1.2 of main.rs, at 3.5 GHz",
            "Read xtask/src/tidy.rs and proto.toml, no. 5, Fig. 12",
            "By T. Tobita and (H. Kasahara) et al. (2002)",
            "Where do I change ... This",
            "the file .gitignore is. not",
        ] {
            assert_eq!(split(text), [text]);
        }
    }

    #[test]
    fn words_have_a_letter_or_a_digit() {
        assert_eq!(count("a - b = c, 5 % of `x y`"), 7);
        assert_eq!(split("-- --"), [""; 0]);
    }
}

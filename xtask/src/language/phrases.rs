//! Phrases that must not stay, and a better word for each.

/// The list. It is no source, so its own words do not count.
const LIST: &str = include_str!("phrases.txt");

/// A phrase that must not stay.
#[derive(Debug)]
pub(super) struct Phrase {
    words: Vec<&'static str>,
    /// The phrase is permitted before these words.
    permitted_before: Vec<&'static str>,
    hint: &'static str,
}

/// A phrase that was found in a text.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// The place of its first byte.
    pub(super) at: usize,
    pub(super) phrase: String,
    pub(super) hint: &'static str,
}

/// The whole list.
pub(super) fn phrases() -> Vec<Phrase> {
    LIST.lines().filter_map(parse).collect()
}

/// `PHRASE [NEXT WORDS] = HINT`.
fn parse(line: &'static str) -> Option<Phrase> {
    let (left, hint) = line.split_once(" = ")?;
    if left.starts_with('#') {
        return None;
    }
    let (phrase, permitted) = left.split_once(" [").unwrap_or((left, ""));
    Some(Phrase {
        words: phrase.split(' ').collect(),
        permitted_before: permitted.trim_end_matches(']').split_whitespace().collect(),
        hint,
    })
}

/// A word of a text, in small letters.
struct Word {
    at: usize,
    end: usize,
    text: String,
}

/// Every phrase of the list in this text.
pub(super) fn find(list: &[Phrase], text: &str) -> Vec<Found> {
    let words = words(text);
    let mut found = Vec::new();
    for at in 0..words.len() {
        for phrase in list.iter().filter(|phrase| phrase.is_at(text, &words[at..])) {
            found.push(Found {
                at: words[at].at,
                phrase: phrase.words.join(" "),
                hint: phrase.hint,
            });
        }
    }
    found
}

impl Phrase {
    /// The text begins with this phrase; only spaces stand between its words.
    fn is_at(&self, text: &str, words: &[Word]) -> bool {
        let length = self.words.len();
        let is_joined = |at: usize| text[words[at - 1].end..words[at].at].trim().is_empty();
        let is_here = words.len() >= length
            && words.iter().zip(&self.words).all(|(word, wanted)| word.text == *wanted)
            && (1..length).all(is_joined);
        let next = words.get(length).filter(|_| is_here && is_joined(length));
        is_here && !next.is_some_and(|next| self.permitted_before.contains(&next.text.as_str()))
    }
}

/// Letters and digits, with hyphens and underscores between them. A final `'s` does not count.
fn words(text: &str) -> Vec<Word> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '\'' | '’');
    let mut words = Vec::new();
    let mut rest = 0;
    while let Some(start) = text[rest..].find(is_part) {
        let at = rest + start;
        let end = text[at..].find(|c| !is_part(c)).map_or(text.len(), |length| at + length);
        let word = text[at..end].trim_matches(['\'', '’', '-', '_']).to_lowercase();
        let word = word.trim_end_matches("'s").trim_end_matches("’s");
        words.push(Word { at, end, text: word.to_owned() });
        rest = end;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        find(&phrases(), text).into_iter().map(|it| it.phrase).collect()
    }

    #[test]
    fn each_line_of_the_list_is_a_phrase_with_a_hint() {
        let lines = LIST.lines().filter(|line| !line.starts_with('#')).count();
        let phrases = phrases();
        assert_eq!(phrases.len(), lines);
        for phrase in phrases {
            let text = phrase.words.join(" ");
            assert!(!phrase.hint.is_empty() && !text.contains(['[', ']', '=']), "{text}");
            assert_eq!(found(&text).first(), Some(&text));
        }
    }

    #[test]
    fn phrases_are_found_as_whole_words_in_any_case() {
        assert_eq!(found("Nobody knows; it starts anew."), ["nobody", "anew"]);
        assert_eq!(found("nobody's node"), ["nobody"]);
        assert_eq!(found("it left for\n    good, and so  often"), ["for good", "so often"]);
        assert_eq!(found("the new renewal, so, many of the tasks"), [""; 0]);
    }

    #[test]
    fn a_hyphen_or_an_underscore_makes_one_word() {
        assert_eq!(found("the mutants thief-tells-nobody and staged-for-good"), [""; 0]);
        assert_eq!(found("nobody_waits()"), [""; 0]);
    }

    #[test]
    fn a_good_reason_is_permitted() {
        assert_eq!(found("a change needs a test for good reason"), [""; 0]);
        assert_eq!(found("gone for good. Reason: none"), ["for good"]);
    }

    #[test]
    fn a_free_standing_dash_permits_no_phrase() {
        assert_eq!(found("nobody - it waits"), ["nobody"]);
    }

    #[test]
    fn a_finding_has_its_place_and_a_hint() {
        let found = find(&phrases(), "it is on its way");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].at, found[0].hint), (6, "in transit, being sent"));
    }
}

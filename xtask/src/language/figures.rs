//! How long the sentences of many texts are.

use super::prose::Paragraph;
use super::sentences::{count, sentences};
use crate::Findings;

/// Words of a sentence, on average.
const MEAN_MAX: f64 = 15.0;
/// A sentence with more words is long.
const LONG_WORDS: usize = 35;
/// Of all sentences, those that may be long.
const LONG_SHARE_MAX: f64 = 0.03;
/// The longest sentences are named.
const NAMED_MAX: usize = 20;
const EXCERPT_CHARS: usize = 60;

/// The lengths of the sentences of one kind of text.
#[derive(Debug)]
pub(super) struct Figures {
    kind: &'static str,
    sentences: usize,
    words: usize,
    /// Words, place and beginning of each long sentence.
    long: Vec<(usize, String)>,
}

impl Figures {
    pub(super) fn new(kind: &'static str) -> Self {
        Self { kind, sentences: 0, words: 0, long: Vec::new() }
    }

    /// Counts the sentences of a paragraph. A single word is a label, not a sentence.
    pub(super) fn add(&mut self, file: &str, paragraph: &Paragraph) {
        for range in sentences(&paragraph.text) {
            let words = count(&paragraph.text[range.clone()]);
            if words < 2 {
                continue;
            }
            self.sentences += 1;
            self.words += words;
            if words > LONG_WORDS {
                let line = paragraph.line_of(range.start);
                let text = excerpt(&paragraph.with_code[range]);
                let named = format!("{file}:{line}: {words} words: {text}");
                self.long.push((words, named));
            }
        }
    }

    fn mean(&self) -> f64 {
        self.words as f64 / self.sentences.max(1) as f64
    }

    fn long_share(&self) -> f64 {
        self.long.len() as f64 / self.sentences.max(1) as f64
    }

    fn summary(&self) -> String {
        format!(
            "{}: {} sentences, {:.1} words each (at most {MEAN_MAX}), {:.1} % over {LONG_WORDS} words (at most {})",
            self.kind,
            self.sentences,
            self.mean(),
            self.long_share() * 100.0,
            LONG_SHARE_MAX * 100.0,
        )
    }

    /// The figures, and the longest sentences.
    pub(super) fn report(&self) -> Findings {
        let mut long = self.long.clone();
        long.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let named = long.into_iter().take(NAMED_MAX).map(|(_, named)| named);
        std::iter::once(self.summary()).chain(named).collect()
    }

    /// The report, if a bound is exceeded.
    pub(super) fn findings(&self) -> Findings {
        let is_good = self.mean() <= MEAN_MAX && self.long_share() <= LONG_SHARE_MAX;
        if is_good { Findings::new() } else { self.report() }
    }
}

/// The beginning of a sentence.
pub(super) fn excerpt(text: &str) -> String {
    let mut excerpt: String = text.chars().take(EXCERPT_CHARS).collect();
    if excerpt.len() < text.len() {
        excerpt.push_str(" ...");
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use super::super::prose::paragraphs;
    use super::*;

    fn figures(text: &str) -> Figures {
        let mut figures = Figures::new("comments");
        for paragraph in paragraphs((1..).zip(text.lines())) {
            figures.add("a.md", &paragraph);
        }
        figures
    }

    fn sentence(words: usize) -> String {
        format!("Word{}.\n", " word".repeat(words - 1))
    }

    #[test]
    fn the_average_is_bounded() {
        assert_eq!(figures(&sentence(15)).findings(), Findings::new());
        let findings = figures(&(sentence(15) + &sentence(16))).findings();
        assert!(findings[0].starts_with("comments: 2 sentences, 15.5 words each"), "{findings:?}");
        assert_eq!(findings.len(), 1);
        assert_eq!(figures("").findings(), Findings::new());
    }

    #[test]
    fn few_sentences_may_be_long() {
        let short = sentence(5).repeat(97);
        let long = sentence(36).repeat(3);
        assert_eq!(figures(&(short.clone() + &long)).findings(), Findings::new());
        let findings = figures(&(short + &long + &sentence(37))).findings();
        assert_eq!(findings.len(), 5);
        assert!(findings[1].starts_with("a.md:101: 37 words: Word word"), "{findings:?}");
    }

    #[test]
    fn a_single_word_is_no_sentence() {
        assert_eq!(figures("One.\n\nTwo\n").sentences, 0);
    }
}

//! Plain technical English: short sentences, no banned phrase, one sentence a line in Markdown.
//!
//! The lengths are those of all Markdown together, and of all comments together. Banned phrases
//! must not be in Markdown, in comments, in names of functions, or in string literals, those of
//! tests and scripts included. Other code does not count: blocks of code, and inline code.

mod figures;
mod hash;
mod phrases;
mod prose;
mod rust;
mod sentences;

use std::path::Path;

use crate::Findings;
use crate::texts::{Text, is_script, texts};
use figures::Figures;
use phrases::Phrase;
use prose::{Paragraph, paragraphs};
use rust::{Kind, Piece};
use sentences::{CLOSERS, sentences};

/// The literals of this check and of its tests contain the phrases that it looks for.
const OWN: &str = "xtask/src/language/";

pub(crate) fn check(texts: &[Text]) -> Findings {
    let mut review = Review::default();
    review.read(texts);
    review.findings()
}

/// The figures and the longest sentences, whether or not they are too long, and all findings.
pub(crate) fn report(root: &Path) -> Findings {
    let (texts, unread) = texts(root);
    let mut review = Review { findings: unread, ..Review::default() };
    review.read(&texts);
    for line in review.markdown.report().into_iter().chain(review.comments.report()) {
        println!("{line}");
    }
    review.findings()
}

/// All that was read so far.
struct Review {
    list: Vec<Phrase>,
    markdown: Figures,
    comments: Figures,
    findings: Findings,
}

impl Default for Review {
    fn default() -> Self {
        Self {
            list: phrases::phrases(),
            markdown: Figures::new("Markdown"),
            comments: Figures::new("comments"),
            findings: Findings::new(),
        }
    }
}

impl Review {
    fn read(&mut self, texts: &[Text]) {
        for Text { name, text } in texts {
            if name.ends_with(".md") {
                self.markdown(name, text);
            } else {
                self.source(name, text);
            }
        }
    }

    fn findings(mut self) -> Findings {
        self.findings.extend(self.markdown.findings());
        self.findings.extend(self.comments.findings());
        self.findings
    }

    fn markdown(&mut self, name: &str, text: &str) {
        for paragraph in paragraphs((1..).zip(text.lines())) {
            self.phrases(name, &paragraph.text, |at| paragraph.line_of(at));
            if paragraph.has_sentences {
                self.markdown.add(name, &paragraph);
                self.findings.extend(two_on_a_line(name, &paragraph));
                self.findings.extend(one_on_two_lines(name, &paragraph));
            }
        }
    }

    fn source(&mut self, name: &str, text: &str) {
        let has_hashes = is_script(name) || name.ends_with(".toml");
        let pieces = if has_hashes { hash::pieces(text) } else { rust::pieces(text) };
        for piece in pieces {
            match piece.kind {
                Kind::Comment(_) => self.comment(name, &piece),
                Kind::Literal if !name.starts_with(OWN) => {
                    let literal = plain(&piece.text);
                    let line = |at: usize| piece.line + literal[..at].matches('\n').count();
                    self.phrases(name, &literal, line);
                }
                Kind::Literal => {}
            }
        }
        if name.ends_with(".rs") && !name.starts_with(OWN) {
            for (line, function) in functions(text) {
                self.phrases(name, &function.replace('_', " "), |_| line);
            }
        }
    }

    fn comment(&mut self, name: &str, piece: &Piece) {
        for paragraph in paragraphs((piece.line..).zip(piece.text.lines())) {
            self.phrases(name, &paragraph.text, |at| paragraph.line_of(at));
            if paragraph.has_sentences {
                self.comments.add(name, &paragraph);
            }
        }
    }

    fn phrases(&mut self, name: &str, text: &str, line_of: impl Fn(usize) -> usize) {
        for found in phrases::find(&self.list, text) {
            let (line, phrase, hint) = (line_of(found.at), found.phrase, found.hint);
            self.findings.push(format!("{name}:{line}: \"{phrase}\"; better: {hint}"));
        }
    }
}

/// The names of the functions of a source, with their lines.
fn functions(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let name_of = |line: &'_ str| -> Option<std::ops::Range<usize>> {
        let begin = line.len() - line.trim_start().len();
        let at = if line[begin..].starts_with("fn ") { begin } else { line.find(" fn ")? + 1 };
        let name = at + 3;
        let length = line[name..].find(|c: char| !c.is_alphanumeric() && c != '_')?;
        (length > 0 && !line[..at].contains("//")).then_some(name..name + length)
    };
    (1..).zip(text.lines()).filter_map(move |(number, line)| Some((number, &line[name_of(line)?])))
}

/// A literal as a reader sees it, byte for byte: without `\n` and `\t`, and with blanked-out
/// `{names}`. Braces around other text do not count.
fn plain(literal: &str) -> String {
    let spaced = literal.replace("\\n", "  ").replace("\\t", "  ").replace("\\\n", " \n");
    let mut plain = String::with_capacity(spaced.len());
    let mut rest = spaced.as_str();
    while let Some(open) = rest.find('{') {
        plain.push_str(&rest[..=open]);
        rest = &rest[open + 1..];
        let length = rest.find('}').filter(|&length| is_argument(&rest[..length])).unwrap_or(0);
        plain.extend(std::iter::repeat_n('x', length));
        rest = &rest[length..];
    }
    plain + rest
}

/// The text between two braces is the name of a value and its format.
fn is_argument(text: &str) -> bool {
    !text.contains(|c: char| c.is_whitespace() || matches!(c, '{' | '"'))
}

/// Lines that hold more than one sentence.
fn two_on_a_line(name: &str, paragraph: &Paragraph) -> Findings {
    let mut findings = Findings::new();
    let mut last_line = 0;
    for sentence in sentences(&paragraph.text) {
        let line = paragraph.line_of(sentence.start);
        if line == last_line {
            let text = figures::excerpt(&paragraph.with_code[sentence.clone()]);
            findings.push(format!("{name}:{line}: a second sentence on the line: {text}"));
        }
        last_line = paragraph.line_of(sentence.end.saturating_sub(1));
    }
    findings
}

/// Lines that end within a sentence. A colon or a semicolon may end a line.
fn one_on_two_lines(name: &str, paragraph: &Paragraph) -> Findings {
    let ends = |line: &str| line.trim_end_matches(CLOSERS).ends_with(['.', '!', '?', ':', ';']);
    let within = paragraph.lines().filter(|(_, line, is_last)| !is_last && !ends(line));
    let finding = |(number, line, _): (usize, &str, bool)| {
        let text = figures::excerpt(line);
        format!("{name}:{number}: the sentence continues on the next line: {text}")
    };
    within.map(finding).collect()
}

#[cfg(test)]
mod tests;

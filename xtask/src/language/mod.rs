//! Plain technical English: short sentences, no banned phrase, one sentence a line in Markdown.
//!
//! The lengths are those of all Markdown together, and of all comments together. Banned phrases
//! must not be in Markdown, in comments, or in the string literals of the product. Code does not
//! count: blocks of code, inline code, and the modules and files of tests.

mod figures;
mod phrases;
mod prose;
mod rust;
mod sentences;

use std::fs;
use std::path::Path;

use crate::{Findings, tidy};
use figures::Figures;
use phrases::Phrase;
use prose::{Paragraph, paragraphs};
use rust::{Kind, Piece};
use sentences::{CLOSERS, sentences};

/// A test is no part of the product: its literals are free.
const TEST_FOLDERS: [&str; 3] = ["tests", "examples", "benches"];

pub(crate) fn check(root: &Path) -> Findings {
    let mut text = Text::default();
    text.read(root);
    text.findings()
}

/// The figures and the longest sentences, whether or not they are too long, and all findings.
pub(crate) fn report(root: &Path) -> Findings {
    let mut text = Text::default();
    text.read(root);
    for line in text.markdown.report().into_iter().chain(text.comments.report()) {
        println!("{line}");
    }
    text.findings()
}

/// All that was read so far.
struct Text {
    list: Vec<Phrase>,
    markdown: Figures,
    comments: Figures,
    findings: Findings,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            list: phrases::phrases(),
            markdown: Figures::new("Markdown"),
            comments: Figures::new("comments"),
            findings: Findings::new(),
        }
    }
}

impl Text {
    fn read(&mut self, root: &Path) {
        for path in tidy::files(root, &[".md", ".rs", ".proto"]) {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            match fs::read_to_string(&path) {
                Ok(text) if name.ends_with(".md") => self.markdown(&name, &text),
                Ok(text) => self.source(&name, &text),
                Err(error) => self.findings.push(format!("{name}: {error}")),
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
        let tests_from = tests_from(name, text);
        for piece in rust::pieces(text) {
            match piece.kind {
                Kind::Comment(_) => self.comment(name, &piece),
                Kind::Literal if piece.line < tests_from => {
                    let literal = plain(&piece.text);
                    let line = |at: usize| piece.line + literal[..at].matches('\n').count();
                    self.phrases(name, &literal, line);
                }
                Kind::Literal => {}
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

/// A literal as a reader sees it, byte for byte: without `\n`, and with blanked-out `{names}`.
fn plain(literal: &str) -> String {
    let spaced = literal.replace("\\n", "  ").replace("\\\n", " \n");
    let mut is_name = false;
    let blank = |c: char| {
        is_name = (is_name || c == '{') && c != '}';
        if is_name && c.is_ascii_alphanumeric() { 'x' } else { c }
    };
    spaced.chars().map(blank).collect()
}

/// The line from which on a source has tests alone.
fn tests_from(name: &str, text: &str) -> usize {
    let mut folders: Vec<&str> = name.split('/').collect();
    let file = folders.pop().unwrap_or("");
    let is_test_file =
        file == "tests.rs" || file.ends_with("_tests.rs") || file.starts_with("test_");
    if is_test_file || folders.iter().any(|folder| TEST_FOLDERS.contains(folder)) {
        return 0;
    }
    let lines: Vec<&str> = text.lines().collect();
    let is_module = |pair: &[&str]| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    lines.windows(2).position(is_module).map_or(usize::MAX, |at| at + 1)
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

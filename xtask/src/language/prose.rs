//! Paragraphs of Markdown: of a file, or of a comment.

use std::iter::once;

/// A paragraph, a list item, a heading or the row of a table. Its lines are joined by spaces.
#[derive(Default, Debug)]
pub(super) struct Paragraph {
    /// Inline code is blanked out: each of its bytes is an `x`.
    pub(super) text: String,
    /// The same with its code, for messages.
    pub(super) with_code: String,
    /// Where each line begins in the text, and its number in the file.
    lines: Vec<(usize, usize)>,
    /// No heading and no row of a table: its sentences count.
    pub(super) has_sentences: bool,
}

impl Paragraph {
    /// The line of the file that has this byte of the text.
    pub(super) fn line_of(&self, at: usize) -> usize {
        let after = self.lines.partition_point(|(start, _)| *start <= at);
        after.checked_sub(1).map_or(0, |index| self.lines[index].1)
    }

    /// Each line: its number, its text, and whether it is the last one.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let next = |index: usize| self.lines.get(index + 1).map(|(start, _)| start - 1);
        self.lines.iter().enumerate().map(move |(index, &(start, number))| {
            let end = next(index).unwrap_or(self.text.len());
            (number, &self.with_code[start..end], end == self.text.len())
        })
    }

    fn push(&mut self, number: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), number));
        self.text.push_str(text);
    }
}

/// A line of a file and its number.
pub(super) type Line<'a> = (usize, &'a str);

/// The paragraphs of these lines. Blocks of code are left out.
pub(super) fn paragraphs<'a>(lines: impl Iterator<Item = Line<'a>>) -> Vec<Paragraph> {
    let mut all = Vec::new();
    let mut open = Paragraph { has_sentences: true, ..Paragraph::default() };
    let mut fence: Option<&str> = None;
    for (number, line) in lines.chain(once((0, ""))) {
        let line = line.trim();
        let is_fence = line.starts_with("```") || line.starts_with("~~~");
        let is_code = fence.is_some();
        if is_fence && fence.is_none_or(|mark| line.starts_with(mark)) {
            fence = if is_code { None } else { Some(&line[..3]) };
        }
        if is_code && !is_fence {
            continue;
        }
        let item = item(line);
        let is_apart = line.starts_with(['#', '|']);
        if is_fence || is_apart || line.is_empty() || item.is_some() {
            close(&mut open, &mut all);
        }
        if is_apart {
            let mut row = Paragraph::default();
            row.push(number, line);
            close(&mut row, &mut all);
        } else if !is_fence && !line.is_empty() {
            open.push(number, item.unwrap_or(line));
        }
    }
    all
}

fn close(open: &mut Paragraph, all: &mut Vec<Paragraph>) {
    let next = Paragraph { has_sentences: open.has_sentences, ..Paragraph::default() };
    let mut done = std::mem::replace(open, next);
    if !done.text.is_empty() {
        let blank = without_code(&done.text);
        done.with_code = std::mem::replace(&mut done.text, blank);
        all.push(done);
    }
}

/// What follows the mark of a list item or of a quotation.
fn item(line: &str) -> Option<&str> {
    let (mark, rest) = line.split_once(' ')?;
    let number = mark.trim_end_matches(['.', ')']);
    let is_number = number.len() < mark.len() && number.bytes().all(|b| b.is_ascii_digit());
    (matches!(mark, "-" | "*" | "+" | ">") || (is_number && !number.is_empty()))
        .then_some(rest.trim_start())
}

/// The text with inline code blanked out, byte by byte. The backticks stay.
fn without_code(text: &str) -> String {
    let mut blank = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..].bytes().take_while(|&byte| byte == b'`').count();
        let (before, after) = rest.split_at(start + ticks);
        blank.push_str(before);
        match closing(after, ticks) {
            Some(length) => {
                blank.extend(std::iter::repeat_n('x', length));
                blank.push_str(&after[length..length + ticks]);
                rest = &after[length + ticks..];
            }
            None => rest = after,
        }
    }
    blank.push_str(rest);
    blank
}

/// How many bytes stand before a run of exactly this number of backticks.
fn closing(text: &str, ticks: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(start) = text[at..].find('`') {
        let run = text[at + start..].bytes().take_while(|&byte| byte == b'`').count();
        if run == ticks {
            return Some(at + start);
        }
        at += start + run;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Paragraph> {
        paragraphs((1..).zip(text.lines()))
    }

    fn texts(text: &str) -> Vec<String> {
        of(text).into_iter().map(|it| it.text).collect()
    }

    #[test]
    fn paragraphs_items_headings_and_rows_are_apart() {
        let text = "# A\none\ntwo\n\nthree\n* four\n  five\n2. six\n| a | b |\n> seven\n";
        let all = texts(text);
        assert_eq!(all, ["# A", "one two", "three", "four five", "six", "| a | b |", "seven"]);
        let sentences: Vec<bool> = of(text).iter().map(|it| it.has_sentences).collect();
        assert_eq!(sentences, [false, true, true, true, true, false, true]);
    }

    #[test]
    fn code_is_left_out() {
        assert_eq!(texts("a\n```sh\n# nobody\n```\nb\n  ~~~\nc\n  ```\n  ~~~\nd"), ["a", "b", "d"]);
        assert_eq!(texts("say `nobody.\nA` and ``a ` b`` x"), ["say `xxxxxxxxx` and ``xxxxx`` x"]);
        assert_eq!(texts("an open ` tick"), ["an open ` tick"]);
    }

    #[test]
    fn a_paragraph_knows_its_lines() {
        let all = of("a\n\nbcd\nef\n");
        let lines = [0, 3, 4, 5].map(|at| all[1].line_of(at));
        assert_eq!((all[1].text.as_str(), lines), ("bcd ef", [3, 3, 4, 4]));
    }
}

//! Comments and string literals of Rust and of protocol files.

/// The text of a comment or a literal, with its first line. Comments that follow each other on
/// lines of their own are one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) line: usize,
    pub(super) text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Of a comment only lines with the same mark belong together.
    Comment(Mark),
    Literal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// `//`
    Plain,
    /// `///`
    Item,
    /// `//!`
    Module,
    /// Between `/*` and `*/`.
    Block,
}

/// Reads a source from its beginning.
struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    /// Only spaces stand before this place on its line.
    is_line_start: bool,
    /// The last comment, if no code came since: its line, and whether it was alone on it.
    open: Option<(usize, bool)>,
    pieces: Vec<Piece>,
}

/// All comments and literals of a source, in order.
pub(super) fn pieces(source: &str) -> Vec<Piece> {
    let mut lexer =
        Lexer { rest: source, line: 1, is_line_start: true, open: None, pieces: Vec::new() };
    while !lexer.rest.is_empty() {
        lexer.step();
    }
    lexer.pieces
}

impl<'a> Lexer<'a> {
    fn step(&mut self) {
        let rest = self.rest;
        if rest.starts_with("//") {
            self.line_comment();
        } else if rest.starts_with("/*") {
            self.block_comment();
        } else if let Some(hashes) = raw_hashes(rest) {
            self.raw_literal(hashes);
        } else if let Some(inner) = rest.strip_prefix('"') {
            let length = literal_length(inner);
            self.literal(1, length, 1);
        } else if let Some(length) = char_length(rest) {
            self.take(length);
        } else {
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let first = rest.chars().next().map_or(1, char::len_utf8);
            self.take(word.max(first));
        }
    }

    /// Moves on, and counts lines.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.line += taken.matches('\n').count();
        let last = taken.rsplit('\n').next().unwrap_or("");
        if !taken.trim().is_empty() {
            self.open = None;
        }
        self.is_line_start = (self.is_line_start || taken.contains('\n')) && last.trim().is_empty();
        taken
    }

    fn line_comment(&mut self) {
        let (line, is_alone, open) = (self.line, self.is_line_start, self.open);
        let length = self.rest.find('\n').unwrap_or(self.rest.len());
        let text = self.take(length);
        let (mark, text) = match text.as_bytes().get(2) {
            Some(b'/') if text.as_bytes().get(3) != Some(&b'/') => (Mark::Item, &text[3..]),
            Some(b'!') => (Mark::Module, &text[3..]),
            _ => (Mark::Plain, &text[2..]),
        };
        let kind = Kind::Comment(mark);
        let is_next = open == Some((line - 1, true)) && is_alone;
        match self.pieces.last_mut() {
            Some(piece) if is_next && piece.kind == kind => {
                piece.text.push('\n');
                piece.text.push_str(text);
            }
            _ => self.pieces.push(Piece { kind, line, text: text.to_owned() }),
        }
        self.open = Some((line, is_alone));
    }

    /// Block comments nest.
    fn block_comment(&mut self) {
        let (mut depth, mut length) = (0_usize, 0);
        while let Some(at) = self.rest[length..].find(['/', '*']) {
            let here = &self.rest[length + at..];
            let is_mark = here.starts_with("/*") || here.starts_with("*/");
            match is_mark {
                true if here.starts_with("/*") => depth += 1,
                true => depth -= 1,
                false => {}
            }
            length += at + if is_mark { 2 } else { 1 };
            if depth == 0 {
                break;
            }
        }
        let length = if depth == 0 { length } else { self.rest.len() };
        let line = self.line;
        let text = self.take(length).trim_start_matches("/*").trim_end_matches("*/");
        let text = text.trim_start_matches(['*', '!']).to_owned();
        self.pieces.push(Piece { kind: Kind::Comment(Mark::Block), line, text });
    }

    fn raw_literal(&mut self, hashes: usize) {
        let quote = self.rest.find('"').unwrap_or(0) + 1;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = self.rest[quote..].find(&end).unwrap_or(self.rest.len() - quote);
        let closing = end.len().min(self.rest.len() - quote - length);
        self.literal(quote, length, closing);
    }

    fn literal(&mut self, open: usize, length: usize, close: usize) {
        let line = self.line;
        let close = close.min(self.rest.len() - open - length);
        let text = self.take(open + length + close)[open..open + length].to_owned();
        self.pieces.push(Piece { kind: Kind::Literal, line, text });
    }
}

/// `r"`, `r#"`, `br#"`: how many hashes.
fn raw_hashes(text: &str) -> Option<usize> {
    let text = text.strip_prefix('b').unwrap_or(text).strip_prefix('r')?;
    let hashes = text.bytes().take_while(|&byte| byte == b'#').count();
    text[hashes..].starts_with('"').then_some(hashes)
}

/// The bytes before the closing quote.
fn literal_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return at,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

/// The length of a character literal. A lifetime is none.
fn char_length(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('\'')?;
    let first = inner.chars().next()?;
    let length = match first {
        '\\' => 2 + inner.get(2..)?.find('\'')?,
        first => first.len_utf8(),
    };
    inner[length..].starts_with('\'').then_some(length + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<(usize, String)> {
        pieces(source).into_iter().map(|piece| (piece.line, piece.text)).collect()
    }

    fn piece(line: usize, text: &str) -> (usize, String) {
        (line, text.to_owned())
    }

    #[test]
    fn comments_on_lines_of_their_own_are_one_text() {
        let source = "//! a\n//! b\n\n/// c\n// d\n    // e\nlet x = 1; // f\n// g\n";
        let all = [(1, " a\n b"), (4, " c"), (5, " d\n e"), (7, " f"), (8, " g")];
        assert_eq!(texts(source), all.map(|(line, text)| piece(line, text)));
        let kinds: Vec<Kind> = pieces(source).iter().map(|piece| piece.kind).collect();
        let marks = [Mark::Module, Mark::Item, Mark::Plain, Mark::Plain, Mark::Plain];
        assert_eq!(kinds, marks.map(Kind::Comment));
    }

    #[test]
    fn block_comments_nest() {
        let source = "/*!\na /* b */\nc\n*/\nfn f() {} /* d */ \"e\"";
        let all = [(1, "\na /* b */\nc\n"), (5, " d "), (5, "e")];
        assert_eq!(texts(source), all.map(|(line, text)| piece(line, text)));
    }

    #[test]
    fn literals_are_told_from_comments_lifetimes_and_characters() {
        let source =
            "f::<'a>('\"', '\\'', \"a // b \\\" c\", r#\"d \" e\"#, b\"f\", x);\n\"g\n\" // h";
        let all = [(1, "a // b \\\" c"), (1, "d \" e"), (1, "f"), (2, "g\n"), (3, " h")];
        assert_eq!(texts(source), all.map(|(line, text)| piece(line, text)));
        assert_eq!(texts("r#type \"open"), [piece(1, "open")]);
        assert_eq!(texts("bar\"a\" for\"b\""), [piece(1, "a"), piece(1, "b")]);
    }
}

//! Comments and string literals of manifests and shell scripts. Comments begin with `#`.

use super::rust::{Kind, Mark, Piece};

/// Three of a quote enclose a text of several lines in a manifest.
const QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];
const COMMENT: Kind = Kind::Comment(Mark::Plain);

/// All comments and literals, in order. Comments on lines that follow each other are one. The
/// first line of a script, which names its shell, is neither.
pub(super) fn pieces(source: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = if source.starts_with("#!") { line_length(source) } else { 0 };
    // The line of the last comment that was alone on its line.
    let mut alone = None;
    while let Some(next) = source[at..].find(['#', '"', '\'', '\\']) {
        at += next;
        let (before, rest) = source.split_at(at);
        let line = 1 + before.matches('\n').count();
        let is_word_start = before.is_empty() || before.ends_with(char::is_whitespace);
        if rest.starts_with('#') && is_word_start {
            let length = line_length(rest);
            let is_alone = before.rsplit('\n').next().unwrap_or("").trim().is_empty();
            let is_next = is_alone && alone.is_some_and(|last| last + 1 == line);
            match pieces.last_mut() {
                Some(piece) if is_next && piece.kind == COMMENT => {
                    piece.text.push('\n');
                    piece.text.push_str(&rest[1..length]);
                }
                _ => pieces.push(Piece { kind: COMMENT, line, text: rest[1..length].to_owned() }),
            }
            alone = is_alone.then_some(line);
            at += length;
        } else if let Some(quote) = QUOTES.into_iter().find(|quote| rest.starts_with(quote)) {
            let inner = &rest[quote.len()..];
            let length = literal_length(inner, quote);
            pieces.push(Piece { kind: Kind::Literal, line, text: inner[..length].to_owned() });
            at += (quote.len() + length + quote.len()).min(rest.len());
        } else {
            // An escaped character, or a `#` within a word.
            let escaped = rest.strip_prefix('\\').and_then(|rest| rest.chars().next());
            at += 1 + escaped.map_or(0, char::len_utf8);
        }
    }
    pieces
}

fn line_length(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The bytes before the closing quote. Only double quotes have escapes.
fn literal_length(text: &str, quote: &str) -> usize {
    let mut from = 0;
    while let Some(next) = text[from..].find(['\\', '"', '\'']) {
        let at = from + next;
        if text[at..].starts_with(quote) {
            return at;
        }
        let is_escape = quote.starts_with('"') && text[at..].starts_with('\\');
        let escaped = text[at + 1..].chars().next().filter(|_| is_escape);
        from = at + 1 + escaped.map_or(0, char::len_utf8);
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str, kind: Kind) -> Vec<(usize, String)> {
        let pieces = pieces(source).into_iter().filter(|piece| piece.kind == kind);
        pieces.map(|piece| (piece.line, piece.text)).collect()
    }

    fn piece(line: usize, text: &str) -> (usize, String) {
        (line, text.to_owned())
    }

    #[test]
    fn comments_begin_with_a_hash_at_the_beginning_of_a_word() {
        let source = "#!/bin/sh\n# a\n# b\n\n# c\nx=${y#z} # d\n# e\n[ $# = 1 ] \\# '#' \"# '\"\n#";
        let all = [(2, " a\n b"), (5, " c"), (6, " d"), (7, " e"), (9, "")];
        assert_eq!(texts(source, COMMENT), all.map(|(line, text)| piece(line, text)));
    }

    #[test]
    fn literals_have_one_or_three_quotes() {
        let source =
            "a = \"b \\\" '\" # it's\nc = 'd \\' x\n\"\"\"e\n\"f\" \\\"\"\"\"\n\"\" '''g'h'''\n\"i";
        let all =
            [(1, "b \\\" '"), (2, "d \\"), (3, "e\n\"f\" \\\""), (5, ""), (5, "g'h"), (6, "i")];
        assert_eq!(texts(source, Kind::Literal), all.map(|(line, text)| piece(line, text)));
    }
}

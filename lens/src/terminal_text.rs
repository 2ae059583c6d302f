//! Makes foreign text safe for a terminal: names, commands, errors, and the output of tasks.

use std::borrow::Cow;

/// The text with its control characters escaped, line ends and tabs included. It stays on one line
/// and in its cell. Nothing in it can move the cursor, or colour or hide the text beside it.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// As [`shown`], for a text of several lines that this program has formatted.
#[must_use]
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    escape(text, |letter| matches!(letter, '\n' | '\t'))
}

fn escape(text: &str, may_stay: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |letter: char| is_control(letter) && !may_stay(letter);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match is_bad(letter) {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
    Cow::Owned(out)
}

/// Control characters, line separators, characters without width, and characters that change the
/// writing direction.
fn is_control(letter: char) -> bool {
    let is_unseen = matches!(letter, '\u{200b}'..='\u{200f}' | '\u{feff}');
    let directs = matches!(letter, '\u{061c}' | '\u{2066}'..='\u{2069}');
    is_unseen || directs || letter.is_control() || matches!(letter, '\u{2028}'..='\u{202e}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_lie_on_a_terminal_is_written_out() {
        let cases = [
            ("plain \u{fc}\u{4e2d} \\", "plain \u{fc}\u{4e2d} \\"),
            ("a\nb\tc\rd", r"a\nb\tc\rd"),
            ("\x1b[31mred\x07", r"\u{1b}[31mred\u{7}"),
            ("\u{9b}2J\u{7f}", r"\u{9b}2J\u{7f}"),
            ("\u{202e}cod.exe", r"\u{202e}cod.exe"),
            ("\u{2066}x\u{2028}", r"\u{2066}x\u{2028}"),
            ("a\u{200b}b\u{feff}\u{61c}", r"a\u{200b}b\u{feff}\u{61c}"),
        ];
        for (text, wanted) in cases {
            assert_eq!(shown(text), wanted);
        }
        assert_eq!(shown_lines("a\n\tb\x1b\r\n"), "a\n\tb\\u{1b}\\r\n");
    }
}

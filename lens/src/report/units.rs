//! Figures and texts for people.

use crate::terminal_text;

/// `1,234,567`.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(super) fn seconds(s: f64) -> String {
    match s {
        _ if s >= 86_400.0 => format!("{:.1} d", s / 86_400.0),
        _ if s >= 7_200.0 => format!("{:.1} h", s / 3_600.0),
        _ if s >= 120.0 => format!("{:.1} min", s / 60.0),
        _ if s >= 1.0 => format!("{s:.2} s"),
        _ if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        _ if s > 0.0 => format!("{:.0} us", s * 1e6),
        _ => "0 s".to_owned(),
    }
}

pub(super) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A text of a user on one line, without characters that change what follows.
pub(super) fn shown(text: &str) -> String {
    terminal_text::shown(text).into_owned()
}

/// A text of a user as one line of a page.
pub(super) fn html(text: &str) -> String {
    escaped(&terminal_text::shown(text))
}

/// A text of a user as text of a page, with its line ends.
pub(super) fn html_lines(text: &str) -> String {
    escaped(&terminal_text::shown_lines(text))
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!((count(1_234_567).as_str(), count(0).as_str()), ("1,234,567", "0"));
        assert_eq!((seconds(0.0123).as_str(), seconds(300.0).as_str()), ("12.3 ms", "5.0 min"));
        assert_eq!((bytes(5).as_str(), bytes(5 << 20).as_str()), ("5 B", "5.0 MiB"));
    }

    #[test]
    fn texts_of_users_stay_texts() {
        assert_eq!(html("<img src=\"x\">&'"), "&lt;img src=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(html("a\n<b"), "a\\n&lt;b");
        assert_eq!(html_lines("a\n<b\r"), "a\n&lt;b\\r");
        assert_eq!(html("a\u{202e}b\u{1b}[2J"), "a\\u{202e}b\\u{1b}[2J");
    }
}

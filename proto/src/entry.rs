//! The placeholder `{i}` in templates of names, files and commands: the entry of a task in its
//! array. Names of files have no other placeholder.
//!
//! `{i:04}` is the entry with leading zeros, at least four digits. `{{i}}` stands for the text
//! `{i}`, and `{{i:04}}` for `{i:04}`.

use std::convert::Infallible;

/// The digits of the largest entry.
const WIDTH_MAX: usize = 20;

/// A template, split at its first placeholder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split<'t> {
    pub before: &'t str,
    /// The minimum number of digits.
    pub width: usize,
    pub after: &'t str,
}

/// The width in the name of a placeholder: `i` or `i:0N`.
#[must_use]
pub fn width(name: &str) -> Option<usize> {
    if name == "i" {
        return Some(1);
    }
    let digits = name.strip_prefix("i:0")?;
    let width = digits.parse().ok().filter(|width| (1..=WIDTH_MAX).contains(width))?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(width)
}

/// The text of an entry for a placeholder of this width.
#[must_use]
pub fn text(entry: u64, width: usize) -> String {
    format!("{entry:0width$}")
}

/// Splits a template at its first placeholder.
#[must_use]
pub fn split(template: &str) -> Option<Split<'_>> {
    let found = next(template, 0)?;
    let (before, after) = (&template[..found.from], &template[found.to..]);
    Some(Split { before, width: found.width, after })
}

/// True if the text contains a placeholder.
#[must_use]
pub fn is_template(text: &str) -> bool {
    split(text).is_some()
}

/// Replaces all placeholders with the entry.
#[must_use]
pub fn expand(template: &str, entry: u64) -> String {
    if !template.contains("{i") {
        return template.to_owned();
    }
    rewrite(template, true, |width| text(entry, width))
}

/// A template of a file name that [`expand`] makes `text` again.
#[must_use]
pub fn literal(text: &str) -> String {
    doubled(text, |name| width(name).is_some())
}

/// True for the name of a placeholder of commands.
#[must_use]
pub fn is_in_command(name: &str, in_array: bool) -> bool {
    let is_file = name.starts_with("in:") || name.starts_with("out:");
    is_file || matches!(name, "job" | "task") || in_array && width(name).is_some()
}

/// A text of a command that becomes `text` again when its placeholders are replaced. `in_array`:
/// the command has the placeholder `{i}`.
#[must_use]
pub fn literal_in_command(text: &str, in_array: bool) -> String {
    doubled(text, |name| is_in_command(name, in_array))
}

/// Doubles the braces around the names of placeholders.
fn doubled(text: &str, is_placeholder: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        let close = rest.find('}').filter(|&close| is_placeholder(&rest[1..close]));
        let piece = &rest[..=close.unwrap_or(0)];
        match close {
            Some(_) => out.extend(["{", piece, "}"]),
            None => out.push_str(piece),
        }
        rest = &rest[piece.len()..];
    }
    out.push_str(rest);
    out
}

/// Replaces each `{name}` that has a value, and `{{name}}` of a placeholder with `{name}`. Other
/// braces stay. `value` gets the name and the replaced text before it.
///
/// # Errors
/// As `value`.
pub fn replace<E>(
    text: &str,
    is_placeholder: impl Fn(&str) -> bool,
    mut value: impl FnMut(&str, &str) -> Result<Option<String>, E>,
) -> Result<String, E> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        let doubled = rest.strip_prefix("{{").and_then(|inner| inner.split_once("}}"));
        let is_literal = |name: &str| !name.contains('}') && is_placeholder(name);
        if let Some((name, after)) = doubled.filter(|(name, _)| is_literal(name)) {
            out.extend(["{", name, "}"]);
            rest = after;
        } else if let Some((name, after)) = rest[1..].split_once('}')
            && let Some(value) = value(name, &out)?
        {
            out.push_str(&value);
            rest = after;
        } else {
            out.push('{');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Replaces the placeholders of a text of a command in which it has no files.
#[must_use]
pub fn expand_without_files(text: &str, job: &str, task: &str, entry: Option<u64>) -> String {
    let value = |name: &str, _: &str| {
        Ok::<_, Infallible>(match name {
            "job" => Some(job.to_owned()),
            "task" => Some(task.to_owned()),
            _ => entry.zip(width(name)).map(|(entry, width)| self::text(entry, width)),
        })
    };
    let Ok(expanded) = replace(text, |name| is_in_command(name, entry.is_some()), value);
    expanded
}

/// Replaces `{i}` with `{i:0WIDTH}`.
#[must_use]
pub fn pad(template: &str, width: usize) -> String {
    rewrite(template, false, |own| match own {
        1 => format!("{{i:0{width}}}"),
        own => format!("{{i:0{own}}}"),
    })
}

/// Removes all placeholders.
#[must_use]
pub fn strip(template: &str) -> String {
    rewrite(template, true, |_| String::new())
}

#[derive(Clone, Copy)]
struct Found {
    from: usize,
    to: usize,
    width: usize,
}

/// The first placeholder from `at` on that is not in double braces.
fn next(text: &str, mut at: usize) -> Option<Found> {
    while let Some(open) = text[at..].find("{i").map(|open| at + open) {
        let close = open + text[open..].find('}')?;
        match width(&text[open + 1..close]) {
            Some(_) if is_escaped(text, open, close) => at = close + 2,
            Some(width) => return Some(Found { from: open, to: close + 1, width }),
            None => at = open + 1,
        }
    }
    None
}

fn is_escaped(text: &str, open: usize, close: usize) -> bool {
    text[..open].ends_with('{') && text[close + 1..].starts_with('}')
}

/// Replaces placeholders. If `unescapes`, double braces become single ones.
fn rewrite(text: &str, unescapes: bool, replace: impl Fn(usize) -> String) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut at = 0;
    while let Some(open) = text[at..].find("{i").map(|open| at + open) {
        let Some(close) = text[open..].find('}').map(|close| open + close) else { break };
        match width(&text[open + 1..close]) {
            Some(_) if open > at && is_escaped(text, open, close) => {
                let cut = usize::from(unescapes);
                out.push_str(&text[at..open - cut]);
                out.push_str(&text[open..close + 2 - cut]);
                at = close + 2;
            }
            Some(width) => {
                out.push_str(&text[at..open]);
                out.push_str(&replace(width));
                at = close + 1;
            }
            None => {
                out.push_str(&text[at..=open]);
                at = open + 1;
            }
        }
    }
    out.push_str(&text[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_take_their_place() {
        let table = [
            ("a-{i}.txt", "a-7.txt"),
            ("{i}{i:03}", "7007"),
            ("{{i}}", "{i}"),
            ("{{i:04}}-{i}", "{i:04}-7"),
            ("{{{i}}}", "{{i}}"),
            (
                "plain {id} {i:4} {i:0} {i:099} {i:+3} {i",
                "plain {id} {i:4} {i:0} {i:099} {i:+3} {i",
            ),
            ("ä{i}ö", "ä7ö"),
        ];
        for (template, expected) in table {
            assert_eq!(expand(template, 7), expected, "{template}");
        }
        assert_eq!(expand("{i:02}", 12345), "12345");
    }

    #[test]
    fn literal_texts_stay() {
        let texts =
            ["{i}", "{{i}}", "{{{i:02}}}", "a{b}{i}é{", "{i", "i}", "{i}{i:04}x", "{i:{i}}", "{}{"];
        for text in texts {
            assert_eq!(expand(&literal(text), 7), text);
        }
        let texts = [
            "{job}",
            "{{task}}",
            "{{{in:x}}}",
            "{in:{job}}",
            "{out:}",
            "{in:x{",
            "{{job}",
            "{job}}",
            "a{b}{i}é{",
            "p{job}/{i}/{{i}}",
        ];
        for text in texts {
            for entry in [None, Some(5)] {
                let literal = literal_in_command(text, entry.is_some());
                assert_eq!(expand_without_files(&literal, "7", "0.3", entry), text);
            }
        }
        let text = "{job}-{task}.{x}{ {i:02} {{i}}";
        assert_eq!(expand_without_files(text, "7", "0.3", None), "7-0.3.{x}{ {i:02} {{i}}");
        assert_eq!(expand_without_files(text, "7", "0.3", Some(5)), "7-0.3.{x}{ 05 {i}");
    }

    #[test]
    fn templates_are_split_padded_and_stripped() {
        let split = split("{{i}} a{i:02}b{i}").expect("it has a placeholder");
        assert_eq!((split.before, split.width, split.after), ("{{i}} a", 2, "b{i}"));
        assert!(!is_template("{{i}}") && !is_template("{j}") && is_template("{i}"));
        assert_eq!(pad("a{i} {{i}} {i:02}", 4), "a{i:04} {{i}} {i:02}");
        assert_eq!(strip("count-{i:03}"), "count-");
    }
}

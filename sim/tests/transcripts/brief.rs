//! A message in few words: the debug form without empty fields and times, and with long lists cut.
//! A task is `partition.index`, an attempt `term.number`.

/// List entries that are shown.
const ENTRIES_MAX: usize = 3;
const CHARS_MAX: usize = 160;

pub(crate) fn text(message: &impl std::fmt::Debug) -> String {
    let (value, _) = parse(&format!("{message:?}"));
    let text = value.to_string();
    match text.char_indices().nth(CHARS_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// Fields that identify a task.
const TASKS: [&str; 5] = ["local", "task", "child", "parent", "locals"];
const ATTEMPTS: [&str; 2] = ["attempt", "attempts"];

/// The number in this field as people write it.
fn number(field: &str, text: &str) -> Option<String> {
    let number: u64 = text.parse().ok()?;
    let split = |bits: u32| format!("{}.{}", number >> bits, number & ((1 << bits) - 1));
    match field {
        _ if TASKS.contains(&field) => Some(split(40)),
        _ if ATTEMPTS.contains(&field) => Some(split(32)),
        "job" => Some("J".to_owned()),
        _ => None,
    }
}

/// Times and version numbers say nothing of the protocol.
fn is_noise(field: &str) -> bool {
    field.ends_with("_ns") || matches!(field, "version" | "tuning" | "settings" | "name")
}

/// One value of the debug form.
enum Value {
    /// A number, a name, a string.
    Plain(String),
    Fields(String, Vec<(String, Self)>),
    List(Vec<Self>),
}

impl Value {
    /// With numbers written as this field demands.
    fn named(self, field: &str) -> Self {
        match self {
            Self::Plain(text) => Self::Plain(number(field, &text).unwrap_or(text)),
            Self::List(entries) => {
                Self::List(entries.into_iter().map(|entry| entry.named(field)).collect())
            }
            Self::Fields(..) => self,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Plain(text) => {
                matches!(text.as_str(), "0" | "0.0" | "false" | "None" | "\"\"" | "b\"\"")
            }
            Self::Fields(_, fields) => fields.iter().all(|(_, value)| value.is_empty()),
            Self::List(entries) => entries.is_empty(),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(text) => f.write_str(text),
            // `Body(Body { .. })` and `Some(..)` need no second name.
            Self::Fields(_, fields) if fields.len() == 1 && fields[0].0.is_empty() => {
                fields[0].1.fmt(f)
            }
            Self::Fields(name, fields) => {
                f.write_str(name)?;
                let shown = fields.iter().filter(|(field, value)| {
                    !is_noise(field) && (!value.is_empty() || TASKS.contains(&field.as_str()))
                });
                for (number, (field, value)) in shown.enumerate() {
                    f.write_str(if number == 0 { " {" } else { "," })?;
                    write!(f, " {field}")?;
                    write!(f, "{}{value}", if field.is_empty() { "" } else { " " })?;
                }
                f.write_str(if self.is_empty() { "" } else { " }" })
            }
            Self::List(entries) => {
                f.write_str("[")?;
                for (number, entry) in entries.iter().take(ENTRIES_MAX).enumerate() {
                    write!(f, "{}{entry}", if number == 0 { "" } else { ", " })?;
                }
                match entries.len() {
                    0..=ENTRIES_MAX => f.write_str("]"),
                    all => write!(f, ", .. {all} in all]"),
                }
            }
        }
    }
}

/// Parses one value at the start, and returns the rest.
fn parse(text: &str) -> (Value, &str) {
    if let Some(rest) = text.strip_prefix('[') {
        let (entries, rest) = entries(rest, ']');
        return (Value::List(entries.into_iter().map(|(_, value)| value).collect()), rest);
    }
    let end = plain_end(text);
    let (name, rest) = text.split_at(end);
    let closing = match rest.trim_start().chars().next() {
        Some('{') => '}',
        Some('(') => ')',
        _ => return (Value::Plain(name.trim().to_owned()), rest),
    };
    let (fields, rest) = entries(&rest.trim_start()[1..], closing);
    (Value::Fields(name.trim().to_owned(), fields), rest)
}

/// The entries up to the closing sign, with the names of their fields.
fn entries(mut text: &str, closing: char) -> (Vec<(String, Value)>, &str) {
    let mut entries = Vec::new();
    loop {
        text = text.trim_start_matches([' ', ',']);
        if let Some(rest) = text.strip_prefix(closing) {
            return (entries, rest);
        }
        if text.is_empty() {
            return (entries, text);
        }
        let mut name = String::new();
        if let Some((field, rest)) = text.split_once(": ")
            && field.chars().all(|c| c.is_alphanumeric() || c == '_')
        {
            name = field.to_owned();
            text = rest;
        }
        let (value, rest) = parse(text);
        let value = value.named(&name);
        entries.push((name, value));
        // A sign that is no part of the debug form of messages: skip it, so that the loop ends.
        text = if rest.len() == text.len() {
            &rest[rest.chars().next().map_or(0, char::len_utf8)..]
        } else {
            rest
        };
    }
}

/// The end of a number, a name or a string.
fn plain_end(text: &str) -> usize {
    let start = usize::from(text.starts_with("b\""));
    if text[start..].starts_with('"') {
        let mut escaped = false;
        for (at, sign) in text.char_indices().skip(start + 1) {
            match sign {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return at + 1,
                _ => {}
            }
        }
        return text.len();
    }
    text.find([',', '}', ')', ']', '{', '(']).unwrap_or(text.len())
}

#[test]
fn empty_fields_go_and_long_lists_are_cut() {
    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    struct Inner {
        job: u64,
        by: &'static str,
        list: Vec<u32>,
        none: Option<u32>,
    }
    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    enum Body {
        Ended(Inner),
    }
    let body =
        Body::Ended(Inner { job: 7, by: "a, \"b\" }", list: vec![1, 2, 3, 4, 5], none: None });
    assert_eq!(text(&body), "Inner { job J, by \"a, \\\"b\\\" }\", list [1, 2, 3, .. 5 in all] }");
    let body = Body::Ended(Inner { job: 9, by: "", list: vec![], none: Some(4) });
    assert_eq!(text(&body), "Inner { job J, none 4 }");
}

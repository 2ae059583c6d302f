//! Checks that no compiler makes: file sizes, columns, left-over words, links, language.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Findings;
use crate::texts::{Text, texts};

const FILE_LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 100;
/// Files that may be longer for now, with their largest length. This list only shrinks.
const LONGER: &str = include_str!("tidy_longer.txt");
/// In pieces, so that this file passes its own check.
const WORDS: [&str; 5] = [
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("to", "do!("),
];

pub(crate) fn check(root: &Path) -> Findings {
    let (texts, mut findings) = texts(root);
    let mut longer = allow_list(LONGER);
    for Text { name, text } in texts.iter().filter(|text| text.name.ends_with(".rs")) {
        findings.extend(check_file(name, text, longer.remove(name)));
    }
    for name in longer.into_keys() {
        findings.push(format!("{name}: is gone; take it off xtask/src/tidy_longer.txt"));
    }
    findings.extend(crate::folders::check(&texts));
    findings.extend(crate::links::check(root, &texts));
    findings.extend(crate::language::check(&texts));
    findings
}

fn check_file(name: &str, text: &str, allowed: Option<usize>) -> Findings {
    let mut findings = Findings::new();
    let lines = text.lines().count();
    match allowed {
        Some(most) if lines > most => {
            findings.push(format!("{name}: {lines} lines; the list allows {most}"));
        }
        Some(_) if lines <= FILE_LINES_MAX => {
            findings.push(format!("{name}: short now; take it off xtask/src/tidy_longer.txt"));
        }
        None if lines > FILE_LINES_MAX => {
            findings.push(format!("{name}: {lines} lines, at most {FILE_LINES_MAX}; split it"));
        }
        Some(_) | None => {}
    }
    for (number, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        // Strings, addresses and attributes cannot always be broken.
        let is_free = line.contains(['"']) || line.contains("://") || line.trim().starts_with("#[");
        if columns > COLUMNS_MAX && !is_free {
            findings.push(format!("{name}:{}: {columns} columns", number + 1));
        }
        for word in WORDS {
            if line.contains(word) {
                findings.push(format!("{name}:{}: {word}", number + 1));
            }
        }
    }
    findings
}

/// `path lines` on each line.
fn allow_list(text: &str) -> BTreeMap<String, usize> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(path, lines)| Some((path.to_owned(), lines.trim().parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_long_lines_and_left_over_words_are_found() {
        let long = "x\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(check_file("a.rs", &long, None).len(), 1);
        assert_eq!(check_file("a.rs", &long, Some(FILE_LINES_MAX + 1)), Findings::new());
        assert_eq!(check_file("a.rs", "short\n", Some(700)).len(), 1);
        assert_eq!(check_file("a.rs", &"y".repeat(COLUMNS_MAX + 1), None).len(), 1);
        let word = format!("// {}: later\n", WORDS[0]);
        assert_eq!(check_file("a.rs", &word, None), [format!("a.rs:1: {}", WORDS[0])]);
    }

    #[test]
    fn the_allow_list_is_read() {
        let list = allow_list("kvs/src/store/mod.rs 640\n");
        assert_eq!(list.get("kvs/src/store/mod.rs"), Some(&640));
    }
}

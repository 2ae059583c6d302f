//! Links of Markdown files lead to files, and the paths that ARCHITECTURE.md names exist.

use std::fs;
use std::path::Path;

use crate::{Findings, tidy};

/// Every path in it is of the tree as it is.
const MAP: &str = "ARCHITECTURE.md";
const ENDINGS: [&str; 5] = [".rs", ".proto", ".md", ".toml", "/"];

pub(crate) fn check(root: &Path) -> Findings {
    let mut findings = Findings::new();
    for path in tidy::files(root, &[".md"]) {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let folder = path.parent().unwrap_or(root);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                findings.push(format!("{name}: {error}"));
                continue;
            }
        };
        for (number, line) in (1..).zip(text.lines()) {
            for link in links(line).filter(|link| !folder.join(link).exists()) {
                findings.push(format!("{name}:{number}: the link leads nowhere: {link}"));
            }
            for path in paths(line).filter(|path| name == MAP && !root.join(path).exists()) {
                findings.push(format!("{name}:{number}: there is no {path}"));
            }
        }
    }
    findings
}

/// Links to files, without the part of the file.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let link = rest.split_once(')')?.0;
        let file = link.split('#').next().unwrap_or("");
        (!file.is_empty() && !file.contains("://")).then_some(file)
    })
}

/// Inline code that is a path from the root.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |text: &&str| {
        text.contains('/')
            && !text.contains(char::is_whitespace)
            && ENDINGS.iter().any(|ending| text.ends_with(ending))
    };
    line.split('`').skip(1).step_by(2).filter(is_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_paths_are_found() {
        let line = "See [a](docs/a.md#b), [c](#d), [e](https://f.g) and `h/i.rs`, `j.rs`, `k l/`.";
        assert_eq!(links(line).collect::<Vec<_>>(), ["docs/a.md"]);
        assert_eq!(paths(line).collect::<Vec<_>>(), ["h/i.rs"]);
    }
}

//! Links of Markdown files lead to files, and the paths that they name exist.

use std::path::Path;

use crate::Findings;
use crate::texts::Text;

/// Every path in it is a path from the root.
const MAP: &str = "ARCHITECTURE.md";
const ENDINGS: [&str; 5] = [".rs", ".proto", ".md", ".toml", "/"];

pub(crate) fn check(root: &Path, texts: &[Text]) -> Findings {
    let mut findings = Findings::new();
    for Text { name, text } in texts.iter().filter(|text| text.name.ends_with(".md")) {
        let folder = root.join(name);
        let folder = folder.parent().unwrap_or(root);
        for (number, line) in (1..).zip(text.lines()) {
            for link in links(line).filter(|link| !folder.join(link).exists()) {
                findings.push(format!("{name}:{number}: the link leads nowhere: {link}"));
            }
            for path in paths(line) {
                let is_whole = name == MAP || starts_at_root(root, path);
                if is_whole && !root.join(path).exists() {
                    findings.push(format!("{name}:{number}: there is no {path}"));
                }
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

/// Inline code that is the path of a file or a folder.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |text: &&str| {
        text.contains('/')
            && !text.contains(char::is_whitespace)
            && ENDINGS.iter().any(|ending| text.ends_with(ending))
    };
    line.split('`').skip(1).step_by(2).filter(is_path)
}

/// The first component of the path is a folder of the root.
fn starts_at_root(root: &Path, path: &str) -> bool {
    path.split_once('/').is_some_and(|(first, _)| !first.is_empty() && root.join(first).is_dir())
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

    #[test]
    fn missing_files_are_found_in_all_markdown() {
        let findings = |name: &str, text: &str| {
            let text = Text { name: name.to_owned(), text: text.to_owned() };
            check(&crate::root(), &[text])
        };
        let good = "See `xtask/src/links.rs`, [a](glossary.md) and `data/results.md`.";
        assert_eq!(findings("docs/a.md", good), Findings::new());
        let bad = "One.\nSee `xtask/src/missing.rs` and [a](missing.md).";
        assert_eq!(
            findings("docs/a.md", bad),
            [
                "docs/a.md:2: the link leads nowhere: missing.md",
                "docs/a.md:2: there is no xtask/src/missing.rs",
            ]
        );
        let part = "See `src/links.rs`.";
        assert_eq!(findings("docs/a.md", part), Findings::new());
        assert_eq!(findings(MAP, part), ["ARCHITECTURE.md:1: there is no src/links.rs"]);
    }
}

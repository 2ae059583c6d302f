//! The texts that the checks read: sources, documents, manifests and scripts.

use std::fs;
use std::path::Path;

use crate::Findings;

const ENDINGS: [&str; 5] = [".c", ".md", ".proto", ".rs", ".toml"];
/// Folders of files without an ending. Hidden folders that are not in this list are not read.
const SCRIPTS: [&str; 2] = [".ci", "scripts"];

/// A file and its path from the root.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// All texts below `root` in a fixed order, without build output. Each file is read once. What
/// cannot be read is a finding.
pub(crate) fn texts(root: &Path) -> (Vec<Text>, Findings) {
    let (mut texts, mut findings) = (Vec::new(), Findings::new());
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.unwrap_or_else(|error| {
            findings.push(format!("{}: {error}", folder.display()));
            Vec::new()
        });
        for path in entries.into_iter().map(|entry| entry.path()) {
            let name = name(root, &path);
            if path.is_dir() {
                if is_read(&name) {
                    folders.push(path);
                }
            } else if is_text(&name) {
                match fs::read_to_string(&path) {
                    Ok(text) => texts.push(Text { name, text }),
                    Err(error) => findings.push(format!("{name}: {error}")),
                }
            }
        }
    }
    texts.sort_by(|a, b| a.name.cmp(&b.name));
    (texts, findings)
}

fn name(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// The folder may have texts.
fn is_read(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    SCRIPTS.contains(&name)
        || (!matches!(last, "target" | "node_modules") && !last.starts_with('.'))
}

fn is_text(name: &str) -> bool {
    is_script(name) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The file is a shell script.
pub(crate) fn is_script(name: &str) -> bool {
    name.split_once('/').is_some_and(|(folder, _)| SCRIPTS.contains(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_documents_manifests_and_scripts_are_read_once() {
        let (texts, findings) = texts(&crate::root());
        assert_eq!(findings, Findings::new());
        let read = |name: &str| texts.iter().filter(|text| text.name == name).count();
        for name in ["README.md", "Cargo.toml", "xtask/src/texts.rs", ".ci/run", "scripts/test"] {
            assert_eq!(read(name), 1, "{name}");
        }
        assert!(texts.iter().all(|text| !text.name.starts_with(".git")));
        assert_eq!((read(".cargo/config.toml"), read("Cargo.lock"), read("LICENSE")), (0, 0, 0));
    }

    #[test]
    fn a_folder_that_is_missing_is_a_finding() {
        let (texts, findings) = texts(&crate::root().join("missing"));
        assert_eq!((texts.len(), findings.len()), (0, 1));
    }
}

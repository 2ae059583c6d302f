//! The public items of the library have its own types, not the messages between nodes.

use std::fs;
use std::path::Path;

/// Modules with items that are hidden from the library's documentation.
const RAW: [&str; 2] = ["raw.rs", "records"];

/// The public functions, fields and conversions of a source that name a message.
fn public_messages(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_hidden = |at: usize| {
        let before = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        before.into_iter().any(|line| *line == "#[doc(hidden)]")
    };
    for (at, line) in lines.iter().enumerate() {
        let is_public = line.starts_with("pub ") || line.starts_with("impl From<");
        if is_hidden(at) {
            continue;
        }
        if !is_public || line.starts_with("pub mod") {
            continue;
        }
        // A signature ends where its body begins, a field with its comma.
        let is_end = |line: &&&str| {
            line.ends_with('{') || line.ends_with(';') || line.ends_with("},") || {
                let is_field = !lines[at].contains("fn ");
                is_field && line.ends_with(',')
            }
        };
        let rest = &lines[at..];
        let end = rest.iter().position(|line| is_end(&line)).unwrap_or(rest.len() - 1);
        let item = rest[..=end].join(" ");
        if item.contains("wire::") || item.contains("records::") || item.contains("raw::") {
            found.push(item);
        }
    }
    found
}

fn sources(dir: &Path, all: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("it is there").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        if RAW.contains(&name.as_str()) {
            continue;
        }
        match path.is_dir() {
            true => sources(&path, all),
            false => all.push((name, fs::read_to_string(&path).expect("text"))),
        }
    }
}

#[test]
fn no_public_item_names_a_message() {
    let mut all = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut all);
    assert!(all.len() > 15, "the sources are there");
    for (file, text) in &all {
        assert_eq!(public_messages(text), Vec::<String>::new(), "{file}");
    }
}

/// The library passes these types of `workloads` on.
#[test]
fn no_public_item_of_graphs_and_plans_names_a_message() {
    for file in ["graph/mod.rs", "graph/needs.rs", "placement/mod.rs", "placement/plan.rs"] {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/src")).join(file);
        let text = fs::read_to_string(path).expect("the sources are there");
        assert_eq!(public_messages(&text), Vec::<String>::new(), "{file}");
    }
}

#[test]
fn a_message_in_a_signature_a_field_or_a_conversion_is_found() {
    let text = "pub async fn job(\n    &self,\n) -> Result<wire::JobState, E> {\n    wire::X\n}\n\
                pub(crate) fn own() -> wire::A {\n\
                struct S {\n    pub a: u32,\n    pub b: wire::B,\n}\n\
                impl From<wire::C> for S {\n}\n\
                #[doc(hidden)]\n#[must_use]\npub fn hidden() -> wire::D {\n}\n";
    let found = public_messages(text);
    let expected = [
        "pub async fn job( &self, ) -> Result<wire::JobState, E> {",
        "pub b: wire::B,",
        "impl From<wire::C> for S {",
    ];
    assert_eq!(found, expected);
}

//! No ring of imports between the rooms of a crate: the files and folders directly below its `src`.
//!
//! The scan reads paths that begin with `crate` or `super`, in imports and elsewhere. It resolves
//! names that the root of the crate imports from a room. Tests may import what they like.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use crate::Findings;

/// The crates without rings.
const CRATES: [&str; 6] = ["bench", "cli", "lab", "sim", "verb", "workloads"];

/// From each room to the rooms that it imports, with a file that does so.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// A source file: its path below `src`, and its text.
type Source = (String, String);

pub(crate) fn check(root: &Path) -> Findings {
    let mut findings = Findings::new();
    for name in CRATES {
        let mut sources = Vec::new();
        if let Err(error) = read(&root.join(name).join("src"), "", &mut sources) {
            findings.push(format!("{name}/src cannot be read: {error}"));
            continue;
        }
        let arrows = arrows(&sources);
        findings.extend(ring(&arrows).map(|ring| told(name, &arrows, &ring)));
    }
    findings
}

fn read(dir: &Path, below: &str, sources: &mut Vec<Source>) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{below}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read(&entry.path(), &format!("{path}/"), sources)?;
        } else if path.ends_with(".rs") {
            sources.push((path, std::fs::read_to_string(entry.path())?));
        }
    }
    Ok(())
}

/// The modules from the root of the crate to this file; none for the root itself.
fn modules(path: &str) -> Vec<&str> {
    let path = path.trim_end_matches(".rs");
    if matches!(path, "lib" | "main") {
        return Vec::new();
    }
    path.trim_end_matches("/mod").split('/').collect()
}

fn is_test(path: &str) -> bool {
    let mut parts = modules(path).into_iter();
    parts.any(|part| part == "tests" || part.ends_with("_tests"))
}

/// The text without comments and without the module of tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}

fn arrows(sources: &[Source]) -> Arrows {
    let mut arrows = Arrows::new();
    for (path, _) in sources.iter().filter(|(path, _)| !is_test(path)) {
        if let Some(room) = modules(path).first() {
            arrows.entry((*room).to_owned()).or_default();
        }
    }
    let from_root = imports_of_root(sources, &arrows);
    for (path, text) in sources.iter().filter(|(path, _)| !is_test(path)) {
        let modules = modules(path);
        let Some(&room) = modules.first() else { continue };
        for name in first_names(&code(text), modules.len()) {
            let to = if arrows.contains_key(&name) { Some(&name) } else { from_root.get(&name) };
            let Some(to) = to.filter(|to| *to != room).cloned() else { continue };
            let imported = arrows.get_mut(room).expect("each file has its room");
            imported.entry(to).or_insert_with(|| path.clone());
        }
    }
    arrows
}

/// The names that the root imports from a room, and the room.
fn imports_of_root(sources: &[Source], rooms: &Arrows) -> BTreeMap<String, String> {
    let mut imports = BTreeMap::new();
    for (_, text) in sources.iter().filter(|(path, _)| modules(path).is_empty()) {
        let text = code(text);
        for import in text.split("use ").skip(1) {
            let import = import.split(';').next().unwrap_or_default();
            let import = import.trim_start_matches("self::");
            let Some((room, names)) = import.split_once("::") else { continue };
            if !rooms.contains_key(room) {
                continue;
            }
            // The last word of each part is the name in the root, also after `as`.
            let names = names.split(['{', '}', ',']).filter_map(last_word);
            imports.extend(names.map(|name| (name.to_owned(), room.to_owned())));
        }
    }
    imports
}

fn last_word(text: &str) -> Option<&str> {
    text.split(|c: char| !is_of_name(c)).rfind(|word| !word.is_empty())
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The first names after `crate::`, or after as many `super::` as lead to the root. `depth`: of the
/// module with this code.
fn first_names(code: &str, depth: usize) -> Vec<String> {
    let to_root = "super::".repeat(depth);
    let mut names = Vec::new();
    for prefix in ["crate::", to_root.as_str()] {
        let mut rest = code;
        while let Some(at) = rest.find(prefix) {
            let before = rest[..at].chars().next_back();
            rest = &rest[at + prefix.len()..];
            if !before.is_some_and(is_of_name) && !rest.starts_with("super::") {
                names.extend(tree_names(rest));
            }
        }
    }
    names
}

/// `a::b` has the first name `a`; `{a::b, c::{d, e}}` has `a` and `c`.
fn tree_names(tree: &str) -> Vec<String> {
    let name = |text: &str| text.trim_start().chars().take_while(|c| is_of_name(*c)).collect();
    let Some(list) = tree.strip_prefix('{') else { return vec![name(tree)] };
    let (mut names, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(name(&list[begin..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(name(&list[begin..at]));
                begin = at + 1;
            }
            _ => {}
        }
    }
    names
}

/// The shortest ring: its rooms in the order of the arrows.
fn ring(arrows: &Arrows) -> Option<Vec<&str>> {
    let rings = arrows.keys().filter_map(|start| ring_from(arrows, start));
    rings.min_by_key(Vec::len)
}

fn ring_from<'a>(arrows: &'a Arrows, start: &'a str) -> Option<Vec<&'a str>> {
    let mut reached: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(room) = next.pop_front() {
        for to in arrows.get(room)?.keys() {
            if to == start {
                let mut ring = vec![room];
                while let Some(before) = ring.last().and_then(|last| reached.get(last)) {
                    ring.push(before);
                }
                ring.reverse();
                return Some(ring);
            }
            if !reached.contains_key(to.as_str()) {
                reached.insert(to, room);
                next.push_back(to);
            }
        }
    }
    None
}

fn told(name: &str, arrows: &Arrows, ring: &[&str]) -> String {
    let arrow = |at: usize| {
        let (from, to) = (ring[at], ring[(at + 1) % ring.len()]);
        format!("{from} imports {to} ({name}/src/{})", arrows[from][to])
    };
    let all: Vec<String> = (0..ring.len()).map(arrow).collect();
    format!("a ring of imports in {name}: {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sources: &[(&str, &str)]) -> Option<String> {
        let sources: Vec<Source> =
            sources.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect();
        let arrows = arrows(&sources);
        ring(&arrows).map(|ring| told("c", &arrows, &ring))
    }

    #[test]
    fn a_ring_is_told_with_its_files() {
        let sources = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use b::{Bee as Be, Bell};\n"),
            ("a/mod.rs", "use crate::{c, d::D};\n"),
            ("a/one.rs", "use super::super::c::C;\nuse super::two::T;\n"),
            ("b.rs", "use super::a::A;\n"),
            ("c.rs", "fn f() -> crate::Be { crate::Be }\n"),
        ];
        let text = "a ring of imports in c: a imports c (c/src/a/mod.rs), \
                    c imports b (c/src/c.rs), b imports a (c/src/b.rs)";
        assert_eq!(found(&sources).as_deref(), Some(text));
    }

    #[test]
    fn comments_tests_and_the_own_room_make_no_ring() {
        let sources = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a/mod.rs", "use crate::b::B;\nuse crate::a::two::T;\n"),
            ("a/two.rs", "use super::b;\n"),
            ("b.rs", "// crate::a\n\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"),
            ("b_tests.rs", "use crate::a::A;\n"),
        ];
        assert_eq!(found(&sources), None);
    }
}

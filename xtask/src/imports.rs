//! The imports between the rooms of a crate: the files and folders directly below its `src`.
//!
//! The scan reads paths that begin with `crate` or `super`, in imports and elsewhere. It resolves
//! names that the root of the crate imports from a room. Tests may import what they like.

use std::collections::BTreeMap;

use crate::texts::Text;

/// From each room to the rooms that it imports, with a file that does so.
pub(crate) type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// The imports between the rooms of a crate. `texts`: the files below its `src`.
pub(crate) fn arrows(texts: &[Text]) -> Arrows {
    let sources: Vec<&Text> = texts.iter().filter(|text| is_source(&text.name)).collect();
    let mut arrows = Arrows::new();
    for source in &sources {
        if let Some(room) = modules(&source.name).first() {
            arrows.entry((*room).to_owned()).or_default();
        }
    }
    let from_root = imports_of_root(&sources, &arrows);
    for Text { name: file, text } in sources {
        let modules = modules(file);
        let Some(&room) = modules.first() else { continue };
        for name in first_names(&code(text), modules.len()) {
            let to = if arrows.contains_key(&name) { Some(&name) } else { from_root.get(&name) };
            let Some(to) = to.filter(|to| *to != room).cloned() else { continue };
            let imported = arrows.get_mut(room).expect("each file has its room");
            imported.entry(to).or_insert_with(|| file.clone());
        }
    }
    arrows
}

/// The modules from the root of the crate to this file; none for the root itself.
fn modules(file: &str) -> Vec<&str> {
    let path = file.trim_end_matches(".rs");
    if matches!(path, "lib" | "main") {
        return Vec::new();
    }
    path.trim_end_matches("/mod").split('/').collect()
}

/// Whether the file has code of the crate. Tests do not count.
fn is_source(file: &str) -> bool {
    let is_test = |part: &&str| *part == "tests" || part.ends_with("_tests");
    file.ends_with(".rs") && !modules(file).iter().any(is_test)
}

/// The text without comments and without the module of tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}

/// The names that the root imports from a room, and the room.
fn imports_of_root(sources: &[&Text], rooms: &Arrows) -> BTreeMap<String, String> {
    let mut imports = BTreeMap::new();
    for root in sources.iter().filter(|source| modules(&source.name).is_empty()) {
        let text = code(&root.text);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_of_paths_are_found() {
        assert_eq!(tree_names("low::inner;"), ["low"]);
        let group = "{Low, top::{a, b}, c::d};\nuse std::{e};";
        assert_eq!(tree_names(group), ["Low", "top", "c"]);
        assert_eq!(first_names("use crate::low::Low;\nuse other_crate::top;\n", 1), ["low"]);
    }

    #[test]
    fn super_counts_where_it_leads_to_the_root() {
        let code = "use super::near::Near;\nuse super::super::{low, top::Top};\n";
        assert_eq!(first_names(code, 2), ["low", "top"]);
        assert_eq!(first_names("use super::near::Near;\n", 1), ["near"]);
        let file = |name: &str, text: &str| Text { name: name.into(), text: text.into() };
        let inner = "use super::super::top::Top;\nuse super::other::Other;\n";
        let files = [file("low/inner.rs", inner), file("other.rs", ""), file("top.rs", "")];
        let arrows = arrows(&files);
        assert_eq!(arrows["low"].keys().collect::<Vec<_>>(), ["top"]);
        assert_eq!(arrows["low"]["top"], "low/inner.rs");
        assert_eq!(arrows.len(), 3);
    }
}

//! No ring of imports between the rooms of a crate.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use crate::Findings;
use crate::imports::{Arrows, arrows};
use crate::texts::texts;

/// The crates without rings.
const CRATES: [&str; 7] = ["bench", "cli", "client", "lab", "sim", "verb", "workloads"];

pub(crate) fn check(root: &Path) -> Findings {
    let mut findings = Findings::new();
    for name in CRATES {
        let (texts, unread) = texts(&root.join(name).join("src"));
        findings.extend(unread);
        let arrows = arrows(&texts);
        findings.extend(ring(&arrows).map(|ring| told(name, &arrows, &ring)));
    }
    findings
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
    use crate::texts::Text;

    fn found(sources: &[(&str, &str)]) -> Option<String> {
        let text = |&(name, text): &(&str, &str)| Text { name: name.into(), text: text.into() };
        let texts: Vec<Text> = sources.iter().map(text).collect();
        let arrows = arrows(&texts);
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

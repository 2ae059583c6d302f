//! The imports between the folders of `scheduler` and `daemon`. A room is a folder of sources, or a
//! file beside the folders. The rooms of a crate have an order, and imports point down. Those that
//! point up stand in the table below, each with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::Findings;
use crate::texts::{Text, texts};

/// An import that points up: the room that imports, the room above it, and the reason.
type Upward = (&'static str, &'static str, &'static str);

struct Rooms {
    /// The folder of the crate.
    package: &'static str,
    /// All rooms, from the bottom to the top.
    order: &'static [&'static str],
    upward: &'static [Upward],
    /// The largest length of `upward`. It may only fall.
    upward_max: usize,
}

const ROOMS: [Rooms; 2] = [
    Rooms {
        package: "scheduler",
        order: &[
            "mutant",
            "output",
            "policy",
            "routing",
            "objects",
            "holder",
            "home",
            "stealing",
            "scheduler",
        ],
        upward: &[
            ("policy", "holder", "a policy decides by the inputs and the requests of a task"),
            ("policy", "scheduler", "a decision reads queues, slots and records"),
            ("routing", "holder", "the offers of members are matched with classes of requests"),
            ("routing", "scheduler", "messages that are sent again are checked against records"),
            ("objects", "holder", "objects are fetched for tasks that are staged or run"),
            ("objects", "home", "the node that owns a task is the directory of its outputs"),
            ("objects", "scheduler", "the end of a fetch starts tasks and reports to owners"),
            ("holder", "home", "a holder that owns a task updates the record itself"),
            ("holder", "scheduler", "the end of a task concerns records, objects and steals"),
            ("home", "scheduler", "a take-over concerns queues, objects and steals"),
            ("stealing", "scheduler", "a steal takes tasks from queues and changes records"),
        ],
        upward_max: 11,
    },
    Rooms {
        package: "daemon",
        order: &[
            "clock",
            "open_files",
            "log",
            "events",
            "store",
            "error",
            "objects",
            "door",
            "rpc",
            "event_loop",
            "options",
            "handle",
            "lifecycle",
            "start",
        ],
        upward: &[
            ("store", "event_loop", "the scrub thread reports to the inbox of the loop"),
            ("objects", "rpc", "transfers use the peers and the state that the services share"),
            ("objects", "event_loop", "transfers report to the inbox of the loop"),
            ("door", "rpc", "the server of the door uses the state that the services share"),
            ("door", "event_loop", "orders of running commands go to the inbox of the loop"),
            ("rpc", "event_loop", "calls and messages go to the inbox of the loop"),
            ("rpc", "lifecycle", "addresses and join tokens are files of the instance"),
            ("event_loop", "lifecycle", "a change of the map is written to files of the instance"),
            ("options", "lifecycle", "options name the state directory of an instance"),
        ],
        upward_max: 9,
    },
];

pub(crate) fn check(root: &Path) -> Findings {
    let mut findings = Findings::new();
    for rooms in &ROOMS {
        let (texts, unread) = texts(&root.join(rooms.package).join("src"));
        findings.extend(unread);
        findings.extend(check_rooms(rooms, &texts));
    }
    findings
}

fn check_rooms(rooms: &Rooms, texts: &[Text]) -> Findings {
    let Rooms { package, order, upward, upward_max } = rooms;
    let mut findings = Findings::new();
    let present: BTreeSet<&str> = texts.iter().filter_map(|text| room_of(&text.name)).collect();
    let listed: BTreeSet<&str> = order.iter().copied().collect();
    for room in present.symmetric_difference(&listed) {
        findings.push(format!("{package}: {room} is only in the sources or only in the order"));
    }
    let height = |room: &str| order.iter().position(|other| *other == room);
    let arrows = arrows(texts);
    let points_up = |&(from, to): &(&str, &str)| height(from) < height(to);
    for (&(from, to), file) in arrows.iter().filter(|&(&arrow, _)| points_up(&arrow)) {
        if !upward.iter().any(|&(below, above, _)| (below, above) == (from, to)) {
            findings.push(format!(
                "{package}: {from} may not import from {to}, which is above it ({file}; the table \
                 is in xtask/src/arrows.rs)"
            ));
        }
    }
    for &(from, to, _) in *upward {
        if !arrows.contains_key(&(from, to)) || !points_up(&(from, to)) {
            findings.push(format!("{package}: no import points up from {from} to {to} any more"));
        }
    }
    if upward.len() != *upward_max {
        let count = upward.len();
        findings.push(format!("{package}: {count} imports point up, not {upward_max}"));
    }
    findings
}

/// The room of a source file; `None` for the crate's root, tests, and other files.
fn room_of(name: &str) -> Option<&str> {
    let path = name.strip_suffix(".rs")?;
    let is_test = |part: &str| part == "tests" || part.ends_with("_tests");
    if path == "lib" || path == "main" || path.split('/').any(is_test) {
        return None;
    }
    path.split('/').next()
}

/// The rooms from which each room imports, with a file that does so.
fn arrows(texts: &[Text]) -> BTreeMap<(&str, &str), &str> {
    let rooms: BTreeSet<&str> = texts.iter().filter_map(|text| room_of(&text.name)).collect();
    let root = texts.iter().find(|text| text.name == "lib.rs").map_or("", |text| &text.text);
    let exported = exported(root, &rooms);
    let mut arrows = BTreeMap::new();
    for text in texts {
        let Some(from) = room_of(&text.name) else { continue };
        for line in product(&text.text).split("crate::").skip(1) {
            for name in heads(line) {
                let to = rooms.get(name).or_else(|| exported.get(name)).copied();
                if let Some(to) = to.filter(|to| *to != from) {
                    arrows.entry((from, to)).or_insert(text.name.as_str());
                }
            }
        }
    }
    arrows
}

/// The text without comments and without the tests at its end.
fn product(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..tests].lines().map(|line| line.split("//").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// The names that the crate's root takes from rooms, each with its room.
fn exported<'t>(root: &'t str, rooms: &BTreeSet<&'t str>) -> BTreeMap<&'t str, &'t str> {
    let uses = root.split(';').filter_map(|item| item.rsplit_once("use ").map(|(_, path)| path));
    let of_room = uses.filter_map(|path| {
        let mut words = words(path);
        let room = words.next().filter(|word| rooms.contains(word))?;
        Some(words.map(move |word| (word, room)))
    });
    of_room.flatten().collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split(move |letter| !is_part(letter)).filter(|word| !word.is_empty())
}

/// The first names of the paths that follow `crate::`: one, or those of a group.
fn heads(text: &str) -> Vec<&str> {
    let Some(group) = text.strip_prefix('{') else { return words(text).take(1).collect() };
    let (mut depth, mut start, mut heads) = (1, 0, Vec::new());
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        let ends = depth == 0 || depth == 1 && letter == ',';
        if ends {
            heads.extend(words(&group[start..at]).next());
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, text: &str) -> Text {
        Text { name: name.to_owned(), text: text.to_owned() }
    }

    fn sources() -> Vec<Text> {
        let tests = "#[cfg(test)]\nmod tests {\n    use crate::top::Top;\n}\n";
        vec![
            text("lib.rs", "mod low;\nmod top;\npub use low::Low;\npub use top::{Top, other};\n"),
            text("low/mod.rs", &format!("// crate::top\nuse crate::low::inner;\n{tests}")),
            text("low/inner.rs", "use crate::{Low, top};\n"),
            text("low/inner_tests.rs", "use crate::top;\n"),
            text("top.rs", "use crate::low::{Low, inner::Inner};\n"),
        ]
    }

    #[test]
    fn the_heads_of_paths_are_found() {
        assert_eq!(heads("low::inner;"), ["low"]);
        assert_eq!(heads("{Low, top::{a, b}, c::d};\nuse std::{e};"), ["Low", "top", "c"]);
        let sources = sources();
        let found: Vec<_> = arrows(&sources).into_keys().collect();
        assert_eq!(found, [("low", "top"), ("top", "low")]);
        let mut renamed = self::sources();
        renamed[2] = text("low/inner.rs", "use crate::Top;\n");
        assert!(arrows(&renamed).contains_key(&("low", "top")), "by a name of the root");
    }

    #[test]
    fn imports_that_point_up_are_found_and_the_table_is_exact() {
        const UP: Upward = ("low", "top", "a reason");
        const DOWN: Upward = ("top", "low", "a reason");
        let found = |order, upward, upward_max| {
            check_rooms(&Rooms { package: "one", order, upward, upward_max }, &sources())
        };
        assert_eq!(found(&["low", "top"], &[UP], 1), Findings::new());
        let missing = found(&["low", "top"], &[], 0);
        assert_eq!(missing.len(), 1);
        assert!(missing[0].starts_with("one: low may not import from top"), "{missing:?}");
        assert!(missing[0].contains("low/inner.rs"), "{missing:?}");
        assert_eq!(found(&["low", "top"], &[UP], 2).len(), 1, "the maximum falls too");
        assert_eq!(found(&["low", "top"], &[UP, DOWN], 2).len(), 1, "this one points down");
        assert_eq!(found(&["low"], &[], 0).len(), 1, "a room without a place in the order");
    }

    #[test]
    fn the_sources_keep_to_the_table() {
        assert_eq!(check(&crate::root()), Findings::new());
        let counts = ROOMS.map(|rooms| (rooms.package, rooms.upward.len()));
        assert!(counts.iter().all(|&(package, count)| match package {
            "scheduler" => count <= 14,
            _ => count <= 9,
        }));
    }
}

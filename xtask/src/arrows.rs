//! The imports between the folders of `scheduler` and `daemon`. A room is a folder of sources, or a
//! file beside the folders. The rooms of a crate have an order, and imports point down. Those that
//! point up stand in the table below, each with its reason.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Findings;
use crate::imports::arrows;
use crate::texts::{Text, texts};

/// An import that points up: the room that imports, the room above it, and the reason.
type Upward = (&'static str, &'static str, &'static str);

struct Rooms {
    /// The folder of the crate.
    package: &'static str,
    /// All rooms, from the bottom to the top.
    order: &'static [&'static str],
    upward: &'static [Upward],
    /// The length of `upward`: it may only fall, so both are changed together.
    upward_max: usize,
}

const ROOMS: [Rooms; 2] = [
    Rooms {
        package: "scheduler",
        order: &[
            "limits",
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
            "limits",
            "clock",
            "log",
            "events",
            "store",
            "error",
            "objects",
            "door",
            "rpc",
            "event_loop",
            "nested",
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
    let arrows = arrows(texts);
    let present: BTreeSet<&str> = arrows.keys().map(String::as_str).collect();
    let listed: BTreeSet<&str> = order.iter().copied().collect();
    for room in present.symmetric_difference(&listed) {
        findings.push(format!("{package}: {room} is only in the sources or only in the order"));
    }
    let height = |room: &str| order.iter().position(|other| *other == room);
    // A room without a place in the order has its own finding.
    let points_up =
        |from: &str, to: &str| height(from).zip(height(to)).is_some_and(|(from, to)| from < to);
    for (from, imported) in &arrows {
        for (to, file) in imported.iter().filter(|(to, _)| points_up(from, to)) {
            if !upward.iter().any(|&(below, above, _)| (below, above) == (&**from, &**to)) {
                findings.push(format!(
                    "{package}: {from} may not import from {to}, which is above it ({file}; the \
                     table is in xtask/src/arrows.rs)"
                ));
            }
        }
    }
    for &(from, to, _) in *upward {
        let is_there = arrows.get(from).is_some_and(|imported| imported.contains_key(to));
        if !is_there || !points_up(from, to) {
            findings.push(format!("{package}: no import points up from {from} to {to} any more"));
        }
    }
    if upward.len() != *upward_max {
        let count = upward.len();
        findings.push(format!("{package}: {count} imports point up, not {upward_max}"));
    }
    findings
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
    fn imports_are_found_in_all_their_forms() {
        let found = |texts: &[Text]| {
            let arrows = arrows(texts);
            (arrows["low"].contains_key("top"), arrows["top"].contains_key("low"))
        };
        assert_eq!(found(&sources()), (true, true));
        for (import, is_up) in [
            ("use crate::Top;\n", true),
            ("use super::super::top::Top;\n", true),
            ("use super::top;\n", false),
            ("use other_crate::top;\n", false),
        ] {
            let mut sources = sources();
            sources[2] = text("low/inner.rs", import);
            assert_eq!(found(&sources), (is_up, true), "{import}");
        }
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
    }
}

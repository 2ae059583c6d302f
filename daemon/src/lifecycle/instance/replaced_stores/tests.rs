use tempfile::TempDir;

use super::*;

/// The content of a state directory: directories of records, with their text.
type Layout = [(&'static str, &'static str)];

fn made(layout: &Layout, refilling: bool) -> (TempDir, ReplacedStores) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in layout {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("CURRENT"), "x").unwrap();
        fs::write(path.join("000001.sst"), text).unwrap();
    }
    let aside = ReplacedStores { state: dir.path().to_path_buf() };
    if refilling {
        aside.take(Mark).unwrap();
    }
    (dir, aside)
}

impl ReplacedStores {
    fn text(&self, name: &str) -> Option<String> {
        self.path(name).join("CURRENT").exists().then_some(())?;
        fs::read_to_string(self.path(name).join("000001.sst")).ok()
    }
    fn texts(&self) -> [Option<String>; 3] {
        [DB, DAMAGED, PARTIAL].map(|name| self.text(name))
    }
}

fn are(texts: [&str; 3]) -> [Option<String>; 3] {
    texts.map(|text| (!text.is_empty()).then(|| text.to_owned()))
}

/// Checks each state in which the process may crash during these steps, and the state at the end.
fn each_cut(
    (layout, refilling): (&Layout, bool),
    steps: impl Fn(&ReplacedStores) -> Vec<Step>,
    check: impl Fn(usize, &ReplacedStores),
) {
    let count = steps(&made(layout, refilling).1).len();
    for cut in 0..=count {
        let (_dir, aside) = made(layout, refilling);
        let steps = steps(&aside);
        aside.carry_out(&steps[..cut]).unwrap();
        check(cut, &aside);
    }
}

const GIVES_UP: fn(&ReplacedStores) -> Vec<Step> = |aside| aside.to_give_up().unwrap();

#[test]
fn records_that_were_not_filled_never_take_the_place_of_those_before() {
    let (_dir, aside) = made(&[(DB, "whole")], false);
    let [damaged, partial] = [DAMAGED, PARTIAL].map(|name| aside.path(name));
    let (these, earlier) = (Some(damaged.clone()), None);
    assert_eq!(aside.give_up().unwrap(), ReplacedRecords { these, earlier });
    // Each next incarnation makes a store and does not fill it.
    let tries = [("ha", "ha"), ("h", "ha"), ("half", "half"), ("", "half"), ("halt", "half")];
    for (text, kept) in tries {
        aside.begin().unwrap();
        assert!(aside.is_refilling());
        fs::create_dir(aside.path(DB)).unwrap();
        fs::write(aside.path(DB).join("CURRENT"), "x").unwrap();
        fs::write(aside.path(DB).join("000001.sst"), text).unwrap();
        let given_up = aside.give_up().unwrap();
        assert_eq!(given_up.these, (text == kept).then(|| partial.clone()), "{text}");
        assert_eq!(given_up.earlier, Some(damaged.clone()));
        assert_eq!(aside.texts(), are(["", "whole", kept]));
    }
    assert_eq!(aside.kept(), [damaged, partial]);
}

#[test]
fn records_that_were_filled_take_the_place_of_those_before() {
    let (_dir, aside) = made(&[(DB, "filled"), (DAMAGED, "whole"), (PARTIAL, "half")], true);
    aside.filled().unwrap();
    assert_eq!((aside.texts(), aside.is_refilling()), (are(["filled", "whole", ""]), false));
    aside.begin().unwrap();
    assert!(!aside.is_refilling(), "there are records");
    aside.give_up().unwrap();
    assert_eq!(aside.texts(), are(["", "filled", ""]));
}

#[test]
fn a_death_while_half_filled_records_are_given_up_costs_nothing_of_those_before() {
    let more: &Layout = &[(DB, "half"), (DAMAGED, "whole"), (PARTIAL, "h")];
    let less: &Layout = &[(DB, "h"), (DAMAGED, "whole"), (PARTIAL, "half")];
    for layout in [more, less] {
        each_cut((layout, true), GIVES_UP, |cut, aside| {
            assert_eq!(aside.text(DAMAGED).as_deref(), Some("whole"), "after {cut} steps");
            let most = [DB, PARTIAL].map(|name| aside.text(name)).into_iter().flatten().max();
            assert_eq!(most.as_deref(), Some("half"), "after {cut} steps");
            assert!(aside.is_refilling());
            // The next start may find the rest in `db` sound, or give it up as well.
            aside.begin().unwrap();
            assert!(aside.is_refilling() && !aside.has(GONE));
            if aside.has(DB) {
                aside.give_up().unwrap();
            }
            assert_eq!(aside.texts(), are(["", "whole", "half"]), "after {cut} steps");
        });
    }
}

#[test]
fn a_death_while_whole_records_are_given_up_costs_nothing_of_them() {
    let layout: &Layout = &[(DB, "whole"), (DAMAGED, "older")];
    each_cut((layout, false), GIVES_UP, |cut, aside| {
        let whole = |aside: &ReplacedStores| {
            let texts = [DB, DAMAGED].map(|name| aside.text(name));
            texts.iter().flatten().any(|text| text == "whole")
        };
        assert!(whole(aside), "after {cut} steps");
        aside.begin().unwrap();
        // The store after an existing `db` must not be taken for half of it.
        assert_eq!(aside.is_refilling(), !aside.has(DB), "after {cut} steps");
        assert!(whole(aside) && !aside.has(GONE));
        if aside.has(DB) {
            aside.give_up().unwrap();
        }
        assert_eq!(aside.texts(), are(["", "whole", ""]), "after {cut} steps");
    });
}

#[test]
fn a_death_when_all_is_filled_leaves_the_mark_or_nothing_to_clear() {
    let layout: &Layout = &[(DB, "filled"), (DAMAGED, "whole"), (PARTIAL, "half")];
    each_cut((layout, true), ReplacedStores::to_end, |cut, aside| {
        assert_eq!(aside.text(DAMAGED).as_deref(), Some("whole"), "after {cut} steps");
        aside.begin().unwrap();
        assert!(!aside.has(GONE));
        assert!(aside.is_refilling() || !aside.has(PARTIAL), "after {cut} steps");
    });
}

/// The mark exists before the first record, whatever happens in between.
#[test]
fn a_death_before_there_are_records_is_made_up_for() {
    each_cut((&[(DAMAGED, "whole")], false), ReplacedStores::to_begin, |_, aside| {
        aside.begin().unwrap();
        assert!(aside.is_refilling());
    });
    // Records without a `CURRENT` are damaged ones, not a new store.
    let (_dir, aside) = made(&[(DB, "whole"), (DAMAGED, "older")], false);
    fs::remove_file(aside.path(DB).join("CURRENT")).unwrap();
    aside.begin().unwrap();
    assert!(!aside.is_refilling());
    // A node that has given nothing up has nothing to keep.
    let (_dir, aside) = made(&[], false);
    aside.begin().unwrap();
    assert!(!aside.is_refilling() && aside.kept().is_empty());
}

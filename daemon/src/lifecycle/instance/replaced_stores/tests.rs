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
    let replaced = ReplacedStores { state: dir.path().to_path_buf() };
    if refilling {
        replaced.take(Mark).unwrap();
    }
    (dir, replaced)
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
        let (_dir, replaced) = made(layout, refilling);
        let steps = steps(&replaced);
        replaced.carry_out(&steps[..cut]).unwrap();
        check(cut, &replaced);
    }
}

const GIVES_UP: fn(&ReplacedStores) -> Vec<Step> = |replaced| replaced.to_give_up().unwrap();

#[test]
fn records_that_were_not_filled_never_take_the_place_of_those_before() {
    let (_dir, replaced) = made(&[(DB, "whole")], false);
    let [damaged, partial] = [DAMAGED, PARTIAL].map(|name| replaced.path(name));
    let (these, earlier) = (Some(damaged.clone()), None);
    assert_eq!(replaced.give_up().unwrap(), ReplacedRecords { these, earlier });
    // Each next incarnation makes a store and does not fill it.
    let tries = [("ha", "ha"), ("h", "ha"), ("half", "half"), ("", "half"), ("halt", "half")];
    for (text, kept) in tries {
        replaced.begin().unwrap();
        assert!(replaced.is_refilling());
        fs::create_dir(replaced.path(DB)).unwrap();
        fs::write(replaced.path(DB).join("CURRENT"), "x").unwrap();
        fs::write(replaced.path(DB).join("000001.sst"), text).unwrap();
        let given_up = replaced.give_up().unwrap();
        assert_eq!(given_up.these, (text == kept).then(|| partial.clone()), "{text}");
        assert_eq!(given_up.earlier, Some(damaged.clone()));
        assert_eq!(replaced.texts(), are(["", "whole", kept]));
    }
    assert_eq!(replaced.kept(), [damaged, partial]);
}

#[test]
fn records_that_were_filled_take_the_place_of_those_before() {
    let (_dir, replaced) = made(&[(DB, "filled"), (DAMAGED, "whole"), (PARTIAL, "half")], true);
    replaced.filled().unwrap();
    assert_eq!((replaced.texts(), replaced.is_refilling()), (are(["filled", "whole", ""]), false));
    replaced.begin().unwrap();
    assert!(!replaced.is_refilling(), "there are records");
    replaced.give_up().unwrap();
    assert_eq!(replaced.texts(), are(["", "filled", ""]));
}

#[test]
fn a_death_while_half_filled_records_are_given_up_costs_nothing_of_those_before() {
    let more: &Layout = &[(DB, "half"), (DAMAGED, "whole"), (PARTIAL, "h")];
    let less: &Layout = &[(DB, "h"), (DAMAGED, "whole"), (PARTIAL, "half")];
    for layout in [more, less] {
        each_cut((layout, true), GIVES_UP, |cut, replaced| {
            assert_eq!(replaced.text(DAMAGED).as_deref(), Some("whole"), "after {cut} steps");
            let most = [DB, PARTIAL].map(|name| replaced.text(name)).into_iter().flatten().max();
            assert_eq!(most.as_deref(), Some("half"), "after {cut} steps");
            assert!(replaced.is_refilling());
            // The next start may find the rest in `db` sound, or give it up as well.
            replaced.begin().unwrap();
            assert!(replaced.is_refilling() && !replaced.has(GONE));
            if replaced.has(DB) {
                replaced.give_up().unwrap();
            }
            assert_eq!(replaced.texts(), are(["", "whole", "half"]), "after {cut} steps");
        });
    }
}

#[test]
fn a_death_while_whole_records_are_given_up_costs_nothing_of_them() {
    let layout: &Layout = &[(DB, "whole"), (DAMAGED, "older")];
    each_cut((layout, false), GIVES_UP, |cut, replaced| {
        let whole = |replaced: &ReplacedStores| {
            let texts = [DB, DAMAGED].map(|name| replaced.text(name));
            texts.iter().flatten().any(|text| text == "whole")
        };
        assert!(whole(replaced), "after {cut} steps");
        replaced.begin().unwrap();
        // The store after an existing `db` must not be taken for half of it.
        assert_eq!(replaced.is_refilling(), !replaced.has(DB), "after {cut} steps");
        assert!(whole(replaced) && !replaced.has(GONE));
        if replaced.has(DB) {
            replaced.give_up().unwrap();
        }
        assert_eq!(replaced.texts(), are(["", "whole", ""]), "after {cut} steps");
    });
}

#[test]
fn a_death_when_all_is_filled_leaves_the_mark_or_nothing_to_clear() {
    let layout: &Layout = &[(DB, "filled"), (DAMAGED, "whole"), (PARTIAL, "half")];
    each_cut((layout, true), ReplacedStores::to_end, |cut, replaced| {
        assert_eq!(replaced.text(DAMAGED).as_deref(), Some("whole"), "after {cut} steps");
        replaced.begin().unwrap();
        assert!(!replaced.has(GONE));
        assert!(replaced.is_refilling() || !replaced.has(PARTIAL), "after {cut} steps");
    });
}

/// The mark exists before the first record, whatever happens in between.
#[test]
fn a_death_before_there_are_records_is_made_up_for() {
    each_cut((&[(DAMAGED, "whole")], false), ReplacedStores::to_begin, |_, replaced| {
        replaced.begin().unwrap();
        assert!(replaced.is_refilling());
    });
    // Records without a `CURRENT` are damaged ones, not a new store.
    let (_dir, replaced) = made(&[(DB, "whole"), (DAMAGED, "older")], false);
    fs::remove_file(replaced.path(DB).join("CURRENT")).unwrap();
    replaced.begin().unwrap();
    assert!(!replaced.is_refilling());
    // A node that has given nothing up has nothing to keep.
    let (_dir, replaced) = made(&[], false);
    replaced.begin().unwrap();
    assert!(!replaced.is_refilling() && replaced.kept().is_empty());
}

//! The number of source files in a folder: a folder with more than `FILES_MAX` is two rooms, unless
//! the table below has a reason.

use std::collections::BTreeMap;

use crate::Findings;
use crate::texts::Text;

/// Files of tests do not count.
const FILES_MAX: usize = 16;

/// A folder with more files, their number, and the reason. The number may only fall.
const LARGER: [(&str, usize, &str); 3] = [
    ("bench/src", 17, "one file for each benchmark"),
    ("sim/src/checkers", 26, "one file for each checker"),
    ("workloads/src/formats", 18, "one file for each format"),
];

pub(crate) fn check(texts: &[Text]) -> Findings {
    findings(texts.iter().map(|text| text.name.as_str()), &LARGER)
}

fn findings<'n>(names: impl Iterator<Item = &'n str>, larger: &[(&str, usize, &str)]) -> Findings {
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names.filter(|name| name.ends_with(".rs") && name.contains("/src")) {
        if let Some((folder, file)) = name.rsplit_once('/')
            && !folder.contains("/tests")
            && !file.ends_with("tests.rs")
        {
            *files.entry(folder).or_default() += 1;
        }
    }
    let mut findings = Findings::new();
    for (&folder, &count) in &files {
        let listed = larger.iter().find(|(listed, ..)| *listed == folder);
        let most = listed.map_or(FILES_MAX, |&(_, most, _)| most);
        if count > most {
            findings.push(format!("{folder}: {count} files, at most {most}; make two rooms of it"));
        }
        if listed.is_some() && count < most {
            let rest =
                if count <= FILES_MAX { "take it off the table" } else { "lower its number" };
            findings.push(format!("{folder}: {count} files; {rest} in xtask/src/folders.rs"));
        }
    }
    for (folder, ..) in larger.iter().filter(|(folder, ..)| !files.contains_key(folder)) {
        findings.push(format!("{folder}: is gone; take it off the table in xtask/src/folders.rs"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        let tests = ["a/src/b/tests.rs", "a/src/b/x_tests.rs", "a/src/tests/b/y.rs"];
        let files = (0..count).map(|at| format!("a/src/b/f{at}.rs"));
        files.chain(tests.map(str::to_owned)).collect()
    }

    #[test]
    fn a_folder_with_too_many_files_is_found() {
        let of = |count, larger: &[(&str, usize, &str)]| {
            let names = names(count);
            findings(names.iter().map(String::as_str), larger)
        };
        assert!(of(16, &[]).is_empty());
        assert_eq!(of(17, &[]), ["a/src/b: 17 files, at most 16; make two rooms of it"]);
        assert!(of(18, &[("a/src/b", 18, "")]).is_empty());
        assert_eq!(of(19, &[("a/src/b", 18, "")]).len(), 1);
        assert_eq!(
            of(17, &[("a/src/b", 18, "")]),
            ["a/src/b: 17 files; lower its number in xtask/src/folders.rs"]
        );
        assert_eq!(
            of(9, &[("a/src/b", 18, "")]),
            ["a/src/b: 9 files; take it off the table in xtask/src/folders.rs"]
        );
        assert_eq!(of(9, &[("a/src/c", 18, "")]).len(), 1);
    }
}

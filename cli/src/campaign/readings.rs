//! What consumers read, beside what is kept: a kept file called `*.sha256` is what `sha256sum` said
//! of the inputs of its task.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use crate::errors::Failure;
use crate::output::say;

const LIST: &str = ".sha256";
/// Of the files of a run that were kept with other bytes than were read this many are named.
const NAMED_MAX: usize = 3;

/// What came of the comparison: by kept file whether it agrees. Files of which no list speaks are
/// not in it.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Readings {
    /// Of a list: all of it agrees. Of a file that a list names: as the list says.
    pub(super) agrees: BTreeMap<String, bool>,
    /// Lines whose file is kept.
    pub(super) compared: u64,
}

impl Readings {
    /// `kept` are file names and where the files lie.
    pub(super) fn compare(kept: &BTreeMap<String, PathBuf>) -> Result<Self, Failure> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| Failure::file(path, &error));
        let mut sums: BTreeMap<&str, String> = BTreeMap::new();
        let mut seen = Self::default();
        let mut wrong = 0;
        for (list, path) in kept.iter().filter(|(file, _)| file.ends_with(LIST)) {
            let text = String::from_utf8_lossy(&read(path)?).into_owned();
            seen.agrees.insert(list.clone(), !text.is_empty());
            for line in text.lines() {
                let Some((sum, file)) = line.split_once("  ") else {
                    seen.agrees.insert(list.clone(), false);
                    continue;
                };
                let Some((file, path)) = kept.get_key_value(file) else { continue };
                if !sums.contains_key(file.as_str()) {
                    sums.insert(file, sum_of(&read(path)?));
                }
                let agrees = sums[file.as_str()] == sum;
                seen.compared += 1;
                for named in [list, file] {
                    *seen.agrees.entry(named.clone()).or_insert(true) &= agrees;
                }
                if !agrees {
                    wrong += 1;
                    if wrong <= NAMED_MAX {
                        say(&format!(
                            "error: {file} was read as {sum} ({list}), and kept as {}",
                            sums[file.as_str()]
                        ));
                    }
                }
            }
        }
        Ok(seen)
    }
}

/// As `sha256sum` writes it.
fn sum_of(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn compare(files: &[(&str, &str)]) -> Readings {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = BTreeMap::new();
        for (file, text) in files {
            std::fs::write(dir.path().join(file), text).unwrap();
            kept.insert((*file).to_owned(), dir.path().join(file));
        }
        Readings::compare(&kept).unwrap()
    }

    #[test]
    fn lists_agree_with_the_files_they_name() {
        let list = format!("{ABC}  a\n{EMPTY}  e\n{EMPTY}  not-kept\n");
        let seen = compare(&[("a", "abc"), ("e", ""), ("other", "x"), ("l.sha256", &list)]);
        assert_eq!(seen.compared, 2);
        let agree = ["a", "e", "l.sha256"].map(|file| (file.to_owned(), true));
        assert_eq!(seen.agrees, BTreeMap::from(agree));
    }

    #[test]
    fn a_file_with_other_bytes_and_a_list_that_says_nothing_do_not_agree() {
        let (right, wrong) = (format!("{ABC}  a\n"), format!("{EMPTY}  a\n"));
        let files = [("a", "abc"), ("1.sha256", &right), ("2.sha256", &wrong), ("3.sha256", "")];
        let seen = compare(&files);
        assert_eq!(seen.compared, 2);
        let agrees = |file: &str| seen.agrees[file];
        assert!(agrees("1.sha256") && !agrees("a"));
        assert!(!agrees("2.sha256") && !agrees("3.sha256"));
    }
}

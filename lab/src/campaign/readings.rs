//! The inputs that consumers read, compared with the kept files: a kept file called `*.sha256` is
//! the output of `sha256sum` for the inputs of its task.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use verb::errors::Failure;
use verb::output::say;

const LIST: &str = ".sha256";
/// The maximum of files per run with other bytes than were read that are named.
const NAMED_MAX: usize = 3;

/// The result of the comparison: by kept file, whether it agrees. Files that no list names are left
/// out.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Readings {
    /// For a list: true if all of it agrees. For a file in a list: true if it agrees with the list.
    pub(super) agrees: BTreeMap<String, bool>,
    /// Lines with a kept file.
    pub(super) compared: u64,
}

impl Readings {
    /// `kept` maps file names to paths.
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

/// The checksum in the format of `sha256sum`.
fn sum_of(bytes: &[u8]) -> String {
    security::to_hex(digest(&SHA256, bytes).as_ref())
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

//! Files and variables of a machine.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::PathBuf;

/// Files of the kernel are short; a longer one is cut.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A machine: its root directory and the environment variables of the node.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    variables: BTreeMap<String, String>,
}

impl Machine {
    /// This machine, and the variables of this process.
    #[must_use]
    pub fn this() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { root: PathBuf::from("/"), variables: std::env::vars_os().filter_map(text).collect() }
    }

    /// A tree of recorded files, with these variables alone.
    #[must_use]
    pub fn recorded(root: impl Into<PathBuf>, variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { root: root.into(), variables: variables.iter().map(owned).collect() }
    }

    /// This machine's variables with the files of another tree.
    #[must_use]
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The trimmed text of a file; `None` if it cannot be read.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        let mut text = String::new();
        let file = File::open(self.path(path)).ok()?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    }

    /// A number that is alone in its file.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// The names in a directory, sorted; none if it cannot be read.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(path)) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The last name of a link's target: `0000:07:00.0`.
    pub(crate) fn link_name(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        target.file_name()?.to_str().map(str::to_owned)
    }

    /// True if the device can be opened. A control group may forbid that.
    pub(crate) fn opens(&self, path: &str) -> bool {
        OpenOptions::new().read(true).write(true).open(self.path(path)).is_ok()
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|value| value.trim())
    }
}

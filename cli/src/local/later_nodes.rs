//! The nodes with state directories in an instance that joined after its first ones. If such a
//! directory is lost, nothing else tells `up` that the node ran on this machine.

use std::collections::BTreeSet;
use std::path::Path;

use verb::errors::Failure;

use crate::local::saved_settings::{read_small, replace};

/// In the instance directory: the numbers of the nodes.
const FILE: &str = "later.json";

/// The noted nodes. A file that cannot be read names none: a lost node is then not replaced.
pub(crate) fn noted(dir: &Path) -> BTreeSet<u32> {
    let text = read_small(&dir.join(FILE)).ok().flatten();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Notes these nodes beside those that are noted. `left`: the nodes that have left.
pub(crate) fn note(
    dir: &Path,
    nodes: impl IntoIterator<Item = u32>,
    left: impl Fn(u32) -> bool,
) -> Result<(), Failure> {
    let before = noted(dir);
    let mut all: BTreeSet<u32> = before.iter().copied().chain(nodes).collect();
    all.retain(|&node| !left(node));
    if all == before {
        return Ok(());
    }
    let text = serde_json::to_vec(&all).expect("numbers always serialise");
    replace(dir, FILE, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stay_noted_until_they_have_left() {
        let dir = tempfile::tempdir().unwrap();
        assert!(noted(dir.path()).is_empty());
        note(dir.path(), [2, 3], |_| false).unwrap();
        note(dir.path(), [4], |node| node == 3).unwrap();
        assert_eq!(noted(dir.path()), BTreeSet::from([2, 4]));
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(noted(dir.path()).is_empty());
        note(dir.path(), [5], |_| false).unwrap();
        assert_eq!(noted(dir.path()), BTreeSet::from([5]));
    }
}

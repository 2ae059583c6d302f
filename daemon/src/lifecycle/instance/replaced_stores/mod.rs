/*!
The records that a node has given up and set aside.

```text
db.damaged   the last records that were complete when they were given up, or the first of all
db.partial   the largest of those that were given up before they were filled
db.gone      a store that is being removed
refilling    `db` is newer than `db.damaged`, and other nodes may not have all records of that
```
While the mark exists, `db.damaged` may hold the last copy of some record, and no other records
replace it. The mark is written before the first record of a new store. It is removed with
`db.partial` when the agreed map shows that all replicas are complete. `db.damaged` stays for
inspection. It is deleted when complete records are given up in turn.

Each step is one rename, or the removal of something unneeded. The node may crash between any two
steps.
*/

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{DB, replace, sync_parent};
use crate::error::StartError;
use crate::store::{bytes_of_records, file_of_records};

const DAMAGED: &str = "db.damaged";
const PARTIAL: &str = "db.partial";
const GONE: &str = "db.gone";
const REFILLING: &str = "refilling";

/// The stores beside the present one in a state directory. A process that changes them holds the
/// directory's lock.
#[derive(Clone, Debug)]
pub(crate) struct ReplacedStores {
    pub(super) state: PathBuf,
}

/// The places of records that were given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReplacedRecords {
    /// `None`: the records were not worth keeping.
    pub(crate) these: Option<PathBuf>,
    /// Records of an earlier time, which are more complete.
    pub(crate) earlier: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Move(&'static str, &'static str),
    Remove(&'static str),
    Mark,
    Unmark,
}
use Step::{Mark, Move, Remove, Unmark};

impl ReplacedStores {
    fn path(&self, name: &str) -> PathBuf {
        self.state.join(name)
    }
    fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// True if `db.damaged` may hold the last copy of some record.
    pub(crate) fn is_refilling(&self) -> bool {
        self.has(REFILLING)
    }

    /// The stores that were set aside and still exist, the fullest first.
    pub(crate) fn kept(&self) -> Vec<PathBuf> {
        [DAMAGED, PARTIAL].iter().map(|name| self.path(name)).filter(|it| it.exists()).collect()
    }

    /// Must be called at a start, before records are made.
    pub(super) fn begin(&self) -> Result<(), StartError> {
        self.carry_out(&self.to_begin())
    }

    /// Sets the records aside: the next start has none, and another store number.
    pub(super) fn give_up(&self) -> Result<ReplacedRecords, StartError> {
        let steps = self.to_give_up()?;
        self.carry_out(&steps)?;
        let these = [DAMAGED, PARTIAL].into_iter().find(|&name| steps.contains(&Move(DB, name)));
        let earlier = (these != Some(DAMAGED) && self.has(DAMAGED)).then(|| self.path(DAMAGED));
        Ok(ReplacedRecords { these: these.map(|name| self.path(name)), earlier })
    }

    /// Ends the refilling: the records here are complete, and so are all other replicas.
    pub(crate) fn filled(&self) -> Result<(), StartError> {
        self.carry_out(&self.to_end())
    }

    /// Whether there is no store, nor a part of one.
    pub(super) fn lacks_records(&self) -> bool {
        let db = self.path(DB);
        let has_records = match file_of_records(&db) {
            Ok(file) => file.is_some(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        !db.join("CURRENT").exists() && !has_records
    }

    /// Where there are none: what is missing.
    pub(super) fn missing(&self) -> PathBuf {
        let db = self.path(DB);
        if db.exists() { db.join("CURRENT") } else { db }
    }

    fn to_begin(&self) -> Vec<Step> {
        let begins = self.lacks_records();
        let mut steps = vec![Remove(GONE)];
        match self.is_refilling() {
            true => {}
            false if begins && self.has(DAMAGED) => steps.push(Mark),
            false => steps.extend(self.to_drop(PARTIAL)),
        }
        steps
    }

    fn to_give_up(&self) -> Result<Vec<Step>, StartError> {
        let bytes = |name: &str| {
            let path = self.path(name);
            bytes_of_records(&path).map_err(|error| StartError::io("read", &path, error))
        };
        let takes_place = |of: &'static str| {
            let mut steps = self.to_drop(of);
            steps.extend([Move(DB, of), Remove(GONE)]);
            steps
        };
        Ok(match self.has(DAMAGED) {
            _ if !self.has(DB) => Vec::new(),
            false => takes_place(DAMAGED),
            // On a disk that keeps failing, an empty store must not replace the first one.
            true if bytes(DB)? == 0 => self.to_drop(DB),
            true if !self.is_refilling() => takes_place(DAMAGED),
            true if bytes(DB)? > bytes(PARTIAL)? => takes_place(PARTIAL),
            true => self.to_drop(DB),
        })
    }

    fn to_end(&self) -> Vec<Step> {
        let mut steps = self.to_drop(PARTIAL);
        steps.push(Unmark);
        steps
    }

    /// A directory is renamed before its removal: half of a store might be mistaken for a store.
    fn to_drop(&self, name: &'static str) -> Vec<Step> {
        match self.has(name) {
            true => vec![Remove(GONE), Move(name, GONE), Remove(GONE)],
            false => vec![Remove(GONE)],
        }
    }

    fn carry_out(&self, steps: &[Step]) -> Result<(), StartError> {
        steps.iter().try_for_each(|&step| self.take(step))
    }

    fn take(&self, step: Step) -> Result<(), StartError> {
        let (doing, path, done) = match step {
            Move(from, to) => {
                let from = self.path(from);
                ("rename", from.clone(), fs::rename(from, self.path(to)))
            }
            Remove(name) => ("remove", self.path(name), fs::remove_dir_all(self.path(name))),
            Unmark => ("remove", self.path(REFILLING), fs::remove_file(self.path(REFILLING))),
            Mark => return replace(&self.path(REFILLING), b"1\n"),
        };
        match done {
            Ok(()) => sync_parent(&path),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !matches!(step, Move(..)) => Ok(()),
            // Remains under this name are harmless. If the name is needed, the next rename fails.
            Err(_) if step == Remove(GONE) => Ok(()),
            Err(e) => Err(StartError::io(doing, &path, e)),
        }
    }
}

impl ReplacedRecords {
    /// The result as a text for people.
    pub(crate) fn told(&self) -> String {
        let at = |path: &Path| path.display().to_string();
        match (&self.these, &self.earlier) {
            (Some(these), None) => format!("what was left of them is in {}", at(these)),
            (Some(these), Some(earlier)) => format!(
                "they were not filled again yet, and what had come is in {}; those from before \
                 stay in {}",
                at(these),
                at(earlier)
            ),
            (None, Some(earlier)) => {
                format!("there was little yet; those from before stay in {}", at(earlier))
            }
            (None, None) => "there were none".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;

/*!
What a node keeps of records that it has given up.

```text
db.damaged   the last records that were whole when they were given up, or the first of all
db.partial   of those that were given up before they were filled: the most
db.gone      to be removed
refilling    `db` began after `db.damaged` was put aside, and others may not have all of that yet
```
As long as the mark stands, what is in `db.damaged` may be the last copy of something, and no other
records take its place. The mark is written before the first record of a new store, and removed when
the agreed map shows that all has its copies: then `db.partial` goes. `db.damaged` stays for people
to look at. It goes when records that were whole are given up in turn.

Each step is one rename or the removal of something that nothing needs: a node may die between any
two of them.
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

/// Where records are that were given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReplacedRecords {
    /// `None`: there were none worth keeping.
    pub(crate) these: Option<PathBuf>,
    /// Records of an earlier time, which have more.
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

    /// Whether `db.damaged` may have what nothing else has.
    pub(crate) fn is_refilling(&self) -> bool {
        self.has(REFILLING)
    }

    /// What was given up and is still there, the fullest first.
    pub(crate) fn kept(&self) -> Vec<PathBuf> {
        [DAMAGED, PARTIAL].iter().map(|name| self.path(name)).filter(|it| it.exists()).collect()
    }

    /// To be called at a start, before records are made.
    pub(super) fn begin(&self) -> Result<(), StartError> {
        self.carry_out(&self.to_begin())
    }

    /// Puts the records aside: the next start has none, and another store.
    pub(super) fn give_up(&self) -> Result<ReplacedRecords, StartError> {
        let steps = self.to_give_up()?;
        self.carry_out(&steps)?;
        let these = [DAMAGED, PARTIAL].into_iter().find(|&name| steps.contains(&Move(DB, name)));
        let earlier = (these != Some(DAMAGED) && self.has(DAMAGED)).then(|| self.path(DAMAGED));
        Ok(ReplacedRecords { these: these.map(|name| self.path(name)), earlier })
    }

    /// The records here are filled, and all others have their copies too.
    pub(crate) fn filled(&self) -> Result<(), StartError> {
        self.carry_out(&self.to_end())
    }

    fn to_begin(&self) -> Vec<Step> {
        let db = self.path(DB);
        let has_records = match file_of_records(&db) {
            Ok(file) => file.is_some(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        let begins = !db.join("CURRENT").exists() && !has_records;
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
            // On a disk that keeps failing, no store can be made in place of the first.
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

    /// A directory goes as a whole: half of a store might be taken for one.
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
            // Nothing needs what stays there. Where its name is needed, the next rename fails.
            Err(_) if step == Remove(GONE) => Ok(()),
            Err(e) => Err(StartError::io(doing, &path, e)),
        }
    }
}

impl ReplacedRecords {
    /// In words.
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

//! Files of a shared file system that tasks want copied to this node, and the disk space of those
//! that tasks here use. A file is copied once, however many tasks want it.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::{JobId, TaskId};

use crate::holder::task::Work;

/// A file as the tasks of a job name it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SharedFile {
    job: JobId,
    path: Arc<str>,
    /// Set if the path has braces: then each entry has another file.
    entry: Option<u64>,
    size_bytes: u64,
}

/// The files that a task wants copied, as far as their sizes are declared.
#[must_use]
pub(crate) fn files_of(task: TaskId, work: &Work) -> Vec<SharedFile> {
    let wanted = work.spec.externals.iter().filter(|it| it.staged && it.size_bytes > 0);
    let file = |external: &proto::wire::External| SharedFile {
        job: task.job,
        path: external.path.as_str().into(),
        entry: external.path.contains('{').then_some(work.entry),
        size_bytes: external.size_bytes,
    };
    wanted.map(file).collect()
}

/// The files that staged and running tasks use, each with the number of these tasks.
#[derive(Debug, Default)]
pub(crate) struct SharedFiles {
    users: BTreeMap<SharedFile, u32>,
    bytes: u64,
}

impl SharedFiles {
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
    /// The bytes that these files would take in addition.
    #[must_use]
    pub(crate) fn room(&self, files: &[SharedFile]) -> u64 {
        let new = files.iter().filter(|file| !self.users.contains_key(file));
        new.fold(0, |sum, file| sum.saturating_add(file.size_bytes))
    }
    /// A task is going to use these files.
    pub(crate) fn take(&mut self, files: &[SharedFile]) {
        for file in files {
            let users = self.users.entry(file.clone()).or_insert(0);
            *users += 1;
            if *users == 1 {
                self.bytes = self.bytes.saturating_add(file.size_bytes);
            }
        }
    }
    /// A task that used these files has ended.
    pub(crate) fn give_back(&mut self, files: &[SharedFile]) {
        for file in files {
            let Some(users) = self.users.get_mut(file) else { continue };
            *users -= 1;
            if *users == 0 {
                self.users.remove(file);
                self.bytes = self.bytes.saturating_sub(file.size_bytes);
            }
        }
    }
}

//! The file names of objects, and the scan of the files after a restart.

use std::fs;
use std::io;
use std::path::Path;

use proto::{Attempt, JobId, LocalId, ObjectId, TaskId};

use super::ObjectKind;
use super::index::Index;
use super::reader::changed_ns;

pub(super) const PART_SUFFIX: &str = ".part";

/// The range of a job's objects in the index.
pub(super) fn range_of(job: JobId) -> std::ops::RangeInclusive<ObjectId> {
    let bound = |local: u64, attempt: u64, output: u32| ObjectId {
        task: TaskId { job, local: LocalId(local) },
        attempt: Attempt(attempt),
        output,
    };
    bound(0, 0, 0)..=bound(u64::MAX, u64::MAX, u32::MAX)
}

pub(super) fn directory_name(job: JobId) -> String {
    format!("{:016x}", job.0)
}

pub(super) fn file_name(object: ObjectId, kind: ObjectKind) -> String {
    let (partition, index) = (object.task.partition().0, object.task.local.index());
    let suffix = kind.suffix();
    format!("{partition}.{index}-{:x}-{}{suffix}", object.attempt.0, object.output)
}

fn parse_name(job: JobId, name: &str) -> Option<(ObjectId, ObjectKind)> {
    let mut parts = name.split('-');
    let local: LocalId = parts.next()?.parse().ok()?;
    let attempt = Attempt(u64::from_str_radix(parts.next()?, 16).ok()?);
    let output = parts.next()?.parse().ok()?;
    let object = ObjectId { task: TaskId { job, local }, attempt, output };
    let (word, number) = (parts.next(), parts.next());
    let kind = match (word, number) {
        (None, None) => ObjectKind::Made,
        (Some("kept"), None) => ObjectKind::Kept,
        (Some("copy"), None) => ObjectKind::Copy,
        (Some(word @ ("kept" | "shared")), Some(share)) => {
            ObjectKind::Shared { keep: word == "kept", share: share.parse().ok()? }
        }
        _ => return None,
    };
    parts.next().is_none().then_some((object, kind))
}

/// Lists complete objects and removes `.part` files of an earlier incarnation.
pub(super) fn scan(root: &Path) -> io::Result<Index> {
    let mut index = Index::default();
    for directory in fs::read_dir(root)? {
        let directory = directory?;
        let name = directory.file_name();
        let Some(job) = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok()) else {
            continue;
        };
        for entry in fs::read_dir(directory.path())? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(PART_SUFFIX) {
                fs::remove_file(entry.path())?;
            } else if let Some((object, kind)) = parse_name(JobId(job), name) {
                let metadata = entry.metadata()?;
                let changed_ns = Some(changed_ns(&metadata));
                index.insert(object, metadata.len(), changed_ns, kind);
            }
        }
    }
    Ok(index)
}

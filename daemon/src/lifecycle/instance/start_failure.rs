//! The failure file of a node that a launcher started: the reason why the node did not start.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use proto::NodeId;
use serde::{Deserialize, Serialize};

use super::{Instance, make_private_dir, replace, to_json};
use crate::error::StartError;

/// The content of `nodes/<id>/failed.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailureFile {
    pub launch: String,
    pub reason: String,
}

impl Instance {
    fn failure_path(&self, node: NodeId) -> PathBuf {
        self.node_dir(node).join("failed.json")
    }

    /// Writes the reason why a node does not start, or removes it.
    pub fn note_failure(&self, node: NodeId, failure: Option<&FailureFile>) {
        let path = self.failure_path(node);
        // If the file cannot be written, the others wait until their deadline.
        let _ = match failure {
            Some(failure) => make_private_dir(&self.node_dir(node))
                .and_then(|()| replace(&path, to_json(failure).as_bytes())),
            None => fs::remove_file(&path).map_err(|e| StartError::io("remove", &path, e)),
        };
    }

    /// As [`Self::note_failure`], unless the start did not really fail. A directory in use belongs
    /// to a running node.
    pub(crate) fn note_failure_of_start(&self, node: NodeId, launch: &str, error: &StartError) {
        let has_not_failed = matches!(
            error,
            StartError::InUse { .. } | StartError::Missing { .. } | StartError::Stopped
        );
        if !has_not_failed {
            let (launch, reason) = (launch.to_owned(), error.to_string());
            self.note_failure(node, Some(&FailureFile { launch, reason }));
        }
    }

    /// The failure of a node, and the time when it was written.
    #[must_use]
    pub fn read_failure(&self, node: NodeId) -> Option<(FailureFile, SystemTime)> {
        let path = self.failure_path(node);
        let written = fs::metadata(&path).and_then(|found| found.modified()).ok()?;
        Some((serde_json::from_slice(&fs::read(path).ok()?).ok()?, written))
    }
}

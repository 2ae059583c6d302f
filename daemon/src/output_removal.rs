//! What tasks of a forgotten job have printed is removed beside the loop: packs may be large.

use std::sync::Arc;

use node::Input;
use proto::JobId;
use tokio::sync::mpsc::UnboundedSender;

use crate::inbox::Local;
use crate::service::Shared;

/// Reports when it is gone from the disk. Where it cannot be removed it stays known, and the home
/// of the job demands it again when this node has restarted or the map has changed.
pub(crate) fn begin(job: JobId, number: u64, shared: &Arc<Shared>, local: &UnboundedSender<Local>) {
    let (shared, local) = (Arc::clone(shared), local.clone());
    tokio::task::spawn_blocking(move || match shared.executor.streams().forget(job) {
        // A loop that is gone wants nothing any more.
        Ok(()) => drop(local.send(Local::Input(Input::Erased { job, number }))),
        Err(error) => {
            let line = format!("what job {job} has printed cannot be removed: {error}");
            shared.log.refusal(&line);
        }
    });
}

//! Removes the printed output of a forgotten job on another thread, because packs may be large.

use std::sync::Arc;

use node::Input;
use proto::JobId;
use tokio::sync::mpsc::UnboundedSender;

use crate::event_loop::inbox::Local;
use crate::rpc::service::Shared;

/// Reports the removal to the run loop. If the removal fails, the output stays registered. The home
/// of the job demands it again after a restart of this node or a change of the map.
pub(crate) fn begin(job: JobId, number: u64, shared: &Arc<Shared>, local: &UnboundedSender<Local>) {
    let (shared, local) = (Arc::clone(shared), local.clone());
    tokio::task::spawn_blocking(move || match shared.executor.streams().forget(job) {
        // Fails only if the run loop has ended.
        Ok(()) => drop(local.send(Local::Input(Input::Erased { job, number }))),
        Err(error) => {
            let line = format!("what job {job} has printed cannot be removed: {error}");
            shared.log.refusal(&line);
        }
    });
}

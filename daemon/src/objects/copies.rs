//! Brings copies of objects that were changed or lost on this node's disk.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use executor::ObjectSource;
use proto::{ObjectId, Span};

use crate::objects::data::{self, Wanted};
use crate::rpc::service::Shared;

/// The time allowed for the copy of one node, and more by size.
const COPY_TIMEOUT: Span = Span::from_secs(10);
const COPY_BYTES_PER_SECOND: u64 = 1 << 20;

/// The other nodes of the cluster.
pub(crate) struct OtherNodes(Weak<Shared>);

impl OtherNodes {
    /// Lets the node of `shared` replace its damaged objects.
    pub(crate) fn serve(shared: &Arc<Shared>) {
        let source = Self(Arc::downgrade(shared));
        shared.executor.objects().set_source(Arc::new(source));
    }
}

impl ObjectSource for OtherNodes {
    fn fetch(&self, object: ObjectId, size_bytes: u64) -> Result<(), String> {
        let shared = self.0.upgrade().ok_or("this node stops")?;
        let more = Span::from_secs(size_bytes / COPY_BYTES_PER_SECOND);
        let timeout = Duration::from_nanos(COPY_TIMEOUT.0.saturating_add(more.0));
        for node in shared.others.all().into_iter().filter(|it| !shared.others.is_down(*it)) {
            let (end, ended) = sync_channel(1);
            let wanted = Wanted::new(object, size_bytes, move |result| {
                let _ = end.send(result); // Nothing waits for it after the timeout.
            });
            data::bring(&shared, node, [wanted]);
            match ended.recv_timeout(timeout) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("this node stops".to_owned()),
            }
        }
        Err("no other node has it".to_owned())
    }
}

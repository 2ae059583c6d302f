//! Group commit: a thread that syncs written batches while the run loop continues.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::mpsc::UnboundedSender;

use crate::event_loop::inbox::Local;
use crate::store::Syncer;

/// At most one sync is requested at a time; later writes go with the next one.
#[derive(Debug)]
pub(crate) struct SyncThread {
    requests: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SyncThread {
    pub(crate) fn start(
        name: String,
        syncer: Syncer,
        local: UnboundedSender<Local>,
    ) -> io::Result<Self> {
        let (requests, asked) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            for () in asked {
                let result = syncer.make_durable();
                let told = local.send(Local::Synced(result.clone().map(|synced| synced.seq)));
                // The run loop has ended, or will end: a failed sync is never repeated.
                let (Ok(()), Ok(synced)) = (told, result) else { return };
                if let Err(error) = syncer.note(synced) {
                    let _ = local.send(Local::Synced(Err(error)));
                    return;
                }
            }
        })?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Requests that everything written so far becomes durable.
    pub(crate) fn request(&self) {
        if let Some(requests) = &self.requests {
            // A thread that has ended has left its error in the queue of the run loop.
            let _ = requests.send(());
        }
    }
}

impl Drop for SyncThread {
    /// Waits until the store is not in use any more.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

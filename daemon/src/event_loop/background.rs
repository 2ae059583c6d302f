//! Reads files on other threads than that of the run loop.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// The maximum of pieces that are read ahead of a slow consumer.
const PIECES_AHEAD: usize = 2;

/// Runs an iterator that reads files on the pool of blocking threads. A slow consumer costs memory
/// for a few items but no thread. The pool is small: if consumers could hold all its threads, no
/// other reader would make progress.
pub(crate) fn in_background<T: Send + 'static>(
    items: impl Iterator<Item = T> + Send + 'static,
) -> mpsc::Receiver<T> {
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    tokio::spawn(async move {
        let mut items = items;
        loop {
            let queue = sender.clone();
            let ahead = tokio::task::spawn_blocking(move || {
                let waiting = fill(&mut items, &queue);
                (items, waiting)
            });
            // A panic of the iterator ends the stream, like the end of its items.
            let Ok((rest, Some(waiting))) = ahead.await else { return };
            items = rest;
            if sender.send(waiting).await.is_err() {
                return; // The consumer is gone.
            }
        }
    });
    receiver
}

/// Fills the queue. Returns the item that found no room, or `None` when the iterator has ended or
/// the consumer is gone.
fn fill<T>(items: &mut impl Iterator<Item = T>, queue: &mpsc::Sender<T>) -> Option<T> {
    for item in items {
        match queue.try_send(item) {
            Ok(()) => {}
            Err(TrySendError::Full(item)) => return Some(item),
            Err(TrySendError::Closed(_)) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_wait_hold_no_thread() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let _unread: Vec<_> = (0..4).map(|_| in_background(0..100)).collect();
            let mut stream = in_background(0..100);
            for expected in 0..100 {
                assert_eq!(stream.recv().await, Some(expected));
            }
            assert_eq!(stream.recv().await, None);
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        });
    }
}

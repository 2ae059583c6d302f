//! Reading files beside the loop's thread.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Pieces of a file that wait for a slow reader.
const PIECES_AHEAD: usize = 2;

/// Runs an iterator that reads files on the pool of blocking threads. A reader that is slow costs
/// memory for a few items but no thread: those are few, and whoever waits for one of them while
/// all wait for readers would wait for ever.
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
            // A panic of the iterator ends the stream, as its end does.
            let Ok((rest, Some(waiting))) = ahead.await else { return };
            items = rest;
            if sender.send(waiting).await.is_err() {
                return; // The reader is gone.
            }
        }
    });
    receiver
}

/// Fills the queue. What found no room any more, or nothing when all is told or nobody reads.
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

//! Connections without a verified certificate yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::limits;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The unauthenticated connections of one port, the oldest first. At the limit, a connection older
/// than `STRANGER_GRACE` is closed to make room: silent callers must not keep others out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strangers {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    here: Mutex<Here>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Here {
    next: u64,
    by_number: BTreeMap<u64, Stranger>,
}

#[derive(Debug)]
struct Stranger {
    came: Instant,
    /// The handle that closes it; `None` until it is known.
    task: Option<AbortHandle>,
}

/// The place of one unauthenticated connection.
#[derive(Debug)]
pub(crate) struct Place {
    strangers: Strangers,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.strangers.here().by_number.remove(&self.number);
        self.strangers.inner.left.notify_one();
    }
}

impl Strangers {
    fn here(&self) -> MutexGuard<'_, Here> {
        self.inner.here.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room, and closes the oldest connection if necessary. True if one was closed.
    pub(crate) async fn room(&self) -> bool {
        let grace = Duration::from_nanos(limits::STRANGER_GRACE.0);
        loop {
            let left = self.inner.left.notified();
            let wait = {
                let mut here = self.here();
                if here.by_number.len() < limits::STRANGERS_MAX {
                    return false;
                }
                let Some(oldest) = here.by_number.first_entry() else { return false };
                let wait = grace.saturating_sub(oldest.get().came.elapsed());
                if wait.is_zero() {
                    if let Some(task) = oldest.remove().task {
                        task.abort();
                    }
                    return true;
                }
                wait
            };
            // After either event the state is checked again.
            let _ = tokio::time::timeout(wait, left).await;
        }
    }

    /// Authenticates a connection; `greet` drops its place when that is done.
    pub(crate) fn greet<F>(&self, greet: impl FnOnce(Place) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let number = {
            let mut here = self.here();
            here.next += 1;
            let number = here.next;
            here.by_number.insert(number, Stranger { came: Instant::now(), task: None });
            number
        };
        let task = tokio::spawn(greet(Place { strangers: self.clone(), number }));
        // The connection may be authenticated, or closed, already.
        if let Some(stranger) = self.here().by_number.get_mut(&number) {
            stranger.task = Some(task.abort_handle());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_makes_room_but_not_at_once() {
        let strangers = Strangers::default();
        let come = || {
            strangers.greet(|place| async move {
                std::future::pending::<()>().await;
                drop(place);
            });
        };
        let start = Instant::now();
        for _ in 0..limits::STRANGERS_MAX {
            assert!(!strangers.room().await);
            come();
        }
        assert!(strangers.room().await, "the first has had its time");
        assert!(start.elapsed() >= Duration::from_nanos(limits::STRANGER_GRACE.0));
        come();
        let here: Vec<u64> = strangers.here().by_number.keys().copied().collect();
        assert_eq!((here.len(), here[0]), (limits::STRANGERS_MAX, 2));
        strangers.greet(|place| async move { drop(place) });
        tokio::task::yield_now().await;
        assert_eq!(strangers.here().by_number.len(), limits::STRANGERS_MAX, "one left by itself");
    }
}

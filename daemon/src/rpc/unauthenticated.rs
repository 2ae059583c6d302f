//! Connections without a verified certificate yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::{Span, limits};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// For a connection beyond the limit, the oldest that has had this time is closed.
const UNAUTHENTICATED_GRACE: Span = Span::from_millis(500);

/// The unauthenticated connections of one port, the oldest first. At the limit, a connection older
/// than `UNAUTHENTICATED_GRACE` is closed to make room: silent callers must not keep others out.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnauthenticatedConnections {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    connections: Mutex<Connections>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    by_number: BTreeMap<u64, PendingConnection>,
}

#[derive(Debug)]
struct PendingConnection {
    came: Instant,
    /// The handle that closes it; `None` until it is known.
    task: Option<AbortHandle>,
}

/// The place of one unauthenticated connection.
#[derive(Debug)]
pub(crate) struct UnauthenticatedSlot {
    connections_of_port: UnauthenticatedConnections,
    number: u64,
}

/// The time before a connection of this age may be closed to make room.
fn grace_left(age: Duration) -> Duration {
    Duration::from_nanos(UNAUTHENTICATED_GRACE.0).saturating_sub(age)
}

impl Drop for UnauthenticatedSlot {
    fn drop(&mut self) {
        self.connections_of_port.connections().by_number.remove(&self.number);
        self.connections_of_port.inner.left.notify_one();
    }
}

impl UnauthenticatedConnections {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.inner.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room, and closes the oldest connection if necessary. True if one was closed.
    pub(crate) async fn room(&self) -> bool {
        loop {
            let left = self.inner.left.notified();
            let wait = {
                let mut connections = self.connections();
                if connections.by_number.len() < limits::UNAUTHENTICATED_CONNECTIONS_MAX {
                    return false;
                }
                let Some(oldest) = connections.by_number.first_entry() else { return false };
                let wait = grace_left(oldest.get().came.elapsed());
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
    pub(crate) fn greet<F>(&self, greet: impl FnOnce(UnauthenticatedSlot) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let number = {
            let mut connections = self.connections();
            connections.next += 1;
            let number = connections.next;
            connections
                .by_number
                .insert(number, PendingConnection { came: Instant::now(), task: None });
            number
        };
        let task =
            tokio::spawn(greet(UnauthenticatedSlot { connections_of_port: self.clone(), number }));
        // The connection may be authenticated, or closed, already.
        if let Some(pending) = self.connections().by_number.get_mut(&number) {
            pending.task = Some(task.abort_handle());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_not_closed_within_its_grace() {
        let grace = Duration::from_nanos(UNAUTHENTICATED_GRACE.0);
        assert_eq!(grace_left(Duration::ZERO), grace);
        assert_eq!(grace_left(grace - Duration::from_nanos(1)), Duration::from_nanos(1));
        assert!(grace_left(grace).is_zero() && grace_left(2 * grace).is_zero());
    }

    #[tokio::test]
    async fn the_oldest_connection_makes_room() {
        let connections_of_port = UnauthenticatedConnections::default();
        let come = || {
            connections_of_port.greet(|place| async move {
                std::future::pending::<()>().await;
                drop(place);
            });
        };
        for _ in 0..limits::UNAUTHENTICATED_CONNECTIONS_MAX {
            assert!(!connections_of_port.room().await);
            come();
        }
        assert!(connections_of_port.room().await, "the first is closed after its grace");
        come();
        let connections: Vec<u64> =
            connections_of_port.connections().by_number.keys().copied().collect();
        assert_eq!(
            (connections.len(), connections[0]),
            (limits::UNAUTHENTICATED_CONNECTIONS_MAX, 2)
        );
        connections_of_port.greet(|place| async move { drop(place) });
        tokio::task::yield_now().await;
        assert_eq!(
            connections_of_port.connections().by_number.len(),
            limits::UNAUTHENTICATED_CONNECTIONS_MAX,
            "one left by itself"
        );
    }
}

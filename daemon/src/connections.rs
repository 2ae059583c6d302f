//! The connections over which objects come: one from each node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use proto::NodeId;
use tonic::{Code, Status};

use crate::peers::{self, Client, Credentials};

/// Connections by node, each kept for as long as the node stays at its address and answers.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    places: Mutex<BTreeMap<NodeId, Arc<Place>>>,
}

/// The async lock is held while connecting: the others wait for that connection instead of
/// making one each.
type Place = tokio::sync::Mutex<Slot>;

#[derive(Debug, Default)]
struct Slot {
    /// Of the last connection made here.
    number: u64,
    open: Option<(String, Client)>,
}

impl Connections {
    /// A connection to the node at its address, and the number by which [`Self::after`] knows it.
    pub(crate) async fn get(
        &self,
        from: NodeId,
        address: &str,
        credentials: &Credentials,
    ) -> Result<(u64, Client), String> {
        let place = self.place(from);
        let mut slot = place.lock().await;
        match &slot.open {
            Some((known, client)) if known == address => Ok((slot.number, client.clone())),
            _ => {
                slot.open = None;
                let client = peers::connect(address, credentials).await?;
                slot.number += 1;
                slot.open = Some((address.to_owned(), client.clone()));
                Ok((slot.number, client))
            }
        }
    }

    /// After a call that failed: forgets the connection if the failure may be the connection's.
    pub(crate) fn after(&self, from: NodeId, number: u64, status: &Status) {
        if !matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) {
            return;
        }
        // Whoever holds the lock is about to replace it anyway.
        if let Ok(mut slot) = self.place(from).try_lock()
            && slot.number == number
        {
            slot.open = None;
        }
    }

    fn place(&self, node: NodeId) -> Arc<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(node).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[tokio::test]
    async fn many_who_come_at_once_share_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let credentials = Credentials::new(&"ab".repeat(32));
        let connections = Arc::new(Connections::default());
        let get = || {
            let (connections, address) = (Arc::clone(&connections), address.clone());
            let credentials = credentials.clone();
            async move { connections.get(NodeId(3), &address, &credentials).await.unwrap() }
        };
        let mut came = tokio::task::JoinSet::new();
        (0..20).for_each(|_| _ = came.spawn(get()));
        let mut kept = Vec::new();
        while let Some(got) = came.join_next().await {
            kept.push(got.unwrap());
        }
        assert!(kept.iter().all(|(number, _)| *number == 1));
        let accepted = || std::iter::from_fn(|| listener.accept().ok()).count();
        assert_eq!(accepted(), 1);

        connections.after(NodeId(3), 1, &Status::not_found("the object"));
        assert_eq!(get().await.0, 1, "the connection is not to blame");
        connections.after(NodeId(3), 1, &Status::unavailable("hung up"));
        assert_eq!(get().await.0, 2);
        connections.after(NodeId(3), 1, &Status::unavailable("hung up"));
        assert_eq!(get().await.0, 2, "a late word about the first one");
        assert_eq!(accepted(), 1);
    }
}

//! The records of allocations in the key-value store.

use allocation::{Intent, Learned, Lease, QueueConfig, QueueState, System, keys, limits};
use client::{Cas, Client, Kv};
use serde::Serialize;
use serde::de::DeserializeOwned;
use verb::errors::Failure;

/// The tries to change a record that others change at the same time.
const TRIES: usize = 32;

/// The records, through a client of the cluster.
#[derive(Clone, Debug)]
pub(super) struct Records {
    kv: Kv,
}

/// A queue with its kept intents.
#[derive(Debug, Serialize)]
pub(super) struct QueueRecord {
    pub(super) config: QueueConfig,
    pub(super) state: QueueState,
    pub(super) intents: Vec<Intent>,
}

impl QueueRecord {
    /// The offer of its first node, also if its owner has not noted it yet.
    pub(super) fn learned(&self) -> Learned {
        let noted = self.intents.iter().map(|intent| &intent.offer);
        let mut offers = std::iter::once(&self.state.offer).chain(noted);
        offers.find(|offer| !offer.is_empty()).cloned().unwrap_or_default()
    }
}

impl Records {
    pub(super) fn new(client: &Client) -> Result<Self, Failure> {
        Ok(Self { kv: client.kv().numbered()? })
    }
    pub(super) fn kv(&self) -> &Kv {
        &self.kv
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Failure> {
        Ok(self.get_with_bytes(key).await?.map(|(record, _)| record))
    }
    async fn get_with_bytes<T: DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<(T, Vec<u8>)>, Failure> {
        let Some(value) = self.kv.lookup(key.as_bytes()).await? else { return Ok(None) };
        let record = serde_json::from_slice(&value.bytes);
        let record = record.map_err(|error| {
            Failure::refused(format!("the value of key {key} is not valid: {error}"))
        })?;
        Ok(Some((record, value.bytes.to_vec())))
    }

    /// Changes a record; `change` returns `None` to leave it. Returns the record that is stored.
    pub(super) async fn change<T: DeserializeOwned + Serialize>(
        &self,
        key: &str,
        change: impl Fn(Option<&T>) -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        for _ in 0..TRIES {
            let read: Option<(T, Vec<u8>)> = self.get_with_bytes(key).await?;
            let (present, bytes) = read.unzip();
            let Some(changed) = change(present.as_ref())? else { return Ok(present) };
            let value = serde_json::to_vec(&changed).expect("records have plain fields");
            let swapped = self.kv.cas(key.as_bytes(), bytes.as_deref(), &value).await?;
            if matches!(swapped, Cas::Swapped { .. }) {
                return Ok(Some(changed));
            }
        }
        Err(Failure::refused(format!("key {key} changes too often: try again")))
    }

    pub(super) async fn names(&self) -> Result<Vec<String>, Failure> {
        let mut names: Vec<String> = self.get(keys::QUEUES).await?.unwrap_or_default();
        names.truncate(limits::QUEUES_MAX);
        Ok(names)
    }

    pub(super) async fn has_queue_of(&self, system: System) -> Result<bool, Failure> {
        for name in self.names().await? {
            let config: Option<QueueConfig> = self.get(&keys::queue(&name)).await?;
            if config.is_some_and(|config| config.system == system) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn config(&self, name: &str) -> Result<QueueConfig, Failure> {
        match self.get(&keys::queue(name)).await {
            Ok(Some(config)) if self.names().await?.iter().any(|known| known == name) => Ok(config),
            Ok(_) => Err(self.unknown(name).await),
            Err(failure) => Err(failure),
        }
    }
    async fn unknown(&self, name: &str) -> Failure {
        let names = self.names().await.unwrap_or_default();
        let hint = match &names[..] {
            [] => "there is none: 'starling alloc add' makes one".to_owned(),
            names => format!("the queues are {}", names.join(", ")),
        };
        Failure::refused(format!("there is no queue '{name}'")).hint(hint)
    }

    /// A queue with all its kept intents.
    pub(super) async fn queue(&self, name: &str) -> Result<QueueRecord, Failure> {
        let config = self.config(name).await?;
        let state: QueueState = self.get(&keys::state(name)).await?.unwrap_or_default();
        let mut intents = Vec::new();
        let mut number = state.first();
        while let Some(intent) = self.get(&keys::intent(name, number)).await? {
            intents.push(intent);
            number += 1;
        }
        Ok(QueueRecord { config, state, intents })
    }

    /// All queues with their open intents.
    pub(super) async fn queues(&self) -> Result<Vec<QueueRecord>, Failure> {
        let mut queues = Vec::new();
        for name in self.names().await? {
            match self.queue(&name).await {
                Ok(queue) => queues.push(queue),
                Err(failure) if failure.message.starts_with("there is no queue") => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(queues)
    }

    pub(super) async fn lease(&self, site: System) -> Result<Option<Lease>, Failure> {
        self.get(&keys::owner(site)).await
    }
}

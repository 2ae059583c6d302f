//! Finding the node, asking it, and asking again when the connection broke.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use proto::wire::{self, request};
use proto::{JobId, LocalId, NodeId, PartitionId};
use security::Dialer;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::link::{self, Link, Lost};
use crate::{ClientError, Instance};

const BACKOFF_START: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How long any node of an instance may take to answer at all.
const CONTACT_PATIENCE: Duration = Duration::from_secs(5);
/// Nodes that are contacted at the same time.
const CONTACTS_MAX: usize = 64;
/// Nodes that are named when none of them answers.
const LOST_TOLD_MAX: usize = 4;

/// How a client behaves towards nodes that are away.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// How long one request is repeated before the cluster counts as unreachable.
    pub patience: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(30) }
    }
}

/// A connection to a cluster. Cheap to clone; all clones share their sessions.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Where addresses are looked up anew; `None` when only an address was given.
    instance: Option<Instance>,
    dialer: Dialer,
    options: ClientOptions,
    map: Mutex<Arc<wire::ClusterMap>>,
    links: Mutex<BTreeMap<u32, Arc<tokio::sync::Mutex<Option<Link>>>>>,
    last_id: AtomicU64,
}

/// Whether a request whose fate is unknown may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Never,
}

/// A body and the node it belongs to, made anew whenever the map changed.
pub(crate) type Route<'a> = &'a (dyn Fn(&wire::ClusterMap) -> (u32, request::Body) + Sync);

impl Client {
    /// Connects to the instance in `dir`, through whichever of its nodes answers first.
    pub async fn connect(dir: &Path) -> Result<Self, ClientError> {
        Self::connect_with(dir, ClientOptions::default()).await
    }

    pub async fn connect_with(dir: &Path, options: ClientOptions) -> Result<Self, ClientError> {
        let instance = Instance::new(dir);
        instance.cluster()?;
        let dialer = instance.dialer()?;
        let client = Self::unconnected(Some(instance.clone()), dialer, options);
        let deadline = Instant::now() + options.patience.min(CONTACT_PATIENCE);
        let mut backoff = BACKOFF_START;
        loop {
            let lost = match client.contact_any(&instance).await {
                Ok(()) => return Ok(client),
                Err(lost) => lost,
            };
            let is_hopeless = lost.is_empty() || lost.values().any(Lost::is_hopeless);
            if Instant::now() + backoff > deadline || is_hopeless {
                let told = lost.iter().take(LOST_TOLD_MAX);
                let mut told: Vec<_> =
                    told.map(|(node, lost)| format!("n{node} at {}", lost.0)).collect();
                if lost.len() > told.len() {
                    told.push(format!("{} more", lost.len() - told.len()));
                }
                let text = match told.is_empty() {
                    true => format!("no node of {} is running", dir.display()),
                    false => told.join("; "),
                };
                return Err(ClientError::ClusterUnreachable(text));
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Contacts the nodes of an instance at the same time until one of them answers; else why
    /// each of them did not.
    async fn contact_any(&self, instance: &Instance) -> Result<(), BTreeMap<u32, Lost>> {
        let mut left = instance.addresses().into_iter();
        let mut contacts = JoinSet::new();
        let mut all_lost = BTreeMap::new();
        loop {
            for (node, file) in left.by_ref().take(CONTACTS_MAX - contacts.len()) {
                let client = self.clone();
                contacts.spawn(async move {
                    let contact = client.first_contact(node, &file.address).await;
                    let name = |lost: Lost| Lost(format!("{}: {}", file.address, lost.0));
                    (node, contact.map_err(name))
                });
            }
            match contacts.join_next().await {
                None => return Err(all_lost),
                Some(contact) => match contact.expect("a contact does not panic") {
                    (_, Ok(())) => return Ok(()),
                    (node, Err(lost)) => drop(all_lost.insert(node, lost)),
                },
            }
        }
    }

    /// Connects through one node's address; the others are found in its map.
    pub async fn connect_address(address: &str, dialer: Dialer) -> Result<Self, ClientError> {
        Self::connect_address_with(address, dialer, ClientOptions::default()).await
    }

    pub async fn connect_address_with(
        address: &str,
        dialer: Dialer,
        options: ClientOptions,
    ) -> Result<Self, ClientError> {
        let client = Self::unconnected(None, dialer, options);
        let contact = client.first_contact(u32::MAX, address).await;
        contact
            .map_err(|lost| ClientError::ClusterUnreachable(format!("{address}: {}", lost.0)))?;
        Ok(client)
    }

    fn unconnected(instance: Option<Instance>, dialer: Dialer, options: ClientOptions) -> Self {
        let inner = Inner {
            instance,
            dialer,
            options,
            map: Mutex::default(),
            links: Mutex::default(),
            last_id: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Opens a session with a node and learns the map from it.
    async fn first_contact(&self, node: u32, address: &str) -> Result<(), Lost> {
        let link = Link::open(address, &self.inner.dialer).await?;
        let id = self.next_id();
        let answer = link.send(id, link::encode(id, request::Body::Map(wire::MapQuery {}))).await?;
        let patience = self.inner.options.patience.min(CONTACT_PATIENCE);
        let answer = tokio::time::timeout(patience, answer).await;
        let answer = answer.map_err(|_| Lost("it does not answer".to_owned()))?;
        let response = answer.map_err(|_| Lost("connection closed".to_owned()))??;
        let Some(wire::response::Body::Map(map)) = response.body else {
            let text = response.error.map_or_else(String::new, |error| error.text);
            return Err(Lost(format!("it did not tell the map {text}")));
        };
        self.learn(map);
        let known = self.map().members.iter().any(|member| member.node == node);
        if known {
            *self.slot(node).lock().await = Some(link);
        }
        Ok(())
    }

    /// The newest map this client has seen.
    #[must_use]
    pub fn map(&self) -> Arc<wire::ClusterMap> {
        Arc::clone(&self.inner.map.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn learn(&self, map: wire::ClusterMap) {
        let mut known = self.inner.map.lock().unwrap_or_else(PoisonError::into_inner);
        if known.partitions.is_empty() || map.epoch >= known.epoch {
            *known = Arc::new(map);
        }
    }

    /// The instance directory it connected through.
    #[must_use]
    pub fn instance(&self) -> Option<&Instance> {
        self.inner.instance.as_ref()
    }

    /// All nodes of the cluster, up or not.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<_> =
            self.map().members.iter().map(|member| NodeId(member.node)).collect();
        nodes.sort_unstable();
        nodes
    }

    /// The node that holds a partition.
    #[must_use]
    pub fn home(&self, partition: PartitionId) -> NodeId {
        NodeId(home_of(&self.map(), partition))
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.map().partitions.len()).expect("bounded by PARTITIONS_MAX")
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.inner.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }
    pub(crate) fn patience(&self) -> Duration {
        self.inner.options.patience
    }

    fn slot(&self, node: u32) -> Arc<tokio::sync::Mutex<Option<Link>>> {
        let mut links = self.inner.links.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(links.entry(node).or_default())
    }

    /// The address a node was last seen at: its own file is newer than any map.
    fn address(&self, node: u32) -> Result<String, Lost> {
        if let Some(file) = self.inner.instance.as_ref().and_then(|dir| dir.address(node)) {
            return Ok(file.address);
        }
        let map = self.map();
        let member = map.members.iter().find(|member| member.node == node);
        match member {
            Some(member) if !member.address.is_empty() && self.inner.instance.is_none() => {
                Ok(member.address.clone())
            }
            Some(_) => Err(Lost("it is not running".to_owned())),
            None => Err(Lost("it is not in the map".to_owned())),
        }
    }

    /// The live session with a node, opened if there is none. One attempt.
    pub(crate) async fn link(&self, node: u32) -> Result<Link, Lost> {
        let slot = self.slot(node);
        let mut slot = slot.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| !link.is_lost()) {
            return Ok(link.clone());
        }
        let address = self.address(node)?;
        let link = Link::open(&address, &self.inner.dialer)
            .await
            .map_err(|lost| Lost(format!("{address}: {}", lost.0)))?;
        Ok(slot.insert(link).clone())
    }

    /// A session with a node, waiting for the node as long as this client is patient.
    pub(crate) async fn patient_link(&self, node: u32) -> Result<Link, ClientError> {
        let mut retry = Retry::new(self.patience());
        loop {
            match self.link(node).await {
                Ok(link) => return Ok(link),
                Err(lost) => retry.pause(node, &lost).await?,
            }
        }
    }

    /// Asks a given node.
    pub(crate) async fn ask(
        &self,
        node: NodeId,
        body: request::Body,
    ) -> Result<wire::Response, ClientError> {
        let id = self.next_id();
        self.ask_encoded(node.0, id, link::encode(id, body), Repeat::Safe).await
    }

    /// Asks the node that `route` names, following the map when it has moved on.
    pub(crate) async fn ask_routed(
        &self,
        route: Route<'_>,
        repeat: Repeat,
    ) -> Result<wire::Response, ClientError> {
        let deadline = Instant::now() + self.patience();
        loop {
            let map = self.map();
            let (node, body) = route(&map);
            let id = self.next_id();
            match self.ask_encoded(node, id, link::encode(id, body), repeat).await {
                Err(ClientError::Protocol { what: MOVED, .. }) if Instant::now() < deadline => {}
                answer => return answer,
            }
            if self.map().epoch == map.epoch {
                // We know nothing newer yet: the same question at once has the same answer.
                tokio::time::sleep(BACKOFF_START).await;
            }
        }
    }

    /// Sends bytes until they are answered. `Safe` requests are sent again after a loss.
    pub(crate) async fn ask_encoded(
        &self,
        node: u32,
        id: u64,
        bytes: Bytes,
        repeat: Repeat,
    ) -> Result<wire::Response, ClientError> {
        let mut retry = Retry::new(self.patience());
        loop {
            let link = match self.link(node).await {
                Ok(link) => link,
                Err(lost) => {
                    retry.pause(node, &lost).await?;
                    continue;
                }
            };
            let response = match self.attempt(&link, id, bytes.clone(), retry.deadline).await {
                Ok(response) => response,
                Err(_) if repeat == Repeat::Never => return Err(ClientError::Uncertain { node }),
                Err(lost) => {
                    retry.pause(node, &lost).await?;
                    continue;
                }
            };
            match self.check(node, response)? {
                Checked::Answer(response) => return Ok(*response),
                Checked::Busy { after, text } => retry.wait_busy(node, after, text).await?,
            }
        }
    }

    async fn attempt(
        &self,
        link: &Link,
        id: u64,
        bytes: Bytes,
        deadline: Instant,
    ) -> Result<wire::Response, Lost> {
        let answer = link.send(id, bytes).await?;
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Lost("connection closed".to_owned())),
            Err(_) => Err(Lost("it does not answer".to_owned())),
        }
    }

    /// Sorts an answer: done, come back later, or an error.
    pub(crate) fn check(
        &self,
        node: u32,
        mut response: wire::Response,
    ) -> Result<Checked, ClientError> {
        let Some(error) = response.error.take() else {
            return Ok(Checked::Answer(Box::new(response)));
        };
        match error.code() {
            wire::ErrorCode::None => Ok(Checked::Answer(Box::new(response))),
            wire::ErrorCode::Busy => {
                let after = Duration::from_nanos(error.retry_after_ns).max(BACKOFF_START / 10);
                Ok(Checked::Busy { after, text: error.text })
            }
            wire::ErrorCode::WrongEpoch => {
                if let Some(wire::response::Body::Map(map)) = response.body {
                    self.learn(map);
                }
                Err(ClientError::Protocol { node, what: MOVED })
            }
            wire::ErrorCode::Unknown => Err(ClientError::UnknownJob(JobId::default())),
            wire::ErrorCode::Refused => Err(ClientError::Refused(error.text)),
        }
    }
}

/// Marks an answer of a node that is no longer the primary; [`Client::ask_routed`] follows it.
const MOVED: &str = "its partition has moved";

pub(crate) enum Checked {
    Answer(Box<wire::Response>),
    Busy { after: Duration, text: String },
}

/// One request's patience.
pub(crate) struct Retry {
    deadline: Instant,
    backoff: Duration,
    patience: Duration,
}

impl Retry {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { deadline: Instant::now() + patience, backoff: BACKOFF_START, patience }
    }

    /// A connection that held for a while has earned its successor full patience.
    pub(crate) fn rearm(&mut self, opened: Instant) {
        if opened.elapsed() > BACKOFF_MAX {
            *self = Self::new(self.patience);
        }
    }

    /// Waits before the next try, or says that there is none.
    pub(crate) async fn pause(&mut self, node: u32, lost: &Lost) -> Result<(), ClientError> {
        if Instant::now() + self.backoff > self.deadline || lost.is_hopeless() {
            let waited = self.patience.as_secs_f64();
            let text = match waited >= 1.0 {
                true => format!("node n{node}: {} (tried for {waited:.0} s)", lost.0),
                false => format!("node n{node}: {}", lost.0),
            };
            return Err(ClientError::ClusterUnreachable(text));
        }
        tokio::time::sleep(self.backoff).await;
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        Ok(())
    }

    pub(crate) async fn wait_busy(
        &mut self,
        node: u32,
        after: Duration,
        text: String,
    ) -> Result<(), ClientError> {
        if Instant::now() + after > self.deadline {
            return Err(ClientError::Busy { node, text });
        }
        tokio::time::sleep(after).await;
        Ok(())
    }
}

pub(crate) fn home_of(map: &wire::ClusterMap, partition: PartitionId) -> u32 {
    let entry = &map.partitions[partition.0 as usize];
    *entry.replicas.first().expect("the map gives every partition a primary")
}

/// An unknown job or task, named: the node says only that it does not know it.
pub(crate) fn name_unknown(error: ClientError, job: JobId, task: Option<LocalId>) -> ClientError {
    match (error, task) {
        (ClientError::UnknownJob(_), None) => ClientError::UnknownJob(job),
        (ClientError::UnknownJob(_), Some(task)) => ClientError::UnknownTask { job, task },
        (error, _) => error,
    }
}

//! Requests to nodes: finding the right node, and repeating a request after a broken connection.

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

use crate::link::{self, Link, LinkError};
use crate::map;
use crate::map::home_of;
use crate::retry::{BACKOFF_MAX, BACKOFF_START, Retry, Target};
use crate::{ClientError, Instance};

/// The time that a node has to send its map, and the maximum of nodes asked at a time.
const MAP_TIMEOUT: Duration = Duration::from_secs(1);
const MAP_ASKED_MAX: usize = 5;
/// The time that any node of an instance has to answer at all.
const CONTACT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum of nodes that are contacted at the same time.
const CONTACTS_MAX: usize = 64;
/// The maximum of nodes that an error names when none of them answers.
const LOST_TOLD_MAX: usize = 4;

/// The behaviour of a client towards unreachable nodes.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// The time for which a request is repeated before the cluster counts as unreachable.
    pub request_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { request_timeout: Duration::from_secs(30) }
    }
}

/// A connection to a cluster. Cheap to clone; all clones share their sessions.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The source of current addresses; `None` if only an address was given.
    instance: Option<Instance>,
    dialer: Dialer,
    options: ClientOptions,
    map: Mutex<Arc<wire::ClusterMap>>,
    links: Mutex<BTreeMap<u32, Arc<tokio::sync::Mutex<Option<Link>>>>>,
    /// The time when nodes were last asked for a newer map.
    asked_at: tokio::sync::Mutex<Option<Instant>>,
    last_id: AtomicU64,
}

/// The rule for repeating a request with an unknown result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Never,
    /// The request has a number, so it may be repeated. `in_doubt`: it was sent before and not
    /// answered.
    Numbered {
        in_doubt: bool,
    },
}

/// Makes the number and the bytes of a request for each try.
pub(crate) type Encode<'a> = &'a (dyn Fn(&wire::ClusterMap) -> (u64, Bytes) + Sync);

impl Client {
    /// Connects to the instance in `dir`, through the first node that answers.
    ///
    /// # Errors
    /// [`ClientError::NoInstance`]: `dir` has none, or no keys for this user.
    /// [`ClientError::ClusterUnreachable`]: no node answers.
    pub async fn connect(dir: &Path) -> Result<Self, ClientError> {
        Self::connect_with(dir, ClientOptions::default()).await
    }

    /// As [`Self::connect`], with other options.
    pub async fn connect_with(dir: &Path, options: ClientOptions) -> Result<Self, ClientError> {
        let instance = Instance::new(dir);
        instance.cluster()?;
        let dialer = instance.dialer()?;
        Self::connect_as(dir, options, instance, dialer).await
    }

    /// Connects with the key of an observer: nodes refuse each change.
    pub async fn connect_to_read(dir: &Path, options: ClientOptions) -> Result<Self, ClientError> {
        let instance = Instance::new(dir);
        instance.cluster()?;
        let dialer = instance.observer()?;
        Self::connect_as(dir, options, instance, dialer).await
    }

    async fn connect_as(
        dir: &Path,
        options: ClientOptions,
        instance: Instance,
        dialer: Dialer,
    ) -> Result<Self, ClientError> {
        let client = Self::unconnected(Some(instance.clone()), dialer, options);
        let deadline = Instant::now() + options.request_timeout.min(CONTACT_TIMEOUT);
        let mut backoff = BACKOFF_START;
        loop {
            let lost = match client.contact_any(&instance).await {
                Ok(()) => return Ok(client),
                Err(lost) => lost,
            };
            let is_hopeless = lost.is_empty() || lost.values().any(LinkError::is_hopeless);
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

    /// Contacts the nodes of an instance at the same time until one answers. Otherwise returns the
    /// failure of each.
    async fn contact_any(&self, instance: &Instance) -> Result<(), BTreeMap<u32, LinkError>> {
        let mut left = instance.addresses().into_iter();
        let mut contacts = JoinSet::new();
        let mut all_lost = BTreeMap::new();
        loop {
            for (node, file) in left.by_ref().take(CONTACTS_MAX - contacts.len()) {
                let client = self.clone();
                contacts.spawn(async move {
                    let contact = client.first_contact(Some(NodeId(node)), &file.address).await;
                    let name = |lost: LinkError| LinkError(format!("{}: {}", file.address, lost.0));
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

    /// As [`Self::connect_address`], with other options.
    pub async fn connect_address_with(
        address: &str,
        dialer: Dialer,
        options: ClientOptions,
    ) -> Result<Self, ClientError> {
        let client = Self::unconnected(None, dialer, options);
        let contact = client.first_contact(None, address).await;
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
            asked_at: tokio::sync::Mutex::default(),
            last_id: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Opens a session with a node, or with any that answers, and gets the map from it.
    async fn first_contact(&self, to: Option<NodeId>, address: &str) -> Result<(), LinkError> {
        let link = Link::open(to, address, &self.inner.dialer).await?;
        let id = self.next_id();
        let answer = link.send(id, link::encode(id, request::Body::Map(wire::MapQuery {}))).await?;
        let request_timeout = self.inner.options.request_timeout.min(CONTACT_TIMEOUT);
        let answer = tokio::time::timeout(request_timeout, answer).await;
        let answer = answer.map_err(|_| LinkError("it does not answer".to_owned()))?;
        let response = answer.map_err(|_| LinkError("connection closed".to_owned()))??;
        let Some(wire::response::Body::Map(map)) = response.body else {
            let text = response.error.map_or_else(String::new, |error| error.text);
            return Err(LinkError(format!("it did not send the map {text}")));
        };
        self.learn(map);
        let map = self.map();
        let known = map.members.iter().find(|member| Some(NodeId(member.node)) == to);
        if let Some(member) = known {
            *self.slot(member.node).lock().await = Some(link);
        }
        Ok(())
    }

    /// The newest map that this client has received.
    pub(crate) fn map(&self) -> Arc<wire::ClusterMap> {
        Arc::clone(&self.inner.map.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn learn(&self, fetched: wire::ClusterMap) {
        let mut known = self.inner.map.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(merged) = map::merge(&known, fetched) {
            *known = Arc::new(merged);
        }
    }

    fn learn_of(&self, redirect: wire::Redirect) {
        let mut known = self.inner.map.lock().unwrap_or_else(PoisonError::into_inner);
        if map::is_newer(&redirect, &known) {
            map::correct(Arc::make_mut(&mut known), redirect);
        }
    }

    /// The instance directory of this connection.
    #[must_use]
    pub fn instance(&self) -> Option<&Instance> {
        self.inner.instance.as_ref()
    }

    /// Asks the nodes for a newer map than `known`, unless another caller just has.
    pub(crate) async fn refresh(&self, known: &Arc<wire::ClusterMap>) {
        let mut asked_at = self.inner.asked_at.lock().await;
        let is_news = !Arc::ptr_eq(known, &self.map());
        if is_news || asked_at.is_some_and(|at| at.elapsed() < BACKOFF_START) {
            return;
        }
        let mut left = self.likely().into_iter();
        let mut asked = JoinSet::new();
        loop {
            for node in left.by_ref().take(MAP_ASKED_MAX - asked.len()) {
                let client = self.clone();
                let body = request::Body::Map(wire::MapQuery {});
                asked.spawn(async move { client.ask_once(node, body, MAP_TIMEOUT).await });
            }
            let Some(answer) = asked.join_next().await else { break };
            if let Ok(Some(wire::response::Body::Map(map))) = answer.expect("asking is no panic") {
                let is_news = map.epoch > known.epoch;
                self.learn(map);
                // If homes never move, any answer is as good.
                if is_news || known.copies <= 1 {
                    break;
                }
            }
        }
        *asked_at = Some(Instant::now());
    }

    /// The nodes, those with a live session first.
    pub(crate) fn likely(&self) -> Vec<NodeId> {
        let is_open = |node: &NodeId| {
            let slot = self.slot(node.0);
            let open = slot.try_lock().is_ok_and(|it| it.as_ref().is_some_and(|l| !l.is_lost()));
            !open
        };
        let mut nodes = self.nodes();
        nodes.sort_by_key(is_open);
        nodes
    }

    /// All nodes of the cluster, up or not, except those that have left it.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let map = self.map();
        let members = map.members.iter().filter(|it| it.phase() != wire::MemberPhase::Removed);
        let mut nodes: Vec<_> = members.map(|member| NodeId(member.node)).collect();
        nodes.sort_unstable();
        nodes
    }

    /// True if the cluster has replaced this node as home of its partitions.
    #[must_use]
    pub fn is_given_up(&self, node: NodeId) -> bool {
        let map = self.map();
        map.copies > 1 && !kvs::membership::is_serving(&map, node.0)
    }

    /// The home of a partition.
    #[must_use]
    pub fn home(&self, partition: PartitionId) -> NodeId {
        NodeId(home_of(&self.map(), partition))
    }

    /// The number of partitions.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.map().partitions.len()).expect("bounded by PARTITIONS_MAX")
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.inner.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }
    pub(crate) fn request_timeout(&self) -> Duration {
        self.inner.options.request_timeout
    }

    fn slot(&self, node: u32) -> Arc<tokio::sync::Mutex<Option<Link>>> {
        let mut links = self.inner.links.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(links.entry(node).or_default())
    }

    /// The last known address of a node: its own file is at least as new as any map.
    fn address(&self, node: u32) -> Result<String, LinkError> {
        let file = self.inner.instance.as_ref().and_then(|dir| dir.address(node));
        let map = self.map();
        let Some(member) = map.members.iter().find(|member| member.node == node) else {
            return Err(LinkError("it is not in the map".to_owned()));
        };
        // With a shared directory a node without a file does not run.
        let is_told = self.inner.instance.is_none()
            || kvs::membership::is_serving(&map, node) && map.copies > 1;
        match file {
            Some(file) if file.incarnation >= member.incarnation => Ok(file.address),
            _ if !member.address.is_empty() && is_told => Ok(member.address.clone()),
            Some(file) => Ok(file.address),
            None => Err(LinkError("it is not running".to_owned())),
        }
    }

    /// The live session with a node, opened if there is none. One attempt.
    pub(crate) async fn link(&self, node: u32) -> Result<Link, LinkError> {
        let slot = self.slot(node);
        let mut slot = slot.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| !link.is_lost()) {
            return Ok(link.clone());
        }
        let address = self.address(node)?;
        let link = Link::open(Some(NodeId(node)), &address, &self.inner.dialer)
            .await
            .map_err(|lost| LinkError(format!("{address}: {}", lost.0)))?;
        Ok(slot.insert(link).clone())
    }

    /// A session with a node. Waits for the node up to this client's patience, unless the cluster
    /// has replaced it.
    pub(crate) async fn long_timeout_link(&self, node: u32) -> Result<Link, ClientError> {
        let mut retry = Retry::new(self.request_timeout());
        loop {
            let map = self.map();
            match self.link(node).await {
                Ok(link) => return Ok(link),
                Err(_) if self.is_given_up(NodeId(node)) => {
                    let text = format!("node n{node} is down");
                    return Err(ClientError::ClusterUnreachable(text));
                }
                Err(lost) => retry.pause(Target::Node(node), node, &lost).await?,
            }
            self.refresh(&map).await;
        }
    }

    /// Sends a request to the home of a partition. Returns the answering node first.
    pub(crate) async fn ask_home(
        &self,
        partition: PartitionId,
        body: request::Body,
    ) -> Result<(u32, wire::Response), ClientError> {
        let id = self.next_id();
        self.ask_bytes(Target::Home(partition), id, link::encode(id, body)).await
    }

    /// As [`Self::ask_home`], with a request that is encoded already and may be repeated.
    pub(crate) async fn ask_bytes(
        &self,
        to: Target,
        id: u64,
        bytes: Bytes,
    ) -> Result<(u32, wire::Response), ClientError> {
        self.ask_until(to, Repeat::Safe, &|_| (id, bytes.clone())).await
    }

    /// Sends a request until there is an answer or the patience is over, and follows homes that
    /// move. Returns the answering node first. `Safe` requests are repeated after a loss.
    pub(crate) async fn ask_until(
        &self,
        to: Target,
        repeat: Repeat,
        encode: Encode<'_>,
    ) -> Result<(u32, wire::Response), ClientError> {
        match (self.try_until(to, repeat, encode).await, to) {
            (Err(error), Target::Home(_)) => Err(self.name_away(error).await),
            (answered, _) => answered,
        }
    }

    async fn try_until(
        &self,
        to: Target,
        repeat: Repeat,
        encode: Encode<'_>,
    ) -> Result<(u32, wire::Response), ClientError> {
        let mut retry = Retry::new(self.request_timeout());
        let mut in_doubt = repeat == Repeat::Numbered { in_doubt: true };
        loop {
            let map = self.map();
            let node = to.node(&map);
            let lost = match self.link(node).await {
                Err(lost) => lost,
                Ok(link) => {
                    let (id, bytes) = encode(&map);
                    match self.attempt(&link, id, bytes, retry.deadline).await {
                        Ok(response) => match self.check(response)? {
                            Checked::Answer(response) => return Ok((node, *response)),
                            Checked::Forgotten { text, ticket } => {
                                let forgotten = ClientError::Forgotten { node, text, ticket };
                                return Err(doubted(in_doubt, node, forgotten));
                            }
                            Checked::Busy { after, text } => {
                                let waited = retry.wait_busy(node, after, text).await;
                                waited.map_err(|error| doubted(in_doubt, node, error))?;
                                continue;
                            }
                            Checked::Moved => LinkError(MOVED.to_owned()),
                        },
                        Err(_) if repeat == Repeat::Never => {
                            return Err(ClientError::Uncertain { node });
                        }
                        Err(lost) => {
                            in_doubt |= matches!(repeat, Repeat::Numbered { .. });
                            lost
                        }
                    }
                }
            };
            let paused = retry.pause(to, node, &lost).await;
            paused.map_err(|error| doubted(in_doubt, node, error))?;
            if to != Target::Node(node) {
                self.refresh(&map).await;
            }
        }
    }

    async fn attempt(
        &self,
        link: &Link,
        id: u64,
        bytes: Bytes,
        deadline: Instant,
    ) -> Result<wire::Response, LinkError> {
        let answer = link.send(id, bytes).await?;
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(LinkError("connection closed".to_owned())),
            Err(_) => Err(LinkError("it does not answer".to_owned())),
        }
    }

    /// Classifies an answer: done, retry later, or an error.
    pub(crate) fn check(&self, mut response: wire::Response) -> Result<Checked, ClientError> {
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
                if let Some(wire::response::Body::Redirect(redirect)) = response.body {
                    self.learn_of(redirect);
                }
                Ok(Checked::Moved)
            }
            wire::ErrorCode::Unknown => Err(ClientError::UnknownJob(JobId::default())),
            wire::ErrorCode::Refused => Err(ClientError::Refused(error.text)),
            wire::ErrorCode::AnswerUnkept => Err(ClientError::AnswerUnkept(error.text)),
            wire::ErrorCode::Forgotten => {
                Ok(Checked::Forgotten { text: error.text, ticket: error.ticket })
            }
        }
    }
}

/// The reason of a failure at a node that is not the partition's home.
pub(crate) const MOVED: &str = "it does not serve the partition";

pub(crate) enum Checked {
    Answer(Box<wire::Response>),
    Busy {
        after: Duration,
        text: String,
    },
    /// Another node is home of the partition, or will be.
    Moved,
    /// The number of a write is forgotten.
    Forgotten {
        text: String,
        ticket: u64,
    },
}

/// The error of a numbered write, which is uncertain if it was sent before and not answered.
fn doubted(in_doubt: bool, node: u32, error: ClientError) -> ClientError {
    if in_doubt { ClientError::Uncertain { node } } else { error }
}

/// Adds the name to the error of an unknown job or task: the node's answer has none.
pub(crate) fn name_unknown(error: ClientError, job: JobId, task: Option<LocalId>) -> ClientError {
    match (error, task) {
        (ClientError::UnknownJob(_), None) => ClientError::UnknownJob(job),
        (ClientError::UnknownJob(_), Some(task)) => ClientError::UnknownTask { job, task },
        (error, _) => error,
    }
}

//! Puts a node together and gives it a thread.

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use executor::{Executor, ExecutorConfig};
use node::{Config, Input, Node};
use proto::{Incarnation, NodeId, limits, wire};
use scheduler::{Tuning, UNLIMITED_BYTES};
use security::{Dialer, Keyring, Role};
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use crate::addresses::AddressBook;
use crate::clock::Clock;
use crate::data::{Lines, Registry, Smalls};
use crate::doors::Doors;
use crate::error::{NodeError, StartError};
use crate::events::EventLog;
use crate::handle::{NodeHandle, Phase, Progress};
use crate::inbox::{Incoming, Local};
use crate::instance::{self, AddressFile, ClusterFile, Instance, StateDir};
use crate::log::NodeLog;
use crate::members::Members;
use crate::options::NodeOptions;
use crate::peers::Identity;
use crate::run_loop::{Loop, State};
use crate::service::{self, Shared};
use crate::store::RocksStore;
use crate::sync::SyncThread;
use crate::transfer::Transfers;
use crate::{accept, data, doors, join, links, open_files, rendezvous};

/// How long streams may take to end after the node has.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(500);

/// How long one of the addresses of a name may take to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Starts nodes `0..base.expect` in this process and waits until they have found each other.
pub fn start_all(base: &NodeOptions) -> Result<Vec<NodeHandle>, StartError> {
    let mut nodes = (0..base.expect)
        .map(|node| start(NodeOptions { node: NodeId(node), ..base.clone() }))
        .collect::<Result<Vec<_>, _>>()?;
    for at in 0..nodes.len() {
        match nodes[at].wait_ready() {
            Ok(()) => {}
            // What ended it is known to whoever joins it.
            Err(StartError::Stopped) => {
                nodes.swap_remove(at).join().map_err(|error| StartError::Node(Box::new(error)))?;
                return Err(StartError::Stopped);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(nodes)
}

/// Starts one node. It listens when this returns; [`NodeHandle::wait_ready`] waits for the others.
pub fn start(mut options: NodeOptions) -> Result<NodeHandle, StartError> {
    options.check()?;
    let insecure = options.insecure;
    let resolve = |name: &str| resolve_join(name, insecure);
    options.join = options.join.as_deref().map(resolve).transpose()?;
    // First, so that a port that cannot be had leaves nothing behind.
    let (listener, address) = listen(options.listen)?;
    let (data_listener, data_address) = listen(SocketAddr::new(options.listen.ip(), 0))?;
    let clock = Clock::start();
    let instance = Instance::open(&options.dir)?;
    let doors = make_doors(&options, &instance)?;
    let addresses = AddressBook::new(instance.clone());
    let (cluster, known) = find_cluster(&options, &instance, &addresses, &doors.dialer())?;
    let node_dir = instance.node_dir(options.node);
    let state_dir = options.state_dir.clone().unwrap_or_else(|| node_dir.join("state"));
    let state = StateDir::open_above(&state_dir, known)?;
    let (store, _) = RocksStore::open(state.path().join("db"))?;

    let (local_sender, local) = mpsc::unbounded_channel();
    let (inbox_sender, inbox) = mpsc::channel(limits::INBOX_FRAMES_MAX);
    let (stop, _) = watch::channel(false);
    let executor = start_executor(&options, &state, local_sender.clone())?;
    open_files::raise_limit(); // After the spawner: commands keep the limit that the user set.
    let log_path = state.path().join("log");
    let shared = Arc::new(Shared {
        identity: Identity {
            cluster: cluster.id().expect("checked when it was read"),
            node: options.node,
            incarnation: state.incarnation(),
            nodes: options.expect,
            address: address.to_string(),
            slots: options.slots,
            launch: options.launch.clone(),
            data_address: data_address.to_string(),
        },
        doors,
        lines: Lines::default(),
        smalls: Smalls::default(),
        uploading: Semaphore::new(limits::UPLOADS_IN_FLIGHT_MAX),
        given: Registry::default(),
        addresses,
        inbox: inbox_sender,
        executor: Arc::new(executor),
        log: NodeLog::open(&log_path, clock)
            .map_err(|error| StartError::io("write", &log_path, error))?,
        events_dir: state.path().join("events"),
        next_number: AtomicU64::new(1),
        knocks: (0..options.expect).map(|_| Notify::new()).collect(),
        stop: stop.clone(),
        end_together: options.end_together,
        told: AtomicBool::new(false),
    });
    let (node, incarnation) = (options.node, state.incarnation());
    let progress = Arc::new(Progress::default());
    let parts = Parts {
        options,
        clock,
        instance,
        cluster,
        state,
        store,
        listener,
        data_listener,
        address,
        shared,
        local_sender,
        progress: Arc::clone(&progress),
    };
    let thread = std::thread::Builder::new()
        .name(format!("{node}-loop"))
        .spawn(move || parts.live(inbox, local))
        .map_err(StartError::Thread)?;
    Ok(NodeHandle { node, address, incarnation, stop, progress, thread: Some(thread) })
}

/// The cluster's identity: from the directory, from the node to join, or made now. And the last
/// incarnation of this node that the cluster knows of.
fn find_cluster(
    options: &NodeOptions,
    instance: &Instance,
    addresses: &AddressBook,
    dialer: &Dialer,
) -> Result<(ClusterFile, Incarnation), StartError> {
    let mut known = Incarnation(0);
    let mut wanted = ClusterFile {
        format: limits::FORMAT_VERSION,
        cluster: String::new(),
        nodes: options.expect,
        partitions: options.partitions.unwrap_or_else(|| kvs::default_partitions(options.expect)),
        insecure: options.insecure,
    };
    let mut id = instance::random_u64()?;
    if let Some(address) = &options.join {
        let map = rendezvous::ask_map(address, dialer)?;
        if map.members.len() != options.expect as usize {
            let reason = format!("its cluster has {} nodes", map.members.len());
            return Err(StartError::Join { address: address.clone(), reason });
        }
        id = map.cluster;
        let own = map.members.iter().find(|member| member.node == options.node.0);
        known = Incarnation(own.map_or(0, |member| member.incarnation));
        wanted.partitions = map.partitions.len() as u32;
        rendezvous::addresses(&map).for_each(|member| addresses.hear(member));
    }
    wanted.cluster = format!("{id:016x}");
    let found = instance.cluster(&wanted, options.partitions)?;
    match &options.join {
        Some(address) if found.id() != Some(id) => {
            let reason = "this directory belongs to another cluster".to_owned();
            Err(StartError::Join { address: address.clone(), reason })
        }
        _ => Ok((found, known)),
    }
}

/// The keys: those of the directory, or those that a token is good for, or new ones.
fn make_doors(options: &NodeOptions, instance: &Instance) -> Result<Doors, StartError> {
    instance.check_doors(options.insecure)?;
    if options.insecure {
        return Ok(Doors::insecure());
    }
    let keyring = Keyring::of_instance(instance.dir());
    let has_keys = keyring.has_authority() || keyring.path(Role::Node).exists();
    match (&options.join, &options.token) {
        (_, Some(token)) if keyring.has_authority() => keyring.belongs_to(token)?,
        (Some(address), Some(token)) => join::redeem(address, token, &keyring)
            .map_err(|reason| StartError::Join { address: address.clone(), reason })?,
        (Some(address), None) if !has_keys => {
            let reason = "this directory has no keys, and no --token was given".to_owned();
            return Err(StartError::Join { address: address.clone(), reason });
        }
        _ => {}
    }
    let bundle = keyring.prepare()?;
    Doors::new(keyring, &bundle).map_err(|error| {
        let path = instance.dir().join("keys");
        StartError::BadKeys { path, reason: error.to_string() }
    })
}

/// The address to join by, as a number.
fn resolve_join(name: &str, insecure: bool) -> Result<String, StartError> {
    let failed = |reason: String| StartError::Join { address: name.to_owned(), reason };
    let found = name.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let found: Vec<SocketAddr> = found.collect();
    if insecure && !found.iter().all(|&address| security::dial::is_local(address)) {
        return Err(StartError::JoinNotLoopback { address: name.to_owned() });
    }
    // A name may mean two addresses, and the node listens on one of them.
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, PATIENCE).is_ok();
    let chosen = match &found[..] {
        [only] => Some(only),
        several => several.iter().find(answers).or_else(|| found.first()),
    };
    chosen.map(ToString::to_string).ok_or_else(|| failed("it has no address".to_owned()))
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    listen().map_err(|error| StartError::Listen { address, error })
}

fn start_executor(
    options: &NodeOptions,
    state: &StateDir,
    local: mpsc::UnboundedSender<Local>,
) -> Result<Executor, StartError> {
    let mut config = ExecutorConfig::new(state.path(), options.node, options.slots);
    config.spawner_program.clone_from(&options.spawner_program);
    let executor = Executor::start(config, move |task, attempt, outcome| {
        // A loop that is gone has no use for it: its next incarnation places the task again.
        let _ = local.send(Local::Input(Input::Finished { task, attempt, outcome }));
    })?;
    Ok(executor)
}

/// Where nobody has said how much the node may store: what its file system has room for, and what
/// is its own there already, but for a reserve.
fn limits_of_store(
    tuning: Tuning,
    state: &StateDir,
    shared: &Shared,
) -> Result<Tuning, StartError> {
    let system = rustix::fs::statvfs(state.path())
        .map_err(|errno| StartError::io("read", state.path(), errno.into()))?;
    let (_, own_bytes) = shared.executor.objects().totals();
    let room_bytes = system.f_bavail.saturating_mul(system.f_frsize).saturating_add(own_bytes);
    let hard_bytes = match tuning.store_hard_bytes {
        UNLIMITED_BYTES => room_bytes / 100 * limits::STORE_HARD_PERCENT,
        told => told,
    };
    let soft_bytes = match tuning.store_soft_bytes {
        UNLIMITED_BYTES => hard_bytes / limits::STORE_HARD_PERCENT * limits::STORE_SOFT_PERCENT,
        told => told.min(hard_bytes),
    };
    Ok(Tuning { store_soft_bytes: soft_bytes, store_hard_bytes: hard_bytes, ..tuning })
}

/// Says where the node listens for as long as it lives.
struct Presence {
    instance: Instance,
    node: NodeId,
    incarnation: Incarnation,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.instance.remove_address(self.node, self.incarnation);
    }
}

/// Whoever waits for a start hears of its end, whatever that was; a panic included.
struct StartGuard(Arc<Progress>);

impl Drop for StartGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// All that a node's thread takes over.
struct Parts {
    options: NodeOptions,
    clock: Clock,
    instance: Instance,
    cluster: ClusterFile,
    state: StateDir,
    store: RocksStore,
    listener: TcpListener,
    data_listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    local_sender: mpsc::UnboundedSender<Local>,
    progress: Arc<Progress>,
}

impl Parts {
    /// The life of the node's thread.
    fn live(
        self,
        inbox: mpsc::Receiver<Incoming>,
        local: mpsc::UnboundedReceiver<Local>,
    ) -> Result<(), NodeError> {
        let progress = Arc::clone(&self.progress);
        let _guard = StartGuard(Arc::clone(&progress));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name(format!("{}-files", self.options.node))
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                progress.set(Phase::Failed(Some(StartError::Thread(error))));
                return Ok(());
            }
        };
        let shared = Arc::clone(&self.shared);
        let result = runtime.block_on(self.serve_and_run(inbox, local));
        shared.executor.stop();
        shared.lines.close();
        shared.given.close();
        runtime.shutdown_timeout(LAST_WORDS);
        match result {
            // Told to whoever waits for the start, or else when the node is joined.
            Err(NodeError::Start(error)) => {
                shared.log.line(&format!("did not start: {error}"));
                progress.set(Phase::Failed(Some(error)));
                Ok(())
            }
            Err(error) => {
                shared.log.line(&error.to_string());
                Err(error)
            }
            Ok(()) => {
                shared.log.line("stopped");
                Ok(())
            }
        }
    }

    async fn serve_and_run(
        self,
        inbox: mpsc::Receiver<Incoming>,
        local: mpsc::UnboundedReceiver<Local>,
    ) -> Result<(), NodeError> {
        let node = self.options.node;
        let failed = |reason: String| NodeError::Serve { node, reason };
        let (end, mut ended) = watch::channel(false);
        let listener = self.listener.try_clone().map_err(|e| failed(e.to_string()))?;
        let listener =
            tokio::net::TcpListener::from_std(listener).map_err(|e| failed(e.to_string()))?;
        let incoming = accept::listen(Arc::clone(&self.shared), listener);
        let routes = service::routes(Arc::clone(&self.shared));
        let mut server = tokio::spawn(routes.serve_with_incoming_shutdown(incoming, async move {
            // An error means that the sender is gone: then it is over too.
            let _ = ended.wait_for(|ended| *ended).await;
        }));
        let data_listener = self.data_listener.try_clone().map_err(|e| failed(e.to_string()))?;
        let data_listener =
            tokio::net::TcpListener::from_std(data_listener).map_err(|e| failed(e.to_string()))?;
        tokio::spawn(data::serve(Arc::clone(&self.shared), data_listener));
        tokio::spawn(doors::keep_fresh(Arc::clone(&self.shared)));
        let mut stop = self.shared.stop.subscribe();
        let own = self.appear()?;
        let _presence = Presence {
            instance: self.instance.clone(),
            node,
            incarnation: self.state.incarnation(),
        };
        tokio::select! {
            formed = self.form() => formed?,
            _ = stop.wait_for(|stop| *stop) => return Err(StartError::Stopped.into()),
        }
        let (progress, shared) = (Arc::clone(&self.progress), Arc::clone(&self.shared));
        let (run, _state) = self.recover(&own)?;
        progress.set(Phase::Ready);
        let result = tokio::select! {
            result = run.run(inbox, local, stop) => result,
            served = &mut server => Err(failed(match served {
                Ok(Ok(())) => "the server ended".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            })),
        };
        if shared.end_together {
            service::tell_all(&shared).await; // Also when this node ends by an error.
        }
        end.send_replace(true);
        // Answers that are on their way, the one to a stop among them, may still leave.
        let _ = tokio::time::timeout(LAST_WORDS, server).await;
        result
    }

    /// Writes where the node listens.
    fn appear(&self) -> Result<AddressFile, StartError> {
        let file = AddressFile {
            format: limits::FORMAT_VERSION,
            node: self.options.node.0,
            incarnation: self.state.incarnation().0,
            address: self.address.to_string(),
            pid: std::process::id(),
            slots: self.options.slots,
            launch: self.options.launch.clone(),
            data: self.shared.identity.data_address.clone(),
        };
        self.instance.write_address(&file)?;
        self.shared.log.line(&format!(
            "node {} of {} listens on {}, incarnation {}, process {}",
            file.node, self.options.expect, file.address, file.incarnation, file.pid
        ));
        Ok(file)
    }

    /// Finds the others. A node that comes back to a cluster that was complete need not wait,
    /// unless all of them begin together: then the others are of an earlier launch, or not there.
    async fn form(&self) -> Result<(), StartError> {
        if self.state.was_formed() && !self.options.end_together {
            tokio::spawn(rendezvous::knock(Arc::clone(&self.shared)));
        } else {
            let (launch, deadline) = (&self.options.launch, self.options.deadline);
            rendezvous::wait_for_all(&self.shared, launch, deadline).await?;
            self.state.set_formed()?;
        }
        for peer in (self.options.node.0 + 1..self.options.expect).map(NodeId) {
            tokio::spawn(links::keep(Arc::clone(&self.shared), peer));
        }
        Ok(())
    }

    /// Builds the core from what an earlier incarnation left on disk. The state directory stays
    /// locked for as long as what is returned lives.
    fn recover(self, own: &AddressFile) -> Result<(Loop, StateDir), NodeError> {
        let (node, incarnation) = (self.options.node, self.state.incarnation());
        let id = self.shared.identity.cluster;
        let map = kvs::make_map(id, self.options.expect, self.cluster.partitions);
        let members = Members::new(map.clone(), own, |node| self.shared.addresses.read(node));
        // That a node cannot be reached now is for answers only. To the core it would be dead, and
        // what it has made lost: that is for the cluster to decide.
        let mut agreed = members.map().clone();
        for (member, made) in agreed.members.iter_mut().zip(&map.members) {
            member.phase = made.phase;
        }
        let core = self.recover_core(&agreed)?;
        // What was uploaded for a job that has ended, or never was one.
        let executor = &self.shared.executor;
        executor.uploads().keep_only(|job| core.has_ended(job) == Some(false));
        // The end of a job may have been the end of this node before its files were gone.
        executor.objects().forget_jobs(|job| core.has_ended(job) == Some(true));
        let dir = &self.shared.events_dir;
        let events = EventLog::open(dir, node, incarnation)
            .map_err(|error| NodeError::EventLog { node, path: dir.clone(), error })?;
        let name = format!("{node}-sync");
        let sync = SyncThread::start(name, self.store.syncer(), self.local_sender.clone())
            .map_err(StartError::Thread)?;
        let objects = self.shared.executor.objects().list();
        if !objects.is_empty() {
            let stored = Local::Input(Input::Stored { objects });
            self.local_sender.send(stored).expect("the receiver is this function's caller");
        }
        let run = Loop {
            transfers: Transfers::new(Arc::clone(&self.shared), self.local_sender),
            shared: self.shared,
            node: core,
            store: self.store,
            sync,
            clock: self.clock,
            events,
            members,
            state: State::default(),
        };
        Ok((run, self.state))
    }

    fn recover_core(&self, map: &wire::ClusterMap) -> Result<Node, StartError> {
        let options = &self.options;
        let config = Config {
            node: options.node,
            incarnation: self.state.incarnation(),
            slots: options.slots,
            tuning: limits_of_store(options.tuning, &self.state, &self.shared)?,
            seed: instance::random_u64()?,
            map: Arc::new(map.clone()),
            store: 1,
            mutant: None,
            address: String::new(),
            data_address: String::new(),
            pid: 0,
            late: false,
        };
        let mut damaged = None;
        let records = self
            .store
            .records()
            .map_while(|record| record.map_err(|error| damaged = Some(error)).ok());
        let node = Node::recover(config, records, self.clock.now());
        // Records that could not be read matter more than what their lack led to.
        match damaged {
            Some(error) => Err(error.into()),
            None => Ok(node?),
        }
    }
}

/*!
The incarnations of a node: one after another, in the same directory and the same process.

A stop request ends the node with its incarnation. A further one begins if the cluster declared this
one failed or had begun without it, or if its records are unreliable. It keeps only the objects.
*/

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use kvs::membership::wanted_copies;
use node::{Config, Departs, Input, Node};
use proto::{Incarnation, Span, limits, wire};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::clock::Clock;
use crate::door;
use crate::error::{NodeError, StartError};
use crate::event_loop::group_commit::SyncThread;
use crate::event_loop::inbox::{Incoming, Local};
use crate::event_loop::run_loop::{Loop, LoopEnd, State};
use crate::events::EventLog;
use crate::handle::{Phase, Progress};
use crate::lifecycle::assembly::{
    AddressRegistration, limits_of_store, open_store, start_executor,
};
use crate::lifecycle::instance::{
    self, AddressFile, ClusterFile, Instance, MembersWriter, StateDir,
};
use crate::lifecycle::rendezvous::{self, Formation, JoinCondition, RendezvousOptions};
use crate::lifecycle::{Members, StoreRecovery, end_of_life};
use crate::limits::{INBOX_FRAMES_MAX, LOCK_HEARTBEAT_TIMEOUT, UPLOAD_SEARCHES_MAX};
use crate::log::NodeLog;
use crate::objects::copies::OtherNodes;
use crate::objects::data::{DataConnectionPool, Registry, SmallObjectChannel};
use crate::objects::{Transfers, captured, data, upload_search};
use crate::options::NodeOptions;
use crate::rpc::addresses::AddressBook;
use crate::rpc::listen_addresses::BoundPorts;
use crate::rpc::peers::{Identity, PeerTable};
use crate::rpc::rsh::Parts;
use crate::rpc::service::{self, Shared};
use crate::rpc::tls_context::{self, TlsContext};
use crate::rpc::{links, listener};
use crate::store::scrubber::Scrub;
use crate::store::{RocksStore, StoreError};

/// The time that streams have to end after the node.
const STREAM_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The state that all incarnations of a node share.
#[derive(Debug)]
pub(crate) struct NodeContext {
    pub(crate) options: NodeOptions,
    pub(crate) clock: Clock,
    pub(crate) instance: Instance,
    pub(crate) cluster: ClusterFile,
    /// The map of the running cluster, if this node asked for it.
    pub(crate) known_map: Option<wire::ClusterMap>,
    pub(crate) tls: Arc<TlsContext>,
    pub(crate) addresses: Arc<AddressBook>,
    pub(crate) bound: BoundPorts,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) progress: Arc<Progress>,
    /// The warning about missing locks was given.
    pub(crate) is_warned: AtomicBool,
    /// The number of times that the records were given up.
    pub(crate) store_replacements: u32,
}

/// The sources of inputs.
type Inboxes = (mpsc::Receiver<Incoming>, mpsc::UnboundedReceiver<Local>);

/// One incarnation.
pub(crate) struct RunningIncarnation {
    state: StateDir,
    store: RocksStore,
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Incoming>,
    local: mpsc::UnboundedReceiver<Local>,
    local_sender: mpsc::UnboundedSender<Local>,
}

impl RunningIncarnation {
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.state.incarnation()
    }
}

/// Reports the end of a start to its waiting callers, even after a panic.
struct StartGuard(Arc<Progress>);

impl Drop for StartGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl NodeContext {
    /// True if partitions are replicated, so that homes move to their replicas.
    pub(crate) fn moves(&self) -> bool {
        self.cluster.replicas > 1
    }

    /// Begins the next incarnation, with a number above `known`. Lost records are set aside if
    /// other nodes have replicas of them.
    pub(crate) fn begin(&mut self, known: Incarnation) -> Result<RunningIncarnation, StartError> {
        loop {
            match self.try_to_begin(known) {
                Err(StartError::Store(error)) if self.may_replace_store(&error) => {
                    self.replace_store(&error.to_string())?;
                }
                begun => return begun,
            }
        }
    }

    fn try_to_begin(&self, known: Incarnation) -> Result<RunningIncarnation, StartError> {
        let options = &self.options;
        let state =
            StateDir::open_above(&self.options.state_path(), known, self.missing_records())?;
        state.set_keeper(options.slots == 0)?;
        let store = open_store(&state)?;
        self.warn_about_missing_locks(&state, &store);
        let (local_sender, local) = mpsc::unbounded_channel();
        let (inbox_sender, inbox) = mpsc::channel(INBOX_FRAMES_MAX);
        let (executor, door) = {
            let cluster = self.cluster.id().expect("checked when it was read");
            start_executor(options, &state, cluster, local_sender.clone())?
        };
        executor::open_files::raise_limit();
        let log_path = state.path().join("log");
        let others = self.known_nodes().into_iter().filter(|&node| node != options.node);
        let shared = Arc::new(Shared {
            identity: Identity {
                cluster: self.cluster.id().expect("checked when it was read"),
                node: options.node,
                incarnation: state.incarnation(),
                nodes: if self.moves() { limits::NODES_MAX } else { options.expect },
                address: self.bound.address.clone(),
                slots: options.slots,
                offer: options.offer_bytes(),
                launch: options.launch.clone(),
                data_address: self.bound.data_address.clone(),
                host: client::host_name(),
                formed: AtomicBool::new(state.was_formed()),
            },
            others: PeerTable::new(others),
            tls: Arc::clone(&self.tls),
            lines: DataConnectionPool::default(),
            small_objects: SmallObjectChannel::default(),
            uploading: Semaphore::new(limits::UPLOADS_IN_FLIGHT_MAX),
            hunting: Semaphore::new(UPLOAD_SEARCHES_MAX),
            connection_limits: options.connection_limits,
            given: Registry::default(),
            data_permits: Arc::new(Semaphore::new(options.connection_limits.data_connections)),
            addresses: Arc::clone(&self.addresses),
            inbox: inbox_sender,
            executor: Arc::new(executor),
            door,
            parts: Parts::default(),
            log: NodeLog::open(&log_path, self.clock)
                .map_err(|error| StartError::io("write", &log_path, error))?,
            events_dir: state.path().join("events"),
            next_number: AtomicU64::new(1),
            stop: self.stop.clone(),
            copies: AtomicU32::new(1),
            told: AtomicBool::new(false),
        });
        OtherNodes::serve(&shared);
        Ok(RunningIncarnation { state, store, shared, inbox, local, local_sender })
    }

    /// Reports to the other nodes of the launch that this one does not start.
    fn note_failure(&self, error: &StartError) {
        if self.options.begin_together {
            let (node, launch) = (self.options.node, &self.options.launch);
            self.instance.note_failure_of_start(node, launch, error);
        }
    }

    /// Warns once about missing protection if the file system has no locks or links.
    fn warn_about_missing_locks(&self, state: &StateDir, store: &RocksStore) {
        let (locks, links) = (state.lacks_locks(), security::once::has_lacked_links());
        let (mut lacks, path) = (Vec::new(), state.path().display());
        if let Some(why) = &locks {
            let watched_s = LOCK_HEARTBEAT_TIMEOUT.0 / 1_000_000_000;
            lacks.push(format!(
                "the file system of {path} has no file locks ({why}): a second start of this node \
                 is kept out by a beat in a file, and one that was suspended for {watched_s} s is \
                 not protected from it"
            ));
        }
        if store.lacks_locks() {
            lacks.push(format!(
                "the file system of {path} has no file locks of POSIX: the lock of the store holds \
                 on this machine only"
            ));
        }
        if links {
            lacks.push(format!(
                "the file system of {} has no hard links: of nodes that make the directory at the \
                 same time one that dies is waited for",
                self.options.dir.display()
            ));
        }
        if lacks.is_empty() || self.is_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        let (node, lacks) = (self.options.node, lacks.join("; "));
        (self.options.say)(&format!("node {node}: warning: {lacks}"));
    }

    /// The main function of the node's thread.
    pub(crate) fn run_to_end(mut self, first: RunningIncarnation) -> Result<(), NodeError> {
        let _guard = StartGuard(Arc::clone(&self.progress));
        let mut incarnation_run = first;
        loop {
            let shared = Arc::clone(&incarnation_run.shared);
            let known = match incarnation_run.run_to_end(&mut self) {
                Ok(LoopEnd::Told) => {
                    shared.log.line("stopped");
                    return Ok(());
                }
                Ok(LoopEnd::Fenced { restart: None }) => {
                    let node = self.options.node;
                    let error = StartError::Removed { node };
                    shared.log.line(&error.to_string());
                    instance::note_removed(&self.options.state_path(), node)?;
                    self.instance.note_left(node)?;
                    return Err(NodeError::Removed { node });
                }
                Ok(LoopEnd::Fenced { restart: Some(least) }) => {
                    self.say(
                        &shared,
                        "was declared failed by the cluster; it restarts as a new incarnation",
                    );
                    Incarnation(least.0 - 1)
                }
                Ok(LoopEnd::Late { known }) => {
                    self.say(&shared, "has a directory that the cluster does not know");
                    known
                }
                Err(error) if error.of_store().is_some_and(|it| self.may_replace_store(it)) => {
                    self.replace_store(&error.to_string())?;
                    Incarnation(0)
                }
                // Reported to the caller that waits for the start, or when the handle is joined.
                Err(NodeError::Start(error)) => {
                    shared.log.line(&format!("did not start: {error}"));
                    self.note_failure(&error);
                    self.progress.set(Phase::Failed(Some(error)));
                    return Ok(());
                }
                Err(error) => {
                    shared.log.line(&error.to_string());
                    return Err(error);
                }
            };
            drop(shared);
            incarnation_run = self.begin(known)?;
        }
    }

    fn say(&self, shared: &Shared, what: &str) {
        shared.log.line(&format!("this incarnation {what}"));
        (self.options.say)(&format!("node {} {what}", self.options.node));
    }
}

impl RunningIncarnation {
    fn run_to_end(self, context: &mut NodeContext) -> Result<LoopEnd, NodeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(limits::FILE_THREADS_MAX)
            .thread_name(format!("{}-files", context.options.node))
            .build()
            .map_err(StartError::Thread)?;
        let shared = Arc::clone(&self.shared);
        let result = runtime.block_on(self.serve(context));
        shared.executor.stop();
        shared.lines.close();
        shared.given.close();
        runtime.shutdown_timeout(STREAM_DRAIN_TIMEOUT);
        result
    }

    async fn serve(self, context: &mut NodeContext) -> Result<LoopEnd, NodeError> {
        let node = context.options.node;
        let failed = |reason: String| NodeError::Serve { node, reason };
        let (end, mut ended) = watch::channel(false);
        let to_tokio = |listener: &TcpListener| {
            listener.try_clone().and_then(tokio::net::TcpListener::from_std)
        };
        let listener = to_tokio(&context.bound.calls).map_err(|e| failed(e.to_string()))?;
        let incoming = listener::listen(Arc::clone(&self.shared), listener);
        let routes = service::routes(Arc::clone(&self.shared));
        let mut server = tokio::spawn(routes.serve_with_incoming_shutdown(incoming, async move {
            // An error means that the sender is gone, which is the end as well.
            let _ = ended.wait_for(|ended| *ended).await;
        }));
        let data_listener = to_tokio(&context.bound.data).map_err(|e| failed(e.to_string()))?;
        tokio::spawn(data::serve(Arc::clone(&self.shared), data_listener));
        tokio::spawn(door::serve(Arc::clone(&self.shared)));
        tokio::spawn(tls_context::renew_certificates(Arc::clone(&self.shared)));
        if let Some(end) = context.options.end {
            tokio::spawn(end_of_life::stop_before(end, context.clock, Arc::clone(&self.shared)));
        }
        let mut stop = self.shared.stop.subscribe();
        let had_begun = context.instance.has_begun();
        let own = self.publish_address(context)?;
        let mut presence = AddressRegistration {
            instance: context.instance.clone(),
            node,
            incarnation: self.state.incarnation(),
            goes_on: false,
        };
        tokio::select! {
            formed = self.form_cluster(context, had_begun) => match formed? {
                None => {}
                Some(known) => {
                    presence.goes_on = true;
                    return Ok(LoopEnd::Late { known });
                }
            },
            _ = stop.wait_for(|stop| *stop) => return Err(StartError::Stopped.into()),
            () = self.state.gone() => return Err(self.state.gone_error(node)),
        }
        let progress = Arc::clone(&context.progress);
        let (shared, store) = (Arc::clone(&self.shared), self.state.store());
        let (run, (inbox, local), state) = self.recover(context, &own)?;
        progress.set(Phase::Ready);
        let result = tokio::select! {
            result = run.run(inbox, local, stop) => result,
            () = state.gone() => Err(state.gone_error(node)),
            served = &mut server => Err(failed(match served {
                Ok(Ok(())) => "the server ended".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            })),
        };
        let goes_on =
            matches!(result, Ok(LoopEnd::Fenced { restart: Some(_) } | LoopEnd::Late { .. }));
        if goes_on {
            presence.goes_on = true;
            server.abort(); // Later messages of this incarnation do not count.
            return result;
        }
        if matches!(result, Ok(LoopEnd::Fenced { restart: None })) {
            captured::hand_over(shared, store).await;
        }
        end.send_replace(true);
        // Pending answers, such as the one to a stop request, may still be sent.
        let _ = tokio::time::timeout(STREAM_DRAIN_TIMEOUT, server).await;
        result
    }

    /// Writes the node's address file.
    fn publish_address(&self, context: &NodeContext) -> Result<AddressFile, StartError> {
        let file = AddressFile {
            format: limits::FORMAT_VERSION,
            node: context.options.node.0,
            incarnation: self.state.incarnation().0,
            address: context.bound.address.clone(),
            pid: std::process::id(),
            slots: context.options.slots,
            offer: self.shared.identity.offer.clone(),
            launch: context.options.launch.clone(),
            data: self.shared.identity.data_address.clone(),
            host: self.shared.identity.host.clone(),
        };
        context.instance.write_address(&file)?;
        self.shared.log.line(&format!(
            "node {} of {} listens on {}, incarnation {}, store {:016x}, process {}",
            file.node,
            context.options.expect,
            file.address,
            file.incarnation,
            self.state.store(),
            file.pid
        ));
        Ok(file)
    }

    /// Finds the others. A node that returns to a complete cluster need not wait. It must wait if
    /// all nodes begin together: then the files of the others are of an earlier launch or missing.
    /// `Some`: the cluster knew this node with another directory, up to that incarnation.
    async fn form_cluster(
        &self,
        context: &mut NodeContext,
        had_begun: bool,
    ) -> Result<Option<Incarnation>, StartError> {
        let (shared, options) = (&self.shared, &context.options);
        if self.state.is_older() {
            rendezvous::refuse_other_versions(shared, self.state.path()).await?;
        }
        let goes_alone = self.state.was_formed() && !options.begin_together;
        if goes_alone || self.state.is_late() {
            tokio::spawn(rendezvous::request_dial(Arc::clone(shared)));
        } else {
            let formed = self.wait_for_others(context, had_begun).await?;
            if let Formation::Partial(missing) = &formed {
                let text = format!("begins without others: {}", missing.join("; "));
                shared.log.line(&text);
                (options.say)(&format!("node {} {text}", options.node));
            }
            if let Formation::Begun(map) = formed {
                let own = kvs::membership::member(&map, options.node).cloned();
                let own = own.unwrap_or_default();
                // A node that was never in the map has lost nothing.
                if own.store != 0 && own.store != self.state.store() {
                    self.state.set_late()?;
                    self.state.set_formed()?;
                    context.known_map = Some(map);
                    return Ok(Some(Incarnation(own.incarnation)));
                }
            }
            self.state.set_formed()?;
            shared.identity.set_formed();
        }
        context.instance.note_begun()?; // Nothing has been acknowledged before.
        shared.others.higher(shared.identity.node).for_each(|peer| links::start(shared, peer));
        Ok(None)
    }

    /// `had_begun`: the cluster had begun before the other nodes could see this node.
    async fn wait_for_others(
        &self,
        context: &NodeContext,
        had_begun: bool,
    ) -> Result<Formation, StartError> {
        let (options, all) = (&context.options, self.shared.others.all());
        // To a node without state the nodes of this launch alone do not prove that there are no
        // others.
        let (join_condition, awaited) = match (context.moves(), self.state.was_formed()) {
            (true, false) if had_begun => (JoinCondition::Begun, all),
            (true, false) => (JoinCondition::AllOrBegun, all),
            _ => (JoinCondition::All, options.awaited.clone().unwrap_or(all)),
        };
        let voters = context.known_voters().filter(|_| context.moves()).unwrap_or_default();
        let wait = RendezvousOptions {
            awaited: &awaited,
            launch: &options.launch,
            deadline: options.deadline,
            join_condition,
            voters: &voters,
            further: &options.further,
            state: self.state.path(),
            node: options.node,
            store: self.state.store(),
        };
        rendezvous::wait_for_all(&self.shared, &wait).await
    }

    /// Builds the core from the records of earlier incarnations. The state directory stays locked
    /// while the returned one lives.
    fn recover(
        self,
        context: &NodeContext,
        own: &AddressFile,
    ) -> Result<(Loop, Inboxes, StateDir), NodeError> {
        let (node, incarnation) = (context.options.node, self.state.incarnation());
        if self.state.is_older() {
            self.state.upgrade()?;
            self.shared.log.line("its state has the format of this version from now on");
        }
        let map = context.first_map(&self.state);
        let members = Members::new(map.clone(), own, |node| self.shared.addresses.read(node));
        // Only answers contain the reachability of nodes. To the core an unreachable node would be
        // failed and its outputs lost, which only the cluster may decide.
        let mut agreed = if context.moves() { map.clone() } else { members.map().clone() };
        for (member, made) in agreed.members.iter_mut().zip(&map.members) {
            member.phase = made.phase;
        }
        let core = self.recover_core(context, agreed)?;
        // Removes uploads for jobs that have ended or never began. If homes move, this node does
        // not know yet of which jobs it will be home.
        if !context.moves() {
            let executor = &self.shared.executor;
            executor.uploads().keep_only(|job| core.is_over(job) == Some(false));
            // The node may have ended between the end of a job and the removal of its files.
            executor.objects().forget_jobs(|job| core.is_over(job) == Some(true));
        }
        let dir = &self.shared.events_dir;
        let events = EventLog::open(dir, node, incarnation)
            .map_err(|error| NodeError::EventLog { node, path: dir.clone(), error })?;
        let name = format!("{node}-sync");
        let sync = SyncThread::start(name, self.store.syncer(), self.local_sender.clone())
            .map_err(StartError::Thread)?;
        self.scrub(context.options.scrub_every)?;
        self.shared.copies.store(wanted_copies(&map), Ordering::Relaxed);
        tokio::spawn(captured::keep_on(Arc::clone(&self.shared), self.state.store()));
        let refill =
            StoreRecovery::new(self.state.replaced_stores(), node, incarnation, self.state.store());
        refill.announcement().iter().for_each(|line| self.shared.log.line(line));
        let objects = self.shared.executor.objects().list();
        if !objects.is_empty() {
            let stored = Local::Input(Input::Stored { objects });
            self.local_sender.send(stored).expect("the receiver is here");
        }
        let tasks = self.shared.executor.uploads().list();
        if !tasks.is_empty() {
            let files = Local::Input(Input::Files { tasks });
            self.local_sender.send(files).expect("the receiver is here");
        }
        if context.moves() {
            self.shared.executor.uploads().set_finder(upload_search::finder(&self.shared));
        }
        let log = Arc::clone(&self.shared);
        let say = move |line: &str| log.log.refusal(line);
        let mut members_writer =
            MembersWriter::start(context.instance.clone(), context.map_at_first(), say);
        members_writer.note(core.map());
        let run = Loop {
            members_writer,
            transfers: Transfers::new(Arc::clone(&self.shared), self.local_sender.clone()),
            shared: self.shared,
            node: core,
            store: self.store,
            sync,
            clock: context.clock,
            events,
            members,
            mark: self.state.end_mark(),
            refill,
            local: self.local_sender,
            state: State::default(),
        };
        Ok((run, (self.inbox, self.local), self.state))
    }

    /// Starts the periodic reading of all records.
    fn scrub(&self, every: Option<Duration>) -> Result<(), StartError> {
        if let Some(every) = every {
            let (scrubber, seed) = (self.store.scrubber(), instance::random_u64()?);
            let shared = Arc::clone(&self.shared);
            let say = Box::new(move |line: &str| shared.log.line(line));
            let scrub = Scrub { scrubber, every, seed, say };
            tokio::spawn(scrub.keep_on(self.local_sender.clone()));
        }
        Ok(())
    }

    fn recover_core(
        &self,
        context: &NodeContext,
        map: wire::ClusterMap,
    ) -> Result<Node, StartError> {
        let (options, state) = (&context.options, &self.state);
        let config = Config {
            incarnation: state.incarnation(),
            slots: options.slots,
            offer: options.offer(),
            end: options.end,
            departs: Departs {
                before_end: true,
                idle: options.idle_timeout.map(|it| Span(it.as_nanos() as u64)),
            },
            tuning: limits_of_store(options, &self.state, &self.shared)?,
            seed: instance::random_u64()?,
            store: self.state.store(),
            address: self.shared.identity.address.clone(),
            data_address: self.shared.identity.data_address.clone(),
            host: self.shared.identity.host.clone(),
            pid: std::process::id(),
            late: state.is_late(),
            former: state.former(),
            ..Config::new(options.node, Arc::new(map))
        };
        let mut damaged = None;
        let records = self.store.records();
        let records =
            records.map_while(|record| record.map_err(|error| damaged = Some(error)).ok());
        let node = Node::recover(config, records, context.clock.now());
        // A failed read is reported first, because it may be the cause of the other error.
        match damaged {
            Some(error) => Err(error.into()),
            None => node.map_err(|error| {
                let (path, reason) = (self.state.db(), error.to_string());
                StoreError::Damaged { path, reason }.into()
            }),
        }
    }
}

//! Assembles a node and starts its thread.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use proto::{Incarnation, NodeId, limits, wire};
use security::{Dialer, Keyring, Role};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::error::StartError;
use crate::handle::{NodeHandle, Progress};
use crate::lifecycle::incarnations::NodeContext;
use crate::lifecycle::instance::{self, ClusterFile, Instance};
use crate::lifecycle::{join, rendezvous};
use crate::options::NodeOptions;
use crate::rpc::addresses::AddressBook;
use crate::rpc::listen_addresses;
use crate::rpc::listen_addresses::Listen;
use crate::rpc::tls_context::TlsContext;

/// The maximum wait of a new node for earlier ones, which join one after another.
const START_LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Starts nodes `0..base.expect` in this process and waits until they have found each other.
pub fn start_all(base: &NodeOptions) -> Result<Vec<NodeHandle>, StartError> {
    let mut nodes = (0..base.expect)
        .map(|node| start(NodeOptions { node: NodeId(node), ..base.clone() }))
        .collect::<Result<Vec<_>, _>>()?;
    for at in 0..nodes.len() {
        match nodes[at].wait_ready() {
            Ok(()) => {}
            // `join` returns the reason of its end.
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
/// If nodes begin together, a node that does not start reports the reason to the others.
pub fn start(options: NodeOptions) -> Result<NodeHandle, StartError> {
    executor::huge_pages::avoid();
    // No node waits for one that has yet to get its number from the cluster.
    if !options.begin_together || options.grow {
        return try_to_start(options);
    }
    let instance = Instance::open(&options.dir)?;
    let (node, launch) = (options.node, options.launch.clone());
    instance.note_failure(node, None);
    let started = try_to_start(options);
    started.inspect_err(|error| instance.note_failure_of_start(node, &launch, error))
}

fn try_to_start(mut options: NodeOptions) -> Result<NodeHandle, StartError> {
    options.check()?;
    let insecure = options.insecure;
    let resolve = |name: &str| resolve_join(name, insecure);
    options.join = options.join.as_deref().map(resolve).transpose()?;
    check_reachable(&options)?;
    // First, so that a failure to bind leaves nothing behind.
    let bound = listen_addresses::bind(&options.listen)?;
    if bound.is_alone {
        (options.say)("warning: no network interface is up: only this machine reaches the node");
    }
    let instance = Instance::open(&options.dir)?;
    let tls = Arc::new(make_doors(&options, &instance, &bound.only)?);
    let addresses = Arc::new(AddressBook::new(instance.clone()));
    let mut joins = None;
    if options.grow {
        let listens = (bound.address.clone(), bound.data_address.clone());
        if options.join.is_none() {
            let (launch, deadline) = (&options.launch, options.deadline);
            let by = rendezvous::await_member(&instance, &tls.dialer(), launch, deadline)?;
            options.join = Some(by);
        }
        // The deadline of each node begins with its turn.
        joins = Some(instance.lock_joins(options.deadline.max(START_LOCK_TIMEOUT))?);
        enter_as_new(&mut options, &instance, &tls.dialer(), listens)?;
    }
    let found = find_cluster(&options, &instance, &addresses, &tls.dialer())?;
    for member in instance.read_members().into_iter().flat_map(|file| file.members) {
        let (node, incarnation, address) = (member.node, member.incarnation, member.address);
        addresses.hear(&wire::Member { node, incarnation, address, ..Default::default() });
    }
    if options.slots == 0 && found.cluster.replicas <= 1 {
        return Err(StartError::KeeperAlone);
    }
    let (stop, _) = watch::channel(false);
    let progress = Arc::new(Progress::default());
    let mut context = NodeContext {
        clock: Clock::start(),
        instance,
        cluster: found.cluster,
        known_map: found.map,
        tls,
        addresses,
        bound,
        stop: stop.clone(),
        progress: Arc::clone(&progress),
        is_warned: AtomicBool::new(false),
        store_replacements: 0,
        options,
    };
    let first_incarnation = context.begin(found.incarnation)?;
    let (address, listens_on) = (context.bound.first, context.bound.text.clone());
    drop(joins); // The state directory of the node is locked by now.
    let (node, incarnation) = (context.options.node, first_incarnation.incarnation());
    let thread = std::thread::Builder::new()
        .name(format!("{node}-loop"))
        .spawn(move || context.run_to_end(first_incarnation))
        .map_err(StartError::Thread)?;
    let thread = Some(thread);
    Ok(NodeHandle { node, address, listens_on, incarnation, stop, progress, thread })
}

/// Gets a number from the cluster to join, or finds the former number of this directory.
fn enter_as_new(
    options: &mut NodeOptions,
    instance: &Instance,
    dialer: &Dialer,
    (address, data_address): (String, String),
) -> Result<(), StartError> {
    let Some(by) = options.join.clone() else { return Ok(()) };
    let map = rendezvous::ask_map(&by, dialer)?;
    if map.copies <= 1 {
        let reason = "its cluster was made with --replicas 1: no node can be added".to_owned();
        return Err(StartError::Join { address: by, reason });
    }
    let first_nodes = instance.first_nodes()?;
    options.expect = first_nodes.unwrap_or(map.members.len() as u32);
    let is_rank = options.rank.is_some(); // Another rank may be about to take its former number.
    for member in map.members.iter().filter(|_| !is_rank) {
        options.node = NodeId(member.node);
        let is_ours = member.phase() != wire::MemberPhase::Removed
            && instance::has_joined(&options.state_path())
            && instance::free_store(&options.state_path()) == Some(member.store);
        if is_ours {
            return Ok(());
        }
    }
    if options.state_dir.is_some() {
        instance::check_not_removed(&options.state_path())?; // Before the cluster assigns a number.
    }
    let store = instance::random_u64()?.max(1);
    let (slots, keeper) = (options.slots, options.slots == 0);
    let speaks = limits::PEER_VERSION;
    let offer = options.offer_bytes();
    let join = wire::MemberJoin { store, address, data_address, slots, keeper, speaks, offer };
    options.node = rendezvous::enter(&by, dialer, &join, options.deadline)?;
    // A number with state is free for other ranks unless it is noted.
    options.rank.map_or(Ok(()), |rank| instance.note_rank(rank, options.node))?;
    instance::prepare_joined(&options.state_path(), store)
}

/// Facts about the cluster from before the node's start.
struct KnownCluster {
    cluster: ClusterFile,
    /// The last incarnation of this node that the cluster knows.
    incarnation: Incarnation,
    map: Option<wire::ClusterMap>,
}

/// The cluster's identity: from the directory, from the node to join through, or made now.
fn find_cluster(
    options: &NodeOptions,
    instance: &Instance,
    addresses: &AddressBook,
    dialer: &Dialer,
) -> Result<KnownCluster, StartError> {
    let mut known = Incarnation(0);
    let mut found_map = None;
    let mut wanted = ClusterFile {
        format: limits::FORMAT_VERSION,
        cluster: String::new(),
        nodes: options.expect,
        partitions: options.partitions.unwrap_or_else(|| kvs::default_partitions(options.expect)),
        replicas: options.replicas.unwrap_or(1),
        insecure: options.insecure,
    };
    let mut id = instance::random_u64()?;
    if let Some(address) = &options.join {
        let map = rendezvous::ask_map(address, dialer)?;
        // If nodes may join and leave, the members differ from the founding ones.
        if map.copies <= 1 && map.members.len() != options.expect as usize {
            let reason = format!("its cluster has {} nodes", map.members.len());
            return Err(StartError::Join { address: address.clone(), reason });
        }
        id = map.cluster;
        let own = map.members.iter().find(|member| member.node == options.node.0);
        known = Incarnation(own.map_or(0, |member| member.incarnation));
        wanted.partitions = map.partitions.len() as u32;
        wanted.replicas = kvs::membership::wanted_copies(&map);
        rendezvous::addresses(&map).for_each(|member| addresses.hear(member));
        found_map = Some(map);
    }
    wanted.cluster = format!("{id:016x}");
    let cluster = instance.cluster(&wanted, options.partitions, options.replicas)?;
    match &options.join {
        Some(address) if cluster.id() != Some(id) => {
            let reason = "this directory belongs to another cluster".to_owned();
            Err(StartError::Join { address: address.clone(), reason })
        }
        _ => Ok(KnownCluster { cluster, incarnation: known, map: found_map }),
    }
}

/// The TLS context with the keys of the directory, those of a token, or new ones.
fn make_doors(
    options: &NodeOptions,
    instance: &Instance,
    only: &[IpAddr],
) -> Result<TlsContext, StartError> {
    instance.check_security_mode(options.insecure)?;
    if options.insecure {
        return Ok(TlsContext::insecure());
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
    TlsContext::new(keyring, &bundle, only.to_vec()).map_err(|error| {
        let path = instance.dir().join("keys");
        StartError::BadKeys { path, reason: error.to_string() }
    })
}

/// Refuses a loopback address for a node that joins through another machine: the members could not
/// reach it. The check precedes the join, so that no member dials it.
fn check_reachable(options: &NodeOptions) -> Result<(), StartError> {
    let (Some(join), Listen::At(address)) = (&options.join, &options.listen) else {
        return Ok(());
    };
    let by = security::race::parse(join).unwrap_or_default();
    let is_here = by.iter().all(|it| security::interfaces::is_own(it.ip()));
    match security::dial::is_local(*address) && !is_here {
        true => Err(StartError::NoAddress { address: *address }),
        false => Ok(()),
    }
}

/// Resolves the addresses to join through: a name may stand for several, and so may a list.
fn resolve_join(name: &str, insecure: bool) -> Result<String, StartError> {
    let failed = |reason: String| StartError::Join { address: name.to_owned(), reason };
    let mut found: Vec<SocketAddr> = Vec::new();
    for one in security::race::each(name) {
        found.extend(one.to_socket_addrs().map_err(|error| failed(error.to_string()))?);
    }
    if insecure && !found.iter().all(|&address| security::dial::is_local(address)) {
        return Err(StartError::JoinNotLoopback { address: name.to_owned() });
    }
    if found.is_empty() {
        return Err(failed("it has no address".to_owned()));
    }
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    Ok(found.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_joins_elsewhere_does_not_listen_on_loopback() {
        let dir = tempfile::tempdir().unwrap();
        let check = |join: &str, listen: &str| {
            let listen = listen.parse().unwrap();
            let join = Some(join.to_owned());
            let base = NodeOptions::new(dir.path(), NodeId(0), 1);
            try_to_start(NodeOptions { join, listen, grow: true, ..base })
        };
        // No machine has these addresses, which are reserved for documentation.
        for join in ["192.0.2.1:7", "127.0.0.1:7,192.0.2.1:7"] {
            let error = check(join, "127.0.0.1:0").unwrap_err();
            assert!(matches!(error, StartError::NoAddress { .. }), "{join}: {error}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
        let error = check("127.0.0.1:7", "127.0.0.1:0").unwrap_err();
        assert!(matches!(error, StartError::Join { .. }), "{error}");
    }
}

//! The port for objects, by every kind of certificate; and how many nodes it serves.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::strangers::ports;
use crate::support::options;
use crate::{bare_config, strange_bundles};
use daemon::{ConnectionLimits, NodeOptions, start};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use security::{Keyring, Role, tls};

/// What a node says to node 0 first.
fn greeting(dir: &Path) -> Vec<u8> {
    let text = std::fs::read_to_string(dir.join("cluster.json")).unwrap();
    let cluster: daemon::instance::ClusterFile = serde_json::from_str(&text).unwrap();
    let mut bytes = b"SDT2".to_vec();
    bytes.extend(proto::limits::PEER_VERSION.to_le_bytes());
    bytes.extend(cluster.id().unwrap().to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes
}

const COME: &[u8] = b"SDT2\0\0\0\0";
const BUSY: &[u8] = b"SDT2\x03\0\0\0";

trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

/// Greets, and tells what the node answers: nothing, where it does not want to know.
fn greet(dir: &Path, config: Option<Arc<ClientConfig>>) -> (Box<dyn Wire>, Vec<u8>) {
    let socket = TcpStream::connect(ports(dir)[1]).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut wire: Box<dyn Wire> = match config {
        None => Box::new(socket),
        Some(config) => {
            let connection = ClientConnection::new(config, tls::node_name()).unwrap();
            Box::new(StreamOwned::new(connection, socket))
        }
    };
    let mut answer = vec![0; COME.len()];
    // The node may close while we still write.
    let said = wire.write_all(&greeting(dir)).and_then(|()| wire.read_exact(&mut answer));
    (wire, said.map_or_else(|_| Vec::new(), |()| answer))
}

fn of_role(dir: &Path, role: Role) -> Option<Arc<ClientConfig>> {
    let bundle = Keyring::of_instance(dir).read(role).unwrap();
    Some(tls::client(&bundle, tls::DATA).unwrap())
}

#[test]
fn objects_go_to_nodes_of_this_cluster_alone() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    node.wait_ready().unwrap();
    assert_eq!(greet(dir.path(), of_role(dir.path(), Role::Node)).1, COME);
    let keyring = Keyring::of_instance(dir.path());
    let of_bundle = |bundle| Some(tls::client(&bundle, tls::DATA).unwrap());
    let bare = Some(Arc::new(bare_config(&keyring, tls::DATA)));
    let mut strangers = vec![("no encryption", None), ("no certificate", bare)];
    strangers.extend(strange_bundles(&keyring).into_iter().map(|(n, it)| (n, of_bundle(it))));
    for (name, config) in strangers {
        assert_eq!(greet(dir.path(), config).1, b"", "{name}");
    }
    for role in Role::ALL.into_iter().filter(|role| *role != Role::Node) {
        assert_eq!(greet(dir.path(), of_role(dir.path(), role)).1, b"", "{role}");
    }
    assert!(!node.is_finished());
    assert_eq!(greet(dir.path(), of_role(dir.path(), Role::Node)).1, COME);
}

#[test]
fn data_connections_are_served_up_to_the_limit() {
    const PLACES: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let connection_limits =
        ConnectionLimits { data_connections: PLACES, ..ConnectionLimits::default() };
    let node = start(NodeOptions { connection_limits, ..options(dir.path(), 0, 1) }).unwrap();
    node.wait_ready().unwrap();
    let path = dir.path();
    // All at once: who is judged while another comes in counts too.
    let mut come: Vec<_> = std::thread::scope(|scope| {
        let greeted = || {
            let (wire, said) = greet(path, of_role(path, Role::Node));
            // The others have been answered before this one may go.
            assert!([COME, BUSY].contains(&&said[..]), "{said:?}");
            (said == COME).then(|| std::thread::sleep(Duration::from_millis(500)));
            (drop(wire), said).1
        };
        let all: Vec<_> = (0..4 * PLACES).map(|_| scope.spawn(greeted)).collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    });
    come.retain(|said| said == COME);
    assert!((1..=PLACES).contains(&come.len()), "{} were let in", come.len());
    let mut kept = Vec::new();
    while kept.len() < PLACES {
        let (wire, said) = greet(path, of_role(path, Role::Node));
        kept.extend((said == COME).then_some(wire)); // A place may not be free yet.
    }
    for _ in 0..3 {
        assert_eq!(greet(path, of_role(path, Role::Node)).1, BUSY);
    }
    drop(kept.pop());
    while greet(path, of_role(path, Role::Node)).1 != COME {}
}

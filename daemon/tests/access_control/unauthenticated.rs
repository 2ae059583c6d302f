//! Connections without a certificate: they are closed soon, and do not keep others out for long.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{dialer, options};
use daemon::instance::Instance;
use daemon::start;
use proto::{NodeId, limits};
use security::Role;

const HANDSHAKE: Duration = Duration::from_nanos(limits::HANDSHAKE_TIMEOUT.0);

/// The port for calls and the one for objects.
pub(crate) fn ports(dir: &Path) -> [SocketAddr; 2] {
    let file = Instance::open(dir).unwrap().read_address(NodeId(0)).unwrap();
    [file.address.parse().unwrap(), file.data.parse().unwrap()]
}

/// The beginning of a TLS ClientHello that never ends: a record with part of a message of 64 KiB.
fn endless_greeting() -> Vec<u8> {
    let mut bytes = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xf0];
    bytes.resize(5 + 0x4000, 0);
    bytes
}

/// A valid TLS ClientHello without a certificate behind it.
fn good_greeting() -> Vec<u8> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![security::tls::GRPC.to_vec()];
    let name = security::tls::node_name();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// Sends a piece each 100 ms until the node closes the connection. False if it does not.
fn is_closed(port: SocketAddr, sent: &[u8], piece_bytes: usize) -> bool {
    let mut stream = TcpStream::connect(port).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let start = Instant::now();
    let mut pieces = sent.chunks(piece_bytes);
    let mut buffer = [0; 64];
    while start.elapsed() < 10 * HANDSHAKE {
        if let Some(piece) = pieces.next()
            && stream.write_all(piece).is_err()
        {
            return true;
        }
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return true,
            Ok(_) => {}
        }
    }
    false
}

#[test]
fn a_connection_without_a_certificate_is_closed_after_the_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    node.wait_ready().unwrap();
    let (greeting, good) = (endless_greeting(), good_greeting());
    let closed: Vec<bool> = std::thread::scope(|scope| {
        let (greeting, good) = (&greeting, &good);
        let kinds = ports(dir.path()).map(|port| {
            [
                scope.spawn(move || is_closed(port, &[], 1)), // silent
                scope.spawn(move || is_closed(port, greeting, 16)), // slow
                scope.spawn(move || is_closed(port, &greeting[..9], 9)), // half a greeting
                // All of it, near the end of the time limit: the next steps have only the rest of
                // it.
                scope.spawn(move || is_closed(port, good, good.len().div_ceil(40))),
            ]
        });
        kinds.into_iter().flatten().map(|it| it.join().unwrap()).collect()
    });
    assert_eq!(closed, [true; 8]);
    assert!(!node.is_finished());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn many_unauthenticated_connections_delay_a_client_only_briefly() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    tokio::task::block_in_place(|| node.wait_ready()).unwrap();
    let port = node.address();
    let mut silent: Vec<TcpStream> = (0..limits::UNAUTHENTICATED_CONNECTIONS_MAX + 20)
        .map(|_| TcpStream::connect(port).unwrap())
        .collect();
    let known = dialer(dir.path(), Role::Client);
    // All places are taken, so the oldest silent connections make room.
    known.connect(&port.to_string(), |it| it).await.unwrap();
    // The client did not wait until all handshakes had timed out: the newest silent one is open.
    let newest = silent.last_mut().unwrap();
    newest.set_nonblocking(true).unwrap();
    let read = newest.read(&mut [0; 1]);
    assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock);
}

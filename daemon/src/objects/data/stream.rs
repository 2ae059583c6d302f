//! Opens data connections and authenticates incoming ones. No other module does either.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use proto::{NodeId, limits};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use security::{race, tls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;

use super::frame::{HELLO_BYTES, Hello, WELCOME_BYTES, Welcome};
use super::socket::{BufferedSocket, DataStream};
use crate::clock::duration;
use crate::limits::DATA_STALL_TIMEOUT;
use crate::rpc::peers::Identity;
use crate::rpc::service::Shared;

/// Opens an authenticated connection to the data port of a node.
pub(super) fn open(shared: &Shared, to: NodeId, address: &str) -> Result<DataStream, String> {
    let targets = race::parse(address)?;
    let config = shared.tls.to_data();
    if config.is_none() && !targets.iter().all(|it| security::dial::is_local(*it)) {
        return Err(format!("'{address}' is not on this machine: connections are not encrypted"));
    }
    let hello = hello(&shared.identity, to).to_bytes();
    let opened = race::first_blocking(targets, move |target| ask(target, config.clone(), &hello));
    opened.map_err(|error| security::dial::describe(&error))
}

/// Opens an authenticated connection to one address.
fn ask(
    target: SocketAddr,
    config: Option<Arc<ClientConfig>>,
    hello: &[u8],
) -> io::Result<DataStream> {
    let timeout_for = duration(limits::GREETING_TIMEOUT);
    let socket = TcpStream::connect_timeout(&target, timeout_for)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(timeout_for))?;
    socket.set_write_timeout(Some(timeout_for))?;
    let mut wire = match config {
        None => DataStream::Plain(socket),
        Some(config) => {
            let connection = ClientConnection::new(config, tls::node_name());
            let connection = connection.map_err(io::Error::other)?;
            let socket = BufferedSocket::new(socket);
            DataStream::Client(Box::new(StreamOwned::new(connection, socket)))
        }
    };
    wire.write_all(hello)?;
    let mut welcome = [0; WELCOME_BYTES];
    wire.read_exact(&mut welcome)?;
    fit_for_data(wire.socket())?;
    Err(io::Error::other(match Welcome::from_bytes(welcome) {
        Some(Welcome::Come) => return Ok(wire),
        Some(Welcome::OtherVersion) => "it speaks another version",
        Some(Welcome::OtherNode) => "another node listens at its address",
        Some(Welcome::Busy) => "it serves too many nodes at a time",
        None => "what listens at its address is no data port",
    }))
}

/// Sets the timeouts of a stream that carries objects.
pub(super) fn fit_for_data(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(duration(DATA_STALL_TIMEOUT)))?;
    stream.set_write_timeout(Some(duration(DATA_STALL_TIMEOUT)))
}

fn hello(identity: &Identity, to: NodeId) -> Hello {
    Hello {
        version: limits::PEER_VERSION,
        cluster: identity.cluster,
        from: identity.node.0,
        to: to.0,
    }
}

/// Authenticates an incoming connection: it must be from a node. Answers its greeting. An
/// unauthenticated connection costs only the buffers of one handshake. A node holds one permit of
/// `data_permits` while it is served.
pub(super) async fn accept(
    shared: &Shared,
    socket: tokio::net::TcpStream,
) -> Result<(NodeId, DataStream, OwnedSemaphorePermit), String> {
    match shared.tls.accept_data_peer(socket).await? {
        Ok(mut stream) => {
            let (node, place) = greet(shared, &mut stream).await?;
            let (socket, connection) = stream.into_inner();
            let stream = StreamOwned::new(connection, BufferedSocket::new(blocking(socket)?));
            Ok((node, DataStream::Server(Box::new(stream)), place))
        }
        Err(mut socket) => {
            let (node, place) = greet(shared, &mut socket).await?;
            Ok((node, DataStream::Plain(blocking(socket)?), place))
        }
    }
}

fn blocking(socket: tokio::net::TcpStream) -> Result<TcpStream, String> {
    let blocking = || -> io::Result<TcpStream> {
        let socket = socket.into_std()?;
        socket.set_nonblocking(false)?;
        fit_for_data(&socket)?;
        Ok(socket)
    };
    blocking().map_err(|error| error.to_string())
}

async fn greet(
    shared: &Shared,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(NodeId, OwnedSemaphorePermit), String> {
    let mut bytes = [0; HELLO_BYTES];
    stream.read_exact(&mut bytes).await.map_err(|error| error.to_string())?;
    let greeting = Hello::from_bytes(&bytes).ok_or("it does not greet as a node does")?;
    // The permit is taken before the answer is sent, so simultaneous greetings cannot exceed the
    // limit.
    let place = Arc::clone(&shared.data_permits).try_acquire_owned().ok();
    let welcome = judge(&shared.identity, &greeting, place.is_none());
    stream.write_all(&welcome.to_bytes()).await.map_err(|error| error.to_string())?;
    stream.flush().await.map_err(|error| error.to_string())?;
    match (welcome, place) {
        (Welcome::Come, Some(place)) => Ok((NodeId(greeting.from), place)),
        (other, _) => Err(format!("{other:?}")),
    }
}

fn judge(identity: &Identity, greeting: &Hello, is_busy: bool) -> Welcome {
    if greeting.version != limits::PEER_VERSION {
        Welcome::OtherVersion
    } else if greeting.cluster != identity.cluster || greeting.to != identity.node.0 {
        Welcome::OtherNode
    } else if is_busy {
        Welcome::Busy
    } else {
        Welcome::Come
    }
}

/// The open data connections of a node, so that they end with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    inner: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    streams: BTreeMap<u64, TcpStream>,
    is_over: bool,
}

/// Registers a stream until it is dropped.
#[derive(Debug)]
pub(super) struct Known {
    registry: Registry,
    number: u64,
}

impl Registry {
    /// `None` if the registry is closed.
    pub(super) fn enter(&self, stream: &TcpStream) -> Option<Known> {
        let stream = stream.try_clone().ok()?;
        let mut open = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_over {
            return None;
        }
        open.next += 1;
        let number = open.next;
        open.streams.insert(number, stream);
        Some(Known { registry: self.clone(), number })
    }

    /// Closes every connection, and refuses later ones.
    pub(crate) fn close(&self) {
        let mut open = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        open.is_over = true;
        for stream in open.streams.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut open = self.registry.inner.lock().unwrap_or_else(PoisonError::into_inner);
        open.streams.remove(&self.number);
    }
}

//! The one place where a data connection is opened, and where one that comes is believed.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::{NodeId, Span, limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::frame::{HELLO_BYTES, Hello, WELCOME_BYTES, Welcome};
use crate::peers::{self, Identity};

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.0)
}

/// Opens a connection to the data port of a node and is believed there.
pub(super) fn open(identity: &Identity, to: NodeId, address: &str) -> Result<TcpStream, String> {
    let address: SocketAddr = address.parse().map_err(|_| format!("'{address}' is no address"))?;
    if !peers::is_local(address) {
        return Err(format!("'{address}' is not on this machine: connections are not encrypted"));
    }
    let patience = duration(limits::GREETING_TIMEOUT);
    let greet = || -> io::Result<(TcpStream, [u8; WELCOME_BYTES])> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(&hello(identity, to).to_bytes())?;
        let mut welcome = [0; WELCOME_BYTES];
        stream.read_exact(&mut welcome)?;
        fit_for_data(&stream)?;
        Ok((stream, welcome))
    };
    let (stream, welcome) = greet().map_err(|error| error.to_string())?;
    match Welcome::from_bytes(welcome) {
        Some(Welcome::Come) => Ok(stream),
        Some(Welcome::NotTrusted) => Err("it does not know this node's secret".to_owned()),
        Some(Welcome::OtherVersion) => Err("it speaks another version".to_owned()),
        Some(Welcome::OtherNode) => Err("another node listens at its address".to_owned()),
        Some(Welcome::Busy) => Err("it serves too many nodes at a time".to_owned()),
        None => Err("what listens at its address is no data port".to_owned()),
    }
}

/// Time-outs of a stream that carries objects.
pub(super) fn fit_for_data(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(duration(limits::DATA_SILENCE)))?;
    stream.set_write_timeout(Some(duration(limits::DATA_SILENCE)))
}

fn hello(identity: &Identity, to: NodeId) -> Hello {
    Hello {
        version: limits::FORMAT_VERSION,
        cluster: identity.cluster,
        from: identity.node.0,
        to: to.0,
        secret: identity.credentials.secret_bytes(),
    }
}

/// Reads the greeting of one who has connected and answers it; the number of a node that may come.
/// Nothing is kept of a stranger but these few bytes.
pub(super) async fn accept(
    identity: &Identity,
    stream: &mut tokio::net::TcpStream,
    is_busy: bool,
) -> Result<NodeId, String> {
    let mut bytes = [0; HELLO_BYTES];
    stream.read_exact(&mut bytes).await.map_err(|error| error.to_string())?;
    let greeting = Hello::from_bytes(&bytes).ok_or("it does not greet as a node does")?;
    let welcome = judge(identity, &greeting, is_busy);
    stream.write_all(&welcome.to_bytes()).await.map_err(|error| error.to_string())?;
    match welcome {
        Welcome::Come => Ok(NodeId(greeting.from)),
        Welcome::NotTrusted => Err("the secret is not this instance's".to_owned()),
        other => Err(format!("{other:?}")),
    }
}

fn judge(identity: &Identity, greeting: &Hello, is_busy: bool) -> Welcome {
    if !identity.credentials.is_secret(&greeting.secret) {
        Welcome::NotTrusted
    } else if greeting.version != limits::FORMAT_VERSION {
        Welcome::OtherVersion
    } else if greeting.cluster != identity.cluster || greeting.to != identity.node.0 {
        Welcome::OtherNode
    } else if is_busy {
        Welcome::Busy
    } else {
        Welcome::Come
    }
}

/// The data connections of a node, so that its end is theirs.
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

/// A stream is known for as long as this lives.
#[derive(Debug)]
pub(super) struct Known {
    registry: Registry,
    number: u64,
}

impl Registry {
    /// `None` when all is over.
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

    pub(super) fn count(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).streams.len()
    }

    /// Ends every connection, and those that would still come.
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

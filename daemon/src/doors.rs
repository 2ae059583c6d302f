/*!
What keeps strangers out: the certificates that this node shows and asks for.

Every port takes TLS 1.3 with a certificate on both sides. What a connection is for is said in its
first message (ALPN); the one purpose that needs no certificate is the exchange of a token
for keys ([`crate::join`]), which has its own few bytes and nothing else.
*/

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proto::limits;
use rustls::server::Acceptor;
use rustls::{ClientConfig, ServerConfig};
use security::{Bundle, Dialer, Keyring, Role, tls};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

/// Of a connection for calls: an encrypted record has up to 16 KiB.
const READ_AHEAD_BYTES: usize = 32 << 10;

/// How this node lets others in, and how it is let in by them.
#[derive(Debug)]
pub(crate) struct Doors {
    pub(crate) dialer: Dialer,
    /// `None`: the instance was made with `--insecure`.
    locks: Option<Locks>,
}

#[derive(Debug)]
struct Locks {
    grpc: Arc<ServerConfig>,
    token: Arc<ServerConfig>,
    data: Arc<ServerConfig>,
    to_data: Arc<ClientConfig>,
    keyring: Keyring,
}

/// Who has come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Guest {
    pub(crate) role: Role,
    pub(crate) address: SocketAddr,
}

/// A connection for calls.
pub(crate) type Stream = Box<dyn Bytes>;
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

impl Doors {
    pub(crate) fn insecure() -> Self {
        Self { dialer: Dialer::insecure(), locks: None }
    }

    pub(crate) fn new(keyring: Keyring, bundle: &Bundle) -> Result<Self, rustls::Error> {
        let locks = Locks {
            grpc: tls::server(bundle, tls::GRPC)?,
            token: tls::server_for_tokens(bundle)?,
            data: tls::server(bundle, tls::DATA)?,
            to_data: tls::client(bundle, tls::DATA)?,
            keyring,
        };
        Ok(Self { dialer: Dialer::new(bundle)?, locks: Some(locks) })
    }

    /// For connections to data ports; `None` where they are not encrypted.
    pub(crate) fn to_data(&self) -> Option<Arc<ClientConfig>> {
        self.locks.as_ref().map(|locks| Arc::clone(&locks.to_data))
    }

    /// Takes one who calls. `None` after an exchange of a token, which ends the connection.
    pub(crate) async fn take_caller(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<Option<(Stream, Guest)>, String> {
        // One time for all steps: each of them can be drawn out.
        let patience = Duration::from_nanos(limits::HANDSHAKE_TIMEOUT.0);
        let known = tokio::time::timeout(patience, self.know(stream, address)).await;
        known.unwrap_or_else(|_| Err("no certificate in time".to_owned()))
    }

    async fn know(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<Option<(Stream, Guest)>, String> {
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let Some(locks) = &self.locks else {
            // Whoever reaches this machine's loopback may do everything: that was asked for.
            return Ok(Some((Box::new(stream), Guest { role: Role::Node, address })));
        };
        let stream = BufReader::with_capacity(READ_AHEAD_BYTES, stream);
        let said = |error: std::io::Error| error.to_string();
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await.map_err(said)?;
        let is_for_keys =
            hello.client_hello().alpn().is_some_and(|mut it| it.any(|it| it == tls::JOIN));
        if is_for_keys {
            let stream = hello.into_stream(Arc::clone(&locks.token)).await.map_err(said)?;
            return crate::join::hand_over(&locks.keyring, stream).await.map(|()| None);
        }
        let stream = hello.into_stream(Arc::clone(&locks.grpc)).await.map_err(said)?;
        let role = role_of(&stream)?;
        Ok(Some((Box::new(stream), Guest { role, address })))
    }

    /// Takes a node that comes for objects; `None` where nothing is encrypted.
    pub(crate) async fn take_fetcher(
        &self,
        stream: TcpStream,
    ) -> Result<Result<TlsStream<TcpStream>, TcpStream>, String> {
        let Some(locks) = &self.locks else { return Ok(Err(stream)) };
        let acceptor = TlsAcceptor::from(Arc::clone(&locks.data));
        let stream = acceptor.accept(stream).await.map_err(|error| error.to_string())?;
        match role_of(&stream)? {
            Role::Node => Ok(Ok(stream)),
            role => Err(format!("its certificate is that of a role {role}")),
        }
    }
}

/// The role of one whose certificate was verified.
fn role_of<T>(stream: &TlsStream<T>) -> Result<Role, String> {
    let (_, connection) = stream.get_ref();
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    shown.and_then(tls::role_of).ok_or_else(|| "its certificate names no role".to_owned())
}

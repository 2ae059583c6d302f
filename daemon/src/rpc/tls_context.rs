/*!
Authentication of connections: the certificates that this node presents and demands.

Every port uses TLS 1.3 with certificates on both sides. The purpose of a connection is in its first
message (ALPN). Only one purpose needs no certificate: the exchange of a token for keys
([`crate::lifecycle::join`]). It has its own few bytes and allows nothing else.
*/

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use proto::limits;
use rustls::server::Acceptor;
use rustls::{ClientConfig, ServerConfig};
use security::{Bundle, Dialer, Keyring, Role, tls};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use crate::rpc::service::Shared;
use proto::Span;

/// The interval at which a node checks whether its certificate must be renewed.
const KEYS_CHECK_INTERVAL: Span = Span::from_secs(86_400);

/// The read buffer of a connection for calls: an encrypted record has up to 16 KiB.
const READ_AHEAD_BYTES: usize = 32 << 10;

/// The TLS context of this node, for incoming and outgoing connections.
#[derive(Debug)]
pub(crate) struct TlsContext {
    /// `None`: the instance was made with `--insecure`.
    credentials: Option<Credentials>,
    /// The addresses of this machine at which connections are accepted; empty: all.
    only: Vec<IpAddr>,
}

#[derive(Debug)]
struct Credentials {
    keyring: Keyring,
    shown: RwLock<Arc<ServerIdentity>>,
}

/// The TLS configurations of one certificate. Open connections keep the one that they began with.
#[derive(Debug)]
struct ServerIdentity {
    fingerprint: [u8; 32],
    dialer: Dialer,
    grpc: Arc<ServerConfig>,
    token: Arc<ServerConfig>,
    data: Arc<ServerConfig>,
    to_data: Arc<ClientConfig>,
}

impl ServerIdentity {
    fn new(bundle: &Bundle) -> Result<Self, rustls::Error> {
        Ok(Self {
            fingerprint: bundle.fingerprint(),
            dialer: Dialer::new(bundle)?,
            grpc: tls::server(bundle, tls::GRPC)?,
            token: tls::server_for_tokens(bundle)?,
            data: tls::server(bundle, tls::DATA)?,
            to_data: tls::client(bundle, tls::DATA)?,
        })
    }
}

impl Credentials {
    fn shown(&self) -> Arc<ServerIdentity> {
        Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An authenticated caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    pub(crate) address: SocketAddr,
}

/// A connection for calls.
pub(crate) type Stream = Box<dyn Bytes>;
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

impl TlsContext {
    pub(crate) fn insecure() -> Self {
        Self { credentials: None, only: Vec::new() }
    }

    pub(crate) fn new(
        keyring: Keyring,
        bundle: &Bundle,
        only: Vec<IpAddr>,
    ) -> Result<Self, rustls::Error> {
        let shown = RwLock::new(Arc::new(ServerIdentity::new(bundle)?));
        Ok(Self { credentials: Some(Credentials { keyring, shown }), only })
    }

    /// Refuses a connection to an address at which this node does not listen.
    fn check_address(&self, stream: &TcpStream) -> Result<(), String> {
        let came_to = stream.local_addr().map_err(|error| error.to_string())?;
        match self.only.is_empty() || self.only.contains(&came_to.ip().to_canonical()) {
            true => Ok(()),
            false => Err(format!("it came to {came_to}, which --interface leaves out")),
        }
    }

    /// The dialer of calls to other nodes.
    pub(crate) fn dialer(&self) -> Dialer {
        self.credentials
            .as_ref()
            .map_or_else(Dialer::insecure, |credentials| credentials.shown().dialer.clone())
    }

    /// The TLS configuration of connections to data ports; `None` if they are not encrypted.
    pub(crate) fn to_data(&self) -> Option<Arc<ClientConfig>> {
        self.credentials.as_ref().map(|credentials| Arc::clone(&credentials.shown().to_data))
    }

    /// Loads the certificate of the directory, which is replaced after half of its validity. New
    /// connections use it.
    pub(crate) fn renew(&self) -> Result<(), String> {
        let Some(credentials) = &self.credentials else { return Ok(()) };
        if !credentials.keyring.path(Role::Node).exists() {
            return Err("the directory has no keys any more".to_owned());
        }
        let bundle = credentials.keyring.prepare().map_err(|error| error.to_string())?;
        let shown = ServerIdentity::new(&bundle).map_err(|error| error.to_string())?;
        if shown.fingerprint != credentials.shown().fingerprint {
            return Err("the directory has the keys of another cluster".to_owned());
        }
        *credentials.shown.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(shown);
        Ok(())
    }

    /// Authenticates a caller. `None` after an exchange of a token, which ends the connection.
    pub(crate) async fn accept_caller(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<Option<(Stream, Caller)>, String> {
        // One timeout for all steps, because a caller could delay each of them.
        let patience = Duration::from_nanos(limits::HANDSHAKE_TIMEOUT.0);
        let known = tokio::time::timeout(patience, self.know(stream, address)).await;
        known.unwrap_or_else(|_| Err("no certificate in time".to_owned()))
    }

    async fn know(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<Option<(Stream, Caller)>, String> {
        self.check_address(&stream)?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let Some(credentials) = &self.credentials else {
            // With `--insecure` every process that reaches the loopback interface has all rights.
            return Ok(Some((Box::new(stream), Caller { role: Role::Node, address })));
        };
        let stream = BufReader::with_capacity(READ_AHEAD_BYTES, stream);
        let said = |error: std::io::Error| error.to_string();
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await.map_err(said)?;
        let is_for_keys =
            hello.client_hello().alpn().is_some_and(|mut it| it.any(|it| it == tls::JOIN));
        if is_for_keys {
            let stream =
                hello.into_stream(Arc::clone(&credentials.shown().token)).await.map_err(said)?;
            return crate::lifecycle::join::hand_over(&credentials.keyring, stream)
                .await
                .map(|()| None);
        }
        let stream =
            hello.into_stream(Arc::clone(&credentials.shown().grpc)).await.map_err(said)?;
        let role = role_of(&stream)?;
        Ok(Some((Box::new(stream), Caller { role, address })))
    }

    /// Authenticates a node that fetches objects. The inner error is the plain stream of an
    /// insecure instance.
    pub(crate) async fn accept_data_peer(
        &self,
        stream: TcpStream,
    ) -> Result<Result<TlsStream<TcpStream>, TcpStream>, String> {
        self.check_address(&stream)?;
        let Some(credentials) = &self.credentials else { return Ok(Err(stream)) };
        let acceptor = TlsAcceptor::from(Arc::clone(&credentials.shown().data));
        let stream = acceptor.accept(stream).await.map_err(|error| error.to_string())?;
        match role_of(&stream)? {
            Role::Node => Ok(Ok(stream)),
            role => Err(format!("its certificate is that of a role {role}")),
        }
    }
}

/// Renews the certificate of a node while it runs.
pub(crate) async fn renew_certificates(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(Duration::from_nanos(KEYS_CHECK_INTERVAL.0)).await;
        let theirs = Arc::clone(&shared);
        let renewed = tokio::task::spawn_blocking(move || theirs.tls.renew()).await;
        if let Ok(Err(reason)) = renewed {
            shared.log.line(&format!("cannot renew the certificate of this node: {reason}"));
        }
    }
}

/// The role in a verified certificate.
fn role_of<T>(stream: &TlsStream<T>) -> Result<Role, String> {
    let (_, connection) = stream.get_ref();
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    shown.and_then(tls::role_of).ok_or_else(|| "its certificate names no role".to_owned())
}

#[cfg(test)]
mod tests {
    use security::Validity;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;

    use super::*;

    /// The certificate that a node presents now.
    async fn shown(tls: &TlsContext, keyring: &Keyring) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let come = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (taken, _) = listener.accept().await.unwrap();
        let config = tls::client(&keyring.read(Role::Node).unwrap(), tls::DATA).unwrap();
        let connector = TlsConnector::from(config);
        let connect = connector.connect(tls::node_name(), come);
        let (connected, taken) = tokio::join!(connect, tls.accept_data_peer(taken));
        taken.unwrap().unwrap();
        let connected = connected.unwrap();
        connected.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }

    #[tokio::test]
    async fn a_node_that_runs_for_long_shows_a_newer_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Keyring::of_instance(dir.path());
        keyring.prepare().unwrap();
        let authority = keyring.authority().unwrap();
        let soon = Validity::starting_now(Duration::from_secs(3600));
        let old = authority.issue(Role::Node, soon).unwrap();
        std::fs::write(keyring.path(Role::Node), old).unwrap();
        let tls = TlsContext::new(keyring.clone(), &keyring.read(Role::Node).unwrap(), Vec::new())
            .unwrap();
        let old = shown(&tls, &keyring).await;
        tls.renew().unwrap();
        let new = shown(&tls, &keyring).await;
        assert!(old != new);
        tls.renew().unwrap();
        assert_eq!(shown(&tls, &keyring).await, new, "it is good for a while");
        // An operator removes the keys to exclude nodes, so no node makes new ones by itself.
        std::fs::remove_dir_all(dir.path().join("keys")).unwrap();
        assert!(tls.renew().unwrap_err().contains("no keys"));
        assert!(!keyring.has_authority());
    }

    #[tokio::test]
    async fn a_connection_to_an_address_that_is_left_out_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Keyring::of_instance(dir.path());
        keyring.prepare().unwrap();
        let bundle = keyring.read(Role::Node).unwrap();
        let only = |address: &str| vec![address.parse().unwrap()];
        let other = TlsContext::new(keyring.clone(), &bundle, only("127.0.0.2")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for calls in [true, false] {
            let _come = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (taken, from) = listener.accept().await.unwrap();
            let refused = match calls {
                true => other.accept_caller(taken, from).await.err(),
                false => other.accept_data_peer(taken).await.err(),
            };
            assert!(refused.unwrap().contains("--interface"));
        }
        let same = TlsContext::new(keyring.clone(), &bundle, only("127.0.0.1")).unwrap();
        shown(&same, &keyring).await;
    }
}

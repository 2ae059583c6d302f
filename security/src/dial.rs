//! The client side of gRPC: a channel over TLS, or unencrypted if the instance is insecure.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use proto::limits;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use crate::{Bundle, race, tls};

/// The metadata of a call that names the intended node. All nodes of an instance have the same
/// certificates, and two machines may share an address, so another node may answer.
pub const TO_NODE: &str = "starling-node";

/// Connects to the nodes of an instance. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// `None`: the instance was made with `--insecure`.
    config: Option<Arc<ClientConfig>>,
}

/// A byte stream, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Dialer {
    pub fn new(bundle: &Bundle) -> Result<Self, rustls::Error> {
        Ok(Self { config: Some(tls::client(bundle, tls::GRPC)?) })
    }

    /// Uses the given TLS settings.
    #[must_use]
    pub fn with_config(config: Arc<ClientConfig>) -> Self {
        Self { config: Some(config) }
    }

    /// Unencrypted connections, to this machine only.
    #[must_use]
    pub fn insecure() -> Self {
        Self { config: None }
    }

    #[must_use]
    pub fn is_insecure(&self) -> bool {
        self.config.is_none()
    }

    /// Connects to `host:port`, or to the first of several comma-separated addresses that answers
    /// as a node of the instance. `settings` changes the endpoint.
    ///
    /// The error is one line of text.
    pub async fn connect(
        &self,
        address: &str,
        settings: impl FnOnce(Endpoint) -> Endpoint + Send,
    ) -> Result<Channel, String> {
        let one = race::each(address).next().unwrap_or_default();
        let endpoint = Endpoint::from_shared(format!("http://{one}"))
            .map_err(|error| format!("'{address}' is no address: {error}"))?;
        let (config, address) = (self.config.clone(), address.to_owned());
        let connector = tower::service_fn(move |_: tonic::codegen::http::Uri| {
            let (config, address) = (config.clone(), address.clone());
            async move {
                let patience = Duration::from_nanos(limits::GREETING_TIMEOUT.0);
                let opened = tokio::time::timeout(patience, open(&address, config)).await;
                opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map(TokioIo::new)
            }
        });
        let connected = settings(endpoint).connect_with_connector(connector).await;
        connected.map_err(|error| describe(&error))
    }
}

async fn open(addresses: &str, config: Option<Arc<ClientConfig>>) -> io::Result<Box<dyn Stream>> {
    let targets = resolve(addresses).await?;
    if config.is_none() && !targets.iter().all(|it| is_local(*it)) {
        let text = format!("'{addresses}' is not on this machine: connections are not encrypted");
        return Err(io::Error::other(text));
    }
    race::first(targets, |target| {
        let config = config.clone();
        async move {
            let stream = TcpStream::connect(target).await?;
            stream.set_nodelay(true)?;
            let stream: Box<dyn Stream> = match config {
                None => Box::new(stream),
                Some(config) => {
                    Box::new(TlsConnector::from(config).connect(tls::node_name(), stream).await?)
                }
            };
            Ok(stream)
        }
    })
    .await
}

/// Resolves the addresses of a list, which may contain host names.
async fn resolve(addresses: &str) -> io::Result<Vec<SocketAddr>> {
    let mut targets = Vec::new();
    for address in race::each(addresses) {
        targets.extend(tokio::net::lookup_host(address).await?);
    }
    Ok(targets)
}

/// Connects with a token, before this machine has keys.
pub async fn open_with(
    addresses: &str,
    config: Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    race::first(resolve(addresses).await?, |target| {
        let config = Arc::clone(&config);
        async move {
            let stream = TcpStream::connect(target).await?;
            TlsConnector::from(config).connect(tls::node_name(), stream).await
        }
    })
    .await
}

/// True if traffic to the address stays on this machine.
#[must_use]
pub fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Describes a transport error in one line: a failed verification, or the innermost cause. The text
/// is in lower case, without the system's error number.
#[must_use]
pub fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(text) = tls::explain_chain(error) {
        return text;
    }
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let text = cause.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// As [`describe`], for the status of a call: the node's message or the connection's error. A
/// rejected certificate is often reported only here, after the handshake.
#[must_use]
pub fn explain(status: &tonic::Status) -> String {
    match status.code() {
        tonic::Code::Unavailable | tonic::Code::Unknown | tonic::Code::Cancelled => {
            std::error::Error::source(status).map_or_else(|| status.message().to_owned(), describe)
        }
        _ => status.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_encryption_nothing_leaves_this_machine() {
        for address in ["192.0.2.1:7", "[2001:db8::1]:7"] {
            let error = Dialer::insecure().connect(address, |it| it).await.unwrap_err();
            assert!(error.contains("not encrypted"), "{error}");
        }
        for address in ["127.0.0.1:7", "127.9.9.9:7", "[::1]:7", "[::ffff:127.0.0.1]:7"] {
            assert!(is_local(address.parse().unwrap()), "{address}");
        }
    }
}

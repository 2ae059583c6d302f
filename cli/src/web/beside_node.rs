//! `starling node --web ADDR`: the live page, served by the process of a node.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use verb::Context;
use verb::errors::{Failure, plain};
use web::{Guard, Settings, Source, Token};

use super::live::Live;

/// The interval between tries to connect, until the cluster serves.
const CONNECT_PAUSE: Duration = Duration::from_millis(500);

/// An address that is bound before the node starts, so that a taken port is an error of the start.
pub(crate) struct Page {
    listener: TcpListener,
    token: Token,
    url: String,
}

impl Page {
    /// Only loopback: the page and its token are not encrypted.
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, Failure> {
        if !address.ip().is_loopback() {
            let text = format!("--web {address}: the page is not encrypted");
            return Err(Failure::usage(text).hint(
                "name 127.0.0.1:PORT, and forward the port: ssh -L PORT:127.0.0.1:PORT HOST",
            ));
        }
        let refused = |error: &std::io::Error| {
            Failure::refused(format!("--web {address}: {}", plain(error)))
                .hint("127.0.0.1:0 takes a free port")
        };
        let listener = TcpListener::bind(address).map_err(|error| refused(&error))?;
        listener.set_nonblocking(true).map_err(|error| refused(&error))?;
        let bound = listener.local_addr().map_err(|error| refused(&error))?;
        let token = Token::random().map_err(|error| Failure::refused(plain(&error)))?;
        let host = match bound.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let url = format!("http://{host}:{}/#t={}", bound.port(), token.text());
        Ok(Self { listener, token, url })
    }

    /// The address for a browser, with the token.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Serves the page on a thread until the process ends. The page is a client: it shows the whole
    /// cluster, also after the node has left.
    pub(crate) fn serve(self, context: Context) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime
            .map_err(|error| Failure::lost(format!("cannot serve a page: {}", plain(&error))))?;
        let thread = std::thread::Builder::new().name("page".to_owned());
        let serve = move || runtime.block_on(self.answer(&context));
        let started = thread.spawn(serve);
        started
            .map_err(|error| Failure::lost(format!("cannot serve a page: {}", plain(&error))))?;
        Ok(())
    }

    async fn answer(self, context: &Context) {
        let source: Arc<dyn Source> = loop {
            match Live::connect(context, false).await {
                Ok(live) => break Arc::new(live),
                Err(_) => tokio::time::sleep(CONNECT_PAUSE).await,
            }
        };
        let Ok(listener) = tokio::net::TcpListener::from_std(self.listener) else { return };
        let settings = Settings::default();
        let guard = Guard::new(self.token, Vec::new());
        if let Err(error) = web::serve(listener, source, guard, &settings).await {
            context.output.note(&format!("the page of this node has ended: {}", plain(&error)));
        }
    }
}

//! `starling web`: a live page of a cluster or of run records, for browsers of this machine.

pub(crate) mod beside_node;
pub(crate) mod changes;
mod files;
pub(crate) mod live;
mod metric_facts;
pub(crate) mod metrics;
pub(crate) mod record_rows;
mod requested;
mod socket;
mod task_rows;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::net::TcpListener;
use verb::Context;
use verb::errors::{Done, Failure, plain};
use web::{Guard, Settings, Source, Token};

/// The time after which a request to silent nodes is given up.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// The port to which 'ssh -L' forwards a socket.
const FORWARDED_PORT: u16 = 8787;
/// Threads of the server: one may sum up a large job meanwhile.
const THREADS: usize = 2;

#[derive(Args, Debug)]
pub(crate) struct WebArgs {
    /// The port on loopback [default: any free one]
    #[arg(long, value_name = "P")]
    port: Option<u16>,
    /// Listen on a Unix socket of mode 0600 instead of a port; 'ssh -L' reaches it from another
    /// machine
    #[arg(long, value_name = "PATH", conflicts_with = "port")]
    socket: Option<PathBuf>,
    /// The page may cancel and retry jobs, and drain, pause and resume nodes
    #[arg(long, conflicts_with = "from")]
    allow_changes: bool,
    /// Show run records instead of a cluster: a file, the directory of a run, or a directory of
    /// runs such as starling-runs
    #[arg(long, value_name = "FILE|DIR")]
    from: Option<PathBuf>,
    /// A further name under which a proxy passes requests on
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// The path before all addresses, if a proxy does not remove it
    #[arg(long, value_name = "PATH", value_parser = prefix)]
    prefix: Option<String>,
}

/// A path such as `/node/h/123`.
fn prefix(text: &str) -> Result<String, String> {
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || "/-_.~".contains(letter);
    match text.starts_with('/') && text.chars().all(is_good) && !text.contains("//") {
        true => Ok(text.to_owned()),
        false => Err(format!("'{text}' is not a path such as /node/h/123")),
    }
}

#[derive(Serialize)]
struct Served {
    url: String,
    /// The command that forwards the port from another machine.
    ssh: String,
}

/// `starling web`.
pub(crate) fn run(context: &Context, args: &WebArgs) -> Done {
    serve(async {
        let source: Arc<dyn Source> = match &args.from {
            Some(path) => Arc::new(files::Files::open(path)?),
            None => Arc::new(live::Live::connect(context, args.allow_changes).await?),
        };
        let listener = match &args.socket {
            Some(path) => Listener::Socket(socket::PageSocket::bind(path)?),
            None => Listener::Port(listen(args.port.unwrap_or(0)).await?),
        };
        let (port, place) = listener.place()?;
        let token = Token::random().map_err(|error| Failure::refused(plain(&error)))?;
        let prefix = args.prefix.as_deref().map_or("", |it| it.trim_matches('/'));
        let path = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let url = format!("http://127.0.0.1:{port}/{path}#t={}", token.text());
        let host = Some(client::host_name()).filter(|name| !name.is_empty());
        let host = host.as_deref().unwrap_or("HOST");
        let ssh = format!("ssh -L {port}:{place} {host}");
        match context.output.json {
            true => context.output.json(&Served { url, ssh })?,
            false => {
                context.output.line(&url)?;
                let when = match &args.socket {
                    Some(_) => "from your own machine first",
                    None => "from another machine first",
                };
                context.output.note(&format!("{when}: {ssh}"));
                context.output.note("the page opens with this whole address only; Ctrl-C ends it");
            }
        }
        let allow_changes = args.allow_changes;
        let settings = Settings { prefix: prefix.to_owned(), allow_changes, ..Settings::default() };
        let guard = Guard::new(token, args.host.clone());
        let served = match listener {
            Listener::Port(listener) => web::serve(listener, source, guard, &settings).await,
            Listener::Socket(socket) => socket.serve(source, guard, &settings).await,
        };
        Err(Failure::lost(served.err().map_or_else(String::new, |error| plain(&error))))
    })
}

enum Listener {
    Port(TcpListener),
    Socket(socket::PageSocket),
}

impl Listener {
    /// The port for browsers, and the place that `ssh -L` forwards to.
    fn place(&self) -> Result<(u16, String), Failure> {
        match self {
            Self::Port(listener) => {
                let port = port_of(listener)?;
                Ok((port, format!("127.0.0.1:{port}")))
            }
            Self::Socket(socket) => Ok((FORWARDED_PORT, socket.path().display().to_string())),
        }
    }
}

/// Runs a server until an interrupt, which is its normal end.
fn serve(server: impl Future<Output = Done>) -> Done {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::lost(format!("cannot start the runtime: {}", plain(&error))))?;
    let done = runtime.block_on(async {
        tokio::select! {
            biased;
            () = verb::interrupted() => Ok(verb::errors::Exit::Ok),
            done = server => done,
        }
    });
    // Requests in progress end with the process.
    runtime.shutdown_background();
    done
}

/// A listener on loopback.
async fn listen(port: u16) -> Result<TcpListener, Failure> {
    TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::refused(format!("port {port} is taken"))
            .hint("leave --port out for a free one"),
        std::io::ErrorKind::PermissionDenied => {
            Failure::refused(format!("port {port} is only for root"))
                .hint("name one above 1023, or leave --port out")
        }
        _ => Failure::refused(format!("port {port}: {}", plain(&error))),
    })
}

fn port_of(listener: &TcpListener) -> Result<u16, Failure> {
    let address = listener.local_addr().map_err(|error| Failure::refused(plain(&error)))?;
    Ok(address.port())
}

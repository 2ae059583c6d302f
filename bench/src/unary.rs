//! The unit of the chain benchmark: one empty gRPC round trip on loopback.

use std::convert::Infallible;
use std::time::Instant;

use anyhow::Context as _;
use proto::wire;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Context, Pin, Poll, Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic_prost::ProstCodec;

type Ping = wire::KvOp;
type Pong = wire::KvResult;
const PATH: &str = "/starling.bench.Echo/Call";
const PAYLOAD_BYTES: usize = 100;

/// A server on its own thread, like that of a node, and a channel to it.
#[derive(Debug)]
pub(super) struct PingPong {
    channel: Channel,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    server: Option<std::thread::JoinHandle<()>>,
}

impl PingPong {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = std::thread::spawn(move || runtime.block_on(serve(listener, stopped)));
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
        let channel = endpoint.connect().await.context("the echo server does not answer")?;
        Ok(Self { channel, stop: Some(stop), server: Some(server) })
    }

    /// Mean time of this number of consecutive calls.
    pub(super) async fn round_trip_us(&self, calls: u64) -> anyhow::Result<f64> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        let ping = Ping { value: vec![7; PAYLOAD_BYTES].into(), ..Ping::default() };
        let start = Instant::now();
        for _ in 0..calls {
            grpc.ready().await?;
            let codec = ProstCodec::<Ping, Pong>::default();
            let request = tonic::Request::new(ping.clone());
            let pong = grpc.unary(request, PathAndQuery::from_static(PATH), codec).await?;
            anyhow::ensure!(pong.get_ref().value.len() == PAYLOAD_BYTES, "not what was sent");
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / calls as f64)
    }
}

impl Drop for PingPong {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The open channel would keep the server forever; it ends with the process.
        drop(self.server.take());
    }
}

async fn serve(listener: std::net::TcpListener, stopped: tokio::sync::oneshot::Receiver<()>) {
    let listener = TcpListener::from_std(listener).expect("it was made non-blocking");
    let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    let served = Server::builder().add_service(Echo).serve_with_incoming(incoming);
    tokio::select! {
        // Either way the echo has ended; a caller notices that itself.
        _ = served => {}
        _ = stopped => {}
    }
}

/// Returns its input.
#[derive(Clone, Debug)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "starling.bench.Echo";
}

impl UnaryService<Ping> for Echo {
    type Response = Pong;
    type Future = std::future::Ready<Result<tonic::Response<Pong>, tonic::Status>>;
    fn call(&mut self, request: tonic::Request<Ping>) -> Self::Future {
        let value = request.into_inner().value;
        std::future::ready(Ok(tonic::Response::new(Pong { value, ..Pong::default() })))
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, request: http::Request<Body>) -> Answer {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Pong, Ping>::default());
            Ok(grpc.unary(Self, request).await)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_sent_comes_back() {
        let ping_pong = PingPong::start().await.unwrap();
        assert!(ping_pong.round_trip_us(3).await.unwrap() > 0.0);
    }
}

//! An installed etcd: as many members as there are copies, on free ports, and the three calls of
//! its interface that the comparison needs.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::redis::on_path;

const SERVER: &str = "etcd";
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// `etcdserverpb.PutRequest`, with the fields that are used.
#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

/// `etcdserverpb.RangeRequest`, which is linearizable by default.
#[derive(Clone, PartialEq, prost::Message)]
struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
}

/// The members; dropping this ends them.
pub(crate) struct Etcd {
    members: Vec<Child>,
    ports: Vec<u16>,
    _dir: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            // The member may have ended already.
            drop(member.kill());
            drop(member.wait());
        }
    }
}

/// Ports that were free a moment ago, each once.
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let bind = |_| TcpListener::bind("127.0.0.1:0");
    let listeners = (0..count).map(bind).collect::<Result<Vec<_>, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

impl Etcd {
    /// `None`: it is not installed.
    pub(crate) async fn start(copies: u32) -> anyhow::Result<Option<Self>> {
        let Some(program) = on_path(SERVER) else { return Ok(None) };
        let dir = tempfile::Builder::new().prefix("starling-etcd-").tempdir()?;
        let count = copies as usize;
        let ports = free_ports(2 * count)?;
        let (clients, peers) = ports.split_at(count);
        let cluster: Vec<String> = (0..).zip(peers).map(|(at, port)| peer(at, *port)).collect();
        let mut etcd = Self { members: Vec::new(), ports: clients.to_vec(), _dir: dir };
        for (at, (client, peer)) in clients.iter().zip(peers).enumerate() {
            let (client, peer) =
                (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
            let member = Command::new(&program)
                .args(["--name", &format!("m{at}"), "--initial-cluster", &cluster.join(",")])
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--log-level", "error", "--data-dir"])
                .arg(etcd._dir.path().join(format!("m{at}")))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .with_context(|| format!("{SERVER} cannot be started"))?;
            etcd.members.push(member);
        }
        etcd.await_ready().await?;
        Ok(Some(etcd))
    }

    async fn await_ready(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let answered = match self.session().await {
                Ok(mut session) => session.put(b"ready", b"").await,
                Err(error) => Err(error),
            };
            match answered {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error.context(format!("{SERVER} does not answer")));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Each caller has its own connection; the members take turns.
    pub(crate) async fn session(&self) -> anyhow::Result<EtcdSession> {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let at = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % self.ports.len();
        let address = format!("http://127.0.0.1:{}", self.ports[at]);
        let channel = Endpoint::from_shared(address)?.tcp_nodelay(true).connect().await?;
        Ok(EtcdSession { grpc: tonic::client::Grpc::new(channel) })
    }
}

fn peer(at: usize, port: u16) -> String {
    format!("m{at}=http://127.0.0.1:{port}")
}

pub(crate) struct EtcdSession {
    grpc: tonic::client::Grpc<Channel>,
}

impl EtcdSession {
    async fn call<Q, A>(&mut self, path: &'static str, request: Q) -> anyhow::Result<A>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.grpc.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        Ok(self.grpc.unary(tonic::Request::new(request), path, codec).await?.into_inner())
    }

    pub(crate) async fn put(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let request = PutRequest { key: key.to_vec(), value: value.to_vec() };
        let PutResponse {} = self.call("/etcdserverpb.KV/Put", request).await?;
        Ok(())
    }

    /// The length of the value.
    pub(crate) async fn range(&mut self, key: &[u8]) -> anyhow::Result<usize> {
        let request = RangeRequest { key: key.to_vec() };
        let answer: RangeResponse = self.call("/etcdserverpb.KV/Range", request).await?;
        Ok(answer.kvs.first().map_or(0, |found| found.value.len()))
    }
}

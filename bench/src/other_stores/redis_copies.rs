//! Redis with replicas: a primary and the replicas for the wanted copies. Each syncs its log before
//! it answers, and the caller waits for all of them.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::redis::{SERVER, on_path};

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// After this time a replica counts as lost, and the run as failed.
const WAIT_MS: u32 = 30_000;

/// Primary and replicas; dropping this ends them.
pub(crate) struct RedisCopies {
    servers: Vec<Child>,
    port: u16,
    copies: u32,
    _dir: tempfile::TempDir,
}

impl Drop for RedisCopies {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // The server may have ended already.
            drop(server.kill());
            drop(server.wait());
        }
    }
}

fn start(dir: &Path, port: u16, primary: Option<u16>) -> anyhow::Result<Child> {
    let program = on_path(SERVER).context("it was there a moment ago")?;
    let home = dir.join(port.to_string());
    std::fs::create_dir_all(&home)?;
    let mut command = Command::new(program);
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"])
        .args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
        .arg("--dir")
        .arg(home);
    if let Some(primary) = primary {
        command.args(["--replicaof", &format!("127.0.0.1 {primary}")]);
    }
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("{SERVER} cannot be started"))
}

impl RedisCopies {
    /// `None`: it is not installed.
    pub(crate) async fn start(copies: u32) -> anyhow::Result<Option<Self>> {
        if on_path(SERVER).is_none() {
            return Ok(None);
        }
        let dir = tempfile::Builder::new().prefix("starling-redis-").tempdir()?;
        let bind = |_| TcpListener::bind("127.0.0.1:0");
        let listeners = (0..copies).map(bind).collect::<Result<Vec<_>, _>>()?;
        let ports: Result<Vec<u16>, std::io::Error> =
            listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect();
        let ports = ports?;
        drop(listeners);
        let mut redis = Self { servers: Vec::new(), port: ports[0], copies, _dir: dir };
        for (at, &port) in ports.iter().enumerate() {
            let primary = (at > 0).then_some(ports[0]);
            redis.servers.push(start(redis._dir.path(), port, primary)?);
        }
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let ready = match redis.session().await {
                Ok(mut session) => session.set(b"ready", b"").await,
                Err(error) => Err(error),
            };
            match ready {
                Ok(()) => return Ok(Some(redis)),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error.context(format!("{SERVER} does not answer")));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    pub(crate) async fn session(&self) -> anyhow::Result<RedisSession> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(RedisSession { stream: BufReader::new(stream), replicas: self.copies - 1 })
    }
}

pub(crate) struct RedisSession {
    stream: BufReader<TcpStream>,
    replicas: u32,
}

/// Encodes a command of the protocol.
fn words(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

impl RedisSession {
    /// Sets a key and waits until every replica has it.
    pub(crate) async fn set(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let mut out = Vec::new();
        words(&mut out, &[b"SET", key, value]);
        if self.replicas > 0 {
            let (replicas, wait_ms) = (self.replicas.to_string(), WAIT_MS.to_string());
            words(&mut out, &[b"WAIT", replicas.as_bytes(), wait_ms.as_bytes()]);
        }
        self.stream.write_all(&out).await?;
        let set = self.line().await?;
        anyhow::ensure!(set == "+OK", "{SERVER} answered {set}");
        if self.replicas > 0 {
            let have = self.line().await?;
            let all = format!(":{}", self.replicas);
            anyhow::ensure!(have == all, "{have} of {} replicas have it", self.replicas);
        }
        Ok(())
    }

    /// The length of the value.
    pub(crate) async fn get(&mut self, key: &[u8]) -> anyhow::Result<usize> {
        let mut out = Vec::new();
        words(&mut out, &[b"GET", key]);
        self.stream.write_all(&out).await?;
        let head = self.line().await?;
        let length = head.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let length = length.with_context(|| format!("{SERVER} answered {head}"))?;
        let mut value = vec![0; length + 2];
        self.stream.read_exact(&mut value).await?;
        Ok(length)
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await?;
        anyhow::ensure!(read > 0, "{SERVER} hung up");
        Ok(line.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_words() {
        let mut out = Vec::new();
        words(&mut out, &[b"SET", b"k", b""]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
    }
}

//! An installed Redis: its own benchmark against its own server, on a free port.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::{KvArgs, Round};

pub(crate) const SERVER: &str = "redis-server";
const BENCHMARK: &str = "redis-benchmark";
const START_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Redis {
    server: PathBuf,
    benchmark: PathBuf,
}

impl Redis {
    pub(crate) fn find() -> Option<Self> {
        Some(Self { server: on_path(SERVER)?, benchmark: on_path(BENCHMARK)? })
    }

    /// In memory: set and get, single and pipelined. With a log synced before each answer: set.
    pub(crate) fn measure(&self, operations: u64, args: &KvArgs) -> anyhow::Result<Round> {
        let single_operations = (operations / 10).max(1);
        let server = self.start(Log::Off)?;
        let single = self.benchmark(server.port, single_operations, args, 1)?;
        let batched = self.benchmark(server.port, operations, args, args.batch)?;
        drop(server);
        let server = self.start(Log::Synced)?;
        let synced = self.benchmark(server.port, single_operations, args, 1)?;
        let synced_batched = self.benchmark(server.port, operations, args, args.batch)?;
        Ok(vec![
            ("redis_set_per_s", single.set),
            ("redis_get_per_s", single.get),
            ("redis_set_batched_per_s", batched.set),
            ("redis_get_batched_per_s", batched.get),
            ("redis_synced_set_per_s", synced.set),
            ("redis_synced_set_batched_per_s", synced_batched.set),
        ])
    }

    fn start(&self, log: Log) -> anyhow::Result<Server> {
        let dir = tempfile::Builder::new().prefix("starling-redis-").tempdir()?;
        // Assigned by the kernel and closed: it stays free for this moment.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let appendonly = match log {
            Log::Off => "no",
            Log::Synced => "yes",
        };
        let child = Command::new(&self.server)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"])
            .args(["--save", "", "--appendonly", appendonly, "--appendfsync", "always"])
            .arg("--dir")
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("{SERVER} cannot be started"))?;
        let server = Server { child, port, _dir: dir };
        server.wait_ready()?;
        Ok(server)
    }

    fn benchmark(
        &self,
        port: u16,
        operations: u64,
        args: &KvArgs,
        pipeline: u32,
    ) -> anyhow::Result<Rates> {
        let output = Command::new(&self.benchmark)
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-t", "set,get", "--csv"])
            .args(["-n", &operations.to_string(), "-r", &operations.to_string()])
            .args(["-c", &args.callers.to_string(), "-P", &pipeline.to_string()])
            .args(["-d", &args.value_bytes.to_string()])
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{BENCHMARK} cannot be started"))?;
        anyhow::ensure!(output.status.success(), "{BENCHMARK} failed: {}", output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        Rates::parse(&text).with_context(|| format!("{BENCHMARK} printed no rates: {text}"))
    }
}

#[derive(PartialEq, Debug)]
struct Rates {
    set: f64,
    get: f64,
}

impl Rates {
    /// Parses lines such as `"SET","105263.16","0.25",...`.
    fn parse(text: &str) -> Option<Self> {
        let rate = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("\"{name}\"")))?;
            line.split(',').nth(1)?.trim_matches('"').parse().ok()
        };
        Some(Self { set: rate("SET")?, get: rate("GET")? })
    }
}

/// The log of the server.
#[derive(Clone, Copy, Debug)]
enum Log {
    Off,
    /// Synced before each answer.
    Synced,
}

/// A running server; dropping this ends it.
struct Server {
    child: Child,
    port: u16,
    /// Removed after the server has ended.
    _dir: tempfile::TempDir,
}

impl Server {
    fn wait_ready(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.pings() {
            anyhow::ensure!(Instant::now() < deadline, "{SERVER} does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn pings(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let mut answer = [0; 7];
        stream.set_read_timeout(Some(START_TIMEOUT)).is_ok()
            && stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && &answer == b"+PONG\r\n"
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_from_old_and_new_output() {
        let new = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"105263.16\",\"0.251\"\n\
                   \"GET\",\"99.5\",\"0.2\"\n";
        assert_eq!(Rates::parse(new), Some(Rates { set: 105_263.16, get: 99.5 }));
        let old = "\"SET\",\"5.0\"\n\"GET\",\"6.0\"\n";
        assert_eq!(Rates::parse(old), Some(Rates { set: 5.0, get: 6.0 }));
        assert_eq!(Rates::parse("\"SET\",\"5.0\"\n"), None);
    }
}

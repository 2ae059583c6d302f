//! The instance of a command, and `hq server`.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use client::{Client, NodeId, host_name};
use proto::wire;
use proto::wire::MemberPhase;
use verb::Context;
use verb::errors::{Failure, plain};
use verb::units::Timespan;

use crate::args::{Form, ServerVerb};
use crate::table;
use crate::task::SUMS;
use crate::words::{iso_time, span};

pub(crate) const MAP_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for a node that starts to answer.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(15);
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What every verb has.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) context: Context,
    pub(crate) form: Form,
}

impl Front {
    /// A client of the instance. A node that is about to start is waited for.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.context.connect().await {
                Ok(client) => return Ok(client),
                Err(failure) if Instant::now() > deadline || !self.is_starting() => {
                    return Err(failure);
                }
                Err(_) => tokio::time::sleep(LOOK_PAUSE).await,
            }
        }
    }

    fn is_starting(&self) -> bool {
        let text = std::fs::read_to_string(self.pid_file()).unwrap_or_default();
        let pid = text.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
        pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
    }

    fn pid_file(&self) -> PathBuf {
        self.context.dir_path().unwrap_or_default().join("hq-server.pid")
    }

    /// The file with the idle timeout of workers that have none of their own.
    fn idle_file(&self) -> PathBuf {
        self.context.dir_path().unwrap_or_default().join("hq-idle-timeout")
    }

    pub(crate) fn idle_timeout(&self) -> Option<Timespan> {
        std::fs::read_to_string(self.idle_file()).ok()?.trim().parse().ok()
    }

    /// `starling` of this program, with the instance's directory.
    pub(crate) fn starling_command(&self) -> Result<Command, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::lost(format!("cannot find this program: {}", plain(&error)))
        })?;
        let dir = verb::path_templates::escape(&self.context.dir_path()?);
        let mut command = Command::new(program);
        command.arg0("starling").arg("--dir").arg(dir);
        Ok(command)
    }

    /// `starling node` of this program.
    pub(crate) fn node_command(&self) -> Result<Command, Failure> {
        let mut command = self.starling_command()?;
        command.arg("node");
        Ok(command)
    }

    /// A node takes the place of this process. `sums`: its pools that are amounts.
    pub(crate) fn become_node(
        &self,
        arguments: &[String],
        sums: &str,
    ) -> Result<ExitCode, Failure> {
        let error = self.node_command()?.args(arguments).env(SUMS, sums).exec();
        Err(Failure::lost(format!("the node does not start: {}", plain(&error))))
    }
}

pub(crate) fn server(front: &Front, verb: &ServerVerb) -> Result<ExitCode, Failure> {
    match verb {
        ServerVerb::Start { idle_timeout, .. } => {
            let dir = front.context.dir()?;
            std::fs::create_dir_all(&dir).map_err(|error| Failure::file(&dir, &error))?;
            let write = |file: PathBuf, text: String| {
                std::fs::write(&file, text).map_err(|error| Failure::file(&file, &error))
            };
            write(front.pid_file(), std::process::id().to_string())?;
            let idle = idle_timeout.map(|idle| format!("{}ns", idle.0.as_nanos()));
            write(front.idle_file(), idle.unwrap_or_default())?;
            let words = ["--slots", "0", "--rank", "0", "--expect", "1", "--replicas", "2"];
            front.become_node(&words.map(str::to_owned), "")
        }
        ServerVerb::Stop => verb::block_on(async {
            let client = front.connect().await?;
            let map = client.raw().newest_map(MAP_TIMEOUT).await;
            let mut nodes: Vec<&wire::Member> = map.members.iter().filter(|it| is_up(it)).collect();
            nodes.sort_unstable_by_key(|member| std::cmp::Reverse(member.node));
            for member in nodes {
                client.stop_node(NodeId(member.node), false).await?;
            }
            Ok(ExitCode::SUCCESS)
        }),
        ServerVerb::Info => verb::block_on(async {
            let client = front.connect().await?;
            let map = client.raw().newest_map(MAP_TIMEOUT).await;
            info(front, &map)?;
            Ok(ExitCode::SUCCESS)
        }),
        ServerVerb::Wait { timeout } => verb::block_on(async {
            let deadline = Instant::now() + timeout.0;
            while let Err(failure) = front.context.connect().await {
                if Instant::now() > deadline {
                    let waited = span(timeout.0.as_nanos() as u64);
                    let text = format!("Timeout after {waited}: Could not connect to server");
                    return Err(Failure::lost(text).because(&failure.message));
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            Ok(ExitCode::SUCCESS)
        }),
    }
}

/// Of the number of the cluster, which stays.
pub(crate) fn uid(map: &wire::ClusterMap) -> String {
    format!("{:06x}", map.cluster & 0xff_ffff)
}

/// The record of the first node.
fn info(front: &Front, map: &wire::ClusterMap) -> Result<(), Failure> {
    let first = map.members.iter().find(|member| member.keeper).or_else(|| map.members.first());
    let pid = first.map_or(0, |member| member.pid);
    let uid = uid(map);
    let address = first.and_then(|member| member.address.split(',').next()).unwrap_or_default();
    // Clients and nodes use one port.
    let port: u16 = address.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0);
    let started = std::fs::metadata(front.pid_file()).and_then(|file| file.modified()).ok();
    let since = started.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let started = since.map_or_else(String::new, |since| iso_time(since.as_nanos() as u64));
    let (host, version) = (host_name(), env!("CARGO_PKG_VERSION"));
    if front.form == Form::Json {
        let info = serde_json::json!({
            "server_uid": uid, "pid": pid, "version": version, "start_date": started,
            "client_host": host, "client_port": port, "worker_host": host, "worker_port": port,
            "server_dir": null, "journal_path": null,
        });
        return front.context.output.raw_line(&info.to_string());
    }
    front.context.output.text(&table::vertical(&[
        ("Server directory", front.context.dir()?.display().to_string()),
        ("Server UID", uid),
        ("Client host", host.clone()),
        ("Client port", port.to_string()),
        ("Worker host", host),
        ("Worker port", port.to_string()),
        ("Version", version.to_owned()),
        ("Pid", pid.to_string()),
        ("Start date", started),
    ]))
}

pub(crate) fn is_up(member: &wire::Member) -> bool {
    matches!(member.phase(), MemberPhase::Up | MemberPhase::Leaving)
}

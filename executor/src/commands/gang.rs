//! The nodes of a gang, as its commands see them: files with their names, and the variables by
//! which launchers of MPI programs start their processes on them.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use proto::work::{GangNode, Used};

use crate::commands::environment::push_variable;
use crate::commands::stage::text_of;
use crate::error::reason;
use crate::executor::ExecutorConfig;

/// The nodes of a gang in a task's directory: names of hosts, addresses, and a line for each cpu.
const NODES: &str = ".starling-nodes";
const HOSTS: &str = ".starling-hosts";
const MPI_HOSTS: &str = ".starling-mpi-hosts";
/// The same for Open MPI: it takes all cores of a host that one line names without a number.
const OPEN_MPI_HOSTS: &str = ".starling-open-mpi-hosts";
/// A program in a task's directory that calls `starling rsh`: some launchers take one word only.
const AGENT: &str = ".starling-rsh";

/// The variables with the agent of a launcher: Open MPI up to 4, and from 5 on.
const AGENT_VARIABLES: [&str; 5] = [
    "STARLING_RSH",
    "OMPI_MCA_plm_rsh_agent",
    "PRTE_MCA_plm_ssh_agent",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
];
/// The variables that make the launchers of MPICH and Intel use their agent.
const LAUNCHER_VARIABLES: [&str; 2] = ["HYDRA_LAUNCHER", "I_MPI_HYDRA_BOOTSTRAP"];
/// The variables with the file of a launcher that has a line for each cpu.
const MPI_HOSTS_VARIABLES: [&str; 2] = ["STARLING_MPI_HOSTFILE", "HYDRA_HOST_FILE"];
/// The variables with the file of Open MPI up to 4, and from 5 on.
const OPEN_MPI_HOSTS_VARIABLES: [&str; 2] =
    ["OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"];

/// Stands before the name of a node where hosts have such names, too.
pub const NODE_PREFIX: &str = "starling-";

/// Open MPI names the shared memory of a process by its host, and by its number on its node: names
/// of several nodes of one host would be equal.
const WITHOUT_SHARED_MEMORY: (&str, &str) = ("OMPI_MCA_btl", "^vader");

/// What is known of the commands that `starling rsh` started for an attempt, and that have ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemberTotals {
    /// The sum of CPU time, and the largest peak of memory.
    pub used: Used,
    /// The reason for which the attempt must fail; empty: there is none.
    pub failure: String,
}

impl MemberTotals {
    /// Adds those of further commands. The first reason stays.
    pub fn add(&mut self, other: Self) {
        add_used(&mut self.used, other.used);
        if self.failure.is_empty() {
            self.failure = other.failure;
        }
    }
}

/// Adds what commands on other nodes have used.
pub(crate) fn add_used(used: &mut Used, other: Used) {
    used.cpu_us = used.cpu_us.saturating_add(other.cpu_us);
    used.max_rss_kib = used.max_rss_kib.max(other.max_rss_kib);
}

/// Adds the variables of a gang, and writes their files. The node of the command is the first one
/// only for the task's own command.
pub(crate) fn push_gang(
    out: &mut Vec<Vec<u8>>,
    config: &ExecutorConfig,
    gang: &[GangNode],
    directory: &Path,
) -> Result<(), String> {
    if gang.is_empty() {
        return Ok(());
    }
    push_variable(out, "STARLING_NODES", &gang.len().to_string());
    let names: Vec<String> = gang.iter().map(|node| node.node.to_string()).collect();
    push_variable(out, "STARLING_NODE_NAMES", &names.join(" "));
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text)
            .map_err(|error| format!("cannot write the list of nodes: {}", reason(&error)))?;
        Ok::<String, String>(text_of(&path))
    };
    let lines = |line: fn(&GangNode) -> &str| {
        gang.iter().map(|node| format!("{}\n", line(node))).collect::<String>()
    };
    push_variable(out, "STARLING_NODEFILE", &write(NODES, lines(short_host))?);
    push_variable(out, "STARLING_HOSTFILE", &write(HOSTS, lines(address))?);
    if config.doorway.is_none() {
        return Ok(()); // No command reaches its node.
    }
    let hosts = write(MPI_HOSTS, mpi_hosts(gang))?;
    let open_mpi_hosts = write(OPEN_MPI_HOSTS, open_mpi_hosts(gang))?;
    let agent = write_agent(&directory.join(AGENT), &own_program(config));
    let agent = agent.map_err(|error| format!("cannot write the agent: {}", reason(&error)))?;
    MPI_HOSTS_VARIABLES.iter().for_each(|name| push_variable(out, name, &hosts));
    OPEN_MPI_HOSTS_VARIABLES.iter().for_each(|name| push_variable(out, name, &open_mpi_hosts));
    AGENT_VARIABLES.iter().for_each(|name| push_variable(out, name, &agent));
    LAUNCHER_VARIABLES.iter().for_each(|name| push_variable(out, name, "rsh"));
    let (name, value) = WITHOUT_SHARED_MEMORY;
    if !have_own_hosts(gang) && std::env::var_os(name).is_none() {
        push_variable(out, name, value);
    }
    Ok(())
}

/// The name of a node's host without its domain.
fn short_host(node: &GangNode) -> &str {
    let is_address = node.host.parse::<IpAddr>().is_ok();
    let short = node.host.split('.').next().filter(|_| !is_address);
    short.unwrap_or(&node.host)
}

/// The first address of a node without its port.
fn address(node: &GangNode) -> &str {
    let first = node.address.split(',').next().unwrap_or_default();
    let host = first.rsplit_once(':').map_or(first, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// One line for each cpu. If all hosts have different names, the lines are these, because some
/// libraries need them. Otherwise they are the names of nodes: a launcher treats equal names as one
/// host.
fn mpi_hosts(gang: &[GangNode]) -> String {
    let lines = names(gang).map(|(name, cpus)| format!("{name}\n").repeat(cpus as usize));
    lines.collect()
}

/// One line for each node, with its number of cpus.
fn open_mpi_hosts(gang: &[GangNode]) -> String {
    names(gang).map(|(name, cpus)| format!("{name} slots={cpus}\n")).collect()
}

/// The names of nodes for launchers, and their cpus. If a host is named as nodes are, the names of
/// nodes have a prefix, so that none equals the name of a host.
fn names(gang: &[GangNode]) -> impl Iterator<Item = (String, u32)> + '_ {
    let is_mixed = gang.iter().any(|it| is_as_a_node(short_host(it)));
    let differ = have_own_hosts(gang) && !is_mixed;
    let prefix = if is_mixed { NODE_PREFIX } else { "" };
    gang.iter().map(move |node| {
        let name = match differ {
            true => short_host(node).to_owned(),
            false => format!("{prefix}{}", node.node),
        };
        (name, node.cpus.max(1))
    })
}

/// Whether no host has two nodes of the gang.
fn have_own_hosts(gang: &[GangNode]) -> bool {
    let hosts: BTreeSet<&str> = gang.iter().map(short_host).collect();
    hosts.len() == gang.len() && !hosts.contains("")
}

/// Whether the name of a host is that of a node, too: `n3`.
fn is_as_a_node(host: &str) -> bool {
    let number = host.strip_prefix(['n', 'N']).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn write_agent(path: &Path, program: &Path) -> io::Result<String> {
    let quoted = text_of(program).replace('\'', r"'\''");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o700).open(path)?;
    writeln!(file, "#!/bin/sh\nexec '{quoted}' rsh \"$@\"")?;
    Ok(text_of(path))
}

/// The file of the program that this node runs; it may have been replaced meanwhile.
fn own_program(config: &ExecutorConfig) -> PathBuf {
    let own = || std::env::current_exe().unwrap_or_else(|_| PathBuf::from("starling"));
    let program = config.spawner_program.clone().unwrap_or_else(own);
    match program.to_string_lossy().strip_suffix(" (deleted)") {
        Some(replaced) if !program.exists() => PathBuf::from(replaced),
        _ => program,
    }
}

#[cfg(test)]
mod tests {
    use proto::NodeId;

    use super::*;

    fn node(number: u32, host: &str, cpus: u32) -> GangNode {
        let address = format!("[10::{number}]:7000,10.0.0.{number}:7000");
        GangNode { node: NodeId(number), host: host.to_owned(), address, cpus }
    }

    #[test]
    fn totals_have_the_sum_of_time_the_largest_peak_and_the_first_reason() {
        let totals = |cpu_us, max_rss_kib, failure: &str| MemberTotals {
            used: Used { cpu_us, max_rss_kib },
            failure: failure.to_owned(),
        };
        let mut all = MemberTotals::default();
        for other in [totals(5, 70, ""), totals(6, 90, "first"), totals(7, 80, "second")] {
            all.add(other);
        }
        assert_eq!(all, totals(18, 90, "first"));
    }

    #[test]
    fn hosts_have_short_names_and_bare_addresses() {
        let node = node(3, "c3.site.example", 1);
        assert_eq!((short_host(&node), address(&node)), ("c3", "10::3"));
        assert_eq!(short_host(&self::node(3, "10.0.0.3", 1)), "10.0.0.3");
    }

    #[test]
    fn launchers_get_a_line_for_each_cpu_and_names_that_differ() {
        let apart = [node(0, "a.site", 2), node(4, "b.site", 1)];
        assert_eq!(mpi_hosts(&apart), "a\na\nb\n");
        assert_eq!(open_mpi_hosts(&apart), "a slots=2\nb slots=1\n");
        let beside = [node(0, "a.site", 2), node(1, "b", 0), node(4, "a", 1)];
        assert_eq!(mpi_hosts(&beside), "n0\nn0\nn1\nn4\n");
        assert_eq!(mpi_hosts(&[node(0, "", 1), node(1, "b", 1)]), "n0\nn1\n");
        let as_nodes = [node(0, "n1", 1), node(1, "n2.site", 1)];
        assert_eq!(mpi_hosts(&as_nodes), "starling-n0\nstarling-n1\n");
        assert_eq!(mpi_hosts(&[node(0, "node1", 1), node(1, "n", 1)]), "node1\nn\n");
    }

    #[test]
    fn the_agent_is_a_program_of_one_word() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("it's echo");
        std::os::unix::fs::symlink("/bin/echo", &program).unwrap();
        let agent = write_agent(&dir.path().join(AGENT), &program).unwrap();
        let ran = std::process::Command::new(agent).args(["n1", "a  b"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "rsh n1 a  b\n");
    }
}

//! Started by a launcher, one node a rank: by hand, and by Open MPI. Slurm has a file of its own.

use std::process::Command;

use starling_tests::{Running, Sandbox, binary, skip, wait_until};

/// A cluster that formed in a rendezvous directory runs a workflow from outside and ends by `down`.
pub(crate) fn use_and_end(sandbox: &Sandbox, directory: &str, nodes: usize, ranks: Vec<Running>) {
    wait_until("all nodes are up", || {
        let ran = sandbox.starling(&["--dir", directory, "node", "list", "--json"]);
        ran.code == 0 && {
            let list = ran.json();
            let nodes_up = list["nodes"].as_array().expect("a list of nodes");
            nodes_up.len() == nodes && nodes_up.iter().all(|node| node["state"] == "up")
        }
    });
    let submit =
        ["--dir", directory, "submit", "--array", "1-40", "--wait", "--json", "--", "true"];
    let answer = sandbox.starling(&submit).ok().json();
    let job = answer["job"].as_str().expect("a job").to_owned();
    let info = sandbox.starling(&["--dir", directory, "job", "info", &job, "--json"]).ok().json();
    assert_eq!(info["tasks"]["done"], 40, "{info}");
    sandbox.starling(&["--dir", directory, "down"]).ok();
    for rank in ranks {
        let ran = rank.end();
        assert_eq!(ran.code, 0, "every rank ends well, and together: {ran:?}");
    }
}

/// A node as a launcher that speaks PMI would start it.
pub(crate) fn rank(
    sandbox: &Sandbox,
    directory: &str,
    rank: u32,
    size: u32,
    more: &[&str],
) -> Running {
    let mut command = Command::new(binary());
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", size.to_string());
    command.args(["node", "--rendezvous", directory, "--slots", "1"]).args(more);
    sandbox.start_command(command)
}

#[test]
fn four_processes_find_each_other() {
    let sandbox = Sandbox::new();
    let directory = sandbox.path("meet").display().to_string();
    let ranks = (0..4).map(|number| rank(&sandbox, &directory, number, 4, &[])).collect();
    use_and_end(&sandbox, &directory, 4, ranks);
}

#[test]
fn missing_nodes_are_named_when_the_deadline_passes() {
    let sandbox = Sandbox::new();
    let directory = sandbox.path("meet").display().to_string();
    let start = |number| rank(&sandbox, &directory, number, 3, &["--deadline", "2s"]);
    let ranks: Vec<Running> = [0, 2].into_iter().map(start).collect();
    for rank in ranks {
        let ran = rank.end();
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.stderr.contains("missing"), "{}", ran.stderr);
        assert!(ran.stderr.contains('1'), "rank 1 never came: {}", ran.stderr);
    }
}

#[test]
fn open_mpi_starts_a_node_a_rank() {
    let Ok(version) = Command::new("mpirun").arg("--version").output() else {
        skip("mpirun is not installed (scripts/install-launchers)");
        return;
    };
    if !String::from_utf8_lossy(&version.stdout).contains("Open MPI") {
        skip("mpirun is not Open MPI's");
        return;
    }
    let sandbox = Sandbox::new();
    let directory = sandbox.path("meet").display().to_string();
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", "4"]);
    command.arg(binary()).args(["node", "--rendezvous", &directory, "--slots", "1"]);
    // Refuses to run as root without these, whatever its flag says.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let launcher = sandbox.start_command(command);
    use_and_end(&sandbox, &directory, 4, vec![launcher]);
}

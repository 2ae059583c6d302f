//! The effect of a launcher's variables on a node and its tasks; and ranks that do not come up.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use starling_tests::{Ran, Running, Sandbox, binary, skip, wait_until};

use crate::full_disk::SmallDisk;
use crate::launchers::use_and_end;
use crate::replicas::TREE;

/// A node with variables of a launcher.
fn node(sandbox: &Sandbox, variables: &[(&str, &str)], arguments: &[&str]) -> Running {
    let mut command = Command::new(binary());
    command.envs(variables.iter().copied()).arg("node").args(arguments);
    sandbox.start_command(command)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn pals_and_flux_start_a_node_a_rank() {
    let sandbox = Sandbox::new();
    let hosts = text(&sandbox.write("nodefile", "x1\n"));
    for (at, kind) in ["pals", "pals by its file", "flux"].into_iter().enumerate() {
        let meet = text(&sandbox.path(&format!("meet-{at}")));
        let start = |rank: &str| {
            let variables = match kind {
                "pals" => vec![("PALS_RANKID", rank), ("PALS_SIZE", "2"), ("PALS_LOCAL_SIZE", "2")],
                "flux" => {
                    vec![("FLUX_TASK_RANK", rank), ("FLUX_JOB_SIZE", "2"), ("FLUX_JOB_NNODES", "1")]
                }
                _ => {
                    vec![("PALS_RANKID", rank), ("PALS_LOCAL_SIZE", "2"), ("PBS_NODEFILE", &hosts)]
                }
            };
            node(&sandbox, &variables, &["--rendezvous", &meet, "--slots", "1"])
        };
        let ranks: Vec<Running> = ["0", "1"].map(start).into();
        use_and_end(&sandbox, &meet, 2, ranks);
        let address = sandbox.path(&format!("meet-{at}")).join("nodes/0/state/log");
        let log = std::fs::read_to_string(address).expect("a node has a log");
        assert!(log.contains("listens on 127.0.0.1:"), "all ranks are on one machine: {log}");
    }
}

#[test]
fn a_launcher_that_is_not_understood_is_named() {
    let sandbox = Sandbox::new();
    let meet = text(&sandbox.path("meet"));
    for (variables, named) in [
        (&[("PALS_RANKID", "1")][..], "PBS_NODEFILE"),
        (&[("FLUX_TASK_RANK", "1")], "FLUX_JOB_SIZE"),
        (&[("SLURM_PROCID", "1")], "slurm"),
        (&[("PMI_RANK", "x"), ("PMI_SIZE", "2")], "PMI_RANK=x"),
    ] {
        let ran = node(&sandbox, variables, &["--rendezvous", &meet]).end().expect_code(4);
        assert!(ran.stderr.contains(named), "{ran:?}");
        assert!(ran.stderr.contains("--rank") && ran.stderr.contains("--expect"), "{ran:?}");
    }
    let told = ["--rendezvous", &meet, "--expect", "2", "--deadline", "1s"];
    let ran = node(&sandbox, &[("FLUX_TASK_RANK", "1")], &told).end().expect_code(3);
    assert!(ran.stderr.contains("node n1 of 2") && ran.stderr.contains("node 0"), "{ran:?}");
}

#[test]
fn ranks_of_one_machine_share_its_cpus_with_a_notice() {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpus < 2 {
        return skip("this machine has one CPU");
    }
    let sandbox = Sandbox::new();
    let meet = text(&sandbox.path("meet"));
    let variables = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
    let arguments = ["--rendezvous", &meet, "--deadline", "1s"];
    let ran = node(&sandbox, &variables, &arguments).end().expect_code(3);
    let share = format!("2 ranks of mpich share this machine's {cpus} CPUs: {}", cpus / 2);
    assert!(ran.stderr.contains(&share), "{ran:?}");
    let ran = node(&sandbox, &variables, &[&arguments[..], &["--slots", "1"]].concat()).end();
    assert!(!ran.stderr.contains("notice"), "it was said how many: {ran:?}");

    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(binary()).arg("node").args(arguments).envs(variables);
    if Command::new("taskset").arg("-V").output().is_err() {
        return skip("taskset is not installed");
    }
    let ran = sandbox.start_command(command).end().expect_code(3);
    assert!(
        ran.stderr.contains("notice: 1 of ") && ran.stderr.contains("--cpu-bind=none"),
        "{ran:?}"
    );
}

/// The output of a task on a node of a launcher with two variables of each kind.
fn in_a_task(more: &[&str], script: &str) -> String {
    let sandbox = Sandbox::new();
    let meet = text(&sandbox.path("meet"));
    let variables = [
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "1"),
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("PALS_SPOOL_DIR", "x"),
        ("FLUX_TASK_LOCAL_ID", "0"),
        ("FLUX_URI", "local:///f"),
        ("MV2_COMM_WORLD_LOCAL_RANK", "0"),
        ("I_MPI_HYDRA_BOOTSTRAP", "ssh"),
        ("OMPI_MCA_btl", "tcp"),
    ];
    let arguments = [&["--rendezvous", &meet, "--slots", "1"], more].concat();
    let rank = node(&sandbox, &variables, &arguments);
    let starling =
        |arguments: &[&str]| sandbox.starling(&[&["--dir", &meet][..], arguments].concat());
    wait_until("the node is up", || starling(&["node", "list"]).code == 0);
    starling(&["submit", "--wait", "--name", "inner", "--", "sh", "-c", script]).ok();
    let printed = starling(&["job", "output", "last"]).ok().stdout;
    starling(&["down"]).ok();
    rank.end().ok();
    printed
}

#[test]
fn a_task_sees_the_allocation_and_not_the_step() {
    let seen = in_a_task(&[], "env");
    let has = |name: &str| seen.lines().any(|line| line.starts_with(&format!("{name}=")));
    for hidden in [
        "SLURM_PROCID",
        "SLURM_STEP_ID",
        "PALS_SPOOL_DIR",
        "FLUX_TASK_LOCAL_ID",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "I_MPI_HYDRA_BOOTSTRAP",
    ] {
        assert!(!has(hidden), "{hidden} in {seen}");
    }
    for shown in ["SLURM_JOB_ID", "FLUX_URI", "OMPI_MCA_btl", "STARLING_DIR"] {
        assert!(has(shown), "{shown} in {seen}");
    }
    let seen = in_a_task(&["--slurm", "hide"], "env");
    assert!(!seen.contains("SLURM"), "{seen}");
    assert!(seen.contains("OMPI_MCA_btl"), "{seen}");
}

#[test]
fn up_hides_the_allocation_and_remembers_that() {
    let sandbox = Sandbox::new();
    let dir = text(&sandbox.path("d"));
    let starling = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.env("SLURM_JOB_ID", "7").args(["--dir", &dir]).args(arguments);
        sandbox.start_command(command).end()
    };
    let knows = || {
        starling(&["submit", "--wait", "--", "env"]).ok();
        starling(&["job", "output", "last"]).ok().stdout.contains("SLURM_JOB_ID=7")
    };
    let ups: [(&[&str], bool); 3] =
        [(&["--slurm", "hide"], false), (&[], false), (&["--slurm", "keep"], true)];
    for (more, is_known) in ups {
        starling(&[&["up", "--slots", "1"][..], more].concat()).ok();
        assert_eq!(knows(), is_known, "{more:?}");
        starling(&["down"]).ok();
    }
}

#[test]
fn starling_finds_the_cluster_in_a_task() {
    let script = format!("cd / && {} job list --json", text(binary()));
    let seen = in_a_task(&[], &script);
    let list: serde_json::Value = serde_json::from_str(seen.trim()).expect("a list of jobs");
    assert_eq!(list["jobs"][0]["name"], "inner", "{list}");
}

#[test]
fn directories_differ_from_node_to_node() {
    let sandbox = Sandbox::new();
    let meet = text(&sandbox.path("meet"));
    let scratch = text(&sandbox.path("scratch"));
    let start = |rank: &str, state: &str| {
        let variables = [("PMI_RANK", rank), ("PMI_SIZE", "2"), ("SCRATCH", &scratch)];
        let variables = &variables[..];
        node(&sandbox, variables, &["--rendezvous", &meet, "--slots", "1", "--state-dir", state])
    };
    let ranks: Vec<Running> =
        ["0", "1"].map(|rank| start(rank, "$SCRATCH/state-{rank}-{host}")).into();
    use_and_end(&sandbox, &meet, 2, ranks);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a machine has a name");
    for rank in 0..2 {
        let path = sandbox.path(&format!("scratch/state-{rank}-{}/log", host.trim()));
        assert!(path.exists(), "{}", path.display());
    }
    for (state, named) in [("/tmp/{node}", "'{node}'"), ("$NOT_SET_ANYWHERE/x", "is not set")] {
        let ran = start("0", state).end().expect_code(2);
        assert!(ran.stderr.contains(named) && ran.stderr.contains("--state-dir"), "{ran:?}");
    }
    let ran = node(&sandbox, &[], &["--rendezvous", &format!("{meet}-{{rank}}")]).end();
    assert!(ran.expect_code(2).stderr.contains("--rendezvous: {rank}"));
}

/// Starts ranks, of which rank `fails` cannot create its state directory.
fn launch(sandbox: &Sandbox, size: u32, fails: u32) -> (String, Vec<Running>) {
    let meet = text(&sandbox.path("meet"));
    let file = text(&sandbox.write("file", ""));
    let start = |rank: u32| {
        let state = match rank == fails {
            true => format!("{file}/state"),
            false => text(&sandbox.path(&format!("state-{rank}"))),
        };
        let (rank, size) = (rank.to_string(), size.to_string());
        let variables = [("PMI_RANK", &rank[..]), ("PMI_SIZE", &size)];
        // A rank that waited for the deadline would never end here.
        let arguments = ["--rendezvous", &meet, "--slots", "1", "--deadline", "10h"];
        node(sandbox, &variables, &[&arguments[..], &["--state-dir", &state]].concat())
    };
    let ranks = (0..size).map(start).collect();
    (meet, ranks)
}

fn must_say_why(ran: Ran) {
    let ran = ran.expect_code(4);
    assert!(ran.stderr.contains("cannot create") && ran.stderr.contains("file/state"), "{ran:?}");
}

#[test]
fn a_rank_without_a_disk_ends_alone() {
    for fails in [0, 2] {
        let sandbox = Sandbox::new();
        let (meet, mut ranks) = launch(&sandbox, 3, fails);
        must_say_why(ranks.remove(fails as usize).end());
        let starling =
            |arguments: &[&str]| sandbox.starling(&[&["--dir", &meet][..], arguments].concat());
        wait_until("the others are a cluster", || {
            let ran = starling(&["node", "list", "--json"]);
            ran.code == 0 && ran.json()["fully_replicated"] == true
        });
        starling(&["submit", "--array", "1-20", "--wait", "--", "true"]).ok();
        // The last ranks may have found a cluster that had started.
        let said: String = ranks.iter().map(Running::errors_so_far).collect();
        assert!(said.contains(&format!("node {fails} did not start")), "{said}");
        starling(&["down"]).ok();
        ranks.into_iter().for_each(|rank| _ = rank.end().ok());
    }
}

#[test]
fn where_the_others_are_too_few_they_end_at_once_and_name_the_reason() {
    let sandbox = Sandbox::new();
    let (_, mut ranks) = launch(&sandbox, 2, 0);
    let other = ranks.remove(1).end().expect_code(3);
    assert!(other.stderr.contains("node 0 did not start: cannot create"), "{other:?}");
    must_say_why(ranks.remove(0).end());
}

#[test]
fn a_rank_that_cannot_start_gives_its_reason() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let busy = busy.local_addr().expect("it has one").to_string();
    for (flag, value, reason) in [
        ("--listen", &busy[..], "cannot listen on"),
        ("--state-dir", "$NOT_SET_ANYWHERE/x", "$NOT_SET_ANYWHERE is not set"),
        ("--partitions", "3", "power of two"),
    ] {
        let sandbox = Sandbox::new();
        let meet = text(&sandbox.path("meet"));
        let start = |rank: &str, more: &[&str]| {
            let variables = [("PMI_RANK", rank), ("PMI_SIZE", "2")];
            // A rank that waited for the deadline would never end.
            let arguments = ["--rendezvous", &meet, "--slots", "1", "--deadline", "10h"];
            node(&sandbox, &variables, &[&arguments, more].concat())
        };
        // Only the first rank votes: without it the other one has no majority.
        let other = start("1", &[]);
        let fails = start("0", &[flag, value]).end();
        assert!(fails.code != 0 && fails.stderr.contains(reason), "{fails:?}");
        let other = other.end().expect_code(3);
        assert!(other.stderr.contains("node 0 did not start") && other.stderr.contains(reason));
    }
}

#[test]
fn a_failure_of_an_earlier_launch_ends_no_later_one() {
    let sandbox = Sandbox::new();
    let (meet, ranks) = launch(&sandbox, 2, 0);
    ranks.into_iter().for_each(|rank| _ = rank.end());
    let failed = sandbox.path("meet/nodes/0/failed.json");
    let written = std::fs::File::options().write(true).open(&failed).expect("it said why");
    let now = written.metadata().and_then(|found| found.modified()).expect("it has a time");
    written.set_modified(now - Duration::from_secs(60)).expect("it is ours");
    let start = |rank: &str| {
        let variables = [("PMI_RANK", rank), ("PMI_SIZE", "2")];
        node(&sandbox, &variables, &["--rendezvous", &meet, "--slots", "1"])
    };
    let second = start("1");
    // Long enough to read the file.
    std::thread::sleep(Duration::from_secs(2));
    let ranks = vec![start("0"), second];
    use_and_end(&sandbox, &meet, 2, ranks);
}

#[test]
fn a_rendezvous_directory_with_a_variable_is_found_by_down() {
    let sandbox = Sandbox::new();
    let scratch = text(&sandbox.path("."));
    let variables = [("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("SCRATCH", &scratch)];
    let arguments = ["--rendezvous", "$SCRATCH/meet", "--slots", "1"];
    let rank = node(&sandbox, &variables, &arguments);
    let meet = text(&sandbox.path("meet"));
    let starling =
        |arguments: &[&str]| sandbox.starling(&[&["--dir", &meet][..], arguments].concat());
    wait_until("the node is up", || starling(&["node", "list"]).code == 0);
    let ran = starling(&["down"]).ok();
    assert!(!ran.stderr.contains("no node is running"), "{ran:?}");
    rank.end().ok();
}

#[test]
fn a_directory_may_have_the_characters_of_placeholders() {
    let sandbox = Sandbox::new();
    let odd = sandbox.path("a$b{rank}");
    std::fs::create_dir(&odd).expect("a directory");
    let starling = |arguments: &[&str]| {
        let mut command = Command::new("env");
        // It contains the default directory, and that of a run.
        command.current_dir(&odd).arg(format!("TMPDIR={}", text(&odd)));
        command.arg(binary()).args(arguments);
        sandbox.start_command(command).end()
    };
    starling(&["run", "--nodes", "1", "--slots", "1", "bag:tasks=3"]).ok();
    starling(&["up", "--nodes", "2", "--slots", "1"]).ok();
    let script = format!("cd / && {} job list --json", text(binary()));
    starling(&["submit", "--wait", "--name", "inner", "--", "sh", "-c", &script]).ok();
    let seen = starling(&["job", "output", "last"]).ok().stdout;
    assert!(seen.contains("inner"), "{seen}");
    starling(&["down"]).ok();
    let escaped = text(&odd).replace('$', "$$").replace('{', "{{").replace('}', "}}");
    let directory = format!("{escaped}/c");
    starling(&["--dir", &directory, "up", "--nodes", "1", "--slots", "1"]).ok();
    assert!(odd.join("c/cluster.json").exists());
    starling(&["--dir", &directory, "down"]).ok();
}

#[test]
fn a_rank_with_a_full_disk_ends_alone() {
    let Some(disk) = SmallDisk::mount() else { return };
    let sandbox = Sandbox::new();
    let meet = text(&sandbox.path("meet"));
    let state = text(&disk.path().join("state"));
    let start = |rank: u32| {
        let mut arguments = vec!["--rendezvous", &meet, "--slots", "1"];
        if rank == 1 {
            arguments.extend(["--state-dir", &state]);
        }
        let rank = rank.to_string();
        node(&sandbox, &[("PMI_RANK", &rank), ("PMI_SIZE", "3")], &arguments)
    };
    let mut ranks: Vec<Running> = (0..3).map(start).collect();
    let starling =
        |arguments: &[&str]| sandbox.starling(&[&["--dir", &meet][..], arguments].concat());
    let is_whole = || {
        let ran = starling(&["node", "list", "--json"]);
        ran.code == 0 && ran.json()["fully_replicated"] == true
    };
    wait_until("all are up", is_whole);
    disk.fill();
    let job = starling(&["submit", "--file", TREE, "--json"]).ok();
    let job = job.json()["job"].as_str().expect("jobs have ids").to_owned();
    let full = ranks.remove(1).end();
    assert_ne!(full.code, 0, "{full:?}");
    assert!(full.stderr.to_lowercase().contains("no space"), "{full:?}");
    starling(&["job", "wait", &job, "--timeout", "100s"]).ok();
    wait_until("the others have all copies", is_whole);
    starling(&["down"]).ok();
    ranks.into_iter().for_each(|rank| _ = rank.end().ok());
}

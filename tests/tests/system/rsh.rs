//! Commands of a gang's task on the other nodes of the gang, as launchers of MPI start them.

use std::path::Path;
use std::process::Command;

use starling_tests::{Instance, binary, is_alive, skip, wait_until};

use crate::cluster::submit;

/// What a task has printed.
struct Printed {
    stdout: String,
    stderr: String,
}

/// Runs a shell script as a task with these flags, to its end.
fn printed_by(instance: &Instance, flags: &[&str], script: &str, code: i32) -> Printed {
    let job = submit(instance, &[flags, &["--", "sh", "-c", script]].concat());
    let waited = instance.starling(&["job", "wait", &job]);
    let stdout = instance.starling(&["job", "output", &job]).ok().stdout;
    let stderr = instance.starling(&["job", "output", &job, "--stderr"]).ok().stdout;
    assert_eq!(waited.code, code, "{stdout} {stderr}");
    Printed { stdout, stderr }
}

fn on_nodes(instance: &Instance, flags: &[&str], script: &str) -> Printed {
    printed_by(instance, flags, script, 0)
}

/// The process id in a file, once it is there.
fn pid_in(path: &Path) -> u32 {
    let mut pid = None;
    wait_until("the command elsewhere runs", || {
        pid = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        pid.is_some()
    });
    pid.expect("it was waited for")
}

#[test]
fn a_launcher_starts_its_processes_on_each_node_of_the_gang() {
    let instance = Instance::up(3, 2);
    // As a launcher of MPI: one call for each host, all at once, one rank for each line.
    let launcher = r#"
        printf 'first line\nsecond line\n' > input
        for host in $(sort -u "$STARLING_MPI_HOSTFILE"); do
            ranks=$(grep -c "^$host\$" "$STARLING_MPI_HOSTFILE")
            "$STARLING_RSH" $host "for rank in \$(seq $ranks); do
                echo rank \$rank of $host: node n\$STARLING_NODE, \$STARLING_CPUS cpus; done;
                cat; echo odd >&2; exit \$((3 + STARLING_NODE))" < input > out-$host 2> err-$host &
            echo $! $host >> callers
        done
        while read pid host; do
            wait $pid; echo "$host ended with $?"
            cat out-$host; sed 's/^/said: /' err-$host
        done < callers"#;
    let ran = on_nodes(&instance, &["--nodes", "2"], launcher);
    let ranks: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with("rank ")).collect();
    assert_eq!(ranks.len(), 4, "{}", ran.stdout);
    let mut nodes = std::collections::BTreeSet::new();
    for line in &ranks {
        let (host, node) = (line.split([' ', ':']).nth(3), line.split([' ', ',']).nth(5));
        assert!(host == node && line.ends_with(", 2 cpus"), "{line}");
        nodes.insert(host.expect("a name"));
    }
    assert_eq!(nodes.len(), 2, "{}", ran.stdout);
    for node in nodes {
        let code = 3 + node[1..].parse::<u32>().expect("a number");
        assert!(ran.stdout.contains(&format!("{node} ended with {code}\n")), "{}", ran.stdout);
    }
    for (line, count) in [("first line", 2), ("second line", 2), ("said: odd", 2)] {
        assert_eq!(ran.stdout.lines().filter(|it| *it == line).count(), count, "{}", ran.stdout);
    }
    instance.down();
}

#[test]
fn large_streams_pass_and_a_member_reaches_the_others() {
    let instance = Instance::up(2, 1);
    let script = r#"
        other=$(sed -n 2p "$STARLING_MPI_HOSTFILE")
        head -c 3000000 /dev/urandom > data
        sent=$(sha256sum < data)
        back=$("$STARLING_RSH" $other 'cat' < data | sha256sum)
        [ "$sent" = "$back" ] && echo intact
        # Unread input holds nothing up.
        "$STARLING_RSH" $other 'exit 5' < data; echo "code $?"
        # The command on the second node calls the first one, and itself.
        "$STARLING_RSH" $other '
            for host in $(cat "$STARLING_MPI_HOSTFILE"); do
                "$STARLING_RSH" -x -n -l me $host "echo from n$STARLING_NODE to n\$STARLING_NODE"
            done'
        "$STARLING_RSH" $other 'kill -TERM $$'; echo "code $?""#;
    let ran = on_nodes(&instance, &["--nodes", "2"], script);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let (first, second) = match lines.contains(&"from n1 to n0") {
        true => (0, 1),
        false => (1, 0),
    };
    let expected = [
        "intact".to_owned(),
        "code 5".to_owned(),
        format!("from n{second} to n{first}"),
        format!("from n{second} to n{second}"),
        "code 143".to_owned(),
    ];
    assert_eq!(lines, expected, "{}", ran.stderr);
    instance.down();
}

#[test]
fn only_nodes_of_the_gang_are_reached() {
    let instance = Instance::up(3, 1);
    let script = r#"
        for node in n0 n1 n2; do
            "$STARLING_RSH" $node true; echo "code $?"
        done
        "$STARLING_RSH" 127.0.0.1 true; echo "code $?""#;
    let ran = on_nodes(&instance, &["--nodes", "2"], script);
    let mut codes: Vec<&str> = ran.stdout.lines().take(3).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["code 0", "code 0", "code 4"], "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stdout.ends_with("code 4\n"), "{}", ran.stdout);
    let said = &ran.stderr;
    assert!(said.contains("is no node of this gang, which has n"), "{said}");
    assert!(said.contains("'127.0.0.1' has several nodes of this gang: n"), "{said}");
    let alone = format!("{} rsh n0 true", binary().display());
    let said = printed_by(&instance, &[], &alone, 1).stderr;
    assert!(said.contains("this task is not on several nodes"), "{said}");
    instance.down();
}

/// A script with several commands elsewhere, of which each takes this number of bytes. It ignores
/// their exit codes.
fn eating(commands: u32, bytes: u32, then: &str) -> String {
    format!(
        r#"other=$(sed -n 2p "$STARLING_MPI_HOSTFILE")
        for at in $(seq {commands}); do
            "$STARLING_RSH" $other '
                x=$(head -c {bytes} /dev/zero | tr "\0" x); {then}; echo ${{#x}}' &
        done
        wait
        exit 0"#
    )
}

/// Each command takes less than the limit, and all of them take more. Their callers on the first
/// node take less together.
#[test]
fn commands_elsewhere_share_the_memory_limit_of_their_node_and_the_task_fails() {
    let instance = Instance::up(2, 1);
    let script = eating(3, 80_000_000, "sleep 600");
    let flags = ["--nodes", "2", "--cpus", "1", "--memory", "200MiB", "--", "sh", "-c", &script];
    let job = submit(&instance, &flags);
    let waited = instance.starling(&["job", "wait", &job]).expect_code(1);
    let list = instance.json(&["task", "list", &job]);
    let task = &list["tasks"][0];
    let other = 1 - task["node"].as_u64().expect("it ran");
    let said = &waited.stderr;
    assert!(said.contains(&format!("memory on n{other}: ")), "{said}");
    assert!(said.contains(" of 200 MiB asked"), "{said}");
    assert!(task["max_rss_bytes"].as_u64() > Some(200 << 20), "{list}");
    instance.down();
}

#[test]
fn what_commands_elsewhere_have_used_counts_for_the_task() {
    let instance = Instance::up(2, 1);
    let script = eating(1, 100_000_000, "true");
    let job = submit(&instance, &["--nodes", "2", "--", "sh", "-c", &script]);
    instance.starling(&["job", "wait", &job]).ok();
    assert_eq!(instance.starling(&["job", "output", &job]).ok().stdout, "100000000\n");
    let list = instance.json(&["task", "list", &job]);
    assert!(list["tasks"][0]["max_rss_bytes"].as_u64() > Some(90_000 << 10), "{list}");
    instance.down();
}

/// A script that leaves the ids of its process elsewhere and of an escaped child in files.
fn lasting(files: &[&Path; 3]) -> String {
    let [pid, escaped, runs] = files.map(|path| path.display().to_string());
    format!(
        r#"echo $STARLING_NODE >> {runs}
        [ $(wc -l < {runs}) -gt 1 ] && exit 0
        other=$(sed -n 2p "$STARLING_MPI_HOSTFILE")
        exec "$STARLING_RSH" $other 'setsid sleep 600 & echo $! > {escaped};
            echo $$ > {pid}; trap "" TERM; sleep 600; sleep 600'"#
    )
}

#[test]
fn commands_elsewhere_end_with_their_task() {
    let instance = Instance::up(2, 1);
    let path = |name: &str| instance.sandbox().path(name);
    let (pid, escaped, runs) = (path("pid"), path("escaped"), path("runs"));
    let script = lasting(&[&pid, &escaped, &runs]);
    let job = submit(&instance, &["--nodes", "2", "--", "sh", "-c", &script]);
    let pids = [pid_in(&pid), pid_in(&escaped)];
    assert!(pids.iter().all(|&pid| is_alive(pid)));
    instance.starling(&["job", "cancel", &job]).ok();
    wait_until("they have ended", || !pids.iter().any(|&pid| is_alive(pid)));
    // The nodes are free again.
    instance.starling(&["submit", "--wait", "--nodes", "2", "--", "true"]).ok();
    instance.down();
}

#[test]
fn commands_elsewhere_end_with_the_first_node_and_the_task_runs_again() {
    ends_with_a_node(|first| first);
}

#[test]
fn commands_elsewhere_end_with_their_node_and_the_task_runs_again() {
    ends_with_a_node(|first| (first + 1) % 3);
}

/// Kills the node that `victim` names by the first node of the gang.
fn ends_with_a_node(victim: impl Fn(u32) -> u32) {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let path = |name: &str| instance.sandbox().path(name);
    let (pid, escaped, runs) = (path("pid"), path("escaped"), path("runs"));
    let script = lasting(&[&pid, &escaped, &runs]);
    let job = submit(&instance, &["--nodes", "2", "--", "sh", "-c", &script]);
    let pids = [pid_in(&pid), pid_in(&escaped)];
    let first = std::fs::read_to_string(&runs).expect("it ran").trim().parse().expect("a node");
    instance.kill(victim(first));
    wait_until("they have ended", || !pids.iter().any(|&pid| is_alive(pid)));
    instance.starling(&["job", "wait", &job]).ok();
    let ran = std::fs::read_to_string(&runs).expect("it ran");
    assert_eq!(ran.lines().count(), 2, "{ran}");
    instance.start_missing();
    instance.down();
}

/// A program that passes a number around all ranks, by the binary interface of Open MPI. It
/// needs no header of that library.
const RING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
extern char ompi_mpi_comm_world[], ompi_mpi_int[];
int MPI_Init(int *, char ***), MPI_Finalize(void);
int MPI_Comm_rank(void *, int *), MPI_Comm_size(void *, int *);
int MPI_Send(const void *, int, void *, int, int, void *);
int MPI_Recv(void *, int, void *, int, int, void *, void *);
int main(int argc, char **argv) {
    int rank, size, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(ompi_mpi_comm_world, &rank);
    MPI_Comm_size(ompi_mpi_comm_world, &size);
    if (rank > 0) MPI_Recv(&token, 1, ompi_mpi_int, rank - 1, 0, ompi_mpi_comm_world, NULL);
    token += 1;
    MPI_Send(&token, 1, ompi_mpi_int, (rank + 1) % size, 0, ompi_mpi_comm_world);
    if (rank == 0) MPI_Recv(&token, 1, ompi_mpi_int, size - 1, 0, ompi_mpi_comm_world, NULL);
    printf("rank %d of %d on n%s has %d\n", rank, size, getenv("STARLING_NODE"), token);
    MPI_Finalize();
    return 0;
}
"#;

/// Whether this machine has Open MPI 4. Otherwise the test prints that it is skipped.
fn has_open_mpi() -> bool {
    let version = Command::new("mpirun").arg("--version").output();
    let version = version.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    let is_there = version.is_ok_and(|text| text.contains("(Open MPI) 4."));
    if !is_there {
        skip("mpirun of Open MPI 4 is absent");
    }
    is_there
}

/// Open MPI refuses root otherwise.
const AS_ROOT: [&str; 4] =
    ["--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"];

#[test]
fn open_mpi_starts_four_ranks_on_two_nodes_of_one_host() {
    if !has_open_mpi() {
        return;
    }
    let instance = Instance::up(2, 2);
    let source = instance.sandbox().write("ring.c", RING);
    let ring = instance.sandbox().path("ring");
    let built =
        Command::new("cc").arg(&source).arg("-o").arg(&ring).arg("-l:libmpi.so.40").output();
    let has_ring = built.is_ok_and(|built| built.status.success());
    if !has_ring {
        skip("no program can be linked to Open MPI: the ranks are programs of the shell");
    }
    let shell = "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on n$STARLING_NODE has 0";
    let script = match has_ring {
        true => format!("mpirun {}", ring.display()),
        false => format!("mpirun sh -c '{shell}'"),
    };
    let ran = on_nodes(&instance, &[&["--nodes", "2"], &AS_ROOT[..]].concat(), &script);
    let mut lines: Vec<&str> =
        ran.stdout.lines().filter(|line| line.starts_with("rank ")).collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 4, "{}", ran.stdout);
    for (rank, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("rank {rank} of 4 on n")), "{line}");
        let token = if rank == 0 { 4 } else { rank + 1 };
        assert!(!has_ring || line.ends_with(&format!(" has {token}")), "{line}");
    }
    for node in ["on n0 ", "on n1 "] {
        assert_eq!(lines.iter().filter(|line| line.contains(node)).count(), 2, "{lines:?}");
    }
    instance.down();
}

#[test]
fn nothing_of_open_mpi_stays_after_the_end_of_its_task() {
    if !has_open_mpi() {
        return;
    }
    let instance = Instance::up(2, 1);
    let folder = instance.sandbox().path("pids");
    std::fs::create_dir(&folder).expect("a directory");
    let rank = format!("echo $$ > {}/$OMPI_COMM_WORLD_RANK; sleep 600", folder.display());
    let script = format!("mpirun sh -c '{rank}'");
    let flags = [&["--nodes", "2"], &AS_ROOT[..], &["--", "sh", "-c", &script]].concat();
    let job = submit(&instance, &flags);
    let pids = [pid_in(&folder.join("0")), pid_in(&folder.join("1"))];
    instance.starling(&["job", "cancel", &job]).ok();
    wait_until("the ranks have ended", || !pids.iter().any(|&pid| is_alive(pid)));
    instance.down();
}

/// A node raises its limit on open files. Its commands keep the user's, here and on other nodes.
#[test]
fn commands_keep_the_users_limit_on_open_files() {
    let sandbox = starling_tests::Sandbox::new();
    let script = r#"ulimit -Sn 300
        "$0" up --nodes 2 --slots 1 > up 2>&1 || exit 1
        "$0" submit --wait --nodes 2 -- sh -c '
            for host in $(sort -u "$STARLING_MPI_HOSTFILE"); do
                "$STARLING_RSH" $host "ulimit -Sn"
            done; ulimit -Sn' > submitted 2>&1
        "$0" job output last
        "$0" down > down 2>&1"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(binary());
    shell.env("STARLING_DIR", sandbox.path("instance"));
    let ran = sandbox.start_command(shell).end().ok();
    assert_eq!(ran.stdout, "300\n".repeat(3), "{ran:?}");
}

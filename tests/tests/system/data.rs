//! Bytes between nodes, in their stores, and from clients.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use security::{Keyring, Role, tls};
use serde_json::Value;
use starling_tests::{Instance, files_below, is_alive, wait_until};

use crate::cluster::{job, submit};

/// The files below a folder of a node's state.
pub(crate) fn files(instance: &Instance, node: u32, folder: &str) -> Vec<PathBuf> {
    let root = instance.directory().join(format!("nodes/{node}/state/{folder}"));
    files_below(&root)
}

fn data_address(instance: &Instance, node: u32) -> String {
    let path = instance.directory().join(format!("nodes/{node}/address.json"));
    let text = fs::read_to_string(path).expect("a node that is up has an address file");
    let value: Value = serde_json::from_str(&text).expect("it is JSON");
    value["data"].as_str().expect("it gives out objects").to_owned()
}

fn done(instance: &Instance, id: &str) -> Value {
    instance.starling(&["job", "wait", id]).ok();
    job(instance, id)
}

/// One task makes a file, and many tasks on both nodes read it. The file is transferred at most
/// once.
#[test]
fn an_input_from_another_node_comes_once_and_goes_with_its_job() {
    let instance = Instance::up_with_copies(2, 2, 1);
    let log = instance.sandbox().path("nodes").display().to_string();
    instance.sandbox().write(
        "w.toml",
        format!(
            "[[task]]\nname='make'\noutputs={{x='big'}}\n\
             command=['sh','-c','head -c 3000000 /dev/urandom > big; \
             sha256sum < big > {log}.sum']\n\
             [[task]]\nname='read-{{i}}'\narray='1-40'\ninputs={{x='big'}}\n\
             outputs={{s={{file='s{{i}}',keep=true}}}}\n\
             command=['sh','-c','sha256sum < {{in:x}} > s{{i}}; cmp s{{i}} {log}.sum; \
             echo $STARLING_NODE >> {log}; sleep 0.1']\n"
        ),
    );
    instance.starling(&["node", "set", "--policy", "mlb"]).ok();
    let id = submit(&instance, &["--file", "w.toml"]);
    let end = done(&instance, &id);
    assert_eq!(end["tasks"]["done"], 41, "{end}");
    let nodes = fs::read_to_string(instance.sandbox().path("nodes")).expect("tasks wrote it");
    assert!(nodes.contains('0') && nodes.contains('1'), "both nodes took part: {nodes}");
    assert_eq!(end["data"]["bytes_moved"], 3_000_000, "to the other node, once: {end}");
    // The end of a job is sent to every node. Then only kept outputs remain.
    let all = || [0, 1].map(|node| files(&instance, node, "objects")).concat();
    wait_until("objects without a keeper are gone", || all().len() == 40);
    assert!(all().iter().all(|path| path.to_string_lossy().ends_with("-kept")), "{:?}", all());
    instance.down();
}

#[test]
fn kept_objects_survive_restarts_and_what_an_ended_job_left_does_not() {
    let mut instance = Instance::up(1, 1);
    instance.sandbox().write(
        "w.toml",
        "[[task]]\nname='a'\noutputs={x='x',k={file='k',keep=true}}\n\
         command=['sh','-c','echo x > x; echo k > k']\n\
         [[task]]\nname='wait'\ninputs={x='x'}\ncommand=['sh','-c','test -e DIR/go || sleep 60']\n"
            .replace("DIR", &instance.sandbox().path("").display().to_string()),
    );
    let id = submit(&instance, &["--file", "w.toml"]);
    // If it was killed before, the new attempt would make both outputs, and the kept file of the
    // first attempt would remain.
    wait_until("its end is known", || job(&instance, &id)["tasks"]["done"] == 1);
    assert_eq!(files(&instance, 0, "objects").len(), 2);
    instance.sandbox().write("go", "");
    instance.kill(0);
    instance.start_missing();
    let end = done(&instance, &id);
    assert_eq!(end["tasks"]["done"], 2, "{end}");
    wait_until("only what is kept is left", || files(&instance, 0, "objects").len() == 1);
    instance.down();
}

#[test]
fn a_store_that_is_too_small_fails_the_task_and_goes_on_with_others() {
    let instance = Instance::up_with_copies(2, 1, 1);
    instance.starling(&["node", "set", "--store-hard", "2MB", "--store-soft", "1MB"]).ok();
    instance.sandbox().write(
        "w.toml",
        "[[task]]\nname='big-{i}'\narray='1-2'\noutputs={x='big{i}'}\n\
         command=['sh','-c','head -c 1500000 /dev/zero > big{i}; sleep 0.5']\n\
         [[task]]\nname='both'\ninputs={a='big1',b='big2'}\ncommand=['true']\n\
         [[task]]\nname='small-{i}'\narray='1-5'\noutputs={y='s{i}'}\n\
         command=['sh','-c','echo {i} > s{i}']\n",
    );
    let id = submit(&instance, &["--file", "w.toml"]);
    let ran = instance.starling(&["job", "wait", &id]);
    let end = job(&instance, &id);
    assert_eq!(end["tasks"]["failed"], 1, "{ran:?} {end}");
    assert_eq!(end["tasks"]["done"], 7, "{end}");
    let text = format!("{} {}", ran.stderr, end);
    for part in ["both", "bytes", "node"] {
        assert!(text.contains(part), "'{part}' is not in {text}");
    }
    instance.down();
}

#[test]
fn a_staged_file_is_copied_once_to_each_node() {
    let instance = Instance::up_with_copies(2, 2, 1);
    // A small file would be a private copy of each task.
    instance.sandbox().write("shared.txt", "staged words\n".repeat(20_000));
    let log = instance.sandbox().path("inodes").display().to_string();
    let script = format!("grep -q words {{in:1}} && stat -L -c %i {{in:1}} >> {log}; sleep 0.05");
    let id = submit(
        &instance,
        &["--array", "1-30", "--stage-in", "shared.txt", "--", "sh", "-c", &script],
    );
    let end = done(&instance, &id);
    assert_eq!(end["tasks"]["done"], 30, "{end}");
    let text = fs::read_to_string(instance.sandbox().path("inodes")).expect("tasks wrote it");
    let inodes: std::collections::BTreeSet<&str> = text.lines().collect();
    assert_eq!(text.lines().count(), 30);
    let copies = [0, 1].map(|node| files(&instance, node, "staged").len());
    assert!(inodes.len() <= copies.iter().sum(), "{inodes:?} {copies:?}");
    assert!(copies.iter().all(|copies| *copies <= 1), "{copies:?}");
    instance.down();
}

/// The node with the input dies during the transfer, and restarts.
#[test]
fn a_fetch_survives_the_death_of_its_source() {
    let mut instance = Instance::up_with_copies(2, 1, 1);
    instance.starling(&["node", "set", "--policy", "mlb"]).ok();
    instance.sandbox().write(
        "w.toml",
        "[[task]]\nname='make-{i}'\narray='1-8'\noutputs={x='big{i}'}\n\
         command=['sh','-c','head -c 40000000 /dev/zero > big{i}; sleep 0.05']\n\
         [[task]]\nname='sum'\ninputs={all=['big1..8']}\noutputs={s={file='s',keep=true}}\n\
         command=['sh','-c','cat $STARLING_INPUTS | wc -c > s']\n",
    );
    let id = submit(&instance, &["--file", "w.toml"]);
    let made = |instance: &Instance| job(instance, &id)["tasks"]["done"].as_u64().unwrap_or(0);
    wait_until("the inputs are made", || made(&instance) >= 8);
    for node in [0, 1] {
        instance.kill(node);
        instance.start_missing();
    }
    let end = done(&instance, &id);
    assert_eq!(end["tasks"]["done"], 9, "{end}");
    let kept = [0, 1].map(|node| files(&instance, node, "objects")).concat();
    let texts: Vec<_> = kept
        .iter()
        .filter(|path| path.to_string_lossy().ends_with("-kept"))
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    assert_eq!(texts, ["320000000\n"]);
    instance.down();
}

/// A stopped source is tried again, and blocks nothing permanently.
#[test]
fn a_source_that_stands_still_is_waited_for() {
    let instance = Instance::up_with_copies(2, 1, 1);
    instance.starling(&["node", "set", "--policy", "mlb"]).ok();
    let (go, gate) = (instance.sandbox().path("go"), instance.sandbox().path("gate"));
    instance.sandbox().write(
        "w.toml",
        "[[task]]\nname='make-{i}'\narray='1-6'\noutputs={x='big{i}'}\n\
         command=['sh','-c','head -c 1000000 /dev/zero > big{i}; sleep 0.2']\n\
         [[task]]\nname='gate'\nafter=['make-1','make-2','make-3','make-4','make-5','make-6']\n\
         command=['sh','-c','echo $STARLING_NODE > <gate>; \
         while ! test -e <go>; do sleep 0.05; done']\n\
         [[task]]\nname='sum-{i}'\narray='1-12'\ninputs={all=['big1..6']}\nafter=['gate']\n\
         outputs={s={file='s{i}',keep=true}}\n\
         command=['sh','-c','cat $STARLING_INPUTS | wc -c > s{i}']\n"
            .replace("<gate>", &gate.display().to_string())
            .replace("<go>", &go.display().to_string()),
    );
    let id = submit(&instance, &["--file", "w.toml"]);
    let opened = || fs::read_to_string(&gate).is_ok_and(|text| text.ends_with('\n'));
    wait_until("the inputs are made, and something waits in front of their readers", opened);
    let awake: u32 =
        fs::read_to_string(&gate).expect("it is there").trim().parse().expect("0 or 1");
    let stopped = 1 - awake;
    let made = files(&instance, stopped, "objects").len();
    assert!((1..6).contains(&made), "both nodes made some: {made}");
    let raw = i32::try_from(instance.pid(stopped)).expect("pids are small");
    let pid = Pid::from_raw(raw).expect("a node's pid is not zero");
    kill_process(pid, Signal::STOP).expect("the node runs");
    instance.sandbox().write("go", "");
    // It continues only after the other node's fetch has timed out.
    let log = instance.directory().join(format!("nodes/{awake}/state/log"));
    let given_up = || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.contains(&format!("cannot fetch from node n{stopped}"))
    };
    wait_until("a fetch is given up", given_up);
    kill_process(pid, Signal::CONT).expect("the node is there");
    let end = done(&instance, &id);
    assert_eq!(end["tasks"]["done"], 19, "{end}");
    let kept = [0, 1].map(|node| files(&instance, node, "objects")).concat();
    let texts = kept.iter().filter(|path| path.to_string_lossy().ends_with("-kept"));
    let texts: Vec<_> = texts.filter_map(|path| fs::read_to_string(path).ok()).collect();
    assert_eq!(texts, vec!["6000000\n"; 12]);
    instance.down();
}

/// Unauthenticated connections and noise on the data port are refused, and the node lives.
#[test]
fn the_data_port_believes_nodes_alone() {
    let instance = Instance::up_with_copies(2, 1, 1);
    let address = data_address(&instance, 0);
    let cluster = fs::read_to_string(instance.directory().join("cluster.json")).expect("a file");
    let cluster: Value = serde_json::from_str(&cluster).expect("it is JSON");
    let cluster = u64::from_str_radix(cluster["cluster"].as_str().expect("an id"), 16);
    let cluster = cluster.expect("hexadecimal");
    let ours = proto::limits::PEER_VERSION;
    let hello = |version: u32, cluster: u64, to: u32| {
        let mut bytes = b"SDT2".to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(cluster.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(to.to_le_bytes());
        bytes
    };
    let say = |stream: &mut dyn ReadWrite, bytes: &[u8]| {
        // The node may close while we still write.
        let _ = stream.write_all(bytes);
        let _ = stream.flush();
        let mut answer = vec![0; 4096];
        let mut came = 0;
        while let Ok(more @ 1..) = stream.read(&mut answer[came..]) {
            came += more;
        }
        answer.truncate(came);
        answer
    };
    let answer = |role: Role, bytes: &[u8]| {
        let key = Keyring::of_instance(instance.directory()).read(role).expect("a key");
        let config = tls::client(&key, tls::DATA).expect("it is good");
        let connection = rustls::ClientConnection::new(config, tls::node_name()).expect("a name");
        let stream = TcpStream::connect(&address).expect("the port is open");
        stream.set_read_timeout(Some(Duration::from_secs(2))).expect("it is a socket");
        say(&mut rustls::StreamOwned::new(connection, stream), bytes)
    };
    assert_eq!(answer(Role::Node, &hello(ours, cluster, 0)), b"SDT2\0\0\0\0");
    for bytes in [hello(ours + 1, cluster, 0), hello(ours, cluster ^ 1, 0), hello(ours, cluster, 1)]
    {
        let said = answer(Role::Node, &bytes);
        assert!(said.starts_with(b"SDT2") && said[4] != 0, "{said:?}");
    }
    for role in [Role::Client, Role::Observer] {
        assert_eq!(answer(role, &hello(ours, cluster, 0)), b"", "objects go to nodes alone");
    }
    let plain = hello(ours, cluster, 0);
    for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[0xff; 65_536], &plain] {
        let mut stream = TcpStream::connect(&address).expect("the port is open");
        let said = say(&mut stream, noise);
        // At most a TLS alert of 7 bytes.
        assert!(said.len() <= 7, "nothing is said to noise: {said:?}");
        assert!(answer(Role::Node, noise).is_empty() || noise == plain, "nor to noise of a node");
    }
    // An authenticated peer that requests absent objects, and then sends noise.
    let mut asks = hello(ours, cluster, 0);
    asks.extend([7; 28 * 3]);
    asks.extend([0xff; 11]);
    let said = answer(Role::Node, &asks);
    let not_there = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(said[8..], not_there.repeat(3), "after the greeting");
    let pid = instance.pid(0);
    let end = instance.starling(&["submit", "--wait", "--", "true"]);
    assert!(end.code == 0 && is_alive(pid), "{end:?}");
    instance.down();
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// Nodes that are up are not declared failed: their outputs are fetched, not rebuilt.
#[test]
fn what_other_nodes_made_is_fetched_and_not_made_again() {
    let sandbox = starling_tests::Sandbox::new();
    for shape in ["fan-out", "fan-in"] {
        let workload = format!("{shape}:tasks=111,degree=10,output=8MB");
        let run = ["run", &workload, "--nodes", "3", "--slots", "2", "--json"];
        let tasks = sandbox.starling(&run).ok().json()["tasks"].clone();
        assert_eq!((&tasks["done"], &tasks["executions"]), (&111.into(), &111.into()), "{tasks}");
    }
}

/// Uses a separate file system for the node, where that is permitted.
#[test]
fn a_full_disk_is_reported_and_leaves_nothing_half_written() {
    let sandbox = starling_tests::Sandbox::new();
    let may = std::process::Command::new("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "tmpfs"])
        .arg(sandbox.path(""))
        .output();
    if !may.is_ok_and(|output| output.status.success()) {
        return starling_tests::skip("a file system cannot be mounted here");
    }
    sandbox.write(
        "w.toml",
        "[[task]]\nname='huge'\nbody='noop'\noutputs={x={file='x',size='60MB'}}\n\
         [[task]]\nname='small-{i}'\narray='1-5'\nbody='noop'\n\
         outputs={y={file='y{i}',size='10kB',keep=true}}\n",
    );
    let full = sandbox.path("full");
    fs::create_dir(&full).expect("a directory");
    // Checked while the node still runs, because its end cleans up.
    let script = "mount -t tmpfs -o size=40m tmpfs \"$1\" && export TMPDIR=\"$1\" && \
                  export STARLING_DIR=\"$1/i\" && \"$2\" up --nodes 1 --store-hard 1GB >&2 && \
                  \"$2\" submit --file w.toml --data real --wait --json; code=$?; \
                  find \"$1\" -name '*.part' -o -name '*-kept' >&2; \"$2\" down >&2; exit $code";
    let mut command = std::process::Command::new("unshare");
    command.args(["-rm", "sh", "-c", script, "sh"]).arg(&full).arg(starling_tests::binary());
    let ran = sandbox.start_command(command).end().expect_code(1);
    let line = ran.stdout.lines().last().expect("the job's end");
    let report: Value = serde_json::from_str(line).expect("it is JSON");
    assert_eq!(report["state"], "failed", "{report}");
    for part in ["huge", "node n0", "no space left on device", "1 of 6 tasks failed"] {
        assert!(ran.stderr.contains(part), "'{part}' is not in:\n{}", ran.stderr);
    }
    assert_eq!(ran.stderr.matches("-kept").count(), 5, "{}", ran.stderr);
    assert!(!ran.stderr.contains(".part"), "{}", ran.stderr);
}

//! Nodes and clients die at critical moments; no task is lost, and none counts twice. Partitions
//! have one copy here; `replicas` tests failover.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use starling_tests::{Instance, Sandbox, is_alive, wait_until};

use crate::cluster::{job, submit, wait_for_pid};

/// A graph of many short commands in three layers that record their runs. The last one waits while
/// there is a file `hold`.
fn layers(instance: &Instance, tasks: u32) {
    let log = instance.sandbox().path("ran").display().to_string();
    let hold = instance.sandbox().path("hold").display().to_string();
    let note = format!("echo $STARLING_TASK_ID $STARLING_ATTEMPT >> {log}; sleep 0.05");
    instance.sandbox().write(
        "w.toml",
        format!(
            "[[task]]\nname='a-{{i}}'\narray='1-{tasks}'\noutputs={{x='a{{i}}'}}\n\
             command=['sh','-c','echo {{i}} > a{{i}}; {note}']\n\
             [[task]]\nname='b-{{i}}'\narray='1-{tasks}'\n\
             inputs={{x='a{{i}}'}}\noutputs={{y='b{{i}}'}}\n\
             command=['sh','-c','cat {{in:x}} {{in:x}} > b{{i}}; {note}']\n\
             [[task]]\nname='c-{{i}}'\narray='1-{tasks}'\ninputs={{y='b{{i}}'}}\n\
             command=['sh','-c','while test -e {hold}; do sleep 0.1; done; \
             test $(wc -l < {{in:y}}) = 2; {note}']\n"
        ),
    );
}

/// The number of runs of each task, as the tasks recorded them.
fn executions(instance: &Instance) -> BTreeMap<String, u32> {
    let text = fs::read_to_string(instance.sandbox().path("ran")).unwrap_or_default();
    let mut times = BTreeMap::new();
    for task in text.lines().filter_map(|line| line.split(' ').next()) {
        *times.entry(task.to_owned()).or_default() += 1;
    }
    times
}

fn done(instance: &Instance, id: &str) -> u64 {
    job(instance, id)["tasks"]["done"].as_u64().unwrap_or(0)
}

fn ended_whole(instance: &Instance, id: &str, tasks: u64) {
    instance.starling(&["job", "wait", id]).ok();
    let info = job(instance, id);
    assert_eq!(info["state"], "finished", "{info}");
    assert_eq!(info["tasks"]["total"], tasks, "{info}");
    // Counts are commits: one for each task, however often it ran.
    assert_eq!(info["tasks"]["done"], tasks, "{info}");
    assert_eq!(info["tasks"]["failed"], 0, "{info}");
    let ran = executions(instance);
    assert_eq!(ran.len() as u64, tasks, "each task ran at least once");
    let commits = instance.commits();
    assert!(commits.len() as u64 > tasks / 2, "{} of {tasks} in the logs", commits.len());
    for (task, times) in commits {
        assert!(times == 1, "{task} was committed {times} times:\n{}", instance.story_of(task));
    }
    let list = instance.json(&["task", "list", id]);
    let listed = list["tasks"].as_array().expect("a list of tasks");
    assert_eq!(listed.len() as u64, tasks);
    assert!(listed.iter().all(|task| task["state"] == "done"), "{list}");
}

#[test]
fn a_killed_node_comes_back_and_the_job_completes() {
    let mut instance = Instance::up_with_copies(3, 2, 1);
    layers(&instance, 60);
    let id = submit(&instance, &["--file", "w.toml"]);
    for (victim, after) in [(1, 20), (0, 70), (2, 120)] {
        wait_until("the job gets on", || done(&instance, &id) >= after);
        instance.kill(victim);
        instance.start_missing();
    }
    ended_whole(&instance, &id, 180);
    instance.down();
}

#[test]
fn all_nodes_killed_at_once_lose_nothing() {
    let mut instance = Instance::up_with_copies(3, 2, 1);
    layers(&instance, 40);
    let id = submit(&instance, &["--file", "w.toml"]);
    wait_until("the job gets on", || done(&instance, &id) >= 30);
    for node in 0..3 {
        instance.kill(node);
    }
    instance.start_missing();
    ended_whole(&instance, &id, 120);
    instance.down();
}

#[test]
fn a_killed_client_leaves_its_job_running_and_another_attaches() {
    let instance = Instance::up_with_copies(2, 2, 1);
    layers(&instance, 40);
    instance.sandbox().write("hold", "");
    let client = instance.start(&["submit", "--file", "w.toml", "--wait", "--json"]);
    let jobs = || instance.json(&["job", "list"])["jobs"].as_array().cloned().unwrap_or_default();
    wait_until("the job is accepted", || !jobs().is_empty());
    let id = jobs()[0]["job"].as_str().expect("jobs have ids").to_owned();
    wait_until("the job gets on", || done(&instance, &id) >= 8);
    client.signal(Signal::KILL);
    assert_eq!(client.end().code, 128 + 9);
    fs::remove_file(instance.sandbox().path("hold")).expect("it is there");
    ended_whole(&instance, &id, 120);
    instance.down();
}

#[test]
fn a_command_dies_with_its_node() {
    let mut instance = Instance::up_with_copies(2, 1, 1);
    let pid_file = instance.sandbox().path("pid").display().to_string();
    // Its second run, after the node's return, ends at once.
    let script = format!(
        "if test -e {pid_file}; then exit 0; fi; echo $$ > {pid_file}.new; \
         mv {pid_file}.new {pid_file}; sleep 1000 & wait"
    );
    let id = submit(&instance, &["--", "sh", "-c", &script]);
    let pid = wait_for_pid(&pid_file);
    let children = children(pid);
    assert_eq!(children.len(), 1, "the shell has its sleep");
    let list = instance.json(&["task", "list", &id]);
    let node = list["tasks"][0]["node"].as_u64().expect("it runs somewhere");
    instance.kill(u32::try_from(node).expect("node ids are small"));
    wait_until("the command is gone", || !is_alive(pid));
    wait_until("what it started is gone", || !is_alive(children[0]));
    instance.start_missing();
    instance.starling(&["job", "wait", &id]).ok();
    assert_eq!(job(&instance, &id)["tasks"]["done"], 1);
    instance.down();
}

fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let read = || fs::read_to_string(&path).unwrap_or_default();
    wait_until("the command has a child", || !read().trim().is_empty());
    read().split_whitespace().map(|word| word.parse().expect("a pid")).collect()
}

#[test]
fn an_interrupted_run_stops_its_cluster_and_exits_130() {
    let sandbox = Sandbox::new();
    let running = sandbox.start(&["run", "bag:tasks=4,duration=600s", "--nodes", "2"]);
    // Normally the run is in progress by then. An interrupt before that must work as well.
    std::thread::sleep(Duration::from_secs(1));
    running.signal(Signal::INT);
    let ran = running.end();
    assert_eq!(ran.code, 130, "{ran:?}");
}

/// Bytes that are no frames never crash a node.
#[test]
fn garbage_on_its_port_does_not_crash_a_node() {
    use std::io::Write;
    let instance = Instance::up(1, 1);
    let list = instance.json(&["node", "list"]);
    let address = list["nodes"][0]["addr"].as_str().expect("an address").to_owned();
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let zeros: &[u8] = &[0; 4096];
    let huge: &[u8] = &[0xff; 65_536];
    let mixed = [preface, huge].concat();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], zeros, huge, preface, &mixed] {
        let mut stream = std::net::TcpStream::connect(&address).expect("the port is open");
        // The node may close while we still write.
        let _ = stream.write_all(bytes);
    }
    let pid = instance.pid(0);
    instance.starling(&["kv", "insert", "still", "alive"]).ok();
    assert!(is_alive(pid));
    instance.down();
}

/// Short campaigns of kills and stops. The trees have a published size, and callers use the store
/// meanwhile.
#[test]
fn a_campaign_loses_nothing_and_does_nothing_twice() {
    let sandbox = Sandbox::new();
    for copies in ["1", "2"] {
        let arguments = ["check", "--processes", "--kills", "5", "--seed", "4", "--json"];
        let arguments = [&arguments[..], &["--replicas", copies]].concat();
        let seen = sandbox.starling(&arguments).ok().json();
        assert_eq!(seen["tasks_each"], 1732, "{seen}");
        let runs = seen["runs"].as_u64().expect("a number");
        assert!(runs > 0 && seen["kills"].as_u64() >= Some(5), "{seen}");
        assert_eq!(seen["tasks_done"], runs * 1732, "{seen}");
        for wrong in ["lost", "twice", "stuck", "kv_wrong"] {
            assert_eq!(seen[wrong], 0, "{seen}");
        }
        for used in ["kv_operations", "kv_watched"] {
            assert!(seen[used].as_u64() > Some(10), "{used}: {seen}");
        }
    }
}

#[test]
fn no_verb_guesses_at_jobs_while_their_homes_are_away() {
    let mut instance = Instance::up_with_copies(2, 1, 1);
    for _ in 0..3 {
        instance.starling(&["submit", "--", "sleep", "600"]).ok();
    }
    instance.kill(1);
    let listed = instance.starling(&["job", "list"]).expect_code(3);
    assert!(listed.stderr.contains("the jobs of n1 are not known"), "{}", listed.stderr);
    let refused = instance.starling(&["job", "cancel", "last"]).expect_code(3).stderr;
    assert!(refused.contains("the jobs of n1 are not known"), "{refused}");
    instance.start_missing();
    let jobs = instance.json(&["job", "list"]);
    let states: Vec<_> = jobs["jobs"].as_array().expect("a list").iter().collect();
    assert_eq!(states.len(), 3, "{jobs}");
    assert!(states.iter().all(|job| job["state"] == "running"), "{jobs}");
    instance.starling(&["job", "cancel", "all"]).ok();
    instance.down();
}

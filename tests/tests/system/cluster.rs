//! Nodes as separate processes: up, submit, look, store, down.

use serde_json::Value;
use starling_tests::{Instance, Sandbox, is_alive, wait_until};

/// Submits a workflow file or a command and returns the job's id.
pub(crate) fn submit(instance: &Instance, arguments: &[&str]) -> String {
    let mut all = vec!["submit", "--json"];
    all.extend(arguments);
    let answer = instance.starling(&all).ok().json();
    answer["job"].as_str().unwrap_or_else(|| panic!("no job in {answer}")).to_owned()
}

pub(crate) fn job(instance: &Instance, job: &str) -> Value {
    instance.json(&["job", "info", job])
}

#[test]
fn up_shows_its_nodes_and_down_ends_them() {
    let instance = Instance::up(3, 2);
    let list = instance.json(&["node", "list"]);
    let nodes = list["nodes"].as_array().expect("a list of nodes");
    assert_eq!(nodes.len(), 3, "{list}");
    for (id, node) in nodes.iter().enumerate() {
        assert_eq!(node["id"], id, "{list}");
        assert_eq!(node["slots"], 2, "{list}");
        assert_eq!(node["state"], "up", "{list}");
        let pid = u32::try_from(node["pid"].as_u64().expect("a pid")).expect("pids are small");
        assert!(is_alive(pid));
        assert!(node["addr"].as_str().is_some_and(|text| text.starts_with("127.0.0.1:")));
    }
    instance.down();
}

#[test]
fn keys_are_for_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let instance = Instance::up(1, 1);
    let mode = |name: &str| {
        let path = instance.directory().join(name);
        std::fs::metadata(&path).expect("it exists").permissions().mode() & 0o777
    };
    assert_eq!(mode("."), 0o700);
    assert_eq!(mode("keys"), 0o700);
    for role in ["authority", "node", "client", "observer"] {
        assert_eq!(mode(&format!("keys/{role}.pem")), 0o600);
    }
    // The key of another cluster is refused.
    let other = Instance::up(1, 1);
    let key = "keys/client.pem";
    std::fs::copy(other.directory().join(key), instance.directory().join(key)).expect("ours");
    let ran = instance.starling(&["node", "list"]);
    assert_ne!(ran.code, 0, "{ran:?}");
}

#[test]
fn a_command_is_submitted_waited_for_and_read() {
    let instance = Instance::up(2, 2);
    let id = submit(&instance, &["--name", "hello", "--", "sh", "-c", "echo hello; echo oops >&2"]);
    instance.starling(&["job", "wait", &id]).ok();
    let info = job(&instance, &id);
    assert_eq!(info["state"], "finished", "{info}");
    assert_eq!(info["tasks"]["done"], 1, "{info}");
    let output = instance.starling(&["job", "output", &id]).ok();
    assert!(output.stdout.contains("hello"), "{output:?}");
    let list = instance.json(&["task", "list", &id]);
    let task = &list["tasks"][0];
    assert_eq!(task["name"], "hello", "{list}");
    assert_eq!(task["state"], "done", "{list}");
    assert_eq!(task["exit_code"], 0, "{list}");
    instance.down();
}

#[test]
fn an_array_runs_each_of_its_tasks() {
    let instance = Instance::up(2, 2);
    let log = instance.sandbox().path("entries").display().to_string();
    let script = format!("echo $STARLING_ENTRY >> {log}");
    let arguments = ["--array", "1-100", "--wait", "--", "sh", "-c", &script];
    let id = submit(&instance, &arguments);
    assert_eq!(job(&instance, &id)["tasks"]["done"], 100);
    let text = std::fs::read_to_string(&log).expect("the tasks wrote it");
    let mut entries: Vec<u32> = text.lines().map(|line| line.parse().expect("a number")).collect();
    entries.sort_unstable();
    assert_eq!(entries, (1..=100).collect::<Vec<_>>());
    instance.down();
}

#[test]
fn a_waiting_client_sees_a_failed_job() {
    let instance = Instance::up(1, 1);
    let id = submit(&instance, &["--", "sh", "-c", "exit 3"]);
    let ran = instance.starling(&["job", "wait", &id]).expect_code(1);
    assert!(ran.stderr.contains("exit code 3"), "{}", ran.stderr);
    let list = instance.json(&["task", "list", &id]);
    assert_eq!(list["tasks"][0]["exit_code"], 3, "{list}");
    assert_eq!(list["tasks"][0]["state"], "failed", "{list}");
    instance.down();
}

#[test]
fn explain_gives_the_reason_of_a_wait_and_the_node_of_a_run() {
    let instance = Instance::up(2, 1);
    let flag = instance.sandbox().path("go").display().to_string();
    instance.sandbox().write(
        "w.toml",
        format!(
            "[[task]]\nname='first'\noutputs={{x='x'}}\n\
             command=['sh','-c','while ! test -e {flag}; do sleep 0.02; done; echo 1 > x']\n\
             [[task]]\nname='second'\ninputs={{x='x'}}\ncommand=['cat','{{in:x}}']\n"
        ),
    );
    let id = submit(&instance, &["--file", "w.toml"]);
    wait_until("the first task runs", || job_state_of(&instance, &id, "first") == "running");
    let why = instance.starling(&["task", "explain", &id, "second"]).ok();
    assert!(why.stdout.contains("first"), "the missing parent is named: {why:?}");
    std::fs::write(&flag, "").expect("it is ours");
    instance.starling(&["job", "wait", &id]).ok();
    let why = instance.starling(&["task", "explain", &id, "second"]).ok();
    assert!(why.stdout.contains("node"), "where it ran is said: {why:?}");
    instance.down();
}

/// The state of a named task of a job.
fn job_state_of(instance: &Instance, id: &str, name: &str) -> String {
    let list = instance.json(&["task", "list", id]);
    let tasks = list["tasks"].as_array().expect("a list of tasks");
    let task = tasks.iter().find(|task| task["name"] == name);
    task.and_then(|task| task["state"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn a_job_is_cancelled_with_its_processes() {
    let instance = Instance::up(1, 1);
    let pid_file = instance.sandbox().path("pid").display().to_string();
    let script = format!("echo $$ > {pid_file}; exec sleep 1000");
    let id = submit(&instance, &["--", "sh", "-c", &script]);
    let pid = wait_for_pid(&pid_file);
    instance.starling(&["job", "cancel", &id]).ok();
    wait_until("the command is gone", || !is_alive(pid));
    wait_until("the job says so", || job(&instance, &id)["tasks"]["cancelled"] == 1);
    instance.down();
}

pub(crate) fn wait_for_pid(file: &str) -> u32 {
    let read = || std::fs::read_to_string(file).ok()?.trim().parse().ok();
    wait_until("the command runs", || read().is_some());
    read().expect("it was there")
}

#[test]
fn keys_are_stored_found_compared_and_survive_a_restart() {
    let instance = Instance::up(2, 1);
    let kv = |arguments: &[&str]| {
        let mut all = vec!["kv"];
        all.extend(arguments);
        instance.starling(&all)
    };
    kv(&["insert", "bird", "starling"]).ok();
    assert_eq!(kv(&["lookup", "bird"]).ok().stdout.trim_end(), "starling");
    kv(&["append", "bird", "s"]).ok();
    assert_eq!(kv(&["lookup", "bird"]).ok().stdout.trim_end(), "starlings");
    let absent = kv(&["lookup", "fish"]);
    assert_ne!(absent.code, 0, "{absent:?}");
    for key in 0..20 {
        kv(&["insert", &format!("key-{key}"), &format!("value-{key}")]).ok();
    }
    kv(&["remove", "key-7"]).ok();
    instance.starling(&["down"]).ok();
    let (nodes, slots) = ("2", "1");
    instance.starling(&["up", "--nodes", nodes, "--slots", slots]).ok();
    assert_eq!(kv(&["lookup", "bird"]).ok().stdout.trim_end(), "starlings");
    assert_eq!(kv(&["lookup", "key-19"]).ok().stdout.trim_end(), "value-19");
    assert_ne!(kv(&["lookup", "key-7"]).code, 0, "what was removed stays removed");
    instance.down();
}

#[test]
fn two_instances_on_one_host_do_not_meet() {
    let first = Instance::up(2, 1);
    let second = Instance::up(2, 1);
    first.starling(&["kv", "insert", "instance", "first"]).ok();
    assert_ne!(second.starling(&["kv", "lookup", "instance"]).code, 0);
    let id = submit(&second, &["--wait", "--", "true"]);
    assert_eq!(job(&second, &id)["tasks"]["done"], 1);
    assert_ne!(first.starling(&["job", "info", &id]).code, 0, "the first knows nothing of it");
    first.down();
    assert_eq!(second.starling(&["kv", "insert", "still", "here"]).code, 0);
    second.down();
}

#[test]
fn a_state_directory_in_use_or_of_a_newer_version_is_refused() {
    let instance = Instance::up(1, 1);
    let sandbox = Sandbox::new();
    let directory = instance.directory().display().to_string();
    let state = instance.directory().join("nodes/0/state");
    assert_eq!(
        std::fs::read_to_string(state.join("format")).expect("it exists").trim(),
        proto::limits::STATE_VERSION.to_string()
    );
    instance.starling(&["down"]).ok();
    std::fs::write(state.join("format"), "99\n").expect("it is ours");
    let ran = sandbox.starling(&["--dir", &directory, "up", "--nodes", "1"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("99"), "{}", ran.stderr);
}

#[test]
fn a_job_of_commands_stands_beside_its_bound_by_what_they_took() {
    let instance = Instance::up(2, 2);
    let file = instance.sandbox().write(
        "w.toml",
        "[[task]]\nname = 'first'\ncommand = ['sleep', '0.3']\n\
         [[task]]\nname = 'second-{i}'\narray = '1-2'\ncommand = ['sleep', '0.2']\nafter = ['first']\n",
    );
    let file = file.display().to_string();
    instance.starling(&["submit", "--file", &file, "--wait"]).ok();
    let alone = instance.json(&["bound", &file, "--nodes", "2"]);
    assert_eq!(alone["critical_path_s"], 0.0, "a file does not tell what commands take");
    let bound = instance.json(&["bound", &file, "--run", "1"]);
    let path_s = bound["critical_path_s"].as_f64().expect("a number");
    let makespan_s = bound["run"]["makespan_s"].as_f64().expect("a number");
    assert!(path_s >= 0.5, "both slept: {bound}");
    assert!(path_s <= makespan_s, "{bound}");
    instance.down();
}

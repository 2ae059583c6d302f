//! Living with runs: live output, failures in groups, selected tasks, records without a cluster,
//! settings and examples.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use starling_tests::{Instance, Sandbox, binary, files_below, wait_until};

/// The id of the job that a submission prints.
fn submitted(instance: &Instance, arguments: &[&str]) -> String {
    let words = [&["submit"], arguments].concat();
    instance.starling(&words).ok().stdout.trim().to_owned()
}

#[test]
fn output_is_followed_while_tasks_run() {
    let instance = Instance::up(2, 2);
    let go = instance.sandbox().path("go");
    let wait = format!("while [ ! -e '{}' ]; do sleep 0.1; done", go.display());
    let script = format!("echo begin {{i}}; echo no >&2; {wait}; printf 'end {{i}}'");
    let job = submitted(&instance, &["--array", "1-3", "--", "sh", "-c", &script]);
    let follower = instance.start(&["job", "logs", &job, "-f"]);
    let one = instance.start(&["job", "logs", &job, "2", "-f", "--stdout"]);
    wait_until("the first lines", || {
        let text = follower.output_so_far();
        (1..=3).all(|n| text.contains(&format!("sh-{n} | begin {n}\n")))
            && one.output_so_far() == "begin 2\n"
    });
    // All of it is there although no task has ended.
    let list = instance.json(&["job", "list", &job]);
    assert_eq!(list["jobs"][0]["done"], 0, "{list}");
    let so_far = instance.starling(&["job", "logs", &job, "1", "--stderr"]).ok();
    assert_eq!(so_far.stdout, "no\n");
    fs::write(go, "").unwrap();
    let text = follower.end().ok().stdout;
    for number in 1..=3 {
        assert!(text.contains(&format!("sh-{number} | end {number}\n")), "{text}");
        assert!(text.contains(&format!("sh-{number} ! no\n")), "{text}");
    }
    assert_eq!(text.lines().count(), 9, "{text}");
    assert_eq!(one.end().ok().stdout, "begin 2\nend 2");
    let again = instance.starling(&["job", "logs", &job, "--json", "--stdout"]).ok().stdout;
    let rows: Vec<Value> = again.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!(rows.len(), 6, "{again}");
    assert!(rows.iter().all(|row| row["schema"] == 1 && row["stream"] == "stdout"), "{again}");
    instance.down();
}

/// A node dies with its tasks and its output. The tasks run again, and the output is complete.
#[test]
fn output_is_followed_past_the_death_of_a_node() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    let go = instance.sandbox().path("go");
    let wait = format!("while [ ! -e '{}' ]; do sleep 0.1; done", go.display());
    let script = format!("echo begin {{i}}; {wait}; echo end {{i}}");
    let job = submitted(&instance, &["--array", "1-3", "--", "sh", "-c", &script]);
    let follower = instance.start(&["job", "logs", &job, "-f", "--stdout"]);
    wait_until("the first lines", || {
        let text = follower.output_so_far();
        (1..=3).all(|n| text.contains(&format!("begin {n}\n")))
    });
    instance.kill(2);
    wait_until("the warning", || follower.errors_so_far().contains("n2 does not answer"));
    fs::write(go, "").unwrap();
    let ran = follower.end().ok();
    for number in 1..=3 {
        assert!(ran.stdout.contains(&format!("sh-{number} | end {number}\n")), "{ran:?}");
    }
    instance.down();
}

/// A command that waits goes on as the next attempt of its task, which has all of its output.
#[test]
fn output_before_a_wait_is_shown_once() {
    let instance = Instance::up(1, 2);
    let starling = binary().display().to_string();
    let waits = format!("{starling} spawn -- true > spawned; {starling} await > ended");
    let script = format!("echo one; printf 'tw'; echo no >&2; {waits}; echo o; {waits}; echo end");
    let job = submitted(&instance, &["--", "sh", "-c", &script]);
    let followed = instance.starling(&["job", "logs", &job, "-f"]).ok();
    let ran = instance.starling(&["job", "logs", &job]).ok();
    for ran in [followed, ran] {
        let mut lines: Vec<&str> = ran.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["sh ! no", "sh | end", "sh | one", "sh | two"], "{ran:?}");
        assert!(!ran.stderr.contains("runs again"), "{ran:?}");
    }
    let one = instance.starling(&["job", "logs", &job, "sh", "--stdout"]).ok();
    assert_eq!(one.stdout, instance.starling(&["job", "output", &job, "sh"]).ok().stdout);
    instance.down();
}

#[test]
fn tasks_are_selected_and_in_order() {
    let instance = Instance::up(1, 4);
    let script = "[ {i} != 7 ] || exit 3";
    let job = submitted(&instance, &["--array", "1-12", "--", "sh", "-c", script]);
    let _ = instance.starling(&["job", "wait", &job]).expect_code(1);
    let names = |flags: &[&str]| -> Vec<String> {
        let list = instance.json(&[&["task", "list", &job], flags].concat());
        let tasks = list["tasks"].as_array().unwrap().iter();
        tasks.map(|task| task["name"].as_str().unwrap().to_owned()).collect()
    };
    let all: Vec<String> = (1..=12).map(|number| format!("sh-{number}")).collect();
    assert_eq!(names(&[]), all);
    assert_eq!(names(&["--state", "failed"]), ["sh-7"]);
    assert_eq!(names(&["--kind", "sh", "--limit", "2"]), all[..2]);
    assert_eq!(names(&["--kind", "other"]), [""; 0]);
    assert_eq!(names(&["--reverse", "--limit", "1"]), ["sh-12"]);
    let limited = instance.json(&["task", "list", &job, "--limit", "5"]);
    assert_eq!((&limited["more"], &limited["tasks"][0]["kind"]), (&7.into(), &"sh".into()));
    let wrong = instance.starling(&["task", "list", &job, "--state", "fialed"]).expect_code(2);
    assert!(wrong.stderr.contains("'failed'"), "{}", wrong.stderr);
    instance.down();
}

/// The value with twelve digits of each number: a record that is read may differ in the last one.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            format!("{:.11e}", number.as_f64().expect("looked at above")).into()
        }
        Value::Array(all) => all.iter().map(rounded).collect(),
        Value::Object(all) => {
            Value::Object(all.iter().map(|(key, it)| (key.clone(), rounded(it))).collect())
        }
        other => other.clone(),
    }
}

/// Alike failures of one kind, and another one.
fn failing(sandbox: &Sandbox) {
    let text = "[[task]]\nname='fail-{i}'\narray='1-300'\n\
         command=['sh','-c','echo no /tmp/{i} >&2; exit 3']\n\
         [[task]]\nname='odd'\ncommand=['sh','-c','exit 9']\n\
         [[task]]\nname='next'\nafter=['odd']\ncommand=['true']\n\
         [[task]]\nname='good'\ncommand=['sh','-c','echo 1 > {out:o}']\n\
         outputs={o={file='o',keep=true}}\n";
    sandbox.write("failing.toml", text);
}

#[test]
fn alike_failures_are_told_once_and_records_show_the_run() {
    let sandbox = Sandbox::new();
    failing(&sandbox);
    let words = ["run", "--nodes", "2", "--slots", "2", "failing.toml", "--json"];
    let ran = sandbox.starling(&words).expect_code(1);
    assert_eq!(ran.stderr.matches("task 'fail-").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("and 299 alike"), "{}", ran.stderr);
    assert!(ran.stderr.contains("task 'odd' failed"), "{}", ran.stderr);
    assert!(ran.stderr.contains("301 of 303 tasks failed, 1 skipped"), "{}", ran.stderr);
    let run = ran.json();
    let from = "starling-runs";
    let listed = sandbox.starling(&["job", "list", "--from", from, "--json"]).ok().json();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["jobs"][0]["failed"], 301, "{listed}");
    let info = sandbox.starling(&["job", "info", "last", "--from", from, "--json"]).ok().json();
    for field in ["tasks", "makespan_s", "work_s", "utilization", "policy", "slots"] {
        assert_eq!(rounded(&info[field]), rounded(&run[field]), "{field}");
    }
    let text = sandbox.starling(&["job", "info", "--from", from]).ok().stdout;
    assert!(text.contains("300 alike: exit code 3, kind 'fail'"), "{text}");
    let words = ["task", "list", "last", "--from", from, "--state", "failed", "--limit", "2"];
    let list = sandbox.starling(&[&words[..], &["--json"]].concat()).ok().json();
    assert_eq!((&list["more"], &list["tasks"][1]["name"]), (&299.into(), &"fail-2".into()));
    let explained = sandbox.starling(&["task", "explain", "last", "odd", "--from", from]).ok();
    assert!(explained.stdout.contains("started on n"), "{}", explained.stdout);
    assert!(explained.stdout.contains("failed with exit code 9"), "{}", explained.stdout);
    let skipped = sandbox.starling(&["task", "explain", "last", "next", "--from", from]).ok();
    assert!(skipped.stdout.contains("did not succeed"), "{}", skipped.stdout);
    for (words, error) in [
        (&["job", "list", "--from", "absent"][..], "absent: no such file"),
        (&["job", "list", "--from", "."], "there is no run record"),
        (&["job", "info", "7", "--from", from], "no record of such a job"),
        (&["task", "list", "last", "none", "--from", from], "no task 'none'"),
        (&["job", "info", "--from", "failing.toml"], "this is not a run record"),
    ] {
        let refused = sandbox.starling(words).expect_code(4);
        assert!(refused.stderr.contains(error), "{words:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("hint: "), "{words:?}: {}", refused.stderr);
    }
}

/// The keys of one line of JSON, in their order.
fn keys(json: &str) -> Vec<&str> {
    let parts: Vec<&str> = json.split('"').collect();
    let is_key = |pair: &&[&str]| pair[1].starts_with(':');
    parts.windows(2).filter(is_key).map(|pair| pair[0]).collect()
}

/// After an orderly stop the directory of the instance shows its jobs.
#[test]
fn a_stopped_instance_shows_its_jobs() {
    let instance = Instance::up(2, 2);
    let script = "sleep 0.05; [ {i} != 3 ] || exit 4";
    let job = submitted(&instance, &["--array", "1-9", "--", "sh", "-c", script]);
    instance.starling(&["job", "wait", &job]).expect_code(1);
    wait_until("the summary", || instance.json(&["job", "info", &job])["recorded"] == true);
    let live = instance.starling(&["job", "info", &job, "--json"]).ok();
    let before = live.json();
    instance.starling(&["down"]).ok();
    let dir = instance.directory().to_str().unwrap().to_owned();
    let sandbox = instance.sandbox();
    assert_eq!(sandbox.starling(&["--dir", &dir, "job", "list"]).code, 3, "no node answers");
    let offline = sandbox.starling(&["job", "info", &job, "--from", &dir, "--json"]).ok();
    assert_eq!(rounded(&offline.json()), rounded(&before));
    assert_eq!(keys(&offline.stdout), keys(&live.stdout), "in the same order");
    let listed = sandbox.starling(&["job", "list", "--from", &dir, "--json"]).ok().json();
    assert_eq!((&listed["jobs"][0]["total"], &listed["jobs"][0]["failed"]), (&9.into(), &1.into()));
    let words = ["task", "list", &job, "--from", &dir, "--state", "failed", "--json"];
    assert_eq!(sandbox.starling(&words).ok().json()["tasks"][0]["name"], "sh-3");
    let report = sandbox.starling(&["report", &job, "--from", &dir, "--json"]).ok().json();
    assert_eq!((&report["attempts"], &report["missing"]), (&9.into(), &Value::Array(Vec::new())));
    sandbox.starling(&["trace", &job, "--from", &dir, "-o", "trace.json"]).ok();
    let compared = ["report", &job, "--against", &job, "--from", &dir, "--json"];
    let compared = sandbox.starling(&compared).ok().json();
    assert!(compared["comparison"].is_object(), "{compared}");
    instance.starling(&["up"]).ok();
    instance.starling(&["job", "forget", &job]).ok();
    let gone = sandbox.starling(&["job", "info", &job, "--from", &dir]).expect_code(4);
    assert!(gone.stderr.contains("no run record"), "{}", gone.stderr);
    instance.down();
}

/// The record of a job lacks the events of a node that is away, until a later stop has them.
#[test]
fn a_record_is_made_again_with_the_events_of_all_nodes() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    let job = submitted(&instance, &["--array", "1-30", "--", "sleep", "0.05"]);
    instance.starling(&["job", "wait", &job]).ok();
    wait_until("the summary", || instance.json(&["job", "info", &job])["recorded"] == true);
    let dir = instance.directory().to_str().unwrap().to_owned();
    let missing = |instance: &Instance| {
        let words = ["report", &job, "--from", &dir, "--json"];
        instance.sandbox().starling(&words).ok().json()["missing"].as_array().unwrap().len()
    };
    instance.kill(1);
    // A part of the job may be at home there: another node takes it over.
    wait_until("all homes", || instance.starling(&["job", "info", &job]).code == 0);
    instance.starling(&["down"]).ok();
    assert_eq!(missing(&instance), 1);
    let words = ["report", &job, "--from", &dir];
    let text = instance.sandbox().starling(&words).ok().stdout;
    assert!(text.contains("utilization  at least "), "{text}");
    instance.starling(&["up"]).ok();
    instance.starling(&["down"]).ok();
    assert_eq!(missing(&instance), 0);
}

#[test]
fn the_doctor_finds_troubles_and_tells_no_secrets() {
    let instance = Instance::up(1, 1);
    let (sandbox, dir) = (instance.sandbox(), instance.directory().to_owned());
    let healthy = instance.json(&["doctor"]);
    assert_eq!(healthy["healthy"], true, "{healthy}");
    let checks = healthy["checks"].as_array().unwrap();
    let cluster = checks.iter().find(|check| check["check"] == "cluster").unwrap();
    assert_eq!(cluster["text"], "1 of 1 nodes answer", "{healthy}");
    instance.starling(&["doctor", "--bundle", "bundle.tgz"]).ok();
    let mut tar = Command::new("tar");
    tar.args(["-xzf", "bundle.tgz"]);
    sandbox.start_command(tar).end().ok();
    let files = files_below(&sandbox.path("starling-doctor"));
    let names = |end: &str| files.iter().any(|path| path.ends_with(end));
    assert!(names("doctor.json") && names("nodes/0/state-log"), "{files:?}");
    let is_secret = |path: &PathBuf| {
        let text = fs::read(path).unwrap();
        String::from_utf8_lossy(&text).contains("PRIVATE KEY")
    };
    assert!(!files.iter().any(is_secret), "{files:?}");
    let key = dir.join("keys/client.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let open = instance.starling(&["doctor"]).expect_code(1);
    assert!(open.stdout.contains("FAIL  keys"), "{}", open.stdout);
    assert!(open.stdout.contains("cure: chmod 600"), "{}", open.stdout);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let nothing = sandbox.starling(&["doctor", "--dir", "absent"]).ok();
    assert!(nothing.stdout.contains("no cluster is here"), "{}", nothing.stdout);
    instance.down();
}

#[test]
fn settings_are_written_and_checked() {
    let sandbox = Sandbox::new();
    let config = |words: &[&str]| sandbox.starling(&[&["config"], words].concat());
    config(&["set", "slots", "3"]).ok();
    assert_eq!(config(&["get", "slots"]).ok().stdout, "3\n");
    let path = config(&["path"]).ok().stdout;
    let text = fs::read_to_string(path.trim()).unwrap();
    assert_eq!(text, "slots = \"3\"\n");
    config(&["set", "slots", "2", "--here"]).ok();
    assert_eq!(config(&["get", "slots"]).ok().stdout, "2\n", "the nearer file");
    let note = config(&["set", "slots", "5"]).ok().stderr;
    assert!(note.contains("starling.toml has slots, too"), "{note}");
    config(&["unset", "slots", "--here"]).ok();
    assert_eq!(config(&["get", "slots"]).ok().stdout, "5\n");
    for (words, error) in [
        (&["set", "slots", "many"][..], "slots: 'many' is not a whole number from"),
        (&["set", "slotts", "1"], "'slots' is meant?"),
        (&["get", "slotts"], "unknown setting 'slotts'"),
        (&["set", "policy", "best"], "policy: unknown value 'best'"),
    ] {
        let refused = config(words).expect_code(2);
        assert!(refused.stderr.contains(error), "{words:?}: {}", refused.stderr);
    }
    assert_eq!(fs::read_to_string(path.trim()).unwrap(), "slots = \"5\"\n");
}

#[test]
fn examples_and_a_first_workflow_run() {
    let sandbox = Sandbox::new();
    let listed = sandbox.starling(&["example", "--json"]).ok().json();
    for example in listed["examples"].as_array().unwrap() {
        let name = example["name"].as_str().unwrap();
        sandbox.starling(&["example", name]).ok();
        let again = sandbox.starling(&["example", name]).expect_code(4);
        assert!(again.stderr.contains("exists already"), "{}", again.stderr);
    }
    let words = ["run", "word-count/workflow.toml", "--output", "results"];
    sandbox.starling(&words).ok();
    assert!(sandbox.path("results/top-words").exists());
    let report = sandbox.starling(&["report", "--from", "starling-runs", "--json"]).ok().json();
    assert!(report["attempts"].as_u64() > Some(0), "{report}");
    sandbox.starling(&["run", "mosaic/mosaic.json", "--scale", "0"]).ok();
    let wrong = sandbox.starling(&["example", "word-cont"]).expect_code(4);
    assert!(wrong.stderr.contains("'word-count' is meant?"), "{}", wrong.stderr);
    sandbox.starling(&["init"]).ok();
    sandbox.starling(&["run", "workflow.toml", "--output", "first"]).ok();
    assert_eq!(fs::read_to_string(sandbox.path("first/total.txt")).unwrap(), "30\n");
    let again = sandbox.starling(&["init"]).expect_code(4);
    assert!(again.stderr.contains("workflow.toml exists already"), "{}", again.stderr);
}

/// The values of the last of these words.
fn completed(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let ran = sandbox.starling(&[&["complete", "--"], words].concat()).ok();
    assert_eq!(ran.stderr, "", "{words:?}");
    let value = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
    ran.stdout.lines().map(value).collect()
}

#[test]
fn words_are_completed_from_the_cluster_and_without_one() {
    let instance = Instance::up(2, 1);
    let (dir, sandbox) = (instance.directory().display().to_string(), instance.sandbox());
    let job = submitted(&instance, &["--wait", "--", "true"]);
    let jobs = ["last".to_owned(), job.clone()];
    let of_cluster = |words: &[&str]| completed(sandbox, &[&["--dir", &dir], words].concat());
    // A busy machine may not answer in time.
    wait_until("the jobs", || of_cluster(&["job", "info", ""]) == jobs);
    wait_until("the job", || of_cluster(&["trace", "-o", "t.json", &job]) == jobs[1..]);
    wait_until("the nodes", || of_cluster(&["node", "drain", "n1", "n"]) == ["n0", "n1"]);
    assert!(of_cluster(&["job", "info", "none"]).is_empty());
    // The function of the script for bash, without a terminal.
    let script = sandbox.starling(&["completion", "bash"]).ok().stdout;
    let script = sandbox.write("completion.bash", script);
    let program = binary().display().to_string();
    let line = format!(
        "source '{}'; COMP_WORDS=('{program}' --dir '{dir}' job info ''); COMP_CWORD=5; \
         _starling_values '{program}' '' info; echo ${{COMPREPLY[@]}}",
        script.display()
    );
    wait_until("the values of the script", || {
        let ran = Command::new("bash").args(["-c", &line]).output().unwrap();
        String::from_utf8_lossy(&ran.stdout).trim() == format!("last {job}")
    });
    let record = sandbox.path("r.srr").display().to_string();
    instance.starling(&["report", &job, "-o", &record]).ok();
    assert_eq!(completed(sandbox, &["report", "--from", &record, ""]), jobs);
    assert_eq!(completed(sandbox, &["config", "set", "slo"]), ["slots"]);
    assert_eq!(completed(sandbox, &["example", "word"]), ["word-count"]);
    instance.down();
    assert!(completed(&Sandbox::new(), &["--dir", &dir, "job", "info", ""]).is_empty());
}

//! The program for a user: exit codes, files and streams of its verbs.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const STARLING: &str = env!("CARGO_BIN_EXE_starling");

/// An instance's directory. Its nodes end with the test.
struct Instance(tempfile::TempDir);

impl Instance {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(STARLING);
        command.current_dir(self.path()).arg("--dir").arg(self.path().join("instance"));
        command.env("XDG_CONFIG_HOME", self.path()).args(args).stdin(Stdio::null());
        command
    }
    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary was built for this test")
    }
    /// The output of a run, which must end with this exit code.
    #[track_caller]
    fn ends(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.path().join("instance/cluster.json").exists() {
            drop(self.run(&["down"]));
        }
    }
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn outputs_of_a_submitted_job_are_printed_and_fetched() {
    let here = Instance::new();
    here.ends(0, &["up", "--nodes", "2", "--slots", "2", "--replicas", "1"]);
    fs::write(here.path().join("words"), "grüße\n").unwrap();
    let script = "test -e tried-{i} || { touch tried-{i}; echo no; exit 1; }; \
                  read word; echo $word$MARK\"{i}\" | tee {out:1}";
    let cwd = here.path().to_str().expect("text");
    let submit = ["submit", "--array", "1-6", "--env", "MARK=-", "--stdin", "words"];
    let more =
        ["--cwd", cwd, "--retries", "1", "--time-limit", "1m", "--out", "all/n{i}", "--wait"];
    here.ends(0, &[&submit[..], &more[..], &["--", "sh", "-c", script]].concat());

    let mut lines: Vec<String> =
        here.ends(0, &["job", "output", "last"]).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    let expected: Vec<String> = (1..=6).map(|n| format!("grüße-{n}")).collect();
    assert_eq!(lines, expected, "each task's own, of the attempt that counts");
    let rows = here.ends(0, &["job", "output", "last", "--json"]);
    let text = |row: &str| serde_json::from_str::<Value>(row).unwrap()["text"].clone();
    let mut texts: Vec<Value> = rows.lines().map(text).collect();
    texts.sort_unstable_by_key(Value::to_string);
    assert_eq!(texts, expected.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>());

    let fetched = here.ends(0, &["job", "fetch", "last", "-o", "got", "--json"]);
    let fetched: Value = serde_json::from_str(&fetched).unwrap();
    assert_eq!(fetched["files"].as_array().map(Vec::len), Some(6), "{fetched}");
    for (n, line) in (1..=6).zip(&expected) {
        let text = fs::read_to_string(here.path().join(format!("got/all/n{n}"))).unwrap();
        assert_eq!(text, format!("{line}\n"));
    }

    here.ends(0, &["node", "stop", "n1"]);
    let output = here.run(&["job", "output", "1"]);
    let (code, error) = (output.status.code(), error_of(&output));
    assert!(matches!(code, Some(3)), "{code:?} {error}");
    assert!(error.contains("\nerror: ") && error.contains("hint: 'starling up'"), "{error}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.lines().all(|line| expected.contains(&line.to_owned())), "{printed}");
}

#[test]
fn one_deadline_holds_for_all_jobs() {
    let here = Instance::new();
    here.ends(0, &["up", "--nodes", "1", "--slots", "4"]);
    for _ in 0..3 {
        here.ends(0, &["submit", "--", "sleep", "600"]);
    }
    here.ends(124, &["job", "wait", "all", "--timeout", "200ms"]);
    here.ends(0, &["job", "cancel", "all"]);
    here.ends(1, &["job", "wait", "all", "--timeout", "1m"]);
}

#[test]
fn a_closed_output_does_not_change_the_exit_code_of_a_run() {
    let here = Instance::new();
    let workflow = "[[task]]\nname = \"bad\"\ncommand = [\"false\"]\n";
    fs::write(here.path().join("bad.toml"), workflow).unwrap();
    let mut child = here.command(&["run", "bad.toml", "--slots", "1"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut error = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut error).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{error}");
    assert!(error.contains("1 of 1 tasks failed"), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_does_not_cost_the_run() {
    let here = Instance::new();
    let trace = here.run(&["run", "bag:tasks=2", "--trace", "absent/trace.json"]);
    assert_eq!(trace.status.code(), Some(4));
    assert_eq!(trace.stdout, b"", "it ends before it begins");
    let workflow = "[[task]]\nname = \"a\"\ncommand = [\"touch\", \"{out:o}\"]\n\
                    outputs = { o = { file = \"taken/o\", keep = true } }\n";
    fs::write(here.path().join("keep.toml"), workflow).unwrap();
    fs::create_dir(here.path().join("out")).unwrap();
    fs::write(here.path().join("out/taken"), "a file, no directory").unwrap();
    let run = here.run(&["run", "keep.toml", "--slots", "1", "--output", "out", "--json"]);
    let report: Value = serde_json::from_slice(&run.stdout).expect("the summary comes first");
    assert_eq!(report["tasks"]["done"], 1, "{report}");
    assert_eq!(run.status.code(), Some(4), "{}", error_of(&run));
}

#[test]
fn files_that_other_users_can_read_or_write_are_refused() {
    let here = Instance::new();
    here.ends(0, &["up", "--slots", "1"]);
    let mode = |name: &str, mode| {
        let path = here.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("instance/keys/client.pem", 0o644);
    let read = here.run(&["kv", "lookup", "k"]);
    assert_eq!(read.status.code(), Some(4));
    assert!(error_of(&read).ends_with("hint: make it private again: chmod 600\n"), "{read:?}");
    mode("instance/keys/client.pem", 0o600);
    mode("instance", 0o770);
    let written = here.run(&["kv", "lookup", "k"]);
    assert_eq!(written.status.code(), Some(4));
    assert!(error_of(&written).contains("may be written to by others"), "{written:?}");
    mode("instance", 0o700);
    here.ends(1, &["kv", "lookup", "k"]);
}

#[test]
fn an_interrupted_start_leaves_no_node_behind() {
    let here = Instance::new();
    let mut up = here.command(&["up", "--nodes", "4", "--slots", "1"]);
    let mut up = up.stderr(Stdio::null()).spawn().unwrap();
    while !here.path().join("instance/nodes/0/node.log").exists() {
        assert!(up.try_wait().unwrap().is_none(), "it has not come so far");
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&up);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let code = up.wait().unwrap().code();
    // On a fast machine the cluster may be up before the signal arrives, which is correct too.
    assert!(matches!(code, Some(130 | 0)), "{code:?}");
    if code == Some(130) {
        let instance = here.path().join("instance");
        let of_instance = |pid: &str| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(instance.to_str().expect("text"))
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let left: Vec<String> = names.filter(|pid| of_instance(pid)).collect();
        assert!(left.is_empty(), "{left:?} still run");
    }
}

/// Runs `kv batch` with these lines; returns its output and its answers.
fn batch(here: &Instance, lines: &str) -> (Output, Vec<Value>) {
    let mut command = here.command(&["kv", "batch"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    let lines = lines.to_owned();
    // It answers while it still reads.
    let writes = std::thread::spawn(move || drop(input.write_all(lines.as_bytes())));
    let output = child.wait_with_output().expect("it ends");
    writes.join().expect("it does not panic");
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    let rows = text.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
    (output, rows.collect())
}

#[test]
fn a_batch_of_operations_is_answered_line_by_line() {
    let here = Instance::new();
    here.ends(0, &["up", "--nodes", "2", "--slots", "1"]);
    let lines = concat!(
        r#"{"op":"insert","key":"bird","value":"star"}"#,
        "\n",
        r#"{"op":"append","key":"bird","value":"ling"}"#,
        "\n",
        r#"{"op":"lookup","key":"bird"}"#,
        "\n",
        r#"{"op":"cas","key":"bird","value":"jay","expect":"finch"}"#,
        "\n",
        r#"{"op":"cas","key":"nest","value_hex":"00ff","absent":true}"#,
        "\n",
        r#"{"op":"lookup","key":"nest"}"#,
        "\n",
        r#"{"op":"remove","key":"bird"}"#,
        "\n",
        r#"{"op":"lookup","key":"bird"}"#, // The last line needs no line end.
    );
    let (output, rows) = batch(&here, lines);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let keys: Vec<_> = rows.iter().map(|row| row["key"].as_str().expect("a key")).collect();
    assert_eq!(keys, ["bird", "bird", "bird", "bird", "nest", "nest", "bird", "bird"]);
    assert!(rows.iter().all(|row| row["schema"] == 1), "{rows:?}");
    assert!(rows[0]["version"].as_u64() >= Some(1), "{rows:?}");
    assert!(rows[0]["version"].as_u64() <= rows[1]["version"].as_u64(), "{rows:?}");
    assert_eq!((&rows[2]["found"], &rows[2]["value"]), (&true.into(), &"starling".into()));
    assert_eq!((&rows[3]["swapped"], &rows[3]["value"]), (&false.into(), &"starling".into()));
    assert_eq!((&rows[4]["swapped"], &rows[5]["value_hex"]), (&true.into(), &"00ff".into()));
    assert_eq!((&rows[6]["found"], &rows[7]["found"]), (&true.into(), &false.into()));

    let mut many: String = (0..5_000)
        .map(|n| format!("{{\"op\":\"insert\",\"key\":\"k{n}\",\"value\":\"v{n}\"}}\n"))
        .collect();
    many.push_str("{\"op\":\"insert\",\"key\":\"k\"}\n{\"op\":\"remove\",\"key\":\"k7\"}\n");
    let (output, rows) = batch(&here, &many);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(
        error_of(&output).contains("error: line 5001: insert of 'k': it needs a value"),
        "{output:?}"
    );
    assert_eq!(rows.len(), 5_000, "the lines before it are done");
    assert_eq!(here.ends(0, &["kv", "lookup", "k4999"]), "v4999");
    assert_eq!(here.ends(0, &["kv", "lookup", "k7"]), "v7", "the one after it is not");
}

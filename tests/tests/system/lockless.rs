//! File systems without both kinds of locks or without hard links, by fault injection. Also unusual
//! directories: of a project, or with a long path.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use starling_tests::{Running, Sandbox, binary, skip, wait_until};

/// True if system calls can be made to fail here.
fn can_inject() -> bool {
    let tried =
        Command::new("strace").args(["-o", "/dev/null", "-e", "trace=none", "true"]).output();
    let reason = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    skip(&format!("strace: {reason}"));
    false
}

/// A cluster of one node with system calls that fail.
struct Lacking {
    sandbox: Sandbox,
    directory: String,
    node: Running,
}

impl Lacking {
    fn start(sandbox: Sandbox, injected: &[&str]) -> Self {
        let directory = sandbox.path("d").display().to_string();
        let node = node(&sandbox, &directory, injected);
        let this = Self { sandbox, directory, node };
        wait_until("the node is up", || this.starling(&["node", "list"]).code == 0);
        this
    }

    fn starling(&self, arguments: &[&str]) -> starling_tests::Ran {
        let all = [&["--dir", &self.directory], arguments].concat();
        self.sandbox.starling(&all)
    }

    /// Runs a job with files of the submitter, between tasks, and kept.
    fn use_it(&self) {
        self.sandbox.write("given.txt", "given\n".repeat(300_000));
        self.sandbox.write(
            "w.toml",
            r#"
[[task]]
name = "one"
command = ["sh", "-c", "cat {in:given} {in:given} > {out:twice}"]
inputs = { given = { file = "given.txt", upload = true } }
outputs = { twice = "twice" }
[[task]]
name = "two-{i}"
array = "1-2"
command = ["sh", "-c", "wc -l < {in:twice} > {out:lines}"]
inputs = { twice = "twice" }
outputs = { lines = { file = "lines{i}", keep = true } }
"#,
        );
        self.starling(&["submit", "--file", "w.toml", "--wait"]).ok();
        let kept = self.sandbox.path("kept").display().to_string();
        self.starling(&["job", "fetch", "last", "--output", &kept]).ok();
        for name in ["lines1", "lines2"] {
            let text = fs::read_to_string(self.sandbox.path("kept").join(name)).expect("kept");
            assert_eq!(text.trim(), "600000");
        }
    }

    /// Ends the node and returns its standard error.
    fn end(self) -> String {
        self.starling(&["down"]).ok();
        let ran = self.node.end().ok();
        let warnings = ran.stderr.lines().filter(|line| line.contains("warning")).count();
        assert_eq!(warnings, 1, "one warning: {}", ran.stderr);
        ran.stderr
    }
}

fn node(sandbox: &Sandbox, directory: &str, injected: &[&str]) -> Running {
    let mut command = Command::new("strace");
    command.args(["-f", "-o", "/dev/null", "-e", "signal=none"]).args(injected);
    command.arg(binary()).args(["--dir", directory, "node", "--slots", "1"]);
    sandbox.start_command(command)
}

#[test]
fn a_node_starts_where_files_cannot_be_locked() {
    if !can_inject() {
        return;
    }
    for error in ["ENOLCK", "ENOSYS", "EOPNOTSUPP"] {
        let inject = format!("inject=flock:error={error}");
        let injected = ["-e", "trace=flock", "-e", &inject];
        let lacking = Lacking::start(Sandbox::new(), &injected);
        lacking.use_it();
        // The heartbeat keeps a second node out, with and without locks. It takes no incarnation
        // number.
        let second = node(&lacking.sandbox, &lacking.directory, &injected).end().expect_code(4);
        assert!(second.stderr.contains("is in use by another node"), "{second:?}");
        let second = lacking.starling(&["node", "--slots", "1"]).expect_code(4);
        assert!(second.stderr.contains("is in use by another node"), "{second:?}");
        let incarnation = Path::new(&lacking.directory).join("nodes/0/state/incarnation");
        let incarnation = fs::read_to_string(incarnation).expect("it was written");
        assert!(incarnation.starts_with("1-"), "{incarnation}");
        let said = lacking.end();
        assert!(said.contains("no file locks") && said.contains("beat"), "{said}");
    }
}

#[test]
fn a_machine_without_its_lock_daemon_starts_no_second_node() {
    if !can_inject() {
        return;
    }
    let sandbox = Sandbox::new();
    // The first node has locks, on a file system that may not be local to this machine.
    let lock = sandbox.path("d/nodes/0/state/lock").display().to_string();
    let injected = ["-P", &lock, "-e", "trace=fstatfs", "-e", "inject=fstatfs:error=ENOSYS"];
    let directory = sandbox.path("d").display().to_string();
    let first = node(&sandbox, &directory, &injected);
    let starling =
        |arguments: &[&str]| sandbox.starling(&[&["--dir", &directory][..], arguments].concat());
    wait_until("the node is up", || starling(&["node", "list"]).code == 0);
    let injected = ["-e", "trace=flock", "-e", "inject=flock:error=ENOLCK"];
    let second = node(&sandbox, &directory, &injected).end().expect_code(4);
    assert!(second.stderr.contains("is in use by another node"), "{second:?}");
    starling(&["down"]).ok();
    let said = first.end().ok().stderr;
    assert!(!said.contains("warning"), "it has locks: {said}");
}

#[test]
fn a_node_that_was_killed_leaves_no_beat_that_keeps_it_out() {
    if !can_inject() {
        return;
    }
    let injected = ["-e", "trace=flock", "-e", "inject=flock:error=ENOLCK"];
    let first = Lacking::start(Sandbox::new(), &injected);
    let beat = PathBuf::from(&first.directory).join("nodes/0/state/lock.beat");
    assert!(beat.exists());
    let file = fs::read_to_string(Path::new(&first.directory).join("nodes/0/address.json"));
    let file: serde_json::Value = serde_json::from_str(&file.expect("it listens")).expect("JSON");
    let pid = file["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a number");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
    let Lacking { sandbox, node, .. } = first;
    node.end();
    assert!(beat.exists(), "no process was there to remove it");
    Lacking::start(sandbox, &injected).end();
    assert!(!beat.exists());
}

#[test]
fn a_node_starts_where_its_store_cannot_be_locked() {
    if !can_inject() {
        return;
    }
    for error in ["ENOLCK", "ENOSYS"] {
        let sandbox = Sandbox::new();
        let lock = sandbox.path("d/nodes/0/state/db/LOCK");
        let (path, inject) = (lock.display().to_string(), format!("inject=fcntl:error={error}"));
        let injected = ["-P", &path, "-e", "trace=fcntl", "-e", &inject];
        let lacking = Lacking::start(sandbox, &injected);
        lacking.use_it();
        let link = fs::read_link(&lock).expect("a lock of this machine stands in for it");
        let said = lacking.end();
        assert!(said.contains("no file locks"), "{said}");
        let _ = fs::remove_file(link);
    }
}

#[test]
fn a_node_starts_where_there_are_no_hard_links() {
    if !can_inject() {
        return;
    }
    for error in ["EPERM", "EOPNOTSUPP"] {
        let inject = format!("inject=link,linkat:error={error}");
        let injected = ["-e", "trace=link,linkat", "-e", &inject];
        let lacking = Lacking::start(Sandbox::new(), &injected);
        lacking.use_it();
        let said = lacking.end();
        assert!(said.contains("no hard links"), "{said}");
    }
}

#[test]
fn directories_of_projects_and_long_paths_work() {
    let sandbox = Sandbox::new();
    let project = sandbox.path("project");
    fs::create_dir(&project).expect("a directory");
    fs::set_permissions(&project, fs::Permissions::from_mode(0o2775)).expect("it is ours");
    // Far longer than the name of a socket may be.
    let long = ["a", "b", "c"].map(|letter| letter.repeat(200));
    let directory = long.iter().fold(project.clone(), |path, part| path.join(part));
    let meet = directory.display().to_string();
    let state = project.join("state-{rank}").display().to_string();
    let start = |rank: u32| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 002; exec \"$@\"", "sh"]).arg(binary());
        command.args(["node", "--slots", "1", "--rendezvous", &meet, "--state-dir", &state]);
        command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", "2");
        sandbox.start_command(command)
    };
    let ranks = [0, 1].map(start).into();
    crate::launchers::use_and_end(&sandbox, &meet, 2, ranks);
    for own in [&directory, &directory.join("nodes"), &project.join("state-0")] {
        let mode = fs::metadata(own).expect("it was made").mode() & 0o7777;
        assert_eq!(mode, 0o700, "{}", own.display());
    }
}

#[test]
fn files_of_an_instance_are_for_its_user_alone_whatever_the_umask() {
    let sandbox = Sandbox::new();
    let directory = sandbox.path("cluster");
    let open = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$@\"", "sh"]).arg(binary());
        command.arg("--dir").arg(&directory).args(arguments);
        sandbox.start_command(command).end()
    };
    open(&["up", "--nodes", "2", "--slots", "1"]).ok();
    let job = ["submit", "--wait", "--out", "o.txt", "--", "sh", "-c", "echo printed | tee o.txt"];
    open(&job).ok();
    open(&["kv", "insert", "city", "Chicago"]).ok();
    open(&["down"]).ok();
    let files = starling_tests::files_below(&directory);
    assert!(files.iter().any(|file| file.extension().is_some_and(|it| it == "srr")), "{files:?}");
    for file in files {
        let mode = fs::metadata(&file).expect("it is there").mode() & 0o7777;
        // Objects are read-only.
        let is_object = file.to_string_lossy().contains("/objects/");
        assert!(mode & 0o077 == 0 || is_object && mode & 0o022 == 0, "{mode:o} {}", file.display());
    }
}

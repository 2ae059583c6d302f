//! Errors in the input: one line with the place and a next step, the documented exit code, and no
//! leftover files.

use std::fs;
use std::process::Command;

use starling_tests::{Sandbox, binary, skip};

/// The content of a file, the exit code, and required parts of the message.
struct Case {
    name: &'static str,
    text: &'static str,
    code: i32,
    parts: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "broken.json",
        text: "{\"name\": \"x\",\n \"workflow\": {,}\n}",
        code: 4,
        parts: &["broken.json:2:15: broken JSON"],
    },
    Case {
        name: "broken.toml",
        text: "[[task]]\nname = \"a\"\ncommand = [\"true\"\n",
        code: 4,
        parts: &["broken.toml:3:18: unclosed array"],
    },
    Case {
        name: "schema.json",
        text: r#"{"name":"x","schemaVersion":"9.7","workflow":{"specification":{"tasks":[]}}}"#,
        code: 4,
        parts: &["schema.json:1:34: unknown schema version '9.7'"],
    },
    Case {
        name: "cycle.toml",
        text: "[[task]]\nname='a'\ncommand=['true']\nafter=['c']\n\
               [[task]]\nname='b'\ncommand=['true']\nafter=['a']\n\
               [[task]]\nname='c'\ncommand=['true']\nafter=['b']\n",
        code: 4,
        parts: &["cycle.toml: the tasks form a cycle: a -> b -> c -> a"],
    },
    Case {
        name: "twice.toml",
        text: "[[task]]\nname='same'\ncommand=['true']\n[[task]]\nname='same'\ncommand=['true']\n",
        code: 4,
        parts: &["twice.toml:5:6: duplicate task 'same'"],
    },
    Case {
        name: "unknown.toml",
        text: "[[task]]\nname='a'\ncommand=['true']\nafter=['b']\n",
        code: 4,
        parts: &["unknown.toml:4:8: task 'a': unknown task 'b'"],
    },
    Case {
        name: "missing-file.toml",
        text: "[[task]]\nname='a'\ncommand=['cat','{in:x}']\ninputs={x='not-there.txt'}\n",
        code: 4,
        parts: &["missing-file.toml:4:11: task 'a': file not found: 'not-there.txt'"],
    },
    Case {
        name: "empty.toml",
        text: "",
        code: 4,
        parts: &["empty.toml: not a workflow: the file is empty"],
    },
    Case {
        name: "empty.json",
        text: r#"{"name":"x","schemaVersion":"1.5","workflow":{"specification":{"tasks":[],"files":[]}}}"#,
        code: 4,
        parts: &["empty.json: the workflow has no tasks"],
    },
    Case {
        name: "wide.toml",
        text: "[[task]]\nname='wide'\ncommand=['true']\ncpus=9999\n",
        code: 4,
        parts: &["wide", "9999"],
    },
    Case {
        name: "typo.toml",
        text: "[[task]]\nname='a'\ncomand=['true']\n",
        code: 4,
        parts: &["typo.toml:3:1: unknown key 'comand'"],
    },
    Case {
        name: "parent.json",
        text: r#"{"name":"x","schemaVersion":"1.5","workflow":{"specification":{"tasks":[{"name":"a","id":"a","parents":["ghost"],"children":[]}],"files":[]},"execution":{"tasks":[{"id":"a","runtimeInSeconds":1}]}}}"#,
        code: 4,
        parts: &["parent.json: task 'a': unknown task 'ghost' in parents"],
    },
];

#[test]
fn bad_workflows_are_refused_with_their_place() {
    let mut wrong = Vec::new();
    for case in CASES {
        let sandbox = Sandbox::new();
        sandbox.write(case.name, case.text);
        let ran = sandbox.starling(&["run", case.name, "--nodes", "2", "--slots", "2"]);
        if ran.code != case.code {
            wrong.push(format!(
                "{}: exit {} not {}: {}",
                case.name, ran.code, case.code, ran.stderr
            ));
        }
        for part in case.parts {
            if !ran.stderr.contains(part) {
                wrong.push(format!("{}: no '{part}' in: {}", case.name, ran.stderr));
            }
        }
        let first = ran.stderr.lines().next().unwrap_or_default();
        if !first.starts_with("error: ") || ran.stderr.contains("panicked") {
            wrong.push(format!("{}: not one clear line: {}", case.name, ran.stderr));
        }
        if !ran.stdout.is_empty() {
            wrong.push(format!("{}: errors go to standard error: {}", case.name, ran.stdout));
        }
        wrong.extend(left_behind(&sandbox, case.name));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files in the sandbox that the test did not create.
fn left_behind(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let known =
        |entry: &str| entry == name || entry.starts_with("stdout.") || entry.starts_with("stderr.");
    let entries = fs::read_dir(sandbox.path(".")).expect("the sandbox is readable").flatten();
    let entries = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // The folder of the default instance directory may remain, but only empty.
    let full = |entry: &String| {
        fs::read_dir(sandbox.path(entry)).map_or(true, |mut inside| inside.next().is_some())
    };
    let stray = entries.filter(|entry| !known(entry) && full(entry));
    stray.map(|entry| format!("{name}: left behind: {entry}")).collect()
}

#[test]
fn usage_errors_exit_with_two() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["run", "bag:tasks=10", "--nodes", "0"][..],
        &["run", "bag:tasks=10", "--slots", "0"],
        &["run", "bag:tasks=10", "--policy", "best"],
        &["run"],
        &["fly"],
        &["run", "bag:tasks=10", "--scale", "-1"],
    ] {
        let ran = sandbox.starling(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty() && ran.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn unknown_files_and_generators_are_refused() {
    let sandbox = Sandbox::new();
    for (workflow, part) in [
        ("nowhere.json", "nowhere.json"),
        ("bag:tasks=many", "many"),
        ("bag:colour=blue", "colour"),
        ("heap:tasks=3", "heap"),
        ("bag:tasks=0", "0"),
    ] {
        let ran = sandbox.starling(&["run", workflow]).expect_code(4);
        assert!(ran.stderr.contains(part), "{workflow}: {}", ran.stderr);
    }
}

#[test]
fn a_cluster_that_is_not_there_is_exit_three() {
    let sandbox = Sandbox::new();
    let directory = sandbox.path("nothing-here").display().to_string();
    for verb in [&["job", "list"][..], &["node", "list"], &["kv", "lookup", "k"]] {
        let mut arguments = vec!["--dir", &directory];
        arguments.extend(verb);
        let ran = sandbox.starling(&arguments).expect_code(3);
        assert!(ran.stderr.contains("nothing-here"), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint:"), "{}", ran.stderr);
    }
    assert!(!sandbox.path("nothing-here").exists(), "asking made a directory");
}

#[test]
fn a_timeout_of_a_run_is_exit_124() {
    let sandbox = Sandbox::new();
    let arguments = ["run", "bag:tasks=2,duration=600s", "--timeout", "500ms"];
    let ran = sandbox.starling(&arguments).expect_code(124);
    assert!(ran.stderr.contains("500ms") || ran.stderr.contains("0.5"), "{}", ran.stderr);
}

#[test]
fn listening_beyond_this_host_is_refused() {
    let sandbox = Sandbox::new();
    let directory = sandbox.path("d").display().to_string();
    let arguments = ["--dir", &directory, "node", "--listen", "0.0.0.0:0"];
    let ran = sandbox.starling(&arguments);
    assert!([2, 4].contains(&ran.code), "{ran:?}");
    assert!(ran.stderr.contains("0.0.0.0"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: give the address"), "{}", ran.stderr);
    // An address of this host is accepted, but not without keys.
    let arguments = ["--dir", &directory, "node", "--insecure", "--listen", "192.0.2.1:0"];
    let ran = sandbox.starling(&arguments);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("warning: --insecure"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: leave out --insecure"), "{}", ran.stderr);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let sandbox = Sandbox::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound socket has an address").to_string();
    let directory = sandbox.path("d").display().to_string();
    let ran = sandbox.starling(&["--dir", &directory, "node", "--listen", &address]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains(&address), "{}", ran.stderr);
    drop(taken);
}

/// A small file system, if this machine permits one.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(sandbox: &Sandbox) -> Option<Self> {
        let disk = sandbox.path("disk");
        fs::create_dir_all(&disk).expect("folders can be made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=12m,mode=0777", "tmpfs"]).arg(&disk);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Self(disk));
        }
        skip("no file system can be mounted here");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_named_and_nothing_stays_on_it() {
    let sandbox = Sandbox::new();
    let Some(disk) = SmallDisk::mount(&sandbox) else { return };
    let run = |workflow: &str| {
        let mut command = Command::new("env");
        command.arg(format!("TMPDIR={}", disk.0.display())).arg(binary());
        command.args(["run", workflow, "--nodes", "1"]);
        sandbox.start_command(command).end()
    };
    sandbox.write(
        "big.toml",
        "[[task]]\nname='big'\noutputs={x='x'}\n\
         command=['sh','-c','head -c 100000000 /dev/zero > x']\n",
    );
    // Either the task fails, or the node stops because it has no space for its records. Both report
    // the reason.
    for workflow in ["big.toml", "bag:tasks=600000,body=noop"] {
        let ran = run(workflow);
        assert!([1, 3].contains(&ran.code), "{ran:?}");
        assert!(ran.stderr.to_lowercase().contains("no space left"), "{}", ran.stderr);
    }
    let left = fs::read_dir(&disk.0).expect("the disk is readable").count();
    assert_eq!(left, 0, "an embedded cluster leaves nothing behind");
}

/// The binary without the right of root to ignore file permissions.
fn restricted(sandbox: &Sandbox, closed: &std::path::Path) -> Option<fn() -> Command> {
    fn plain() -> Command {
        Command::new(binary())
    }
    fn without_rights() -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-dac_override,-dac_read_search"]).arg(binary());
        command
    }
    if fs::read(closed).is_err() {
        return Some(plain);
    }
    let mut probe = Command::new("setpriv");
    probe.args(["--bounding-set", "-dac_override,-dac_read_search", "cat"]).arg(closed);
    let text = sandbox.start_command(probe).end().stderr;
    if text.contains("Permission denied") {
        return Some(without_rights);
    }
    skip("this user may read everything, and cannot give that up");
    None
}

fn is_one_clear_error(ran: &starling_tests::Ran, part: &str) -> bool {
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let shape = matches!(lines[..], [error, hint]
        if error.starts_with("error: ") && hint.starts_with("hint: "));
    shape && ran.stderr.contains(part) && !ran.stderr.contains("panicked") && ran.stdout.is_empty()
}

#[test]
fn what_may_not_be_read_or_written_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    let workflow = sandbox.write("w.toml", "[[task]]\nname='a'\ncommand=['true']\n");
    let closed = sandbox.path("closed");
    fs::create_dir(&closed).expect("a folder");
    let allow = |path: &std::path::Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    allow(&workflow, 0o000);
    allow(&closed, 0o555);
    let Some(starling) = restricted(&sandbox, &workflow) else { return };
    let bag = "bag:tasks=2,body=noop";
    for (arguments, part) in [
        (&["run", "w.toml"][..], "w.toml: cannot read it: permission denied"),
        (&["bound", "w.toml", "--nodes", "1"], "w.toml: cannot read it: permission denied"),
        (&["--dir", "closed/i", "up", "--nodes", "1"], "closed/i: permission denied"),
        (&["--dir", "closed/i", "node"], "no permission to create"),
        (&["run", bag, "--trace", "closed/t"], "closed/t: permission denied"),
        (&["run", bag, "--output", "closed/o"], "closed/o: permission denied"),
        (&["workload", "make", bag, "-o", "closed/w.toml"], "closed/w.toml: permission denied"),
    ] {
        let mut command = starling();
        command.args(arguments);
        let ran = sandbox.start_command(command).end().expect_code(4);
        assert!(is_one_clear_error(&ran, part), "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(fs::read_dir(&closed).expect("it may be read").count(), 0);
    allow(&closed, 0o755);
}

/// Paths that cannot be created with any rights.
#[test]
fn an_instance_below_a_file_is_refused() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("file", "no folder").display().to_string();
    let below = format!("{file}/i");
    for verb in [&["up", "--nodes", "1"][..], &["node"], &["job", "list"]] {
        let mut arguments = vec!["--dir", &below];
        arguments.extend(verb);
        let ran = sandbox.starling(&arguments).expect_code(4);
        assert!(is_one_clear_error(&ran, "not a directory"), "{verb:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(&below), "{verb:?}: {}", ran.stderr);
    }
    assert_eq!(fs::read_to_string(&file).expect("it is still there"), "no folder");
}

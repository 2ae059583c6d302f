//! `starling run -- COMMAND {} ::: a b c`: a command for each entry of a list.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use starling_tests::{Ran, Sandbox, binary, wait_until};

/// Runs in a shell, which connects standard input.
fn in_shell(sandbox: &Sandbox, script: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(binary()).args(arguments);
    sandbox.start_command(command).end()
}

/// Runs with a list on standard input.
fn fed(sandbox: &Sandbox, list: &[u8], arguments: &[&str]) -> Ran {
    sandbox.write("list", list);
    in_shell(sandbox, "exec \"$0\" \"$@\" < list", arguments)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The rows of a job log: number, exit code, signal, command.
fn rows(sandbox: &Sandbox, name: &str) -> Vec<(u64, i32, i32, String)> {
    let text = std::fs::read_to_string(sandbox.path(name)).expect("the log is there");
    let mut lines = text.lines();
    let header = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand";
    assert_eq!(lines.next(), Some(header));
    let row = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        assert_eq!(columns.len(), 9, "{line}");
        let number = |at: usize| columns[at].parse::<i32>().expect("a number");
        assert!(columns[2].parse::<f64>().expect("a number") > 1e9, "{line}");
        (number(0) as u64, number(6), number(7), columns[8].to_owned())
    };
    lines.map(row).collect()
}

/// The second row of the tests that every list must hold: output, exit code, log, resumption.
#[test]
fn a_list_from_standard_input_is_logged_and_resumed() {
    let sandbox = Sandbox::new();
    let command = ["sh", "-c", "echo {}; [ {} != b ]"];
    let run = |flags: &[&str]| {
        let words = [&["run", "--slots", "2", "--joblog", "j"], flags, &["--"], &command].concat();
        fed(&sandbox, b"a\nb\nc", &words)
    };
    let first = run(&[]).expect_code(1);
    assert_eq!(sorted(&first.stdout), ["a", "b", "c"]);
    assert!(first.stderr.contains("1 of 3 ended entries failed: 1 with exit code 1 (entry 2)"));
    let mut logged = rows(&sandbox, "j");
    logged.sort();
    assert_eq!(logged.len(), 3);
    assert_eq!(logged[1], (2, 1, 0, "sh -c 'echo b; [ b != b ]'".to_owned()));
    assert_eq!(logged[0].1, 0);
    let again = run(&["--resume-failed"]).expect_code(1);
    assert_eq!(again.stdout, "b\n");
    assert_eq!(rows(&sandbox, "j").len(), 4);
    assert_eq!(run(&["--resume"]).ok().stdout, "");
    let refused = run(&[]).expect_code(4);
    assert!(refused.stderr.contains("the job log has 3 commands"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: --resume goes on"), "{}", refused.stderr);
    assert_eq!(rows(&sandbox, "j").len(), 4, "nothing is lost");
}

#[test]
fn lists_are_combined_and_printed_in_order() {
    let sandbox = Sandbox::new();
    let words = ["run", "--slots", "4", "-k", "--", "sh", "-c", "sleep 0.{2}; echo {1}{2}"];
    let ran = sandbox.starling(&[&words[..], &[":::", "a", "b", ":::", "3", "1"]].concat()).ok();
    assert_eq!(ran.stdout, "a3\na1\nb3\nb1\n");
    let tagged = ["run", "-k", "--tag", "--", "printf", "x\\ny", ":::", "a b", "c"];
    assert_eq!(sandbox.starling(&tagged).ok().stdout, "a b\tx\na b\ty\nc\tx\nc\ty\n");
    sandbox.write("lines", "a b\nc\n");
    let lines = ["run", "-k", "--each-line", "lines", "--", "echo", "<{}>"];
    assert_eq!(sandbox.starling(&lines).ok().stdout, "<a b>\n<c>\n");
    sandbox.write("values", "[1, {\"x\": [2, 3]}, \"a b\"]");
    let values = ["run", "-k", "--from-json", "values", "--", "echo"];
    let expected = "1\n{\"x\":[2,3]}\n\"a b\"\n";
    assert_eq!(sandbox.starling(&values).ok().stdout, expected);
    let linked = ["run", "-k", "--", "echo", "{2}{1}", ":::", "a", "b", ":::+", "1", "2"];
    assert_eq!(sandbox.starling(&linked).ok().stdout, "1a\n2b\n");
    let appended = ["run", "-k", "--", "echo", "-n", ":::", "a", "b"];
    assert_eq!(sandbox.starling(&appended).ok().stdout, "ab");
    assert_eq!(sandbox.starling(&["run", "--", "echo", "one"]).ok().stdout, "one\n");
    assert_eq!(sandbox.starling(&["run", "--", "echo", "{}", ":::"]).ok().stdout, "");
}

/// Names with blanks, quotes, newlines and placeholders reach the program as they are.
#[test]
fn names_are_never_read_as_something_else() {
    let sandbox = Sandbox::new();
    let names = ["a b", "it's", "$(touch x)", "`id`", "{job} {in:x}", "a\nb", "-n \"q\"", "", "é*"];
    let list: Vec<u8> = names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
    let expected: String = names.iter().map(|name| format!("<{name}>")).collect();
    let log = ["run", "-0", "-k", "--joblog", "j"];
    for command in [
        &["printf", "<%s>", "{}"][..],
        &["sh", "-c", "printf '<%s>' {}"],
        &["sh", "-c", "printf '<%s>' \"{}\""],
        &["sh", "-c", "printf '<%s>' \"$1\"", "sh", "{}"],
    ] {
        let _ = std::fs::remove_file(sandbox.path("j"));
        let ran = fed(&sandbox, &list, &[&log[..], &["--"], command].concat()).ok();
        assert_eq!(ran.stdout, expected, "{command:?}");
        assert_eq!(rows(&sandbox, "j").len(), names.len(), "one line for each entry");
        let words = [&log[..], &["--resume", "--"], command].concat();
        assert_eq!(fed(&sandbox, &list, &words).ok().stdout, "");
    }
    assert!(!sandbox.path("x").exists());
}

#[test]
fn an_interrupted_run_goes_on_where_it_was() {
    let sandbox = Sandbox::new();
    // The first three end at once, the fourth waits for a file.
    let script = "echo {} >> ran; [ {} -lt 4 ] || [ -e go ] || sleep 60";
    let lists = ["--", "sh", "-c", script, ":::", "1", "2", "3", "4", "5"];
    let words = |flags: &[&'static str]| {
        [&["run", "--slots", "1", "--joblog", "j"], flags, &lists[..]].concat()
    };
    let running = sandbox.start(&words(&[]));
    wait_until("three rows", || {
        std::fs::read_to_string(sandbox.path("j")).is_ok_and(|text| text.lines().count() == 4)
    });
    let held = sandbox.starling(&words(&["--resume"])).expect_code(4);
    assert!(held.stderr.contains("another run writes this job log"), "{}", held.stderr);
    running.signal(Signal::INT);
    running.end().expect_code(130);
    // A row that was cut in the middle.
    let log = std::fs::read(sandbox.path("j")).unwrap();
    sandbox.write("j", [&log[..], b"4\tn0\t17"].concat());
    sandbox.write("go", "");
    sandbox.write("ran", "");
    let resumed = sandbox.starling(&words(&["--resume"])).ok();
    assert!(resumed.stderr.contains("the last row is cut"), "{}", resumed.stderr);
    let ran = std::fs::read_to_string(sandbox.path("ran")).unwrap();
    assert_eq!(sorted(&ran), ["4", "5"]);
    let mut numbers: Vec<u64> = rows(&sandbox, "j").iter().map(|row| row.0).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

#[test]
fn a_run_ends_early_if_wanted() {
    let sandbox = Sandbox::new();
    let run = |halt: &str, script: &str| {
        let words = ["run", "--json", "--slots", "2", "--halt", halt, "--", "sh", "-c", script];
        let list: Vec<String> = (1..=200).map(|n| n.to_string()).collect();
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        sandbox.starling(&[&words[..], &[":::"], &list].concat())
    };
    let summary = |ran: &Ran| -> Value {
        serde_json::from_str(ran.stdout.lines().last().expect("a summary")).unwrap()
    };
    let soon = run("soon,fail=1", "sleep 0.02; exit 1").expect_code(1);
    let sum = summary(&soon);
    assert_eq!((&sum["halted"], &sum["state"]), (&true.into(), &"failed".into()), "{sum}");
    assert!(sum["tasks"]["failed"].as_u64().unwrap() < 100, "{sum}");
    // The running ones would take a minute.
    let now = run("now,done=1", "[ {} = 1 ] || sleep 60");
    assert_eq!(summary(&now)["tasks"]["done"], 1, "{}", now.stdout);
    run("soon,success=1", "[ {} = 3 ]").ok();
    let words = ["run", "--json", "--slots", "1", "--max-fails", "1", "--", "false", ":::"];
    let few = sandbox.starling(&[&words[..], &["1", "2", "3", "4", "5", "6"]].concat());
    assert_eq!(summary(&few.expect_code(1))["halted"], true);
    let failing = "[[task]]\nname = \"f\"\narray = \"1-9\"\ncommand = [\"false\"]\n";
    let failing = sandbox.write("failing.toml", failing).display().to_string();
    let few = ["run", "--max-fails", "1", "--slots", "1", &failing];
    let few = sandbox.starling(&few).expect_code(1);
    assert!(few.stderr.contains("cancelled"), "{}", few.stderr);
}

#[test]
fn mistakes_are_explained() {
    let sandbox = Sandbox::new();
    sandbox.write("notes", "my notes\n");
    std::fs::create_dir(sandbox.path("d")).unwrap();
    let cases: [(&[&str], i32, &str); 16] = [
        (&["--", "echo", "{2}", ":::", "a"], 2, "{2}: there is one list"),
        (&["--", ":::", "a"], 2, "there is no command"),
        (&["--", "echo", ":::", "a", ":::+", "b", "c"], 2, "has 2 values for 1"),
        (&["--", "sh", "-c", "x `{}`", ":::", "a"], 2, "between backquotes"),
        (&["--", "sh", "-c", "sh -c \"{} x\"", ":::", "a"], 2, "may be of another shell"),
        (&["--", "script", "-qc", "echo {}", ":::", "a"], 2, "may be the script of a shell"),
        (&["--joblog", "notes", "--", "echo", ":::", "a"], 4, "notes is not a job log"),
        (&["--joblog", "no/j", "--", "echo", ":::", "a"], 4, "no such file"),
        (&["--resume", "--", "echo", ":::", "a"], 2, "--joblog"),
        (&["--halt", "maybe", "--", "echo", ":::", "a"], 2, "is no condition such as soon,fail=1"),
        (&["-a", "absent", "--", "echo"], 4, "absent: no such file"),
        (&["-a", "d", "--", "echo"], 4, "d: it is a directory"),
        (&["--trace", "t", "--", "echo", ":::", "a"], 2, "cannot be used with"),
        (&["bag:tasks=1", "--", "echo", ":::", "a"], 2, "cannot be used with"),
        (&["-k", "bag:tasks=1"], 2, "--keep-order is for a list of commands"),
        (&["--", "no-such-program", ":::", "a"], 1, "'no-such-program'"),
    ];
    for (words, code, text) in cases {
        let ran = sandbox.starling(&[&["run"], words].concat()).expect_code(code);
        assert!(ran.stderr.contains(text), "{words:?}: {}", ran.stderr);
        if code != 1 {
            assert!(ran.stderr.contains("hint: "), "{words:?}: {}", ran.stderr);
        }
    }
    assert_eq!(std::fs::read_to_string(sandbox.path("notes")).unwrap(), "my notes\n");
    let long = "x".repeat(140_000);
    let ran = fed(&sandbox, format!("a\n{long}\n").as_bytes(), &["run", "--", "echo", "{}"]);
    let ran = ran.expect_code(4);
    assert!(ran.stderr.contains("entry 2 has more than 128 KiB"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "a\n", "entries before it run");
    let ran = fed(&sandbox, b"a\n\xff\n", &["run", "--", "echo", "{}"]).expect_code(4);
    assert!(ran.stderr.contains("entry 2 is not valid UTF-8"), "{}", ran.stderr);
}

#[test]
fn a_log_of_another_command_is_refused() {
    let sandbox = Sandbox::new();
    let run = |command: &str, flags: &[&str], list: &[&str]| {
        let words = [&["run", "--joblog", "j"], flags, &["--", command, ":::"], list].concat();
        sandbox.starling(&words)
    };
    run("echo", &[], &["a", "b"]).ok();
    let other = run("true", &["--resume"], &["a", "b"]).expect_code(4);
    assert!(
        other.stderr.contains("entry 1 has another command in the job log"),
        "{}",
        other.stderr
    );
    let shorter = run("echo", &["--resume"], &["a"]).ok();
    assert!(shorter.stderr.contains("1 row beyond the end of the list"), "{}", shorter.stderr);
    let longer = run("echo", &["--resume"], &["a", "b", "c"]).ok();
    assert_eq!(longer.stdout, "c\n");
}

#[test]
fn options_of_workflow_files_are_refused_beside_a_list() {
    let sandbox = Sandbox::new();
    for option in ["--max-tasks", "--at-most"] {
        let words = ["run", option, "2", "-k", "--", "echo", "{}", ":::", "a", "b", "c"];
        let refused = sandbox.starling(&words).expect_code(2);
        let text = format!("{option} is for a workflow file");
        assert!(refused.stderr.contains(&text), "{}", refused.stderr);
    }
}

#[test]
fn commands_have_a_time_limit_and_nodes_another() {
    let sandbox = Sandbox::new();
    let run = |flags: &[&str], command: &[&str]| {
        let words = [&["run", "--nodes", "1", "--slots", "1"], flags, &["--"], command].concat();
        sandbox.starling(&[&words[..], &[":::", "a"]].concat())
    };
    let killed = run(&["--task-time-limit", "300ms"], &["sh", "-c", "sleep 60"]).expect_code(1);
    assert!(killed.stderr.contains("limit"), "{}", killed.stderr);
    let over = run(&["--time-limit", "5s"], &["sh", "-c", "sleep 60"]).expect_code(3);
    let text = "error: the time limit of the run's nodes (5 s) is over\nhint: --task-time-limit";
    assert!(over.stderr.contains(text), "{}", over.stderr);
    let long = run(&["--time-limit", "20s", "--time-request", "30s"], &["true"]).expect_code(4);
    assert!(long.stderr.contains("task 'true' has a time request of 30.00 s"), "{}", long.stderr);
    run(&["--time-limit", "60s", "--time-request", "30s"], &["true"]).ok();
    let task = "[[task]]\nname = \"t\"\ncommand = [\"true\"]\ntime_request = \"30s\"\n";
    sandbox.write("w.toml", task);
    let file = sandbox.starling(&["run", "--time-limit", "20s", "w.toml"]).expect_code(4);
    assert!(file.stderr.contains("hint: give the run a longer --time-limit"), "{}", file.stderr);
}

/// A million entries pass through; a list that never ends is used as it comes.
#[test]
fn long_lists_take_no_memory() {
    let sandbox = Sandbox::new();
    // As a list in memory they would take 500 MB, which is more than this limit of data. A limit of
    // address space would depend on what the allocator and the threads of a machine reserve.
    let script = "ulimit -d 400000; seq -f '%0500.0f' 1000000 | \"$0\" \"$@\" | tail -n 1";
    let ran = in_shell(&sandbox, script, &["run", "--dry-run", "--", "echo", "{}"]).ok();
    assert!(ran.stdout.ends_with("01000000\n"), "{ran:?}");
    let never = "yes | \"$0\" \"$@\"";
    let words = ["run", "--halt", "now,done=3", "--", "echo", "{}"];
    let ran = in_shell(&sandbox, never, &words).expect_code(1);
    assert!(ran.stdout.starts_with("y\ny\ny\n"), "{ran:?}");
}

#[test]
fn a_list_leaves_a_record_that_shows_its_entries() {
    let sandbox = Sandbox::new();
    let command = ["--", "sh", "-c", "sleep 0.05; [ {} != b ] || exit 4", ":::", "a", "b", "c"];
    let words = [&["run", "--nodes", "2", "--slots", "1", "--json"], &command[..]].concat();
    let ran = sandbox.starling(&words).expect_code(1);
    let note = ran.stderr.lines().find(|line| line.contains("run record in")).expect("a note");
    let record = note.split("run record in ").nth(1).unwrap().split(';').next().unwrap();
    assert!(record.starts_with("starling-runs/") && sandbox.path(record).exists(), "{note}");
    let runs = "starling-runs";
    let info = sandbox.starling(&["job", "info", "last", "--from", runs, "--json"]).ok();
    assert_eq!(info.stdout.trim(), ran.stdout.lines().last().unwrap(), "as it was printed");
    let report = sandbox.starling(&["report", "--from", runs, "--json"]).ok().json();
    assert_eq!((&report["tasks"]["total"], &report["tasks"]["failed"]), (&3.into(), &1.into()));
    assert_eq!(report["failures"][0]["exit_code"], 4, "{report}");
    let list = ["task", "list", "last", "--from", runs, "--state", "failed", "--json"];
    let failed = sandbox.starling(&list).ok().json();
    assert_eq!(failed["tasks"][0]["name"], "sh-2", "{failed}");
    sandbox.starling(&["report", "--from", runs, "-o", "r.html"]).ok();
    // The newest 20 stay. A run that is older leaves nothing behind.
    for _ in 0..20 {
        sandbox.starling(&["run", "--nodes", "1", "--slots", "1", "--", "true"]).ok();
    }
    let dirs = std::fs::read_dir(sandbox.path(runs)).unwrap().count();
    assert!(dirs == 20 && !sandbox.path(record).exists(), "{dirs}");
    let nothing = sandbox.starling(&["run", "--dry-run", "--", "true"]).ok();
    assert!(!nothing.stderr.contains("run record"), "{nothing:?}");
}

/// A task that an entry has spawned fails the run, whether its entry awaits it or not.
#[test]
fn failures_of_spawned_tasks_are_failures_of_the_run() {
    let sandbox = Sandbox::new();
    let spawn = |child: &str| format!("{} spawn --name kid -- {child}", binary().display());
    let awaited = format!("{}; {} await; exit 0", spawn("false"), binary().display());
    let run = |script: &str, flags: &[&str]| {
        let words = [&["run", "--nodes", "1", "--slots", "1"], flags, &["--", "sh", "-c", script]];
        sandbox.starling(&[&words.concat()[..], &[":::", "a", "b"]].concat())
    };
    let ran = run(&awaited, &["--json"]).expect_code(1);
    assert!(ran.stderr.contains("error: task 'kid' failed on node n0"), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: spawned tasks: 2 failed of 2"), "{}", ran.stderr);
    let sum: Value = serde_json::from_str(ran.stdout.lines().last().expect("a summary")).unwrap();
    assert_eq!((&sum["state"], &sum["tasks"]["spawned"]), (&"failed".into(), &2.into()), "{sum}");
    assert_eq!((&sum["tasks"]["total"], &sum["tasks"]["failed"]), (&4.into(), &2.into()), "{sum}");
    let list = ["task", "list", "last", "--from", "starling-runs", "--state", "failed", "--json"];
    let failed = sandbox.starling(&list).ok().json();
    assert_eq!(failed["tasks"].as_array().map(Vec::len), Some(2), "{failed}");
    assert_eq!(failed["tasks"][0]["name"], "kid", "{failed}");
    let late = run(&spawn("sh -c 'sleep 0.5; exit 7'"), &[]).expect_code(1);
    assert!(late.stderr.contains("exit code 7"), "{}", late.stderr);
    run(&spawn("true"), &[]).ok();
}

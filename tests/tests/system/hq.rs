//! The front of HyperQueue's command line, and the options that it shares with `submit`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use starling_tests::{Instance, binary, wait_until};

/// Runs the program by a link named `hq`, in a directory.
fn hq(instance: &Instance, directory: &Path, arguments: &[&str]) -> String {
    let link = directory.join("hq");
    if !link.exists() {
        symlink(binary(), &link).expect("a link to the program");
    }
    let ran = Command::new(&link)
        .args(arguments)
        .current_dir(directory)
        .env("STARLING_DIR", instance.directory())
        .output()
        .expect("it starts");
    let (out, errors) = (ran.stdout, String::from_utf8_lossy(&ran.stderr).into_owned());
    assert!(ran.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(out).expect("it prints text")
}

/// The three calls by which Nextflow uses HyperQueue.
#[test]
fn the_calls_of_nextflow_are_answered() {
    let instance = Instance::up(1, 2);
    let work = instance.sandbox().path("work");
    fs::create_dir_all(&work).expect("a directory");
    let script = |name: &str, command: &str| {
        let head = format!("#HQ --name nf-{name}\n#HQ --cwd {}\n#HQ --cpus 1\n", work.display());
        let text = format!("#!/bin/bash\n{head}#HQ --time-limit 60sec\n{command}\n");
        fs::write(work.join(name), text).expect("a script");
    };
    script("good", "echo $HQ_JOB_ID > result");
    script("bad", "exit 3");
    script("long", "sleep 600");
    let submit = |name: &str| {
        let answer =
            hq(&instance, &work, &["--output-mode=quiet", "submit", "--directives=file", name]);
        answer.trim().parse::<u32>().expect("the answer is one number")
    };
    let (good, bad, long) = (submit("good"), submit("bad"), submit("long"));
    let states = || hq(&instance, &work, &["--output-mode=quiet", "job", "list", "--all"]);
    let are = |expected: &[(u32, &str)]| {
        let lines: Vec<String> =
            expected.iter().map(|(job, state)| format!("{job} {state}")).collect();
        let states = states();
        let mut present: Vec<&str> = states.lines().collect();
        present.sort_unstable();
        present == lines
    };
    wait_until("the short jobs have ended, and the long one runs", || {
        are(&[(good, "FINISHED"), (bad, "FAILED"), (long, "RUNNING")])
    });
    assert_eq!(fs::read_to_string(work.join("result")).expect("it ran"), format!("{good}\n"));
    hq(&instance, &work, &["job", "cancel", &format!("{bad},{long}")]);
    wait_until("the long job is cancelled", || {
        are(&[(good, "FINISHED"), (bad, "FAILED"), (long, "CANCELED")])
    });
    instance.down();
}

#[test]
fn tasks_wait_for_workers_and_streamed_output_is_kept() {
    let instance = Instance::up(1, 1);
    let here = instance.sandbox().path("here");
    fs::create_dir_all(&here).expect("a directory");
    let quiet = |arguments: &[&str]| {
        hq(&instance, &here, &[&["--output-mode=quiet"], arguments].concat()).trim().to_owned()
    };
    let rare = quiet(&["submit", "--resource", "rare=1", "--", "true"]);
    let streamed = quiet(&["submit", "--stream", "log", "--wait", "--", "echo", "kept"]);
    let output = instance.starling(&["job", "output", &streamed]).ok().stdout;
    assert!(output.contains("kept"), "{output}");
    let log = hq(&instance, &here, &["output-log", "log", "show"]);
    assert_eq!(log, format!("{streamed}.0:0> kept\n"));
    let states = quiet(&["job", "list", "--all"]);
    let mut states: Vec<&str> = states.lines().collect();
    states.sort_unstable();
    assert_eq!(states, [format!("{rare} WAITING"), format!("{streamed} FINISHED")]);
    hq(&instance, &here, &["job", "cancel", &rare]);
    instance.down();
}

/// Tasks of a file with their order, variants and values; and what is refused leaves nothing.
#[test]
fn job_files_give_tasks_and_refused_submissions_leave_nothing() {
    let instance = Instance::up(1, 2);
    let here = instance.sandbox().path("here");
    fs::create_dir_all(&here).expect("a directory");
    let quiet = |arguments: &[&str]| {
        hq(&instance, &here, &[&["--output-mode=quiet"], arguments].concat()).trim().to_owned()
    };
    let json = |arguments: &[&str]| -> serde_json::Value {
        let text = hq(&instance, &here, &[&["--output-mode=json"], arguments].concat());
        serde_json::from_str(&text).expect("it is JSON")
    };
    let refused = |arguments: &[&str]| {
        let ran = Command::new(here.join("hq"))
            .args(arguments)
            .current_dir(&here)
            .env("STARLING_DIR", instance.directory())
            .output()
            .expect("it starts");
        assert!(!ran.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned()
    };
    quiet(&["job", "list"]);
    let cycle = "[[task]]\nid = 1\ncommand = ['true']\ndeps = [2]\n\
                 [[task]]\nid = 2\ncommand = ['true']\ndeps = [1]\n";
    fs::write(here.join("cycle.toml"), cycle).expect("a file");
    assert!(refused(&["job", "submit-file", "cycle.toml"]).contains("cycle"));
    assert!(refused(&["submit", "--resource", "x=1", "--resource", "x=2", "true"]).contains("'x'"));
    assert!(refused(&["submit", "--crash-limit", "0", "true"]).contains("--crash-limit"));
    let kept = instance.starling(&["kv", "lookup", "hq/job/1"]).expect_code(1);
    assert!(kept.stdout.is_empty(), "{kept:?}");
    let file = "name = 'steps'\n[[task]]\nid = 5\ndeps = [3]\n\
                command = ['sh', '-c', 'cat first; cat; echo $HQ_RESOURCE_VARIANT']\n\
                stdin = 'second '\n[[task.request]]\nresources = {cpus = 64}\n\
                [[task.request]]\nresources = {cpus = '0.5'}\n\
                [[task]]\nid = 3\ncommand = ['sh', '-c', 'sleep 0.2; printf first, > first']\n";
    fs::write(here.join("job.toml"), file).expect("a file");
    let job = quiet(&["job", "submit-file", "job.toml"]);
    quiet(&["job", "wait", &job]);
    assert_eq!(quiet(&["job", "cat", "--tasks", "5", &job, "stdout"]), "first,second 1");
    let info = &json(&["job", "info", &job])[0];
    assert_eq!(
        (&info["info"]["name"], &info["info"]["task_stats"]["finished"]),
        (&"steps".into(), &2.into())
    );
    let ids: Vec<u64> = info["tasks"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|task| task["id"].as_u64())
        .collect();
    assert_eq!(ids, [3, 5]);
    // Cancelled tasks do not end an open job.
    let open = quiet(&["job", "open"]);
    quiet(&["submit", "--job", &open, "--resource", "rare=1", "--", "true"]);
    quiet(&["job", "cancel", &open]);
    quiet(&["submit", "--job", &open, "--", "true"]);
    quiet(&["job", "close", &open]);
    quiet(&["job", "wait", &open]);
    assert_eq!(quiet(&["job", "task-ids", "--filter", "finished", &open]), "1");
    instance.down();
}

#[test]
fn entries_output_files_and_the_limit_of_failures() {
    let instance = Instance::up(1, 1);
    let sandbox = instance.sandbox();
    let out = sandbox.path("out");
    sandbox.write("lines", "one\n\nthree {job}\n");
    let stdout = format!("{}/%{{JOB_ID}}-%{{TASK_ID}}", out.display());
    let lines = sandbox.path("lines").display().to_string();
    let echo = "echo \"<$STARLING_ENTRY> {i}\"";
    let flags = ["submit", "--wait", "--each-line", &lines, "--stdout", &stdout];
    instance.starling(&[&flags[..], &["--", "sh", "-c", echo]].concat()).ok();
    for (number, text) in [(0, "<one> 0\n"), (1, "<> 1\n"), (2, "<three {job}> 2\n")] {
        let path = out.join(format!("1-{number}"));
        assert_eq!(fs::read_to_string(path).expect("the task has a file"), text);
    }
    // One task at a time: the job ends long before its last task.
    let many = ["submit", "--wait", "--array", "1-3000:3", "--max-fails", "2", "--"];
    let ran = instance.starling(&[&many[..], &["sh", "-c", "sleep 0.1; exit 1"]].concat());
    let ran = ran.expect_code(1);
    assert!(ran.stderr.contains("(--max-fails)"), "{ran:?}");
    // Directives of a script; the command line counts more.
    let script = sandbox.write("s.sh", "#!/bin/sh\n#STARLING --name theirs --priority 2\ntrue\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).expect("it is executable");
    let script = script.display().to_string();
    instance.starling(&["submit", "--wait", &script]).ok();
    instance.starling(&["submit", "--wait", "--name", "mine", &script]).ok();
    let jobs = instance.json(&["job", "list"]);
    let names: Vec<&str> = jobs["jobs"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(names[names.len() - 2..], ["theirs", "mine"]);
    instance.down();
}

#[test]
fn nodes_of_up_are_workers_and_a_task_holds_several_of_them() {
    let instance = Instance::up(2, 2);
    let work = instance.sandbox().path("work");
    fs::create_dir_all(&work).expect("a directory");
    let listed = hq(&instance, &work, &["--output-mode=quiet", "worker", "list"]);
    assert_eq!(listed, "1000000 RUNNING\n1000001 RUNNING\n");
    let info = hq(&instance, &work, &["worker", "info", "1000001"]);
    assert!(info.contains("cpus: 2"), "{info}");
    let script = "echo $HQ_NUM_NODES $(wc -l < $HQ_NODE_FILE)";
    let submit = ["submit", "--wait", "--nodes", "2", "--stdout", "out", "--", "sh", "-c", script];
    hq(&instance, &work, &submit);
    assert_eq!(fs::read_to_string(work.join("out")).expect("it ran"), "2 2\n");
    instance.down();
}

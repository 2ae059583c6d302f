//! Signals before an end, and tasks that move from a node that is drained.

use std::path::Path;

use starling_tests::{Instance, binary, wait_until};

use crate::cluster::submit;

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The first task of a job: its id and its node.
fn task_of(instance: &Instance, job: &str) -> (String, String) {
    let task = instance.json(&["task", "list", job])["tasks"][0].clone();
    let text = |key: &str| task[key].as_str().map_or_else(|| task[key].to_string(), str::to_owned);
    let node = text("node");
    let node = if node.starts_with('n') { node } else { format!("n{node}") };
    (text("id"), node)
}

/// Adds a line for each start, and waits for the file `go`. `on_signal`: what it does on USR1.
fn waits(instance: &Instance, on_signal: &str) -> String {
    let path = |name: &str| instance.sandbox().path(name).display().to_string();
    format!(
        "trap '{on_signal}' USR1; echo start >> {}; until [ -e {} ]; do sleep 0.1; done",
        path("starts"),
        path("go")
    )
}

#[test]
fn a_command_gets_its_signal_before_its_time_limit() {
    let instance = Instance::up(1, 1);
    let told = instance.sandbox().path("told");
    let command = format!(
        "trap 'echo told >> {}' USR1; for i in 1 2 3 4 5 6 7 8; do sleep 0.25; done",
        told.display()
    );
    let limited = ["submit", "--wait", "--time-limit", "60s", "--signal", "USR1@59s"];
    let limited = limited.iter().copied().chain(["--", "sh", "-c", &command]);
    instance.starling(&limited.collect::<Vec<_>>()).ok();
    assert_eq!(lines(&told), ["told"], "once");

    let file = instance.sandbox().write(
        "late.toml",
        "[[task]]\nname = \"late\"\ncommand = [\"sh\", \"-c\", \"trap 'exit 0' USR1; while :; do \
         sleep 0.1; done\"]\ntime_limit = \"60s\"\nsignal = \"USR1@58s\"\n",
    );
    let file = file.display().to_string();
    instance.starling(&["submit", "--wait", "--timeout", "60s", "--file", &file]).ok();

    let wrong = |signal: &str, code: i32, text: &str| {
        let limited = ["submit", "--time-limit", "9s", "--signal", signal, "--", "true"];
        let refused = instance.starling(&limited).expect_code(code);
        assert!(refused.stderr.contains(text), "{refused:?}");
    };
    wrong("USR1@9s", 4, "when the command starts");
    wrong("KILL@1s", 2, "no program can handle");
    wrong("USR7@1s", 2, "no signal such as USR1");
    instance.down();
}

#[test]
fn a_drained_node_moves_a_command_that_exits_after_its_signal() {
    let instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let command = waits(&instance, "exit 9");
    let job = submit(&instance, &["--signal", "USR1@1s", "--", "sh", "-c", &command]);
    let starts = instance.sandbox().path("starts");
    wait_until("it runs", || lines(&starts).len() == 1);
    let (id, first) = task_of(&instance, &job);
    instance.starling(&["node", "drain", &first, "--timeout", "120s"]).ok();
    wait_until("it runs again", || lines(&starts).len() == 2);
    let (_, second) = task_of(&instance, &job);
    assert_ne!(second, first);
    std::fs::write(instance.sandbox().path("go"), "").expect("there is room");
    // It has no retries, and exited with 9.
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();
    let why = instance.starling(&["task", "explain", &job, &id]).ok().stdout;
    // If its home was the node that left, no node has the events of the first attempt.
    let from = format!("was moved from node {}, which is drained", first.trim_start_matches('n'));
    assert!(why.contains(&from) && why.contains(&format!("on node {second}")), "{why}");
    assert_eq!(lines(&starts).len(), 2);
    instance.down();
}

/// The output of the first attempt is on a node that has left: another one has a copy.
#[test]
fn what_a_moved_command_printed_before_is_shown_first() {
    let instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let command = format!("echo begins; {}; echo ends", waits(&instance, "echo saves; exit 9"));
    let job = submit(&instance, &["--signal", "USR1@1s", "--", "sh", "-c", &command]);
    let starts = instance.sandbox().path("starts");
    wait_until("it runs", || lines(&starts).len() == 1);
    let (_, first) = task_of(&instance, &job);
    instance.starling(&["node", "drain", &first, "--timeout", "120s"]).ok();
    wait_until("it runs again", || lines(&starts).len() == 2);
    std::fs::write(instance.sandbox().path("go"), "").expect("there is room");
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();
    let logs = instance.starling(&["job", "logs", &job, "--no-prefix", "--stdout"]).ok();
    assert_eq!(logs.stdout, "begins\nsaves\nbegins\nends\n", "{logs:?}");
    instance.down();
}

#[test]
fn at_the_deadline_of_a_drain_a_deaf_command_is_moved() {
    let instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let command = waits(&instance, "");
    let deaf = ["--crash-limit", "1", "--signal", "USR1@1s", "--", "sh", "-c", &command];
    let job = submit(&instance, &deaf);
    let starts = instance.sandbox().path("starts");
    wait_until("it runs", || lines(&starts).len() == 1);
    let (_, first) = task_of(&instance, &job);
    let drain = ["node", "drain", &first, "--deadline", "1s", "--timeout", "120s"];
    instance.starling(&drain).ok();
    wait_until("it runs again", || lines(&starts).len() == 2);
    std::fs::write(instance.sandbox().path("go"), "").expect("there is room");
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();
    instance.down();
}

/// Counts in its checkpoint directory until the file `go` is there. `at_signal`: what it does on
/// USR1 after it has written its number.
fn counts(instance: &Instance, at_signal: &str) -> String {
    let path = |name: &str| instance.sandbox().path(name).display().to_string();
    format!(
        "c=$STARLING_CHECKPOINT/count; n=$(cat \"$c\" 2>/dev/null || echo 0); \
         echo $n >> {starts}; keep() {{ echo $n > \"$c.new\"; mv \"$c.new\" \"$c\"; }}; \
         trap 'keep; echo $n >> {kept}; {at_signal}' USR1; \
         until [ -e {go} ]; do n=$((n + 1)); keep; sleep 0.1; done",
        starts = path("starts"),
        kept = path("kept"),
        go = path("go"),
    )
}

#[test]
fn a_command_goes_on_at_its_number_on_another_node() {
    let instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let command = counts(&instance, "exit 0");
    let job = submit(&instance, &["--signal", "USR1@1s", "--", "sh", "-c", &command]);
    let starts = instance.sandbox().path("starts");
    wait_until("it runs", || lines(&starts).len() == 1);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (_, first) = task_of(&instance, &job);
    instance.starling(&["node", "drain", &first, "--timeout", "120s"]).ok();
    wait_until("it runs again", || lines(&starts).len() == 2);
    assert_ne!(task_of(&instance, &job).1, first);
    let kept = lines(&instance.sandbox().path("kept"));
    assert_eq!(lines(&starts), ["0".to_owned(), kept[0].clone()]);
    std::fs::write(instance.sandbox().path("go"), "").expect("there is room");
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();
    instance.down();
}

#[test]
fn a_checkpoint_survives_a_time_limit_and_a_killed_process() {
    let instance = Instance::up(1, 2);
    // At its limit it is killed, which is a failure, and it has a retry.
    let command = counts(&instance, "");
    let limited = ["--time-limit", "2s", "--signal", "USR1@1s", "--retries", "1"];
    let limited = limited.iter().copied().chain(["--", "sh", "-c", &command]);
    let job = submit(&instance, &limited.collect::<Vec<_>>());
    let starts = instance.sandbox().path("starts");
    wait_until("it runs again", || lines(&starts).len() == 2);
    let count = |text: &str| text.parse::<u64>().expect("it is a number");
    let kept = lines(&instance.sandbox().path("kept"));
    assert!(count(&lines(&starts)[1]) >= count(&kept[0]) && count(&kept[0]) > 0);
    std::fs::write(instance.sandbox().path("go"), "").expect("there is room");
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();

    let out = instance.sandbox().path("out");
    let killed = format!(
        "c=$STARLING_CHECKPOINT; if [ -e $c/a/b ]; then cat $c/a/b > {}; exit 0; fi; \
         mkdir $c/a; echo kept > $c/a/b; kill -9 $$",
        out.display()
    );
    let retried = ["submit", "--wait", "--signal", "USR1", "--retries", "1", "--"];
    let retried = retried.iter().copied().chain(["sh", "-c", &killed]);
    instance.starling(&retried.collect::<Vec<_>>()).ok();
    assert_eq!(lines(&out), ["kept"]);
    instance.down();
}

#[test]
fn after_a_killed_node_the_last_shipped_checkpoint_is_there() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let (starts, go) = (instance.sandbox().path("starts"), instance.sandbox().path("go"));
    let command = format!(
        "cd $STARLING_CHECKPOINT; cat n >> {starts} 2>/dev/null || echo none >> {starts}; \
         echo shipped > n; {program} commit --checkpoint && echo committed >> {starts}; \
         echo unshipped > n; until [ -e {go} ]; do sleep 0.1; done",
        starts = starts.display(),
        go = go.display(),
        program = binary().display()
    );
    let job = submit(&instance, &["--signal", "USR1", "--", "sh", "-c", &command]);
    wait_until("it has committed", || lines(&starts).len() == 2);
    let (_, first) = task_of(&instance, &job);
    instance.kill(first[1..].parse().expect("it is a number"));
    wait_until("it runs again", || lines(&starts).len() == 4);
    assert_eq!(lines(&starts), ["none", "committed", "shipped", "committed"]);
    std::fs::write(&go, "").expect("there is room");
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();
    instance.start_missing();
    instance.down();
}

#[test]
fn a_checkpoint_that_is_too_large_is_refused() {
    let instance = Instance::up(1, 1);
    let out = instance.sandbox().path("out");
    let commit = format!("{} commit --checkpoint", binary().display());
    let large = format!("head -c 70000 /dev/zero > $STARLING_CHECKPOINT/x; {commit}");
    let command = format!("({large}) 2> {}; echo $? >> {0}; exit 7", out.display());
    let words = ["submit", "--wait", "--signal", "USR1", "--", "sh", "-c", &command];
    let failed = instance.starling(&words).expect_code(1);
    let said = lines(&out).join("\n");
    assert!(
        said.contains("the checkpoint directory is too large") && said.ends_with('4'),
        "{said}"
    );
    let text = format!("{}{}", failed.stdout, failed.stderr);
    assert!(text.contains("the former checkpoint stays"), "{text}");
    // Without a signal a command has no such directory.
    let command = format!("{commit} 2> {}", out.display());
    instance.starling(&["submit", "--wait", "--", "sh", "-c", &command]).expect_code(1);
    assert!(lines(&out).join("\n").contains("STARLING_CHECKPOINT is not set"));
    instance.down();
}

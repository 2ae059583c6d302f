//! Retried jobs: failed and skipped tasks run again, and no others.

use std::fs;

use starling_tests::Instance;

use crate::cluster::{job, submit};

/// The number of runs of each task, by its name in the log.
fn runs(instance: &Instance, name: &str) -> usize {
    let text = fs::read_to_string(instance.sandbox().path("ran")).unwrap_or_default();
    text.lines().filter(|line| *line == name).count()
}

/// A parent with two readers, and a task that joins them. One reader fails until it is repaired,
/// and reads a file of the submitter.
fn diamond(instance: &Instance) -> String {
    let log = instance.sandbox().path("ran").display().to_string();
    let mended = instance.sandbox().path("mended").display().to_string();
    let task = |name: &str, rest: &str, script: &str| {
        format!(
            "[[task]]\nname='{name}'\n{rest}\n\
             command=['sh','-c','echo {name} >> {log}; {script}']\n"
        )
    };
    let fails = format!("[ -e {mended} ] && cat $STARLING_INPUTS > l");
    let text = task("make", "outputs={x='x'}", "echo made > x")
        + &task("left", "inputs={x='x'}\noutputs={l='l'}", &fails)
        + &task("right", "inputs={x='x'}\noutputs={r='r'}", "cp x r")
        + &task(
            "join",
            "inputs={l='l',r='r'}\noutputs={all={file='all',keep=true}}",
            "cat l r > all",
        );
    instance.sandbox().write("diamond.toml", text);
    submit(instance, &["--file", "diamond.toml"])
}

fn check_diamond(instance: &mut Instance, between: impl Fn(&mut Instance)) {
    let id = diamond(instance);
    instance.starling(&["job", "wait", &id]).expect_code(1);
    let first = job(instance, &id);
    assert_eq!((&first["tasks"]["failed"], &first["tasks"]["skipped"]), (&1.into(), &1.into()));
    between(instance);
    instance.sandbox().write("mended", "");
    let answer = instance.json(&["job", "retry", &id]);
    assert_eq!((&answer["round"], &answer["tasks"]), (&1.into(), &2.into()), "{answer}");
    instance.starling(&["job", "wait", &id]).ok();
    let ran = ["make", "left", "right", "join"].map(|name| runs(instance, name));
    assert_eq!(ran, [1, 2, 1, 1], "the parent's output was kept");
    let info = job(instance, &id);
    assert_eq!((&info["state"], &info["round"]), (&"finished".into(), &1.into()), "{info}");
    assert_eq!((&info["tasks"]["done"], &info["tasks"]["failed"]), (&4.into(), &0.into()));
    // The record of the first round is unchanged.
    let past = instance.json(&["job", "info", &id, "--round", "0"]);
    for what in ["state", "tasks", "failures", "makespan_s", "first_start_s", "work_s", "attempts"]
    {
        assert_eq!(past[what], first[what], "{what}: {past}");
    }
    let unknown = instance.starling(&["job", "info", &id, "--round", "2"]).expect_code(4);
    assert!(unknown.stderr.contains("has no round 2"), "{}", unknown.stderr);
    let nothing = instance.starling(&["job", "retry", &id]).expect_code(4);
    assert!(nothing.stderr.contains("nothing to retry"), "{}", nothing.stderr);
    assert!(nothing.stderr.contains("hint:"), "{}", nothing.stderr);
    instance.starling(&["job", "fetch", &id, "--output", "there"]).ok();
    let text = fs::read_to_string(instance.sandbox().path("there/all")).expect("it is kept");
    assert_eq!(text, "made\nmade\n");
}

#[test]
fn a_failed_reader_runs_again_and_its_parent_does_not() {
    let mut instance = Instance::up(2, 2);
    check_diamond(&mut instance, |_| ());
    instance.down();
}

#[test]
fn a_job_is_retried_after_all_nodes_were_away() {
    let mut instance = Instance::up_with_copies(1, 2, 1);
    check_diamond(&mut instance, |instance| {
        instance.kill(0);
        instance.start_missing();
    });
    instance.down();
}

#[test]
fn named_tasks_run_again_and_only_those() {
    let instance = Instance::up(1, 2);
    let log = instance.sandbox().path("ran").display().to_string();
    let mended = instance.sandbox().path("mended").display().to_string();
    let script = format!("echo {{i}} >> {log}; [ {{i}} -le 2 ] || [ -e {mended} ]");
    let id = submit(&instance, &["--array", "1-4", "--", "sh", "-c", &script]);
    instance.starling(&["job", "wait", &id]).expect_code(1);
    for nothing in ["", ","] {
        let refused = instance.starling(&["job", "retry", &id, nothing]).expect_code(2);
        assert!(refused.stderr.contains("no task is named"), "{}", refused.stderr);
    }
    let done = instance.starling(&["job", "retry", &id, "2,3"]).expect_code(4);
    assert!(done.stderr.contains("is done"), "{}", done.stderr);
    instance.sandbox().write("mended", "");
    // One of the two failed tasks is still failed afterwards.
    instance.starling(&["job", "retry", &id, "3", "--wait"]).expect_code(1);
    assert_eq!([runs(&instance, "3"), runs(&instance, "4")], [2, 1]);
    instance.starling(&["job", "retry", &id, "--failed", "--wait"]).ok();
    assert_eq!(["1", "2", "3", "4"].map(|entry| runs(&instance, entry)), [1, 1, 2, 2]);
    instance.down();
}

#[test]
fn a_task_that_would_be_skipped_again_is_refused_and_its_parent_is_named() {
    let instance = Instance::up(1, 2);
    let mended = instance.sandbox().path("mended").display().to_string();
    let text = format!(
        "[[task]]\nname = 'b'\ncommand = ['sh', '-c', '[ -e {mended} ]']\n\
         [[task]]\nname = 'c'\ncommand = ['true']\nafter = ['b']\n\
         [[task]]\nname = 'd'\ncommand = ['true']\nafter = ['c']\n"
    );
    instance.sandbox().write("chain.toml", text);
    let id = submit(&instance, &["--file", "chain.toml"]);
    instance.starling(&["job", "wait", &id]).expect_code(1);
    let refused = instance.starling(&["job", "retry", &id, "c"]).expect_code(4);
    assert!(refused.stderr.contains("('b'), which is failed"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: name both"), "{}", refused.stderr);
    let refused = instance.starling(&["job", "retry", &id, "b,d"]).expect_code(4);
    assert!(refused.stderr.contains("('c'), which is skipped"), "{}", refused.stderr);
    assert_eq!(job(&instance, &id)["state"], "failed", "no round was opened");
    instance.sandbox().write("mended", "");
    let retried = instance.starling(&["job", "retry", &id, "b,c", "--wait"]).expect_code(1);
    let waited = instance.starling(&["job", "wait", &id]).expect_code(1);
    for told in [retried.stderr, waited.stderr] {
        assert!(told.contains("error: not all 3 tasks are done: 1 skipped"), "{told}");
    }
    instance.starling(&["job", "retry", &id, "d", "--wait"]).ok();
    instance.down();
}

#[test]
fn a_job_that_goes_on_is_not_retried() {
    let instance = Instance::up(1, 1);
    let id = submit(&instance, &["--", "sleep", "300"]);
    let ran = instance.starling(&["job", "retry", &id]).expect_code(4);
    assert!(ran.stderr.contains("has not ended"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint:"), "{}", ran.stderr);
    instance.starling(&["job", "cancel", &id]).ok();
    instance.starling(&["job", "wait", &id]).expect_code(1);
    let answer = instance.json(&["job", "retry", &id]);
    assert_eq!((&answer["round"], &answer["tasks"]), (&1.into(), &1.into()), "{answer}");
    assert_eq!(job(&instance, &id)["state"], "running");
    instance.starling(&["job", "cancel", &id]).ok();
    instance.starling(&["job", "wait", &id]).expect_code(1);
    assert_eq!(job(&instance, &id)["state"], "cancelled");
    instance.down();
}

#[test]
fn of_several_jobs_those_that_failed_run_again() {
    let instance = Instance::up(1, 2);
    let mended = instance.sandbox().path("mended").display().to_string();
    let script = format!("[ -e {mended} ]");
    let fails = || {
        let id = submit(&instance, &["--", "sh", "-c", &script]);
        instance.starling(&["job", "wait", &id]).expect_code(1);
        id
    };
    let (first, last) = (fails(), {
        let done = submit(&instance, &["--", "true"]);
        instance.starling(&["job", "wait", &done]).ok();
        fails()
    });
    let open = submit(&instance, &["--", "sleep", "300"]);
    let refused = instance.starling(&["job", "retry", "all"]).expect_code(4);
    assert!(refused.stderr.contains("no job was retried"), "{}", refused.stderr);
    assert_eq!(job(&instance, &first)["state"], "failed");
    instance.starling(&["job", "cancel", &open]).ok();
    instance.starling(&["job", "wait", &open]).expect_code(1);
    let useless = instance.starling(&["job", "retry", &first, "--timeout", "1s"]).expect_code(2);
    assert!(useless.stderr.contains("--wait"), "{}", useless.stderr);
    instance.sandbox().write("mended", "");
    let range = format!("{first}-{last}");
    let retried = instance.starling(&["job", "retry", &range, "--wait", "--timeout", "60s"]).ok();
    assert!(retried.stderr.contains("nothing to run again"), "{}", retried.stderr);
    let states = [&first, &last].map(|id| job(&instance, id)["state"].clone());
    assert_eq!(states, ["finished", "finished"]);
    instance.down();
}

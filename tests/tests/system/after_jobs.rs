//! Jobs that wait for the ends of other jobs: `submit --after-job`, and `after_job` of a file.

use starling_tests::{Instance, wait_until};

/// Submits a command, and returns the number of its job.
fn submit(instance: &Instance, options: &[&str], script: &str) -> String {
    let args = [&["submit"][..], options, &["--", "sh", "-c", script]].concat();
    instance.starling(&args).ok().stdout.trim().to_owned()
}

/// A command that ends when there is a file, with this code.
fn gate(instance: &Instance, name: &str, code: u8) -> (std::path::PathBuf, String) {
    let file = instance.sandbox().path(name);
    let script = format!("until [ -e {} ]; do sleep 0.05; done; exit {code}", file.display());
    (file, script)
}

fn state(instance: &Instance, job: &str) -> serde_json::Value {
    instance.json(&["job", "info", job])
}

#[test]
fn a_job_starts_when_the_other_has_ended_well() {
    let instance = Instance::up(2, 2);
    let (go, script) = gate(&instance, "go", 0);
    let first = submit(&instance, &[], &script);
    let second = submit(&instance, &["--after-job", &first], "echo second");
    let third = submit(&instance, &["--after-job", &format!("{first},{second}")], "echo third");
    let listed = instance.starling(&["job", "list"]).ok().stdout;
    assert_eq!(listed.matches("waiting").count(), 2, "{listed}");
    let info = instance.starling(&["job", "info", &third]).ok().stdout;
    let waits = format!("waits for job {first} and job {second}");
    assert!(info.contains(&waits), "{info}");
    assert_eq!(state(&instance, &second)["waits_for"], serde_json::json!([first]));
    let why = instance.starling(&["task", "explain", &second]).ok().stdout;
    assert!(why.contains(&format!("its job waits for job {first}")), "{why}");
    std::fs::write(&go, "").expect("there is room");
    for (job, text) in [(&second, "second"), (&third, "third")] {
        instance.starling(&["job", "wait", job, "--timeout", "60s"]).ok();
        assert_eq!(instance.starling(&["job", "output", job]).ok().stdout.trim(), text);
    }
    assert_eq!(state(&instance, &third)["waits_for"], serde_json::Value::Null);
    instance.down();
}

#[test]
fn a_job_is_skipped_when_the_other_has_failed_or_was_cancelled() {
    let instance = Instance::up(2, 2);
    let (go, script) = gate(&instance, "go", 3);
    let first = submit(&instance, &[], &script);
    let mark = instance.sandbox().path("mark");
    let touch = format!("touch {}", mark.display());
    let strict = submit(&instance, &["--after-job", &first], &touch);
    let any = format!("any:{first}");
    let lenient = submit(&instance, &["--after-job", &any], "echo anyhow");
    std::fs::write(&go, "").expect("there is room");
    instance.starling(&["job", "wait", &lenient, "--timeout", "60s"]).ok();
    let waited = instance.starling(&["job", "wait", &strict, "--timeout", "60s"]);
    assert_eq!(waited.code, 1, "{}", waited.stderr);
    assert!(waited.stderr.contains("all tasks were skipped"), "{}", waited.stderr);
    let told = state(&instance, &strict);
    assert_eq!(told["skipped_because"], format!("job {first} ended with failures"));
    assert_eq!(told["tasks"]["skipped"], 1, "{told}");
    let why = instance.starling(&["task", "explain", &strict]).ok().stdout;
    assert!(why.contains(&format!("skipped: job {first} ended with failures")), "{why}");
    let info = instance.starling(&["job", "info", &strict]).ok().stdout;
    assert!(info.contains(&format!("job {first} ended with failures")), "{info}");
    // The other job has ended before: the answer is the same.
    let late = submit(&instance, &["--after-job", &first], &touch);
    instance.starling(&["job", "wait", &late, "--timeout", "60s"]);
    assert_eq!(state(&instance, &late)["tasks"]["skipped"], 1);
    assert!(!mark.exists(), "no task has started");
    instance.starling(&["job", "retry", &strict]).ok();
    instance.starling(&["job", "wait", &strict, "--timeout", "60s"]).ok();
    assert!(mark.exists(), "a retried job waits no more");

    let (_, script) = gate(&instance, "never", 0);
    let blocked = submit(&instance, &[], &script);
    let waits = submit(&instance, &["--after-job", &blocked], "true");
    let also = submit(&instance, &["--after-job", &waits], "true");
    instance.starling(&["job", "cancel", &waits]).ok();
    instance.starling(&["job", "wait", &waits, "--timeout", "60s"]);
    assert_eq!(state(&instance, &waits)["state"], "cancelled");
    instance.starling(&["job", "wait", &also, "--timeout", "60s"]);
    assert_eq!(state(&instance, &also)["skipped_because"], format!("job {waits} was cancelled"));
    instance.starling(&["job", "cancel", &blocked]).ok();
    instance.down();
}

#[test]
fn a_wait_survives_the_loss_of_a_node() {
    let mut instance = Instance::up(3, 2);
    let (go, script) = gate(&instance, "go", 0);
    let first = submit(&instance, &[], &script);
    let text = format!(
        "[job]\nafter_job = [{first}]\n[[task]]\nname = \"t\"\narray = \"1-6\"\n\
                        command = [\"true\"]\n"
    );
    let file = instance.sandbox().write("w.toml", &text).display().to_string();
    let second = instance.starling(&["submit", "--file", &file]).ok().stdout.trim().to_owned();
    assert_eq!(state(&instance, &second)["waits_for"], serde_json::json!([first]));
    instance.wait_for_copies();
    instance.kill(1);
    wait_until("the job is known again", || {
        let listed = instance.starling(&["job", "list"]);
        listed.code == 0 && listed.stdout.contains("waiting")
    });
    std::fs::write(&go, "").expect("there is room");
    instance.starling(&["job", "wait", &second, "--timeout", "120s"]).ok();
    assert_eq!(state(&instance, &second)["tasks"]["done"], 6);
    instance.down();
}

#[test]
fn wrong_jobs_to_wait_for_are_refused() {
    let instance = Instance::up(1, 1);
    let refused = |args: &[&str]| {
        let ran = instance.starling(&[&["submit"][..], args].concat());
        assert_ne!(ran.code, 0, "{args:?}");
        ran.stderr
    };
    let unknown = refused(&["--after-job", "99", "--", "true"]);
    assert!(unknown.contains("99"), "{unknown}");
    let wrong = refused(&["--after-job", "last", "--", "true"]);
    assert!(wrong.contains("names no job"), "{wrong}");
    let open = refused(&["--open", "--after-job", "1"]);
    assert!(open.contains("waits for no other job"), "{open}");
    assert_eq!(instance.json(&["job", "list"])["jobs"], serde_json::json!([]));
    instance.down();
}

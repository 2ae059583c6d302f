//! Jobs that run a limited number of tasks at once: `--array 1-6%2`, and `[job]` of a file.

use std::path::Path;

use starling_tests::{Instance, wait_until};

/// A command that leaves a file when it starts, and ends when there is a file `go`.
fn waiting(dir: &Path) -> String {
    let dir = dir.display();
    format!("touch {dir}/started.$STARLING_TASK_ID; until [ -e {dir}/go ]; do sleep 0.05; done")
}

fn started(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).expect("the directory exists");
    let names = entries.map(|entry| entry.expect("it is read").file_name());
    names.filter(|name| name.to_string_lossy().starts_with("started.")).count()
}

#[test]
fn two_tasks_of_an_array_run_at_once() {
    let instance = Instance::up(2, 4);
    let dir = instance.sandbox().path("gate");
    std::fs::create_dir(&dir).expect("there is room");
    let command = waiting(&dir);
    let job = instance.starling(&["submit", "--array", "1-6%2", "--", "sh", "-c", &command]);
    let job = job.ok().stdout.trim().to_owned();
    wait_until("two tasks have started", || started(&dir) == 2);
    let tasks = instance.json(&["task", "list", &job]);
    let tasks = tasks["tasks"].as_array().expect("there are tasks").clone();
    let waits = tasks.iter().filter(|task| task["state"] == "waiting").collect::<Vec<_>>();
    assert_eq!(waits.len(), 4, "{tasks:?}");
    let id = waits[0]["id"].as_str().map_or_else(|| waits[0]["id"].to_string(), str::to_owned);
    let why = instance.starling(&["task", "explain", &job, &id]).ok().stdout;
    assert!(why.contains("at most 2 tasks of its job run at once"), "{why}");
    // Six slots are free all the time.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(started(&dir), 2);
    std::fs::write(dir.join("go"), "").expect("there is room");
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();
    assert_eq!(started(&dir), 6);
    instance.down();
}

#[test]
fn a_file_limits_its_job_and_declares_variables() {
    let instance = Instance::up(2, 2);
    let dir = instance.sandbox().path("gate");
    std::fs::create_dir(&dir).expect("there is room");
    let command = waiting(&dir);
    let text = format!(
        "[job]\nat_most = 1\n[job.var]\nbest = \"max:7\"\n[[task]]\nname = \"t\"\narray = \"1-3\"\n\
         command = [\"sh\", \"-c\", \"\"\"{command}\"\"\"]\n"
    );
    let file = instance.sandbox().write("w.toml", &text).display().to_string();
    let job = instance.starling(&["submit", "--file", &file]).ok().stdout.trim().to_owned();
    wait_until("a task has started", || started(&dir) == 1);
    let best = instance.starling(&["var", "get", "--job", &job, "best"]).ok().stdout;
    assert_eq!(best.trim(), "7");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(started(&dir), 1);
    std::fs::write(dir.join("go"), "").expect("there is room");
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();
    assert_eq!(started(&dir), 3);
    let refused = instance.starling(&["submit", "--open", "--at-most", "2"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    instance.down();
}

//! Reports of ended jobs do not change until the jobs are forgotten.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;
use starling_tests::{Instance, Sandbox, wait_until};

use crate::cluster::{job, submit};

/// The `job info` of an ended job after it is recorded.
fn recorded(instance: &Instance, id: &str) -> Value {
    let info = job(instance, id);
    assert_eq!(info["recorded"], true, "{info}");
    info
}

/// The names of tasks in the order of their ids.
fn names(instance: &Instance, id: &str) -> Vec<String> {
    let list = instance.json(&["task", "list", id]);
    let tasks = list["tasks"].as_array().expect("a list of tasks").iter();
    tasks.map(|task| task["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn an_ended_job_shows_the_state_of_its_time() {
    let instance = Instance::up_with_copies(2, 2, 2);
    let id = submit(
        &instance,
        &["--wait", "--", "sh", "-c", "i=0; while [ $i -lt 999999 ]; do i=$((i+1)); done"],
    );
    let first = recorded(&instance, &id);
    assert_eq!((&first["slots"], &first["nodes"]), (&4.into(), &2.into()), "{first}");
    assert_eq!((&first["policy"], &first["tuning"]["policy"]), (&"eft".into(), &"eft".into()));
    assert_eq!(first["missing_parts"], Value::Array(Vec::new()), "{first}");
    assert_eq!(first["cluster_wide"]["others_ran"], false, "{first}");
    assert!(first["cpu_s"].as_f64().unwrap() > 0.0 && first["work_s"].as_f64().unwrap() > 0.0);
    instance.starling(&["node", "set", "--policy", "mlb"]).ok();
    submit(&instance, &["--wait", "--file", "bag:tasks=200,duration=1ms"]);
    assert_eq!(recorded(&instance, &id), first, "after another job");
    instance.starling(&["down"]).ok();
    instance.starling(&["up", "--slots", "1"]).ok();
    assert_eq!(recorded(&instance, &id), first, "after a restart with other slots");
    let info = instance.starling(&["job", "info", &id]).ok().stdout;
    assert!(info.contains("2 nodes, 4 slots, eft"), "{info}");
}

#[test]
fn jobs_that_overlap_say_that_the_nodes_ran_others() {
    let instance = Instance::up(1, 2);
    let long = submit(&instance, &["--", "sleep", "1.5"]);
    let short = submit(&instance, &["--wait", "--", "sleep", "0.2"]);
    let info = recorded(&instance, &short);
    assert_eq!(info["cluster_wide"]["others_ran"], true, "{info}");
    let text = instance.starling(&["job", "info", &short]).ok().stdout;
    assert!(text.contains("while the job ran: other jobs ran, too"), "{text}");
    instance.starling(&["job", "wait", &long]).ok();
}

#[test]
fn a_node_that_died_before_its_report_is_named() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    let id = submit(&instance, &["--file", "bag:tasks=30,duration=100ms"]);
    wait_until("some tasks are done", || job(&instance, &id)["tasks"]["done"].as_u64() > Some(5));
    instance.kill(2);
    instance.starling(&["job", "wait", &id]).ok();
    wait_until("it is recorded", || job(&instance, &id)["recorded"] == true);
    let first = recorded(&instance, &id);
    assert_eq!(first["missing_parts"], serde_json::json!(["n2"]), "{first}");
    instance.start_missing();
    assert_eq!(recorded(&instance, &id), first, "it is back, and tells nothing more");
}

/// Two-slot tasks with individual names.
fn wide(sandbox: &Sandbox, tasks: usize, seconds: &str) {
    let mut text = String::new();
    for task in 0..tasks {
        let _ =
            write!(text, "[[task]]\nname='wide-{task}'\ncpus=2\ncommand=['sleep','{seconds}']\n");
    }
    sandbox.write("wide.toml", text);
}

#[test]
fn wide_tasks_count_on_all_their_slots() {
    let instance = Instance::up(2, 4);
    wide(instance.sandbox(), 40, "0.1");
    let id = submit(&instance, &["--wait", "--file", "wide.toml"]);
    let past = recorded(&instance, &id);
    let run = ["run", "--json", "--nodes", "2", "--slots", "4", "wide.toml"];
    let run = instance.starling(&run).ok().json();
    for (what, info) in [("job info", &past), ("run", &run)] {
        let number = |key: &str| info[key].as_f64().unwrap();
        assert!((7.9..14.0).contains(&number("work_s")), "{what}: {info}");
        assert!(number("utilization") > 0.5, "{what}: {info}");
        assert_eq!(info["waits"]["slots"], 8, "{what}: {info}");
    }
    let trace = instance.sandbox().path("trace.json");
    instance.starling(&["trace", &id, "-o", trace.to_str().unwrap()]).ok();
    let trace: Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let drawn = events.iter().filter(|it| it["ph"] == "X" && it["cat"] == "wide");
    assert_eq!(drawn.count(), 80, "each on two slots");
}

/// With replicas the end of an attempt is reported only after other nodes have its kept outputs.
/// Its slots are reused before.
#[test]
fn wide_tasks_that_keep_results_count_on_all_their_slots_with_copies() {
    let instance = Instance::up_with_copies(2, 4, 2);
    let mut text = String::new();
    for task in 0..20 {
        let command = format!("['sh','-c','sleep 0.2; echo {task} > k{task}']");
        let _ = write!(text, "[[task]]\nname='t{task}'\ncpus=2\ncommand={command}\n");
        let _ = writeln!(text, "outputs={{k={{file='k{task}',keep=true}}}}");
    }
    instance.sandbox().write("keeps.toml", text);
    let id = submit(&instance, &["--wait", "--file", "keeps.toml"]);
    let info = recorded(&instance, &id);
    let work = info["work_s"].as_f64().unwrap();
    assert!((7.9..16.0).contains(&work), "20 tasks of 0.2 s on two slots each: {info}");
    assert_eq!(info["waits"]["slots"], 8, "{info}");
}

#[test]
fn what_a_cancelled_job_ran_counts_until_it_was_stopped() {
    let instance = Instance::up(1, 2);
    let id = submit(&instance, &["--file", "bag:tasks=4,duration=30s"]);
    wait_until("it runs", || job(&instance, &id)["tasks"]["done"] == 0);
    std::thread::sleep(std::time::Duration::from_secs(2));
    instance.starling(&["job", "cancel", &id]).ok();
    wait_until("it is recorded", || job(&instance, &id)["recorded"] == true);
    let info = recorded(&instance, &id);
    let busy = info["per_node"][0]["busy_s"].as_f64().unwrap();
    assert!((2.0..10.0).contains(&busy), "two slots for two seconds: {info}");
    assert_eq!(info["work_s"], 0.0, "{info}");
}

#[test]
fn names_of_ended_tasks_survive_deaths_and_restarts() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    wide(instance.sandbox(), 12, "0.01");
    let id = submit(&instance, &["--wait", "--file", "wide.toml"]);
    let before = names(&instance, &id);
    assert!(before.contains(&"wide-7".to_owned()), "{before:?}");
    let ran_at = times(&instance, &id);
    let submitted = job(&instance, &id)["submitted_s"].as_f64();
    for (start, end) in &ran_at {
        assert!((0.01..5.0).contains(&(end - start)), "{start} to {end}");
        assert!(submitted.is_none_or(|submitted| *start > submitted - 1.0), "{start}");
    }
    // More ended tasks than stay in memory.
    for _ in 0..3 {
        submit(&instance, &["--wait", "--file", "bag:tasks=100000,body=noop"]);
    }
    assert_eq!(names(&instance, &id), before, "when records have left memory");
    instance.kill(1);
    assert_eq!(names(&instance, &id), before, "after a death");
    instance.start_missing();
    instance.starling(&["down"]).ok();
    instance.starling(&["up"]).ok();
    assert_eq!(names(&instance, &id), before, "after a restart");
    assert_eq!(times(&instance, &id), ran_at, "after a restart");
    let info = instance.starling(&["task", "info", &id, "wide-7"]).ok().stdout;
    assert!(info.contains("started   20") && info.contains("ended     20"), "{info}");
    let text = instance.starling(&["task", "explain", &id, "wide-7"]).ok().stdout;
    assert!(text.contains("task 'wide-7'") && text.contains("is done"), "{text}");
}

/// Of several jobs, those that can be forgotten are; results that were never made hold none back.
#[test]
fn a_job_that_stays_does_not_hold_back_others() {
    let instance = Instance::up(1, 2);
    let plain = submit(&instance, &["--wait", "--", "true"]);
    let failed = instance.starling(&["submit", "--wait", "--out", "k", "--", "false"]);
    let failed = failed.expect_code(1).stdout.trim().to_owned();
    let keeps = submit(&instance, &["--wait", "--out", "k", "--", "touch", "k"]);
    let runs = submit(&instance, &["--", "sleep", "60"]);
    let ran = instance.starling(&["job", "forget", "all"]).expect_code(4);
    assert!(ran.stderr.contains(&format!("job {keeps} keeps results")), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("job {runs} is not forgotten")), "{}", ran.stderr);
    let list = instance.json(&["job", "list"]);
    let left: Vec<_> = list["jobs"].as_array().unwrap().iter().map(|it| &it["job"]).collect();
    assert!(left.contains(&&Value::from(keeps.as_str())) && left.len() == 2, "{list}");
    for gone in [&plain, &failed] {
        let ran = instance.starling(&["job", "cancel", gone]).expect_code(4);
        assert!(ran.stderr.contains("was forgotten on 20"), "{}", ran.stderr);
    }
    instance.starling(&["job", "cancel", &runs]).ok();
    instance.starling(&["job", "wait", &runs]).expect_code(1);
    instance.starling(&["job", "forget", &runs, &keeps, "--results"]).ok();
}

#[test]
fn a_forgotten_job_stays_forgotten() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    let text = "[[task]]\nname='made'\ncommand=['sh','-c','echo said-$((20+22)); echo kept > k']\n\
                outputs={k={file='k',keep=true}}\n";
    instance.sandbox().write("keeps.toml", text);
    let id = submit(&instance, &["--wait", "--file", "keeps.toml"]);
    let other = submit(&instance, &["--", "sleep", "30"]);
    let refused = instance.starling(&["job", "forget", &other]).expect_code(4);
    assert!(refused.stderr.contains("has not ended"), "{}", refused.stderr);
    assert!(refused.stderr.contains("job cancel"), "{}", refused.stderr);
    instance.starling(&["job", "forget", "all"]).expect_code(4);
    assert_eq!(recorded(&instance, &id)["state"], "finished", "nothing was forgotten");
    instance.starling(&["job", "cancel", &other]).ok();
    // A node that is down learns of this when it is back.
    let refused = instance.starling(&["job", "forget", &id]).expect_code(4);
    assert!(refused.stderr.contains("keeps results"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--results"), "{}", refused.stderr);
    let list = format!("starling/kept/{id}/0");
    instance.starling(&["kv", "lookup", &list]).ok();
    assert_eq!(objects(&instance), 2, "on its node and a copy");
    wait_until("a copy of what it printed", || with_text(&instance, "said-42") == 2);
    instance.kill(2);
    let forgotten = instance.starling(&["job", "forget", &id, "--results"]).ok();
    assert!(forgotten.stderr.contains("n2 removes what it has"), "{}", forgotten.stderr);
    // Again, as after an interrupted command.
    instance.starling(&["job", "forget", &id, "--results"]).ok();
    instance.starling(&["kv", "lookup", &list]).expect_code(1);
    let is_unknown = |instance: &Instance, when: &str| {
        for verb in [
            &["job", "info", id.as_str()][..],
            &["job", "output", &id],
            &["task", "list", &id],
            &["task", "explain", &id, "made"],
            &["job", "retry", &id],
            &["job", "cancel", &id],
        ] {
            let ran = instance.starling(verb);
            assert!(ran.stderr.contains("was forgotten on 20"), "{when}, {verb:?}: {}", ran.stderr);
        }
        let list = instance.json(&["job", "list"]);
        assert_eq!(list["jobs"].as_array().unwrap().len(), 1, "{when}: {list}");
    };
    is_unknown(&instance, "at once");
    instance.start_missing();
    instance.wait_for_copies();
    is_unknown(&instance, "when the node is back");
    wait_until("what it kept is gone from all nodes", || objects(&instance) == 0);
    wait_until("so is what it printed", || with_text(&instance, "said-42") == 0);
    instance.starling(&["down"]).ok();
    instance.starling(&["up"]).ok();
    is_unknown(&instance, "after a restart");
    let next = submit(&instance, &["--wait", "--", "true"]);
    assert!(next.parse::<u64>().unwrap() > other.parse().unwrap(), "its number is not used again");
}

/// Start and end of each task.
fn times(instance: &Instance, id: &str) -> Vec<(f64, f64)> {
    let list = instance.json(&["task", "list", id]);
    let tasks = list["tasks"].as_array().expect("a list").iter();
    let seconds = |it: &Value| it.as_f64().expect("a time");
    tasks.map(|it| (seconds(&it["started_s"]), seconds(&it["ended_s"]))).collect()
}

/// The number of files with this text on all nodes.
fn with_text(instance: &Instance, text: &str) -> usize {
    let files = starling_tests::files_below(instance.directory());
    let holds = |bytes: Vec<u8>| bytes.windows(text.len()).any(|it| it == text.as_bytes());
    files.iter().filter(|path| fs::read(path).is_ok_and(holds)).count()
}

/// The number of object files on all nodes.
fn objects(instance: &Instance) -> usize {
    let files = starling_tests::files_below(instance.directory());
    files.iter().filter(|path| path.to_string_lossy().contains("/objects/")).count()
}

/// The bytes of all event logs.
fn events_bytes(instance: &Instance) -> u64 {
    let files = starling_tests::files_below(instance.directory());
    let logs = files.iter().filter(|path| path.to_string_lossy().contains("/events-"));
    logs.map(|path| fs::metadata(path).map_or(0, |it| it.len())).sum()
}

#[test]
fn retention_removes_the_oldest_and_never_what_is_kept() {
    let sandbox = Sandbox::new();
    let dir = sandbox.path("c");
    let dir = dir.to_str().unwrap();
    let at = |arguments: &[&str]| {
        let all = [&["--dir", dir][..], arguments].concat();
        sandbox.starling(&all[..])
    };
    at(&["up", "--nodes", "1", "--slots", "2", "--history", "2MiB"]).ok();
    sandbox.write(
        "keeps.toml",
        "[[task]]\nname='made'\ncommand=['sh','-c','echo kept > k']\n\
         outputs={k={file='k',keep=true}}\n",
    );
    at(&["submit", "--wait", "--file", "keeps.toml"]).ok();
    at(&["submit", "--wait", "--file", "bag:tasks=10000,body=noop"]).ok();
    let first = at(&["job", "info", "2", "--json"]).ok().json();
    assert_eq!(first["recorded"], true, "{first}");
    let list = || at(&["task", "list", "2", "--json"]).ok().json();
    wait_until("its task records are removed", || {
        at(&["submit", "--wait", "--file", "bag:tasks=10000,body=noop"]).ok();
        list()["removed_by_retention"] == true
    });
    assert_eq!(list()["tasks"], Value::Array(Vec::new()));
    assert_eq!(at(&["job", "info", "2", "--json"]).ok().json(), first, "the summary stays");
    let output = at(&["job", "output", "2"]).expect_code(4);
    assert!(output.stderr.contains("removed by retention"), "{}", output.stderr);
    let retry = at(&["job", "retry", "2"]).expect_code(4);
    assert!(retry.stderr.contains("removed by retention"), "{}", retry.stderr);
    at(&["job", "fetch", "1", "--output", sandbox.path("got").to_str().unwrap()]).ok();
    assert_eq!(fs::read_to_string(sandbox.path("got/k")).unwrap(), "kept\n");
    at(&["down"]).ok();
    at(&["up"]).ok();
    assert_eq!(at(&["job", "info", "2", "--json"]).ok().json(), first, "after a restart");
    assert_eq!(list()["removed_by_retention"], true, "after a restart");
    let node = at(&["node", "list", "--json"]).ok().stdout;
    assert!(!node.is_empty());
    at(&["down"]).ok();
}

#[test]
fn event_logs_stay_below_their_bound() {
    let instance = Instance::up(1, 2);
    instance.starling(&["node", "set", "--history", "1MiB"]).ok();
    wait_until("the oldest events are removed", || {
        submit(&instance, &["--wait", "--file", "bag:tasks=5000,body=noop"]);
        let files = starling_tests::files_below(instance.directory());
        let first = |path: &std::path::PathBuf| path.ends_with("events-0000000001-000000.log");
        !files.iter().any(first)
    });
    // Half of the bound is for events, and twice that while a job is open, and the open segment.
    // The node may still be removing files.
    wait_until("the event logs are below their bound", || events_bytes(&instance) < 3 << 19);
    assert!(0 < events_bytes(&instance), "events stay");
    let refused = instance.starling(&["node", "set", "--history", "much"]).expect_code(2);
    assert!(refused.stderr.contains("2GiB,30d"), "{}", refused.stderr);
}

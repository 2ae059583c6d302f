//! Variables of jobs: `submit --var` and `starling var`, inside tasks and from outside.

use serde_json::Value;
use starling_tests::{Instance, Sandbox, binary, repository, wait_until};

/// Writes a script for the shell, in which `starling` is the tested program.
fn script(sandbox: &Sandbox, name: &str, text: &str) -> String {
    let program = binary().display();
    let text = format!("set -e\nstarling() {{ {program} \"$@\"; }}\n{text}");
    sandbox.write(name, text).display().to_string()
}

/// The value of a variable in the JSON of `job info`.
fn value_of(info: &Value, name: &str) -> String {
    let all = info["variables"].as_array().expect("the job has variables");
    let found = all.iter().find(|it| it["name"] == name).expect("the job has this variable");
    found["value"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn branch_and_bound_finds_the_best_value_although_a_node_dies() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    instance.wait_for_copies();
    let example = repository().join("examples/spawn/knapsack.sh");
    let text = std::fs::read_to_string(example).expect("the example exists");
    let text = format!("sleep 0.1\n{text}");
    let search = script(instance.sandbox(), "knapsack.sh", &text);
    let job = instance.starling(&[
        "submit",
        "--var",
        "best=max:0",
        "--var",
        "visited=sum",
        "--",
        "sh",
        &search,
    ]);
    let job = job.ok().stdout.trim().to_owned();
    wait_until("a task has found a value", || {
        let best = instance.starling(&["var", "get", "--job", &job, "best"]).ok().stdout;
        best.trim().parse::<u64>().is_ok_and(|best| best > 0)
    });
    instance.kill(2);
    instance.start_missing();
    instance.starling(&["job", "wait", &job, "--timeout", "120s"]).ok();
    let info = instance.json(&["job", "info", &job]);
    assert_eq!(value_of(&info, "best"), "51");
    let tasks = info["tasks"]["total"].as_u64().map(|tasks| tasks.to_string());
    assert_eq!(Some(value_of(&info, "visited")), tasks, "each task counts once: {info}");
    let best = instance.json(&["var", "get", "--job", &job, "best"]);
    assert_eq!(best["witness"], " 1 2 3");
    instance.down();
}

#[test]
fn values_are_seen_inside_and_outside() {
    let instance = Instance::up(1, 2);
    let watches = instance.sandbox().path("watches");
    let text = format!(
        "starling var get note && exit 9\n\
         starling var set note first\n\
         starling var set gap -- -0.5\n\
         starling var add count 3; starling var add count -1\n\
         test \"$(starling var get gap)\" = -0.5\n\
         starling var watch note | {{ read a; touch {}; read b; echo $a $b > seen; }}\n\
         test \"$(cat seen)\" = 'first second'\n",
        watches.display()
    );
    let task = script(instance.sandbox(), "task.sh", &text);
    let declared = ["--var", "note=last", "--var", "gap=max,real:-2", "--var", "count=sum"];
    let arguments = [&["submit"], &declared[..], &["--", "sh", &task]].concat();
    let job = instance.starling(&arguments).ok().stdout.trim().to_owned();
    let get = |name| instance.starling(&["var", "get", "--job", &job, name]);
    wait_until("the task has set it", || get("gap").stdout.trim() == "-0.5");
    assert_eq!(get("count").ok().stdout.trim(), "0", "the turn is not committed");
    wait_until("the task watches", || watches.exists());
    instance.starling(&["var", "set", "--job", &job, "note", "second"]).ok();
    let watch = instance.start(&["var", "watch", "--job", &job, "count"]);
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();
    let watched = watch.end().ok().stdout;
    assert!(watched.ends_with("2\n"), "{watched}");
    let info = instance.json(&["job", "info", &job]);
    let values = ["note", "gap", "count"].map(|name| value_of(&info, name));
    assert_eq!(values, ["second", "-0.5", "2"]);
    let late = instance.starling(&["var", "set", "--job", &job, "note", "late"]);
    assert!(late.expect_code(4).stderr.contains("has ended"));
    instance.down();
}

#[test]
fn a_job_is_watched_until_it_ends() {
    let instance = Instance::up(1, 1);
    let go = instance.sandbox().path("go");
    let text = format!(
        "starling var set best 5\n\
         while ! test -e {}; do sleep 0.05; done\n\
         starling var set best 3 --witness tour\n\
         starling var set note end\n",
        go.display()
    );
    let task = script(instance.sandbox(), "task.sh", &text);
    let arguments = ["submit", "--var", "best=min:9", "--var", "note=last", "--", "sh", &task];
    let job = instance.starling(&arguments).ok().stdout.trim().to_owned();
    let one = instance.start(&["job", "watch", &job, "--var", "best"]);
    let both = instance.start(&["job", "watch", &job, "--var", "best", "--var", "note"]);
    let json = instance.start(&["job", "watch", &job, "--var", "best", "--json"]);
    wait_until("the first value is printed", || one.output_so_far().ends_with("5\n"));
    std::fs::write(&go, "").expect("the file is written");
    let one = one.end().ok().stdout;
    assert!(one.ends_with("5\n3\n"), "{one}");
    let both = both.end().ok().stdout;
    let lines: Vec<&str> = both.lines().collect();
    assert!(lines.contains(&"best\t3") && lines.contains(&"note\tend"), "{both}");
    let json = json.end().ok().stdout;
    let last: Value = serde_json::from_str(json.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!(last["schema"], 1);
    assert_eq!(last["value"], "3");
    assert_eq!(last["witness"], "tour");

    let late = instance.starling(&["job", "watch", "last", "--var", "best"]).ok().stdout;
    assert_eq!(late, "3\n", "of an ended job the last value is printed");
    let unknown = instance.starling(&["job", "watch", &job, "--var", "best", "--var", "none"]);
    let unknown = unknown.expect_code(4);
    assert!(unknown.stderr.contains("has no variable 'none'"), "{}", unknown.stderr);
    assert_eq!(unknown.stdout, "");
    let unknown = instance.starling(&["job", "watch", "99", "--var", "best"]).expect_code(4);
    assert!(unknown.stderr.contains("no job 99"), "{}", unknown.stderr);
    instance.starling(&["job", "watch", &job]).expect_code(2);
    instance.down();
}

#[test]
fn bad_calls_are_refused_with_the_reason() {
    let instance = Instance::up(1, 1);
    let calls = [
        ("get none", "has no variable 'none'"),
        ("set best 1.5", "no integer of 64 bits"),
        ("set sum 1", "is a sum"),
        ("add best 1", "has the rule min"),
        ("add sum 1.5", "hint: a sum is an integer"),
        ("set best 1 --witness $(head -c 5000 /dev/zero | tr '\\0' x)", "at most 4096 bytes"),
    ];
    let lines = calls.map(|(call, _)| format!("if starling var {call} 2>> out; then exit 9; fi\n"));
    let text = format!("{}cat out\n", lines.concat());
    let task = script(instance.sandbox(), "task.sh", &text);
    let arguments =
        ["submit", "--wait", "--var", "best=min", "--var", "sum=sum", "--", "sh", &task];
    instance.starling(&arguments).ok();
    let said = instance.starling(&["job", "output", "last"]).ok().stdout;
    for (call, reason) in calls {
        assert!(said.contains(reason), "{call}: {said}");
    }
    let outside = instance.starling(&["var", "get", "--job", "1", "none"]).expect_code(4);
    assert!(outside.stderr.contains("job 1 has no variable 'none'"), "{outside:?}");
    for bad in ["best", "best=least", "best=min:x", "a b=min", "s=sum:1"] {
        instance.starling(&["submit", "--var", bad, "--", "true"]).expect_code(2);
    }
    let twice = ["submit", "--var", "a=min", "--var", "a=max", "--", "true"];
    assert!(instance.starling(&twice).expect_code(4).stderr.contains("declared twice"));
    instance.down();
}

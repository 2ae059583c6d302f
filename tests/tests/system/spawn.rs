//! Commands that make tasks: spawn, await and commit inside a task.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use starling_tests::{Instance, Ran, Sandbox, binary, wait_until};

/// Writes a script for the shell, in which `starling` is the tested program.
pub(crate) fn script(sandbox: &Sandbox, name: &str, text: &str) -> String {
    let program = binary().display();
    let text = format!("set -e\nstarling() {{ {program} \"$@\"; }}\n{text}");
    sandbox.write(name, text).display().to_string()
}

/// Submits a script and waits for its job.
pub(crate) fn run(instance: &Instance, script: &str, more: &[&str]) -> Ran {
    let mut arguments = vec!["submit", "--wait", "--timeout", "60s", "--", "sh", script];
    arguments.extend(more);
    instance.starling(&arguments)
}

pub(crate) fn text(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The processes of this instance's tasks with this text in their command line.
fn processes(instance: &Instance, part: &str) -> Vec<Pid> {
    let own = instance.sandbox().path(".").display().to_string();
    let own = own.trim_end_matches("/.");
    let entries = fs::read_dir("/proc").expect("Linux has it").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let read = |pid: i32, file: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let is_it = |&pid: &i32| {
        let door = read(pid, "environ").contains(&format!("STARLING_DOOR={own}"));
        door && read(pid, "cmdline").contains(part)
    };
    pids.filter(is_it).filter_map(Pid::from_raw).collect()
}

/// fib by commands: each task spawns two and awaits them.
const FIB: &str = r#"
n=$1 out=$2
echo start >> "$out.starts"
if [ "$n" -lt 2 ]; then echo "$n" > "$out"; exit 0; fi
starling spawn --key a -- sh "$0" $((n - 1)) "$out.a"
starling spawn --key b -- sh "$0" $((n - 2)) "$out.b"
starling await
echo $(( $(cat "$out.a") + $(cat "$out.b") )) > "$out"
"#;

#[test]
fn a_parent_and_its_children_end_on_one_slot() {
    let instance = Instance::up(1, 1);
    let fib = script(instance.sandbox(), "fib.sh", FIB);
    let out = instance.sandbox().path("f");
    run(&instance, &fib, &["6", &out.display().to_string()]).ok();
    assert_eq!(text(out), "8");
    // The same process went on: no task began twice.
    assert_eq!(text(instance.sandbox().path("f.starts")), "start");
    assert_eq!(text(instance.sandbox().path("f.a.b.starts")), "start");
    instance.down();
}

#[test]
fn await_prints_the_verdicts_and_fails_with_a_child() {
    let instance = Instance::up(1, 1);
    let out = instance.sandbox().path("out").display().to_string();
    let parent = script(
        instance.sandbox(),
        "parent.sh",
        &format!(
            "a=$(starling spawn -- true)\n\
             b=$(starling spawn -- false)\n\
             c=$(starling spawn --array 1-3 -- sh -c 'echo {{i}}')\n\
             starling await $a $c > {out}\n\
             if starling await $b >> {out}; then exit 9; else echo code $? >> {out}; fi\n"
        ),
    );
    run(&instance, &parent, &[]).expect_code(1);
    let expected = "0\tdone\n2\tdone\n3\tdone\n4\tdone\n1\tfailed\ncode 1";
    assert_eq!(text(out.into()), expected);
    instance.down();
}

#[test]
fn a_failed_attempt_leaves_no_children() {
    let instance = Instance::up(1, 2);
    let mark = instance.sandbox().path("mark");
    let parent = script(
        instance.sandbox(),
        "parent.sh",
        &format!("starling spawn -- touch {}\nexit 3\n", mark.display()),
    );
    run(&instance, &parent, &[]).expect_code(1);
    assert!(!mark.exists());
    // Those of a good end exist, without a commit.
    let parent = script(
        instance.sandbox(),
        "parent.sh",
        &format!("starling spawn -- touch {}\n", mark.display()),
    );
    run(&instance, &parent, &[]).ok();
    assert!(mark.exists());
    instance.down();
}

#[test]
fn a_parent_that_is_killed_while_it_waits_makes_no_child_twice() {
    let instance = Instance::up(1, 2);
    let sandbox = instance.sandbox();
    let (starts, children, go) =
        (sandbox.path("starts"), sandbox.path("children"), sandbox.path("go"));
    let child = sandbox.write(
        "child.sh",
        format!(
            "echo c >> {}\nwhile [ ! -e {} ]; do sleep 0.05; done\n",
            children.display(),
            go.display()
        ),
    );
    let text_of_parent = format!(
        "echo s >> {}\nstarling spawn --key only -- sh {}\nstarling await\n",
        starts.display(),
        child.display()
    );
    let parent = script(sandbox, "the-parent.sh", &text_of_parent);
    let running = instance.start(&["submit", "--wait", "--timeout", "60s", "--", "sh", &parent]);
    wait_until("the child runs", || children.exists());
    let waits = || processes(&instance, &format!("{} await", binary().display()));
    wait_until("the parent waits", || !waits().is_empty());
    std::thread::sleep(std::time::Duration::from_millis(300));
    for pid in processes(&instance, &parent).into_iter().chain(waits()) {
        let _ = kill_process(pid, Signal::KILL);
    }
    wait_until("the parent is gone", || waits().is_empty());
    fs::write(&go, "").unwrap();
    running.end().ok();
    assert_eq!((text(starts), text(children)), ("s\ns".to_owned(), "c".to_owned()));
    instance.down();
}

#[test]
fn another_attempt_begins_with_the_committed_state() {
    let instance = Instance::up(1, 1);
    let out = instance.sandbox().path("out").display().to_string();
    let parent = script(
        instance.sandbox(),
        "parent.sh",
        &format!(
            "echo \"state ${{STARLING_STATE:-none}}\" | sed 's/ .*starling-state/ set/' >> {out}\n\
             if [ -n \"$STARLING_STATE\" ]; then cat \"$STARLING_STATE\" >> {out}; exit 0; fi\n\
             echo half > half\n\
             starling spawn --key k -- sh -c 'echo child >> {out}'\n\
             starling commit --state half\n\
             exit 5\n"
        ),
    );
    instance.starling(&["submit", "--wait", "--retries", "1", "--", "sh", &parent]).ok();
    let mut lines: Vec<String> = text(out.clone().into()).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["child", "half", "state none", "state set"]);
    // A yield is no retry.
    fs::remove_file(&out).unwrap();
    let yields = script(
        instance.sandbox(),
        "yields.sh",
        &format!(
            "if [ -n \"$STARLING_STATE\" ]; then cat \"$STARLING_STATE\" >> {out}; exit 0; fi\n\
             echo first > s\nstarling commit --state s --yield\nsleep 60\n"
        ),
    );
    run(&instance, &yields, &[]).ok();
    assert_eq!(text(out.into()), "first");
    instance.down();
}

#[test]
fn a_killed_node_does_not_lose_or_repeat_children() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let sandbox = instance.sandbox();
    let fib = script(sandbox, "fib.sh", &FIB.replace("then echo", "then sleep 0.2; echo"));
    let out = sandbox.path("f");
    let words = ["submit", "--wait", "--timeout", "100s", "--", "sh", &fib, "6"];
    let running = instance.start(&[&words[..], &[&out.display().to_string()]].concat());
    wait_until("it has begun", || sandbox.path("f.a.starts").exists());
    instance.kill(2);
    instance.start_missing();
    running.end().ok();
    assert_eq!(text(out), "8");
    instance.down();
}

#[test]
fn bad_input_is_an_error_in_the_task_that_did_it() {
    let sandbox = Sandbox::new();
    let outside = sandbox.starling(&["spawn", "--", "true"]).expect_code(4);
    assert!(outside.stderr.contains("not inside a task"), "{}", outside.stderr);
    assert!(outside.stderr.contains("hint: from outside: 'starling submit'"), "{}", outside.stderr);
    drop(sandbox);
    let instance = Instance::up(1, 1);
    let out = instance.sandbox().path("out").display().to_string();
    let lines = [
        "starling await 3",
        "starling await 77/0.1",
        "starling await nonsense",
        "head -c 70000 /dev/zero > large; starling commit --state large",
        "STARLING_TOKEN=00112233445566778899aabbccddeeff starling spawn -- true",
        "starling spawn --out a=f -- true; starling spawn --out a=f -- true",
        "starling spawn --key k -- true; starling spawn --key k --array 1-2 -- true",
        "starling spawn --array 1-5000 -- true",
    ];
    let tries: Vec<String> = lines
        .iter()
        .map(|line| format!("{{ {line}; }} 2>> {out} || echo code $? >> {out}"))
        .collect();
    let parent = script(instance.sandbox(), "parent.sh", &tries.join("\n"));
    let _ = run(&instance, &parent, &[]);
    let errors = text(out.into());
    for expected in [
        "no child 3: this task has spawned none",
        "task 77/0.1 is of another job",
        "is no handle",
        "at most 65536 bytes",
        "no running task of this node has this token",
        "two children keep an output of the name 'f'",
        "--key k: an earlier call has made another number of tasks",
        "one call makes at most 4096 tasks",
    ] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    assert_eq!(errors.lines().filter(|line| line.starts_with("code ")).count(), lines.len());
    instance.down();
}

#[test]
fn submit_works_inside_a_task() {
    let instance = Instance::up(1, 1);
    let mark = instance.sandbox().path("mark");
    let parent = script(
        instance.sandbox(),
        "parent.sh",
        &format!("starling submit -- touch {} > /dev/null\n", mark.display()),
    );
    run(&instance, &parent, &[]).ok();
    wait_until("the submitted job has run", || mark.exists());
    instance.down();
}

#[test]
fn a_spawned_task_asks_for_resources() {
    let instance = Instance::up_with_flags(1, &["--slots", "2"]);
    let fpga = ["up", "--nodes", "2", "--slots", "2", "--resource", "fpgas=[f0,f1]"];
    instance.starling(&fpga).ok();
    let out = instance.sandbox().path("out");
    let parent = format!(
        "starling spawn --resource fpgas=1 --memory 1MiB --priority 3 -- sh -c \
         'echo $STARLING_NODE/$STARLING_RESOURCE_fpgas > {}'\nstarling await\n",
        out.display()
    );
    let parent = script(instance.sandbox(), "parent.sh", &parent);
    run(&instance, &parent, &[]).ok();
    assert_eq!(text(out), "1/f0");
    let none = script(instance.sandbox(), "none.sh", "starling spawn --gpus 7 -- true\n");
    let none = run(&instance, &none, &[]).expect_code(1);
    assert!(none.stderr.contains("no node offers that"), "{}", none.stderr);
    instance.down();
}

#[test]
fn a_wait_for_a_task_that_the_job_does_not_have_is_refused() {
    let instance = Instance::up(2, 1);
    let text = "code=0; starling await 17.9 2> \"$1\" || code=$?; exit $((code - 4))";
    let waits = script(instance.sandbox(), "waits.sh", text);
    let told = instance.sandbox().path("told");
    run(&instance, &waits, &[&told.display().to_string()]).ok();
    let told = fs::read_to_string(told).unwrap();
    assert!(told.starts_with("error: the job has no task 17.9\nhint: "), "{told}");
    instance.down();
}

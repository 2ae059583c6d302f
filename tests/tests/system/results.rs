//! Results remain in every form and at every destination.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use starling_tests::{Instance, Sandbox, binary, wait_until};

use crate::cluster::submit;

/// One command with one small kept file.
const ANSWER: &str = "[[task]]\nname='answer'\ncommand=['sh','-c','echo 42 > {out:o}']\n\
                      outputs={o={file='answer.txt',keep=true}}\n";

/// A directory and the files of a pattern, made by one task and read by another.
const FORMS: &str = "[[task]]\nname='make'\n\
    command=['sh','-c','mkdir -p index/sub; echo a > index/a; echo b > index/sub/b; \
    chmod 755 index/sub/b; for i in 1 2 3; do echo $i > part-$i.txt; done']\n\
    outputs={index={dir='index',keep=true},parts={glob='part-*.txt',keep=true}}\n\
    [[task]]\nname='use'\n\
    command=['sh','-c','cat {in:d}/a {in:d}/sub/b $STARLING_IN_p > {out:all}']\n\
    inputs={d='index',p='part-*.txt'}\noutputs={all={file='all',keep=true}}\n";

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn runs(sandbox: &Sandbox) -> Vec<PathBuf> {
    let dir = sandbox.path("starling-runs");
    names(&dir).into_iter().map(|name| dir.join(name)).collect()
}

#[test]
fn results_of_a_run_without_output_stay_in_a_directory_of_its_own() {
    let sandbox = Sandbox::new();
    sandbox.write("w.toml", ANSWER);
    let ran = sandbox.starling(&["run", "w.toml"]).ok();
    let [run] = runs(&sandbox).try_into().expect("one run");
    let last = ran.stdout.lines().last().expect("it prints something").to_owned();
    let name = run.file_name().expect("a name").to_string_lossy().into_owned();
    assert_eq!(last, format!("kept results in starling-runs/{name}/results"));
    assert_eq!(fs::read_to_string(run.join("results/answer.txt")).expect("kept"), "42\n");
    let json = sandbox.starling(&["--json", "run", "w.toml"]).ok().json();
    let dir = json["results_dir"].as_str().expect("a path");
    assert!(sandbox.path(dir).join("answer.txt").exists(), "{dir}");
    assert_eq!(runs(&sandbox).len(), 2, "a fresh name for each");
    // A workflow without kept outputs leaves no directory.
    let none = sandbox.starling(&["--json", "run", "bag:tasks=3"]).ok().json();
    assert!(none["results_dir"].is_null());
    assert_eq!(runs(&sandbox).len(), 2);
}

#[test]
fn an_unwritable_directory_is_reported_before_the_run() {
    let sandbox = Sandbox::new();
    sandbox.write("w.toml", ANSWER.replace("echo 42", "touch \"$STARLING_SUBMIT_DIR/ran\"; echo"));
    sandbox.write("file", "");
    let refused = sandbox.starling(&["run", "w.toml", "--output", "file/res"]).expect_code(4);
    assert!(refused.stderr.contains("file/res"), "{}", refused.stderr);
    assert!(!sandbox.path("ran").exists());
}

/// If the current directory cannot be written (not even by root), results go below TMPDIR.
#[test]
fn without_a_place_here_results_go_below_the_temporary_directory() {
    let sandbox = Sandbox::new();
    let workflow = sandbox.write("w.toml", ANSWER);
    // The temporary directory of the sandbox's commands.
    let temporary = sandbox.path("");
    let mut command = Command::new("sh");
    command.args(["-c", "cd /proc && exec \"$@\"", "sh"]).arg(binary());
    command.args(["--json", "run"]).arg(workflow);
    let ran = sandbox.start_command(command).end().ok().json();
    let dir = Path::new(ran["results_dir"].as_str().expect("a path"));
    assert!(dir.starts_with(&temporary), "{}", dir.display());
    assert_eq!(fs::read_to_string(dir.join("answer.txt")).expect("kept"), "42\n");
}

fn check_forms(dir: &Path) {
    assert_eq!(names(dir), ["all", "index", "part-1.txt", "part-2.txt", "part-3.txt"]);
    assert_eq!(fs::read_to_string(dir.join("all")).expect("kept"), "a\nb\n1\n2\n3\n");
    assert_eq!(names(&dir.join("index")), ["a", "sub"]);
    let mode = |name: &str| {
        fs::metadata(dir.join(name)).expect("it is there").permissions().mode() & 0o111
    };
    assert_ne!(mode("index/sub/b"), 0, "the x bit stays");
    assert_eq!(mode("index/a") | mode("all"), 0);
}

#[test]
fn directories_and_patterns_are_outputs() {
    let sandbox = Sandbox::new();
    sandbox.write("w.toml", FORMS);
    for _ in 0..2 {
        // The second run replaces the existing results.
        sandbox.starling(&["run", "w.toml", "--nodes", "2", "--output", "res"]).ok();
        check_forms(&sandbox.path("res"));
    }
    let instance = Instance::up_with_copies(2, 1, 2);
    instance.sandbox().write("w.toml", FORMS);
    let id = submit(&instance, &["--file", "w.toml"]);
    instance.starling(&["job", "wait", &id]).ok();
    instance.starling(&["job", "fetch", &id, "-o", "out"]).ok();
    check_forms(&instance.sandbox().path("out"));
    let script = "mkdir d; echo 1 > d/x; echo 2 > p1; echo 3 > p2";
    let wanted = ["--out", "d/", "glob:p?", "--wait", "--", "sh", "-c", script];
    let id = submit(&instance, &wanted);
    instance.starling(&["job", "fetch", &id, "-o", "two"]).ok();
    assert_eq!(names(&instance.sandbox().path("two")), ["d", "p1", "p2"]);
    instance.down();
}

#[test]
fn a_plain_name_that_is_a_directory_or_a_pattern_is_answered_with_the_right_form() {
    let sandbox = Sandbox::new();
    let workflow = |script: &str, output: &str| {
        format!("[[task]]\nname='t'\ncommand=['sh','-c','{script}']\noutputs={{o={output}}}\n")
    };
    let error = |text: String, code: i32| {
        sandbox.write("w.toml", text);
        sandbox.starling(&["run", "w.toml"]).expect_code(code).stderr
    };
    let told = error(workflow("mkdir d", "'d'"), 1);
    assert!(told.contains("{ dir = \"d\" }"), "{told}");
    let told = error(workflow("touch p-1", "'p-*'"), 1);
    assert!(told.contains("{ glob = \"p-*\" }"), "{told}");
    let told = error(workflow("true", "{ glob='p-*' }"), 1);
    assert!(told.contains("matches no file"), "{told}");
    error(workflow("true", "{ glob='p-*', optional=true }"), 0);
    let told = error(workflow("true", "{ glob='p-*', dir='d' }"), 4);
    assert!(told.contains("one of them"), "{told}");
}

/// Small files still fit. The large one goes below TMPDIR, and the error names the place.
#[test]
fn an_output_directory_that_fills_up_costs_no_result() {
    let sandbox = Sandbox::new();
    let small = sandbox.path("small");
    fs::create_dir(&small).expect("a new directory");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&small);
    if !mount.output().is_ok_and(|done| done.status.success()) {
        println!("skipped: no file system of a mebibyte can be mounted here");
        return;
    }
    let big = "[[task]]\nname='big'\ncommand=['sh','-c','head -c 5000000 /dev/zero > {out:o}']\n\
               outputs={o={file='big',keep=true}}\n";
    let workflow = sandbox.write("w.toml", format!("{big}{ANSWER}"));
    let temporary = sandbox.path("tmp");
    fs::create_dir(&temporary).expect("a new directory");
    let mut command = Command::new(binary());
    command.arg("run").arg(workflow).arg("--output").arg(small.join("res"));
    command.env("TMPDIR", &temporary).current_dir(sandbox.path("."));
    let ran = sandbox.start_command(command).end();
    let here = names(&small.join("res"));
    let unmounted = Command::new("umount").arg("-l").arg(&small).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    let ran = ran.expect_code(4);
    assert_eq!(here, ["answer.txt"], "no part of a file stays");
    let place = ran.stderr.split("not written are in ").nth(1).expect("it says where").trim();
    let saved = fs::metadata(Path::new(place).join("big")).expect("it is there");
    assert_eq!(saved.len(), 5_000_000, "{}", ran.stderr);
}

/// One object of the store is damaged and one is missing: the others are fetched.
#[test]
fn a_lost_object_costs_that_object_alone() {
    let instance = Instance::up_with_copies(1, 2, 1);
    let text = "[[task]]\nname='m-{i}'\narray='1-5'\ncommand=['sh','-c','echo {i} > k{i}']\n\
                outputs={k={file='k{i}',keep=true}}\n";
    instance.sandbox().write("w.toml", text);
    let id = submit(&instance, &["--file", "w.toml"]);
    instance.starling(&["job", "wait", &id]).ok();
    let mut objects = crate::data::files(&instance, 0, "objects");
    objects.sort();
    assert_eq!(objects.len(), 5);
    fs::set_permissions(&objects[0], fs::Permissions::from_mode(0o644)).expect("ours");
    fs::write(&objects[0], "something longer").expect("ours");
    fs::remove_file(&objects[1]).expect("ours");
    let ran = instance.starling(&["job", "fetch", &id, "-o", "out"]).expect_code(3);
    assert!(ran.stderr.contains("2 kept outputs lost: 'k"), "{}", ran.stderr);
    assert_eq!(names(&instance.sandbox().path("out")).len(), 3);
    instance.down();
}

/// A task may append to its inputs: neither the user's file nor the kept output changes.
#[test]
fn writes_of_tasks_to_their_inputs_stay_private() {
    let sandbox = Sandbox::new();
    sandbox.write("mine", "mine\n");
    let text = "[[task]]\nname='make'\ncommand=['sh','-c','echo made > x']\n\
        outputs={x={file='x',keep=true}}\n\
        [[task]]\nname='spoil'\n\
        command=['sh','-c','chmod u+w x mine; echo 1 >> x; echo 2 >> mine']\n\
        inputs={x='x',m='mine'}\n\
        [[task]]\nname='read'\nafter=['spoil']\ncommand=['sh','-c','cat x mine > all']\n\
        inputs={x='x',m='mine'}\noutputs={all={file='all',keep=true}}\n";
    sandbox.write("w.toml", text);
    let ran = sandbox.starling(&["run", "w.toml", "--output", "res"]);
    assert_eq!(fs::read_to_string(sandbox.path("mine")).expect("ours"), "mine\n");
    let kept = |name: &str| fs::read_to_string(sandbox.path("res").join(name)).ok();
    if ran.code == 0 {
        assert_eq!(kept("x").as_deref(), Some("made\n"));
        assert_eq!(kept("all").as_deref(), Some("made\nmine\n"));
    } else {
        assert!(ran.stderr.contains("input file 'x' was changed"), "{}", ran.stderr);
        assert!(kept("x").is_none_or(|text| text == "made\n"));
    }
}

#[test]
fn a_program_that_a_task_makes_runs_elsewhere_and_is_kept_as_one() {
    let sandbox = Sandbox::new();
    let text = "[[task]]\nname='build'\noutputs={p={file='prog',keep=true}}\n\
        command=['sh','-c','printf \"#!/bin/sh\\necho built\\n\" > prog; chmod 755 prog']\n\
        [[task]]\nname='use-{i}'\narray='1-4'\ncommand=['sh','-c','{in:p} > {out:o}']\n\
        inputs={p='prog'}\noutputs={o={file='out-{i}',keep=true}}\n";
    sandbox.write("w.toml", text.replace("\\n", "\\\\n"));
    sandbox.starling(&["run", "w.toml", "--nodes", "2", "--slots", "1", "--output", "res"]).ok();
    assert_eq!(fs::read_to_string(sandbox.path("res/out-3")).expect("kept"), "built\n");
    let mode = |name: &str| {
        fs::metadata(sandbox.path(name)).expect("it is there").permissions().mode() & 0o777
    };
    assert_ne!(mode("res/prog") & 0o100, 0);
    // By the umask of this process.
    fs::write(sandbox.path("plain"), "").expect("ours");
    assert_eq!(mode("res/out-3"), mode("plain"));
}

#[test]
fn a_job_that_there_is_not_is_called_that_and_nothing_else() {
    let instance = Instance::up(2, 1);
    let ran = instance.starling(&["job", "fetch", "7", "--output", "got"]).expect_code(4);
    assert!(ran.stderr.starts_with("error: no job 7\n"), "{}", ran.stderr);
    instance.down();
}

#[test]
fn a_kept_directory_leaves_the_other_files_of_the_user() {
    let sandbox = Sandbox::new();
    let text = "[[task]]\nname='build'\ncommand=['sh','-c','mkdir src; echo o > src/main.o']\n\
                outputs={d={dir='src',keep=true}}\n";
    sandbox.write("w.toml", text);
    fs::create_dir_all(sandbox.path("src")).expect("there is room");
    sandbox.write("src/main.c", "mine");
    sandbox.starling(&["run", "w.toml", "--output", "."]).ok();
    assert_eq!(fs::read_to_string(sandbox.path("src/main.c")).expect("it stays"), "mine");
    assert_eq!(fs::read_to_string(sandbox.path("src/main.o")).expect("kept"), "o\n");
}

#[test]
fn outputs_that_meet_in_one_place_are_all_kept_and_named() {
    let sandbox = Sandbox::new();
    let text = "[[task]]\nname='a'\ncommand=['sh','-c','echo A > ab.txt']\n\
                outputs={o={glob='a*.txt',keep=true}}\n\
                [[task]]\nname='b'\ncommand=['sh','-c','echo B > ab.txt']\n\
                outputs={o={glob='*b.txt',keep=true}}\n\
                [[task]]\nname='file'\ncommand=['sh','-c','mkdir s; echo f > s/f']\n\
                outputs={o={file='s/f',keep=true}}\n\
                [[task]]\nname='dir'\ncommand=['sh','-c','mkdir s; echo g > s/g']\n\
                outputs={o={dir='s',keep=true}}\n";
    sandbox.write("w.toml", text);
    let ran = sandbox.starling(&["run", "w.toml", "--output", "out"]).expect_code(4);
    assert!(ran.stderr.contains("'ab.txt' was already written by task"), "{ran:?}");
    assert_eq!(names(&sandbox.path("out/s")), ["f", "g"]);
    // The other one is at the place that the hint names.
    let (_, place) = ran.stderr.split_once("that were not written are in ").expect("a place");
    let place = Path::new(place.lines().next().expect("a line"));
    let both = [sandbox.path("out"), place.to_owned()].map(|dir| {
        fs::read_to_string(dir.join("ab.txt")).unwrap_or_else(|error| panic!("{dir:?}: {error}"))
    });
    assert!(both.contains(&"A\n".to_owned()) && both.contains(&"B\n".to_owned()), "{both:?}");
    let _ = fs::remove_dir_all(place);
}

#[test]
fn an_interrupted_run_keeps_its_results_so_far() {
    let sandbox = Sandbox::new();
    let begun = sandbox.path("begun").display().to_string();
    let text = format!(
        "[[task]]\nname='first'\ncommand=['sh','-c','echo 42 > {{out:o}}']\n\
         outputs={{o={{file='answer.txt',keep=true}}}}\n\
         [[task]]\nname='long'\ncommand=['sh','-c','touch {begun}; sleep 600']\n\
         after=['first']\n"
    );
    sandbox.write("w.toml", text);
    let run = sandbox.start(&["run", "w.toml", "--output", "out"]);
    wait_until("the long task runs", || Path::new(&begun).exists());
    run.signal(Signal::INT);
    let ran = run.end_within(Duration::from_secs(60)).expect_code(130);
    assert!(ran.stderr.contains("the results kept so far are in out"), "{ran:?}");
    assert_eq!(fs::read_to_string(sandbox.path("out/answer.txt")).expect("kept"), "42\n");
}

#[test]
fn a_wait_ends_with_what_is_kept_and_how_to_fetch_it() {
    let instance = Instance::up(1, 1);
    let failing = "[[task]]\nname='never'\ncommand=['sh','-c','exit 3']\n\
                   outputs={o={file='never.txt',keep=true}}\n\
                   [[task]]\nname='after'\ncommand=['true']\nafter=['never']\n";
    instance.sandbox().write("good.toml", ANSWER);
    instance.sandbox().write("bad.toml", format!("{ANSWER}{failing}"));
    let good = instance.starling(&["submit", "--wait", "--file", "good.toml"]).ok();
    assert_eq!(good.stdout, "1\n", "the number alone");
    let fetch = "starling job fetch 1 --output DIR";
    let line = format!("job 1 keeps 1 result in the cluster: answer.txt; '{fetch}' copies them\n");
    assert!(good.stderr.contains(&line), "{}", good.stderr);
    assert!(instance.starling(&["job", "wait", "1"]).ok().stderr.contains(&line));
    let json = instance.json(&["job", "wait", "1"]);
    let expected = serde_json::json!({
        "outputs": 1, "declared": 1, "files": ["answer.txt"], "fetch": fetch
    });
    assert_eq!((&json["kept"], json["state"].as_str()), (&expected, Some("finished")));
    let bad = instance.starling(&["submit", "--wait", "--file", "bad.toml"]).expect_code(1).stderr;
    assert!(bad.contains("job 2 keeps 1 of 2 results in the cluster: answer.txt; "), "{bad}");
    assert!(bad.contains("hint: 'starling task explain 2 "), "{bad}");
    // No node has run the skipped task.
    let told = instance.starling(&["task", "explain", "2", "after"]).ok().stdout;
    let mut lines = told.lines();
    assert!(lines.any(|line| line.trim() == "it ended: skipped"), "{told}");
    assert!(told.contains("task 'never' failed on node n0"), "{told}");
    instance.down();
}

/// The bytes of an object, and its length.
fn letters(number: usize) -> String {
    number.to_string().repeat(200_000)
}

/// Changes the bytes of a file, and neither its size nor its time.
fn change_in_place(file: &Path) {
    let about = fs::metadata(file).expect("it is there");
    fs::set_permissions(file, fs::Permissions::from_mode(0o644)).expect("ours");
    fs::write(file, vec![b'?'; about.len() as usize]).expect("ours");
    let opened = fs::File::options().write(true).open(file).expect("ours");
    opened.set_modified(about.modified().expect("it has a time")).expect("ours");
}

#[test]
fn bytes_that_no_task_made_are_not_fetched() {
    let instance = Instance::up_with_copies(2, 1, 2);
    instance.wait_for_copies();
    let script = "head -c 200000 /dev/zero | tr \"\\0\" {i} > k{i}";
    let text = format!(
        "[[task]]\nname='m-{{i}}'\narray='1-3'\ncommand=['sh','-c','{script}']\n\
         outputs={{k={{file='k{{i}}',keep=true}}}}\n"
    );
    instance.sandbox().write("w.toml", text);
    let id = submit(&instance, &["--file", "w.toml"]);
    instance.starling(&["job", "wait", &id]).ok();
    instance.wait_for_copies();
    let objects = |node| crate::data::files(&instance, node, "objects");
    wait_until("both nodes have all", || objects(0).len() == 3 && objects(1).len() == 3);
    objects(0).iter().for_each(|file| change_in_place(file));
    instance.starling(&["job", "fetch", &id, "-o", "out"]).ok();
    let out = instance.sandbox().path("out");
    for number in 1..=3 {
        let bytes = fs::read_to_string(out.join(format!("k{number}"))).expect("it was fetched");
        assert!(bytes == letters(number), "k{number} is the other copy");
    }
    // The other copies of two objects are changed too: these two are named.
    let mut others = objects(1);
    others.sort();
    others.iter().take(2).for_each(|file| change_in_place(file));
    let ran = instance.starling(&["job", "fetch", &id, "-o", "again"]).expect_code(3).stderr;
    assert!(ran.contains("2 kept outputs lost: 'k"), "{ran}");
    assert!(ran.contains("differs from what the task made (checksum)"), "{ran}");
    assert_eq!(names(&instance.sandbox().path("again")).len(), 1);
    instance.down();
}

/// The state of a task has the checksums of its first outputs; a copy compares all.
#[test]
fn changed_bytes_of_the_last_of_many_outputs_are_not_fetched() {
    let instance = Instance::up(1, 1);
    let script = "for n in $(seq 10 99); do yes $n | head -c 20000 > k$n; done";
    let outputs: Vec<String> =
        (10..100).map(|n| format!("k{n}={{file='k{n}',keep=true}}")).collect();
    let text = format!(
        "[[task]]\nname='m'\ncommand=['sh','-c','{script}']\noutputs={{{}}}\n",
        outputs.join(",")
    );
    instance.sandbox().write("w.toml", text);
    let id = submit(&instance, &["--file", "w.toml", "--wait"]);
    let is_last = |file: &Path| fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"88\n"));
    let objects = crate::data::files(&instance, 0, "objects");
    objects.iter().filter(|file| is_last(file)).for_each(|file| change_in_place(file));
    let ran = instance.starling(&["job", "fetch", &id, "-o", "out"]).expect_code(3).stderr;
    assert!(ran.contains("1 kept output lost: 'k88'"), "{ran}");
    assert!(ran.contains("differs from what the task made (checksum)"), "{ran}");
    assert_eq!(names(&instance.sandbox().path("out")).len(), 89);
    instance.down();
}

/// The node notices it by the time of the file, and brings the copy of the other node.
#[test]
fn a_task_reads_the_other_copy_of_an_object_that_was_changed() {
    let instance = Instance::up_with_copies(2, 1, 2);
    instance.wait_for_copies();
    let go = instance.sandbox().path("go").display().to_string();
    let text = format!(
        "[[task]]\nname='make'\ncommand=['sh','-c','head -c 200000 /dev/zero | tr \"\\0\" 7 > x']\n\
         outputs={{x={{file='x',keep=true}}}}\n\
         [[task]]\nname='gate'\nafter=['make']\n\
         command=['sh','-c','while ! [ -e {go} ]; do sleep 0.1; done']\n\
         [[task]]\nname='read-{{i}}'\narray='1-8'\nafter=['gate']\ninputs={{x='x'}}\n\
         command=['sh','-c','sleep 0.4; cp {{in:x}} r{{i}}']\n\
         outputs={{r={{file='r{{i}}',keep=true}}}}\n"
    );
    instance.sandbox().write("w.toml", text);
    let id = submit(&instance, &["--file", "w.toml"]);
    let objects = |node| crate::data::files(&instance, node, "objects");
    wait_until("both nodes have it", || objects(0).len() == 1 && objects(1).len() == 1);
    let [object] = objects(0).try_into().expect("one");
    fs::set_permissions(&object, fs::Permissions::from_mode(0o644)).expect("ours");
    fs::write(&object, vec![b'?'; 200_000]).expect("ours");
    fs::write(&go, "").expect("ours");
    instance.starling(&["job", "wait", &id]).ok();
    instance.starling(&["job", "fetch", &id, "-o", "out"]).ok();
    for name in ["x", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"] {
        let bytes = fs::read_to_string(instance.sandbox().path(&format!("out/{name}")));
        assert!(bytes.expect("it was fetched") == letters(7), "{name}");
    }
    assert!(fs::read_to_string(object).expect("it is there") == letters(7), "replaced");
    instance.down();
}

#[test]
fn scripts_beside_a_workflow_are_found_or_named() {
    let sandbox = Sandbox::new();
    let script = sandbox.write("step.sh", "#!/bin/sh\necho beside > out\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    let workflow = |command: &str| {
        format!("[[task]]\nname='t'\ncommand={command}\noutputs={{o={{file='out',keep=true}}}}\n")
    };
    sandbox.write("w.toml", workflow("['./step.sh']"));
    sandbox.starling(&["run", "w.toml", "--output", "res"]).ok();
    assert_eq!(fs::read_to_string(sandbox.path("res/out")).expect("kept"), "beside\n");
    sandbox.write("w.toml", workflow("['sh', 'step.sh']"));
    let told = sandbox.starling(&["run", "w.toml"]).expect_code(1).stderr;
    assert!(told.contains("'step.sh' is beside the workflow"), "{told}");
    sandbox.write("w.toml", workflow("['./nothing.sh']"));
    let told = sandbox.starling(&["run", "w.toml"]).expect_code(1).stderr;
    assert!(told.contains("neither in the task's directory nor in"), "{told}");
}

#[test]
fn a_link_to_nothing_in_a_kept_directory_stays_a_link() {
    let sandbox = Sandbox::new();
    let text = |target: &str| {
        format!(
            "[[task]]\nname='t'\ncommand=['sh','-c','mkdir d; echo a > d/a; ln -s {target} d/l']\n\
             outputs={{d={{dir='d',keep=true}}}}\n"
        )
    };
    sandbox.write("w.toml", text("nowhere"));
    sandbox.starling(&["run", "w.toml", "--output", "res"]).ok();
    assert_eq!(names(&sandbox.path("res/d")), ["a", "l"]);
    let target = fs::read_link(sandbox.path("res/d/l")).expect("a link");
    assert_eq!(target, Path::new("nowhere"));
    sandbox.write("w.toml", text("/no/where"));
    let told = sandbox.starling(&["run", "w.toml", "--output", "two"]).ok().stderr;
    assert!(told.contains("'l' stays a link to '/no/where', out of the output"), "{told}");
    assert_eq!(names(&sandbox.path("two/d")), ["a", "l"]);
}

/// A socket that a program leaves behind does not cost the results beside it.
#[test]
fn an_odd_entry_of_a_kept_directory_costs_itself_alone_and_is_named() {
    let cluster = Instance::up(2, 1);
    let script = "mkdir -p 'd/a b/empty' && cd d && mkfifo pipe && ln -s / root && \
        echo one > 'a b/line\n2' && echo two > closed && chmod 000 closed && \
        ln 'a b/line\n2' hard && mkfifo ../part-0 && echo three > ../part-1";
    let text = format!(
        "[[task]]\nname='make'\ncommand=['sh','-c',\"\"\"{script}\"\"\"]\n\
         outputs={{d={{dir='d',keep=true}},p={{glob='part-*',keep=true}}}}\n\
         [[task]]\nname='use'\ncommand=['sh','-c','cat {{in:d}}/a*/line* {{in:p}} > {{out:all}}']\n\
         inputs={{d='d',p='part-*'}}\noutputs={{all={{file='all',keep=true}}}}\n"
    );
    cluster.sandbox().write("w.toml", text);
    let id = submit(&cluster, &["--file", "w.toml", "--wait"]);
    let told = cluster.starling(&["job", "fetch", &id, "-o", "out"]).ok().stderr;
    let odd = [
        "output 'd': 'pipe' is a FIFO: it is left out",
        "output 'd': 'root' stays a link to '/', out of the output",
        "output 'part-*': 'part-0' is a FIFO: it is left out",
    ];
    let said = cluster.starling(&["job", "output", &id, "--stderr"]).ok();
    for line in odd {
        assert!(told.contains(line), "'{line}' is not in:\n{told}");
        assert!(said.stdout.contains(line) || said.stderr.contains(line), "{said:?}");
    }
    let out = cluster.sandbox().path("out");
    assert_eq!(names(&out), ["all", "d", "part-1"]);
    assert_eq!(names(&out.join("d")), ["a b", "closed", "hard", "root"]);
    assert_eq!(names(&out.join("d/a b")), ["empty", "line\n2"]);
    assert_eq!(fs::read_to_string(out.join("all")).expect("kept"), "one\nthree\n");
    assert_eq!(fs::read_to_string(out.join("d/closed")).expect("kept"), "two\n");
    // A second copy meets the link of the first, and leaves what is behind it alone.
    let told = cluster.starling(&["job", "fetch", &id, "-o", "out"]).ok().stderr;
    assert!(told.contains("'root' stays a link"), "{told}");
    cluster.down();
}

#[test]
fn placeholders_in_a_script_work_below_a_directory_with_a_blank() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("a b")).expect("a new directory");
    sandbox.write("in.txt", "read\n");
    let text = "[[task]]\nname='t'\ninputs={x='in.txt'}\noutputs={o={file='out',keep=true}}\n\
                command=['sh','-c','(cat {in:x}; cat \"{in:x}\"; pwd) > {out:o}']\n";
    let workflow = sandbox.write("w.toml", text);
    let mut command = Command::new("sh");
    command.args(["-c", "TMPDIR=\"$PWD/a b\" exec \"$@\"", "sh"]).arg(binary());
    command.arg("run").arg(workflow).args(["--output", "res"]);
    sandbox.start_command(command).end().ok();
    let kept = fs::read_to_string(sandbox.path("res/out")).expect("kept");
    assert!(kept.starts_with("read\nread\n/") && kept.contains("a b/"), "{kept}");
}

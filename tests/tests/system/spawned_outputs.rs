//! Outputs of spawned tasks: kept ones are fetched, and later children read those of earlier ones.

use std::fs;
use std::path::Path;

use starling_tests::{Instance, Sandbox, wait_until};

use crate::cluster::submit;
use crate::spawn::{run, script, text};

/// Spawns three tasks with a kept output each.
const PARTS: &str = "starling spawn --array 1-3 --out 'part-{i}' -- sh -c 'echo {i} > part-{i}'\n\
                     starling await > /dev/null\n";

fn check_parts(dir: &Path) {
    for number in 1..=3 {
        assert_eq!(text(dir.join(format!("part-{number}"))), number.to_string());
    }
}

fn fetch(instance: &Instance, job: &str, name: &str) {
    let to = instance.sandbox().path(name);
    instance.starling(&["job", "fetch", job, "-o", &to.display().to_string()]).ok();
    check_parts(&to);
}

#[test]
fn kept_outputs_of_spawned_tasks_are_counted_and_fetched() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    instance.wait_for_copies();
    let parent = script(instance.sandbox(), "parent.sh", PARTS);
    let words = ["submit", "--wait", "--timeout", "60s", "--", "sh", &parent];
    let submitted = instance.json(&words);
    let job = submitted["job"].as_str().expect("a job").to_owned();
    assert_eq!(
        (&submitted["kept"]["outputs"], &submitted["kept"]["declared"]),
        (&3.into(), &3.into())
    );
    instance.kill(2);
    fetch(&instance, &job, "after-a-kill");
    instance.start_missing();
    instance.starling(&["down"]).ok();
    instance.start_missing();
    fetch(&instance, &job, "after-a-restart");
    let refused = instance.starling(&["job", "forget", &job]).expect_code(4);
    assert!(refused.stderr.contains("keeps results"), "{}", refused.stderr);
    instance.starling(&["job", "forget", &job, "--results"]).ok();
    instance.down();
}

#[test]
fn a_run_copies_kept_outputs_of_spawned_tasks() {
    let sandbox = Sandbox::new();
    let parent = script(&sandbox, "parent.sh", PARTS);
    let workflow = format!("[[task]]\nname = 'parent'\ncommand = ['sh', '{parent}']\n");
    sandbox.write("w.toml", workflow);
    sandbox.starling(&["run", "w.toml", "--nodes", "1", "--slots", "1"]).ok();
    let runs = fs::read_dir(sandbox.path("starling-runs")).expect("results have a directory");
    let dirs: Vec<_> = runs.map(|run| run.expect("it can be read").path()).collect();
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    check_parts(&dirs[0].join("results"));
}

#[test]
fn a_child_reads_outputs_of_earlier_children() {
    let instance = Instance::up(2, 1);
    let out = instance.sandbox().path("out").display().to_string();
    let parent = format!(
        "starling spawn --out part.txt -- sh -c 'echo one > part.txt'\n\
         starling spawn --in 0:part.txt --out two.txt -- \
             sh -c 'sed s/one/two/ part.txt > two.txt'\n\
         starling await 0\n\
         starling spawn --in 0:part.txt 1:two.txt --out dir/ -- \
             sh -c 'mkdir dir; cat part.txt two.txt > dir/sum'\n\
         starling commit\n\
         starling spawn --after 0 --in 2:dir/ -- sh -c 'cat dir/sum > {out}'\n\
         starling await\n"
    );
    let parent = script(instance.sandbox(), "parent.sh", &parent);
    run(&instance, &parent, &[]).ok();
    assert_eq!(text(out.into()), "one\ntwo");
    instance.down();
}

#[test]
fn a_reader_of_a_failed_child_is_skipped_and_a_wrong_name_is_an_error() {
    let instance = Instance::up(1, 1);
    let out = instance.sandbox().path("out").display().to_string();
    let parent = format!(
        "starling spawn --out x -- false\n\
         starling await > /dev/null || true\n\
         starling spawn --in 0:x -- true\n\
         starling await 1 > {out} || true\n\
         starling spawn --out y -- sh -c 'echo y > y'\n\
         starling spawn --in 2:z -- true 2>> {out} || true\n\
         starling spawn --in 2:y/ -- true 2>> {out} || true\n\
         starling spawn --in 9:y -- true 2>> {out} || true\n\
         starling commit\n\
         starling spawn --in 2:z -- true\n\
         starling commit 2>> {out}\n"
    );
    let parent = script(instance.sandbox(), "parent.sh", &parent);
    run(&instance, &parent, &[]).expect_code(1);
    let said = text(out.into());
    for expected in [
        "1\tskipped",
        "--in: child 2 has no output 'z'",
        "output 'y' of child 2 has another form",
        "no child 9: this task has spawned 0 to 2",
        "error: child 2 has no output 'z'",
        "hint: its outputs are: y",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    instance.down();
}

#[test]
fn a_killed_node_takes_no_input_of_a_later_child_with_it() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let sandbox = instance.sandbox();
    let (made, go, out) = (sandbox.path("made"), sandbox.path("go"), sandbox.path("out"));
    let (mark, wait, end) = (made.display(), go.display(), out.display());
    let parent = format!(
        "starling spawn --key a --array 1-3 --out 'part-{{i}}' -- sh -c 'echo {{i}} > part-{{i}}'\n\
         starling await 0-2 > /dev/null\n\
         echo made > {mark}\n\
         while [ ! -e {wait} ]; do sleep 0.1; done\n\
         starling spawn --key b --in 0:part-1 1:part-2 2:part-3 -- \
             sh -c 'cat part-1 part-2 part-3 > {end}'\n\
         starling await > /dev/null\n"
    );
    let parent = script(sandbox, "parent.sh", &parent);
    let job = submit(&instance, &["--", "sh", &parent]);
    wait_until("the parts are made", || made.exists());
    instance.kill(1);
    fs::write(&go, "").expect("the sandbox can be written");
    instance.starling(&["job", "wait", &job, "--timeout", "100s"]).ok();
    assert_eq!(text(out), "1\n2\n3");
    instance.start_missing();
    instance.down();
}

/// The parents know nothing of each other's children.
#[test]
fn outputs_of_one_name_are_fetched_task_by_task() {
    let instance = Instance::up(1, 1);
    let parent =
        "starling spawn --out res -- sh -c \"echo $1 > res\"\nstarling await > /dev/null\n";
    let parent = script(instance.sandbox(), "parent.sh", parent);
    let job = submit(&instance, &["--array", "1-2", "--wait", "--", "sh", &parent, "{i}"]);
    let (all, one) = (instance.sandbox().path("all"), instance.sandbox().path("one"));
    let to = |dir: &Path| dir.display().to_string();
    let refused = instance.starling(&["job", "fetch", &job, "-o", &to(&all)]).expect_code(4);
    let (_, rest) = refused.stderr.split_once("'res' of task ").expect("it is named");
    let (id, _) = rest.split_once(':').expect("then the reason");
    let hint = format!("'starling job fetch {job} {id} -o DIRECTORY'");
    assert!(refused.stderr.contains(&hint), "{refused:?}");
    instance.starling(&["job", "fetch", &job, id, "-o", &to(&one)]).ok();
    let mut texts = [text(all.join("res")), text(one.join("res"))];
    texts.sort();
    assert_eq!(texts, ["1", "2"]);
    let none = ["job", "fetch", &job, "sh-1", "-o", &to(&one)];
    let none = instance.starling(&none).expect_code(4);
    assert!(none.stderr.contains("'sh-1' keeps no outputs"), "{none:?}");
    instance.down();
}

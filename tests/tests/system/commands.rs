//! Workflows of real commands: input and output files, the resulting edges, and failures.

use std::fs;

use serde_json::Value;
use starling_tests::{Sandbox, repository};

/// Forty counts and their sum: the edges follow from the files.
const WORD_COUNT: &str = r#"
[[task]]
name = "count-{i}"
array = "1-40"
command = ["sh", "-c", "wc -w < {in:text} > {out:n}"]
inputs  = { text = "t{i}.txt" }
outputs = { n = "n{i}" }
[[task]]
name = "sum"
command = ["sh", "-c", "cat $STARLING_INPUTS | awk '{s+=$1} END {print s}' > {out:total}"]
inputs  = { all = ["n1..40"] }
outputs = { total = { file = "total", keep = true } }
"#;

fn run(sandbox: &Sandbox, more: &[&str]) -> starling_tests::Ran {
    let mut arguments = vec!["run", "w.toml"];
    arguments.extend(more);
    sandbox.starling(&arguments)
}

#[test]
fn words_are_counted_on_four_nodes() {
    let sandbox = Sandbox::new();
    sandbox.write("w.toml", WORD_COUNT);
    let mut words = 0;
    for number in 1..=40 {
        words += number;
        sandbox.write(&format!("t{number}.txt"), "word ".repeat(number));
    }
    let more = ["--nodes", "4", "--slots", "2", "--output", "kept", "--json"];
    let report = run(&sandbox, &more).ok().json();
    assert_eq!(report["tasks"]["total"], 41);
    assert_eq!(report["tasks"]["edges"], 40);
    assert_eq!(report["tasks"]["done"], 41);
    let total = fs::read_to_string(sandbox.path("kept/total")).expect("kept outputs are copied");
    assert_eq!(total.trim(), words.to_string());
}

#[test]
fn the_example_of_the_repository_runs() {
    let sandbox = Sandbox::new();
    let file = repository().join("examples/word-count/workflow.toml").display().to_string();
    let report = sandbox.starling(&["run", &file, "--nodes", "4", "--output", "kept", "--json"]);
    let report = report.ok().json();
    assert_eq!(report["tasks"]["total"], 8);
    assert_eq!(report["tasks"]["edges"], 7);
    let top = fs::read_to_string(sandbox.path("kept/top-words")).expect("kept outputs are copied");
    let first: Vec<&str> = top.lines().next().unwrap_or_default().split(' ').collect();
    assert_eq!(first[1], "the", "{top}");
}

#[test]
fn a_task_sees_its_surroundings() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "w.toml",
        r#"
[[task]]
name = "look"
array = "7-7"
env = { COLOUR = "blue {i}" }
stdin = "words.txt"
command = ["sh", "-c", "{ echo e=$STARLING_ENTRY c=$COLOUR a=$STARLING_ATTEMPT cpus=$STARLING_CPUS; echo omp=$OMP_NUM_THREADS; echo in=$(cat); echo dir=$(pwd); echo task=$STARLING_TASK_DIR; echo out=$STARLING_OUT_report; echo slurm=$SLURM_JOB_ID; echo i={i}; echo oom=$(cat /proc/self/oom_score_adj); } > {out:report}"]
outputs = { report = { file = "report", keep = true } }
"#,
    );
    sandbox.write("words.txt", "from a file");
    run(&sandbox, &["--nodes", "1", "--output", "kept"]).ok();
    let report = fs::read_to_string(sandbox.path("kept/report")).expect("kept outputs are copied");
    let line = |key: &str| {
        let found = report.lines().find_map(|line| line.strip_prefix(key));
        found.unwrap_or_else(|| panic!("no {key} in {report}")).to_owned()
    };
    assert!(line("e=7 c=blue 7 a=").ends_with("cpus=1"), "{report}");
    assert_eq!(line("omp="), "1");
    assert_eq!(line("in="), "from a file");
    assert_eq!(line("dir="), line("task="), "its own directory is where it runs");
    assert!(!line("out=").is_empty());
    assert_eq!(line("slurm="), "", "variables of a launcher do not leak into tasks");
    assert_eq!(line("i="), "7");
    assert_eq!(line("oom="), "1000", "where memory runs out it goes before its node");
}

/// Order without files, by `after` alone.
#[test]
fn after_orders_tasks_that_share_no_file() {
    let sandbox = Sandbox::new();
    let log = sandbox.path("log").display().to_string();
    let task = |name: &str, after: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nafter = [{after}]\n\
             command = [\"sh\", \"-c\", \"echo {name} >> {log}\"]\n"
        )
    };
    let text = [task("c", "\"b\""), task("a", ""), task("b", "\"a\"")].concat();
    sandbox.write("w.toml", text);
    let report = run(&sandbox, &["--nodes", "3", "--json"]).ok().json();
    assert_eq!(report["tasks"]["edges"], 2);
    assert_eq!(fs::read_to_string(&log).expect("the tasks wrote it"), "a\nb\nc\n");
}

const FAILING: &str = r#"
[[task]]
name = "fine"
command = ["true"]
[[task]]
name = "breaks"
command = ["sh", "-c", "echo the disk is on fire >&2; exit 3"]
outputs = { x = "x" }
[[task]]
name = "waits"
command = ["cat", "{in:x}"]
inputs = { x = "x" }
outputs = { y = "y" }
[[task]]
name = "waits-longer"
command = ["cat", "{in:y}"]
inputs = { y = "y" }
"#;

#[test]
fn a_failing_command_skips_what_depends_on_it() {
    let sandbox = Sandbox::new();
    sandbox.write("w.toml", FAILING);
    let ran = run(&sandbox, &["--nodes", "2", "--json"]).expect_code(1);
    let report: Value = ran.json();
    let tasks = &report["tasks"];
    assert_eq!((&tasks["done"], &tasks["failed"]), (&1.into(), &1.into()), "{report}");
    assert_eq!(tasks["skipped"], 2, "{report}");
    for part in ["breaks", "exit code 3", "node", "attempt", "the disk is on fire"] {
        assert!(ran.stderr.contains(part), "'{part}' is not in:\n{}", ran.stderr);
    }
}

#[test]
fn a_command_that_does_not_exist_fails_its_task_alone() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "w.toml",
        "[[task]]\nname = \"gone\"\ncommand = [\"no-such-program-here\"]\n\
         [[task]]\nname = \"fine\"\ncommand = [\"true\"]\n",
    );
    let ran = run(&sandbox, &["--json"]).expect_code(1);
    let report = ran.json();
    assert_eq!(report["tasks"]["failed"], 1, "{report}");
    assert_eq!(report["tasks"]["done"], 1, "{report}");
    assert!(ran.stderr.contains("no-such-program-here"), "{}", ran.stderr);
}

#[test]
fn an_output_that_was_declared_and_not_made_is_a_failure() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "w.toml",
        "[[task]]\nname = \"lazy\"\ncommand = [\"true\"]\noutputs = { x = \"promised.txt\" }\n",
    );
    let ran = run(&sandbox, &[]).expect_code(1);
    assert!(ran.stderr.contains("promised.txt"), "{}", ran.stderr);
}

#[test]
fn a_task_that_fails_once_succeeds_on_its_retry() {
    let sandbox = Sandbox::new();
    let flag = sandbox.path("flag").display().to_string();
    sandbox.write(
        "w.toml",
        format!(
            "[[task]]\nname = \"moody\"\nretries = 2\n\
             command = [\"sh\", \"-c\", \"test -e {flag} || {{ touch {flag}; exit 1; }}\"]\n"
        ),
    );
    let report = run(&sandbox, &["--json"]).ok().json();
    assert_eq!(report["tasks"]["done"], 1, "{report}");
    assert_eq!(report["tasks"]["executions"], 2, "{report}");
}

#[test]
fn a_time_limit_ends_a_task_that_hangs() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "w.toml",
        "[[task]]\nname = \"hangs\"\ncommand = [\"sleep\", \"1000\"]\ntime_limit = \"300ms\"\n",
    );
    let ran = run(&sandbox, &[]).expect_code(1);
    assert!(ran.stderr.contains("hangs"), "{}", ran.stderr);
    assert!(ran.stderr.contains("limit"), "{}", ran.stderr);
}

/// A node avoids huge pages for its own memory. Its commands keep what its user had set.
#[test]
fn commands_may_use_huge_pages_although_their_node_avoids_them() {
    let own = fs::read_to_string("/proc/self/status").expect("the kernel has it");
    if !own.contains("THP_enabled:\t1") {
        println!("skipped: this kernel does not tell, or huge pages are off here");
        return;
    }
    let script = "grep THP_enabled /proc/self/status; spawner=/proc/$PPID/status; \
                  node=$(awk '/^PPid/ {print $2}' $spawner); \
                  grep -H THP_enabled /proc/$node/status | sed 's/.*:/node: /'";
    let ran = Sandbox::new().starling(&["run", "--", "sh", "-c", script]).ok();
    assert!(ran.stdout.contains("THP_enabled:\t1"), "{ran:?}");
    assert!(ran.stdout.contains("node: \t0"), "{ran:?}");
}

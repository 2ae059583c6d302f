//! Commands get their inputs as the workflow lists them: in order, complete, and under their names.

use std::fs;

use serde_json::Value;
use starling_tests::{Instance, Sandbox};

/// Runs the workflow and returns the kept output of this name.
fn kept(sandbox: &Sandbox, workflow: &str, file: &str) -> String {
    sandbox.write("w.toml", workflow);
    let _ = fs::remove_dir_all(sandbox.path("kept"));
    sandbox.starling(&["run", "w.toml", "--nodes", "2", "--output", "kept"]).ok();
    fs::read_to_string(sandbox.path(&format!("kept/{file}"))).expect("it is kept")
}

#[test]
fn files_from_outside_and_from_tasks_keep_their_order() {
    let sandbox = Sandbox::new();
    sandbox.write("header.txt", "header\n");
    sandbox.write("footer.txt", "footer\n");
    let workflow = r#"
[[task]]
name = "body"
command = ["sh", "-c", "echo body > {out:o}"]
outputs = { o = "body.txt" }
[[task]]
name = "join"
command = ["sh", "-c", 'cat {in:parts} $STARLING_INPUTS "$@" > "$STARLING_OUT_o"', "sh", "{in:parts}"]
inputs = { parts = ["header.txt", "body.txt", "footer.txt"] }
outputs = { o = { file = "all.txt", keep = true } }
"#;
    assert_eq!(kept(&sandbox, workflow, "all.txt"), "header\nbody\nfooter\n".repeat(3));
}

#[test]
fn names_with_blanks_dots_and_digits_are_files() {
    let sandbox = Sandbox::new();
    for name in ["a 1.csv", "a 2.csv", "chr1_100..103.bed"] {
        sandbox.write(name, format!("{name}\n"));
    }
    let workflow = r#"
[[task]]
name = "make"
command = ["sh", "-c", "echo made > {out:o}"]
outputs = { o = "chr2_5..9.bed" }
[[task]]
name = "gather"
command = ["sh", "-c", 'cat "$@" > "$STARLING_OUT_o"', "sh", "{in:all}"]
inputs = { all = ["a 1..2.csv", "chr1_100..103.bed", "chr2_5..9.bed"] }
outputs = { o = { file = "all.txt", keep = true } }
"#;
    let expected = "a 1.csv\na 2.csv\nchr1_100..103.bed\nmade\n";
    assert_eq!(kept(&sandbox, workflow, "all.txt"), expected);
}

#[test]
fn one_file_has_several_roles_and_one_name_may_be_of_two_files() {
    let sandbox = Sandbox::new();
    sandbox.write("genome.fa", "genome\n");
    for (sample, text) in [("s1", "one\n"), ("s2", "two\n")] {
        fs::create_dir(sandbox.path(sample)).expect("a directory");
        sandbox.write(&format!("{sample}/x.fq"), text);
    }
    let outside = sandbox.path("s2/x.fq").display().to_string();
    let workflow = format!(
        r#"
[[task]]
name = "t"
command = ["sh", "-c", "cat {{in:ref}} {{in:db}} {{in:reads}} > {{out:o}}; ls >> {{out:o}}"]
inputs = {{ ref = "genome.fa", db = "genome.fa", reads = ["s1/x.fq", {{ file = "{outside}", as = "s2.fq" }}] }}
outputs = {{ o = {{ file = "all.txt", keep = true }} }}
"#
    );
    let expected = "genome\ngenome\none\ntwo\nall.txt\ngenome.fa\ns1\ns2.fq\n";
    assert_eq!(kept(&sandbox, &workflow, "all.txt"), expected);
    sandbox.write("w.toml", workflow.replace("as = \"s2.fq\"", "as = \"genome.fa\""));
    let refused = sandbox.starling(&["run", "w.toml"]).expect_code(4).stderr;
    assert!(refused.contains("have one name in its directory: 'genome.fa'"), "{refused}");
    assert!(refused.contains("as = \"other-genome.fa\""), "{refused}");
}

#[test]
fn numbers_with_zeros_in_front_keep_them() {
    let sandbox = Sandbox::new();
    for number in 8..=12 {
        sandbox.write(&format!("img_{number:04}.pgm"), format!("{number}\n"));
    }
    let workflow = r#"
[[task]]
name = "g"
array = "0008-0012"
command = ["sh", "-c", 'cat "$STARLING_IN_p" > "$STARLING_OUT_o"; echo {i} $STARLING_ENTRY >> {out:o}']
inputs = { p = "img_{i}.pgm" }
outputs = { o = "out_{i}.txt" }
[[task]]
name = "all"
command = ["sh", "-c", "cat {in:o} > {out:o}"]
inputs = { o = ["out_0008..0012.txt"] }
outputs = { o = { file = "all.txt", keep = true } }
"#;
    let expected: String =
        (8..=12).map(|number| format!("{number}\n{number:04} {number:04}\n")).collect();
    assert_eq!(kept(&sandbox, workflow, "all.txt"), expected);
    let workflow = workflow.replace("0008-0012", "8-12").replace("img_{i}", "img_{i:04}");
    let workflow = workflow.replace("out_{i}", "out_{i:04}");
    assert!(kept(&sandbox, &workflow, "all.txt").starts_with("8\n8 8\n"));
}

#[test]
fn braces_of_a_program_stay() {
    let sandbox = Sandbox::new();
    let workflow = r#"
[[task]]
name = "py"
command = ["sh", "-c", "echo '{i} {{i}} {x} {{in:a}} ${HOME}' > {out:o}"]
outputs = { o = { file = "o.txt", keep = true } }
[[task]]
name = "entry"
array = "7-7"
command = ["sh", "-c", "echo '{i} {{i}} {x}' > {out:o}"]
outputs = { o = { file = "p.txt", keep = true } }
"#;
    assert_eq!(kept(&sandbox, workflow, "o.txt"), "{i} {{i}} {x} {in:a} ${HOME}\n");
    assert_eq!(kept(&sandbox, workflow, "p.txt"), "7 {i} {x}\n");
}

#[test]
fn braces_in_the_names_of_files_and_directories_stay() {
    let sandbox = Sandbox::new();
    for (directory, other) in [("p{job}", "p1"), ("y{i}", "y1"), ("q{in:a}", "q"), ("z{{i}}", "z")]
    {
        for (place, text) in [(directory, "right\n"), (other, "wrong\n")] {
            fs::create_dir_all(sandbox.path(place)).unwrap();
            sandbox.write(&format!("{place}/x-1"), text);
            sandbox.write(&format!("{place}/r_{{job}}"), text);
            sandbox.write(&format!("{place}/r_1"), "wrong\n");
        }
        let workflow = r#"
[[task]]
name = "one"
command = ["sh", "-c", "cat {in:a} - > {out:o}; echo end >> {out:o}"]
inputs = { a = "r_{job}" }
stdin = "x-1"
outputs = { o = { file = "k_{job}_{task}", keep = true } }
[[task]]
name = "each"
array = "1-2"
command = ["sh", "-c", "cat {in:a} x-1 > {out:o}"]
cwd = "."
inputs = { a = "x-1" }
outputs = { o = { file = "all-{i}", keep = true } }
"#;
        sandbox.write(&format!("{directory}/w.toml"), workflow);
        let (file, kept) = (format!("{directory}/w.toml"), format!("{directory}/kept"));
        sandbox.starling(&["run", &file, "--nodes", "1", "--output", &kept]).ok();
        let read =
            |name: &str| fs::read_to_string(sandbox.path(&format!("{kept}/{name}"))).unwrap();
        assert_eq!(read("k_{job}_{task}"), "right\nright\nend\n", "{directory}");
        assert_eq!([read("all-1"), read("all-2")], ["right\nright\n"; 2], "{directory}");
    }
}

#[test]
fn a_directory_that_matches_a_pattern_is_named() {
    let sandbox = Sandbox::new();
    let workflow = |made: &str| {
        let text = format!(
            "[[task]]\nname = \"g\"\ncommand = [\"sh\", \"-c\", \"{made}\"]\n\
             outputs = {{ g = {{ glob = \"*.x\", keep = true }} }}\n"
        );
        sandbox.write("w.toml", text);
        sandbox.starling(&["run", "w.toml", "--nodes", "1", "--output", "kept"])
    };
    let run = workflow("mkdir b.x; touch a.x b.x/inner").ok();
    assert!(run.stderr.contains("'b.x' is a directory: it is left out"), "{}", run.stderr);
    assert!(sandbox.path("kept/a.x").is_file());
    let failed = workflow("mkdir b.x");
    assert_eq!(failed.code, 1, "{}", failed.stderr);
    assert!(failed.stderr.contains(r#"hint: declare { dir = "b.x" }"#), "{}", failed.stderr);
}

#[test]
fn entries_of_an_array_are_named_by_their_numbers() {
    let cluster = Instance::up(1, 1);
    cluster.starling(&["submit", "--array", "1-20", "sleep", "60"]).ok();
    cluster.starling(&["task", "cancel", "last", "17,3-5"]).ok();
    let listed = cluster.starling(&["task", "list", "last", "--json"]).ok().json();
    let tasks = listed["tasks"].as_array().expect("a list");
    let mut cancelled: Vec<&str> = tasks
        .iter()
        .filter(|task| task["state"] == "cancelled")
        .filter_map(|task| task["name"].as_str())
        .collect();
    cancelled.sort_unstable();
    assert_eq!(cancelled, ["sleep-17", "sleep-3", "sleep-4", "sleep-5"]);
    let none = cluster.starling(&["task", "cancel", "last", "21"]).expect_code(4).stderr;
    assert!(none.contains("no task '21'"), "{none}");
    cluster.starling(&["job", "cancel", "last"]).ok();
    cluster.sandbox().write("w.toml", "[[task]]\nname = \"a\"\nbody = \"noop\"\n");
    let refused = cluster.starling(&["submit", "w.toml"]).expect_code(2).stderr;
    assert!(refused.contains("starling submit --file w.toml"), "{refused}");
    cluster.down();
}

#[test]
fn an_explanation_gives_the_reason_of_a_failure_and_of_a_skip() {
    let cluster = Instance::up(1, 1);
    let workflow = r#"
[[task]]
name = "align"
command = ["sh", "-c", "echo 'reference index is missing' >&2; exit 42"]
outputs = { o = "x" }
[[task]]
name = "merge"
command = ["true"]
inputs = { i = "x" }
outputs = { o = "y" }
[[task]]
name = "report"
command = ["true"]
inputs = { i = "y" }
[[task]]
name = "unrelated"
command = ["sh", "-c", "kill -SEGV $$"]
[[task]]
name = "after"
command = ["true"]
after = ["unrelated"]
"#;
    cluster.sandbox().write("w.toml", workflow);
    let file = cluster.sandbox().path("w.toml").display().to_string();
    let waited = cluster.starling(&["submit", "--file", &file, "--wait"]).expect_code(1);
    let last = waited.stderr.lines().last().expect("it says why").to_owned();
    assert!(last.starts_with("hint: 'starling task explain 1 "), "{waited:?}");
    let failed = cluster.json(&["task", "explain", "last", "align"]);
    assert_eq!(failed["task"]["exit_code"], 42, "{failed}");
    assert_eq!((&failed["exit_code"], &failed["signal"]), (&42.into(), &Value::Null), "{failed}");
    assert_eq!(failed["command"][0], "sh", "{failed}");
    let killed = cluster.json(&["task", "explain", "last", "unrelated"]);
    assert_eq!((&killed["exit_code"], &killed["signal"]), (&139.into(), &11.into()), "{killed}");
    assert_eq!(failed["stderr_tail"], "reference index is missing\n", "{failed}");
    let skipped = cluster.json(&["task", "explain", "last", "merge"]);
    assert_eq!(skipped["failed_tasks"][0], "align", "{skipped}");
    // Only its own ancestors, however far up.
    for (task, cause) in [("merge", "align"), ("report", "align"), ("after", "unrelated")] {
        let skipped = cluster.json(&["task", "explain", "last", task]);
        let causes = skipped["caused_by"].as_array().expect("a list");
        assert_eq!(causes.len(), 1, "{skipped}");
        assert_eq!((&causes[0]["name"], &causes[0]["state"]), (&cause.into(), &"failed".into()));
    }
    let told = cluster.starling(&["task", "explain", "last", "report"]).ok().stdout;
    assert!(told.contains("task 'align' failed on node n0"), "{told}");
    assert!(!told.contains("unrelated"), "{told}");
    // 'task info' has the same facts.
    let failed = cluster.json(&["task", "info", "last", "align"]);
    assert_eq!((&failed["exit_code"], &failed["command"][0]), (&42.into(), &"sh".into()));
    assert_eq!(failed["stderr_tail"], "reference index is missing\n", "{failed}");
    assert_eq!(cluster.json(&["task", "info", "last", "unrelated"])["signal"], 11);
    let skipped = cluster.json(&["task", "info", "last", "merge"]);
    assert_eq!(skipped["caused_by"][0]["name"], "align", "{skipped}");
    let told = cluster.starling(&["task", "info", "last", "align"]).ok().stdout;
    assert!(told.contains("| reference index is missing"), "{told}");
    cluster.down();
}

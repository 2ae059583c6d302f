//! The exact text of each error about an invalid workflow: the problem, its place, and the hint.

use workloads::{Format, LoadOptions, load};

/// Loads the text as a file of this name. Returns the error without the directory, and its hint.
fn refused(name: &str, text: &str) -> (String, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    std::fs::write(&path, text).expect("it is written");
    let error = load(&path, None, &LoadOptions::default()).expect_err(text);
    let told = error.to_string();
    assert!(!told.contains('\n'), "an error is one line: {told}");
    let prefix = format!("{}/", directory.path().display());
    (told.replace(&prefix, ""), error.hint().unwrap_or_default())
}

#[test]
fn broken_wfformat() {
    let old = |tasks: &str| {
        format!(r#"{{"name": "w", "schemaVersion": "1.3", "workflow": {{"tasks": [{tasks}]}}}}"#)
    };
    let task = |name: &str, parents: &str| {
        format!(r#"{{"name": "{name}", "runtime": 1, "parents": [{parents}], "files": []}}"#)
    };
    let table = [
        (
            "{\"name\": \"w\",\n  \"workflow\": {]}".to_owned(),
            "w.json:2:16: broken JSON: key must be a string",
        ),
        ("{\"name\": \"w\"".to_owned(), "w.json:1:12: broken JSON: the text ends within an object"),
        ("{\"name\": \"w\"}".to_owned(), "w.json:1:13: not a workflow: missing field `workflow`"),
        (r#"{"workflow": {}}"#.to_owned(), "w.json: not a workflow: the JSON has no schemaVersion"),
        (
            r#"{"schemaVersion": "2.0", "workflow": {}}"#.to_owned(),
            "w.json:1:24: unknown schema version '2.0'",
        ),
        (
            r#"{"schemaVersion": "1.5", "workflow": {}}"#.to_owned(),
            "w.json: not a workflow: the workflow has neither a specification nor tasks",
        ),
        (old(""), "w.json: the workflow has no tasks"),
        (old(&[task("a", ""), task("a", "")].join(",")), "w.json:1:173: duplicate task 'a'"),
        (old(&task("a", "\"x\"")), "w.json: task 'a': unknown task 'x' in parents"),
        (old(&task("a", "\"a\"")), "w.json: task 'a' depends on itself"),
        (
            old(&[task("a", "\"c\""), task("b", "\"a\""), task("c", "\"b\"")].join(",")),
            "w.json: the tasks form a cycle: a -> b -> c -> a",
        ),
        (
            old(r#"{"name": "a", "runtime": -1}"#),
            "w.json:1:90: task 'a': a runtime of -1 s cannot be",
        ),
        (
            old(r#"{"name": "a", "runtime": "soon"}"#),
            "w.json:1:92: not a workflow: invalid value: string \"soon\", expected a number",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(refused("w.json", &text).0, expected);
    }
    let (_, hint) = refused("w.json", r#"{"schemaVersion": "2.0", "workflow": {}}"#);
    assert_eq!(hint, "known versions: 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6");
}

#[test]
fn broken_toml() {
    let table = [
        ("", "w.toml: not a workflow: the file is empty"),
        ("name = \"w\"\n", "w.toml: the workflow has no tasks"),
        ("[[task]\n", "w.toml:1:8: unclosed array table, expected `]`"),
        ("[[task]]\nnme = \"a\"\n", "w.toml:2:1: unknown key 'nme'"),
        ("[[task]]\ncommand = [\"true\"]\n", "w.toml:1:1: the key 'name' is missing"),
        ("[[task]]\nname = \"a\"\n", "w.toml:1:1: task 'a': has neither a command nor a body"),
        ("[[task]]\nname = \"a\"\ncommand = []\n", "w.toml:3:11: task 'a': the command is empty"),
        (
            "[[task]]\nname = \"a\"\ncommand = [\"a\"]\n\
             outputs = { o = { file = \"o\", replicas = 6 } }\n",
            "w.toml:4:17: task 'a': replicas of an output are 1 to 5",
        ),
        (
            "[[task]]\nname = \"a\"\nbody = \"dance\"\n",
            "w.toml:3:8: task 'a': unknown body 'dance'",
        ),
        (
            "[[task]]\nname = \"a\"\nduration = \"1s\"\nduration_estimate = \"2s\"\n",
            "w.toml:4:21: task 'a': an estimate goes with a command",
        ),
        (
            "data_load = \"free\"\n[[task]]\nname = \"a\"\nduration = \"1s\"\n",
            "w.toml:1:13: data_load = 'free': it is clocked or unclocked",
        ),
        (
            "[[task]]\nname = \"a\"\nduration = \"soon\"\n",
            "w.toml:3:12: task 'a': 'soon' is not a duration such as 90s, 1h 30m or 50ms",
        ),
        (
            "[[task]]\nname = \"a\"\nbody = \"noop\"\n[[task]]\nname = \"a\"\nbody = \"noop\"\n",
            "w.toml:5:8: duplicate task 'a'",
        ),
        (
            "[[task]]\nname = \"a\"\narray = \"1-5\"\nbody = \"noop\"\n\
          [[task]]\nname = \"a-3\"\nbody = \"noop\"\n",
            "w.toml:6:8: duplicate task 'a-3'",
        ),
        (
            "[[task]]\nname = \"sum\"\nbody = \"noop\"\nafter = [\"foo\"]\n",
            "w.toml:4:10: task 'sum': unknown task 'foo' in after",
        ),
        (
            "[[task]]\nname = \"a\"\narray = \"1-3\"\nbody = \"noop\"\n\
          [[task]]\nname = \"b\"\narray = \"1-4\"\nbody = \"noop\"\nafter = [\"a-{i}\"]\n",
            "w.toml:9:10: task 'b-4': unknown task 'a-4' in after",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(refused("w.toml", text).0, expected, "{text}");
    }
}

/// The most common errors: the place, the key, and the correct form.
#[test]
fn first_mistakes_in_toml() {
    let task = |line: &str| format!("[[task]]\nname = \"a\"\ncommand = [\"true\"]\n{line}\n");
    let table = [
        ("[task]\nname = \"a\"\n".to_owned(), "1:1: 'task' is a list, not a table", "[[task]]"),
        (
            "[[task]]\nname = \"a\"\ncommand = \"ls -l\"\n".to_owned(),
            "3:11: 'command' is a list, not the text \"ls -l\"",
            "command = [\"ls\", \"-l\"]",
        ),
        (
            "[[task]]\nname = \"a\"\ncommand = [\"sleep\", 5]\n".to_owned(),
            "3:21: 'command' is a text in quotes, not the number 5",
            "command = [\"sleep\", \"5\"]",
        ),
        (task("cmd = [\"x\"]"), "4:1: unknown key 'cmd'", "'command' is meant?"),
        (task("output = { o = \"x\" }"), "4:1: unknown key 'output'", "'outputs' is meant?"),
        (task("depends_on = [\"b\"]"), "4:1: unknown key 'depends_on'", "after = [\"name\"]"),
        (
            task("inputs = [\"x\"]"),
            "4:10: 'inputs' is a table of key = value, not a list",
            "{in:text}",
        ),
        (task("array = 10"), "4:9: 'array' is a text in quotes, not the number 10", "\"1-10\""),
        (task("memory = 4"), "4:10: 'memory' is a text in quotes, not the number 4", "\"4GiB\""),
        (task("cpus = [2]"), "4:8: 'cpus' is a whole number, not a list", "cpus = 2"),
        (task("after = \"b\""), "4:9: 'after' is a list, not the text \"b\"", "after = [\"name\"]"),
        (
            task("outputs = { o = { file = \"x\", keep = \"yes\" } }"),
            "4:38: 'keep' is true or false, not the text \"yes\"",
            "keep = true",
        ),
        (task("label = \"x\""), "4:1: unknown key 'label'", "'labels' is meant?"),
        (task("colour = 1"), "4:1: unknown key 'colour'", "known keys: name, array"),
    ];
    for (text, expected, form) in table {
        let (told, hint) = refused("w.toml", &text);
        assert_eq!(told, format!("w.toml:{expected}"), "{text}");
        assert!(hint.contains(form), "{hint}");
    }
}

#[test]
fn broken_files_and_needs() {
    let table = [
        (
            "[[task]]\nname = \"a\"\nbody = \"noop\"\ninputs = { x = \"gone.txt\" }\n",
            "w.toml:4:16: task 'a': file not found: 'gone.txt'",
        ),
        (
            "[[task]]\nname = \"a-{i}\"\narray = \"7-9\"\nbody = \"noop\"\n\
          inputs = { x = [\"gone{i}\"] }\n",
            "w.toml:5:17: task 'a-7': file not found: 'gone7'",
        ),
        (
            "[[task]]\nname = \"a\"\nbody = \"noop\"\noutputs = { x = \"f\" }\n\
          [[task]]\nname = \"b\"\nbody = \"noop\"\noutputs = { x = \"f\" }\n",
            "w.toml:8:17: file 'f' is written by both task 'a' and task 'b'",
        ),
        (
            "[[task]]\nname = \"a\"\narray = \"1-2\"\nbody = \"noop\"\noutputs = { x = \"f\" }\n",
            "w.toml:5:17: file 'f' is written by both task 'a-1' and task 'a-2'",
        ),
        (
            "[[task]]\nname = \"a\"\narray = \"1-20\"\nbody = \"noop\"\n\
             outputs = { x = \"f{i}\" }\n\
          [[task]]\nname = \"b\"\narray = \"5-9\"\nbody = \"noop\"\noutputs = { x = \"f1{i}\" }\n",
            "w.toml:10:17: file 'f15' is written by both task 'a-15' and task 'b-5'",
        ),
        (
            "[[task]]\nname = \"a\"\nbody = \"noop\"\nafter = [\"b\"]\n\
          [[task]]\nname = \"b\"\nbody = \"noop\"\nafter = [\"a\"]\n",
            "w.toml: the tasks form a cycle: a -> b -> a",
        ),
        (
            "[[task]]\nname = \"a\"\nbody = \"noop\"\ninputs = { x = \"f\" }\n\
             outputs = { y = \"f\" }\n",
            "w.toml: task 'a' depends on itself",
        ),
        (
            "[[task]]\nname = \"a\"\narray = \"3-1\"\nbody = \"noop\"\n",
            "w.toml:3:9: task 'a': array '3-1': 3 is above 1",
        ),
        (
            "[[task]]\nname = \"a\"\nbody = \"noop\"\noutputs = { x = \"../f\" }\n",
            "w.toml:4:17: task 'a': output '../f' is not a path inside its directory",
        ),
        (
            "[[task]]\nname = \"a\"\nbody = \"noop\"\noutputs = { x = \"f{i}\" }\n",
            "w.toml:4:17: task 'a': 'f{i}' contains {i}, but the task has no array",
        ),
        (
            "[[task]]\nname = \"a\"\ncommand = [\"cat\", \"{in:text}\"]\n",
            "w.toml:2:8: task 'a': {in:text} names no input",
        ),
        (
            "[[task]]\nname = \"a\"\nbody = \"noop\"\ncpus = 0\n",
            "w.toml:4:8: task 'a': cpus = 0 is not from 1 to 65536",
        ),
        (
            "[[task]]\nname = \"a\"\nbody = \"noop\"\nmemory = \"much\"\n",
            "w.toml:4:10: task 'a': 'much' is not a size such as 5MB or 4GiB",
        ),
        (
            "[[task]]\nname = \"a\"\ncommand = [\"cat\"]\nstdin = \"gone\"\n",
            "w.toml:4:9: task 'a': file not found: 'gone'",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(refused("w.toml", text).0, expected, "{text}");
    }
}

#[test]
fn a_wrong_need_is_named_with_its_place() {
    for (lines, place) in [
        ("gpus = 0", "3:8"),
        ("priority = 1\nresources = { a = 1, b = 0 }", "4:26"),
        ("labels = [\"a b\"]", "3:10"),
        ("variants = [\"cpus=0\"]", "3:12"),
        ("variants = [\"cpus=1\", \"cpus=1\"]", "3:12"),
        ("gpus = 1\npatience = \"1s\"", "4:12"),
        ("cpus = \"2 dense\"", "3:8"),
        ("time_request = \"0s\"", "3:16"),
        ("resources = { gpus = 1 }\ngpus = 1", "3:22"),
    ] {
        let text = format!("[[task]]\nname = \"a\"\n{lines}\ncommand = [\"true\"]\n");
        let (told, _) = refused("w.toml", &text);
        assert!(told.starts_with(&format!("w.toml:{place}: task 'a': ")), "{lines}: {told}");
    }
    let times = "time_request = \"10s\"\ntime_limit = \"1s\"";
    let text = format!("[[task]]\nname = \"a\"\ncommand = [\"true\"]\n{times}\n");
    let expected = "w.toml:2:8: task 'a': the time request 10s exceeds the time limit 1s";
    assert_eq!(refused("w.toml", &text).0, expected);
}

#[test]
fn a_file_that_cannot_be_examined_is_reported_with_the_reason() {
    let name = "x".repeat(300);
    for (key, column) in [("inputs = { x = ", 16), ("stdin = ", 9)] {
        let end = if key.starts_with("inputs") { " }" } else { "" };
        let text = format!("[[task]]\nname = \"a\"\ncommand = [\"cat\"]\n{key}\"{name}\"{end}\n");
        let expected =
            format!("w.toml:4:{column}: task 'a': cannot read file '{name}': file name too long");
        assert_eq!(refused("w.toml", &text).0, expected);
    }
}

#[test]
fn broken_stg() {
    let table = [
        ("3\n0 0 0\n", "w:2:1: 3 tasks are declared, 1 follow"),
        ("1\n0 0 0\n1 1 1 0\n2 1 1 1\n3 1 1 2\n", "w:5:1: 1 tasks are declared, 4 follow"),
        ("1\n0 0 1\n", "w:2:5: task '0': 1 predecessors are declared, 0 follow"),
        ("2\n0 0\n", "w:2:4: task '0': the number of its predecessors is missing"),
        ("2\n0 1 0\n0 1 0\n", "w:3:1: duplicate task '0'"),
        ("2\n0 1 0\n1 -1 1 0\n", "w:3:3: task '1': a runtime of -1 s cannot be"),
        ("2\n0 1 0\n1 x 1 0\n", "w:3:3: a task's time is a number, not 'x'"),
        ("2\n0 1 0\n1 1 1 7\n", "w:3:7: task '1': unknown task '7' in its predecessors"),
        ("2\n0 1 0\n1 1 1 1\n", "w:3:7: task '1' depends on itself"),
        ("2\n0 1 1 1\n1 1 1 0\n", "w: the tasks form a cycle: 0 -> 1 -> 0"),
        ("2 4\n0 1 0\n1 1 1 0 -1\n", "w:3:9: a size of -125000000 bytes cannot be"),
    ];
    for (text, expected) in table {
        assert_eq!(refused("w", text).0, expected, "{text}");
    }
}

#[test]
fn broken_dot() {
    let table = [
        (
            "graph { a -- b }",
            "w:1:1: expected 'digraph' (a task graph is a digraph, its edges \
            are written ->), found 'graph'",
        ),
        ("digraph { a -- b }", "w:1:13: expected a node, an edge or '}', found '--'"),
        ("digraph {\n a [size=\"x\"]; }", "w:2:10: a size is a number, not 'x'"),
        (
            "digraph {\n a [size=\"-3\"]; }",
            "w:2:10: task 'a': -3 flops at 1000000000 flop/s: a runtime of -0.000000003 s cannot be",
        ),
        ("digraph {\n a -> b", "w:2:8: expected a node, an edge or '}', found the end of the text"),
        ("digraph {\n a -> ; }", "w:2:7: expected a node, an edge or '}', found ';'"),
        ("digraph {\n a -> a; }", "w:2:4: task 'a' depends on itself"),
        ("digraph { a [size=1]; a [size=2]; }", "w:1:31: duplicate task 'a'"),
        ("digraph { a [label=\"x]; }", "w:1:20: the quotation has no end"),
        ("digraph { a -> b -> c -> a }", "w: the tasks form a cycle: a -> b -> c -> a"),
        ("digraph { /* a", "w:1:11: the comment has no end"),
        ("digraph { a } b", "w:1:15: expected the end of the text, found 'b'"),
        ("digraph { }", "w: the workflow has no tasks"),
    ];
    for (text, expected) in table {
        assert_eq!(refused("w", text).0, expected, "{text}");
    }
}

#[test]
fn broken_dax() {
    let adag = |inside: &str| format!("<adag name=\"w\">\n{inside}\n</adag>");
    let uses = |rest: &str| adag(&format!("<job id=\"a\"><uses file=\"f\" {rest}/></job>"));
    let table = [
        ("<workflow/>".to_owned(), "w:1:1: not a workflow: the XML is no adag"),
        ("<!-- no more -->".to_owned(), "w: not a workflow: the XML is no adag"),
        (adag(""), "w: the workflow has no tasks"),
        (
            "<adag>\n<job id=\"a\">".to_owned(),
            "w:2:13: broken XML: the text ends inside an element",
        ),
        (
            adag("<job id=\"a\"></child>"),
            "w:2:13: broken XML: ill-formed document: expected `</job>`, but `</child>` was found",
        ),
        (adag("<job name=\"a\"/>"), "w:2:1: 'job' has no 'id'"),
        (adag("<job id=\"a\"/>\n <job id=\"a\"/>"), "w:3:2: duplicate task 'a'"),
        (adag("<job id=\"a\" runtime=\"-3\"/>"), "w:2:1: task 'a': a runtime of -3 s cannot be"),
        (adag("<job id=\"a\" runtime=\"x\"/>"), "w:2:1: runtime is a number, not 'x'"),
        (uses("link=\"input\" size=\"x\""), "w:2:13: size is a number, not 'x'"),
        (uses("link=\"up\""), "w:2:13: link 'up': it is input, output or inout"),
        (adag("<parent ref=\"a\"/>"), "w:2:1: a 'parent' outside of a 'child'"),
        (
            adag("<job id=\"a\"/><child ref=\"a\">\n<parent ref=\"b\"/></child>"),
            "w:3:1: task 'a': unknown task 'b' in parents",
        ),
        (
            adag("<job id=\"a\"/><child ref=\"b\"><parent ref=\"a\"/></child>"),
            "w:2:14: task 'a': unknown task 'b' in children",
        ),
        (
            adag("<job id=\"a\"/><child ref=\"a\"><parent ref=\"a\"/></child>"),
            "w: task 'a' depends on itself",
        ),
        (
            adag("<dag id=\"a\"/>"),
            "w:2:1: 'dag' is a workflow inside a workflow, which is not read",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(refused("w", &text).0, expected, "{text}");
    }
}

#[test]
fn broken_traces() {
    let job = "1 0 -1 10 1 -1 -1 1 10 -1 1 1 1 1 1 1 -1 -1\n";
    let task = |name: &str, start: &str| format!("{name},1,j,1,Terminated,{start},2,100,1\n");
    let table = [
        ("; nothing\n".to_owned(), "w: the workflow has no tasks"),
        (format!("{job}{job}"), "w:2:1: duplicate task '1'"),
        (format!("{job}2 0 -1\n"), "w:2:7: a job has 18 numbers, not 3"),
        (format!("{job}{}", job.replace("10", "x")), "w:2:8: a run time is a number, not 'x'"),
        (
            format!("{}M2,1,j,1,Terminated,1\n", task("M1", "1")),
            "w:2:22: a task has 9 columns, not 6",
        ),
        (format!("{}{}", task("M1", "1"), task("M1", "1")), "w:2:1: duplicate task 'j/M1'"),
        (task("M1", "x"), "w:1:21: a start time is a number, not 'x'"),
        (task("M1", "9"), "w:1:1: task 'j/M1': a runtime of -7 s cannot be"),
        (
            format!("{}{}", task("M1_2", "1"), task("R2_1", "1")),
            "w: the tasks form a cycle: j/M1_2 -> j/R2_1 -> j/M1_2",
        ),
        (
            "{\"job\": \"j\", \"tasks\": []}\n{\"job\": 3}\n".to_owned(),
            "w:2:9: not a workflow: invalid type: integer `3`, expected a string",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(refused("w", &text).0, expected, "{text}");
    }
}

#[test]
fn broken_estee() {
    let task = |inputs: &str| {
        format!(r#"{{"d": 1, "e_d": 1, "cpus": 1, "outputs": [{{"s": 1}}], "inputs": {inputs}}}"#)
    };
    let table = [
        ("[]".to_owned(), "w: the workflow has no tasks"),
        (r#"[{"d": 1}]"#.to_owned(), "w:1:9: not a workflow: missing field `outputs`"),
        ("[\n{".to_owned(), "w:2:1: broken JSON: the text ends within an object"),
        (format!("[{}", task("[]")), "w:1:67: broken JSON: the text ends within a list"),
        (format!("[{}] 1", task("[]")), "w:1:70: broken JSON: trailing characters"),
        (format!("[{}]", task("[[0, 0]]")), "w:1:74: task 't0': it reads its own output"),
        (format!("[{}]", task("[[3, 0]]")), "w: task 't0': it reads from task 3, the last is 0"),
        (
            format!("[{},{}]", task("[]"), task("[[0, 1]]")),
            "w: task 't1': it reads output 1 of task 0, of 1",
        ),
        (
            format!("[{},{}]", task("[[1, 0]]"), task("[[0, 0]]")),
            "w: the tasks form a cycle: t0 -> t1 -> t0",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(refused("w", &text).0, expected, "{text}");
    }
    let negative = format!("[{}]", task("[]").replace("\"d\": 1", "\"d\": -1"));
    assert_eq!(refused("w", &negative).0, "w:1:69: task 't0': a runtime of -1 s cannot be");
}

#[test]
fn what_is_no_workflow() {
    assert_eq!(refused("w", " \n").0, "w: not a workflow: the file is empty");
    let options = LoadOptions::default();
    let told = |path: &str, format| load(path, format, &options).expect_err(path).to_string();
    assert_eq!(told("no/such.json", None), "no/such.json: cannot read it: no such file");
    assert_eq!(told("/", None), "/: cannot read it: it is a directory");
    assert_eq!(told("sack:tasks=3", None), "unknown generator 'sack'");
    assert_eq!(told("bag:tusks=3", None), "generator 'bag': unknown key 'tusks'");
    let text = told("bag:tasks=3", Some(Format::Toml));
    assert_eq!(text, "bag:tasks=3: cannot read it: no such file");

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("w.gz");
    std::fs::write(&path, b"\x1f\x8bnot gzip").expect("it is written");
    let text = load(&path, None, &options).expect_err("it is broken").to_string();
    assert!(text.contains("cannot read it: broken gzip: "), "{text}");
    std::fs::write(&path, b"\x00\xff\xfe").expect("it is written");
    let text = load(&path, None, &options).expect_err("it is no text").to_string();
    assert!(text.ends_with("w.gz: not a workflow: the file is not text"), "{text}");
}

/// Each error in a file of a known kind shows how it is written there.
#[test]
fn errors_show_the_right_form() {
    let swf = |row: &str| format!("; a log\n{row}\n");
    let table = [
        (
            "w.toml",
            "[[task]]\nname = \"a\"\ncommand = []\n".to_owned(),
            "command = [\"ls\", \"-l\"]",
        ),
        ("w.dot", "digraph { a -- b }".to_owned(), "a -> b [size=1e6]"),
        ("w.dot", "digraph { a [size=soon] }".to_owned(), "a [size=1e9]"),
        ("w.dot", "digraph { a [size=-5] }".to_owned(), "a [size=1e9]"),
        ("w.swf", swf("1 2 3"), "18 numbers"),
        ("w.swf", swf("1 0 0 soon 1 1 1 1 1 1 1 1 1 1 1 1 1 1"), "-1 for a value"),
        ("w.dax", "<adag><job name=\"a\"/></adag>".to_owned(), "<job id=\"a\""),
        ("w.dax", "<adag><job id=\"a\" runtime=\"soon\"/></adag>".to_owned(), "runtime=\"1.5\""),
        (
            "w.json",
            r#"{"schemaVersion": "1.5", "workflow": {"specification": {"tasks": [{}]}}}"#
                .to_owned(),
            "\"parents\": [\"b\"]",
        ),
        (
            "w.json",
            r#"{"schemaVersion": "1.5", "workflow": {"execution": {"tasks":
                [{"id": "a", "runtimeInSeconds": "soon"}]}}}"#
                .to_owned(),
            "\"runtimeInSeconds\": 1.5",
        ),
    ];
    for (name, text, form) in table {
        let (told, hint) = refused(name, &text);
        assert!(hint.contains(form), "{text}: {told}; hint: {hint}");
        assert!(told.starts_with(&format!("{name}:")), "it names its place: {told}");
    }
}

//! Valid workflow files and command lines.

use std::path::Path;

use proto::wire::{self, spec::Body};
use workloads::{CommandOptions, Edge, Graph, LoadOptions, OutputFormat, load, write};

fn read(directory: &Path, text: &str) -> Graph {
    let path = directory.join("w.toml");
    std::fs::write(&path, text).expect("it is written");
    load(&path, None, &LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn command(spec: &wire::Spec) -> &wire::Command {
    match &spec.body {
        Some(Body::Command(command)) => command,
        other => panic!("{other:?} is no command"),
    }
}

const COUNT: &str = r#"
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
outputs = { total = { file = "total", keep = true, replicas = 3 } }
"#;

#[test]
fn the_word_count() {
    let directory = tempfile::tempdir().expect("a directory");
    for i in 1..=40 {
        std::fs::write(directory.path().join(format!("t{i}.txt")), "a b").expect("it is written");
    }
    let graph = read(directory.path(), COUNT);
    assert_eq!((graph.name(), graph.len(), graph.edge_pairs()), ("w", 41, 40));
    assert_eq!(graph.specs().len(), 2, "the elements of an array share their spec");
    assert_eq!((graph.task_name(0), graph.task_name(40)), ("count-1".into(), "sum".into()));
    let edges: Vec<Edge> = graph.parents(40).collect();
    assert_eq!(edges[39], Edge { task: 39, slot: 39, output: 1 });

    let count = &graph.specs()[0];
    let text = &count.externals[0];
    assert_eq!((text.key.as_str(), text.file.as_str()), ("text", "t{i}.txt"));
    assert_eq!(text.path, directory.path().join("t{i}.txt").to_string_lossy());
    assert_eq!(command(count).submit_dir, directory.path().to_string_lossy());
    assert_eq!(graph.task(7).entry, 8);
    let sum = &graph.specs()[1];
    assert_eq!(sum.inputs.len(), 40);
    assert_eq!(
        sum.inputs[2],
        wire::Input { key: "all".into(), file: "n3".into(), ..wire::Input::default() }
    );
    assert!(sum.outputs[0].keep && !count.outputs[0].keep);
    assert_eq!((sum.outputs[0].replicas, count.outputs[0].replicas), (3, 0));

    // Written and read again, the tasks are the same.
    let again = read(directory.path(), &write(&graph, OutputFormat::Toml));
    assert_eq!((again.len(), again.edge_pairs()), (41, 40));
    assert_eq!(again.task(40).spec.outputs, sum.outputs);
    assert_eq!(command(again.task(2).spec).argv[2], "wc -w < {in:text} > {out:n}");
    let dot = write(&graph, OutputFormat::Dot);
    assert!(dot.contains("  \"count-40\" -> \"sum\";\n"), "{dot}");
}

#[test]
fn everything_a_task_can_say() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("in.txt"), "12345").expect("it is written");
    let graph = read(
        directory.path(),
        r#"
name = "all of it"
[[task]]
name = "a"
kind = "first"
command = ["prog", "{in:x}", "{out:y}", "{i}"]
env = { A = "1", B = "{out:y}" }
cwd = "sub"
stdin = "in.txt"
cpus = 4
memory = "4GiB"
retries = 2
time_limit = "90s"
inputs = { x = "./in.txt" }
outputs = { y = { file = "d/y", size = "5MB" } }
[[task]]
name = "b"
body = "spin"
duration = "50ms"
after = ["a"]
[[task]]
name = "c"
duration = "1s"
after = ["a", "b"]
inputs = { y = "d/y", z = { file = "far", size = "1GB" } }
"#,
    );
    assert_eq!(graph.name(), "all of it");
    let a = graph.task(0).spec;
    assert_eq!((a.kind.as_str(), a.cpus, a.memory_bytes, a.retries), ("first", 4, 4 << 30, 2));
    assert_eq!(a.time_limit_ns, 90_000_000_000);
    let at = |file: &str| directory.path().join(file).to_string_lossy().into_owned();
    let run = command(a);
    assert_eq!((run.cwd.clone(), run.stdin.clone()), (at("sub"), at("in.txt")));
    assert_eq!(run.env[1], wire::Env { name: "B".into(), value: "{out:y}".into() });
    assert_eq!((a.externals[0].file.as_str(), a.externals[0].size_bytes), ("in.txt", 5));
    assert_eq!(graph.output_bytes(0, 0), 5_000_000);
    assert!(matches!(graph.task(1).spec.body, Some(Body::Spin(_))));
    assert_eq!(graph.task(1).duration_ns, 50_000_000);
    // The data edge comes first; an order edge beside it is dropped.
    let parents: Vec<Edge> = graph.parents(2).collect();
    let expected = [Edge { task: 0, slot: 0, output: 1 }, Edge { task: 1, slot: 1, output: 0 }];
    assert_eq!(parents, expected);
    let far = &graph.task(2).spec.externals[0];
    assert_eq!((far.path.as_str(), far.size_bytes), ("", 1_000_000_000));
}

#[test]
fn arrays_follow_arrays() {
    let directory = tempfile::tempdir().expect("a directory");
    for i in 3..=4 {
        std::fs::write(directory.path().join(format!("x{i}")), "1").expect("it is written");
    }
    let graph = read(
        directory.path(),
        r#"
[[task]]
name = "make"
array = "1-2"
body = "noop"
outputs = { x = "x{i}" }
[[task]]
name = "each"
array = "1-4"
body = "noop"
inputs = { x = "x{i}" }
[[task]]
name = "pair-{i}"
array = "1,2"
body = "noop"
after = ["make-{i}"]
[[task]]
name = "all"
body = "noop"
after = ["make", "pair-{i}", "each-3"]
"#,
    );
    let parents = |task| graph.parents(task).map(|edge| edge.task).collect::<Vec<_>>();
    // make-1, make-2 are 0, 1; each-1 .. each-4 are 2 .. 5; pair-1, pair-2 are 6, 7; all is 8.
    assert_eq!((parents(2), parents(3)), (vec![0], vec![1]));
    assert_eq!((parents(4), parents(5)), (vec![], vec![]));
    assert_eq!(graph.task(4).spec.externals.len(), 1, "x3 is a file, not an output");
    assert_eq!((parents(6), parents(7)), (vec![0], vec![1]));
    assert_eq!(parents(8), [0, 1, 6, 7, 4]);
    assert_eq!(graph.specs().len(), 5, "each has a spec for outputs and one for files");
}

#[test]
fn an_array_of_a_million_is_cheap() {
    let directory = tempfile::tempdir().expect("a directory");
    let graph = read(
        directory.path(),
        r#"
[[task]]
name = "make-{i}"
array = "1-1000000"
body = "noop"
outputs = { x = "x{i}" }
[[task]]
name = "use-{i}"
array = "1-1000000"
body = "noop"
inputs = { x = "x{i}" }
"#,
    );
    assert_eq!((graph.len(), graph.edge_pairs(), graph.specs().len()), (2_000_000, 1_000_000, 2));
}

#[test]
fn cpus_have_policies_and_memory_units() {
    let directory = tempfile::tempdir().expect("a directory");
    let head = "[[task]]\nname = \"a\"\ncommand = [\"true\"]\n";
    let request = |needs: &str| {
        let graph = read(directory.path(), &format!("{head}{needs}"));
        let spec = graph.task(0).spec;
        (spec.cpus, workloads::Requested::variants_of(spec))
    };
    assert_eq!(request("cpus = \"4 tight!\""), (4, vec!["cpus=4 tight!".to_owned()]));
    assert_eq!(request("cpus = \"2\""), (2, vec![]));
    assert_eq!(request("memory = \"1000B\"").1.len(), 1);
    let file = directory.path().join("small.toml");
    std::fs::write(&file, format!("{head}memory = \"1000\"")).expect("it is written");
    let error = load(&file, None, &LoadOptions::default());
    let error = error.expect_err("bytes without a unit").to_string();
    assert!(error.contains("write 1000MiB"), "{error}");
}

#[test]
fn one_command() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("data.csv"), "1,2").expect("it is written");
    let options = CommandOptions {
        array: Some("1-3".into()),
        inputs: vec!["data.csv".into(), "table=data.csv".into()],
        outputs: vec!["out{i}".into()],
        submit_dir: directory.path().to_path_buf(),
        ..CommandOptions::default()
    };
    let argv: Vec<String> = ["/bin/sort", "{in:table}"].map(String::from).into();
    let graph = Graph::command(argv.clone(), &options).expect("it is right");
    assert_eq!((graph.name(), graph.len(), graph.specs().len()), ("sort", 3, 1));
    assert_eq!(graph.task_name(2), "sort-3");
    let spec = &graph.specs()[0];
    assert_eq!(command(spec).argv, argv);
    assert_eq!((spec.externals[0].key.as_str(), spec.externals[1].key.as_str()), ("1", "table"));
    assert!(spec.outputs[0].keep);

    let refused = |options: CommandOptions| {
        let error = Graph::command(vec!["true".into()], &options).expect_err("it is wrong");
        let hint = error.hint().unwrap_or_default();
        assert!(!hint.contains("workflow"), "there is no workflow file: {hint}");
        error.to_string()
    };
    let submit_dir = directory.path().to_path_buf();
    let text = refused(CommandOptions {
        inputs: vec!["gone".into()],
        submit_dir: submit_dir.clone(),
        ..CommandOptions::default()
    });
    let path = submit_dir.join("gone");
    let path = path.display();
    assert_eq!(text, format!("input file 'gone' cannot be used: {path}: no such file"));
    let text = refused(CommandOptions {
        array: Some("x".into()),
        submit_dir: submit_dir.clone(),
        ..CommandOptions::default()
    });
    assert_eq!(text, "task 'true': 'x' is not an array such as 1-40, 1-40:5 or 1,3,5-9");
    let text = refused(CommandOptions {
        array: Some("1-4".into()),
        values: Some(["a", "b", "c"].map(String::from).into()),
        submit_dir: submit_dir.clone(),
        ..CommandOptions::default()
    });
    assert_eq!(text, "task 'true': the array has 3, and there are 3 entries: 0 to 2");
    let one = CommandOptions {
        array: Some("7".into()),
        stdout: Some("out".into()),
        submit_dir: submit_dir.clone(),
        ..CommandOptions::default()
    };
    assert!(Graph::command(vec!["true".into()], &one).is_ok(), "one task writes to it");
    let text = refused(CommandOptions {
        array: Some("1-2".into()),
        stdout: Some("out".into()),
        submit_dir,
        ..CommandOptions::default()
    });
    assert!(text.contains("all tasks of the array would write to 'out'"), "{text}");
}

#[test]
fn estimates_of_commands_are_no_certainties() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "[[task]]\nname = \"a\"\ncommand = [\"true\"]\nduration_estimate = \"2s\"\n\
                [[task]]\nname = \"b\"\nduration = \"3s\"\nafter = [\"a\"]\n";
    let graph = read(directory.path(), text);
    assert_eq!(graph.task(0).duration_ns, 2_000_000_000, "estimates travel with the task");
    assert_eq!(graph.urgencies(), [5_000_000_000, 3_000_000_000]);
    assert_eq!((graph.work_ns(), graph.critical_path_ns()), (3_000_000_000, 3_000_000_000));
    let again = read(directory.path(), &write(&graph, OutputFormat::Toml));
    assert_eq!(again.task(0).duration_ns, 2_000_000_000);
}

#[test]
fn loads_keep_their_meaning_in_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    for (text, after_loads) in
        [("all-pairs:files=3", true), ("all-pairs:files=3,data-load=clocked", false)]
    {
        let graph = workloads::generate(text).expect(text);
        let again = read(directory.path(), &write(&graph, OutputFormat::Toml));
        assert_eq!(again.clock_starts_after_loads(), after_loads, "{text}");
        assert_eq!((again.len(), again.edges()), (15, 18));
        assert!((0..6).all(|task| again.is_load(task)));
    }
}

#[test]
fn files_of_the_submitter_are_tasks_and_staged_ones_are_marked() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["big", "own", "own1", "own2"] {
        std::fs::write(directory.path().join(name), "12345").expect("a file");
    }
    let text = "[[task]]\nname = \"a-{i}\"\narray = \"1-2\"\ncommand = [\"cat\", \"{in:x}\"]\n\
                inputs = { s = { file = \"big\", stage = true }, \
                x = { file = \"own\", upload = true }, y = { file = \"own{i}\", upload = true } }\n\
                [[task]]\nname = \"b\"\ncommand = [\"true\"]\n\
                inputs = { x = { file = \"own\", upload = true } }\n";
    let check = |graph: &Graph| {
        assert_eq!((graph.len(), graph.edges()), (6, 5));
        let mut uploads: Vec<_> = graph.uploads().map(|(_, path)| path).collect();
        uploads.sort();
        let expected = ["own", "own1", "own2"].map(|name| directory.path().join(name));
        assert_eq!(uploads, expected, "each file once");
        assert!(graph.uploads().all(|(task, _)| graph.output_bytes(task, 0) == 5));
        let spec = graph.task(0).spec;
        assert!(spec.externals.len() == 1 && spec.externals[0].staged, "{spec:?}");
        let inputs: Vec<_> = spec.inputs.iter().map(|input| input.key.as_str()).collect();
        assert_eq!(inputs, ["x", "y"]);
    };
    let graph = read(directory.path(), text);
    check(&graph);
    check(&read(directory.path(), &write(&graph, OutputFormat::Toml)));
    let wrong = text.replace("upload = true }, y", "upload = true, stage = true }, y");
    let path = directory.path().join("wrong.toml");
    std::fs::write(&path, wrong).expect("a file");
    let error =
        load(&path, None, &LoadOptions::default()).expect_err("it cannot be both").to_string();
    assert!(error.contains("one of them"), "{error}");
}

#[test]
fn the_nodes_of_a_task_survive_writing_and_reading() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = |lines: &str| {
        let task = "[[task]]\nname = \"a\"\ncommand = [\"true\"]";
        format!("{task}\n{lines}\n")
    };
    let whole = "cpus=all";
    for (lines, nodes, cpus, variant) in [
        ("nodes = 4", 4, 1, Some(whole)),
        ("nodes = 4\ncpus = 1", 4, 1, None),
        ("nodes = 4\ncpus = 2", 4, 2, None),
        ("nodes = 2\ngpus = 1", 2, 1, Some("cpus=1, gpus=1")),
        ("nodes = 1", 0, 1, None),
    ] {
        let read_once = read(directory.path(), &text(lines));
        let again = read(directory.path(), &write(&read_once, OutputFormat::Toml));
        for graph in [&read_once, &again] {
            let spec = &graph.specs()[0];
            let variants = workloads::Requested::variants_of(spec);
            assert_eq!((spec.nodes, spec.cpus), (nodes, cpus), "{lines}");
            assert_eq!(variants.first().map(String::as_str), variant, "{lines}");
        }
    }
}

#[test]
fn wrong_numbers_of_nodes_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("w.toml");
    for nodes in ["0", "-1", "1025"] {
        let text = format!("[[task]]\nname = \"a\"\ncommand = [\"x\"]\nnodes = {nodes}\n");
        std::fs::write(&path, text).expect("it is written");
        let error = load(&path, None, &LoadOptions::default()).expect_err("it is refused");
        let wanted = format!("nodes = {nodes} is not from 1 to 1024");
        assert!(error.to_string().contains(&wanted), "{error}");
    }
}

#[test]
fn only_a_command_is_pinned_to_its_cpus() {
    let directory = tempfile::tempdir().expect("a directory");
    let graph = read(
        directory.path(),
        "[[task]]\nname = 'a'\ncommand = ['true']\npin = 'omp'\n\
         [[task]]\nname = 'b'\ncommand = ['true']\n",
    );
    let pins: Vec<_> = graph.specs().iter().map(|spec| command(spec).pin()).collect();
    assert_eq!(pins, [wire::CpuPin::Omp, wire::CpuPin::Unpinned]);
    let text = write(&graph, OutputFormat::Toml);
    assert_eq!(text.matches("pin = \"omp\"").count(), 1, "{text}");

    let refused = |body: &str| {
        let path = directory.path().join("refused.toml");
        std::fs::write(&path, format!("[[task]]\nname = 'c'\n{body}\n")).expect("it is written");
        load(&path, None, &LoadOptions::default()).expect_err("it is wrong").to_string()
    };
    let asleep = refused("body = 'sleep'\nduration = '1s'\npin = 'taskset'");
    assert!(asleep.contains("only a command is pinned"), "{asleep}");
    let unknown = refused("command = ['true']\npin = 'numa'");
    assert!(unknown.contains("taskset and omp exist"), "{unknown}");

    let submit_dir = directory.path().to_owned();
    let pin = Some(workloads::CpuPin::Taskset);
    let options = CommandOptions { pin, submit_dir, ..Default::default() };
    let graph = Graph::command(vec!["true".to_owned()], &options).expect("it is right");
    assert_eq!(command(&graph.specs()[0]).pin(), wire::CpuPin::Taskset);
}

#[test]
fn variants_have_commands_of_their_own_and_a_patience() {
    let directory = tempfile::tempdir().expect("a directory");
    let head = "[[task]]\nname = \"a\"\narray = \"08-10\"\ncommand = [\"./gpu\", \"{i}\"]\n";
    let text = format!(
        "{head}gpus = 1\nrank = 7\npatience = \"5s\"\n\
         variants = [\"cpus=3\", {{ needs = \"cpus=8\", command = [\"./cpu\", \"{{i}}\"] }}]\n"
    );
    let graph = read(directory.path(), &text);
    let again = read(directory.path(), &write(&graph, OutputFormat::Toml));
    for (graph, word) in [(&graph, "{i:02}"), (&again, "08")] {
        let spec = graph.task(0).spec;
        let own = &command(spec).variants;
        assert_eq!(own.len(), 1);
        assert_eq!((own[0].variant, &own[0].argv[..]), (2, &["./cpu".into(), word.into()][..]));
        assert_eq!(workloads::Requested::variants_of(spec).len(), 3);
        let patience = workloads::Requested::patience_of(spec).expect("it has variants");
        assert_eq!((patience.as_secs(), spec.rank), (5, 7));
    }
    let refused = |lines: &str| {
        let file = directory.path().join("wrong.toml");
        std::fs::write(&file, lines).expect("it is written");
        let error = load(&file, None, &LoadOptions::default());
        error.expect_err("it is wrong").to_string()
    };
    let own = "variants = [\"cpus=1\", { needs = \"cpus=2\", command = [\"{in:x}\"] }]\n";
    let error = refused(&format!("{head}{own}"));
    assert!(error.contains("names no input"), "{error}");
    let own = own.replace("{in:x}", "");
    assert!(refused(&format!("{head}{own}")).contains("variant is empty"));
    let sleeps = "[[task]]\nname = \"a\"\nduration = \"1s\"\n";
    let own = own.replace("[\"\"]", "[\"x\"]");
    assert!(refused(&format!("{sleeps}{own}")).contains("has a command, and the task has none"));
    assert!(refused(&format!("{head}patience = \"1s\"\n")).contains("only one"));
    let gang = "nodes = 2\npatience = \"1s\"\nvariants = [\"cpus=1\", \"cpus=2\"]\n";
    let error = refused(&format!("{head}{gang}"));
    assert!(error.contains("a task on several nodes has no patience"), "{error}");
    assert!(refused(&format!("{head}variants = [{{ command = [\"x\"] }}]\n")).contains("needs"));
}

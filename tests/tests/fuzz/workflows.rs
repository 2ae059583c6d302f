//! Fuzzing of workflow files of every format.

use workloads::{Format, LoadOptions, OutputFormat, generate, read, write};

use crate::fuzz;

/// A text is refused in one line, or it becomes a graph with valid figures that DOT reproduces.
fn check(format: Option<Format>, text: &[u8]) {
    let options = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
    match read(text, "w", format, &options) {
        Err(error) => {
            let told = error.to_string();
            assert!(!told.contains('\n') && told.starts_with("w:"), "{told:?}");
        }
        Ok(graph) => {
            let info = graph.info();
            let dot = write(&graph, OutputFormat::Dot);
            let again = read(dot.as_bytes(), "w", Some(Format::Dot), &options);
            let again = again.unwrap_or_else(|error| panic!("{error}\n{dot}")).info();
            assert_eq!((again.tasks, again.edges), (info.tasks, info.edges), "{dot}");
        }
    }
}

fn fuzz_format(format: Format, samples: &[&str]) {
    let samples: Vec<Vec<u8>> = samples.iter().map(|sample| sample.as_bytes().to_vec()).collect();
    fuzz(&samples, |_, text| check(Some(format), text));
}

fn generated(format: OutputFormat) -> String {
    let text = "fan-in:tasks=12,degree=3,duration=10ms,output=5MB";
    write(&generate(text).expect("the text is right"), format)
}

#[test]
fn wfformat() {
    let flat = r#"{"name": "w", "schemaVersion": "1.3", "workflow": {"tasks": [
        {"name": "a", "runtime": 1, "parents": [], "children": ["b"], "memory": 3,
         "files": [{"link": "output", "name": "f", "size": 30}]},
        {"name": "b", "runtime": "2.5", "cores": 2, "parents": ["a"],
         "files": [{"link": "input", "name": "f", "size": 30}]}]}}"#;
    fuzz_format(Format::WfFormat, &[&generated(OutputFormat::WfFormat), flat]);
}

#[test]
fn toml() {
    let arrays = "name = \"w\"\n[[task]]\nname = \"a-{i}\"\narray = \"1-4\"\nbody = \"sleep\"\n\
        duration = \"1s\"\noutputs = { x = \"f{i}\" }\n[[task]]\nname = \"b\"\n\
        command = [\"cat\", \"{in:x}\"]\ninputs = { x = [\"f1..4\"] }\ncpus = 2\n";
    fuzz_format(Format::Toml, &[&generated(OutputFormat::Toml), arrays]);
}

#[test]
fn dot() {
    let text = "strict digraph G {\n // c\n node [size=\"1e9\"];\n a [size=\"2e9\"]; {b c} -> \"d\" \
        [size=\"1e6\", label=<<i>x</i>>];\n a -> b -> c /* x */ [size=3]; subgraph s { f -> g } }";
    fuzz_format(Format::Dot, &[&generated(OutputFormat::Dot), text]);
}

#[test]
fn stg() {
    let plain =
        "6\n0 0 0\n1 3 1 0\n2 4 1 0\n3 2 2 1 2\n4 5 1 3\n5 1 1 3\n6 2 2 4 5\n7 0 1 6\n# x\n";
    let costs = "3\n0 1 0\n1 2 1 0 0.5\n2 4 2 1 2 0 0\n";
    fuzz_format(Format::Stg, &[plain, costs]);
}

#[test]
fn dax() {
    let text = r#"<?xml version="1.0"?><adag name="x"><job id="A" name="p" runtime="1.5">
        <uses file="f" link="output" size="4"/></job><job id="B" runtime="2"><uses file="f"
        link="input" size="4"/><profile namespace="pegasus" key="cores">2</profile></job>
        <child ref="B"><parent ref="A"/></child></adag>"#;
    fuzz_format(Format::Dax, &[text]);
}

#[test]
fn estee() {
    let text = r#"[{"d": 1.5, "e_d": 2, "cpus": 2, "outputs": [{"s": 3, "e_s": 4}], "inputs": []},
        {"d": 2, "e_d": null, "cpus": 1, "outputs": [{"s": 0.5, "e_s": 1}], "inputs": [[0, 0]]}]"#;
    fuzz_format(Format::Estee, &[text]);
}

#[test]
fn traces() {
    let swf = "; MaxJobs: 2\n7 100 -1  10  4 -1 2048 -1 60 -1 1 1 1 1 1 1 -1 -1\n\
        8  90 -1  -1 -1 -1   -1  2 30 -1 5 1 1 1 1 1  7  5\n";
    fuzz_format(Format::Swf, &[swf]);
    let objects = "{\"job\": \"j\", \"tasks\": [{\"name\": \"R2_1\", \"start\": 3, \
        \"expected_duration\": 1.5, \"cpu\": 100.0}, {\"name\": \"M1\"}]}\n";
    let columns =
        "M1,4,j_1,1,Terminated,100,110,150.0,0.3\nR2_1,1,j_1,1,Terminated,110,112,9,0.3\n";
    fuzz_format(Format::Alibaba, &[objects, columns]);
}

/// Detects the format of a text by its content.
#[test]
fn whatever_it_is() {
    let samples = [
        generated(OutputFormat::WfFormat),
        generated(OutputFormat::Toml),
        generated(OutputFormat::Dot),
        "2\n0 1 0\n1 2 1 0\n".to_owned(),
        "<adag><job id=\"a\"/></adag>".to_owned(),
        "[{\"d\": 1, \"outputs\": [], \"inputs\": []}]".to_owned(),
        "1 0 -1 10 1 -1 -1 1 10 -1 1 1 1 1 1 1 -1 -1\n".to_owned(),
        "M1,4,j_1,1,Terminated,100,110,150.0,0.3\n".to_owned(),
        "\u{1f}\u{8b}".to_owned(),
    ];
    let samples: Vec<Vec<u8>> = samples.into_iter().map(String::into_bytes).collect();
    fuzz(&samples, |_, text| check(None, text));
}

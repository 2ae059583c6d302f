//! Texts that break their format although their meaning is clear. They are read with one warning
//! for each kind, and refused in strict mode.

use workloads::{Format, Graph, LoadError, LoadOptions, read};

fn read_as(name: &str, bytes: &[u8], is_strict: bool) -> Result<Graph, LoadError> {
    read(bytes, name, None, &LoadOptions { is_strict, ..LoadOptions::default() })
}

const ROW: &str = "1 0 0 10 1 -1 -1 1 20 -1 1 1 1 1 -1 -1 -1 -1";

#[test]
fn clear_texts_are_read_with_a_warning_and_refused_by_the_strict() {
    let swf_header = format!("JobID Submit Wait Run\n{ROW}\n2 5{}\n", &ROW[3..]);
    let utf16: Vec<u8> =
        "\u{feff}digraph { a -> b }".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let csv =
        "M1,1,j_1,1,Terminated,10,20,100,0.5,extra\nR2_1,1,j_1,1,Terminated,20,30,100,0.5,x\n";
    let json = r#"{"workflow": {"tasks": [{"name": "a"}, {"name": "b", "parents": ["a"]}]}}"#;
    let dot = "digraph {\n node [size=\"8,5\"]; a -> b [size=\"1.5,2!\"]\n}";
    let own = format!("{ROW}\n2 5{} 2 -1\n", &ROW[3..ROW.len() - 6]);
    let table: [(&str, &[u8], &str); 6] = [
        (
            "w.swf",
            own.as_bytes(),
            "w.swf:2:1: a job that names itself as the preceding one waits for none",
        ),
        ("w.swf", swf_header.as_bytes(), "w.swf:1:1: a header line without ';' is passed over"),
        ("w.dot", &utf16, "w.dot:1:1: the text is UTF-16, not UTF-8"),
        ("w.csv", csv.as_bytes(), "w.csv:1:37: columns after the 9th are passed over (and 1 more)"),
        (
            "w.json",
            json.as_bytes(),
            "w.json:1:1: the JSON has no schemaVersion; its keys are read as of any version",
        ),
        (
            "w.dot",
            dot.as_bytes(),
            "w.dot:2:13: a size of two numbers is that of a drawing, not of work (and 1 more)",
        ),
    ];
    for (name, bytes, warning) in table {
        let graph = read_as(name, bytes, false).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(graph.len(), 2, "{name}");
        assert_eq!(graph.warnings(), [warning]);
        let error = read_as(name, bytes, true).expect_err(name);
        assert!(warning.starts_with(&error.to_string()), "{error}");
        assert_eq!(error.hint().unwrap(), "without --strict the file is read with a warning");
    }
}

#[test]
fn the_size_of_a_drawing_is_no_oddity() {
    let text = "digraph { graph [size=\"8,5\", margin=0]; size=\"8.0,10.0\"\n subgraph x { graph [size=big]; a } a -> b }";
    let graph = read_as("w.dot", text.as_bytes(), true).expect("it is DOT");
    assert_eq!((graph.len(), graph.warnings().len()), (2, 0));
}

#[test]
fn comments_of_a_log_may_have_any_encoding() {
    let mut bytes = b"; Installation: Universit\xe9\n".to_vec();
    bytes.extend_from_slice(ROW.as_bytes());
    assert_eq!(read_as("w.swf", &bytes, true).expect("it is SWF").len(), 1);
}

#[test]
fn a_text_of_no_known_kind_is_called_that() {
    let wide = format!("{ROW} {{1271,1271}} q_1d 2:ppn=3\n");
    let table = [
        ("d.dag", "JOB A a.sub\nPARENT A CHILD B\n"),
        ("Makefile", "all: out\n\nout: in\n\tcat in > out\n"),
        ("Makefile", "CC = gcc -O2\nall: out\n"),
        ("Snakefile", "SAMPLES = ['a']\nrule all:\n    input: 'x'\n"),
        ("w.yml", "---\npegasus: \"5.0\"\n"),
        ("run.sh", "#!/bin/sh\nset -e\n./a | ./b\n"),
        ("j.swf", "id\tsubmit\twait\n1\t20\t0\n"),
        ("w.swf", &wide),
    ];
    for (name, text) in table {
        let error = read_as(name, text.as_bytes(), false).expect_err(name);
        assert!(error.to_string().contains("not a workflow: "), "{error}");
        assert!(error.hint().unwrap().starts_with("known kinds: wfformat, toml"), "{name}");
    }
    let error = read_as("w.swf", wide.as_bytes(), false).unwrap_err().to_string();
    assert!(error.ends_with("--format swf reads the first 18"), "{error}");
    let options = LoadOptions::default();
    let graph = read(wide.as_bytes(), "w.swf", Some(Format::Swf), &options).expect("told so");
    assert_eq!(graph.warnings(), ["w.swf:1:46: columns after the 18th are passed over"]);
}

#[test]
fn durations_are_known_or_not() {
    let has = |text: &str| read_as("w", text.as_bytes(), false).expect(text).has_durations();
    assert!(!has("digraph { a -> b }"));
    assert!(has("digraph { a [size=1e9]; a -> b }"));
    assert!(!has("[[task]]\nname = \"a\"\ncommand = [\"true\"]\n"));
    assert!(has("[[task]]\nname = \"a\"\nbody = \"noop\"\n"), "a no-op takes no time");
}

#[test]
fn many_edges_are_refused_before_they_are_made() {
    let text = "[[task]]\nname = \"a-{i}\"\narray = \"1-20000\"\nbody = \"noop\"\noutputs = { o = \"n{i}\" }\n\
                [[task]]\nname = \"b-{i}\"\narray = \"1-20000\"\nbody = \"noop\"\ninputs = { a = [\"n1..20000\"] }\n";
    let error = read_as("w.toml", text.as_bytes(), false).unwrap_err().to_string();
    assert!(error.contains("the workflow has more than 268435456 edges"), "{error}");
}

#[test]
fn a_long_text_in_json_is_refused_before_it_is_held() {
    /// `{"name":"xxxx...` without end.
    struct Endless(usize);
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let start = b"{\"name\":\"";
            let count = if self.0 == 0 { start.len() } else { buffer.len() };
            match self.0 {
                0 => buffer[..count].copy_from_slice(start),
                _ => buffer.fill(b'x'),
            }
            self.0 += count;
            assert!(self.0 < 4 << 20, "no more is read than the limit and what is buffered");
            Ok(count)
        }
    }
    let error = read(Endless(0), "w.json", None, &LoadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("a text is longer than 1048576 bytes"), "{error}");
}

/// An execution without its task: a mistyped id loses a recorded time.
#[test]
fn an_execution_of_an_unknown_task_is_named() {
    let text = r#"{"schemaVersion": "1.5", "workflow": {
        "execution": {"tasks": [{"id": "a", "runtimeInSeconds": 1}, {"id": "b1", "runtimeInSeconds": 2},
                                {"id": "b2", "runtimeInSeconds": 2}]},
        "specification": {"tasks": [{"id": "a"}, {"id": "b"}]}}}"#;
    let read = |is_strict: bool| {
        let options = LoadOptions { is_strict, ..LoadOptions::default() };
        read(text.as_bytes(), "w.json", None, &options)
    };
    let graph = read(false).expect("it is read with a warning");
    let expected = "w.json: task 'b1': the specification has no such task; its execution is passed \
                    over (and 1 more)";
    assert_eq!(graph.warnings(), [expected]);
    let refused = read(true).expect_err("--strict").to_string();
    assert!(refused.starts_with("w.json: task 'b1': the specification has no such"), "{refused}");
}

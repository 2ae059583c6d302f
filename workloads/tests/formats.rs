//! The features of each format, in small texts.

use workloads::{Format, Graph, LoadOptions, OutputFormat, read, write};

fn graph(text: &str) -> Graph {
    graph_with(text, &LoadOptions::default())
}

fn graph_with(text: &str, options: &LoadOptions) -> Graph {
    read(text.as_bytes(), "w", None, options).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Tasks as `name:milliseconds`, edges as `parent>child:bytes`, both sorted.
fn shape(graph: &Graph) -> String {
    let mut tasks: Vec<String> = graph
        .tasks()
        .map(|task| format!("{}:{}", graph.task_name(task.index), task.duration_ns / 1_000_000))
        .collect();
    let mut edges: Vec<String> = Vec::new();
    for child in graph.indices() {
        for edge in graph.parents(child) {
            let (from, to) = (graph.task_name(edge.task), graph.task_name(child));
            edges.push(format!("{from}>{to}:{}", graph.edge_bytes(edge.task, edge.output)));
        }
    }
    tasks.sort_unstable();
    edges.sort_unstable();
    tasks.append(&mut edges);
    tasks.join(" ")
}

#[test]
fn dot_in_all_its_forms() {
    let table = [
        (
            "digraph G { a [size=\"1e9\"]; b [size=2e9]; a -> b [size=\"5\"]; }",
            "a:1000 b:2000 a>b:5",
        ),
        // Nodes that only edges mention, chains, no semicolons, names that are numbers.
        ("digraph{0->1->2 10->-1.5[size=\"-1\"]}", "-1.5:0 0:0 10:0 1:0 2:0 0>1:0 10>-1.5:0 1>2:0"),
        // Subgraphs as ends, with a repeated node in one of them.
        ("digraph { {a b a} -> subgraph x { c; d } }", "a:0 b:0 c:0 d:0 a>c:0 a>d:0 b>c:0 b>d:0"),
        // Defaults hold from their position on, and inside subgraphs.
        (
            "digraph { a; node [size=1e6, x=y]; edge [size=7]; { b -> c } a -> b [size=8] }",
            "a:0 b:1 c:1 a>b:8 b>c:7",
        ),
        // Comments, quoting, joined texts, HTML, ports, attributes of the graph.
        (
            "// x\n# y\nDiGraph \"a b\" {\n graph [bgcolor=red]; rankdir = LR\n \
             \"a \\\"q\\\"\" -> \"b\" + \"c\":n:w [label=<<b>x</b>>, size=\"3\" /* y */] }",
            "a \"q\":0 bc:0 a \"q\">bc:3",
        ),
        // Two edges between the same two are two objects; a strict graph has one.
        ("digraph { a -> b [size=1]; a -> b [size=2] }", "a:0 b:0 a>b:1 a>b:2"),
        ("strict digraph { a -> b [size=1]; a -> b [size=2] }", "a:0 b:0 a>b:1"),
    ];
    for (text, expected) in table {
        assert_eq!(shape(&graph(text)), expected, "{text}");
    }
    assert_eq!(graph("digraph \"a b\" { c }").name(), "a b");
    assert_eq!(graph("digraph G { c }").name(), "w");
    let half = LoadOptions { flops_per_s: 2e9, ..LoadOptions::default() };
    assert_eq!(shape(&graph_with("digraph { a [size=1e9] }", &half)), "a:500");
}

#[test]
fn stg_with_and_without_communication() {
    let plain = "  2  4\n 0 0 0 # entry\n\n 1 3 1 0\n 2 4 2 1 0\n# the end\n";
    assert_eq!(shape(&graph(plain)), "0:0 1:3000 2:4000 0>1:0 0>2:0 1>2:0");
    // A unit of cost is a second of a link of 1 Gbit/s; tasks may precede their predecessors.
    let costs = "3\n2 4 2 1 2 0 0\n0 1 0\n1 2 1 0 0.5\n";
    assert_eq!(shape(&graph(costs)), "0:1000 1:2000 2:4000 0>1:62500000 0>2:0 1>2:250000000");
}

#[test]
fn estee_with_what_users_expect() {
    let text = r#"[
        {"d": 2, "e_d": 3, "cpus": 4, "outputs": [{"s": 1, "e_s": 2}, {"s": 0}], "inputs": []},
        {"d": 1.5, "e_d": null, "cpus": 1, "outputs": [{"s": 0.5, "e_s": 1}],
         "inputs": [[0, 0], [0, 1]]}
    ]"#;
    let graph = graph(text);
    assert_eq!(shape(&graph), "t0:2000 t1:1500 t0>t1:0 t0>t1:1048576");
    assert_eq!((graph.cpus(0), graph.edge_pairs()), (1, 1));
    let estimates = [graph.estimated_duration_ns(0), graph.estimated_duration_ns(1)];
    assert_eq!(estimates, [Some(3_000_000_000), None]);
    // An estimate for only one output is ignored.
    assert_eq!(graph.estimated_output_bytes(0, 0), 1 << 20);
    assert_eq!(graph.estimated_output_bytes(1, 0), 1 << 20);
    assert_eq!(graph.output_bytes(1, 0), 1 << 19);
    let recorded = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
    assert_eq!(graph_with(text, &recorded).cpus(0), 4);
}

#[test]
fn dax_with_files_parents_and_profiles() {
    let text = r#"<?xml version="1.0" encoding="UTF-8"?>
        <!-- as Pegasus writes it -->
        <adag xmlns="http://pegasus.isi.edu/schema/DAX" name="two &amp; more">
          <executable name="p"><profile namespace="pegasus" key="runtime">x</profile></executable>
          <job id="A" name="make" runtime="1.5">
            <uses file="in" link="input" size="7"/><uses file="x" link="OUTPUT" size="40"/>
            <uses name="p" link="none"/>
          </job>
          <job id="B" name="use"><argument>-f <filename file="x"/></argument>
            <profile namespace="pegasus" key="runtime"> 2.5 </profile>
            <profile namespace="condor" key="request_cpus">3</profile>
            <profile namespace="pegasus" key="memory">10</profile>
            <uses name="x" link="input"/>
          </job>
          <job id="C"/>
          <child ref="B"><parent ref="A"/><parent ref="C"/></child>
        </adag>"#;
    let recorded = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
    let graph = graph_with(text, &recorded);
    assert_eq!(shape(&graph), "A:1500 B:2500 C:0 A>B:40 C>B:0");
    assert_eq!((graph.name(), graph.info().external_bytes), ("two & more", 7));
    assert_eq!((graph.cpus(1), graph.task(1).spec.memory_bytes), (3, 10_000_000));
    assert_eq!(graph.task(0).spec.kind, "make");
}

#[test]
fn swf_with_arrivals_and_what_is_unknown() {
    let text = "; MaxJobs: 3\n\
        7 100 -1  10  4 -1 2048 -1 60 -1 1 1 1 1 1 1 -1 -1\n\
        8  90 -1  -1 -1 -1   -1  2 30 -1 5 1 1 1 1 1  7  5\n\
        9 150  3 2.5 -1 -1   -1 -1 -1 -1 1 1 1 1 1 1  3 -1\n";
    let recorded = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
    let graph = graph_with(text, &recorded);
    assert_eq!(shape(&graph), "7:10000 8:0 9:2500 7>8:0");
    let releases: Vec<u64> = graph.indices().map(|t| graph.release_ns(t) / 1_000_000_000).collect();
    let cpus: Vec<u32> = graph.indices().map(|task| graph.cpus(task)).collect();
    assert_eq!((releases, cpus), (vec![10, 0, 60], vec![4, 2, 1]));
    assert_eq!(graph.task(0).spec.memory_bytes, 4 * 2048 * 1024);
    let estimates: Vec<_> = graph.indices().map(|task| graph.estimated_duration_ns(task)).collect();
    assert_eq!(estimates, [Some(60_000_000_000), Some(30_000_000_000), None]);
    assert_eq!(graph.notes().len(), 2, "one without a run time, one after a job from before");
}

#[test]
fn alibaba_in_both_forms() {
    let csv = "task_name,instance_num,job_name,task_type,status,start_time,end_time,plan_cpu,plan_mem\n\
        M1,4,j_1,1,Terminated,100,110,150.0,0.3\n\
        R2_1,1,j_1,1,Terminated,110,112,100,0.3\n\
        R3_1_9,1,j_1,1,Waiting,0,0,,\n\
        task_abc=,1,j_2,1,Failed,105,105,50,0.1\n";
    let recorded = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
    let graph = graph_with(csv, &recorded);
    let expected = "j_1/M1:10000 j_1/R2_1:2000 j_1/R3_1_9:0 j_2/task_abc=:0 \
        j_1/M1>j_1/R2_1:0 j_1/M1>j_1/R3_1_9:0";
    assert_eq!(shape(&graph), expected);
    let releases: Vec<u64> = graph.indices().map(|t| graph.release_ns(t) / 1_000_000_000).collect();
    assert_eq!((releases, graph.cpus(0), graph.cpus(3)), (vec![0, 0, 0, 5], 2, 1));
    assert_eq!(graph.notes().len(), 1, "{:?}", graph.notes());
    let object = r#"{"job": "j", "tasks": [{"name": "R2_1", "expected_duration": 1.5,
        "cpu": null, "start": 3}, {"name": "M1"}]}"#
        .replace('\n', " ");
    assert_eq!(shape(&graph_with(&object, &recorded)), "j/M1:0 j/R2_1:1500 j/M1>j/R2_1:0");
    let only = LoadOptions { job: Some("j_2".to_owned()), ..LoadOptions::default() };
    assert_eq!(shape(&graph_with(csv, &only)), "j_2/task_abc=:0");
    let none = LoadOptions { job: Some("j_3".to_owned()), ..LoadOptions::default() };
    let told = read(csv.as_bytes(), "w", None, &none).unwrap_err().to_string();
    assert_eq!(told, "w: not a workflow: the trace has no job 'j_3'");
    let told = read("digraph {}".as_bytes(), "w", None, &only).unwrap_err().to_string();
    assert!(told.contains("no trace of jobs"), "{told}");
}

#[test]
fn what_is_written_reads_the_same() {
    let texts = [
        "digraph { a [size=1e9]; a -> b [size=5]; a -> c [size=6]; b -> d; c -> d [size=7] }",
        "2\n0 1 0\n1 2 1 0 0.5\n2 4 2 1 2 0 0\n",
        r#"[{"d": 2, "cpus": 4, "outputs": [{"s": 1}, {"s": 0}], "inputs": []},
            {"d": 1, "cpus": 1, "outputs": [], "inputs": [[0, 0], [0, 1]]}]"#,
        "1 0 -1 10 1 -1 64 1 10 -1 1 1 1 1 1 1 -1 -1\n2 0 -1 5 1 -1 -1 1 9 -1 1 1 1 1 1 1 1 -1\n",
    ];
    let memory = |graph: &Graph| {
        graph.indices().map(|t| graph.task(t).spec.memory_bytes).collect::<Vec<_>>()
    };
    let recorded = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
    for text in texts {
        let graph = graph_with(text, &recorded);
        for format in [OutputFormat::WfFormat, OutputFormat::Toml] {
            let again = graph_with(&write(&graph, format), &recorded);
            assert_eq!(shape(&again), shape(&graph), "{format:?} of {text}");
            let cpus = |graph: &Graph| graph.indices().map(|t| graph.cpus(t)).collect::<Vec<_>>();
            assert_eq!(cpus(&again), cpus(&graph), "{format:?} of {text}");
            assert_eq!(memory(&again), memory(&graph), "{format:?} of {text}");
        }
    }
    // Names that WfFormat does not allow stay distinct.
    let graph = graph("digraph { \"a b\" -> \"a/b\" [size=3]; \"a b\" -> \"a:b\" [size=4] }");
    let again = graph_with(&write(&graph, OutputFormat::WfFormat), &recorded);
    assert_eq!(shape(&again), "a_b-1:0 a_b-2:0 a_b:0 a_b>a_b-1:3 a_b>a_b-2:4");
}

#[test]
fn compressed_texts_and_byte_order_marks() {
    use std::io::Write as _;
    let text = "\u{feff}digraph { a -> b }";
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).expect("memory takes every write");
    let packed = packed.finish().expect("memory takes every write");
    let graph = read(packed.as_slice(), "w.dot.gz", None, &LoadOptions::default());
    assert_eq!(graph.map(|graph| shape(&graph)).expect("it is a graph"), "a:0 b:0 a>b:0");
}

#[test]
fn a_small_packed_file_of_a_large_toml_text_is_refused_with_the_limit() {
    use std::io::Write as _;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let comment = format!("# {}\n", "x".repeat(1_000)).repeat(1_000);
    packed.write_all(b"[[task]]\nname='a'\n").expect("memory takes every write");
    (0..40).for_each(|_| packed.write_all(comment.as_bytes()).expect("memory takes every write"));
    let packed = packed.finish().expect("memory takes every write");
    assert!(packed.len() < 400_000, "{}", packed.len());
    let error = read(packed.as_slice(), "w.toml.gz", None, &LoadOptions::default()).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("unpacked it is larger than") && told.contains("unpack it"), "{told}");
}

#[test]
fn a_format_can_be_insisted_on() {
    let told = |text: &str, format| {
        read(text.as_bytes(), "w", Some(format), &LoadOptions::default()).unwrap_err().to_string()
    };
    assert!(told("[[task]]", Format::Stg).starts_with("w:1:1: the number of tasks"));
    assert!(told("digraph {}", Format::Toml).starts_with("w:1:9: "));
}

#[test]
fn dot_is_recognised_behind_comments() {
    for comment in
        ["/* made\n   by a tool\n */\n", "/* one */ ", "// x\n/**\n * y\n **/\n", "# z\n"]
    {
        let text = format!("{comment}digraph {{ a -> b }}\n");
        let graph = read(text.as_bytes(), "w", None, &LoadOptions::default());
        assert_eq!(graph.expect(comment).tasks().len(), 2, "{comment}");
    }
}

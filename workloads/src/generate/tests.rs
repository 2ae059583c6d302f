use super::*;

fn pairs(text: &str) -> Vec<(u32, u32)> {
    let graph = generate(text).expect("it generates");
    let edges = |child| graph.parents(child).map(move |edge| (edge.task, child));
    graph.indices().flat_map(edges).collect()
}

#[test]
fn shapes() {
    assert_eq!(pairs("bag:tasks=3"), []);
    assert_eq!(pairs("chain:tasks=4"), [(0, 1), (1, 2), (2, 3)]);
    assert_eq!(pairs("pipeline:tasks=5,length=2"), [(0, 1), (2, 3)]);
    assert_eq!(pairs("fan-out:tasks=6,degree=2"), [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]);
    // The tree of fan-out with i replaced by 5 - i and every edge turned round.
    assert_eq!(pairs("fan-in:tasks=6,degree=2"), [(0, 3), (1, 4), (2, 4), (3, 5), (4, 5)]);
    assert_eq!(pairs("star-out:tasks=3"), [(0, 1), (0, 2)]);
    assert_eq!(pairs("star-in:tasks=3"), [(0, 2), (1, 2)]);
    assert_eq!(pairs("star-in:tasks=1"), []);
}

#[test]
fn a_million_of_each() {
    let shapes = [
        ("bag:tasks=1000000", 0, 1_000_000, 1),
        ("pipeline:tasks=1000000,length=10", 900_000, 100_000, 10),
        ("chain:tasks=1000000", 999_999, 1, 1_000_000),
        ("fan-out:tasks=1000000,degree=10", 999_999, 1, 7),
        ("fan-out:tasks=1000000,degree=999999", 999_999, 1, 2),
        ("fan-in:tasks=1000000,degree=999999", 999_999, 999_999, 2),
        ("star-out:tasks=1000000", 999_999, 1, 2),
        ("star-in:tasks=1000000", 999_999, 999_999, 2),
    ];
    for (text, edges, roots, depth) in shapes {
        let info = generate(text).expect("it generates").info();
        let figures = (info.tasks, info.edges, info.roots, info.depth);
        assert_eq!(figures, (1_000_000, edges, roots, depth), "{text}");
    }
}

#[test]
fn durations_and_sizes() {
    let graph = generate("bag:tasks=2000,duration=uniform(0,100ms),output=5MB,seed=7").unwrap();
    let mean_ns = graph.work_ns() / 2000;
    assert!((48_000_000..52_000_000).contains(&mean_ns), "{mean_ns}");
    assert_eq!(graph.bytes_produced(), 2000 * 5_000_000);
    assert!(matches!(graph.specs()[0].body, Some(wire::spec::Body::Sleep(_))));
    // The same numbers on every machine, for ever.
    let durations: Vec<u64> = graph.tasks().take(2).map(|task| task.duration_ns).collect();
    let again = generate("bag:tasks=2,duration=uniform(0,100ms),seed=7").unwrap();
    assert_eq!(durations, again.tasks().map(|task| task.duration_ns).collect::<Vec<_>>());
    assert_eq!(durations, [71_976_238, 2_504_599]);

    let graph = generate("chain:tasks=3,output=uniform(1,9),body=spin,duration=1s").unwrap();
    assert!(graph.tasks().all(|task| (1..=9).contains(&task.output_sizes[0])));
    assert!(graph.parents(1).all(|edge| edge.output == 1));
    assert!(matches!(graph.specs()[0].body, Some(wire::spec::Body::Spin(_))));
    let noop = generate("bag").unwrap();
    assert!(matches!(noop.specs()[0].body, Some(wire::spec::Body::Noop(_))));
    assert_eq!(noop.len(), 1000);
}

#[test]
fn bad_texts() {
    let table = [
        ("sack:tasks=3", "unknown generator 'sack'"),
        ("bag:task=3", "generator 'bag': unknown key 'task'"),
        ("bag:tasks", "generator 'bag': 'tasks' is not key=value"),
        ("bag:tasks=3,tasks=4", "generator 'bag': 'tasks' is given twice"),
        ("bag:tasks=three", "generator 'bag': tasks=three: expected a whole number"),
        ("bag:tasks=0", "generator 'bag': tasks=0: a number of tasks is from 1 to 134217728"),
        ("fan-in:degree=0", "generator 'fan-in': degree=0: expected a number from 1 to 4294967295"),
        (
            "bag:duration=soon",
            "generator 'bag': duration=soon: 'soon' is not a duration such as 90s, 1h 30m or 50ms",
        ),
        ("bag:body=dance", "generator 'bag': body=dance: known bodies are noop, sleep and spin"),
        (
            "bag:output=uniform(2,1)",
            "generator 'bag': output=uniform(2,1): the lower end is above the upper end",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(generate(text).expect_err(text).to_string(), expected);
    }
    let hint = generate("sack").expect_err("unknown").hint().expect("it lists the known ones");
    assert_eq!(hint, "known generators: bag, pipeline, chain, fan-out, fan-in, star-out, star-in");
    let hint = generate("bag:length=3").expect_err("unknown").hint().expect("a hint");
    assert_eq!(hint, "known keys: tasks, duration, output, seed, body");
}

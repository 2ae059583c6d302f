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
    // The tree of fan-out with i replaced by 5 - i and every edge reversed.
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
    assert!(matches!(graph.specs()[0].body, Some(Body::Sleep(_))));
    // The numbers must be the same on every machine and never change.
    let durations: Vec<u64> = graph.tasks().take(2).map(|task| task.duration_ns).collect();
    let again = generate("bag:tasks=2,duration=uniform(0,100ms),seed=7").unwrap();
    assert_eq!(durations, again.tasks().map(|task| task.duration_ns).collect::<Vec<_>>());
    assert_eq!(durations, [71_976_238, 2_504_599]);

    let graph = generate("chain:tasks=3,output=uniform(1,9),body=spin,duration=1s").unwrap();
    assert!(graph.tasks().all(|task| (1..=9).contains(&task.output_sizes[0])));
    assert!(graph.parents(1).all(|edge| edge.output == 1));
    assert!(matches!(graph.specs()[0].body, Some(Body::Spin(_))));
    let noop = generate("bag").unwrap();
    assert!(matches!(noop.specs()[0].body, Some(Body::Noop(_))));
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
        ("bag:slots=3", "generator 'bag': slots=3: it goes with preset=table3"),
        ("bag:preset=table4", "generator 'bag': preset=table4: the known preset is table3"),
        ("heavy-tail:duration=1s", "generator 'heavy-tail': unknown key 'duration'"),
        (
            "bag:duration=poisson(1s)",
            "generator 'bag': duration=poisson(1s): expected a value, uniform(low,high), \
             gaussian(mean,deviation), gamma(shape,mean) or exponential(mean)",
        ),
        (
            "bag:duration=gamma(0,1s)",
            "generator 'bag': duration=gamma(0,1s): a shape is from 0.001 to 1000000, not 0",
        ),
        (
            "image-stacking:locality=7",
            "generator 'image-stacking': locality=7: known are 1, 1.38, 2, 3, 4, 5, 10, 20, 30; \
             else give tasks and files",
        ),
        ("image-stacking:tasks=7", "generator 'image-stacking': tasks=7: it needs files beside it"),
        (
            "image-stacking:tasks=7,files=8",
            "generator 'image-stacking': files=8: 7 tasks do not read them all",
        ),
        (
            "all-pairs:files=20000",
            "generator 'all-pairs': files=20000: that makes more than 134217728 tasks",
        ),
        ("all-pairs:order=rows,tile=3", "generator 'all-pairs': tile=3: it goes with order=tiles"),
        (
            "all-pairs:data-load=free",
            "generator 'all-pairs': data-load=free: it is clocked or unclocked",
        ),
        ("moldyn:width=3,gather=4", "generator 'moldyn': gather=4: it gathers from 3 tasks only"),
        (
            "bag:output=uniform(2,1)",
            "generator 'bag': output=uniform(2,1): the lower end is above the upper end",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(generate(text).expect_err(text).to_string(), expected);
    }
    let hint = generate("sack").expect_err("unknown").hint().expect("it lists the known ones");
    assert_eq!(
        hint,
        "known generators: bag, pipeline, chain, fan-out, fan-in, star-out, star-in, heavy-tail, \
         image-stacking, all-pairs, moldyn, fmri, uts"
    );
    let hint = generate("bag:length=3").expect_err("unknown").hint().expect("a hint");
    assert_eq!(hint, "known keys: tasks, preset, slots, duration, output, seed, body");
}

#[test]
fn table_3() {
    for shape in ["bag", "pipeline", "fan-out", "fan-in"] {
        let graph = generate(&format!("{shape}:preset=table3,slots=20")).expect("a preset");
        let info = graph.info();
        assert_eq!(info.tasks, 20_000, "{shape}");
        let mean_ms = info.work_ns as f64 / 1e6 / 20_000.0;
        assert!((49.0..51.0).contains(&mean_ms), "{shape}: {mean_ms}");
        let mean_bytes = info.bytes_produced / 20_000;
        assert!((4_900_000..5_100_000).contains(&mean_bytes), "{shape}: {mean_bytes}");
    }
    let graph = generate("fan-in:preset=table3,tasks=50,degree=3,body=noop").expect("overridden");
    assert_eq!((graph.len(), graph.work_ns()), (50, 0));
    assert_eq!(graph.info().fan_in_max, 3);
}

#[test]
fn a_heavy_tail_has_the_published_moments() {
    for text in ["heavy-tail", "heavy-tail:tasks=5000,seed=9", "heavy-tail:tasks=200000"] {
        let graph = generate(text).expect(text);
        let mut seconds: Vec<f64> =
            graph.tasks().map(|task| task.duration_ns as f64 / 1e9).collect();
        assert!(!seconds.is_sorted(), "{text}: tasks are shuffled");
        seconds.sort_by(f64::total_cmp);
        let count = seconds.len() as f64;
        let mean = seconds.iter().sum::<f64>() / count;
        let variance = seconds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / count;
        let median = (seconds[seconds.len() / 2] + seconds[(seconds.len() - 1) / 2]) / 2.0;
        let figures = [(mean, 95.2), (median, 30.0), (variance.sqrt(), 188.08)];
        for (found, published) in figures.into_iter().chain([(seconds[seconds.len() - 1], 1469.62)])
        {
            assert!((found / published - 1.0).abs() < 0.02, "{text}: {found} for {published}");
        }
        assert_eq!(seconds[0], 0.0);
    }
}

#[test]
fn image_stacking() {
    let graph = generate("image-stacking:locality=30").expect("a known locality");
    assert_eq!(graph.len(), 790 + 23_695 + 1);
    assert_eq!(graph.notes().len(), 1, "the counts are assumed, and it says so");
    assert!(graph.clock_starts_after_loads());
    let readers: Vec<u32> = (0..790).map(|file| graph.fan_out(file)).collect();
    assert!(readers.iter().all(|readers| (29..=30).contains(readers)));
    let file_of = |task| graph.parents(task).next().expect("a file").task;
    let first: Vec<u32> = (790..820).map(file_of).collect();
    assert!(!first.is_sorted() && first.iter().any(|file| *file > 400), "files are shuffled");
    assert_eq!(graph.edge_bytes(0, 1), 2_000_000);
    let last = graph.len() as u32 - 1;
    assert_eq!((graph.slots(last), graph.edge_bytes(last - 1, 1)), (23_695, 10_000));
    assert_eq!(graph.work_ns(), 23_695 * 158_000_000);

    let graph = generate("image-stacking:tasks=10,files=5,data-load=clocked,body=noop").unwrap();
    assert!(!graph.clock_starts_after_loads() && graph.has_loads() && graph.notes().is_empty());
    let all: Vec<String> = graph.indices().map(|task| graph.task_name(task)).collect();
    assert_eq!(all.join(" "), "f0 f1 f2 f3 f4 s0 s1 s2 s3 s4 s5 s6 s7 s8 s9 aggregate");
}

#[test]
fn all_pairs() {
    let graph = generate("all-pairs").expect("the paper's");
    assert_eq!((graph.len(), graph.edges()), (251_000, 500_000));
    assert_eq!(graph.work_ns(), 250_000 * 100_000_000);
    assert_eq!(graph.bytes_produced(), 1000 * 12_000_000);
    assert!((0..1000).all(|load| graph.is_load(load) && graph.fan_out(load) == 500));
    let parents = |task| graph.parents(task).map(|edge| graph.task_name(edge.task));
    let found: Vec<String> = parents(1000).chain(parents(1000 + 2500)).collect();
    assert_eq!(found, ["a0", "b0", "a0", "b50"], "the second tile begins after 2,500 pairs");
    assert_eq!(graph.task_name(1000 + 2500), "p50");
}

#[test]
fn stages() {
    let graph = generate("moldyn:molecules=244").expect("the published size");
    let info = graph.info();
    assert_eq!((info.tasks, info.depth), (20_497, 8));
    assert_eq!((info.fan_out_max, info.fan_in_max), (244, 11));
    assert_eq!((info.roots, info.sinks), (1, 244));
    let mut per_level = vec![0; 8];
    graph.levels().iter().for_each(|level| per_level[*level as usize] += 1);
    assert_eq!(per_level, [1, 244, 244, 244, 68 * 244, 11 * 244, 244, 244]);

    let info = generate("fmri:volumes=10").expect("pipelines").info();
    assert_eq!((info.tasks, info.edges, info.depth, info.roots), (120, 110, 12, 10));
    assert_eq!(info.critical_path_ns, 12_000_000_000);
}

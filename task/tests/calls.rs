//! Calls on real nodes. This program is also their worker.

#[path = "../examples/fib.rs"]
#[expect(dead_code, reason = "its main function")]
mod fib;
#[path = "../examples/maximum.rs"]
#[expect(dead_code, reason = "its main function")]
mod maximum;
#[path = "../examples/series.rs"]
#[expect(dead_code, reason = "its main function")]
mod series;
#[path = "../examples/words.rs"]
#[expect(dead_code, reason = "its main function")]
mod words;

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use starling_task::{Cluster, ClusterOptions, Cx, Error, Pending, Result, Want, task};
use starling_tests::{Instance, Sandbox, binary};

/// Not a test of its own: the workers of the nodes.
#[test]
fn serve_calls() {
    if starling_task::is_worker() {
        starling_task::serve();
    }
}

/// Nodes, and a connection to them.
struct Nodes {
    cluster: Cluster,
    instance: Instance,
}

impl Nodes {
    fn start(nodes: u32, slots: u32, options: ClusterOptions) -> Self {
        let instance = Instance::up(nodes, slots);
        let cluster = connect(&instance, options);
        Self { cluster, instance }
    }
}

fn connect(instance: &Instance, options: ClusterOptions) -> Cluster {
    let arguments = ["--exact", "--nocapture", "serve_calls"].map(str::to_owned);
    let dir = Some(instance.directory().to_owned());
    let options = ClusterOptions { dir, worker_arguments: arguments.into(), ..options };
    Cluster::open(options).expect("the nodes accept connections")
}

fn nodes(nodes: u32, slots: u32) -> Nodes {
    Nodes::start(nodes, slots, ClusterOptions::default())
}

#[task]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[task]
fn total(all: Vec<u64>) -> u64 {
    all.iter().sum()
}

#[task]
fn text(length: usize) -> String {
    "ä".repeat(length)
}

#[task]
fn length(text: String) -> usize {
    text.chars().count()
}

#[task]
fn divide(a: f64, b: f64) -> f64 {
    a / b
}

#[task]
fn fails(reason: String) -> Result<u64, String> {
    let _ = writeln!(std::io::stdout(), "it will fail");
    Err(reason)
}

#[task]
fn panics(entries: Vec<u64>) -> u64 {
    entries[7]
}

/// Writes a file, unless it has no name.
#[task]
fn late(time: Duration, file: String) -> std::io::Result<u64> {
    std::thread::sleep(time);
    if !file.is_empty() {
        std::fs::write(file, "late")?;
    }
    Ok(1)
}

#[task]
fn process() -> u32 {
    std::process::id()
}

#[task]
fn exits() {
    std::process::exit(3);
}

/// Runs until it is cancelled.
#[task]
fn waits(cx: &mut Cx) -> Result<bool, Error> {
    while cx.poll() != Want::Cancel {
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(Error::Interrupted)
}

#[task]
fn depth(cx: &mut Cx, left: u64) -> Result<u64> {
    match left {
        0 => Ok(0),
        _ => Ok(cx.then(depth(left - 1))? + 1),
    }
}

/// Catches the failures of its children, and takes the first value of two.
#[task]
fn parent(cx: &mut Cx) -> Result<Vec<String>> {
    let bad = cx.spawn(panics(vec![1]))?;
    let after = cx.spawn(total(vec![bad.clone()]))?;
    let large = cx.spawn(text(100_000))?;
    let long = cx.spawn(length(&large))?;
    let bad = cx.get(&bad).expect_err("it has panicked").to_string();
    let after = cx.get(&after).expect_err("it did not run").to_string();
    let place = cx.wait_any(std::slice::from_ref(&long))?;
    let long = cx.get(&long)?;
    let large = cx.get(&large)?.len();
    Ok(vec![bad, after, format!("{place:?} {long} {large}")])
}

#[test]
fn values_are_arguments_of_further_calls() {
    let nodes = nodes(2, 2);
    let cluster = &nodes.cluster;
    let mut last = cluster.submit(add(1, 2)).unwrap();
    for k in 0..5 {
        last = cluster.submit(add(&last, k)).unwrap();
    }
    assert_eq!(last.get().unwrap(), 13);
    let all: Vec<Pending<u64>> = (0..50).map(|k| cluster.submit(add(k, &last)).unwrap()).collect();
    let first = cluster.wait_any(&all).unwrap().expect("one has ended");
    assert!(all[first].is_ended());
    assert_eq!(cluster.run(total(&all)).unwrap(), (0..50).sum::<u64>() + 50 * 13);
    assert_eq!(cluster.run(total(vec![1, 2])).unwrap(), 3);
    // 200 KB: a file, on whichever node it was made.
    let texts: Vec<_> = (0..4).map(|_| cluster.submit(text(100_000)).unwrap()).collect();
    for text in &texts {
        assert_eq!(cluster.run(length(text)).unwrap(), 100_000);
        assert_eq!(text.get().unwrap().len(), 200_000);
    }
}

#[test]
fn a_failure_is_that_of_its_call_alone() {
    let nodes = nodes(1, 1);
    let cluster = &nodes.cluster;
    let error = |pending: Pending<u64>| pending.get().unwrap_err().to_string();
    let found = error(cluster.submit(panics(vec![1])).unwrap());
    let start = format!("the call of calls::panics failed: panic at {}:", file!());
    assert!(found.starts_with(&start), "{found}");
    assert!(found.ends_with("index out of bounds: the len is 1 but the index is 7"), "{found}");
    let failed = cluster.submit(fails("no luck")).unwrap();
    let after = cluster.submit(add(&failed, 1)).unwrap();
    assert!(matches!(after.get(), Err(Error::Skipped(_))));
    assert_eq!(failed.get().unwrap_err().to_string(), "the call of calls::fails failed: no luck");
    assert!(failed.printed().unwrap().contains("it will fail\n"));
    let exit = cluster.run(exits()).unwrap_err().to_string();
    assert!(exit.contains("code 3"), "{exit}");
    let infinite = cluster.run(divide(1.0, 0.0)).unwrap_err().to_string();
    assert!(infinite.ends_with("its value: JSON has no number inf"), "{infinite}");
    assert_eq!(cluster.run(divide(1.0, 3.0)).unwrap(), 1.0 / 3.0);
}

#[test]
fn arguments_that_cannot_be_sent_are_refused_before() {
    let nodes = nodes(1, 1);
    let cluster = &nodes.cluster;
    let text = cluster.submit(length("x".repeat(20_000))).unwrap_err().to_string();
    assert!(text.starts_with("the arguments of calls::length have 200"), "{text}");
    let text = cluster.submit(divide(f64::NAN, 1.0)).unwrap_err().to_string();
    assert_eq!(text, "the argument a of calls::divide: JSON has no number NaN");
    let other = connect(&nodes.instance, ClusterOptions::default());
    let theirs = other.submit(add(1, 1)).unwrap();
    let text = cluster.submit(add(&theirs, 1)).unwrap_err().to_string();
    assert_eq!(text, "an argument is a call of another cluster or job");
    let wrong = ClusterOptions { variables: vec!["best".to_owned()], ..Default::default() };
    assert!(
        Cluster::open(ClusterOptions { dir: Some(nodes.instance.directory().into()), ..wrong })
            .is_err()
    );
}

#[test]
fn a_call_that_no_node_can_run_is_refused_alone() {
    let nodes = nodes(1, 2);
    let cluster = &nodes.cluster;
    let slow = cluster.submit(late(Duration::from_secs(2), String::new())).unwrap();
    let error = |call| cluster.submit(call).unwrap_err().to_string();
    for _ in 0..2 {
        let text = error(add(1, 2).cpus(64));
        assert!(text.contains("needs 64 cpus and the widest node has 2"), "{text}");
    }
    let text = error(add(&slow, 2).memory(1 << 44));
    assert!(text.contains("memory"), "{text}");
    // Copies are made as far as there are nodes.
    let copied = cluster.submit(add(1, 2).copies(9)).unwrap();
    assert_eq!(copied.get_within(Duration::from_secs(60)).unwrap(), Some(3));
    // What fits runs, also as an argument.
    let wide = cluster.submit(add(&slow, 2).cpus(2)).unwrap();
    let after = cluster.submit(add(&wide, 1)).unwrap();
    let wide_again = cluster.submit(add(&after, 1).cpus(2)).unwrap();
    assert_eq!(wide_again.get_within(Duration::MAX).unwrap(), Some(1 + 2 + 1 + 1));
    assert_eq!(slow.get().unwrap(), 1);
}

#[test]
fn a_wait_for_calls_of_another_cluster_is_an_error() {
    let nodes = nodes(1, 1);
    let other = connect(&nodes.instance, ClusterOptions::default());
    let theirs = other.submit(add(1, 1)).unwrap();
    let waited = nodes.cluster.wait_any(&[theirs]);
    assert!(matches!(waited, Err(Error::Foreign(_))), "{waited:?}");
}

/// Names the file that the client of the next test makes.
const LATE_FILE: &str = "STARLING_TEST_LATE_FILE";

/// The client of the next test.
#[test]
fn submit_and_forget() {
    let Ok(file) = std::env::var(LATE_FILE) else { return };
    let arguments = ["--exact", "--nocapture", "serve_calls"].map(str::to_owned);
    let options = ClusterOptions { worker_arguments: arguments.into(), ..Default::default() };
    let cluster = Cluster::open(options).unwrap();
    drop(cluster.submit(late(Duration::from_secs(3), file)).unwrap());
    cluster.close().unwrap();
}

#[test]
fn calls_of_a_local_cluster_run_to_their_ends() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("late");
    // Without a cluster in the default directory it starts its own.
    let client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "submit_and_forget"])
        .env("XDG_RUNTIME_DIR", sandbox.path("run"))
        .env("STARLING_BINARY", binary())
        .env_remove("STARLING_DIR")
        .env(LATE_FILE, &file)
        .status();
    assert!(client.unwrap().success());
    assert_eq!(std::fs::read_to_string(file).unwrap(), "late");
}

#[test]
fn a_call_that_polls_ends_at_a_cancel_and_at_its_time() {
    let nodes = nodes(1, 1);
    let cluster = &nodes.cluster;
    let worker = cluster.run(process()).unwrap();
    let call = cluster.submit(waits()).unwrap();
    assert!(call.get_within(Duration::from_millis(500)).unwrap().is_none());
    assert!(call.cancel().unwrap());
    assert!(matches!(call.get(), Err(Error::Cancelled(_))));
    let limited = cluster.submit(waits().time_limit(Duration::from_millis(300))).unwrap();
    let text = limited.get().unwrap_err().to_string();
    assert!(text.contains("exceeded its time limit of 0.3 s"), "{text}");
    assert_eq!(cluster.run(process()).unwrap(), worker, "both calls ended by themselves");
}

#[test]
fn calls_of_calls_end_on_one_slot() {
    let nodes = nodes(1, 1);
    let cluster = &nodes.cluster;
    assert_eq!(cluster.run(depth(12)).unwrap(), 12);
    let told = cluster.run(parent()).unwrap();
    assert!(told[0].contains("the index is 7"), "{told:?}");
    assert!(told[1].contains("did not run"), "{told:?}");
    assert_eq!(told[2], "Some(0) 100000 200000");
}

/// Calls that wait on other nodes cannot run what this node has queued, so it ends the newest wait.
#[test]
fn a_wide_recursion_ends_on_two_nodes_of_one_slot() {
    let nodes = nodes(2, 1);
    let mut out = Vec::new();
    fib::run(&nodes.cluster, 9, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "fib(9) = 34\n");
}

#[test]
fn the_examples_find_what_they_should() {
    let nodes = Nodes::start(2, 2, maximum::options());
    let cluster = &nodes.cluster;
    let mut out = Vec::new();
    fib::run(cluster, 6, &mut out).unwrap();
    maximum::run(cluster, 4, &mut out).unwrap();
    let file = |k: usize| nodes.instance.sandbox().path(&format!("words-{k}"));
    let files: Vec<_> = (0..20).map(file).collect();
    for (k, file) in files.iter().enumerate() {
        std::fs::write(file, format!("{} starling, murmur", "Starling ".repeat(k))).unwrap();
    }
    words::run(cluster, files, &mut out).unwrap();
    series::run(cluster, 4, &mut out).unwrap();
    let missing = words::run(cluster, vec!["/no/such/file".into()], &mut out).unwrap_err();
    let out = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "fib(6) = 8", "{out}");
    assert_eq!(lines[1], "the maximum is 8.106 at -0.009 1.581", "{out}");
    assert!(lines[2].ends_with(" climbs from 8000 points"), "{out}");
    assert_eq!(lines[3..5], ["210 starling", "20 murmur"], "{out}");
    assert_eq!(lines[5..], ["pi is 3.141592", "the attempts began at parts [0, 2] of 4"], "{out}");
    // The list of words was not made because the file is not there.
    assert!(missing.to_string().contains("did not run"), "{missing}");
}

/// Sends a word in each attempt; the first attempt fails after it has committed another one.
#[task]
fn tells(cx: &mut Cx, to: String) -> Result<Option<u64>> {
    let known: Option<u64> = cx.committed()?;
    match known {
        None => {
            cx.send(&to, "kept")?;
            cx.commit(&7)?;
            cx.send(&to, "lost")?;
            Err(Error::Text("the first attempt".to_owned()))
        }
        Some(_) => {
            cx.send(&to, "last")?;
            Ok(known)
        }
    }
}

/// A state that is too large, an event for another job, and one for no task.
#[task]
fn commits_badly(cx: &mut Cx) -> Result<Vec<String>> {
    let large = cx.commit(&"x".repeat(70_000)).expect_err("it is too large");
    let foreign = cx.send("999.2.3", "text").expect_err("it is of another job");
    let no_id = cx.send("everyone", "text").expect_err("it is no id");
    Ok([large, foreign, no_id].map(|error| error.to_string()).into())
}

#[test]
fn another_attempt_begins_with_the_committed_state_and_events_arrive_once() {
    // On one node a command goes on where it waited.
    let nodes = nodes(1, 2);
    let (cluster, instance) = (&nodes.cluster, &nodes.instance);
    let out = instance.sandbox().path("events");
    let receives = format!(
        "for i in 1 2; do {program} event recv --raw --timeout 60s; echo; done > {0}.new; \
         {program} event recv --raw --timeout 1s >> {0}.new; mv {0}.new {0}",
        out.display(),
        program = binary().display()
    );
    let job = cluster.job().to_string();
    let words = ["submit", "--job", &job, "--json", "--", "sh", "-c", &receives];
    instance.starling(&words).ok();
    let tasks = instance.json(&["task", "list", &job]);
    let id = tasks["tasks"][0]["id"].as_str().expect("it has an id").to_owned();
    assert_eq!(cluster.run(tells(id).retries(1)).unwrap(), Some(7));
    starling_tests::wait_until("the events are there", || out.exists());
    assert_eq!(std::fs::read_to_string(out).unwrap().trim_end(), "kept\nlast");
    let errors = cluster.run(commits_badly()).unwrap();
    assert!(errors[0].contains("70002 bytes of JSON, of 65536"), "{errors:?}");
    assert!(
        errors[1].contains("the same job") && errors[2].contains("not a task id"),
        "{errors:?}"
    );
}

//! Measures the commands per second of an executor, and of starting them directly.
//!
//! `cargo run --release -p starling-executor --example rate -- [ROUNDS] [COMMANDS] [SLOTS]
//! [PROGRAM ARG..]`

#![expect(clippy::print_stdout, reason = "a measurement says what it found")]

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use executor::{Executor, ExecutorConfig};
use proto::work::Launch;
use proto::{Attempt, NodeId, Span, TaskId, wire};

const BARE_THREADS: usize = 2;

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|verb| verb == executor::spawner::VERB) {
        executor::spawner::main();
    }
    let mut number =
        |default: u64| arguments.next().map_or(default, |n| n.parse().expect("a number"));
    let (rounds, commands, slots) = (number(5), number(2000), number(4));
    let mut argv: Vec<String> = arguments.collect();
    if argv.is_empty() {
        argv.push(String::from("true"));
    }
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let (ours, ours_cpu_us) = measure(commands, || through_executor(&argv, commands, slots));
        let (bare, bare_cpu_us) = measure(commands, || with_nothing_between(&argv, commands));
        ratios.push(ours / bare);
        println!(
            "{ours:7.0}/s {ours_cpu_us:5.0} us   bare {bare:7.0}/s {bare_cpu_us:5.0} us   {:.3}",
            ours / bare
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!("median {:.3}", ratios[ratios.len() / 2]);
}

/// Commands per second, and CPU time per command.
fn measure(commands: u64, run: impl FnOnce() -> f64) -> (f64, f64) {
    let before = cpu_us();
    let seconds = run();
    (commands as f64 / seconds, (cpu_us() - before) / commands as f64)
}

/// CPU time of this process and of all children it has waited for.
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in parentheses");
    let ticks = fields.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 * 1e4
}

fn through_executor(argv: &[String], commands: u64, slots: u64) -> f64 {
    let directory = std::env::temp_dir().join(format!("rate-{}", std::process::id()));
    let (sender, outcomes) = mpsc::channel();
    let config = ExecutorConfig::new(&directory, NodeId(0), slots as u32);
    let executor = Executor::start(config, move |ended| {
        for ended in ended {
            sender.send(ended.outcome).expect("the receiver waits for all");
        }
    })
    .expect("the directory can be made");
    let spec = wire::Spec {
        body: Some(wire::spec::Body::Command(wire::Command {
            argv: argv.to_vec(),
            ..Default::default()
        })),
        ..Default::default()
    };
    let spec = std::sync::Arc::new(spec);
    let launch = |local: u64| {
        executor.launch(Launch {
            task: TaskId::new(1, local as _),
            attempt: Attempt(1),
            slot: 0,
            spec: spec.clone(),
            settings: wire::JobSettings::default().into(),
            entry: local,
            duration: Span::ZERO,
            output_sizes: vec![],
            name: String::new(),
            payload: Default::default(),
            inputs: vec![],
            resume: None,
            granted: None,
            gang: Vec::new(),
        });
    };
    // The spawner starts with the first command.
    launch(commands);
    outcomes.recv().expect("the executor lives");
    let start = Instant::now();
    (0..slots.min(commands)).for_each(&launch);
    let mut next = slots;
    for _ in 0..commands {
        let outcome = outcomes.recv().expect("the executor lives");
        assert!(outcome.is_done(), "{}", outcome.error);
        if next < commands {
            launch(next);
            next += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    drop(executor);
    std::fs::remove_dir_all(directory).expect("no task uses the directory");
    seconds
}

fn with_nothing_between(argv: &[String], commands: u64) -> f64 {
    let left = AtomicU64::new(commands);
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    let start_all = || {
        while take().is_ok() {
            let mut command = Command::new(&argv[0]);
            command.args(&argv[1..]).stdin(Stdio::null());
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            assert!(status.expect("it starts").success(), "{argv:?} failed");
        }
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..BARE_THREADS {
            scope.spawn(start_all);
        }
    });
    start.elapsed().as_secs_f64()
}

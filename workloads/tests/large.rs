//! Measures the reading of a million tasks:
//! `cargo test -p starling-workloads --test large -- --ignored --nocapture FORMAT`.
//! It takes one format at a time, because the peak memory of a process only grows.
//!
//! Every graph has two edges into each task except those of the first level of 1,000.

use std::fs::{self, File};
use std::io::{BufWriter, Result, Write};

use workloads::{LoadOptions, load};

const TASKS: u64 = 1_000_000;
const WIDTH: u64 = 1000;

fn parents(task: u64) -> impl Iterator<Item = u64> {
    let level = task / WIDTH;
    let at = |place: u64| (level.wrapping_sub(1)) * WIDTH + place % WIDTH;
    let both = (level > 0).then(|| [at(task % WIDTH), at(task % WIDTH + 1)]);
    both.into_iter().flatten()
}

/// A number of `/proc/self/status`, in MiB.
fn mib(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("it has the line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

/// CPU time of this process, in hundredths of a second.
fn cpu() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let after = stat.rsplit(')').next().expect("the name is in brackets");
    let fields: Vec<&str> = after.split_whitespace().collect();
    let field = |at: usize| fields[at].parse::<u64>().expect("a number");
    field(11) + field(12)
}

#[expect(clippy::print_stdout, reason = "the figures are the point")]
fn measure(name: &str, write: impl Fn(&mut dyn Write) -> Result<()>) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    let mut file = BufWriter::new(File::create(&path).expect("a file"));
    write(&mut file).and_then(|()| file.flush()).expect("it is written");
    drop(file);
    let bytes = fs::metadata(&path).expect("it is there").len();
    let (rss_before, cpu_before) = (mib("VmHWM:"), cpu());
    let graph = load(&path, None, &LoadOptions::default()).expect("it is a workflow");
    let (cpu_s, peak, after) = ((cpu() - cpu_before) as f64 / 100.0, mib("VmHWM:"), mib("VmRSS:"));
    println!(
        "{name}: {} MB of text, {} tasks, {} edges: {cpu_s:.2} CPU-s, peak {peak} MiB, \
         the graph {} MiB",
        bytes / 1_000_000,
        graph.len(),
        graph.edge_pairs(),
        after.saturating_sub(rss_before),
    );
    assert_eq!(graph.len() as u64, TASKS);
}

#[test]
#[ignore = "a million tasks"]
fn stg() {
    measure("million.stg", |out| {
        writeln!(out, "{TASKS}")?;
        for task in 0..TASKS {
            write!(out, "{task} 3 {}", parents(task).count())?;
            for parent in parents(task) {
                write!(out, " {parent}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    });
}

#[test]
#[ignore = "a million tasks"]
fn dot() {
    measure("million.dot", |out| {
        writeln!(out, "digraph G {{")?;
        for task in 0..TASKS {
            writeln!(out, "  t{task} [size=\"1.5e9\"];")?;
            for parent in parents(task) {
                writeln!(out, "  t{parent} -> t{task} [size=\"1e6\"];")?;
            }
        }
        writeln!(out, "}}")
    });
}

#[test]
#[ignore = "a million tasks"]
fn estee() {
    measure("million.estee.json", |out| {
        for task in 0..TASKS {
            let inputs: Vec<[u64; 2]> = parents(task).map(|parent| [parent, 0]).collect();
            let comma = if task == 0 { '[' } else { ',' };
            write!(
                out,
                "{comma}{{\"d\": 1.5, \"e_d\": 2, \"cpus\": 1, \
                 \"outputs\": [{{\"s\": 1, \"e_s\": 2}}], \"inputs\": {inputs:?}}}"
            )?;
        }
        writeln!(out, "]")
    });
}

#[test]
#[ignore = "a million tasks"]
fn dax() {
    measure("million.xml", |out| {
        writeln!(out, "<adag name=\"x\">")?;
        for task in 0..TASKS {
            writeln!(out, "<job id=\"ID{task}\" name=\"step\" runtime=\"1.5\">")?;
            for parent in parents(task) {
                writeln!(out, "<uses file=\"f{parent}\" link=\"input\" size=\"1000000\"/>")?;
            }
            writeln!(out, "<uses file=\"f{task}\" link=\"output\" size=\"1000000\"/></job>")?;
        }
        for task in WIDTH..TASKS {
            writeln!(out, "<child ref=\"ID{task}\">")?;
            for parent in parents(task) {
                writeln!(out, "<parent ref=\"ID{parent}\"/>")?;
            }
            writeln!(out, "</child>")?;
        }
        writeln!(out, "</adag>")
    });
}

#[test]
#[ignore = "a million tasks"]
fn wfformat() {
    measure("million.json", |out| {
        let list = |numbers: &mut dyn Iterator<Item = u64>, letter: char| {
            let quoted: Vec<String> = numbers.map(|n| format!("\"{letter}{n}\"")).collect();
            quoted.join(", ")
        };
        writeln!(out, "{{\"name\": \"x\", \"schemaVersion\": \"1.5\", \"workflow\": {{")?;
        write!(out, "\"specification\": {{\"tasks\": [")?;
        for task in 0..TASKS {
            let comma = if task == 0 { "" } else { ",\n" };
            let (tasks, files) = (list(&mut parents(task), 't'), list(&mut parents(task), 'f'));
            write!(
                out,
                "{comma}{{\"name\": \"step\", \"id\": \"t{task}\", \"parents\": [{tasks}], \
                 \"children\": [], \"inputFiles\": [{files}], \"outputFiles\": [\"f{task}\"]}}"
            )?;
        }
        write!(out, "], \"files\": [")?;
        for task in 0..TASKS {
            let comma = if task == 0 { "" } else { ",\n" };
            write!(out, "{comma}{{\"id\": \"f{task}\", \"sizeInBytes\": 1000000}}")?;
        }
        write!(out, "]}}, \"execution\": {{\"tasks\": [")?;
        for task in 0..TASKS {
            let comma = if task == 0 { "" } else { ",\n" };
            write!(out, "{comma}{{\"id\": \"t{task}\", \"runtimeInSeconds\": 1.5}}")?;
        }
        writeln!(out, "]}}}}}}")
    });
}

#[test]
#[ignore = "a million tasks"]
fn swf() {
    measure("million.swf", |out| {
        for task in 0..TASKS {
            let number = task + 1;
            writeln!(out, "{number} {task} -1 90 4 -1 -1 4 120 -1 1 1 1 1 1 1 -1 -1")?;
        }
        Ok(())
    });
}

#[test]
#[ignore = "a million tasks"]
fn alibaba() {
    measure("batch_task.csv", |out| {
        for task in 0..TASKS {
            let (job, number) = (task / 10, task % 10 + 1);
            let after = if number > 1 { format!("_{}", number - 1) } else { String::new() };
            let start = 86_400 + job;
            writeln!(out, "M{number}{after},2,j_{job},1,Terminated,{start},{},100,0.3", start + 9)?;
        }
        Ok(())
    });
}

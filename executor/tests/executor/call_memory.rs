//! Memory limits of calls: what counts, and for which call.

use proto::work::{Granted, GrantedPool, Launch};

use crate::common::{Bench, is_alive, wait_until};

const MODULE: &str = r#"
import mmap, os, subprocess, time

def keep(mib):
    global kept
    kept = b"x" * (mib << 20)
    return os.getpid()

def where():
    return os.getpid()

def child(mib):
    eats = "x=$(head -c %d /dev/zero | tr '\\0' x); sleep 60; echo ${#x}" % (mib << 20)
    subprocess.run(["setsid", "-w", "sh", "-c", eats], stdout=subprocess.DEVNULL)

def mapped(path):
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    read = sum(data[::4096])
    time.sleep(1)
    return read

def note():
    from starling._worker import context
    context.note("half of it\nand more")
"#;

const MIB: u64 = 1 << 20;

fn limited(mut launch: Launch, limit_bytes: u64) -> Launch {
    let (name, variable) = ("memory".to_owned(), "MEMORY".to_owned());
    let pool = GrantedPool { name, variable, units: limit_bytes * 10_000, indices: Vec::new() };
    launch.granted = Some(Box::new(Granted { variant: 0, pools: vec![pool] }));
    launch
}

fn bench() -> Bench {
    let bench = Bench::of_functions(|config| config.slots = 1);
    std::fs::write(bench.submit_dir.join("work.py"), MODULE).unwrap();
    bench
}

#[test]
fn memory_of_earlier_calls_is_not_that_of_a_call() {
    let mut bench = bench();
    assert!(bench.run(bench.call(1, "keep", "[300]")).is_done());
    let large = bench.object(1, 0);
    assert!(bench.run(bench.call(2, "where", "[]")).is_done());
    assert_eq!(bench.object(2, 0), large, "a call without a limit goes on there");
    let outcome = bench.run(limited(bench.call(3, "where", "[]"), 150 * MIB));
    assert!(outcome.is_done(), "{outcome:?}");
    assert_ne!(bench.object(3, 0), large);
    wait_until("the large worker ends", || !is_alive(&large));
}

#[test]
fn memory_of_processes_below_a_call_counts() {
    let mut bench = bench();
    let outcome = bench.run(limited(bench.call(1, "child", "[300]"), 150 * MIB));
    assert!(outcome.error.ends_with(" of 150 MiB asked"), "{outcome:?}");
}

#[test]
fn a_mapped_input_is_no_memory_of_the_call() {
    let mut bench = bench();
    let path = bench.submit_dir.join("large");
    std::fs::write(&path, vec![1; 300 << 20]).unwrap();
    let args = format!("[{:?}]", path.to_str().unwrap());
    let outcome = bench.run(limited(bench.call(1, "mapped", &args), 150 * MIB));
    assert!(outcome.is_done(), "{outcome:?}");
    assert_eq!(bench.object(1, 0), (300 * MIB / 4096).to_string());
}

#[test]
fn a_note_is_a_line_of_standard_error() {
    let mut bench = bench();
    assert!(bench.run(bench.call(1, "note", "[]")).is_done());
    assert_eq!(bench.printed(1, true), "half of it\n");
}

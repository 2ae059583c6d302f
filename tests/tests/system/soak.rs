//! A node stays up while other nodes, jobs and keys come and go. It must keep no open file, no
//! thread and no memory of them. Nodes with bounded history must also keep bounded disk space.
//!
//! `STARLING_SOAK_SECONDS=3600` sets the duration.

mod retained;
mod takes;

use std::time::{Duration, Instant};

use proto::limits::FILE_THREADS_MAX;
use starling_tests::Instance;

use self::takes::{Takes, takes};
use crate::cluster::{job, submit};

/// The duration of the test.
fn span() -> Duration {
    let asked = std::env::var("STARLING_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(10))
}

/// The minimum over some rounds, without files that are open only for a moment.
fn least(rounds: &[Takes]) -> Takes {
    let of = |take: fn(&Takes) -> u64| rounds.iter().map(take).min().unwrap_or_default();
    Takes {
        files: of(|it| it.files),
        threads: of(|it| it.threads),
        resident_bytes: of(|it| it.resident_bytes),
    }
}

/// A job with outputs that other tasks read, and keys that are written and removed.
fn work(instance: &Instance, round: u32) {
    let id = submit(instance, &["--file", "fan-in:tasks=111,degree=10,duration=1ms,output=100kB"]);
    for number in 0..5 {
        let key = format!("key-{number}");
        instance.starling(&["kv", "insert", &key, &format!("{round}")]).ok();
        assert_eq!(instance.starling(&["kv", "lookup", &key]).ok().stdout, format!("{round}"));
    }
    instance.starling(&["kv", "remove", "key-0"]).ok();
    instance.starling(&["job", "wait", &id, "--timeout", "110s"]).ok();
    assert_eq!(job(instance, &id)["tasks"]["done"], 111);
}

/// At least three rounds, in three parts.
#[test]
fn a_node_that_stays_does_not_grow() {
    let span = span();
    let mut instance = Instance::up_with_copies(3, 1, 2);
    let pid = instance.pid(0);
    let mut rounds: Vec<Takes> = Vec::new();
    let since = Instant::now();
    while since.elapsed() < span || rounds.len() < 3 {
        let round = rounds.len() as u32;
        work(&instance, round);
        let victim = 1 + round % 2;
        instance.kill(victim);
        work(&instance, round);
        instance.start_missing();
        instance.wait_for_copies();
        rounds.push(takes(pid));
    }
    assert_eq!(instance.pid(0), pid, "it has stayed");
    let third = rounds.len() / 3;
    let (first, last) = (least(&rounds[..third]), least(&rounds[rounds.len() - third..]));
    println!("{} rounds: {first:?}, then {last:?}", rounds.len());
    // A round leaves the record of its jobs and some log: less than a mebibyte in all.
    let grown = (32 << 20) + ((rounds.len() as u64) << 20);
    assert!(last.files <= first.files + 8, "{first:?} {last:?}");
    // Threads for file access stay for some time, up to the largest number needed at once.
    assert!(last.threads <= first.threads + FILE_THREADS_MAX as u64, "{first:?} {last:?}");
    assert!(last.resident_bytes <= first.resident_bytes + grown, "{first:?} {last:?}");
    instance.down();
}

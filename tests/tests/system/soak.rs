//! A node that stays while others come and go, and jobs and keys pass through it, keeps nothing of
//! them: no open file, no thread, no memory. Nodes whose history is bounded keep no more of them on
//! the disk, either.
//!
//! `STARLING_SOAK_SECONDS=3600` soaks for as long.

mod retained;
mod takes;

use std::time::{Duration, Instant};

use proto::limits::FILE_THREADS_MAX;
use starling_tests::Instance;

use self::takes::{Takes, takes};
use crate::cluster::{job, submit};

/// How long to soak.
fn span() -> Duration {
    let asked = std::env::var("STARLING_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(10))
}

/// The least of some rounds: what is open for a moment does not count.
fn least(rounds: &[Takes]) -> Takes {
    let of = |take: fn(&Takes) -> u64| rounds.iter().map(take).min().unwrap_or_default();
    Takes {
        files: of(|it| it.files),
        threads: of(|it| it.threads),
        resident_bytes: of(|it| it.resident_bytes),
    }
}

/// A job whose tasks have outputs that others read, and keys that are written and removed.
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

/// At least three rounds, each a third.
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
    // A round leaves the record of its jobs and some log: less than a mebibyte, all in all.
    let grown = (32 << 20) + ((rounds.len() as u64) << 20);
    assert!(last.files <= first.files + 8, "{first:?} {last:?}");
    // Threads that read and write files stay for a while, as many as were needed at once.
    assert!(last.threads <= first.threads + FILE_THREADS_MAX as u64, "{first:?} {last:?}");
    assert!(last.resident_bytes <= first.resident_bytes + grown, "{first:?} {last:?}");
    instance.down();
}

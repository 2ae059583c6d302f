//! The cost of real bytes: tasks that write and read them, and copies over the loopback.

use std::collections::BTreeMap;

use client::{JobSettings, SubmitOptions};
use sim::ByteTimes;

use super::super::{Round, cluster, transfer};
use super::start;

const TASKS: u64 = 40;
const LENGTH: u64 = 10;
const SLEEP_NS: u64 = 5_000_000;
const SMALL_BYTES: u64 = 16 << 10;
const LARGE_BYTES: u64 = 2 << 20;
/// The number of jobs of each kind in a round, of which the fastest counts.
const JOBS: usize = 3;

const PLAIN: &str = "task_without_bytes";
const WRITE_SMALL: &str = "task_writes_16_kib";
const WRITE_LARGE: &str = "task_writes_2_mib";
const READ_SMALL: &str = "task_reads_and_writes_16_kib";
const READ_LARGE: &str = "task_reads_and_writes_2_mib";
const BRING_ONE: &str = "bring_1_of_1_mib";
const BRING_MANY: &str = "bring_8_of_1_mib";

pub(super) const NOTES: [&str; 3] = [
    "bytes.write_object, write_kib: how much longer a sleep of 5 ms is in its slot when it writes an \
     object, 16 KiB and 2 MiB: pattern, checksum and file; the best of 3 jobs of 40, one at a time",
    "bytes.read_object, read_kib: the same of pipelines of ten that also read what the task before wrote",
    "bytes.loopback: 8 objects of 1 MiB from one node process to another at once, encrypted, file to \
     file; bytes.fetch_object: how much longer one alone takes than its bytes at that rate",
];

/// The time of a task, or of a transfer, in nanoseconds.
pub(super) async fn round() -> anyhow::Result<Round> {
    let bag = |bytes: u64| format!("bag:tasks={TASKS},duration=5ms,output={bytes}");
    let pipes =
        |bytes: u64| format!("pipeline:tasks={TASKS},length={LENGTH},duration=5ms,output={bytes}");
    let cluster = start(1, 1).await?;
    let mut figures: Round = Vec::new();
    for (name, text) in [
        (PLAIN, format!("bag:tasks={TASKS},duration=5ms")),
        (WRITE_SMALL, bag(SMALL_BYTES)),
        (WRITE_LARGE, bag(LARGE_BYTES)),
        (READ_SMALL, pipes(SMALL_BYTES)),
        (READ_LARGE, pipes(LARGE_BYTES)),
    ] {
        let graph = cluster::generate(&text)?;
        let mut least_ns = f64::INFINITY;
        for _ in 0..JOBS {
            let settings = JobSettings { real_data: true, ..JobSettings::default() };
            let options = SubmitOptions { settings, ..SubmitOptions::default() };
            let job = cluster.client().submit(&graph, options).await?.job;
            let end = cluster.client().raw().wait_job(job, |_| {}).await?;
            let work_ns = end.sum.as_ref().map_or(0, |sum| sum.work_ns);
            let over_ns = work_ns.saturating_sub(TASKS * SLEEP_NS);
            least_ns = least_ns.min(over_ns as f64 / TASKS as f64);
        }
        figures.push((name, least_ns));
    }
    let (one, many) = transfer::loopback().await?;
    figures.extend([(BRING_ONE, one), (BRING_MANY, many)]);
    Ok(figures)
}

/// Derives the prices from these times.
pub(super) fn times(least: &BTreeMap<&'static str, f64>) -> ByteTimes {
    let figure = |name: &str| least.get(name).copied().unwrap_or(0.0);
    let kib = (LARGE_BYTES - SMALL_BYTES) as f64 / 1024.0;
    let line = |small_ns: f64, large_ns: f64| {
        let kib_ns = ((large_ns - small_ns) / kib).max(0.0);
        let object_ns = (small_ns - kib_ns * SMALL_BYTES as f64 / 1024.0).max(0.0);
        (object_ns.round(), kib_ns.round())
    };
    let plain = figure(PLAIN);
    let (small, large) = (figure(WRITE_SMALL), figure(WRITE_LARGE));
    let (write_object_ns, write_kib_ns) = line(small - plain, large - plain);
    // All tasks of a pipeline write, and all but the first read.
    let share = (LENGTH - 1) as f64 / LENGTH as f64;
    let read = |both: f64, write: f64| ((both - write) / share).max(0.0);
    let (read_object_ns, read_kib_ns) =
        line(read(figure(READ_SMALL), small), read(figure(READ_LARGE), large));
    let (one, many) = (figure(BRING_ONE), figure(BRING_MANY));
    let of_many = transfer::LOOPBACK_OBJECTS as f64;
    let rate = of_many * transfer::LOOPBACK_BYTES as f64 / many * 1e9;
    ByteTimes {
        write_object_ns,
        write_kib_ns,
        read_object_ns,
        read_kib_ns,
        fetch_object_ns: (one - many / of_many).max(0.0).round(),
        loopback_bytes_per_s: if rate.is_finite() { rate.round() } else { 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_off_two_sizes() {
        let (object, kib) = (20_000.0, 500.0);
        let write = |bytes: u64| object + kib * bytes as f64 / 1024.0;
        let read = |bytes: u64| 10_000.0 + 100.0 * bytes as f64 / 1024.0;
        let plain = 170_000.0;
        let both = |bytes| plain + write(bytes) + 0.9 * read(bytes);
        let least = [
            (PLAIN, plain),
            (WRITE_SMALL, plain + write(SMALL_BYTES)),
            (WRITE_LARGE, plain + write(LARGE_BYTES)),
            (READ_SMALL, both(SMALL_BYTES)),
            (READ_LARGE, both(LARGE_BYTES)),
            (BRING_ONE, 5e6),
            (BRING_MANY, 32e6),
        ];
        let expected = ByteTimes {
            write_object_ns: object,
            write_kib_ns: kib,
            read_object_ns: 10_000.0,
            read_kib_ns: 100.0,
            fetch_object_ns: 1e6,
            loopback_bytes_per_s: 262_144_000.0,
        };
        assert_eq!(times(&least.into()), expected);
    }
}

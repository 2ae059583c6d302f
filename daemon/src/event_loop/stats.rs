//! The resources that this process has used. Several nodes in one process all report the whole
//! process, so a sum must count each process id once.

use std::fs;

use proto::Span;
use proto::Time;
use rustix::time::{ClockId, clock_gettime};

/// The minimum interval of a node's resource measurements; shorter jobs share a measurement.
const MEASURE_INTERVAL: Span = Span::from_millis(100);

/// The last measurement of this process.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    at: Option<Time>,
    cpu_ns: u64,
    peak_rss_bytes: u64,
}

impl Measured {
    /// Processor time and memory. A measurement reads a system file for each thread, so jobs that
    /// begin and end within [`MEASURE_INTERVAL`] share one.
    pub(crate) fn at(&mut self, now: Time) -> (u64, u64) {
        if self.at.is_none_or(|at| at + MEASURE_INTERVAL <= now) {
            *self = Self { at: Some(now), cpu_ns: cpu_ns(), peak_rss_bytes: peak_rss_bytes() };
        }
        (self.cpu_ns, self.peak_rss_bytes)
    }
}

/// Processor time of this process and of its living children (the spawners), in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    let own = clock_gettime(ClockId::ProcessCPUTime);
    let own = own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64;
    own + children().into_iter().map(child_cpu_ns).sum::<u64>()
}

/// The peak memory of this process in bytes; 0 if the system does not report it.
pub(crate) fn peak_rss_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn children() -> Vec<u32> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let pids: Vec<String> = lists.collect();
    pids.iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// The process's own time only, without that of the commands it ran.
fn child_cpu_ns(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain any characters, including spaces and parentheses.
    let Some((_, fields)) = stat.rsplit_once(')') else { return 0 };
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_has_used_something() {
        let before = cpu_ns();
        let mut sum = 0u64;
        for i in 0..3_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        assert!(cpu_ns() > before, "{sum}");
        assert!(peak_rss_bytes() > 1 << 20);
    }

    #[test]
    fn jobs_that_begin_and_end_at_the_same_time_share_a_measurement() {
        let mut measured = Measured::default();
        let first = measured.at(Time(1));
        let busy = (0..3_000_000u64).fold(0, |sum, i| std::hint::black_box(sum ^ i));
        assert_eq!(measured.at(Time(MEASURE_INTERVAL.0)), first, "{busy}");
        assert!(measured.at(Time(1 + MEASURE_INTERVAL.0)).0 > first.0);
    }

    #[test]
    fn a_child_is_found_and_its_time_read() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo ready; read x"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        let ticks = child_cpu_ns(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(ticks > 0);
        assert_eq!(child_cpu_ns(u32::MAX), 0);
    }
}

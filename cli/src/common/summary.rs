//! The summary of a run, for people.

use analysis::RunReport;
use verb::units::{bytes, count, number_of, percent, seconds};

/// The numbers of tasks by their end.
pub(crate) fn tasks(report: &RunReport) -> String {
    let tasks = &report.tasks;
    let mut ended = format!("{} of {} done", count(tasks.done), count(tasks.total));
    for (number, word) in
        [(tasks.failed, "failed"), (tasks.skipped, "skipped"), (tasks.cancelled, "cancelled")]
    {
        if number > 0 {
            ended.push_str(&format!(", {} {word}", count(number)));
        }
    }
    format!("{ended}, {}", number_of(tasks.edges, "edge"))
}

/// A table for scientists.
pub(crate) fn text(report: &RunReport) -> String {
    let tasks = &report.tasks;
    let data = &report.data;
    let steals = &report.steals;
    let moved = format!(
        "{} produced, {} moved between nodes, {} read where they were",
        bytes(data.bytes_produced),
        bytes(data.bytes_moved),
        bytes(data.bytes_read_local),
    );
    let locality = match data.bytes_moved + data.bytes_read_local {
        0 => "no task read another's bytes".to_owned(),
        _ => format!(
            "{} of input bytes were on the node, {} of reads needed no transfer of their own",
            percent(data.locality_hit_rate),
            percent(data.cache_hit_rate),
        ),
    };
    let mut lines = vec![
        ("tasks", self::tasks(report)),
        (
            "cluster",
            format!(
                "{}, {}, {}",
                number_of(u64::from(report.nodes), "node"),
                number_of(u64::from(report.slots), "slot"),
                report.policy
            ),
        ),
        ("makespan", seconds(report.makespan_s)),
        ("throughput", format!("{:.1} tasks/s", report.throughput_per_s)),
        ("efficiency", format!("{} of all slot time was work", percent(report.efficiency))),
        ("utilization", format!("{} of all slot time was busy", percent(report.utilization))),
        ("work", format!("{} of slot time", seconds(report.work_s))),
        ("data", moved),
        ("locality", locality),
        (
            "steals",
            format!(
                "{} of {}, {}",
                count(steals.won),
                number_of(steals.tried, "attempt"),
                number_of(steals.tasks, "task")
            ),
        ),
        ("pushes", count(report.pushes)),
    ];
    // Durations of commands are unknown before they run, so they have no bound.
    if report.bound.lower_s > 0.0 {
        let bound = format!("{}, by critical path and work", seconds(report.bound.lower_s));
        let after_makespan = 3;
        lines.insert(after_makespan, ("bound", bound));
    }
    if tasks.executions > tasks.done + tasks.failed {
        lines.push(("executions", count(tasks.executions)));
    }
    lines.push((
        "cost",
        format!("{} of CPU, {} of memory", seconds(report.cpu_s), bytes(report.peak_rss_bytes)),
    ));
    let row = |(key, value): &(&str, String)| format!("{key:12} {value}\n");
    lines.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_reads_well() {
        let mut report = RunReport { nodes: 4, slots: 8, ..RunReport::default() };
        report.policy = "rlds".to_owned();
        report.tasks.total = 1_000;
        report.tasks.done = 998;
        report.tasks.failed = 2;
        report.makespan_s = 12.5;
        let text = text(&report);
        assert!(text.starts_with("tasks        998 of 1,000 done, 2 failed, 0 edges\n"), "{text}");
        assert!(text.contains("cluster      4 nodes, 8 slots, rlds\n"), "{text}");
        let one = super::text(&RunReport { nodes: 1, slots: 1, ..RunReport::default() });
        assert!(one.contains("cluster      1 node, 1 slot, \n"), "{one}");
        assert!(text.contains("makespan     12.50 s\n"), "{text}");
    }
}

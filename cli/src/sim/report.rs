//! The figures of a run that only a simulator has.

use ::sim::{NetworkModel, Simulation, SimulationOptions};
use analysis::RunReport;
use serde::Serialize;
use verb::units;

/// A slot count is at its height from this share of the maximum on.
const HEIGHT: f64 = 0.9;

#[derive(Serialize)]
pub(super) struct Simulated {
    seed: u64,
    network: &'static str,
    bandwidth_bytes_per_s: f64,
    latency_s: f64,
    /// For a tree.
    racks: Option<u32>,
    oversubscription: Option<f64>,
    /// The origin of the service times: date and machine of the measurement.
    service: String,
    packets: u64,
    packets_per_task: f64,
    steps: u64,
    /// Costs of the simulator itself: CPU time per task, and peak memory per node and per task.
    cpu_us_per_task: f64,
    rss_bytes_per_node: f64,
    rss_bytes_per_task: f64,
    /// The true lower bound over the makespan.
    bound_ratio: f64,
    /// The client's own time for preparing the submission.
    client_busy_s: f64,
    /// Time the nodes' loops were busy: mean over the nodes, the busiest, and the job's home.
    loop_busy_s: f64,
    loop_busy_max_s: f64,
    loop_busy_job_home_s: f64,
    /// The time from the first start until the slots are as busy as they get, and from the end of
    /// that until the end. Precise to a step of `utilization_series`.
    ramp_s: f64,
    tail_s: f64,
    /// Bytes between nodes over the capacity of all cards in one direction.
    card_share: f64,
    faults: Faults,
}

#[derive(Serialize)]
struct Faults {
    kills: u32,
    pauses: u32,
}

impl Simulated {
    pub(super) fn new(
        simulation: &Simulation,
        report: &RunReport,
        options: &SimulationOptions,
    ) -> Self {
        let tasks = simulation.facts.tasks.max(1) as f64;
        let nodes = simulation.loop_busy.len().max(1) as f64;
        let busy = || simulation.loop_busy.iter().map(|busy| busy.as_secs_f64());
        let racks = match options.network {
            NetworkModel::Tree { racks, .. } => Some(racks),
            NetworkModel::Flat { .. } | NetworkModel::MaxMin { .. } => None,
        };
        let (ramp_s, tail_s) = edges(report);
        let carried = options.network.bytes_per_s() * nodes * report.makespan_s;
        Self {
            seed: options.seed,
            network: options.network.name(),
            bandwidth_bytes_per_s: options.network.bytes_per_s(),
            latency_s: options.network.latency().as_secs_f64(),
            racks: racks.map(|racks| racks.racks),
            oversubscription: racks.map(|racks| racks.oversubscription),
            service: options.service.label(),
            packets: simulation.packets,
            packets_per_task: simulation.packets as f64 / tasks,
            steps: simulation.steps,
            cpu_us_per_task: simulation.facts.client_cpu.as_secs_f64() * 1e6 / tasks,
            rss_bytes_per_node: report.peak_rss_bytes as f64 / nodes,
            rss_bytes_per_task: report.peak_rss_bytes as f64 / tasks,
            bound_ratio: share(report.bound.lower_s, report.makespan_s),
            client_busy_s: tasks * options.service.client_task_ns / 1e9,
            loop_busy_s: busy().sum::<f64>() / nodes,
            loop_busy_max_s: busy().fold(0.0, f64::max),
            loop_busy_job_home_s: simulation.loop_busy[simulation.job_home.0 as usize]
                .as_secs_f64(),
            ramp_s,
            tail_s,
            card_share: share(report.data.bytes_moved as f64, carried),
            faults: Faults { kills: simulation.struck.kills, pauses: simulation.struck.pauses },
        }
    }

    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let tree = match (self.racks, self.oversubscription) {
            (Some(racks), Some(over)) => format!(" of {racks} racks, oversubscribed {over} times"),
            _ => String::new(),
        };
        let mut rows = vec![
            (
                "network",
                format!(
                    "{}{tree}, {}/s a node, latency {}",
                    self.network,
                    units::bytes(self.bandwidth_bytes_per_s as u64),
                    units::seconds(self.latency_s)
                ),
            ),
            ("service", self.service.clone()),
            (
                "nodes' loops",
                format!(
                    "{} busy each, {} the busiest, {} the job's home, {} packets",
                    units::seconds(self.loop_busy_s),
                    units::seconds(self.loop_busy_max_s),
                    units::seconds(self.loop_busy_job_home_s),
                    units::count(self.packets)
                ),
            ),
            (
                "slots",
                format!(
                    "at their height {} after the first start, until {} before the end",
                    units::seconds(self.ramp_s),
                    units::seconds(self.tail_s)
                ),
            ),
            (
                "simulator",
                format!(
                    "{:.1} us of CPU a task, {} a node",
                    self.cpu_us_per_task,
                    units::bytes(self.rss_bytes_per_node as u64)
                ),
            ),
        ];
        if self.faults.kills + self.faults.pauses > 0 {
            let Faults { kills, pauses } = self.faults;
            rows.push(("faults", format!("{kills} nodes killed, {pauses} paused")));
        }
        rows
    }
}

/// The time to fill the slots, and the time in which they empty.
fn edges(report: &RunReport) -> (f64, f64) {
    let series = &report.utilization_series;
    let high = series.values.iter().copied().fold(0.0, f64::max) * HEIGHT;
    let is_high = |value: &f64| *value >= high;
    let first = series.values.iter().position(is_high).unwrap_or(0);
    let last = series.values.iter().rposition(is_high).unwrap_or(0);
    let ramp = first as f64 * series.step_s - report.first_start_s;
    let tail = report.makespan_s - (last + 1) as f64 * series.step_s;
    (ramp.max(0.0), tail.max(0.0))
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 && whole.is_finite() { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use analysis::Series;

    use super::*;

    #[test]
    fn slots_fill_and_empty() {
        let series = Series { step_s: 0.5, values: vec![0.0, 0.1, 0.8, 0.75, 0.8, 0.2, 0.0] };
        let report = RunReport {
            utilization_series: series,
            first_start_s: 0.25,
            makespan_s: 3.5,
            ..RunReport::default()
        };
        assert_eq!(edges(&report), (0.75, 1.0));
        assert_eq!(edges(&RunReport::default()), (0.0, 0.0));
    }
}

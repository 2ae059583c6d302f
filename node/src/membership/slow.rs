//! Decides which nodes count as slow. Nodes that have measured it (`replica/slow.rs`) report it to
//! the group's leader, again and again while it holds. After enough reports the leader proposes it.
//!
//! One report is not enough if other nodes can report too: the path between the two nodes may be
//! slow, or the reporting node.

use std::collections::{BTreeMap, BTreeSet};

use kvs::membership::{self, is_fit, is_serving, would_change};

use crate::Mutant;
use proto::marks::{Mark, mark};
use proto::wire::map_command;
use proto::wire::membership_message::Body;
use proto::{NodeId, Time, wire};

use super::Membership;
use crate::membership::limits::{SLOW_REPORT_KEPT, SLOW_REPORTS_KEPT_MAX, SLOW_REPORTS_MIN};

/// The last reports that a node is slow, or that it is not, by reporting node.
pub(super) type Reports = BTreeMap<(u32, bool), BTreeMap<u32, Time>>;

/// The nodes that can report. The primaries that wait for a node's acknowledgements can report that
/// it is slow; the voters can report that it is no longer slow.
fn may_report(map: &wire::ClusterMap, report: &wire::SlowNodeReport) -> BTreeSet<u32> {
    let is_other = |node: &u32| *node != report.node;
    if !report.slow {
        let voters = map.voters.iter().copied().filter(is_other);
        return voters.filter(|&node| is_serving(map, node)).collect();
    }
    let ships = |entry: &&wire::PartitionEntry| {
        let mut backups = entry.replicas[1..].iter().chain(&entry.learners);
        entry.active && backups.any(|&node| node == report.node)
    };
    let primaries = map.partitions.iter().filter(ships).map(|entry| entry.replicas[0]);
    primaries.filter(is_other).filter(|&node| is_fit(map, node)).collect()
}

impl Membership {
    /// Reports the measurements of this node's own replicas.
    pub(crate) fn report_slow(&mut self, now: Time, reports: Vec<wire::SlowNodeReport>) {
        if self.own.mutant == Some(Mutant::SlowNeverReported) {
            return;
        }
        for report in reports {
            if self.group.is_leader() {
                self.on_slow_node_report(now, self.own.node, report);
            } else if let Some(leader) = self.group.leader() {
                self.outgoing.push((leader.0, Body::SlowNodeReport(report)));
            }
        }
    }

    /// Only the leader handles a report; the reporting node repeats it.
    pub(super) fn on_slow_node_report(
        &mut self,
        now: Time,
        from: NodeId,
        report: wire::SlowNodeReport,
    ) {
        let wire::SlowNodeReport { node, incarnation, slow } = report;
        let set = wire::SetSlow { node, incarnation, slow };
        let command = membership::command(map_command::Body::SetSlow(set));
        if !self.group.is_leader() || !would_change(&self.map, &command) {
            return;
        }
        let may_report = may_report(&self.map, &report);
        self.forget_old_words(now);
        let kept: usize = self.slow_reports.values().map(BTreeMap::len).sum();
        if !may_report.contains(&from.0) || kept >= SLOW_REPORTS_KEPT_MAX {
            return;
        }
        let reports = self.slow_reports.entry((node, slow)).or_default();
        reports.insert(from.0, now);
        let told = reports.keys().filter(|reporter| may_report.contains(reporter)).count();
        if told >= SLOW_REPORTS_MIN.min(may_report.len()) {
            mark(if slow { Mark::CalledSlow } else { Mark::CalledWell });
            self.slow_reports.remove(&(node, slow));
            self.group.propose([command]);
        }
    }

    fn forget_old_words(&mut self, now: Time) {
        for reports in self.slow_reports.values_mut() {
            reports.retain(|_, said| now.since(*said) < SLOW_REPORT_KEPT);
        }
        self.slow_reports.retain(|_, reports| !reports.is_empty());
    }
}

//! Who counts as slow. Nodes that have measured it (`replica/slow.rs`) give their word to the
//! group's leader, again and again as long as it holds; enough of them, and the leader proposes it.
//!
//! One word is not enough where others can tell, too: it may be the way between the two that is
//! slow, or whoever says it.

use std::collections::{BTreeMap, BTreeSet};

use kvs::membership::{self, is_fit, is_serving, would_change};
use proto::limits::{SLOW_REPORT_KEPT, SLOW_REPORTS_KEPT_MAX, SLOW_REPORTS_MIN};
use proto::marks::{Mark, mark};
use proto::wire::map_command;
use proto::wire::membership_message::Body;
use proto::{NodeId, Time, wire};
use scheduler::Mutant;

use super::Membership;

/// When who said last that a node is slow, or that it is not.
pub(super) type Reports = BTreeMap<(u32, bool), BTreeMap<u32, Time>>;

/// Those that can tell: that a node is slow, whoever waits for its acknowledgements; that it is so
/// no more, those that vote.
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
    /// What this node's own copies have measured.
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

    /// Who is no leader leaves it: whoever said it says it again.
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

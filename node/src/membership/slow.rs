//! Decides which nodes count as slow. Nodes that have measured it (`replica/slow.rs`) report it to
//! the group's leader, again and again while it holds. After enough reports the leader proposes it.
//!
//! One report is not enough if other nodes can report too: the path between the two nodes may be
//! slow, or the reporting node.

use std::collections::{BTreeMap, BTreeSet};

use kvs::membership::{self, is_fit, is_serving, would_change};
use proto::limits::{SLOW_WORD_KEPT, SLOW_WORDS, SLOW_WORDS_KEPT_MAX};
use proto::marks::{Mark, mark};
use proto::wire::map_command;
use proto::wire::membership_message::Body;
use proto::{NodeId, Time, wire};
use scheduler::Mutant;

use super::Membership;

/// The last reports that a node is slow, or that it is not, by reporting node.
pub(super) type Words = BTreeMap<(u32, bool), BTreeMap<u32, Time>>;

/// The nodes that can report. The primaries that wait for a node's acknowledgements can report that
/// it is slow; the voters can report that it is no longer slow.
fn tellers(map: &wire::ClusterMap, word: &wire::SlowWord) -> BTreeSet<u32> {
    let is_other = |node: &u32| *node != word.node;
    if !word.slow {
        let voters = map.voters.iter().copied().filter(is_other);
        return voters.filter(|&node| is_serving(map, node)).collect();
    }
    let ships = |entry: &&wire::PartitionEntry| {
        let mut backups = entry.replicas[1..].iter().chain(&entry.learners);
        entry.active && backups.any(|&node| node == word.node)
    };
    let primaries = map.partitions.iter().filter(ships).map(|entry| entry.replicas[0]);
    primaries.filter(is_other).filter(|&node| is_fit(map, node)).collect()
}

impl Membership {
    /// Reports the measurements of this node's own replicas.
    pub(crate) fn say_slow(&mut self, now: Time, words: Vec<wire::SlowWord>) {
        if self.own.mutant == Some(Mutant::SlowNeverTold) {
            return;
        }
        for word in words {
            if self.group.is_leader() {
                self.on_slow_word(now, self.own.node, word);
            } else if let Some(leader) = self.group.leader() {
                self.said.push((leader.0, Body::SlowWord(word)));
            }
        }
    }

    /// Only the leader handles a report; the reporting node repeats it.
    pub(super) fn on_slow_word(&mut self, now: Time, from: NodeId, word: wire::SlowWord) {
        let wire::SlowWord { node, incarnation, slow } = word;
        let set = wire::SetSlow { node, incarnation, slow };
        let command = membership::command(map_command::Body::SetSlow(set));
        if !self.group.is_leader() || !would_change(&self.map, &command) {
            return;
        }
        let tellers = tellers(&self.map, &word);
        self.forget_old_words(now);
        let kept: usize = self.words.values().map(BTreeMap::len).sum();
        if !tellers.contains(&from.0) || kept >= SLOW_WORDS_KEPT_MAX {
            return;
        }
        let words = self.words.entry((node, slow)).or_default();
        words.insert(from.0, now);
        let told = words.keys().filter(|teller| tellers.contains(teller)).count();
        if told >= SLOW_WORDS.min(tellers.len()) {
            mark(if slow { Mark::CalledSlow } else { Mark::CalledWell });
            self.words.remove(&(node, slow));
            self.group.propose([command]);
        }
    }

    fn forget_old_words(&mut self, now: Time) {
        for words in self.words.values_mut() {
            words.retain(|_, said| now.since(*said) < SLOW_WORD_KEPT);
        }
        self.words.retain(|_, words| !words.is_empty());
    }
}

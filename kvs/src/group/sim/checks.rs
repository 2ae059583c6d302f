//! The Raft invariants, checked after every step of every voter.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use super::super::{Group, News};

#[derive(Debug, Default)]
pub(in super::super) struct Checks {
    /// The first violation.
    pub(in super::super) broken: Option<String>,
    /// The situations that the run covered. A run without them would prove nothing.
    pub(in super::super) seen: BTreeSet<&'static str>,
    /// By term.
    leaders: BTreeMap<u64, u32>,
    /// By index: the term and content of the committed entry.
    agreed: BTreeMap<u64, (u64, Vec<u8>)>,
    /// By index: the term in which the commit was first seen. Later leaders must have the entry.
    agreed_in: BTreeMap<u64, u64>,
    /// By index: the map after the entry.
    maps: BTreeMap<u64, Vec<u8>>,
    /// By node, in its present incarnation.
    commits: BTreeMap<u32, u64>,
    terms: BTreeMap<u32, u64>,
}

impl Checks {
    pub(in super::super) fn fail(&mut self, text: String) {
        self.broken.get_or_insert(text);
    }

    pub(super) fn observe_start(&mut self, group: &Group) {
        self.commits.remove(&group.me);
        self.terms.remove(&group.me);
        self.seen.insert(if group.commit > 0 { "start from a snapshot" } else { "start" });
    }

    pub(super) fn observe(&mut self, group: &Group, news: &News) {
        let me = group.me;
        let term = self.terms.insert(me, group.term).unwrap_or(0);
        if group.term < term {
            self.fail(format!("n{me} goes back from term {term} to {}", group.term));
        }
        match news {
            News::Whole => self.seen.insert("snapshot taken over"),
            News::Commands(_) => self.seen.insert("agreed"),
            News::None => false,
        };
        let before =
            self.commits.insert(me, group.commit).unwrap_or_else(|| group.log.snapshot_index());
        for index in before + 1..=group.commit {
            self.observe_agreed(group, index);
        }
        if group.commit > before {
            self.observe_map(group);
        }
        if group.is_leader() {
            self.observe_leader(group);
        }
    }

    /// State machine safety: the entry at a committed index never changes.
    fn observe_agreed(&mut self, group: &Group, index: u64) {
        let Some(entry) = group.log.entry(index) else { return };
        let content = (entry.term, entry.encode_to_vec());
        self.agreed_in.entry(index).or_insert(group.term);
        let known = self.agreed.entry(index).or_insert_with(|| content.clone());
        if *known != content {
            let (was, is) = (known.0, content.0);
            self.fail(format!("entry {index} is of term {was}, n{} has term {is}", group.me));
        }
    }

    fn observe_map(&mut self, group: &Group) {
        let map = group.map.encode_to_vec();
        if *self.maps.entry(group.commit).or_insert_with(|| map.clone()) != map {
            self.fail(format!("n{} has another map after entry {}", group.me, group.commit));
        }
    }

    /// Election safety: one leader per term. Leader completeness: a leader has all committed
    /// entries.
    fn observe_leader(&mut self, group: &Group) {
        let me = group.me;
        let known = *self.leaders.entry(group.term).or_insert_with(|| {
            self.seen.insert(if group.term > 1 { "elected again" } else { "elected" });
            me
        });
        if known != me {
            self.fail(format!("term {} has the leaders n{known} and n{me}", group.term));
        }
        if group.log.voters() != [0, 1, 2] {
            self.seen.insert("other voters");
        }
        let missing = self.agreed.iter().rev().take(64).find(|&(&index, agreed)| {
            let is_earlier = self.agreed_in[&index] < group.term;
            let is_kept =
                index <= group.log.snapshot_index() || group.log.term(index) == Some(agreed.0);
            is_earlier && !is_kept
        });
        if let Some((index, _)) = missing {
            self.fail(format!("n{me} leads term {} without entry {index}", group.term));
        }
    }
}

//! A founder with the only vote cannot distinguish its first start from the loss of its disk. After
//! a loss it would lead itself, and agree with itself on changes that contradict the earlier ones.
//! So it asks first. It does not stand for election before a message of each other founder has
//! arrived, or `BOOTSTRAP_TIMEOUT` is over. A node with a later map shows that this is no first
//! start.

use std::collections::BTreeSet;

use kvs::group::Group;
use kvs::membership::is_serving;
use proto::{Span, Time};

use super::Membership;

/// A founding node that is the only voter and has an empty disk waits this long for messages of
/// other nodes.
const BOOTSTRAP_TIMEOUT: Span = Span::from_secs(5);

#[derive(Debug)]
pub(super) struct Founding {
    unheard: BTreeSet<u32>,
    pub(super) until: Time,
}

impl Founding {
    /// `None` if other nodes have votes, if there are no other nodes, or if this is no first start.
    pub(super) fn of(group: &Group, me: u32, now: Time) -> Option<Self> {
        let map = group.map();
        let is_other = |node: &u32| *node != me && is_serving(map, *node);
        let others = map.members.iter().map(|member| member.node).filter(is_other);
        let unheard: BTreeSet<u32> = others.collect();
        let alone = map.voters == [me] && group.has_no_past() && !unheard.is_empty();
        alone.then(|| Self { unheard, until: now + BOOTSTRAP_TIMEOUT })
    }
}

impl Membership {
    pub(super) fn hear_as_founder(&mut self, from: u32, map_epoch: u64) {
        let Some(founding) = &mut self.founding else { return };
        founding.unheard.remove(&from);
        if map_epoch > self.map.epoch {
            self.group.forgot();
            self.founding = None;
        } else if founding.unheard.is_empty() {
            self.founding = None;
        }
    }

    pub(super) fn may_lead(&mut self, now: Time) -> bool {
        self.founding.take_if(|founding| now >= founding.until);
        self.founding.is_none()
    }
}

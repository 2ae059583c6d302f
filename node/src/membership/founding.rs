//! A founder that alone has a vote cannot tell a first start from the loss of its disk: it would
//! lead itself, and agree with itself on what others have long agreed on otherwise. So it asks
//! first: it does not stand before each other founder has been heard, or some time is over. Whoever
//! has a later map shows that this is no first start.

use std::collections::BTreeSet;

use kvs::group::Group;
use kvs::membership::is_serving;
use proto::Time;
use proto::limits::BOOTSTRAP_TIMEOUT;

use super::Membership;

#[derive(Debug)]
pub(super) struct Founding {
    unheard: BTreeSet<u32>,
    pub(super) until: Time,
}

impl Founding {
    /// `None` where others have votes, or there are no others, or it is no first start.
    pub(super) fn of(group: &Group, me: u32, now: Time) -> Option<Self> {
        let map = group.map();
        let is_other = |node: &u32| *node != me && is_serving(map, *node);
        let others = map.members.iter().map(|member| member.node).filter(is_other);
        let unheard: BTreeSet<u32> = others.collect();
        let alone = map.voters == [me] && group.begins_anew() && !unheard.is_empty();
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

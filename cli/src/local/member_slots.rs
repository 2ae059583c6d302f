//! The slots with which `up` starts an existing node of an instance.

/// The arguments of an `up`, and of the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberSlots {
    /// The slots by flags and settings.
    pub(crate) asked: u32,
    /// True if a flag gave the slots.
    pub(crate) is_flag: bool,
    /// True if new nodes join; the flag then applies to them.
    pub(crate) joins: bool,
    /// The slots of the last `up`, if known.
    pub(crate) last: Option<u32>,
    /// The default slots.
    pub(crate) default: u32,
}

impl MemberSlots {
    /// A keeper stays one, unless a flag gives it slots and no new node joins. A working node never
    /// becomes a keeper. `has_state`: a node without state has lost its role.
    pub(crate) fn of(&self, is_keeper: bool, has_state: bool) -> u32 {
        let is_turned = self.is_flag && self.asked > 0 && !self.joins;
        match (is_keeper, self.last.unwrap_or(self.default)) {
            (true, _) => {
                if is_turned {
                    self.asked
                } else {
                    0
                }
            }
            (false, _) if self.asked > 0 => self.asked,
            (false, 0) if has_state => self.default,
            (false, last) => last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_stay_workers_and_keepers_keepers() {
        let told =
            |asked, is_flag, joins, last| MemberSlots { asked, is_flag, joins, last, default: 2 };
        // 'up --slots 0' applies to new nodes.
        assert_eq!(told(0, true, false, Some(3)).of(false, true), 3);
        assert_eq!(told(0, true, true, Some(3)).of(false, true), 3);
        assert_eq!(told(0, true, true, None).of(false, true), 2);
        assert_eq!(told(0, true, true, Some(3)).of(true, true), 0);
        // All were keepers except one that joined by 'starling node'.
        assert_eq!(told(0, false, false, Some(0)).of(false, true), 2);
        assert_eq!(told(0, false, false, Some(0)).of(false, false), 0);
        // 'up --slots 4' gives a keeper slots, unless it applies to new nodes.
        assert_eq!(told(4, true, false, Some(3)).of(true, true), 4);
        assert_eq!(told(4, true, true, Some(3)).of(true, true), 0);
        assert_eq!(told(4, false, false, Some(4)).of(true, true), 0);
        assert_eq!(told(4, true, true, Some(3)).of(false, true), 4);
    }
}

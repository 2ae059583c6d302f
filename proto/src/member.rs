//! Members of the map.

use crate::wire;

impl wire::Member {
    /// Whether the map lists the node as failed, or as having left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.phase(), wire::MemberPhase::Down | wire::MemberPhase::Removed)
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::{Member, MemberPhase};

    #[test]
    fn only_failed_and_removed_nodes_are_gone() {
        let all = (0..).map_while(|phase| MemberPhase::try_from(phase).ok());
        let gone: Vec<MemberPhase> = all
            .filter(|&phase| Member { phase: phase as i32, ..Member::default() }.is_gone())
            .collect();
        assert_eq!(gone, [MemberPhase::Down, MemberPhase::Removed]);
    }
}

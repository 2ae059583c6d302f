//! Copies that the home of an object does not know. A home has its list of copies in memory only,
//! so the next home of a partition begins with none. A task that has committed turns never runs
//! again: its outputs are lost only if no node has them. So its home asks the other nodes first.

use proto::{NodeId, wire};

use crate::objects::data::{object_id, wire_object};
use crate::objects::directory::Where;
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// The maximum number of nodes that are asked for one object, in the order in which its maker asked
/// them to take it.
const HOLDERS_ASKED_MAX: usize = 64;

impl Scheduler {
    /// No source of the object is known. The asker waits if it can be made by no further attempt,
    /// and nodes are asked whether they have it.
    pub(crate) fn ask_for_holders(
        &mut self,
        asker: NodeId,
        asked: wire::Object,
        out: &mut Out,
    ) -> Where {
        let (object, me) = (object_id(&asked), self.options.me);
        let forgets = self.options.mutant == Some(Mutant::CopiesNotAskedFor);
        if !self.home.ledger.has_turned(object.task) || forgets {
            return Where::Unknown;
        }
        if asker != me && self.objects.table.contains(&object) {
            return Where::Node(me);
        }
        let nodes = self.in_turn((object.task, object.attempt), false).into_iter();
        let others = nodes.filter(|&node| node != me && node != asker && !self.is_dead(node));
        for node in others.take(HOLDERS_ASKED_MAX) {
            out.locate.entry(node).or_default().held.push(asked);
        }
        let kept = self.locate_timeout(asked.size_bytes);
        self.objects.directory.wait(object, asker, kept)
    }

    /// Reports to the home which of its objects are here.
    pub(crate) fn report_held(&self, home: NodeId, asked: &[wire::Object], out: &mut Out) {
        let here = asked.iter().filter(|asked| self.objects.table.contains(&object_id(asked)));
        let here: Vec<wire::Object> =
            here.map(|asked| wire_object(object_id(asked), asked.size_bytes)).collect();
        if !here.is_empty() {
            out.copies.entry(home).or_default().added.extend(here);
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::Time;
    use proto::wire::message::Body;

    use super::*;
    use crate::tests::test_nodes;
    use crate::{Policy, Tuning};

    #[test]
    fn a_node_reports_the_copies_that_it_has() {
        let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
        let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
        let object = |task| wire::Object { job: 1, task, attempt: 7, output: 0, size_bytes: 9 };
        let held = vec![object(1), object(2), object(3)];
        for here in [object(1), object(3)] {
            node.objects.table.copied(object_id(&here), 9, true, (false, false));
        }
        let mut out = Out::default();
        let locate = wire::Locate { held, ..Default::default() };
        node.on_message(Time(0), NodeId(1), Body::Locate(locate), &mut out);
        assert_eq!(out.copies[&NodeId(1)].added, [object(1), object(3)]);
        assert!(out.located.is_empty(), "no source is named");
    }
}

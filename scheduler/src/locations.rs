//! Where the outputs of the tasks homed here lie beside their makers: told by nodes that gain or
//! lose a copy, never needed for correctness. Who needs an object asks here which node to fetch it
//! from; askers are spread over the copies, and wait while all of them are busy giving it out.

use std::collections::{BTreeMap, VecDeque};

use proto::limits::{
    ASKERS_PER_OBJECT_MAX, ASKERS_PER_SOURCE_MAX, COPIES_PER_OBJECT_MAX, LOCATED_OBJECTS_MAX,
};
use proto::{JobId, NodeId, ObjectId, PartitionId, Span, Time};

use crate::objects::remove_of_job;

/// A node that was told to fetch the object from another.
#[derive(Debug)]
struct Asker {
    node: NodeId,
    source: NodeId,
    /// Then it is forgotten.
    until: Time,
}

/// A node that needs an object, and what is known of its maker.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) node: NodeId,
    /// Not known any more when `None`; the asker knows it.
    pub(crate) maker: Option<NodeId>,
    /// It cannot reach the maker.
    pub(crate) copies_only: bool,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Where {
    Node(NodeId),
    /// Nobody is known to have it; the asker knows its maker.
    Unknown,
    /// All who have it are busy: the asker hears when one is not.
    Later,
}

impl From<Option<NodeId>> for Where {
    fn from(node: Option<NodeId>) -> Self {
        node.map_or(Self::Unknown, Self::Node)
    }
}

#[derive(Debug, Default)]
struct Known {
    /// Nodes with a copy, and the maker once somebody has asked.
    sources: Vec<NodeId>,
    askers: Vec<Asker>,
    /// Asked while all sources were busy.
    waiting: VecDeque<NodeId>,
}

impl Known {
    fn askers_of(&self, source: NodeId) -> usize {
        self.askers.iter().filter(|asker| asker.source == source).count()
    }
    /// The source with the fewest askers, if it may take one more.
    fn take_source(
        &mut self,
        asker: NodeId,
        but: Option<NodeId>,
        (now, kept): (Time, Span),
    ) -> Option<NodeId> {
        self.askers.retain(|other| other.node != asker && now < other.until);
        let of_use = |source: NodeId| source != asker && Some(source) != but;
        let others = self.sources.iter().copied().filter(|&source| of_use(source));
        // Of equal ones, askers with different numbers begin with different sources.
        let turn = |source: NodeId| source.0.wrapping_sub(asker.0);
        let source = others.min_by_key(|&source| (self.askers_of(source), turn(source)))?;
        if self.askers_of(source) >= ASKERS_PER_SOURCE_MAX {
            return None;
        }
        self.askers.push(Asker { node: asker, source, until: now + kept });
        Some(source)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Locations {
    objects: BTreeMap<ObjectId, Known>,
}

impl Locations {
    /// A node has a copy now. Returns askers that waited, each with its source; they are taken
    /// for fetching so long.
    pub(crate) fn add(
        &mut self,
        (now, kept): (Time, Span),
        object: ObjectId,
        node: NodeId,
    ) -> Vec<(NodeId, NodeId)> {
        let Some(known) = self.known(object) else { return Vec::new() };
        known.askers.retain(|asker| asker.node != node);
        known.waiting.retain(|&other| other != node);
        if known.sources.len() < COPIES_PER_OBJECT_MAX && !known.sources.contains(&node) {
            known.sources.push(node);
        }
        let mut answers = Vec::new();
        while let Some(&asker) = known.waiting.front() {
            let Some(source) = known.take_source(asker, None, (now, kept)) else { break };
            known.waiting.pop_front();
            answers.push((asker, source));
        }
        answers
    }
    pub(crate) fn remove(&mut self, object: ObjectId, node: NodeId) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.sources.retain(|&other| other != node);
        }
    }

    /// Which node to fetch from. Who is sent to one is taken for fetching so long.
    pub(crate) fn ask(
        &mut self,
        (now, kept): (Time, Span),
        object: ObjectId,
        asking: &Asking,
    ) -> Where {
        let &Asking { node: asker, maker, copies_only } = asking;
        let Some(known) = self.known(object) else { return Where::from(maker) };
        if let Some(maker) = maker.filter(|maker| !known.sources.contains(maker)) {
            known.sources.push(maker);
        }
        let but = maker.filter(|_| copies_only);
        if known.sources.iter().all(|&source| source == asker || Some(source) == but) {
            return Where::Unknown;
        }
        let source = known.take_source(asker, but, (now, kept));
        let room = known.waiting.len() < ASKERS_PER_OBJECT_MAX;
        if source.is_none() && room && !known.waiting.contains(&asker) {
            known.waiting.push_back(asker);
        }
        source.map_or(Where::Later, Where::Node)
    }

    fn known(&mut self, object: ObjectId) -> Option<&mut Known> {
        if self.objects.len() >= LOCATED_OBJECTS_MAX && !self.objects.contains_key(&object) {
            return None;
        }
        Some(self.objects.entry(object).or_default())
    }

    /// Nodes that have it, as far as known.
    pub(crate) fn nodes(&self, object: &ObjectId) -> impl Iterator<Item = NodeId> + '_ {
        self.objects.get(object).into_iter().flat_map(|known| known.sources.iter().copied())
    }
    pub(crate) fn forget(&mut self, object: &ObjectId) -> Vec<NodeId> {
        self.objects.remove(object).map(|known| known.sources).unwrap_or_default()
    }
    pub(crate) fn forget_partition(&mut self, partition: PartitionId) {
        self.objects.retain(|object, _| object.task.partition() != partition);
    }
    /// The node has died, and what it had.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        for known in self.objects.values_mut() {
            known.sources.retain(|&source| source != node);
            known.askers.retain(|asker| asker.node != node && asker.source != node);
            known.waiting.retain(|&asker| asker != node);
        }
    }
    pub(crate) fn forget_job(&mut self, job: JobId) {
        remove_of_job(&mut self.objects, job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{Attempt, TaskId};

    const NOW: Time = Time(1_000_000_000);
    const KEPT: Span = Span::from_secs(2);
    const MAKER: NodeId = NodeId(0);

    fn asking(node: u32, maker: Option<NodeId>) -> Asking {
        Asking { node: NodeId(node), maker, copies_only: false }
    }
    fn object(number: u64) -> ObjectId {
        ObjectId { task: TaskId::new(1, number), attempt: Attempt(7), output: 0 }
    }

    #[test]
    fn askers_are_spread_over_the_copies_and_wait_while_all_are_busy() {
        let mut locations = Locations::default();
        let ask = |locations: &mut Locations, node: u32| {
            locations.ask((NOW, KEPT), object(1), &asking(node, Some(MAKER)))
        };
        for node in 1..=ASKERS_PER_SOURCE_MAX as u32 {
            assert_eq!(ask(&mut locations, node), Where::Node(MAKER));
        }
        assert_eq!(ask(&mut locations, 50), Where::Later);
        assert_eq!(ask(&mut locations, 51), Where::Later);
        // Node 1 has it: the maker is free for one more, and node 1 for another.
        let answers = locations.add((NOW, KEPT), object(1), NodeId(1));
        let expected = [(NodeId(50), NodeId(1)), (NodeId(51), MAKER)];
        assert!(answers.iter().all(|answer| expected.contains(answer)), "{answers:?}");
        assert_eq!(answers.len(), 2);
        assert!(locations.nodes(&object(1)).eq([MAKER, NodeId(1)]));
        locations.remove(object(1), NodeId(1));
        assert!(locations.nodes(&object(1)).eq([MAKER]));
    }

    #[test]
    fn a_node_is_not_sent_to_itself_and_silent_askers_are_forgotten() {
        let mut locations = Locations::default();
        locations.add((NOW, KEPT), object(1), NodeId(5));
        assert_eq!(locations.ask((NOW, KEPT), object(1), &asking(5, None)), Where::Unknown);
        for node in 10..10 + ASKERS_PER_SOURCE_MAX as u32 {
            assert_eq!(
                locations.ask((NOW, KEPT), object(1), &asking(node, None)),
                Where::Node(NodeId(5))
            );
        }
        assert_eq!(locations.ask((NOW, KEPT), object(1), &asking(99, None)), Where::Later);
        let later = NOW + KEPT;
        assert_eq!(
            locations.ask((later, KEPT), object(1), &asking(98, None)),
            Where::Node(NodeId(5))
        );
    }

    #[test]
    fn who_cannot_reach_the_maker_is_sent_to_copies_alone() {
        let mut locations = Locations::default();
        let ask = |locations: &mut Locations| {
            let asking = Asking { copies_only: true, ..asking(1, Some(MAKER)) };
            locations.ask((NOW, KEPT), object(1), &asking)
        };
        assert_eq!(ask(&mut locations), Where::Unknown, "at once");
        locations.add((NOW, KEPT), object(1), NodeId(3));
        assert_eq!(ask(&mut locations), Where::Node(NodeId(3)));
    }

    #[test]
    fn it_is_bounded_and_goes_with_the_job() {
        let mut locations = Locations::default();
        for number in 0..LOCATED_OBJECTS_MAX as u64 + 10 {
            locations.add((NOW, KEPT), object(number), NodeId(1));
        }
        assert_eq!(locations.objects.len(), LOCATED_OBJECTS_MAX);
        let beyond = object(LOCATED_OBJECTS_MAX as u64 + 1);
        assert_eq!(locations.ask((NOW, KEPT), beyond, &asking(2, Some(MAKER))), Where::Node(MAKER));
        for node in 0..2 * COPIES_PER_OBJECT_MAX as u32 {
            locations.add((NOW, KEPT), object(0), NodeId(node));
        }
        assert_eq!(locations.nodes(&object(0)).count(), COPIES_PER_OBJECT_MAX);
        locations.forget_job(JobId(1));
        assert!(locations.objects.is_empty());
    }
}

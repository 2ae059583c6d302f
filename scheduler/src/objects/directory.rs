//! The copies of outputs of the tasks homed here. Nodes report copies that they gain or lose;
//! correctness never depends on this. A node that needs an object asks here for a source. Askers
//! are spread over the copies, and wait while all sources are busy.

use std::collections::{BTreeMap, VecDeque};

use proto::{JobId, NodeId, ObjectId, PartitionId, Span, Time};

use crate::objects::object_table::remove_of_job;

/// The maximum numbers of objects with known copies at one home, and of copies of each.
const LOCATED_OBJECTS_MAX: usize = 1 << 16;
const COPIES_PER_OBJECT_MAX: usize = 128;
/// The maximum number of simultaneous downloads of one object from one source; further readers
/// wait.
const DOWNLOADS_PER_OBJECT_SOURCE_MAX: usize = 2;
/// The same for all objects of one home together.
const DOWNLOADS_PER_SOURCE_MAX: usize = 3;
/// The maximum number of wanted objects that a home examines when a source becomes free.
const LOCATED_WANTED_SCAN_MAX: usize = 64;
const READERS_WAITING_PER_OBJECT_MAX: usize = 1024;

/// A source delivers an object to a node that was sent there.
#[derive(Debug)]
struct Download {
    object: ObjectId,
    asker: NodeId,
    /// The time at which the entry is dropped.
    until: Time,
}

/// A node that needs an object, and the object's maker.
#[derive(Debug)]
pub(crate) struct LocationRequest {
    pub(crate) node: NodeId,
    /// `None` if the home does not know it any more; the asker knows it.
    pub(crate) maker: Option<NodeId>,
    /// The asker cannot reach the maker.
    pub(crate) copies_only: bool,
}

/// The answer to an asker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Where {
    Node(NodeId),
    /// No other source is known; the asker knows the maker.
    Unknown,
    /// All sources are busy: the asker is informed when one is free.
    Later,
}

impl From<Option<NodeId>> for Where {
    fn from(node: Option<NodeId>) -> Self {
        node.map_or(Self::Unknown, Self::Node)
    }
}

#[derive(Debug, Default)]
struct LocatedObject {
    /// Nodes with a copy, and the maker after the first question.
    sources: Vec<NodeId>,
    /// Nodes that asked while all sources were busy.
    waiting: VecDeque<NodeId>,
    /// The object is in the list of wanted objects.
    is_wanted: bool,
    /// How long an asker counts as fetching after it was sent to a source.
    kept: Span,
}

#[derive(Debug, Default)]
pub(crate) struct Directory {
    objects: BTreeMap<ObjectId, LocatedObject>,
    /// The deliveries of each source, as far as this home has sent askers there.
    downloads: BTreeMap<NodeId, Vec<Download>>,
    /// Objects with waiting askers, the longest wait first.
    wanted: VecDeque<ObjectId>,
    /// Some source has become free, and waiting askers have not been sent there.
    freed: bool,
}

/// An asker that waited, and its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Assignment {
    pub(crate) object: ObjectId,
    pub(crate) asker: NodeId,
    pub(crate) source: NodeId,
}

impl Directory {
    /// A node has gained a copy. Returns askers that waited, for this object or for others with a
    /// free source now. Each counts as fetching for `kept`.
    pub(crate) fn add(
        &mut self,
        (now, kept): (Time, Span),
        object: ObjectId,
        node: NodeId,
    ) -> Vec<Assignment> {
        self.end_download(object, node);
        let Some(known) = self.known(object) else { return Vec::new() };
        known.waiting.retain(|&other| other != node);
        if known.sources.len() < COPIES_PER_OBJECT_MAX && !known.sources.contains(&node) {
            known.sources.push(node);
        }
        known.kept = kept;
        let mut answers = Vec::new();
        self.serve(now, object, &mut answers);
        self.serve_wanted(now, &mut answers);
        answers
    }

    /// When a source becomes free for a waiting asker, as far as that is known.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if self.wanted.is_empty() {
            return None;
        }
        let all = self.downloads.values().flatten();
        if self.freed { Some(Time::ZERO) } else { all.map(|downloads| downloads.until).min() }
    }

    /// Askers that waited for a source that has become free otherwise than by [`Self::add`]. Its
    /// object is not needed any more, or the node that fetched it has failed or is silent.
    pub(crate) fn serve_freed(&mut self, now: Time) -> Vec<Assignment> {
        let mut answers = Vec::new();
        if self.deadline().is_none_or(|at| at > now) {
            return answers;
        }
        self.freed = false;
        self.downloads
            .values_mut()
            .for_each(|downloads| downloads.retain(|other| now < other.until));
        self.downloads.retain(|_, downloads| !downloads.is_empty());
        self.serve_wanted(now, &mut answers);
        answers
    }

    fn serve_wanted(&mut self, now: Time, answers: &mut Vec<Assignment>) {
        let looked_at = self.wanted.len().min(LOCATED_WANTED_SCAN_MAX);
        let mut oldest: Vec<ObjectId> = self.wanted.drain(..looked_at).collect();
        // Objects with the fewest sources go first: each new copy is a further source.
        oldest.sort_by_key(|object| self.objects.get(object).map_or(0, |it| it.sources.len()));
        let mut still = Vec::with_capacity(oldest.len());
        for object in oldest {
            self.serve(now, object, answers);
            let Some(known) = self.objects.get_mut(&object) else { continue };
            known.is_wanted = !known.waiting.is_empty();
            if known.is_wanted {
                still.push(object);
            }
        }
        still.into_iter().rev().for_each(|object| self.wanted.push_front(object));
    }

    /// Sends the waiting askers of an object to its free sources.
    fn serve(&mut self, now: Time, object: ObjectId, answers: &mut Vec<Assignment>) {
        let first = |known: &LocatedObject| Some((*known.waiting.front()?, known.kept));
        while let Some((asker, kept)) = self.objects.get(&object).and_then(first) {
            let Some(source) = self.take_source((now, kept), object, asker, None) else { return };
            if let Some(known) = self.objects.get_mut(&object) {
                known.waiting.pop_front();
            }
            answers.push(Assignment { object, asker, source });
        }
    }

    /// The source with the fewest askers, if it may take one more.
    fn take_source(
        &mut self,
        (now, kept): (Time, Span),
        object: ObjectId,
        asker: NodeId,
        but: Option<NodeId>,
    ) -> Option<NodeId> {
        self.end_download(object, asker);
        let known = self.objects.get(&object)?;
        let downloads = &mut self.downloads;
        let mut best = None;
        for &source in known.sources.iter().filter(|&&node| node != asker && Some(node) != but) {
            let (mut of_object, mut of_all) = (0, 0);
            if let Some(downloads) = downloads.get_mut(&source) {
                downloads.retain(|other| now < other.until);
                of_all = downloads.len();
                of_object = downloads.iter().filter(|other| other.object == object).count();
            }
            if of_object >= DOWNLOADS_PER_OBJECT_SOURCE_MAX || of_all >= DOWNLOADS_PER_SOURCE_MAX {
                continue;
            }
            // Among equal sources, askers with different numbers begin with different ones.
            let key = (of_all, source.0.wrapping_sub(asker.0));
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, source));
            }
        }
        let (_, source) = best?;
        self.downloads.entry(source).or_default().push(Download {
            object,
            asker,
            until: now + kept,
        });
        Some(source)
    }

    /// An asker does not fetch the object any more.
    fn end_download(&mut self, object: ObjectId, asker: NodeId) {
        let Some(known) = self.objects.get(&object) else { return };
        for source in &known.sources {
            if let Some(downloads) = self.downloads.get_mut(source) {
                downloads.retain(|other| (other.object, other.asker) != (object, asker));
                if downloads.is_empty() {
                    self.downloads.remove(source);
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, object: ObjectId, node: NodeId) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.sources.retain(|&other| other != node);
        }
    }

    /// Chooses a source for an asker, which then counts as fetching for `kept`.
    pub(crate) fn ask(
        &mut self,
        (now, kept): (Time, Span),
        object: ObjectId,
        asking: &LocationRequest,
    ) -> Where {
        let &LocationRequest { node: asker, maker, copies_only } = asking;
        let Some(known) = self.known(object) else { return Where::from(maker) };
        if let Some(maker) = maker.filter(|maker| !known.sources.contains(maker)) {
            known.sources.push(maker);
        }
        let but = maker.filter(|_| copies_only);
        if known.sources.iter().all(|&source| source == asker || Some(source) == but) {
            return Where::Unknown;
        }
        if let Some(source) = self.take_source((now, kept), object, asker, but) {
            // It may have waited, and asked again.
            let known = self.objects.get_mut(&object).expect("looked at above");
            known.waiting.retain(|&other| other != asker);
            return Where::Node(source);
        }
        self.wait(object, asker, kept)
    }

    /// The asker waits until a source is free, or a node reports a copy.
    pub(crate) fn wait(&mut self, object: ObjectId, asker: NodeId, kept: Span) -> Where {
        let Some(known) = self.known(object) else { return Where::Unknown };
        known.kept = kept;
        if known.waiting.len() < READERS_WAITING_PER_OBJECT_MAX && !known.waiting.contains(&asker) {
            known.waiting.push_back(asker);
            if !std::mem::replace(&mut known.is_wanted, true) {
                self.wanted.push_back(object);
            }
        }
        Where::Later
    }

    fn known(&mut self, object: ObjectId) -> Option<&mut LocatedObject> {
        if self.objects.len() >= LOCATED_OBJECTS_MAX && !self.objects.contains_key(&object) {
            return None;
        }
        Some(self.objects.entry(object).or_default())
    }

    /// Nodes that have the object, as far as is known.
    pub(crate) fn nodes(&self, object: &ObjectId) -> impl Iterator<Item = NodeId> + '_ {
        self.objects.get(object).into_iter().flat_map(|known| known.sources.iter().copied())
    }
    pub(crate) fn forget(&mut self, object: &ObjectId) -> Vec<NodeId> {
        let Some(known) = self.objects.remove(object) else { return Vec::new() };
        self.freed = true;
        if known.is_wanted {
            self.wanted.retain(|wanted| wanted != object);
        }
        for source in &known.sources {
            if let Some(downloads) = self.downloads.get_mut(source) {
                downloads.retain(|other| other.object != *object);
            }
        }
        known.sources
    }
    pub(crate) fn forget_partition(&mut self, partition: PartitionId) {
        self.objects.retain(|object, _| object.task.partition() != partition);
        self.forget_downloads(|object| object.task.partition() == partition);
    }
    /// The node has failed, and its copies are gone.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        for known in self.objects.values_mut() {
            known.sources.retain(|&source| source != node);
            known.waiting.retain(|&asker| asker != node);
        }
        self.freed = true;
        self.downloads.remove(&node);
        self.downloads
            .values_mut()
            .for_each(|downloads| downloads.retain(|other| other.asker != node));
    }
    fn forget_downloads(&mut self, goes: impl Fn(&ObjectId) -> bool) {
        self.freed = true;
        self.downloads
            .values_mut()
            .for_each(|downloads| downloads.retain(|other| !goes(&other.object)));
        self.downloads.retain(|_, downloads| !downloads.is_empty());
        self.wanted.retain(|object| !goes(object));
    }
    pub(crate) fn forget_job(&mut self, job: JobId) {
        remove_of_job(&mut self.objects, job);
        self.forget_downloads(|object| object.task.job == job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{Attempt, TaskId};

    const NOW: Time = Time(1_000_000_000);
    const KEPT: Span = Span::from_secs(2);
    const MAKER: NodeId = NodeId(0);

    fn asking(node: u32, maker: Option<NodeId>) -> LocationRequest {
        LocationRequest { node: NodeId(node), maker, copies_only: false }
    }
    fn object(number: u64) -> ObjectId {
        ObjectId { task: TaskId::new(1, number), attempt: Attempt(7), output: 0 }
    }

    #[test]
    fn askers_are_spread_over_the_copies_and_wait_while_all_are_busy() {
        let mut locations = Directory::default();
        let ask = |locations: &mut Directory, node: u32| {
            locations.ask((NOW, KEPT), object(1), &asking(node, Some(MAKER)))
        };
        for node in 1..=DOWNLOADS_PER_OBJECT_SOURCE_MAX as u32 {
            assert_eq!(ask(&mut locations, node), Where::Node(MAKER));
        }
        assert_eq!(ask(&mut locations, 50), Where::Later);
        assert_eq!(ask(&mut locations, 51), Where::Later);
        // Node 1 has a copy: the maker is free for one more, and node 1 for another.
        let answers = locations.add((NOW, KEPT), object(1), NodeId(1));
        let expected = [(50, NodeId(1)), (51, MAKER)].map(|(asker, source)| Assignment {
            object: object(1),
            asker: NodeId(asker),
            source,
        });
        assert!(answers.iter().all(|answer| expected.contains(answer)), "{answers:?}");
        assert_eq!(answers.len(), 2);
        assert!(locations.wanted.is_empty(), "no reader waits");
        assert!(locations.nodes(&object(1)).eq([MAKER, NodeId(1)]));
        locations.remove(object(1), NodeId(1));
        assert!(locations.nodes(&object(1)).eq([MAKER]));
    }

    #[test]
    fn a_source_gives_out_few_objects_at_a_time_and_what_is_rare_goes_first() {
        let mut locations = Directory::default();
        let ask = |locations: &mut Directory, number: u64, node: u32| {
            locations.ask((NOW, KEPT), object(number), &asking(node, Some(MAKER)))
        };
        let all = DOWNLOADS_PER_SOURCE_MAX as u64;
        for number in 0..all {
            assert_eq!(ask(&mut locations, number, 10 + number as u32), Where::Node(MAKER));
        }
        // The maker is busy, whatever the object.
        assert_eq!(ask(&mut locations, 0, 50), Where::Later);
        assert_eq!(ask(&mut locations, all, 51), Where::Later);
        assert_eq!(ask(&mut locations, all, 51), Where::Later, "asked again, it waits once");
        // Object 0 has two sources then, and the other object has only its maker.
        let answers = locations.add((NOW, KEPT), object(0), NodeId(10));
        let answer = |object, asker, source| Assignment { object, asker: NodeId(asker), source };
        let expected = [answer(object(0), 50, NodeId(10)), answer(object(all), 51, MAKER)];
        assert_eq!(answers, expected);
        // Deleted objects free sources too.
        assert_eq!(ask(&mut locations, 1, 60), Where::Later);
        locations.forget(&object(2));
        assert_eq!(ask(&mut locations, 3, 61), Where::Node(MAKER));
        locations.forget_job(JobId(1));
        assert!(locations.wanted.is_empty() && locations.downloads.is_empty());
    }

    #[test]
    fn a_waiting_reader_is_sent_to_a_source_after_its_timeout() {
        let all = DOWNLOADS_PER_SOURCE_MAX as u64;
        let busy = || {
            let mut locations = Directory::default();
            for number in 0..all {
                let asking = asking(10 + number as u32, Some(MAKER));
                locations.ask((NOW, KEPT), object(number), &asking);
            }
            assert_eq!(locations.deadline(), None, "no reader waits");
            let late = locations.ask((NOW, KEPT), object(all), &asking(50, Some(MAKER)));
            assert_eq!(late, Where::Later);
            assert_eq!(locations.serve_freed(NOW), []);
            locations
        };
        let answer = Assignment { object: object(all), asker: NodeId(50), source: MAKER };
        let mut silent = busy();
        assert_eq!(silent.deadline(), Some(NOW + KEPT));
        assert_eq!(silent.serve_freed(NOW + KEPT), [answer]);
        // An asker that asks again meanwhile, and is sent to a source, no longer waits.
        let mut again = busy();
        let later = NOW + KEPT;
        let sent = again.ask((later, KEPT), object(all), &asking(50, Some(MAKER)));
        assert_eq!((sent, again.serve_freed(later)), (Where::Node(MAKER), vec![]));
        let (mut consumed, mut dead) = (busy(), busy());
        consumed.forget(&object(1));
        assert_eq!(consumed.serve_freed(NOW), [answer]);
        dead.forget_node(NodeId(11));
        assert_eq!(dead.serve_freed(NOW), [answer]);
        assert_eq!(dead.deadline(), None);
    }

    #[test]
    fn a_node_is_not_sent_to_itself_and_silent_askers_are_forgotten() {
        let mut locations = Directory::default();
        locations.add((NOW, KEPT), object(1), NodeId(5));
        assert_eq!(locations.ask((NOW, KEPT), object(1), &asking(5, None)), Where::Unknown);
        for node in 10..10 + DOWNLOADS_PER_OBJECT_SOURCE_MAX as u32 {
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
    fn a_reader_that_cannot_reach_the_maker_is_sent_to_copies() {
        let mut locations = Directory::default();
        let ask = |locations: &mut Directory| {
            let asking = LocationRequest { copies_only: true, ..asking(1, Some(MAKER)) };
            locations.ask((NOW, KEPT), object(1), &asking)
        };
        assert_eq!(ask(&mut locations), Where::Unknown, "at once");
        locations.add((NOW, KEPT), object(1), NodeId(3));
        assert_eq!(ask(&mut locations), Where::Node(NodeId(3)));
    }

    #[test]
    fn it_is_bounded_and_goes_with_the_job() {
        let mut locations = Directory::default();
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

//! A ready queue: a priority queue by rank (input bytes or urgency). Among tasks of equal rank,
//! those with all inputs here go first, in order of arrival. Then come tasks with inputs that are
//! being fetched, then the rest, with tasks that miss the same object together.
//!
//! The order of missing objects differs from node to node. So nodes with similar tasks fetch
//! different objects, and each object is fetched once for all its tasks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proto::{Attempt, ObjectId, TaskId};
use resources::Pick;

use crate::policy::{RANK_FIRST, SPAWNED_RANKS, of_user as of_user_rank};

/// A ready task in a queue. Queues are caches: after a pop the task's record shows whether the
/// attempt is still current. So a cancellation does not search the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    pub(crate) task: TaskId,
    pub(crate) attempt: Attempt,
    /// The task with the highest rank is first, among those of one priority.
    pub(crate) rank: u64,
    /// The task with the highest priority is first.
    pub(crate) priority: i32,
    /// The class of its request; [`PLAIN`] without one.
    pub(crate) class: u64,
}

/// The class of tasks without a request.
pub(crate) const PLAIN: u64 = 0;

/// Priority and rank.
pub(crate) type Order = Reverse<(i32, u64)>;

impl Ready {
    fn order(&self) -> Order {
        Reverse((self.priority, self.rank))
    }
}

/// Whether an object can be read on this node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Presence {
    Here,
    Coming,
    Absent,
}

/// The priority and rank, the group of tasks with the same missing object, and the arrival.
type Key = (Order, u64, i64);

/// A task of priority 0 and rank 0 with nothing to fetch.
#[derive(Clone, Copy, Debug)]
struct Unranked {
    task: TaskId,
    attempt: Attempt,
    arrival: i64,
}

impl Unranked {
    /// The entry of a task; the owner of the queue knows its class.
    fn ready(self) -> Ready {
        let Self { task, attempt, .. } = self;
        Ready { task, attempt, rank: 0, priority: 0, class: PLAIN }
    }
}

/// The tasks among which a preference chooses: those of one priority that were ready before, or
/// the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Level {
    pub(crate) priority: i32,
    pub(crate) again: bool,
}

impl Level {
    const LOWEST: Self = Self { priority: 0, again: false };

    pub(crate) fn of(Reverse((priority, rank)): Order) -> Self {
        Self { priority, again: rank & RANK_FIRST != 0 }
    }
    /// The rank of a task of this level.
    fn rank(self, rank: u64) -> u64 {
        let first = if self.again { RANK_FIRST } else { 0 };
        first | rank & !RANK_FIRST
    }
}

/// The place of the unranked tasks in the order.
const UNRANKED: Order = Reverse((0, 0));

#[derive(Debug)]
struct Entry {
    ready: Ready,
    /// Objects that were not here when the task arrived, each once.
    inputs: Box<[ObjectId]>,
    presence: Presence,
    group: u64,
}

#[derive(Debug)]
struct Wanted {
    presence: Presence,
    /// Arrivals of the tasks that read it.
    readers: BTreeSet<i64>,
}

/// The capacity, in tasks, that an empty queue keeps.
const UNRANKED_KEPT: usize = 4;

/// The tasks of one class in one of the paper's queues: LReadyQ (local) or SReadyQ (shared).
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    /// Makes the order of missing objects differ from node to node.
    salt: u64,
    /// Tasks by the presence of their farthest input.
    here: BTreeMap<Key, Ready>,
    coming: BTreeSet<Key>,
    absent: BTreeSet<Key>,
    /// Tasks with inputs that were not here, by arrival.
    entries: BTreeMap<i64, Entry>,
    wanted: BTreeMap<ObjectId, Wanted>,
    /// Tasks of the lowest rank with nothing to fetch: a list keeps their order.
    unranked: VecDeque<Unranked>,
    pub(crate) arrivals: i64,
    /// The arrival of the task that was put back last: smaller than every real arrival.
    pub(crate) put_back: i64,
}

impl ReadyQueue {
    pub(crate) fn new(salt: u64) -> Self {
        Self { salt, ..Self::default() }
    }
    pub(crate) fn salt(&self) -> u64 {
        self.salt
    }

    /// `missing`: the larger inputs that are not here, each once.
    pub(crate) fn push(&mut self, ready: Ready, missing: &[(ObjectId, Presence)]) {
        self.arrivals += 1;
        if missing.is_empty() && ready.order() == UNRANKED {
            let Ready { task, attempt, .. } = ready;
            self.unranked.push_back(Unranked { task, attempt, arrival: self.arrivals });
        } else {
            self.insert(ready, missing, self.arrivals);
        }
    }

    /// As [`Self::push`], but before its equals: the task was taken out and could not continue.
    pub(crate) fn put_back(&mut self, ready: Ready, missing: &[(ObjectId, Presence)]) {
        self.put_back -= 1;
        if missing.is_empty() && ready.order() == UNRANKED {
            let Ready { task, attempt, .. } = ready;
            self.unranked.push_front(Unranked { task, attempt, arrival: self.put_back });
        } else {
            self.insert(ready, missing, self.put_back);
        }
    }

    fn insert(&mut self, ready: Ready, missing: &[(ObjectId, Presence)], arrival: i64) {
        if missing.is_empty() {
            self.here.insert((ready.order(), 0, arrival), ready);
            return;
        }
        for &(object, presence) in missing {
            let fresh = || Wanted { presence, readers: BTreeSet::new() };
            self.wanted.entry(object).or_insert_with(fresh).readers.insert(arrival);
        }
        let inputs = missing.iter().map(|&(object, _)| object).collect();
        let entry = Entry { ready, inputs, presence: Presence::Here, group: 0 };
        self.entries.insert(arrival, entry);
        self.file(arrival);
    }

    /// Moves an entry to its present place.
    fn file(&mut self, arrival: i64) {
        let Some(entry) = self.entries.get(&arrival) else { return };
        let of = |object: &ObjectId| self.wanted.get(object).map_or(Presence::Here, |w| w.presence);
        let presence = entry.inputs.iter().map(of).max().unwrap_or(Presence::Here);
        // Fewer transfers first. Among equally many transfers to begin, tasks without others to
        // wait for.
        let (mut weight, mut least) = (0_u64, u64::MAX);
        for object in entry.inputs.iter().filter(|object| of(object) != Presence::Here) {
            let is_farthest = of(object) == presence;
            weight += if is_farthest { 2 } else { 1 };
            least = if is_farthest { least.min(mix(self.salt, object)) } else { least };
        }
        let group = if weight == 0 { 0 } else { weight.min(255) << 56 | least >> 8 };
        let rank = entry.ready.order();
        let (old, new) = ((rank, entry.group, arrival), (rank, group, arrival));
        self.here.remove(&old);
        self.coming.remove(&old);
        self.absent.remove(&old);
        match presence {
            Presence::Here => {
                self.here.insert(new, entry.ready);
            }
            Presence::Coming => {
                self.coming.insert(new);
            }
            Presence::Absent => {
                self.absent.insert(new);
            }
        }
        if let Some(entry) = self.entries.get_mut(&arrival) {
            entry.presence = presence;
            entry.group = group;
        }
    }

    /// The presence of an object has changed.
    pub(crate) fn changed(&mut self, object: &ObjectId, presence: Presence) {
        let Some(wanted) = self.wanted.get_mut(object) else { return };
        if wanted.presence == presence {
            return;
        }
        wanted.presence = presence;
        let readers: Vec<i64> = wanted.readers.iter().copied().collect();
        for arrival in readers {
            self.file(arrival);
        }
    }

    /// The next task in order, wherever its inputs are.
    #[cfg(test)]
    pub(crate) fn pop(&mut self) -> Option<Ready> {
        let here = self.here.first_key_value().map(|(&key, _)| key);
        let coming = self.coming.first().copied();
        let absent = self.absent.first().copied();
        let classes = [(here, 0u8), (coming, 1), (absent, 2)];
        let ranked = classes.into_iter().filter_map(|(key, class)| Some((key?, class)));
        match ranked.min_by_key(|&(key, class)| (key.0, class)) {
            Some((key, _)) if key.0 <= UNRANKED || self.unranked.is_empty() => self.take(key),
            _ => self.pop_unranked(),
        }
    }
    /// The next task with all larger inputs here.
    pub(crate) fn pop_here(&mut self) -> Option<Ready> {
        match self.here.first_key_value().map(|(&key, _)| key) {
            Some(key) if key.0 <= UNRANKED || self.unranked.is_empty() => self.take(key),
            _ => self.pop_unranked(),
        }
    }
    /// The place of a task with all larger inputs here: of those of a priority, and of tasks that
    /// were ready before or of the others, by a pick.
    pub(crate) fn peek_picked(&self, level: Level, pick: &Pick) -> Option<(Order, i64)> {
        let span = |low: u64, high: u64| {
            let first = (Reverse((level.priority, level.rank(high))), 0, i64::MIN);
            first..=(Reverse((level.priority, level.rank(low))), u64::MAX, i64::MAX)
        };
        let place = |(key, _): (&Key, &Ready)| (key.0, key.2);
        let unranked = || {
            let first = self.unranked.front().filter(|_| level == Level::LOWEST);
            first.map(|it| (UNRANKED, it.arrival))
        };
        match pick {
            Pick::Biggest | Pick::Any => {
                let ranked = self.here.range(span(0, u64::MAX)).next().map(place);
                ranked.into_iter().chain(unranked()).min()
            }
            Pick::Smallest => {
                // The first to arrive of the lowest rank.
                let last = self.here.range(span(0, u64::MAX)).next_back().map(place);
                let ranked = last.and_then(|(Reverse((_, rank)), _)| {
                    self.here.range(span(rank, rank)).next().map(place)
                });
                ranked.into_iter().chain(unranked()).max_by_key(|it| (it.0, Reverse(it.1)))
            }
            Pick::Range(ranks) => {
                let (low, high) = (*ranks.start(), *ranks.end());
                let of_user = low.max(1)..=high.min(u32::MAX.into());
                let of_user = (!of_user.is_empty())
                    .then(|| span(of_user_rank(*of_user.start()), of_user_rank(*of_user.end())));
                let of_user = of_user.and_then(|span| self.here.range(span).next());
                let ranked = of_user.or_else(|| self.here.range(span(low, high)).next());
                let has_zero = ranks.contains(&0);
                ranked.map(place).into_iter().chain(unranked().filter(|_| has_zero)).min()
            }
        }
    }
    /// Takes the task at a place with all larger inputs here.
    pub(crate) fn pop_at(&mut self, (order, arrival): (Order, i64)) -> Option<Ready> {
        if order == UNRANKED && self.unranked.front().is_some_and(|it| it.arrival == arrival) {
            return self.pop_unranked();
        }
        let all = (order, 0, i64::MIN)..=(order, u64::MAX, i64::MAX);
        let key = self.here.range(all).map(|(&key, _)| key).find(|key| key.2 == arrival)?;
        self.take(key)
    }
    /// The place of the next task with all larger inputs here, and its arrival.
    pub(crate) fn peek_here(&self) -> Option<(Order, i64)> {
        let ranked = self.here.first_key_value().map(|(key, _)| (key.0, key.2));
        let unranked = self.unranked.front().map(|it| (UNRANKED, it.arrival));
        match (ranked, unranked) {
            (Some(ranked), Some(unranked)) if ranked.0 > UNRANKED => Some(unranked),
            (ranked, unranked) => ranked.or(unranked),
        }
    }
    /// The next task with all larger inputs here, and its priority.
    pub(crate) fn next_here(&self) -> Option<(i32, TaskId)> {
        let ranked = self.here.first_key_value().map(|(_, ready)| (ready.priority, ready.task));
        match self.here.first_key_value() {
            Some((key, _)) if key.0 <= UNRANKED || self.unranked.is_empty() => ranked,
            _ => self.unranked.front().map(|it| (0, it.task)),
        }
    }
    /// The priority and rank of the first task, wherever its inputs are.
    pub(crate) fn peek(&self) -> Option<Order> {
        let firsts = [
            self.peek_here().map(|(order, _)| order),
            self.coming.first().map(|key| key.0),
            self.absent.first().map(|key| key.0),
        ];
        firsts.into_iter().flatten().min()
    }
    pub(crate) fn peek_absent(&self) -> Option<(Order, i64)> {
        self.absent.first().map(|key| (key.0, key.2))
    }
    /// The next task with an input to be fetched, and its priority.
    pub(crate) fn next_absent(&self) -> Option<(i32, TaskId)> {
        let (.., arrival) = self.absent.first()?;
        self.entries.get(arrival).map(|entry| (entry.ready.priority, entry.ready.task))
    }
    /// The next task with an input to be fetched.
    pub(crate) fn pop_absent(&mut self) -> Option<Ready> {
        let key = self.absent.first().copied()?;
        self.take(key)
    }
    /// The best task to give away: of the highest rank, with inputs that this node has not begun to
    /// fetch.
    pub(crate) fn pop_distant(&mut self) -> Option<Ready> {
        let here = self.here.first_key_value().map(|(key, _)| key.0);
        let firsts = [here, self.coming.first().map(|k| k.0), self.absent.first().map(|k| k.0)];
        let Some(rank) = firsts.into_iter().flatten().min() else { return self.pop_unranked() };
        if rank > UNRANKED && !self.unranked.is_empty() {
            return self.pop_unranked();
        }
        let Reverse((priority, value)) = rank;
        if SPAWNED_RANKS.contains(&value) {
            let deepest = (Reverse((priority, *SPAWNED_RANKS.end())), 0, i64::MIN);
            let shallowest = (Reverse((priority, *SPAWNED_RANKS.start())), u64::MAX, i64::MAX);
            let last = self.here.range(deepest..=shallowest).next_back().map(|(&key, _)| key);
            if let Some(key) = last {
                return self.take(key);
            }
        }
        let all = (rank, 0, i64::MIN)..=(rank, u64::MAX, i64::MAX);
        let distant = self.absent.range(all.clone()).next_back().copied();
        let distant = distant.or_else(|| self.coming.range(all.clone()).next_back().copied());
        let first = || self.here.range(all).next().map(|(&key, _)| key);
        let key = distant.or_else(first).expect("some task has the highest rank");
        self.take(key)
    }

    /// The priority and rank of the task that would run last.
    pub(crate) fn peek_last(&self) -> Option<Order> {
        let lasts = [
            self.here.last_key_value().map(|(key, _)| key.0),
            self.coming.last().map(|key| key.0),
            self.absent.last().map(|key| key.0),
            (!self.unranked.is_empty()).then_some(UNRANKED),
        ];
        lasts.into_iter().flatten().max()
    }
    /// The task that would run last.
    pub(crate) fn pop_last(&mut self) -> Option<Ready> {
        let here = self.here.last_key_value().map(|(&key, _)| key);
        let classes =
            [(here, 0u8), (self.coming.last().copied(), 1), (self.absent.last().copied(), 2)];
        let ranked = classes.into_iter().filter_map(|(key, class)| Some((key?, class)));
        let last = ranked.max_by_key(|&(key, class)| (key.0, class)).map(|(key, _)| key);
        match last.filter(|key| key.0 > UNRANKED || self.unranked.is_empty()) {
            Some(key) => self.take(key),
            None => {
                let last = self.unranked.pop_back();
                self.shrink();
                last.map(Unranked::ready)
            }
        }
    }

    fn pop_unranked(&mut self) -> Option<Ready> {
        let first = self.unranked.pop_front();
        self.shrink();
        first.map(Unranked::ready)
    }

    fn take(&mut self, key: Key) -> Option<Ready> {
        let (_, _, arrival) = key;
        let here = self.here.remove(&key);
        self.coming.remove(&key);
        self.absent.remove(&key);
        let Some(entry) = self.entries.remove(&arrival) else { return here };
        for object in &entry.inputs {
            if let Some(wanted) = self.wanted.get_mut(object) {
                wanted.readers.remove(&arrival);
                if wanted.readers.is_empty() {
                    self.wanted.remove(object);
                }
            }
        }
        Some(entry.ready)
    }

    /// All tasks, in no meaningful order; some may occur twice.
    pub(crate) fn all(&self) -> impl Iterator<Item = Ready> + '_ {
        let entries = self.entries.values().map(|entry| entry.ready);
        let unranked = self.unranked.iter().copied().map(Unranked::ready);
        self.here.values().copied().chain(entries).chain(unranked)
    }

    /// The number of tasks with all larger inputs here.
    #[must_use]
    pub(crate) fn here(&self) -> usize {
        self.here.len() + self.unranked.len()
    }
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.here() + self.coming.len() + self.absent.len()
    }
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Gives memory back that live tasks do not need.
    fn shrink(&mut self) {
        let capacity = self.unranked.capacity();
        if capacity > UNRANKED_KEPT && self.unranked.is_empty() {
            self.unranked = VecDeque::new();
        }
        if capacity > 1024 && self.unranked.len() < capacity / 4 {
            self.unranked.shrink_to(capacity / 2);
        }
    }
}

/// A number that looks random and differs from node to node.
fn mix(salt: u64, object: &ObjectId) -> u64 {
    let words = [object.task.local.0, object.attempt.0, u64::from(object.output)];
    words.iter().fold(salt ^ object.task.job.0, |sum, &word| {
        let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Presence::{Absent, Coming, Here};

    fn ready(index: u64, rank: u64) -> Ready {
        Ready { task: TaskId::new(1, index), attempt: Attempt(1), rank, priority: 0, class: PLAIN }
    }
    fn object(index: u64) -> ObjectId {
        ObjectId { task: TaskId::new(1, 1000 + index), attempt: Attempt(1), output: 0 }
    }
    fn order(mut pop: impl FnMut() -> Option<Ready>) -> Vec<u64> {
        std::iter::from_fn(&mut pop).map(|ready| ready.task.local.index()).collect()
    }

    #[test]
    fn highest_rank_first_then_in_order_of_arrival() {
        let mut queue = ReadyQueue::default();
        for (index, rank) in [(0, 0), (1, 5), (2, 9), (3, 5), (4, 0)] {
            queue.push(ready(index, rank), &[]);
        }
        assert_eq!(order(|| queue.pop()), [2, 1, 3, 0, 4]);
        assert!(queue.is_empty());
        for (index, rank) in [(0, 0), (1, 5), (2, 9), (3, 5), (4, 0)] {
            queue.push(ready(index, rank), &[]);
        }
        queue.push(ready(5, 5), &[(object(1), Absent)]);
        assert_eq!(order(|| queue.pop_last()), [4, 0, 5, 3, 1, 2]);
    }

    #[test]
    fn what_is_put_back_is_next_of_its_equals() {
        let mut queue = ReadyQueue::new(3);
        let absent = [(object(1), Absent)];
        for (index, rank) in [(0, 0), (1, 0), (2, 5), (3, 5), (4, 9)] {
            queue.push(ready(index, rank), &[]);
        }
        queue.push(ready(5, 5), &absent);
        queue.push(ready(6, 5), &absent);
        let taken: Vec<Ready> = std::iter::from_fn(|| queue.pop()).collect();
        for &ready in taken.iter().rev() {
            let missing = if ready.task.local.index() < 5 { &[][..] } else { &absent };
            queue.put_back(ready, missing);
        }
        queue.push(ready(7, 0), &[]);
        queue.push(ready(8, 5), &[]);
        assert_eq!(order(|| queue.pop()), [4, 2, 3, 8, 5, 6, 0, 1, 7]);
    }

    #[test]
    fn of_equals_what_is_here_goes_first() {
        let mut queue = ReadyQueue::new(3);
        queue.push(ready(1, 5), &[(object(1), Absent), (object(2), Absent)]);
        queue.push(ready(2, 5), &[(object(1), Absent)]);
        queue.push(ready(3, 5), &[(object(3), Coming)]);
        queue.push(ready(4, 5), &[]);
        queue.push(ready(5, 1), &[]);
        queue.push(ready(6, 9), &[(object(1), Absent)]);
        assert_eq!(queue.here(), 2);
        // Both objects of task 1 arrive: the task arrived before task 4.
        queue.changed(&object(2), Coming);
        queue.changed(&object(2), Here);
        queue.changed(&object(1), Here);
        assert_eq!(order(|| queue.pop_here()), [6, 1, 2, 4, 5]);
        assert_eq!((queue.len(), queue.pop_absent()), (1, None));
        queue.changed(&object(3), Absent);
        assert_eq!(order(|| queue.pop_absent()), [3]);
        assert!(queue.wanted.is_empty() && queue.entries.is_empty() && queue.is_empty());
    }

    #[test]
    fn priority_comes_before_rank() {
        let of = |index, priority, rank| Ready { priority, ..ready(index, rank) };
        let fill = || {
            let mut queue = ReadyQueue::default();
            for (index, priority, rank) in [(0, 0, 0), (1, -1, 9), (2, 1, 0), (3, 0, 5), (4, 1, 1)]
            {
                queue.push(of(index, priority, rank), &[]);
            }
            queue
        };
        let mut queue = fill();
        assert_eq!(order(|| queue.pop_here()), [4, 2, 3, 0, 1]);
        let mut queue = fill();
        assert_eq!(order(|| queue.pop_last()), [1, 0, 3, 2, 4]);
        let mut queue = fill();
        assert_eq!(order(|| queue.pop_distant()), [4, 2, 3, 0, 1]);
    }

    #[test]
    fn rank_comes_before_presence() {
        let mut queue = ReadyQueue::default();
        queue.push(ready(1, 5), &[]);
        queue.push(ready(2, 6), &[(object(1), Absent)]);
        queue.push(ready(3, 5), &[(object(1), Absent)]);
        queue.push(ready(4, 5), &[(object(2), Coming)]);
        assert_eq!(order(|| queue.pop()), [2, 1, 4, 3]);
    }

    #[test]
    fn tasks_with_the_same_missing_object_stay_together_and_nodes_differ() {
        let orders: Vec<Vec<u64>> = (0..8)
            .map(|salt| {
                let mut queue = ReadyQueue::new(salt);
                for index in 0..30 {
                    queue.push(ready(index, 5), &[(object(index % 10), Absent)]);
                }
                order(|| queue.pop()).into_iter().map(|index| index % 10).collect()
            })
            .collect();
        for order in &orders {
            assert!(order.chunks(3).all(|three| three.iter().all(|&o| o == three[0])));
        }
        assert!(orders.iter().any(|order| order[0] != orders[0][0]));
    }

    #[test]
    fn a_thief_gets_what_is_far_from_here() {
        let mut queue = ReadyQueue::default();
        queue.push(ready(1, 5), &[]);
        queue.push(ready(2, 5), &[(object(1), Absent)]);
        queue.push(ready(3, 5), &[(object(2), Coming)]);
        queue.push(ready(4, 7), &[]);
        queue.push(ready(5, 0), &[]);
        assert_eq!(order(|| queue.pop_distant()), [4, 2, 3, 1, 5]);
    }
}

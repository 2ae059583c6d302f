//! The ready tasks of a node, by the class of their request. A node without requests has one class,
//! and its queue is asked directly.

pub(crate) mod classes;
mod demand;
pub(crate) mod matching;
pub(crate) mod patience;
mod preferred;
pub(crate) mod ready_queue;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use proto::{ObjectId, TaskId};
use resources::Pick;

use crate::holder::queues::ready_queue::{Level, PLAIN, Presence, Ready, ReadyQueue};

/// The precedence of a first task in the order of dispatch: priority and rank, then arrival.
pub(crate) type Precedence = (Reverse<(i32, u64)>, i64);

/// LReadyQ or SReadyQ of the paper, with a queue for each class.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    plain: ReadyQueue,
    /// The queues of requests; none is empty. Boxed, because most nodes never have any.
    #[expect(clippy::box_collection, reason = "a word of each node instead of three")]
    classes: Option<Box<BTreeMap<u64, ReadyQueue>>>,
}

impl Queues {
    pub(crate) fn new(salt: u64) -> Self {
        Self { plain: ReadyQueue::new(salt), classes: None }
    }

    /// `missing`: the larger inputs that are not here, each once.
    pub(crate) fn push(&mut self, ready: Ready, missing: &[(ObjectId, Presence)]) {
        if ready.class == PLAIN {
            return self.plain.push(ready, missing);
        }
        // Arrivals count over all classes.
        self.plain.arrivals += 1;
        let arrivals = self.plain.arrivals - 1;
        let queue = self.queue_of(ready.class);
        queue.arrivals = arrivals;
        queue.push(ready, missing);
    }
    /// As [`Self::push`], but before its equals.
    pub(crate) fn put_back(&mut self, ready: Ready, missing: &[(ObjectId, Presence)]) {
        if ready.class == PLAIN {
            return self.plain.put_back(ready, missing);
        }
        self.plain.put_back -= 1;
        let put_back = self.plain.put_back + 1;
        let queue = self.queue_of(ready.class);
        queue.put_back = put_back;
        queue.put_back(ready, missing);
    }
    fn queue_of(&mut self, class: u64) -> &mut ReadyQueue {
        let salt = self.plain.salt();
        let classes = self.classes.get_or_insert_default();
        classes.entry(class).or_insert_with(|| ReadyQueue::new(salt))
    }

    /// The presence of an object has changed.
    pub(crate) fn changed(&mut self, object: &ObjectId, presence: Presence) {
        self.plain.changed(object, presence);
        for queue in self.classes.iter_mut().flat_map(|classes| classes.values_mut()) {
            queue.changed(object, presence);
        }
    }

    /// The class of the first task with all larger inputs here, of the classes that may start.
    pub(crate) fn first_here(&self, may: impl Fn(u64) -> bool) -> Option<(Precedence, u64)> {
        self.first(may, ReadyQueue::peek_here)
    }
    /// The class of the first task with an input to be fetched, of the classes that may be staged.
    pub(crate) fn first_absent(&self, may: impl Fn(u64) -> bool) -> Option<(Precedence, u64)> {
        self.first(may, ReadyQueue::peek_absent)
    }
    fn first(
        &self,
        may: impl Fn(u64) -> bool,
        peek: impl Fn(&ReadyQueue) -> Option<Precedence>,
    ) -> Option<(Precedence, u64)> {
        let plain = peek(&self.plain).filter(|_| may(PLAIN)).map(|first| (first, PLAIN));
        let Some(classes) = &self.classes else { return plain };
        let classes = classes.iter().filter_map(|(&class, queue)| Some((peek(queue)?, class)));
        classes.filter(|&(_, class)| may(class)).chain(plain).min()
    }
    /// By class with a request: the next task with all larger inputs here (true), and the next one
    /// with an input to be fetched (false), each with its priority.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = (u64, bool, (i32, TaskId))> + '_ {
        let classes = self.classes.iter().flat_map(|classes| classes.iter());
        classes.flat_map(|(&class, queue)| {
            let firsts = [(true, queue.next_here()), (false, queue.next_absent())];
            firsts.into_iter().filter_map(move |(here, first)| Some((class, here, first?)))
        })
    }
    /// The next task of a class with all larger inputs here, and its priority.
    pub(crate) fn next_here_of(&self, class: u64) -> Option<(i32, TaskId)> {
        match class == PLAIN {
            true => self.plain.next_here(),
            false => self.classes.as_ref()?.get(&class)?.next_here(),
        }
    }
    /// The class and the place of the task with all larger inputs here that a pick chooses.
    pub(crate) fn picked(
        &self,
        may: impl Fn(u64) -> bool,
        level: Level,
        pick: &Pick,
    ) -> Option<(Precedence, u64)> {
        let plain = Some((PLAIN, &self.plain));
        let classes = self.classes.iter().flat_map(|classes| classes.iter());
        let all = plain.into_iter().chain(classes.map(|(&class, queue)| (class, queue)));
        let places = all
            .filter(|&(class, queue)| queue.here() > 0 && may(class))
            .filter_map(|(class, queue)| Some((queue.peek_picked(level, pick)?, class)));
        match pick {
            Pick::Biggest | Pick::Any | Pick::Range(_) => places.min(),
            Pick::Smallest => places.max_by_key(|(place, _)| (place.0, Reverse(place.1))),
        }
    }
    /// Takes the task of a class at a place.
    pub(crate) fn pop_at(&mut self, class: u64, place: Precedence) -> Option<Ready> {
        self.pop_of(class, |queue| queue.pop_at(place))
    }
    pub(crate) fn pop_here_of(&mut self, class: u64) -> Option<Ready> {
        self.pop_of(class, ReadyQueue::pop_here)
    }
    pub(crate) fn pop_absent_of(&mut self, class: u64) -> Option<Ready> {
        self.pop_of(class, ReadyQueue::pop_absent)
    }
    fn pop_of(
        &mut self,
        class: u64,
        pop: impl FnOnce(&mut ReadyQueue) -> Option<Ready>,
    ) -> Option<Ready> {
        if class == PLAIN {
            return pop(&mut self.plain);
        }
        let classes = self.classes.as_mut()?;
        let queue = classes.get_mut(&class)?;
        let ready = pop(queue);
        if queue.is_empty() {
            classes.remove(&class);
        }
        if classes.is_empty() {
            self.classes = None;
        }
        ready.map(|ready| Ready { class, ..ready })
    }

    /// A task of the highest priority and rank that this node would miss least, of these classes.
    pub(crate) fn pop_distant(&mut self, may: impl Fn(u64) -> bool) -> Option<Ready> {
        if self.classes.is_none() {
            return if may(PLAIN) { self.plain.pop_distant() } else { None };
        }
        let (_, class) = self.first(may, |queue| Some((queue.peek()?, 0)))?;
        self.pop_of(class, ReadyQueue::pop_distant)
    }
    /// A task of the lowest priority and rank, of these classes. Of equals, a task without a
    /// request is taken first.
    pub(crate) fn pop_last_of(&mut self, may: impl Fn(u64) -> bool) -> Option<Ready> {
        let plain = self.plain.peek_last().filter(|_| may(PLAIN)).map(|last| (last, PLAIN));
        let queues = self.classes.iter().flat_map(|classes| classes.iter());
        let lasts = queues.filter_map(|(&class, queue)| Some((queue.peek_last()?, class)));
        let lasts = lasts.filter(|&(_, class)| may(class)).chain(plain);
        let (_, class) = lasts.max_by_key(|&(last, class)| (last, class == PLAIN))?;
        self.pop_of(class, ReadyQueue::pop_last)
    }
    #[cfg(test)]
    pub(crate) fn pop(&mut self) -> Option<Ready> {
        self.plain.pop()
    }

    /// All tasks, in no meaningful order; some may occur twice.
    pub(crate) fn all(&self) -> impl Iterator<Item = Ready> + '_ {
        let of_class = |(&class, queue): (&u64, &'_ ReadyQueue)| {
            let all: Vec<Ready> = queue.all().map(|ready| Ready { class, ..ready }).collect();
            all
        };
        let classes = self.classes.iter().flat_map(|classes| classes.iter());
        self.plain.all().chain(classes.flat_map(of_class))
    }
    /// Some tasks of each queue that is not empty, and the number of all its tasks.
    pub(crate) fn first_of_each(&self, samples: usize) -> Vec<(Vec<TaskId>, usize)> {
        let classes = self.classes.iter().flat_map(|classes| classes.values());
        let queues = std::iter::once(&self.plain).chain(classes).filter(|queue| !queue.is_empty());
        let tasks = |queue: &ReadyQueue| queue.all().take(samples).map(|it| it.task).collect();
        queues.map(|queue| (tasks(queue), queue.len())).collect()
    }
    /// The number of tasks of each class with a request.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        let classes = self.classes.iter().flat_map(|classes| classes.iter());
        classes.map(|(&class, queue)| (class, queue.len()))
    }
    #[must_use]
    pub(crate) fn has_requests(&self) -> bool {
        self.classes.is_some()
    }
    #[must_use]
    pub(crate) fn has_class(&self, class: u64) -> bool {
        self.classes.as_ref().is_some_and(|classes| classes.contains_key(&class))
    }
    /// Whether a task of a class with a request has all larger inputs here.
    #[must_use]
    pub(crate) fn has_here(&self, class: u64) -> bool {
        let queue = self.classes.as_ref().and_then(|classes| classes.get(&class));
        queue.is_some_and(|queue| queue.here() > 0)
    }
    /// The number of tasks without a request.
    #[must_use]
    pub(crate) fn plain(&self) -> usize {
        self.plain.len()
    }
    /// The number of tasks with all larger inputs here.
    #[must_use]
    pub(crate) fn here(&self) -> usize {
        let classes = self.classes.iter().flat_map(|classes| classes.values());
        self.plain.here() + classes.map(ReadyQueue::here).sum::<usize>()
    }
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        let classes = self.classes.iter().flat_map(|classes| classes.values());
        self.plain.len() + classes.map(ReadyQueue::len).sum::<usize>()
    }
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.classes.is_none()
    }
}

#[cfg(test)]
mod tests {
    use proto::Attempt;

    use super::*;

    #[test]
    fn the_last_task_of_all_classes_has_the_lowest_priority_and_rank() {
        let mut queues = Queues::default();
        for (index, priority, class) in [(0, 0, PLAIN), (1, 2, 9), (2, 1, 7), (3, 0, 9), (4, -1, 7)]
        {
            let task = TaskId::new(1, index);
            let ready = Ready { task, attempt: Attempt(1), rank: 0, priority, class };
            queues.push(ready, &[]);
        }
        let last = |queues: &mut Queues| {
            queues.pop_last_of(|_| true).map(|ready| ready.task.local.index())
        };
        let of_class = queues.pop_last_of(|class| class == 9);
        assert_eq!(of_class.map(|ready| (ready.task.local.index(), ready.class)), Some((3, 9)));
        assert_eq!(std::iter::from_fn(|| last(&mut queues)).collect::<Vec<_>>(), [4, 0, 2, 1]);
        assert!(queues.is_empty());
    }
}

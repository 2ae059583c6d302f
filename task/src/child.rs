//! The calls of a call that runs.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use client::Verdict;
use proto::LocalId;

use crate::call::{Entry, Source};

/// Calls that no handle names any more, and that are not released yet.
pub(crate) type Released = Rc<RefCell<Vec<u64>>>;

/// A call of the call that runs. Its value stays on the cluster as long as a clone of it lives, and
/// at most as long as the call runs.
pub struct Child<T> {
    pub(crate) spawned: Rc<Spawned>,
    value: PhantomData<fn() -> T>,
}

pub(crate) struct Spawned {
    pub(crate) job: u64,
    pub(crate) local: LocalId,
    pub(crate) title: String,
    pub(crate) released: Released,
}

/// What a child does.
pub(crate) struct Work {
    pub(crate) entry: &'static Entry,
    pub(crate) payload: Vec<u8>,
    pub(crate) sources: Vec<(LocalId, Rc<Self>)>,
}

/// The end of a child.
pub(crate) struct ChildEnd {
    pub(crate) attempt: u64,
    pub(crate) verdict: i64,
    pub(crate) error: String,
    pub(crate) node: u64,
    pub(crate) inline: Vec<u8>,
}

impl<T> Clone for Child<T> {
    fn clone(&self) -> Self {
        Self { spawned: Rc::clone(&self.spawned), value: PhantomData }
    }
}

impl<T> fmt::Debug for Child<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Child").field(&self.spawned.title).field(&self.spawned.local).finish()
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        self.released.borrow_mut().push(self.local.0);
    }
}

impl<T> Child<T> {
    pub(crate) fn new(spawned: Spawned) -> Self {
        Self { spawned: Rc::new(spawned), value: PhantomData }
    }

    pub(crate) fn source(&self) -> Source {
        Source { job: self.spawned.job, local: self.spawned.local }
    }
}

impl ChildEnd {
    /// Of a child that has run inside of its parent.
    pub(crate) fn here(verdict: Verdict) -> Self {
        let (error, inline) = (String::new(), Vec::new());
        Self { attempt: 0, verdict: verdict as i64, error, node: 0, inline }
    }
}

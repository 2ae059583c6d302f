//! A submitted call, seen from its client.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::TaskEnd;
use proto::LocalId;
use serde::de::DeserializeOwned;

use crate::call::Source;
use crate::cluster::Shared;
use crate::{Error, Result};

/// A submitted call. Its value is pending, and can be an argument of further calls, before it has
/// ended and after. Its value stays on the cluster as long as a clone of it lives.
pub struct Pending<T> {
    pub(crate) submitted: Arc<Submitted>,
    value: PhantomData<fn() -> T>,
}

/// What clones share.
pub(crate) struct Submitted {
    pub(crate) shared: Arc<Shared>,
    pub(crate) local: LocalId,
    pub(crate) title: String,
}

impl<T> Clone for Pending<T> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.submitted))
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pending").field(&self.submitted.title).field(&self.task()).finish()
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        self.shared.forget(self.local);
    }
}

impl<T> Pending<T> {
    pub(crate) fn new(submitted: Arc<Submitted>) -> Self {
        Self { submitted, value: PhantomData }
    }

    /// The id of its task, as the command line takes it.
    #[must_use]
    pub fn task(&self) -> String {
        format!("{}.{}", self.submitted.shared.job(), self.submitted.local)
    }

    /// Whether the call has ended, well or not.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.submitted.shared.has_ended(self.submitted.local)
    }

    /// Waits for the end of the call, and returns its value.
    ///
    /// # Errors
    /// The reason why there is no value: [`Error::Failed`], [`Error::Cancelled`],
    /// [`Error::Skipped`]; or the cluster does not answer.
    pub fn get(&self) -> Result<T>
    where
        T: DeserializeOwned,
    {
        let Submitted { shared, local, title } = &*self.submitted;
        let end = shared.wait(*local, None)?.ok_or(Error::Interrupted)?;
        shared.value(&end, title)
    }

    /// As [`Self::get`], but `None` if the call does not end in this time.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_within(&self, time: Duration) -> Result<Option<T>>
    where
        T: DeserializeOwned,
    {
        let Submitted { shared, local, title } = &*self.submitted;
        // A time that no clock reaches is no limit.
        let end = shared.wait(*local, Instant::now().checked_add(time))?;
        end.map(|end: TaskEnd| shared.value(&end, title)).transpose()
    }

    /// Cancels the call; returns whether it had not ended.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub fn cancel(&self) -> Result<bool> {
        self.submitted.shared.cancel(&[self.submitted.local])
    }

    /// The text that the call has printed: its stdout.
    ///
    /// # Errors
    /// The call has not ended, or its node does not answer.
    pub fn printed(&self) -> Result<String> {
        self.submitted.shared.printed(self.submitted.local)
    }

    pub(crate) fn source(&self) -> Source {
        Source { job: self.submitted.shared.job(), local: self.submitted.local }
    }
}

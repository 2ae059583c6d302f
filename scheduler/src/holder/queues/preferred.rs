//! Preferences of a node: which of the tasks that may start it takes first.
//!
//! A preference chooses among the tasks of one level: they have the priority of the task that is
//! first in the ordinary order, and like it they were ready before, or were not. Where no entry of
//! the list is about such a task, the ordinary order decides.

use resources::{Pick, Preference, Request};

use crate::holder::Holder;
use crate::holder::queues::Precedence;
use crate::holder::queues::ready_queue::{Level, PLAIN, Ready};
use crate::holder::slots::Need;

impl Holder {
    /// Whether the node has preferences among ready tasks.
    pub(crate) fn prefers(&self) -> bool {
        !self.slots.preferences().is_empty()
    }

    /// Takes the task that the first entry with a task chooses. True if it is local.
    pub(crate) fn pop_preferred(&mut self, level: Level) -> Option<(bool, Ready)> {
        let (local, (place, class)) = self.preferred(level, |class| self.may_take(class, true))?;
        let queue = if local { &mut self.local } else { &mut self.shared };
        queue.pop_at(class, place).map(|ready| (local, ready))
    }

    fn preferred(
        &self,
        level: Level,
        may: impl Fn(u64) -> bool,
    ) -> Option<(bool, (Precedence, u64))> {
        let entries = self.slots.preferences().iter();
        let mut chosen = entries.filter_map(|entry| {
            let named = |class| may(class) && self.is_about(entry, class);
            self.picked(level, &entry.pick, named)
        });
        chosen.next().or_else(|| self.picked(level, &Pick::Any, &may))
    }

    /// Of the local and the shared queue: of equals the local one.
    fn picked(
        &self,
        level: Level,
        pick: &Pick,
        may: impl Fn(u64) -> bool,
    ) -> Option<(bool, (Precedence, u64))> {
        let local = self.local.picked(&may, level, pick);
        let shared = self.shared.picked(&may, level, pick);
        let rank = |of: &(Precedence, u64)| of.0.0;
        match (local, shared) {
            (Some(local), Some(shared)) => {
                let shared_first = match pick {
                    Pick::Biggest => rank(&shared) < rank(&local),
                    Pick::Smallest => rank(&shared) > rank(&local),
                    Pick::Any | Pick::Range(_) => false,
                };
                Some(if shared_first { (false, shared) } else { (true, local) })
            }
            (Some(local), None) => Some((true, local)),
            (None, shared) => shared.map(|shared| (false, shared)),
        }
    }

    /// Whether an entry is about the tasks of a class, by the variant that they would get now.
    fn is_about(&self, entry: &Preference, class: u64) -> bool {
        let of = |request: &Request, variant: usize| {
            request.variants().get(variant).is_some_and(|variant| entry.is_about(variant))
        };
        match (class == PLAIN, self.classes.get(class)) {
            (true, _) | (false, None) => of(&Request::one_cpu(), 0),
            (false, Some(known)) => match known.need(self.life) {
                Need::Fit(fit) => {
                    let variant = self.slots.variant_outside(fit, self.kept_from(class));
                    variant.is_some_and(|variant| of(&known.request, variant))
                }
                Need::Cpus(_) => of(&Request::one_cpu(), 0),
                // Staging reports a task that never fits to its home.
                Need::Nothing | Need::NotYet | Need::Never => false,
            },
        }
    }
}

//! Interrupts of a verb that has something to save: the first one tells it to end, the second one
//! ends it.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::context::runtime;
use crate::errors::Failure;
use crate::output::say;

/// What a verb knows of interrupts.
#[derive(Clone, Default, Debug)]
pub struct Interrupt(Rc<State>);

#[derive(Default, Debug)]
struct State {
    is_held: Cell<bool>,
    has_come: Cell<bool>,
    comes: Notify,
}

impl Interrupt {
    /// From now on the first interrupt does not end the verb. With `false`, any does again.
    pub fn hold(&self, is_held: bool) {
        self.0.is_held.set(is_held);
    }

    /// Returns once an interrupt has come that did not end the verb.
    pub async fn comes(&self) {
        while !self.0.has_come.get() {
            self.0.comes.notified().await;
        }
    }

    /// True if this interrupt does not end the verb.
    fn tell(&self) -> bool {
        let tells = self.0.is_held.get() && !self.0.has_come.replace(true);
        self.0.comes.notify_one();
        tells
    }
}

/// Runs a verb's future on this thread, as [`block_on`](crate::block_on) does.
pub fn block_on_saving<T, F>(verb: impl FnOnce(Interrupt) -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    runtime()?.block_on(async {
        // The handlers are installed before the verb does anything.
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        let [mut interrupts, mut ends] = kinds.map(|kind| signal(kind).ok());
        let interrupt = Interrupt::default();
        let mut done = pin!(verb(interrupt.clone()));
        loop {
            tokio::select! {
                biased;
                () = next(&mut interrupts) => {}
                () = next(&mut ends) => {}
                done = &mut done => return done,
            }
            if !interrupt.tell() {
                return Err(Failure::interrupted());
            }
            say("interrupted: the results kept so far are copied; once more ends it at once");
        }
    })
}

/// Without a handler the signal ends the process in the default way.
async fn next(signals: &mut Option<Signal>) {
    match signals {
        Some(signals) => _ = signals.recv().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_interrupt_of_a_held_verb_does_not_end_it() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.tell(), "nothing is to be saved");
        let interrupt = Interrupt::default();
        interrupt.hold(true);
        assert!(interrupt.tell());
        assert!(!interrupt.tell());
        let interrupt = Interrupt::default();
        interrupt.hold(true);
        interrupt.hold(false);
        assert!(!interrupt.tell());
    }
}

//! Models of Starling's critical protocols, small enough for an exhaustive search of all event
//! orders.
//!
//! No part of Starling depends on this crate. `tests/partition` models the failover of a partition.
//! `tests/attempt` models the attempts at a task, of which only one may count. `tests/turns` models
//! the turns of a task that makes tasks, and `tests/weight` the end of a job with such tasks. All
//! are independent implementations of the rules without time and bytes. `docs/design/019-model.md`
//! maps the first two to the code; `docs/design/032-turns.md` describes the others.

#![expect(clippy::print_stdout, reason = "a test says how many states it has visited")]

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

/// A state that a search over all states can hold.
pub trait Visited: Clone + Debug + Hash + PartialEq + Send + Sync {}
impl<T: Clone + Debug + Hash + PartialEq + Send + Sync> Visited for T {}

/// Visits all states of a model, prints their number and checks its properties.
///
/// # Panics
/// A property does not hold.
pub fn explore<M>(name: &str, model: M)
where
    M: Model<State: Visited, Action: Clone + Debug + PartialEq> + Send + Sync + 'static,
{
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!(
        "{name}: {} states, {} with repetitions, depth {}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
}

/// Prints the steps after which a model with a mutant breaks the property.
///
/// # Panics
/// No order of steps breaks it.
pub fn assert_breaks<M>(mutant: &impl Debug, property: &'static str, model: M)
where
    M: Model<State: Visited, Action: Clone + Debug + PartialEq> + Send + Sync + 'static,
{
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().threads(2).finish_when(found).spawn_bfs().join();
    let path = checker.discovery(property);
    let path = path.unwrap_or_else(|| panic!("{mutant:?} does not break {property}"));
    let steps = path.into_actions();
    println!("{mutant:?}: {property} after {} steps: {steps:?}", steps.len());
}

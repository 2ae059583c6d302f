//! Model of several attempts at one task: exactly one counts, and the outputs of others are never
//! used.

mod state;
mod steps;

use model::{assert_breaks, explore};
use state::{Mutant, Options, State, Step};
use stateright::{Model, Property};

impl Model for Options {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::first()]
    }
    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        state.steps(steps);
    }
    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        state.after(self, step)
    }
    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("counts once", |_, state: &State| state.counts_once()),
            Property::always("told", |_, state: &State| state.keeps_what_was_told()),
            Property::always("unique", |_, state: &State| state.attempts_are_unique()),
            Property::always("outputs", |options: &Self, state: &State| {
                state.outputs_are_of_their_attempt(options)
            }),
            Property::always("ends well", |options: &Self, state: &State| state.ends_well(options)),
        ];
        if self.mutant.is_none() {
            properties.extend([
                Property::sometimes("a zombie finishes", |_, state: &State| {
                    state.a_zombie_finishes()
                }),
                Property::sometimes("a successor counts", |_, state: &State| {
                    state.a_successor_counts()
                }),
            ]);
        }
        properties
    }
}

#[test]
fn one_attempt_counts() {
    explore("attempts", Options { lives: 2, attempts: 2, mutant: None });
}

/// The property that each mutant violates.
const FOUND: [(Mutant, &str); 7] = [
    (Mutant::CompletionWithoutAttempt, "counts once"),
    (Mutant::TermForgotten, "unique"),
    (Mutant::AcknowledgedBeforeLogged, "told"),
    (Mutant::OutputsWithoutAttempt, "outputs"),
    (Mutant::GoneHolderKeeps, "ends well"),
    (Mutant::EarlierAttemptTaken, "ends well"),
    (Mutant::RepeatCountsAgain, "counts once"),
];

#[test]
fn every_mutant_is_found() {
    for (mutant, property) in FOUND {
        let options = Options { lives: 2, attempts: 2, mutant: Some(mutant) };
        assert_breaks(&mutant, property, options);
    }
}

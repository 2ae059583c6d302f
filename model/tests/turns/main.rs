//! Model of the turns of one task: each child of a committed turn exists exactly once, and no child
//! of any other turn exists.

mod child;
mod home;
mod properties;
mod settings;
mod state;
mod steps;

use model::{assert_breaks, explore};
use settings::Options;
use state::State;
use stateright::{Model, Property};
use steps::Step;

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
            Property::always("turns", |_, state: &State| state.turns_apply_once()),
            Property::always("born", |_, state: &State| state.children_are_of_committed_turns()),
            Property::always("once", |_, state: &State| !state.adopted_twice),
            Property::always("cover", |_, state: &State| state.no_child_is_lost()),
            Property::always("answered", |_, state: &State| !state.answered_wrongly),
            Property::always("living", |_, state: &State| !state.fenced_the_living),
            Property::always("ends well", |options: &Self, state: &State| state.ends_well(options)),
        ];
        if self.mutant.is_none() && self.take_overs > 1 {
            properties.extend([
                Property::sometimes("drops", |_, state: &State| !state.drops.is_empty()),
                Property::sometimes("a successor goes on", |_, state: &State| {
                    state.turns_of_several_attempts()
                }),
            ]);
        }
        properties
    }
}

#[test]
fn children_exist_once() {
    for (name, options) in settings::ALL {
        explore(name, options);
    }
}

#[test]
fn every_mutant_is_found() {
    for (mutant, property, options) in settings::found() {
        let options = Options { mutant: Some(mutant), ..options };
        assert_breaks(&mutant, property, options);
    }
}

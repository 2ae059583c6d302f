//! Model of the weight of a job with tasks that make tasks. No end is announced while anything of
//! the job lives; the end is announced when nothing does.

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
        vec![State::first(self)]
    }
    fn actions(&self, _: &State, steps: &mut Vec<Step>) {
        steps.extend(Step::all());
    }
    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        state.after(self, step)
    }
    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("quiesce", |_, state: &State| state.is_quiet_at_the_end()),
            Property::always("weight", |_, state: &State| state.weight_is_exact()),
            Property::always("refusals", |_, state: &State| !state.refused_early),
            Property::always("open has weight", |_, state: &State| state.open_has_weight()),
            Property::always("ends well", |options: &Self, state: &State| state.ends_well(options)),
            Property::eventually("ends", |_, state: &State| state.has_ended()),
        ];
        if self.mutant.is_none() && self.cuts > 0 {
            let after_cut =
                |options: &Self, state: &State| state.has_ended() && state.cuts < options.cuts;
            properties.push(Property::sometimes("ends after a cut", after_cut));
        }
        if self.mutant.is_none() && self.has_source {
            let reopens = |_: &Self, state: &State| state.parts[0].live.attempt > 1;
            properties.push(Property::sometimes("reopens", reopens));
        }
        properties
    }
}

#[test]
fn chunks_carry_weight() {
    explore("chunks", settings::CHUNKS);
    explore("chain", settings::CHAIN);
}

#[test]
fn requests_for_lost_outputs_carry_weight() {
    explore("requests", settings::REQUESTS);
    explore("requests and chunks", settings::MIXED);
}

#[test]
fn an_open_job_ends_after_its_close() {
    explore("open job", settings::OPEN);
    explore("open job that spawns", settings::OPEN_SPAWNS);
}

#[test]
fn a_retried_job_ends_again() {
    explore("retry", settings::RETRY);
}

#[test]
fn sums_of_ranges_are_counted_once() {
    explore("ranges", settings::RANGES);
}

#[test]
fn every_mutant_is_found() {
    for (mutant, property, options) in settings::found() {
        let options = Options { mutant: Some(mutant), ..options };
        assert_breaks(&mutant, property, options);
    }
}

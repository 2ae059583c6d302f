//! Model of the failover of a partition: no acknowledged write is lost, for any order of events.

mod activation;
mod lives;
mod map;
mod properties;
mod small;
mod state;
mod steps;

use model::{assert_breaks, explore};
use state::{Mutant, Options, State};
use stateright::{Model, Property};
use steps::Step;

impl Model for Options {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(self)]
    }
    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        state.steps(steps);
    }
    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        state.after(self, step)
    }
    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("acknowledged", |_, state: &State| {
                state.keeps_what_was_acknowledged()
            }),
            Property::always("spoken", |_, state: &State| state.keeps_what_was_spoken()),
            Property::always("one history", |_, state: &State| !state.is_split),
            Property::always("equal copies", |_, state: &State| {
                state.equal_positions_are_equal_copies()
            }),
            Property::always("fresh reads", |options: &Self, state: &State| {
                state.reads_are_fresh(options)
            }),
            Property::always("ends well", |options: &Self, state: &State| state.ends_well(options)),
        ];
        if self.mutant.is_none() && self.evictions > 0 && self.moves > 0 && self.writes > 1 {
            properties.extend([
                Property::sometimes("fails over", |_, state: &State| state.fails_over()),
                Property::sometimes("a zombie is awake", |_, state: &State| {
                    state.a_zombie_is_awake()
                }),
            ]);
        }
        properties
    }
}

/// Three nodes, one partition, and two changes of its configuration.
const OPTIONS: Options = Options {
    copies: 2,
    writes: 2,
    epochs: 3,
    cuts: 1,
    evictions: 1,
    moves: 1,
    reads: false,
    recent: 2,
    one_lags: false,
    mutant: None,
};
const READS: Options = Options { reads: true, writes: 1, cuts: 0, ..OPTIONS };
/// One replica differs from the beginning, as after a lag that could not be filled.
const LAGS: Options =
    Options { copies: 3, one_lags: true, recent: 0, cuts: 0, evictions: 0, moves: 2, ..OPTIONS };

#[test]
fn two_copies() {
    explore("two copies, an eviction and a move", Options { cuts: 0, ..OPTIONS });
    let one_write = Options { writes: 1, ..OPTIONS };
    explore("two copies, a cut and an eviction", Options { moves: 0, ..one_write.clone() });
    explore("two copies, a cut and a move", Options { evictions: 0, ..one_write });
}

#[test]
fn three_copies() {
    let three = Options { copies: 3, writes: 1, cuts: 0, ..OPTIONS };
    explore("three copies, an eviction and a move", three);
}

#[test]
fn reads() {
    explore("reads, an eviction and a move", READS);
}

#[test]
fn one_lags() {
    explore("one lags, two moves", LAGS);
}

/// The options that reveal each mutant, and the property that it violates.
const FOUND: [(Mutant, Options, &str); 11] = [
    (Mutant::NoLeaseWait, Options { moves: 0, ..READS }, "fresh reads"),
    (Mutant::LastFullCopyGoes, Options { writes: 1, ..OPTIONS }, "acknowledged"),
    (Mutant::RestartedMemberStays, Options { moves: 0, ..OPTIONS }, "ends well"),
    (Mutant::LonePrimaryGoesOn, Options { moves: 0, ..OPTIONS }, "acknowledged"),
    (Mutant::AcknowledgedBeforeSynced, Options { moves: 0, ..OPTIONS }, "acknowledged"),
    (Mutant::AcknowledgedBeforeCopied, Options { moves: 0, ..OPTIONS }, "acknowledged"),
    (
        Mutant::MajorityIsAsked,
        Options { copies: 3, evictions: 0, moves: 2, ..READS },
        "acknowledged",
    ),
    (Mutant::RefusalForgotten, LAGS, "ends well"),
    (Mutant::WhoIsDroppedGoesOn, LAGS, "acknowledged"),
    (Mutant::WhoLeftIsForgotten, Options { cuts: 0, ..OPTIONS }, "acknowledged"),
    (Mutant::LearnerPromisesNothing, Options { cuts: 0, writes: 1, ..OPTIONS }, "spoken"),
];

#[test]
fn every_mutant_is_found() {
    for (mutant, options, property) in FOUND {
        // Some violate several properties; it is random which one is found first.
        assert_breaks(&mutant, property, Options { mutant: Some(mutant), ..options });
    }
}

/// Two mutants that violate no property. The acknowledgements of a primary also need its
/// successor's replica, which takes no more changes once it is to activate. A promise is synced
/// together with all changes that it could revoke.
#[test]
fn what_write_all_makes_harmless() {
    for mutant in [Mutant::PromiseToldBeforeDurable, Mutant::EarlierEpochsTaken] {
        let options = Options { moves: 0, writes: 1, mutant: Some(mutant), ..OPTIONS };
        explore(&format!("{mutant:?}"), options);
    }
}

/*!
A cluster in a loop: real [`node::Node`]s under virtual time, with a network, disks, executors and
clients that are models, and faults on purpose.

Everything that happens comes from one seed, so a failing run can be seen again. Two phases: first
safety while faults strike, then the faults end and progress is demanded. The checkers (one file
each in `checkers/`) say what must hold; the mutants of [`scheduler::Mutant`] prove that they bite.

[`simulate`] is the other half: one workflow on a healthy cluster of any size, with a network whose
cards are shared and with [service times](Service), and the report of a real run.

It never decides anything that a node should decide, and it reads no clock.

```
let options = sim::CheckOptions {
    first_seed: 1, seeds: 1, mutant: None, threads: 1, stop_early: true,
};
let report = sim::check(&options);
assert_eq!(report.seeds, 1);
```
*/

mod agreed;
mod away;
mod check;
mod checkers;
mod client;
mod clock;
mod comings;
mod dice;
pub mod disk;
mod disk_faults;
mod effects;
mod faults;
pub mod global;
mod growth;
mod hammer;
mod kv_client;
mod life;
mod machine;
mod maxmin;
mod network;
mod options;
mod questions;
mod queue;
mod service;
mod stale;
pub mod stories;
mod study;
mod swarm;
mod truth;
mod workload;
mod world;

pub use check::{CheckOptions, CheckReport, SeedFailure, SeedReport, check, run_seed};
pub use checkers::Violation;
pub use checkers::linear::{History, OPERATIONS_MAX as HISTORY_OPERATIONS_MAX, Searched};
pub use checkers::stall::Stalled;
pub use client::{ClientPlan, Death};
pub use dice::Dice;
pub use disk::Disk;
pub use disk_faults::DiskFaults;
pub use faults::{Fault, FaultOptions};
pub use hammer::HammerPlan;
pub use kv_client::KvWait;
pub use maxmin::{MaxMin, Racks};
pub use network::NetworkOptions;
pub use options::{Action, AgreedHook, EffectHook, Grows, WorldOptions};
pub use service::{ByteTimes, Counts, Part, Prices, Service, ServiceError, fit};
pub use stories::{STORIES, Story};
pub use study::{
    Mark, Meter, MishapError, Mishaps, NetworkModel, Simulation, SimulationOptions, Struck, Submit,
    simulate, simulate_metered,
};
pub use truth::{KIND_FAILING, KIND_FLAKY, KIND_MENDED, KIND_PLAIN, KIND_POISON};
pub use workload::{Draft, DraftTask, Submission, Taste};
pub use world::World;

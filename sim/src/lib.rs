/*!
Simulated clusters: real [`node::Node`]s under virtual time. Network, disks, executors and clients
are models.

[`check()`] runs the fault world. All randomness comes from one seed, so a failing run can be
reproduced. In the first phase faults strike and only safety is checked. In the second phase the
faults end and progress is demanded. The checkers in `checkers/` state the invariants; the mutants
of [`scheduler::Mutant`] prove that the checkers find bugs.

[`simulate`] runs the scaling study: one workflow on a healthy cluster of any size. Nodes share the
bandwidth of their network cards and have [service times](Service). Its report is the same as that
of a real run.

[`global`] has schedulers with a complete view of the cluster, as baselines.

The simulator makes no decision of a node and reads no clock.

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

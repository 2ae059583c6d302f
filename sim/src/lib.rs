/*!
Simulated clusters: real [`node::Node`]s under virtual time. Network, disks, executors and clients
are models.

[`check()`] runs the fault world. All randomness comes from one seed, so a failing run can be
reproduced. In the first phase faults strike and only safety is checked. In the second phase the
faults end and progress is demanded. The checkers in `checkers/` state the invariants; the mutants
of [`scheduler::Mutant`] prove that the checkers find bugs.

[`simulate`] runs the scaling study: one workflow on a healthy cluster of any size. Nodes share the
bandwidth of their network cards and have [service times](CostModel). Its report is the same as that
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

mod check;
mod checkers;
mod clock;
mod consensus_log;
mod costs;
pub mod disk;
mod disk_faults;
mod effects;
mod event_queue;
mod expected;
mod faults;
pub mod global;
mod growth;
mod hot_key_client;
mod job_client;
mod kv_client;
mod lifecycle;
mod machine;
mod maxmin;
mod membership_churn;
mod network;
mod options;
mod permanent_loss;
mod query_client;
mod random_jobs;
mod rng;
mod scenario;
mod stale_map_client;
pub mod stories;
mod story_lines;
mod study;
mod world;

pub use check::{CheckOptions, CheckReport, SeedFailure, SeedReport, check, run_seed};
pub use checkers::Violation;
pub use checkers::linear::{History, OPERATIONS_MAX as HISTORY_OPERATIONS_MAX, Searched};
pub use checkers::stall::Stalled;
pub use costs::{ByteTimes, CostModel, CostModelError, Counts, Part, Prices, fit};
pub use disk::Disk;
pub use disk_faults::DiskFaults;
pub use expected::{KIND_FAILING, KIND_FLAKY, KIND_MENDED, KIND_PLAIN, KIND_POISON};
pub use faults::{Fault, FaultOptions};
pub use hot_key_client::HotKeyPlan;
pub use job_client::{ClientPlan, Death};
pub use kv_client::KvWait;
pub use maxmin::{MaxMin, Racks};
pub use network::NetworkOptions;
pub use options::{Action, AgreedHook, EffectHook, GrowthPlan, WorldOptions};
pub use random_jobs::{Draft, DraftTask, JobMix, Submission};
pub use rng::SimRng;
pub use stories::{STORIES, Story};
pub use study::{
    InjectedFailures, Mark, Meter, NetworkModel, NodeFailureError, NodeFailures, Simulation,
    SimulationOptions, Submit, simulate, simulate_metered,
};
pub use world::World;

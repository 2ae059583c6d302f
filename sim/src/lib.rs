/*!
Simulated clusters: real [`node::Node`]s under virtual time. Network, disks, executors and clients
are models.

[`check()`] runs the fault world. All randomness comes from one seed, so a failing run can be
reproduced. In the first phase faults strike and only safety is checked. In the second phase the
faults end and progress is demanded. The checkers in `checkers/` state the invariants; the mutants
of [`Mutant`] prove that the checkers find bugs.

[`simulate`] runs the scaling study: one workflow on a healthy cluster of any size. Nodes share the
bandwidth of their network cards and have [service times](CostModel). Its report is the same as that
of a real run.

[`baselines`] has schedulers with a complete view of the cluster, as baselines.

The simulator makes no decision of a node and reads no clock.

```
let options = sim::CheckOptions {
    first_seed: 1, seeds: 1, mutant: None, threads: 1, stop_early: true,
};
let report = sim::check(&options);
assert_eq!(report.seeds, 1);
```
*/

pub mod baselines;
mod checkers;
mod costs;
mod faults;
mod maxmin;
mod mutant;
mod rng;
mod scaling;
pub mod scenarios;
mod state;

pub use checkers::Violation;
pub use checkers::linear::{History, OPERATIONS_MAX as HISTORY_OPERATIONS_MAX, Searched};
pub use checkers::stall::Stalled;
pub use costs::{ByteTimes, CostModel, CostModelError, Counts, Part, Prices, fit};
pub use faults::check::{CheckOptions, CheckReport, SeedFailure, SeedReport, check, run_seed};
pub use faults::clients::hot_key_client::HotKeyPlan;
pub use faults::clients::job_client::{ClientPlan, Death, OpenPlan};
pub use faults::clients::kv_client::KvWait;
pub use faults::clients::random_jobs::{Draft, DraftTask, JobMix, Submission};
pub use faults::kinds::node_offers::NodeOffers;
pub use faults::network::NetworkOptions;
pub use faults::options::{Action, AgreedHook, EffectHook, GrowthPlan, WorldOptions};
pub use faults::strikes::disk_faults::DiskFaults;
pub use faults::strikes::injection::{Fault, FaultOptions};
pub use faults::world::World;
pub use maxmin::{MaxMin, Racks};
pub use mutant::Mutant;
pub use rng::SimRng;
pub use scaling::{
    Collected, InjectedFailures, Mark, Meter, NetworkModel, NodeFailureError, NodeFailures,
    Simulation, SimulationOptions, Submit, simulate, simulate_metered,
};
pub use scenarios::{SCENARIOS, Scenario};
pub use state::disk::{self, Disk};
pub use state::expected::{KIND_FAILING, KIND_FLAKY, KIND_MENDED, KIND_PLAIN, KIND_POISON};

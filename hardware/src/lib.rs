/*!
Hardware: the cpus, the memory and the GPUs that a node may offer, each with its source.

[`detect()`] reads files below one directory, `/` for this machine, and environment variables. Tests
give it small trees with the files of other machines. It runs no program.

| place | content |
|---|---|
| [`Machine`] | the directory and the variables |
| [`detect()`] | the offer, the source of each figure, the limits and the notices |
| [`available_memory()`] | the memory that is free at present |
| `cpus` | affinity mask, quota of control groups, NUMA groups, hyperthreads |
| `memory` | the least of machine, control groups and batch system |
| `gpus` | NVIDIA, AMD and Intel devices, and their NUMA groups |
*/

mod cgroups;
mod cpus;
mod detect;
mod gpus;
mod lists;
mod machine;
mod memory;

#[cfg(test)]
mod tests;

pub use cpus::Cores;
pub use detect::{DetectError, Detection, FoundPool, Limit, Settings, detect};
pub use machine::Machine;
pub use memory::available_memory;

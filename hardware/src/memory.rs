//! The memory of a node: the least of machine, control groups and batch system.

use crate::cgroups;
use crate::machine::Machine;

const MACHINE: &str = "/proc/meminfo";
const MIB: u64 = 1 << 20;

/// A limit of memory, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MemoryLimit {
    pub(crate) source: String,
    pub(crate) bytes: u64,
}

/// All limits, the machine's memory first.
pub(crate) fn limits(machine: &Machine) -> Vec<MemoryLimit> {
    let total = of_machine(machine, "MemTotal:");
    let total = total.map(|bytes| MemoryLimit { source: MACHINE.to_owned(), bytes });
    let group = cgroups::memory(machine);
    let group = group.map(|limit| MemoryLimit { source: limit.file, bytes: limit.value });
    total.into_iter().chain(group).chain(slurm(machine)).collect()
}

/// The available memory, in bytes: that of the machine or of a control group, whichever is less.
#[must_use]
pub fn available_memory(machine: &Machine) -> Option<u64> {
    let free_bytes = of_machine(machine, "MemAvailable:")?;
    Some(cgroups::available_memory(machine).map_or(free_bytes, |left| left.min(free_bytes)))
}

/// A figure of the machine, in bytes.
fn of_machine(machine: &Machine, name: &str) -> Option<u64> {
    let text = machine.read(MACHINE)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Slurm gives its limits in MiB; 0 is the memory of the whole node.
fn slurm(machine: &Machine) -> Vec<MemoryLimit> {
    let number = |name: &str| machine.variable(name)?.parse::<u64>().ok();
    let mut limits = Vec::new();
    let mut add = |source: String, mib: Option<u64>| {
        if let Some(bytes) = mib.and_then(|mib| mib.checked_mul(MIB)).filter(|&bytes| bytes > 0) {
            limits.push(MemoryLimit { source, bytes });
        }
    };
    add("SLURM_MEM_PER_NODE".to_owned(), number("SLURM_MEM_PER_NODE"));
    for (each, count) in
        [("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"), ("SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE")]
    {
        let product =
            number(each).zip(number(count)).and_then(|(each, count)| each.checked_mul(count));
        add(format!("{each} x {count}"), product);
    }
    limits
}

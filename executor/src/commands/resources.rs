//! The resources of an attempt: the variables of its command, and its memory limit.

use proto::work::{Granted, GrantedPool, Launch};

use crate::commands::environment::push_variable;

/// The pool of cpus, and that of memory in bytes.
const CPUS: &str = "cpus";
const MEMORY: &str = "memory";
/// Units of an amount in the amount 1.
const UNITS: u64 = 10_000;

/// The variables by which the libraries of a vendor see GPUs, by pool.
const GPU_VARIABLES: [(&str, &str); 4] = [
    ("gpus", "CUDA_VISIBLE_DEVICES"),
    ("gpus/nvidia", "CUDA_VISIBLE_DEVICES"),
    ("gpus/amd", "ROCR_VISIBLE_DEVICES"),
    ("gpus/intel", "ZE_AFFINITY_MASK"),
];

/// The number of cpus of an attempt.
pub(crate) fn cpus_of(launch: &Launch) -> u32 {
    let granted = launch.granted.as_deref().and_then(|granted| pool(granted, CPUS));
    granted.map_or(launch.spec.cpus, |cpus| cpus.indices.len() as u32).max(1)
}

/// The limit of an attempt's memory, in bytes; 0: none.
pub(crate) fn memory_limit_bytes(launch: &Launch) -> u64 {
    granted_memory_bytes(launch.granted.as_deref())
}

pub(crate) fn granted_memory_bytes(granted: Option<&Granted>) -> u64 {
    let memory = granted.and_then(|granted| pool(granted, MEMORY));
    memory.map_or(0, |memory| (memory.units / UNITS).max(1))
}

/// The names of the cpus of an attempt; none on a node that offers cpus alone.
pub(crate) fn cpu_names(granted: &Granted) -> &[String] {
    pool(granted, CPUS).map_or(&[], |cpus| &cpus.indices)
}

fn pool<'a>(granted: &'a Granted, name: &str) -> Option<&'a GrantedPool> {
    granted.pools.iter().find(|pool| pool.name == name)
}

/// Adds the variables of the resources. A task without GPUs sees none of those that its node
/// offers.
pub(crate) fn push_resources(
    out: &mut Vec<Vec<u8>>,
    offered: &[String],
    granted: Option<&Granted>,
) {
    let none = Granted::default();
    let granted = granted.unwrap_or(&none);
    push_gpus(out, offered, &granted.pools);
    for pool in &granted.pools {
        match pool.name == CPUS {
            true => push_variable(out, "STARLING_CPUS_LIST", &pool.indices.join(",")),
            false => push_pool(out, pool),
        }
    }
}

fn push_pool(out: &mut Vec<Vec<u8>>, pool: &GrantedPool) {
    let GrantedPool { variable, units, indices, .. } = pool;
    let value = if indices.is_empty() { amount(*units) } else { indices.join(",") };
    push_variable(out, &format!("STARLING_RESOURCE_{variable}"), &value);
}

/// The pools that a worker process is bound to while it lives: all but cpus and memory, which
/// differ from call to call.
pub(crate) fn bound_pools(granted: Option<&Granted>) -> impl Iterator<Item = &GrantedPool> {
    let pools = granted.into_iter().flat_map(|granted| &granted.pools);
    pools.filter(|pool| pool.name != CPUS && pool.name != MEMORY)
}

/// Adds the variables of a worker process with these pools.
pub(crate) fn push_bound(out: &mut Vec<Vec<u8>>, offered: &[String], pools: &[GrantedPool]) {
    push_gpus(out, offered, pools);
    pools.iter().for_each(|pool| push_pool(out, pool));
}

fn push_gpus(out: &mut Vec<Vec<u8>>, offered: &[String], pools: &[GrantedPool]) {
    for (name, variable) in GPU_VARIABLES {
        if !offered.iter().any(|offered| offered == name) {
            continue;
        }
        let gpus = pools.iter().find(|pool| pool.name == name);
        let indices = gpus.map_or(String::new(), |gpus| gpus.indices.join(","));
        if variable == "CUDA_VISIBLE_DEVICES" && is_numbered_by_address() {
            push_variable(out, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        }
        push_variable(out, variable, &indices);
    }
}

/// Whether the node has numbered its GPUs by PCI address. The numbers of a node with a variable of
/// its own are those of that variable, in the order in which its CUDA counts.
fn is_numbered_by_address() -> bool {
    let has = |variable: &str| std::env::var_os(variable).is_some();
    !has("CUDA_VISIBLE_DEVICES") && !has("CUDA_DEVICE_ORDER")
}

/// An amount as a decimal number.
fn amount(units: u64) -> String {
    let text = format!("{}.{:04}", units / UNITS, units % UNITS);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The reason of the end of an attempt that exceeded its memory.
pub(crate) fn too_much_memory(used_bytes: u64, launch: &Launch) -> String {
    format!("memory: {}", memory_of_limit(used_bytes, memory_limit_bytes(launch)))
}

/// How much memory was used, and how much was asked for.
pub(crate) fn memory_of_limit(used_bytes: u64, limit_bytes: u64) -> String {
    format!("{} of {} asked", size(used_bytes), size(limit_bytes))
}

/// A size for people, with one decimal.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, factor)| bytes >= *factor) {
        Some((unit, factor)) if bytes.is_multiple_of(*factor) => {
            format!("{} {unit}", bytes / factor)
        }
        Some((unit, factor)) => format!("{:.1} {unit}", bytes as f64 / *factor as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_sizes_are_short() {
        assert_eq!(amount(20_000), "2");
        assert_eq!(amount(2_500), "0.25");
        assert_eq!(size(2 << 30), "2 GiB");
        assert_eq!(size((39 << 30) / 10), "3.9 GiB");
        assert_eq!(size(100), "100 bytes");
        assert_eq!(memory_of_limit(3 << 19, 1 << 20), "1.5 MiB of 1 MiB asked");
    }
}

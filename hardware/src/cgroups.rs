//! Limits of control groups, of version 1 and 2.
//!
//! A container may see its own group as the root of the file system of groups, while
//! `/proc/self/cgroup` names the path on the host. So the root is always read as well.

use crate::machine::Machine;

/// A limit, and the file that has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CgroupLimit<T> {
    pub(crate) value: T,
    pub(crate) file: String,
}

/// Version 1 shows "no limit" as the largest multiple of a page; no machine has this much memory.
const UNLIMITED: u64 = 1 << 60;

/// The directories of this process's groups for a controller, the innermost first, with true for
/// version 2.
fn directories(machine: &Machine, controller: &str) -> Vec<(String, bool)> {
    let mut directories = Vec::new();
    for line in machine.read("/proc/self/cgroup").unwrap_or_default().lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(names), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if group.split('/').any(|part| part == "..") {
            continue;
        }
        let roots = match names {
            "" => vec![("/sys/fs/cgroup".to_owned(), true)],
            names if names.split(',').any(|name| name == controller) => {
                let named =
                    [names, controller].map(|name| (format!("/sys/fs/cgroup/{name}"), false));
                named.to_vec()
            }
            _ => continue,
        };
        for (root, is_second) in roots {
            let mut group = group.trim_end_matches('/');
            loop {
                let directory = format!("{root}{group}");
                if !directories.contains(&(directory.clone(), is_second)) {
                    directories.push((directory, is_second));
                }
                let Some((parent, _)) = group.rsplit_once('/') else { break };
                group = parent;
            }
        }
    }
    directories
}

/// The smallest limit of memory, in bytes.
pub(crate) fn memory(machine: &Machine) -> Option<CgroupLimit<u64>> {
    let limits = directories(machine, "memory").into_iter().flat_map(|(directory, is_second)| {
        // A group over `memory.high` is throttled without end, so that it limits as well.
        let names: &[&str] =
            if is_second { &["memory.max", "memory.high"] } else { &["memory.limit_in_bytes"] };
        names.iter().map(move |name| format!("{directory}/{name}")).collect::<Vec<_>>()
    });
    let limits =
        limits.filter_map(|file| Some(CgroupLimit { value: machine.number(&file)?, file }));
    limits.filter(|limit| limit.value < UNLIMITED).min_by_key(|limit| limit.value)
}

/// The memory that the limits of the groups leave, in bytes. A file in the cache counts as free
/// while nothing uses it.
pub(crate) fn available_memory(machine: &Machine) -> Option<u64> {
    let left = directories(machine, "memory").into_iter().filter_map(|(directory, is_second)| {
        let [limit, usage, cache] = match is_second {
            true => ["memory.max", "memory.current", "inactive_file "],
            false => ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "],
        };
        let limit_bytes = machine.number(&format!("{directory}/{limit}"))?;
        let used_bytes = machine.number(&format!("{directory}/{usage}"))?;
        let stat = machine.read(&format!("{directory}/memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix(cache)?.parse::<u64>().ok());
        let used_bytes = used_bytes.saturating_sub(cached.unwrap_or(0));
        Some(limit_bytes.saturating_sub(used_bytes))
    });
    left.min()
}

/// The smallest quota of cpu time, in thousandths of a cpu.
pub(crate) fn cpu_quota(machine: &Machine) -> Option<CgroupLimit<u64>> {
    let quotas = directories(machine, "cpu").into_iter().filter_map(|(directory, is_second)| {
        let (quota, period, file) = if is_second {
            let file = format!("{directory}/cpu.max");
            let text = machine.read(&file)?;
            let (quota, period) = text.split_once(' ')?;
            (quota.parse::<u64>().ok()?, period.trim().parse::<u64>().ok()?, file)
        } else {
            let file = format!("{directory}/cpu.cfs_quota_us");
            // -1: no quota.
            let quota = machine.number(&file)?;
            (quota, machine.number(&format!("{directory}/cpu.cfs_period_us"))?, file)
        };
        let value = quota.checked_mul(1000)?.checked_div(period)?;
        Some(CgroupLimit { value, file })
    });
    quotas.min_by_key(|quota| quota.value)
}

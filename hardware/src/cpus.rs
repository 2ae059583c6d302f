//! The cpus of a node, in the groups of the machine's memory.

use std::collections::{BTreeMap, BTreeSet};

use resources::limits::{GROUPS_MAX, INDICES_MAX};

use crate::cgroups;
use crate::lists::{list, numbers};
use crate::machine::Machine;

const STATUS: &str = "/proc/self/status";
const ONLINE: &str = "/sys/devices/system/cpu/online";
const NODES: &str = "/sys/devices/system/node";

/// Which hyperthreads count as cpus.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Cores {
    /// Every hyperthread.
    #[default]
    Logical,
    /// The first usable hyperthread of each core.
    Physical,
}

/// The place of a cpu in the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    socket: u32,
    core: u32,
}

/// A set of cpus that a limit leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CpuLimit {
    pub(crate) source: String,
    pub(crate) cpus: usize,
    pub(crate) text: String,
}

/// The cpus of a node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct FoundCpus {
    /// By group; a group has the number of its NUMA node if there is one.
    pub(crate) groups: Vec<(Option<u32>, Vec<u32>)>,
    pub(crate) source: String,
    /// The kind of the groups: NUMA nodes or sockets.
    pub(crate) grouping: &'static str,
    pub(crate) limits: Vec<CpuLimit>,
    pub(crate) notices: Vec<String>,
}

pub(crate) fn find(machine: &Machine, cores: Cores) -> FoundCpus {
    let mut found = FoundCpus::default();
    let online = machine.read(ONLINE).and_then(|text| numbers(&text));
    let mask = mask(machine);
    let mut cpus = match (&mask, &online) {
        (Some(mask), Some(online)) => mask & online,
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) => BTreeSet::new(),
    };
    found.source = if mask.is_some() { STATUS } else { ONLINE }.to_owned();
    if let Some(online) = &online {
        found.limit(ONLINE, online.len(), format!("online: {}", list(online)));
    }
    if let Some(mask) = &mask {
        found.limit(STATUS, cpus.len(), format!("affinity mask: {}", list(mask)));
    }
    if cpus.is_empty() {
        found.notices.push("no cpus found; the node offers one".to_owned());
        cpus.insert(0);
    }
    found.notices.extend(narrow_mask(machine, cpus.len(), online.as_ref()));
    let places: BTreeMap<u32, Place> = cpus.iter().map(|&cpu| (cpu, place(machine, cpu))).collect();
    if cores == Cores::Physical {
        let mut seen = BTreeSet::new();
        cpus.retain(|cpu| seen.insert(places[cpu]));
        let source = "--cores physical".to_owned();
        found.limit(&source, cpus.len(), format!("one hyperthread of each core: {}", list(&cpus)));
    }
    if let Some(quota) = cgroups::cpu_quota(machine) {
        let most = usize::try_from(quota.value / 1000).unwrap_or(usize::MAX).max(1);
        cpus = first_cores(&cpus, &places, most);
        let text = format!("quota: {} cpus", thousandths(quota.value));
        found.limit(&quota.file, cpus.len().min(most), text);
    }
    found.bound(&mut cpus);
    found.group(machine, &cpus, &places);
    found
}

/// The affinity mask of this process.
fn mask(machine: &Machine) -> Option<BTreeSet<u32>> {
    let status = machine.read(STATUS)?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    numbers(line).filter(|mask| !mask.is_empty())
}

/// A notice if the mask and the batch system disagree, or if the mask has one cpu of many.
fn narrow_mask(machine: &Machine, count: usize, online: Option<&BTreeSet<u32>>) -> Option<String> {
    let granted: Option<usize> =
        machine.variable("SLURM_CPUS_ON_NODE").and_then(|text| text.parse().ok());
    match (granted, online.map_or(count, BTreeSet::len)) {
        (Some(granted), _) if granted < count => Some(format!(
            "SLURM_CPUS_ON_NODE is {granted}, and the affinity mask has {count} cpus; the mask \
             counts"
        )),
        (_, all) if count == 1 && all > 1 => Some(format!(
            "1 of {all} cpus by the affinity mask; a launcher binds more with -c or --cpu-bind=none"
        )),
        _ => None,
    }
}

fn place(machine: &Machine, cpu: u32) -> Place {
    let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
    let read = |name: &str| {
        machine.number(&format!("{topology}/{name}")).and_then(|number| u32::try_from(number).ok())
    };
    // The first hyperthread of a core names the core on every machine; numbers of cores do not.
    let siblings = ["thread_siblings_list", "core_cpus_list"];
    let siblings =
        siblings.iter().find_map(|name| numbers(&machine.read(&format!("{topology}/{name}"))?));
    let core = siblings.and_then(|siblings| siblings.first().copied()).unwrap_or(cpu);
    Place { socket: read("physical_package_id").unwrap_or(0), core }
}

/// The first `most` cpus, cores before their further hyperthreads.
fn first_cores(cpus: &BTreeSet<u32>, places: &BTreeMap<u32, Place>, most: usize) -> BTreeSet<u32> {
    let mut seen = BTreeSet::new();
    let (first, further): (Vec<u32>, Vec<u32>) =
        cpus.iter().partition(|cpu| seen.insert(places[cpu]));
    first.into_iter().chain(further).take(most).collect()
}

fn thousandths(value: u64) -> String {
    let text = format!("{}.{:03}", value / 1000, value % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl FoundCpus {
    fn limit(&mut self, source: &str, cpus: usize, text: String) {
        self.limits.push(CpuLimit { source: source.to_owned(), cpus, text });
    }

    fn bound(&mut self, cpus: &mut BTreeSet<u32>) {
        if cpus.len() > INDICES_MAX {
            let notice = format!("{} cpus found; the node offers {INDICES_MAX}", cpus.len());
            self.notices.push(notice);
            *cpus = cpus.iter().take(INDICES_MAX).copied().collect();
        }
    }

    /// Groups by NUMA node; by socket if the kernel knows one node at most.
    fn group(&mut self, machine: &Machine, cpus: &BTreeSet<u32>, places: &BTreeMap<u32, Place>) {
        let mut groups: Vec<(Option<u32>, Vec<u32>)> = Vec::new();
        let mut rest = cpus.clone();
        for (node, cpus) in numa_nodes(machine) {
            let here: Vec<u32> = rest.intersection(&cpus).copied().collect();
            here.iter().for_each(|cpu| _ = rest.remove(cpu));
            if !here.is_empty() {
                groups.push((Some(node), here));
            }
        }
        self.grouping = "NUMA nodes";
        let of_sockets = sockets(cpus, places);
        if groups.len() <= 1 && of_sockets.len() > 1 || groups.is_empty() {
            (groups, rest) = (of_sockets, BTreeSet::new());
            self.grouping = "sockets";
        }
        if !rest.is_empty() {
            groups.push((None, rest.into_iter().collect()));
        }
        if groups.len() > GROUPS_MAX {
            self.notices.push(format!("{} groups of cpus found; sockets count", groups.len()));
            groups = sockets(cpus, places);
            self.grouping = "sockets";
        }
        if groups.len() > GROUPS_MAX {
            groups = vec![(None, cpus.iter().copied().collect())];
        }
        self.groups = groups;
    }
}

/// The NUMA nodes that have cpus.
fn numa_nodes(machine: &Machine) -> Vec<(u32, BTreeSet<u32>)> {
    let number = |name: &String| name.strip_prefix("node")?.parse::<u32>().ok();
    let mut nodes: Vec<u32> = machine.names(NODES).iter().filter_map(number).collect();
    nodes.sort_unstable();
    let cpus = |node: u32| numbers(&machine.read(&format!("{NODES}/node{node}/cpulist"))?);
    let with_cpus = nodes.into_iter().filter_map(|node| Some((node, cpus(node)?)));
    with_cpus.filter(|(_, cpus)| !cpus.is_empty()).collect()
}

fn sockets(cpus: &BTreeSet<u32>, places: &BTreeMap<u32, Place>) -> Vec<(Option<u32>, Vec<u32>)> {
    let mut sockets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in cpus {
        sockets.entry(places[cpu].socket).or_default().push(*cpu);
    }
    sockets.into_values().map(|cpus| (None, cpus)).collect()
}

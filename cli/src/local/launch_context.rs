//! Derives a node's place, its addresses and its share of the CPUs from the way it was started.

use std::net::{Ipv4Addr, ToSocketAddrs};

use daemon::launcher::{Launcher, detect_here};
use daemon::{AddressSelector, Listen};
use verb::Context;
use verb::errors::Failure;

/// The place that the command line gives a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchOptions {
    pub(crate) rank: Option<u32>,
    pub(crate) expect: Option<u32>,
}

/// The launcher that started this process, if one did. An incomplete one is refused, unless the
/// command line gives the missing values.
pub(crate) fn find(told: LaunchOptions) -> Result<Option<Launcher>, Failure> {
    detect_here().or_else(|error| match (told.expect, told.rank.or(error.rank)) {
        (Some(size), Some(rank)) if rank < size => Ok(Some(Launcher {
            name: error.name,
            rank,
            size,
            launch: String::new(),
            local_size: None,
            hosts: None,
        })),
        _ => Err(Failure::refused(error.to_string()).hint(
            "give --rank R and --expect N: this node's place from 0, and how many there are",
        )),
    })
}

/// The addresses at which the node listens. Without a given one the node listens on all addresses
/// under a launcher of several machines, with `--interface`, or if the address to join is no
/// loopback. Otherwise it listens only on this machine.
pub(crate) fn listen(
    told: Option<Listen>,
    interfaces: &[AddressSelector],
    launcher: Option<&Launcher>,
    join: Option<&str>,
) -> Result<Listen, Failure> {
    let auto = || Listen::Auto { port: 0, only: Vec::new() };
    let here = |port| Listen::At((Ipv4Addr::LOCALHOST, port).into());
    let is_far = launcher.is_some() || join.is_some_and(is_beyond_loopback);
    let by_default = if is_far || !interfaces.is_empty() { auto() } else { here(0) };
    match told.unwrap_or(by_default) {
        Listen::At(_) if !interfaces.is_empty() => {
            let text = "--interface is for --listen auto, and --listen names an address";
            Err(Failure::usage(text).hint("leave one of them out"))
        }
        Listen::Auto { port, .. }
            if interfaces.is_empty() && launcher.is_some_and(Launcher::is_on_one_host) =>
        {
            Ok(here(port))
        }
        Listen::Auto { port, .. } => Ok(Listen::Auto { port, only: interfaces.to_vec() }),
        at @ Listen::At(_) => Ok(at),
    }
}

/// True if nodes at this address listen for other machines. An unknown name is reported later.
fn is_beyond_loopback(join: &str) -> bool {
    let found = security::race::each(join).filter_map(|it| it.to_socket_addrs().ok()).flatten();
    found.into_iter().any(|it| !security::dial::is_local(it))
}

/// The CPUs of a process, and of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cpus {
    /// The CPUs in the affinity mask of this process.
    mask: u32,
    /// The CPUs that this process may use: those of the mask, within its quota.
    own: u32,
    /// The CPUs that all processes of the job on this machine may use together, if known.
    job: Option<u32>,
    machine: u32,
}

impl Cpus {
    fn look() -> Self {
        let own = verb::local::plan::default_slots(1);
        let read =
            |path: &str| Some(count(&std::fs::read_to_string(path).ok()?)).filter(|&n| n > 0);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let mask = mask.map_or(own, count).max(own);
        let machine = read("/sys/devices/system/cpu/online").unwrap_or(mask).max(mask);
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let job = sets(&groups).iter().find_map(|path| read(path)).map(|job| job.max(mask));
        Self { mask, own, job, machine }
    }

    /// The share of one of `ranks` processes on this machine. If each is bound to its own CPUs, it
    /// has those. Otherwise all divide the CPUs that they share.
    fn share(self, ranks: u32) -> u32 {
        let have_room = |job| self.mask.saturating_mul(ranks) <= job;
        // All ranks share a quota, even one that is as large as the mask of each.
        let is_bound = self.mask < self.machine && self.job.is_some_and(have_room);
        if is_bound && self.own == self.mask { self.own } else { (self.own / ranks).max(1) }
    }
}

/// The files with the CPUs of the job, by the control groups of this process.
fn sets(groups: &str) -> Vec<String> {
    let of = |line: &str| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        match controllers {
            "" => Some(vec![format!("/sys/fs/cgroup{group}/cpuset.cpus.effective")]),
            it if it.split(',').any(|name| name == "cpuset") => {
                let dir = format!("/sys/fs/cgroup/cpuset{group}");
                Some(vec![format!("{dir}/cpuset.effective_cpus"), format!("{dir}/cpuset.cpus")])
            }
            _ => None,
        }
    };
    groups.lines().filter_map(of).flatten().collect()
}

/// The number of CPUs in a list of the kernel: "0-3,7".
fn count(list: &str) -> u32 {
    let one = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
        range.map_or(0, |(first, last)| (last + 1).saturating_sub(first))
    };
    list.trim().split(',').map(one).sum()
}

/// The default executing threads of this node.
pub(crate) fn slots(context: &Context, launcher: Option<&Launcher>) -> u32 {
    let Some(launcher) = launcher else { return verb::local::plan::default_slots(1) };
    let cpus = Cpus::look();
    let (slots, notice) = share(cpus, launcher);
    if let Some(notice) = notice {
        context.output.note(&notice);
    }
    slots
}

fn share(cpus: Cpus, launcher: &Launcher) -> (u32, Option<String>) {
    let ranks = launcher.local_size.unwrap_or(1);
    let slots = cpus.share(ranks);
    let Cpus { mask, own, machine, .. } = cpus;
    let notice = if mask == 1 && machine > 1 {
        Some(format!("notice: 1 of {machine} CPUs by the affinity mask; see -c, --cpu-bind=none"))
    } else if slots < own {
        Some(format!(
            "notice: {ranks} ranks of {} share this machine's {own} CPUs: {slots} for this one; \
             --slots sets another number",
            launcher.name
        ))
    } else {
        None
    };
    (slots, notice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(size: u32, local_size: Option<u32>, hosts: Option<u32>) -> Launcher {
        let launch = String::new();
        Launcher { name: "slurm", rank: 0, size, launch, local_size, hosts }
    }

    #[test]
    fn a_launcher_on_several_machines_means_all_addresses() {
        let auto = |only| Listen::Auto { port: 0, only };
        let here = Listen::At((Ipv4Addr::LOCALHOST, 0).into());
        let several = launcher(4, Some(1), Some(4));
        let one = launcher(4, Some(4), None);
        let unknown = launcher(4, None, None);
        assert_eq!(listen(None, &[], None, None).unwrap(), here);
        assert_eq!(listen(None, &[], Some(&several), None).unwrap(), auto(vec![]));
        assert_eq!(listen(None, &[], Some(&unknown), None).unwrap(), auto(vec![]));
        assert_eq!(listen(None, &[], Some(&one), None).unwrap(), here);
        let told: Listen = "auto:7".parse().unwrap();
        assert_eq!(listen(Some(told.clone()), &[], None, None).unwrap(), told);
        let port = Listen::At((Ipv4Addr::LOCALHOST, 7).into());
        assert_eq!(listen(Some(told), &[], Some(&one), None).unwrap(), port);
        let only: Vec<AddressSelector> = vec!["hsn0".parse().unwrap()];
        assert_eq!(listen(None, &only, None, None).unwrap(), auto(only.clone()));
        assert_eq!(listen(None, &only, Some(&one), None).unwrap(), auto(only.clone()));
        let at: Listen = "10.0.0.1:0".parse().unwrap();
        assert_eq!(listen(Some(at.clone()), &[], Some(&several), None).unwrap(), at);
        assert!(listen(Some(at), &only, None, None).is_err());
    }

    #[test]
    fn a_node_that_joins_by_a_network_address_listens_on_that_network() {
        let auto = Listen::Auto { port: 0, only: Vec::new() };
        let here = Listen::At((Ipv4Addr::LOCALHOST, 0).into());
        let by = |join| listen(None, &[], None, Some(join)).unwrap();
        assert_eq!(by("192.0.2.1:7"), auto);
        assert_eq!(by("127.0.0.1:7,192.0.2.1:7"), auto);
        assert_eq!(by("127.0.0.1:7"), here);
        assert_eq!(by("localhost:7"), here);
        assert_eq!(by("nonsense"), here, "the start says what is wrong with it");
        let told = listen(Some(here.clone()), &[], None, Some("192.0.2.1:7")).unwrap();
        assert_eq!(told, here);
    }

    #[test]
    fn cpus_are_listed_by_the_kernel() {
        assert_eq!((count("0-3,7\n"), count("5"), count(""), count("0-127")), (5, 1, 0, 128));
    }

    #[test]
    fn both_versions_of_control_groups_tell_the_set() {
        assert_eq!(sets("0::/job_5\n"), ["/sys/fs/cgroup/job_5/cpuset.cpus.effective"]);
        let first = "9:cpu,cpuacct:/a\n4:cpuset:/slurm/job_5\n1:name=systemd:/b\n";
        let dir = "/sys/fs/cgroup/cpuset/slurm/job_5";
        let files = [format!("{dir}/cpuset.effective_cpus"), format!("{dir}/cpuset.cpus")];
        assert_eq!(sets(first), files);
        assert!(sets("").is_empty());
    }

    #[test]
    fn ranks_of_one_machine_divide_its_cpus_unless_each_is_bound() {
        let cpus = |own, job| Cpus { mask: own, own, job: Some(job), machine: 128 };
        assert_eq!(cpus(128, 128).share(1), 128);
        assert_eq!(cpus(128, 128).share(4), 32);
        assert_eq!(cpus(32, 128).share(4), 32, "each is bound to a quarter");
        assert_eq!(cpus(32, 32).share(4), 8, "all are confined to the same 32");
        assert_eq!(cpus(128, 128).share(1000), 1);
        let unknown = Cpus { job: None, ..cpus(32, 128) };
        assert_eq!(unknown.share(4), 8, "nothing tells whether they are bound");
        let quota = Cpus { mask: 128, ..cpus(16, 128) };
        assert_eq!(quota.share(4), 4, "a quota binds no rank");
    }

    #[test]
    fn the_notice_names_unexpected_values() {
        let cpus = |own| Cpus { mask: own, own, job: Some(128), machine: 128 };
        assert_eq!(share(cpus(128), &launcher(4, Some(1), None)), (128, None));
        let (slots, notice) = share(cpus(128), &launcher(4, Some(4), None));
        assert!(slots == 32 && notice.unwrap().contains("4 ranks of slurm"));
        let (slots, notice) = share(cpus(1), &launcher(4, Some(4), None));
        assert_eq!(slots, 1);
        assert!(
            notice.unwrap().contains("1 of 128 CPUs by the affinity mask; see -c, --cpu-bind=none")
        );
    }
}

//! Cpus of recorded machines.

use super::{Tree, deciding, pool};
use crate::{Cores, Settings};

const GROUP: &str = "/sys/fs/cgroup";

#[test]
fn two_sockets_with_hyperthreads_are_two_groups() {
    let found = Tree::two_sockets("0-7").detect();
    assert_eq!(pool(&found, "cpus"), "cpus=[[0-1,4-5],[2-3,6-7]]");
    let cpus = &found.pools[0];
    assert_eq!(cpus.grouping.as_deref(), Some("NUMA nodes"));
    assert_eq!(cpus.numa, [Some(0), Some(1)]);
    assert_eq!(cpus.source, "/proc/self/status");
    assert!(found.notices.is_empty());
}

#[test]
fn physical_cores_have_one_hyperthread_each() {
    let settings = Settings { cores: Cores::Physical, ..Settings::default() };
    let found = Tree::two_sockets("0-7").detect_with(&settings);
    assert_eq!(pool(&found, "cpus"), "cpus=[[0-1],[2-3]]");
    assert_eq!(deciding(&found, "cpus"), "--cores physical");
    // The mask has only the second hyperthread of core 0.
    let found = Tree::two_sockets("4-5,1").detect_with(&settings);
    assert_eq!(pool(&found, "cpus"), "cpus=[1,4]");
}

#[test]
fn the_affinity_mask_decides() {
    let found = Tree::two_sockets("2-3,6").detect();
    assert_eq!(pool(&found, "cpus"), "cpus=[2-3,6]");
    assert_eq!(found.pools[0].numa, [Some(1)]);
    assert_eq!(deciding(&found, "cpus"), "/proc/self/status");
}

#[test]
fn cpus_that_are_offline_are_not_offered() {
    let tree = Tree::new().cpus("0-7", "0,2-3,5").core(0, 0, "0").core(2, 0, "2");
    let found = tree.detect();
    assert_eq!(pool(&found, "cpus"), "cpus=[0,2-3,5]");
    assert_eq!(deciding(&found, "cpus"), "/sys/devices/system/cpu/online");
}

#[test]
fn without_numa_nodes_sockets_are_groups() {
    let mut tree = Tree::new().cpus("0-3", "0-3");
    for cpu in 0..4 {
        tree = tree.core(cpu, 7 - cpu / 2, &cpu.to_string());
    }
    let found = tree.detect();
    assert_eq!(pool(&found, "cpus"), "cpus=[[2-3],[0-1]]");
    assert_eq!(found.pools[0].grouping.as_deref(), Some("sockets"));
    // One NUMA node for both sockets shows nothing either.
    let found = tree.numa(0, "0-3").detect();
    assert_eq!(pool(&found, "cpus"), "cpus=[[2-3],[0-1]]");
}

#[test]
fn a_small_machine_has_one_group() {
    let found = Tree::new().cpus("0-3", "0-3").numa(0, "0-3").detect();
    assert_eq!(pool(&found, "cpus"), "cpus=[0-3]");
    let bare = Tree::new().file("/proc/self/status", "Cpus_allowed_list:\t0-1").detect();
    assert_eq!(pool(&bare, "cpus"), "cpus=[0-1]");
}

#[test]
fn numa_nodes_without_cpus_are_no_groups() {
    let mut tree = Tree::new().cpus("0-3", "0-3").numa(0, "0-3");
    for node in 1..34 {
        tree = tree.numa(node, "");
    }
    assert_eq!(pool(&tree.detect(), "cpus"), "cpus=[0-3]");
}

#[test]
fn a_quota_of_version_2_takes_whole_cores_first() {
    let tree = Tree::two_sockets("0-7").files(&[
        ("/proc/self/cgroup", "0::/user/job"),
        (&format!("{GROUP}/user/cpu.max"), "350000 100000"),
        (&format!("{GROUP}/user/job/cpu.max"), "max 100000"),
    ]);
    let found = tree.detect();
    assert_eq!(pool(&found, "cpus"), "cpus=[[0-1],[2]]");
    assert_eq!(deciding(&found, "cpus"), format!("{GROUP}/user/cpu.max"));
    assert!(found.pools[0].limits.iter().any(|limit| limit.text == "quota: 3.5 cpus"));
}

#[test]
fn a_quota_below_one_cpu_leaves_one() {
    let tree = Tree::two_sockets("0-7")
        .files(&[("/proc/self/cgroup", "0::/"), (&format!("{GROUP}/cpu.max"), "20000 100000")]);
    assert_eq!(pool(&tree.detect(), "cpus"), "cpus=[0]");
}

#[test]
fn a_quota_of_version_1_counts_along_the_path() {
    let dir = format!("{GROUP}/cpu,cpuacct/slurm");
    let tree = Tree::two_sockets("0-7").files(&[
        (
            "/proc/self/cgroup",
            "4:memory:/slurm/job_1\n2:cpu,cpuacct:/slurm/job_1\n1:name=systemd:/",
        ),
        (&format!("{dir}/cpu.cfs_quota_us"), "600000"),
        (&format!("{dir}/cpu.cfs_period_us"), "100000"),
        (&format!("{dir}/job_1/cpu.cfs_quota_us"), "-1"),
        (&format!("{dir}/job_1/cpu.cfs_period_us"), "100000"),
    ]);
    let found = tree.detect();
    assert_eq!(pool(&found, "cpus"), "cpus=[[0-1,4-5],[2-3]]");
    assert_eq!(deciding(&found, "cpus"), format!("{dir}/cpu.cfs_quota_us"));
}

#[test]
fn a_quota_larger_than_the_mask_changes_nothing() {
    let tree = Tree::two_sockets("0-7")
        .files(&[("/proc/self/cgroup", "0::/"), (&format!("{GROUP}/cpu.max"), "1600000 100000")]);
    assert_eq!(pool(&tree.detect(), "cpus"), "cpus=[[0-1,4-5],[2-3,6-7]]");
}

#[test]
fn unexpected_numbers_of_cpus_are_noticed() {
    let one = Tree::two_sockets("3").detect();
    assert!(one.notices[0].starts_with("1 of 8 cpus by the affinity mask"), "{:?}", one.notices);
    let more = Tree::two_sockets("0-7").variable("SLURM_CPUS_ON_NODE", "4").detect();
    assert!(more.notices[0].starts_with("SLURM_CPUS_ON_NODE is 4, and the affinity mask has 8"));
    let none = Tree::new().detect();
    assert_eq!((pool(&none, "cpus"), none.notices.len()), ("cpus=[0]".to_owned(), 1));
}

#[test]
fn damaged_files_are_as_absent_ones() {
    let tree = Tree::two_sockets("0-7").files(&[
        ("/proc/self/cgroup", "nonsense\n0::/../../etc\n::\n"),
        ("/sys/devices/system/node/node0/cpulist", "0-99999999"),
        ("/sys/devices/system/node/nodes/cpulist", "0"),
        (&format!("{GROUP}/cpu.max"), "1 0"),
    ]);
    assert_eq!(pool(&tree.detect(), "cpus"), "cpus=[[0-1,4-5],[2-3,6-7]]");
}

//! Memory of recorded machines.

use super::{Tree, deciding, pool};
use crate::available_memory;

const GROUP: &str = "/sys/fs/cgroup";

fn machine() -> Tree {
    Tree::two_sockets("0-7")
}

#[test]
fn the_machine_has_all_its_memory_without_a_limit() {
    let found = machine().detect();
    assert_eq!(pool(&found, "memory"), "memory=sum(64GiB)");
    assert_eq!(deciding(&found, "memory"), "/proc/meminfo");
    assert_eq!(pool(&Tree::new().detect(), "memory"), "none");
}

#[test]
fn the_least_limit_along_the_path_of_version_2_counts() {
    let tree = machine().files(&[
        ("/proc/self/cgroup", "0::/a/b/c"),
        (&format!("{GROUP}/a/memory.max"), "17179869184"),
        (&format!("{GROUP}/a/b/memory.max"), "max"),
        (&format!("{GROUP}/a/b/c/memory.max"), "34359738368"),
    ]);
    let found = tree.detect();
    assert_eq!(pool(&found, "memory"), "memory=sum(16GiB)");
    assert_eq!(deciding(&found, "memory"), format!("{GROUP}/a/memory.max"));
    let high = tree.file(&format!("{GROUP}/a/b/memory.high"), "8589934592").detect();
    assert_eq!(pool(&high, "memory"), "memory=sum(8GiB)");
}

#[test]
fn a_container_reads_the_root_of_its_own_groups() {
    let tree = machine().files(&[
        ("/proc/self/cgroup", "0::/docker/1234"),
        (&format!("{GROUP}/memory.max"), "4294967296"),
    ]);
    assert_eq!(pool(&tree.detect(), "memory"), "memory=sum(4GiB)");
}

#[test]
fn version_1_has_a_number_for_no_limit() {
    let dir = format!("{GROUP}/memory/slurm/uid_1/job_2");
    let tree = machine().files(&[
        ("/proc/self/cgroup", "11:cpuset:/\n9:memory:/slurm/uid_1/job_2\n0::/"),
        (&format!("{GROUP}/memory/memory.limit_in_bytes"), "9223372036854771712"),
        (&format!("{dir}/memory.limit_in_bytes"), "9223372036854771712"),
    ]);
    assert_eq!(pool(&tree.detect(), "memory"), "memory=sum(64GiB)");
    let limited = tree.file(&format!("{dir}/memory.limit_in_bytes"), "2147483648").detect();
    assert_eq!(pool(&limited, "memory"), "memory=sum(2GiB)");
    assert_eq!(deciding(&limited, "memory"), format!("{dir}/memory.limit_in_bytes"));
}

#[test]
fn slurm_limits_by_node_by_cpu_and_by_gpu() {
    let node = machine().variable("SLURM_MEM_PER_NODE", "3072").detect();
    assert_eq!(pool(&node, "memory"), "memory=sum(3GiB)");
    assert_eq!(deciding(&node, "memory"), "SLURM_MEM_PER_NODE");
    let cpu = machine().variable("SLURM_MEM_PER_CPU", "1024").variable("SLURM_CPUS_ON_NODE", "8");
    assert_eq!(pool(&cpu.detect(), "memory"), "memory=sum(8GiB)");
    assert_eq!(deciding(&cpu.detect(), "memory"), "SLURM_MEM_PER_CPU x SLURM_CPUS_ON_NODE");
    let gpu = machine().variable("SLURM_MEM_PER_GPU", "2048").variable("SLURM_GPUS_ON_NODE", "2");
    assert_eq!(pool(&gpu.detect(), "memory"), "memory=sum(4GiB)");
    let whole = machine().variable("SLURM_MEM_PER_NODE", "0").detect();
    assert_eq!(pool(&whole, "memory"), "memory=sum(64GiB)", "0 is the whole node");
    let odd = machine().variable("SLURM_MEM_PER_NODE", "many").detect();
    assert_eq!(pool(&odd, "memory"), "memory=sum(64GiB)");
}

#[test]
fn a_group_may_leave_less_memory_than_the_machine() {
    let free = |tree: &Tree| available_memory(&tree.machine());
    let dir = format!("{GROUP}/a");
    let tree = Tree::new().file("/proc/meminfo", "MemTotal: 64 kB\nMemAvailable:  32 kB");
    assert_eq!(free(&tree), Some(32 << 10));
    let tree = tree.files(&[
        ("/proc/self/cgroup", "0::/a/b"),
        (&format!("{dir}/memory.max"), "20000"),
        (&format!("{dir}/memory.current"), "15000"),
        (&format!("{dir}/b/memory.max"), "max"),
        (&format!("{dir}/b/memory.current"), "14000"),
    ]);
    assert_eq!(free(&tree), Some(5_000));
    let tree = tree.file(&format!("{dir}/memory.stat"), "anon 1\ninactive_file 10000");
    assert_eq!(free(&tree), Some(15_000));
    let tree = tree.files(&[
        ("/proc/self/cgroup", "9:memory:/c"),
        (&format!("{GROUP}/memory/c/memory.limit_in_bytes"), "9000"),
        (&format!("{GROUP}/memory/c/memory.usage_in_bytes"), "8000"),
    ]);
    assert_eq!(free(&tree), Some(1_000));
}

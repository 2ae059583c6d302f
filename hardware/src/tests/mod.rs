//! Trees with the files of other machines.

mod cpu_tests;
mod gpu_tests;
mod memory_tests;
mod own_pool_tests;

use std::path::PathBuf;

use tempfile::TempDir;

use crate::{Detection, Machine, Settings, detect};

/// A directory with the files of a machine.
struct Tree {
    dir: TempDir,
    variables: Vec<(&'static str, &'static str)>,
}

impl Tree {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    fn path(&self, path: &str) -> PathBuf {
        let path = self.dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn file(self, path: &str, text: &str) -> Self {
        std::fs::write(self.path(path), format!("{text}\n")).unwrap();
        self
    }

    fn files(self, files: &[(&str, &str)]) -> Self {
        files.iter().fold(self, |tree, (path, text)| tree.file(path, text))
    }

    fn link(self, path: &str, target: &str) -> Self {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
        self
    }

    fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    /// The mask and the online cpus.
    fn cpus(self, mask: &str, online: &str) -> Self {
        let status = format!("Name:\tnode\nCpus_allowed:\tff\nCpus_allowed_list:\t{mask}\nx:\t1");
        self.file("/proc/self/status", &status).file("/sys/devices/system/cpu/online", online)
    }

    /// The place of a cpu: its socket, and the hyperthreads of its core.
    fn core(self, cpu: u32, socket: u32, siblings: &str) -> Self {
        let dir = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        self.file(&format!("{dir}/physical_package_id"), &socket.to_string())
            .file(&format!("{dir}/core_id"), "0")
            .file(&format!("{dir}/thread_siblings_list"), siblings)
    }

    fn numa(self, node: u32, cpus: &str) -> Self {
        self.file(&format!("/sys/devices/system/node/node{node}/cpulist"), cpus)
    }

    /// Two sockets, each with a NUMA node, two cores and four hyperthreads. The hyperthreads 4 to 7
    /// are the second ones.
    fn two_sockets(mask: &str) -> Self {
        let mut tree = Self::new().cpus(mask, "0-7").numa(0, "0-1,4-5").numa(1, "2-3,6-7");
        for cpu in 0..8 {
            let core = cpu % 4;
            tree = tree.core(cpu, core / 2, &format!("{core},{}", core + 4));
        }
        tree.file("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB")
    }

    fn machine(&self) -> Machine {
        Machine::recorded(self.dir.path(), &self.variables)
    }

    fn detect(&self) -> Detection {
        self.detect_with(&Settings::default())
    }

    fn detect_with(&self, settings: &Settings) -> Detection {
        detect(&self.machine(), settings).unwrap()
    }
}

/// The texts of all pools.
fn pools(found: &Detection) -> Vec<String> {
    found.offer.pools().iter().map(ToString::to_string).collect()
}

fn pool(found: &Detection, name: &str) -> String {
    let pool = found.offer.pools().iter().find(|pool| pool.name.as_str() == name);
    pool.map_or_else(|| "none".to_owned(), ToString::to_string)
}

fn couplings(found: &Detection) -> String {
    found.offer.couplings().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// The source of the limit that decides.
fn deciding(found: &Detection, name: &str) -> String {
    let pool = found.pools.iter().find(|found| found.pool.name.as_str() == name).unwrap();
    let deciding: Vec<&str> =
        pool.limits.iter().filter(|limit| limit.decides).map(|it| it.source.as_str()).collect();
    deciding.join(" ")
}

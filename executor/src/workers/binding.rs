//! Workers of calls with GPUs and other resources of their own.
//!
//! A library sees the GPUs that its process had when it was loaded, and holds memory on them until
//! the process ends. So a worker is started for certain resources, and serves only calls with the
//! same ones. Without calls it ends early if another attempt gets one of its devices.

use proto::work::{Granted, GrantedPool};

use super::runtime::Runtime;
use crate::commands::resources::{bound_pools, push_bound};

/// The resources of a worker beside cpus and memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Binding {
    /// The environment variables that name them, each as `NAME=VALUE`.
    variables: Vec<Vec<u8>>,
    /// The pool and the name of each index.
    devices: Vec<(String, String)>,
}

impl Binding {
    /// The resources of an attempt; `None`: cpus and memory alone. `offered`: the pools of GPUs
    /// that the node offers.
    pub(super) fn of(offered: &[String], granted: Option<&Granted>) -> Option<Self> {
        let pools: Vec<GrantedPool> = bound_pools(granted).cloned().collect();
        (!pools.is_empty()).then(|| Self::new(offered, &pools))
    }

    /// That of workers without such resources: they see no GPU.
    pub(super) fn none(offered: &[String]) -> Self {
        Self::new(offered, &[])
    }

    fn new(offered: &[String], pools: &[GrantedPool]) -> Self {
        let mut variables = Vec::new();
        push_bound(&mut variables, offered, pools);
        let device = |pool: &GrantedPool, index: &String| (pool.name.clone(), index.clone());
        let of_pool = |pool: &GrantedPool| {
            pool.indices.iter().map(|index| device(pool, index)).collect::<Vec<_>>()
        };
        Self { variables, devices: pools.iter().flat_map(of_pool).collect() }
    }

    /// Whether both have one device.
    pub(super) fn shares_device(&self, other: &Self) -> bool {
        self.devices.iter().any(|device| other.devices.contains(device))
    }

    /// The names and the values of its variables, without those that the runtime sets itself.
    pub(super) fn variables_in(&self, runtime: &Runtime) -> Vec<(String, String)> {
        let pair = |variable: &Vec<u8>| {
            let text = String::from_utf8_lossy(variable).into_owned();
            text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let is_ours = |(name, _): &(String, String)| !runtime.sets(name);
        self.variables.iter().filter_map(pair).filter(is_ours).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, units: u64, indices: &[&str]) -> GrantedPool {
        let (name, variable) = (name.to_owned(), name.replace('/', "_"));
        let indices = indices.iter().map(|&index| index.to_owned()).collect();
        GrantedPool { name, variable, units, indices }
    }

    fn binding(pools: &[GrantedPool]) -> Option<Binding> {
        let offered = ["gpus/amd".to_owned()];
        Binding::of(&offered, Some(&Granted { variant: 0, pools: pools.to_vec() }))
    }

    #[test]
    fn cpus_and_memory_bind_no_worker() {
        assert_eq!(binding(&[pool("cpus", 10_000, &["3"]), pool("memory", 1 << 40, &[])]), None);
        assert_eq!(Binding::of(&[], None), None);
    }

    #[test]
    fn a_part_of_a_device_is_that_device() {
        let of = |units, indices: &[&str]| binding(&[pool("gpus/amd", units, indices)]).unwrap();
        assert_eq!(of(5_000, &["0"]), of(10_000, &["0"]));
        assert_ne!(of(10_000, &["0"]), of(10_000, &["1"]));
        assert!(of(20_000, &["0", "1"]).shares_device(&of(5_000, &["1"])));
        assert!(!of(10_000, &["0"]).shares_device(&of(10_000, &["1"])));
        assert_ne!(binding(&[pool("licence", 10_000, &[])]), binding(&[pool("licence", 1, &[])]));
    }

    #[test]
    fn a_runtime_may_choose_devices_itself() {
        let variable = proto::wire::Env { name: "ROCR_VISIBLE_DEVICES".into(), value: "7".into() };
        let spec = proto::wire::Runtime { env: vec![variable], ..Default::default() };
        let own = Runtime::new(spec, std::time::Instant::now());
        let plain = Runtime::new(Default::default(), std::time::Instant::now());
        let bound = binding(&[pool("gpus/amd", 10_000, &["1"])]).unwrap();
        let names = |runtime: &Runtime| -> Vec<String> {
            bound
                .variables_in(runtime)
                .into_iter()
                .map(|(name, value)| name + "=" + &value)
                .collect()
        };
        let resource = "STARLING_RESOURCE_gpus_amd=1".to_owned();
        assert_eq!(names(&plain), ["ROCR_VISIBLE_DEVICES=1".to_owned(), resource.clone()]);
        assert_eq!(names(&own), [resource]);
        let none = Binding::none(&["gpus/amd".to_owned()]);
        assert_eq!(none.variables_in(&plain), [("ROCR_VISIBLE_DEVICES".into(), String::new())]);
    }
}

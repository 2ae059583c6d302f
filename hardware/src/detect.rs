//! The offer of a node: detected pools, and those that the user gives.

use std::collections::BTreeMap;

use resources::limits::INDICES_MAX;
use resources::{
    Amount, Coupling, GroupRef, Name, Offer, OfferError, Pool, parse_coupling, parse_no_pool,
    parse_pool, parse_preferences,
};
use thiserror::Error;

use crate::cpus::{self, Cores, FoundCpus};
use crate::gpus::{self, FoundGpus};
use crate::machine::Machine;
use crate::memory;

/// Variables with the number of the batch job that a node is in.
const JOB_VARIABLES: [&str; 5] =
    ["SLURM_JOB_ID", "PBS_JOBID", "OAR_JOB_ID", "LSB_JOBID", "FLUX_JOB_ID"];

/// The user's settings: the texts of the flags of a node.
#[derive(Clone, Default, Debug)]
pub struct Settings {
    /// Pools, such as `gpus=[[0,1],[2,3]]`. They replace detected ones of the same name.
    pub resources: Vec<String>,
    pub labels: Vec<String>,
    /// Couplings, such as `cpus[0]:gpus[0]`. They replace all detected ones.
    pub couplings: Vec<String>,
    /// A list such as `gpus:biggest,any`.
    pub preferences: Option<String>,
    pub cores: Cores,
}

/// A limit on a pool, and whether it decides the amount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// A file, a variable or a flag.
    pub source: String,
    /// The amount that the limit permits.
    pub amount: Amount,
    pub text: String,
    pub decides: bool,
}

/// A pool of the offer, and the reason for its amount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundPool {
    pub pool: Pool,
    /// A file, a variable or a flag.
    pub source: String,
    /// The kind of the groups, such as NUMA nodes.
    pub grouping: Option<String>,
    /// The NUMA node of each group, if known.
    pub numa: Vec<Option<u32>>,
    pub limits: Vec<Limit>,
}

/// All that a node would offer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Detection {
    pub offer: Offer,
    /// In the order of the offer.
    pub pools: Vec<FoundPool>,
    pub couplings_source: String,
    pub notices: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum DetectError {
    #[error(transparent)]
    Offer(#[from] OfferError),
    #[error("label {0} is the name of a pool of this node; choose another label")]
    LabelIsPool(Name),
}

/// Finds the pools of a machine and adds those of the user.
pub fn detect(machine: &Machine, settings: &Settings) -> Result<Detection, DetectError> {
    let mut notices = Vec::new();
    let hidden: Vec<Name> =
        settings.resources.iter().filter_map(|text| parse_no_pool(text)).collect();
    let own = settings.resources.iter().filter(|text| parse_no_pool(text).is_none());
    let own: Vec<Pool> = own.map(|text| parse_pool(text)).collect::<Result<_, _>>()?;
    // An own pool `gpus` replaces those of every vendor.
    let is_own =
        |name: &Name| own.iter().map(|pool| &pool.name).chain(&hidden).any(|own| own.covers(name));
    let mut pools: Vec<FoundPool> = Vec::new();
    if !is_own(&Name::cpus()) {
        let found = cpus::find(machine, settings.cores);
        notices.extend(found.notices.iter().cloned());
        pools.push(pool_of_cpus(&found)?);
    }
    if !is_own(&Name::memory()) {
        pools.extend(pool_of_memory(machine)?);
    }
    for found in gpus::find(machine) {
        if !is_own(&Name::pool(found.pool).map_err(OfferError::from)?) {
            notices.extend(found.notices.iter().cloned());
            pools.extend(pool_of_gpus(&found)?);
        }
    }
    for pool in own {
        let (source, grouping) = ("--resource".to_owned(), None);
        let numa = vec![None; pool.group_count()];
        pools.push(FoundPool { pool, source, grouping, numa, limits: Vec::new() });
    }
    add_labels(&mut pools, &settings.labels)?;
    pools.extend(group_of_job(machine, &pools));
    pools.sort_by(|a, b| a.pool.name.cmp(&b.pool.name));
    let (couplings, couplings_source) = match settings.couplings.is_empty() {
        true => (couplings(&pools), "NUMA nodes".to_owned()),
        false => {
            let texts = settings.couplings.iter().flat_map(|list| list.split(','));
            let given = texts.map(|text| parse_coupling(text.trim()));
            (given.collect::<Result<_, _>>()?, "--coupling".to_owned())
        }
    };
    let offer = Offer::new(pools.iter().map(|found| found.pool.clone()).collect(), couplings)?;
    let offer = match &settings.preferences {
        None => offer,
        Some(list) => offer.with_preferences(parse_preferences(list)?)?,
    };
    Ok(Detection { offer, pools, couplings_source, notices })
}

fn add_labels(pools: &mut Vec<FoundPool>, labels: &[String]) -> Result<(), DetectError> {
    let names = labels.iter().map(|text| Name::label(text).map_err(OfferError::from));
    let mut names: Vec<Name> = names.collect::<Result<_, _>>()?;
    names.sort();
    names.dedup();
    for name in names {
        if pools.iter().any(|found| found.pool.name == name) {
            return Err(DetectError::LabelIsPool(name));
        }
        pools.push(found_label(name, "--label"));
    }
    Ok(())
}

fn found_label(name: Name, source: &str) -> FoundPool {
    let (pool, source) = (Pool::label(name), source.to_owned());
    FoundPool { pool, source, grouping: None, numa: Vec::new(), limits: Vec::new() }
}

/// The label of the group of nodes in a batch job, unless a group is given.
fn group_of_job(machine: &Machine, given: &[FoundPool]) -> Option<FoundPool> {
    if given.iter().any(|found| found.pool.name.group_name().is_some()) {
        return None;
    }
    let job_of = |name| Some((name, machine.variable(name).filter(|job| !job.is_empty())?));
    let (source, job) = JOB_VARIABLES.into_iter().find_map(job_of)?;
    Some(found_label(Name::group(job), source))
}

fn pool_of_cpus(found: &FoundCpus) -> Result<FoundPool, OfferError> {
    let texts = |cpus: &Vec<u32>| cpus.iter().map(u32::to_string).collect();
    let groups: Vec<Vec<String>> = found.groups.iter().map(|(_, cpus)| texts(cpus)).collect();
    let count: usize = groups.iter().map(Vec::len).sum();
    let amount = |cpus: usize| Amount::whole(cpus as u64).unwrap_or_default();
    let limit = |limit: &cpus::CpuLimit| Limit {
        source: limit.source.clone(),
        amount: amount(limit.cpus),
        text: limit.text.clone(),
        decides: false,
    };
    let mut limits: Vec<Limit> = found.limits.iter().map(limit).collect();
    // The first of equal limits is the reason.
    if let Some(first) = limits.iter_mut().find(|limit| limit.amount == amount(count)) {
        first.decides = true;
    }
    Ok(FoundPool {
        pool: Pool::indexed(Name::cpus(), groups)?,
        source: found.source.clone(),
        grouping: Some(found.grouping.to_owned()),
        numa: found.groups.iter().map(|(numa, _)| *numa).collect(),
        limits,
    })
}

fn pool_of_memory(machine: &Machine) -> Result<Option<FoundPool>, OfferError> {
    let limits = memory::limits(machine);
    let Some(least) = limits.iter().min_by_key(|limit| limit.bytes).cloned() else {
        return Ok(None);
    };
    let amount = |bytes: u64| Amount::whole(bytes).unwrap_or(Amount::from_units(u64::MAX));
    let limit = |limit: &memory::MemoryLimit| Limit {
        source: limit.source.clone(),
        amount: amount(limit.bytes),
        text: String::new(),
        decides: *limit == least,
    };
    Ok(Some(FoundPool {
        pool: Pool::sum(Name::memory(), amount(least.bytes))?,
        source: least.source.clone(),
        grouping: None,
        numa: Vec::new(),
        limits: limits.iter().map(limit).collect(),
    }))
}

/// Groups by NUMA node. `None`: the vendor has no usable GPU.
fn pool_of_gpus(found: &FoundGpus) -> Result<Option<FoundPool>, OfferError> {
    let mut groups: BTreeMap<Option<u32>, Vec<String>> = BTreeMap::new();
    for gpu in found.gpus.iter().take(INDICES_MAX) {
        groups.entry(gpu.numa).or_default().push(gpu.name.clone());
    }
    if groups.is_empty() {
        return Ok(None);
    }
    let limit = |(source, count): &(String, usize)| Limit {
        source: source.clone(),
        amount: Amount::whole(*count as u64).unwrap_or_default(),
        text: String::new(),
        decides: true,
    };
    let numa: Vec<Option<u32>> = groups.keys().copied().collect();
    let is_known = numa.iter().any(Option::is_some);
    Ok(Some(FoundPool {
        pool: Pool::indexed(Name::pool(found.pool)?, groups.into_values().collect())?,
        source: found.source.clone(),
        grouping: is_known.then(|| "NUMA nodes".to_owned()),
        numa,
        limits: found.limit.iter().map(limit).collect(),
    }))
}

/// Couples the groups of different pools that are in one NUMA node. Two pools with one group each
/// leave nothing to choose.
fn couplings(pools: &[FoundPool]) -> Vec<Coupling> {
    let mut couplings = Vec::new();
    for (at, left) in pools.iter().enumerate() {
        let has_choice = |right: &&FoundPool| left.numa.len() > 1 || right.numa.len() > 1;
        for right in pools[at + 1..].iter().filter(has_choice) {
            for (i, node) in left.numa.iter().enumerate().filter(|(_, node)| node.is_some()) {
                let Some(k) = right.numa.iter().position(|other| other == node) else { continue };
                let end =
                    |found: &FoundPool, group| GroupRef { pool: found.pool.name.clone(), group };
                let (left, right) = (end(left, i), end(right, k));
                couplings.push(Coupling::new(left, right, Coupling::DEFAULT_WEIGHT));
            }
        }
    }
    couplings
}

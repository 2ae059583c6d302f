//! The flags of resources: those that a task asks for, and those that a node offers.

use std::sync::Arc;

use clap::Args;
use hardware::{Machine, Settings as HardwareSettings};
use resources::{
    Name, Offer, PoolKind, parse_coupling, parse_no_pool, parse_pool, parse_preferences,
    parse_variant, parse_want,
};
use workloads::Needs;

use crate::errors::Failure;
use crate::settings::Settings;
use crate::units::Timespan;

/// The needs of the task of a command line.
#[derive(Args, Clone, Debug)]
pub struct NeedsArgs {
    /// Cpus of the task, with a policy or without: 4, all, '4 compact!' [default: 1]
    #[arg(long, value_name = "N", value_parser = cpus)]
    cpus: Option<String>,
    /// GPUs of the task: 1, 0.5, all
    #[arg(long, value_name = "AMOUNT", value_parser = gpus)]
    gpus: Option<String>,
    /// Memory of the task, such as 2GiB; a command that uses more is killed
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<String>,
    /// An amount of a pool that nodes offer: licences=1, fpgas=all; may be repeated
    #[arg(long = "resource", value_name = "NAME=AMOUNT", value_parser = want)]
    resources: Vec<String>,
    /// A label that the node must have; may be repeated
    #[arg(long = "label", value_name = "NAME", value_parser = label)]
    labels: Vec<String>,
    /// Another way to run the task: 'cpus=1, gpus=1'; with no other needs, one of them is the first
    #[arg(long = "variant", value_name = "NEEDS", value_parser = variant)]
    variants: Vec<String>,
    /// How long the task waits for the first variant that the cluster offers [default: 1s]
    #[arg(long, value_name = "DURATION")]
    patience: Option<Timespan>,
    /// The task with the highest priority starts first [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Of tasks of one priority, the one with the highest rank starts first; tasks without a rank
    /// follow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rank: Option<u32>,
    /// The expected time from start to end
    #[arg(long, value_name = "DURATION", value_parser = time_request)]
    time_request: Option<Timespan>,
}

/// The first of these flags that is given.
pub fn first_given(flags: &[(&'static str, bool)]) -> Option<&'static str> {
    flags.iter().find(|(_, is_given)| *is_given).map(|(flag, _)| *flag)
}

fn checked(text: &str, what: Result<(), String>) -> Result<String, String> {
    what.map(|()| text.to_owned())
}
fn want_of(name: &str, text: &str) -> Result<String, String> {
    checked(text, parse_want(&format!("{name}={text}")).map(|_| ()).map_err(|e| e.to_string()))
}
fn cpus(text: &str) -> Result<String, String> {
    let needs = Needs { cpus: text.to_owned(), ..Needs::default() };
    checked(text, needs.request().map(|_| ()))
}
fn gpus(text: &str) -> Result<String, String> {
    want_of("gpus", text)
}
fn memory(text: &str) -> Result<String, String> {
    let needs = Needs { memory: text.to_owned(), ..Needs::default() };
    checked(text, needs.request().map(|_| ()))
}
fn want(text: &str) -> Result<String, String> {
    parse_want(text).map_err(|error| error.to_string())?;
    let needs = Needs { resources: vec![text.to_owned()], ..Needs::default() };
    checked(text, needs.request().map(|_| ()))
}
fn label(text: &str) -> Result<String, String> {
    checked(text, Name::label(text).map(|_| ()).map_err(|error| error.to_string()))
}
fn variant(text: &str) -> Result<String, String> {
    parse_variant(text).map_err(|error| error.to_string())?;
    let needs = Needs { variants: vec![text.to_owned()], ..Needs::default() };
    checked(text, needs.request().map(|_| ()))
}
fn time_request(text: &str) -> Result<Timespan, String> {
    let time: Timespan = text.parse()?;
    match time.0.is_zero() {
        true => Err(workloads::TIME_REQUEST_OF_0.to_owned()),
        false => Ok(time),
    }
}
fn pool(text: &str) -> Result<String, String> {
    checked(text, check_pool(text))
}

/// Refuses a text that is no pool of a node, and a figure of memory that lacks its unit.
pub fn check_pool(text: &str) -> Result<(), String> {
    if parse_no_pool(text).is_some() {
        return Ok(());
    }
    let pool = parse_pool(text).map_err(|error| error.to_string())?;
    let definition = text.split_once('=').map_or("", |(_, definition)| definition.trim());
    let sum = definition.strip_prefix("sum(").and_then(|rest| rest.strip_suffix(')'));
    match pool.kind {
        PoolKind::Sum(_) if pool.name.is_bytes() => {
            memory(&sum.unwrap_or(definition).replace(' ', "")).map(drop)
        }
        _ => Ok(()),
    }
}

fn preferences(text: &str) -> Result<String, String> {
    checked(text, parse_preferences(text).map(|_| ()).map_err(|error| error.to_string()))
}

fn coupling(text: &str) -> Result<String, String> {
    checked(text, parse_coupling(text).map(|_| ()).map_err(|error| error.to_string()))
}

impl NeedsArgs {
    /// The first flag that is given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--cpus", self.cpus.is_some()),
            ("--gpus", self.gpus.is_some()),
            ("--memory", self.memory.is_some()),
            ("--resource", !self.resources.is_empty()),
            ("--label", !self.labels.is_empty()),
            ("--variant", !self.variants.is_empty()),
            ("--patience", self.patience.is_some()),
            ("--priority", self.priority.is_some()),
            ("--rank", self.rank.is_some()),
            ("--time-request", self.time_request.is_some()),
        ];
        first_given(&given)
    }
    pub fn needs(&self) -> Needs {
        Needs {
            cpus: self.cpus.clone().unwrap_or_default(),
            gpus: self.gpus.clone().unwrap_or_default(),
            memory: self.memory.clone().unwrap_or_default(),
            resources: self.resources.clone(),
            labels: self.labels.clone(),
            variants: self.variants.clone(),
            patience: self.patience.map(|patience| patience.0),
        }
    }
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or(0)
    }
    pub fn rank(&self) -> u32 {
        self.rank.unwrap_or(0)
    }
    pub fn time_request_ns(&self) -> u64 {
        self.time_request.map_or(0, |time| time.0.as_nanos() as u64)
    }
}

/// The needs of each command of a list. `--resource` and `--label` of the same command line are of
/// the nodes.
#[derive(Args, Clone, Debug, Default)]
pub struct TaskNeedsArgs {
    /// Cpus of each command, with a policy or without: 4, all, '4 compact!' [default: 1]
    #[arg(long, value_name = "N", value_parser = cpus)]
    cpus: Option<String>,
    /// GPUs of each command: 1, 0.5, all
    #[arg(long, value_name = "AMOUNT", value_parser = gpus)]
    gpus: Option<String>,
    /// Memory of each command, such as 2GiB; one that uses more is killed
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<String>,
    /// An amount of a pool that nodes offer, for each command: licences=1; may be repeated
    #[arg(long = "task-resource", value_name = "NAME=AMOUNT", value_parser = want)]
    task_resources: Vec<String>,
    /// A label that the node of each command must have; may be repeated
    #[arg(long = "task-label", value_name = "NAME", value_parser = label)]
    task_labels: Vec<String>,
    /// Another way to run each command: 'cpus=1, gpus=1'; with no other needs, one of them is the
    /// first
    #[arg(long = "variant", value_name = "NEEDS", value_parser = variant)]
    variants: Vec<String>,
    /// How long each command waits for the first variant that the cluster offers [default: 1s]
    #[arg(long, value_name = "DURATION")]
    patience: Option<Timespan>,
    /// Commands of the highest priority start first [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Of commands of one priority, those of the highest rank start first; those without a rank
    /// follow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rank: Option<u32>,
    /// The expected time from start to end of each command
    #[arg(long, value_name = "DURATION", value_parser = time_request)]
    time_request: Option<Timespan>,
}

impl TaskNeedsArgs {
    /// The first flag that is given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--cpus", self.cpus.is_some()),
            ("--gpus", self.gpus.is_some()),
            ("--memory", self.memory.is_some()),
            ("--task-resource", !self.task_resources.is_empty()),
            ("--task-label", !self.task_labels.is_empty()),
            ("--variant", !self.variants.is_empty()),
            ("--patience", self.patience.is_some()),
            ("--priority", self.priority.is_some()),
            ("--rank", self.rank.is_some()),
            ("--time-request", self.time_request.is_some()),
        ];
        first_given(&given)
    }
    pub fn needs(&self) -> Needs {
        Needs {
            cpus: self.cpus.clone().unwrap_or_default(),
            gpus: self.gpus.clone().unwrap_or_default(),
            memory: self.memory.clone().unwrap_or_default(),
            resources: self.task_resources.clone(),
            labels: self.task_labels.clone(),
            variants: self.variants.clone(),
            patience: self.patience.map(|patience| patience.0),
        }
    }
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or(0)
    }
    pub fn rank(&self) -> u32 {
        self.rank.unwrap_or(0)
    }
    pub fn time_request_ns(&self) -> u64 {
        self.time_request.map_or(0, |time| time.0.as_nanos() as u64)
    }
}

/// The label that names the group of a node.
#[must_use]
pub fn group_label(name: &str) -> String {
    Name::group(name).to_string()
}

/// The pools and labels that nodes offer besides what is found.
#[derive(Args, Clone, Debug)]
pub struct OfferArgs {
    #[arg(
        help = "A pool of each node, in place of the detected one of that name: \
                'gpus=[[0,1],[2,3]]', 'licences=sum(100)', memory=64GiB; may be repeated",
        long = "resource",
        value_name = "NAME=POOL",
        value_parser = pool
    )]
    resources: Vec<String>,
    /// A label of each node, such as avx512; may be repeated
    #[arg(long = "label", value_name = "NAME", value_parser = label)]
    labels: Vec<String>,
    #[arg(
        help = "Groups of pools that are near each other, in place of the detected couplings: \
                'cpus[0]:gpus[0]', or with a weight 'cpus[0]:gpus[0]=64'; may be repeated",
        long = "coupling",
        value_name = "GROUP:GROUP",
        value_delimiter = ',',
        value_parser = coupling
    )]
    couplings: Vec<String>,
    #[arg(
        help = "Which ready tasks each node takes first: pools or labels in order, each with \
                biggest, smallest, any or a range of ranks: 'gpus:biggest,cpus:smallest,any'",
        long = "prefer",
        value_name = "LIST",
        value_parser = preferences
    )]
    preferences: Option<String>,
}

/// The given pools and labels of nodes, and the part of a node in the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfferPlan {
    pub resources: Vec<String>,
    pub labels: Vec<String>,
    pub couplings: Vec<String>,
    /// The list of preferences.
    pub preferences: Option<String>,
}

/// Refuses labels of two groups: the nodes of a gang are of one.
fn check_group(labels: &[String]) -> Result<(), Failure> {
    let is_of_group = |label: &Name| label.group_name().is_some();
    let mut groups = labels.iter().filter_map(|text| Name::label(text).ok()).filter(is_of_group);
    let first = groups.next();
    match groups.find(|other| first.as_ref() != Some(other)) {
        Some(other) => {
            let first = first.map_or_else(String::new, |first| first.to_string());
            Err(Failure::usage(format!("a node is of one group, and has labels {first}, {other}"))
                .hint("give one of them"))
        }
        None => Ok(()),
    }
}

/// Separates pools in a setting.
const BETWEEN_POOLS: char = ';';

impl OfferArgs {
    /// The names of the flags that are given.
    pub fn given(&self) -> Vec<&'static str> {
        let flags = [
            ("--resource", self.resources.is_empty()),
            ("--label", self.labels.is_empty()),
            ("--coupling", self.couplings.is_empty()),
            ("--prefer", self.preferences.is_none()),
        ];
        flags.iter().filter(|(_, is_missing)| !is_missing).map(|(flag, _)| *flag).collect()
    }

    pub fn resolve(&self, settings: &Settings) -> Result<OfferPlan, Failure> {
        let saved = |key: &str, between: char| -> Result<Vec<String>, Failure> {
            let text: Option<String> = settings.pick_optional(None, key)?;
            let parts = text.iter().flat_map(|text| text.split(between)).map(str::trim);
            Ok(parts.filter(|part| !part.is_empty()).map(str::to_owned).collect())
        };
        let or_saved = |given: &[String], key, between| match given.is_empty() {
            true => saved(key, between),
            false => Ok(given.to_vec()),
        };
        let labels = or_saved(&self.labels, "label", ',')?;
        check_group(&labels)?;
        Ok(OfferPlan {
            resources: or_saved(&self.resources, "resource", BETWEEN_POOLS)?,
            labels,
            couplings: or_saved(&self.couplings, "coupling", ',')?,
            preferences: settings.pick_optional(self.preferences.clone(), "prefer")?,
        })
    }
}

impl OfferPlan {
    /// The slots of each node: as many as it has cpus of its own list, if there is one. `given`: by
    /// a flag.
    ///
    /// # Errors
    /// When the list has another number of cpus.
    pub fn slots(&self, given: Option<u32>) -> Result<Option<u32>, Failure> {
        let pools = self.resources.iter().filter_map(|text| parse_pool(text).ok());
        let cpus = pools.filter(|pool| pool.name == Name::cpus()).find_map(|pool| pool.amount());
        let cpus = cpus.and_then(|cpus| u32::try_from(cpus.whole_part()).ok());
        match (given, cpus) {
            (Some(slots), Some(cpus)) if slots > 0 && slots != cpus => {
                let text = format!("the cpus of --resource are {cpus}, and the slots are {slots}");
                Err(Failure::usage(text).hint("leave out one of them: a slot is a cpu"))
            }
            (Some(slots), _) => Ok(Some(slots)),
            (None, cpus) => Ok(cpus),
        }
    }
    /// The flags by which a node gets these pools and labels.
    pub fn flags(&self) -> Vec<String> {
        let flag = |name: &str, values: &[String]| -> Vec<String> {
            values.iter().flat_map(|value| [name.to_owned(), value.clone()]).collect()
        };
        let couplings = flag("--coupling", &self.couplings);
        let (resources, labels) =
            (flag("--resource", &self.resources), flag("--label", &self.labels));
        let preferences = flag("--prefer", self.preferences.as_slice());
        [resources, labels, couplings, preferences].concat()
    }
    /// As settings.
    pub fn saved(&self) -> [(String, String); 4] {
        let text = |parts: &[String], between: &str| match parts {
            [] => "none".to_owned(),
            parts => parts.join(between),
        };
        let resources = text(&self.resources, &BETWEEN_POOLS.to_string());
        let (labels, couplings) = (text(&self.labels, ","), text(&self.couplings, ","));
        let words = ["resource", "label", "coupling", "prefer"].map(str::to_owned);
        let [resource, label, coupling, prefer] = words;
        let preferences = text(self.preferences.as_slice(), ",");
        [(resource, resources), (label, labels), (coupling, couplings), (prefer, preferences)]
    }

    /// What this machine offers.
    fn detect(&self) -> Result<Offer, Failure> {
        let settings = HardwareSettings {
            resources: self.resources.clone(),
            labels: self.labels.clone(),
            couplings: self.couplings.clone(),
            preferences: self.preferences.clone(),
            ..HardwareSettings::default()
        };
        Ok(hardware::detect(&Machine::this(), &settings)?.offer)
    }

    /// The part of one of several nodes. Nodes share the detected pools; those of flags are of each
    /// node.
    fn part(&self, whole: &Offer, at: usize, of: usize) -> Arc<Offer> {
        let own: Vec<Name> = self
            .resources
            .iter()
            .filter_map(|text| parse_pool(text).ok())
            .map(|pool| pool.name)
            .collect();
        Arc::new(whole.part(at, of, |name| !own.contains(name)))
    }

    /// The offer of one of several nodes of this machine.
    pub fn offer(&self, at: usize, of: usize) -> Result<Arc<Offer>, Failure> {
        Ok(self.part(&self.detect()?, at, of))
    }

    /// The offers of all nodes of this process.
    pub fn offers(&self, nodes: u32) -> Result<Vec<Arc<Offer>>, Failure> {
        let (whole, of) = (self.detect()?, nodes as usize);
        Ok((0..of).map(|at| self.part(&whole, at, of)).collect())
    }
}

/// The place of a node among the nodes of `up` on this machine: `0/3`.
pub fn share(text: &str) -> Result<(usize, usize), String> {
    let parsed = text.split_once('/').map(|(at, of)| (at.parse(), of.parse()));
    match parsed {
        Some((Ok(at), Ok(of))) if at < of => Ok((at, of)),
        _ => Err(format!("'{text}' is not a share such as 0/3")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn wrong_needs_are_refused_with_their_reason() {
        assert!(cpus("0.5").is_err() && cpus("0").is_err() && cpus("x").is_err());
        assert!(cpus("4 tight!").is_ok() && gpus("0.25").is_ok() && memory("2GiB").is_ok());
        assert!(gpus("0.00001").unwrap_err().contains("0.0001"));
        assert!(label("a b").is_err() && want("licences").is_err());
        assert!(memory("100").unwrap_err().contains("write 100MiB"));
        assert!(variant("cpus=1, gpus=1").is_ok() && pool("gpus=[0,1]").is_ok());
        for bare in ["memory=64", "memory=sum(64)"] {
            assert!(pool(bare).unwrap_err().contains("write 64MiB"), "{bare}");
        }
        assert!(pool("memory=64GiB").is_ok() && pool("memory=sum(64 MiB)").is_ok());
        assert!(time_request("0s").unwrap_err().contains("asks for nothing"));
        assert_eq!(time_request("2s"), Ok(Timespan(Duration::from_secs(2))));
        assert!(preferences("gpus:biggest,cpus:1..9,any").is_ok());
        assert!(preferences("any,gpus:any").unwrap_err().contains("last"));
        assert!(preferences("gpus:most").unwrap_err().contains("biggest"));
        assert_eq!(share("1/3"), Ok((1, 3)));
        assert!(share("3/3").is_err());
    }

    #[test]
    fn a_slot_is_a_cpu() {
        let plan = |pool: &str| OfferPlan { resources: vec![pool.into()], ..OfferPlan::default() };
        let slots = |pool: &str, given| plan(pool).slots(given).map_err(|failure| failure.message);
        assert_eq!(slots("cpus=3", None), Ok(Some(3)));
        assert_eq!(slots("cpus=[[0-3],[4-7]]", Some(8)), Ok(Some(8)));
        assert_eq!(slots("cpus=[5,6]", Some(0)), Ok(Some(0)), "a keeper");
        assert!(slots("cpus=3", Some(2)).unwrap_err().contains("are 3, and the slots are 2"));
        assert_eq!((slots("gpus=3", None), slots("gpus=3", Some(2))), (Ok(None), Ok(Some(2))));
    }

    #[test]
    fn a_node_is_of_one_group() {
        let check = |labels: &[&str]| {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            check_group(&labels).map_err(|failure| failure.message)
        };
        assert_eq!(check(&["group:a", "fast", "group:a"]), Ok(()));
        let message = check(&["fast", "group:a", "group:b"]).unwrap_err();
        assert!(message.ends_with("labels group:a, group:b"), "{message}");
    }

    #[test]
    fn nodes_of_one_machine_share_its_memory_and_not_their_own_pools() {
        let plan = OfferPlan {
            resources: vec!["memory=8GiB".into(), "gpus=[0,1]".into()],
            labels: vec!["fast".into()],
            ..OfferPlan::default()
        };
        let amount = |offer: &Offer, name: &str| {
            offer.pool(&Name::pool(name).unwrap()).and_then(resources::Pool::amount)
        };
        let offer = plan.offer(1, 2).unwrap();
        assert_eq!(amount(&offer, "memory"), "8GiB".parse().ok());
        assert_eq!(amount(&offer, "gpus"), "2".parse().ok());
        let none = OfferPlan::default();
        let memory = |at, of| amount(&none.offer(at, of).unwrap(), "memory").unwrap().units();
        assert!(memory(0, 2) <= memory(0, 1) / 2);
    }
}

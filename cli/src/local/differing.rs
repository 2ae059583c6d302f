//! Settings that `up` was given and that nodes which run already do not have: `up` changes none of
//! these nodes.

use std::collections::BTreeMap;

use client::AddressFile;
use proto::{NodeId, Span, Time, wire};
use scheduler::Tuning;
use verb::Context;
use verb::cluster::survival::PATIENCE;
use verb::errors::Failure;
use verb::flags::tuning;
use verb::flags::{CapturedArgs, ClusterArgs, ScrubArgs, SlurmArgs};
use verb::local::plan::ClusterPlan;
use verb::local::processes;
use verb::units;
use workloads::quantity;

const SLOTS: &str = "--slots";
const ENDS_AT: &str = "--ends-at";

/// Flags with their values.
pub(crate) type Flags = BTreeMap<String, String>;

/// A setting of a node that runs, beside the one that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Setting {
    node: u32,
    flag: String,
    runs_with: String,
    asked: String,
    /// `starling node set` can change it.
    is_tuning: bool,
}

/// A node that runs, as far as this machine shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Running {
    pub(crate) node: u32,
    pub(crate) slots: u32,
    /// The flags of its process.
    pub(crate) flags: Flags,
}

impl Running {
    pub(crate) fn of(address: &AddressFile) -> Self {
        let AddressFile { node, slots, pid, .. } = *address;
        Self { node, slots, flags: processes::flags_of(pid) }
    }
}

/// What was asked for and does not hold.
#[derive(Debug, Default)]
pub(crate) struct Differing {
    settings: Vec<Setting>,
    nodes: usize,
}

impl Differing {
    /// Of flags alone: other settings are for nodes that are yet to start.
    pub(crate) async fn of(
        context: &Context,
        running: &[Running],
        args: &ClusterArgs,
        plan: &ClusterPlan,
    ) -> Result<Self, Failure> {
        let of_processes = running.iter().flat_map(|node| of_process(node, args, plan));
        let mut settings: Vec<Setting> = of_processes.collect();
        let nodes = running.len();
        if !needs_answers(running, args) {
            return Ok(Self { settings, nodes });
        }
        let client = context.connect().await?;
        for node in running {
            // A node that does not answer is reported elsewhere.
            if let Ok(state) = client.raw().node_state(NodeId(node.node), PATIENCE).await
                && let Some(tuning) = &state.tuning
                && let Ok(tuning) = Tuning::default().with(tuning)
            {
                settings.extend(of_tuning(node.node, &tuning, args));
            }
        }
        Ok(Self { settings, nodes })
    }

    /// Adds the slots of nodes that `up` starts with other slots than the ones that were asked for.
    pub(crate) fn add_started(&mut self, started: &[(u32, u32)], asked: u32) {
        let others = started.iter().filter(|(_, slots)| *slots != asked);
        self.settings.extend(others.map(|&(node, slots)| Setting {
            node,
            flag: SLOTS.to_owned(),
            runs_with: slots.to_string(),
            asked: asked.to_string(),
            is_tuning: false,
        }));
    }

    /// Where nothing was started: a setting that no node has is an error. One that some node has
    /// was for that node, when it joined.
    pub(crate) fn refuse(&self) -> Result<(), Failure> {
        let count = |flag: &str| self.settings.iter().filter(|it| it.flag == flag).count();
        let ignored = self.settings.iter().filter(|it| count(&it.flag) == self.nodes);
        let ignored: Vec<&Setting> = ignored.collect();
        if ignored.is_empty() {
            return Ok(());
        }
        let hint = match ignored.iter().all(|it| it.is_tuning) {
            true => "'starling node set' with these flags changes nodes that run",
            false => "'starling down', then 'starling up' with these flags: jobs and keys stay",
        };
        let text = format!("nothing was changed: {}", lines(&ignored).join("; "));
        Err(Failure::refused(text).hint(hint))
    }

    /// Where nodes were started: the others go on as they are.
    pub(crate) fn notes(&self) -> Vec<String> {
        let all: Vec<&Setting> = self.settings.iter().collect();
        lines(&all).into_iter().map(|line| format!("unchanged: {line}")).collect()
    }
}

/// A line for each setting and value.
fn lines(settings: &[&Setting]) -> Vec<String> {
    let mut nodes: BTreeMap<(&str, &str, &str), Vec<String>> = BTreeMap::new();
    for it in settings {
        let key = (it.flag.as_str(), it.runs_with.as_str(), it.asked.as_str());
        nodes.entry(key).or_default().push(format!("n{}", it.node));
    }
    let line = |((flag, runs_with, asked), nodes): (_, Vec<String>)| {
        let run = if nodes.len() == 1 { "runs" } else { "run" };
        format!("{} {run} with {flag} {runs_with}, and {asked} was asked for", nodes.join(", "))
    };
    nodes.into_iter().map(line).collect()
}

/// Whether nodes have to report their settings: some node runs, and a flag that nodes can change
/// while they run was given.
fn needs_answers(running: &[Running], args: &ClusterArgs) -> bool {
    !running.is_empty() && args.tuning.change() != wire::Tuning::default()
}

/// The settings of a process since its start.
fn of_process(node: &Running, args: &ClusterArgs, plan: &ClusterPlan) -> Vec<Setting> {
    let built_in = ClusterPlan::new(plan.nodes, plan.slots, Tuning::default());
    let flags = |plan: &ClusterPlan| {
        let mut flags = Vec::new();
        if args.scrub.is_given() {
            flags.extend(ScrubArgs::flags(plan.scrub_every));
        }
        if args.captured.is_given() {
            flags.extend(CapturedArgs::flags(plan.captured));
        }
        if args.slurm.is_given() {
            flags.extend(SlurmArgs::flags(plan.hides_slurm));
        }
        pairs(&flags)
    };
    let mut runs_with = flags(&built_in);
    runs_with.extend(node.flags.clone());
    let mut asked = flags(plan);
    let given = args.offer.given();
    let offered = pairs(&plan.offer.flags()).into_iter();
    asked.extend(offered.filter(|(flag, _)| given.contains(&flag.as_str())));
    let life = pairs(&plan.life.flags()).into_iter();
    asked.extend(life.filter(|(flag, _)| match flag.as_str() {
        // The same limit, given later, would be a later end.
        ENDS_AT if args.life.gives_time_limit() => !node.flags.contains_key(ENDS_AT),
        ENDS_AT => args.life.gives_end(),
        _ => args.life.gives_idle_timeout(),
    }));
    if args.slots.is_some() {
        runs_with.insert(SLOTS.to_owned(), node.slots.to_string());
        asked.insert(SLOTS.to_owned(), plan.slots.to_string());
    }
    differing(node.node, &runs_with, &asked, false)
}

/// What a node says of itself: it may have been changed since it was started.
fn of_tuning(node: u32, tuning: &Tuning, args: &ClusterArgs) -> Vec<Setting> {
    // What does not fit the settings of this node was refused with those of the cluster.
    let Ok(asked) = tuning.with(&args.tuning.change()) else { return Vec::new() };
    let flags = |tuning: &Tuning| pairs(&tuning::flags(tuning));
    let mut asked = flags(&asked);
    // These follow from others unless they are given.
    let follows = [
        ("--order", args.tuning.order.is_none()),
        ("--store-soft", args.tuning.store_soft.is_none()),
    ];
    for (flag, _) in follows.into_iter().filter(|(_, follows)| *follows) {
        asked.remove(flag);
    }
    differing(node, &flags(tuning), &asked, true)
}

fn differing(node: u32, runs_with: &Flags, asked: &Flags, is_tuning: bool) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (flag, asked) in asked {
        let shown = |value: &str| match flag.as_str() {
            ENDS_AT => value.parse().map_or_else(|_| value.to_owned(), date),
            _ => shown(value),
        };
        let runs_with = runs_with.get(flag).map_or_else(|| "none".to_owned(), |it| shown(it));
        let (flag, asked) = (flag.clone(), shown(asked));
        if runs_with != asked {
            settings.push(Setting { node, flag, runs_with, asked, is_tuning });
        }
    }
    settings
}

fn pairs(flags: &[String]) -> Flags {
    processes::joined(flags.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())))
}

/// Seconds since 1970 as a date.
fn date(seconds: u64) -> String {
    Time(seconds.saturating_mul(Span::from_secs(1).0)).utc()
}

/// Durations and sizes, as people read them; all others as they are.
fn shown(value: &str) -> String {
    if value.parse::<f64>().is_ok() {
        return value.to_owned();
    }
    if let Ok(duration_ns) = quantity::parse_duration_ns(value) {
        return units::seconds(duration_ns as f64 / 1e9);
    }
    match quantity::parse_size_bytes(value) {
        Ok(bytes) => units::bytes(bytes),
        Err(_) => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verb::errors::Exit;

    fn setting(node: u32, flag: &str, is_tuning: bool) -> Setting {
        let (runs_with, asked) = ("2".to_owned(), "3".to_owned());
        Setting { node, flag: flag.to_owned(), runs_with, asked, is_tuning }
    }

    #[test]
    fn what_holds_on_no_node_is_refused_and_the_rest_is_noted() {
        let all = |settings| Differing { settings, nodes: 2 };
        let one = all(vec![setting(0, SLOTS, false)]);
        one.refuse().unwrap();
        assert_eq!(one.notes(), ["unchanged: n0 runs with --slots 2, and 3 was asked for"]);
        let both = all(vec![setting(0, SLOTS, false), setting(1, SLOTS, false)]);
        let refused = both.refuse().unwrap_err();
        let expected = "nothing was changed: n0, n1 run with --slots 2, and 3 was asked for";
        assert_eq!((refused.message.as_str(), refused.exit), (expected, Exit::Refused));
        assert!(refused.hint.unwrap().starts_with("'starling down'"));
        let tuning = all(vec![setting(0, "--history", true), setting(1, "--history", true)]);
        assert!(tuning.refuse().unwrap_err().hint.unwrap().contains("starling node set"));
    }

    #[test]
    fn nodes_that_start_with_other_slots_are_noted() {
        let mut differing = Differing::default();
        differing.add_started(&[(0, 2), (1, 0), (2, 2)], 0);
        assert_eq!(
            differing.notes(),
            ["unchanged: n0, n2 run with --slots 2, and 0 was asked for"]
        );
    }

    #[test]
    fn only_nodes_that_run_are_asked_and_only_for_given_settings() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            cluster: ClusterArgs,
        }
        let runs = [Running { node: 0, slots: 1, flags: Flags::new() }];
        let needed = |running: &[Running], words: &[&str]| {
            let words = std::iter::once(&"up").chain(words);
            let line = <Line as clap::Parser>::try_parse_from(words).unwrap();
            needs_answers(running, &line.cluster)
        };
        assert!(needed(&runs, &["--policy", "flds"]));
        assert!(!needed(&[], &["--policy", "flds"]));
        assert!(!needed(&runs, &[]));
        assert!(!needed(&runs, &["--slots", "3"]), "its process shows it");
    }

    #[test]
    fn offers_and_lives_are_compared_if_they_are_given() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            cluster: ClusterArgs,
        }
        let asked = |words: &[&str], flags: &[(&str, &str)]| {
            let words = std::iter::once(&"up").chain(words);
            let args = <Line as clap::Parser>::try_parse_from(words).unwrap().cluster;
            let built_in = ClusterPlan::new(1, 1, Tuning::default());
            let offer = args.offer.resolve(&verb::settings::Settings::none()).unwrap();
            let plan = ClusterPlan { offer, life: args.life.resolve().unwrap(), ..built_in };
            let flags = flags.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let node = Running { node: 0, slots: 1, flags: flags.collect() };
            of_process(&node, &args, &plan).into_iter().map(|it| it.flag).collect::<Vec<_>>()
        };
        let runs = [("--label", "a b"), ("--resource", "gpus=[0]")];
        assert!(asked(&["--label", "a", "--label", "b"], &runs).is_empty());
        assert_eq!(asked(&["--label", "a"], &runs), ["--label"]);
        assert_eq!(asked(&["--resource", "gpus=[1]"], &[]), ["--resource"]);
        assert_eq!(asked(&["--idle-timeout", "3s"], &[]), ["--idle-timeout"]);
        assert!(asked(&["--idle-timeout", "3s"], &[("--idle-timeout", "3000000000ns")]).is_empty());
        assert!(asked(&["--time-limit", "3s"], &[("--ends-at", "5")]).is_empty());
        assert_eq!(asked(&["--time-limit", "3s"], &[]), ["--ends-at"]);
        assert_eq!(asked(&["--ends-at", "9999999999"], &[("--ends-at", "5")]), ["--ends-at"]);
        assert!(asked(&["--label", "b", "--label", "a"], &runs).is_empty(), "in any order");
    }

    #[test]
    fn values_are_compared_by_their_meaning() {
        for (one, other) in [("24h", "86400000000000ns"), ("1GiB", "1073741824B")] {
            assert_eq!(shown(one), shown(other));
        }
        assert_ne!(shown("1"), shown("2"));
        assert_eq!(shown("eft"), "eft");
    }
}

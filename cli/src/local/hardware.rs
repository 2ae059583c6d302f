//! `starling node hardware`: the resources that a node started here would offer.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hardware::{Cores, Detection, FoundPool, Limit, Machine, Settings};
use resources::{Amount, Coupling, Name, PoolKind};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit};

/// The resources of a node.
#[derive(Args, Debug)]
pub(crate) struct HardwareArgs {
    #[arg(
        help = "A pool of this node, in place of the detected one of that name: \
                'gpus=[[0,1],[2,3]]', 'cpus=[0-7]', 'licences=sum(100)', memory=64GiB; may be \
                repeated",
        long = "resource",
        value_name = "NAME=POOL"
    )]
    resources: Vec<String>,
    /// A label of this node, such as avx512; may be repeated
    #[arg(long = "label", value_name = "NAME")]
    labels: Vec<String>,
    #[arg(
        help = "Groups that are near each other, in place of the detected couplings: \
                'cpus[0]:gpus[0]', or with a weight 'cpus[0]:gpus[0]=64'; may be repeated",
        long = "coupling",
        value_name = "GROUP:GROUP"
    )]
    couplings: Vec<String>,
    #[arg(
        help = "Which ready tasks this node takes first: 'gpus:biggest,cpus:smallest,any'",
        long = "prefer",
        value_name = "LIST"
    )]
    preferences: Option<String>,
    /// Which hyperthreads count as cpus
    #[arg(long, value_name = "WHICH", default_value = "logical")]
    cores: CoresArg,
    /// Read /proc, /sys and /dev below this directory: the recorded files of another machine
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum CoresArg {
    /// Every hyperthread
    Logical,
    /// One hyperthread of each core
    Physical,
}

/// The answer of `--json`; fields are only ever added.
#[derive(Serialize)]
struct Report {
    pools: Vec<PoolReport>,
    labels: Vec<LabelReport>,
    couplings: Vec<CouplingReport>,
    /// In order, such as `gpus:biggest`.
    preferences: Vec<String>,
    notices: Vec<String>,
}

#[derive(Serialize)]
struct PoolReport {
    name: String,
    /// `indexed` or `sum`.
    kind: &'static str,
    /// In bytes for memory.
    amount: f64,
    unit: Option<&'static str>,
    /// The names of the indices, by group; absent for a sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<Vec<String>>>,
    /// The NUMA node of each group.
    #[serde(skip_serializing_if = "Option::is_none")]
    numa: Option<Vec<Option<u32>>>,
    /// The kind of the groups.
    grouping: Option<String>,
    source: String,
    limits: Vec<LimitReport>,
}

#[derive(Serialize)]
struct LimitReport {
    source: String,
    amount: f64,
    text: String,
    /// True for the limit from which the amount follows.
    decides: bool,
}

#[derive(Serialize)]
struct LabelReport {
    name: String,
    source: String,
}

#[derive(Serialize)]
struct CouplingReport {
    left: String,
    right: String,
    weight: u16,
    source: String,
}

pub(crate) fn run(context: &Context, args: HardwareArgs) -> Done {
    let settings = Settings {
        resources: args.resources,
        labels: args.labels,
        couplings: args.couplings,
        preferences: args.preferences,
        cores: match args.cores {
            CoresArg::Logical => Cores::Logical,
            CoresArg::Physical => Cores::Physical,
        },
    };
    let machine = Machine::this().with_root(args.root);
    let found = hardware::detect(&machine, &settings)?;
    if context.output.json {
        context.output.json(&report(&found))?;
        return Ok(Exit::Ok);
    }
    context.output.table(&["resource", "amount", "content", "source"], &rows(&found))?;
    found.notices.iter().for_each(|notice| context.output.note(&format!("notice: {notice}")));
    Ok(Exit::Ok)
}

fn is_label(found: &&FoundPool) -> bool {
    found.pool.kind == PoolKind::Label
}

fn report(found: &Detection) -> Report {
    let label = |found: &FoundPool| LabelReport {
        name: found.pool.name.to_string(),
        source: found.source.clone(),
    };
    let coupling = |coupling: &Coupling| CouplingReport {
        left: coupling.left.to_string(),
        right: coupling.right.to_string(),
        weight: coupling.weight,
        source: found.couplings_source.clone(),
    };
    let with_amount = found.pools.iter().filter(|pool| !is_label(pool));
    Report {
        pools: with_amount.map(pool_report).collect(),
        labels: found.pools.iter().filter(is_label).map(label).collect(),
        couplings: found.offer.couplings().iter().map(coupling).collect(),
        preferences: found.offer.preferences().iter().map(ToString::to_string).collect(),
        notices: found.notices.clone(),
    }
}

fn pool_report(found: &FoundPool) -> PoolReport {
    let (kind, groups) = match &found.pool.kind {
        PoolKind::Indexed(groups) => ("indexed", Some(groups.clone())),
        PoolKind::Sum(_) | PoolKind::Label => ("sum", None),
    };
    let limit = |limit: &Limit| LimitReport {
        source: limit.source.clone(),
        amount: number(limit.amount),
        text: limit.text.clone(),
        decides: limit.decides,
    };
    PoolReport {
        name: found.pool.name.to_string(),
        kind,
        amount: number(found.pool.amount().unwrap_or_default()),
        unit: found.pool.name.is_bytes().then_some("bytes"),
        numa: groups.as_ref().map(|_| found.numa.clone()),
        groups,
        grouping: found.grouping.clone(),
        source: found.source.clone(),
        limits: found.limits.iter().map(limit).collect(),
    }
}

fn number(amount: Amount) -> f64 {
    amount.units() as f64 / Amount::PER_ONE as f64
}

/// One row for a pool, then one for each of its limits; then the couplings, then the preferences.
fn rows(found: &Detection) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for found in &found.pools {
        let name = &found.pool.name;
        let total = found.pool.amount().map_or_else(String::new, |total| amount(name, total));
        rows.push(vec![name.to_string(), total, content(found), found.source.clone()]);
        for limit in &found.limits {
            let decides = if limit.decides { ", decides" } else { "" };
            let text = if limit.text.is_empty() { "limit" } else { &limit.text };
            rows.push(vec![
                "  limit".to_owned(),
                amount(name, limit.amount),
                format!("{text}{decides}"),
                limit.source.clone(),
            ]);
        }
    }
    for coupling in found.offer.couplings() {
        rows.push(vec![
            "coupling".to_owned(),
            coupling.weight.to_string(),
            format!("{}:{}", coupling.left, coupling.right),
            found.couplings_source.clone(),
        ]);
    }
    for preference in found.offer.preferences() {
        let (text, source) = (preference.to_string(), "--prefer".to_owned());
        rows.push(vec!["prefer".to_owned(), String::new(), text, source]);
    }
    rows
}

/// The pool's own text without its name, and the kind of its groups.
fn content(found: &FoundPool) -> String {
    let text = found.pool.to_string();
    match (&found.pool.kind, &found.grouping) {
        (PoolKind::Label, _) => "label".to_owned(),
        (PoolKind::Sum(_), _) => "sum".to_owned(),
        (PoolKind::Indexed(_), grouping) => {
            let list = text.split_once('=').map_or("", |(_, list)| list).to_owned();
            let grouping = grouping.as_ref().filter(|_| found.pool.group_count() > 1);
            grouping.map_or_else(|| list.clone(), |grouping| format!("{list} {grouping}"))
        }
    }
}

fn amount(name: &Name, amount: Amount) -> String {
    if name.is_bytes() { amount.as_size() } else { amount.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Detection {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/self/status", "Cpus_allowed_list:\t0-3\n"),
            ("proc/meminfo", "MemTotal: 1048576 kB\n"),
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("sys/devices/system/node/node0/cpulist", "0-1\n"),
            ("sys/devices/system/node/node1/cpulist", "2-7\n"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let settings = Settings {
            resources: vec!["gpus=[[a],[b]]".to_owned()],
            labels: vec!["fast".to_owned()],
            couplings: vec!["cpus[0]:gpus[1]".to_owned()],
            preferences: Some("gpus:biggest,any".to_owned()),
            ..Settings::default()
        };
        hardware::detect(&Machine::recorded(dir.path(), &[]), &settings).unwrap()
    }

    #[test]
    fn the_table_has_the_source_of_each_figure() {
        let rows: Vec<String> = rows(&found()).iter().map(|row| row.join("|")).collect();
        let expected = [
            "cpus|4|[[0-1],[2-3]] NUMA nodes|/proc/self/status",
            "  limit|8|online: 0-7|/sys/devices/system/cpu/online",
            "  limit|4|affinity mask: 0-3, decides|/proc/self/status",
            "fast||label|--label",
            "gpus|2|[[a],[b]]|--resource",
            "memory|1GiB|sum|/proc/meminfo",
            "  limit|1GiB|limit, decides|/proc/meminfo",
            "coupling|256|cpus[0]:gpus[1]|--coupling",
            "prefer||gpus:biggest|--prefer",
            "prefer||any|--prefer",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_report_has_groups_limits_and_couplings() {
        let json = serde_json::to_value(report(&found())).unwrap();
        let cpus = &json["pools"][0];
        assert_eq!((&cpus["name"], &cpus["amount"]), (&"cpus".into(), &4.0.into()));
        assert_eq!(cpus["groups"], serde_json::json!([["0", "1"], ["2", "3"]]));
        assert_eq!(cpus["numa"], serde_json::json!([0, 1]));
        assert_eq!(cpus["limits"][1]["decides"], true);
        let memory = &json["pools"][2];
        assert_eq!((&memory["kind"], &memory["unit"]), (&"sum".into(), &"bytes".into()));
        assert_eq!(memory["amount"], 1_073_741_824.0);
        assert!(memory.get("groups").is_none());
        assert_eq!(json["labels"][0]["name"], "fast");
        assert_eq!(json["couplings"][0]["right"], "gpus[1]");
    }
}

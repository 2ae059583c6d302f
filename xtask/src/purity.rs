//! The allowed dependencies between crates, and the crates that no pure crate may use.

use std::path::Path;
use std::process::Command;

use crate::Findings;

/// Each crate and the crates that it may use. Every crate may use `proto`. A new dependency is a
/// design decision: change ARCHITECTURE.md with it.
const ARROWS: [(&str, &[&str]); 28] = [
    ("proto", &[]),
    ("dice", &[]),
    ("resources", &[]),
    ("allocation", &["resources"]),
    ("kvs", &["dice"]),
    ("scheduler", &["resources"]),
    ("workloads", &["resources"]),
    ("lens", &[]),
    ("analysis", &["workloads", "lens"]),
    ("search", &[]),
    ("node", &["kvs", "scheduler", "resources"]),
    ("sim", &["node", "kvs", "scheduler", "resources", "workloads", "lens", "analysis"]),
    ("executor", &[]),
    ("searcher", &["search"]),
    ("hardware", &["resources"]),
    ("security", &[]),
    ("daemon", &["executor", "client", "security", "node", "kvs", "scheduler", "resources"]),
    ("client", &["security", "workloads", "kvs"]),
    ("web", &[]),
    (
        "verb",
        &[
            "daemon",
            "client",
            "executor",
            "hardware",
            "resources",
            "workloads",
            "lens",
            "analysis",
            "scheduler",
            "kvs",
        ],
    ),
    (
        "bench",
        &[
            "verb",
            "daemon",
            "client",
            "security",
            "executor",
            "workloads",
            "analysis",
            "sim",
            "scheduler",
            "kvs",
        ],
    ),
    (
        "lab",
        &["verb", "client", "security", "executor", "workloads", "analysis", "sim", "scheduler"],
    ),
    ("compat", &["client", "verb"]),
    (
        "cli",
        &[
            "bench",
            "lab",
            "compat",
            "verb",
            "allocation",
            "daemon",
            "client",
            "web",
            "security",
            "executor",
            "hardware",
            "resources",
            "workloads",
            "lens",
            "analysis",
            "search",
            "searcher",
            "sim",
            "scheduler",
            "kvs",
        ],
    ),
    ("model", &[]),
    ("python", &["client", "resources"]),
    ("task-macros", &[]),
    ("task", &["client", "resources", "task-macros"]),
];

/// Crates that replay from a seed: no runtime, no network, no disk.
const PURE: [&str; 12] = [
    "proto",
    "dice",
    "resources",
    "allocation",
    "kvs",
    "scheduler",
    "node",
    "workloads",
    "lens",
    "analysis",
    "search",
    "sim",
];
const IMPURE: [&str; 5] = ["tokio", "tonic", "rocksdb", "mio", "rustix"];

pub(crate) fn check(root: &Path) -> Findings {
    let mut findings = Findings::new();
    for (package, allowed) in ARROWS {
        match dependencies(root, package, true) {
            Ok(direct) => findings.extend(wrong_arrows(package, allowed, &direct)),
            Err(why) => findings.push(why),
        }
    }
    for package in PURE {
        match dependencies(root, package, false) {
            Ok(all) => findings.extend(
                all.iter()
                    .filter(|name| IMPURE.contains(&name.as_str()))
                    .map(|name| format!("{package} is pure but depends on {name}")),
            ),
            Err(why) => findings.push(why),
        }
    }
    findings.extend(crate::rings::check(root));
    findings.extend(crate::arrows::check(root));
    findings
}

fn wrong_arrows(package: &str, allowed: &[&str], direct: &[String]) -> Findings {
    let is_ours = |name: &&String| ARROWS.iter().any(|(other, _)| other == name);
    direct
        .iter()
        .filter(is_ours)
        .filter(|name| *name != package && *name != "proto" && !allowed.contains(&name.as_str()))
        .map(|name| {
            format!("{package} may not depend on {name} (the table is in xtask/src/purity.rs)")
        })
        .collect()
}

/// The names of a crate's normal dependencies, direct ones or all. Those of this repository have
/// no prefix.
fn dependencies(root: &Path, package: &str, direct: bool) -> Result<Vec<String>, String> {
    let package = crate::ci::package(package);
    let depth = if direct { "1" } else { "1000" };
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["tree", "--package", &package, "--edges", "normal", "--prefix", "none"])
        .args(["--depth", depth])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo tree did not start: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo tree --package {package} failed: {}", why.trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(|name| name.strip_prefix(crate::ci::PREFIX).unwrap_or(name).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_that_points_up_is_found() {
        let direct = ["kvs", "proto", "node", "serde"].map(str::to_owned);
        let findings = wrong_arrows("kvs", &[], &direct);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("kvs may not depend on node"));
    }
}

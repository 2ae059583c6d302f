//! Checks of the nodes of an instance.

use std::path::Path;
use std::time::Duration;

use client::{Client, Instance};
use proto::wire::NodeState;
use verb::Context;
use verb::errors::Failure;
use verb::local::processes;

use super::Check;
use crate::local::remote_nodes;

/// The time that a node has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) fn checks(context: &Context, dir: &Path) -> Result<Vec<Check>, Failure> {
    let instance = Instance::new(dir);
    if let Err(error) = instance.cluster() {
        let text = match dir.exists() {
            true => format!("no cluster is here: {error}"),
            false => "no cluster is here".to_owned(),
        };
        return Ok(vec![Check::ok("cluster", text)]);
    }
    let mut checks = stale(&instance, dir);
    if instance.addresses().is_empty() {
        checks.push(Check::ok("cluster", "it is stopped; 'starling up' starts it"));
        return Ok(checks);
    }
    checks.extend(verb::block_on(async {
        match tokio::time::timeout(ANSWER_TIMEOUT * 2, context.connect()).await {
            Ok(Ok(client)) => Ok(of_cluster(&client).await),
            Ok(Err(failure)) => Ok(vec![Check::of("cluster", failure)]),
            Err(_) => {
                let cure = "'starling up' starts missing nodes";
                Ok(vec![Check::fail("cluster", "no node answers", cure)])
            }
        }
    })?);
    Ok(checks)
}

/// Address files of nodes of this host without their process.
fn stale(instance: &Instance, dir: &Path) -> Vec<Check> {
    let mut checks = Vec::new();
    for (node, file) in instance.addresses() {
        let is_here = remote_nodes::other_host(&file.host).is_none();
        if is_here && !processes::is_node(file.pid, dir) {
            checks.push(Check::warn(
                "nodes",
                format!("n{node}: its process {} is gone", file.pid),
                format!(
                    "'starling up' starts it; {}/nodes/{node}/node.log has the reason",
                    dir.display()
                ),
            ));
        }
    }
    checks
}

async fn of_cluster(client: &Client) -> Vec<Check> {
    let mut checks = Vec::new();
    let (mut answer, mut all) = (0, 0);
    for (node, state) in client.raw().node_states(ANSWER_TIMEOUT).await {
        all += 1;
        match state {
            Ok(state) => {
                answer += 1;
                checks.extend(of_node(&node.to_string(), &state));
            }
            Err(error) => checks.push(Check::warn(
                "nodes",
                format!("{node} does not answer: {error}"),
                "'starling up' starts it; 'starling node list' shows the nodes",
            )),
        }
    }
    let map = client.raw().newest_map(ANSWER_TIMEOUT).await;
    let lost = map.partitions.iter().filter(|partition| partition.lost).count();
    if lost > 0 {
        let text = format!("{lost} partitions are lost: all of their replicas are gone");
        checks.push(Check::fail("replicas", text, "start the nodes that have them, if they exist"));
    }
    checks.insert(0, Check::ok("cluster", format!("{answer} of {all} nodes answer")));
    checks
}

fn of_node(node: &str, state: &NodeState) -> Vec<Check> {
    let mut checks = Vec::new();
    let slow = state.member.as_ref().is_some_and(|member| member.slow);
    if slow {
        let text = format!("{node} is far slower than the others");
        checks.push(Check::warn("nodes", text, "look at its disk and its network, or drain it"));
    }
    if state.stalled_jobs > 0 {
        let text = format!("{node}: {} jobs make no progress", state.stalled_jobs);
        checks.push(Check::warn("jobs", text, "'starling job info all' names what they wait for"));
    }
    if state.lacking_copies > 0 {
        let text = format!("{node}: {} kept outputs have too few copies", state.lacking_copies);
        checks.push(Check::warn("replicas", text, "start more nodes, or free disk space"));
    }
    if state.leaving_refused {
        let text = format!("{node} leaves, and no node has room for its data");
        checks.push(Check::fail("nodes", text, "free disk space on the other nodes"));
    }
    for path in &state.records_aside {
        let text = format!("{node} has put damaged records aside: {path}");
        checks.push(Check::warn(
            "store",
            text,
            "look at the disk; the file is needed no more later",
        ));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::doctor::Level;

    #[test]
    fn each_trouble_of_a_node_has_a_cure() {
        assert!(of_node("n0", &NodeState::default()).is_empty());
        let state = NodeState {
            stalled_jobs: 1,
            lacking_copies: 2,
            leaving_refused: true,
            records_aside: vec!["/x".to_owned()],
            ..NodeState::default()
        };
        let checks = of_node("n0", &state);
        assert_eq!(checks.len(), 4);
        assert!(checks.iter().all(|check| check.cure.is_some() && check.level != Level::Ok));
    }
}

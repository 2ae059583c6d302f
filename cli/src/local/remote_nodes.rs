//! Nodes without a visible process on this machine: they are stopped over the network. Their
//! address files list them, and are removed when they end.

use std::time::{Duration, Instant};

use client::{Client, Instance};
use proto::NodeId;
use verb::errors::Failure;

/// The time that a node has to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A node by its address file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RemoteNode {
    pub(crate) node: u32,
    pub(crate) incarnation: u32,
    /// The machine in the file, if that is another one.
    pub(crate) host: Option<String>,
}

impl RemoteNode {
    fn is_there(&self, instance: &Instance) -> bool {
        instance.address(self.node).is_some_and(|file| file.incarnation == self.incarnation)
    }
}

/// The machine of an address file, if it is another one.
pub(crate) fn other_host(host: &str) -> Option<String> {
    let is_other = !host.is_empty() && host != client::host_name();
    is_other.then(|| host.to_owned())
}

/// Sends stop requests to the nodes that answer, and returns them. Returns also the silent nodes of
/// other machines. A file of this machine without a running node was left by a killed one.
pub(crate) async fn ask(
    client: &Client,
    nodes: Vec<RemoteNode>,
) -> Result<(Vec<RemoteNode>, Vec<RemoteNode>), Failure> {
    let (mut there, mut silent) = (Vec::new(), Vec::new());
    for it in nodes {
        match client.raw().node_state(NodeId(it.node), ANSWERS_WITHIN).await {
            Ok(_) => there.push(it),
            // The other nodes have noticed its end.
            Err(_) if client.is_given_up(NodeId(it.node)) => {}
            Err(_) => silent.push(it),
        }
    }
    for it in &there {
        client.stop_node(NodeId(it.node), false).await?;
    }
    Ok((there, silent))
}

/// Waits until the address files are gone.
pub(crate) async fn gone(nodes: &[RemoteNode], instance: &Instance, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while nodes.iter().any(|it| it.is_there(instance)) {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    true
}

/// Fails if silent nodes are on other machines. Silent nodes of this machine have ended.
pub(crate) fn silence(nodes: &[RemoteNode]) -> Result<(), Failure> {
    let named = |it: &RemoteNode| Some(format!("n{} on {}", it.node, it.host.as_ref()?));
    let named: Vec<String> = nodes.iter().filter_map(named).collect();
    if named.is_empty() {
        return Ok(());
    }
    let text = format!("nodes of other machines do not answer: {}", named.join(", "));
    Err(Failure::lost(text).hint("if they run, end them by their launcher or on their machines"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_of_other_machines_are_missed() {
        let of = |host: Option<&str>| RemoteNode {
            node: 3,
            incarnation: 1,
            host: host.map(str::to_owned),
        };
        assert!(silence(&[of(None)]).is_ok(), "it was killed");
        let failure = silence(&[of(None), of(Some("beta"))]).unwrap_err();
        assert!(failure.message.ends_with("n3 on beta"), "{}", failure.message);
        assert_eq!(other_host(&client::host_name()), None);
        assert_eq!(other_host(""), None);
        assert_eq!(other_host("beta.example").as_deref(), Some("beta.example"));
    }
}

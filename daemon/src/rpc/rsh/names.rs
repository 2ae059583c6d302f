//! The node of a gang that a name means.

use executor::NODE_PREFIX;
use proto::NodeId;
use proto::work::GangNode;

/// Finds a node by its own name (`n3`), by its host with its domain or without, or by an address.
/// A user before the host, as in `user@host`, says nothing here.
///
/// # Errors
/// No node of the gang has the name, or several have: one line. A name that is one node's own and
/// the host of another one is refused: nothing says which of them is meant.
pub(crate) fn find(gang: &[GangNode], name: &str) -> Result<NodeId, String> {
    let name = name.rsplit_once('@').map_or(name, |(_, host)| host);
    let by_number = |name: &str| gang.iter().find(|it| it.node.to_string() == name);
    if let Some(node) = name.strip_prefix(NODE_PREFIX).and_then(by_number) {
        return Ok(node.node);
    }
    let found: Vec<NodeId> =
        gang.iter().filter(|node| is_on(node, name)).map(|it| it.node).collect();
    if let Some(GangNode { node, .. }) = by_number(name) {
        return match found.iter().find(|other| *other != node) {
            None => Ok(*node),
            Some(host) => Err(format!(
                "'{name}' is a node of this gang, and the host of node {host}: write \
                 '{NODE_PREFIX}{node}' or '{NODE_PREFIX}{host}'"
            )),
        };
    }
    match found[..] {
        [node] => Ok(node),
        [] => Err(format!("'{name}' is no node of this gang, which has {}", listed(gang))),
        _ => {
            let nodes: Vec<String> = found.iter().map(ToString::to_string).collect();
            Err(format!("'{name}' has several nodes of this gang: {}", nodes.join(", ")))
        }
    }
}

fn is_on(node: &GangNode, name: &str) -> bool {
    let host = |address: &str| {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']') == name
    };
    let short = |host: &str| {
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let end = if is_address { None } else { host.find('.') };
        host[..end.unwrap_or(host.len())].to_ascii_lowercase()
    };
    let is_name = !name.is_empty() && (short(&node.host) == short(name));
    let has_other_domain = node.host.contains('.') && name.contains('.');
    is_name && (!has_other_domain || node.host.eq_ignore_ascii_case(name))
        || node.address.split(',').any(host)
}

fn listed(gang: &[GangNode]) -> String {
    const LISTED_MAX: usize = 8;
    let node = |node: &GangNode| format!("{} ({})", node.node, node.host);
    let mut text = gang.iter().take(LISTED_MAX).map(node).collect::<Vec<_>>().join(", ");
    if gang.len() > LISTED_MAX {
        text.push_str(", ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32, host: &str, address: &str) -> GangNode {
        let (host, address) = (host.to_owned(), address.to_owned());
        GangNode { node: NodeId(number), host, address, cpus: 1 }
    }

    #[test]
    fn a_node_is_found_by_each_of_its_names() {
        let gang = [
            node(0, "a.site.example", "10.0.0.1:700,[fd00::1]:700"),
            node(7, "B", "10.0.0.2:700"),
            node(8, "10.0.0.3", "10.0.0.3:700"),
        ];
        let found = |name: &str| find(&gang, name).ok();
        for name in ["n0", "a", "A.site.example", "10.0.0.1", "fd00::1", "me@a"] {
            assert_eq!(found(name), Some(NodeId(0)), "{name}");
        }
        for name in ["n7", "b", "b.site.example", "10.0.0.2"] {
            assert_eq!(found(name), Some(NodeId(7)), "{name}");
        }
        assert_eq!(found("10.0.0.3"), Some(NodeId(8)));
        for name in ["", "n1", "7", "a.other.example", "10", "10.0.0.4", "c"] {
            assert_eq!(found(name), None, "{name}");
        }
    }

    #[test]
    fn a_host_that_is_named_as_another_node_is_not_guessed() {
        let gang = [node(1, "n2", "10.0.0.2:700"), node(2, "n3", "10.0.0.3:700")];
        let error = find(&gang, "n2").unwrap_err();
        assert!(error.contains("write 'starling-n2' or 'starling-n1'"), "{error}");
        assert_eq!(find(&gang, "starling-n2"), Ok(NodeId(2)));
        assert_eq!((find(&gang, "n1"), find(&gang, "n3")), (Ok(NodeId(1)), Ok(NodeId(2))));
        let own = [node(1, "n1", "10.0.0.2:700"), node(2, "n2", "10.0.0.3:700")];
        assert_eq!(find(&own, "n2"), Ok(NodeId(2)), "both names mean one node");
    }

    #[test]
    fn nodes_of_one_host_are_told_apart_by_their_own_names() {
        let gang = [node(0, "a", "127.0.0.1:700"), node(1, "a", "127.0.0.1:701")];
        let error = find(&gang, "a").unwrap_err();
        assert_eq!(error, "'a' has several nodes of this gang: n0, n1");
        assert!(find(&gang, "127.0.0.1").is_err());
        assert_eq!(find(&gang, "n1"), Ok(NodeId(1)));
        assert!(find(&gang, "n2").unwrap_err().contains("which has n0 (a), n1 (a)"));
    }
}

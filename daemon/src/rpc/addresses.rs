//! The addresses of the other nodes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use proto::{NodeId, limits, wire};

use crate::lifecycle::instance::{AddressFile, Instance};
use proto::Span;

/// The assumed clock difference between machines. A start failure written this long before a
/// process began may belong to the same launch.
const FAILURE_CLOCKS_DIFFER: Span = Span::from_secs(5);

/// The addresses of the other nodes: from their files in the instance directory, or from messages
/// where a file is missing or older. For a node with another instance directory only messages
/// count.
#[derive(Debug)]
pub(crate) struct AddressBook {
    instance: Instance,
    /// The start time of this process.
    begun: SystemTime,
    heard: Mutex<BTreeMap<NodeId, AddressFile>>,
}

impl AddressBook {
    #[expect(clippy::disallowed_methods, reason = "it is compared with the times of files")]
    pub(crate) fn new(instance: Instance) -> Self {
        Self { instance, begun: SystemTime::now(), heard: Mutex::new(BTreeMap::new()) }
    }

    /// Notes an address from another node's map, for a directory that is not shared.
    pub(crate) fn hear(&self, member: &wire::Member) {
        self.note(AddressFile {
            format: limits::FORMAT_VERSION,
            node: member.node,
            incarnation: member.incarnation,
            address: member.address.clone(),
            pid: member.pid,
            slots: member.slots,
            offer: member.offer.clone(),
            launch: String::new(),
            data: member.data_address.clone(),
            host: member.host.clone(),
        });
    }

    /// Notes the address that a node sent in its greeting.
    pub(crate) fn hear_hello(&self, hello: &wire::Hello) {
        self.note(AddressFile {
            format: limits::FORMAT_VERSION,
            node: hello.node,
            incarnation: hello.incarnation,
            address: hello.address.clone(),
            pid: hello.pid,
            slots: hello.slots,
            offer: hello.offer.clone(),
            launch: hello.launch.clone(),
            data: hello.data_address.clone(),
            host: hello.host.clone(),
        });
    }

    /// Keeps an address unless a file has a current one. A node removes its file when it stops, so
    /// the file is more reliable.
    fn note(&self, told: AddressFile) {
        let node = NodeId(told.node);
        let file = self.instance.read_address(node);
        let known_from_file = file.is_some_and(|file| file.incarnation >= told.incarnation);
        if told.address.is_empty() || known_from_file {
            return;
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        // Within one incarnation the latest message counts. An earlier one may come from a node
        // that is gone and was replaced by one with a directory of its own.
        if heard.get(&node).is_none_or(|known| known.incarnation <= told.incarnation) {
            heard.insert(node, told);
        }
    }

    /// The reason why a node of a launch did not start, if it wrote one. A launch without a name is
    /// identified by its start time.
    pub(crate) fn failure(&self, node: NodeId, launch: &str) -> Option<String> {
        let (failure, written) = self.instance.read_failure(node)?;
        // The clock of the file system may be behind the clock of this machine.
        let since = self.begun - Duration::from_nanos(FAILURE_CLOCKS_DIFFER.0);
        let is_of_launch = failure.launch == launch && (!launch.is_empty() || written >= since);
        is_of_launch.then_some(failure.reason)
    }

    pub(crate) fn read(&self, node: NodeId) -> Option<AddressFile> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).get(&node).cloned();
        // `max_by_key` returns the last maximum: the file, if both are of the same incarnation.
        [heard, self.instance.read_address(node)]
            .into_iter()
            .flatten()
            .max_by_key(|file| file.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StartError;
    use proto::Incarnation;

    #[test]
    fn a_failure_of_an_earlier_launch_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance::open(dir.path()).unwrap();
        let mut book = AddressBook::new(instance.clone());
        let write = |launch: &str| {
            let error = StartError::KeeperAlone;
            instance.note_failure_of_start(NodeId(1), launch, &error);
        };
        write("slurm-7.0");
        assert!(book.failure(NodeId(1), "slurm-7.0").is_some());
        assert!(book.failure(NodeId(1), "slurm-7.0.1").is_none());
        write("");
        assert!(book.failure(NodeId(1), "").is_some());
        book.begun += Duration::from_secs(60);
        assert!(book.failure(NodeId(1), "").is_none(), "it was there before we began");
        write("slurm-7.0");
        assert!(book.failure(NodeId(1), "slurm-7.0").is_some(), "its clock is behind");
        instance.note_failure(NodeId(1), None);
        let path = dir.path().to_owned();
        instance.note_failure_of_start(NodeId(1), "", &StartError::InUse { path });
        assert!(instance.read_failure(NodeId(1)).is_none(), "the node runs");
    }

    #[test]
    fn the_newest_life_of_a_node_counts() {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance::open(dir.path()).unwrap();
        let book = AddressBook::new(instance.clone());
        let at = || book.read(NodeId(2)).map(|file| file.address);
        let greet = |incarnation, address: &str| {
            book.hear_hello(&wire::Hello {
                node: 2,
                incarnation,
                address: address.to_owned(),
                ..Default::default()
            });
        };
        let write = |incarnation, address: &str| {
            let file = AddressFile {
                format: 1,
                node: 2,
                incarnation,
                address: address.to_owned(),
                pid: 1,
                slots: 2,
                offer: Vec::new(),
                launch: String::new(),
                data: String::new(),
                host: String::new(),
            };
            instance.write_address(&file).unwrap();
        };
        assert_eq!(at(), None);
        greet(4, "");
        assert_eq!(at(), None, "a node that does not say where it listens");
        write(3, "file 3");
        greet(3, "heard 3");
        assert_eq!(at().as_deref(), Some("file 3"));
        instance.remove_address(NodeId(2), Incarnation(3));
        assert_eq!(at(), None, "it stopped");
        greet(5, "heard 5");
        greet(4, "late 4");
        assert_eq!(at().as_deref(), Some("heard 5"));
        write(4, "file 4");
        assert_eq!(at().as_deref(), Some("heard 5"), "the file was left behind");
        write(6, "file 6");
        assert_eq!(at().as_deref(), Some("file 6"));
    }
}

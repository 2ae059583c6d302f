//! Maps the ranks of a launcher to the nodes of an instance: a launch may have fewer ranks than
//! there are nodes, or more. A rank becomes the node that it was before (`ranks/<rank>`), else the
//! founding node with its number, else a node of the instance without a rank. Only if none is left,
//! it joins as a new node. The result is stored unless it is the node with the rank's number.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use executor::locks::{self, Taken};
use executor::private;
use proto::NodeId;

use super::{
    Instance, MembersFile, REMOVED, has_joined, node_dir, number_line, number_of_line, replace,
};
use crate::error::StartError;

const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

impl Instance {
    fn rank_path(&self, rank: u32) -> PathBuf {
        self.dir().join("ranks").join(rank.to_string())
    }

    fn noted(&self, rank: u32) -> Option<NodeId> {
        let text = fs::read_to_string(self.rank_path(rank)).ok()?;
        number_of_line(&text)?.parse().ok().map(NodeId)
    }

    /// True if a node has left the cluster. Its state may be on another machine, so the directory
    /// has a mark.
    fn has_left(&self, node: NodeId, members: Option<&MembersFile>) -> bool {
        let home = node_dir(self.dir(), node);
        members.is_some_and(|file| file.has_left(node))
            || [home.join(REMOVED), home.join("state").join(REMOVED)].iter().any(|it| it.exists())
    }

    /// Marks a node as one that has left.
    pub(crate) fn note_left(&self, node: NodeId) -> Result<(), StartError> {
        replace(&node_dir(self.dir(), node).join(REMOVED), format!("{}\n", node.0).as_bytes())
    }

    /// The nodes that may be started here, in order: those that have not left. For a node that
    /// joined later, the state must be here.
    #[must_use]
    pub fn startable(&self, first_nodes: u32) -> Vec<NodeId> {
        let entries = fs::read_dir(self.dir().join("nodes")).into_iter().flatten().flatten();
        let number =
            |entry: fs::DirEntry| -> Option<u32> { entry.file_name().to_str()?.parse().ok() };
        let has_state = |&node: &u32| has_joined(&node_dir(self.dir(), NodeId(node)).join("state"));
        let later = entries.filter_map(number).filter(|node| *node >= first_nodes);
        let all: BTreeSet<u32> = (0..first_nodes).chain(later.filter(has_state)).collect();
        let members = self.read_members();
        let all = all.into_iter().map(NodeId);
        all.filter(|&node| !self.has_left(node, members.as_ref())).collect()
    }

    /// The node of each rank of a launch of this size; `None`: the rank must join as a new node.
    /// All ranks compute the same result, even if some of them have joined or have noted their node
    /// already. `elsewhere`: each rank has a state directory of its own, so it cannot become
    /// another node.
    #[must_use]
    pub fn nodes_of_ranks(
        &self,
        size: u32,
        first_nodes: u32,
        elsewhere: bool,
    ) -> Vec<Option<NodeId>> {
        let mut free: BTreeSet<NodeId> = self.startable(first_nodes).into_iter().collect();
        if elsewhere {
            let members = self.read_members();
            let noted = (0..size).filter_map(|rank| self.noted(rank));
            free.extend(noted.filter(|&node| !self.has_left(node, members.as_ref())));
        }
        let noted = (0..size).map(|rank| self.noted(rank).filter(|node| free.remove(node)));
        let mut nodes: Vec<Option<NodeId>> = noted.collect();
        for (rank, node) in (0..first_nodes).zip(&mut nodes) {
            *node = node.or_else(|| free.take(&NodeId(rank)));
        }
        if !elsewhere {
            nodes.iter_mut().for_each(|node| *node = node.or_else(|| free.pop_first()));
        }
        nodes
    }

    /// Notes that the rank is this node in later launches too.
    pub fn note_rank(&self, rank: u32, node: NodeId) -> Result<(), StartError> {
        let ranks = self.dir().join("ranks");
        private::own_dir(&ranks).map_err(|e| StartError::io("create", &ranks, e))?;
        replace(&self.rank_path(rank), number_line(&node.0.to_string()).as_bytes())
    }

    /// Serializes the joins of one directory: each joining node takes a state directory that no
    /// other node uses. The lock is held while the returned file lives.
    pub(crate) fn lock_joins(&self, within: Duration) -> Result<File, StartError> {
        self.lock_file("joining", within)
    }

    /// The lock of a command that starts nodes of the directory. `None`: another command has it.
    pub fn lock_starts(&self, within: Duration) -> Result<Option<File>, StartError> {
        match self.lock_file("starting", within) {
            Err(StartError::Busy { .. }) => Ok(None),
            lock => lock.map(Some),
        }
    }

    /// A lock of all nodes of the directory. Where the file system has no locks it protects from
    /// nothing.
    pub(super) fn lock_file(&self, name: &str, within: Duration) -> Result<File, StartError> {
        let path = self.dir().join(name);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path).map_err(|e| StartError::io("write", &path, e))?;
        let start = Instant::now();
        loop {
            match locks::take(&file).map_err(|e| StartError::io("lock", &path, e))? {
                Taken::Ours | Taken::NoLocks(_) => return Ok(file),
                Taken::Held if start.elapsed() < within => std::thread::sleep(LOOK_AGAIN_AFTER),
                Taken::Held => {
                    return Err(StartError::Busy { path, waited_s: within.as_secs() });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An instance with these joined nodes, and these that have left.
    fn instance(joined: &[u32], left: &[u32]) -> (tempfile::TempDir, Instance) {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance::open(dir.path()).unwrap();
        for &node in joined {
            super::super::prepare_joined(&node_dir(dir.path(), NodeId(node)).join("state"), 1)
                .unwrap();
        }
        for &node in left {
            fs::create_dir_all(node_dir(dir.path(), NodeId(node))).unwrap();
            instance.note_left(NodeId(node)).unwrap();
        }
        (dir, instance)
    }

    fn numbers(instance: &Instance, size: u32, first: u32) -> Vec<Option<u32>> {
        instance
            .nodes_of_ranks(size, first, false)
            .into_iter()
            .map(|node| node.map(|it| it.0))
            .collect()
    }

    #[test]
    fn a_rank_stays_the_node_that_it_was() {
        let (dir, there) = instance(&[], &[]);
        assert_eq!(numbers(&there, 3, 2), [Some(0), Some(1), None]);
        there.note_rank(2, NodeId(5)).unwrap();
        assert_eq!(numbers(&there, 3, 2), [Some(0), Some(1), None], "it has no state");
        super::super::prepare_joined(&node_dir(dir.path(), NodeId(5)).join("state"), 1).unwrap();
        assert_eq!(numbers(&there, 3, 2), [Some(0), Some(1), Some(5)]);
        there.note_left(NodeId(5)).unwrap();
        assert_eq!(numbers(&there, 3, 2), [Some(0), Some(1), None], "a number is not used again");
        assert_eq!(there.nodes_of_ranks(3, 2, true)[2], None);
        there.note_rank(2, NodeId(6)).unwrap();
        assert_eq!(there.nodes_of_ranks(3, 2, true)[2], Some(NodeId(6)), "its state is elsewhere");
    }

    #[test]
    fn ranks_are_the_nodes_that_have_the_data() {
        // Two founding nodes, which have left, and two later ones.
        let (_dir, there) = instance(&[2, 3], &[0, 1]);
        there.note_rank(2, NodeId(2)).unwrap();
        there.note_rank(3, NodeId(3)).unwrap();
        assert_eq!(there.startable(2), [NodeId(2), NodeId(3)]);
        assert_eq!(numbers(&there, 2, 2), [Some(2), Some(3)]);
        // The other ranks compute the same when one has noted its node.
        there.note_rank(1, NodeId(3)).unwrap();
        assert_eq!(numbers(&there, 2, 2), [Some(2), Some(3)]);
        // Of two ranks that were the same node the lower one gets it.
        assert_eq!(numbers(&there, 4, 2), [None, Some(3), Some(2), None]);
    }

    #[test]
    fn that_a_node_has_left_is_known_from_the_members() {
        let (dir, there) = instance(&[], &[]);
        let file = r#"{"format":1,"epoch":7,"voters":[0],"members":[
            {"node":0,"incarnation":1,"address":""},{"node":3,"incarnation":1,"address":""}]}"#;
        fs::write(dir.path().join("members.json"), file).unwrap();
        assert_eq!(there.startable(4), [NodeId(0), NodeId(3)]);
        assert_eq!(numbers(&there, 3, 4), [Some(0), Some(3), None]);
        assert_eq!(
            there.nodes_of_ranks(3, 4, true),
            [Some(NodeId(0)), None, None],
            "its state is elsewhere"
        );
    }

    #[test]
    fn a_lock_is_held_by_one() {
        let (_dir, there) = instance(&[], &[]);
        let lock = there.lock_joins(Duration::ZERO).unwrap();
        let busy = there.lock_joins(Duration::from_millis(30)).unwrap_err();
        assert!(matches!(busy, StartError::Busy { .. }), "{busy}");
        drop(lock);
        there.lock_joins(Duration::ZERO).unwrap();
    }
}

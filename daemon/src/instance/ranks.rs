//! Which node of an instance a launcher's rank is: a launch may have fewer ranks than there are
//! nodes, or more. The first ranks are the first nodes. A further one joins as a new node, and what
//! number it got is written down (`ranks/<rank>`): in the next launch it is that node again.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use executor::private;
use proto::NodeId;

use super::{Instance, REMOVED, node_dir, number_line, number_of_line, replace};
use crate::error::StartError;

const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

impl Instance {
    fn rank_path(&self, rank: u32) -> PathBuf {
        self.dir().join("ranks").join(rank.to_string())
    }

    fn has_left(&self, node: NodeId) -> bool {
        node_dir(self.dir(), node).join("state").join(REMOVED).exists()
    }

    /// The node that this rank is, unless it is a new one.
    #[must_use]
    pub fn node_of_rank(&self, rank: u32, first_nodes: u32) -> Option<NodeId> {
        let noted = fs::read_to_string(self.rank_path(rank)).ok();
        let noted = noted.and_then(|text| number_of_line(&text)?.parse().ok());
        let node = noted.or_else(|| (rank < first_nodes).then_some(rank)).map(NodeId);
        node.filter(|&node| !self.has_left(node))
    }

    pub(crate) fn note_rank(&self, rank: u32, node: NodeId) -> Result<(), StartError> {
        let ranks = self.dir().join("ranks");
        private::own_dir(&ranks).map_err(|e| StartError::io("create", &ranks, e))?;
        replace(&self.rank_path(rank), number_line(&node.0.to_string()).as_bytes())
    }

    /// Nodes of one directory join one after another: each takes a state directory that no other
    /// one uses. Held as long as what is returned lives.
    pub(crate) fn lock_joins(&self, within: Duration) -> Result<File, StartError> {
        let path = self.dir().join("joining");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(&path).map_err(|e| StartError::io("write", &path, e))?;
        let start = Instant::now();
        loop {
            let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
            match rustix::fs::flock(&lock, exclusive) {
                Ok(()) => return Ok(lock),
                Err(rustix::io::Errno::WOULDBLOCK) if start.elapsed() < within => {
                    std::thread::sleep(LOOK_AGAIN_AFTER);
                }
                Err(errno) => return Err(StartError::io("lock", &path, errno.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_stays_the_node_that_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance::open(dir.path()).unwrap();
        assert_eq!(instance.node_of_rank(1, 2), Some(NodeId(1)));
        assert_eq!(instance.node_of_rank(2, 2), None);
        instance.note_rank(2, NodeId(5)).unwrap();
        assert_eq!(instance.node_of_rank(2, 2), Some(NodeId(5)));
        let state = node_dir(dir.path(), NodeId(5)).join("state");
        fs::create_dir_all(&state).unwrap();
        fs::write(state.join(REMOVED), "5").unwrap();
        assert_eq!(instance.node_of_rank(2, 2), None, "its number is never used again");
        let lock = instance.lock_joins(Duration::ZERO).unwrap();
        assert!(instance.lock_joins(Duration::from_millis(30)).is_err());
        drop(lock);
        instance.lock_joins(Duration::ZERO).unwrap();
    }
}

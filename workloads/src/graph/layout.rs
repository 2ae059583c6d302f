//! The assignment of task numbers to [`LocalId`]s, and so to partitions. Plans and clients use it.

use proto::{LocalId, PartitionId};

/// An owned assignment, small enough to keep while a job is watched. Within a partition indices
/// count from 0 without gaps.
#[derive(Clone, Debug)]
pub struct Layout {
    tasks: u32,
    /// Partitions with tasks, in the order of submission.
    used: Vec<PartitionUse>,
    /// Indices of `used`, by partition number, for look-ups by id.
    by_partition: Vec<u32>,
    map: Map,
}

/// A partition and the number of its tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionUse {
    pub partition: PartitionId,
    /// The index of its home in the caller's list.
    pub home: u32,
    pub tasks: u32,
}

#[derive(Clone, Debug)]
enum Map {
    /// Pieces of `piece` consecutive tasks go to the used partitions in turn. This needs no memory.
    Dealt { piece: u32 },
    /// Tasks by used partition, then by index; and the position of each task in that list.
    Listed { starts: Vec<u32>, tasks: Vec<u32>, position: Vec<u32> },
}

impl Layout {
    /// Distributes pieces of consecutive tasks over the partitions in turn.
    pub(crate) fn dealt(tasks: u32, piece: u32, partitions: &[(u32, PartitionId)]) -> Self {
        assert!(piece > 0, "a piece holds at least one task");
        let pieces = tasks.div_ceil(piece);
        let width = partitions.len() as u32;
        let used = partitions.iter().enumerate().map(|(turn, &(home, partition))| {
            let turn = turn as u32;
            let whole = (pieces / width + u32::from(turn < pieces % width)) * piece;
            // Only the last piece may be shorter, and it ends its partition.
            let short = pieces * piece - tasks;
            let has_last = (pieces - 1) % width == turn;
            PartitionUse { partition, home, tasks: if has_last { whole - short } else { whole } }
        });
        Self::new(tasks, used.collect(), Map::Dealt { piece })
    }

    /// Assigns the listed tasks to each partition.
    pub(crate) fn listed(lists: Vec<(PartitionUse, Vec<u32>)>) -> Self {
        let count: usize = lists.iter().map(|(_, list)| list.len()).sum();
        let mut starts = Vec::with_capacity(lists.len() + 1);
        let mut tasks: Vec<u32> = Vec::with_capacity(count);
        let mut used = Vec::with_capacity(lists.len());
        for (entry, list) in lists {
            assert_eq!(entry.tasks as usize, list.len(), "the list is the partition's");
            starts.push(tasks.len() as u32);
            tasks.extend(list);
            used.push(entry);
        }
        starts.push(count as u32);
        let mut position = vec![u32::MAX; count];
        for (at, task) in tasks.iter().enumerate() {
            assert_eq!(position[*task as usize], u32::MAX, "task {task} is placed once");
            position[*task as usize] = at as u32;
        }
        Self::new(count as u32, used, Map::Listed { starts, tasks, position })
    }

    fn new(tasks: u32, used: Vec<PartitionUse>, map: Map) -> Self {
        let mut by_partition: Vec<u32> = (0..used.len() as u32).collect();
        by_partition.sort_unstable_by_key(|turn| used[*turn as usize].partition);
        let twice = by_partition
            .windows(2)
            .any(|pair| used[pair[0] as usize].partition == used[pair[1] as usize].partition);
        assert!(!twice, "a partition has one home");
        Self { tasks, used, by_partition, map }
    }

    /// The number of tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks as usize
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks == 0
    }

    /// Partitions that hold tasks of this job.
    #[must_use]
    pub fn used(&self) -> &[PartitionUse] {
        &self.used
    }

    /// The id of a task within the job.
    ///
    /// # Panics
    /// When the graph has no such task.
    #[must_use]
    pub fn local_id(&self, task: u32) -> LocalId {
        assert!(task < self.tasks, "task {task} is not there");
        let (turn, index) = match &self.map {
            Map::Dealt { piece } => {
                let width = self.used.len() as u32;
                let number = task / piece;
                (number % width, number / width * piece + task % piece)
            }
            Map::Listed { starts, position, .. } => {
                let at = position[task as usize];
                let turn = starts.partition_point(|start| *start <= at) - 1;
                (turn as u32, at - starts[turn])
            }
        };
        LocalId::new(self.used[turn as usize].partition, u64::from(index))
    }

    /// The task with this id; `None` if the job has no such task.
    #[must_use]
    pub fn task_of(&self, local: LocalId) -> Option<u32> {
        let of = |turn: &u32| self.used[*turn as usize].partition;
        let at = self.by_partition.binary_search_by_key(&local.partition(), of).ok()?;
        let turn = self.by_partition[at];
        let index = u32::try_from(local.index()).ok()?;
        (index < self.used[turn as usize].tasks).then(|| self.task_at(turn, index))
    }

    /// The task with this index in the `turn`-th used partition.
    pub(crate) fn task_at(&self, turn: u32, index: u32) -> u32 {
        match &self.map {
            Map::Dealt { piece } => {
                let width = self.used.len() as u32;
                (index / piece * width + turn) * piece + index % piece
            }
            Map::Listed { starts, tasks, .. } => tasks[(starts[turn as usize] + index) as usize],
        }
    }
}

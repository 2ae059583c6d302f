//! The turns of gangs at their leader: it gathers nodes for few of them at a time, and the others
//! wait in its queues. Without IO.

use proto::TaskId;

use crate::holder::gangs::line::Stamp;

/// A gang for which the leader gathers nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Led {
    pub(crate) stamp: Stamp,
    /// Its nodes are being locked, or it starts.
    pub(crate) is_bound: bool,
    /// The cluster has too few nodes for it at present, so it holds none.
    pub(crate) lacks_nodes: bool,
}

/// The place for a further gang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Free,
    /// That of a gang without enough nodes, which goes back to its home.
    OfLacking(TaskId),
    /// That of a younger gang, which goes back to its home. It may come back at once: it gives way
    /// only to a gang that can be staged.
    OfYounger(TaskId),
    None,
}

/// The place for the first gang of the queues, for which the cluster has enough nodes. A gang
/// without enough nodes gives its place to any other, and a younger one to an older one. So nothing
/// gives way twice to the same gang.
pub(crate) fn place_for(next: Stamp, led: &[Led], most: usize) -> Place {
    if led.len() < most {
        return Place::Free;
    }
    let open = led.iter().filter(|it| !it.is_bound);
    let lacking = open.clone().filter(|it| it.lacks_nodes).map(|it| it.stamp).max();
    let youngest = open.map(|it| it.stamp).max().filter(|&youngest| youngest > next);
    let lacking = lacking.map(|stamp| Place::OfLacking(stamp.task));
    let youngest = youngest.map(|stamp| Place::OfYounger(stamp.task));
    lacking.or(youngest).unwrap_or(Place::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(priority: i32, job: u64) -> Stamp {
        Stamp::new(priority, TaskId::new(job, 0))
    }
    fn led(priority: i32, job: u64) -> Led {
        Led { stamp: stamp(priority, job), is_bound: false, lacks_nodes: false }
    }
    fn place(next: Stamp, led: &[Led]) -> Place {
        place_for(next, led, 4)
    }

    #[test]
    fn an_older_gang_and_one_of_a_higher_priority_get_their_turn() {
        let four = [led(0, 5), led(0, 9), led(0, 6), led(0, 7)];
        assert_eq!(place(stamp(0, 10), &four), Place::None);
        assert_eq!(place(stamp(0, 10), &four[..3]), Place::Free);
        assert_eq!(place(stamp(0, 8), &four), Place::OfYounger(TaskId::new(9, 0)));
        assert_eq!(place(stamp(1, 10), &four), Place::OfYounger(TaskId::new(9, 0)));
        let urgent = [led(2, 5), led(2, 9), led(2, 6), led(2, 7)];
        assert_eq!(place(stamp(1, 1), &urgent), Place::None);
    }

    #[test]
    fn a_gang_that_starts_keeps_its_place() {
        let bound = |job| Led { is_bound: true, ..led(0, job) };
        let four = [led(0, 2), bound(9), bound(8), led(0, 5)];
        assert_eq!(place(stamp(0, 3), &four), Place::OfYounger(TaskId::new(5, 0)));
        let all = [bound(9), bound(8), bound(7), bound(6)];
        assert_eq!(place(stamp(0, 3), &all), Place::None);
    }

    #[test]
    fn gangs_that_the_cluster_is_too_small_for_hold_nothing_up() {
        let lacking = |job| Led { lacks_nodes: true, ..led(0, job) };
        let four = [lacking(1), lacking(2), led(0, 3), lacking(4)];
        assert_eq!(place(stamp(0, 9), &four), Place::OfLacking(TaskId::new(4, 0)));
    }

    #[test]
    fn gangs_give_way_finitely_often() {
        // All take turns; a gang that has given way comes back to the end of the queue.
        let mut queue: Vec<u64> = vec![9, 3, 7, 1, 8, 2, 6, 4, 5];
        let mut places: Vec<Led> = Vec::new();
        for _ in 0..100 {
            let Some(next) = queue.iter().copied().min() else { break };
            match place(stamp(0, next), &places) {
                Place::None => break,
                Place::Free => {}
                Place::OfLacking(task) | Place::OfYounger(task) => {
                    places.retain(|it| it.stamp.task != task);
                    queue.push(task.job.0);
                }
            }
            queue.retain(|job| *job != next);
            places.push(led(0, next));
        }
        let mut led: Vec<u64> = places.iter().map(|it| it.stamp.task.job.0).collect();
        led.sort_unstable();
        assert_eq!(led, [1, 2, 3, 4]);
    }
}

//! *Gang*: a task of several nodes starts only when all of them have joined its attempt, and what a
//! gang holds of a node is free for nothing else.

use std::collections::{BTreeMap, BTreeSet};

use proto::work::Launch;
use proto::{Attempt, NodeId, TaskId};
use scheduler::GangPart;

use crate::checkers::{Verdict, Violation};
use crate::state::machine::{Running, cpus_of};

const NAME: &str = "gang";

/// The attempt names as many nodes as it asked for, its own first.
pub(crate) fn has_nodes(launch: &Launch, wanted: usize, node: NodeId) -> Verdict {
    let distinct: BTreeSet<NodeId> = launch.gang.iter().map(|it| it.node).collect();
    let is_gang = wanted > 1;
    let right = match is_gang {
        true => {
            launch.gang.len() == wanted
                && distinct.len() == wanted
                && launch.gang.first().map(|it| it.node) == Some(node)
        }
        false => launch.gang.is_empty(),
    };
    match right {
        true => Ok(()),
        false => {
            let text = format!("{} starts on {:?}, of {wanted}", launch.task, launch.gang);
            Err(Violation::new(NAME, text))
        }
    }
}

/// All nodes of the attempt are of one group.
pub(crate) fn is_of_one_group(launch: &Launch, group_of: impl Fn(NodeId) -> usize) -> Verdict {
    let groups: BTreeSet<usize> = launch.gang.iter().map(|it| group_of(it.node)).collect();
    match groups.len() <= 1 {
        true => Ok(()),
        false => {
            let text = format!("{} starts on nodes of several groups", launch.task);
            Err(Violation::new(NAME, format!("{text}: {:?}", launch.gang)))
        }
    }
}

/// The parts of gangs and the attempts that run take no more than the slots of a node.
pub(crate) fn fits_beside(
    launch: &Launch,
    slots: u32,
    running: &BTreeMap<(TaskId, Attempt), Running>,
    parts: impl Iterator<Item = GangPart>,
) -> Verdict {
    let busy: u32 = running.values().map(|it| it.cpus).sum::<u32>() + cpus_of(launch);
    let held: u32 = parts.map(|part| part.slots).sum();
    match busy + held <= slots {
        true => Ok(()),
        false => {
            let text = format!(
                "{} starts: {busy} slots run and gangs hold {held}, of {slots}",
                launch.task
            );
            Err(Violation::new(NAME, text))
        }
    }
}

/// The node holds a part of this attempt.
pub(crate) fn is_held(
    launch: &Launch,
    node: NodeId,
    mut parts: impl Iterator<Item = GangPart>,
) -> Verdict {
    let is_it = |part: &GangPart| (part.task, part.attempt) == (launch.task, launch.attempt);
    match parts.any(|part| is_it(&part) && part.joined && part.slots > 0) {
        true => Ok(()),
        false => {
            let text = format!("{} starts, and {node} has not joined it", launch.task);
            Err(Violation::new(NAME, text))
        }
    }
}

/// The executor of the node knows this part, so that commands of the task may start there.
pub(crate) fn is_told(
    launch: &Launch,
    node: NodeId,
    parts: &BTreeSet<(TaskId, Attempt)>,
) -> Verdict {
    match parts.contains(&(launch.task, launch.attempt)) {
        true => Ok(()),
        false => {
            let text = format!("{} starts, and the executor of {node} does not know", launch.task);
            Err(Violation::new(NAME, text))
        }
    }
}

/// The executor of a node knows exactly the parts that run there: a command of another part would
/// outlive its gang.
pub(crate) fn knows_its_parts(
    node: NodeId,
    told: &BTreeSet<(TaskId, Attempt)>,
    parts: impl Iterator<Item = GangPart>,
) -> Verdict {
    let joined = parts.filter(|part| part.joined).map(|part| (part.task, part.attempt));
    let joined: BTreeSet<_> = joined.collect();
    match *told == joined {
        true => Ok(()),
        false => {
            let text = format!("{node} has the parts {joined:?}, and its executor knows {told:?}");
            Err(Violation::new(NAME, text))
        }
    }
}

/// No gang holds the node or waits for it.
pub(crate) fn is_free(node: NodeId, mut parts: impl Iterator<Item = GangPart>) -> Verdict {
    match parts.next() {
        None => Ok(()),
        Some(part) => {
            let text = format!("{node} still has {part:?}, and all jobs have ended");
            Err(Violation::new(NAME, text))
        }
    }
}

/// Each part of a node begins once and ends at most once.
pub(crate) fn begins_once(node: NodeId, (task, attempt): (TaskId, Attempt), fits: bool) -> Verdict {
    match fits {
        true => Ok(()),
        false => {
            let text = format!("the part of {task} attempt {attempt} on {node} changes twice");
            Err(Violation::new(NAME, text))
        }
    }
}

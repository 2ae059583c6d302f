//! More of what a task may spawn and ask for: outputs, names and edges of children, turns that its
//! home refuses, and waits for tasks that do not exist.
//!
//! These are drawn by hashes with a number of their own, so the rest of a run stays as it is.

use proto::work::Turn;
use proto::{LocalId, PartitionId, TaskId, wire};

use crate::checkers::turns::Request;
use crate::state::script::mix;

/// The size of a child's output.
const OUTPUT_BYTES: u64 = 100;
/// The bits of a description's place: it has an output, and an input.
pub(super) const HAS_OUTPUT: u32 = 1;
const HAS_INPUT: u32 = 2;
/// No task has this index.
const NO_INDEX: u64 = 1 << 30;
/// One in this many turns is first sent in a form that is refused.
const REFUSED_OF: u64 = 5;

/// Gives names, edges and possibly outputs to the children of a turn.
pub(crate) fn enrich(extra: u64, turn: &mut Turn, request: &mut Request, with_outputs: bool) {
    let bare = turn.spawned.specs[0].clone();
    turn.spawned.specs = (0..4).map(|bits| spec(&bare, bits)).collect();
    let mut has_output = false;
    for at in 0..request.children.len() {
        let dice = mix(extra, request.children[at]);
        let parent_has_output = std::mem::replace(&mut has_output, with_outputs && dice & 1 == 1);
        let edge = match dice >> 1 & 3 {
            _ if at == 0 => None,
            0 => Some(0),
            1 => Some(u32::from(parent_has_output)),
            _ => None,
        };
        let task = &mut turn.spawned.tasks[at];
        if let Some(output) = edge {
            task.slots = 1;
            let (parent, child) = (at as u32 - 1, at as u32);
            turn.spawned.edges.push(wire::SpawnEdge { parent, child, slot: 0, output });
        }
        if has_output {
            task.output_sizes = vec![OUTPUT_BYTES];
        }
        let input = if edge == Some(1) { HAS_INPUT } else { 0 };
        task.spec = input | if has_output { HAS_OUTPUT } else { 0 };
        request.edges.push(edge);
        if dice >> 3 & 3 == 0 {
            let key = format!("{:x}", request.children[at]);
            turn.spawned.keys.push(wire::SpawnKey { task: at as u32, key: key.clone() });
            request.keys.push((at as u64, key));
        }
    }
}

fn spec(bare: &wire::Spec, bits: u32) -> wire::Spec {
    let output =
        wire::Output { key: "out".to_owned(), file: "out".to_owned(), ..wire::Output::default() };
    let input =
        wire::Input { key: "in".to_owned(), file: "in".to_owned(), ..wire::Input::default() };
    wire::Spec {
        outputs: (bits & HAS_OUTPUT != 0).then_some(output).into_iter().collect(),
        inputs: (bits & HAS_INPUT != 0).then_some(input).into_iter().collect(),
        ..bare.clone()
    }
}

/// A task of another partition that does not exist. A wait for it ends at once.
pub(crate) fn unknown_task(extra: u64, task: TaskId, partitions: u32) -> Option<wire::TaskRef> {
    let other = PartitionId((extra >> 8) as u32 % partitions);
    let local = LocalId::new(other, NO_INDEX);
    let named = wire::task_ref::Task::Local(local.0);
    (extra & 3 == 0 && other != task.partition()).then_some(wire::TaskRef { task: Some(named) })
}

/// A turn that must be refused: it may be sent before this one. `children`: the number of children
/// of the task before it, `key`: a name that one of them has.
pub(crate) fn refused(
    extra: u64,
    task: TaskId,
    turn: &Turn,
    children: u64,
    key: Option<&str>,
) -> Option<Turn> {
    use wire::task_ref::Task::{Child, Local};
    if !(extra >> 16).is_multiple_of(REFUSED_OF) {
        return None;
    }
    let mut bad = turn.clone();
    let all = children + turn.spawned.tasks.len() as u64;
    let wait = match extra >> 32 & 3 {
        0 => Child(all),
        1 => Local(task.local.0),
        2 => Local(LocalId::new(task.partition(), NO_INDEX).0),
        _ => {
            let key = key.filter(|_| !bad.spawned.tasks.is_empty())?.to_owned();
            bad.spawned.keys.push(wire::SpawnKey { task: 0, key });
            return Some(bad);
        }
    };
    bad.verdict = wire::TurnVerdict::TurnWait;
    bad.awaits.push(wire::TaskRef { task: Some(wait) });
    Some(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAWNS: u64 = 3;

    fn bare(number: u64) -> (Turn, Request) {
        let children: Vec<u64> = (0..SPAWNS).map(|at| mix(number, at)).collect();
        let specs = vec![wire::Spec::default()];
        let tasks = vec![wire::Task::default(); children.len()];
        let spawned = wire::Spawned { specs, tasks, ..wire::Spawned::default() };
        (Turn { spawned, ..Turn::default() }, Request { children, ..Request::default() })
    }

    #[test]
    fn names_and_edges_are_drawn_as_the_checkers_expect_them() {
        let (mut named, mut ordered, mut read) = (0, 0, 0);
        for number in 0..1_000 {
            let (mut turn, mut request) = bare(number);
            enrich(number, &mut turn, &mut request, true);
            let Turn { spawned, .. } = &turn;
            for (at, edge) in request.edges.iter().enumerate() {
                let own = spawned.edges.iter().find(|edge| edge.child as usize == at);
                assert_eq!(*edge, own.map(|edge| edge.output));
                assert_eq!(spawned.tasks[at].slots, u32::from(edge.is_some()));
                let spec = &spawned.specs[spawned.tasks[at].spec as usize];
                assert_eq!(spec.inputs.len(), usize::from(*edge == Some(1)));
                assert_eq!(spec.outputs.len(), spawned.tasks[at].output_sizes.len());
                if *edge == Some(1) {
                    assert_eq!(spawned.tasks[at - 1].output_sizes, [OUTPUT_BYTES]);
                }
                (ordered, read) =
                    (ordered + u32::from(*edge == Some(0)), read + u32::from(*edge == Some(1)));
            }
            named += request.keys.len();
        }
        assert!(named > 100 && ordered > 100 && read > 100, "{named}, {ordered}, {read}");
    }

    #[test]
    fn turns_of_all_bad_forms_are_drawn() {
        let task = TaskId { job: proto::JobId(1), local: LocalId::new(PartitionId(0), 0) };
        let mut forms = std::collections::BTreeSet::new();
        for number in 0..1_000 {
            let (turn, _) = bare(number);
            let Some(bad) = refused(mix(7, number), task, &turn, 2, Some("left")) else { continue };
            assert!(bad.verdict == wire::TurnVerdict::TurnWait || bad.awaits.is_empty());
            forms.insert((format!("{:?}", bad.awaits), bad.spawned.keys.len()));
        }
        assert_eq!(forms.len(), 4, "{forms:?}");
    }
}

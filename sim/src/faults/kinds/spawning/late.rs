//! Edges from children of earlier turns, some with a kept output, to tasks of a later turn.
//!
//! These are drawn by hashes with a number of their own, so the rest of a run stays as it is.

use proto::wire;
use proto::work::Turn;

use super::extras::HAS_OUTPUT;
use crate::checkers::turns::Request;
use crate::rng::SimRng;
use crate::state::script::mix;

/// A separate random stream, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x6c61_7465_2069_6e70;
const SEEDS_PERMILLE: u64 = 500;
/// The file that a child with an output writes.
const FILE: &str = "out";
/// One in this many children names an earlier one.
const NAMES_OF: u64 = 2;

/// The number for such edges, in seeds that have them.
pub(crate) fn of_seed(seed: u64) -> Option<u64> {
    let mut dice = SimRng::new(seed.rotate_left(24) ^ STREAM);
    dice.chance(SEEDS_PERMILLE).then(|| dice.number())
}

/// Gives edges from earlier children to the children of a turn, and has their own outputs kept.
/// `earlier`: whether each earlier child has a kept output, by its ordinal.
pub(super) fn add(number: u64, turn: &mut Turn, request: &mut Request, earlier: &[bool]) {
    let specs = turn.spawned.specs.iter_mut();
    specs.flat_map(|spec| &mut spec.outputs).for_each(|output| output.keep = true);
    for (at, task) in (0u32..).zip(&mut turn.spawned.tasks) {
        request.kept.push(task.spec & HAS_OUTPUT != 0);
        let dice = mix(number, u64::from(at));
        if earlier.is_empty() || !dice.is_multiple_of(NAMES_OF) {
            request.late.push(None);
            continue;
        }
        let parent = (dice >> 8) % earlier.len() as u64;
        let reads = earlier[parent as usize] && dice >> 4 & 1 == 1;
        let (slot, file) = (task.slots, if reads { FILE } else { "" });
        task.slots += 1;
        turn.spawned.inputs.push(wire::SpawnInput {
            parent,
            file: file.to_owned(),
            child: vec![at],
            slot: vec![slot],
            ..wire::SpawnInput::default()
        });
        if reads {
            let mut spec = turn.spawned.specs[task.spec as usize].clone();
            spec.inputs.resize(slot as usize, wire::Input::default());
            spec.inputs.push(wire::Input { file: FILE.to_owned(), ..wire::Input::default() });
            task.spec = turn.spawned.specs.len() as u32;
            turn.spawned.specs.push(spec);
        }
        request.late.push(Some((parent, u32::from(reads))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_children_are_named_and_read() {
        let (mut ordered, mut read) = (0, 0);
        for number in 0..200 {
            let specs = vec![wire::Spec::default(); 4];
            let tasks = vec![wire::Task { spec: HAS_OUTPUT, slots: 1, ..wire::Task::default() }; 3];
            let spawned = wire::Spawned { specs, tasks, ..wire::Spawned::default() };
            let mut turn = Turn { spawned, ..Turn::default() };
            let mut request = Request::default();
            add(number, &mut turn, &mut request, &[true, false]);
            assert_eq!((request.kept.len(), request.late.len()), (3, 3));
            for (at, late) in (0u32..).zip(&request.late) {
                let inputs = turn.spawned.inputs.iter();
                let own: Vec<_> = inputs.filter(|input| input.child == [at]).collect();
                let Some((parent, output)) = *late else {
                    assert!(own.is_empty());
                    continue;
                };
                assert_eq!((own[0].parent, own[0].slot[0]), (parent, 1));
                assert_eq!(own[0].file.is_empty(), output == 0);
                assert!(output == 0 || parent == 0, "only child 0 has an output");
                let task = &turn.spawned.tasks[at as usize];
                assert_eq!(task.slots, 2);
                let inputs = turn.spawned.specs[task.spec as usize].inputs.len();
                assert_eq!(inputs, if output == 1 { 2 } else { 0 });
                (ordered, read) = (ordered + u32::from(output == 0), read + output);
            }
        }
        assert!(ordered > 100 && read > 50, "{ordered}, {read}");
    }
}

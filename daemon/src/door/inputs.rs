//! What spawned tasks wait for: children of the same turn by their places in it, children of
//! earlier turns by their ordinals.

use std::collections::BTreeSet;

use proto::wire;

use crate::door::refusal::Refusal;

/// An error names at most this number of outputs.
const OUTPUTS_NAMED_MAX: usize = 16;

/// A child that must be done before the tasks of a call start.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Parent {
    /// Of the same turn. `output`: 0: order only; k+1: the tasks read output k.
    Place { place: u32, output: u32 },
    /// Of an earlier turn. Its home knows its outputs. No file: order only.
    Earlier { ordinal: u64, file: String, form: i32 },
}

impl Parent {
    pub(super) fn of_earlier(ordinal: u64) -> Self {
        Self::Earlier { ordinal, file: String::new(), form: 0 }
    }
}

/// An output of a child that is not committed yet.
pub(super) fn output_of(
    spawned: &wire::Spawned,
    (ordinal, place): (u64, u32),
    input: &wire::DoorInputFile,
) -> Result<Parent, Refusal> {
    let task = &spawned.tasks[place as usize];
    let outputs = &spawned.specs[task.spec as usize].outputs;
    let names = || outputs.iter().map(|it| proto::entry::expand(&it.file, task.entry));
    let Some(at) = names().position(|name| name == input.file) else {
        let known: Vec<String> = names().take(OUTPUTS_NAMED_MAX).collect();
        let known = match known.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has {}", known.join(", ")),
        };
        let text = format!("--in: child {ordinal} has no output '{}', {known}", input.file);
        return Err(Refusal::bad(text, "name an output of its --out"));
    };
    if outputs[at].form != input.form {
        let text = format!("--in: output '{}' of child {ordinal} has another form", input.file);
        return Err(Refusal::bad(
            text,
            "name it as its --out does: FILE, DIRECTORY/ or glob:PATTERN",
        ));
    }
    Ok(Parent::Place { place, output: at as u32 + 1 })
}

/// Declares the inputs of the tasks of a call. They come before files from outside.
pub(super) fn declare(
    spec: &mut wire::Spec,
    inputs: &[wire::DoorInputFile],
) -> Result<(), Refusal> {
    let mut names: BTreeSet<&str> = spec.externals.iter().map(|it| it.file.as_str()).collect();
    if let Some(twice) = inputs.iter().find(|input| !names.insert(&input.file)) {
        let text = format!("--in: two inputs have the name '{}'", twice.file);
        return Err(Refusal::bad(text, "give the outputs of children different names"));
    }
    let read = |input: &wire::DoorInputFile| wire::Input {
        key: input.file.clone(),
        file: input.file.clone(),
        form: input.form,
        ..wire::Input::default()
    };
    spec.inputs = inputs.iter().map(read).collect();
    for external in spec.externals.iter_mut().filter(|external| external.place > 0) {
        external.place += inputs.len() as u32;
    }
    Ok(())
}

/// Adds the edges from these parents to the tasks of a turn from `first` on.
pub(super) fn add_edges(spawned: &mut wire::Spawned, first: u32, parents: Vec<Parent>) {
    let tasks = first..spawned.tasks.len() as u32;
    for (slot, parent) in (0..).zip(parents) {
        match parent {
            Parent::Place { place: parent, output } => {
                let edge = |child| wire::SpawnEdge { parent, child, slot, output };
                spawned.edges.extend(tasks.clone().map(edge));
            }
            Parent::Earlier { ordinal, file, form } => spawned.inputs.push(wire::SpawnInput {
                parent: ordinal,
                file,
                output: 0,
                child: tasks.clone().collect(),
                slot: vec![slot; tasks.len()],
                form,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(file: &str, form: i32) -> wire::DoorInputFile {
        wire::DoorInputFile { task: None, file: file.to_owned(), form }
    }

    #[test]
    fn an_output_of_the_same_turn_is_found_by_its_name() {
        let file = "part-{i}".to_owned();
        let outputs = vec![
            wire::Output::default(),
            wire::Output { file, form: 1, ..wire::Output::default() },
        ];
        let spawned = wire::Spawned {
            specs: vec![wire::Spec { outputs, ..wire::Spec::default() }],
            tasks: vec![wire::Task { entry: 7, ..wire::Task::default() }],
            ..wire::Spawned::default()
        };
        let found = output_of(&spawned, (3, 0), &named("part-7", 1)).unwrap();
        assert_eq!(found, Parent::Place { place: 0, output: 2 });
        let form = output_of(&spawned, (3, 0), &named("part-7", 0)).unwrap_err();
        assert!(form.text().contains("another form"), "{form:?}");
        let none = output_of(&spawned, (3, 0), &named("part-8", 1)).unwrap_err();
        assert!(none.text().contains("child 3 has no output 'part-8'"), "{none:?}");
    }

    #[test]
    fn inputs_have_different_names() {
        let external = wire::External { file: "b".to_owned(), place: 1, ..Default::default() };
        let bare = wire::Spec { externals: vec![external], ..wire::Spec::default() };
        let mut spec = bare.clone();
        declare(&mut spec, &[named("a", 0), named("c", 1)]).unwrap();
        assert_eq!((spec.inputs.len(), spec.externals[0].place), (2, 3));
        for names in [["a", "a"], ["a", "b"]] {
            let refused = declare(&mut bare.clone(), &names.map(|name| named(name, 0)));
            assert!(refused.unwrap_err().text().contains("two inputs have the name"));
        }
    }

    #[test]
    fn edges_lead_to_all_tasks_of_the_call() {
        let mut spawned =
            wire::Spawned { tasks: vec![wire::Task::default(); 4], ..Default::default() };
        let earlier = Parent::Earlier { ordinal: 9, file: "x".to_owned(), form: 0 };
        add_edges(&mut spawned, 2, vec![earlier, Parent::Place { place: 1, output: 3 }]);
        let edges: Vec<_> = spawned.edges.iter().map(|it| (it.parent, it.child, it.slot)).collect();
        assert_eq!(edges, [(1, 2, 1), (1, 3, 1)]);
        let input = &spawned.inputs[0];
        assert_eq!((input.parent, &*input.child, &*input.slot), (9, &[2, 3][..], &[0, 0][..]));
    }
}

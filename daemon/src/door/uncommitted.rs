//! The children of one attempt that do not exist yet: its next turn takes them along.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use proto::wire::{self, spec, task_ref};
use proto::{entry, limits};

use crate::door::inputs::{self, Parent};
use crate::door::refusal::Refusal;

/// The bytes that spawned tasks may take of a turn; its state and its awaited tasks take the rest.
const SPAWNED_BYTES_MAX: usize = limits::TURN_BYTES_MAX / 2;
/// The bytes of a task and of an edge in a turn, at most.
const TASK_BYTES: usize = 24;
const EDGE_BYTES: usize = 24;

/// The children of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Keyed {
    first: u64,
    /// `None`: an earlier attempt has made them.
    count: Option<u64>,
}

/// Ranges of entries that do not overlap: the last one by the first one.
type Entries = BTreeMap<u64, u64>;

/// The children that a task has made, by the names that its attempt gave them.
#[derive(Debug, Default)]
pub(crate) struct Children {
    /// The ordinal of the next child.
    next: u64,
    /// The ordinal of the first uncommitted child.
    committed: u64,
    keys: BTreeMap<String, Keyed>,
    /// The kept outputs of this attempt's children, which land in one directory: the entries by
    /// the name with its placeholders.
    kept: BTreeMap<String, Entries>,
    spawned: wire::Spawned,
    spawned_bytes: usize,
}

impl Children {
    /// With the children of the turns that earlier attempts have committed.
    pub(crate) fn after(resume: &wire::Resume) -> Self {
        let end = |range: &wire::ChildRange| range.ordinal + u64::from(range.count);
        let next = resume.children.iter().map(end).max().unwrap_or(0);
        let keyed = |key: &wire::ChildKey| Keyed { first: key.ordinal, count: None };
        let keys = resume.keys.iter().map(|key| (key.key.clone(), keyed(key))).collect();
        Self { next, committed: next, keys, ..Self::default() }
    }

    pub(crate) fn has_uncommitted(&self) -> bool {
        self.next > self.committed
    }

    /// Takes the uncommitted children for a turn.
    pub(crate) fn take(&mut self) -> wire::Spawned {
        self.spawned_bytes = 0;
        self.committed = self.next;
        std::mem::take(&mut self.spawned)
    }

    /// Whether the child exists already.
    pub(crate) fn is_committed(&self, ordinal: u64) -> Result<bool, Refusal> {
        self.check_child(ordinal)?;
        Ok(ordinal < self.committed)
    }

    /// The last turn, with these children, was refused. No child was spawned since.
    pub(crate) fn put_back(&mut self, spawned: wire::Spawned) {
        self.committed = self.next - spawned.tasks.len() as u64;
        self.spawned_bytes = spawned.encoded_len();
        self.spawned = spawned;
    }

    /// Adds the children of a call, or finds those that an earlier call with its key has made.
    pub(crate) fn spawn(&mut self, call: wire::DoorSpawn) -> Result<wire::DoorSpawned, Refusal> {
        if call.key.len() > limits::CHILD_KEY_BYTES_MAX {
            let most = limits::CHILD_KEY_BYTES_MAX;
            return Err(Refusal::bad(
                format!("--key: longer than {most} bytes"),
                "shorten the key",
            ));
        }
        let bytes = call.encoded_len();
        let mut spec = checked_spec(call.spec)?;
        let count = count_of(&call.entries)?;
        if let Some(known) = self.keys.get(&call.key).filter(|_| !call.key.is_empty()) {
            return known.again(&call.key, count, self.next);
        }
        self.check_room(&call.key, count, bytes)?;
        let mut parents = self.read(&call.inputs)?;
        parents.extend(self.follow(&call.after)?);
        self.check_edges(count, parents.len())?;
        inputs::declare(&mut spec, &call.inputs)?;
        self.keep(&spec, &call.entries)?;
        let first = self.next;
        self.next += count;
        self.spawned_bytes += bytes + count as usize * (TASK_BYTES + parents.len() * EDGE_BYTES);
        if !call.key.is_empty() {
            self.keys.insert(call.key.clone(), Keyed { first, count: Some(count) });
            let task = self.spawned.tasks.len() as u32;
            self.spawned.keys.push(wire::SpawnKey { task, key: call.key });
        }
        self.add(spec, &call.entries, parents);
        Ok(wire::DoorSpawned { first, count, known: false })
    }

    fn check_room(&self, key: &str, count: u64, bytes: usize) -> Result<(), Refusal> {
        let uncommitted = (self.next - self.committed).saturating_add(count);
        if count > limits::TURN_SPAWNS_MAX as u64 {
            return Err(Refusal::bad(
                format!("one call makes at most {} tasks", limits::TURN_SPAWNS_MAX),
                "split the array into several calls, with 'starling commit' between them",
            ));
        }
        if uncommitted > limits::TURN_SPAWNS_MAX as u64
            || self.spawned_bytes.saturating_add(bytes) > SPAWNED_BYTES_MAX
        {
            let most = limits::TURN_SPAWNS_MAX;
            let text = format!(
                "more than {most} spawned tasks, or {SPAWNED_BYTES_MAX} bytes of them, are not \
                 committed"
            );
            return Err(Refusal::bad(text, "'starling commit' or 'starling await' commits them"));
        }
        if !key.is_empty() && self.keys.len() >= limits::CHILD_KEYS_MAX {
            let text = format!("--key: the task has named {} children already", self.keys.len());
            return Err(Refusal::bad(text, "name an array of children by one key"));
        }
        Ok(())
    }

    fn check_edges(&self, count: u64, parents: usize) -> Result<(), Refusal> {
        let edges = count.saturating_mul(parents as u64);
        let most = limits::CHUNK_EDGES_MAX;
        let late = self.spawned.inputs.iter().map(|input| input.child.len());
        let known = self.spawned.edges.len() + late.sum::<usize>();
        if edges.saturating_add(known as u64) <= most as u64 {
            return Ok(());
        }
        Err(Refusal::bad(
            format!("--after, --in: more than {most} pairs of tasks in one turn"),
            "spawn one task after all of them, and the others after that one",
        ))
    }

    fn add(&mut self, spec: wire::Spec, entries: &[wire::EntryRange], parents: Vec<Parent>) {
        if self.spawned.specs.last() != Some(&spec) {
            self.spawned.specs.push(spec);
        }
        let spec = self.spawned.specs.len() as u32 - 1;
        let slots = parents.len() as u32;
        let first = self.spawned.tasks.len() as u32;
        for entry in entries.iter().flat_map(|range| range.first..=range.last) {
            self.spawned.tasks.push(wire::Task { spec, entry, slots, ..wire::Task::default() });
        }
        inputs::add_edges(&mut self.spawned, first, parents);
    }

    /// The awaited tasks as the parent named them; none: all children.
    pub(crate) fn awaited(&self, tasks: Vec<wire::TaskRef>) -> Result<Vec<wire::TaskRef>, Refusal> {
        let all = tasks.is_empty();
        let count = if all { self.next } else { tasks.len() as u64 };
        if count > limits::TURN_AWAITS_MAX as u64 {
            let text = format!("more than {} tasks in one await", limits::TURN_AWAITS_MAX);
            return Err(Refusal::bad(text, "await them in several calls"));
        }
        if all {
            let child = |ordinal| wire::TaskRef { task: Some(task_ref::Task::Child(ordinal)) };
            return Ok((0..self.next).map(child).collect());
        }
        for task in &tasks {
            match task.task {
                Some(task_ref::Task::Child(ordinal)) => self.check_child(ordinal)?,
                Some(task_ref::Task::Local(_)) => {}
                None => return Err(unnamed()),
            }
        }
        Ok(tasks)
    }

    /// The children after which tasks start, by their names.
    fn follow(&self, after: &[wire::TaskRef]) -> Result<Vec<Parent>, Refusal> {
        let parent = |task: &wire::TaskRef| {
            let ordinal = self.own_child("--after", Some(task))?;
            Ok(match self.place(ordinal) {
                Some(place) => Parent::Place { place, output: 0 },
                None => Parent::of_earlier(ordinal),
            })
        };
        let parents: Vec<Parent> = after.iter().map(parent).collect::<Result<_, _>>()?;
        match parents.iter().collect::<BTreeSet<_>>().len() == parents.len() {
            true => Ok(parents),
            false => Err(Refusal::bad("--after: a child is named twice", "name each child once")),
        }
    }

    /// The outputs that tasks read.
    fn read(&self, inputs: &[wire::DoorInputFile]) -> Result<Vec<Parent>, Refusal> {
        let parent = |input: &wire::DoorInputFile| {
            let ordinal = self.own_child("--in", input.task.as_ref())?;
            match self.place(ordinal) {
                Some(place) => inputs::output_of(&self.spawned, (ordinal, place), input),
                None => Ok(Parent::Earlier { ordinal, file: input.file.clone(), form: input.form }),
            }
        };
        inputs.iter().map(parent).collect()
    }

    /// The ordinal of a child that exists, or is to exist with the next turn.
    fn own_child(&self, option: &str, task: Option<&wire::TaskRef>) -> Result<u64, Refusal> {
        match task.and_then(|task| task.task) {
            Some(task_ref::Task::Child(ordinal)) => self.check_child(ordinal).map(|()| ordinal),
            Some(task_ref::Task::Local(_)) => {
                let text = format!("{option}: only children of this task can be named");
                Err(Refusal::bad(text, "await it first"))
            }
            None => Err(unnamed()),
        }
    }

    /// The place of a child in the next turn. `None`: it is committed already.
    fn place(&self, ordinal: u64) -> Option<u32> {
        u32::try_from(ordinal.checked_sub(self.committed)?).ok()
    }

    fn check_child(&self, ordinal: u64) -> Result<(), Refusal> {
        if ordinal < self.next {
            return Ok(());
        }
        let text = match self.next {
            0 => format!("no child {ordinal}: this task has spawned none"),
            next => format!("no child {ordinal}: this task has spawned 0 to {}", next - 1),
        };
        Err(Refusal::bad(text, "'starling spawn' prints the handle of a child"))
    }

    /// Two children that keep an output of one name would overwrite each other's results.
    fn keep(&mut self, spec: &wire::Spec, entries: &[wire::EntryRange]) -> Result<(), Refusal> {
        let all = [wire::EntryRange { first: 0, last: u64::MAX }];
        let is_array = count_of(entries).is_ok_and(|count| count > 1);
        let mut new: BTreeMap<&str, Entries> = BTreeMap::new();
        for output in spec.outputs.iter().filter(|output| output.keep) {
            let name = output.file.as_str();
            let has_entry = entry::is_template(name);
            let known = self.kept.get(name);
            let own = new.entry(name).or_default();
            let ranges = if has_entry { entries } else { &all[..] };
            for range in ranges {
                let is_known = known.is_some_and(|known| overlap(known, range));
                if is_known || overlap(own, range) || is_array && !has_entry {
                    let text = format!("two children keep an output of the name '{name}'");
                    let hint = "put {i} into the name for an array, or another word into each name";
                    return Err(Refusal::bad(text, hint));
                }
                own.insert(range.first, range.last);
            }
        }
        for (name, mut own) in new {
            self.kept.entry(name.to_owned()).or_default().append(&mut own);
        }
        Ok(())
    }
}

impl Keyed {
    /// A further call with the key.
    fn again(self, key: &str, count: u64, next: u64) -> Result<wire::DoorSpawned, Refusal> {
        let Self { first, count: made } = self;
        let fits = match made {
            Some(made) => made == count,
            None => first.checked_add(count).is_some_and(|end| end <= next),
        };
        if !fits {
            let text = format!("--key {key}: an earlier call has made another number of tasks");
            return Err(Refusal::bad(text, "use one key for one call of the script"));
        }
        Ok(wire::DoorSpawned { first, count, known: true })
    }
}

/// True if some entry of the range is among these.
fn overlap(entries: &Entries, range: &wire::EntryRange) -> bool {
    let before = entries.range(..=range.last).next_back();
    before.is_some_and(|(_, &last)| last >= range.first)
}

fn unnamed() -> Refusal {
    Refusal::bad("a handle without a name", "use the 'starling' of this node's version")
}

/// The description, if tasks inside a job may have it.
fn checked_spec(spec: Option<wire::Spec>) -> Result<wire::Spec, Refusal> {
    let spec = spec.unwrap_or_default();
    let is_command = match &spec.body {
        Some(spec::Body::Command(command)) => command.argv.first().is_some_and(|it| !it.is_empty()),
        _ => false,
    };
    if !is_command || !spec.inputs.is_empty() || spec.cpus > limits::SLOTS_MAX {
        let text = "the description of the spawned task is not one of a command";
        return Err(Refusal::bad(text, "use the 'starling' of this node's version"));
    }
    Ok(spec)
}

fn count_of(entries: &[wire::EntryRange]) -> Result<u64, Refusal> {
    let mut count: u64 = 0;
    for range in entries {
        let more = range.last.checked_sub(range.first).and_then(|more| more.checked_add(1));
        let sum = more.and_then(|more| count.checked_add(more));
        count = sum.ok_or_else(|| Refusal::bad("a range of entries is reversed", "see --array"))?;
    }
    match count {
        0 => Err(Refusal::bad("a spawn without entries", "see --array")),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(key: &str, count: u64) -> wire::DoorSpawn {
        let argv = vec!["true".to_owned()];
        let body = spec::Body::Command(wire::Command { argv, ..wire::Command::default() });
        wire::DoorSpawn {
            key: key.to_owned(),
            spec: Some(wire::Spec { body: Some(body), ..wire::Spec::default() }),
            entries: vec![wire::EntryRange { first: 0, last: count - 1 }],
            after: vec![],
            inputs: vec![],
        }
    }

    fn child(ordinal: u64) -> wire::TaskRef {
        wire::TaskRef { task: Some(task_ref::Task::Child(ordinal)) }
    }

    fn made(children: &mut Children, key: &str, count: u64) -> (u64, u64, bool) {
        let it = children.spawn(call(key, count)).unwrap();
        (it.first, it.count, it.known)
    }

    #[test]
    fn a_key_names_the_same_children_again() {
        let mut children = Children::default();
        assert_eq!(made(&mut children, "", 3), (0, 3, false));
        assert_eq!(made(&mut children, "a", 2), (3, 2, false));
        assert_eq!(made(&mut children, "a", 2), (3, 2, true));
        assert_eq!(made(&mut children, "", 1), (5, 1, false));
        let turn = children.take();
        let keys: Vec<(u32, &str)> = turn.keys.iter().map(|it| (it.task, &*it.key)).collect();
        assert_eq!((turn.tasks.len(), turn.specs.len(), keys), (6, 1, vec![(3, "a")]));
        assert_eq!(made(&mut children, "a", 2), (3, 2, true));
        assert!(!children.has_uncommitted());
        let wrong = children.spawn(call("a", 4)).unwrap_err();
        assert!(wrong.text().contains("another number of tasks"), "{wrong:?}");
        // A later attempt knows the keys of committed turns.
        let range = |ordinal, count| wire::ChildRange { ordinal, first: 70, count };
        let mut later = Children::after(&wire::Resume {
            children: vec![range(0, 4), range(4, 5)],
            keys: vec![wire::ChildKey { key: "b".to_owned(), ordinal: 7 }],
            ..wire::Resume::default()
        });
        assert_eq!(made(&mut later, "b", 2), (7, 2, true));
        assert!(later.spawn(call("b", 3)).is_err());
        assert_eq!(made(&mut later, "c", 1), (9, 1, false));
    }

    #[test]
    fn uncommitted_children_are_bounded() {
        let mut children = Children::default();
        made(&mut children, "", limits::TURN_SPAWNS_MAX as u64);
        let refused = children.spawn(call("", 1)).unwrap_err();
        assert!(refused.text().contains("are not committed"), "{refused:?}");
        children.take();
        made(&mut children, "", 1);
        let mut children = Children::default();
        let mut long = call("", 1);
        long.spec.as_mut().unwrap().name = "n".repeat(SPAWNED_BYTES_MAX / 3);
        let accepted = (0..10).take_while(|_| children.spawn(long.clone()).is_ok()).count();
        assert_eq!(accepted, 2);
        assert!(children.spawn(call(&"k".repeat(limits::CHILD_KEY_BYTES_MAX + 1), 1)).is_err());
    }

    #[test]
    fn handles_name_children_that_were_spawned() {
        let mut children = Children::default();
        let unknown = children.awaited(vec![child(0)]).unwrap_err();
        assert!(unknown.text().contains("has spawned none"), "{unknown:?}");
        made(&mut children, "", 2);
        assert_eq!(children.awaited(vec![]).unwrap(), [child(0), child(1)]);
        assert_eq!(children.awaited(vec![child(1)]).unwrap(), [child(1)]);
        assert!(children.awaited(vec![child(2)]).unwrap_err().text().contains("0 to 1"));
        // No child waits for itself or for a later one.
        let after = |ordinals: &[u64]| {
            let after = ordinals.iter().map(|&ordinal| child(ordinal)).collect();
            wire::DoorSpawn { after, ..call("", 2) }
        };
        assert!(children.spawn(after(&[2])).is_err());
        assert!(children.spawn(after(&[1, 1])).is_err());
        assert!(children.spawn(after(&[1, 0])).is_ok());
        let turn = children.take();
        let edges: Vec<_> = turn.edges.iter().map(|it| (it.parent, it.child, it.slot)).collect();
        assert_eq!(edges, [(1, 2, 0), (1, 3, 0), (0, 2, 1), (0, 3, 1)]);
        assert_eq!(turn.tasks.iter().map(|it| it.slots).collect::<Vec<_>>(), [0, 0, 2, 2]);
        // A child of an earlier turn is named by its ordinal.
        assert!(children.spawn(after(&[3, 1])).is_ok());
        let late = children.take();
        let named: Vec<_> =
            late.inputs.iter().map(|it| (it.parent, &*it.child, &*it.slot)).collect();
        assert_eq!(named, [(3, &[0, 1][..], &[0, 0][..]), (1, &[0, 1], &[1, 1])]);
        assert!(late.edges.is_empty() && late.tasks.iter().all(|task| task.slots == 2));
        children.put_back(late);
        assert!(children.spawn(after(&[4])).is_ok());
        assert_eq!(children.take().edges.len(), 2);
    }

    #[test]
    fn kept_outputs_of_children_have_different_names() {
        let keeping = |file: &str, count| {
            let mut call = call("", count);
            let output =
                wire::Output { file: file.to_owned(), keep: true, ..wire::Output::default() };
            call.spec.as_mut().unwrap().outputs = vec![output];
            call
        };
        let mut children = Children::default();
        assert!(children.spawn(keeping("a", 1)).is_ok());
        let refused = children.spawn(keeping("a", 1)).unwrap_err();
        assert!(refused.text().contains("of the name 'a'"), "{refused:?}");
        assert!(children.spawn(keeping("b", 2)).is_err());
        assert!(children.spawn(keeping("b-{i}", 2)).is_ok());
        assert!(children.spawn(keeping("b", 1)).is_ok());
        // Of another call, with some of the same entries.
        let of = |file: &str, ranges: &[(u64, u64)]| {
            let range = |&(first, last): &(u64, u64)| wire::EntryRange { first, last };
            let entries = ranges.iter().map(range).collect();
            wire::DoorSpawn { entries, ..keeping(file, 1) }
        };
        let refused = children.spawn(of("b-{i}", &[(1, 4)])).unwrap_err();
        assert!(refused.text().contains("of the name 'b-{i}'"), "{refused:?}");
        assert!(children.spawn(of("b-{i}", &[(2, 4), (8, 9)])).is_ok());
        for entries in [&[(0, 20)][..], &[(4, 4)], &[(5, 7), (9, 9)], &[(6, 7), (5, 6)]] {
            assert!(children.spawn(of("b-{i}", entries)).is_err(), "{entries:?}");
        }
        assert!(children.spawn(of("b-{i}", &[(5, 7), (10, 10)])).is_ok());
        assert!(children.spawn(of("c-{i}", &[(0, 20)])).is_ok());
        assert!(children.spawn(of("{task}-{i}", &[(0, 1)])).is_ok());
        let again = children.spawn(of("{task}-{i}", &[(0, 1)]));
        assert!(again.is_err(), "names of files have no placeholder but {{i}}");
    }

    #[test]
    fn only_commands_are_spawned() {
        let mut children = Children::default();
        let upload = spec::Body::Upload(wire::Upload {});
        for body in [None, Some(upload), Some(spec::Body::Command(wire::Command::default()))] {
            let spec = Some(wire::Spec { body, ..wire::Spec::default() });
            assert!(children.spawn(wire::DoorSpawn { spec, ..call("", 1) }).is_err());
        }
        let reversed = vec![wire::EntryRange { first: 2, last: 1 }];
        let endless = vec![wire::EntryRange { first: 0, last: u64::MAX }];
        for entries in [vec![], reversed, endless] {
            assert!(children.spawn(wire::DoorSpawn { entries, ..call("", 1) }).is_err());
        }
        assert!(!children.has_uncommitted());
    }
}

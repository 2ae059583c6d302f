//! The few bytes that stay of each task after its record has left memory: its name, where and by
//! which attempt it ended, when it ran, and what it used.

use proto::work::Used;
use proto::{Attempt, NodeId};

use super::Times;

/// The number of tasks in a group. A task is decoded from the first of its group on.
const GROUP: usize = 32;

const SAME_NODE: u8 = 1;
const SAME_SPEC: u8 = 1 << 1;
const NEXT_ENTRY: u8 = 1 << 2;
const SAME_TERM: u8 = 1 << 3;
const EXIT_CODE: u8 = 1 << 4;
const NAME: u8 = 1 << 5;
const TIMES: u8 = 1 << 6;
const USED: u8 = 1 << 7;

/// All that stays of one task beside its end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Brief {
    pub(in crate::home::ledger) node: NodeId,
    pub(in crate::home::ledger) attempt: Attempt,
    pub(in crate::home::ledger) spec: u32,
    pub(in crate::home::ledger) entry: u64,
    pub(in crate::home::ledger) exit_code: i32,
    /// The task's own name, if it has one.
    pub(in crate::home::ledger) name: Option<Box<str>>,
    pub(in crate::home::ledger) times: Times,
    pub(in crate::home::ledger) used: Used,
}

/// The tasks of a chunk, in their order. Each is stored as the difference from the one before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    bytes: Box<[u8]>,
    /// The offset of each group.
    groups: Box<[u32]>,
}

impl Packed {
    pub(crate) fn new(tasks: impl Iterator<Item = Brief>) -> Self {
        let (mut bytes, mut groups, mut before) = (Vec::new(), Vec::new(), Brief::default());
        for (at, task) in tasks.enumerate() {
            if at % GROUP == 0 {
                groups.push(bytes.len() as u32);
                before = Brief::default();
            }
            write(&mut bytes, &before, &task);
            before = task;
        }
        Self { bytes: bytes.into(), groups: groups.into() }
    }

    /// `None`: there is no such task.
    pub(crate) fn get(&self, at: u32) -> Option<Brief> {
        let at = at as usize;
        let mut reader = Reader { bytes: &self.bytes, at: *self.groups.get(at / GROUP)? as usize };
        let mut task = Brief::default();
        for _ in 0..=at % GROUP {
            task = reader.task(&task)?;
        }
        Some(task)
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.bytes.len() + 4 * self.groups.len()
    }
}

fn write(bytes: &mut Vec<u8>, before: &Brief, task: &Brief) {
    let mut flags = 0;
    let mut set = |flag: u8, holds: bool| flags |= if holds { flag } else { 0 };
    set(SAME_NODE, task.node == before.node);
    set(SAME_SPEC, task.spec == before.spec);
    set(NEXT_ENTRY, task.entry == before.entry.wrapping_add(1));
    set(SAME_TERM, task.attempt.term() == before.attempt.term());
    set(EXIT_CODE, task.exit_code != 0);
    set(NAME, task.name.is_some());
    set(TIMES, task.times.is_known());
    set(USED, !task.used.is_none());
    bytes.push(flags);
    if flags & SAME_NODE == 0 {
        number(bytes, task.node.0.into());
    }
    if flags & SAME_SPEC == 0 {
        number(bytes, task.spec.into());
    }
    if flags & NEXT_ENTRY == 0 {
        number(bytes, task.entry);
    }
    if flags & SAME_TERM == 0 {
        number(bytes, task.attempt.term().into());
    }
    let further = i64::from(task.attempt.number()) - i64::from(before.attempt.number());
    number(bytes, zigzag(further));
    if task.exit_code != 0 {
        number(bytes, zigzag(task.exit_code.into()));
    }
    if task.times.is_known() {
        let further = i64::from(task.times.start) - i64::from(before.times.start);
        number(bytes, zigzag(further));
        number(bytes, task.times.took.into());
    }
    if !task.used.is_none() {
        number(bytes, task.used.cpu_us);
        number(bytes, task.used.max_rss_kib);
    }
    if let Some(name) = &task.name {
        let known = before.name.as_deref().unwrap_or_default().as_bytes();
        let alike = known.iter().zip(name.as_bytes()).take_while(|(one, other)| one == other);
        let alike = alike.count();
        number(bytes, alike as u64);
        number(bytes, (name.len() - alike) as u64);
        bytes.extend_from_slice(&name.as_bytes()[alike..]);
    }
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn number(bytes: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(n);
            }
        }
        None
    }
    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }
    fn signed(&mut self) -> Option<i64> {
        let n = self.number()?;
        Some((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    fn task(&mut self, before: &Brief) -> Option<Brief> {
        let flags = *self.bytes.get(self.at)?;
        self.at += 1;
        let has = |flag: u8| flags & flag != 0;
        let node = if has(SAME_NODE) { before.node } else { NodeId(self.small()?) };
        let spec = if has(SAME_SPEC) { before.spec } else { self.small()? };
        let entry = if has(NEXT_ENTRY) { before.entry.wrapping_add(1) } else { self.number()? };
        let term = if has(SAME_TERM) { before.attempt.term() } else { self.small()? };
        let attempt = i64::from(before.attempt.number()) + self.signed()?;
        let attempt = Attempt::new(term, u32::try_from(attempt).ok()?);
        let exit_code = if has(EXIT_CODE) { i32::try_from(self.signed()?).ok()? } else { 0 };
        let times = if has(TIMES) { self.times(before.times)? } else { Times::default() };
        let used = if has(USED) { self.used()? } else { Used::default() };
        let name = if has(NAME) { Some(self.name(before)?) } else { None };
        Some(Brief { node, attempt, spec, entry, exit_code, name, times, used })
    }

    fn times(&mut self, before: Times) -> Option<Times> {
        let start = i64::from(before.start) + self.signed()?;
        Some(Times { start: u32::try_from(start).ok()?, took: self.small()? })
    }

    fn used(&mut self) -> Option<Used> {
        Some(Used { cpu_us: self.number()?, max_rss_kib: self.number()? })
    }

    fn name(&mut self, before: &Brief) -> Option<Box<str>> {
        let (alike, more) = (self.number()? as usize, self.number()? as usize);
        let known = before.name.as_deref().unwrap_or_default().as_bytes();
        let mut name = known.get(..alike)?.to_vec();
        name.extend_from_slice(self.bytes.get(self.at..self.at + more)?);
        self.at += more;
        String::from_utf8(name).ok().map(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn brief() -> impl Strategy<Value = Brief> {
        let attempt = (0u32..3, 0u32..1000);
        let name = prop::option::of("[a-zé]{0,6}");
        let times = prop_oneof![Just((0, 0)), (1..=u32::MAX, any::<u32>())];
        let used = prop_oneof![Just((0, 0)), (any::<u64>(), 0..1u64 << 40)];
        (0u32..4, attempt, 0u32..3, any::<u64>(), -2i32..200, name, times, used).prop_map(
            |(node, (term, number), spec, entry, exit_code, name, (start, took), used)| Brief {
                node: NodeId(node),
                attempt: Attempt::new(term, number),
                spec,
                entry,
                exit_code,
                name: name.map(Into::into),
                times: Times { start, took },
                used: Used { cpu_us: used.0, max_rss_kib: used.1 },
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_packed_is_read_back(tasks in prop::collection::vec(brief(), 0..100)) {
            let packed = Packed::new(tasks.iter().cloned());
            for (at, task) in (0..).zip(&tasks) {
                prop_assert_eq!(packed.get(at), Some(task.clone()));
            }
            prop_assert_eq!(packed.get(tasks.len() as u32), None);
        }
    }

    #[test]
    fn a_task_of_an_array_takes_a_few_bytes_and_a_name_not_many_more() {
        let task = |number: u64, name: Option<Box<str>>| Brief {
            node: NodeId((number % 2) as u32),
            attempt: Attempt::new(1, number as u32),
            spec: 0,
            entry: number,
            exit_code: 0,
            name,
            times: Times::default(),
            used: Used::default(),
        };
        let packed = Packed::new((0..4096).map(|number| task(number, None)));
        assert!(packed.bytes() < 4 * 4096, "{}", packed.bytes());
        let named = |number: u64| Some(format!("align-{number:05}").into());
        let packed = Packed::new((0..4096).map(|number| task(number, named(number))));
        assert!(packed.bytes() < 8 * 4096, "{}", packed.bytes());
        assert_eq!(packed.get(4000).unwrap().name.as_deref(), Some("align-04000"));
        // Eight slots, tasks of about 50 ms.
        let timed = |number: u64| Brief {
            times: Times { start: 1 + number as u32 / 8 * 50, took: 50_000 + number as u32 % 999 },
            ..task(number, None)
        };
        let packed = Packed::new((0..4096).map(timed));
        assert!(packed.bytes() < 8 * 4096, "{}", packed.bytes());
    }
}

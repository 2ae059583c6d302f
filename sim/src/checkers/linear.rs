//! *Linear*: for each key, the answers of the key-value store fit one order of the operations that
//! respects real time. An unanswered write may have taken effect at any later time, or never.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proto::{Time, wire};

use super::{Verdict, Violation};

const NAME: &str = "linear";
/// The most states that the search visits for one key. Beyond them the key is undecided.
const STATES_MAX: usize = 200_000;
pub const OPERATIONS_MAX: usize = 128;

/// One operation on one key, as a client observed it.
#[derive(Clone, Debug)]
pub struct Operation {
    pub op: wire::KvOp,
    pub called: Time,
    /// `None`: never answered.
    pub answered: Option<(Time, wire::KvResult)>,
}

/// The operations of all clients by key. Keys with more than [`OPERATIONS_MAX`] operations are
/// skipped.
#[derive(Debug, Default)]
pub struct History {
    pub keys: BTreeMap<Bytes, Vec<Operation>>,
}

impl History {
    /// Records a call. The result is for [`Self::answered`].
    pub fn called(&mut self, op: wire::KvOp, now: Time) -> (Bytes, usize) {
        let key = op.key.clone();
        let list = self.keys.entry(key.clone()).or_default();
        list.push(Operation { op, called: now, answered: None });
        (key, list.len() - 1)
    }
    /// # Panics
    /// When `at` is of no call.
    pub fn answered(&mut self, at: &(Bytes, usize), now: Time, result: wire::KvResult) {
        let list = self.keys.get_mut(&at.0).expect("called before answered");
        list[at.1].answered = Some((now, result));
    }
    pub fn check(&self) -> Verdict {
        self.judge(&mut Searched::default())
    }

    /// Like [`Self::check`], with the extent of the search.
    pub(crate) fn judge(&self, searched: &mut Searched) -> Verdict {
        for (key, operations) in &self.keys {
            // An unanswered lookup gives no information.
            let useful =
                |o: &&Operation| o.answered.is_some() || o.op.kind != wire::KvKind::Lookup as i32;
            let operations: Vec<&Operation> = operations.iter().filter(useful).collect();
            searched.keys += 1;
            if operations.len() > OPERATIONS_MAX {
                searched.passed_over += 1;
                continue;
            }
            let mut search = Search::new(&operations);
            let fits = search.fits();
            searched.undecided += u64::from(search.is_undecided);
            if !fits {
                let text = format!(
                    "no order of the operations on key {} fits the answers: {}",
                    String::from_utf8_lossy(key),
                    operations.iter().map(|o| describe(o)).collect::<Vec<_>>().join("; ")
                );
                return Err(Violation::new(NAME, text));
            }
        }
        Ok(())
    }
}

/// The number of keys searched. Keys with too many operations, and keys with an unfinished search,
/// prove nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Searched {
    pub keys: u64,
    pub passed_over: u64,
    pub undecided: u64,
}

impl Searched {
    pub(crate) fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.passed_over += other.passed_over;
        self.undecided += other.undecided;
    }
}

fn describe(operation: &Operation) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let answer = match &operation.answered {
        Some((at, result)) => {
            format!("at {at:?} {:?} {}", result.status(), text(&result.value))
        }
        None => "no answer".to_string(),
    };
    let op = &operation.op;
    format!(
        "{:?} {} (expected {}) at {:?} -> {answer}",
        op.kind(),
        text(&op.value),
        if op.expect_absent { "absent".to_string() } else { text(&op.expected) },
        operation.called
    )
}

type Value = Option<Bytes>;

/// Depth-first search over (set of operations that took effect, value of the key).
struct Search<'a> {
    operations: &'a [&'a Operation],
    seen: BTreeSet<(u128, Value)>,
    is_undecided: bool,
}

impl<'a> Search<'a> {
    fn new(operations: &'a [&'a Operation]) -> Self {
        Self { operations, seen: BTreeSet::new(), is_undecided: false }
    }

    fn fits(&mut self) -> bool {
        let answered =
            |(index, o): (usize, &&Operation)| o.answered.as_ref().map(|_| 1u128 << index);
        let goal: u128 = self.operations.iter().enumerate().filter_map(answered).sum();
        let mut open: Vec<(u128, Value)> = vec![(0, None)];
        while let Some((done, value)) = open.pop() {
            if done & goal == goal {
                return true;
            }
            if self.seen.len() > STATES_MAX {
                self.is_undecided = true;
                return true;
            }
            if !self.seen.insert((done, value.clone())) {
                continue;
            }
            // An operation that was answered before another was called took effect before it.
            let first_answer = self
                .operations
                .iter()
                .enumerate()
                .filter(|(index, _)| done & (1 << index) == 0)
                .filter_map(|(_, o)| o.answered.as_ref().map(|(at, _)| *at))
                .min();
            for (index, operation) in self.operations.iter().enumerate() {
                let late = first_answer.is_some_and(|at| operation.called > at);
                if done & (1 << index) != 0 || late {
                    continue;
                }
                let (next, result) = apply(&operation.op, &value);
                let agrees = match &operation.answered {
                    Some((_, told)) => same(&operation.op, told, &result),
                    None => true,
                };
                if agrees {
                    open.push((done | 1 << index, next));
                }
            }
        }
        false
    }
}

/// The store's semantics for one key.
fn apply(op: &wire::KvOp, value: &Value) -> (Value, wire::KvResult) {
    let result = |status: wire::KvStatus, value: &Value| wire::KvResult {
        status: status as i32,
        value: value.clone().unwrap_or_default(),
        version: 0,
    };
    let ok = result(wire::KvStatus::Ok, &None);
    let absent = result(wire::KvStatus::Absent, &None);
    match op.kind() {
        wire::KvKind::Insert => (Some(op.value.clone()), ok),
        wire::KvKind::Lookup => match value {
            Some(_) => (value.clone(), result(wire::KvStatus::Ok, value)),
            None => (None, absent),
        },
        wire::KvKind::Remove => match value {
            Some(_) => (None, ok),
            None => (None, absent),
        },
        wire::KvKind::Append => {
            let mut longer = value.clone().unwrap_or_default().to_vec();
            longer.extend_from_slice(&op.value);
            (Some(longer.into()), ok)
        }
        wire::KvKind::Cas => {
            let expected = (!op.expect_absent).then(|| op.expected.clone());
            if *value == expected {
                (Some(op.value.clone()), ok)
            } else {
                (value.clone(), result(wire::KvStatus::Conflict, value))
            }
        }
    }
}

/// Only a lookup returns a value.
fn same(op: &wire::KvOp, told: &wire::KvResult, real: &wire::KvResult) -> bool {
    let value = op.kind != wire::KvKind::Lookup as i32 || told.value == real.value;
    told.status == real.status && value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(kind: wire::KvKind, value: &str) -> wire::KvOp {
        let (key, value) = (Bytes::from_static(b"k"), Bytes::copy_from_slice(value.as_bytes()));
        wire::KvOp { kind: kind as i32, key, value, ..Default::default() }
    }
    fn answer(status: wire::KvStatus, value: &str) -> wire::KvResult {
        wire::KvResult {
            status: status as i32,
            value: Bytes::copy_from_slice(value.as_bytes()),
            version: 0,
        }
    }
    type Story = (wire::KvOp, u64, Option<(u64, wire::KvResult)>);
    fn history(list: &[Story]) -> History {
        let mut history = History::default();
        for (op, called, answered) in list {
            let at = history.called(op.clone(), Time(*called));
            if let Some((time, result)) = answered {
                history.answered(&at, Time(*time), result.clone());
            }
        }
        history
    }

    #[test]
    fn a_read_must_see_the_acknowledged_write() {
        let write = (op(wire::KvKind::Insert, "a"), 1, Some((2, answer(wire::KvStatus::Ok, ""))));
        let stale =
            (op(wire::KvKind::Lookup, ""), 3, Some((4, answer(wire::KvStatus::Absent, ""))));
        let fresh = (op(wire::KvKind::Lookup, ""), 3, Some((4, answer(wire::KvStatus::Ok, "a"))));
        assert!(history(&[write.clone(), fresh]).check().is_ok());
        assert!(history(&[write, stale]).check().is_err());
    }

    /// Unanswered appends may have taken effect in any order: too many of them are not decided.
    #[test]
    fn what_is_not_decided_is_counted() {
        let append = |n: usize| (op(wire::KvKind::Append, &format!("{n};")), 1, None);
        let look = (op(wire::KvKind::Lookup, ""), 3, Some((4, answer(wire::KvStatus::Ok, "?"))));
        let count = |appends: usize| {
            let list: Vec<Story> = (0..appends).map(append).chain([look.clone()]).collect();
            let mut searched = Searched::default();
            let verdict = history(&list).judge(&mut searched);
            (verdict.is_ok(), searched.keys, searched.passed_over, searched.undecided)
        };
        assert_eq!(count(3), (false, 1, 0, 0));
        assert_eq!(count(30), (true, 1, 0, 1));
        assert_eq!(count(OPERATIONS_MAX), (true, 1, 1, 0));
    }

    #[test]
    fn an_unanswered_append_may_take_effect_late_but_only_once() {
        let append = (op(wire::KvKind::Append, "a"), 1, None);
        let look = |at, value: &str| {
            let status = if value.is_empty() { wire::KvStatus::Absent } else { wire::KvStatus::Ok };
            (op(wire::KvKind::Lookup, ""), at, Some((at + 1, answer(status, value))))
        };
        assert!(history(&[append.clone(), look(3, ""), look(5, "a")]).check().is_ok());
        assert!(history(&[append.clone(), look(3, "a"), look(5, "")]).check().is_err());
        assert!(history(&[append, look(3, "aa")]).check().is_err());
    }
}

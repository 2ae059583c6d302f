//! Callers that use the store during a campaign, and the check of their answers.
//!
//! Some callers insert, look up, append, swap and remove on few keys. Each operation happens at
//! most once (`Kv::once`), and its start, end and answer are recorded. A watch follows each key. In
//! the end the answers on each key must fit one order of its operations that respects time
//! (`sim::History`). A version must have one value only. Every watch must see growing versions, and
//! last the final value of its key.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, ClientError, Kv, KvKind, KvOp, KvResult, KvStatus, raw};
use proto::Time;
use sim::{HISTORY_OPERATIONS_MAX, History, SimRng};
use tokio::task::JoinSet;
use verb::errors::Failure;
use verb::output::say;

const CALLERS: u64 = 4;
/// Keys that are used at the same time.
const KEYS: u64 = 2;
/// After this number of operations on them new keys are used, so that no key exceeds the limit of
/// the search.
const OPERATIONS_EACH: u64 = HISTORY_OPERATIONS_MAX as u64;
/// Between two operations of a caller.
const PACE_MS: (u64, u64) = (5, 100);
/// A watch that has not returned the last value after this time never will.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// All observations.
#[derive(Default)]
struct Seen {
    history: History,
    /// By key and version, from any caller; a version without a value is an absent key.
    values: BTreeMap<(Bytes, u64), Bytes>,
    /// The changes that the watch of a key returned, in order.
    watched: BTreeMap<Bytes, Vec<(u64, Option<Bytes>)>>,
    operations: u64,
    unanswered: u64,
    wrong: Vec<String>,
}

impl Seen {
    /// Checks that a version of a key has one value.
    fn saw(&mut self, key: &Bytes, version: u64, value: &Bytes) {
        let before = self.values.entry((key.clone(), version)).or_insert_with(|| value.clone());
        if before != value {
            let (key, one, other) = (lossy(key), lossy(before), lossy(value));
            self.wrong.push(format!("version {version} of {key} is '{one}' and '{other}'"));
        }
    }

    /// Records the next change of a watch.
    fn told(&mut self, key: &Bytes, version: u64, value: Option<Bytes>) {
        if let Some(value) = &value {
            self.saw(key, version, value);
        }
        let told = self.watched.entry(key.clone()).or_default();
        let last = told.iter().map(|(version, _)| *version).max().unwrap_or(0);
        if version != 0 && version <= last {
            let key = lossy(key);
            self.wrong.push(format!("the watch of {key} reported version {version} after {last}"));
        }
        told.push((version, value));
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Shared by callers and watches.
struct Shared {
    client: Client,
    began: Instant,
    is_over: AtomicBool,
    calls: AtomicU64,
    seen: Mutex<Seen>,
}

impl Shared {
    fn now(&self) -> Time {
        Time(self.began.elapsed().as_nanos() as u64)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no caller panics with what was seen")
    }

    /// One operation, with its caller's view of it.
    async fn call(&self, kv: &Kv, op: KvOp) {
        let at = self.seen().history.called(raw::kv_op(op.clone()), self.now());
        let answer = kv.batch(vec![op.clone()]).await;
        let now = self.now();
        let mut seen = self.seen();
        seen.operations += 1;
        match answer.map(|mut results| results.pop()) {
            Ok(Some(result)) => {
                note_value(&mut seen, &op, &result);
                seen.history.answered(&at, now, raw::kv_result(result));
            }
            // An uncertain operation proves nothing.
            Ok(None) | Err(ClientError::Uncertain { .. } | ClientError::ClusterUnreachable(_)) => {
                seen.unanswered += 1;
            }
            Err(error) => seen.wrong.push(format!("{:?} on {}: {error}", op.kind, lossy(&op.key))),
        }
    }
}

/// Notes the value of a key at the version of an answer, if the answer shows it.
fn note_value(seen: &mut Seen, op: &KvOp, result: &KvResult) {
    let value = match (op.kind, result.status) {
        (KvKind::Insert | KvKind::Cas, KvStatus::Ok) => &op.value,
        (KvKind::Lookup, KvStatus::Ok) => &result.value,
        (KvKind::Cas, KvStatus::Conflict) if result.version > 0 => &result.value,
        _ => return,
    };
    seen.saw(&op.key, result.version, value);
}

/// The callers and watches of a campaign.
pub(super) struct Callers {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

/// The result of the callers.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) operations: u64,
    pub(super) unanswered: u64,
    pub(super) changes_watched: u64,
    pub(super) wrong: u64,
}

impl Callers {
    pub(super) fn start(client: &Client, dice: &mut SimRng) -> Self {
        let shared = Arc::new(Shared {
            client: client.clone(),
            began: Instant::now(),
            is_over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            seen: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for caller in 0..CALLERS {
            tasks.spawn(caller_life(Arc::clone(&shared), caller, dice.fork()));
        }
        Self { shared, tasks }
    }

    /// Lets all callers and watches end, and checks their observations.
    pub(super) async fn end(mut self) -> Result<Outcome, Failure> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(|error| Failure::lost(format!("a caller of the store: {error}")))?;
        }
        let mut seen = std::mem::take(&mut *self.shared.seen());
        if let Err(violation) = seen.history.check() {
            seen.wrong.push(violation.to_string());
        }
        for wrong in &seen.wrong {
            say(&format!("error: {wrong}"));
        }
        Ok(Outcome {
            operations: seen.operations,
            unanswered: seen.unanswered,
            changes_watched: seen.watched.values().map(|told| told.len() as u64).sum(),
            wrong: seen.wrong.len() as u64,
        })
    }
}

/// One operation after another; the first on a key also starts its watch.
async fn caller_life(shared: Arc<Shared>, caller: u64, mut dice: SimRng) {
    let kv = shared.client.kv().once();
    let mut watches: JoinSet<()> = JoinSet::new();
    let mut written: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    while !shared.is_over.load(Ordering::Relaxed) {
        let number = shared.calls.fetch_add(1, Ordering::Relaxed);
        let group = number / OPERATIONS_EACH;
        if number.is_multiple_of(OPERATIONS_EACH) {
            for key in 0..KEYS {
                watches.spawn(watch_life(Arc::clone(&shared), group, key_name(group, key)));
            }
        }
        let key = key_name(group, dice.below(KEYS));
        let op = random_op(&mut dice, &key, format!("{caller}.{number};"), written.get(&key));
        if op.kind == KvKind::Insert {
            written.insert(key, op.value.clone());
        }
        shared.call(&kv, op).await;
        let pace = dice.between(PACE_MS.0, PACE_MS.1);
        tokio::time::sleep(Duration::from_millis(pace)).await;
        written.retain(|key, _| *key >= key_name(group, 0));
    }
    while let Some(ended) = watches.join_next().await {
        if let Err(error) = ended {
            shared.seen().wrong.push(format!("a watch of the store: {error}"));
        }
    }
}

fn key_name(group: u64, key: u64) -> Bytes {
    format!("campaign-kv/{group:08}/{key}").into_bytes().into()
}

fn random_op(dice: &mut SimRng, key: &Bytes, value: String, written: Option<&Bytes>) -> KvOp {
    let kind = dice.pick(&[
        KvKind::Insert,
        KvKind::Lookup,
        KvKind::Lookup,
        KvKind::Append,
        KvKind::Append,
        KvKind::Cas,
        KvKind::Cas,
        KvKind::Remove,
    ]);
    let mut op = KvOp::new(kind, key, value.as_bytes());
    if matches!(kind, KvKind::Lookup | KvKind::Remove) {
        op.value = Bytes::new();
    }
    if kind == KvKind::Cas {
        let expect_absent = written.is_none() || dice.chance(300);
        op.expected = written.filter(|_| !expect_absent).cloned();
    }
    op
}

/// Follows a key until it is unused and its final value was returned.
async fn watch_life(shared: Arc<Shared>, group: u64, key: Bytes) {
    let mut watch = shared.client.kv().watch(&key, 0);
    let is_used = || {
        let last = (group + 1) * OPERATIONS_EACH + CALLERS;
        shared.calls.load(Ordering::Relaxed) <= last && !shared.is_over.load(Ordering::Relaxed)
    };
    let mut unused_since = None;
    loop {
        match tokio::time::timeout(Duration::from_millis(200), watch.next()).await {
            Ok(Ok((value, version))) => {
                shared.seen().told(&key, version, value.map(|value| value.bytes));
            }
            Ok(Err(error)) => {
                let text = format!("the watch of {} ended: {error}", lossy(&key));
                return shared.seen().wrong.push(text);
            }
            // A cancelled call continues at the same place with the next call.
            Err(_) => {}
        }
        if is_used() {
            continue;
        }
        let since = *unused_since.get_or_insert_with(Instant::now);
        let held = shared.client.kv().lookup(&key).await;
        let held = held.map(|held| held.map(|value| (value.version, Some(value.bytes))));
        let mut seen = shared.seen();
        let last = seen.watched.get(&key).and_then(|told| told.last().cloned());
        match held {
            Ok(held) if held.clone().unwrap_or_default() == last.clone().unwrap_or_default() => {
                return;
            }
            Ok(held) if since.elapsed() > TOLD_WITHIN => {
                let (key, held) = (lossy(&key), held.map(|(version, _)| version));
                let last = last.map(|(version, _)| version);
                let text = format!("{key} is at {held:?}, and its watch last reported {last:?}");
                return seen.wrong.push(text);
            }
            Ok(_) => {}
            Err(error) if since.elapsed() > TOLD_WITHIN => {
                let text = format!("{} cannot be looked up: {error}", lossy(&key));
                return seen.wrong.push(text);
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_with_two_values_and_a_watch_that_goes_back_are_reported() {
        let key = Bytes::from_static(b"k");
        let mut seen = Seen::default();
        seen.told(&key, 3, Some(Bytes::from_static(b"a")));
        seen.told(&key, 0, None);
        seen.told(&key, 5, Some(Bytes::from_static(b"b")));
        assert_eq!(seen.wrong, Vec::<String>::new());
        seen.told(&key, 4, Some(Bytes::from_static(b"c")));
        assert!(seen.wrong[0].contains("version 4 after 5"), "{:?}", seen.wrong);
        let op = KvOp::new(KvKind::Insert, &key, b"other");
        let result = KvResult { status: KvStatus::Ok, version: 5, ..KvResult::default() };
        note_value(&mut seen, &op, &result);
        assert!(seen.wrong[1].contains("'b' and 'other'"), "{:?}", seen.wrong);
    }
}

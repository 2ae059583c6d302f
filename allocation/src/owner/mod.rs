//! The owner of a site: one round after another, with one effect at a time.
//!
//! A round takes the lease, and reads the queues and their open intents. It lists the batch jobs
//! if that is due, notes what has changed, and makes at most one submission. Each step needs the
//! answer of the one before. A lost swap ends the round, and the next one reads all again: so a
//! round keeps nothing that a crash would lose.

mod reading;
mod submitting;

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::batch::Row;
use crate::demand::Demand;
use crate::intent::{Intent, Outcome};
use crate::lease::Lease;
use crate::{Mutant, QueueConfig, QueueState, System, keys};

/// What happens to an owner.
#[derive(Debug)]
pub enum Input {
    /// A round begins.
    Begin(Demand),
    /// The value of a key; `None`: it is absent.
    Value(Option<Vec<u8>>),
    /// A swap or a removal has happened.
    Written,
    /// The key has another value.
    Conflict,
    Listed(Vec<Row>),
    /// The batch system has taken a submission, with this job id.
    Submitted(String),
    /// The batch system has refused a submission.
    Refused(String),
    /// There is no answer, or no one that is understood. It may have happened.
    Failed(String),
}

/// What an owner wants. All but [`Effect::Log`] and [`Effect::End`] are answered by one input.
#[derive(Debug)]
pub enum Effect {
    Read {
        key: String,
    },
    /// Sets a key if it has the expected value; `None`: if it is absent.
    Swap {
        key: String,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    },
    Remove {
        key: String,
    },
    List,
    Submit(Box<Submission>),
    Log(String),
    /// The round is over.
    End,
}

/// A batch job to be submitted.
#[derive(Clone, Debug)]
pub struct Submission {
    pub queue: QueueConfig,
    pub number: u64,
    pub name: String,
    pub nodes: u32,
}

/// The owner of the queues of one batch system, or one that waits for the lease.
#[derive(Debug)]
pub struct Owner {
    site: System,
    name: String,
    incarnation: u32,
    cluster: String,
    mutant: Option<Mutant>,
    round: Option<Box<Round>>,
    holds_lease: bool,
}

/// A queue as a round has read it.
#[derive(Debug)]
struct Queue {
    config: QueueConfig,
    state: QueueState,
    intents: BTreeMap<u64, Intent>,
    /// The state differs from the stored one.
    is_changed: bool,
    /// No intent has this number.
    next: Option<u64>,
}

/// What a round knows.
#[derive(Debug, Default)]
struct Round {
    demand: Demand,
    /// What was read or written, by key.
    seen: BTreeMap<String, Option<Vec<u8>>>,
    lease: Lease,
    took: bool,
    names: Option<Vec<String>>,
    queues: Vec<Queue>,
    listing: Option<(u64, Vec<Row>)>,
    /// The listing was noted in the lease.
    lists: bool,
    list_failed: bool,
    /// The intents that the listing was compared with, by queue and number.
    compared: Option<(usize, u64)>,
    submits: Option<Submits>,
    /// The intent with the answer of the batch system, which is to be written.
    answer: Option<(usize, Intent, Outcome)>,
    planned: bool,
    /// The number of queues with a written state.
    saved: usize,
    waits_for: Option<Wait>,
}

/// A submission in this round.
#[derive(Debug)]
struct Submits {
    queue: usize,
    intent: Intent,
    is_written: bool,
    is_fenced: bool,
    is_made: bool,
}

/// The effect without an answer yet.
#[derive(Debug)]
enum Wait {
    Read(String),
    Swap(String, Vec<u8>, Then),
    Remove(usize),
    List,
    Submit,
}

/// What a swap means once it has happened.
#[derive(Debug)]
enum Then {
    Lease(Lease),
    /// The lease was noted before a call.
    Lists(Lease),
    Fences(Lease),
    Intent(usize, Box<Intent>, Outcome),
    Saved,
}

impl Owner {
    /// `name` and `incarnation` differ for each process. `cluster` is a short name of the cluster.
    #[must_use]
    pub fn new(site: System, name: &str, incarnation: u32, cluster: &str) -> Self {
        Self {
            site,
            name: name.to_owned(),
            incarnation,
            cluster: cluster.to_owned(),
            mutant: None,
            round: None,
            holds_lease: false,
        }
    }
    #[must_use]
    pub fn with_mutant(self, mutant: Option<Mutant>) -> Self {
        Self { mutant, ..self }
    }
    /// Whether the last round has found or made this the owner.
    #[must_use]
    pub fn holds_lease(&self) -> bool {
        self.holds_lease
    }

    /// Takes an input and names the next effects: logs, then one to be answered, or the end.
    pub fn handle(&mut self, now_ms: u64, input: Input, effects: &mut Vec<Effect>) {
        let mut round = match input {
            Input::Begin(demand) => {
                self.holds_lease = false;
                Box::new(Round { demand, ..Round::default() })
            }
            answer => {
                let Some(mut round) = self.round.take() else { return };
                if let Err(why) = self.take(now_ms, &mut round, answer, effects) {
                    effects.push(Effect::Log(why));
                    effects.push(Effect::End);
                    return;
                }
                round
            }
        };
        match self.next(now_ms, &mut round, effects) {
            Ok(Some(effect)) => {
                effects.push(effect);
                self.round = Some(round);
            }
            Ok(None) => effects.push(Effect::End),
            Err(why) => {
                effects.push(Effect::Log(why));
                effects.push(Effect::End);
            }
        }
    }

    /// Takes the answer to the last effect; an error ends the round.
    fn take(
        &mut self,
        now_ms: u64,
        round: &mut Round,
        answer: Input,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let waited = round.waits_for.take().ok_or("an answer without a question")?;
        match (waited, answer) {
            (Wait::Read(key), Input::Value(value)) => {
                round.seen.insert(key, value);
            }
            (Wait::Swap(key, value, then), Input::Written) => {
                round.seen.insert(key, Some(value));
                self.written(now_ms, round, then);
            }
            (
                Wait::Swap(_, _, Then::Lease(_) | Then::Lists(_) | Then::Fences(_)),
                Input::Conflict,
            ) => {
                self.holds_lease = false;
                return Err("another owner has taken the lease".to_owned());
            }
            (Wait::Swap(key, ..), Input::Conflict) => {
                return Err(format!("{key} was changed meanwhile"));
            }
            (Wait::Remove(at), Input::Written) => {
                let queue = &mut round.queues[at];
                queue.state.first = queue.state.first() + 1;
                queue.is_changed = true;
            }
            (Wait::List, Input::Listed(rows)) => {
                round.listing = Some((now_ms, rows));
            }
            (Wait::List, Input::Failed(why) | Input::Refused(why)) => {
                round.list_failed = true;
                effects.push(Effect::Log(format!("the batch system does not list: {why}")));
            }
            (Wait::Submit, answer) => self.answered(now_ms, round, answer, effects)?,
            (_, Input::Failed(why)) => return Err(why),
            (waited, answer) => return Err(format!("{waited:?} was answered by {answer:?}")),
        }
        Ok(())
    }

    fn written(&mut self, now_ms: u64, round: &mut Round, then: Then) {
        match then {
            Then::Lease(lease) => {
                (round.lease, round.took, self.holds_lease) = (lease, true, true);
            }
            Then::Lists(lease) => (round.lease, round.lists) = (lease, true),
            Then::Fences(lease) => {
                round.lease = lease;
                if let Some(submits) = &mut round.submits {
                    submits.is_fenced = true;
                }
            }
            Then::Intent(at, intent, outcome) => {
                let queue = &mut round.queues[at];
                queue.note(now_ms, &outcome);
                if let Some(submits) = round.submits.as_mut().filter(|it| it.is_of(at, &intent)) {
                    submits.is_written = true;
                }
                queue.next = queue.next.max(Some(intent.number + 1));
                queue.intents.insert(intent.number, *intent);
            }
            Then::Saved => round.saved += 1,
        }
    }

    /// The next effect; `None`: the round is over.
    fn next(
        &mut self,
        now_ms: u64,
        round: &mut Round,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Effect>, String> {
        if let Some(effect) = self.lease(now_ms, round)? {
            return Ok(Some(effect));
        }
        if !round.took {
            return Ok(None); // Another owner has it.
        }
        if let Some(effect) = round.read_queues()? {
            return Ok(Some(effect));
        }
        if round.queues.is_empty() {
            return Ok(None);
        }
        if let Some(effect) = self.list(now_ms, round) {
            return Ok(Some(effect));
        }
        if let Some(effect) = self.compare(round) {
            return Ok(Some(effect));
        }
        if let Some(effect) = self.submit(now_ms, round, effects)? {
            return Ok(Some(effect));
        }
        if let Some((at, intent, outcome)) = round.answer.take() {
            let key = keys::intent(&round.queues[at].config.name, intent.number);
            let then = Then::Intent(at, Box::new(intent.clone()), outcome);
            return Ok(Some(round.swap(key, &intent, then)));
        }
        Ok(self.save(round))
    }

    /// Reads the lease, and takes or renews it.
    fn lease(&mut self, now_ms: u64, round: &mut Round) -> Result<Option<Effect>, String> {
        if round.took {
            return Ok(None);
        }
        let key = keys::owner(self.site);
        let Some(value) = round.seen.get(&key) else { return Ok(Some(round.read(key))) };
        let lease: Lease = parsed(&key, value.as_deref())?.unwrap_or_default();
        let is_own = lease.is_of(&self.name, self.incarnation);
        if lease.is_valid(now_ms) && !is_own {
            return Ok(None);
        }
        if is_own && lease.is_valid(now_ms) && !lease.is_due(now_ms) {
            (round.lease, round.took, self.holds_lease) = (lease, true, true);
            return Ok(None);
        }
        let taken = lease.taken(&self.name, self.incarnation, now_ms);
        Ok(Some(round.swap(key, &taken.clone(), Then::Lease(taken))))
    }

    /// Writes the states of queues that have changed, and removes what is over for long.
    fn save(&self, round: &mut Round) -> Option<Effect> {
        while let Some(queue) = round.queues.get_mut(round.saved) {
            if queue.config.system != self.site {
                round.saved += 1;
                continue;
            }
            queue.settle();
            let (name, first) = (queue.config.name.clone(), queue.state.first());
            if queue.state.settled().saturating_sub(first) > crate::limits::KEPT_MAX {
                round.waits_for = Some(Wait::Remove(round.saved));
                return Some(Effect::Remove { key: keys::intent(&name, first) });
            }
            if queue.is_changed {
                queue.is_changed = false;
                let state = queue.state.clone();
                return Some(round.swap(keys::state(&name), &state, Then::Saved));
            }
            round.saved += 1;
        }
        None
    }
}

impl Round {
    fn read(&mut self, key: String) -> Effect {
        self.waits_for = Some(Wait::Read(key.clone()));
        Effect::Read { key }
    }
    /// Sets a key that was read or written in this round.
    fn swap(&mut self, key: String, value: &impl Serialize, then: Then) -> Effect {
        let value = serde_json::to_vec(value).expect("records have plain fields");
        let expected = self.seen.get(&key).cloned().flatten();
        self.waits_for = Some(Wait::Swap(key.clone(), value.clone(), then));
        Effect::Swap { key, expected, value }
    }
}

/// A stored record.
fn parsed<T: DeserializeOwned>(key: &str, value: Option<&[u8]>) -> Result<Option<T>, String> {
    let Some(value) = value else { return Ok(None) };
    let record = serde_json::from_slice(value);
    record.map(Some).map_err(|error| format!("{key} is not valid: {error}"))
}

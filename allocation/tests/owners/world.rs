//! Owners, a store, a batch system and tasks, in virtual time.

use std::collections::BTreeMap;

use allocation::{
    BatchState, Claim, ClassDemand, Demand, Effect, How, Input, Intent, Lease, Mutant, Owner,
    Phase, QueueConfig, System, keys,
};

use crate::batch::BatchSystem;
use crate::checks::Checks;

const OWNERS: usize = 3;
const TICK_MS: u64 = 5_000;
const SLOTS: u32 = 2;
const TASK_MS: u64 = 60_000;
const TIME_LIMIT_S: u64 = 600;
const IDLE_MS: u64 = 60_000;
const MAX_NODES: u32 = 4;
/// Faults end after this time, and all tasks are done some time later.
const FAULTS_MS: u64 = 3_600_000;
const END_MS: u64 = 6 * 3_600_000;
const QUEUE: &str = "q";

/// Which faults a run has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) crashes: bool,
    pub(crate) pauses: bool,
    pub(crate) loses_answers: bool,
    pub(crate) loses_batch_jobs: bool,
    pub(crate) is_away: bool,
}

impl Faults {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let has = |bit: u64| seed >> bit & 1 == 1;
        Self {
            crashes: has(0),
            pauses: has(1),
            loses_answers: has(2),
            loses_batch_jobs: has(3),
            is_away: has(4),
        }
    }
}

#[derive(Debug)]
enum Event {
    Tick(usize),
    /// The effect of an owner happens.
    Happens(usize, u32, Effect),
    Answer(usize, u32, Input),
    Fault,
    Starts(u64),
    /// A batch job writes its claim, if the intent is as it has read it.
    Claims(u64, Option<Vec<u8>>),
    Step,
}

struct Process {
    owner: Owner,
    incarnation: u32,
    is_up: bool,
    paused_until_ms: u64,
    busy: bool,
}

pub(crate) struct World {
    now_ms: u64,
    random: u64,
    faults: Faults,
    mutant: Option<Mutant>,
    events: BTreeMap<(u64, u64), Event>,
    steps: u64,
    store: BTreeMap<String, Vec<u8>>,
    batch: BatchSystem,
    owners: Vec<Process>,
    checks: Checks,
    ready: u64,
    done: u64,
    total: u64,
    adopted: u64,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults, mutant: Option<Mutant>) -> Self {
        let owner = |at: usize| {
            let owner = Owner::new(System::Pbs, &format!("n{at}"), 1, "c");
            let owner = owner.with_mutant(mutant);
            Process { owner, incarnation: 1, is_up: true, paused_until_ms: 0, busy: false }
        };
        let mut world = Self {
            now_ms: 1_000_000,
            random: seed ^ 0x5DEE_CE66_D1CE_4E5B,
            faults,
            mutant,
            events: BTreeMap::new(),
            steps: 0,
            store: BTreeMap::new(),
            batch: BatchSystem::default(),
            owners: (0..OWNERS).map(owner).collect(),
            checks: Checks::default(),
            ready: 0,
            done: 0,
            total: 0,
            adopted: 0,
        };
        let queue = bytes(&config());
        world.store.insert(keys::QUEUES.into(), bytes(&[QUEUE]));
        world.store.insert(keys::queue(QUEUE), queue);
        (0..OWNERS).for_each(|at| world.after(at as u64 * 1700, Event::Tick(at)));
        world.after(1000, Event::Step);
        world.after(20_000, Event::Fault);
        world
    }

    /// At most this number, from 0.
    fn draw(&mut self, most: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % (most + 1)
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.draw(99) < percent
    }
    fn after(&mut self, delay_ms: u64, event: Event) {
        self.steps += 1;
        self.events.insert((self.now_ms + delay_ms, self.steps), event);
    }
    pub(crate) fn steps(&self) -> (u64, u64, u64) {
        (self.steps, self.now_ms, self.random)
    }
    fn has_faults(&self) -> bool {
        self.now_ms < 1_000_000 + FAULTS_MS
    }

    pub(crate) fn run(&mut self) -> Result<(), String> {
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now_ms = at;
            if self.now_ms > 1_000_000 + END_MS {
                let (done, total) = (self.done, self.total);
                return Err(format!("demand is not met: {done} of {total} tasks are done"));
            }
            self.on_event(event)?;
            if !self.has_faults() && self.done == self.total {
                return Ok(());
            }
        }
        Err("nothing happens any more".to_owned())
    }

    fn on_event(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Tick(at) => self.tick(at)?,
            Event::Happens(at, incarnation, effect) => self.happens(at, incarnation, effect)?,
            Event::Answer(at, incarnation, input) => self.answer(at, incarnation, input)?,
            Event::Fault => self.fault(),
            Event::Starts(job) => self.starts(job),
            Event::Claims(job, read) => self.claims(job, read)?,
            Event::Step => self.step(),
        }
        Ok(())
    }

    fn tick(&mut self, at: usize) -> Result<(), String> {
        self.after(TICK_MS, Event::Tick(at));
        let process = &self.owners[at];
        if !process.is_up || process.busy || process.paused_until_ms > self.now_ms {
            return Ok(());
        }
        let class = ClassDemand {
            request: resources::Request::one_cpu(),
            time_ms: 0,
            tasks: self.ready,
            work_ms: self.ready * TASK_MS,
            nodes: 1,
        };
        self.owners[at].busy = true;
        let demand = Demand { classes: vec![class], free: Vec::new() };
        self.feed(at, Input::Begin(demand))
    }

    /// Gives an input to an owner, and sends its next effect.
    fn feed(&mut self, at: usize, input: Input) -> Result<(), String> {
        let mut effects = Vec::new();
        let (now_ms, process) = (self.now_ms, &mut self.owners[at]);
        process.owner.handle(now_ms, input, &mut effects);
        let (incarnation, name) = (process.incarnation, format!("n{at}"));
        for effect in effects {
            match &effect {
                Effect::Log(_) => continue,
                Effect::End => {
                    self.owners[at].busy = false;
                    continue;
                }
                Effect::Submit(submission) => {
                    let lease: Lease = self.record(&keys::owner(System::Pbs)).unwrap_or_default();
                    let intent = self.record(&keys::intent(QUEUE, submission.number));
                    let owner = (&*name, incarnation);
                    let (intent, faults) = (intent.as_ref(), self.faults);
                    self.checks.submits(now_ms, owner, submission, &lease, intent, faults)?;
                }
                Effect::List => self.checks.lists(now_ms, self.faults)?,
                _ => {}
            }
            let delay = self.draw(300);
            self.after(delay, Event::Happens(at, incarnation, effect));
        }
        Ok(())
    }

    fn record<T: serde::de::DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.store.get(key).map(|value| serde_json::from_slice(value).expect("it is a record"))
    }

    fn is_current(&self, at: usize, incarnation: u32) -> bool {
        self.owners[at].is_up && self.owners[at].incarnation == incarnation
    }

    fn happens(&mut self, at: usize, incarnation: u32, effect: Effect) -> Result<(), String> {
        if !self.is_current(at, incarnation) {
            return Ok(());
        }
        let paused = self.owners[at].paused_until_ms;
        if paused > self.now_ms {
            let delay = paused - self.now_ms + self.draw(5);
            self.after(delay, Event::Happens(at, incarnation, effect));
            return Ok(());
        }
        let may_fail = self.has_faults() && self.faults.loses_answers && self.chance(4);
        if may_fail && self.chance(50) {
            self.after(10_000, Event::Answer(at, incarnation, Input::Failed("no answer".into())));
            return Ok(());
        }
        let answer = self.do_effect(effect)?;
        let answer = if may_fail { Input::Failed("no answer".into()) } else { answer };
        let delay = self.draw(300) + if may_fail { 10_000 } else { 0 };
        self.after(delay, Event::Answer(at, incarnation, answer));
        Ok(())
    }

    fn do_effect(&mut self, effect: Effect) -> Result<Input, String> {
        let is_away = self.batch.is_away(self.now_ms);
        Ok(match effect {
            Effect::Read { key } => Input::Value(self.store.get(&key).cloned()),
            Effect::Swap { key, expected, value } => {
                match self.store.get(&key) == expected.as_ref() {
                    true => {
                        self.note_adopted(&key, &value);
                        self.store.insert(key, value);
                        Input::Written
                    }
                    false => Input::Conflict,
                }
            }
            Effect::Remove { key } => {
                self.store.remove(&key);
                Input::Written
            }
            Effect::List | Effect::Submit(_) if is_away => match self.chance(50) {
                true => Input::Refused("no controller".into()),
                false => Input::Failed("no answer".into()),
            },
            Effect::List => Input::Listed(self.batch.rows(self.now_ms)),
            Effect::Submit(submission) => {
                self.checks.submitted(submission.number, self.faults)?;
                let id = self.batch.submit(&submission.name, submission.number, submission.nodes);
                let delay = 1000 + self.draw(120_000);
                self.after(delay, Event::Starts(id));
                Input::Submitted(id.to_string())
            }
            Effect::Log(_) | Effect::End => unreachable!("they need no answer"),
        })
    }

    /// Counts intents that get a job id from a listing.
    fn note_adopted(&mut self, key: &str, value: &[u8]) {
        let Ok(intent) = serde_json::from_slice::<Intent>(value) else { return };
        let before: Option<Intent> = self.record(key);
        let was_open = before.is_some_and(|before| before.job.is_empty());
        let is_late = intent.queued_ms > intent.made_ms + 20_000;
        self.adopted += u64::from(was_open && intent.phase == Phase::Queued && is_late);
    }

    fn answer(&mut self, at: usize, incarnation: u32, input: Input) -> Result<(), String> {
        if !self.is_current(at, incarnation) {
            return Ok(());
        }
        let paused = self.owners[at].paused_until_ms;
        if paused > self.now_ms {
            let delay = paused - self.now_ms + self.draw(5);
            self.after(delay, Event::Answer(at, incarnation, input));
            return Ok(());
        }
        // A crash before the owner knows that something has happened.
        if self.has_faults() && self.faults.crashes && self.chance(1) {
            self.crash(at);
            return Ok(());
        }
        if self.has_faults() && self.faults.pauses && self.chance(1) {
            self.owners[at].paused_until_ms = self.now_ms + self.draw(400_000);
        }
        self.feed(at, input)
    }

    fn crash(&mut self, at: usize) {
        let process = &mut self.owners[at];
        process.incarnation += 1;
        let owner = Owner::new(System::Pbs, &format!("n{at}"), process.incarnation, "c");
        (process.owner, process.busy) = (owner.with_mutant(self.mutant), false);
        process.paused_until_ms = 0;
        process.is_up = false;
    }

    fn fault(&mut self) {
        let delay = 10_000 + self.draw(60_000);
        self.after(delay, Event::Fault);
        let at = self.draw(OWNERS as u64 - 1) as usize;
        if !self.has_faults() {
            self.owners.iter_mut().for_each(|process| process.is_up = true);
            return;
        }
        match self.draw(4) {
            0 if self.faults.crashes => self.crash(at),
            1 if self.faults.pauses => {
                self.owners[at].paused_until_ms = self.now_ms + self.draw(90_000);
            }
            2 if self.faults.is_away => {
                self.batch.away_until_ms = self.now_ms + self.draw(120_000);
            }
            3 if self.faults.loses_batch_jobs => {
                let waiting = self.batch.jobs.iter().filter(|(_, job)| {
                    matches!(job.state, BatchState::Waiting | BatchState::Running)
                });
                let first = waiting.map(|(&id, _)| id).next();
                if let Some(id) = first {
                    self.lose(id);
                }
            }
            _ => self.owners[at].is_up = true,
        }
        // More work comes.
        if self.total < 200 {
            let more = self.draw(30);
            (self.ready, self.total) = (self.ready + more, self.total + more);
        }
    }

    /// The batch system forgets a batch job, or a machine of it fails.
    fn lose(&mut self, id: u64) {
        let tasks = self.batch.jobs.get(&id).map_or(0, |job| job.tasks.len() as u64);
        self.ready += tasks;
        match self.chance(50) {
            true => _ = self.batch.jobs.remove(&id),
            false => self.batch.end(id, How::NodeFailed, self.now_ms),
        }
    }

    fn starts(&mut self, id: u64) {
        let Some(job) = self.batch.jobs.get_mut(&id) else { return };
        if job.state != BatchState::Waiting {
            return;
        }
        job.state = BatchState::Running;
        let number = job.number;
        let may_fail = self.has_faults() && self.faults.loses_batch_jobs;
        if may_fail && self.chance(10) {
            return self.batch.end(id, How::Failed, self.now_ms);
        }
        let read = self.store.get(&keys::intent(QUEUE, number)).cloned();
        let delay = self.draw(500);
        self.after(delay, Event::Claims(id, read));
    }

    fn claims(&mut self, id: u64, read: Option<Vec<u8>>) -> Result<(), String> {
        let Some(job) = self.batch.jobs.get(&id) else { return Ok(()) };
        if job.state != BatchState::Running {
            return Ok(());
        }
        let number = job.number;
        let key = keys::intent(QUEUE, number);
        let now = self.store.get(&key).cloned();
        if now != read {
            let delay = self.draw(500);
            self.after(delay, Event::Claims(id, now));
            return Ok(());
        }
        let intent: Option<Intent> = self.record(&key);
        let claim = intent.map(|it| it.claim(&id.to_string(), SLOTS, self.now_ms, self.mutant));
        match claim {
            Some(Claim::Works(intent)) => {
                self.checks.works(number, id)?;
                self.store.insert(key, bytes(&intent));
                let job = self.batch.jobs.get_mut(&id).expect("it is there");
                (job.works, job.idle_since_ms) = (true, self.now_ms);
                job.ends_ms = self.now_ms + TIME_LIMIT_S * 1000;
                let nodes: u32 = self.batch.working().map(|(_, job)| job.nodes).sum();
                let is_exact = !self.faults.loses_batch_jobs && !self.faults.loses_answers;
                if is_exact && !self.faults.pauses && nodes > MAX_NODES {
                    return Err(format!("{nodes} nodes work, and {MAX_NODES} may"));
                }
            }
            Some(Claim::Ends(intent, _)) => {
                self.store.insert(key, bytes(&intent));
                self.batch.end(id, How::Completed, self.now_ms);
            }
            None => self.batch.end(id, How::Completed, self.now_ms),
        }
        Ok(())
    }

    /// Tasks start and end, and nodes leave.
    fn step(&mut self) {
        self.after(1000, Event::Step);
        let now_ms = self.now_ms;
        let mut over = Vec::new();
        for (&id, job) in self.batch.jobs.iter_mut().filter(|(_, job)| job.works) {
            let before = job.tasks.len();
            job.tasks.retain(|&end| end > now_ms);
            self.done += (before - job.tasks.len()) as u64;
            if now_ms >= job.ends_ms {
                self.ready += job.tasks.len() as u64;
                over.push((id, How::TimeLimit));
                continue;
            }
            while job.tasks.len() < (job.nodes * SLOTS) as usize && self.ready > 0 {
                self.ready -= 1;
                job.tasks.push(now_ms + TASK_MS);
            }
            if !job.tasks.is_empty() {
                job.idle_since_ms = now_ms;
            } else if now_ms >= job.idle_since_ms + IDLE_MS {
                over.push((id, How::Completed));
            }
        }
        for (id, how) in over {
            self.report_end(id, how);
            self.batch.end(id, how, now_ms);
        }
    }

    /// The script of a batch job reports its end, if it can.
    fn report_end(&mut self, id: u64, how: How) {
        let Some(job) = self.batch.jobs.get(&id) else { return };
        let key = keys::intent(QUEUE, job.number);
        let intent: Option<Intent> = self.record(&key);
        let ended = intent.and_then(|it| it.ended(&id.to_string(), how, self.now_ms));
        if let Some(ended) = ended.filter(|_| how == How::Completed) {
            self.store.insert(key, bytes(&ended));
        }
    }

    fn intents(&self) -> impl Iterator<Item = Intent> {
        let prefix = keys::intent(QUEUE, 0);
        let prefix = prefix.trim_end_matches('0').to_owned();
        let of_queue = self.store.iter().filter(move |(key, _)| key.starts_with(&prefix));
        of_queue.map(|(_, value)| serde_json::from_slice(value).expect("an intent"))
    }
    pub(crate) fn duplicates(&self) -> u64 {
        self.intents().map(|intent| u64::from(intent.duplicates)).sum()
    }
    pub(crate) fn unknown(&self) -> u64 {
        self.intents().filter(|intent| intent.phase == Phase::Unknown).count() as u64
    }
    pub(crate) fn adopted(&self) -> u64 {
        self.adopted
    }
}

fn bytes(record: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records have plain fields")
}

fn config() -> QueueConfig {
    QueueConfig {
        name: QUEUE.to_owned(),
        system: System::Pbs,
        time_limit_s: TIME_LIMIT_S,
        node_time_limit_s: None,
        cpus: Some(SLOTS),
        resources: Vec::new(),
        labels: Vec::new(),
        max_nodes_per_alloc: 2,
        max_nodes: Some(MAX_NODES),
        backlog: 2,
        min_utilization: 0.0,
        idle_timeout_s: 60,
        arguments: Vec::new(),
        node_arguments: Vec::new(),
        node_init: String::new(),
        node_fini: String::new(),
        wrap: String::new(),
        umask: 0o022,
        paused: false,
    }
}

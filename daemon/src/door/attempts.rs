/*!
The attempts that run on this node, as their commands see them: tokens, spawned children, turns.

```text
            spawn                       committed
           ┌────┐    commit   ┌─────────┐
   enter ─▶│runs│────────────▶│ commits │──▶ runs; after a yield the attempt is over
           └────┘             └─────────┘
              │ await         ┌─────────┐  the awaited tasks have ended already
              └──────────────▶│  waits  │──▶ runs
                              └─────────┘
                                   │ committed: this attempt is over, its command is not
                              ┌─────────┐  the next attempt of the task starts here
                              │ parked  │──▶ runs, as that attempt
                              └─────────┘
```
An attempt has at most one turn under way. Its children exist only when that turn is committed, so
an attempt that fails leaves nothing.

An attempt that waits is over for the task's home, so it holds no slot and delays no drain. Its
command stays, and the next attempt takes it over if it starts on this node. If it starts elsewhere,
or if the command has died, the next attempt starts from the beginning, with the last state.
*/

use std::collections::HashMap;

use proto::variable::add_sums;
use proto::wire::{self, TurnVerdict, task_ref};
use proto::work::{Outcome, Turn, TurnAnswer};
use proto::{Attempt, LocalId, TaskId, limits};
use tokio::sync::oneshot;

use crate::door::checkpoints::EndedCommand;
use crate::door::mail::{self, Mailbag};
use crate::door::refusal::Refusal;
use crate::door::token::Token;
use crate::door::uncommitted::Children;
use crate::limits::WAITING_COMMANDS_MAX;

pub(crate) type Key = (TaskId, Attempt);

/// A turn of an attempt, for the core.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AttemptTurn {
    pub(crate) task: TaskId,
    pub(crate) attempt: Attempt,
    pub(crate) turn: Box<Turn>,
}

/// The answer to the command that asked for a turn.
pub(crate) type Answer = Result<Accepted, Refusal>;

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Accepted {
    /// The turn with this number is committed.
    Committed(u64),
    /// The awaited tasks have ended; in the order of the call.
    Awaited(Vec<wire::Awaited>),
    /// An event, or none in time.
    Received(Option<wire::Letter>),
}

/// The begin of a wait for an event.
#[derive(Debug)]
pub(crate) enum Receipt {
    /// The node had it.
    Letter(wire::Letter),
    Waits(AttemptTurn, oneshot::Receiver<Answer>),
}

/// What a command waits for.
#[derive(Debug)]
pub(super) enum Awaits {
    Tasks(Vec<wire::TaskRef>),
    Event,
}

/// What the node must do with the command of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// It goes on.
    Nothing,
    /// It waits without a slot: its time limit stands still.
    Park,
    /// It ends, and nothing is reported.
    Kill,
}

/// The end of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The core gets the outcome.
    Reported,
    /// The attempt was over before.
    Over,
}

#[derive(Debug)]
pub(super) enum Phase {
    Runs,
    Commits {
        yields: bool,
        sender: oneshot::Sender<Answer>,
    },
    Waits {
        awaits: Awaits,
        sender: oneshot::Sender<Answer>,
    },
    /// The attempt is over for its home.
    Parked {
        awaits: Awaits,
        sender: oneshot::Sender<Answer>,
    },
    /// It is the next attempt already, and gets what it has waited for soon.
    Returns {
        answer: Answer,
        sender: oneshot::Sender<Answer>,
    },
    /// Its command has ended, and the end is reported once the checkpoint is committed.
    Ended(Box<EndedCommand>),
}

#[derive(Debug)]
struct Open {
    token: Token,
    /// The number of the task's last committed turn.
    seq: u64,
    children: Children,
    /// The children of the turn under way.
    leaving: wire::Spawned,
    /// Added to sums with the next turn, and with the turn under way.
    sums: Vec<wire::VarSum>,
    leaving_sums: Vec<wire::VarSum>,
    mail: Mailbag,
    /// The number of variables that its job declares.
    variables: u32,
    phase: Phase,
}

#[derive(Debug, Default)]
pub(crate) struct Attempts {
    by_token: HashMap<Token, Key>,
    open: HashMap<Key, Open>,
    /// The attempts with a command that waits without a slot.
    parked: HashMap<TaskId, Attempt>,
}

impl Attempts {
    /// An attempt starts: its commands are known by this token.
    pub(crate) fn enter(
        &mut self,
        key: Key,
        token: Token,
        variables: u32,
        resume: Option<&wire::Resume>,
    ) {
        let children = resume.map(Children::after).unwrap_or_default();
        let seq = resume.map_or(0, |resume| resume.seq);
        let mut mail = Mailbag::default();
        mail.read(resume.map_or(&[], |resume| &resume.letters));
        self.remove(key);
        self.by_token.insert(token, key);
        let open = Open {
            token,
            seq,
            children,
            leaving: wire::Spawned::default(),
            sums: Vec::new(),
            leaving_sums: Vec::new(),
            mail,
            variables,
            phase: Phase::Runs,
        };
        self.open.insert(key, open);
    }

    /// The attempt of this token, and the number of variables of its job.
    pub(crate) fn of_token(&self, token: Token) -> Result<(Key, u32), Refusal> {
        let key = *self.by_token.get(&token).ok_or_else(Refusal::no_token)?;
        let open = self.open.get(&key).ok_or_else(Refusal::no_token)?;
        Ok((key, open.variables))
    }

    /// Adds to a sum, with the next turn.
    pub(crate) fn add(&mut self, token: Token, sum: wire::VarSum) -> Result<(), Refusal> {
        add_sums(&mut self.idle(token)?.1.sums, &[sum], 1);
        Ok(())
    }

    /// The attempt of this token, if it runs and has no turn under way.
    fn idle(&mut self, token: Token) -> Result<(Key, &mut Open), Refusal> {
        let key = *self.by_token.get(&token).ok_or_else(Refusal::no_token)?;
        let open = self.open.get_mut(&key).ok_or_else(Refusal::no_token)?;
        match open.phase {
            Phase::Runs => Ok((key, open)),
            Phase::Waits { .. } | Phase::Parked { .. } | Phase::Returns { .. } => {
                Err(Refusal::bad(
                    "another command of this task awaits tasks, so the task has no slot",
                    "spawn, commit and await one after another",
                ))
            }
            Phase::Ended(_) => Err(Refusal::no_token()),
            Phase::Commits { .. } => Err(Refusal::bad(
                "another command of this task commits at present",
                "let one command end before the next one begins",
            )),
        }
    }

    pub(crate) fn spawn(
        &mut self,
        token: Token,
        call: wire::DoorSpawn,
    ) -> Result<wire::DoorSpawned, Refusal> {
        self.idle(token)?.1.children.spawn(call)
    }

    /// Begins a turn that waits for tasks.
    pub(crate) fn wait(
        &mut self,
        token: Token,
        tasks: Vec<wire::TaskRef>,
    ) -> Result<(AttemptTurn, oneshot::Receiver<Answer>), Refusal> {
        self.check_waiting()?;
        let (key, open) = self.idle(token)?;
        let awaits = open.children.awaited(tasks)?;
        let (sender, receiver) = oneshot::channel();
        let turn = open.turn(TurnVerdict::TurnWait, awaits.clone(), None);
        open.phase = Phase::Waits { awaits: Awaits::Tasks(awaits), sender };
        Ok((of_attempt(key, turn), receiver))
    }

    fn check_waiting(&self) -> Result<(), Refusal> {
        if self.parked.len() >= WAITING_COMMANDS_MAX {
            let text = format!("{} commands await tasks on this node", self.parked.len());
            return Err(Refusal::bad(text, "await fewer levels of tasks at once"));
        }
        Ok(())
    }

    /// The attempt of this token may send an event to this task. Returns whether the task exists
    /// already.
    pub(crate) fn check_receiver(
        &mut self,
        token: Token,
        to: &wire::MailName,
    ) -> Result<(Key, bool), Refusal> {
        let (key, open) = self.idle(token)?;
        match mail::is_child(to) {
            Some(ordinal) => Ok((key, open.children.is_committed(ordinal)?)),
            None => Ok((key, true)),
        }
    }

    /// Adds an event to the next turn.
    pub(crate) fn send(
        &mut self,
        token: Token,
        to: wire::MailName,
        data: Vec<u8>,
    ) -> Result<(), Refusal> {
        self.idle(token)?.1.mail.send(to, data)
    }

    /// Takes the next event, or begins a turn that waits for one.
    pub(crate) fn receive(
        &mut self,
        token: Token,
        call: wire::DoorReceive,
    ) -> Result<Receipt, Refusal> {
        check_state(call.state.as_deref())?;
        let (key, open) = self.idle(token)?;
        if let Some(ordinal) = call.from.as_ref().and_then(mail::is_child) {
            open.children.is_committed(ordinal)?;
        }
        if call.state.is_none()
            && let Some(letter) = open.mail.take(call.from.as_ref())
        {
            return Ok(Receipt::Letter(letter));
        }
        self.check_waiting()?;
        let (_, open) = self.idle(token)?;
        let (sender, receiver) = oneshot::channel();
        let mut turn = open.turn(TurnVerdict::TurnWait, Vec::new(), call.state);
        turn.mail_wait = Some(wire::MailWait { from: call.from, timeout_ns: call.timeout_ns });
        open.phase = Phase::Waits { awaits: Awaits::Event, sender };
        Ok(Receipt::Waits(of_attempt(key, turn), receiver))
    }

    /// Begins a turn with a state.
    pub(crate) fn commit(
        &mut self,
        token: Token,
        commit: wire::DoorCommit,
    ) -> Result<(AttemptTurn, oneshot::Receiver<Answer>), Refusal> {
        let (key, open) = self.idle(token)?;
        check_state(commit.state.as_deref())?;
        let (sender, receiver) = oneshot::channel();
        let yields = commit.r#yield;
        let verdict = if yields { TurnVerdict::TurnYield } else { TurnVerdict::TurnMore };
        let turn = open.turn(verdict, Vec::new(), commit.state);
        open.phase = Phase::Commits { yields, sender };
        Ok((of_attempt(key, turn), receiver))
    }

    /// The core has answered the turn of an attempt.
    pub(crate) fn answered(&mut self, key: Key, answer: TurnAnswer) -> Order {
        let Some(open) = self.open.get_mut(&key) else { return Order::Nothing };
        let leaving = std::mem::take(&mut open.leaving);
        let leaving_sums = std::mem::take(&mut open.leaving_sums);
        match &answer {
            TurnAnswer::Refused(_) => open.mail.put_back(),
            TurnAnswer::Committed(_) | TurnAnswer::Fenced => open.mail.left(),
        }
        let phase = std::mem::replace(&mut open.phase, Phase::Runs);
        // The command may be gone, and then nothing waits for the answer.
        let send = |sender: oneshot::Sender<Answer>, answer| _ = sender.send(answer);
        match (phase, answer) {
            (Phase::Commits { yields: true, .. }, TurnAnswer::Committed(_)) => {
                // The command gets no answer: it could leave before the turn is on stable storage.
                return self.over(key);
            }
            (Phase::Commits { sender, .. }, TurnAnswer::Committed(_)) => {
                open.seq += 1;
                send(sender, Ok(Accepted::Committed(open.seq)));
            }
            (Phase::Waits { awaits, sender }, TurnAnswer::Committed(commit)) => {
                open.seq += 1;
                let Some(ended) = commit.awaited else {
                    open.phase = Phase::Parked { awaits, sender };
                    self.parked.insert(key.0, key.1);
                    return Order::Park;
                };
                let answer = open.answer_of(&awaits, ended, &commit.letters);
                send(sender, answer);
            }
            (Phase::Commits { sender, .. } | Phase::Waits { sender, .. }, TurnAnswer::Fenced) => {
                send(sender, Err(Refusal::fenced()));
                return self.over(key);
            }
            (
                Phase::Commits { sender, .. } | Phase::Waits { sender, .. },
                TurnAnswer::Refused(text),
            ) => {
                open.children.put_back(leaving);
                add_sums(&mut open.sums, &leaving_sums, 1);
                let hint = "nothing of this turn counts; earlier turns of the task do";
                send(sender, Err(Refusal::bad(text, hint)));
            }
            (phase, _) => open.phase = phase, // A late answer.
        }
        Order::Nothing
    }

    fn over(&mut self, key: Key) -> Order {
        self.remove(key);
        Order::Kill
    }

    /// The next attempt of a task starts here. Returns the attempt with a command that is still
    /// here, and whether it can go on as the next attempt.
    pub(crate) fn parked(&self, task: TaskId, resume: &wire::Resume) -> Option<(Attempt, bool)> {
        let attempt = *self.parked.get(&task)?;
        let open = self.open.get(&(task, attempt));
        Some((attempt, open.is_some_and(|open| open.seq == resume.seq)))
    }

    /// The parked command becomes the next attempt of its task. It waits until [`Self::release`].
    /// False if it has gone meanwhile.
    pub(crate) fn adopt(&mut self, key: Key, next: Attempt, resume: &wire::Resume) -> bool {
        let Some(mut open) = self.open.remove(&key) else { return false };
        self.parked.remove(&key.0);
        let next = (key.0, next);
        self.by_token.insert(open.token, next);
        open.phase = match std::mem::replace(&mut open.phase, Phase::Runs) {
            Phase::Parked { awaits, sender, .. } => {
                let answer = open.answer_of(&awaits, resume.awaited.clone(), &resume.letters);
                Phase::Returns { answer, sender }
            }
            phase => phase,
        };
        self.open.insert(next, open);
        true
    }

    /// The command goes on, with a slot.
    pub(crate) fn release(&mut self, key: Key) {
        let Some(open) = self.open.get_mut(&key) else { return };
        match std::mem::replace(&mut open.phase, Phase::Runs) {
            Phase::Returns { answer, sender } => {
                let _ = sender.send(answer); // The command may be gone.
            }
            phase => open.phase = phase,
        }
    }

    /// A command that waited has gone. If the attempt of the token waits for it still, the attempt
    /// is removed; `End`: whether its end must be reported.
    pub(crate) fn abandon(&mut self, token: Token) -> Option<(Key, End)> {
        let key = *self.by_token.get(&token)?;
        let (sender, end) = match &self.open.get(&key)?.phase {
            Phase::Waits { sender, .. } | Phase::Returns { sender, .. } => (sender, End::Reported),
            Phase::Parked { sender, .. } => (sender, End::Over),
            Phase::Runs | Phase::Commits { .. } | Phase::Ended(_) => return None,
        };
        if !sender.is_closed() {
            return None; // Another command waits.
        }
        self.remove(key);
        Some((key, end))
    }

    pub(super) fn phase_mut(&mut self, key: Key) -> Option<&mut Phase> {
        Some(&mut self.open.get_mut(&key)?.phase)
    }

    /// The command of the attempt is killed, or has gone: its token is worth nothing from now on.
    pub(crate) fn remove(&mut self, key: Key) {
        if let Some(open) = self.open.remove(&key) {
            self.by_token.remove(&open.token);
            if matches!(open.phase, Phase::Parked { .. }) {
                self.parked.remove(&key.0);
            }
        }
    }

    /// True if the commands of the attempt are known here.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.open.contains_key(&key)
    }

    /// True if the attempt is over for its home, and its command waits here.
    pub(crate) fn is_parked(&self, (task, attempt): Key) -> bool {
        self.parked.get(&task) == Some(&attempt)
    }

    /// The parked attempts of a job, which has ended.
    pub(crate) fn parked_of(&self, job: proto::JobId) -> Vec<Key> {
        let of_job = self.parked.iter().filter(|(task, _)| task.job == job);
        of_job.map(|(task, attempt)| (*task, *attempt)).collect()
    }

    /// The command of an attempt has ended. A good outcome gets the last turn; an outcome while the
    /// attempt waited changes.
    pub(crate) fn ended(&mut self, key: Key, outcome: &mut Outcome) -> End {
        let Some(mut open) = self.open.remove(&key) else { return End::Reported };
        self.by_token.remove(&open.token);
        match open.phase {
            Phase::Parked { .. } => {
                self.parked.remove(&key.0);
                return End::Over;
            }
            // The reason why the command could not go on.
            Phase::Returns { .. } if !outcome.is_done() && !is_killed(outcome) => {}
            Phase::Waits { .. } | Phase::Returns { .. } => end_while_waiting(outcome),
            Phase::Commits { .. } if outcome.is_done() => {
                fail(outcome, "the task ended before its 'starling commit' was answered");
            }
            Phase::Runs | Phase::Commits { .. } | Phase::Ended(_) => {}
        }
        if outcome.is_done() && open.has_uncommitted() {
            outcome.turn = Some(Box::new(open.turn(TurnVerdict::TurnDone, Vec::new(), None)));
        }
        End::Reported
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> [usize; 3] {
        [self.by_token.len(), self.open.len(), self.parked.len()]
    }
}

impl Open {
    /// The next turn, with all uncommitted children.
    fn turn(
        &mut self,
        verdict: TurnVerdict,
        awaits: Vec<wire::TaskRef>,
        state: Option<Vec<u8>>,
    ) -> Turn {
        let spawned = self.children.take();
        self.leaving.clone_from(&spawned);
        let sums = std::mem::take(&mut self.sums);
        self.leaving_sums.clone_from(&sums);
        let (events, consumed) = self.mail.leave();
        Turn { verdict, spawned, awaits, state, sums, events, consumed, mail_wait: None }
    }

    fn has_uncommitted(&self) -> bool {
        self.children.has_uncommitted() || !self.sums.is_empty() || self.mail.has_events()
    }

    /// What the command that waited gets.
    fn answer_of(
        &mut self,
        awaits: &Awaits,
        ended: Vec<wire::Awaited>,
        letters: &[wire::Letter],
    ) -> Answer {
        match awaits {
            Awaits::Tasks(tasks) => awaited(in_order(tasks, ended), tasks.len()),
            Awaits::Event => Ok(Accepted::Received(self.mail.receive(letters))),
        }
    }
}

fn check_state(state: Option<&[u8]>) -> Result<(), Refusal> {
    let (bytes, most) = (state.map_or(0, <[u8]>::len), limits::TURN_STATE_BYTES_MAX);
    if bytes > most {
        let text = format!("--state: {bytes} bytes, at most {most} are kept with a task");
        let hint = "keep the data in a file that all nodes see, and its path in the state";
        return Err(Refusal::bad(text, hint));
    }
    Ok(())
}

fn of_attempt((task, attempt): Key, turn: Turn) -> AttemptTurn {
    AttemptTurn { task, attempt, turn: Box::new(turn) }
}

/// A missing end must not look like a success, nor a wrong name like the end of a task.
fn awaited(ended: Vec<wire::Awaited>, named: usize) -> Answer {
    if let Some(wrong) = ended.iter().find(|end| end.unknown) {
        let text = format!("the job has no task {}", LocalId(wrong.local));
        return Err(Refusal::bad(text, "a task awaits its children and tasks of its own job"));
    }
    match named - ended.len() {
        0 => Ok(Accepted::Awaited(ended)),
        missing => Err(Refusal::bad(
            format!("the ends of {missing} awaited tasks are not known"),
            "await tasks of other partitions in several calls",
        )),
    }
}

/// The ends in the order in which the command named the tasks.
fn in_order(awaits: &[wire::TaskRef], ended: Vec<wire::Awaited>) -> Vec<wire::Awaited> {
    let (mut children, mut others) = (HashMap::new(), HashMap::new());
    for end in ended {
        if end.child > 0 {
            children.insert(end.child - 1, end);
        }
        others.insert(end.local, end);
    }
    let found = |task: &wire::TaskRef| match task.task? {
        task_ref::Task::Child(ordinal) => children.get(&ordinal).copied(),
        task_ref::Task::Local(local) => Some(wire::Awaited { child: 0, ..*others.get(&local)? }),
    };
    awaits.iter().filter_map(found).collect()
}

/// A process that a signal ended while its turn was under way is not the task's failure: the task
/// runs again. If the process ended by itself, it went on without waiting.
fn end_while_waiting(outcome: &mut Outcome) {
    if is_killed(outcome) {
        outcome.lost = true;
        outcome.error.push_str(" while it awaited tasks");
    } else {
        fail(outcome, "the task ended while its 'starling await' waited");
    }
}

/// True if a signal has ended the process.
fn is_killed(outcome: &Outcome) -> bool {
    outcome.exit_code > 128 && !outcome.is_done()
}

fn fail(outcome: &mut Outcome, error: &str) {
    error.clone_into(&mut outcome.error);
    outcome.output_sizes.clear();
    outcome.output_sums.clear();
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;

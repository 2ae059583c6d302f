/*!
The door: the Unix socket by which running commands reach their node, to make tasks.

Each command has the path of the socket and a token of its attempt in its environment. `attempts`
knows the tokens and what each attempt has spawned; `server` reads requests. A turn leaves here for
the core, and the core's answer returns here. The door decides nothing about tasks.
*/

mod attempts;
mod checkpoints;
mod frames;
mod gangs;
mod inputs;
mod mail;
mod place;
mod refusal;
mod rsh;
mod server;
mod token;
mod uncommitted;
mod variables;

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use executor::{AttemptOutcome, Doorway, Entrance};
use node::Input;
use proto::work::{Launch, TurnAnswer};
use proto::{Attempt, JobId, TaskId, wire};
use tokio::sync::{mpsc, oneshot};

use crate::event_loop::inbox::Local;
use attempts::{Answer, AttemptTurn, Attempts, End, Key};
use checkpoints::Next;
use gangs::{Gang, Gangs};
use place::BoundSocket;
use refusal::Refusal;
use token::Token;

pub(crate) use attempts::Order;
pub(crate) use server::serve;

/// The door of one incarnation of a node.
#[derive(Debug)]
pub(crate) struct Door {
    /// `None`: no place could hold it, and tasks of this node cannot spawn tasks.
    socket: Option<BoundSocket>,
    attempts: Mutex<Attempts>,
    gangs: Mutex<Gangs>,
    variables: variables::Known,
    mailboxes: mail::MailboxQuestions,
    /// To the run loop: at most one turn of each attempt.
    inputs: mpsc::UnboundedSender<Local>,
}

impl Door {
    /// Opens the door of the node with this state directory. If it has no socket, this returns the
    /// reason as well.
    pub(crate) fn open(
        state: &Path,
        inputs: mpsc::UnboundedSender<Local>,
    ) -> (Self, Option<String>) {
        let (socket, lacks) = match BoundSocket::bind(state) {
            Ok(socket) => (Some(socket), None),
            Err(reason) => (None, Some(reason)),
        };
        (
            Self {
                socket,
                attempts: Mutex::default(),
                gangs: Mutex::default(),
                variables: variables::Known::default(),
                mailboxes: mail::MailboxQuestions::default(),
                inputs,
            },
            lacks,
        )
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().expect("no holder of the attempts panics")
    }

    fn gangs(&self) -> MutexGuard<'_, Gangs> {
        self.gangs.lock().expect("no holder of the gangs panics")
    }

    /// The attempt and the gang of the commands with this token.
    fn gang_of(&self, token: Token) -> Result<(Key, Gang), Refusal> {
        match self.gangs().of_token(token) {
            Some(found) => Ok(found),
            None => {
                self.attempts().of_token(token)?;
                let hint = "submit it with --nodes; 'starling spawn' makes tasks on other nodes";
                Err(Refusal::bad("this task is not on several nodes", hint))
            }
        }
    }

    /// Lets a command in that runs in a part of a gang: it may call `starling rsh`. `None`: the
    /// door has no socket.
    pub(crate) fn admit(&self, key: Key, gang: Gang) -> Option<(Token, Entrance)> {
        let (socket, token) = (self.socket.as_ref()?, Token::draw().ok()?);
        self.gangs().admit(token, key, gang);
        let door = socket.path().to_string_lossy().into_owned();
        Some((token, Entrance { door, token: token.text(), state: None }))
    }

    /// A command in a part has ended.
    pub(crate) fn forget(&self, token: Token) {
        self.gangs().forget(token);
    }

    /// The part of an attempt on this node has ended.
    pub(crate) fn dismiss(&self, key: Key) {
        self.gangs().dismiss(key);
    }

    /// Lets a call in that commits states or sends events. It waits for nothing here.
    pub(crate) fn enter_call(
        &self,
        key: Key,
        variables: u32,
        resume: Option<&wire::Resume>,
    ) -> Result<Entrance, String> {
        self.let_in(key, variables, resume).map(|(_, entrance)| entrance)
    }

    fn let_in(
        &self,
        key: Key,
        variables: u32,
        resume: Option<&wire::Resume>,
    ) -> Result<(Token, Entrance), String> {
        let socket = self.socket.as_ref().ok_or("this node has no socket for tasks")?;
        let token = Token::draw().map_err(|error| error.to_string())?;
        self.attempts().enter(key, token, variables, resume);
        let door = socket.path().to_string_lossy().into_owned();
        let state = resume.and_then(|resume| resume.state.clone());
        Ok((token, Entrance { door, token: token.text(), state }))
    }

    /// `None`: the door has no socket.
    fn listener(&self) -> Option<io::Result<UnixListener>> {
        self.socket.as_ref().map(|socket| socket.listener.try_clone())
    }

    fn spawn(&self, token: Token, call: wire::DoorSpawn) -> Result<wire::DoorSpawned, Refusal> {
        self.attempts().spawn(token, call)
    }

    /// Sends a turn to the core. Its answer comes through the receiver.
    fn begin(
        &self,
        begun: Result<(AttemptTurn, oneshot::Receiver<Answer>), Refusal>,
    ) -> Result<oneshot::Receiver<Answer>, Refusal> {
        let (turn, answer) = begun?;
        self.send_turn(turn);
        Ok(answer)
    }

    fn send_turn(&self, AttemptTurn { task, attempt, turn }: AttemptTurn) {
        // If the run loop has ended, so does the answer.
        let _ = self.inputs.send(Local::Input(Input::Turn { task, attempt, turn }));
    }

    /// The answer of the core to a turn of an attempt.
    pub(crate) fn answered(&self, task: TaskId, attempt: Attempt, answer: TurnAnswer) -> Order {
        let key = (task, attempt);
        let mut attempts = self.attempts();
        match attempts.checkpoint_answered(key, &answer) {
            None => return attempts.answered(key, answer),
            Some(Next::Turn(turn)) => self.send_turn(turn),
            Some(Next::Report(mut ended)) => {
                if attempts.ended(key, &mut ended.outcome) == End::Reported {
                    let _ = self.inputs.send(Local::Doubted(*ended));
                }
            }
            Some(Next::Nothing) => {}
        }
        Order::Nothing
    }

    /// A variable of a job has another value.
    pub(crate) fn variable_changed(&self, job: JobId, variable: wire::Variable) {
        self.variables.changed(job, variable);
    }

    /// The core has taken the value of this ticket, or not.
    pub(crate) fn variable_set(&self, ticket: u64, done: bool) {
        self.variables.set(ticket, done);
    }

    /// The core knows whether a mailbox takes an event.
    pub(crate) fn mailbox_answered(&self, ticket: u64, refused: String) {
        self.mailboxes.answered(ticket, refused);
    }

    /// The job has ended.
    pub(crate) fn forget_variables(&self, job: JobId) {
        self.variables.forget(job);
    }

    /// True if the attempt is over, and its command waits here for the next one.
    pub(crate) fn is_parked(&self, task: TaskId, attempt: Attempt) -> bool {
        self.attempts().is_parked((task, attempt))
    }

    /// The attempt was killed, so its commands are refused from now on.
    pub(crate) fn killed(&self, task: TaskId, attempt: Attempt) {
        self.attempts().remove((task, attempt));
        self.dismiss((task, attempt));
    }

    /// The command of an attempt has ended. False if its end is not to be reported, or not before
    /// its checkpoint is committed.
    pub(crate) fn ended(&self, ended: &mut AttemptOutcome) -> bool {
        let key = (ended.task, ended.attempt);
        self.dismiss(key);
        let mut attempts = self.attempts();
        if let Some(turn) = attempts.commit_checkpoint(ended) {
            turn.into_iter().for_each(|turn| self.send_turn(turn));
            return false;
        }
        attempts.ended(key, &mut ended.outcome) == End::Reported
    }

    /// The attempt of the task with a command that waits here, and whether it can go on as the
    /// attempt that begins with `resume`.
    pub(crate) fn parked(&self, task: TaskId, resume: &wire::Resume) -> Option<(Attempt, bool)> {
        self.attempts().parked(task, resume)
    }

    /// A parked command becomes the next attempt. It waits until [`Self::release`]. False if it has
    /// gone meanwhile.
    pub(crate) fn adopt(
        &self,
        task: TaskId,
        parked: Attempt,
        next: Attempt,
        by: &wire::Resume,
    ) -> bool {
        self.attempts().adopt((task, parked), next, by)
    }

    /// True if the commands of the attempt are known here.
    pub(crate) fn has(&self, task: TaskId, attempt: Attempt) -> bool {
        self.attempts().has((task, attempt))
    }

    /// The waiting command of an attempt goes on.
    pub(crate) fn release(&self, task: TaskId, attempt: Attempt) {
        self.attempts().release((task, attempt));
    }

    /// The parked attempts of a job.
    pub(crate) fn parked_of(&self, job: JobId) -> Vec<(TaskId, Attempt)> {
        self.attempts().parked_of(job)
    }
}

impl Doorway for Door {
    fn enter(&self, launch: &Launch) -> Result<Entrance, String> {
        let key = (launch.task, launch.attempt);
        let (token, entrance) =
            self.let_in(key, launch.settings.variables, launch.resume.as_deref())?;
        if !launch.gang.is_empty() {
            self.gangs().admit(token, key, launch.gang.clone().into());
        }
        Ok(entrance)
    }

    fn leave(&self, task: TaskId, attempt: Attempt) {
        self.killed(task, attempt);
    }
}

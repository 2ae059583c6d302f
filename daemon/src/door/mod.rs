/*!
The door: the Unix socket by which running commands reach their node, to make tasks.

Each command has the path of the socket and a token of its attempt in its environment. `attempts`
knows the tokens and what each attempt has spawned; `server` reads requests. A turn leaves here for
the core, and the core's answer returns here. The door decides nothing about tasks.
*/

mod attempts;
mod frames;
mod place;
mod refusal;
mod server;
mod token;
mod uncommitted;

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use executor::{Doorway, Entrance};
use node::Input;
use proto::work::{Launch, Outcome, TurnAnswer};
use proto::{Attempt, JobId, TaskId, wire};
use tokio::sync::{mpsc, oneshot};

use crate::event_loop::inbox::Local;
use attempts::{Answer, AttemptTurn, Attempts, End};
use place::BoundSocket;
use refusal::Refusal;
use token::{Token, TokenSource};

pub(crate) use attempts::Order;
pub(crate) use server::serve;

/// The door of one incarnation of a node.
#[derive(Debug)]
pub(crate) struct Door {
    socket: BoundSocket,
    tokens: TokenSource,
    attempts: Mutex<Attempts>,
    /// To the run loop: at most one turn of each attempt.
    inputs: mpsc::UnboundedSender<Local>,
}

impl Door {
    /// Opens the door of the node with this state directory.
    pub(crate) fn open(state: &Path, inputs: mpsc::UnboundedSender<Local>) -> io::Result<Self> {
        let (socket, tokens) = (BoundSocket::bind(state)?, TokenSource::open()?);
        Ok(Self { socket, tokens, attempts: Mutex::default(), inputs })
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().expect("no holder of the attempts panics")
    }

    fn listener(&self) -> io::Result<UnixListener> {
        self.socket.listener.try_clone()
    }

    fn spawn(&self, token: Token, call: wire::DoorSpawn) -> Result<wire::DoorSpawned, Refusal> {
        self.attempts().spawn(token, call)
    }

    /// Sends a turn to the core. Its answer comes through the receiver.
    fn begin(
        &self,
        begun: Result<(AttemptTurn, oneshot::Receiver<Answer>), Refusal>,
    ) -> Result<oneshot::Receiver<Answer>, Refusal> {
        let (AttemptTurn { task, attempt, turn }, answer) = begun?;
        // If the run loop has ended, so does the answer.
        let _ = self.inputs.send(Local::Input(Input::Turn { task, attempt, turn }));
        Ok(answer)
    }

    /// The answer of the core to a turn of an attempt.
    pub(crate) fn answered(&self, task: TaskId, attempt: Attempt, answer: TurnAnswer) -> Order {
        self.attempts().answered((task, attempt), answer)
    }

    /// True if the attempt is over, and its command waits here for the next one.
    pub(crate) fn is_parked(&self, task: TaskId, attempt: Attempt) -> bool {
        self.attempts().is_parked((task, attempt))
    }

    /// The attempt was killed, so its commands are refused from now on.
    pub(crate) fn killed(&self, task: TaskId, attempt: Attempt) {
        self.attempts().remove((task, attempt));
    }

    /// The command of an attempt has ended. False if its end is not to be reported.
    pub(crate) fn ended(&self, task: TaskId, attempt: Attempt, outcome: &mut Outcome) -> bool {
        self.attempts().ended((task, attempt), outcome) == End::Reported
    }

    /// The attempt of the task with a command that waits here, and whether it can go on as the
    /// attempt that begins with `resume`.
    pub(crate) fn parked(&self, task: TaskId, resume: &wire::Resume) -> Option<(Attempt, bool)> {
        self.attempts().parked(task, resume)
    }

    /// A parked command becomes the next attempt. It waits until [`Self::release`].
    pub(crate) fn adopt(&self, task: TaskId, parked: Attempt, next: Attempt, by: &wire::Resume) {
        self.attempts().adopt((task, parked), next, by);
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
        let token = self.tokens.draw().map_err(|error| format!("no random bytes: {error}"))?;
        let resume = launch.resume.as_deref();
        self.attempts().enter((launch.task, launch.attempt), token, resume);
        let door = self.socket.path().to_string_lossy().into_owned();
        let state = resume.and_then(|resume| resume.state.clone());
        Ok(Entrance { door, token: token.text(), state })
    }

    fn leave(&self, task: TaskId, attempt: Attempt) {
        self.killed(task, attempt);
    }
}

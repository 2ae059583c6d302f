/*!
Calls of functions that submit calls: each such call has a job of its own, which ends with it.

A worker asks its node over its pipe, so it needs no keys and no library. The node is then a client
of its own cluster: one thread, which starts with the first request, has the connection and the
open jobs. `session` is the job of one call; `requests` has what a call may ask.

The job of a call is noted in the user's store until it has ended. So an attempt after the death of
a node cancels the job of the attempt before.
*/

mod requests;
mod session;

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use client::Client;
use executor::{CallAnswer, CallAnswers, CallHost, CallRequest};
use node::Input;
use proto::{Attempt, TaskId};
use serde_json::json;
use tokio::sync::mpsc;

use crate::door::Door;
use crate::event_loop::inbox::Local;
use session::Session;

type Key = (TaskId, Attempt);

/// The calls of a node that make calls.
#[derive(Debug)]
pub(crate) struct NestedCalls {
    pub(crate) dir: PathBuf,
    /// Where calls commit states and send events.
    pub(crate) door: Arc<Door>,
    /// The directory of the workers for large values.
    pub(crate) results: PathBuf,
    /// To the run loop.
    pub(crate) inputs: mpsc::UnboundedSender<Local>,
    pub(crate) thread: OnceLock<Option<mpsc::UnboundedSender<Event>>>,
}

#[derive(Debug)]
pub(crate) enum Event {
    Ask(CallRequest, Answers),
    Ended(Key),
}

/// Where the answers to a request go.
#[derive(Clone)]
pub(crate) struct Answers(CallAnswers);

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answers")
    }
}

impl Answers {
    fn tell(&self, answer: CallAnswer) {
        (self.0)(answer);
    }
    fn fail(&self, failure: &Failure) {
        let json = json!({ "error": failure.class, "text": failure.text });
        self.tell(CallAnswer { json: json.to_string().into_bytes(), ..CallAnswer::default() });
    }
}

/// The class of an exception in Python, and its text.
#[derive(Debug)]
struct Failure {
    class: &'static str,
    text: String,
}

impl Failure {
    fn value(text: impl Into<String>) -> Self {
        Self { class: "ValueError", text: text.into() }
    }
}

impl From<client::ClientError> for Failure {
    fn from(error: client::ClientError) -> Self {
        Self { class: "ClusterError", text: error.to_string() }
    }
}

impl CallHost for NestedCalls {
    fn ask(&self, request: CallRequest, answers: CallAnswers) {
        let answers = Answers(answers);
        let sent = self.events().map(|events| events.send(Event::Ask(request, answers.clone())));
        if !matches!(sent, Some(Ok(()))) {
            let text = "this node cannot start a thread for calls of calls".to_owned();
            answers.fail(&Failure { class: "ClusterError", text });
        }
    }

    fn rests(&self, task: TaskId, attempt: Attempt, rests: bool) {
        // If the run loop has ended, so do all calls.
        let _ = self.inputs.send(Local::Input(Input::Rests { task, attempt, rests }));
    }

    fn ended(&self, task: TaskId, attempt: Attempt) {
        if let Some(events) = self.events() {
            // Without the thread there is nothing to end.
            let _ = events.send(Event::Ended((task, attempt)));
        }
    }
}

impl NestedCalls {
    fn events(&self) -> Option<&mpsc::UnboundedSender<Event>> {
        let start = || {
            let (sender, events) = mpsc::unbounded_channel();
            let (dir, results, door) = (self.dir.clone(), self.results.clone(), self.door.clone());
            let host = move || Host { dir, results, door, client: tokio::sync::OnceCell::new() };
            let thread = std::thread::Builder::new().name("nested".to_owned());
            thread.spawn(move || run(host(), events)).ok().map(|_| sender)
        };
        self.thread.get_or_init(start).as_ref()
    }
}

/// The thread. It ends with the executor, which has the other end of the channel.
fn run(host: Host, mut events: mpsc::UnboundedReceiver<Event>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let host = Rc::new(host);
        let mut sessions: HashMap<Key, Rc<Session>> = HashMap::new();
        while let Some(event) = events.recv().await {
            match event {
                Event::Ask(request, answers) => {
                    let key = (request.task, request.attempt);
                    let session = sessions.entry(key).or_insert_with(|| Rc::new(Session::new(key)));
                    // The request begins here, so that appends are in their order.
                    requests::begin(&host, session, request, answers);
                }
                Event::Ended(key) => {
                    if let Some(session) = sessions.remove(&key) {
                        tokio::task::spawn_local(session::end(Rc::clone(&host), session));
                    }
                }
            }
        }
    });
}

/// What all sessions share.
#[derive(Debug)]
struct Host {
    dir: PathBuf,
    results: PathBuf,
    door: Arc<Door>,
    client: tokio::sync::OnceCell<Client>,
}

impl Host {
    /// The client of this node, which connects with the first request.
    async fn client(&self) -> Result<&Client, Failure> {
        Ok(self.client.get_or_try_init(|| Client::connect(&self.dir)).await?)
    }
}

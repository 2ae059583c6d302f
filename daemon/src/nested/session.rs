//! The job of one call, and the ends of its tasks.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use client::{Client, EndsPosition, JobSettings, OpenJob, OpenOptions, TaskEnd};
use executor::CallAnswer;
use proto::{JobId, LocalId, wire};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::{Answers, Failure, Host, Key};

/// The ends and the bytes of values of one record.
const ENDS_MAX: usize = 256;
const INLINE_BYTES_MAX: usize = 256 << 10;

/// A call that makes calls.
#[derive(Debug)]
pub(super) struct Session {
    key: Key,
    job: OnceCell<OpenJob>,
    has_ended: Cell<bool>,
    /// Tasks without an end.
    open: RefCell<HashSet<LocalId>>,
    pub(super) specs: RefCell<Vec<Arc<wire::Spec>>>,
    watch: RefCell<Option<AbortHandle>>,
}

impl Session {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            job: OnceCell::new(),
            has_ended: Cell::new(false),
            open: RefCell::default(),
            specs: RefCell::default(),
            watch: RefCell::default(),
        }
    }

    pub(super) fn job(&self) -> Result<&OpenJob, Failure> {
        self.job.get().ok_or_else(|| Failure::value("the call has no job"))
    }

    pub(super) fn note_open(&self, task: LocalId) {
        self.open.borrow_mut().insert(task);
    }

    /// The key of the job in the user's store.
    fn note(&self) -> Vec<u8> {
        let (task, _) = self.key;
        format!("nested/{}/{}", task.job.0, task.local.0).into_bytes()
    }
}

/// Opens the job of a call, and sends the ends of its tasks from then on. A second request finds
/// the same job.
pub(super) async fn open(
    host: Rc<Host>,
    session: Rc<Session>,
    name: String,
    answers: Answers,
) -> Result<JobId, Failure> {
    if let Some(job) = session.job.get() {
        return Ok(job.id());
    }
    let client = host.client().await?;
    cancel_former(client, &session).await?;
    let (task, _) = session.key;
    let settings = JobSettings { real_data: true, ..JobSettings::default() };
    let name = format!("{name} (calls of {}, job {})", task.local, task.job.0);
    let job = client.open_job(OpenOptions { name, settings, ..OpenOptions::default() }).await?;
    let id = job.id();
    let noted = client.kv().insert(&session.note(), id.0.to_string().as_bytes()).await;
    let is_late = session.has_ended.get();
    if noted.is_err() || is_late || session.job.set(job.clone()).is_err() {
        // The call has ended, or another request of it was faster. Nothing else ends this job.
        let cancelled = client.cancel(id, &[]).await;
        if is_late {
            remove_note(client, &session, id).await;
        }
        noted?;
        cancelled?;
        let job = session.job.get();
        return job.map(OpenJob::id).ok_or_else(|| Failure::value("the call has ended"));
    }
    let theirs = Rc::downgrade(&session);
    let told = answers.clone();
    let (ends, failing) = (client.watch_ends(id, EndsPosition::default()), job);
    let watch = tokio::task::spawn_local(async move {
        let mut ends = ends;
        let lost = tokio::select! {
            lost = failing.failure() => lost.to_string(),
            lost = async {
                loop {
                    match ends.next().await {
                        Ok(Some(ends)) => match theirs.upgrade() {
                            Some(session) => pass_on(&session, &ends, &told),
                            None => return String::new(),
                        },
                        Ok(None) => return "its job has ended".to_owned(),
                        Err(error) => return error.to_string(),
                    }
                }
            } => lost,
        };
        news(&told, &json!({ "lost": lost }), Vec::new());
    });
    *session.watch.borrow_mut() = Some(watch.abort_handle());
    Ok(id)
}

/// An attempt before this one may have left its job.
async fn cancel_former(client: &Client, session: &Session) -> Result<(), Failure> {
    let noted = client.kv().lookup(&session.note()).await?;
    let former = noted.and_then(|noted| std::str::from_utf8(&noted.bytes).ok()?.parse().ok());
    if let Some(former) = former {
        // It may have ended, or be forgotten.
        let _ = client.cancel(JobId(former), &[]).await;
    }
    Ok(())
}

/// The job has ended. The note may be that of the next attempt by now, here or on another node. A
/// note that stays is harmless: the next attempt cancels a job that has ended.
async fn remove_note(client: &Client, session: &Session, job: JobId) {
    let noted = client.kv().lookup(&session.note()).await;
    if matches!(noted, Ok(Some(noted)) if *noted.bytes == *job.0.to_string().as_bytes()) {
        let _ = client.kv().remove(&session.note()).await;
    }
}

/// Sends ends to the worker, in records of bounded size.
fn pass_on(session: &Session, ends: &[TaskEnd], answers: &Answers) {
    let (mut entries, mut data): (Vec<Value>, Vec<u8>) = (Vec::new(), Vec::new());
    for end in ends {
        session.open.borrow_mut().remove(&end.task);
        let size_bytes = end.output_sizes.first().copied().unwrap_or(0);
        entries.push(json!([
            end.task.0,
            end.attempt.0,
            end.verdict as i32,
            end.error,
            size_bytes,
            end.node.0,
            end.inline.len(),
        ]));
        data.extend_from_slice(&end.inline);
        if entries.len() >= ENDS_MAX || data.len() >= INLINE_BYTES_MAX {
            let entries = std::mem::take(&mut entries);
            news(answers, &json!({ "ends": entries }), std::mem::take(&mut data));
        }
    }
    if !entries.is_empty() {
        news(answers, &json!({ "ends": entries }), data);
    }
}

fn news(answers: &Answers, json: &Value, data: Vec<u8>) {
    let json = json.to_string().into_bytes();
    answers.tell(CallAnswer { json, data, is_news: true, ..CallAnswer::default() });
}

/// The call has ended. Its calls that have not ended are cancelled: nothing can read their results.
pub(super) async fn end(host: Rc<Host>, session: Rc<Session>) {
    session.has_ended.set(true);
    if let Some(watch) = session.watch.borrow_mut().take() {
        watch.abort();
    }
    let Some(job) = session.job.get() else { return };
    let Ok(client) = host.client().await else { return };
    let all_ended = session.open.borrow().is_empty();
    let ended = match all_ended {
        true => job.close().await,
        false => client.cancel(job.id(), &[]).await.map(drop),
    };
    if ended.is_ok() {
        remove_note(client, &session, job.id()).await;
    }
}

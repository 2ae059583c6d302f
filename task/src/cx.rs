//! The context of a call that runs: its own calls, and its end.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use client::{ClientError, Verdict};
use proto::LocalId;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::call::{Call, Entry, Given, Input, Options, Source};
use crate::child::{Child, ChildEnd, Released, Spawned, Work};
use crate::program::{self, Body};
use crate::turns::Entered;
use crate::variable::Var;
use crate::worker::line::Ended;
use crate::worker::{self, Shared};
use crate::{Error, Result};

/// A wait looks this often whether its call is cancelled, in case a signal came too early.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Values that no handle names are released in groups of this size.
const RELEASE_AT: usize = 256;

/// Ids from here on are those of calls that no node knows. It is no partition's.
const INSIDE_IDS: u64 = 1 << 63;

/// What the cluster wants of a call that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Want {
    /// Nothing: the call goes on.
    GoOn,
    /// The call is cancelled, or its time is over. If it does not end, its worker is killed.
    Cancel,
}

/// The context of a call that runs.
pub struct Cx {
    line: Shared,
    call: u64,
    /// Job, local id, attempt.
    task: (u64, u64, u64),
    /// The job of the program that waits for the whole computation.
    root: u64,
    body: Arc<Body>,
    cancelled: bool,
    /// The node has gone.
    ended: Option<Ended>,
    /// The job of its calls.
    job: Option<u64>,
    /// Some calls may not be stored yet.
    unsent: bool,
    specs: HashMap<(&'static str, Options, usize), u64>,
    /// The calls that handles name.
    works: HashMap<LocalId, Rc<Work>>,
    ends: HashMap<LocalId, ChildEnd>,
    /// The calls that run inside of this one, and the ids that they have given to theirs.
    inside: u32,
    inside_ids: u64,
    lost: Option<String>,
    released: Released,
    /// The way to the door of the node, once it is used.
    pub(crate) entered: Option<Entered>,
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx").field("task", &self.task()).finish_non_exhaustive()
    }
}

impl Cx {
    pub(crate) fn new(
        line: Shared,
        call: u64,
        task: (u64, u64, u64),
        root: u64,
        body: Arc<Body>,
    ) -> Self {
        Self {
            line,
            call,
            task,
            root,
            body,
            cancelled: false,
            ended: None,
            job: None,
            unsent: false,
            specs: HashMap::new(),
            works: HashMap::new(),
            inside: 0,
            inside_ids: 0,
            ends: HashMap::new(),
            lost: None,
            released: Rc::default(),
            entered: None,
        }
    }

    /// The id of the task that runs, as the command line takes it.
    #[must_use]
    pub fn task(&self) -> String {
        let (job, local, _) = self.task;
        format!("{job}.{}", LocalId(local))
    }

    /// The number of the attempt: it is larger than that of each earlier attempt.
    #[must_use]
    pub fn attempt(&self) -> u64 {
        self.task.2
    }

    /// Whether the call should end. Costs nanoseconds, so a loop may ask often.
    pub fn poll(&mut self) -> Want {
        let line = self.line.borrow();
        if !self.cancelled && line.was_interrupted() {
            self.cancelled = line.is_unwanted(self.call);
        }
        match self.cancelled {
            true => Want::Cancel,
            false => Want::GoOn,
        }
    }

    /// [`Self::poll`] for a function that returns a result.
    ///
    /// # Errors
    /// [`Error::Interrupted`]: the call should end.
    pub fn check(&mut self) -> Result<()> {
        match self.poll() {
            Want::Cancel => Err(Error::Interrupted),
            Want::GoOn => Ok(()),
        }
    }

    /// A variable of the job of the program that waits for the whole computation.
    ///
    /// # Errors
    /// It was not declared by [`crate::ClusterOptions::variables`], or its home does not answer.
    pub fn var(&self, name: &str) -> Result<Var> {
        Var::of_job(self.root, name)
    }

    /// Submits a call, which is cancelled if this call ends before it. It returns at once; the
    /// child runs when all values that it takes are there.
    ///
    /// # Errors
    /// An argument is no JSON, is too large, or is a call of another job; or the node does not
    /// reach the cluster.
    pub fn spawn<R>(&mut self, call: Call<R>) -> Result<Child<R>> {
        let title = call.title();
        let Call { entry, arguments, options, .. } = call;
        let (payload, sources) = arguments.payload(self.root, &title)?;
        let job = self.open()?;
        if sources.iter().any(|source| source.job != job) {
            return Err(Error::Foreign("an argument is a call that this call has not spawned"));
        }
        let gone = Error::Foreign("an argument is a call that has been released");
        let source = |source: Source| {
            self.works.get(&source.local).map(|work| (source.local, Rc::clone(work)))
        };
        let sources: Option<Vec<_>> = sources.into_iter().map(source).collect();
        let sources = sources.ok_or(gone)?;
        let local = match self.inside {
            0 => {
                let parents: Vec<(u64, u32)> = sources.iter().map(|it| (it.0.0, 0)).collect();
                self.append((entry, options), &payload, &parents)?
            }
            // The call below does its part of the work itself.
            _ => {
                self.inside_ids += 1;
                LocalId(INSIDE_IDS + self.inside_ids)
            }
        };
        self.works.insert(local, Rc::new(Work { entry, payload, sources }));
        let released = Rc::clone(&self.released);
        Ok(Child::new(Spawned { job, local, title, released }))
    }

    /// Gives a call to the node; returns its id.
    fn append(
        &mut self,
        (entry, options): (&'static Entry, Options),
        payload: &[u8],
        parents: &[(u64, u32)],
    ) -> Result<LocalId> {
        let key = (entry.name, options, parents.len());
        let spec = match self.specs.get(&key) {
            Some(spec) => *spec,
            None => {
                let body = self.body.of(entry);
                let fields = spec_fields(&key, entry.short_name(), &body);
                let (answer, _) = self.ask(&fields, &body)?;
                let spec = answer["spec"].as_u64().unwrap_or_default();
                self.specs.insert(key, spec);
                spec
            }
        };
        let fields = json!({ "ask": "append", "spec": spec, "parents": parents });
        let (answer, _) = self.ask(&fields, payload)?;
        self.unsent = true;
        Ok(LocalId(answer["local"].as_u64().unwrap_or_default()))
    }

    /// Waits for the value of a child. The call has no slot meanwhile.
    ///
    /// # Errors
    /// The reason why there is no value, as [`crate::Pending::get`] has it;
    /// [`Error::Interrupted`]: this call should end.
    pub fn get<T: DeserializeOwned>(&mut self, child: &Child<T>) -> Result<T> {
        let Spawned { job, local, title, .. } = &*child.spawned;
        if Some(*job) != self.job {
            return Err(Error::Foreign("a call waits only for calls that it has spawned"));
        }
        if !self.wait(&|cx| cx.ends.contains_key(local))? {
            let work = self.work(*local)?;
            self.run_inside(*local, &work)?;
        }
        self.value(*local, title)
    }

    /// Spawns a call, and waits for its value. Its arguments may be children that are not ended.
    ///
    /// # Errors
    /// As [`Self::spawn`] and [`Self::get`].
    pub fn then<R: DeserializeOwned>(&mut self, call: Call<R>) -> Result<R> {
        let child = self.spawn(call)?;
        self.get(&child)
    }

    /// Waits until one of these children has ended, and returns its place in the list; `None`: the
    /// list is empty. The call has no slot meanwhile.
    ///
    /// # Errors
    /// [`Error::Interrupted`]: this call should end; or a child is one of another call.
    pub fn wait_any<T>(&mut self, children: &[Child<T>]) -> Result<Option<usize>> {
        if children.is_empty() {
            return Ok(None);
        }
        if children.iter().any(|it| Some(it.spawned.job) != self.job) {
            return Err(Error::Foreign("a call waits only for calls that it has spawned"));
        }
        let has_ended = |cx: &Self, it: &Child<T>| cx.ends.contains_key(&it.spawned.local);
        let place = |cx: &Self| children.iter().position(|it| has_ended(cx, it));
        if !self.wait(&|cx| place(cx).is_some())? {
            let first = children[0].spawned.local;
            let work = self.work(first)?;
            self.run_inside(first, &work)?;
        }
        Ok(place(self))
    }

    // The way to the node.

    pub(crate) fn ended(&mut self) -> Option<Ended> {
        self.ended.take()
    }

    pub(crate) fn is_cancelled(&mut self) -> bool {
        self.cancelled = self.cancelled || self.line.borrow().is_unwanted(self.call);
        self.cancelled
    }

    fn end(&mut self, ended: Ended) -> Error {
        self.ended = Some(ended);
        Error::Interrupted
    }

    /// The job of the call's calls.
    fn open(&mut self) -> Result<u64> {
        if let Some(job) = self.job {
            return Ok(job);
        }
        self.line.borrow_mut().listen(self.call);
        let name = std::env::current_exe().ok();
        let name = name.as_deref().and_then(|path| path.file_name()).unwrap_or_default();
        let (answer, _) =
            self.ask(&json!({ "ask": "open", "name": name.to_string_lossy() }), &[])?;
        let job = answer["job"].as_u64().unwrap_or_default();
        self.job = Some(job);
        Ok(job)
    }

    /// True within the wait of another call: this is then no attempt of a task.
    pub(crate) fn runs_inside(&self) -> bool {
        self.inside > 0
    }

    pub(crate) fn ask(&mut self, fields: &Value, data: &[u8]) -> Result<(Value, Vec<u8>)> {
        let asked = self.line.borrow_mut().ask(self.call, fields, data);
        let seq = asked.map_err(|ended| self.end(ended))?;
        loop {
            let answer = self.line.borrow_mut().answer(seq);
            if let Some((fields, data)) = answer {
                return match fields["error"].as_str() {
                    None => Ok((fields, data)),
                    Some(_) => {
                        let text = fields["text"].as_str().unwrap_or_default().to_owned();
                        Err(ClientError::Refused(text).into())
                    }
                };
            }
            if !self.pump(LOOK_EVERY)? && self.is_cancelled() {
                self.line.borrow_mut().unask(seq);
                return Err(Error::Interrupted);
            }
        }
    }

    /// Handles the next record, also a call on top of this one.
    fn pump(&mut self, most: Duration) -> Result<bool> {
        let next = self.line.borrow_mut().next(Some(most));
        let Some((kind, body)) = next.map_err(|ended| self.end(ended))? else { return Ok(false) };
        let handled = worker::on_top(&self.line, self.call, kind, &body);
        handled.map_err(|ended| self.end(ended))?;
        Ok(true)
    }

    /// Waits without a slot until this is so; returns `false` if the call should do the work that
    /// it waits for itself.
    fn wait(&mut self, is_done: &dyn Fn(&Self) -> bool) -> Result<bool> {
        while self.pump(Duration::ZERO)? {}
        self.hear();
        self.release()?;
        if is_done(self) || self.inside > 0 {
            return Ok(is_done(self));
        }
        if self.unsent {
            // Calls that start before others must be there before a slot is free.
            self.ask(&json!({ "ask": "flush" }), &[])?;
            self.unsent = false;
        }
        self.rest(true)?;
        while !is_done(self) {
            if self.is_cancelled() {
                // The node does not want it to go on.
                return Err(Error::Interrupted);
            }
            if self.line.borrow_mut().is_stuck(self.call) {
                return Ok(false);
            }
            if let Some(text) = &self.lost {
                let error = ClientError::Refused(text.clone());
                self.go_on()?;
                return Err(error.into());
            }
            self.pump(LOOK_EVERY)?;
            self.hear();
        }
        self.go_on().map(|()| true)
    }

    fn work(&self, local: LocalId) -> Result<Rc<Work>> {
        let gone = Error::Foreign("the call has been released");
        self.works.get(&local).cloned().ok_or(gone)
    }

    /// Runs a child here: all processes of the node wait, so no other may come to it. Its own task
    /// ends with the job of this call.
    fn run_inside(&mut self, local: LocalId, work: &Work) -> Result<()> {
        self.hear();
        if self.ends.contains_key(&local) {
            return Ok(());
        }
        let mut inputs = Vec::with_capacity(work.sources.len());
        for (source, its_work) in &work.sources {
            self.run_inside(*source, its_work)?;
            match self.bytes(*source, "") {
                Ok(bytes) => inputs.push(Input::Bytes(bytes)),
                Err(error @ Error::Interrupted) => return Err(error),
                Err(_) => {
                    self.ends.insert(local, ChildEnd::here(Verdict::Skipped));
                    return Ok(());
                }
            }
        }
        let (mut given, _) = Given::new(&work.payload, inputs).map_err(Error::Text)?;
        self.inside += 1;
        let result = worker::run::inside(self, work.entry, &mut given);
        self.inside -= 1;
        if self.ended.is_some() || self.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let end = match result {
            Ok(inline) => ChildEnd { inline, ..ChildEnd::here(Verdict::Done) },
            Err(error) => ChildEnd { error, ..ChildEnd::here(Verdict::Failed) },
        };
        self.ends.insert(local, end);
        Ok(())
    }

    fn rest(&mut self, rests: bool) -> Result<()> {
        let told = self.line.borrow_mut().rest(self.call, rests);
        told.map_err(|ended| self.end(ended))
    }

    /// Waits for a slot.
    fn go_on(&mut self) -> Result<()> {
        self.rest(false)?;
        loop {
            if self.line.borrow_mut().has_slot(self.call) {
                return Ok(());
            }
            if self.is_cancelled() {
                return Err(Error::Interrupted);
            }
            self.pump(LOOK_EVERY)?;
        }
    }

    /// Takes the news of its calls.
    fn hear(&mut self) {
        let news = self.line.borrow_mut().heard(self.call);
        for (fields, data) in news {
            if let Some(text) = fields["lost"].as_str() {
                self.lost = Some(text.to_owned());
            }
            let mut rest = &data[..];
            for end in fields["ends"].as_array().into_iter().flatten() {
                let number = |at: usize| end[at].as_u64().unwrap_or_default();
                let count = usize::try_from(number(6)).unwrap_or(0).min(rest.len());
                let (inline, after) = rest.split_at(count);
                rest = after;
                self.ends.entry(LocalId(number(0))).or_insert_with(|| ChildEnd {
                    attempt: number(1),
                    verdict: end[2].as_i64().unwrap_or_default(),
                    error: end[3].as_str().unwrap_or_default().to_owned(),
                    node: number(5),
                    inline: inline.to_vec(),
                });
            }
        }
    }

    fn value<T: DeserializeOwned>(&mut self, local: LocalId, title: &str) -> Result<T> {
        let bytes = self.bytes(local, title)?;
        let what = || format!("the value of {title}");
        crate::json::decode(&bytes).map_err(|text| Error::Value { what: what(), text })
    }

    /// The JSON of the value of a child that has ended.
    fn bytes(&mut self, local: LocalId, title: &str) -> Result<Vec<u8>> {
        let Some(end) = self.ends.get(&local) else { return Err(Error::Interrupted) };
        let is = |verdict: Verdict| end.verdict == verdict as i64;
        if is(Verdict::Cancelled) {
            return Err(Error::Cancelled(title.to_owned()));
        }
        if is(Verdict::Skipped) {
            return Err(Error::Skipped(title.to_owned()));
        }
        if !is(Verdict::Done) {
            let (call, text) = (title.to_owned(), end.error.clone());
            let text = if text.is_empty() { self.reason(local) } else { text };
            return Err(Error::Failed { call, text });
        }
        if !end.inline.is_empty() {
            return Ok(end.inline.clone());
        }
        let place = (end.attempt, end.node);
        match self.fetch(local, place) {
            // It was lost with its node.
            Err(Error::Cluster(_)) => {
                self.ends.remove(&local);
                let work = self.work(local)?;
                self.run_inside(local, &work)?;
                self.bytes(local, title)
            }
            fetched => fetched,
        }
    }

    fn fetch(&mut self, local: LocalId, place: (u64, u64)) -> Result<Vec<u8>> {
        match self.fetch_from(local, place) {
            Err(error) if !matches!(error, Error::Interrupted) => {
                // Another node may have made the value again.
                let (answer, _) = self.ask(&json!({ "ask": "place", "local": local.0 }), &[])?;
                let now = (answer["place"][0].as_u64(), answer["place"][1].as_u64());
                match now {
                    (Some(attempt), Some(node)) if (attempt, node) != place => {
                        self.fetch_from(local, (attempt, node))
                    }
                    _ => Err(error),
                }
            }
            fetched => fetched,
        }
    }

    fn fetch_from(&mut self, local: LocalId, place: (u64, u64)) -> Result<Vec<u8>> {
        let (attempt, node) = place;
        let fields = json!({ "ask": "fetch", "local": local.0, "attempt": attempt, "node": node });
        Ok(self.ask(&fields, &[])?.1)
    }

    fn reason(&mut self, local: LocalId) -> String {
        match self.ask(&json!({ "ask": "explain", "local": local.0 }), &[]) {
            Ok((answer, _)) => {
                let lines = answer["lines"].as_array().into_iter().flatten();
                lines.filter_map(Value::as_str).collect::<Vec<_>>().join("; ")
            }
            Err(error) => format!("no node tells the reason: {error}"),
        }
    }

    fn release(&mut self) -> Result<()> {
        if self.released.borrow().len() < RELEASE_AT {
            return Ok(());
        }
        let mut released = self.released.take();
        for local in &released {
            self.ends.remove(&LocalId(*local));
            self.works.remove(&LocalId(*local));
        }
        released.retain(|&local| local < INSIDE_IDS);
        if released.is_empty() {
            return Ok(());
        }
        self.ask(&json!({ "ask": "release", "locals": released }), &[]).map(drop)
    }
}

/// The description of calls of one function, for its node.
fn spec_fields(key: &(&'static str, Options, usize), short_name: &str, body: &[u8]) -> Value {
    let (name, options, inputs) = key;
    let shown = options.name.as_deref().unwrap_or(short_name);
    let function = program::function_id(body)
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    json!({
        "ask": "spec",
        "options": {
            "kind": name,
            "name": shown,
            "cpus": options.cpus,
            "memory_bytes": options.memory_bytes,
            "resources": options.needs,
            "retries": options.retries,
            "time_limit_ns": options.time_limit_ns,
            "priority": options.priority,
            "replicas": if options.copies > 1 { options.copies } else { 0 },
        },
        "runtime": null,
        "codec": proto::codec::JSON,
        "function": function,
        "inputs": inputs,
    })
}

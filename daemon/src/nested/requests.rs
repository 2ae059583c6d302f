//! The requests of a call. Their form is in `docs/worker-protocol.md`.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{ClientError, NewTask, Parent, StreamFilter, StreamPiece, TaskPhase};
use executor::{CallAnswer, CallRequest, Entrance};
use proto::{Attempt, LocalId, NodeId, ObjectId, TaskId, codec, wire};
use resources::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use super::session::{self, Session};
use super::{Answers, Failure, Host};

/// Larger answers go as files.
const INLINE_BYTES_MAX: u64 = 64 << 10;
/// The time that nodes have to report their state.
const NODES_TIMEOUT: Duration = Duration::from_secs(2);
/// The specs of one call.
const SPECS_MAX: usize = 65_536;

/// Numbers the files of large answers.
static FILES: AtomicU64 = AtomicU64::new(1);

#[derive(Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
enum Asked {
    Open { name: String },
    Spec(Box<SpecFields>),
    Reader { name: String },
    Append { spec: usize, parents: Vec<(u64, u32)> },
    Flush,
    Release { locals: Vec<u64> },
    Cancel { locals: Vec<u64> },
    IsRunning { local: u64 },
    Explain { local: u64 },
    Place { local: u64 },
    Printed { local: u64, node: u32, stderr: bool },
    Fetch { local: u64, attempt: u64, node: u32 },
    Nodes,
    KvInsert { key: String, path: Option<String> },
    KvRemove { key: String },
    Enter,
}

/// The arguments of the program, the modules and the environment.
type RuntimeFields = (Vec<String>, Vec<String>, Vec<(String, String)>);

#[derive(Debug, Deserialize)]
struct SpecFields {
    options: OptionFields,
    /// `None`: that of the call that asks.
    runtime: Option<RuntimeFields>,
    /// In hexadecimal digits.
    function: String,
    /// That of the arguments; `None`: a pickle.
    codec: Option<u8>,
    inputs: usize,
}

#[derive(Debug, Deserialize)]
struct OptionFields {
    kind: String,
    name: String,
    cpus: u32,
    memory_bytes: u64,
    /// What it asks for beside cpus and memory.
    #[serde(default)]
    resources: String,
    retries: u32,
    time_limit_ns: u64,
    priority: i32,
    /// 0: one.
    #[serde(default)]
    replicas: u32,
}

type Answered = Result<CallAnswer, Failure>;

/// Begins a request. Appends and specs are done when this returns.
pub(super) fn begin(
    host: &Rc<Host>,
    session: &Rc<Session>,
    request: CallRequest,
    answers: Answers,
) {
    let asked = match serde_json::from_slice(&request.json) {
        Ok(asked) => asked,
        Err(error) => {
            let text = format!("a request that this node does not know: {error}");
            return answers.fail(&Failure { class: "ClusterError", text });
        }
    };
    let now = match asked {
        Asked::Spec(fields) => spec(session, &request.spec, *fields, &request.data),
        Asked::Enter => enter(host, &request),
        Asked::Reader { name } => add_spec(session, client::raw::reader_spec(name)),
        Asked::Append { spec, parents } => {
            let added = append(session, spec, parents, request.data);
            if added.is_ok() {
                let session = Rc::clone(session);
                tokio::task::spawn_local(async move {
                    // So the call cannot run ahead of what is stored.
                    tell(&answers, room(&session).await.and(added));
                });
                return;
            }
            added
        }
        asked => {
            let (host, session) = (Rc::clone(host), Rc::clone(session));
            tokio::task::spawn_local(async move {
                let told = answers.clone();
                tell(&answers, later(host, session, asked, request.data, told).await);
            });
            return;
        }
    };
    tell(&answers, now);
}

/// The way of a call to the door, with the last committed state of its task.
fn enter(host: &Host, request: &CallRequest) -> Answered {
    let (key, resume) = ((request.task, request.attempt), request.resume.as_deref());
    let entrance = host.door.enter_call(key, request.variables, resume);
    let Entrance { door, token, state } =
        entrance.map_err(|text| Failure { class: "ClusterError", text })?;
    let json = json!({ "door": door, "token": token, "has_state": state.is_some() });
    Ok(CallAnswer { data: state.unwrap_or_default(), ..plain(&json) })
}

async fn room(session: &Session) -> Result<(), Failure> {
    Ok(session.job()?.room().await?)
}

fn tell(answers: &Answers, answered: Answered) {
    match answered {
        Ok(answer) => answers.tell(answer),
        Err(failure) => answers.fail(&failure),
    }
}

/// An answer without bytes.
fn plain(json: &Value) -> CallAnswer {
    CallAnswer { json: json.to_string().into_bytes(), ..CallAnswer::default() }
}

fn spec(session: &Session, of_call: &wire::Spec, fields: SpecFields, body: &[u8]) -> Answered {
    let own = match &of_call.body {
        Some(wire::spec::Body::Call(call)) => call.runtime.clone(),
        _ => None,
    };
    let runtime = fields.runtime.map(|(argv, preload, env)| wire::Runtime {
        argv,
        env: env.into_iter().map(|(name, value)| wire::Env { name, value }).collect(),
        preload,
        ..Default::default()
    });
    let function = security::from_hex::<16>(&fields.function);
    let function = function.ok_or_else(|| Failure::value("the function has no hash"))?;
    let call = wire::Call {
        runtime: runtime.or(own),
        function: function.to_vec().into(),
        body: body.to_vec().into(),
        body_codec: codec::RAW.into(),
        codec: fields.codec.unwrap_or(codec::PICKLE).into(),
        nested: true,
        ..Default::default()
    };
    let options = fields.options;
    let request = Request::of_call(options.cpus, options.memory_bytes, &options.resources)
        .map_err(|error| Failure::value(error.to_string()))?;
    let input = |k: usize| wire::Input { key: format!("{k}"), value: true, ..Default::default() };
    let spec = wire::Spec {
        kind: options.kind,
        name: options.name,
        cpus: options.cpus,
        memory_bytes: options.memory_bytes,
        retries: options.retries,
        time_limit_ns: options.time_limit_ns,
        // A call that waits holds a process, so its calls come before others of its kind.
        priority: options.priority.max(of_call.priority.saturating_add(1)),
        request,
        body: Some(wire::spec::Body::Call(call)),
        inputs: (0..fields.inputs).map(input).collect(),
        outputs: vec![wire::Output {
            key: "result".to_owned(),
            replicas: options.replicas,
            ..Default::default()
        }],
        ..Default::default()
    };
    add_spec(session, spec)
}

fn add_spec(session: &Session, spec: wire::Spec) -> Answered {
    let mut specs = session.specs.borrow_mut();
    if specs.len() >= SPECS_MAX {
        return Err(Failure::value(format!("a call makes calls of at most {SPECS_MAX} kinds")));
    }
    specs.push(Arc::new(spec));
    Ok(plain(&json!({ "spec": specs.len() - 1 })))
}

fn append(session: &Session, spec: usize, parents: Vec<(u64, u32)>, payload: Vec<u8>) -> Answered {
    let job = session.job()?;
    let specs = session.specs.borrow();
    let spec = specs.get(spec).ok_or_else(|| Failure::value("no such spec"))?;
    let spec = client::raw::task_spec(Arc::clone(spec));
    let parent = |(task, output)| Parent { task: LocalId(task), output: Some(output) };
    let parents = parents.into_iter().map(parent).collect();
    let task = NewTask { payload: payload.into(), parents, ..NewTask::default() };
    let local = job.append(&spec, task)?;
    session.note_open(local);
    Ok(plain(&json!({ "local": local.0 })))
}

async fn later(
    host: Rc<Host>,
    session: Rc<Session>,
    asked: Asked,
    data: Vec<u8>,
    answers: Answers,
) -> Answered {
    if let Asked::Open { name } = asked {
        let job = session::open(host, session, name, answers).await?;
        return Ok(CallAnswer { job: Some(job), ..plain(&json!({ "job": job.0 })) });
    }
    of_job(&host, &session, asked, data).await
}

async fn of_job(host: &Host, session: &Session, asked: Asked, data: Vec<u8>) -> Answered {
    let locals = |locals: Vec<u64>| locals.into_iter().map(LocalId).collect::<Vec<_>>();
    let json = match asked {
        Asked::Flush => session.job()?.flush().await.map(|()| json!({}))?,
        Asked::Release { locals: of } => {
            session.job()?.release(&locals(of)).await.map(|()| json!({}))?
        }
        Asked::Cancel { locals: of } => {
            let job = session.job()?.id();
            let cancelled = host.client().await?.cancel(job, &locals(of)).await?;
            json!({ "cancelled": cancelled.cancelled })
        }
        Asked::Nodes => nodes(host).await?,
        Asked::KvInsert { key, path } => {
            let data = match path {
                Some(path) => read_file(host, &path)?,
                None => data,
            };
            let kv = host.client().await?.kv();
            kv.insert(key.as_bytes(), &data).await.map(|_| json!({}))?
        }
        Asked::KvRemove { key } => {
            host.client().await?.kv().remove(key.as_bytes()).await.map(|_| json!({}))?
        }
        Asked::Fetch { local, attempt, node } => {
            return fetch(host, session, local, attempt, NodeId(node)).await;
        }
        Asked::Printed { local, node, stderr } => {
            return printed(host, session, LocalId(local), NodeId(node), stderr).await;
        }
        asked => explained(host, session, asked).await?,
    };
    Ok(plain(&json))
}

async fn explained(host: &Host, session: &Session, asked: Asked) -> Result<Value, Failure> {
    let (Asked::IsRunning { local } | Asked::Explain { local } | Asked::Place { local }) = asked
    else {
        return Err(Failure::value("no such request"));
    };
    let job = session.job()?.id();
    let explained = host.client().await?.explain(job, LocalId(local)).await?;
    Ok(match asked {
        Asked::Explain { .. } => json!({ "lines": explained.lines }),
        Asked::IsRunning { .. } => {
            let phase = explained.task.map(|task| task.phase);
            json!({ "running": phase == Some(TaskPhase::Running) })
        }
        _ => {
            let place = explained.task.and_then(|task| Some((task.attempt.0, task.node?.0)));
            let holders: Vec<u32> = explained.holders.iter().map(|node| node.0).collect();
            json!({ "place": place, "holders": holders })
        }
    })
}

async fn nodes(host: &Host) -> Result<Value, Failure> {
    let states = host.client().await?.node_states(NODES_TIMEOUT).await;
    let nodes: Vec<Value> = states
        .into_iter()
        .map(|(node, state)| {
            let member = state.ok().and_then(|state| state.member);
            let told = if member.is_some() { "up" } else { "silent" };
            json!({ "id": node.0, "state": told, "slots": member.map_or(0, |it| it.slots) })
        })
        .collect();
    Ok(json!({ "nodes": nodes }))
}

async fn fetch(host: &Host, session: &Session, local: u64, attempt: u64, node: NodeId) -> Answered {
    let task = TaskId::new(session.job()?.id().0, local);
    let object = ObjectId { task, attempt: Attempt(attempt), output: 0 };
    let path = host.new_file();
    let read = host.client().await?.fetch_object(node, object, &path).await;
    let size_bytes = read.map_err(|error| match error {
        ClientError::Refused(text) => Failure { class: "ResultLost", text },
        error => error.into(),
    })?;
    send(path, size_bytes)
}

async fn printed(
    host: &Host,
    session: &Session,
    local: LocalId,
    node: NodeId,
    stderr: bool,
) -> Answered {
    let filter = StreamFilter { tasks: vec![local], stderr, ..StreamFilter::default() };
    let (client, job) = (host.client().await?, session.job()?.id());
    let mut last = LastAttempt::new(host.new_file())?;
    let read = client.streams(node, job, &filter, |piece: StreamPiece| last.add(&piece)).await;
    match read {
        Ok(()) => send(last.path, last.size_bytes),
        Err(failure) => {
            let _ = std::fs::remove_file(&last.path);
            Err(failure)
        }
    }
}

/// A file of what the last attempt of a task has printed.
struct LastAttempt {
    path: PathBuf,
    file: File,
    attempt: Attempt,
    size_bytes: u64,
}

impl LastAttempt {
    fn new(path: PathBuf) -> Result<Self, Failure> {
        let file = File::create_new(&path).map_err(|error| unwritten(&path, &error))?;
        Ok(Self { path, file, attempt: Attempt(0), size_bytes: 0 })
    }

    /// Pieces of one attempt come in their order; those of several attempts may be mixed.
    fn add(&mut self, piece: &StreamPiece) -> Result<(), Failure> {
        if piece.attempt < self.attempt {
            return Ok(());
        }
        let written = if piece.attempt > self.attempt {
            (self.attempt, self.size_bytes) = (piece.attempt, 0);
            self.file.set_len(0).and_then(|()| self.file.rewind())
        } else {
            Ok(())
        };
        self.size_bytes += piece.data.len() as u64;
        let written = written.and_then(|()| self.file.write_all(&piece.data));
        written.map_err(|error| unwritten(&self.path, &error))
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let text = format!("cannot write {}: {error}", path.display());
    Failure { class: "ClusterError", text }
}

/// The bytes of a file for the worker. It removes the file if they are many.
fn send(path: PathBuf, size_bytes: u64) -> Answered {
    if size_bytes > INLINE_BYTES_MAX {
        return Ok(CallAnswer { file: Some(path.clone()), ..plain(&json!({ "path": path })) });
    }
    let data = std::fs::read(&path);
    let _ = std::fs::remove_file(&path);
    let failed = |error: std::io::Error| Failure {
        class: "ClusterError",
        text: format!("cannot read {}: {error}", path.display()),
    };
    Ok(CallAnswer { data: data.map_err(failed)?, ..plain(&json!({})) })
}

impl Host {
    /// The path of a new file for an answer.
    fn new_file(&self) -> PathBuf {
        self.results.join(format!("nested-{}", FILES.fetch_add(1, Ordering::Relaxed)))
    }
}

/// The bytes of a file that a worker has written for its node, which removes it.
fn read_file(host: &Host, path: &str) -> Result<Vec<u8>, Failure> {
    let path = Path::new(path);
    if path.parent() != Some(&host.results) || path.file_name().is_none() {
        return Err(Failure::value("a file outside of the directory for results"));
    }
    let bytes = std::fs::read(path);
    let _ = std::fs::remove_file(path);
    bytes.map_err(|error| Failure::value(format!("cannot read {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_names_only_files_of_its_own_directory() {
        let results = tempfile::tempdir().unwrap();
        let (inputs, _orders) = tokio::sync::mpsc::unbounded_channel();
        let (door, _) = crate::door::Door::open(results.path(), inputs);
        let host = Host {
            dir: "/nowhere".into(),
            results: results.path().to_owned(),
            door: door.into(),
            client: tokio::sync::OnceCell::new(),
        };
        let inside = results.path().join("1.2");
        std::fs::write(&inside, b"seven").unwrap();
        assert_eq!(read_file(&host, inside.to_str().unwrap()).unwrap(), b"seven");
        assert!(!inside.exists(), "the node removes it");
        assert!(read_file(&host, "/etc/hostname").is_err());
        assert!(read_file(&host, results.path().join("..").to_str().unwrap()).is_err());
    }

    #[test]
    fn the_calls_of_a_call_have_its_runtime_and_come_before_it() {
        let session = Session::new((TaskId::new(1, 2), Attempt(1)));
        let argv = vec!["python9".to_owned()];
        let runtime = wire::Runtime { argv: argv.clone(), ..Default::default() };
        let call = wire::Call { runtime: Some(runtime), ..Default::default() };
        let of_call = wire::Spec {
            priority: 4,
            body: Some(wire::spec::Body::Call(call)),
            ..Default::default()
        };
        let fields = json!({
            "options": {"kind": "f", "name": "f", "cpus": 1, "memory_bytes": 0, "retries": 0,
                        "time_limit_ns": 0, "priority": 0, "replicas": 2},
            "runtime": null, "function": "00112233445566778899aabbccddeeff", "inputs": 1,
        });
        let fields = serde_json::from_value(fields).unwrap();
        let answer = spec(&session, &of_call, fields, b"body").unwrap();
        assert_eq!(answer.json, br#"{"spec":0}"#);
        let made = session.specs.borrow()[0].clone();
        assert_eq!(made.priority, 5);
        let Some(wire::spec::Body::Call(call)) = &made.body else { panic!("no call") };
        assert_eq!(call.runtime.as_ref().unwrap().argv, argv);
        assert!(call.nested, "another call may wait for it");
    }

    #[test]
    fn a_reader_of_a_lost_result_reads_it_and_makes_nothing() {
        let session = Session::new((TaskId::new(1, 2), Attempt(1)));
        let asked = serde_json::from_value(json!({ "ask": "reader", "name": "<read>" })).unwrap();
        let Asked::Reader { name } = asked else { panic!("no reader") };
        let answer = add_spec(&session, client::raw::reader_spec(name)).unwrap();
        assert_eq!(answer.json, br#"{"spec":0}"#);
        let made = session.specs.borrow()[0].clone();
        assert_eq!((made.name.as_str(), made.priority), ("<read>", i32::MAX));
        assert_eq!((made.inputs.len(), made.outputs.len()), (1, 0));
        assert!(matches!(made.body, Some(wire::spec::Body::Noop(_))), "it needs no process");
    }

    #[test]
    fn an_answer_with_many_bytes_is_a_file_of_the_last_attempt() {
        let directory = tempfile::tempdir().unwrap();
        let piece = |attempt, data: &'static [u8]| StreamPiece {
            attempt: Attempt(attempt),
            data: data.into(),
            ..StreamPiece::default()
        };
        let path = directory.path().join("nested-1");
        let mut last = LastAttempt::new(path.clone()).unwrap();
        for (attempt, data) in [(1, &b"early"[..]), (2, b"la"), (1, b"more"), (2, b"te")] {
            last.add(&piece(attempt, data)).unwrap();
        }
        let answer = send(last.path, last.size_bytes).unwrap();
        assert_eq!((answer.data, answer.file), (b"late".to_vec(), None));
        assert!(!path.exists(), "few bytes go with the answer");
        std::fs::write(&path, vec![b'x'; 65_537]).unwrap();
        let answer = send(path.clone(), 65_537).unwrap();
        assert_eq!((answer.data.len(), answer.file), (0, Some(path.clone())));
        assert!(path.exists());
    }
}

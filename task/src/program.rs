//! The program as client and as worker: its identity, and what it runs.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use proto::wire;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::call::{Entry, Options};
use crate::{Cluster, ClusterOptions, Error, Result, worker};

/// The argument by which a node starts the program as a worker; the node adds `worker`.
const WORKER_ARGUMENT: &str = "__starling_task";
const ROLE: &str = "worker";
/// The hash of the program, in the environment of its workers.
const BUILD_VARIABLE: &str = "STARLING_TASK_BUILD";
/// The identity of a file: device, inode, times and size. Bytes of equal ones are not compared.
type Stamp = (u64, u64, i64, i64, u64);

/// Runs the program: as a worker if a node has started it, else as the client that `drive` is.
///
/// The cluster is that of `STARLING_DIR`, else that of the default directory. If no cluster is
/// there, a local one starts, which ends with the program; it needs the program `starling` beside
/// this one, in `PATH`, or named by `STARLING_BINARY`.
///
/// After an error of `drive` the calls that are open are cancelled, and the exit code is 1.
pub fn main<E: Display>(drive: impl FnOnce(&Cluster) -> Result<(), E>) -> ExitCode {
    main_with(ClusterOptions::default(), drive)
}

/// As [`main`], with options, such as variables that calls share.
pub fn main_with<E: Display>(
    options: ClusterOptions,
    drive: impl FnOnce(&Cluster) -> Result<(), E>,
) -> ExitCode {
    if is_worker() {
        serve();
    }
    let cluster = match Cluster::open(options) {
        Ok(cluster) => cluster,
        Err(error) => return failed(&error),
    };
    match drive(&cluster) {
        Ok(()) => match cluster.close() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        // The open calls are cancelled with the connection.
        Err(error) => failed(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the program's error")]
fn failed(error: &dyn Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Whether a node has started this program as a worker. [`main`] does all that is needed; a
/// program with a `main` of its own calls [`serve`] then.
#[must_use]
pub fn is_worker() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    let is_ours = arguments.any(|argument| argument == WORKER_ARGUMENT);
    is_ours && arguments.last().is_some_and(|last| last == ROLE)
}

/// Serves calls as a worker of a node, and ends the process.
pub fn serve() -> ! {
    worker::serve()
}

/// The program that runs.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    /// Of its bytes.
    hash: String,
    stamp: Stamp,
}

/// The bytes of a function, as its worker gets them.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Body {
    pub(crate) name: String,
    hash: String,
    stamp: Stamp,
}

impl Program {
    pub(crate) fn of_this_process() -> Result<Self> {
        if let Some(name) = Entry::doubled() {
            let text = format!("two tasks of this program have the name {name}");
            return Err(Error::Program(text));
        }
        let unreadable = |error: io::Error| Error::Program(format!("this program: {error}"));
        let path = std::env::current_exe().map_err(unreadable)?;
        let file = File::open("/proc/self/exe").map_err(unreadable)?;
        let stamp = stamp_of(&file).map_err(unreadable)?;
        let now = File::open(&path).and_then(|file| stamp_of(&file));
        if now.ok() != Some(stamp) {
            let text = format!(
                "{} is not the file that this process was started from, so nodes cannot start it",
                path.display()
            );
            return Err(Error::Program(text));
        }
        let hash = hash_of(file).map_err(unreadable)?;
        Ok(Self { path, hash, stamp })
    }

    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn body(&self, entry: &Entry) -> Vec<u8> {
        let body = Body { name: String::new(), hash: self.hash.clone(), stamp: self.stamp };
        body.of(entry)
    }

    /// The description of calls of a function. `extra`: arguments of the program before ours.
    pub(crate) fn spec(
        &self,
        (entry, options): (&Entry, &Options),
        inputs: usize,
        extra: &[String],
    ) -> Result<wire::Spec> {
        let text = self.path.to_str().ok_or_else(|| {
            Error::Program(format!("the path of this program is no UTF-8: {:?}", self.path))
        })?;
        let mut argv = vec![text.to_owned()];
        argv.extend_from_slice(extra);
        argv.push(WORKER_ARGUMENT.to_owned());
        // A worker of an earlier build may still live, so each build is a runtime of its own.
        let env = wire::Env { name: BUILD_VARIABLE.to_owned(), value: self.hash.clone() };
        let runtime =
            wire::Runtime { argv, env: vec![env], direct: true, ..wire::Runtime::default() };
        let body = self.body(entry);
        let call = wire::Call {
            runtime: Some(runtime),
            function: function_id(&body).to_vec().into(),
            body: body.into(),
            body_codec: proto::codec::RAW.into(),
            codec: proto::codec::JSON.into(),
            ..wire::Call::default()
        };
        let input =
            |k: usize| wire::Input { key: k.to_string(), value: true, ..wire::Input::default() };
        let name = options.name.clone().unwrap_or_else(|| entry.short_name().to_owned());
        let output = wire::Output {
            key: "result".to_owned(),
            replicas: if options.copies > 1 { options.copies } else { 0 },
            ..wire::Output::default()
        };
        let Options { cpus, memory_bytes, needs, .. } = options;
        let request = resources::Request::of_call(*cpus, *memory_bytes, needs)
            .map_err(|error| Error::Program(error.to_string()))?;
        Ok(wire::Spec {
            kind: entry.name.to_owned(),
            name,
            cpus: options.cpus,
            memory_bytes: options.memory_bytes,
            retries: options.retries,
            time_limit_ns: options.time_limit_ns,
            priority: options.priority,
            request,
            body: Some(wire::spec::Body::Call(call)),
            inputs: (0..inputs).map(input).collect(),
            outputs: vec![output],
            ..wire::Spec::default()
        })
    }
}

impl Body {
    /// The bytes of another function of the same program.
    pub(crate) fn of(&self, entry: &Entry) -> Vec<u8> {
        let body = Self { name: entry.name.to_owned(), hash: self.hash.clone(), stamp: self.stamp };
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// The function, if this process runs the program of the client.
    pub(crate) fn function(&self) -> Result<&'static Entry, (&'static str, String)> {
        let own = std::env::current_exe().unwrap_or_default();
        let stamp = File::open("/proc/self/exe").and_then(|file| stamp_of(&file));
        let is_same = stamp.ok() == Some(self.stamp) || own_hash() == Some(&self.hash);
        if !is_same {
            let text = format!(
                "{}{} is another program than the one that submitted the call: it was built \
                 again, or this machine has another version. Submit the calls again",
                own.display(),
                on_node()
            );
            return Err(("WrongProgram", text));
        }
        Entry::find(&self.name).ok_or_else(|| {
            let text = format!("{} has no task {}", own.display(), self.name);
            ("UnknownFunction", text)
        })
    }
}

pub(crate) fn function_id(body: &[u8]) -> [u8; 16] {
    xxh3_128(body).to_le_bytes()
}

fn on_node() -> String {
    std::env::var("STARLING_NODE").map(|node| format!(" on node n{node}")).unwrap_or_default()
}

fn stamp_of(file: &File) -> io::Result<Stamp> {
    let is = file.metadata()?;
    Ok((is.dev(), is.ino(), is.mtime(), is.mtime_nsec(), is.size()))
}

/// The hash of the file that runs.
fn own_hash() -> Option<&'static String> {
    static HASH: OnceLock<Option<String>> = OnceLock::new();
    HASH.get_or_init(|| File::open("/proc/self/exe").and_then(hash_of).ok()).as_ref()
}

fn hash_of(mut file: File) -> io::Result<String> {
    let (mut hash, mut buffer) = (Xxh3::new(), vec![0; 1 << 20]);
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(format!("{:032x}", hash.digest128())),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// The directory of the cluster, as the command line has it, and whether the user has named it.
pub(crate) fn default_dir() -> (PathBuf, bool) {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(dir) = set("STARLING_DIR") {
        return (dir.into(), true);
    }
    if let Some(dir) = set("XDG_RUNTIME_DIR") {
        return (Path::new(&dir).join("starling/default"), false);
    }
    let temporary = set("TMPDIR").unwrap_or_else(|| "/tmp".into());
    let user = rustix::process::getuid().as_raw();
    (Path::new(&temporary).join(format!("starling-{user}/default")), false)
}

/*!
Runs work: commands, sleeps, spins and no-ops; keeps the objects they produce and what they print.

An [`Executor`] belongs to one node. It is told to [`launch`](Executor::launch) an attempt whose
inputs are all here, and reports how it ended through the callback given at the start, exactly once
unless the attempt was [killed](Executor::kill) before. It never blocks its caller.

* [`objects`]: one file per output of an attempt, under an attempt-scoped name; small copies of
  other nodes' objects in memory.
* [`Uploads`]: files of submitters, until their tasks make them objects.
* [`streams`]: stdout and stderr of all tasks, packed into a few append-only files.
* [`spawner`]: commands are not children of the node but of a small helper process of its own.
  It is quick to start from, and when the node dies it kills all it started: a command never
  outlives its node.
* [`expand`]: the placeholders of arguments, environment and file names.

It never decides what runs, when, or where, and it talks to no other node: the shell brings the
bytes of a remote object through [`ObjectStore::create_incoming`] or [`ObjectStore::keep_copy`].

```
use proto::work::Launch;
use proto::{Attempt, Span, TaskId, wire};
let launch = Launch {
    task: TaskId::new(1, 0),
    attempt: Attempt(1),
    slot: 0,
    spec: wire::Spec {
        body: Some(wire::spec::Body::Noop(wire::Noop {})),
        outputs: vec![wire::Output { size_bytes: 7, ..Default::default() }],
        ..Default::default()
    }
    .into(),
    settings: wire::JobSettings::default().into(),
    entry: 0,
    duration: Span::ZERO,
    output_sizes: vec![],
    name: String::new(),
    inputs: vec![],
};
// A no-op with virtual data is answered at once; everything else goes through `launch`.
let outcome = executor::Executor::run_inline(&launch).expect("nothing to wait for");
assert_eq!((outcome.is_done(), outcome.output_sizes), (true, vec![7]));
```
*/

pub mod archive;
mod captured;
mod collect;
mod commands;
mod deliver;
mod dir_pool;
mod disk_reserve;
mod environment;
mod error;
mod executor;
pub mod expand;
pub mod inherited;
mod inputs;
pub mod locks;
mod names;
pub mod objects;
mod orphan_processes;
mod pool;
pub mod private;
mod shared_files;
pub mod spawner;
mod spawner_liveness;
mod spawner_process;
mod stage;
pub mod streams;
mod synthetic;
mod table;
mod timer;
mod uploads;

pub use error::ExecutorError;
pub use executor::{AttemptOutcome, Executor, ExecutorConfig};
pub use objects::{IncomingObject, ObjectError, ObjectKind, ObjectReader, ObjectStore};
pub use streams::{CopiedPacks, CopiedRecords, StreamPiece, StreamReader, Streams};
pub use synthetic::pattern;
pub use uploads::{IncomingUpload, UploadError, UploadFinder, Uploads};

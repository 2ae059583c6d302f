/*!
Runs work: commands, sleeps, spins and no-ops. Stores the objects and the printed output of tasks.

An [`Executor`] belongs to one node. A call of [`launch`](Executor::launch) starts an attempt with
all inputs on this node. The callback given at the start receives its end exactly once, unless
the attempt was [killed](Executor::kill) before. An executor never blocks its caller.

* [`objects`]: one file per output of an attempt, under an attempt-scoped name; small copies of
  other nodes' objects in memory.
* [`Uploads`]: files of submitters, until their tasks make objects of them.
* [`streams`]: stdout and stderr of all tasks, packed into a few append-only files.
* [`spawner`]: commands are not children of the node but of a small helper process, which starts
  them quickly. When the node dies, the helper kills all processes it started: a command never
  outlives its node.
* [`expand`]: the placeholders of arguments, environment and file names.

The executor never decides which task runs, when, or where, and it talks to no other node. The shell
stores the bytes of a remote object through [`ObjectStore::create_incoming`] or
[`ObjectStore::keep_copy`].

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
    payload: Default::default(),
    inputs: vec![],
    resume: None,
    granted: None,
    gang: Vec::new(),
};
// A no-op with virtual data is answered at once; everything else goes through `launch`.
let outcome = executor::Executor::run_inline(&launch).expect("nothing to wait for");
assert_eq!((outcome.is_done(), outcome.output_sizes), (true, vec![7]));
```
*/

pub mod archive;
pub mod checkpoint;
mod commands;
mod disk_reserve;
mod error;
mod executor;
pub mod huge_pages;
pub mod inherited;
mod inputs;
mod limits;
pub mod locks;
mod members;
pub mod objects;
pub mod open_files;
mod pool;
pub mod private;
pub mod spawner;
pub mod streams;
mod synthetic;
mod table;
mod timer;
mod workers;

pub use commands::doorway::{Doorway, Entrance};
pub use commands::expand;
pub use commands::gang::{MemberTotals, NODE_PREFIX};
pub use error::ExecutorError;
pub use executor::{AttemptOutcome, Executor, ExecutorConfig};
pub use inputs::uploads::{IncomingUpload, UploadError, UploadFinder, Uploads};
pub use members::{MemberCommand, MemberEnd, MemberStreams};
pub use objects::{
    IncomingObject, ObjectError, ObjectKind, ObjectReader, ObjectSource, ObjectStore,
};
pub use streams::{CopiedPacks, CopiedRecords, Place, StreamPiece, StreamReader, Streams};
pub use synthetic::pattern;
pub use workers::{CallAnswer, CallAnswers, CallHost, CallRequest, FunctionStore};

/*!
The transfer of objects between nodes.

```text
wanted here ─▶ small ──▶ requested and sent in frames of the link, many in one      small
            └▶ large ──▶ a line: a separate connection with a reading thread        lines
                                 └─▶ the other node's port and sending thread       port, serve
```
A large object never delays a packet, and the thread of the run loop never touches its bytes.
Without encryption the sender passes the file to the kernel (sendfile) once it knows the checksum.
The receiver reserves disk space for the file first. A checksum (xxh3) follows the bytes of every
object. An object that is too short, too long or damaged is never published.

[`stream`] opens and authenticates data connections. [`socket`] reads and writes their bytes,
encrypted or not. [`frame`] is their byte format.
*/

mod connection_pool;
mod frame;
mod port;
mod receive;
mod serve;
mod small_objects;
mod socket;
mod stream;

pub(crate) use connection_pool::{DataConnectionPool, Wanted, bring};
pub(crate) use port::serve;
pub(crate) use small_objects::{SmallObjectChannel, give, take};
pub(crate) use stream::Registry;

use executor::ObjectError;
use proto::work::FetchError;
use proto::{Attempt, JobId, LocalId, ObjectId, TaskId, wire};

/// The object that a wire request names.
pub(crate) fn object_of(request: &wire::ObjectRequest) -> ObjectId {
    let &wire::ObjectRequest { job, task, attempt, output } = request;
    let task = TaskId { job: JobId(job), local: LocalId(task) };
    ObjectId { task, attempt: Attempt(attempt), output }
}

/// The reason why an object cannot be sent. A missing object has its own reason, so that the
/// requester looks elsewhere.
fn not_given(error: &ObjectError) -> FetchError {
    match error {
        // A changed object counts as lost: another copy is used.
        ObjectError::Absent(_) | ObjectError::Changed(_) => FetchError::NotThere,
        ObjectError::Io { .. } | ObjectError::TooLarge { .. } => {
            FetchError::Disk(error.to_string())
        }
    }
}

pub(crate) fn request_of(object: ObjectId) -> wire::ObjectRequest {
    wire::ObjectRequest {
        job: object.task.job.0,
        task: object.task.local.0,
        attempt: object.attempt.0,
        output: object.output,
    }
}

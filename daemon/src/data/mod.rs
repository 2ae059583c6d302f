/*!
The bytes of objects on their way between nodes.

```text
needed here ─▶ small ──▶ asked for and given in frames of the link, many in one     small
            └▶ large ──▶ a line: a connection of its own, a thread that reads it    lines
                                 └─▶ the other node's port, a thread that sends     port, serve
```
A large object never stands in front of a packet, and no thread of the loop touches its bytes.
Where nothing is encrypted the sender gives the file to the kernel (sendfile) once it knows the
checksum; the receiver reads into a file that has its room already. Every object is followed by a
checksum of its bytes (xxh3), and one that is short, too long or damaged is never published.

[`stream`] is the one place where a data connection is opened or believed; [`socket`] is its bytes,
encrypted or not; [`frame`] is what goes over it.
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

/// What a request on the wire asks for.
pub(crate) fn object_of(request: &wire::ObjectRequest) -> ObjectId {
    let &wire::ObjectRequest { job, task, attempt, output } = request;
    let task = TaskId { job: JobId(job), local: LocalId(task) };
    ObjectId { task, attempt: Attempt(attempt), output }
}

/// Why an object is not given out. What is not there is said to be so: who asks looks elsewhere.
fn not_given(error: &ObjectError) -> FetchError {
    match error {
        ObjectError::Absent(_) => FetchError::NotThere,
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

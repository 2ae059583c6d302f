/*!
One search on the slots of this machine.

Each slot is a thread with one private bag. It runs the bag in steps of some 35 µs, and between two
steps it reads its *flag word*, which is all that the other slots know of it:

```text
idle slot ──asks: sets SPLIT in the word of the heaviest bag──▶ its slot splits ──piece──▶ idle slot
caller ──sets STOP in all words──▶ all slots end
```

A bag is split only when another slot is idle. A slot that cannot split keeps the request, and
passes it on to the next heaviest bag. The search ends when all slots are idle and no piece waits.

The bags know nothing of threads: the same ones can run as pieces of a job on many nodes.
*/

mod incumbent;
mod pool;
mod slot;

pub use incumbent::Incumbent;
pub use pool::{Next, Outcome, Snapshot, run};

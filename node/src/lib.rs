/*!
One node: routes inputs to the store and the scheduler and emits effects.

The only room that knows both the store ([`kvs`]) and the scheduler. It turns facts into records
(`records.rs`), messages into packets (`link.rs`), and holds back every answer until what it tells
is durable. It never opens a socket, reads a clock, or draws randomness of its own (the seed is
given).

A driver (the daemon's loop, the simulator) does this, for ever:

```text
for input in inputs { node.handle(now, input) }
node.flush(now, &mut effects)
carry out the effects in order: Persist is written before anything after it
```
*/

mod config;
mod io;
mod kv;
mod link;
mod member;
mod membership;
mod moves;
mod node;
mod records;
mod replica;
mod requests;
mod step;

pub use config::Config;
pub use io::{Effect, Input};
pub use node::{Node, RecoverError};
pub use step::SyncWish;

/*!
One node: routes inputs to the store and the scheduler and emits effects.

This is the only crate that knows both the store ([`kvs`]) and the scheduler. It turns facts into
records (`records.rs`) and messages into packets (`link.rs`), and holds back each answer until its
contents are durable. It never opens a socket, reads a clock, or draws randomness of its own (the
seed is an input).

A driver (the daemon's loop, the simulator) repeats this:

```text
for input in inputs { node.handle(now, input) }
node.flush(now, &mut effects)
carry out the effects in order: Persist is written before anything after it
```

From decision to socket, with the gate between each two buffers (`step.rs`, `link.rs`):

```text
buffer            gate                                               next buffer
Out               one message per receiver, to the present home;     Node::route, per message
                  without an active home it is parked
Node::route       to this node itself, and need not wait             loopback, in the same step
                  `durable_before_send`                              Node::awaiting_sync
                  all others, with launches, fetches, deletions      Node::step
Out.facts         end of the step                                    Effect::Persist, replicas
Node::step        end of the step                                    Node::held_steps
Node::held_steps  every replica has logged its batch                 effects, Link::queue
Node::            every replica and this node have synced its batch  Link::queue, loopback
 awaiting_sync
Out.answers       end of the step                                    Node::answers
Node::answers     as Node::awaiting_sync, and the leases hold        Effect::Reply
Link::queue       the peer's incarnation is known, the window has    Effect::Send; kept in the queue
                  room                                               until the peer acknowledges it
effects           the shell has written the batch to its log         sockets, executor, disk
```

If the receiver of a message has failed, `Node::queue_message` passes the message back to the
scheduler, which sends it to the new homes. An acknowledgement leaves under the same gate as
`Node::awaiting_sync`.
*/

mod config;
mod io;
mod kv;
mod leaving;
mod limits;
mod link;
mod member;
mod membership;
mod moves;
mod mutant;
mod node;
mod pause;
mod records;
mod replica;
mod requests;
mod step;

pub use config::{Config, Departs, offer_bytes};
pub use io::{Effect, Input};
pub use mutant::Mutant;
pub use node::{Node, RecoverError};
pub use step::SyncWish;

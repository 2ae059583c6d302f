//! Keeps undelivered messages to homes that move, in order, until a node serves the partition. If a
//! node returns a message because it is not the home, the message is sent again.

use std::collections::{BTreeMap, VecDeque};

use prost::Message as _;

use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::limits::{PARKED_RETRY_AFTER, PARKED_RETRY_DOUBLED_MAX};
use crate::output::Out;
use crate::routing::Routing;
use crate::routing::partition_owners::Homes;
use crate::routing::route::{self, Split};
use crate::routing::traits::traits;
use crate::{Mutant, Scheduler};

/// Messages for the homes of partitions, oldest first. This takes the place of the queue of a link,
/// and has the same bound: the open work.
#[derive(Debug, Default)]
pub(crate) struct Undelivered {
    queues: BTreeMap<PartitionId, VecDeque<Body>>,
    /// Partitions that a node has refused, as not their home, since the last change of the map.
    retries: BTreeMap<PartitionId, Retry>,
}

#[derive(Debug, Default)]
struct Retry {
    /// Nothing is sent to the node that the map names before this time.
    at: Option<Time>,
    /// The number of refusals.
    times: u32,
}

impl Undelivered {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.retries.values().filter_map(|retry| retry.at).min()
    }
    pub(crate) fn map_changed(&mut self) {
        self.retries.clear();
    }
    /// This node serves the partition from now on.
    pub(crate) fn served_here(&mut self, partition: PartitionId) {
        self.retries.remove(&partition);
    }
    fn retry_later(&mut self, now: Time, partition: PartitionId) {
        let retry = self.retries.entry(partition).or_default();
        if retry.at.is_none() {
            let doublings = retry.times.min(PARKED_RETRY_DOUBLED_MAX);
            retry.at = Some(now + PARKED_RETRY_AFTER.doubled_times(doublings));
            retry.times += 1;
        }
    }
    /// The job is forgotten: a home that gets its commit now would have the job again.
    pub(crate) fn forget_job(&mut self, job: JobId) {
        let is_of_it = |body: &Body| match body {
            Body::Visible(it) => it.commit.as_ref().is_some_and(|commit| commit.job == job.0),
            _ => false,
        };
        self.queues.retain(|_, bodies| {
            bodies.retain(|body| !is_of_it(body));
            !bodies.is_empty()
        });
    }
    fn enqueue(&mut self, partition: PartitionId, body: Body) {
        mark(Mark::Parked);
        self.queues.entry(partition).or_default().push_back(body);
    }
    /// The home to send to now. No message overtakes parked ones of the same partition.
    fn active_owner(&self, homes: &Homes, partition: PartitionId) -> Result<NodeId, PartitionId> {
        if self.queues.contains_key(&partition) {
            return Err(partition);
        }
        homes.active_owner(partition).ok_or(partition)
    }
    /// Takes out the messages that can be sent now.
    fn take_sendable(&mut self, now: Time, homes: &Homes) -> Vec<(NodeId, Body)> {
        for retry in self.retries.values_mut() {
            retry.at = retry.at.filter(|&at| at > now);
        }
        let (mut released, retries) = (Vec::new(), &self.retries);
        let waits = |partition| retries.get(&partition).is_some_and(|retry| retry.at.is_some());
        self.queues.retain(|&partition, bodies| match homes.active_owner(partition) {
            _ if waits(partition) => true,
            Some(home) => {
                released.extend(bodies.drain(..).map(|body| (home, body)));
                false
            }
            None => true,
        });
        released
    }
}

impl Routing {
    fn split_by_active_owner(&self, body: Body) -> Split<Result<NodeId, PartitionId>> {
        let (homes, undelivered) = (&self.homes, &self.undelivered);
        route::split(body, homes, |partition| undelivered.active_owner(homes, partition))
    }

    fn send_or_enqueue(
        &mut self,
        pieces: Vec<(Result<NodeId, PartitionId>, Body)>,
        sent: &mut Vec<(NodeId, Body)>,
    ) {
        for (home, piece) in pieces {
            match home {
                Ok(home) => sent.push((home, piece)),
                Err(partition) => self.undelivered.enqueue(partition, piece),
            }
        }
    }

    /// Returns the part of a message that is for this node. The remainder is returned to its
    /// sender. The sender may know the present homes, or will learn them.
    pub(crate) fn keep_owned_bounce_rest(
        &self,
        from: NodeId,
        body: Body,
        out: &mut Out,
    ) -> Option<Body> {
        let homes = &self.homes;
        let addressed_to = traits(&body).addressed_to;
        let surpassed = route::surpassed(&addressed_to, homes);
        let mine = |partition| homes.is_mine(partition) && !surpassed.contains(&partition);
        if route::all(&addressed_to, homes, mine) {
            return Some(body);
        }
        let pieces = match route::split(body, homes, mine) {
            Split::ToNode(body) => return Some(body),
            Split::Undivided(moved) => {
                // The thief sends it again, in pieces for one home each.
                bounce(from, Body::TasksMoved(moved), out);
                return None;
            }
            Split::ByOwner(pieces) => pieces,
        };
        let mut kept = None;
        for (mine, piece) in pieces {
            if mine {
                kept = Some(piece);
            } else {
                bounce(from, piece, out);
            }
        }
        kept
    }
}

impl Scheduler {
    /// Sends messages for homes to the nodes that serve, and parks them where none does. The node
    /// calls this before it takes messages out of `out`.
    pub fn address(&mut self, out: &mut Out) {
        if self.routing.undelivered.is_empty() && self.routing.homes.is_settled() {
            return;
        }
        let mut sent = Vec::with_capacity(out.reliable.len());
        for (to, body) in std::mem::take(&mut out.reliable) {
            let right = |partition| {
                self.routing.undelivered.active_owner(&self.routing.homes, partition) == Ok(to)
            };
            if route::all(&traits(&body).addressed_to, &self.routing.homes, right) {
                sent.push((to, body));
                continue;
            }
            match self.routing.split_by_active_owner(body) {
                Split::ToNode(body) => sent.push((to, body)),
                // Sent again when parked messages are released.
                Split::Undivided(moved) => self.stealing.move_bounced(to, moved.steal),
                Split::ByOwner(pieces) => self.routing.send_or_enqueue(pieces, &mut sent),
            }
        }
        out.reliable = sent;
    }

    /// Handles messages that a failed node has not acknowledged: those for homes go to the new
    /// homes.
    pub fn reroute(&mut self, unacknowledged: Vec<Body>, out: &mut Out) {
        if self.options.mutant == Some(Mutant::NothingRerouted) {
            return;
        }
        for body in unacknowledged {
            let Some(body) = self.still_needed(body) else { continue };
            mark(Mark::Rerouted);
            match self.routing.split_by_active_owner(body) {
                // The first kind has no meaning without the node; the thief repeats the second
                // kind.
                Split::ToNode(_) | Split::Undivided(_) => {}
                Split::ByOwner(pieces) => self.routing.send_or_enqueue(pieces, &mut out.reliable),
            }
        }
    }

    /// Tries to send parked messages again: the map has changed, or some time has passed.
    pub(crate) fn resend_undelivered(&mut self, now: Time, out: &mut Out) {
        for (home, body) in self.routing.undelivered.take_sendable(now, &self.routing.homes) {
            let told = match &body {
                Body::Visible(visible) => visible.commit.as_ref().map(|commit| JobId(commit.job)),
                _ => None,
            };
            out.reliable.extend(self.still_needed(body).map(|body| (home, body)));
            // A cancellation sent meanwhile reached a home that had nothing of the job.
            told.into_iter().for_each(|job| self.home.jobs.cancel_again_at(job, home, out));
        }
        self.resend_moves(out);
    }
    /// Drops outdated messages. The next home of a task requests missing inputs by itself. If it
    /// has them by now, a late request would make them again without need.
    fn still_needed(&self, body: Body) -> Option<Body> {
        // A home that gets this late would have a forgotten job again.
        if let Body::Visible(wire::Visible { commit: Some(commit), .. }) = &body
            && self.home.jobs.has_gone(JobId(commit.job))
        {
            return None;
        }
        let Body::CreditQuery(mut query) = body else { return Some(body) };
        query.requests.retain(|ask| {
            let child = TaskId::new(ask.job, ask.child);
            self.routing.homes.is_mine(child.partition())
                && self.home.ledger.lacks(child, LocalId(ask.parent))
        });
        (!query.requests.is_empty()).then_some(Body::CreditQuery(query))
    }
    pub(crate) fn retry_undelivered(&mut self, now: Time, out: &mut Out) {
        if self.routing.undelivered.deadline().is_some_and(|at| at <= now) {
            self.resend_undelivered(now, out);
        }
    }

    /// A node returns a message because it is not the home that this node took it for.
    pub(crate) fn on_wrong_owner(
        &mut self,
        now: Time,
        from: NodeId,
        wrong_owner: &wire::WrongOwner,
    ) {
        let message = wire::Message::decode(wrong_owner.message.as_slice()).unwrap_or_default();
        let Some(body) = message.body else { return };
        let exists = |partition: &PartitionId| partition.0 < self.routing.homes.partitions();
        let pieces = match route::split(body, &self.routing.homes, |partition| partition) {
            Split::ToNode(_) => return,
            Split::Undivided(moved) => {
                let about = moved.tasks.iter().map(|task| LocalId(task.local).partition());
                for partition in about.filter(exists) {
                    self.routing.undelivered.retry_later(now, partition);
                }
                return self.stealing.move_bounced(from, moved.steal);
            }
            Split::ByOwner(pieces) => pieces,
        };
        for (partition, piece) in pieces {
            if exists(&partition) {
                self.routing.undelivered.retry_later(now, partition);
                self.routing.undelivered.enqueue(partition, piece);
            }
        }
    }
}

fn bounce(to: NodeId, body: Body, out: &mut Out) {
    mark(Mark::Bounced);
    let message = wire::Message { body: Some(body) }.encode_to_vec();
    out.reliable.push((to, Body::WrongOwner(wire::WrongOwner { message })));
}

//! Keeps undelivered messages to homes that move, in order, until a node serves the partition. If a
//! node returns a message because it is not the home, the message is sent again.

use std::collections::{BTreeMap, VecDeque};

use prost::Message as _;
use proto::limits::{PARKED_RETRY_AFTER, PARKED_RETRY_DOUBLED_MAX};
use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire};

use crate::homes::Homes;
use crate::out::Out;
use crate::routing::route::{self, Split};
use crate::routing::traits::traits;
use crate::{Mutant, Scheduler};

/// Messages for the homes of partitions, oldest first. This takes the place of the queue of a link,
/// and has the same bound: the open work.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    lot: BTreeMap<PartitionId, VecDeque<Body>>,
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

impl Parked {
    pub(crate) fn is_empty(&self) -> bool {
        self.lot.is_empty()
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
            let doubled = PARKED_RETRY_AFTER.0 << retry.times.min(PARKED_RETRY_DOUBLED_MAX);
            retry.at = Some(now + Span(doubled));
            retry.times += 1;
        }
    }
    /// The job is forgotten: a home that gets its commit now would have the job again.
    pub(crate) fn forget_job(&mut self, job: JobId) {
        let is_of_it = |body: &Body| match body {
            Body::Visible(it) => it.commit.as_ref().is_some_and(|commit| commit.job == job.0),
            _ => false,
        };
        self.lot.retain(|_, bodies| {
            bodies.retain(|body| !is_of_it(body));
            !bodies.is_empty()
        });
    }
    fn park(&mut self, partition: PartitionId, body: Body) {
        mark(Mark::Parked);
        self.lot.entry(partition).or_default().push_back(body);
    }
    /// The home to send to now. No message overtakes parked ones of the same partition.
    fn speaker(&self, homes: &Homes, partition: PartitionId) -> Result<NodeId, PartitionId> {
        if self.lot.contains_key(&partition) {
            return Err(partition);
        }
        homes.speaker(partition).ok_or(partition)
    }
    /// Takes out the messages that can be sent now.
    fn released(&mut self, now: Time, homes: &Homes) -> Vec<(NodeId, Body)> {
        for retry in self.retries.values_mut() {
            retry.at = retry.at.filter(|&at| at > now);
        }
        let (mut released, retries) = (Vec::new(), &self.retries);
        let waits = |partition| retries.get(&partition).is_some_and(|retry| retry.at.is_some());
        self.lot.retain(|&partition, bodies| match homes.speaker(partition) {
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

impl Scheduler {
    /// Sends messages for homes to the nodes that serve, and parks them where none does. The node
    /// calls this before it takes messages out of `out`.
    pub fn address(&mut self, out: &mut Out) {
        if self.parked.is_empty() && self.homes.is_settled() {
            return;
        }
        let mut sent = Vec::with_capacity(out.reliable.len());
        for (to, body) in std::mem::take(&mut out.reliable) {
            let right = |partition| self.parked.speaker(&self.homes, partition) == Ok(to);
            if route::all(&traits(&body).addressed_to, &self.homes, right) {
                sent.push((to, body));
                continue;
            }
            match self.by_speaker(body) {
                Split::ToNode(body) => sent.push((to, body)),
                // Sent again when parked messages are released.
                Split::Undivided(moved) => self.move_bounced(to, moved.steal),
                Split::ByOwner(pieces) => self.send_or_park(pieces, &mut sent),
            }
        }
        out.reliable = sent;
    }

    fn by_speaker(&self, body: Body) -> Split<Result<NodeId, PartitionId>> {
        let (homes, parked) = (&self.homes, &self.parked);
        route::split(body, homes, |partition| parked.speaker(homes, partition))
    }

    fn send_or_park(
        &mut self,
        pieces: Vec<(Result<NodeId, PartitionId>, Body)>,
        sent: &mut Vec<(NodeId, Body)>,
    ) {
        for (home, piece) in pieces {
            match home {
                Ok(home) => sent.push((home, piece)),
                Err(partition) => self.parked.park(partition, piece),
            }
        }
    }

    /// Handles messages that a failed node has not acknowledged: those for homes go to the new
    /// homes.
    pub fn reroute(&mut self, unacknowledged: Vec<Body>, out: &mut Out) {
        if self.options.mutant == Some(Mutant::NothingRerouted) {
            return;
        }
        for body in unacknowledged {
            let Some(body) = self.still_asked(body) else { continue };
            mark(Mark::Rerouted);
            match self.by_speaker(body) {
                // The first kind has no meaning without the node; the thief repeats the second
                // kind.
                Split::ToNode(_) | Split::Undivided(_) => {}
                Split::ByOwner(pieces) => self.send_or_park(pieces, &mut out.reliable),
            }
        }
    }

    /// Tries to send parked messages again: the map has changed, or some time has passed.
    pub(crate) fn release_parked(&mut self, now: Time, out: &mut Out) {
        for (home, body) in self.parked.released(now, &self.homes) {
            let told = match &body {
                Body::Visible(visible) => visible.commit.as_ref().map(|commit| JobId(commit.job)),
                _ => None,
            };
            out.reliable.extend(self.still_asked(body).map(|body| (home, body)));
            // A cancellation sent meanwhile reached a home that had nothing of the job.
            told.into_iter().for_each(|job| self.jobs.cancel_again_at(job, home, out));
        }
        self.retell_moves(out);
    }
    /// Drops outdated messages. The next home of a task requests missing inputs by itself. If it
    /// has them by now, a late request would make them again without need.
    fn still_asked(&self, body: Body) -> Option<Body> {
        // A home that gets this late would have a forgotten job again.
        if let Body::Visible(wire::Visible { commit: Some(commit), .. }) = &body
            && self.jobs.has_gone(JobId(commit.job))
        {
            return None;
        }
        let Body::CreditQuery(mut query) = body else { return Some(body) };
        query.asks.retain(|ask| {
            let child = TaskId::new(ask.job, ask.child);
            self.homes.is_mine(child.partition()) && self.ledger.lacks(child, LocalId(ask.parent))
        });
        (!query.asks.is_empty()).then_some(Body::CreditQuery(query))
    }
    pub(crate) fn retry_parked(&mut self, now: Time, out: &mut Out) {
        if self.parked.deadline().is_some_and(|at| at <= now) {
            self.release_parked(now, out);
        }
    }

    /// Returns the part of a message that is for this node. The remainder is returned to its
    /// sender. The sender may know the present homes, or will learn them.
    pub(crate) fn mine_of(&self, from: NodeId, body: Body, out: &mut Out) -> Option<Body> {
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
                bounce(from, Body::Moved(moved), out);
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

    /// A node returns a message because it is not the home that this node took it for.
    pub(crate) fn on_not_home(&mut self, now: Time, from: NodeId, not_home: &wire::NotHome) {
        let message = wire::Message::decode(not_home.message.as_slice()).unwrap_or_default();
        let Some(body) = message.body else { return };
        let exists = |partition: &PartitionId| partition.0 < self.homes.partitions();
        let pieces = match route::split(body, &self.homes, |partition| partition) {
            Split::ToNode(_) => return,
            Split::Undivided(moved) => {
                let about = moved.tasks.iter().map(|task| LocalId(task.local).partition());
                for partition in about.filter(exists) {
                    self.parked.retry_later(now, partition);
                }
                return self.move_bounced(from, moved.steal);
            }
            Split::ByOwner(pieces) => pieces,
        };
        for (partition, piece) in pieces {
            if exists(&partition) {
                self.parked.retry_later(now, partition);
                self.parked.park(partition, piece);
            }
        }
    }
}

fn bounce(to: NodeId, body: Body, out: &mut Out) {
    mark(Mark::Bounced);
    let message = wire::Message { body: Some(body) }.encode_to_vec();
    out.reliable.push((to, Body::NotHome(wire::NotHome { message })));
}

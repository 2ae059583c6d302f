//! Outputs of which several nodes are to have a copy each: those that a workflow keeps, what its
//! client has uploaded, and any for which it says so. The end of an attempt is told when the others
//! have them, so that no node that dies afterwards takes a result with it.
//!
//! Each of those who have it knows of others, and when one of them dies gives it to another node;
//! who has died may come back with it, and is asked first. Of this nothing is written down: a node
//! that starts anew asks those that come first by the number of the task, as its maker did, so that
//! who has it is found, and whoever lacks it gets it.

use std::collections::{BTreeMap, BTreeSet};

use proto::limits::{
    COPIES_FIRST_MAX, COPY_DOUBLINGS_MAX, COPY_RETURN_TIMEOUT, HANDOVER_PAUSE, HANDOVER_TRIES_MAX,
    OBJECTS_PER_MESSAGE_MAX,
};
use proto::wire::TransferStage;
use proto::work::{Outcome, Stay};
use proto::{Incarnation, JobId, NodeId, ObjectId, Span, TaskId, Time, wire};

use crate::data::{Reads, wire_object};
use crate::drain::AttemptKey;
use crate::output::Out;
use crate::output_transfer::{attempt_key, objects_of, send_hand_over};
use crate::task::is_upload;
use crate::{Homes, Mutant, Scheduler};

/// How an attempt has ended, as long as nobody was told.
#[derive(Debug)]
pub(crate) struct UnreportedEnd {
    pub(crate) at: Time,
    pub(crate) started: Time,
    pub(crate) reads: Reads,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
struct RoomRequest {
    tries: u32,
    /// Then it is asked again.
    until: Time,
}

/// Of one attempt.
#[derive(Debug, Default)]
struct CopyState {
    outputs: Vec<wire::TransferredOutput>,
    /// Nodes that are to have them besides this one, and those that do.
    wanted: usize,
    /// How many its maker wanted: this node does when one is gone that had it.
    meant: usize,
    others: BTreeSet<NodeId>,
    asked: BTreeMap<NodeId, RoomRequest>,
    /// They have no room; and those that did not answer, and are asked after all others.
    refused: BTreeSet<NodeId>,
    silent: BTreeSet<NodeId>,
    /// It has died, and may be back with what it had.
    lost: Option<NodeId>,
    end: Option<UnreportedEnd>,
    /// How often there was no room anywhere.
    rounds: u32,
    /// When it is looked at again.
    due: Option<Time>,
    /// It was here when this node started, and nobody was asked yet.
    found: bool,
    /// Its client had put it on the nodes that have copies of its partition: they come first.
    uploaded: bool,
}

impl CopyState {
    fn lacks(&self) -> bool {
        self.others.len() < self.wanted
    }
    fn drop_silent(&mut self, now: Time) {
        let silent = &mut self.silent;
        self.asked.retain(|&node, asked| {
            let gives_up = asked.until <= now && asked.tries >= HANDOVER_TRIES_MAX;
            if gives_up {
                silent.insert(node);
            }
            !gives_up
        });
    }
}

#[derive(Debug, Default)]
pub(crate) struct OutputCopies {
    shared: BTreeMap<AttemptKey, CopyState>,
    due: BTreeSet<(Time, AttemptKey)>,
    /// How many wait for answers.
    under_way: usize,
}

impl OutputCopies {
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.due.first().map(|&(at, _)| at)
    }
    /// So many wait for others already.
    pub(crate) fn is_full(&self) -> bool {
        self.under_way >= COPIES_FIRST_MAX
    }
    /// What has been told of leaves room for tasks whose end waits: there may be very much of it.
    fn may_begin(&self, shared: &CopyState) -> bool {
        let most = if shared.end.is_some() { COPIES_FIRST_MAX } else { COPIES_FIRST_MAX / 2 };
        self.under_way < most
    }

    fn take(&mut self, made: &AttemptKey) -> Option<CopyState> {
        let mut shared = self.shared.remove(made)?;
        self.under_way -= usize::from(!shared.asked.is_empty());
        if let Some(due) = shared.due.take() {
            self.due.remove(&(due, *made));
        }
        Some(shared)
    }
    fn put(&mut self, made: AttemptKey, shared: CopyState) {
        self.under_way += usize::from(!shared.asked.is_empty());
        self.due.extend(shared.due.map(|due| (due, made)));
        let before = self.shared.insert(made, shared);
        assert!(before.is_none(), "{made:?} is looked after twice");
    }
    fn has_asked(&self, made: &AttemptKey, node: NodeId) -> bool {
        self.shared.get(made).is_some_and(|shared| shared.asked.contains_key(&node))
    }

    /// Whether its end waits for others to have what it made.
    pub(crate) fn holds_back(&self, made: &AttemptKey) -> bool {
        self.shared.get(made).is_some_and(|shared| shared.end.is_some())
    }

    /// When an attempt ended whose end is not told yet.
    pub(crate) fn ended_at(&self, made: &AttemptKey) -> Option<Time> {
        self.shared.get(made)?.end.as_ref().map(|end| end.at)
    }

    /// An attempt whose end was not told is not wanted. What it made stays: a power cut may have
    /// taken from its home that the same attempt had ended before, here or elsewhere.
    pub(crate) fn forget(&mut self, made: &AttemptKey) {
        self.take(made);
    }
    /// What is not kept goes with its job.
    pub(crate) fn forget_job(&mut self, job: JobId) {
        let of_job = self.shared.iter().filter(|((task, _), _)| task.job == job);
        let goes = |shared: &CopyState| shared.outputs.iter().all(|output| !output.keep);
        let gone: Vec<AttemptKey> =
            of_job.filter(|(_, shared)| goes(shared)).map(|(&made, _)| made).collect();
        for made in gone {
            self.take(&made);
        }
    }

    /// It lies here since an earlier life of this node.
    fn found(&mut self, made: AttemptKey, shared: CopyState) {
        if !self.shared.contains_key(&made) {
            self.put(made, shared);
        }
    }

    /// The map has changed: a node that died may be back with what it had; `a_node_came`: or there
    /// is another who may have room.
    fn look_for_takers(&mut self, now: Time, is_there: impl Fn(NodeId) -> bool, a_node_came: bool) {
        let may_ask = |shared: &CopyState| match shared.lost {
            Some(lost) => is_there(lost),
            None => a_node_came && shared.lacks() && shared.asked.is_empty() && !shared.found,
        };
        let found = self.shared.iter().filter(|(_, shared)| may_ask(shared));
        let found: Vec<AttemptKey> = found.map(|(&made, _)| made).collect();
        for made in found {
            let shared = self.take(&made).expect("found above");
            self.put(made, CopyState { due: Some(now), rounds: 0, ..shared });
        }
    }

    /// How many are to have more copies than they have, where there are so many other nodes.
    fn lacking(&self, others: usize) -> u64 {
        let lacks = |shared: &&CopyState| {
            shared.end.is_none() && shared.others.len() < shared.wanted.min(others)
        };
        self.shared.values().filter(lacks).count() as u64
    }

    /// A node is gone: of what it had others are to have copies again.
    pub(crate) fn forget_node(&mut self, now: Time, node: NodeId) {
        let concerned = self.shared.iter().filter(|(_, shared)| {
            shared.others.contains(&node) || shared.asked.contains_key(&node)
        });
        let concerned: Vec<AttemptKey> = concerned.map(|(&made, _)| made).collect();
        for made in concerned {
            let mut shared = self.take(&made).expect("found above");
            shared.asked.remove(&node);
            if shared.others.remove(&node) {
                shared.lost = Some(node);
                // The maker may be gone before there were nodes enough for all that it wanted.
                shared.wanted = shared.wanted.max(shared.meant);
            }
            let waits = shared.end.is_none() && shared.asked.is_empty();
            shared.due = Some(if waits { now + COPY_RETURN_TIMEOUT } else { now });
            self.put(made, shared);
        }
    }
}

impl Scheduler {
    /// Nodes besides this one that are to have what it made before its end is told, and what that
    /// is: one number for all of an attempt.
    fn to_share(&self, spec: &wire::Spec, real: bool, outcome: &Outcome) -> CopyState {
        let mut shared = CopyState { uploaded: is_upload(spec), ..CopyState::default() };
        if !outcome.is_done() || self.options.mutant == Some(Mutant::EndReportedBeforeCopy) {
            return shared;
        }
        let sizes = (0..).zip(&outcome.output_sizes);
        for ((output, &size_bytes), declared) in sizes.zip(&spec.outputs) {
            let Stay { keep, share } = Stay::of_output(declared, shared.uploaded);
            let copies = Stay { keep, share }.copies(self.homes.copies());
            if copies > 1 && (size_bytes > 0 || real) {
                shared.wanted = shared.wanted.max(copies as usize - 1);
                shared.outputs.push(wire::TransferredOutput {
                    output,
                    size_bytes,
                    keep,
                    real,
                    share,
                });
            }
        }
        shared
    }

    /// An attempt has ended here. What came of it is told at once, or when others have what it
    /// made; `None`: then it is as if it still ran.
    pub(crate) fn share_first(
        &mut self,
        now: Time,
        made: AttemptKey,
        (spec, real): (&wire::Spec, bool),
        ended: UnreportedEnd,
        out: &mut Out,
    ) -> Option<UnreportedEnd> {
        let mut shared = self.to_share(spec, real, &ended.outcome);
        if shared.wanted == 0 {
            return Some(ended);
        }
        // The same attempt may have ended before, here or elsewhere, and a power cut took that.
        let before = self.data.output_copies.take(&made).unwrap_or_default();
        (shared.others, shared.end) = (before.others, Some(ended));
        self.look_after(now, made, shared, out)
    }

    /// Asks those that are to have it. Its end, if that may be told now.
    fn look_after(
        &mut self,
        now: Time,
        made: AttemptKey,
        mut shared: CopyState,
        out: &mut Out,
    ) -> Option<UnreportedEnd> {
        shared.outputs.retain(|output| {
            let (task, attempt) = made;
            self.data.objects.is_made(&ObjectId { task, attempt, output: output.output })
        });
        if shared.outputs.is_empty() {
            return shared.end.take();
        }
        shared.drop_silent(now);
        shared.found = false;
        // What is told of already goes elsewhere in order when this node leaves.
        let lacks = shared.lacks();
        let may_ask = lacks && (shared.end.is_some() || self.drain.is_none());
        if may_ask && shared.asked.is_empty() && !self.data.output_copies.may_begin(&shared) {
            shared.due = Some(now + HANDOVER_PAUSE); // It is not its turn yet.
            self.data.output_copies.put(made, shared);
            return None;
        }
        match may_ask {
            true => self.request_room(now, made, &mut shared, out),
            false => shared.asked.clear(), // Whoever is asked may have it, too.
        }
        let next = shared.asked.values().map(|asked| asked.until).min();
        let end = if shared.asked.is_empty() { shared.end.take() } else { None };
        // Some day there may be a node that has room.
        shared.due = next;
        // A node that is alone looks again when another one comes.
        let is_alone = self.homes.staying().all(|node| node == self.options.me);
        if next.is_none() && lacks && !is_alone {
            let waits = COPY_RETURN_TIMEOUT.0 << shared.rounds.min(COPY_DOUBLINGS_MAX);
            shared.due = Some(now + Span(waits));
            shared.rounds += 1;
            shared.refused.clear();
            shared.silent.clear();
        }
        self.data.output_copies.put(made, shared);
        end
    }

    fn request_room(&mut self, now: Time, made: AttemptKey, shared: &mut CopyState, out: &mut Out) {
        let me = self.options.me;
        let bytes = shared.outputs.iter().fold(0, |sum: u64, it| sum.saturating_add(it.size_bytes));
        let until = now + self.locate_timeout(bytes);
        let mut ask: Vec<NodeId> = Vec::new();
        for (&node, asked) in shared.asked.iter_mut().filter(|(_, asked)| asked.until <= now) {
            *asked = RoomRequest { tries: asked.tries + 1, until };
            ask.push(node);
        }
        // Who joins, and was never there yet, answers nothing.
        let has_come = |node: &NodeId| self.homes.incarnation_of(*node) != Incarnation(0);
        let staying: BTreeSet<NodeId> = self.homes.staying().filter(has_come).collect();
        let mut others = self.in_turn(made, shared.uploaded);
        others.retain(|node| *node != me && staying.contains(node));
        let lost = shared.lost.take().filter(|lost| others.contains(lost));
        others.sort_by_key(|node| shared.silent.contains(node));
        for node in lost.into_iter().chain(others) {
            if shared.others.len() + shared.asked.len() >= shared.wanted {
                break;
            }
            let knows = |nodes: &BTreeSet<NodeId>| nodes.contains(&node);
            // Where no map ever calls it dead, nobody waits for one that is silent.
            let is_away = knows(&shared.silent) && !self.homes.moves();
            let is_new = !knows(&shared.others) && !knows(&shared.refused) && !is_away;
            if is_new && !shared.asked.contains_key(&node) {
                shared.silent.remove(&node);
                shared.asked.insert(node, RoomRequest { tries: 1, until });
                ask.push(node);
            }
        }
        let (task, attempt) = (made.0, made.1.0);
        let transferred = wire::AttemptOutputs {
            job: task.job.0,
            task: task.local.0,
            attempt,
            outputs: shared.outputs.clone(),
            replicas: shared.wanted as u32 + 1,
        };
        for node in ask {
            send_hand_over(
                node,
                TransferStage::Replicate,
                (me, node),
                vec![transferred.clone()],
                out,
            );
        }
    }

    /// All nodes, from another one on for each task: whoever asks for room begins with the same.
    /// What was uploaded its client has put on some, which come first.
    fn in_turn(&self, made: AttemptKey, uploaded: bool) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.homes.members().collect();
        let turn = made.0.local.0 as usize % nodes.len().max(1);
        nodes.rotate_left(turn);
        nodes.sort_by_key(|&node| !(uploaded && self.homes.has_replica(node, made.0.partition())));
        nodes
    }

    /// What an earlier life of this node has kept others are to have as well. Its maker asks before
    /// those whom it asked then: they hear of it from that one.
    pub(crate) fn share_found(&mut self, now: Time, made: &BTreeSet<AttemptKey>) {
        self.share_what_is_here(now, made, false);
    }

    /// Of these tasks the client's files lie here: what became of them others are to have, too.
    pub(crate) fn share_uploads(&mut self, now: Time, tasks: &[TaskId]) {
        let of_task = |&task: &TaskId| self.data.objects.attempts_of(task);
        let made: BTreeSet<AttemptKey> = tasks.iter().flat_map(of_task).collect();
        self.share_what_is_here(now, &made, true);
    }

    fn share_what_is_here(&mut self, now: Time, made: &BTreeSet<AttemptKey>, uploaded: bool) {
        if self.options.mutant == Some(Mutant::FoundOutputsUnchecked) {
            return;
        }
        for &made in made {
            let mut shared = self.to_share_of(made, uploaded);
            if shared.wanted == 0 {
                continue;
            }
            let me = self.options.me;
            let was_asked = match shared.uploaded {
                true => self.homes.home_of(made.0) != me, // Its home makes it.
                false => {
                    self.in_turn(made, false).iter().take(shared.wanted).any(|&node| node == me)
                }
            };
            let patience =
                if was_asked { Span(2 * COPY_RETURN_TIMEOUT.0) } else { COPY_RETURN_TIMEOUT };
            (shared.due, shared.found) = (Some(now + patience), true);
            self.data.output_copies.found(made, shared);
        }
    }

    /// What lies here of an attempt and is to lie on others as well; `uploaded`: all of it is.
    fn to_share_of(&self, made: AttemptKey, uploaded: bool) -> CopyState {
        let copies = self.homes.copies();
        let of = |output: &wire::TransferredOutput| match uploaded {
            true => copies,
            false => Stay::from(output).copies(copies),
        };
        let mut outputs = self.data.objects.outputs_of(made);
        outputs.retain(|output| of(output) > 1);
        let wanted = outputs.iter().map(of).max().map_or(0, |copies| copies as usize - 1);
        let uploaded = uploaded || outputs.iter().any(|output| output.share == Some(0));
        CopyState { outputs, wanted, meant: wanted, uploaded, ..CopyState::default() }
    }

    /// A node that left had this, and it lies here instead: others are to have it as well.
    pub(crate) fn share_taken(&mut self, made: AttemptKey) {
        let shared = self.to_share_of(made, false);
        if shared.wanted > 0 {
            self.data.output_copies.found(made, CopyState { due: Some(Time::ZERO), ..shared });
        }
    }

    /// Looks at those whose time has come.
    pub(crate) fn copy_outputs(&mut self, now: Time, out: &mut Out) {
        for _ in 0..OBJECTS_PER_MESSAGE_MAX {
            let first = self.data.output_copies.due.first().filter(|(at, _)| *at <= now);
            let Some(&(_, made)) = first else { return };
            let shared = self.data.output_copies.take(&made).expect("what is due is there");
            if let Some(ended) = self.look_after(now, made, shared, out) {
                self.report_held_back(now, made, ended, out);
            }
        }
    }

    /// All of it is here: its maker may tell of the end.
    pub(crate) fn add_copy_for(
        &mut self,
        maker: NodeId,
        transferred: wire::AttemptOutputs,
        out: &mut Out,
    ) {
        let (made, me) = (attempt_key(&transferred), self.options.me);
        // However small it is, its home can name this node.
        if let Some(home) = self.homes.owner(made.0.partition()) {
            let here =
                objects_of(&transferred).map(|(object, it)| wire_object(object, it.size_bytes));
            out.copies.entry(home).or_default().added.extend(here);
        }
        let mut shared = self.data.output_copies.take(&made).unwrap_or_default();
        shared.others.insert(maker);
        if shared.end.is_none() {
            shared.outputs.clone_from(&transferred.outputs);
            // Which others have it its maker knows, as long as it is there. Where this node has
            // asked for itself it goes on: two that ask each other would leave it to one another.
            shared.wanted = shared.wanted.max(1);
            shared.meant = shared.meant.max(transferred.replicas.saturating_sub(1) as usize);
        }
        shared.due = Some(Time::ZERO); // It may have made it as well, and wait for this.
        self.data.output_copies.put(made, shared);
        let bare = wire::AttemptOutputs { outputs: Vec::new(), ..transferred };
        send_hand_over(maker, TransferStage::Replicated, (maker, me), vec![bare], out);
    }

    /// What one that was asked says.
    pub(crate) fn on_replication_answer(
        &mut self,
        now: Time,
        (from, stage): (NodeId, TransferStage),
        said: &[wire::AttemptOutputs],
        out: &mut Out,
    ) {
        for transferred in said {
            let made = attempt_key(transferred);
            if !self.data.output_copies.has_asked(&made, from) {
                continue; // It was heard before.
            }
            let mut shared = self.data.output_copies.take(&made).expect("it has asked");
            let asked = shared.asked.remove(&from).expect("looked at above");
            match stage {
                TransferStage::Replicated => {
                    shared.others.insert(from);
                }
                TransferStage::Replicating => {
                    shared.asked.insert(from, RoomRequest { tries: 1, ..asked });
                }
                _ => {
                    shared.refused.insert(from);
                }
            }
            if let Some(ended) = self.look_after(now, made, shared, out) {
                self.report_held_back(now, made, ended, out);
            }
        }
    }

    /// There was an older map.
    pub(crate) fn look_for_takers(&mut self, now: Time, older: &Homes) {
        let blind = self.options.mutant == Some(Mutant::NewNodesGetNoCopies);
        if self.data.output_copies.shared.is_empty() || blind {
            return;
        }
        let homes = &self.homes;
        // One that was let in and has never been there yet answers nothing.
        let there = |homes: &Homes| -> BTreeSet<NodeId> {
            let has_come = |node: &NodeId| homes.incarnation_of(*node) != Incarnation(0);
            homes.staying().filter(has_come).collect()
        };
        let before = there(older);
        let a_node_came = there(homes).iter().any(|node| !before.contains(node));
        self.data.output_copies.look_for_takers(now, |node| !homes.is_gone(node), a_node_came);
    }
    pub(crate) fn lacking_copies(&self) -> u64 {
        let me = self.options.me;
        if self.options.mutant == Some(Mutant::LackingUnreported) {
            return 0;
        }
        self.data.output_copies.lacking(self.homes.staying().filter(|&node| node != me).count())
    }
}

#[cfg(test)]
mod tests;

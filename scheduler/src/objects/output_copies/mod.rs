//! Replication of outputs: those that a workflow keeps, uploaded files, and outputs that ask for
//! it. The end of an attempt is reported when other nodes have its outputs. So no node that fails
//! afterwards takes a result with it.
//!
//! Each node with the outputs knows others that have them. When one of these fails, it gives the
//! outputs to another node; the failed node may return with them, and is asked first. None of this
//! is recorded. A restarted node asks the nodes that come first by the number of the task, as the
//! maker did. So it finds the nodes with the outputs, and nodes without them get them.
//!
//! A leaving node stays until enough other nodes have its outputs, see `leaving.rs`.

mod leaving;

use std::collections::{BTreeMap, BTreeSet};

use proto::limits::COPY_RETURN_TIMEOUT;
use proto::wire::TransferStage;
use proto::work::{Outcome, Stay};
use proto::{Incarnation, JobId, NodeId, ObjectId, Span, TaskId, Time, wire};

use crate::holder::task::is_upload;
use crate::limits::{COPIES_FIRST_MAX, OBJECTS_PER_MESSAGE_MAX};
use crate::objects::data::{Reads, wire_object};
use crate::objects::drain::AttemptKey;
use crate::objects::limits::{HANDOVER_PAUSE, HANDOVER_TRIES_MAX};
use crate::objects::output_transfer::{attempt_key, objects_of, send_output_transfer};
use crate::output::Out;
use crate::{Homes, Mutant, Scheduler};

/// The pause before a node without space is asked again doubles at most this often.
const COPY_DOUBLINGS_MAX: u32 = 6;

/// The end of an attempt that was not reported yet.
#[derive(Debug)]
pub(crate) struct UnreportedEnd {
    pub(crate) at: Time,
    pub(crate) started: Time,
    pub(crate) reads: Reads,
    pub(crate) outcome: Box<Outcome>,
}

#[derive(Clone, Copy, Debug)]
struct RoomRequest {
    tries: u32,
    /// The time at which the node is asked again.
    until: Time,
}

/// The replication of the outputs of one attempt.
#[derive(Debug, Default)]
struct CopyState {
    outputs: Vec<wire::TransferredOutput>,
    /// The number of other nodes that are to have the outputs; `others` have them.
    wanted: usize,
    /// The number that the maker wanted. `wanted` is at least this once a node that had the outputs
    /// is gone.
    meant: usize,
    others: BTreeSet<NodeId>,
    asked: BTreeMap<NodeId, RoomRequest>,
    /// Nodes without space; and nodes that did not answer, which are asked after all others.
    refused: BTreeSet<NodeId>,
    silent: BTreeSet<NodeId>,
    /// A failed node that may return with the outputs.
    lost: Option<NodeId>,
    end: Option<UnreportedEnd>,
    /// How often no node had space.
    rounds: u32,
    /// In the last round some node had no space, and none was left to ask.
    lacks_space: bool,
    /// It begins when fewer attempts wait for answers.
    in_line: bool,
    /// The time of the next check.
    due: Option<Time>,
    /// The outputs were here when this node started, and no node was asked yet.
    found: bool,
    /// The client has uploaded it to the replicas of its partition: these nodes come first.
    uploaded: bool,
}

impl CopyState {
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
    /// Attempts that begin when fewer wait for answers: first those with an end held back.
    line: BTreeSet<(bool, AttemptKey)>,
    /// The number of attempts that wait for answers.
    under_way: usize,
    /// The number of attempts for which the nodes that were asked last had no space.
    without_space: usize,
    /// Set while this node leaves the cluster.
    leaving: Option<leaving::Changes>,
}

impl OutputCopies {
    pub(crate) fn deadline(&self) -> Option<Time> {
        match self.first_in_line() {
            Some(_) => Some(Time::ZERO),
            None => self.due.first().map(|&(at, _)| at),
        }
    }
    /// The first attempt in line, if it may begin.
    fn first_in_line(&self) -> Option<AttemptKey> {
        let &(is_reported, made) = self.line.first()?;
        self.may_begin(is_reported).then_some(made)
    }
    /// The next attempt to be looked after.
    fn next(&self, now: Time) -> Option<AttemptKey> {
        let due = self.due.first().filter(|(at, _)| *at <= now);
        due.map(|&(_, made)| made).or_else(|| self.first_in_line())
    }
    /// Whether `COPIES_FIRST_MAX` attempts wait for answers.
    pub(crate) fn is_full(&self) -> bool {
        self.under_way >= COPIES_FIRST_MAX
    }
    /// Attempts with a reported end leave room for tasks with an end held back: there may be very
    /// many of the former.
    fn may_begin(&self, is_reported: bool) -> bool {
        self.under_way < if is_reported { COPIES_FIRST_MAX / 2 } else { COPIES_FIRST_MAX }
    }

    fn take(&mut self, made: &AttemptKey) -> Option<CopyState> {
        let mut shared = self.shared.remove(made)?;
        self.note_change(made);
        self.under_way -= usize::from(!shared.asked.is_empty());
        self.without_space -= usize::from(shared.lacks_space);
        if std::mem::take(&mut shared.in_line) {
            self.line.remove(&(shared.end.is_none(), *made));
        }
        if let Some(due) = shared.due.take() {
            self.due.remove(&(due, *made));
        }
        Some(shared)
    }
    fn put(&mut self, made: AttemptKey, shared: CopyState) {
        self.under_way += usize::from(!shared.asked.is_empty());
        self.without_space += usize::from(shared.lacks_space);
        if shared.in_line {
            self.line.insert((shared.end.is_none(), made));
        }
        self.due.extend(shared.due.map(|due| (due, made)));
        let before = self.shared.insert(made, shared);
        assert!(before.is_none(), "{made:?} is looked after twice");
    }
    fn has_asked(&self, made: &AttemptKey, node: NodeId) -> bool {
        self.shared.get(made).is_some_and(|shared| shared.asked.contains_key(&node))
    }

    /// Whether the end of the attempt waits until other nodes have its outputs.
    pub(crate) fn holds_back(&self, made: &AttemptKey) -> bool {
        self.shared.get(made).is_some_and(|shared| shared.end.is_some())
    }

    /// When an attempt ended, if its end is not reported yet.
    pub(crate) fn ended_at(&self, made: &AttemptKey) -> Option<Time> {
        self.shared.get(made)?.end.as_ref().map(|end| end.at)
    }

    /// An attempt without a reported end is not wanted. Its outputs stay: in a power cut its home
    /// may have lost that the same attempt had ended before, here or on another node.
    pub(crate) fn forget(&mut self, made: &AttemptKey) {
        self.take(made);
    }
    /// Forgets the attempts of the job that have no kept output.
    pub(crate) fn forget_job(&mut self, job: JobId) {
        let of_job = self.shared.iter().filter(|((task, _), _)| task.job == job);
        let goes = |shared: &CopyState| shared.outputs.iter().all(|output| !output.keep);
        let gone: Vec<AttemptKey> =
            of_job.filter(|(_, shared)| goes(shared)).map(|(&made, _)| made).collect();
        for made in gone {
            self.take(&made);
        }
    }

    /// The outputs are here since an earlier incarnation of this node.
    fn found(&mut self, made: AttemptKey, shared: CopyState) {
        if !self.shared.contains_key(&made) {
            self.put(made, shared);
        }
    }

    /// The map has changed: a failed node may be back with its outputs. `lacking`: another node may
    /// have space for these now.
    fn look_for_takers(
        &mut self,
        now: Time,
        is_there: impl Fn(NodeId) -> bool,
        lacking: &BTreeSet<AttemptKey>,
    ) {
        let may_ask = |made: &AttemptKey, shared: &CopyState| match shared.lost {
            Some(lost) if is_there(lost) => true,
            _ => shared.asked.is_empty() && !shared.found && lacking.contains(made),
        };
        let found = self.shared.iter().filter(|(made, shared)| may_ask(made, shared));
        let found: Vec<AttemptKey> = found.map(|(&made, _)| made).collect();
        for made in found {
            let shared = self.take(&made).expect("found above");
            self.put(made, CopyState { due: Some(now), rounds: 0, ..shared });
        }
    }

    /// The number of attempts that have fewer replicas than they should, as far as there are nodes.
    fn lacking(&self, others: usize) -> u64 {
        let lacks = |shared: &&CopyState| {
            shared.end.is_none() && shared.others.len() < shared.wanted.min(others)
        };
        self.shared.values().filter(lacks).count() as u64
    }

    /// A node is gone: the outputs that it had get new replicas.
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
                // The maker may have gone before there were nodes enough for all that it wanted.
                shared.wanted = shared.wanted.max(shared.meant);
            }
            let waits = shared.end.is_none() && shared.asked.is_empty();
            shared.due = Some(if waits { now + COPY_RETURN_TIMEOUT } else { now });
            self.put(made, shared);
        }
    }
}

impl Scheduler {
    /// The outputs to be replicated before the end is reported, and the number of other nodes: one
    /// number for the whole attempt.
    fn to_share(&self, spec: &wire::Spec, real: bool, outcome: &Outcome) -> CopyState {
        let mut shared = CopyState { uploaded: is_upload(spec), ..CopyState::default() };
        if !outcome.is_done() || self.options.mutant == Some(Mutant::EndReportedBeforeCopy) {
            return shared;
        }
        let sizes = (0..).zip(&outcome.output_sizes);
        for ((output, &size_bytes), declared) in sizes.zip(&spec.outputs) {
            let Stay { keep, share } = Stay::of_output(declared, shared.uploaded);
            let copies = Stay { keep, share }.copies(self.routing.homes().copies());
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

    /// An attempt has ended here. Returns the end if it can be reported at once. `None`: other
    /// nodes must get the outputs first; until then the attempt counts as running.
    pub(crate) fn share_first(
        &mut self,
        now: Time,
        made: AttemptKey,
        (spec, real): (&wire::Spec, bool),
        ended: UnreportedEnd,
        out: &mut Out,
    ) -> Option<UnreportedEnd> {
        if ended.outcome.output_sizes.is_empty() {
            return Some(ended);
        }
        let mut shared = self.to_share(spec, real, &ended.outcome);
        if shared.wanted == 0 {
            return Some(ended);
        }
        // The same attempt may have ended before, here or on another node, and a power cut lost
        // that.
        let before = self.objects.output_copies.take(&made).unwrap_or_default();
        (shared.others, shared.end) = (before.others, Some(ended));
        self.look_after(now, made, shared, out)
    }

    /// Asks nodes to take the outputs. Returns the end if it can be reported now.
    fn look_after(
        &mut self,
        now: Time,
        made: AttemptKey,
        mut shared: CopyState,
        out: &mut Out,
    ) -> Option<UnreportedEnd> {
        shared.outputs.retain(|output| {
            let (task, attempt) = made;
            self.objects.table.is_made(&ObjectId { task, attempt, output: output.output })
        });
        if shared.outputs.is_empty() {
            return shared.end.take();
        }
        shared.drop_silent(now);
        shared.found = false;
        let lacks = self.lacks(&shared);
        let may_begin = self.objects.output_copies.may_begin(shared.end.is_none());
        if lacks && shared.asked.is_empty() && !may_begin {
            shared.in_line = true;
            self.objects.output_copies.put(made, shared);
            return None;
        }
        shared.lacks_space = false;
        match lacks {
            true => self.request_room(now, made, &mut shared, out),
            false => shared.asked.clear(), // Nodes that were asked may get it too.
        }
        let next = shared.asked.values().map(|asked| asked.until).min();
        let end = if shared.asked.is_empty() { shared.end.take() } else { None };
        // A leaving node wants more copies than the maker, once the end is reported.
        let wants_more = !lacks && end.is_some() && self.lacks(&shared);
        // A node may have space later.
        shared.due = if wants_more { Some(now) } else { next };
        // A node that is alone looks again when another one joins.
        let is_alone = self.routing.homes().staying().all(|node| node == self.options.me);
        if next.is_none() && lacks && !is_alone {
            let pause = COPY_RETURN_TIMEOUT.doubled_times(shared.rounds.min(COPY_DOUBLINGS_MAX));
            let leaves = self.objects.output_copies.is_leaving();
            shared.due = Some(now + if leaves { HANDOVER_PAUSE } else { pause });
            shared.rounds += 1;
            shared.lacks_space = !shared.refused.is_empty();
            shared.refused.clear();
            shared.silent.clear();
        }
        self.objects.output_copies.put(made, shared);
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
        let takers: BTreeSet<NodeId> = self.takers().collect();
        let mut others = self.in_turn(made, shared.uploaded);
        others.retain(|node| takers.contains(node));
        let lost = shared.lost.take().filter(|lost| others.contains(lost));
        others.sort_by_key(|node| shared.silent.contains(node));
        let lacking = self.wanted(shared).saturating_sub(self.present(shared));
        for node in lost.into_iter().chain(others) {
            if shared.asked.len() >= lacking {
                break;
            }
            let knows = |nodes: &BTreeSet<NodeId>| nodes.contains(&node);
            // Where no map ever declares a node failed, a silent node is not waited for.
            let is_away = knows(&shared.silent) && !self.routing.homes().moves();
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
            replicas: shared.total(self.objects.output_copies.is_leaving()) as u32,
        };
        for node in ask {
            send_output_transfer(
                node,
                TransferStage::Replicate,
                (me, node),
                vec![transferred.clone()],
                out,
            );
        }
    }

    /// All nodes, beginning at another one for each task, in the same order on all nodes. For an
    /// upload the replicas of the partition come first: the client has put it there.
    pub(crate) fn in_turn(&self, made: AttemptKey, uploaded: bool) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.routing.homes().members().collect();
        let turn = made.0.local.0 as usize % nodes.len().max(1);
        nodes.rotate_left(turn);
        nodes.sort_by_key(|&node| {
            !(uploaded && self.routing.homes().has_replica(node, made.0.partition()))
        });
        nodes
    }

    /// Outputs that an earlier incarnation of this node kept must be on other nodes too. Their
    /// maker asks earlier than the nodes that it had asked: these learn of it from the maker.
    pub(crate) fn share_found(&mut self, now: Time, made: &BTreeSet<AttemptKey>) {
        self.share_what_is_here(now, made, false);
    }

    /// The client's files of these tasks are here: the outputs made of them are replicated too.
    pub(crate) fn share_uploads(&mut self, now: Time, tasks: &[TaskId]) {
        let of_task = |&task: &TaskId| self.objects.table.attempts_of(task);
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
                true => self.routing.homes().home_of(made.0) != me, // Its home makes it.
                false => {
                    self.in_turn(made, false).iter().take(shared.wanted).any(|&node| node == me)
                }
            };
            let patience =
                if was_asked { Span(2 * COPY_RETURN_TIMEOUT.0) } else { COPY_RETURN_TIMEOUT };
            (shared.due, shared.found) = (Some(now + patience), true);
            self.objects.output_copies.found(made, shared);
        }
    }

    /// What lies here of an attempt and is to lie on others as well; `uploaded`: so are outputs
    /// that do not say on how many nodes.
    fn to_share_of(&self, made: AttemptKey, uploaded: bool) -> CopyState {
        let copies = self.routing.homes().copies();
        let of = |output: &wire::TransferredOutput| match output.share {
            None if uploaded => copies,
            _ => Stay::from(output).copies(copies),
        };
        let mut outputs = self.objects.table.outputs_of(made);
        outputs.retain(|output| of(output) > 1);
        let wanted = outputs.iter().map(of).max().map_or(0, |copies| copies as usize - 1);
        let uploaded = uploaded || outputs.iter().any(|output| output.share == Some(0));
        CopyState { outputs, wanted, meant: wanted, uploaded, ..CopyState::default() }
    }

    /// The outputs of a node that left are here instead: they are replicated too.
    pub(crate) fn share_taken(&mut self, made: AttemptKey) {
        let shared = self.to_share_of(made, false);
        if shared.wanted > 0 {
            self.objects.output_copies.found(made, CopyState { due: Some(Time::ZERO), ..shared });
        }
    }

    /// Handles the attempts that are due.
    pub(crate) fn copy_outputs(&mut self, now: Time, out: &mut Out) {
        for _ in 0..OBJECTS_PER_MESSAGE_MAX {
            let Some(made) = self.objects.output_copies.next(now) else { return };
            let shared = self.objects.output_copies.take(&made).expect("what is next is there");
            if let Some(ended) = self.look_after(now, made, shared, out) {
                self.report_held_back(now, made, ended, out);
            }
        }
    }

    /// All outputs are here: the maker may report the end.
    pub(crate) fn add_copy_for(
        &mut self,
        maker: NodeId,
        transferred: wire::AttemptOutputs,
        out: &mut Out,
    ) {
        let (made, me) = (attempt_key(&transferred), self.options.me);
        // However small the outputs are, their home must be able to name this node.
        if let Some(home) = self.routing.homes().owner(made.0.partition()) {
            let here =
                objects_of(&transferred).map(|(object, it)| wire_object(object, it.size_bytes));
            out.copies.entry(home).or_default().added.extend(here);
        }
        let mut shared = self.objects.output_copies.take(&made).unwrap_or_default();
        shared.others.insert(maker);
        if shared.end.is_none() {
            shared.outputs.clone_from(&transferred.outputs);
            // While the maker lives, it knows the other nodes. If this node has asked for itself,
            // it continues: two nodes that ask each other would leave the work to one another.
            shared.wanted = shared.wanted.max(1);
            shared.meant = shared.meant.max(transferred.replicas.saturating_sub(1) as usize);
        }
        shared.due = Some(Time::ZERO); // This node may have made it too, and wait for this.
        self.objects.output_copies.put(made, shared);
        let bare = wire::AttemptOutputs { outputs: Vec::new(), ..transferred };
        send_output_transfer(maker, TransferStage::Replicated, (maker, me), vec![bare], out);
    }

    /// A node that was asked answers.
    pub(crate) fn on_replication_answer(
        &mut self,
        now: Time,
        (from, stage): (NodeId, TransferStage),
        said: &[wire::AttemptOutputs],
        out: &mut Out,
    ) {
        for transferred in said {
            let made = attempt_key(transferred);
            if !self.objects.output_copies.has_asked(&made, from) {
                continue; // A repeated answer.
            }
            let mut shared = self.objects.output_copies.take(&made).expect("it has asked");
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

    /// The map has changed; `older` is the one before.
    pub(crate) fn look_for_takers(&mut self, now: Time, older: &Homes) {
        let blind = self.options.mutant == Some(Mutant::NewNodesGetNoCopies);
        if self.objects.output_copies.shared.is_empty() || blind {
            return;
        }
        // A member that was admitted and has never started does not answer.
        let there = |homes: &Homes| -> BTreeSet<NodeId> {
            let has_come = |node: &NodeId| homes.incarnation_of(*node) != Incarnation(0);
            homes.staying().filter(has_come).collect()
        };
        let before = there(older);
        let a_node_came = there(self.routing.homes()).iter().any(|node| !before.contains(node));
        let leaves = self.objects.output_copies.is_leaving();
        let lacking: BTreeSet<AttemptKey> = match a_node_came || leaves {
            true => self.attempts_that_lack().collect(),
            false => BTreeSet::new(),
        };
        let is_there = |node| !self.routing.homes().is_gone(node);
        self.objects.output_copies.look_for_takers(now, is_there, &lacking);
    }
    pub(crate) fn lacking_copies(&self) -> u64 {
        let me = self.options.me;
        if self.options.mutant == Some(Mutant::LackingUnreported) {
            return 0;
        }
        self.objects
            .output_copies
            .lacking(self.routing.homes().staying().filter(|&node| node != me).count())
    }
}

#[cfg(test)]
mod tests;

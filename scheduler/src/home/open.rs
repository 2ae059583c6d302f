//! Open jobs at the homes of their tasks: chunks that wait for weight, edges to parents in other
//! partitions, releases, and clients that watch ends.
//!
//! A client's chunk is answered once its part holds weight, the chunk is synced, and the homes of
//! all parents have stored its edges. So a release that follows the answer finds the readers.

use std::collections::BTreeMap;

use proto::limits::WATCHERS_MAX;
use proto::wire::message::Body;
use proto::wire::open_request::What;
use proto::wire::{Verdict, response};
use proto::{ClientId, JobId, LocalId, PartitionId, Time, wire};

use crate::home::Home;
use crate::home::jobs::open::{closed_text, not_open_text};
use crate::home::ledger::open::{LateKey, Standing};
use crate::home::ledger::{Job, Ledger};
use crate::home::requests::{busy, refused, unknown_job, wrong_home};
use crate::limits::REPEAT_DOUBLINGS_MAX;
use crate::output::{Answer, Out};
use crate::{Mutant, Scheduler};
use proto::Span;

/// A part asks the job's home again for weight after this time.
const JOIN_REPEAT: Span = Span::from_secs(1);
/// The maximum number of chunks, and of messages about edges, that wait in a part for its weight.
const JOIN_CHUNKS_WAITING_MAX: usize = 256;
/// The maximum number of ends in one answer.
const ENDS_PER_ANSWER_MAX: usize = 1_000;

/// A request of a client that is answered later.
type Asker = (ClientId, u64);
type PartKey = (JobId, PartitionId);
type Answered = Result<response::Body, wire::Error>;

/// The bytes of texts and values after which an answer has no further ends.
const ENDS_BYTES_PER_ANSWER: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct OpenJobs {
    /// Parts that ask for weight.
    joins: BTreeMap<PartKey, PendingJoin>,
    /// Stored chunks with edges that other homes have not stored.
    unanswered: BTreeMap<(JobId, PartitionId, u32), Vec<Asker>>,
    watchers: BTreeMap<PartKey, Vec<EndsWatcher>>,
    /// Some watcher may get another answer at once.
    has_more_ends: bool,
}

#[derive(Debug)]
struct PendingJoin {
    /// When the job's home is asked again.
    at: Time,
    tries: u32,
    chunks: Vec<(Asker, wire::Chunk)>,
    late: Vec<wire::LateEdges>,
}

#[derive(Debug)]
struct EndsWatcher {
    asker: Asker,
    next: u64,
    /// It has received an answer.
    is_answered: bool,
}

impl OpenJobs {
    pub(crate) fn forget_client(&mut self, client: ClientId) {
        for join in self.joins.values_mut() {
            join.chunks.retain(|((asker, _), _)| *asker != client);
        }
        for askers in self.unanswered.values_mut() {
            askers.retain(|(asker, _)| *asker != client);
        }
        self.watchers.retain(|_, watchers| {
            watchers.retain(|watcher| watcher.asker.0 != client);
            !watchers.is_empty()
        });
    }

    fn join(&mut self, now: Time, part: PartKey) -> &mut PendingJoin {
        let fresh = PendingJoin { at: now, tries: 0, chunks: Vec::new(), late: Vec::new() };
        self.joins.entry(part).or_insert(fresh)
    }

    /// Another node is home of the partition: clients must ask there.
    pub(crate) fn give_up(&mut self, partition: PartitionId, out: &mut Out) {
        let mut askers = Vec::new();
        self.joins.retain(|part, join| {
            let goes = part.1 == partition;
            askers.extend(join.chunks.iter().filter(|_| goes).map(|(asker, _)| *asker));
            !goes
        });
        self.unanswered.retain(|key, waiting| {
            let goes = key.1 == partition;
            askers.extend(waiting.iter().filter(|_| goes));
            !goes
        });
        self.watchers.retain(|part, watchers| {
            let goes = part.1 == partition;
            askers.extend(watchers.iter().filter(|_| goes).map(|watcher| watcher.asker));
            !goes
        });
        askers.into_iter().for_each(|asker| answer(asker, Err(wrong_home(partition.0)), out));
    }
}

fn answer((client, id): Asker, answered: Answered, out: &mut Out) {
    let (body, error) = match answered {
        Ok(body) => (Some(body), None),
        Err(error) => (None, Some(error)),
    };
    let response = wire::Response { id, error, body, ..Default::default() };
    out.answers.push(Answer { client, response });
}

fn accepted() -> Answered {
    Ok(response::Body::Accepted(wire::Accepted {}))
}

impl Home {
    fn answer_when_stored(
        &mut self,
        chunk: (JobId, PartitionId, u32),
        asker: Asker,
    ) -> Option<Answered> {
        let (job, partition, number) = chunk;
        if is_stored(&self.ledger, job, partition, number) {
            return Some(accepted());
        }
        let open_jobs = self.open_jobs.get_or_insert_default();
        let askers = open_jobs.unanswered.entry(chunk).or_default();
        if !askers.contains(&asker) {
            askers.push(asker);
        }
        None
    }

    fn take_join(&mut self, part: PartKey) -> Option<PendingJoin> {
        self.open_jobs.as_mut()?.joins.remove(&part)
    }

    /// The home of parents has stored the edges of a chunk.
    pub(crate) fn on_late_edges_kept(&mut self, kept: &wire::LateEdgesKept, out: &mut Out) {
        let (job, number) = (JobId(kept.job), kept.chunk);
        let partition = PartitionId(kept.child_partition);
        if self.ledger.late_edges_stored((job, partition, number, PartitionId(kept.partition))) {
            self.answer_stored((job, partition, number), out);
        }
    }

    fn answer_stored(&mut self, chunk: (JobId, PartitionId, u32), out: &mut Out) {
        let open_jobs = self.open_jobs.as_mut();
        let askers = open_jobs.and_then(|open_jobs| open_jobs.unanswered.remove(&chunk));
        for asker in askers.unwrap_or_default() {
            answer(asker, accepted(), out);
        }
    }

    /// When something about open jobs is due.
    pub(crate) fn next_of_open_jobs(&self) -> Option<Time> {
        if self.open_jobs.as_ref().is_some_and(|open_jobs| open_jobs.has_more_ends) {
            return Some(Time::ZERO);
        }
        let joins = self.open_jobs.iter().flat_map(|open_jobs| open_jobs.joins.values());
        let join = joins.map(|join| join.at).min();
        let late = self.ledger.next_late_send();
        join.into_iter().chain(late).min()
    }
}

impl Scheduler {
    /// Stores a chunk of an open job. `None`: the answer follows.
    pub(crate) fn append(
        &mut self,
        now: Time,
        asker: Asker,
        chunk: wire::Chunk,
        out: &mut Out,
    ) -> Option<Answered> {
        let (job, partition) = (JobId(chunk.job), PartitionId(chunk.partition));
        let number = chunk.number;
        if !self.routing.homes().is_mine(partition) {
            return Some(Err(wrong_home(partition.0)));
        }
        if self.home.ledger.has_chunk(job, partition, number) {
            return self.home.answer_when_stored((job, partition, number), asker);
        }
        if let Err(error) = self.check_chunk(&chunk) {
            return Some(Err(error));
        }
        match self.home.ledger.standing(job, partition) {
            Standing::Closed | Standing::Ended => return Some(Err(refused(closed_text(job.0)))),
            Standing::NotOpen => return Some(Err(refused(not_open_text(job.0)))),
            Standing::Member => {}
            Standing::Unknown if self.options.mutant == Some(Mutant::ChunkWithoutWeight) => {
                self.home.ledger.pretend_member(now, job, partition, out);
            }
            Standing::Unknown => {
                let join = self.home.open_jobs.get_or_insert_default().join(now, (job, partition));
                if join.chunks.len() >= JOIN_CHUNKS_WAITING_MAX {
                    return Some(Err(busy(format!("{partition} waits for the home of job {job}"))));
                }
                join.chunks.push((asker, chunk));
                return None;
            }
        }
        match self.home.ledger.accept_open_chunk(now, chunk, out) {
            Ok(()) => self.home.answer_when_stored((job, partition, number), asker),
            Err(error) => Some(Err(refused(error.to_string()))),
        }
    }

    /// A job is visible, has given weight to parts here, or is closed.
    pub(crate) fn on_visible(&mut self, now: Time, visible: &wire::Visible, out: &mut Out) {
        self.home.ledger.make_visible(now, visible, self.routing.homes(), out);
        self.on_joined(now, visible, out);
    }

    fn on_joined(&mut self, now: Time, visible: &wire::Visible, out: &mut Out) {
        let (Some(commit), Some(_)) = (&visible.commit, &self.home.open_jobs) else { return };
        for total in &commit.partitions {
            let part = (JobId(commit.job), PartitionId(total.partition));
            let Some(join) = self.home.take_join(part) else { continue };
            for (asker, chunk) in join.chunks {
                if let Some(answered) = self.append(now, asker, chunk, out) {
                    answer(asker, answered, out);
                }
            }
            join.late.into_iter().for_each(|late| self.on_late_edges(now, late, out));
        }
    }

    /// The job's home gives no weight: chunks are refused. Children that name a parent in this part
    /// are skipped, since there is none.
    pub(crate) fn on_join_refused(&mut self, refusal: &wire::JoinRefused, out: &mut Out) {
        let part = (JobId(refusal.job), PartitionId(refusal.partition));
        let Some(join) = self.home.take_join(part) else { return };
        let (code, text) = (refusal.code, refusal.text.clone());
        let error = wire::Error { code, text, ..Default::default() };
        for (asker, _) in join.chunks {
            answer(asker, Err(error.clone()), out);
        }
        for late in join.late {
            self.skip_late_children(&late, out);
        }
    }

    fn skip_late_children(&self, late: &wire::LateEdges, out: &mut Out) {
        let credit = |piece: &wire::Children| wire::Credit {
            job: late.job,
            parent: LocalId::new(PartitionId(late.partition), piece.index).0,
            node: self.options.me.0,
            verdict: Verdict::Failed as i32,
            child: piece.child.clone(),
            slot: piece.slot.clone(),
            output: piece.output.clone(),
            ..Default::default()
        };
        let credits = late.edges.iter().map(credit).collect();
        if let Some(home) = self.routing.homes().owner(PartitionId(late.child_partition)) {
            let credits = wire::Credits { credits, reconciled: false };
            out.reliable.push((home, Body::Credits(credits)));
        }
        self.confirm_late_edges(late, out);
    }

    fn confirm_late_edges(&self, late: &wire::LateEdges, out: &mut Out) {
        let &wire::LateEdges { job, partition, child_partition, chunk, .. } = late;
        let kept = wire::LateEdgesKept { job, partition, child_partition, chunk };
        if let Some(home) = self.routing.homes().owner(PartitionId(child_partition)) {
            out.reliable.push((home, Body::LateEdgesKept(kept)));
        }
    }

    /// Children in another partition name parents in this one.
    pub(crate) fn on_late_edges(&mut self, now: Time, late: wire::LateEdges, out: &mut Out) {
        let (job, partition) = (JobId(late.job), PartitionId(late.partition));
        let index_max = 1u64 << proto::id::INDEX_BITS;
        let is_sound = |piece: &wire::Children| {
            let edges = piece.child.len();
            piece.index < index_max && piece.slot.len() == edges && piece.output.len() == edges
        };
        if !self.routing.homes().is_mine(partition) || !late.edges.iter().all(is_sound) {
            return;
        }
        match self.home.ledger.standing(job, partition) {
            Standing::Unknown => {
                let join = self.home.open_jobs.get_or_insert_default().join(now, (job, partition));
                let same = |other: &wire::LateEdges| {
                    (other.child_partition, other.chunk) == (late.child_partition, late.chunk)
                };
                // Beyond the bound the sender repeats it.
                if !join.late.iter().any(same) && join.late.len() < JOIN_CHUNKS_WAITING_MAX {
                    join.late.push(late);
                }
            }
            Standing::Member | Standing::Closed => {
                self.confirm_late_edges(&late, out);
                self.home.ledger.store_late_edges(late, out);
            }
            Standing::Ended | Standing::NotOpen => self.confirm_late_edges(&late, out),
        }
    }

    /// Sends what is due to the homes of jobs and of parents, and to clients.
    pub(crate) fn tend_open_jobs(&mut self, now: Time, out: &mut Out) {
        let joins = self.home.open_jobs.iter_mut().flat_map(|open_jobs| &mut open_jobs.joins);
        for (&(JobId(job), PartitionId(partition)), join) in joins {
            if join.at <= now {
                join.at = now + JOIN_REPEAT.doubled_times(join.tries.min(REPEAT_DOUBLINGS_MAX));
                join.tries += 1;
                let home = self.routing.homes().job_home(JobId(job));
                out.reliable.push((home, Body::Join(wire::Join { job, partition })));
            }
        }
        while let Some((key, tries)) = self.home.ledger.next_late_edges(now) {
            self.send_late_edges(now, key, tries, out);
        }
        self.end_holds(out);
        self.send_ends(out);
    }

    fn send_late_edges(&mut self, now: Time, key: LateKey, tries: u32, out: &mut Out) {
        let (job, partition, number, parents) = key;
        let Some(late) = self.home.ledger.late_edges_of(key) else {
            if is_stored(&self.home.ledger, job, partition, number) {
                self.home.answer_stored((job, partition, number), out);
            }
            return;
        };
        if let Some(home) = self.routing.homes().active_owner(parents) {
            out.reliable.push((home, Body::LateEdges(late)));
        }
        self.home.ledger.plan_late_edges(now, key, tries);
    }

    /// Frees outputs that are not held any more, unless tasks still read them.
    fn end_holds(&mut self, out: &mut Out) {
        let freed = self.home.ledger.take_freed_holds();
        if freed.is_empty() {
            return;
        }
        let ended = |object: proto::ObjectId| wire::OutputReaders {
            job: object.task.job.0,
            task: object.task.local.0,
            attempt: object.attempt.0,
            output: object.output,
            readers: 1,
        };
        let outputs = freed.into_iter().map(ended).collect();
        self.on_readers_finished(&wire::ReadersFinished { outputs }, out);
    }

    pub(crate) fn on_open_request(
        &mut self,
        now: Time,
        request: wire::OpenRequest,
        out: &mut Out,
    ) -> Answered {
        let job = JobId(request.job);
        let is_home = self.routing.homes().job_home(job) == self.options.me;
        match request.what {
            Some(What::Reserve(_) | What::Close(_) | What::Sign(_)) if !is_home => {
                Err(wrong_home(u32::MAX))
            }
            Some(What::Reserve(ids)) => self.home.jobs.reserve(now, job.0, ids, out),
            Some(What::Sign(sign)) => self.home.jobs.on_life_sign(now, job, sign, out),
            Some(What::Close(_)) => self.home.jobs.close(now, job.0, self.routing.homes(), out),
            Some(What::Release(release)) => self.release(now, job, &release, out),
            Some(What::CountOpen(query)) => {
                let partition = PartitionId(query.partition);
                if !self.routing.homes().is_mine(partition) {
                    return Err(wrong_home(query.partition));
                }
                let (tasks, all) = self.home.ledger.tasks_of_part(job, partition);
                Ok(response::Body::OpenTasks(wire::OpenTasks { tasks, all }))
            }
            None => Err(refused("the request is of a kind this node does not know".to_owned())),
        }
    }

    fn release(
        &mut self,
        now: Time,
        job: JobId,
        release: &wire::ReleaseOutputs,
        out: &mut Out,
    ) -> Answered {
        let partition = PartitionId(release.partition);
        if !self.routing.homes().is_mine(partition) {
            return Err(wrong_home(release.partition));
        }
        match self.home.ledger.standing(job, partition) {
            Standing::Unknown => return Err(unknown_job(job.0)),
            Standing::NotOpen => return Err(refused(not_open_text(job.0))),
            Standing::Closed | Standing::Ended => return accepted(), // Nothing is held any more.
            Standing::Member => {}
        }
        let locals = release.locals.iter().map(|&local| LocalId(local));
        let here = locals.filter(|local| local.partition() == partition);
        let indices: Vec<u64> = here.map(LocalId::index).collect();
        let exists = |&index: &u64| {
            let task = proto::TaskId { job, local: LocalId::new(partition, index) };
            self.home.ledger.state(task).is_some()
        };
        if let Some(&absent) = indices.iter().find(|index| !exists(index)) {
            let local = LocalId::new(partition, absent);
            return Err(refused(format!("job {job} has no task {local}: nothing is released")));
        }
        self.home.ledger.release_outputs(now, job, partition, indices.into_iter(), out);
        accepted()
    }

    /// A client watches the ends of tasks in one partition.
    pub(crate) fn watch_ends(
        &mut self,
        asker: Asker,
        query: wire::EndsQuery,
        out: &mut Out,
    ) -> Result<(), wire::Error> {
        let partition = PartitionId(query.partition);
        if !self.routing.homes().is_mine(partition) {
            return Err(wrong_home(query.partition));
        }
        let part = (JobId(query.job), partition);
        match self.home.ledger.standing(part.0, partition) {
            Standing::NotOpen => return Err(refused(not_open_text(query.job))),
            Standing::Unknown => return Err(unknown_job(query.job)),
            Standing::Member | Standing::Closed | Standing::Ended => {}
        }
        let next = if query.term == self.term_of_ends(partition) { query.after } else { 0 };
        let open_jobs = self.home.open_jobs.get_or_insert_default();
        let watchers = open_jobs.watchers.entry(part).or_default();
        if watchers.len() >= WATCHERS_MAX {
            return Err(busy(format!("the ends of job {} are watched by too many", query.job)));
        }
        watchers.push(EndsWatcher { asker, next, is_answered: false });
        self.send_ends(out);
        Ok(())
    }

    fn term_of_ends(&self, partition: PartitionId) -> u64 {
        u64::from(self.term(partition)) << 32 | u64::from(self.options.incarnation.0)
    }

    /// The open job with the most bytes on this node, as a part of a sentence.
    pub(crate) fn held_by_open_job(&self) -> String {
        let is_open = |job: &JobId| self.home.ledger.job(*job).is_some_and(Job::grows);
        let bytes = self.objects.bytes_by_job();
        let largest = bytes.into_iter().filter(|(job, _)| is_open(job)).max_by_key(|it| it.1);
        largest.map_or_else(String::new, |(JobId(job), bytes)| {
            format!(" ({bytes} of them are outputs of open job {job}: 'job release', 'job close')")
        })
    }

    /// Sends each watcher at most one answer with ends; the next step sends the rest.
    fn send_ends(&mut self, out: &mut Out) {
        let Some(open_jobs) = &mut self.home.open_jobs else { return };
        let mut all = std::mem::take(&mut open_jobs.watchers);
        let (most, mut has_more) = ((ENDS_PER_ANSWER_MAX, ENDS_BYTES_PER_ANSWER), false);
        all.retain(|&(job, partition), watchers| {
            let term = self.term_of_ends(partition);
            let is_over = self.home.ledger.job(job).is_none_or(Job::has_ended);
            watchers.retain_mut(|watcher| {
                let after = watcher.next;
                let (next, ends) = self.home.ledger.ends_from(job, partition, after, most);
                let is_last = is_over && next == after;
                if next == after && !is_last && watcher.is_answered {
                    return true;
                }
                let is_cut = self.home.ledger.ends_from(job, partition, next, (1, 1)).0 != next;
                has_more |= !is_last && (is_over || is_cut);
                (watcher.next, watcher.is_answered) = (next, true);
                let ends = wire::Ends { partition: partition.0, term, next, ends };
                let (client, id) = watcher.asker;
                let body = Some(response::Body::Ends(ends));
                let response = wire::Response { id, body, more: !is_last, error: None };
                out.answers.push(Answer { client, response });
                !is_last
            });
            !watchers.is_empty()
        });
        if let Some(open_jobs) = &mut self.home.open_jobs {
            (open_jobs.watchers, open_jobs.has_more_ends) = (all, has_more);
        }
    }
}

/// Whether nothing about the edges of a stored chunk is open.
fn is_stored(ledger: &Ledger, job: JobId, partition: PartitionId, number: u32) -> bool {
    let has_ended = ledger.job(job).is_none_or(Job::has_ended);
    has_ended || ledger.edges_are_stored(job, partition, number)
}

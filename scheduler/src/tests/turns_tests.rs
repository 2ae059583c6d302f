//! Turns at the home of a task: what counts, what exists afterwards, and what a later home knows.

use std::collections::BTreeMap;

use proto::wire::message::Body;
use proto::wire::{MemberPhase, TurnResult, TurnVerdict, task_ref};
use proto::work::{Outcome, Turn, TurnAnswer};
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::output::Out;
use crate::tests::failover_tests::{MOVES, heir, task, until_visible};
use crate::tests::test_nodes;
use crate::{LedgerRecord, Mutant, Scheduler};

pub(super) const ME: NodeId = NodeId(0);
pub(super) const OTHER: NodeId = NodeId(1);

/// A home with one slot, and the records that it has written.
pub(super) struct Home {
    mutant: Option<Mutant>,
    term: u32,
    pub(super) scheduler: Scheduler,
    pub(super) out: Out,
    chunks: BTreeMap<u32, wire::Chunk>,
    ends: Vec<wire::EndRecord>,
    pub(super) holders: Vec<wire::HolderRecord>,
    turns: BTreeMap<u64, wire::TurnRecord>,
    pub(super) mail: BTreeMap<u64, wire::MailRecord>,
}

impl Home {
    fn new() -> Self {
        Self::with(None)
    }

    /// The home of one task, which runs here.
    pub(super) fn with(mutant: Option<Mutant>) -> Self {
        let [LedgerRecord::Chunk(chunk), _] = until_visible() else { unreachable!() };
        let chunks = [(0, chunk)].into();
        let bare = Self {
            mutant,
            term: 1,
            scheduler: heir(),
            out: Out::default(),
            chunks,
            ends: Vec::new(),
            holders: Vec::new(),
            turns: BTreeMap::new(),
            mail: BTreeMap::new(),
        };
        bare.next()
    }

    /// The next home of the partition, with all records that this one has written.
    pub(super) fn next(self) -> Self {
        let [_, visible] = until_visible();
        let chunks = self.chunks.values().cloned().map(LedgerRecord::Chunk);
        let ends = self.ends.iter().cloned().map(LedgerRecord::End);
        let holders = self.holders.iter().cloned().map(LedgerRecord::Holder);
        let turns = self.turns.values().cloned().map(LedgerRecord::Turn);
        let mail = self.mail.iter();
        let mail = mail.map(|(&number, record)| LedgerRecord::Mail(number, record.clone()));
        let mut scheduler = heir();
        scheduler.options.mutant = self.mutant;
        scheduler.home.ledger.mutate(self.mutant);
        let all = chunks.chain([visible]).chain(ends).chain(holders).chain(turns).chain(mail);
        for record in all {
            scheduler.adopt(Time(0), MOVES, JobId(1), record).expect("records fit one another");
        }
        let term = self.term + 1;
        let mut next = Self { term, scheduler, out: Out::default(), ..self };
        next.scheduler.serve(Time(0), MOVES, term, &mut next.out);
        next.scheduler
            .holder
            .slots_mut()
            .give_back(Some(crate::holder::slots::Seat { first: 0, claim: None }));
        next.step();
        next
    }

    /// Ends a step: its records are written.
    pub(super) fn step(&mut self) {
        self.at(Time(1));
    }

    /// As [`Self::step`], at this time.
    pub(super) fn at(&mut self, now: Time) {
        self.scheduler.settle(now, &mut self.out);
        self.scheduler.act(now, &mut self.out);
        self.scheduler.settle(now, &mut self.out);
        self.scheduler.act(now, &mut self.out);
        let facts = std::mem::take(&mut self.out.facts);
        self.chunks.extend(facts.chunks.into_iter().map(|chunk| (chunk.number, chunk)));
        self.ends.extend(facts.ends.into_values());
        self.holders.extend(facts.holders.into_values());
        for ((_, index), turn) in facts.turns.into_iter().flat_map(|turns| *turns) {
            self.turns.insert(index, turn);
        }
        for ((_, number), record) in facts.mail.into_iter().flat_map(|mail| *mail) {
            match record {
                Some(record) => _ = self.mail.insert(number, record),
                None => _ = self.mail.remove(&number),
            }
        }
    }

    /// The records are synced: messages of this node to itself arrive. Returns the replies to other
    /// nodes.
    pub(super) fn sync(&mut self) -> Vec<wire::TurnReply> {
        let mut replies = Vec::new();
        for (to, body) in std::mem::take(&mut self.out.reliable) {
            match body {
                body if to == ME => {
                    self.scheduler.on_message(Time(1), ME, body, &mut self.out);
                }
                Body::TurnReply(reply) => replies.push(reply),
                _ => {}
            }
        }
        self.step();
        replies
    }

    pub(super) fn attempt(&self) -> Attempt {
        self.scheduler.home.ledger.cell(task()).expect("it is homed here").attempt()
    }

    /// The tasks that were launched since the last call.
    pub(super) fn launched(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.out.launches).iter().map(|launch| launch.task).collect()
    }

    pub(super) fn turn(&mut self, turn: Turn) {
        let attempt = self.attempt();
        self.scheduler.on_turn(Time(1), task(), attempt, turn, &mut self.out);
        self.step();
    }

    pub(super) fn turn_of(&mut self, task: TaskId, turn: Turn) {
        let attempt = self.scheduler.home.ledger.cell(task).expect("it is homed here").attempt();
        self.scheduler.on_turn(Time(1), task, attempt, turn, &mut self.out);
        self.step();
    }

    /// Letters of another home for the first task, from this number on. Returns the last one that
    /// the home has stored.
    pub(super) fn letters_from_away(&mut self, first: u64, bytes: &[u8]) -> Option<u64> {
        let (from, to) = (LocalId::new(PartitionId(0), 3).0, task().local.0);
        let letter = |&byte: &u8| wire::Letter { from, to, data: vec![byte], number: 0 };
        let letters = bytes.iter().map(letter).collect();
        let letters = wire::Letters { job: 1, from: 0, to: MOVES.0, first, letters };
        self.scheduler.on_message(Time(1), OTHER, Body::Letters(letters), &mut self.out);
        self.step();
        self.out.reliable.iter().rev().find_map(|(_, body)| match body {
            Body::LettersKept(kept) => Some(kept.last),
            _ => None,
        })
    }

    pub(super) fn finish(&mut self, task: TaskId) {
        let attempt = self.scheduler.home.ledger.cell(task).expect("it is homed here").attempt();
        self.scheduler.on_finished(Time(1), task, attempt, Box::default(), &mut self.out);
        self.step();
        self.sync();
    }

    fn open(&self) -> u64 {
        self.scheduler.home.ledger.job(JobId(1)).expect("it runs").open_tasks()
    }
}

pub(super) fn child(index: u64) -> TaskId {
    TaskId { job: JobId(1), local: LocalId::new(MOVES, index) }
}

pub(super) fn spawned(tasks: usize) -> wire::Spawned {
    let body = Some(wire::spec::Body::Sleep(wire::Sleep {}));
    let specs = vec![wire::Spec { body, ..wire::Spec::default() }];
    wire::Spawned { specs, tasks: vec![wire::Task::default(); tasks], ..Default::default() }
}

pub(super) fn turn(verdict: TurnVerdict, tasks: usize) -> Turn {
    let state = Some(vec![7]);
    Turn { verdict, spawned: spawned(tasks), state, ..Turn::default() }
}

pub(super) fn wait(tasks: usize, ordinals: &[u64]) -> Turn {
    let name = |&ordinal| wire::TaskRef { task: Some(task_ref::Task::Child(ordinal)) };
    Turn { awaits: ordinals.iter().map(name).collect(), ..turn(TurnVerdict::TurnWait, tasks) }
}

#[test]
fn children_start_when_their_turn_is_synced_and_the_parent_when_they_have_ended() {
    let mut home = Home::new();
    assert_eq!(home.launched(), [task()]);
    home.turn(wait(2, &[0, 1]));
    assert_eq!(home.launched(), [], "the slot is free, and nothing is synced");
    assert_eq!(home.open(), 3);
    home.sync();
    assert_eq!(home.launched(), [child(1)], "there is one slot");
    home.finish(child(1));
    assert_eq!(home.launched(), [child(2)]);
    home.finish(child(2));
    let again = home.out.launches.pop().expect("both have ended");
    assert_eq!(again.task, task());
    let resume = again.resume.expect("it has committed a turn");
    assert_eq!((resume.seq, resume.state.as_deref()), (1, Some(&[7][..])));
    let ends: Vec<_> = resume.awaited.iter().map(|end| (end.child, end.verdict())).collect();
    assert_eq!(ends, [(1, wire::Verdict::Done), (2, wire::Verdict::Done)]);
    home.finish(task());
    assert_eq!(home.open(), 0);
}

/// The parent waits for a child that runs again because its outputs were lost. That run fails, so
/// the earlier end counts again.
#[test]
fn an_earlier_end_that_counts_again_wakes_the_parent() {
    let mut home = Home::new();
    home.launched();
    home.turn(wait(1, &[0]));
    home.sync();
    home.finish(child(1));
    assert_eq!(home.launched(), [child(1), task()]);
    let scheduler = &mut home.scheduler;
    scheduler.home.ledger.make_again(child(1), scheduler.routing.homes(), &mut home.out);
    home.turn(wait(0, &[0]));
    home.sync();
    assert_eq!(home.launched(), [child(1)], "the parent waits for it once more");
    let attempt = home.scheduler.home.ledger.cell(child(1)).expect("it is homed here").attempt();
    let failed = Outcome { exit_code: 1, error: "no".to_owned(), ..Outcome::default() };
    home.scheduler.on_finished(Time(1), child(1), attempt, Box::new(failed), &mut home.out);
    home.step();
    home.sync();
    assert_eq!(home.launched(), [task()]);
}

#[test]
fn each_later_home_continues_after_the_last_turn() {
    let mut home = Home::new();
    home.launched();
    home.turn(wait(2, &[0, 1]));
    let mut home = home.next();
    home.sync();
    assert_eq!(home.launched(), [child(1)], "the parent waits");
    home.finish(child(1));
    let mut home = home.next();
    assert_eq!(home.launched(), [child(2)]);
    home.finish(child(2));
    assert_eq!(home.launched(), [task()]);
    let mut home = home.next();
    let again = home.out.launches.pop().expect("it runs under the next home");
    assert_eq!((again.task, again.resume.map(|resume| resume.seq)), (task(), Some(1)));
    home.turn(turn(TurnVerdict::TurnYield, 0));
    let mut home = home.next();
    let again = home.out.launches.pop().expect("it gave its slot back");
    assert_eq!(
        again.resume.map(|resume| (resume.seq, resume.state.clone())),
        Some((2, Some(vec![7])))
    );
    home.finish(task());
    let home = home.next();
    assert_eq!(home.open(), 0);
    assert!(home.scheduler.home.ledger.has_turned(task()), "it never runs again");
}

/// A part may run tasks before it hears of the commit itself, because another part of the job on
/// the same node has heard.
#[test]
fn a_commit_that_arrives_after_a_turn_counts_submitted_tasks_only() {
    let mut home = Home::new();
    home.turn(turn(TurnVerdict::TurnMore, 2));
    for (tasks, is_whole) in [(1, true), (3, false)] {
        home.scheduler.home.ledger.forget_commit(JobId(1), MOVES);
        let total = wire::PartitionTotal { partition: MOVES.0, chunks: 1, tasks };
        let commit = wire::JobCommit { job: 1, partitions: vec![total], ..Default::default() };
        let visible = wire::Visible { commit: Some(commit), ..Default::default() };
        home.scheduler.on_message(Time(1), OTHER, Body::Visible(visible), &mut home.out);
        let lost = home.scheduler.home.ledger.counts(task()).0.lost;
        assert_eq!(lost.is_empty(), is_whole, "{lost}");
    }
}

#[test]
fn a_turn_counts_once_and_only_of_the_current_attempt() {
    let mut home = Home::new();
    home.launched();
    let attempt = home.attempt();
    let sent = |attempt: Attempt, seq, number| {
        Body::Turn(Box::new(wire::Turn {
            job: 1,
            local: task().local.0,
            attempt: attempt.0,
            seq,
            number,
            verdict: TurnVerdict::TurnMore as i32,
            spawned: Some(spawned(1)),
            ..wire::Turn::default()
        }))
    };
    for (attempt, seq, number, result, open) in [
        (Attempt(attempt.0 - 1), 1, 1, TurnResult::Fenced, 1),
        (attempt, 2, 2, TurnResult::Fenced, 1),
        // The first turn of the attempt was refused, and comes again after the second.
        (attempt, 1, 2, TurnResult::Committed, 2),
        (attempt, 1, 2, TurnResult::Committed, 2),
        (attempt, 1, 1, TurnResult::Fenced, 2),
        (attempt, 2, 3, TurnResult::Committed, 3),
        (attempt, 1, 2, TurnResult::Fenced, 3),
    ] {
        home.scheduler.on_message(Time(1), OTHER, sent(attempt, seq, number), &mut home.out);
        home.step();
        let replies = home.sync();
        assert_eq!(replies.iter().map(|it| it.result()).collect::<Vec<_>>(), [result]);
        assert_eq!(home.open(), open, "{attempt:?} {seq}");
    }
}

#[test]
fn a_task_that_was_done_before_neither_spawns_nor_commits() {
    let mut home = Home::new();
    home.launched();
    home.scheduler.home.ledger.pretend_done_before(task(), vec![1]);
    home.turn(turn(TurnVerdict::TurnMore, 1));
    home.sync();
    let answer = home.out.turn_answers.pop().map(|(_, _, answer)| answer);
    let Some(TurnAnswer::Refused(error)) = answer else { panic!("{answer:?}") };
    assert!(error.contains("can neither spawn nor commit"), "{error}");
    assert_eq!(home.open(), 1);
}

#[test]
fn an_answer_to_an_earlier_wait_wakes_no_task() {
    let mut home = Home::new();
    home.launched();
    let other = LocalId::new(PartitionId(u32::from(MOVES == PartitionId(0))), 4);
    let named = wire::TaskRef { task: Some(task_ref::Task::Local(other.0)) };
    home.turn(Turn { awaits: vec![named], ..turn(TurnVerdict::TurnWait, 0) });
    home.sync();
    assert_eq!(home.launched(), []);
    let end = wire::Awaited { local: other.0, ..wire::Awaited::default() };
    for (seq, launched) in [(0, vec![]), (1, vec![task()])] {
        let (job, waiter) = (1, task().local.0);
        let answer = wire::AwaitReply { job, waiter, seq, ended: vec![end] };
        home.scheduler.on_message(Time(1), OTHER, Body::AwaitReply(answer), &mut home.out);
        home.step();
        assert_eq!(home.launched(), launched, "the answer to turn {seq}");
    }
}

#[test]
fn a_wait_for_ended_tasks_goes_on_at_once() {
    let mut home = Home::new();
    home.launched();
    home.turn(wait(1, &[0]));
    home.sync();
    home.finish(child(1));
    home.launched();
    home.turn(wait(0, &[0]));
    home.sync();
    let answer = home.out.turn_answers.pop().map(|(_, _, answer)| answer);
    let Some(TurnAnswer::Committed(commit)) = answer else { panic!("{answer:?}") };
    let awaited = commit.awaited.expect("it goes on");
    assert_eq!((commit.seq, awaited.len(), awaited[0].verdict()), (2, 1, wire::Verdict::Done));
    assert_eq!(home.launched(), [], "the attempt still runs");
}

#[test]
fn what_exceeds_a_limit_is_refused_and_changes_nothing() {
    let mut home = Home::new();
    home.launched();
    let large = Turn { state: Some(vec![0; 70_000]), ..turn(TurnVerdict::TurnMore, 1) };
    for bad in [large, wait(1, &[1]), turn(TurnVerdict::TurnDone, 1)] {
        home.turn(bad);
        home.sync();
        let answer = home.out.turn_answers.pop().map(|(_, _, answer)| answer);
        assert!(matches!(answer, Some(TurnAnswer::Refused(_))), "{answer:?}");
        assert_eq!(home.open(), 1);
    }
}

#[test]
fn a_child_with_a_malformed_request_is_refused() {
    let mut home = Home::new();
    home.launched();
    let half = "cpus=0.5".parse::<resources::Request>().expect("it is a request").encode();
    for (request, why) in [(half, "cpus are whole numbers"), (vec![0xff], "its request is damaged")]
    {
        let mut spawned = spawned(1);
        spawned.specs[0].request = request;
        let turn = wire::Turn {
            job: 1,
            local: task().local.0,
            attempt: home.attempt().0,
            seq: 1,
            number: 1,
            verdict: TurnVerdict::TurnMore as i32,
            spawned: Some(spawned),
            ..wire::Turn::default()
        };
        home.scheduler.on_message(Time(1), OTHER, Body::Turn(Box::new(turn)), &mut home.out);
        home.step();
        let reply = home.sync().pop().expect("it is answered");
        assert_eq!((reply.result(), home.open()), (TurnResult::TurnRefused, 1));
        assert!(reply.error.contains(why), "{}", reply.error);
    }
}

/// Each turn has a step of its own, and so a chunk. If adding or finding one took a look at all
/// others, this would take minutes.
#[test]
fn many_spawned_chunks_take_linear_time() {
    const TURNS: u64 = 100_000;
    let mut home = Home::new();
    home.launched();
    for _ in 0..TURNS {
        home.turn(turn(TurnVerdict::TurnMore, 1));
        home.sync();
        home.out = Out::default();
    }
    assert_eq!(home.open(), 1 + TURNS);
    let (count, chunks) = home.scheduler.home.ledger.counts(task());
    let ledger = &home.scheduler.home.ledger;
    assert!((1..=TURNS as u32).all(|number| ledger.has_chunk(JobId(1), MOVES, number)));
    assert_eq!((chunks, count.spawned, count.turns), (1, TURNS, TURNS));
}

fn explained(home: &mut Home, task: TaskId) -> Vec<String> {
    home.scheduler.home.ledger.explain(task, (false, false)).expect("it is homed here").lines
}

#[test]
fn a_parent_that_waits_is_explained_by_its_children() {
    let mut home = Home::new();
    home.launched();
    let mut named = wait(3, &[0, 1, 2, 1]);
    named.spawned.keys = vec![wire::SpawnKey { task: 1, key: "left".to_owned() }];
    home.turn(named);
    home.sync();
    home.finish(child(1));
    let lines = explained(&mut home, task());
    let ids = [2, 3].map(|index| child(index).local.to_string()).join(", ");
    assert!(lines.contains(&format!("it waits for 2 of 3 children: {ids}")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("dependencies")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("it has spawned 3 tasks: ")), "{lines:?}");
    let lines = explained(&mut home, child(2));
    let parent = task().local;
    let line = lines.iter().find(|line| line.starts_with("it is child 1 ('left') of task"));
    assert!(line.is_some_and(|line| line.ends_with(&format!("({parent})"))), "{lines:?}");
}

#[test]
fn the_children_of_a_done_parent_are_named() {
    let mut home = Home::new();
    home.launched();
    home.turn(turn(TurnVerdict::TurnMore, 2));
    home.sync();
    home.finish(task());
    let lines = explained(&mut home, task());
    let ids = [1, 2].map(|index| child(index).local.to_string()).join(", ");
    assert!(lines.contains(&format!("it has spawned {ids}")), "{lines:?}");
    let lines = explained(&mut home, child(1));
    assert!(lines.iter().any(|line| line.starts_with("it is a child of task '")), "{lines:?}");
}

/// A task has committed turns and is done. Its maker has failed, and the next home knows no copy.
pub(super) fn a_reader_gets_a_copy_that_the_home_did_not_know(mutant: Option<Mutant>) -> bool {
    let (reader, third) = (NodeId(2), NodeId(3));
    let mut home = Home::with(mutant);
    home.launched();
    home.turn(turn(TurnVerdict::TurnMore, 1));
    home.sync();
    let attempt = home.attempt();
    home.finish(task());
    home.ends.iter_mut().for_each(|end| end.node.fill(OTHER.0));
    let mut home = home.next();
    let member = |node| {
        let phase = if node == OTHER.0 { MemberPhase::Down } else { MemberPhase::Up };
        wire::Member { phase: phase as i32, ..test_nodes::member(node) }
    };
    let homes = test_nodes::homes_since(2, 0, (0..4).map(member).collect(), &[0, 0]).moving();
    home.scheduler.set_homes(Time(1), homes, &mut home.out);
    let (local, size_bytes) = (task().local.0, 7);
    let object = wire::Object { job: 1, task: local, attempt: attempt.0, output: 0, size_bytes };
    let locate = wire::Locate { copies_only: vec![object], ..Default::default() };
    home.scheduler.on_message(Time(1), reader, Body::Locate(locate), &mut home.out);
    let at = std::mem::take(&mut home.out.located)[&reader][0].clone();
    let asked = std::mem::take(&mut home.out.locate);
    if !at.later || asked.keys().ne([&third]) || asked[&third].held != [object] {
        return false;
    }
    let copies = wire::Copies { added: vec![object], ..Default::default() };
    home.scheduler.on_message(Time(1), third, Body::Copies(copies), &mut home.out);
    home.out.located[&reader][0].nodes == [third.0]
}

//! Credits in any order, repeated and mixed: each task becomes ready once, when it has all of them,
//! and not before.

use std::collections::{BTreeMap, BTreeSet};

use proto::wire::message::Body;
use proto::{Event, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::output::Out;
use crate::tests::test_nodes;
use crate::{LedgerRecord, Mutant, Policy, Scheduler, Tuning};

const CASES: u64 = 400;
const JOB: u64 = 1;
const CHILDREN: PartitionId = PartitionId(0);
const PARENTS: PartitionId = PartitionId(1);
const SECOND: Time = Time(1_000_000_000);

struct Random(ChaCha8Rng);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0.next_u64() as usize % end
    }
    fn shuffle<T>(&mut self, all: &mut [T]) {
        (1..all.len()).rev().for_each(|at| all.swap(at, self.below(at + 1)));
    }
}

/// The credit of one edge, or the commit of the job.
#[derive(Clone, Copy, Debug)]
enum Word {
    Commit,
    Credit { parent: u64, child: usize, slot: u32, output: u32 },
}

/// The messages about the parents of one home's tasks, and their effects.
struct Case {
    random: Random,
    mutant: Option<Mutant>,
    chunk: wire::Chunk,
    words: Vec<Word>,
    home: Scheduler,
    records: Vec<LedgerRecord>,
    had: BTreeMap<usize, BTreeSet<u32>>,
    committed: bool,
    queued: BTreeMap<TaskId, u32>,
}

fn home(life: u32, mutant: Option<Mutant>) -> Scheduler {
    let mut members: Vec<_> = (0..2).map(test_nodes::member).collect();
    members[0].incarnation = life;
    let mut home = test_nodes::scheduler(
        0,
        1,
        Tuning::of(Policy::Mlb),
        test_nodes::homes(0, members, &[0, 1]),
    );
    home.home.ledger.mutate(mutant);
    home.holder.slots_mut().take_cpus(1); // No slot is free: ready tasks wait in a queue.
    home
}

impl Case {
    fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
        // Also around the width of a word.
        let slots: Vec<u32> = (0..1 + random.below(6))
            .map(|_| [0, 1, 2, 5, 63, 64, 65, 200][random.below(8)])
            .collect();
        let task = |&slots: &u32| wire::Task { slots, ..Default::default() };
        let body = Some(wire::spec::Body::Sleep(Default::default()));
        let chunk = wire::Chunk {
            job: JOB,
            partition: CHILDREN.0,
            specs: vec![wire::Spec { body, ..Default::default() }],
            tasks: slots.iter().map(task).collect(),
            ..Default::default()
        };
        let mut words = vec![Word::Commit];
        for (child, &slots) in slots.iter().enumerate() {
            for slot in 0..slots {
                let parent = LocalId::new(PARENTS, random.below(40) as u64).0;
                let output = random.below(2) as u32;
                let word = Word::Credit { parent, child, slot, output };
                words.extend(std::iter::repeat_n(word, 1 + random.below(3)));
            }
        }
        random.shuffle(&mut words);
        Self {
            random,
            mutant,
            chunk: chunk.clone(),
            words,
            home: home(1, mutant),
            records: vec![LedgerRecord::Chunk(chunk)],
            had: BTreeMap::new(),
            committed: false,
            queued: BTreeMap::new(),
        }
    }

    fn hear(&mut self, words: &[Word], out: &mut Out) {
        let mut credits = Vec::new();
        for word in words {
            match *word {
                Word::Commit => {
                    let partition = CHILDREN.0;
                    let tasks = self.chunk.tasks.len() as u64;
                    let total = wire::PartitionTotal { partition, chunks: 1, tasks };
                    let commit =
                        wire::JobCommit { job: JOB, partitions: vec![total], ..Default::default() };
                    let visible = wire::Visible { commit: Some(commit), ..Default::default() };
                    self.home.home.ledger.make_visible(
                        SECOND,
                        &visible,
                        self.home.routing.homes(),
                        out,
                    );
                    self.committed = true;
                }
                Word::Credit { parent, child, slot, output } => {
                    credits.push(wire::Credit {
                        job: JOB,
                        parent,
                        attempt: 1,
                        node: 1,
                        output_sizes: vec![7],
                        child: vec![LocalId::new(CHILDREN, child as u64).0],
                        slot: vec![slot],
                        output: vec![output],
                        ..Default::default()
                    });
                    self.had.entry(child).or_default().insert(slot);
                }
            }
        }
        let body = Body::Credits(wire::Credits { credits, reconciled: false });
        self.home.on_message(SECOND, NodeId(1), body, out);
    }

    /// Keeps the records of a step, and counts the tasks that it placed.
    fn settle(&mut self, mut out: Out) -> Result<(), String> {
        self.home.settle(SECOND, &mut out);
        let facts = &mut out.facts;
        let visible = std::mem::take(&mut facts.visible).into_values().map(LedgerRecord::Visible);
        let credits = std::mem::take(&mut facts.credits).into_values().map(LedgerRecord::Credit);
        self.records.extend(visible.chain(credits));
        for event in &out.events {
            if let Event::Queued { task, .. } = *event {
                *self.queued.entry(task).or_default() += 1;
            }
        }
        for (child, task) in self.chunk.tasks.iter().enumerate() {
            let had = self.had.get(&child).map_or(0, BTreeSet::len) as u32;
            let due = u32::from(self.committed && had == task.slots);
            let id = TaskId::new(JOB, LocalId::new(CHILDREN, child as u64).0);
            let queued = self.queued.get(&id).copied().unwrap_or(0);
            if queued != due {
                let slots = task.slots;
                return Err(format!("{id} was ready {queued} times with {had} of {slots}"));
            }
        }
        Ok(())
    }

    /// The process ends. Its records are loaded again and its queues are lost: tasks that were
    /// ready are ready once more, and only once.
    fn restart(&mut self, life: u32) -> Result<(), String> {
        self.home = home(life, self.mutant);
        self.queued.clear();
        let visible: Vec<_> = self.records.extract_if(1.., is_visible).collect();
        self.records.splice(1..1, visible);
        for record in &self.records {
            let (chunk, job) = (CHILDREN, JobId(JOB));
            self.home.load(SECOND, chunk, job, again(record)).map_err(|error| error.to_string())?;
        }
        let mut out = Out::default();
        self.home.resume(SECOND, &mut out);
        self.settle(out)
    }

    fn run(mut self) -> Result<(), String> {
        let mut out = Out::default();
        self.home
            .home
            .ledger
            .accept_chunk(SECOND, self.chunk.clone(), &mut out)
            .expect("it is well formed");
        self.settle(out)?;
        let words = std::mem::take(&mut self.words);
        let (mut rest, mut life) = (&words[..], 1);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + self.random.below(rest.len().min(30)));
            rest = later;
            let mut out = Out::default();
            self.hear(now, &mut out);
            self.settle(out)?;
            if self.random.below(20) == 0 {
                life += 1;
                self.restart(life)?;
            }
        }
        assert!(self.committed && self.queued.len() == self.chunk.tasks.len(), "all is ready");
        Ok(())
    }
}

fn is_visible(record: &mut LedgerRecord) -> bool {
    matches!(record, LedgerRecord::Visible(_))
}

fn again(record: &LedgerRecord) -> LedgerRecord {
    match record {
        LedgerRecord::Chunk(chunk) => LedgerRecord::Chunk(chunk.clone()),
        LedgerRecord::Visible(visible) => LedgerRecord::Visible(*visible),
        LedgerRecord::Credit(credit) => LedgerRecord::Credit(credit.clone()),
        other => panic!("nothing else is kept: {other:?}"),
    }
}

#[test]
fn each_task_gets_ready_once_in_any_order_of_credits() {
    for seed in 1..=CASES {
        Case::new(seed, None).run().unwrap_or_else(|text| panic!("case {seed}: {text}"));
    }
}

#[test]
fn a_counter_instead_of_a_set_is_found() {
    let found = |seed| Case::new(seed, Some(Mutant::CounterInsteadOfSet)).run().is_err();
    assert!((1..=CASES).any(found));
}

/// The clock of the machine was set back while its node was down, or an earlier home's clock is
/// ahead.
#[test]
fn a_submission_of_the_future_makes_no_task_wait_longer_than_was_meant() {
    let release = Span::from_secs(5);
    let task = wire::Task { release_ns: release.0, ..Default::default() };
    let body = Some(wire::spec::Body::Sleep(Default::default()));
    let chunk = wire::Chunk {
        job: JOB,
        partition: CHILDREN.0,
        specs: vec![wire::Spec { body, ..Default::default() }],
        tasks: vec![task],
        ..Default::default()
    };
    let submitted_ns = (SECOND + Span::from_secs(3_600)).0;
    let visible = wire::VisibleRecord { chunks: 1, submitted_ns, ..Default::default() };
    let mut home = home(2, None);
    for record in [LedgerRecord::Chunk(chunk), LedgerRecord::Visible(visible)] {
        home.load(SECOND, CHILDREN, JobId(JOB), record).expect("records fit one another");
    }
    let mut out = Out::default();
    home.resume(SECOND, &mut out);
    home.settle(SECOND, &mut out);
    assert_eq!(home.home.ledger.next_release(), Some(SECOND + release));
}

/// The credits of failed tasks wait for the disk.
#[test]
fn credits_that_wait_for_the_disk_do_not_hold_others_back() {
    let (mine, theirs) = (PartitionId(0), PartitionId(1));
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let children = |index| wire::Children {
        index,
        child: vec![LocalId::new(theirs, index).0],
        slot: vec![0],
        output: vec![0],
    };
    let body = Some(wire::spec::Body::Sleep(wire::Sleep::default()));
    let chunk = wire::Chunk {
        job: 1,
        specs: vec![wire::Spec { body, ..Default::default() }],
        tasks: vec![wire::Task::default(); 3],
        children: (0..3).map(children).collect(),
        ..Default::default()
    };
    let visible = wire::VisibleRecord { chunks: 1, ..Default::default() };
    let [done, failed] = [wire::Verdict::Done as u32, wire::Verdict::Failed as u32];
    let ends = wire::EndRecord {
        index: vec![0, 1, 2],
        attempt: vec![1, 1, 1],
        verdict: vec![done, failed, done],
        node: vec![0; 3],
        ..Default::default()
    };
    let records =
        [LedgerRecord::Chunk(chunk), LedgerRecord::Visible(visible), LedgerRecord::End(ends)];
    for record in records {
        home.load(Time(1), mine, JobId(1), record).expect("records fit one another");
    }
    let mut out = Out::default();
    home.resume(Time(1), &mut out);
    home.settle(Time(1), &mut out);
    let credits = out.reliable.iter().filter_map(|(_, body)| match body {
        Body::Credits(credits) => Some(credits.credits.iter().map(|it| it.verdict as u32)),
        _ => None,
    });
    let verdicts: Vec<Vec<u32>> = credits.map(Iterator::collect).collect();
    assert_eq!(verdicts, [vec![done, done], vec![failed]]);
}

//! A node neither panics nor hangs, for any contents of a well-framed packet or request.

use dice::Dice;
use node::{Config, Effect, Input, Node};
use prost::Message as _;
use proto::wire::message::Body;
use proto::{ClientId, NodeId, Span, Time, wire};
use scheduler::Tuning;

/// Values of fields.
struct Values(Dice);
impl Values {
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }
    /// Mostly small, sometimes huge.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => self.0.number(),
            1 => u64::MAX,
            2 => self.below(1 << 26),
            _ => self.below(5),
        }
    }
    fn numbers(&mut self) -> Vec<u64> {
        (0..self.below(4)).map(|_| self.number()).collect()
    }
    fn small_numbers(&mut self) -> Vec<u32> {
        self.numbers().into_iter().map(|n| n as u32).collect()
    }
}

fn task(dice: &mut Values) -> wire::TaskAttempt {
    wire::TaskAttempt { job: dice.number(), local: dice.number(), attempt: dice.number() }
}
fn tasks(dice: &mut Values) -> Vec<wire::TaskAttempt> {
    (0..dice.below(4)).map(|_| task(dice)).collect()
}

fn bundle(dice: &mut Values) -> Option<wire::Bundle> {
    let placed = |dice: &mut Values| wire::Placed {
        job: dice.number(),
        local: dice.number(),
        attempt: dice.number(),
        spec: dice.below(3) as u32,
        settings: dice.below(2) as u32,
        output_sizes: dice.numbers(),
        inputs: vec![wire::InputAt {
            slot: dice.number() as u32,
            parent: dice.number(),
            output: dice.number() as u32,
            attempt: dice.number(),
            size_bytes: dice.number(),
            node: dice.number() as u32,
            consumers: dice.number() as u32,
            copies: dice.small_numbers(),
        }],
        crash_count: dice.below(5) as u32,
        again: dice.below(2) == 1,
        ..Default::default()
    };
    let spec = wire::Spec { cpus: dice.number() as u32, ..Default::default() };
    Some(wire::Bundle {
        specs: vec![spec.clone(), spec],
        settings: vec![wire::JobSettings::default()],
        tasks: (0..dice.below(4)).map(|_| placed(dice)).collect(),
    })
}

fn credits(dice: &mut Values) -> wire::Credits {
    let credit = |dice: &mut Values| wire::Credit {
        round: dice.below(3) as u32,
        job: dice.number(),
        parent: dice.number(),
        attempt: dice.number(),
        node: dice.number() as u32,
        verdict: dice.below(6) as i32,
        output_sizes: dice.numbers(),
        child: dice.numbers(),
        slot: dice.small_numbers(),
        output: dice.small_numbers(),
        consumers: dice.small_numbers(),
        rebuilt: dice.below(2) == 0,
        recalled: dice.numbers(),
        checked: dice.below(2) == 0,
        refuses: dice.below(4) == 0,
        error: "x".repeat(dice.below(3) as usize),
        gone: dice.small_numbers(),
    };
    let reconciled = dice.below(2) == 0;
    wire::Credits { credits: (0..dice.below(3)).map(|_| credit(dice)).collect(), reconciled }
}

fn commit(dice: &mut Values) -> wire::JobCommit {
    let total = |dice: &mut Values| wire::PartitionTotal {
        partition: dice.number() as u32,
        chunks: dice.number() as u32,
        tasks: dice.below(9),
    };
    let partitions = (0..dice.below(3)).map(|_| total(dice)).collect();
    let openness = dice.below(4) as i32;
    let after = |dice: &mut Values| wire::AfterJob {
        job: dice.number(),
        any: dice.below(2) == 0,
        end: dice.below(7) as i32,
    };
    let after = (0..dice.below(3)).map(|_| after(dice)).collect();
    wire::JobCommit { job: dice.number(), partitions, openness, after, ..Default::default() }
}

fn count(dice: &mut Values) -> wire::PartitionCount {
    wire::PartitionCount {
        partition: dice.number() as u32,
        version: dice.number(),
        done: dice.below(9),
        failed: dice.below(3),
        ..Default::default()
    }
}

fn body(dice: &mut Values) -> Body {
    match dice.below(27) {
        0 | 1 => Body::Push(wire::Push { bundle: bundle(dice), leaves: dice.below(2) == 0 }),
        2 => {
            let (probe, ahead) = (dice.number(), dice.below(2) == 0);
            Body::StealProbe(wire::StealProbe { probe, ahead, free: vec![probe] })
        }
        3 => {
            let (probe, shared) = (dice.number(), dice.number() as u32);
            Body::StealLoad(wire::StealLoad { probe, shared })
        }
        4 => Body::StealHint(wire::StealHint { shared: dice.number() as u32 }),
        5 => {
            let (steal, slots) = (dice.number(), dice.number() as u32);
            let (free, free_amounts) = (slots, vec![steal]);
            Body::StealRequest(wire::StealRequest { steal, slots, free, held: 0, free_amounts })
        }
        6 => steal_grant(dice),
        7 => Body::StealDone(wire::StealDone { steal: dice.number() }),
        8 => Body::TasksMoved(wire::TasksMoved {
            steal: dice.number(),
            tasks: tasks(dice),
            starts: dice.below(2) == 0,
            start_withdrawn: dice.below(2) == 0,
            gone_node: dice.number() as u32,
            gone_incarnation: dice.number() as u32,
        }),
        9 => Body::TasksMovedAck(wire::TasksMovedAck { steal: dice.number(), stale: tasks(dice) }),
        10 => {
            let completion = wire::Completion {
                job: dice.number(),
                local: dice.number(),
                attempt: dice.number(),
                verdict: dice.below(6) as i32,
                started_ns: dice.number(),
                finished_ns: dice.number(),
                output_sizes: dice.numbers(),
                moved_bytes: dice.number(),
                ..Default::default()
            };
            Body::Finished(wire::Finished { completions: vec![completion] })
        }
        11 => Body::RevokeAttempts(wire::RevokeAttempts { tasks: tasks(dice) }),
        12 => Body::Credits(credits(dice)),
        13 => credit_query(dice),
        14 => Body::Visible(wire::Visible { commit: Some(commit(dice)), retried: dice.numbers() }),
        15 => {
            let (job, partitions) = (dice.number(), vec![count(dice)]);
            let question = dice.number();
            Body::JobCounts(wire::JobCounts { job, partitions, removing: false, question })
        }
        16 => Body::HeldTasksQuery(wire::HeldTasksQuery { tasks: tasks(dice) }),
        17 => Body::TasksNotHeld(wire::TasksNotHeld {
            tasks: tasks(dice),
            moved: dice.below(2) == 0,
            ..Default::default()
        }),
        18 => Body::Cancel(cancel(dice)),
        19 | 20 => recall(dice),
        21..=23 => turn(dice),
        24 | 25 => mail(dice),
        _ => {
            let (job, question) = (dice.number(), dice.number());
            let (unknown, kept) = (dice.below(2) == 0, dice.below(2) == 0);
            let (round, outcome) = (dice.below(3) as u32, dice.below(7) as i32);
            Body::JobEnd(wire::JobEnd { job, unknown, question, round, kept, outcome })
        }
    }
}

fn steal_grant(dice: &mut Values) -> Body {
    let (steal, bundle) = (dice.number(), bundle(dice));
    let (untold, waited) = (vec![0, 7], vec![1, 9]);
    Body::StealGrant(wire::StealGrant { steal, bundle, untold, waited })
}

fn credit_query(dice: &mut Values) -> Body {
    let (job, parent, child) = (dice.number(), dice.number(), dice.number());
    let (lost_attempt, runs_again) = (dice.below(2) * dice.number(), dice.below(2) == 0);
    let round = dice.below(3) as u32;
    let recalled = dice.below(2) == 0;
    let ask = wire::CreditRequest { job, parent, child, lost_attempt, runs_again, round, recalled };
    Body::CreditQuery(wire::CreditQuery { requests: vec![ask] })
}

fn mail_name(dice: &mut Values) -> Option<wire::MailName> {
    let task = match dice.below(4) {
        0 => wire::mail_name::Task::Child(dice.number()),
        1 => wire::mail_name::Task::Local(dice.number()),
        2 => wire::mail_name::Task::Parent(dice.below(2) == 0),
        _ => return None,
    };
    Some(wire::MailName { task: Some(task) })
}

/// A message of events between tasks.
fn mail(dice: &mut Values) -> Body {
    let (job, ticket) = (dice.number(), dice.number());
    let (from, to) = (dice.below(9) as u32, dice.below(9) as u32);
    match dice.below(4) {
        0 => {
            let letter = |dice: &mut Values| wire::Letter {
                number: dice.number(),
                from: dice.number(),
                to: dice.number(),
                data: vec![7; dice.below(70_000) as usize],
            };
            let letters = (0..dice.below(3)).map(|_| letter(dice)).collect();
            Body::Letters(wire::Letters { job, from, to, first: dice.number(), letters })
        }
        1 => Body::LettersKept(wire::LettersKept { job, from, to, last: dice.number() }),
        2 => {
            let (sender, bytes, to) = (dice.number(), dice.number() as u32, mail_name(dice));
            Body::MailQuery(wire::MailQuery { job, partition: from, sender, to, bytes, ticket })
        }
        _ => {
            let refused = "x".repeat(dice.below(2) as usize);
            Body::MailReply(wire::MailReply { ticket, refused })
        }
    }
}

/// A message of an open job.
fn open_job(dice: &mut Values, job: u64) -> Body {
    match dice.below(4) {
        0 => Body::Join(wire::Join { job, partition: dice.below(9) as u32 }),
        1 => {
            let (partition, text) = (dice.below(9) as u32, "no".to_owned());
            Body::JoinRefused(wire::JoinRefused { job, partition, code: 4, text })
        }
        2 => {
            let (partition, child_partition) = (dice.below(9) as u32, dice.below(9) as u32);
            let edges = vec![wire::Children {
                index: dice.number(),
                child: dice.numbers(),
                slot: dice.small_numbers(),
                output: dice.small_numbers(),
            }];
            let chunk = dice.below(3) as u32;
            Body::LateEdges(wire::LateEdges { job, partition, child_partition, chunk, edges })
        }
        _ => {
            let (partition, child_partition) = (dice.below(9) as u32, dice.below(9) as u32);
            let chunk = dice.below(3) as u32;
            Body::LateEdgesKept(wire::LateEdgesKept { job, partition, child_partition, chunk })
        }
    }
}

fn turn(dice: &mut Values) -> Body {
    let (job, local, attempt, seq) = (dice.number(), dice.number(), dice.number(), dice.number());
    let ended = |dice: &mut Values| wire::Awaited {
        local: dice.number(),
        verdict: dice.below(6) as i32,
        ..Default::default()
    };
    let name = |dice: &mut Values| wire::task_ref::Task::Child(dice.number());
    match dice.below(9) {
        5..=8 => open_job(dice, job),
        0 => Body::TurnReply(wire::TurnReply {
            job,
            local,
            attempt,
            seq,
            result: dice.below(4) as i32,
            count: dice.number() as u32,
            goes_on: dice.below(2) == 0,
            ..Default::default()
        }),
        1 => {
            let (tasks, partition) = (dice.numbers(), dice.below(9) as u32);
            Body::AwaitQuery(wire::AwaitQuery { job, waiter: local, seq, tasks, partition })
        }
        2 => {
            Body::AwaitReply(wire::AwaitReply { job, waiter: local, seq, ended: vec![ended(dice)] })
        }
        3 => {
            let (partition, chunks) = (dice.below(9) as u32, dice.small_numbers());
            Body::ChunksBorn(wire::ChunksBorn { job, partition, chunks })
        }
        _ => Body::Turn(Box::new(wire::Turn {
            sums: Vec::new(),
            job,
            local,
            attempt,
            seq,
            verdict: dice.below(6) as i32,
            spawned: Some(wire::Spawned {
                specs: vec![wire::Spec::default(); dice.below(3) as usize],
                tasks: vec![wire::Task { spec: dice.below(3) as u32, ..Default::default() }; 2],
                keys: vec![wire::SpawnKey { task: dice.number() as u32, key: "k".to_owned() }],
                edges: vec![wire::SpawnEdge {
                    parent: dice.number() as u32,
                    child: dice.number() as u32,
                    slot: dice.number() as u32,
                    output: dice.number() as u32,
                }],
                inputs: vec![wire::SpawnInput {
                    parent: dice.number(),
                    file: "f".repeat(dice.below(2) as usize),
                    output: dice.number() as u32,
                    child: dice.small_numbers(),
                    slot: dice.small_numbers(),
                    form: dice.below(5) as i32,
                }],
            }),
            events: vec![wire::TurnEvent { to: mail_name(dice), data: vec![7; 3] }],
            consumed: dice.numbers(),
            mail_wait: (dice.below(4) == 0).then(|| wire::MailWait {
                from: mail_name(dice),
                timeout_ns: (dice.below(2) == 0).then(|| dice.number()),
            }),
            awaits: vec![wire::TaskRef { task: Some(name(dice)) }],
            state: (dice.below(2) == 0).then(|| vec![7; dice.below(70_000) as usize]),
            completion: None,
            number: dice.below(3),
        })),
    }
}

fn recall(dice: &mut Values) -> Body {
    let (job, parent, attempt) = (dice.number(), dice.number(), dice.number());
    let partition = dice.below(9) as u32;
    if dice.below(2) == 0 {
        let (used, counted) = (dice.below(2) == 0, dice.below(2) == 0);
        let readers = dice.below(2) == 0;
        return Body::Recalled(wire::Recalled {
            job,
            parent,
            attempt,
            partition,
            used,
            counted,
            readers,
        });
    }
    let (child, slot) = (dice.numbers(), dice.small_numbers());
    Body::Recall(wire::Recall { job, parent, attempt, partition, child, slot })
}

fn cancel(dice: &mut Values) -> wire::Cancel {
    let (job, locals, staged) = (dice.number(), dice.numbers(), dice.below(2) == 0);
    wire::Cancel { job, locals, by: "a user".to_owned(), staged, round: dice.below(3) as u32 }
}

fn chunk(dice: &mut Values) -> wire::Chunk {
    let task = |dice: &mut Values| wire::Task {
        spec: dice.below(3) as u32,
        slots: dice.number() as u32,
        output_sizes: dice.numbers(),
        ..Default::default()
    };
    wire::Chunk {
        job: dice.number(),
        partition: dice.below(9) as u32,
        number: dice.below(3) as u32,
        first: dice.number(),
        specs: vec![wire::Spec::default(); dice.below(3) as usize],
        tasks: (0..dice.below(5)).map(|_| task(dice)).collect(),
        children: vec![wire::Children {
            index: dice.number(),
            child: dice.numbers(),
            slot: dice.small_numbers(),
            output: dice.small_numbers(),
        }],
        spawned: dice.below(4) == 0,
        open: dice.below(4) == 0,
        parents: vec![wire::Parents {
            index: dice.number(),
            first_slot: dice.number() as u32,
            parent: dice.numbers(),
            output: dice.small_numbers(),
        }],
        late: Vec::new(),
    }
}

fn request(dice: &mut Values) -> wire::request::Body {
    use wire::open_request::What;
    use wire::request::Body;
    match dice.below(13) {
        10 => {
            let (tasks, chunks) = (dice.number(), dice.number() as u32);
            let what = match dice.below(4) {
                0 => What::Reserve(wire::ReserveIds { tasks, chunks }),
                1 => What::Close(wire::CloseJob::default()),
                2 => What::Release(wire::ReleaseOutputs {
                    partition: dice.below(9) as u32,
                    locals: dice.numbers(),
                }),
                _ => What::CountOpen(wire::CountOpen { partition: dice.below(9) as u32 }),
            };
            Body::Open(wire::OpenRequest { job: dice.number(), what: Some(what) })
        }
        11 => Body::WatchEnds(wire::EndsQuery {
            job: dice.number(),
            partition: dice.below(9) as u32,
            term: dice.number(),
            after: dice.number(),
        }),
        0..=2 => Body::Submit(chunk(dice)),
        3 => Body::Commit(commit(dice)),
        4 => Body::WatchJob(wire::JobQuery { job: dice.number(), ..Default::default() }),
        5 => {
            let (job, after, limit) = (dice.number(), dice.number(), dice.number() as u32);
            let (from_start, kept) = (dice.below(2) == 0, dice.below(2) == 0);
            let parents = !kept;
            Body::Tasks(wire::TasksQuery { job, after, limit, from_start, kept, parents })
        }
        6 => Body::Explain(wire::TaskQuery {
            job: dice.number(),
            local: dice.number(),
            sums_after: (dice.number() % 3) as u32,
        }),
        7 => Body::Cancel(cancel(dice)),
        8 => Body::Retry(wire::JobRetry {
            job: dice.number(),
            round: dice.below(3) as u32,
            locals: dice.numbers(),
            by: "a user".to_owned(),
        }),
        _ => {
            let op = wire::KvOp { kind: dice.below(9) as i32, ..Default::default() };
            let (partition, epoch) = (dice.below(9) as u32, dice.below(3));
            Body::Kv(wire::KvBatch { partition, epoch, ops: vec![op], number: None })
        }
    }
}

fn node() -> Node {
    let config = Config {
        slots: 2,
        tuning: Tuning { steal_interval_bound: Span::from_millis(64), ..Tuning::default() },
        seed: 1,
        ..Config::new(NodeId(0), kvs::make_map(7, 2, 8).into())
    };
    Node::recover(config, std::iter::empty(), Time(1)).expect("nothing is stored")
}

#[test]
fn garbage_in_every_field_is_survived() {
    for seed in 0..60 {
        let mut dice = Values(Dice::new(seed));
        let mut node = node();
        let mut now = Time(1_000);
        let (mut seq, mut effects): (u64, Vec<Effect>) = (1, Vec::new());
        for _ in 0..400 {
            now = now + Span::from_millis(dice.below(30));
            let input = if dice.below(3) == 0 {
                let (id, body) = (dice.number(), Some(request(&mut dice)));
                let request = Box::new(wire::Request { id, body });
                Input::Request { client: ClientId(dice.below(3)), request }
            } else {
                let message = wire::Message { body: Some(body(&mut dice)) };
                let best_effort = vec![wire::Message { body: Some(body(&mut dice)) }];
                let mut bytes = message.encode_to_vec();
                if dice.below(4) == 0 && !bytes.is_empty() {
                    let at = dice.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << dice.below(8);
                }
                let first_seq = if dice.below(9) == 0 { dice.number() } else { seq };
                seq += u64::from(first_seq == seq);
                Input::Packet(Box::new(wire::Packet {
                    copies: dice.below(3) == 0,
                    from: 1,
                    to: 0,
                    from_incarnation: 1,
                    to_incarnation: 1,
                    first_seq,
                    ack: dice.number(),
                    reliable: vec![bytes.into()],
                    best_effort,
                    load: None,
                    seen: 0,
                    membership: Vec::new(),
                }))
            };
            node.handle(now, input);
            effects.clear();
            node.flush(now, &mut effects);
            if let Some(Effect::Persist(batch)) = effects.first() {
                node.handle(now, Input::Persisted { seq: batch.seq });
            }
        }
    }
}

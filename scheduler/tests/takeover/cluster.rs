//! Schedulers of a cluster with homes that move: messages arrive in any order between different
//! nodes, nodes die and return, partitions are handed over. Every home has perfect replicas of its
//! records, so that only the scheduler's own part is tested.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dice::Dice;
use prost::Message as _;
use proto::wire::MemberPhase;
use proto::wire::message::Body;
use proto::work::{Fetch, Launch, Stored};
use proto::{
    Attempt, ClientId, Event, Incarnation, JobId, NodeId, ObjectId, PartitionId, TaskId, Time, wire,
};
use scheduler::{Homes, Mutant, Options, Out, Policy, Request, Scheduler, Tuning, traits};

use crate::oracle::Oracle;
use crate::records::{Records, keep, touched};

pub(crate) type Step = Result<(), String>;

/// One process of a node.
pub(crate) struct Process {
    pub(crate) scheduler: Scheduler,
    pub(crate) map: Arc<wire::ClusterMap>,
    pub(crate) serves: BTreeSet<PartitionId>,
    /// The incarnations of peers that it has heard.
    pub(crate) heard: BTreeMap<usize, u32>,
    pub(crate) running: BTreeMap<(TaskId, Attempt), Launch>,
    pub(crate) fetching: Vec<Fetch>,
    pub(crate) steps: u64,
}

#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) process: Option<Process>,
    pub(crate) incarnation: u32,
    /// The objects on its disk.
    pub(crate) objects: BTreeSet<ObjectId>,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) nodes: usize,
    pub(crate) slots: u32,
    pub(crate) partitions: u32,
    pub(crate) deaths: u32,
    pub(crate) handovers: u32,
    pub(crate) mutant: Option<Mutant>,
    /// Out of a thousand messages that may be lost, this number arrives.
    pub(crate) best_effort_permille: u64,
    /// Dead nodes may return.
    pub(crate) returns: bool,
    /// The objects of a dead node are still available.
    pub(crate) objects_survive: bool,
}

pub(crate) struct Cluster {
    pub(crate) now: Time,
    pub(crate) dice: Dice,
    pub(crate) weather: Weather,
    pub(crate) map: wire::ClusterMap,
    pub(crate) machines: Vec<Machine>,
    pub(crate) records: BTreeMap<PartitionId, Records>,
    pub(crate) jobs: BTreeMap<JobId, wire::JobState>,
    /// Reliable messages by sender and receiver, oldest first.
    pub(crate) queues: BTreeMap<(usize, usize), VecDeque<Body>>,
    pub(crate) best_effort: Vec<(usize, usize, Body)>,
    /// Jobs with a commit that no home has accepted yet.
    pub(crate) commits: Vec<wire::JobCommit>,
    pub(crate) oracle: Oracle,
    pub(crate) trace: Option<Vec<String>>,
}

pub(crate) fn job_partition(job: JobId, partitions: u32) -> PartitionId {
    PartitionId(job.0 as u32 % partitions)
}

impl Cluster {
    pub(crate) fn new(seed: u64, weather: Weather) -> Self {
        let member = |node| wire::Member {
            node,
            slots: weather.slots,
            phase: MemberPhase::Up as i32,
            incarnation: 1,
            ..Default::default()
        };
        let nodes = weather.nodes as u32;
        let entry = |partition: u32| wire::PartitionEntry {
            epoch: 1,
            replicas: vec![partition % nodes],
            active: true,
            ..Default::default()
        };
        let map = wire::ClusterMap {
            epoch: 1,
            members: (0..nodes).map(member).collect(),
            partitions: (0..weather.partitions).map(entry).collect(),
            ..Default::default()
        };
        let mut cluster = Self {
            now: Time(1_000_000_000),
            dice: Dice::new(seed),
            map,
            machines: (0..nodes).map(|_| Machine::default()).collect(),
            records: BTreeMap::new(),
            jobs: BTreeMap::new(),
            queues: BTreeMap::new(),
            best_effort: Vec::new(),
            commits: Vec::new(),
            oracle: Oracle::default(),
            trace: None,
            weather,
        };
        for node in 0..cluster.machines.len() {
            cluster.start(node);
        }
        cluster
    }

    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    pub(crate) fn is_up(&self, node: usize) -> bool {
        self.machines[node].process.is_some()
    }
    pub(crate) fn up(&self) -> Vec<usize> {
        (0..self.machines.len()).filter(|&node| self.is_up(node)).collect()
    }
    pub(crate) fn primary(&self, partition: usize) -> usize {
        self.map.partitions[partition].replicas[0] as usize
    }

    pub(crate) fn start(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        machine.incarnation += 1;
        let member = &mut self.map.members[node];
        member.set_phase(MemberPhase::Up);
        member.incarnation = machine.incarnation;
        if machine.incarnation > 1 {
            self.map.epoch += 1;
        }
        let map = Arc::new(self.map.clone());
        let homes = Homes::new(NodeId(node as u32), &map, job_partition).moving();
        let tuning = Tuning { policy: Policy::Mlb, ..Tuning::default() };
        let options = Options {
            me: NodeId(node as u32),
            incarnation: Incarnation(machine.incarnation),
            slots: self.weather.slots,
            offer: None,
            end: None,
            tuning,
            seed: self.dice.number(),
            former: (Incarnation(machine.incarnation - 1), wire::LifeEnd::LifeDied),
            mutant: self.weather.mutant,
        };
        let scheduler = Scheduler::new(options, homes);
        machine.process = Some(Process {
            scheduler,
            map,
            serves: BTreeSet::new(),
            heard: BTreeMap::new(),
            running: BTreeMap::new(),
            fetching: Vec::new(),
            steps: 0,
        });
        let machine = &mut self.machines[node];
        let sizes = self.oracle.sizes.clone();
        let stored = machine.objects.iter().map(|&object| Stored {
            object,
            size_bytes: sizes.get(&object).copied().unwrap_or(0),
            stay: false.into(),
            copy: self.oracle.made.get(&object).is_none_or(|made| made.0 != node),
        });
        let stored: Vec<Stored> = stored.collect();
        let process = machine.process.as_mut().expect("made above");
        process.scheduler.on_stored(self.now, &stored);
        self.tell(|| format!("n{node} starts"));
        self.follow_map(node);
        self.act(node);
    }

    /// The process ends; its unacknowledged messages are lost with it.
    pub(crate) fn kill(&mut self, node: usize) {
        self.tell(|| format!("n{node} dies"));
        self.machines[node].process = None;
        // As in links: a message that it returned was not acknowledged before its sender had it
        // again.
        for other in 0..self.machines.len() {
            let said = self.queues.remove(&(node, other)).unwrap_or_default();
            if !self.is_up(other) {
                continue;
            }
            for body in said.iter().rev().filter_map(given_back) {
                self.queues.entry((other, node)).or_default().push_front(body);
            }
        }
        self.best_effort.retain(|&(from, to, _)| from != node && to != node);
        self.oracle.died(NodeId(node as u32));
        // It may return with its files, or without.
        if !self.weather.objects_survive && self.dice.chance(500) {
            self.machines[node].objects.clear();
        }
        self.map.members[node].set_phase(MemberPhase::Down);
        self.map.epoch += 1;
        for partition in 0..self.map.partitions.len() {
            if self.primary(partition) == node {
                self.move_home(partition);
            }
        }
    }

    /// Another node becomes primary, if there is one; the partition is not active yet.
    pub(crate) fn move_home(&mut self, partition: usize) {
        let others = self.up();
        let others: Vec<usize> =
            others.into_iter().filter(|&node| node != self.primary(partition)).collect();
        let home =
            if others.is_empty() { self.primary(partition) } else { self.dice.pick(&others) };
        let entry = &mut self.map.partitions[partition];
        entry.replicas = vec![home as u32];
        entry.active = false;
        entry.epoch += 1;
        self.map.epoch += 1;
        self.tell(|| format!("p{partition} moves to n{home}"));
    }

    /// The new primary registers once the previous one has given the partition up, or is dead.
    pub(crate) fn register(&mut self) {
        for partition in 0..self.map.partitions.len() {
            let home = self.primary(partition);
            let id = PartitionId(partition as u32);
            let held = |machine: &Machine| {
                machine.process.as_ref().is_some_and(|process| process.serves.contains(&id))
            };
            let open = !self.map.partitions[partition].active;
            if open && self.is_up(home) && !self.machines.iter().any(held) && self.dice.chance(500)
            {
                self.map.partitions[partition].active = true;
                self.map.epoch += 1;
                self.tell(|| format!("p{partition} is active on n{home}"));
            }
        }
    }

    /// A node learns the newest map.
    pub(crate) fn follow_map(&mut self, node: usize) {
        let now = self.now;
        let map = Arc::new(self.map.clone());
        let Some(process) = &mut self.machines[node].process else { return };
        let older = std::mem::replace(&mut process.map, map.clone());
        self.tell(|| format!("n{node} learns map {}", map.epoch));
        let mut out = Out::default();
        let process = self.machines[node].process.as_mut().expect("looked at above");
        let entries = (0..).map(PartitionId).zip(&map.partitions);
        let gone: Vec<PartitionId> = entries
            .clone()
            .filter(|(partition, entry)| {
                let was = &older.partitions[partition.0 as usize];
                let stays = entry.replicas[0] as usize == node && was.epoch == entry.epoch;
                process.serves.contains(partition) && !stays
            })
            .map(|(partition, _)| partition)
            .collect();
        let handed = handed_over(node, &gone, &map);
        process.scheduler.hand_over_partitions(&handed, &mut out);
        self.keep_facts(node, &mut out);
        let process = self.machines[node].process.as_mut().expect("looked at above");
        for partition in gone {
            process.serves.remove(&partition);
            process.scheduler.give_up(partition, &mut out);
        }
        out.kills
            .iter()
            .filter(|(task, _)| handed.contains(&task.partition()))
            .for_each(|&(task, attempt)| self.oracle.stopped(NodeId(node as u32), task, attempt));
        let homes = Homes::new(NodeId(node as u32), &map, job_partition);
        process.scheduler.set_homes(now, homes, &mut out);
        let mut given_back = Vec::new();
        for member in &map.members {
            let other = member.node as usize;
            // It may have come and gone again between two maps.
            let before = &older.members[other];
            let newly =
                before.phase() != MemberPhase::Down || before.incarnation < member.incarnation;
            if member.phase() == MemberPhase::Down && newly && other != node {
                let incarnation = Incarnation(member.incarnation);
                let peer = NodeId(member.node);
                process.scheduler.on_peer_gone(now, peer, incarnation, &mut out);
                let owed = self.queues.remove(&(node, other)).unwrap_or_default();
                given_back.extend(owed.into_iter().filter(|it| traits(it).survives_restart));
            }
        }
        process.scheduler.reroute(given_back, &mut out);
        for (partition, entry) in entries {
            let mine = entry.replicas[0] as usize == node && entry.active;
            if !mine || process.serves.contains(&partition) {
                continue;
            }
            for ((job, _, _), stored) in self.records.get(&partition).cloned().unwrap_or_default() {
                let record = stored.record();
                let adopted = process.scheduler.adopt(now, partition, job, record);
                adopted.expect("records fit one another");
            }
            for (&job, state) in &self.jobs {
                if job_partition(job, self.weather.partitions) == partition {
                    process.scheduler.adopt_job(partition, state.clone());
                }
            }
            process.serves.insert(partition);
            process.scheduler.serve(now, partition, entry.epoch as u32, &mut out);
        }
        self.finish_step(node, out);
    }

    /// Stages all chunks and keeps the commit for later.
    pub(crate) fn submit(&mut self, chunks: &[wire::Chunk], commit: wire::JobCommit) {
        for chunk in chunks {
            let home = self.primary(chunk.partition as usize);
            let accepted = self.request(home, Request::Submit(chunk.clone()));
            assert!(accepted, "n{home} should take a chunk");
        }
        self.commits.push(commit);
    }

    pub(crate) fn request(&mut self, node: usize, request: Request) -> bool {
        let mut out = Out::default();
        let now = self.now;
        let Some(process) = &mut self.machines[node].process else { return false };
        process.scheduler.on_request(now, ClientId(1), 1, request, &mut out);
        let accepted = out.answers.drain(..).all(|answer| answer.response.error.is_none());
        self.finish_step(node, out);
        accepted
    }

    pub(crate) fn commit(&mut self) {
        let Some(commit) = self.commits.last().cloned() else { return };
        let partition = job_partition(JobId(commit.job), self.weather.partitions);
        let home = self.primary(partition.0 as usize);
        if self.request(home, Request::Commit(commit)) {
            self.commits.pop();
        }
    }

    pub(crate) fn act(&mut self, node: usize) {
        self.finish_step(node, Out::default());
    }

    /// As a node ends its step: decides all that can be decided, keeps the facts, sends.
    pub(crate) fn finish_step(&mut self, node: usize, mut out: Out) {
        let now = self.now;
        let me = NodeId(node as u32);
        let Some(process) = &mut self.machines[node].process else { return };
        let mut loopback = VecDeque::new();
        let mut sends = Vec::new();
        let mut acted = false;
        loop {
            process.scheduler.settle(now, &mut out);
            route(&mut process.scheduler, me, &mut out, &mut loopback, &mut sends);
            if loopback.is_empty() {
                if acted {
                    break;
                }
                process.scheduler.act(now, &mut out);
                route(&mut process.scheduler, me, &mut out, &mut loopback, &mut sends);
                acted = true;
            }
            while let Some(body) = loopback.pop_front() {
                self.oracle.on_body(&body);
                process.scheduler.on_message(now, me, body, &mut out);
                acted = false;
            }
        }
        self.keep_facts(node, &mut out);
        for (to, reliable, body) in sends {
            let to = to.0 as usize;
            self.oracle.on_body(&body);
            if reliable {
                self.queues.entry((node, to)).or_default().push_back(body);
            } else {
                self.best_effort.push((node, to, body));
            }
        }
        self.carry_out(node, out);
    }

    /// The writes of a step reach all replicas.
    fn keep_facts(&mut self, node: usize, out: &mut Out) {
        let process = self.machines[node].process.as_mut().expect("it is in a step");
        process.steps += 1;
        let (scheduler, step) = (&process.scheduler, process.steps);
        for partition in touched(&out.facts) {
            assert!(scheduler.homes().is_mine(partition), "n{node} writes what is not its own");
        }
        let number = |partition: PartitionId| u64::from(scheduler.term(partition)) << 32 | step;
        keep(&mut self.records, &mut self.jobs, std::mem::take(&mut out.facts), number);
    }

    fn carry_out(&mut self, node: usize, out: Out) {
        for event in out.events {
            self.tell(|| format!("  n{node} {event:?}"));
            self.oracle.on_event(NodeId(node as u32), &event, &self.machines);
            if let Event::JobEnded { job, end } = event {
                self.oracle.job_ended(job, end);
            }
        }
        let machine = &mut self.machines[node];
        let process = machine.process.as_mut().expect("it has just stepped");
        for key in &out.kills {
            process.running.remove(key);
        }
        for (task, attempt) in &out.discards {
            machine.objects.retain(|object| (object.task, object.attempt) != (*task, *attempt));
        }
        for object in &out.evicted {
            machine.objects.remove(object);
        }
        process.fetching.extend(out.fetches);
        for launch in out.launches {
            self.oracle.launched(NodeId(node as u32), &launch, &machine.objects);
            process.running.insert((launch.task, launch.attempt), *launch);
        }
    }

    pub(crate) fn deliver(&mut self, from: usize, to: usize) {
        let heard = self.machines[from].incarnation;
        let mut out = Out::default();
        let now = self.now;
        let Some(process) = &mut self.machines[to].process else { return };
        let before = process.heard.insert(from, heard);
        if before != Some(heard) {
            let (peer, incarnation) = (NodeId(from as u32), Incarnation(heard));
            process.scheduler.on_peer_incarnation(now, peer, incarnation, &mut out);
            // A new session with a new incarnation.
            if before.is_some()
                && let Some(queue) = self.queues.get_mut(&(to, from))
            {
                queue.retain(|body| traits(body).survives_restart);
            }
        }
        if let Some(body) = self.queues.get_mut(&(from, to)).and_then(VecDeque::pop_front) {
            self.tell(|| format!("n{from} -> n{to} {}", brief(&body)));
            let process = self.machines[to].process.as_mut().expect("looked at above");
            process.scheduler.on_message(now, NodeId(from as u32), body, &mut out);
        }
        self.finish_step(to, out);
    }
}

fn route(
    scheduler: &mut Scheduler,
    me: NodeId,
    out: &mut Out,
    loopback: &mut VecDeque<Body>,
    sends: &mut Vec<(NodeId, bool, Body)>,
) {
    out.gather();
    scheduler.address(out);
    let reliable = out.reliable.drain(..).map(|(to, body)| (to, true, body));
    for (to, reliable, body) in
        reliable.chain(out.best_effort.drain(..).map(|(to, body)| (to, false, body)))
    {
        if to == me {
            loopback.push_back(body);
        } else {
            sends.push((to, reliable, body));
        }
    }
}

fn given_back(body: &Body) -> Option<Body> {
    let Body::WrongOwner(wrong_owner) = body else { return None };
    wire::Message::decode(wrong_owner.message.as_slice()).expect("it was a message").body
}

pub(crate) fn brief(body: &Body) -> String {
    format!("{body:?}").chars().take(160).collect()
}

/// Of these partitions of a node, those that move to other homes, which wait for its last records.
fn handed_over(node: usize, gone: &[PartitionId], map: &wire::ClusterMap) -> BTreeSet<PartitionId> {
    let is_awaited = |partition: &&PartitionId| {
        let entry = &map.partitions[partition.0 as usize];
        !entry.active && entry.replicas[0] != node as u32
    };
    gone.iter().filter(is_awaited).copied().collect()
}

//! All orders of all messages among a few gangs on a few nodes, with deaths of nodes.

use std::collections::{BTreeMap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use proto::{Attempt, Incarnation, NodeId, TaskId, Time};

use super::lead::{Ask, Asks, Lead, Verdict};
use super::line::{Answer, Line, Room, Stamp, Told};

const NOW: Time = Time(1);
const STATES_MAX: usize = 2_000_000;

/// The only unit of a node.
struct Unit<'a>(&'a mut bool);

impl Room for Unit<'_> {
    type Need = ();
    type Seat = ();
    fn yields(&self, _: Stamp) -> bool {
        false
    }
    fn take(&mut self, (): &()) -> Option<()> {
        std::mem::take(self.0).then_some(())
    }
    fn give_back(&mut self, (): ()) {
        assert!(!*self.0, "the unit was free already");
        *self.0 = true;
    }
    fn keep(&mut self, _: Stamp, (): &()) {}
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Node {
    line: Line<(), ()>,
    free: bool,
    life: u32,
}

/// The two directions of a link between a leader and a node.
type Link = (VecDeque<(Attempt, Ask)>, VecDeque<(Attempt, Answer)>);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Run {
    Waits,
    Runs,
    Ended,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    nodes: Vec<Node>,
    leads: Vec<Lead>,
    runs: Vec<Run>,
    links: BTreeMap<(usize, usize), Link>,
    deaths: u32,
}

/// Some gangs, each with the nodes that it asks; the first one leads it.
struct Setting {
    gangs: Vec<Vec<usize>>,
    nodes: usize,
    deaths: u32,
    ignores_age: bool,
    starts_without_lock: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Broken {
    /// A gang has started without one of its nodes.
    Unsafe,
    /// From some state on, a gang can never end.
    Stuck,
}

fn task(gang: usize) -> TaskId {
    TaskId::new(gang as u64 + 1, 0)
}

impl Setting {
    fn new(gangs: &[&[usize]], nodes: usize, deaths: u32) -> Self {
        let gangs = gangs.iter().map(|nodes| nodes.to_vec()).collect();
        Self { gangs, nodes, deaths, ignores_age: false, starts_without_lock: false }
    }

    fn lead(&self, gang: usize, attempt: u64) -> Lead {
        let leader = NodeId(self.gangs[gang][0] as u32);
        let stamp = Stamp::new(0, task(gang));
        let mut lead = Lead::new(leader, Attempt(attempt), stamp, self.gangs[gang].len());
        lead.starts_without_lock = self.starts_without_lock;
        lead
    }

    fn begin(&self) -> World {
        let node = Node { line: Line::new(self.ignores_age), free: true, life: 1 };
        let mut world = World {
            nodes: vec![node; self.nodes],
            leads: (0..self.gangs.len()).map(|gang| self.lead(gang, 1)).collect(),
            runs: vec![Run::Waits; self.gangs.len()],
            links: BTreeMap::new(),
            deaths: 0,
        };
        (0..self.gangs.len()).for_each(|gang| self.choose(&mut world, gang));
        world
    }

    fn choose(&self, world: &mut World, gang: usize) {
        let life = |node: &usize| (NodeId(*node as u32), Incarnation(world.nodes[*node].life));
        let fits: Vec<_> = self.gangs[gang].iter().map(life).collect();
        let mut asks = Asks::new();
        world.leads[gang].choose(NOW, &fits, &mut asks);
        world.send(gang, asks);
    }

    /// All that may happen next.
    fn next(&self, world: &World) -> Result<Vec<World>, Broken> {
        let mut next = Vec::new();
        for (&(gang, node), (down, up)) in &world.links {
            if !down.is_empty() {
                let mut after = world.clone();
                after.deliver_ask(gang, node);
                next.push(after);
            }
            if !up.is_empty() {
                let mut after = world.clone();
                self.deliver_answer(&mut after, gang, node)?;
                next.push(after);
            }
        }
        for gang in 0..self.gangs.len() {
            if world.runs[gang] == Run::Runs {
                let mut after = world.clone();
                after.runs[gang] = Run::Ended;
                after.stop(gang);
                next.push(after);
            }
        }
        if world.deaths < self.deaths && world.runs.iter().any(|run| *run != Run::Ended) {
            for node in 0..self.nodes {
                let mut after = world.clone();
                self.die(&mut after, node);
                next.push(after);
            }
        }
        Ok(next)
    }

    fn deliver_answer(&self, world: &mut World, gang: usize, node: usize) -> Result<(), Broken> {
        let link = world.links.get_mut(&(gang, node)).expect("it has an answer");
        let (attempt, answer) = link.1.pop_front().expect("it has an answer");
        if world.leads[gang].attempt != attempt || world.runs[gang] == Run::Ended {
            return Ok(());
        }
        let from = (NodeId(node as u32), Incarnation(world.nodes[node].life));
        let mut asks = Asks::new();
        let verdict = world.leads[gang].on_answer(from, answer, &mut asks);
        world.send(gang, asks);
        match verdict {
            Verdict::Waits => {}
            Verdict::Fails => self.fail(world, gang),
            Verdict::Starts => {
                let is_joined = |node: &usize| {
                    let mut parts = world.nodes[*node].line.parts();
                    parts.any(|(it, part)| {
                        it.task == task(gang) && part.attempt == attempt && part.is_joined()
                    })
                };
                if !self.gangs[gang].iter().all(is_joined) {
                    return Err(Broken::Unsafe);
                }
                let leader = self.gangs[gang][0];
                let seat = world.nodes[leader].line.take_seat(task(gang), attempt);
                assert!(seat.is_some(), "the first part has a seat");
                world.runs[gang] = Run::Runs;
            }
        }
        Ok(())
    }

    /// The attempt is lost: the next one begins at once.
    fn fail(&self, world: &mut World, gang: usize) {
        world.stop(gang);
        world.runs[gang] = Run::Waits;
        world.leads[gang] = self.lead(gang, world.leads[gang].attempt.0 + 1);
        self.choose(world, gang);
    }

    /// A node dies and is back at once, with nothing. All others know.
    fn die(&self, world: &mut World, node: usize) {
        world.deaths += 1;
        let life = world.nodes[node].life + 1;
        world.nodes[node] = Node { line: Line::new(self.ignores_age), free: true, life };
        world.links.retain(|&(gang, to), _| to != node && self.gangs[gang][0] != node);
        for other in 0..self.nodes {
            world.settle(other);
        }
        for gang in 0..self.gangs.len() {
            if world.runs[gang] == Run::Ended || !self.gangs[gang].contains(&node) {
                continue;
            }
            if self.gangs[gang][0] == node {
                world.runs[gang] = Run::Waits;
                world.leads[gang] = self.lead(gang, world.leads[gang].attempt.0 + 1);
                self.choose(world, gang);
            } else if world.leads[gang].has_joined() {
                self.fail(world, gang);
            } else {
                self.choose(world, gang);
            }
        }
    }

    /// Visits all states. Returns their number.
    fn explore(&self) -> Result<usize, Broken> {
        let begin = self.begin();
        let mut known = HashMap::with_hasher(FixedState::with_seed(0));
        known.insert(begin.clone(), 0);
        let mut before: Vec<Vec<usize>> = vec![Vec::new()];
        let (mut ends, mut queue) = (Vec::new(), VecDeque::from([begin]));
        while let Some(world) = queue.pop_front() {
            let at = known[&world];
            if world.runs.iter().all(|run| *run == Run::Ended) {
                ends.push(at);
            }
            for after in self.next(&world)? {
                let fresh = known.len();
                let to = *known.entry(after.clone()).or_insert(fresh);
                if to == fresh {
                    before.push(Vec::new());
                    queue.push_back(after);
                }
                before[to].push(at);
            }
            assert!(known.len() < STATES_MAX, "too many states");
        }
        let mut may_end = vec![false; known.len()];
        while let Some(at) = ends.pop() {
            if !std::mem::replace(&mut may_end[at], true) {
                ends.extend(&before[at]);
            }
        }
        if may_end.iter().all(|it| *it) { Ok(known.len()) } else { Err(Broken::Stuck) }
    }
}

impl World {
    fn send(&mut self, gang: usize, asks: Asks) {
        let attempt = self.leads[gang].attempt;
        for (node, ask) in asks {
            let link = self.links.entry((gang, node.0 as usize)).or_default();
            link.0.push_back((attempt, ask));
        }
    }
    fn answer(&mut self, told: impl IntoIterator<Item = (usize, Told)>) {
        for (node, (_, (task, attempt), answer)) in told {
            let gang = task.job.0 as usize - 1;
            self.links.entry((gang, node)).or_default().1.push_back((attempt, answer));
        }
    }
    /// The gang frees its nodes.
    fn stop(&mut self, gang: usize) {
        let leader = self.leads[gang].nodes()[0].0 as usize;
        let attempt = self.leads[gang].attempt;
        let ran = self.nodes[leader].line.parts().any(|(stamp, part)| {
            stamp.task == task(gang) && part.is_joined() && part.seat().is_none()
        });
        if ran {
            self.nodes[leader].free = true;
        }
        let asks = self.leads[gang].members().map(|(node, ..)| (node, Ask::Release));
        let asks: Asks = asks.collect();
        for (node, ask) in asks {
            let link = self.links.entry((gang, node.0 as usize)).or_default();
            link.0.push_back((attempt, ask));
        }
    }
    fn settle(&mut self, node: usize) {
        let lives: Vec<u32> = self.nodes.iter().map(|it| it.life).collect();
        let Node { line, free, .. } = &mut self.nodes[node];
        let gone = |(leader, life): (NodeId, Incarnation)| lives[leader.0 as usize] > life.0;
        let told = line.settle(NOW, &mut Unit(free), gone);
        self.answer(told.into_iter().map(|it| (node, it)));
    }
    fn deliver_ask(&mut self, gang: usize, node: usize) {
        let link = self.links.get_mut(&(gang, node)).expect("it has an ask");
        let (attempt, ask) = link.0.pop_front().expect("it has an ask");
        let leader = self.leads[gang].nodes()[0];
        let life = Incarnation(self.nodes[leader.0 as usize].life);
        let Node { line, free, .. } = &mut self.nodes[node];
        let answer = match ask {
            Ask::Reserve => {
                let stamp = Stamp::new(0, task(gang));
                let seat = line.reserve(NOW, stamp, (attempt, (leader, life)), ());
                *free |= seat.is_some();
                None
            }
            Ask::Lock(round) => Some(line.lock(NOW, task(gang), attempt, round)),
            Ask::Join => Some(line.join(task(gang), attempt)),
            Ask::Unlock => {
                line.unlock(NOW, task(gang), attempt);
                None
            }
            Ask::Release => {
                *free |= line.release(task(gang), attempt).is_some();
                None
            }
        };
        let told = answer.map(|answer| (node, (leader, (task(gang), attempt), answer)));
        self.answer(told);
        self.settle(node);
    }
}

const RING: [&[usize]; 3] = [&[0, 1], &[1, 2], &[2, 0]];
const PAIR: [&[usize]; 2] = [&[0, 1], &[1, 0]];

#[test]
fn gangs_end_in_every_order_of_messages() {
    let pair = Setting::new(&PAIR, 2, 0).explore().unwrap();
    assert!(pair > 1_000, "{pair}");
}

/// `cargo test --release -p scheduler gangs_end_although -- --ignored`
#[test]
#[ignore = "takes minutes without optimisation"]
fn gangs_end_although_nodes_die() {
    let pair = Setting::new(&PAIR, 2, 1).explore().unwrap();
    assert!(pair > 1_000, "{pair}");
}

#[test]
fn without_age_gangs_wait_for_each_other() {
    let ring = Setting { ignores_age: true, ..Setting::new(&RING, 3, 0) };
    let pair = Setting { ignores_age: true, ..Setting::new(&PAIR, 2, 0) };
    assert_eq!((ring.explore(), pair.explore()), (Err(Broken::Stuck), Err(Broken::Stuck)));
}

#[test]
fn without_locks_a_gang_starts_on_nodes_that_it_has_lost() {
    let pair = Setting { starts_without_lock: true, ..Setting::new(&PAIR, 2, 0) };
    assert_eq!(pair.explore(), Err(Broken::Unsafe));
}

//! Properties of the decisions of all policies, for any inputs and any places of copies.

use proto::event::Reason;
use proto::{NodeId, Span, Time, wire};

use crate::holder::task::Work;
use crate::tests::earliest_finish_tests::work;
use crate::tests::test_nodes;
use crate::{Decision, Policy, Scheduler, Tuning};

const ME: NodeId = NodeId(0);
const NODES: u32 = 6;
const TASKS: usize = 5_000;

struct Draws(u64);

impl Draws {
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
    fn node(&mut self) -> u32 {
        self.below(NODES.into()) as u32
    }
    fn work(&mut self) -> Work {
        let inputs = (0..self.below(6)).map(|_| {
            let mut copies: Vec<u32> = (0..self.below(4)).map(|_| self.node()).collect();
            copies.dedup();
            wire::InputAt {
                node: self.node(),
                // Often equal, and often zero.
                size_bytes: self.below(4) * 50_000_000,
                consumers: self.below(3) as u32,
                copies,
                ..Default::default()
            }
        });
        let inputs = inputs.collect();
        work(inputs, 1 + self.below(4) as u32)
    }
}

/// Nodes of one to four slots; this one has four.
fn home(policy: Policy) -> Scheduler {
    let member = |node: u32| wire::Member { slots: 1 + (node + 3) % 4, ..test_nodes::member(node) };
    let partitions: Vec<u32> = (0..8).map(|partition| partition % NODES).collect();
    let homes = test_nodes::homes(ME.0, (0..NODES).map(member).collect(), &partitions);
    // Inputs of 100 MB take a second, like tasks.
    let tuning = Tuning { bandwidth_bytes_per_s: 1e8, threshold: 0.5, ..Tuning::of(policy) };
    test_nodes::scheduler(ME.0, 4, tuning, homes)
}

fn has(input: &wire::InputAt, node: NodeId) -> bool {
    input.node == node.0 || input.copies.contains(&node.0)
}

fn bytes_at(work: &Work, node: NodeId) -> u64 {
    work.inputs.iter().filter(|input| has(input, node)).map(|input| input.size_bytes).sum()
}

#[test]
fn each_copy_of_the_largest_input_counts_as_a_parent() {
    let mut pushed_to_copies = 0;
    for policy in [Policy::Mdl, Policy::Rlds, Policy::Flds, Policy::Adaptive] {
        let home = home(policy);
        let ties_all = home.rules().threshold == Some(0.0);
        let mut draws = Draws(policy as u64);
        for _ in 0..TASKS {
            let work = draws.work();
            let size = work.inputs.iter().map(|input| input.size_bytes).max().unwrap_or(0);
            let largest = work.inputs.iter().find(|input| input.size_bytes == size);
            match home.decide(Time(0), &work) {
                Decision::Shared(reason) => {
                    assert!(!ties_all || size == 0, "{reason:?}")
                }
                Decision::Local => assert!(has(largest.unwrap(), ME), "{:?}", work.inputs),
                Decision::Push(node) => {
                    let largest = largest.unwrap();
                    assert!(!has(largest, ME) && has(largest, node), "{node} {:?}", work.inputs);
                    let fits = |node: NodeId| home.routing.homes().fits(node, work.cpus());
                    let others = (0..NODES).map(NodeId).filter(|&other| has(largest, other));
                    let most = others.filter(|&it| fits(it)).map(|it| bytes_at(&work, it)).max();
                    assert!(most.is_none() || fits(node), "{node} {:?}", work.inputs);
                    assert!(most.is_none_or(|most| bytes_at(&work, node) == most), "{node}");
                    pushed_to_copies += u32::from(node.0 != largest.node);
                }
            }
        }
    }
    assert!(pushed_to_copies > 500, "{pushed_to_copies}");
}

#[test]
fn of_equal_parents_the_maker_goes_first() {
    let input = |copies: &[u32]| wire::InputAt {
        node: 1,
        size_bytes: 100_000_000,
        copies: copies.to_vec(),
        ..Default::default()
    };
    let home = home(Policy::Mdl);
    let decide = |inputs: Vec<wire::InputAt>| home.decide(Time(0), &work(inputs, 1));
    assert_eq!(decide(vec![input(&[2, 3])]), Decision::Push(NodeId(1)));
    assert_eq!(decide(vec![input(&[2, 3]), input(&[3])]), Decision::Push(NodeId(1)));
    let also_there = wire::InputAt { node: 3, size_bytes: 1, ..Default::default() };
    assert_eq!(decide(vec![input(&[2, 3]), also_there]), Decision::Push(NodeId(3)));
    assert_eq!(decide(vec![input(&[2, 0])]), Decision::Local);
}

/// Before anything moves, the derived policies decide like the paper's.
#[test]
fn before_anything_is_moved_flds_and_adaptive_are_rlds() {
    let [rlds, flds, adaptive] = [Policy::Rlds, Policy::Flds, Policy::Adaptive].map(home);
    let mut draws = Draws(1);
    for _ in 0..TASKS {
        let work = draws.work();
        let expected = rlds.decide(Time(0), &work);
        assert_eq!(flds.decide(Time(0), &work), expected, "{:?}", work.inputs);
        assert_eq!(adaptive.decide(Time(0), &work), expected, "{:?}", work.inputs);
    }
}

#[test]
fn earliest_finish_sends_nothing_where_it_does_not_fit_or_has_no_data() {
    let mut home = home(Policy::Eft);
    let mut draws = Draws(2);
    let mut pushed = 0;
    for round in 0..TASKS {
        if round % 10 == 0 {
            let (slots, work_ns) = (1 + draws.below(4) as u32, draws.below(20) * 1_000_000_000);
            let load = wire::Load { slots, work_ns, ..Default::default() };
            home.on_load(Time(0), NodeId(draws.node()), &load);
        }
        let work = draws.work();
        match home.decide(Time(0), &work) {
            Decision::Push(node) => {
                assert!(node != ME && home.routing.homes().fits(node, work.cpus()), "{node}");
                assert!(bytes_at(&work, node) > 0, "{node} {:?}", work.inputs);
                pushed += 1;
            }
            Decision::Local => assert!(bytes_at(&work, ME) > 0, "{:?}", work.inputs),
            Decision::Shared(reason) => {
                assert_eq!(reason == Reason::NoInput, work.input_bytes() == 0);
            }
        }
    }
    assert!(pushed > 100, "{pushed}");
}

/// If no wait is worth it, the policy shares all tasks, as MLB. With empty queues and one input, it
/// sends the task to that input, as MDL.
#[test]
fn earliest_finish_has_mlb_and_mdl_as_its_limits() {
    let (mut mlb, mut mdl) = (home(Policy::Eft), home(Policy::Eft));
    mlb.options.tuning.threshold = f64::INFINITY;
    mdl.options.tuning.threshold = 0.0;
    let by_the_paper = home(Policy::Mdl);
    let mut draws = Draws(3);
    for _ in 0..TASKS {
        let mut work = draws.work();
        assert!(matches!(mlb.decide(Time(0), &work), Decision::Shared(_)), "{:?}", work.inputs);
        work.inputs.truncate(1);
        let expected = by_the_paper.decide(Time(0), &work);
        let decided = mdl.decide(Time(0), &work);
        let fits = |decision| match decision {
            Decision::Push(node) => mdl.routing.homes().fits(node, work.cpus()),
            _ => true,
        };
        match (decided, expected) {
            // All nodes with the input are equal.
            (Decision::Push(node), Decision::Push(_)) => assert!(has(&work.inputs[0], node)),
            (Decision::Shared(_), expected @ Decision::Push(_)) => assert!(!fits(expected)),
            (decided, expected) => assert_eq!(decided, expected, "{:?}", work.inputs),
        }
    }
}

#[test]
fn a_length_that_was_declared_counts_until_one_was_measured() {
    let mut home = home(Policy::Rlds);
    let input = wire::InputAt { node: 1, size_bytes: 100_000_000, ..Default::default() };
    let mut task = work(vec![input], 1);
    task.duration = Span::from_secs(10);
    assert_eq!(home.decide(Time(0), &task), Decision::Shared(Reason::SmallInputs));
    home.policy.note_length("", Span::from_millis(100));
    assert_eq!(home.decide(Time(0), &task), Decision::Push(NodeId(1)));
}

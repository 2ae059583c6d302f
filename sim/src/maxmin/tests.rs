use super::*;
use crate::SimRng;

const S: u64 = 1_000_000_000;

/// Runs until every transfer has ended: (time, tag), sorted.
fn drain(network: &mut MaxMin<u32>) -> Vec<(u64, u32)> {
    let mut ends = Vec::new();
    while let Some(at) = network.next_end_ns() {
        ends.push((at, network.take_ended(at).expect("it ends now")));
    }
    ends.sort_unstable();
    ends
}

#[test]
fn two_transfers_over_one_card_take_twice_as_long() {
    let mut network = MaxMin::new(3, 100.0);
    network.start(0, 0, 1, 1000, 1);
    assert_eq!(drain(&mut network), [(10 * S, 1)]);
    network.start(10 * S, 0, 1, 1000, 1);
    network.start(10 * S, 0, 2, 1000, 2);
    assert_eq!(drain(&mut network), [(30 * S, 1), (30 * S, 2)]);
    // Out and in are separate links.
    network.start(30 * S, 0, 1, 1000, 1);
    network.start(30 * S, 1, 0, 1000, 2);
    assert_eq!(drain(&mut network), [(40 * S, 1), (40 * S, 2)]);
}

#[test]
fn a_flow_that_is_limited_elsewhere_leaves_the_rest_to_others() {
    // Three into node 3: each a third. The second flow of node 0 gets two thirds of its card.
    let mut network = MaxMin::new(5, 90.0);
    for from in 0..3 {
        network.start(0, from, 3, 300, from as u32);
    }
    network.start(0, 0, 4, 600, 9);
    assert_eq!(drain(&mut network), [(10 * S, 0), (10 * S, 1), (10 * S, 2), (10 * S, 9)]);
}

#[test]
fn a_transfer_that_ends_speeds_the_other_up() {
    let mut network = MaxMin::new(3, 100.0);
    network.start(0, 0, 1, 500, 1);
    network.start(0, 0, 2, 1500, 2);
    assert_eq!(drain(&mut network), [(10 * S, 1), (20 * S, 2)]);
    assert!(network.is_empty());
}

/// Textbook progressive filling from scratch.
fn naive(flows: &[Vec<u32>], capacities: &[f64]) -> Vec<f64> {
    let mut rates = vec![f64::NAN; flows.len()];
    let mut free = capacities.to_vec();
    while rates.iter().any(|rate| rate.is_nan()) {
        let crossing = |link: u32| {
            let open = (0..flows.len())
                .filter(|&flow| rates[flow].is_nan() && flows[flow].contains(&link));
            open.collect::<Vec<_>>()
        };
        let fair = |link: u32| match crossing(link).len() {
            0 => f64::INFINITY,
            n => free[link as usize] / n as f64,
        };
        let tightest = (0..capacities.len() as u32)
            .min_by(|&a, &b| fair(a).total_cmp(&fair(b)))
            .expect("there are links");
        let rate = fair(tightest);
        for flow in crossing(tightest) {
            rates[flow] = rate;
            flows[flow].iter().for_each(|&link| free[link as usize] -= rate);
        }
    }
    rates
}

/// Starts and ends flows at random, and compares all rates after each.
fn compare(seed: u64, dice: &mut SimRng, nodes: usize, mut network: MaxMin<u32>) {
    let mut now_ns = 0;
    for step in 0..150_u32 {
        let from = dice.index(nodes);
        let to = (from + 1 + dice.index(nodes - 1)) % nodes;
        if dice.chance(600) || network.is_empty() {
            network.start(now_ns, from, to, 1 + dice.below(1_000_000), step);
        } else {
            now_ns = network.next_end_ns().expect("some flow is under way");
            network.take_ended(now_ns).expect("it ends now");
        }
        let open: Vec<_> = network.flows.iter().filter(|flow| flow.tag.is_some()).collect();
        let ways: Vec<Vec<u32>> = open.iter().map(|flow| flow.path().collect()).collect();
        let capacities: Vec<f64> = network.links.iter().map(|link| link.capacity).collect();
        let rates = naive(&ways, &capacities);
        for (flow, rate) in open.iter().zip(&rates) {
            let off = (flow.rate - rate).abs() / rate;
            assert!(off < 1e-6, "seed {seed} step {step}: {} not {rate}", flow.rate);
        }
    }
}

#[test]
fn local_solving_equals_solving_all() {
    for seed in 0..60 {
        let mut dice = SimRng::new(seed);
        let nodes = 2 + dice.index(12);
        compare(seed, &mut dice, nodes, MaxMin::new(nodes, 1e9));
    }
}

#[test]
fn so_it_does_in_a_tree() {
    for seed in 0..60 {
        let mut dice = SimRng::new(seed);
        let nodes = 2 + dice.index(16);
        let racks = 1 + dice.index(nodes) as u32;
        let oversubscription = [1.0, 1.5, 4.0, 10.0][dice.index(4)];
        let tree = MaxMin::tree(nodes, 1e9, Racks { racks, oversubscription });
        compare(seed, &mut dice, nodes, tree);
    }
}

#[test]
fn a_rack_s_way_out_is_shared_by_its_nodes() {
    // Two racks of four, 100 bytes/s a card: 4 x 100 / 4 = 100 bytes/s between the racks.
    let mut network = MaxMin::tree(8, 100.0, Racks { racks: 2, oversubscription: 4.0 });
    for node in 0..4 {
        network.start(0, node, node + 4, 1000, node as u32);
    }
    // Within a rack only the cards limit: node 1 has 75 left beside its 25 upwards.
    network.start(0, 1, 2, 3000, 9);
    let ends = drain(&mut network);
    assert_eq!(ends, [(40 * S, 0), (40 * S, 1), (40 * S, 2), (40 * S, 3), (40 * S, 9)]);
    // The other direction is another link, and a single flow gets all of it.
    network.start(40 * S, 4, 0, 1000, 1);
    network.start(40 * S, 0, 4, 500, 2);
    assert_eq!(drain(&mut network), [(45 * S, 2), (50 * S, 1)]);
}

#[test]
fn racks_are_even_and_the_uneven_one_has_a_thinner_way_out() {
    // 5 nodes in 2 racks: three and two. The first has 90 x 3 / 3 = 90 up, the second 60.
    let mut network = MaxMin::tree(5, 90.0, Racks { racks: 2, oversubscription: 3.0 });
    network.start(0, 0, 3, 900, 1);
    assert_eq!(drain(&mut network), [(15 * S, 1)], "60 into the second rack");
    network.start(15 * S, 3, 0, 300, 1);
    network.start(15 * S, 4, 1, 300, 2);
    assert_eq!(drain(&mut network), [(25 * S, 1), (25 * S, 2)], "30 each out of the second");
}

/// If the links up carry as much as the cards, they never limit.
#[test]
fn without_oversubscription_a_tree_is_no_tree() {
    for seed in 0..20 {
        let mut dice = SimRng::new(seed);
        let nodes = 2 + dice.index(12);
        let racks = 1 + dice.index(nodes) as u32;
        let mut flat = MaxMin::new(nodes, 1e6);
        let mut tree = MaxMin::tree(nodes, 1e6, Racks { racks, oversubscription: 1.0 });
        let mut now_ns = 0;
        for tag in 0..200_u32 {
            let from = dice.index(nodes);
            let to = (from + 1 + dice.index(nodes - 1)) % nodes;
            let bytes = 1 + dice.below(1_000_000);
            flat.start(now_ns, from, to, bytes, tag);
            tree.start(now_ns, from, to, bytes, tag);
            while flat.len() > 12 {
                let at = flat.next_end_ns().expect("there are flows");
                let other = tree.next_end_ns().expect("as many");
                assert!(at.abs_diff(other) <= 2, "seed {seed}: {at} and {other}");
                now_ns = at.max(other);
                let (one, other) = (flat.take_ended(now_ns), tree.take_ended(now_ns));
                assert_eq!(one, other, "seed {seed}");
            }
        }
    }
}

/// Prints the cost of a hundred busy cards, without a limit.
#[test]
fn a_change_touches_few_flows() {
    let mut dice = SimRng::new(7);
    let (nodes, open, changes) = (100, 800, 2_000);
    let mut network = MaxMin::new(nodes, 125e6);
    let mut now_ns = 0;
    for tag in 0..open + changes {
        let from = dice.index(nodes);
        let to = (from + 1 + dice.index(nodes - 1)) % nodes;
        if tag >= open {
            now_ns = network.next_end_ns().expect("flows are under way");
            network.take_ended(now_ns).expect("it ends now");
        }
        network.start(now_ns, from, to, 12_000_000, tag);
    }
    let per_change = network.solved_total as f64 / f64::from(open + 2 * changes);
    println!("{per_change:.1} rates computed a change, of {} flows", network.len());
    assert_eq!(network.len(), open as usize);
}

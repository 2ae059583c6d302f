/*!
Max-min fair sharing of full-duplex network cards: every flow gets as much as is possible without
taking from one that has no more.

Each node has one link in and one link out; a flow crosses the sender's out and the receiver's in.
In a max-min fair allocation every flow has a *bottleneck*: a saturated link on which no other flow
is faster. That is also the test whether an allocation is right, so a start or an end of a flow is
solved locally: first only the flows on its two links, with all others as they are; where a flow
loses its bottleneck by that, or takes from one with less, it joins those that are solved anew.
*/

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Rates that differ by less than this share of themselves are equal.
const EQUAL: f64 = 1e-9;
/// After so many rounds all flows on all touched links join at once.
const ROUNDS_LOCAL_MAX: u32 = 8;

type FlowIndex = u32;

#[derive(Clone, Debug)]
struct Flow<T> {
    tag: Option<T>,
    /// Out of the sender, into the receiver; and where it stands in each link's list.
    links: [u32; 2],
    places: [u32; 2],
    bottleneck: u32,
    rate: f64,
    /// Of the round under way.
    new_rate: f64,
    new_bottleneck: u32,
    remaining_bytes: f64,
    settled_ns: u64,
    end_ns: u64,
    mark: u64,
}

#[derive(Clone, Debug, Default)]
struct Link {
    flows: Vec<FlowIndex>,
    /// Sum of the rates of its flows.
    load: f64,
    mark: u64,
    /// Of the round under way: what is left for the flows that are solved, how many are not frozen.
    free: f64,
    unfrozen: u32,
    changed: bool,
}

/// Flows between nodes whose links all have one capacity. Rates are bytes per nanosecond.
#[derive(Clone, Debug)]
pub struct MaxMin<T> {
    capacity: f64,
    flows: Vec<Flow<T>>,
    vacant: Vec<FlowIndex>,
    links: Vec<Link>,
    /// Ends by time; entries that are not a flow's present end are passed over.
    ends: BinaryHeap<Reverse<(u64, FlowIndex)>>,
    round: u64,
    // Kept to save allocations.
    solved: Vec<FlowIndex>,
    touched: Vec<u32>,
    fill: BinaryHeap<Reverse<(Share, u32)>>,
    /// Flows whose rates were computed, for the curious.
    pub solved_total: u64,
}

/// A rate that can be ordered; never NaN.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Share(f64);
impl Eq for Share {}
impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Share {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl<T> MaxMin<T> {
    /// # Panics
    /// When the capacity is not a positive finite number.
    #[must_use]
    pub fn new(nodes: usize, bytes_per_s: f64) -> Self {
        assert!(bytes_per_s.is_finite() && bytes_per_s > 0.0, "a link carries something");
        Self {
            capacity: bytes_per_s / 1e9,
            flows: Vec::new(),
            vacant: Vec::new(),
            links: vec![Link::default(); nodes * 2],
            ends: BinaryHeap::new(),
            round: 0,
            solved: Vec::new(),
            touched: Vec::new(),
            fill: BinaryHeap::new(),
            solved_total: 0,
        }
    }

    /// Flows under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len() - self.vacant.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A transfer begins. It is known by its tag when it ends.
    ///
    /// # Panics
    /// When a node sends to itself.
    pub fn start(&mut self, now_ns: u64, from: usize, to: usize, bytes: u64, tag: T) {
        assert_ne!(from, to, "a node has its own objects");
        let links = [from as u32 * 2, to as u32 * 2 + 1];
        let places = links.map(|link| self.links[link as usize].flows.len() as u32);
        let flow = Flow {
            tag: Some(tag),
            links,
            places,
            bottleneck: u32::MAX,
            rate: 0.0,
            new_rate: 0.0,
            new_bottleneck: u32::MAX,
            remaining_bytes: bytes as f64,
            settled_ns: now_ns,
            end_ns: u64::MAX,
            mark: 0,
        };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.flows[index as usize] = flow;
                index
            }
            None => {
                self.flows.push(flow);
                (self.flows.len() - 1) as FlowIndex
            }
        };
        for link in links {
            self.links[link as usize].flows.push(index);
        }
        self.solve(now_ns, &links);
    }

    /// When the next transfer ends, if nothing else happens before.
    pub fn next_end_ns(&mut self) -> Option<u64> {
        while let Some(&Reverse((at, index))) = self.ends.peek() {
            let flow = &self.flows[index as usize];
            if flow.tag.is_some() && flow.end_ns == at {
                return Some(at);
            }
            self.ends.pop();
        }
        None
    }

    /// Takes out one transfer that has ended by now.
    pub fn take_ended(&mut self, now_ns: u64) -> Option<T> {
        let at = self.next_end_ns()?;
        if at > now_ns {
            return None;
        }
        let Reverse((_, index)) = self.ends.pop().expect("looked at above");
        let flow = &mut self.flows[index as usize];
        let (tag, links, places) = (flow.tag.take(), flow.links, flow.places);
        let mut disturbed = [u32::MAX; 2];
        for side in 0..2 {
            let link = &mut self.links[links[side] as usize];
            // On a link that was not full nobody waited for this flow.
            if link.load >= self.capacity * (1.0 - EQUAL) {
                disturbed[side] = links[side];
            }
            link.flows.swap_remove(places[side] as usize);
            if let Some(&moved) = link.flows.get(places[side] as usize) {
                self.flows[moved as usize].places[side] = places[side];
            }
            self.refresh_load(links[side]);
        }
        self.vacant.push(index);
        self.solve(at, &disturbed);
        tag
    }

    fn refresh_load(&mut self, link: u32) {
        let flows = &self.flows;
        let link = &mut self.links[link as usize];
        link.load = link.flows.iter().map(|&flow| flows[flow as usize].rate).sum();
    }

    /// Finds the rates after a change on these links.
    fn solve(&mut self, now_ns: u64, seeds: &[u32; 2]) {
        self.round += 1;
        self.solved.clear();
        self.touched.clear();
        for &link in seeds.iter().filter(|link| **link != u32::MAX) {
            self.join_all(link);
        }
        let mut rounds = 0;
        while !self.solved.is_empty() {
            self.fill();
            rounds += 1;
            if !self.widen(rounds > ROUNDS_LOCAL_MAX) {
                break;
            }
        }
        self.commit(now_ns);
    }

    fn join_all(&mut self, link: u32) {
        for at in 0..self.links[link as usize].flows.len() {
            let flow = self.links[link as usize].flows[at];
            self.join(flow);
        }
    }

    fn join(&mut self, index: FlowIndex) {
        let flow = &mut self.flows[index as usize];
        if flow.mark == self.round {
            return;
        }
        flow.mark = self.round;
        self.solved.push(index);
        for link in flow.links {
            if self.links[link as usize].mark != self.round {
                self.links[link as usize].mark = self.round;
                self.touched.push(link);
            }
        }
    }

    /// Progressive filling of the flows that are solved; the others keep what they have.
    fn fill(&mut self) {
        self.solved_total += self.solved.len() as u64;
        for &link in &self.touched {
            let link = &mut self.links[link as usize];
            link.free = self.capacity - link.load;
            link.unfrozen = 0;
            link.changed = false;
        }
        for &index in &self.solved {
            let flow = &mut self.flows[index as usize];
            flow.new_bottleneck = u32::MAX;
            for link in flow.links {
                let link = &mut self.links[link as usize];
                link.free += flow.rate;
                link.unfrozen += 1;
            }
        }
        self.fill.clear();
        for &at in &self.touched {
            let link = &self.links[at as usize];
            self.fill.push(Reverse((share(link), at)));
        }
        while let Some(Reverse((share_then, at))) = self.fill.pop() {
            let link = &self.links[at as usize];
            if link.unfrozen == 0 {
                continue;
            }
            let share_now = share(link);
            // Freezing flows at a lower rate leaves more for the rest: an old entry is too low.
            if share_now.0 > share_then.0 * (1.0 + EQUAL) {
                self.fill.push(Reverse((share_now, at)));
                continue;
            }
            for place in 0..self.links[at as usize].flows.len() {
                let index = self.links[at as usize].flows[place];
                let flow = &mut self.flows[index as usize];
                if flow.mark != self.round || flow.new_bottleneck != u32::MAX {
                    continue;
                }
                flow.new_bottleneck = at;
                flow.new_rate = share_now.0;
                for link in flow.links {
                    let link = &mut self.links[link as usize];
                    link.free -= share_now.0;
                    link.unfrozen -= 1;
                }
            }
        }
    }

    /// Lets those join whose bottleneck is none any more, and those that have more than a flow they
    /// share its bottleneck with. False when there are none: the allocation is fair.
    fn widen(&mut self, whole: bool) -> bool {
        let before = self.solved.len();
        for at in 0..before {
            let flow = &self.flows[self.solved[at] as usize];
            let differs = (flow.new_rate - flow.rate).abs() > EQUAL * flow.rate.max(flow.new_rate);
            if differs || flow.new_bottleneck != flow.bottleneck {
                for link in flow.links {
                    self.links[link as usize].changed = true;
                }
            }
        }
        for at in 0..self.touched.len() {
            let number = self.touched[at];
            if whole {
                self.join_all(number);
            } else if self.links[number as usize].changed {
                self.widen_at(number);
            }
        }
        self.solved.len() > before
    }

    fn widen_at(&mut self, number: u32) {
        let link = &self.links[number as usize];
        let (mut total, mut highest, mut frozen_here) = (0.0_f64, 0.0_f64, f64::INFINITY);
        for &index in &link.flows {
            let flow = &self.flows[index as usize];
            let solved = flow.mark == self.round;
            let rate = if solved { flow.new_rate } else { flow.rate };
            total += rate;
            highest = highest.max(rate);
            if solved && flow.new_bottleneck == number {
                frozen_here = frozen_here.min(rate);
            }
        }
        let full = total >= self.capacity * (1.0 - EQUAL);
        for place in 0..self.links[number as usize].flows.len() {
            let index = self.links[number as usize].flows[place];
            let flow = &self.flows[index as usize];
            if flow.mark == self.round {
                continue;
            }
            let may_rise =
                flow.bottleneck == number && (!full || flow.rate < highest * (1.0 - EQUAL));
            let takes_more = flow.rate > frozen_here * (1.0 + EQUAL);
            if may_rise || takes_more {
                self.join(index);
            }
        }
    }

    fn commit(&mut self, now_ns: u64) {
        for at in 0..self.solved.len() {
            let index = self.solved[at];
            let flow = &mut self.flows[index as usize];
            flow.bottleneck = flow.new_bottleneck;
            if flow.rate == flow.new_rate {
                continue;
            }
            let passed_ns = now_ns.saturating_sub(flow.settled_ns) as f64;
            flow.remaining_bytes = (flow.remaining_bytes - passed_ns * flow.rate).max(0.0);
            flow.settled_ns = now_ns;
            flow.rate = flow.new_rate;
            let left_ns = (flow.remaining_bytes / flow.rate).round();
            flow.end_ns = now_ns.saturating_add(left_ns as u64);
            self.ends.push(Reverse((flow.end_ns, index)));
        }
        for at in 0..self.touched.len() {
            self.refresh_load(self.touched[at]);
        }
    }
}

fn share(link: &Link) -> Share {
    Share((link.free / f64::from(link.unfrozen.max(1))).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dice;

    const S: u64 = 1_000_000_000;

    /// Runs until everything has ended: (time, tag), sorted.
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
        // In and out are two ways.
        network.start(30 * S, 0, 1, 1000, 1);
        network.start(30 * S, 1, 0, 1000, 2);
        assert_eq!(drain(&mut network), [(40 * S, 1), (40 * S, 2)]);
    }

    #[test]
    fn who_is_held_up_elsewhere_leaves_the_rest_to_others() {
        // Three into node 3: each a third; the second flow of node 0 gets two thirds of its card.
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

    /// Progressive filling from scratch, as a textbook has it.
    fn naive(flows: &[[u32; 2]], links: usize, capacity: f64) -> Vec<f64> {
        let mut rates = vec![f64::NAN; flows.len()];
        let mut free = vec![capacity; links];
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
            let tightest = (0..links as u32)
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

    #[test]
    fn local_solving_equals_solving_all() {
        for seed in 0..60 {
            let mut dice = Dice::new(seed);
            let nodes = 2 + dice.index(12);
            let mut network = MaxMin::new(nodes, 1e9);
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
                let ways: Vec<_> = open.iter().map(|flow| flow.links).collect();
                let rates = naive(&ways, nodes * 2, network.capacity);
                for (flow, rate) in open.iter().zip(&rates) {
                    let off = (flow.rate - rate).abs() / rate;
                    assert!(off < 1e-6, "seed {seed} step {step}: {} not {rate}", flow.rate);
                }
            }
        }
    }

    /// What a hundred busy cards cost; printed, not demanded.
    #[test]
    fn a_change_touches_few_flows() {
        let mut dice = Dice::new(7);
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
}

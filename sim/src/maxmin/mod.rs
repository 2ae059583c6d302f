/*!
Max-min fair sharing of full-duplex network cards. No flow can get more bandwidth without taking it
from a flow that has no more.

Each node has one link in and one link out. A flow crosses the sender's link out and the receiver's
link in. In a tree of two levels each rack also has a link up and a link down. Flows between racks
cross these as well.

In a max-min fair allocation every flow has a *bottleneck*: a saturated link on which no other flow
is faster. The reverse holds as well, so a start or an end of a flow is solved locally. At first
only the flows on its links are solved, with all other rates fixed. A flow joins the solved set if
it loses its bottleneck, or if it is faster than a flow that shares its bottleneck.
*/

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Rates that differ by less than this share are equal.
const EQUAL: f64 = 1e-9;
/// After this number of rounds all flows on all touched links join at once.
const ROUNDS_LOCAL_MAX: u32 = 8;

/// The sender's link out, the link up from its rack, the link down to the other rack, and the
/// receiver's link in. Within a rack the two in the middle are absent.
const HOPS: usize = 4;
const NO_LINK: u32 = u32::MAX;

type FlowIndex = u32;

#[derive(Clone, Debug)]
struct Flow<T> {
    tag: Option<T>,
    /// The links that it crosses, and its index in the list of each.
    links: [u32; HOPS],
    places: [u32; HOPS],
    bottleneck: u32,
    rate: f64,
    /// In the current round.
    new_rate: f64,
    new_bottleneck: u32,
    remaining_bytes: f64,
    settled_ns: u64,
    end_ns: u64,
    mark: u64,
}

impl<T> Flow<T> {
    fn path(&self) -> impl Iterator<Item = u32> + use<T> {
        self.links.into_iter().filter(|&link| link != NO_LINK)
    }
}

#[derive(Clone, Debug)]
struct Link {
    /// Bytes per nanosecond.
    capacity: f64,
    flows: Vec<FlowIndex>,
    /// The sum of the rates of its flows.
    load: f64,
    mark: u64,
    /// In the current round: the capacity left for solved flows, and the number of unfrozen ones.
    free: f64,
    unfrozen: u32,
    changed: bool,
}

/// Racks of consecutive nodes. Their sizes differ by one at most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Racks {
    pub racks: u32,
    /// The total bandwidth of a rack's cards divided by that of its link up. With 1 the link never
    /// limits.
    pub oversubscription: f64,
}

impl Racks {
    /// The rack of a node.
    fn of(&self, node: usize, nodes: usize) -> usize {
        node * self.racks as usize / nodes
    }
}

/// Flows between nodes. Rates are bytes per nanosecond.
#[derive(Clone, Debug)]
pub struct MaxMin<T> {
    nodes: usize,
    racks: Option<Racks>,
    flows: Vec<Flow<T>>,
    vacant: Vec<FlowIndex>,
    links: Vec<Link>,
    /// Ends by time. Entries that are not the current end of a flow are skipped.
    ends: BinaryHeap<Reverse<(u64, FlowIndex)>>,
    round: u64,
    // Kept to save allocations.
    solved: Vec<FlowIndex>,
    touched: Vec<u32>,
    fill: BinaryHeap<Reverse<(Share, u32)>>,
    /// The number of flow rates computed so far, as a statistic.
    pub solved_total: u64,
}

impl Link {
    const EMPTY: Self = Self {
        capacity: 0.0,
        flows: Vec::new(),
        load: 0.0,
        mark: 0,
        free: 0.0,
        unfrozen: 0,
        changed: false,
    };
}

/// A rate with a total order; never NaN.
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
        let card = Link { capacity: bytes_per_s / 1e9, ..Link::EMPTY };
        Self {
            nodes,
            racks: None,
            flows: Vec::new(),
            vacant: Vec::new(),
            links: vec![card; nodes * 2],
            ends: BinaryHeap::new(),
            round: 0,
            solved: Vec::new(),
            touched: Vec::new(),
            fill: BinaryHeap::new(),
            solved_total: 0,
        }
    }

    /// A tree of two levels above the cards.
    ///
    /// # Panics
    /// As [`Self::new`]; also when there is no rack, when a rack has no node, or when
    /// `oversubscription` is below 1.
    #[must_use]
    pub fn tree(nodes: usize, bytes_per_s: f64, racks: Racks) -> Self {
        assert!((1..=nodes).contains(&(racks.racks as usize)), "every rack has a node");
        let over = racks.oversubscription;
        assert!(over.is_finite() && over >= 1.0, "cards are not slower than links up");
        let mut network = Self::new(nodes, bytes_per_s);
        let mut sizes = vec![0_u32; racks.racks as usize];
        for node in 0..nodes {
            sizes[racks.of(node, nodes)] += 1;
        }
        for size in sizes {
            let capacity = bytes_per_s / 1e9 * f64::from(size) / over;
            let link = Link { capacity, ..Link::EMPTY };
            network.links.extend([link.clone(), link]);
        }
        network.racks = Some(racks);
        network
    }

    /// The links between two nodes.
    fn path(&self, from: usize, to: usize) -> [u32; HOPS] {
        let (out, into) = (from as u32 * 2, to as u32 * 2 + 1);
        if let Some(racks) = self.racks {
            let (from, to) = (racks.of(from, self.nodes), racks.of(to, self.nodes));
            if from != to {
                let first = self.nodes as u32 * 2;
                return [out, first + from as u32 * 2, first + to as u32 * 2 + 1, into];
            }
        }
        [out, NO_LINK, NO_LINK, into]
    }

    /// The number of current flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len() - self.vacant.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts a transfer. Its tag identifies it at its end.
    ///
    /// # Panics
    /// When a node sends to itself.
    pub fn start(&mut self, now_ns: u64, from: usize, to: usize, bytes: u64, tag: T) {
        assert_ne!(from, to, "a node has its own objects");
        self.begin(now_ns, self.path(from, to), bytes, tag);
    }

    /// Like [`Self::start`], from outside the cluster: only the receiver's card limits the flow.
    pub fn start_from_outside(&mut self, now_ns: u64, to: usize, bytes: u64, tag: T) {
        let links = [NO_LINK, NO_LINK, NO_LINK, to as u32 * 2 + 1];
        self.begin(now_ns, links, bytes, tag);
    }

    fn begin(&mut self, now_ns: u64, links: [u32; HOPS], bytes: u64, tag: T) {
        let place = |link: u32| self.links.get(link as usize).map_or(0, |it| it.flows.len() as u32);
        let places = links.map(place);
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
            if let Some(link) = self.links.get_mut(link as usize) {
                link.flows.push(index);
            }
        }
        self.solve(now_ns, &links);
    }

    /// The end of the next transfer, if no flow starts before it.
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

    /// Removes one transfer that has ended by now.
    pub fn take_ended(&mut self, now_ns: u64) -> Option<T> {
        let at = self.next_end_ns()?;
        if at > now_ns {
            return None;
        }
        let Reverse((_, index)) = self.ends.pop().expect("looked at above");
        let flow = &mut self.flows[index as usize];
        let (tag, links, places) = (flow.tag.take(), flow.links, flow.places);
        let mut disturbed = [NO_LINK; HOPS];
        for side in (0..HOPS).filter(|&side| links[side] != NO_LINK) {
            let link = &mut self.links[links[side] as usize];
            // On a link that was not full, this flow limited no other.
            if link.load >= link.capacity * (1.0 - EQUAL) {
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

    /// Computes the rates after a change on these links.
    fn solve(&mut self, now_ns: u64, seeds: &[u32; HOPS]) {
        self.round += 1;
        self.solved.clear();
        self.touched.clear();
        for &link in seeds.iter().filter(|link| **link != NO_LINK) {
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
        for link in flow.path() {
            if self.links[link as usize].mark != self.round {
                self.links[link as usize].mark = self.round;
                self.touched.push(link);
            }
        }
    }

    /// Progressive filling of the solved flows. All other rates are fixed.
    fn fill(&mut self) {
        self.solved_total += self.solved.len() as u64;
        for &link in &self.touched {
            let link = &mut self.links[link as usize];
            link.free = link.capacity - link.load;
            link.unfrozen = 0;
            link.changed = false;
        }
        for &index in &self.solved {
            let flow = &mut self.flows[index as usize];
            flow.new_bottleneck = u32::MAX;
            for link in flow.path() {
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
                for link in flow.path() {
                    let link = &mut self.links[link as usize];
                    link.free -= share_now.0;
                    link.unfrozen -= 1;
                }
            }
        }
    }

    /// Adds flows that have lost their bottleneck, and flows that are faster than one that shares
    /// its bottleneck with them. False if there are none: the allocation is fair.
    fn widen(&mut self, whole: bool) -> bool {
        let before = self.solved.len();
        for at in 0..before {
            let flow = &self.flows[self.solved[at] as usize];
            let differs = (flow.new_rate - flow.rate).abs() > EQUAL * flow.rate.max(flow.new_rate);
            if differs || flow.new_bottleneck != flow.bottleneck {
                for link in flow.path() {
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
        let full = total >= link.capacity * (1.0 - EQUAL);
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
mod tests;

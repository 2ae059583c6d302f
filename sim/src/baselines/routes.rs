/*!
Links that several pairs of machines share, and routes over them. Rates are max-min fair, by
progressive filling from scratch at each start and end of a flow. That is fast enough for the
platforms of a study.

[`crate::MaxMin`] does the same for network cards only, with thousands of nodes.
*/

/// Links and the routes over them.
#[derive(Clone, PartialEq, Debug)]
pub struct Routes {
    /// Bytes per second of each link.
    pub capacity: Vec<f64>,
    /// The links of the route `[from][to]`; empty within one machine.
    pub links: Vec<Vec<Vec<u32>>>,
    /// The delay before a transfer uses bandwidth, in ns: `[from][to]`.
    pub latency_ns: Vec<Vec<u64>>,
    /// The highest rate of a single flow, in bytes/s: `[from][to]`.
    pub flow_max: Vec<Vec<f64>>,
    /// A flow's share of a full link is proportional to this weight: `[from][to]`.
    pub weight: Vec<Vec<f64>>,
}

impl Routes {
    /// The latency and bandwidth of the route without other traffic.
    pub(super) fn alone(&self, from: usize, to: usize) -> (u64, f64) {
        let links = self.links[from][to].iter();
        let narrowest =
            links.map(|&link| self.capacity[link as usize]).fold(f64::INFINITY, f64::min);
        (self.latency_ns[from][to], narrowest.min(self.flow_max[from][to]))
    }
}

#[derive(Clone, Debug)]
struct Flow<T> {
    tag: T,
    from: usize,
    to: usize,
    remaining_bytes: f64,
    /// Bytes per ns.
    rate: f64,
    end_ns: u64,
}

/// Flows over routes.
#[derive(Clone, Debug)]
pub(super) struct Routed<T> {
    routes: Routes,
    flows: Vec<Flow<T>>,
    settled_ns: u64,
}

impl<T: Copy> Routed<T> {
    pub(super) fn new(routes: Routes) -> Self {
        Self { routes, flows: Vec::new(), settled_ns: 0 }
    }

    pub(super) fn start(&mut self, now_ns: u64, from: usize, to: usize, bytes: u64, tag: T) {
        self.settle(now_ns);
        let remaining_bytes = bytes as f64;
        self.flows.push(Flow { tag, from, to, remaining_bytes, rate: 0.0, end_ns: u64::MAX });
        self.solve(now_ns);
    }

    pub(super) fn next_end_ns(&self) -> Option<u64> {
        self.flows.iter().map(|flow| flow.end_ns).min()
    }

    pub(super) fn take_ended(&mut self, now_ns: u64) -> Option<T> {
        let at = self.flows.iter().position(|flow| flow.end_ns <= now_ns)?;
        self.settle(now_ns);
        let flow = self.flows.remove(at);
        self.solve(now_ns);
        Some(flow.tag)
    }

    fn settle(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.settled_ns) as f64;
        for flow in &mut self.flows {
            flow.remaining_bytes = (flow.remaining_bytes - passed_ns * flow.rate).max(0.0);
        }
        self.settled_ns = now_ns;
    }

    /// Raises all rates together in proportion to their weights. Flows on a full link and flows at
    /// their own limit are frozen, until all are.
    fn solve(&mut self, now_ns: u64) {
        let mut free = self.routes.capacity.clone();
        let mut open: Vec<usize> = (0..self.flows.len()).collect();
        let mut rates = vec![0.0; self.flows.len()];
        while !open.is_empty() {
            let mut load = vec![0.0; free.len()];
            for &at in &open {
                let (links, weight, _) = self.route(at);
                for &link in links {
                    load[link as usize] += weight;
                }
            }
            // The highest common level that each link, and each flow's own limit, allows.
            let level_of = |at: usize| {
                let (links, weight, most) = self.route(at);
                let shares = links.iter().map(|&link| free[link as usize] / load[link as usize]);
                shares.fold(most / weight, f64::min)
            };
            let lowest = open.iter().map(|&at| level_of(at)).fold(f64::INFINITY, f64::min);
            let (frozen, still): (Vec<_>, Vec<_>) =
                open.iter().partition(|&&at| level_of(at) <= lowest * (1.0 + 1e-12));
            for at in frozen {
                let (links, weight, _) = self.route(at);
                rates[at] = weight * lowest;
                for &link in links {
                    free[link as usize] = (free[link as usize] - rates[at]).max(0.0);
                }
            }
            open = still;
        }
        for (flow, bytes_per_s) in self.flows.iter_mut().zip(rates) {
            flow.rate = bytes_per_s / 1e9;
            let left_ns = (flow.remaining_bytes / flow.rate).round();
            flow.end_ns = now_ns.saturating_add(if left_ns.is_nan() { 0 } else { left_ns as u64 });
        }
    }

    fn route(&self, flow: usize) -> (&[u32], f64, f64) {
        let Flow { from, to, .. } = self.flows[flow];
        let routes = &self.routes;
        (&routes.links[from][to], routes.weight[from][to], routes.flow_max[from][to])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Two links of 100 and 50 bytes/s. Machine 0 reaches 1 over the first, and 2 over both.
    fn routes(weights: [f64; 2]) -> Routes {
        let table = |zero_one: f64, zero_two: f64| vec![vec![f64::INFINITY, zero_one, zero_two]; 1];
        Routes {
            capacity: vec![100.0, 50.0],
            links: vec![vec![vec![], vec![0], vec![0, 1]]],
            latency_ns: vec![vec![0; 3]],
            flow_max: table(1e9, 1e9),
            weight: table(weights[0], weights[1]),
        }
    }

    fn drain(mut network: Routed<u32>) -> Vec<(u64, u32)> {
        let mut ends = Vec::new();
        while let Some(at) = network.next_end_ns() {
            ends.push((at, network.take_ended(at).expect("it ends now")));
        }
        ends
    }

    #[test]
    fn a_flow_held_up_on_one_link_leaves_the_rest_of_the_other() {
        let mut network = Routed::new(routes([1.0, 1.0]));
        network.start(0, 0, 1, 600, 1);
        network.start(0, 0, 1, 600, 2);
        network.start(0, 0, 2, 300, 3);
        // Three share 100: a third each. After the short one has ended, half each.
        assert_eq!(drain(network), [(9 * S, 3), (15 * S, 1), (15 * S, 2)]);
        let mut network = Routed::new(routes([1.0, 1.0]));
        network.start(0, 0, 1, 500, 1);
        network.start(0, 0, 2, 500, 2);
        assert_eq!(drain(network), [(10 * S, 1), (10 * S, 2)]);
    }

    #[test]
    fn weights_and_limits_of_flows_count() {
        let mut network = Routed::new(routes([3.0, 1.0]));
        network.start(0, 0, 1, 750, 1);
        network.start(0, 0, 2, 250, 2);
        assert_eq!(drain(network), [(10 * S, 1), (10 * S, 2)]);
        let mut limited = routes([1.0, 1.0]);
        limited.flow_max[0][1] = 10.0;
        let mut network = Routed::new(limited);
        network.start(0, 0, 1, 100, 1);
        network.start(0, 0, 2, 500, 2);
        assert_eq!(drain(network), [(10 * S, 1), (10 * S, 2)]);
    }
}

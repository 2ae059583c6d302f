//! A study by itself, for profilers: WORKLOAD NODES SLOTS [flat|maxmin].
#![expect(clippy::print_stdout, reason = "an example")]

fn main() {
    let mut args = std::env::args().skip(1);
    let text = args.next().expect("a workload");
    let number = |text: Option<String>| text.expect("a number").parse().expect("a number");
    let (nodes, slots) = (number(args.next()), number(args.next()));
    let graph = workloads::generate(&text).expect("a generator");
    let mut options = sim::SimulationOptions::new(nodes, slots);
    options.placement = workloads::Placement::Graph;
    let ran = sim::simulate(&graph, &options).expect("no demand is broken");
    let state = |of: fn(&proto::wire::NodeState) -> u64| ran.nodes.iter().map(of).sum::<u64>();
    println!(
        "{} tasks, makespan {:?}, {} packets, {} steps, first {}",
        graph.len(),
        ran.makespan,
        ran.packets,
        ran.steps,
        state(|state| state.messages)
    );
}

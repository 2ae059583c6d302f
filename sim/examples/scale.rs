//! Runs one study, for profilers: WORKLOAD NODES SLOTS [parts]. With `parts` it prints the parts of
//! all steps.
#![expect(clippy::print_stdout, reason = "an example")]

use sim::{Counts, Mark, Part};

fn main() {
    let mut args = std::env::args().skip(1);
    let text = args.next().expect("a workload");
    let number = |text: Option<String>| text.expect("a number").parse().expect("a number");
    let (nodes, slots) = (number(args.next()), number(args.next()));
    let tells_parts = args.next().is_some_and(|word| word == "parts");
    let graph = workloads::generate(&text).expect("a generator");
    let mut options = sim::SimulationOptions::new(nodes, slots);
    options.placement = workloads::Placement::Graph;
    let mut sums = [0.0_f64; Part::ALL.len()];
    let mut meter = |mark: Mark<'_>| {
        if let Mark::Over(Counts(counts)) = mark {
            sums.iter_mut().zip(counts).for_each(|(sum, &count)| *sum += f64::from(count));
        }
    };
    let meter: Option<sim::Meter<'_>> = if tells_parts { Some(&mut meter) } else { None };
    let ran = sim::simulate_metered(&graph, &options, meter).expect("no demand is broken");
    let state = |of: fn(&proto::wire::NodeState) -> u64| ran.nodes.iter().map(of).sum::<u64>();
    let report = ran.report();
    println!(
        "{} tasks, makespan {:?}, efficiency {:.3}, {} packets, {} steps, {} messages, {} steals",
        graph.len(),
        ran.makespan,
        report.efficiency,
        ran.packets,
        ran.steps,
        state(|state| state.messages),
        state(|state| state.steals_won)
    );
    let busy = |node: usize| ran.loop_busy[node].as_secs_f64();
    println!(
        "accepted {:.3} s, first start {:.3} s, loop of the job's home busy {:.3} s",
        report.submit_s,
        report.first_start_s,
        busy(ran.job_home.0 as usize)
    );
    if tells_parts {
        for (part, sum) in Part::ALL.iter().zip(sums) {
            println!("{:>20} {:>12.0}  {:.3} a task", part.name(), sum, sum / graph.len() as f64);
        }
    }
}

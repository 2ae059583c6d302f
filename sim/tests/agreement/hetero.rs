//! Small graphs on heterogeneous processors, with published schedules and proven optima.

use std::path::Path;

use sim::baselines::{
    Dls, Heft, Maker, ObjectSpec, Options, Problem, Reading, Scheduler, SchedulerName, TaskSpec,
    Wiring, WorkerSpec,
};

use crate::data;

const S_NS: f64 = 1e9;

/// Costs and transfers are in the file's unit of time, here seconds. An edge of weight w is an
/// object of w bytes over 1 byte/s.
pub(crate) fn read(path: &Path) -> (Problem, serde_json::Value) {
    let text = std::fs::read_to_string(path).expect("it can be read");
    let file: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let costs = file["cost"].as_array().expect("costs").iter();
    let costs: Vec<Vec<f64>> = costs
        .map(|row| {
            row.as_array()
                .expect("as it was written")
                .iter()
                .map(|cost| cost.as_f64().expect("as it was written"))
                .collect()
        })
        .collect();
    let workers = costs[0].len();
    let mut tasks: Vec<TaskSpec> = costs
        .iter()
        .enumerate()
        .map(|(name, row)| TaskSpec {
            cost_ns: row.iter().map(|cost| (cost * S_NS).round() as u64).collect(),
            ..TaskSpec::new(
                name as u32,
                1,
                (row.iter().sum::<f64>() / row.len() as f64 * S_NS) as u64,
            )
        })
        .collect();
    let mut objects = Vec::new();
    for edge in file["edges"].as_array().expect("edges") {
        let (from, to) = (
            edge[0].as_u64().expect("as it was written") as usize,
            edge[1].as_u64().expect("as it was written") as usize,
        );
        let object = objects.len() as u32;
        tasks[from].outputs.push(object);
        tasks[to].inputs.push(object);
        let bytes = edge[2].as_f64().expect("as it was written").round() as u64;
        objects.push(ObjectSpec::new(bytes, Maker::Task(from as u32)));
    }
    let workers = vec![WorkerSpec { cores: 1, speed: 1.0 }; workers];
    let problem = Problem::by_hand(tasks, objects, workers);
    (problem, file)
}

fn makespan_s(problem: &Problem, scheduler: &mut dyn Scheduler) -> f64 {
    let options = Options::new(Wiring::Flat { latency_ns: 0, bytes_per_s: 1.0 });
    let ran = sim::baselines::run(problem, &options, scheduler).expect("it ends");
    ran.makespan_ns as f64 / S_NS
}

/// HEFT's own example: 80, with an optimum of 73.
#[test]
fn heft_needs_80_for_the_graph_of_its_paper() {
    let Some(path) = data::find("hetero/topcuoglu10.json") else { return };
    let (problem, file) = read(&path);
    assert_eq!(makespan_s(&problem, &mut Heft::default()), 80.0);
    assert_eq!(file["published"]["HEFT"].as_f64(), Some(80.0));
    let optimum = file["proven_optimum"].as_f64().expect("it is proven");
    for name in SchedulerName::ALL {
        let makespan = makespan_s(&problem, name.make().as_mut());
        println!("{:14} {makespan:6.1}  {:.3} of the optimum", name.name(), makespan / optimum);
        assert!(makespan >= optimum, "{}: {makespan} is below {optimum}", name.name());
    }
}

/// DSLab's own test of its HEFT.
#[test]
fn heft_needs_98_for_the_graph_of_dslabs_test() {
    let Some(path) = data::find("hetero/dslab_test4.json") else { return };
    let (problem, file) = read(&path);
    let readings = [Reading::Printed, Reading::Dslab];
    let heft = readings.map(|reading| makespan_s(&problem, &mut Heft { reading }));
    let dls = readings.map(|reading| makespan_s(&problem, &mut Dls { reading }));
    println!("as printed and as in DSLab: HEFT {heft:?}, DLS {dls:?}");
    assert!(heft.contains(&98.0), "{heft:?}");
    let optimum = file["proven_optimum"].as_f64().expect("it is proven");
    for name in SchedulerName::ALL {
        assert!(makespan_s(&problem, name.make().as_mut()) >= optimum, "{}", name.name());
    }
}

/// The executor runs the proven schedule and must reproduce its times.
#[test]
fn the_proven_schedule_takes_what_is_proven() {
    let Some(path) = data::find("hetero/topcuoglu10.json") else { return };
    let (problem, file) = read(&path);
    let steps = file["optimal_schedule"].as_array().expect("a schedule");
    let ran = {
        let options = Options::new(Wiring::Flat { latency_ns: 0, bytes_per_s: 1.0 });
        sim::baselines::run(&problem, &options, &mut Given::of(steps)).expect("it ends")
    };
    assert_eq!(
        ran.makespan_ns as f64 / S_NS,
        file["proven_optimum"].as_f64().expect("as it was written")
    );
    for step in steps {
        let run = ran.tasks[step["task"].as_u64().expect("as it was written") as usize];
        assert_eq!(u64::from(run.worker), step["proc"].as_u64().expect("as it was written"));
        assert!(run.ended_ns as f64 / S_NS <= step["end"].as_f64().expect("as it was written"));
    }
}

/// A given schedule.
struct Given(Vec<sim::baselines::Assignment>);

impl Given {
    fn of(steps: &[serde_json::Value]) -> Self {
        let mut steps: Vec<_> = steps.iter().collect();
        steps.sort_by_key(|step| step["start"].as_u64());
        let assign = |step: &&serde_json::Value| {
            let number = |key: &str| step[key].as_u64().expect("a number") as usize;
            let mut assignment = sim::baselines::Assignment::new(number("task"), number("proc"));
            assignment.lanes = vec![0];
            assignment
        };
        Self(steps.iter().map(assign).collect())
    }
}

impl Scheduler for Given {
    fn schedule(
        &mut self,
        _: &sim::baselines::View<'_>,
        _: &sim::baselines::Update,
        _: &mut sim::SimRng,
    ) -> Vec<sim::baselines::Assignment> {
        std::mem::take(&mut self.0)
    }
}

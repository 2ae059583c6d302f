//! Global schedulers: small hand-made cases for the executor, and every schedule checked for
//! validity.

use proto::Span;
use sim::SimRng;
use sim::baselines::{
    Assignment, Downloads, Info, Loads, Maker, ObjectSpec, Options, Problem, Ran, RunError,
    Scheduler, SchedulerName, TaskSpec, Update, View, Wiring, run,
};
use workloads::{Graph, generate};

const S: u64 = 1_000_000_000;

/// Makes all assignments in its first call, and none later.
struct Fixed(Vec<Assignment>);

impl Fixed {
    fn on(workers: &[usize]) -> Self {
        Self(workers.iter().enumerate().map(|(task, at)| Assignment::new(task, *at)).collect())
    }
}

impl Scheduler for Fixed {
    fn schedule(&mut self, _: &View<'_>, _: &Update, _: &mut SimRng) -> Vec<Assignment> {
        std::mem::take(&mut self.0)
    }
}

fn flat(bytes_per_s: f64) -> Options {
    Options::new(Wiring::Flat { latency_ns: 0, bytes_per_s })
}

fn shared(bytes_per_s: f64) -> Options {
    Options::new(Wiring::MaxMin { latency_ns: 0, bytes_per_s })
}

/// One task of a second makes `readers` objects of 100 bytes. Each has a reader of a second.
fn fork(readers: u32, workers: u32, cores: u32) -> Problem {
    let mut tasks = vec![TaskSpec::new(0, 1, S)];
    let mut objects = Vec::new();
    for reader in 0..readers {
        tasks[0].outputs.push(reader);
        tasks.push(TaskSpec { inputs: vec![reader], ..TaskSpec::new(reader + 1, 1, S) });
        objects.push(ObjectSpec::new(100, Maker::Task(0)));
    }
    Problem::by_hand(tasks, objects, Problem::alike(workers, cores))
}

fn ends_s(problem: &Problem, options: &Options, workers: &[usize]) -> Vec<f64> {
    let ran = run(problem, options, &mut Fixed::on(workers)).expect("it ends");
    ran.tasks.iter().map(|task| task.ended_ns as f64 / 1e9).collect()
}

#[test]
fn transfers_take_their_time_alone_or_share_a_card() {
    let problem = fork(2, 3, 1);
    // 100 bytes over 10 bytes/s: 10 s. Two at a time over one card: 20 s.
    assert_eq!(ends_s(&problem, &flat(10.0), &[0, 1, 2]), [1.0, 12.0, 12.0]);
    assert_eq!(ends_s(&problem, &shared(10.0), &[0, 1, 2]), [1.0, 22.0, 22.0]);
    // On the maker's worker nothing is transferred.
    assert_eq!(ends_s(&problem, &shared(10.0), &[0, 0, 1]), [1.0, 2.0, 12.0]);
    let late = Options::new(Wiring::MaxMin { latency_ns: S, bytes_per_s: 10.0 });
    assert_eq!(ends_s(&problem, &late, &[0, 0, 1]), [1.0, 2.0, 13.0]);
}

#[test]
fn a_worker_keeps_its_fetch_limits_in_total_and_per_source() {
    let problem = fork(4, 2, 4);
    let all = |downloads| {
        let options = Options { downloads, ..flat(10.0) };
        ends_s(&problem, &options, &[0, 1, 1, 1, 1])
    };
    assert_eq!(all(Downloads::UNLIMITED), [1.0, 12.0, 12.0, 12.0, 12.0]);
    assert_eq!(all(Downloads { at_once: 3, per_source: 9 }), [1.0, 12.0, 12.0, 12.0, 22.0]);
    assert_eq!(all(Downloads { at_once: 9, per_source: 2 }), [1.0, 12.0, 12.0, 22.0, 22.0]);
}

#[test]
fn an_object_is_fetched_once_and_charged_to_its_first_reader() {
    let mut problem = fork(1, 2, 2);
    problem.tasks.push(TaskSpec { inputs: vec![0], ..TaskSpec::new(2, 1, S) });
    problem.kinds.push(0);
    problem.objects[0].readers.push(2);
    let ran = run(&problem, &flat(10.0), &mut Fixed::on(&[0, 1, 1])).unwrap();
    assert_eq!((ran.transfers, ran.moved_bytes), (1, 100));
    let moved: Vec<u64> = ran.tasks.iter().map(|task| task.moved_bytes).collect();
    assert_eq!(moved, [0, 100, 0]);
}

#[test]
fn what_comes_from_outside_and_goes_there_takes_its_way() {
    let mut problem = fork(1, 1, 1);
    problem.objects.push(ObjectSpec { readers: vec![0], ..ObjectSpec::new(50, Maker::Origin) });
    problem.tasks[0].inputs.push(1);
    problem.objects.push(ObjectSpec::new(20, Maker::Task(1)));
    problem.tasks[1].outputs.push(2);
    let ran = run(&problem, &flat(10.0), &mut Fixed::on(&[0, 0])).unwrap();
    assert_eq!(ran.makespan_ns, 7 * S);
    problem.returns_outputs = true;
    let ran = run(&problem, &flat(10.0), &mut Fixed::on(&[0, 0])).unwrap();
    assert_eq!(ran.makespan_ns, 9 * S);
}

#[test]
fn a_task_waits_for_its_release_and_reports_its_ready_time() {
    let mut problem = fork(1, 1, 1);
    problem.tasks[0].release_ns = 5 * S;
    assert_eq!(ends_s(&problem, &flat(10.0), &[0, 0]), [6.0, 7.0]);
    for name in SchedulerName::ALL {
        let ran = run(&problem, &flat(10.0), name.make().as_mut()).expect("it ends");
        assert_eq!(ran.makespan_ns, 7 * S, "{}", name.name());
    }
}

/// A chain of three tasks of a second, by a scheduler that learns of each end.
#[test]
fn a_scheduler_that_is_held_back_makes_cores_wait() {
    let chain = generate("pipeline:tasks=3,length=3,duration=1s").unwrap();
    let problem = Problem::of(&chain, Problem::alike(1, 1), Loads::OnWorkers).unwrap();
    let end = |msd: Span, decision: Span| {
        let options = Options { msd, decision, ..flat(1.0) };
        run(&problem, &options, SchedulerName::BLevelGt.make().as_mut()).unwrap().makespan_ns
    };
    let half = Span::from_millis(500);
    assert_eq!(end(Span::ZERO, Span::ZERO), 3 * S);
    assert_eq!(end(half, Span::ZERO), 3 * S);
    assert_eq!(end(Span::ZERO, half), 4 * S + S / 2);
    // Called at 0, 2.5 and 5. Each answer counts half a second later, and the next call follows 2 s
    // after that.
    assert_eq!(end(Span::from_secs(2), half), 6 * S + S / 2);
}

/// Two tasks of one kind, of 1 s and 9 s, before a merge of another kind.
#[test]
fn a_scheduler_that_knows_only_means_confuses_long_and_short_tasks() {
    let mut tasks = vec![TaskSpec::new(0, 1, S), TaskSpec::new(1, 1, 9 * S)];
    tasks.push(TaskSpec::new(2, 1, 2 * S));
    let mut problem = Problem::by_hand(tasks, Vec::new(), Problem::alike(1, 1));
    problem.kinds = vec![0, 0, 1];
    let known = |info| {
        let estimates = sim::baselines::Estimates::new(&problem, info);
        [0, 1, 2].map(|task| estimates.length_ns(task) / 1e9)
    };
    assert_eq!(known(Info::Exact), [1.0, 9.0, 2.0]);
    assert_eq!(known(Info::Mean), [4.0; 3]);
    assert_eq!(known(Info::User), [5.0, 5.0, 2.0]);
    problem.tasks[1].told_ns = Some(7 * S);
    let estimates = sim::baselines::Estimates::new(&problem, Info::User);
    assert_eq!(estimates.length_ns(1), 7e9);
}

#[test]
fn unscheduled_and_misplaced_tasks_are_reported() {
    let problem = fork(1, 2, 1);
    let stuck = run(&problem, &flat(1.0), &mut Fixed(vec![Assignment::new(0, 0)]));
    assert_eq!(stuck, Err(RunError::Stuck { task: 1, left: 1, assigned: false }));
    let nowhere = run(&problem, &flat(1.0), &mut Fixed::on(&[0, 2]));
    assert_eq!(nowhere, Err(RunError::DoesNotFit { task: 1, worker: 2 }));
    let wide = generate("bag:tasks=2,duration=1s").unwrap();
    assert!(Problem::of(&wide, Vec::new(), Loads::OnWorkers).is_err());
}

/// No core runs two tasks. No task starts before its inputs exist and have had time to arrive.
/// Tasks take their lengths, and no schedule is better than the bounds.
fn check(problem: &Problem, options: &Options, ran: &Ran, who: &str) {
    for (number, (spec, run)) in problem.tasks.iter().zip(&ran.tasks).enumerate() {
        let length_ns = problem.run_ns(number, run.worker as usize);
        assert_eq!(run.ended_ns - run.started_ns, length_ns, "{who}: task {number}");
        for &object in &spec.inputs {
            let Maker::Task(maker) = problem.objects[object as usize].maker else { continue };
            let maker = ran.tasks[maker as usize];
            let bytes = problem.objects[object as usize].bytes as f64;
            let way_ns = match problem.objects[object as usize].travels {
                true => options.wiring.alone_ns(maker.worker as usize, run.worker as usize, bytes),
                false => 0.0,
            };
            let earliest_ns = maker.ended_ns as f64 + way_ns;
            assert!(run.started_ns as f64 + 1.0 >= earliest_ns, "{who}: task {number} too early");
        }
    }
    for (worker, spec) in problem.workers.iter().enumerate() {
        let mut steps: Vec<(u64, i64)> = Vec::new();
        for (task, run) in problem.tasks.iter().zip(&ran.tasks) {
            if run.worker as usize == worker && run.ended_ns > run.started_ns {
                let cores = i64::from(task.cores);
                steps.extend([(run.started_ns, cores), (run.ended_ns, -cores)]);
            }
        }
        steps.sort_unstable();
        let mut busy = 0;
        for (at_ns, cores) in steps {
            busy += cores;
            assert!(busy <= i64::from(spec.cores), "{who}: worker {worker} at {at_ns}");
        }
    }
}

fn graphs() -> Vec<Graph> {
    [
        "bag:tasks=60,duration=uniform(0,100ms),seed=4",
        "pipeline:tasks=60,length=6,duration=uniform(0,100ms),output=1MB,seed=4",
        "fan-out:tasks=61,degree=4,duration=uniform(0,100ms),output=2MB,seed=5",
        "fan-in:tasks=61,degree=4,duration=uniform(0,100ms),output=2MB,seed=6",
        "all-pairs:files=8,size=1MB,seed=3",
    ]
    .into_iter()
    .map(|text| generate(text).unwrap_or_else(|error| panic!("{text}: {error}")))
    .collect()
}

#[test]
fn every_schedule_of_every_scheduler_is_one_that_could_be() {
    for graph in graphs() {
        let mut problem = Problem::of(&graph, Problem::alike(3, 4), Loads::OnWorkers).unwrap();
        for (at, task) in problem.tasks.iter_mut().enumerate() {
            task.cores = 1 + at as u32 % 3;
        }
        problem.workers[1].speed = 2.0;
        for options in [flat(1e8), shared(1e8)] {
            for name in SchedulerName::ALL {
                for (info, downloads, msd) in [
                    (Info::Exact, Downloads::UNLIMITED, Span::ZERO),
                    (Info::Mean, Downloads::FEW, Span::from_millis(30)),
                    (Info::User, Downloads::FEW, Span::ZERO),
                ] {
                    let options = Options { info, downloads, msd, ..options.clone() };
                    let who = format!("{} {} {info:?}", name.name(), graph.name());
                    let ran = run(&problem, &options, name.make().as_mut())
                        .unwrap_or_else(|error| panic!("{who}: {error}"));
                    check(&problem, &options, &ran, &who);
                    let again = run(&problem, &options, name.make().as_mut()).unwrap();
                    assert_eq!(ran, again, "{who}: not the same twice");
                }
            }
        }
    }
}

#[test]
fn list_schedulers_keep_graham_promise_without_transfers() {
    for graph in graphs() {
        let problem = Problem::of(&graph, Problem::alike(1, 5), Loads::OnWorkers).unwrap();
        let bounds = analysis::Bounds::of(&graph, 5);
        let most_ns = bounds.area.0 as f64 + bounds.critical_path.0 as f64 * 0.8;
        for name in ["blevel", "tlevel", "dls", "mcp", "etf", "heft", "blevel-gt", "ws", "single"] {
            let name = SchedulerName::parse(name).unwrap();
            let ran = run(&problem, &flat(1e9), name.make().as_mut()).unwrap();
            let (own, makespan_ns) = (name.name(), ran.makespan_ns);
            assert!(makespan_ns >= bounds.lower().0, "{own} {}", graph.name());
            assert!(makespan_ns as f64 <= most_ns + 100.0, "{own} {}", graph.name());
        }
    }
}

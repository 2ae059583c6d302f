//! Commands that are pinned to the cpus of their attempt.

use proto::wire::CpuPin;
use proto::work::{Granted, GrantedPool, Launch};

use crate::common::{Bench, launch, spec_of};

/// The cpus of this process.
fn own_cpus() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<u32>().unwrap()..=last.parse::<u32>().unwrap()
    };
    line.trim().split(',').flat_map(range).map(|cpu| cpu.to_string()).collect()
}

fn pinned(bench: &Bench, local: u64, pin: CpuPin, cpus: &[String]) -> Launch {
    let script = "grep Cpus_allowed_list: /proc/self/status; \
                  echo $STARLING_PIN/$STARLING_CPUS_LIST/$OMP_PLACES/$OMP_PROC_BIND";
    let mut command = bench.command(&["sh", "-c", script]);
    command.set_pin(pin);
    let mut launch = launch(local, spec_of(command));
    let (name, indices) = ("cpus".to_owned(), cpus.to_vec());
    let units = cpus.len() as u64 * 10_000;
    let pool = GrantedPool { variable: name.clone(), name, units, indices };
    launch.granted = Some(Box::new(Granted { variant: 0, pools: vec![pool] }));
    launch
}

#[test]
fn a_pinned_command_runs_on_the_cpus_of_its_attempt_and_no_others() {
    let mut bench = Bench::new();
    let all = own_cpus();
    for (local, cpu) in (1..).zip(&all) {
        let outcome = bench.run(pinned(&bench, local, CpuPin::Taskset, std::slice::from_ref(cpu)));
        assert_eq!(outcome.error, "");
        let expected = format!("Cpus_allowed_list:\t{cpu}\ntaskset/{cpu}//\n");
        assert_eq!(bench.stdout(local), expected);
    }
    let last = &all[all.len() - 1..];
    let number = all.len() as u64 + 1;
    assert_eq!(bench.run(pinned(&bench, number, CpuPin::Omp, last)).error, "");
    let printed = bench.stdout(number);
    let expected = format!("\nomp/{0}/{{{0}}}/close\n", last[0]);
    assert!(printed.ends_with(&expected), "{printed}");
    // The next command of the same starter is not pinned.
    assert_eq!(bench.run(pinned(&bench, number + 1, CpuPin::Unpinned, last)).error, "");
    let printed = bench.stdout(number + 1);
    assert!(printed.ends_with(&format!("\n/{}//\n", last[0])), "{printed}");
    assert_eq!(printed.lines().next(), allowed().lines().next(), "all cpus of the node");
}

fn allowed() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap().to_owned()
}

#[test]
fn a_command_that_cannot_have_all_its_cpus_does_not_start() {
    let mut bench = Bench::new();
    let mut cpus = own_cpus();
    cpus.push("1023".to_owned());
    let outcome = bench.run(pinned(&bench, 1, CpuPin::Taskset, &cpus));
    assert!(outcome.error.ends_with("1023: the node may not use all of them"), "{outcome:?}");
    cpus.push("70000".to_owned());
    let outcome = bench.run(pinned(&bench, 2, CpuPin::Taskset, &cpus));
    assert!(outcome.error.ends_with("a number is too large"), "{}", outcome.error);
    let outcome = bench.run(pinned(&bench, 3, CpuPin::Taskset, &["left".to_owned()]));
    assert!(outcome.error.ends_with("'left' is no cpu"), "{}", outcome.error);
    assert_eq!(bench.stdout(1), "");
}

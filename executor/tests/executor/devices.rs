//! Calls with GPUs: their workers see these alone.

use proto::work::{Granted, GrantedPool, Launch};

use crate::calls::with;
use crate::common::{Bench, is_alive, launch, spec_of, wait_until};

/// The variable is read when the module is loaded, as a library does.
const MODULE: &str = r#"
import os

SEEN = os.environ.get("CUDA_VISIBLE_DEVICES")

def devices():
    resource = os.environ.get("STARLING_RESOURCE_gpus", "none")
    return "%s %s %s" % (os.getpid(), SEEN, resource)
"#;

fn with_gpus(mut launch: Launch, units: u64, indices: &[&str]) -> Launch {
    let name = "gpus".to_owned();
    let indices = indices.iter().map(|&index| index.to_owned()).collect();
    let pool = GrantedPool { name: name.clone(), variable: name, units, indices };
    launch.granted = Some(Box::new(Granted { variant: 0, pools: vec![pool] }));
    launch
}

/// The process of a call, and the devices that it saw.
fn devices(bench: &mut Bench, call: Launch) -> (String, String) {
    let local = call.task.local.0;
    let outcome = bench.run(call);
    assert!(outcome.is_done(), "{outcome:?}");
    let seen = bench.object(local, 0);
    let (pid, seen) = seen.trim_matches('"').split_once(' ').expect("two words");
    (pid.to_owned(), seen.to_owned())
}

fn bench() -> Bench {
    let bench = Bench::of_functions(|config| {
        (config.gpu_pools, config.slots) = (vec!["gpus".to_owned()], 4);
    });
    std::fs::write(bench.submit_dir.join("work.py"), MODULE).unwrap();
    bench
}

#[test]
fn a_worker_serves_calls_with_the_same_gpus() {
    for direct in [false, true] {
        let mut bench = bench();
        let call = |bench: &Bench, local| {
            with(bench.call(local, "devices", "[]"), |spec| {
                let Some(proto::wire::spec::Body::Call(call)) = &mut spec.body else {
                    unreachable!()
                };
                call.runtime.as_mut().unwrap().direct = direct;
            })
        };
        let plain = call(&bench, 1);
        let (without, seen) = devices(&mut bench, plain);
        assert_eq!(seen, " none", "it sees no GPU");
        let second = with_gpus(call(&bench, 2), 10_000, &["1"]);
        let (on_second, seen) = devices(&mut bench, second);
        assert_eq!(seen, "1 1");
        assert_ne!(on_second, without);
        let half = with_gpus(call(&bench, 3), 5_000, &["1"]);
        assert_eq!(devices(&mut bench, half).0, on_second, "the same GPU, the same process");
        let plain = call(&bench, 4);
        assert_eq!(devices(&mut bench, plain).0, without);
        let first = with_gpus(call(&bench, 5), 10_000, &["0"]);
        let (on_first, seen) = devices(&mut bench, first);
        assert_eq!(seen, "0 0");
        // Its process holds memory on a GPU that others have now.
        let both = with_gpus(call(&bench, 6), 20_000, &["0", "1"]);
        assert_eq!(devices(&mut bench, both).1, "0,1 0,1");
        wait_until("idle workers leave their GPUs", || {
            !is_alive(&on_first) && !is_alive(&on_second)
        });
        assert!(is_alive(&without));
    }
}

#[test]
fn an_idle_worker_leaves_its_gpu_to_a_command() {
    let mut bench = bench();
    // By idle time alone this worker would end first.
    let plain = bench.call(4, "devices", "[]");
    let (without, _) = devices(&mut bench, plain);
    let call = with_gpus(bench.call(1, "devices", "[]"), 10_000, &["0"]);
    let (idle, _) = devices(&mut bench, call);
    let other = with_gpus(launch(2, spec_of(bench.command(&["true"]))), 10_000, &["1"]);
    assert!(bench.run(other).is_done());
    assert!(is_alive(&idle));
    let same = with_gpus(launch(3, spec_of(bench.command(&["true"]))), 10_000, &["0"]);
    assert!(bench.run(same).is_done());
    wait_until("the idle worker ends", || !is_alive(&idle));
    assert!(is_alive(&without), "it ended by its idle time");
}

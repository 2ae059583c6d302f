//! The policy, t, tt and the stealing options change while a job with data runs.

use serde_json::Value;
use starling_tests::{Instance, wait_until};

use crate::cluster::{job, submit};
use crate::faults_data::{answers, done, undisturbed, workflow};

const NODES: u32 = 3;

/// The tuning of all nodes, which must be equal.
fn tuning(instance: &Instance) -> Value {
    let told = |node: u32| {
        let info = instance.json(&["node", "info", &node.to_string()]);
        let mut tuning = info["tuning"].clone();
        // Their defaults are shares of the free space at the time of the start.
        let marks = tuning.as_object_mut().expect("a table");
        marks.retain(|name, _| !name.starts_with("store_"));
        tuning
    };
    let first = told(0);
    for node in 1..NODES {
        assert_eq!(told(node), first, "node {node} decides in another way");
    }
    first
}

/// Flags of `node set`, and the expected values.
type Change<'a> = (&'a [&'a str], &'a [(&'a str, Value)]);

#[test]
fn policy_thresholds_and_stealing_change_in_the_middle_of_a_job() {
    let expected = undisturbed();
    let instance = Instance::up_with_copies(NODES, 1, 1);
    instance.sandbox().write("pairs.toml", workflow());
    let id = submit(&instance, &["--file", "pairs.toml"]);
    let changes: [Change<'_>; 4] = [
        (
            &["--policy", "mdl", "--threshold", "0.25"],
            &[("policy", "mdl".into()), ("threshold", 0.25.into())],
        ),
        (
            &["--policy", "flds", "--wait-max", "700ms", "--threshold", "0.75"],
            &[("policy", "flds".into()), ("wait_max_s", 0.7.into()), ("threshold", 0.75.into())],
        ),
        (
            &["--steal-share", "0.125", "--steal-neighbours", "1", "--steal-interval", "3ms"],
            &[
                ("steal_share", 0.125.into()),
                ("steal_neighbours", 1.into()),
                ("steal_interval_s", 0.003.into()),
                // Options without a flag stay.
                ("policy", "flds".into()),
                ("wait_max_s", 0.7.into()),
            ],
        ),
        (
            &["--policy", "adaptive", "--steal-bound", "40ms", "--order", "urgency"],
            &[
                ("policy", "adaptive".into()),
                ("steal_bound_s", 0.04.into()),
                ("order", "urgency".into()),
                ("steal_share", 0.125.into()),
            ],
        ),
    ];
    for (number, (flags, told)) in changes.into_iter().enumerate() {
        let after = 10 + 30 * number as u64;
        wait_until("the job gets on", || done(&instance, &id) >= after);
        instance.starling(&[&["node", "set"], flags].concat()).ok();
        let now = tuning(&instance);
        for (name, value) in told {
            assert_eq!(&now[*name], value, "{name} after {flags:?}: {now}");
        }
    }
    // So all changes happened during the job.
    assert_eq!(job(&instance, &id)["state"], "running");
    instance.starling(&["job", "wait", &id]).ok();
    let info = job(&instance, &id);
    assert_eq!(
        (&info["state"], &info["tasks"]["failed"]),
        (&"finished".into(), &0.into()),
        "{info}"
    );
    assert!(answers(&instance, &id) == expected, "the answers differ");
    instance.down();
}

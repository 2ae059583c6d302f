//! What a workflow keeps outlives the nodes that made it.

use std::fs;
use std::path::Path;

use starling_tests::Instance;

use crate::cluster::submit;

const MAKERS: u64 = 40;

fn fetch(instance: &Instance, id: &str, to: &Path) {
    instance.starling(&["job", "fetch", id, "-o", &to.display().to_string()]).ok();
    for number in 1..=MAKERS {
        let kept = fs::read_to_string(to.join(format!("k{number}"))).expect("it was fetched");
        assert_eq!(kept, format!("{number}\n"));
    }
}

/// Their job has ended, so nobody could make it again. With two copies one node may go at a time.
#[test]
fn what_is_kept_outlives_nodes_that_go_one_after_another() {
    let mut instance = Instance::up_with_copies(4, 1, 2);
    instance.wait_for_copies();
    let text = "[[task]]\nname='make-{i}'\narray='1-40'\noutputs={k={file='k{i}',keep=true}}\n\
         command=['sh','-c','sleep 0.05; echo {i} > k{i}']\n";
    instance.sandbox().write("w.toml", text);
    let id = submit(&instance, &["--file", "w.toml"]);
    instance.starling(&["job", "wait", &id]).ok();
    for gone in [3, 2] {
        instance.kill(gone);
        fetch(&instance, &id, &instance.sandbox().path(&format!("out-{gone}")));
        instance.wait_for_copies();
        fetch(&instance, &id, &instance.sandbox().path(&format!("again-{gone}")));
    }
    instance.down();
}

/// By the class of the output: the last that fits counts.
#[test]
fn an_output_lies_on_as_many_nodes_as_are_asked_for() {
    const BYTES: u64 = 100_000;
    let instance = Instance::up_with_copies(4, 1, 2);
    instance.wait_for_copies();
    let copies = || {
        let nodes = (0..4).map(|node| instance.json(&["node", "info", &format!("n{node}")]));
        let stored = nodes.map(|info| info["data"]["bytes_stored"].as_u64().expect("a number"));
        stored.sum::<u64>() / BYTES
    };
    let mut before = 0;
    for (replicas, expected) in [(&[][..], 2), (&["3"], 3), (&["all=1", "*.dat=4"], 4)] {
        let mut arguments = Vec::new();
        replicas.iter().for_each(|one| arguments.extend(["--replicas", one]));
        arguments.extend(["--wait", "--out", "kept.dat", "--"]);
        arguments.extend(["sh", "-c", "head -c 100000 /dev/zero > kept.dat"]);
        submit(&instance, &arguments);
        assert_eq!(copies() - before, expected, "{replicas:?}");
        before += expected;
    }
    let wrong = ["submit", "--replicas", "*.txt=2", "--out", "kept.dat", "--", "true"];
    let refused = instance.starling(&wrong).expect_code(2);
    assert!(refused.stderr.contains("no output is of that class"), "{}", refused.stderr);
    instance.down();
}

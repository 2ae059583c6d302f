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

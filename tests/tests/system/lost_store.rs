//! A node with a removed store, while the other files of its state directory are there.

use std::fs;

use starling_tests::Instance;

use crate::replicas::all_found;

const KEYS: u32 = 5;

fn insert_keys(instance: &Instance) {
    for number in 0..KEYS {
        let (key, value) = (format!("key-{number}"), format!("value-{number}"));
        instance.starling(&["kv", "insert", &key, &value]).ok();
    }
}

#[test]
fn a_node_alone_refuses_to_begin_without_its_store() {
    for copies in [None, Some(1)] {
        let instance = match copies {
            None => Instance::up(1, 1),
            Some(copies) => Instance::up_with_copies(2, 1, copies),
        };
        insert_keys(&instance);
        instance.starling(&["down"]).ok();
        let state = instance.directory().join("nodes/0/state");
        let (db, elsewhere) = (state.join("db"), instance.sandbox().path("elsewhere"));
        fs::rename(&db, &elsewhere).expect("ours");
        for _ in 0..2 {
            let up = instance.starling(&["up"]).expect_code(4);
            let missing = format!("{} is missing", db.display());
            for part in [missing.as_str(), "jobs and the keys", "put the store back"] {
                assert!(up.stderr.contains(part), "{part}: {up:?}");
            }
            assert!(!db.exists());
        }
        fs::rename(&elsewhere, &db).expect("ours");
        instance.starling(&["up"]).ok();
        all_found(KEYS, |arguments| instance.starling(arguments));
        instance.starling(&["down"]).ok();
        // All of its state is as much.
        fs::remove_dir_all(&state).expect("ours");
        for _ in 0..2 {
            let up = instance.starling(&["up"]).expect_code(4);
            assert!(up.stderr.contains(&format!("{}", state.display())), "{up:?}");
        }
    }
}

#[test]
fn the_other_nodes_fill_a_store_that_was_removed() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    insert_keys(&instance);
    for node in 0..3 {
        instance.wait_for_copies();
        instance.kill(node);
        let db = instance.directory().join(format!("nodes/{node}/state/db"));
        fs::remove_dir_all(db).expect("ours");
        instance.start_missing();
    }
    instance.wait_for_copies();
    all_found(KEYS, |arguments| instance.starling(arguments));
    instance.down();
}

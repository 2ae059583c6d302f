//! A node that re-reads all of its records finds damage that no other read would find.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use starling_tests::{Instance, wait_until};

const KEYS: u32 = 50;
const VALUE_BYTES: usize = 60_000;
const VICTIM: u32 = 1;

/// Text that hardly compresses, so that tables are as large as their contents.
fn value(number: u32) -> String {
    let mut state = u64::from(number) * 2 + 1;
    let letter = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58) as u8)
    };
    (0..VALUE_BYTES).map(letter).collect()
}

fn all_there(instance: &Instance) {
    for number in 0..KEYS {
        let found = instance.starling(&["kv", "lookup", &format!("key-{number}")]).ok();
        assert!(found.stdout == value(number), "key-{number}");
    }
}

fn largest_table(db: &Path) -> PathBuf {
    let paths = fs::read_dir(db).expect("a store").flatten().map(|entry| entry.path());
    let tables = paths.filter(|path| path.extension().is_some_and(|end| end == "sst"));
    tables.max_by_key(|path| fs::metadata(path).map_or(0, |it| it.len())).expect("a table")
}

/// In place, because the node has the file open.
fn flip_a_bit_in_the_middle(path: &Path) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("ours");
    let (at, mut byte) = (file.metadata().expect("it is open").len() / 2, [0]);
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 4], at).expect("ours");
}

#[test]
fn scrubbing_finds_damage_while_other_replicas_exist() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    for number in 0..KEYS {
        instance.starling(&["kv", "insert", &format!("key-{number}"), &value(number)]).ok();
    }
    instance.wait_for_copies();
    // Only this node scrubs at this rate. `up` reads the settings and passes the option on.
    instance.kill(VICTIM);
    instance.sandbox().write("starling.toml", "scrub_every = '1s'\n");
    instance.start_missing();
    instance.wait_for_copies();
    let info = |node: u32| instance.json(&["node", "info", &format!("n{node}")]);
    // Without writes RocksDB has no reason to read, so only the scrub reads.
    let mut same = (Value::Null, 0);
    wait_until("it reads the same again and again", || {
        let now = info(VICTIM);
        if now["scrub_passes"] != same.0["scrub_passes"] {
            let is_same = now["scrubbed_bytes"] == same.0["scrubbed_bytes"];
            same = (now, if is_same { same.1 + 1 } else { 0 });
        }
        same.1 >= 3
    });
    let seen = info(VICTIM);
    let enough = KEYS as u64 * VALUE_BYTES as u64 / 3; // It has two thirds of the replicas.
    assert!(seen["scrubbed_bytes"].as_u64() > Some(enough), "{seen}");
    assert_eq!(info(0)["scrub_passes"], 0, "every 24 hours");
    let home = instance.directory().join(format!("nodes/{VICTIM}"));
    assert!(!home.join("state/db.damaged").exists());
    let (pid, incarnation) = instance.address(VICTIM).expect("it runs");

    flip_a_bit_in_the_middle(&largest_table(&home.join("state/db")));
    let said = || fs::read_to_string(home.join("node.log")).expect("a log");
    wait_until("its copies are given up", || said().contains("gives its copies up"));
    assert!(said().contains("block checksum mismatch"), "{}", said());
    let log = fs::read_to_string(home.join("state/log")).expect("a log");
    assert!(log.contains("it is looked at again"), "{log}");
    assert!(home.join("state/db.damaged").exists());
    wait_until("it starts again", || {
        instance.address(VICTIM).is_some_and(|(now, later)| now == pid && later > incarnation)
    });
    // First the other two nodes fill each other, then this node gets its share.
    wait_until("it is filled again", || info(VICTIM)["scrubbed_bytes"].as_u64() > Some(enough));
    instance.wait_for_copies();
    // Now its replicas are needed.
    instance.kill(0);
    all_there(&instance);
    instance.down();
}

#[test]
fn damage_without_another_replica_is_reported_with_a_hint() {
    let instance = Instance::up_with_copies(1, 1, 1);
    for number in 0..KEYS {
        instance.starling(&["kv", "insert", &format!("key-{number}"), &value(number)]).ok();
    }
    // A store moves its log to a table when it is opened again.
    for verb in ["down", "up", "down"] {
        instance.starling(&[verb]).ok();
    }
    flip_a_bit_in_the_middle(&largest_table(&instance.directory().join("nodes/0/state/db")));
    let refused = instance.starling(&["up"]).expect_code(4).stderr;
    for part in ["node n0: the store ", "is damaged (", "put the node's files back as they were"] {
        assert!(refused.contains(part), "'{part}' is not in {refused}");
    }
}

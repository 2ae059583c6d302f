//! A node whose records were damaged and that dies before it is filled again keeps those from
//! before: while the others are away they may be the last copies of something.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use starling_tests::{Foreground, Sandbox, Shape, wait_until};

const KEYS: u32 = 30;

fn records_in(db: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(db).expect("a store").flatten().map(|entry| entry.path());
    let ends = ["log", "sst"];
    let files =
        paths.filter(|path| path.extension().is_some_and(|it| ends.iter().any(|e| it == *e)));
    let mut files: Vec<_> =
        files.map(|path| (path.clone(), fs::read(path).expect("ours"))).collect();
    files.sort();
    files
}

#[test]
fn a_store_that_was_not_filled_never_takes_the_place_of_the_one_before() {
    let mut cluster = Foreground::up(Sandbox::new(), Shape::new(3, 1, 2));
    for number in 0..KEYS {
        let (key, value) = (format!("key-{number}"), format!("value-{number}"));
        cluster.starling(&["kv", "insert", &key, &value]).ok();
    }
    cluster.wait_for_copies();
    (0..3).for_each(|node| cluster.kill(node));
    let state = cluster.directory().join("nodes/0/state");
    let [db, damaged, mark] = ["db", "db.damaged", "refilling"].map(|name| state.join(name));
    let records: Vec<Vec<u8>> = records_in(&db).into_iter().map(|(_, bytes)| bytes).collect();

    // Alone it cannot be filled, and its disk goes on to fail.
    for said in ["what was left of them is in", "they were not filled again yet", "little yet"] {
        fs::remove_file(db.join("CURRENT")).expect("a store");
        if said == "little yet" {
            records_in(&db).iter().for_each(|(path, _)| fs::write(path, "").expect("ours"));
        }
        cluster.start_node(0);
        wait_until("its copies are given up", || cluster.said(0).contains("gives its copies up"));
        assert!(cluster.said(0).contains(said), "{}", cluster.said(0));
        wait_until("it has another store", || {
            records_in_if_any(&db).iter().any(|(_, bytes)| !bytes.is_empty())
        });
        assert!(mark.exists());
        let kept: Vec<Vec<u8>> = records_in(&damaged).into_iter().map(|it| it.1).collect();
        assert!(kept == records, "what was whole is still there");
        let info = info(&cluster);
        assert_eq!(
            (&info["refilling"], &info["records_aside"][0]),
            (&json!(true), &path(&damaged))
        );
        cluster.kill(0);
    }
    cluster.start_ended();
    cluster.wait_for_copies();
    wait_until("it is filled", || !mark.exists());
    let info = info(&cluster);
    assert_eq!(info["refilling"], false);
    assert_eq!(info["records_aside"], json!([path(&damaged)]), "the half-filled one is gone");
    let log = fs::read_to_string(state.join("log")).expect("a log");
    assert!(log.contains("remove it when you have looked at it"), "{log}");
    // Now its copies are needed.
    cluster.kill(1);
    crate::replicas::all_found(KEYS, |arguments| cluster.starling(arguments));
}

fn records_in_if_any(db: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    if db.join("CURRENT").exists() { records_in(db) } else { Vec::new() }
}

fn path(of: &Path) -> Value {
    json!(of.display().to_string())
}

fn info(cluster: &Foreground) -> Value {
    let mut seen = Value::Null;
    wait_until("it answers", || {
        let ran = cluster.starling(&["node", "info", "n0", "--json"]);
        let has_answered = ran.code == 0;
        if has_answered {
            seen = ran.json();
        }
        has_answered
    });
    seen
}

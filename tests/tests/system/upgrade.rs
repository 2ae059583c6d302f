//! A node reads the state of an earlier version, and refuses that of a later one.

use std::fs;
use std::path::PathBuf;

use proto::limits::{STATE_VERSION, STATE_VERSIONS_READ};
use starling_tests::{Instance, files_below};

use crate::cluster::submit;
use crate::replicas::all_found;

const KEYS: u32 = 20;

fn formats(instance: &Instance, nodes: u32) -> Vec<PathBuf> {
    (0..nodes).map(|node| instance.directory().join(format!("nodes/{node}/state/format"))).collect()
}

/// The first version had no number after the names of objects, and none of these files.
fn as_of_the_first_version(instance: &Instance, nodes: u32) {
    for (node, format) in (0..).zip(formats(instance, nodes)) {
        fs::write(format, "1\n").expect("ours");
        let state = instance.directory().join(format!("nodes/{node}/state"));
        for path in files_below(&state.join("objects")) {
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            let first = name.split("-shared-").next().expect("a name");
            let first = first.split_inclusive("-kept").next().expect("a name");
            fs::rename(&path, path.with_file_name(first)).expect("ours");
        }
    }
}

#[test]
fn the_state_of_each_earlier_version_is_read_and_becomes_one_of_this() {
    const NODES: u32 = 3;
    let mut instance = Instance::up_with_copies(NODES, 1, 2);
    for number in 0..KEYS {
        let (key, value) = (format!("key-{number}"), format!("value-{number}"));
        instance.starling(&["kv", "insert", &key, &value]).ok();
    }
    let text = "[[task]]\nname='a'\noutputs={k={file='k',keep=true,replicas=3}}\n\
                command=['sh','-c','echo kept > k']\n";
    instance.sandbox().write("w.toml", text);
    let id = submit(&instance, &["--file", "w.toml"]);
    instance.starling(&["job", "wait", &id, "--timeout", "60s"]).ok();
    instance.wait_for_copies();
    for version in STATE_VERSIONS_READ {
        instance.starling(&["down"]).ok();
        if version == 1 {
            as_of_the_first_version(&instance, NODES);
        }
        for format in formats(&instance, NODES) {
            assert_eq!(fs::read_to_string(format).expect("a file"), format!("{version}\n"));
        }
        instance.start_missing();
        instance.wait_for_copies();
        all_found(KEYS, |arguments| instance.starling(arguments));
        let out = instance.sandbox().path(&format!("out-{version}"));
        instance.starling(&["job", "fetch", &id, "-o", &out.display().to_string()]).ok();
        assert_eq!(fs::read_to_string(out.join("k")).expect("it was fetched"), "kept\n");
        for format in formats(&instance, NODES) {
            assert_eq!(fs::read_to_string(format).expect("a file"), format!("{STATE_VERSION}\n"));
        }
    }
    instance.down();
}

#[test]
fn the_state_of_a_later_version_is_refused_with_the_ways_back() {
    let instance = Instance::up(1, 1);
    instance.starling(&["down"]).ok();
    let [format] = &formats(&instance, 1)[..] else { panic!("one node") };
    let later = STATE_VERSION + 1;
    fs::write(format, format!("{later}\n")).expect("ours");
    let refused = instance.starling(&["up"]).expect_code(4).stderr;
    let found = format!("has format {later}, and this program reads 1 and {STATE_VERSION}");
    for part in [&*found, "use the newer starling", "starling job fetch", "copy", "Upgrading"] {
        assert!(refused.contains(part), "'{part}' is not in {refused}");
    }
    assert_eq!(fs::read_to_string(format).expect("a file"), format!("{later}\n"));
}

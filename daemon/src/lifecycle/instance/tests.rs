use std::os::unix::fs::PermissionsExt;

use super::*;

fn wanted(nodes: u32) -> ClusterFile {
    ClusterFile {
        format: 1,
        cluster: format!("{:016x}", 77),
        nodes,
        partitions: 64,
        replicas: 2,
        insecure: false,
    }
}

#[test]
fn a_directory_that_others_own_or_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("instance");
    fs::create_dir(&path).unwrap();
    for (mode, good) in [(0o777, false), (0o770, false), (0o1777, false), (0o755, true)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        match Instance::open(&path) {
            Ok(_) => assert!(good, "{mode:o}"),
            Err(StartError::DirectoryMode { mode: found, .. }) => {
                assert!(!good && found == mode, "{mode:o}");
                assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing was written");
            }
            Err(error) => panic!("{error}"),
        }
    }
    let user = fs::metadata(&path).unwrap().uid();
    check_owner(&path, user).unwrap();
    let error = check_owner(&path, user + 1).unwrap_err();
    assert!(matches!(error, StartError::OtherOwner { .. }), "{error}");
}

#[test]
fn the_cluster_is_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let instance = Instance::open(dir.path()).unwrap();
    assert_eq!(instance.cluster(&wanted(3), None, None).unwrap().id(), Some(77));
    let other = ClusterFile { cluster: "5".to_owned(), partitions: 128, ..wanted(3) };
    assert_eq!(instance.cluster(&other, None, None).unwrap().id(), Some(77));
    let error = instance.cluster(&wanted(4), None, None).unwrap_err();
    assert!(matches!(error, StartError::OtherCluster { .. }), "{error}");
    assert!(instance.cluster(&other, Some(128), None).is_err());
    instance.cluster(&other, None, Some(2)).unwrap();
    let error = instance.cluster(&other, None, Some(3)).unwrap_err();
    assert!(matches!(error, StartError::OtherReplicas { found: 2, .. }), "{error}");
    let insecure = ClusterFile { insecure: true, ..wanted(3) };
    assert!(matches!(instance.cluster(&insecure, None, None), Err(StartError::Security { .. })));
    assert!(matches!(instance.check_security_mode(true), Err(StartError::Security { .. })));
    instance.check_security_mode(false).unwrap();
    assert!(
        fs::read_dir(dir.path())
            .unwrap()
            .all(|e| { !e.unwrap().file_name().to_string_lossy().starts_with('.') })
    );
}

#[test]
fn incarnations_grow_and_the_lock_holds() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    assert_eq!(state.incarnation(), Incarnation(1));
    let error = StateDir::open(dir.path()).unwrap_err();
    assert!(matches!(error, StartError::InUse { .. }), "{error}");
    drop(state);
    assert_eq!(StateDir::open(dir.path()).unwrap().incarnation(), Incarnation(2));
    fs::write(dir.path().join("format"), "3\n").unwrap();
    let error = StateDir::open(dir.path()).unwrap_err();
    assert!(matches!(error, StartError::NewerFormat { .. }), "{error}");
}

#[test]
fn a_replaced_store_has_another_number() {
    let dir = tempfile::tempdir().unwrap();
    let number = || StateDir::open(dir.path()).unwrap().store();
    let make = || {
        fs::create_dir_all(dir.path().join(DB)).unwrap();
        fs::write(dir.path().join(DB).join("CURRENT"), "x").unwrap();
        fs::write(dir.path().join(DB).join("000001.sst"), "records").unwrap();
    };
    let first = number();
    assert_ne!((first, first), (0, number()), "nothing was written yet");
    let first = number();
    make();
    assert_eq!((first, first), (number(), number()));
    fs::remove_dir_all(dir.path().join(DB)).unwrap();
    let second = number();
    assert_ne!(first, second);
    for _ in 0..2 {
        make();
        let state = StateDir::open(dir.path()).unwrap();
        assert!(state.give_up_records().unwrap().these.unwrap().join("CURRENT").exists());
        drop(state);
        assert!(!dir.path().join(DB).exists());
        assert_ne!(second, number());
    }
    make();
    fs::remove_file(dir.path().join("store")).unwrap();
    assert!(StateDir::open(dir.path()).is_err(), "no file names the owner of these records");
}

/// A joining node is accepted with the number of its first records. If it loses them, it must not
/// return under that number.
#[test]
fn a_newcomer_without_its_first_records_has_another_number() {
    for is_given_up in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        prepare_joined(dir.path(), 77).unwrap();
        let number = || StateDir::open(dir.path()).unwrap().store();
        assert_eq!(number(), 77);
        assert_eq!(number(), 77, "nothing was written yet");
        let state = StateDir::open(dir.path()).unwrap();
        drop(crate::lifecycle::assembly::open_store(&state).unwrap());
        match is_given_up {
            true => drop(state.give_up_records().unwrap()),
            false => fs::remove_dir_all(state.db()).unwrap(),
        }
        drop(state);
        assert_ne!(number(), 77);
    }
}

/// On a disk that keeps failing, no store can replace the one that was given up.
#[test]
fn what_was_put_aside_stays_until_there_are_records_again() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    drop(crate::lifecycle::assembly::open_store(&state).unwrap());
    fs::write(state.db().join("first"), "").unwrap();
    let replaced = state.give_up_records().unwrap().these.unwrap();
    for _ in 0..2 {
        fs::create_dir_all(state.db()).unwrap();
        fs::write(state.db().join("LOG"), "half a store").unwrap();
        let given_up = state.give_up_records().unwrap();
        assert_eq!((given_up.these, given_up.earlier), (None, Some(replaced.clone())));
        assert!(replaced.join("first").exists() && !state.db().exists());
    }
    // Records without a `CURRENT` are still records.
    fs::create_dir_all(state.db()).unwrap();
    fs::write(state.db().join("000009.sst"), "records").unwrap();
    state.give_up_records().unwrap();
    assert!(replaced.join("000009.sst").exists() && !replaced.join("first").exists());
}

/// With a real store: the second one has a few records when it is given up in turn.
#[test]
fn a_store_that_was_not_filled_leaves_the_one_before_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let live = |keys: std::ops::Range<u32>| {
        let state = StateDir::open(dir.path()).unwrap();
        let mut store = crate::lifecycle::assembly::open_store(&state).unwrap();
        let put = |key: u32| kvs::Write {
            partition: proto::PartitionId(1),
            key: key.to_be_bytes().to_vec(),
            value: Some(vec![7; 100]),
        };
        let batch = kvs::Batch { seq: 1, cleared: Vec::new(), writes: keys.map(put).collect() };
        store.write(&batch).unwrap();
        store.sync().unwrap();
        state
    };
    let records = |path: &Path| crate::store::RocksStore::open(path).unwrap().0.records().count();
    let state = live(0..500);
    let damaged = state.give_up_records().unwrap().these.unwrap();
    drop(state);
    let state = live(500..503);
    assert!(state.replaced_stores().is_refilling());
    let given_up = state.give_up_records().unwrap();
    assert_eq!(given_up.earlier, Some(damaged.clone()));
    assert_eq!([records(&damaged), records(&given_up.these.unwrap())], [500, 3]);
    drop(state);
    // The next one is filled.
    let state = live(0..501);
    state.replaced_stores().filled().unwrap();
    assert_eq!(state.give_up_records().unwrap().these, Some(damaged.clone()));
    assert_eq!(state.replaced_stores().kept(), std::slice::from_ref(&damaged));
    assert_eq!(records(&damaged), 501);
}

#[test]
fn an_address_is_taken_back_only_by_its_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    let instance = Instance::open(dir.path()).unwrap();
    let file = AddressFile {
        format: 1,
        node: 2,
        incarnation: 5,
        address: "127.0.0.1:1".to_owned(),
        pid: 1,
        slots: 2,
        offer: Vec::new(),
        data: "127.0.0.1:8".to_owned(),
        launch: String::new(),
        host: String::new(),
    };
    assert_eq!(instance.read_address(NodeId(2)), None);
    instance.write_address(&file).unwrap();
    instance.remove_address(NodeId(2), Incarnation(4));
    assert_eq!(instance.read_address(NodeId(2)), Some(file));
    instance.remove_address(NodeId(2), Incarnation(5));
    assert_eq!(instance.read_address(NodeId(2)), None);
}

/// The other files of a state directory say that it had records.
#[test]
fn lost_records_are_an_error_unless_others_fill_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let open = |without| StateDir::open_above(dir.path(), Incarnation(0), without);
    let number = || fs::read_to_string(dir.path().join("store")).unwrap();
    let error = open(MissingRecords::Lost).unwrap_err();
    assert!(matches!(error, StartError::LostRecords { .. }), "the cluster has begun: {error}");
    let state = open(MissingRecords::New).unwrap();
    drop(crate::lifecycle::assembly::open_store(&state).unwrap());
    state.set_formed().unwrap();
    let first = number();
    fs::rename(state.db(), dir.path().join("elsewhere")).unwrap();
    drop(state);
    for is_empty in [false, true] {
        if is_empty {
            fs::create_dir(dir.path().join(DB)).unwrap();
        }
        let error = open(MissingRecords::New).unwrap_err();
        assert!(matches!(error, StartError::LostRecords { .. }), "{error}");
        assert_eq!(number(), first, "they may be put back");
    }
    fs::remove_dir(dir.path().join(DB)).unwrap();
    fs::rename(dir.path().join("elsewhere"), dir.path().join(DB)).unwrap();
    let state = open(MissingRecords::New).unwrap();
    assert!(state.was_formed());
    fs::remove_dir_all(state.db()).unwrap();
    drop(state);
    let state = open(MissingRecords::Filled).unwrap();
    assert!(!state.was_formed(), "it looks for a node that has the map");
    assert_ne!(number(), first);
    // What was given up is not lost.
    drop(crate::lifecycle::assembly::open_store(&state).unwrap());
    state.give_up_records().unwrap();
    drop(state);
    open(MissingRecords::New).unwrap();
}

#[test]
fn no_second_cluster_is_made_beside_the_records_of_a_first_one() {
    let dir = tempfile::tempdir().unwrap();
    let instance = Instance::open(dir.path()).unwrap();
    instance.cluster(&wanted(3), None, None).unwrap();
    let state = StateDir::open(&instance.node_dir(NodeId(0)).join("state")).unwrap();
    fs::remove_file(dir.path().join("cluster.json")).unwrap();
    instance.cluster(&wanted(3), None, None).unwrap();
    drop(crate::lifecycle::assembly::open_store(&state).unwrap());
    fs::remove_file(dir.path().join("cluster.json")).unwrap();
    let error = instance.cluster(&wanted(3), None, None).unwrap_err().to_string();
    assert!(error.contains("cluster.json is damaged: it is missing"), "{error}");
}

#[test]
fn a_node_that_has_run_lacks_none_of_its_numbers() {
    for name in ["incarnation", "store"] {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        drop(crate::lifecycle::assembly::open_store(&state).unwrap());
        drop(state);
        fs::remove_file(dir.path().join(name)).unwrap();
        let error = StateDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.ends_with(&format!("{name} is damaged: it is missing")), "{error}");
    }
}

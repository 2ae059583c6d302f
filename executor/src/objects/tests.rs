//! The store of objects on a real file system.

use std::io::Read;

use proto::limits;

use super::*;
use crate::limits::COPIES_IN_MEMORY_BYTES_MAX;

fn object(local: u64, output: u32) -> ObjectId {
    ObjectId { task: TaskId::new(9, local), attempt: Attempt(3 << 32 | 1), output }
}

fn put(store: &ObjectStore, object: ObjectId, bytes: &[u8]) {
    let mut incoming = store.create_incoming(object, ObjectKind::Made).unwrap();
    for piece in bytes.chunks(3) {
        incoming.write(piece).unwrap();
    }
    assert!(!store.contains(object), "an uncommitted object must not be visible");
    assert_eq!(incoming.commit().unwrap(), bytes.len() as u64);
}

#[test]
fn objects_survive_a_restart_and_parts_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(directory.path(), 100).unwrap();
    put(&store, object(1, 0), b"hello world");
    put(&store, object(1, 7), b"");
    let mut torn = store.create_incoming(object(2, 0), ObjectKind::Made).unwrap();
    torn.write(b"half").unwrap();
    std::mem::forget(torn);

    let store = ObjectStore::open(directory.path(), 100).unwrap();
    assert_eq!(store.totals(), (2, 11));
    let (mut file, size_bytes) = store.open_object(object(1, 0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), size_bytes), ("hello world", 11));
    assert!(matches!(store.open_object(object(2, 0)), Err(ObjectError::Absent(_))));
    fs::remove_file(store.file(object(1, 7)).unwrap()).unwrap();
    assert!(matches!(store.open_object(object(1, 7)), Err(ObjectError::Absent(_))));
    let job = directory.path().join(directory_name(JobId(9)));
    assert_eq!(fs::read_dir(&job).unwrap().count(), 1, "the part file is gone");
    store.discard(object(1, 0).task, object(1, 0).attempt);
    assert_eq!(store.totals(), (0, 0));
    assert_eq!(fs::read_dir(&job).unwrap().count(), 0);
}

#[test]
fn a_job_goes_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(directory.path(), 100).unwrap();
    let other = ObjectId { task: TaskId::new(10, 0), ..object(0, 0) };
    put(&store, object(u64::MAX >> 1, 5), b"x");
    put(&store, other, b"y");
    store.discard_job(JobId(9));
    assert!(store.contains(other));
    assert_eq!(store.totals(), (1, 1));
}

#[test]
fn a_large_job_is_forgotten_whole_but_for_what_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(directory.path(), 100).unwrap();
    let count = 700;
    let kept = |number: u64| number < 256 || number.is_multiple_of(9);
    for number in 0..count {
        let kind = if kept(number) { ObjectKind::Kept } else { ObjectKind::Made };
        store.create_incoming(object(number, 0), kind).unwrap().commit().unwrap();
    }
    store.forget_job(JobId(9));
    let left = (0..count).filter(|&number| kept(number)).count();
    assert_eq!(store.totals().0, left);
    let job = directory.path().join(directory_name(JobId(9)));
    assert_eq!(fs::read_dir(&job).unwrap().count(), left);
}

/// The node learns of the job between the list and the removal.
#[test]
fn what_comes_after_the_list_was_taken_stays() {
    let directory = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(directory.path(), 100).unwrap();
    let make = |number| {
        store.create_incoming(object(number, 0), ObjectKind::Made).unwrap().commit().unwrap()
    };
    make(1);
    let listed = store.list_to_forget(JobId(9));
    make(2);
    store.remove_listed(JobId(9), &listed);
    assert!(!store.contains(object(1, 0)) && store.contains(object(2, 0)));
}

#[test]
fn too_large_is_refused_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(directory.path(), 4).unwrap();
    let mut incoming = store.create_incoming(object(1, 0), ObjectKind::Made).unwrap();
    incoming.write(b"1234").unwrap();
    assert!(matches!(incoming.write(b"5"), Err(ObjectError::TooLarge { .. })));
    drop(incoming);
    let job = directory.path().join(directory_name(JobId(9)));
    assert_eq!(fs::read_dir(job).unwrap().count(), 0);
}

#[test]
fn what_is_taken_over_is_no_copy_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(dir.path(), u64::MAX).unwrap();
    for number in 0..2 {
        store.create_incoming(object(number, 0), ObjectKind::Copy).unwrap().commit().unwrap();
        store.take_over(object(number, 0), (number == 1).into()).unwrap();
    }
    store.take_over(object(7, 0), true.into()).unwrap_err();
    let listed = ObjectStore::open(dir.path(), u64::MAX).unwrap().list();
    let kinds: Vec<_> = listed.iter().map(|stored| (stored.stay.keep, stored.copy)).collect();
    assert_eq!(kinds, [(false, false), (true, false)]);
}

#[test]
fn an_ended_job_leaves_what_is_kept_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(directory.path(), 100).unwrap();
    let kinds = [ObjectKind::Made, ObjectKind::Kept, ObjectKind::Copy];
    for (number, kind) in kinds.into_iter().enumerate() {
        let mut incoming = store.create_incoming(object(number as u64, 0), kind).unwrap();
        incoming.write(b"bytes").unwrap();
        incoming.commit_with(7).unwrap();
    }
    assert_eq!(store.checksum(object(2, 0)), Some(7));
    let marks = |store: &ObjectStore| -> Vec<_> {
        store.list().iter().map(|it| (it.size_bytes, it.stay.keep, it.copy)).collect()
    };
    let all = [(5, false, false), (5, true, false), (5, false, true)];
    assert_eq!(marks(&store), all);
    let store = ObjectStore::open(directory.path(), 100).unwrap();
    assert_eq!(marks(&store), all);
    store.forget_job(JobId(8));
    store.forget_jobs(|job| job != JobId(9));
    assert_eq!(store.totals(), (3, 15));
    store.forget_jobs(|job| job == JobId(9));
    assert_eq!(marks(&store), all[1..2]);
    assert!(store.file(object(1, 0)).unwrap().exists());
    let job = directory.path().join(directory_name(JobId(9)));
    assert_eq!(fs::read_dir(&job).unwrap().count(), 1);
}

/// As many small copies as memory holds, and one more.
fn more_than_memory_takes() -> u64 {
    COPIES_IN_MEMORY_BYTES_MAX / limits::SMALL_OBJECT_BYTES + 1
}

fn files_of(directory: &Path) -> usize {
    fs::read_dir(directory.join(directory_name(JobId(9)))).map_or(0, Iterator::count)
}

#[test]
fn a_small_copy_becomes_a_file_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(dir.path(), u64::MAX).unwrap();
    for number in 0..3 {
        store.keep_copy(object(number, 0), b"bytes", number).unwrap();
    }
    assert_eq!((store.totals(), files_of(dir.path())), ((3, 15), 0));
    let mut text = String::new();
    store.open_object(object(0, 0)).unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), store.checksum(object(2, 0))), ("bytes", Some(2)));

    let file = store.file(object(0, 0)).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"bytes");
    assert_eq!(store.file(object(0, 0)).unwrap(), file, "there is one already");
    store.take_over(object(1, 0), true.into()).unwrap();
    assert_eq!(files_of(dir.path()), 2);
    assert!(store.open_object(object(0, 0)).unwrap().0.file().is_some());
    // Objects in memory are lost with the process; one that was taken over must not be.
    let again = ObjectStore::open(dir.path(), u64::MAX).unwrap();
    let kept: Vec<_> = again.list().iter().map(|it| (it.object, it.stay.keep)).collect();
    assert_eq!(kept, [(object(0, 0), false), (object(1, 0), true)]);

    for number in 0..3 {
        store.discard_object(object(number, 0));
    }
    assert_eq!((store.totals(), files_of(dir.path())), ((0, 0), 0));
    assert!(matches!(store.file(object(2, 0)), Err(ObjectError::Absent(_))));
}

#[test]
fn what_memory_does_not_take_is_a_file_and_what_goes_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(dir.path(), u64::MAX).unwrap();
    let bytes = vec![7; limits::SMALL_OBJECT_BYTES as usize];
    let count = more_than_memory_takes();
    for number in 0..count {
        store.keep_copy(object(number, 0), &bytes, 0).unwrap();
        store.keep_copy(object(number, 0), b"another", 0).unwrap(); // It does not change.
    }
    store.keep_copy(object(count, 0), &[&bytes[..], b"+"].concat(), 0).unwrap();
    assert_eq!(files_of(dir.path()), 2, "the one too many, and the one that is not small");
    store.discard_object(object(0, 0));
    store.file(object(1, 0)).unwrap();
    store.keep_copy(object(0, 0), &bytes, 0).unwrap();
    store.keep_copy(object(count + 1, 0), &bytes, 0).unwrap();
    assert_eq!(files_of(dir.path()), 3, "two have gone from memory, two have come");
    let expected_bytes = (count + 2) * limits::SMALL_OBJECT_BYTES + 1;
    assert_eq!(store.totals(), (count as usize + 2, expected_bytes));
}

#[test]
fn concurrent_requests_for_a_file_get_the_same_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(dir.path(), u64::MAX).unwrap();
    store.keep_copy(object(1, 0), b"bytes", 7).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert_eq!(fs::read(store.file(object(1, 0)).unwrap()).unwrap(), b"bytes")
            });
        }
    });
    assert_eq!((files_of(dir.path()), store.checksum(object(1, 0))), (1, Some(7)));
}

/// Changes the file of an object without a change of its size.
fn change(store: &ObjectStore, object: ObjectId, bytes: &[u8]) {
    let path = store.file(object).unwrap();
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&path, bytes).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_modified(before + std::time::Duration::from_nanos(1)).unwrap();
}

#[test]
fn a_changed_object_is_not_read_even_if_its_size_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = ObjectStore::open(directory.path(), 100).unwrap();
    let is_changed = |object| {
        let opened = matches!(store.open_object(object), Err(ObjectError::Changed(_)));
        assert_eq!(opened, matches!(store.file(object), Err(ObjectError::Changed(_))));
        opened
    };
    // One that arrived, one that was adopted, and one that was in memory.
    let (arrived, adopted, held) = (object(1, 0), object(2, 0), object(3, 0));
    put(&store, arrived, b"right");
    fs::write(directory.path().join("output"), "right").unwrap();
    store.adopt(&directory.path().join("output"), adopted, ObjectKind::Kept).unwrap();
    store.keep_copy(held, b"right", 0).unwrap();
    for object in [arrived, adopted, held] {
        assert!(!is_changed(object));
        change(&store, object, b"wrong");
        assert!(is_changed(object));
        assert!(store.contains(object), "it is to be replaced");
    }
    store.replace(adopted, || Err("no other".to_owned())).unwrap_err();
    assert!(is_changed(adopted), "nothing took its place");
    for object in [arrived, adopted, held] {
        if object == arrived {
            store.drop_changed(object);
            assert!(is_changed(object));
        }
        store
            .replace(object, || store.keep_copy(object, b"right", 0).map_err(|e| e.to_string()))
            .unwrap();
        let mut text = String::new();
        store.open_object(object).unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "right");
        assert_eq!(fs::read(store.file(object).unwrap()).unwrap(), b"right");
    }
    assert_eq!(store.totals(), (3, 15));
    let store = ObjectStore::open(directory.path(), 100).unwrap();
    assert_eq!(store.totals(), (3, 15), "no other file is left");
    assert!(store.list().iter().any(|it| it.object == adopted && it.stay.keep));
}

use std::io::Write;

use super::*;
use crate::limits::COPIED_INPUT_BYTES_MAX;

fn bench(limit_bytes: u64) -> (tempfile::TempDir, PathBuf, SharedTrees) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("data");
    fs::create_dir_all(source.join("sub/empty")).unwrap();
    fs::write(source.join("sub/a b"), "one").unwrap();
    fs::write(source.join("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(source.join("run"), Permissions::from_mode(0o750)).unwrap();
    let trees = SharedTrees::open(&dir.path().join("trees"), limit_bytes).unwrap();
    (dir, source, trees)
}

fn get(trees: &SharedTrees, source: &Path) -> Arc<TreeCopy> {
    trees.get(source, || true).expect("it is small")
}

fn copies(trees: &SharedTrees) -> usize {
    fs::read_dir(&trees.root).unwrap().count()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// As a command would with the rights of the owner.
fn write(path: &Path, mode: u32, text: &str) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn tasks_share_one_read_only_copy_and_a_changed_directory_is_another_one() {
    let (_dir, source, trees) = bench(1 << 20);
    let first = std::thread::scope(|scope| {
        let asked = [(); 8].map(|()| scope.spawn(|| get(&trees, &source)));
        let [first, others @ ..] = asked.map(|thread| thread.join().unwrap());
        assert!(others.iter().all(|other| Arc::ptr_eq(&first, other)));
        first
    });
    assert_eq!(copies(&trees), 1);
    let copy = first.path().to_owned();
    assert_eq!(fs::read_to_string(copy.join("sub/a b")).unwrap(), "one");
    let modes = ["", "sub", "sub/empty", "sub/a b", "run"].map(|name| mode(&copy.join(name)));
    assert_eq!(modes, [0o555, 0o555, 0o555, 0o444, 0o555]);
    assert_eq!((first.difference(), first.leads_out()), (Difference::None, false));

    fs::write(source.join("sub/new"), "two").unwrap();
    let second = get(&trees, &source);
    assert_eq!(fs::read_to_string(second.path().join("sub/new")).unwrap(), "two");
    assert_eq!(
        (first.difference(), copies(&trees)),
        (Difference::None, 2),
        "its users keep what they have"
    );
    drop((first, second));
    trees.set_room(0);
    trees.trim();
    let state = trees.state();
    assert_eq!((copies(&trees), state.size_bytes, state.entries), (0, 0, 0));
}

#[test]
fn no_link_of_a_copy_leads_back_to_the_directory_of_the_user() {
    let (dir, source, trees) = bench(1 << 20);
    fs::write(dir.path().join("other"), "other").unwrap();
    symlink("sub/a b", source.join("inside")).unwrap();
    symlink(source.join("run"), source.join("sub/absolute")).unwrap();
    symlink("../data/run", source.join("around")).unwrap();
    symlink(&source, source.join("sub/root")).unwrap();
    symlink("../other", source.join("out")).unwrap();
    symlink("nothing", source.join("dangling")).unwrap();
    let copy = get(&trees, &source);
    let target = |name: &str| fs::read_link(copy.path().join(name)).unwrap();
    let names = ["inside", "sub/absolute", "around", "sub/root", "dangling"].map(target);
    assert_eq!(names, ["sub/a b", "../run", "run", "..", "nothing"].map(PathBuf::from));
    assert_eq!(target("out"), source.canonicalize().unwrap().join("../other"));
    assert!(copy.leads_out(), "that file is compared");
}

#[test]
fn a_link_that_leads_out_follows_later_changes_outside() {
    let (dir, source, trees) = bench(1 << 20);
    for version in ["v1", "v2"] {
        fs::create_dir(dir.path().join(version)).unwrap();
        fs::write(dir.path().join(version).join("ref"), version).unwrap();
    }
    let current = dir.path().join("current");
    symlink("v1", &current).unwrap();
    symlink(current.join("ref"), source.join("absolute")).unwrap();
    symlink("../../current/ref", source.join("sub/relative")).unwrap();
    symlink("../later", source.join("later")).unwrap();
    let copy = get(&trees, &source);
    let read = |name: &str| fs::read_to_string(copy.path().join(name)).unwrap();
    assert_eq!([read("absolute"), read("sub/relative")], ["v1", "v1"]);
    fs::remove_file(&current).unwrap();
    symlink("v2", &current).unwrap();
    fs::write(dir.path().join("later"), "made").unwrap();
    let names = ["absolute", "sub/relative", "later"].map(read);
    assert_eq!(names, ["v2", "v2", "made"]);
}

/// A path around the directory is rewritten, so it counts for the hash.
#[test]
fn a_link_that_led_back_and_leads_elsewhere_makes_another_copy() {
    let (dir, source, trees) = bench(1 << 20);
    let way = dir.path().join("way");
    symlink(source.join("sub"), &way).unwrap();
    symlink("../way/a b", source.join("around")).unwrap();
    let first = get(&trees, &source);
    assert_eq!(fs::read_link(first.path().join("around")).unwrap(), Path::new("sub/a b"));
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("a b"), "other").unwrap();
    fs::remove_file(&way).unwrap();
    symlink(&other, &way).unwrap();
    let second = get(&trees, &source);
    assert_eq!(fs::read_to_string(second.path().join("around")).unwrap(), "other");
}

#[test]
fn a_copy_has_the_times_of_the_directory() {
    let (_dir, source, trees) = bench(1 << 20);
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for name in ["sub/a b", "sub/empty", "sub"] {
        File::open(source.join(name)).unwrap().set_modified(time).unwrap();
    }
    let copy = get(&trees, &source);
    for name in ["", "run", "sub", "sub/empty", "sub/a b"] {
        let modified = |root: &Path| fs::metadata(root.join(name)).unwrap().modified().unwrap();
        assert_eq!(modified(copy.path()), modified(&source), "{name}");
    }
}

#[test]
fn a_write_that_restores_the_time_makes_another_copy() {
    let (_dir, source, trees) = bench(1 << 20);
    let first = get(&trees, &source);
    let path = source.join("sub/a b");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&path, "two").unwrap();
    File::open(&path).unwrap().set_modified(time).unwrap();
    let second = get(&trees, &source);
    assert_eq!(fs::read_to_string(second.path().join("sub/a b")).unwrap(), "two");
    drop(first);
}

#[test]
fn what_a_task_does_to_a_copy_is_found_and_no_later_task_gets_it() {
    type Deed = fn(&Path);
    let deeds: [(&str, Deed); 5] = [
        ("sub/a b", |copy| write(&copy.join("sub/a b"), 0o644, "more")),
        ("run", |copy| {
            fs::set_permissions(copy, Permissions::from_mode(0o755)).unwrap();
            fs::remove_file(copy.join("run")).unwrap();
        }),
        ("sub/empty", |copy| {
            fs::set_permissions(copy.join("sub"), Permissions::from_mode(0o755)).unwrap();
            fs::remove_dir(copy.join("sub/empty")).unwrap();
        }),
        ("run", |copy| {
            // With more further entries than are listed.
            fs::set_permissions(copy, Permissions::from_mode(0o755)).unwrap();
            File::create(copy.join("big")).unwrap().set_len(COPIED_INPUT_BYTES_MAX + 1).unwrap();
            write(&copy.join("run"), 0o755, "more");
        }),
        ("sub/a b", |copy| {
            fs::set_permissions(copy.join("sub"), Permissions::from_mode(0o755)).unwrap();
            fs::rename(copy.join("sub/a b"), copy.join("sub/z")).unwrap();
        }),
    ];
    let (_dir, source, trees) = bench(1 << 20);
    for (named, deed) in deeds {
        let copy = get(&trees, &source);
        deed(copy.path());
        assert_eq!(copy.difference(), Difference::Changed(PathBuf::from(named)));
        trees.forget(&copy);
        let next = get(&trees, &source);
        assert_eq!((next.difference(), next.path() == copy.path()), (Difference::None, false));
        trees.forget(&copy); // Another task had it too.
        assert!(Arc::ptr_eq(&next, &get(&trees, &source)));
        let path = copy.path().to_owned();
        assert!(path.exists(), "it stays for the tasks that run");
        drop(copy);
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(source.join("sub/a b")).unwrap(), "one");
        assert!(source.join("run").exists() && !source.join("sub/new").exists());
    }
    let made = trees.state().made.values().map(HashSet::len).max();
    assert_eq!(made, Some(1), "the directory is the same");
}

/// An interpreter writes its cache beside the modules that it loads, if it may.
#[test]
fn what_a_task_adds_to_a_copy_is_told_apart() {
    let (_dir, source, trees) = bench(1 << 20);
    let deeds: [fn(&Path); 3] = [
        |copy| {
            fs::create_dir(copy.join("sub/__pycache__")).unwrap();
            fs::write(copy.join("sub/__pycache__/a.pyc"), "").unwrap();
        },
        |copy| fs::write(copy.join("sub/a"), "sorted before the others").unwrap(),
        |copy| {
            File::create(copy.join("z")).unwrap().set_len(COPIED_INPUT_BYTES_MAX + 1).unwrap();
        },
    ];
    for deed in deeds {
        let copy = get(&trees, &source);
        for directory in ["", "sub"] {
            let path = copy.path().join(directory);
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        deed(copy.path());
        assert_eq!(copy.difference(), Difference::Added);
        trees.forget(&copy);
    }
}

#[test]
fn large_and_odd_directories_have_no_copy() {
    let (_dir, source, trees) = bench(u64::MAX);
    let large = source.join("large");
    File::create(&large).unwrap().set_len(COPIED_INPUT_BYTES_MAX).unwrap();
    assert!(trees.get(&source, || true).is_none());
    fs::remove_file(&large).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, source.join("fifo"), fifo, mode, 0).unwrap();
    assert!(trees.get(&source, || true).is_none());
    fs::remove_file(source.join("fifo")).unwrap();
    assert!(trees.get(&source, || false).is_none(), "it is not wanted");
    assert_eq!((copies(&trees), trees.state().copies.len()), (0, 0));
    drop(get(&trees, &source));
}

#[test]
fn the_copies_have_a_bound_and_those_in_use_stay() {
    let (dir, source, trees) = bench(40);
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("x"), [b'x'; 30]).unwrap();
    let first = get(&trees, &source);
    assert!(trees.get(&other, || true).is_none(), "no room: it is linked and compared");
    drop(first);
    let second = get(&trees, &other);
    assert_eq!((copies(&trees), trees.state().size_bytes), (1, 30), "the idle one made room");
    assert!(trees.set_room(10));
    trees.trim();
    assert!(second.path().exists());
    drop(second);
    trees.trim();
    assert_eq!(copies(&trees), 0);
    trees.set_room(u64::MAX);
    let path = get(&trees, &source).path().to_owned();
    assert!(path.exists(), "it stays for the next task");
    let trees = SharedTrees::open(&trees.root, 40).unwrap();
    assert_eq!(copies(&trees), 0, "a start removes what an earlier life left");
}

#[test]
fn a_directory_that_changes_often_is_not_copied_for_each_task() {
    let (_dir, source, trees) = bench(1 << 20);
    let mut copied = 0;
    for number in 0..20 {
        fs::write(source.join("log"), vec![b'x'; number]).unwrap();
        copied += usize::from(trees.get(&source, || true).is_some());
    }
    assert_eq!(copied, TREE_COPIES_PER_SOURCE_MAX);
}

#[test]
fn an_unused_copy_that_made_room_does_not_count_again() {
    let (_dir, source, trees) = bench(1 << 20);
    for _ in 0..=TREE_COPIES_PER_SOURCE_MAX {
        drop(get(&trees, &source));
        trees.set_room(0);
        trees.trim();
        trees.set_room(u64::MAX);
        assert_eq!(copies(&trees), 0);
    }
}

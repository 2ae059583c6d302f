use std::fs::File;
use std::io::Write;

use tar::Builder;

use super::pack::header;
use super::*;

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("d");
    fs::create_dir_all(root.join("sub/empty")).unwrap();
    fs::write(root.join("sub/a b"), "one").unwrap();
    fs::write(root.join("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("run"), Permissions::from_mode(0o755)).unwrap();
    symlink("sub/a b", root.join("link")).unwrap();
    fs::write(dir.path().join("outside"), "outside").unwrap();
    symlink("../outside", root.join("out")).unwrap();
    dir
}

#[test]
fn a_directory_comes_back_as_it_was() {
    let dir = tree();
    let mut bytes = Vec::new();
    pack_directory(&dir.path().join("d"), &mut bytes).unwrap();
    let to = dir.path().join("to");
    fs::create_dir(&to).unwrap();
    let files = unpack(&bytes[..], &to, Modes::Packed).unwrap().files;
    let names: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
    assert_eq!(names, ["link", "out", "run", "sub/a b"]);
    assert_eq!(fs::read_to_string(to.join("link")).unwrap(), "one");
    assert!(to.join("link").is_symlink() && to.join("sub/empty").is_dir());
    assert_eq!(fs::read_to_string(to.join("out")).unwrap(), "outside");
    assert!(!to.join("out").is_symlink(), "its target is not packed");
    assert_eq!(to.join("run").metadata().unwrap().permissions().mode() & 0o777, 0o755);
    let mut again = Vec::new();
    pack_directory(&dir.path().join("d"), &mut again).unwrap();
    assert_eq!(bytes, again, "the same files make the same bytes");
    assert!(unpack(&bytes[..], &to, Modes::Packed).is_err(), "nothing is replaced");
}

#[test]
fn a_link_to_nowhere_inside_stays_a_link() {
    let dir = tree();
    symlink("sub/nowhere", dir.path().join("d/dangling")).unwrap();
    let mut bytes = Vec::new();
    pack_directory(&dir.path().join("d"), &mut bytes).unwrap();
    let to = dir.path().join("to");
    fs::create_dir(&to).unwrap();
    unpack(&bytes[..], &to, Modes::Packed).unwrap();
    assert_eq!(fs::read_link(to.join("dangling")).unwrap(), Path::new("sub/nowhere"));
    assert_eq!(fs::read_to_string(to.join("sub/a b")).unwrap(), "one");
}

/// Packs `d` and unpacks it; returns the directory, and the notes after both.
fn there_and_back(dir: &Path) -> (PathBuf, Vec<String>) {
    let mut bytes = Vec::new();
    let packed = pack_directory(&dir.join("d"), &mut bytes).unwrap();
    let to = dir.join("to");
    fs::create_dir(&to).unwrap();
    let unpacked = unpack(&bytes[..], &to, Modes::Packed).unwrap();
    assert_eq!(unpacked.notes, packed.notes, "each reader of the object learns of them");
    (to, packed.notes)
}

#[test]
fn an_odd_entry_costs_itself_alone_and_is_named() {
    let dir = tree();
    let root = dir.path().join("d");
    symlink("/no/where", root.join("absent")).unwrap();
    symlink("/", root.join("root")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("s\nt")).unwrap();
    let fifo = root.join("sub/fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    symlink(&fifo, root.join("to fifo")).unwrap();
    let (to, notes) = there_and_back(dir.path());
    assert_eq!(
        notes,
        [
            "'absent' stays a link to '/no/where', out of the output: no such file or directory",
            "'root' stays a link to '/', out of the output: which is no file",
            "'s\\nt' is a socket: it is left out",
            "'sub/fifo' is a FIFO: it is left out",
            &format!(
                "'to fifo' stays a link to '{}', out of the output: which is no file",
                fifo.display()
            ),
        ]
    );
    assert_eq!(fs::read_link(to.join("absent")).unwrap(), Path::new("/no/where"));
    assert_eq!(fs::read_link(to.join("root")).unwrap(), Path::new("/"));
    assert_eq!(fs::read_to_string(to.join("sub/a b")).unwrap(), "one");
    assert!(!to.join("s\nt").exists() && !to.join("sub/fifo").exists());
}

#[test]
fn the_target_of_a_link_keeps_each_byte() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("d");
    fs::create_dir(&root).unwrap();
    let long = format!("{}/", "n".repeat(120));
    let targets = ["/", "//", "./sub//x/", "sub/.", "..", &long];
    for (number, target) in targets.iter().enumerate() {
        symlink(target, root.join(number.to_string())).unwrap();
    }
    let (to, _) = there_and_back(dir.path());
    for (number, target) in targets.iter().enumerate() {
        // Paths are equal also where their bytes differ.
        let kept = fs::read_link(to.join(number.to_string())).unwrap();
        assert_eq!(kept.to_str(), Some(*target));
    }
}

#[test]
fn the_notes_have_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("d");
    fs::create_dir(&root).unwrap();
    (0..40).for_each(|number| symlink("/", root.join(format!("{number:02}"))).unwrap());
    let (_, notes) = there_and_back(dir.path());
    assert_eq!((notes.len(), notes.last().unwrap().as_str()), (17, "24 more entries are odd"));
}

/// The superuser needs no permissions: then only the modes are tested.
#[test]
fn files_without_a_mode_to_read_are_packed_with_that_mode() {
    let dir = tree();
    let root = dir.path().join("d");
    let close = |name: &str, mode| {
        fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
    };
    close("run", 0o111);
    close("sub/a b", 0);
    close("sub", 0o600);
    let (to, notes) = there_and_back(dir.path());
    assert_eq!(notes, [""; 0]);
    assert_eq!(fs::read_to_string(to.join("sub/a b")).unwrap(), "one");
    let mode = |name: &str| to.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("run"), mode("sub"), mode("sub/a b")], [0o711, 0o700, 0o600]);
}

/// A file that grows or shrinks after its header was written: the archive stays whole.
#[test]
fn a_file_that_grows_while_it_is_packed_does_not_spoil_the_others() {
    struct Growing<'f>(&'f Path, Vec<u8>);
    impl Write for Growing<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.starts_with(b"log") {
                File::options().append(true).open(self.0)?.write_all(&[b'+'; 5000])?;
            }
            self.1.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (root, to) = (dir.path().join("d"), dir.path().join("to"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&to).unwrap();
    fs::write(root.join("log"), "begin").unwrap();
    fs::write(root.join("next"), "next").unwrap();
    let mut growing = Growing(&root.join("log"), Vec::new());
    let notes = pack_directory(&root, &mut growing).unwrap().notes;
    assert_eq!(notes, ["'log' grew while it was packed: 5 bytes are kept"]);
    unpack(&growing.1[..], &to, Modes::Packed).unwrap();
    assert_eq!(fs::read_to_string(to.join("log")).unwrap(), "begin");
    assert_eq!(fs::read_to_string(to.join("next")).unwrap(), "next");
}

#[test]
fn no_entry_leads_out_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    fs::create_dir(&to).unwrap();
    let archive = |name: &str, link: Option<&str>| {
        let kind = if link.is_some() { EntryType::Symlink } else { EntryType::Regular };
        let mut header = header(kind, if link.is_some() { 0 } else { 1 }, 0o644);
        let bytes = name.as_bytes();
        header.as_old_mut().name[..bytes.len()].copy_from_slice(bytes);
        if let Some(link) = link {
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        }
        header.set_cksum();
        let mut builder = Builder::new(Vec::new());
        builder.append(&header, &b"x"[..link.map_or(1, |_| 0)]).unwrap();
        builder.into_inner().unwrap()
    };
    for name in ["../x", "/tmp/x", "a/../../x"] {
        assert!(unpack(&archive(name, None)[..], &to, Modes::Umask).is_err(), "{name}");
    }
    // A link may lead anywhere; nothing is written through it, and no mode behind it changes.
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::set_permissions(&outside, Permissions::from_mode(0o750)).unwrap();
    for (number, link) in ["..", "../outside", "a", outside.to_str().unwrap()].iter().enumerate() {
        let name = format!("l{number}");
        unpack(&archive(&name, Some(link))[..], &to, Modes::Packed).unwrap();
        let below = archive(&format!("{name}/x"), None);
        let error = unpack(&below[..], &to, Modes::Packed).unwrap_err();
        assert!(error.to_string().contains("is a link"), "{error}");
        let mut header = header(EntryType::Directory, 0, 0o700);
        let mut builder = Builder::new(Vec::new());
        builder.append_data(&mut header, &name, io::empty()).unwrap();
        unpack(&builder.into_inner().unwrap()[..], &to, Modes::Packed).unwrap_err();
    }
    assert_eq!(outside.metadata().unwrap().permissions().mode() & 0o777, 0o750);
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
    assert!(!dir.path().join("x").exists());
}

#[test]
fn patterns_match_files_alone() {
    let dir = tree();
    let root = dir.path().join("d");
    let found = |pattern: &str| {
        let found = matching(&root, pattern).unwrap().files;
        found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",")
    };
    assert_eq!(found("*"), "link,out,run");
    assert_eq!(found("sub/*"), "sub/a b");
    assert_eq!(found("x*"), "");
    fs::create_dir_all(root.join(".git/deep")).unwrap();
    for name in ["sub/.hidden", "sub/empty/deep.txt", ".git/deep/x.txt", "top.txt"] {
        fs::write(root.join(name), "").unwrap();
    }
    symlink("sub", root.join("way")).unwrap();
    assert_eq!(found("**/*.txt"), "sub/empty/deep.txt,top.txt");
    assert_eq!(found("./*/*"), "sub/a b", "neither through a link nor a hidden one");
    assert_eq!(found("sub/.*"), "sub/.hidden");
    assert_eq!([found("**"), found("sub/**/*")], ["", "sub/a b,sub/empty/deep.txt"]);
    assert_eq!([found("[rl]*n"), found("top.txt/*")], ["run", ""]);
    assert!(matching(&root, "a**").unwrap_err().contains("is not a pattern"));
    let directories = |pattern: &str| matching(&root, pattern).unwrap().directories;
    assert_eq!(directories("[sw]*"), [PathBuf::from("sub"), PathBuf::from("way")]);
    assert!(directories("**/*").is_empty(), "their files match");
}

/// A library for patterns panicked here, and took the node's commands with it.
#[test]
fn names_that_are_not_utf_8_match_and_are_packed() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tree();
    let root = dir.path().join("d");
    let odd = [&b"\xff.dat"[..], b"\xfe.dat", b"new\nline.dat"].map(std::ffi::OsStr::from_bytes);
    odd.iter().for_each(|name| fs::write(root.join(name), "x").unwrap());
    assert_eq!(matching(&root, "*.dat").unwrap().files.len(), 3);
    assert_eq!(matching(&root, "?.dat").unwrap().files.len(), 2);
    let (to, notes) = there_and_back(dir.path());
    assert_eq!(notes, [""; 0]);
    assert!(odd.iter().all(|name| to.join(name).is_file()));
}

/// A note that the limit of the bytes cuts, in a character of three bytes.
#[test]
fn long_notes_of_an_archive_are_cut_and_the_files_stay_readable() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("xx{}", "\u{fffd}".repeat(NOTES_BYTES_MAX as usize / 3 + 1));
    let mut header = header(EntryType::XGlobalHeader, text.len() as u64, 0o644);
    let mut builder = Builder::new(Vec::new());
    builder.append_data(&mut header, NOTES_ENTRY, text.as_bytes()).unwrap();
    let unpacked = unpack(&builder.into_inner().unwrap()[..], dir.path(), Modes::Umask).unwrap();
    assert_eq!(unpacked.notes.len(), 1);
    assert!(unpacked.notes[0].starts_with("xx\u{fffd}\u{fffd}"));
}

#[test]
fn a_matched_link_to_a_file_that_does_not_match_is_packed_as_that_file() {
    let dir = tree();
    let root = dir.path().join("d");
    for (target, name) in
        [("../run", "sub/l.txt"), ("l.txt", "sub/m.txt"), ("no", "sub/n.txt"), ("a b", "sub/o.txt")]
    {
        symlink(target, root.join(name)).unwrap();
    }
    fs::write(root.join("sub/p.txt"), "p").unwrap();
    symlink("./../sub/p.txt", root.join("sub/q.txt")).unwrap();
    fs::create_dir(root.join("sub/r.txt")).unwrap();
    let found = matching(&root, "sub/*.txt").unwrap();
    let mut bytes = Vec::new();
    let notes = pack(&root, &found, &mut bytes).unwrap().notes;
    let why = "out of the output: no such file or directory";
    let left_out = "'sub/r.txt' is a directory: it is left out";
    assert_eq!(notes, [&format!("'sub/n.txt' stays a link to 'no', {why}"), left_out]);
    let to = dir.path().join("to");
    fs::create_dir(&to).unwrap();
    unpack(&bytes[..], &to, Modes::Packed).unwrap();
    let read = |name: &str| fs::read_to_string(to.join("sub").join(name)).unwrap();
    assert_eq!(["l.txt", "m.txt", "o.txt"].map(read), ["#!/bin/sh\n", "#!/bin/sh\n", "one"]);
    assert!(!to.join("sub/l.txt").is_symlink() && to.join("sub/n.txt").is_symlink());
    assert!(to.join("sub/m.txt").is_symlink() && to.join("sub/q.txt").is_symlink());
}

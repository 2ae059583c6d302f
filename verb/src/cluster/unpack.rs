//! Kept directories and patterns: archives in the cluster, files for the user.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use executor::archive::{Modes, unpack};
use proto::wire::OutputForm;

/// The files of an archive after their copy.
#[derive(Default, Debug)]
pub(super) struct Unpacked {
    /// The files in their places.
    pub(super) placed: Vec<PathBuf>,
    /// The places that were taken; their files were left out.
    pub(super) left_out: Vec<PathBuf>,
    /// One line for each odd entry of the archive.
    pub(super) notes: Vec<String>,
}

/// Makes the directory that an output with this place goes to. Refuses a place behind a link out of
/// `dir`; a file takes the place of such a link.
pub(super) fn make_parent(dir: &Path, to: &Path, form: OutputForm) -> io::Result<()> {
    let parent = to.parent().unwrap_or(dir);
    let made = if form == OutputForm::Directory { to } else { parent };
    no_link_out(dir, made.strip_prefix(dir).unwrap_or(made))?;
    fs::create_dir_all(parent)
}

/// Puts the files of an archive in their places: those of a directory below `to`, those of a
/// pattern below `dir`. Each gets its name only when the archive is complete. A file of the user is
/// replaced only by a file of the same place; all others stay. No file goes to a place that
/// `is_taken`.
pub(super) fn place(
    archive: &Path,
    form: OutputForm,
    dir: &Path,
    to: &Path,
    is_taken: impl Fn(&Path) -> bool,
) -> io::Result<Unpacked> {
    let scratch = tempfile::Builder::new().prefix(".starling-part-").tempdir_in(dir)?;
    let whole = scratch.path().join("whole");
    fs::create_dir(&whole)?;
    let executor::archive::Unpacked { files, notes, .. } =
        unpack(BufReader::new(File::open(archive)?), &whole, Modes::Umask)?;
    let base = if form == OutputForm::Directory { to } else { dir };
    let mut unpacked = Unpacked { notes, ..Unpacked::default() };
    if form == OutputForm::Directory && fs::symlink_metadata(to).is_err() {
        fs::rename(&whole, to)?;
        unpacked.placed = files.iter().map(|file| to.join(file)).collect();
        return Ok(unpacked);
    }
    if form == OutputForm::Directory {
        make_directories(&whole, to, Path::new(""))?;
    }
    for file in files {
        let place = base.join(&file);
        if is_taken(&place) {
            unpacked.left_out.push(place);
            continue;
        }
        if let Some(parent) = file.parent() {
            no_link_out(base, parent)?;
            fs::create_dir_all(base.join(parent))?;
        }
        fs::rename(whole.join(&file), &place)?;
        unpacked.placed.push(place);
    }
    Ok(unpacked)
}

/// Makes the directories below `from` also below `to`, where they may exist.
fn make_directories(from: &Path, to: &Path, inside: &Path) -> io::Result<()> {
    no_link_out(to, inside)?;
    fs::create_dir_all(to.join(inside))?;
    for entry in fs::read_dir(from.join(inside))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_directories(from, to, &inside.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Refuses a directory below `base` that is behind a link out of `base`. An earlier copy may have
/// made that link, so what it leads to is not meant.
fn no_link_out(base: &Path, inside: &Path) -> io::Result<()> {
    let mut above = base.to_owned();
    for part in inside {
        above.push(part);
        let is_link = fs::symlink_metadata(&above).is_ok_and(|it| it.is_symlink());
        let leads_in = || {
            let behind = fs::canonicalize(&above)?;
            io::Result::Ok(behind.starts_with(fs::canonicalize(base)?))
        };
        if is_link && !leads_in().unwrap_or(false) {
            let (link, base) = (above.display(), base.display());
            let text = format!("'{link}' is a link that leads out of '{base}'");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// An archive of the files of a directory.
    fn archive(root: &Path, files: &[(&str, &str)]) -> PathBuf {
        let from = root.join("made");
        for (name, text) in files {
            let path = from.join(name);
            fs::create_dir_all(path.parent().expect("it is below")).expect("there is room");
            fs::write(path, text).expect("there is room");
        }
        let to = root.join("archive");
        let mut file = File::create(&to).expect("there is room");
        executor::archive::pack_directory(&from, &mut file).expect("it is readable");
        to
    }

    #[test]
    fn a_directory_of_the_user_keeps_its_other_files() {
        let root = tempfile::tempdir().expect("there is room");
        let archive = archive(root.path(), &[("main.o", "new"), ("deep/x", "x")]);
        let to = root.path().join("src");
        fs::create_dir_all(to.join("deep")).expect("there is room");
        fs::write(to.join("main.c"), "mine").expect("there is room");
        fs::write(to.join("main.o"), "old").expect("there is room");
        fs::write(to.join("deep/y"), "mine too").expect("there is room");
        let form = OutputForm::Directory;
        let unpacked = place(&archive, form, root.path(), &to, |_| false).expect("it fits");
        assert_eq!((unpacked.placed.len(), unpacked.left_out.len()), (2, 0));
        let read = |name: &str| fs::read_to_string(to.join(name)).expect(name);
        assert_eq!([read("main.c"), read("deep/y")], ["mine", "mine too"]);
        assert_eq!([read("main.o"), read("deep/x")], ["new", "x"]);
    }

    /// An earlier copy may have brought a link that leads out of the directory.
    #[test]
    fn nothing_is_written_through_a_link_that_leads_out() {
        let root = tempfile::tempdir().expect("there is room");
        let archive = archive(root.path(), &[("deep/x", "new"), ("y", "new")]);
        let (to, other) = (root.path().join("src"), root.path().join("other"));
        fs::create_dir(&to).expect("there is room");
        fs::create_dir(&other).expect("there is room");
        fs::write(other.join("x"), "mine").expect("there is room");
        symlink(&other, to.join("deep")).expect("there is room");
        symlink(other.join("x"), to.join("y")).expect("there is room");
        for form in [OutputForm::Directory, OutputForm::Files] {
            let placed = place(&archive, form, &to, &to, |_| false).expect_err("a link");
            assert!(placed.to_string().contains("deep' is a link"), "{placed}");
            assert_eq!(fs::read_to_string(other.join("x")).expect("it is there"), "mine");
        }
        fs::remove_file(to.join("deep")).expect("ours");
        fs::create_dir(to.join("real")).expect("there is room");
        symlink("real", to.join("deep")).expect("there is room");
        place(&archive, OutputForm::Directory, &to, &to, |_| false).expect("it leads in");
        assert_eq!(fs::read_to_string(to.join("real/x")).expect("it is there"), "new");
        assert_eq!(fs::read_to_string(to.join("y")).expect("it replaced the link"), "new");
        assert_eq!(fs::read_to_string(other.join("x")).expect("it is there"), "mine");
    }

    /// Also for files with a directory in their name, which are no archives.
    #[test]
    fn no_output_goes_to_a_directory_behind_a_link_that_leads_out() {
        let root = tempfile::tempdir().expect("there is room");
        let (dir, other) = (root.path().join("out"), root.path().join("other"));
        fs::create_dir_all(dir.join("x")).expect("there is room");
        fs::create_dir(&other).expect("there is room");
        symlink(&other, dir.join("x/sub")).expect("there is room");
        symlink("x", dir.join("y")).expect("there is room");
        let made = |name: &str, form| make_parent(&dir, &dir.join(name), form);
        for form in [OutputForm::File, OutputForm::Directory, OutputForm::Files] {
            for name in ["x/sub/f", "x/sub/deep/f", "y/sub/f"] {
                let error = made(name, form).expect_err("a link");
                assert!(error.to_string().contains("sub' is a link that leads out"), "{error}");
            }
            made("y/new/f", form).expect("it leads in");
            made("f", form).expect("it is in the directory itself");
        }
        made("x/sub", OutputForm::Directory).expect_err("a link");
        made("x/sub", OutputForm::File).expect("the link is replaced");
        assert!(dir.join("x/new").is_dir());
        assert!(fs::read_dir(&other).expect("it is there").next().is_none());
    }

    #[test]
    fn a_file_of_another_output_is_not_replaced() {
        let root = tempfile::tempdir().expect("there is room");
        let archive = archive(root.path(), &[("ab.txt", "B"), ("b.txt", "b")]);
        let taken = root.path().join("ab.txt");
        fs::write(&taken, "A").expect("there is room");
        let is_taken = |path: &Path| path == taken;
        let (form, to) = (OutputForm::Files, root.path());
        let unpacked = place(&archive, form, root.path(), to, is_taken).expect("it fits");
        assert_eq!(unpacked.left_out, std::slice::from_ref(&taken));
        assert_eq!(unpacked.placed, [root.path().join("b.txt")]);
        assert_eq!(fs::read_to_string(taken).expect("it is there"), "A");
    }

    #[test]
    fn a_file_where_the_directory_goes_is_an_error_that_leaves_it() {
        let root = tempfile::tempdir().expect("there is room");
        let archive = archive(root.path(), &[("x", "x")]);
        let to = root.path().join("src");
        fs::write(&to, "mine").expect("there is room");
        place(&archive, OutputForm::Directory, root.path(), &to, |_| false).expect_err("a file");
        assert_eq!(fs::read_to_string(to).expect("it is there"), "mine");
    }
}

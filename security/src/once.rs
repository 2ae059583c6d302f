/*!
Creates a file exactly once among several processes, and atomically. The key files and the instance
directory use it.

A hard link fails if the name exists. On a file system without hard links, a process claims the name
with a second file, which it creates exclusively, and then renames. The claim of a dead process
expires: one of the waiting processes then creates the claim of the next generation. No process
removes the claim of another before the name exists. A process that is slower than the expiry of its
claim may still replace a file that was read.
*/

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proto::Span;
use rustix::io::Errno;

/// On file systems without hard links, a process that has claimed a file name writes the file
/// within this time.
const CLAIM_TIMEOUT: Span = Span::from_secs(5);

/// This process has found a file system without hard links.
static LACKS_LINKS: AtomicBool = AtomicBool::new(false);

/// True if this process has created a file without a hard link because its file system has none.
#[must_use]
pub fn has_lacked_links() -> bool {
    LACKS_LINKS.load(Ordering::Relaxed)
}

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Renames a complete file to `path` unless `path` exists. In both cases the old name is removed.
pub fn give_name(whole: &Path, path: &Path) -> io::Result<()> {
    let patience = Duration::from_nanos(CLAIM_TIMEOUT.0);
    let named = give_name_with(whole, path, patience, |whole, path| fs::hard_link(whole, path));
    // The old name may be gone already.
    let _ = fs::remove_file(whole);
    named
}

/// True if this error means that the file system has no hard links.
fn lacks_links(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let missing =
        [Errno::PERM, Errno::MLINK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOTSUP, Errno::NOLCK];
    errno.is_some_and(|errno| missing.contains(&errno))
}

fn give_name_with(
    whole: &Path,
    path: &Path,
    patience: Duration,
    link: impl Fn(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    give_name_as(whole, path, patience, link, |whole, path| fs::rename(whole, path))
}

fn give_name_as(
    whole: &Path,
    path: &Path,
    patience: Duration,
    link: impl Fn(&Path, &Path) -> io::Result<()>,
    rename: impl Fn(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    match link(whole, path) {
        Err(error) if lacks_links(&error) => LACKS_LINKS.store(true, Ordering::Relaxed),
        linked => return linked,
    }
    let generation = claim(path, patience)?;
    let named = match path.exists() {
        true => Err(io::ErrorKind::AlreadyExists.into()),
        false => rename(whole, path),
    };
    // The claims of dead processes are of no use once the name exists.
    let first = if path.exists() { 0 } else { generation };
    for generation in first..=generation {
        let _ = fs::remove_file(claim_of(path, generation));
    }
    named
}

/// Claims the name exclusively. Returns the generation of the claim.
fn claim(path: &Path, patience: Duration) -> io::Result<u32> {
    // The last claim that was seen, its text, and the time since when it is unchanged.
    let (mut seen, mut since) = (None, Instant::now());
    loop {
        if path.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let last = (0..).take_while(|it| claim_of(path, *it).exists()).last();
        let now = last.map(|it| (it, fs::read(claim_of(path, it)).ok()));
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if last.is_none() || since.elapsed() > patience {
            let next = last.map_or(0, |it| it + 1);
            match OpenOptions::new().create_new(true).write(true).open(claim_of(path, next)) {
                Ok(mut file) => {
                    // If this fails, the claim is empty like others.
                    let _ = file.write_all(&random_text());
                    return Ok(next);
                }
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Err(_) => {}
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A random text that distinguishes claims.
fn random_text() -> [u8; 16] {
    let mut text = [0; 16];
    // If this fails, the claim is like an empty one.
    let _ = fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut text));
    text
}

fn claim_of(path: &Path, generation: u32) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".claim");
    if generation > 0 {
        name.push(format!(".{generation}"));
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn is_claim(entry: &io::Result<fs::DirEntry>) -> bool {
        entry.as_ref().unwrap().file_name().to_string_lossy().contains("claim")
    }

    fn no_links(_: &Path, _: &Path) -> io::Result<()> {
        Err(Errno::PERM.into())
    }

    #[test]
    fn one_of_many_makes_it_with_links_and_without() {
        for links in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("it");
            let make = |number: usize| {
                let whole = dir.path().join(format!("whole-{number}"));
                fs::write(&whole, number.to_string()).unwrap();
                let link = |whole: &Path, path: &Path| match links {
                    true => fs::hard_link(whole, path),
                    false => no_links(whole, path),
                };
                let named = give_name_with(&whole, &path, Duration::from_secs(20), link);
                let seen = fs::read_to_string(&path).unwrap();
                (named.is_ok(), seen)
            };
            let made: Vec<(bool, String)> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..8).map(|number| scope.spawn(move || make(number))).collect();
                threads.into_iter().map(|it| it.join().unwrap()).collect()
            });
            assert_eq!(made.iter().filter(|(was_first, _)| *was_first).count(), 1, "{made:?}");
            assert!(made.iter().all(|(_, seen)| *seen == made[0].1), "{made:?}");
            assert!(!claim_of(&path, 0).exists());
        }
    }

    #[test]
    fn a_dead_claim_is_given_up_by_many_and_the_next_is_not() {
        for _ in 0..3 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("it");
            fs::write(claim_of(&path, 0), "dead").unwrap();
            let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let make = |number: usize| {
                let whole = dir.path().join(format!("whole-{number}"));
                fs::write(&whole, number.to_string()).unwrap();
                give_name_as(&whole, &path, Duration::from_secs(2), no_links, |from, to| {
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    // Slower than the polling interval of the waiting processes.
                    std::thread::sleep(Duration::from_millis(60));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    fs::rename(from, to)
                })
                .is_ok()
            };
            let made: usize = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..8).map(|number| scope.spawn(move || make(number))).collect();
                threads.into_iter().map(|it| usize::from(it.join().unwrap())).sum()
            });
            assert_eq!((made, most.into_inner()), (1, 1), "one at a time, and one in all");
            assert_eq!(fs::read_dir(dir.path()).unwrap().filter(is_claim).count(), 0);
        }
    }

    #[test]
    fn the_claim_of_one_that_died_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let (whole, path) = (dir.path().join("whole"), dir.path().join("it"));
        fs::write(&whole, "text").unwrap();
        fs::write(claim_of(&path, 0), "").unwrap();
        let patience = Duration::from_millis(50);
        give_name_with(&whole, &path, patience, no_links).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::write(&whole, "late").unwrap();
        let late = give_name_with(&whole, &path, patience, no_links).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"text");
    }
}
